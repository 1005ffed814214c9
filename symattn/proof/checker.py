"""Check certificates independently of the prover: nothing of it is imported here, and nothing it claims is trusted.

For every equation of a certificate, the means on both sides are computed (``checker_means``), and both sides, which are
stored as written, are simplified (``checker_simplifying``).

*normal form*: both are then the same expression, up to bound names and order. Otherwise
1. the denominators of left − right are cleared again; its divisors equal the certificate's, steps 2 and 3 are done for
   its numerator as well as for the certificate's, and left = right, as quotients, at some points of small sizes;
2. the cut-off of the numerator is counted again (D, T and the conditions of the theorems of ``counting``),
   and the certificate's sizes are those that it requires;
3. the numerator is zero at each of these sizes, at every place, tested at a random point modulo each of two primes.
And whatever is divided by, or under a root or a logarithm, as written, is admissible by its form or by a hypothesis.

A certificate of a *sign* has an expression that is positive, or not negative, by its form or as a number
(``checker_balls``), and the meanings of its letters; after substitution it is what the certificate claims. One of a
*difference* has two sides that differ at some place of small sizes, as functions of letters, whatever the opaque
functions in them are. For conclusions by a rule, see ``checker_steps``.

For equal *bits* there are lists of terms: inputs, numbers, or operations on earlier terms. ``same`` has two lists: the
checker accepts them if, place by place, they are one computation except for the order of the operands of +, × and max.
These commute in IEEE 754-2019 if there is one NaN and max is its ``maximum``, for which
−0 < +0. ``different`` has two more lists, which differ on the numbers in ``inputs``: every operation is repeated in
exact rationals and rounded to nearest, ties to even, in the named format. Of exponentials only e⁰ = 1 is used, so they
may be computed in any way.

An accepted identity holds for all sizes from 1 on, under the hypotheses; ``epsilon`` bounds the probability, over the
checker's own random numbers, that some random test, in a premise or here, takes a nonzero value for zero.

Files of certificates are written by ``symattn prove --certificate``, read by ``symattn check``. A file is a record with
the name of the theorem, its statement, grade and hypotheses in words, the rule in words if it is argued, and the
certificates. Only the certificates are checked: the reader must compare the formulas in them with the words. A hostile
file is refused in one line: sizes and depths are limited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random, SystemRandom
from typing import Any, NamedTuple

from symattn.proof import checker_clearing, checker_testing
from symattn.proof.checker_balls import is_positive_number
from symattn.proof.checker_means import assumed_letters, bodies, expect_laws, without_means
from symattn.proof.checker_printing import one_line as _line
from symattn.proof.checker_printing import relations_of
from symattn.proof.checker_reading import (
    CheckedNode,
    Record,
    Rejected,
    array_of,
    expect,
    expect_few,
    in_place,
    read,
    scope_of,
)
from symattn.proof.checker_signs import Signs, expect_law, hypotheses
from symattn.proof.checker_simplifying import Simplifying, sides
from symattn.proof.checker_steps import step
from symattn.proof.checker_values import Dice


@dataclass(frozen=True)
class CertificateVerdict:
    """The verdict on a certificate: accepted, or ``why`` not; ``epsilon`` as above."""

    accepted: bool
    why: str = ""
    epsilon: float = 0.0


def check(certificate: object, random: Random | None = None) -> CertificateVerdict:
    """Check a certificate, as ``certificate.certificate`` makes it or as read back from JSON."""
    dice = Dice(random or SystemRandom())
    try:
        _check_certificate_record(certificate, dice)
    except Rejected as reason:
        return CertificateVerdict(False, str(reason))
    # Malformed records fail in any of these ways, and each means "no certificate".
    except (
        LookupError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        RecursionError,
    ) as error:
        return CertificateVerdict(False, f"not a certificate: {type(error).__name__} {error}")
    return CertificateVerdict(True, epsilon=dice.risk)


def _check_certificate_record(certificate: Any, dice: Dice) -> None:
    expect(isinstance(certificate, Mapping), "a certificate is a record")
    kind = certificate.get("kind")
    expect(certificate.get("schema") == 1 and kind in _KINDS, "no certificate of schema 1")
    # Premises first: a rule may use only claims of accepted records.
    for premise in certificate["premises"] if kind == "step" else ():
        try:
            _check_certificate_record(premise, dice)
        except Rejected as reason:
            raise Rejected(f"a premise: {reason}") from reason
    _KINDS[kind](certificate, dice)


def _check_equations(e: Record, dice: Dice) -> None:
    # One simplifier for all equations: positivity of letters is declared for the certificate.
    rules = _read_cos_sin_pairs(e)
    simplify = Simplifying(frozenset(map(str, e["positive"])))
    signs = hypotheses(e["hypotheses"], simplify, dice)
    expect(bool(e["equations"]), "a certificate of nothing")
    written = [[read(x[side], scope_of(x)) for side in ("left", "right")] for x in e["equations"]]
    # A random array has one law in the whole certificate, so all sides are examined together.
    expect_laws((side for both in written for side in both), assumed_letters(e))
    for equation, both in zip(e["equations"], written, strict=True):
        _check_one_equation(equation, both, rules, signs, simplify, dice)


def _read_cos_sin_pairs(e: Record) -> list[tuple[str, ...]]:
    """Return the pairs (cos, sin), which must have no name in common."""
    rules = [tuple(map(str, pair)) for pair in e["rules"]]
    expect(all(len(pair) == 2 for pair in rules), "a rule is a pair of names")
    # A letter in two pairs would be a cosine of two angles at once.
    expect(
        len({name for pair in rules for name in pair}) == 2 * len(set(rules)),
        "a letter in two pairs",
    )
    return rules


def _check_one_equation(
    e: Record,
    written: Sequence[CheckedNode],
    rules: checker_testing.Rules,
    signs: Signs,
    simplify: Simplifying,
    dice: Dice,
) -> None:
    scope = scope_of(e)
    taken = [without_means(x, scope) for x in written]
    # As written, before anything cancels: x/x = 1 needs x ≠ 0 although the result has no divisor.
    defined = (*taken, *bodies(written[0]), *bodies(written[1]))
    signs.expect_defined(defined, simplify)
    left, right = sides(simplify(taken[0]), simplify(taken[1]), scope)
    # Equal forms need no sizes and no random point.
    if e["how"] == "normal form":
        expect(left.own_form == right.own_form, "the normal forms differ")
        return
    numerator = simplify(read(e["numerator"], scope))
    # A dict would let the later of two powers of one divisor win in silence.
    result = [(simplify(read(d, scope)).own_form, times) for d, times in e["divisors"]]
    divisors = dict(result)
    expect(set(result) == set(divisors.items()), "two powers of one divisor")
    needed = checker_testing.needed_sizes(e, numerator, scope, bool(rules))
    # Fewer sizes would prove less, and more would waste time.
    expect(
        checker_testing.as_set(e["sizes"]) == checker_testing.as_set(needed),
        "the sizes are not those that the cut-off asks for",
    )
    own, own_divisors = checker_clearing.difference(left, right)
    expect(divisors == own_divisors, "left − right has other divisors")
    # Guards the clearing itself: quotients are compared without multiplying divisors out.
    checker_testing.expect_equal(left, right, scope, rules, dice)
    rows = e["how"] == "rows"
    # The certificate's numerator may be arranged in another way; the checker's own one decides.
    if own.own_form != numerator.own_form:
        limits = checker_testing.own_sizes(own, scope, rows, bool(rules))
        checker_testing.expect_zero(own, scope, limits, rules, rows, dice)
    checker_testing.expect_zero(numerator, scope, needed, rules, rows, dice)


def _check_sign_certificate(e: Record, dice: Dice) -> None:
    """Reject unless the form shows the sign, and the expression, with meanings for letters, is the one claimed.

    A letter counts as not negative if it is declared so, if its meaning is a hypothesis, or if a law shows it.
    """
    scope = scope_of(e)
    x = read(e["expression"], scope)
    simplify = Simplifying(frozenset(map(str, e["positive"])))
    signs = hypotheses(e["hypotheses"], simplify, dice, frozenset(map(str, e["not negative"])))
    shown = {">": signs.shows_positive, "≥": signs.shows_not_negative}
    # Numbers without letters are decided by balls, since their form may not show the sign.
    by_form = e["relation"] in shown and shown[e["relation"]](x)
    expect(
        by_form or (e["relation"] == ">" and is_positive_number(x)),
        "the form does not show the sign",
    )
    meanings, inside = _expect_meanings(e, x)
    equal = read(e["equal"], scope)
    signs.expect_defined((x, *inside, equal), simplify)
    _expect_laws(e, meanings, signs, dice)
    for name in e["only"]:
        alone = replace(signs, nonzero=str(name))
        expect(alone.shows_equal_only_at_zero(x), f"equality may hold where {name} is not 0")
    # Substitution multiplies sizes: a short record could expand to more than memory has.
    expect_few(sum(len(str(m["expression"])) for m in e["meant"]))
    expect_few(
        str(e["expression"]).count("letter")
        * max((len(str(m["expression"])) for m in e["meant"]), default=1)
    )
    meant = {name: (list(places), body) for name, (places, body) in meanings.items()}
    # After substitution the expression must be the one that the conclusions speak of.
    equal = simplify(equal)
    substituted = in_place(e["expression"], meant)
    checker_testing.expect_same(simplify(read(substituted, scope)), equal, scope, dice)
    for c in e["conclusions"]:
        expect(scope_of(c) == scope, "a conclusion about other indices")
        larger = read(c["larger"], scope)
        gap = simplify(checker_clearing.minus(larger, read(c["smaller"], scope)))
        checker_testing.expect_same(gap, equal, scope, dice, _read_cos_sin_pairs(e))


# The scope and the record of the expression that a letter stands for.
_Meaning = tuple[dict[str, str], Any]


def _expect_meanings(e: Record, x: CheckedNode) -> tuple[dict[str, _Meaning], list[CheckedNode]]:
    """Check the meanings of letters: they contain no letter with a meaning, and cover all entries of an array or none.

    Return them as written, and as expressions, followed by both sides of each conclusion.
    """
    meant = {str(m["letter"]): (scope_of(m), m["expression"]) for m in e["meant"]}
    # All entries of an array have meanings, or none: else one entry would be free and others not.
    arrays = {array_of(name) for name in meant}
    expect(len(meant) == len(e["meant"]), "a letter with two meanings")
    expect(not arrays & set(map(array_of, e["positive"])), "a defined letter is declared positive")
    entries = {y.label for y in x.letters() if array_of(y.label) in arrays}
    expect(entries <= meant.keys(), "an entry of an undefined name")
    # Neither meanings nor conclusions use a letter with a meaning, so one substitution is enough.
    others = [(scope_of(c), c[side]) for c in e["conclusions"] for side in ("smaller", "larger")]
    scoped_bodies = (*meant.values(), *others)
    inside = [read(body, scope) for scope, body in scoped_bodies]
    for y in inside:
        Simplifying(frozenset())(y)  # which refuses −∞
        expect(all(z.label not in meant for z in y.letters()), "a definition uses a defined letter")
    return meant, inside


def _expect_laws(e: Record, meant: Mapping[str, _Meaning], signs: Signs, dice: Dice) -> None:
    """Reject unless each letter with a law stands for an expression that the law shows not to be negative."""
    laws = {str(name): str(law) for name, law in e["laws"]}
    expect(len(laws) == len(e["laws"]), "two laws of one letter")
    expect(
        # A law may only justify an array that counts as not negative and has a meaning.
        laws.keys() <= signs.known & {array_of(name) for name in meant},
        "a law of an undefined array",
    )
    for law, scope, body in (
        (laws[array_of(name)], *m) for name, m in meant.items() if array_of(name) in laws
    ):

        def same(a: CheckedNode, b: CheckedNode, scope: Mapping[str, str] = scope) -> bool:
            return checker_testing.are_same(a, b, scope, dice)

        expect_law(law, read(body, scope), scope, same, signs.shows_not_negative)


_KINDS: Mapping[Any, Callable[[Record, Dice], None]] = {
    "certificate": _check_equations,
    "sign": _check_sign_certificate,
    "differing": lambda e, dice: checker_testing.expect_differing(e, dice, _read_cos_sin_pairs(e)),
    "bits": lambda e, dice: bits(e),
    "step": step,
}


_COMMUTING = frozenset({"+", "×", "max"})
# An operation with another number of operands is no record of a computation.
_OPERANDS = {"+": 2, "−": 2, "×": 2, "/": 2, "max": 2, "exp": 1, "isfinite": 1, "where": 3}


class Rounding(NamedTuple):
    """A format of ``digits`` binary digits, for numbers 1.… · 2ᵉ with e from ``least`` to ``most``."""

    digits: int
    least: int
    most: int

    def __call__(self, x: Fraction) -> Fraction:
        """Return ``x`` rounded to nearest, ties to even. Rejects numbers beyond the format."""
        if not x:
            return x
        # Bit lengths give the exponent or one more.
        exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
        exponent -= abs(x) < Fraction(2) ** exponent  # now 2^exponent ≤ |x| < 2^(exponent + 1)
        # Below the least exponent the unit stays constant: subnormal numbers.
        unit = Fraction(2) ** (max(exponent, self.least) - self.digits + 1)
        result = round(x / unit) * unit  # Python rounds a tie to the even one
        expect(abs(result) < Fraction(2) ** (self.most + 1), "a number beyond the format")
        return result


FORMATS = {
    "float32": Rounding(24, -126, 127),
    "float16": Rounding(11, -14, 15),
    "bfloat16": Rounding(8, -126, 127),
}


def bits(record: Record) -> None:
    """Reject unless ``same`` are the same computations, and ``different`` give different numbers."""
    recorded = record["terms"]
    terms = [(str(operation), tuple(operands)) for operation, *operands in recorded]
    # Terms cost more than characters, so each counts as 1000.
    expect_few(1000 * len(terms))
    for n, (operation, operands) in enumerate(terms):
        if operation in ("input", "number"):
            expect(len(operands) == 1, "a term of another form")
            continue
        expect(
            _OPERANDS.get(operation) == len(operands),
            f"{operation!r} is not an operation on so many numbers",
        )
        # Operands come before: the list is then a graph without cycles, read once in order.
        expect(
            all(type(k) is int and 0 <= k < n for k in operands),
            "an operand that does not come before",
        )
    left, right = _read_term_number_lists(record["same"], terms)
    # Two numbers of classes are equal exactly if the trees of operations are.
    classes = _number_term_classes(terms)
    expect(
        [classes[n] for n in left] == [classes[n] for n in right],
        "both do not do the same operations",
    )
    expect(record["format"] in FORMATS, "a format that the checker does not know")
    rounded = FORMATS[record["format"]]
    inputs: list[Fraction] = [read(["number", x], {}).label for x in record["inputs"]]
    expect(all(rounded(x) == x for x in inputs), "an input that is no number of the format")
    left, right = _read_term_number_lists(record["different"], terms)
    # Values of terms outside ``different`` may be undefined, so only needed terms are computed.
    values = _evaluate_needed_terms(terms, sorted({*left, *right}), inputs, rounded)
    pairs = zip(left, right, strict=True)
    differs = any(values[a] != values[b] for a, b in pairs)
    expect(
        differs,
        "the others do not differ there",
    )


def _read_term_number_lists(pair: Any, terms: Sequence[object]) -> tuple[list[int], list[int]]:
    left, right = ([int(n) for n in side] for side in pair)
    expect(
        bool(left) and len(left) == len(right),
        "two computations of different length, or of nothing",
    )
    # Numbers of results name terms: one out of range would name nothing.
    results = (*left, *right)
    expect(all(0 <= n < len(terms) for n in results), "a result that is no term")
    return left, right


def _number_term_classes(terms: Sequence[tuple[str, tuple[Any, ...]]]) -> list[int]:
    """Return a number for each term, equal for computations that differ only in the order of commuting operands."""
    result: list[int] = []
    numbers: dict[Any, int] = {}
    for operation, operands in terms:
        if operation in ("input", "number"):
            # As text, since 1 and True would be the same key.
            key: tuple[Any, ...] = (operation, str(operands[0]))
        else:
            below = [result[k] for k in operands]
            key = (operation, *(sorted(below) if operation in _COMMUTING else below))
        result.append(numbers.setdefault(key, len(numbers)))
    return result


def _evaluate_needed_terms(
    terms: Sequence[tuple[str, tuple[Any, ...]]],
    wanted: Sequence[int],
    inputs: Sequence[Fraction],
    rounded: Rounding,
) -> dict[int, Fraction | bool]:
    """Return the values of the terms that ``wanted`` need."""
    # An explicit list, since a chain of operations may be deeper than Python's recursion.
    needed, pending = set[int](), list(wanted)
    while pending:
        n = pending.pop()
        if n not in needed:
            needed.add(n)
            pending += [] if terms[n][0] in ("input", "number") else terms[n][1]
    result: dict[int, Fraction | bool] = {}
    # Terms come after their operands, so increasing order computes operands first.
    for n in sorted(needed):
        operation, operands = terms[n]
        if operation == "input":
            expect(0 <= int(operands[0]) < len(inputs), "an input without a number")
            result[n] = inputs[int(operands[0])]
        elif operation == "number":
            result[n] = rounded(read(["number", operands[0]], {}).label)
        else:
            operands_ = [result[k] for k in operands]
            # Only the first operand of ``where`` may be a truth, and only ``isfinite`` makes one.
            truths = [isinstance(x, bool) for x in operands_]
            expect(
                truths == [operation == "where" and k == 0 for k in range(len(operands_))],
                "a number for a truth",
            )
            value = _DONE[operation](*operands_)
            result[n] = value if isinstance(value, bool) else rounded(value)
    return result


def _divide_by_nonzero(a: Fraction, b: Fraction) -> Fraction:
    expect(bool(b), "a division by zero")
    return a / b


# A library's exponential may round other values in any way.
def _exponential_of_zero(x: Fraction) -> Fraction:
    expect(not x, "an exponential of another number than 0")
    return Fraction(1)


_DONE: Mapping[str, Callable[..., Fraction | bool]] = {
    "+": lambda a, b: a + b,
    "−": lambda a, b: a - b,
    "×": lambda a, b: a * b,
    "/": _divide_by_nonzero,
    "max": max,
    "exp": _exponential_of_zero,
    # Values in exact rationals that the format holds are always finite.
    "isfinite": lambda a: True,
    "where": lambda condition, a, b: a if condition else b,
}


# Limits against hostile files: larger than what the prover writes.
LARGEST = 4_000_000  # bytes
# Deeper nesting could exhaust the recursion of the JSON parser.
DEEPEST = 200  # lists within lists
GRADES = ("proved", "argued")


@dataclass(frozen=True)
class FileVerdicts:
    """The result for a file: ``why`` it is refused, or empty; how many certificates, and the bound on the error.

    ``relations`` are what the certificates show, made from their terms. ``says``, ``rule`` and ``hypotheses`` are words
    of the file, which are not read.
    """

    name: str = ""
    grade: str = ""
    says: str = ""
    rule: str = ""
    hypotheses: tuple[str, ...] = ()
    certificates: int = 0
    epsilon: float = 0.0
    why: str = ""
    relations: tuple[str, ...] = ()


def check_file(content: bytes) -> FileVerdicts:
    """Check every certificate in the bytes of a file, without the prover."""
    try:
        record = _parse_certificate_file(content)
    except ValueError as error:
        return FileVerdicts(why=str(error))
    name, records = str(record["theorem"]), record["certificates"]
    verdicts = []
    for n, one in enumerate(records, 1):
        verdict = check(one)
        # One rejected certificate refuses the file: the claim needs them all.
        if not verdict.accepted:
            return FileVerdicts(
                name, why=f"certificate {n} of {len(records)}: {_line(verdict.why)}"
            )
        verdicts.append(verdict)
    hypotheses = tuple(map(_line, record["hypotheses"]))
    statement = _line(record["statement"])
    results = (_line(name), record["grade"], statement, _line(record["rule"]))
    relations = tuple(
        # Several certificates may show the same relation, which is printed once.
        dict.fromkeys(relation for one in records for relation in _list_accepted_relations(one))
    )
    return FileVerdicts(
        *results, hypotheses, len(verdicts), sum(v.epsilon for v in verdicts), relations=relations
    )


def _list_accepted_relations(certificate: Record) -> list[str]:
    """Return the relations of an accepted certificate; parts that the checker does not read may be of any form."""
    try:
        return list(relations_of(certificate))
    # Printing must not fail on unread parts of an accepted record.
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return ["a relation that cannot be printed"]


def _parse_certificate_file(content: bytes) -> Record:
    """Return the record in a file. Raises ValueError if there is none."""
    # Size and depth are limited before anything is parsed.
    if len(content) > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    if _measure_bracket_depth(content) > DEEPEST:
        raise ValueError(f"more than {DEEPEST} lists within each other")
    try:
        record = json.loads(content.decode("utf-8"), parse_int=_parse_short_integer)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {_line(error)}") from error
    if (
        not isinstance(record, dict)
        or record.get("schema") != 1
        or record.get("kind") != "certificates"
    ):
        raise ValueError("no file of certificates of schema 1")
    texts = [record.get(key) for key in ("theorem", "statement", "rule")]
    lists = [record.get(key) for key in ("hypotheses", "certificates")]
    all_texts = all(isinstance(x, str) for x in texts)
    if not all_texts or not all(isinstance(x, list) for x in lists):
        raise ValueError(
            "the theorem, the statement, the rule, the hypotheses or the certificates are missing"
        )
    if record.get("grade") not in GRADES or not record["certificates"]:
        raise ValueError("nothing in it is said to be proved")
    if (record["grade"] == "argued") is not bool(record["rule"]):
        raise ValueError("what is argued has a rule in words, and what is proved has none")
    return record


# Parsing a long integer takes quadratic time.
def _parse_short_integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError("a number of more than 20 digits")
    return int(text)


def _measure_bracket_depth(content: bytes) -> int:
    """Return how deep brackets are nested, counting those in texts too."""
    deepest = depth = 0
    # Brackets in texts count too, which can only refuse more.
    for byte in content:
        depth += (byte in b"[{") - (byte in b"]}")
        deepest = max(deepest, depth)
    return deepest
