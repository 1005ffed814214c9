"""Definitions beside attention, verified end to end: wrong programs are found and named, right ones pass."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import (
    Attention,
    Block,
    Cached,
    Domain,
    Gradient,
    InputError,
    LayerNorm,
    LinearAttention,
    LinearScaling,
    Merge,
    NTKScaling,
    Precision,
    RMSNorm,
    Rotary,
    Softmax,
    Verdict,
    functional,
    verify,
)
from symattn.bounds.called_target import Argument, Convention, Outcome
from symattn.bounds.case_result import Case
from symattn.bounds.inputs import Maker, Sizes
from symattn.bounds.judge import judge
from symattn.programs import definitions
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, requested, verified
from symattn.verification import effort
from symattn.verification.definitions import definition_judge
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.diagnosis import causes
from symattn.verification.rules import by_role
from tests.faults import definitions as programs
from tests.faults.collection.every import chosen
from tests.faults.programs import Program, collected
from tests.refusals import refuses
from tests.verification.naming import convicts

#: Wrong programs of the collection, and how the mistake is named.
COLLECTED = {
    "norms.eps_outside": "ε is added to the standard deviation, outside the root",
    "norms.rms_eps_outside": "ε is added to the root of the mean square, outside the root",
    "norms.unbiased": "the variance has the divisor d − 1",
    "norms.squared_twice": "it divides by (variance + ε)²",
    "norms.without_root": "it divides by the variance, without the root",
    "norms.variance_by_difference":
        "the variance is computed as mean(x²) − mean(x)², which cancels where the mean is large",
    "norms.offset_forgotten": "the gain, stored as an offset from one, is used without the 1",
    "norms.over_tokens": "mean and variance are taken over the tokens",
    "norms.bias_before_gain": "the gain multiplies the bias too",
    "norms.layer_for_rms": "the mean is subtracted (as in LayerNorm)",
    "norms.sum_of_squares": "uses the sum of the squares instead of their mean",
    "norms.other_eps": "ε is 1e-05, expected 1e-06",
    "rotations.other_layout":
        "adjacent columns 2l and 2l + 1 are rotated together, not column l with l + r/2",
    "rotations.backwards": "the rotation is the other way round: angles have the other sign",
    "rotations.slow": "the exponents of the frequencies are l/r, not 2l/r",
    "rotations.from_one": "positions are one too large",
    "rotations.part_frequencies": "the frequencies are those of all columns, not of the ones that are rotated",
    "rotations.bfloat_positions": "positions are rounded to bfloat16",
    "linear.not_divided": "it is not divided by the sum of the weights",
    "linear.not_causal": "later tokens are seen too: the state is that of all tokens",
    "linear.chunk_state_lost": "the state is not carried over from one chunk of 4 tokens to the next",
    "logsums.base_two_returned": "the logarithm has the base 2",
    "logsums.maximum_not_added": "the maximum is not added to the logarithm of the sum",
    "logsums.of_unscaled": "it is of the scores before they are scaled",
    "logsums.over_every_key": "keys that are forbidden are counted",
    "logsums.negative": "lse has the other sign",
    "gradients.keys_scaled_twice": "dK is scaled twice",
    "gradients.without_row_sums": "the sums over the rows, rowsum(P ⊙ dP), are not subtracted",
    "gradients.mask_forgotten": "the mask is left out of the weights that are computed again from the sums",
    "gradients.sign": "the signs of dQ and dK are changed",
    "gradients.groups_first_head":
        "dK and dV are those of the first head of each group alone, not the sum over the group",
}  # fmt: skip
#: In which precision some of them are tried; the others in float32.
_WIDE = ("norms.over_tokens", "norms.layer_for_rms", "rotations.from_one", "logsums.of_unscaled")
OTHER = dict.fromkeys(_WIDE, "float64") | dict.fromkeys(("norms.without_root", "logsums.negative"), "float16")
WRONG = (*programs.WRONG, *collected(COLLECTED, OTHER))
#: Right programs of the collection, tried in each of three precisions.
ALIKE = (
    "norms.layer_norm_welford norms.rms_norm norms.rms_norm_offset rotations.by_tables rotations.part "
    "logsums.both gradients.groups"
)
#: The precisions in which right programs are tried, where they are not these three.
PRECISIONS = {LinearAttention: ("float32", "float16"), Block: ("float64", "float32", "float16")}
RIGHT = [
    pytest.param(case, precision, id=f"{case.name}-{precision}")
    for case in programs.RIGHT
    for precision in PRECISIONS.get(type(case.spec), ("float32", "float16", "bfloat16"))
] + [
    pytest.param(Program(name, entry.program, entry.spec), precision, id=f"{name}-{precision}")
    for name in ALIKE.split()
    for entry in chosen(name)
    for precision in ("float32", "float16", "bfloat16")
]


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize(("case", "precision"), RIGHT)
def test_a_right_program_is_not_accused(case, precision: str) -> None:
    report = verify(case.function, case.spec, precision=precision, examples=2)
    assert report.verdict is Verdict.NO_FAULT, report.faults


@pytest.mark.deep
@pytest.mark.parametrize("case", WRONG, ids=lambda c: c.name)
def test_a_wrong_program_is_found_and_its_mistake_is_named(case) -> None:
    report = verify(case.function, case.spec, precision=case.precision, examples=2)
    assert report.verdict is Verdict.FAULT
    assert [f.cause for f in report.faults] == [case.cause]
    assert report.faults[0].step in case.step.split("|")


@pytest.mark.deep
def test_the_smallest_input_is_shown_with_its_exact_value() -> None:
    def norm(x):
        return x / (np.sqrt((x * x).mean(-1, keepdims=True)) + x.dtype.type(0.5))

    found = verify(norm, RMSNorm(eps=0.25), examples=0).faults[0].counterexample
    assert found is not None
    assert np.size(found.inputs["x"]) == 1
    assert found.exact is not None
    assert float(found.exact.to_float()) == pytest.approx(found.expected)


@pytest.mark.deep
def test_without_a_known_mistake_none_is_named() -> None:
    (fault,) = verify(lambda x, weight: np.sin(RMSNorm()(x, weight)), RMSNorm(), examples=0).faults
    assert (fault.step, fault.cause) == ("norm", None)
    assert "no known mistake explains it" in fault.message


def _padded_with_lse(q: Any, k: Any, v: Any, keep: Any, factor: float = 1.0) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) / np.float32(np.sqrt(q.shape[-1]))
    while keep.ndim < scores.ndim:
        keep = keep[..., None, :]
    scores = np.where(keep, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    output = np.where(total > 0, weights / np.where(total > 0, total, 1), 0) @ v
    return output * np.float32(factor), (np.log(total) + top)[..., 0]


@pytest.mark.deep
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "no fault"), (1.01, "fault")])
def test_valid_keys_of_log_sums_are_those_of_every_item(heads: int, factor: float, verdict: str) -> None:
    """Without heads in the specification all axes in front are batches, each of whose items has keys of its own."""
    function = partial(_padded_with_lse, factor=factor)
    spec = Attention(heads=heads, padding=True, lse=True)
    assert verify(function, spec, examples=4).verdict.value == verdict


def _half_precision_mean(x: Any, weight: Any) -> Any:
    """Squares are added in pairs, these in pairs, …, in float16: an order of additions that has no name."""
    d, total = x.shape[-1], np.square(x).astype(np.float16)
    while total.shape[-1] > 1:
        odd = total[..., :0] if total.shape[-1] % 2 == 0 else total[..., -1:]
        pairs = total[..., 0:-1:2] + total[..., 1::2]
        total = np.concatenate([pairs, odd], axis=-1)
    return x / np.sqrt(total.astype(x.dtype) / x.dtype.type(d) + np.float32(1e-6)) * weight


def _key_decays_by_its_own_gate(q: Any, k: Any, v: Any, g: Any) -> Any:
    """Right within a chunk of 16 tokens; the state of several chunks has keys that decay once too little."""
    q = q * q.dtype.type(q.shape[-1] ** -0.5)
    state = np.zeros((q.shape[-1], v.shape[-1]), q.dtype)
    outputs = []
    for start in range(0, len(q), 16):
        queries, keys, values, gates = (x[start : start + 16] for x in (q, k, v, g))
        total = np.cumsum(gates, axis=0)
        before = np.tri(len(queries), dtype=bool)[:, :, None]
        decay = np.exp(np.where(before, total[:, None] - total[None], -np.inf))
        weights = np.einsum("id,jd,ijd->ij", queries, keys, decay)
        outputs.append(weights @ values + (queries * np.exp(total)) @ state)
        rest = np.exp(total[-1] - total + gates)
        state = np.exp(total[-1])[:, None] * state + (keys * rest).T @ values
    return np.concatenate(outputs)


_GATED = LinearAttention(feature="identity", normalised=False, gate="feature", scale=True)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("function", "definition", "blamed"),
    [(_half_precision_mean, RMSNorm(eps=1e-6), True), (_key_decays_by_its_own_gate, _GATED, False)],
)
def test_a_format_is_blamed_only_if_its_roundings_show_in_a_third_of_the_calls(
    function: Any, definition: Any, blamed: bool
) -> None:
    messages = [fault.message for fault in verify(function, definition).faults]
    assert messages
    assert all(("float16 arithmetic could make" in message) == blamed for message in messages), messages


@pytest.mark.deep
def test_what_fresh_inputs_contradict_is_not_named() -> None:
    """A factor that every input of the table has, and a width that none of them has does not."""

    def twice(x):
        return RMSNorm()(x) * x.dtype.type(3 if x.shape[-1] == 6 else 2)

    (fault,) = verify(twice, RMSNorm(), examples=0).faults
    assert fault.cause is None
    assert "the first failures are consistent with “the output is multiplied by 2”" in fault.message


@pytest.mark.deep
def test_larger_errors_are_sought_from_inputs_at_random() -> None:
    seen: list[float] = []

    def norm(x):
        seen.append(float(np.abs(x).max()))
        return RMSNorm(eps=0.5)(x)

    assert verify(norm, RMSNorm(eps=0.5), examples=2).verdict is Verdict.NO_FAULT
    without = len(seen)
    verify(norm, RMSNorm(eps=0.5), examples=0)
    assert without - (len(seen) - without) > 2  # more than the two inputs at random


@pytest.mark.deep
def test_that_not_every_mistake_was_tried_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work that is counted ends the search, and the report does not say that no known mistake explains it."""
    monkeypatch.setattr(effort, "_EXPLAINING", 0.01)
    monkeypatch.setattr(causes.Search, "witnesses", ())  # on residues it would be seen at once
    (case,) = chosen("norms.offset_forgotten")
    (fault,) = verify(case.program, case.spec, examples=0).faults
    assert fault.cause is None
    assert "no known mistake that was tried explains it" in fault.message


@pytest.mark.deep
@pytest.mark.parametrize("definition", [RMSNorm(eps=0.5), LayerNorm(eps=0.5)])
def test_axes_that_are_refused_are_no_fault_and_narrow_no_sizes(definition: Any) -> None:
    def two_axes(x):
        if x.ndim > 2:
            raise ValueError("two axes at most")
        return definition(x)

    report = verify(two_axes, definition, examples=0)
    assert report.faults == ()
    note = next(note for note in report.notes if note.startswith("It refuses"))
    assert "(1 call)" in note
    assert "two axes at most" in note
    assert "no more inputs with so many axes were tried" in note


@pytest.mark.deep
def test_sizes_that_are_refused_beside_axes_are_read() -> None:
    def some(x):
        if x.ndim > 2 or x.shape[-1] % 4:
            raise ValueError("refused")
        return RMSNorm(eps=0.5)(x)

    report = verify(some, RMSNorm(eps=0.5), examples=0)
    assert report.faults == ()
    assert any("--width-multiple-of 4 promises that no such input occurs" in note for note in report.notes)


@pytest.mark.deep
def test_other_errors_are_told_apart() -> None:
    def keeps(x, weight):
        keeps.before = getattr(keeps, "before", {np.e: None})
        return keeps.before.setdefault(x.shape, RMSNorm(eps=0.5)(x, weight))

    def changes(x):
        x /= np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(0.5))
        return x

    def narrow(x):
        return RMSNorm(eps=0.5)(x).astype(np.float16)

    def fails(x):
        return RMSNorm(eps=0.5)(x) if x.ndim < 3 else x.reshape(-1, 7 * x.size)

    def flat(x):
        return RMSNorm(eps=0.5)(x).reshape(-1)

    told = {f: [(x.step, x.message) for x in verify(f, RMSNorm(eps=0.5), examples=0).faults]
            for f in (keeps, changes, narrow, fails, flat)}  # fmt: skip
    assert told[keeps][0][1].startswith("returns the result of an earlier call")
    assert told[changes] == [("call", "changes its argument x")]
    assert told[narrow] == [("output", "returns float16 for float32 inputs")]
    assert "gives no array" in told[fails][0][1]
    assert "wrong shape" in told[flat][0][1]


def test_what_is_open_is_refused() -> None:
    refuses(verify, lambda x, mode: x, LayerNorm(), says="no value is known for mode")
    refuses(verify, lambda: 0, LayerNorm(), says="no parameter for the input x")
    refuses(verify, lambda x: x, LayerNorm(), call={"axes": 1}, says="no parameter axes")
    refuses(LayerNorm, eps=-1, says="eps")


@pytest.mark.torch
def test_gradients_by_autograd() -> None:
    from torch.nn.functional import scaled_dot_product_attention as attention

    spec = Gradient(Attention(causal=True, alignment="top-left"))
    right = verify(lambda q, k, v: attention(q, k, v, is_causal=True), spec, framework="torch", examples=2)
    assert right.verdict is Verdict.NO_FAULT, right.faults
    assert "autograd" in " ".join(right.notes)
    wrong = verify(lambda q, k, v: attention(q, k, v), spec, framework="torch", examples=2)
    assert wrong.faults[0].cause == "the mask is left out of the backward pass"


@pytest.mark.parametrize("spec", [Gradient(Attention()), Softmax()])
def test_mistakes_that_are_built_later_are_a_sequence(spec: Any) -> None:
    mistakes = next(definitions_of(spec)).mistakes
    assert [m.cause for m in mistakes[:2]] == [m.cause for m in [*mistakes][:2]]
    assert (mistakes[-1].cause, len(mistakes)) == ([*mistakes][-1].cause, len([*mistakes]))


def test_mistakes_of_gradients_are_made_when_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(by_role, "mistakes", lambda *spec: iter(made.append(1) or ()))  # type: ignore[func-returns-value]
    subject = next(definitions_of(Gradient(Attention())))
    assert len(subject.ways) == 5
    assert not made
    assert list(subject.mistakes) == []
    assert made == [1]


@pytest.mark.exhaustive
def test_few_mistakes_are_bounded_where_none_explains_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float64 puts aside what leaves most of an error; to bound a gradient takes a hundred times longer."""
    asked, honest = list[str](), definition_judge.explains

    def counted(subject, precision, judged, mistake, among=None):
        asked.append(mistake.cause)
        return honest(subject, precision, judged, mistake, among)

    def backward(q, k, v, do):
        dq, dk, dv = Gradient(Attention())(do, q=q, k=k, v=v)
        return dq * np.linspace(1, 1.5, dq.shape[-2])[:, None], dk, np.roll(dv, 1, axis=0)

    monkeypatch.setattr(definition_judge, "explains", counted)
    (fault,) = verify(backward, Gradient(Attention()), precision="float64", examples=0).faults
    # The rows of dv are moved, which weights and values of the attention show; nothing explains dq beside them.
    assert (fault.step, fault.cause) == ("values", None)
    assert "wrong in dq, dv, shown in dv" in fault.message
    assert len(asked) < 150


def test_sizes_are_such_as_the_attention_can_take() -> None:
    rotary = Attention(causal=True, position=Rotary(width=4))
    for spec in (Block(attention=rotary), Gradient(rotary), Cached(rotary), replace(rotary, lse=True)):
        subject = next(definitions_of(spec))
        for sizes in subject.shapes:
            more = {x: n if x in subject.kept else n + 5 for x, n in sizes.items()}
            for domain in (Domain(), Domain(max_width=7)):
                d_k = subject.within(more, domain)["d_k"]
                assert d_k >= 4
                assert d_k % 2 == 0


@pytest.mark.deep
@pytest.mark.parametrize("scaling", [NTKScaling(factor=4), LinearScaling(factor=4)])
def test_positions_are_tried_on_as_many_columns_as_have_frequencies(scaling: NTKScaling | LinearScaling) -> None:
    spec, least = Rotary(scaling=scaling), scaling.least
    subject = next(s for s in definitions_of(spec) if s.outputs == ("y",))
    assert min(sizes["f"] for sizes in subject.shapes) == least // 2
    assert not subject.admitted({"x": np.zeros((3, least - 2))}, Domain())
    how = Convention(tuple(Argument(name, name) for name in "qkv"))
    maker = Maker(Attention(position=spec), how, Precision.of("float32"), Domain())
    made = maker.make(Sizes(2, 2, 1, 1), lambda name, shape: np.zeros(shape), np.random.default_rng(0))
    assert made["q"].shape[-1] == least

    def rotated(x: np.ndarray, positions: np.ndarray, factor: float = 4) -> np.ndarray:
        width = x.shape[-1]
        of_ntk = isinstance(scaling, NTKScaling)
        base = 10000.0 * factor ** (width / (width - 2)) if of_ntk else 10000.0
        frequencies = functional.inverse_frequencies(width, base, x) / (1 if of_ntk else factor)
        return functional.rotate(x, *functional.tables(positions, frequencies), "half")

    assert verify(rotated, spec, examples=0).verdict is Verdict.NO_FAULT
    unscaled = verify(lambda x, positions: rotated(x, positions, 1), spec, examples=0)
    assert unscaled.faults[0].cause == "the frequencies are not scaled"


def test_the_base_of_positions_within_an_attention_is_fitted() -> None:
    for spec in (Rotary(), Gradient(Attention(position=Rotary())), Block(attention=Attention(position=Rotary()))):
        families = [family for subject in definitions_of(spec) for family in subject.numbered]
        assert "the angles have the base {}" in [family.words for family in families]


def test_a_leaky_activation_is_a_mistake_with_a_number() -> None:
    spec = Block(attention=Attention(), norm=None, activation="relu")
    subject, rng = next(definitions_of(spec)), np.random.default_rng(4)
    sizes = {"n": 3, "m": 4, "d_k": 2, "d_v": 3, "f": 5}
    inputs = {i.name: rng.standard_normal(subject.shape(i.name, sizes)) for i in subject.inputs}
    (leaky,) = (family for family in subject.numbered if "leaky" in family.words)
    (hidden,) = (step for step in spec.pipeline(inputs) if step.name == "mlp.hidden")
    values = spec.trace(**inputs)
    below = np.minimum(values[hidden.of[0]], 0)
    expected = values["output"] + 0.01 * below @ inputs["mlp.w_down"]
    assert np.allclose(subject.run(leaky.mistake(0.01, "1/100").run, inputs)[0], expected)
    gelu = replace(spec, activation="gelu")
    assert not any("leaky" in family.words for family in next(definitions_of(gelu)).numbered)


def test_a_softmax_has_no_place_for_what_comes_before_scores() -> None:
    for attention in (Attention(position=Rotary()), Attention(score="cosine"), Attention(lse=True)):
        refuses(Softmax, attention, says="Softmax")


@pytest.mark.parametrize("definition", [Softmax, Gradient, Cached])
def test_what_is_no_attention_is_refused_by_its_rule(definition: Callable[[int], object]) -> None:
    with pytest.raises(InputError, match=rf"^{definition.__name__}: attention must be an Attention.*, got 3$"):
        definition(3)


# -- mistakes that are named, of functions that are written here -------------------------------------------------------
def centred(x, eps):
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + x.dtype.type(eps))


def forgets(x, weight, bias):
    y = LayerNorm()(x, weight)
    return y + bias if x.shape[-1] < 16 else y


def attended(block, x, w_q, w_k, w_v, w_o, **mlp):
    return block(x, **{"attention.w_q": w_q, "attention.w_k": w_k, "attention.w_v": w_v, "attention.w_o": w_o}, **mlp)


def layer(block, mlp=True):
    """A block as a function of its weights."""
    if not mlp:
        return lambda x, w_q, w_k, w_v, w_o: attended(block, x, w_q, w_k, w_v, w_o)
    return lambda x, w_q, w_k, w_v, w_o, w1, w2: attended(
        block, x, w_q, w_k, w_v, w_o, **{"mlp.w_up": w1, "mlp.w_down": w2}
    )


def grown(attention):
    return lambda q, k, v, k_cache, v_cache: attention(
        q, np.concatenate([k_cache, k], axis=-2), np.concatenate([v_cache, v], axis=-2)
    )


def mistaken(spec, cause):
    """A function that makes a mistake of a definition."""
    subject = next(definitions_of(spec))
    run = next(m.run for m in (*subject.mistakes, *subject.others) if m.cause == cause)
    return lambda x, **given: run(x=x, **given)


_NATURAL, _BINARY = (np.exp, np.log), (np.exp2, np.log2)
_LOG2 = np.float32(np.log(2))


def merging(exponential, logarithm):
    def merge(out, lse, block_out, block_lse):
        top = np.maximum(lse, block_lse)
        a, b = exponential(lse - top), exponential(block_lse - top)
        total = a + b
        return (out * a[..., None] + block_out * b[..., None]) / total[..., None], top + logarithm(total)

    return merge


def by_sigmoid(out, lse, block_out, block_lse):
    """As rings do, of outputs (b, n, h, d) and log-sum-exps (b, h, n)."""
    gate = np.exp(block_lse - np.logaddexp(lse, block_lse)).swapaxes(-1, -2)[..., None]
    return out - gate * (out - block_out), np.logaddexp(lse, block_lse)


def by_tanh(o1, l1, o2, l2):
    """The logistic function as compilers write it: it loses what is small beside one."""
    return o1 + ((1 + np.tanh((l2 - l1) / 2)) / 2)[..., None] * (o2 - o1), np.logaddexp(l1, l2)


def columns(v_a, s_a, v_b, s_b):
    total = np.logaddexp(s_a, s_b)
    return v_a * np.exp(s_a - total) + v_b * np.exp(s_b - total), total


def first_converted(o1, l1, o2, l2):
    o, lse = merging(*_NATURAL)(o1, l1 * _LOG2, o2, l2)
    return o, lse / _LOG2


def softmax(s, axis=-1, power=np.exp, top=lambda s, axis: s.max(axis, keepdims=True), total=lambda e: e):
    e = power(s - top(s, axis))
    return e / total(e).sum(axis, keepdims=True)


def tiled_softmax(s):
    m, z = np.full((*s.shape[:-1], 1), -np.inf, s.dtype), np.zeros((), s.dtype)
    for i in range(0, s.shape[-1], 16):
        tile, old = s[..., i : i + 16], m
        m = np.maximum(old, tile.max(-1, keepdims=True))
        z = z * np.exp(old - m) + np.exp(tile - m).sum(-1, keepdims=True)
    return np.exp(s - m) / z


def masked_softmax(s, mask):
    return softmax(np.where(mask, s, -np.inf))


def earlier_values(q, k, v):
    phi = lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))  # noqa: E731
    w = phi(q) @ phi(k).swapaxes(-1, -2)
    return np.tril(w, -1) @ v / np.tril(w).sum(-1, keepdims=True)


def unmasked_values(q, k, v, do):
    dq, dk, _ = Gradient(Attention(causal=True))(do=do, q=q, k=k, v=v)
    return dq, dk, softmax(q @ k.T / np.sqrt(q.dtype.type(q.shape[-1]))).T @ do


def masked_late(q, k, v, do):
    """Backward of weights that are masked after the softmax."""
    root = np.sqrt(q.dtype.type(q.shape[-1]))
    p, open_ = softmax(q @ k.T / root), np.tri(len(q), len(k), len(k) - len(q), dtype=q.dtype)
    dp = do @ v.T * open_
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / root
    return ds @ k, ds.T @ q, (p * open_).T @ do


def second_weight(o1, l1, o2, l2):
    gate = 1 / (1 + np.exp2(l1 - l2))[..., None]
    return gate * o1 + gate * o2, np.logaddexp2(l1, l2)


def gated(late=False, inside=1e-5, outside=0, steep=1):
    """A layer with a gated feed-forward layer; ``late``, the activation is that of the product; ε in or outside the
    root; a sigmoid of more than the gate."""

    def run(x, w_q, w_k, w_v, w_o, w1, w2, w3):
        number = x.dtype.type
        rms = lambda x: x / (np.sqrt((x * x).mean(-1, keepdims=True) + number(inside)) + number(outside))  # noqa: E731
        z, root = rms(x), np.sqrt(w_q.shape[-1]).astype(x.dtype)
        x = x + softmax((z @ w_q) @ (z @ w_k).swapaxes(-1, -2) / root) @ (z @ w_v) @ w_o
        z = rms(x)
        hidden = (z @ w3) * (z @ w1)
        gate = hidden if late else z @ w3
        return x + hidden / (1 + np.exp(-number(steep) * gate)) @ w2

    return run


def whole_values(q, k, v, beta):
    """A delta rule whose β scales what is erased alone."""
    state, out = np.zeros((q.shape[-1], v.shape[-1]), q.dtype), []
    for t in range(len(q)):
        state = state + np.outer(k[t], v[t] - beta[t] * (k[t] @ state))
        out.append(q[t] @ state)
    return np.stack(out)


def read_early(q, k, v, beta, part=1.0):
    """A delta rule that reads the state before a token's correction, or part of that one and of the one after it."""
    state, out = np.zeros((q.shape[-1], v.shape[-1]), q.dtype), []
    for t in range(len(q)):
        before = state
        state = state + beta[t] * np.outer(k[t], v[t] - k[t] @ state)
        out.append(q[t] @ (state + q.dtype.type(part) * (before - state)))
    return np.stack(out)


def norm_of_tokens(x, weight, bias, part=1.0):
    """A LayerNorm whose mean is that of the first axis, or of that and the last one."""
    own = x.mean(-1, keepdims=True)
    c = x - x.dtype.type(part) * x.mean(0, keepdims=True) - x.dtype.type(1 - part) * own
    return weight * c / np.sqrt((c * c).mean(-1, keepdims=True) + x.dtype.type(1e-5)) + bias


def of_squared_mean(x, weight, bias):
    return weight * x / np.sqrt(x.mean(-1, keepdims=True) ** 2 + x.dtype.type(1e-5)) + bias


def biased_late(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2, part=1.0):
    """A layer that adds a bias after its activation, or part of it before."""
    x = x + softmax((x @ w_q) @ (x @ w_k).mT / np.sqrt(w_q.shape[-1]).astype(x.dtype)) @ (x @ w_v) @ w_o
    late = x.dtype.type(part) * b1
    return x + (np.maximum(x @ w1 + b1 - late, 0) + late) @ w2 + b2


def log_softmax(s):
    t = s - s.max(-1, keepdims=True)
    return t - np.log(np.exp(t).sum(-1, keepdims=True))


def even_first(x, cos, sin):
    """Rotated pairs of neighbours whose first columns come before the second ones."""
    x_1, x_2 = x[..., ::2], x[..., 1::2]
    return np.concatenate([x_1 * cos - x_2 * sin, x_2 * cos + x_1 * sin], axis=-1)


def added_to_norm(x, w_q, w_k, w_v, w_o, w1, b1, w2, b2):
    """A layer with norms after residuals, of which the second residual comes after its norm."""
    root = np.sqrt(w_q.shape[-1]).astype(x.dtype)
    x = centred(x + softmax((x @ w_q) @ (x @ w_k).mT / root) @ (x @ w_v) @ w_o, 1e-5)
    return x + centred(np.maximum(x @ w1 + b1, 0) @ w2 + b2, 1e-5)


def from_outputs(q, k, v, do):
    """The backward pass, with rowsum(O ⊙ O) in place of rowsum(dO ⊙ O)."""
    c = np.sqrt(q.dtype.type(q.shape[-1]))
    p = softmax(q @ k.mT / c)
    o = p @ v
    ds = p * (do @ v.mT - (o * o).sum(-1, keepdims=True)) / c
    return ds @ k, ds.mT @ q, p.mT @ do


def from_sums(scores, sums, of_scores=False):
    """The backward pass by e^{a s − b L}, L the logarithms of the sums of e^s; a = b = 1 is right. ``of_scores``: the
    gradient of the values is that of dS, not of P."""

    def backward(q, k, v, do):
        c = np.sqrt(q.dtype.type(q.shape[-1]))
        s = q @ k.mT / c
        top = s.max(-1, keepdims=True)
        lse = top + np.log(np.exp(s - top).sum(-1, keepdims=True))
        p = np.exp(q.dtype.type(scores) * s - q.dtype.type(sums) * lse)
        ds = p * (do @ v.mT - (p * (do @ v.mT)).sum(-1, keepdims=True)) / c
        return ds @ k, ds.mT @ q, (ds if of_scores else p).mT @ do

    return backward


_DECIMAL = (lambda x: 10**x, np.log10)
_FREED = "in the norms: the variance has the divisor d − 1"
_TURNED = Block(attention=Attention(causal=True, position=Rotary()))
_OTHER = Block(attention=Attention(causal=True, position=Rotary(layout="interleaved")))
_NEIGHBOURS = "adjacent columns 2l and 2l + 1 are rotated together, not column l with l + r/2"
_CAUSAL, _LINEAR, _NORM = Cached(Attention(causal=True)), LinearAttention(), LayerNorm()
_OTHER_LINEAR = LinearAttention(feature="relu", normalised=False)
_DELTA = LinearAttention(feature="identity", normalised=False, delta=True)
_SWIGLU = Block(attention=Attention(), norm="rms", activation="silu", gated=True)
_PLAIN_LAYER = Block(attention=Attention(), norm=None)
_BARE = Block(attention=Attention(position=Rotary()), norm=None, activation=None)


@pytest.mark.deep
@pytest.mark.parametrize(("late", "agrees"), [(False, True), (True, None)])
def test_a_gated_layer_is_understood_on_residues_and_a_near_miss_is_left_to_floats(late, agrees):
    found = definitions.target(gated(late), requested(_SWIGLU), "layer").semantics(_SWIGLU, 60.0)
    assert (found.agrees, found.epsilon) == (agrees, None)
    assert agrees or "exponents must be linear" in found.reason


#: What is verified, the first wrong step and the cause, the function, and in which precision.
NAMED = [
    (RMSNorm(), "norm", "the output is multiplied by 1.01", lambda x, weight: np.float32(1.01) * RMSNorm()(x, weight)),
    (_NORM, "norm", "ε is 0.003", lambda x, weight, bias: centred(x, 0.003) * weight + bias),
    (_NORM, "norm", "the output has the other sign; and ε is left out", lambda x, weight: -centred(x, 0) * weight),
    (_NORM, "norm", "the bias is left out, where d_k ≥ 16", forgets),
    (_NORM, "norm", "entries of gain are taken from the last column to the first",
     lambda x, weight, bias: LayerNorm()(x, weight[::-1], bias), "float64"),
    (_CAUSAL, "scale", "scores are scaled by 1.7/√d_k",
     lambda q, k, v, k_cache, v_cache: programs.grown(np.float32(1.7) * q, k, v, k_cache, v_cache)),
    (_CAUSAL, "scale", "scores are not scaled", grown(Attention(causal=True, scale=1)), "float64"),
    (Attention(lse=True), "scale", "scores are not scaled", lambda q, k, v: Attention(lse=True, scale=1)(q, k, v),
     "float64"),
    (Gradient(Attention()), "scale", "scores are scaled by 0.3 for every d_k",
     lambda q, k, v, do: Gradient(Attention(scale=0.3))(do=do, q=q, k=k, v=v)),
    (_LINEAR, "score", "the feature map is relu, not elu; and it is not divided by the sum of the weights",
     lambda q, k, v: _OTHER_LINEAR(q, k, v)),
    (_LINEAR, "mask", "a token does not see itself, in the sum of the values alone", earlier_values),
    (Gradient(_CAUSAL.attention), "backward", "the mask is left out of the backward pass, in dV alone",
     unmasked_values),
    (Gradient(_CAUSAL.attention), "backward",
     "it is the gradient of a different attention: weights are masked after the softmax, and not normalised again",
     masked_late),
    (_LINEAR, "normalize", "the output has the other sign", lambda q, k, v: -LinearAttention()(q, k, v), "float64"),
    (_TURNED, "position", _NEIGHBOURS, layer(_OTHER), "float64"),
    (_TURNED, "norm", _FREED, layer(mistaken(_TURNED, _FREED)), "float64"),
    (_BARE, "position", "the angles have the base 500",
     layer(replace(_BARE, attention=Attention(position=Rotary(base=500))), mlp=False)),
    (Merge(), "merge", "log-sums are taken as logarithms of base 10", merging(*_DECIMAL)),
    (Merge(base=2), "merge", "log-sums of base 2 are taken as natural", merging(*_NATURAL)),
    (Merge(), "merge", "natural log-sums are taken as logarithms of base 2", merging(*_BINARY)),
    (Merge(base=2), "merge", "the second of the log-sums of base 2 is taken as natural", first_converted),
    (Merge(), "merge", "the weights are computed from natural log-sums as if they were logarithms of base 2",
     lambda *given: (merging(*_BINARY)(*given)[0], merging(*_NATURAL)(*given)[1])),
    (Merge(base=2), "lse", "the logarithm of the sum is natural, the maximum has the base 2",
     merging(np.exp2, np.log)),
    (Merge(), "lse", "the logarithm of the sum has the base 2, the maximum is natural",
     merging(np.exp, np.log2)),
    (Gradient(Attention()), "backward",
     "weights are computed again from the sums as if these were logarithms of base 2", from_sums(1, _LOG2)),
    (Gradient(Attention()), "backward",
     "weights are computed again from the sums by powers of 2, of natural scores and sums", from_sums(_LOG2, _LOG2)),
    (Merge(), "merge", "the inputs o1 and o2 are exchanged",
     lambda o1, l1, o2, l2: merging(*_NATURAL)(o2, l1, o1, l2)),
    (Merge(base=2), "merge", "uses o1 ⊙ second weight instead of o1 ⊙ first weight", second_weight),
    (_DELTA, "values", "β multiplies only the erased value: new values are added in full", whole_values, "float64"),
    (_SWIGLU, "project", "the activation is that of the product of gate and up", gated(late=True)),
    (_SWIGLU, "norm", "ε is 0.0001", gated(inside=1e-4)),
    (_SWIGLU, "norm", "in the norms: ε is added to the root of the mean square, outside the root",
     gated(inside=0, outside=1e-5)),
    (_SWIGLU, "project", "the activation is x σ(1.702 x), as the quick GELU with 1.702", gated(steep=1.702)),
    (Block(attention=Attention(), order="post"), "norm",
     "the norm of the feed-forward layer stands after it, before its residual, not after its residual", added_to_norm),
    (Gradient(Attention()), "backward", "uses output² instead of do ⊙ output", from_outputs),
    (Gradient(Attention()), "backward", "dV is of scaled dS in place of P", from_sums(1, 1, True)),
    (Rotary(layout="interleaved"), "position",
     "the even columns of entries of the output come first, then the odd ones", even_first),
    (Merge(), "lse", "the maximum is not added to the logarithm of the sum",
     lambda *given: (merging(*_NATURAL)(*given)[0], np.log1p(np.exp(-abs(given[1] - given[3]))))),
    (Merge(), "lse", "the log-sum is not updated: it is the first one",
     lambda *given: (merging(*_NATURAL)(*given)[0], given[1])),
    (RMSNorm(), "norm", "uses mean(x) ⊙ mean(x) instead of mean(x ⊙ x)", of_squared_mean),
    (_NORM, "norm", "uses mean(x; axis 0) instead of mean(x)", norm_of_tokens),
    (_PLAIN_LAYER, "project",
     "uses max(stream after attention · mlp.w_up, 0) + mlp.b_up instead of max(hidden sums, 0)", biased_late),
    (_DELTA, "values", "uses q · state one step earlier instead of q · state", read_early),
    (Softmax(), "exp", "uses 2ˣ instead of eˣ", lambda s: softmax(s, power=np.exp2)),
    (Softmax(), "normalize", "the last key is left out of the sum", lambda s: softmax(s, total=lambda e: e[..., :-1]),
     "float16"),
    (Softmax(), "normalize", "the softmax runs over axis 1, not the last one", lambda s: softmax(s, 1)),
    (Softmax(), "normalize", "logarithms of the weights are used as the weights", log_softmax),
    (Softmax(), "normalize", "1 is added to the sum of e^(s − max s), after the maximum is subtracted",
     lambda s: softmax(s, total=lambda e: np.concatenate([e, np.ones_like(e[..., :1])], -1))),
    (Softmax(), "max", "the largest score is not subtracted: e^s overflows in bfloat16 for s above 88.72, "
     "and every e^s vanishes below -87.34", lambda s: softmax(s, top=lambda s, _: s.dtype.type(0)),
     "bfloat16"),
    (Softmax(), "max", "the maximum of the whole array is subtracted, not that of each row: every exponential of a row "
     "more than 103.3 below it vanishes in float32", lambda s: softmax(s, top=lambda s, _: s.max())),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize(
    ("definition", "function"),
    [(_NORM, norm_of_tokens), (_PLAIN_LAYER, biased_late), (_DELTA, read_early)],
)
def test_no_operation_is_blamed_that_is_done_otherwise_in_part_alone(definition, function) -> None:
    parameters = list(inspect.signature(function).parameters.values())[:-1]
    half = lambda *given: function(*given, part=0.5)  # noqa: E731
    half.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    (fault,) = verify(half, definition, framework="numpy", examples=0).faults
    assert fault.cause is None


def first_keys(keys):
    """A layer without norm or activation in which only the first keys are seen."""

    def run(x, w_q, w_k, w_v, w_o):
        scores = (x @ w_q) @ (x @ w_k).swapaxes(-1, -2) / np.sqrt(w_q.shape[-1]).astype(x.dtype)
        return x + softmax(scores[..., :keys]) @ (x @ w_v)[..., :keys, :] @ w_o

    return run


@pytest.mark.deep
@pytest.mark.parametrize(("keys", "verdict"), [(16, "fault"), (64, "fault"), (10**9, "no fault")])
def test_layers_are_tried_with_more_tokens_than_common_tiles_have(keys, verdict) -> None:
    plain = Block(attention=Attention(), norm=None, activation=None)
    asked = Options(framework="numpy", verdict_alone=verdict == "fault")  # then no cause is asked for
    assert verified(first_keys(keys), plain, asked).verdict.value == verdict


def test_no_row_is_screened_by_the_size_of_a_larger_one_in_half_precision() -> None:
    near = np.array([[3.0, 1.0], [0.02, 0.01]])
    subject = Definition("", "", (Input("x", "n d"),), ("output",), (same,), (), (), {})
    for dtype in ("bfloat16", "float16"):
        (screened,) = subject.screened(Precision.of(dtype), {"x": near})
        error = screened.allowed
        assert (error[1] < 0.02).all(), "a row of zeros is not within it"
        assert error[0, 0] > error[1, 0]


@pytest.mark.deep
def test_many_keys_are_tried_for_few_queries_and_the_reverse() -> None:
    tried = set()

    def backward(q, k, v, do):
        tried.add((q.shape[-2] > 64, k.shape[-2] > 64))
        return Gradient(Attention())(do=do, q=q, k=k, v=v)

    assert verify(backward, Gradient(Attention()), framework="numpy", examples=0).verdict.value == "no fault"
    assert tried == {(False, False), (False, True), (True, False), (True, True)}


@pytest.mark.deep
@pytest.mark.parametrize("columns", [16, 64])
def test_rows_are_tried_that_are_wider_than_common_tiles(columns) -> None:
    def merge(o1, l1, o2, l2):
        o, lse = merging(np.exp, np.log)(o1, l1, o2, l2)
        return np.concatenate([o[..., :columns], o2[..., columns:]], axis=-1), lse

    assert convicts(merge, Merge(), framework="numpy")


@pytest.mark.deep
def test_pairs_are_rotated_in_rows_that_are_wider_than_common_tiles() -> None:
    def rotate(x, cos, sin):
        first, second = np.split(x, 2, axis=-1)
        turned = np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
        return turned if x.shape[-1] <= 64 else x

    assert convicts(rotate, Rotary(), framework="numpy")


@pytest.mark.deep
@pytest.mark.parametrize("named", NAMED, ids=lambda named: f"{type(named[0]).__name__}: {named[2]}")
def test_the_mistake_of_a_function_is_named(named) -> None:
    definition, step, cause, function, *precision = named
    told = dict(zip(["precision"], precision, strict=False))
    with np.errstate(all="ignore"):
        (fault,) = verify(function, definition, framework="numpy", examples=0, **told).faults
    assert (fault.step, fault.cause) == (step, cause)


@pytest.mark.exhaustive
def test_sums_of_a_base_close_to_2_are_not_called_of_base_2() -> None:
    assert verify(from_sums(1, 1), Gradient(Attention()), examples=0).verdict is Verdict.NO_FAULT
    (fault,) = verify(from_sums(1, 0.7), Gradient(Attention()), examples=0).faults
    assert "base 2" not in (fault.cause or "")


MERGED = dict(maximum=merging(*_NATURAL), binary=merging(*_BINARY), sigmoid=by_sigmoid, tanh=by_tanh, columns=columns)


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", MERGED)
def test_a_right_merge_is_not_accused(name: str, precision: str) -> None:
    report = verify(MERGED[name], Merge(base=2 if name == "binary" else None), precision=precision, examples=2)
    assert report.verdict is Verdict.NO_FAULT


@pytest.mark.deep
@pytest.mark.parametrize("precision", ["float16", "bfloat16", "float32", "float64"])
def test_a_right_softmax_is_not_accused(precision: str) -> None:
    asked = ((softmax, Attention()), (tiled_softmax, Attention()), (masked_softmax, Attention(mask="boolean")))
    for function, attention in asked:
        report = verify(function, Softmax(attention), precision=precision, framework="numpy", examples=2)
        assert report.verdict is Verdict.NO_FAULT, (function, report.faults)


def rough(x: Any) -> Any:
    """The same numbers in a way that loses digits."""
    return x + 16 - 16


def undecided(x: Any) -> Any:
    """The same numbers in a way of which a comparison depends on rounding."""
    xp = x.__array_namespace__()
    return xp.where(rough(x) == x, x, 2 * x)


def same(x: Any) -> Any:
    """The numbers as they are, a way without any rounding."""
    return x


#: What the second of three numbers that are 1 is, the finding, and whether that is open.
GIVEN = {
    "by the exact way": (1.0, None, False),
    "by the rough way": (1.02, None, False),
    "beyond both": (1.5, None, True),
    "no number": (np.nan, None, True),
}


def test_a_way_that_depends_on_rounding_makes_nothing_legal() -> None:
    """What other ways allow is legal, and what they refuse is undecided: no fault, and nothing that was shown."""
    precision, case = Precision.of("bfloat16"), Case("", "", {"x": np.ones(3)})
    for ways in ((same, undecided, rough), (undecided, same, rough)):
        subject = Definition("", "", (Input("x", "n"),), ("output",), ways, (), (), {})
        for words, (got, finding, open_) in GIVEN.items():
            outcome = Outcome(output=np.array([1.0, got, 1.0]), dtype="bfloat16", shape=(3,))
            found = judge(subject.legal(precision, case.inputs), precision, case, outcome, whole=True)
            assert (found.finding, found.undecided, found.decisive) == (finding, open_, not open_), words


def test_what_every_way_refuses_is_a_fault() -> None:
    subject = Definition("", "", (Input("x", "n"),), ("output",), (same, rough), (), (), {})
    precision, case = Precision.of("bfloat16"), Case("", "", {"x": np.ones(3)})
    outcome = Outcome(output=np.array([1.0, 1.5, 1.0]), dtype="bfloat16", shape=(3,))
    found = judge(subject.legal(precision, case.inputs), precision, case, outcome)
    assert (found.finding, found.undecided) == ("values", False)


@pytest.mark.deep
def test_every_way_of_log_sums_goes_on_where_scores_are_no_numbers() -> None:
    """A query of zeros has no cosine: its scores are 0/0, which none of the ways may stop at."""
    definition, precision = next(definitions_of(Attention(lse=True, score="cosine"))), Precision.of("float32")
    inputs = {"q": np.array([[0.0, 0.0], [1.0, 2.0]]), "k": np.eye(2), "v": np.eye(2)}
    ways = definition.legal(precision, inputs)
    for way in ways.ways:
        for output in way():
            assert np.isfinite(output.near[1]).all()
    # Code that bounds the length from below has numbers there.
    w = np.exp(np.array([1.0, 2.0]) / np.sqrt(5))
    right = np.array([[0.5, 0.5], w / w.sum()]), np.log([2.0, w.sum()])
    for row in (right[0][0], np.full(2, np.nan)):
        output = np.array([row, right[0][1]]), np.array([row[0], right[1][1]])
        case = Case("", "", inputs)
        outcome = Outcome(output=output[0], others=output[1:], dtype="float64", shape=(2, 2))
        assert judge(ways, precision, case, outcome).finding is None
        wrong = replace(outcome, output=output[0] + [[0.0], [0.1]])
        assert judge(ways, precision, case, wrong).finding == "values"
