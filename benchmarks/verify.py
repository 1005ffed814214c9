"""What the verification of a right function costs: processor seconds of this process, one variant after another.

The function is the definition itself on NumPy's arrays, so that nothing is wrong with it and everything is tried. The
least of three runs; as a measure of the machine, the time of plain attention is given for each as a ratio. Names that
are given run these variants alone.

Command: ``OMP_NUM_THREADS=1 python -m benchmarks.verify [NAME …]``
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from symattn import Attention, Rotary, verify

VARIANTS = {
    "plain": Attention(),
    "causal": Attention(causal=True),
    "boolean mask": Attention(mask="boolean"),
    "additive mask": Attention(mask="additive"),
    "softcap": Attention(softcap=30),
    "grouped heads": Attention(heads=4, kv_heads=2, causal=True),
    "rotary": Attention(position=Rotary(), causal=True),
    "sink": Attention(sink="given", heads=2),
    "tokens": Attention(),
    "tokens, heads": Attention(heads=2, causal=True),
}


def function_of(spec: Attention, tokens: bool) -> Callable[..., Any]:
    """The definition as a function with named parameters."""
    if tokens:
        return lambda x, w_q, w_k, w_v, w_o: spec(x=x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o)
    if spec.mask:
        return lambda q, k, v, mask: spec(q, k, v, mask=mask)
    if spec.sink:
        return lambda q, k, v, sink: spec(q, k, v, sink=sink)
    return lambda q, k, v: spec(q, k, v)


def seconds(name: str) -> float:
    """Of the processor, for one verification."""
    spec = VARIANTS[name]
    function, start = function_of(spec, name.startswith("tokens")), time.process_time()
    report = verify(function, spec)
    assert report.verdict.value == "no fault", report.faults
    return time.process_time() - start


def main() -> None:
    seconds("plain")  # imports
    plain = min(seconds("plain") for _ in range(3))
    for name in sys.argv[1:] or VARIANTS:
        found = min(seconds(name) for _ in range(3))
        print(f"{name:15s} {found:5.2f} s  {found / plain:5.2f} × plain")


if __name__ == "__main__":
    main()
