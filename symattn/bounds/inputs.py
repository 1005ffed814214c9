"""Inputs for a function: of every shape that its specification allows, in numbers of its format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import isqrt, prod
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.inputs import lengths, shape
from symattn.attention.letters_of_attention import SCORES
from symattn.attention.positions.checks import known_sizes, least_width
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.spec import Attention
from symattn.attention.temperatures import counts_places_from_last_key
from symattn.bounds.called_target import Convention
from symattn.bounds.domain import Domain, Lengths
from symattn.bounds.extras import NAMES as EXTRAS
from symattn.bounds.extras import extras, open_rows, places

Array = np.ndarray
_TOKENS = ("q", "k", "v", "x", "y")
_SIZED = (*_TOKENS, "w_q", "w_k", "w_v", "w_in", "w_uq", "w_uv")  # they determine the sizes
CELLS = 70_000  # scores of all heads, beyond which a case takes seconds
_HALVINGS = 40  # of queries; beyond, scores do not follow them
ADDED = (
    "bias",
    "mask",
    "b_rel",
    "slopes",
    "b_u",
    "b_w",
    "v_s",
    "g_q",
    "g_k",
    "beta_q",
    "beta_k",
    "scale",
)
# far from the −10⁹ and −65504 that stand for −∞ in float32 and in half types
_MASKED_SCORES = 20_000.0
Entries = Callable[[str, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Sizes:
    """The sizes of one case; ``d_k`` and ``d_v`` are those of a head, ``batch`` comes before."""

    n_q: int = 3
    n_k: int = 5
    d_k: int = 4
    d_v: int = 3
    d_model: int = 5
    batch: tuple[int, ...] = ()

    def __str__(self) -> str:
        words = f"n_q = {self.n_q}, n_k = {self.n_k}, d_k = {self.d_k}, d_v = {self.d_v}"
        return f"{words}, batch {self.batch}" if self.batch else words


def sizes_of(spec: Attention, inputs: Mapping[str, Array]) -> dict[str, int]:
    """Return n_q, n_k, d_k, d_v of a head, d_model and h of inputs, as far as they are determined."""
    counts = spec.counts
    result = {"h": counts["h"]}
    for name in (n for n in inputs if n in _SIZED):
        axes = shape(name, spec, inputs).replace("…", "").split()
        # Axes are matched from the right, as batch axes come first.
        shape_of_input = np.shape(inputs[name])
        for axis, length in zip(reversed(axes), reversed(shape_of_input), strict=False):
            letters = [f for f in axis.split("*") if f not in counts]
            # An axis may be a product of one unknown length and counts of heads.
            if len(letters) == 1:
                copies = prod(counts[f] for f in axis.split("*") if f in counts)
                result.setdefault(letters[0], length // copies)
    # What the shapes leave open is what the definition assumes.
    result.setdefault("n_k", result["n_q"])
    result.setdefault("d_k", result.get("d_model", 0))
    result.setdefault("d_v", result["d_k"])
    return {n: result[n] for n in ("n_q", "n_k", "d_k", "d_v", "d_model", "h") if n in result}


def lengths_by_letter(spec: Attention, s: Sizes) -> dict[str, int]:
    """Return the length that each letter stands for in shapes of inputs."""
    rotated = _latent_position_columns(spec) if spec.latent is not None else 0
    letters = {
        "n_q": s.n_q,
        "n_k": s.n_k,
        "n": s.n_k,
        "d_k": s.d_k,
        "d_v": s.d_v,
        "d_model": s.d_model,
    }
    letters |= {
        "d_y": s.d_model,
        "d_out": s.d_model,
        "d_s": s.d_k,
        "d_r": rotated,
        "d_n": s.d_k - rotated,
    }
    letters |= {
        "f": (rotated or s.d_k) // 2,
        "l": 3,
        "l_q": 4,
        "l_a": 3,
        "d_e": 3,
        "n_d": 1,
        "n_b": 1,
    }
    # Relative positions reach back n_k − 1, and forward too unless later keys are masked.
    distances = {"n_r": s.n_k if spec.causal else s.n_q + s.n_k - 1}
    of_position = {} if spec.position is None else known_sizes(spec)
    return letters | distances | of_position


def _latent_position_columns(spec: Attention) -> int:
    """Return d_r, the number of columns of a latent's keys that have positions."""
    return getattr(spec.position, "width", None) or 2


@dataclass(frozen=True)
class Maker:
    """Makes inputs for one specification, called by one convention, within one domain."""

    spec: Attention
    convention: Convention
    precision: Precision
    domain: Domain
    cells: int = CELLS
    # the largest |s| beside masks in inputs that are made for numbers in place of −∞
    reach: float | None = None

    # the names of the arrays that a call receives
    names: tuple[str, ...] = field(init=False)
    # whether the function takes tokens x in place of q, k, v, and whether no matrix projects them
    tokens: bool = field(init=False)
    unprojected: bool = field(init=False)
    # whether n_q = n_k always, and d_v = d_k
    square: bool = field(init=False)
    same_width: bool = field(init=False)
    # whether temperatures count places from the last key, so that n_q ≤ n_k
    follows_keys: bool = field(init=False)
    # the number of batch axes before those of a head's tokens; the axis of heads counts if there is one head
    batches: int = field(init=False)
    # the largest |s| that may occur; with masks, small enough for a finite number that stands for −∞
    largest_score: float = field(init=False)

    def __post_init__(self) -> None:
        spec, domain, put = self.spec, self.domain, partial(object.__setattr__, self)
        names = tuple(n for n in self.convention.inputs if n not in ("mask", "keep"))
        # Labels ``doc`` serve queries and keys alike.
        if "doc" in names:
            names = tuple(n for n in names if n not in ("doc_q", "doc_k"))
        put("names", names or ("q", "k", "v"))
        put("tokens", "x" in names)
        put("unprojected", self.tokens and not {"w_q", "w_in", "w_uq"} & set(names))
        one_sequence = (self.tokens and "y" not in names) or "doc" in names
        put("square", domain.square or one_sequence)
        # By promise, or because a layout joins the columns of all heads.
        side_by_side = self.convention.layout[-1] == "c" and not self.tokens
        promised = domain.same_width or domain.square_weights
        put("same_width", promised or self.unprojected or spec.packed or side_by_side)
        has_temperature = spec.temperature is not None
        put("follows_keys", has_temperature and counts_places_from_last_key(spec))
        put("batches", self.convention.batch_axes(spec.heads))
        largest = np.inf
        range_of_input = float(self.precision.input.largest)
        if domain.max_abs_score is not None:
            # A quarter of the range leaves room for sums; masks need it for numbers in place of −∞.
            room = range_of_input / 4 if spec.masks_anything else np.inf
            largest = min(domain.max_abs_score, room)
        elif spec.masks_anything:
            largest = self.reach or min(_MASKED_SCORES, range_of_input / 64)
        put("largest_score", largest)

    @property
    def fronts(self) -> tuple[int, ...]:
        """Batch axes for the layout ``nd``, which has none of its own."""
        # Two sizes that differ, so that exchanged axes show.
        return (2, 3) if self.spec.heads == 1 and not self.tokens else (2,)

    def mask_front(self, batch: tuple[int, ...]) -> tuple[int, ...]:
        """Return the leading axes of masks, before those of tokens: b and 1 for heads, if the function takes them."""
        forms = [a.form for a in self.convention.arguments if a.input in ("mask", "keep")]
        counts = ("lengths", "length")
        # A mask with a batch axis needs arguments that all have one.
        wrong_count = len(batch) != self.batches
        if wrong_count or any("b" not in f and f not in counts for f in forms):
            return ()
        return (*batch[:1], *(1 for _ in batch[1:]))

    @property
    def mask_heads(self) -> int:
        """The number of different masks that the heads get: one for all, unless the function takes one for each."""
        forms = [a.form for a in self.convention.arguments if a.input == "mask"]
        return (
            self.spec.heads
            if any("h" in f and f != "lengths" and f != "length" for f in forms)
            else 1
        )

    def batch_axes(self, number: int) -> tuple[int, ...]:
        """Return as many sizes of batch axes, which differ from the numbers of heads."""
        heads = (self.spec.heads, self.spec.key_heads) if self.spec.heads > 1 else ()
        # Sizes that differ from numbers of heads, so that exchanged axes show.
        return tuple(n for n in (2, 3, 5, 7) if n not in heads)[:number]

    def fitted(self, sizes: Sizes) -> Sizes:
        """Return the sizes nearest to those requested that the specification and the domain allow.

        Sizes that differ still differ, if there is room.
        """
        n_q, n_k = self._choose_token_counts(sizes.n_q, sizes.n_k)
        items = prod(sizes.batch) * self.spec.heads
        # More scores than a case should have: fewer tokens, of queries and keys alike.
        if items * n_q * n_k > self.cells:
            most = (
                self.cells // items
                if self.domain.decoding
                else min(n_q, n_k, isqrt(self.cells // items))
            )
            few = self.domain.tokens.down(most) or self.domain.tokens.near(1)
            n_q, n_k = self._choose_token_counts(few, few)
        d_k = self._choose_nearest_width(sizes.d_k)
        d_v = self.domain.widths.near(sizes.d_v)
        # Sizes that coincide though different ones are wanted hide exchanged widths.
        if self.same_width:
            d_v = d_k
        elif d_k == d_v and sizes.d_v > sizes.d_k:
            d_v = self.domain.widths.near(d_v + 1)
        elif d_k == d_v and sizes.d_v < sizes.d_k:
            d_k = self._choose_nearest_width(d_k + 1)
        d_model = self.spec.heads * d_k if self.domain.square_weights else sizes.d_model
        return replace(sizes, n_q=n_q, n_k=n_k, d_k=d_k, d_v=d_v, d_model=d_model)

    def _choose_token_counts(self, n_q: int, n_k: int) -> tuple[int, int]:
        """Return numbers of queries and keys near these, with a key for each query if the domain promises that."""
        # A square domain, and decoding, have as many queries as keys, or one.
        queries = n_k if self.square or self.domain.decoding else n_q
        n_q, n_k = self.domain.tokens.both(queries, n_k)
        n_q = 1 if self.domain.decoding and not self.square else n_q
        causal = (
            self.spec.causal
            and self.spec.alignment == "bottom-right"
            and not self.domain.fully_masked_rows
        )
        rotated = isinstance(self.spec.position, Rotary)  # queries stand at places of keys
        # Each query needs a key at its place or before.
        if causal or rotated or self.spec.documents or self.follows_keys:
            n_q, n_k = min(n_q, n_k), max(n_q, n_k)
        if self.domain.decoding or self.domain.fully_masked_rows:
            return n_q, n_k
        # Masks of places may leave a query without keys when the numbers differ.
        masked = self.spec.masks_by_place
        if masked and not places(self.spec, n_q, n_k, {}).any(axis=1).all():
            n_q = n_k = max(n_q, n_k)
        return n_q, n_k

    def admits(self, inputs: Mapping[str, Array]) -> bool:
        """Return whether the domain admits the inputs: their sizes, their scores, and a key for each row."""
        sizes = sizes_of(self.spec, inputs)
        if not self.domain.admits(sizes):
            return False
        # labels that lie in order
        bounds = (a.input for a in self.convention.arguments if a.form == "bounds")
        if not all(
            (np.diff(inputs[n]) >= 0).all() for n in bounds if n is not None and n in inputs
        ):
            return False
        # A query before the first key has no place.
        if self.follows_keys and sizes["n_q"] > sizes["n_k"]:
            return False
        # The cheap check of masks comes before the scores.
        rows = self.domain.fully_masked_rows or not self.spec.masks_anything
        rows = rows or open_rows(self.spec, sizes["n_q"], sizes["n_k"], inputs)
        # Without a limit the scores need not be computed.
        largest = self.largest_score
        return rows and (largest == np.inf or measure_largest_score(self.spec, inputs) <= largest)

    def _choose_nearest_width(self, d_k: int) -> int:
        """Return the nearest d_k that positions, latents, truncated scores and the domain allow."""
        result = self._smallest_valid_width(d_k)
        # Widths of domain and specification alternate upward until both agree.
        while (near := self.domain.widths.up(result)) is not None:
            if near == (result := self._smallest_valid_width(near)):
                return near
        # The largest one; if the specification can take none of the domain, the smallest that it can.
        downwards = range(self.domain.max_width, 0, -1)
        widths = (self.domain.widths.down(n) for n in downwards)
        return next(
            (d for d in widths if d is not None and self._smallest_valid_width(d) == d),
            self._smallest_valid_width(1),
        )

    def _smallest_valid_width(self, d_k: int) -> int:
        """Return the smallest d_k from this one on that the specification can take."""
        if self.spec.latent is not None:
            return max(d_k, _latent_position_columns(self.spec) + 1, self.spec.truncate or 1)
        return least_width(self.spec, d_k)

    def shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Return the shape of every array."""
        s = sizes
        letters = lengths_by_letter(self.spec, replace(s, d_model=s.d_k) if self.unprojected else s)
        result = {name: lengths(name, self.spec, self.names, letters) for name in self.names}
        for name in ("bias", "drop"):
            # A bias or dropout mask with an axis of heads gets one, unless the function takes none.
            form = next((a.form for a in self.convention.arguments if a.input == name), "")
            if name in result and self.spec.heads > 1 and form != "qk":
                result[name] = (*(1,) * len(s.batch), self.spec.heads, *result[name])
        return {
            name: (*s.batch, *shape) if name in _TOKENS else shape for name, shape in result.items()
        }

    def labels(self, sizes: Sizes, rng: np.random.Generator) -> dict[str, Array]:
        """Return the inputs that are whole numbers, and dropout masks."""
        shapes = {
            n: shape
            for n, shape in self.shapes(sizes).items()
            if n.startswith(("doc", "positions", "drop"))
        }
        return extras(shapes, rng, self.spec)

    def in_format(self, a: Array) -> Array:
        """Round to the format; numbers beyond its range become its largest number, as some formats have no −∞."""
        most = float(self.precision.input.largest)
        within_range = np.clip(a, -most, most)
        clipped = np.where(np.isfinite(a), within_range, a)
        return np.asarray(self.precision.input.rounded(clipped))

    def make(self, sizes: Sizes, entries: Entries, rng: np.random.Generator) -> dict[str, Array]:
        """Make inputs of the fitted sizes with the given entries, rounded to the format, and random masks."""
        result = self._draw_input_arrays(self.fitted(sizes), entries, rng)
        while self.domain.max_abs_score is not None and not self.admits(result):
            n_q, n_k = (max(n // 2, 1) for n in (sizes.n_q, sizes.n_k))
            if (n_q, n_k) == (sizes.n_q, sizes.n_k):
                break
            # what is added to scores may grow with the distance
            sizes = replace(sizes, n_q=n_q, n_k=n_k)
            result = self._draw_input_arrays(self.fitted(sizes), entries, rng)
        return result

    def _draw_input_arrays(
        self, s: Sizes, entries: Entries, rng: np.random.Generator
    ) -> dict[str, Array]:
        shapes = self.shapes(s)
        result = self._draw_extra_inputs(shapes, rng)
        arrays = {
            n: self.in_format(entries(n, shape)) for n, shape in shapes.items() if n not in result
        }
        if self.spec.padding or self.spec.mask is not None:
            arrays |= self.masks(s.n_q, s.n_k, rng, result, s.batch)
        return self.tame(self._in_order(arrays | result))

    def _draw_extra_inputs(
        self, shapes: dict[str, tuple[int, ...]], rng: np.random.Generator
    ) -> dict[str, Array]:
        """Draw positions, tables, sinks and the like, rounded to the format."""
        extra_shapes = {n: shape for n, shape in shapes.items() if n in EXTRAS}
        result = extras(extra_shapes, rng, self.spec)
        return {n: a if a.dtype.kind in "biu" else self.in_format(a) for n, a in result.items()}

    def _in_order(self, arrays: dict[str, Array]) -> dict[str, Array]:
        order = [*self.names, "mask", "keep"]
        return {name: arrays[name] for name in order if name in arrays}

    def from_heads(
        self, q: Array, k: Array, v: Array, rng: np.random.Generator | None = None
    ) -> dict[str, Array] | None:
        """Return inputs that give each head these q, k, v; None if there are none. Masks are random, or open."""
        # Unprojected tokens and latents tie q, k and v together.
        if self.tokens and (self.unprojected or self.spec.latent is not None or self.spec.packed):
            return None
        heads = self._as_promised(q, k, v)
        if heads is None:
            return None
        q, k, v = heads
        d_k, d_v = int(q.shape[-1]), int(v.shape[-1])
        # Tokens contain q, k and v side by side: they are as wide as these, or as square weights are.
        parted = 2 * d_k + d_v
        d_model = self.spec.heads * d_k if self.domain.square_weights else parted
        arrays = {"q": q, "k": k, "v": v}
        if self.tokens:
            # Square weights select three parts of a token only if it is wide enough, as with three heads.
            if d_model < parted:
                return None
            arrays = self._as_tokens(q, k, v, d_model)
        elif self.spec.heads > 1:
            arrays = self._repeat_for_heads(arrays)
        arrays = {name: self.in_format(a) for name, a in arrays.items()}
        sizes = Sizes(q.shape[-2], k.shape[-2], d_k, d_v, d_model)
        shapes = self.shapes(sizes)
        # Without rng the probe decides alone, and all other inputs are always the same.
        result = self._draw_extra_inputs(shapes, rng or np.random.default_rng(len(k)))
        rest = {  # small whole numbers for matrices that the heads' inputs do not determine
            n: np.random.default_rng(sum(shape)).integers(-1, 2, shape).astype(float)
            for n, shape in shapes.items()
            if n not in arrays and n not in result
        }
        result = arrays | rest | result
        if self.spec.padding or self.spec.mask is not None:
            result |= self.masks(q.shape[-2], k.shape[-2], rng, result)
        return self._in_order(result) if self.admits(result) else None

    def _as_promised(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array] | None:
        """Return queries, keys and values of promised sizes; None if these cannot be extended to them.

        Columns of zeros are added, and rows are repeated; an identity matrix grows, as wide as allowed. If one query
        is promised, the last one is taken.
        """
        # A decoding call has one query: the last one.
        if self.domain.decoding:
            q = q[-1:]
        if self.square and len(q) != len(k):
            return None
        n_q, n_k = self._choose_token_counts(len(q), len(k))
        # Rows cannot be dropped without changing what the probe asks.
        if n_q < len(q) or n_k < len(k):
            return None
        # Without promised lengths a probe is used as it is or not at all.
        own_lengths = Lengths(1, self.domain.max_tokens)
        if self.domain.tokens == own_lengths and (n_q, n_k) != (
            len(q),
            len(k),
        ):
            return None
        # An identity shows the weights themselves, and must stay one.
        if np.array_equal(v, np.eye(len(v))):
            v = np.eye(min(n_k, self.domain.widths.near(n_k)))
        counted = ((q, n_q), (k, n_k), (v, n_k))
        # Longer inputs repeat the rows cyclically.
        q, k, v = (a[np.arange(n) % len(a)] for a, n in counted)
        d_k = self._choose_nearest_width(q.shape[-1])
        d_v = self.domain.widths.near(v.shape[-1])
        if self.same_width:
            d_k = d_v = self._choose_nearest_width(max(d_k, d_v))
        # Columns cannot be dropped without changing scores or values.
        if d_k < q.shape[-1] or d_v < v.shape[-1]:
            return None
        width_of_keys = k.shape[-1]
        zeros = (d_k - q.shape[-1], d_k - width_of_keys, d_v - v.shape[-1])
        q, k, v = (
            np.pad(a.astype(float), ((0, 0), (0, n))) for a, n in zip((q, k, v), zeros, strict=True)
        )
        return q, k, v

    def _repeat_for_heads(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Repeat queries, keys and values for each of their heads."""
        heads = self.spec.heads_of
        return {n: np.broadcast_to(a, (heads[n], *a.shape)).copy() for n, a in arrays.items()}

    def _as_tokens(self, q: Array, k: Array, v: Array, d_model: int) -> dict[str, Array]:
        """Return tokens that contain q, k and v side by side, then zeros, and projections that select them."""
        widths_of_head = (q.shape[-1], v.shape[-1])
        h, (d_k, d_v) = self.spec.heads, widths_of_head
        columns = np.eye(d_model)
        n_q, n_k = q.shape[-2], k.shape[-2]
        rest = d_model - 2 * d_k - d_v
        y = np.concatenate([np.zeros((n_k, d_k)), k, v, np.zeros((n_k, rest))], axis=1)
        x = np.concatenate([q, np.zeros((n_q, d_k + d_v + rest))], axis=1)
        # Without separate y, each token has its query beside its key and value.
        result = {"x": x, "y": y} if "y" in self.names else {"x": x + y}
        picks = {
            "w_q": columns[:, :d_k],
            "w_k": columns[:, d_k : 2 * d_k],
            "w_v": columns[:, 2 * d_k : 2 * d_k + d_v],
        }
        g = self.spec.key_heads
        result |= {name: np.tile(w, (1, h if name == "w_q" else g)) for name, w in picks.items()}
        widths = {"b_q": h * d_k, "b_k": g * d_k, "b_v": g * d_v, "b_o": d_model}
        result |= {name: np.zeros(n) for name, n in widths.items() if name in self.names}
        if "w_o" in self.names:
            value_identity = np.tile(np.eye(d_v, d_model), (h, 1))
            head_factors = np.repeat(2.0 ** np.arange(h), d_v)
            result["w_o"] = (
                # Powers of 2 tell the heads apart in the sum over heads.
                value_identity * head_factors[:, None]
            )
        return {name: result[name] for name in self.names if name in result}

    def masks(
        self,
        n_q: int,
        n_k: int,
        rng: np.random.Generator | None,
        inputs: dict[str, Array] | None = None,
        batch: tuple[int, ...] = (),
    ) -> dict[str, Array]:
        """Return masks that leave every query a key, different ones for each batch item; open without ``rng``."""
        named_inputs = (inputs or {}).items()
        labels = {n: a for n, a in named_inputs if n.startswith("doc")}
        may = places(self.spec, n_q, n_k, labels)
        front = self.mask_front(batch)
        items = [self._draw_key_masks(may, rng) for _ in range(prod(front))]
        result = {name: np.stack([item[name] for item in items]) for name in items[0]}
        of_heads = front
        # An axis of heads that is 1 is needed to broadcast over heads.
        if self.mask_heads > 1:
            of_heads = (*(front or (1,) * len(batch)), self.mask_heads)
        elif front and self.spec.heads > 1:
            of_heads = (*front, 1)
        return {
            name: a.reshape(
                (*(of_heads if name == "mask" else front), *a.shape[-2 if name == "mask" else -1 :])
            )
            for name, a in result.items()
        }

    def _draw_key_masks(self, may: Array, rng: np.random.Generator | None) -> dict[str, Array]:
        """Return the masks of one item, in addition to those of the specification and labels."""
        result: dict[str, Array] = {}
        n_k = may.shape[1]
        keep = np.ones(n_k, dtype=bool)
        if self.spec.padding:
            keep = keep if rng is None else self._draw_valid_keys(n_k, rng)
            # A padding that would leave a query without keys is dropped.
            if not self.domain.fully_masked_rows and not (may & keep).any(axis=1).all():
                keep = np.ones(n_k, dtype=bool)
            result["keep"] = keep
        if self.spec.mask is not None:
            result["mask"] = np.stack(
                [self._draw_mask_of_head(may & keep, rng) for _ in range(self.mask_heads)]
            )
        return result

    def _draw_mask_of_head(self, may: Array, rng: np.random.Generator | None) -> Array:
        """Draw a mask of one head, in which each query keeps a key that it may see otherwise."""
        open_ = np.ones(may.shape, dtype=bool) if rng is None else rng.random(may.shape) < 0.6
        open_ = self._with_keys(open_, may, rng)
        finite = np.zeros(open_.shape)
        if self.spec.mask == "additive" and rng is not None:
            finite = rng.integers(-2, 2, open_.shape) / 2.0
        return open_ if self.spec.mask == "boolean" else np.where(open_, finite, -np.inf)

    def _draw_valid_keys(self, n_k: int, rng: np.random.Generator) -> Array:
        """Draw the valid keys: the first ones if the function takes their number, else any, with the first or last."""
        if any(a.form in ("lengths", "length") for a in self.convention.arguments):
            return np.arange(n_k) < rng.integers(1, n_k + 1)
        if self.domain.fully_masked_rows and rng.random() < 0.15:
            return np.zeros(n_k, dtype=bool)
        keep = rng.random(n_k) < 0.7
        # One end stays valid, so that padding is not always on both sides.
        keep[rng.choice((0, n_k - 1))] = True
        return keep

    def _with_keys(self, open_: Array, may: Array, rng: np.random.Generator | None) -> Array:
        """Return the mask opened so that each query keeps a key that the other masks allow as well."""
        # Now and then a row without any key, where the domain has these.
        if self.domain.fully_masked_rows and rng is not None and rng.random() < 0.5:
            open_[rng.integers(len(open_))] = False
            return open_
        # Rows that other masks leave no key cannot be opened.
        for i in np.flatnonzero(~(open_ & may).any(axis=1) & may.any(axis=1)):
            if not self.domain.fully_masked_rows or rng is None or rng.random() < 0.5:
                choice = np.flatnonzero(may[i])
                open_[i, choice[0] if rng is None else rng.choice(choice)] = True
        return open_

    def tame(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the inputs with scores within the domain: halve queries until they are, then terms added to scores."""
        # Without a limit the scores need not be computed.
        if self.largest_score == np.inf:
            return inputs
        first = next(n for n in ("w_q", "w_uq", "w_in", "x", "q") if n in inputs)
        # Queries first; added terms only if halved queries are not enough.
        for names in ((first, *(("b_q",) if first == "w_q" else ())), ADDED):
            for _ in range(_HALVINGS):
                if measure_largest_score(self.spec, inputs) <= self.largest_score:
                    return inputs
                halved = {n: a / 2 for n, a in inputs.items() if n in names}
                inputs = inputs | {n: self.in_format(a) for n, a in halved.items()}
        return inputs


def measure_largest_score(spec: Attention, inputs: Mapping[str, Array]) -> float:
    """Return the largest |s| before masks, in float64."""
    values: dict[str, Any] = dict(inputs)
    last = ""
    with np.errstate(all="ignore"):
        for step in spec.pipeline(frozenset(values)):
            # Masked scores are −∞, and not those whose size is bounded.
            if step.name in ("masked", "weights"):
                break
            operands = [values[n] for n in step.of]
            values[step.name] = step.run(*operands)
            last = step.name if step.name in SCORES else last
    scores = values[last]
    # Of millions of scores an array of absolute values would take longer to make than both extremes.
    return float(max(scores.max(), -scores.min()))
