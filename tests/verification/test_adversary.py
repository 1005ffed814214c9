"""One legal implementation whose roundings all pull one way comes near the bound, and never beyond."""

from dataclasses import dataclass

import numpy as np
import pytest

from symattn import Attention
from symattn.arrays.precision import Precision
from symattn.bounds import plain_bound

CASES = {
    "float32, in any order": (Precision.of("fp32"), 0.2),
    "float32, in tiles": (Precision.of("fp32").in_tiles(96, 16), 0.3),
    "float16 over float32": (Precision.of("fp16", "fused"), 0.5),
    "bfloat16 over float32": (Precision.of("bf16", "fused"), 0.5),
}


def fractions(p: Precision, n: int, d: int, rows: int, seed: int) -> list[float]:
    """What part of the allowed error is reached, for some rows and columns, by the best one of some ways."""
    rng = np.random.default_rng(seed)
    given = {name: p.input.rounded(rng.standard_normal((n if name != "q" else rows, d))) for name in "qkv"}
    allowed, ways = plain_bound.allowed(Attention(), given, p), [(1, True), (1, False), (n, True)]
    if p.height is not None:
        ways = [(16, True)]
    found = []
    for i in range(rows):
        for c in range(min(d, 3)):
            arrays = given["q"][i], given["k"], given["v"][:, c]
            found.append(max(Steered(p, *way).fraction(*arrays, float(allowed[i, c])) for way in ways))
    return found


@pytest.mark.parametrize("name", CASES)
def test_steered_roundings_come_near_the_bound_and_never_beyond(name: str) -> None:
    p, least = CASES[name]
    found = fractions(p, 96, 16, 4, 51)
    print(f"{name}: {np.median(found):.2f} of the bound (median), {max(found):.2f} (largest)")
    assert max(found) <= 1
    assert np.median(found) >= least


@pytest.mark.parametrize("name", ["float16 over float32", "bfloat16 over float32"])
def test_half_the_bound_would_refuse_what_is_legal(name: str) -> None:
    assert max(fractions(CASES[name][0], 32, 8, 4, 52)) > 0.5


@dataclass
class Steered:
    """A row with a direction: y is made as large as can be."""

    precision: Precision
    width: int  # of tiles
    rising: bool = True  # keys come by their scores, so that the maximum grows with each tile; or positive values first

    def __post_init__(self) -> None:
        p = self.precision
        self.u, self.sum_u, self.out_u = float(p.between.u), float(p.accumulate.u), float(p.returned.u)
        self.stored_u, self.exp_u = float(p.stored.u), float(p.score.u)
        self.eps = 2 * p.exp_ulps * self.exp_u

    def fraction(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: float) -> float:
        """|y − o| as a part of what is allowed, upwards or downwards."""
        t = k @ q / np.sqrt(len(q))
        p = np.exp(t - t.max())
        o = float(p @ v / p.sum())
        return max(abs(self.output(q, k, v, o) - o), abs(self.output(q, k, -v, -o) + o)) / allowed

    def output(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, o: float) -> float:
        """y."""
        favour = np.where(v > o, 1.0, -1.0)
        s = self.scores(q, k, favour)
        order = np.argsort(s) if self.rising else np.lexsort((-s * np.where(v > 0, 1, -1), v <= 0))
        above = total = 0.0
        m = -np.inf
        for start in range(0, len(s), self.width):
            tile = order[start : start + self.width]
            grown = max(m, float(s[tile].max()))
            if grown > m > -np.inf:
                above, total = self._rescaled(above, total, m - grown, o)
            weights = np.exp((s[tile] - grown) * (1 - 3 * self.exp_u * favour[tile]))
            weights *= np.where(s[tile] < grown, 1 + self.eps * favour[tile], 1.0)
            signs = np.where(v[tile] > 0, 1.0, -1.0)
            terms = weights * v[tile] * (1 + (self.stored_u + 3 * self.sum_u) * signs)
            above, total = self._sum([above, *terms], 1.0), self._sum([total, *weights], -1.0)
            if self.precision.tiles is None:  # normalised after each tile
                above *= 1 + 4 * self.sum_u * np.sign(above)
            m = grown
        return float(above / total * (1 + self.out_u * np.sign(above)))

    def scores(self, q: np.ndarray, k: np.ndarray, favour: np.ndarray) -> np.ndarray:
        """Each sum starts with its largest products, which pass the most roundings."""
        products = np.sort(np.abs(q * k), axis=1)[:, ::-1]
        signs = np.take_along_axis(np.sign(q * k), np.argsort(-np.abs(q * k), axis=1, kind="stable"), axis=1)
        passed = len(q) - np.maximum(np.arange(len(q)) - 1, 0) + 6 - (len(q) == 1)
        sums = (products * signs * (1 + self.u * favour[:, None] * signs) ** passed).sum(axis=1) / np.sqrt(len(q))
        return np.asarray(sums * (1 + 2 * self.u * favour * np.sign(sums)))

    def _rescaled(self, above: float, total: float, fall: float, o: float) -> tuple[float, float]:
        up = 1.0 if above > o * total else -1.0
        factor = np.exp(fall * (1 - 3 * self.exp_u * up)) * (1 + self.eps * up)
        return float(above * factor * (1 + self.sum_u * np.sign(above))), float(total * factor * (1 - self.sum_u))

    def _sum(self, terms: list[float], towards: float) -> float:
        """Positive terms first, the largest at the start; or each as deep as the height allows, by sign."""
        x = np.array([a for a in terms if a])
        height = self.precision.height
        if height is not None:
            depth = min(self.width, height)
            return float((x * (1 + self.sum_u * towards * np.sign(x)) ** depth).sum())
        found = 0.0
        for a in [*sorted(x[x > 0], reverse=True), *sorted(x[x < 0])]:
            found = (found + a) * (1 + self.sum_u * towards * np.sign(found + a)) if found else a
        return found
