"""The eight steps of a walk, in one numbering for every sheet, so that step 5 is always the softmax.

1 inputs, 2 weight matrices, 3 keys, queries and values, 4 scores of one query, 5 softmax, 6 scores times values, 7
their sum, 8 the other queries; where heads are merged or projected, that is step 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from symattn.arrays.field.quotient import Quotient
from symattn.attention.notation import SYMBOLS
from symattn.derivations.elements import digits, flat, formula, is_number, nested
from symattn.derivations.walks import printed
from symattn.derivations.walks.model import Walk, counted, enumerated, row_symbol
from symattn.document.model import Block, Emph, Paragraph, Result, Values
from symattn.document.notation import Fence, Node, Product, Sum, Words, equals, name
from symattn.document.text import text
from symattn.evidence import Evidence, Grade

MANY_KEYS, MANY_FEATURES, WIDE = 6, 6, 66  # beyond these a score is not written out as a sum


def titles(walk: Walk) -> dict[int, str]:
    """Number → title of the steps that this walk has."""
    i = first_query(walk)
    found = {
        1: "inputs",
        2: "weight matrices",
        3: "keys, queries, values",
        4: f"scores of input {i}",
        5: "softmax",
        6: "scores times values",
        7: f"sum to output {i}",
        8: "again for the other inputs",
    }
    if "attended" in walk.arrays:
        found[9] = "output projection" if "w_o" in walk.arrays else "heads side by side"
    return found


def blocks(walk: Walk, number: int, every: bool) -> list[Block]:
    """What a step shows; ``every``: of all queries."""
    return list(_others(walk, every) if number == 8 else _MAKERS[number](walk, first_query(walk)))


def arrays_of(walk: Walk, number: int) -> list[str]:
    """The arrays that belong to a step, in order."""
    return [n for n in _ARRAYS.get(number, ()) if n in walk.arrays]


def first_query(walk: Walk) -> int:
    """The query that is followed; the first is 1."""
    return walk.query or 1


def _inputs(walk: Walk, _: int) -> Iterator[Block]:
    if walk.sheet.tokens:
        yield Paragraph(("The tokens are " + enumerated(walk.sheet.tokens) + ".",))
    names = [n for n in ("x", "y", "mask", "keep") if n in walk.sheet.inputs]
    names = names if "x" in names else ["q", "k", "v", *names]
    for array in names:
        yield walk.values(array, reason=(_rows(walk, array),))


def _rows(walk: Walk, array: str) -> str:
    shape = walk.arrays[array].shape
    return " × ".join(map(str, shape)) if len(shape) > 1 else counted(shape[0], "entry", "entries")


def _matrices(walk: Walk, _: int) -> Iterator[Block]:
    names = [n for n in _ARRAYS[2] if n in walk.sheet.inputs]
    for array in names:
        yield walk.values(array, reason=(_rows(walk, array),))
    if not names:
        yield Paragraph(("None: this attention has no parameters of its own.",))


def _roles(walk: Walk, _: int) -> Iterator[Block]:
    if "x" not in walk.sheet.inputs:
        yield Paragraph(("Queries, keys and values are given.",))
        return
    if "w_q" not in walk.sheet.inputs:
        keys = SYMBOLS["y" if "y" in walk.sheet.inputs else "x"]
        tokens = (equals(SYMBOLS["k"], SYMBOLS["v"], keys), " and ", equals(SYMBOLS["q"], SYMBOLS["x"]))
        yield Paragraph(("The tokens themselves: ", *tokens, "."))
        return
    for array in "kqv":
        yield walk.values(array, symbol=_defined(walk, array), evidence=walk.token_by_token)


def _defined(walk: Walk, array: str) -> Node:
    """K = X W_K."""
    return equals(SYMBOLS[array], walk.pipeline[array].formula)


def _scores(walk: Walk, i: int) -> Iterator[Block]:
    written = _written_out(walk, i)
    if written and walk.token_by_token:
        yield Result(f"scores of input {i}", tuple(written), (walk.token_by_token,))
    for array in arrays_of(walk, 4):
        if array == "scores" and written and walk.is_right("scores", _row(i)):
            continue
        if array == "scaled" and walk.sheet.attention.scale == 1:
            continue
        step = walk.pipeline[array]
        yield walk.values(array, _row(i), row_symbol(array, i), step.reason, evidence=walk.token_by_token)


def _written_out(walk: Walk, i: int) -> list[Node]:
    """q₁·k₁ = 1·0 + 0·1 + 2·1 = 2, for every key; nothing where that is long."""
    q, k, s = (walk.arrays[name] for name in ("q", "k", "scores"))
    if s.ndim != 2 or k.shape[-2] > MANY_KEYS or k.shape[-1] > MANY_FEATURES:
        return []
    lines: list[Node] = []
    for j, key in enumerate(k):
        left = Product((row_symbol("q", i), row_symbol("k", j + 1)), "·")
        terms = tuple(Product((_factor(a), _factor(b)), "·") for a, b in zip(q[i - 1], key, strict=True))
        lines.append(equals(left, Sum(terms), formula(s[i - 1, j])))
    return lines if all(len(text(line)) <= WIDE for line in lines) else []


def _factor(x: Any) -> Node:
    made = formula(x)
    return made if x.rational() is not None and x.sign() >= 0 else Fence("round", made)


def _softmax(walk: Walk, i: int) -> Iterator[Block]:
    others: dict[str, Any] = {}
    given = walk.sheet.printed
    if given and "weights" in given.digits:
        others["printed"] = _at(given.digits["weights"], "weights", i)
    others |= _rounded_columns(walk, "weights", i)
    reason = walk.pipeline["weights"].reason
    symbol = row_symbol("weights", i)
    yield walk.values("weights", _row(i), symbol, reason, others=others, evidence=row_sums(walk))


def row_sums(walk: Walk) -> Evidence:
    """That each row of weights sums to 1 exactly, but for rows without any key."""
    weights = walk.arrays["weights"].reshape(-1, walk.arrays["weights"].shape[-1])
    full = [row for row in weights if any(is_number(x) and not x.is_zero() for x in row)]
    one = all(sum(row, Quotient.of(0)) == 1 for row in full)
    rows = f"each of {counted(len(full), 'row')}" if len(full) > 1 else "the row" if full else "no row is there that"
    masked = f"; {len(weights) - len(full)} fully masked" if len(full) < len(weights) else ""
    return Evidence(Grade.CHECKED if one else Grade.REFUTED, f"{rows} sums to 1 exactly{masked}")


def _products(walk: Walk, i: int) -> Iterator[Block]:
    symbol = Product((name("a", i, "j", role="weight"), name("v", "j", role="value")))
    others = _rounded_columns(walk, "weighted", i)
    index, reason, evidence = _ROW["weighted"](i), ("one row for each key",), walk.token_by_token
    yield walk.values("weighted", index, symbol, reason, others=others, evidence=evidence)


def _output(walk: Walk, i: int) -> Iterator[Block]:
    array = "attended" if "attended" in walk.arrays else "output"
    others = _rounded_columns(walk, "output", i)
    evidence = walk.token_by_token
    reason = ("a weighted mean of the values",)
    yield walk.values(array, _row(i), row_symbol(array, i), reason, others=others, evidence=evidence)
    rest = rounded_of(walk)
    if rest is None:
        return
    label, entries = rest
    gaps = _at(printed.difference(walk, "output", entries["output"]), "output", i)
    if any(is_number(x) and not x.is_zero() for x in flat(gaps)):
        shown = walk.shortened(gaps, "the difference")
        of = "printed" if label == "printed" else "rounded"
        symbol = row_symbol("output", i) - Words(of)
        yield Values(f"exact − {of}", symbol, shown, nested(lambda x: digits(x, 6), gaps), evidence=EXACTLY)


EXACTLY = Evidence(Grade.CHECKED, "a difference of exact numbers")


def rounded_of(walk: Walk) -> tuple[str, dict[str, Any]] | None:
    """Label and arrays of the rounding in force: the one asked for, else the text's own."""
    if walk.rounding == "exact":
        return None
    if walk.rounding:
        made = printed.with_rounding(walk, walk.rounding)
        return walk.rounding, {"weights": made.weights, "weighted": made.weighted, "output": made.output}
    given = walk.sheet.printed
    return ("printed", given.rounded) if given and "output" in given.rounded else None


def _rounded_columns(walk: Walk, array: str, i: int) -> dict[str, Any]:
    found = rounded_of(walk)
    if found is None or array not in found[1]:
        return {}
    return {"rounded": nested(lambda x: digits(x, 9), _at(found[1][array], array, i))}


def _at(entries: Any, array: str, i: int) -> Any:
    """The part of query i of nested lists."""
    return printed.objects(entries)[_ROW[array](i)].tolist()


def _others(walk: Walk, every: bool) -> Iterator[Block]:
    rest = [i for i in range(1, walk.queries + 1) if i != first_query(walk)]
    if not rest:
        yield Paragraph(("There is one query only.",))
    elif not every:
        which = f"inputs {enumerated(rest)}" if len(rest) > 1 else f"input {rest[0]}"
        yield Paragraph((f"The same for {which}: --all shows it.",))
    for i in rest if every else []:
        yield Paragraph((Emph(f"Input {i}"),))
        for number in (4, 5, 6, 7):
            yield from _MAKERS[number](walk, i)


def _merged(walk: Walk, _: int) -> Iterator[Block]:
    yield walk.values("output", symbol=_defined(walk, "output"), reason=walk.pipeline["output"].reason,
                      evidence=walk.token_by_token)  # fmt: skip


def _row(i: int) -> tuple[Any, ...]:
    return (..., i - 1, slice(None))


_ROW: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "weights": _row,
    "weighted": lambda i: (..., i - 1, slice(None), slice(None)),
    "output": _row,
}
_MAKERS: dict[int, Callable[[Walk, int], Iterator[Block]]] = {
    1: _inputs, 2: _matrices, 3: _roles, 4: _scores, 5: _softmax, 6: _products, 7: _output, 9: _merged,
}  # fmt: skip
_ARRAYS: dict[int, tuple[str, ...]] = {
    1: ("x", "y"),
    2: ("w_k", "w_q", "w_v", "b_k", "b_q", "b_v", "w_o", "b_o"),
    3: ("k", "q", "v"),
    4: ("scores", "scaled", "masked"),
    5: ("weights",),
    6: ("weighted",),
    7: ("attended", "output"),
}
