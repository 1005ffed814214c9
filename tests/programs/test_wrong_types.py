"""What is of another type than it must be is told in one line, before any work is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, derive, draw, evaluate, kind, like, prove, walk
from symattn.arrays.precision import Precision
from symattn.document.errors import InputError
from symattn.testing import assert_close_to_exact

ONE = np.float32([[1]])
INPUTS = {"q": ONE, "k": ONE, "v": ONE}
CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "derive": (derive, "derive() expects a name (str)"),
    "draw": (draw, "draw() expects a name (str)"),
    "prove": (prove, "prove() expects a name (str)"),
    "like": (like, "like() expects a name (str)"),
    "kind": (kind, "kind() expects a name (str)"),
    "precision": (Precision.of, "Precision.of() expects a name (str)"),
    "digits": (lambda x: evaluate(Attention(), INPUTS, digits=x), "digits must be an integer of at least 1"),
    "model": (lambda x: evaluate(x, INPUTS), "cannot be evaluated"),
    "inputs": (lambda x: evaluate(Attention(), x), "the inputs are passed by name"),
    "tokens": (lambda x: Domain(max_tokens=x), "max_tokens must be an integer of at least 1"),
    "score": (lambda x: Domain(max_abs_score=x), "max_abs_score must be a number above 0"),
    "step": (lambda x: walk("eight-step", step=x), "step"),
    "specification": (lambda x: assert_close_to_exact(ONE, ONE, ONE, ONE, x), "the specification is an Attention"),
}


OPTIONAL = ("score", "step", "specification")  # None is the default of these


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", [None, ["x"], (1, 2)], ids=repr)
def test_another_type_is_one_line(name: str, value: Any) -> None:
    call, words = CALLS[name]
    value = {} if value is None and name in OPTIONAL else value
    with pytest.raises(InputError, match=words.replace("(", r"\(").replace(")", r"\)")) as raised:
        call(value)
    assert "\n" not in str(raised.value)


def test_no_theorem_is_proved_where_one_has_no_name() -> None:
    with pytest.raises(InputError, match=r"prove\(\) expects a name \(str\), got a list"):
        prove(["softmax-shift", "softmax-sum"])  # type: ignore[arg-type]


def test_a_whole_number_that_no_float_holds_is_a_number() -> None:
    with pytest.raises(InputError):
        walk({"q": [[10**400]], "k": [[1]], "v": [[1]]})


def test_a_missing_query_is_told() -> None:
    with pytest.raises(InputError, match="there is no input 'q'"):
        assert_close_to_exact(ONE, None, ONE, ONE)
