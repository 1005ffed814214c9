"""``backward``: the gradients of attention by queries, keys and values."""

from __future__ import annotations

from symattn.attention.gradients.attention import backward
from symattn.attention.notation import D_K, D_V, N_K, N_Q, SYMBOLS
from symattn.attention.spec import Attention
from symattn.derivations.exactly import entries, exact
from symattn.derivations.proving import hypotheses, known
from symattn.derivations.steps import together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph, Step, Text
from symattn.document.notation import Big, Name, Node, Root, Transposed, equals, name, total
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.section import Section
from symattn.theorems import gradients as theorems

_Q, _K, _V, _A, _O = (SYMBOLS[x] for x in ("q", "k", "v", "weights", "output"))
_S, _G, _L = SYMBOLS["scaled"], Name("G"), Name("L")
_DA, _DS = Name("dA"), name("dS'")
_GIVEN = {"Q": "n_q d_k", "K": "n_k d_k", "V": "n_k d_v", "G": "n_q d_v"}
_ANY_WEIGHTS, _ANY_SCORES = {"A": "n_q n_k"}, {"S′": "n_q n_k"}
_EXAMPLE = {
    "q": [[2, 0, 0, 0]],
    "k": [[0, 1, 0, 0], [0, -1, 0, 0]],
    "v": [[1, 0], [0, 1]],
    "g": [[1, 0]],
}


def derivation() -> Document:
    """dV = AᵀG, dQ = dS′ K/√d_k, dK = dS′ᵀQ/√d_k, with dS′ through the softmax of each row."""
    return Document(
        "derivation",
        "backward",
        ("The backward pass of attention",),
        _blocks(),
        hints=("symattn derive jacobian          the derivative of softmax", "symattn prove gradients"),
    )


def _of(letter: str) -> Node:
    """dQ, the gradient by Q."""
    return Name(f"d{letter}")


def _at(letter: str, *index: str) -> Node:
    """dS_ij."""
    return name(f"d{letter}", *index)


def _section(example: bool = False) -> tuple[Section, Text, tuple[Step, ...]]:
    """Attention and a loss, of given queries, keys, values and gradient of the output: what defines both."""
    index = {"i": "n_q", "j": "n_k", "l": "n_k", "c": "d_v"}
    section = Section(Glossary(given=_GIVEN, index=index, loss="L", rows=True, example=example))
    loss = Big("sum", nt.commas("i", "c"), None, None, name("G", "i", "c") * name("o", "i", "c", role="output"))
    arrives = section.let((_G, " is the gradient that arrives at the output: ", equals(_L, loss)))
    forward = (
        section.define(equals(_S, _Q * Transposed(_K) / Root(D_K))),
        section.define(equals(_A, nt.call("softmax", _S)), "row by row"),
        section.define(equals(_O, _A * _V)),
    )
    return section, arrives, forward


def _blocks() -> tuple[Block, ...]:
    section, arrives, forward = _section()
    claim = section.claim
    a_ij, inner = name("a", "i", "j", role="weight"), name("D", "i")
    ds = equals(_at("S'", "i", "j"), a_ij * nt.Fence("round", _at("A", "i", "j") - inner))
    d_q, d_k = equals(_of("Q"), _DS * _K / Root(D_K)), equals(_of("K"), Transposed(_DS) * _Q / Root(D_K))
    d_v = equals(_of("V"), Transposed(_A) * _G)
    dots = total("l", 1, N_K, name("a", "i", "l", role="weight") * _at("A", "i", "l"))
    outputs = total("c", 1, D_V, name("G", "i", "c") * name("o", "i", "c", role="output"))
    backwards = together(
        claim(d_v, "the output is linear in the values"),
        claim(equals(_DA, _G * Transposed(_V)), "and in the weights", free=_ANY_WEIGHTS, keep=True),
        claim(ds, ("the Jacobian of softmax, with ", equals(inner, dots)), free=_ANY_SCORES, keep=True),
        claim(equals(inner, outputs), "so no sum over keys is needed"),
        claim(d_q, ("scores of row ", Name("i"), " depend on query ", Name("i"), " alone")),
        claim(d_k, ("those of column ", Name("j"), " on key ", Name("j"), " alone")),
    )
    wrong, shifted = known(theorems.backward_dq).wrong(), known(theorems.score_gradient_rows_sum_zero).wrong()
    return (
        hypotheses((), arrives, (_of("X"), " is the gradient of ", _L, " by X, for any array X")),
        Heading(("Forward",)),
        together(forward),
        Heading(("Backward, one step after the other",)),
        backwards,
        section.result("Result", (d_q, d_k, d_v)),
        wrong,
        Heading(("What is conserved",)),
        together(
            claim(equals(total("j", 1, N_K, _at("S'", "i", "j")), 0), "a shift of all scores changes nothing"),
            claim(equals(total("j", 1, N_K, _at("K", "j")), 0), "nor does one vector added to all keys"),
            claim(
                equals(total("j", 1, N_K, _at("V", "j")), total("i", 1, N_Q, name("G", "i"))),
                "each row of weights sums to one",
            ),
        ),
        shifted,
        *_example(),
        Caveat(
            (
                "The formulas are exact. In floating point the row maximum is subtracted first, and what is rounded is",
                " not bounded here.",
            )
        ),
    )


def _example() -> tuple[Block, ...]:
    """One query and two keys with equal scores, differentiated in exact numbers."""
    section, _, _ = _section(example=True)
    given = {letter: exact(rows) for letter, rows in _EXAMPLE.items()}
    weights = Attention().trace(given["q"], given["k"], given["v"])["weights"]
    formula = backward(given["q"], given["k"], given["v"], weights, given["g"])
    symbols = {"q": _Q, "k": _K, "v": _V, "g": _G}
    told = tuple(part for x in "qkvg" for part in (equals(symbols[x], nt.matrix(_EXAMPLE[x])), ", "))[:-1]
    words = " the scores are equal, and the loss, differentiated in exact numbers, has the gradients"
    with_ = section.let(("With ", *told, words))
    found = [equals(_of(letter.upper()), entries(getattr(formula, letter))) for letter in "qkv"]
    return (
        Heading(("In numbers",)),
        Paragraph(with_),
        together(
            section.claim(equals(_S, nt.matrix([[0, 0]])), "no score is larger"),
            (section.claim(f, "differentiated") for f in found),
        ),
        Paragraph(("which are those of the formulas. As shown above, the rows of ", _of("K"), " sum to 0.")),
    )
