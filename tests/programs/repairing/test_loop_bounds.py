"""Bounds of loops: an edit of one is told from an edit that avoids the mistake."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from symattn import Attention, Domain
from symattn.programs.repairing.loop_bounds import (
    are_passes_moved,
    changes_of_counts,
    lines_of_jumps,
    loops_with_other_bounds,
)
from symattn.programs.verifying import Options, verified
from tests.programs.repairing.programs import loaded

PASS = "def g(x):\n  for i in x:\n"


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ("for i in range(n): f(i)", "for i in range(n + 1): f(i)", 1),
        ("for i in range(n): f(i)", "for i in range(1, n): f(i)", 1),
        ("for i in reversed(range(n)): f(i)", "for i in reversed(range(m)): f(i)", 1),
        ("for i, j in enumerate(range(n)): f(i)", "for i, j in enumerate(range(m)): f(i)", 1),
        ("for i in np.arange(n): f(i)", "for i in np.arange(stop=m): f(i)", 1),
        ("for i in range(n):\n for j in range(i): f(j)", "for i in range(n):\n for j in range(i + 1): f(j)", 1),
        ("while i < n: i += 1", "while i <= n: i += 1", 1),
        ("for i in x:\n if i > n: break\n f(i)", "for i in x:\n if i >= n: break\n f(i)", 1),
        ("m = n // 4\nfor i in range(m): f(i)", "m = n // 2\nfor i in range(m): f(i)", 1),
        ("a = n\nm = a // 4\nfor i in range(m): f(i)", "a = n + 3\nm = a // 4\nfor i in range(m): f(i)", 1),
        (f"{PASS}    f(i)\n    return x", f"{PASS}    f(i)\n  return x", 1),
        # A step, what a pass does, and names that are read elsewhere are no bounds.
        ("for i in range(0, n, 8): f(i)", "for i in range(0, n, 1): f(i)", 0),
        ("for i in range(n): f(i)", "for i in range(n): f(i + 1)", 0),
        ("for i in range(n): f(i)", "for i in reversed(range(n)): f(i)", 0),
        ("while i < n: i += 1", "while i < n: i += 2", 0),
        ("m = n // 4\nfor i in range(m): f(m)", "m = n // 2\nfor i in range(m): f(m)", 0),
        ("for i in x:\n if i > n: f(i)", "for i in x:\n if i >= n: f(i)", 0),
        ("for m in x: f(m)\nfor i in range(m): f(i)", "for m in y: f(m)\nfor i in range(m): f(i)", 0),
        ("x = np.arange(n)", "x = np.arange(m)", 0),
        ("for i in range(n): f(i)", "for i in range(n): f(i)", 0),
        (f"{PASS}    f(i)\n    return x", f"{PASS}    f(i)\n  return y", 0),
        (f"{PASS}    return f(i)", f"{PASS}    f(i)\n  return x", 0),
    ],
)
def test_loops_whose_bounds_alone_change(before: str, after: str, count: int) -> None:
    assert len(loops_with_other_bounds(ast.parse(before), ast.parse(after))) == count


@pytest.mark.parametrize(("after", "is_moved"), [({1: 2, 5: 9}, True), ({1: 4, 5: 9}, False), ({1: 3, 5: 5}, False)])
def test_passes_that_one_loop_leaves_to_another_one_are_moved(after: dict[int, int], is_moved: bool) -> None:
    """A single tile, and single keys for all others, may avoid a mistake in the tiles."""
    changes = changes_of_counts(Counter({1: 3, 5: 5}), Counter(after))
    assert are_passes_moved(changes) == is_moved


SQUARE = Domain(square=True)
#: A causal loop over tiles of keys, without the tile on the diagonal from the second one on.
SKIPPED = """
def attention(q, k, v):
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for i in range(-(-len(q) // 2)):
        rows = np.arange(2 * i, min(2 * i + 2, len(q)))
        top, total = np.full(len(rows), np.finfo(q.dtype).min), np.zeros(len(rows), q.dtype)
        acc = np.zeros((len(rows), v.shape[1]), q.dtype)
        for j in range(max(i, 1)):
            columns = np.arange(2 * j, min(2 * j + 2, len(k)))
            s = q[rows] @ k[columns].T / np.sqrt(q.shape[1], dtype=q.dtype)
            s = np.where(columns <= rows[:, None], s, -np.inf)
            new = np.maximum(top, s.max(1))
            a, p = np.exp(top - new), np.exp(s - new[:, None])
            total, acc, top = total * a + p.sum(1), acc * a[:, None] + p @ v[columns], new
        out[rows] = acc / total[:, None]
    return out
"""
#: The sum of a block of keys is not rescaled, and a block of one half more is empty if the half is the whole.
HALVES = """
def attention(q, k, v):
    half = max(len(k) // 2, 1)
    tops, totals, sums = [], [], []
    for begin, end in ((0, half), (half, len(k))):
        s = q @ k[begin:end].T / np.sqrt(q.shape[1], dtype=q.dtype)
        top = np.max(s, axis=1, keepdims=True, initial=np.finfo(q.dtype).min / 2)
        p = np.exp(s - top)
        tops.append(top)
        totals.append(p.sum(1, keepdims=True))
        sums.append(p @ v[begin:end])
    top = np.maximum(*tops)
    a, b = np.exp(tops[0] - top), np.exp(tops[1] - top)
    return (a * sums[0] + b * sums[1]) / (a * totals[0] + totals[1])
"""


@pytest.mark.deep
def test_a_bound_that_is_the_mistake_keeps_the_path(tmp_path: Path) -> None:
    function = loaded(tmp_path, SKIPPED)
    first = verified(function, Attention(causal=True), Options(repair=True, domain=SQUARE)).repairs[0]
    assert (first.line, first.path) == (10, "same")


@pytest.mark.deep
def test_an_edit_that_leaves_a_part_without_entries_comes_last(tmp_path: Path) -> None:
    report = verified(loaded(tmp_path, HALVES), Attention(), Options(repair=True))
    assert (report.repairs[0].path, report.repairs[0].line) == ("same", 16)
    assert {r.path for r in report.repairs if r.line == 5} <= {"other"}


#: Keys are not normalised, as queries are.
HELPER = """
def norm(x):
    root = np.sqrt((x * x).mean(-1, keepdims=True))
    return x / root


def attention(q, k, v):
    q = norm(q)
    s = q @ k.T / np.sqrt(q.shape[1], dtype=q.dtype)
    s = np.exp(s - s.max(1, keepdims=True))
    return s / s.sum(1, keepdims=True) @ v
"""


@pytest.mark.deep
def test_a_line_that_calls_a_helper_once_more_keeps_the_path(tmp_path: Path) -> None:
    report = verified(loaded(tmp_path, HELPER), Attention(qk_norm="rms"), Options(repair=True))
    first = report.repairs[0]
    assert (first.path, first.rule, first.new) == ("same", "line of its twin", "k = norm(k)")


#: Each query leaves out the key at its own position; the last query leaves the loop by no jump once it does not.
STOPPED = """
def attention(q, k, v):
    past = len(k) - len(q)
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for i in range(len(q)):
        s = k @ q[i] / np.sqrt(q.shape[1], dtype=q.dtype)
        e = np.exp(s - s[: i + past + 1].max())
        total = q.dtype.type(0)
        for j in range(len(k)):
            if j + 1 > i + past:
                break
            total, out[i] = total + e[j], out[i] + e[j] * v[j]
        out[i] = out[i] / total
    return out
"""


@pytest.mark.deep
def test_a_loop_that_leaves_later_keeps_the_path(tmp_path: Path) -> None:
    options = Options(repair=True, domain=Domain(max_tokens=40, max_width=8))
    first = verified(loaded(tmp_path, STOPPED), Attention(causal=True), options).repairs[0]
    assert (first.line, first.path) == (12, "same")


def test_passes_that_one_loop_leaves_to_another_one_are_moved_beside_jumps() -> None:
    text = "while x:\n    if x > n:\n        break\n    x = f(x)\nfor i in y: g(i)"
    jumps = lines_of_jumps(ast.parse(text).body[:1])  # type: ignore[arg-type]
    later, moved = {3: -1, 4: 4}, {3: 1, 4: -4, 5: 4}
    apart = [{n: c for n, c in changes.items() if n not in jumps} for changes in (later, moved)]
    assert [are_passes_moved(changes) for changes in apart] == [False, True]
