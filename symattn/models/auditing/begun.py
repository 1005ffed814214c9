"""Which weights a call with dropout has kept: seen as they are drawn, or told by the weights that it returns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from symattn.bounds.threads import one_blas_thread
from symattn.models.auditing.audit_report import CallFinding
from symattn.models.auditing.call_gradients import bounded
from symattn.models.auditing.call_judge import CallJudgement, judge
from symattn.models.auditing.examining import examine
from symattn.models.auditing.promises import Intent, ModelCall, NoPromise, Promise, intended, promised
from symattn.models.auditing.provenance import Operation, seeing
from symattn.models.auditing.received import AttentionCall, Received, UnreadCall, cast, read
from symattn.models.auditing.setting import Floats, Mask, Module, Tensor
from symattn.programs.frameworks import dtype_name
from symattn.programs.loading import one_line
from symattn.programs.names import Function

UNSEEN = "dropout of {:g} is on, and what it drops was not seen; hint: model.eval()"
_DRAWN = ("bernoulli_", "bernoulli", "native_dropout")
_UNIFORM = ("rand_like", "rand", "uniform_")


class Draws:
    """Arrays of the weights' shape (b, h, n_q, n_k) that are drawn while a call runs, as what may have been kept."""

    def __init__(self, shape: tuple[int, ...], rate: float) -> None:
        self.shape, self.rate = shape, rate
        self.kept: list[Mask] = []

    def drawn(self, name: str, out: Tensor) -> None:
        """An operator has drawn numbers: zeros and ones, or from 0 to 1, of which either end may be kept."""
        array = out[1] if name == "native_dropout" else out
        if name in _DRAWN and self._fits(array):
            self._add(array != 0)
        elif name in _UNIFORM and self._fits(array):
            self._add(array >= self.rate)
            self._add(array < 1 - self.rate)

    def returned(self, out: Tensor) -> None:
        """Weights that the call returns beside its output: what is 0 in them was dropped.

        In float16 small weights are 0, too, so that nothing is told there.
        """
        for array in out[1:] if isinstance(out, tuple) else ():
            if hasattr(array, "shape") and self._fits(array) and dtype_name(array) != "float16":
                self._add(array != 0)

    def _fits(self, array: Tensor) -> bool:
        return array.numel() == np.prod(self.shape) and tuple(array.shape[-2:]) == self.shape[-2:]

    def _add(self, kept: Tensor) -> None:
        self.kept.append(kept.detach().cpu().numpy().reshape(self.shape))


def watching(draws: Draws | None) -> Any:
    """See what is drawn; without ``draws``, nothing is seen, and nothing changes."""
    if draws is None:
        return nullcontext()

    def see(mode: object, op: Operation, func: Function) -> Tensor:
        out = func(*op.args, **op.kwargs)
        draws.drawn(op.name, out)
        return out

    return seeing(see)


def draws_of(call: AttentionCall) -> Draws | None:
    """For a call with dropout."""
    rate = call.received.dropout
    return Draws((*call.given.q.shape[:2], call.n_q, call.n_k), rate) if rate else None


def judge_dropped(call: AttentionCall, draws: Draws) -> tuple[CallJudgement, Mask]:
    """The output under the first of the masks that may have been drawn with which it is right, and that mask.

    Where there is none, that under the first. Raises ``UnreadCall`` where no mask was seen.
    """
    if not draws.kept:
        raise UnreadCall(UNSEEN.format(draws.rate))
    assert call.got is not None
    bounded(call.given)
    weights = [(factors(values[:, :, call.rows], draws.rate), values) for values in draws.kept]
    result = [(judge(call.given, call.got, call.arithmetic, factors=own), values) for own, values in weights]
    return next(((judged, values) for judged, values in result if judged.legal), result[0])


def factors(mask: Mask, rate: float) -> Floats:
    """Return the factors of the weights: 1/(1 − r) where they are kept, else 0."""
    return np.asarray(mask / (1 - rate))


# -- a call that is under way: what it received, and what it is held to; judged when it has returned -------------------
class CallSite(NamedTuple):
    """A call as it is made: by which module, its name, seen by what, inside of which call of a model.

    ``heads_last`` says whether heads are the third axis of what it returns.
    """

    module: Module
    layer: str
    via: str
    context: ModelCall | None
    heads_last: bool = False

    def unread(self, reason: str) -> CallFinding:
        """Nothing can be told of it."""
        return CallFinding(self.layer, self.via, reason=reason)


class Begun(NamedTuple):
    """A call that was read, and the promise that goes with it; ``trained``: a backward pass may come through it."""

    made: CallSite
    call: AttentionCall
    promise: Promise | NoPromise
    received: Received
    trained: bool = False

    def intent(self) -> Intent | NoPromise:
        """Return what is promised, or why it is not known."""
        if isinstance(self.promise, NoPromise):
            return self.promise
        try:
            return intended(self.call, self.promise, self.made.context)
        except NoPromise as reason:
            return reason


def begun(
    site: CallSite, received: Callable[[], Received], rows: int | None, contract: str | None, dropping: bool = False
) -> Begun | CallFinding:
    """Read a call before it runs. Whatever symattn does not understand, the model runs as without it.

    Where ``dropping`` is true, a call with dropout is read, too.
    """
    import torch

    trained = torch.is_grad_enabled()
    try:
        with torch.no_grad():  # what is saved for gradients here would be counted by checkpoints
            promise: Promise | NoPromise
            try:
                promise = promised(site.module, site.layer, site.context)
            except NoPromise as reason:
                promise = reason
            specs = [] if isinstance(promise, NoPromise) else [promise.spec]
            given = received()
            trained = trained and any(t.requires_grad for t in (given.q, given.k, given.v, *given.learned))
            given = cast(given)
            given.name, given.module = site.layer, site.module
            return Begun(site, read(given, rows, contract, specs, dropping), promise, given, trained)
    except UnreadCall as reason:
        return site.unread(str(reason))
    except Exception as error:
        return site.unread(defect(error))


@one_blas_thread
def ended(begun: Begun, out: Tensor, search: bool, draws: Draws | None = None) -> CallFinding:
    """Judge a call by what it returned; where ``search`` is false, no cause is looked for.

    ``draws`` are what a call with dropout may have kept: it is left with the mask that was found.
    """
    import torch

    try:
        with torch.no_grad():
            begun.call.returned(out, begun.made.heads_last)
            dropped = None
            if draws is not None:
                dropped, values = judge_dropped(begun.call, draws)
                draws.kept[:] = [values]
            return examine(begun.call, begun.intent(), search, dropped)
    except UnreadCall as reason:
        return begun.made.unread(str(reason))
    except Exception as error:
        return begun.made.unread(defect(error))


def defect(error: Exception, what: str = "read it") -> str:
    """Return the reason where symattn itself raises an error."""
    return f"symattn failed to {what} (a defect of symattn): {one_line(error)[:200]}"
