r"""Theorems as texts: a file for each topic in ``catalogue``, a paragraph for each theorem, read with its topic.

The first line is ``NAME: TITLE``, those below say what the theorem says, with formulas between dollar signs; then, a
line each (an indented line goes on with the one before)::

    letters: BASE | …   the meanings of its letters, if not those of the topic's first glossary
    for: …              a hypothesis
    source: …           who stated it, unless it is folklore
    why: …              the idea of the proof, in a sentence
    false: …            the false variant
    gap SIDE: …         for an inequality, by one of its sides, larger − smaller in a form that shows its sign; then,
                        after semicolons, the letters of the form: ``x_j = s_j − t``, ``r = max(s) − s_1 by largest``
                        (see ``Gap``), and ``only r``
    step LETTERS: …     relations from which the statement follows, decided in its place; with other letters than the
                        theorem's if some are named, in the form of ``letters``
    rule: …             the inference from the relations, in words; with one the theorem is at most argued
    top: NUMBER         the largest size at which counterexamples to equations are searched for
    by NAME             a method from Python, which decides what the print alone does not
    and NAME            a method from Python for another part of the statement

Letters begin with the name of a glossary, or with ``new``, and go on with parts such as ``Q n_q d_k, c`` (arrays and
their shapes), ``but P O`` (letters without their meaning), ``where O = P V; ℓ = G·O``, ``rows``, ``loss ℓ``, ``laws q
σ μ`` (random rows with this deviation and mean), ``positive a b``, ``index i n, j m``, ``sizes m p+n``, ``sets M m``,
``units C D, E F``, ``roles v none`` (see ``Glossary``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from symattn.document.errors import InputError
from symattn.document.formulas import ARRAY_ROLES, formula, running_text
from symattn.document.model import Text
from symattn.proof.expectation import EntryLaw, law_with
from symattn.proof.joint_statements import Together
from symattn.proof.relations.glossary import Gap, Glossary, LetterDefinition
from symattn.proof.theorem import Method, Theorem
from symattn.theorems.as_printed import AsPrinted, Following

APART = re.compile(r"; (?![^\[]*\])")  # not between the rows of a matrix
_LINE = re.compile(r"(letters|for|source|why|false|rule|top|step): (.*)|(by|and|gap|step) (.*)")


def of_file(
    topic: str, letters: Mapping[str, Glossary | None], values: Mapping[str, Any] | None = None
) -> tuple[Theorem, ...]:
    """Read the theorems of a topic from the file of its name in ``catalogue``; see ``theorems``."""
    file = files("symattn").joinpath("theorems", "catalogue", f"{topic}.txt")
    return theorems(topic, file.read_text(encoding="utf-8"), letters, values)


def theorems(
    topic: str,
    typed: str,
    letters: Mapping[str, Glossary | None],
    values: Mapping[str, Any] | None = None,
) -> tuple[Theorem, ...]:
    """Read the theorems of a topic.

    ``letters`` are glossaries by the name of a theorem or by names of their own; the one without a name is for all
    other theorems. ``values`` are methods by name.
    """
    paragraphs = re.split(r"\n\n+", typed.strip())
    return tuple(
        _parse_theorem_paragraph(
            topic, re.sub(r"\n +", " ", one).split("\n"), letters, values or {}
        )
        for one in paragraphs
    )


def _parse_theorem_paragraph(
    topic: str, lines: list[str], letters: Mapping[str, Glossary | None], values: Mapping[str, Any]
) -> Theorem:
    name, _, title = lines[0].partition(": ")
    parts: dict[str, list[str]] = {}
    for line in lines[1:]:
        match = _LINE.fullmatch(line)
        # A line without a word in front goes on with the statement.
        parts.setdefault((match[1] or match[3]) if match else "says", []).append(
            match[2] or match[4] if match else line
        )
    glossary = letters.get(name, letters.get(""))
    if "letters" in parts:
        glossary = letters_of(parts["letters"][0], letters)
    gaps, typed_steps = parts.get("gap", ()), parts.get("step", ())
    # With steps, each step takes its own gaps; the statement itself has none.
    if glossary and not typed_steps:
        glossary = _with_gaps(glossary, gaps)

    def read(typed: str) -> Text:
        return running_text(typed, glossary.roles if glossary else ARRAY_ROLES)

    assumed = tuple(map(read, parts.get("for", ())))
    said, false, rule, why = (
        read(" ".join(parts.get(part, ()))) for part in ("says", "false", "rule", "why")
    )
    # A theorem comes with a false variant: a method that proves that too shows nothing.
    if not said or not false or not (glossary or "by" in parts):
        raise InputError(
            f"theorem {name}: what it says, its false variant, and letters or a method are needed; hint: it ends at an"
            " empty line"
        )
    if "by" in parts:
        methods: list[Method] = [values[parts["by"][0]]]
    else:
        assert glossary is not None
        top = int(parts.get("top", ["3"])[0])
        methods = [AsPrinted(said, false, assumed, glossary, top)]
    methods += [values[word] for word in parts.get("and", ())]
    if typed_steps:
        steps = [
            _parse_proof_step(step, glossary or Glossary(), assumed, letters, gaps)
            for step in typed_steps
        ]
        shown = tuple(part for step in steps for part in (*step.says, " "))
        # The printed statement is only refuted when false; the steps are decided in its place.
        others = methods if "by" in parts else methods[1:]
        every_step = Together((*steps, *others), (*shown, *rule))
        method: Method = Following(methods[0], every_step)
    else:
        method = Together(tuple(methods), rule) if rule or len(methods) > 1 else methods[0]
    source = parts.get("source", ["folklore"])[0]
    return Theorem(name, topic, said, method, source, false, why, assumed, glossary, title)


def _parse_proof_step(
    typed: str,
    glossary: Glossary,
    assumed: tuple[Text, ...],
    letters: Mapping[str, Glossary | None],
    gaps: Sequence[str],
) -> AsPrinted:
    """Read relations from which a statement follows; with letters of their own they have no hypotheses."""
    own, colon, said = typed.partition(": ")
    if colon and "$" not in own:
        typed, glossary, assumed = said, letters_of(own, letters), ()
    return AsPrinted(running_text(typed, glossary.roles), (), assumed, _with_gaps(glossary, gaps))


def letters_of(typed: str, letters: Mapping[str, Glossary | None]) -> Glossary:
    """Return the glossary of a line of letters, which begins with the name of one of ``letters``."""
    base, *parts = re.split(r"(?:^| )\| ", typed)
    # Letters of sizes that are typed replace the usual ones, and are not added to them.
    sized = any(part.startswith("sizes ") for part in parts)
    result = (Glossary(sizes={}) if sized else Glossary()) if base == "new" else letters[base]
    assert result is not None
    for part in parts:
        word, _, rest = part.partition(" ")
        if word == "but":
            result = result.but(*rest.split())
        elif word == "where":
            result = result.where(*APART.split(rest))
        elif word == "laws":
            laws = _parse_keyed_pairs(rest, _parse_entry_law)
            parameters = {key: "" for law in laws.values() for key in law.parameters}
            result = result.also(parameters, laws=laws)
        elif word in _READ:
            more: Any = {word: _READ[word](rest)}
            result = result.also(**more)
        else:
            result = result.also(_parse_keyed_pairs(part, lambda _, shape: shape))
    return result


def _parse_entry_law(key: str, typed: str) -> EntryLaw:
    parameters = typed.split()
    if len(parameters) not in (1, 2):
        raise InputError(
            f"laws {key} {typed}: a letter, its deviation and, if not 0, its mean; hint: laws x σ"
        )
    return law_with(*parameters)


def _with_gaps(glossary: Glossary, gaps: Sequence[str]) -> Glossary:
    result = {}
    for side, _, typed in (gap.partition(": ") for gap in gaps):
        body, *others = typed.split("; ")
        letters = dict[str, LetterDefinition]()
        laws = dict[str, str]()
        only = tuple[str, ...]()
        for other in others:
            if other.startswith("only "):
                only = tuple(other.split()[1:])
                continue
            meaning, _, law = other.partition(" by ")
            letter, defined = glossary.explained(meaning)
            letters[letter] = defined
            laws |= {letter: law} if law else {}
        result[formula(side, glossary.roles)] = Gap(
            formula(body, glossary.roles), letters, laws, only
        )
    return glossary.also(gaps=result)


def _parse_keyed_pairs(typed: str, of: Callable[[str, str], Any]) -> dict[str, Any]:
    """Read ``i n, j m`` as a mapping."""
    return {
        key: of(key, value) for key, _, value in (pair.partition(" ") for pair in typed.split(", "))
    }


def roles_of(typed: str) -> dict[str, Any]:
    """Read ``x input, a none`` as roles of letters."""
    return _parse_keyed_pairs(typed, lambda _, role: None if role == "none" else role)


_READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(
        ("index", "sizes", "permutations", "sets"),
        lambda typed: _parse_keyed_pairs(typed, lambda key, sort: sort or key),
    ),
    "roles": roles_of,
    "places": lambda typed: _parse_keyed_pairs(typed, lambda _, place: int(place)),
    **dict.fromkeys(("positive", "nonnegative"), lambda typed: tuple(typed.split())),
    **dict.fromkeys(("sharp", "loss"), str),
    "units": lambda typed: tuple(_parse_keyed_pairs(typed, lambda _, sine: sine).items()),
    **dict.fromkeys(("rows", "example", "exact"), lambda _: True),
    "first": int,
}
"""The readers of the fields of a glossary, by the word that begins them."""
