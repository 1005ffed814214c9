"""The sizes of a graph: which it leaves open, which are fixed, and those at which it is tested."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from symattn.attention.inputs import TOKENS, shape
from symattn.attention.spec import Attention
from symattn.bounds.inputs import Sizes
from symattn.document.errors import InputError
from symattn.programs.graphs.binding import GraphSlot
from symattn.programs.graphs.form import Graph
from symattn.verification.semantics import spec_width

_TRIED = ((2, 3), (3, 5), (7, 7))  # numbers of queries and keys, where they are open
_BATCH = 2
_BEYOND = 3  # how many places further than the last at which a specification changes
_ENTRIES = 2**27  # of scores, tokens or weights
_MOST = 256  # places; what a test of semantics follows in seconds


@dataclass(frozen=True)
class MeasuredSizes:
    """Lengths by the letters of a specification: whole numbers, and words of the graph where they were left open."""

    batch: tuple[int | str, ...]
    n_q: int | str
    n_k: int | str
    d_model: int
    d_k: int
    d_v: int

    @property
    def open(self) -> tuple[str, ...]:
        """The words, each once."""
        results = (*self.batch, self.n_q, self.n_k)
        return tuple(dict.fromkeys(n for n in results if isinstance(n, str)))

    def tried(self, spec: Attention) -> tuple[Sizes, ...]:
        """Sizes at which the graph is tested; those that are fixed are what they are.

        One reaches beyond every window, block and prefix of ``spec``, unless ``untried`` says that it is too long.
        """
        batch = tuple(_BATCH if isinstance(n, str) else n for n in self.batch)
        result, far = [], farthest(spec)
        beyond = ((far + _BEYOND, far + _BEYOND),) if 0 < far <= _MOST else ()
        for n_q, n_k in (*_TRIED, *beyond):
            q = n_q if isinstance(self.n_q, str) else self.n_q
            k = q if self.n_k == self.n_q else n_k if isinstance(self.n_k, str) else self.n_k
            result.append(Sizes(q, k, self.d_k, self.d_v, self.d_model, batch))
        return tuple(dict.fromkeys(result))

    def untried(self, spec: Attention) -> str:
        """Why no size that is tried reaches beyond the windows of ``spec``, where that is so; else nothing."""
        far = farthest(spec)
        if far <= _MOST or not isinstance(self.n_k, str):
            return ""
        return f"Nothing was tried beyond the place {far}, where the specification changes; at most {_MOST} are tried."

    def declared(self, name: str, spec: Attention, names: tuple[str, ...]) -> str:
        """The shape of an input as a statement declares it: ``b n 8``, ``8 2*4``."""
        known: Mapping[str, int | str] = {
            "n_q": self.n_q, "n_k": self.n_k, "d_model": self.d_model, "d_k": self.d_k, "d_v": self.d_v,
            "d_y": self.d_model, "d_out": self.d_model, "d_s": self.d_k, "h": spec.heads, "g": spec.key_heads,
            "f": (spec_width(spec) or self.d_k) // 2,
        }  # fmt: skip
        front = " ".join(map(str, self.batch)) if name in TOKENS else ""
        words = shape(name, spec, names).replace("…", "").replace("(h?)", "").replace("?", "").split()
        axes = ["*".join(str(known[f]) if not f.isdecimal() else f for f in w.split("*")) for w in words]
        return " ".join([*front.split(), *axes])


def farthest(spec: Attention) -> int:
    """The last place at which ``spec`` changes: of a window, a block, a prefix, or distances that are told apart."""
    position = (getattr(spec.position, name, None) for name in ("max_distance", "most"))
    return max((n for n in (*spec.sides, spec.block, spec.prefix, *position) if n is not None), default=0)


def measured(graph: Graph, spec: Attention, slots: tuple[GraphSlot, ...]) -> MeasuredSizes:
    """The sizes that the shapes of a graph's inputs and weights tell. Raises InputError where they contradict."""
    by_part = {part: s for s in slots for part in s.parts}
    measured_sizes = _of_tokens(graph, spec, by_part) if "x" in by_part else _of_heads(graph, spec, by_part)
    _check_entries(graph, spec, measured_sizes)
    return measured_sizes


def _check_entries(graph: Graph, spec: Attention, found: MeasuredSizes) -> None:
    """Raise InputError for arrays that would be too large: of scores, tokens, or weights."""
    of_weights = sum(math.prod(n for n in g.shape if isinstance(n, int)) for g in graph.weights)
    for s in found.tried(spec):
        many = math.prod(s.batch) * spec.heads
        most = max(of_weights, many * s.n_q * s.n_k, many * (s.n_q + s.n_k) * (s.d_k + s.d_v + s.d_model))
        if most > _ENTRIES:
            raise InputError(f"{graph.name}: at {s} there are {most} entries; at most {_ENTRIES} are run")


def _of_tokens(graph: Graph, spec: Attention, by_part: Mapping[str, GraphSlot]) -> MeasuredSizes:
    x = by_part["x"].given.shape
    if len(x) < 2 or not isinstance(x[-1], int):
        raise InputError(f"{graph.name}: the tokens have the shape {x}; (…, n, a number of columns) is expected")
    d_k, d_v = (_columns(graph, spec, by_part, role) for role in ("w_q", "w_v"))
    return MeasuredSizes(x[:-2], x[-2], x[-2], x[-1], d_k, d_v)


def _columns(graph: Graph, spec: Attention, by_part: Mapping[str, GraphSlot], name: str) -> int:
    """The columns of a head of queries or values."""
    slot = by_part[name]
    out = slot.given.shape[0 if slot.transposed else -1]
    heads = {"w_q": spec.heads}.get(name, spec.key_heads)
    together = heads if len(slot.parts) == 1 else sum({"w_q": spec.heads}.get(p, spec.key_heads) for p in slot.parts)
    if not isinstance(out, int) or out % together:
        raise InputError(f"{graph.name}: {slot.given.label or slot.given.name} has {out} columns for {together} heads")
    return out // together


def _of_heads(graph: Graph, spec: Attention, by_part: Mapping[str, GraphSlot]) -> MeasuredSizes:
    q, k, v = (by_part[name].given.shape for name in "qkv")
    merged, own = by_part["q"].merged, 2 + (spec.heads > 1 and not by_part["q"].merged)
    widths = [s[-1] for s in (q, k, v)]
    if not all(isinstance(w, int) for w in widths) or len(q) < own:
        raise InputError(f"{graph.name}: q, k, v have the shapes {q}, {k}, {v}; numbers of columns must be known")
    if own == 3 and (q[-3], k[-3]) != (spec.heads, spec.key_heads):
        raise InputError(f"{graph.name} has {q[-3]} and {k[-3]} heads; hint: --heads {q[-3]} --kv-heads {k[-3]}")
    d_k, d_v = (int(w) // (h if merged else 1) for w, h in ((widths[0], spec.heads), (widths[2], spec.key_heads)))
    return MeasuredSizes(q[: len(q) - own], q[-2], k[-2], d_k, d_k, d_v)
