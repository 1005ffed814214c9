"""``specify``: the attention of a layer by the row of its family, else inferred from a run; it says which.

An inferred specification is what the installed code of Transformers does. One whose line stands in a lock was reviewed.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from symattn.attention.fields import whole
from symattn.attention.spec import Attention
from symattn.document.errors import InputError, SymattnError
from symattn.models.configurations import promised_layers
from symattn.models.configurations.configuration import (
    CannotTell,
    Configuration,
    configuration,
)
from symattn.models.inferring import inferred_call, tiny_models
from symattn.models.inferring.field_promises import width_of_heads
from symattn.models.inferring.inference import (
    Inference,
    InferredPart,
    infer_configuration,
    require_transformers,
)
from symattn.models.inferring.lock import line_of, read_lock
from symattn.models.inferring.promised_numbers import expressions
from symattn.programs.refusing import one_line
from symattn.verification.definitions.linear import LinearAttention

#: Numbers of a specification that shrink with a tiny model; others stay as they are in the configuration.
_SHRUNK = ("heads", "kv_heads", "scale", "window", "rotated", "temperature_rate")


@dataclass(frozen=True)
class Specified:
    """A specification, and where it comes from.

    ``source`` is ``row``, ``lock`` for an inferred one whose line was reviewed, or ``inferred``; ``words`` says it with
    the version, and what else a part does that no field describes. ``scaled_before``: the call of an inferred one has
    the scale 1, since queries or keys are scaled before it; None if it has another scale than the specification.
    """

    specification: Attention | LinearAttention
    source: str
    words: str
    scaled_before: bool | None = False


def specify(
    source: object, layer: int = 0, *, kind: str = "self", lock: str | None = None
) -> Specified:
    """Return the attention of a layer, by its family's row, or inferred from a tiny model of this configuration.

    ``source`` is a path of config.json, a mapping of fields, an object of Transformers or a module. ``lock`` is the
    path of a file of ``symattn models lock``: an inferred specification whose line stands there is reviewed. Raises
    ``CannotTell`` with the reason if there is none, ``InputError`` for what cannot be read, ``MissingExtra`` without
    Transformers where there is no row.

    >>> config = {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
    ...           "rope_theta": 10000.0, "num_hidden_layers": 2}
    >>> specify(config).source
    'row'
    """
    c = configuration(source)
    row = _find_row(c)
    # A row is tested against the module of its family, and preferred.
    if row:
        spec = promised_layers.attention(c, layer, kind)
        return Specified(spec, "row", f"by the row of {row} in docs/models.md")
    if kind != "self":
        c.cannot_tell(
            f"no family is called {c.model_type!r}, and only attention of kind self is inferred"
        )
    return infer_layer(c, layer, lock)


def _find_row(c: Configuration) -> str:
    """Return the family whose row describes a configuration, or its text part; "" if there is none."""
    try:
        return promised_layers.known(c)[0].model_type
    except CannotTell:
        return ""


def infer_layer(source: object, layer: int = 0, lock: str | None = None) -> Specified:
    """Return the attention of a layer as ``specify`` does for a family without a row. Raises as it does."""
    c = configuration(source)
    with _reading_fields(c):
        layers = _InferredLayers(c)
        if not whole(layer, 0) or layer >= len(layers.kinds):
            c.cannot_tell(
                f"layer {layer} was requested; there are {len(layers.kinds)}, counted from 0"
            )
        return layers.specify(layer, _read_reviewed_lines(lock), lock)


def infer_layers(source: object, lock: str) -> list[Specified | str]:
    """Return what ``infer_layer`` gives for every layer, from one run of its tiny models; else the reason, in words.

    Raises as ``specify`` does for what no layer has: a file that cannot be read, a missing Transformers.
    """
    reviewed = _read_reviewed_lines(lock)
    c = configuration(source)
    with _reading_fields(c):
        layers = _InferredLayers(c)
        by_kind: dict[str, Specified | str] = {}
        for layer, kind in enumerate(layers.kinds):
            if kind not in by_kind:
                try:
                    by_kind[kind] = layers.specify(layer, reviewed, lock)
                except CannotTell as reason:
                    by_kind[kind] = str(reason)
        return [by_kind[kind] for kind in layers.kinds]


def _read_reviewed_lines(lock: str | None) -> set[str]:
    return set() if lock is None else set(map(_without_layers, read_lock(lock)))


def _without_layers(line: str) -> str:
    """Return a line of a lock as ``line_of`` gives it for a part, without the layers."""
    return re.sub(r", layers [0-9, ]+ of [0-9]+(?= \|)", "", line, count=1)


@contextmanager
def _reading_fields(c: Configuration) -> Iterator[None]:
    """Check what a configuration must have to be inferred, and refuse values of fields that raise in its code."""
    require_transformers()
    _check_depth(c)
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # SymattnError is a ValueError too, with a line of its own; a file may hold any other value in a field.
        if isinstance(error, SymattnError):
            raise
        raise InputError(f"{c}: its fields cannot be read: {one_line(error)[:200]}") from error


def _check_depth(c: Configuration) -> None:
    """Raise ``InputError`` for a number of layers that no model has."""
    inner = c.data.get("text_config")
    for data in (c.data, inner if isinstance(inner, Mapping) else {}):
        for name in tiny_models.DEPTH:
            depth = data.get(name)
            if isinstance(depth, (int, float)) and not 1 <= depth <= tiny_models.MAX_LAYERS:
                raise c.refusal(
                    name, depth, f"a number of layers from 1 to {tiny_models.MAX_LAYERS}"
                )


class _InferredLayers:
    """The layers of a configuration, inferred from tiny models of it."""

    def __init__(self, c: Configuration) -> None:
        self.c, self.config = c, tiny_models.text_part(c.completed)
        self.data = self.config.to_dict()
        self.kinds = tiny_models.kinds_of_layers(self.data)

    @cached_property
    def inference(self) -> Inference:
        """The parts of its tiny models."""
        return infer_configuration(self.config)

    def specify(self, layer: int, reviewed: Container[str], lock: str | None) -> Specified:
        """Return the specification of a layer; ``reviewed`` are lines of the file ``lock``. Raises ``CannotTell``."""
        c = self.c
        kept = enumerate(tiny_models.kept_layers(self.data))
        # Layers of one kind by their fields have to be one kind in a run.
        alike = [place for place, i in kept if self.kinds[i] == self.kinds[layer]]
        parts = [part for part in self.inference.parts if part.layer in alike]
        if not parts:
            c.cannot_tell("no part of such a layer mixes tokens in a tiny model")
        lines = {line_of(c.model_type, part) for part in parts}
        if len(lines) > 1:
            names = ", ".join(f"{part.name} ({part.kind})" for part in parts)
            c.cannot_tell(
                f"layers of the same kind by their fields have unlike parts in a run: {names}"
            )
        part = parts[0]
        if not part.is_explained or part.specification is None:
            _refuse_part(c, part)
        # A line that stands in the lock was looked at.
        is_reviewed = next(iter(lines)) in reviewed
        source = "lock" if is_reviewed else "inferred"
        where = f"reviewed in {lock}" if is_reviewed else "not reviewed"
        words = f"{self.inference.source}, {where}: {part.name} ({part.kind})"
        spec = part.specification
        if isinstance(spec, LinearAttention):
            return Specified(spec, source, f"{words}: {part.spec}")
        before = part.facts.scaled_before if part.facts else False
        return Specified(_in_full_size(c, self.config, part, layer), source, words, before)


def _refuse_part(c: Configuration, part: InferredPart) -> None:
    reasons = [f"no field: {form}" for form in part.missing]
    reasons += [f"not explained: {words}" for words in part.unknown]
    why = "; ".join(reasons) or "only a " + part.spec
    c.cannot_tell(f"{part.name} ({part.kind}): {why}")


def _in_full_size(c: Configuration, config: Any, part: InferredPart, layer: int) -> Attention:
    """Return the specification of a tiny model's part with the numbers of the configuration itself."""
    facts = part.facts
    assert facts is not None
    small = tiny_models.text_part(tiny_models.tiny_of(config).config)
    if width_of_heads(small, part.layer or 0) != facts.d_k:
        c.cannot_tell("d_k is given by no field with a usual name")
    d_k = width_of_heads(config, layer)
    values, numbers = expressions(config, d_k), facts.numbers()
    full: dict[str, float] = {}
    for name in _SHRUNK:
        if numbers[name] in (None, False):
            continue
        candidates = part.fitting.get(name, [])
        fitting = {e: values[name][e] for e in candidates if e in values[name]}
        if not fitting:
            c.cannot_tell(
                f"{name} is {numbers[name]} in a tiny model of {part.kind}, and no field gives it"
            )
        # Fields that are equal in both tiny models may differ in the configuration itself.
        if len(set(fitting.values())) > 1:
            several = " or ".join(f"{e} = {x:g}" for e, x in fitting.items())
            c.cannot_tell(f"{name} may be {several}: tiny models of {part.kind} do not tell which")
        full[name] = next(iter(fitting.values()))
    return _enlarge(facts, d_k, full)


def _enlarge(facts: inferred_call.CallFacts, d_k: int, full: dict[str, float]) -> Attention:
    window = facts.window
    if "window" in full:
        size = int(full["window"])
        window = (size, size) if isinstance(window, tuple) else size
        window = f"blocks of {size}" if isinstance(facts.window, str) else window
    turn = facts.rotation
    if turn is not None:
        turn = replace(turn, width=int(full["rotated"]))
    tempered = facts.temperature
    if tempered is not None:
        tempered = tempered._replace(rate=int(full["temperature_rate"]))
    larger = replace(
        facts,
        d_k=d_k,
        heads=int(full["heads"]),
        kv_heads=int(full["kv_heads"]),
        scale=full["scale"],
        window=window,
        rotation=turn,
        temperature=tempered,
    )
    spec = larger.spec()
    assert spec is not None
    usual = replace(larger, scale=d_k**-0.5).spec()
    assert usual is not None
    # A number read off a run is rounded, the expression in fields is not.
    return spec if spec.scale == usual.scale else replace(spec, scale=full["scale"])


__all__: Sequence[str] = ["CannotTell", "Specified", "infer_layer", "infer_layers", "specify"]
