"""One program on one kind, compared with the reference: what the suite, and the tests of the suite, are made of."""

from collections.abc import Iterable
from typing import Any

import mpmath
import numpy as np

from tests.arrays import programs as programs  # fills its rows of the table
from tests.arrays.kinds import Specimen, rounded
from tests.arrays.operations import TABLE, Case
from tests.arrays.reference import DIGITS, Magnitude, Reference, exact


def check(case: Case, specimen: Specimen, dispatch: bool = False) -> None:
    """Run the row on the kind, with NumPy's functions for the namespace's if ``dispatch``; AssertionError if wrong."""
    with np.errstate(all="ignore"):
        got = case.run(np if dispatch else specimen.xp, *[specimen.lift(data) for data in case.inputs])
        if specimen.once and case.once:
            narrow = [np.asarray(data, dtype=np.float32) for data in case.inputs]
            if case.reference is None and not _missing(case, np):
                return _compare_bits(got, case.run(np, *narrow), specimen)
    with mpmath.workdps(DIGITS):
        wanted, magnitude = reference_of(case)
        _compare(got, wanted, magnitude, case, specimen)


def _missing(case: Case, xp: Any) -> bool:
    return "erf" in case.run.__code__.co_names and not hasattr(xp, "erf")


def reference_of(case: Case) -> tuple[Any, Any]:
    """The values that every kind must give, and what their rounding errors are relative to."""
    run = case.reference or case.run
    inputs = [exact(data) for data in case.inputs]
    wanted = run(Reference(), *inputs)
    if case.magnitude is not None:
        return wanted, case.magnitude(*inputs)
    return wanted, run(Magnitude(), *[np.abs(a) for a in inputs]) if case.cancels else wanted


def _compare(got: Any, wanted: Any, magnitude: Any, case: Case, specimen: Specimen) -> None:
    if isinstance(wanted, (list, tuple)) and not isinstance(got, np.ndarray):
        assert len(got) == len(wanted)
        for parts in zip(got, wanted, magnitude, strict=True):
            _compare(*parts, case, specimen)
    elif _plain(got):
        assert np.shape(got) == np.shape(wanted)
        assert np.array_equal(got, wanted)
    else:
        _compare_elements(got, np.asarray(wanted, dtype=object), np.asarray(magnitude, dtype=object), case, specimen)


def _plain(x: Any) -> bool:
    """Booleans, indices, sizes, words: what is equal or not on every kind."""
    if isinstance(x, (np.ndarray, np.generic)):
        return x.dtype.kind in "biu"
    return isinstance(x, (bool, int, float, str)) or x is None


def _compare_elements(got: Any, wanted: np.ndarray, magnitude: np.ndarray, case: Case, specimen: Specimen) -> None:
    elements = specimen.elements(got)
    assert elements.shape == wanted.shape, f"shape {elements.shape}, not {wanted.shape}"
    for index, value in np.ndenumerate(wanted):
        x, special = elements[index], _special(value)
        assert specimen.special(x) == special, f"{x} at {index}, not {value}"
        if not special:
            size = np.broadcast_to(magnitude, wanted.shape)[index]
            agrees = specimen.agrees(x, value, case.roundings, size)
            assert agrees, f"{x} at {index}, not {value}"


def _special(value: Any) -> str:
    return "undefined" if value != value else "forbidden" if value == float("-inf") else ""


def _compare_bits(got: Any, float32: Any, specimen: Any) -> None:
    if isinstance(float32, (list, tuple)):
        assert len(got) == len(float32)
        for one, other in zip(got, float32, strict=True):
            _compare_bits(one, other, specimen)
    elif _plain(got):
        assert np.array_equal(got, float32)
    else:
        wanted = rounded(float32, specimen.dtype).astype(float)
        assert np.array_equal(specimen.elements(got).astype(float), wanted, equal_nan=True)


def failures(specimen: Specimen, names: Iterable[str] = tuple(TABLE), dispatch: bool = False) -> dict[str, str]:
    """The operations on which the kind fails, with the reason."""
    found = {}
    for name in names:
        for case in TABLE[name]:
            if dispatch and not case.dispatch:
                continue
            try:
                check(case, specimen, dispatch)
            except Exception as error:
                found.setdefault(name, f"{type(error).__name__}: {error}")
    return found
