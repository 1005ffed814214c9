"""``matrix-form``: attention token by token is attention by matrices."""

from __future__ import annotations

from typing import Any

from symattn.arrays.exact import Exact
from symattn.attention.notation import D_K, SYMBOLS, N
from symattn.attention.softmax import softmax
from symattn.attention.spec import Attention
from symattn.derivations.letters import E
from symattn.derivations.steps import together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph, Step
from symattn.document.notation import Fence, Name, Node, Relation, Root, Transposed, call, equals, name, total
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section

_X, _A, _SCALED = SYMBOLS["x"], SYMBOLS["weights"], SYMBOLS["scaled"]
_W_Q, _W_K, _W_V = SYMBOLS["w_q"], SYMBOLS["w_k"], SYMBOLS["w_v"]
_ROWS = {"q": name("q", "i", role="query"), "k": name("k", "i", role="key"), "v": name("v", "i", role="value")}
_SCORE = name("s", "i", "j", role="score")
_SHAPES = {"X": "n d", "W_Q": "d d_k", "W_K": "d d_k", "W_V": "d d_v"}
_STEPS = {"Q": "q", "K": "k", "V": "v", "S": "scaled", "S′": "scaled", "A": "weights", "C": "output"}
_EXAMPLE = [[2, 1], [0, 1]]


def derivation() -> Document:
    """C = softmax(X W_Q W_Kᵀ Xᵀ/√d_k) X W_V, entry by entry what the per-token workflow gives."""
    return Document(
        "derivation",
        "matrix-form",
        ("Attention token by token, and by matrices",),
        _blocks(),
        hints=("symattn walk ground-up           the same with numbers", "symattn derive equivariance"),
    )


def _section() -> Section:
    """Tokens and projections; every step of attention is what the implementation makes of them."""

    def step(of: str) -> Any:
        def computed(reader: Reader) -> Any:
            x, w_q, w_k, w_v = (reader.arrays[key] for key in _SHAPES)
            return Attention().trace(x=x, w_q=w_q, w_k=w_k, w_v=w_v)[of]

        return computed

    defined = {letter: step(of) for letter, of in _STEPS.items()}
    return Section(Glossary(given=_SHAPES, index=dict.fromkeys("ijℓ", "n"), defined=defined, rows=True))


def _blocks() -> tuple[Block, ...]:
    section = _section()
    result = equals(Name("C"), _in_one())
    return (
        Paragraph(
            ("First what happens to tokens ", Name("i"), " and ", Name("j"), ", then the same as an entry of a matrix.")
        ),
        Heading(("Step by step",)),
        together(
            *(section.claim(_row_by_row(role), "one row") for role in _ROWS),
            section.claim(
                _score_formula(), ("a dot product for each pair, with ", _product("q"), " and ", _product("k"))
            ),
            section.claim(_weight_formula(), ("each row by itself, with ", equals(_SCALED, _scores(Root(D_K))))),
            section.claim(
                _context_formula(),
                ("a weighted sum of all values, with ", equals(_A, call("softmax", _SCALED)), " and ", _product("v")),
            ),
        ),
        Heading(("In one formula",)),
        together(section.claim(equals(Name("C"), _A * SYMBOLS["v"], _in_one()), "together")),
        section.result("Result", result),
        Heading(("Another divisor is another attention",)),
        *_other_divisors(),
        Caveat(("Equal means equal as functions of all entries, in exact numbers; rounded, they may differ.",)),
    )


def _product(role: str) -> Relation:
    """Q = X W_Q."""
    return equals(SYMBOLS[role], _X * SYMBOLS[f"w_{role}"])


def _in_one() -> Node:
    inner = nt.Over(_X * _W_Q * Transposed(_W_K) * Transposed(_X), Root(D_K))
    return call("softmax", inner) * _X * _W_V


def _row_by_row(role: str) -> Relation:
    """q_i = x_i W_Q is row i of X W_Q."""
    weight = SYMBOLS[f"w_{role}"]
    return equals(_ROWS[role], name("x", "i", role="input") * weight, _entry(SYMBOLS["x"] * weight, "i"))


def _entry(matrix: Node, *index: str) -> Node:
    """(matrix)_ij."""
    letters_ = tuple(map(Name, index))
    return Fence("round", matrix, letters_[0] if len(letters_) == 1 else nt.Product(letters_))


def _score_formula() -> Relation:
    product = nt.Product((_ROWS["q"], name("k", "j", role="key")), "·")
    return equals(_SCORE, product / Root(D_K), _entry(SYMBOLS["q"] * Transposed(SYMBOLS["k"]) / Root(D_K), "i", "j"))


def _weight_formula() -> Relation:
    share = E**_SCORE / total("ℓ", 1, N, E ** name("s", "i", "ℓ", role="score"))
    return equals(name("a", "i", "j", role="weight"), share, _entry(call("softmax", _SCALED), "i", "j"))


def _context_formula() -> Relation:
    weighted = name("a", "i", "j", role="weight") * name("v", "j", role="value")
    return equals(name("c", "i", role="output"), total("j", 1, N, weighted), _entry(_A * SYMBOLS["v"], "i"))


def _other_divisors() -> tuple[Block, ...]:
    """The weight of token 1 in a small example, with √d_k and with a wrong divisor."""
    section = Section(Glossary(given={k: _SHAPES[k] for k in ("X", "W_Q", "W_K")}, rows=True, example=True))
    numbers = equals(_X, nt.matrix(_EXAMPLE)), equals(_W_Q, _W_K, nt.matrix([[1, 0], [0, 1]]))
    q, k = SYMBOLS["q"], SYMBOLS["k"]
    weights = equals(_A, call("softmax", _scores(Root(D_K))))
    section.let((equals(q, _X * _W_Q), equals(k, _X * _W_K), weights))
    given = section.let(
        ("With ", numbers[0], " and ", numbers[1], ", and a divisor that is not ", Root(D_K),
         ", the weight of token 1 differs:")
    )  # fmt: skip
    return Paragraph(given), together(_differs(section, *wrong) for wrong in _WRONG)


def _scores(divisor: Node) -> Node:
    return SYMBOLS["q"] * Transposed(SYMBOLS["k"]) / divisor


_WRONG: tuple[tuple[str, Node], ...] = (
    ("the size", D_K),
    ("the length of the query", Fence("norm", name("q", 1, role="query"))),
)


def _differs(section: Section, words: str, divisor: Node) -> Step:
    """The weight with √d_k is not that with another divisor."""
    x = Exact.lift(_EXAMPLE)
    right, wrong = (_weights(x, d) for d in (Root(D_K), divisor))
    other = Fence("round", call("softmax", _scores(divisor)), nt.commas(1, 1))
    formula = Relation(name("a", 1, 1, role="weight"), (("=", right), ("≠", wrong), ("=", other)))
    return section.claim(formula, (f"divided by {words}, ", divisor))


def _weights(x: Any, divisor: Node) -> Node:
    """The first weight as a number, to be printed: what it must be is decided by the claim."""
    xp = x.xp
    by = {_WRONG[0][1]: xp.asarray(2), _WRONG[1][1]: xp.sqrt(x[0] @ x[0])}.get(divisor, xp.sqrt(xp.asarray(2)))
    first: Node = softmax(x @ x.mT / by).tolist()[0][0].notation()
    return first
