"""Textbook entries of weights: softmax with its sinks, what stands in its place, dropout, logarithms of sums."""

from __future__ import annotations

from fractions import Fraction
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

from symattn.arrays.special import FORBIDDEN, Forbidden, Undefined
from symattn.derivations.attention.place import Place
from symattn.derivations.attention.scores import added

if TYPE_CHECKING:
    from symattn.derivations.attention.entries import Entry

Index = tuple[int, ...]


def _weight(place: Place, index: Index) -> Any:
    row, j = list(place.of(0)[index[:-1]]), index[-1]
    match place.spec.normaliser:
        case "sigmoid":
            return _sigmoid(place, row, j)
        case "relu":
            return _relu(place, row, j)
        case "sparsemax" | "entmax":
            return _projected(place, row, j)
    return _softmax(place, index, row, j)


def _softmax(place: Place, index: Index, row: list[Any], j: int) -> Any:
    """e^{s_ij} / Σ_l e^{s_il}, a forbidden key with e^{−∞} = 0, and the sink's power below."""
    powers = [_power(place, s) for s in row]
    total = place.sum([*[p for p in powers if p is not None], *_sink(place, index)])
    if all(p is None for p in powers):
        return _empty(place)
    power = powers[j]
    return place.algebra.number(0) if power is None else power / total


def _empty(place: Place) -> Any:
    """What a row without any key gives."""
    zeros = place.spec.fully_masked == "zeros" or place.spec.sink is not None
    return place.algebra.number(0) if zeros else Undefined("0/0")


def _power(place: Place, s: Any) -> Any:
    """e^s, or 2^s; None for a forbidden key."""
    if isinstance(s, Forbidden):
        return None
    return place.algebra.apply("exp2" if place.spec.base == 2 else "exp", s)


def _sink(place: Place, index: Index) -> list[Any]:
    """The power of the sink's logit, if there is one."""
    if place.spec.sink is None:
        return []
    if place.spec.sink == "zero":
        return [place.algebra.number(1)]
    head = index[len(index) - 3] if place.spec.heads > 1 else 0
    if place.step.name == "lse":
        head = index[-2] if place.spec.heads > 1 else 0
    return [_power(place, place.arrays["sink"][head])]


def _sigmoid(place: Place, row: list[Any], j: int) -> Any:
    """1 / (1 + e^{−s}), of a score less log n_k unless there is a bias."""
    if isinstance(row[j], Forbidden):
        return place.algebra.number(0)
    power = place.algebra.apply("exp", row[j])
    share = power if place.spec.bias else power / place.number(len(row))
    return share / (place.algebra.number(1) + share)


def _relu(place: Place, row: list[Any], j: int) -> Any:
    """max(s, 0) / n_k."""
    zero = place.algebra.number(0)
    return zero if isinstance(row[j], Forbidden) else place.algebra.larger(row[j], zero) / place.number(len(row))


def _projected(place: Place, row: list[Any], j: int) -> Any:
    """sparsemax: max(s_j − τ, 0), entmax: max(s_j/2 − τ, 0)², τ such that the row sums to 1.

    τ is looked for by the number of keys that get something: that of the largest k scores is right if it leaves
    exactly those above it.
    """
    zero = place.algebra.number(0)
    seen = [s for s in row if not isinstance(s, Forbidden)]
    if not seen:
        return _empty(place)
    half = place.number(Fraction(1, 2)) if place.spec.normaliser == "entmax" else place.algebra.number(1)
    scores = sorted((s * half for s in seen), key=cmp_to_key(lambda x, y: _order(place, x, y)), reverse=True)
    for k in range(1, len(scores) + 1):
        tau = _threshold(place, scores[:k])
        if tau is not None and (k == len(scores) or not place.algebra.less(tau, scores[k])):
            break
    if isinstance(row[j], Forbidden) or not place.algebra.less(tau, row[j] * half):
        return zero
    gap = row[j] * half - tau
    return gap if place.spec.normaliser == "sparsemax" else gap * gap


def _threshold(place: Place, scores: list[Any]) -> Any:
    """τ with Σ (s − τ) = 1, or Σ (s − τ)² = 1 and τ below the scores; None where there is none."""
    k, mean = place.number(len(scores)), place.sum(scores) / place.number(len(scores))
    if place.spec.normaliser == "sparsemax":
        return mean - place.algebra.number(1) / k
    inside = (place.algebra.number(1) - place.sum((s - mean) * (s - mean) for s in scores)) / k
    if place.algebra.less(inside, place.algebra.number(0)):
        return None
    tau = mean - place.algebra.apply("sqrt", inside)
    return None if place.algebra.less(scores[-1], tau) else tau


def _order(place: Place, x: Any, y: Any) -> int:
    return -1 if place.algebra.less(x, y) else 1 if place.algebra.less(y, x) else 0


def _dropped(place: Place, index: Index) -> Any:
    """a_ij / (1 − r) for a weight that is kept, 0 for the others."""
    if not added(place, "drop", index):
        return place.algebra.number(0)
    return place.of(0)[index] / place.number(1 - Fraction(str(place.spec.dropout)))


def _lse(place: Place, index: Index) -> Any:
    """log Σ_j e^{s_ij}, or log₂ Σ_j 2^{s_ij}; −∞ where every key is forbidden."""
    powers = [p for p in (_power(place, s) for s in place.of(0)[index]) if p is not None]
    total = [*powers, *_sink(place, (*index, 0))]
    if not total:
        return FORBIDDEN
    return place.algebra.apply("log2" if place.spec.base == 2 else "log", place.sum(total))


ENTRIES: dict[str, Entry] = {"weights": _weight, "dropped": _dropped, "lse": _lse}
