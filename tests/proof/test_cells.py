"""What holds everywhere but at some sizes, at some roots or in some cells is not checked; conditions are printed."""

from collections.abc import Callable
from typing import Any

import pytest
import sympy

from symattn import Grade, Refused, proving
from symattn.proof import cells
from tests.proof.stated import abs_, least, neither_proved_nor_checked, relu, softmax, top, xp

Stated = dict[str, tuple[proving.Declared, Callable[..., Any]]]
ONE, TWO, THREE = (
    proving.Declared({"x": ""}),
    proving.Declared({"x": "", "y": ""}),
    proving.Declared({"x": "", "y": "", "z": ""}),
)
VECTOR, MATRIX = proving.Declared({"x": "n"}), proving.Declared({"x": "n m"})


def unless(condition: Any, x: Any) -> Any:
    """x, and x + 1 where the condition holds."""
    return xp(x).where(condition, x + 1, x)


def added(x: Any, first: int, end: int) -> Any:
    return sum(x[k] for k in range(first, end))


def strictly(x: Any) -> Any:
    """1 where x > 0, else 0."""
    return xp(x).where(x > 0, 0 * x + 1, 0 * x)


def sign(x: Any) -> Any:
    return xp(x).sign(x)


def median(x: Any, y: Any, z: Any) -> Any:
    return xp(x).maximum(least(x, y), least(xp(x).maximum(x, y), z))


AT_SIZES: Stated = {
    "the other root": (VECTOR, lambda x, n: (unless((n - 2) * (n - 83) == 0, x), x)),
    "a cube of a size": (VECTOR, lambda x, n: (x + 1 if n * n * n == 300763 else x, x)),
    "two sizes at once": (MATRIX, lambda x, n, m: (x + 1 if n == 37 and m == 41 else x, x)),
    "the difference of two sizes": (MATRIX, lambda x, n, m: (x + 1 if n - 2 * m == 67 else x, x)),
    "one size among letters that are compared": (VECTOR, lambda x, n: (unless(n * n == 5041, relu(x)), relu(x))),
    "a remainder of a product": (MATRIX, lambda x, n, m: (x + 1 if n * m % 64 == 0 and n > m > 1 else x, x)),
    "small remainders": (VECTOR, lambda x, n: (x + 1 if n % 30 < 2 and n > 99 else x, x)),
    "parts that end at a size out of reach": (
        VECTOR,
        lambda x, n: (sum(added(x, 64 * t, min(n, 64 * t + 64)) for t in range(40)), added(x, 0, n)),
    ),
    "a quotient of sizes that is rounded down": (VECTOR, lambda x, n: ((n + 110) // 111 * x, (n // 111 + 1) * x)),
    "a sum of entries that a size allows": (
        VECTOR,
        lambda x, n: (
            xp(x).where(xp(x).sum(x) == n * n + 3, n // 9 + 0 * xp(x).sum(x), 0 * xp(x).sum(x)),
            0 * xp(x).sum(x),
        ),
    ),
    "a window that grows with its size": (
        VECTOR,
        lambda x, n: (xp(x).where(xp(x).arange(n) < 70 + n // 3, x, 0 * x), x),
    ),
    "a size that is too large to be tried": (MATRIX, lambda x, n, m: (x + 1 if n == 1900 and m == 1800 else x, x)),
}
IN_CELLS: Stated = {
    "a circle": (TWO, lambda x, y: (unless(x * x + y * y == 3, x), x)),
    "a logarithm": (ONE, lambda x: (unless(xp(x).exp(x) == 2, x), x)),
    "a cubic": (ONE, lambda x: (unless(x**3 - x == 1, x), x)),
    "a sum of products": (THREE, lambda x, y, z: (unless(x * y + y * z == 13, x), x)),
    "one of two lines": (TWO, lambda x, y: (unless((x == 123) | (y == 456), x), x)),
    "a line": (TWO, lambda x, y: (unless(3 * x + 5 * y == 17, x), x)),
    "a tie of three": (THREE, lambda x, y, z: (unless((x == y + 3) & (y == z + 5), x), x)),
    "a quotient": (TWO, lambda x, y: (unless(x / y == 23, x), x)),
    "a cell of three letters": (
        THREE,
        lambda x, y, z: (relu(x - 2 * y - 11) * relu(y - 3 * z - 7) * relu(z - 4) * relu(5 - z), 0 * x),
    ),
    "a thin cell of absolutes": (TWO, lambda x, y: (relu(0.01 - abs_(x - y - 40)), 0 * x)),
    "a cell of roots of squares": (
        ONE,
        lambda x: ((xp(x).sqrt((x - 50) ** 2) + x - 50) * (xp(x).sqrt((x - 51) ** 2) - x + 51), 0 * x),
    ),
    "a cell of maxima": (VECTOR, lambda x: (relu(top(x) - 30) * relu(31 - top(x)), 0 * top(x))),
    "an exponential cell": (ONE, lambda x: (relu(xp(x).exp(x) - 2) * relu(2.001 - xp(x).exp(x)), 0 * x)),
    "the middle of three": (THREE, lambda x, y, z: (unless(median(x, y, z) == 97, x), x)),
    "two comparisons that differ at a tie alone": (
        TWO,
        lambda x, y: (strictly(xp(x).exp(x) - 3 * xp(x).exp(y)), 1 - strictly(3 * xp(x).exp(y) - xp(x).exp(x))),
    ),
    "a sign on a line": (TWO, lambda x, y: (sign(x - y - 40) ** 2, 1 + 0 * x)),
    "two equations at once": (TWO, lambda x, y: (unless((7 * x == 41) & (x * y == 3), x), x)),
}


@pytest.mark.parametrize("name", AT_SIZES)
def test_what_fails_at_some_sizes_is_not_checked(name: str) -> None:
    neither_proved_nor_checked(*AT_SIZES[name])


@pytest.mark.parametrize("name", IN_CELLS)
def test_what_fails_at_roots_or_in_cells_is_not_checked(name: str) -> None:
    neither_proved_nor_checked(*IN_CELLS[name])


TRUE: Stated = {
    "a tie changes nothing": (TWO, lambda x, y: (xp(x).where(x == y, y, x), x)),
    "the middle of three": (THREE, lambda x, y, z: (median(x, y, z), median(z, x, y))),
    "the cell is empty": (TWO, lambda x, y: (relu(x - y) * relu(y - x - 1), 0 * x)),
    "a remainder changes nothing": (VECTOR, lambda x, n: (x + 2 - 1 if n % 16 == 5 else x + 1, x + 1)),
    "both sides branch alike": (VECTOR, lambda x, n: (unless(n == 37, x), unless(2 * n == 74, x))),
    "products of signs": (TWO, lambda x, y: (abs_(x * y), abs_(x) * abs_(y))),
    "a sign times its number": (VECTOR, lambda x: (sign(x) * x, abs_(x))),
    "the cube of a sign": (ONE, lambda x: (sign(x) ** 3, sign(x))),
    "sorted": (VECTOR, lambda x: (xp(x).sum(xp(x).sort(x)), xp(x).sum(x))),
}


@pytest.mark.parametrize("name", TRUE)
def test_what_holds_in_every_cell_is_checked_without_conditions(name: str) -> None:
    evidence = proving.Identity(*TRUE[name], ()).decide().evidence
    assert evidence.grade is Grade.CHECKED, evidence
    assert "defined" not in evidence.where


FALSE_AT_ZERO: Stated = {
    "a square": (ONE, lambda x: (sign(x) ** 2, 1 + 0 * x)),
    "an absolute value": (VECTOR, lambda x: (abs_(sign(x)), 1 + 0 * x)),
    "two cases": (ONE, lambda x: (xp(x).where(x >= 0, 1 + 0 * x, 0 * x - 1), sign(x))),
    "a sum": (TWO, lambda x, y: (sign(x + y), sign(x))),
}


@pytest.mark.parametrize("name", FALSE_AT_ZERO)
def test_the_sign_of_zero_refutes(name: str) -> None:
    assert proving.Identity(*FALSE_AT_ZERO[name], ()).decide().evidence.grade is Grade.REFUTED


CONDITIONAL: Stated = {
    "a divisor": (ONE, lambda x: (xp(x).where(x > 1, x, x) / x, 0 * x + 1)),
    "a logarithm": (ONE, lambda x: (xp(x).exp(xp(x).log(xp(x).where(x > 1, x, x))), x)),
    "a divisor that is 0 at one number": (ONE, lambda x: (relu(x) / (x - 5000), (relu(-x) + x) / (x - 5000))),
    "masked rows": (
        proving.Declared({"s": "n m", "t": "n m"}),
        lambda s, t: (xp(s).sum(softmax(xp(s).where(s > t, s, -xp(s).inf)), axis=-1), 0 * s[:, 0] + 1),
    ),
}


@pytest.mark.parametrize("name", CONDITIONAL)
def test_conditions_are_printed_where_comparisons_stop_the_prover(name: str) -> None:
    evidence = proving.Identity(*CONDITIONAL[name], ()).decide().evidence
    assert evidence.grade is Grade.CHECKED, evidence
    assert evidence.where.endswith("where both sides are defined")


@pytest.mark.deep
def test_a_comparison_of_many_terms_is_refused_before_it_is_factored() -> None:
    letters = sympy.symbols("x0:41", real=True)
    assert cells._factor_compared_side(sum(letters[:40]), 40)[1]
    with pytest.raises(Refused, match="more than 40 terms"):
        cells._factor_compared_side(sum(letters), 40)
