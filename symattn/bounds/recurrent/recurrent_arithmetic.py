"""``RecurrentArithmetic``: the order in which a recurrence is computed, and the formats in which it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.document.errors import InputError

#: Sizes of chunks that are tried if none is given, the commonest first.
SIZES = (64, 16, 32, 128)
#: Longest sequence that is also tried as one chunk.
MAX_WHOLE_CHUNK = 1100


@dataclass(frozen=True)
class RecurrentArithmetic:
    """One way of computing a recurrence.

    order      ``tokens``: one after another; ``chunks``: of ``size`` tokens, aligned at the first token
    sums       format of sums and of all between
    stored     format in which operands of products are stored in chunks: T, w V, p e^G, U, W, u, the state that is
               read, q e^G, K̄ and N, with a bonus b also q b or b k (None: that of the sums)
    kept       format of the state between chunks or tokens (None: that of the sums)
    output     format of the outputs
    ending     format of the final state
    system     how (I + L) u = b is solved: ``rows``: by substitution, or by an inverse made by substitution;
               ``blocks``: an inverse merged from those of blocks; ``general``: LU factors without exchanges of rows, or
               an inverse by them; ``powers``: an inverse that is a sum or a product of powers of L; ``any``: in one of
               these ways
    residual   whether the system is solved for w V − (p e^G) S, not for w V and p e^G apart
    factors    whether p e^{G − m} and k e^{m − G} are stored in ``stored`` before L and N are made of them
    """

    order: Literal["tokens", "chunks"] = "chunks"
    size: int = 64
    sums: Format = Format("float32")  # noqa: RUF009  # frozen
    stored: Format | None = None
    kept: Format | None = None
    output: Format = Format("float32")  # noqa: RUF009
    ending: Format | None = None
    system: Literal["rows", "blocks", "general", "powers", "any"] = "rows"
    residual: bool = False
    factors: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"chunks have at least 1 token, got size={self.size}")

    @property
    def words(self) -> str:
        """The order and the formats in a line."""
        if self.order == "tokens":
            return f"token by token, sums in {self.sums.name}"
        operands = "" if self.stored is None else f", operands in {self.stored.name}"
        return f"in chunks of {self.size} tokens, sums in {self.sums.name}{operands}"


def of_precision(precision: Precision, length: int) -> Iterator[RecurrentArithmetic]:
    """Yield the arithmetics of implementations in a precision, those of the narrowest limits first.

    With sums in the format of the inputs, everything may be stored in it: no format is finer than that of the sums.
    """
    chunks = list(_chunks_of_precision(precision, length))
    stored = chunks[0].stored
    yield chunks[0]
    # Token by token no operand of a product is stored.
    yield replace(chunks[0], order="tokens", stored=None)
    if stored is not None:
        # The difference as the right side is a choice only where it is stored.
        yield replace(chunks[0], residual=True)
    yield from chunks[1:]
    for one in chunks:
        # Factors are stored in the format of operands, if that is narrower than sums.
        wide = replace(one, factors=stored is not None)
        yield replace(wide, system="general")
        yield replace(wide, system="blocks")


def widest_of_precision(precision: Precision, length: int) -> Iterator[RecurrentArithmetic]:
    """Yield arithmetics of which one allows what any implementation in a precision gives: one for each size of chunks.

    The first has the narrowest limits, and is enough for most right outputs. Inverses made of powers of L are among
    these, unlike those of ``of_precision``: they lose digits where keys are alike.
    """
    chunks = list(_chunks_of_precision(precision, length))
    stored = chunks[0].stored
    # The first one has the narrowest limits, and covers most right outputs.
    yield chunks[0]
    # As in ``of_precision``: token by token no operand of a product is stored.
    yield replace(chunks[0], order="tokens", stored=None)
    for one in chunks:
        # Any way to solve the system: substitution, factors, or an inverse.
        wide = replace(one, system="any", factors=stored is not None)
        yield wide
        if stored is not None:
            # The difference as the right side is a choice only where it is stored.
            yield replace(wide, residual=True)


def _chunks_of_precision(precision: Precision, length: int) -> Iterator[RecurrentArithmetic]:
    """Yield chunks of each size in a precision, solved by substitution."""
    sums, input_format = precision.accumulate, precision.input
    # A format as fine as that of sums makes storing exact.
    stored = None if input_format.u <= sums.u else input_format
    base = RecurrentArithmetic(sums=sums, stored=stored, output=precision.returned)
    # Sizes of at least the whole sequence are the same as one chunk.
    sizes = [size for size in SIZES if size < length] or [max(length, 1)]
    if length <= MAX_WHOLE_CHUNK:
        sizes = [*dict.fromkeys([*sizes, length])]
    for size in sizes:
        yield replace(base, size=size)


def rounding_of(x: np.ndarray, form: Format | None) -> np.ndarray:
    """Return the largest rounding of numbers that are stored in a format, 0 if they are not."""
    if form is None:
        return np.zeros_like(x)
    relative = float(form.u) * np.abs(x)
    return np.asarray(relative + float(form.eta))
