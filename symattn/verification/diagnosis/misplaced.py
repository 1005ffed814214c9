"""Right weights that meet other values than their own: which key's weight goes to which value.

With the identity for values, an output's column c is what the value of key c is given. If that is, in every row, a sum
of right weights of some keys, each key's being given once, then the weights are right and stand in wrong places.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.inputs import Sizes
from symattn.bounds.judge import traced
from symattn.verification.probing.search import FAMILIES

if TYPE_CHECKING:
    from symattn.verification.engine import Session

_SIZES = (Sizes(3, 4, 3, 4), Sizes(4, 4, 4, 4), Sizes(2, 5, 2, 5))
_APART = 50  # times what is legal: nearer weights are not told apart


def other_values(session: Session, wrong: list[CaseResult]) -> tuple[str, str]:
    """("values", what is seen), or ("", "") where the weights seen are no right ones in other places."""
    rng = np.random.default_rng((session.seed, 7))
    for sizes in _SIZES if session.spec.heads == 1 else ():
        result = session.maker.make(sizes, FAMILIES["normal"](rng), rng)
        n = result["v"].shape[-2] if "v" in result else 0
        if result.get("v", np.zeros(0)).shape != (n, n):
            continue
        inputs = {**result, "v": np.eye(n)}
        judged = session.run_case(Case("structure", "values in other places", inputs))
        if judged.ratios is None or judged.finding != "values":
            continue
        words = _read(judged)
        if words:
            return "values", f"with V = I for its values, the weights are right and meet other values: {words}"
    return "", ""


def _read(judged: CaseResult) -> str:
    """Read the first row that tells; "" where some row is no rearrangement, or may be several."""
    outcome = ""
    got, right, allowed = judged.outcome.output, traced(judged).near, traced(judged).allowed
    assert got is not None
    for i, (seen, weights, slack) in enumerate(zip(got, right, allowed, strict=True)):
        keys = np.flatnonzero(weights > 0)
        result = [to for to in product(range(len(weights)), repeat=len(keys)) if _gives(seen, weights[keys], to, slack)]
        if len(result) != 1:
            return ""
        moved = next(((j, c) for j, c in zip(keys, result[0], strict=True) if j != c), None)
        if moved is not None and not outcome:
            outcome = f"query {i + 1} gives the weight of key {moved[0] + 1} to the value of key {moved[1] + 1}"
    return outcome


def _gives(seen: np.ndarray, weights: np.ndarray, to: tuple[int, ...], slack: np.ndarray) -> bool:
    """Return whether these weights, each in its place, are what is seen."""
    placed = np.zeros_like(seen)
    np.add.at(placed, list(to), weights)
    return bool((np.abs(placed - seen) <= _APART * slack.max()).all())
