"""What a trace holds beside its output: weights, scores, logarithms of sums. Each has to be within what is proved of
every implementation in the precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from symattn.arrays.enclosure import Enclosure
from symattn.arrays.formats import FORMATS, Format
from symattn.arrays.precision import Precision
from symattn.bounds.reference import run
from symattn.bounds.scores import score_errors
from symattn.bounds.sharp.sample import only
from symattn.document.errors import InputError, Refused, Undecided
from symattn.programs.closeness import close_to_exact, logarithms, worst_share
from symattn.programs.frameworks import read
from symattn.programs.traces.pieces import Piece, floats

_FEW = 8  # rows whose logarithms are judged, by balls, which take their time


def of_lse(piece: Piece, precision: Precision, rows: Sequence[int]) -> tuple[str, float]:
    """What is wrong with the logarithms of the sums in some rows, and the largest error in parts of what is allowed."""
    few = list(rows)[:: max(1, len(rows) // _FEW)]
    lse, given, spec = piece.made["lse"], piece.inputs, piece.spec
    share = worst_share(piece.made["o"], given, spec, precision, few, lse)
    return (logarithms(lse, given, spec, precision, few) if share > 1 else ""), share


def of_weights(piece: Piece, precision: Precision, rows: Sequence[int]) -> tuple[str, float]:
    """What is wrong with the weights in ``rows``, in words, and the largest error as a part of what is allowed.

    They are the output for values V = I.
    """
    n_k = piece.inputs["k"].shape[-2]
    given = {**piece.inputs, "v": np.eye(n_k).astype(piece.inputs["q"].dtype)}
    found = close_to_exact(piece.made["weights"], given, piece.spec, precision, rows=rows, called="weights")
    share = worst_share(piece.made["weights"], given, piece.spec, precision, rows)
    return found, share


def of_scores(piece: Piece, precision: Precision, rows: Sequence[int]) -> tuple[str, float]:
    """The same of the scores that the softmax receives; those that a mask forbids are not judged.

    Each may be off by τ of ``verification.bounding.scores``, and by storing it. Raises InputError where they cannot be
    enclosed.
    """
    spec, given = only(piece.spec, floats(piece.inputs), rows)
    try:
        found = run(spec, given, kind=Enclosure)
        tau = np.asarray(score_errors(found, precision).tau, dtype=float)
    except (Refused, Undecided) as error:
        raise InputError(f"scores are not judged for this attention: {error}; hint: give a file without them") from None
    exact, (values, dtype, _) = found.final_scores, read(piece.made["scores"])
    kept = Format(dtype) if dtype in FORMATS else precision.input
    got, size = values[list(rows), :], np.abs(exact.mid) + exact.rad + tau
    allowed = tau + float(kept.u) * size + float(kept.eta)
    with np.errstate(all="ignore"):
        shares = np.where(found.allowed, (np.abs(got - exact.mid) - exact.rad) / allowed, 0.0)
    shares = np.where(found.allowed & ~np.isfinite(got), np.inf, shares)
    if not (shares > 1).any():
        return "", float(shares.max(initial=0.0))
    at = np.unravel_index(int(shares.argmax()), shares.shape)
    place = [rows[int(at[0])], int(at[1])]
    words = (
        f"{int((shares > 1).sum())} of {shares.size} scores are beyond what any implementation in"
        f" {precision.name}{precision.contracted} can give\nThe worst is scores{place}: got {got[at]:.10g},"
        f" exact {exact.mid[at]:.10g}, at most {allowed[at]:.2g} is legal"
    )
    return words, float(shares.max())


#: What judges each, and the most keys with which it does: balls are slow, and weights are the output for V = I.
Look = Callable[[Piece, Precision, Sequence[int]], tuple[str, float]]
BESIDE: Mapping[str, tuple[Look, int]] = {
    "lse": (of_lse, 4096),
    "weights": (of_weights, 2048),
    "scores": (of_scores, 2**20),
}
