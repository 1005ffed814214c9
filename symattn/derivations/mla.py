"""``mla``: keys and values that are read from a latent need not be made."""

from __future__ import annotations

from typing import Any

from symattn.attention.notation import D_K, N_K, H
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.derivations.exactly import entries, exact
from symattn.derivations.letters import dot, k, q
from symattn.derivations.proving import hypotheses, known
from symattn.derivations.steps import together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph
from symattn.document.notation import Fence, Name, Root, Transposed, equals, name, total
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.judging import relations
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section
from symattn.theorems import heads as theorems

_C = Name("C")
_U_K, _U_V = name("U", "K", role="key"), name("U", "V", role="value")
_LATENT = {"q": "d_k", "C": "n_k l", "U_K": "l d_k", "U_V": "l d_v"}
_HEADS = {"P": "h n_q n_k", "C": "n_k l", "U": "h l d_v", "W": "h d_v e"}
_APART = {"q": "d_k", "k": "d_k", "q_R": "d_r", "k_R": "d_r"}
_EXAMPLE = {"q": [[2, 0, 0, 0]], "c": [[1], [0]], "u_k": [[1, 0, 0, 0]], "u_v": [[3]]}


def derivation() -> Document:
    """q·(c U_K) = (q U_Kᵀ)·c and P(C U_V) = (P C)U_V: the cache holds the latent alone."""
    return Document(
        "derivation",
        "mla",
        ("Attention over a latent",),
        _blocks(),
        hints=("symattn derive gqa               shared heads instead", "symattn derive rope"),
    )


def _blocks() -> tuple[Block, ...]:
    absorbed = known(theorems.mla_absorb)
    c_j, value = name("c", "j"), name("v", "j", role="value")
    p_j, u_q = name("p", "j", role="weight"), q() * Transposed(_U_K)
    w_o = name("W", "O", role="output")
    rotary_q, rotary_k = name("q", "R", role="query"), name("k", "R", role="key")
    both = nt.Product((Fence("round", nt.commas(q(), rotary_q)), Fence("round", nt.commas(k(), rotary_k))), "·")
    apart = total("t", 1, H, _of_head("P", "weight") * _C * _of_head("U", "value") * _of_head("W", "output"))
    inner = Fence("round", _of_head("U", "value") * _of_head("W", "output"))
    absorbed_o = total("t", 1, H, _of_head("P", "weight") * _C * inner)
    sizes = {"n_k": "n_k", "h": "h", "d_k": "d_k"}
    latent = Section(Glossary({**_LATENT, "p": "n_k"}, sizes, {"j": "n_k"}, rows=True))
    layer = Section(Glossary({**_LATENT, "Q": "n_q d_k"}, sizes, rows=True))
    heads = Section(Glossary(_HEADS, sizes, {"t": "h"}, rows=True))
    beside = Section(Glossary(_APART, sizes, rows=True))
    parts = equals(both, dot(q(), k()) + dot(rotary_q, rotary_k))
    keys = equals(k("j"), c_j * _U_K)
    return (
        hypotheses((absorbed,), ("each token keeps a latent row ", c_j, ", row ", Name("j"), " of ", _C)),
        Heading(("The score",)),
        together(
            latent.define(keys),
            latent.define(equals(value, c_j * _U_V)),
            latent.claim(equals(dot(q(), k("j")), dot(Fence("round", u_q), c_j)), "a product of three matrices"),
        ),
        Heading(("The output",)),
        together(
            latent.claim(
                equals(total("j", 1, N_K, p_j * value), Fence("round", total("j", 1, N_K, p_j * c_j)) * _U_V),
                "the weights are mixed with latents, and the values made once",
            ),
            heads.claim(
                equals(apart, absorbed_o),
                (_of_head("U", "value"), " and ", _of_head("W", "output"), ", the ", _U_V, " and ", w_o, " of head ",
                 Name("t"), ", become one"),
            ),
        ),
        layer.result("Result", *(r for f in absorbed.statement[0] for r in relations(f))),
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
        together(beside.claim(parts, "the dot product of parts side by side")),
        *_example(),
        Caveat(
            (
                "These are the same numbers in another order. Keys and values of low rank are another model than free",
                " ones; what that costs is not said.",
            )
        ),
    )  # fmt: skip


def _of_head(letter: str, role: Any) -> nt.Node:
    return name(letter, "t", role=role)


def _attended(narrow: bool) -> Any:
    """The output for the query, from keys and values; or by latents, with the root of their width as divisor."""

    def computed(reader: Reader) -> Any:
        q, c, u_k, u_v = (reader.arrays[x] for x in _LATENT)
        row = q[None, :]
        plain = Attention()(row @ u_k.mT, c, c) @ u_v if narrow else Attention()(row, c @ u_k, c @ u_v)
        return plain[0, 0]

    return computed


def _example() -> tuple[Block, ...]:
    """Two tokens with a latent of one number, and what another divisor would give."""
    defined = {"o": _attended(False), "o_narrow": _attended(True)}
    section = Section(Glossary(_LATENT, defined=defined, rows=True, example=True))
    given_q, c, u_k, u_v = (exact(_EXAMPLE[x]) for x in ("q", "c", "u_k", "u_v"))
    weights = softmax(scale_by_root(dot_scores(given_q @ u_k.mT, c), given_q))
    absorbed, narrow = (weights @ c @ u_v)[0, 0], (Attention()(given_q @ u_k.mT, c, c) @ u_v)[0, 0]
    o, other = name("o", role="output"), name("o", "narrow")
    given = section.let(
        (
            "With ", equals(q(), entries(given_q)), ", ", equals(_C, entries(c)), ", ", equals(_U_K, entries(u_k)),
            " and ", equals(_U_V, entries(u_v)), ":",
        )
    )  # fmt: skip
    differs = nt.Relation(o, (("=", entries(absorbed)), ("≠", entries(narrow)), ("=", other)))
    return (
        Heading(("In numbers",)),
        Paragraph(given),
        together(
            section.claim(equals(o, entries(absorbed)), "from the latents, as from keys and values"),
            section.claim(differs, "with the root of the latent width"),
        ),
    )
