"""Small mistakes in definitions and statements are noticed by a theorem, or shown to be none.

All of definitions and one in six of statements are tried by hand, some of them in the deep run; ``-s`` prints what was
killed by what.
"""

import ast
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

import symattn.attention.softmax
from symattn.proof.inequality import Certificate
from symattn.proof.prover import prove
from symattn.proof.statement import Declared, Letters
from symattn.proof.theorem import Identity
from symattn.proof.together import above_zero
from symattn.theorems import TOPICS
from tests.proof.mutating import Trial, drawn, mutated, summary, tried
from tests.proof.mutation_copy import COPY, Unit, campaign, definition
from tests.proof.mutation_operators import Mutant, mutants
from tests.proof.mutation_survivors import equivalent
from tests.proof.mutation_truths import nearest_weights, true_all_the_same

DEFINED, STATED = 29, 5  # how many tests share the campaign
SAMPLED = ("streaming", "masks")
MISTAKES = {
    "attention.softmax.normalise": "factor squared",
    "attention.streaming.states.tile_state": "sign flipped",
    "attention.streaming.states.merge": "right operand dropped",  # one side not rescaled
    "attention.streaming.states.finish": "operands swapped",
    "attention.masks.causal": "comparison replaced",
    "attention.masks.window": "one more",
    "attention.masks.forbid": "arguments swapped",
}


@pytest.fixture(scope="module")
def units() -> dict[str, Unit]:
    """The functions that the sampled topics run."""
    return {unit.path: unit for unit in campaign(SAMPLED)}


def changes(text: str) -> set[str]:
    """The texts of all mutants of an expression of x and y."""
    function = ast.parse(f"lambda x, y: {text}", mode="eval").body
    assert isinstance(function, ast.Lambda)
    return {ast.unparse(m.tree).removeprefix("lambda x, y: ") for m in mutants(function)}


def test_the_changes_that_are_made():
    assert changes("x @ y.mT") >= {"y.mT @ x", "x @ y", "x.mT @ y.mT", "x", "y.mT", "y @ y.mT", "x @ x.mT"}
    assert changes("x / y") >= {"x * y", "x", "y / x", "x / (y * y)"}
    assert changes("x <= y") >= {"x < y", "x >= y", "x <= y + 1", "x <= y - 1"}
    assert changes("xp.sqrt(x + y)") >= {"xp.sqrt(x) + y", "x + y", "xp.sqrt(x - y)", "xp.sqrt(-(x + y))", "xp.sqrt(x)"}
    assert changes("xp.max(x, axis=-1)") >= {"xp.min(x, axis=-1)", "xp.max(x, axis=-2)", "xp.max(y, axis=-1)"}
    assert changes("f(x, y)") >= {"f(y, x)"}
    assert changes("-x") >= {"x", "-y"}


@pytest.mark.parametrize(
    ("path", "change"), [pytest.param(*m, marks=pytest.mark.deep) for m in MISTAKES.items()], ids=MISTAKES
)
def test_a_mistake_is_noticed(units: dict[str, Unit], path: str, change: str):
    unit = units[path]
    found = [tried(unit, m) for m in mutants(unit.tree) if m.change == change]
    assert any(t.killer and t.how in ("refuted", "undecided", "checked") for t in found)
    assert not [t.key for t in found if t.survived]


@pytest.mark.deep
def test_a_sample_of_statements(units: dict[str, Unit]):
    stated = [u for u in units.values() if u.module in ("theorems.streaming", "theorems.masks")]
    found = [tried(*each) for each in drawn(stated, every=7)]
    assert not [t.key for t in found if t.survived]
    assert sum(t.how in ("refuted", "undecided") for t in found) > 10


@pytest.mark.deep
def test_symattn_is_not_touched(units: dict[str, Unit]):
    unit = units["attention.softmax.softmax"]
    with mutated(unit, first(unit, "sign flipped")):
        s = Letters().array("s", "n m", Declared({}))
        assert unit.function
        assert not prove(unit.function(s), symattn.attention.softmax.softmax(s)).proved
    assert prove(unit.function(s), symattn.attention.softmax.softmax(s)).proved


def first(unit: Unit, change: str) -> Mutant:
    return next(m for m in mutants(unit.tree) if m.change == change)


@pytest.mark.deep
def test_a_mutant_makes_steps_of_its_own(units: dict[str, Unit]):
    assert units
    scaling = definition("attention.stages.weights.scaling")
    spec = import_module(f"{COPY}.attention.spec").Attention(causal=True)
    steps = [step.name for step in spec.pipeline("qkv")]
    with mutated(scaling, first(scaling, "condition negated")):
        assert [step.name for step in spec.pipeline("qkv")] != steps
    assert [step.name for step in spec.pipeline("qkv")] == steps


@pytest.mark.deep
def test_what_is_taken_for_the_same(units: dict[str, Unit]):
    unit = units["attention.softmax.softmax"]
    assert equivalent(unit) == "equal normal forms"
    with mutated(unit, first(unit, "flag flipped")):  # softmax without the maximum
        assert equivalent(unit) == "proved equal for all sizes"
    with mutated(unit, first(unit, "sign flipped")):
        assert not equivalent(unit)


@pytest.mark.deep
def test_what_is_taken_for_true(units: dict[str, Unit]):
    part = next(p for unit in units.values() for p in unit.parts if isinstance(p.method, Identity))
    assert true_all_the_same([part]) == "true in exact numbers, its certificate accepted"
    column = Declared({"x": "n 1"})
    for false in (
        Identity(column, lambda x: (x, 2 * x), lambda x: (x, x + 1)),
        Certificate(column, lambda x: (x * x, x), lambda x: x * x, lambda x: (x, x)),
        above_zero({"x": "n 1"}, lambda x: x),
    ):
        assert not true_all_the_same([part, replace(part, method=false)])


@pytest.mark.deep
def test_nearest_weights(units: dict[str, Unit]):
    unit = definition("attention.softmax.sparsemax")
    assert nearest_weights()
    with mutated(unit, first(unit, "maximum → minimum")):
        assert not nearest_weights()


@pytest.mark.deep
def test_a_survivor_is_reported(units: dict[str, Unit]):
    unit = units["attention.streaming.states.merge"]
    trial = Trial(unit, first(unit, "sign flipped"))
    assert trial.survived
    assert "1 survivors" in summary([trial])


@pytest.fixture(scope="module")
def everywhere() -> list[Unit]:
    """The functions that the theorems of any topic run, and statements of tests."""
    return campaign([*TOPICS], definitions=True)


@pytest.fixture(scope="module")
def misstated(everywhere: list[Unit]) -> list[tuple[Unit, Mutant]]:
    """One mutant in six of statements."""
    return list(drawn([u for u in everywhere if not u.definition], every=6))


def check_noticed(mistakes: list[tuple[Unit, Mutant]]) -> None:
    found = [tried(*each) for each in mistakes]
    print(summary(found))
    assert len(found) > 50
    assert not [t.key for t in found if t.survived]


def shared(parts: int, deep: tuple[int, ...]) -> Any:
    marks = (pytest.mark.deep if part in deep else pytest.mark.exhaustive for part in range(parts))
    return pytest.mark.parametrize("part", [pytest.param(part, marks=mark) for part, mark in enumerate(marks)])


@shared(DEFINED, deep=(0, 15))
def test_mistakes_in_definitions_are_noticed(everywhere: list[Unit], part: int):
    check_noticed(list(drawn([u for u in everywhere if u.definition]))[part::DEFINED])


@shared(STATED, deep=(3, 4))
def test_mistakes_in_statements_are_noticed(misstated: list[tuple[Unit, Mutant]], part: int):
    check_noticed(misstated[part::STATED])
