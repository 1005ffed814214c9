"""``Rotary`` alone: vectors rotated by angles that grow with their positions, one array or queries and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import number
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary import pairs, rotate
from symattn.bounds.called_target import Inputs, Layout
from symattn.bounds.mistake import Compute, Mistake
from symattn.document import codec, errors
from symattn.verification.definitions.attending import (
    check_layout,
    in_front,
    ordered,
    placed,
    tokens_axis,
)
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.input_source import Array, Random
from symattn.verification.rules import rotating

# Tokens n and pairs of columns f of each case.
_SIZES = ((3, 2), (5, 3), (1, 1), (4, 4), (9, 2), (2, 8), (17, 1), (2, 16), (3, 32), (65, 2))


def subjects(spec: Rotary, layout: Layout) -> Iterator[Definition]:
    """Yield definitions of two arrays or one; with positions, tables of cosines and sines, or neither.

    Tables are (n, r/2), or (n, r) with every angle twice; positions are (n,), or (b, n), and with sections, a row for
    each, (s, n), or (s, b, n).
    """
    if spec.triples is not None:
        raise errors.InputError(
            "Rotary: verify takes frequencies, not triples; hint: leave triples out"
        )
    check_layout("Rotary", layout)
    for names in (("q", "k"), ("x",)):
        for wide in (False, True):
            for batched in (False, True):
                # Positions by item need an axis of items.
                if not batched or layout[0] == "b":
                    yield _define_rotary_vectors(spec, layout, names, wide, batched)


def _define_rotary_vectors(
    spec: Rotary, layout: Layout, names: tuple[str, ...], wide: bool, batched: bool
) -> Definition:
    columns = "d" if spec.width else "2*f" if spec.layout == "half" else "f*2"
    shape = placed(layout, "n", columns)
    table = f"{'b ' * batched}n {'r' if wide else 't'}"
    run = partial(_rotate_named_arrays, spec, layout, names)
    words = {"x": "t vec hidden_states input xq", "q": "query xq queries", "k": "key xk keys"}
    sizes = []
    sections = {"s": len(spec.sections)} if spec.sections else {}
    # Frequencies that are scaled need a least number of columns.
    least = spec.least_width // 2
    for i, (n, f) in enumerate(size for size in _SIZES if size[1] >= least or spec.width):
        width = spec.width or 2 * f
        # Columns beyond the width are not rotated: some cases have these.
        extra = {"d": width + (0, 2, 5, 1)[i % 4]} if spec.width else {"f": f}
        sizes.append(
            {**in_front(layout, i), "n": n, **extra, "t": width // 2, "r": width, **sections}
        )
    return Definition(
        title=codec.called(spec),
        step="position",
        inputs=(
            *(Input(n, shape, words[n]) for n in names),
            Input(
                "positions",
                f"{'s ' * bool(sections)}{'b ' * batched}n",
                _POSITIONS,
                _draw_positions_of_sections if sections else _draw_increasing_positions,
                needed=False,
            ),
            Input(
                "cos",
                table,
                "cos_table cosine cosines cos_cached c",
                needed=False,
                made=partial(_make_rotary_table_input, spec, layout, names, wide, batched, 0),
            ),
            Input(
                "sin",
                table,
                "sin_table sine sines sin_cached s",
                needed=False,
                made=partial(_make_rotary_table_input, spec, layout, names, wide, batched, 1),
            ),
        ),
        outputs=("y",) if len(names) == 1 else ("q", "k"),
        ways=tuple(partial(run, wide, tables) for tables in WAYS),
        mistakes=tuple(_yield_rotary_mistakes(spec, run, names, wide)),
        shapes=tuple(sizes),
        settings={
            "base": float(spec.base),
            "dim": lambda arrays: spec.width or arrays[names[0]].shape[-1],
            "head_dim": lambda arrays: arrays[names[0]].shape[-1],
            "interleaved": spec.layout == "interleaved",
            "length": lambda arrays: arrays[names[0]].shape[tokens_axis(layout)],
            "start": spec.start,
        },
        kept=frozenset("dtrs") if spec.width else frozenset(),
        means={"f": ("d_k", 2)},
        admits=lambda inputs, sizes: (
            sizes.get("f", least) >= least and ("cos" not in inputs or np.size(inputs["cos"]) > 0)
        ),
    )


_POSITIONS = "position pos position_ids positions_ids offsets input_pos t p idx"


def _draw_increasing_positions(shape: tuple[int, ...], rng: Random) -> Array:
    """Draw increasing whole numbers, some of them large."""
    start = rng.choice([0, 1, 7, 300, 2000])
    steps = rng.integers(1, 4, shape[-1])
    return np.broadcast_to(start + np.cumsum(steps), shape).copy()


def _draw_positions_of_sections(shape: tuple[int, ...], rng: Random) -> Array:
    """Draw whole numbers for each row: text with equal rows up to a token, then patches of an image."""
    text = _draw_increasing_positions(shape, rng)
    patches = rng.integers(0, 5, shape)
    image = np.arange(shape[-1]) >= rng.integers(0, 2)
    return np.asarray(np.where(image, text[..., :1] + patches, text))


def _make_rotary_table_input(
    spec: Rotary,
    layout: Layout,
    names: tuple[str, ...],
    wide: bool,
    batched: bool,
    which: int,
    inputs: Inputs,
) -> Array:
    """Return the table for the given positions, or for those from ``start`` on."""
    x: Array = np.zeros(np.shape(inputs[names[0]]))
    result = rotating.tables_of(
        spec, _choose_rotary_positions(spec, layout, x, inputs.get("positions")), x
    )[which]
    # Each angle twice: halves side by side, or neighbours.
    if wide:
        result = (
            np.concatenate([result, result], -1)
            if spec.layout == "half"
            else np.repeat(result, 2, axis=-1)
        )
    return (
        np.broadcast_to(result, (x.shape[0], *result.shape))
        if batched and result.ndim == 2
        else result
    )


def _choose_rotary_positions(spec: Rotary, layout: Layout, x: Any, positions: Any) -> Any:
    # a kind that looks tables up needs whole numbers
    xp = np if hasattr(type(x), "tables") else namespace_of(x)
    if positions is None:
        positions = spec.start + xp.arange(int(x.shape[tokens_axis(layout)]))
        # Without positions there is text alone, whose rows are equal.
        return xp.stack([positions] * len(spec.sections)) if spec.sections else positions
    # Rows of sections stand before the axis of items.
    return np.moveaxis(positions, 0, -2) if spec.sections and np.ndim(positions) > 2 else positions


def _make_exponential_tables(sign: int, spec: Rotary, positions: Any, x: Any) -> rotating.Tables:
    """Return the tables with θ^{−2l/r} as e^{−(2l/r) log θ}, or as 1/e^{(2l/r) log θ}."""
    xp = namespace_of(x)
    r = spec.width or int(x.shape[-1])
    exponents = xp.stack(
        [xp.asarray(sign * 2 * pair, dtype=x.dtype) / r for pair in range(pairs(r))]
    )
    powers = xp.exp(exponents * xp.log(number(spec.base, x)))
    return rotating.tables_of(spec, positions, x, powers if sign < 0 else 1 / powers)


#: Equal ways of computing cosines and sines.
WAYS: tuple[rotating.Right, ...] = (
    rotating.tables_of,
    partial(_make_exponential_tables, -1),
    partial(_make_exponential_tables, 1),
)


def _rotate_named_arrays(
    spec: Rotary,
    layout: Layout,
    names: tuple[str, ...],
    wide: bool,
    tables: Any,
    /,
    turn: Callable[..., Any] = rotate,
    **keywords: Any,
) -> Any:
    """Rotate every array, by given tables or computed ones."""
    result = []
    for name in names:
        x = keywords[name]
        if "cos" in keywords:
            cos, sin = keywords["cos"], keywords["sin"]
            if wide:  # each angle stands twice in a row
                once = (
                    slice(int(cos.shape[-1]) // 2)
                    if spec.layout == "half"
                    else slice(None, None, 2)
                )
                cos, sin = cos[..., once], sin[..., once]
        else:
            cos, sin = tables(
                spec, _choose_rotary_positions(spec, layout, x, keywords.get("positions")), x
            )
        x = ordered(layout, x)
        # Tables by item get an axis for heads.
        if cos.ndim > 2 and x.ndim > cos.ndim:
            cos = cos[..., None, :, :]
            sin = sin[..., None, :, :]
        y = turn(x, cos, sin, spec.layout)
        result.append(ordered(layout, y, back=True))
    return tuple(result)


def _yield_rotary_mistakes(
    spec: Rotary, run: Compute, names: tuple[str, ...], wide: bool
) -> Iterator[Mistake]:
    for cause, turn in rotating.of_pairs(spec):
        yield Mistake("position", cause, partial(run, wide, rotating.tables_of, turn=turn))
        # Code may rotate one of them by another convention than the other.
        if len(names) > 1:
            for name, words in (("q", "queries"), ("k", "keys")):
                result = f"in the {words} alone: {cause}"
                yield Mistake("position", result, partial(_in_one, run, wide, name, turn))
    for cause, change in rotating.of_tables(spec):
        yield Mistake("position", cause, partial(_other_tables, run, wide, change))
    for cause, turn, change in rotating.of_doubled_sections(spec):
        yield Mistake("position", cause, partial(_other_tables, run, wide, change, turn=turn))


def _in_one(run: Compute, wide: bool, name: str, turn: Callable[..., Any], **keywords: Any) -> Any:
    """Rotate queries or keys wrongly, and the others correctly."""
    result = dict(
        zip(
            (n for n in keywords if n in "qk"),
            run(wide, rotating.tables_of, **keywords),
            strict=True,
        )
    )
    wrong = dict(zip(result, run(wide, rotating.tables_of, turn=turn, **keywords), strict=True))
    return tuple(wrong[n] if n == name else y for n, y in result.items())


def _other_tables(
    run: Compute, wide: bool, change: Any, turn: Callable[..., Any] = rotate, **keywords: Any
) -> Any:
    """Rotate by other tables. Raises ``KeyError`` if tables are given, which rules out this mistake."""
    if "cos" in keywords:
        raise KeyError("cos")

    def make_tables(spec: Rotary, positions: Any, x: Any) -> rotating.Tables:
        result: rotating.Tables = change(spec, positions, x, rotating.tables_of)
        return result

    return run(wide, make_tables, turn=turn, **keywords)
