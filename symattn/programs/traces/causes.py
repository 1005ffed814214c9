"""Which one mistake explains an output that is wrong: what it takes away of the distance from the definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from symattn.arrays.precision import Precision
from symattn.bounds.mistake import Mistake
from symattn.programs.frameworks import read
from symattn.programs.traces.pieces import Piece, floats
from symattn.verification.arithmetic.suspects import Sample, explained
from symattn.verification.diagnosis.matching import LITTLE

_ROWS = 48  # queries that are looked at
_ENTRIES = 2**18  # of the inputs, beyond which no cause is sought: hundreds of mistakes are tried


def cause(piece: Piece, precision: Precision) -> tuple[Mistake, float] | None:
    """The mistake that leaves least of ‖y − o‖², and the share that it explains; None where none leaves little.

    Sought in the one head first, then in all of them, where heads may have changed places.
    """
    for part in (piece, piece.whole):
        sample = None if part is None else _sample(part, precision)
        found = None if sample is None else explained(sample, LITTLE)
        if found:
            return found[0], 1 - found[1]
    return None


def _sample(piece: Piece, precision: Precision) -> Sample | None:
    """Some queries at the edge by which places are counted, so that the specification stays what it is."""
    n_q = piece.inputs["q"].shape[-2]
    top = piece.spec.alignment == "top-left"
    rows = range(min(n_q, _ROWS)) if top else range(max(0, n_q - _ROWS), n_q)
    inputs = {n: _rows(n, a, n_q, rows) for n, a in piece.inputs.items()}
    if sum(a.size for a in inputs.values()) > _ENTRIES or piece.spec.position is not None:
        return None
    spec = replace(piece.spec, fully_masked="zeros") if piece.spec.fully_masked == "error" else piece.spec
    return Sample(spec, floats(inputs), read(piece.made["o"][..., list(rows), :])[0], precision.input)


def _rows(name: str, a: np.ndarray, n_q: int, rows: Sequence[int]) -> np.ndarray:
    of_queries = name == "q" or (name in ("mask", "bias") and a.ndim > 1 and a.shape[-2] == n_q > 1)
    return np.asarray(a[..., list(rows), :]) if of_queries else a
