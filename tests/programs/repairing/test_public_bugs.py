"""Bugs from public reports: which are repaired, and that what is accepted computes what the project's fix does."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention, Rotary, verify
from symattn.verification.repair import Repair, replaced
from tests.programs.repairing.programs import HEAD, loaded
from tests.programs.repairing.public_bugs import BUGS, PublicBug

_SIZES = [(1, 1), (1, 9), (3, 4), (6, 6), (5, 7), (16, 33), (2, 70)]
DOCS = Path(__file__).parents[3] / "docs" / "fix.md"


def _spec(bug: PublicBug) -> Attention:
    spec: Attention = eval(f"Attention({bug.fields})", {"Attention": Attention, "Alibi": Alibi, "Rotary": Rotary})
    return spec


def _inputs(spec: Attention, n_q: int, n_k: int) -> list[np.ndarray]:
    random = np.random.default_rng(n_q * 100 + n_k)
    several = spec.heads > 1
    of_q, of_k = ((spec.heads,), (spec.kv_heads or spec.heads,)) if several else ((), ())
    shapes = (*of_q, n_q, 6), (*of_k, n_k, 6), (*of_k, n_k, 3)
    arrays = [random.normal(size=shape).astype("f") for shape in shapes]
    if spec.mask is not None:
        seen = random.random((n_q, n_k)) < 0.6
        seen[:, 0] = True
        arrays.append(seen if spec.mask == "boolean" else np.where(seen, 0, -np.inf).astype("f"))
    return arrays


def _agree(spec: Attention, one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    with np.errstate(all="ignore"):
        pairs = [(one(*_inputs(spec, *n)), other(*_inputs(spec, *n))) for n in _SIZES]
    return all(np.abs(a - b).max() < 1e-4 for a, b in pairs)


def _edited(folder: Path, text: str, repair: Repair) -> Callable[..., Any]:
    lines = replaced((HEAD + text.lstrip("\n")).split("\n"), repair.replacements)
    return loaded(folder, "\n".join(lines)[len(HEAD) :], "edited")


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.report)
def test_a_public_bug_is_repaired_as_the_project_did(tmp_path: Path, bug: PublicBug) -> None:
    spec, right = _spec(bug), loaded(tmp_path, bug.right, "right")
    report = verify(loaded(tmp_path, bug.text), spec, examples=8, repair=True)
    assert report.faults
    whole = [r for r in report.repairs if r.is_whole]
    for repair in whole:
        assert _agree(spec, _edited(tmp_path, bug.text, repair), right), repair.change
    assert bool(whole) == bug.repaired, [r.words for r in report.repairs]


def test_ten_reports_are_listed_in_the_docs_as_they_are_repaired() -> None:
    assert len({b.report for b in BUGS}) == 10
    rows = dict(re.findall(r"^\| \[(\S+)\]\(.*\| (.+) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE))
    for bug in BUGS:
        assert rows[bug.report].startswith("none") == (not bug.repaired), bug.report
