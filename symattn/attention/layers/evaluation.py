"""Evaluation of a description for rational numbers: exact if possible, else in proven digits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from symattn.arrays import kind
from symattn.arrays.ball import Ball, precision
from symattn.arrays.field.approximation import decimal
from symattn.arrays.plain import of_tensor
from symattn.arrays.shown import left_out, table
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.fields import whole
from symattn.attention.layers.transformer import IDS
from symattn.attention.letters_of_attention import ARRAYS
from symattn.document.errors import InputError, Refused, Undecided, article
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Document, Paragraph
from symattn.document.printable import Shown

# Balls that hold 0 at this precision are most likely 0, which no ball proves.
LIMIT = 1 << 14  # bits


@dataclass(frozen=True)
class Evaluation(Shown):
    """An output: its elements (exact numbers or balls), its digits as an array of texts, and the evidence for them.

    >>> from symattn import Attention, evaluate
    >>> print(evaluate(Attention(), {"q": [[0]], "k": [[1], [2]], "v": [[1], [2]]}, digits=4).output)
    exact([[3/2]])
    """

    output: Any
    digits: np.ndarray
    evidence: Evidence

    def document(self) -> Document:
        """Return the digits in a small table, and the evidence for them."""
        shape = self.digits.shape
        shown = (table(shape, lambda at: (self.digits[at],)),) if self.digits.size and shape else ()
        said = f"{left_out(shape)} Grade: {self.evidence}." if shown else f"Grade: {self.evidence}."
        return Document("listing", "evaluation", (), (*shown, Paragraph((said.strip(),))))


def evaluate(
    model: Callable[..., object], inputs: Mapping[str, object], digits: int = 50
) -> Evaluation:
    """Return the output of an ``Attention``, ``Block`` or ``Transformer`` for rational inputs, to that many digits.

    Exact numbers hold one layer of exponentials over square roots of rational numbers; the grade is then
    ``checked``. A second layer of exponentials, a root of an exponential, erf and cos leave this field. The output
    is then computed in balls, doubling the bits until every digit is proven, and the grade is ``enclosed``. Raises
    Undecided if ``LIMIT`` bits prove too few digits, InputError for digits below 1.

    >>> from symattn import Attention
    >>> found = evaluate(Attention(scale=1), {"x": [[1, 0], [0, 1]]}, digits=6)
    >>> found.digits[0, 0], found.evidence.grade.value
    ('0.731059', 'checked')
    """
    if not whole(digits, 1):
        raise InputError(f"digits must be an integer of at least 1, got {digits!r}")
    if not callable(model):
        raise InputError(
            f"{article(type(model).__name__)} cannot be evaluated; hint: give a specification or a function"
        )
    if not isinstance(inputs, Mapping):
        raise InputError('the inputs are passed by name; hint: {"q": ..., "k": ..., "v": ...}')
    # Exact numbers are tried first: their digits need no proof by intervals.
    try:
        output = _one_array(model(**lifted(kind("exact"), inputs)))
        written = np.vectorize(
            lambda x: _symbol_of_special_element(x) or x.decimal(digits), otypes=[object]
        )(output.entries)
        return Evaluation(output, written, Evidence(Grade.CHECKED, "exact numbers"))
    # Leaving the exact field is no error: balls take any function.
    except Refused as refusal:
        return enclose(model, inputs, digits, str(refusal))


def lifted(target: Any, inputs: Mapping[str, object]) -> dict[str, Any]:
    """Return the inputs as arrays of a kind; booleans and integers, such as tokens, stay plain arrays."""
    result = {}
    for name, value in inputs.items():
        data = of_tensor(value, name)
        own, plain = name.rpartition(".")[2], np.asarray(data)
        known = (ARRAYS | IDS).get(own)
        # Indices and booleans choose elements, so they stay plain integers.
        if plain.dtype == bool or (known is not None and known.holds != "numbers"):
            result[name] = plain
        # Large negative numbers in a mask are literals that stand for −∞.
        elif own == "mask":
            result[name] = (
                target.literal(plain) if hasattr(target, "literal") else plain.astype(target.dtype)
            )
        else:
            result[name] = target.lift(data)
    return result


def enclose(
    model: Callable[..., object], inputs: Mapping[str, object], digits: int, reason: str = ""
) -> Evaluation:
    """Return the output in balls, with as many bits as needed; ``reason`` says why it is not exact."""
    # A decimal digit needs 3.33 bits; the rest leaves room for roundings.
    bits = 64 + 4 * digits
    while True:
        try:
            with precision(bits):
                output = _one_array(model(**lifted(Ball, inputs)))
                written = np.vectorize(
                    lambda x: _symbol_of_special_element(x) or _round_to_proven_digits(x, digits),
                    otypes=[object],
                )(output.entries)
            where = f"{digits} digits of each element, by balls of {bits} bits"
            return Evaluation(
                output, written, Evidence(Grade.ENCLOSED, f"{where}; {reason}" if reason else where)
            )
        # More bits shrink every ball; doubling them keeps the number of runs small.
        except Undecided as doubt:
            if 2 * bits > LIMIT:
                raise Undecided(f"{bits} bits do not prove {digits} digits: {doubt}") from None
            bits *= 2


def _one_array(output: object) -> Any:
    if isinstance(output, tuple):
        raise InputError(
            f"{len(output)} arrays come out, of which one would be evaluated; hint: lse=False"
        )
    return output


def _symbol_of_special_element(x: object) -> str:
    """Return the symbol of an element that is not a number, or "" for a number."""
    return str(x) if isinstance(x, (Forbidden, Undefined)) else ""


def _round_to_proven_digits(x: flint.arb, digits: int) -> str:
    """Return the rounded digits of the number in a ball. Raises Undecided if the ball does not determine them all."""
    bits = flint.ctx.prec
    # The ball that holds 0 alone is exact.
    if x == 0:
        return "0"
    # Relative digits of a number that may be 0 do not exist.
    if x.contains(0):
        raise Undecided(f"is {x} zero?")

    def enclosed(working: int) -> flint.arb:
        # When ``decimal`` needs more bits than this run has, the caller doubles them.
        if working > bits:
            raise Undecided(f"the digits of {x}")
        return x

    return decimal(enclosed, digits)
