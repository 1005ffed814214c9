"""What a function refuses itself is no fault: it is told, and what it takes is judged."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, CannotRun, Domain, InputError, verify
from symattn.programs.refusing import refuses

Array = Any
SMALL = Domain(max_tokens=17, max_width=20)


def _attention(q: Array, k: Array, v: Array, scale: float) -> Array:
    s = q @ k.T * np.asarray(scale, dtype=q.dtype)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def _right(q: Array, k: Array, v: Array) -> Array:
    return _attention(q, k, v, q.shape[-1] ** -0.5)


def one_width(q: Array, k: Array, v: Array) -> Array:
    assert q.shape[-1] == v.shape[-1]
    return _right(q, k, v)


def square(q: Array, k: Array, v: Array) -> Array:
    if len(q) != len(k):
        raise NotImplementedError("as many queries as keys")
    return _right(q, k, v)


def blocks_of_four(q: Array, k: Array, v: Array) -> Array:
    if len(q) % 4 or len(k) % 4:
        raise ValueError("numbers of tokens must be multiples of 4")
    return _right(q, k, v)


def widths_of_eight(q: Array, k: Array, v: Array) -> Array:
    if q.shape[-1] % 8 or v.shape[-1] % 8:
        raise ValueError("heads are 8, 16, 24, … wide")
    return _right(q, k, v)


def few_widths(q: Array, k: Array, v: Array) -> Array:
    if {q.shape[-1], v.shape[-1]} - {16, 32, 64, 128}:
        raise NotImplementedError("heads are 16, 32, 64 or 128 wide")
    return _right(q, k, v)


def narrow(q: Array, k: Array, v: Array) -> Array:
    if max(q.shape[-1], v.shape[-1]) > 16:
        raise ValueError("heads are 16 wide at most")
    return _right(q, k, v)


def wrong_in_few_widths(q: Array, k: Array, v: Array) -> Array:
    return few_widths(q * q.dtype.type(q.shape[-1] ** -0.5), k, v)


def wrong_in_blocks(q: Array, k: Array, v: Array) -> Array:
    if len(q) % 16 or q.shape != v.shape:
        raise ValueError("blocks of 16, and one shape")
    return _attention(q, k, v, 1 / q.shape[-1])


def crashes(q: Array, k: Array, v: Array) -> Array:
    return _right(q, k, v) + 0 * v[: len(q)] * np.ones((len(k), 1))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (one_width, "values as wide as keys"),
        (square, "as many queries as keys"),
        (blocks_of_four, "numbers of tokens that 4 divides"),
        (widths_of_eight, "widths that 8 divides"),
        (few_widths, "widths that 16 divides"),
        (narrow, "up to 17 tokens of up to 16 components"),
    ],
)
def test_a_refusal_is_told_and_no_fault(function: Callable[..., Array], words: str) -> None:
    report = verify(function, domain=SMALL, examples=5)
    assert not report.faults
    note = next(n for n in report.notes if n.startswith("It refuses"))
    assert words in note
    assert words in report.domain


def of_tokens(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = ((x @ w).reshape(len(x), heads, -1).swapaxes(0, 1) for w in (w_q, w_k, w_v))
    out = np.stack([_right(*head) for head in zip(q, k, v, strict=True)], axis=1)
    return out.reshape(len(x), -1) @ w_o


def columns_48(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
    if x.shape[-1] != 48 or w_q.shape != (48, 48):
        raise ValueError("tokens have 48 columns")
    return of_tokens(x, w_q, w_k, w_v, w_o, 6)


def square_alone(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
    assert w_q.shape == w_k.shape == w_v.shape == w_o.shape
    return of_tokens(x, w_q, w_k, w_v, w_o, 2)


def columns_64_wrong(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
    assert x.shape[-1] == len(w_o) == 64
    return of_tokens(x, w_q, w_q, w_v, w_o, 4)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("function", "heads", "words"),
    [
        (columns_48, 6, "--square-weights --width-multiple-of 8 --max-width"),
        (square_alone, 2, "--square-weights promises"),
        (columns_64_wrong, 4, "--square-weights --width-multiple-of 16 --max-width 16"),
    ],
)
def test_tokens_of_one_width_alone_are_judged(function: Callable[..., Array], heads: int, words: str) -> None:
    report = verify(function, Attention(heads=heads), domain=Domain(max_tokens=17), examples=5)
    assert bool(report.faults) == ("wrong" in function.__name__)
    assert words in next(n for n in report.notes if n.startswith("It refuses"))


@pytest.mark.deep
def test_what_takes_a_few_widths_alone_is_judged() -> None:
    report = verify(wrong_in_few_widths, domain=Domain(max_tokens=17, max_width=40), examples=0)
    assert report.faults[0].step == "scale"
    assert len(report.faults) == 1


@pytest.mark.deep
def test_a_fault_in_what_is_taken_is_found() -> None:
    report = verify(wrong_in_blocks, domain=SMALL, examples=5)
    assert report.faults[0].step == "scale"
    assert "numbers of tokens that 16 divides" in report.domain


@pytest.mark.deep
def test_a_crash_is_a_fault() -> None:
    assert verify(crashes, domain=SMALL, examples=0).exit_code == 1


@pytest.mark.deep
def test_what_is_promised_is_not_tried_and_so_not_refused() -> None:
    report = verify(one_width, domain=replace(SMALL, same_width=True), examples=5)
    assert not any(n.startswith("It refuses") for n in report.notes)
    assert not verify(blocks_of_four, domain=replace(SMALL, multiple_of=4), examples=5).faults


@pytest.mark.deep
def test_who_refuses_everything_cannot_be_judged() -> None:
    def none(q: Array, k: Array, v: Array) -> Array:
        raise ValueError("not today")

    with pytest.raises(CannotRun, match="not today"):
        verify(none, domain=SMALL, examples=0)


def test_only_the_code_of_the_user_refuses() -> None:
    def own() -> None:
        assert not True, "own"

    def numpys() -> None:
        np.ones(2).reshape(3)

    def libraries() -> None:
        import fractions

        fractions.Fraction("x")

    def raised(function: Callable[[], None]) -> bool:
        try:
            function()
        except (AssertionError, ValueError) as error:
            return refuses(error) != ""
        return False

    assert [raised(f) for f in (own, numpys, libraries)] == [True, False, False]


def test_a_domain_without_any_size_is_refused() -> None:
    with pytest.raises(InputError, match="multiple of 64"):
        Domain(max_tokens=10, multiple_of=64)
