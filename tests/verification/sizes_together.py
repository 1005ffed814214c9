"""The largest sizes that ``verify`` tries together, by front end and definition: a table.

``python -m tests.verification.sizes_together [NAME ...]`` runs each right program, those of these names alone if some
are given. The rule is several blocks of 128 in n_q and in n_k and a width above 64 at once, on floats and on residues.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from time import process_time
from typing import Any

import numpy as np

from symattn import Attention, Cached, Gradient, LayerNorm, LinearAttention, Merge, RMSNorm, Softmax
from symattn.programs.verify import verify
from symattn.verification.definitions.registry import subjects_of

Program = Callable[..., Any]
CAUSAL = Attention(causal=True)
_BLOCK, _WIDE = 128, 64
#: Definitions whose first way is run on NumPy as the program.
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


def first_way(spec: Any) -> Program:
    """Return the first way of a definition as a function of its inputs by name."""
    definition = next(iter(subjects_of(spec)))
    names = [i.name for i in definition.inputs if i.needed]

    def computed(*arrays: Any) -> Any:
        outputs = definition.run(definition.ways[0], dict(zip(names, arrays, strict=True)))
        return outputs if len(outputs) > 1 else outputs[0]

    scope: dict[str, Any] = {"computed": computed}
    exec(f"def program({', '.join(names)}):\n    return computed({', '.join(names)})", scope)
    program: Program = scope["program"]
    return program


def in_numpy(q: Any, k: Any, v: Any) -> Any:
    """Causal attention in NumPy."""
    s = q @ k.T / np.sqrt(q.shape[-1])
    s = np.where(np.tri(*s.shape, s.shape[1] - s.shape[0], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def in_torch(q: Any, k: Any, v: Any) -> Any:
    """Causal attention in torch."""
    import torch

    s = q @ k.T / q.shape[-1] ** 0.5
    seen = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    return torch.softmax(s.masked_fill(~seen, -torch.inf), -1) @ v


def in_jax(q: Any, k: Any, v: Any) -> Any:
    """Causal attention in JAX."""
    import jax.numpy as jnp
    from jax.nn import softmax

    s = q @ k.T / q.shape[-1] ** 0.5
    seen = jnp.tri(len(q), len(k), len(k) - len(q), dtype=bool)
    return softmax(jnp.where(seen, s, -jnp.inf)) @ v


def programs() -> Iterator[tuple[str, str, Program, Any]]:
    """Yield the front end, the name, the program, and what it computes."""
    for framework, program in {"numpy": in_numpy, "torch": in_torch, "jax": in_jax}.items():
        yield framework, "plain", program, CAUSAL
    for name, spec in OF_DEFINITIONS.items():
        yield "numpy", name, first_way(spec), spec


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
    """Print a line for each program."""
    print("front end | definition | verdict | floats | residues | processor time of this process")
    for framework, name, program, spec in programs():
        if chosen and name not in chosen and framework not in chosen:
            continue
        before = process_time()
        report = verify(program, spec, framework=framework)
        largest, spent = report.largest, process_time() - before
        floats, residues = written(largest.floats), written(largest.residues)
        print(f"{framework} | {name} | {report.verdict} | {floats} | {residues} | {spent:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
