"""``Attention(lse=True)``: the output and the logarithms of the sums, L_i = log Σ_j e^{s_ij}."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

from symattn.arrays.namespace import namespace_of
from symattn.attention import inputs, masks, softmax
from symattn.attention.flow import Step, finish_output, run_until
from symattn.attention.letters_of_attention import SCORES
from symattn.attention.spec import Attention
from symattn.attention.streaming import states as streaming
from symattn.attention.streaming.states import merge_partial, partial_output
from symattn.attention.streaming.tiled_runs import TileRun
from symattn.bounds import called_target, mistake, reference
from symattn.bounds.mistake import Compute
from symattn.document.codec import called
from symattn.verification.definitions import attending
from symattn.verification.definitions.attention_steps import FlowWithAttention, change_attention
from symattn.verification.definitions.definition_forms import Later
from symattn.verification.definitions.definition_subject import Definition
from symattn.verification.definitions.inner_attention import WrongAttention
from symattn.verification.definitions.stated_definition import define_in_steps
from symattn.verification.rules import log_sums


@dataclass(frozen=True)
class LogSumFlow(FlowWithAttention):
    """The steps of an attention that also returns L; it takes the inputs that its attention needs."""

    attention: Attention

    letters: ClassVar[Mapping[str, str]] = {}
    axes: ClassVar[Mapping[str, str]] = {"lse": "n_q"}
    returned: ClassVar[tuple[str, ...]] = ("output", "lse")

    @property
    def inner(self) -> Attention:
        """See ``FlowWithAttention``."""
        return self.attention

    @cached_property
    def taken(self) -> Mapping[str, str]:
        """See ``FlowWithAttention``: all inputs, under their own names."""
        return {name: name for name in ("q", "k", "v", *inputs.needed(self.attention, "qkv"))}

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``."""
        yield from self.state_attention(names)


def subjects(spec: Attention, layout: called_target.Layout = "nd") -> Iterator[Definition]:
    """Yield the definition of the output and L with L as (…, h, n_q), as FlashAttention returns it in every layout.

    Where tokens come before heads, another one has L as (…, n_q, h), as FlashInfer returns it.
    """
    yield subject(spec, layout)
    # Only where tokens come before heads do both orders occur.
    if "nh" in layout:
        yield subject(spec, layout, tokens_first=True)


def subject(
    spec: Attention, layout: called_target.Layout = "nd", tokens_first: bool = False
) -> Definition:
    """Return the definition of the output and L. L has the axes (…, h, n_q); with ``tokens_first`` (…, n_q, h)."""
    attending.check(spec, "lse", layout)

    flow = LogSumFlow(spec)

    def laid(run: Compute) -> Compute:
        in_order = attending.in_order(layout, ("q", "k", "v"), run)
        return partial(_with_tokens_first, in_order) if tokens_first else in_order

    made = partial(change_attention, flow)

    def log_sums_alone() -> Iterator[Compute]:
        """Yield L by each way: at once without the output, which takes as long, and from both outputs of the others."""
        _, *others = ways(spec)
        at_once = attending.in_order(layout, ("q", "k", "v"), partial(_log_sums_at_once, spec))
        yield partial(_exchange_last_axes, at_once) if tokens_first else at_once
        for way in others:
            yield partial(_second_output, laid(way))

    names = frozenset(flow.taken)
    wrong = WrongAttention(spec, names, made)
    return attending.of_attention(
        spec,
        layout,
        wrong,
        make=partial(define_in_steps, flow, laid=laid),
        title=called(spec),
        described=spec,
        step="lse",
        outputs=("output", "lse"),
        ways=ways(spec),
        forms=_FORMS,
        mistakes=Later(lambda: wrong.convert_mistakes(log_sums.mistakes(spec, names))),
        numbered=tuple(attending.by_number(spec, made, {*SCORES, "weights", "lse"})),
        settings={**attending.settings(spec), "return_lse": True},
        loose=frozenset(["lse"]),
        output_run=attending.run_of(spec, layout, tuple(log_sums_alone())),
    )


def _with_tokens_first(run: Compute, **keywords: Any) -> Any:
    """Return the output, and L with its last two axes exchanged."""
    output, lse = run(**keywords)
    return output, lse.__array_namespace__().moveaxis(lse, -1, -2)


def _exchange_last_axes(run: Compute, **keywords: Any) -> Any:
    lse = run(**keywords)
    return lse.__array_namespace__().moveaxis(lse, -1, -2)


def ways(spec: Attention) -> tuple[Compute, ...]:
    """Return the ways: at once; key by key; by powers of two; two parts merged."""
    # Running sums and merges are for a natural softmax without dropout.
    if not spec.is_softmax or spec.base is not None or spec.dropout:
        return (spec,)
    streamed: tuple[Compute, ...] = (partial(_by_keys, replace(spec, lse=False)),)
    # The two other ways have no place for a sink.
    if spec.sink is not None:
        return spec, *streamed
    return spec, *streamed, partial(_in_base_two, spec), partial(_merge_key_halves, spec)


#: The ways in words, in their order.
_FORMS = (
    "of all keys at once",
    "of running sums",
    "of powers of two",
    "of two parts that are merged",
)


def _log_sums_at_once(spec: Attention, **keywords: Any) -> Any:
    return reference.trace(spec, keywords, wanted={"lse"})["lse"]


def _second_output(way: Compute, **keywords: Any) -> Any:
    return way(**keywords)[1]


def _by_keys(spec: Attention, **keywords: Any) -> Any:
    """Compute key by key, with a running maximum and sum, of which L is made too."""
    rows, keys = (int(keywords[n].shape[-2]) for n in "qk")
    arrays = inputs.by_name((), keywords)
    run = TileRun(spec, (0, rows), attending.tiles(keywords["q"], keys), arrays)
    (state,) = run.states
    return run.values["output"], streaming.lse(state)[..., 0]


def _in_base_two(spec: Attention, **keywords: Any) -> Any:
    """Compute with 2^{t − m}, t = s log₂ e, and L = (m + log₂ Σ) ln 2."""
    s, v = _scores_and_values(spec, keywords)
    xp = namespace_of(s)
    two = xp.log(mistake.number(s, 2))
    open_ = xp.isfinite(s)
    # Forbidden scores become 0 and are forbidden again, since −∞ takes no part in products.
    t = masks.forbid(xp.where(open_, s, 0) / two, open_)
    # A row without an open key, or whose scores are 0/0, has no maximum.
    weights = softmax.softmax(t, fully_masked=spec.fully_masked, base=2)
    output = _finish_weighed(spec, keywords, weights @ v)
    return output, (softmax.log_sum_exp(t, base=2) * two)[..., 0]


def _merge_key_halves(spec: Attention, **keywords: Any) -> Any:
    """Merge two parts of the keys, each normalised by itself."""
    s, v = _scores_and_values(spec, keywords)
    half = int(s.shape[-1]) // 2
    # One key cannot be cut in two parts.
    if not half:
        return spec(**keywords)
    first, second = (
        partial_output(s[..., part], v[..., part, :])
        for part in (slice(0, half), slice(half, None))
    )
    result = merge_partial(first, second)
    return _finish_weighed(spec, keywords, result.output), result.lse[..., 0]


def _finish_weighed(spec: Attention, keywords: Mapping[str, Any], weighed: Any) -> Any:
    """Return the output of weighted values, by the steps behind the weights."""
    arrays = inputs.by_name((), keywords)
    return finish_output(spec.pipeline(arrays), arrays, weighed)


def _scores_and_values(spec: Attention, keywords: Mapping[str, Any]) -> tuple[Any, Any]:
    """Compute the scores that the weights are computed from, and the values that they are multiplied by."""
    arrays = inputs.by_name((), keywords)
    inputs.check_inputs(spec, arrays)
    steps = spec.pipeline(arrays)
    # Weights, and all that is computed from them, take most of a run, and this way computes its own.
    values = run_until(steps, arrays, "weights")
    (weights,) = (step for step in steps if step.name == "weights")
    return values[weights.of[0]], values[reference.values_name(steps)]
