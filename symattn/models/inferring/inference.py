"""``infer``: the attention of each kind of layer of a model type, read off a run, beside what its fields say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from symattn.attention.spec import Attention
from symattn.document.errors import InputError, MissingExtra
from symattn.document.evidence import Verdict
from symattn.document.model import Block, Document, Note, Table, headers
from symattn.document.printable import WithVerdict
from symattn.models.auditing import patches
from symattn.models.auditing.dependence.mixing import MixingPart, sees_more, within
from symattn.models.auditing.dependence.probing import probed
from symattn.models.auditing.mixers.convolution_call import ConvolutionCall
from symattn.models.auditing.mixers.recurrent_call import RecurrentCall
from symattn.models.auditing.setting import Module
from symattn.models.inferring import column_sources, inferred_call, tiny_models, traced_model
from symattn.models.inferring.field_promises import disagreements, said
from symattn.models.inferring.mixer_sources import chain_of_mixer
from symattn.models.inferring.place_temperatures import settle_temperature
from symattn.models.inferring.promised_numbers import (
    OTHER_NUMBERS,
    expressions,
    find_fitting_expressions,
)
from symattn.models.inferring.scaled_rotations import settle_scaled_rotation
from symattn.verification.definitions.linear import LinearAttention

#: A position from which forms show that are invisible near the start.
FAR = 20_000
#: Another one, from which the numbers of such a form can be told from others.
FARTHER = 300_007


@dataclass
class InferredPart:
    """A part that mixes tokens, what was read off its call, and where the fields of the configuration differ.

    ``facts`` is None for a part without a call of attention, ``mixers`` are its calls of recurrences and convolutions,
    ``sources`` says where the arguments of a recurrence come from.
    ``reach`` is how many tokens an output depends on, None without a window. ``fitting`` gives for each number all
    expressions in fields that hold in two configurations, ``promises`` the first.
    """

    layer: int | None
    name: str
    kind: str
    sees: str
    facts: inferred_call.CallFacts | None = None
    mixers: list[traced_model.TracedMixer] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    reach: int | None = None
    differs: list[str] = field(default_factory=list)
    fitting: dict[str, list[str]] = field(default_factory=dict)
    promises: dict[str, str] = field(default_factory=dict)
    expressions: dict[str, dict[str, float]] = field(default_factory=dict)
    RECORD = "layer, name, kind, sees, spec, promises, chain, missing, unknown, differs"

    @property
    def spec(self) -> str:
        """Return the specification as it is typed, and convolutions in words; "" without one."""
        if not self.is_explained:
            return ""
        specs = [] if self.specification is None else [repr(self.specification)]
        specs = [f"{spec}, D x added" if self._is_skipped else spec for spec in specs]
        return ", after a ".join([*specs, *self._convolutions])

    @property
    def specification(self) -> Attention | LinearAttention | None:
        """Return the specification of attention or of a recurrence; None if there is none."""
        if self.facts is not None:
            return self.facts.spec()
        return self._recurrences[0].spec if self.is_explained and self._recurrences else None

    @property
    def is_explained(self) -> bool:
        """Return whether every call in the part is explained, and has a field for each form."""
        return not self.missing and not self.unknown

    @property
    def _recurrences(self) -> list[RecurrentCall]:
        return [one.call for one in self.mixers if isinstance(one.call, RecurrentCall)]

    @property
    def _is_skipped(self) -> bool:
        """Return whether the values are added to the output of a recurrence."""
        return any(call.skip is not None for call in self._recurrences)

    @property
    def _convolutions(self) -> list[str]:
        calls = [one.call for one in self.mixers if isinstance(one.call, ConvolutionCall)]
        return list(dict.fromkeys(call.kind for call in calls))

    @property
    def chain(self) -> dict[str, str]:
        """Return the steps of q, k and v from their projections, last first; of a recurrence those of its gates too."""
        return self.facts.chain if self.facts else self.sources

    @property
    def missing(self) -> list[str]:
        """Return forms that have no field."""
        if self.facts is not None:
            return self.facts.missing
        return [] if self.mixers else ["no call of attention"]

    @property
    def unknown(self) -> list[str]:
        """Return what was not explained."""
        result = list(self.facts.unknown) if self.facts else []
        for one in self.mixers:
            if one.call is None or one.reason:
                result.append(one.reason)
            elif not one.error <= inferred_call.EXPLAINED:
                result.append(f"the output of a {one.call.kind}, which differs by {one.error:.1g}")
        if self.mixers and self.facts is None and not self._recurrences:
            calls = [one.call for one in self.mixers if isinstance(one.call, ConvolutionCall)]
            widest = max((call.taps.shape[1] for call in calls), default=0)
            # Such as a state space after the convolution, in code that is not seen.
            if sees_more(self.reach, widest):
                result.append(f"what mixes {self.sees} besides a convolution of {widest}")
        return result


@dataclass(repr=False)
class Inference(WithVerdict):
    """The parts of a tiny model of a type, in order; prints as text, and renders as a document."""

    model_type: str
    version: str
    parts: list[InferredPart]
    reason: str = ""

    @property
    def source(self) -> str:
        """Return where the specifications come from: a run, of this version of Transformers."""
        return f"inferred (transformers {self.version})"

    @property
    def differs(self) -> list[str]:
        """Return where the fields and the run differ."""
        return [f"{part.name}: {words}" for part in self.parts for words in part.differs]

    @property
    def verdict(self) -> Verdict:
        """A fault if the fields and the run differ; undecided if a part has no specification."""
        if self.differs:
            return Verdict.FAULT
        whole = self.parts and all(part.is_explained for part in self.parts)
        return Verdict.NO_FAULT if whole else Verdict.UNDECIDED

    @property
    def coverage(self) -> str:
        """Return how many parts have a specification."""
        known = sum(part.is_explained for part in self.parts)
        return (
            f"{known} of {len(self.parts)} token-mixing parts have a specification, {self.source}"
        )

    def __repr__(self) -> str:
        return self._make_brief_repr(
            f"models infer {self.model_type}: {self.verdict.value} ({self.coverage})"
        )

    def document(self) -> Document:
        """The inference as a document."""
        rows = [(part.name, f"{part.kind}: {part.sees}", _in_words(part)) for part in self.parts]
        cells = tuple(tuple((words,) for words in row) for row in rows)
        shaded = tuple(i for i, part in enumerate(self.parts) if part.differs)
        blocks: list[Block] = [
            Table(headers("part", "class, depends on", "attention"), cells, shaded)
        ]
        blocks += [Note((f"The fields and the run differ: {words}",)) for words in self.differs]
        reason = self.differs[0] if self.differs else self.coverage
        return Document(
            "listing",
            "models",
            (f"Attention of {self.model_type}, {self.source}",),
            tuple(blocks),
            command=f"symattn models infer {self.model_type}",
            verdict=self.verdict,
            reason=(reason,),
            record={
                "model_type": self.model_type,
                "source": self.source,
                "coverage": self.coverage,
                "parts": [_make_record_of_part(part) for part in self.parts],
            },
        )


def _in_words(part: InferredPart) -> str:
    promised = "; ".join(f"{name} = {words}" for name, words in part.promises.items())
    if part.spec:
        return f"{part.spec}; {promised}" if promised else part.spec
    missing = [f"no field: {', '.join(part.missing)}"] if part.missing else []
    return "; ".join([*missing, *(f"not explained: {words}" for words in part.unknown)])


def _make_record_of_part(part: InferredPart) -> dict[str, Any]:
    return {name: getattr(part, name) for name in InferredPart.RECORD.split(", ")}


def infer(model_type: str) -> Inference:
    """Return the attention of a model type of Transformers, read off runs of tiny models with random weights.

    A model of a configuration that is shrunk by rules on the names of its fields runs once in float64, and each column
    of q, k and v of every call is looked up by value among the outputs of modules. A number is promised as an
    expression in fields only if that holds in a second configuration as well. Raises ``InputError`` for an unknown type
    and for one whose tiny model does not run, ``MissingExtra`` without Transformers.
    """
    require_transformers()
    return infer_configuration(tiny_models.default_configuration(model_type), model_type)


def infer_configuration(config: Any, model_type: str = "") -> Inference:
    """Return the attention that models of this configuration have, as ``infer`` does; it is of a language model."""
    version = require_transformers()
    model = tiny_models.tiny_of(config)
    parts = parts_of(model)
    own = tiny_models.text_part(model.config).to_dict()
    numbers = OTHER_NUMBERS.items()
    changed = {name: x for name, x in numbers if own.get(name) is not None}
    if own.get("kv_lora_rank"):
        changed = {
            name: x
            for name, x in changed.items()
            if name not in ("head_dim", "num_key_value_heads")
        }
    try:
        other = {part.name: part for part in parts_of(tiny_models.tiny_of(config, **changed))}
    # Without a second model, no expression is confirmed.
    except InputError:
        other = {}
    for part in parts:
        part.fitting = find_fitting_expressions(part, other.get(part.name))
        part.promises = {name: fits[0] for name, fits in part.fitting.items()}
    return Inference(model_type or config.model_type, version, parts)


def require_transformers() -> str:
    """Return the version of Transformers. Raises ``MissingExtra`` without it, or without torch."""
    try:
        import torch  # noqa: F401  # without it Transformers has configurations, and no model
        import transformers
    except ImportError as error:
        raise MissingExtra("transformers", "transformers") from error
    return transformers.__version__


def _find_innermost_part(name: str, parts: Sequence[str]) -> str | None:
    """Return the innermost part around a module; None if there is none."""
    return max((part for part in parts if within(name, part)), key=len, default=None)


def _trace_far_positions(model: Module, start: int = FAR) -> traced_model.TracedRun:
    """Run a tiny model far from the start; the run is empty where a model has no such positions."""
    try:
        return traced_model.traced(model, start)
    # Tables of learned positions end before, and the code of a model may raise anything.
    except Exception:
        return traced_model.TracedRun()


@dataclass
class _FarCalls:
    """A run far from the start, and the first call of each module in it."""

    run: traced_model.TracedRun
    calls: dict[str, traced_model.TracedCall]

    @classmethod
    def of(cls, model: Module, start: int) -> _FarCalls:
        """Run a tiny model from this position on."""
        run = _trace_far_positions(model, start)
        return cls(run, {call.name: call for call in reversed(run.calls)})

    def facts(self, name: str) -> inferred_call.CallFacts | None:
        """Return the facts of a module's call; None if there was none."""
        return inferred_call.facts_of(self.run, self.calls[name]) if name in self.calls else None


def _add_far_forms(facts: inferred_call.CallFacts, far: inferred_call.CallFacts) -> None:
    """Add forms that only far positions show, such as a factor that grows with the position."""
    if abs(far.scale - facts.scale) > column_sources.EQUAL * abs(facts.scale):
        facts.missing.append(inferred_call.FACTOR_OF_POSITION)
    # Rates of a dynamic scaling are powers of another base beyond the trained length.
    if (
        facts.base
        and far.base
        and abs(far.base - facts.base) > inferred_call.CLOSE_BASE * facts.base
    ):
        facts.missing.append(inferred_call.CHANGED_RATES)
    facts.missing += [form for form in far.missing if form not in facts.missing]
    facts.unknown += [words for words in far.unknown if words not in facts.unknown]


def parts_of(model: Module) -> list[InferredPart]:
    """Return the parts of a tiny model that mix tokens, and what was read off their calls."""
    run, config = traced_model.traced(model), tiny_models.text_part(model.config)
    # Reversed, so that the first call of each module stays.
    first_calls = {call.name: call for call in reversed(run.calls)}
    far = _FarCalls.of(model, FAR)
    names = {module: name for name, module in model.named_modules()}
    with patches.probing():
        dependence = probed(
            model, (), {"input_ids": tiny_models.tokens()}, names, set(first_calls), None
        )
    mixing: Sequence[MixingPart] = dependence.parts if dependence is not None else []
    parts = {
        part.name: InferredPart(
            _layer_number_in_path(part.name), part.name, part.kind, part.sees, reach=part.reach
        )
        for part in mixing
    }
    for mixer in run.mixers:
        place = _find_innermost_part(mixer.name, list(parts))
        if place is not None:
            parts[place].mixers.append(mixer)
            parts[place].sources |= chain_of_mixer(run, mixer)
    farther: _FarCalls | None = None
    for name, call in first_calls.items():
        kind = type(call.module).__name__
        part = parts.setdefault(
            name, InferredPart(_layer_number_in_path(name), name, kind, "keys of another part")
        )
        part.facts = inferred_call.facts_of(run, call)
        of_far = far.facts(name)
        if of_far is not None:
            _add_far_forms(part.facts, of_far)
        if inferred_call.FACTOR_OF_POSITION in part.facts.missing:
            farther = farther or _FarCalls.of(model, FARTHER)
            runs = [(0, part.facts), (FAR, of_far), (FARTHER, farther.facts(name))]
            known = [(first, facts) for first, facts in runs if facts is not None]
            settle_temperature(part.facts, known, config)
        # Fields speak of layers by their numbers, so that a part outside of all layers has no promise.
        if part.layer is not None and part.facts.heads:
            settle_scaled_rotation(part.facts, config, part.layer)
            part.differs = disagreements(said(config, part.layer), part.facts)
            part.expressions = expressions(config, part.facts.d_k)

    # Parts that belong to no layer come last.
    def place_in_order(part: InferredPart) -> tuple[bool, int, str]:
        return part.layer is None, part.layer or 0, part.name

    return sorted(parts.values(), key=place_in_order)


def _layer_number_in_path(name: str) -> int | None:
    """Return the number of a layer in the path of a module."""
    number_match = re.search(r"(?:^|\.)(\d+)(?:\.|$)", name)
    return int(number_match[1]) if number_match else None
