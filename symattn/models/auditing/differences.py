"""Layers that subtract the outputs of two calls of attention, as differential attention does: λ, the norm, the heads.

Each call is judged by itself. When the output projection ends, what it received is held against
(1 − λ_init) RMSNorm(o₁ − λ o₂), o₁ and o₂ the first and the last half of the heads of both calls, whose columns stand
side by side; λ = e^{q₁·k₁} − e^{q₂·k₂} + λ_init of the vectors of the module. Source: Ye et al., Differential
Transformer (2024), equations 1 to 3; Transformers' DiffLlama.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import number
from symattn.attention.flow import Step
from symattn.attention.stated_flow import StatedFlow
from symattn.bounds.changed_steps import ChangedSteps, in_stated_steps
from symattn.bounds.mistake import At, Mistake, Wrong, store_as_input
from symattn.document.errors import SymattnError
from symattn.models.auditing import call_judge, promises
from symattn.models.auditing.audit_report import CallFinding
from symattn.models.auditing.layers.part_judge import PartFinding, judged
from symattn.models.auditing.setting import Floats, Module, Tensor, numbers
from symattn.models.configurations import promised_layers
from symattn.models.configurations.field_rules import LayerPlace
from symattn.programs.frameworks import dtype_name
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.differential import (
    PREFIXES,
    Differential,
    state_difference,
)
from symattn.verification.definitions.norms import norm_forms
from symattn.verification.definitions.stated_definition import define_in_steps

# Tokens of the first item that are judged: the first ones, which see few keys, and the last.
_TOKENS = (0, 1, 2, -2, -1)
#: The vectors of a module from which λ is made, by their names there.
_VECTORS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


class Differences:
    """The calls of modules whose outputs are subtracted, until their output projection ends."""

    def __init__(self) -> None:
        self._outputs: WeakKeyDictionary[Module, list[Floats]] = WeakKeyDictionary()

    def attended(self, module: Module, out: Tensor, heads_last: bool) -> None:
        """Note the output of a call (b, n, h, d), or (b, h, n, d) unless heads are last."""
        if _differential_of(module) is None:
            return
        rows = out if heads_last else out.transpose(1, 2)
        tokens = _choose_tokens(int(rows.shape[1]))
        self._outputs.setdefault(module, []).append(numbers(rows[0, tokens]))

    def has_calls(self, module: Module) -> bool:
        """Return whether calls of a module were noted, and its output projection is awaited."""
        return module is not None and module in self._outputs

    def projected(
        self, name: str, module: Module, projection: Module, x: Tensor
    ) -> CallFinding | None:
        """Judge what the output projection of a module received; None for another module within it."""
        if projection is not getattr(module, "o_proj", None) or not self.has_calls(module):
            return None
        # Outputs are taken away first, so that a next pass does not find those of this one.
        outputs, spec = self._outputs.pop(module), _differential_of(module)
        if spec is None:
            return None
        title = f"difference λ_init={float(spec.init):.4g}"
        if len(outputs) != 2:
            reason = f"calls of attention before its projection: {len(outputs)}, not 2"
            return CallFinding(name, "difference of two calls", title, reason=reason)
        tokens = _choose_tokens(int(x.shape[1]))
        # The second call has the second half of the values' columns for the same heads.
        both = np.concatenate(outputs, axis=-1)
        got = numbers(x[0, tokens]).reshape(len(tokens), both.shape[1] // 2, both.shape[2])
        # The steps have the heads before the tokens, as every attention has them.
        both, got = both.swapaxes(0, 1), got.swapaxes(0, 1)
        inputs = {"outputs": both}
        inputs |= {n: numbers(getattr(module, n).detach()) for n in _VECTORS}
        contracts: list[Any] = ["eager", "fused"]
        subject = difference(spec, _list_other_layers(module))
        part = judged(
            "difference",
            subject,
            inputs,
            [got],
            dtype_name(x),
            contracts,
            search=True,
            narrower=False,
        )
        return _as_call_finding(name, title, part)


def _as_call_finding(name: str, title: str, part: PartFinding) -> CallFinding:
    via = "difference of two calls"
    if part.reason:
        return CallFinding(name, via, title, reason=part.reason)
    judgement = call_judge.CallJudgement(part.ratio, "certified" if part.wrong else "")
    return CallFinding(name, via, title, judgement, judgement, cause=part.cause)


def _choose_tokens(length: int) -> list[int]:
    return sorted({token % length for token in _TOKENS if -length <= token < length})


def _differential_of(module: Module, further: int = 0) -> Differential | None:
    """Return the difference that the row of a module's family promises for its layer, or one ``further`` on.

    None if it promises none.
    """
    config = getattr(module, "config", None)
    layer = promises.number_of_layer(module, "")
    if config is None or layer is None or not all(hasattr(module, n) for n in _VECTORS):
        return None
    try:
        c, family = promised_layers.known(config)
        place = LayerPlace(c, layer + further)
        of = None if family.difference is None else family.difference(place)
        if of is None:
            return None
        return Differential(attention=of.attention, norm="rms", eps=of.eps, init=of.init)
    except SymattnError:
        return None


def _list_other_layers(module: Module) -> dict[str, Differential]:
    """Return the differences of other layers, in words: those of layers that are counted otherwise."""
    places = {"next layer, as if layers were counted from 1": 1, "layer before": -1}
    others = {words: _differential_of(module, further) for words, further in places.items()}
    return {words: spec for words, spec in others.items() if spec is not None}


# -- the definition ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class SubtractedHeads(StatedFlow):
    """(1 − λ_init) RMSNorm(O₁ − λ O₂), O₁ and O₂ the halves of the heads of ``outputs`` (h, n, 2 d).

    λ = e^{q₁·k₁} − e^{q₂·k₂} + λ_init of the vectors of a module, each (d,).

    eps   the ε of the norm
    init  λ_init
    """

    eps: int | float | Fraction
    init: int | float | Fraction

    norm: ClassVar[Literal["rms"]] = "rms"
    letters: ClassVar[Mapping[str, str]] = {
        "outputs": "A",
        "lambda_q1": "q_1",
        "lambda_k1": "k_1",
        "lambda_q2": "q_2",
        "lambda_k2": "k_2",
        "first.output": "O_1",
        "second.output": "O_2",
        "first.exponential": "e_1",
        "second.exponential": "e_2",
        "factor": "λ",
        "difference": "D",
        "normed": "N",
        "output": "O",
    }
    nouns: ClassVar[Mapping[str, str]] = {"normed": "the norm of the output"}

    @property
    def returned(self) -> tuple[str, ...]:
        """See ``StatedFlow``."""
        return ("output",)

    @property
    def axes(self) -> Mapping[str, str]:
        """See ``StatedFlow``."""
        return dict.fromkeys(("difference", "normed", "output"), "h n d_v")

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``: the halves of the heads, λ, the difference, and its norm."""
        state = self.state_step
        for half, prefix in enumerate(PREFIXES):
            take, written = partial(_take_half_of_heads, half), f"heads_{half + 1}(@0)"
            record = {"role": "half of the heads", "blames": "split"}
            yield state(f"{prefix}output", take, written, ("outputs",), **record)
        for n, prefix in enumerate(PREFIXES, 1):
            vectors = f"lambda_q{n}", f"lambda_k{n}"
            record = {"role": "exponential", "blames": "weights"}
            yield state(
                f"{prefix}exponential", _exponentiate_product, "e^{@0·@1}", vectors, **record
            )
        of = tuple(f"{prefix}exponential" for prefix in PREFIXES)
        record = {"role": "factor of vectors", "blames": "weights"}
        written = f"@0 − @1 + {float(self.init):g}"
        yield state("factor", partial(_add_init, self.init), written, of, **record)
        yield from state_difference(self, names, _subtract_stored, "difference")


def _take_half_of_heads(half: int, outputs: Any) -> Any:
    heads = int(outputs.shape[-3]) // 2
    return outputs[..., half * heads : (half + 1) * heads, :, :]


def _exponentiate_product(q: Any, k: Any) -> Any:
    """Return e^{q·k} (1,), stored in the format of the inputs."""
    xp = namespace_of(q)
    return store_as_input(xp.exp(xp.sum(q * k, axis=-1, keepdims=True)))


def _add_init(init: float | Fraction, first: Any, second: Any) -> Any:
    return store_as_input(first - second + number(init, first))


def _subtract_stored(one: Any, factor: Any, other: Any) -> Any:
    # Both outputs are existing arrays, which no further rounding stores.
    return one - factor * other


def difference(spec: Differential, of_layers: Mapping[str, Differential]) -> Definition:
    """Return the definition of the difference of both halves of the heads (h, n, 2 d), for existing arrays.

    ``of_layers`` are the differences of other layers, in words.
    """
    flow = SubtractedHeads(eps=spec.eps, init=spec.init)
    inits = {words: other.init for words, other in of_layers.items()}
    forms = norm_forms(flow.norm, "normed").values()
    return define_in_steps(
        flow,
        "weights",
        tuple(Input(name, "") for name in ("outputs", *_VECTORS)),
        (),
        ways=tuple(ChangedSteps(flow, form) for form in forms),
        rules={
            "half of the heads": _mistakes_of_half,
            "factor of vectors": partial(_mistakes_of_factor, inits),
        },
        title="difference",
        families={},
    )


def _mistakes_of_half(spec: SubtractedHeads, step: Step) -> Iterator[Mistake]:
    """Yield other halves of the heads."""
    halves = [s for s in spec.pipeline_of_all if s.role == step.role]
    # Both halves are taken alike.
    if step is not halves[0]:
        return
    first, second = (half.name for half in halves)
    words = "the halves are exchanged: λ times the first softmax is subtracted from the second"
    exchanged: dict[str, Wrong] = {
        first: lambda at: _take_half_of_heads(1, at.first),
        second: lambda at: _take_half_of_heads(0, at.first),
    }
    yield in_stated_steps(spec, step.blames, words, exchanged)
    words = "heads 2i and 2i + 1 are subtracted, not the halves of the heads"
    alternating: dict[str, Wrong] = {
        first: lambda at: at.first[..., 0::2, :, :],
        second: lambda at: at.first[..., 1::2, :, :],
    }
    yield in_stated_steps(spec, step.blames, words, alternating)


def _mistakes_of_factor(
    inits: Mapping[str, Any], spec: SubtractedHeads, step: Step
) -> Iterator[Mistake]:
    """Yield the λ_init of other layers, ``inits`` in words, and λ of its vectors or of λ_init alone."""
    for layer, init in inits.items():
        words, other = f"λ_init is that of the {layer}", replace(spec, init=init)
        steps = {s.name: partial(_run_step, s) for s in other.pipeline_of_all if s.name in _OF_INIT}
        yield in_stated_steps(spec, step.blames, words, steps)
    words = "λ_init is not added to λ"
    yield in_stated_steps(spec, step.blames, words, {step.name: lambda at: _add_init(0, *at.taken)})
    words = "λ is λ_init alone: its vectors are not read"
    alone: Wrong = lambda at: 0 * at.first + number(spec.init, at.first)  # noqa: E731
    yield in_stated_steps(spec, step.blames, words, {step.name: alone})


#: The steps that read λ_init.
_OF_INIT = ("factor", "output")


def _run_step(step: Step, at: At) -> Any:
    return step.run(*at.taken)
