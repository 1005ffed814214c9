"""Attention that is spelled out: every operator of a thread is seen, and scores are followed to the values they meet.

What is not understood on the way is told as unread, never passed over: a softmax whose weights meet values without
queries and keys being known, one of such scores that meets no values, and attention in one operator of another kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from symattn.attention.spec import Attention
from symattn.auditing.operators import FUSED, PRODUCTS, RULES, SOFTMAX
from symattn.auditing.patches import doing
from symattn.auditing.provenance import Added, Known, Scores, Softmax, Weights
from symattn.auditing.received import Received


class Listener(Protocol):
    """Who is told."""

    def spelled(self, received: Received, out: Any) -> None:
        """Attention that was read."""

    def unread(self, via: str, module: Any, reason: str) -> None:
        """Attention that was not."""

    def wants(self, module: Any) -> bool:
        """Whether a module is audited."""

    def heads(self, module: Any) -> int | None:
        """How many heads a module is known to have."""

    def holds(self, tensor: Any) -> bool:
        """Whether an array is a parameter of what is audited."""


def mode(listener: Listener) -> Any:
    """The dispatch mode that follows one thread."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Following(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tracer = Tracer(listener)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = func.overloadpacket.__name__
            if doing.reading or name not in WATCHED:
                return func(*args, **kwargs)
            return self.tracer.called(name, func, args, kwargs)

    return Following()


WATCHED = {*RULES, *FUSED, *SOFTMAX, *PRODUCTS}


class Tracer:
    """The scores and weights that are alive in one thread, and what becomes of them."""

    def __init__(self, listener: Listener) -> None:
        self.listener, self.known = listener, Known()
        self.softmaxes: list[Softmax] = []

    def called(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, and say what its result is."""
        if name in FUSED:
            return self._fused(name, func, args, kwargs)
        if name in PRODUCTS:
            return self._product(name, func, args, kwargs)
        if name in SOFTMAX:
            return self._softmax(func, args, kwargs)
        node = RULES[name](self.known, args, kwargs)
        out = func(*args, **kwargs)
        if hasattr(out, "untyped_storage") and (node is not None or name.endswith("_")):
            self.known.put(out, node)
        return out

    def left(self) -> list[Softmax]:
        """Softmaxes whose result has met no values."""
        return [s for s in self.softmaxes if not s.met]

    def _softmax(self, func: Any, args: Any, kwargs: Any) -> Any:
        out = func(*args, **kwargs)
        module = _module()
        if not self.listener.wants(module):
            return out
        x, axis = args[0], int(args[1])
        node = self.known.get(x)
        scores = node if isinstance(node, Scores) and axis in (-1, x.ndim - 1) else None
        made = Softmax(module, scores is not None)
        self.softmaxes.append(made)
        self.known.put(out, Weights(scores, made, "" if scores else "what goes into its softmax is not known"))
        return out

    def _product(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        a, b = args[-2:] if name == "baddbmm" else args[:2]
        weights = self.known.get(a)
        out = func(*args, **kwargs)
        if isinstance(weights, Weights):
            self._met(weights, b, out if name != "baddbmm" else None)
        elif isinstance(other := self.known.get(b.mT), Weights):
            self._met(other, None, None)
        elif not self.listener.holds(b) and not self.listener.holds(a):
            self.known.put(out, _scores(name, args, kwargs))
        return out

    def _met(self, weights: Weights, values: Any, out: Any) -> None:
        """Weights meet values."""
        weights.softmax.met, module = True, _module()
        scores = weights.scores
        if scores is None or values is None or out is None:
            reason = weights.reason or "its weights meet the values in a form that is not known"
            self.listener.unread("operators", module, reason)
            return
        q, k, v, out = (t[None] if t.ndim == 2 else t for t in (scores.q, scores.k, values, out))
        h = self.listener.heads(module) or 1
        h = h if not len(q) % h else 1
        q, k, v, out = (t.reshape(-1, h, *t.shape[1:]) for t in (q, k, v, out))
        masks = [partial(_by_heads, added, h) for added in scores.added]
        received = Received("operators", q, k, v, masks, scores.scale, scores.cap, eager=True, module=module)
        self.listener.spelled(received, out)

    def _fused(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        module = _module()
        out = func(*args, **kwargs)
        if not self.listener.wants(module):
            return out
        if not FUSED[name]:
            self.listener.unread("fused operator", module, f"{name} is not read")
            return out
        q, k, v = args[:3]
        dropout, causal = (args[3] if len(args) > 3 else 0.0), (args[4] if len(args) > 4 else False)
        mask = kwargs.get("attn_mask")
        places = Attention(causal=bool(kwargs.get("is_causal", causal)), alignment="top-left")
        self.listener.spelled(
            Received(
                "fused operator", q, k, v, [] if mask is None else [mask], scale=kwargs.get("scale"),
                places=places, dropout=float(dropout), module=module,
            ),
            out[0],
        )  # fmt: skip
        return out


def _module() -> Any:
    return doing.modules[-1] if doing.modules else None


def _by_heads(added: Added, h: int, rows: Sequence[int]) -> Any:
    found = added.rows(rows)
    return found.reshape(-1, h, *found.shape[-2:])


def _scores(name: str, args: Any, kwargs: Any) -> Scores:
    if name != "baddbmm":
        return Scores(args[0], args[1].mT)
    added, a, b = args[:3]
    found = Scores(a, b.mT, scale=float(kwargs.get("alpha", 1)))
    beta = float(kwargs.get("beta", 1))
    return found.plus(added, (*a.shape[:-1], b.shape[-1]), beta) if beta else found
