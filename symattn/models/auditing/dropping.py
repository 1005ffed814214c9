"""Which weights a call with dropout has kept: seen as they are drawn, or told by the weights that it returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from symattn.models.auditing.call_gradients import bounded
from symattn.models.auditing.call_judge import CallJudgement, judge
from symattn.models.auditing.provenance import operator_name
from symattn.models.auditing.received import AttentionCall, UnreadCall
from symattn.models.auditing.setting import Floats, Mask
from symattn.models.auditing.tensor_numbers import dtype_of

UNSEEN = "dropout of {:g} is on, and what it drops was not seen; hint: model.eval()"
_DRAWN = ("bernoulli_", "bernoulli", "native_dropout")
_UNIFORM = ("rand_like", "rand", "uniform_")


class Draws:
    """Arrays of the weights' shape (b, h, n_q, n_k) that are drawn while a call runs, as what may have been kept."""

    def __init__(self, shape: tuple[int, ...], rate: float) -> None:
        self.shape, self.rate = shape, rate
        self.kept: list[Mask] = []

    def drawn(self, name: str, out: Any) -> None:
        """An operator has drawn numbers: zeros and ones, or from 0 to 1, of which either end may be kept."""
        array = out[1] if name == "native_dropout" else out
        if name in _DRAWN and self._fits(array):
            self._add(array != 0)
        elif name in _UNIFORM and self._fits(array):
            self._add(array >= self.rate)
            self._add(array < 1 - self.rate)

    def returned(self, out: Any) -> None:
        """Weights that the call returns beside its output: what is 0 in them was dropped.

        In float16 small weights are 0, too, so that nothing is told there.
        """
        for array in out[1:] if isinstance(out, tuple) else ():
            if hasattr(array, "shape") and self._fits(array) and dtype_of(array) != "float16":
                self._add(array != 0)

    def _fits(self, array: Any) -> bool:
        return array.numel() == np.prod(self.shape) and tuple(array.shape[-2:]) == self.shape[-2:]

    def _add(self, kept: Any) -> None:
        self.kept.append(kept.detach().cpu().numpy().reshape(self.shape))


@contextmanager
def watching(draws: Draws | None) -> Iterator[None]:
    """See what is drawn; without ``draws``, nothing is seen, and nothing changes."""
    if draws is None:
        yield
        return
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = draws

    class Drawing(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            seen.drawn(operator_name(func), out)
            return out

    with Drawing():
        yield


def draws_of(call: AttentionCall) -> Draws | None:
    """For a call with dropout."""
    if not call.dropout:
        return None
    b, h = call.given.q.shape[:2]
    return Draws((b, h, call.n_q, call.n_k), call.dropout)


def judge_dropped(call: AttentionCall, draws: Draws) -> tuple[CallJudgement, Mask]:
    """The output under the first of the masks that may have been drawn with which it is right, and that mask.

    Where there is none, that under the first. Raises ``UnreadCall`` where no mask was seen.
    """
    result = [(_judged(call, values), values) for values in draws.kept]
    if not result:
        raise UnreadCall(UNSEEN.format(call.dropout))
    return next(((judged, values) for judged, values in result if judged.legal), result[0])


def factors(kept: Mask, rate: float) -> Floats:
    """Return the factors of the weights: 1/(1 − r) where they are kept, else 0."""
    return np.asarray(kept / (1 - rate))


def _judged(call: AttentionCall, kept: Mask) -> CallJudgement:
    assert call.got is not None
    bounded(call.given)
    return judge(call.given, call.got, call.arithmetic, factors=factors(kept[:, :, call.rows], call.dropout))
