"""The formulas that a walk prints are what its steps compute, and are refused where they are not."""

from dataclasses import replace
from typing import Any

import pytest

from symattn.attention import spec as specification
from symattn.derivations.steps import FalseStep
from symattn.derivations.walks import steps, walk

TOKENS = {"x": [[1, 0], ["1/2", 1]]}


@pytest.mark.parametrize("step", ["scores", "weights", "output"])
def test_a_false_formula_is_not_printed(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = specification.pipeline

    def wrong(spec: Any, given: frozenset[str]) -> Any:
        return tuple(replace(s, run=lambda *a, run=s.run: 2 * run(*a)) if s.name == step else s
                     for s in honest(spec, given))  # fmt: skip

    monkeypatch.setattr("symattn.attention.spec.pipeline", wrong)
    with pytest.raises(FalseStep, match="not"):
        walk(TOKENS, why=True)


def test_a_head_that_reads_another_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "same", lambda x, y: False)
    with pytest.raises(FalseStep, match="does not read head"):
        walk("decoder-step")


def test_the_weights_are_powers_of_the_base_and_of_the_scores_that_are_shown() -> None:
    assert "aᵢⱼ = e^(sᵢⱼ)/" in walk("eight-step", why=True).text()
    assert "aᵢⱼ = 2^(sᵢⱼ)/" in walk("eight-step", why=True, base=2).text()
    assert "aᵢⱼ = e^(s′ᵢⱼ)/" in walk("eight-step", why=True, scale=3).text()
    assert "aᵢⱼ = e^(sᵢⱼ)/(1 + Σ" in walk("eight-step", why=True, sink="zero").text()
