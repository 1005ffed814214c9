"""``online-softmax``: attention over keys that come in tiles, in one pass."""

from __future__ import annotations

from functools import reduce
from itertools import accumulate
from typing import Any

from symattn.attention.softmax import softmax
from symattn.attention.streaming.states import State, finish, merge, tile_state
from symattn.derivations.exactly import THIS, entries, exact, same
from symattn.derivations.letters import E, s
from symattn.derivations.proving import known, shown
from symattn.derivations.steps import FalseStep, defined, hold, together
from symattn.document import notation as nt
from symattn.document.model import Assumption, Assumptions, Block, Caveat, Column, Document, Heading, Paragraph, Table
from symattn.document.notation import Big, Name, Node, Relation, commas, equals, name
from symattn.proof.theorem import Method
from symattn.proof.together import identity
from symattn.theorems import streaming as theorems
from symattn.theorems.sums import exp

_M, _L, _A, _O = Name("m"), Name("ℓ"), Name("a"), name("o", role="output")
_TILE = {"s": "n_q t", "v": "t d_v", "m": "n_q 1", "z": "n_q 1"}
_NEXT = {"s": "n_q t", "v": "t d_v", "x": "n_q 1", "w": "1 d_v", "m": "n_q 1", "z": "n_q 1"}
_SCORES, _VALUES = [[1, 3, 2]], [[4], [1], [2]]


def derivation() -> Document:
    """(m, ℓ, a) of tiles merge to that of all keys, and a/ℓ is the output whatever m was."""
    return Document(
        "derivation",
        "online-softmax",
        ("Softmax in one pass",),
        _blocks(),
        command="symattn derive online-softmax",
        hints=("symattn derive shift             why any maximum will do", "symattn prove streaming"),
    )


def any_maximum() -> Method:
    """a/ℓ = softmax(s) V for every m."""
    return identity(_TILE, lambda s, v, m: (finish(tile_state(s, v, m)), softmax(s) @ v))


def another_maximum() -> Method:
    """ℓ' = ℓ e^{m − m'} and a' = a e^{m − m'}."""

    def sides(s: Any, v: Any, m: Any, z: Any) -> Any:
        old, new = tile_state(s, v, m), tile_state(s, v, z)
        return [(new.normaliser, old.normaliser * exp(m - z)), (new.accumulated, old.accumulated * exp(m - z))]

    return identity(_TILE, sides)


def one_key() -> Method:
    """ℓ' = ℓ e^{m − m'} + e^{s − m'} and a' = a e^{m − m'} + e^{s − m'} v, for one more key."""

    def sides(s: Any, v: Any, x: Any, w: Any, m: Any, z: Any) -> Any:
        xp = s.__array_namespace__()
        old, new = tile_state(s, v, m), tile_state(xp.concat([s, x], axis=-1), xp.concat([v, w], axis=-2), z)
        down, more = exp(m - z), exp(x - z)
        return [
            (new.normaliser, old.normaliser * down + more),
            (new.accumulated, old.accumulated * down + more * w),
        ]

    return identity(_NEXT, sides)


def _over(body: Node) -> Node:
    return Big("sum", nt.node("j"), None, None, body)


def _assumptions() -> Assumptions:
    keys: tuple[Any, ...] = (
        "One query, with scores ", s("j"), " and values ", name("v", "j", role="value"),
        ". The keys come in tiles of any sizes, one after the other.",
    )  # fmt: skip
    maximum: tuple[Any, ...] = (
        _M, " is any finite number for each tile: its largest score, or the largest so far.",
    )  # fmt: skip
    return Assumptions((Assumption("A1", keys), Assumption("A2", maximum)))


def _blocks() -> tuple[Block, ...]:
    merging, whole, monoid = map(known, (theorems.two_block_merge, theorems.online_softmax, theorems.merge_monoid))
    partial = known(theorems.lse_merge)
    shifted, value, new = E ** (s("j") - _M), name("v", "j", role="value"), Name("m'")
    v, larger = name("v", role="value"), equals(new, nt.call("max", _M, s()))
    down, more = E ** (_M - new), E ** (s() - new)
    first, second = (commas(name("m", x), name("ℓ", x), name("a", x)) for x in ("1", "2"))
    return (
        _assumptions(),
        Heading(("The state of some keys",)),
        together(
            defined(equals(_L, _over(shifted)), "over the keys seen"),
            defined(equals(_A, _over(shifted * value)), "likewise"),
            shown(equals(_A / _L, _over(_weight() * value)), (E ** (-_M), " cancels"), any_maximum()),
        ),
        Heading(("One more key",)),
        Paragraph(("Let ", larger, " for a new key with score ", s(), " and value ", v, ":")),
        together(
            shown(equals(Name("ℓ'"), _L * down + more), "the old terms are rescaled", one_key()),
            shown(equals(Name("a'"), _A * down + more * v), "by the same factor", one_key()),
        ),
        Heading(("Two tiles",)),
        Paragraph(("Tiles 1 and 2 with the states ", first, " and ", second, ", and any ", _M, ", merge to:")),
        together(
            merging.step(equals(_L, _rescaled("ℓ")), "another maximum is a common factor"),
            merging.step(equals(_A, _rescaled("a")), "likewise"),
            monoid.step(None, ("merging adds ", _L * E**_M, " and ", _A * E**_M)),
        ),
        merging.wrong(),
        whole.result(),
        whole.wrong(),
        Heading(("Outputs instead of states",)),
        Paragraph(
            ("Kernels that split the keys keep the output ", name("o", "b", role="output"), " of each block and the ",
             "logarithm ", name("L", "b"), " of its sum of exponentials.")
        ),
        together(partial.step(None, "a block's numerator is its output times its sum")),
        *_example(),
        Caveat(
            (
                "The state is exact in exact numbers. In floating point each rescaling rounds, and the order of tiles",
                " matters in the last digits. A2 excludes tiles in which every key is forbidden.",
            )
        ),
    )  # fmt: skip


def _weight() -> Node:
    return E ** s("j") / Big("sum", Name("l"), None, None, E ** s("l"))


def _rescaled(letter: str) -> Node:
    """ℓ₁ e^{m₁ − m} + ℓ₂ e^{m₂ − m}."""
    return name(letter, 1) * E ** (name("m", 1) - _M) + name(letter, 2) * E ** (name("m", 2) - _M)


def _example() -> tuple[Block, ...]:
    """Three keys one by one, in exact numbers."""
    scores, values = exact(_SCORES), exact(_VALUES)
    tiles = [tile_state(scores[:, j : j + 1], values[j : j + 1, :]) for j in range(scores.shape[-1])]
    states = list(accumulate(tiles, merge))
    direct = softmax(scores) @ values
    table = Table(
        tuple(Column((x,)) for x in (Name("j"), s("j"), name("v", "j", role="value"), _M, _L, _A, _A / _L)),
        tuple(_row(j, state) for j, state in enumerate(states)),
        caption=("Keys one by one; the last entry of the last row is the output.",),
    )
    backwards = reduce(merge, reversed(tiles))
    if not same(finish(backwards), direct):
        raise FalseStep("merged from the end, the output is another")
    return (
        Heading(("In numbers",)),
        table,
        together(
            hold(
                same(finish(states[-1]), direct),
                Relation(_O, (("=", _entry(finish(states[-1]))), ("≈", nt.Decimal(direct.tolist()[0][0].decimal(6))))),
                "as softmax over all three at once, and as from the last key to the first",
                THIS,
            )
        ),
    )


def _row(j: int, state: State) -> tuple[tuple[Node, ...], ...]:
    given = nt.node(j + 1), nt.node(_SCORES[0][j]), nt.node(_VALUES[j][0])
    found = (*state, finish(state))
    return tuple((x,) for x in (*given, *map(_entry, found)))


def _entry(x: Any) -> Node:
    return entries(x[0, 0])
