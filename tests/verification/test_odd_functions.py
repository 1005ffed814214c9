"""Whatever a function does, ``verify`` ends in a report, or says in one line that there is nothing to judge."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Block, CannotRun, Domain, Verdict, printing, verify
from symattn.programs.request import Request
from symattn.programs.target import target
from tests.faults.programs import plain, softmax
from tests.lanes import one_in
from tests.verification.naming import convicts

SMALL = Domain(max_tokens=17, max_width=8)
LEAST = Domain(max_tokens=3, max_width=3)


def whole_tiles_of_keys(q, k, v):
    """Below 16 keys none is read."""
    n = len(k) // 16 * 16
    return plain(q, k[:n], v[:n]) if n else np.zeros((len(q), v.shape[1]), q.dtype)


def whole_tiles_of_queries(q, k, v):
    """Rows past the last whole tile stay zero."""
    out = plain(q, k, v)
    out[len(q) // 16 * 16 :] = 0
    return out


def tiles_of_no_key(q, k, v):
    """Below 16 keys the weights are 0/0."""
    n = len(k) // 16 * 16
    s = q @ k[:n].T
    e = np.exp(s - s.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True) @ v[:n]


@pytest.mark.deep
@pytest.mark.parametrize(
    "function",
    [
        whole_tiles_of_keys,
        whole_tiles_of_queries,
        tiles_of_no_key,
    ],
)
def test_whole_tiles_alone_are_a_fault(function: Callable[..., Any]) -> None:
    with np.errstate(all="ignore"):
        assert convicts(function, Attention(), domain=SMALL, examples=0)


@pytest.mark.deep
def test_a_wrong_block_of_several_heads_is_a_fault() -> None:
    spec = Block(attention=Attention(heads=2))

    def block(x, w_q, w_k, w_v, w_o, w_up, b_up, w_down, b_down, g1, beta1, g2, beta2):
        attention = dict(zip(("w_q", "w_k", "w_v", "w_o"), (w_q, w_k, w_v, w_o), strict=True))
        mlp = {"w_up": w_up, "b_up": b_up, "w_down": w_down, "b_down": b_down}
        norms = {"attention_norm.gain": g1, "attention_norm.bias": beta1, "mlp_norm.gain": g2, "mlp_norm.bias": beta2}
        parts = {f"{part}.{n}": a for part, of in (("attention", attention), ("mlp", mlp)) for n, a in of.items()}
        return np.asarray(spec(x=x, **parts, **norms)) * x.dtype.type(1.5)

    report = verify(block, spec, examples=0)
    found = report.faults[0].counterexample
    assert found is not None
    assert found.sizes["h"] == 2
    assert np.shape(found.inputs["attention.w_q"])[1] == 2 * found.sizes["d_k"]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


def forever(q, k, v):
    return forever(q, k, v)


def raising(error: BaseException) -> Callable[..., Any]:
    def function(q, k, v):
        raise error

    return function


NOTHING: dict[str, Callable[..., Any]] = {
    "None": lambda q, k, v: None,
    "a number": lambda q, k, v: 1.0,
    "complex": lambda q, k, v: plain(q, k, v) + 1j,
    "objects": lambda q, k, v: plain(q, k, v).astype(object),
    "words": lambda q, k, v: plain(q, k, v).astype(str),
    "dates": lambda q, k, v: np.zeros(1, "M8[s]"),
    "fields": lambda q, k, v: np.zeros(1, [("a", "f4")]),
    "a generator": lambda q, k, v: (x for x in v),
    "an empty tuple": lambda q, k, v: (),
    "SystemExit": raising(SystemExit(3)),
    "GeneratorExit": raising(GeneratorExit()),
    "StopIteration": raising(StopIteration()),
    "MemoryError": raising(MemoryError()),
    "BaseException": raising(BaseException("x")),
    "a group": raising(ExceptionGroup("g", [ValueError(1)])),
    "surrogates": raising(ValueError("\ud800\n\x00")),
    "what cannot be printed": raising(Unprintable()),
    "a recursion": forever,
}


@pytest.mark.deep
@pytest.mark.parametrize("name", one_in(9, NOTHING))
def test_what_gives_no_array_cannot_be_run(name: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(CannotRun, match="failed on every input"):
        verify(NOTHING[name], Attention(), domain=LEAST, examples=0)


@pytest.mark.deep
def test_an_operator_that_a_cpu_lacks_is_said_in_one_line() -> None:
    lacked = raising(NotImplementedError("Could not run 'aten::x' with arguments from the 'CPU' backend. " + "y" * 900))
    with pytest.raises(CannotRun, match=r"PyTorch has no aten::x on a CPU; hint: [^.]*$"):
        verify(lacked, Attention(), domain=LEAST, examples=0)


RETURNED = {
    "None": "None",
    "a number": "a float",
    "complex": "complex64",
    "a generator": "a generator",
    "a dict": "a dict",
}


@pytest.mark.deep
@pytest.mark.parametrize("name", RETURNED)
@pytest.mark.parametrize("of_two_axes", [False, True])
def test_what_comes_back_is_named_before_an_error_in_other_axes(name: str, of_two_axes: bool) -> None:
    """A function of (n, d) alone raises with a batch: this says nothing of what it returns."""
    result = (NOTHING | {"a dict": lambda q, k, v: {"o": v}})[name]

    def function(q, k, v):
        if of_two_axes:
            q, k, v = (np.einsum("nd->nd", x) for x in (q, k, v))
        return result(q, k, v)

    with np.errstate(all="ignore"), pytest.raises(CannotRun, match=f"on every input: returned .*{RETURNED[name]}"):
        verify(function, Attention(), domain=LEAST, examples=0)


def of_one_width(q: Any, k: Any, v: Any) -> Any:
    if q.shape != v.shape or q.shape[-1] != 16:
        raise ValueError("widths of 16 only")
    return plain(q, k, v)


def misnamed(q: Any, k: Any, v: Any) -> Any:
    _, _, _, width = q.shape
    return q @ keys / width @ v  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.deep
def test_what_takes_no_shape_that_was_tried_leads_to_the_options_for_shapes() -> None:
    with pytest.raises(CannotRun, match=r"widths of 16 only.*; hint: if it takes some shapes .* --square"):
        verify(of_one_width, Attention(), domain=LEAST, examples=0)
    with pytest.raises(CannotRun) as no_shapes:
        verify(misnamed, Attention(), domain=LEAST, examples=0)
    assert "--square" not in str(no_shapes.value)


def with_turned_values(q: Any, k: Any, v: Any) -> Any:
    _, _, _, width = q.shape
    s = np.einsum("bhnd,bhmd->bhnm", q, k) / np.sqrt(width, dtype=q.dtype)
    return np.einsum("bhnm,bmhd->bhnd", softmax(s), v)


@pytest.mark.deep
def test_the_error_is_that_of_the_axes_with_which_the_code_comes_furthest() -> None:
    """Not that of unpacking three axes."""
    for spec in (Attention(), Attention(heads=4)):
        with pytest.raises(CannotRun, match="name 'keys' is not defined"):
            verify(misnamed, spec, domain=LEAST, examples=0)


@pytest.mark.deep
def test_code_that_runs_in_no_layout_is_judged_in_the_one_it_was_written_for() -> None:
    how = target(with_turned_values, Request.of(Attention(heads=4), dtype="float32", layout="auto")).convention
    assert how.layout == "bhnd"
    assert any("(b, h, n, d), with which its code ran furthest" in note for note in how.notes)


WRONG: dict[str, Callable[..., Any]] = {
    "a scalar": lambda q, k, v: np.float32(1),
    "an axis less": lambda q, k, v: plain(q, k, v).ravel(),
    "an axis more": lambda q, k, v: plain(q, k, v)[..., None],
    "no rows": lambda q, k, v: plain(q, k, v)[:0],
    "infinities": lambda q, k, v: plain(q, k, v) * 0 + np.float32(np.inf),
    "NaN": lambda q, k, v: plain(q, k, v) * np.float32(np.nan),
    "NaN in one column": lambda q, k, v: np.where(np.arange(v.shape[1]) == 1, np.float32(np.nan), plain(q, k, v)),
    "numbers beyond float64": lambda q, k, v: np.longdouble(2) ** 2000 * plain(q, k, v),
    "overflow": lambda q, k, v: plain(q, k, v) * np.float32(3e38),
    "whole numbers": lambda q, k, v: plain(q, k, v).astype(int),
    "booleans": lambda q, k, v: plain(q, k, v) > 0,
    "half precision": lambda q, k, v: plain(q, k, v).astype(np.float16),
    "its argument": lambda q, k, v: v,
    "a changed argument": lambda q, k, v: (q.fill(0), plain(q, k, v))[1],
    "None for many tokens": lambda q, k, v: plain(q, k, v) if len(k) < 3 else None,
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "half precision" else pytest.mark.deep) for n in WRONG]
)
def test_what_gives_wrong_arrays_has_a_fault(name: str) -> None:
    with np.errstate(all="ignore"):
        report = verify(WRONG[name], Attention(), domain=LEAST, examples=0)
    assert report.verdict is Verdict.FAULT
    assert all(printing.render(report.document(), form) for form in ("text", "json", "markdown", "latex"))


def test_ctrl_c_stops_a_verification() -> None:
    """In this process nobody can tell it from the function's own; a child's is the function's."""
    with pytest.raises(KeyboardInterrupt):
        verify(raising(KeyboardInterrupt()), Attention())


@pytest.mark.deep
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_never_finite_is_blamed_on_no_number(value: float) -> None:
    """Where no row is kept, nothing tells what was subtracted from the scores."""
    function = lambda q, k, v: np.full((len(q), v.shape[1]), value, q.dtype)  # noqa: E731
    (fault,) = verify(function, Attention(), domain=SMALL, examples=0).faults
    assert (fault.cause, fault.counterexample is not None) == (None, True)
    assert "not finite" in fault.message


@pytest.mark.deep
def test_what_is_wider_than_float64_is_judged_after_a_rounding_that_is_told() -> None:
    def wide(q, k, v):
        return plain(q.astype(float), k.astype(float), v.astype(float)).astype(np.longdouble)

    right = verify(wide, Attention(), precision="float64", domain=SMALL, examples=0)
    assert right.faults == ()
    assert any("rounded to float64 and judged with this rounding" in note for note in right.notes)
    wrong = verify(lambda q, k, v: wide(2 * q, k, v), Attention(), precision="float64", domain=SMALL, examples=0)
    assert wrong.faults[0].step == "scale"


# -- What a function refuses itself is no fault: it is told, and what it takes is judged -------------------------------
Array = Any
FEW = Domain(max_tokens=17, max_width=20)


def _attention(q: Array, k: Array, v: Array, scale: float) -> Array:
    return softmax(q @ k.T * np.asarray(scale, dtype=q.dtype)) @ v


def one_width(q: Array, k: Array, v: Array) -> Array:
    assert q.shape[-1] == v.shape[-1]
    return plain(q, k, v)


def square(q: Array, k: Array, v: Array) -> Array:
    if len(q) != len(k):
        raise NotImplementedError("as many queries as keys")
    return plain(q, k, v)


def blocks_of_four(q: Array, k: Array, v: Array) -> Array:
    if len(q) % 4 or len(k) % 4:
        raise ValueError("numbers of tokens must be multiples of 4")
    return plain(q, k, v)


def widths_of_eight(q: Array, k: Array, v: Array) -> Array:
    if q.shape[-1] % 8 or v.shape[-1] % 8:
        raise ValueError("heads are 8, 16, 24, … wide")
    return plain(q, k, v)


def even_keys(q: Array, k: Array, v: Array) -> Array:
    assert q.shape[-1] % 2 == 0, "queries and keys have an even width"
    return plain(q, k, v)


def few_widths(q: Array, k: Array, v: Array) -> Array:
    if {q.shape[-1], v.shape[-1]} - {16, 32, 64, 128}:
        raise NotImplementedError("heads are 16, 32, 64 or 128 wide")
    return plain(q, k, v)


def narrow(q: Array, k: Array, v: Array) -> Array:
    if max(q.shape[-1], v.shape[-1]) > 16:
        raise ValueError("heads are 16 wide at most")
    return plain(q, k, v)


def wrong_in_few_widths(q: Array, k: Array, v: Array) -> Array:
    return few_widths(q * q.dtype.type(q.shape[-1] ** -0.5), k, v)


def wrong_in_blocks(q: Array, k: Array, v: Array) -> Array:
    if len(q) % 16 or q.shape != v.shape:
        raise ValueError("blocks of 16, and one shape")
    return _attention(q, k, v, 1 / q.shape[-1])


@pytest.mark.deep
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (one_width, "values as wide as keys"),
        (square, "as many queries as keys"),
        (blocks_of_four, "numbers of tokens that 4 divides"),
        (widths_of_eight, "widths that 8 divides"),
        (few_widths, "widths that 16 divides"),
        (even_keys, "--width-multiple-of 2 promises that no such input occurs"),
        (narrow, "up to 17 tokens of up to 16 components"),
    ],
)
def test_a_refusal_is_told_and_no_fault(function: Callable[..., Array], words: str) -> None:
    report = verify(function, domain=FEW, examples=5)
    assert not report.faults
    note = next(n for n in report.notes if n.startswith("It refuses"))
    assert words in note
    assert words in report.domain or words.startswith("--")


def of_tokens(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array, heads: int) -> Array:
    q, k, v = ((x @ w).reshape(len(x), heads, -1).swapaxes(0, 1) for w in (w_q, w_k, w_v))
    out = np.stack([plain(*head) for head in zip(q, k, v, strict=True)], axis=1)
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
    report = verify(wrong_in_blocks, domain=FEW, examples=5)
    assert report.faults[0].step == "scale"
    assert "numbers of tokens that 16 divides" in report.domain


@pytest.mark.deep
def test_what_is_promised_is_not_tried_and_so_not_refused() -> None:
    report = verify(one_width, domain=replace(FEW, same_width=True), examples=5)
    assert not any(n.startswith("It refuses") for n in report.notes)
    assert not verify(blocks_of_four, domain=replace(FEW, multiple_of=4), examples=5).faults


@pytest.mark.deep
def test_who_refuses_everything_cannot_be_judged() -> None:
    def none(q: Array, k: Array, v: Array) -> Array:
        raise ValueError("not today")

    with pytest.raises(CannotRun, match="not today"):
        verify(none, domain=FEW, examples=0)
