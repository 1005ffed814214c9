"""Numbers that somebody wrote in decimal are printed so, and stay exact."""

import re
from fractions import Fraction
from typing import Any

import pytest

from symattn import Attention, Block, Latent, LinearScaling, NTKScaling, Rotary, YarnScaling
from symattn.document.formulas import formula
from symattn.document.notation import WrittenNumber, node
from symattn.document.text import text

_DECIMALS = (
    Attention(qk_norm="rms", eps=1e-6), Attention(value_norm="rms", eps=0.001), Attention(scale=0.3, softcap=0.7),
    Attention(score="cosine", scale=2.1), Attention(latent=Latent(norm="rms", eps=2.5e-6)),
    Attention(position=Rotary(scaling=LinearScaling(factor=4.1))), Block(attention=Attention(), eps=1e-6),
    Attention(position=Rotary(scaling=YarnScaling(factor=2.7, length=64, weight=0.707))),
    Attention(position=Rotary(base=10000.1, scaling=NTKScaling(factor=4.1, length=4))),
)  # fmt: skip


@pytest.mark.parametrize("spec", _DECIMALS, ids=repr)
def test_decimals_of_a_definition_are_printed_as_they_were_written(spec: Any) -> None:
    document = spec.document()
    printed = (str(document), document.latex())
    assert not any(re.search(r"\d{8}", text) for text in printed)


@pytest.mark.parametrize(
    ("number", "typed"),
    [(0.3, "0.3"), (-0.3, "−0.3"), (1e-6, "10^{-6}"), (2.5e-7, "2.5 · 10^{-7}"), (0.25, "1/4"), (-2.5, "−5/2"),
     (3, "3"), (Fraction(1, 3), "1/3"), (Fraction(1, 10**6), "1/1000000"), (4.0, "4"), (1e30, "10^{30}")],
)  # fmt: skip
def test_a_written_number_is_typed_as_it_is_read_and_has_its_exact_value(
    number: int | float | Fraction, typed: str
) -> None:
    written = WrittenNumber(number)
    assert written.typed == typed.replace("-", "−")
    assert text(formula(written.typed)) == text(node(written))
    assert (written, written + 1) == (Fraction(number), Fraction(number) + 1)
