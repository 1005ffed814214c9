"""Letters and signs in TeX, in Unicode and in ASCII."""

from __future__ import annotations

import re
import unicodedata

_GREEK_SMALL = "αβγδεζηθικλμνξοπρστυφχψω"
_GREEK_WORDS = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "omicron", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
)  # fmt: skip
GREEK: dict[str, str] = dict(zip(_GREEK_WORDS, _GREEK_SMALL, strict=True))
GREEK |= {word.capitalize(): letter.upper() for word, letter in GREEK.items()}
ASCII_OF_GREEK: dict[str, str] = {letter: word for word, letter in GREEK.items()}

# Letters that TeX lacks, or whose default shape is not used.
_TEX_GREEK = {"ε": r"\varepsilon", "φ": r"\varphi", "ο": "o"}
_HAVE_CAPITAL = set("ΓΔΘΛΞΠΣΥΦΨΩ")

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
    "\u0301": (r"\acute", r"\'"), "\u0302": (r"\hat", r"\^"), "\u0303": (r"\tilde", r"\~"),
    "\u0304": (r"\bar", r"\="), "\u0306": (r"\breve", r"\u"), "\u0307": (r"\dot", r"\."), "\u0308": (r"\ddot", r"\""),
    "\u030a": (r"\mathring", r"\r"), "\u030b": (r"\acute", r"\H"), "\u030c": (r"\check", r"\v"),
    "\u0327": (r"\hat", r"\c"), "\u0328": (r"\hat", r"\k"),
}  # fmt: skip

FENCES = {"abs": "||", "norm": "‖‖", "round": "()", "curly": "{}", "square": "[]", "floor": "⌊⌋"}

FUNCTIONS = frozenset((
    "arccos", "arcsin", "arctan", "cos", "cosh", "cot", "det", "exp", "inf", "lim", "log", "ln", "max", "min", "sin",
    "sinh", "sup", "tan", "tanh",
))  # fmt: skip
"""Functions for which every TeX has a command of the same name."""

_SPECIAL = {
    "%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
}  # fmt: skip
_TYPOGRAPHY = {
    "–": "--", "—": "---", "‘": "`", "’": "'", "“": "``", "”": "''", "„": ",,", "\u00a0": "~", "…": r"\dots{}",
    "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}",
    "œ": r"\oe{}", "Œ": r"\OE{}", "§": r"\S{}", "−": r"\ensuremath{-}", "<": r"\ensuremath{<}", ">": r"\ensuremath{>}",
    "|": r"\ensuremath{\vert}", "─": "--", "\u200b": "",
}  # fmt: skip


def letter_to_tex(c: str) -> str | None:
    """Return a letter or sign of a formula in TeX, or None if TeX has no command for it."""
    if c in ASCII_OF_GREEK:
        if c.isupper() and c not in _HAVE_CAPITAL:
            return rf"\mathrm{{{unicodedata.normalize('NFKD', ASCII_OF_GREEK[c])[0]}}}"
        return _TEX_GREEK.get(c, "\\" + ASCII_OF_GREEK[c])
    if c in SYMBOLS:
        return SYMBOLS[c]
    if c in SIGNS:
        return SIGNS[c]
    if c in RAISED:
        return "^{" + RAISED[c] + "}"
    if c in LOWERED:
        return "_{" + LOWERED[c] + "}"
    return c if c.isascii() and c.isalnum() else None


def escape_text(text: str) -> str:
    """Return text for pdflatex: special characters escaped, signs as formulas, unknown ones as code points."""
    separated = re.sub("-(?=-)", "-\0", text)  # two hyphens would make a dash
    return "".join(_escape(c) for c in unicodedata.normalize("NFC", separated)).replace("\0", "{}")


def _escape(c: str) -> str:
    if c in _SPECIAL:
        return _SPECIAL[c]
    if c in _TYPOGRAPHY:
        return _TYPOGRAPHY[c]
    if c.isascii():
        return c if c.isprintable() or c == "\0" else " "
    if "\u00a1" <= c <= "\u00ff" and c not in SYMBOLS and c not in RAISED:
        return c  # every font of pdflatex's T1 has Latin-1
    if tex := letter_to_tex(c):
        return rf"\ensuremath{{{{}}{tex}}}" if tex[0] in "^_" else rf"\ensuremath{{{tex}}}"
    base, *marks = list(unicodedata.normalize("NFD", c))
    if len(marks) == 1 and marks[0] in MARKS and base.isascii():
        return f"{MARKS[marks[0]][1]}{{{base}}}"
    plain = unicodedata.normalize("NFKD", c).encode("ascii", "ignore").decode()
    return escape_text(plain) if plain.strip() else rf"\texttt{{U+{ord(c):04X}}}"


def to_ascii(text: str) -> str:
    """Return text with every sign spelt in ASCII, or ``?`` if it has no spelling."""
    return "".join(_ascii(c) for c in text)


def _ascii(c: str) -> str:
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
