"""The data of a walk: the sheet, its arrays exact and in a floating format, and the reader's options.

Steps have the same numbers for every sheet, so that step 5 is always the weights: 1 inputs, 2 parameters, 3 keys,
queries and values, 4 scores of one query, 5 weights, 6 weights times values, 7 their sum, 8 the other queries; step 9,
if any, is computed from the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from symattn.arrays.shown import formula
from symattn.attention import inputs
from symattn.attention.codec import exact_arrays
from symattn.attention.flow import Step
from symattn.attention.letters_of_attention import ARRAYS, SIZES, SYMBOLS, letter
from symattn.attention.sizes import AxisLengths
from symattn.attention.variants import SIZES as VARIANT_SIZES
from symattn.derivations.attention import reading
from symattn.derivations.attention.entry_formulas import product_letter, row_symbol
from symattn.derivations.attention.inputs import DerivationRequest
from symattn.derivations.enclosed import Enclosed, digits, nested
from symattn.derivations.sheets.sheet import Sheet
from symattn.derivations.walks import run as walks_run
from symattn.derivations.walks import walk_entries
from symattn.document.errors import InputError
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Text, Values
from symattn.document.notation import Name, Node, Words
from symattn.document.text import text
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.part_values import Unread

# of decimals next to a format's own; enough to tell its numbers apart
_DIGITS = {"float64": 17, "float32": 9}
_LONGEST = 55  # the most characters of an exact entry for which a line of 80 has room next to its place and label
_ONE_LINE = 50  # characters of sizes next to a grade
# with more than _FEW entries, those of at most _SHORT characters are shown in full
_FEW = 9
_SHORT = 20
_SIZES = ("n", "n_q", "n_k", "d_model", "d_k", "d_v", "h", "h_kv")
_SILENT = ("d_y", "d_out")  # not printed if they equal d_model


@dataclass
class Walk:
    """A sheet with its arrays. ``long`` collects arrays with entries too long for a block, ``lettered`` those with
    letters for long entries, ``enclosed`` those with entries known only by balls."""

    sheet: Sheet
    dtype: str
    query: int | None = None
    rounding: str | None = None
    long: list[str] = field(default_factory=list)
    lettered: list[str] = field(default_factory=list)
    enclosed: list[str] = field(default_factory=list)
    # of the same attention on other numbers, see ``reading``
    runs: tuple[reading.ReadingRun, ...] | None = None
    _evidence: dict[str, Evidence | None] = field(default_factory=dict)
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

    def errors(self, name: str, index: tuple[object, ...] = (...,)) -> Any:
        """Return the errors of (a part of) a computed array in ulp; None if it contains no numbers."""
        if name not in self._errors and not isinstance(self.arrays[name].flat[0], int):
            if name == "weighted" and index != (
                ...,
            ):  # n_q times as large as the part that is shown
                return walks_run.errors(
                    self.arrays[name][index], self.computed[name][index], self.dtype
                )
            self._errors[name] = walks_run.errors(
                self.arrays[name], self.computed[name], self.dtype
            )
        return self._errors[name][index] if name in self._errors else None

    @cached_property
    def pipeline(self) -> dict[str, Step]:
        """The steps of attention by the name of the array that they compute."""
        return {step.name: step for step in self.sheet.attention.pipeline(self.sheet.inputs)}

    @cached_property
    def mixing(self) -> Step:
        """The step that sums the weighted values."""
        return walks_run.mixing(self.pipeline.values())

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The sizes n_q and n_k (n if they are one axis), d_model, d_k, d_v, h, and other letters of the shapes."""
        spec, values = self.sheet.attention, self.sheet.inputs
        read = AxisLengths(spec.counts)
        for name in values:
            read.bind(name, self.arrays[name], inputs.shape(name, spec, values))
        lengths = read.found.items()
        result = {letter: int(length) for letter, (length, _) in lengths}
        result.setdefault("d_k", self.arrays["q"].shape[-1])
        result.setdefault("d_v", self.arrays["v" if "v" in self.arrays else "q"].shape[-1])
        # Without a second sequence, queries and keys are of one length.
        if "x" in values and "y" not in values:
            result["n"] = result.pop("n_q")
        result |= {"h": spec.heads} if spec.heads > 1 else {}
        result |= {"h_kv": spec.key_heads} if spec.key_heads < spec.heads else {}
        shown = {letter: result.pop(letter) for letter in _SIZES if letter in result}
        silent = {letter for letter in _SILENT if result.get(letter) == shown.get("d_model")}
        in_order = sorted(result.items())
        return shown | {letter: n for letter, n in in_order if letter not in silent}

    @cached_property
    def request(self) -> DerivationRequest:
        """The attention with all sizes; those that the walk lacks are as in the list of variants."""
        known = dict(self.sizes)
        n_q, n_k = self.arrays["scores"].shape[-2:]
        wide = known.get("d_model", known["d_k"])
        # Widths that the example lacks are those of its tokens.
        same = {
            "d_model": wide,
            "d_y": wide,
            "d_out": wide,
            "d_s": known["d_k"],
            "d_w": known["d_k"],
        }
        sizes = {**VARIANT_SIZES, **same, **known, "n_q": n_q, "n_k": n_k}
        return DerivationRequest(self.sheet.attention, tuple(self.sheet.inputs), sizes)

    @property
    def main_sizes(self) -> dict[str, int]:
        """The sizes that every attention has."""
        return {letter: n for letter, n in self.sizes.items() if letter in _SIZES}

    @property
    def queries(self) -> int:
        """The number of queries, n_q."""
        return int(self.arrays["scores"].shape[-2])

    @cached_property
    def token_by_token(self) -> Evidence | None:
        """The evidence that the scores, computed token by token, are right."""
        return self.evidence("scores")

    def evidence(self, name: str) -> Evidence | None:
        """Return the evidence for an array: its entries are those of the textbook formula or, if many, lie in balls.

        Raises FalseStep if the formula gives other entries, or cannot be read.
        """
        # Evidence is computed once for each array, as steps repeat it.
        if name not in self._evidence:
            step = (
                replace(self.mixing, name=name) if name == "weighted" else self.pipeline.get(name)
            )
            self._evidence[name] = None if step is None else self._find_evidence_of_step(step)
        return self._evidence[name]

    def _find_evidence_of_step(self, step: Step) -> Evidence | None:
        try:
            if step.name == "weighted":
                result = walk_entries.products_agree(self.arrays, step)
            else:
                result = walk_entries.step_agrees(self.arrays, self.request, step)
        except Unread as reason:
            raise FalseStep(f"{step.name}: {reason}") from reason
        # Too many entries for formulas.
        if result is None:
            return self._in_balls(step)
        if not result:
            raise FalseStep(f"{step.name}: its formulas give other entries than the step")
        sizes = listed(self.main_sizes)
        where = f"token by token, {sizes if len(sizes) <= _ONE_LINE else 'every entry'}"
        proven = walk_entries.digits_proven(self.arrays, step)
        if proven is None:
            return Evidence(Grade.CHECKED, where)
        return Evidence(
            Grade.ENCLOSED, f"token by token in balls, {counted(proven, 'digit')} proven"
        )

    def _in_balls(self, step: Step) -> Evidence | None:
        """Return how many digits balls prove for an array too large for formulas; None if it is exact."""
        if any(isinstance(x, Enclosed) for x in self.arrays[step.name].flat):
            proven = walk_entries.digits_proven(self.arrays, step)
            return Evidence(Grade.ENCLOSED, f"in balls, {counted(proven or 0, 'digit')} proven")
        return None

    def values(
        self,
        name: str,
        index: tuple[Any, ...] = (...,),
        symbol: Node | None = None,
        reason: Text = (),
        **more: Any,
    ) -> Values:
        """Return the block of (a part of) an array; ``others`` adds columns, ``evidence`` its grade."""
        part = self.arrays[name][index]
        exact = part.tolist()
        places = places_of(self.arrays[name].shape)[index].tolist()
        others = {}
        if not self.is_right(name, index):  # the format's numbers and their errors in ulp
            errors = nested(error_digits, self.errors(name, index).tolist())
            others = {
                self.dtype: _map_to_nested_tuples(self.computed[name][index], short_digits),
                "error in ulp": errors,
            }
        others |= more.pop("others", {})
        count = _DIGITS.get(self.dtype, 6)
        decimals = nested(lambda x: digits(x, count), exact)
        shown = self.shown(exact, name, places, _LONGEST if part.size <= _FEW else _SHORT)
        more.setdefault(
            "title", ARRAYS[name].title if name in ARRAYS else name.capitalize() + " values"
        )
        return Values(name, symbol or SYMBOLS[name], shown, decimals, others, reason, **more)

    def shown(self, entries: Any, name: str, places: Any, longest: int) -> Any:
        """Return formulas of the entries. A letter replaces an entry known only by a ball and, among many entries, a
        long one; among few, entries too long for a line are left out. Record such arrays, which the JSON form has in
        full."""
        if isinstance(entries, list):
            return tuple(
                self.shown(e, name, p, longest) for e, p in zip(entries, places, strict=True)
            )
        if isinstance(entries, Enclosed):
            return self._remember_shortened_array(
                self.enclosed, name, self._choose_entry_letter(name, places)
            )
        result = formula(entries)
        if len(text(result)) <= longest:
            return result
        # Among many entries a letter takes the place of a long one.
        if longest == _SHORT:
            return self._remember_shortened_array(
                self.lettered, name, self._choose_entry_letter(name, places)
            )
        return self._remember_shortened_array(self.long, name, Words("…"))

    def shortened(self, entries: object) -> Any:
        """Return formulas of differences, which are no arrays of the walk, without those too long for a line."""
        return self.shown(entries, "the difference", nested(lambda _: (), entries), _LONGEST)

    def _choose_entry_letter(self, name: str, index: tuple[int, ...]) -> Node:
        if name not in SYMBOLS and name != "weighted":
            return Words("–")  # a difference with a number that has no closed form
        weights, values = self.mixing.of[:2]
        return (
            product_letter(weights, values, index)
            if name == "weighted"
            else row_symbol(name, *index)
        )

    @staticmethod
    def _remember_shortened_array(names: list[str], name: str, shown: Node) -> Node:
        if name not in names:
            names.append(name)
        return shown

    def is_right(self, name: str, index: tuple[object, ...] = (...,)) -> bool:
        """Return whether the floating format gives exactly these numbers."""
        errors = self.errors(name, index)
        return errors is None or all(e == 0 for e in exact_arrays.flat(errors.tolist()))


def short_digits(x: object) -> Any:
    """Return the shortest digits that identify a number of its format, or a symbol for NaN and ∞."""
    shown = str(x)
    return {"nan": Words("NaN"), "inf": Name("∞"), "-inf": -Name("∞")}.get(
        shown, shown.removesuffix(".0")
    )


def error_digits(error: float | None) -> Any:
    """Return an error with two digits; a dash for None."""
    if error is None:
        return Words("–")
    return Words(f"<{walks_run.TINY:.0e}") if 0 < error <= walks_run.TINY else f"{error:.2g}"


def places_of(shape: tuple[int, ...]) -> np.ndarray:
    """Return the index of every entry, counted from 1, as an array of tuples."""
    values = np.empty(shape, dtype=object)
    for index in np.ndindex(*shape):
        values[index] = tuple(i + 1 for i in index)
    return values


def listed(sizes: dict[str, int]) -> str:
    """Return sizes as text: ``n = 3, d_model = 4, d_k = 3``."""
    equations = (f"{text(symbol_of_size(size))} = {n}" for size, n in sizes.items())
    return ", ".join(equations)


def symbol_of_size(size: str) -> Node:
    """Return the letter of a size in a walk, where d_y and d_out are named if they are other numbers than d_model."""
    if size in _SILENT:
        return letter(size)
    return SIZES.get("g" if size == "h_kv" else size, Name(size))


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: ``1 row``, ``2 rows``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def enumerated(words: Sequence[object]) -> str:
    """Return words as an enumeration: ``1, 2 and 3``."""
    parts = [str(word) for word in words]
    if len(parts) == 1:
        return parts[0]
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def _map_to_nested_tuples(array: Any, function: Any) -> Any:
    """Apply ``function`` to NumPy's own scalars, and return nested tuples."""
    if getattr(array, "ndim", 0):
        return tuple(_map_to_nested_tuples(part, function) for part in array)
    return function(array)


# -- the eight steps ---------------------------------------------------------------------------------------------------
_SCORES = ARRAYS["scores"].shape
_TABLES = ("r_k", "p_k", "p_q")  # keys and queries for distances
_PLAIN = {"k", "q", "v"}


def capital(title: str) -> str:
    """Return the title with a capital at its start."""
    return title[:1].upper() + title[1:]


def titles(walk: Walk) -> dict[int, str]:
    """Return the titles of this walk's steps by number."""
    i = first_query(walk)
    result = {
        1: "inputs",
        2: "weight matrices" if all(n[0] in "wb" for n in arrays_of(walk, 2)) else "parameters",
        3: "keys, queries, values",
        4: f"scores of input {i}",
        5: {"softmax": "softmax"}.get(walk.sheet.attention.normaliser, "weights"),
        6: "scores times values",
        7: f"sum to output {i}",
        8: "the other queries",
    }
    # Heads and latents have a step after the mixing.
    if walk.mixing.name != "output":
        latents = walk.mixing.name == "attended_latents"
        last = "output projection" if "w_o" in walk.arrays else "heads side by side"
        result[9] = "from latents to the output" if latents else last
    return result


def first_query(walk: Walk) -> int:
    """Return the number of the query that is followed, counted from 1."""
    return walk.query or 1


def arrays_of(walk: Walk, number: int) -> list[str]:
    """Return the arrays that belong to a step, in order."""
    if number in (1, 2):
        return [
            name for name in walk.sheet.inputs if (ARRAYS[name].shape[0] == "…") == (number == 1)
        ]
    result: dict[str, int] = {}
    now = 3
    for name in walk.pipeline:
        if name == "scores":
            now = 4
        elif name == "weights":
            now = 5
        elif name == walk.mixing.name:
            result["weighted"] = 6
            now = 7
        result[name] = 3 if name in _TABLES else now
        if name == walk.mixing.name:
            now = 9
    if {name for name, place in result.items() if place == 3} == _PLAIN:
        result = {"k": 3, "q": 3, "v": 3} | result  # keys first, as tutorials have it
    return [name for name, place in result.items() if place == number]


def is_of_rows(array: str) -> bool:
    """Return whether an array has a row for each query and a column for each key."""
    return ARRAYS[array].shape == _SCORES
