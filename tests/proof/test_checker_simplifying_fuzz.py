"""What the checker simplifies has the same value as what was written, in numbers that know nothing of its rules."""

import sys
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from symattn.proof import checker_simplifying
from symattn.proof.checker_reading import CheckedNode, Rejected, read
from symattn.proof.checker_simplifying import Simplifying
from tests.proof.certificate_numbers import Unknown, World

Data = list[Any]
SCOPE = {"i": "n", "k": "n"}
POSITIVE = frozenset({"p"})


def written(x: CheckedNode) -> Data:
    """An expression of the checker as a certificate holds it."""
    if x.kind in ("number", "size"):
        return [x.kind, str(x.label)]
    if x.kind == "letter":
        return ["letter", x.label, [list(i) for i in x.indices]]
    if x.kind == "is":
        return ["is", x.label, *[list(i) for i in x.indices]]
    below = [written(y) for y in x.below]
    head = {"function": [x.label], "total": [x.label, *x.sorts], "bound": [x.label, *x.sorts]}.get(x.kind, [])
    return [x.kind, *head, *below]


def index(dice: Random, names: list[str]) -> list[str]:
    return [dice.choice(names), *(["pi"] if dice.random() < 0.2 else [])]


def made(dice: Random, depth: int, names: list[str]) -> Data:
    """An expression drawn at random; the deeper, the simpler."""
    if not depth or dice.random() < 0.1:
        simple = [
            ["number", dice.choice(["0", "1", "-1", "2", "4", "-3/2"])],
            ["letter", dice.choice(["x", "p"]), [index(dice, names)]],
            ["is", dice.choice(["=", "=", "≤", "<"]), index(dice, names), index(dice, names)],
            ["size", "n"],
        ]
        return dice.choice(simple)

    def part(more: list[str] | None = None) -> Data:
        return made(dice, depth - 1, more or names)

    kind = dice.choice(["sum", "product", "product", "total", "total", "ratio", "exp", "masked", "function"])
    if kind in ("sum", "product"):
        same = part()
        return [kind, same, same if dice.random() < 0.3 else part(), part()]
    if kind == "total":
        name = f"j{depth}"
        return ["total", name, "n", part([*names, name])]
    if kind == "ratio":
        return ["ratio", part(), part()]
    if kind == "exp":
        return ["exp", part()]
    if kind == "masked":
        return ["exp", ["masked", ["is", "≤", index(dice, names), index(dice, names)], part()]]
    name, bound = dice.choice(["sqrt", "rsqrt", "log", "sign", "tanh", "max", "max over"]), f"j{depth}"
    if name == "max over":
        return ["function", "max", ["bound", bound, "n", part([*names, bound])]]
    return ["function", name, part(), *([part()] if name == "max" else [])]


def differs(expression: Data, dice: Random, simplifying: Any = Simplifying) -> bool:
    """Whether the simplified expression has another value somewhere."""
    simple = written(simplifying(POSITIVE)(read(expression, SCOPE)))
    for _ in range(3):
        world = World(Random(dice.random()), POSITIVE)
        for at in world.places([[i, sort] for i, sort in SCOPE.items()]):
            try:
                value, other = world.value(expression, at), world.value(simple, at)
            except Unknown:  # one of them has no value there; the checker asks that of what is written
                continue
            if abs(value) < 1e6 and abs(value - other) > 1e-6 * max(1.0, abs(value)):
                return True
    return False


@pytest.mark.parametrize("seed", [0, *[pytest.param(n, marks=pytest.mark.deep) for n in range(1, 12)]])
def test_simplifying_keeps_values(seed: int) -> None:
    dice, seen = Random(seed), 0
    while seen < 200:
        expression = made(dice, 4, list(SCOPE))
        try:
            assert not differs(expression, dice), expression
            seen += 1
        except Rejected:
            continue


SPOILED = {
    "a fixed point of a permutation": ("if other[0] == x.label:", "if False:"),
    "i < i": ('number(int(x.label != "<"))', "number(1)"),
    "order under a permutation": ('x.label == "=" and left[1:]', "left[1:]"),
    "roots joined": ('inside if x.label == "sqrt" else inverse', 'inverse if x.label == "sqrt" else inside'),
    "what is masked": ("_multiplied([allowed, self._raised(value)])", "self._raised(value)"),
    "logarithms turned over": ("(up if sign > 0 else down)", "(down if sign > 0 else up)"),
    "an odd function": ("_multiplied([number(-1), x.of([other])])", "x.of([other])"),
    "two forms of an index": (
        "images[0], (name,)) if len(images) == 1 else x",
        "max(images), (name,)) if images else x",
    ),
    "one term of all": ('if f.kind == "is" and f.label == "=" and', 'if f.kind == "is" and'),
    "a number before a sum": ("if value == -1 and len(rest) == 1", "if len(rest) == 1"),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", SPOILED)
def test_a_rule_that_is_spoiled_changes_values(name: str) -> None:
    right, wrong = SPOILED[name]
    source = Path(checker_simplifying.__file__).read_text(encoding="utf-8")
    assert source.count(right) == 1
    module = ModuleType(checker_simplifying.__name__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        exec(compile(source.replace(right, wrong), "spoiled", "exec"), module.__dict__)
    assert any(_seen(Random(seed), module.__dict__["Simplifying"]) for seed in range(12))


def _seen(dice: Random, simplifying: Any) -> bool:
    for _ in range(200):
        try:
            if differs(made(dice, 4, list(SCOPE)), dice, simplifying):
                return True
        except Rejected:
            continue
    return False
