"""The steps of attention in order: scores, scale, cap, bias, masks, weights, output.

A variant adds its function in a file of its own, a field to ``Attention``, and a line in its stage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from symattn.attention.flow import Flow, Stage, Step
from symattn.attention.stages.closing import closing
from symattn.attention.stages.latent import joining, latents
from symattn.attention.stages.masking import masking
from symattn.attention.stages.positions import placing, relating, rotating
from symattn.attention.stages.roles import roles, sharing
from symattn.attention.stages.scoring import biasing, capping, normed, scaling, scoring, truncating
from symattn.attention.stages.weighing import dropping, summing, weighing

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

STAGES: tuple[Stage, ...] = (
    *(roles, latents, normed, rotating, joining, sharing),
    *(truncating, scoring, relating, scaling, capping, placing, biasing, masking),
    *(weighing, summing, dropping, closing),
)


def pipeline(spec: Attention, given: frozenset[str]) -> tuple[Step, ...]:
    """The steps of ``spec`` from the inputs named in ``given`` to ``output``."""
    flow = Flow(spec, given)
    for stage in STAGES:
        stage(flow)
    return tuple(flow.steps)
