"""Fields of ``Attention`` drawn at random; together they need not make sense."""

from fractions import Fraction
from random import Random
from typing import Any

from symattn.attention.latent import Latent
from symattn.attention.positions.position_fields import Alibi, Buckets, Disentangled, Rotary, Shaw, TransformerXL
from symattn.attention.positions.rotary_fields import (
    LinearScaling,
    LongRopeScaling,
    NTKScaling,
    ProportionalScaling,
    YarnScaling,
)

TRIPLES = ((3, 4, 5), (5, 12, 13), (-8, 15, 17))


def fields(rng: Random) -> dict[str, Any]:
    """Fields, each as it is by default or not; together they need not make sense."""
    heads = rng.choice((1, 1, 2, 2, 3, 4))
    choices: dict[str, tuple[Any, ...]] = {
        "score": ("general", "additive", "cosine", "distance"),
        "scale": (1, Fraction(1, 3), 0.5, -1, "1/d_k", "given"),
        "truncate": (1, 2),
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
        "eps": (Fraction(1, 4), 0.125),
        "position": tuple(make(rng) for make in POSITIONS),
        "normaliser": ("sigmoid", "relu", "sparsemax", "entmax"),
        "base": (2,),
        "sink": ("given", "zero"),
        "stabilised": (False,),
        "fully_masked": ("nan", "error"),
        "dropout": (0.25, Fraction(1, 3)),
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
