"""Certificates: the steps of a proof as plain data, which can be stored as JSON and checked by ``checker``.

Every proof counts only if the checker accepts its certificate, whether or not the certificate is requested. Premises
other than equations are signs by form, places where two sides differ, equal bits, and conclusions.

An expression is a list that starts with its kind:

    ["number", "3/2"]  ["size", sort]  ["letter", name, [index, …]]  ["is", relation, index, index]
    ["sum", …]  ["product", …]  ["ratio", a, b]  ["exp", a]  ["total", name, sort, body]
    ["function", name, …]  ["bound", name, sort, body]  ["masked", allowed, value]

A mean is ["function", "mean", of, law, …], with the law of each random array (see ``checker_means``).

An index is a list: the name of its variable, then the names of the permutations applied to it, in order. The sides
of an equation or inequality are stored before any simplification; its numerator and divisors are simplified.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from random import Random
from typing import Any

from symattn.arrays.index import expressions
from symattn.arrays.index import expressions as ex
from symattn.arrays.index.building import simplified
from symattn.arrays.index.writing import named
from symattn.document.codec import Record
from symattn.document.errors import InputError
from symattn.document.evidence import Evidence, Grade
from symattn.proof.checker import CertificateVerdict, check
from symattn.proof.counting import nodes
from symattn.proof.prover import ElementEquation, Proof
from symattn.proof.signs import needed


@dataclass(frozen=True)
class Sign:
    """The premise ``expression`` > 0 or ≥ 0, by its form with the arrays in ``known`` never negative, or as a number.

    ``meant`` holds the meanings of letters, expressions with their own indices; with these in their place the
    expression is ``equal``. ``laws`` names the law by which the meaning of an array in ``known`` is not negative;
    without a law, that is a hypothesis. ``sides`` are the smaller and the larger side, whose gap it is; they are equal
    only if all entries of the arrays in ``only`` are 0. For ``rules`` see ``Proof``.
    """

    relation: str
    expression: expressions.Expression
    equal: expressions.Expression
    sides: tuple[expressions.Expression, expressions.Expression]
    known: frozenset[str] = frozenset()
    meant: tuple[tuple[expressions.Letter, expressions.Expression], ...] = ()
    laws: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Differing:
    """The premise that ``left`` and ``right`` are not always equal, at some place of ``sizes``; see ``Proof.rules``."""

    indices: tuple[expressions.Index, ...]
    left: expressions.Expression
    right: expressions.Expression
    sizes: tuple[tuple[str, int], ...]
    rules: tuple[tuple[str, str], ...] = ()


Part = tuple[str, expressions.Expression, tuple[expressions.Index, ...]]


@dataclass(frozen=True)
class Alike:
    """The premise that both of ``same`` do the same operations, and both of ``different`` differ for ``inputs``.

    The inputs are in the format ``of``. ``terms`` are (operation, operand, …), whose operands are places of earlier
    terms, or ("input", place), or ("number", number). ``same`` and ``different`` are places of terms.
    """

    terms: tuple[tuple[Any, ...], ...]
    same: tuple[tuple[int, ...], tuple[int, ...]]
    different: tuple[tuple[int, ...], tuple[int, ...]]
    of: str
    inputs: tuple[Fraction, ...]


@dataclass(frozen=True)
class Concluded:
    """A step by a rule of ``checker_steps`` from ``premises`` to ``conclusions``, whose parts ``PARTS`` names.

    ``about`` holds the rule's other data by name: for an *induction* the ``letter`` for a number, the ``sort`` of the
    size, and the expressions ``term`` and ``closed`` of its conclusion; for a *limit* the ``letter``, the value 0 or ∞
    that it tends ``to``, and whether it is a growing ``size``; for an *instance* a ``sort`` and its ``length``. The
    conclusions of other rules consist of parts, each a letter, its meaning and its indices:
    *fold*          a ``state`` along a ``sort``, its ``merge``, the output ``made`` from a state at the end, and the
                    ``result`` that it equals; for ``arrays`` and ``numbers`` see ``rules.Fold``
    *substitution*  ``left`` is ``through`` with ``equal`` for its letters, and ``right`` is it with ``to`` for them;
                    that ``equal`` and ``to`` are equal is a hypothesis
    *repeated*      a ``measure`` of a ``letter`` shrinks by ``factor`` when ``step`` replaces ``now``, an ``array``;
                    it ``tends`` to 0 or not
    """

    rule: str
    premises: tuple[Proof | Premise, ...] = ()
    conclusions: tuple[tuple[expressions.Expression, ...], ...] = ()
    about: Mapping[str, About] = field(default_factory=dict, hash=False)


About = str | bool | expressions.Expression | Part | tuple[str, ...] | tuple[Part, ...]
Premise = Sign | Differing | Alike | Concluded


# The checker refuses any other number.
SCHEMA = 1
_SIDES = ("left", "right")
PARTS = {
    "largest": ("smaller", "larger"),
    "limit": ("of", "form", "value"),
    "instance": ("left", "form", "right"),
}
"""The parts of the conclusions of rules; a conclusion of any other rule has two sides."""


def certificate(proof: Proof) -> Record:
    """Return the record of a proof. Raises InputError if the proof failed: there is nothing to certify."""
    if not proof.proved:
        raise InputError("only a proof that succeeded has a certificate")
    # Both sides as text, once, since letters are collected from them too.
    sides = [case.written for case in proof.cases]
    return {
        "schema": SCHEMA,
        "kind": "certificate",
        "rules": [list(pair) for pair in proof.rules],
        "positive": sorted(
            {name for pair in sides for side in pair for name in _collect_positive_letters(side)}
        ),
        "assumed": list(proof.notes),
        "hypotheses": [_record_hypothesis(d.relation, d.expression) for d in proof.demands],
        "equations": [
            _record_element_equation(case, *pair)
            for case, pair in zip(proof.cases, sides, strict=True)
        ],
    }


def by_definition(case: ElementEquation) -> bool:
    """Return whether both sides are the same expression before simplification: then nothing is left to prove."""
    names = numbered(case.indices)
    left, right = (written(side, names) for side in case.written)
    return left == right


def premise(x: Premise) -> Record:
    """Return the record of a premise that is not an equation."""
    kind, write = _WRITERS[type(x)]
    return {"schema": SCHEMA, "kind": kind, **write(x)}


def _parts_with_indices(
    indices: Sequence[expressions.Index], **parts: expressions.Expression
) -> Record:
    """Return the parts of one statement, with the free indices that they share."""
    names = numbered(indices)
    parts_written = {key: written(x, names) for key, x in parts.items()}
    return {"free": free(indices, names), **parts_written}


def _record_differing_sides(x: Differing) -> Record:
    sides = _parts_with_indices(x.indices, left=x.left, right=x.right)
    return {**sides, "sizes": dict(x.sizes), "rules": [list(pair) for pair in x.rules]}


def _record_conclusion(x: Concluded) -> Record:
    about = {key: _record_rule_field(value) for key, value in x.about.items()}
    # Only an induction has a sum that the checker has to see.
    summed = [_record_induction_sum(**about)] if x.rule == "induction" else []
    keys = PARTS.get(x.rule, _SIDES)
    conclusions = [
        _parts_with_indices(bare(*parts), **dict(zip(keys, parts, strict=True)))
        for parts in x.conclusions
    ]
    # A premise may be a whole proof, or a step as this one.
    premises = [certificate(y) if isinstance(y, Proof) else premise(y) for y in x.premises]
    return {"rule": x.rule, **about, "premises": premises, "conclusions": [*conclusions, *summed]}


def _record_induction_sum(letter: str, sort: str, term: object, closed: object) -> Record:
    """Return the conclusion of an induction: Σ ``term`` over all places of a sort is ``closed`` of its size."""
    place = ["total", "s", sort, ["is", "≤", ["s"], ["t"]]]
    total = ["total", "t", sort, with_value(term, letter, place)]
    return {"free": [], "left": total, "right": with_value(closed, letter, ["size", sort])}


def _record_same_operations(x: Alike) -> Record:
    both = {key: [[*side] for side in getattr(x, key)] for key in ("same", "different")}
    return {
        "terms": [*map(list, x.terms)],
        "format": x.of,
        "inputs": [str(y) for y in x.inputs],
        **both,
    }


def _record_sign_proof(x: Sign) -> Record:
    indices = bare(x.expression, *x.sides)
    # Simplifying notes every divisor, and arguments of roots and logarithms.
    with expressions.recorded() as collected:
        simplified_parts = [simplified(y) for y in _parts_of(x)]
    return {
        "conclusions": [_parts_with_indices(indices, smaller=x.sides[0], larger=x.sides[1])],
        "relation": x.relation,
        **_parts_with_indices(indices, expression=x.expression),
        "positive": sorted({name for y in _parts_of(x) for name in _collect_positive_letters(y)}),
        "not negative": sorted(x.known),
        "only": list(x.only),
        "rules": [list(pair) for pair in x.rules],
        "laws": [list(pair) for pair in x.laws],
        "meant": [
            {"letter": y.name, **_parts_with_indices(y.indices, expression=meant)}
            for y, meant in x.meant
        ],
        "equal": written(x.equal, numbered(indices)),
        "hypotheses": [
            _record_hypothesis(d.relation, d.expression)
            for d in needed(collected, simplified_parts)
        ],
    }


def _parts_of(x: Sign) -> list[expressions.Expression]:
    """Return all expressions of a sign."""
    bodies = (body for _, body in x.meant)
    return [x.expression, x.equal, *x.sides, *bodies]


def _record_rule_field(value: object) -> Any:
    match value:
        # A letter with what it stands for, and its indices.
        case (str() as letter, expressions.Expression() as body, tuple() as indices):
            return {"letter": letter, **_parts_with_indices(indices, expression=body)}
        case tuple():
            return [_record_rule_field(x) for x in value]
        case expressions.Expression():
            return written(value, {})
    return value


def _collect_positive_letters(x: expressions.Expression) -> set[str]:
    """Return the names of letters that are declared to be positive."""
    return {y.name for y in nodes(x, arguments=True) if isinstance(y, expressions.PositiveLetter)}


def _record_hypothesis(relation: str, x: expressions.Expression) -> Record:
    return {"relation": relation, **_parts_with_indices(bare(x), expression=x)}


def _record_element_equation(
    case: ElementEquation, left: expressions.Expression, right: expressions.Expression
) -> Record:
    out: Record = {**_parts_with_indices(case.indices, left=left, right=right), "how": case.how}
    # Without a numerator the sides are equal as they are, and no sizes need a check.
    if case.numerator is not None and case.limits is not None:
        names = numbered(case.indices)
        out["numerator"] = written(case.numerator, names)
        out["divisors"] = [[written(d.base, names), d.times] for d in case.divisors]
        out["counted"] = dict(case.limits.counted)
        out["stable"] = dict(case.limits.stable)
        out["sizes"] = [dict(sizes) for sizes in case.sizes]
    return out


_Writer = tuple[str, Callable[[Any], Record]]  # the kind that a record names, and what writes it
_WRITERS: Mapping[type[Premise], _Writer] = {
    Differing: ("differing", _record_differing_sides),
    Alike: ("bits", _record_same_operations),
    Concluded: ("step", _record_conclusion),
    Sign: ("sign", _record_sign_proof),
}


_FLAT = {
    ex.Sum: "sum",
    ex.Product: "product",
    ex.Ratio: "ratio",
    ex.Exponential: "exp",
    ex.Masked: "masked",
}
Names = Mapping[ex.Index, str]


def bare(*xs: ex.Expression) -> tuple[ex.Index, ...]:
    """Return the free indices in order of occurrence, without the permutations applied to them."""
    return tuple(dict.fromkeys(i._replace(image=()) for x in xs for i in named(x)))


def numbered(indices: Iterable[ex.Index]) -> dict[ex.Index, str]:
    """Return a name for each index."""
    return {i: f"i{n}" for n, i in enumerate(indices)}


def free(indices: Iterable[ex.Index], names: Names) -> list[list[str]]:
    """Return the names of indices with their sorts."""
    return [[names[i], i.sort] for i in indices]


def written(x: ex.Expression, names: Names) -> list[Any]:
    """Return ``x`` as nested lists, its free indices by ``names``."""
    if isinstance(x, ex.Constant):
        return ["number", str(x.value)]
    if isinstance(x, ex.Count):
        return ["size", x.sort]
    if isinstance(x, ex.Letter):
        return ["letter", x.name, [_write_index_images(i, names) for i in x.indices]]
    if isinstance(x, ex.Predicate):
        return ["is", x.relation, *[_write_index_images(i, names) for i in x.sides]]
    if isinstance(x, ex.Binder):
        name = f"j{len(names)}"  # names grow inwards, so that none is bound twice on a path
        kind = "total" if isinstance(x, ex.Total) else "bound"
        inner_names = {**names, x.index: name}
        return [kind, name, x.index.sort, written(x.body, inner_names)]
    below = [written(y, names) for y in x.children]
    if isinstance(x, ex.Opaque):
        return ["function", x.name, *below]
    return [_FLAT[type(x)], *below]


def _write_index_images(i: ex.Index, names: Names) -> list[str]:
    known = i if i in names else i._replace(image=())
    return [names[known], *i.image]


def with_value(x: object, letter: str, value: object) -> Any:
    """Return nested lists in which a value replaces a letter without indices."""
    if x == ["letter", letter, []]:
        return value
    return [with_value(y, letter, value) for y in x] if isinstance(x, list) else x


def certificates(
    proofs: Iterable[Proof], premises: Iterable[Premise] = ()
) -> tuple[Mapping[str, Any], ...]:
    """Return the certificates of the proofs that succeeded, and of the premises."""
    proved = (certificate(p) for p in proofs if p.proved)
    return (*proved, *map(premise, premises))


def verdicts(records: Iterable[Mapping[str, object]]) -> tuple[CertificateVerdict, ...]:
    """Return the checker's verdicts; its random seed is fixed, so that documents are reproducible."""
    return tuple(_check_certificate_json(json.dumps(record)) for record in records)


@lru_cache(maxsize=1000)
def _check_certificate_json(written: str) -> CertificateVerdict:
    """Return the verdict on a certificate given as JSON, and cache it."""
    return check(json.loads(written), Random(0))


def accepted(
    evidence: Evidence, proofs: Iterable[Proof], premises: Iterable[Premise] = ()
) -> Evidence:
    """Return ``evidence``, but undecided for a proof that has no certificate, or one that the checker refuses."""
    # Other grades claim no proof, so they need no certificate.
    if evidence.grade not in (Grade.PROVED, Grade.ARGUED):
        return evidence
    results = verdicts(certificates(proofs, premises))
    # Without any certificate nothing was checked, which counts as refused.
    refused = next(
        (v.why for v in results if not v.accepted), "" if results else "there is no certificate"
    )
    return Evidence(Grade.UNDECIDED, f"the checker refuses it: {refused}") if refused else evidence
