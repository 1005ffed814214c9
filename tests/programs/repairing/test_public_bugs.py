"""Bugs from public reports: which are repaired, and that what is accepted computes what the project's fix does."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention, Gradient, LinearAttention, Rotary, reports, verify
from tests.programs.repairing import bugs_of_kernels, public_bugs
from tests.programs.repairing.programs import HEAD, loaded
from tests.programs.repairing.public_bugs import PublicBug

# the last one with several tiles of queries: some bugs show there alone
_SIZES = [(1, 1), (1, 9), (3, 4), (6, 6), (5, 7), (16, 33), (2, 70), (40, 45)]
_NAMES = {"Attention": Attention, "Alibi": Alibi, "Gradient": Gradient, "LinearAttention": LinearAttention,
          "Rotary": Rotary}  # fmt: skip
DOCS = Path(__file__).parents[3] / "docs" / "fix.md"
BUGS = (*public_bugs.BUGS, *bugs_of_kernels.BUGS)
#: Those that take a second or two; all are tried in deep runs.
QUICK = ("iree-org/iree-turbine#480", "tenstorrent/tt-metal#42891", "facebookresearch/xformers#103")


def _inputs(spec: Any, function: Callable[..., Any], n_q: int, n_k: int) -> list[Any]:
    random = np.random.default_rng(n_q * 100 + n_k)
    heads = getattr(spec, "heads", 1)
    of_q, of_k = ((heads,), (spec.kv_heads or heads,)) if heads > 1 else ((), ())
    if isinstance(spec, LinearAttention):
        of_q, of_k, n_q = (1, 2), (1, 2), n_k
    seen = random.random((n_q, n_k)) < 0.6
    seen[:, 0] = True
    shapes = {"q": (*of_q, n_q, 6), "k": (*of_k, n_k, 6), "v": (*of_k, n_k, 3), "do": (n_q, 3), "bias": (n_q, n_k)}
    arrays: dict[str, Any] = {name: random.normal(size=shape).astype("f") for name, shape in shapes.items()}
    if getattr(spec, "mask", None) is not None:
        arrays["mask"] = seen if spec.mask == "boolean" else np.where(seen, 0, -np.inf).astype("f")
    return [arrays[name] for name in inspect.signature(function).parameters if name in arrays]


def _outputs(bug: PublicBug, function: Callable[..., Any], arrays: list[Any]) -> list[np.ndarray]:
    if bug.framework == "torch":
        import torch

        arrays = [torch.from_numpy(a) for a in arrays]
    result = function(*arrays)
    return [np.asarray(a) for a in (result if isinstance(result, tuple) else (result,))]


def _agree(bug: PublicBug, one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    spec = eval(bug.definition, _NAMES)
    with np.errstate(all="ignore"):
        for sizes in _SIZES:
            arrays = _inputs(spec, other, *sizes)
            pairs = zip(_outputs(bug, one, arrays), _outputs(bug, other, arrays), strict=True)
            if not all(np.abs(a - b).max() < 1e-4 for a, b in pairs):
                return False
    return True


def _edited(folder: Path, bug: PublicBug, repair: reports.Repair) -> Callable[..., Any]:
    lines = reports.replaced((HEAD + bug.text.lstrip("\n")).split("\n"), repair.replacements)
    return loaded(folder, "\n".join(lines)[len(HEAD) :], "edited", bug.name)


def _marked(bug: PublicBug) -> Any:
    slow = () if bug.report in QUICK else (pytest.mark.deep, pytest.mark.long)
    needs = (getattr(pytest.mark, bug.framework),) if bug.framework else ()
    return pytest.param(bug, marks=(*slow, *needs), id=bug.report)


@pytest.mark.deep
@pytest.mark.parametrize("bug", [_marked(bug) for bug in BUGS])
def test_a_public_bug_is_repaired_as_the_project_did(tmp_path: Path, bug: PublicBug) -> None:
    right = loaded(tmp_path, bug.right, "right", bug.name)
    told = {"layout": bug.layout} if bug.layout else {}
    wrong = loaded(tmp_path, bug.text, "attn", bug.name)
    # Otherwise any edit would pass.
    assert not (bug.repaired and _agree(bug, wrong, right))
    report = verify(
        wrong, eval(bug.definition, _NAMES), examples=8, repair=True, framework=bug.framework or None, **told
    )
    assert report.faults
    whole = [r for r in report.repairs if r.is_whole]
    for repair in whole:
        assert _agree(bug, _edited(tmp_path, bug, repair), right), repair.change
    assert bool(whole) == bug.repaired, [r.words for r in report.repairs]


def test_the_reports_are_listed_in_the_docs_as_they_are_repaired() -> None:
    assert len({b.report for b in BUGS}) == 22
    rows = dict(re.findall(r"^\| \[(\S+)\]\(.*\| (.+) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE))
    for bug in BUGS:
        assert rows[bug.report].startswith("none") == (not bug.repaired), bug.report
