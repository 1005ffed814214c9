"""``Question``: an output, what it was computed from, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from symattn.arrays.precision import Contract, Precision
from symattn.attention.spec import Attention
from symattn.programs.descale import arithmetic, scaled


class Layout(NamedTuple):
    """``cu_seqlens`` (batch + 1,), or a pair of them, for queries and for keys; or ``block_table`` (batch, blocks) and
    ``lengths`` (batch,), the keys of each sequence."""

    cu_seqlens: Any = None
    block_table: Any = None
    lengths: Any = None

    @property
    def plain(self) -> bool:
        """Return whether nothing is packed or paged."""
        return self.cu_seqlens is None and self.block_table is None and self.lengths is None


_PLAIN = Layout()


@dataclass(frozen=True)
class Question:
    """The arguments of ``assert_close_to_exact``; ``given`` are its inputs by name, ``layout`` how they are packed."""

    out: Any
    given: Mapping[str, Any]
    spec: Attention | None = None
    precision: str | Precision | None = None
    contract: Contract | None = None
    alpha: float | None = None
    rows: int | Sequence[int] | None = None
    lse: Any = None
    layout: Layout = _PLAIN
    do: Any = None
    gradients: Sequence[Any] | None = None
    power: Mapping[str, float] | None = None

    @classmethod
    def of(cls, out: Any, inputs: Mapping[str, Any], spec: Attention | None, **options: Any) -> Question:
        """Make a question, with the arrays of a layout taken out of the inputs and inputs that are None left out.

        With descale factors, the precision is that of FP8 kernels (``descale.arithmetic``).
        """
        layout = Layout(*(inputs.get(name) for name in Layout._fields))
        arrays = {n: a for n, a in inputs.items() if a is not None and n not in Layout._fields}
        if scaled(arrays):
            options["precision"] = arithmetic(options["precision"], options["contract"], arrays, out)
        return cls(out, arrays, spec, layout=layout, **options)
