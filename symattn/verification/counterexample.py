"""A case as a reader wants it: inputs, the exact value expected, what came instead, and where it went wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.ball import precision as bits
from symattn.attention.spec import Attention
from symattn.errors import SymattnError
from symattn.verification.judge import Judged
from symattn.verification.reference import Variant, run
from symattn.verification.report import Counterexample

if TYPE_CHECKING:
    from symattn.arrays.field.quotient import Quotient

_FEW = 64  # entries up to which an exact value is formed, and steps are shown
_STEPS = ("scores", "scaled", "capped", "positioned", "biased", "masked", "weights", "dropped", "output")


def counterexample(spec: Attention, judged: Judged, variant: Variant | None) -> Counterexample:
    """What to show of a case; with the one mistake that explains it, also the steps to its worst row."""
    plain = shown(judged)
    if judged.outcome.error is not None:
        return replace(plain, error=str(judged.outcome.error))
    if judged.ratios is None:
        return replace(plain, error=f"shape {judged.outcome.shape} in place of {judged.expected.entries.shape}")
    at = judged.where
    assert judged.outcome.output is not None
    entry = judged.expected.entries[at]
    expected = float(entry.mid()) if hasattr(entry, "mid") else float("nan")
    got, limit = float(judged.outcome.output[at]), float(judged.expected.allowed[at])
    exact = _exact(spec, judged, at) if judged.case.size <= _FEW else None
    steps = _steps(spec, judged, variant, at) if variant is not None and judged.case.size <= _FEW else ()
    return replace(plain, index=at, exact=exact, expected=expected, got=got, allowed=limit, steps=steps)


def shown(judged: Judged) -> Counterexample:
    """The inputs alone."""
    inputs = {name: array.tolist() for name, array in judged.case.inputs.items()}
    return Counterexample(inputs, sizes=sizes(judged))


def sizes(judged: Judged) -> dict[str, int]:
    """n_q, n_k, d_k, d_v of a case."""
    values = judged.expected.run.values
    (n_q, d_k), (n_k, d_v) = values["q"].plain_shape[-2:], values["v"].plain_shape[-2:]
    return {"n_q": n_q, "n_k": n_k, "d_k": d_k, "d_v": d_v}


def _exact(spec: Attention, judged: Judged, at: tuple[int, ...]) -> Quotient | None:
    """The expected entry in exact numbers; None where they cannot hold it."""
    from symattn.arrays.exact import Exact
    from symattn.arrays.field.quotient import Quotient

    lifted = {
        name: a if a.dtype.kind in "biu" else Exact.literal(a) if name == "mask" else Exact.lift(a)
        for name, a in ((n, np.asarray(a)) for n, a in judged.case.inputs.items())
    }
    try:
        entry = spec(**lifted).entries[at]
    except SymattnError:
        return None
    return entry if isinstance(entry, Quotient) else None


def _steps(spec: Attention, judged: Judged, variant: Variant, at: tuple[int, ...]) -> tuple[tuple[str, str, str], ...]:
    """The worst row of every step: right, and with the mistake."""
    with bits(128):
        wrong = run(spec, judged.case.inputs, variant).values
    right = judged.expected.in_balls.values
    if len(right["scores"].plain_shape) != 2:
        return ()
    names = [name for name in _STEPS if name in right and name in wrong]
    return tuple((name, _row(right[name], at), _row(wrong[name], at)) for name in names)


def _row(balls: Any, at: tuple[int, ...]) -> str:
    return "  ".join(_number(x) for x in balls.entries[at[0]])


def _number(x: Any) -> str:
    return f"{float(x.mid()):.6g}" if hasattr(x, "mid") else str(x).partition(" (")[0].replace("-inf", "−∞")
