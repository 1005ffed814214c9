"""How the entries of each array of attention are written."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.arrays.special import FORBIDDEN
from symattn.attention.flow import Step
from symattn.attention.notation import D_K, D_MODEL, D_V, N_K, H, causal_condition, scale_formula
from symattn.derivations.attention_inputs import Request
from symattn.derivations.letters import E
from symattn.derivations.steps import FalseStep
from symattn.document import notation as nt
from symattn.document.model import Text
from symattn.document.notation import Matrix, Name, Node, Row, Words, equals, name, node, total
from symattn.document.sympify import from_sympy
from symattn.document.text import text
from symattn.proof.expansion import mapped

_WIDEST = 62  # columns of the matrices that are written out
_ROLES: dict[str, nt.Role] = {"q": "query", "k": "key", "v": "value", "s": "score", "a": "weight", "o": "output"}
_PRIMED = {"t": "s'", "u": "s''"}
_SCORES = {"scores": "s", "scaled": "s'", "masked": "s''"}
_ORDER: tuple[nt.Role, ...] = ("query", "key", "weight", "value")
Formulas = list[tuple[Node, Text | str]]


def entry_formulas(request: Request, step: Step) -> Formulas:
    """The textbook sums for the entries of a step, each with its reason."""
    if step.name in "qkv":
        return _of_role(request, step)
    match step.name:
        case "scores":
            return [(equals(_s("scores"), _dot()), "")]
        case "scaled":
            return [(equals(_s("scaled"), scale_formula(request.spec.scale, _s("scores"))), "entry by entry")]
        case "masked":
            return _of_mask(request)
        case "weights":
            return _of_weights(request, step)
        case "attended":
            return [(equals(name("h", "i", "l", role="output"), _weighted()), "in each head")]
        case "output":
            return _of_output(step)
    raise FalseStep(f"no formula for the entries of {step.name}")


def _s(step: str, *index: nt.Like) -> Name:
    return name(_SCORES[step], *(index or ("i", "j")), role="score")


def _dot() -> Node:
    return total("l", 1, D_K, name("q", "i", "l", role="query") * name("k", "j", "l", role="key"))


def _weighted() -> Node:
    return total("j", 1, N_K, name("a", "i", "j", role="weight") * name("v", "j", "l", role="value"))


def _of_role(request: Request, step: Step) -> Formulas:
    """q_il = Σ_m x_im w_ml, or for head a the columns from (a − 1)d_k + 1 on."""
    role: nt.Role = {"q": "query", "k": "key", "v": "value"}[step.name]  # type: ignore[assignment]
    source = name(step.of[0], "i", "m", role="input")
    if len(step.of) == 1:
        return [(equals(name(step.name, "i", "l", role=role), name(step.of[0], "i", "l", role="input")), "")]
    several = request.spec.heads > 1
    size = D_V if step.name == "v" else D_K
    column: Node = (Name("a") - 1) * size + "l" if several else Name("l")
    left = Name(step.name, (Name("a"), Name("i"), Name("l")) if several else (Name("i"), Name("l")), role)
    right = total("m", 1, D_MODEL, source * Name("w", (Name("m"), column), role))
    formula = equals(left, right + Name("b", (column,), role) if len(step.of) > 2 else right)
    return [(formula, ("head ", Name("a"), ", column ", Name("l")) if several else "")]


def _of_mask(request: Request) -> Formulas:
    """s″_ij = s′_ij where the query may see the key, −∞ elsewhere."""
    spec = request.spec
    seen: Node = _s("scaled") + name("m", "i", "j") if spec.mask == "additive" else _s("scaled")
    if not (spec.causal or spec.padding or spec.mask == "boolean"):
        return [(equals(_s("masked"), seen), "entry by entry")]
    left = equals(_s("masked"), seen)
    right = equals(_s("masked"), nt.Neg(Name("∞")))
    if spec.causal and not (spec.padding or spec.mask):
        condition = causal_condition(spec.alignment)
        return [(Row((left, Words("for"), condition)), ""), (Row((right, Words("for all other keys"))), "")]
    return [(Row((left, Words("for a key that may be seen"))), ""), (Row((right, Words("for all other keys"))), "")]


def _of_weights(request: Request, step: Step) -> Formulas:
    before = step.of[0]
    share = E ** _s(before) / total("l", 1, N_K, E ** _s(before, "i", "l"))
    reason: Text | str = (equals(E ** nt.Neg(Name("∞")), 0),) if request.spec.masks_anything else ""
    return [(equals(name("a", "i", "j", role="weight"), share), reason)]


def _of_output(step: Step) -> Formulas:
    output = name("o", "i", "l", role="output")
    if "attended" not in step.of:
        return [(equals(output, _weighted()), "")]
    merged = total("m", 1, H * D_V, name("h", "i", "m", role="output") * name("w", "m", "l", role="output"))
    body = merged + name("b", "l", role="output") if "b_o" in step.of else merged
    return [
        (
            equals(output, body),
            ("the heads side by side: column ", Name("m"), " is head ", nt.Over(node("m"), D_V), ", rounded up"),
        )
    ]


def written_out(step: str, array: Any) -> Matrix | None:
    """The matrix of entries, of the first head; None where it is too wide."""
    if step in ("q", "k", "v", "weights"):
        return None
    sheet = array.entries[(0,) * (array.entries.ndim - 2)]
    if sheet.size > 36:
        return None
    shown = nt.matrix([[_entry(x, array.ndim - 2) for x in row] for row in sheet])
    rows = [sum(len(text(x)) + 2 for x in row) for row in shown.rows]
    return shown if max(rows) <= _WIDEST else None


def _entry(x: Any, heads: int) -> Node:
    """An entry with the letters of the formulas; the index of the head is left out."""
    if x is FORBIDDEN:
        return nt.Neg(Name("∞"))
    return _relettered(from_sympy(x, _ROLES), heads)


def _relettered(x: Node, heads: int) -> Node:
    if isinstance(x, Name) and x.sub:
        base = _PRIMED.get(x.base, x.base)
        role: nt.Role | None = "score" if base.startswith("s") else x.role
        return Name(base, _indices(x)[heads:], role)
    if isinstance(x, nt.Product):
        return nt.Product(tuple(_relettered(f, heads) for f in sorted(x.factors, key=_place)), x.sign)
    return mapped(x, lambda part: _relettered(part, heads))


def _indices(x: Name) -> tuple[Node, ...]:
    """The indices one by one: 123 is 1, 2, 3 unless they are apart already."""
    if len(x.sub) == 1 and isinstance(x.sub[0], nt.Number):
        return tuple(node(int(digit)) for digit in str(x.sub[0].value))
    return x.sub


def _place(x: Node) -> int:
    """Queries before keys, weights before values; other factors keep their places at the front."""
    return _ORDER.index(x.role) if isinstance(x, Name) and x.role in _ORDER else -1


def pattern(weights: Any, allowed: np.ndarray) -> Matrix:
    """Letters where a weight is not 0."""
    sheet = weights.entries[(0,) * (weights.entries.ndim - 2)]
    indices = np.ndindex(*sheet.shape)
    cells = {(i, j): node(0) if sheet[i, j] == 0 else name("a", i + 1, j + 1, role="weight") for i, j in indices}
    return nt.matrix([[cells[i, j] for j in range(sheet.shape[1])] for i in range(sheet.shape[0])])
