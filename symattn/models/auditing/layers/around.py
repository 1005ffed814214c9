"""A whole pass: attention and the feed-forward layer with their norms, around the residual stream."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from symattn.models.auditing.layers import part_definitions
from symattn.models.auditing.layers.head_parts import Heads
from symattn.models.auditing.layers.part_judge import PartFinding, fused, judged, stored
from symattn.models.auditing.layers.parts import ANSWER, known_or_open
from symattn.models.auditing.layers.seen import format_of, some


class Judge(Heads):
    """The parts of one pass, one after another."""

    def findings(self) -> Iterator[PartFinding]:
        """Every part that the layer has, in the order of its computation."""
        for part in self._every():
            reason = self.promised.open.get(part.part)
            yield PartFinding(part.part, reason=reason) if reason else part

    def _every(self) -> Iterator[PartFinding]:
        pre = self.promised.block.order in ("pre", "sandwich")
        if pre:
            yield from self._norm("attention_norm", "x")
        yield from self._projections(self._name("attention_norm") if pre else "x")
        yield from self._positions()
        yield from self._linear("attention.o", ANSWER)
        yield from self._sums(pre)

    def _sums(self, pre: bool) -> Iterator[PartFinding]:
        """Residuals, the norms that stand after a part, and the feed-forward layer."""
        block = self.promised.block
        if block.order == "inner":
            yield from self._inner()
            return
        if block.order == "sandwich":
            yield from self._norm("attention_norm_after", "attention.o")
        added = ("attention_norm_after", "mlp_norm_after") if block.order == "sandwich" else ("attention.o", "mlp.down")
        if block.parallel:
            yield from self._mlp(self._name("mlp_norm"), None if self.promised.shared else "x")
            yield from self._stream("output", "x", added, "attention_norm")
            return
        self._read_by("mlp_norm" if pre else "attention_norm", "attention_stream")
        yield from self._stream("attention_stream", "x", added[:1], "attention_norm" if pre else None)
        if not pre:
            yield from self._after_norms()
            return
        yield from self._mlp("mlp_norm", "attention_stream")
        if block.order == "sandwich":
            yield from self._norm("mlp_norm_after", "mlp.down")
        yield from self._stream("output", "attention_stream", added[1:], "mlp_norm")

    def _after_norms(self) -> Iterator[PartFinding]:
        """The rest of a layer whose norms stand behind the sums."""
        yield from self._norm("attention_norm", None)
        yield from self._mlp("attention_norm", None)
        self._read_by("mlp_norm", "mlp_stream")
        yield from self._stream("mlp_stream", "attention_norm", ("mlp.down",), None)
        yield from self._norm("mlp_norm", None)
        yield from self._end("output", "mlp_norm")

    def _inner(self) -> Iterator[PartFinding]:
        """The rest of a layer in which what a part gives is normalised before it is added."""
        yield from self._norm("attention_norm", "attention.o")
        for first in ("mlp.in", "mlp.gate", "mlp.up"):
            self._read_by(first, "attention_stream")
        yield from self._stream("attention_stream", "x", ("attention_norm",), None)
        yield from self._mlp("attention_stream", None)
        yield from self._norm("mlp_norm", "mlp.down")
        yield from self._stream("output", "attention_stream", ("mlp_norm",), None)

    def _read_by(self, part: str, name: str) -> None:
        """A sum is seen where a part reads it: from then on that is what ``name`` gave."""
        if part in self.seen.given:
            self.seen.gave[name] = self.seen.given[part]

    @known_or_open
    def _end(self, name: str, source: str) -> Iterator[PartFinding]:
        """Check that the output of the layer is that of its last norm."""
        yield from self._wire(name, self._gave(name), source)

    @known_or_open
    def _stream(self, name: str, first: str, parts: tuple[str, ...], norm: str | None) -> Iterator[PartFinding]:
        """The tokens before, and what parts gave, added."""
        x, got = self._gave(first), self._gave(name)
        inputs = {"x": x.values} | {n: self._gave(p).values for n, p in zip("yz", parts, strict=False)}
        if norm is not None and norm in self.seen.gave:
            inputs["normed"] = self.seen.gave[norm].values
        chosen = {n: some(a) for n, a in inputs.items()}
        dtype = format_of(x, got)
        subject = part_definitions.stream(len(parts))
        yield judged(name, subject, chosen, [some(got.values)], [stored(dtype)], self.search)

    def _mlp(self, source: str, before: str | None) -> Iterator[PartFinding]:
        """The norm before the feed-forward layer, unless it was judged, and the layer."""
        block = self.promised.block
        if source == "mlp_norm":
            yield from self._norm("mlp_norm", before)
        packed = "mlp.in" in self.layout.paths
        for name in ("mlp.in",) if packed else ("mlp.gate", "mlp.up") if block.gated else ("mlp.up",):
            yield from self._linear(name, source)
        yield from self._hidden("mlp.hidden", packed)
        yield from self._linear("mlp.down", "mlp.hidden")

    @known_or_open
    def _hidden(self, name: str, packed: bool) -> Iterator[PartFinding]:
        """Judge what lies between the matrices of the feed-forward layer: the input of the last of them."""
        block = self.promised.block
        assert block.activation
        self.seen.gave[name] = got = self._took("mlp.down")
        if packed:
            both = self._gave("mlp.in")
            gate, up = np.split(both.values, 2, axis=-1)
            given, dtype = {"up": up, "gate": gate}, format_of(both, got)
        else:
            given = {n: self._gave(f"mlp.{n}").values for n in ("up", "gate")[: 1 + block.gated]}
            dtype = format_of(self._gave("mlp.up"), got)
        chosen = {n: some(a) for n, a in given.items()}
        kinds = [fused(dtype), *([stored(dtype)] if self.promised.spelled else [])]
        subject = part_definitions.hidden(block.activation, block.gated)
        near = part_definitions.near_hidden(block.activation)
        beside = part_definitions.of_erf(chosen) if block.activation == "gelu" else None
        yield judged(name, subject, chosen, [some(got.values)], kinds, self.search, near, beside)
