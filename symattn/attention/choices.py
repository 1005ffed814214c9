"""Whether the fields of a specification mean something, alone and together."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

from symattn.errors import InputError

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

#: What a field may be, where it is one of a few words.
WORDS: dict[str, tuple[str | None, ...]] = {
    "alignment": ("bottom-right", "top-left"),
    "mask": (None, "boolean", "additive"),
    "fully_masked": ("zeros", "nan", "error"),
}
FLAGS = ("causal", "padding", "stabilised")
#: Fields that are whole numbers, and the least; those that may be None say so.
WHOLE: dict[str, tuple[int, bool]] = {"heads": (1, False), "kv_heads": (1, True)}

#: Combinations that make no sense, each with the reason: what must not hold of a specification.
SENSELESS: tuple[tuple[Callable[[Attention], bool], str], ...] = (
    (
        lambda s: s.heads % s.key_heads != 0,
        "kv_heads must divide heads: each head of keys is read by as many heads of queries",
    ),
)


def check_fields(spec: Attention) -> None:
    """Raise InputError for a field that means nothing, and for fields that contradict each other."""
    for field, allowed in WORDS.items():
        if getattr(spec, field) not in allowed:
            raise _refusal(spec, field, f"known: {', '.join(map(str, allowed))}")
    for field in FLAGS:
        if not isinstance(getattr(spec, field), bool):
            raise _refusal(spec, field, "it must be True or False")
    for field, (least, optional) in WHOLE.items():
        value = getattr(spec, field)
        if not (optional and value is None) and (not _whole(value) or value < least):
            raise _refusal(spec, field, f"it must be a whole number from {least} on")
    if spec.scale is not None and not finite(spec.scale):
        raise _refusal(spec, "scale", "it must be a finite number")
    for senseless, reason in SENSELESS:
        if senseless(spec):
            raise InputError(f"Attention: {reason}")


def finite(value: Any) -> bool:
    """Whether a value is a finite number, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refusal(spec: Attention, field: str, mend: str) -> InputError:
    return InputError(f"Attention: {field} is {getattr(spec, field)!r}; {mend}")
