"""Documents that show every block: a derivation, and a walk with matrices too wide for a page."""

from collections.abc import Callable
from functools import cache
from typing import Literal

from symattn import Document, Evidence, Grade, derive
from symattn import printing as pr

E_ = pr.Name("e")
PROVED = Evidence(Grade.PROVED)


@cache
def derivation() -> Document:
    """Why attention divides by √d_k."""
    return derive("scaling", dk=4).whole()


ODD = (
    pr.Note(("Sampled with 10⁶ rows & seed #0: 100 % of them_agree; a~b, C:\\dir, {x}^2 ≤ ε … “ok” – é ő ş 漢.",)),
    pr.Items((("first item",), ("second item with ", pr.Root(pr.name("d", "k"))))),
    pr.Listing("symattn derive jacobian --n 3\n  J = diag(p) − p pᵀ  # not {verbatim} \\end", "text"),
)
"""Blocks with characters that some form has to escape."""


def walk() -> Document:
    """Eight steps with entries that no page is wide enough for."""
    ones = ((1, 0, 2), (2, 2, 2), (2, 1, 3))
    integers = tuple(tuple(pr.node(x) for x in row) for row in ones)
    exponents = ((2, 4, 4, 1), (4, 16, 12, 3), (4, 12, 10, 7))
    big = tuple(
        tuple((1 + a * E_**a) / pr.Sum(tuple(b * E_ ** (b + 1) for b in row)) for a in row) for row in exponents
    )
    digits = tuple(tuple(f"{a / sum(row):.6g}" for a in row) for row in exponents)
    row = (1 / (1 + 2 * E_**2), E_**2 / (1 + 2 * E_**2), -(E_**2 / (1 + 2 * E_**2)))
    decimals = ("0.0633789", "0.468311", "-0.468311")
    return Document(
        kind="walk",
        name="eight-step",
        title=("Eight-step self-attention",),
        command="symattn walk eight-step",
        blocks=(
            pr.Values("queries", pr.name("Q", role="query"), integers, ones, reason=("Q = X W_Q",), evidence=PROVED),
            pr.Values("weights of query 1", pr.name("a", 1, role="weight"), row, decimals,
                      {"float16": ("0.0634", "nan", "-inf")}, evidence=Evidence(Grade.ENCLOSED)),
            pr.Values("output", pr.name("O", role="output"), big, digits, {"float32": digits},
                      reason=("weights times values",), evidence=Evidence(Grade.CHECKED, "this input")),
            pr.Values("heads", pr.name("A", role="weight"), (integers, integers), (ones, ones)),
            pr.Values("sum of the row", pr.Name("Σ"), pr.node(1), "1"),
            *ODD,
        ),
    )  # fmt: skip


Sample = Callable[[], Document]
BASES = ("x", "mu", "Σ", "ε", "softmax", "max", "ẽ", "x̂", "ℓ", "S'", "d_x y", "1", "E", "∞", "…", "long word", "Ω", "Α")
FENCES: tuple[Literal["abs", "norm", "round", "curly"], ...] = ("abs", "norm", "round", "curly")
OPERATORS: tuple[Literal["sum", "prod", "max"], ...] = ("sum", "prod", "max")
