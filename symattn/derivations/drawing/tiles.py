"""``tiles``: keys come in tiles, and the sum so far shrinks by e^(m − m′) when the maximum grows from m to m′."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from os import PathLike
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.exact import Exact
from symattn.arrays.namespace import namespace_of
from symattn.arrays.shown import formula
from symattn.attention.streaming.states import SoftmaxState, finish, merge, tile_state
from symattn.derivations.drawing import digits, words
from symattn.derivations.drawing.weights import walked
from symattn.derivations.enclosed import Enclosed
from symattn.derivations.exactly import exact, same
from symattn.derivations.implemented import SCORES, VALUES
from symattn.document.drawing.scene import SMALL, Box, Label, Scene, plain, small, wrapped
from symattn.document.drawing.svg import SHADE
from symattn.document.errors import InputError
from symattn.document.keywords import is_integer_within
from symattn.proof.relations.comparing import FalseStep

_MOST = 8  # tiles, one below the other
# Edges of the words, width of the longest bar, height of a bar, and room for the words below a bar.
_LEFT, _RIGHT, _WIDE, _HIGH, _TEXT = 12.0, 474.0, 440.0, 24.0, 46.0


def scene(
    source: str | PathLike[str] | None = None, query: int = 1, tile: int = 1, **fields: object
) -> Scene:
    """Draw the keys of one query, ``tile`` of them at a time; by default those of ``derive online-softmax``."""
    scores, values, called = _load_scores_and_values(source, query, fields)
    n = int(scores.shape[-1])
    least = -(-n // _MOST)
    if not is_integer_within(tile, least):
        raise InputError(
            f"tile must be an integer of at least {least}, for at most {_MOST} tiles, got {tile!r}"
        )
    bounds = [*range(0, n, tile), n]
    edges = pairwise(bounds)
    parts = [(lo, hi, tile_state(scores[:, lo:hi], values[lo:hi, :])) for lo, hi in edges]
    states = list(accumulate((state for _, _, state in parts), merge))
    # The picture says that tiles give the output of all keys, so the outputs are compared exactly.
    if not same(finish(states[-1]), finish(tile_state(scores, values))):
        raise FalseStep("tiles merged give another output than all keys at once")
    drawn = Scene(f"Softmax of {n} keys in {len(parts)} tiles{called}")
    # All bars have one unit, or the shrinking between two bars would not be true to scale.
    totals = (float(_extract_state_number(s.normaliser).to_float()) for s in states)
    unit = _WIDE / max(totals)
    y, result, previous = 16.0, [], None
    for (lo, hi, _), state in zip(parts, states, strict=True):
        y = _draw_shrinking_of_sums(drawn, previous, state, unit, y)
        said = _draw_state_of_tile(drawn, scores, (lo, hi), state, unit, y)
        keys_so_far = f"key {hi}" if hi == lo + 1 else f"keys {lo + 1} to {hi}"
        result.append(f"After {keys_so_far}: {said}")
        y, previous = y + _HIGH + _TEXT, state
    y = _draw_bar_of_weights(drawn, scores, y)
    note = (
        "Each piece is e{^s−m} of a key, as long as the number; filled: keys of the tile that has just come. "
        "{m} is the largest score so far, ℓ the sum, {o} what an output would be now."
    )
    drawn.description = plain(" ".join((*result, "The last output is that of all keys at once.")))
    drawn.height = wrapped(drawn, y + 12, note) - 6
    return drawn


def _load_scores_and_values(
    source: object, query: int, fields: dict[str, Any]
) -> tuple[Any, Any, str]:
    """Return exact scores (1, n_k) and values (n_k, d_v), and the name of their example. Raises InputError."""
    if source is None:
        if fields or query != 1:
            raise InputError(
                "fields and queries are those of an example; hint: name one, symattn draw tiles cross"
            )
        return exact(SCORES), exact(VALUES), ""
    walk = walked(source, fields)
    scores = walk.arrays[walk.pipeline["weights"].of[0]]
    values = walk.arrays[walk.mixing.of[1]]
    if scores.ndim != 2 or not walk.sheet.attention.plain_softmax:
        raise InputError(
            f"{walk.sheet.name}: tiles are drawn of one head with softmax; hint: another example"
        )
    if not is_integer_within(query, 1, len(scores)):
        raise InputError(f"query is {query!r}; {walk.sheet.name} has 1 to {len(scores)}")
    row = scores[query - 1 : query].tolist()
    entries = (*row[0], *values.flat)
    if any(isinstance(x, Enclosed) for x in entries):
        raise InputError(
            f"{walk.sheet.name}: of some scores only balls are known; hint: another example"
        )
    return Exact.lift(row), Exact.lift(values.tolist()), f": query {query} of {walk.sheet.name}"


def _extract_state_number(x: Any) -> Any:
    return x[0, 0].entries.item()


def _make_exact_identity(n: int) -> Exact:
    rows = [[int(i == j) for j in range(n)] for i in range(n)]
    return exact(rows)


def _draw_shrinking_of_sums(
    drawn: Scene, before: SoftmaxState | None, state: SoftmaxState, unit: float, y: float
) -> float:
    """Draw how the bar above shrinks as the maximum grows; return where the next bar begins."""
    if before is None or _extract_state_number(before.normaliser).is_zero():
        return y
    xp = namespace_of(state.maximum)
    factor = _extract_state_number(xp.exp(before.maximum - state.maximum))
    start = unit * float(_extract_state_number(before.normaliser).to_float())
    end = start * float(factor.to_float())
    label = Label(
        _LEFT + start + 8, y - 7, f"sums so far × {words(formula(factor))}", SMALL, "mute"
    )
    # Without room beside the dashed line, the label takes the place of the line.
    if factor != 1 and label.box[2] > _RIGHT:
        drawn.add(replace(label, x=_RIGHT, anchor="end"))
        return y
    top = (_LEFT + start, y - 19)
    drawn.line(top, (_LEFT + end, y - 3), role="mute", width=1, dash="2 3")
    drawn.add(*([label] if factor != 1 else []))
    return y


def _draw_state_of_tile(
    drawn: Scene, scores: Array, tile: tuple[int, int], state: SoftmaxState, unit: float, y: float
) -> str:
    """Draw the pieces of the keys so far, and m, ℓ and the output in words; return these words."""
    lo, hi = tile
    # With the identity as values, the accumulator has e^(s_j − m) of each key.
    pieces = tile_state(
        scores[:, :hi], _make_exact_identity(hi), state.maximum
    ).accumulated.tolist()[0]  # e^(s_j − m)
    widths = [unit * float(x.to_float()) for x in pieces]
    _draw_bar_of_pieces(drawn, widths, lo, y)
    norm, result = (
        _extract_state_number(state.normaliser),
        [f"{{m}} = {words(formula(_extract_state_number(state.maximum)))}"],
    )
    result.append(_write_exact_and_digits("ℓ", norm))
    # Until a key with a finite score has come, ℓ is 0 and no output is defined.
    if not norm.is_zero():
        outputs = finish(state).entries[0]
        shown = [digits(x) for x in outputs]
        pairs_shown = zip(outputs, shown, strict=True)
        sign = "=" if all(words(formula(x)) == d for x, d in pairs_shown) else "≈"
        result.append(
            _write_exact_and_digits("{o}", outputs[0])
            if len(outputs) == 1
            else f"{{o}} {sign} ({', '.join(shown)})"
        )
    short = ", ".join((*result[:1], f"ℓ ≈ {digits(norm)}", *result[2:]))
    # Where the exact ℓ makes the line too wide, ℓ is written in digits alone.
    for said in (", ".join(result), short):
        if Label(0, 0, said, SMALL).width < _RIGHT - _LEFT:
            break
    small(drawn, _LEFT, y + _HIGH + 17, said, "ink")
    return ", ".join(result)


def _write_exact_and_digits(letter: str, x: object) -> str:
    """Return the exact number, with its digits unless they are the same."""
    exactly = words(formula(x))
    rounded = "" if exactly == digits(x) else f" ≈ {digits(x)}"
    return f"{letter} = {exactly}" + rounded


def _draw_bar_of_pieces(drawn: Scene, widths: Sequence[float], filled: int, y: float) -> None:
    """Draw pieces side by side, in full colour from the number ``filled`` on, each named if it has room."""
    x = _LEFT
    for j, width in enumerate(widths):
        if width > 0:
            share = SHADE if j >= filled else SHADE / 3
            note = f"key {j + 1}"
            drawn.add(
                Box(x, y, width, _HIGH, "paper"),
                Box(x, y, width, _HIGH, "weight", "paper", share, note),
            )
            # A narrow piece has room for its number alone, or for no name.
            for called in (f"key {j + 1}", str(j + 1)):
                if Label(0, 0, called, SMALL).width < width - 4:
                    small(drawn, x + width / 2, y + 17, called, "ink", "middle")
                    break
        x += width


def _draw_bar_of_weights(drawn: Scene, scores: Array, y: float) -> float:
    """Draw the last bar again, divided by ℓ: the weights; return its foot."""
    small(drawn, _LEFT, y + 8, "divided by ℓ: the weights", "ink")
    # With the identity as values, the output of attention is the row of weights.
    identity = _make_exact_identity(int(scores.shape[-1]))
    parts = finish(tile_state(scores, identity)).entries[0]
    widths = [_WIDE * float(x.to_float()) for x in parts]
    _draw_bar_of_pieces(drawn, widths, 0, y + 20)
    result = ", ".join(digits(x) for x in parts) + ": unrounded, they add up to 1"
    small(
        drawn,
        _LEFT,
        y + _HIGH + 37,
        result if Label(0, 0, result, SMALL).width < 460 else "They add up to 1.",
    )
    return y + _HIGH + 48
