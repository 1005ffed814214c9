"""Files for Coq: the equations of certificates with their hints, and the statement of each for readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from symattn.document.errors import Refused
from symattn.proof.checker_means import bodies, read_means
from symattn.proof.checker_reading import CheckedNode, Record, Rejected, array_of, in_place, read
from symattn.proof.checker_signs import Signs
from symattn.proof.checker_simplifying import Simplifying, sides
from symattn.proof.coq import coq_printing
from symattn.proof.coq.readable import Meant, Readable, Stated, Supposed, readable
from symattn.proof.coq.steps import CoqStep, in_order, is_positive, steps
from symattn.proof.coq.terms import Names, Scope, Term, circles, number, term

_MEANS = "Coq is given no expectations: E, Var and Cov of the theorem were computed first, by cumulants of the laws"
HEAD = """From Coq Require Import Reals List.
From Symattn Require Import Reading.
Import ListNotations.
"""


@dataclass(frozen=True)
class Lemma:
    """One equation: the name of its theorem, the whole text, and the statement for readers; or why there is none.

    ``alike`` says that both sides are one term, so that the definitions made them equal before Coq saw
    them; ``empty`` that both are 0.
    """

    name: str
    text: str = ""
    readable: Readable | None = None
    why: str = ""
    names: Names = field(default_factory=Names)
    alike: bool = False
    empty: bool = False

    @property
    def proposition(self) -> str:
        """The statement of the theorem, with the full stop after it; without one, False."""
        return (
            self.readable.statement.partition(f"Theorem {self.name} :")[2]
            if self.readable
            else " False."
        )


def lemma_of(
    stated: Stated, result: Readable, before: Iterable[Lemma] = (), shown: str = ""
) -> Lemma:
    """Return the lemma of a statement, after the lemmas that it uses and the text ``shown``."""
    lemmas = [x.text for x in before]
    text = "".join((*lemmas, shown, f"{result.statement}\n{result.proof}\n"))
    alike = stated.left == stated.right
    empty = alike and str(stated.left) == "(Num 0)"
    return Lemma(stated.name, text, result, names=stated.names, alike=alike, empty=empty)


def lemma(
    name: str,
    equation: Record,
    rules: Sequence[Any],
    positive: Sequence[str],
    regroup: bool = False,
) -> Lemma:
    """Return the lemma of an equation; ``rules`` are the pairs (cos, sin), ``positive`` the positive arrays."""
    names, sorts, scope, free = free_of(equation)
    try:
        # The checker's own simplification comes first, as it saw the equation.
        left, right = (term(x, scope, names) for x in simplified(equation, sorts, positive))
    except (Refused, Rejected) as reason:
        return Lemma(name, why=str(reason))
    stated = Stated(
        name,
        names,
        free,
        "=",
        left,
        right,
        _numbers_of_coq_names(names, positive),
        (),
        tuple(circles(rules, names)),
    )
    result = equated(stated, regroup)
    # A mean is printed with a sentence on what it is.
    means = any(bodies(read(equation[side], sorts)) for side in ("left", "right"))
    readable = result.readable
    return (
        replace(result, readable=replace(readable, words=(_MEANS, *readable.words)))
        if means and readable
        else result
    )


def bound(
    name: str, sign: Record, conclusion: Mapping[str, object], regroup: bool = False
) -> Lemma:
    """Return the lemma of an inequality that a certificate of a sign concludes."""
    try:
        stated, why = bounded(name, sign, conclusion, Names())
    except (Refused, Rejected) as reason:
        return Lemma(name, why=str(reason))
    return shown_by(stated, why, regroup)


def bounded(name: str, sign: Record, conclusion: Record, names: Names) -> tuple[Stated, Term]:
    """Return the conclusion of a certificate of a sign, and the difference of the sides, visibly nonnegative.

    Raises Refused if Coq has no word for it.
    """
    _, sorts, scope, free = free_of(sign, names)
    positive = tuple(map(str, sign["positive"]))
    both = {"left": conclusion["smaller"], "right": conclusion["larger"]}
    left, right = (term(x, scope, names) for x in simplified(both, sorts, positive))
    known = frozenset(map(str, sign["not negative"]))
    signs = Signs({}, frozenset(positive), known)
    meant = {
        str(m["letter"]): ([i for i, _ in m["free"]], data(_simplify_letter_meaning(m, positive)))
        for m in sign["meant"]
    }
    signed = shaped(read(sign["expression"], sorts), signs)
    why = term(read(in_place(signed, meant), sorts), scope, names)
    laws = {str(name): str(law) for name, law in sign["laws"]}
    result = [
        (array_of(str(m["letter"])), _meaning_as_ordered_term(m, names, positive))
        for m in sign["meant"]
    ]
    stated = Stated(
        name,
        names,
        free,
        # > is strict, ≥ is not.
        "<" if sign["relation"] == ">" else "<=",
        left,
        right,
        # Signs that follow from a law need no assumption.
        given=tuple(m for array, m in result if array in known and array not in laws),
        lawful=tuple(m for array, m in result if array in laws),
        supposed=Supposed("log" in names.functions, frozenset(laws.values())),
    )
    only = [m for name in sign["only"] for m in _meanings_of_coq_name(str(name), result, names)]
    # Where both sides are equal, terms of the gap are 0.
    stated = replace(stated, only=tuple(forced_to_0(why, free, m) for m in only))
    return with_arrays(stated, positive, known, sign["rules"]), why


def _meanings_of_coq_name(
    name: str, results: Iterable[tuple[str, Meant]], names: Names
) -> list[Meant]:
    """Return the meaning of a name, or the entries of the array. Raises Refused if there is neither."""
    letters = [(names.arities[n], n) for n in names.with_name(name)]
    meant = [m for array, m in results if array == name]
    if not (meant or letters):
        raise Refused(
            f"coq: it says that both sides are equal only where {name} is 0, which does not occur in it"
        )
    return meant or [(sorts, Term("Letter", (n, *range(len(sorts))))) for sorts, n in letters]


def with_arrays(
    stated: Stated, positive: Sequence[str], known: Iterable[str], rules: Sequence[Sequence[str]]
) -> Stated:
    """Return ``said`` with the declarations of its arrays: positive, not negative, or cosines and sines."""
    least = tuple(
        n
        # A positive array is not listed twice.
        for k, n in stated.names.arrays.items()
        if array_of(k[0]) in known and k[0] not in positive
    )
    plus = _numbers_of_coq_names(stated.names, positive)
    pairs = tuple(circles(rules, stated.names))
    return replace(stated, plus=plus, least=least, circles=pairs)


def shown_by(stated: Stated, why: Term, regroup: bool) -> Lemma:
    """Return the lemma of a bound whose sides differ by ``why``."""
    negated = Term("Mul", (), (number(-1), stated.left))
    gap = Term("Add", (), (stated.right, negated))
    plus = frozenset(stated.plus)
    without_logs = unlogged(why, stated.names.functions.get("log"), plus)
    return _make_checked_lemma(
        stated, "bounds", steps(stated.free, (gap, without_logs), plus, regroup), regroup, why
    )


def written_term(data: object, sorts: Mapping[str, str], scope: Scope, names: Names) -> Term:
    """Return an expression of a certificate, simplified, as a term."""
    return term(Simplifying(frozenset())(read(data, sorts)), scope, names)


def free_of(
    x: Record, names: Names | None = None
) -> tuple[Names, dict[str, str], Scope, tuple[int, ...]]:
    """Return names for an equation, the sorts of its free indices, and these as a scope and by number."""
    names = names or Names()
    sorts = {str(name): str(sort) for name, sort in x["free"]}
    own_sorts = sorts.items()
    scope = tuple((i, names.sort(sort)) for i, sort in own_sorts)
    return names, sorts, scope, tuple(sort for _, sort in scope)


def _meaning_as_ordered_term(meant: Record, names: Names, positive: Sequence[str]) -> Meant:
    """Return the meaning of a letter that is assumed not to be negative."""
    scope = tuple((str(i), names.sort(str(sort))) for i, sort in meant["free"])
    return in_order(
        term(_simplify_letter_meaning(meant, positive), scope, names),
        tuple(sort for _, sort in scope),
    )


def _simplify_letter_meaning(meant: Record, positive: Sequence[str]) -> CheckedNode:
    """Return a letter's meaning, simplified as the sides are: sign(−x) and −sign(x) are written alike."""
    sorts = {str(i): str(s) for i, s in meant["free"]}
    return Simplifying(frozenset(positive))(read(meant["expression"], sorts))


def _numbers_of_coq_names(names: Names, words: Sequence[str]) -> tuple[int, ...]:
    return tuple(n for word in words for n in names.with_name(word))


def equated(stated: Stated, regroup: bool) -> Lemma:
    """Return the lemma of an equation."""
    return _make_checked_lemma(
        stated,
        "accepts",
        steps(stated.free, stated.sides, frozenset(stated.plus), regroup),
        regroup,
    )


def _make_checked_lemma(
    stated: Stated, by: str, hints: Sequence[CoqStep], regroup: bool, why: Term | None = None
) -> Lemma:
    logs = [n for f, n in stated.names.functions.items() if f == "log"]
    # An equation needs no lists of signs.
    lists = [
        _format_coq_list(map(str, x))
        for x in ((stated.plus, stated.least, logs) if why else (stated.plus,))
    ]
    lists.append(_format_coq_list(map(str, stated.circles)))
    if why:
        lists.append(
            _format_coq_list(
                f"({_format_coq_list(map(str, sorts))}, {x})"
                for sorts, x in (*stated.given, *stated.lawful)
            )
        )
    strict = [] if why is None else ["true" if stated.relation == "<" else "false"]
    # More rounds of rewriting where sums are regrouped.
    numbers = f"{len(stated.names.sorts)} {6 if regroup else 1}"
    free = _format_coq_list(map(str, stated.free))
    sides = " ".join(
        coq_printing.auxiliary(stated.name, what)
        for what in ("left", "right", *(("why",) if why else ()))
    )
    hinted = coq_printing.auxiliary(stated.name, "steps")
    result = " ".join((by, *lists, *strict, numbers, hinted, free, sides))
    shown = [f"Definition {coq_printing.auxiliary(stated.name, 'why')} := {why}."] if why else []
    shown.append(f"Definition {hinted} : list step := {_format_coq_list(map(str, hints))}.")
    # Computed by Coq's kernel: the lemma holds if the checker in Coq says true.
    shown.append(_write_computed_lemma(coq_printing.auxiliary(stated.name, "accepted"), result))
    for n, (more, x) in enumerate(stated.only, 1):
        where = " ".join(
            (
                "forces",
                *lists,
                numbers,
                hinted,
                free,
                _format_coq_list(map(str, more)),
                sides,
                str(x),
            )
        )
        shown.append(_write_computed_lemma(coq_printing.auxiliary(stated.name, f"only_{n}"), where))
    return _make_readable_lemma(stated, "\n".join(shown))


def _write_computed_lemma(name: str, message: str) -> str:
    """Write what Coq decides by computation."""
    return f"Lemma {name} :\n  {message} = true.\nProof. vm_cast_no_check (eq_refl true). Qed."


def _make_readable_lemma(stated: Stated, shown: str) -> Lemma:
    """Return the text of a lemma, from its sides to the statement for readers."""
    result = readable(stated)
    both = zip(("left", "right"), stated.sides, strict=True)
    sides = "".join(
        f"Definition {coq_printing.auxiliary(stated.name, side)} := {x}.\n" for side, x in both
    )
    text = f"Open Scope nat_scope.\n{sides}{shown}\nClose Scope nat_scope.\nOpen Scope R_scope.\n"
    return lemma_of(stated, result, (), text)


def simplified(
    equation: Record, sorts: Mapping[str, str], positive: Sequence[str]
) -> tuple[CheckedNode, CheckedNode]:
    """Return both sides simplified by ``checker_simplifying``: the theory has no rules for roots and permutations."""
    simplify = Simplifying(frozenset(map(str, positive)))
    left, right = (simplify(read_means(equation[side], sorts)) for side in ("left", "right"))
    return sides(left, right, sorts)


def _format_coq_list(parts: Iterable[str]) -> str:
    return f"[{'; '.join(parts)}]"


# -- bounds ------------------------------------------------------------------------------------------------------------
# Write the gap of an inequality in a form that Coq recognises as nonnegative: see ``at_least_0`` in ``Bounding.v``.
#
# The checker accepts a few more forms. So equal factors are paired into squares, and e^u − 1 − u, or e^u − 1 with u not
# negative, is written as e^u − (u + 1), plus u.

Data = list[Any]
ONE: Data = ["number", "1"]
LESS: Data = ["number", "-1"]


def shaped(x: CheckedNode, signs: Signs) -> Data:
    """Return ``x`` in a form that Coq recognises as nonnegative."""
    if x.kind == "product":  # with equal factors in pairs
        by_form = {y.own_form: y for y in x.below}
        times = Counter(y.own_form for y in x.below)
        pairs = [
            ["product", data(by_form[key]), data(by_form[key])]
            for key, n in times.items()
            for _ in range(n // 2)
        ]
        return [
            "product",
            *pairs,
            *[shaped(by_form[key], signs) for key, n in times.items() if n % 2],
        ]
    if x.kind == "sum":
        parts = signs.above_tangent(x)  # e^u − 1 − u + …, or e^u − 1 + … with u ≥ 0
        if parts is None:
            return ["sum", *[shaped(y, signs) for y in x.below]]
        u = data(parts[0])
        beyond = [shaped(y, signs) for y in parts[1]]
        return ["sum", ["sum", ["exp", u], ["product", LESS, ["sum", u, ONE]]], *beyond]
    if x.kind == "total":
        return ["total", x.label, x.sorts[0], shaped(x.below[0], signs)]
    if x.kind == "ratio":
        return ["ratio", shaped(x.below[0], signs), data(x.below[1])]
    return data(x)


def forced(x: Term) -> Iterator[tuple[tuple[int, ...], Term]]:
    """Yield terms that may be 0 where ``x`` is, with the sorts of their places, as ``forced`` in ``Bounding.v``."""
    yield (), x
    if x.head == "Sum":
        inner = forced(x.below[0])
        yield from (((*more, x.numbers[0]), y) for more, y in inner)
    elif x.head in ("Add", "Mul", "Div"):
        # A quotient is 0 where its numerator is.
        for y in x.below[:1] if x.head == "Div" else x.below:
            yield from forced(y)
            # e^u + … is at its bound where u is 0.
            if x.head == "Add" and y.head == "Exp":
                yield (), y.below[0]


def forced_to_0(why: Term, free: tuple[int, ...], wanted: Meant) -> tuple[tuple[int, ...], Term]:
    """Return the wanted term as it occurs in ``why`` over the most sorts. Raises Refused if it does not occur."""
    forced_terms = forced(why)
    result = [(more, x) for more, x in forced_terms if in_order(x, (*more, *free)) == wanted]
    if not result:
        raise Refused("coq: it says where both sides are equal, which is not seen")
    return max(result, key=lambda each: len(each[0]))


def unlogged(x: Term, log: int | None, plus: frozenset[int]) -> Term:
    """Rewrite e^(u + log y) as e^u y if y is positive by its form, as ``unlogged`` in ``Bounding.v``."""
    if x.head == "Exp":
        return _exponentiate_coq_term(x.below[0], log, plus)
    if x.head in ("Add", "Mul", "Sum"):
        parts = tuple(unlogged(y, log, plus) for y in x.below)
        return Term(x.head, x.numbers, parts)
    # A divisor stays as it is.
    if x.head == "Div":
        return Term("Div", (), (unlogged(x.below[0], log, plus), x.below[1]))
    return x


def _exponentiate_coq_term(x: Term, log: int | None, plus: frozenset[int]) -> Term:
    if x.head == "Add":
        # e^(a + b) = e^a e^b.
        return Term("Mul", (), tuple(_exponentiate_coq_term(y, log, plus) for y in x.below))
    if (y := _argument_of_logarithm(x, log, plus)) is not None:
        return y
    # e^(−log y) = 1/y.
    if (
        x.head == "Mul"
        and x.below[0] == number(-1)
        and (y := _argument_of_logarithm(x.below[1], log, plus)) is not None
    ):
        return Term("Div", (), (number(1), y))
    return Term("Exp", (), (x,))


def _argument_of_logarithm(x: Term, log: int | None, plus: frozenset[int]) -> Term | None:
    if x.head != "Fun" or x.numbers[0] != log or [a.head for a in x.below] != ["One"]:
        return None
    (y,) = x.below[0].below
    return y if is_positive(y, plus) else None


def data(x: CheckedNode) -> Data:
    """Return an expression as stored in a certificate."""
    if x.kind == "number":
        return ["number", str(x.label)]
    if x.kind == "size":
        return ["size", x.label]
    if x.kind == "letter":
        return ["letter", x.label, [list(i) for i in x.indices]]
    if x.kind == "is":
        return ["is", x.label, *[list(i) for i in x.indices]]
    below = [data(y) for y in x.below]
    # Bound indices have a sort.
    if x.kind in ("total", "bound"):
        return [x.kind, x.label, x.sorts[0], *below]
    if x.kind == "function":
        return [x.kind, x.label, *below]
    return [x.kind, *below]
