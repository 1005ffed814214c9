"""Attention that is spelled out: every operator of a thread is seen, and scores are followed to the values they meet.

What is not understood on the way is told as unread: a softmax whose weights meet values without queries and keys being
known, one of such scores that meets no values, and attention in one operator of another kind. Other softmaxes are
counted. exp(S) / Σ exp(S) is a softmax, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.attention.spec import Attention
from symattn.models.auditing.patches import doing, in_backward, reading
from symattn.models.auditing.provenance import (
    EXPONENTIALS,
    FUSED,
    PRODUCTS,
    RULES,
    SOFTMAX,
    Added,
    Exponentials,
    KnownNodes,
    Node,
    TracedScores,
    TracedSoftmax,
    TracedWeights,
    made_of,
    operator_name,
)
from symattn.models.auditing.received import LAYERS, Received, UnreadCall, inside
from symattn.programs.modules import heads_of

if TYPE_CHECKING:
    from symattn.models.auditing.audit import Audit


def mode(audit: Audit) -> Any:
    """The dispatch mode that follows one thread."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Following(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tracer = Tracer(audit)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if doing.reading or (in_backward() and not torch.is_grad_enabled()):  # weights that are computed again
                return func(*args, **kwargs)
            if _composed(func):  # in inference mode, and there alone, such operators come here as one
                with self:
                    return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
            return self.tracer.called(operator_name(func), func, args, kwargs)

    return Following()


class Tracer:
    """The scores and weights that are alive in one thread, and what becomes of them."""

    def __init__(self, audit: Audit) -> None:
        self.audit, self.known = audit, KnownNodes()
        self.softmaxes: list[TracedSoftmax] = []
        self._pending: list[tuple[Callable[[Any], None], Any]] = []

    def called(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, and say what its result is. The operator alone may raise, and raises what it does unseen."""
        self.tie()
        node = self._node(name, args, kwargs)
        out = func(*args, **kwargs)
        for changed in _changed(func, args, kwargs):
            self.known.changed(changed)
            node = None if node is not None and made_of(node, changed) else node
        try:
            self._said(name, node, args, kwargs, out)
        except Exception as error:
            words = f"symattn failed to follow {name} (a defect of symattn): {type(error).__name__}"
            self.audit.unread("operators", _module(), words)
        return out

    def tie(self) -> None:
        """Tell the nodes of results: each has one from the next operator on."""
        pending, self._pending = self._pending, []
        for tie, out in pending:
            tie(out.grad_fn)

    def _tell(self, received: Received, shaped: Any, out: Any) -> None:
        """Attention was read, whose output is ``shaped`` of the result of an operator."""
        tie = self.audit.spelled(received, shaped)
        if tie is not None:
            self._pending.append((tie, out))

    def _node(self, name: str, args: Any, kwargs: Any) -> Node | None:
        """Apply the rule of an operator; None where there is none, or where it fails on this kind of array."""
        if name not in RULES:
            return None
        try:
            return RULES[name](self.known, args, kwargs)
        except Exception:
            return None

    def _said(self, name: str, node: Node | None, args: Any, kwargs: Any, out: Any) -> None:
        if name in ("_to_copy", "clone") and self.audit.holds(args[0]):
            self.audit.copied(out)
        elif name in LAYERS:
            self._layer(name, args, kwargs)
        elif name in FUSED:
            self._fused(name, args, kwargs, out)
        elif name in PRODUCTS:
            self._product(name, args, kwargs, out)
        elif name in SOFTMAX:
            self._softmax(args, out)
        elif name in EXPONENTIALS:
            self._exponentials(node, out)
        elif node is not None:
            self.known.put(out[0] if isinstance(out, (list, tuple)) else out, node)

    def left(self) -> list[TracedSoftmax]:
        """Softmaxes whose result has met no values."""
        return [s for s in self.softmaxes if not s.met]

    def _softmax(self, args: Any, out: Any) -> None:
        module = _module()
        if not self.audit.wants(module):
            return
        x, axis = args[0], int(args[1])
        node = self.known.get(x)
        keys = axis in (-1, x.ndim - 1) and isinstance(node, TracedScores) and x.shape[-1] == node.keys
        scores = node if isinstance(node, TracedScores) and keys else None
        traced_softmax = self._made(module, scores is not None)
        self.known.put(
            out, TracedWeights(scores, traced_softmax, "" if scores else "the input of its softmax is unknown")
        )

    def _made(self, module: Any, read: bool) -> TracedSoftmax:
        """A softmax that is to meet values, unless a checkpoint runs it again, which stops early."""
        traced_softmax = TracedSoftmax(module, read, heads_of(_layer()) is not None)
        if not in_backward():
            self.softmaxes.append(traced_softmax)
        return traced_softmax

    def _exponentials(self, scores: Node | None, out: Any) -> None:
        if isinstance(scores, TracedScores) and scores.fits(out.shape) and self.audit.wants(_module()):
            traced_softmax = self._made(_module(), True)
            self.known.put(out, Exponentials(scores, traced_softmax))

    def _product(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        a, b = args[-2:] if name == "baddbmm" else args[:2]
        weights = self.known.get(a)
        if isinstance(weights, TracedWeights):
            self._met(weights, b, out if name != "baddbmm" else None)
        elif isinstance(other := self.known.get(b.mT), TracedWeights):
            self._met(other, None, None)
        elif not self.audit.holds(b) and not self.audit.holds(a):
            self.known.put(out, _scores(name, args, kwargs))

    def _met(self, weights: TracedWeights, values: Any, out: Any) -> None:
        """Weights meet values."""
        module = _module()
        for softmax in filter(None, (weights.softmax, weights.summed)):
            softmax.met = True
        scores = weights.scores
        if scores is None or values is None or out is None:
            reason = weights.reason or "its weights meet the values in an unknown form"
            self.audit.unread("operators", module, reason)
            return
        q, k, v, shaped = (t[None] if t.ndim == 2 else t for t in (scores.q, scores.k, values, out))
        h = heads_of(module) or 1
        h = h if not len(q) % h else 1
        q, k, v, shaped = (t.reshape(-1, h, *t.shape[1:]) for t in (q, k, v, shaped))
        masks = [partial(_by_heads, added, h) for added in scores.added]
        received = Received("operators", q, k, v, masks, scores.scale, scores.cap, eager=True, module=module)
        self._tell(received, shaped, out)

    def _layer(self, name: str, args: Any, kwargs: Any) -> None:
        """A layer in one operator."""
        module = _module()
        if not self.audit.wants(module):
            return
        try:
            with reading():
                received, out = inside(name, args, kwargs, module)
        except UnreadCall as reason:
            self.audit.unread("torch fast path", module, str(reason))
        else:
            self.audit.spelled(received, out)

    def _fused(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        module = _module()
        if not self.audit.wants(module):
            return
        if not FUSED[name]:
            self.audit.unread("fused operator", module, f"{name} is not read")
            return
        q, k, v = args[:3]
        dropout, causal = (args[3] if len(args) > 3 else 0.0), (args[4] if len(args) > 4 else False)
        mask = kwargs.get("attn_mask")
        places = Attention(causal=bool(kwargs.get("is_causal", causal)), alignment="top-left")
        self._tell(
            Received(
                "fused operator", q, k, v, [] if mask is None else [mask], scale=kwargs.get("scale"),
                places=places, dropout=float(dropout), module=module,
            ),
            out[0],
            out[0],
        )  # fmt: skip


def _module() -> Any:
    return doing.modules[-1] if doing.modules else None


def _layer() -> Any:
    """The module that a softmax belongs to: torch's own module of a softmax belongs to the one around it."""
    import torch

    inner = [m for m in doing.modules[-2:] if not isinstance(m, torch.nn.Softmax)]
    return inner[-1] if inner else None


def _composed(func: Any) -> bool:
    """Return whether an operator, such as matmul, is one of others by torch's own kernel."""
    import torch

    known = hasattr(func, "_op_dk")
    return known and bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def _changed(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arrays that an operator writes into, by its schema."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    given = [
        args[i] if i < len(args) else kwargs.get(a.name)
        for i, a in enumerate(schema.arguments)
        if a.alias_info is not None and a.alias_info.is_write
    ]
    return [t for some in given for t in (some if isinstance(some, (list, tuple)) else [some])]


def _by_heads(added: Added, h: int, rows: Sequence[int]) -> Any:
    array = added.rows(rows)
    return array.reshape(-1, h, *array.shape[-2:])


def _scores(name: str, args: Any, kwargs: Any) -> TracedScores | None:
    if name != "baddbmm":
        return TracedScores(args[0], args[1].mT)
    added, a, b = args[:3]
    scores = TracedScores(a, b.mT, scale=float(kwargs.get("alpha", 1)))
    beta = float(kwargs.get("beta", 1))
    return scores.plus(added, (*a.shape[:-1], b.shape[-1]), beta) if beta else scores
