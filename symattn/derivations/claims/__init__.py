"""``claim``: is a claim true? The document says so, by how much it fails, and with which evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from symattn.arrays.field.quotient import Quotient
from symattn.arrays.plain import real
from symattn.attention.codec.exact_arrays import flat
from symattn.attention.codec.json_text import short
from symattn.derivations.claims.expressions import Equality, compare, is_vector, vector_entries
from symattn.derivations.claims.measures import (
    MEASURES,
    SYMBOLS,
    Likeness,
    Vector,
    brackets,
    half_unit,
    last_place,
    measured,
    number,
    rounded_example,
    rounds_to,
    sums_of_rounded,
    vector,
    written,
)
from symattn.derivations.enclosed import decimal
from symattn.derivations.walks.printed import nearest
from symattn.derivations.walks.walk_data import counted, enumerated
from symattn.document.codec import Record, command, record
from symattn.document.errors import InputError, article, near
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Block, Document, Note, Paragraph, Result, Step, Steps, Text
from symattn.document.notation import Commas, Decimal, Name, Node, Relation, Sum, call, equals
from symattn.document.text import text

# Both verdicts rest on exact numbers, with no rounding in between.
_CHECKED, _REFUTED = (
    Evidence(Grade.CHECKED, "exact numbers"),
    Evidence(Grade.REFUTED, "exact numbers"),
)
_MOST_SHOWN = 12  # the most entries that are written out
_LONGEST = 60  # the most characters of a formula that is written out
_ONE_DIGIT = Note(("A decimal of one digit is taken as it is: 0.3 is 3/10.",))
_CALLED = {
    "dot": "the dot product",
    "cosine": "the cosine",
    "angle": "the angle",
    "distance": "the distance",
}


def claim(
    kind: str,
    *values: Any,
    measure: str | None = None,
    than: tuple[Any, Any] | None = None,
) -> Document:
    """Check a claim exactly, as ``symattn claim KIND`` does; the document's ``holds`` says whether it is true.

    ``weights``     can the values be a row of softmax weights?
    ``similarity``  how alike are two vectors? By one ``measure`` (dot, cosine, angle, distance) or by all four.
    ``closer``      are two vectors closer than the two of ``than``?
    ``equal``       are two expressions, vectors or matrices of expressions equal?

    A number, a vector or a matrix may be text, as on the command line, or a number or list of Python. A float counts
    as the decimal that it prints as: 0.3 is 3/10. Raises InputError for another kind, or values that cannot be read.

    >>> claim("weights", 0.3, 0.7, 0.1).holds
    False
    >>> claim("closer", "E4:king", "E4:queen", than=("E4-before:king", "E4-before:queen"), measure="dot").holds
    False
    >>> claim("similarity", [1, 0], [1, 1], measure="cosine").record["values"]
    {'cosine': {'exact': '1/sqrt(2)', 'decimal': 0.707107}}
    """
    # Values of Python are read as the command line reads them.
    words = [_type_claim_value(value) for value in values]
    if kind == "weights":
        return weights([word for value in words for word in written([value])])
    if kind not in ("similarity", "closer", "equal"):
        known = ("weights", "similarity", "closer", "equal")
        nearby = near(str(kind), known)
        raise InputError(f"unknown claim {short(str(kind))!r}.{nearby} Known: {', '.join(known)}")
    if len(words) != 2:
        raise InputError(f"claim {kind} is about two values, and {len(words)} are given")
    a, b = words
    if kind == "equal":
        return equal(a, b)
    if kind == "similarity":
        return similarity(a, b, measure)
    if than is None or len(than) != 2:
        raise InputError("claim closer compares with two other vectors; hint: than=(c, d)")
    return closer(a, b, (_type_claim_value(than[0]), _type_claim_value(than[1])), measure)


def _type_claim_value(value: str) -> str:
    """Return a number or nested lists of Python as text, as on the command line; floats as their own format prints."""
    if hasattr(value, "tolist"):
        # A float is the decimal that it prints as.
        plain = real(value, "a claim")
        texts = (
            plain if plain.dtype == object else np.array([str(x) for x in plain.flat], dtype=object)
        )
        value = texts.reshape(plain.shape).tolist()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_type_claim_value, value))}]"
    if not isinstance(value, str | Quotient) and not hasattr(value, "__float__"):
        kind = type(value).__name__
        raise InputError(
            f"a claim is about real numbers, vectors and matrices, or text, and not about {article(kind)}"
        )
    # Quotients print as exact numbers.
    return str(value)


def weights(values: list[str]) -> Document:
    """Decide whether numbers can be a row of softmax: all positive (0 for a masked key), with the sum exactly 1.

    Decimals of two digits and more, as 0.25 and 0.00, may have been rounded: a row that rounds to them suffices.
    """
    if not values:
        raise InputError("claim weights has no numbers; give one or more, such as 0.3 and 0.7")
    texts = written(values)
    row = list(map(number, texts))
    total = sum(row, Quotient.of(0))
    negative = [x for x in row if x.sign() < 0]
    every_zero = [j for j, x in enumerate(row, 1) if x.is_zero()]
    zeros = [j for j in every_zero if not half_unit(texts[j - 1])]  # others may be small weights
    # Rounding is considered only if the digits themselves do not settle the claim.
    result = rounded_example(texts, row) if total != 1 or zeros != every_zero else []
    holds = not negative and (total == 1 or bool(result))
    verdict, evidence = (
        ("possible" if result else "true", _CHECKED) if holds else ("false", _REFUTED)
    )
    if result:
        evidence = Evidence(Grade.CHECKED, "as rounded digits")
    formula_of_sum = _write_sum_of_row(row, total)
    blocks: list[Block] = [Result(verdict, (formula_of_sum,), (evidence,))]
    said = _say_rounded(texts, row, result) if result else _say_weights(row, total, negative)
    blocks += [Paragraph(words) for words in said]
    # The note stands only where a rounded reading might have changed the verdict.
    if (
        total != 1
        and not result
        and not all(map(half_unit, texts))
        and any("." in text_ for text_ in texts)
    ):
        blocks.append(_ONE_DIGIT)
    if zeros and holds:
        keys = f"key {zeros[0]} is" if len(zeros) == 1 else f"keys {enumerated(zeros)} are"
        blocks.append(
            Note(
                (
                    f"A softmax weight is never 0 unless its key is masked. Hypothesis: {keys} masked.",
                )
            )
        )
    record: Record = {
        "weights": [str(x) for x in row],
        "sum": str(total),
        "excess": str(total - 1),
        "rescaled": _format_quotients_as_text(_rescale_row_to_one(row, total, negative)),
        "masked": zeros,
    }
    if result:
        record["row"] = _format_quotients_as_text(result)
    return _make_claim_document(
        "weights", "Can these be a row of softmax?", values, blocks, holds, record
    )


def _say_rounded(texts: list[str], row: list[Quotient], results: list[Quotient]) -> list[Text]:
    """Say which exact rows round to the digits."""
    # The interval of sums that rounding to these digits allows.
    low, high = sums_of_rounded(texts, row)
    units = [Quotient.of(half_unit(text)) for text in texts]
    sums: Text = (
        "Numbers that round to these digits have sums from ",
        low.notation(),
        " to ",
        high.notation(),
        ".",
    )
    says: list[Text] = [sums]
    if len(row) <= _MOST_SHOWN:
        pairs = zip(row, units, strict=True)
        rows = [Relation(x.notation(), (("±", u.notation()),)) for x, u in pairs]
        says.append(("Every positive row of sum 1 within ", Commas(tuple(rows)), "."))
        says.append(("One of them: ", Commas(tuple(x.notation() for x in results)), "."))
    return says


def similarity(a: str, b: str, measure: str | None = None) -> Document:
    """Measure the similarity of two vectors, by one measure or by all four, exactly."""
    left, right = vector(a), vector(b)
    names = _label_compared_vectors(left, right)
    chosen = _choose_similarity_measures(measure)
    vectors = (left, right)
    zero = any(all(x.is_zero() for x in v.entries) for v in vectors)
    # Among all measures an undefined one is left out; alone it raises its own error.
    undefined = [m for m in chosen if measure is None and m in ("cosine", "angle") and zero]
    result = {m: measured(m, left.entries, right.entries) for m in chosen if m not in undefined}
    steps = tuple(
        Step(_write_similarity_value(m, names, value), evidence=_CHECKED)
        for m, value in result.items()
    )
    blocks = [*_state_compared_vectors(names, left, right), Steps(steps)]
    if undefined:
        blocks.append(
            Note(("A vector of zeros has no direction: cosine and angle are not defined.",))
        )
    return _make_claim_document(
        "similarity", "How similar are they?", [a, b], blocks, True, result, measure
    )


def closer(a: str, b: str, than: tuple[str, str], measure: str | None = None) -> Document:
    """Decide whether a and b are closer than c and d, by one measure, or by all four, which must then agree."""
    vectors = tuple(map(vector, (a, b, *than)))
    names = _label_compared_vectors(*vectors)
    steps, values, sides = [], {}, {}
    for m in _choose_similarity_measures(measure):
        first = measured(m, vectors[0].entries, vectors[1].entries)
        second = measured(m, vectors[2].entries, vectors[3].entries)
        # A larger order means that the vectors are more alike.
        sides[m] = second.order < first.order
        steps.append(
            Step(
                _write_similarity_order(m, names, first, second),
                ("closer" if sides[m] else "not closer",),
                _CHECKED,
            )
        )
        values[m] = {"first": first, "second": second, "closer": sides[m]}
    # Without a measure all four have to agree.
    holds = all(sides.values())
    parts = (
        ("true", [_CALLED[m] for m in sides if sides[m]]),
        ("false", [_CALLED[m] for m in sides if not sides[m]]),
    )
    said = ", ".join(f"{word} of {enumerated(which)}" for word, which in parts if which)
    verdict = Result(said, (), (_CHECKED if holds else _REFUTED,))
    words = [a, b, "--than", *than]
    blocks = [*_state_compared_vectors(names, *vectors), Steps(tuple(steps)), verdict]
    return _make_claim_document("closer", "Are they closer?", words, blocks, holds, values, measure)


def equal(a: str, b: str) -> Document:
    """Decide whether two expressions, or two vectors or matrices of expressions, are equal."""
    if is_vector(a) or is_vector(b):
        return _compare_claimed_vectors(a, b)
    if not a.lstrip().startswith("[") and not b.lstrip().startswith("["):
        equality = compare(a, b)
        return _make_equality_document(
            a, b, _make_blocks_of_equality(equality), equality.holds, _equality_record(equality)
        )
    left, right = brackets(a), brackets(b)
    size, other = shape(left, a), shape(right, b)
    if 0 in size or 0 in other:
        raise InputError(
            f"{short(a if 0 in size else b)!r} has no entries to compare; hint: [1, 2] or [[1], [2]]"
        )
    if size != other:
        return _make_misfit_document(a, b, f"The shapes differ: {size} and {other}.", size, other)
    # Places in the order in which ``flat`` lists the entries.
    places = [""]
    for n in size:
        places = [f"{place}[{i + 1}]" for place in places for i in range(n)]
    cells = zip(places, flat(left), flat(right), strict=True)
    return _entry_by_entry(
        a,
        b,
        [(at, compare(x, y)) for at, x, y in cells],
    )


def shape(entries: object, text: str) -> tuple[int, ...]:
    """Return the lengths of nested lists. Raises InputError if they are ragged."""
    if not isinstance(entries, list):
        return ()
    shapes = {shape(entry, text) for entry in entries}
    if len(shapes) > 1:
        raise InputError(f"{short(text)!r} is ragged: its rows have different lengths")
    return (len(entries), *(shapes.pop() if shapes else ()))


def _make_equality_document(
    a: str, b: str, blocks: list[Block], holds: bool | None, values: Record
) -> Document:
    return _make_claim_document("equal", "Are they equal?", [a, b], blocks, holds, values)


def _make_misfit_document(a: str, b: str, words: str, *shapes: tuple[int, ...]) -> Document:
    blocks: list[Block] = [
        Result("false", (), (Evidence(Grade.REFUTED, "shapes"),)),
        Paragraph((words,)),
    ]
    return _make_equality_document(a, b, blocks, False, {"shapes": list(map(list, shapes))})


def _make_true_result(where: str) -> list[Block]:
    return [Result("true", (), (Evidence(Grade.CHECKED, where),))]


def _entry_by_entry(
    a: str,
    b: str,
    results: list[tuple[str, Equality]],
    instead: Text = (),
    notes: Iterable[Block] = (),
) -> Document:
    """Say which entries differ, or are undecided; ``instead`` and ``notes`` are added if any differ."""
    wrong = [(place, x) for place, x in results if x.holds is False]
    unknown = [(place, x) for place, x in results if x.holds is None]
    # The first is printed with its grade: an open question, before what a search has left open.
    unknown.sort(key=lambda entry: entry[1].evidence.grade is Grade.SEARCHED)
    holds = False if wrong else None if unknown else True
    blocks = _make_true_result(f"{counted(len(results), 'entry', 'entries')}, each by itself")
    if not holds:
        place, first = (wrong or unknown)[0]
        verdict_of_entries = "differ" if wrong else "are undecided"
        count = f"{len(wrong or unknown)} of {len(results)} entries {verdict_of_entries}"
        blocks = [*_make_blocks_of_equality(first), Paragraph((f"{count}; the first is {place}.",))]
        blocks += [*([Paragraph(instead)] if instead else ()), *notes] if wrong else []
    record = {
        "differing": {place: _equality_record(x) for place, x in wrong},
        "undecided": [place for place, _ in unknown],
    }
    return _make_equality_document(a, b, blocks, holds, record)


def _compare_claimed_vectors(a: str, b: str) -> Document:
    """Compare sums of vectors and softmax entry by entry; digits compared with a softmax may have been rounded."""
    texts = (a, b)
    left, right = ([str(x) for x in vector_entries(text)] for text in texts)
    if len(left) != len(right):
        words = f"The lengths differ: {len(left)} and {len(right)}."
        return _make_misfit_document(a, b, words, (len(left),), (len(right),))
    result = [compare(x, y) for x, y in zip(left, right, strict=True)]
    digits = _digits_of_softmax(a, b)
    # Digits that are compared with a softmax may be rounded; other entries must be equal.
    close = [
        f.holds is True
        or (f.a is not None and f.b is not None and rounds_to(f.a if d == 1 else f.b, t))
        for f, (d, t) in zip(result, digits or [(0, "0")] * len(result), strict=True)
    ]
    if all(f.holds is True for f in result):
        return _make_equality_document(
            a,
            b,
            _make_true_result(f"{counted(len(result), 'entry', 'entries')}, each by itself"),
            True,
            {"differing": {}},
        )
    if digits and all(close):
        return _make_equality_document(
            a, b, _make_true_result("as rounded digits"), True, {"rounded": True}
        )
    off = [text_ for (_, text_), ok in zip(digits, close, strict=False) if not ok]
    # If nothing but digits is wrong, the document names the right digits.
    if any(map(half_unit, off)) and all(
        ok or f.holds is False for f, ok in zip(result, close, strict=True)
    ):
        return _wrong_digits(a, b, result, close, digits)
    # Entries that round to their digits count as equal.
    judged = zip(result, close, strict=True)
    rounded = [replace(f, holds=True) if ok else f for f, ok in judged]
    notes = (
        [_ONE_DIGIT] if any("." in text_ for text_ in off) and not any(map(half_unit, off)) else []
    )
    numbered = [(f"[{i}]", x) for i, x in enumerate(rounded, 1)]
    return _entry_by_entry(a, b, numbered, _name_right_value(result), notes)


def _digits_of_softmax(a: str, b: str) -> list[tuple[int, str]]:
    """Return the digits of a plain list of decimals that is compared with a softmax, with its side (1: b), or []."""
    for side, (text_, other) in enumerate(((a, b), (b, a))):
        if "softmax" in other and text_.strip().startswith("[") and not is_vector(text_):
            texts = [str(x).strip() for x in brackets(text_)]
            return [(side, x) for x in texts]
    return []


def _wrong_digits(
    a: str, b: str, results: list[Equality], close: list[bool], digits: list[tuple[int, str]]
) -> Document:
    """Say which digits are not the rounded numbers, and give the right ones."""
    wrong = {
        f"[{i}]": (f, *d)
        for i, (f, ok, d) in enumerate(zip(results, close, digits, strict=True), 1)
        if not ok
    }
    # A number without digits to round is not shown.
    place, (first, side, result) = next((at, of) for at, of in wrong.items() if half_unit(of[2]))
    true = first.a if side == 1 else first.b
    assert true is not None
    verb = "do" if len(wrong) > 1 else "does"
    count = f"{len(wrong)} of {len(results)} entries {verb} not round to the digits given"
    places = last_place(result)
    # As many digits as were given.
    instead = Decimal(nearest(true, places).decimal(places + 1))
    words: Text = (f"{count}; {place} is not {result}, but ", instead, ", rounded.")
    blocks = [*_make_blocks_of_equality(first), Paragraph(words)]
    record = {
        "differing": {at: _equality_record(f) for at, (f, *_) in wrong.items()},
        "undecided": [],
    }
    return _make_equality_document(a, b, blocks, False, record)


def _name_right_value(results: list[Equality]) -> Text:
    """Name the difference of the sides, and the first side's right value."""
    gaps = [x.difference for x in results]
    values = [x.b for x in results]
    too_many = len(results) > _MOST_SHOWN
    # Balls and counterexamples have no single difference.
    if None in gaps or too_many or any(x.point for x in results):
        return ()
    difference, instead = (
        Commas(tuple(x.notation() for x in xs if x is not None)) for xs in (gaps, values)
    )
    return ("The difference is (", difference, "); true would be (", instead, ").")


def _make_blocks_of_equality(equality: Equality) -> list[Block]:
    title = {True: "true", False: "false", None: "undecided"}[equality.holds]
    if equality.holds is None:
        # Searched and not refuted is more than undecided.
        title = "not refuted" if equality.evidence.grade is Grade.SEARCHED else title
        return [Result(title, (), (equality.evidence,))]
    point = equality.point.items()
    formulas: list[Node] = [equals(Name(x), value) for x, value in point]
    a, b = Name("a", bold=True), Name("b", bold=True)
    # Sides that leave the exact field are shown in digits.
    if equality.near:
        decimals = zip((a, b), equality.near, strict=True)
        formulas += [Relation(x, (("≈", Decimal(n)),)) for x, n in decimals]
    elif equality.a is not None and equality.b is not None:
        sides: list[tuple[Node, Quotient]] = [(equals(a, b), equality.a)]
        if not equality.holds:
            sides = [
                (equals(a), equality.a),
                (equals(b), equality.b),
                (a - b, equality.a - equality.b),
            ]
        formulas += [_relate_to_rounded_digits(x, y) for x, y in sides]
    blocks: list[Block] = [Result(title, tuple(formulas), (equality.evidence,))]
    # Without a value it is an identity in its letters.
    if equality.holds and equality.a is None:
        blocks.append(Paragraph(("For all real letters, wherever both sides are defined.",)))
    return blocks


def _relate_to_rounded_digits(left: Node, x: Quotient) -> Relation:
    """Return left = x ≈ digits, with x or the digits alone if x is too long or already decimal."""
    if isinstance(left, Relation):
        first, rest = (left.first, left.rest)
    else:
        first, rest = (left, ())
    written, shown = x.notation(), decimal(x, 9)
    sides = (*rest, ("=", written)) if len(text(written)) <= _LONGEST else rest
    # The same digits are not written twice.
    said = sides != rest and text(shown) == text(written)
    return Relation(first, sides if said else (*sides, (_choose_equality_sign(x, shown), shown)))


def _choose_equality_sign(x: Quotient, shown: Node) -> str:
    """Return "=" if the digits are exact, else "≈"."""
    return "=" if isinstance(shown, Decimal) and x == Quotient.of(shown.digits) else "≈"


def _equality_record(equality: Equality) -> Record:
    record: Record = {"grade": equality.evidence.grade, "where": equality.evidence.where}
    if equality.a is not None and equality.b is not None:
        record |= {
            "a": str(equality.a),
            "b": str(equality.b),
            "difference": str(equality.a - equality.b),
        }
    if equality.near:
        record |= {"a": equality.near[0], "b": equality.near[1]}
    point = {x: str(value) for x, value in equality.point.items()}
    return record | ({"at": point} if equality.point else {})


def _write_sum_of_row(row: list[Quotient], total: Quotient) -> Node:
    """Return the sum written out: 3/10 + 7/10 + 1/10 = 11/10."""
    terms = Sum(tuple(x.notation() for x in row))
    relation = equals(terms, total.notation())
    few = len(row) <= _MOST_SHOWN
    short_enough = few and len(text(relation)) <= 2 * _LONGEST
    return relation if short_enough else _relate_to_rounded_digits(Name("Σ"), total)


def _say_weights(row: list[Quotient], total: Quotient, negative: list[Quotient]) -> list[Text]:
    says: list[Text] = []
    if negative:
        count = counted(len(negative), "number is", "numbers are")
        # Softmax weights are positive, whatever their sum.
        first = negative[0].notation()
        says.append((f"{count} negative, the first ", first, "; softmax weights are positive."))
    if total != 1:
        gap = total - 1
        says.append(
            (
                "Softmax sums to 1; this is ",
                abs(gap).notation(),
                " more" if gap.sign() > 0 else " less",
                ".",
            )
        )
    rescaled = _rescale_row_to_one(row, total, negative)
    # A long row is no help.
    if rescaled and len(rescaled) <= _MOST_SHOWN:
        says.append(("Rescaled: ", Commas(tuple(x.notation() for x in rescaled)), "."))
    return says


def _rescale_row_to_one(
    row: list[Quotient], total: Quotient, negative: list[Quotient]
) -> list[Quotient]:
    nothing_to_rescale = negative or total.is_zero() or total == 1
    return [] if nothing_to_rescale else [x / total for x in row]


def _format_quotients_as_text(xs: list[Quotient]) -> list[str]:
    return [str(x) for x in xs]


def _choose_similarity_measures(measure: str | None) -> tuple[str, ...]:
    if measure is None:
        return MEASURES
    if measure not in MEASURES:
        raise InputError(
            f"unknown measure {short(measure)!r}.{near(measure, MEASURES)} Known: {', '.join(MEASURES)}"
        )
    return (measure,)


def _label_compared_vectors(*vectors: Vector) -> tuple[Name, ...]:
    """Return the names of tokens if they differ, else a, b, c, d."""
    labels = [v.label for v in vectors]
    if all(labels) and len(set(labels)) == len(labels):
        return tuple(map(Name, labels))
    return tuple(Name(letter, bold=True) for letter in "abcd"[: len(vectors)])


def _state_compared_vectors(names: tuple[Name, ...], *vectors: Vector) -> list[Block]:
    """Give the meanings of the letters."""
    if any(len(v.entries) > _MOST_SHOWN for v in vectors):
        return []
    lines = [
        equals(x, Commas(tuple(e.notation() for e in v.entries)))
        for x, v in zip(names, vectors, strict=True)
    ]
    return [
        Steps(
            tuple(
                Step(line, (v.label,) if v.label else ())
                for line, v in zip(lines, vectors, strict=True)
            )
        )
    ]


def _write_similarity_value(measure: str, names: tuple[Name, ...], value: Likeness) -> Node:
    left = call(SYMBOLS[measure], *names[:2])
    if value.exact is None:
        return Relation(left, (("≈", value.rounded()),))
    sides = (("=", value.node()),)
    # Digits that are the number itself are not repeated.
    if text(value.node()) == text(value.rounded()):
        return Relation(left, sides)
    sign = _choose_equality_sign(value.exact, Decimal(value.digits))
    return Relation(left, (*sides, (sign, value.rounded())))


def _write_similarity_order(
    measure: str, names: tuple[Name, ...], first: Likeness, second: Likeness
) -> Node:
    """Return the comparison: dot(a, b) = 123/100 < 157/100 = dot(c, d)."""
    larger = measure in ("dot", "cosine")
    order = (first.order - second.order).sign() * (1 if larger else -1)
    sign = {1: ">", 0: "=", -1: "<"}[order]
    halves = (names[:2], names[2:])
    left, right = (call(SYMBOLS[measure], *pair) for pair in halves)
    # Long formulas would hide the order, so digits stand for them.
    short_enough = all(v.exact is not None and len(text(v.node())) <= 12 for v in (first, second))
    near = (
        ("≈", first.rounded(), second.rounded())
        if not short_enough
        else ("=", first.node(), second.node())
    )
    middle = (sign, near[2])
    links = ((near[0], near[1]), middle, (near[0], right))
    return Relation(left, links)


def _make_claim_document(
    name: str,
    title: str,
    names: list[str],
    blocks: list[Block],
    holds: bool | None,
    values: Record,
    measure: str | None = None,
) -> Document:
    entries = record({"claim": " ".join([name, *names]), "holds": holds, "values": values})
    return Document(
        "claim",
        name,
        (title,),
        tuple(blocks),
        record=entries,
        command=command("claim", name, *names, options={"measure": measure}),
    )
