"""What ``assert_close_to_exact`` finds in half precision: the smallest error of the scale, lost keys, caps, edges.

Causal, 4 heads of width 80, entries from N(0, 1), 64 queries of each head; the kernel stores exponentials relative to
a running maximum over 64 keys, and all else is float32. Each number is the largest part of the limit of a mean,
"elements" where single elements are beyond theirs, and "–" where nothing is: first if scores may be stored (the
default), then with ``contract="fused"``. The last line is the smallest error of the scale that is found, within a
tenth.
Command: ``python -m benchmarks.half_power``
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from symattn import Attention
from symattn.arrays.formats import Format
from symattn.bounds.sharp import elements, means
from symattn.bounds.sharp.limits import ALPHA, Stores
from symattn.bounds.sharp.sample import chosen, only

HEADS, WIDTH, ROWS, TILE = 4, 80, 64, 64
Array = np.ndarray


class Trial:
    """Inputs of n keys, and a kernel for some of their queries."""

    def __init__(self, f: Format, n: int) -> None:
        rng = np.random.default_rng(n)
        self.format, self.n = f, n
        spec, given = Attention(causal=True, heads=HEADS), dict[str, Array]()
        given = {name: f.rounded(rng.standard_normal((HEADS, n, WIDTH))) for name in "qkv"}
        self.rows = chosen(spec, given, ROWS)
        self.spec, self.inputs = only(spec, given, self.rows)
        self.raw = self.inputs["q"] @ self.inputs["k"].mT / sqrt(WIDTH)
        self.seen = np.arange(n) <= np.array(self.rows)[:, None]

    def kernel(self, raw: Array, seen: Array) -> Array:
        """Tile by tile."""
        s = np.where(seen, raw, -np.inf)
        m, total, out = np.full((*s.shape[:-1], 1), -np.inf), 0.0, 0.0
        for at in range(0, self.n, TILE):
            now = s[..., at : at + TILE]
            new = np.maximum(m, now.max(-1, keepdims=True))
            top = np.where(np.isfinite(new), new, 0.0)
            e, kept = np.exp(now - top).astype(np.float32), np.exp(m - top)
            total = total * kept + e.sum(-1, keepdims=True)
            out = (
                out * kept + self.format.rounded(e) @ self.inputs["v"][:, at : at + TILE]
            ).astype(np.float32)
            m = new
        return self.format.rounded(np.nan_to_num(out / total))

    def found(self, out: Array, stored: int) -> str:
        """What is beyond the limits, as a word."""
        how = Stores(self.format, stored)
        if elements.judged(self.spec, self.inputs, how, out, ALPHA / 2) is not None:
            return "elements"
        mean = means.judged(self.spec, self.inputs, how, out, ALPHA / 2, self.rows)
        return "–" if mean is None else f"{mean.share:.1f}"

    def scale(self, stored: int) -> float:
        """The smallest error of the scale that is found."""
        low, high = 0.0, 0.1
        while high - low > 0.1 * high:
            by = (low + high) / 2
            missed = self.found(self.kernel(self.raw * (1 + by), self.seen), stored) == "–"
            low, high = (by, high) if missed else (low, by)
        return high


def _shifted(trial: Trial, by: int) -> Array:
    late = np.array(trial.rows)[:, None] >= 3 * trial.n // 4
    return trial.kernel(trial.raw, np.arange(trial.n) <= np.array(trial.rows)[:, None] + by * late)


MISTAKES: dict[str, Callable[[Trial], Array]] = {
    "right": lambda t: t.kernel(t.raw, t.seen),
    "scale 1 %": lambda t: t.kernel(t.raw * 1.01, t.seen),
    "scale 0.3 %": lambda t: t.kernel(t.raw * 1.003, t.seen),
    "cap 15": lambda t: t.kernel(15 * np.tanh(t.raw / 15), t.seen),
    "cap 50": lambda t: t.kernel(50 * np.tanh(t.raw / 50), t.seen),
    "key n/2 lost": lambda t: t.kernel(t.raw, t.seen & (np.arange(t.n) != t.n // 2)),
    "last key lost": lambda t: t.kernel(t.raw, t.seen & (np.arange(t.n) != t.n - 1)),
    "edge −1": lambda t: _shifted(t, -1),
    "edge +1": lambda t: _shifted(t, 1),
}


def main() -> None:
    sizes = (256, 512, 1024, 2048)
    for name in ("bfloat16", "float16"):
        trials = [Trial(Format(name), n) for n in sizes]
        print(f"\n{name:15}" + "".join(f"{f'n = {n}':>22}" for n in sizes))
        for mistake, made in MISTAKES.items():
            cells = (" / ".join(t.found(made(t), stored) for stored in (2, 0)) for t in trials)
            print(f"{mistake:15}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
        cells = (" / ".join(f"{t.scale(stored):.1e}" for stored in (2, 0)) for t in trials)
        print(f"{'least scale':15}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
