"""``weights``: a heat map of attention weights, exact fractions in its cells."""

from __future__ import annotations

from os import PathLike
from typing import Any

from symattn.arrays.shown import formula
from symattn.derivations.drawing import digits, words
from symattn.derivations.walks import sheet_of, with_fields
from symattn.derivations.walks.walk_data import Walk
from symattn.document.drawing.scene import SMALL, Box, Label, Scene, plain, small, wrapped
from symattn.document.drawing.svg import SHADE
from symattn.document.errors import InputError
from symattn.document.keywords import is_integer_within
from symattn.document.notation import Over

_MOST = 16  # queries or keys whose numbers can be read in their squares
_LEFT, _GAP = 12.0, 3.0


def walked(source: Any, fields: dict[str, Any] | None = None) -> Walk:
    """Return the walk, with exact arrays, of an example, a file or arrays by name."""
    sheet = sheet_of(source)
    return Walk(with_fields(sheet, fields) if fields else sheet, "float32")


def named(walk: Walk, letter: str, i: int) -> str:
    """Return ``{q_king}`` or ``{q_1}``: a query, key or value by its token, if the sheet names tokens."""
    tokens = walk.sheet.tokens
    letters_of_tokens = letter in "qo" or "y" not in walk.sheet.inputs
    own = tokens and letters_of_tokens and i < len(tokens)
    return f"{{{letter}_{tokens[i] if own else i + 1}}}"


def scene(source: str | PathLike[str] = "cross", head: int = 1, **fields: object) -> Scene:
    """Draw the weights of an example by shade and bar, with the fraction and its digits in each cell."""
    walk = walked(source, fields)
    rows = of_head(walk.arrays["weights"], head).tolist()
    if max(len(rows), len(rows[0])) > _MOST:
        raise InputError(
            f"{walk.sheet.name} has {len(rows)} × {len(rows[0])} weights; a picture has at most {_MOST}"
        )
    drawn = Scene(f"Attention weights of {walk.sheet.name}", _describe_weights_of_queries(rows))
    drawn.label(10, 22, "weights {A}, one row for each query")
    queries = [named(walk, "q", i) for i in range(len(rows))]
    x = _LEFT + max(Label(0, 0, w, SMALL).width for w in queries) + 8
    side = (442 - x) / len(rows[0])
    exact = all(fits(entry, side - _GAP - 6) for row in rows for entry in row)
    height = 66.0 if exact else 34.0
    for j in range(len(rows[0])):
        small(drawn, x + (j + 0.5) * side, 48, named(walk, "k", j), anchor="middle")
    small(drawn, 474, 48, "sum", anchor="end")
    for i, row in enumerate(rows):
        y = 58 + i * height
        small(drawn, _LEFT, y + height / 2 + 3, queries[i])
        for j, entry in enumerate(row):
            _draw_weight_cell(
                drawn,
                entry,
                (x + j * side, y, side - _GAP, height - _GAP),
                exact,
                f"{queries[i]}, key {j + 1}",
            )
        total = sum(row[1:], row[0])
        small(drawn, 474, y + height / 2 + 3, digits(total), anchor="end")
    result = "Shade and bar: the weight." + (
        "" if exact else " Exact fractions do not fit: symattn walk prints them."
    )
    drawn.height = wrapped(drawn, 58 + len(rows) * height + 18, result) - 6
    return drawn


def of_head(array: Any, head: int) -> Any:
    """Return the matrix of one head, counted from 1. Raises InputError if there is no such head."""
    stacked = array.reshape(-1, *array.shape[-2:])
    if not is_integer_within(head, 1, stacked.shape[0]):
        raise InputError(f"head must be an integer from 1 to {stacked.shape[0]}, got {head!r}")
    return stacked[head - 1]


def fits(entry: object, width: float) -> bool:
    """Return whether the fraction and its digits fit the width."""
    result = _show_fraction(entry)
    parts = (*((result,) if isinstance(result, str) else result), digits(entry))
    return all(Label(0, 0, part, SMALL).width <= width for part in parts)


def _show_fraction(x: object) -> tuple[str, str] | str:
    """Return the parts above and below the bar, or the number alone."""
    node = formula(x)
    if isinstance(node, Over):
        return (words(node.numerator), words(node.denominator))
    return words(node)


def _draw_weight_cell(
    drawn: Scene, entry: Any, place: tuple[float, float, float, float], exact: bool, note: str
) -> None:
    x, y, width, height = place
    weight, middle = float(entry.to_float()), x + width / 2
    note = f"{plain(note)}: {plain(digits(entry, 6))}"
    drawn.add(
        Box(x, y, width, height, "tint"),
        Box(x, y, width, height, "weight", share=SHADE * weight, note=note),
    )
    drawn.add(Box(x, y + height - 5, width * weight, 5, "weight"))
    if exact:
        stacked(drawn, middle, y + 24, _show_fraction(entry))
    if Label(0, 0, digits(entry), SMALL).width <= width:
        small(drawn, middle, y + height - 10, digits(entry), "ink", "middle")


def stacked(drawn: Scene, x: float, y: float, parts: tuple[str, str] | str) -> None:
    """Draw a fraction with its bar at the height ``y``."""
    if isinstance(parts, str):
        small(drawn, x, y + 5, parts, "ink", "middle")
        return
    half = max(Label(0, 0, part, SMALL).width for part in parts) / 2
    small(drawn, x, y - 4, parts[0], "ink", "middle")
    drawn.line((x - half, y), (x + half, y), width=1)
    small(drawn, x, y + 14, parts[1], "ink", "middle")


def _describe_weights_of_queries(rows: list[list[Any]]) -> str:
    numbered = enumerate(rows, 1)
    result = "; ".join(
        f"query {i}: " + ", ".join(plain(digits(x)) for x in row) for i, row in numbered
    )
    return f"{len(rows)} queries, {len(rows[0])} keys. Weights, {result}. Every row sums to 1."
