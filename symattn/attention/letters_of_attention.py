"""The letters of attention, as papers write them, each in the colour of its role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from symattn.attention.positions.position_fields import (
    Alibi,
    Buckets,
    Disentangled,
    Rotary,
    Shaw,
    TransformerXL,
)
from symattn.document.errors import InputError
from symattn.document.notation import Name, Node, Role, call, node


def letter(typed: str, role: Role | None = None) -> Name:
    """Return the letter for text such as ``W_Q``; the part after ``_`` is one index.

    Raises ``InputError`` for braces, which printers add where an index needs them.
    """
    if "{" in typed or "}" in typed:
        hint = typed.replace("{", "").replace("}", "")
        raise InputError(f"the letter {typed!r} has braces; hint: {hint!r}")
    base, _, index = typed.partition("_")
    return Name(base, (node(int(index) if index.isdigit() else index),) if index else (), role)


# Names of sizes in shapes, with their letter after = where the two differ.
_SIZES = """n_q n_k n h g=h_kv d_k d_v d_model d_y=d_model d_out=d_model p d_s d_t l_a=ℓ_a f n_b n_d=n_δ n_r d_e l=ℓ
    l_q=ℓ_q d_n d_r d_c s"""
#: Letters of sizes by their names in shapes: ``g`` are the heads of keys and values; ``d_y`` and ``d_out`` are usually
#: the width of the model.
SIZES: dict[str, Node] = {
    axis: letter(typed or axis)
    for axis, _, typed in (size.partition("=") for size in _SIZES.split())
}
# Latents and positions side by side.
SIZES["d_c"] = SIZES["l"] + SIZES["d_r"]
# The sizes that other modules write by name.
N_Q, N_K, N, H, D_K, D_MODEL = map(SIZES.__getitem__, ("n_q", "n_k", "n", "h", "d_k", "d_model"))

#: Scores for which queries and keys may differ in width.
WIDE = ("general", "additive")


class Wanted(NamedTuple):
    """The field that makes a specification take an input, and the condition that its value must fulfil if set.

    ``option`` is what says so on a command line, unless the field's name, words and type do.
    """

    field: str
    fits: Callable[[Any], Any] = bool
    option: str = ""


@dataclass(frozen=True)
class Named:
    """An array of attention: its letter as text, its name in words, and its shape.

    A shape names axes by letters: ``… [h] n_q d_k`` may have leading batch axes, and has a head axis if there are
    several heads; ``[h]`` alone is a number for each head, an array without axes if there is one head, and ``h`` keeps
    the axis then. ``h*d_k`` are the columns of all heads, and ``[h*]d_k`` those where a norm is over all heads, else
    those of one; ``{s}`` is the axis of the sections of a rotary position, if it has any; ``n_k?`` may have the length
    1. Inputs other than tokens and their projections are ``needed`` by some specifications, or ``optional``, and
    refused by all others. The entries of an input that verifications draw are halves of the integers from ``drawn[0]``
    to ``drawn[1]``.

    ``blames`` is the step that a report names for a mistake in the array, one of ``STEPS_TO_BLAME``, and ``noun`` what
    its causes call the array or its step, in the singular: ``the sink``. A step of which there is a noun may be left
    out, or done twice; an input that has heads may be read from another head. An input that acts on every score of a
    head or of a row, or closes its output, is tried at all sizes if it is ``sized``: of both signs, or positive alone.
    ``also`` lists common names of parameters that stand for an input. ``codes`` are those of the mistakes that follow
    from the noun, such as ``cap-missing``; without them these have the codes ``term-missing`` and so on.
    """

    letter: str
    title: str
    shape: str
    role: Role | None = None
    holds: Literal["numbers", "booleans", "whole numbers"] = "numbers"
    needed: Wanted | None = None
    optional: Wanted | None = None
    drawn: tuple[int, int] | None = None
    blames: str = ""
    noun: str = ""
    codes: str = ""
    sized: Literal["", "signed", "positive"] = ""
    also: str = ""

    @property
    def symbol(self) -> Node:
        """The letter as a formula: ``cos Θ`` is a function of a letter."""
        function, _, of = self.letter.rpartition(" ")
        symbol = letter(of, self.role)
        return call(function, symbol) if function else symbol


def _letters_of_projection(role: Role, index: str, title: str, shape: str) -> tuple[Named, Named]:
    """Return the arrays of a projection: a matrix W and a bias b."""
    columns = shape.split()[-1]
    return (
        Named(f"W_{index}", f"Projection of the {title}", shape, role, blames="project"),
        Named(f"b_{index}", f"Bias of the {title}", columns, role, blames="project"),
    )


# Projections from the width of the model to all heads.
_OF_Q, _OF_K, _OF_V = (
    _letters_of_projection("query", "Q", "queries", "d_model h*d_k"),
    _letters_of_projection("key", "K", "keys", "d_y g*d_s"),
    _letters_of_projection("value", "V", "values", "d_y g*d_v"),
)
_OF_O = _letters_of_projection("output", "O", "output", "h*d_v d_out")
# The shape of scores and weights.
_SCORES = "… [h] n_q n_k"


def _condition_on_field(field: str, *words: str) -> Wanted:
    """Return the condition that a field is one of these words or, without words, that it is set."""
    return Wanted(field, words.__contains__) if words else Wanted(field)


def _condition_on_position_kind(
    kind: type, option: str, wanted: Callable[[Any], object] = bool
) -> Wanted:
    """Return the condition that the position is of a kind and fulfils ``wanted``, as ``option`` does."""
    return Wanted(
        "position",
        lambda position: isinstance(position, kind) and wanted(position),
        option,
    )


# Conditions for inputs, by the field that they depend on.
_tables, _places = (
    _condition_on_position_kind(
        Rotary, "--position rotary:given=tables", lambda p: p.given == "tables"
    ),
    _condition_on_position_kind(
        Rotary, "--position rotary:given=positions", lambda p: p.given == "positions"
    ),
)
_xl, _additive = (
    _condition_on_position_kind(TransformerXL, "--position transformer-xl"),
    _condition_on_field("score", "additive"),
)
_to_keys, _to_queries = (
    _condition_on_position_kind(
        Disentangled, "--position disentangled:span=N", lambda p: p.to_position
    ),
    _condition_on_position_kind(
        Disentangled, "--position disentangled:span=N", lambda p: p.to_content
    ),
)
_gain, _layer = (
    _condition_on_field("qk_norm", "rms", "layer"),
    _condition_on_field("qk_norm", "layer"),
)
# ``query_norm`` is no field: it is ``qk_norm`` unless that is of keys alone.
_gain_of_queries, _layer_of_queries = (
    _gain._replace(field="query_norm", option="--qk-norm rms, or layer"),
    _layer._replace(field="query_norm", option="--qk-norm layer"),
)
_latent, _queries = (
    Wanted("latent", option="--latent latent"),
    Wanted("latent", lambda c: c.queries, "--latent latent:queries=true"),
)
_normed, _both = (
    Wanted("latent", lambda c: c.norm, "--latent latent:norm=rms"),
    Wanted("latent", lambda c: c.norm and c.queries, "--latent latent:norm=rms,queries=true"),
)
#: Every array of attention, an input or the result of a step, by name.
ARRAYS: dict[str, Named] = {
    "x": Named(
        "X",
        "Tokens",
        "… n_q d_model",
        "input",
        also="inputs input tokens embeddings hidden_states src",
    ),
    "y": Named(
        "Y",
        "Tokens attended to",
        "… n_k d_y",
        "input",
        also="context ctx memory encoder_hidden_states encoder_output x_kv kv_input",
    ),
    "q": Named(
        "Q",
        "Queries",
        "… [h] n_q d_k",
        "query",
        blames="project",
        also="query queries xq query_states query_layer",
    ),
    "k": Named(
        "K",
        "Keys",
        "… [g] n_k d_s",
        "key",
        blames="project",
        also="key keys xk key_states key_layer",
    ),
    "v": Named(
        "V",
        "Values",
        "… [g] n_k d_v",
        "value",
        blames="project",
        also="val vals value values xv value_states value_layer",
    ),
    "w_q": _OF_Q[0],
    "b_q": _OF_Q[1],
    "w_k": _OF_K[0],
    "b_k": _OF_K[1],
    "w_v": _OF_V[0],
    "b_v": _OF_V[1],
    "w_o": _OF_O[0],
    "b_o": _OF_O[1],
    "mask": Named("M", "Mask", "… (h?) n_q? n_k?", needed=_condition_on_field("mask")),
    "keep": Named(
        "keep",
        "Keys that are no padding",
        "… n_k",
        holds="booleans",
        needed=_condition_on_field("padding"),
        also="keep_mask key_mask valid valid_mask kv_mask key_valid",
    ),
    "bias": Named(
        "B",
        "Bias of the scores",
        "… (h?) n_q? n_k?",
        needed=_condition_on_field("bias"),
        blames="bias",
        noun="the bias",
        sized="signed",
    ),
    "doc": Named(
        "doc",
        "Documents of the tokens",
        "… n_q",
        holds="whole numbers",
        optional=_condition_on_field("documents"),
        also="document_ids segment_ids doc_ids seq_ids seg_ids segments documents",
    ),
    "doc_q": Named(
        "doc_Q",
        "Documents of the queries",
        "… n_q",
        holds="whole numbers",
        optional=_condition_on_field("documents"),
        also="q_segment_ids segment_ids_q",
    ),
    "doc_k": Named(
        "doc_K",
        "Documents of the keys",
        "… n_k",
        holds="whole numbers",
        optional=_condition_on_field("documents"),
        also="kv_segment_ids k_segment_ids segment_ids_k",
    ),
    "scale": Named(
        "t",
        "Factor of each head's scores",
        "h",
        needed=_condition_on_field("scale", "given"),
        blames="scale",
        noun="the scale",
        codes="scale-twice scale-of-other-head scale-limit",
        sized="positive",
    ),
    "sink": Named(
        "z",
        "Sink of each head",
        "h",
        needed=_condition_on_field("sink", "given"),
        blames="sink",
        noun="the sink",
        codes="sink-missing sink-sign sink-of-other-head sink-limit",
        sized="signed",
    ),
    "drop": Named(
        "D",
        "Weights that are kept",
        "… (h?) n_q? n_k?",
        holds="booleans",
        needed=_condition_on_field("dropout"),
        also="dropout_mask",
    ),
    "gate": Named(
        "Γ",
        "Gate of the output",
        "… [h] n_q d_v?",
        "output",
        needed=_condition_on_field("output_gate"),
        drawn=(-6, 6),
        sized="signed",
    ),
    "w_s": Named(
        "W_s",
        "Matrix of the scores",
        "(h?) d_k d_w",
        "score",
        needed=_condition_on_field("score", *WIDE),
    ),
    "u_s": Named("U_s", "Matrix of the keys' scores", "(h?) d_s l_a", "score", needed=_additive),
    "v_s": Named("v_s", "Vector of the scores", "(h?) l_a", "score", needed=_additive),
    "w_in": Named(
        "W_in",
        "Packed projections",
        "d_model p*d_k",
        needed=_condition_on_field("packed"),
        also="in_proj_weight w_qkv qkv_weight c_attn_weight",
    ),
    "b_in": Named(
        "b_in",
        "Packed biases",
        "p*d_k",
        optional=_condition_on_field("packed"),
        also="in_proj_bias b_qkv qkv_bias c_attn_bias",
    ),
    "w_dkv": Named("W_DKV", "Projection to the latent", "d_y l", needed=_latent),
    "w_uk": Named("W_UK", "Keys from the latent", "l h*d_n", "key", needed=_latent),
    "w_uv": Named("W_UV", "Values from the latent", "l h*d_v", "value", needed=_latent),
    "w_kr": Named("W_KR", "Keys with positions", "d_y d_r", "key", needed=_latent),
    "w_dq": Named("W_DQ", "Projection to the latent of queries", "d_model l_q", needed=_queries),
    "w_uq": Named("W_UQ", "Queries from their latent", "l_q h*d_k", "query", needed=_queries),
    "g_ckv": Named("g_KV", "Gain of the latent", "l", optional=_normed),
    "g_cq": Named("g_CQ", "Gain of the latent of queries", "l_q", optional=_both),
    "g_q": Named(
        "g_Q",
        "Gain of the queries",
        "[h*]d_k",
        "query",
        optional=_gain_of_queries,
        also="q_norm query_norm q_norm_weight q_layernorm_weight query_norm_weight q_gain",
    ),
    "g_k": Named(
        "g_K",
        "Gain of the keys",
        "[g*]d_s",
        "key",
        optional=_gain,
        also="k_norm key_norm k_norm_weight k_layernorm_weight key_norm_weight k_gain",
    ),
    "g_v": Named(
        "g_V",
        "Gain of the values",
        "d_v",
        "value",
        optional=_condition_on_field("value_norm"),
        drawn=(1, 4),
    ),
    "beta_q": Named(
        "β_Q", "Bias of the normalised queries", "[h*]d_k", "query", optional=_layer_of_queries
    ),
    "beta_k": Named("β_K", "Bias of the normalised keys", "[g*]d_s", "key", optional=_layer),
    "cos": Named("cos Θ", "Cosines of the positions", "… n_k f", needed=_tables),
    "sin": Named("sin Θ", "Sines of the positions", "… n_k f", needed=_tables),
    "cos_q": Named("cos Θ_Q", "Cosines of the positions of queries", "… n_q f", optional=_tables),
    "sin_q": Named("sin Θ_Q", "Sines of the positions of queries", "… n_q f", optional=_tables),
    "positions": Named(
        "p",
        "Positions",
        "… {s} n_k",
        holds="whole numbers",
        needed=_places,
        also="position_ids pos pos_ids positions_k k_positions kv_positions pos_k",
    ),
    "positions_q": Named(
        "p_Q",
        "Positions of the queries",
        "… {s} n_q",
        holds="whole numbers",
        optional=_places,
        also="q_positions pos_q query_positions",
    ),
    "slopes": Named(
        "m",
        "Slopes",
        "h",
        needed=_condition_on_position_kind(
            Alibi, "--causal --position alibi:slopes=given", lambda p: p.slopes == "given"
        ),
        blames="bias",
        noun="the slope",
        sized="positive",
        also="alibi_slopes",
    ),
    "b_rel": Named(
        "b_rel",
        "Biases of buckets",
        "n_b h",
        needed=_condition_on_position_kind(Buckets, "--position buckets"),
        blames="bias",
        noun="the bias of buckets",
        sized="signed",
        also="rel_bias relative_bias relative_attention_bias bias_table",
    ),
    "a_k": Named(
        "A_K",
        "Keys for distances",
        "n_d d_k",
        "key",
        needed=_condition_on_position_kind(Shaw, "--position shaw:most=N"),
    ),
    "a_v": Named(
        "A_V",
        "Values for distances",
        "n_d d_v",
        "value",
        needed=_condition_on_position_kind(Shaw, "--position shaw:most=N", lambda p: p.values),
    ),
    "r": Named("R", "Embeddings of distances", "n_r d_e", needed=_xl),
    "w_r": Named(
        "W_R", "Projection of the embeddings of distances", "d_e h*d_k", "key", needed=_xl
    ),
    "b_u": Named("u", "Bias of the queries, for contents", "h d_k", "query", needed=_xl),
    "b_w": Named("w", "Bias of the queries, for distances", "h d_k", "query", needed=_xl),
    "p": Named(
        "P",
        "Embeddings of distances",
        "n_d d_e",
        needed=_condition_on_position_kind(Disentangled, "--position disentangled:span=N"),
    ),
    "w_pk": Named("W_PK", "Projection to keys for distances", "d_e h*d_k", "key", needed=_to_keys),
    "w_pq": Named(
        "W_PQ", "Projection to queries for distances", "d_e h*d_k", "query", needed=_to_queries
    ),
    "b_pk": Named("b_PK", "Bias of the keys for distances", "h*d_k", "key", optional=_to_keys),
    "b_pq": Named(
        "b_PQ", "Bias of the queries for distances", "h*d_k", "query", optional=_to_queries
    ),
    "r_k": Named("R'", "Keys for distances", "[h] n_r d_k", "key", blames="project"),
    "p_k": Named("K_P", "Keys for distances", "[h] n_d d_k", "key", blames="project"),
    "p_q": Named("Q_P", "Queries for distances", "[h] n_d d_k", "query", blames="project"),
    "q_rotated": Named("Q_rot", "Rotated queries", "… [h] n_q d_k", "query", blames="position"),
    "k_rotated": Named("K_rot", "Rotated keys", "… [g] n_k d_s", "key", blames="position"),
    "q_r_rotated": Named("Q'_R", "Rotated queries", "… [h] n_q d_r", "query", blames="position"),
    "k_r_rotated": Named("K'_R", "Rotated keys", "… n_k d_r", "key", blames="position"),
    "positioned": Named("S_pos", "Scores with positions", _SCORES, "score", blames="bias"),
    "c_q": Named("C_Q", "Latent of the queries", "… n_q l_q", "query", blames="project"),
    "c_kv": Named("C", "Latent", "… n_k l", blames="project"),
    "q_n": Named("Q_N", "Queries without positions", "… [h] n_q d_n", "query"),
    "q_r": Named("Q_R", "Queries with positions", "… [h] n_q d_r", "query"),
    "k_n": Named("K_N", "Keys without positions", "… [h] n_k d_n", "key"),
    "k_r": Named("K_R", "Keys with positions", "… n_k d_r", "key"),
    "q_absorbed": Named("Q_C", "Queries for latents", "… [h] n_q l", "query"),
    "q_joined": Named("Q'", "Queries, both parts", "… [h] n_q d_j", "query"),
    "k_joined": Named("K'", "Keys, both parts", "… [j] n_k d_j", "key"),
    "v_absorbed": Named("C_V", "Latents in place of values", "… [1] n_k l", "value"),
    "attended_latents": Named("H_C", "Each head's latents", "… [h] n_q l", "output"),
    "q_normed": Named("Q_norm", "Normalised queries", "… [h] n_q d_k", "query", blames="norm"),
    "k_normed": Named("K_norm", "Normalised keys", "… [g] n_k d_s", "key", blames="norm"),
    "v_normed": Named("V_norm", "Normalised values", "… [g] n_k d_v", "value", blames="norm"),
    "k_shared": Named("K'", "Keys for each head of queries", "… [h] n_k d_s", "key"),
    "q_cut": Named("Q_t", "Truncated queries", "… [h] n_q d_t", "query"),
    "k_cut": Named("K_t", "Truncated keys", "… [h] n_k d_t", "key"),
    "v_shared": Named("V'", "Values for each head of queries", "… [h] n_k d_v", "value"),
    "scores": Named("S", "Scores", _SCORES, "score", blames="score"),
    "scaled": Named("S'", "Scaled scores", _SCORES, "score", blames="scale"),
    "tau": Named("τ", "Temperatures of the queries", "n_q", "score"),
    "tempered": Named("S_τ", "Scores with their temperatures", _SCORES, "score", blames="score"),
    "capped": Named(
        "S_cap",
        "Capped scores",
        _SCORES,
        "score",
        blames="softcap",
        noun="the cap",
        codes="cap-missing cap-twice",
    ),
    "biased": Named(
        "S_bias",
        "Scores with their bias",
        _SCORES,
        "score",
        blames="bias",
        noun="the bias",
        codes="bias-missing bias-sign bias-off",
    ),
    "masked": Named("S''", "Masked scores", _SCORES, "score", blames="mask"),
    "weights": Named("A", "Weights", _SCORES, "weight", blames="normalize"),
    "dropped": Named("A'", "Weights after dropout", _SCORES, "weight", blames="dropout"),
    "lse": Named("L", "Logarithms of the sums", "… [h] n_q", "score"),
    "attended": Named("H", "Each head's output", "… [h] n_q d_v", "output", blames="values"),
    "gated": Named(
        "H_Γ",
        "Each head's output, gated",
        "… [h] n_q d_v",
        "output",
        blames="gate",
        noun="the output gate",
        codes="output-gate-missing output-gate-twice",
    ),
    "projected": Named("O_W", "Projected output", "… n_q d_out", "output", blames="output"),
    "output": Named("O", "Output", "… n_q d_out", "output", blames="output"),
}

#: The names that scores have, from products to what the normaliser receives.
SCORES: tuple[str, ...] = tuple(
    name for name, named in ARRAYS.items() if named.role == "score" and named.shape == _SCORES
)

# The letter of each array as a formula.
SYMBOLS: dict[str, Node] = {array: named.symbol for array, named in ARRAYS.items()}


def query_place(alignment: str, more: int = 0) -> str:
    """Return the position of query i among the keys, plus ``more``, as the text of a formula."""
    place = "i" if alignment == "top-left" else "i + n_k − n_q"
    return f"{place} {'+' if more > 0 else '−'} {abs(more)}" if more else place
