"""Positions where sizes are letters, and what of positions is refused, each with its reason."""

from collections.abc import Callable
from typing import Any

import pytest

from symattn import Attention
from symattn.arrays import kind
from symattn.arrays.index.axes import length
from symattn.arrays.indexed import Indexed
from symattn.attention.latent import Latent
from symattn.attention.positions.position_fields import Alibi, Buckets, Disentangled, Rotary, Shaw, TransformerXL
from symattn.attention.positions.rotary_fields import (
    LinearScaling,
    LongRopeScaling,
    NTKScaling,
    ProportionalScaling,
    YarnScaling,
)
from symattn.document.errors import InputError, Refused
from tests.arrays.evaluating import compare
from tests.attention.definitions_positions import D_K, N_K, NARROW, TRIPLES, data, qkv, xl

YARN = YarnScaling(factor=4, length=12, slow=0.5, fast=2, ramp="turns")


# -- letters -----------------------------------------------------------------------------------------------------------
QKV = {"q": "n f*2", "k": "n f*2", "v": "n w"}
LETTERS: list[tuple[Attention, dict[str, str]]] = [
    (Attention(causal=True, position=Rotary(given="tables", layout="interleaved")), QKV | {"cos": "n f", "sin": "n f"}),
    (
        Attention(causal=True, position=Rotary(given="tables", layout="interleaved")),
        {"q": "n f*2", "k": "p+n f*2", "v": "p+n w", "cos": "p+n f", "sin": "p+n f"},
    ),
    (
        Attention(heads=2, position=Rotary(given="tables")),
        {"q": "2 n f+f", "k": "2 m f+f", "v": "2 m w", "cos": "m f", "sin": "m f", "cos_q": "n f", "sin_q": "n f"},
    ),
    (
        Attention(heads=2, causal=True, position=Alibi(slopes="given")),
        {"q": "2 n f", "k": "2 p+n f", "v": "2 p+n w", "slopes": "2"},
    ),
    (Attention(position=Alibi(slopes="given", two_sided=True)), QKV | {"slopes": "1"}),
    (Attention(heads=2, causal=True, position=Alibi()), {"q": "2 n f", "k": "2 n f", "v": "2 n w"}),
]


@pytest.mark.parametrize(("spec", "arrays"), LETTERS, ids=lambda x: str(x)[:60])
def test_positions_where_sizes_are_letters(spec: Attention, arrays: dict[str, str]) -> None:
    compare(lambda **given: spec(**given), arrays, {"n": 2, "m": 3, "f": 2, "w": 1, "p": 1})


def test_what_letters_for_sizes_cannot_hold_is_refused_by_name() -> None:
    q, k, v = (Indexed.letters(n, length("n"), length("d")) for n in "qkv")
    with pytest.raises(InputError, match="frequencies of d columns: a number of columns is needed; hint: give cos"):
        Attention(position=Rotary())(q, k, v)
    with pytest.raises(Refused, match="indexed lacks"):
        Attention(position=Shaw(most=1, values=False))(q, k, v, a_k=Indexed.letters("a", 3, length("d")))


def test_true_angles_are_refused_by_exact() -> None:
    with pytest.raises(Refused, match=r"exact: cos.* is not in the decided field; use ball"):
        Attention(position=Rotary(width=2))(**{n: kind("exact").lift(a) for n, a in qkv().items()})


# -- what makes no sense -----------------------------------------------------------------------------------------------
SENSELESS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Rotary(base=1), "Rotary: base must be a finite number above 1, got 1"),
    (lambda: Rotary(width=3), "Rotary: width must be an even number of at least 2, or None, got 3"),
    (lambda: Rotary(layout="pairs"), "Rotary: layout must be one of half, interleaved"),
    (lambda: Rotary(start=0.5), "Rotary: start must be an integer, got 0.5"),
    (lambda: Rotary(triples=((3, 4, 6),)), "integers a, b, c with a² . b² = c²"),
    (lambda: Rotary(triples=((3.0, 4.0, 5.0),)), "integers a, b, c with a² . b² = c²"),
    (lambda: Rotary(triples=TRIPLES, width=2), "2 triples turn 4 columns, not 2"),
    (lambda: Rotary(triples=TRIPLES, given="tables"), "tables are given or made of triples, not both"),
    (lambda: Rotary(given="tables", scaling=YARN), "given tables are not scaled"),
    (lambda: Rotary(given="tables", width=2), "given tables are as wide as they are"),
    (lambda: Rotary(triples=TRIPLES, scaling=YARN), "angles of triples have no frequencies to scale"),
    (lambda: Rotary(triples=TRIPLES, given="positions"), "triples are for positions in order"),
    (lambda: Rotary(given="positions", start=1), "start belongs to positions in order, not to given positions"),
    (
        lambda: Rotary(given="positions", scaling=NTKScaling(factor=2, length=4)),
        "this scaling asks how many positions there are",
    ),
    (lambda: Rotary(scaling=2), "Rotary: scaling must be one of None, LinearScaling"),
    (lambda: LinearScaling(factor=0), "factor must be a finite number above 0, got 0"),
    (lambda: YarnScaling(factor=2, length=8, slow=4, fast=4), "slow = 4 turns must be fewer than fast = 4"),
    (lambda: YarnScaling(factor=2, length=8, ramp="turns", whole=False), "whole belongs to the ramp over indices"),
    (lambda: YarnScaling(factor=2, length=8, weight=None), "weight must be a finite number, got None"),
    (
        lambda: LongRopeScaling(short=(1, 0), long=(1, 1), factor=2, length=8),
        "short must be a tuple of finite numbers above 0",
    ),
    (lambda: ProportionalScaling(share=2), "share must be a number from 0 to 1, got 2"),
    (lambda: Buckets(number=7, max_distance=9), "number must be even for two directions"),
    (lambda: Buckets(number=32, max_distance=8), "16 buckets up to the distance 8"),
    (lambda: Shaw(most=0), "most must be an integer of at least 1, got 0"),
    (lambda: Disentangled(span=2, to_position=False, to_content=False), "no term is left"),
    (lambda: Disentangled(span=3, max_distance=9), "3 buckets up to 9: there must be four or more"),
    (lambda: Attention(position="rotary"), "position must be one of None, Rotary, Alibi"),
    (lambda: Attention(position=Alibi()), "linear biases grow for keys ahead of a query; hint: causal=True"),
    (lambda: Attention(position=Buckets(bidirectional=False)), "buckets in one direction hold all keys ahead in one"),
    (lambda: Attention(latent=Latent(), position=Shaw(most=1)), "with a latent, queries and keys have a part without"),
    (lambda: Attention(score="cosine", position=Shaw(most=1)), "terms by distance are added to dot products"),
    (lambda: Attention(truncate=1, position=Shaw(most=1)), "tables of distances are as wide as whole queries"),
    (lambda: Attention(alignment="top-left", position=TransformerXL()), "has its memory before the queries"),
]


@pytest.mark.parametrize(("make", "words"), SENSELESS, ids=[words[:40] for _, words in SENSELESS])
def test_what_makes_no_sense_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


NARROWED = qkv(width=NARROW)
UNFIT: list[tuple[Attention, dict[str, Any], str]] = [
    (Attention(position=Rotary(width=6)), {}, "rotary: 6 columns are to be rotated, and queries and keys have 5"),
    (Attention(position=Rotary(triples=TRIPLES * 2)), {}, "rotary: 8 columns are to be rotated"),
    (Attention(position=Rotary()), {}, "5 is not an even number from 2 on"),
    (Attention(position=Rotary(given="tables")), {}, "the specification needs input 'cos'"),
    (Attention(), {"cos": data(N_K, 2)}, "the specification has no input 'cos'"),
    (Attention(position=Rotary(given="tables")), {"cos": data(3, 2), "sin": data(3, 2)}, "cos .*: n_k differs"),
    (
        Attention(position=Rotary(given="positions")),
        {"positions": data(N_K)},
        "positions must hold whole numbers, got float64",
    ),
    (
        Attention(position=Rotary(width=2)),
        {"q": data(5, D_K)},
        "rotary: 5 queries do not stand at the end of 4 keys; hint: Rotary.given='positions'., and positions_q",
    ),
    (Attention(position=Buckets(number=8, max_distance=9)), {"b_rel": data(7, 1)}, "of buckets must have the length 8"),
    (Attention(position=Shaw(most=2, values=False)), {"a_k": data(4, D_K)}, "of distances must have the length 5"),
    (Attention(position=TransformerXL()), NARROWED | xl(N_K, 1), "r has 4 rows; 3 queries and 4 keys need 6"),
    (
        Attention(causal=True, position=TransformerXL()),
        NARROWED | xl(5, 1),
        "r has 5 rows; 3 queries and 4 keys need 4 or 6",
    ),
]


@pytest.mark.parametrize(("spec", "more", "words"), UNFIT, ids=[words[:40] for *_, words in UNFIT])
def test_what_does_not_fit_is_refused(spec: Attention, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        spec(**(qkv() | more))
