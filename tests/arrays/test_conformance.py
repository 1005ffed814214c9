"""Every operation of the namespace and of arrays, on every kind, against an independent reference."""

import re
from collections.abc import Iterable
from itertools import product
from operator import itemgetter
from typing import Any

import array_api_strict
import numpy as np
import pytest

from symattn import Refused, Undecided
from symattn.arrays.base import ArrayBase
from symattn.arrays.namespace import Namespace
from tests.arrays.conformance import check
from tests.arrays.kinds import FORMATS, FloatSpecimen, specimens
from tests.arrays.operations import OF_ORDER, TABLE, Case
from tests.lanes import groups

KINDS = tuple(specimens())
STORED = ("bfloat16", "float8_e4m3fn", "float8_e5m2")

# What a kind lacks: some programs of the row raise this, with these words, and the others agree.
LACKS: dict[tuple[str, str], tuple[type[Exception], str]] = {
    **{("exact", f): (Refused, rf"exact: {f}\(.*\) is not in the decided field") for f in ("erf", "cos", "sin")},
    ("exact", "exp2"): (Refused, r"exact: exp2 .*: a logarithm takes integer multiples only; use ball"),
    ("exact", "log2"): (Refused, "exact: .*: division by a logarithm is not in the decided field; use ball"),
    **{(k, "erf"): (AttributeError, "'numpy' has no attribute 'erf'") for k in ("float64", "float32", "float16")},
    **{(k, "sort descending"): (TypeError, "'descending'") for k in ("float64", "float32", "float16")},
    **{(k, "erf"): (Refused, f"{k} lacks erf") for k in STORED},
    **{
        ("float8_e4m3fn", f): (Refused, "float8_e4m3fn has no infinity to write a mask with")
        for f in ("where", "max", "sign", "isfinite", "isinf", "isneginf", "isnan", "[]=", "in place")
    },
    **{("letters", f): (Undecided, r"symbolic: is .* true\?") for f in OF_ORDER},
}
# Letters are equal if they are so for all values: this asks another question than equality at the values put in.
FOR_ALL_VALUES = ("equal", "not_equal", "==", "!=", "astype", "Array.any", "Array.all")

# Names of the table that the standard has, but with other arguments than those of the table.
NOT_AS_IN_THE_STANDARD = {"isdtype", "bool", "int64", "float32", "float64", "newaxis"}


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_no_name_is_missing_from_the_table() -> None:
    assert public(Namespace) - TABLE.keys() == set()


def test_no_method_of_arrays_is_missing_from_the_table() -> None:
    # what arrays are made with, and how they are shown, tested in their own places
    inside = {"name", "xp", "offer", "holds", "printer", "document"}
    assert {f"Array.{name}" for name in public(ArrayBase) - inside} - TABLE.keys() == set()


@pytest.mark.smoke
@pytest.mark.parametrize("names", groups(TABLE), ids=itemgetter(0))
def test_operation(names: list[str]) -> None:
    for name, kind in _pairs(names, KINDS):
        raised = sum(_agrees_or_lacks(name, case, kind, dispatch=False) for case in TABLE[name])
        assert bool(raised) == ((kind, name) in LACKS), f"{name}, {kind}: listed as lacking, but every program runs"


@pytest.mark.parametrize("names", groups(TABLE), ids=itemgetter(0))
def test_operation_through_numpy_dispatch(names: list[str]) -> None:
    """The same programs, written with NumPy's functions."""
    kinds = [k for k in KINDS if k not in FORMATS or k in STORED]
    for name, kind in _pairs(names, kinds):
        for case in TABLE[name]:
            if case.dispatch:
                _agrees_or_lacks(name, case, kind, dispatch=True)


def _pairs(names: list[str], kinds: Iterable[str]) -> list[tuple[str, str]]:
    every = product(names, kinds)
    return [(name, kind) for name, kind in every if kind != "letters" or name not in FOR_ALL_VALUES]


def _agrees_or_lacks(name: str, case: Case, kind: str, dispatch: bool) -> bool:
    """Whether the program raised what the kind is listed to raise; otherwise it must agree."""
    lacks = LACKS.get((kind, name))
    try:
        check(case, specimens()[kind], dispatch)
    except Exception as error:
        if lacks is not None and isinstance(error, lacks[0]) and re.search(lacks[1], str(error)):
            return True
        error.add_note(f"{name} on the kind {kind}")
        raise
    return False


def test_letters_are_equal_only_if_they_are_so_for_all_values() -> None:
    symbolic = specimens()["symbolic"].kind
    x = symbolic.letters("x", 2)
    assert (x == x).all()
    assert not (x == x[::-1]).any()
    assert ((x + 1) ** 2 == x * x + 2 * x + 1).all()


class StrictSpecimen(FloatSpecimen):
    """The standard's own reference implementation, which has nothing but the standard."""

    xp = array_api_strict

    def lift(self, data: Any) -> Any:
        return array_api_strict.asarray(np.asarray(data, dtype=np.float64))

    def elements(self, array: Any) -> np.ndarray:
        return np.from_dlpack(array).astype(object)


STANDARD = sorted(name for name in TABLE if hasattr(array_api_strict, name) and name not in NOT_AS_IN_THE_STANDARD)


def test_the_table_is_the_standards() -> None:
    """Where the standard has the name, its reference implementation gives what the table asks of every kind."""
    strict = StrictSpecimen("strict", None, dtype=np.dtype(np.float64))
    for name in STANDARD:
        agreed = 0
        for case in TABLE[name]:
            try:
                check(case, strict)
            except AssertionError as error:
                error.add_note(name)
                raise
            except Exception:  # an argument that the standard does not have: a Python list, an array of NumPy, axis=()
                continue
            agreed += 1
        assert agreed, name


def test_a_function_that_no_kind_offers_is_refused_by_name() -> None:
    for name in ("exact", "ball", "symbolic", *STORED):
        array = specimens()[name].lift([[1.0, 2.0]])
        with pytest.raises(Refused, match=f"{name} lacks nan_to_num"):
            np.nan_to_num(array)
        with pytest.raises(Refused, match=f"{name} lacks arctan"):
            np.arctan(array)
        with pytest.raises(Refused, match=f"{name} lacks (norm|linalg.norm)"):
            np.linalg.norm(array)


@pytest.mark.parametrize("kind", ["exact", "bfloat16"])
def test_a_keyword_that_changes_the_answer_is_refused_not_passed_over(kind: str) -> None:
    a = specimens()[kind].lift([[1.0, 2.0]])
    out = a.copy()
    calls = [
        lambda: np.sum(a, axis=0, where=np.array([[True, False]])),
        lambda: np.sum(a, initial=3),
        lambda: np.max(a, axis=0, out=out[0]),
        lambda: np.exp(a, where=np.array([[True, False]])),
        lambda: np.add.reduce(a, axis=0, initial=7),
        lambda: a.sum(where=np.array([[True, False]])),
        lambda: np.cumulative_sum(a[0], include_initial=True),
        lambda: np.mean(a, where=np.array([[True, False]])),
    ]
    for call in calls:
        with pytest.raises(Refused, match=rf"{kind}: \w+\(\w+=…\) is not offered"):
            call()


def test_results_are_written_where_out_says() -> None:
    for name in ("exact", "ball", "symbolic", "bfloat16"):
        a = specimens()[name].lift([[1.0, 2.0]])
        view = a[:, :1]
        np.add(view, 1, out=view)
        assert np.array_equal(a == np.array([[2.0, 2.0]]), [[True, True]])
        with pytest.raises(Refused, match="cannot be written into a NumPy array"):
            np.add(a, 1, out=np.zeros((1, 2)))


def test_every_kind_of_entries_shows_its_elements() -> None:
    for name in ("exact", "ball", "symbolic"):
        array = specimens()[name].kind.lift([[1, 0.5]])
        assert array.entries.shape == (1, 2)
        assert repr(array).startswith(f"{name}([[1")
        assert len(array.tolist()[0]) == 2
        assert array[0, 1].item() is array.entries[0, 1]
