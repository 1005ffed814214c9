"""What a walk knows: the sheet, its arrays exact and in a floating format, and what the reader asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from symattn.attention.flow import Step
from symattn.attention.notation import SYMBOLS
from symattn.derivations.elements import digits, flat, formula, nested
from symattn.derivations.sheets.sheet import Sheet
from symattn.derivations.walks import run as walks_run
from symattn.derivations.walks.run import TINY
from symattn.derivations.walks.tokens import agrees
from symattn.document.model import Text, Values
from symattn.document.notation import Name, Node, Words, name
from symattn.document.text import text
from symattn.errors import InputError
from symattn.evidence import Evidence, Grade

_DIGITS = {"float64": 17, "float32": 9}  # of decimals beside a format's own; enough to tell its numbers apart
_LONGEST = 55  # characters of an exact entry that a line of 80 holds beside its place and label
_ROW_LETTERS = {"x": "x", "y": "y", "q": "q", "k": "k", "v": "v", "scores": "s", "scaled": "s'", "masked": "s''"}
_ROW_LETTERS |= {"weights": "a", "attended": "h", "output": "o"}


@dataclass
class Walk:
    """A sheet with its arrays. ``long`` collects the entries that a block had no room for."""

    sheet: Sheet
    dtype: str
    query: int | None = None
    rounding: str | None = None
    long: list[str] = field(default_factory=list)
    _errors: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """Every named array, exact."""
        try:
            return walks_run.exact(self.sheet.attention, self.sheet.inputs)
        except InputError as misfit:
            raise InputError(f"{self.sheet.name}: {misfit}") from None

    @cached_property
    def computed(self) -> dict[str, Any]:
        """Every named array, as the floating format computes it."""
        return walks_run.floating(self.sheet.attention, self.sheet.inputs, self.dtype)

    def errors(self, name: str, index: tuple[Any, ...] = (...,)) -> Any:
        """The errors of (a part of) a computed array in units in the last place; None for truth values."""
        if name not in self._errors and not isinstance(self.arrays[name].flat[0], bool):
            if name == "weighted" and index != (...,):  # n_q times as large as what is shown of it
                return walks_run.errors(self.arrays[name][index], self.computed[name][index], self.dtype)
            self._errors[name] = walks_run.errors(self.arrays[name], self.computed[name], self.dtype)
        return self._errors[name][index] if name in self._errors else None

    @cached_property
    def pipeline(self) -> dict[str, Step]:
        """Name of an array → the step of attention that makes it."""
        return {step.name: step for step in self.sheet.attention.pipeline(self.sheet.inputs)}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """n_q and n_k (n where they are one axis), d_model, d_k, d_v, h."""
        q, k, v = (self.arrays[name].shape for name in "qkv")
        self_attention = "y" not in self.arrays and "x" in self.arrays
        sizes = {"n": q[-2]} if self_attention else {"n_q": q[-2], "n_k": k[-2]}
        if "x" in self.arrays:
            sizes["d_model"] = self.arrays["x"].shape[-1]
        sizes |= {"d_k": q[-1], "d_v": v[-1]}
        return sizes | ({"h": self.sheet.attention.heads} if self.sheet.attention.heads > 1 else {})

    @property
    def queries(self) -> int:
        """n_q."""
        return int(self.arrays["scores"].shape[-2])

    @cached_property
    def token_by_token(self) -> Evidence | None:
        """That the matrices are what the tokens give one by one."""
        found = agrees(self.arrays, self.sheet.attention)
        if found is None:
            return None
        where = f"token by token, {listed(self.sizes)}"
        return Evidence(Grade.CHECKED if found else Grade.REFUTED, where)

    def values(
        self, name: str, index: tuple[Any, ...] = (...,), symbol: Node | None = None, reason: Text = (), **more: Any
    ) -> Values:
        """The block of (a part of) an array; ``others`` adds columns, ``evidence`` says how it is known."""
        exact = self.arrays[name][index].tolist()
        others = {**self._floating(name, index), **more.pop("others", {})}
        count = _DIGITS.get(self.dtype, 6)
        decimals = nested(lambda x: digits(x, count), exact)
        shown = self.shortened(exact, name)
        return Values(name, symbol or SYMBOLS[name], shown, decimals, others, reason, **more)

    def shortened(self, entries: Any, name: str) -> Any:
        """Formulas of the entries; what is too long for a line is left to the JSON form, and remembered."""

        def short(x: Any) -> Node:
            made = formula(x)
            if len(text(made)) <= _LONGEST:
                return made
            if name not in self.long:
                self.long.append(name)
            return Words("…")

        return nested(short, entries)

    def is_right(self, name: str, index: tuple[Any, ...] = (...,)) -> bool:
        """Whether the floating format gives the very numbers."""
        errors = self.errors(name, index)
        return errors is None or all(e == 0 for e in flat(errors.tolist()))

    def _floating(self, name: str, index: tuple[Any, ...]) -> dict[str, Any]:
        """What the format gives and its errors in ulp; nothing where it gives the very numbers."""
        if self.is_right(name, index):
            return {}
        errors = self.errors(name, index).tolist()
        computed = _listed(self.computed[name][index], short_digits)
        return {self.dtype: computed, "error in ulp": nested(error_digits, errors)}


def short_digits(x: Any) -> Any:
    """The shortest digits that name a number of its format; words for what is none."""
    shown = str(x)
    return {"nan": Words("NaN"), "inf": Name("∞"), "-inf": -Name("∞")}.get(shown, shown.removesuffix(".0"))


def error_digits(error: float | None) -> Any:
    """Two digits are enough of an error; a dash where there is none to speak of."""
    if error is None:
        return Words("–")
    return Words(f"<{TINY:.0e}") if 0 < error <= TINY else f"{error:.2g}"


def row_symbol(array: str, *index: int) -> Node:
    """The letter of a row: q₁, s₁, a₁, o₁, in the colour of its role."""
    whole = SYMBOLS[array]
    role = whole.role if isinstance(whole, Name) else None
    return name(_ROW_LETTERS[array], *index, role=role)


def listed(sizes: dict[str, int]) -> str:
    """``n = 3, d_model = 4, d_k = 3``."""
    return ", ".join(f"{size} = {value}" for size, value in sizes.items())


def worst(errors: Any) -> float | None:
    """The largest error of an array."""
    return max((e for e in flat(errors.tolist()) if e is not None), default=None)


def counted(count: int, one: str, many: str = "") -> str:
    """``1 row``, ``2 rows``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def enumerated(words: Sequence[Any]) -> str:
    """``1, 2 and 3``."""
    parts = [str(word) for word in words]
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _listed(array: Any, function: Any) -> Any:
    """``function`` of NumPy's own scalars, as nested tuples."""
    if getattr(array, "ndim", 0):
        return tuple(_listed(part, function) for part in array)
    return function(array)
