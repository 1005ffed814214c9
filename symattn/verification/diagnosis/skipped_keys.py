"""Keys that are left out where their scores are far below the largest one: in which tiles, and how far below.

Such a mistake shows only where many small weights matter, as in the group of inputs that is made for it. The distance
is read off these inputs: at the least one with a wrong output keys are lost, at the largest one with right outputs
they are not. Fewer mistakes are tried than by a search among all, each on floats alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.attention import masks
from symattn.bounds.case_result import CaseResult
from symattn.bounds.mistake import At, Mistake, in_steps

if TYPE_CHECKING:
    from symattn.verification.engine import Session

GROUP = "distant keys"
_WIDTHS = (64, 128, 32, 16, 256, 8, 48, 96)  # of tiles, the usual ones first
WORDS = "keys are skipped where their scores are far below the largest one"
#: Words for the tiles that are skipped, whether all queries of a head must agree, and whether all later tiles are too.
_TILES = (
    ("tiles of {}, for each query", False, False),
    ("tiles of {}, if that holds for all queries", True, False),
    ("all keys from such a tile of {} on", True, True),
)
# which keys are kept, from the distance and the scores
Kept = Callable[[float, np.ndarray], np.ndarray]


def mistakes(session: Session, wrong: Sequence[CaseResult]) -> Iterator[Mistake]:
    """Yield the mistakes of skipped keys, if inputs that are made for it are wrong: key by key, tile by tile for each
    query, and tile by tile if all queries of a head agree."""
    if not any(r.case.group == GROUP for r in wrong):
        return
    lost, safe_distance = _bracket_skipping_distance(session)
    # Right and wrong distances overlap: keys are not skipped by distance.
    if not safe_distance < lost:
        return
    at = f"at {lost:.3g} below it" + (f", not at {safe_distance:.3g}" if safe_distance else "")
    of: list[tuple[str, Kept]] = [("key by key; ", _keep_near_keys)]
    for words, together, ends in _TILES:
        of += [
            (f"{words.format(t)}; ", partial(_keep_tiles_near_maximum, t, together, ends))
            for t in _WIDTHS
        ]
    for where, keep in of:
        # Any distance between both would do.
        skipped = partial(_weights_without_skipped_keys, keep, (lost + safe_distance) / 2)
        yield in_steps("normalize", f"{WORDS} ({where}{at})", weights=skipped)


def plain(mistakes: Sequence[Mistake]) -> Mistake | None:
    """Return the mistake that explains everything; of several the first, in words that say only what they share."""
    if len(mistakes) < 2:
        return next(iter(mistakes), None)
    # Words before these come from the definition around the attention.
    lead = mistakes[0].cause.partition(WORDS)[0]
    at = mistakes[0].cause.partition("; ")[2]
    return replace(mistakes[0], cause=f"{lead}{WORDS} ({at}")


def _bracket_skipping_distance(session: Session) -> tuple[float, float]:
    """Return the least distance at which keys are lost, and the largest one, below that, at which none are.

    Only numbers of keys at which some are lost count: fewer keys may all be in one tile.
    """
    records = [r for r in session.records if r.case.group == GROUP and r.ratios is not None]
    wrong = [r for r in records if r.finding is not None]
    lengths = {session.subject.source.measured(r)["n_k"] for r in wrong}
    # Fewer keys may all lie in one tile, where none is skipped.
    right = (
        r
        for r in records
        if r.finding is None and session.subject.source.measured(r)["n_k"] in lengths
    )
    far = partial(_largest_score_distance, session)
    lost = min(map(far, wrong), default=0.0)
    return lost, max((x for x in map(far, right) if x < lost), default=0.0)


def _largest_score_distance(session: Session, judged: CaseResult) -> float:
    """Return how far below the largest score of a row others are, at most; 0 if that is unknown."""
    scores = session.subject.final_scores(judged)
    if scores is None:
        return 0.0
    top = scores.max(axis=-1)
    least = np.where(np.isfinite(scores), scores, np.inf).min(axis=-1)
    far = (top - least)[np.isfinite(top)]
    return float(np.round(far.max(initial=0.0), 3))


def _weights_without_skipped_keys(keep: Kept, distance: float, at: At) -> Any:
    """Return the weights of the keys that are kept. Raises ``KeyError`` if all are."""
    # Scores of balls are compared by their midpoints.
    scores = at.scores.midpoints() if hasattr(at.scores, "midpoints") else at.scores
    scores = np.where(at.open, np.asarray(scores, dtype=np.float64), -np.inf)
    visible = keep(distance, scores)
    # A mistake that changes nothing here cannot explain anything.
    if visible.all():
        raise KeyError("no key is skipped")
    return at.weights(masks.forbid(at.first, visible))


def _keep_near_keys(distance: float, scores: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        below = scores < scores.max(axis=-1, keepdims=True) - distance
    return np.asarray(~below)


def _keep_tiles_near_maximum(
    width: int, together: bool, ends: bool, distance: float, scores: np.ndarray
) -> np.ndarray:
    """Return the keys in tiles that have a score near the largest one before.

    ``together``: for some query of the head; ``ends``: and so has every tile before.
    """
    visible = np.ones(scores.shape, dtype=bool)
    top = np.full((*scores.shape[:-1], 1), -np.inf)
    ended = np.zeros(top.shape, dtype=bool)
    edges = [*range(0, scores.shape[-1], width), scores.shape[-1]]
    for first, end in pairwise(edges):
        own = scores[..., first:end].max(axis=-1, keepdims=True)
        # Compared with earlier tiles alone, as a kernel does not know the later ones.
        below = own < top - distance
        if together:
            below = np.broadcast_to(below.all(axis=-2, keepdims=True), below.shape)
        ended |= below & ends
        below = below | ended
        visible[..., first:end] &= ~below
        # A skipped tile does not raise the running maximum.
        top = np.maximum(top, np.where(below, -np.inf, own))
    return visible
