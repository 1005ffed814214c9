"""Gradients through the steps of attention: sinks, caps, masks, shared heads, rotations, norms, scores. Part of the
topic ``gradients``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.gradients import rows, scores
from symattn.attention.gradients.attention import Gradients, backward, shared_gradient
from symattn.attention.gradients.scores import project_gradients, unit_gradient
from symattn.attention.groups import repeat_heads
from symattn.attention.layers.activations import sigmoid
from symattn.attention.norms import centre, layer_norm, rms_norm
from symattn.attention.notation import D_K, D_V, N_K, N_Q
from symattn.attention.pointwise import sigmoid_weights
from symattn.attention.positions.angles import rotate_half, rotate_interleaved
from symattn.attention.projections import project
from symattn.attention.scores import additive_scores, cosine_scores, distance_scores, general_scores
from symattn.attention.sinks import sink_weights
from symattn.attention.softcap import softcap
from symattn.attention.softmax import log_sum_exp
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.document.notation import Node, Over, Partial, Power, Product, Root, call, equals, name, node, total
from symattn.proof.gradients import gradient
from symattn.proof.relations.glossary import Definition, Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.values import Value
from symattn.proof.statement import Pair
from symattn.proof.theorem import Theorem, theorem
from symattn.theorems.letters import (
    ATTENDING,
    ATTENTION,
    CAUSAL,
    I_,
    J_,
    ONES,
    G,
    K,
    P,
    Q,
    V,
    X,
    attention,
    norm,
    power_of_e,
    same,
    softmax,
    t,
    told,
)
from symattn.theorems.rotations import positions, rotation_matrix

TOPIC = "gradients"
FLASH = "Dao et al., FlashAttention (2022)"
CAP = 2
BIASED = Attention(bias=True)
QKVG = {"q": "n_q d_k", "k": "n_k d_k", "v": "n_k d_v", "g": "n_q d_v"}
_W, _B = name("W"), name("b")
_Y = name("Y", "i", "j")
_U, _PI, _C = name("u"), name("Π"), name("c")


def _p(*at: Any) -> Node:
    return name("p", *at, role="weight")


def _of(letter: str, *at: Any) -> Node:
    """∂ℓ/∂letter, as the backward pass names it."""
    return name("d" + letter, *at)


def _s(*at: Any) -> Node:
    return name("s", *at, role="score")


_SUNK = power_of_e(name("b", "i")) + total("l", 1, N_K, power_of_e(_s("i", "l")))
_ADDED = Product((name("v"), name("h", "i", "j")), "·")
_HIDDEN = equals(name("h", "i", "j"), call("tanh", name("W") * name("q", "i") + name("U") * name("k", "j")))
_D = name("D", "i")
_IS_D = equals(_D, total(J_, 1, N_K, _p("i", "j") * _of("P", "i", "j")))


def _passing(given: Mapping[str, str], of: Node, by: Node, **more: Any) -> Glossary:
    """Letters of a step that gives ``of``, by which the gradient ``by`` is given: dX is the gradient by X."""
    loss = {"ℓ": total(I_, 1, N_Q, total(J_, 1, N_K, by * of))}
    return ATTENDING.but(*ATTENDING.given, *ATTENDING.defined).also(given, defined=loss, loss="ℓ", **more)


_WHOLE = ATTENDING.also(
    defined={
        "ℓ": total(I_, 1, N_Q, total("c", 1, D_V, name("G", "i", "c") * name("O", "i", "c"))),
        "dP": G * t(V),
        "dS": Definition(
            ("i", "j"),
            _p("i", "j") * (_of("P", "i", "j") - total("l", 1, N_K, _p("i", "l") * _of("P", "i", "l"))),
        ),
    },
    loss="ℓ",
)
MEANING = (("dX is the gradient by X, from dY by what was computed of it",),)


# -- weights -----------------------------------------------------------------------------------------------------------
def _sunk(s: Any, b: Any, g: Any) -> Any:
    return (g * sink_weights(s, b)).sum()


@theorem(
    "backward-sink",
    TOPIC,
    (
        equals(_of("S", "i", "j"), _p("i", "j") * (_of("P", "i", "j") - _D)),
        " and ",
        equals(_of("b", "i"), -name("w", "i") * _D),
        " with ",
        _IS_D,
    ),
    letters=_passing({"S": "n_q n_k", "dP": "n_q n_k", "b": "n_q"}, _p("i", "j"), _of("P", "i", "j")),
    arrays={"s": "n_q n_k", "b": "n_q 1", "g": "n_q n_k"},
    hypotheses=(
        *MEANING,
        told(
            "a sink {} has the weight {} in its row: {}, {}",
            name("b", "i"),
            name("w", "i"),
            equals(_p("i", "j"), power_of_e(_s("i", "j")) / _SUNK),
            equals(name("w", "i"), power_of_e(name("b", "i")) / _SUNK),
        ),
    ),
    source=FLASH,
    why="The sink is one more key, of which the value is 0.",
    false=lambda s, b, g: (
        gradient(_sunk, "b", s=s, b=b, g=g),
        -rows.sink_gradients(sink_weights(s, b), g)[1],
    ),
    false_says=same(_of("b", "i"), name("w", "i") * _D),
)
def backward_sink(s: Array, b: Array, g: Array) -> list[Pair]:
    ds, db = rows.sink_gradients(sink_weights(s, b), g)
    return [(gradient(_sunk, "s", s=s, b=b, g=g), ds), (gradient(_sunk, "b", s=s, b=b, g=g), db)]


@theorem(
    "backward-sigmoid",
    TOPIC,
    same(_of("S", "i", "j"), name("a", "i", "j") * (1 - name("a", "i", "j")) * name("da", "i", "j")),
    letters=_passing({"S": "n_q n_k", "dA": "n_q n_k"}, name("a", "i", "j"), name("da", "i", "j")),
    arrays={"s": "n_q n_k", "g": "n_q n_k"},
    hypotheses=(*MEANING, (equals(name("a", "i", "j"), call("sigmoid", _s("i", "j"))),)),
    why="Each weight looks at its own score.",
    false=lambda s, g: (gradient(_of_sigmoid, "s", s=s, g=g), sigmoid_weights(s, 0) * g),
    false_says=same(_of("S", "i", "j"), name("a", "i", "j") * name("da", "i", "j")),
)
def backward_sigmoid(s: Array, g: Array) -> Pair:
    return gradient(_of_sigmoid, "s", s=s, g=g), rows.sigmoid_gradient(sigmoid(s), g)


def _of_sigmoid(s: Any, g: Any) -> Any:
    return (g * sigmoid_weights(s, 0)).sum()


@theorem(
    "log-sum-exp-gradient",
    TOPIC,
    same(Partial(name("L", "i"), name("s", "i", "j", role="score")), _p("i", "j")),
    letters=ATTENDING.but("S").also({"S": "n_q n_k"}),
    arrays={"s": "n_q n_k", "g": "n_q 1"},
    hypotheses=(
        told(
            "L is the logarithm of what a row is divided by, {}",
            equals(name("L", "i"), call("log", total("l", 1, N_K, power_of_e(_s("i", "l"))))),
        ),
    ),
    why="The derivative of a logarithm of a sum of exponentials.",
    false=lambda s, g: (gradient(_summed, "s", s=s, g=g), soft(s) * (g - soft(s) * g)),
    false_says=same(Partial(name("L", "i"), name("s", "i", "j", role="score")), _p("i", "j") * (1 - _p("i", "j"))),
)
def log_sum_exp_gradient(s: Array, g: Array) -> list[Pair]:
    lse = log_sum_exp(s, masked=False)
    return [
        (gradient(_summed, "s", s=s, g=g), g * soft(s)),
        (gradient(_summed, "s", s=s, g=g), rows.log_sum_exp_gradient(s, lse, g)),
    ]


def _summed(s: Any, g: Any) -> Any:
    return (g * log_sum_exp(s, masked=False)).sum()


# -- scores ------------------------------------------------------------------------------------------------------------
def _capped(s: Any, g: Any) -> Any:
    return (g * softcap(s, CAP)).sum()


@theorem(
    "backward-softcap",
    TOPIC,
    same(_of("S", "i", "j"), _of("Y", "i", "j") * (1 - Power(Over(_Y, _C), node(2)))),
    letters=_passing({"S": "n_q n_k", "dY": "n_q n_k", "c": ""}, _Y, _of("Y", "i", "j")),
    arrays={"s": "n_q n_k", "g": "n_q n_k"},
    hypotheses=(
        *MEANING,
        (equals(_Y, _C * call("tanh", Over(_s("i", "j"), _C))),),
        (equals(_C, CAP), ", which is no loss: scores may be measured in other units"),
    ),
    why="The derivative of tanh is 1 − tanh².",
    false=lambda s, g: (gradient(_capped, "s", s=s, g=g), g * (1 - softcap(s, CAP) * softcap(s, CAP))),
    false_says=same(_of("S", "i", "j"), _of("Y", "i", "j") * (1 - Power(_Y, node(2)))),
)
def backward_softcap(s: Array, g: Array) -> Pair:
    return gradient(_capped, "s", s=s, g=g), scores.softcap_gradient(softcap(s, CAP), CAP, g)


def _loss_of(function: Any) -> Any:
    return lambda g, **given: (g * function(**given)).sum()


def _pairs(function: Any, found: tuple[Any, ...], g: Array, **given: Any) -> list[tuple[Any, Any]]:
    """The gradients of ⟨G, f⟩ by every array, each with what it is said to be."""
    loss = _loss_of(function)
    return [(gradient(loss, n, g=g, **given), d) for n, d in zip(given, found, strict=True)]


@theorem(
    "backward-general-scores",
    TOPIC,
    (
        equals(_of("Q"), _of("S") * K * t(_W)),
        ", ",
        equals(_of("K"), t(_of("S")) * Q * _W),
        " and ",
        equals(_of("W"), t(Q) * _of("S") * K),
    ),
    letters=_passing(
        {"Q": "n_q d_q", "K": "n_k d_k", "W": "d_q d_k", "dS": "n_q n_k"}, _s("i", "j"), _of("S", "i", "j")
    ),
    arrays={"q": "n_q d_q", "k": "n_k d_k", "w": "d_q d_k", "g": "n_q n_k"},
    hypotheses=(*MEANING, (equals(name("S", role="score"), Q * _W * t(K)),)),
    why="The scores are linear in each of the three.",
    false=lambda q, k, w, g: (gradient(_loss_of(general_scores), "q", q=q, k=k, w=w, g=g), g @ k @ w.mT @ w @ w.mT),
    false_says=same(_of("Q"), _of("S") * K * t(_W) * _W * t(_W)),
)
def backward_general_scores(q: Array, k: Array, w: Array, g: Array) -> Any:
    return _pairs(general_scores, scores.general_gradients(q, k, w, g), g, q=q, k=k, w=w)


@theorem(
    "backward-additive-scores",
    TOPIC,
    (
        equals(_of("v"), total(I_, 1, N_Q, total(J_, 1, N_K, _of("s", "i", "j") * name("h", "i", "j")))),
        ", the others from ",
        equals(
            name("e", "i", "j"),
            _of("s", "i", "j") * name("v") * (1 - Power(name("h", "i", "j"), node(2))),
        ),
    ),
    letters=_passing(
        {"Q": "n_q d_q", "K": "n_k d_k", "W": "l d_q", "U": "l d_k", "v": "l", "dS": "n_q n_k"},
        _s("i", "j"),
        _of("S", "i", "j"),
    ).but("h"),
    arrays={"q": "n_q d_q", "k": "n_k d_k", "w": "d_q l", "u": "d_k l", "v": "l", "g": "n_q n_k"},
    hypotheses=(
        *MEANING,
        told("the scores are {} with {}; products by entries", equals(_s("i", "j"), _ADDED), _HIDDEN),
        ("dQ and dW are those of Q W for the sums of e over keys, dK and dU those of K U for its sums over queries",),
    ),
    source="Bahdanau, Cho, Bengio (2015)",
    why="The derivative of tanh is 1 − tanh².",
    false=lambda q, k, w, u, v, g: (
        gradient(_loss_of(additive_scores), "q", q=q, k=k, w=w, u=u, v=v, g=g),
        g.sum(axis=-1)[:, None] * (v * w).sum(axis=-1)[None, :],
    ),
    false_says=("dQ without the slope of tanh",),
)
def backward_additive_scores(q: Array, k: Array, w: Array, u: Array, v: Array, g: Array) -> Any:
    return _pairs(additive_scores, scores.additive_gradients(q, k, w, u, v, g), g, q=q, k=k, w=w, u=u, v=v)


@theorem(
    "backward-distance-scores",
    TOPIC,
    same(
        _of("q", "i"),
        total(J_, 1, N_K, _of("s", "i", "j") * (name("k", "j", role="key") - name("q", "i", role="query"))),
    ),
    letters=_passing({"Q": "n_q d", "K": "n_k d", "dS": "n_q n_k"}, _s("i", "j"), _of("S", "i", "j")),
    arrays={"q": "n_q d", "k": "n_k d", "g": "n_q n_k"},
    hypotheses=(
        *MEANING,
        (
            equals(
                name("s", "i", "j", role="score"),
                -Over(Power(norm(name("q", "i", role="query") - name("k", "j", role="key")), node(2)), node(2)),
            ),
            "; dK is the same with queries and keys exchanged",
        ),
    ),
    why="The derivative of half a square.",
    false=lambda q, k, g: (gradient(_loss_of(distance_scores), "q", q=q, k=k, g=g), g @ k),
    false_says=same(_of("Q"), _of("S") * K),
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


_SIDE = Over(G - _U * (t(_U) * G), norm(X))


@theorem(
    "backward-norms",
    TOPIC,
    (
        equals(_of("X"), _SIDE),
        " for ",
        equals(_U, Over(X, norm(X))),
        "; ",
        Root(name("d")) * _SIDE,
        " for RMSNorm; and for LayerNorm the same of ",
        _PI * X,
        ", times ",
        _PI,
    ),
    letters=Glossary(
        {"X": "d", "G": "d"},
        index={"i": "d"},
        sizes={"d": "d"},
        loss="ℓ",
        defined={"ℓ": Definition((), total(I_, 1, "d", name("G", "i") * name("u", "i")))},
    ),
    arrays={"x": "n d", "g": "n d", "q": "n_q d", "k": "n_k d", "s": "n_q n_k"},
    hypotheses=(*MEANING, ("ε = 0, and no row is 0 (for LayerNorm, constant); Π subtracts the mean of a row",)),
    source="Zhang, Sennrich, Root Mean Square Layer Normalization (2019)",
    why="What of the gradient is along x would change its length alone. Cosines are dot products of such u.",
    false=(
        lambda x, g: (gradient(_loss_of(layer_norm), "x", x=x, g=g), _times_root(_across(centre(x), g))),
        lambda x, g: (gradient(_loss_of(rms_norm), "x", x=x, g=g), _across(x, g)),
    ),
    false_says=("without the last Π; without the root",),
)
def backward_norms(x: Array, g: Array, q: Array, k: Array, s: Array) -> list[Pair]:
    cosines = _pairs(cosine_scores, scores.cosine_gradients(q, k, s), s, q=q, k=k)
    return [
        (gradient(_loss_of(rms_norm), "x", x=x, g=g), _times_root(_across(x, g))),
        (gradient(_loss_of(layer_norm), "x", x=x, g=g), _times_root(centre(_across(centre(x), g)))),
        *cosines,
    ]


TURNS = {"cos": "n f", "sin": "n f"}


@theorem(
    "backward-rotary",
    TOPIC,
    same(_of("x", "p"), name("R", -name("p")) * name("g", "p")),
    arrays={"x": "n f*2", "g": "n f*2", "y": "n f+f", "w": "n f+f", **TURNS},
    hypotheses=(*MEANING, (name("R", "p"), " turns the pairs of columns at the place p, in either layout")),
    source="Su et al., RoFormer (2021)",
    why="A rotation is undone by its transpose.",
    false=lambda x, g, cos, sin: (
        gradient(_loss_of(rotate_interleaved), "x", x=x, cos=cos, sin=sin, g=g),
        rotate_interleaved(g, cos, sin),
    ),
    false_says=same(_of("x", "p"), name("R", "p") * name("g", "p")),
    letters=positions(
        {"x_p": "f*2", "g_p": "f*2"},
        "p",
        {"R": rotation_matrix},
        loss="ℓ",
        defined={"ℓ": Definition((), Product((name("R", "p") * name("x", "p"), name("g", "p")), "·"))},
    ),
)
def backward_rotary(x: Array, g: Array, y: Array, w: Array, cos: Array, sin: Array) -> list[Pair]:
    return [
        (gradient(_loss_of(turn), "x", x=a, cos=cos, sin=sin, g=b), turn(b, cos, -sin))
        for turn, a, b in ((rotate_interleaved, x, g), (rotate_half, y, w))
    ]


@theorem(
    "backward-projection",
    TOPIC,
    (
        equals(_of("X"), G * t(_W)),
        ", ",
        equals(_of("W"), t(X) * G),
        " and ",
        equals(_of("b"), total(I_, 1, name("n"), name("g", "i"))),
    ),
    letters=Glossary(
        {"X": "n d_model", "W": "d_model d", "b": "d", "G": "n d"},
        index={"i": "n", "c": "d"},
        sizes={"n": "n", "d": "d"},
        loss="ℓ",
        defined={"ℓ": Definition((), total(I_, 1, "n", total("c", 1, "d", name("G", "i", "c") * name("Y", "i", "c"))))},
    ),
    arrays={"x": "n d_model", "w": "d_model d", "b": "d", "g": "n d"},
    hypotheses=(*MEANING, (equals(name("Y"), X * _W + ONES * t(_B)), " and G is the gradient by Y")),
    why="The projection is linear in each of the three.",
    false=lambda x, w, b, g: (gradient(_loss_of(project), "w", x=x, w=w, b=b, g=g), x.mT @ (x @ w)),
    false_says=same(_of("W"), t(X) * X * _W),
)
def backward_projection(x: Array, w: Array, b: Array, g: Array) -> Any:
    return _pairs(project, project_gradients(x, w, g), g, x=x, w=w, b=b)


# -- whole passes ------------------------------------------------------------------------------------------------------
def _grouped(q: Array, k: Array, v: Array, g: Array) -> Any:
    return (g * ATTENTION(q, *_shared(q, k, v))).sum()


def _shared(q: Array, k: Array, v: Array) -> tuple[Any, Any]:
    times = q.shape[0] // k.shape[0]
    return repeat_heads(k, times), repeat_heads(v, times)


def _back(q: Array, k: Array, v: Array, g: Array, spec: Attention = ATTENTION) -> Gradients:
    return backward(q, k, v, spec.trace(q, k, v)["weights"], g)


_READ = Product((name("G", "h", "t"), attention(name("Q", "h", "t"), name("K", "h"), name("V", "h"))), "·")


def _each_head(reader: Reader) -> Gradients:
    """What each head of queries asks of the head of keys and values that it reads."""
    q, k, v, g = map(reader.array, "QKVG")
    found = _back(q, k[:, None], v[:, None], g)
    return Gradients(*(Value(x, ("h", "t"), 2) for x in found))


GROUPED = {"q": "h*r n_q d_k", "k": "h n_k d_k", "v": "h n_k d_v", "g": "h*r n_q d_v"}


@theorem(
    "backward-shared-heads",
    TOPIC,
    (
        equals(_of("K", "h"), total(name("t"), 1, name("r"), _of("K", "h", "t"))),
        " and ",
        equals(_of("V", "h"), total(name("t"), 1, name("r"), _of("V", "h", "t"))),
    ),
    arrays=GROUPED,
    hypotheses=(*MEANING, ("the head h of keys and values is read by the heads (h, 1), …, (h, r) of queries",)),
    source="Ainslie et al., GQA (2023)",
    why="What is read several times gets the sum of the gradients.",
    false=lambda q, k, v, g: (
        gradient(_grouped, "v", q=q, k=k, v=v, g=g),
        shared_gradient(_back(q, *_shared(q, k, v), g).v, q.shape[0] // k.shape[0]) / (q.shape[0] // k.shape[0]),
    ),
    false_says=("the mean over the heads in the place of the sum",),
    letters=Glossary(
        {"Q": "h r n_q d_k", "K": "h n_k d_k", "V": "h n_k d_v", "G": "h r n_q d_v"},
        {"H": "h", "r": "r", "d_k": "d_k"},
        {"h": "h", "t": "r"},
        {
            "ℓ": Definition((), total("h", 1, "H", total("t", 1, "r", _READ))),
            "dK_ht": lambda reader: _each_head(reader).k,
            "dV_ht": lambda reader: _each_head(reader).v,
        },
        loss="ℓ",
    ),
)
def backward_shared_heads(q: Array, k: Array, v: Array, g: Array) -> list[Pair]:
    times, found = q.shape[0] // k.shape[0], _back(q, *_shared(q, k, v), g)
    wanted = {"q": found.q, "k": shared_gradient(found.k, times), "v": shared_gradient(found.v, times)}
    return [(gradient(_grouped, n, q=q, k=k, v=v, g=g), wanted[n]) for n in wanted]


def _causal_loss(q: Array, k: Array, v: Array, g: Array) -> Any:
    return (g * CAUSAL(q, k, v)).sum()


@theorem(
    "backward-causal",
    TOPIC,
    (
        "the gradients of causal attention are those of ",
        equals(_of("V"), t(P) * G),
        ", ",
        equals(_of("Q"), Over(node(1), Root(D_K)) * _of("S") * K),
        ", ",
        equals(_of("K"), Over(node(1), Root(D_K)) * t(_of("S")) * Q),
        " with its weights ",
        P,
    ),
    letters=Glossary(
        {"Q": "n d_k", "K": "n d_k", "V": "n d_v", "G": "n d_v"},
        index={"i": "n", "j": "n", "l": "n", "c": "d_v"},
        sizes={"n": "n", "n_k": "n", "d_k": "d_k", "d_v": "d_v"},
        loss="ℓ",
        defined={
            "P": lambda r: CAUSAL.trace(r.array("Q"), r.array("K"), r.array("V"))["weights"],
            "dP": Definition((), G * t(V)),
            "ℓ": Definition((), total(I_, 1, "n", total("c", 1, "d_v", name("G", "i", "c") * name("O", "i", "c")))),
            "O": Definition((), P * V),
        },
    ),
    arrays={"q": "n d_k", "k": "n d_k", "v": "n d_v", "g": "n d_v"},
    hypotheses=(*MEANING, (equals(_of("S", "i", "j"), _p("i", "j") * (_of("P", "i", "j") - _D)), ", ", _IS_D)),
    source=FLASH,
    why="A key that is forbidden has the weight 0, and so has its score's gradient: no mask is needed on the way back.",
    false=lambda q, k, v, g: (gradient(_causal_loss, "k", q=q, k=k, v=v, g=g), _back(q, k, v, g).k),
    false_says=("the same with the weights that have no mask",),
)
def backward_causal(q: Array, k: Array, v: Array, g: Array) -> list[Pair]:
    found = _back(q, k, v, g, CAUSAL)
    return [(gradient(_causal_loss, n, q=q, k=k, v=v, g=g), getattr(found, n)) for n in "qkv"]


def _biased_loss(q: Array, k: Array, v: Array, bias: Array, g: Array) -> Any:
    return (g * BIASED(q, k, v, bias=bias)).sum()


@theorem(
    "backward-bias",
    TOPIC,
    (
        equals(_of("B"), _of("S")),
        "; for one row b that every query is given, ",
        equals(_of("b", "j"), total(I_, 1, N_Q, _of("S", "i", "j"))),
    ),
    letters=_WHOLE.but("S", "P").also(
        {"B": "n_q n_k", "b": "n_k"},
        defined={"P": softmax(Q * t(K) / Root(D_K) + name("B") + ONES * t(_B))},
    ),
    arrays={**QKVG, "bias": "n_q n_k", "row": "1 n_k"},
    hypotheses=(*MEANING, told("B and {} are added to the scaled scores", ONES * t(_B))),
    why="The scores are the sum, and what is added often gets the sum of the gradients.",
    false=lambda q, k, v, g, bias: (
        gradient(_biased_loss, "bias", q=q, k=k, v=v, bias=bias, g=g),
        _ds(q, k, v, 0 * bias, g),
    ),
    false_says=("the gradient by the scores without the bias",),
)
def backward_bias(q: Array, k: Array, v: Array, g: Array, bias: Array, row: Array) -> list[Pair]:
    return [
        (gradient(_biased_loss, "bias", q=q, k=k, v=v, bias=b, g=g), scores.summed_like(_ds(q, k, v, b, g), b))
        for b in (bias, row)
    ]


def _ds(q: Array, k: Array, v: Array, bias: Array, g: Array) -> Any:
    return rows.softmax_gradient(BIASED.trace(q, k, v, bias=bias)["weights"], g @ v.mT)


THEOREMS: tuple[Theorem, ...] = (
    backward_sink,
    backward_sigmoid,
    log_sum_exp_gradient,
    backward_softcap,
    backward_general_scores,
    backward_additive_scores,
    backward_distance_scores,
    backward_norms,
    backward_rotary,
    backward_projection,
    backward_shared_heads,
    backward_causal,
    backward_bias,
)
