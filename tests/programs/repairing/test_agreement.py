"""Of two edits that do the same, one after which the code agrees with other code is likelier."""

import ast
from pathlib import Path

import pytest

from symattn import Attention
from symattn.programs.repairing.agreement import agrees_with_other_code
from symattn.programs.verifying import Options, verified
from tests.programs.repairing.programs import loaded


@pytest.mark.parametrize(
    ("before", "after", "agrees"),
    [
        ("x = a[i, :n] + b[j, :n]", "x = a[i, :n] + b[i, :n]", True),
        ("x = f(a, axis=1) + f(b, axis=0)", "x = f(a, axis=1) + f(b, axis=1)", False),
        ("x = f(a, axis=1)\ny = f(b, axis=0)", "x = f(a, axis=1)\ny = f(b, axis=1)", True),
        ("x = a * f(m - n)\ny = b", "x = a * f(m - n)\ny = b * f(m - n)", True),
        ("x = a * f(m - n)\ny = b", "x = a * f(m - n)\ny = g(b)", False),
        ("x = a\ny = b + c", "x = a\ny = b", False),
    ],
)
def test_an_edit_agrees_if_a_part_becomes_equal_to_another(before: str, after: str, agrees: bool) -> None:
    assert agrees_with_other_code(ast.parse(before), ast.parse(after)) is agrees


#: Pages in another order than tokens; the values are read by the place of a page among the tokens.
PAGED = """
def attention(q, k, v):
    count = -(-len(k) // 4)
    table = np.roll(np.arange(count), 1)
    keys = np.zeros((count, 4, k.shape[1]), k.dtype)
    values = np.zeros((count, 4, v.shape[1]), v.dtype)
    for row in range(count):
        part = slice(4 * row, min(4 * row + 4, len(k)))
        size = part.stop - part.start
        keys[table[row], :size], values[table[row], :size] = k[part], v[part]
    total, acc = np.zeros((len(q), 1), q.dtype), np.zeros((len(q), v.shape[1]), q.dtype)
    top = np.full((len(q), 1), -np.inf, q.dtype)
    for row in range(count):
        page, size = table[row], min(4, len(k) - 4 * row)
        s = q @ keys[page, :size].T / np.sqrt(q.shape[1], dtype=q.dtype)
        new = np.maximum(top, s.max(1, keepdims=True))
        a, p = np.exp(top - new), np.exp(s - new)
        total, acc, top = total * a + p.sum(1, keepdims=True), acc * a + p @ values[row, :size], new
    return acc / total
"""


@pytest.mark.deep
def test_the_odd_part_is_edited_before_another_place_that_does_the_same(tmp_path: Path) -> None:
    """A roll by 0 in place of 1 makes both orders the same, too."""
    first = verified(loaded(tmp_path, PAGED), Attention(), Options(repair=True)).repairs[0]
    assert (first.line, first.old, first.new) == (20, "row", "page")
