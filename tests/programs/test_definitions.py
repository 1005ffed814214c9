"""How a function of a definition wants its arrays is determined by trial: norms and blocks of any number of axes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import (
    Attention,
    Block,
    Cached,
    Domain,
    InputError,
    LinearAttention,
    Merge,
    RMSNorm,
    Rotary,
    Verdict,
    verify,
)
from symattn.programs import definitions
from symattn.programs.verifying import Options, requested, verified
from tests.verification.naming import convicts


def rms(x: Any, weight: Any, axis: int = -1) -> Any:
    mean = (x * x).mean(axis=axis, keepdims=True)
    return x / np.sqrt(mean + x.dtype.type(1e-5)) * weight


def of_axes(*numbers: int, axis: int = -1) -> Callable[..., Any]:
    def norm(x: Any, weight: Any) -> Any:
        if x.ndim not in numbers:
            raise IndexError("another number of axes")
        return rms(x, weight, axis)

    return norm


def found(function: Callable[..., Any], spec: Any) -> tuple[set[int], tuple[str, ...]]:
    """The numbers of axes of x, and the notes."""
    made = definitions.target(function, requested(spec, dtype="float32", framework="numpy"))
    subject = made.subject
    return {len(subject.axes_of("x", s)) for s in subject.shapes}, made.convention.notes


def test_a_parameter_for_the_mask_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match=r"no parameter maks that can be named"):
        definitions.target(rms, requested(RMSNorm(), dtype="float32", framework="numpy", mask_arg="maks"))


def decays_behind_the_write(q: Any, k: Any, v: Any, g: Any) -> Any:
    h, n, d = q.shape
    state, out = np.zeros((h, d, v.shape[-1]), q.dtype), np.zeros_like(v)
    decay = np.exp(np.resize(g, h))  # it runs with any number of heads
    for t in range(n):
        state = (state + k[:, t, :, None] * v[:, t, None, :]) * decay[:, None, None]
        out[:, t] = (q[:, t, None, :] @ state)[:, 0]
    return out


def decays_behind_the_write_without_names(q: Any, k: Any, v: Any, g: Any) -> Any:
    state, out = np.zeros((len(q), q.shape[2], v.shape[-1]), q.dtype), np.zeros_like(v)
    decay = np.exp(np.resize(g, len(q)))
    for t in range(q.shape[1]):
        state = (state + k[:, t, :, None] * v[:, t, None, :]) * decay[:, None, None]
        out[:, t] = (q[:, t, None, :] @ state)[:, 0]
    return out


def axes_taken(convention: Any) -> str:
    assert isinstance(convention, definitions.Formed)
    return convention.order


def test_a_wrong_function_is_judged_with_the_axes_that_its_text_names() -> None:
    spec = LinearAttention(feature="identity", normalised=False, gate="head")
    request = requested(spec, dtype="float32", framework="numpy", layout="auto")
    named = definitions.target(decays_behind_the_write, request).convention
    nameless = definitions.target(decays_behind_the_write_without_names, request).convention
    assert {axes_taken(named), axes_taken(nameless)} == {"nd"}
    # Without names, the order is taken in which heads do not change each other's outputs.
    assert not named.reservations
    (words,) = nameless.reservations
    assert words.startswith("It is judged with the axes (h, n, d). With (n, h, d) it runs too, but heads")
    assert words.endswith("--layout nhd judges it so.")


def decays_of_tokens_before_heads(q: Any, k: Any, v: Any, g: Any) -> Any:
    first, second, third = (np.swapaxes(x, 0, 1) for x in (q, k, v))
    return np.swapaxes(decays_behind_the_write_without_names(first, second, third, g), 0, 1)


def test_a_wrong_function_is_judged_in_the_order_in_which_heads_stay_apart() -> None:
    spec = LinearAttention(feature="identity", normalised=False, gate="head")
    request = requested(spec, dtype="float32", framework="numpy", layout="auto")
    convention = definitions.target(decays_of_tokens_before_heads, request).convention
    assert axes_taken(convention) == "nhd"
    (words,) = convention.reservations
    assert "With (h, n, d) it runs too, but heads or items then change each other's outputs" in words


def merges_second_parts(o1: Any, l1: Any, o2: Any, l2: Any) -> Any:
    share = np.exp(l2 - np.logaddexp(l1, l2))
    return share[..., None] * o1 + (1 - share)[..., None] * o2, np.logaddexp(l1, l2)


def test_orders_in_which_the_definition_is_the_same_are_not_named() -> None:
    convention = definitions.target(merges_second_parts, requested(Merge(), dtype="float32")).convention
    assert convention.reservations == ()


def test_orders_that_nothing_tells_apart_are_named_with_their_option() -> None:
    def turns_nothing(x: Any) -> Any:
        return 2 * x

    (words,) = definitions.target(turns_nothing, requested(Rotary(), dtype="float32")).convention.reservations
    assert "it runs too, and is wrong as well: --layout " in words


def cached_along(axis: int, scale: float = 0.5, shift: int = 0) -> Callable[..., Any]:
    """A cache of three axes whose tokens lie along ``axis``, right for a scale of d^(-1/2) and no shift of the mask."""

    def cached(q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any) -> Any:
        keys = np.moveaxis(np.concatenate([k_cache, k], axis=axis), axis, 1)
        values = np.moveaxis(np.concatenate([v_cache, v], axis=axis), axis, 1)
        scores = np.moveaxis(q, axis, 1) @ np.swapaxes(keys, 1, 2) * q.shape[-1] ** -scale
        n, m = scores.shape[1:]
        seen = np.where(np.tri(n, m, m - n - shift, dtype=bool), scores, -1e30)
        weights = np.exp(seen - seen.max(axis=-1, keepdims=True))
        return np.moveaxis(weights / weights.sum(axis=-1, keepdims=True) @ values, 1, axis)

    return cached


@pytest.mark.parametrize(("axis", "order"), [(0, "nhd"), (1, "bnd")])
@pytest.mark.parametrize("wrong", [{}, {"scale": 0.0}, {"scale": 1.0}, {"shift": 1}])
def test_caches_are_called_in_their_order_of_axes(axis: int, order: str, wrong: dict[str, Any]) -> None:
    spec = Cached(Attention(causal=True))
    request = requested(spec, dtype="float32", framework="numpy", layout="auto")
    convention = definitions.target(cached_along(axis, **wrong), request).convention
    assert axes_taken(convention) == order
    assert not convention.reservations


@pytest.mark.deep
@pytest.mark.parametrize("axis", [0, 1])
def test_a_right_cache_is_right_in_either_order(axis: int) -> None:
    assert verify(cached_along(axis), Cached(Attention(causal=True)), examples=10).verdict is Verdict.NO_FAULT


def decays_behind_the_write_of_heads(q: Any, k: Any, v: Any, g: Any) -> Any:
    state, out = np.zeros((len(q), q.shape[2], v.shape[-1]), q.dtype), np.zeros_like(v)
    for t in range(q.shape[1]):
        state = (state + k[:, t, :, None] * v[:, t, None, :]) * np.exp(g)[:, None, None]
        out[:, t] = (q[:, t, None, :] @ state)[:, 0]
    return out


def test_a_wrong_function_is_judged_in_the_order_of_axes_in_which_its_shapes_fit() -> None:
    spec = LinearAttention(feature="identity", normalised=False, gate="head")
    request = requested(spec, dtype="float32", framework="numpy", layout="auto")
    # With as many tokens as heads it would run in both orders.
    convention = definitions.target(decays_behind_the_write_of_heads, request).convention
    assert not [note for note in convention.notes if "(n, h, d)" in note]


@pytest.mark.parametrize("numbers", [(1,), (2,), (3,), (4,), (2, 3), (3, 4)])
def test_norms_of_some_numbers_of_axes(numbers: tuple[int, ...]) -> None:
    axes, (note,) = found(of_axes(*numbers), RMSNorm())
    assert axes == {*numbers}
    assert "determined by trial; other numbers of axes: IndexError" in note


def test_norms_of_any_number_of_axes() -> None:
    assert found(of_axes(1, 2, 3, 4), RMSNorm()) == ({1, 2, 3}, ())
    assert found(of_axes(1, 2), RMSNorm()) == ({1, 2, 3}, ())  # it fails for a batch, which is wrong


@pytest.mark.deep
def test_a_norm_of_some_numbers_of_axes_is_verified_at_these() -> None:
    report = verify(of_axes(3), RMSNorm(), framework="numpy", examples=0)
    assert report.verdict.value == "no fault"
    assert any("x is taken to have 3 axes, determined by trial" in n for n in report.notes)


@pytest.mark.deep
@pytest.mark.parametrize("function", [of_axes(3, axis=1), of_axes(4, axis=1), of_axes(2, 3, axis=1)])
def test_a_norm_over_the_wrong_axis_is_wrong(function: Callable[..., Any]) -> None:
    assert convicts(function, RMSNorm(), framework="numpy", examples=0)


def test_blocks_of_three_axes() -> None:
    def block(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        _, _, _ = x.shape
        return x

    assert found(block, Block(attention=Attention()))[0] == {3}


def step(q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, length: int, least: int = 1) -> Any:
    """Attention of one new token to a cache: the output alone."""
    if len(q) != 1 or q.shape[-1] < least:
        raise IndexError("other sizes")
    keys, values = np.concatenate([k_cache[:length], k]), np.concatenate([v_cache[:length], v])
    scores = q @ keys.T * q.dtype.type(q.shape[-1] ** -0.5)
    weights = np.exp(scores - scores.max())
    return weights / weights.sum() @ values


@pytest.mark.parametrize(
    ("least", "domain"), [(1, Domain(decoding=True)), (16, Domain(decoding=True, min_width=16, max_width=16))]
)
def test_small_calls_keep_to_the_promised_sizes(least: int, domain: Domain) -> None:
    def decode(q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, length: int) -> Any:
        return step(q, k, v, k_cache, v_cache, length, least)

    spec = Cached(Attention(causal=True))
    made = definitions.target(decode, requested(spec, dtype="float32", framework="numpy", domain=domain))
    assert made.right
    assert made.subject.outputs == ("output",)


@pytest.mark.deep
@pytest.mark.parametrize("late", [0, 1])
def test_a_decoding_step_that_gives_the_output_alone(late: int) -> None:
    def decode(q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, length: int) -> Any:
        return step(q, k, v, k_cache, v_cache, max(length - late, 0))

    asked = Options(domain=Domain(decoding=True), examples=20, verdict_alone=late > 0)  # then no cause is asked for
    report = verified(decode, Cached(Attention(causal=True)), asked)
    assert report.verdict.value == ("fault" if late else "no fault")
