"""What a page shows of a walk: every query, each array's rule, and formulas that are what its steps compute."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Evidence, Grade, kinds, printing, walk
from symattn.derivations import examples
from symattn.derivations.walks import steps
from symattn.derivations.walks.page import rule
from symattn.derivations.walks.walk_data import Walk
from symattn.proof.relations.comparing import FalseStep
from tests.lanes import one_in


def made(found: Walk, of: tuple[str, ...]) -> np.ndarray:
    """An array by its rule, from those that the rule names."""
    kind, first, *second = of
    a, (b, *_) = found.arrays[first], [*(found.arrays[name] for name in second), None]
    if kind == "softmax":
        powers = np.vectorize(lambda x: 0 if isinstance(x, kinds.Forbidden) else x.exp(), otypes=[object])(a)
        return powers / powers.sum(-1, keepdims=True)
    table = {"dot": lambda: a @ b, "rows": lambda: a @ b.T, "products": lambda: a[..., None] * b[..., None, :, :]}
    return table[kind]()


@pytest.mark.parametrize("name", one_in(4, examples.names()))
def test_entries_are_made_by_the_rule_that_is_shown(name: str) -> None:
    found = Walk(examples.load(name), "float32")
    rules = {array: rule(found, array) for array in (*found.pipeline, "weighted")}
    for array, of in rules.items():
        if of and of[0] != "each":
            assert bool(np.all(made(found, of) == found.arrays[array])), array
    if name == "eight-step":
        assert rules["weights"] == ("softmax", "scores")
        assert rules["scores"] == ("rows", "q", "k")
        assert not np.all(made(found, ("dot", "q", "k")) == found.arrays["scores"])


def test_a_page_shows_every_query() -> None:
    document = walk("eight-step")
    assert document.page is not None
    blocks = document.page()
    heats = [b for b in blocks if isinstance(b, printing.Heat)]
    assert [len(b.rows) for b in heats] == [1, 3]
    assert all(printing.text(x) == "1" for b in heats for x in b.sums)
    tables = [b for b in blocks if isinstance(b, printing.Table) and b.framed]
    assert [len(b.rows) for b in tables] == [3, 9]
    assert "--all shows it" not in document.html()
    assert "--all shows it" in document.text()


@pytest.mark.deep
def test_a_page_without_room_for_a_heat_map_says_how_to_see_the_rest() -> None:
    many = walk({"x": [[i, 1] for i in range(9)]}, scale="1/d_k")
    assert many.page is not None
    assert not any(isinstance(b, printing.Heat) for b in many.page())
    assert "--all shows it" in many.html()
    assert "--all shows it" not in walk({"x": [[i, 1] for i in range(9)]}, scale="1/d_k", all=True).html()


def test_steps_that_are_left_empty_stay_empty_on_the_page() -> None:
    assert walk("eight-step", blank="5,6").page is None
    assert walk("eight-step", step=5).page is None


def test_what_is_put_before_a_document_is_on_its_page() -> None:
    note = printing.Note(("This is head 1.",))
    assert "This is head 1." in walk("eight-step").opened_by(note).html()


@pytest.mark.deep
@pytest.mark.parametrize("name", ["decoder-step", "t5"])
def test_weights_of_several_heads_may_be_rounded_on_a_page(name: str) -> None:
    assert "exact − rounded" in walk(name, all=True, rounding="nearest").html()


TOKENS = {"x": [[1, 0], ["1/2", 1]]}


@pytest.mark.parametrize("step", ["scores", "weights", "output"])
def test_a_false_formula_is_not_printed(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Attention.pipeline

    def wrong(spec: Any, given: frozenset[str]) -> Any:
        return tuple(replace(s, run=lambda *a, run=s.run: 2 * run(*a)) if s.name == step else s
                     for s in honest(spec, given))  # fmt: skip

    monkeypatch.setattr(Attention, "pipeline", wrong)
    with pytest.raises(FalseStep, match="not"):
        walk(TOKENS, why=True)


def test_weights_that_do_not_sum_to_one_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Walk.arrays.func

    def doubled(found: Walk) -> dict[str, Any]:
        arrays = honest(found)
        return {**arrays, "weights": arrays["weights"] * 2}

    assert "each of 2 rows sums to 1 exactly" in " ".join(walk(TOKENS, step=5).text().split())
    monkeypatch.setattr(Walk, "arrays", property(doubled))
    monkeypatch.setattr(Walk, "evidence", lambda found, name: Evidence(Grade.CHECKED, "entry by entry"))
    with pytest.raises(FalseStep, match="the weights of a row do not sum to 1"):
        walk(TOKENS, step=5)


def test_a_head_that_reads_another_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "same", lambda x, y: False)
    with pytest.raises(FalseStep, match="does not read head"):
        walk("decoder-step")


def test_the_weights_are_powers_of_the_base_and_of_the_scores_that_are_shown() -> None:
    assert "aᵢⱼ = e^(sᵢⱼ)/" in walk("eight-step", why=True).text()
    assert "aᵢⱼ = 2^(sᵢⱼ)/" in walk("eight-step", why=True, base=2).text()
    assert "aᵢⱼ = e^(s′ᵢⱼ)/" in walk("eight-step", why=True, scale=3).text()
    assert "aᵢⱼ = e^(sᵢⱼ)/(1 + Σ" in walk("eight-step", why=True, sink="zero").text()
