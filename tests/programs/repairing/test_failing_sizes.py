"""Code that raises for some sizes, written for others alone: the promise is named, and its mistakes are found there."""

from pathlib import Path

import numpy as np
import pytest

from symattn import Attention, Domain, Report, verify
from tests.programs.repairing.programs import loaded

#: Few and small inputs show all of it.
_SMALL = Domain(max_tokens=24, max_width=8)
_SQUARE = """\
import numpy as np

def attention(q, k, v):
    i = np.arange(len(q))[:, None]
    j = np.arange(len(q))[None, :]
    scores = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
    scores = np.where((j <= i) & (i - j <= 4), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
"""


def _faults(report: Report) -> dict[str, str]:
    return {fault.code or "": fault.message for fault in report.faults}


@pytest.mark.deep
def test_a_mistake_in_code_for_equal_lengths_is_named_and_mended(tmp_path: Path) -> None:
    spec = Attention(causal=True, window=4)
    report = verify(loaded(tmp_path, _SQUARE), spec, examples=4, domain=_SMALL, repair=True)
    faults = _faults(report)
    assert "--square promises that no such input occurs" in faults["call-fails"]
    assert faults["window-long"].endswith("on inputs with --square")
    repair = report.repairs[0]
    assert (repair.old, repair.new, repair.within) == ("i - j <= 4", "i - j < 4", "--square")
    assert "makes it equal to the definition with --square" in repair.words


@pytest.mark.deep
def test_right_code_for_equal_lengths_is_told_the_promise() -> None:
    module: dict[str, object] = {}
    exec(_SQUARE, module)
    report = verify(module["attention"], Attention(causal=True, window=5), examples=4, domain=_SMALL)
    assert "; --square promises that no such input occurs" in _faults(report)["call-fails"]


@pytest.mark.deep
def test_no_promise_is_named_if_sizes_do_not_decide() -> None:
    def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        if q.flat[0] < v.flat[0]:
            v = v[:, [v.shape[1]]]  # an index beyond the width
        scores = q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v

    messages = " ".join(fault.message for fault in verify(attention, examples=4, domain=_SMALL).faults)
    assert "gives no array" in messages
    assert "promise" not in messages
