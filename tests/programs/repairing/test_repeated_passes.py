"""An edit after which each pass of a loop does the same may only avoid the mistake."""

import ast
from pathlib import Path

import pytest

from symattn import Attention
from symattn.programs.repairing.repeated_passes import count_repeated_loops
from symattn.programs.verifying import Options, verified
from tests.programs.repairing.programs import loaded

#: Parts are merged by their maxima alone; the weights need their sums as well.
MERGED = """
def partial(q, k, v):
    s = q @ k.T
    m = s.max(axis=1)
    p = np.exp(s - m[:, None])
    total = p.sum(axis=1)
    return p @ v / total[:, None], m


def attention(q, k, v):
    q = q * q.dtype.type(q.shape[1] ** -0.5)
    parts = []
    for a in range(0, len(k), 4):
        parts.append(partial(q, k[a : a + 4], v[a : a + 4]))
    outs = np.stack([o for o, _ in parts])
    lses = np.stack([lse for _, lse in parts])
    w = np.exp(lses - lses.max(axis=0))
    w = w / w.sum(axis=0)
    return (w[..., None] * outs).sum(axis=0)
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for a in x: s += k[a]", 0),
        ("for a in x: s += k", 1),
        ("for _ in x: s += k", 0),
        ("for i, row in enumerate(x): s += row", 0),
        ("for a in x:\n    for b in y: s += k[a]", 1),
        ("[k for a in x]", 1),
        ("{a: k for a in x}", 0),
        ("[k for a in x if a]", 0),
        ("[b for a in x for b in a]", 0),
        ("while n: n -= 1", 0),
    ],
)
def test_loops_that_read_no_name_of_their_own_repeat_themselves(text: str, expected: int) -> None:
    assert count_repeated_loops(ast.parse(text)) == expected


@pytest.mark.deep
def test_the_whole_in_place_of_each_part_is_said_to_avoid_the_mistake(tmp_path: Path) -> None:
    function = loaded(tmp_path, MERGED, function="attention")
    report = verified(function, Attention(), Options(repair=True))
    assert {r.path for r in report.repairs if "k; v" in r.new} <= {"other"}
    assert report.repairs
