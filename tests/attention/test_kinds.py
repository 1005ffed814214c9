"""Every form of attention: what loops say, and on every kind of array. One definition, one meaning."""

from collections.abc import Iterator
from dataclasses import fields, replace
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
import sympy

from symattn import Alibi, Refused, Undecided, arrays, kind, kinds
from tests.arrays.residues import agree
from tests.attention.definition import FLOATS, PAIRS, Definition, flat, looped, near, parts, same, truth
from tests.attention.definitions import DEFINITIONS
from tests.attention.scoring_variants import VARIANTS
from tests.bounded import bounded
from tests.lanes import groups, one_in

NAMES, EVERY = tuple(DEFINITIONS), DEFINITIONS | VARIANTS
SMALL = ("float8_e4m3fn", "float8_e5m2")  # their rounding errors are as large as the weights: bounds say nothing
REFUSAL = (Refused, Undecided)


def refused(definition: Definition, name: str, lift: Any = None) -> bool:
    """Whether a kind is known to refuse it; then it does, with these words."""
    if name not in definition.refused:
        return False
    with pytest.raises(REFUSAL, match=definition.refused[name]):
        definition.run(lift or kind(name).lift)
    return True


# -- against loops -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("names", groups(EVERY), ids=itemgetter(0))
def test_it_is_what_loops_say(names: list[str]) -> None:
    assert [name for name in names if not same(EVERY[name], looped(EVERY[name]))] == []


#: Fields that are changed one at a time, so that the loops have to say no.
CHANGED: dict[str, Any] = {
    "score": "dot", "scale": 3, "truncate": None, "temperature": None, "softcap": 1, "bias": False, "window": (0, 0),
    "block": 3, "prefix": 3, "documents": False, "normaliser": "softmax", "base": None, "sink": None, "dropout": 0.5,
    "alignment": "top-left", "mask": None, "padding": False, "causal": False,
}  # fmt: skip
#: Changes that leave the mask as it is: what is closed is closed by another field, too.
MOOT = {
    ("documents, all masks", "causal"), ("documents, all masks", "mask"), ("documents, all masks", "padding"),
    ("window of keys", "causal"), ("window, top-left", "causal"),
}  # fmt: skip
#: Other fields where there are positions; a dictionary is of fields of the position.
PLACED: dict[str, dict[str, Any]] = {
    "rotary, of x": {"position": {"triples": ((5, 12, 13),)}},
    "rotary, interleaved, from 2 on": {"position": {"layout": "half"}},
    "rotary, shared keys, top-left": {"alignment": "bottom-right"},
    "rotary, tables": {"position": {"layout": "interleaved"}},
    "rotary, tables for each batch and role": {"position": {"layout": "half"}},
    "alibi": {"position": {"two_sided": True}, "causal": False},
    "alibi, given, two-sided": {"causal": True},
    "buckets": {"position": {"number": 6}},
    "buckets, one way": {"alignment": "top-left"},
    "shaw": {"position": {"values": False}},
    "shaw, keys alone, top-left": {"alignment": "bottom-right"},
    "transformer-xl": {"position": Alibi()},
    "transformer-xl, both ways": {"causal": True},
    "disentangled": {"position": {"backwards": False}},
    "disentangled, buckets, as run": {"position": {"max_distance": None}},
    "disentangled, one term": {"scale": None},
}


def others(name: str) -> Iterator[tuple[str, Any]]:
    """Specifications that differ, with what differs; together their fields need not make sense."""
    spec = EVERY[name].spec
    plain = {f.name: getattr(spec, f.name) for f in fields(spec)}
    usual = type(spec)()
    changes = [
        {f: CHANGED[f]}
        for f in CHANGED
        if plain[f] not in (getattr(usual, f), CHANGED[f])
        and (name, f) not in MOOT
        and not (f == "causal" and spec.prefix)
    ]
    for change in [PLACED[name]] if name in PLACED else changes or [{"scale": 3}]:
        position = change.get("position")
        made = {"position": replace(spec.position, **position)} if isinstance(position, dict) else {}
        yield str(change), SimpleNamespace(**plain | change | made)


@pytest.mark.parametrize("names", groups(EVERY), ids=itemgetter(0))
def test_loops_over_another_specification_say_no(names: list[str]) -> None:
    for name in names:
        changed = dict(others(name))
        assert changed
        alike = [change for change, spec in changed.items() if same(EVERY[name], looped(EVERY[name], spec))]
        assert alike == [], name


# -- on every kind -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("names", groups(EVERY), ids=itemgetter(0))
def test_exact_elements_are_in_the_balls(names: list[str]) -> None:
    for definition in (EVERY[name] for name in names if not refused(EVERY[name], "exact")):
        exact = flat(definition.run(kind("exact").lift))
        with kinds.precision(128):
            narrow = flat(definition.run(kind("ball").lift))
        for x, ball, coarse in zip(exact, truth(definition), narrow, strict=True):
            if isinstance(x, kinds.Forbidden):
                assert isinstance(ball, kinds.Forbidden)
                continue
            assert ball.overlaps(x.arb(300))
            assert coarse.overlaps(x.arb(200))
            assert coarse.rad() < 2.0**-100


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("names", groups(EVERY, 8), ids=itemgetter(0))
def test_residues_are_the_image_of_the_exact_elements(names: list[str], seed: int) -> None:
    of = kinds.modular(*PAIRS[seed], seed=seed)
    for definition in (EVERY[name] for name in names if not refused(EVERY[name], "modular", of.lift)):
        found = parts(definition.run(of.lift))
        if definition.any_function or "exact" in definition.refused:
            continue
        for got, wanted in zip(found, parts(definition.run(kind("exact").lift)), strict=True):
            finite = np.array([not isinstance(x, kinds.Forbidden) for x in wanted.entries.flat]).reshape(
                wanted.entries.shape
            )
            # logarithms are compared as powers, which −∞ has none of
            assert agree(got, wanted) if finite.all() else agree(got[finite], wanted[finite])


@pytest.mark.parametrize("name", one_in(6, EVERY))
def test_sympy_has_the_values(name: str) -> None:
    for x, ball in zip(flat(EVERY[name].run(kind("symbolic").lift)), truth(EVERY[name]), strict=True):
        if isinstance(ball, kinds.Forbidden):
            assert isinstance(x, kinds.Forbidden)
        else:
            assert abs(sympy.N(x, 40) - sympy.Float(ball.mid().str(45, radius=False), 45)) < sympy.Float("1e-35")


@pytest.mark.parametrize("name", one_in(6, [n for n in EVERY if "batch" not in n]))
def test_letters_at_numbers_have_the_values(name: str) -> None:
    """Run on letters; then numbers are put in, and the true maximum for the opaque one."""
    symbolic, values = kind("symbolic"), {}

    def lift(array: np.ndarray) -> Any:
        letters = symbolic.letters(f"t{len(values)}", *array.shape)
        values.update(zip(letters.entries.flat, map(mpmath.mpf, array.flat), strict=True))
        return letters

    if refused(EVERY[name], "letters", lift):
        return
    found = flat(EVERY[name].run(lift))
    with mpmath.workdps(50):
        for x, ball in zip(found, truth(EVERY[name]), strict=True):
            assert (
                isinstance(x, kinds.Forbidden)
                if isinstance(ball, kinds.Forbidden)
                else near(ball, evaluated(x, values))
            )


def evaluated(x: Any, values: dict[Any, Any]) -> Any:
    """An expression at the values of its letters, each part once; the opaque maximum is the true one."""
    if x not in values:
        parts = [evaluated(part, values) for part in x.args]
        if x.is_Rational:
            values[x] = mpmath.mpf(int(x.p)) / int(x.q)
        else:
            values[x] = FUNCTIONS[type(x).__name__](*parts)
    return values[x]


FUNCTIONS = {
    "Add": lambda *xs: mpmath.fsum(xs),
    "Mul": lambda *xs: mpmath.fprod(xs),
    "Pow": lambda x, y: x**y,
    "exp": mpmath.exp,
    "log": mpmath.log,
    "tanh": mpmath.tanh,
    "max": max,
    "Max": max,
}


# -- in floats ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dtype", "name"), [(d, n) for d in arrays.FLOATING for n in (EVERY if d in FLOATS else NAMES)]
)
def test_floats_are_within_the_rounding_errors_of_their_operations(dtype: str, name: str) -> None:
    """|got − exact| ≤ the bound that follows from the operations, each rounded in the format; see ``tests.bounded``."""
    definition, target = EVERY[name], kind(dtype)
    if dtype == "float8_e4m3fn" and definition.spec.masks_anything:
        with pytest.raises(Refused, match="float8_e4m3fn has no infinity to write a mask with"):
            definition.run(target.lift)
        return
    with np.errstate(all="ignore"):
        got = [x if isinstance(x, np.ndarray) else x.numpy() for x in parts(definition.run(target.lift))]
        radius = np.concatenate([r.ravel() for r in radii(name, target.dtype, got)])
    assert all(x.dtype == target.dtype for x in got)
    assert got[0].shape == definition.run(np.asarray)[0].shape if len(got) > 1 else definition.run(np.asarray).shape
    told = np.isfinite(radius)
    short = dtype in ("float16", "bfloat16") or "modular" in definition.refused
    assert told.all() or dtype in SMALL or (name in VARIANTS and short)
    plain = np.concatenate([x.astype(float).ravel() for x in got])
    for x, ball, r in zip(plain[told], np.array(truth(definition), dtype=object)[told], radius[told], strict=True):
        assert x == -np.inf if isinstance(ball, kinds.Forbidden) else abs(x - float(ball.mid())) <= r


def radii(name: str, dtype: Any, like: list[np.ndarray]) -> list[np.ndarray]:
    """The bounds; none where it is open whether two scores, or a sum and zero, are equal: nothing is said there."""
    try:
        bounds = [x.planes[1] for x in parts(EVERY[name].run(bounded(dtype).lift))]
    except Undecided:
        return [np.full(x.shape, np.inf) for x in like]
    return [np.where(np.isnan(x), np.inf, x) for x in bounds]


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_is_narrow_enough_to_see_a_wrong_scale(name: str) -> None:
    """In float64 the bound is some hundred units of the last place, so that it says no to 1/√(d_k + 1)."""
    with np.errstate(invalid="ignore"):
        radius = DEFINITIONS[name].run(bounded(np.float64).lift).planes[1]
    assert (radius < 2**10 * float(ml_dtypes.finfo(np.float64).eps)).all()


# -- in exact numbers --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [n for n in NAMES if "not stabilised" not in n])
def test_stabilised_and_plain_are_equal_exactly(name: str) -> None:
    definition = DEFINITIONS[name]
    other = replace(definition, spec=replace(definition.spec, stabilised=False))
    pairs = zip(*(flat(d.run(kind("exact").lift)) for d in (definition, other)), strict=True)
    assert all(x.same(y) for x, y in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_weights_sum_to_one_or_are_empty(name: str) -> None:
    definition, exact = DEFINITIONS[name], kind("exact")
    weights = replace(definition, spec=definition.spec.trace).run(exact.lift)["weights"]
    sums = exact.xp.sum(weights, axis=-1)
    empty = (weights == 0).all(axis=-1)
    assert ((sums == 1) | empty).all()
    assert empty.any() == (name in ("a row fully masked", "heads, mask for each head"))
    assert (weights >= 0).all()


@pytest.mark.parametrize("dtype", ["bfloat16", *SMALL])
@pytest.mark.parametrize("name", ["plain", "unscaled", "not stabilised", "causal", "causal, top-left"])
def test_stored_formats_round_each_step_once(dtype: str, name: str) -> None:
    """Bit for bit: float32 arithmetic, each result rounded; for fp8 the bound above says next to nothing."""
    definition, target = DEFINITIONS[name], kind(dtype)
    if dtype == "float8_e4m3fn" and definition.spec.masks_anything:
        return  # refused, see above

    def rounded(x: Any) -> np.ndarray:
        return np.asarray(x, dtype=np.float32).astype(target.dtype).astype(np.float32)

    q, k, v = (rounded(definition.given[n]) for n in "qkv")
    s = rounded(q @ k.T)
    if definition.spec.scale is None:
        s = rounded(s / rounded(np.sqrt(np.float32(q.shape[1]))))
    if definition.spec.causal:
        offset = len(k) - len(q) if definition.spec.alignment == "bottom-right" else 0
        s = np.where(np.tri(len(q), len(k), offset) > 0, s, -np.inf)
    if definition.spec.stabilised:
        s = rounded(s - s.max(axis=-1, keepdims=True))
    e = rounded(np.exp(s))
    weights = rounded(e / rounded(e.sum(axis=-1, keepdims=True)))
    assert np.array_equal(definition.run(target.lift).numpy().astype(np.float32), rounded(weights @ v))
