"""Inputs for a function: of every shape that its specification has, in numbers that its format holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention import masks
from symattn.attention.inputs import lengths
from symattn.attention.spec import Attention
from symattn.verification.domain import Domain
from symattn.verification.target import Convention

Array = np.ndarray
_MASKED_SCORES = 1000.0  # beyond, a finite mask such as −10⁴ forbids nothing
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
        return found or ("q", "k", "v")

    @property
    def tokens(self) -> bool:
        """Whether the function takes tokens x in place of q, k, v."""
        return "x" in self.names

    @property
    def square(self) -> bool:
        """Whether n_q = n_k always."""
        return self.domain.square or (self.tokens and "y" not in self.names)

    @property
    def batches(self) -> bool:
        """Whether axes for batch and heads may come before n and d."""
        return self.convention.layout != "nd" and not self.tokens

    @property
    def largest_score(self) -> float:
        """The largest |s| that may occur."""
        limit = np.inf if self.domain.max_abs_score is None else self.domain.max_abs_score
        return min(limit, _MASKED_SCORES) if self.spec.masks_anything else limit

    def fitted(self, sizes: Sizes) -> Sizes:
        """The sizes that the specification and the domain allow, as near as can be to those asked for."""
        n_q, n_k = min(sizes.n_q, self.domain.max_tokens), min(sizes.n_k, self.domain.max_tokens)
        d_k, d_v = min(sizes.d_k, self.domain.max_width), min(sizes.d_v, self.domain.max_width)
        if self.square:
            n_q = n_k
        if self.spec.causal and self.spec.alignment == "bottom-right" and not self.domain.fully_masked_rows:
            n_q, n_k = min(n_q, n_k), max(n_q, n_k)
        return replace(sizes, n_q=n_q, n_k=n_k, d_k=d_k, d_v=d_k if self._plain else d_v)

    @property
    def _plain(self) -> bool:
        return self.tokens and "w_q" not in self.names

    def shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """The shape of every array."""
        s = sizes
        d_model = s.d_k if self._plain else s.d_model
        letters = {"n_q": s.n_q, "n_k": s.n_k, "d_k": s.d_k, "d_v": s.d_v, "d_model": d_model}
        letters |= {"d_y": d_model, "d_out": d_model}
        found = {name: lengths(name, self.spec, self.names, letters) for name in self.names}
        return {name: (*s.batch, *shape) if name in "qkv" else shape for name, shape in found.items()}

    def make(self, sizes: Sizes, entries: Entries, rng: np.random.Generator) -> dict[str, Array]:
        """Inputs of the fitted sizes with the given entries, rounded to the format, and masks at random."""
        s = self.fitted(sizes)
        arrays = {name: self.precision.input.rounded(entries(name, shape)) for name, shape in self.shapes(s).items()}
        return self.tame(arrays | self.masks(s.n_q, s.n_k, rng))

    def from_heads(
        self, q: Array, k: Array, v: Array, rng: np.random.Generator | None = None
    ) -> dict[str, Array] | None:
        """The inputs by which each head gets these q, k, v; None if no inputs do. Masks are at random, or open."""
        if self.square and q.shape[-2] != k.shape[-2]:
            return None
        if self.fitted(Sizes(q.shape[-2], k.shape[-2], 1, 1)).n_q != q.shape[-2]:
            return None
        arrays = {"q": q, "k": k, "v": v}
        if self.tokens:
            if self._plain:
                return None
            arrays = self._as_tokens(q, k, v)
        arrays = {name: self.precision.input.rounded(a) for name, a in arrays.items()}
        made = arrays | self.masks(q.shape[-2], k.shape[-2], rng)
        return made if self._score(made) <= self.largest_score else None

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
        made |= {name: np.tile(w, (1, h)) for name, w in picks.items()}
        widths = {"b_q": h * d_k, "b_k": h * d_k, "b_v": h * d_v, "b_o": d_model}
        made |= {name: np.zeros(n) for name, n in widths.items() if name in self.names}
        if "w_o" in self.names:
            made["w_o"] = np.tile(np.eye(d_v, d_model), (h, 1)) * np.repeat(2.0 ** np.arange(h), d_v)[:, None]
        return {name: made[name] for name in self.names}

    def masks(self, n_q: int, n_k: int, rng: np.random.Generator | None) -> dict[str, Array]:
        """Masks by which every query may attend to some key; open ones without ``rng``."""
        made: dict[str, Array] = {}
        keep = np.ones(n_k, dtype=bool)
        if self.spec.padding:
            keep = keep if rng is None else rng.random(n_k) < 0.7
            keep[0] = True
            made["keep"] = keep
        if self.spec.mask is not None:
            open_ = np.ones((n_q, n_k), dtype=bool) if rng is None else rng.random((n_q, n_k)) < 0.6
            open_ = self._with_keys(open_, keep, rng)
            made["mask"] = open_ if self.spec.mask == "boolean" else self._additive(open_, rng)
        return made

    def _with_keys(self, open_: Array, keep: Array, rng: np.random.Generator | None) -> Array:
        """A mask that leaves each query a key which padding and causality leave it too."""
        may = np.broadcast_to(keep, open_.shape).copy()
        if self.spec.causal:
            may &= masks.causal(np.zeros(open_.shape), self.spec.alignment)
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
        name = "w_q" if "w_q" in inputs else "x" if "x" in inputs else "q"
        while self._score(inputs) > self.largest_score:
            halved = {n: a / 2 for n, a in inputs.items() if n in (name, "b_q" if name == "w_q" else name)}
            inputs = inputs | {n: self.precision.input.rounded(a) for n, a in halved.items()}
        return inputs

    def _score(self, inputs: dict[str, Array]) -> float:
        """The largest |s|, in float64."""
        if self.largest_score == np.inf:
            return 0.0
        values: dict[str, Any] = dict(inputs)
        for step in self.spec.pipeline(frozenset(values)):
            values[step.name] = step.run(*[values[n] for n in step.of])
            if step.name == "scaled":
                break
        return float(np.abs(values["scaled"]).max())
