"""Rules and laws: what they give, the premises that they refuse, and false variants that the checker refuses."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import pytest

from symattn.evidence import Grade
from symattn.proof.certificate import premise
from symattn.proof.certified import certificates
from symattn.proof.checker import check
from symattn.proof.premises import Applied
from symattn.proof.rules import OfTheLargest, written
from symattn.proof.theorem import Method
from symattn.proof.together import bound
from symattn.theorems.sums import add_up, exp, greatest, log, others, weights

ROW = {"s": "n m"}


def _grade(method: Method) -> Grade:
    return method.decide().evidence.grade


def _below_largest(law: str = "largest", meant: Any = lambda s: greatest(s, -1) - s) -> Any:
    """A mean of scores is at most the largest, by the law that is named."""
    return bound(
        ROW,
        lambda s: (add_up(weights(s) * s), greatest(s, -1)),
        lambda s, room: add_up(weights(s) * room),
        laws={"room": ("n m", meant, law)},
    )


def _tanh(s: Any) -> Any:
    return s.__array_namespace__().tanh(s)


def _records(method: Method) -> list[Any]:
    found = method.decide()
    return [deepcopy(dict(r)) for r in certificates(found.proofs, found.premises)]


def _refused(record: Any) -> str:
    verdict = check(record, Random(1))
    assert not verdict.accepted
    return verdict.why


# -- laws --------------------------------------------------------------------------------------------------------------
LAWS = {
    "largest": _below_largest(),
    "magnitude": bound(
        ROW, lambda s: (s, abs(s)), lambda room: room, laws={"room": ("n m", lambda s: abs(s) - s, "magnitude")}
    ),
    "bounded": bound(
        ROW,
        lambda s: (_tanh(s) * exp(s), exp(s)),
        lambda s, room: room * exp(s),
        laws={"room": ("n m", lambda s: 1 - _tanh(s), "bounded")},
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_a_law_shows_what_it_says(law: str) -> None:
    (record,) = [r for r in _records(LAWS[law]) if r["kind"] == "sign"]
    assert check(record, Random(1)).accepted
    assert record["laws"] == [["room", law]]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("other", [*LAWS, "triangle", "grows room", "grows", "the moon", ""])
def test_a_law_is_refused_for_what_another_one_shows(law: str, other: str) -> None:
    (record,) = [r for r in _records(LAWS[law]) if r["kind"] == "sign"]
    if other != law:
        record["laws"] = [["room", other]]
        assert "does not show" in _refused(record)


@pytest.mark.parametrize(
    ("law", "meant"),
    [
        ("largest", lambda s: s - greatest(s, -1)),
        ("largest", lambda s: greatest(s, -1) + s),
        ("largest", lambda s: greatest(s, -1) - 2 * s),
        ("largest", lambda s: greatest(s, -2) - add_up(s)),
        ("largest", lambda s: greatest(-s, -1) - s),
        ("magnitude", lambda s: s - abs(s)),
        ("magnitude", lambda s: abs(s) - 2 * s),
        ("bounded", lambda s: _tanh(s) - 1),
        ("bounded", lambda s: 1 - 2 * _tanh(s)),
        ("bounded", lambda s: 1 - log(exp(s) + 1)),
    ],
)
def test_what_no_law_shows_is_refused(law: str, meant: Any) -> None:
    false = bound(ROW, lambda s: (0, meant(s)), lambda room: room, laws={"room": ("n m", meant, law)}, top=1)
    found = false.decide()
    assert found.evidence.grade in (Grade.UNDECIDED, Grade.REFUTED)
    assert found.evidence.grade is Grade.REFUTED or "does not show" in found.evidence.where


def test_norms_obey_the_triangle_inequality_with_weights_that_are_not_negative() -> None:
    def norm(x: Any) -> Any:
        xp = x.__array_namespace__()
        return xp.any_norm(x) if hasattr(xp, "any_norm") else greatest(abs(x), -1)

    def below(factor: Any) -> Any:
        return bound(
            {"s": "n m", "v": "m d"},
            lambda s, v: (norm(factor(s) @ v), factor(s) @ norm(v)),
            lambda room: room,
            laws={"room": ("n 1", lambda s, v: factor(s) @ norm(v) - norm(factor(s) @ v), "triangle")},
        )

    assert _grade(below(weights)) is Grade.PROVED
    assert _grade(below(lambda s: weights(s) * s)) is not Grade.PROVED


# -- equality ----------------------------------------------------------------------------------------------------------
def test_where_both_sides_are_equal_is_read_off_the_gap() -> None:
    def variance(only: tuple[str, ...], gap: Any) -> Any:
        return bound(
            ROW,
            lambda s: (0, add_up(add_up((s[..., :, None] - s[..., None, :]) ** 2)[..., 0])),
            gap,
            named={
                "d": ("n m m", lambda s: s[..., :, None] - s[..., None, :]),
                "x": ("n m", lambda s: s),
            },
            only=only,
        )

    assert _grade(variance(("d",), lambda d: add_up(add_up(d * d)[..., 0]))) is Grade.PROVED
    assert _grade(variance(("x",), lambda d: add_up(add_up(d * d)[..., 0]))) is Grade.UNDECIDED
    assert _grade(variance((), lambda d: add_up(add_up(d * d)[..., 0]))) is Grade.PROVED


# -- the largest -------------------------------------------------------------------------------------------------------
def _of_entries() -> Any:
    """e^{s_j} ≤ Σ_l e^{s_l}."""
    return bound(
        {"s": "n m"},
        lambda s: (exp(s), add_up(exp(s)) + 0 * s),
        lambda s, m: add_up(others(m, s) * exp(s)[..., None, :])[..., 0],
    )


def test_what_holds_of_every_entry_holds_of_the_largest() -> None:
    method = OfTheLargest(_of_entries(), lambda s: (greatest(exp(s), -1), add_up(exp(s))))
    assert _grade(method) is Grade.PROVED
    assert [r["kind"] for r in _records(method)] == ["certificate", "rule"]


@pytest.mark.parametrize(
    "sides",
    [
        lambda s: (2 * greatest(exp(s), -1), add_up(exp(s))),
        lambda s: (greatest(exp(s), -1), add_up(exp(s)) / 2),
        lambda s: (add_up(exp(s)), greatest(exp(s), -1)),
    ],
)
def test_a_false_variant_of_a_rule_is_refuted_in_numbers(sides: Any) -> None:
    assert _grade(OfTheLargest(_of_entries(), sides)) is Grade.REFUTED


def _rule() -> Any:
    method = OfTheLargest(_of_entries(), lambda s: (greatest(exp(s), -1), add_up(exp(s))))
    return next(r for r in _records(method) if r["kind"] == "rule")


@pytest.mark.parametrize(
    "sides",
    [
        lambda s: (greatest(exp(s), -2), add_up(exp(s))),
        lambda s: (greatest(exp(s), -1) / 2, add_up(exp(s))),
        lambda s: (greatest(exp(2 * s), -1), add_up(exp(2 * s))),
        lambda s: (exp(s), add_up(exp(s)) + 0 * s),
    ],
)
def test_a_conclusion_that_the_premise_does_not_give_is_refused(sides: Any) -> None:
    record = _rule()
    assert check(record, Random(1)).accepted
    record["conclusions"] = premise(Applied("largest", (), tuple(written(sides, _of_entries().declared))))[
        "conclusions"
    ]
    assert "not the conclusion" in _refused(record)


def test_a_rule_needs_premises_that_are_accepted_and_that_it_knows() -> None:
    record = _rule()
    assert "not the conclusion" in _refused({**record, "premises": []})
    assert "is no rule" in _refused({**record, "rule": "modus ponens"})
    assert "concludes nothing" in _refused({**record, "conclusions": []})
    wrong = deepcopy(record["premises"][0])
    wrong["expression"] = ["number", "-1"]
    assert "a premise: the form does not show" in _refused({**record, "premises": [wrong]})
    wrong = deepcopy(record["premises"][0])
    wrong["conclusions"][0]["larger"] = wrong["conclusions"][0]["smaller"]
    assert "a premise:" in _refused({**record, "premises": [wrong]})
