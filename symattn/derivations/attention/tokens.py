"""Textbook entries from tokens to queries, keys and values, and from outputs of heads to the output."""

from __future__ import annotations

from typing import Any

from symattn.derivations.attention.place import Entry, Front, Index, Place, part


def _projected(place: Place, index: Index) -> Any:
    """Σ_m x_im w_ml + b_l, column l of head a standing at (a − 1)d + l; normalised where a latent is."""
    *front, i, column = index
    batch, head = place.split(tuple(front))
    rows = part(place.of(0), batch, 2)
    if len(place.step.of) == 1:
        return rows[i, column]
    width = place.shape[-1]
    normed = place.step.name in ("c_q", "c_kv") and place.spec.latent is not None and place.spec.latent.norm
    if not normed:
        bias = place.of(2) if len(place.step.of) > 2 else None
        return _affine(place, rows[i], place.of(1), bias, head * width + column)
    assert place.spec.latent is not None
    row = [_affine(place, rows[i], place.of(1), None, c) for c in range(width)]
    gain = place.of(2)[column] if len(place.step.of) > 2 else None
    return _over_root(place, row, row[column], place.spec.latent.eps, gain)


def _affine(place: Place, row: Any, w: Any, bias: Any, column: int) -> Any:
    total = place.dot(row, w[:, column])
    return total if bias is None else total + bias[column]


def _over_root(place: Place, row: Any, x: Any, eps: Any, gain: Any, bias: Any = None) -> Any:
    """g x / √(mean(row²) + ε) + b."""
    mean = place.dot(row, row) / place.number(len(row)) + place.number(eps)
    result = x / place.algebra.apply("sqrt", mean)
    result = result if gain is None else result * gain
    return result if bias is None else result + bias


def _unpacked(place: Place, index: Index) -> Any:
    """The columns q | k | v of the packed matrix."""
    role, h, g = place.step.name[-1], place.spec.heads, place.spec.key_heads
    packed = place.of(0)
    width = packed.shape[-1] // (h + 2 * g)
    start = {"q": 0, "k": h * width, "v": (h + g) * width}[role]
    return packed[(*index[:-1], start + index[-1])]


def _first_part(place: Place, index: Index) -> Any:
    return place.of(0)[index]


def _last_part(place: Place, index: Index) -> Any:
    q = place.of(0)
    return q[(*index[:-1], q.shape[-1] - place.shape[-1] + index[-1])]


def _joined(place: Place, index: Index) -> Any:
    """The own part, then the shared one, the same for every head."""
    *front, i, column = index
    own, shared = place.of(0), place.of(1)
    width = own.shape[-1]
    array, at = (own, column) if column < width else (shared, column - width)
    # What every head shares has no axis of heads; of k with its matrices absorbed, neither part has one.
    headed = array.ndim == len(index)
    return part(array, tuple(front) if headed else place.split(tuple(front))[0], 2)[i, at]


def _absorbed(place: Place, index: Index) -> Any:
    """Σ_e q_ie u_{l,(a − 1)d + e}."""
    *front, i, column = index
    _, head = place.split(tuple(front))
    q = place.of(0)[(*front, i)]
    return place.dot(q, place.of(1)[column, head * len(q) : (head + 1) * len(q)])


def _latents_as_values(place: Place, index: Index) -> Any:
    *front, j, column = index
    return part(place.of(0), place.split(tuple(front))[0], 2)[j, column]


def _normed(place: Place, index: Index) -> Any:
    """The vector over the root of its mean square, or its length; first less its mean for ``layer``."""
    kind, eps = place.spec.qk_norm, place.spec.eps
    row, column = list(place.of(0)[index[:-1]]), index[-1]
    if kind == "l2":
        return row[column] / place.algebra.apply("sqrt", place.dot(row, row))
    if kind == "layer":
        mean = place.sum(row) / place.number(len(row))
        row = [x - mean for x in row]
    role = place.step.name[0]
    gain, bias = place.given(f"g_{role}"), place.given(f"beta_{role}")
    return _over_root(
        place, row, row[column], eps, None if gain is None else gain[column], None if bias is None else bias[column]
    )


def _shared(place: Place, index: Index) -> Any:
    """Head t reads the head ⌊t / (h/g)⌋ of keys and values."""
    *batch, head, j, column = index
    times = place.spec.group
    return place.of(0)[(*batch, head // times, j, column)]


def _attended(place: Place, index: Index) -> Any:
    """Σ_j a_ij v_jl; of latents Σ_m c_im u_{m,(a − 1)d + l}; with relative values Σ_j a_ij (v_jl + r_l)."""
    if place.step.of[0] == "attended_latents":
        *front, i, column = index
        _, head = place.split(tuple(front))
        return place.dot(place.of(0)[(*front, i)], place.of(1)[:, head * place.shape[-1] + column])
    return _mixture(place, index)


def _mixture(place: Place, index: Index) -> Any:
    from symattn.derivations.attention.positions import relative_values

    *front, i, column = index
    weights, values = part(place.of(0), tuple(front), 2)[i], part(place.of(1), tuple(front), 2)
    more = relative_values(place, tuple(front), i, column) if len(place.step.of) > 2 else None
    return place.sum(a * (values[j, column] if more is None else values[j, column] + more[j])
                     for j, a in enumerate(weights))  # fmt: skip


def _output(place: Place, index: Index) -> Any:
    """The heads side by side times W_O, or the weighted values themselves."""
    if place.step.of[0] not in ("attended", "attended_latents"):
        return _mixture(place, index)
    *batch, i, column = index
    row = _merged(place, tuple(batch), i)
    w = place.given("w_o")
    return row[column] if w is None else _affine(place, row, w, place.given("b_o"), column)


def _merged(place: Place, batch: Front, i: int) -> list[Any]:
    attended = place.of(0)
    heads = [(*batch, a) for a in range(place.spec.heads)] if attended.ndim > len(batch) + 2 else [batch]
    return [x for front in heads for x in attended[(*front, i)]]


ENTRIES: dict[str, Entry] = {
    **dict.fromkeys(("q", "k", "v", "c_q", "c_kv", "k_r", "k_n", "r_k", "p_k", "p_q"), _projected),
    **dict.fromkeys(("w_q", "w_k", "w_v", "b_q", "b_k", "b_v"), _unpacked),
    "q_n": _first_part, "q_r": _last_part, "q_cut": _first_part, "k_cut": _first_part, "q_joined": _joined,
    "k_joined": _joined, "q_absorbed": _absorbed, "v_absorbed": _latents_as_values, "q_normed": _normed,
    "k_normed": _normed, "k_shared": _shared, "v_shared": _shared, "attended": _attended,
    "attended_latents": _mixture, "output": _output,
}  # fmt: skip
