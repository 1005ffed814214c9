"""Arrays of a trace beside its output: weights, scores, logarithms of sums. Each has to be within what is proved of
every implementation in the precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.arrays.precision import Precision
from symattn.bounds.judgement import measure_scores
from symattn.bounds.sharp.sample import only
from symattn.document.errors import InputError, Refused, Undecided
from symattn.programs.closeness import close_to_exact, logarithms, worst_share
from symattn.programs.frameworks import read
from symattn.programs.question import Question
from symattn.programs.traces.pieces import TracePiece, floats

_FEW = 8  # rows whose logarithms are judged, by balls, which take their time


def of_lse(piece: TracePiece, precision: Precision, rows: Sequence[int]) -> tuple[str, float]:
    """Describe what is wrong with the logarithms of the sums in some rows, and return the largest error / allowed."""
    few = list(rows)[:: max(1, len(rows) // _FEW)]
    return logarithms(piece.made["lse"], piece.inputs, piece.spec, precision, few)


def of_weights(piece: TracePiece, precision: Precision, rows: Sequence[int]) -> tuple[str, float]:
    """Describe what is wrong with the weights in ``rows``, and return the largest error as a part of what is allowed.

    They are the output for values V = I.
    """
    n_k = piece.inputs["k"].shape[-2]
    given = {**piece.inputs, "v": np.eye(n_k).astype(piece.inputs["q"].dtype)}
    result = close_to_exact(Question(piece.made["weights"], given, piece.spec, precision, rows=rows), "weights")
    share = worst_share(piece.made["weights"], given, piece.spec, precision, rows)
    return result, share


def of_scores(piece: TracePiece, precision: Precision, rows: Sequence[int]) -> tuple[str, float]:
    """Judge the scores that the softmax receives in the same way; those that a mask forbids are not judged.

    Raises InputError where they cannot be enclosed.
    """
    values, dtype, _ = read(piece.made["scores"])
    kept, got = Format(dtype) if dtype in FORMATS else precision.input, values[list(rows), :]
    try:
        result = measure_scores(*only(piece.spec, floats(piece.inputs), rows), got, precision, kept)
    except (Refused, Undecided) as error:
        raise InputError(f"scores are not judged for this attention: {error}; hint: give a file without them") from None
    if not result.beyond:
        return "", float(result.ratios.max(initial=0.0))
    at = result.worst
    words = (
        f"{int((result.ratios > 1).sum())} of {result.ratios.size} scores are beyond what any implementation in"
        f" {precision.name}{precision.contracted} can give\nThe worst is scores{[rows[at[0]], at[1]]}: got"
        f" {got[at]:.10g}, exact {result.near[at]:.10g}, at most {result.allowed[at]:.2g} is allowed"
    )
    return words, float(result.ratios[at])


#: What judges each, and the most keys with which it does: balls are slow, and weights are the output for V = I.
Look = Callable[[TracePiece, Precision, Sequence[int]], tuple[str, float]]
BESIDE: Mapping[str, tuple[Look, int]] = {
    "lse": (of_lse, 4096),
    "weights": (of_weights, 2048),
    "scores": (of_scores, 2**20),
}
