"""``equivariance``: attention treats all tokens alike."""

from __future__ import annotations

from typing import Any

from symattn.arrays.exact import Exact
from symattn.attention.notation import D_K, SYMBOLS, N
from symattn.attention.spec import Attention
from symattn.derivations.proving import cited, resting_on, shown
from symattn.derivations.steps import checked, hold, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph, Result, Step, Text
from symattn.document.notation import Name, Node, Relation, Root, Transposed, call, equals
from symattn.proof.statement import Declared
from symattn.proof.theorem import Identity, Method
from symattn.theorems.structure import key_permutation_invariance, permutation_equivariance

_ARRAYS = {"x": "n d", "w_q": "d d_k", "w_k": "d d_k", "w_v": "d d_v"}
_P, _X = Name("P"), SYMBOLS["x"]
_Q, _K, _V = SYMBOLS["q"], SYMBOLS["k"], SYMBOLS["v"]
_EXAMPLE = {"x": [[1], [0]], "w_q": [[1]], "w_k": [[1]], "w_v": [[1]]}

_PERMUTED: Text = ("Let ", _P, " permute the ", N, " tokens: ", _P * _X, " has the rows of ", _X, " in another order.")
_EXAMPLE_IN_WORDS: Text = (
    equals(_X, nt.matrix(_EXAMPLE["x"])), " with all projections 1, and ", _P, " exchanges the two tokens:",
)  # fmt: skip


def derivation() -> Document:
    """attention(PX) = P attention(X) for every permutation P of the tokens; a causal mask breaks it."""
    return Document(
        "derivation",
        "equivariance",
        ("Attention treats all tokens alike",),
        _blocks(),
        command="symattn derive equivariance",
        hints=("symattn derive matrix-form", "symattn derive attention --causal"),
    )


def _blocks() -> tuple[Block, ...]:
    result = equals(call("attention", _P * _X), _P * call("attention", _X))
    return (
        Paragraph(_PERMUTED),
        Heading(("The tokens change places",)),
        together(_steps()),
        Result("Result", (result,), (resting_on(permutation_equivariance),)),
        Heading(("Keys and values alone",)),
        together(
            cited(
                equals(call("attention", _Q, _P * _K, _P * _V), call("attention", _Q, _K, _V)),
                "a sum does not mind its order",
                key_permutation_invariance,
            )
        ),
        Heading(("A causal mask breaks it",)),
        Paragraph(_EXAMPLE_IN_WORDS),
        together(_causal()),
        Caveat(("Models know the order of their tokens all the same, by positions that are added or by a mask.",)),
    )


def permuted(step: str, columns: bool) -> Method:
    """A step of attention on permuted tokens is the permuted one: its rows, and its columns where they are tokens."""

    def sides(x: Any, w_q: Any, w_k: Any, w_v: Any, pi: Any) -> Any:
        plain = Attention().trace(x=x, w_q=w_q, w_k=w_k, w_v=w_v)[step][pi]
        moved = Attention().trace(x=x[pi], w_q=w_q, w_k=w_k, w_v=w_v)[step]
        return moved, plain[:, pi] if columns else plain

    return Identity(Declared(_ARRAYS, {"pi": "n"}), sides, ())


def _steps() -> tuple[Step, ...]:
    """Scores, weights and output of the permuted tokens are the permuted ones."""
    permuted_q, permuted_k, back = _P * _Q, nt.Fence("round", _P * _K), Transposed(_P)
    scaled = nt.Over(_Q * Transposed(_K), Root(D_K))
    weights = call("softmax", scaled)
    return (
        shown(
            equals(nt.Over(permuted_q * Transposed(permuted_k), Root(D_K)), _P * scaled * back),
            "rows and columns change places",
            permuted("scaled", True),
        ),
        shown(
            equals(call("softmax", _P * scaled * back), _P * weights * back),
            "softmax is by row",
            permuted("weights", True),
        ),
        shown(
            equals(_P * weights * back * _P * _V, _P * weights * _V),
            (equals(back * _P, Name("I")),),
            permuted("output", False),
        ),
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
