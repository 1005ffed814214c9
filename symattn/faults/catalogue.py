"""Codes of causes for readers: what each means, the smallest input that shows it, where it was seen, how to mend it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from symattn.attention.flow import Step
from symattn.document.codec import record
from symattn.document.errors import InputError
from symattn.document.model import (
    Block,
    Code,
    Document,
    Emph,
    Heading,
    Inline,
    Items,
    Listing,
    Note,
    Paragraph,
    Table,
    Text,
    headers,
)
from symattn.document.notation import Relation
from symattn.document.text import assignment
from symattn.faults import detection
from symattn.faults.corpus import CorpusFault, PublicReport, corpus
from symattn.faults.examples import Example, example_of
from symattn.programs.specifications import kind_of
from symattn.verification.codes import (
    ANY_STEP,
    CauseCode,
    CauseSentence,
    codes,
    lines_of,
    read_code,
)
from symattn.verification.report_document import typeset
from symattn.verification.rules.operations import step_to_blame

_DIGITS = 6  # of printed outputs
_LARGEST = 400  # characters of a printed array
_NEAR = 3  # codes that an unknown one may have meant
_MAX_OF_FAMILY = 6  # codes that begin with an unknown one, in a message


#: Why no input is shown for some codes, and these codes.
_REASONS_WITHOUT_INPUT = {
    "in exact arithmetic the mistake changes nothing; it shows by rounding, overflow or underflow in the format of the "
    "function":
        "scores-overflow max-starts-finite max-missing max-of-whole-array max-of-tile max-other exp-loses-digits "
        "variance-cancels rotary-frequencies-rounded arithmetic-narrower",
    "the mistake shows in repeated calls, in memory or in the type of the result, not in the numbers of one call":
        "call-stale call-reuses-earlier call-fails argument-changed result-overwritten views-misread dtype-changed "
        "not-deterministic",
    "the mistake shows only where many keys lie far below two others":
        "keys-skipped",
    "the mistake shows beyond a chunk of 16 tokens or more, and inputs of fewer tokens are shown":
        "state-transposed",
    "the mistake shows only where outputs are as wide as their gates, and inputs of other widths are shown":
        "output-gate-late",
    "the mistake is named from the difference between calls whose inputs differ in one place":
        "keys-miscounted input-ignored",
    "the mistake is named by an audit, from the arrays of a model's own call":
        "bias-as-mask up-projection-missing residual-twice part-missing",
    "the code stands for any operation in place of any other one, both of which the sentence names":
        "operation-other",
    "the code is that of a term of any field whose mistakes have no codes with its name":
        "term-missing term-twice term-sign term-off term-of-other-head term-limit",
}  # fmt: skip


def reason_without_input(code: str) -> str:
    """Return why no input is shown for a code; "" if one is."""
    return next(
        (reason for reason, codes_ in _REASONS_WITHOUT_INPUT.items() if code in codes_.split()), ""
    )


def explain_missing_input(code: str) -> str:
    """Return the sentence in the place of an input: the reason why none is shown, if there is one."""
    reason = reason_without_input(code)
    return f"No input is shown: {reason}." if reason else "No input that shows it is stored."


@dataclass(frozen=True)
class CodePage:
    """A code: its sentences, the step to blame, its parameters, its faults in the corpus, and an example.

    ``example`` is None for a code that no rule computes: it is named from what calls show.
    """

    code: str
    sentences: tuple[CauseSentence, ...]
    faults: tuple[CorpusFault, ...]
    example: Example | None

    @property
    def step(self) -> str:
        """The step that is blamed; ``any`` for a mistake that may happen to any array."""
        return self.sentences[0].step

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, each once; also of those that come from words around a sentence."""
        own = [name for s in self.sentences for name in (*s.names, *s.fixed)]
        code = self.example_code
        return tuple(dict.fromkeys((*own, *(code.parameters if code else ()))))

    @property
    def example_code(self) -> CauseCode | None:
        """The code of the example, with its parameters."""
        return read_code(self.example.cause, self.example.step) if self.example else None

    @property
    def reports(self) -> tuple[PublicReport, ...]:
        """The public reports that its faults in the corpus resemble."""
        return tuple(report for fault in self.faults for report in fault.reports)


@lru_cache(maxsize=1)
def _of_corpus() -> Mapping[str, tuple[CorpusFault, ...]]:
    """Return the faults of the corpus by code."""
    result: dict[str, tuple[CorpusFault, ...]] = {}
    for fault in corpus():
        code = read_code(fault.words, fault.mistake.step)
        assert code is not None, fault.words
        result[code.code] = (*result.get(code.code, ()), fault)
    return result


def page_of(name: str) -> CodePage:
    """Return the page of a code, or of a fault of the corpus, also as a verdict has it, ``[scale-off: factor = 2]``.

    Raises ``InputError`` with near codes without one, and for several codes of one verdict.
    """
    # A verdict may have several codes.
    several = [part for part in _JOIN.split(name.strip("[]. ")) if part]
    if len(several) > 1 and all(part.partition(":")[0] in codes() for part in several):
        raise InputError(
            f"these are {len(several)} codes; hint: symattn faults show {several[0].partition(':')[0]}"
        )
    name = name.strip("[]. ").partition(":")[0]
    code = (
        name
        if name in codes()
        else next((c for c, fs in _of_corpus().items() if name in {f.name for f in fs}), "")
    )
    if not code:
        raise InputError(f"there is no code {name!r}{_hint_nearest_codes(name)}")
    return CodePage(code, lines_of(code), _of_corpus().get(code, ()), example_of(code))


_JOIN = re.compile(r"\s+(?:\+|or)\s+")


def _hint_nearest_codes(name: str) -> str:
    """Return a hint with the codes that are nearest in spelling, or with the command that lists all."""
    from difflib import get_close_matches

    known = (*codes(), *(fault.name for fault in corpus()))
    # A prefix of codes is a family, such as scale-.
    family = [code for code in codes() if code.startswith(f"{name.lower()}-")]
    if family:
        rest = ", …" * (len(family) > _MAX_OF_FAMILY)
        return f"; codes that begin so: {', '.join(family[:_MAX_OF_FAMILY])}{rest}"
    near = get_close_matches(name.lower(), known, n=_NEAR, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else "; `symattn faults` lists the codes"


# -- documents ---------------------------------------------------------------------------------------------------------
def listed_codes() -> Document:
    """Return every code by step, with its first sentence."""
    blocks: list[Block] = []
    steps = dict.fromkeys(lines_of(code)[0].step for code in codes())
    for step in steps:
        every = (lines_of(code) for code in codes())
        own = [lines for lines in every if lines[0].step == step]
        first_lines = (lines[0] for lines in own)
        rows = tuple(((Code(line.code),), _emphasise_parameters(line)) for line in first_lines)
        blocks += [Heading((heading(step),)), Table(headers("code", "what is wrong"), rows)]
    entries = [
        {
            "code": code,
            "step": lines_of(code)[0].step,
            "sentences": [s.words for s in lines_of(code)],
        }
        for code in codes()
    ]
    return Document(
        "listing", "codes", ("Codes of causes",), tuple(blocks), command="symattn faults",
        subtitle=(f"{len(codes())} codes",), hints=("symattn faults show CODE explains one",),
        record=record({"codes": entries}),
    )  # fmt: skip


def heading(step: str) -> str:
    """Return the heading of the codes of a step."""
    return "any array" if step == ANY_STEP else step


def _emphasise_parameters(sentence: CauseSentence) -> Text:
    """Return a sentence with the names of its parameters emphasised."""
    parts: list[Inline] = []
    for is_name, words in sentence.parts:
        parts += [Emph(f"⟨{words}⟩")] if is_name else typeset(words)
    return tuple(parts)


def shown_code(page: CodePage) -> Document:
    """Return the page of a code as a document."""
    blocks = [
        *_yield_meaning_of_code(page),
        *_yield_smallest_input(page),
        *_yield_mended_steps(page),
        *_yield_reports_of_code(page),
    ]
    return Document(
        "listing",
        "code",
        ("Code ", Code(page.code)),
        tuple(blocks),
        command=f"symattn faults show {page.code}",
        subtitle=(heading(page.step),),
        record=record(_record_code_page(page)),
    )


def _yield_meaning_of_code(page: CodePage) -> Iterator[Block]:
    """Yield what the code stands for, and its parameters."""
    sentences = tuple(map(_emphasise_parameters, page.sentences))
    blamed = (
        "It may happen to any array."
        if page.step == ANY_STEP
        else f"First wrong step: {page.step}."
    )
    if len(sentences) == 1:
        yield Paragraph((*_capitalise_sentence(sentences[0]), f". {blamed}"))
    else:
        yield Paragraph((f"{blamed} The code stands for:",))
        yield Items(sentences)
    if page.parameters:
        yield Paragraph((f"Parameters: {', '.join(page.parameters)}.", *_for_example(page)))


def _capitalise_sentence(sentence: Text) -> Text:
    first, *rest = sentence
    if not isinstance(first, str):
        return sentence
    return (first[:1].upper() + first[1:], *rest)


def _for_example(page: CodePage) -> Text:
    code = page.example_code
    return (" In the example: ", Code(code.text), ".") if code and code.parameters else ()


def _yield_smallest_input(page: CodePage) -> Iterator[Block]:
    """Yield the smallest input found, with both outputs."""
    example = page.example
    if example is None:
        yield Note((explain_missing_input(page.code),))
        return
    of = ("The smallest input found that shows it, for ", Code(example.specification))
    yield Paragraph((*of, ", with both outputs in float64 (sampled):"))
    yield Listing(shown_input(example))


def shown_input(example: Example) -> str:
    """Return the inputs and both outputs, each array from a new line on."""
    outputs = {"expected": example.right, "with this mistake": example.wrong}
    lines = (
        assignment(name, _write_array_in_line(a))
        for name, a in (*example.inputs.items(), *outputs.items())
    )
    return "\n".join(lines)


def _write_array_in_line(a: np.ndarray) -> str:
    """Return an array in a line; only its shape if it is large."""
    # Adding 0.0 turns −0.0 into 0.
    numbers = np.round(a, _DIGITS) + 0.0 if a.dtype.kind == "f" else a
    text = (
        str(numbers.tolist())
        .replace(".0,", ",")
        .replace(".0]", "]")
        .replace("nan", "NaN")
        .replace("inf", "∞")
    )
    return (
        text.replace("-", "−")
        if len(text) <= _LARGEST
        else f"{a.dtype.name}, {' × '.join(map(str, a.shape))}"
    )


def _yield_mended_steps(page: CodePage) -> Iterator[Block]:
    """Yield the definition's step, and the command that looks for an edit."""
    steps = mended(page)
    if steps:
        yield Paragraph(("It should be:",))
        yield Items(steps)
    edit = Code("symattn verify FILE.py:FUNCTION --fix")
    yield Paragraph((edit, " prints the edit that makes a function right, if a small one does."))


def mended(page: CodePage) -> tuple[Text, ...]:
    """Return the steps of the definition that are to blame: the formula and the reason of each."""
    steps = _right_steps(page.example)
    return tuple(
        (Relation(s.symbol, (("=", s.formula),)), *_write_reason_after_colon(s)) for s in steps
    )


def _write_reason_after_colon(step: Step) -> Text:
    return (": ", *step.reason) if step.reason else ()


#: Steps of reports that are one step of the definition.
_WITHIN_SOFTMAX = ("max", "exp", "sink", "normalize")


def _right_steps(example: Example | None) -> list[Step]:
    """Return the steps of the definition that are to blame, as the specification has them."""
    if example is None:
        return []
    wanted = "normalize" if example.step in _WITHIN_SOFTMAX else example.step
    return [
        step
        for attention in kind_of(example.spec).attention_with_rules(example.spec)
        for step in attention.pipeline(frozenset(example.inputs))
        if step_to_blame(step.name, "") == wanted
    ]


def _yield_reports_of_code(page: CodePage) -> Iterator[Block]:
    """Yield the faults of the corpus with this code, and the public reports that they resemble."""
    for fault in page.faults:
        yield from detection.in_sample(fault)
    if not page.reports:
        yield Paragraph(("No public report of the corpus resembles it.",))
    else:
        yield Paragraph(("Public reports that resemble it:",))
        items = ((f"{detection.short(report)}: {report.words}",) for report in page.reports)
        yield Items(tuple(items))
        yield Listing("\n".join(dict.fromkeys(report.link for report in page.reports)))


def _record_code_page(page: CodePage) -> dict[str, object]:
    """Return the page as JSON has it."""
    example = page.example
    shown = (
        None
        if example is None
        else {
            "specification": example.specification,
            "step": example.step,
            "cause": example.cause,
            "inputs": {name: a.tolist() for name, a in example.inputs.items()},
            "expected": example.right.tolist(),
            "got": example.wrong.tolist(),
        }
    )
    return {
        "code": page.code,
        "step": page.step,
        "sentences": [s.words for s in page.sentences],
        "parameters": page.parameters,
        "example": shown,
        "faults": page.faults,
        "reports": [{"link": report.link, "words": report.words} for report in page.reports],
    }
