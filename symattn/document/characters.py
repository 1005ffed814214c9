"""Letters and signs in TeX, in Unicode and in ASCII."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import fields, is_dataclass, replace
from typing import Any

_GREEK_SMALL = "αβγδεζηθικλμνξοπρστυφχψω"
_GREEK_WORDS = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "omicron", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
)  # fmt: skip
GREEK: dict[str, str] = dict(zip(_GREEK_WORDS, _GREEK_SMALL, strict=True))
GREEK |= {word.capitalize(): letter.upper() for word, letter in GREEK.items()}
ASCII_OF_GREEK: dict[str, str] = {letter: word for word, letter in GREEK.items()}


SIGNS: dict[str, str] = {
    "=": "=", "<": "<", ">": ">", "≤": r"\le", "≥": r"\ge", "≈": r"\approx", "≠": r"\ne", "∈": r"\in", "∉": r"\notin",
    "→": r"\to", "∼": r"\sim", "~": r"\sim", "≡": r"\equiv", "∝": r"\propto", "≪": r"\ll", "≫": r"\gg", "⊂": r"\subset",
    "⊆": r"\subseteq", "↦": r"\mapsto", "⇒": r"\Rightarrow", "⇔": r"\Leftrightarrow", ":=": ":=", "⪰": r"\succeq",
    "±": r"\pm",
}  # fmt: skip
ASCII_SIGNS: dict[str, str] = {
    "≤": "<=", "≥": ">=", "≈": "~=", "≠": "!=", "∈": "in", "∉": "not in", "→": "->", "∼": "~", "≡": "==", "∝": "~",
    "≪": "<<", "≫": ">>", "⊂": "subset of", "⊆": "subset of", "↦": "|->", "⇒": "=>", "⇔": "<=>", "⪰": ">=",
}  # fmt: skip

SYMBOLS: dict[str, str] = {
    "∞": r"\infty", "…": r"\dots", "⋯": r"\cdots", "⋮": r"\vdots", "⋱": r"\ddots", "ℓ": r"\ell", "ℝ": r"\mathbb{R}",
    "ℚ": r"\mathbb{Q}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "𝔼": r"\mathbb{E}", "∅": r"\emptyset", "∂": r"\partial",
    "∇": r"\nabla",
    "√": r"\surd", "±": r"\pm", "∓": r"\mp", "×": r"\times", "·": r"\cdot", "⋅": r"\cdot", "∘": r"\circ",
    "−": "-", "∑": r"\sum", "∏": r"\prod", "∫": r"\int", "⊙": r"\odot", "⊗": r"\otimes", "⊕": r"\oplus", "∥": r"\Vert",
    "‖": r"\Vert", "∀": r"\forall", "∃": r"\exists", "∧": r"\wedge", "∨": r"\vee", "¬": r"\neg", "∪": r"\cup",
    "∩": r"\cap", "∖": r"\setminus", "←": r"\leftarrow", "↔": r"\leftrightarrow", "↑": r"\uparrow", "↓": r"\downarrow",
    "⊤": r"\top", "⊥": r"\bot", "⌊": r"\lfloor", "⌋": r"\rfloor", "⌈": r"\lceil", "⌉": r"\rceil", "⟨": r"\langle",
    "⟩": r"\rangle", "°": r"^\circ", "′": "'", "✓": r"\checkmark", "✗": r"\times", "∣": r"\mid", "▸": r"\triangleright",
    "½": r"\tfrac{1}{2}", "¼": r"\tfrac{1}{4}", "¾": r"\tfrac{3}{4}", "⅓": r"\tfrac{1}{3}", "ᵀ": r"^\top",
}  # fmt: skip
ASCII_SYMBOLS: dict[str, str] = {
    "∞": "inf", "…": "...", "⋯": "...", "⋮": ":", "⋱": "\\", "ℓ": "l", "ℝ": "R", "ℚ": "Q", "ℤ": "Z", "ℕ": "N", "𝔼": "E",
    "∅": "{}", "∂": "d", "∇": "grad", "√": "sqrt", "±": "+-", "∓": "-+", "×": "x", "·": "*", "⋅": "*", "∘": "o",
    "−": "-", "∑": "sum", "∏": "prod", "⊙": "*", "‖": "||", "∥": "||", "←": "<-", "↔": "<->", "⊤": "T", "°": " deg",
    "′": "'", "✓": "ok", "✗": "x", "▸": ">", "ᵀ": "^T", "–": "-", "—": "-", "‘": "'", "’": "'", "“": '"', "”": '"',
    "„": '"', "─": "-", "⌊": "floor(", "⌋": ")", "⌈": "ceil(", "⌉": ")", "⟨": "<", "⟩": ">", "\u00a0": " ",
    "∀": "for all", "∃": "exists", "∧": "and", "∨": "or", "¬": "not", "∪": "union", "∩": "meets", "ß": "ss", "æ": "ae",
    "ø": "o", "ł": "l",
}  # fmt: skip

SUPERSCRIPTS = dict(zip("0123456789+−-()=ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁽⁾⁼ⁿⁱ", strict=True))
# The other subscript letters (ₖ, ₙ, ₘ …) are recent in Unicode and missing from many terminal fonts; ᵥ is not, but d_v
# should look like d_k.
SUBSCRIPTS = dict(zip("0123456789+−-()=aeoxiruj", "₀₁₂₃₄₅₆₇₈₉₊₋₋₍₎₌ₐₑₒₓᵢᵣᵤⱼ", strict=True))
_LATE_SUBSCRIPTS = dict(zip("hklmnpstv", "ₕₖₗₘₙₚₛₜᵥ", strict=True))
RAISED = {s: c for c, s in SUPERSCRIPTS.items() if c != "−"}
LOWERED = {s: c for c, s in (SUBSCRIPTS | _LATE_SUBSCRIPTS).items() if c != "−"}

# Combining marks: the macro over a letter in formulas, and the one in running text.
MARKS: dict[str, tuple[str, str]] = {
    "\u0300": (r"\grave", r"\`"),
    "\u0301": (r"\acute", r"\'"),
    "\u0302": (r"\hat", r"\^"),
    "\u0303": (r"\tilde", r"\~"),
    "\u0304": (r"\bar", r"\="),
    "\u0306": (r"\breve", r"\u"),
    "\u0307": (r"\dot", r"\."),
    "\u0308": (r"\ddot", r"\""),
    "\u030a": (r"\mathring", r"\r"),
    "\u030b": (r"\acute", r"\H"),
    "\u030c": (r"\check", r"\v"),
    "\u0327": (r"\hat", r"\c"),
    "\u0328": (r"\hat", r"\k"),
}

FENCES = {"abs": "||", "norm": "‖‖", "round": "()", "curly": "{}", "square": "[]", "floor": "⌊⌋"}

FUNCTIONS = frozenset((
    "arccos", "arcsin", "arctan", "cos", "cosh", "cot", "det", "exp", "inf", "lim", "log", "ln", "max", "min", "sin",
    "sinh", "sup", "tan", "tanh",
))  # fmt: skip
"""Functions for which every TeX has a command of the same name."""


def to_ascii(text: str) -> str:
    """Return text with every sign spelt in ASCII, or ``?`` if it has no spelling."""
    return "".join(_convert_character_to_ascii(c) for c in text)


def _convert_character_to_ascii(c: str) -> str:
    if c.isascii():
        return c
    for table in (ASCII_OF_GREEK, ASCII_SIGNS, ASCII_SYMBOLS):
        if c in table:
            return table[c]
    if c in RAISED:
        return "^" + RAISED[c]
    if c in LOWERED:
        return "_" + LOWERED[c]
    plain = unicodedata.normalize("NFKD", c).encode("ascii", "ignore").decode()
    return plain or ("" if unicodedata.combining(c) else "?")


# Characters that a terminal obeys: control characters except tabs and line ends, and those that turn the direction of
# writing.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def without_controls(x: Any) -> Any:
    """Return texts, or data classes and tuples of texts, with the characters that a terminal obeys spelled out."""
    if isinstance(x, str):
        return _OBEYED.sub(_spell_control_character, x) if _OBEYED.search(x) else x
    if isinstance(x, tuple):
        parts = [without_controls(y) for y in x]
        unchanged = all(a is b for a, b in zip(x, parts, strict=True))
        return x if unchanged else tuple(parts)
    if is_dataclass(x) and not isinstance(x, type):
        names = (f.name for f in fields(x) if f.init)
        values = {name: getattr(x, name) for name in names}
        changed = {
            name: y for name, value in values.items() if (y := without_controls(value)) is not value
        }
        return replace(x, **changed) if changed else x
    return x


def escaped_controls(json: str) -> str:
    """Return JSON in which such characters, which only texts hold, are escapes."""
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", json)


def _spell_control_character(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]
