"""Definitions that state their steps: a call runs these, and each can be wrong by the rule of its role."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from symattn import (
    Attention,
    Cached,
    Differential,
    Gradient,
    InputError,
    LayerNorm,
    LinearAttention,
    Merge,
    NTKScaling,
    Precision,
    RMSNorm,
    Rotary,
    YarnScaling,
    functional,
    kind,
    printing,
    verify,
)
from symattn.attention.stated_flow import StatedFlow
from symattn.bounds.reference import Variant
from symattn.programs.specifications import definitions_of
from symattn.verification.definitions.definition_mistakes import both
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.linear_mistakes import RULES_OF_RECURRENCES
from symattn.verification.definitions.stated_definition import define_in_steps
from symattn.verification.rules import by_role
from tests.refusals import WITHOUT_RESULT
from tests.steps import BLAMED

Array = Any
SPECS: tuple[Any, ...] = (
    LayerNorm(), LayerNorm(one_plus=True, residual="added"), RMSNorm(one_plus=True), RMSNorm(residual="returned"),
    Merge(), Merge(base=2),
)  # fmt: skip


def drawn(spec: StatedFlow) -> dict[str, Array]:
    """All inputs of a small call, as the steps take them: log-sums are columns."""
    subject = next(definitions_of(spec))
    rng = np.random.default_rng(3)
    found = {i.name: rng.standard_normal(subject.shape(i.name, {"n": 5, "d": 4})) for i in subject.inputs}
    return {name: a[:, None] if name in ("l1", "l2") else a for name, a in found.items()}


def outputs(run: Any, inputs: dict[str, Array]) -> list[Array]:
    found = run(**inputs)
    return [np.asarray(y) for y in (found if isinstance(found, tuple) else (found,))]


def differ(one: list[Array], other: list[Array]) -> bool:
    return not all(a.shape == b.shape and np.allclose(a, b, rtol=1e-13) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_a_call_returns_what_the_steps_compute(spec: Any) -> None:
    inputs = drawn(spec)
    values = spec.trace(**inputs)
    passed = {name: a[..., 0] if name in ("l1", "l2") else a for name, a in inputs.items()}
    for got, name in zip(outputs(spec, passed), spec.returned, strict=True):
        assert np.allclose(got, values[name].reshape(got.shape), rtol=1e-13)
    # On another kind of array the steps are the same.
    exact = {name: kind("ball").lift(a) for name, a in inputs.items()}
    assert list(spec.trace(**exact)) == list(values)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_formulas_have_the_letters_of_what_the_step_takes(spec: Any) -> None:
    inputs = drawn(spec)
    for step, formula in zip(spec.pipeline(inputs), spec.write_formulas(inputs), strict=True):
        left, right = formula.split(" = ")
        letters = {name: printing.text(printing.formula(typed)) for name, typed in spec.letters.items()}
        assert left == letters[step.name]
        assert all(letters[name] in right for name in step.of if name in inputs or name in spec.computed)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_every_step_can_be_wrong_by_the_rule_of_its_role(spec: Any) -> None:
    inputs = drawn(spec)
    right, changed = outputs(spec.return_run, inputs), set[str]()
    for mistake in by_role.mistakes(spec):
        assert mistake.way.steps or mistake.way.reads, mistake.cause
        if mistake.exact:
            assert differ(outputs(mistake.way, inputs), right), mistake.cause
        changed |= mistake.way.steps.keys()
    ruled = [step for step in spec.pipeline(inputs) if step.role in by_role.RULES]
    # A rule may change what its step takes, as that of a merge changes weights.
    assert {step.name for step in ruled} <= changed <= {name for step in ruled for name in (step.name, *step.of)}


ROTARY = (
    Rotary(), Rotary(width=4, layout="interleaved"), Rotary(scaling=YarnScaling(factor=4, length=64)),
    Rotary(scaling=NTKScaling(factor=4, length=64)), Rotary(given="positions", sections=(2, 1, 1)),
)  # fmt: skip


def steps_of(rotary: Rotary, returned: tuple[str, ...]) -> Any:
    """The steps that a rotation of these vectors states."""
    return next(subject for subject in definitions_of(rotary) if subject.outputs == returned).flow.spec  # type: ignore[attr-defined]


@pytest.mark.parametrize("rotary", ROTARY, ids=repr)
def test_every_step_to_a_rotation_can_be_wrong(rotary: Rotary) -> None:
    spec = steps_of(rotary, ("q", "k"))
    rng, rows = np.random.default_rng(3), len(rotary.sections or ())
    q, k = rng.standard_normal((2, 3, 10 if rotary.width else 32 if rotary.scaling else 8))
    # Far positions, none of which a narrow format holds, and some within the length that a model was trained on.
    every = (np.array([1, 130, 4099]), np.array([1, 5, 55]))
    drawn_inputs = [
        {"q": q, "k": k, "positions": np.stack([p + 7 * r for r in range(rows)]) if rows else p} for p in every
    ]
    changed = set[str]()
    for mistake in (*by_role.mistakes(spec), *by_role.further_mistakes(spec)):
        way = mistake.way
        assert way.steps or way.reads, mistake.cause
        assert any(differ(outputs(way, x), outputs(spec.return_run, x)) for x in drawn_inputs), mistake.cause
        changed |= way.steps.keys()
    of_factor = {"cosines", "sines"} if rotary.scaling else set()
    assert changed == {"places", "frequencies", "angles", "q_rotated", "k_rotated"} | of_factor


def test_tables_that_are_given_leave_the_steps_to_them_out() -> None:
    spec = steps_of(Rotary(), ("y",))
    assert spec.write_formulas(["x", "cos", "sin"]) == ["X′ = rotate(X, C′, S′)"]
    assert spec.write_formulas(["x"])[1:3] == ["ω = 10000^(−2ℓ/columns(X))", "Θ = pω"]


def _rotate_halves(x: Array, angles: Array) -> Array:
    a, b = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


@pytest.mark.deep
def test_a_wrong_table_of_one_array_is_named_and_its_steps_are_shown() -> None:
    def late_keys(q: Array, k: Array) -> tuple[Array, Array]:
        n, d = q.shape
        places, frequencies = np.arange(n)[:, None], 10000.0 ** (-np.arange(0, d, 2) / d)
        return _rotate_halves(q, places * frequencies), _rotate_halves(k, (places + 1) * frequencies)

    (fault,) = verify(late_keys, Rotary()).faults
    assert fault.cause == "in the keys alone: positions are one too large"
    assert fault.counterexample is not None
    assert fault.counterexample.steps[-1][0] == "k_rotated"


_SUMS = {"feature": "identity", "normalised": False}
RECURRENCES = (
    LinearAttention(), LinearAttention(feature="exp", values_per_key=2, gate="token"), LinearAttention.named("gla"),
    LinearAttention.named("gated-deltanet"), LinearAttention.named("mamba2"), LinearAttention.named("rwkv6"),
    LinearAttention.named("rwkv7"), LinearAttention(**_SUMS, gate="token", state="vk", scale=True),
    LinearAttention(**_SUMS, gate="token", gate_form="softplus", delta=True, beta_form="sigmoid"),
    LinearAttention(**_SUMS, gate="head", step=True, step_form="softplus", step_most=0.5),
)  # fmt: skip


def drawn_rows(spec: LinearAttention) -> tuple[dict[str, Array], dict[str, Array]]:
    """All inputs of a call, as a user passes them, and as the steps take them."""
    subject = next(definitions_of(spec))
    rng, names = np.random.default_rng(3), [i.name for i in subject.inputs]
    sizes = {"h": 3, "n": 6, "m": 6, "d_k": 3, "d_v": 3}
    passed = subject.draw(names, sizes, lambda name, shape: rng.standard_normal(shape), Precision.of("float32"), rng)
    rows: dict[str, Array] = {}

    def keep(**arrays: Array) -> Array:
        rows.update(arrays)
        return arrays["v"]

    subject.flow.laid(keep)(**passed)  # type: ignore[attr-defined]
    return passed, rows


@pytest.mark.parametrize("spec", RECURRENCES, ids=repr)
def test_each_role_of_a_recurrence_can_be_wrong(spec: LinearAttention) -> None:
    passed, rows = drawn_rows(spec)
    values = spec.trace(**rows)
    assert np.allclose(outputs(spec, passed)[0], values["output"], rtol=1e-5)
    right, changed = outputs(spec.return_run, rows), set[str]()
    for mistake in by_role.mistakes(spec, RULES_OF_RECURRENCES):
        assert mistake.way.steps or mistake.way.reads, mistake.cause
        # Arrays without heads have no other heads, and chunks of more tokens than there are are right.
        with np.errstate(all="ignore"), suppress(*WITHOUT_RESULT):
            if differ(outputs(mistake.way, rows), right):
                changed |= mistake.way.steps.keys()
    letters = {name: printing.text(printing.formula(typed)) for name, typed in spec.letters.items()}
    for step, formula in zip(spec.pipeline(rows), spec.write_formulas(rows), strict=True):
        assert formula.split(" = ")[0] == letters[step.name]
        if step.name not in changed:
            # β and Δ that are passed as such, and an erasure, are wrong by changes of inputs and sums.
            assert step.role in ("mixed", "betas", "steps", "erasure", "written"), step


def name_outputs(spec: LinearAttention, rows: dict[str, Array], output: Array) -> list[str]:
    """The mistakes of a recurrence that give this output, in words."""
    with np.errstate(all="ignore"):
        wrong = [
            (mistake.cause, mistake.run(**rows))
            for mistake in by_role.mistakes(spec, RULES_OF_RECURRENCES)
            if "heads" not in mistake.cause
        ]
    return [cause for cause, given in wrong if np.allclose(given, output, rtol=1e-4, atol=1e-6)]


@pytest.mark.parametrize(("name", "token", "cause"), [
    ("gla", lambda state, a, q, k, v: (a * state + (1 - a) * k * v,) * 2,
     "what a token adds is multiplied by 1 − e^g, as in a moving average"),
    ("gla", lambda state, a, q, k, v: (a * state + k * v, a * (a * state + k * v)),
     "the state that a token reads decays by the token's own gate a second time"),
])  # fmt: skip
def test_a_state_that_decays_wrongly_is_named(name: str, token: Any, cause: str) -> None:
    spec = LinearAttention.named(name)
    _, rows = drawn_rows(spec)
    q, k, v, a = rows["q"] / np.sqrt(3), rows["k"], rows["v"], np.exp(rows["g"])
    state, output = np.zeros((3, 3)), []
    for t in range(len(q)):
        state, seen = token(state, a[t][:, None], q[t], k[t][:, None], v[t][None])
        output.append(q[t] @ seen)
    assert name_outputs(spec, rows, np.stack(output)) == [cause]


@pytest.mark.parametrize(("write", "cause"), [
    (lambda a, s, k, v, b: a * (s + b * k * (v - k.T @ s)), "the state decays after it is corrected, not before"),
    (lambda a, s, k, v, b: a * s + b * k * (v - b * (k.T @ (a * s))),
     "β multiplies the erased value twice: β (v − β k S) is added to the state"),
])  # fmt: skip
def test_a_wrong_delta_rule_is_named(write: Any, cause: str) -> None:
    spec = LinearAttention(**_SUMS, gate="token", delta=True)
    _, rows = drawn_rows(spec)
    state, output = np.zeros((3, 3)), []
    for q, k, v, g, beta in zip(*(rows[x] for x in ("q", "k", "v", "g", "beta")), strict=True):
        state = write(np.exp(g), state, k[:, None], v[None], beta)
        output.append(q @ state)
    assert name_outputs(spec, rows, np.stack(output)) == [cause]


@pytest.mark.deep
def test_the_steps_of_a_wrong_recurrence_are_shown() -> None:
    def scaled(q: Array, k: Array, v: Array, g: Array) -> Array:
        spec = LinearAttention.named("gla")
        return spec(q / np.float32(np.sqrt(q.shape[-1])), k, v, g=g)

    (fault,) = verify(scaled, LinearAttention.named("gla")).faults
    assert fault.cause == "queries are scaled by 1/d_k"
    assert fault.counterexample is not None
    wrong = [name for name, right, other in fault.counterexample.steps if right != other]
    assert wrong[0] == "q_scaled"
    assert not {"sums", "erasure"} & {name for name, _, _ in fault.counterexample.steps}


def test_optional_inputs_leave_their_steps_out() -> None:
    spec, x = RMSNorm(one_plus=True), np.array([[3.0, 4.0]])
    assert [step.name for step in spec.pipeline(["x"])] == ["y"]
    assert [step.name for step in spec.pipeline(["x", "gain"])] == ["scale", "y"]
    assert np.allclose(spec(x), spec(x, np.zeros(2)))


def test_mistakes_in_two_steps_are_made_at_once_and_in_one_step_are_not() -> None:
    spec = RMSNorm(residual="added")
    of = {mistake.cause: mistake for mistake in by_role.mistakes(spec)}
    first, second = of["the residual is subtracted"], of["ε is left out"]
    joined = both(first, second, lambda other: ())
    assert joined is not None
    assert joined.cause == "the residual is subtracted; and ε is left out"
    x, r = np.random.default_rng(0).standard_normal((2, 3, 4))
    assert np.allclose(joined.run(x=x, residual=r), functional.rms_norm(x - r))
    assert both(second, of["uses the sum of the squares instead of their mean"], lambda other: ()) is None


@dataclass(frozen=True, kw_only=True, repr=False)
class Lerp(StatedFlow):
    """x + t (y − x), of which no rule knows the role of its first step."""

    letters: ClassVar[Any] = {"x": "X", "y": "Y", "t": "t", "change": "D", "z": "Z"}
    returned: ClassVar[Any] = ("z",)

    def state_steps(self, names: frozenset[str]) -> Iterator[Any]:
        of = ("x", "y", "t")
        run = lambda x, y, t: t * (y - x)  # noqa: E731
        yield self.state_step("change", run, "@2 ⊙ (@1 − @0)", of, role="share", blames="gate")
        run = lambda x, change: x + change  # noqa: E731
        yield self.state_step("z", run, "@0 + @1", ("x", "change"), role="sum", blames="residual")

    def __call__(self, x: Array, y: Array, t: Array) -> Array:
        return self.return_run(x=x, y=y, t=t)


def test_a_described_field_of_a_definition_refuses_what_it_does_not_permit() -> None:
    assert [LinearAttention(values_per_key=number).values_per_key for number in (1, 7)] == [1, 7]
    for number in (0, True, 1.5, "4"):
        with pytest.raises(
            InputError, match=r"^LinearAttention: values_per_key must be an integer of at least 1, got "
        ):
            LinearAttention(values_per_key=number)  # type: ignore[arg-type]


def lerp_subject(spec: Lerp) -> Any:
    inputs = (Input("x", "n d"), Input("y", "n d"), Input("t", "n d"))
    shapes = ({"n": 2, "d": 3}, {"n": 4, "d": 1}, {"n": 3, "d": 9})
    return define_in_steps(spec, "gate", inputs, shapes)


def test_a_definition_of_a_stranger_gets_mistakes_words_and_steps() -> None:
    subject = lerp_subject(Lerp())
    causes = {(mistake.step, mistake.cause) for mistake in subject.mistakes}
    assert causes == {("residual", "the change is not added"), ("residual", "the change is subtracted")}
    computed = {mistake.cause for mistake in subject.flow.changes_of_arrays()}
    assert any("entries of the change" in cause for cause in computed)
    assert not any("entries of z" in cause for cause in computed)


@pytest.mark.parametrize("word", ["windows", "", "scores"])
def test_a_step_that_no_report_names_is_refused_as_it_is_stated(word: str) -> None:
    refused = re.escape(f"Lerp: the step 'change' blames {word!r}, which is none of call, project, ")
    with pytest.raises(InputError, match=refused):
        Lerp().state_step("change", lambda x: x, "@0", ("x",), role="share", blames=word)
    near = "did you mean score?" if word == "scores" else "lse, backward"
    for step, of, whose in ((word, "gate", "the definition"), ("gate", word or "windows", "the input 't'")):
        inputs = (Input("x", "n d"), Input("y", "n d"), Input("t", "n d", step=of))
        with pytest.raises(InputError, match=f"Lerp: {whose} blames .*{re.escape(near)}"):
            define_in_steps(Lerp(), step, inputs, ({"n": 2, "d": 3},))


@pytest.mark.parametrize("word", BLAMED)
def test_every_step_of_reports_can_be_stated(word: str) -> None:
    assert Lerp().state_step("change", lambda x: x, "@0", ("x",), role="share", blames=word).blames == word


def test_both_definitions_with_log_sums_have_the_mistakes_of_one_rule() -> None:
    rule = {
        "the maximum is not added to the logarithm of the sum",
        "the maximum is subtracted from the logarithm of the sum, not added",
        "it is the maximum alone, without the logarithm of the sum",
        "it is the sum, without its logarithm",
        "the maximum is added to the sum, without its logarithm",
        "it is the logarithm of the mean, not of the sum",
    }
    own = {None: "the logarithm has the base 2", 2: "the logarithm is natural, not of the base 2"}
    for base in (None, 2):
        of_merge = {mistake.cause for mistake in by_role.mistakes(Merge(base=base))}
        of_attention = {mistake.cause for mistake in next(definitions_of(Attention(lse=True, base=base))).mistakes}
        assert {*rule, own[base]} <= of_merge & of_attention


@pytest.mark.deep
def test_a_merge_is_named_by_the_rule_of_log_sums() -> None:
    def merge(o1: Array, l1: Array, o2: Array, l2: Array) -> tuple[Array, Array]:
        top = np.maximum(l1, l2)
        w1, w2 = np.exp(l1 - top), np.exp(l2 - top)
        return (o1 * w1[..., None] + o2 * w2[..., None]) / (w1 + w2)[..., None], np.log(w1 + w2) - top

    found = verify(merge, Merge(), examples=0)
    cause = "the maximum is subtracted from the logarithm of the sum, not added"
    assert [(fault.step, fault.cause) for fault in found.faults] == [("lse", cause)]


@pytest.mark.deep
def test_a_sum_that_is_returned_is_named_where_it_is_wrong() -> None:
    def norm(x: Array, residual: Array, gain: Array) -> tuple[Array, Array]:
        s = x + residual
        return s / np.sqrt((s * s).mean(axis=-1, keepdims=True) + np.float32(1e-5)) * gain, x

    found = verify(norm, RMSNorm(residual="returned"))
    assert [(fault.step, fault.cause) for fault in found.faults] == [("residual", "what is returned as the sum is x")]


@pytest.mark.deep
def test_a_report_shows_the_steps_up_to_the_wrong_entry() -> None:
    def norm(x: Array, residual: Array, gain: Array) -> Array:
        s = x - residual
        return s / np.sqrt((s * s).mean(axis=-1, keepdims=True) + np.float32(1e-5)) * gain

    (fault,) = verify(norm, RMSNorm(residual="added"), examples=0).faults
    assert fault.counterexample is not None
    (total, right, wrong), (y, *_) = fault.counterexample.steps
    assert (total, y) == ("total", "y")
    assert float(right) == -float(wrong) != 0


@pytest.mark.deep
def test_no_steps_are_shown_of_a_mistake_that_changes_none() -> None:
    def norm(x: Array, gain: Array) -> Array:
        return -x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-5)) * gain

    (fault,) = verify(norm, RMSNorm(), examples=0).faults
    assert fault.cause == "the output has the other sign"
    assert fault.counterexample is not None
    assert fault.counterexample.steps == ()


def _without_maximum(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    s = q @ k.T / np.sqrt(q.dtype.type(q.shape[-1]))
    top = s.max(axis=-1, keepdims=True)
    e = np.exp(s - top)
    total = e.sum(axis=-1, keepdims=True)
    return e / total @ v, np.log(total)[:, 0]


@pytest.mark.deep
def test_reports_show_the_steps_up_to_a_wrong_log_sum() -> None:
    (fault,) = verify(_without_maximum, Attention(lse=True), layout="nd").faults
    assert fault.step == "lse"
    steps = {name: (right, wrong) for name, right, wrong in fault.counterexample.steps}
    assert [name for name, (right, wrong) in steps.items() if right != wrong] == ["lse"]
    # One number for the wrong row, however many rows there are.
    assert len(steps["lse"][0].split()) == 1


@pytest.mark.parametrize(
    "spec", [Attention(lse=True, causal=True, sink="given"), Attention(lse=True, base=2, bias=True)]
)
def test_mistakes_of_log_sums_are_changes_of_stated_steps(spec: Attention) -> None:
    subject = next(definitions_of(spec))
    rng = np.random.default_rng(5)
    sizes = {"n_q": 2, "n_k": 3, "d_k": 2, "d_v": 2}
    inputs = {i.name: rng.standard_normal(subject.shape(i.name, sizes)) for i in subject.inputs}
    right = outputs(subject.ways[0], inputs)
    assert subject.mistakes
    for mistake in subject.mistakes:
        assert set(mistake.run.steps) == {"lse"}
    shown = [m for m in subject.mistakes if "tile" not in m.cause and "scaled twice" not in m.cause]
    changed = [differ(outputs(m.run, inputs), right) for m in shown]
    assert sum(changed) > len(changed) / 2


def _list_runs(subject: Definition) -> list[Any]:
    """Return the ways of a definition, and some of its mistakes of each kind."""
    assert subject.inner is not None
    assert subject.inner.wrong is not None
    in_attention = Variant(steps={"scaled": lambda spec, arrays: arrays["scores"]})
    numbered = [family.mistake(2.0, "2") for family in subject.numbered[:3]]
    wrong = [*list(subject.mistakes)[::5], *list(subject.others)[::25], *numbered]
    return [*subject.ways, *subject.recorded, *(m.run for m in wrong), subject.inner.wrong.run(in_attention)]


def _run_or_refuse(run: Any, inputs: dict[str, Array]) -> list[Array] | None:
    """Return the outputs; None for a mistake that has none of these sizes."""
    try:
        with np.errstate(all="ignore"):
            return outputs(run, inputs)
    except WITHOUT_RESULT:
        return None


@pytest.mark.parametrize(
    "spec",
    [Attention(lse=True, causal=True), Differential(factor=0.5), Cached(Attention(causal=True)), Gradient(Attention())],
)
def test_ways_and_mistakes_take_arrays_as_they_are_passed(spec: Any) -> None:
    heads_first, tokens_first = (next(definitions_of(spec, layout)) for layout in ("bhnd", "bnhd"))
    sizes = {"b": 1, "h": 3, "n_q": 2, "n_k": 4, "n": 2, "m": 4, "d_k": 2, "d_v": 2}
    rng = np.random.default_rng(5)
    passed = {i.name: rng.integers(1, 9, heads_first.shape(i.name, sizes)) / 4 for i in heads_first.inputs}
    # Two of four slots of a cache are filled.
    passed |= {"length": np.asarray(2)} if "length" in passed else {}
    moved = {n: np.moveaxis(a, 1, 2) if a.ndim == 4 else a for n, a in passed.items()}
    compared = 0
    for one, other in zip(_list_runs(heads_first), _list_runs(tokens_first), strict=True):
        right, found = _run_or_refuse(one, passed), _run_or_refuse(other, moved)
        assert (right is None) == (found is None)
        for x, y in zip(right or (), found or (), strict=True):
            assert np.allclose(x, np.moveaxis(y, 1, 2) if y.ndim == 4 else y, equal_nan=True)
        compared += right is not None
    assert compared > 10


@pytest.mark.deep
def test_reports_show_no_row_of_a_key_at_the_place_of_a_query() -> None:
    def with_normed_keys(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        q, k = (x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6)) for x in (q, k))
        return _without_maximum(q, k, v)

    (fault,) = verify(with_normed_keys, Attention(lse=True, qk_norm="rms", eps=1e-6), layout="nd").faults
    assert fault.step == "lse"
    assert [name for name, _, _ in fault.counterexample.steps] == ["q_normed", "scores", "scaled", "lse"]


@pytest.mark.parametrize("layout", ["nd", "bhnd", "bnhd"])
@pytest.mark.parametrize(
    "spec",
    [Attention(lse=True, qk_norm="rms"), Cached(Attention(causal=True, position=Rotary())), Differential(factor=0.5),
     LinearAttention(feature="identity", normalised=False, gate="token", delta=True), Gradient(Attention())],
)  # fmt: skip
def test_the_stated_axes_are_those_of_the_arrays(spec: Any, layout: Any) -> None:
    """Of every array that has tokens of queries on an axis, this one has that length, and no other axis."""
    subject = next(definitions_of(spec, layout))
    flow = subject.flow
    axes = flow.spec.list_axes({i.name: i.shape for i in subject.inputs})
    sizes = {"b": 2, "h": 3, "n_q": 5, "n": 5, "n_k": 7, "m": 11, "d_k": 4, "d_v": 6}
    rng = np.random.default_rng(5)
    passed = {i.name: rng.random(subject.shape(i.name, sizes)) for i in subject.inputs}
    passed |= {"length": np.asarray(2)} if "length" in passed else {}
    arrays: dict[str, Any] = {}

    def run(**inputs: Any) -> Any:
        arrays.update(flow.spec.trace(**inputs))
        return flow.spec.return_run(**inputs)

    with np.errstate(all="ignore"):
        flow.laid(run)(**passed)
    counted = 0
    for name, array in arrays.items():
        letters = axes[name].split() if isinstance(array, np.ndarray) else []
        for place, of_axis in enumerate(letters):
            if of_axis in ("n", "n_q", "1"):
                assert array.shape[place - len(letters)] == sizes.get(of_axis, 1), name
                counted += of_axis != "1"
    assert counted > 3
