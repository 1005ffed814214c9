"""A pass through a layer, judged part by part: each by what it received, and whether that is what it should receive.

A part's error is that of this part alone, so that a fault is found where it is, and its bound is sharp. Between parts
nothing is rounded: what one gives is what the next one receives, bit for bit, in the format that it is stored in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

import numpy as np

from symattn.models.auditing.layers import linear_part, part_definitions
from symattn.models.auditing.layers.part_judge import PartFinding, fused, judged
from symattn.models.auditing.layers.seen import Open, Pass, TokenRows, format_of, in_words, matrix, same
from symattn.models.auditing.tensor_numbers import numbers
from symattn.models.configurations.promised_blocks import Promised

ANSWER = "attention.answered"  # what attention returned, heads side by side
NOT_RUN = "its module did not run, or did not return an array of tokens"


def known_or_open(judge: Callable[..., Iterator[PartFinding]]) -> Callable[..., Iterator[PartFinding]]:
    """Tell of a part, the first argument, that it is open, where what it needs was not seen."""

    @wraps(judge)
    def told(self: LayerParts, name: str, *given: Any) -> Iterator[PartFinding]:
        try:
            yield from judge(self, name, *given)
        except Open as reason:
            yield PartFinding(name, reason=str(reason))

    return told


class LayerParts:
    """Norms and linear layers of one pass, and what each of them reads."""

    def __init__(self, seen: Pass, promised: Promised, modules: Mapping[str, Any], search: bool) -> None:
        self.seen, self.promised, self.modules, self.search = seen, promised, modules, search
        self.spec, self.layout = promised.block.attention, promised.layout

    # -- what was seen -------------------------------------------------------------------------------------------------
    def _gave(self, name: str, arrays: Mapping[str, TokenRows] | None = None) -> TokenRows:
        """Return the output of a part by its name; ``x`` are the tokens. Raises Open where it was not seen."""
        array = (self.seen.gave if arrays is None else arrays).get(name)
        if array is None:
            raise Open(f"{name}: {NOT_RUN}")
        return array

    def _took(self, name: str) -> TokenRows:
        """Return the input of a part. Raises Open where it was not seen."""
        return self._gave(name, self.seen.given)

    def _name(self, norm: str) -> str:
        """The norm that is there: one may stand before both parts."""
        return norm if norm in self.layout.paths else "attention_norm"

    @known_or_open
    def _norm(self, name: str, source: str | None) -> Iterator[PartFinding]:
        """A norm by what it received, which is what ``source`` gave, if that is named."""
        x, y = self._took(name), self._gave(name)
        if source is not None:
            yield from self._wire(name, x, source)
        yield self._normed(name, self.promised.block.eps, x, y)

    def _normed(self, name: str, eps: Any, x: TokenRows, y: TokenRows) -> PartFinding:
        results = self.layout.norm, eps, self.layout.one_plus
        held = self.modules[name]
        given = {"x": x.values}
        for field, wanted in (("weight", "gain"), ("bias", "bias")):
            if getattr(held, field, None) is not None:
                given[wanted] = numbers(getattr(held, field))
        kinds, near = [fused(format_of(x, y))], part_definitions.near_norm(*results)
        return judged(name, part_definitions.norm(*results), given, [y.values], kinds, self.search, near)

    @known_or_open
    def _linear(self, name: str, source: str) -> Iterator[PartFinding]:
        """A linear layer by what it received, and by its own matrix."""
        x, y = self._took(name), self._gave(name)
        yield from self._wire(name, x, source)
        w, b = matrix(self.modules[name])
        yield linear_part.judged(name, y.values, x.values, w, b, format_of(x, y))

    def _wire(self, name: str, got: TokenRows, source: str) -> Iterator[PartFinding]:
        """Return whether a part received what another one gave, bit for bit; where not, which other array it was."""
        if source == ANSWER and self.seen.answered is None:
            return
        wanted = self.seen.answered if source == ANSWER else self._gave(source)
        assert wanted is not None
        if same(wanted, got):
            return
        others = {n: a for n, a in self.seen.gave.items() if n != source and same(a, got)}
        words = f"it reads {in_words(next(iter(others)))}" if others else "it reads another array"
        yield PartFinding(name, np.inf, True, f"{words}, not {in_words(source)}")
