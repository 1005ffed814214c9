"""``equivariance``: attention treats all tokens alike."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from symattn.arrays.exact import Exact
from symattn.attention.notation import D_K, D_MODEL, D_V, SYMBOLS, N
from symattn.attention.spec import Attention
from symattn.derivations.inputs import letters, same, self_attention, whole_numbers
from symattn.derivations.parameters import whole
from symattn.derivations.steps import checked, hold, listed, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph, Result, Step, Text
from symattn.document.notation import Name, Node, Relation, Root, Transposed, call, equals
from symattn.evidence import Evidence

_MOST = {"tokens": 4, "dmodel": 3, "dk": 3, "dv": 3}
_LARGER = ((5, 4, 2, 3), (6, 2, 3, 5))  # n, d_model, d_k, d_v of the checks with whole numbers
_P, _X = Name("P"), SYMBOLS["x"]
_Q, _K, _V = SYMBOLS["q"], SYMBOLS["k"], SYMBOLS["v"]
_EXAMPLE = {"x": [[1], [0]], "w_q": [[1]], "w_k": [[1]], "w_v": [[1]]}

_PERMUTED: Text = ("Let ", _P, " permute the ", N, " tokens: ", _P * _X, " has the rows of ", _X, " in another order.")
_EXAMPLE_IN_WORDS: Text = (
    equals(_X, nt.matrix(_EXAMPLE["x"])), " with all projections 1, and ", _P, " exchanges the two tokens:",
)  # fmt: skip


def derivation(tokens: int = 3, dmodel: int = 2, dk: int = 1, dv: int = 2) -> Document:
    """attention(PX) = P attention(X) for every permutation P of the tokens; a causal mask breaks it."""
    sizes = {"tokens": tokens, "dmodel": dmodel, "dk": dk, "dv": dv}
    for parameter, value in sizes.items():
        whole(parameter, value, _MOST[parameter])
    sizes_shown = listed((equals(N, tokens), equals(D_MODEL, dmodel), equals(D_K, dk), equals(D_V, dv)))
    return Document(
        "derivation",
        "equivariance",
        ("Attention treats all tokens alike",),
        _blocks(tokens, dmodel, dk, dv),
        subtitle=("for ", *sizes_shown),
        command="symattn derive equivariance " + " ".join(f"--{p} {v}" for p, v in sizes.items()),
        parameters=sizes,
        hints=("symattn derive matrix-form", "symattn derive attention --causal"),
    )


def _blocks(n: int, d_model: int, d_k: int, d_v: int) -> tuple[Block, ...]:
    count = len(list(permutations(range(n))))
    where = checked(f"all {count} permutations, all entries at n = {n}, d_model = {d_model}, d_k = {d_k}, d_v = {d_v}")
    result = equals(call("attention", _P * _X), _P * call("attention", _X))
    return (
        Paragraph(_PERMUTED),
        Heading(("The tokens change places",)),
        together(_steps(n, d_model, d_k, d_v, where), _larger(result)),
        Result("Result", (result,), (where,)),
        Heading(("Keys and values alone",)),
        together(_key_order(n, d_k, d_v)),
        Heading(("A causal mask breaks it",)),
        Paragraph(_EXAMPLE_IN_WORDS),
        together(_causal()),
        Caveat(
            (
                "Models know the order of their tokens all the same, by positions that are added or by a mask. Other",
                " sizes are not shown.",
            )
        ),
    )  # fmt: skip


def _steps(n: int, d_model: int, d_k: int, d_v: int, where: Evidence) -> tuple[Step, ...]:
    """Scores, weights and output of the permuted tokens are the permuted ones."""
    given = letters(self_attention(n, d_model, d_k, d_v))
    plain, attention = Attention(stabilised=False).trace(**given), Attention(stabilised=False)
    orders = list(permutations(range(n)))
    traces = [(order, attention.trace(**{**given, "x": _rows(given["x"], order)})) for order in orders]

    def both(step: str) -> bool:
        return all(same(trace[step], _columns(_rows(plain[step], order), order)) for order, trace in traces)

    output = all(same(trace["output"], _rows(plain["output"], order)) for order, trace in traces)
    permuted_q, permuted_k, back = _P * _Q, nt.Fence("round", _P * _K), Transposed(_P)
    scaled = nt.Over(_Q * Transposed(_K), Root(D_K))
    weights = call("softmax", scaled)
    return (
        hold(
            both("scaled"),
            equals(nt.Over(permuted_q * Transposed(permuted_k), Root(D_K)), _P * scaled * back),
            "rows and columns change places",
            where,
        ),
        hold(
            both("weights"),
            equals(call("softmax", _P * scaled * back), _P * weights * back),
            "softmax is by row",
            where,
        ),
        hold(output, equals(_P * weights * back * _P * _V, _P * weights * _V), (equals(back * _P, Name("I")),), where),
    )


def _larger(result: Node) -> Step:
    holds = True
    for sizes in _LARGER:
        given = whole_numbers(self_attention(*sizes))
        order = tuple(reversed(range(sizes[0])))
        shuffled = Attention()(**{**given, "x": _rows(given["x"], order)})
        holds &= same(shuffled, _rows(Attention()(**given), order))
    where = checked("the order reversed, whole numbers at (n, d_model, d_k, d_v) = " + ", ".join(map(str, _LARGER)))
    return hold(holds, result, "larger sizes", where)


def _key_order(n: int, d_k: int, d_v: int) -> Step:
    """The order of keys, with their values, is of no account."""
    given = letters({"q": (2, d_k), "k": (n, d_k), "v": (n, d_v)})
    attention = Attention(stabilised=False)
    plain = attention(**given)
    holds = all(
        same(attention(given["q"], _rows(given["k"], order), _rows(given["v"], order)), plain)
        for order in permutations(range(n))
    )
    formula = equals(call("attention", _Q, _P * _K, _P * _V), call("attention", _Q, _K, _V))
    return hold(
        holds,
        formula,
        "a sum does not mind its order",
        checked(f"all entries at n_q = 2, n_k = {n}, d_k = {d_k}, d_v = {d_v}"),
    )


def _causal() -> Step:
    """The first output of the exchanged tokens is not the second output of the tokens."""
    given = {n: Exact.lift(rows) for n, rows in _EXAMPLE.items()}
    causal = Attention(causal=True)
    moved, kept = causal(**{**given, "x": _rows(given["x"], (1, 0))}), _rows(causal(**given), (1, 0))
    first = moved.tolist()[0][0], kept.tolist()[0][0]
    formula = Relation(
        _first(call("causal", _P * _X)),
        (("=", first[0].notation()), ("≠", first[1].notation()), ("=", _first(_P * call("causal", _X)))),
    )
    return hold(first[0] != first[1], formula, "the first token sees itself alone", checked("this example"))


def _first(x: Node) -> Node:
    return nt.Fence("round", x, nt.node(1))


def _rows(x: Any, order: tuple[int, ...]) -> Any:
    """P x: row i is row order[i] of x."""
    return x.xp.stack([x[i] for i in order])


def _columns(x: Any, order: tuple[int, ...]) -> Any:
    return _rows(x.mT, order).mT
