"""A call in progress, and what its dropout keeps: seen as it is drawn, or read from the weights that it returns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from symattn.bounds.threads import one_blas_thread
from symattn.models.auditing import call_judge, promises
from symattn.models.auditing.audit_report import CallFinding
from symattn.models.auditing.call_gradients import bounded
from symattn.models.auditing.examining import examine
from symattn.models.auditing.keys_of_layers import hold_keys_against_layers
from symattn.models.auditing.provenance import Operation, seeing
from symattn.models.auditing.received import AttentionCall, Received, UnreadCall, read
from symattn.models.auditing.setting import Floats, Mask, Masking, Module, Tensor
from symattn.programs.frameworks import dtype_name
from symattn.programs.names import Function
from symattn.programs.refusing import one_line

UNSEEN = "dropout of {:g} is on, and what it drops was not seen; hint: model.eval()"
# Operators that draw zeros and ones, and those that draw numbers from 0 to 1.
_DRAWN = ("bernoulli_", "bernoulli", "native_dropout")
_UNIFORM = ("rand_like", "rand", "uniform_")


class Draws:
    """Arrays of the weights' shape (b, h, n_q, n_k) that are drawn while a call runs: candidates for what was kept."""

    def __init__(self, shape: tuple[int, ...], rate: float) -> None:
        self.shape, self.rate = shape, rate
        self.kept: list[Mask] = []

    def drawn(self, name: str, out: Tensor) -> None:
        """Add what an operator drew: zeros and ones, or numbers from 0 to 1, of which either end may be kept."""
        array = out[1] if name == "native_dropout" else out
        if name in _DRAWN and self._has_shape_of_weights(array):
            self._add_dropout_draw(array != 0)
        elif name in _UNIFORM and self._has_shape_of_weights(array):
            self._add_dropout_draw(array >= self.rate)
            self._add_dropout_draw(array < 1 - self.rate)

    def returned(self, out: Tensor) -> None:
        """Add the weights that the call returns beside its output: zeros in them were dropped.

        Not in float16, where small weights are zero as well.
        """
        for array in out[1:] if isinstance(out, tuple) else ():
            if (
                hasattr(array, "shape")
                and self._has_shape_of_weights(array)
                and dtype_name(array) != "float16"
            ):
                self._add_dropout_draw(array != 0)

    def _has_shape_of_weights(self, array: Tensor) -> bool:
        of_pairs = tuple(array.shape[-2:])
        return array.numel() == np.prod(self.shape) and of_pairs == self.shape[-2:]

    def _add_dropout_draw(self, kept: Tensor) -> None:
        entries = kept.detach().cpu().numpy()
        self.kept.append(entries.reshape(self.shape))


def watching(draws: Draws | None) -> Any:
    """Return a context that records in ``draws`` what is drawn; without ``draws``, one that does nothing."""
    if draws is None:
        return nullcontext()

    def see(mode: object, op: Operation, func: Function) -> Tensor:
        out = func(*op.args, **op.kwargs)
        draws.drawn(op.name, out)
        return out

    return seeing(see)


def draws_of(call: AttentionCall) -> Draws | None:
    """Return the draws of a call with dropout; None for one without."""
    rate = call.received.dropout
    if not rate:
        return None
    shape_of_scores = (*call.given.q.shape[:2], call.n_q, call.n_k)
    return Draws(shape_of_scores, rate)


def judge_dropped(call: AttentionCall, draws: Draws) -> tuple[call_judge.CallJudgement, Mask]:
    """Judge the output under the first candidate mask with which it is right; return the judgement and that mask.

    If there is none, under the first candidate. Raises ``UnreadCall`` if no mask was seen.
    """
    if not draws.kept:
        raise UnreadCall(UNSEEN.format(draws.rate))
    assert call.got is not None
    # Raises for a call that the bound does not cover.
    bounded(call.given)
    weights = [(factors(values[:, :, call.rows], draws.rate), values) for values in draws.kept]
    result = [
        (call_judge.judge(call.given, call.got, call.arithmetic, factors=own), values)
        for own, values in weights
    ]
    return next(((judged, values) for judged, values in result if judged.legal), result[0])


def factors(mask: Mask, rate: float) -> Floats:
    """Return the factors of the weights: 1/(1 − r) for those kept, else 0."""
    return np.asarray(mask / (1 - rate))


# -- a call in progress: what it received and has to compute; it is judged when it has returned ------------------------
class CallSite(NamedTuple):
    """The site of a call: its module, the module's name, how the call was seen, and the enclosing call of a model.

    ``heads_last`` says whether heads are the third axis of the result, ``causal`` whether the user says that no output
    depends on later tokens; None if that is left to the model's configuration. ``reviewed`` are the promises of a lock.
    """

    module: Module
    layer: str
    via: str
    context: promises.ModelCall | None
    heads_last: bool = False
    causal: bool | None = None
    reviewed: promises.ReviewedLayers | None = None

    def unread(self, reason: str) -> CallFinding:
        """Return the finding of a call that cannot be judged."""
        return CallFinding(self.layer, self.via, reason=reason)


class Begun(NamedTuple):
    """A call that was read, and the promise for it; ``trained``: a backward pass may come through it."""

    made: CallSite
    call: AttentionCall
    promise: promises.Promise | promises.NoPromise
    received: Received
    trained: bool = False

    def intent(self) -> promises.Intent | promises.NoPromise:
        """Return the intent of the call, or the reason why it is unknown."""
        if isinstance(self.promise, promises.NoPromise):
            return self.promise
        try:
            return promises.intended(self.call, self.promise, self.made.context)
        except promises.NoPromise as reason:
            return reason

    def visible_at_most(self) -> Masking | None:
        """Return the keys that the call may see at most, whatever its family; None if nothing is known."""
        context = self.made.context
        return (
            None
            if context is None
            else promises.find_mask_at_most(self.call, context, self.made.causal)
        )


def begun(
    site: CallSite,
    received: Callable[[], Received],
    rows: int | None,
    contract: str | None,
    dropping: bool = False,
) -> Begun | CallFinding:
    """Read a call before it runs. The model runs as usual even if symattn fails.

    With ``dropping``, a call with dropout is read as well.
    """
    import torch

    trained = torch.is_grad_enabled()
    try:
        with torch.no_grad():  # checkpoints would count what is saved here for gradients
            promise: promises.Promise | promises.NoPromise
            try:
                promise = promises.promised(site.module, site.layer, site.context, site.reviewed)
            except promises.NoPromise as reason:
                promise = reason
            specs = [] if isinstance(promise, promises.NoPromise) else [promise.spec]
            call_record = received()
            trained = trained and any(
                t.requires_grad
                for t in (call_record.q, call_record.k, call_record.v, *call_record.learned)
            )
            call_record = _cast_received(call_record)
            call_record.name, call_record.module = site.layer, site.module
            return Begun(
                site,
                read(call_record, rows, contract, specs, dropping),
                promise,
                call_record,
                trained,
            )
    except UnreadCall as reason:
        return site.unread(str(reason))
    except Exception as error:
        return site.unread(defect(error))


def _cast_received(received: Received) -> Received:
    """Cast queries, keys and values to the format of ``torch.autocast`` if it is on, as products in the call do."""
    import torch

    device = received.q.device.type
    if not torch.is_autocast_enabled(device):
        return received
    narrow = torch.get_autocast_dtype(device)
    # Autocast leaves float64 as it is.
    changed = {
        name: t.to(narrow)
        for name, t in (("q", received.q), ("k", received.k), ("v", received.v))
        if t.dtype in (torch.float32, torch.bfloat16, torch.float16)
    }
    return replace(received, **changed)


@one_blas_thread
def ended(begun: Begun, out: Tensor, search: bool, draws: Draws | None = None) -> CallFinding:
    """Judge a call by what it returned; without ``search``, no cause is searched for.

    ``draws`` holds the candidates for what dropout kept, and is left with the mask that was found.
    """
    import torch

    try:
        with torch.no_grad():
            begun.call.returned(out, begun.made.heads_last)
            dropped = None
            if draws is not None:
                dropped, values = judge_dropped(begun.call, draws)
                # The mask that fits stays for the backward pass.
                draws.kept[:] = [values]
            intent = begun.intent()
            at_most = begun.visible_at_most() if isinstance(intent, promises.NoPromise) else None
            finding = examine(begun.call, intent, search, dropped, at_most)
            return hold_keys_against_layers(finding, begun.received, begun.made.context)
    except UnreadCall as reason:
        return begun.made.unread(str(reason))
    except Exception as error:
        return begun.made.unread(defect(error))


def defect(error: Exception, what: str = "read it") -> str:
    """Return the reason to give if symattn itself raises an error."""
    return f"symattn failed to {what} (a defect of symattn): {one_line(error)[:200]}"
