"""Decisions as plain data: all that a document needs, which can be sent, stored as JSON and read back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from symattn.arrays.field.parse import parse
from symattn.arrays.index.writing import size
from symattn.document.errors import SymattnError
from symattn.document.evidence import Evidence, Grade, weakest
from symattn.document.model import Inline, Text
from symattn.document.notation import Node, Relation, commas, relation
from symattn.proof.certificate import by_definition
from symattn.proof.hypotheses import demanded
from symattn.proof.inequality import Certificate
from symattn.proof.joint_statements import DIFFER
from symattn.proof.prover import ElementEquation, Proof
from symattn.proof.relations import judging
from symattn.proof.theorem import Decision, Identity, Method, Theorem, TheoremOutcome
from symattn.theorems.reading import Reading

DEFECT = "a defect of symattn; please report it"
_NUMBERS = re.compile(
    r"(?P<sizes>.*?): (?P<left>\S+) and (?P<right>\S+) at (?P<place>\[[\d, ]*\]) \(seed \d+\)"
)
_SEED = re.compile(r" \(seed \d+\)")


@dataclass(frozen=True)
class TheoremFinding:
    """The evidence for a theorem, how it was reached, its hypotheses, and the result for its false variant.

    ``stated`` are the equations of its code, if they are short. ``of_code`` is the evidence for what the code returns,
    if relations are printed that are not made of the code: these have an evidence of their own.
    """

    evidence: Evidence
    how: tuple[Text, ...]
    hypotheses: tuple[Text, ...]
    false_grade: Grade
    counterexample: Text
    witness: Text
    seconds: float
    reading: Reading | None = None
    stated: tuple[Node, ...] = ()
    of_code: Evidence | None = None

    @property
    def grade(self) -> Grade:
        """The grade of the statement."""
        return self.evidence.grade


def finding(outcome: TheoremOutcome, reading: Reading | None = None) -> TheoremFinding:
    """Return the data of an outcome and of its reading. An unsound outcome is undecided, and says why."""
    decision, refutation = outcome.decision, outcome.refutation
    evidence = decision.evidence
    # An unsound outcome is worth nothing, whatever was proved.
    if not outcome.sound and evidence.grade is not Grade.REFUTED:
        evidence = Evidence(Grade.UNDECIDED, _reason_for_unsoundness(outcome))
    if reading and reading.wrong and evidence.grade is not Grade.REFUTED:
        evidence = Evidence(Grade.UNDECIDED, reading.wrong)
    of_code = None
    printed = [r.evidence for r in reading.claims if r.evidence] if reading else []
    if (
        printed
        and is_code(outcome.theorem.method)
        and evidence.grade not in (Grade.REFUTED, Grade.UNDECIDED)
    ):
        of_code, evidence = evidence, as_printed(printed)
    refuted: Text = ()
    if evidence.grade is Grade.REFUTED:
        refuted = ("a counterexample: ", *_typeset_counterexamples(evidence.where))
        # The numbers behind the colon are typeset in ``refuted``, and are not repeated here.
        evidence = Evidence(Grade.REFUTED, evidence.where.partition(":")[0])
    return TheoremFinding(
        evidence,
        (refuted,)
        if refuted
        else (*_yield_reduction_text(decision.proofs), *map(_typeset_argument, decision.argument)),
        _join_unstated_hypotheses(outcome.theorem, decision, reading),
        Grade.PROVED
        if refutation.accepted
        else Grade.REFUTED
        if refutation.refuted
        else Grade.UNDECIDED,
        _typeset_counterexamples(refutation.counterexample),
        _typeset_size_letters(_SEED.sub("", outcome.witness)),
        round(outcome.seconds, 3),
        reading,
        of_code=of_code,
    )


def is_code(method: Method) -> bool:
    """Return whether a method decides what code returns, which need not be what is printed."""
    return isinstance(method, Identity | Certificate) or not type(method).__module__.startswith(
        "symattn."
    )


def as_printed(printed: Sequence[Evidence]) -> Evidence:
    """Return the evidence for printed relations together: the weakest grade, and where each has it."""
    grade = weakest(printed)
    places = (e.where for e in printed if e.grade is grade)
    return Evidence(grade, "; ".join(dict.fromkeys(places)))


def _join_unstated_hypotheses(
    theorem: Theorem, decision: Decision, reading: Reading | None
) -> tuple[Text, ...]:
    """Return declarations and demands, each once, without those that the theorem's own hypotheses state.

    The declarations of parts are joined into one hypothesis: their letters need not be those of the statement.
    """
    demands = (t for p in decision.proofs for t in demanded(p))
    others = [*decision.hypotheses, *demands, *(reading.hypotheses if reading else ())]
    relations_said = ((r,) for words in theorem.hypotheses for r in judging.relations(words))
    said = {*theorem.hypotheses, *relations_said}
    # One statement has its own letters.
    if not decision.in_parts:
        return tuple(h for h in dict.fromkeys((*decision.declared, *others)) if h not in said)
    joined: list[Inline] = []
    for one in decision.declared:
        if one not in said and one not in others:
            joined += [", " if joined else "the parts are shown where ", *one]
    every = dict.fromkeys((tuple(joined), *others))
    return tuple(h for h in every if h and h not in said)


def crashed(error: str) -> TheoremFinding:
    """Return the data of a theorem in which symattn itself failed."""
    return TheoremFinding(
        Evidence(Grade.UNDECIDED, f"{DEFECT} ({error})"), (), (), Grade.UNDECIDED, (), (), 0.0
    )


BAD_STATEMENT = "bad input: "


def unstated(error: str) -> TheoremFinding:
    """Return the data of a theorem whose code has a mistake, so that there is nothing to decide."""
    return TheoremFinding(
        Evidence(Grade.UNDECIDED, BAD_STATEMENT + error), (), (), Grade.UNDECIDED, (), (), 0.0
    )


def _reason_for_unsoundness(outcome: TheoremOutcome) -> str:
    if outcome.refutation.accepted:
        return "the false variant is accepted as well"
    if not outcome.refutation.refuted:
        return "no counterexample to the false variant was found"
    if outcome.decision.evidence.grade is Grade.UNDECIDED:
        return outcome.decision.evidence.where
    return "no numbers were found that meet the hypotheses and give both sides an exact value"


# -- how ---------------------------------------------------------------------------------------------------------------
_PHRASES = {
    "by definition": "by definition: both sides are written alike, entry by entry",
    "normal form": "by the normal forms of both sides, which are the same",
    "no size": "as one polynomial identity, cleared of denominators, in which no size occurs",
    "one size": "as polynomials, cleared of denominators, at one size that is enough for all",
    "box": "as polynomials, cleared of denominators, at every size of a box that is enough for all",
    "rows": "as polynomials, with 1/Z · Z = 1 for what stands under sums, at the sizes of boxes enough for all",
}


def _yield_reduction_text(proofs: tuple[Proof, ...]) -> Iterator[Text]:
    """Yield one text: how the equations of elements were decided, and the largest sizes that were needed."""
    cases = [c for p in proofs if p.proved for c in p.cases]
    groups = [(how, [c for c in cases if _kind_of_element_equation(c) == how]) for how in _PHRASES]
    outcome: list[Inline] = []
    for how, result in ((how, members) for how, members in groups if members):
        # The number of a kind is left out if it is all of them.
        number = f"{len(result)} " if len(result) < len(cases) else ""
        outcome += [
            "; " if outcome else "",
            f"{number}{_PHRASES[how]}",
            *_sizes_of_largest_case(result),
        ]
    if outcome:
        opening = (
            "decided "
            if len(cases) == 1
            else f"{len(cases)} equations between elements are decided: "
        )
        yield (opening, *(part for part in outcome if part != ""))


def _kind_of_element_equation(case: ElementEquation) -> str:
    if case.how == "normal form" and by_definition(case):
        return "by definition"
    return "no size" if case.limits and not case.limits.top else case.how


def _sizes_of_largest_case(cases: list[ElementEquation]) -> Text:
    """Return the sizes of the case that needed the most."""
    most = max(cases, key=lambda c: len(c.sizes))
    if not most.limits or not most.limits.top:
        return ()  # no size occurs
    if most.how == "one size":
        return (": ", *sizes_written(most.sizes[0]))
    return (": ", *sizes_written(most.limits.top, "≤"), f" ({len(most.sizes)} sizes)")


def sizes_written(sizes: Mapping[str, int], sign: str = "=") -> Text:
    """Return sizes as formulas: n = 2, d_k = 3."""
    parts: list[Inline] = []
    for s, n in sizes.items():
        parts += [", " if parts else "", relation(size(s), sign, n)]
    return tuple(parts) or ("no size occurs",)


# -- counterexamples ---------------------------------------------------------------------------------------------------
def _typeset_counterexamples(words: str) -> Text:
    """Return the results of a search, with exact numbers as formulas."""
    parts: list[Inline] = []
    for one in words.split("; "):
        parts += ["; " if parts else "", *_typeset_one_counterexample(one)]
    return tuple(p for p in parts if p != "")


def _typeset_argument(words: Text) -> Text:
    """Return an argument; if it is a counterexample, with its numbers as formulas."""
    if len(words) != 1 or not isinstance(words[0], str) or not words[0].startswith(DIFFER):
        return words
    return (DIFFER, *_typeset_counterexamples(words[0].removeprefix(DIFFER)))


def _typeset_one_counterexample(words: str) -> Text:
    match = _NUMBERS.fullmatch(words)
    if not match:
        return _typeset_size_letters(_SEED.sub("", words))
    try:
        left, right = (parse(match[side]).notation() for side in ("left", "right"))
    except SymattnError:
        return _typeset_size_letters(_SEED.sub("", words))
    # Code counts entries from 0, print from 1.
    place = [int(n) + 1 for n in re.findall(r"\d+", match["place"])]
    unequal: Node = Relation(left, (("≠", right),))
    where: Text = (" at entry ", commas(*place)) if place else ()
    return (*_typeset_size_letters(match["sizes"]), ": ", unequal, *where)


def _typeset_size_letters(words: str) -> Text:
    """Return ``n_q = 1, d = 2`` with its letters as formulas."""
    parts: list[Inline] = []
    for piece in re.split(r"(\b[A-Za-z](?:_[a-z]+)? = \d+)", words):
        letter, sign, number = piece.partition(" = ")
        is_size = bool(sign) and re.fullmatch(r"[A-Za-z](?:_[a-z]+)?", letter) and number.isdigit()
        parts.append(relation(size(letter), "=", int(number)) if is_size else piece)
    return tuple(p for p in parts if p != "")
