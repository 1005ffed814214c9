"""Differential attention: against loops, in its usual forms, and with mistakes that are found and named."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import exp, sqrt
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Differential, Rotary, Verdict, kind, verify
from symattn.programs.specifications import definitions_of
from tests.refusals import refuses

Array = np.ndarray
Change = Callable[[Any, Any, Any], Any]

PLAIN = Differential()
HEADS = Differential(attention=Attention(heads=2, causal=True))
GROUPED = Differential(attention=Attention(heads=4, kv_heads=2, mask="boolean"), factor=Fraction(1, 4))
NORMED = Differential(attention=Attention(heads=2), factor=0.5, norm="rms", eps=Fraction(1, 8), init=Fraction(1, 5))


def drawn(spec: Differential) -> dict[str, Array]:
    """Inputs of a specification: three queries, five keys, halves of two columns, three columns of values."""
    rng, attention = np.random.default_rng(7), spec.attention
    several = attention.heads > 1
    heads, groups = ((attention.heads,), (attention.key_heads,)) if several else ((), ())
    given = {n: rng.standard_normal((*h, rows, 4)) for n, h, rows in (("q", heads, 3), ("k", groups, 5))}
    given["v"] = rng.standard_normal((*groups, 5, 3))
    if spec.factor == "given":
        given["lam"] = rng.uniform(0.2, 0.9, attention.heads)
    if spec.norm is not None:
        given["gain"] = rng.uniform(0.5, 2, 3)
    if attention.mask:
        given["mask"] = (rng.random((3, 5)) < 0.6) | (np.arange(5) == 0)
    return given


# -- loops -------------------------------------------------------------------------------------------------------------
def weights(q: list[float], keys: list[list[float]], seen: list[bool]) -> list[float]:
    """The softmax of one query's scores over the keys that it sees."""
    scores = [sum(a * b for a, b in zip(q, key, strict=True)) / sqrt(len(q)) for key in keys]
    terms = [exp(s) if may else 0.0 for s, may in zip(scores, seen, strict=True)]
    return [term / sum(terms) for term in terms]


def row(spec: Differential, given: dict[str, Array], head: int, i: int) -> list[float]:
    """One row of one head's output, number by number."""
    attention = spec.attention
    several = attention.heads > 1
    group = head // (attention.heads // attention.key_heads)
    q = (given["q"][head] if several else given["q"]).tolist()
    keys, values = ((given[n][group] if several else given[n]).tolist() for n in "kv")
    seen = [True] * len(keys)
    if attention.causal:
        seen = [j <= i + len(keys) - len(q) for j in range(len(keys))]
    if attention.mask:
        seen = given["mask"][i].tolist()
    first = weights(q[i][:2], [key[:2] for key in keys], seen)
    second = weights(q[i][2:], [key[2:] for key in keys], seen)
    factor = float(given["lam"][head] if spec.factor == "given" else spec.factor)
    output = [sum((a - factor * b) * v[c] for a, b, v in zip(first, second, values, strict=True)) for c in range(3)]
    if spec.norm is None:
        return output
    root = sqrt(sum(x * x for x in output) / 3 + float(spec.eps))
    return [x / root * g * (1 - float(spec.init)) for x, g in zip(output, given["gain"], strict=True)]


@pytest.mark.parametrize("spec", [PLAIN, GROUPED, NORMED], ids=["plain", "grouped", "normed"])
def test_every_way_is_that_of_loops(spec: Differential) -> None:
    given, heads = drawn(spec), range(spec.attention.heads)
    loops = np.array([[row(spec, given, head, i) for i in range(3)] for head in heads])
    loops = loops if spec.attention.heads > 1 else loops[0]
    assert np.allclose(spec(**given), loops, rtol=1e-12)
    for way in next(definitions_of(spec)).ways:
        assert np.allclose(way(**given), loops, rtol=1e-12)


def test_weights_sum_to_one_less_lambda_in_exact_numbers() -> None:
    exact = kind("exact")
    q, k = ([[1, 2]], [[1, 0], [0, 1], [3, -1]])
    ones = exact.lift(np.array([[1], [1], [1]]))
    output = Differential(factor=Fraction(1, 3))(exact.lift(np.array(q)), exact.lift(np.array(k)), ones)
    assert str(output[0, 0]) == "exact(2/3)"


def test_without_the_second_softmax_it_is_the_attention_of_the_first_halves() -> None:
    given = drawn(PLAIN) | {"lam": np.zeros(1)}
    assert (PLAIN(**given) == Attention()(given["q"][:, :2], given["k"][:, :2], given["v"])).all()


# -- programs ----------------------------------------------------------------------------------------------------------
def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def masked(s: Array, shift: int = 0) -> Array:
    n, m = s.shape[-2:]
    return np.where(np.tri(n, m, m - n + shift, dtype=bool), s, s.dtype.type(-np.inf))


def halves(x: Array) -> tuple[Array, Array]:
    return x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]


def turns(x: Array) -> tuple[Array, Array]:
    return x[..., 0::2], x[..., 1::2]


def scores(q: Array, k: Array, width: int = 1) -> Array:
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.dtype.type(width * q.shape[-1]))


def subtracted(a: Array, b: Array, lam: Any) -> Array:
    return a - lam * b


def differential(q: Array, k: Array, v: Array, lam: Array, *, change: Change = subtracted, split: Any = halves,
                 width: int = 1, masks: Any = (masked, masked)) -> Array:  # fmt: skip
    (a, b), (c, d) = split(q), split(k)
    first, second = masks
    one, other = softmax(first(scores(a, c, width))), softmax(second(scores(b, d, width)))
    return change(one, other, lam[:, None, None]) @ v


def by_two_calls(q: Array, k: Array, v: Array, lam: Array) -> Array:
    (a, b), (c, d) = halves(q), halves(k)
    return softmax(masked(scores(a, c))) @ v - lam[:, None, None] * (softmax(masked(scores(b, d))) @ v)


def as_twice_as_many_heads(q: Array, k: Array, v: Array, lam: Array) -> Array:
    """Heads 2i and 2i + 1 are the halves of head i."""
    pairs = [np.stack(halves(x), axis=-3) for x in (q, k)]
    q, k = (x.reshape(*x.shape[:-4], -1, *x.shape[-2:]) for x in pairs)
    a = softmax(masked(scores(q, k)))
    return (a[..., 0::2, :, :] - lam[:, None, None] * a[..., 1::2, :, :]) @ v


def normed(q: Array, k: Array, v: Array, gain: Array, *, factor: float = 0.8, eps: float = 0.125, early: bool = False,
           bare: bool = False) -> Array:  # fmt: skip
    def norm(x: Array) -> Array:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps)) * gain

    (a, b), (c, d) = halves(q), halves(k)
    one, other, half = softmax(scores(a, c)) @ v, softmax(scores(b, d)) @ v, v.dtype.type(0.5)
    result = norm(one) - half * norm(other) if early else one - half * other
    return (result if early or bare else norm(result)) * v.dtype.type(factor)


def wrong(**changes: Any) -> Callable[..., Array]:
    def program(q: Array, k: Array, v: Array, lam: Array) -> Array:
        return differential(q, k, v, lam, **changes)

    return program


def wrong_norm(**changes: Any) -> Callable[..., Array]:
    def program(q: Array, k: Array, v: Array, gain: Array) -> Array:
        return normed(q, k, v, gain, **changes)

    return program


def _shifted(s: Array) -> Array:
    return masked(s, 1)


WRONG: dict[str, tuple[Differential, Callable[..., Array]]] = {
    "λ is left out: the whole second softmax is subtracted": (HEADS, wrong(change=lambda a, b, lam: a - b)),
    "the second softmax is left out": (HEADS, wrong(change=lambda a, b, lam: a)),
    "λ times the second softmax is added, not subtracted": (HEADS, wrong(change=lambda a, b, lam: a + lam * b)),
    "λ multiplies the first softmax, not the second": (HEADS, wrong(change=lambda a, b, lam: lam * a - b)),
    "the weights of the difference are divided by their sum": (
        HEADS, wrong(change=lambda a, b, lam: (a - lam * b) / (1 - lam))),
    "negative weights of the difference are set to 0": (
        HEADS, wrong(change=lambda a, b, lam: np.maximum(a - lam * b, 0))),
    "each head has the λ of the next head": (HEADS, wrong(change=lambda a, b, lam: a - lam[::-1] * b)),
    "the halves are exchanged: λ times the first softmax is subtracted from the second": (
        HEADS, wrong(split=lambda x: halves(x)[::-1])),
    "the halves are the columns with even and with odd numbers": (HEADS, wrong(split=turns)),
    "both softmaxes are those of the first half": (HEADS, wrong(split=lambda x: (halves(x)[0],) * 2)),
    "scores are scaled by 1/√(2 d_k), the width of both halves": (HEADS, wrong(width=2)),
    "the second softmax has no mask": (HEADS, wrong(masks=(masked, lambda s: s))),
    "the norm of the output is left out": (NORMED, wrong_norm(bare=True)),
    "each of the two outputs is normalised, not their difference": (NORMED, wrong_norm(early=True)),
    "the factor 1 − λ_init of the norm is left out": (NORMED, wrong_norm(factor=1)),
    "in the norm of the output: ε is left out": (NORMED, wrong_norm(eps=0)),
}  # fmt: skip


def test_each_mistake_is_what_its_program_computes() -> None:
    for spec in (HEADS, NORMED):
        given, definition = drawn(spec), next(definitions_of(spec))
        right, mistakes = spec(**given), {m.cause: m.run(**given) for m in definition.mistakes}
        for cause, (of, program) in WRONG.items():
            if of is spec:
                assert np.allclose(mistakes[cause], program(**given), rtol=1e-12), cause
                assert not np.allclose(right, program(**given), rtol=1e-3), cause


def rotated(x: Array) -> Array:
    """Rows rotated by the angles of their places; column l is paired with column l + d/2."""
    n, half = x.shape[-2], x.shape[-1] // 2
    angles = np.arange(n)[:, None] * 10000.0 ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=-1)


def test_the_halves_are_rotated_and_not_the_whole_heads() -> None:
    spec = Differential(attention=Attention(position=Rotary()), factor=0.5)
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((5, 4)) for _ in range(3))

    def unmasked(q: tuple[Array, Array], k: tuple[Array, Array]) -> Array:
        one, other = (softmax(scores(a, b)) for a, b in zip(q, k, strict=True))
        return (one - 0.5 * other) @ v

    right = unmasked(*(tuple(map(rotated, halves(x))) for x in (q, k)))  # type: ignore[arg-type]
    wrong = unmasked(halves(rotated(q)), halves(rotated(k)))
    mistakes = {m.cause: m.run(q=q, k=k, v=v) for m in next(definitions_of(spec)).mistakes}
    assert np.allclose(spec(q, k, v), right, rtol=1e-12)
    assert np.allclose(mistakes["whole heads are rotated, not each of their halves"], wrong, rtol=1e-12)
    assert not np.allclose(right, wrong, rtol=1e-3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cause", WRONG)
def test_a_mistake_is_named(cause: str) -> None:
    spec, program = WRONG[cause]
    report = verify(program, spec, framework="numpy", examples=1, budget=30)
    assert [fault.cause for fault in report.faults] == [cause]


@pytest.mark.exhaustive
def test_a_mistake_in_one_half_alone_is_named() -> None:
    report = verify(wrong(masks=(masked, _shifted)), HEADS, framework="numpy", examples=1, budget=30)
    (fault,) = report.faults
    assert (fault.step, fault.code) == ("mask", "causal-shifted")
    assert fault.cause.startswith("in the second of the two attentions alone: ")


@pytest.mark.exhaustive
@pytest.mark.parametrize("program", [differential, by_two_calls, as_twice_as_many_heads], ids=lambda x: x.__name__)
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_right_programs_have_no_fault(program: Callable[..., Array], precision: str) -> None:
    report = verify(program, HEADS, framework="numpy", precision=precision, examples=2, budget=60)
    # In half precision so few calls need not exclude every mistake.
    decided = (Verdict.NO_FAULT,) if precision == "float32" else (Verdict.NO_FAULT, Verdict.UNDECIDED)
    assert report.verdict in decided, report


@pytest.mark.exhaustive
def test_a_right_norm_has_no_fault() -> None:
    assert not verify(normed, NORMED, framework="numpy", examples=2, budget=60).faults


# -- what is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"attention": Attention(normaliser="relu")}, "Differential subtracts two softmaxes"),
        ({"eps": 0.1}, "eps and init belong to norm; hint: norm='rms'"),
        ({"norm": "rms"}, "without ε the norm of a row of zeros is 0/0; hint: eps=1e-5"),
    ],
)
def test_fields_that_make_no_sense_are_refused(fields: dict[str, Any], says: str) -> None:
    refuses(Differential, says=says, **fields)


def test_inputs_that_do_not_fit_are_refused_in_one_line() -> None:
    given = drawn(PLAIN)
    del given["lam"]
    refuses(PLAIN, says="λ is an input; hint: lam=…, or Differential(factor=0.8)", **given)
    refuses(PLAIN, says="takes no gain here; it takes q, k, v, lam", **drawn(PLAIN), gain=np.ones(3))
    refuses(PLAIN, says=r"lam has the shape (5,), expected (1,)", **drawn(PLAIN) | {"lam": np.ones(5)})
    refuses(HEADS, says=r"lam has the shape (1,), expected (2,)", **drawn(HEADS) | {"lam": np.ones(1)})
    refuses(NORMED, says=r"gain has the shape (1,), expected (3,)", **drawn(NORMED) | {"gain": np.ones(1)})
    refuses(PLAIN, says="q has 3 columns, which are no two halves", **drawn(PLAIN) | {"q": np.ones((1, 3))})
