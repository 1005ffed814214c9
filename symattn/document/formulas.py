"""Typed formulas and running text, parsed into ``notation``: ``formula("s_ij = q_i·k_j/√d_k")``.

A formula is typed as ``text`` prints it, with a space between letters: ``2 a x``, ``Q Kᵀ``. A bracket directly after a
word contains the arguments of a function, ``softmax(S)``, ``E[x]``; others are printed, except around a side of a
fraction or the body of a root. ``{…}`` groups and is not printed. Indices are ``p_ij``, ``o_i_c``, ``d_model``,
``x_max`` or ``W_{V, t}``, exponents ``x²`` or ``e^{s_j}``; the sum ``Σ_{j=1}^{n_k} p_j``, the product ``∏`` and
``max_j s_j`` extend to the next plus or minus. ``|x|``, ``‖x‖_1`` and ``⌊x⌋`` are fences, ``[K; V]`` is a matrix, ``𝟏``
the vector of ones, ``½`` a number while 1/2 is a fraction, ``"words"`` are printed upright, and ``@x`` is a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any, Literal

from symattn.document import characters
from symattn.document import notation as nt
from symattn.document.errors import InputError
from symattn.document.model import Code, Emph, Inline, Text
from symattn.document.notation import Like, Node, Role

Roles = Mapping[str, Role | None]
#: The colours of the letters of attention, or of a letter with its index.
ROLES: Roles = {
    **dict.fromkeys(("q", "Q", "W_Q"), "query"),
    **dict.fromkeys(("k", "K", "W_K", "U_K"), "key"),
    **dict.fromkeys(("v", "V", "W_V", "U_V"), "value"),
    **dict.fromkeys(("s", "S"), "score"),
    "p": "weight",
    **dict.fromkeys(("o", "O", "W_O"), "output"),
}
#: The same with the arrays of theorems: X, P and the values that are computed.
ARRAY_ROLES: Roles = {
    **ROLES, "X": "input", "P": "weight", "p̂": "weight", "ô": "output", "φ_Q": "query", "φ_K": "key",
}  # fmt: skip
# Raised digits, signs and letters, which are read as exponents.
_RAISED = {
    raised: plain for plain, raised in characters.SUPERSCRIPTS.items() if plain in "0123456789+-ni"
}
_SMALL = "".join(map(re.escape, _RAISED))
# The kinds of tokens, the first that fits: a word ends before a raised sign.
_TOKENS = re.compile(
    rf'(?P<gap>\s+)|"(?P<said>[^"]*)"|(?P<raised>[{_SMALL}]+)|(?P<number>[0-9]+(?:\.[0-9]+)?)'
    rf"|(?P<word>(?:(?![{_SMALL}ᵀ½¼])[^\W\d_][\u0302\u0304]?)+['′″]*!?|[𝟏∞…⊙⊗∘∅∇∫])|@(?P<value>[A-Za-z0-9_]+)"
    rf"|(?P<sign>{'|'.join(map(re.escape, characters.SIGNS))})|(?P<mark>.)"
)
# Operators with an index below and a body behind.
_BIG: Mapping[str, Literal["sum", "prod", "max", "min"]] = {
    "Σ": "sum",
    "∏": "prod",
    "max": "max",
    "min": "min",
}
# Fractions that are written as one character.
_HALVES = {"½": Fraction(1, 2), "¼": Fraction(1, 4)}
# The end and the style of each opening fence.
_FENCES: Mapping[str, tuple[str, Any]] = {
    "(": (")", "round"),
    "|": ("|", "abs"),
    "‖": ("‖", "norm"),
    "⌊": ("⌋", "floor"),
}


def formula(typed: str, roles: Roles = ROLES, values: Mapping[str, Like] | None = None) -> Node:
    """Parse a formula. ``roles`` are the colours of its letters, outside of indices; ``@name`` is one of ``values``.

    Raises InputError for text that is not a formula.
    """
    return _FormulaReader(typed, roles, values or {}).whole()


def running_text(
    typed: Text | str, roles: Roles = ROLES, values: Mapping[str, Like] | None = None
) -> Text:
    """Parse running text with ``$formulas$``, ``*stressed words*`` and ```code```; parsed text is returned unchanged.

    Raises InputError for a formula that cannot be parsed, or does not end.
    """
    if not isinstance(typed, str):
        return typed
    if typed.count("$") % 2:
        raise InputError(f"{typed!r}: a dollar sign begins a formula, and none ends it")
    marks: Mapping[str, Callable[[str], Inline]] = {
        "$": lambda x: formula(x, roles, values),
        "*": Emph,
        "`": Code,
    }
    parts = re.split(r"(\$[^$]*\$|\*[^*]*\*|`[^`]*`)", typed)
    return tuple(
        marks[part[0]](part[1:-1]) if i % 2 else part for i, part in enumerate(parts) if part
    )


@cache
def _split_formula_tokens(typed: str) -> tuple[tuple[str, str, bool], ...]:
    """Return the tokens: kind, text, and whether there is no space before it."""
    result = [(kind := str(m.lastgroup), m[kind]) for m in _TOKENS.finditer(typed)]
    return tuple(
        (*now, before[0] != "gap")
        for before, now in pairwise([("gap", ""), *result])
        if now[0] != "gap"
    )


class _FormulaReader:
    """A recursive-descent parser of formulas, one method for each level of precedence."""

    def __init__(self, typed: str, roles: Roles, values: Mapping[str, Like]) -> None:
        self.typed, self.roles, self.values, self.tokens, self.at = (
            typed,
            roles,
            values,
            _split_formula_tokens(typed),
            0,
        )
        # Ends of the open fences, since a bar may end one or begin another.
        self.closing: list[str] = []

    def whole(self) -> Node:
        result = self.row()
        if self.at < len(self.tokens):
            raise self.wrong()
        return result

    def wrong(self) -> InputError:
        remaining = self.tokens[self.at :]
        rest = "".join(" " * (not touches) + word for _, word, touches in remaining)
        return InputError(
            f"the formula {self.typed!r} cannot be read" + (f" at {rest.strip()!r}" if rest else "")
        )

    # -- tokens -------------------------------------------------------------------------------------------------------
    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def touches(self, *marks: str) -> bool:
        return self.peek() in marks and self.tokens[self.at][2]

    def take(self, *words: str) -> str:
        """Consume and return the next token if it is one of ``words``, or any token if there are none, else ""."""
        word = self.peek()
        if word and (word in words or not words) and (self.kind() != "said" or not words):
            self.at += 1
            return word
        return ""

    def need(self, word: str) -> None:
        if not self.take(word):
            raise self.wrong()

    # -- from loose to tight ------------------------------------------------------------------------------------------
    def row(self) -> Node:
        """Parse relations with words between them, or parts separated by commas."""
        parts, has_words = [self.relation()], False
        while self.kind() == "said" or self.peek() == ",":
            has_words |= self.kind() == "said"
            if self.kind() == "said":
                parts.append(nt.Words(self.take()))
                if not self.peek():
                    break
            else:
                self.take(",")
            parts.append(self.relation())
        return (
            nt.Row(tuple(parts))
            if has_words
            else nt.Commas(tuple(parts))
            if len(parts) > 1
            else parts[0]
        )

    def relation(self) -> Node:
        first, rest = self.sum(), []
        while self.kind() == "sign":
            rest.append((self.take(), self.sum()))
        return nt.Relation(first, tuple(rest)) if rest else first

    def sum(self) -> Node:
        result = self.signed()
        while sign := self.take("+", "−", "-"):
            result = result + self.product() if sign == "+" else result - self.product()
        return result

    def signed(self) -> Node:
        if self.take("−", "-"):
            return -self.product()
        return nt.PlusMinus(self.product()) if self.take("±") else self.product()

    def product(self) -> Node:
        """Parse products and quotients from left to right; a product without a sign binds tighter than a dot."""
        result = self.factors()
        while True:
            if self.take("/"):
                result = nt.Over(
                    _strip_redundant_brackets(result), _strip_redundant_brackets(self.power())
                )
            elif sign := self.take("·", "×"):
                before = (
                    result.factors
                    if isinstance(result, nt.Product) and result.sign == sign
                    else (result,)
                )
                result = nt.Product((*before, self.factors()), sign)  # type: ignore[arg-type]
            elif self.begins():
                result = result * self.power()
            else:
                return result

    def factors(self) -> Node:
        result = self.power()
        while self.begins():
            result = result * self.power()
        return result

    def begins(self) -> bool:
        """Return whether a factor begins here, rather than a closing bracket."""
        word = self.peek()
        begins_part = word in ("[", "{", "√", "∂", *_FENCES, *_HALVES)
        opens = begins_part and self.closing[-1:] != [word]
        return self.kind() in ("number", "word", "value") or opens

    def power(self) -> Node:
        result = self.atom()
        while True:
            if self.take("ᵀ"):
                result = nt.Transposed(result)
            elif self.kind() == "raised":
                exponent = formula("".join(_RAISED[c] for c in self.take()))
                result = result**exponent
            elif self.take("^"):
                result = result ** self.atom()
            else:
                return result

    def until(self, end: str) -> Node:
        self.closing.append(end)
        result = self.row()
        self.closing.pop()
        self.need(end)
        return result

    # -- atoms --------------------------------------------------------------------------------------------------------
    def atom(self) -> Node:
        kind, word = self.kind(), self.peek()
        if kind in ("word", "said") or not word:
            return self.word()
        self.take()
        if kind == "number":
            return nt.Decimal(word) if "." in word else nt.node(int(word))
        if kind == "value" and word in self.values:
            return nt.node(self.values[word])
        if word in _HALVES:
            return nt.Number(_HALVES[word])
        if word in _FENCES:
            return self.fence(*_FENCES[word])
        match word:
            case "{":
                return self.until("}")
            case "[":
                return self.matrix()
            case "√":
                return nt.Root(_strip_redundant_brackets(self.atom()))
            case "∂":
                of = self.power()
                self.need("/")
                self.need("∂")
                return nt.Partial(of, self.power())
        self.at -= 1
        raise self.wrong()

    def fence(self, end: str, style: Any) -> Node:
        body, at = self.until(end), self.at
        sub = self.below()
        if len(sub) < 2:
            return nt.Fence(style, body, *sub)
        return nt.Fence(
            style, body, nt.Commas(sub) if self.tokens[at + 1][1] == "{" else nt.Product(sub)
        )

    def matrix(self) -> Node:
        self.closing.append("]")
        rows = [_split_at_commas(self.row())]
        while self.take(";"):
            rows.append(_split_at_commas(self.row()))
        self.closing.pop()
        self.need("]")
        return nt.Matrix(tuple(rows))

    def word(self) -> Node:
        if self.kind() != "word":
            raise self.wrong()
        word = self.take()
        if word in _BIG and self.touches("_"):
            return self.big(_BIG[word])
        # Primes are typed in one form, whatever the formula has.
        base = "1" if word == "𝟏" else word.replace("′", "'").replace("″", "''")
        sub = self.below()
        first = _split_at_commas(sub[0])[0] if sub else None
        # A letter with its first index may have a role of its own: W_q.
        below = f"{base}_{first.base}" if isinstance(first, nt.Name) else ""
        role = self.roles.get(below, self.roles.get(base.rstrip("'")))
        name = nt.Name(base, sub, role, word == "𝟏")
        if self.touches("(", "["):
            opened = self.take()
            return nt.Call(
                name, _split_at_commas(self.until(")" if opened == "(" else "]")), opened == "["
            )
        return name

    def below(self) -> tuple[Node, ...]:
        """Parse the indices after ``_``, whose letters have no roles."""
        roles, self.roles = self.roles, {}
        result: list[Node] = []
        while self.touches("_"):
            self.take()
            plus = self.take("+")
            result += (
                [nt.Name(plus)] if plus else [self.atom()] if self.peek() == "{" else self.run()
            )
        self.roles = roles
        return tuple(result)

    def run(self) -> list[Node]:
        """Parse indices without a space between: one for each letter and digit, or a word of at least three letters."""
        result = ""
        while self.kind() in ("word", "number") and self.tokens[self.at][2]:
            result += self.take()
        if not result:
            raise self.wrong()
        # Two letters are two indices, such as ij; more are a word.
        if len(result) > 2 and result.isalpha():
            return [nt.Name(result)]
        return [nt.node(int(c) if c.isdigit() else c) for c in result]

    def big(self, operator: Literal["sum", "prod", "max", "min"]) -> Node:
        sub, low = self.below(), None
        index: Node = sub[0] if len(sub) == 1 else nt.Commas(sub)
        match index:
            case nt.Relation(first, (("=", start),)):
                index, low = first, start
        high = self.atom() if self.take("^") else None
        return nt.Big(operator, index, low, high, self.product())


def _split_at_commas(x: Node) -> tuple[Node, ...]:
    return x.parts if isinstance(x, nt.Commas) else (x,)


def _strip_redundant_brackets(x: Node) -> Node:
    """Return a part without round brackets that a fraction bar or a root makes redundant."""
    if isinstance(x, nt.Fence) and x.style == "round" and x.sub is None:
        return x.body
    return x
