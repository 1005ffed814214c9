"""Queries, keys and values: from the norm before attention to the call of attention, and from its result on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import sqrt

import numpy as np

from symattn.attention.positions.fields import Rotary
from symattn.attention.positions.rotary_fields import NTKScaling
from symattn.document.errors import InputError
from symattn.models.auditing.layers import part_definitions
from symattn.models.auditing.layers.part_judge import PartFinding, fused, judged, stored
from symattn.models.auditing.layers.parts import NOT_RUN, LayerParts
from symattn.models.auditing.layers.seen import Open, TokenRows, format_of, narrow, same
from symattn.models.auditing.setting import Floats
from symattn.models.configurations.stored_weights import split
from symattn.verification.definitions.rotary import subjects

_BARE = "it is left out: attention is called with what was projected"
_LOSSY = "the cache may return other {} than were projected: it quantizes them, or its code is unknown"
_ROLES = {"q": "queries", "k": "keys", "v": "values"}


class Heads(LayerParts):
    """The parts between the projections and the call of attention."""

    def _projections(self, source: str) -> Iterator[PartFinding]:
        """q, k and v, from one matrix or three."""
        for role in ("in",) if "attention.in" in self.layout.paths else ("q", "k", "v"):
            yield from self._linear(f"attention.{role}", source)

    def _heads(self) -> dict[str, TokenRows]:
        """q, k and v as the projections gave them, (r, h, d). Raises Open."""
        spec = self.spec
        if "attention.in" in self.layout.paths:
            whole = self._gave("attention.in")
            try:
                parts = dict(zip("qkv", split(whole.values, spec, self.promised.packing), strict=True))
            except InputError as reason:
                raise Open(str(reason)) from None
            result = {n: TokenRows(a, whole.dtype) for n, a in parts.items()}
        else:
            result = {n: self._gave(f"attention.{n}") for n in "qkv"}
        many = {"q": spec.heads, "k": spec.key_heads, "v": spec.key_heads}
        return {n: TokenRows(a.values.reshape(len(a.values), many[n], -1), a.dtype) for n, a in result.items()}

    def _positions(self) -> Iterator[PartFinding]:
        """From what the projections gave to what attention was called with."""
        try:
            heads = self._heads()
        except Open as reason:
            yield PartFinding("attention.q", reason=str(reason))
            return
        rotated = isinstance(self.spec.position, Rotary)
        unknown = "attention.position" in self.promised.open
        if rotated:
            yield from self._angles(heads["q"].values.shape[-1])
        elif unknown:
            yield PartFinding("attention.position", reason=self.promised.open["attention.position"])
        for role in "" if unknown else "qk":
            token_rows, norm = heads[role], f"attention.{role}_norm"
            if norm in self.seen.heads:
                yield from self._head_norm(norm, role, token_rows)
                token_rows = self.seen.gave.get(f"{norm}.heads", token_rows)
            elif self._across(norm):
                yield from self._norm(norm, f"attention.{role}")
                after = self.seen.gave[norm]
                token_rows = TokenRows(after.values.reshape(token_rows.values.shape), after.dtype)
            try:
                result = list(self._rotated(role, token_rows) if rotated else self._handed(role, token_rows))
            except Open as reason:
                result = [PartFinding(f"attention.{role}_rotated", reason=str(reason))]
            if norm in self.layout.paths and norm not in self.seen.heads and not self._across(norm):
                bare = all(part.state == "pass" for part in result)
                yield PartFinding(norm, np.inf, True, _BARE) if bare else PartFinding(norm, reason=NOT_RUN)
            yield from self._cached(role, result)
        try:
            yield from self._cached("v", self._handed("v", heads["v"]))
        except Open as reason:
            yield PartFinding("attention.v", reason=str(reason))

    def _across(self, norm: str) -> bool:
        """Return whether a norm ran that is of all heads together, for which the specification has no field."""
        return self.spec.qk_norm is None and norm in self.seen.given and norm in self.seen.gave

    def _cached(self, role: str, found: Iterable[PartFinding]) -> Iterator[PartFinding]:
        """Leave wrong keys or values open where a lossy cache may have made them so."""
        lossy = role != "q" and self.seen.context is not None and self.seen.context.lossy
        for part in found:
            yield PartFinding(part.part, reason=_LOSSY.format(_ROLES[role])) if lossy and part.wrong else part

    def _head_norm(self, name: str, role: str, made: TokenRows) -> Iterator[PartFinding]:
        """The norm of queries or keys, whose arrays have heads before or after the tokens."""
        for before, after in self.seen.heads[name]:
            if before is not None and after is not None and same(made, before):
                yield self._normed(name, self.spec.eps, made, after)
                self.seen.gave[f"{name}.heads"] = after
                return
        yield PartFinding(name, np.inf, True, f"it does not read what attention.{role} gave")

    def _angles(self, columns: int) -> Iterator[PartFinding]:
        """Cosines and sines that attention was given, against the positions of the tokens."""
        name, spec = "attention.position", self.spec.position
        assert isinstance(spec, Rotary)
        if self.seen.tables is None:
            yield PartFinding(name, reason="attention was given no cosines and sines in a known form")
            return
        if isinstance(spec.scaling, NTKScaling):
            yield PartFinding(name, reason="its frequencies depend on the longest sequence so far, which is unknown")
            return
        tables = [narrow(t.values, spec.width or columns) for t in self.seen.tables]
        inputs = {"positions": self.seen.positions, "x": np.zeros((1, columns))}
        dtype = self.seen.tables[0].dtype
        yield judged(name, part_definitions.angles(spec, dtype), inputs, tables, [fused(dtype)], self.search)

    def _rotated(self, role: str, made: TokenRows) -> Iterator[PartFinding]:
        """Queries or keys as attention was called with them: rotated by the tables that it was given."""
        name, spec = f"attention.{role}_rotated", self.spec.position
        assert isinstance(spec, Rotary)
        if self.seen.tables is None:
            raise Open("attention was given no cosines and sines in a known form")
        got = self._called(role, made)
        cos, sin = (narrow(t.values, spec.width or made.values.shape[-1]) for t in self.seen.tables)
        subject = next(s for s in subjects(spec, "nhd") if s.outputs == ("y",))
        inputs = {"x": made.values, "cos": cos, "sin": sin}
        dtype = format_of(made)
        yield judged(name, subject, inputs, [got], [stored(dtype), fused(dtype)], self.search)

    def _handed(self, role: str, made: TokenRows) -> Iterator[PartFinding]:
        """Queries, keys or values that attention is called with as they were projected, but for a scale."""
        name = f"attention.{role}"
        got = self._called(role, made)
        if role == "q" and self.promised.scaled_before:
            dtype = format_of(made)
            subject = part_definitions.scaled(1 / sqrt(made.values.shape[-1]))
            yield judged("attention.q_scaled", subject, {"x": made.values}, [got], [stored(dtype)], self.search)
        elif not np.array_equal(got, made.values, equal_nan=True):
            yield PartFinding(name, np.inf, True, f"attention is called with other {_ROLES[role]} than were projected")

    def _called(self, role: str, made: TokenRows) -> Floats:
        """(r, h, d) of the call, of keys and values by their own heads. Raises Open."""
        array = self.seen.called.get(role)
        if array is None or isinstance(array, str):
            raise Open(f"no call of attention was read in the layer{'' if array is None else f': {array}'}")
        own, many = made.values.shape[1], array.values.shape[1]
        if role != "q" and many == self.spec.heads != own:
            first = array.values[:, :: many // own]
            if not np.array_equal(np.repeat(first, many // own, axis=1), array.values, equal_nan=True):
                raise Open("heads of keys and values are repeated in an unknown way")
            return first
        return array.values
