"""The contents of each step of a walk; ``order`` says which arrays belong to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.shown import formula
from symattn.arrays.special import Undefined
from symattn.attention.codec import exact_arrays
from symattn.attention.flow import Step
from symattn.attention.letters_of_attention import ARRAYS, SYMBOLS
from symattn.attention.spec import Attention
from symattn.derivations.attention import reading
from symattn.derivations.attention.entry_formulas import row_symbol
from symattn.derivations.enclosed import Enclosed, digits, is_number, nested
from symattn.derivations.walks import printed, run
from symattn.derivations.walks.walk_data import (
    Walk,
    arrays_of,
    counted,
    enumerated,
    first_query,
    is_of_rows,
)
from symattn.derivations.walks.walk_entries import same
from symattn.document.errors import SymattnError
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Block, Emph, Paragraph, Result, Text, Values
from symattn.document.notation import Fence, Name, Node, Product, Sum, Words, equals, name, node
from symattn.document.text import plain_text, text
from symattn.proof.relations.comparing import FalseStep

_BESIDE = 60  # the most characters of a reason at the side of an array
MANY_KEYS, MANY_FEATURES, WIDE = 6, 6, 66  # beyond these a score is not written out as a sum
_SOME_NUMBERS = Evidence(Grade.SEARCHED, "numbers of the walk's sizes")


def blocks(walk: Walk, number: int, every: bool) -> list[Block]:
    """Return the contents of a step, for all queries with ``every``."""
    if number != 8:
        # Step 8 repeats the steps for the other queries.
        return list(_MAKERS[number](walk, first_query(walk)))
    rest = [i for i in range(1, walk.queries + 1) if i != first_query(walk)]
    if not rest:
        return [Paragraph(("There is one query only.",))]
    if not every:
        which = f"inputs {enumerated(rest)}" if len(rest) > 1 else f"input {rest[0]}"
        return [Paragraph((f"The same for {which}: --all shows it.",))]
    result: list[Block] = []
    for i in rest:
        result.append(Paragraph((Emph(f"Input {i}"),)))
        for part in (4, 5, 6, 7):
            result += _MAKERS[part](walk, i)
    return result


def _yield_step_of_inputs(walk: Walk, _: int) -> Iterator[Block]:
    if walk.sheet.tokens:
        yield Paragraph(("The tokens are " + enumerated(walk.sheet.tokens) + ".",))
    for array in arrays_of(walk, 1):
        yield walk.values(array, reason=(_write_shape_of_array(walk, array),))


def _write_shape_of_array(walk: Walk, array: str) -> str:
    shape = walk.arrays[array].shape
    if len(shape) > 1:
        return " × ".join(map(str, shape))
    return counted(shape[0], "entry", "entries")


def _yield_step_of_matrices(walk: Walk, _: int) -> Iterator[Block]:
    names = arrays_of(walk, 2)
    for array in names:
        yield walk.values(array, reason=(_write_shape_of_array(walk, array),))
    if not names:
        yield Paragraph(("None: this attention has no parameters of its own.",))


def _yield_step_of_roles(walk: Walk, _: int) -> Iterator[Block]:
    names = arrays_of(walk, 3)
    if not names:
        yield Paragraph(("Queries, keys and values are given.",))
        return
    # Without projections keys, values and queries are the tokens.
    if all(walk.pipeline[name].of in (("x",), ("y",)) for name in names):
        keys = SYMBOLS["y" if "y" in walk.sheet.inputs else "x"]
        tokens = (
            equals(SYMBOLS["k"], SYMBOLS["v"], keys),
            " and ",
            equals(SYMBOLS["q"], SYMBOLS["x"]),
        )
        yield Paragraph(("The tokens themselves: ", *tokens, "."))
        return
    of_tokens = "x" in walk.sheet.inputs
    plain = set(names) == {"k", "q", "v"} and of_tokens and walk.arrays["k"].ndim < 3
    for array in names:
        yield from (
            _yield_shared_heads(walk, array)
            if array in ("k_shared", "v_shared")
            else _yield_array_with_formula(walk, array, plain)
        )


def _yield_array_with_formula(walk: Walk, array: str, plain: bool = False) -> Iterator[Block]:
    """Yield an array with its formula; for heads, the formula and then each head with its number."""
    step, evidence = walk.pipeline[array], walk.evidence(array)
    defined = equals(SYMBOLS[array], step.formula)
    reason = () if plain else step.reason
    decided(walk, step, defined)
    if walk.arrays[array].ndim < 3:
        yield from _with_reason(
            lambda words: walk.values(array, symbol=defined, reason=words, evidence=evidence),
            reason,
        )
    else:
        yield Paragraph((defined, *((": ", *reason) if reason else ())))
        yield walk.values(array, evidence=evidence)


def _with_reason(function: Callable[[Text], Values], reason: Text) -> Iterator[Block]:
    """Yield a block with a reason at its side, or above it if it is long."""
    if len(plain_text(reason)) > _BESIDE:
        yield Paragraph(reason)
        reason = ()
    yield function(reason)


def _yield_shared_heads(walk: Walk, array: str) -> Iterator[Block]:
    """Yield which head reads which; the heads that are read are shown already. Raises FalseStep."""
    step = walk.pipeline[array]
    heads = walk.arrays[step.of[0]].shape[-3]
    times = walk.arrays[array].shape[-3] // heads
    # Each head is compared with the one that it should read.
    for t in range(heads * times):
        whole, read = (
            walk.arrays[array][..., t, :, :],
            walk.arrays[step.of[0]][..., t // times, :, :],
        )
        if not all(map(same, whole.flat, read.flat)):
            raise FalseStep(f"{array}: head {t + 1} does not read head {t // times + 1}")
    lines = [
        equals(
            *(_symbol_of_head(array, g * times + t + 1) for t in range(times)),
            _symbol_of_head(step.of[0], g + 1),
        )
        for g in range(heads)
    ]
    evidence = walk.evidence(array)
    yield Result(
        ARRAYS[array].title, tuple(lines), (evidence,) if evidence else (), text=step.reason
    )


def _symbol_of_head(array: str, head: int) -> Node:
    """Return the letter of a head of an array: K′₁."""
    symbol = SYMBOLS[array]
    assert isinstance(symbol, Name)
    return Name(symbol.base, (*symbol.sub, node(head)), symbol.role)


def _yield_step_of_scores(walk: Walk, i: int) -> Iterator[Block]:
    written = _written_out(walk, i)
    if written and walk.token_by_token:
        yield Result(f"scores of input {i}", tuple(written), (walk.token_by_token,))
    for array in arrays_of(walk, 4):
        # Scores that are written out are not repeated.
        if array == "scores" and written and walk.is_right("scores", _index_row_of_query(i)):
            continue
        if array == "scaled" and walk.sheet.attention.scale == 1:
            continue
        if is_of_rows(array):
            yield from _of_query(walk, array, i)
        else:
            yield from _yield_array_with_formula(walk, array)


def _of_query(walk: Walk, array: str, i: int, **more: object) -> Iterator[Block]:
    """Yield the row of a query."""
    index = _index_row_of_query(i) if is_of_rows(array) else (..., i - 1)
    more.setdefault("evidence", walk.evidence(array))
    symbol = row_symbol(array, i)
    yield from _with_reason(
        lambda words: walk.values(array, index, symbol, words, **more), walk.pipeline[array].reason
    )


def _written_out(walk: Walk, i: int) -> list[Node]:
    """Return q₁·k₁ = 1·0 + 0·1 + 2·1 = 2 for every key; [] if these are too long."""
    queries, keys = walk.pipeline["scores"].of[:2]
    q, k, s = (walk.arrays[name] for name in (queries, keys, "scores"))
    if (
        walk.sheet.attention.score != "dot"
        or s.ndim != 2
        or k.shape[-2] > MANY_KEYS
        or k.shape[-1] > MANY_FEATURES
    ):
        return []
    # Balls have no exact product to print.
    if any(isinstance(x, Enclosed) for x in s[i - 1]):
        return []
    lines: list[Node] = []
    for j, key in enumerate(k):
        left = Product((row_symbol(queries, i), row_symbol(keys, j + 1)), "·")
        terms = tuple(
            Product((_write_factor_in_brackets(a), _write_factor_in_brackets(b)), "·")
            for a, b in zip(q[i - 1], key, strict=True)
        )
        products = (a * b for a, b in zip(q[i - 1], key, strict=True))
        if sum(products, Quotient.of(0)) != s[i - 1, j]:
            raise FalseStep(f"{text(left)} is not the score of the walk")
        score = formula(s[i - 1, j])
        lines.append(equals(left, Sum(terms), score))
    # One line that is too long is enough to leave out all.
    if all(len(text(line)) <= WIDE for line in lines):
        return lines
    return []


def _write_factor_in_brackets(x: Quotient) -> Node:
    result = formula(x)
    return result if x.rational() is not None and x.sign() >= 0 else Fence("round", result)


def _yield_step_of_softmax(walk: Walk, i: int) -> Iterator[Block]:
    others: dict[str, Any] = {}
    printed_numbers = walk.sheet.printed
    if printed_numbers and "weights" in printed_numbers.digits:
        others["printed"] = _slice_part_of_query(printed_numbers.digits["weights"], "weights", i)
    others |= _rounded_columns(walk, "weights", i)
    yield from _of_query(walk, "weights", i, others=others, evidence=weights_known(walk))
    for array in arrays_of(walk, 5):
        if array != "weights":
            yield from _of_query(walk, array, i)


def weights_known(walk: Walk) -> Evidence | None:
    """Check that rows sum to 1 if they do by definition; otherwise that weights are those of the textbook formula."""
    spec, known = walk.sheet.attention, walk.evidence("weights")
    if not spec.sums_to_one or known is None or known.grade is not Grade.CHECKED:
        return known
    return row_sums(walk)


def row_sums(walk: Walk) -> Evidence:
    """Check that each row of weights sums to exactly 1, except for rows without any key and undefined ones.

    Raises FalseStep if a row has another sum.
    """
    weights = walk.arrays["weights"].reshape(-1, walk.arrays["weights"].shape[-1])
    # Rows of 0/0 have no sum.
    defined = [row for row in weights if not any(isinstance(x, Undefined) for x in row)]
    # A row whose weights are all 0 is fully masked.
    full = [row for row in defined if any(not x.is_zero() for x in row)]
    if any(sum(row, Quotient.of(0)) != 1 for row in full):
        raise FalseStep("the weights of a row do not sum to 1")
    rows = (
        f"each of {counted(len(full), 'row')}"
        if len(full) > 1
        else "the row"
        if full
        else "no row is there that"
    )
    masked_count = len(defined) - len(full)
    rest = [(masked_count, "fully masked"), (len(weights) - len(defined), "undefined")]
    others = "".join(f"; {n} {word}" for n, word in rest if n)
    return Evidence(Grade.CHECKED, f"{rows} sums to 1 exactly{others}")


def _yield_step_of_products(walk: Walk, i: int) -> Iterator[Block]:
    weights, values = walk.mixing.of[:2]
    others = _rounded_columns(walk, "weighted", i)
    reason, evidence = ("one row for each key",), walk.evidence("weighted")
    for front in np.ndindex(
        walk.arrays["weighted"].shape[:-3]
    ):  # a product has no letter that heads could index
        head = tuple(a + 1 for a in front)
        weight = row_symbol(weights, *head, i, "j")
        symbol = Product((weight, row_symbol(values, *head, "j")))
        more = {label: x[front[0]] if front else x for label, x in others.items()}
        index = (*front, i - 1, slice(None), slice(None))
        yield walk.values("weighted", index, symbol, reason, others=more, evidence=evidence)


def _yield_step_of_output(walk: Walk, i: int) -> Iterator[Block]:
    array = walk.mixing.name
    others = _rounded_columns(walk, "output", i)
    evidence = walk.evidence(array)
    spec = walk.sheet.attention
    plain = len(walk.mixing.of) == 2
    words = f"a weighted {'mean' if spec.averages else 'sum'} of the values"
    formula_ = equals(SYMBOLS[array], walk.mixing.formula)
    decided(walk, walk.mixing, formula_)
    tokens = walk.sheet.tokens
    # the token in its context
    called: Text = (": ", name("y", tokens[i - 1], role="output")) if tokens else ()
    reason: Text = (words, *called) if plain else (formula_,)
    yield walk.values(
        array,
        _index_row_of_query(i),
        row_symbol(array, i),
        reason,
        others=others,
        evidence=evidence,
    )
    rest = rounded_of(walk)
    if rest is None:
        return
    label, entries = rest
    gaps = _slice_part_of_query(printed.difference(walk, "output", entries["output"]), "output", i)
    if any(is_number(x) and not x.is_zero() for x in exact_arrays.flat(gaps)):
        shown = walk.shortened(gaps)
        of = "printed" if label == "printed" else "rounded"
        symbol = row_symbol("output", i) - Words(of)
        yield Values(
            f"exact − {of}", symbol, shown, nested(lambda x: digits(x, 6), gaps), evidence=EXACTLY
        )


EXACTLY = Evidence(Grade.CHECKED, "a difference of exact numbers")


def rounded_of(walk: Walk) -> tuple[str, dict[str, Any]] | None:
    """Return the label and arrays of the requested rounding, or else of the text's own; None without either."""
    if walk.rounding == "exact":
        return None
    if walk.rounding:
        return walk.rounding, printed.with_rounding(walk, walk.rounding)
    printed_numbers = walk.sheet.printed
    return (
        ("printed", printed_numbers.rounded)
        if printed_numbers and "output" in printed_numbers.rounded
        else None
    )


def _rounded_columns(walk: Walk, array: str, i: int) -> dict[str, Any]:
    results = rounded_of(walk)
    if results is None or array not in results[1]:
        return {}
    return {
        "rounded": nested(lambda x: digits(x, 9), _slice_part_of_query(results[1][array], array, i))
    }


def _slice_part_of_query(entries: object, array: str, i: int) -> Any:
    """Return the part of query i of nested lists."""
    return printed.objects(entries)[_ROW[array](i)].tolist()


def _yield_step_of_merging(walk: Walk, _: int) -> Iterator[Block]:
    for array in arrays_of(walk, 9):
        yield from _yield_array_with_formula(walk, array)
    if walk.sheet.attention.latent is None:
        return
    # Absorbed and unabsorbed matrices must give the same output.
    sheet = walk.sheet
    other, agrees, exact = _by_other_way(sheet.attention, sheet.inputs, walk.arrays["output"])
    absorbed = other.latent is not None and other.latent.absorbed
    remaining = (
        name("W", "UK"),
        " in the queries and ",
        name("W", "UV"),
        " in the outputs, no key and no value is made",
    )
    yield Paragraph(
        ("With ", *(remaining if absorbed else ("keys and values made of the latent",)), ":")
    )
    where = "every entry" if exact else "every entry, in balls"
    if not agrees:
        raise FalseStep(
            "the output is another with matrices absorbed than with keys and values made"
        )
    grade = Grade.CHECKED if exact else Grade.ENCLOSED
    title = "the same with matrices absorbed" if absorbed else "the same with keys and values made"
    other_output = name("O", "absorbed" if absorbed else "made", role="output")
    equation = equals(SYMBOLS["output"], other_output)
    yield Result(title, (equation,), (Evidence(grade, where),))


def _by_other_way(
    spec: Attention, inputs: Mapping[str, object], output: np.ndarray
) -> tuple[Attention, bool, bool]:
    """Return the specification with matrices absorbed, or not, whether outputs agree, and whether that is exact."""
    assert spec.latent is not None
    other = replace(spec, latent=replace(spec.latent, absorbed=not spec.latent.absorbed))
    result = run.exact(other, inputs)["output"]
    entries = (*result.flat, *output.flat)
    exact = not any(isinstance(x, Enclosed) for x in entries)
    same_shape = result.shape == output.shape
    return other, same_shape and all(map(same, result.flat, output.flat)), exact


def decided(walk: Walk, step: Step, formula: Node) -> Node | None:
    """Return the formula if it equals what the step computes, None if it cannot be read. Raises FalseStep if false."""
    if walk.runs is None:
        # Two runs, as a formula may hold for one by chance.
        try:
            walk.runs = tuple(reading.run(walk.request, seed) for seed in (0, 1))
        except (SymattnError, KeyError):
            walk.runs = ()
    read = reading.Read(step, walk.runs)
    if not read.runs or not read.reads(formula):
        return None
    read.check(formula, _SOME_NUMBERS)
    return formula


def _index_row_of_query(i: int) -> tuple[Any, ...]:
    return (..., i - 1, slice(None))


_IndexOfQuery = Callable[[int], tuple[Any, ...]]
_ROW: dict[str, _IndexOfQuery] = {
    "weights": _index_row_of_query,
    "weighted": lambda i: (..., i - 1, slice(None), slice(None)),
    "output": _index_row_of_query,
}
_StepMaker = Callable[[Walk, int], Iterator[Block]]
_MAKERS: dict[int, _StepMaker] = {
    1: _yield_step_of_inputs,
    2: _yield_step_of_matrices,
    3: _yield_step_of_roles,
    4: _yield_step_of_scores,
    5: _yield_step_of_softmax,
    6: _yield_step_of_products,
    7: _yield_step_of_output,
    9: _yield_step_of_merging,
}
