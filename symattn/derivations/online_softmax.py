"""``online-softmax``: attention over keys that come in tiles, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import Any

from symattn.arrays.array import Array
from symattn.attention.softmax import softmax
from symattn.attention.streaming.states import State, finish, merge, tile_state
from symattn.derivations.exactly import entries, exact, same
from symattn.derivations.letters import E, s
from symattn.derivations.proving import known
from symattn.derivations.steps import FalseStep, together
from symattn.document import notation as nt
from symattn.document.model import Assumption, Assumptions, Block, Caveat, Column, Document, Heading, Paragraph, Table
from symattn.document.notation import Big, Name, Node, Relation, commas, equals, name
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section
from symattn.theorems import streaming as theorems

_M, _L, _A, _O = Name("m"), Name("ℓ"), Name("a"), name("o", role="output")
SCORES, VALUES = [[1, 3, 2]], [[4], [1], [2]]
"""Of the example: three keys of one query."""


def derivation() -> Document:
    """(m, ℓ, a) of tiles merge to that of all keys, and a/ℓ is the output whatever m was."""
    return Document(
        "derivation",
        "online-softmax",
        ("Softmax in one pass",),
        _blocks(),
        hints=("symattn derive shift             why any maximum will do", "symattn prove streaming"),
    )


def _state(scores: str, values: str, maximum: str, part: int) -> Callable[[Reader], Any]:
    """ℓ (``part`` 1) or a (2) of some keys, as the implementation computes them with any m."""

    def computed(reader: Reader) -> Any:
        s, v, m = (reader.arrays[x] for x in (scores, values, maximum))
        return _part(tile_state(s[None, :], v, m[None, None]), part)

    return computed


def _joined(names: tuple[str, str, str, str], maximum: str, part: int) -> Callable[[Reader], Any]:
    """The same of two sets of keys together."""

    def computed(reader: Reader) -> Any:
        s, t, v, w = (reader.arrays[x] for x in names)
        t, w = (t, w) if t.shape else (t[None], w[None, :])
        every, m = reader.xp.concat([s, t], axis=0), reader.arrays[maximum][None, None]
        return _part(tile_state(every[None, :], reader.xp.concat([v, w], axis=0), m), part)

    return computed


def _part(state: State, part: int) -> Any:
    return state.normaliser[0, 0] if part == 1 else state.accumulated[0, :]


def _seen() -> Section:
    """Some keys and any m."""
    defined = {"ℓ": _state("s", "V", "m", 1), "a": _state("s", "V", "m", 2)}
    return Section(Glossary({"s": "n", "V": "n d_v", "m": ""}, index={"j": "n", "l": "n"}, defined=defined, rows=True))


def _one_more() -> Section:
    """Some keys, and one more of score s and value v."""
    given = {"seen": "n", "held": "n d_v", "s": "", "v": "d_v", "m": "", "m′": ""}
    names = ("seen", "s", "held", "v")
    defined = {"ℓ": _state("seen", "held", "m", 1), "a": _state("seen", "held", "m", 2)}
    new = {"ℓ′": _joined(names, "m′", 1), "a′": _joined(names, "m′", 2)}
    return Section(Glossary(given, defined={**defined, **new}, rows=True))


def _tiles() -> Section:
    """Two tiles, each with an m of its own, and one for both."""
    given = {"s1": "n", "v1": "n d_v", "s2": "r", "v2": "r d_v", "m₁": "", "m₂": "", "m": ""}
    names = ("s1", "s2", "v1", "v2")
    each = {f"{letter}{i}": _state(s, v, f"m{i}", part) for i, s, v in (("₁", "s1", "v1"), ("₂", "s2", "v2"))
            for letter, part in (("ℓ", 1), ("a", 2))}  # fmt: skip
    return Section(
        Glossary(given, defined={**each, "ℓ": _joined(names, "m", 1), "a": _joined(names, "m", 2)}, rows=True)
    )


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
    merging, whole = map(known, (theorems.two_block_merge, theorems.online_softmax))
    shifted, value, new = E ** (s("j") - _M), name("v", "j", role="value"), Name("m'")
    v, seen, more_keys, tiles = name("v", role="value"), _seen(), _one_more(), _tiles()
    down, more = E ** (_M - new), E ** (s() - new)
    first, second = (commas(name("m", x), name("ℓ", x), name("a", x)) for x in ("1", "2"))
    return (
        _assumptions(),
        Heading(("The state of some keys",)),
        together(
            seen.claim(equals(_L, _over(shifted)), "over the keys seen"),
            seen.claim(equals(_A, _over(shifted * value)), "likewise"),
            seen.claim(equals(_A / _L, _over(_weight() * value)), (E ** (-_M), " cancels")),
        ),
        Heading(("One more key",)),
        Paragraph(("A new key has the score ", s(), " and the value ", v, "; let ", new, " be any number, such as ",
                   nt.call("max", _M, s()), ":")),
        together(
            more_keys.claim(equals(Name("ℓ'"), _L * down + more), "the old terms are rescaled"),
            more_keys.claim(equals(Name("a'"), _A * down + more * v), "by the same factor"),
        ),
        Heading(("Two tiles",)),
        Paragraph(("Tiles 1 and 2 with the states ", first, " and ", second, ", and any ", _M, ", merge to:")),
        together(
            tiles.claim(equals(_L, _rescaled("ℓ")), "another maximum is a common factor"),
            tiles.claim(equals(_A, _rescaled("a")), "likewise"),
        ),
        *_monoid(),
        merging.wrong(),
        Paragraph(("The state of a tile of keys and values is its ", commas(_M, _L, _A), "; to finish is to divide ",
                   _A, " by ", _L, ":")),
        *whole.result(),
        whole.wrong(),
        *_outputs(),
        *_example(),
        Caveat(
            (
                "The state is exact in exact numbers. In floating point each rescaling rounds, and the order of tiles",
                " matters in the last digits. A2 excludes tiles in which every key is forbidden.",
            )
        ),
    )  # fmt: skip


def _monoid() -> tuple[Block, ...]:
    """Merging is associative and commutative, and has a unit."""
    states, (x, y, z) = Section(theorems.STATE_LETTERS), map(Name, "xyz")

    def merged(a: Node, b: Node) -> Node:
        return nt.call("merge", a, b)

    return (
        Paragraph(
            ("States that agree in ", _L * E**_M, " and ", _A * E**_M, " are equal up to the choice of ", _M,
             ", and give the same output. In this sense:")
        ),
        together(
            states.claim(equals(merged(merged(x, y), z), merged(x, merged(y, z))), "merging adds these numbers"),
            states.claim(equals(merged(x, y), merged(y, x)), "likewise"),
            states.claim(equals(merged(x, nt.Fence("round", commas(_M, 0, 0))), x), "a state of no keys"),
        ),
    )  # fmt: skip


def _outputs() -> tuple[Block, ...]:
    """Blocks that keep their outputs and log-sum-exps."""
    blocks, each, (b, many) = Section(theorems.BLOCK_LETTERS), name("o", "b", role="output"), map(Name, "bB")
    sums = nt.total(b, 1, many, E ** name("L", "b"))
    return (
        Heading(("Outputs instead of states",)),
        Paragraph(
            ("Kernels that split the keys into ", many, " blocks of one size keep the output ", each,
             " of each block and the logarithm ", name("L", "b"), " of its sum of exponentials.")
        ),
        together(
            blocks.claim(equals(Name("L"), nt.call("log", sums)), "the sums of the blocks add up"),
            blocks.claim(
                equals(_O, nt.total(b, 1, many, E ** (name("L", "b") - Name("L")) * each)),
                "a block's numerator is its output times its sum",
            ),
        ),
    )  # fmt: skip


def _weight() -> Node:
    return E ** s("j") / Big("sum", Name("l"), None, None, E ** s("l"))


def _rescaled(letter: str) -> Node:
    """ℓ₁ e^{m₁ − m} + ℓ₂ e^{m₂ − m}."""
    return name(letter, 1) * E ** (name("m", 1) - _M) + name(letter, 2) * E ** (name("m", 2) - _M)


def _example() -> tuple[Block, ...]:
    """Three keys one by one, in exact numbers."""
    scores, values = exact(SCORES), exact(VALUES)
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
    section = Section(Glossary(dict.fromkeys(("s", "V"), "n"), index={"j": "n", "l": "n"}, example=True))
    section.let((equals(s(), nt.matrix(SCORES)), equals(name("V", role="value"), nt.matrix(VALUES))))
    section.let((equals(_O, _over(_weight() * name("v", "j", role="value"))),))
    digits = nt.Decimal(direct.tolist()[0][0].decimal(6))
    formula = Relation(_O, (("=", _entry(finish(states[-1]))), ("≈", digits)))
    said = "as softmax over all three at once, and as from the last key to the first"
    return Heading(("In numbers",)), table, together(section.claim(formula, said))


def _row(j: int, state: State) -> tuple[tuple[Node, ...], ...]:
    given = nt.node(j + 1), nt.node(SCORES[0][j]), nt.node(VALUES[j][0])
    found = (*state, finish(state))
    return tuple((x,) for x in (*given, *map(_entry, found)))


def _entry(x: Array) -> Node:
    return entries(x[0, 0])
