"""``mla``: keys and values that are read from a latent need not be made."""

from __future__ import annotations

from typing import Any

from symattn.attention.notation import D_K, N_K, H
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.derivations.exactly import comes_to, differs, entries, exact
from symattn.derivations.letters import dot, k, q
from symattn.derivations.proving import hypotheses, known, shown
from symattn.derivations.steps import defined, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph
from symattn.document.notation import Fence, Name, Root, Transposed, equals, name, total
from symattn.proof.theorem import Method
from symattn.proof.together import identity
from symattn.theorems import heads as theorems

_C, _L = Name("C"), Name("ℓ")
_U_K, _U_V = name("U", "K", role="key"), name("U", "V", role="value")
_ARRAYS = {"q": "n_q d_k", "c": "n_k l", "u_k": "l d_k", "u_v": "l d_v", "p": "n_q n_k"}
_APART = {"q": "n_q d_k", "k": "n_k d_k", "x": "n_q d_r", "y": "n_k d_r"}
_HEADS = {"p": "h n_q n_k", "c": "n_k l", "u_v": "h l d_v", "w_o": "h d_v e"}
_EXAMPLE = {"q": [[2, 0, 0, 0]], "c": [[1], [0]], "u_k": [[1, 0, 0, 0]], "u_v": [[3]]}


def derivation() -> Document:
    """q·(c U_K) = (q U_Kᵀ)·c and P(C U_V) = (P C)U_V: the cache holds the latent alone."""
    return Document(
        "derivation",
        "mla",
        ("Attention over a latent",),
        _blocks(),
        command="symattn derive mla",
        hints=("symattn derive gqa               shared heads instead", "symattn derive rope"),
    )


def score() -> Method:
    """Q (C U_K)ᵀ = (Q U_Kᵀ) Cᵀ."""
    return identity(_ARRAYS, lambda q, c, u_k: (dot_scores(q, c @ u_k), dot_scores(q @ u_k.mT, c)))


def output() -> Method:
    """P (C U_V) = (P C) U_V."""
    return identity(_ARRAYS, lambda p, c, u_v: (p @ (c @ u_v), (p @ c) @ u_v))


def heads() -> Method:
    """Σ_h P C U_V W_O = Σ_h P C (U_V W_O)."""

    def sides(p: Any, c: Any, u_v: Any, w_o: Any) -> Any:
        return (p @ (c @ u_v) @ w_o).sum(axis=0), (p @ c @ (u_v @ w_o)).sum(axis=0)

    return identity(_HEADS, sides)


def two_parts() -> Method:
    """[Q, X][K, Y]ᵀ = Q Kᵀ + X Yᵀ: a part with positions beside one without."""

    def sides(q: Any, k: Any, x: Any, y: Any) -> Any:
        concat = q.__array_namespace__().concat
        return dot_scores(concat([q, x], axis=-1), concat([k, y], axis=-1)), dot_scores(q, k) + dot_scores(x, y)

    return identity(_APART, sides)


def _blocks() -> tuple[Block, ...]:
    absorbed = known(theorems.mla_absorb)
    c_j, value = name("c", "j"), name("v", "j", role="value")
    p_j, u_q = name("p", "j", role="weight"), q() * Transposed(_U_K)
    w_o = name("W", "O", role="output")
    rotary_q, rotary_k = name("q", "R", role="query"), name("k", "R", role="key")
    both = nt.Product((Fence("round", nt.commas(q(), rotary_q)), Fence("round", nt.commas(k(), rotary_k))), "·")
    apart = total("h", 1, H, _head("P") * _C * _head_u() * _head_o())
    absorbed_o = total("h", 1, H, _head("P") * _C * Fence("round", _head_u() * _head_o()))
    parts = equals(both, dot(q(), k()) + dot(rotary_q, rotary_k))
    keys = equals(k("j"), c_j * _U_K)
    return (
        hypotheses((absorbed,), ("each token keeps a latent row ", c_j, ", row ", Name("j"), " of ", _C)),
        Heading(("The score",)),
        together(
            defined(keys),
            defined(equals(value, c_j * _U_V)),
            shown(equals(dot(q(), k("j")), dot(Fence("round", u_q), c_j)), "a product of three matrices", score()),
        ),
        Heading(("The output",)),
        together(
            shown(
                equals(total("j", 1, N_K, p_j * value), Fence("round", total("j", 1, N_K, p_j * c_j)) * _U_V),
                "the weights are mixed with latents, and the values made once",
                output(),
            ),
            shown(equals(apart, absorbed_o), (_U_V, " goes into ", w_o, ", head by head"), heads()),
        ),
        absorbed.result(),
        absorbed.wrong(),
        Paragraph(
            (
                "The divisor stays ", Root(D_K), ": it is that of the queries before ", Transposed(_U_K),
                ", though the products are now of the latent width.",
            )
        ),
        Heading(("Positions stand in the way",)),
        Paragraph(
            (
                "A rotation of the keys stands between the latent and ", Transposed(_U_K),
                " and changes from key to key, so it cannot be absorbed. A part with positions is kept beside:",
            )
        ),
        together(shown(parts, "the dot product of parts side by side", two_parts())),
        *_example(),
        Caveat(
            (
                "These are the same numbers in another order. Keys and values of low rank are another model than free",
                " ones; what that costs is not said.",
            )
        ),
    )  # fmt: skip


def _head(letter: str) -> nt.Node:
    return name(letter, "h", role="weight")


def _head_u() -> nt.Node:
    return name("U", nt.commas("V", "h"), role="value")


def _head_o() -> nt.Node:
    return name("W", nt.commas("O", "h"), role="output")


def _example() -> tuple[Block, ...]:
    """Two tokens with a latent of one number, and what another divisor would give."""
    given_q, c, u_k, u_v = (exact(_EXAMPLE[x]) for x in ("q", "c", "u_k", "u_v"))
    plain = Attention()(given_q, c @ u_k, c @ u_v)
    weights = softmax(scale_by_root(dot_scores(given_q @ u_k.mT, c), given_q))
    absorbed = weights @ c @ u_v
    narrow = Attention()(given_q @ u_k.mT, c, c) @ u_v
    o = name("o", role="output")
    return (
        Heading(("In numbers",)),
        Paragraph(
            (
                "With ", equals(q(), entries(given_q)), ", ", equals(_C, entries(c)), ", ", equals(_U_K, entries(u_k)),
                " and ", equals(_U_V, entries(u_v)), ":",
            )
        ),
        together(
            comes_to(o, absorbed[0, 0], plain[0, 0], "from the latents, as from keys and values"),
            differs(o, absorbed[0, 0], narrow[0, 0], name("o", "narrow"), "with the root of the latent width"),
        ),
    )  # fmt: skip
