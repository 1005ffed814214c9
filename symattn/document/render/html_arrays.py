"""Arrays on a page: matrices with a name for each cell, and weights as a heat map with arrows."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from math import hypot
from typing import Any

from symattn.document import characters
from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.render import common
from symattn.document.render.mathml import fence, mathml, show
from symattn.document.text import text as plain

# pixels of a line for the weight 1; thinner lines than ``_FAINT`` are dotted
_THICK = 14.0
_FAINT = 0.8
_DARK = 0.6  # numbers of larger weights have the colour of the paper
_SUM = '<th scope="col" class="sum">sum</th>'
_LEFT, _RIGHT, _TALL = 44.0, 186.0, 62.0  # where arrows start and end; height of a key


Cells = list[list[str]]


def cells_of(origin: md.Origin, values: md.Values) -> Cells:
    """Return the attributes of each cell: its name in the page, its letter, its exact value and its decimal."""
    places = as_rows_of(origin.places, values.exact)
    letters = as_rows_of(origin.letters, values.exact)
    rows = zip(places, letters, strict=True)
    entries = zip(common.as_rows(values.exact), common.as_rows(values.decimal), strict=True)
    return [
        [cell(origin.array, *four) for four in zip(*pair, *values_of_row, strict=True)]
        for pair, values_of_row in zip(rows, entries, strict=True)
    ]


def attributes_of(values: md.Values) -> str:
    """Return the attributes of an array: its name in the page, its letter and colour, and the rule for its entries."""
    if values.origin is None:
        return ""
    letter = values.origin.symbol
    attributes = {
        "array": values.origin.array,
        "of": " ".join(values.origin.rule),
        "symbol": plain(letter),
    }
    attributes |= {"role": letter.role} if isinstance(letter, nt.Name) and letter.role else {}
    return "".join(f' data-{key}="{escape(text, quote=True)}"' for key, text in attributes.items())


def as_rows_of(nested: Any, like: object) -> list[list[Any]]:
    """Return nested places or letters as rows, if the array ``like`` is nested like them."""
    levels = common.depth(like)
    return (
        [[nested]]
        if levels == 0
        else [list(nested)]
        if levels == 1
        else [list(row) for row in nested]
    )


def cell(
    array: str, place: tuple[int, ...], letter: nt.Node, exact: object, decimal: object
) -> str:
    """Return the attributes of one cell."""
    value, digits = (plain(common.entry(x)) for x in (exact, decimal))
    name_in_page = "-".join((array, *map(str, place)))
    attributes = {"c": name_in_page, "n": plain(letter), "t": value}
    attributes |= {"d": digits} if digits != value else {}
    return "".join(f' data-{key}="{escape(text, quote=True)}"' for key, text in attributes.items())


def array_of(
    symbol: nt.Node, sign: str, array: object, factors: Iterable[md.Values], cells: Cells | None
) -> str:
    """Return the formula symbol = factors = entries, with the entries of a matrix in a grid."""
    inner = _write_mathml_matrix(array, cells)
    # Without a sign the matrix stands beside its letter.
    if sign:
        parts = [
            _write_mathml_matrix(f.exact, cells_of(f.origin, f) if f.origin else None)
            for f in factors
        ]
        inner = "".join(
            f"<mo>{s}</mo>{p}"
            for s, p in ((sign, "".join(parts)), ("=" if parts else sign, inner))
            if p
        )
    else:
        inner = f'<mspace width=".6em"/>{inner}'
    named = symbol.first if isinstance(symbol, nt.Relation) else symbol
    result = escape(
        f"{plain(named)}, {' by '.join(map(str, _shape_of_nested_tuples(array)))}", quote=True
    )
    return (
        f'<math display="block" alttext="{result}"><mrow>{show(symbol, False)}{inner}</mrow></math>'
    )


def _shape_of_nested_tuples(array: object) -> tuple[int, ...]:
    return (
        (len(array), *_shape_of_nested_tuples(array[0]))
        if isinstance(array, (tuple, list)) and array
        else ()
    )


def _write_mathml_matrix(array: object, cells: Cells | None) -> str:
    """Return a number, or a vector or matrix in square brackets."""
    rows = [[show(common.entry(x), False) for x in row] for row in common.as_rows(array)]
    if common.depth(array) == 0:
        return rows[0][0]
    named = cells or [[""] * len(row) for row in rows]
    inner = "".join(
        f"<mtr>{''.join(f'<mtd{name}>{x}</mtd>' for x, name in zip(row, names, strict=True))}</mtr>"
        for row, names in zip(rows, named, strict=True)
    )
    return fence("square", f'<mtable displaystyle="true">{inner}</mtable>')


# -- weights ---------------------------------------------------------------------------------------------------------
def heat(block: md.Heat) -> str:
    """Return the heat map, with the exact weight above its decimal in each cell, and the pictures of arrows."""
    keys = "".join(f'<th scope="col">{_write_inline_letter(k)}</th>' for k in block.columns)
    assert block.origin is not None
    origins = block.origin.places, block.origin.letters
    rows = zip(block.rows, block.exact, block.decimal, *origins, block.sums, strict=True)
    body = "".join(_write_heat_map_row(*row, array=block.name) for row in rows)
    caption = "Weights: how much of each key a query takes"
    table = f"<caption>{caption}</caption><thead><tr><td></td>{keys}{_SUM}</tr></thead><tbody>{body}</tbody>"
    pictures = "".join(
        map(_draw_arrows_of_query, block.rows, [block.columns] * len(block.rows), block.decimal)
    )
    figure = (
        f'<figure class="wide"{attributes_of(block)}><table class="heat">{table}</table></figure>'
    )
    return f'{figure}<figure class="arrows">{pictures}</figure>'


def _write_heat_map_row(
    query: nt.Node,
    exact: Any,
    decimal: Any,
    places: Any,
    letters: Any,
    total: nt.Node,
    *,
    array: str,
) -> str:
    result = ""
    for value, digits, place, letter in zip(exact, decimal, places, letters, strict=True):
        weight = number(digits)
        colour = (
            f"background:color-mix(in oklab,var(--sa-weight) {100 * weight:.4g}%,var(--sa-tint))"
        )
        # Dark cells have light digits.
        over = ' class="over"' if weight > _DARK else ""
        # A decimal that is the exact value is not repeated.
        small = f"<small>{decimal_of(digits)}</small>" if plain(value) != str(digits) else ""
        name = cell(array, place, letter, value, digits)
        result += f'<td style="{colour}"{over}{name}>{mathml(value, tall=True)}{small}</td>'
    head, foot = _write_inline_letter(query), _write_inline_letter(total)
    return f'<tr><th scope="row">{head}</th>{result}<th class="sum">{foot}</th></tr>'


def number(digits: str) -> float:
    """Return the weight in ``digits``, between 0 and 1, or 0 if they are not a number."""
    try:
        return min(max(float(digits), 0.0), 1.0)
    except (TypeError, ValueError):
        return 0.0


def decimal_of(digits: str) -> str:
    """Return digits as text of a page: 6.03·10⁻⁶."""
    mantissa, _, power = plain(common.entry(digits)).partition("e")
    raised = ""
    if power:
        raised = "".join(characters.SUPERSCRIPTS[c] for c in str(int(power)))
    return escape(f"{mantissa}·10{raised}" if power else mantissa)


def _write_inline_letter(letter: nt.Node) -> str:
    return mathml(letter, inline=True)


def _draw_arrows_of_query(query: nt.Node, keys: tuple[nt.Node, ...], weights: Any) -> str:
    """Draw one query on the left, its keys on the right."""
    high = _TALL * len(keys)
    middle = _TALL * len(keys) / 2
    result = "".join(
        _draw_arrow_of_weight(middle, _TALL * (j + 0.5), number(weight))
        for j, weight in enumerate(weights)
    )
    for j, (key, weight) in enumerate(zip(keys, weights, strict=True)):
        y = _TALL * (j + 0.5)
        result += (
            _write_svg_letter(194, y + 2, key)
            + f'<text class="small" x="194" y="{y + 20:g}" fill="var(--sa-mute)">'
        )
        result += f"{decimal_of(weight)}</text>"
    shares = ", ".join(
        f"{decimal_of(w)} on {escape(plain(k))}" for k, w in zip(keys, weights, strict=True)
    )
    name = f"{escape(plain(query))} takes {shares}"
    letter = _write_svg_letter(8, middle + 5, query)
    return f'<svg viewBox="0 0 270 {high:g}" role="img" aria-label="{name}">{letter}{result}</svg>'


def _draw_arrow_of_weight(y0: float, y1: float, weight: float) -> str:
    """Draw an arrow as thick as its weight, or dotted if it would be too thin to be seen."""
    wide = _THICK * weight
    long = hypot(_RIGHT - _LEFT, y1 - y0)
    dx = (_RIGHT - _LEFT) / long
    dy = (y1 - y0) / long
    reach = max(7.0, wide * 1.2)
    x = _RIGHT - dx * reach
    y = y1 - dy * reach
    half = max(3.0, wide * 0.9)
    dotted = ' stroke-dasharray="1.5 3"' if wide < _FAINT else ""
    stroke = f'stroke="var(--sa-weight)" stroke-width="{max(wide, _FAINT):.2f}"{dotted}'
    line = f'<path d="M{_LEFT:g} {y0:g}L{x:.1f} {y:.1f}" {stroke}/>'
    # The corners at the base of the head lie on either side of the line.
    first = f"L{x - dy * half:.1f} {y + dx * half:.1f}"
    second = f"L{x + dy * half:.1f} {y - dx * half:.1f}"
    corners = f"M{_RIGHT:g} {y1:g}{first}{second}z"
    return f'{line}<path d="{corners}" fill="var(--sa-weight)"/>'


def _write_svg_letter(x: float, y: float, letter: nt.Node) -> str:
    role = letter.role if isinstance(letter, nt.Name) and letter.role else "ink"
    base, sub = (
        (letter.base, "".join(map(plain, letter.sub)))
        if isinstance(letter, nt.Name)
        else (plain(letter), "")
    )
    small = f'<tspan dy="4" font-size="72%">{escape(sub)}</tspan>' if sub else ""
    return f'<text x="{x:g}" y="{y:g}" fill="var(--sa-{role})" font-style="italic">{escape(base)}{small}</text>'
