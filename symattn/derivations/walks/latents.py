"""Latent attention both ways: with keys and values made of the latent, and with their matrices absorbed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from symattn.attention.spec import Attention
from symattn.derivations.enclosed import Enclosed
from symattn.derivations.walks import run
from symattn.derivations.walks.tokens import same


def other_way(spec: Attention, inputs: Mapping[str, Any], output: Any) -> tuple[Attention, bool, bool]:
    """The specification the other way, whether it gives the same output, and whether that is known exactly."""
    assert spec.latent is not None
    other = replace(spec, latent=replace(spec.latent, absorbed=not spec.latent.absorbed))
    found = run.exact(other, inputs)["output"]
    exact = not any(isinstance(x, Enclosed) for x in (*found.flat, *output.flat))
    return other, found.shape == output.shape and all(map(same, found.flat, output.flat)), exact
