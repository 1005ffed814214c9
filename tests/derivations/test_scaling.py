"""The figures of the derivation of the scaling, against other computations."""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from symattn.derivations import derive
from symattn.derivations.scaling_numpy import ScalingSetting, cube, estimate, moments
from symattn.document.formulas import formula
from symattn.document.model import Document, Heading, Paragraph, Result, Steps, Table
from symattn.document.render import render
from symattn.document.text import text
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.section import Section
from tests.lanes import one_row_in


def table(document: Document) -> Table:
    return next(block for block in document.blocks if isinstance(block, Table))


def column(document: Document, index: int) -> list[str]:
    return [text(row[index][0]) for row in table(document).rows]  # type: ignore[arg-type]


def lines(document: Document) -> list[str]:
    return [text(s.formula) for b in document.blocks if isinstance(b, Steps) for s in b.items]


@cache
def scaling(**parameters: Any) -> Document:
    return derive("scaling", **parameters)


@pytest.mark.deep
def test_the_table() -> None:
    document = scaling(dk=256)
    assert column(document, 0) == ["1", "4", "16", "64", "256"]
    assert column(document, 2)[-1] == "2.35e-07"  # the median collapses
    assert column(document, 3)[-1] == "0.0176"  # its mean does not
    assert column(document, 1)[-1] == "22.63"
    assert table(document).shaded == (4,)


@pytest.mark.deep
@pytest.mark.parametrize(("d_k", "row"), one_row_in(4, [(37, 3), (1, 0), (2, 1), (1000, 5)]))
def test_the_asked_row_is_shaded_in_its_place(d_k: int, row: int) -> None:
    document = scaling(dk=d_k)
    sizes = [int(x) for x in column(document, 0)]
    assert sizes == sorted({1, 4, 16, 64, 256, d_k})
    assert table(document).shaded == (row,)


@pytest.mark.deep
def test_the_results() -> None:
    document = scaling(dk=4)
    results = [text(f) for b in document.blocks if isinstance(b, Result) for f in b.formulas]
    assert "Var(q·k) = d_k σ⁴    Var(q·k) |_{d_k=4} = 4σ⁴" in results
    assert "Var(q·k/√d_k) = σ⁴  for every d_k" in results
    assert "Var(s₁ − s₂) = 2d_k σ⁴    Var((s₁ − s₂)/√d_k) = 2σ⁴  for every d_k" in results
    assert "checked: all 256 points of {±1}⁸" in render(document, "text")
    assert "Var(s) |_{d_k=4} = 4σ⁴ + 8μ²σ²" in lines(document)


@pytest.mark.deep
def test_means() -> None:
    general = lines(scaling(dk=4, mean="mu"))
    assert "Var(s) = d_k σ²(σ² + 2μ²)" in general
    assert "A3" not in render(scaling(dk=4, mean="mu"), "text")
    assert "If the means are not zero" not in render(scaling(dk=4, mean=0), "text")
    assert "μ" not in render(scaling(dk=4, mean="m"), "text").replace("at μ = 0", "")
    third = render(scaling(dk=2, mean="1/3"), "text")
    assert "Var(q·k) |_{μ=1/3} = d_k σ²(σ² + 2/9)" in third
    assert "Var(s)       = 22/9" in third


@pytest.mark.deep
def test_sections_are_named_rightly() -> None:
    for mean in (None, 0, "mu"):
        document = scaling(dk=4) if mean is None else scaling(dk=4, mean=mean)
        titles = [b.title[0] for b in document.blocks if isinstance(b, Heading)]
        printed = " ".join(render(document, "text").split())
        assert f"for “{titles[titles.index('The typical row, and the mean over rows')]}” alone" in printed
        assert ("dropped in “If the means are not zero”" in printed) is (mean is None)
        assert "If the means are not zero" in titles or mean is not None


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 2), (-2, 7), (-(10**12), 10**12 + 1)])
@pytest.mark.parametrize(("d_k", "keys"), [(1, 1), (2, 1), (2, 2)])
def test_the_cube(low: int, high: int, d_k: int, keys: int) -> None:
    wanted = [[], []][:keys]
    for point in product((low, high), repeat=(1 + keys) * d_k):
        query = point[:d_k]
        for j in range(keys):
            key = point[(1 + j) * d_k : (2 + j) * d_k]
            wanted[j].append(sum(a * b for a, b in zip(query, key, strict=True)))
    found = cube(d_k, keys, low, high)
    assert [sorted(map(int, row)) for row in found] == [sorted(row) for row in wanted]
    mean, variance = moments(found[0])
    count = len(wanted[0])
    assert mean == Fraction(sum(wanted[0]), count)
    assert variance == Fraction(sum(x * x for x in wanted[0]), count) - mean**2


def test_standard_errors() -> None:
    """Of many samples, the estimates scatter as their standard errors say."""
    random = np.random.default_rng(5)
    samples = random.standard_normal((400, 2000))
    for spread, closed in ((False, 0.0), (True, 1.0)):
        found = [estimate(sample, spread) for sample in samples]
        scaled = [(value - closed) / error for value, error in found]
        assert 0.9 < np.std(scaled) < 1.1
        assert abs(np.mean(scaled)) < 0.25


@pytest.mark.deep
def test_paragraphs_name_the_seed() -> None:
    words = [b.text[0] for b in scaling(dk=64, seed=7).blocks if isinstance(b, Paragraph)]
    assert any("seed 7" in str(w) for w in words)


@pytest.mark.parametrize("part", ["moments", "independent", "centred"])
def test_no_grade_goes_without_an_assumption_that_its_law_makes(part: str) -> None:
    setting = ScalingSetting(4)
    made = setting.main()
    claim = formula("Var(s) = d_k σ⁴")
    assert str(Section(made).claim(claim, "").evidence) == "proved: all sizes, under A1–A3"
    fewer = {label: words for label, words in made.labels.items() if words != part}
    with pytest.raises(FalseStep, match=rf"no assumption says how . is drawn \({part}\)"):
        Section(replace(made, labels=fewer)).claim(claim, "")


def test_any_mean_does_not_need_that_it_is_zero() -> None:
    claim = formula("E[s] = d_k μ²")
    assert str(Section(ScalingSetting(4).score().where("s = q·k")).claim(claim, "").evidence).endswith(
        "under A1 and A2"
    )
