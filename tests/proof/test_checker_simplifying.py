"""Each step of simplification of the checker, in what is true by it or only looks so, and in random numbers."""

import sys
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from symattn import kinds, proving
from symattn.proof import checker_simplifying
from symattn.proof.checker_reading import Rejected, read
from symattn.proof.checker_values import CheckedValue, Point
from tests.proof.certificate_numbers import Unknown, World

Parts = list[Any]
X: Parts = ["letter", "x", [["i"]]]
Y: Parts = ["letter", "y", [["i"]]]
XJ: Parts = ["letter", "x", [["j"]]]
ONE, TWO, MINUS = ["number", "1"], ["number", "2"], ["number", "-1"]
ROOT, INVERSE = ["function", "sqrt", X], ["function", "rsqrt", X]
FOUR = ["product", ["number", "4"], X]
LOG = ["function", "log", Y]
MASKED = ["masked", ["is", "≤", ["i"], ["k"]], X]


def total(body: Parts) -> Parts:
    return ["total", "j", "n", body]


def permuted(name: str, *indices: str) -> Parts:
    return ["letter", name, [list(indices)]]


TRUE: dict[str, tuple[Parts, Parts]] = {
    "flat sums": (["sum", ["sum", X, ONE], ["sum", Y, MINUS]], ["sum", Y, X]),
    "minus a sum": (
        ["exp", ["product", MINUS, ["sum", X, Y]]],
        ["exp", ["sum", *[["product", MINUS, z] for z in (X, Y)]]],
    ),
    "a relation of all terms": (
        ["sum", *[["product", ["is", "≤", ["i"], ["k"]], z] for z in (X, Y)]],
        ["product", ["is", "≤", ["i"], ["k"]], ["sum", X, Y]],
    ),
    "i < i": (["product", ["is", "<", ["i"], ["i"]], X], ["number", "0"]),
    "images": (["is", "=", ["i", "p"], ["k", "p"]], ["is", "=", ["i"], ["k"]]),
    "a total of sums": (total(["sum", X, XJ]), ["sum", ["product", ["size", "n"], X], total(XJ)]),
    "one term": (total(["product", ["is", "=", ["j"], ["i"]], XJ]), X),
    "one term, permuted": (total(["product", ["is", "=", ["j"], ["i", "p"]], XJ]), permuted("x", "i", "p")),
    "any order, max": (
        ["function", "max", ["bound", "j", "n", ["letter", "x", [["j", "p"]]]]],
        ["function", "max", ["bound", "j", "n", XJ]],
    ),
    "a root of a square": (["function", "sqrt", FOUR], ["product", TWO, ROOT]),
    "a root over itself": (["ratio", ROOT, ROOT], ONE),
    "a divisor that is a root": (["ratio", Y, ["product", TWO, ROOT]], ["product", ["number", "1/2"], Y, INVERSE]),
    "e^(−∞)": (["exp", MASKED], ["product", ["is", "≤", ["i"], ["k"]], ["exp", X]]),
    "a logarithm below": (["exp", ["sum", X, ["product", MINUS, LOG]]], ["ratio", ["exp", X], Y]),
    "sign": (["function", "sign", ["product", MINUS, X]], ["product", MINUS, ["function", "sign", X]]),
    "max with −∞": (["function", "max", ["masked", ["number", "0"], ["number", "0"]], X], X),
}

FALSE: dict[str, tuple[Parts, Parts]] = {
    "another number": (["sum", ["sum", X, ONE], ["sum", Y, ONE]], ["sum", Y, X]),
    "a relation of one term": (
        ["sum", ["product", ["is", "≤", ["i"], ["k"]], X], Y],
        ["product", ["is", "≤", ["i"], ["k"]], ["sum", X, Y]],
    ),
    "i ≤ i is no 0": (["product", ["is", "≤", ["i"], ["i"]], X], ["number", "0"]),
    "order under a permutation": (["is", "≤", ["i", "p"], ["k", "p"]], ["is", "≤", ["i"], ["k"]]),
    "all terms": (total(["product", ["is", "≤", ["j"], ["i"]], XJ]), X),
    "a fixed point": (total(["is", "=", ["j"], ["j", "p"]]), ONE),
    "bare and permuted": (
        total(["product", XJ, ["letter", "y", [["j", "p"]]]]),
        total(["product", XJ, ["letter", "y", [["j"]]]]),
    ),
    "a norm in another order": (
        ["function", "norm", ["bound", "j", "n", ["letter", "x", [["j", "p"]]]]],
        ["function", "norm", ["bound", "j", "n", XJ]],
    ),
    "a root of what may be negative": (
        ["function", "sqrt", ["product", X, Y]],
        ["product", ROOT, ["function", "sqrt", Y]],
    ),
    "a root of another number": (["function", "sqrt", ["product", TWO, X]], ["product", TWO, ROOT]),
    "what is masked is not allowed": (["exp", MASKED], ["exp", X]),
    "−∞ in a sum": (["exp", ["sum", MASKED, X]], ["product", ["is", "≤", ["i"], ["k"]], ["exp", X]]),
    "twice a logarithm": (["exp", ["product", TWO, LOG]], Y),
    "sign is odd": (["function", "sign", ["product", MINUS, X]], ["function", "sign", X]),
    "max of one": (["function", "max", X, Y], X),
    "0 / 0": (["ratio", ["number", "0"], ["sum", ONE, MINUS]], ["number", "0"]),
}


def checked(left: Parts, right: Parts) -> Any:
    """What the checker says of left = right by its normal form, where x > 0 and y > 0 are hypotheses."""
    record = {
        **{"schema": 1, "kind": "certificate", "rules": [], "positive": [], "assumed": []},
        "hypotheses": [
            {"relation": ">", "free": [["i", "n"]], "expression": z} for z in (X, Y, ["product", X, Y], FOUR)
        ],
        "equations": [{"free": [["i", "n"], ["k", "n"]], "left": left, "right": right, "how": "normal form"}],
    }
    return proving.check(record, Random(0))


@pytest.mark.parametrize("name", TRUE)
def test_a_step_is_recomputed(name: str) -> None:
    verdict = checked(*TRUE[name])
    assert verdict.accepted, verdict.why


@pytest.mark.parametrize("name", FALSE)
def test_what_only_looks_like_a_step_is_refused(name: str) -> None:
    assert not checked(*FALSE[name]).accepted


def test_what_is_lost_in_simplifying_is_asked_of_what_is_written() -> None:
    """0 · (1 / z) is 0 only where z ≠ 0, and √z √z is z only where z ≥ 0."""
    z = ["letter", "z", []]
    for left in (["product", ["number", "0"], ["ratio", ONE, z]], ["product", *[["function", "sqrt", z]] * 2]):
        right = ["number", "0"] if left[1][0] == "number" else z
        assert checked(left, right).why == "what is divided by, or rooted, is no hypothesis"


xp = kinds.Indexed.xp
x, square = kinds.Indexed.letters("x", "n"), kinds.Indexed.letters("S", "n", "n")
WRITTEN = {
    "a sum": lambda: (x + x - x, x),
    "a permutation": lambda: (xp.sum(square[kinds.Permutation("pi", "n")], axis=0), xp.sum(square, axis=0)),
    "a root": lambda: (xp.sqrt(x) * xp.sqrt(x), x),
    "a quotient": lambda: (x * 2 / 2, x),
    "a logarithm": lambda: (xp.exp(xp.log(x)), x),
    "a gradient": lambda: (proving.gradient(lambda x: xp.sum(x * x), "x", x=x), 2 * x),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_sides_are_those_that_were_written(name: str) -> None:
    proof = proving.prove_equal(*WRITTEN[name]())
    assert proof.proved, proof.why
    record = proving.certificate(proof)
    assert all(e["left"] != e["right"] for e in record["equations"])
    assert proving.check(record, Random(0)).accepted


Data = list[Any]
SCOPE = {"i": "n", "k": "n"}
POSITIVE = frozenset({"p"})


def written(x: Any) -> Data:
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


def differs(expression: Data, dice: Random, simplifying: Any = checker_simplifying.Simplifying) -> bool:
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
    "what is masked": (
        "_multiply_simplified_nodes([allowed, self._exponential_of_simplified(value)])",
        "self._exponential_of_simplified(value)",
    ),
    "logarithms turned over": ("(up if sign > 0 else down)", "(down if sign > 0 else up)"),
    "an odd function": ("_multiply_simplified_nodes([number(-1), x.of([other])])", "x.of([other])"),
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


def test_a_number_that_vanishes_modulo_the_primes_counts_in_the_error() -> None:
    """A number of 61 bits may be the prime itself."""
    at = SimpleNamespace(modulus=2**61 - 1)
    long, short = CheckedValue(0, bits=61), CheckedValue(0, bits=5)
    assert Point.add(at, [CheckedValue(0), long]).bits > 61  # type: ignore[arg-type]
    assert Point.add(at, [CheckedValue(0), short]).bits == 1  # type: ignore[arg-type]
