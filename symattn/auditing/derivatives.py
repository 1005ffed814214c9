"""The gradients of one call against the exact ones, for some heads: dQ of some queries, dK and dV of some keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from symattn.arrays.formats import Format
from symattn.attention.spec import Attention
from symattn.auditing.judging import Arithmetic
from symattn.auditing.received import Received, Unread, read
from symattn.auditing.setting import Floats, Setting
from symattn.auditing.tensors import heads_apart, numbers
from symattn.errors import SymattnError
from symattn.sources.gradients import nearest
from symattn.verification.case_result import UNFIT
from symattn.verification.definitions.gradient_mistakes import mistakes, of_wrong_attention
from symattn.verification.definitions.subject import Mistake
from symattn.verification.sharp.backward import Gradient, beyond, sampled
from symattn.verification.sharp.blocks import applies
from symattn.verification.sharp.limits import Stores
from symattn.verification.sharp.sample import chosen

SYMBOLS = {"dq": "dQ", "dk": "dK", "dv": "dV"}
_SCORES = 1 << 22  # scores of one call up to which further heads are looked at
_TRIED = 1 << 18  # scores of one head up to which mistakes in formulas are tried
_OTHERS = 1 << 12  # up to which the gradients of other attention are, too
_ROOM = 4  # how much wider than the bound a result of a mistake is taken for this mistake
_TOLD = 3
Grads = dict[str, Floats]


@dataclass(frozen=True)
class Backward:
    """What was found of a backward pass: the largest error of dQ, dK, dV, each as a part of what is allowed.

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
        return [SYMBOLS[name] for name, ratio in self.ratios.items() if not ratio <= 1]

    @property
    def verdict(self) -> str:
        """In words."""
        if self.wrong:
            cause = self.cause or f"{', '.join(self.wrong)}: no known mistake explains it"
            return f"CERTIFIED WRONG in the backward pass: {cause}"
        return f"CANNOT TELL of gradients: {self.reason}" if self.reason else "pass"

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        ratios = {name: ratio if np.isfinite(ratio) else str(ratio) for name, ratio in self.ratios.items()}
        return {"ratios": ratios, "cause": self.cause, "reason": self.reason, "heads": self.heads, "of_heads": self.of}


@dataclass(frozen=True, eq=False)
class _Head:
    """One head of keys with its heads of queries: what was judged, and what came (1, heads, n, d)."""

    spec: Attention
    inputs: dict[str, Any]
    do: Floats
    got: Grads
    found: dict[str, Gradient]

    def ratios(self) -> dict[str, float]:
        """The largest of each."""
        return {n: float(beyond(self.found[n], a[..., self.found[n].rows, :]).max()) for n, a in self.got.items()}


def judge_gradients(
    received: Received, do: Any, got: Mapping[str, Any], rows: int | None, contract: str | None, search: bool = True
) -> Backward:
    """``got`` (tensors dq, dk, dv, some of them) as the gradients of ⟨do, output⟩ of a call.

    All arrays have the axes (b, h, n, d). The bound and its proof are those of ``verification.sharp.backward``: no law
    of rounding is assumed. Where ``search`` is false, no cause is looked for.
    """
    places = _places(received, rows)
    most: dict[str, float] = {}
    first: _Head | None = None
    try:
        for item, head in places:
            judged = _judged(received, item, head, do, got, rows, contract)
            ratios = judged.ratios()
            first = judged if first is None and not max(ratios.values()) <= 1 else first
            most = {name: float(np.fmax(ratio, most.get(name, 0.0))) for name, ratio in ratios.items()}
    except (SymattnError, Unread) as error:
        return Backward(reason=str(error))
    total = int(heads_apart(received.k).shape[1]) * int(heads_apart(received.q).shape[0])
    return Backward(most, _cause(first) if search and first is not None else "", "", len(places), total)


def _places(received: Received, rows: int | None) -> list[tuple[int, int]]:
    """Items and heads of keys that are looked at: all, or so many that their scores are not too many."""
    q, k = heads_apart(received.q), heads_apart(received.k)
    b, g = int(q.shape[0]), int(k.shape[1])
    each = max(1, int(q.shape[1]) // g * int(q.shape[2]) * int(k.shape[2]))
    count = b * g if rows is None else max(1, min(b * g, _SCORES // each))
    return [divmod(int(i), g) for i in np.unique(np.linspace(0, b * g - 1, count).astype(int))]


def _judged(
    received: Received, item: int, head: int, do: Any, got: Mapping[str, Any], rows: int | None, contract: str | None
) -> _Head:
    call = read(_alone(received, item, head), None, contract, [])
    spec, inputs = replace(call.given.spec(), fully_masked="zeros"), call.given.inputs()
    above = _of(do, item, head, int(heads_apart(received.k).shape[1]))
    _check(spec, inputs, call.given, above)
    g = int(heads_apart(received.k).shape[1])
    mine = {name: _of(a, item, head, g) for name, a in got.items()}
    queries = np.arange(call.n_q) if rows is None else np.array(chosen(spec, inputs, rows))
    keys = np.arange(call.n_k) if rows is None else sampled(call.n_k, rows)
    found = nearest(spec, inputs, above, _stores(call.arithmetic), mine, queries, keys)
    return _Head(spec, inputs, above, mine, found)


def _check(spec: Attention, inputs: Mapping[str, Any], given: Setting, do: Floats) -> None:
    """Raises ``Unread`` for what the bound does not speak of."""
    kinds = {"a softcap": spec.softcap is not None, "a sink": spec.sink is not None, "a bias": spec.bias}
    for words in (words for words, there in kinds.items() if there):
        raise Unread(f"there is no bound for gradients with {words}")
    if not all(np.isfinite(a).all() for a in (given.q, given.k, given.v, do)):
        raise Unread("q, k, v or the gradient of the output holds NaN or infinity")
    if (given.empty() & (do != 0).any(axis=-1)).any():
        raise Unread("a query that may see no key has a gradient: nothing says what it gives")
    if not applies(spec, inputs):
        raise Unread("there is no bound for gradients of this kind of attention")


def _stores(arithmetic: Arithmetic) -> Stores:
    """In float32 and float64, too, the bound holds: all else is in float32 or wider."""
    how = arithmetic.stores(False)
    return how or Stores(Format(arithmetic.dtype), 0 if arithmetic.contract == "fused" else 2)


def _alone(received: Received, item: int, head: int) -> Received:
    """The call of one item and one head of keys."""
    q, k, v = (heads_apart(t) for t in (received.q, received.k, received.v))
    if len({int(t.shape[0]) for t in (q, k, v)}) > 1 or int(q.shape[1]) % int(k.shape[1]):
        raise Unread("q, k and v have other numbers of items or heads, so that gradients are sums over them")
    times = int(q.shape[1]) // int(k.shape[1])
    one, many = slice(head, head + 1), slice(head * times, (head + 1) * times)
    return replace(
        received,
        q=q[item : item + 1, many],
        k=k[item : item + 1, one],
        v=v[item : item + 1, one],
        masks=[_part(heads_apart(m), item, many) for m in received.masks if m is not None],
        sink=None if received.sink is None else received.sink.reshape(-1)[many],
    )


def _part(mask: Any, item: int, heads: slice) -> Any:
    of_item = mask if mask.shape[0] == 1 else mask[item : item + 1]
    return of_item if of_item.shape[1] == 1 else of_item[:, heads]


def _of(array: Any, item: int, head: int, groups: int) -> Floats:
    """The heads of one array that belong to a head of keys."""
    whole = heads_apart(array)
    times = int(whole.shape[1]) // groups
    return numbers(whole[item : item + 1, head * times : (head + 1) * times])


def _cause(head: _Head) -> str:
    """The one known mistake that gives what came, in words; those that fit where several do, empty where none does.

    Wrong formulas come first; where none of these fits, the gradients of other attention.
    """
    scores = int(np.prod(head.inputs["q"].shape[:-1])) * int(head.inputs["k"].shape[-2])
    fitting = _fitting(mistakes(head.spec), head) if scores <= _TRIED else {}
    if not fitting and scores <= _OTHERS:
        fitting = _fitting(of_wrong_attention(head.spec), head)
    if len(fitting) <= 1:
        return next(iter(fitting), "")
    more = f", or {len(fitting) - _TOLD} others" if len(fitting) > _TOLD else ""
    return f"open, since several mistakes fit: {'; or '.join(list(fitting)[:_TOLD])}{more}"


def _fitting(tried: Iterator[Mistake], head: _Head) -> dict[str, Grads]:
    """By their words, mistakes that give what came; of those that give the same, the first."""
    found: dict[str, Grads] = {}
    for mistake in tried:
        try:
            with np.errstate(all="ignore"):
                made = mistake.run(do=head.do, **head.inputs)
        except UNFIT:  # it needs other shapes, as where dS is not transposed
            continue
        values = dict(zip(SYMBOLS, map(np.asarray, made), strict=True))
        if _alike(values, head.got, head) and not any(_alike(values, other, head) for other in found.values()):
            found[mistake.cause] = values
    return found


def _alike(values: Grads, other: Grads, head: _Head) -> bool:
    """In all gradients that came."""
    return all(_near(values[n], other[n], head.found[n]) for n in head.got)


def _near(values: Floats, got: Floats, found: Gradient) -> bool:
    """Whether both are as near to each other as the bound is wide, for numbers of this size."""
    if values.shape != got.shape:
        return False
    mine, theirs = (a[..., found.rows, :] for a in (values, got))
    with np.errstate(all="ignore"):
        size = max(1.0, float(np.abs(mine).max() / np.abs(found.exact).max(initial=1e-300)))
        return bool((np.abs(mine - theirs) <= _ROOM * size * found.allowed).all())
