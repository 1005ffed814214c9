"""Rounding: thresholds, masks, sums and scales in number formats; bounds of errors."""

from __future__ import annotations

from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.formats import NARROW
from symattn.attention.streaming.states import SoftmaxState, merge
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.printed_roundings import beyond, fl, of_format
from symattn.proof.same_bits import SameBits
from symattn.theorems.letters import side_by_side, weights
from symattn.theorems.streaming import STATE_LETTERS, named_state
from symattn.theorems.texts import of_file

INFINITE = ("float32", "bfloat16", "float16", "float8_e5m2")  # formats with an infinity

FORMAT_LETTERS = Glossary(
    {"x": ""},
    defined={
        "u": of_format(lambda f: f.u),
        "p": of_format(lambda f: f.digits),
        "N": of_format(lambda f: 2**f.digits),
        "η": of_format(lambda f: f.smallest),
        "ν": of_format(lambda f: f.smallest_normal),
        "e_max": of_format(lambda f: int(f.power_beyond).bit_length() - 2),
        "∞": beyond("inf"),
        "NaN": beyond("nan"),
    },
    families={"fl": fl},
    formats=INFINITE,
)
"""The meanings of the letters of a format."""


def _largest_weight(reader: Any) -> Any:
    """Return the weight of a score 0 among others that are at most −Δ."""
    s = -reader.array("Δ") - reader.array("t")
    return weights(side_by_side(0 * s[:1], s))[0]


# -- merging -----------------------------------------------------------------------------------------------------------
def _split_softmax_states(x: tuple[Array, ...]) -> list[SoftmaxState]:
    return [SoftmaxState(*x[i : i + 3]) for i in (0, 3, 6)]


def _either_way(*x: Array) -> tuple[SoftmaxState, SoftmaxState]:
    """merge(a, b) and merge(b, a)."""
    a, b, _ = _split_softmax_states(x)
    return merge(a, b), merge(b, a)


def _other_bracketing(*x: Array) -> tuple[SoftmaxState, SoftmaxState]:
    """merge(merge(a, b), c) and merge(a, merge(b, c))."""
    a, b, c = _split_softmax_states(x)
    left_first = merge(merge(a, b), c)
    return left_first, merge(a, merge(b, c))


merge_commutes = SameBits(9, _either_way, _other_bracketing, tied=(0, 3, 6))

THEOREMS = of_file(
    "rounding",
    {
        "": FORMAT_LETTERS,
        "rounded": Glossary(families={"fl": fl}),
        "underflow-threshold": FORMAT_LETTERS.also(formats=(*INFINITE, "float8_e4m3fn")),
        "largest": FORMAT_LETTERS.also(defined={"p_max": _largest_weight}),
        "narrow": FORMAT_LETTERS.also(formats=NARROW),
        "low-precision-sum-stagnates": FORMAT_LETTERS.also(formats=NARROW),
        "masked-row-nan": FORMAT_LETTERS.also(
            {"x": "n_k"},
            index={"j": "n_k"},
            defined={"s": lambda reader: 0 * reader.array("x") - reader.letter("∞").array},
        ),
        "fp16-mask-constant": FORMAT_LETTERS.also({"s": ""}, formats=("float16",)),
        "merge-rounding-commutes": STATE_LETTERS.also(
            defined={letter: named_state(i) for i, letter in enumerate("abc")},
            families={"fl": fl},
            alike=None,
            formats=("float32", "float16", "bfloat16"),
        ),
    },
    globals(),
)
