"""Who raised an error: a refusal of the function or of a library is told, an error that code runs into is a fault."""

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from symattn import (
    Attention,
    CannotRun,
    Domain,
    InputError,
    LayerNorm,
    Precision,
    Verdict,
    derive,
    draw,
    evaluate,
    kind,
    like,
    prove,
    verify,
    walk,
)
from symattn.programs.refusing import refuses
from symattn.testing import assert_close_to_exact
from tests.programs.programs import attention
from tests.refusals import refusal

Array = Any
LIBRARY = """
import numpy as np


def attention(q, k, v, multiple=1, contiguous=False):
    assert q.shape[-1] % multiple == 0, f"head_dim {q.shape[-1]} not divisible by {multiple}"
    if contiguous and not (q.flags.c_contiguous and k.flags.c_contiguous and v.flags.c_contiguous):
        raise RuntimeError("no kernel for these strides")
    s = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def misfits(q):
    return q @ np.ones((7, 11))


def cannot(q):
    return np.linalg.cholesky(-np.eye(2))


def index(q):
    raise IndexError("of the library")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A package that is installed."""
    place = tmp_path_factory.mktemp("env") / "site-packages"
    place.mkdir()
    (place / "kernels_of_others.py").write_text(LIBRARY)
    sys.path.insert(0, str(place))
    import kernels_of_others  # type: ignore[import-not-found]

    yield kernels_of_others
    sys.path.remove(str(place))
    del sys.modules["kernels_of_others"]


def who(function: Callable[[], Any], target: Callable[..., Any] | None = None) -> str:
    """Who refuses, where ``target`` is what is verified."""
    try:
        function()
    except Exception as error:
        return refuses(error, target or function)
    raise AssertionError("it raises nothing")


Q = np.ones((3, 5))


def test_a_raise_of_ones_own_is_a_refusal() -> None:
    def own() -> None:
        raise NotImplementedError("not for these")

    def asserted() -> None:
        assert Q.shape == (1, 1), "not for these"

    def not_a_check() -> None:
        raise IndexError("of my own")

    assert [who(own), who(asserted), who(not_a_check)] == ["own", "own", ""]


@pytest.mark.parametrize(
    "function",
    [
        lambda: Q @ Q, lambda: Q[:, 9], lambda: Q + np.ones(4), lambda: Q.reshape(7), lambda: np.stack([Q, Q[0]]),
        lambda: np.einsum("ij,jk", Q, Q), lambda: np.split(Q, 2), lambda: np.concatenate([Q, Q[0]]), lambda: int("x"),
        lambda: dict(a=1)["b"], lambda: np.broadcast_to(Q, (2, 2)), lambda: np.matmul(Q, Q), lambda: [*Q][7],
    ],
)  # fmt: skip
def test_an_operation_on_arrays_that_fails_is_run_into(function: Callable[[], Any]) -> None:
    assert who(function) == ""


def test_checks_of_a_library_are_refusals_and_its_misfits_are_not(library: ModuleType) -> None:
    assert who(lambda: library.attention(Q, Q, Q, multiple=4)) == "library"
    assert who(lambda: library.attention(Q.T, Q.T, Q.T, contiguous=True)) == "library"
    assert who(lambda: library.cannot(Q)) == "library"
    assert who(lambda: library.misfits(Q)) == ""
    assert who(lambda: library.index(Q)) == ""


def test_the_target_itself_is_no_library(library: ModuleType) -> None:
    """What is verified may be installed: then its own code decides as anybody's does."""
    assert who(lambda: library.misfits(Q), library.misfits) == ""
    assert (who(lambda: library.cannot(Q), library.cannot), who(lambda: library.cannot(Q))) == ("", "library")
    assert who(lambda: library.attention(Q, Q, Q, multiple=4), library.attention) == "own"


@pytest.mark.torch
def test_of_torch() -> None:
    import torch
    import torch.nn.functional as F
    from torch.nn import MultiheadAttention
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    q, heads = torch.ones(2, 3, 4), MultiheadAttention(4, 2)
    mask = torch.ones(3, 3, dtype=torch.bool)
    assert who(lambda: MultiheadAttention(5, 2)) == "library"
    assert who(lambda: heads(torch.ones(3, 2, 5), q, q)) == "library"
    assert who(lambda: sdpa(q, q, q, attn_mask=mask, is_causal=True)) == "library"
    assert who(lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=mask, is_causal=True)) == "library"
    assert who(lambda: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q)) == "library"
    assert who(lambda: sdpa(q, q, q, attn_mask=torch.ones(7, 3, dtype=torch.bool))) == ""
    assert who(lambda: q @ torch.ones(7, 7)) == ""
    assert who(lambda: q.view(7)) == ""
    assert who(lambda: torch.einsum("ij,jk", torch.ones(2, 3), torch.ones(2, 3))) == ""
    assert who(lambda: torch.stack([q, q[0]])) == ""
    assert who(lambda: F.linear(q, torch.ones(7, 7))) == ""
    assert who(lambda: F.softmax(q, dim=9)) == ""


SMALL: dict[str, Any] = {
    "domain": Domain(max_tokens=17, max_width=20),
    "framework": "numpy",
    "layout": "nd",
    "examples": 5,
}


@pytest.mark.deep
def test_what_a_library_refuses_is_told_with_the_promise(library: ModuleType) -> None:
    def mine(q: Array, k: Array, v: Array) -> Array:
        return library.attention(q, k, v, multiple=4)

    report = verify(mine, **SMALL)
    assert not report.faults
    note = next(n for n in report.notes if n.startswith("It refuses"))
    assert "not divisible by 4" in note
    assert "--width-multiple-of 4 promises that no such input occurs" in note
    assert "widths that 4 divides" in report.domain


@pytest.mark.parametrize("least", [3, pytest.param(5, marks=pytest.mark.deep)])
def test_the_promise_that_forbids_least_is_read(least: int) -> None:
    """Numbers of tokens that are refused could be avoided by a multiple, too, which would forbid more."""

    def mine(q: Array, k: Array, v: Array) -> Array:
        if min(len(q), len(k)) < least:
            raise ValueError("too few tokens")
        return attention(q, k, v)

    report = verify(mine, **SMALL)
    assert not report.faults
    note = next(n for n in report.notes if n.startswith("It refuses"))
    assert f"--min-tokens {least} promises that no such input occurs" in note


@pytest.mark.deep
def test_strides_that_a_library_refuses_are_told(library: ModuleType) -> None:
    def mine(q: Array, k: Array, v: Array) -> Array:
        return library.attention(q, k, v, contiguous=True)

    report = verify(mine, **SMALL)
    assert not report.faults
    assert any("no kernel for these strides" in n and "--contiguous promises" in n for n in report.notes)
    quiet = verify(mine, **{**SMALL, "domain": Domain(max_tokens=17, max_width=20, contiguous=True)})
    assert not any(n.startswith("It refuses") for n in quiet.notes)


@pytest.mark.deep
def test_a_slip_in_code_for_memory_with_gaps_is_a_fault() -> None:
    def mine(q: Any, k: Any, v: Any) -> Any:
        if not k.flags.c_contiguous:
            k = k.contiguous()
        return attention(q, k, v)

    report = verify(mine, **SMALL)
    assert [f.step for f in report.faults] == ["call"]


@pytest.mark.torch
def test_a_view_refuses_memory_with_gaps_alone() -> None:
    """Arrays that lie apart are not taken by ``view``; what is turned within the code is its own mistake."""
    from torch.nn.functional import scaled_dot_product_attention

    def viewed(q: Any, k: Any, v: Any) -> Any:
        return scaled_dot_product_attention(q.view(-1).view(q.shape), k, v)

    report = verify(viewed, **{**SMALL, "framework": "torch"})
    assert not report.faults
    assert any("view size" in note and "--contiguous promises" in note for note in report.notes)

    def turned(q: Any, k: Any, v: Any) -> Any:
        scores = q.transpose(-1, -2).view(q.shape) @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return scores.softmax(-1) @ v

    fault = verify(turned, **{**SMALL, "framework": "torch"}).faults[0]
    assert (fault.step, "view size" in fault.message) == ("call", True)


@pytest.mark.deep
def test_where_a_library_refuses_everything_nothing_is_known(library: ModuleType) -> None:
    def mine(q: Array, k: Array, v: Array) -> Array:
        return library.attention(q, k, v, multiple=1000)

    report = verify(mine, **SMALL)
    assert (report.verdict, report.exit_code, report.faults) == (Verdict.UNDECIDED, 3, ())
    (note,) = (n for n in report.notes if n.startswith("It refuses all inputs that were tried ("))
    assert "not divisible by 1000" in note
    assert "--" not in note


@pytest.mark.deep
@pytest.mark.parametrize(
    "error", [AssertionError("q must be on the GPU"), RuntimeError("0 active drivers ([]). There should only be one.")]
)
def test_a_function_of_a_device_is_told_how_it_is_called(error: Exception) -> None:
    def there(q: Array, k: Array, v: Array) -> Array:
        raise error

    with pytest.raises(CannotRun, match="copies them to the device, or set TRITON_INTERPRET=1"):
        verify(there, **SMALL)


@pytest.mark.deep
def test_definitions_tell_refusals_with_the_promise() -> None:
    def norm(x: Array, weight: Array) -> Array:
        assert x.shape[-1] % 4 == 0, "widths in fours"
        c = x - x.mean(-1, keepdims=True)
        return c / np.sqrt((c * c).mean(-1, keepdims=True) + np.float32(1e-5)) * weight

    report = verify(norm, LayerNorm(), framework="numpy", examples=5)
    assert not report.faults
    assert any("--width-multiple-of 4 promises" in n for n in report.notes)


@pytest.mark.deep
def test_what_ones_own_code_runs_into_stays_a_fault(library: ModuleType) -> None:
    def mine(q: Array, k: Array, v: Array) -> Array:
        return library.attention(q, k, v) + 0 * v[: len(q)] * np.ones((len(k), 1), dtype=q.dtype)

    assert verify(mine, **SMALL).exit_code == 1


ONE = np.float32([[1]])
INPUTS = {"q": ONE, "k": ONE, "v": ONE}
CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "derive": (derive, "derive() expects a name (str)"),
    "draw": (draw, "draw() expects a name (str)"),
    "prove": (prove, "prove() expects a name (str)"),
    "like": (like, "like() expects a name (str)"),
    "kind": (kind, "kind() expects a name (str)"),
    "precision": (Precision.of, "Precision.of() expects a name (str)"),
    "digits": (lambda x: evaluate(Attention(), INPUTS, digits=x), "digits must be an integer of at least 1"),
    "model": (lambda x: evaluate(x, INPUTS), "cannot be evaluated"),
    "inputs": (lambda x: evaluate(Attention(), x), "the inputs are passed by name"),
    "tokens": (lambda x: Domain(max_tokens=x), "max_tokens must be an integer of at least 1"),
    "score": (lambda x: Domain(max_abs_score=x), "max_abs_score must be a number above 0"),
    "step": (lambda x: walk("eight-step", step=x), "step"),
    "specification": (lambda x: assert_close_to_exact(ONE, ONE, ONE, ONE, x), "the specification is an Attention"),
}
OPTIONAL = ("score", "step", "specification")  # None is the default of these


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", [None, ["x"], (1, 2)], ids=repr)
def test_another_type_is_one_line(name: str, value: Any) -> None:
    call, words = CALLS[name]
    value = {} if value is None and name in OPTIONAL else value
    assert words in refusal(call, value)


def test_no_theorem_is_proved_where_one_has_no_name() -> None:
    with pytest.raises(InputError, match=r"prove\(\) expects a name \(str\), got a list"):
        prove(["softmax-shift", "softmax-sum"])  # type: ignore[arg-type]


def test_a_whole_number_that_no_float_holds_is_a_number() -> None:
    with pytest.raises(InputError):
        walk({"q": [[10**400]], "k": [[1]], "v": [[1]]})


def test_a_missing_query_is_told() -> None:
    with pytest.raises(InputError, match="there is no input 'q'"):
        assert_close_to_exact(ONE, None, ONE, ONE)
