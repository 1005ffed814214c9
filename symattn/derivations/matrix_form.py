"""``matrix-form``: attention token by token is attention by matrices."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any, Literal

from symattn.arrays.exact import Exact
from symattn.attention.notation import D_K, D_MODEL, D_V, SYMBOLS, N
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.derivations.inputs import Shapes, letters, same, self_attention, whole_numbers
from symattn.derivations.letters import E
from symattn.derivations.parameters import whole
from symattn.derivations.steps import checked, hold, listed, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph, Result, Step, Text
from symattn.document.notation import Fence, Name, Node, Relation, Root, Transposed, call, equals, name, total
from symattn.evidence import Evidence

_SIZES = ((1, 2, 3, 4), (3, 4, 2, 5), (4, 3, 5, 2))  # n, d_model, d_k, d_v of the checks with whole numbers
_MOST = 4
_X, _A = SYMBOLS["x"], SYMBOLS["weights"]
_W_Q, _W_K, _W_V = SYMBOLS["w_q"], SYMBOLS["w_k"], SYMBOLS["w_v"]
_ROWS = {"q": name("q", "i", role="query"), "k": name("k", "i", role="key"), "v": name("v", "i", role="value")}
_SCORE = name("s", "i", "j", role="score")
_EXAMPLE = {"x": [[2, 1], [0, 1]], "w_q": [[1, 0], [0, 1]], "w_k": [[1, 0], [0, 1]], "w_v": [[1, 0], [0, 1]]}


def derivation(tokens: int = 2, dmodel: int = 3, dk: int = 2, dv: int = 4) -> Document:
    """C = softmax(X W_Q W_Kᵀ Xᵀ/√d_k) X W_V, entry by entry what the per-token workflow gives."""
    sizes = {"tokens": tokens, "dmodel": dmodel, "dk": dk, "dv": dv}
    for parameter, value in sizes.items():
        whole(parameter, value, _MOST)
    shapes = self_attention(tokens, dmodel, dk, dv)
    return Document(
        "derivation",
        "matrix-form",
        ("Attention token by token, and by matrices",),
        _blocks(shapes, _where(tokens, dmodel, dk, dv)),
        subtitle=("for ", *_sizes(tokens, dmodel, dk, dv)),
        command="symattn derive matrix-form " + " ".join(f"--{p} {v}" for p, v in sizes.items()),
        parameters=sizes,
        hints=("symattn walk ground-up           the same with numbers", "symattn derive equivariance"),
    )


def _sizes(n: int, d_model: int, d_k: int, d_v: int) -> Text:
    return listed((equals(N, n), equals(D_MODEL, d_model), equals(D_K, d_k), equals(D_V, d_v)))


def _where(n: int, d_model: int, d_k: int, d_v: int) -> Evidence:
    return checked(f"all entries at n = {n}, d_model = {d_model}, d_k = {d_k}, d_v = {d_v}")


def _blocks(shapes: Shapes, where: Evidence) -> tuple[Block, ...]:
    given = letters(shapes)
    trace, apart = Attention(stabilised=False).trace(**given), per_token(given)
    numbers = checked("whole numbers at (n, d_model, d_k, d_v) = " + ", ".join(map(str, _SIZES)))
    result = equals(Name("C"), _in_one())
    return (
        Paragraph(
            ("First what happens to tokens ", Name("i"), " and ", Name("j"), ", then the same as an entry of a matrix.")
        ),
        Heading(("Step by step",)),
        together(
            *(_row_by_row(role, trace, given, where) for role in ("q", "k", "v")),
            hold(same(apart["scaled"], trace["scaled"]), _score_formula(), "a dot product for each pair", where),
            hold(same(apart["weights"], trace["weights"]), _weight_formula(), "each row by itself", where),
            hold(same(apart["output"], trace["output"]), _context_formula(), "a weighted sum of all values", where),
        ),
        Heading(("In one formula",)),
        together(
            hold(
                same(_closed(given), trace["output"]),
                equals(Name("C"), _A * SYMBOLS["v"], _in_one()),
                "together",
                where,
            ),
            hold(all(map(_agrees, _SIZES)), result, "with the row maximum subtracted", numbers),
        ),
        Result("Result", (result,), (where,)),
        Heading(("Another divisor is another attention",)),
        Paragraph(
            ("With ", *_example(), ", and a divisor that is not ", Root(D_K), ", the weight of token 1 differs:")
        ),
        together(_other_divisors()),
        Caveat(("Equal means equal as functions of all entries, at the sizes named; no other sizes are shown.",)),
    )


def _example() -> Text:
    return (equals(SYMBOLS["x"], nt.matrix(_EXAMPLE["x"])), " and ", equals(_W_Q, _W_K, nt.matrix(_EXAMPLE["w_q"])))


def _in_one() -> Node:
    inner = nt.Over(_X * _W_Q * Transposed(_W_K) * Transposed(_X), Root(D_K))
    return call("softmax", inner) * _X * _W_V


def _row_by_row(role: Literal["q", "k", "v"], trace: dict[str, Any], given: dict[str, Any], where: Evidence) -> Step:
    """q_i = x_i W_Q is row i of X W_Q."""
    weight = SYMBOLS[f"w_{role}"]
    holds = all(same(given["x"][i] @ given[f"w_{role}"], trace[role][i]) for i in range(given["x"].shape[0]))
    row = name("x", "i", role="input") * weight
    return hold(holds, equals(_ROWS[role], row, _entry(SYMBOLS["x"] * weight, "i")), "one row", where)


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


def per_token(given: dict[str, Any], divisor: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """The workflow of one token after the other: q_i, k_j, v_j, scores, weights, and the context vector c_i.

    ``divisor`` of q_i replaces √d_k. Rows are stacked only to be compared.
    """
    xp = given["x"].xp
    tokens = [given["x"][i] for i in range(given["x"].shape[0])]
    q, k, v = ([x @ given[w] for x in tokens] for w in ("w_q", "w_k", "w_v"))
    root = xp.sqrt(xp.asarray(given["w_q"].shape[-1]))
    scores = [xp.stack([q_i @ k_j / (divisor(q_i) if divisor else root) for k_j in k]) for q_i in q]
    weights = [softmax(row, stabilised=False) for row in scores]
    contexts = [reduce(add, (a[j] * v_j for j, v_j in enumerate(v))) for a in weights]
    return {"scaled": xp.stack(scores), "weights": xp.stack(weights), "output": xp.stack(contexts)}


def _closed(given: dict[str, Any]) -> Any:
    """The one formula as array code."""
    x, w_q, w_k, w_v = (given[n] for n in ("x", "w_q", "w_k", "w_v"))
    return softmax(x @ w_q @ w_k.mT @ x.mT / x.xp.sqrt(x.xp.asarray(w_q.shape[-1])), stabilised=False) @ x @ w_v


def _agrees(sizes: tuple[int, int, int, int]) -> bool:
    given = whole_numbers(self_attention(*sizes))
    return same(per_token(given)["output"], Attention()(**given)) and same(_closed(given), Attention()(**given))


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
        wrong = per_token(given, divisor)["weights"].tolist()[0][0]
        formula = Relation(weight, (("=", right.notation()), ("≠", wrong.notation())))
        steps.append(hold(right != wrong, formula, (f"divided by {words}, ", symbol), checked("this example")))
    return tuple(steps)
