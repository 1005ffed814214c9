"""``Softmax``: the steps of an attention from its scores to its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import pairwise
from math import prod
from typing import Any, ClassVar

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.formats import Format
from symattn.attention.fields import brief, refusal
from symattn.attention.flow import Step
from symattn.attention.letters_of_attention import SCORES
from symattn.attention.softmax import logarithms, powers, row_max
from symattn.attention.spec import Attention
from symattn.attention.streaming.states import SoftmaxState, merge
from symattn.bounds.called_target import Inputs
from symattn.bounds.mistake import At, Compute, Mistake, Wrong, change
from symattn.bounds.reference import RIGHT, Run, Variant, changed, lifted, trace
from symattn.document.codec import called
from symattn.document.errors import InputError
from symattn.document.keywords import Answering
from symattn.verification.definitions import attending
from symattn.verification.definitions.attention_steps import FlowWithAttention, change_attention
from symattn.verification.definitions.definition_flow import FlowOfStatedSteps
from symattn.verification.definitions.definition_forms import DefinitionForm, Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inner_attention import Call, InnerAttention, WrongAttention
from symattn.verification.definitions.inputs_by_letters import FAMILIES, Family, Numbers
from symattn.verification.definitions.output_run import OutputRun
from symattn.verification.input_source import Array, Random
from symattn.verification.rules.known_mistakes import yield_known_mistakes
from symattn.verification.rules.softmaxes import along

# Positions are counted for queries and keys, which a function of scores does not have.
_STEPS = frozenset({*SCORES, "weights"}) - {"positioned"}
_LENGTHS = (
    (2, 3),
    (3, 5),
    (4, 4),
    (1, 1),
    (5, 2),
    (2, 8),
    (3, 17),
    (17, 16),
    (2, 33),
    (1, 64),
    (3, 65),
    (2, 130),
    (1, 257),
    (1, 1025),
)


@dataclass(frozen=True)
class Softmax(Answering):
    """a_ij = e^{s_ij} / Σ_l e^{s_il} over the last axis, or another normaliser of an attention.

    attention  the attention whose scale, cap, bias, masks, sink and normaliser apply; without a scale of its own the
               scores are already scaled

    A function takes scores (…, n_q, n_k), or (n_k,), and the other inputs of the attention, and returns the
    weights.

    >>> import numpy as np
    >>> Softmax(Attention(base=2))(np.array([0.0, 1.0])) * 3
    array([1., 2.])

    Source: Bridle, Probabilistic interpretation of feedforward classification network outputs (1990).
    """

    attention: Attention = field(default_factory=Attention)

    __repr__ = brief

    def __post_init__(self) -> None:
        if not isinstance(self.attention, Attention) or self.attention.lse:
            raise refusal(self, "attention", "be an Attention without lse")
        # Softmax starts at scores: any other step would need q, k or v.
        attending.check(self.attention, "Softmax", "nd")
        steps = {step.row for step in self.attention.pipeline(frozenset("qkv"))}
        beside = steps - _STEPS - {"attended"}
        if beside or self.attention.score != "dot":
            result = ", ".join(sorted(beside)) or f"scores by {self.attention.score}"
            raise InputError(
                f"Softmax takes scores and gives weights; it has no place for {result}"
            )

    def __call__(self, scores: Any, **keywords: Any) -> Any:
        """Return the weights."""
        return self.run(RIGHT, scores, **keywords)

    def run(self, variant: Variant, scores: Any, **keywords: Any) -> Any:
        """Return the weights by a variant of the definition."""
        return self.traced(variant, scores, **keywords)["weights"]

    def traced(self, variant: Variant, scores: Any, **keywords: Any) -> dict[str, Any]:
        """Return the scores and the arrays computed from them, as in an attention."""
        # The pipeline wants q, k and v, so the scores stand in, and steps up to them are replaced.
        spec, arrays = changed(self.scaled, {**keywords, **dict.fromkeys("qkv", scores)}, variant)
        own = {"scores": lambda spec, values: scores}
        own |= {"scaled": lambda spec, values: scores} if self.attention.scale is None else {}
        return trace(
            spec, dict(arrays), replace(variant, steps={**own, **variant.steps}), {"weights"}
        )

    # One object for every run, since the steps of an attention are cached per object.
    @cached_property
    def scaled(self) -> Attention:
        """The attention, with the scale 1 if it has none of its own."""
        return replace(self.attention, scale=1) if self.attention.scale is None else self.attention


@dataclass(frozen=True)
class WeightsFlow(FlowWithAttention):
    """The steps of an attention from its scores to its weights, which alone are returned."""

    softmax: Softmax

    letters: ClassVar[Mapping[str, str]] = {}
    returned: ClassVar[tuple[str, ...]] = ("weights",)

    @cached_property
    def inner(self) -> Attention:
        """See ``FlowWithAttention``."""
        return self.softmax.scaled

    @cached_property
    def taken(self) -> Mapping[str, str]:
        """See ``FlowWithAttention``: scores stand for the queries, keys and values, which no step reads."""
        beside = (i.name for i in attending.inputs(self.inner, "nd") if i.name not in "qkv")
        return {**dict.fromkeys("qkv", "scores"), **{name: name for name in beside}}

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``."""
        for step in self.state_attention(names):
            # Scores are what a call gets.
            if step.name in _STEPS and step.name != "scores":
                yield step


def _change_weights(flow: WeightsFlow, variant: Variant) -> Compute:
    """Return the weights by a variant of the attention, as changes of steps if it is nothing else."""
    is_of_arrays = variant.inputs is not None or variant.values != RIGHT.values
    if is_of_arrays or variant.spec is not None or "scores" in variant.steps:
        return partial(flow.softmax.run, variant)
    return change_attention(flow, variant)


def subject(spec: Softmax) -> Definition:
    """Return the definition of the weights."""
    a, flow = spec.scaled, WeightsFlow(spec)
    made = partial(_change_weights, flow)
    beside = tuple(i for i in attending.inputs(a, "nd") if i.name not in "qkv")
    words = "s x logits input inputs a z qk score attn_scores attention_scores attn_logits"
    return Definition(
        title=f"Softmax({called(spec.attention)})",
        step="normalize",
        inputs=(Input("scores", "b h n_q n_k", words), *beside),
        outputs=("weights",),
        ways=tuple(_yield_softmax_forms(spec)),
        mistakes=Later(lambda: _yield_softmax_mistakes(spec, made)),
        others=(
            Mistake(
                "exp",
                _LOSING,
                made(of_weights(partial(_by_log_sum, whole=True))),
                exact=False,
            ),
        ),
        shapes=tuple(_yield_score_sizes(a, bool(beside) or a.masks_anything)),
        families={
            **FAMILIES,
            **{name: partial(_draw_scores_with_offsets, where) for name, where in _FAR.items()},
        },
        # Far keys test what is lost if exponentials are added in a narrow format.
        distant=_make_distant_score_family,
        settings={**attending.settings(a), "axis": -1},
        kept=frozenset("h") if a.heads > 1 else frozenset(),
        open=partial(attending.open_rows, a),
        closing=attending.closing,
        numbered=tuple(attending.by_number(a, made, _STEPS)),
        output_run=OutputRun(partial(_run_of_weights, spec)),
        inner=_make_score_inner_attention(spec, made),
        make_flow=partial(FlowOfStatedSteps, spec=flow),
    )


def _make_score_inner_attention(
    spec: Softmax, made: Callable[[Variant], Compute]
) -> InnerAttention:
    """Return the attention whose products of queries and keys are the scores."""
    attention = spec.scaled
    beside = tuple(i.name for i in attending.inputs(attention, "nd") if i.name not in "qkv")

    def arrange(inputs: Mapping[str, Array]) -> dict[str, Array]:
        # Heads that share keys have scores of their own.
        keys = (
            np.repeat(inputs["k"], attention.group, axis=-3) if attention.group > 1 else inputs["k"]
        )
        return {
            "scores": inputs["q"] @ np.swapaxes(keys, -1, -2),
            **{n: inputs[n] for n in beside if n in inputs},
        }

    def largest(inputs: Mapping[str, Array]) -> float:
        return float(np.abs(np.asarray(inputs["scores"], dtype=np.float64)).max(initial=0.0))

    def attended(call: Call, inputs: Mapping[str, Array]) -> Array | None:
        outputs = call(arrange(inputs))
        shape = (*inputs["q"].shape[:-1], inputs["k"].shape[-2])
        # A function may return its rows in other axes, but not another number of entries.
        if outputs is None or outputs[0].size != prod(shape):
            return None
        values = (
            np.repeat(inputs["v"], attention.group, axis=-3) if attention.group > 1 else inputs["v"]
        )
        return np.asarray(outputs[0].reshape(shape) @ values)

    return InnerAttention(
        attention,
        ("q", "k", "v", *beside),
        arrange,
        largest,
        scaling="scores",
        attended=attended,
        wrong=WrongAttention(attention, frozenset("qkv"), made, takes=_is_of_weights),
    )


def _is_of_weights(mistake: Mistake) -> bool:
    """Return whether a mistake changes nothing but steps from scores to weights."""
    variant = mistake.variant
    return variant.steps.keys() <= _STEPS and variant.inputs is None and variant.spec is None


def _make_distant_score_family(distance: float) -> Family:
    """Return the family in which all scores but a few are ``distance`` below these."""
    return lambda rng: (
        lambda name, shape: np.where(rng.random(shape) < attending.NEAR, 0.0, -distance)
    )


def _yield_score_sizes(a: Attention, rows: bool) -> Iterator[dict[str, int]]:
    """Yield sizes: rows of every length, with heads and batches, and single rows if they need no queries."""
    heads = {"h": a.heads} if a.heads > 1 else {}
    for k, (n_q, n_k) in enumerate(_LENGTHS):
        # Heads and items only beside short rows, as entries multiply.
        more = [{}, {"h": 2}, {"b": 2, "h": 3}][k % 3] if n_k < 30 else {}
        yield {**more, **heads, "n_q": n_q, "n_k": n_k}
        # A single row needs neither masks nor heads.
        if k in (1, 3, 5) and not rows and not heads:
            yield {"n_k": n_k}


#: Axes of large offsets that are added to scores: one for all, one per row, or one per score.
_FAR: dict[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
    "offset": lambda shape: (1,) * len(shape),
    "rows": lambda shape: (*shape[:-1], 1),
    "keys": lambda shape: shape,
}


def _draw_scores_with_offsets(
    where: Callable[[tuple[int, ...]], tuple[int, ...]], rng: Random
) -> Numbers:
    # Within the range of float32's exponentials, and beyond it on both sides.
    far = (-1000, -150, -60, 0, 60, 150, 1000)
    return lambda name, shape: rng.standard_normal(shape) + rng.choice(far, where(shape))


def of_weights(wrong: Wrong) -> Variant:
    """Return the variant with other weights from the scores."""
    return Variant({"weights": change("weights", wrong)})


# -- ways --------------------------------------------------------------------------------------------------------------
def _yield_softmax_forms(spec: Softmax) -> Iterator[Compute]:
    """Yield the definition, and for a plain softmax its other forms."""
    yield spec
    a = spec.attention
    for words, form in _FORMS.items() if a.plain_softmax else ():
        yield DefinitionForm(words, partial(spec.run, of_weights(form)))


def _guard_empty_row_sums(at: At, sums: Any) -> Any:
    """Return the sums; 1 for rows without any key if these have to be zeros."""
    empty = ~at.open.any(axis=-1, keepdims=True) & (at.spec.fully_masked == "zeros")
    return at.xp.where(empty, at.number(1), sums)


def _shift_scores_by_maximum(at: At, whole: bool, factor: Any = 1, more: Any = 0) -> Any:
    """Return s c − (m c + more); but, unless ``whole``, (s − m) c − more if scores are stored in a half format, in
    which rounding a shift as large as the scores leaves nothing useful."""
    # Kinds without a precision store nothing.
    precision = getattr(type(at.first), "precision", None)
    if whole or precision is None or precision.score.u <= Format("float32").u:
        return at.first * factor - (at.top * factor + more)
    return (at.first - at.top) * factor - more


def _in_other_base(at: At) -> Any:
    """Compute with powers of 2 of the scores times log₂ e; for base 2, with powers of e of the scores times log 2."""
    two = at.xp.log(at.number(2))
    e = powers(
        _shift_scores_by_maximum(at, False, two if at.spec.base else 1 / two),
        None if at.spec.base else 2,
    )
    return e / _guard_empty_row_sums(at, at.sum(e))


def _by_log_sum(at: At, whole: bool = False) -> Any:
    return at.power(
        _shift_scores_by_maximum(
            at, whole, more=logarithms(_guard_empty_row_sums(at, at.total), at.spec.base)
        )
    )


def _by_tiles(at: At) -> Any:
    """Compute by sums of tiles, each with its own maximum, that are merged."""
    tops = [
        (t, row_max(t))
        for a, b in pairwise(attending.tiles(at.first, at.n))
        for t in [at.first[..., a:b]]
    ]
    # Tiles of keys are merged as a streaming softmax does.
    state = reduce(
        partial(merge, base=at.spec.base),
        (SoftmaxState(m, at.sum(at.power(t - m)), 0) for t, m in tops),
    )
    # A row whose keys are all forbidden has the sum 0.
    return at.power(at.first - state.maximum) / _guard_empty_row_sums(at, state.normaliser)


_FORMS: dict[str, Wrong] = {
    "powers of the other base of s c − m c, c = log₂ e or log 2, over their sum": _in_other_base,
    "e^{s − L}, L = log Σ e^s": _by_log_sum,
    "e^{s − m} over a sum that is merged tile by tile": _by_tiles,
}
_LOSING = (
    "weights are e^(s − L), and L, as large as the scores, is rounded: the error does not cancel"
)


# -- mistakes ----------------------------------------------------------------------------------------------------------
def _yield_softmax_mistakes(spec: Softmax, made: Callable[[Variant], Compute]) -> Iterator[Mistake]:
    """Yield the mistakes of attention from its scores to its weights."""
    for m in yield_known_mistakes(spec.scaled, frozenset("qkv")):
        v = m.variant
        if not v.steps.keys() <= _STEPS or v.inputs is not None or m.around or m.in_floats:
            continue
        try:
            Softmax(v.spec(spec.scaled) if v.spec else spec.scaled)
        except InputError:  # it has other steps
            continue
        yield Mistake(m.step, m.cause, made(v))
    for words, wrong in _WHOLE_AXES.items() if spec.attention.is_softmax else ():
        yield Mistake("normalize", f"the softmax runs over {words}", made(of_weights(wrong)))


#: Axes by number, whatever their meaning.
_WHOLE_AXES: dict[str, Wrong] = {
    **{f"axis {axis}, not the last one": partial(along, axis) for axis in (0, 1, 2, -3)},
    "the whole array": lambda at: at.xp.reshape(
        at.weights(at.xp.reshape(at.first, (-1,))), at.first.shape
    ),
}


def _run_of_weights(spec: Softmax, inputs: Inputs) -> Run:
    """Return a run of the attention with these scores, whose output is the weights."""
    values = spec.traced(RIGHT, **{n: lifted(np.asarray(a), Ball) for n, a in inputs.items()})
    # One value of 1: the weights are the output, and no value is larger than 1.
    values |= {"v": Ball.lift(np.ones((1, 1))), "output": values["weights"]}
    return Run(spec.scaled, dict.fromkeys("qkv", inputs["scores"]) | {**inputs}, values)
