"""``matrix-form``: attention token by token is attention by matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.exact import Exact
from symattn.attention.notation import D_K, SYMBOLS, N
from symattn.attention.scores import scale_by_root
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.derivations.letters import E
from symattn.derivations.proving import resting_on, shown
from symattn.derivations.steps import checked, hold, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph, Result, Step, Text
from symattn.document.notation import Fence, Name, Node, Relation, Root, Transposed, call, equals, name, total
from symattn.proof.theorem import Method
from symattn.proof.together import identity
from symattn.theorems.structure import per_token_equals_matrix
from symattn.theorems.sums import exp

_ARRAYS = {"x": "n d", "w_q": "d d_k", "w_k": "d d_k", "w_v": "d d_v"}
_X, _A = SYMBOLS["x"], SYMBOLS["weights"]
_W_Q, _W_K, _W_V = SYMBOLS["w_q"], SYMBOLS["w_k"], SYMBOLS["w_v"]
_ROWS = {"q": name("q", "i", role="query"), "k": name("k", "i", role="key"), "v": name("v", "i", role="value")}
_SCORE = name("s", "i", "j", role="score")
_EXAMPLE = {"x": [[2, 1], [0, 1]], "w_q": [[1, 0], [0, 1]], "w_k": [[1, 0], [0, 1]], "w_v": [[1, 0], [0, 1]]}


def derivation() -> Document:
    """C = softmax(X W_Q W_Kᵀ Xᵀ/√d_k) X W_V, entry by entry what the per-token workflow gives."""
    return Document(
        "derivation",
        "matrix-form",
        ("Attention token by token, and by matrices",),
        _blocks(),
        command="symattn derive matrix-form",
        hints=("symattn walk ground-up           the same with numbers", "symattn derive equivariance"),
    )


def _blocks() -> tuple[Block, ...]:
    result = equals(Name("C"), _in_one())
    together_ = shown(equals(Name("C"), _A * SYMBOLS["v"], _in_one()), "together", whole())
    return (
        Paragraph(
            ("First what happens to tokens ", Name("i"), " and ", Name("j"), ", then the same as an entry of a matrix.")
        ),
        Heading(("Step by step",)),
        together(
            *(_row_by_row(role) for role in _ROWS),
            shown(_score_formula(), "a dot product for each pair", agrees("scaled")),
            shown(_weight_formula(), "each row by itself", agrees("weights")),
            shown(_context_formula(), "a weighted sum of all values", agrees("output")),
        ),
        Heading(("In one formula",)),
        together(together_),
        Result("Result", (result,), (resting_on(per_token_equals_matrix),)),
        Heading(("Another divisor is another attention",)),
        Paragraph(
            ("With ", *_example(), ", and a divisor that is not ", Root(D_K), ", the weight of token 1 differs:")
        ),
        together(_other_divisors()),
        Caveat(("Equal means equal as functions of all entries, in exact numbers; rounded, they may differ.",)),
    )


def agrees(step: str) -> Method:
    """A step of attention by matrices is, entry by entry, that of the tokens one by one."""

    def sides(x: Any, w_q: Any, w_k: Any, w_v: Any) -> Any:
        return apart(x, w_q, w_k, w_v)[step], Attention().trace(x=x, w_q=w_q, w_k=w_k, w_v=w_v)[step]

    return identity(_ARRAYS, sides)


def whole() -> Method:
    """softmax(X W_Q W_Kᵀ Xᵀ/√d_k) X W_V is the output."""

    def sides(x: Any, w_q: Any, w_k: Any, w_v: Any) -> Any:
        scores = scale_by_root(x @ w_q @ w_k.mT @ x.mT, w_q)
        return softmax(scores, stabilised=False) @ x @ w_v, Attention()(x=x, w_q=w_q, w_k=w_k, w_v=w_v)

    return identity(_ARRAYS, sides)


def apart(x: Any, w_q: Any, w_k: Any, w_v: Any) -> dict[str, Any]:
    """The entries of every step as sums: q_il = Σ_m x_im w_ml, s_ij = Σ_l q_il k_jl / √d_k, a_ij, c_il."""
    q, k, v = ((x[:, :, None] * w[None, :, :]).sum(axis=1) for w in (w_q, w_k, w_v))
    scaled = scale_by_root((q[:, None, :] * k[None, :, :]).sum(axis=-1), q)
    e = exp(scaled)
    weights = e / e.sum(axis=-1, keepdims=True)
    output = (weights[:, :, None] * v[None, :, :]).sum(axis=1)
    return {"q": q, "k": k, "v": v, "scaled": scaled, "weights": weights, "output": output}


def _example() -> Text:
    return (equals(SYMBOLS["x"], nt.matrix(_EXAMPLE["x"])), " and ", equals(_W_Q, _W_K, nt.matrix(_EXAMPLE["w_q"])))


def _in_one() -> Node:
    inner = nt.Over(_X * _W_Q * Transposed(_W_K) * Transposed(_X), Root(D_K))
    return call("softmax", inner) * _X * _W_V


def _row_by_row(role: str) -> Step:
    """q_i = x_i W_Q is row i of X W_Q."""
    weight = SYMBOLS[f"w_{role}"]
    row = name("x", "i", role="input") * weight
    return shown(equals(_ROWS[role], row, _entry(SYMBOLS["x"] * weight, "i")), "one row", agrees(role))


def _entry(matrix: Node, *index: str) -> Node:
    """(matrix)_ij."""
    letters_ = tuple(map(Name, index))
    return Fence("round", matrix, letters_[0] if len(letters_) == 1 else nt.Product(letters_))


def _score_formula() -> Node:
    product = nt.Product((_ROWS["q"], name("k", "j", role="key")), "·")
    return equals(_SCORE, product / Root(D_K), _entry(SYMBOLS["q"] * Transposed(SYMBOLS["k"]) / Root(D_K), "i", "j"))


def _weight_formula() -> Node:
    share = E**_SCORE / total("ℓ", 1, N, E ** name("s", "i", "ℓ", role="score"))
    return equals(name("a", "i", "j", role="weight"), share, _entry(call("softmax", SYMBOLS["scaled"]), "i", "j"))


def _context_formula() -> Node:
    weighted = name("a", "i", "j", role="weight") * name("v", "j", role="value")
    return equals(name("c", "i", role="output"), total("j", 1, N, weighted), _entry(_A * SYMBOLS["v"], "i"))


def per_token(given: dict[str, Any], divisor: Callable[[Any], Any] | None = None) -> Any:
    """The weights of one token after the other, with √d_k or ``divisor`` of its query."""
    xp = given["x"].xp
    tokens = [given["x"][i] for i in range(given["x"].shape[0])]
    q, k = ([x @ given[w] for x in tokens] for w in ("w_q", "w_k"))
    root = xp.sqrt(xp.asarray(given["w_q"].shape[-1]))
    scores = [xp.stack([q_i @ k_j / (divisor(q_i) if divisor else root) for k_j in k]) for q_i in q]
    return xp.stack([softmax(row, stabilised=False) for row in scores])


_WRONG: tuple[tuple[str, Node, Callable[[Any], Any]], ...] = (
    ("the size", D_K, lambda q: q.xp.asarray(q.shape[0])),
    ("the length of the query", Fence("norm", name("q", 1, role="query")), lambda q: q.xp.sqrt(q @ q)),
)


def _other_divisors() -> tuple[Step, ...]:
    """The weights of token 1 in a small example, with √d_k and with a wrong divisor."""
    given = {n: Exact.lift(rows) for n, rows in _EXAMPLE.items()}
    right = Attention().trace(**given)["weights"].tolist()[0][0]
    weight, steps = name("a", 1, 1, role="weight"), []
    for words, symbol, divisor in _WRONG:
        wrong = per_token(given, divisor).tolist()[0][0]
        formula = Relation(weight, (("=", right.notation()), ("≠", wrong.notation())))
        steps.append(hold(right != wrong, formula, (f"divided by {words}, ", symbol), checked("this example")))
    return tuple(steps)
