"""``attention``: every step of a specification, with its formula, its entries and their properties."""

from __future__ import annotations

from typing import Any

from symattn.document.model import Document

SIZES = ("dk", "dv", "dmodel", "tokens", "keys")
FLAGS = ("cross", "biases")


def parameters() -> tuple[str, ...]:
    """Return the parameters that ``derivation`` takes: sizes, flags of inputs, and every field of ``Attention``."""
    from symattn.attention.fields import field_types
    from symattn.attention.spec import Attention

    return (*SIZES, "size", *FLAGS, *field_types(Attention))


def derivation(**parameters: Any) -> Document:
    """Return the steps of attention on letters: shapes, formulas, entries, and checks of each."""
    from symattn.derivations.attention.attention_document import derivation as document

    return document(**parameters)
