"""``backward``: the gradients of attention by queries, keys and values."""

from __future__ import annotations

from typing import Any

from symattn.attention.gradients.attention import backward, softmax_vjp
from symattn.attention.notation import D_K, D_V, N_K, N_Q, SYMBOLS
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.derivations.exactly import comes_to, exact
from symattn.derivations.proving import hypotheses, known, shown
from symattn.derivations.steps import defined, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph, Result
from symattn.document.notation import Big, Name, Node, Root, Transposed, equals, name, total
from symattn.proof.gradients import gradient
from symattn.proof.theorem import Method
from symattn.proof.together import identity
from symattn.theorems import gradients as theorems

_Q, _K, _V, _A, _O = (SYMBOLS[x] for x in ("q", "k", "v", "weights", "output"))
_S, _G, _L = SYMBOLS["scaled"], Name("G"), Name("L")
_DA, _DS = Name("dA"), name("dS'")
_FREE = {"p": "n_q n_k", "s": "n_q n_k", "v": "n_k d_v", "g": "n_q d_v"}
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
        command="symattn derive backward",
        hints=("symattn derive jacobian          the derivative of softmax", "symattn prove gradients"),
    )


def by_weights() -> Method:
    """The gradient of ⟨G, A V⟩ by A is G Vᵀ."""
    return identity(_FREE, lambda p, v, g: (gradient(_along_weights, "p", p=p, v=v, g=g), g @ v.mT))


def by_scores() -> Method:
    """The gradient of ⟨G, softmax(S) V⟩ by S is A ⊙ (dA − rowsum(A ⊙ dA))."""

    def sides(s: Any, v: Any, g: Any) -> Any:
        return gradient(_along_scores, "s", s=s, v=v, g=g), softmax_vjp(softmax(s), g @ v.mT)

    return identity(_FREE, sides)


def _along_weights(p: Any, v: Any, g: Any) -> Any:
    return (g * (p @ v)).sum()


def _along_scores(s: Any, v: Any, g: Any) -> Any:
    return (g * (softmax(s) @ v)).sum()


def _loss(q: Any, k: Any, v: Any, g: Any) -> Any:
    return (g * Attention()(q, k, v)).sum()


def _of(letter: str) -> Node:
    """dQ, the gradient by Q."""
    return Name(f"d{letter}")


def _at(letter: str, *index: str) -> Node:
    """dS_ij."""
    return name(f"d{letter}", *index)


def _blocks() -> tuple[Block, ...]:
    queries, keys, values = known(theorems.backward_dq), known(theorems.backward_dk), known(theorems.backward_dv)
    rowsum, conserved = known(theorems.flash_rowsum), known(theorems.value_gradient_conserved)
    zero = known(theorems.score_gradient_rows_sum_zero)
    a_ij, inner = name("a", "i", "j", role="weight"), name("D", "i")
    ds = equals(_at("S'", "i", "j"), a_ij * nt.Fence("round", _at("A", "i", "j") - inner))
    d_q, d_k = equals(_of("Q"), _DS * _K / Root(D_K)), equals(_of("K"), Transposed(_DS) * _Q / Root(D_K))
    d_v = equals(_of("V"), Transposed(_A) * _G)
    loss = Big("sum", nt.commas("i", "c"), None, None, name("G", "i", "c") * name("o", "i", "c", role="output"))
    dots = total("l", 1, N_K, name("a", "i", "l", role="weight") * _at("A", "i", "l"))
    outputs = total("c", 1, D_V, name("G", "i", "c") * name("o", "i", "c", role="output"))
    return (
        hypotheses(
            (),
            (_G, " is the gradient that arrives at the output: ", equals(_L, loss)),
            (_of("X"), " is the gradient of ", _L, " by X, for any array X"),
        ),
        Heading(("Forward",)),
        together(
            defined(equals(_S, _Q * Transposed(_K) / Root(D_K))),
            defined(equals(_A, nt.call("softmax", _S)), "row by row"),
            defined(equals(_O, _A * _V)),
        ),
        Heading(("Backward, one step after the other",)),
        together(
            values.step(d_v, "the output is linear in the values"),
            shown(equals(_DA, _G * Transposed(_V)), "and in the weights", by_weights()),
            shown(ds, ("the Jacobian of softmax, with ", equals(inner, dots)), by_scores()),
            rowsum.step(equals(inner, outputs), "so no sum over keys is needed"),
            queries.step(d_q, ("scores of row ", Name("i"), " depend on query ", Name("i"), " alone")),
            keys.step(d_k, ("those of column ", Name("j"), " on key ", Name("j"), " alone")),
        ),
        Result("Result", (nt.Row((d_q, d_k, d_v)),), (queries.evidence, keys.evidence, values.evidence)),
        queries.wrong(),
        Heading(("What is conserved",)),
        together(
            zero.step(equals(total("j", 1, N_K, _at("S'", "i", "j")), 0), "a shift of all scores changes nothing"),
            zero.step(equals(total("j", 1, N_K, _at("K", "j")), 0), "nor does one vector added to all keys"),
            conserved.step(
                equals(total("j", 1, N_K, _at("V", "j")), total("i", 1, N_Q, name("G", "i"))),
                "each row of weights sums to 1",
            ),
        ),
        zero.wrong(),
        *_example(),
        Caveat(
            (
                "The formulas are exact. In floating point the row maximum is subtracted first, and what is rounded is",
                " not bounded here.",
            )
        ),
    )  # fmt: skip


def _example() -> tuple[Block, ...]:
    """One query and two keys with equal scores, differentiated in exact numbers."""
    given = {letter: exact(rows) for letter, rows in _EXAMPLE.items()}
    weights = Attention().trace(given["q"], given["k"], given["v"])["weights"]
    formula = backward(given["q"], given["k"], given["v"], weights, given["g"])
    steps = [
        comes_to(_of(letter.upper()), gradient(_loss, letter, **given), getattr(formula, letter), "differentiated")
        for letter in "qkv"
    ]
    symbols = {"q": _Q, "k": _K, "v": _V, "g": _G}
    told = tuple(part for x in "qkvg" for part in (equals(symbols[x], nt.matrix(_EXAMPLE[x])), ", "))[:-1]
    return (
        Heading(("In numbers",)),
        Paragraph(("With ", *told, " both scores are 0. The loss, differentiated in exact numbers, has the gradients")),
        together(steps),
        Paragraph(("which are those of the formulas. As shown above, the rows of ", _of("K"), " sum to 0.")),
    )
