"""Layers that subtract the outputs of two calls of attention, as differential attention does: λ, the norm, the heads.

Each call is judged by itself. When the output projection ends, what it received is held against
(1 − λ_init) RMSNorm(o₁ − λ o₂), o₁ and o₂ the first and the last half of the heads of both calls, whose columns stand
side by side; λ = e^{q₁·k₁} − e^{q₂·k₂} + λ_init of the vectors of the module. Source: Ye et al., Differential
Transformer (2024), equations 1 to 3; Transformers' DiffLlama.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import number
from symattn.attention.norms import rms_norm
from symattn.bounds.mistake import Mistake
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
    NORM_FORMS,
    Differential,
    Norm,
    combine_outputs,
)

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
def difference(spec: Differential, of_layers: Mapping[str, Differential]) -> Definition:
    """Return the definition of the difference of both halves of the heads (n, h, 2 d), for existing arrays.

    ``of_layers`` are the differences of other layers, in words.
    """
    inputs = tuple(Input(name, "") for name in ("outputs", *_VECTORS))
    ways = tuple(partial(_subtract_halves, spec, norm) for norm in NORM_FORMS)
    mistakes = tuple(_yield_mistakes(spec, of_layers))
    return Definition("difference", "weights", inputs, ("output",), ways, mistakes, (), {})


Halves = Callable[[Any], tuple[Any, Any]]


def _split_halves(outputs: Any) -> tuple[Any, Any]:
    half = int(outputs.shape[-2]) // 2
    return outputs[..., :half, :], outputs[..., half:, :]


def _subtract_halves(
    spec: Differential,
    norm: Norm,
    outputs: Any,
    halves: Halves = _split_halves,
    change: Callable[[Any, Any], Any] = lambda factor, init: factor,
    **vectors: Any,
) -> Any:
    """Return the output with λ of the vectors, ``change``d, and other ``halves``."""
    one, other = halves(outputs)
    init = number(spec.init, outputs)
    factor = change(_factor_of_vectors(init, **vectors), init)
    return combine_outputs(spec, norm, one, other, factor)


def _factor_of_vectors(
    init: Any, lambda_q1: Any, lambda_k1: Any, lambda_q2: Any, lambda_k2: Any
) -> Any:
    """Return λ = e^{q₁·k₁} − e^{q₂·k₂} + λ_init, each exponential stored in the format of the inputs."""
    xp = namespace_of(lambda_q1)
    products = (lambda_q1 * lambda_k1, lambda_q2 * lambda_k2)
    first, second = (_store(xp.exp(xp.sum(x, axis=-1, keepdims=True))) for x in products)
    return _store(first - second + init)


def _store(a: Any) -> Any:
    return a.as_input() if hasattr(a, "as_input") else a


def _yield_mistakes(spec: Differential, of_layers: Mapping[str, Differential]) -> Iterator[Mistake]:
    """Yield a wrong λ, wrong halves, and a wrong norm."""
    for layer, other in of_layers.items():
        run = partial(_subtract_halves, other, rms_norm)
        yield Mistake("weights", f"λ_init is that of the {layer}", run)
    right = partial(_subtract_halves, spec, rms_norm)
    factors: dict[str, Callable[[Any, Any], Any]] = {
        "λ is left out: the whole second softmax is subtracted": lambda factor, init: (
            0 * factor + 1
        ),
        "the second softmax is left out": lambda factor, init: 0 * factor,
        "λ times the second softmax is added, not subtracted": lambda factor, init: -factor,
        "λ_init is not added to λ": lambda factor, init: factor - init,
        "λ is λ_init alone: its vectors are not read": lambda factor, init: 0 * factor + init,
    }
    for words, change in factors.items():
        yield Mistake("weights", words, partial(right, change=change))
    halves: dict[str, Halves] = {
        "the halves are exchanged: λ times the first softmax is subtracted from the second": (
            lambda outputs: _split_halves(outputs)[::-1]
        ),
        "heads 2i and 2i + 1 are subtracted, not the halves of the heads": (
            lambda outputs: (outputs[..., 0::2, :], outputs[..., 1::2, :])
        ),
    }
    for words, split in halves.items():
        yield Mistake("split", words, partial(right, halves=split))
    bare = Differential(attention=spec.attention)
    yield Mistake(
        "norm",
        "the norm of the output is left out",
        lambda outputs, **vectors: _without_norm(spec, bare, outputs, vectors, spec.init),
    )
    plain = Differential(attention=spec.attention, norm="rms", eps=spec.eps)
    yield Mistake(
        "norm",
        "the factor 1 − λ_init of the norm is left out",
        lambda outputs, **vectors: _without_norm(spec, plain, outputs, vectors, 0),
    )


def _without_norm(
    spec: Differential, other: Differential, outputs: Any, vectors: dict[str, Any], init: Any
) -> Any:
    """Return the output by another specification, with the λ of this one, times 1 − λ_init."""
    one, second = _split_halves(outputs)
    factor = _factor_of_vectors(number(spec.init, outputs), **vectors)
    return combine_outputs(other, rms_norm, one, second, factor) * number(1 - init, outputs)
