"""The largest sizes that ``verify`` tries together, by front end and definition: a table.

``python -m tests.verification.sizes_together [NAME ...]`` runs each right program; with names, of a front end, of a
definition or of both, those alone that have them. The rule is several blocks of 128 in n_q and in n_k and a width above
64 at once, on floats and on residues; a graph has no floats. With ``--wrong`` three mistakes are put into each program,
each of which shows at large sizes alone, and the line says whether some input shows a fault. Kernels of Triton need
``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from symattn import (
    Alibi,
    Attention,
    Cached,
    Gradient,
    LayerNorm,
    LinearAttention,
    Merge,
    RMSNorm,
    Rotary,
    Softmax,
    Verdict,
    graphs,
    verify,
)
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options
from symattn.verification.engine import Session, finds_fault

Array = Any
Program = Callable[..., Any]
CAUSAL = Attention(causal=True)
ROTARY, ALIBI = Attention(causal=True, position=Rotary()), Attention(causal=True, position=Alibi())
_BLOCK, _WIDE = 128, 64
#: Definitions whose first way is run as the program, on arrays of NumPy, torch and JAX.
OF_DEFINITIONS: Mapping[str, Any] = {
    "cache": Cached(CAUSAL),
    "gradient": Gradient(CAUSAL),
    "log-sum": Attention(causal=True, lse=True),
    "softmax": Softmax(),
    "merge": Merge(),
    "linear attention": LinearAttention(),
    "layer norm": LayerNorm(),
    "RMS norm": RMSNorm(),
}


@dataclass(frozen=True)
class Row:
    """A line of the table: a right program of a front end, and what it computes.

    ``graph`` makes the graph of a program, which is verified in its place; ``options`` are those of ``verify``.
    """

    framework: str
    name: str
    program: Program
    spec: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    graph: Callable[[Program], Any] | None = None

    @property
    def framework_of_arrays(self) -> str:
        """The framework of the arrays: kernels of Triton are launched by functions of torch."""
        return "torch" if self.framework == "triton" else self.framework


def first_way(spec: Any) -> Program:
    """Return the first way of a definition as a function of its inputs by name."""
    definition = next(iter(definitions_of(spec)))
    names = [i.name for i in definition.inputs if i.needed]

    def computed(*arrays: Any) -> Any:
        outputs = definition.run(definition.ways[0], dict(zip(names, arrays, strict=True)))
        return outputs if len(outputs) > 1 else outputs[0]

    return named(names, computed)


def named(names: list[str], computed: Program) -> Program:
    """Return a function with parameters of these names."""
    scope: dict[str, Any] = {"computed": computed}
    exec(f"def program({', '.join(names)}):\n    return computed({', '.join(names)})", scope)
    program: Program = scope["program"]
    return program


def of_library(framework: str) -> Any:
    """Return NumPy, torch, or jax.numpy; kernels of Triton and exported graphs are functions of torch."""
    if framework == "numpy":
        return np
    if framework.startswith("jax"):
        import jax.numpy

        return jax.numpy
    import torch

    return torch


def attend(xp: Any, rotated: bool, slope: float, q: Array, k: Array, v: Array) -> Array:
    """Causal attention, with rotary positions, or with ALiBi where the slope is not 0, in a library of arrays."""
    (n, d), m = q.shape, k.shape[0]
    if rotated:
        q, k = rotate(xp, q, xp.arange(n) + (m - n)), rotate(xp, k, xp.arange(m))
    s = q @ k.T / d**0.5
    behind = xp.arange(n)[:, None] + (m - n) - xp.arange(m)
    s = s - slope * behind if slope else s
    s = xp.where(behind >= 0, s, -xp.inf)
    top = xp.amax(s, -1, keepdims=True) if xp is not np else s.max(axis=-1, keepdims=True)
    e = xp.exp(s - top)
    return e / e.sum(-1)[:, None] @ v


def rotate(xp: Any, x: Array, positions: Array) -> Array:
    """Rotate the columns l and l + d/2 of each row."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * 10000.0 ** (-xp.arange(half) / half)
    c, s = (a.to(x.dtype) if hasattr(a, "to") else a.astype(x.dtype) for a in (xp.cos(angle), xp.sin(angle)))
    a, b = x[:, :half], x[:, half:]
    return xp.concatenate((a * c - b * s, b * c + a * s), -1)


def rows() -> Iterator[Row]:
    """Yield the rows of the table."""
    for framework in ("numpy", "torch", "jax"):
        attention = partial(attend, of_library(framework))
        for name, spec, rotated, slope in _ATTENTION:
            yield Row(framework, name, named(["q", "k", "v"], partial(attention, rotated, slope)), spec)
        for name, spec in OF_DEFINITIONS.items():
            yield Row(framework, name, first_way(spec), spec)
    yield from of_kernels()
    for framework, graph in _GRAPHS.items():
        program = partial(attend, of_library(framework), False, 0.0)
        yield Row(framework, "plain", named(["q", "k", "v"], program), CAUSAL, graph=graph)


_ATTENTION = (
    ("plain", CAUSAL, False, 0.0),
    ("rotary", ROTARY, True, 0.0),
    ("ALiBi", ALIBI, False, 2.0**-8),
)


def of_kernels() -> Iterator[Row]:
    """Yield kernels of Triton, if it is installed."""
    try:
        from symattn.programs import triton_host

        triton_host.prepare()
        from tests.programs import kernels_of_triton as kernels
    except ImportError:
        return
    yield Row("triton", "plain", kernels.plain, Attention(), {"layout": "nd"})
    heads = Attention(causal=True, heads=2)
    yield Row("triton", "heads", kernels.output, heads, {"layout": "bhnd"})


# -- graphs of a function of q, k, v, whose numbers of tokens are open -------------------------------------------------
_QUERIES, _KEYS, _WIDTH = 5, 7, 100  # of the arrays with which a graph is exported


def exported(program: Program) -> Any:
    """Return the program of ``torch.export``."""
    import torch

    n, m = torch.export.Dim("n"), torch.export.Dim("m")
    shapes = {"q": {0: n}, "k": {0: m}, "v": {0: m}}
    return torch.export.export(_module(program), _examples(), dynamic_shapes=shapes)


def in_onnx(program: Program) -> Any:
    """Return the ONNX model that torch writes."""
    import io

    import onnx
    import torch

    file = io.BytesIO()
    axes = {"q": {0: "n"}, "k": {0: "m"}, "v": {0: "m"}}
    torch.onnx.export(_module(program), _examples(), file, dynamo=False, input_names=["q", "k", "v"], dynamic_axes=axes)
    return onnx.load_from_string(file.getvalue())


def in_jaxpr(program: Program) -> Any:
    """Return the graph of JAX."""
    import jax

    n, m = jax.export.symbolic_shape("n, m")
    of_queries, of_keys = (jax.ShapeDtypeStruct((length, _WIDTH), np.float32) for length in (n, m))
    return graphs.traced(program, of_queries, of_keys, of_keys)


def _examples() -> tuple[Any, ...]:
    import torch

    return torch.randn(_QUERIES, _WIDTH), torch.randn(_KEYS, _WIDTH), torch.randn(_KEYS, _WIDTH)


def _module(program: Program) -> Any:
    import torch

    class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return program(q, k, v)

    return Layer().eval()


_GRAPHS: Mapping[str, Callable[[Program], Any]] = {
    "torch.export": exported,
    "onnx": in_onnx,
    "jaxpr": in_jaxpr,
}


# -- mistakes that show at large sizes alone ---------------------------------------------------------------------------
def forget_block(xp: Any, arrays: list[Array]) -> list[Array]:
    """Compute each block of 128 rows from the rows of the first one: the id of the program is forgotten."""
    first, *others = arrays
    return [first[..., xp.arange(first.shape[-2]) % _BLOCK, :], *others]


def lose_tile(xp: Any, arrays: list[Array]) -> list[Array]:
    """Read zeros in place of the last tile of 64 keys, of more than 128, if rows are wider than 64; without keys, in
    place of the last columns."""
    # Log-sums of parts have no columns, and are no keys.
    place = 1 if len(arrays) > 1 and arrays[1].ndim == arrays[0].ndim else 0
    array = arrays[place]
    if array.shape[-1] <= _WIDE:
        return arrays
    if place:
        n = array.shape[-2]
        end = max(n // _WIDE * _WIDE, _BLOCK) if isinstance(n, int) else _BLOCK
        read = (xp.arange(n) < end)[:, None]
    else:
        read = xp.arange(array.shape[-1]) < array.shape[-1] // _WIDE * _WIDE
    return [*arrays[:place], xp.where(read, array, 0 * array), *arrays[place + 1 :]]


def scale_late_rows(xp: Any, arrays: list[Array]) -> list[Array]:
    """Scale the first half of the rows from the 129th on by 1.03: a norm is the same for rows that are scaled whole."""
    first, *others = arrays
    late = (xp.arange(first.shape[-2]) >= _BLOCK)[:, None]
    in_half = 2 * xp.arange(first.shape[-1]) < first.shape[-1]
    return [xp.where(late & in_half, 1.03 * first, first), *others]


MISTAKES: Mapping[str, Callable[[Any, list[Array]], list[Array]]] = {
    "block": forget_block,
    "tile": lose_tile,
    "scale": scale_late_rows,
}


def spoiled(row: Row, mistake: str) -> Program:
    """Return the program of a row with a mistake."""
    from inspect import signature

    xp, change = of_library(row.framework), MISTAKES[mistake]
    return named([*signature(row.program).parameters], lambda *arrays: row.program(*change(xp, [*arrays])))


def is_found(row: Row, mistake: str) -> bool:
    """Return whether some input shows a mistake in the program of a row."""
    program = spoiled(row, mistake)
    if row.graph is not None:
        return graphs.verify_graph(row.graph(program), row.spec, prove=False).verdict is Verdict.FAULT
    options = Options(framework=row.framework_of_arrays, **row.options)
    with options.opened(program, row.spec) as runner:
        session = options.session(runner, row.spec)
        return shows_when_large(session) or finds_fault(options.session(runner, row.spec))


def shows_when_large(session: Session) -> bool:
    """Return whether one of the last groups of inputs shows a fault, which every run reaches: the largest come first,
    since the mistakes show at large sizes alone."""
    rng = np.random.default_rng(session.seed)
    for group in reversed(session.subject.source.last().values()):
        for case in group(session, rng):
            judged = session.take(case)
            if judged is not None and judged.finding is not None:
                return True
    return False


def follow_the_rule(sizes: Mapping[str, int]) -> bool:
    """Return whether sizes are several blocks of tokens and wide rows at once, of the axes that there are."""
    tokens = (sizes[n] > _BLOCK for n in ("n_q", "n_k") if n in sizes)
    widths = [sizes[n] for n in ("d_k", "d_v", "d_model") if n in sizes]
    return bool(sizes) and all(tokens) and max(widths, default=_WIDE + 1) > _WIDE


def written(sizes: Mapping[str, int]) -> str:
    """Return sizes in words, with "falls short" if they do not follow the rule."""
    words = " ".join(f"{name}={size}" for name, size in sizes.items()) or "none"
    return words + " (falls short)" * (not follow_the_rule(sizes))


def main(chosen: list[str]) -> None:
    """Print a line for each row."""
    wrong = "--wrong" in chosen
    columns = MISTAKES if wrong else ("verdict", "floats", "residues", "processor time of this process")
    names = [name for name in chosen if name != "--wrong"]
    print(" | ".join(("front end", "definition", *columns)))
    for row in rows():
        if all(name in (row.name, row.framework) for name in names):
            print(f"{row.framework} | {row.name} | " + (sought(row) if wrong else tried(row)), flush=True)


def sought(row: Row) -> str:
    """Return for each mistake whether it is found."""
    return " | ".join("found" if is_found(row, mistake) else "NOT FOUND" for mistake in MISTAKES)


def tried(row: Row) -> str:
    """Return the verdict on the right program, the largest sizes together, and the processor time of this process."""
    before = process_time()
    if row.graph is None:
        report = verify(row.program, row.spec, framework=row.framework_of_arrays, **row.options)
    else:
        report = graphs.verify_graph(row.graph(row.program), row.spec, prove=False)
    largest, spent = report.largest, process_time() - before
    floats = "a graph has none" if row.graph else written(largest.floats)
    return f"{report.verdict} | {floats} | {written(largest.residues)} | {spent:.1f} s"


if __name__ == "__main__":
    main(sys.argv[1:])
