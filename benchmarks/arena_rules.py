"""The contestants of the arena beside symattn: rules by which test suites and benchmarks accept an output.

Each rule gets the output, the definition in float64, and the definition step by step in the candidate's own format
(``eager``). Sources: FlashAttention, tests/test_flash_attn.py (at most twice the error of an eager implementation in
the same precision) and hopper/test_flash_attn.py (plus the rounding of the output); KernelBench, src/eval.py
(``torch.allclose`` with one number for both tolerances).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.arena_entrants import Entrant
from symattn.arrays import kind
from symattn.document.errors import SymattnError
from symattn.programs.process import NotDone, apart
from tests.faults.collection import kinds, trial

Array = Any
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
RATIO, COSINE = 0.99, 0.99
_SECONDS = 20.0  # of processor time, for the calls of a hostile candidate


@dataclass(frozen=True)
class Compared:
    """One output as float64, beside the definition in float64 and in the format of the candidate."""

    got: Array
    exact: Array
    eager: Array
    unit: float


def within(tolerance: float, it: Compared) -> Array:
    """Return where |got − exact| ≤ tolerance (1 + |exact|), as ``allclose`` has it; False for NaN."""
    return np.isclose(it.got, it.exact, rtol=tolerance, atol=tolerance)


def is_allclose(tolerance: float, it: Compared) -> bool:
    return bool(within(tolerance, it).all())


def is_mostly_close(it: Compared) -> bool:
    """Whether 99 % of the elements are within 10⁻², 10⁻³ in float32 and finer formats."""
    tolerance = 1e-3 if it.unit < 1e-6 else 1e-2
    return bool(within(tolerance, it).mean() >= RATIO)


def is_twice_eager(roundings: float, it: Compared) -> bool:
    """Whether max |got − exact| ≤ 2 max |eager − exact| + roundings · u · max |exact|."""
    limit = 2 * np.abs(it.eager - it.exact).max() + roundings * it.unit * np.abs(it.exact).max()
    return bool(np.abs(it.got - it.exact).max() <= limit)


def is_parallel(it: Compared) -> bool:
    """Whether the cosine between the output and the definition is at least 0.99."""
    norms = np.linalg.norm(it.got) * np.linalg.norm(it.exact)
    return (
        bool(np.sum(it.got * it.exact) >= COSINE * norms)
        if norms > 0
        else bool((it.got == it.exact).all())
    )


RULES: dict[str, Callable[[Compared], bool]] = {
    "always accept": lambda it: True,
    "always reject": lambda it: False,
    "allclose, 10⁻²": partial(is_allclose, 1e-2),
    "allclose, 10⁻³": partial(is_allclose, 1e-3),
    "allclose, 10⁻⁴": partial(is_allclose, 1e-4),
    "at most twice eager": partial(is_twice_eager, 0),
    "twice eager + rounding": partial(is_twice_eager, 1),
    "99 % of elements": is_mostly_close,
    "cosine ≥ 0.99": is_parallel,
}


def accepted(
    outputs: list[Array] | None, exact: list[Array], eager: list[Array], unit: float
) -> dict[str, bool]:
    """Return which rules accept the outputs of one call; None if it gave none, which only ``always accept`` does."""
    fits = outputs is not None and len(outputs) >= len(exact)
    fits = fits and all(a.shape == b.shape for a, b in zip(outputs or [], exact, strict=False))
    if not fits:
        return {name: name == "always accept" for name in RULES}
    compared = [Compared(*three, unit) for three in zip(outputs or [], exact, eager, strict=False)]
    with np.errstate(all="ignore"):
        return {name: all(map(rule, compared)) for name, rule in RULES.items()}


def outputs_of(entrant: Entrant, given: dict[str, Array]) -> list[Array] | None:
    """Return what an entrant returns, as float64; None for an exception. A hostile one is called in a copy."""
    if entrant.text:
        return _outputs_of_hostile(entrant, given)
    entry = entrant.entry
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = trial.called(entry, given, may_change=True)
        return [trial.read(entry, a, given) for a in found if a is not None]
    except Exception:  # the program may raise anything
        return None


def _outputs_of_hostile(entrant: Entrant, given: dict[str, Array]) -> list[Array] | None:
    def task() -> list[Array]:
        space: dict[str, Any] = {"__name__": "kernel"}
        exec(entrant.text, space)
        wanted = trial.dtype(entrant.precision)
        return [np.asarray(space["f"](*(given[name].astype(wanted) for name in "qkv")), np.float64)]

    try:
        return apart(task, _SECONDS)
    except NotDone:
        return None


def definition_of(entrant: Entrant, given: dict[str, Array], precision: str) -> list[Array]:
    """Return the definition step by step in a format; a rotation, which is no function, is the exact one, rounded.

    The last ones are kept, since many entrants get the same inputs. Raises ``SymattnError`` if the definition cannot be
    called with these inputs.
    """
    key = (
        repr(entrant.spec),
        precision,
        *((name, a.shape, a.tobytes()) for name, a in given.items()),
    )
    if key not in _KEPT:
        _KEPT[key] = _computed(entrant.spec, given, precision)
        while len(_KEPT) > MAX_KEPT:
            del _KEPT[next(iter(_KEPT))]
    return _KEPT[key]


_KEPT: dict[Any, list[Array]] = {}
MAX_KEPT = (
    16  # definitions at inputs: two formats, two forms, three seeds, and some calls of the judge
)


def _computed(spec: Any, given: dict[str, Array], precision: str) -> list[Array]:
    if not callable(spec):
        return [trial.rounded(a, precision) for a in _exact(spec, given)]
    arrays = {"do" if name == "dout" else name: _lifted(a, precision) for name, a in given.items()}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = spec(**arrays)
        except (TypeError, ValueError) as error:
            raise SymattnError(str(error)) from None
    every = found if isinstance(found, tuple) else (found,)
    return [
        np.asarray(a.numpy() if precision == "bfloat16" else a, dtype=np.float64) for a in every
    ]


def _exact(spec: Any, given: dict[str, Array]) -> list[Array]:
    try:
        return [a for a, _ in kinds.outputs(spec, given)]
    except (KeyError, ValueError) as error:  # the loops know no batches
        raise SymattnError(str(error)) from None


def _lifted(a: Array, precision: str) -> Array:
    if np.asarray(a).dtype.kind != "f":
        return a
    return kind("bfloat16").lift(a) if precision == "bfloat16" else np.asarray(a).astype(precision)
