"""``walk``: an example of attention step by step, with every number exact, as a decimal, and as floats compute it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np

from symattn.arrays import FLOATING
from symattn.attention.codec import exact_arrays
from symattn.attention.codec.field_values import as_options, written
from symattn.attention.codec.json_text import short
from symattn.attention.fields import whole
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.spec_fields import descriptions
from symattn.derivations import examples
from symattn.derivations.sheets import sheet as sheets
from symattn.derivations.sheets.sheet import Sheet, overridden, truncated
from symattn.derivations.walks import record as records
from symattn.derivations.walks.page import page
from symattn.derivations.walks.printed import ROUNDINGS
from symattn.derivations.walks.record import record
from symattn.derivations.walks.steps import blocks
from symattn.derivations.walks.walk_data import (
    Walk,
    capital,
    error_digits,
    first_query,
    symbol_of_size,
    titles,
)
from symattn.derivations.walks.why import about, too_long
from symattn.derivations.walks.why import why as reasons
from symattn.document.codec import command, quote_word
from symattn.document.errors import InputError, near
from symattn.document.keywords import format_name, unknown
from symattn.document.model import (
    Block,
    Document,
    Emph,
    Heading,
    Note,
    Paragraph,
    Table,
    Text,
    headers,
)
from symattn.document.notation import Decimal, equals

_SAID = ("heads", "kv_heads", "scale", "causal", "mask", "padding")  # in the subtitle
_LEFT_OUT = (
    "The weighted values are many; the JSON form leaves them out: they are weights times values."
)


def walk(
    source: str | PathLike[str] | Mapping[str, object] = "eight-step",
    *,
    step: int | None = None,
    why: bool = False,
    query: int | None = None,
    all: bool = False,
    tokens: int | None = None,
    dtype: str = "float32",
    rounding: str | None = None,
    blank: Sequence[int] | str | None = None,
    answers: bool = False,
    seed: int | None = None,
    **fields: object,
) -> Document:
    """Walk through an example (by name), a file, or arrays by name, and return the document.

    Arrays are nested lists of numbers or arrays of NumPy or PyTorch: x (y, w_q, w_k, w_v, …), or q, k, v. Tokens alone,
    ``walk({"x": …})``, are parameter-free attention, which does not scale its scores unless ``scale`` says so.
    ``step`` shows only this step, ``why`` adds reasons, ``query`` follows another query than the first, ``all`` shows
    every query; ``tokens`` keeps only the first tokens of every sequence; ``dtype`` is the floating format to compare
    with; ``rounding`` (exact, nearest, sum) shows the results of weights rounded to one decimal. ``blank`` (``[5, 6]``
    or ``"5,6"``) leaves these steps empty for a pupil, and ``answers`` adds them at the end; ``seed`` draws other
    numbers: small whole ones with readable scores.
    ``fields`` replace those of the sheet's ``Attention``.
    Raises InputError for bad input of any kind.

    >>> print(walk({"x": [[1, 0], ["1/2", 1]]}).text().splitlines()[0])
    the arrays                     n = 2, d_model = 2, d_k = 2, d_v = 2 · no scaling
    >>> walk("eight-step", query=2, dtype="float16")
    <walk 'eight-step': checked; print it, or .latex(), .markdown(), .html(), .json(), .save(path)>
    """
    _check_fields(fields)
    dtype = format_name(dtype)
    _check_words(dtype, rounding, query, all)
    result = _make_walk_of_sheet(sheet_of(source), fields, tokens, seed, dtype, query, rounding)
    named = (
        source
        if isinstance(source, str)
        else ""
        if isinstance(source, Mapping)
        else os.fspath(source)
    )
    _check_numbers(result, step, query)
    empty = _choose_blank_steps(result, blank, answers, step)
    body = list(
        _step_alone(result, step, why, all)
        if step
        else _yield_all_walk_steps(result, why, all, empty)
    )
    # A sheet with blanks says nothing that would give the numbers away.
    remarks = []
    if answers or not empty:
        remarks += [Note(text) for text in (*about(result, step), *too_long(result))]
    remarks += [Note((_LEFT_OUT,))] if records.too_many(result) else []
    body += _yield_answers_of_blanks(result, all, empty) if answers else ()
    left = ",".join(map(str, empty)) or None
    wishes = {
        "step": step,
        "why": why,
        "query": query,
        "all": all,
        "tokens": tokens,
        "rounding": rounding,
        "blank": left,
        "answers": answers,
        "seed": seed,
    }
    wishes = {name: wish for name, wish in wishes.items() if wish is not None and wish is not False}
    wishes |= as_options(result.sheet.attention, sorted(fields)) if fields else {}
    wishes |= {"dtype": dtype} if dtype != "float32" else {}
    return Document(
        "walk",
        result.sheet.name,
        (result.sheet.title,),
        (*body, *remarks),
        _write_walk_subtitle(result),
        command("walk", named, options=wishes) if named else "",
        {"source": named or result.sheet.name, **wishes},
        record(result, step) if answers or not empty else records.kept(record(result, None), empty),
        hints=_hint_further_commands(named, result, step, why, all) if named else (),
        page=None
        if step or empty
        else partial(
            page,
            result,
            why,
            all,
            tuple(_yield_introduction_of_walk(result)),
            tuple(_yield_table_of_errors(result)),
        ),
    )


def _make_walk_of_sheet(
    sheet: Sheet,
    fields: dict[str, Any],
    tokens: int | None,
    seed: int | None,
    dtype: str,
    query: int | None,
    rounding: str | None,
) -> Walk:
    """Return the walk through a sheet, with other fields, only its first tokens, or other numbers."""
    sheet = with_fields(sheet, fields) if fields else sheet
    sheet = sheet if tokens is None else truncated(sheet, tokens)
    sheet = sheet if seed is None else records.kind(sheet, seed)
    result = Walk(sheet, dtype, query, rounding)
    _check_printed_shapes(result)
    return result


def _check_printed_shapes(walk: Walk) -> None:
    """Raise InputError if the text's arrays have other shapes than the walk's."""
    printed = walk.sheet.printed
    printed_arrays = [*printed.digits.items(), *printed.rounded.items()] if printed else []
    for name, entries in printed_arrays:
        # A text calls the result output, whatever the step is called.
        result = walk.arrays.get(walk.mixing.name if name == "output" else name)
        if result is None or result.shape != exact_arrays.shape_of(entries):
            there = "is not in this walk" if result is None else f"has shape {result.shape}"
            raise InputError(
                f"{walk.sheet.name}: printed {name} has shape {exact_arrays.shape_of(entries)}; {name} {there}"
            )


def sheet_of(source: str | PathLike[str] | Mapping[str, object]) -> Sheet:
    """Return the sheet of an example, by name or alias, of a file, or of arrays by name."""
    if isinstance(source, Mapping):
        return sheets.sheet_of(source)
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(
            'a walk takes an example, a file or arrays by name; hint: walk({"x": …}), or walk({"q": …, …})'
        )
    if not isinstance(source, str):
        return sheets.read(os.fspath(source))
    if (result := examples.find(source)) is not None:
        return examples.load(result)
    # A name without a suffix that is no file is likely a misspelt example.
    if not os.path.lexists(source) and not os.path.splitext(source)[1]:
        words = examples.NAMES
        suggestion = near(source.lower(), words)
        raise InputError(
            f"{short(source)!r} is neither an example nor a file.{suggestion} Known: {', '.join(words)}"
        )
    return sheets.read(source)


def with_fields(sheet: Sheet, fields: dict[str, Any]) -> Sheet:
    """Return the sheet with other fields; printed numbers are dropped if they change the attention."""
    attention = overridden(sheet.attention, fields)
    same = replace(attention, stabilised=sheet.attention.stabilised) == sheet.attention
    return replace(sheet, attention=attention, printed=sheet.printed if same else None)


def _check_fields(fields: Iterable[str]) -> None:
    """Raise InputError for arrays passed as keywords, as in ``walk(x=…)``, and for unknown fields."""
    # Arrays by keyword would be taken for fields.
    arrays = [name for name in fields if name in ARRAYS and name not in descriptions()]
    if arrays:
        inner = ", ".join(f"{name!r}: …" for name in arrays)
        raise InputError(
            f"arrays are given together, as the source of the walk; hint: walk({{{inner}}})"
        )
    for name in fields:
        if name not in descriptions():
            raise unknown("walk", name, (*(walk.__kwdefaults__ or ()), *descriptions()))


def _check_words(dtype: str, rounding: str | None, query: int | None, every: bool) -> None:
    for what, word, known in (("dtype", dtype, FLOATING), ("rounding", rounding, ROUNDINGS)):
        if word is not None and word not in known:
            nearest = near(str(word), known)
            raise InputError(
                f"unknown {what} {short(str(word))!r}.{nearest} Known: {', '.join(known)}"
            )
    if query is not None and every:
        raise InputError("--query follows one query and --all shows every one; give one of them")


def _check_numbers(worked: Walk, step: int | None, query: int | None) -> None:
    if query is not None and not (whole(query, 1) and query <= worked.queries):
        raise InputError(
            f"query {query!r}: the queries of {worked.sheet.name} are 1 to {worked.queries}"
        )
    last = max(titles(worked))
    if step is not None and not (whole(step, 1) and step <= last):
        raise InputError(f"step {step!r}: the steps of {worked.sheet.name} are 1 to {last}")


def _choose_blank_steps(
    worked: Walk, blank: Sequence[int] | str | None, answers: bool, step: int | None
) -> tuple[int, ...]:
    """Return the steps that are left empty. Raises InputError if they contradict other options."""
    if blank is None:
        if answers:
            raise InputError(
                "answers belong to steps that are left empty; hint: --blank 5,6 --answers"
            )
        return ()
    if step is not None:
        raise InputError(
            "--step shows one step and --blank leaves steps of a whole walk empty; give one of them"
        )
    return records.steps(blank, max(titles(worked)))


def _yield_answers_of_blanks(worked: Walk, every: bool, empty: tuple[int, ...]) -> Iterator[Block]:
    """Yield the results for the steps that were left empty."""
    yield Heading(("Answers",))
    for number in empty:
        title = capital(titles(worked)[number])
        yield Paragraph((Emph(f"Step {number}: {title}"),))
        yield from blocks(worked, number, every)


def _yield_introduction_of_walk(worked: Walk) -> Iterator[Block]:
    """Yield the source of the example, its notes, its differences from plain attention, and their sizes."""
    if worked.sheet.source:
        yield Paragraph((f"From {worked.sheet.source}.",))
    yield from (Paragraph((text,)) for text in worked.sheet.notes)
    spec = worked.sheet.attention
    words = [
        _write_field_in_words(name, value)
        for name, value in written(spec, changed=True).items()
        # Fields that the subtitle says are not said again.
        if name not in _SAID
    ]
    sizes = worked.sizes.items()
    # The main sizes are in the subtitle.
    more = {letter: n for letter, n in sizes if letter not in worked.main_sizes}
    if words or more:
        parts = ["fields"] * bool(words) + ["sizes"] * bool(more)
        label = " and ".join(parts).capitalize()
        between = " · " if words and more else ""
        yield Paragraph(
            (f"{label}: {' · '.join(words)}{between}", *_write_sizes_of_walk(more), ".")
        )


def _yield_all_walk_steps(
    worked: Walk, why: bool, every: bool, empty: tuple[int, ...]
) -> Iterator[Block]:
    yield from _yield_introduction_of_walk(worked)
    for number, title in titles(worked).items():
        yield Heading((title,))
        yield from reasons(worked, number) if why else ()
        result = blocks(worked, number, every)
        yield from records.emptied(result) if number in empty else result
    # An exercise with gaps shows no errors.
    if not empty:
        yield from _yield_table_of_errors(worked)


def _step_alone(worked: Walk, step: int, why: bool, every: bool) -> Iterator[Block]:
    title = capital(titles(worked)[step])
    yield Paragraph((Emph(f"Step {step}: {title}"),))
    yield from reasons(worked, step) if why else ()
    yield from blocks(worked, step, every or step == 8)
    # Steps for one query, repeated for the others.
    if every and step in (4, 5, 6, 7):
        for i in range(1, worked.queries + 1):
            if i != first_query(worked):
                other = replace(worked, query=i)
                yield from blocks(other, step, False)


def _yield_table_of_errors(worked: Walk) -> Iterator[Block]:
    """Yield a table of the largest error of each array that is not exact in the floating format."""
    names = [n for n in worked.pipeline if not worked.is_right(n)]
    if not names:
        yield Paragraph((f"{worked.dtype} gives every one of these numbers exactly.",))
        return
    rows = []
    for name in names:
        shown = error_digits(_largest_error(worked.errors(name)))
        # An entry that is not finite has no error in units.
        missing = sum(e is None for e in worked.errors(name).flat)
        value = shown if not isinstance(shown, str) else Decimal(shown)
        rows.append(((name,), (value,), (str(missing),)))
    columns = headers("array", ">largest error in ulp", ">not finite")
    over = f"{worked.dtype} against the exact numbers, over all queries"
    caption: Text = (f"{over}; ulp: the unit in the last place at the exact number.",)
    yield Table(columns, tuple(rows), caption=caption)


def _largest_error(errors: np.ndarray) -> float | None:
    """Return the largest error of an array."""
    return max((e for e in exact_arrays.flat(errors.tolist()) if e is not None), default=None)


def _write_walk_subtitle(worked: Walk) -> Text:
    spec = worked.sheet.attention
    scale = (
        "scale 1/√d_k"
        if spec.scale is None
        else "no scaling"
        if spec.scale == 1
        else f"scale {spec.scale}"
    )
    scale = "no scaling" if spec.scale is None and spec.score != "dot" else scale
    masks = ["causal"] if spec.causal else []
    masks += [f"{spec.mask} mask"] if spec.mask else []
    masks += ["padding"] if spec.padding else []
    return (
        *_write_sizes_of_walk(worked.main_sizes),
        "".join(f" · {word}" for word in (scale, *masks)),
    )


def _write_sizes_of_walk(sizes: Mapping[str, int]) -> Text:
    """Return ``n = 3, d_model = 4``, with letters as formulas."""
    parts: list[Any] = []
    for letter, n in sizes.items():
        parts += [", ", equals(symbol_of_size(letter), n)]
    return tuple(parts[1:])


def _write_field_in_words(name: str, value: object) -> str:
    """Return a field in words: ``window 4``, ``position: rotary, triples 3 4 5``."""
    words = name.replace("_", " ")
    if value is True:
        return words
    if not isinstance(value, dict):
        return f"{words} {_write_plain_field_value(value)}"
    # A field of fields has one kind, with fields of its own.
    ((kind, fields),) = value.items()
    result = [
        *([kind] if kind != name else []),
        *(_write_field_in_words(n, x) for n, x in fields.items()),
    ]
    return f"{words}: {', '.join(result)}" if result else words


def _write_plain_field_value(value: object) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(map(_write_plain_field_value, value)) + ")"
    if value is None:
        return "open"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _hint_further_commands(
    source: str, worked: Walk, step: int | None, why: bool, every: bool
) -> tuple[str, ...]:
    base = f"symattn walk {quote_word(source)}"
    hints = [] if step and why else [f"{base} --step {step or 5} --why"]
    hints += [] if every or worked.queries < 2 or step else [f"{base} --all"]
    example = examples.find(source)
    return (*hints, f"symattn examples show {example}") if example else tuple(hints)
