"""``assert_close_to_exact`` in half precision at the size of a kernel's test, against NumPy's float64 attention.

q, k and v are 2 × 8 × 2048 × 128 in bfloat16, causal, and the output is right: the whole of it is judged, and 32 rows
of every head. NumPy's attention is the usual one, a head at a time, the whole matrix of scores in place. One thread;
ratios are of the shortest of several times each, taken in turns; memory is that of arrays (``tracemalloc``).
Command: ``OMP_NUM_THREADS=1 python -m benchmarks.half``
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from benchmarks.enclosure import peak, ratio, seconds
from symattn import Attention
from symattn.testing import assert_close_to_exact

SHAPE = (2, 8, 2048, 128)


def plain(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention, head by head."""
    out, later = np.empty(q.shape), np.triu(np.ones((q.shape[-2],) * 2, dtype=bool), 1)
    for at in np.ndindex(q.shape[:-2]):
        s = q[at] @ k[at].T
        s *= q.shape[-1] ** -0.5
        s[later] = -np.inf
        s -= s.max(axis=-1, keepdims=True)
        np.exp(s, out=s)
        s /= s.sum(axis=-1, keepdims=True)
        out[at] = s @ v[at]
    return out


def main() -> None:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(SHAPE).astype(ml_dtypes.bfloat16) for _ in range(3)]
    wide = [a.astype(np.float64) for a in given]
    out = plain(*wide).astype(ml_dtypes.bfloat16)
    spec = Attention(causal=True, heads=SHAPE[1])

    def judge(**told: int) -> None:
        assert_close_to_exact(out, *given, spec, **told)

    print("               times NumPy  seconds  MiB")
    for name, told, runs in (("all rows", {}, 2), ("32 of each head", {"rows": 32}, 3)):
        times = ratio(lambda told=told: judge(**told), lambda: plain(*wide), runs)
        least = min(seconds(lambda told=told: judge(**told)) for _ in range(runs))
        print(
            f"{name:15}{times:12.2f}{least:9.2f}{peak(lambda told=told: judge(**told)) / 2**20:6.0f}"
        )


if __name__ == "__main__":
    main()
