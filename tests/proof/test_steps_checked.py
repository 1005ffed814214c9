"""Each rule by which a printed relation is proved: the checker applies it anew, and refuses what it does not give."""

import copy
import json
from random import Random
from typing import Any

import pytest

from symattn import kinds, proving
from tests.proof.certificate_mutants import accepted as mutants
from tests.proof.printed_steps import RULES
from tests.proof.test_expectation import equation, letter, mean, total

Parts = list[Any]
Record = dict[str, Any]
NOUGHT, ONE, TWO, MINUS = (["number", n] for n in ("0", "1", "2", "-1"))
XI, YI, AT = letter("x", "i"), letter("y", "i"), ("i",)


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_applied_anew(rule: str) -> None:
    records = RULES[rule]()
    assert records
    assert all(proving.check(record, Random(0)).accepted for record in records)


@pytest.mark.parametrize("rule", RULES)
def test_changed_certificates_of_rules_are_refused(rule: str) -> None:
    made, wrong = mutants(RULES[rule](), most=3)
    assert not wrong
    assert made["not shown"] > 2
    assert made["false"] > 1


def step(rule: str, premises: list[Record], left: Parts, right: Parts, free: tuple[str, ...] = AT) -> Record:
    conclusion = {"free": [[i, "n"] for i in free], "left": left, "right": right}
    return {"schema": 1, "kind": "step", "rule": rule, "premises": premises, "conclusions": [conclusion]}


def square(x: Parts) -> Parts:
    return ["product", x, x]


def root(x: Parts) -> Parts:
    return ["function", "sqrt", x]


def largest(*of: Parts) -> Parts:
    return ["function", "max", *of]


def minus(x: Parts) -> Parts:
    return ["product", MINUS, x]


def not_negative(expression: Parts, larger: Parts) -> Record:
    """A certificate of 0 ≤ ``larger``."""
    free = [["i", "n"]]
    lists: Record = {key: [] for key in ("positive", "not negative", "only", "rules", "laws", "meant", "hypotheses")}
    said = {"relation": "≥", "free": free, "expression": expression, "equal": larger}
    conclusions = [{"free": free, "smaller": NOUGHT, "larger": larger}]
    return {"schema": 1, "kind": "sign", **lists, **said, "conclusions": conclusions}


TURNED = minus(XI)
SQUARES = equation(square(TURNED), square(XI), AT)
ROOTS = equation(["product", root(square(TURNED)), root(square(TURNED))], square(XI), AT)
EXPONENTIAL = equation(["exp", XI], ["exp", XI], AT)
XJ, DOUBLE = letter("x", "j"), ["product", TWO, XI]
LETTERS = kinds.Indexed.letters("x", proving.Letters().axis("n"))
SAME: Record = json.loads(
    json.dumps(proving.certificate(proving.prove_equal(LETTERS + LETTERS, 2 * LETTERS))).replace("i0", "i")
)
DIFFERING = {
    "schema": 1,
    "kind": "differing",
    "free": [["i", "n"]],
    "left": XI,
    "right": NOUGHT,
    "sizes": {"n": 1},
    "rules": [],
}
TRUE = {
    "roots": step("squares", [equation(square(TURNED), square(XI), AT)], root(square(TURNED)), root(square(XI))),
    "|z|": step("squares", [SQUARES], largest(TURNED, XI), largest(XI, TURNED)),
    "z sign(z)": step("squares", [SQUARES], ["product", ["function", "sign", TURNED], TURNED], largest(XI, TURNED)),
    "a square by a premise": step("squares", [not_negative(square(XI), square(XI)), ROOTS],
                                  root(square(XI)), largest(XI, TURNED)),
    "a logarithm": step("logarithm", [EXPONENTIAL], XI, ["function", "log", ["exp", XI]]),
    "a maximum of equals": step("equals", [SAME], largest(["bound", "j", "n", ["sum", XJ, XJ]]),
                                largest(["bound", "j", "n", ["product", TWO, XJ]]), ()),
    "a chain": step("chain", [SAME], ["exp", DOUBLE], ["exp", DOUBLE]),
    "a chain from right to left": step("chain", [SAME], DOUBLE, ["sum", XI, XI]),
}  # fmt: skip
FALSE = {
    "a side that may be negative": step("squares", [SQUARES], TURNED, XI),
    "one side that may be negative": step("squares", [SQUARES], root(square(XI)), XI),
    "the squares of others": step("squares", [equation(square(YI), square(YI), AT)],
                                  root(square(XI)), root(square(YI))),
    "the squares at other places": step("squares", [equation(square(XI), square(XI), AT)], root(square(XI)),
                                        root(square(letter("x", "k"))), ("i", "k")),
    "no squares": step("squares", [equation(XI, XI, AT)], root(square(YI)), root(square(YI))),
    "a maximum that is no |z|": step("squares", [SQUARES], largest(XI, YI), largest(XI, TURNED)),
    "a sign of another": step("squares", [SQUARES], ["product", ["function", "sign", YI], TURNED], largest(XI, TURNED)),
    "a sign alone": step("squares", [SQUARES], ["function", "sign", TURNED], largest(XI, TURNED)),
    "a smaller sign": step("squares", [not_negative(square(XI), square(XI)), SQUARES], TURNED, XI),
    "a logarithm of another": step("logarithm", [EXPONENTIAL], XI, ["function", "log", ["exp", YI]]),
    "a logarithm on the left": step("logarithm", [EXPONENTIAL], ["function", "log", ["exp", XI]], XI),
    "a logarithm of what may be negative": step("logarithm", [equation(XI, XI, AT)], ["function", "log", XI],
                                                ["function", "log", XI]),
    "other functions of equals": step("equals", [SAME], ["exp", ["sum", XI, XI]], ["function", "tanh", DOUBLE]),
    "equals at other places": step("equals", [SAME], ["exp", ["sum", XI, XI]],
                                   ["exp", ["product", TWO, letter("x", "k")]], ("i", "k")),
    "sums over other sorts": step("equals", [SAME], total("j", ["exp", ["sum", XI, XI]]),
                                  ["total", "j", "m", ["exp", DOUBLE]]),
    "an equation in the other direction of no premise": step("chain", [SAME], ["sum", XI, XI], YI),
    "a chain that is broken": step("chain", [SAME, equation(YI, YI, AT)], ["sum", XI, XI], YI),
    "a chain by an inequality": step("chain", [not_negative(square(XI), square(XI))], NOUGHT, square(XI)),
    "a division": step("equals", [equation(XI, XI, AT)], ["ratio", XI, YI], ["ratio", XI, YI]),
    "a mean": step("equals", [equation(XI, XI, AT)], mean(XI), mean(XI)),
    "no rule": step("largest", [SAME], ["sum", XI, XI], DOUBLE),
    "a premise that is refused": step("chain", [equation(XI, YI, AT)], XI, YI),
    "a premise that says nothing": step("chain", [DIFFERING], XI, XI),
    "nothing": {**step("chain", [SAME], XI, XI), "conclusions": []},
}  # fmt: skip


def verdict(record: Record) -> bool:
    return proving.check(record, Random(0)).accepted


@pytest.mark.parametrize("name", TRUE)
def test_true_steps_are_accepted(name: str) -> None:
    assert verdict(TRUE[name])


def test_false_steps_are_refused() -> None:
    assert [name for name, record in FALSE.items() if verdict(record)] == []


def changed(record: Record, path: tuple[Any, ...], value: Any) -> Record:
    out = copy.deepcopy(record)
    here = out
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return out


def test_a_limit_asks_for_a_rate_that_is_positive() -> None:
    (record,) = RULES["a limit at ∞"]()
    assert verdict(record)
    for p in range(len(record["premises"])):
        without = changed(record, ("premises", p, "positive"), ["β"])
        assert not verdict(without)
    grows = copy.deepcopy(record)
    for c in grows["conclusions"]:
        c["form"] = c["of"] = ["exp", ["product", letter("β"), letter("β")]]
    assert not verdict(grows)


def test_a_limit_asks_for_a_number_that_may_go_there() -> None:
    (record,) = RULES["a limit at ∞"]()
    bounded = not_negative(square(XI), square(XI))
    assert verdict(bounded)
    assert not verdict({**record, "premises": [*record["premises"], bounded]})
    for p in range(len(record["premises"])):
        assert not verdict(changed(record, ("premises", p, "rules"), [["β", "c"]]))
        assert not verdict(changed(record, ("premises", p, "hypotheses"),
                                   [{"relation": "≠", "free": [], "expression": letter("β")}]))  # fmt: skip


def test_induction_starts_at_nought_and_takes_every_step() -> None:
    (record,) = RULES["induction"]()
    assert len(record["premises"]) == 2
    assert not verdict({**record, "premises": record["premises"][:1]})
    assert not verdict({**record, "premises": record["premises"][1:]})
    under = {"relation": "≠", "free": [], "expression": letter(record["letter"])}
    assert not verdict(changed(record, ("premises", 0, "hypotheses"), [under]))
    assert not verdict(changed(record, ("premises", 0, "positive"), [record["letter"]]))
