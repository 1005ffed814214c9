"""A specification with its inputs: how it runs on arrays of a kind, and what it gives by loops over plain numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import mpmath
import numpy as np

from symattn.arrays import kind
from symattn.arrays.ball import precision
from symattn.arrays.special import Forbidden, Undefined
from symattn.attention.spec import Attention
from tests.attention import by_loops
from tests.attention.pieces import nested

PLAIN = ("mask", "keep", "doc", "doc_q", "doc_k", "drop")  # inputs that are no numbers to compute with
#: How many axes an input has beside those of batches, and of heads, which stand before them. Others have no batch.
OWN = dict.fromkeys(("keep", "doc", "doc_q", "doc_k"), 1) | dict.fromkeys(("mask", "bias", "drop"), 2)
OWN |= dict.fromkeys("qkvxy", 2) | dict.fromkeys(("cos", "sin", "cos_q", "sin_q"), 2)


@dataclass(frozen=True, eq=False)
class Definition:
    """A specification and all of its inputs by name.

    ``refused`` says by kind with what words it is refused there; ``any_function``, that on residues tanh or a root of
    data stands for any function, so that it runs and there is nothing to compare.
    """

    spec: Attention
    given: Mapping[str, np.ndarray]
    refused: Mapping[str, str] = field(default_factory=dict)
    any_function: bool = False

    def run(self, lift: Any) -> Any:
        """The output (and the logarithms) on arrays of a kind; masks and labels stay plain."""
        return self.spec(**{name: a if name in PLAIN else lift(a) for name, a in self.given.items()})


def parts(x: Any) -> list[Any]:
    """The outputs, of which there may be several."""
    return list(x) if isinstance(x, tuple | list) else [x]


def flat(x: Any) -> list[Any]:
    """The elements of all parts."""
    return [e for part in parts(x) for e in np.asarray(part.entries).flat]


@cache
def truth(definition: Definition) -> list[Any]:
    """The elements as balls of 256 bits."""
    with precision(256):
        return flat(definition.run(kind("ball").lift))


def looped(definition: Definition, spec: Any = None) -> list[Any]:
    """The elements by loops, each batch by itself; ``spec`` in the place of the definition's own."""
    with mpmath.workdps(50):
        found = by_batches(definition, spec or definition.spec)[1]
    names = ("output", "lse") if definition.spec.lse else ("output",)
    return [x for name in names for one in found for x in np.array(one[name], dtype=object).flat]


def by_batches(definition: Definition, spec: Any) -> tuple[tuple[int, ...], list[dict[str, Any]]]:
    """The axes of batches, and what loops give for each batch."""
    given = definition.given
    split = 1 if definition.spec.heads > 1 and "q" in given else 0
    tokens = given["q" if "q" in given else "x"]
    batch = np.broadcast_shapes(*(given[n].shape[: -2 - split] for n in "qkxy" if n in given))
    return batch, [
        by_loops.attention(spec, {n: _numbers(n, a, i) for n, a in given.items()} | {"n_q": tokens.shape[-2]})
        for i in np.ndindex(*batch)
    ]


def _numbers(name: str, array: np.ndarray, index: tuple[int, ...]) -> Any:
    """An input of one batch as nested lists."""
    front = array.ndim - OWN.get(name, array.ndim)
    mine = array[index[len(index) - min(front, len(index)) :]]
    return mine.tolist() if mine.dtype.kind in "bi" else nested(mine)


def same(definition: Definition, wanted: list[Any]) -> bool:
    """Whether the definition gives these numbers, to 40 digits."""
    found = truth(definition)
    return len(found) == len(wanted) and all(near(x, y) for x, y in zip(found, wanted, strict=True))


def near(ball: Any, x: Any) -> bool:
    """Whether a narrow ball is at a number to 40 digits; −∞ is near itself alone, and so is what is undefined."""
    if isinstance(ball, Undefined) or mpmath.isnan(x):
        return isinstance(ball, Undefined) and bool(mpmath.isnan(x))
    if isinstance(ball, Forbidden) or mpmath.isinf(x):
        return isinstance(ball, Forbidden) and bool(mpmath.isinf(x))
    with mpmath.workdps(50):
        return abs(mpmath.mpf(ball.mid().str(50, radius=False)) - x) < mpmath.mpf("1e-40") and ball.rad() < 1e-50
