"""What ``attention`` may be asked for: sizes, which inputs there are, and every field of ``Attention``."""

from __future__ import annotations

SIZES = ("dk", "dv", "dmodel", "tokens", "keys")
FLAGS = ("cross", "biases")


def parameters() -> tuple[str, ...]:
    """Every parameter that ``request`` takes."""
    from symattn.attention.fields import field_types
    from symattn.attention.spec import Attention

    return (*SIZES, "size", *FLAGS, *field_types(Attention))
