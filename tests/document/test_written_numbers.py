"""Numbers that somebody wrote in decimal are printed so, and stay exact."""

import re
from fractions import Fraction
from typing import Any

import pytest

from symattn import Attention, Block, Latent, LinearScaling, NTKScaling, Rotary, YarnScaling, kind, printing

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
    [(0.3, "0.3 S"), (-0.3, "−0.3 S"), (1e-6, "10^{−6} S"), (2.5e-7, "(2.5 · 10^{−7}) S"), (0.25, "(1/4) S"),
     (-2.5, "−(5/2) S"), (3, "3 S"), (Fraction(1, 3), "(1/3) S"), (Fraction(1, 10**6), "(1/1000000) S"), (4.0, "4 S"),
     (1e30, "10^{30} S")],
)  # fmt: skip
def test_a_number_is_printed_as_it_was_written_and_has_its_exact_value(
    number: int | float | Fraction, typed: str
) -> None:
    spec = Attention(scale=number)
    steps = [step for b in spec.document().blocks if isinstance(b, printing.Steps) for step in b.items]
    printed = next(step.formula for step in steps if printing.text(step.formula).startswith("S′ ="))
    assert printing.text(printed) == printing.text(printing.formula(f"S′ = {typed}"))
    one = kind("exact").lift([[1]])
    assert spec.trace(q=one, k=one, v=one)["scaled"].item() == Fraction(number)
