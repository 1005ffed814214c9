"""The grade ``coq``: theorems whose equations Coq has all accepted, and the report on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from symattn.document import model as md
from symattn.document.evidence import Evidence, Grade
from symattn.document.files import MARK
from symattn.document.model import Block, Code, Emph, Inline
from symattn.document.text import plain_text
from symattn.proof.coq import theory
from symattn.proof.coq.coq_judges import LIBRARY, CoqJudgement, settled
from symattn.proof.coq.writing import HEAD, Lemma
from symattn.proof.inequality import Certificate
from symattn.proof.joint_statements import Fails, Together
from symattn.proof.rules import Rule
from symattn.proof.theorem import Identity, Method
from symattn.theorems.as_printed import AsPrinted
from symattn.theorems.documents import Decided

_UNSEEN = (
    "what divides below a sum is not positive by its form, "
    "or Coq's computation does not see that both sides agree"
)
_SHOWN = 4  # statements that are printed


@dataclass(frozen=True)
class Checked:
    """Theorems with the verdicts of Coq, and a file of the accepted lemmas."""

    found: list[Decided]
    file: str


def checked(decisions: Sequence[Decided], command: str, jobs: int = 1) -> Checked:
    """Have Coq judge every equation of the theorems. Without Coq they stay unchanged, and a note says so."""
    if not theory.version():
        return Checked(
            [_add_explaining_blocks(d, (md.Note((theory.INSTALL,)),)) for d in decisions], ""
        )
    named_certificates = [(d.theorem.name, d.certificates) for d in decisions]
    requested, judgement = settled(named_certificates, jobs)
    return Checked(
        [_grade_by_coq(d, each, judgement) for d, each in zip(decisions, requested, strict=True)],
        _write_coq_theorem_file(
            decisions,
            [x for each in requested for x in each if x.name in judgement.accepted],
            command,
        ),
    )


def states_it(method: Method) -> bool:
    """Return whether equations, signs and inferences alone prove a statement, without a rule in words."""
    if isinstance(method, Together):
        return not method.rule and all(map(states_it, method.parts))
    return isinstance(method, Certificate | Fails | Rule | AsPrinted) or (
        isinstance(method, Identity) and not method.rule
    )


def _grade_by_coq(decided: Decided, requests: Sequence[Lemma], judgement: CoqJudgement) -> Decided:
    accepted = [x for x in requests if x.name in judgement.accepted]
    why = _why_not(decided, requests, accepted, judgement) or _axioms_outside_coq_library(judgement)
    result = replace(
        _add_explaining_blocks(
            decided, _describe_coq_judgement(requests, accepted, judgement, why)
        ),
        not_by_coq=why,
    )
    # A reason leaves the grade as it was.
    if why:
        return result
    evidence = Evidence(Grade.COQ, f"all sizes, by Coq {theory.version()}")
    return replace(result, finding=replace(result.finding, evidence=evidence))


def _why_not(
    decided: Decided, requests: Sequence[Lemma], accepted: Sequence[Lemma], judgement: CoqJudgement
) -> str:
    """Return why a theorem does not get the grade, or ""."""
    if decided.grade is not Grade.PROVED:
        return f"it is {decided.grade.value}: {decided.finding.evidence.where}"
    refused = [x for x in requests if x not in accepted]
    if not requests:
        return "it has no equations and bounds"
    if refused:
        result = [judgement.stopped.get(x.name) or x.why or _UNSEEN for x in refused]
        reasons = dict.fromkeys(why.removeprefix("coq: ") for why in result)
        return "; ".join(
            (f"{len(refused)} of {len(requests)} equations and bounds are not accepted", *reasons)
        )
    # A lemma of 0 = 0 shows nothing.
    if empty := sum(x.empty for x in requests):
        return f"in {empty} of {len(requests)} equations Coq sees nothing but 0 = 0"
    return (
        "" if states_it(decided.theorem.method) else "what follows from its equations is not in Coq"
    )


def _axioms_outside_coq_library(judgement: CoqJudgement) -> str:
    """Return the axioms outside Coq's own library, or ""."""
    other = [axiom for axiom in judgement.axioms if axiom not in LIBRARY]
    return (
        f"axioms are assumed that are not of Coq's own library: {', '.join(other)}" if other else ""
    )


def _add_explaining_blocks(decided: Decided, blocks: tuple[Block, ...]) -> Decided:
    return replace(decided, explained=(*decided.explained, *blocks))


def _describe_coq_judgement(
    requests: Sequence[Lemma], accepted: Sequence[Lemma], judgement: CoqJudgement, why: str
) -> tuple[Block, ...]:
    """Describe what Coq accepted, on which axioms, the statements and, if the grade is not ``coq``, the reason."""
    if not requests:
        return (md.Paragraph((Emph("Coq."), " There is no equation for it.")),)
    out: list[Block] = [
        md.Paragraph(
            (
                Emph("Coq."),
                f" {_count_accepted_in_words(len(accepted), len(requests))}",
                *_list_assumed_axioms(judgement),
            )
        )
    ]
    shown = [x.readable for x in accepted if x.readable][:_SHOWN]
    if shown:
        supposed = tuple(dict.fromkeys(w for r in shown for w in r.words))
        words = "Sizes are from 1 on, arrays are functions of natural numbers, and sum n f is f(0) + … + f(n − 1)"
        words += ", and x - y is written for x + (-1) y"
        out.append(md.Paragraph((". ".join((words, *supposed)) + ".",)))
        out += [md.Listing(r.statement, "coq") for r in shown]
    if alike := sum(x.alike for x in accepted):
        words = "the definitions, run on letters, make them so, and there is nothing left for Coq to show"
        out.append(
            md.Note((f"In {alike} of {len(accepted)} both sides are written alike: {words}.",))
        )
    if len(accepted) > len(shown):
        out.append(
            md.Paragraph(
                (f"{len(accepted) - len(shown)} more statements stand in the file that -o writes.",)
            )
        )
    if why:
        out.append(md.Note((f"The grade is not coq: {why}.",)))
    return tuple(out)


def _count_accepted_in_words(accepted: int, value: int) -> str:
    if value == 1:
        return f"Coq {theory.version()} {'accepts' if accepted else 'does not accept'} it"
    many = "all" if accepted == value else f"{accepted} of"
    return f"Coq {theory.version()} accepts {many} {value} equations and bounds"


def _list_assumed_axioms(judgement: CoqJudgement) -> tuple[Inline, ...]:
    """Return the axioms, as ``Print Assumptions`` lists them."""
    if not judgement.accepted:
        return (".",)
    # Axioms of Coq's own library are usual.
    whose = "" if _axioms_outside_coq_library(judgement) else ", all of Coq's own library,"
    out: list[Inline] = [
        f", for all sizes; the axioms below it{whose} are " if judgement.axioms else ""
    ]
    for n, axiom in enumerate(judgement.axioms):
        out += [", " if n else "", Code(axiom.rpartition(".")[2])]
    return (*(w for w in out if w != ""), ".")


def _write_coq_theorem_file(
    results: Sequence[Decided], accepted: Sequence[Lemma], command: str
) -> str:
    """Return a file that coqc accepts together with the theory; each theorem begins with its statement in words."""
    statements = (f"   {d.theorem.name}: {plain_text(d.theorem.says)}" for d in results)
    said = "\n".join(statements)
    run = "coqc -Q THEORY Symattn FILE.v, where THEORY is symattn/proof/coq, compiled"
    words = f"{MARK}: {command}\n\n{said}\n\n   {run}"
    ends = "\n".join(f"Print Assumptions {x.name}." for x in accepted[:1])
    # Comments of Coq nest, and strings in them must be closed.
    safe = words.replace("(*", "( *").replace("*)", "* )").replace('"', "'")
    texts = "\n".join(x.text for x in accepted)
    return f"(* {safe}. *)\n{HEAD}\n" + texts + f"\n{ends}\n"
