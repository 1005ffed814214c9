"""Textbook entries of scores, and of weights: softmax with its sinks, what stands in its place, dropout, log-sums."""

from __future__ import annotations

from fractions import Fraction
from functools import cmp_to_key
from typing import Any

from symattn.arrays.special import FORBIDDEN, Forbidden, Undefined
from symattn.attention.positions.fields import Disentangled
from symattn.derivations.attention.place import Entry, Index, Place, allowed, for_head, part


def _score(place: Place, index: Index) -> Any:
    *front, i, j = index
    q, k = part(place.of(0), tuple(front), 2)[i], part(place.of(1), tuple(front), 2)[j]
    match place.spec.score:
        case "general":
            return place.sum(x * w * y for x, row in zip(q, _own(place, index, "w_s", 2), strict=True)
                             for w, y in zip(row, k, strict=True))  # fmt: skip
        case "additive":
            return _additive(place, index, q, k)
        case "cosine":
            lengths = place.dot(q, q), place.dot(k, k)
            roots = [place.algebra.apply("sqrt", x) for x in lengths]
            return place.dot(q, k) / (roots[0] * roots[1])
        case "distance":
            return -place.sum((x - y) * (x - y) for x, y in zip(q, k, strict=True)) / place.number(2)
    return place.dot(q, k)


def _own(place: Place, index: Index, name: str, last: int) -> Any:
    """A matrix or a vector of the scores, or that of the head."""
    _, head = place.split(index[:-2])
    return for_head(place.arrays[name], (), head, place.spec.heads, last, 0)


def _additive(place: Place, index: Index, q: Any, k: Any) -> Any:
    """Σ_m v_m tanh(Σ_l q_il w_lm + Σ_l k_jl u_lm)."""
    w, u, v = (_own(place, index, name, last) for name, last in (("w_s", 2), ("u_s", 2), ("v_s", 1)))
    hidden = (place.dot(q, w[:, m]) + place.dot(k, u[:, m]) for m in range(len(v)))
    return place.sum(x * place.algebra.apply("tanh", h) for x, h in zip(v, hidden, strict=True))


def _scaled(place: Place, index: Index) -> Any:
    score, scale = place.of(0)[index], place.spec.scale
    if scale == "given":
        return score * place.arrays["scale"][place.split(index[:-2])[1]]
    if scale is None or isinstance(scale, str):
        terms = place.spec.position.terms if isinstance(place.spec.position, Disentangled) and scale is None else 1
        width = place.number(terms * place.of(1).shape[-1])
        return score / (place.algebra.apply("sqrt", width) if scale is None else width)
    return score * place.number(scale)


def _capped(place: Place, index: Index) -> Any:
    """c tanh(s_ij / c)."""
    assert place.spec.softcap is not None
    cap = place.number(place.spec.softcap)
    return cap * place.algebra.apply("tanh", place.of(0)[index] / cap)


def _biased(place: Place, index: Index) -> Any:
    return place.of(0)[index] + added(place, "bias", index)


def added(place: Place, name: str, index: Index) -> Any:
    """The entry of a mask or bias (…, (h), n_q, n_k), whose axes may have the length 1, for a score."""
    batch, head = place.split(index[:-2])
    rows = for_head(place.arrays[name], batch, head, place.spec.heads, 2, len(batch))
    i, j = (0 if n == 1 else x for x, n in zip(index[-2:], rows.shape, strict=True))
    return rows[i, j]


def _masked(place: Place, index: Index) -> Any:
    """s_ij, with an additive mask s_ij + m_ij, where the query may see the key; −∞ elsewhere."""
    batch, _ = place.split(index[:-2])
    spec = place.spec
    score = place.of(0)[index]
    if not allowed(spec, place.arrays, batch, place.shape[-2:], index[-2:]):
        return FORBIDDEN
    if spec.mask == "boolean" and not added(place, "mask", index):
        return FORBIDDEN
    return score + added(place, "mask", index) if spec.mask == "additive" else score


# -- weights -----------------------------------------------------------------------------------------------------------
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
    """Return the result of a row without any key."""
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
    less = place.algebra.less
    half = place.number(Fraction(1, 2)) if place.spec.normaliser == "entmax" else place.algebra.number(1)
    scores = sorted((s * half for s in seen), key=cmp_to_key(lambda x, y: less(y, x) - less(x, y)), reverse=True)
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


ENTRIES: dict[str, Entry] = {
    "scores": _score,
    "scaled": _scaled,
    "capped": _capped,
    "biased": _biased,
    "masked": _masked,
    "weights": _weight,
    "dropped": _dropped,
    "lse": _lse,
}
