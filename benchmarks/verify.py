"""What the verification of a right function costs: processor time of a process, over that of ``import sympy``.

The function is the definition itself on NumPy's arrays, so that nothing is wrong with it and everything is tried. The
process imports symattn, verifies, and is counted with its children; the least of three runs, taken in turns with
``import sympy``. Names that are given run these variants alone.

Command: ``OMP_NUM_THREADS=1 python -m benchmarks.verify [NAME …]``
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from symattn import Attention, Block, Gradient, Rotary, verify
from symattn.programs.specifications import definitions_of

VARIANTS: dict[str, Any] = {
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
    "gradient": Gradient(Attention()),
    "block": Block(attention=Attention()),
    "gated block": Block(
        attention=Attention(causal=True), norm="rms", activation="silu", gated=True
    ),
}
#: Of the cost of ``import sympy``, for the variants that a goal names.
WANTED = {"plain": 3, "grouped heads": 5, "rotary": 5, "gradient": 7, "block": 6, "gated block": 6}


def function_of(spec: Any, tokens: bool) -> Callable[..., Any]:
    """The definition as a function with named parameters."""
    if isinstance(spec, Gradient):
        return lambda q, k, v, do: spec(do, q=q, k=k, v=v)
    if isinstance(spec, Block):
        return _layer(spec)
    if tokens:
        return lambda x, w_q, w_k, w_v, w_o: spec(x=x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o)
    if spec.mask:
        return lambda q, k, v, mask: spec(q, k, v, mask=mask)
    if spec.sink:
        return lambda q, k, v, sink: spec(q, k, v, sink=sink)
    return lambda q, k, v: spec(q, k, v)


def _layer(spec: Block) -> Callable[..., Any]:
    """One layer of a Transformer, with a parameter for each of its inputs."""
    names = {i.words.split()[0]: i.name for i in next(definitions_of(spec)).inputs}

    def run(**arrays: Any) -> Any:
        return spec(**{names[n]: a for n, a in arrays.items()})

    run.__signature__ = Signature([Parameter(n, Parameter.KEYWORD_ONLY) for n in names])  # type: ignore[attr-defined]
    return run


def verified(name: str) -> None:
    """Verify one variant; it must be right."""
    spec = VARIANTS[name]
    report = verify(function_of(spec, name.startswith("tokens")), spec)
    assert report.verdict.value == "no fault", report.faults


def seconds(program: str) -> float:
    """Of the processor, for a process that runs ``program``, and for its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
    }  # an installed package is compiled, too
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    for name in sys.argv[1:] or VARIANTS:
        program = f"from benchmarks.verify import verified; verified({name!r})"
        found, sympy = map(
            min, zip(*((seconds(program), seconds("import sympy")) for _ in range(3)), strict=True)
        )
        wanted = f"  (wanted: ≤ {WANTED[name]} ×)" if name in WANTED else ""
        print(f"{name:15s} {found:5.2f} s  {found / sympy:5.2f} × import sympy{wanted}")


if __name__ == "__main__":
    main()
