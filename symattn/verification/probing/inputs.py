"""Inputs for a function: of every shape that its specification has, in numbers that its format holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.inputs import lengths
from symattn.attention.positions.checks import known_sizes
from symattn.attention.positions.fields import Rotary
from symattn.attention.spec import Attention
from symattn.verification.domain import Domain
from symattn.verification.probing.extras import NAMES as EXTRAS
from symattn.verification.probing.extras import extras, places
from symattn.verification.reference import SCORES
from symattn.verification.target import Convention

Array = np.ndarray
_TOKENS = ("q", "k", "v", "x", "y")
CELLS = 70_000  # scores of all heads, beyond which a case takes seconds
_HALVINGS = 40  # of queries; beyond, scores do not follow them
_MASKED_SCORES = 20_000.0  # far from the −10⁹ and −65504 that stand for −∞ in float32 and in half types
Entries = Callable[[str, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Sizes:
    """The sizes of one case; ``d_k`` and ``d_v`` are those of a head, ``batch`` comes before."""

    n_q: int
    n_k: int
    d_k: int
    d_v: int
    d_model: int = 5
    batch: tuple[int, ...] = ()


def _multiple(n: int, of: int, most: int) -> int:
    """The multiple next to n, from above if there is room."""
    return min(-(-n // of), most // of) * of


def _as_wide(*arrays: Array) -> tuple[Array, ...]:
    """Columns of zeros, up to the width of the widest."""
    width = max(a.shape[-1] for a in arrays)
    return tuple(_as_wide_as(a, width) for a in arrays)


def _as_wide_as(a: Array, of: int) -> Array:
    """Columns of zeros, up to a multiple."""
    return np.pad(a.astype(float), ((0, 0), (0, -a.shape[-1] % of)))


@dataclass(frozen=True)
class Maker:
    """Makes inputs for one specification, called by one convention, within one domain."""

    spec: Attention
    convention: Convention
    precision: Precision
    domain: Domain

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays that a call gets."""
        found = tuple(n for n in self.convention.inputs if n not in ("mask", "keep"))
        if "doc" in found:  # the labels of queries and keys at once
            found = tuple(n for n in found if n not in ("doc_q", "doc_k"))
        return found or ("q", "k", "v")

    @property
    def tokens(self) -> bool:
        """Whether the function takes tokens x in place of q, k, v."""
        return "x" in self.names

    @property
    def square(self) -> bool:
        """Whether n_q = n_k always."""
        return self.domain.square or (self.tokens and "y" not in self.names) or "doc" in self.names

    @property
    def batches(self) -> int:
        """How many axes of batches come before those of a head's tokens, that of heads among them if there is one."""
        return self.convention.batch_axes(self.spec.heads)

    @property
    def fronts(self) -> tuple[int, ...]:
        """Axes of batches for the layout ``nd``, which has none of its own."""
        return (2, 3) if self.spec.heads == 1 and not self.tokens else (2,)

    def mask_front(self, batch: tuple[int, ...]) -> tuple[int, ...]:
        """The axes that masks have before those of tokens: b and 1 for the heads, if the function takes so many."""
        forms = [a.form for a in self.convention.arguments if a.input in ("mask", "keep")]
        if len(batch) != self.batches or any(f in ("k", "qk", "1qk", "11qk", "") for f in forms):
            return ()
        return (*batch[:1], *(1 for _ in batch[1:]))

    @property
    def largest_score(self) -> float:
        """The largest |s| that may occur: behind masks what leaves room for a number below, unless more is promised."""
        if self.domain.max_abs_score is not None:
            room = float(self.precision.input.largest) / 4 if self.spec.masks_anything else np.inf
            return min(self.domain.max_abs_score, room)
        return min(_MASKED_SCORES, float(self.precision.input.largest) / 64) if self.spec.masks_anything else np.inf

    def fitted(self, sizes: Sizes) -> Sizes:
        """The sizes that the specification and the domain allow, as near as can be to those asked for."""
        n_q, n_k = min(sizes.n_q, self.domain.max_tokens), min(sizes.n_k, self.domain.max_tokens)
        d_k, d_v = min(sizes.d_k, self.domain.max_width), min(sizes.d_v, self.domain.max_width)
        if self.square:
            n_q = n_k
        causal = self.spec.causal and self.spec.alignment == "bottom-right" and not self.domain.fully_masked_rows
        if causal or self._ends_with_queries:
            n_q, n_k = min(n_q, n_k), max(n_q, n_k)
        if not self.domain.fully_masked_rows and not places(self.spec, n_q, n_k, {}).any(axis=1).all():
            n_q = n_k = max(n_q, n_k)
        items = prod(sizes.batch) * self.spec.heads
        if items * n_q * n_k > CELLS:
            n_q = n_k = min(n_q, n_k, isqrt(CELLS // items))
        d_k = self._width(d_k)
        n_q, n_k = (_multiple(n, self.domain.multiple_of, self.domain.max_tokens) for n in (n_q, n_k))
        d_k, d_v = (_multiple(d, self.domain.width_multiple_of, self.domain.max_width) for d in (d_k, d_v))
        return replace(sizes, n_q=n_q, n_k=n_k, d_k=d_k, d_v=d_k if self._same_width else d_v)

    @property
    def _same_width(self) -> bool:
        """Whether d_v = d_k always: by promise, or where one width is meant by all heads side by side."""
        side_by_side = self.convention.layout in ("nc", "bnc") and not self.tokens
        return self.domain.same_width or self._plain or self.spec.packed or side_by_side

    @property
    def _ends_with_queries(self) -> bool:
        """Whether there must be no more queries than keys."""
        position = isinstance(self.spec.position, Rotary) and self.spec.alignment == "bottom-right"
        return position or self.spec.documents

    def _width(self, d_k: int) -> int:
        """d_k as positions, latents and truncated scores need it."""
        position = self.spec.position
        if isinstance(position, Rotary):
            d_k = max(d_k + d_k % 2, position.width or 2 * len(position.triples or ()) or 2)
        if self.spec.latent is not None:
            d_k = max(d_k, 2) + self._turned
        return max(d_k, self.spec.truncate or 1)

    @property
    def _turned(self) -> int:
        """d_r, how many columns of the keys of a latent have positions."""
        return (getattr(self.spec.position, "width", None) or 2) if self.spec.latent is not None else 0

    @property
    def _plain(self) -> bool:
        return self.tokens and not {"w_q", "w_in", "w_uq"} & set(self.names)

    def shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """The shape of every array."""
        s = sizes
        d_model = s.d_k if self._plain else s.d_model
        letters = {"n_q": s.n_q, "n_k": s.n_k, "n": s.n_k, "d_k": s.d_k, "d_v": s.d_v, "d_model": d_model}
        letters |= {"d_y": d_model, "d_out": d_model, "d_s": s.d_k, "d_r": self._turned, "d_n": s.d_k - self._turned}
        letters |= {"f": self._pairs(s.d_k), "l": 3, "l_q": 4, "l_a": 3, "d_e": 3, "n_d": 1, "n_b": 1}
        letters |= {"n_r": s.n_k if self.spec.causal else s.n_q + s.n_k - 1} | known_sizes(self.spec)
        found = {name: lengths(name, self.spec, self.names, letters) for name in self.names}
        if "bias" in found and self.spec.heads > 1 and self._form("bias") != "qk":
            found["bias"] = (*(1,) * len(s.batch), self.spec.heads, *found["bias"])
        return {name: (*s.batch, *shape) if name in _TOKENS else shape for name, shape in found.items()}

    def _form(self, name: str) -> str:
        """The form in which the function wants an input."""
        return next((a.form for a in self.convention.arguments if a.input == name), "")

    def _pairs(self, d_k: int) -> int:
        return (self._turned or d_k) // 2

    def make(self, sizes: Sizes, entries: Entries, rng: np.random.Generator) -> dict[str, Array]:
        """Inputs of the fitted sizes with the given entries, rounded to the format, and masks at random."""
        s = self.fitted(sizes)
        shapes = self.shapes(s)
        made = self._extras(shapes, rng)
        arrays = {n: self.precision.input.rounded(entries(n, shape)) for n, shape in shapes.items() if n not in made}
        return self.tame(self._in_order(arrays | made | self.masks(s.n_q, s.n_k, rng, made, s.batch)))

    def _extras(self, shapes: dict[str, tuple[int, ...]], rng: np.random.Generator) -> dict[str, Array]:
        """Positions, tables, sinks and the like, as the format holds them."""
        made = extras({n: shape for n, shape in shapes.items() if n in EXTRAS}, rng, self.spec)
        return {n: a if a.dtype.kind in "biu" else self.precision.input.rounded(a) for n, a in made.items()}

    def _in_order(self, arrays: dict[str, Array]) -> dict[str, Array]:
        order = [*self.names, "mask", "keep"]
        return {name: arrays[name] for name in order if name in arrays}

    def from_heads(
        self, q: Array, k: Array, v: Array, rng: np.random.Generator | None = None
    ) -> dict[str, Array] | None:
        """The inputs by which each head gets these q, k, v; None if no inputs do. Masks are at random, or open."""
        if self.square and q.shape[-2] != k.shape[-2]:
            return None
        fitted = self.fitted(Sizes(q.shape[-2], k.shape[-2], 1, 1))
        if (fitted.n_q, fitted.n_k) != (q.shape[-2], k.shape[-2]):
            return None
        if self.tokens and (self._plain or self.spec.latent is not None or self.spec.packed):
            return None
        wide = self._width(q.shape[-1]) - q.shape[-1]
        q, k = (np.pad(a.astype(float), ((0, 0), (0, wide))) for a in (q, k))
        if self._same_width:
            q, k, v = _as_wide(q, k, v)
        q, k, v = (_as_wide_as(a, self.domain.width_multiple_of) for a in (q, k, v))
        arrays = self._as_tokens(q, k, v) if self.tokens else self._as_heads(q, k, v)
        arrays = {name: self.precision.input.rounded(a) for name, a in arrays.items()}
        shapes = self.shapes(Sizes(q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], 2 * q.shape[-1] + v.shape[-1]))
        # Without rng the probe speaks for itself, and what stands beside it is always the same.
        made = self._extras(shapes, rng or np.random.default_rng(len(k)))
        rest = {n: self._entries(shape) for n, shape in shapes.items() if n not in arrays and n not in made}
        made = arrays | rest | made | self.masks(q.shape[-2], k.shape[-2], rng, made)
        return self._in_order(made) if self._score(made) <= self.largest_score else None

    def _entries(self, shape: tuple[int, ...]) -> Array:
        """Small whole numbers for matrices that the heads' inputs do not say."""
        return np.random.default_rng(sum(shape)).integers(-1, 2, shape).astype(float)

    def _as_heads(self, q: Array, k: Array, v: Array) -> dict[str, Array]:
        """The same for each head, where there is an axis of heads."""
        if self.spec.heads == 1:
            return {"q": q, "k": k, "v": v}
        heads = {"q": self.spec.heads, "k": self.spec.key_heads, "v": self.spec.key_heads}
        return {n: np.broadcast_to(a, (heads[n], *a.shape)).copy() for n, a in zip("qkv", (q, k, v), strict=True)}

    def _as_tokens(self, q: Array, k: Array, v: Array) -> dict[str, Array]:
        """Tokens that hold q, k and v side by side, and projections that pick them out."""
        h, (d_k, d_v) = self.spec.heads, (q.shape[-1], v.shape[-1])
        d_model = 2 * d_k + d_v
        columns = np.eye(d_model)
        n_q, n_k = q.shape[-2], k.shape[-2]
        y = np.concatenate([np.zeros((n_k, d_k)), k, v], axis=1)
        x = np.concatenate([q, np.zeros((n_q, d_k + d_v))], axis=1)
        made = {"x": x, "y": y} if "y" in self.names else {"x": x + y}
        picks = {"w_q": columns[:, :d_k], "w_k": columns[:, d_k : 2 * d_k], "w_v": columns[:, 2 * d_k :]}
        g = self.spec.key_heads
        made |= {name: np.tile(w, (1, h if name == "w_q" else g)) for name, w in picks.items()}
        widths = {"b_q": h * d_k, "b_k": g * d_k, "b_v": g * d_v, "b_o": d_model}
        made |= {name: np.zeros(n) for name, n in widths.items() if name in self.names}
        if "w_o" in self.names:
            made["w_o"] = np.tile(np.eye(d_v, d_model), (h, 1)) * np.repeat(2.0 ** np.arange(h), d_v)[:, None]
        return {name: made[name] for name in self.names if name in made}

    def masks(
        self,
        n_q: int,
        n_k: int,
        rng: np.random.Generator | None,
        given: dict[str, Array] | None = None,
        batch: tuple[int, ...] = (),
    ) -> dict[str, Array]:
        """Masks by which every query may attend to some key, others for each item of a batch; open without ``rng``."""
        labels = {n: a for n, a in (given or {}).items() if n.startswith("doc")}
        may = places(self.spec, n_q, n_k, labels)
        front = self.mask_front(batch)
        items = [self._masks(may, rng) for _ in range(prod(front))]
        made = {name: np.stack([item[name] for item in items]) for name in items[0]}
        if front and self.spec.heads > 1:
            front = (*front, 1)
        return {
            name: a.reshape((*(front if name == "mask" else front[: len(batch)]), *a.shape[1:]))
            for name, a in made.items()
        }

    def _masks(self, may: Array, rng: np.random.Generator | None) -> dict[str, Array]:
        """The masks of one item, on top of what the specification and labels allow."""
        made: dict[str, Array] = {}
        n_q, n_k = may.shape
        keep = np.ones(n_k, dtype=bool)
        if self.spec.padding:
            keep = keep if rng is None else self._keep(n_k, rng)
            if not self.domain.fully_masked_rows and not (may & keep).any(axis=1).all():
                keep = np.ones(n_k, dtype=bool)
            made["keep"] = keep
        if self.spec.mask is not None:
            open_ = np.ones((n_q, n_k), dtype=bool) if rng is None else rng.random((n_q, n_k)) < 0.6
            open_ = self._with_keys(open_, may & keep, rng)
            made["mask"] = open_ if self.spec.mask == "boolean" else self._additive(open_, rng)
        return made

    def _keep(self, n_k: int, rng: np.random.Generator) -> Array:
        """Valid keys: the first ones where the function takes their number, else any, the first one among them."""
        if any(a.form in ("lengths", "length") for a in self.convention.arguments):
            return np.arange(n_k) < rng.integers(1, n_k + 1)
        if self.domain.fully_masked_rows and rng.random() < 0.15:
            return np.zeros(n_k, dtype=bool)
        keep = rng.random(n_k) < 0.7
        keep[rng.choice((0, n_k - 1))] = True
        return keep

    def _with_keys(self, open_: Array, may: Array, rng: np.random.Generator | None) -> Array:
        """A mask that leaves each query a key which the other masks leave it too."""
        if self.domain.fully_masked_rows and rng is not None and rng.random() < 0.5:
            open_[rng.integers(len(open_))] = False
            return open_
        for i in np.flatnonzero(~(open_ & may).any(axis=1) & may.any(axis=1)):
            if not self.domain.fully_masked_rows or rng is None or rng.random() < 0.5:
                choice = np.flatnonzero(may[i])
                open_[i, choice[0] if rng is None else rng.choice(choice)] = True
        return open_

    def _additive(self, open_: Array, rng: np.random.Generator | None) -> Array:
        finite = np.zeros(open_.shape) if rng is None else rng.integers(-2, 2, open_.shape) / 2.0
        return np.where(open_, finite, -np.inf)

    def tame(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """The inputs with scores within the domain: queries are halved until they are."""
        name = next(n for n in ("w_q", "w_uq", "w_in", "x", "q") if n in inputs)
        for _ in range(_HALVINGS):
            if self._score(inputs) <= self.largest_score:
                break
            halved = {n: a / 2 for n, a in inputs.items() if n in (name, "b_q" if name == "w_q" else name)}
            inputs = inputs | {n: self.precision.input.rounded(a) for n, a in halved.items()}
        return inputs

    def _score(self, inputs: dict[str, Array]) -> float:
        """The largest |s|, in float64."""
        if self.largest_score == np.inf:
            return 0.0
        values: dict[str, Any] = dict(inputs)
        last = ""
        with np.errstate(all="ignore"):
            for step in self.spec.pipeline(frozenset(values)):
                if step.name in ("masked", "weights"):
                    break
                values[step.name] = step.run(*[values[n] for n in step.of])
                last = step.name if step.name in SCORES else last
        return float(np.abs(values[last]).max())
