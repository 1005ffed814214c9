"""``attention``: every step of a specification, its formula, its entries, and what can be said of them."""

from __future__ import annotations

from typing import Any

from symattn.document.model import Document

SIZES = ("dk", "dv", "dmodel", "tokens", "keys")
FLAGS = ("cross", "biases")


def parameters() -> tuple[str, ...]:
    """Every parameter that ``derivation`` takes: sizes, which inputs there are, and every field of ``Attention``."""
    from symattn.attention.fields import field_types
    from symattn.attention.spec import Attention

    return (*SIZES, "size", *FLAGS, *field_types(Attention))


def derivation(**parameters: Any) -> Document:
    """The steps of attention on letters: shapes, formulas, entries, and checks of each."""
    from symattn.derivations.attention.attention_document import derivation as told

    return told(**parameters)
