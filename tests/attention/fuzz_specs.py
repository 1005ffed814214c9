"""Specifications drawn at random over every field of ``Attention``, with inputs that fit them.

Shapes are written here a second time, so that what the package takes for a shape is compared, too."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np

from symattn import (
    Alibi,
    Attention,
    Buckets,
    Disentangled,
    Latent,
    LinearScaling,
    LongRopeScaling,
    NTKScaling,
    ProportionalScaling,
    Rotary,
    Shaw,
    TransformerXL,
    YarnScaling,
)

Batch = tuple[int, ...]


@dataclass(frozen=True)
class Input:
    """An input: its axes of batches, its own axes, and its elements, fractions, truth values or whole numbers."""

    batch: Batch
    own: tuple[int, ...]
    data: np.ndarray

    def of(self, index: Batch) -> Any:
        """Its own axes as nested lists, at an index of the whole batch."""
        last = index[len(index) - len(self.batch) :]
        return self.data[tuple(i if n > 1 else 0 for i, n in zip(last, self.batch, strict=True))].tolist()


@dataclass
class Case:
    """A specification, its inputs by name, and the lengths of the axes by letter."""

    spec: Attention
    batch: Batch = ()
    over: Batch = ()
    inputs: dict[str, Input] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def indices(self) -> Iterator[Batch]:
        return product(*map(range, self.batch))


# -- inputs ------------------------------------------------------------------------------------------------------------
class Maker:
    """Inputs for a specification."""

    def __init__(self, spec: Attention, rng: Random) -> None:
        self.spec, self.rng = spec, rng
        self.case = Case(spec)
        self.h, self.g = spec.heads, spec.kv_heads or spec.heads

    def chance(self, p: float = 0.5) -> bool:
        return self.rng.random() < p

    def few(self, most: int = 4) -> int:
        return self.rng.randint(1, most)

    def make(self) -> Case:
        self._lengths()
        self._tokens()
        self._scores_and_masks()
        self._norms()
        self._gate()
        self._position()
        return self.case

    def add(self, name: str, own: tuple[int, ...], batch: Batch = (), holds: str = "numbers") -> None:
        shape = (*batch, *own)
        data = np.empty(shape, dtype=object)
        for index in np.ndindex(shape):
            data[index] = self._element(holds)
        self.case.inputs[name] = Input(batch, own, data)

    def _element(self, holds: str) -> Any:
        if holds == "booleans":
            return self.chance(0.7)
        if holds == "labels":
            return self.rng.randint(0, 1)
        if holds == "positions":
            return self.rng.randint(-3, 9)
        if holds == "forbidding" and self.chance(0.25):
            return float("-inf")
        return Fraction(self.rng.randint(-8, 8), 4)

    @property
    def over(self) -> Batch:
        """What masks and tables may have in front: with heads, the axes of batches of the scores."""
        return self.case.over if self.h > 1 else self.case.batch

    def part(self, batch: Batch, whole: bool = False) -> Batch:
        """Axes that broadcast to those of a batch; ``whole``: as many."""
        start = 0 if whole else self.rng.choice((0, 0, len(batch), self.rng.randint(0, len(batch))))
        return tuple(n if self.chance(0.8) else 1 for n in batch[start:])

    # -- lengths, queries, keys, values --
    def _lengths(self) -> None:
        spec, rng = self.spec, self.rng
        tokens = bool(spec.packed or spec.latent or spec.gates_projection) or self.chance()
        self.x = tokens
        self.y = tokens and self.chance(0.4)
        self.free = tokens and not (spec.packed or spec.latent) and self.h == 1 and self.chance(0.4)
        n_q, n_k = self.few(), self.few()
        if tokens and not self.y:
            n_k = n_q
        if isinstance(spec.position, Rotary) and n_q > n_k and self.chance(0.9):
            n_q, n_k = n_k, n_q
        self.labelled = rng.choice(("doc", "doc_q doc_k")) if n_q == n_k else "doc_q doc_k"
        if spec.documents and spec.position and n_q == n_k:
            self.labelled = "doc"
        d = self._rotated() if isinstance(spec.position, Rotary) else self.few()
        d = max(d, spec.truncate or 1)
        wide = spec.score in ("general", "additive") and not spec.packed
        self.n_q, self.n_k, self.d, self.d_s, self.d_v = n_q, n_k, d, self.few() if wide else d, self.few()
        self.d_model, self.d_y = (d, self.d_s) if self.free else (self.few(), self.few())
        if self.free:
            self.d_v = self.d_s if self.y else d
        if self.x and not self.y:
            self.d_y = self.d_model
            self.d_s = d if self.free else self.d_s
        if spec.packed:
            self.d_v = d
            self.d_y = self.d_model
        self.case.sizes |= {"n_q": n_q, "n_k": n_k, "d_k": d, "d_s": self.d_s, "d_v": self.d_v,
                            "d_model": self.d_model, "d_y": self.d_y}  # fmt: skip

    def _rotated(self) -> int:
        asked = self.spec.position
        assert isinstance(asked, Rotary)
        if asked.triples:
            return 2 * len(asked.triples) + self.rng.randint(0, 1)
        if isinstance(asked.scaling, LongRopeScaling):
            return 4
        if asked.width is not None:
            return asked.width + self.rng.randint(0, 2)
        return 4 if isinstance(asked.scaling, NTKScaling) else self.rng.choice((2, 4))

    def _tokens(self) -> None:
        batch = self.rng.choice(((), (), (), (2,), (1,), (2, 1), (2, 2)))
        parts = [self.part(batch) for _ in range(3)]
        self.case.batch = np.broadcast_shapes(*parts[: 3 if not self.x else 1 + self.y])
        self.case.over = np.broadcast_shapes(*parts[: 2 if not self.x else 1 + self.y])
        if not self.x:
            axes = ((self.h,), (self.g,), (self.g,)) if self.h > 1 else ((), (), ())
            sizes = ((self.n_q, self.d), (self.n_k, self.d_s), (self.n_k, self.d_v))
            for name, of, head, size in zip("qkv", parts, axes, sizes, strict=True):
                self.add(name, (*head, *size), of)
            return
        self.add("x", (self.n_q, self.d_model), parts[0])
        if self.y:
            self.add("y", (self.n_k, self.d_y), parts[1])
        self._projections()

    def _projections(self) -> None:
        h, g, spec = self.h, self.g, self.spec
        if spec.packed:
            self.add("w_in", (self.d_model, (h + 2 * g) * self.d))
            self._maybe("b_in", ((h + 2 * g) * self.d,))
            self.case.sizes["p"] = h + 2 * g
        elif spec.latent:
            self._latent(spec.latent)
        elif not self.free:
            for role, width, source in (
                ("q", h * self.d, self.d_model),
                ("k", g * self.d_s, self.d_y),
                ("v", g * self.d_v, self.d_y),
            ):
                self.add(f"w_{role}", (source, width))
                self._maybe(f"b_{role}", (width,))
        d_out = self.few()
        if self.spec.gates_projection or self.chance(0.6):
            self.add("w_o", (h * self.d_v, d_out))
            self._maybe("b_o", (d_out,))
            self.case.sizes["d_out"] = d_out

    def _latent(self, asked: Latent) -> None:
        h, d_r, d_n, wide, narrow = self.h, self.d, self.few(3), self.few(3), self.few(3)
        d = d_n + d_r
        if asked.queries:
            self.add("w_dq", (self.d_model, narrow))
            self.add("w_uq", (narrow, h * d))
        else:
            self.add("w_q", (self.d_model, h * d))
            self._maybe("b_q", (h * d,))
        for name, shape in (("w_dkv", (self.d_y, wide)), ("w_uk", (wide, h * d_n)), ("w_uv", (wide, h * self.d_v)),
                            ("w_kr", (self.d_y, d_r))):  # fmt: skip
            self.add(name, shape)
        if asked.norm:
            self._maybe("g_ckv", (wide,))
            if asked.queries:
                self._maybe("g_cq", (narrow,))
        self.d = d
        self.case.sizes |= {"d_k": d, "d_s": d, "l": wide, "l_q": narrow, "d_n": d_n, "d_r": d_r, "d_c": wide + d_r}

    def _maybe(self, name: str, own: tuple[int, ...], p: float = 0.5) -> None:
        if self.chance(p):
            self.add(name, own)

    # -- scores, masks, norms --
    def _scores_and_masks(self) -> None:
        spec = self.spec
        for name, wanted, holds in (
            ("mask", spec.mask == "boolean", "booleans"),
            ("mask", spec.mask == "additive", "forbidding"),
            ("bias", spec.bias, "numbers"),
            ("drop", bool(spec.dropout), "booleans"),
        ):
            if wanted:
                self._of_scores(name, holds)
        if spec.padding:
            self.add("keep", (self.n_k,), self.part(self.over), "booleans")
        if spec.documents:
            for name in self.labelled.split():
                n = self.n_k if name == "doc_k" else self.n_q
                self.add(name, (n,), self.part(self.over), "labels")
        for name in ("scale", "sink"):
            if getattr(spec, name) == "given":
                self.add(name, (self.h,))
        width = self.few()
        if spec.score == "general":
            self._each("w_s", (self.d, self.d_s))
        if spec.score == "additive":
            self._each("w_s", (self.d, width))
            self._each("u_s", (self.d_s, width))
            self._each("v_s", (width,))
        self.case.sizes |= {"l_a": width, "d_t": spec.truncate or 1}

    def _each(self, name: str, own: tuple[int, ...]) -> None:
        """A matrix for all heads, or one for each."""
        self.add(name, (self.h, *own) if self.h > 1 and self.chance() else own)

    def _of_scores(self, name: str, holds: str) -> None:
        own: tuple[int, ...] = tuple(n if self.chance(0.75) else 1 for n in (self.n_q, self.n_k))
        if self.h > 1 and self.chance():
            own = (self.h if self.chance(0.8) else 1, *own)
            self.add(name, own, self.part(self.over, whole=True), holds)
        else:
            self.add(name, own, self.part(self.over), holds)

    def _norms(self) -> None:
        kind = self.spec.qk_norm
        q_heads, k_heads = (self.h, self.spec.key_heads) if self.spec.qk_norm_over == "heads" else (1, 1)
        for role, width in (("q", q_heads * self.d), ("k", k_heads * self.d_s)):
            if role == "q" and self.spec.qk_norm_of == "keys":
                continue
            if kind in ("rms", "layer"):
                self._maybe(f"g_{role}", (width,))
            if kind == "layer":
                self._maybe(f"beta_{role}", (width,))
        if self.spec.value_norm:
            self._maybe("g_v", (self.d_v,))

    def _gate(self) -> None:
        if self.spec.gates_projection:
            columns = self.case.sizes["d_out"] if self.chance(0.7) else 1
            self.add("gate", (self.n_q, columns), self.part(self.case.batch, whole=True))
        elif self.spec.output_gate:
            own = (self.n_q, self.d_v if self.chance(0.7) else 1)
            self.add("gate", (self.h, *own) if self.h > 1 else own, self.part(self.over, whole=True))

    # -- positions --
    def _position(self) -> None:
        asked, h, d = self.spec.position, self.h, self.d
        if isinstance(asked, Rotary):
            self._rotary(asked)
        elif isinstance(asked, Alibi) and asked.slopes == "given":
            self.add("slopes", (h,))
        elif isinstance(asked, Buckets):
            self.add("b_rel", (asked.number, h))
        elif isinstance(asked, Shaw):
            self.add("a_k", (2 * asked.most + 1, d))
            if asked.values:
                self.add("a_v", (2 * asked.most + 1, self.d_v))
        elif isinstance(asked, TransformerXL):
            n_r = self.n_k if self.spec.causal and self.chance() else self.n_q + self.n_k - 1
            self.case.sizes["n_r"] = n_r
            for name, own in (("r", (n_r, 2)), ("w_r", (2, h * d)), ("b_u", (h, d)), ("b_w", (h, d))):
                self.add(name, own)
        elif isinstance(asked, Disentangled):
            self.add("p", (2 * asked.span, 2))
            for letter, wanted in (("k", asked.to_position), ("q", asked.to_content)):
                if wanted:
                    self.add(f"w_p{letter}", (2, h * d))
                    self._maybe(f"b_p{letter}", (h * d,))
        self.case.sizes |= {"d_e": 2, "n_d": 0, "n_b": asked.number if isinstance(asked, Buckets) else 0}
        if isinstance(asked, Shaw | Disentangled):
            self.case.sizes["n_d"] = 2 * asked.most + 1 if isinstance(asked, Shaw) else 2 * asked.span

    def _rotary(self, asked: Rotary) -> None:
        rotated = self.case.sizes.get("d_r", self.d)
        self.case.sizes["f"] = len(asked.triples) if asked.triples else (asked.width or rotated) // 2
        if not asked.given:
            return
        own = self.n_q > self.n_k or self.chance(0.4)
        lengths = [("", self.n_k), *([("_q", self.n_q)] if own else [])]
        f = max(1, rotated // 2 - (self.chance(0.3) and rotated > 3))
        self.case.sizes["f"] = f if asked.given == "tables" else self.case.sizes["f"]
        for letter, n in lengths:
            if asked.given == "tables":
                self.add(f"cos{letter}", (n, f), self.part(self.over))
                self.add(f"sin{letter}", (n, f), self.part(self.over))
            else:
                rows = () if asked.sections is None else (len(asked.sections),)
                self.add(f"positions{letter}", (*rows, n), self.part(self.over), "positions")


def case_of(spec: Attention, rng: Random) -> Case:
    """Inputs for a specification."""
    return Maker(spec, rng).make()


# -- Fields of ``Attention`` drawn at random; together they need not make sense ----------------------------------------
TRIPLES = ((3, 4, 5), (5, 12, 13), (-8, 15, 17))


def fields(rng: Random) -> dict[str, Any]:
    """Fields, each as it is by default or not; together they need not make sense."""
    heads = rng.choice((1, 1, 2, 2, 3, 4))
    choices: dict[str, tuple[Any, ...]] = {
        "score": ("general", "additive", "cosine", "distance"),
        "scale": (1, Fraction(1, 3), 0.5, -1, "1/d_k", "given"),
        "truncate": (1, 2),
        "temperature": (0.5, Fraction(1, 3), "log"),
        "temperature_rate": (1, 2, 3),
        "temperature_start": (0, 2),
        "softcap": (2, Fraction(3, 2), 30.0),
        "bias": (True,),
        "causal": (True, True, True),
        "alignment": ("top-left",),
        "window": (1, 2, (1, 0), (0, 1), (None, 1), (2, None), (0, 0)),
        "block": (1, 2, 3),
        "prefix": (1, 2),
        "mask": ("boolean", "additive"),
        "padding": (True,),
        "documents": (True,),
        "kv_heads": (1, 2),
        "packed": (True,),
        "latent": (_latent(rng), _latent(rng)),
        "qk_norm": ("rms", "layer", "l2"),
        "qk_norm_place": ("after",),
        "qk_norm_over": ("heads",),
        "qk_norm_of": ("keys",),
        "value_norm": ("rms",),
        "eps": (Fraction(1, 4), 0.125),
        "position": tuple(make(rng) for make in POSITIONS),
        "normaliser": ("sigmoid", "relu", "relu_sum", "sparsemax", "entmax"),
        "base": (2,),
        "sink": ("given", "zero"),
        "stabilised": (False,),
        "fully_masked": ("nan", "error"),
        "dropout": (0.25, Fraction(1, 3)),
        "output_gate": (True,),
        "output_gate_place": ("after",),
        "lse": (True,),
    }
    often = {"causal": 0.45, "position": 0.5, "mask": 0.2, "heads": 1.0, "eps": 0.05, "lse": 0.25}
    found: dict[str, Any] = {"heads": heads} if heads > 1 else {}
    for name, values in choices.items():
        if rng.random() < often.get(name, 0.12):
            found[name] = rng.choice(values)
    return found


def _latent(rng: Random) -> Latent:
    norm: Any = rng.choice((None, "rms"))
    return Latent(
        absorbed=rng.random() < 0.5,
        queries=rng.random() < 0.5,
        norm=norm,
        eps=Fraction(1, 8) if norm and rng.random() < 0.5 else 0,
    )


def _rotary(rng: Random) -> Rotary:
    layout: Any = rng.choice(("half", "interleaved"))
    kind = rng.choice(("triples", "triples", "tables", "positions", "plain", "plain"))
    if kind == "triples":
        return Rotary(triples=TRIPLES[: rng.randint(1, 2)], layout=layout, start=rng.choice((0, 0, 2, -1)))
    if kind == "tables":
        return Rotary(given="tables", layout=layout)
    width = rng.choice((None, 2, 4))
    if kind == "positions":
        sections = rng.choice((None, (1, 1), (2, 1, 1)))
        if sections is not None:
            order: Any = rng.choice(("blocks", "interleaved"))
            return Rotary(given="positions", layout=layout, base=100, sections=sections, section_order=order)
        return Rotary(given="positions", layout=layout, width=width, base=100)
    scaling = rng.choice((None, *_SCALINGS))
    return Rotary(
        base=rng.choice((16, 10000, 2.5)), layout=layout, width=width, scaling=scaling, start=rng.choice((0, 3))
    )


_SCALINGS = (
    LinearScaling(factor=Fraction(5, 2)),
    NTKScaling(factor=2),
    NTKScaling(factor=4, length=2),
    YarnScaling(factor=4, length=64),
    YarnScaling(factor=8, length=100, ramp="turns", weight=0, fast=4),
    YarnScaling(factor=2, length=64, whole=False, weight=Fraction(1, 2), shared=1),
    LongRopeScaling(short=(1, 2), long=(3, 4), factor=4, length=3),
    ProportionalScaling(share=Fraction(1, 2)),
)  # fmt: skip

POSITIONS = (
    _rotary,
    _rotary,
    _rotary,
    lambda rng: Alibi(slopes=rng.choice(("computed", "given")), two_sided=rng.random() < 0.5),
    lambda rng: Buckets(
        number=rng.choice((4, 6, 8)), max_distance=rng.choice((5, 7)), bidirectional=rng.random() < 0.5
    ),
    lambda rng: Shaw(most=rng.randint(1, 2), values=rng.random() < 0.5),
    lambda rng: TransformerXL(),
    lambda rng: Disentangled(
        span=rng.choice((1, 2, 4)), to_position=rng.random() < 0.6, to_content=True, backwards=rng.random() < 0.5
    ),
    lambda rng: Disentangled(span=4, max_distance=6, to_content=rng.random() < 0.5),
)
