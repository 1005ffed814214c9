"""``Configuration``: the fields of a model's configuration, each checked when it is read; and ways to open one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from symattn.attention.codec.json_text import loaded
from symattn.attention.fields import finite, whole
from symattn.document.errors import InputError, MissingExtra

MOST = 2**31 - 1  # largest whole number: no size or count of a model is larger
_LARGEST = 1e300  # largest number, since all are used as floats
MOST_BYTES = 16 * 2**20  # some files list a label for each of 20 000 classes
# Levels of lists and objects in a file, which is untrusted.
MOST_DEPTH = 32
# Distinguishes a default that is missing from one that is null.
_ABSENT = object()


class CannotTell(InputError):
    """Raised if neither the configuration nor its family's row determines the attention; the message says why."""


# Fields that may be lists with an entry for each layer.
_BY_LAYER = frozenset({"num_attention_heads", "num_key_value_heads", "head_dim"})


@dataclass(frozen=True)
class Configuration:
    """The contents of a configuration.

    model_type  the family, such as ``llama``
    data        the fields as written in config.json
    where       its name in messages: the path of a file, or ``the configuration``
    given       the object of Transformers if there is one, which has every default
    """

    model_type: str
    data: Mapping[str, object]
    where: str = "the configuration"
    given: Any = None

    def __contains__(self, name: str) -> bool:
        return name in self.data

    def __str__(self) -> str:
        return f"{self.where} ({self.model_type})"

    def find(self, *names: str) -> object:
        """Return the field by the first of its names that is written, else the default of its class in Transformers.

        Raises ``CannotTell`` if a default is needed and Transformers is not installed, ``InputError`` if there is no
        such default.
        """
        for name in names:
            if name in self.data:
                return self.data[name]
        value = self.default(*names)
        if value is _ABSENT:
            raise InputError(f"{self} has no {names[0]}; hint: write it into the configuration")
        return value

    def required(self, name: str) -> object:
        """Return the field, or the default of its class if it is null or not written. Raises as ``find``."""
        value = self.data.get(name)
        result = self.default(name) if value is None else value
        if result is _ABSENT or result is None:
            raise InputError(f"{self} has no {name}; hint: write it into the configuration")
        return result

    def optional(self, name: str, otherwise: object = None) -> object:
        """Return a field if it is written, else ``otherwise``; no class has a default for it."""
        return self.data.get(name, otherwise)

    def default(self, *names: str) -> object:
        """Return the default of this configuration's class for a field that is not written."""
        try:
            # Defaults live in the class of Transformers.
            config = self.completed
        except ImportError as error:
            missing = MissingExtra("transformers", "transformers")
            raise CannotTell(f"{self} leaves out {names[0]}, whose default {missing}") from error
        for name in names:
            if hasattr(config, name):
                return getattr(config, name)
        return _ABSENT

    @cached_property
    def completed(self) -> Any:
        """The object of Transformers with every default. Raises ``ImportError`` without it, or ``InputError``."""
        if self.given is not None:
            return self.given
        from transformers import CONFIG_MAPPING

        if self.model_type not in CONFIG_MAPPING:
            raise CannotTell(
                f"{self}: Transformers has no such model_type, from which defaults could be taken"
            )
        try:
            return CONFIG_MAPPING[self.model_type].from_dict(dict(self.data))
        except Exception as error:
            # the field, then what is wrong with it
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"{self}: Transformers refuses it: {reason[:240]}") from error

    def part(self, name: str) -> Configuration:
        """Return the configuration of a part, such as ``text_config`` of a vision model."""
        inner = self.data[name]
        if not isinstance(inner, Mapping):
            raise self.refusal(name, inner, "an object of fields")
        # A part without a type of its own belongs to the family of the whole.
        family = inner.get("model_type") or self.model_type
        if not isinstance(family, str):
            raise self.refusal(f"{name}.model_type", family, "a text")
        original = getattr(self.given, name, None)
        return replace(
            self, model_type=family, data=inner, where=f"{self.where}: {name}", given=original
        )

    def of_layer(self, layer: int) -> Configuration:
        """Return the configuration with the fields of one layer, counted from 0, in the place of those of the model.

        They stand in ``per_layer_config``, or in lists with an entry for each layer, as numbers of heads do. Raises
        ``InputError`` if a list is too short.
        """
        by_layer = self.data.get("per_layer_config") or {}
        if not isinstance(by_layer, Mapping):
            raise self.refusal("per_layer_config", by_layer, "an object with fields for layers")
        # JSON has texts for names, objects of Transformers have numbers.
        own = by_layer.get(layer, by_layer.get(str(layer))) or {}
        if not isinstance(own, Mapping):
            raise self.refusal(f"per_layer_config.{layer}", own, "an object of fields")
        fields = {**self.data, **own}
        for name in _BY_LAYER & fields.keys():
            values = fields[name]
            if isinstance(values, (list, tuple)):
                if not 0 <= layer < len(values):
                    wanted = f"a number, or a list of {layer + 1} numbers or more"
                    raise self.refusal(name, values, wanted)
                fields[name] = values[layer]
        return self if fields == self.data else replace(self, data=fields)

    # -- checked values ------------------------------------------------------------------------------------------------
    def count(self, *names: str) -> int:
        """Return a whole number of at least 1."""
        return self.as_count(names[0], self.find(*names))

    def count_or_none(self, *names: str) -> int | None:
        """Return a whole number of at least 1, or None for null."""
        return None if self.find(*names) is None else self.count(*names)

    def as_count(self, name: str, value: object, least: int = 1) -> int:
        """Return the value of a field as a whole number. Raises ``InputError``."""
        # Some writers of JSON write whole numbers as floats.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or not whole(value, least) or value > MOST:
            raise self.refusal(name, value, f"a whole number from {least} to {MOST}")
        return value

    def number(self, *names: str) -> int | float:
        """Return a finite number above 0."""
        return self.as_number(names[0], self.find(*names))

    def as_number(self, name: str, value: object) -> int | float:
        """Return a field's value as a number above 0 of at most 10³⁰⁰, an int if whole. Raises ``InputError``."""
        # the size first: larger integers cannot be converted to a float
        if (
            not isinstance(value, (int, float))
            or abs(value) > _LARGEST
            or not finite(value)
            or value <= 0
        ):
            raise self.refusal(name, value, f"a finite number above 0 and of at most {_LARGEST:g}")
        return int(value) if value == int(value) and value <= MOST else float(value)

    def flag(self, *names: str, otherwise: object = _ABSENT) -> bool:
        """Return a boolean; null is False. ``otherwise``: the default of every class, so that none needs to be read."""
        value = self.find(*names) if otherwise is _ABSENT else self.optional(names[0], otherwise)
        if value is not None and not isinstance(value, bool):
            raise self.refusal(names[0], value, "true or false")
        return bool(value)

    def words(self, name: str, least: int) -> list[str]:
        """Return a list of at least so many strings, one for each layer."""
        value = self.required(name)
        if (
            not isinstance(value, (list, tuple))
            or not all(isinstance(x, str) for x in value)
            or len(value) < least
        ):
            raise self.refusal(name, value, f"a list of {least} texts or more, one for each layer")
        return list(value)

    def refusal(self, name: str, value: object, wanted: str) -> InputError:
        """Return the error for a field with an invalid value."""
        # Long values are described, not printed.
        if isinstance(value, (Mapping, list, tuple)) and len(value) > 4:
            words = (
                f"{'an object' if isinstance(value, Mapping) else 'a list'} of {len(value)} entries"
            )
        elif isinstance(value, int) and abs(value) > 10**20:
            words = "a number of more than 20 digits"
        else:
            words = repr(value)
            words = words if len(words) <= 60 else words[:57] + "…"
        return InputError(f"{self}: {name} must be {wanted}, got {words}")

    def cannot_tell(self, reason: str) -> NoReturn:
        """Raise ``CannotTell`` with the reason."""
        raise CannotTell(f"{self}: cannot tell: {reason}")


def configuration(source: object) -> Configuration:
    """Read the configuration of ``source``: a path of config.json or of its folder, a mapping, an object or a module.

    A module is read by its attribute ``config``. config.json alone is enough; defaults that it leaves out come from
    Transformers. Raises ``InputError``, in one line, for a source that cannot be read.
    """
    # Already read.
    if isinstance(source, Configuration):
        return source
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return _of_fields(decoded(path), str(path))
    if isinstance(source, Mapping):
        return _of_fields(source, "the configuration")
    # Objects of Transformers write themselves as fields.
    if hasattr(source, "to_dict") and hasattr(source, "model_type"):
        return _of_fields(
            {"model_type": source.model_type, **source.to_dict()}, type(source).__name__, source
        )
    if hasattr(source, "config"):
        return configuration(source.config)
    raise CannotTell(
        f"{type(source).__name__} has no configuration; hint: give config.json, or a model that has one"
    )


def _of_fields(data: object, where: str, given: object = None) -> Configuration:
    if not isinstance(data, Mapping):
        raise InputError(f"{where} holds no object of fields, as config.json does")
    family = data.get("model_type")
    if not isinstance(family, str) or not family or len(family) > 100:
        raise CannotTell(
            f"{where} has no model_type, by which its family is known; hint: write it into the file"
        )
    return Configuration(family, data, where, given)


def decoded(path: Path) -> object:
    """Return the JSON of an untrusted file. Raises ``InputError``."""
    path = path / "config.json" if path.is_dir() else path
    data = loaded(path, MOST_BYTES)
    # how deep lists and objects are nested
    depth, level = 0, [data]
    while level:
        depth += 1
        level = [
            x
            for d in level
            if isinstance(d, (dict, list))
            for x in (d.values() if isinstance(d, dict) else d)
        ]
    if depth > MOST_DEPTH:
        raise InputError(
            f"{path} is nested more than {MOST_DEPTH} levels deep; no configuration is"
        )
    return data
