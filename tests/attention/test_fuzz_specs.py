"""Specifications drawn at random over every field, each on floats and in balls, compared with loops over numbers.

What is not refused in one line must be right: values, shapes of every step as its letters say, types, letters that
stand for one array each, and a document in every format.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import mpmath
import numpy as np
import pytest

import symattn
from symattn import Attention, InputError, Refused, Rotary, Undecided, kind, kinds, printing
from symattn.attention.inputs import lengths
from symattn.attention.layers.evaluation import lifted
from symattn.attention.letters_of_attention import SYMBOLS
from tests.attention import by_loops as reference
from tests.attention.by_loops_positions import Degenerate, num
from tests.attention.fuzz_specs import Case, Input, case_of, fields

Ball = kind("ball")

FORMATS = ("text", "latex", "markdown")
SHORT = ("float32", "float16", "bfloat16")
#: What is said where the loops find no value.
NO_VALUE = "fully masked|scaling of one frequency|a factor for each|rows; .* need|do not stand at|over whole sequences"
#: What the text of a specification is made of.
NAMES = {"Fraction": Fraction, **{name: getattr(symattn, name) for name in symattn.__all__}}
#: Inputs that may have fewer axes than their letters, or axes of the length 1.
LOOSE = ("mask", "gate", "bias", "drop", "w_s", "u_s", "v_s")


def look_at(refusal: Exception, begin: str = "") -> None:
    """One line, which begins as it should."""
    said = str(refusal)
    assert said.startswith(begin)
    assert "\n" not in said


def drawn(start: int, number: int) -> Iterator[tuple[int, Case]]:
    """So many specifications that make sense, with inputs; of those that do not, the message is looked at."""
    seed, found = start, 0
    while found < number:
        seed += 1
        rng = Random(seed)
        some = fields(rng)
        try:
            spec = Attention(**some)
        except InputError as refusal:
            look_at(refusal, "Attention: ")
            continue
        found += 1
        yield seed, case_of(spec, rng)


# -- inputs as arrays, results as numbers ------------------------------------------------------------------------------
def plain(case: Case) -> dict[str, np.ndarray]:
    return {name: floats(one) for name, one in case.inputs.items()}


def floats(one: Input) -> np.ndarray:
    """Truth values, whole numbers, or float64, which hold the fractions as they are."""
    first = one.data.flat[0]
    return one.data.astype(bool if isinstance(first, bool) else np.int64 if isinstance(first, int) else np.float64)


def wide(case: Case, target: Any) -> dict[str, Any]:
    return lifted(
        target, {n: x.tolist() if x.dtype == np.float64 and n != "mask" else x for n, x in plain(case).items()}
    )


def number(x: Any) -> Any:
    if isinstance(x, list):
        return [number(y) for y in x]
    return x if isinstance(x, (bool, int)) else num(x) if x != float("-inf") else -mpmath.inf


def by_loops(case: Case) -> dict[str, np.ndarray]:
    """Each batch by itself."""
    found = [
        reference.attention(
            case.spec, {n: number(one.of(i)) for n, one in case.inputs.items()} | {"n_q": case.sizes["n_q"]}
        )
        for i in case.indices()
    ]
    return {name: np.array([one[name] for one in found], dtype=object) for name in ("output", "lse")}


def alike(got: Any, want: Any, tolerance: float) -> bool:
    if isinstance(got, kinds.Undefined):
        return bool(mpmath.isnan(want))
    if isinstance(got, kinds.Forbidden):
        return bool(want == -mpmath.inf)
    if hasattr(got, "mid"):
        if not mpmath.isfinite(want):
            return bool(mpmath.isnan(want)) and not got.is_finite()
        middle, radius = (mpmath.mpf(x.str(45, radius=False)) for x in (got.mid(), got.rad()))
        size = 1 + abs(want)
        return bool(abs(middle - want) <= radius + size / 2**100 and radius < size / 2**40)
    if not mpmath.isfinite(want):
        return bool(np.isnan(got)) if mpmath.isnan(want) else float(got) == float(want)
    return bool(abs(got - want) <= tolerance * (1 + abs(want)))


# -- what is checked of a case -----------------------------------------------------------------------------------------
def check(case: Case, arrays: Mapping[str, Any], want: Mapping[str, np.ndarray]) -> None:
    spec = case.spec
    traced = spec.trace(**arrays)
    for name, array in traced.items():
        own = lengths(name, spec, list(arrays), case.sizes)
        assert name in LOOSE or tuple(array.shape[len(array.shape) - len(own) :]) == own, name
    letters = [str(SYMBOLS[name]) for name in traced]
    assert len(set(letters)) == len(letters)
    # 1.5-entmax takes a root of a difference that may be near 0, where half of the digits are lost
    tolerance = 1e-6 if spec.normaliser == "entmax" else 1e-9
    for name in ("output", "lse") if spec.lse else ("output",):
        got, whole = traced[name], (*case.batch, *want[name].shape[1:])
        assert name == "lse" or tuple(got.shape) == whole  # what only values have, the sums lack
        entries = np.broadcast_to(getattr(got, "entries", got), whole)
        for one, other in zip(entries.ravel(), want[name].ravel(), strict=True):
            assert alike(one, other, tolerance), (name, one, other)


def check_types(case: Case) -> None:
    """Short floats stay what they are, in every step."""
    given = plain(case)
    for name in SHORT:
        target = kind(name)
        arrays = {
            n: target.lift(np.where(np.isfinite(x), x, 0).tolist()) if x.dtype == np.float64 else x
            for n, x in given.items()
        }
        for step, array in case.spec.trace(**arrays).items():
            assert step in arrays or str(array.dtype) == name, (step, array.dtype)


def check_words(case: Case) -> None:
    document = case.spec.document(list(case.inputs))
    for form in FORMATS:
        assert printing.render(document, form)
    assert replace(case.spec) == case.spec
    assert hash(replace(case.spec)) == hash(case.spec)
    assert eval(repr(case.spec), NAMES) == case.spec


def tried(case: Case, target: Any) -> str:
    """Whether a case is right, refused or undecided on a kind of array; an error if it is wrong."""
    want: dict[str, np.ndarray] | None = None
    try:
        want = by_loops(case)
    except Degenerate:
        return "degenerate"
    except (reference.FullyMasked, ZeroDivisionError, IndexError):  # r / (r − 2) for r = 2, a row that a table lacks
        pass
    arrays = plain(case) if target is None else wide(case, target)
    try:
        with kinds.precision(128), np.errstate(all="ignore"):
            if want is None:
                with pytest.raises(InputError, match=NO_VALUE):
                    case.spec(**arrays)
                return "has no value"
            check(case, arrays, want)
    except (InputError, Refused, Undecided) as refusal:
        look_at(refusal)
        return type(refusal).__name__
    return "right"


def run(start: int, number: int, balls: int, extra: int) -> Counter[str]:
    """How many were right and refused; some are run on balls, and of some types and documents are looked at, too."""
    told: Counter[str] = Counter()
    with mpmath.workprec(140):
        for seed, case in drawn(start, number):
            try:
                found = tried(case, None)
                told[found] += 1
                if seed % balls == 0:
                    assert tried(case, Ball) in (found, "Undecided")
                if found == "right" and seed % extra == 0:
                    with np.errstate(all="ignore"):
                        check_types(case)
                    check_words(case)
            except Exception as error:
                shapes = {n: one.data.shape for n, one in case.inputs.items()}
                raise AssertionError(f"seed {seed}: {case.spec}\n{shapes}") from error
    return told


@pytest.mark.deep
def test_a_sample_of_specifications() -> None:
    told = run(0, 300, balls=1, extra=5)
    assert told["right"] > 250


@pytest.mark.exhaustive
def test_three_thousand_specifications() -> None:
    told = run(100_000, 3200, balls=2, extra=10)
    assert told["right"] > 2800


# -- what would be wrong is found --------------------------------------------------------------------------------------
WRONG: dict[str, dict[str, Any]] = {
    "causal": {"causal": False},
    "alignment": {"alignment": "top-left"},
    "scale": {"scale": 1},
    "softcap": {"softcap": 3},
    "block": {"block": 1},
    "normaliser": {"normaliser": "relu"},
    "qk_norm": {"qk_norm": "l2"},
    "position": {"position": Rotary(triples=((5, 12, 13),))},
    "base": {"base": 2},
    "stabilised": {"sink": "zero"},
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_another_field_is_another_value(name: str) -> None:
    """The loops are of the specification, the arrays run on another: that must be found."""
    spec = Attention(causal=True, block=4, position=Rotary(triples=((3, 4, 5),)))
    rng = Random(3)
    case = case_of(spec, rng)
    while not 2 < case.sizes["n_q"] < case.sizes["n_k"]:
        case = case_of(spec, rng)
    other = replace(spec, **WRONG[name])
    with mpmath.workprec(140), kinds.precision(128):
        want = by_loops(case)
        check(case, wide(case, Ball), want)
        with pytest.raises(AssertionError):
            check(replace(case, spec=other), wide(case, Ball), want)


def spoilt(case: Case, rng: Random) -> dict[str, Any]:
    """One thing that is wrong with the inputs, whatever the specification."""
    arrays: dict[str, Any] = plain(case)
    name = rng.choice(list(arrays))
    array = arrays[name]
    how = rng.randrange(6)
    if how == 0:
        arrays["q_norm"] = array
    elif how == 1:
        arrays[name] = array.tolist()
    elif how == 2:
        arrays[name] = array[..., :0]
    elif how == 3:
        arrays[name] = array.astype("U9")
    elif how == 4:
        arrays[name] = array.sum()
    else:
        arrays[name] = np.concatenate([array] * 5, axis=-1)  # longer than any other axis of that letter
    return arrays


@pytest.mark.parametrize("start", [0, pytest.param(5000, marks=pytest.mark.deep)])
def test_spoilt_inputs_are_refused_in_one_line(start: int) -> None:
    """One axis alone may be as long as it likes where it is the only one with its letter; then there is an output."""
    accepted = 0
    for seed, case in drawn(start, 200 if start == 0 else 2000):
        rng = Random(seed)
        arrays = spoilt(case, rng)
        try:
            with np.errstate(all="ignore"):
                case.spec(**arrays)
            accepted += 1
        except InputError as refusal:
            look_at(refusal)
        except Exception as error:
            shapes = {n: getattr(x, "shape", x) for n, x in arrays.items()}
            raise AssertionError(f"seed {seed}: {case.spec}\n{shapes}") from error
    assert accepted < 0.1 * (200 if start == 0 else 2000)
