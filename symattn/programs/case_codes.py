"""Encode the inputs of a case as a short word for a command line, and decode it: nothing is stored anywhere.

``encode(spec, inputs, dtype)`` packs names, shapes and entries into bits, and these into letters; small whole numbers
take a bit or a few each, so that the smallest inputs of a fault are a word of about ten letters. Ten bits of a hash of
the specification, the dtype and the inputs come first, by which ``decode`` refuses a word that was mistyped or belongs
to another specification.

Whole numbers are written in Elias's gamma code: P. Elias, Universal codeword sets and representations of the integers,
IEEE Trans. Inform. Theory 21 (1975); the letters are D. Crockford's base 32 (https://www.crockford.com/base32.html).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import isfinite, isnan, prod
from typing import Any

import numpy as np

from symattn.document import codec, errors
from symattn.programs.specifications import Specification, definitions_of, kind_of
from symattn.verification.report import Fault, Report

Inputs = Mapping[str, Any]
LONGEST = 64  # letters, beyond which a word is no use in a command line
# Crockford's letters, without those that readers confuse with others.
_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
# Letters that readers confuse with digits.
_ALIKE = str.maketrans("oil", "011")
# Bits of the hash.
_CHECK = 10
# The start of a word that encodes no inputs.
_HASHED = "many-"
_MOST = 1 << 16  # entries of an array
# Ways in which the entries of an array are written.
_ZERO_ONE, _WHOLE, _DYADIC = range(3)
# Kinds of entries, of which a word has the number.
_KINDS = ("numbers", "booleans", "whole numbers")
# Values that are no m · 2^e, of which a word has the number.
_SPECIAL = (float("inf"), float("-inf"), float("nan"), -0.0)


def encode(spec: Specification, inputs: Inputs, dtype: str) -> str:
    """Return the word for these inputs, or "" if it would be longer than ``LONGEST``."""
    arrays = {name: np.asarray(values) for name, values in inputs.items()}
    # A letter has five bits, and every entry takes one or more.
    if sum(a.size for a in arrays.values()) > 5 * LONGEST:
        return ""
    bits = _hash_case_bits(spec, arrays, dtype) + "".join(_encode_input_names(spec, arrays))
    for name, a in arrays.items():
        if kind_of(spec).entries_of(name, spec) is None:
            kind = {"b": "booleans", "i": "whole numbers", "u": "whole numbers"}.get(
                a.dtype.kind, "numbers"
            )
            bits += f"{_KINDS.index(kind):02b}"
        bits += _encode_case_array(a)
    bits += "1"  # the end of the bits; zeros fill the last letter
    bits += "0" * (-len(bits) % 5)
    word = "".join(_LETTERS[int(bits[i : i + 5], 2)] for i in range(0, len(bits), 5))
    return word if len(word) <= LONGEST else ""


def hashed(spec: Specification, dtype: str, step: str, cause: str | None) -> str:
    """Return a word for a fault with too many inputs to encode: a hash of the fault itself."""
    result = repr((_list_nondefault_fields(spec), dtype, step, cause))
    return _HASHED + hashlib.sha256(result.encode()).hexdigest()[:8]


def speaks(word: str) -> bool:
    """Return whether a word encodes inputs, rather than coming from ``hashed``."""
    return not word.startswith(_HASHED)


def decode(spec: Specification, word: str, dtype: str) -> dict[str, np.ndarray]:
    """Return the inputs that a word encodes. Raises ``InputError`` unless ``encode`` made it for this ``spec``."""
    refused = errors.InputError(
        f"--case {word}: no case of this specification and dtype; hint: the whole command as the report prints it"
    )
    letters = word.lower().translate(_ALIKE)
    if not letters or len(letters) > LONGEST or set(letters) - set(_LETTERS):
        raise refused
    # The encoder ends the bits with a 1, since zeros fill up the last letter.
    bits = "".join(f"{_LETTERS.index(letter):05b}" for letter in letters).rstrip("0")[:-1]
    try:
        result = _CodeReader(bits, _CHECK).inputs(spec)
    except (IndexError, KeyError, ValueError, OverflowError):
        raise refused from None
    # The hash binds a word to its specification and dtype, and detects misprints.
    if bits[:_CHECK] != _hash_case_bits(spec, result, dtype):
        raise refused
    return result


def named(report: Report, spec: Specification, dtype: str) -> Report:
    """Return the report with a word for each fault that has inputs."""
    faults = []
    for f in report.faults:
        word = ""
        if f.counterexample and f.counterexample.inputs:
            word = encode(spec, inputs_of(f, spec), dtype) or hashed(spec, dtype, f.step, f.cause)
        faults.append(replace(f, case=word))
    return replace(report, faults=tuple(faults))


def inputs_of(fault: Fault, spec: Specification) -> dict[str, np.ndarray]:
    """Return the arrays of a counterexample."""
    kinds = {"booleans": bool, "whole numbers": np.int64, "numbers": float}
    results = fault.counterexample.inputs if fault.counterexample else {}
    arrays = {}
    for name, values in results.items():
        entries = kind_of(spec).entries_of(name, spec)
        # Without a dtype, NumPy takes that of the values.
        arrays[name] = np.array(values, dtype=entries and kinds[entries])
    return arrays


def _hash_case_bits(spec: Specification, arrays: Mapping[str, np.ndarray], dtype: str) -> str:
    """Return the first bits of a hash of the case."""
    # Entries are hashed as floats, so that a decoded array has the same hash in any dtype.
    result = repr(
        (
            _list_nondefault_fields(spec),
            dtype,
            [(n, a.shape, [float(x) for x in a.ravel()]) for n, a in arrays.items()],
        )
    )
    digest = hashlib.sha256(result.encode()).digest()
    return f"{digest[0]:08b}{digest[1]:08b}"[:_CHECK]


def _list_nondefault_fields(spec: Specification) -> dict[str, str]:
    """Return the fields in which a specification differs from the default."""
    attention = kind_of(spec).attention_of(spec)
    result = {} if attention is None else codec.changed_fields(attention)
    return {**kind_of(spec).options(spec), **result}


def _list_definition_input_names(spec: Specification) -> list[str]:
    """Return the inputs that any form of a definition takes; none for attention, whose names are spelled out."""
    result = (i.name for definition in definitions_of(spec) for i in definition.inputs)
    return list(dict.fromkeys(result))


def _encode_input_names(spec: Specification, arrays: Inputs) -> Iterator[str]:
    """Yield 0 for q, k, v and what the specification needs; else 1, the number of names, and each of them.

    An input of attention is named by its letters, one of any other definition by its number there.
    """
    # The common case costs one bit, since words are to be typed by hand.
    if tuple(arrays) == kind_of(spec).implied_inputs(spec):
        yield "0"
        return
    yield "1" + _encode_natural_number(len(arrays))
    known = _list_definition_input_names(spec)
    for name in arrays:
        if known:
            yield _encode_natural_number(known.index(name))
            continue
        yield _encode_natural_number(len(name))
        yield "".join(f"{ord(letter):07b}" for letter in name)


def _encode_case_array(a: np.ndarray) -> str:
    """Return the code of an array: its shape, the format of the entries, and the entries."""
    entries = [float(x) for x in a.ravel()]
    # Masks and one-hot arrays take one bit an entry; negative zero has no code but a dyadic one.
    if all(x in (0, 1) and not _negative_zero(x) for x in entries):
        way = _ZERO_ONE
        written = "".join(str(int(x)) for x in entries)
    elif all(
        isfinite(x) and x.is_integer() and abs(x) < 1000 and not _negative_zero(x) for x in entries
    ):
        # Small integers are shorter as such than as m · 2^e.
        way = _WHOLE
        written = "".join(_encode_signed_integer(int(x)) for x in entries)
    else:
        way, written = _DYADIC, "".join(map(_encode_dyadic_float, entries))
    return "".join(map(_encode_natural_number, (a.ndim, *a.shape))) + f"{way:02b}" + written


def _encode_natural_number(n: int) -> str:
    """Return Elias's gamma code of n + 1, n ≥ 0."""
    digits = f"{n + 1:b}"
    return "0" * (len(digits) - 1) + digits


def _encode_signed_integer(n: int) -> str:
    return _encode_natural_number(2 * n if n >= 0 else -2 * n - 1)


def _encode_dyadic_float(x: float) -> str:
    """Return the code of m · 2^e with m odd, of 0, or of a special value: ±∞, NaN or negative zero."""
    if not isfinite(x) or _negative_zero(x):
        return "1" + ("10" if isnan(x) else "11" if x == 0 else "00" if x > 0 else "01")
    # An exact ratio: the denominator of a float is a power of two.
    top, bottom = Fraction(x).as_integer_ratio()
    # top & −top is the lowest bit that is set.
    twos = (top & -top).bit_length() - 1 if top else 0
    return (
        "0"
        + _encode_signed_integer(top >> twos)
        # A denominator of k + 1 bits is 2^k, so that the exponent is twos − k.
        + _encode_signed_integer(twos - bottom.bit_length() + 1)
    )


def _negative_zero(x: float) -> bool:
    return x == 0 and bool(np.signbit(x))


class _CodeReader:
    """A reader of bits. Raises ``IndexError`` if they end too early, ``ValueError`` if ``encode`` never writes them."""

    def __init__(self, bits: str, at: int) -> None:
        self.bits, self.at = bits, at

    def inputs(self, spec: Specification) -> dict[str, np.ndarray]:
        names = self.names(spec)
        result = {name: self.array(self.kind(name, spec)) for name in names}
        if self.at != len(self.bits) or len(result) != len(names):
            raise ValueError("bits are left")
        return result

    def kind(self, name: str, spec: Specification) -> str:
        """Return the kind of an input's entries."""
        return kind_of(spec).entries_of(name, spec) or _KINDS[int(self.take(2), 2)]

    def take(self, count: int) -> str:
        if self.at + count > len(self.bits):
            raise IndexError("no bits are left")
        self.at += count
        return self.bits[self.at - count : self.at]

    def natural(self) -> int:
        zeros = 0
        while self.take(1) == "0":
            zeros += 1
        return int("1" + self.take(zeros), 2) - 1

    def integer(self) -> int:
        n = self.natural()
        return n // 2 if n % 2 == 0 else -(n + 1) // 2

    def names(self, spec: Specification) -> tuple[str, ...]:
        if self.take(1) == "0":
            return kind_of(spec).implied_inputs(spec)
        known = _list_definition_input_names(spec)
        return tuple(known[self.natural()] if known else self.name() for _ in range(self.natural()))

    def name(self) -> str:
        word = "".join(chr(int(self.take(7), 2)) for _ in range(self.natural()))
        if not word.isidentifier():
            raise ValueError("no name")
        return word

    def array(self, kind: str) -> np.ndarray:
        shape = tuple(self.natural() for _ in range(self.natural()))
        # A mistyped word must not cost much memory.
        if len(shape) > 8 or prod(shape) > _MOST:
            raise ValueError("too large")
        way = int(self.take(2), 2)
        entries = np.array([self.entry(way) for _ in range(prod(shape))], dtype=float).reshape(
            shape
        )
        return (
            entries
            if kind == "numbers"
            else entries.astype(bool if kind == "booleans" else np.int64)
        )

    def entry(self, way: int) -> float:
        if way == _ZERO_ONE:
            return float(self.take(1))
        if way == _WHOLE:
            return float(self.integer())
        if way != _DYADIC:
            raise ValueError("no way to write numbers")
        if self.take(1) == "1":
            return _SPECIAL[int(self.take(2), 2)]
        odd, power = self.integer(), self.integer()
        # No float has such a power of 2, whose fraction would be large.
        if abs(power) > 2000:
            raise ValueError("no number")
        return float(odd * Fraction(2) ** power)
