"""Where a specification comes from that no field says: a preset, or the configuration of a model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symattn.attention.presets import like
from symattn.attention.spec import Attention
from symattn.document.errors import InputError


@dataclass(frozen=True)
class Origin:
    """The options of a command line that name it, and the attention that it gives, before fields are changed."""

    options: Mapping[str, object]
    spec: Attention


#: Plain attention, which no word names.
PLAIN = Origin({}, Attention())


def of_preset(name: str) -> Origin:
    """``--like NAME``. Raises InputError for a name that no preset has."""
    return Origin({"like": name}, like(name))


def of_configuration(source: Any, layer: int | None = None, kind: str = "self") -> Origin:
    """``--config FILE --layer N --kind KIND``; raises as ``symattn.models.configurations.attention`` does."""
    from symattn.models.configurations import attention

    path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "config.json"
    options = {"config": path, "layer": layer or None, "kind": kind if kind != "self" else None}
    return Origin(options, attention(source, layer, kind))


def meant(spec: object, config: object, layer: int | None, kind: str) -> Any:
    """The specification that is given, or that of a layer of a model; raises InputError for both at once."""
    if config is None:
        if layer is not None or kind != "self":
            raise InputError("layer and kind belong to config, which is not given")
        return spec
    if spec is not None:
        raise InputError("spec and config are two specifications; hint: give one of them")
    return of_configuration(config, layer, kind).spec
