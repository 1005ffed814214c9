"""The backward passes that are made by hand, against the derivative of the definition: exactly, mod p and in balls."""

from typing import Any

import numpy as np
import pytest

from symattn.arrays import kind
from symattn.arrays.ball import precision
from symattn.arrays.modular import modular
from symattn.arrays.residues import primes
from symattn.attention.derivative import vjp
from symattn.attention.gradients import backward as backward_pass
from symattn.attention.gradients.backward import backward
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.spec import Attention
from symattn.attention.variants import VARIANTS
from symattn.document.errors import InputError, Refused, Undecided
from tests.attention.gradient_cases import CASES, Case, drawn, near
from tests.attention.gradient_mistakes import MISTAKES

BITS = 256
#: Why residues have no gradient of it: functions that stand for any function, orders, powers of two.
WITHOUT_RESIDUES = ("ReLU", "sparsemax", "entmax", "base 2", "powers of two")
#: Exponents that are multiples of one number, so that fractions have common denominators.
EXACT = (
    *("dot", "scaled dot", "general", "distance", "1/d_k", "scale per head", "truncated", "bias", "causal"),
    *("causal, top-left", "sliding window", "window of two sides", "local blocks", "prefix", "padding", "dropout"),
    *("packed documents", "boolean mask", "additive mask", "masks combined", "not stabilised", "sigmoid", "ReLU"),
    *("log-sum-exp returned", "sink", "softmax off by one", "sparsemax", "grouped-query", "rotary, given tables"),
    *("ALiBi", "ALiBi, given slopes", "T5 buckets", "Shaw", "Transformer-XL", "self-attention", "multi-head"),
    *("packed projections", "latent, one head"),
)


def both(case: Case, of: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The gradients by the tape, and by the recurrences."""
    given, g = case.given(of), case.cotangent(of)
    return vjp(case.function, g, given), backward_pass.backward(case.function, g, given)


SLOW = ("grouped-query", "Transformer-XL", "self-attention", "multi-head", "packed projections", "latent, one head")


def _unless(deep: bool, name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.deep if deep else ())


@pytest.mark.parametrize("name", [_unless(n in SLOW, n) for n in EXACT])
def test_recurrences_give_the_exact_derivative(name: str) -> None:
    by_tape, by_hand = both(drawn(VARIANTS[name], 2), kind("exact"))
    assert by_tape.keys() == by_hand.keys()
    assert all((by_tape[n] == by_hand[n]).all() for n in by_tape)


@pytest.mark.parametrize("name", [_unless(n not in VARIANTS, n) for n in CASES])
def test_recurrences_agree_in_balls(name: str) -> None:
    with precision(2 * BITS):
        assert near(*both(CASES[name], kind("ball")))


RESIDUES = [n for n in CASES if not any(w in n for w in WITHOUT_RESIDUES)]


@pytest.mark.parametrize("name", [_unless(n not in VARIANTS, n) for n in RESIDUES])
def test_recurrences_agree_on_residues(name: str) -> None:
    of = modular(*primes.pairs((2, 3, 5, 7))[0], seed=1)
    by_tape, by_hand = both(CASES[name], of)
    assert all(of.compared(by_tape[n], by_hand[n])[0].all() for n in by_tape)


def test_recurrences_agree_at_sizes_that_models_have() -> None:
    """70 queries, 133 keys, 6 heads on 2, 32 columns, on residues: equal but for a chance below 10⁻³."""
    of = modular(*primes.pairs((2, 3, 5, 7))[1], seed=2)
    letters = {"q": of.letters(6, 70, 32), "k": of.letters(2, 133, 32), "v": of.letters(2, 133, 40)}
    given = letters | {"sink": of.letters(6), "cos": of.letters(133, 16), "sin": of.letters(133, 16)}
    spec = Attention(heads=6, kv_heads=2, causal=True, window=50, sink="given", position=Rotary(given="tables"))
    g = of.letters(6, 70, 40)
    by_tape, by_hand = vjp(spec, g, given), backward(spec, g, given)
    assert all(of.compared(by_tape[n], by_hand[n])[0].all() for n in given)


# -- mistakes ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_backward_pass_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, where, what, wrong = MISTAKES[mistake]
    case = CASES[name]
    with precision(BITS):
        monkeypatch.setattr(where, what, wrong)
        assert not near(*both(case, kind("ball")))


# -- what is asked for -------------------------------------------------------------------------------------------------
def test_names_and_shapes_that_do_not_fit_are_refused() -> None:
    q, k, v = np.zeros((2, 3)), np.zeros((4, 3)), np.zeros((4, 5))
    given = {"q": q, "k": k, "v": v}
    for wrt, g, message in (
        (["w"], np.zeros((2, 5)), "no input 'w' to differentiate by; given: q, k, v"),
        (None, np.zeros((2, 4)), r"the cotangent has shape \(2, 4\), and the output \(2, 5\)"),
    ):
        for differentiate in (vjp, backward):
            with pytest.raises(InputError, match=message):
                differentiate(Attention(), g, given, wrt)
    with pytest.raises(InputError, match="2 outputs; give a tuple"):
        backward(Attention(lse=True), np.zeros((2, 5)), given)


def test_one_of_two_cotangents_may_be_left_out() -> None:
    case = CASES["log-sum-exp returned"]
    given, (g, dl) = case.given(kind("exact")), case.cotangent(kind("exact"))
    zero = 0 * given["v"]
    for pair in ((g, None), (None, dl)):
        by_hand = backward(case.function, pair, given)
        assert all((by_hand[n] == x).all() for n, x in vjp(case.function, pair, given).items())
        assert (by_hand["v"] == zero).all() == (pair[0] is None)


def test_gradients_are_refused_where_the_function_is() -> None:
    case = CASES["softcap"]
    with pytest.raises((Refused, Undecided)):
        backward(case.function, np.ones((3, 7)), case.given(kind("exact")))
