"""Configurations from where they are found: a file, a folder of a checkpoint, an object, a module."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from symattn.attention.codec.json_text import loaded
from symattn.document.errors import InputError
from symattn.models.configurations.configuration import CannotTell, Configuration

MOST_BYTES = 16 * 2**20  # some files list a label for each of 20 000 classes
MOST_DEPTH = 32


def configuration(source: Any) -> Configuration:
    """Read the configuration of ``source``: a path of config.json or of its folder, a mapping, an object or a module.

    A module is read by its attribute ``config``; config.json alone is enough, and Transformers is asked for defaults
    that it leaves out. Raises InputError, in one line, for what cannot be read.
    """
    if isinstance(source, Configuration):
        return source
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return _of_fields(decoded(path), str(path))
    if isinstance(source, Mapping):
        return _of_fields(source, "the configuration")
    if hasattr(source, "to_dict") and hasattr(source, "model_type"):
        return _of_fields({"model_type": source.model_type, **source.to_dict()}, type(source).__name__, source)
    if hasattr(source, "config"):
        return configuration(source.config)
    raise CannotTell(f"{type(source).__name__} has no configuration; hint: give config.json, or a model that has one")


def _of_fields(data: Any, where: str, given: object = None) -> Configuration:
    if not isinstance(data, Mapping):
        raise InputError(f"{where} holds no object of fields, as config.json does")
    family = data.get("model_type")
    if not isinstance(family, str) or not family or len(family) > 100:
        raise CannotTell(f"{where} has no model_type, by which its family is known; hint: write it into the file")
    return Configuration(family, data, where, given)


def decoded(path: Path) -> Any:
    """Return the JSON of a file that nobody vouches for. Raises InputError."""
    path = path / "config.json" if path.is_dir() else path
    data = loaded(path, MOST_BYTES)
    if _depth(data) > MOST_DEPTH:
        raise InputError(f"{path} is nested more than {MOST_DEPTH} levels deep; no configuration is")
    return data


def _depth(data: Any) -> int:
    """How deep the lists and objects of a JSON text are nested."""
    depth, level = 0, [data]
    while level:
        depth += 1
        level = [x for d in level if isinstance(d, (dict, list)) for x in (d.values() if isinstance(d, dict) else d)]
    return depth
