"""Stable codes of causes: each sentence that names a cause has one, with the parameters of its family.

``causes.txt`` is the registry. A line has a code, and the sentence of the mistakes that it stands for. A word in braces
is a parameter, of any words or of those after its colon; after @ come parameters that the sentence has in words. The
lines ``term-missing`` and so on are of the noun of any array, which may have such codes of its own (``codes`` of
``symattn.attention.letters_of_attention``).

>>> read_codes("the causal mask is aligned top-left; expected bottom-right")[0].text
'mask-top-left'
>>> read_codes("scores are scaled by 1.02/√d_k, where n_q > 128")[0].text
'scale-off: factor = 1.02, where = n_q > 128'
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from symattn.attention.letters_of_attention import ARRAYS

#: The heading of mistakes that may happen to any array, at its step.
ANY_STEP = "any"


@dataclass(frozen=True)
class CauseCode:
    """The code of a cause, with the parameters of this cause by name.

    >>> CauseCode("scale-off", {"factor": "1.02"}).text
    'scale-off: factor = 1.02'
    """

    code: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The code, and after a colon the parameters."""
        of = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        return f"{self.code}: {of}" if of else self.code

    RECORD = "code, parameters"


@dataclass(frozen=True)
class CauseSentence:
    """A line of the registry: a code, the step to blame, the sentence with {parameters}, and fixed parameters."""

    line: int
    code: str
    step: str
    words: str
    fixed: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def names(self) -> list[str]:
        """The names of the parameters in the sentence."""
        return [name for name, _ in _PARAMETER.findall(self.words)]

    @property
    def parts(self) -> Iterator[tuple[bool, str]]:
        """Yield the words of the sentence, and the names of its parameters with True before them."""
        end = 0
        for parameter in _PARAMETER.finditer(self.words):
            yield from ((False, self.words[end : parameter.start()]), (True, parameter[1]))
            end = parameter.end()
        yield False, self.words[end:]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The expression that matches the sentences of the line."""
        words, end = "", 0
        for parameter in _PARAMETER.finditer(self.words):
            name, choices = parameter.groups()
            words += (
                re.escape(self.words[end : parameter.start()])
                # A parameter's own alternatives are matched as written; others take few words.
                + f"(?P<{name}>{choices or _ANY_WORDS + '?'})"
            )
            end = parameter.end()
        return re.compile(words + re.escape(self.words[end:]))

    def read(self, cause: str) -> CauseCode | None:
        """Return the code with the parameters of a sentence; None if it is not one of this line."""
        if not self.names:
            return CauseCode(self.code, self.fixed) if cause == self.words else None
        # Most sentences begin or end otherwise, and compiling all patterns takes longer than a verification should
        if not (
            cause.startswith(self.words.partition("{")[0])
            and cause.endswith(self.words.rpartition("}")[2])
        ):
            return None
        match = self.pattern.fullmatch(cause)
        return CauseCode(self.code, {**match.groupdict(), **self.fixed}) if match else None


#: How the codes of mistakes in any term begin, and how that of a term with the other sign ends.
_TERM, _SIGN = "term-", "sign"
#: The noun of any term in a sentence.
_ANY_TERM = re.compile(r"\{term:[^{}]+\}")
#: What a parameter may be if its sentence does not say: anything within one mistake of several.
_ANY_WORDS = r"(?:(?!; (?:or|and) ).)+"
#: A parameter in a sentence: its name, and the words it may be, if not any.
_PARAMETER = re.compile(r"\{(\w+)(?::([^{}]+))?\}")


@lru_cache(maxsize=1)
def sentences() -> tuple[CauseSentence, ...]:
    """Return all lines of the registry: whole sentences first, then those with parameters, each in their order."""
    from importlib import resources  # slow to import, and right functions have no cause

    text = resources.files(__package__).joinpath("causes.txt").read_text(encoding="utf-8")
    step, result = "", []
    for number, line in enumerate(text.splitlines(), 1):
        if not line:
            continue
        if line.startswith("# "):
            step = line[2:]
            continue
        code, words = line.split(maxsplit=1)
        # After " @ " a line fixes parameters that the sentence does not show.
        words, _, fixed = words.partition(" @ ")
        pairs = (pair.partition(" = ") for pair in fixed.split(", ") if pair)
        result.append(
            CauseSentence(number, code, step, words, {name: value for name, _, value in pairs})
        )
    # Before the lines of any term, which read the same sentences.
    result = [*_derive_sentences(result), *result]
    # The sort is stable, so that lines of one kind keep the order of the registry.
    return tuple(sorted(result, key=lambda sentence: bool(sentence.names)))


def _derive_sentences(registered: list[CauseSentence]) -> list[CauseSentence]:
    """Return the lines of arrays that have codes of their own: those of any term, with the array's noun."""
    of_terms = [sentence for sentence in registered if sentence.code.startswith(_TERM)]
    result = []
    for row in ARRAYS.values():
        # What is added has a sign, and may be added twice; other steps are applied twice.
        other_twice = " is applied twice" if f"-{_SIGN}" in row.codes else " is added twice"
        for code in row.codes.split():
            for of_term in of_terms:
                kind = of_term.code.removeprefix(_TERM)
                if code.endswith(f"-{kind}") and other_twice not in of_term.words:
                    words = _ANY_TERM.sub(row.noun, of_term.words)
                    words = words.replace("{term}", row.noun.removeprefix("the "))
                    result.append(CauseSentence(of_term.line, code, row.blames, words))
    return result


@lru_cache(maxsize=1)
def _group_sentences() -> dict[str, tuple[CauseSentence, ...]]:
    """Return the lines of each code."""
    groups: dict[str, list[CauseSentence]] = {}
    for sentence in sentences():
        groups.setdefault(sentence.code, []).append(sentence)
    return {code: tuple(group) for code, group in groups.items()}


def lines_of(code: str) -> tuple[CauseSentence, ...]:
    """Return the lines of a code; none if it is unknown."""
    return _group_sentences().get(code, ())


@lru_cache(maxsize=1)
def codes() -> tuple[str, ...]:
    """Return every code once, in the order of the registry."""
    return tuple(
        dict.fromkeys(
            sentence.code for sentence in sorted(sentences(), key=lambda sentence: sentence.line)
        )
    )


# -- a sentence with something around it: whose mistake it is, where it is made ---------------------------------------
#: Words before a cause, with {parameters}.
_BEFORE = (
    "it is the (?P<of>gradient) of a different attention: ",
    "(?P<of>weights) are computed again from the sums: ",
    "in the norms: ",
    "in the norm of (?P<of>.+?)(?: alone)?: ",
    "in the (?P<of>[^:;]+) norm: ",
    "in the (?P<of>queries|keys) alone: ",
    "in the (?P<of>first|second) of the two attentions alone: ",
    "(?P<of>queries|keys) only: ",
)
#: Words after a cause.
_AFTER = (
    r" \((?:tiles of (?P<tile>[^()]+)|(?P<parts>\d+) parts(?P<rest> and the rest)?)\)",
    ": in the (?P<of>output|sum) alone",
    "(?:, (?P<beside>beside the saved output))?, in (?P<in>dV|dQ and dK) alone",
    ", in (?P<in>the sum of the (?:values|weights)) alone",
    ", (?P<beside>beside the saved output)",
    ", in (?P<in>what is returned) alone",
    "; they are (?P<merged>merged in the same way)",
    ", and so is that of (?P<too>both)",
    f", where (?P<where>{_ANY_WORDS})",
    f", for (?P<only>{_ANY_WORDS})",
)  # fmt: skip


@lru_cache(maxsize=4096)
def read_code(cause: str, step: str = "") -> CauseCode | None:
    """Return the code of one mistake's sentence, of several those under the heading of ``step``; None without one.

    A sentence as the registry has it comes first; then one with words around it; then one with parameters.
    """
    matches = [
        (sentence, code) for sentence in sentences() if (code := sentence.read(cause)) is not None
    ]
    # Among equal patterns the one under the heading of the step wins.
    matches.sort(key=lambda pair: (bool(pair[0].names), pair[0].step != step))
    if matches and not matches[0][0].names:
        return matches[0][1]
    of_any_norm = _spell_out_norm(cause)
    if of_any_norm != cause:
        return read_code(of_any_norm, step)
    for rest, parameters in _yield_stripped_causes(cause):
        inner = read_code(rest, step)
        if inner is not None:
            return CauseCode(inner.code, {**inner.parameters, **parameters})
    return matches[0][1] if matches else None


def _spell_out_norm(cause: str) -> str:
    """Return a cause with the noun that the row of a norm has as that of any norm, which has lines of its own."""
    for row in ARRAYS.values():
        if (
            row.blames == "norm"
            and row.noun
            and cause.startswith((f"{row.noun} ", f"in {row.noun}: "))
        ):
            return cause.replace(row.noun, f"the norm of {row.noun.removeprefix('the ')}", 1)
    return cause


def _yield_stripped_causes(cause: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a cause without words before or after it, and the parameters that these words give."""
    for words in _AFTER:
        for ending in re.finditer(words, cause):
            if ending.end() == len(cause):
                yield (
                    cause[: ending.start()],
                    {n: x.strip() for n, x in ending.groupdict().items() if x},
                )
    for words in _BEFORE:
        if start := re.match(words, cause):
            yield cause[start.end() :], {n: x for n, x in start.groupdict().items() if x}


#: What joins mistakes in one cause, and how their codes are joined.
_BESIDE = "; "  # what is said beside a mistake need not be one
_JOINS = {"; or ": " or ", "; and ": " + ", _BESIDE: " + "}


@lru_cache(maxsize=1024)
def read_codes(cause: str, step: str = "") -> tuple[CauseCode, ...]:
    """Return the codes of a cause: several if mistakes are made at once, or if each explains everything."""
    # Words between causes may also occur inside one, so that the whole is read first.
    whole = read_code(cause, step)
    if whole is not None:
        return (whole,)
    for between in _JOINS:
        first, _, rest = cause.partition(between)
        if not rest:
            continue
        one, others = read_codes(first, step), read_codes(rest, step)
        if (one and others) or (between == _BESIDE and (one or others)):
            return (*one, *others)
    return ()


def code_of(cause: str, step: str = "") -> str:
    """Return the code of a cause in a line: ``a + b`` for two mistakes at once, ``a or b`` if each explains it; or "".

    >>> code_of("scores are not scaled; and the mask is inverted")
    'scale-missing + mask-inverted'
    """
    between = next((sign for words, sign in _JOINS.items() if words in cause), "")
    return between.join(dict.fromkeys(code.code for code in read_codes(cause, step)))


def bracketed(cause: str, step: str = "") -> str:
    """Return the code of a cause as it ends a sentence: `` [scale-missing]``; "" without one."""
    code = code_of(cause, step)
    return f" [{code}]" if code else ""
