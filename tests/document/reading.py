r"""A second reader for what the printers write: text and TeX back to SymPy, by recursive descent.

It knows sums, products with and without a sign, slashes, ``\frac``, roots, powers and calls: enough to see whether a
bracket is missing.
"""

import re
import unicodedata
from itertools import groupby
from typing import Any

import sympy

_TOKEN = re.compile(r"\\[A-Za-z]+|\d+(?:\.\d+)?|[A-Za-zα-ω](?:_(?:\{[^}]*\}|\w))?|\S")
_SPACING = re.compile(r"\\[,;! ]|\\(?:bigg?|Bigg?)[lr]|\\left|\\right|\\displaystyle")


def read_text(shown: str) -> Any:
    """The value of a line of Unicode text."""
    runs = groupby(shown, lambda c: unicodedata.decomposition(c).partition(" ")[0])
    opened = {"<sub>": "_{%s}", "<super>": "^(%s)"}
    shown = "".join(opened.get(kind, "%s") % unicodedata.normalize("NFKC", "".join(run)) for kind, run in runs)
    return _Reader(shown.replace("−", "-").replace("tanh", r"\tanh")).all()


def read_tex(shown: str) -> Any:
    """The value of a formula in TeX."""
    shown = _SPACING.sub(" ", shown).replace(r"\tfrac", r"\frac")
    return _Reader(re.sub(r"\\(alpha|mu|sigma|theta)\b", lambda m: {"mu": "μ", "sigma": "σ"}[m[1]] + " ", shown)).all()


class _Reader:
    def __init__(self, shown: str) -> None:
        self.tokens = _TOKEN.findall(shown)
        self.at = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.next
        assert token, f"{self.tokens} ends too soon"
        assert wanted in ("", token), f"{wanted!r} expected at {self.at} of {self.tokens}"
        self.at += 1
        return token

    def all(self) -> Any:
        value = self.sum()
        assert not self.next, f"{self.next!r} left over in {self.tokens}"
        return value

    def sum(self) -> Any:
        negative = self.next == "-" and self.take()
        value = -self.product() if negative else self.product()
        while self.next in ("+", "-"):
            value = value + self.product() if self.take() == "+" else value - self.product()
        return value

    def product(self) -> Any:
        value = self.power()
        while self.next and self.next not in ("+", "-", ")", "}"):
            sign = self.take() if self.next in ("/", "·", r"\cdot") else ""
            value = value / self.power() if sign == "/" else value * self.power()
        return value

    def power(self) -> Any:
        value = self.atom()
        while self.next == "^":
            self.take()
            value = value ** self.atom()
        return value

    def group(self, left: str, right: str) -> Any:
        self.take(left)
        value = self.sum()
        self.take(right)
        return value

    def _raised(self) -> Any:
        """The exponent between a function and its argument: tanh²(x) is the square of tanh(x)."""
        if self.next != "^":
            return 1
        self.take()
        return self.atom()

    def atom(self) -> Any:
        if self.next in ("(", "{"):
            return self.group(self.next, {"(": ")", "{": "}"}[self.next])
        token = self.take()
        match token:
            case r"\frac":
                top = self.atom()
                return top / self.atom()
            case r"\sqrt" | "√":
                return sympy.sqrt(self.atom())
            case r"\tanh":
                exponent = self._raised()
                return sympy.tanh(self.group("(", ")")) ** exponent
            case "e":
                return sympy.E
        if token[0].isdigit():
            return sympy.Rational(token)
        assert token[0].isalpha(), f"{token!r} is no atom in {self.tokens}"
        return sympy.Symbol(re.sub(r"[{}]", "", token))
