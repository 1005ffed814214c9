"""The page to explore computes in JavaScript: every number of it is held against symattn's own."""

import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.special import Forbidden
from symattn.attention.spec import Attention
from symattn.derivations.walks.run import exact as exact_arrays
from tests.shown import node

pytestmark = pytest.mark.node

NAMES = ("q", "k", "v", "scores", "scaled", "weights", "output")
FORMATS = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def drawn(seed: int) -> dict[str, Any]:
    """A state of the page: small sizes, whole numbers and fractions."""
    rng = random.Random(seed)
    heads = rng.choice((1, 1, 2))
    n, d_model = rng.randint(1, 6), rng.randint(1, 6)
    d_k, d_v = (heads * rng.randint(1, 6 // heads) for _ in range(2))
    entry = rng.choice((lambda: str(rng.randint(-3, 3)), lambda: f"{rng.randint(-5, 5)}/{rng.randint(1, 4)}"))
    shapes = {"x": (n, d_model), "w_q": (d_model, d_k), "w_k": (d_model, d_k), "w_v": (d_model, d_v)}
    arrays = {name: [[entry() for _ in range(b)] for _ in range(a)] for name, (a, b) in shapes.items()}
    scale = rng.choice(("none", "root"))
    temperature = rng.choice(("1", "1/2", "3")) if scale == "none" else "1"
    chosen = {"scale": scale, "causal": rng.random() < 0.4, "temperature": temperature, "heads": heads}
    return arrays | chosen | {"format": rng.choice(list(FORMATS))}


def walked(state: dict[str, Any]) -> dict[str, Any]:
    """symattn's own arrays, exact, with an axis of heads."""
    scale = None if state["scale"] == "root" else 1 / Fraction(state["temperature"])
    spec = Attention(heads=state["heads"], scale=scale, causal=state["causal"])
    given = {name: [[Quotient.of(x) for x in row] for row in state[name]] for name in ("x", "w_q", "w_k", "w_v")}
    found = exact_arrays(spec, given)
    found["scaled"] = found.get("masked", found["scaled"])
    for name in ("q", "k", "v"):
        found[name] = np.concatenate(list(found[name]), axis=-1) if state["heads"] > 1 else found[name]
    for name in ("scores", "scaled", "weights"):
        found[name] = found[name] if state["heads"] > 1 else found[name][None]
    return found


def unequal(shown: dict[str, Any], state: dict[str, Any]) -> list[str]:
    """The entries of which the page has another exact number, or other digits, than a walk."""
    wrong, found = [], walked(state)
    for name in NAMES:
        for index in np.ndindex(found[name].shape):
            x, entry = found[name][index], shown[name]
            for i in index:
                entry = entry[i]
            text, digits = entry
            same = text == "-oo" if isinstance(x, Forbidden) else text == str(x)
            wrong += [] if same else [f"{name}{index}: {text}, not {x}"]
            wrong += [] if not digits or digits == x.decimal(9) else [f"{name}{index}: {digits}, not {x.decimal(9)}"]
    return wrong


def test_every_exact_number_and_decimal_is_that_of_a_walk() -> None:
    compare(range(12))


@pytest.mark.exhaustive
def test_five_hundred_states() -> None:
    compare(range(12, 512))


def compare(seeds: range) -> None:
    states = [drawn(seed) for seed in seeds]
    found = node.run("exact.mjs", lines=states)
    assert len(found) == len(states)
    assert [wrong for one, state in zip(found, states, strict=True) for wrong in unequal(one["exact"], state)] == []


def test_another_state_is_told_apart() -> None:
    (found,) = node.run("exact.mjs", lines=[drawn(0)])
    assert unequal(found["exact"], drawn(0)) == []
    assert unequal(found["exact"], drawn(0) | {"scale": "none", "temperature": "7"})


# -- floats ------------------------------------------------------------------------------------------------------------
def test_every_operation_is_rounded_to_nearest() -> None:
    states = [drawn(seed) for seed in range(100, 140)]
    for one, state in zip(node.run("exact.mjs", lines=states), states, strict=True):
        for name, array in rounded(state).items():
            shown = np.array(one["floats"][name], dtype=object)
            for index in np.ndindex(array.shape):
                value, digits = shown[index]
                assert Fraction(value) == array[index], (name, index, state["format"])
                assert FORMATS[state["format"]](float(digits)) == float(array[index])


def rounded(state: dict[str, Any]) -> dict[str, Any]:
    """Q, the weights and the output of the first head with every operation rounded, from fractions and balls."""
    to = rounding(state["format"])
    x, *ws = (np.array([[to(Fraction(e)) for e in row] for row in state[name]]) for name in ("x", "w_q", "w_k", "w_v"))
    q, k, v = (product(x, w, to) for w in ws)
    width = q.shape[1] // state["heads"]
    scores = product(q[:, :width], k[:, :width].T, to)
    root = to(Quotient.of(width).sqrt()) if state["scale"] == "root" else Fraction(1)
    rows = []
    for i, row in enumerate(scores):
        open_ = row[: i + 1] if state["causal"] else row
        scaled = [to(to(s / root) / to(Fraction(state["temperature"]))) for s in open_]
        powers = [to(Quotient.of(to(s - max(scaled))).exp()) for s in scaled]
        total = summed(powers, to)
        rows.append([to(p / total) for p in powers] + [Fraction(0)] * (len(row) - len(open_)))
    weights = np.array(rows)
    return {"q": q, "weights": weights[None], "output": product(weights, v[:, : v.shape[1] // state["heads"]], to)}


Rounding = Callable[[Any], Fraction]


def rounding(name: str) -> Rounding:
    """To the nearest number of a format, ties to even."""
    info = ml_dtypes.finfo(FORMATS[name])
    bits, lowest = int(info.nmant) + 1, Fraction(float(info.smallest_subnormal))

    def to(x: Any) -> Fraction:
        r = x if isinstance(x, Fraction) else x.rational()
        if r is None:  # far more bits than any format has
            ball = x.arb(400)
            man, exp = (int(part) for part in ball.mid().man_exp())
            r = man * Fraction(2) ** exp
        if not r:
            return Fraction(0)
        e = abs(r.numerator).bit_length() - r.denominator.bit_length()
        e -= abs(r) < Fraction(2) ** e
        unit = max(Fraction(2) ** (e - bits + 1), lowest)
        return round(r / unit) * unit

    return to


def summed(terms: Any, to: Rounding) -> Fraction:
    """The sum from the first term to the last."""
    first, *others = terms
    for term in others:
        first = to(first + term)
    return Fraction(first)


def product(a: Any, b: Any, to: Rounding) -> Any:
    """A product of matrices, every product and sum rounded."""
    return np.array([[summed([to(x * y) for x, y in zip(row, col, strict=True)], to) for col in b.T] for row in a])
