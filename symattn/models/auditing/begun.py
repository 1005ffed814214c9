"""A call that is under way: what it received, and what it is held to; judged when it has returned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from symattn.bounds.threads import one_blas_thread
from symattn.models.auditing.arguments import differences
from symattn.models.auditing.call_finding import CallFinding
from symattn.models.auditing.context import ModelCall, NoPromise
from symattn.models.auditing.dropping import Draws, judge_dropped
from symattn.models.auditing.examining import examine, semantics
from symattn.models.auditing.promises import Intent, Promise, intended, promised
from symattn.models.auditing.received import AttentionCall, Received, UnreadCall, cast, read

_DROPS = "dropout was on, and heads of keys are repeated: such calls are compared only with what they received"


class Made(NamedTuple):
    """A call as it is made: by which module, its name, seen by what, inside of which call of a model.

    ``heads_last`` says whether heads are the third axis of what it returns.
    """

    module: Any
    layer: str
    via: str
    context: ModelCall | None
    heads_last: bool = False

    def unread(self, reason: str) -> CallFinding:
        """Nothing can be told of it."""
        return CallFinding(self.layer, self.via, reason=reason)


class Begun(NamedTuple):
    """A call that was read, and the promise that goes with it; ``trained``: a backward pass may come through it."""

    made: Made
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
    made: Made, received: Callable[[], Received], rows: int | None, contract: str | None, dropping: bool = False
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
                promise = promised(made.module, made.layer, made.context)
            except NoPromise as reason:
                promise = reason
            specs = [] if isinstance(promise, NoPromise) else [promise.spec]
            given = received()
            trained = trained and any(t.requires_grad for t in (given.q, given.k, given.v, *given.learned))
            given = cast(given)
            given.name, given.module = made.layer, made.module
            return Begun(made, read(given, rows, contract, specs, dropping), promise, given, trained)
    except UnreadCall as reason:
        return made.unread(str(reason))
    except Exception as error:
        return made.unread(_defect(error))


@one_blas_thread
def ended(begun: Begun, out: Any, search: bool, draws: Draws | None = None) -> CallFinding:
    """Judge a call by what it returned; where ``search`` is false, no cause is looked for.

    ``draws`` are what a call with dropout may have kept: it is left with the mask that was found.
    """
    import torch

    try:
        with torch.no_grad():
            begun.call.returned(out, begun.made.heads_last)
            if draws is not None:
                return _dropped(begun, draws)
            return examine(begun.call, begun.intent(), search)
    except UnreadCall as reason:
        return begun.made.unread(str(reason))
    except Exception as error:
        return begun.made.unread(_defect(error))


def _dropped(begun: Begun, draws: Draws) -> CallFinding:
    """A call with dropout: its result is held to what it received, and what it received to what is promised."""
    judged, values = judge_dropped(begun.call, draws)
    draws.kept[:] = [values]
    call, intent = begun.call, begun.intent()
    words = f"{semantics(call, intent)} dropout={call.dropout:g}"
    finding = CallFinding(
        call.name, call.via, words, judged, unknown=str(intent) if isinstance(intent, NoPromise) else _DROPS
    )
    if isinstance(intent, NoPromise):
        return finding
    if intent.setting.alike(call.given):
        finding = replace(finding, intent=judged, unknown="")
    asked, cells = differences(call, intent)
    return replace(finding, asked=asked, cells=cells, cause="; ".join(asked))


def _defect(error: Exception) -> str:
    return f"symattn failed to read it (a defect of symattn): {in_words(error)}"


def in_words(error: Exception) -> str:
    """An error in one line, not too long."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
