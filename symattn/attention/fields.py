"""Checks of a field's value against its annotation: words, booleans, integers, finite numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from math import isfinite
from numbers import Rational, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from symattn.document.errors import InputError, perhaps
from symattn.document.keywords import Answering


@cache
def field_types(description: type) -> dict[str, Any]:
    """Return the type of each field from its annotation."""
    from symattn.attention.latent import Latent
    from symattn.attention.positions.position_fields import Position

    # ``spec_fields`` imports these for type checking only.
    hints = get_type_hints(description, localns={"Latent": Latent, "Position": Position})
    return {f.name: hints[f.name] for f in fields(description)}


def members(hint: object) -> tuple[Any, ...]:
    """Return the types that a union is made of, nested unions flattened."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    return tuple(m for part in parts for m in members(part)) if parts else (hint,)


def words(hint: object) -> tuple[Any, ...]:
    """Return the values of ``Literal`` among the members."""
    return tuple(w for m in members(hint) if get_origin(m) is Literal for w in get_args(m))


@cache
def _sort_fields_by_annotation(
    description: type,
) -> tuple[dict[str, tuple[Any, ...]], list[str], set[str]]:
    """Return the fields that hold words, with the permitted words; those that are booleans; those that may be None."""
    kinds = {name: {*members(hint)} - {NoneType} for name, hint in field_types(description).items()}
    texts = {
        name: words(hint)
        for name, hint in field_types(description).items()
        if all(get_origin(m) is Literal for m in kinds[name]) and isinstance(words(hint)[0], str)
    }
    optional = {
        name for name, hint in field_types(description).items() if NoneType in members(hint)
    }
    return texts, [name for name, kind in kinds.items() if kind == {bool}], optional


def check(spec: Any, **least: int) -> None:
    """Raise InputError unless words and booleans are as annotated, ε is at least 0, each field in ``least`` is an
    integer of at least that size, and each ``described`` field has its default or a value that it permits.
    """
    kind: type = type(spec)
    texts, flags, optional = _sort_fields_by_annotation(kind)
    for name, known in texts.items():
        value, allowed = getattr(spec, name), (*((None,) if name in optional else ()), *known)
        # The type comes first, as comparing an array with words gives no truth value.
        if (value is not None and not isinstance(value, str)) or value not in allowed:
            raise refusal(spec, name, f"be one of {', '.join(map(str, allowed))}", known)
    for name in flags:
        if not isinstance(getattr(spec, name), bool):
            raise refusal(spec, name, "be True or False")
    if "eps" in field_types(kind) and not (finite(spec.eps) and spec.eps >= 0):
        raise refusal(spec, "eps", "be a finite number of at least 0")
    for name, lowest in least.items():
        value = getattr(spec, name)
        if not (value is None and name in optional) and not whole(value, lowest):
            raise refusal(spec, name, f"be an integer of at least {lowest}")
    for field in fields(spec):
        value = getattr(spec, field.name)
        for permitted, must in field.metadata.get("permitted", ()):
            # The default is always permitted, also where it breaks the rule, such as None.
            if value is not field.default and not permitted(value):
                raise refusal(spec, field.name, must)


def whole(value: object, lowest: int) -> bool:
    """Return whether a value is an integer of at least ``lowest``, and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


def finite(value: object) -> bool:
    """Return whether a value is a finite number, and not a boolean."""
    if isinstance(value, Rational):
        return not isinstance(value, bool)
    return isinstance(value, Real) and isfinite(value)


def refusal(spec: object, field: str, rule: str, known: Iterable[str] = ()) -> InputError:
    """Return the error for a field that breaks a rule, such as "be an integer", with the known word that is nearest."""
    value = getattr(spec, field)
    shown = str(value) if isinstance(value, Rational) else repr(value)
    return InputError(
        f"{type(spec).__name__}: {field} must {rule}, got {shown}{perhaps(str(value), known)}"
    )


# -- representations ---------------------------------------------------------------------------------------------------
def brief(self: object) -> str:
    """Return the call that makes a description, with only the fields that differ from their defaults; a ``__repr__``.

    >>> from symattn import Attention, Rotary
    >>> Attention(heads=2, position=Rotary(base=500000))
    Attention(heads=2, position=Rotary(base=500000))
    """
    kind: type = type(self)
    values = [
        (name, x, usual)
        for name, usual in _default_field_values(kind)
        if (x := getattr(self, name)) is not usual
    ]
    # 0.0 in place of 0 is shown, since results then have another type
    changed = [
        f"{name}={x!r}" for name, x, usual in values if type(x) is not type(usual) or x != usual
    ]
    return f"{type(self).__name__}({', '.join(changed)})"


@cache
def _default_field_values(description: type) -> tuple[tuple[str, Any], ...]:
    """Return the default of each field."""
    return tuple((f.name, f.default) for f in fields(description))


class Described(Answering):
    """A description by fields: its ``repr`` is the call that makes it, and values must be as annotated."""

    __repr__ = brief

    def __post_init__(self) -> None:
        check(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: steps can be made again, and hold functions that cannot be pickled."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
