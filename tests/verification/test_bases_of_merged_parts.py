"""Parts that are merged by powers of another base than that of their log-sums."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Verdict, verify

BASES = {"e": np.e, "2": 2.0, "10": 10.0}
TILE = 4
PAIRS = sorted(product(BASES, BASES))


def merged_in_bases(of_sums: float, of_powers: float) -> Callable[..., np.ndarray]:
    """Return attention whose parts are weighted by b^L, where L are logarithms of base a."""

    def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        outputs, log_sums = [], []
        for start in range(0, len(k), TILE):
            keys, values = k[start : start + TILE], v[start : start + TILE]
            scores = q @ keys.T / np.sqrt(q.shape[-1])
            top = scores.max(axis=-1, keepdims=True)
            e = np.exp(scores - top)
            total = e.sum(axis=-1, keepdims=True)
            outputs.append(e / total @ values)
            log_sums.append((top + np.log(total)) / np.log(of_sums))
        joined = np.concatenate(log_sums, axis=-1)
        shares = np.power(of_powers, joined - joined.max(axis=-1, keepdims=True))
        shares = shares / shares.sum(axis=-1, keepdims=True)
        weighted: Any = sum(shares[:, [i]] * o for i, o in enumerate(outputs))
        return weighted

    return attention


def sentence(of_sums: str, of_powers: str) -> str:
    sums = "natural logarithms of sums" if of_sums == "e" else f"logarithms of sums in base {of_sums}"
    return f"{sums} are merged as " + ("natural ones" if of_powers == "e" else f"if in base {of_powers}")


@pytest.mark.deep
@pytest.mark.parametrize(("of_sums", "of_powers"), [(a, b) for a, b in PAIRS if a != b])
def test_the_bases_of_merged_parts_are_named(of_sums: str, of_powers: str) -> None:
    report = verify(merged_in_bases(BASES[of_sums], BASES[of_powers]), Attention(), examples=0)
    (fault,) = report.faults
    assert fault.code == "merge-base"
    assert fault.cause is not None
    assert fault.cause.startswith(sentence(of_sums, of_powers))


@pytest.mark.deep
@pytest.mark.parametrize("base", BASES.values())
def test_any_base_is_right_for_both(base: float) -> None:
    assert verify(merged_in_bases(base, base), Attention(), examples=0).verdict is Verdict.NO_FAULT
