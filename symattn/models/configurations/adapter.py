"""``attention``: the specification of one layer of a model, by its configuration."""

from __future__ import annotations

from typing import Any, get_args

from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.models.configurations.configuration import Configuration, configuration
from symattn.models.configurations.field_rules import Kind, LayerPlace
from symattn.models.configurations.model_families import FAMILIES, ModelFamily

KINDS: tuple[str, ...] = get_args(Kind)


def attention(source: Any, layer: int | None = None, kind: str = "self", called: bool = False) -> Attention:
    """The attention that a configuration promises for one of its layers.

    source  a path of config.json or of its folder, its fields as a mapping, a configuration of Transformers, or a
            module with one
    layer   counted from 0; None is that of the module (its ``layer_idx``) if it has one, else 0
    kind    ``self``; of models with two halves ``encoder``, ``decoder`` or ``cross``
    called  of the call alone: what is done to queries and keys before it may have no field, and is left out

    It speaks of q, k, v before rotations and norms, as the steps of ``Attention`` do. What a call adds, such as
    padding, is in no configuration: ``dataclasses.replace(spec, padding=True)``. Raises CannotTell where configuration
    and family do not say what the attention is, and InputError for a configuration that cannot be read.

    >>> told = {"model_type": "mistral", "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
    ...         "sliding_window": 8, "rope_theta": 10000.0}
    >>> attention(told)
    Attention(causal=True, window=8, heads=4, kv_heads=2, position=Rotary())
    """
    return partly(source, layer, kind, called)[0]


def partly(source: Any, layer: int | None, kind: str = "self", called: bool = True) -> tuple[Attention, str]:
    """The attention without positions that is unsettled, and why: of the ``called`` one, they are done before it."""
    c, family = known(source)
    if family.before and not called:
        c.cannot_tell(f"{family.before}, for which there is no field")
    at = LayerPlace(c, _layer(source, layer), _kind(c, family, kind))
    depth = c.count(*family.depth(at.kind))
    if not 0 <= at.layer < depth:
        raise InputError(f"{c}: layer {at.layer} was requested; there are {depth}, counted from 0")
    fields: dict[str, Any] = {}
    open_ = ""
    for rule in family.kinds[at.kind]:
        try:
            fields |= rule(at)
        except InputError as error:
            if not (called and rule.before):
                raise
            open_ = str(error)
    return Attention(**fields), open_


def layers(source: object, kind: str = "self") -> int:
    """How many layers the configuration has. Raises as ``attention`` does."""
    c, family = known(source)
    return c.count(*family.depth(_kind(c, family, kind)))


def known(source: Any) -> tuple[Configuration, ModelFamily]:
    """Return a configuration and the row of its family, or those of the text of a model which also sees or hears.

    Raises CannotTell where there is no such row.
    """
    c = configuration(source)
    if c.model_type not in FAMILIES and isinstance(c.optional("text_config"), dict):
        inner = c.part("text_config")
        c = inner if inner.model_type in FAMILIES else c
    if c.model_type not in FAMILIES:
        c.cannot_tell(f"no family is called {c.model_type[:60]!r}; docs/models.md has a row for each known family")
    return c, FAMILIES[c.model_type]


def _kind(c: Configuration, family: ModelFamily, kind: str) -> Any:
    if kind not in KINDS:
        raise InputError(f"kind is {kind!r}; known: {', '.join(KINDS)}")
    if kind not in family.kinds:
        raise InputError(f"{c} has no attention of the kind {kind!r}; it has {', '.join(family.kinds)}")
    return kind


def _layer(source: object, layer: int | None) -> int:
    if layer is None:
        index = getattr(source, "layer_idx", None)
        return index if isinstance(index, int) else 0
    if not isinstance(layer, int) or isinstance(layer, bool):
        raise InputError(f"layer must be an integer, got {layer!r}")
    return layer
