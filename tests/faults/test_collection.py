"""The collection is what it says: right programs agree with the loops to rounding, wrong ones do not."""

import warnings
from typing import Any

import pytest

from symattn import Report, verify
from tests.faults.collection.entries import STEPS, Entry, Family, Wrong
from tests.faults.collection.every import chosen, right_ones, wrong_ones
from tests.faults.collection.trial import ratio
from tests.verification.naming import convicts

#: In units of u · max|v| (1 + max|s|): what sums of a few dozen rounded terms may be off by, and what they cannot be.
ROUNDING = 2.0
BEYOND = {"float64": 100.0, "float32": 100.0, "float16": 20.0, "bfloat16": 8.0}


def _parameters(entries: tuple[Entry, ...]) -> list[Any]:
    return [pytest.param(e, id=e.name, marks=[pytest.mark.torch] if e.torch else []) for e in entries]


@pytest.mark.parametrize("entry", _parameters(right_ones()))
def test_a_right_one_agrees_with_the_loops(entry: Entry) -> None:
    assert ratio(entry) < ROUNDING


@pytest.mark.parametrize("entry", _parameters(wrong_ones()))
def test_a_wrong_one_differs_from_the_loops(entry: Entry) -> None:
    assert ratio(entry) > BEYOND[entry.precision]


def test_every_entry_says_all_about_itself() -> None:
    names = [e.name for e in (*right_ones(), *wrong_ones())]
    assert len(set(names)) == len(names)
    assert all(e.why for e in right_ones())
    for entry in wrong_ones():
        assert set(entry.steps) <= set(STEPS), entry.name
        assert all((entry.why, entry.words, entry.shows)), entry.name


def test_each_wrong_one_has_a_right_neighbour() -> None:
    known = {e.name for e in right_ones()}
    near = {e.name: e.near if "." in e.near else f"{e.family}.{e.near}" for e in wrong_ones()}
    assert [name for name, neighbour in near.items() if neighbour not in known] == []


@pytest.mark.parametrize("text", ["other of twice: why", "other (twice), values: why\n    says it\n    q → v"])
def test_a_table_that_does_not_say_one_program_is_refused(text: str) -> None:
    family = Family("test")
    family.right("q + q is twice q")(twice)
    with pytest.raises(ValueError, match=r"not a wrong program|'q' stands \d times in twice"):
        family.wrong(globals(), text)


def twice(q: Any) -> Any:
    return q + q


def test_the_halves_are_about_as_large() -> None:
    names = [e.half for e in (*right_ones(), *wrong_ones())]
    assert 0.4 < names.count("rules") / len(names) < 0.6


def _verified(entry: Entry) -> Report:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return verify(entry.program, entry.spec, precision=entry.arithmetic, domain=entry.domain)


_BY_NAME = ("masking.one_ahead", "norms.bias_left_out", "linear.divided_by_plain_keys", "positions.rope_of_values")
_OTHERS = (
    "torch_gradients.weights_detached",
    "softmax.minimum",
    *(e.name for e in wrong_ones() if e.family == "packed"),
)
_NAMED = (*_BY_NAME, "latents.shared_not_rotated", *_OTHERS)
_PACKED = ("packed.varlen", "packed.labels_differ", "packed.item_by_item", "packed.mask_as_factor")


@pytest.mark.deep
@pytest.mark.parametrize("name", _NAMED)
def test_a_wrong_one_is_named(name: str) -> None:
    (entry,) = chosen(name)
    report = _verified(entry)
    assert isinstance(entry, Wrong)
    assert report.faults[0].step in entry.steps
    assert entry.named_in(report.faults[0].message)


@pytest.mark.deep
@pytest.mark.parametrize("name", _PACKED)
def test_a_right_one_of_packed_sequences_and_late_masks_is_not_accused(name: str) -> None:
    (entry,) = chosen(name)
    assert _verified(entry).faults == ()


_NUMPY = [e for e in chosen() if not e.torch]


@pytest.mark.deep
@pytest.mark.parametrize("entry", _parameters(tuple(e for e in _NUMPY if isinstance(e, Wrong))[::11]))
def test_a_wrong_one_is_found(entry: Entry, request: pytest.FixtureRequest) -> None:
    if entry.name == "precisions.half_scores_overflow":  # the bound of the eager contract says nothing there
        request.applymarker(pytest.mark.xfail(strict=True, reason="overflow before the scale is legal in float16"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert convicts(entry.program, entry.spec, dtype=entry.arithmetic, domain=entry.domain)


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize("entry", _parameters(tuple(e for e in _NUMPY if not isinstance(e, Wrong))[::11]))
def test_a_right_one_is_not_accused(entry: Entry) -> None:
    assert _verified(entry).faults == ()
