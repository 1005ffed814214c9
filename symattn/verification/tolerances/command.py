"""What ``symattn bound`` is asked, and its answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from symattn.arrays.precision import Contract, Precision
from symattn.attention.spec import Attention
from symattn.document.model import Document
from symattn.errors import InputError
from symattn.verification.probing.inputs import Sizes
from symattn.verification.tolerances import given, telling
from symattn.verification.tolerances.asked import Beforehand, beforehand, for_inputs
from symattn.verification.tolerances.picked import picked
from symattn.verification.tolerances.reach import Reach, bounded, normal
from symattn.verification.tolerances.weighing import Weighed, weigh

_MOST = 200  # lines of a table
_USUAL = Attention()


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The options; of n, dk and dtype there may be several. Kernels keep scores wide, so ``fused`` is the usual one."""

    n: tuple[int, ...] = (1024,)
    dk: tuple[int, ...] = (64,)
    dtype: tuple[str, ...] = ("float32",)
    contract: Contract = "fused"
    accumulate: str | None = None
    tile: int | None = None
    inputs: str = "normal"
    largest: float = 1.0
    file: str | None = None
    seed: int = 0
    compare: bool = True
    spec: Attention = _USUAL

    def precision(self, dtype: str, n: int) -> Precision:
        """The arithmetic for n keys."""
        found = Precision.of(dtype, self.contract, self.accumulate)
        return found if self.tile is None else found.in_tiles(n, self.tile)

    def reach(self, sizes: Sizes) -> Reach:
        """How large the inputs are."""
        return normal(sizes) if self.inputs == "normal" else bounded(sizes, self.largest)


def document(wish: Wish, command: str) -> Document:
    """For inputs, for one size, or a table of several. Raises ``InputError``."""
    if wish.file is not None:
        return _for_inputs(wish, wish.file, command)
    asked = list(_beforehand(wish))
    if len(asked) > 1:
        return telling.table(asked, command)
    return telling.beforehand(asked[0], _compared(wish, asked[0]), command)


def _for_inputs(wish: Wish, path: str, command: str) -> Document:
    if len(wish.dtype) > 1:
        raise InputError(f"--input goes with one --dtype, not with {', '.join(wish.dtype)}")
    inputs = given.read(path, wish.spec, Precision.of(wish.dtype[0]))
    precision = wish.precision(wish.dtype[0], inputs["k"].shape[-2])
    return telling.for_inputs(for_inputs(wish.spec, precision, inputs), path, command)


def _beforehand(wish: Wish) -> Iterator[Beforehand]:
    lines = len(wish.n) * len(wish.dk) * len(wish.dtype)
    if lines > _MOST:
        raise InputError(f"{lines} bounds are asked for; a table has at most {_MOST}")
    for dtype in wish.dtype:
        for d_k in wish.dk:
            for n in wish.n:
                sizes = Sizes(n, n, d_k, d_k)
                yield beforehand(wish.spec, wish.precision(dtype, n), sizes, wish.reach(sizes))


def _compared(wish: Wish, asked: Beforehand) -> tuple[Weighed, ...]:
    name = asked.precision.input.name
    if not wish.compare or name == "float64" or asked.precision.factors is not None:
        return ()
    return weigh(wish.spec, asked.precision, asked.sizes, picked(name), wish.seed)
