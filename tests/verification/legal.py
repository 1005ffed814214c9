"""Implementations drawn at random from those that the bound speaks for, every rounding as bad as it may be.

The arithmetic is simulated in float64: each operation is multiplied by 1 + δ with |δ| = u, the sign chosen by a policy,
so that hundreds of roundings pull one way. Float64's own rounding is far below u.
"""

from __future__ import annotations

import math

import numpy as np

from symattn import Precision


class Row:
    """One row of attention, computed in an arithmetic of unit roundoff u by choices drawn from ``rng``."""

    def __init__(self, precision: Precision, rng: np.random.Generator) -> None:
        self.precision, self.rng = precision, rng
        self.u = float(precision.between.u)
        self.sum_u = max(float(precision.accumulate.u), self.u if precision.contract == "eager" else 0.0)
        self.stored_u = max(float(precision.stored.u), self.u if precision.contract == "eager" else 0.0)
        self.out_u = float(precision.returned.u)
        self.eps = 2 * precision.exp_ulps * float(precision.score.u)
        self.policy = rng.choice(["up", "down", "random", "apart"])
        self.favourite = 0
        self.fuses = bool(rng.random() < 0.5)  # products into sums
        self.sums_stored = bool(rng.random() < 0.5)  # weights are stored before they are summed

    def rougher(self, factor: float) -> Row:
        """The same with roundings so many times as large."""
        for name in ("u", "sum_u", "stored_u", "out_u", "eps"):
            setattr(self, name, factor * getattr(self, name))
        return self

    def fl(self, x: float, key: int = 0) -> float:
        return x * (1 + self.u * self.sign(x, key))

    def stored(self, w: float, key: int) -> float:
        return w * (1 + self.stored_u * self.sign(1.0, key)) if w else w

    def term(self, w: float, v: float, key: int) -> float:
        """A weight that is stored, unless it was already, times a value."""
        x = (w if self.sums_stored else self.stored(w, key)) * v
        return x if self.fuses else self.fl(x, key)

    def weights(self, x: list[float], keys: list[int]) -> list[float]:
        """Exponentials of what is left after subtracting, stored at once or later."""
        found = [self.exp(a, j) for a, j in zip(x, keys, strict=True)]
        return [self.stored(w, j) for w, j in zip(found, keys, strict=True)] if self.sums_stored else found

    def total(self, terms: list[float], key: int = 0) -> float:
        """A sum over keys, in any order."""
        return self.add(terms, key, self.sum_u)

    def exp(self, x: float, key: int = 0) -> float:
        return math.exp(x) * (1 + self.eps * self.sign(1.0, key)) if x else 1.0

    def sign(self, x: float, key: int) -> float:
        if self.policy == "random":
            return float(self.rng.choice([-1.0, 1.0]))
        if self.policy == "apart":  # one key is favoured in magnitude and the others are not
            return (1.0 if key == self.favourite else -1.0) * (1.0 if x >= 0 else -1.0)
        return 1.0 if self.policy == "up" else -1.0

    def add(self, terms: list[float], key: int = 0, u: float | None = None) -> float:
        """A sum in any order: two of the terms at a time."""
        terms, u = list(terms), self.u if u is None else u
        while len(terms) > 1:
            i = int(self.rng.integers(len(terms)))
            a = terms.pop(i)
            j = int(self.rng.integers(len(terms)))
            both = terms[j] + a
            terms[j] = both * (1 + u * self.sign(both, key)) if a and terms[j] else both
        return terms[0]

    def scores(self, q: np.ndarray, k: np.ndarray) -> list[float]:
        scale = 1 / math.sqrt(len(q))
        place = self.rng.choice(["queries", "both", "after"])
        found = []
        for j, row in enumerate(k):
            left, right, after = 1.0, 1.0, 1.0
            if place == "queries":
                left = self.fl(self.fl(scale, j), j)
            elif place == "both":
                left = right = self.fl(self.fl(math.sqrt(scale), j), j)
            else:
                after = self.fl(self.fl(scale, j), j)
            products = []
            for a, b in zip(q, row, strict=True):
                x = self.fl(a * left, j) if left != 1 else a
                y = self.fl(b * right, j) if right != 1 else b
                products.append(self.fl(x * y, j))
            s = self.add(products, j)
            s = self.fl(s * after, j) if after != 1 else s
            found.append(self.fl(s, j))  # stored once more
        return found

    def part(self, s: list[float], v: np.ndarray, keys: list[int]) -> tuple[float, float, float]:
        """Maximum, sum and weighted sum over some keys, in tiles, rescaled when the maximum grows."""
        m, total, out = -math.inf, 0.0, 0.0
        width = int(self.rng.integers(1, len(keys) + 1))
        for start in range(0, len(keys), width):
            tile = keys[start : start + width]
            grown = max(m, *(s[j] for j in tile))
            if grown > m > -math.inf:
                shrink = self.exp(self.fl(m - grown))
                total, out = self.fl(total * shrink), self.fl(out * shrink)
            m = grown
            weights = self.weights([self.fl(s[j] - m, j) for j in tile], tile)
            terms = [self.term(w, v[j], j) for w, j in zip(weights, tile, strict=True)]
            total = self.total(([total] if total else []) + weights)
            out = self.total(([out] if out else []) + terms)
        return m, total, out

    def ways(self) -> list[str]:
        """How a row may be summed and normalised in this precision."""
        p = self.precision
        more = {"log-sum-exp": p.lse, "parts": p.merges > 0, "at every tile": p.tiles is None or p.tiles > 0}
        return ["after", "before", *(way for way, may in more.items() if may)]

    def output(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> float:
        self.favourite = int(self.rng.integers(len(k)))
        s = self.scores(q, k)
        keys = [int(j) for j in self.rng.permutation(len(k))]
        how = self.rng.choice(self.ways())
        if how == "after":
            _, total, out = self.part(s, v, keys)
            y = self.fl(out / total) if self.rng.random() < 0.5 else self.fl(out * self.fl(1 / total))
        elif how == "before":
            m = max(s)
            weights = self.weights([self.fl(s[j] - m, j) for j in keys], keys)
            total = self.total(weights)
            y = self.total([self.term(self.fl(w / total, j), v[j], j) for w, j in zip(weights, keys, strict=True)])
        elif how == "log-sum-exp":
            self.sums_stored = False  # what is summed are no weights yet
            lse = self.log_sum_exp(*self.part(s, v, keys)[:2])
            weights = self.weights([self.fl(s[j] - lse, j) for j in keys], keys)
            y = self.total([self.term(w, v[j], j) for w, j in zip(weights, keys, strict=True)])
        elif how == "at every tile":
            y = self.normalised_at_every_tile(s, v, keys)
        else:
            y = self.merged(s, v, keys)
        return y * (1 + self.out_u * self.sign(y, 0))

    def normalised_at_every_tile(self, s: list[float], v: np.ndarray, keys: list[int]) -> float:
        m, total, y = -math.inf, 0.0, 0.0
        tiles = self.precision.tiles
        for piece in np.array_split(keys, max(1, min(len(keys) if tiles is None else tiles, len(keys)))):
            grown = max(m, *(s[j] for j in piece))
            shrink = self.exp(self.fl(m - grown)) if m > -math.inf else 0.0
            weights = self.weights([self.fl(s[j] - grown, j) for j in piece], list(piece))
            old = self.fl(total * shrink)
            total = self.total(([old] if old else []) + weights)
            terms = [self.term(w, v[j], j) for w, j in zip(weights, piece, strict=True)]
            y = self.fl(self.total(([self.fl(y * old)] if old else []) + terms) * self.fl(1 / total))
            m = grown
        return y

    def log_sum_exp(self, m: float, total: float) -> float:
        return self.fl(math.log(total) * (1 + self.eps * self.sign(1.0, 0)) + m) if total != 1 else m

    def merged(self, s: list[float], v: np.ndarray, keys: list[int]) -> float:
        """Parts normalised by themselves, taken up one after another by their log-sum-exp."""
        pieces = np.array_split(keys, min(self.precision.merges + 1, len(keys)))
        lse, y = -math.inf, 0.0
        for piece in pieces:
            m, total, out = self.part(s, v, [int(j) for j in piece])
            new, value = self.log_sum_exp(m, total), self.fl(out / total)
            if lse == -math.inf:
                lse, y = new, value
                continue
            high = max(lse, new)
            both = self.fl(self.exp(self.fl(lse - high)) + self.exp(self.fl(new - high)))
            whole = self.log_sum_exp(high, both)
            old = self.fl(self.exp(self.fl(lse - whole)) * y)
            y = self.fl(old + self.fl(self.exp(self.fl(new - whole)) * value))
            lse = whole
        return y
