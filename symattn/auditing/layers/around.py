"""A whole pass: attention and the feed-forward layer with their norms, around the residual stream."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from symattn.auditing.layers import definitions
from symattn.auditing.layers.arrays import Open, format_of, some
from symattn.auditing.layers.finding import PartFinding
from symattn.auditing.layers.heads import Heads
from symattn.auditing.layers.judging import fused, judged, stored
from symattn.auditing.layers.seen import Array


class Judge(Heads):
    """The parts of one pass, one after another."""

    def findings(self) -> Iterator[PartFinding]:
        """Every part that the layer has, in the order of its computation."""
        pre = self.promised.block.order in ("pre", "sandwich")
        if pre:
            yield from self._norm("attention_norm", "x")
        yield from self._projections(self._name("attention_norm") if pre else "x")
        yield from self._positions()
        yield from self._merged()
        yield from self._linear("attention.o", "attention.answered")
        yield from self._sums(pre)

    def _sums(self, pre: bool) -> Iterator[PartFinding]:
        """Residuals, the norms that stand after a part, and the feed-forward layer."""
        block, order = self.promised.block, self.promised.block.order
        after = {p: self._after(p) for p in ("attention", "mlp")}
        if order in ("inner", "sandwich"):
            yield from self._norm(after["attention"], "attention.o")
        if block.parallel:
            yield from self._mlp(self._name("mlp_norm"), None if self.promised.shared else "x")
            yield from self._stream("output", "x", (after["attention"], after["mlp"]), "attention_norm", "output")
            return
        reads = self._took_as("attention_stream", "mlp_norm" if pre else "attention_norm" if order == "post" else "mlp")
        if reads is not None:
            self.seen.gave["attention_stream"] = reads
        yield from self._stream("attention_stream", "x", (after["attention"],), "attention_norm" if pre else None)
        middle = "attention_stream"
        if order == "post":
            yield from self._norm("attention_norm", None)
            middle = "attention_norm"
        yield from self._mlp("mlp_norm" if pre else middle, middle if pre else None)
        if order in ("inner", "sandwich"):
            yield from self._norm(after["mlp"], "mlp.down")
        if order == "post":
            last = self._took_as("mlp_stream", "mlp_norm")
            if last is not None:
                self.seen.gave["mlp_stream"] = last
            yield from self._stream("mlp_stream", middle, ("mlp.down",), None)
            yield from self._norm("mlp_norm", None)
            yield from self._end("output", "mlp_norm")
        else:
            yield from self._stream("output", middle, (after["mlp"],), "mlp_norm" if pre else None)

    def _after(self, part: str) -> str:
        """The name of what a part gives to the sum: its own output, or that of the norm behind it."""
        own = "attention.o" if part == "attention" else "mlp.down"
        order = self.promised.block.order
        return f"{part}_norm_after" if order == "sandwich" else f"{part}_norm" if order == "inner" else own

    def _took_as(self, name: str, module: str) -> Array | None:
        """The stream, as the module that comes next received it."""
        where = {"mlp": "mlp.in" if "mlp.in" in self.layout.paths else "mlp.up"}.get(module, module)
        return self.seen.given.get(where)

    def _end(self, name: str, source: str) -> Iterator[PartFinding]:
        try:
            yield from self._wire(name, self._gave(name), source)
        except Open as reason:
            yield PartFinding(name, reason=str(reason))

    def _stream(
        self, name: str, first: str, parts: tuple[str, ...], norm: str | None, last: str = ""
    ) -> Iterator[PartFinding]:
        """The tokens before, and what parts gave, added."""
        try:
            x, got = self._gave(first), self._gave(last or name)
            inputs = {"x": x.values} | {n: self._gave(p).values for n, p in zip("yz", parts, strict=False)}
            if norm is not None and norm in self.seen.gave:
                inputs["normed"] = self.seen.gave[norm].values
            chosen = {n: some(a) for n, a in inputs.items()}
            dtype = format_of(x, got)
            subject = definitions.stream(len(parts))
            yield judged(name, subject, chosen, [some(got.values)], [stored(dtype)], self.search)
        except Open as reason:
            yield PartFinding(name, reason=str(reason))

    def _mlp(self, source: str, before: str | None) -> Iterator[PartFinding]:
        """The norm before the feed-forward layer, unless it was judged, and the layer."""
        block = self.promised.block
        if source == "mlp_norm":
            yield from self._norm("mlp_norm", before)
        packed, found = "mlp.in" in self.layout.paths, []
        for name in ("mlp.in",) if packed else ("mlp.gate", "mlp.up") if block.gated else ("mlp.up",):
            found += list(self._linear(name, source))
        yield from found
        yield self._hidden(packed)
        yield from self._linear("mlp.down", "mlp.hidden")

    def _hidden(self, packed: bool) -> PartFinding:
        block = self.promised.block
        assert block.activation
        try:
            got = self._took("mlp.down")
            self.seen.gave["mlp.hidden"] = got
            if packed:
                both = self._gave("mlp.in")
                gate, up = np.split(both.values, 2, axis=-1)
                given, dtype = {"up": up, "gate": gate}, format_of(both, got)
            else:
                given = {n: self._gave(f"mlp.{n}").values for n in ("up", "gate")[: 1 + block.gated]}
                dtype = format_of(self._gave("mlp.up"), got)
            chosen = {n: some(a) for n, a in given.items()}
            kinds = [fused(dtype), *([stored(dtype)] if self.promised.spelled else [])]
            subject = definitions.hidden(block.activation, block.gated)
            near = definitions.near_hidden(block.activation)
            return judged("mlp.hidden", subject, chosen, [some(got.values)], kinds, self.search, near)
        except Open as reason:
            return PartFinding("mlp.hidden", reason=str(reason))
