"""Gradients of one call against the exact ones, for some heads: dQ of some queries, dK and dV of some keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.case_result import UNFIT
from symattn.bounds.mistake import Mistake
from symattn.bounds.sharp.backward_bounds import NAMES, SharpGradient, of_sums, sampled
from symattn.bounds.sharp.limits import Stores, W, half_ulp
from symattn.bounds.sharp.sample import chosen
from symattn.bounds.sharp.ways import bounded as within
from symattn.bounds.sharp.ways import scalings
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import SymattnError
from symattn.models.auditing import call_judge
from symattn.models.auditing.received import Received, UnreadCall, read
from symattn.models.auditing.setting import CallSetting, Floats, Tensor, heads_apart, numbers
from symattn.programs.gradients import nearest
from symattn.verification.definitions.gradients import dropping, mistakes, of_wrong_attention

# -- what is added to scores -------------------------------------------------------------------------------------------
# The gradient of what is added to scores, such as a learned bias: dS, summed over the scores that share a number.
#
# A sum of m terms in float32, whose partial sums may be stored once if m > 1, is off by at most Σ δ, the errors of dS
# (``bounds.sharp.backward``), plus (w (3 m + 48) + u) Σ (|dS| + δ) + m η, plus half an ulp.


# a specification and inputs that the bound covers
Bounded = tuple[Attention, dict[str, np.ndarray]]


class Group(NamedTuple):
    """Heads of queries (1, h, n, d) that share a head of keys, of one item; ``heads`` are their indices in the call."""

    item: int
    heads: slice
    spec: Attention
    inputs: dict[str, np.ndarray]
    do: Floats
    how: Stores
    factors: Floats | None = None


def ratio(groups: Sequence[Group], came: Tensor) -> float:
    """The largest error of a gradient (b or 1, h or 1, n_q or 1, ≥ n_k) as a fraction of the bound.

    The scale, or the format's constant for it, that fits best is used; ``groups`` are all heads of the call.
    """
    n_k = groups[0].inputs["k"].shape[-2]
    # The array may have columns for more keys than there are.
    got = numbers(heads_apart(came))[..., :n_k]
    best = np.inf
    for taken in zip(*(scalings(g.spec, g.inputs, g.how) for g in groups), strict=True):
        exact = _sum_exact_gradients(groups, taken, got.shape)
        best = min(best, float(exact.ratios(got).max()))
        # One scale within the bound is enough.
        if best <= 1:
            break
    return best


def _sum_exact_gradients(
    groups: Sequence[Group], taken: Sequence[Bounded], shape: tuple[int, ...]
) -> SharpGradient:
    """Return the exact sums, and how far a right result may be from them."""
    value, error, size = (np.zeros(shape) for _ in range(3))
    terms = 0
    for group, (spec, inputs) in zip(groups, taken, strict=True):
        ds, off = of_sums(spec, inputs, group.do, group.how, group.factors)
        at = (
            slice(group.item, group.item + 1) if shape[0] > 1 else slice(None),
            group.heads if shape[1] > 1 else slice(None),
        )
        for whole, part in ((value, ds), (error, off), (size, np.abs(ds))):
            shared_axes = tuple(axis for axis in (1, 2) if shape[axis] == 1)
            whole[at] += part.sum(axis=shared_axes, keepdims=True)
        terms += ds.size
    # So many terms are summed into each number of the gradient.
    count, how = max(1, terms // value.size), groups[0].how
    inside = (
        error
        + (size + error) * (W * (3 * count + 48) + (how.u if count > 1 else 0.0))
        + count * float(how.format.eta)
    )
    return SharpGradient(
        np.arange(shape[-2]), value, inside + half_ulp(how.format, np.abs(value) + inside)
    )


# -- causes ------------------------------------------------------------------------------------------------------------
# Which known mistake gives the received gradients: the one that is nearest by far, of those within the bound.

_TRIED = 1 << 18  # scores of one head up to which mistakes in formulas are tried
_OTHERS = 1 << 12  # scores up to which gradients of other attention are also tried
_ROOM = 4  # multiple of the bound within which gradients are attributed to a mistake
_CLOSE = 0.1  # of the bound: mean error of gradients that differ from a mistake's by rounding alone
_APART = 3  # a mistake this many times as far off as the nearest one is not named beside it
_SAME = 1e-9  # of the largest number: two mistakes whose results differ by less are the same
Grads = dict[str, Floats]


@dataclass(frozen=True, eq=False)
class Judged:
    """One head of keys with its heads of queries: what was judged, and the received gradients (1, heads, n, d)."""

    group: Group
    got: Grads
    found: dict[str, SharpGradient]

    def ratios(self) -> dict[str, float]:
        """The largest error of each gradient as a fraction of the bound."""
        return {
            n: float(self.found[n].ratios(self.found[n].of(a)).max()) for n, a in self.got.items()
        }


class _Fitting(NamedTuple):
    """A mistake in words, how far the received gradients are from its own, and its own."""

    words: str
    off: float
    values: Grads


def cause(head: Judged) -> str:
    """The one known mistake that gives the received gradients, in words; if several fit, those; empty if none does.

    Wrong formulas are tried first; the gradients of other attention only if no formula fits up to rounding.
    """
    # The heads of one group share their keys.
    spec = head.group.spec
    inputs = head.group.inputs
    factors = head.group.factors
    rows_of_queries = int(np.prod(inputs["q"].shape[:-1]))
    # A search over large arrays would take too long.
    scores = rows_of_queries * int(inputs["k"].shape[-2])
    formulas = mistakes(spec) if factors is None else dropping(spec, factors)
    fitting = _add_fitting_mistakes(formulas, head) if scores <= _TRIED else []
    # Other attention is tried only where no formula fits.
    if all(f.off > _CLOSE for f in fitting) and scores <= _OTHERS and factors is None:
        fitting = _add_fitting_mistakes(of_wrong_attention(spec), head, fitting)
    least = min((f.off for f in fitting), default=0.0)
    # Several mistakes may fit as well as each other.
    nearest = [f for f in fitting if f.off <= _APART * least]
    named = [f.words for f in sorted(nearest, key=lambda f: f.off)]
    return call_judge.one_of(named)


def _add_fitting_mistakes(
    tried: Iterator[Mistake], head: Judged, before: Sequence[_Fitting] = ()
) -> list[_Fitting]:
    """Add mistakes that fit to those of ``before``; of mistakes with the same result, the first."""
    fitting = list(before)
    for mistake in tried:
        try:
            with np.errstate(all="ignore"):
                gradients = mistake.run(do=head.group.do, **head.group.inputs)
        except UNFIT:  # it needs other shapes, such as when dS is not transposed
            continue
        values = dict(zip(NAMES, map(np.asarray, gradients), strict=True))
        off = _measure_gradient_distance(values, head)
        if off is not None and not any(
            _are_gradients_alike(values, other.values, head) for other in fitting
        ):
            fitting.append(_Fitting(mistake.cause, off, values))
    return fitting


def _measure_gradient_distance(values: Grads, head: Judged) -> float | None:
    """The root mean square of all differences, as fractions of the bound for numbers of this size.

    None if one of them is beyond ``_ROOM`` times the bound.
    """
    shares = []
    for name, got in head.got.items():
        gradient = head.found[name]
        if values[name].shape != got.shape:
            return None
        mine = gradient.of(values[name])
        theirs = gradient.of(got)
        with np.errstate(all="ignore"):
            # Numbers larger than the exact ones also have larger rounding errors.
            largest_exact = np.abs(gradient.exact).max(initial=1e-300)
            size = max(1.0, float(np.abs(mine).max() / largest_exact))
            share = np.abs(mine - theirs) / (size * gradient.allowed)
            shares.append(share.ravel())
    whole = np.concatenate(shares) if shares else np.zeros(1)
    if not (whole <= _ROOM).all():
        return None
    return float(np.sqrt(np.mean(whole**2)))


def _are_gradients_alike(values: Grads, other: Grads, head: Judged) -> bool:
    return all(
        np.abs(values[n] - other[n]).max() <= _SAME * np.abs(values[n]).max() for n in head.got
    )


# -- the gradients of one call -----------------------------------------------------------------------------------------
SYMBOLS = {"dq": "dQ", "dk": "dK", "dv": "dV", "db": "dB"}
_SCORES = 1 << 22  # scores of one call up to which further heads are judged
_TOO_MANY = f"the gradient of what is added to scores is judged where there are no more than {_SCORES} of them"


@dataclass(frozen=True)
class Backward:
    """The finding of a backward pass: the largest error of dQ, dK, dV, each as a fraction of the bound.

    ``cause`` is the one mistake that explains an error beyond it; ``reason`` says why gradients cannot be judged.
    ``heads`` of ``of`` heads of keys, counted over the batch, were judged.
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
        """The verdict in words."""
        if self.wrong:
            cause = self.cause or f"{', '.join(self.wrong)}: no known mistake explains it"
            return f"CERTIFIED WRONG in the backward pass: {cause}"
        return f"CANNOT TELL of gradients: {self.reason}" if self.reason else "pass"

    RECORD = "ratios, cause, reason, heads, of_heads = of"


@dataclass(frozen=True, eq=False)
class Passed:
    """The gradients of a call: ``do`` of its output, and ``got``, those received of q, k, v.

    All have the axes (b, h, n, d); ``factors`` (b, h, n_q, n_k) are the factors of dropout. ``rows`` and ``contract``
    are those of the audit. ``biases`` are the gradients of arrays added to scores, each of the shape of its array.
    """

    received: Received
    do: Tensor
    got: Mapping[str, Tensor]
    rows: int | None
    contract: str | None
    factors: Floats | None = None
    biases: Sequence[Tensor] = ()

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Items, heads of queries and of keys, queries, keys."""
        (b, h, n_q, _), (_, g, n_k, _) = (
            heads_apart(t).shape for t in (self.received.q, self.received.k)
        )
        return int(b), int(h), int(g), int(n_q), int(n_k)

    def places(self) -> list[tuple[int, int]]:
        """The items and heads of keys that are judged: all, or as many as the limit on scores allows."""
        b, h, g, n_q, n_k = self.sizes
        count = b * g
        if self.rows is not None:
            scores_of_group = max(1, h // g * n_q * n_k)
            count = max(1, min(count, _SCORES // scores_of_group))
        # Heads are evenly spread over all items.
        spread = np.linspace(0, b * g - 1, count).astype(int)
        return [divmod(int(i), g) for i in np.unique(spread)]

    def judged(self, item: int, head: int) -> Judged:
        """Judge one head of keys. Raises ``UnreadCall`` and what the bound raises."""
        call = read(
            _narrow_call_to_head(self.received, item, head),
            None,
            self.contract,
            [],
            dropping=self.factors is not None,
        )
        if call.given.biases > 1:
            raise UnreadCall("several biases are added to the scores: the bound covers one")
        spec, inputs = bounded(call.given)
        _, h, g, n_q, n_k = self.sizes
        do = _slice_numbers_of_heads(self.do, item, head, g)
        if not np.isfinite(do).all():
            raise UnreadCall(
                # NaN that arrives was not made here.
                "the gradient of the output holds NaN or infinity: the cause is after the call"
            )
        # A query without keys has no specified result, and so no gradient.
        if (call.given.empty() & (do != 0).any(axis=-1)).any():
            raise UnreadCall(
                "a query that may see no key has a gradient: its result is not specified"
            )
        got = {name: _slice_numbers_of_heads(a, item, head, g) for name, a in self.got.items()}
        queries = np.arange(n_q) if self.rows is None else np.array(chosen(spec, inputs, self.rows))
        keys = np.arange(n_k) if self.rows is None else sampled(n_k, self.rows)
        # The heads of queries that share this head of keys.
        many = slice(head * h // g, (head + 1) * h // g)
        how = call_judge.together(call.arithmetic)
        own = None if self.factors is None else self.factors[item : item + 1, many]
        result = nearest(spec, inputs, do, how, got, queries, keys, own)
        return Judged(Group(item, many, spec, inputs, do, how, own), got, result)


@one_blas_thread
def judge_gradients(passed: Passed) -> Backward:
    """Judge the gradients of one call by the bound of ``bounds.sharp.backward``, which holds for any roundings."""
    places, most, reason = passed.places(), dict.fromkeys(passed.got, 0.0), ""
    first: Judged | None = None
    groups: list[Group] = []
    for item, head in places:
        try:
            judged = passed.judged(item, head)
        # Another head may still be judged.
        except SymattnError as error:
            reason = reason or str(error)
            continue
        ratios = judged.ratios()
        groups.append(judged.group)
        # ``not … <= 1`` holds for NaN as well.
        first = judged if first is None and not max(ratios.values(), default=0.0) <= 1 else first
        most = {name: max(most[name], ratio) for name, ratio in ratios.items()}
    b, _, g, *_ = passed.sizes
    # All heads contribute to the gradient of a shared bias.
    if passed.biases and len(groups) == b * g:
        most["db"] = max(ratio(groups, came) for came in passed.biases)
    elif passed.biases:
        reason = reason or _TOO_MANY
    return Backward(
        most if groups else {},
        cause(first) if first is not None else "",
        reason,
        len(groups),
        b * g,
    )


def bounded(call_setting: CallSetting) -> Bounded:
    """Return the specification and inputs of a call that the bound covers. Raises ``UnreadCall`` for others."""
    spec, inputs = replace(call_setting.spec(), fully_masked="zeros"), call_setting.inputs()
    arrays = (call_setting.q, call_setting.k, call_setting.v)
    if not all(np.isfinite(a).all() for a in arrays):
        raise UnreadCall("q, k or v holds NaN or infinity: the cause is before the call")
    if not within(spec, inputs):
        raise UnreadCall("there is no bound for this kind of attention here")
    return spec, inputs


def _narrow_call_to_head(received: Received, item: int, head: int) -> Received:
    """Return the call for one item and one head of keys."""
    q, k, v = (heads_apart(t) for t in (received.q, received.k, received.v))
    batches = {int(t.shape[0]) for t in (q, k, v)}
    # Broadcast arrays get the sum of several gradients.
    if len(batches) > 1 or int(q.shape[1]) % int(k.shape[1]):
        raise UnreadCall(
            "q, k and v have other numbers of items or heads, so that gradients are sums over them"
        )
    times = int(q.shape[1]) // int(k.shape[1])
    one = slice(head, head + 1)
    many = slice(head * times, (head + 1) * times)
    return replace(
        received,
        q=q[item : item + 1, many],
        k=k[item : item + 1, one],
        v=v[item : item + 1, one],
        masks=[_slice_mask_of_heads(m, item, many) for m in received.masks if m is not None],
        sink=None if received.sink is None else received.sink.reshape(-1)[many],
    )


def _slice_mask_of_heads(mask: Tensor, item: int, heads: slice) -> Tensor:
    """Return the part of a mask for some heads of one item. A mask is an array, or a function that returns its rows."""
    if callable(mask):
        return lambda rows: _slice_mask_of_heads(mask(rows), item, heads)
    mask = heads_apart(mask)
    of_item = mask if mask.shape[0] == 1 else mask[item : item + 1]
    return of_item if of_item.shape[1] == 1 else of_item[:, heads]


def _slice_numbers_of_heads(array: Tensor, item: int, head: int, groups: int) -> Floats:
    """Return the heads of an array that belong to a head of keys."""
    whole = heads_apart(array)
    times = int(whole.shape[1]) // groups
    heads_of_group = slice(head * times, (head + 1) * times)
    return numbers(whole[item : item + 1, heads_of_group])
