"""Decide whether scores are rounded to half precision before the largest is subtracted.

Asked are two keys whose scores are alike then, and differ otherwise.

With scale 1/8, a query gives two keys the scores 2048 and 2054 in bfloat16 (16384 and 16390 in float16), which the
format holds as the same number, and so it does what comes of them by the scale: the weights differ by a factor of
e^0.75 where neither is stored, and are equal where one is. All other keys have weight zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from symattn.bounds import called_target, inputs
from symattn.verification.summing.summed_attention import KEYS, Attending
from symattn.verification.summing.tree import NoTree

Array = np.ndarray
_SCALED = {"bfloat16": 256.0, "float16": 2048.0}  # scores at which the format holds every other whole number
_APART = 0.75  # scaled scores
_FIRST = 32.0  # of the query; the second entry is 1
_NEAR, _TELLING = 0.02, 0.1  # how near weights are to what is meant, and how far apart what is meant has to be


@dataclass(frozen=True)
class StoredScores:
    """Scores that are ``stored`` in a ``format`` or not; None where ``why`` it cannot be determined.

    ``scores`` are those of two keys, and ``weights`` what these got."""

    stored: bool | None = None
    why: str = ""
    scores: tuple[float, float] = (0.0, 0.0)
    weights: tuple[float, float] = (0.0, 0.0)
    format: str = ""

    @property
    def words(self) -> str:
        """In a sentence."""
        if self.stored is None:
            return f"Whether scores are stored cannot be determined from two keys: {self.why}."
        (s, t), (a, b) = self.scores, self.weights
        no = f"Scores are not rounded to {self.format} before the largest is subtracted"
        result = f"Scores are stored in {self.format}" if self.stored else no
        return f"{result}: keys with the scores {s:g} and {t:g} get the weights {a:.4g} and {b:.4g}."

    RECORD = "stored, scores, weights, why"


def scores(runner: called_target.Runner, maker: inputs.Maker, keys: int = KEYS) -> StoredScores:
    """One call, whose last two keys are looked at."""
    try:
        return _scores(Attending(runner, maker), keys)
    except NoTree as error:
        return StoredScores(why=str(error))


def _scores(attending: Attending, n: int) -> StoredScores:
    name, width = attending.maker.precision.input.name, attending.width
    scale = attending.maker.spec.scale
    scale = width**-0.5 if scale is None else float(scale)
    if name not in _SCALED:
        raise NoTree(f"{name} holds both")
    if width < 2:
        raise NoTree("a query has one entry, and two are needed")
    if float(np.frexp(scale)[0]) != 0.5 or _SCALED[name] / scale > 2.0**15:
        raise NoTree("the scale is not a power of two, or scores leave the range of the format")
    first, second = _SCALED[name] / scale, (_SCALED[name] + _APART) / scale
    given = _keys(attending, n, first, second)
    apart, alike = (attending.weights(result)[-2:] for result in (given, _keys(attending, n, first, first)))
    if not np.abs(apart - alike).max() > _TELLING:
        raise NoTree("by the definition the weights hardly differ")
    values = attending.row(given)[:2]
    for stored, meant in ((False, apart), (True, alike)):
        if np.abs(values - meant).max() < _NEAR:
            return StoredScores(stored, "", (first, second), (float(values[0]), float(values[1])), name)
    raise NoTree("their weights are neither those of scores that differ nor of equal scores")


def _keys(attending: Attending, n: int, first: float, second: float) -> dict[str, Array]:
    """Inputs whose last two keys have these scores, and each a column of the values."""
    q, k, v = (np.zeros((n, attending.width)) for _ in "qkv")
    q[:, 0], q[:, 1] = _FIRST, 1.0
    k[:, 0] = -first / _FIRST
    k[-2:, 0], k[-1, 1] = first / _FIRST, second - first
    v[-2, 0] = v[-1, 1] = 1.0
    return attending.inputs(q, k, v)
