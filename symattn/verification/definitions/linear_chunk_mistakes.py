"""Known mistakes of ``LinearAttention`` in sums over chunks of tokens, each part of which can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from symattn.attention.layers.steps import identity
from symattn.attention.softmax import powers
from symattn.verification.definitions.linear_erasure import Erasure, in_steps, join_steps
from symattn.verification.definitions.linear_ways import (
    Form,
    FormRows,
    Produced,
    compute_by_pairs,
    scan_linear_state,
)
from symattn.verification.rules.tiling import WIDTHS

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


#: Sizes of chunks of the delta rule, whose triangular systems take longer to solve.
_WIDTHS_OF_CORRECTED_CHUNKS = (16, 32, 64, 128)


def _by_undecayed_corrections(spec: LinearAttention, rows: FormRows) -> Produced:
    def token(
        state: Array, q: Array, k: Array, v: Array, beta: Array, g: Array
    ) -> tuple[Array, Array]:
        correction = beta * (v - k @ state)
        state = linear.decayed(state, g) + k.mT @ correction
        return state, q @ state

    return scan_linear_state(spec, token, rows, rows.beta, rows.g)


def list_wrong_forms(spec: LinearAttention) -> dict[tuple[str, str], Form]:
    """Return wrong sums over the tokens, by step and cause."""
    result: dict[tuple[str, str], Form] = {}
    is_before = spec.reads == "before"
    if spec.causal and not is_before:
        earlier = Chunks(lambda i, j: j < i)
        # So many tokens are one chunk.
        result["mask", "a token does not see itself"] = partial(
            compute_by_wrong_chunks, earlier, 10**6
        )
    gated = {
        key: how
        for key, how in (_GATED_CHUNKS | (_GATED_CHUNKS_READ_BEFORE if is_before else {})).items()
        # The state before a token has not decayed by the token's own gate.
        if not (is_before and key == _UNDECAYED_BY_OWN_GATE)
    }
    if spec.gate == "head":
        # The first token of a chunk has the gate of its last.
        gated = {key: how for key, how in gated.items() if key != _BY_FIRST_GATE}
    chunks = _CHUNKS | (_CHUNKS_READ_BEFORE if is_before else {}) | (gated if spec.gate else {})
    if spec.delta:
        chunks |= _UNCORRECTED_CHUNKS.get(spec.erase, {}) | _CORRECTED_CHUNKS[spec.erase]
        of_gates = _CORRECTED_GATED_CHUNKS | _ERASED_BEFORE_CHUNKS
        for key, how in of_gates.items() if spec.gate else ():
            # What has not decayed by the token's own gate, and what has, is right for one of both.
            if (key == _READ_UNDECAYED) != (spec.erases == "before") or key == _READ_STILL:
                chunks[key] = how
    if spec.gate and not spec.delta:
        words = "a token's gate decays what the token itself adds, too"
        result["values", words] = _by_pairs_with_decayed_keys
    widths = _WIDTHS_OF_CORRECTED_CHUNKS if spec.delta else WIDTHS[1:-1]
    for size in widths if spec.causal else ():
        for (step, cause), how in chunks.items():
            result[step, cause.format(size)] = partial(compute_by_wrong_chunks, how, size)
    if spec.gate and spec.delta and not spec.erase:
        words = "what a token replaces is read from the state before it decays"
        result["values", words] = _by_undecayed_corrections
    return result


def _by_pairs_with_decayed_keys(spec: LinearAttention, rows: FormRows) -> Produced:
    return compute_by_pairs(spec, rows._replace(k=rows.k * powers(rows.g)))


#: From the gates of a chunk, their sums up to each token, and the sums of those that have decayed what it reads.
Exponents = Callable[[Array, Array, Array], Any]
#: From the place of each token in the sequence, (n, 1), and the size of chunks: which tokens something is done for.
Places = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Chunks:
    """Attention by chunks, each part of which can be wrong.

    seen      which tokens of its own chunk a token reads
    between   exponent of the decay between two tokens of a chunk
    queries   the same of the state for a query
    read      the same of the state for what a token replaces (delta rule)
    keys      the same of what a key adds to the state
    state     the same of the state over the chunk
    carried   what the state becomes, from its decayed one and what the chunk adds
    passed    what the next chunk gets of it
    late      whether the state after the chunk is read, not the one before
    system    the factor of the rows of L, from β (delta rule), or from 1 where an erasure is given
    is_bare   whether L has what is erased without its factor, where an erasure is given
    kept      the tokens whose values are added
    decaying  the tokens whose gates count
    itself    where the state before a token is read: whether it sees itself in its chunk
    """

    seen: Callable[[Any, Any], Any] = lambda i, j: j <= i
    between: Exponents = lambda g, s, r: r[..., :, None, :] - s[..., None, :, :]
    queries: Exponents = lambda g, s, r: r
    read: Exponents = lambda g, s, r: r
    keys: Exponents = lambda g, s, r: s[..., -1:, :] - s
    state: Exponents = lambda g, s, r: s[..., -1:, :]
    carried: Callable[[Array, Array], Any] = lambda old, new: old + new
    passed: Callable[[Any], Any] = identity
    late: bool = False
    system: Callable[[Array], Any] = identity
    is_bare: bool = False
    kept: Places | None = None
    decaying: Places | None = None
    itself: bool = False

    def token(
        self,
        state: Array,
        q: Array,
        k: Array,
        v: Array,
        g: Array,
        kept: Array,
        beta: Array | None = None,
        bare: Array | None = None,
        reads_before: bool = False,
        erases_before: bool = False,
        is_erasing: bool = False,
        steps: int = 1,
    ) -> tuple[Array, Array]:
        """Return the state after a chunk, and the outputs of its tokens; ``kept`` is 1 for tokens that are added.

        If ``is_erasing``, ``beta`` has the rows p of what is erased, ``bare`` these without a factor, and v is what is
        written. A token has so many ``steps``.
        """
        xp, sums = namespace_of(q), namespace_of(g).cumulative_sum(g, axis=-2)
        reads = sums - g if reads_before else sums
        erasing = sums - g if erases_before else sums
        # The gate of its token, of a step that has none itself.
        g = join_steps(g[..., ::2, :], g[..., ::2, :]) if steps > 1 else g
        # The exponents between all pairs of the chunk.
        between = self.between(g, sums, reads)
        without_itself = reads_before and not self.itself
        if beta is not None:
            decays, of_keys = xp.exp(self.read(g, sums, erasing)), self.between(g, sums, erasing)
            p, one = (beta, 0 * beta[..., :1] + 1) if is_erasing else (k, beta)
            # b of the triangular system: what a token writes, less what the state has for its key.
            right = one * (v - (p * decays) @ state)
            of_system = bare if bare is not None and self.is_bare else p
            below = _decayed_pairs(of_system, k, of_keys, lambda i, j: j < i)
            v = _substituted(self.system(one) * below, right)
        v = v * kept
        seen = (lambda i, j: self.seen(i, j) & (i != j)) if without_itself else self.seen
        inner = _decayed_pairs(q, k, between, seen, steps)
        added = (k * xp.exp(self.keys(g, sums, reads))).mT @ v
        new = self.carried(linear.decayed(state, self.state(g, sums, reads)), added)
        read = (q * xp.exp(self.queries(g, sums, reads))) @ (new if self.late else state)
        return self.passed(new), read + inner @ v


def _decayed_pairs(
    q: Array, k: Array, between: Any, seen: Callable[[Any, Any], Any], steps: int = 1
) -> Array:
    """Return Σ_f q_if k_jf e^{between_ijf} where ``seen``, 0 elsewhere, for so many rows a token. Shape: (…, n, n)."""
    xp, place = namespace_of(q), namespace_of(q).arange(q.shape[-2])
    if steps > 1:
        place = xp.asarray(np.arange(int(q.shape[-2])) // steps)
    open_ = seen(place[:, None], place[None, :])[:, :, None]
    # Exponents of hidden pairs become 0 first, as they might overflow.
    exponents = xp.where(open_, between, 0)
    decays = xp.where(open_, xp.exp(exponents), 0)
    # One gate a token decays whole products, so no axis of features is needed.
    if int(between.shape[-1]) == 1:
        return (q @ k.mT) * decays[..., 0]
    return xp.sum(q[..., :, None, :] * k[..., None, :, :] * decays, axis=-1)


def _substituted(below: Array, right: Array) -> Array:
    """Return (I + L)⁻¹ B for L below the diagonal, row by row."""
    rows = right[..., :1, :]
    for i in range(1, int(right.shape[-2])):
        this = slice(i, i + 1)
        row = right[..., this, :] - below[..., this, :i] @ rows
        rows = namespace_of(right).concat([rows, row], axis=-2)
    return rows


def compute_by_wrong_chunks(
    how: Chunks, size: int, spec: LinearAttention, rows: FormRows
) -> Produced:
    """Compute the output from the state, by chunks of so many tokens of which a part may be wrong."""
    q, k, v, gates, beta, _ = rows
    n, xp = int(k.shape[-2]), namespace_of(k)
    if gates is None:
        # Without gates zeros stand in, so that one step serves both.
        gates = 0 * k[..., :1]
    # A pair takes two steps a token.
    steps, is_erasing = 2 if spec.erase == "pair" else 1, isinstance(beta, Erasure)
    corrections = [beta.p, beta.bare] if is_erasing else [beta]
    if steps > 1:
        q, k, v, gates, corrections[0] = in_steps(q, k, v, gates, beta)
    place = np.arange(steps * n)[:, None] // steps
    if how.decaying is not None:
        gates = xp.where(xp.asarray(how.decaying(place, size)), gates, 0)
    retention = 0 * gates[..., :1] + 1
    if how.kept is not None:
        retention = xp.where(xp.asarray(how.kept(place, size)), retention, 0)
    is_before = spec.reads == "before"
    token = partial(
        how.token,
        reads_before=is_before,
        erases_before=spec.erases == "before",
        is_erasing=is_erasing,
        steps=steps,
    )
    bounds = [steps * at for at in (*range(0, n, size), n)]
    arrays = (q, k, v, gates, retention, *(a for a in corrections if a is not None))
    end, output = linear.scan(token, rows.first_state, bounds, *arrays)
    if steps > 1:
        output = output[..., 0 if is_before else 1 :: 2, :]
    return Produced(output, end)


def transpose_if_square(state: Any) -> Any:
    return state.mT if int(state.shape[-1]) == int(state.shape[-2]) else state


#: Wrong chunks, by step and cause; {} is the number of tokens.
_CHUNKS = {
    ("cache", "the state is not carried over from one chunk of {} tokens to the next"): Chunks(
        carried=lambda old, new: 0 * old
    ),
    (
        "cache",
        "the state that a chunk of {} tokens reads is that of the chunk before alone",
    ): Chunks(carried=lambda old, new: new),
    (
        "cache",
        "the state is updated before a chunk of {} tokens reads it: its own tokens count twice",
    ): Chunks(late=True),
    ("cache", "the state is transposed between chunks of {} tokens, where d_k = d_v"): Chunks(
        passed=transpose_if_square
    ),
    ("cache", "the first token of every chunk of {} tokens but the first is lost"): Chunks(
        kept=lambda place, size: (place % size > 0) | (place < size)
    ),
    ("cache", "the last token of every chunk of {} tokens is lost"): Chunks(
        kept=lambda place, size: place % size < size - 1
    ),
    ("mask", "a token also sees later tokens of its own chunk of {}"): Chunks(lambda i, j: j >= 0),
    (
        "mask",
        "the mask within chunks of {} tokens is transposed: a token sees itself and later ones",
    ): Chunks(lambda i, j: j >= i),
    (
        "mask",
        "a token does not see its own chunk of {} tokens: it reads the state before that alone",
    ): Chunks(lambda i, j: j < 0),
}
_UNDECAYED_BY_OWN_GATE = (
    "values",
    "the state that a token reads does not decay by its own gate (chunks of {})",
)
_BY_FIRST_GATE = (
    "values",
    "the state decays over a chunk of {} tokens by the gate of the first one alone",
)
_GATED_CHUNKS = {
    ("values", "the decay between the tokens of a chunk of {} is left out"): Chunks(
        between=lambda g, s, r: 0 * s[..., :, None, :]
    ),
    (
        "values",
        "within a chunk of {} tokens, the gate of a token decays what the token itself adds, too",
    ): Chunks(between=lambda g, s, r: r[..., :, None, :] - (s - g)[..., None, :, :]),
    ("values", "the state does not decay from one chunk of {} tokens to the next"): Chunks(
        state=lambda g, s, r: 0 * g[..., -1:, :]
    ),
    (
        "values",
        "the state decays over a chunk of {} tokens by the gate of the last one alone",
    ): Chunks(state=lambda g, s, r: g[..., -1:, :]),
    _BY_FIRST_GATE: Chunks(state=lambda g, s, r: g[..., :1, :]),
    ("values", "the state that a token reads does not decay within its chunk of {}"): Chunks(
        queries=lambda g, s, r: 0 * s
    ),
    _UNDECAYED_BY_OWN_GATE: Chunks(queries=lambda g, s, r: s - g),
    (
        "values",
        "what a token adds to the state does not decay to the end of its chunk of {}",
    ): Chunks(keys=lambda g, s, r: 0 * s),
    (
        "values",
        "what a token adds to the state decays from the start of its chunk of {}, not to the end",
    ): Chunks(keys=lambda g, s, r: s),
    (
        "values",
        "the state decays over a chunk of {} tokens after these are added, not before",
    ): Chunks(keys=lambda g, s, r: 2 * s[..., -1:, :] - s),
    (
        "values",
        "the gate of the first token of every chunk of {} tokens but the first is left out",
    ): Chunks(decaying=lambda place, size: (place % size > 0) | (place < size)),
    ("values", "the gate of the last token of every chunk of {} tokens is left out"): Chunks(
        decaying=lambda place, size: place % size < size - 1
    ),
}
#: Wrong chunks where the state before a token is read.
_CHUNKS_READ_BEFORE = {
    ("mask", "within its chunk of {} a token also reads itself"): Chunks(itself=True),
}  # fmt: skip
_GATED_CHUNKS_READ_BEFORE = {
    ("values", "the state that a token reads decays by its own gate, too (chunks of {})"):
        Chunks(queries=lambda g, s, r: s),
    ("values", "what a token reads of its chunk of {} decays by the token's own gate, too"):
        Chunks(between=lambda g, s, r: s[..., :, None, :] - s[..., None, :, :]),
}  # fmt: skip
#: Wrong chunks of the delta rule.
_WITHOUT_BETA = ("values", "β is left out of the triangular system of chunks of {} tokens")
_WITHOUT_GATES = (
    "values", "the erase gates b are left out of the triangular system of chunks of {} tokens"
)  # fmt: skip
_CORRECTED_CHUNKS: dict[str | None, dict[tuple[str, str], Chunks]] = {
    None: {_WITHOUT_BETA: Chunks(system=lambda beta: 0 * beta + 1)},
    "vector": {_WITHOUT_BETA: Chunks(is_bare=True)},
    "gates": {_WITHOUT_GATES: Chunks(is_bare=True)},
    "pair": {},
}
_UNCORRECTED = ("values", "tokens of a chunk of {} do not erase what earlier ones of it wrote")
_UNCORRECTED_CHUNKS: dict[str | None, dict[tuple[str, str], Chunks]] = {
    rule: {_UNCORRECTED: Chunks(system=lambda one: 0 * one)} for rule in ("vector", "gates", "pair")
}
_READ_STILL = (
    "values",
    "what a token replaces is read from a state that does not decay within its chunk of {}",
)
_READ_UNDECAYED = (
    "values",
    "what a token replaces is read from a state that does not decay by the token's own gate (chunks of {})",
)
_CORRECTED_GATED_CHUNKS = {
    _READ_STILL: Chunks(read=lambda g, s, r: 0 * s),
    _READ_UNDECAYED: Chunks(read=lambda g, s, r: s - g),
}
#: Wrong chunks where tokens erase before their own gates.
_ERASED_BEFORE_CHUNKS = {
    (
        "values",
        "what a token replaces is read from a state that decays by the token's own gate, too (chunks of {})",
    ): Chunks(read=lambda g, s, r: s),
}
