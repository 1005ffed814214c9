"""``attention``: every step of a specification, its formula, its entries, and what can be said of them."""

from __future__ import annotations

from typing import Any

from symattn.document.model import Document


def derivation(**parameters: Any) -> Document:
    """The steps of attention on letters: shapes, formulas, entries, and checks of each."""
    from symattn.derivations.attention.document import derivation as told

    return told(**parameters)
