"""Paths of functions that raise: calls that return are compared, since every repair lets the others go on."""

from pathlib import Path
from typing import Any

import pytest

from symattn import Attention
from symattn.programs.calls import Target
from symattn.programs.repairing.trials import Trials
from symattn.programs.verifying import Options, verified
from tests.programs.repairing.programs import loaded

#: A window that begins before the first key is empty, and raises: in all wrong calls, and in no call of one key.
WINDOW = """
def attention(q, k, v):
    past = len(k) - len(q)
    out = np.zeros((len(q), v.shape[1]), q.dtype)
    for i in range(len(q)):
        start = max(i + past - 3, -1)
        s = k[start : i + past + 1] @ q[i] / np.sqrt(q.shape[1], dtype=q.dtype)
        e = np.exp(s - s.max())
        out[i] = e @ v[start : i + past + 1] / e.sum()
    return out
"""
#: The last key is left out, so that a last block of one key is empty, and raises.
BLOCKS = """
def attention(q, k, v):
    size = 3
    top = np.full((len(q), 1), np.finfo(q.dtype).min, q.dtype)
    total, out = np.zeros_like(top), np.zeros((len(q), v.shape[1]), q.dtype)
    for block in range(-(-len(k) // size)):
        stop = (block + 1) * size if (block + 1) * size < len(k) else -1
        s = q @ k[block * size : stop].T / np.sqrt(q.shape[1], dtype=q.dtype)
        new = np.maximum(top, s.max(1, keepdims=True))
        a, p = np.exp(top - new), np.exp(s - new)
        total, out, top = total * a + p.sum(1, keepdims=True), out * a + p @ v[block * size : stop], new
    return out / total
"""


@pytest.mark.deep
def test_an_edit_after_which_no_call_raises_keeps_the_path(tmp_path: Path) -> None:
    spec = Attention(causal=True, window=4)
    first = verified(loaded(tmp_path, WINDOW), spec, Options(repair=True)).repairs[0]
    assert (first.line, first.old, first.new, first.path) == (8, "1", "0", "same")


@pytest.mark.deep
def test_other_blocks_are_another_path_of_a_function_that_raises(tmp_path: Path) -> None:
    repairs = verified(loaded(tmp_path, BLOCKS), Attention(), Options(repair=True)).repairs
    assert (repairs[0].line, repairs[0].path) == (9, "same")
    assert {r.path for r in repairs if r.line == 5} <= {"other"}


#: A mistake in code without a loop.
WHOLE = """
def attention(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[1], dtype=q.dtype)
    e = np.exp(s - s.max(1, keepdims=True))
    return e @ v / e.sum(0).max()
"""


@pytest.mark.deep
@pytest.mark.parametrize(("text", "has_loops"), [(WHOLE, False), (BLOCKS, True)])
def test_passes_are_counted_in_code_with_loops_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, has_loops: bool
) -> None:
    calls: list[bool] = []
    run, count = Target.run, Trials._count_passes

    def counted(self: Any, original: Any, samples: Any) -> Any:
        with monkeypatch.context() as of_count:
            of_count.setattr(Target, "run", lambda *args: (calls.append(True), run(*args))[1])
            result = count(self, original, samples)
        assert len(result) == (len(samples) if has_loops else 0)
        return result

    monkeypatch.setattr(Trials, "_count_passes", counted)
    verified(loaded(tmp_path, text), Attention(), Options(repair=True))
    assert bool(calls) == has_loops
