"""Gradients through the steps of attention: sinks, caps, masks, shared heads, rotations, norms, scores. Part of the
topic ``gradients``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.gradients import scores
from symattn.attention.gradients.attention import Gradients, shared_gradient
from symattn.attention.gradients.scores import project_gradients, unit_gradient
from symattn.attention.layers.steps import sigmoid
from symattn.attention.norms import centre, layer_norm, rms_norm
from symattn.attention.positions.angles import rotate_half, rotate_interleaved
from symattn.attention.projections import project, repeat_heads
from symattn.attention.scores import additive_scores, cosine_scores, distance_scores, general_scores, softcap
from symattn.attention.softmax import log_sum_exp, sigmoid_weights, sink_weights
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.values import Value
from symattn.proof.statement import Pair
from symattn.proof.theorem import theorem
from symattn.theorems.gradients import FLASH, LETTERS, QKVG, TOPIC, back, pulled_back
from symattn.theorems.letters import ATTENDING, ATTENTION, CAUSAL
from symattn.theorems.rotations import positions, rotation_matrix

CAP = 2
_SIGMOID, _CAPPED = partial(sigmoid_weights, bias=0), partial(softcap, cap=CAP)
_LSE = partial(log_sum_exp, masked=False)
BIASED = Attention(bias=True)


def _passing(given: Mapping[str, str], of: str, by: str, **more: Any) -> Glossary:
    """Letters of a step that gives ``of``, by which the gradient ``by`` is given: dX is the gradient by X."""
    letters = ATTENDING.but(*ATTENDING.given, *ATTENDING.defined).also(given, **more)
    return letters.where(f"ℓ = Σ_{{i=1}}^{{n_q}} Σ_{{j=1}}^{{n_k}} {by} {of}").also(loss="ℓ")


MEANING = ("dX is the gradient by X, from dY by what was computed of it",)


# -- weights -----------------------------------------------------------------------------------------------------------
@theorem(
    "backward-sink",
    TOPIC,
    "$dS_ij = p_ij (dP_ij − D_i)$ and $db_i = −w_i D_i$ with $D_i = Σ_{j=1}^{n_k} p_ij dP_ij$",
    letters=_passing({"S": "n_q n_k", "dP": "n_q n_k", "b": "n_q"}, "p_ij", "dP_ij"),
    arrays={"s": "n_q n_k", "b": "n_q 1", "g": "n_q n_k"},
    hypotheses=(
        *MEANING,
        "a sink $b_i$ has the weight $w_i$ in its row: $p_ij = e^{s_ij}/(e^{b_i} + Σ_{l=1}^{n_k} e^{s_il})$,"
        " $w_i = e^{b_i}/(e^{b_i} + Σ_{l=1}^{n_k} e^{s_il})$",
    ),
    source=FLASH,
    why="The sink is one more key, of which the value is 0.",
    false=lambda s, b, g: (
        pulled_back(sink_weights, "sink", s=s, sink=b, g=g),
        -scores.sink_gradients(sink_weights(s, b), g)[1],
    ),
    false_says="$db_i = w_i D_i$",
)
def backward_sink(s: Array, b: Array, g: Array) -> list[Pair]:
    ds, db = scores.sink_gradients(sink_weights(s, b), g)
    return [
        (pulled_back(sink_weights, "s", s=s, sink=b, g=g), ds),
        (pulled_back(sink_weights, "sink", s=s, sink=b, g=g), db),
    ]


@theorem(
    "backward-sigmoid",
    TOPIC,
    "$dS_ij = a_ij (1 − a_ij) da_ij$",
    letters=_passing({"S": "n_q n_k", "dA": "n_q n_k"}, "a_ij", "da_ij"),
    arrays={"s": "n_q n_k", "g": "n_q n_k"},
    hypotheses=(*MEANING, "$a_ij = sigmoid(s_ij)$"),
    why="Each weight looks at its own score.",
    false=lambda s, g: (pulled_back(_SIGMOID, "s", s=s, g=g), sigmoid_weights(s, 0) * g),
    false_says="$dS_ij = a_ij da_ij$",
)
def backward_sigmoid(s: Array, g: Array) -> Pair:
    return pulled_back(_SIGMOID, "s", s=s, g=g), scores.sigmoid_gradient(sigmoid(s), g)


@theorem(
    "log-sum-exp-gradient",
    TOPIC,
    "$∂L_i/∂s_ij = p_ij$",
    letters=ATTENDING.but("S").also({"S": "n_q n_k"}),
    arrays={"s": "n_q n_k", "g": "n_q 1"},
    hypotheses=("L is the logarithm of what a row is divided by, $L_i = log(Σ_{l=1}^{n_k} e^{s_il})$",),
    why="The derivative of a logarithm of a sum of exponentials.",
    false=lambda s, g: (pulled_back(_LSE, "s", s=s, g=g), soft(s) * (g - soft(s) * g)),
    false_says="$∂L_i/∂s_ij = p_ij (1 − p_ij)$",
)
def log_sum_exp_gradient(s: Array, g: Array) -> list[Pair]:
    lse = log_sum_exp(s, masked=False)
    return [
        (pulled_back(_LSE, "s", s=s, g=g), g * soft(s)),
        (pulled_back(_LSE, "s", s=s, g=g), scores.log_sum_exp_gradient(s, lse, g)),
    ]


# -- scores ------------------------------------------------------------------------------------------------------------
@theorem(
    "backward-softcap",
    TOPIC,
    "$dS_ij = dY_ij (1 − (Y_ij/c)²)$",
    letters=_passing({"S": "n_q n_k", "dY": "n_q n_k", "c": ""}, "Y_ij", "dY_ij"),
    arrays={"s": "n_q n_k", "g": "n_q n_k"},
    hypotheses=(
        *MEANING,
        "$Y_ij = c tanh(s_ij/c)$",
        "$c = 2$, which is no loss: scores may be measured in other units",
    ),
    why="The derivative of tanh is 1 − tanh².",
    false=lambda s, g: (pulled_back(_CAPPED, "s", s=s, g=g), g * (1 - softcap(s, CAP) * softcap(s, CAP))),
    false_says="$dS_ij = dY_ij (1 − Y_ij²)$",
)
def backward_softcap(s: Array, g: Array) -> Pair:
    return pulled_back(_CAPPED, "s", s=s, g=g), scores.softcap_gradient(softcap(s, CAP), CAP, g)


def _pairs(function: Any, found: tuple[Any, ...], g: Array, **given: Any) -> list[tuple[Any, Any]]:
    """The gradients of ⟨G, f⟩ by every array, each with what it is said to be."""
    return [(pulled_back(function, n, g=g, **given), d) for n, d in zip(given, found, strict=True)]


@theorem(
    "backward-general-scores",
    TOPIC,
    "$dQ = dS K Wᵀ$, $dK = dSᵀ Q W$ and $dW = Qᵀ dS K$",
    letters=_passing({"Q": "n_q d_q", "K": "n_k d_k", "W": "d_q d_k", "dS": "n_q n_k"}, "s_ij", "dS_ij"),
    arrays={"q": "n_q d_q", "k": "n_k d_k", "w": "d_q d_k", "g": "n_q n_k"},
    hypotheses=(*MEANING, "$S = Q W Kᵀ$"),
    why="The scores are linear in each of the three.",
    false=lambda q, k, w, g: (pulled_back(general_scores, "q", q=q, k=k, w=w, g=g), g @ k @ w.mT @ w @ w.mT),
    false_says="$dQ = dS K Wᵀ W Wᵀ$",
)
def backward_general_scores(q: Array, k: Array, w: Array, g: Array) -> Any:
    return _pairs(general_scores, scores.general_gradients(q, k, w, g), g, q=q, k=k, w=w)


@theorem(
    "backward-additive-scores",
    TOPIC,
    "$dv = Σ_{i=1}^{n_q} Σ_{j=1}^{n_k} ds_ij h_ij$, the others from $e_ij = ds_ij v (1 − h_ij²)$",
    letters=_passing(
        {"Q": "n_q d_q", "K": "n_k d_k", "W": "l d_q", "U": "l d_k", "v": "l", "dS": "n_q n_k"},
        "s_ij",
        "dS_ij",
        roles={"v": None},
    ).but("h"),
    arrays={"q": "n_q d_q", "k": "n_k d_k", "w": "d_q l", "u": "d_k l", "v": "l", "g": "n_q n_k"},
    hypotheses=(
        *MEANING,
        "the scores are $s_ij = v·h_ij$ with $h_ij = tanh(W q_i + U k_j)$; products by entries",
        "dQ and dW are those of Q W for the sums of e over keys, dK and dU those of K U for its sums over queries",
    ),
    source="Bahdanau, Cho, Bengio (2015)",
    why="The derivative of tanh is 1 − tanh².",
    false=lambda q, k, w, u, v, g: (
        pulled_back(additive_scores, "q", q=q, k=k, w=w, u=u, v=v, g=g),
        g.sum(axis=-1)[:, None] * (v * w).sum(axis=-1)[None, :],
    ),
    false_says="dQ without the slope of tanh",
)
def backward_additive_scores(q: Array, k: Array, w: Array, u: Array, v: Array, g: Array) -> Any:
    return _pairs(additive_scores, scores.additive_gradients(q, k, w, u, v, g), g, q=q, k=k, w=w, u=u, v=v)


@theorem(
    "backward-distance-scores",
    TOPIC,
    "$dq_i = Σ_{j=1}^{n_k} ds_ij (k_j − q_i)$",
    letters=_passing({"Q": "n_q d", "K": "n_k d", "dS": "n_q n_k"}, "s_ij", "dS_ij"),
    arrays={"q": "n_q d", "k": "n_k d", "g": "n_q n_k"},
    hypotheses=(
        *MEANING,
        "$s_ij = −‖q_i − k_j‖²/2$; dK is the same with queries and keys exchanged",
    ),
    why="The derivative of half a square.",
    false=lambda q, k, g: (pulled_back(distance_scores, "q", q=q, k=k, g=g), g @ k),
    false_says="$dQ = dS K$",
)
def backward_distance_scores(q: Array, k: Array, g: Array) -> Any:
    return _pairs(distance_scores, scores.distance_gradients(q, k, g), g, q=q, k=k)


# -- queries and keys --------------------------------------------------------------------------------------------------
def _across(x: Array, g: Array) -> Any:
    """(g − u (u·g)) / ‖x‖ with u = x / ‖x‖."""
    return unit_gradient(x, g)


def _times_root(x: Array) -> Array:
    xp = x.__array_namespace__()
    return x * xp.sqrt(xp.asarray(x.shape[-1]))


@theorem(
    "backward-norms",
    TOPIC,
    "$dX = (G − u uᵀ G)/‖X‖$ for $u = X/‖X‖$; $√d {(G − u uᵀ G)/‖X‖}$ for RMSNorm; and for LayerNorm the"
    " same of $Π X$, times $Π$",
    letters=Glossary(
        {"X": "d", "G": "d"},
        index={"i": "d"},
        sizes={"d": "d"},
        loss="ℓ",
    ).where("ℓ = Σ_{i=1}^d G_i u_i"),
    arrays={"x": "n d", "g": "n d", "q": "n_q d", "k": "n_k d", "s": "n_q n_k"},
    hypotheses=(*MEANING, "ε = 0, and no row is 0 (for LayerNorm, constant); Π subtracts the mean of a row"),
    source="Zhang, Sennrich, Root Mean Square Layer Normalization (2019)",
    why="What of the gradient is along x would change its length alone. Cosines are dot products of such u.",
    false=(
        lambda x, g: (pulled_back(layer_norm, "x", x=x, g=g), _times_root(_across(centre(x), g))),
        lambda x, g: (pulled_back(rms_norm, "x", x=x, g=g), _across(x, g)),
    ),
    false_says="without the last Π; without the root",
)
def backward_norms(x: Array, g: Array, q: Array, k: Array, s: Array) -> list[Pair]:
    cosines = _pairs(cosine_scores, scores.cosine_gradients(q, k, s), s, q=q, k=k)
    return [
        (pulled_back(rms_norm, "x", x=x, g=g), _times_root(_across(x, g))),
        (pulled_back(layer_norm, "x", x=x, g=g), _times_root(centre(_across(centre(x), g)))),
        *cosines,
    ]


TURNS = {"cos": "n f", "sin": "n f"}


@theorem(
    "backward-rotary",
    TOPIC,
    "$dx_p = R_{−p} g_p$",
    arrays={"x": "n f*2", "g": "n f*2", "y": "n f+f", "w": "n f+f", **TURNS},
    hypotheses=(*MEANING, "$R_p$ turns the pairs of columns at the place p, in either layout"),
    source="Su et al., RoFormer (2021)",
    why="A rotation is undone by its transpose.",
    false=lambda x, g, cos, sin: (
        pulled_back(rotate_interleaved, "x", x=x, cos=cos, sin=sin, g=g),
        rotate_interleaved(g, cos, sin),
    ),
    false_says="$dx_p = R_p g_p$",
    letters=positions(
        {"x_p": "f*2", "g_p": "f*2"},
        "p",
        {"R": rotation_matrix},
        loss="ℓ",
    ).where("ℓ = R_p x_p·g_p"),
)
def backward_rotary(x: Array, g: Array, y: Array, w: Array, cos: Array, sin: Array) -> list[Pair]:
    return [
        (pulled_back(turn, "x", x=a, cos=cos, sin=sin, g=b), turn(b, cos, -sin))
        for turn, a, b in ((rotate_interleaved, x, g), (rotate_half, y, w))
    ]


@theorem(
    "backward-projection",
    TOPIC,
    "$dX = G Wᵀ$, $dW = Xᵀ G$ and $db = Σ_{i=1}^n g_i$",
    letters=Glossary(
        {"X": "n d_model", "W": "d_model d", "b": "d", "G": "n d"},
        index={"i": "n", "c": "d"},
        sizes={"n": "n", "d": "d"},
        loss="ℓ",
    ).where("ℓ = Σ_{i=1}^n Σ_{c=1}^d G_i_c Y_i_c"),
    arrays={"x": "n d_model", "w": "d_model d", "b": "d", "g": "n d"},
    hypotheses=(*MEANING, "$Y = X W + 𝟏 bᵀ$ and G is the gradient by Y"),
    why="The projection is linear in each of the three.",
    false=lambda x, w, b, g: (pulled_back(project, "w", x=x, w=w, b=b, g=g), x.mT @ (x @ w)),
    false_says="$dW = Xᵀ X W$",
)
def backward_projection(x: Array, w: Array, b: Array, g: Array) -> Any:
    return _pairs(project, project_gradients(x, w, g), g, x=x, w=w, b=b)


# -- whole passes ------------------------------------------------------------------------------------------------------
def _grouped(q: Array, k: Array, v: Array) -> Any:
    return ATTENTION(q, *_shared(q, k, v))


def _shared(q: Array, k: Array, v: Array) -> tuple[Any, Any]:
    times = q.shape[0] // k.shape[0]
    return repeat_heads(k, times), repeat_heads(v, times)


def _each_head(reader: Reader) -> Gradients:
    """Return the gradients that each query head sends to the head of keys and values that it reads."""
    q, k, v, g = map(reader.array, "QKVG")
    results = back(q, k[:, None], v[:, None], g)
    return Gradients(*(Value(x, ("h", "t"), 2) for x in results))


GROUPED = {"q": "h*r n_q d_k", "k": "h n_k d_k", "v": "h n_k d_v", "g": "h*r n_q d_v"}


@theorem(
    "backward-shared-heads",
    TOPIC,
    "$dK_h = Σ_{t=1}^r dK_h_t$ and $dV_h = Σ_{t=1}^r dV_h_t$",
    arrays=GROUPED,
    hypotheses=(*MEANING, "the head h of keys and values is read by the heads (h, 1), …, (h, r) of queries"),
    source="Ainslie et al., GQA (2023)",
    why="What is read several times gets the sum of the gradients.",
    false=lambda q, k, v, g: (
        pulled_back(_grouped, "v", q=q, k=k, v=v, g=g),
        shared_gradient(back(q, *_shared(q, k, v), g).v, q.shape[0] // k.shape[0]) / (q.shape[0] // k.shape[0]),
    ),
    false_says="the mean over the heads in the place of the sum",
    letters=Glossary(
        {"Q": "h r n_q d_k", "K": "h n_k d_k", "V": "h n_k d_v", "G": "h r n_q d_v"},
        {"H": "h", "r": "r", "d_k": "d_k"},
        {"h": "h", "t": "r"},
        {"dK_ht": lambda reader: _each_head(reader).k, "dV_ht": lambda reader: _each_head(reader).v},
        loss="ℓ",
    ).where("ℓ = Σ_{h=1}^H Σ_{t=1}^r G_h_t·Attention(Q_h_t, K_h, V_h)"),
)
def backward_shared_heads(q: Array, k: Array, v: Array, g: Array) -> list[Pair]:
    times, results = q.shape[0] // k.shape[0], back(q, *_shared(q, k, v), g)
    wanted = {"q": results.q, "k": shared_gradient(results.k, times), "v": shared_gradient(results.v, times)}
    return [(pulled_back(_grouped, n, q=q, k=k, v=v, g=g), wanted[n]) for n in wanted]


@theorem(
    "backward-causal",
    TOPIC,
    "the gradients of causal attention are those of $dV = Pᵀ G$, $dQ = 1/√d_k dS K$, $dK = 1/√d_k dSᵀ Q$"
    " with its weights $P$",
    letters=Glossary(
        {"Q": "n d_k", "K": "n d_k", "V": "n d_v", "G": "n d_v"},
        index={"i": "n", "j": "n", "l": "n", "c": "d_v"},
        sizes={"n": "n", "n_k": "n", "d_k": "d_k", "d_v": "d_v"},
        loss="ℓ",
        defined={
            "P": lambda r: CAUSAL.trace(r.array("Q"), r.array("K"), r.array("V"))["weights"],
        },
    ).where("dP = G Vᵀ", "O = P V", "ℓ = Σ_{i=1}^n Σ_{c=1}^{d_v} G_i_c O_i_c"),
    arrays={"q": "n d_k", "k": "n d_k", "v": "n d_v", "g": "n d_v"},
    hypotheses=(*MEANING, "$dS_ij = p_ij (dP_ij − D_i)$, $D_i = Σ_{j=1}^{n_k} p_ij dP_ij$"),
    source=FLASH,
    why="A key that is forbidden has the weight 0, and so has its score's gradient: no mask is needed on the way back.",
    false=lambda q, k, v, g: (pulled_back(CAUSAL, "k", q=q, k=k, v=v, g=g), back(q, k, v, g).k),
    false_says="the same with the weights that have no mask",
)
def backward_causal(q: Array, k: Array, v: Array, g: Array) -> list[Pair]:
    results = back(q, k, v, g, CAUSAL)
    return [(pulled_back(CAUSAL, n, q=q, k=k, v=v, g=g), getattr(results, n)) for n in "qkv"]


@theorem(
    "backward-bias",
    TOPIC,
    "$dB = dS$; for one row b that every query is given, $db_j = Σ_{i=1}^{n_q} dS_ij$",
    letters=LETTERS.but("S", "P")
    .also(
        {"B": "n_q n_k", "b": "n_k"},
    )
    .where("P = softmax(Q Kᵀ/√d_k + B + 𝟏 bᵀ)"),
    arrays={**QKVG, "bias": "n_q n_k", "row": "1 n_k"},
    hypotheses=(*MEANING, "B and $𝟏 bᵀ$ are added to the scaled scores"),
    why="The scores are the sum, and what is added often gets the sum of the gradients.",
    false=lambda q, k, v, g, bias: (
        pulled_back(BIASED, "bias", q=q, k=k, v=v, bias=bias, g=g),
        _ds(q, k, v, 0 * bias, g),
    ),
    false_says="the gradient by the scores without the bias",
)
def backward_bias(q: Array, k: Array, v: Array, g: Array, bias: Array, row: Array) -> list[Pair]:
    return [
        (pulled_back(BIASED, "bias", q=q, k=k, v=v, bias=b, g=g), scores.summed_like(_ds(q, k, v, b, g), b))
        for b in (bias, row)
    ]


def _ds(q: Array, k: Array, v: Array, bias: Array, g: Array) -> Any:
    return scores.softmax_gradient(BIASED.trace(q, k, v, bias=bias)["weights"], g @ v.mT)
