"""Attention with positions: true angles in balls and floats; letters for sizes; each refusal with its reason."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

from symattn import (
    Alibi,
    Attention,
    Buckets,
    Disentangled,
    InputError,
    Latent,
    LinearScaling,
    LongRopeScaling,
    NTKScaling,
    ProportionalScaling,
    Refused,
    Rotary,
    Shaw,
    TransformerXL,
    Undecided,
    YarnScaling,
    functional,
    kind,
    kinds,
)
from tests.arrays.evaluating import compare
from tests.attention.by_loops import attention
from tests.attention.by_loops_positions import angles
from tests.attention.definition import nested
from tests.attention.definitions_positions import D_K, N_K, NARROW, POSITIONS, TRIPLES, H, data, qkv, xl
from tests.bounded import bounded

# -- true angles -------------------------------------------------------------------------------------------------------
WIDTH = 12
YARN = YarnScaling(factor=16, length=4096)
LONG = LongRopeScaling(short=(1,) * 6, long=(1.125, 2, 3.5, 4, 5, 64), factor=2, length=3)
TRUE = {
    "plain": Rotary(),
    "base, part, interleaved": Rotary(base=7.5, width=4, layout="interleaved"),
    "linear": Rotary(scaling=LinearScaling(factor=2.5)),
    "ntk": Rotary(scaling=NTKScaling(factor=4)),
    "ntk, dynamic": Rotary(scaling=NTKScaling(factor=4, length=3), start=1),  # at the five positions 0 to 4
    "yarn": Rotary(scaling=YARN),
    "yarn, not rounded": Rotary(scaling=replace(YARN, whole=False)),
    "yarn, shared weight": Rotary(scaling=replace(YARN, weight=2, shared=1)),
    "yarn, as written": Rotary(scaling=YarnScaling(factor=4, length=12, slow=0.5, fast=2, ramp="turns")),
    "llama 3": Rotary(scaling=YarnScaling(factor=8, length=1024, slow=1, fast=4, ramp="turns", weight=0)),
    "longrope": Rotary(scaling=LONG),
    "proportional": Rotary(scaling=ProportionalScaling(share=0.5)),
}
ARRAYS = {"q": data(H, 3, WIDTH), "k": data(H, 4, WIDTH), "v": data(H, 4, 2)}


def turned(asked: Rotary) -> Attention:
    return Attention(heads=H, causal=True, position=asked)


@cache
def by_angles(name: str) -> list[Any]:
    """The elements by loops."""
    with mpmath.workdps(60):
        found = attention(turned(TRUE[name]), {n: nested(a) for n, a in ARRAYS.items()})["output"]
        return [x for head in found for row in head for x in row]


@pytest.mark.parametrize("name", TRUE)
def test_true_angles_in_balls(name: str) -> None:
    """Each gives what its own formulas say, and not what any other does."""
    with kinds.precision(200), mpmath.workdps(60):
        found = turned(TRUE[name])(*map(kind("ball").lift, ARRAYS.values()))
        middles = [mpmath.mpf(b.mid().str(60, radius=False)) for b in found.entries.flat]
        assert all(b.rad() < 1e-45 for b in found.entries.flat)
        for other in TRUE:
            gaps = [abs(x - y) for x, y in zip(middles, by_angles(other), strict=True)]
            assert (max(gaps) < mpmath.mpf("1e-45")) == (other == name), other


def radius_of(spec: Attention, dtype: Any) -> Any:
    """What the rounding errors may sum up to; without end where it is open in bfloat16 whether a sum is zero."""
    try:
        return spec(*map(bounded(dtype).lift, ARRAYS.values())).planes[1]
    except Undecided:
        return np.full((H, 3, 2), np.inf if dtype == ml_dtypes.bfloat16 else np.nan)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", TRUE)
def test_true_angles_in_floats(name: str, dtype: str) -> None:
    """Within the rounding errors of all operations, those of the tables among them; tables are rounded once."""
    target, spec = kind(dtype), turned(TRUE[name])
    with np.errstate(all="ignore"), mpmath.workdps(40):
        found = spec.trace(*map(target.lift, ARRAYS.values()))
        radius = radius_of(spec, target.dtype)
        wanted = np.array([float(x) for x in by_angles(name)]).reshape(radius.shape)
        cosines = [[float(z.real) for z in row] for row in angles(spec, {}, 3, 4, (0, WIDTH))[1]]
    plain = {n: np.asarray(found[n] if target.xp is np else found[n].numpy()) for n in ("cos", "output")}
    assert all(a.dtype == target.dtype for a in plain.values())
    once = float(ml_dtypes.finfo(target.dtype).eps) / 2 if dtype != "float64" else 2.0**-49
    np.testing.assert_allclose(plain["cos"].astype(float), cosines, rtol=once * (1 + 1e-6))
    assert (np.abs(plain["output"].astype(float) - wanted) <= radius).all()


def test_the_bound_is_narrow_enough_to_see_a_position_too_far() -> None:
    spec = turned(Rotary())
    radius = spec(*map(bounded(np.float64).lift, ARRAYS.values())).planes[1]
    moved = turned(Rotary(base=10001))(*ARRAYS.values())
    assert (radius < 2.0**-40).all()
    assert not (np.abs(moved - spec(*ARRAYS.values())) <= radius).all()


# -- positions that are given ------------------------------------------------------------------------------------------
def balls(spec: Attention, **more: Any) -> Any:
    return spec(*map(kind("ball").lift, ARRAYS.values()), **more).entries


def test_given_positions() -> None:
    """In order they are those that are not given; moved together they give the same output; else another."""
    given, order = Attention(heads=H, position=Rotary(given="positions")), np.arange(4)
    own = Attention(heads=H, position=Rotary(start=5))
    with kinds.precision(200):
        wanted = balls(own)
        for same in (balls(given, positions=order + 5), balls(given, positions=order - 100)):
            assert all(x.overlaps(y) for x, y in zip(same.flat, wanted.flat, strict=True))
        restart = balls(given, positions=np.array([0, 1, 0, 1]))
        assert not all(x.overlaps(y) for x, y in zip(restart.flat, wanted.flat, strict=True))
        queries = balls(given, positions=order, positions_q=np.array([1, 2, 3]))
        assert all(x.overlaps(y) for x, y in zip(queries.flat, wanted.flat, strict=True))
        first = balls(replace(given, alignment="top-left"), positions=order)
        assert not all(x.overlaps(y) for x, y in zip(first.flat, wanted.flat, strict=True))
        zero = balls(given, positions=order, positions_q=np.array([0, 1, 2]))
        assert all(x.overlaps(y) for x, y in zip(first.flat, zero.flat, strict=True))


# -- latents -----------------------------------------------------------------------------------------------------------
SHAPES = {"x": (3, 6), "w_q": (6, H * 7), "w_dkv": (6, 2), "w_uk": (2, H * 3), "w_uv": (2, H * 2), "w_kr": (6, 4)}
LATENT = {n: data(*shape) / (1 if n == "x" else 2) for n, shape in SHAPES.items()}


def of_latent(absorbed: bool, position: Any) -> Any:
    spec = Attention(heads=H, causal=True, latent=Latent(absorbed=absorbed), position=position)
    return spec.trace(**{n: kind("exact").lift(a) for n, a in LATENT.items()})


def test_a_latent_is_turned_in_its_part_with_positions() -> None:
    """Made of the parts by hand; and the same with matrices absorbed, to the last digit."""
    asked = Rotary(triples=TRIPLES)
    found, exact = of_latent(False, asked), kind("exact")
    cos, sin = functional.pythagorean_tables(3, TRIPLES, exact.lift(0))
    x = {n: exact.lift(a) for n, a in LATENT.items()}
    c, k_r = x["x"] @ x["w_dkv"], functional.rotate(x["x"] @ x["w_kr"], cos, sin)
    for h in range(H):
        q = x["x"] @ x["w_q"][:, 7 * h : 7 * h + 7]
        q = np.concatenate([q[:, :3], functional.rotate(q[:, 3:], cos, sin)], axis=-1)
        k = np.concatenate([c @ x["w_uk"][:, 3 * h : 3 * h + 3], k_r], axis=-1)
        one = Attention(causal=True)(q, k, c @ x["w_uv"][:, 2 * h : 2 * h + 2])
        assert (found["output"][:, 2 * h : 2 * h + 2] == one).all()
    assert (of_latent(True, asked)["output"] == found["output"]).all()
    assert not (of_latent(True, None)["output"] == found["output"]).all()


# -- documents ---------------------------------------------------------------------------------------------------------
def said(spec: Attention) -> str:
    names = ("q", "k", "v")
    document = spec.document(names)
    return document.text() + document.latex()


@pytest.mark.deep
def test_documents_say_what_the_positions_are() -> None:
    assert "10000" in said(Attention(position=Rotary()))
    assert "0 for 0.5 times or less, even in the number of turns" in said(Attention(position=TRUE["yarn, as written"]))
    for asked in TRUE.values():
        assert said(Attention(position=asked))
    assert "3/5" in said(Attention(position=Rotary(triples=((4, 3, 5),))))
    assert "e_h = 4, 8" in said(Attention(heads=2, causal=True, position=Alibi()))
    for definition in POSITIONS.values():
        assert "position" in definition.spec.document(("q", "k", "v")).parameters
        assert said(definition.spec)


YARN_REFUSED = YarnScaling(factor=4, length=12, slow=0.5, fast=2, ramp="turns")


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
    q, k, v = (kinds.Indexed.letters(n, "n", "d") for n in "qkv")
    with pytest.raises(InputError, match="frequencies of d columns: a number of columns is needed; hint: give cos"):
        Attention(position=Rotary())(q, k, v)
    with pytest.raises(Refused, match="indexed lacks"):
        Attention(position=Shaw(most=1, values=False))(q, k, v, a_k=kinds.Indexed.letters("a", 3, "d"))


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
    (lambda: Rotary(given="tables", scaling=YARN_REFUSED), "given tables are not scaled"),
    (lambda: Rotary(given="tables", width=2), "given tables are as wide as they are"),
    (lambda: Rotary(triples=TRIPLES, scaling=YARN_REFUSED), "angles of triples have no frequencies to scale"),
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
