"""Attention of one sequence, every field of ``Attention``, by loops over plain numbers.

Written from the formulas of the papers and of the docstrings, and from nothing else: no array, no shape and no step of
the package is used. Arrays are nested lists of mpmath numbers (or of truth values and whole numbers) without axes of
batches; what has an axis of heads in the package has one here.
"""

from fractions import Fraction
from itertools import chain, combinations
from typing import Any

import mpmath

from symattn import Attention, Disentangled, Rotary, Shaw
from tests.attention.by_loops_positions import (
    INF,
    NAN,
    ZERO,
    Given,
    Rows,
    angles,
    clip,
    distances,
    dot,
    in_heads,
    num,
    over,
    times,
)


class FullyMasked(Exception):
    """A row is fully masked, and that is an error."""


def normed(kind: str, row: Any, eps: Any, gain: Any = None, bias: Any = None) -> list[Any]:
    if kind == "l2":
        length = mpmath.sqrt(dot(row, row))
        return [over(x, length) for x in row]
    mean = sum(row, ZERO) / len(row) if kind == "layer" else ZERO
    spread = mpmath.sqrt(sum(((x - mean) ** 2 for x in row), ZERO) / len(row) + num(eps))
    out = [over(x - mean, spread) for x in row]
    out = [g * x for g, x in zip(gain, out, strict=True)] if gain else out
    return [x + b for x, b in zip(out, bias, strict=True)] if bias else out


def attention(spec: Attention, given: Given) -> dict[str, Any]:
    """``output``: rows, or a list of heads of rows; ``lse``: a row, or a row a head; ``scores``: all that count."""
    q, k, v, turn = heads_of(spec, given)
    n_q, n_k = len(q[0]), len(k[0])
    if turn is not None and isinstance(spec.position, Rotary):
        q_angles, k_angles = angles(spec, given, n_q, n_k, turn)
        q, k = ([[rotated(row, a, spec.position.layout, turn) for row, a in zip(x, table, strict=True)] for x in heads]
                for heads, table in ((q, q_angles), (k, k_angles)))  # fmt: skip
    if spec.qk_norm and spec.qk_norm_place == "after":
        q, k = both_normed(spec, given, q, k)
    if spec.value_norm:
        v = [[normed(spec.value_norm, r, spec.eps, given.get("g_v")) for r in x] for x in v]
    outputs, sums, scores = [], [], []
    for h in range(spec.heads):
        g = h * len(k) // spec.heads
        one = {name: of_head(name, x, h) for name, x in given.items()}
        rows = [row(spec, one, h, q[h], k[g], i) for i in range(n_q)]
        outputs.append([mixed(spec, one, weights, v[g], i) for i, (weights, _, _) in enumerate(rows)])
        sums.append([total for _, total, _ in rows])
        scores += chain.from_iterable(seen for _, _, seen in rows)
    late = spec.output_gate_place == "after"
    if spec.output_gate and not late:
        gates = given["gate"] if spec.heads > 1 else [given["gate"]]
        outputs = [[gated(*rows) for rows in zip(*pair, strict=True)] for pair in zip(outputs, gates, strict=True)]
    if spec.heads > 1 and "x" in given:
        outputs = [[list(chain.from_iterable(head[i] for head in outputs)) for i in range(n_q)]]
    if "w_o" in given:
        outputs = [times(x, given["w_o"], given.get("b_o")) for x in outputs]
    if spec.output_gate and late:
        outputs = [[gated(row, gate) for row, gate in zip(outputs[0], given["gate"], strict=True)]]
    lse = sums if spec.heads > 1 else sums[0]
    return {"output": outputs if len(outputs) > 1 else outputs[0], "lse": lse, "scores": scores}


def gated(row: Any, gate: Any) -> list[Any]:
    """Each number over 1 + e^{−g}, for a gate of each column or of the row."""
    return [x / (1 + mpmath.exp(-(gate[c] if len(gate) > 1 else gate[0]))) for c, x in enumerate(row)]


def heads_of(spec: Attention, given: Given) -> tuple[list[Rows], list[Rows], list[Rows], tuple[int, int] | None]:
    """Queries, keys and values head by head, and which columns of queries and keys rotary positions may turn."""
    heads, shared = spec.heads, spec.kv_heads or spec.heads
    if "x" not in given:
        q, k, v = (given[n] if heads > 1 else [given[n]] for n in "qkv")
    elif spec.latent:
        return latent(spec, given)
    else:
        x = given["x"]
        y = given.get("y") or x
        if spec.packed:
            w, b = given["w_in"], given.get("b_in")
            d = len(w[0]) // (heads + 2 * shared)
            q = [times(x, w, b, h * d, d) for h in range(heads)]
            k = [times(y, w, b, (heads + h) * d, d) for h in range(shared)]
            v = [times(y, w, b, (heads + shared + h) * d, d) for h in range(shared)]
        elif "w_q" in given:
            q = in_heads(x, given["w_q"], heads, given.get("b_q"))
            k = in_heads(y, given["w_k"], shared, given.get("b_k"))
            v = in_heads(y, given["w_v"], shared, given.get("b_v"))
        else:
            q, k, v = [x], [y], [y]
    if spec.qk_norm and spec.qk_norm_place == "before":
        q, k = both_normed(spec, given, q, k)
    return q, k, v, (0, len(q[0][0]))


def both_normed(spec: Attention, given: Given, q: list[Rows], k: list[Rows]) -> tuple[list[Rows], list[Rows]]:
    """Queries and keys, each row of each head normalised, or the rows of all heads of a token as one; or keys alone."""
    keys = normed_rows(spec, given, "k", k)
    return (q if spec.qk_norm_of == "keys" else normed_rows(spec, given, "q", q)), keys


def normed_rows(spec: Attention, given: Given, name: str, heads: list[Rows]) -> list[Rows]:
    if spec.qk_norm_over == "heads":
        return normed_over_heads(spec, given, name, heads)
    kind, gain, bias = str(spec.qk_norm), given.get(f"g_{name}"), given.get(f"beta_{name}")
    return [[normed(kind, row, spec.eps, gain, bias) for row in rows] for rows in heads]


def normed_over_heads(spec: Attention, given: Given, name: str, heads: list[Rows]) -> list[Rows]:
    """The numbers of all heads of a token are one row, normalised, and cut again."""
    gain, bias, width = given.get(f"g_{name}"), given.get(f"beta_{name}"), len(heads[0][0])
    out: list[Rows] = [[] for _ in heads]
    for token in range(len(heads[0])):
        whole = normed(str(spec.qk_norm), [x for head in heads for x in head[token]], spec.eps, gain, bias)
        for h in range(len(heads)):
            out[h].append(whole[h * width : (h + 1) * width])
    return out


def latent(spec: Attention, given: Given) -> tuple[list[Rows], list[Rows], list[Rows], tuple[int, int]]:
    asked = spec.latent
    assert asked
    x = given["x"]
    y = given.get("y") or x

    def compressed(of: Rows, weight: str, gain: str) -> Rows:
        rows = times(of, given[weight])
        return [normed("rms", r, asked.eps, given.get(gain)) for r in rows] if asked.norm else rows

    c = compressed(y, "w_dkv", "g_ckv")
    if asked.queries:
        q = in_heads(compressed(x, "w_dq", "g_cq"), given["w_uq"], spec.heads)
    else:
        q = in_heads(x, given["w_q"], spec.heads, given.get("b_q"))
    own = in_heads(c, given["w_uk"], spec.heads)
    shared = times(y, given["w_kr"])
    k = [[[*a, *b] for a, b in zip(head, shared, strict=True)] for head in own]
    v = in_heads(c, given["w_uv"], spec.heads)
    return q, k, v, (len(own[0][0]), len(shared[0]))


def rotated(row: Any, factors: Any, layout: str, where: tuple[int, int]) -> list[Any]:
    """Pairs of columns as complex numbers, times a complex number each; ``where``: the first column, and how many."""
    out, start = list(row), where[0]
    for pair, z in enumerate(factors):
        a, b = (pair, pair + len(factors)) if layout == "half" else (2 * pair, 2 * pair + 1)
        w = mpmath.mpc(row[start + a], row[start + b]) * z
        out[start + a], out[start + b] = w.real, w.imag
    return out


def of_head(name: str, x: Any, h: int) -> Any:
    depth = {"mask": 2, "bias": 2, "drop": 2, "w_s": 2, "u_s": 2, "v_s": 1, "scale": 0, "sink": 0, "slopes": 0,
             "b_u": 1, "b_w": 1}.get(name)  # fmt: skip
    if depth is None:
        return x
    deep, y = 0, x
    while isinstance(y, list):
        deep, y = deep + 1, y[0]
    return x[h if len(x) > 1 else 0] if deep > depth else x


def row(spec: Attention, given: Given, head: int, q: Rows, k: Rows, i: int) -> tuple[list[Any], Any, list[Any]]:
    """The weights of one query, the logarithm of what they were divided by, and the scores."""
    n_q, n_k = len(q), len(k)
    extra = distances(spec, given, head, n_q, n_k)
    scores = {}
    for j in range(n_k):
        if not may(spec, given, n_q, n_k, i, j):
            continue
        s = score(spec, given, q[i], k[j])
        inner, outer = extra(i, j, q[i], k[j])
        later = 0 if spec.alignment == "top-left" else n_k - n_q
        s = scaled(spec, given, s + inner, len(q[i])) * temperature(spec, i + later)
        s = num(spec.softcap) * mpmath.tanh(s / num(spec.softcap)) if spec.softcap is not None else s
        s += outer + (at(given["bias"], i, j) if spec.bias else 0)
        s += at(given["mask"], i, j) if spec.mask == "additive" else 0
        if s != -INF:
            scores[j] = s
    base = mpmath.mpf(2) if spec.base else mpmath.e
    sink = {None: ZERO, "zero": mpmath.mpf(1)}.get(spec.sink)
    sink = mpmath.power(base, given["sink"]) if sink is None else sink
    total = sum((mpmath.power(base, s) for s in scores.values()), sink)
    found = dict(zip(scores, weights(spec, list(scores.values()), n_k, base, total), strict=True))
    weighed = [found.get(j, ZERO) for j in range(n_k)]
    if not scores and spec.normaliser in ("softmax", "sparsemax", "entmax") and spec.sink is None:
        if spec.fully_masked == "error":
            raise FullyMasked
        weighed = [NAN if spec.fully_masked == "nan" else ZERO for _ in weighed]
    if spec.dropout:
        kept = 1 - num(Fraction(str(spec.dropout)))
        weighed = [a / kept if at(given["drop"], i, j) else ZERO for j, a in enumerate(weighed)]
    return weighed, mpmath.log(total) / mpmath.log(base) if total else -INF, list(scores.values())


def at(x: Rows, i: int, j: int) -> Any:
    """An entry of a matrix that may have one row or one column for all."""
    line = x[0 if len(x) == 1 else i]
    return line[0 if len(line) == 1 else j]


def score(spec: Attention, given: Given, x: Any, y: Any) -> Any:
    if spec.truncate:
        x, y = x[: spec.truncate], y[: spec.truncate]
    if spec.score == "general":
        return sum(
            (a * w * b for a, line in zip(x, given["w_s"], strict=True) for w, b in zip(line, y, strict=True)), ZERO
        )
    if spec.score == "additive":
        w, u = given["w_s"], given["u_s"]
        hidden = [dot(x, [r[c] for r in w]) + dot(y, [r[c] for r in u]) for c in range(len(given["v_s"]))]
        return dot(given["v_s"], [mpmath.tanh(z) for z in hidden])
    if spec.score == "cosine":
        return over(dot(x, y), mpmath.sqrt(dot(x, x)) * mpmath.sqrt(dot(y, y)))
    if spec.score == "distance":
        return -sum(((a - b) ** 2 for a, b in zip(x, y, strict=True)), ZERO) / 2
    return dot(x, y)


def scaled(spec: Attention, given: Given, s: Any, d: int) -> Any:
    if spec.scale is None:
        terms = spec.position.terms if isinstance(spec.position, Disentangled) else 1
        return s / mpmath.sqrt(terms * d) if spec.score == "dot" else s
    if spec.scale == "given":
        return s * given["scale"]
    return s / d if spec.scale == "1/d_k" else s * num(spec.scale)


def temperature(spec: Attention, place: int) -> Any:
    """1 + β log(⌊p/f⌋ + 1), or max(1, log p/log f), with the place p of a query; ``place``: counted from 0."""
    p, f = max(place + spec.temperature_start, 0), spec.temperature_rate
    if spec.temperature == "log":
        return max(mpmath.mpf(1), mpmath.log(p) / mpmath.log(f)) if p else mpmath.mpf(1)
    beta = Fraction(str(spec.temperature or 0))
    return 1 + num(beta) * mpmath.log(mpmath.floor(mpmath.mpf(p) / f) + 1)


def may(spec: Attention, given: Given, n_q: int, n_k: int, i: int, j: int) -> bool:
    if spec.mask == "boolean" and not at(given["mask"], i, j):
        return False
    if spec.padding and not given["keep"][j]:
        return False
    mine, here = list(range(n_q)), list(range(n_k))
    if spec.documents:
        of_q, of_k = (given[n] if n in given else given["doc"] for n in ("doc_q", "doc_k"))
        if of_q[i] != of_k[j]:
            return False
        mine, here = [t for t in mine if of_q[t] == of_q[i]], [t for t in here if of_k[t] == of_k[j]]
    a, b = mine.index(i), here.index(j)
    a += len(here) - len(mine) if spec.alignment == "bottom-right" else 0
    if spec.causal and b > a and not (spec.prefix is not None and b < spec.prefix):
        return False
    if spec.window is not None:
        left, right = spec.window if isinstance(spec.window, tuple) else (spec.window - 1, 0)
        if (left is not None and b < a - left) or (right is not None and b > a + right):
            return False
    return spec.block is None or a // spec.block == b // spec.block


def weights(spec: Attention, row: list[Any], n_k: int, base: Any, total: Any) -> list[Any]:
    if spec.normaliser == "softmax":
        return [mpmath.power(base, s) / total for s in row]
    if spec.normaliser == "sigmoid":
        shift = 0 if spec.bias else mpmath.log(n_k)
        return [1 / (1 + mpmath.exp(shift - s)) for s in row]
    if spec.normaliser == "relu":
        return [max(s, ZERO) / n_k for s in row]
    if spec.normaliser == "relu_sum":
        return [max(s, ZERO) for s in row]
    return simplex(row) if spec.normaliser == "sparsemax" else tsallis(row)


def supports(n: int) -> Any:
    return chain.from_iterable(combinations(range(n), m) for m in range(n, 0, -1))


def simplex(row: list[Any]) -> list[Any]:
    """The point of the simplex that is nearest to the row: the right support is the one that gives a nearest point."""
    for some in supports(len(row)):
        tau = (sum((row[j] for j in some), ZERO) - 1) / len(some)
        if all(row[j] >= tau for j in some) and all(row[j] <= tau for j in range(len(row)) if j not in some):
            return [max(x - tau, ZERO) for x in row]
    return [NAN for _ in row]


def tsallis(row: list[Any]) -> list[Any]:
    """p_j = max(s_j/2 − τ, 0)² with the τ for which they sum to one, by halving an interval."""
    half = [x / 2 for x in row]
    if not row or any(mpmath.isnan(x) for x in row):
        return [NAN for _ in row]
    low, high = max(half) - 1, max(half)
    for _ in range(mpmath.mp.prec + 8):
        tau = (low + high) / 2
        if sum((max(x - tau, ZERO) ** 2 for x in half), ZERO) >= 1:
            low = tau
        else:
            high = tau
    return [max(x - low, ZERO) ** 2 for x in half]


def mixed(spec: Attention, given: Given, weights: list[Any], v: Rows, i: int) -> list[Any]:
    out = [sum((a * x[c] for a, x in zip(weights, v, strict=True)), ZERO) for c in range(len(v[0]))]
    asked = spec.position
    if isinstance(asked, Shaw) and asked.values:
        late = 0 if spec.alignment == "top-left" else len(v) - given["n_q"]
        lines = [given["a_v"][clip(j - i - late, -asked.most, asked.most) + asked.most] for j in range(len(v))]
        out = [o + sum((a * r[c] for a, r in zip(weights, lines, strict=True)), ZERO) for c, o in enumerate(out)]
    return out
