"""What ``derive attention`` is asked for a variant, and whether a walk is what its formulas give."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from symattn import Attention
from symattn.attention.codec.field_values import written
from symattn.attention.variants import VARIANTS
from symattn.derivations.walks.walk_data import Walk
from symattn.proof.relations.comparing import FalseStep


def asked(name: str) -> dict[str, Any]:
    """What ``derive attention`` is asked for a variant, at small sizes."""
    variant = VARIANTS[name]
    found: dict[str, Any] = written(variant.spec, changed=True)
    position = found.get("position", {}).get("rotary", {})
    found["dk"] = 2 * len(position.get("triples", [()])) + bool(variant.spec.latent)
    found["tokens"] = 2
    if "y" in variant.names or (variant.spec.heads == 1 and "x" not in variant.names):
        found["keys"] = 3
    if "x" in variant.names or variant.spec.heads > 1:
        found |= {"cross": "y" in variant.names, "biases": "b_q" in variant.names, "dmodel": 3}
    return found


def agrees(walk: Walk, spec: Attention | None = None, steps: Iterable[str] = (), **arrays: Any) -> bool:
    """Whether the arrays of a walk, or others, are those of its specification, or of another, at all steps or some."""
    other = walk
    if spec or arrays:
        other = Walk(replace(walk.sheet, attention=spec or walk.sheet.attention), walk.dtype)
        other.__dict__["arrays"] = {**walk.arrays, **arrays}
    try:
        for step in steps or (*other.pipeline, "weighted"):
            other.evidence(step)
    except FalseStep:
        return False
    return True
