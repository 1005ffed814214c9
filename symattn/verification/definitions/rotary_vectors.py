"""``Rotary`` alone: vectors rotated by angles that grow with their positions, one array or queries and keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention.constants import number
from symattn.attention.flow import Step
from symattn.attention.positions import rotary_steps
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary import pairs, rotate
from symattn.attention.stated_flow import StatedFlow
from symattn.bounds.called_target import Inputs, Layout
from symattn.bounds.mistake import Compute
from symattn.document import codec, errors
from symattn.verification.definitions.attending import (
    check_layout,
    in_front,
    ordered,
    placed,
    tokens_axis,
)
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.stated_definition import define_in_steps
from symattn.verification.input_source import Array, Random
from symattn.verification.rules import rotating

# Tokens n and pairs of columns f of each case.
_SIZES = ((3, 2), (5, 3), (1, 1), (4, 4), (9, 2), (2, 8), (17, 1), (2, 16), (3, 32), (65, 2))


@dataclass(frozen=True, kw_only=True, repr=False)
class RotatedVectors(StatedFlow):
    """Vectors (…, n, d), rotated by a ``Rotary``: queries and keys, or one array x.

    With tables of cosines and sines as inputs, (…, n, f), the rotation is the only step.
    """

    rotary: Rotary = field(default_factory=Rotary)
    of: tuple[str, ...] = ("q", "k")

    letters: ClassVar[Mapping[str, str]] = {
        "x": "X",
        "q": "Q",
        "k": "K",
        "positions": "t",
        "cos": "C'",
        "sin": "S'",
        "places": "p",
        "frequencies": "ω",
        "angles": "Θ",
        "cosines": "C",
        "sines": "S",
        "x_rotated": "X'",
        "q_rotated": "Q'",
        "k_rotated": "K'",
    }
    nouns: ClassVar[Mapping[str, str]] = {
        "q": "the queries",
        "k": "the keys",
        "places": "the positions",
    }
    axes: ClassVar[Mapping[str, str]] = {"frequencies": "f", "angles": "n f"}

    @property
    def returned(self) -> tuple[str, ...]:
        """See ``StatedFlow``."""
        return tuple(f"{name}_rotated" for name in self.of)

    @property
    def pipeline_of_all(self) -> tuple[Step, ...]:
        """The steps without tables as inputs: then there are more than with them."""
        return self.pipeline([*self.of, "positions"])

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``: positions, frequencies, angles, their cosines and sines, and each array rotated."""
        rotary, first = self.rotary, self.of[0]
        has_tables = "cos" in names
        if not has_tables:
            yield from self._state_table_steps(first, "positions" in names)
        tables = ("cos", "sin") if has_tables else ("cosines", "sines")
        run = partial(_rotate_vectors, rotary.layout)
        for name in self.of:
            of = (name, *tables)
            written = "rotate(@0, @1, @2)"
            yield self.state_step(
                f"{name}_rotated", run, written, of, role="rotation", blames="position"
            )

    def _state_table_steps(self, like: str, has_positions: bool) -> Iterator[Step]:
        state, rotary = partial(self.state_step, blames="position"), self.rotary
        written = "@0" if has_positions else "positions(@1)"
        of: tuple[str, ...] = ("positions", like)
        yield state(
            "places", partial(rotary_steps.list_positions, rotary), written, of, role="positions"
        )
        powers = f"{{{rotary.base}}}^{{−2 ℓ/columns(@1)}}"
        written = f"scaled({powers})" if rotary.scaling else powers
        run = partial(rotary_steps.find_frequencies, rotary)
        yield state("frequencies", run, written, ("places", like), role="frequencies")
        run, of = partial(rotary_steps.find_angles, rotary), ("places", "frequencies")
        yield state("angles", run, "@0 @1", of, role="angles")
        # A scaling may multiply both tables by a number m.
        times = "m " if rotary.scaling and rotary.scaling.multiplier else ""
        for name, function in rotating.FUNCTIONS.items():
            run = partial(rotary_steps.make_rotary_table, rotary, function)
            yield state(name, run, f"{times}{function}(@0)", ("angles", like), role=name)


def _rotate_vectors(layout: str, x: Any, cos: Any, sin: Any) -> Any:
    return rotate(x, cos, sin, layout)


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
    # Frequencies that are scaled need a least number of columns.
    least = spec.least_width // 2
    flow = RotatedVectors(rotary=spec, of=names)
    return define_in_steps(
        flow,
        "position",
        title=codec.called(spec),
        inputs=tuple(_yield_rotary_inputs(spec, layout, names, wide, batched)),
        outputs=("y",) if len(names) == 1 else ("q", "k"),
        ways=tuple(_yield_rotary_ways(flow)),
        laid=partial(_lay_vectors, spec, layout, names, wide),
        shapes=tuple(_yield_rotary_sizes(spec, layout)),
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


def _yield_rotary_inputs(
    spec: Rotary, layout: Layout, names: tuple[str, ...], wide: bool, batched: bool
) -> Iterator[Input]:
    """Yield the vectors, then what calls may pass beside them: positions, or tables of cosines and sines."""
    columns = "d" if spec.width else "2*f" if spec.layout == "half" else "f*2"
    words = {"x": "t vec hidden_states input xq", "q": "query xq queries", "k": "key xk keys"}
    for name in names:
        yield Input(name, placed(layout, "n", columns), words[name])
    items, sections = "b " * batched, "s " * bool(spec.sections)
    draw = _draw_positions_of_sections if spec.sections else _draw_increasing_positions
    yield Input("positions", f"{sections}{items}n", _POSITIONS, draw, needed=False)
    tables = {
        "cos": "cos_table cosine cosines cos_cached c",
        "sin": "sin_table sine sines sin_cached s",
    }
    shape = f"{items}n {'r' if wide else 't'}"
    for which, (name, also) in enumerate(tables.items()):
        make = partial(_make_rotary_table_input, spec, layout, names, wide, batched, which)
        yield Input(name, shape, also, needed=False, made=make)


def _yield_rotary_sizes(spec: Rotary, layout: Layout) -> Iterator[dict[str, int]]:
    """Yield the sizes of each case, by letter."""
    sections = {"s": len(spec.sections)} if spec.sections else {}
    least = spec.least_width // 2
    for i, (n, f) in enumerate(size for size in _SIZES if size[1] >= least or spec.width):
        width = spec.width or 2 * f
        # Columns beyond the width are not rotated: some cases have these.
        extra = {"d": width + (0, 2, 5, 1)[i % 4]} if spec.width else {"f": f}
        yield {**in_front(layout, i), "n": n, **extra, "t": width // 2, "r": width, **sections}


def _lay_vectors(
    spec: Rotary, layout: Layout, names: tuple[str, ...], wide: bool, run: Compute
) -> Compute:
    """Return a function of arrays in a layout; tables may have every angle twice."""

    def laid(**inputs: Any) -> Any:
        arrays = {name: ordered(layout, inputs[name]) for name in names}
        dimensions = arrays[names[0]].ndim
        if inputs.get("positions") is not None:
            positions = _place_sections_before_tokens(spec, inputs["positions"])
            # Positions (…, n), of as many axes as their tables have but one; sections are one more.
            of_items = np.ndim(positions) - bool(spec.sections) + 1
            several = 2 < of_items < dimensions
            arrays["positions"] = _insert_axis_of_heads(spec, positions) if several else positions
        for name in {"cos", "sin"} & inputs.keys():
            table = _take_each_angle_once(spec, inputs[name]) if wide else inputs[name]
            arrays[name] = table[..., None, :, :] if 2 < table.ndim < dimensions else table
        outputs = run(**arrays)
        every = outputs if isinstance(outputs, tuple) else (outputs,)
        return tuple(ordered(layout, y, back=True) for y in every)

    return laid


def _place_sections_before_tokens(spec: Rotary, positions: Any) -> Any:
    """Return positions of which rows of sections, which stand before the axis of items, stand before the tokens."""
    return np.moveaxis(positions, 0, -2) if spec.sections and np.ndim(positions) > 2 else positions


def _insert_axis_of_heads(spec: Rotary, positions: Any) -> Any:
    return positions[..., None, :, :] if spec.sections else positions[..., None, :]


def _take_each_angle_once(spec: Rotary, table: Any) -> Any:
    once = slice(int(table.shape[-1]) // 2) if spec.layout == "half" else slice(None, None, 2)
    return table[..., once]


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
    x: Array = np.asarray(ordered(layout, np.zeros(np.shape(inputs[names[0]]))))
    positions = inputs.get("positions")
    if positions is not None:
        positions = _place_sections_before_tokens(spec, positions)
    result = rotating.tables_of(spec, rotary_steps.list_positions(spec, positions, x), x)[which]
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


def _yield_rotary_ways(flow: RotatedVectors) -> Iterator[Compute]:
    """Yield a way for each form of the frequencies."""
    yield flow.return_run
    for changes in FORMS_OF_FREQUENCIES[1:]:
        yield rotating.change_stated_tables(flow, changes)


def _raise_by_exponential(sign: int, at: rotating.TableStep) -> Any:
    xp, r, like = namespace_of(at.like), at.width, at.like
    exponents = [xp.asarray(sign * 2 * pair, dtype=like.dtype) / r for pair in range(pairs(r))]
    powers = xp.exp(xp.stack(exponents) * xp.log(number(at.spec.base, like)))
    return at.scale_frequencies(powers if sign < 0 else 1 / powers)


#: Equal ways of computing the frequencies: powers of θ, e^{−(2l/r) log θ}, and 1/e^{(2l/r) log θ}.
FORMS_OF_FREQUENCIES: tuple[rotating.TableChanges, ...] = (
    {},
    {"frequencies": partial(_raise_by_exponential, -1)},
    {"frequencies": partial(_raise_by_exponential, 1)},
)
