"""Mistakes drawn by rule from plain programs, the programs themselves, and names that such draws showed to be wrong."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Merge, Softmax, verify
from tests.faults.programs import Program
from tests.verification.drawn_programs import answer_of, draw_mistakes, load_function, text_of
from tests.verification.legal_definitions import REWRITES
from tests.verification.plain_definitions import PROGRAMS, PlainProgram

Array = Any


def test_draws_depend_on_the_seed_alone_and_change_an_output(tmp_path: Path) -> None:
    program = next(p for p in PROGRAMS if p.name == "merged_in_base_two")
    first, again = (list(islice(draw_mistakes(program, np.random.default_rng(3), tmp_path), 3)) for _ in range(2))
    assert [d.text for d in first] == [d.text for d in again]
    for drawn in first:
        changed = load_function(drawn.text, program.name, tmp_path)
        with np.errstate(all="ignore"):
            pairs = [(changed(*call), program.function(*call)) for call in program.calls()]
        # Outputs and log-sums of the calls; one of them differs.
        assert drawn.distance > 0
        assert not all(np.array_equal(x, y) for one, other in pairs for x, y in zip(one, other, strict=True))


@pytest.mark.deep
def test_a_change_that_leaves_the_function_equal_is_not_drawn(tmp_path: Path) -> None:
    program = next(p for p in PROGRAMS if p.name == "softmax_with_bias")
    texts = [d.text for d in draw_mistakes(program, np.random.default_rng(4), tmp_path)]
    assert texts
    # Without its maximum softmax is the same function.
    assert not any("np.exp(s)" in text for text in texts)


@pytest.mark.deep
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_plain_programs_are_not_accused(program: PlainProgram) -> None:
    assert verify(program.function, program.spec).verdict.value == "no fault"


@pytest.mark.deep
@pytest.mark.parametrize("program", REWRITES, ids=lambda p: p.name)
def test_legal_rewrites_are_not_accused(program: Program) -> None:
    assert verify(program.function, program.spec).verdict.value == "no fault"


_IN_WIDER_FORMAT = (
    "log_sums_by_blocks", "softmax_with_bias", "merged_in_base_two", "cache_rotated", "gradient_of_heads",
    "gradient_of_gates", "delta_of_unit_keys", "delta_with_pairs", "block_before",
)  # fmt: skip


def computed_in_float32(program: PlainProgram) -> Any:
    """Return the program on arrays of float16, computed in float32 and rounded once at the end."""
    names = program.function.__code__.co_varnames[: program.function.__code__.co_argcount]

    def run(*arrays: Array) -> Any:
        wider = [a.astype(np.float32) if isinstance(a, np.ndarray) and a.dtype == np.float16 else a for a in arrays]
        result = program.function(*wider)
        outputs = tuple(y.astype(np.float16) for y in (result if isinstance(result, tuple) else (result,)))
        return outputs if isinstance(result, tuple) else outputs[0]

    scope: dict[str, Any] = {"run": run}
    exec(f"def {program.name}({', '.join(names)}):\n    return run({', '.join(names)})", scope)
    return scope[program.name]


@pytest.mark.deep
@pytest.mark.parametrize("name", _IN_WIDER_FORMAT)
def test_half_precision_computed_in_float32_is_not_accused(name: str) -> None:
    program = next(p for p in PROGRAMS if p.name == name)
    function = computed_in_float32(program)
    assert verify(function, program.spec, precision="float16").verdict.value == "no fault"


# -- names -------------------------------------------------------------------------------------------------------------
def softmax_of_powers_less_one(scores: Array) -> Array:
    with np.errstate(invalid="ignore"):
        e = np.expm1(scores - scores.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.deep
def test_a_mistake_without_numbers_does_not_explain_wrong_ones() -> None:
    # With one key the weight is 0/0, as if no key were seen; dropped tiles of 128 keys give no other number here.
    (fault,) = verify(softmax_of_powers_less_one, Softmax()).faults
    assert fault.step == "normalize"
    assert fault.cause == "uses 1 − (exp(scores − max(scores))) instead of exp(scores − max(scores))"


def softmax_with_window_alone(scores: Array) -> Array:
    n, m = scores.shape[-2:]
    seen = np.arange(m)[None, :] > np.arange(n)[:, None] + (m - n) - 3
    e = np.exp(np.where(seen, scores - scores.max(axis=-1, keepdims=True), scores.dtype.type(-np.inf)))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.deep
def test_a_causal_mask_that_is_left_out_with_a_window_is_not_called_a_join() -> None:
    (fault,) = verify(softmax_with_window_alone, Softmax(Attention(causal=True, window=3))).faults
    assert fault.cause == "the causal mask is left out with the window: all later keys are seen"


def raw_gates_with_step_reversed(
    q: Array, k: Array, v: Array, g: Array, beta: Array, A_log: Array, dt_bias: Array
) -> Array:
    gates = -np.exp(A_log)[:, None] * np.logaddexp(0, g - dt_bias[:, None])
    b = 1 / (1 + np.exp(-beta))
    out = np.zeros_like(v)
    for h in range(q.shape[0]):
        state = np.zeros((k.shape[-1], v.shape[-1]), q.dtype)
        for t in range(q.shape[1]):
            state = np.exp(gates[h, t]) * state
            state = state + b[h, t] * np.outer(k[h, t], v[h, t] - k[h, t] @ state)
            out[h, t] = q[h, t] @ state
    return out


@pytest.mark.deep
def test_a_wrong_function_is_called_in_the_order_of_axes_in_which_it_runs() -> None:
    # With as many heads as tokens it runs on (n, h, d), too, and fails there in other calls.
    program = next(p for p in PROGRAMS if p.name == "delta_of_raw_gates")
    (fault,) = verify(raw_gates_with_step_reversed, program.spec).faults
    assert fault.step != "call"


def answer_to_change(name: str, old: str, new: str, folder: Path) -> dict[str, Any]:
    """Return what is said of a plain program with one changed text, on a command line with ``--fix``."""
    program = next(p for p in PROGRAMS if p.name == name)
    text = text_of(program)
    assert text.count(old) == 1, text
    return answer_of(load_function(text.replace(old, new), name, folder), program.spec)


_UNDECAYED = "the gradient of the state does not decay from a token to the one before"
_LATE = "the causal mask is off by one: a query does not see its own key"
_UNDIVIDED = "the exponentials e^s in P, no maximum subtracted, are not divided by their sum"
#: The program, its text, what stands in place of that, and the cause.
_NAMED = (
    ("softmax_with_bias", "s - s.max(axis=-1, keepdims=True)", "s.max(axis=-1, keepdims=True) - s",
     "the exponents have the other sign: e^(max s − s) for e^(s − max s)"),
    ("cache_of_heads", "/ e.sum()", "* e.sum()", "exponentials are multiplied by their sum, not divided"),
    ("log_sums_of_heads", "/ total", "* total",
     "exponentials e^s, no maximum subtracted, are multiplied by their sum, not divided"),
    ("cache_of_heads", "e.sum()", "e.mean()",
     "exponentials are divided by their mean over the keys that are seen, not by their sum"),
    ("block_in_parallel", "e.sum(", "e.mean(", "exponentials are divided by their mean, not by their sum"),
    ("merged_by_differences", "np.where(l1 >= l2, 1 - share, share)", "np.where(l1 <= l2, 1 - share, share)",
     "both outputs have the weight of the second"),
    ("delta_with_pairs", "np.exp(g[t])", "np.exp2(g[t])", "decays are 2^g, not e^g"),
    ("delta_along_vectors", "decayed + beta", "decayed - beta", "the correction of the state is subtracted, not added"),
    ("delta_of_unit_keys", "beta[t] * ", "", "β is left out: the value under a key is replaced completely"),
    ("delta_of_raw_gates", "-np.exp(A_log)[:, None] * softplus", "softplus",
     "entries of −exp(A_log) are taken to be 1"),
    ("layer_norm_of_rows", " / np.sqrt(variance + x.dtype.type(1e-05))", "",
     "it is not divided by the standard deviation"),
    ("attention_over_layers", " / np.sqrt(square + outputs.dtype.type(1e-06))", "",
     "it is not divided by the root of the mean square"),
    ("gradient_of_heads", "p = e / e.sum(axis=1, keepdims=True)", "p = e", _UNDIVIDED),
    ("gradient_from_saved", "[None, :] <= np", "[None, :] < np",
     f"weights are computed again from the sums: {_LATE}"),
    ("gradient_of_gates", "back = np.exp(g[t]) * back", "back = back", _UNDECAYED),
    ("gradient_of_gates", " + np.outer(k[t], v[t])", "", "dq and dg are 0"),
    ("gradient_of_delta", "back = back - np.outer(k[t], error)", "back = back",
     "the gradient of the state is not erased by a token's key"),
)  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize(("name", "old", "new", "cause"), _NAMED)
def test_a_mistake_is_named_beside_its_edit(name: str, old: str, new: str, cause: str, tmp_path: Path) -> None:
    assert answer_to_change(name, old, new, tmp_path)["cause"] == [cause]


def merge_with_natural_weight(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
    top = np.maximum(l1, l2)
    safe = np.where(np.isfinite(top), top, 0)
    w1, w2 = np.exp(l1 - safe), np.exp2(l2 - safe)
    total = w1 + w2
    both = o1 * w1[..., None] + o2 * w2[..., None]
    with np.errstate(divide="ignore"):
        return both / np.where(total > 0, total, 1)[..., None], safe + np.log2(total)


@pytest.mark.deep
def test_a_weight_of_a_merge_in_another_base_is_named() -> None:
    (fault,) = verify(merge_with_natural_weight, Merge(base=2)).faults
    assert fault.cause == "the first weight is e^(l − max l), the other is not"


@pytest.mark.deep
def test_a_mistake_is_no_cause_if_it_is_undefined_where_the_code_is_right(tmp_path: Path) -> None:
    # Another start of the mask leaves most rows without a key: every third of these is right here.
    answer = answer_to_change("cache_of_heads", "past + i + 1", "past - i + 1", tmp_path)
    assert answer["step"] == ["call", "cache"]
    assert answer["cause"][1] is None


@pytest.mark.deep
def test_weights_that_all_go_to_one_value_are_not_called_moved(tmp_path: Path) -> None:
    # Pages before the last are lost, so that a single key of it has the whole weight.
    answer = answer_to_change("cache_in_pages", "old = np.exp(", "old = np.expm1(", tmp_path)
    assert "wrong values" not in " ".join(answer["message"])


@pytest.mark.deep
def test_no_narrow_format_is_blamed_beside_an_edit(tmp_path: Path) -> None:
    answer = answer_to_change("delta_with_gates", "np.exp(g[t])", "np.expm1(g[t])", tmp_path)
    assert answer["edits"]
    assert "arithmetic could make" not in " ".join(answer["message"])
