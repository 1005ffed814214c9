"""Linear attention and kernels: what reassociates, what runs as a recurrence, and what features can represent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.array import Array
from symattn.attention import linear
from symattn.document.formulas import ARRAY_ROLES, formula
from symattn.document.notation import Node, name
from symattn.document.text import text
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Unread, Value
from symattn.proof.relations.random_arrays import mean_of_exponential
from symattn.proof.relations.reader import Reader
from symattn.proof.rules import Fold
from symattn.proof.statement import Declared
from symattn.theorems.letters import exp, eye, rows
from symattn.theorems.texts import of_file


# -- reassociation and recurrence --------------------------------------------------------------------------------------
def _up_to(of: Any) -> Any:
    """Return S_t or z_t, the sum of ``of`` over the first t tokens; for t − 1, without token t."""

    def read(reader: Reader, parts: tuple[Node, ...]) -> Value:
        terms = of(reader.array("K"), reader.array("V"))
        xp = terms.__array_namespace__()
        shift = int(parts[0] == formula("t − 1"))
        if parts[0] not in (name("t"), formula("t − 1")):
            raise Unread(f"the sum up to {text(parts[0])}")
        n = terms.shape[0]
        places = xp.arange(n)
        mask = places[None, :] < places[:, None] if shift else places[None, :] <= places[:, None]
        flat = xp.reshape(terms, (n, -1))
        weights = xp.astype(mask, terms.dtype)
        sums = xp.reshape(weights @ flat, terms.shape)
        return Value(sums, ("t",), len(terms.shape) - 1)

    return read


TOKENS = Glossary(
    {"Q": "n f", "K": "n f", "V": "n d_v"},
    {"n": "n"},
    {"t": "n"},
    {"o": lambda reader: linear.causal_linear_attention(*map(reader.array, "QKV"))},
    functions={"φ": lambda _, x: x},
    roles={**ARRAY_ROLES, "S": None},
    families={"S": _up_to(lambda k, v: k[:, :, None] * v[:, None, :]), "z": _up_to(lambda k, v: k)},
    rows=True,
)
"""Rows of Q and K that stand for the features of queries and keys, of any function φ."""


STATES_ADDED = Fold(
    Declared({"k": "p d_k", "v": "p d_v"}),
    "p",
    linear.linear_state,
    lambda x, y, given: (x[0] + y[0], x[1] + y[1]),
    lambda x, y, given: (x[0] + y[0], y[1]),
)
"""The state of a run of tokens is the sum of those of its parts, down to single tokens."""


def _new_state(reader: Reader) -> Array:
    s = reader.array("S")
    k = reader.array("k")[None, :]
    v = reader.array("v")[None, :]
    return linear.delta_step(s, k, v, reader.array("β"))


# -- gates and the delta rule -----------------------------------------------------------------------------------------
_STATES = {**ARRAY_ROLES, "S": None, "E": None, "D": None}


def _decay(end: Array, c: Array, state: Array) -> Array:
    """Return the state of a run for another c: e^{end − c} ⊙ S."""
    return exp((end - c).mT) * state


# A state of a run for any c: (c, Σ_j (k_j e^{c − G_j})ᵀ v_j). The sum of gates up to its end is one such c.
RUNS_DECAYED = Fold(
    Declared({"k": "p d_k", "v": "p d_v", "G": "p d_k", "c": "1 d_k"}),
    "p",
    lambda k, v, G, c: (c, (k * exp(c - G)).mT @ v),
    lambda x, y, given: (given["c"], _decay(given["c"], *x) + _decay(given["c"], *y)),
    lambda x, y, given: (given["c"], _decay(given["c"], *x) + y[1]),
    ("c",),
)
"""The state of a run of tokens with gates is the sum of those of its parts, each decayed to the end of all."""


def _gated_state(after: str, *added: str) -> Callable[[Reader], Array]:
    """Return the state after the token k, v, β, g, from the sum of the states before it that are named."""

    def made(reader: Reader) -> Array:
        before = sum((reader.one(name(x)).array for x in added), reader.one(name(after)).array)
        k, v, g = (reader.array(x)[None, :] for x in "kvg")
        state, _ = linear.delta_token(before, k, k, v, reader.array("β"), g)
        return state

    return made


TOKEN = Glossary(
    {"S": "d_k d_v", "k": "d_k", "v": "d_v", "g": "d_k", "β": ""},
    roles=_STATES,
    defined={"S′": _gated_state("S"), "I": eye("d_k")},
    rows=True,
).where("a = exp(g)")
"""One token of the gated delta rule, by the implementation; a are the factors of its gate."""


def _state_after_run(reader: Reader) -> Any:
    """Return S_n, the state after n tokens with the corrections U from the state S."""
    k, u, sums = (reader.array(x) for x in ("K", "U", "G"))
    state, _ = linear.chunk_of_sums(reader.array("S"), k, k, u, sums, reader.array("c")[None, :])
    return state


def _next_row(reader: Reader) -> Any:
    """Return the last row of L, but for its diagonal, of n tokens and one more."""
    k = rows(reader.array("K"), reader.array("k")[None, :])
    sums = rows(reader.array("G"), (reader.array("c") + reader.array("g"))[None, :])
    n = reader.length("n")
    below = reader.array("β") * linear.decayed_scores(k, k, sums, itself=False)
    return below[n:, :n][0]


NEXT_TOKEN = TOKEN.also(
    {"K": "n d_k", "U": "n d_v", "G": "n d_k", "c": "d_k"},
    sizes={"n": "n"},
    index={"j": "n", "f": "d_k"},
    defined={"S_n": _state_after_run, "S′": _gated_state("S_n"), "L": _next_row},
)
"""n tokens with the corrections U, whose gates add up to c, and one more."""


def _chunk_and_token(part: int) -> Callable[[Reader], Any]:
    """Return the state (0) or the outputs (1) of one chunk of n + 1 tokens, with the corrections U and u."""

    def made(reader: Reader) -> Any:
        more = ((x, reader.one(name(x.lower())).array) for x in "QKU")
        q, k, u = (rows(reader.array(x), last[None, :]) for x, last in more)
        whole = (reader.array("c") + reader.array("g"))[None, :]
        sums = rows(reader.array("G"), whole)
        return linear.chunk_of_sums(reader.array("S"), q, k, u, sums, whole)[part]

    return made


def outputs_of_run(reader: Reader) -> Any:
    """Return the outputs O of n tokens with the corrections U, from the state S, by the implementation."""
    q, k, u, sums = (reader.array(x) for x in "QKUG")
    return linear.chunk_of_sums(reader.array("S"), q, k, u, sums, reader.array("c")[None, :])[1]


CHUNK_AND_TOKEN = NEXT_TOKEN.also(
    {"Q": "n d_k", "q": "d_k"},
    defined={"S″": _chunk_and_token(0), "O″": _chunk_and_token(1), "O": outputs_of_run},
).where("u = β (v − (k ⊙ exp(c + g)) S) − Σ_{j=1}^n L_j U_j")
"""n tokens as a chunk and one token more, and all n + 1 as one chunk: S″ and O″."""


def _chunk(part: int, *runs: str) -> Callable[[Reader], Any]:
    """Return the state after runs of tokens, each by a chunk (0), or the outputs of the last of them (1)."""

    def made(reader: Reader) -> Any:
        state = reader.array("S")
        for run in runs:
            q, k, v, sums, whole = (reader.one(name(x + run)).array for x in "QKVGc")
            state, output = linear.chunk_of_sums(state, q, k, v, sums, whole[None, :])
        return output if part else state

    return made


def _joined(letter: str, gates: bool = False) -> Callable[[Reader], Any]:
    """Return the rows of both runs; sums of gates go on from those of the first run."""

    def made(reader: Reader) -> Any:
        first = reader.array(f"{letter}₁")
        second = reader.array(f"{letter}₂")
        return rows(first, reader.array("c₁")[None, :] + second if gates else second)

    return made


TWO_RUNS = Glossary(
    {
        "S": "d_k d_v",
        **{x + "₁": f"n {d}" for x, d in (("Q", "d_k"), ("K", "d_k"), ("V", "d_v"), ("G", "d_k"))},
        **{x + "₂": f"m {d}" for x, d in (("Q", "d_k"), ("K", "d_k"), ("V", "d_v"), ("G", "d_k"))},
        **{"c₁": "d_k", "c₂": "d_k"},
    },
    sizes={"n": "n", "m": "m"},
    index={"i": "n", "j": "n", "l": "m"},
    defined={
        **{x: _joined(x) for x in "QKV"},
        "G": _joined("G", gates=True),
        "S₁": _chunk(0, "₁"),
        "O₁": _chunk(1, "₁"),
        "S₂": _chunk(0, "₁", "₂"),
        "O₂": _chunk(1, "₁", "₂"),
        "S′": _chunk(0, ""),
        "O′": _chunk(1, ""),
    },
    roles=_STATES,
    rows=True,
).where("c = c₁ + c₂")
"""n tokens and m more, with sums of gates G from the beginning of each run to c at its end; without an index, all."""


# -- erasing along another vector --------------------------------------------------------------------------------------
def _erased_state(after: str, *names: str, before: bool = False) -> Callable[[Reader], Any]:
    """Return the state after a token from the state that is named, by the implementation.

    ``names`` are the letters of k, v, p, r and g, in this order.
    """

    def made(reader: Reader) -> Any:
        k, v, p, r, g = (reader.one(formula(x)).array[None, :] for x in names or "kvprg")
        state = reader.one(formula(after)).array
        return linear.erasing_token(state, k, k, v, p, r, g, before=before)[0]

    return made


ERASING = Glossary(
    {"S": "d_k d_v", "k": "d_k", "p": "d_k", "r": "d_k", "v": "d_v", "g": "d_k"},
    roles=_STATES,
    defined={
        "S′": _erased_state("S"),
        "S″": _erased_state("S", before=True),
        "I": eye("d_k"),
    },
    rows=True,
).where("a = exp(g)")
"""One token that erases along r what its p reads of the decayed state, S′, or of the state before, S″."""


def _state_after_erasing_run(reader: Reader) -> Any:
    """Return S_n, the state after n tokens of which each has subtracted its row of Y along its row of R."""
    return _erasing_run(reader)[0]


def _erasing_run(reader: Reader) -> Any:
    k, v, r, y, sums = (reader.array(x) for x in "KVRYG")
    # Queries are read where there are some.
    q = reader.array("Q") if "Q" in reader.arrays else k
    return linear.chunk_of_erased(
        reader.array("S"), q, k, v, r, y, sums, reader.array("c")[None, :]
    )


def _row_of_earlier(keys: str) -> Callable[[Reader], Any]:
    """Return what the next token's p meets of the ``keys`` of the n tokens before, decayed (n,)."""

    def made(reader: Reader) -> Any:
        p = rows(reader.array(keys), reader.array("p")[None, :])
        k = rows(reader.array(keys), reader.array("p")[None, :])
        sums = rows(reader.array("G"), (reader.array("c") + reader.array("g"))[None, :])
        n = reader.length("n")
        return linear.decayed_scores(p, k, sums, itself=False)[n:, :n][0]

    return made


ERASING_NEXT = ERASING.also(
    {"K": "n d_k", "R": "n d_k", "V": "n d_v", "Y": "n d_v", "G": "n d_k", "c": "d_k"},
    sizes={"n": "n"},
    index={"j": "n", "f": "d_k"},
    defined={
        "S_n": _state_after_erasing_run,
        "S′": _erased_state("S_n"),
        "L": _row_of_earlier("R"),
        "M": _row_of_earlier("K"),
    },
)
"""n tokens that read Y, whose gates add up to c, and one more."""


def _erasing_chunk_and_token(part: int) -> Callable[[Reader], Any]:
    """Return the state (0) or the outputs (1) of one chunk of n + 1 tokens that read Y and y."""

    def made(reader: Reader) -> Any:
        more = ((x, reader.one(name(x.lower())).array) for x in "QKVRY")
        q, k, v, r, y = (rows(reader.array(x), last[None, :]) for x, last in more)
        whole = (reader.array("c") + reader.array("g"))[None, :]
        sums = rows(reader.array("G"), whole)
        return linear.chunk_of_erased(reader.array("S"), q, k, v, r, y, sums, whole)[part]

    return made


ERASING_CHUNK = ERASING_NEXT.also(
    {"Q": "n d_k", "q": "d_k"},
    defined={
        "S″": _erasing_chunk_and_token(0),
        "O″": _erasing_chunk_and_token(1),
        "O": lambda reader: _erasing_run(reader)[1],
    },
).where("y = (p ⊙ exp(c + g)) S + Σ_{j=1}^n M_j V_j − Σ_{j=1}^n L_j Y_j")
"""n tokens as a chunk and one token more, and all n + 1 as one chunk: S″ and O″."""

_INDEXED = ("₁", "₂", "₃")
THREE_ERASING = Glossary(
    {"S": "d_k d_v"} | {x + i: "d_v" if x == "v" else "d_k" for i in _INDEXED for x in "kprvg"},
    roles=_STATES,
    defined={
        "I": eye("d_k"),
        "S₁": _erased_state("S", *(x + "₁" for x in "kvprg")),
        "S₂": _erased_state("S₁", *(x + "₂" for x in "kvprg")),
        "S₃": _erased_state("S₂", *(x + "₃" for x in "kvprg")),
    },
    rows=True,
).where(*(f"A{i} = (I − r{i}ᵀ p{i}) diag(exp(g{i}))" for i in _INDEXED))
"""Three tokens that erase, one after another."""


def _rule(*arrays: str, before: bool = False) -> Callable[[Reader], Any]:
    """Return the state after a token whose k, v, p and r are formulas, with the gates g."""
    return _erased_state("S", *arrays, "g", before=before)


RULES = Glossary(
    {**dict.fromkeys("kpbαg", "d_k"), "S": "d_k d_v", "v": "d_v", "w": "d_v", "β": ""},
    roles={**_STATES, "C": None, "N": None, "R": None},
    defined={
        "I": eye("d_k"),
        "D": _gated_state("S"),
        "E": _rule("k", "β v", "β k", "k"),
        "C": _rule("k", "β v", "β p", "k", before=True),
        "N": _rule("k", "w ⊙ v", "b ⊙ k", "k"),
        "R": _rule("k", "v", "−α", "b", before=True),
    },
    rows=True,
).where("a = exp(g)")
"""One token by the erasure of each rule, and by the delta rule's own, D."""


# -- other fields ------------------------------------------------------------------------------------------------------
def _read_before(part: int) -> Callable[[Reader], Any]:
    """Return the state after a token (0), or the output (1), by the implementation that reads before."""

    def made(reader: Reader) -> Any:
        q, k, v, g, b = (reader.array(x)[None, :] for x in "qkvgb")
        result = linear.step_read_before(reader.array("S"), q, k, v, g, b)[part]
        return result[0, :] if part else result

    return made


def _state_after_step(reader: Reader) -> Any:
    """Return the state after a token with the step Δ: the gate is Δ g, and Δ v is written."""
    k, v = (reader.array(x)[None, :] for x in "kv")
    step, gate = reader.array("Δ"), reader.array("g")
    gates = step * gate + 0 * k
    return linear.gated_step(reader.array("S"), k, k, step * v, gates)[0]


STEPS = Glossary(
    {"S": "d_k d_v", "k": "d_k", "v": "d_v", **dict.fromkeys(("g", "Δ", "Δ₁", "Δ₂"), "")},
    roles=_STATES,
    defined={"S′": _state_after_step},
    rows=True,
)
"""One gate of a head, which the step of a token multiplies."""

READ_BEFORE = Glossary(
    {**dict.fromkeys("qkgb", "d_k"), "S": "d_k d_v", "v": "d_v"},
    roles=_STATES,
    defined={"S′": _read_before(0), "o": _read_before(1)},
    rows=True,
).where("a = exp(g)")
"""One token that reads the state before it is added, and itself by a bonus b."""


def scores_of_run(reader: Reader) -> Array:
    """Return the scores of n tokens with gates whose sums are G, by the implementation."""
    return linear.decayed_scores(*map(reader.array, "QKG"))


_SCORES = Glossary(
    {"Q": "n d_k", "K": "n d_k", "G": "n d_k", "m": "d_k"},
    index={"i": "n", "j": "n", "f": "d_k"},
    defined={"S": scores_of_run},
    rows=True,
)


def _make_rising_numbers(first: str, steps: str) -> Callable[[Reader], Any]:
    """x < x + u₁ < x + u₁ + u₂ < …"""

    def made(reader: Reader) -> Any:
        x, u = reader.array(first), reader.array(steps)
        return reader.xp.stack([x, *(x + u[: n + 1].sum() for n in range(u.shape[0]))])

    return made


THEOREMS = of_file(
    "linear",
    {
        "": TOKENS,
        "token": TOKEN,
        "next token": NEXT_TOKEN,
        "chunk and token": CHUNK_AND_TOKEN,
        "errors": TOKEN.also({"E": "d_k d_v"}, defined={"S″": _gated_state("S", "E")}),
        "runs": TWO_RUNS,
        "scores": _SCORES,
        "erasing": ERASING,
        "erasing next": ERASING_NEXT,
        "erasing chunk": ERASING_CHUNK,
        "erasing three": THREE_ERASING,
        "erasing rules": RULES,
        "erasing any": ERASING.also(
            {"P": "d_k d_k", "B": "d_k d_v"}, defined={"S′": _erased_state("P S + B")}
        ).where("A = (I − rᵀ p) diag(a)"),
        "erasing system": ERASING.also({"R": "n d_k", "W": "n d_k"}),
        "erasing errors": ERASING.also({"E": "d_k d_v"}, defined={"S″": _erased_state("S + E")}),
        "read before": READ_BEFORE,
        "steps": STEPS,
        "updated": Glossary(defined={"S′": _new_state, "I": eye("f")}, rows=True),
        "performer-positive-features": Glossary(
            {"q": "d", "k": "d"}, families={"E": mean_of_exponential("w")}
        ),
        "rising": Glossary(
            sizes={},
            defined={"q": _make_rising_numbers("x", "u"), "k": _make_rising_numbers("y", "w")},
        ),
    },
    globals(),
)
