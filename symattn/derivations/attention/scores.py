"""Textbook entries of scores: how queries and keys are compared, and what becomes of it before weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symattn.arrays.special import FORBIDDEN
from symattn.attention.positions.fields import Disentangled
from symattn.derivations.attention.place import Place, allowed, for_head, part

if TYPE_CHECKING:
    from symattn.derivations.attention.entries import Entry

Index = tuple[int, ...]


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


ENTRIES: dict[str, Entry] = {
    "scores": _score,
    "scaled": _scaled,
    "capped": _capped,
    "biased": _biased,
    "masked": _masked,
}
