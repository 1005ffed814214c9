"""A specification with its inputs: how it runs on arrays of a kind, and what it gives by loops over plain numbers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np

from symattn import Attention, kind, kinds, proving, rounded
from tests.attention import by_loops

#: Inputs that are no numbers to compute with.
PLAIN = ("mask", "keep", "doc", "doc_q", "doc_k", "drop", "positions", "positions_q")
#: How many axes an input has beside those of batches, and of heads, which stand before them. Others have no batch.
OWN = dict.fromkeys(("keep", "doc", "doc_q", "doc_k"), 1) | dict.fromkeys(("mask", "bias", "drop"), 2)
OWN |= dict.fromkeys("qkvxy", 2) | dict.fromkeys(("cos", "sin", "cos_q", "sin_q"), 2)


@dataclass(frozen=True, eq=False)
class Definition:
    """A specification and all of its inputs by name.

    ``refused`` says by kind with what words it is refused there; ``any_function``, that on residues tanh or a root of
    data stands for any function, so that it runs and there is nothing to compare.
    """

    spec: Attention
    given: Mapping[str, np.ndarray]
    refused: Mapping[str, str] = field(default_factory=dict)
    any_function: bool = False

    def run(self, lift: Any) -> Any:
        """The output (and the logarithms) on arrays of a kind; masks and labels stay plain."""
        return self.spec(**{name: a if name in PLAIN else lift(a) for name, a in self.given.items()})


def norms_behind_weights(steps: Iterable[Any]) -> list[str]:
    """The steps with a norm of what the weights give."""
    behind, found = {"weights"}, []
    for step in steps:
        if behind & {*step.of}:
            behind.add(step.name)
            found += [step.name] * bool(step.norm)
    return found


def parts(x: Any) -> list[Any]:
    """The outputs, of which there may be several."""
    return list(x) if isinstance(x, tuple | list) else [x]


def flat(x: Any) -> list[Any]:
    """The elements of all parts."""
    return [e for part in parts(x) for e in np.asarray(part.entries).flat]


@cache
def truth(definition: Definition) -> list[Any]:
    """The elements as balls of 256 bits."""
    with kinds.precision(256):
        return flat(definition.run(kind("ball").lift))


def looped(definition: Definition, spec: Any = None) -> list[Any]:
    """The elements by loops, each batch by itself; ``spec`` in the place of the definition's own."""
    with mpmath.workdps(50):
        found = by_batches(definition, spec or definition.spec)[1]
    names = ("output", "lse") if definition.spec.lse else ("output",)
    return [x for name in names for one in found for x in np.array(one[name], dtype=object).flat]


def by_batches(definition: Definition, spec: Any) -> tuple[tuple[int, ...], list[dict[str, Any]]]:
    """The axes of batches, and what loops give for each batch."""
    given = definition.given
    split = 1 if definition.spec.heads > 1 and "q" in given else 0
    tokens = given["q" if "q" in given else "x"]
    batch = np.broadcast_shapes(*(given[n].shape[: -2 - split] for n in "qkxy" if n in given))
    return batch, [
        by_loops.attention(spec, {n: _numbers(n, a, i) for n, a in given.items()} | {"n_q": tokens.shape[-2]})
        for i in np.ndindex(*batch)
    ]


def _numbers(name: str, array: np.ndarray, index: tuple[int, ...]) -> Any:
    """An input of one batch as nested lists."""
    front = array.ndim - OWN.get(name, array.ndim)
    mine = array[index[len(index) - min(front, len(index)) :]]
    return mine.tolist() if mine.dtype.kind in "bi" else nested(mine)


def same(definition: Definition, wanted: list[Any]) -> bool:
    """Whether the definition gives these numbers, to 40 digits."""
    found = truth(definition)
    return len(found) == len(wanted) and all(near(x, y) for x, y in zip(found, wanted, strict=True))


def near(ball: Any, x: Any) -> bool:
    """Whether a narrow ball is at a number to 40 digits; −∞ is near itself alone, and so is what is undefined."""
    if isinstance(ball, kinds.Undefined) or mpmath.isnan(x):
        return isinstance(ball, kinds.Undefined) and bool(mpmath.isnan(x))
    if isinstance(ball, kinds.Forbidden) or mpmath.isinf(x):
        return isinstance(ball, kinds.Forbidden) and bool(mpmath.isinf(x))
    with mpmath.workdps(50):
        return abs(mpmath.mpf(ball.mid().str(50, radius=False)) - x) < mpmath.mpf("1e-40") and ball.rad() < 1e-50


# -- arrays as plain numbers, and exact arrays compared with loops over them -------------------------------------------
FLOATS = ("float64", "float32", "float16", "bfloat16")
PAIRS = kinds.prime_pairs((2, 3, 5, 7))


def nested(array: np.ndarray) -> Any:
    """A NumPy array as nested lists of mpmath numbers."""
    return [nested(x) for x in array] if array.ndim else mpmath.mpf(array.item())


def agrees(run: Callable[..., Any], loops: Callable[..., Any], data: np.ndarray) -> bool:
    """Whether ``run`` on exact numbers gives what loops over plain numbers give, to 40 digits."""
    got = run(kind("exact").lift(data))
    with mpmath.workdps(60):
        wanted = np.array(loops(nested(data)), dtype=object)
        pairs = zip(got.entries.flat, wanted.flat, strict=True)
        return bool(got.shape == wanted.shape) and all(
            abs(mpmath.mpf(x.decimal(50)) - y) < mpmath.mpf("1e-40") * (1 + abs(y)) for x, y in pairs
        )


def lift_of(name: str) -> Callable[[Any], Any]:
    """How plain data becomes an array of a kind, residues among them."""
    return kinds.modular(*PAIRS[0], seed=3).lift if name == "modular" else kind(name).lift  # type: ignore[no-any-return]


def half(s: Any) -> Any:
    """½ as an array of the kind and type of s."""
    return s.__array_namespace__().asarray(Fraction(1, 2), dtype=s.dtype)


def project(x: Any, w: Any, bias: Any = None) -> Any:
    """X W, or X W + b."""
    return x @ w if bias is None else x @ w + bias


def feed_forward(activation: Callable[[Any], Any], x: Any, w_up: Any, w_down: Any, **beside: Any) -> Any:
    """f(x W_up + b_up) W_down + b_down, or with a gate f(x W_gate + b_gate) ⊙ (x W_up + b_up) under W_down."""
    up, gate = project(x, w_up, beside.get("b_up")), beside.get("w_gate")
    hidden = activation(up if gate is None else project(x, gate, beside.get("b_gate")))
    return project(hidden if gate is None else hidden * up, w_down, beside.get("b_down"))


# -- A form beside its definition: equal in exact numbers, within the rounding of float32, and for all sizes -----------
EXACT = kind("exact")
Form = Callable[..., Any]


def drawn(seed: int, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Halves between −2 and 2, which every format holds."""
    draw = np.random.default_rng(seed)
    return {name: draw.integers(-4, 5, shape) / 2 for name, shape in shapes.items()}


def exactly(form: Form, definition: Form, data: dict[str, np.ndarray]) -> bool:
    """Whether both give the same exact numbers; places where both are −∞ are the same, undefined ones are not."""
    lifted = {name: EXACT.lift(array) for name, array in data.items()}
    pairs = list(zip(parts(form(**lifted)), parts(definition(**lifted)), strict=True))
    return all(a.shape == b.shape and bool((a == b).all()) for a, b in pairs)


_BOUNDS: dict[tuple[int, int], tuple[Form, dict[str, np.ndarray], list[Any]]] = {}


def bounds_of(form: Form, data: dict[str, np.ndarray]) -> list[Any]:
    """What the form gives on numbers with bounds on the roundings of float32; kept, as wrong forms are held to it."""
    key = id(form), id(data)
    if key not in _BOUNDS:
        lifted = {name: rounded("float32").lift(array) for name, array in data.items()}
        _BOUNDS[key] = form, data, parts(form(**lifted))
    return _BOUNDS[key][2]


def legal(form: Form, data: dict[str, np.ndarray], bounded_by: Form | None = None) -> bool:
    """Whether the form in float32 is as near to the exact values as its roundings, or those of another, allow."""
    results = parts(form(**{name: array.astype(np.float32) for name, array in data.items()}))
    bounds = bounds_of(bounded_by or form, data)
    assert all(got.dtype == np.float32 for got in results)
    assert all(bound.bound.max() < 1e-3 for bound in bounds)  # they say something
    return all(bool(bound.within(got).all()) for got, bound in zip(results, bounds, strict=True))


def proved(form: Form, definition: Form, shapes: dict[str, str], positive: Iterable[str] = ()) -> bool:
    """Whether both are equal for all sizes. They take the arrays, and as ``size`` the lengths of sorts by letter."""
    letters, declared = proving.Letters(), proving.Declared(shapes, positive=tuple(positive))
    arrays = {name: letters.array(name, shape, declared) for name, shape in shapes.items()}
    size = {sort: letters.length(sort) for sort in declared.sorts()}
    pairs = zip(parts(form(**arrays, size=size)), parts(definition(**arrays, size=size)), strict=True)
    return all(proving.prove_equal(a, b).proved for a, b in pairs)
