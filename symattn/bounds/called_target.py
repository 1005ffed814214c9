"""The function under test as verification knows it: how it is called, and the results of calls.

``Runner`` is the interface between the engine, which makes inputs and judges outputs, and ``symattn.programs``, which
finds the user's function and calls it, in this process or in a child.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

Framework = Literal["numpy", "torch", "jax"]
Layout = Literal["nd", "bnd", "nbd", "nhd", "bhnd", "bnhd", "nbhd", "nc", "bnc", "nbc"]
Front = Literal["none", "taken", "promised"]
#: How many axes q, k, v have before they are brought into a layout: …, [h], n, d.
AXES: Mapping[Layout, int] = {layout: len(layout.replace("c", "hd")) for layout in get_args(Layout)}
#: How arrays lie in memory; ``shared``: equal ones are one array; ``frozen``: they are read-only;
#: ``reused``: those of the last such call, with other contents, and the output is overwritten after it was read.
#: ``interpreted``: contiguous, and NumPy runs the programs that JAX would compile (``programs.interpreting``).
Memory = Literal[
    "contiguous", "strided", "transposed", "reversed", "fortran", "shared", "frozen", "reused", "interpreted",
]  # fmt: skip
#: Memory layouts with gaps, or with axes in another order.
APART: tuple[Memory, ...] = ("strided", "transposed", "reversed", "fortran")
Alignment = Literal["bottom-right", "top-left"]
Refusal = Literal["", "own", "library"]
Inputs = Mapping[str, NDArray[Any]]

IN_PROCESS = "The function ran in this process: no time limit, and a crash would have ended it."
CAUSAL_MASK = "causal_mask"  # inputs that no caller gives: made from n_q, n_k and the alignment
# n_k − n_q, n_q, n_k and d_k, whole numbers
PAST = "past"
COUNT_Q = "n_q"
COUNT_K = "n_k"
WIDTH = "d_k"
FACTOR = "factor"  # of the scores, where it follows from d_k
DESTINATION = "destination"  # the array into which the output is written
MADE = (CAUSAL_MASK, PAST, COUNT_Q, COUNT_K, WIDTH, FACTOR, DESTINATION)


#: Reasons of a failure that say nothing about the function, and the option of the command line that may help.
LIMITS = {"time limit": "--time-limit", "memory limit": "--memory-limit"}
_WORDS = {
    CAUSAL_MASK: "causal mask",
    PAST: "n_k − n_q",
    FACTOR: "1/√d_k",
    "lengths": "numbers of valid keys",
    "length": "number of valid keys",
    "bounds": "bounds of documents",
}


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the call: the specification's ``input``, or a constant ``value`` where ``input`` is None.

    ``form`` says which axes the function wants where they are not those of the layout: ``b1qk`` for a mask
    (b, 1, n_q, n_k); ``lengths`` for the number of valid keys in the place of booleans (``programs.layouts``).
    ``numbers`` says that a boolean mask is passed as numbers: ``ones``, 1 for True and 0 for False; ``additive``, 0 for
    True and −∞ for False; ``shifted``, 1 and −∞.
    """

    parameter: str
    input: str | None = None
    value: object = None
    positional: bool = False
    required: bool = False
    inverted: bool = False
    form: str = ""
    numbers: Literal["", "ones", "additive", "shifted"] = ""

    def __str__(self) -> str:
        text = (
            repr(self.value)
            if self.input is None
            else _WORDS.get(self.form, _WORDS.get(self.input, self.input))
        )
        text = self.parameter if self.input == DESTINATION else text
        text = f"not {text}" if self.inverted else text
        words = {"ones": "1 and 0", "additive": "0 and −∞", "shifted": "1 and −∞"}
        text += f" as {words[self.numbers]}" if self.numbers else ""
        return text if self.positional else f"{self.parameter}={text}"


def objects_among(values: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Return the values that are no literals, by name: they may be any objects of the user's."""
    literals = bool, int, float, str, bytes, type(None)
    return {name: value for name, value in values if not isinstance(value, literals)}


@dataclass(frozen=True, slots=True)
class Convention:
    """How a function is called: with which arrays, in which layout, by which names.

    ``layout`` names the axes of q, k, v: batch, heads, tokens, d; c for the columns of all heads side by side; ``nd``
    has no batch, and an axis of heads first if the specification has several. ``front`` says whether the function
    takes further axes in front as well, and whether its documentation promises that. ``reservations`` are notes on
    forms of the inputs that the function takes as well, and for which another verdict holds. ``compiles`` says that a
    call at sizes not seen before takes long, since JAX compiles a program for them, and that NumPy can run it instead.
    """

    arguments: tuple[Argument, ...]
    framework: Framework = "numpy"
    dtype: str = "float64"
    layout: Layout = "nd"
    alignment: Alignment = "bottom-right"
    notes: tuple[str, ...] = ()
    front: Front = "none"
    reservations: tuple[str, ...] = ()
    compiles: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The specification's inputs that the function can take, in the order of its arguments."""
        # Arrays that follow from sizes are no inputs of the specification.
        input_names = (
            a.input for a in self.arguments if a.input is not None and a.input not in MADE
        )
        return tuple(dict.fromkeys(input_names))

    @property
    def destination(self) -> Argument | None:
        """The argument into which the function writes its output; None if it returns the output."""
        return next((a for a in self.arguments if a.input == DESTINATION), None)

    @property
    def needs_definition(self) -> bool:
        """Return whether a process that calls the function has to know the definition."""
        return False

    @property
    def returns_lists(self) -> bool:
        """Return whether outputs may come as a list, which stands for a tuple."""
        return False

    def objects(self) -> dict[str, object]:
        """Return the constants that are no literals, by parameter."""
        constants = ((a.parameter, a.value) for a in self.arguments if a.input is None)
        return objects_among(constants)

    def batch_axes(self, heads: int) -> int:
        """Return the number of batch axes of the layout; the axis of heads counts if the specification has one head.

        Tokens have one, in every layout but ``nd``.
        """
        if self.layout == "nd":
            return 0
        # Axes besides n and d: the batch, and heads where the specification has an axis for them.
        return 1 if "x" in self.inputs else AXES[self.layout] - 2 - (heads > 1)

    @property
    def required(self) -> tuple[str, ...]:
        """The ``inputs`` that every call must give; the others may be left out."""
        return tuple(
            n for n in self.inputs if any(a.input == n and a.required for a in self.arguments)
        )

    @property
    def printed(self) -> str:
        """The arguments as a reader of the report sees them: ``q, k, v, is_causal=True``."""
        return ", ".join(map(str, self.arguments))


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call returned no array.

    ``raised``: an exception of the function's own; ``time limit``: it did not return; ``memory limit``: it needs more
    memory than it may have; ``ended``: it ended its process (a crash, ``os._exit``); ``output``: it returned something
    that is no array of numbers. ``refused`` says who knows that it does not take such inputs: its own code, by
    ``raise`` or ``assert``, or a library (``programs.refusing``). ``exit_code`` is that of an ended process.
    """

    reason: Literal["raised", "time limit", "memory limit", "ended", "output"]
    message: str
    type: str = ""
    where: str = ""
    refused: Refusal = ""
    exit_code: int | None = None

    @property
    def has_fitting_types(self) -> bool:
        """Return whether the fields have their types."""
        texts = (self.reason, self.message, self.type, self.where, self.refused)
        code = self.exit_code
        return all(isinstance(text, str) for text in texts) and (
            code is None or isinstance(code, int)
        )

    def __str__(self) -> str:
        words = (
            f"{self.type}: {self.message}"
            if self.type and self.message
            else self.type or self.message
        )
        return f"{words} ({self.where})" if self.where else words


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one call.

    ``output`` holds the values exactly, as float64 in the layout of the inputs; ``dtype`` and ``shape`` are those of
    what was returned, and ``returned`` counts the items where that was a tuple, whose first item is taken (else 1).
    ``others`` holds its further items where they are arrays of numbers, in the layout in which they came, else None.
    ``mutated`` names inputs that the call changed; ``overwrote`` says that it changed the array which the call before
    it had returned; ``views`` names inputs whose memory the output shares. ``runtime`` says what itself computes wrong
    under the function. ``interpreted`` says that NumPy ran a program that JAX would have compiled.
    """

    output: NDArray[np.float64] | None = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    returned: int = 1
    others: tuple[NDArray[np.float64] | None, ...] = ()
    error: Failure | None = None
    stdout: str = ""
    mutated: tuple[str, ...] = ()
    overwrote: bool = False
    views: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    runtime: str = ""
    interpreted: bool = False

    @property
    def has_fitting_types(self) -> bool:
        """Return whether the fields have their types; those of an untrusted process may be anything."""
        groups = self.shape, self.others, self.mutated, self.views, self.warnings
        # Tuples alone: a list could change after it was checked.
        if not all(isinstance(group, tuple) for group in groups):
            return False
        arrays = [a for a in (self.output, *self.others) if a is not None]
        texts = (self.dtype, self.stdout, self.runtime, *self.mutated, *self.views, *self.warnings)
        numbers = (self.returned, self.overwrote, self.interpreted, *self.shape)
        failed = self.error is not None
        return (
            # float64 holds every narrower format exactly, so that all outputs come in it.
            all(isinstance(a, np.ndarray) and a.dtype == np.float64 for a in arrays)
            and all(isinstance(text, str) for text in texts)
            and all(isinstance(number, int) for number in numbers)
            # Without an error there is no failure to check.
            and (not failed or (isinstance(self.error, Failure) and self.error.has_fitting_types))
        )

    @property
    def late(self) -> bool:
        """Return whether the call did not return within its limits: then there is nothing to judge."""
        return self.error is not None and self.error.reason in LIMITS


class Runner(Protocol):
    """A function that can be called, again and again, with the inputs of a specification."""

    @property
    def convention(self) -> Convention:
        """How the function is called."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the calls for a report."""

    def run(self, inputs: Inputs, memory: Memory = "contiguous") -> Outcome:
        """Call the function once on fresh copies of the inputs.

        Inputs are float64 arrays whose values the convention's dtype holds exactly, and boolean masks. ``memory`` says
        how the copies lie in memory. Raises ``InputError`` if inputs are missing or not exact; whatever the function
        itself does is in the outcome.
        """

    def describe(self) -> str:
        """Return the function and its arguments: ``attn.py:attention(q, k, v)``."""

    def close(self) -> None:
        """Release the function; a child process ends."""


def same_bits(first: Outcome, second: Outcome, outputs: int = 1) -> bool:
    """Return whether two calls returned arrays of one dtype and shape that are equal bit for bit (NaN equals NaN).

    Of what they returned, the first so many ``outputs`` are compared.
    """
    if first.output is None or second.output is None:
        return False
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    one, other = (x.others[: outputs - 1] for x in (first, second))
    return len(one) == len(other) and all(
        map(_are_bits_equal, (first.output, *one), (second.output, *other))
    )


def _are_bits_equal(a: NDArray[np.float64] | None, b: NDArray[np.float64] | None) -> bool:
    if a is None or b is None:
        return a is b
    # Zeros of different sign are equal numbers with different bits.
    same_values = np.array_equal(a, b, equal_nan=True)
    return same_values and np.array_equal(np.signbit(a), np.signbit(b))
