"""What ``derive attention`` is asked for a variant."""

from __future__ import annotations

from typing import Any

from symattn.attention.codec.field_values import written
from symattn.attention.variants import VARIANTS


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
