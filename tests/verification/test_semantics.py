"""How an identity test decides: which pairs count, which are set aside, and what it says of its inputs."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, Grade, kinds, verify
from symattn.bounds.inputs import Sizes
from symattn.verification.semantics import IdentityResult, identity_test
from tests.faults.programs import softmax
from tests.refusals import refuses
from tests.sizes import SIZES

ONE = (Sizes(),)


def found_for(function: Callable[..., Any], spec: Attention | None = None, **how: Any) -> IdentityResult:
    """The test of a function of the inputs by name, as it is."""

    def prepare(kind: type[kinds.Modular]) -> Callable[[Mapping[str, Any]], Any]:
        return lambda inputs: function(**inputs)

    return identity_test(prepare, spec or Attention(), **{"sizes": ONE, **how})


def now_and_then(wrong_at: set[int]) -> Callable[..., Any]:
    """Attention, but for the calls with these numbers."""
    calls = count()
    return lambda q, k, v: Attention()(q, k, v) + (1 if next(calls) in wrong_at else 0)


def test_the_specification_itself_passes_and_says_for_what() -> None:
    found = found_for(Attention())
    assert found.agrees
    assert found.evidence.grade is Grade.TESTED
    assert str(found.evidence).startswith("tested ε ≤ ")
    assert "for random q (whole numbers up to 2) and all k, v" in found.evidence.where
    assert "for random k (whole numbers up to 2) and all q, v" in found.evidence.where
    assert "n_q = 3, n_k = 5, d_k = 4, d_v = 3" in found.evidence.where
    assert set(found.pairs) <= set(kinds.prime_pairs())


def log_sum(kind: str, a: Any, b: Any) -> Any:
    """log(e^a + e^b) of numbers, as code takes it that must not overflow."""
    larger = np.maximum(a, b)
    if kind == "less the distance":
        return larger + np.log1p(np.exp(-np.abs(a - b)))
    if kind == "smaller less larger":
        return larger + np.log1p(np.exp(np.minimum(a, b) - larger))
    if kind == "softplus":
        return a + np.maximum(b - a, 0) + np.log1p(np.exp(-np.abs(b - a)))
    return larger + np.log1p(np.exp(np.minimum(a, b)))  # wrong


@pytest.mark.parametrize(
    ("kind", "right"),
    [("less the distance", True), ("smaller less larger", True), ("softplus", True), ("smaller alone", False)],
)
def test_the_larger_and_the_smaller_of_two_are_those_two(kind: str, right: bool) -> None:
    """As keys are merged with others: e^L is the sum of both, where max and min or |·| are of one order."""

    def merged(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.T / 2
        first, last = s[:, :1], s[:, 1:]
        return (np.exp(first) @ v[:1] + np.exp(last) @ v[1:]) / np.exp(log_sum(kind, first, last))

    found = found_for(merged, sizes=(Sizes(n_k=2),))
    assert found.agrees is right
    assert found.epsilon is None


def in_two_passes(kind: str, q: Any, k: Any, v: Any) -> Any:
    """Scores and their maximum are computed anew for the sum of the weights."""

    def scores(keys: Any) -> Any:
        return q @ keys.T / 2

    top = scores(k).max(-1, keepdims=True)
    again = {
        "whole": lambda: scores(k).max(-1, keepdims=True),
        "by tiles": lambda: np.maximum(*(scores(x).max(-1, keepdims=True) for x in (k[:2], k[2:]))),
        "in another order": lambda: scores(k[::-1]).max(-1, keepdims=True),
        "without the last key": lambda: scores(k[:-1]).max(-1, keepdims=True),
        "of other scores": lambda: (2 * scores(k)).max(-1, keepdims=True),
        "of the first query": lambda: scores(k)[:1].max(-1, keepdims=True),
    }
    return np.exp(scores(k) - top) @ v / np.exp(scores(k) - again[kind]()).sum(-1, keepdims=True)


@pytest.mark.parametrize("right", [True, False])
def test_the_maximum_of_the_same_scores_may_be_computed_twice(right: bool) -> None:
    ways = ("whole", "by tiles", "in another order")
    others = ("without the last key", "of other scores", "of the first query")
    for kind in ways if right else others:
        found = found_for(partial(in_two_passes, kind))
        assert found.agrees is right, kind
        assert (found.epsilon is not None) is right


@pytest.mark.parametrize("spec", [Attention(stabilised=False), Attention(causal=True, mask="boolean", padding=True)])
def test_other_ways_to_write_it_pass(spec: Attention) -> None:
    names = [n for n, has in (("q", 1), ("k", 1), ("v", 1), ("mask", spec.mask), ("keep", spec.padding)) if has]
    assert found_for(Attention(causal=spec.causal, mask=spec.mask, padding=spec.padding), spec, names=names).agrees


LOG2E, BINARY = 1.44269504, Attention(base=2)


def powers(q: Any, k: Any, v: Any, factor: float, tile: int = 5, power: Any = np.exp2) -> Any:
    """Weights in powers of two, tile by tile, of scores that are scaled by ``factor``/√d_k."""
    s = q @ k.T * (factor / q.shape[-1] ** 0.5)
    top = s[:, :tile].max(-1, keepdims=True)
    e = np.exp2(s[:, :tile] - top)
    out, total = e @ v[:tile], e.sum(-1, keepdims=True)
    for at in range(tile, k.shape[0], tile):
        new = np.maximum(top, s[:, at : at + tile].max(-1, keepdims=True))
        kept, e = power(top - new), np.exp2(s[:, at : at + tile] - new)
        out, total, top = out * kept + e @ v[at : at + tile], total * kept + e.sum(-1, keepdims=True), new
    return out / total


@pytest.mark.parametrize(
    ("function", "spec", "agrees"),
    [
        (lambda q, k, v: powers(q, k, v, LOG2E), Attention(), True),
        (lambda q, k, v: powers(q, k, v, np.log2(np.e), 2), Attention(), True),
        (lambda q, k, v: powers(q * np.float32(LOG2E), k, v, 1, 2), Attention(), True),
        (lambda q, k, v: powers(q / np.log(2), k, v, 1, 2), Attention(), True),
        (lambda q, k, v: powers(q, k, v, 1, 2), BINARY, True),
        (lambda q, k, v: powers(q, k, v, 1), Attention(), False),
        (lambda q, k, v: powers(q, k, v, 1.4427), Attention(), False),
        (lambda q, k, v: powers(q, k, v, LOG2E), BINARY, False),
        (lambda q, k, v: powers(q, k, v, LOG2E, 2, np.exp), Attention(), False),
        (lambda q, k, v: powers(q, k, v, 1, 2, np.exp), BINARY, False),
        (lambda q, k, v: powers(q, k, v, 1 / LOG2E), Attention(), False),
    ],
)
def test_powers_of_two_are_those_of_e_where_scores_are_times_log2_e(
    function: Callable[..., Any], spec: Attention, agrees: bool
) -> None:
    found = found_for(function, spec)
    assert found.agrees is agrees
    assert found.epsilon is None or 0 < found.epsilon <= 1e-12
    assert (found.evidence.grade is Grade.TESTED) == agrees


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1.442695, "log₂ e"), (0.18033688, "1/8 log₂ e"), (np.log(2) / 3, "1/3 ln 2"), (-2.0794415, "-3 ln 2"),
        (80**-0.5, "√(1/80)"), (float(np.float32(20**-0.5)), "√(1/20)"), (12**0.5, "√(12)"),
        (32**-0.5 / np.log(2), "√(1/32) log₂ e"), (float(np.float32(72**-0.5 / np.log(2))), "√(1/72) log₂ e"),
    ],
)  # fmt: skip
def test_numbers_that_are_read_as_logarithms_or_roots_are_noted(number: float, words: str) -> None:
    notes = found_for(lambda q, k, v: Attention()(q, k, v) + (q[:, :1] - q[:, :1]) * number).notes
    assert notes == (f"the number {float(number)!r} was read as {words}",)


@pytest.mark.parametrize("number", [1.4427, 1.44, 0.693, 1.4426950 + 1e-6, 0.75, 100.1, 1.6487212707,
                                    0.2236, 80**-0.5 + 1e-7, -(20**-0.5), 1 / 3, 0.3, 32**-0.5 * 1.4427])  # fmt: skip
def test_other_numbers_are_not_read_as_logarithms_or_roots(number: float) -> None:
    assert not found_for(lambda q, k, v: Attention()(q, k, v) + (q[:, :1] - q[:, :1]) * number).notes


def test_powers_of_e_and_of_two_of_the_same_letters_have_no_bound() -> None:
    def both(q: Any, k: Any, v: Any) -> Any:
        return Attention()(q, k, v) + BINARY(q, k, v) - np.exp2(q @ k.T) @ v + np.exp2(k @ q.T).T @ v - BINARY(q, k, v)

    def constant(q: Any, k: Any, v: Any) -> Any:
        e = np.exp2(q @ k.T / q.shape[-1] ** 0.5 - 3)
        return e @ v / e.sum(-1, keepdims=True)

    for function, spec in ((both, Attention()), (constant, BINARY)):
        found = found_for(function, spec)
        assert (found.agrees, found.epsilon, found.evidence.grade) == (True, None, Grade.SAMPLED)


def test_projections_and_cross_attention() -> None:
    names = ("x", "y", "w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o")
    spec = Attention(heads=2)
    found = found_for(spec, spec, names=names)
    assert found.evidence.grade is Grade.TESTED
    assert "for random x, y, w_k, b_k (whole numbers up to 2) and all w_q, w_v, w_o, b_q, b_v, b_o" in str(
        found.evidence
    )

    def exchanged(x: Any, y: Any, **rest: Any) -> Any:
        return spec(x=y, y=x, **rest)

    assert found_for(exchanged, spec, names=names, sizes=[Sizes(4, 4)]).agrees is False


def test_tokens_without_parameters_are_numbers_alone() -> None:
    found = found_for(Attention(), names=("x",))
    assert found.evidence.grade is Grade.TESTED
    assert found.evidence.where.startswith("for random x")


def test_a_mistake_is_known_by_its_residues_at_every_point() -> None:
    """The scale made twice is no other factor, and what cannot be run there is no cause."""
    found = found_for(lambda q, k, v: Attention()(q / 2, k, v), sizes=SIZES)
    assert len(found.witnesses) == 2 * len(SIZES)
    at_four = found.witnesses[0]

    def gives(function: Callable[..., Any], of: int = 0) -> bool:
        return found.witnesses[of].gives(lambda inputs: (function(**inputs),))

    assert all(gives(lambda q, k, v: Attention()(q, k / 2, v), of) for of in range(len(found.witnesses)))
    assert gives(lambda q, k, v: Attention(scale=1 / 4)(q, k, v))
    assert not gives(lambda q, k, v: Attention(scale=1 / 4)(q, k, v), of=2)
    assert not gives(Attention())
    assert not at_four.gives(lambda inputs: (Attention()(inputs["q"] / 2, inputs["k"], inputs["v"][:, :1]),))
    assert not at_four.gives(lambda inputs: (inputs["q"].sort(),))
    assert not found_for(Attention()).witnesses


def test_two_pairs_must_differ_before_a_difference_is_believed() -> None:
    assert found_for(now_and_then({0})).agrees
    assert found_for(now_and_then({3})).agrees
    found = found_for(now_and_then({0, 4}))
    assert found.agrees is False
    assert found.difference is not None
    assert found.difference.numbers == ("q",)
    assert found.difference.index == (0, 0)
    assert found.pairs == ()


def test_a_pair_set_aside_does_not_count() -> None:
    assert len(found_for(now_and_then({1})).pairs) == len(found_for(Attention()).pairs)


def test_answers_that_change_from_pair_to_pair_settle_nothing() -> None:
    """A comparison that says yes by chance in every other pair."""
    calls = count()

    def undecided(q: Any, k: Any, v: Any) -> Any:
        _ = k == (k if next(calls) % 2 else v[0, 0])
        return Attention()(q, k, v)

    found = found_for(undecided)
    assert found.agrees is None
    assert "changed from one pair of primes to the next" in found.reason


def test_few_accidents_are_set_aside() -> None:
    calls = count()

    def accidents(q: Any, k: Any, v: Any) -> Any:
        _ = k == (k if next(calls) < 2 else v[0, 0])
        return Attention()(q, k, v)

    assert found_for(accidents).agrees


def test_a_branch_on_equality_of_what_differs_is_the_branch_of_the_others() -> None:
    def guarded(q: Any, k: Any, v: Any) -> Any:
        e = np.exp(q @ k.mT / 2)
        z = e.sum(-1, keepdims=True)
        return e @ v / np.where(z == 0, 1, z)

    def always(q: Any, k: Any, v: Any) -> Any:
        e = np.exp(q @ k.mT / 2)
        z = e.sum(-1, keepdims=True)
        return e @ v / np.where(z != 0, 1, z)

    assert found_for(guarded).agrees
    assert found_for(always).agrees is False


def test_an_unbounded_step_takes_the_grade_away() -> None:
    """tanh cancels, but what was decided with it has no bound."""

    def noisy(q: Any, k: Any, v: Any) -> Any:
        out = Attention()(q, k, v)
        noise = np.tanh(out)
        return out + noise - noise

    found = found_for(noisy)
    assert found.agrees
    assert found.evidence.grade is Grade.SAMPLED
    assert found.notes == ("tanh stands for any function of its argument",)
    assert found.evidence.where.endswith("no bound on the error: tanh stands for any function of its argument")


def _by_sigmoid(x: Any) -> Any:
    return 2 / (1 + np.exp(-2 * x)) - 1


def _by_powers(x: Any) -> Any:
    return (np.exp(2 * x) - 1) / (np.exp(2 * x) + 1)


def _of_half(x: Any) -> Any:
    return 2 / (1 + np.exp(-x)) - 1


@pytest.mark.parametrize(("tanh", "agrees"), [(_by_sigmoid, True), (_by_powers, True), (_of_half, None)])
def test_tanh_by_exponentials_is_read_inside_a_softmax(tanh: Any, agrees: bool | None) -> None:
    def capped(q: Any, k: Any, v: Any) -> Any:
        e = np.exp(30 * tanh(q @ k.mT / np.sqrt(q.shape[-1]) / 30))
        return e / e.sum(-1, keepdims=True) @ v

    assert found_for(capped, Attention(softcap=30)).agrees is agrees


def test_what_is_undefined_in_both_is_no_difference_and_is_noted() -> None:
    """More queries than keys: the first ones may see no key, and 0/0 is what the specification says."""
    spec = Attention(causal=True, fully_masked="nan")
    found = found_for(Attention(causal=True, fully_masked="nan", stabilised=False), spec, sizes=[Sizes(5, 3)])
    assert found.agrees
    assert found.notes == ("some elements are 0/0 in both the function and the specification",)
    zeros = found_for(Attention(causal=True), spec, sizes=[Sizes(5, 3)])
    assert zeros.agrees is False
    assert zeros.difference is not None
    assert zeros.difference.index == (0, 0)


def test_only_the_given_numbers_are_tested_and_the_class_says_so() -> None:
    """Wrong for other queries than the drawn ones: this passes, and the words do not claim more."""
    seen: list[np.ndarray] = []

    def overfitted(q: Any, k: Any, v: Any) -> Any:
        seen.append(q.residues())
        return Attention()(q, k, v)

    found = found_for(overfitted)
    assert found.agrees
    pairs = len(found.pairs) // 2
    centred = [np.where(x > 3, x - p, x) for x, (p, _) in zip(seen[:pairs], found.pairs[:pairs], strict=True)]
    assert all((x == centred[0]).all() for x in centred)
    assert np.abs(centred[0]).max() <= 2


def test_unknown_inputs_are_refused() -> None:
    refuses(found_for, Attention(), names=("q", "k", "w"), says="unknown input 'w'")


def test_errors_of_the_specification_are_raised_not_reported() -> None:
    refuses(found_for, Attention(), Attention(mask="boolean"), says="needs input 'mask'")


@pytest.mark.deep
@pytest.mark.parametrize(("d", "right"), [(20, True), (80, True), (21, False)])
def test_a_scale_that_stands_as_a_number_is_that_of_its_width_alone(d: int, right: bool) -> None:
    sized = Domain(min_width=20 if d < 80 else d, max_width=20 if d < 80 else d)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return softmax(q @ k.swapaxes(-1, -2) * d**-0.5) @ v

    report = verify(attention, Attention(), domain=sized, examples=0)
    assert bool(report.faults) is not right
    assert any("it agrees with the specification" in note for note in report.notes) is right
