"""Checks of positions against the other fields and inputs: contradictory combinations, and sizes that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from symattn.attention.positions import position_fields
from symattn.document.errors import InputError

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


def _is_transformer_xl(spec: Attention) -> bool:
    return isinstance(spec.position, position_fields.TransformerXL)


def _looks_ahead(spec: Attention) -> bool:
    return not spec.causal or spec.prefix is not None


#: Names of sizes for errors about an array that does not have them.
WORDS = {"n_b": "of buckets", "n_d": "of distances", "s": "of rows of positions"}
# Positions with terms q · a by distance, which need dot products of whole queries.
RELATIVE = (position_fields.Shaw, position_fields.TransformerXL, position_fields.Disentangled)

#: Senseless combinations of fields, by reason.
POSITIONS: dict[str, Callable[[Attention], bool]] = {
    "linear biases grow for keys ahead of a query; hint: causal=True without a prefix, or Alibi(two_sided=True)": (
        lambda s: (
            isinstance(s.position, position_fields.Alibi)
            and not s.position.two_sided
            and _looks_ahead(s)
        )
    ),
    "buckets in one direction hold all keys ahead in one; hint: causal=True without a prefix, "
    "or Buckets(bidirectional=True)": (
        lambda s: (
            isinstance(s.position, position_fields.Buckets)
            and not s.position.bidirectional
            and _looks_ahead(s)
        )
    ),
    "with a latent, queries and keys have a part without positions; hint: Rotary, Alibi or Buckets": (
        lambda s: s.latent is not None and isinstance(s.position, RELATIVE)
    ),
    "terms by distance are added to dot products; hint: score='dot'": (
        lambda s: isinstance(s.position, RELATIVE) and s.score != "dot"
    ),
    "tables of distances are as wide as whole queries; hint: truncate=None": (
        lambda s: isinstance(s.position, RELATIVE) and s.truncate is not None
    ),
    "Transformer-XL has its memory before the queries; hint: alignment='bottom-right'": (
        lambda s: _is_transformer_xl(s) and s.alignment == "top-left"
    ),
}


def known_sizes(spec: Attention) -> dict[str, int]:
    """Return the numbers of rows that the position requires of tables: ``n_b`` buckets, ``n_d`` distances."""
    position = spec.position
    if isinstance(position, position_fields.Buckets):
        return {"n_b": position.number}
    if isinstance(position, position_fields.Shaw):
        # Distances −most … most.
        return {"n_d": 2 * position.most + 1}
    return {"n_d": 2 * position.span} if isinstance(position, position_fields.Disentangled) else {}


def least_width(spec: Attention, d_k: int) -> int:
    """Return the smallest number of at least ``d_k`` that positions and truncated scores permit as a width."""
    least = spec.truncate or 1
    if isinstance(spec.position, position_fields.Rotary):
        # Columns are rotated in pairs, so the width is even.
        d_k = max(d_k + d_k % 2, spec.position.least_width)
    return max(d_k, least)


def check_sizes(spec: Attention, bound: Mapping[str, object], names: Collection[str]) -> None:
    """Raise InputError if lengths do not fit the position; ``bound`` has them by letter, and letters are ignored."""
    lengths = {letter: int(length) for letter, length in bound.items() if isinstance(length, int)}
    n_q = lengths.get("n_q")
    # Without other tokens there are as many keys as queries.
    n_k = lengths.get("n_k", n_q)
    if ("cos_q" in names) != ("sin_q" in names):
        raise InputError("cos_q and sin_q belong together; hint: give both, or none")
    if isinstance(spec.position, position_fields.Rotary):
        rotary, letter = spec.position, "d_k" if spec.latent is None else "d_r"
        # Tables that are inputs have f columns, each for a pair.
        width = rotary.width or 2 * (len(rotary.triples) if rotary.triples else lengths.get("f", 0))
        if letter in lengths and width > lengths[letter]:
            raise InputError(
                f"rotary: {width} columns are to be rotated, and queries and keys have {lengths[letter]}"
            )
        # More queries than keys have no places among the keys.
        if n_q and n_k and n_q > n_k and not {"cos_q", "positions_q"} & set(names):
            what = "cos_q and sin_q" if spec.position.given == "tables" else "positions_q"
            where = "beginning" if spec.alignment == "top-left" else "end"
            hint = (
                f"give {what}"
                if spec.position.given
                else "Rotary(given='positions'), and positions_q"
            )
            raise InputError(
                f"rotary: {n_q} queries do not stand at the {where} of {n_k} keys; hint: {hint}"
            )
    if _is_transformer_xl(spec) and n_q and n_k:
        # Tables for queries that look back need no rows for keys ahead.
        rows = (n_k,) * (not _looks_ahead(spec)) + (n_q + n_k - 1,)
        if lengths["n_r"] not in rows:
            raise InputError(
                f"r has {lengths['n_r']} rows; {n_q} queries and {n_k} keys need {' or '.join(map(str, rows))}"
            )
