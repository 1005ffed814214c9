"""A pass through a layer, judged part by part: each by its own input, and whether that is the input it should have.

The error of a part is its own alone, so that a fault is located and the bound is sharp. Nothing is rounded between
parts: the output of one is the input of the next, bit for bit, in the format in which it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import wraps
from math import sqrt

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.arrays.precision import Contract
from symattn.attention.layers.block import ORDERS
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary_fields import NTKScaling
from symattn.document.errors import InputError
from symattn.models.auditing.layers import part_definitions
from symattn.models.auditing.layers.part_judge import PartFinding, judged, judged_linear
from symattn.models.auditing.layers.seen import Open, Pass, TokenRows, matrix, same, spaced
from symattn.models.auditing.setting import Floats, Module, numbers
from symattn.models.configurations import promised_layers
from symattn.models.configurations.stored_weights import split
from symattn.verification.definitions.rotary_vectors import subjects

ANSWER = "attention.answered"  # what attention returned, heads side by side
NOT_RUN = "its module did not run, or did not return an array of tokens"
_BARE = "it is left out: attention is called with what was projected"
_LOSSY = (
    "the cache may return other {} than were projected: it quantizes them, or its code is unknown"
)
_ROLES = {"q": "queries", "k": "keys", "v": "values"}


def known_or_open(
    judge: Callable[..., Iterator[PartFinding]],
) -> Callable[..., Iterator[PartFinding]]:
    """Decorate a judge of the part named by its first argument: yield that it is open if what it needs was not seen."""

    @wraps(judge)
    def guarded(self: Judge, name: str, *arguments: object) -> Iterator[PartFinding]:
        try:
            yield from judge(self, name, *arguments)
        except Open as reason:
            yield PartFinding(name, reason=str(reason))

    return guarded


def _describe_seen_array(name: str) -> str:
    """Return a description of an array that was seen."""
    return {
        "x": "the tokens that the layer is given",
        "attention.answered": "the result of attention",
    }.get(name, f"what {name} gave")


def _without_repeated_angles(table: Floats, width: int) -> Floats:
    """Return a table for ``width`` columns with each angle once; it may hold each twice, in halves or side by side."""
    if table.shape[-1] != width:
        return table
    first_half = table[..., : width // 2]
    second_half = table[..., width // 2 :]
    halves = np.array_equal(first_half, second_half)
    return first_half if halves else table[..., ::2]


def _format_of_rows(*arrays: TokenRows) -> str:
    """Return the coarsest format of a part's arrays. Raises ``Open`` for one whose arithmetic is unknown."""
    for array in arrays:
        if array.dtype not in FORMATS:
            raise Open(f"it is computed in {array.dtype}, whose arithmetic is unknown")
    return max((a.dtype for a in arrays), key=lambda dtype: Format(dtype).u)


class Judge:
    """The judge of one pass, part after part: norms and linear layers, heads, sums, and the inputs of each."""

    def __init__(
        self,
        call: Pass,
        promised: promised_layers.Promised,
        modules: Mapping[str, Module],
        search: bool,
    ) -> None:
        self.layer_pass, self.promised, self.modules, self.search = call, promised, modules, search
        self.spec, self.layout = promised.block.attention, promised.layout

    # -- what was seen -------------------------------------------------------------------------------------------------
    def _require_part_output(
        self, name: str, arrays: Mapping[str, TokenRows] | None = None
    ) -> TokenRows:
        """Return the output of a part by its name; ``x`` are the tokens. Raises ``Open`` if it was not seen."""
        array = (self.layer_pass.gave if arrays is None else arrays).get(name)
        if array is None:
            raise Open(f"{name}: {NOT_RUN}")
        return array

    def _require_part_input(self, name: str) -> TokenRows:
        """Return the input of a part. Raises ``Open`` if it was not seen."""
        return self._require_part_output(name, self.layer_pass.given)

    @known_or_open
    def _norm(self, name: str, source: str | None) -> Iterator[PartFinding]:
        """Judge a norm by its input, which should be the output of ``source``, if that is named."""
        x, y = self._require_part_input(name), self._require_part_output(name)
        if source is not None:
            yield from self._yield_fault_of_wiring(name, x, source)
        yield self._judge_normed_rows(name, self.promised.block.eps, x, y)

    def _judge_normed_rows(
        self, name: str, eps: float | Fraction, x: TokenRows, y: TokenRows
    ) -> PartFinding:
        results = self.layout.norm, eps, self.layout.one_plus
        module = self.modules[name]
        inputs = {"x": x.values}
        for field, wanted in (("weight", "gain"), ("bias", "bias")):
            if getattr(module, field, None) is not None:
                inputs[wanted] = numbers(getattr(module, field))
        # An ε of ten times the size changes little: the finding lists it if it fits as well.
        subject = part_definitions.norm(*results)
        near = [part_definitions.other_eps(*results, 10)]
        return judged(
            name, subject, inputs, [y.values], _format_of_rows(x, y), ["fused"], self.search, near
        )

    @known_or_open
    def _judge_linear_layer(self, name: str, source: str) -> Iterator[PartFinding]:
        """Judge a linear layer by its input and its own matrix."""
        x, y = self._require_part_input(name), self._require_part_output(name)
        yield from self._yield_fault_of_wiring(name, x, source)
        w, b = matrix(self.modules[name])
        yield judged_linear(name, y.values, x.values, w, b, _format_of_rows(x, y))

    def _yield_fault_of_wiring(
        self, name: str, got: TokenRows, source: str
    ) -> Iterator[PartFinding]:
        """Yield a fault if a part's input is not the output of ``source``, bit for bit, and name the array it is."""
        # The result of attention was not read, so that nothing can be compared with it.
        if source == ANSWER and self.layer_pass.answered is None:
            return
        wanted = self.layer_pass.answered if source == ANSWER else self._require_part_output(source)
        assert wanted is not None
        if same(wanted, got):
            return
        # If the output of another part fits, the finding names that part.
        outputs = self.layer_pass.gave.items()
        others = {name: a for name, a in outputs if name != source and same(a, got)}
        words = (
            f"it reads {_describe_seen_array(next(iter(others)))}"
            if others
            else "it reads another array"
        )
        yield PartFinding(name, np.inf, True, f"{words}, not {_describe_seen_array(source)}")

    # -- queries, keys and values: from the norm before attention to its call ------------------------------------------
    def _judge_qkv_projections(self, source: str) -> Iterator[PartFinding]:
        """Judge the projections to q, k and v, by one matrix or three."""
        for role in ("in",) if "attention.in" in self.layout.paths else ("q", "k", "v"):
            yield from self._judge_linear_layer(f"attention.{role}", source)

    def _split_heads_of_projections(self) -> dict[str, TokenRows]:
        """Return q, k and v from the projections, (r, h, d). Raises ``Open``."""
        spec = self.spec
        # One packed projection for all three.
        if "attention.in" in self.layout.paths:
            whole = self._require_part_output("attention.in")
            try:
                parts = dict(
                    zip("qkv", split(whole.values, spec, self.promised.family.packing), strict=True)
                )
            except InputError as reason:
                raise Open(str(reason)) from None
            result = {n: TokenRows(a, whole.dtype) for n, a in parts.items()}
        else:
            result = {n: self._require_part_output(f"attention.{n}") for n in "qkv"}
        return {
            n: TokenRows(a.values.reshape(len(a.values), spec.heads_of[n], -1), a.dtype)
            for n, a in result.items()
        }

    @known_or_open
    def _judge_steps_to_attention(self, name: str) -> Iterator[PartFinding]:
        """Judge all steps from the projections to the call of attention; ``name`` is the first part."""
        heads = self._split_heads_of_projections()
        rotated = isinstance(self.spec.position, Rotary)
        unknown = "attention.position" in self.promised.open
        if rotated:
            yield from self._judge_rotary_tables(heads["q"].values.shape[-1])
        elif unknown:
            yield PartFinding("attention.position", reason=self.promised.open["attention.position"])
        # Where positions are unknown, the call cannot be compared with the projections.
        for role in "" if unknown else "qk":
            token_rows = heads[role]
            name = f"attention.{role}"
            norm = f"attention.{role}_norm"
            if norm in self.layer_pass.heads:
                yield from self._head_norm(norm, role, token_rows)
                token_rows = self.layer_pass.gave.get(f"{norm}.heads", token_rows)
            elif self._is_norm_across_heads(norm):
                yield from self._norm(norm, name)
                after = self.layer_pass.gave[norm]
                token_rows = TokenRows(after.values.reshape(token_rows.values.shape), after.dtype)
            judge, part = (
                (self._rotated, f"{name}_rotated")
                if rotated
                else (self._judge_unrotated_heads, name)
            )
            result = list(judge(part, role, token_rows))
            # The norm's module did not run: without it, the call has the bare projections.
            if (
                norm in self.layout.paths
                and norm not in self.layer_pass.heads
                and not self._is_norm_across_heads(norm)
            ):
                bare = all(part.state == "pass" for part in result)
                yield (
                    PartFinding(norm, np.inf, True, _BARE)
                    if bare
                    else PartFinding(norm, reason=NOT_RUN)
                )
            yield from self._leave_lossy_cache_open(role, result)
        yield from self._leave_lossy_cache_open(
            "v", self._judge_unrotated_heads("attention.v", "v", heads["v"])
        )

    def _is_norm_across_heads(self, norm: str) -> bool:
        """Return whether a norm over all heads together ran, as the specification has it."""
        # The vector of a single head is that of all heads.
        return (
            (self.spec.qk_norm_over == "heads" or self.spec.heads == 1)
            and norm in self.layer_pass.given
            and norm in self.layer_pass.gave
        )

    def _leave_lossy_cache_open(
        self, role: str, results: Iterable[PartFinding]
    ) -> Iterator[PartFinding]:
        """Leave wrong keys or values open if a lossy cache may have changed them."""
        lossy = (
            role != "q" and self.layer_pass.context is not None and self.layer_pass.context.lossy
        )
        for part in results:
            yield (
                PartFinding(part.part, reason=_LOSSY.format(_ROLES[role]))
                if lossy and part.wrong
                else part
            )

    def _head_norm(self, name: str, role: str, token_rows: TokenRows) -> Iterator[PartFinding]:
        """Judge the norm of queries or keys, whose arrays have heads before or after the tokens."""
        for before, after in self.layer_pass.heads[name]:
            # The input of the norm shows on which side of the tokens its heads lie.
            if before is not None and after is not None and same(token_rows, before):
                yield self._judge_normed_rows(name, self.spec.eps, token_rows, after)
                self.layer_pass.gave[f"{name}.heads"] = after
                return
        yield PartFinding(name, np.inf, True, f"it does not read what attention.{role} gave")

    def _judge_rotary_tables(self, columns: int) -> Iterator[PartFinding]:
        """Judge the cosines and sines given to attention by the positions of the tokens."""
        name, spec = "attention.position", self.spec.position
        assert isinstance(spec, Rotary)
        if self.layer_pass.tables is None:
            yield PartFinding(
                name, reason="attention was given no cosines and sines in a known form"
            )
            return
        if isinstance(spec.scaling, NTKScaling):
            yield PartFinding(
                name,
                reason="its frequencies depend on the longest sequence so far, which is unknown",
            )
            return
        tables = [
            _without_repeated_angles(t.values, spec.width or columns)
            for t in self.layer_pass.tables
        ]
        inputs = {"positions": self.layer_pass.positions, "x": np.zeros((1, columns))}
        dtype = self.layer_pass.tables[0].dtype
        yield judged(
            name,
            part_definitions.angles(spec, dtype),
            inputs,
            tables,
            dtype,
            ["fused"],
            self.search,
        )

    @known_or_open
    def _rotated(self, name: str, role: str, token_rows: TokenRows) -> Iterator[PartFinding]:
        """Judge the queries or keys that attention was called with: rotated by the tables that it was given."""
        spec = self.spec.position
        assert isinstance(spec, Rotary)
        if self.layer_pass.tables is None:
            raise Open("attention was given no cosines and sines in a known form")
        got = self._require_call_array(role, token_rows)
        cos, sin = (
            _without_repeated_angles(t.values, spec.width or token_rows.values.shape[-1])
            for t in self.layer_pass.tables
        )
        subject = next(s for s in subjects(spec, "nhd") if s.outputs == ("y",))
        inputs = {"x": token_rows.values, "cos": cos, "sin": sin}
        dtype = _format_of_rows(token_rows)
        yield judged(name, subject, inputs, [got], dtype, ["eager", "fused"], self.search)

    @known_or_open
    def _judge_unrotated_heads(
        self, name: str, role: str, token_rows: TokenRows
    ) -> Iterator[PartFinding]:
        """Judge queries, keys or values that attention is called with as they were projected, up to a scale."""
        got = self._require_call_array(role, token_rows)
        # Some families scale queries before the call.
        if role == "q" and self.promised.family.scaled_before:
            subject, x = (
                part_definitions.scaled(1 / sqrt(token_rows.values.shape[-1])),
                {"x": token_rows.values},
            )
            yield judged(
                "attention.q_scaled",
                subject,
                x,
                [got],
                _format_of_rows(token_rows),
                ["eager"],
                self.search,
            )
        elif not np.array_equal(got, token_rows.values, equal_nan=True):
            yield PartFinding(
                name,
                np.inf,
                True,
                f"attention is called with other {_ROLES[role]} than were projected",
            )

    def _require_call_array(self, role: str, token_rows: TokenRows) -> Floats:
        """Return an array (r, h, d) of the call, keys and values without repeated heads. Raises ``Open``."""
        array = self.layer_pass.called.get(role)
        if array is None or isinstance(array, str):
            raise Open(
                f"no call of attention was read in the layer{'' if array is None else f': {array}'}"
            )
        own, many = token_rows.values.shape[1], array.values.shape[1]
        # Heads of keys may be repeated before the call: one of each is judged if all are equal.
        if role != "q" and many == self.spec.heads != own:
            first = array.values[:, :: many // own]
            if not np.array_equal(
                np.repeat(first, many // own, axis=1), array.values, equal_nan=True
            ):
                raise Open("heads of keys and values are repeated in an unknown way")
            return first
        return array.values

    # -- the whole pass: attention and the feed-forward layer with their norms, around the residual stream -------------
    def findings(self) -> Iterator[PartFinding]:
        """Judge every part of the layer, in the order of computation."""
        for part in self._judge_every_part():
            reason = self.promised.open.get(part.part)
            yield PartFinding(part.part, reason=reason) if reason else part

    def _judge_every_part(self) -> Iterator[PartFinding]:
        """Judge attention and the feed-forward layer as ``Block`` computes them, each with its norms and residual."""
        block, stream, results = self.promised.block, "x", []
        where = ORDERS[block.order]
        for part, result in (("attention", "attention.o"), ("mlp", "mlp.down")):
            source, norm = stream, f"{part}_norm"
            if "before" in where:
                if norm in self.layout.paths:
                    yield from self._norm(norm, source)
                # one norm may serve both parts
                source = norm if norm in self.layout.paths else "attention_norm"
            if part == "attention":
                yield from self._judge_qkv_projections(source)
                yield from self._judge_steps_to_attention("attention.q")
                yield from self.layer_pass.cached
                yield from self._judge_linear_layer("attention.o", ANSWER)
            else:
                yield from self._judge_feed_forward(source)
            if "after" in where:
                norm = f"{norm}_after" if "before" in where else norm
                yield from self._norm(norm, result)
                result = norm
            results.append(result)
            # Parallel parts are added to the same tokens once both have run.
            if block.parallel and part == "attention":
                continue
            total = "output" if part == "mlp" and "outside" not in where else f"{part}_stream"
            if total != "output":
                self._read_by(where, part, total)
            normed = (
                ("attention_norm" if block.parallel else f"{part}_norm")
                if "before" in where
                else None
            )
            yield from self._stream(total, stream, tuple(results), normed)
            stream, results = total, []
            if "outside" in where:
                yield from self._norm(norm, None)
                stream = norm
        if "outside" in where:
            yield from self._judge_layer_output("output", stream)

    def _read_by(self, where: tuple[str, ...], part: str, total: str) -> None:
        """Take the input of the next module as the output of the sum ``total``, which has no module of its own."""
        readers = ("mlp_norm",) if "before" in where else ("mlp.in", "mlp.gate", "mlp.up")
        for reader in (f"{part}_norm",) if "outside" in where else readers:
            if reader in self.layer_pass.given:
                self.layer_pass.gave[total] = self.layer_pass.given[reader]

    @known_or_open
    def _judge_layer_output(self, name: str, source: str) -> Iterator[PartFinding]:
        """Check that the output of the layer is that of its last norm."""
        yield from self._yield_fault_of_wiring(name, self._require_part_output(name), source)

    @known_or_open
    def _stream(
        self, name: str, first: str, parts: tuple[str, ...], norm: str | None
    ) -> Iterator[PartFinding]:
        """Judge the sum of the tokens before and the outputs of parts."""
        x, got = self._require_part_output(first), self._require_part_output(name)
        inputs = {"x": x.values} | {
            n: self._require_part_output(p).values for n, p in zip("yz", parts, strict=False)
        }
        if norm is not None and norm in self.layer_pass.gave:
            inputs["normed"] = self.layer_pass.gave[norm].values
        chosen = {n: spaced(a) for n, a in inputs.items()}
        subject = part_definitions.stream(len(parts))
        yield judged(
            name,
            subject,
            chosen,
            [spaced(got.values)],
            _format_of_rows(x, got),
            ["eager"],
            self.search,
        )

    def _judge_feed_forward(self, source: str) -> Iterator[PartFinding]:
        """Judge the feed-forward layer."""
        block = self.promised.block
        packed = "mlp.in" in self.layout.paths
        for name in (
            ("mlp.in",) if packed else ("mlp.gate", "mlp.up") if block.gated else ("mlp.up",)
        ):
            yield from self._judge_linear_layer(name, source)
        yield from self._judge_hidden_activation("mlp.hidden", packed)
        yield from self._judge_linear_layer("mlp.down", "mlp.hidden")

    @known_or_open
    def _judge_hidden_activation(self, name: str, packed: bool) -> Iterator[PartFinding]:
        """Judge the step between the matrices of the feed-forward layer, by the input of the last one."""
        block = self.promised.block
        assert block.activation
        self.layer_pass.gave[name] = got = self._require_part_input("mlp.down")
        if packed:
            both = self._require_part_output("mlp.in")
            gate, up = np.split(both.values, 2, axis=-1)
            inputs, dtype = {"up": up, "gate": gate}, _format_of_rows(both, got)
        else:
            inputs = {
                n: self._require_part_output(f"mlp.{n}").values
                for n in ("up", "gate")[: 1 + block.gated]
            }
            dtype = _format_of_rows(self._require_part_output("mlp.up"), got)
        chosen = {n: spaced(a) for n, a in inputs.items()}
        # Single operators may store each result in the format, a fused kernel need not.
        kinds: list[Contract] = ["fused", "eager"] if self.promised.spelled else ["fused"]
        subject = part_definitions.hidden(block.activation, block.gated)
        near = part_definitions.near_hidden(block.activation)
        # Kernels of gelu are less accurate; for other activations that concerns mistakes alone.
        extra, other = part_definitions.of_erf(chosen), block.activation != "gelu"
        yield judged(
            name,
            subject,
            chosen,
            [spaced(got.values)],
            dtype,
            kinds,
            self.search,
            near,
            extra,
            other,
        )
