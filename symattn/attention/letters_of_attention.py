"""The letters of attention, as papers write them, each in the colour of its role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from symattn.attention.positions.position_fields import Alibi, Buckets, Disentangled, Rotary, Shaw, TransformerXL
from symattn.document.notation import (
    Name,
    Node,
    Role,
    call,
    name,
)

D_K, D_V, D_MODEL = name("d", "k"), name("d", "v"), name("d", "model")
TIMES = name("⊙")  # entry by entry
N_Q, N_K, N, H = name("n", "q"), name("n", "k"), name("n"), name("h")

#: Letters of sizes, as shapes name them: ``g`` are the heads of keys and values, ``d_y`` and ``d_out`` are as wide as
#: the model as a rule.
SIZES: dict[str, Node] = {
    "n_q": N_Q, "n_k": N_K, "n": N, "h": H, "g": name("h", "kv"),
    "d_k": D_K, "d_v": D_V, "d_model": D_MODEL, "d_y": D_MODEL, "d_out": D_MODEL, "p": name("p"),
    "d_s": name("d", "s"), "d_t": name("d", "t"), "l_a": name("ℓ", "a"),
    "f": name("f"), "n_b": name("n", "b"), "n_d": name("n", "δ"), "n_r": name("n", "r"), "d_e": name("d", "e"),
    "l": name("ℓ"), "l_q": name("ℓ", "q"), "d_n": name("d", "n"), "d_r": name("d", "r"),
    "d_c": name("ℓ") + name("d", "r"),
}  # fmt: skip


#: Scores by which queries and keys may differ in width.
WIDE = ("general", "additive")


class Wanted(NamedTuple):
    """The field by which a specification asks for an input, and what a value that is set must be for that."""

    field: str
    fits: Callable[[Any], Any] = bool


@dataclass(frozen=True)
class Named:
    """An array of attention: the letter that stands for it, its name in words, and its shape.

    A shape names axes by letters: ``… [h] n_q d_k`` may have axes of batches in front, and has one of heads if there
    are several; ``h*d_k`` holds the heads side by side; ``n_k?`` may have the length 1. An input beside tokens and
    their projections is ``needed`` by some specifications, or ``optional`` there, and refused by all others.
    """

    symbol: Node
    title: str
    shape: str
    holds: Literal["numbers", "booleans", "whole numbers"] = "numbers"
    needed: Wanted | None = None
    optional: Wanted | None = None


def _weight(role: Role, letter: str, title: str, shape: str) -> tuple[Named, Named]:
    """A matrix W and a vector b beside it."""
    columns = shape.split()[-1]
    return (
        Named(name("W", letter, role=role), f"Projection of the {title}", shape),
        Named(name("b", letter, role=role), f"Bias of the {title}", columns),
    )


_OF_Q, _OF_K, _OF_V = (
    _weight("query", "Q", "queries", "d_model h*d_k"),
    _weight("key", "K", "keys", "d_y g*d_s"),
    _weight("value", "V", "values", "d_y g*d_v"),
)
_OF_O = _weight("output", "O", "output", "h*d_v d_out")
_SCORES = "… [h] n_q n_k"


def _score(base: str, title: str) -> Named:
    return Named(Name(base, role="score"), title, _SCORES)


def _has(field: str, *words: str) -> Wanted:
    """A field that is one of these words; without words, one that is set."""
    return Wanted(field, words.__contains__) if words else Wanted(field)


def _at(kind: type, wanted: Callable[[Any], object] = bool) -> Wanted:
    """Positions of a kind that are as wanted."""
    return Wanted("position", lambda position: isinstance(position, kind) and wanted(position))


_tables, _places = _at(Rotary, lambda p: p.given == "tables"), _at(Rotary, lambda p: p.given == "positions")
_xl, _additive = _at(TransformerXL), _has("score", "additive")
_to_keys, _to_queries = _at(Disentangled, lambda p: p.to_position), _at(Disentangled, lambda p: p.to_content)
_gain, _layer = _has("qk_norm", "rms", "layer"), _has("qk_norm", "layer")
_latent, _queries = _has("latent"), Wanted("latent", lambda c: c.queries)
_normed, _both = Wanted("latent", lambda c: c.norm), Wanted("latent", lambda c: c.norm and c.queries)
#: Every array that an input or a step is called by.
ARRAYS: dict[str, Named] = {
    "x": Named(name("X", role="input"), "Tokens", "… n_q d_model"),
    "y": Named(name("Y", role="input"), "Tokens attended to", "… n_k d_y"),
    "q": Named(name("Q", role="query"), "Queries", "… [h] n_q d_k"),
    "k": Named(name("K", role="key"), "Keys", "… [g] n_k d_s"),
    "v": Named(name("V", role="value"), "Values", "… [g] n_k d_v"),
    "w_q": _OF_Q[0], "b_q": _OF_Q[1], "w_k": _OF_K[0], "b_k": _OF_K[1],
    "w_v": _OF_V[0], "b_v": _OF_V[1], "w_o": _OF_O[0], "b_o": _OF_O[1],
    "mask": Named(name("M"), "Mask", "… (h?) n_q? n_k?", needed=_has("mask")),
    "keep": Named(name("keep"), "Keys that are no padding", "… n_k", "booleans", needed=_has("padding")),
    "bias": Named(name("B"), "Bias of the scores", "… (h?) n_q? n_k?", needed=_has("bias")),
    "doc": Named(name("doc"), "Documents of the tokens", "… n_q", "whole numbers", optional=_has("documents")),
    "doc_q": Named(name("doc", "Q"), "Documents of the queries", "… n_q", "whole numbers", optional=_has("documents")),
    "doc_k": Named(name("doc", "K"), "Documents of the keys", "… n_k", "whole numbers", optional=_has("documents")),
    "scale": Named(name("t"), "Factor of each head's scores", "h", needed=_has("scale", "given")),
    "sink": Named(name("z"), "Sink of each head", "h", needed=_has("sink", "given")),
    "drop": Named(name("D"), "Weights that are kept", "… (h?) n_q? n_k?", "booleans", needed=_has("dropout")),
    "w_s": Named(name("W", "s", role="score"), "Matrix of the scores", "(h?) d_k d_w", needed=_has("score", *WIDE)),
    "u_s": Named(name("U", "s", role="score"), "Matrix of the keys' scores", "(h?) d_s l_a", needed=_additive),
    "v_s": Named(name("v", "s", role="score"), "Vector of the scores", "(h?) l_a", needed=_additive),
    "w_in": Named(name("W", "in"), "Packed projections", "d_model p*d_k", needed=_has("packed")),
    "b_in": Named(name("b", "in"), "Packed biases", "p*d_k", optional=_has("packed")),
    "w_dkv": Named(name("W", "DKV"), "Projection to the latent", "d_y l", needed=_latent),
    "w_uk": Named(name("W", "UK", role="key"), "Keys from the latent", "l h*d_n", needed=_latent),
    "w_uv": Named(name("W", "UV", role="value"), "Values from the latent", "l h*d_v", needed=_latent),
    "w_kr": Named(name("W", "KR", role="key"), "Keys with positions", "d_y d_r", needed=_latent),
    "w_dq": Named(name("W", "DQ"), "Projection to the latent of queries", "d_model l_q", needed=_queries),
    "w_uq": Named(name("W", "UQ", role="query"), "Queries from their latent", "l_q h*d_k", needed=_queries),
    "g_ckv": Named(name("g", "KV"), "Gain of the latent", "l", optional=_normed),
    "g_cq": Named(name("g", "CQ"), "Gain of the latent of queries", "l_q", optional=_both),
    "g_q": Named(name("g", "Q", role="query"), "Gain of the queries", "d_k", optional=_gain),
    "g_k": Named(name("g", "K", role="key"), "Gain of the keys", "d_s", optional=_gain),
    "beta_q": Named(name("β", "Q", role="query"), "Bias of the normalised queries", "d_k", optional=_layer),
    "beta_k": Named(name("β", "K", role="key"), "Bias of the normalised keys", "d_s", optional=_layer),
    "cos": Named(call("cos", name("Θ")), "Cosines of the positions", "… n_k f", needed=_tables),
    "sin": Named(call("sin", name("Θ")), "Sines of the positions", "… n_k f", needed=_tables),
    "cos_q": Named(call("cos", name("Θ", "Q")), "Cosines of the positions of queries", "… n_q f", optional=_tables),
    "sin_q": Named(call("sin", name("Θ", "Q")), "Sines of the positions of queries", "… n_q f", optional=_tables),
    "positions": Named(name("p"), "Positions", "… n_k", "whole numbers", needed=_places),
    "positions_q": Named(name("p", "Q"), "Positions of the queries", "… n_q", "whole numbers", optional=_places),
    "slopes": Named(name("m"), "Slopes", "h", needed=_at(Alibi, lambda p: p.slopes == "given")),
    "b_rel": Named(name("b", "rel"), "Biases of buckets", "n_b h", needed=_at(Buckets)),
    "a_k": Named(name("A", "K", role="key"), "Keys for distances", "n_d d_k", needed=_at(Shaw)),
    "a_v": Named(name("A", "V", role="value"), "Values for distances", "n_d d_v", needed=_at(Shaw, lambda p: p.values)),
    "r": Named(name("R"), "Embeddings of distances", "n_r d_e", needed=_xl),
    "w_r": Named(name("W", "R", role="key"), "Projection of the embeddings of distances", "d_e h*d_k", needed=_xl),
    "b_u": Named(name("u", role="query"), "Bias of the queries, for contents", "h d_k", needed=_xl),
    "b_w": Named(name("w", role="query"), "Bias of the queries, for distances", "h d_k", needed=_xl),
    "p": Named(name("P"), "Embeddings of distances", "n_d d_e", needed=_at(Disentangled)),
    "w_pk": Named(name("W", "PK", role="key"), "Projection to keys for distances", "d_e h*d_k", needed=_to_keys),
    "w_pq": Named(name("W", "PQ", role="query"), "Projection to queries for distances", "d_e h*d_k",
                  needed=_to_queries),
    "b_pk": Named(name("b", "PK", role="key"), "Bias of the keys for distances", "h*d_k", optional=_to_keys),
    "b_pq": Named(name("b", "PQ", role="query"), "Bias of the queries for distances", "h*d_k", optional=_to_queries),
    "r_k": Named(Name("R'", role="key"), "Keys for distances", "[h] n_r d_k"),
    "p_k": Named(name("K", "P", role="key"), "Keys for distances", "[h] n_d d_k"),
    "p_q": Named(name("Q", "P", role="query"), "Queries for distances", "[h] n_d d_k"),
    "q_rotated": Named(name("Q", "rot", role="query"), "Rotated queries", "… [h] n_q d_k"),
    "k_rotated": Named(name("K", "rot", role="key"), "Rotated keys", "… [g] n_k d_s"),
    "q_r_rotated": Named(name("Q'", "R", role="query"), "Rotated queries", "… [h] n_q d_r"),
    "k_r_rotated": Named(name("K'", "R", role="key"), "Rotated keys", "… n_k d_r"),
    "positioned": Named(name("S", "pos", role="score"), "Scores with positions", _SCORES),
    "c_q": Named(name("C", "Q", role="query"), "Latent of the queries", "… n_q l_q"),
    "c_kv": Named(name("C"), "Latent", "… n_k l"),
    "q_n": Named(name("Q", "N", role="query"), "Queries without positions", "… [h] n_q d_n"),
    "q_r": Named(name("Q", "R", role="query"), "Queries with positions", "… [h] n_q d_r"),
    "k_n": Named(name("K", "N", role="key"), "Keys without positions", "… [h] n_k d_n"),
    "k_r": Named(name("K", "R", role="key"), "Keys with positions", "… n_k d_r"),
    "q_absorbed": Named(name("Q", "C", role="query"), "Queries for latents", "… [h] n_q l"),
    "q_joined": Named(Name("Q'", role="query"), "Queries, both parts", "… [h] n_q d_j"),
    "k_joined": Named(Name("K'", role="key"), "Keys, both parts", "… [j] n_k d_j"),
    "v_absorbed": Named(name("C", "V", role="value"), "Latents in place of values", "… [1] n_k l"),
    "attended_latents": Named(name("H", "C", role="output"), "Each head's latents", "… [h] n_q l"),
    "q_normed": Named(name("Q", "norm", role="query"), "Normalised queries", "… [h] n_q d_k"),
    "k_normed": Named(name("K", "norm", role="key"), "Normalised keys", "… [g] n_k d_s"),
    "k_shared": Named(Name("K'", role="key"), "Keys for each head of queries", "… [h] n_k d_s"),
    "q_cut": Named(name("Q", "t", role="query"), "Truncated queries", "… [h] n_q d_t"),
    "k_cut": Named(name("K", "t", role="key"), "Truncated keys", "… [h] n_k d_t"),
    "v_shared": Named(Name("V'", role="value"), "Values for each head of queries", "… [h] n_k d_v"),
    "scores": _score("S", "Scores"),
    "scaled": _score("S'", "Scaled scores"),
    "capped": Named(name("S", "cap", role="score"), "Capped scores", _SCORES),
    "biased": Named(name("S", "bias", role="score"), "Scores with their bias", _SCORES),
    "masked": _score("S''", "Masked scores"),
    "weights": Named(name("A", role="weight"), "Weights", _SCORES),
    "dropped": Named(Name("A'", role="weight"), "Weights after dropout", _SCORES),
    "lse": Named(name("L", role="score"), "Logarithms of the sums", "… [h] n_q"),
    "attended": Named(name("H", role="output"), "Each head's output", "… [h] n_q d_v"),
    "output": Named(name("O", role="output"), "Output", "… n_q d_out"),
}  # fmt: skip

SYMBOLS: dict[str, Node] = {array: named.symbol for array, named in ARRAYS.items()}


def query_place(alignment: str, more: int = 0) -> str:
    """The place of the query among the keys, and so many further, as it is typed."""
    place = "i" if alignment == "top-left" else "i + n_k − n_q"
    return f"{place} {'+' if more > 0 else '−'} {abs(more)}" if more else place


def causal_condition(alignment: str) -> str:
    """j ≤ i + n_k − n_q, or j ≤ i."""
    return f"j ≤ {query_place(alignment)}"
