"""``assert_attention`` on right kernels in bfloat16: processor seconds of six specifications, by effort.

The kernels are the definition itself in float32 on NumPy's arrays, with the output stored in bfloat16, so that nothing
is wrong with them and everything is tried. ``--symattn-effort`` of pytest names the efforts.

Command: ``OMP_NUM_THREADS=1 python -m benchmarks.assertions [EFFORT …]``
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from symattn import Attention
from symattn.testing import EFFORTS, assert_attention

SPECS = {
    "plain": Attention(),
    "causal": Attention(causal=True),
    "window": Attention(causal=True, window=16),
    "softcap": Attention(causal=True, softcap=30),
    "grouped heads": Attention(causal=True, heads=4, kv_heads=2),
    "sink": Attention(causal=True, sink="given", heads=2),
}


def kernel(spec: Attention) -> Callable[..., Any]:
    """The definition in float32, its output in bfloat16."""

    def run(*arrays: Any, **more: Any) -> Any:
        wide = [a.astype(np.float32) for a in arrays]
        out = spec(*wide, **{name: a.astype(np.float32) for name, a in more.items()})
        return np.asarray(out, dtype=np.float32).astype(ml_dtypes.bfloat16)

    if spec.sink:
        return lambda q, k, v, sink: run(q, k, v, sink=sink)
    return lambda q, k, v: run(q, k, v)


def seconds(spec: Attention, effort: str) -> float:
    """Of the processor, for one assertion."""
    start = time.process_time()
    assert_attention(
        kernel(spec), spec, precision="bfloat16", **{"budget": 3600.0, **EFFORTS[effort]}
    )
    return time.process_time() - start


def main() -> None:
    efforts = sys.argv[1:] or list(EFFORTS)
    print(f"{'':15}" + "".join(f"{effort:>10}" for effort in efforts))
    total = dict.fromkeys(efforts, 0.0)
    for name, spec in SPECS.items():
        found = {effort: seconds(spec, effort) for effort in efforts}
        total = {effort: total[effort] + found[effort] for effort in efforts}
        print(f"{name:15}" + "".join(f"{found[effort]:10.2f}" for effort in efforts), flush=True)
    print(f"{'together':15}" + "".join(f"{total[effort]:10.2f}" for effort in efforts))


if __name__ == "__main__":
    main()
