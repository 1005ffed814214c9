"""Attention in operators: every operator of a thread is seen, and scores are followed to the values they meet.

What cannot be followed is reported as unread: a softmax whose weights meet values while queries and keys are unknown,
a softmax of known scores that meets no values, and attention in one operator that is not supported. Other softmaxes
are counted. exp(S) / Σ exp(S) is also a softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from symattn.models.auditing import patches, provenance
from symattn.models.auditing.begun import defect
from symattn.models.auditing.received import Received, UnreadCall, inside, of_torch
from symattn.models.auditing.setting import Module, Tensor
from symattn.programs.modules import heads_of
from symattn.programs.names import Function

if TYPE_CHECKING:
    from torch._ops import OpOverload
    from torch.autograd.graph import Node as GradientNode
    from torch.utils._python_dispatch import TorchDispatchMode

    from symattn.models.auditing.audit import Audit

# torch's layers that compute attention within one operator.
_FUSED_LAYERS = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")


def mode(audit: Audit) -> TorchDispatchMode:
    """Return the dispatch mode that follows one thread."""
    import torch

    tracer, composed = Tracer(audit), torch._C.DispatchKey.CompositeImplicitAutograd

    def follow(mode: TorchDispatchMode, op: provenance.Operation, func: OpOverload) -> Tensor:
        if patches.doing.reading or (
            patches.in_backward() and not torch.is_grad_enabled()
        ):  # weights computed again
            return func(*op.args, **op.kwargs)
        # Only in inference mode do operators that torch composes of others, such as matmul, come here undivided.
        if hasattr(func, "_op_dk") and torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), composed.name
        ):
            with mode:
                return func._op_dk(composed, *op.args, **op.kwargs)
        return tracer.called(op, func)

    result = provenance.seeing(follow)
    result.tracer = tracer
    return result


class Tracer:
    """The scores and weights that are alive in one thread, followed from operator to operator."""

    def __init__(self, audit: Audit) -> None:
        self.audit, self.known = audit, provenance.KnownNodes()
        self.softmaxes: list[provenance.TracedSoftmax] = []
        self._pending: list[tuple[Callable[[GradientNode], None], Tensor]] = []

    def called(self, op: provenance.Operation, func: OpOverload) -> Tensor:
        """Run an operator and record the node of its result. Raises only what the operator itself raises."""
        self.tie()
        # The rule reads the arguments before the operator can change them.
        try:
            node = (
                provenance.RULES[op.name](self.known, op) if op.name in provenance.RULES else None
            )
        except Exception:  # the rule fails on this kind of array
            node = None
        out = func(*op.args, **op.kwargs)
        # After writing into an array, what is known of its numbers is wrong.
        for changed in _list_arrays_written_into(func, op):
            self.known.changed(changed)
            node = None if node is not None and provenance.made_of(node, changed) else node
        try:
            self._record_traced_operator(op, node, out)
        # A failure to follow an operator must not end the model's run.
        except Exception as error:
            self.audit.unread(
                "operators", _innermost_running_module(), defect(error, f"follow {op.name}")
            )
        return out

    def tie(self) -> None:
        """Pass on the autograd nodes of results, which exist from the next operator on."""
        pending, self._pending = self._pending, []
        for tie, out in pending:
            tie(out.grad_fn)

    def _report_attention_read(self, received: Received, shaped: Tensor, out: Tensor) -> None:
        """Report attention that was read; ``shaped`` is its output, a view of the operator's result ``out``."""
        tie = self.audit.attended(received, shaped)
        if tie is not None:
            self._pending.append((tie, out))

    def _record_traced_operator(
        self, op: provenance.Operation, node: provenance.Node | None, out: Tensor
    ) -> None:
        # A copy of a parameter is a parameter as well.
        if op.name in ("_to_copy", "clone") and self.audit.holds(op.args[0]):
            self.audit.copied(out)
        elif op.name in _FUSED_LAYERS:
            self._record_fused_layer(op)
        elif op.name in provenance.FUSED:
            self._record_fused_attention(op, out)
        elif op.name in provenance.PRODUCTS:
            self._record_matrix_product(op, out)
        elif op.name in provenance.SOFTMAX:
            self._record_softmax_operator(op, out)
        elif op.name in provenance.EXPONENTIALS:
            self._record_exponentials(node, out)
        elif node is not None:
            first = out[0] if isinstance(out, (list, tuple)) else out
            self.known.put(first, node)

    def _record_softmax_operator(self, op: provenance.Operation, out: Tensor) -> None:
        module = _innermost_running_module()
        if not self.audit.wants(module):
            return
        x, axis = op.args[0], int(op.args[1])
        node = self.known.get(x)
        keys = (
            # A softmax over another axis than the keys is none of attention.
            axis in (-1, x.ndim - 1)
            and isinstance(node, provenance.TracedScores)
            and x.shape[-1] == node.keys
        )
        scores = node if isinstance(node, provenance.TracedScores) and keys else None
        traced_softmax = self._make_softmax_record(module, scores is not None)
        self.known.put(
            out,
            provenance.TracedWeights(
                scores, traced_softmax, "" if scores else "the input of its softmax is unknown"
            ),
        )

    def _make_softmax_record(self, module: Module | None, read: bool) -> provenance.TracedSoftmax:
        """Return the record of a softmax that should meet values, unless a checkpoint runs it again and stops early."""
        import torch

        # A softmax of torch's module belongs to the module around that.
        innermost = patches.doing.modules[-2:]
        around = [m for m in innermost if not isinstance(m, torch.nn.Softmax)]
        has_heads = heads_of(around[-1] if around else None) is not None
        traced_softmax = provenance.TracedSoftmax(module, read, has_heads)
        if not patches.in_backward():
            self.softmaxes.append(traced_softmax)
        return traced_softmax

    def _record_exponentials(self, scores: provenance.Node | None, out: Tensor) -> None:
        if (
            isinstance(scores, provenance.TracedScores)
            and scores.fits(out.shape)
            and self.audit.wants(_innermost_running_module())
        ):
            traced_softmax = self._make_softmax_record(_innermost_running_module(), True)
            self.known.put(out, provenance.Exponentials(scores, traced_softmax))

    def _record_matrix_product(self, op: provenance.Operation, out: Tensor) -> None:
        a, b = op.args[-2:] if op.name == "baddbmm" else op.args[:2]
        weights = self.known.get(a)
        if isinstance(weights, provenance.TracedWeights):
            self._record_weights_meet_values(weights, b, out if op.name != "baddbmm" else None)
        # Transposed weights on the right are not judged, but not missed either.
        elif isinstance(other := self.known.get(b.mT), provenance.TracedWeights):
            self._record_weights_meet_values(other, None, None)
        # A product with a parameter is a projection, whose result is no array of scores.
        elif not self.audit.holds(b) and not self.audit.holds(a):
            self.known.put(out, _trace_scores_of_product(op))

    def _record_weights_meet_values(
        self, weights: provenance.TracedWeights, values: Tensor | None, out: Tensor | None
    ) -> None:
        """Handle weights that meet values."""
        module = _innermost_running_module()
        for softmax in filter(None, (weights.softmax, weights.summed)):
            softmax.met = True
        scores = weights.scores
        if scores is None or values is None or out is None:
            reason = weights.reason or "its weights meet the values in an unknown form"
            self.audit.unread("operators", module, reason)
            return
        arrays = (scores.q, scores.k, values, out)
        q, k, v, shaped = (t[None] if t.ndim == 2 else t for t in arrays)
        h = heads_of(module) or 1
        # A number of heads that does not divide the batch is not that of this product.
        h = h if not len(q) % h else 1
        q, k, v, shaped = (t.reshape(-1, h, *t.shape[1:]) for t in (q, k, v, shaped))
        masks = [partial(_by_heads, added, h) for added in scores.added]
        received = Received(
            "operators", q, k, v, masks, scores.scale, scores.cap, eager=True, module=module
        )
        self._report_attention_read(received, shaped, out)

    def _record_fused_layer(self, op: provenance.Operation) -> None:
        """Handle a layer in one operator."""
        module = _innermost_running_module()
        if not self.audit.wants(module):
            return
        try:
            with patches.reading():
                received, out = inside(op.name, op.args, dict(op.kwargs), module)
        except UnreadCall as reason:
            self.audit.unread("torch fast path", module, str(reason))
        else:
            self.audit.attended(received, out)

    def _record_fused_attention(self, op: provenance.Operation, out: Sequence[Tensor]) -> None:
        module = _innermost_running_module()
        if not self.audit.wants(module):
            return
        if not provenance.FUSED[op.name]:
            self.audit.unread("fused operator", module, f"{op.name} is not read")
            return
        own = {
            "dropout_p": op.argument(3, "dropout_p", 0.0),
            "is_causal": op.argument(4, "is_causal"),
        }
        # The operator itself takes fewer heads of keys than of queries.
        received = of_torch(op.args[:3], {**op.kwargs, **own, "enable_gqa": True})
        self._report_attention_read(
            replace(received, via="fused operator", module=module), out[0], out[0]
        )


def _innermost_running_module() -> Module | None:
    return patches.doing.modules[-1] if patches.doing.modules else None


def _list_arrays_written_into(func: Function, op: provenance.Operation) -> list[Tensor]:
    """Return the arrays that an operator writes into, by its schema."""
    schema = getattr(func, "_schema", None)
    # Without a schema, or if it writes nothing, nothing is lost.
    if schema is None or not schema.is_mutable:
        return []
    targets = [
        op.argument(i, a.name)
        for i, a in enumerate(schema.arguments)
        # The schema says which arguments are written.
        if a.alias_info is not None and a.alias_info.is_write
    ]
    return [t for arg in targets for t in (arg if isinstance(arg, (list, tuple)) else [arg])]


def _by_heads(added: provenance.Added, h: int, rows: Sequence[int]) -> Tensor:
    array = added.rows(rows)
    return array.reshape(-1, h, *array.shape[-2:])


def _trace_scores_of_product(op: provenance.Operation) -> provenance.TracedScores | None:
    if op.name != "baddbmm":
        return provenance.TracedScores(op.args[0], op.args[1].mT)
    added, a, b = op.args[:3]
    scores = provenance.TracedScores(a, b.mT, scale=float(op.kwargs.get("alpha", 1)))
    beta = float(op.kwargs.get("beta", 1))
    # With β = 0 the operator does not read the first array.
    if not beta:
        return scores
    shape_of_product = (*a.shape[:-1], b.shape[-1])
    return scores.adding(added, shape_of_product, beta)
