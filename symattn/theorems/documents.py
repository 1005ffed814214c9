"""Theorems as documents: one with its argument, several as sections, many as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symattn.document import model as md
from symattn.document.errors import InputError
from symattn.document.evidence import Grade, weakest
from symattn.document.model import Block, Code, Document, Emph, Text
from symattn.document.notation import Node
from symattn.document.tex import tex
from symattn.document.text import plain_text, text
from symattn.proof import typeset_words
from symattn.proof.theorem import Theorem
from symattn.theorems import TOPICS, findings
from symattn.theorems.reading import Reading, ReadRelation, boxed, read_apart, with_unread_as_text


@dataclass(frozen=True)
class Decided:
    """A theorem with its finding and, if requested, its argument, its certificates and the verdict of Coq."""

    theorem: Theorem
    finding: findings.TheoremFinding
    explained: tuple[Block, ...] = ()
    certificates: tuple[Mapping[str, Any], ...] = ()
    not_by_coq: str = ""  # what Coq was asked to prove and has not

    @property
    def grade(self) -> Grade:
        """The grade of the statement."""
        return self.finding.grade


def titled(topic: str) -> str:
    """Return the title of a topic."""
    return TOPICS.get(topic, topic)


# -- one theorem -------------------------------------------------------------------------------------------------------
def blocks(decided: Decided) -> tuple[Block, ...]:
    """Return the statement in its box, hypotheses, idea, how it was decided, false variant, source."""
    theorem, finding = decided.theorem, decided.finding
    # Without letters hypotheses are words.
    read = theorem.letters is not None or not theorem.hypotheses
    own_hypotheses = (h if read else typeset_words.unread(h) for h in theorem.hypotheses)
    hypotheses = *own_hypotheses, *finding.hypotheses
    return (
        *_box_stated_theorem(theorem, finding),
        *(_describe_printed_reading(theorem, finding.reading) if finding.reading else ()),
        *typeset_words.several("Hypotheses", "Hypothesis", tuple(dict.fromkeys(hypotheses))),
        *(
            typeset_words.labelled("Witness", _sizes_of_witness(finding.witness, read))
            if hypotheses
            else ()
        ),
        *typeset_words.labelled("Why", theorem.why),
        *typeset_words.labelled(
            "Proof" if finding.grade in (Grade.COQ, Grade.PROVED, Grade.ARGUED) else "Method",
            _join_as_sentences(finding.how),
        ),
        *decided.explained,
        _false_variant(theorem, finding),
        *typeset_words.labelled("Source", (theorem.source,)),
    )


def _box_stated_theorem(
    theorem: Theorem, theorem_finding: findings.TheoremFinding
) -> tuple[Block, ...]:
    """Return a box with the relations that were read, or the equations of the code, and the grade; words below it."""
    if theorem.letters is None:
        return boxed(
            "Theorem",
            theorem_finding.stated,
            theorem_finding.evidence,
            typeset_words.unread(theorem.says),
        )
    formulas, words = read_apart(theorem.says, theorem_finding.reading)
    # Without a formula in the print, the equations of the code are shown.
    if not formulas:
        formulas = theorem_finding.stated
    printed = boxed("Theorem", formulas, theorem_finding.evidence, words, theorem_finding.reading)
    if theorem_finding.of_code is None:
        return printed
    return (
        *printed,
        *boxed("What the code returns", theorem_finding.stated, theorem_finding.of_code, ()),
    )


def _describe_printed_reading(theorem: Theorem, reading: Reading) -> tuple[Block, ...]:
    """Describe the decision on each printed formula of the statement, and the meaning of its letters."""
    result = [r.evidence for r in reading.claims if r.evidence]
    grades = [(g, [e for e in result if e.grade is g]) for g in Grade]
    graded = [
        f"{len(every)} {g.value} ({'; '.join(dict.fromkeys(e.where for e in every))})"
        for g, every in grades
        if every
    ]
    what = "what stands in the box" if read_apart(theorem.says, reading)[1] else "the statement"
    words: list[md.Inline] = (
        [f"{what} was read from this text and decided: {', '.join(graded)}"] if graded else []
    )
    for number, formula in enumerate(reading.letters):
        words += [", " if number else " with ", formula]
    for r in (r for r in reading.claims if not r.evidence):
        reason = r.reason.removeprefix(f"{text(r.formula)}: ").removeprefix("Unread: ")
        words += ["; " if words else "", f"in words: {text(r.formula)} ({reason})"]
    return typeset_words.labelled("As printed", tuple(words))


def _sizes_of_witness(witness: Text, read: bool) -> Text:
    """Return the sizes at which a witness was found, of hypotheses that were ``read``; () for a witness in words."""
    sizes = tuple(part for part in witness if part != "exact numbers at ")
    met = "the hypotheses are met, and the statement holds," if read else "the statement holds"
    if any(isinstance(part, Node) for part in sizes):
        return (f"{met} in numbers at ", *sizes)
    return ()


def _false_variant(theorem: Theorem, theorem_finding: findings.TheoremFinding) -> Block:
    verdict = {
        Grade.REFUTED: "it is refuted",
        Grade.PROVED: "it is accepted, so that nothing is shown",
        Grade.UNDECIDED: "it is not refuted, so that nothing is shown",
    }[theorem_finding.false_grade]
    where: Text = (": ", *theorem_finding.counterexample) if theorem_finding.counterexample else ()
    words = with_unread_as_text(
        theorem.false_says, theorem_finding.reading.false if theorem_finding.reading else ()
    )
    said = (
        typeset_words.opened(typeset_words.with_formulas(words))
        if theorem.letters is not None
        else typeset_words.unread(theorem.false_says)
    )
    ends_sentence = said and isinstance(said[-1], str) and said[-1].endswith((".", ";"))
    comma = "" if ends_sentence else ";"
    return md.Paragraph((Emph("False variant."), " ", *said, f"{comma} ", verdict, *where, "."))


def _join_as_sentences(texts: Sequence[Text]) -> Text:
    """Join texts as sentences."""
    out: list[md.Inline] = []
    for words in texts:
        if out:
            end = isinstance(out[-1], str) and out[-1].endswith(".")
            out.append(" " if end else ". ")
        out += typeset_words.opened(words)
    return tuple(out)


# -- documents ---------------------------------------------------------------------------------------------------------
def document(decisions: Sequence[Decided], command: str, name: str) -> Document:
    """Return one theorem as a document of its own, or several as sections."""
    if len(decisions) == 1:
        theorem = decisions[0].theorem
        return _make_proof_document(
            decisions,
            (Code(theorem.name),),
            (titled(theorem.topic),),
            blocks(decisions[0]),
            command,
            name,
        )
    sections = tuple(
        b for d in decisions for b in (md.Heading((Code(d.theorem.name),)), *blocks(d))
    )
    return _make_proof_document(
        decisions,
        ("Theorems about attention",),
        counts(decisions),
        (*sections, closing(decisions)),
        command,
        name,
    )


def table(decisions: Sequence[Decided], command: str, name: str) -> Document:
    """Return a table for each topic: name, statement, grade; then how many have each grade."""
    parts: list[Block] = []
    for topic in dict.fromkeys(d.theorem.topic for d in decisions):
        cells = []
        for d in (d for d in decisions if d.theorem.topic == topic):
            where = d.finding.evidence.where
            # A long place would widen the table.
            where = where if len(where) <= 80 else where[:77].rstrip(" ,;") + " …"
            cells.append(
                (
                    (Code(d.theorem.name),),
                    (d.grade.value,),
                    (d.finding.false_grade.value,),
                    (where,),
                )
            )
        columns = md.headers("theorem", "grade", "false variant", "where")
        rows_of_topic = tuple(cells)
        parts += [md.Heading((titled(topic),)), md.Table(columns, rows_of_topic)]
    left_out = tuple(((Code(d.theorem.name),), (d.not_by_coq,)) for d in decisions if d.not_by_coq)
    if left_out:
        columns = md.headers("theorem", "why Coq has not shown it")
        parts += [md.Heading(("Not shown by Coq",)), md.Table(columns, left_out)]
    return _make_proof_document(
        decisions,
        ("Theorems about attention",),
        counts(decisions),
        (*parts, closing(decisions)),
        command,
        name,
    )


def counts(decisions: Sequence[Decided]) -> Text:
    """Return the counts by grade: 118 theorems: 101 proved, 17 checked."""
    grades = [d.grade for d in decisions]
    each = [f"{grades.count(g)} {g.value}" for g in Grade if g in grades]
    plural = "s" * (len(decisions) != 1)
    return (f"{len(decisions)} theorem{plural}: {', '.join(each)}",)


def closing(decisions: Sequence[Decided]) -> Block:
    """Return a paragraph on how many theorems have each grade, and how many false variants are refuted."""
    refuted = sum(d.finding.false_grade is Grade.REFUTED for d in decisions)
    accepted = sum(d.finding.false_grade is Grade.PROVED for d in decisions)
    variants = (
        f". Of {len(decisions)} false variants, {refuted} are refuted and {accepted} accepted."
    )
    every = [r for d in decisions if d.finding.reading for r in d.finding.reading.claims]
    read = sum(r.evidence is not None for r in every)
    said = f" Of {len(every)} formulas in the statements, {read} are read as printed, {len(every) - read} are words."
    return md.Paragraph((*counts(decisions), variants, said if every else ""))


def _make_proof_document(
    results: Sequence[Decided],
    title: Text,
    subtitle: Text,
    body: tuple[Block, ...],
    command: str,
    name: str,
) -> Document:
    return Document("proof", name, title, body, subtitle, command, record=record(results))


# -- JSON --------------------------------------------------------------------------------------------------------------
def record(decisions: Sequence[Decided]) -> Mapping[str, Any]:
    """Return the fields that the JSON form of a proof promises."""
    grades = [d.grade for d in decisions]
    return {
        "verdict": weakest(d.finding.evidence for d in decisions).value,
        "counts": {g.value: grades.count(g) for g in Grade if g in grades},
        "theorems": [_record_decided_theorem(d) for d in decisions],
    }


def _record_decided_theorem(decided: Decided) -> Mapping[str, Any]:
    theorem, finding = decided.theorem, decided.finding
    more = {"certificates": decided.certificates} if decided.certificates else {}
    return {
        "name": theorem.name,
        "topic": theorem.topic,
        "grade": finding.grade,
        "where": finding.evidence.where,
        "seconds": finding.seconds,
        "statement": plain_text(theorem.says),
        "tex": in_tex(theorem.says),
        "decided": [text(x) for x in finding.stated],
        "hypotheses": [plain_text(h) for h in (*theorem.hypotheses, *finding.hypotheses)],
        "why": plain_text(theorem.why),
        "how": [plain_text(h) for h in finding.how],
        "source": theorem.source,
        "witness": plain_text(finding.witness),
        "read": [_record_read_relation(r) for r in finding.reading.claims]
        if finding.reading
        else [],
        "false_variant": {
            "grade": finding.false_grade,
            "statement": plain_text(theorem.false_says),
            "tex": in_tex(theorem.false_says),
            "counterexample": plain_text(finding.counterexample),
            "read": [_record_read_relation(r) for r in finding.reading.false]
            if finding.reading
            else [],
        },
        **more,
    }


def _record_read_relation(r: ReadRelation) -> Mapping[str, Any]:
    """Return a formula with its grade as printed, or null and the reason if it is not read."""
    if r.evidence:
        grade, where = (r.evidence.grade, r.evidence.where)
    else:
        grade, where = (None, r.reason)
    return {"formula": text(r.formula), "grade": grade, "where": where}


def certified(decided: Decided) -> str:
    """Return a file of the theorem's certificates, as ``checker`` reads it. Raises InputError if it is not proved."""
    theorem, finding = decided.theorem, decided.finding
    # Printed relations that code does not make have a grade of their own; the certificates are of the code.
    grade = (finding.of_code or finding.evidence).grade
    if grade not in (Grade.COQ, Grade.PROVED, Grade.ARGUED) or not decided.certificates:
        raise InputError(f"{theorem.name} is {finding.grade.value}: there is no certificate of it")
    argued = grade is Grade.ARGUED
    rule = getattr(theorem.method, "rule", ()) if argued else ()
    record = {
        "schema": 1,
        "kind": "certificates",
        "theorem": theorem.name,
        "statement": plain_text(theorem.says),
        "grade": Grade.ARGUED.value if argued else Grade.PROVED.value,
        "rule": plain_text(rule)
        or ("what the method decides apart from its certificates" if argued else ""),
        "hypotheses": [plain_text(h) for h in (*theorem.hypotheses, *finding.hypotheses)],
        "certificates": list(decided.certificates),
    }
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def in_tex(words: Text) -> str:
    """Return running text with its formulas between dollar signs."""
    return "".join(
        f"${tex(w, inline=True)}$" if isinstance(w, Node) else plain_text((w,)) for w in words
    )


# -- the book: all theorems as one volume ------------------------------------------------------------------------------
_SPELT = {
    "alibi": "ALiBi", "fp16": "float16", "gqa": "GQA", "kv": "key–value",
    "layernorm": "LayerNorm", "lse": "log-sum-exp", "mha": "multi-head attention", "mla": "MLA", "mqa": "MQA",
    "nan": "NaN", "nope": "NoPE", "qk": "query–key", "rmsnorm": "RMSNorm", "rope": "RoPE", "vjp": "backward pass",
    "bregman": "Bregman", "dobrushin": "Dobrushin", "gibbs": "Gibbs", "hopfield": "Hopfield", "jacobian": "Jacobian",
    "lipschitz": "Lipschitz", "hessian": "Hessian", "euclidean": "Euclidean",
}  # fmt: skip
"""Words of names that are spelt differently in a sentence."""


def book(decisions: Sequence[Decided], command: str) -> Document:
    """Return the book: how to read it, a chapter for each topic, and a section for each theorem."""
    parts: list[Block] = [md.Contents(), *_explain_sections_and_grades(decisions)]
    for topic in dict.fromkeys(d.theorem.topic for d in decisions):
        chapter = [d for d in decisions if d.theorem.topic == topic]
        numbers = (*counts(chapter), ".")
        parts += [md.Heading((titled(topic),)), md.Paragraph(numbers)]
        for d in chapter:
            parts += [
                md.Heading((title(d.theorem),), 2),
                *blocks(d),
                md.Paragraph((Emph("Name."), " ", Code(d.theorem.name), ".")),
            ]
    return Document(
        "proof",
        "book",
        ("Theorems about attention",),
        tuple(parts),
        counts(decisions),
        command,
        record=record(decisions),
    )


def title(theorem: Theorem) -> str:
    """Return the title of a theorem, or the words of its name: "My log-sum-exp lemma"."""
    words = theorem.title or " ".join(_SPELT.get(word, word) for word in theorem.name.split("-"))
    return words[:1].upper() + words[1:]


def _explain_sections_and_grades(results: Sequence[Decided]) -> tuple[Block, ...]:
    """Return how to read a section, the meaning of the grades, and how many theorems have each."""
    grades = [d.grade for d in results]
    words = (
        "Each section states a theorem, its hypotheses and why it holds, and says how that is known. The false variant"
        " is a statement much like it, which the same method must refute: a method that accepts everything shows"
        " nothing. Any section can be made again with "
    )
    rows = tuple(
        ((Emph(g.value),), (g.means,), (str(grades.count(g)),)) for g in Grade if g in grades
    )
    columns = md.headers("grade", "how it is known", ">theorems")
    return (
        md.Heading(("How to read this book",)),
        md.Paragraph((words, Code("symattn prove NAME --explain"), ".")),
        md.Table(columns, rows),
        closing(results),
    )
