"""A walk as an HTML page: all queries, each array with the origins of its entries, weights as a heat map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.shown import formula
from symattn.attention.letters_of_attention import SYMBOLS
from symattn.derivations.attention.entry_formulas import product_letter, row_symbol
from symattn.derivations.enclosed import digits, nested
from symattn.derivations.walks import printed
from symattn.derivations.walks.steps import blocks, rounded_of, weights_known
from symattn.derivations.walks.walk_data import (
    Walk,
    arrays_of,
    capital,
    first_query,
    places_of,
    titles,
)
from symattn.derivations.walks.why import about, too_long
from symattn.derivations.walks.why import why as reasons
from symattn.document.evidence import Grade
from symattn.document.model import (
    Block,
    Heading,
    Heat,
    Note,
    Origin,
    Paragraph,
    Table,
    Text,
    Values,
    headers,
)
from symattn.document.notation import Decimal, Node, Relation, Words

_MOST = 64  # weights that stand in one heat map
_FEW = 4  # queries of several heads that are shown one by one
_WIDE = 16  # columns of a product with both factors
Blocks = tuple[Block, ...]
_EACH = ("scaled", "capped", "biased", "masked", "dropped")


def page(walk: Walk, why: bool, every: bool, before: Blocks, after: Blocks) -> Blocks:
    """Return the blocks of the page: ``before``, the steps, and ``after``."""
    result = list(before)
    for number, title in titles(walk).items():
        lede, formula, rest = _split_first_reason(walk, number)
        result.append(Heading((capital(title),), lede=lede))
        result += [Note((rest,))] if rest else []
        result += [Paragraph((formula,))] if formula else []
        result += [*reasons(walk, number)][1:] if why else []
        result += [Note(text) for text in about(walk, number)]
        result += (
            _add_origins_of_entries(walk, b) if isinstance(b, Values) and b.origin is None else b
            for b in _yield_contents_of_step(walk, number, every)
        )
    return (*result, *after, *(Note(text) for text in too_long(walk)))


def _split_first_reason(walk: Walk, number: int) -> tuple[Text, Node | None, str]:
    """Split the first reason of a step into its first sentence, its formula, and the rest for the margin."""
    first = next(iter(reasons(walk, number)), None)
    parts = list(first.text) if first else []
    for i, part in enumerate(parts):
        # A formula behind a colon is shown by itself.
        if isinstance(part, Relation) and i and parts[i - 1] in (": ", ", "):
            others = (*parts[: i - 1], *parts[i + 1 :])
            return others, part, ""
    if len(parts) == 1 and isinstance(parts[0], str):
        # The first sentence leads, the rest is a remark.
        first_sentence, stop, rest = parts[0].partition(". ")
        return (first_sentence + stop.strip(),), None, rest
    return tuple(parts), None, ""


def _yield_contents_of_step(walk: Walk, number: int, every: bool) -> Iterator[Block]:
    """Yield the contents of the step, after the arrays from which it is computed."""
    i, weights = first_query(walk), walk.arrays["weights"]
    whole = bool(weights.ndim == 2 and weights.size <= _MOST)  # a page has room for every entry
    if number == 8 and whole and walk.queries > 1:
        names = ["scores", *(n for n in arrays_of(walk, 4) if n != "scores"), walk.mixing.name]
        for array in names:
            if array == "scaled" and walk.sheet.attention.scale == 1:
                continue
            yield from (
                (_make_weights_heat_map(walk, range(1, walk.queries + 1)),)
                if array == walk.mixing.name
                else ()
            )
            yield walk.values(array, evidence=walk.evidence(array))
        if rounded_of(walk) is not None:
            yield _make_table_of_differences(walk, range(1, walk.queries + 1))
        return
    shown = blocks(walk, number, every or (not whole and walk.queries <= _FEW))
    yield from _yield_arrays_before_step(walk, number, shown) if whole else ()
    for block in shown:
        if whole and isinstance(block, Values) and block.name.startswith("exact − "):
            yield _make_table_of_differences(walk, [i])
        else:
            yield block
        if isinstance(block, Values) and block.name == "weights" and whole:
            yield _make_weights_heat_map(walk, [i])


def _yield_arrays_before_step(walk: Walk, number: int, shown: list[Block]) -> Iterator[Values]:
    """Yield the arrays from which a step is computed, unless it shows them itself."""
    i = first_query(walk)
    there = {block.name for block in shown if isinstance(block, Values)}
    queries, keys = walk.pipeline["scores"].of[:2]
    weights, values = walk.mixing.of[:2]
    wanted = {
        4: ((queries, True), (keys, False), ("scores", True)),
        5: ((_of_weights(walk), True),),
        6: ((weights, True), (values, False)),
        7: (("weighted", True),),
    }
    for array, row in wanted.get(number, ()):
        if array not in there:
            index = (
                (..., i - 1, slice(None))
                if array != "weighted"
                else (i - 1, slice(None), slice(None))
            )
            symbol = (
                row_symbol(array, i) if array != "weighted" else _symbol_of_weighted_value(walk, i)
            )
            yield walk.values(array, index, symbol) if row else walk.values(array)


def _of_weights(walk: Walk) -> str:
    """Return the array whose softmax the weights are: "scores" if they are not scaled."""
    name = walk.pipeline["weights"].of[0]
    return "scores" if name == "scaled" and walk.sheet.attention.scale == 1 else name


def _symbol_of_weighted_value(walk: Walk, i: int) -> Node:
    weights, values = walk.mixing.of[:2]
    return row_symbol(weights, i, "j") * row_symbol(values, "j")


def _make_weights_heat_map(walk: Walk, queries: Iterable[int]) -> Heat:
    """Return a heat map of the weights of these queries on all keys."""
    index = [i - 1 for i in queries]
    queries_of, keys = walk.pipeline["scores"].of[:2]
    part = walk.values("weights", (index, slice(None)), evidence=weights_known(walk))
    decimal = nested(lambda x: digits(x, 3), walk.arrays["weights"][index].tolist())
    places = places_of(walk.arrays["weights"].shape)[index].tolist()
    rows = tuple(row_symbol(queries_of, i) for i in queries)
    columns = tuple(row_symbol(keys, j + 1) for j in range(len(part.exact[0])))
    sums = tuple(  # a dash where a row has none
        formula(sum(row, Quotient.of(0)))
        if all(isinstance(x, Quotient) for x in row)
        else Words("–")
        for row in walk.arrays["weights"][index]
    )
    return Heat(
        part.name,
        part.symbol,
        part.exact,
        decimal,
        evidence=part.evidence,
        title=part.title,
        origin=_make_origin_of_array(walk, "weights", places),
        rows=rows,
        columns=columns,
        sums=sums,
    )


def _make_table_of_differences(walk: Walk, queries: Iterable[int]) -> Table:
    """Return a table of exact minus printed (or rounded) outputs, entry by entry."""
    results = rounded_of(walk)
    assert results is not None
    label, name = "printed" if results[0] == "printed" else "rounded", walk.mixing.name
    gaps, rounded_output = (
        printed.difference(walk, "output", results[1]["output"]),
        printed.objects(results[1]["output"]),
    )
    rows: list[tuple[Text, ...]] = []
    for i in queries:
        for c, gap in enumerate(gaps[i - 1]):
            entry = walk.arrays[name][i - 1][c]
            exact = walk.shortened([entry, gap])
            numbers = (rounded_output[i - 1][c], gap)
            shown = [Decimal(digits(x, 6)) for x in numbers]
            symbol = row_symbol(name, i, c + 1)
            rows.append(((symbol,), (exact[0],), (shown[0],), (exact[1],), (shown[1],)))
    columns = headers("", ">exact", f">{label}", ">difference", ">decimal")
    return Table(columns, tuple(rows), caption=(f"Exact − {label}",), framed=True)


# -- origins -----------------------------------------------------------------------------------------------------------
def _add_origins_of_entries(walk: Walk, block: Values) -> Values:
    """Return the block with the origins of its entries, and the factors of a product."""
    if block.name not in walk.arrays:
        return block
    places = places_of(walk.arrays[block.name].shape)
    i = first_query(walk)
    missing = places.ndim - _count_nesting_depth(block.exact)
    # Weighted values are shown for one query: (n_k, d_v).
    if missing and block.name == "weighted" and places.ndim == 3:
        places = places[i - 1]
    elif missing:
        places = places[..., i - 1, :]
    # A part of an array has no origins for all of its entries.
    if np.shape(nested(lambda _: 0, block.exact)) != places.shape:
        return block
    origin = _make_origin_of_array(walk, block.name, places.tolist())
    factors: tuple[Values, ...] = ()
    names = (*origin.rule[1:], *origin.rule[-1:])
    narrow = sum(int(walk.arrays[name].shape[-1]) for name in names)
    dot_product = origin.rule[:1] == ("dot",)
    # Wide factors would not fit beside their product.
    if dot_product and isinstance(block.symbol, Relation) and narrow <= _WIDE:
        factors = tuple(
            _add_origins_of_entries(walk, walk.values(array)) for array in origin.rule[1:]
        )
    return replace(block, origin=origin, factors=factors)


def _count_nesting_depth(entries: object) -> int:
    return (
        1 + _count_nesting_depth(entries[0])
        if isinstance(entries, (tuple, list)) and entries
        else 0
    )


def _make_origin_of_array(walk: Walk, array: str, places: object) -> Origin:
    weights, values = walk.mixing.of[:2]
    name = (
        partial(product_letter, weights, values)
        if array == "weighted"
        else lambda p: row_symbol(array, *p)
    )
    symbol = (
        _symbol_of_weighted_value(walk, first_query(walk))
        if array == "weighted"
        else SYMBOLS[array]
    )
    return Origin(array, symbol, places, _map_places_to_letters(name, places), rule(walk, array))


def _map_places_to_letters(name: Callable[[Any], Node], places: object) -> Any:
    return (
        [_map_places_to_letters(name, p) for p in places]
        if isinstance(places, list)
        else name(places)
    )


def rule(walk: Walk, array: str) -> tuple[str, ...]:
    """Return a rule of ``Origin`` and the arrays from which the entries are computed; () if no rule is checked."""
    step, spec = (
        walk.mixing if array == "weighted" else walk.pipeline.get(array),
        walk.sheet.attention,
    )
    known = walk.evidence(array)
    # The page computes by itself only what was checked exactly.
    if step is None or known is None or known.grade is not Grade.CHECKED:
        return ()
    matrices = all(walk.arrays[name].ndim == 2 for name in step.of)
    if array == "weighted":
        return ("products", *step.of[:2]) if matrices else ()
    if array in _EACH:
        return "each", step.of[0]
    if array == "weights":
        plain = spec.plain_softmax and not spec.base
        return ("softmax", _of_weights(walk)) if plain else ()
    # Other steps are computed elsewhere.
    if not matrices or len(step.of) != 2 or walk.arrays[array].ndim != 2:
        return ()
    if array == "scores":
        return ("rows", *step.of) if spec.score == "dot" else ()
    return ("dot", *step.of) if array in ("q", "k", "v", walk.mixing.name) else ()
