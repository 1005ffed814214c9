"""Keys and values from latents: a part of queries or keys left out, exchanged or not rotated, latents as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.attention import projections
from symattn.attention.positions.fields import Rotary
from symattn.attention.spec import Attention
from symattn.bounds import reference, target
from symattn.bounds.at import At, Wrong, several
from symattn.bounds.mistake import Mistake, in_fields


def mistakes(spec: Attention) -> Iterator[Mistake]:
    """Yield mistakes of a specification with a latent, as the matrices stand where they are not absorbed."""
    if spec.latent is None:
        return
    if isinstance(spec.position, Rotary):
        yield from _rotated(spec.position)
    for name, matrix, of in (("c_kv", "w_dkv", "keys and values"), ("c_q", "w_dq", "queries")):
        if spec.latent.norm is not None:
            words = f"the latent of {of} is not normalised"
            yield several("norm", words, {name: partial(_projected, matrix)})
    yield from _parts()
    for roles, words in _MADE.items():
        yield Mistake("project", words, reference.Variant(inputs=partial(_by_others, roles)))


def _rotated(position: Rotary) -> Iterator[Mistake]:
    as_they_are: Wrong = lambda at: at.first * 1  # noqa: E731
    words = "the keys' part with positions is not rotated, that of the queries is"
    yield several("position", words, {"k_r_rotated": as_they_are})
    words = "the queries' part with positions is not rotated, that of the keys is"
    yield several("position", words, {"q_r_rotated": as_they_are})
    half = position.layout == "half"
    words = "neighbouring columns 2l and 2l + 1 are rotated together, not column l with l + r/2"
    words = words if half else "column l is rotated with l + r/2, not with its neighbour"
    yield in_fields("position", words, position=replace(position, layout="interleaved" if half else "half"))


def _projected(matrix: str, at: At) -> Array:
    return projections.project(at.first, at.values[matrix])


def _parts() -> Iterator[Mistake]:
    """Yield mistakes in the parts of queries and keys without positions and with them."""
    nothing: Wrong = lambda at: at.right() * 0  # noqa: E731
    words = "the part with positions is left out: scores are of the parts without alone"
    yield several("score", words, {"q_r": nothing})
    words = "the part without positions is left out: scores are of the parts with positions alone"
    yield several("score", words, {"q_n": nothing})
    words = "the queries' first columns are used as those with positions, not the last"
    yield several("split", words, {"q_r": partial(_columns, True), "q_n": partial(_columns, False)})


def _columns(first: bool, at: At) -> Any:
    """As many columns of the queries as the shared part of the keys has, or the others."""
    width = int(at.values["k_r"].shape[-1])
    return at.first[..., :width] if first else at.first[..., width:]


#: By which matrices keys and values are made of the latent.
_MADE = {
    ("w_uv", "w_uk"): "the matrices that make keys and values of the latent are exchanged",
    ("w_uv", "w_uv"): "keys are made of the latent as values are",
    ("w_uk", "w_uk"): "values are made of the latent as keys are",
}


def _by_others(roles: tuple[str, str], spec: Attention, inputs: target.Inputs) -> target.Inputs:
    return {**inputs, "w_uk": inputs[roles[0]], "w_uv": inputs[roles[1]]}
