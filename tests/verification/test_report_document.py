"""Words of reports."""

from __future__ import annotations

import pytest

from symattn.verification.report_document import sentence


@pytest.mark.parametrize("kept", ["dQ is not scaled", "q is rolled", "w_o is left out", "ε is added", "x2 is lost"])
def test_a_formula_in_front_stays_as_it_is(kept: str) -> None:
    assert sentence(kept) == f"{kept}."


@pytest.mark.parametrize("words", ["the scale is left out", "a row is lost", "one-sided mask", "weights: two"])
def test_a_sentence_begins_with_a_capital(words: str) -> None:
    assert sentence(words) == f"{words[0].upper()}{words[1:]}."
