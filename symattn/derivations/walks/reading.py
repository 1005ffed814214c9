"""The formulas that a walk prints, read and held against the steps of its attention at the walk's own sizes."""

from __future__ import annotations

from collections.abc import Mapping

from symattn.attention.flow import Step
from symattn.attention.variants import SIZES
from symattn.derivations.attention.inputs import Request
from symattn.derivations.attention.reading import Read, Run, run
from symattn.derivations.walks.model import Walk
from symattn.document.errors import SymattnError
from symattn.document.evidence import Evidence, Grade
from symattn.document.notation import Node

_SOME = Evidence(Grade.CHECKED, "numbers of the walk's sizes")


def held(walk: Walk, step: Step, formula: Node) -> Node | None:
    """The formula, if it is what the step computes; None if it cannot be read. Raises FalseStep if it is false."""
    read = Read(step, _runs(walk))
    if not read.runs or not read.reads(formula):
        return None
    read.check(formula, _SOME)
    return formula


def _runs(walk: Walk) -> tuple[Run, ...]:
    """The walk's attention on numbers as if at random; none where its inputs are of sizes that cannot be drawn."""
    if walk.runs is None:
        asked = Request(walk.sheet.attention, tuple(walk.sheet.inputs), _sizes(walk))
        try:
            walk.runs = tuple(run(asked, seed) for seed in (0, 1))
        except (SymattnError, KeyError):
            walk.runs = ()
    return walk.runs


def _sizes(walk: Walk) -> Mapping[str, int]:
    """Every letter of a size; those that the walk has none of are as in the list of variants."""
    known = dict(walk.sizes)
    n_q, n_k = walk.arrays["scores"].shape[-2:]
    wide = known.get("d_model", known["d_k"])
    same = {"d_model": wide, "d_y": wide, "d_out": wide, "d_s": known["d_k"], "d_w": known["d_k"]}
    return {**SIZES, **same, **known, "n_q": n_q, "n_k": n_k}
