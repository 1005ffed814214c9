"""The gradients of one call against the exact ones, for some heads: dQ of some queries, dK and dV of some keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.sharp.backward import sampled
from symattn.bounds.sharp.sample import chosen
from symattn.bounds.sharp.ways import bounded as within
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import SymattnError
from symattn.models.auditing.biases import Group, ratio
from symattn.models.auditing.naming import Judged, cause
from symattn.models.auditing.received import Received, UnreadCall, read
from symattn.models.auditing.setting import CallSetting, Floats, heads_apart, numbers
from symattn.programs.gradients import nearest

SYMBOLS = {"dq": "dQ", "dk": "dK", "dv": "dV", "db": "dB"}
_SCORES = 1 << 22  # scores of one call up to which further heads are looked at
_TOO_MANY = f"the gradient of what is added to scores is judged where there are no more than {_SCORES} of them"


@dataclass(frozen=True)
class Backward:
    """The finding of a backward pass: the largest error of dQ, dK, dV, each as a part of what is allowed.

    ``cause`` is the one mistake that explains what is beyond it; ``reason`` says why nothing can be told. ``heads`` of
    ``of`` heads of keys, counted over the batch, were looked at.
    """

    ratios: Mapping[str, float] = field(default_factory=dict)
    cause: str = ""
    reason: str = ""
    heads: int = 0
    of: int = 0

    @property
    def wrong(self) -> list[str]:
        """The gradients that no rounding explains, as ``dQ``."""
        return [symbol for name, symbol in SYMBOLS.items() if not self.ratios.get(name, 0.0) <= 1]

    @property
    def verdict(self) -> str:
        """In words."""
        if self.wrong:
            cause = self.cause or f"{', '.join(self.wrong)}: no known mistake explains it"
            return f"CERTIFIED WRONG in the backward pass: {cause}"
        return f"CANNOT TELL of gradients: {self.reason}" if self.reason else "pass"

    RECORD = "ratios, cause, reason, heads, of_heads = of"


@dataclass(frozen=True, eq=False)
class Passed:
    """The gradients of a call: ``do``, that of its output, and ``got``, those of q, k, v that came.

    All have the axes (b, h, n, d); ``factors`` (b, h, n_q, n_k) are those of dropout. ``rows`` and ``contract`` are
    those of the audit. ``biases`` are the gradients of what is added to scores, each of the shape of its array.
    """

    received: Received
    do: Any
    got: Mapping[str, Any]
    rows: int | None
    contract: str | None
    factors: Floats | None = None
    biases: Sequence[Any] = ()

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Items, heads of queries and of keys, queries, keys."""
        (b, h, n_q, _), (_, g, n_k, _) = (heads_apart(t).shape for t in (self.received.q, self.received.k))
        return int(b), int(h), int(g), int(n_q), int(n_k)

    def places(self) -> list[tuple[int, int]]:
        """Items and heads of keys that are looked at: all, or so many that their scores are not too many."""
        b, h, g, n_q, n_k = self.sizes
        count = b * g if self.rows is None else max(1, min(b * g, _SCORES // max(1, h // g * n_q * n_k)))
        return [divmod(int(i), g) for i in np.unique(np.linspace(0, b * g - 1, count).astype(int))]

    def judged(self, item: int, head: int) -> Judged:
        """One head of keys. Raises ``UnreadCall`` and what the bound raises."""
        call = read(_alone(self.received, item, head), None, self.contract, [], dropping=self.factors is not None)
        if call.given.biases > 1:
            raise UnreadCall("several biases are added to the scores: the bound covers one")
        spec, inputs = bounded(call.given)
        _, h, g, n_q, n_k = self.sizes
        do = _of(self.do, item, head, g)
        _check(call.given, do)
        got = {name: _of(a, item, head, g) for name, a in self.got.items()}
        queries = np.arange(n_q) if self.rows is None else np.array(chosen(spec, inputs, self.rows))
        keys = np.arange(n_k) if self.rows is None else sampled(n_k, self.rows)
        many, how = slice(head * h // g, (head + 1) * h // g), call.arithmetic.together
        own = None if self.factors is None else self.factors[item : item + 1, many]
        result = nearest(spec, inputs, do, how, got, queries, keys, own)
        return Judged(spec, inputs, do, got, result, Group(item, many, spec, inputs, do, how, own))


@one_blas_thread
def judge_gradients(passed: Passed) -> Backward:
    """The gradients of one call, by the bound of ``verification.sharp.backward``, which assumes no law of rounding."""
    places, most, reason = passed.places(), dict.fromkeys(passed.got, 0.0), ""
    first: Judged | None = None
    groups: list[Group] = []
    for item, head in places:
        try:
            judged = passed.judged(item, head)
        except SymattnError as error:
            reason = reason or str(error)
            continue
        ratios = judged.ratios()
        groups.append(judged.group)
        first = judged if first is None and not max(ratios.values(), default=0.0) <= 1 else first
        most = {name: max(most[name], ratio) for name, ratio in ratios.items()}
    b, _, g, *_ = passed.sizes
    if passed.biases and len(groups) == b * g:
        most["db"] = max(ratio(groups, came) for came in passed.biases)
    elif passed.biases:
        reason = reason or _TOO_MANY
    return Backward(most if groups else {}, cause(first) if first is not None else "", reason, len(groups), b * g)


def bounded(given: CallSetting) -> tuple[Attention, dict[str, Any]]:
    """The specification and inputs of a call that the bound speaks of. Raises ``UnreadCall`` for others."""
    spec, inputs = replace(given.spec(), fully_masked="zeros"), given.inputs()
    if not all(np.isfinite(a).all() for a in (given.q, given.k, given.v)):
        raise UnreadCall("q, k or v holds NaN or infinity: the cause is before the call")
    if not within(spec, inputs):
        raise UnreadCall("there is no bound for this kind of attention here")
    return spec, inputs


def _check(given: CallSetting, do: Floats) -> None:
    """Raises ``UnreadCall`` for gradients of the output from which those of the inputs do not follow."""
    if not np.isfinite(do).all():
        raise UnreadCall("the gradient of the output holds NaN or infinity: the cause is after the call")
    if (given.empty() & (do != 0).any(axis=-1)).any():
        raise UnreadCall("a query that may see no key has a gradient: its result is not specified")


def _alone(received: Received, item: int, head: int) -> Received:
    """The call of one item and one head of keys."""
    q, k, v = (heads_apart(t) for t in (received.q, received.k, received.v))
    if len({int(t.shape[0]) for t in (q, k, v)}) > 1 or int(q.shape[1]) % int(k.shape[1]):
        raise UnreadCall("q, k and v have other numbers of items or heads, so that gradients are sums over them")
    times = int(q.shape[1]) // int(k.shape[1])
    one, many = slice(head, head + 1), slice(head * times, (head + 1) * times)
    return replace(
        received,
        q=q[item : item + 1, many],
        k=k[item : item + 1, one],
        v=v[item : item + 1, one],
        masks=[_mask(m, item, many) for m in received.masks if m is not None],
        sink=None if received.sink is None else received.sink.reshape(-1)[many],
    )


def _mask(mask: Any, item: int, heads: slice) -> Any:
    """One that is an array, or a function that gives its rows."""
    if callable(mask):
        return lambda rows: _part(heads_apart(mask(rows)), item, heads)
    return _part(heads_apart(mask), item, heads)


def _part(mask: Any, item: int, heads: slice) -> Any:
    of_item = mask if mask.shape[0] == 1 else mask[item : item + 1]
    return of_item if of_item.shape[1] == 1 else of_item[:, heads]


def _of(array: Any, item: int, head: int, groups: int) -> Floats:
    """The heads of one array that belong to a head of keys."""
    whole = heads_apart(array)
    times = int(whole.shape[1]) // groups
    return numbers(whole[item : item + 1, head * times : (head + 1) * times])
