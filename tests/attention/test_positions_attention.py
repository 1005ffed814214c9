"""Attention with positions: with true angles in balls and floats, and what is refused."""

from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

from symattn import Attention
from symattn.arrays import kind
from symattn.arrays.ball import precision
from symattn.attention.latent import Latent
from symattn.attention.positions.position_fields import Alibi, Rotary
from symattn.attention.positions.rotary import pythagorean_tables, rotate
from symattn.attention.positions.rotary_fields import (
    LinearScaling,
    LongRopeScaling,
    NTKScaling,
    ProportionalScaling,
    YarnScaling,
)
from symattn.document.errors import Undecided
from symattn.document.render import latex, text
from tests.attention.by_loops import attention
from tests.attention.by_loops_angles import angles
from tests.attention.definitions_positions import POSITIONS, TRIPLES, H, data
from tests.attention.pieces import nested
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
    with precision(200), mpmath.workdps(60):
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
    with precision(200):
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
    cos, sin = pythagorean_tables(3, TRIPLES, exact.lift(0))
    x = {n: exact.lift(a) for n, a in LATENT.items()}
    c, k_r = x["x"] @ x["w_dkv"], rotate(x["x"] @ x["w_kr"], cos, sin)
    for h in range(H):
        q = x["x"] @ x["w_q"][:, 7 * h : 7 * h + 7]
        q = np.concatenate([q[:, :3], rotate(q[:, 3:], cos, sin)], axis=-1)
        k = np.concatenate([c @ x["w_uk"][:, 3 * h : 3 * h + 3], k_r], axis=-1)
        one = Attention(causal=True)(q, k, c @ x["w_uv"][:, 2 * h : 2 * h + 2])
        assert (found["output"][:, 2 * h : 2 * h + 2] == one).all()
    assert (of_latent(True, asked)["output"] == found["output"]).all()
    assert not (of_latent(True, None)["output"] == found["output"]).all()


# -- documents ---------------------------------------------------------------------------------------------------------
def said(spec: Attention) -> str:
    names = ("q", "k", "v")
    return text.render(spec.document(names)) + latex.render(spec.document(names))


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
