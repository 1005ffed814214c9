"""Rules and laws: what they give, the premises that they refuse, and false variants that the checker refuses."""

from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from symattn import Grade, proving
from symattn.proof.certificate import Concluded, premise
from symattn.proof.rules import Fold, OfTheLargest, Repeat, Substitution, written

ROW = {"s": "n m"}


# -- letters of the statements -----------------------------------------------------------------------------------------
def add_up(x: Any) -> Any:
    """Σ_j x_ij, as a column."""
    return x.__array_namespace__().sum(x, axis=-1, keepdims=True)


def exp(x: Any) -> Any:
    return x.__array_namespace__().exp(x)


def greatest(x: Any, axis: int | None = None) -> Any:
    """max x, with axes of length one."""
    return x.__array_namespace__().max(x, axis=axis, keepdims=True)


def weights(s: Any) -> Any:
    """softmax(s), without subtracting the maximum."""
    return exp(s) / add_up(exp(s))


def others(m: Any, like: Any) -> Any:
    """[j ≠ l] as numbers."""
    xp = like.__array_namespace__()
    return xp.astype(xp.arange(m)[:, None] != xp.arange(m)[None, :], like.dtype)


def _grade(method: Any) -> Grade:
    return method.decide().evidence.grade


def _below_largest(law: str = "largest", meant: Any = lambda s: greatest(s, -1) - s) -> Any:
    """A mean of scores is at most the largest, by the law that is named."""
    return proving.bound(
        ROW,
        lambda s: (add_up(weights(s) * s), greatest(s, -1)),
        lambda s, room: add_up(weights(s) * room),
        laws={"room": ("n m", meant, law)},
    )


def _tanh(s: Any) -> Any:
    return s.__array_namespace__().tanh(s)


def _records(method: Any) -> list[Any]:
    found = method.decide()
    return [deepcopy(dict(r)) for r in proving.certificates(found.proofs, found.premises)]


def _refused(record: Any) -> str:
    verdict = proving.check(record, Random(1))
    assert not verdict.accepted
    return verdict.why


# -- laws --------------------------------------------------------------------------------------------------------------
LAWS = {
    "largest": _below_largest(),
    "magnitude": proving.bound(
        ROW, lambda s: (s, abs(s)), lambda room: room, laws={"room": ("n m", lambda s: abs(s) - s, "magnitude")}
    ),
    "bounded": proving.bound(
        ROW,
        lambda s: (_tanh(s) * exp(s), exp(s)),
        lambda s, room: room * exp(s),
        laws={"room": ("n m", lambda s: 1 - _tanh(s), "bounded")},
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_a_law_shows_what_it_says(law: str) -> None:
    (record,) = [r for r in _records(LAWS[law]) if r["kind"] == "sign"]
    assert proving.check(record, Random(1)).accepted
    assert record["laws"] == [["room", law]]


@pytest.mark.deep
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("other", [*LAWS, "triangle", "largest room", "the moon", ""])
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
        ("bounded", lambda s: 1 - s.__array_namespace__().log(exp(s) + 1)),
    ],
)
def test_what_no_law_shows_is_refused(law: str, meant: Any) -> None:
    false = proving.bound(ROW, lambda s: (0, meant(s)), lambda room: room, laws={"room": ("n m", meant, law)}, top=1)
    found = false.decide()
    assert found.evidence.grade in (Grade.UNDECIDED, Grade.REFUTED)
    assert found.evidence.grade is Grade.REFUTED or "does not show" in found.evidence.where


def test_norms_obey_the_triangle_inequality_with_weights_that_are_not_negative() -> None:
    def norm(x: Any) -> Any:
        xp = x.__array_namespace__()
        return xp.any_norm(x) if hasattr(xp, "any_norm") else greatest(abs(x), -1)

    def below(factor: Any) -> Any:
        return proving.bound(
            {"s": "n m", "v": "m d"},
            lambda s, v: (norm(factor(s) @ v), factor(s) @ norm(v)),
            lambda room: room,
            laws={"room": ("n 1", lambda s, v: factor(s) @ norm(v) - norm(factor(s) @ v), "triangle")},
        )

    assert _grade(below(weights)) is Grade.PROVED
    assert _grade(below(lambda s: weights(s) * s)) is not Grade.PROVED


def test_a_norm_of_a_permuted_row_is_no_norm_of_the_row() -> None:
    """Norms may weigh places, as (x₁² + 2 x₂²)^½ does."""
    world, declared = proving.Letters(), proving.Declared({"s": "n m"}, {"pi": "m"})
    s, pi = world.array("s", "n m", declared), world.permutation("pi", "m")
    found = proving.prove_equal(s.xp.any_norm(s[:, pi]), s.xp.any_norm(s))
    assert not found.proved
    assert "a norm need not be that of the row itself" in found.why
    assert proving.prove_equal(s.xp.any_norm(s), s.xp.any_norm(s)).proved
    assert proving.prove_equal(s.xp.max(s[:, pi], axis=-1), s.xp.max(s, axis=-1)).proved


# -- equality ----------------------------------------------------------------------------------------------------------
def test_where_both_sides_are_equal_is_read_off_the_gap() -> None:
    def variance(only: tuple[str, ...], gap: Any) -> Any:
        return proving.bound(
            ROW,
            lambda s: (0, add_up(add_up((s[..., :, None] - s[..., None, :]) ** 2)[..., 0])),
            gap,
            named={"d": ("n m m", lambda s: s[..., :, None] - s[..., None, :]), "x": ("n m", lambda s: s)},
            only=only,
        )

    assert _grade(variance(("d",), lambda d: add_up(add_up(d * d)[..., 0]))) is Grade.PROVED
    assert _grade(variance(("x",), lambda d: add_up(add_up(d * d)[..., 0]))) is Grade.UNDECIDED
    assert _grade(variance((), lambda d: add_up(add_up(d * d)[..., 0]))) is Grade.PROVED


# -- the largest -------------------------------------------------------------------------------------------------------
def _of_entries() -> Any:
    """e^{s_j} ≤ Σ_l e^{s_l}."""
    return proving.bound(
        {"s": "n m"},
        lambda s: (exp(s), add_up(exp(s)) + 0 * s),
        lambda s, m: add_up(others(m, s) * exp(s)[..., None, :])[..., 0],
    )


def test_what_holds_of_every_entry_holds_of_the_largest() -> None:
    method = OfTheLargest(_of_entries(), lambda s: (greatest(exp(s), -1), add_up(exp(s))))
    assert _grade(method) is Grade.PROVED
    assert [r["kind"] for r in _records(method)] == ["certificate", "step"]


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
    return next(r for r in _records(method) if r["kind"] == "step")


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
    assert proving.check(record, Random(1)).accepted
    record["conclusions"] = premise(Concluded("largest", (), tuple(written(sides, _of_entries().declared))))[
        "conclusions"
    ]
    assert "not the conclusion" in _refused(record)


def test_a_rule_needs_premises_that_are_accepted_and_that_it_knows() -> None:
    record = _rule()
    assert "not the conclusion" in _refused({**record, "premises": []})
    assert "is not a rule" in _refused({**record, "rule": "modus ponens"})
    assert "concludes nothing" in _refused({**record, "conclusions": []})
    wrong = deepcopy(record["premises"][0])
    wrong["expression"] = ["number", "-1"]
    assert "a premise: the form does not show" in _refused({**record, "premises": [wrong]})
    wrong = deepcopy(record["premises"][0])
    wrong["conclusions"][0]["larger"] = wrong["conclusions"][0]["smaller"]
    assert "a premise:" in _refused({**record, "premises": [wrong]})


# -- folds -------------------------------------------------------------------------------------------------------------
BLOCK = {"s": "n a", "v": "a d", "m": "n 1"}


def _state(s: Any, v: Any, m: Any) -> Any:
    return m, add_up(exp(s - m)), exp(s - m) @ v


def _merge(x: Any, y: Any, given: Any) -> Any:
    m = given["m"]
    return m, x[1] * exp(x[0] - m) + y[1] * exp(y[0] - m), x[2] * exp(x[0] - m) + y[2] * exp(y[0] - m)


def _fold(state: Any = _state, merge: Any = _merge, numbers: tuple[str, ...] = ("m",), finish: Any = None) -> Fold:
    ends = finish or (lambda s, v, state: [(state[2] / state[1], weights(s) @ v)])
    return Fold(proving.Declared(BLOCK), "a", state, merge, lambda x, y, given: x, numbers, ends)


def test_merging_the_states_of_blocks_gives_the_state_of_all() -> None:
    found = _fold()
    assert _grade(found) is Grade.PROVED
    assert found.refute().refuted


@pytest.mark.parametrize(
    "wrong",
    [
        _fold(merge=lambda x, y, given: (given["m"], x[1] + y[1], x[2] + y[2])),
        _fold(merge=lambda x, y, given: x),
        _fold(merge=lambda x, y, given: (y[0], *_merge(x, y, given)[1:])),
        _fold(state=lambda s, v, m: (m, greatest(exp(s - m), -1), exp(s - m) @ v)),
        _fold(state=lambda s, v, m: (m, add_up(exp(s - m)) ** 2, exp(s - m) @ v)),
        _fold(finish=lambda s, v, state: [(state[2], weights(s) @ v)]),
        _fold(finish=lambda s, v, state: [(state[1], add_up(exp(s)))]),
        _fold(finish=lambda s, v, m, state: [(state[2] / state[1] + m, weights(s) @ v + m)]),
    ],
)
def test_what_is_no_fold_is_refused(wrong: Fold) -> None:
    found = wrong.decide().evidence
    assert found.grade is Grade.UNDECIDED
    assert "the checker refuses it" in found.where


# -- equals for equals -------------------------------------------------------------------------------------------------
def _substitution(to: Any = lambda h: h, through: Any = None) -> Substitution:
    """softmax(s + ‖k‖²) = softmax(s) where all ‖k_j‖² are h."""
    return Substitution(
        proving.Declared({"s": "n m", "k": "m d", "h": ""}),
        lambda s, k: (weights(s + add_up(k * k).mT), weights(s)),
        through or (lambda s, y: weights(s + y.mT)),
        "y",
        "m 1",
        lambda k: add_up(k * k),
        to,
        lambda s, k: (weights(s + add_up(k * k).mT), weights(s)),
    )


def test_equals_are_put_for_equals() -> None:
    assert _grade(_substitution()) is Grade.PROVED
    assert _substitution().refute().refuted


@pytest.mark.parametrize(
    "wrong",
    [_substitution(to=lambda k: add_up(k)), _substitution(through=lambda s, y: weights(s))],
)
def test_what_are_no_equals_are_refused(wrong: Substitution) -> None:
    assert _grade(wrong) is Grade.UNDECIDED


@pytest.mark.parametrize("key", ["left", "right", "through", "equal", "to"])
def test_a_substitution_with_another_part_is_refused(key: str) -> None:
    record = next(r for r in _records(_substitution()) if r.get("rule") == "substitution")
    part = record[key] if isinstance(record[key], dict) else record[key][0]
    part["expression"] = ["exp", part["expression"]]
    assert "is not what the substitution gives" in _refused(record)


# -- steps that shrink a measure ---------------------------------------------------------------------------------------
def _repeat(factor: Any = lambda c: c, measure: Any = None, step: Any = None, **given: Any) -> Repeat:
    """The largest of c x is c times that of x, for 0 ≤ c < 1."""
    x = {"x": "n", "c": "", "u": ""}
    shrinks = OfTheLargest(
        proving.bound(
            x,
            lambda x, c: (c * x, c * greatest(x)),
            lambda c, room: c * room,
            laws={"room": ("n", lambda x: greatest(x) - x, "largest")},
            positive=("c",),
            **given,
        ),
        lambda x, c: (greatest(c * x), c * greatest(x)),
    )
    floor = proving.bound(x, lambda c: (0, c), lambda c: c, positive=("c",))
    below = proving.bound(x, lambda c: (c / (c + 1), 1 + 0 * c), lambda c: 1 / (c + 1), positive=("c",), strict=True)
    return Repeat(shrinks, floor, "x", measure or greatest_of, step or (lambda x, c: c * x), factor, below)


def greatest_of(state: Any) -> Any:
    return greatest(state)


def test_a_measure_shrinks_with_every_step_but_tends_to_0_only_if_the_factor_is_below_1() -> None:
    found = _repeat().decide().evidence
    assert "do not say that the measure shrinks" in found.where, "c may be 1 or more"
    record = next(r for r in _records(replace(_repeat(), below_one=None)) if r.get("rule") == "repeated")
    assert proving.check(record, Random(1)).accepted
    assert "shrinks by the factor" in _refused({**record, "tends": True})
    for n in range(2):
        assert "shrinks by the factor" in _refused({**record, "premises": [record["premises"][n]]})


@pytest.mark.parametrize(
    "wrong",
    [
        _repeat(factor=lambda c: c / 2),
        _repeat(measure=lambda state: 2 * greatest(state) + 1),
        _repeat(step=lambda x, c: x / c),
        _repeat(step=lambda x, c: c * x * x),
    ],
)
def test_another_factor_measure_or_step_is_refused(wrong: Repeat) -> None:
    found = replace(wrong, below_one=None).decide().evidence
    assert found.grade is Grade.UNDECIDED
    assert "shrinks by the factor" in found.where


def test_nothing_may_be_assumed_of_what_changes_with_the_steps() -> None:
    record = next(r for r in _records(replace(_repeat(), below_one=None)) if r.get("rule") == "repeated")
    sign_record = record["premises"][0]["premises"][0]
    sign_record["laws"] = []
    assert "is assumed of what changes" in _refused(record)


# -- means, limits, hypotheses that are shown --------------------------------------------------------------------------
def _mean(of: Any, result: Any, mean: Any = lambda keep: keep) -> Substitution:
    """The mean of ``of`` b, a function of p, b, v and keep, over the outcomes of b."""

    def over(w: Any, x: Any) -> Any:
        return x.__array_namespace__().sum(w[:, None, None] * x, axis=0)

    arrays = {"p": "n m", "b": "outcomes n m", "v": "m d", "keep": "1 1", "w": "outcomes"}
    return Substitution(
        proving.Declared(arrays, positive=("keep",)),
        lambda p, b, v, keep, w: (over(w, of(p, b, v, keep)), result(p, v, keep)),
        lambda p, v, keep, y: of(p, y, v, keep),
        *("y", "n m", lambda b, w: over(w, b), mean, lambda p, b: (p * b, p)),
    )


def test_the_mean_of_what_is_linear_is_its_value_at_the_mean() -> None:
    found = _mean(lambda p, b, v, keep: (p * b / keep) @ v, lambda p, v, keep: p @ v)
    assert _grade(found) is Grade.PROVED
    assert found.refute().refuted


@pytest.mark.parametrize(
    ("of", "result"),
    [
        (lambda p, b, v, keep: p * b * b, lambda p, v, keep: p * keep * keep),
        (lambda p, b, v, keep: p * b + 1, lambda p, v, keep: p * keep + 1),
        (lambda p, b, v, keep: exp(p * b), lambda p, v, keep: exp(p * keep)),
        (lambda p, b, v, keep: p * b, lambda p, v, keep: p),
    ],
)
def test_means_of_what_is_not_linear_or_at_another_mean_are_refused(of: Any, result: Any) -> None:
    assert _grade(_mean(of, result)) is Grade.UNDECIDED
