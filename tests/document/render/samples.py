"""Documents that show every block: a derivation, and a walk with matrices too wide for a page."""

from collections.abc import Callable
from functools import cache
from typing import Literal

from symattn import Evidence, Grade, derive
from symattn.document import model as md
from symattn.document import notation as nt
from symattn.document.notation import Name

E_ = Name("e")
PROVED = Evidence(Grade.PROVED)


@cache
def derivation() -> md.Document:
    """Why attention divides by √d_k."""
    return derive("scaling", dk=4).whole()


ODD = (
    md.Note(("Sampled with 10⁶ rows & seed #0: 100 % of them_agree; a~b, C:\\dir, {x}^2 ≤ ε … “ok” – é ő ş 漢.",)),
    md.Items((("first item",), ("second item with ", nt.Root(nt.name("d", "k"))))),
    md.Listing("symattn derive jacobian --n 3\n  J = diag(p) − p pᵀ  # not {verbatim} \\end", "text"),
)
"""Blocks with characters that some form has to escape."""


def walk() -> md.Document:
    """Eight steps with entries that no page is wide enough for."""
    ones = ((1, 0, 2), (2, 2, 2), (2, 1, 3))
    integers = tuple(tuple(nt.node(x) for x in row) for row in ones)
    exponents = ((2, 4, 4, 1), (4, 16, 12, 3), (4, 12, 10, 7))
    big = tuple(
        tuple((1 + a * E_**a) / nt.Sum(tuple(b * E_ ** (b + 1) for b in row)) for a in row) for row in exponents
    )
    digits = tuple(tuple(f"{a / sum(row):.6g}" for a in row) for row in exponents)
    row = (1 / (1 + 2 * E_**2), E_**2 / (1 + 2 * E_**2), -(E_**2 / (1 + 2 * E_**2)))
    decimals = ("0.0633789", "0.468311", "-0.468311")
    return md.Document(
        kind="walk",
        name="eight-step",
        title=("Eight-step self-attention",),
        command="symattn walk eight-step",
        blocks=(
            md.Values("queries", nt.name("Q", role="query"), integers, ones, reason=("Q = X W_Q",), evidence=PROVED),
            md.Values("weights of query 1", nt.name("a", 1, role="weight"), row, decimals,
                      {"float16": ("0.0634", "nan", "-inf")}, evidence=Evidence(Grade.ENCLOSED)),
            md.Values("output", nt.name("O", role="output"), big, digits, {"float32": digits},
                      reason=("weights times values",), evidence=Evidence(Grade.CHECKED, "this input")),
            md.Values("heads", nt.name("A", role="weight"), (integers, integers), (ones, ones)),
            md.Values("sum of the row", Name("Σ"), nt.node(1), "1"),
            *ODD,
        ),
    )  # fmt: skip


Sample = Callable[[], md.Document]
BASES = ("x", "mu", "Σ", "ε", "softmax", "max", "ẽ", "x̂", "ℓ", "S'", "d_x y", "1", "E", "∞", "…", "long word", "Ω", "Α")
FENCES: tuple[Literal["abs", "norm", "round", "curly"], ...] = ("abs", "norm", "round", "curly")
OPERATORS: tuple[Literal["sum", "prod", "max"], ...] = ("sum", "prod", "max")
