"""Scores, masks and weights are what torch computes, to the rounding errors of the operations.

``flex_attention`` takes a function of score, batch, head, query and key: there the masks are written as its users write
them. What torch has a function of its own for is compared with that. Masks and functions of which each is a variant of
its own are compared in ``test_torch_variants``.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import symattn
from symattn import Attention, InputError, functional, kind
from symattn.attention.variants import VARIANTS
from symattn.derivations.variants import Support
from tests.arrays.conformance import check
from tests.arrays.kinds import FloatSpecimen
from tests.arrays.operations import TABLE
from tests.attention.definitions import DEFINITIONS
from tests.bounded import bounded

pytestmark = pytest.mark.torch
B, H, G, N_Q, N_K, D = 2, 4, 2, 5, 8, 4
_DRAW = np.random.default_rng(0)
Q, K, V = (_DRAW.normal(size=s) for s in ((B, H, N_Q, D), (B, G, N_K, D), (B, G, N_K, D)))
BIAS, DOC_Q = _DRAW.normal(size=(H, N_Q, N_K)), np.array([0, 1, 1, 2, 2])
DOC_K, INF, LATE = np.array([0, 0, 0, 1, 1, 2, 2, 2]), float("inf"), N_K - N_Q
ALONE = np.array([9, 1, 1, 2, 2])  # the first query has a document without keys
#: The number of keys of a document before the first token of it that is a query, at each query.
BEFORE = np.array([2, 0, 0, 1, 1])


def radii(run: Callable[..., Any], *arrays: np.ndarray) -> list[Any]:
    """The bounds of the float64 operations; none of the bounds is wide."""
    with np.errstate(all="ignore"):
        found = run(*map(bounded(np.float64).lift, arrays))
    bounds = [x.planes[1] for x in (found if isinstance(found, tuple) else (found,))]
    assert all((r < 2.0**-40).all() for r in bounds)
    return bounds


def closed(allowed: Any) -> Callable[..., Any]:
    """A score_mod that forbids what ``allowed`` does not say; i and j count from 0, j from the first key."""
    import torch

    return lambda s, b, h, i, j: torch.where(allowed(i, j), s, -INF)


def capped(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    import torch

    return torch.where(i + LATE >= j, 3 * torch.tanh(s / 3) + torch.tensor(BIAS)[h, i, j], -INF)


def same(i: Any, j: Any) -> Any:
    import torch

    return torch.tensor(DOC_Q)[i] == torch.tensor(DOC_K)[j]


def within(i: Any, j: Any) -> Any:
    """Documents, causal bottom-right in each: its first query has the place ``BEFORE``."""
    import torch

    first_q, first_k = torch.tensor([0, 1, 1, 3, 3]), torch.tensor([0, 0, 0, 3, 3, 5, 5, 5])
    return same(i, j) & (j - first_k[j] <= i - first_q[i] + torch.tensor(BEFORE)[i])


FLEX: dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[], Callable[..., Any]]]] = {
    "capped, biased, causal": ({"softcap": 3, "bias": True, "causal": True}, {"bias": BIAS[None]}, lambda: capped),
    "documents": ({"documents": True}, {"doc_q": DOC_Q, "doc_k": DOC_K}, lambda: closed(same)),
    "documents, causal": (
        {"documents": True, "causal": True},
        {"doc_q": DOC_Q, "doc_k": DOC_K},
        lambda: closed(within),
    ),
    "an empty row": (
        {"documents": True, "scale": 2},
        {"doc_q": ALONE, "doc_k": DOC_K},
        lambda: closed(lambda i, j: (i > 0) & same(i, j)),
    ),
}


@pytest.mark.parametrize("name", FLEX)
def test_flex_attention(name: str) -> None:
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    fields, given, modify = FLEX[name]
    spec = Attention(heads=H, kv_heads=G, lse=True, **fields)
    numbers = [n for n in given if n == "bias"]
    plain = {n: a for n, a in given.items() if n != "bias"}

    def run(q: Any, k: Any, v: Any, *more: Any) -> Any:
        return spec(q, k, v, **dict(zip(numbers, more, strict=True)), **plain)

    arrays = [Q, K, V, *(given[n] for n in numbers)]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        tensors = [torch.tensor(a) for a in (Q, K, V)]
        theirs = flex_attention(
            *tensors, score_mod=modify(), scale=fields.get("scale"), enable_gqa=True, return_lse=True
        )
    for ours, other, radius in zip(run(*arrays), theirs, radii(run, *arrays), strict=True):
        equal = ours == other.numpy()  # −∞ of an empty row, too
        assert (np.abs(np.subtract(ours, other.numpy(), where=~equal, out=np.zeros(ours.shape))) <= 2 * radius).all()
    other = Attention(**{f: getattr(spec, f) for f in spec.__dataclass_fields__} | {"scale": 3})(Q, K, V, **given)[0]
    assert (np.abs(other - theirs[0].numpy()) > 1e-3).any()


def _scores(spec: Attention, q: Any, k: Any, *weights: Any) -> Any:
    return spec.trace(q, k, k, **dict(zip(["w_s"], weights, strict=False)))["scores"]


def by_torch(name: str) -> tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]:
    """Ours, torch's, and what both are given."""
    import torch

    q, k, w, s = Q[0, 0], K[0, 0], BIAS[0, :4, :4], BIAS
    distance, general = (Attention(score=score, scale=1) for score in ("distance", "general"))
    pairs: dict[str, Any] = {
        "distance": (partial(_scores, distance), lambda q, k: -((q[:, None] - k[None]) ** 2).sum(-1) / 2, (q, k)),
        "general": (partial(_scores, general), lambda q, k, w: _bilinear(q, k, w), (q, k, w)),
        "sigmoid": (lambda s: functional.sigmoid_weights(s, 0), torch.sigmoid, (s,)),
        "relu": (functional.relu_weights, lambda s: torch.relu(s) / N_K, (s,)),
        "relu_sum": (partial(functional.relu_weights, divided=False), torch.relu, (s,)),
        "powers of two": (functional.powers_of_two, torch.exp, (s,)),
    }  # fmt: skip
    return pairs[name]  # type: ignore[no-any-return]


def _bilinear(q: Any, k: Any, w: Any) -> Any:
    """torch's ``Bilinear`` of every query with every key."""
    import torch

    many = torch.nn.functional.bilinear(q.repeat_interleave(len(k), 0), k.repeat(len(q), 1), w[None])
    return many.reshape(len(q), len(k))


@pytest.mark.parametrize("name", ["distance", "general", "sigmoid", "relu", "relu_sum", "powers of two"])
def test_functions_of_torch(name: str) -> None:
    import torch

    ours, theirs, arrays = by_torch(name)
    found, other = ours(*arrays), theirs(*map(torch.tensor, arrays)).numpy()
    [radius] = radii(ours, *arrays)
    assert (np.abs(found - other) <= 2 * radius).all()
    assert (np.abs(ours(*(2 * a for a in arrays)) - other) > 2 * radius).any()


CLOSE = 2.0**-40  # of the largest entry: float64 loses a few bits, and another definition more


def tensors(inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """The inputs as tensors: numbers as float64, booleans and whole numbers as they are."""
    xp = kind("torch").xp
    return {name: xp.asarray(a, dtype=xp.float64 if a.dtype.kind == "f" else None) for name, a in inputs.items()}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definitions_are_within_the_rounding_errors_of_their_operations(name: str) -> None:
    definition = DEFINITIONS[name]
    with np.errstate(all="ignore"):
        wanted = definition.run(kind("float64").lift)
        radius = definition.run(bounded(np.float64).lift).planes[1]
    got = definition.spec(**tensors(definition.given)).numpy()
    assert got.dtype == np.float64
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    assert (np.abs(got - wanted)[~np.isnan(wanted)] <= 2 * radius[~np.isnan(wanted)]).all()


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_give_what_they_give_in_numpy(name: str) -> None:
    spec, inputs = VARIANTS[name].spec, Support(name, VARIANTS[name]).example
    wanted, got = spec(**inputs), spec(**tensors(inputs))
    for ours, theirs in zip(*((x if spec.lse else (x,)) for x in (wanted, got)), strict=True):
        np.testing.assert_allclose(theirs.numpy(), ours, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("wrong", ["int64", "bool", "complex128"])
def test_what_tensors_hold_is_looked_at(wrong: str) -> None:
    import torch

    q = torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(InputError, match=rf"^k must hold numbers in floating point, got torch.{wrong}$"):
        Attention()(q, q.to(getattr(torch, wrong)), q)


class TensorSpecimen(FloatSpecimen):
    """float64 tensors on the CPU."""

    def elements(self, array: Any) -> np.ndarray:
        return super().elements(array.numpy())


#: What definitions ask of a namespace; other names are torch's own, and not promised.
NAMES = (
    *("sum", "asarray", "where", "reshape", "log", "exp", "arange", "astype", "maximum", "minimum", "sqrt", "stack"),
    *("concat", "cumulative_sum", "broadcast_to", "sin", "cos", "permute_dims", "tanh", "mean", "max", "exp2", "abs"),
    *("zeros_like", "take", "sort", "pow", "isfinite", "flip", "any", "+", "-", "*", "/", "**", "@", "<", "==", "[]"),
    *("argsort", "take_along_axis", "vecdot", "repeat", "min", "sort descending"),
)


def plain(x: Any) -> Any:
    """Booleans and whole numbers as NumPy's, by which they are compared."""
    import torch

    return x.numpy() if torch.is_tensor(x) and not x.is_floating_point() else x


#: torch puts the axes of a whole number and of an array about a slice elsewhere: no definition has such an index.
LATER = {"[]": 10}


@pytest.mark.parametrize("name", NAMES)
def test_functions_are_those_of_the_standard(name: str) -> None:
    """Programs whose arguments tensors lack (NumPy's arrays, steps of −1, no axis at all) are left out, but not all."""
    specimen = TensorSpecimen("torch", kind("torch"), dtype=np.dtype(np.float64))
    agreed = 0
    for case in TABLE[name][: LATER.get(name)]:
        mine = replace(case, run=lambda *a, of=case.run: plain(of(*a)), reference=case.reference or case.run)
        try:
            check(mine, specimen)
        except AssertionError:
            raise
        except Exception:
            continue
        agreed += 1
    assert agreed


@pytest.mark.parametrize("name", VARIANTS)
def test_arrays_are_made_on_the_device_of_the_inputs(name: str) -> None:
    """On a device without numbers (``meta``): no operation meets a tensor of another device, but for single numbers."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class OnOneDevice(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            for a in args:
                assert not isinstance(a, torch.Tensor) or a.device.type == "meta" or a.ndim == 0, func
            return func(*args, **(kwargs or {}))

    there = {n: a.to("meta") for n, a in tensors(Support(name, VARIANTS[name]).example).items()}
    with OnOneDevice():
        out = VARIANTS[name].spec(**there)
    assert (out[0] if VARIANTS[name].spec.lse else out).device.type == "meta"


@pytest.mark.parametrize("form", ["float32", "bfloat16", "float8_e5m2", "requires_grad"])
def test_functions_take_tensors_of_every_form(form: str) -> None:
    """Tensors are arrays, also in formats that NumPy lacks and where they are part of a graph."""
    torch = pytest.importorskip("torch")
    e = torch.eye(2)
    e = e.requires_grad_() if form == "requires_grad" else e.to(getattr(torch, form))
    given, wanted = {"q": e, "k": e, "v": e}, dict.fromkeys("qkv", np.eye(2))
    assert symattn.evaluate(Attention(), given).digits.tolist() == symattn.evaluate(Attention(), wanted).digits.tolist()
    gradients = [symattn.vjp(Attention(), g, of) for g, of in ((e, given), (np.eye(2), wanted))]
    tangents = [symattn.jvp(Attention(), of, of) for of in (given, wanted)]
    np.testing.assert_allclose(gradients[0]["k"], gradients[1]["k"], rtol=1e-6)
    np.testing.assert_allclose(*tangents, rtol=1e-6)
    found = [symattn.enclose(Attention(), of).centre for of in (given, wanted)]
    np.testing.assert_array_equal(*found)
    assert symattn.claim("equal", e, [[1, 0], [0, 1]]).holds
    assert symattn.walk({"x": e}).text() == symattn.walk({"x": np.eye(2)}).text()
    assert symattn.bound(Attention(), given, "float16").value == symattn.bound(Attention(), wanted, "float16").value


@pytest.mark.parametrize("run", ["evaluate", "vjp", "claim", "walk"])
def test_a_tensor_without_numbers_is_refused(run: str) -> None:
    torch = pytest.importorskip("torch")
    e = torch.eye(2, device="meta")
    calls = {
        "evaluate": lambda: symattn.evaluate(Attention(), dict.fromkeys("qkv", e)),
        "vjp": lambda: symattn.vjp(Attention(), np.eye(2), dict.fromkeys("qkv", e)),
        "claim": lambda: symattn.claim("equal", e, e),
        "walk": lambda: symattn.walk({"x": e}),
    }
    with pytest.raises(symattn.InputError, match="is a tensor without numbers to read: "):
        calls[run]()


@pytest.mark.parametrize("spec", [Attention(), Attention(mask="additive"), Attention(heads=1, causal=True)])
def test_tensors_beside_arrays_are_refused(spec: Attention) -> None:
    torch = pytest.importorskip("torch")
    more = {"mask": np.zeros((2, 2))} if spec.mask else {}
    with pytest.raises(InputError, match=r"^k is a tensor of PyTorch, and \w+ an array of NumPy; hint: convert"):
        spec(np.eye(2), torch.eye(2), np.eye(2), **more)
    assert spec(*[np.eye(2)] * 3, **more).shape == (2, 2)
