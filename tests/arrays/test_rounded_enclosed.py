"""``rounded`` with exact numbers in enclosures: they hold the numbers in balls, and the bounds are the same."""

from typing import Any

import flint
import numpy as np
import pytest

from symattn import Refused, Undecided, kinds, rounded
from symattn.arrays.rounding import bounds
from tests.arrays.operations import TABLE

FORMS = ("float32", "bfloat16", "float16")
_ALIKE = 1e-6  # relative difference of bounds, since each is computed with radii of its own


def _outputs(result: Any) -> list[Any]:
    outputs = result if isinstance(result, (list, tuple)) else [result]
    return [y for y in outputs if hasattr(y, "bound")]


def _runs(form: str, name: str) -> list[tuple[list[Any], list[Any]]]:
    """Return the outputs of a program of the table in balls and in enclosures, where both have a result."""
    pairs = []
    for case in TABLE[name]:
        both = []
        for enclosed in (False, True):
            kind = rounded(form, enclosed=enclosed)
            try:
                both.append(_outputs(case.run(kind.xp, *map(kind.lift, case.inputs))))
            except (Refused, Undecided, AttributeError, TypeError, ZeroDivisionError):
                break
        if len(both) == 2:
            pairs.append((both[0], both[1]))
    return pairs


def _encloses(wide: Any, sharp: Any) -> bool:
    """Return whether no element is apart from its ball, and what is no number is none here."""
    middles, radii = wide.planes[0], wide.near.off
    for at, ball in np.ndenumerate(sharp.planes[0]):
        if isinstance(ball, (kinds.Forbidden, kinds.Undefined)):
            if np.isfinite(middles[at]):
                return False
        elif np.isfinite(radii[at]) and abs(ball - flint.arb(float(middles[at]))) > float(radii[at]):
            return False
    return True


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("form", [FORMS[0], *(pytest.param(form, marks=pytest.mark.deep) for form in FORMS[1:])])
def test_enclosures_hold_the_balls_and_have_their_bounds(form: str, name: str) -> None:
    for sharp_outputs, wide_outputs in _runs(form, name):
        for sharp, wide in zip(sharp_outputs, wide_outputs, strict=True):
            assert sharp.plain_shape == wide.plain_shape
            assert _encloses(wide, sharp)
            known = np.isfinite(sharp.bound) & np.isfinite(wide.bound)
            assert np.allclose(wide.bound[known], sharp.bound[known], rtol=_ALIKE, atol=1e-300)


@pytest.mark.deep
def test_radii_that_are_left_out_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = rounded("float32", enclosed=True)
    usual = kind.read_floats.__func__  # type: ignore[attr-defined]

    def without_radii(cls: Any, value: Any, data: object = None) -> bounds.Floats:
        found = usual(cls, value, data)
        return bounds.Floats(found.near, np.zeros_like(found.off))

    monkeypatch.setattr(kind, "read_floats", classmethod(without_radii))
    outputs = [pair for name in TABLE for runs in _runs("float32", name) for pair in zip(*runs, strict=True)]
    assert not all(_encloses(wide, sharp) for sharp, wide in outputs)


def test_an_order_that_roundings_can_change_is_undecided_at_once() -> None:
    kind = rounded("bfloat16", enclosed=True)
    third = kind.lift(np.array([1.0, 2.0])) / kind.lift(np.array([3.0, 3.0]))
    with pytest.raises(Undecided, match="rounding moves them by"):
        _ = third[0] + third[1] < kind.lift(1.0)
    assert bool(third[0] < third[1])


def test_masked_scores_and_empty_rows_are_no_numbers() -> None:
    kind = rounded("float32", enclosed=True)
    scores = kind.literal(np.array([[0.5, -np.inf], [-np.inf, -np.inf]]))
    weights = kind.xp.exp(scores)
    assert weights.planes[0].tolist()[1] == [0.0, 0.0]
    empty = kind.lift(np.zeros(2)) / kind.xp.sum(weights[1])
    assert np.isnan(empty.planes[0]).all()
    assert empty.within(np.full(2, np.nan)).all()
    assert kind.literal(np.array([-np.inf])).within(np.array([-np.inf])).all()
