"""Derivations of texts in which letters stand for what the implementation computes, or in which a table is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from itertools import accumulate
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.projections import grouped_attention, tile_heads
from symattn.attention.softmax import sink_weights, softmax
from symattn.attention.spec import Attention
from symattn.attention.streaming.states import SoftmaxState, finish, merge, tile_state
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.exactly import entries, exact, same, value
from symattn.document import notation as nt
from symattn.document.formulas import Roles, formula, running_text
from symattn.document.model import Column, Document, Result, Steps, Table, Text
from symattn.document.notation import Decimal, Node
from symattn.proof.relations import judging
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import ATTENTION, of_tokens
from symattn.theorems.streaming import BLOCK_LETTERS, STATE_LETTERS

_TOKENS = {"X": "n d", "W_Q": "d d_k", "W_K": "d d_k", "W_V": "d d_v"}
_CAUSAL = Attention(causal=True)


def sinks() -> Document:
    """Derive that a sink is one more key of value 0, and multiplies the output by sigmoid(lse(s) − b)."""
    weights = lambda reader: sink_weights(  # noqa: E731
        reader.arrays["s"][None, :], reader.arrays["b"][None, None]
    )[0, :]
    return DerivationText({"implemented": Glossary(defined={"p": weights})}).document("sinks")


def equivariance() -> Document:
    """Derive attention(PX) = P attention(X) for every permutation P of the tokens; a causal mask breaks it."""
    functions = {"attention": of_tokens(ATTENTION), "causal": of_tokens(_CAUSAL)}
    return DerivationText({"tokens": Glossary(_TOKENS, functions=functions)}).document(
        "equivariance"
    )


# -- token by token ----------------------------------------------------------------------------------------------------
_STEPS = {
    "Q": "q",
    "K": "k",
    "V": "v",
    "S": "scaled",
    "S′": "scaled",
    "A": "weights",
    "C": "output",
}


def matrix_form() -> Document:
    """Derive C = softmax(X W_Q W_Kᵀ Xᵀ/√d_k) X W_V, which equals the result token by token in every entry."""
    tokens = Glossary(
        _TOKENS, defined={letter: _make_trace_reader(of) for letter, of in _STEPS.items()}
    )
    return DerivationText({"tokens": tokens}).document("matrix-form")


def _make_trace_reader(of: str) -> Any:
    """Return the implementation's result for tokens and projections, up to a step."""
    return lambda reader: ATTENTION.trace(**{key.lower(): reader.arrays[key] for key in _TOKENS})[
        of
    ]


# -- latents -----------------------------------------------------------------------------------------------------------
_LATENT = {"q": "d_k", "C": "n_k l", "U_K": "l d_k", "U_V": "l d_v"}


def mla() -> Document:
    """Derive q·(c U_K) = (q U_Kᵀ)·c and P(C U_V) = (P C)U_V: the cache holds only the latent."""
    latents = Glossary(
        _LATENT,
        defined={
            "o": _make_latent_output_reader(False),
            "o_narrow": _make_latent_output_reader(True),
        },
        rows=True,
    )
    return DerivationText({"latents": latents}).document("mla")


def _make_latent_output_reader(narrow: bool) -> Any:
    """Return the output for the query from keys and values, or from latents, divided by the root of their width."""

    def computed(reader: Reader) -> Any:
        q, c, u_k, u_v = (reader.arrays[x] for x in _LATENT)
        row = q[None, :]
        plain = ATTENTION(row @ u_k.mT, c, c) @ u_v if narrow else ATTENTION(row, c @ u_k, c @ u_v)
        return plain[0, 0]

    return computed


# -- a cache -----------------------------------------------------------------------------------------------------------
_CACHED = (1, 10, 100, 1000)
_CACHE = running_text("Scores computed for $n$ tokens; the ratio is $((n + 2))/3$, rounded down.")


def kv_cache() -> Document:
    """Derive that row n + 1 of causal attention is one query against the cache and its own key and value."""
    every_row = lambda reader: _CAUSAL(*(reader.arrays[letter][:, None] for letter in "QKV"))[:, 0]  # noqa: E731
    rows = {
        "new row": Glossary(defined={"o_{n+1}": _new_row}),
        "every row": Glossary(defined={"O": every_row}),
    }
    counts = []
    for n in _CACHED:
        cached = sum(range(1, n + 1))
        again = sum(t * (t + 1) // 2 for t in range(1, n + 1))
        expected_again = n * (n + 1) * (n + 2) // 6
        expected_counts = (n * (n + 1) // 2, expected_again)
        if (cached, again) != expected_counts:
            raise FalseStep("the sums of the table are not those of the formulas")
        if again // cached != (n + 2) // 3:
            raise FalseStep("the ratio of the table is not (n + 2)/3")
        row = (n, cached, again, again // cached)
        counts.append(tuple((nt.node(x),) for x in row))
    columns = tuple(
        Column((head,)) for head in (nt.Name("n"), "with the cache", "without", "ratio")
    )
    return DerivationText(rows, table=[Table(columns, tuple(counts), caption=_CACHE)]).document(
        "kv-cache"
    )


def _new_row(reader: Reader) -> Any:
    """Return the last row of causal attention over the cache and one more token."""
    arrays, xp = reader.arrays, reader.xp
    q, k, v = (
        xp.concat([arrays[x], arrays[f"{x.lower()}_{{n+1}}"][None, :]], axis=0) for x in "QKV"
    )
    return _CAUSAL(q, k, v)[reader.length("n") :][0, :]


# -- shared heads ------------------------------------------------------------------------------------------------------
_KEPT = tuple(map(formula, ("g", "h/g", "g (d_k + d_v)", "g/h")))


def gqa(heads: int = 8, dk: int = 64, dv: int = 64) -> Document:
    """Derive that query head t reads head ⌊t/r⌋: multi-head attention with each key-value head repeated r times."""
    sizes = {"heads": heads, "dk": dk, "dv": dv}
    numbers = Glossary(defined={"O": _one_number(False), "O_tiled": _one_number(True)})
    outputs = lambda reader: grouped_attention(  # noqa: E731
        ATTENTION, *(reader.arrays[letter] for letter in "QKV")
    )
    letters = {"heads": Glossary(sizes={}, defined={"O": outputs}), "numbers": numbers}
    # how many numbers are cached per token, for each number of groups
    groups, _, cache_size, share = _KEPT
    columns = tuple(
        map(Column, ((groups,), (formula("r"),), ("kept: ", cache_size), ("share: ", share)))
    )
    counts = [
        {"h": heads, "d_k": dk, "d_v": dv, "g": g} for g in range(heads, 0, -1) if heads % g == 0
    ]
    rows = tuple(tuple((value(x, count).notation(),) for x in _KEPT) for count in counts)
    table = Table(columns, rows, caption=("Numbers kept of each token and layer.",))
    return DerivationText(letters, table=[table], **sizes).document("gqa", parameters=sizes)


def _one_number(tiled: bool) -> Any:
    """Return the output of each query head if every head has a single query and key of width 1."""

    def computed(reader: Reader) -> Any:
        q, k, v = (reader.arrays[letter][:, None, None] for letter in "QKV")
        if not tiled:
            return grouped_attention(ATTENTION, q, k, v)[:, 0, 0]
        times = q.shape[0] // k.shape[0]
        return ATTENTION(q, tile_heads(k, times), tile_heads(v, times))[:, 0, 0]

    return computed


# -- projections drawn at random ---------------------------------------------------------------------------------------
_ROLES: Roles = dict.fromkeys("xyz", "input")
_SQUARE, _COMPONENT, _SCORE = (formula(x, roles=_ROLES) for x in ("σ²", "σ² ‖x‖²", "σ⁴ ‖x‖² ‖y‖²"))
_NORMS = [formula(x, roles=_ROLES) for x in ("‖x‖", "‖y‖")]
_HEADS = [
    running_text(x)
    for x in ("choice", "$σ$", "value of $σ$", "deviation of $q_l$", "deviation of $s/√d_k$")
]


def initialisation(dk: int = 64, dmodel: int = 512) -> Document:
    """Derive Var(q·k) = d_k σ⁴‖x‖²‖y‖² over random W_Q and W_K, and its value for usual choices of σ."""
    sizes = {"dk": dk, "dmodel": dmodel}
    weights = Glossary(defined={"p": lambda reader: softmax(reader.arrays["t"], stabilised=False)})
    columns = [Column(head, "right" if i else "left") for i, head in enumerate(_HEADS)]
    choices = {"unit queries": "1/√d_model", "Glorot": "√{2/(d_model + d_k)}", "fixed": "@fiftieth"}
    rows: list[tuple[Text, ...]] = []
    for called, typed in choices.items():
        deviation = formula(typed, values={"fiftieth": nt.Number(Fraction(1, 50))})
        rows.append(
            (
                (called,),
                (deviation,),
                *(
                    (_compute_deviation_digits(x, deviation, dk, dmodel),)
                    for x in (_SQUARE, _COMPONENT, _SCORE)
                ),
            )
        )
    caption = (
        "By the formulas above, correctly rounded. Glorot's law is that of one matrix of these sizes.",
    )
    return DerivationText(
        {"weights": weights},
        table=[Table(tuple(columns), tuple(rows), caption=caption)],
        component=_COMPONENT,
        score=_SCORE,
        **sizes,
    ).document("initialisation", parameters=sizes)


def _compute_deviation_digits(variance: Node, deviation: Node, dk: int, dmodel: int) -> Decimal:
    """Return the root of a formula above, for a typed σ and tokens of the length √d_model."""
    letters = {
        nt.Name("σ"): nt.Fence("round", deviation),
        **dict.fromkeys(_NORMS, formula("√d_model")),
    }
    return Decimal(
        value(nt.Root(nt.replaced(variance, letters)), {"d_k": dk, "d_model": dmodel}).decimal(4)
    )


# -- tiles -------------------------------------------------------------------------------------------------------------
_COLUMNS = [formula(x) for x in ("j", "s_j", "v_j", "m", "ℓ", "a", "a/ℓ")]
SCORES, VALUES = [[1, 3, 2]], [[4], [1], [2]]
"""Of the example: three keys of one query."""


def online_softmax() -> Document:
    """Derive that states (m, ℓ, a) of tiles merge into that of all keys, and a/ℓ is the output whatever m was."""
    scores, values = exact(SCORES), exact(VALUES)
    key_count = scores.shape[-1]
    tiles = [tile_state(scores[:, j : j + 1], values[j : j + 1, :]) for j in range(key_count)]
    states = list(accumulate(tiles, merge))
    direct = softmax(scores) @ values
    if not same(finish(reduce(merge, reversed(tiles))), direct):
        raise FalseStep("merged from the end, the output is another")
    letters = {
        "states": _make_glossary_of_state(),
        "merged": STATE_LETTERS,
        "blocks": BLOCK_LETTERS,
    }
    # a table of three keys, one by one, in exact numbers
    columns = [Column((x,)) for x in _COLUMNS]
    input_cells = [
        (nt.node(j + 1), nt.node(SCORES[0][j]), nt.node(VALUES[j][0])) for j in range(len(states))
    ]
    rows = [
        (*cells, *map(_read_corner_entry, (*state, finish(state))))
        for cells, state in zip(input_cells, states, strict=True)
    ]
    caption = ("Keys one by one; the last entry of the last row is the output.",)
    cells_of_rows = tuple(tuple((x,) for x in row) for row in rows)
    table = Table(tuple(columns), cells_of_rows, caption=caption)
    return DerivationText(
        letters,
        table=[table],
        scores=nt.matrix(SCORES),
        values=nt.matrix(VALUES),
        output=_read_corner_entry(finish(states[-1])),
        digits=nt.Decimal(direct.tolist()[0][0].decimal(6)),
    ).document("online-softmax")


def _make_glossary_of_state() -> Glossary:
    """Return the sum ℓ and the weighted sum a of keys for any maximum, by the implementation."""

    def state(s: Value, v: Value, m: Value) -> SoftmaxState:
        return tile_state(s.array[None, :], v.array, m.array[None, None])

    functions = {
        "sum": lambda _, *of: Value(state(*of).normaliser[0, 0]),
        "mix": lambda _, *of: Value(state(*of).accumulated[0, :], (), 1, True),
    }
    return Glossary(functions=functions, rows=True)


def _read_corner_entry(x: Array) -> Node:
    return entries(x[0, 0])


# -- sharper and sharper weights ---------------------------------------------------------------------------------------
_LIMITS = """
→ p_max → 1/t :: β → ∞ :: 1/(t + Σ_ℓ e^{-β u_ℓ})
shares→ p_j → 1/n_k :: β → 0 :: softmax_j(β s)
"""
_TIES = """
letters: ties | Y t d_v, V r d_v, u r, β, top | sizes n_k t+r, t | index ℓ r, l r, τ t | positive u β | rows
letters far: new | tie t, d r, β, u_min | sizes n_k t+r, t | index ℓ r | positive β u_min | nonnegative d | where u_ℓ =
    u_min + d_ℓ
letters shares: new | s n_k, β | index j n_k
letters low: new | s, w, u r | sizes n_k 1+r | index ℓ r | places j 0 | nonnegative w u | where p = softmax((s, (s +
    w) 𝟏 − u))
letters high: new | s, w, u r | sizes n_k 1+r | index ℓ r | places j 0 | nonnegative w u | where p = softmax((s, (s −
    w) 𝟏 + u))
roles: y value, v̄ value
with far: $R = Σ_ℓ e^{-β u_ℓ}$
with shares: $p = softmax(β s)$
"""
_ENTROPY = running_text("the entropy, the mean of $-log(p_j)$; by the step before")
_SHARES = running_text(
    "The weights $softmax(β s)$: with a tie for the largest score, and without. Exact, then correctly rounded."
)
# Two keys share the largest score; one key alone has it.
_EXAMPLES = ((2, 2, 1), (3, 1, 0))
# From uniform weights, at 0, towards the limit.
_SHARPNESS = (0, 1, 4, 16, 64)


def lookup() -> Document:
    """Derive that softmax(βs) tends to equal shares of the largest scores as β → ∞, of all as β → 0."""
    # weights and output for t keys with the largest score and values y_τ, and r keys lower by u > 0.
    defined: dict[str, Any] = {
        "p_max": lambda reader: Value(_weights_of_ties(reader)[: reader.length("t")], ("τ",)),
        "p": lambda reader: _weights_of_ties(reader)[reader.length("t") :],
        "o": _output_of_ties,
    }
    text = DerivationText(
        {"ties": Glossary(sizes={}, defined=defined)}, table=[_make_table_of_sharpness()]
    )
    text.blocks(_TIES)
    dispersion = text.theorem("softmax.softmax-dispersion")
    *_, entropy = judging.relations(dispersion.theorem.says)
    # the limits in a box
    results = text.blocks(_LIMITS)
    (group,) = results
    assert isinstance(group, Steps)
    rows = tuple(
        nt.Row((step.formula, nt.Words("as"), *judging.relations(step.reason)))
        for step in group.items
    )
    limits = [
        Result(
            "Result",
            rows,
            tuple(dict.fromkeys(step.evidence for step in group.items if step.evidence)),
        )
    ]
    text.values |= {
        "limits": limits,
        "entropy": [dispersion.step(entropy, _ENTROPY)],
    }
    return text.document("lookup")


def _weights_of_ties(reader: Reader) -> Any:
    """Return the weights of t keys with the largest score and of others that are lower by u, all times β."""
    arrays, xp = reader.arrays, reader.xp
    ties = xp.zeros((reader.length("t"),)) + arrays["β"] * arrays["top"]
    return softmax(
        xp.concat([ties, arrays["β"] * (arrays["top"] - arrays["u"])], axis=0), stabilised=False
    )


def _output_of_ties(reader: Reader) -> Any:
    values = reader.xp.concat([reader.arrays["Y"], reader.arrays["V"]], axis=0)
    return (_weights_of_ties(reader)[None, :] @ values)[0, :]


def _make_table_of_sharpness() -> Table:
    """Return a table of weights at growing β, with and without a tie: exact numbers, correctly rounded."""
    columns = [Column((nt.Name("β"),))]
    for scores in _EXAMPLES:
        group = (nt.equals("s", nt.Fence("round", nt.commas(*scores))),)
        places = range(1, len(scores) + 1)
        columns += [Column((formula(f"p_{j}"),), group=group) for j in places]
    rows = []
    for beta in _SHARPNESS:
        row: list[Node] = [nt.node(beta)]
        for scores in _EXAMPLES:
            weights = softmax(exact([beta * x for x in scores])).tolist()
            if sum(weights[1:], weights[0]) != 1:
                raise FalseStep("the weights of the example do not sum to 1")
            row += [Decimal(w.decimal(3)) for w in weights]
        rows.append(tuple((x,) for x in row))
    return Table(tuple(columns), tuple(rows), caption=_SHARES)


DERIVATIONS: Mapping[str, Callable[..., Document]] = {
    "sinks": sinks,
    "equivariance": equivariance,
    "matrix-form": matrix_form,
    "mla": mla,
    "kv-cache": kv_cache,
    "gqa": gqa,
    "initialisation": initialisation,
    "online-softmax": online_softmax,
    "lookup": lookup,
}
