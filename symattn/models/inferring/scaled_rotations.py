"""Rotations with scaled frequencies: the rates of a run, compared with those that the configuration's fields give."""

from __future__ import annotations

from typing import Any

import numpy as np

from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary import inverse_frequencies
from symattn.document.errors import SymattnError
from symattn.models.configurations.configuration import configuration
from symattn.models.configurations.field_rules import LayerPlace
from symattn.models.configurations.position_rules import rope_of
from symattn.models.inferring import column_sources, inferred_call, tiny_models


def settle_scaled_rotation(facts: inferred_call.CallFacts, config: Any, layer: int) -> None:
    """Give a call's facts the base and the scaling of its rotation if the fields of its layer give the rates it has.

    A factor of cosines and sines, which a run shows in queries and keys, is then one of the rotation, not of scores.
    Rates that are powers of the base, though the fields give others, are a form without a field.
    """
    turn = facts.rotation
    if turn is None:
        return
    promised = _read_rotation(config, layer)
    if promised is None or promised.scaling is None:
        return
    like = np.zeros(0)
    rates = promised.scaling.frequencies(
        inverse_frequencies(turn.width, promised.base, like), promised.base, tiny_models.TOKENS
    )
    # Rates must agree, each of them.
    agrees = rates.shape == turn.rates.shape and bool(
        np.abs(rates - turn.rates).max() <= column_sources.EQUAL
    )
    # Unscaled rotations have a base by themselves; those of another base have fields of their own.
    if facts.base is not None:
        is_same_base = (
            abs(facts.base - float(promised.base)) <= inferred_call.CLOSE_BASE * facts.base
        )
        facts.missing += [inferred_call.UNSCALED_RATES] * (is_same_base and not agrees)
    if facts.base is not None or not agrees:
        return
    facts.base, facts.scaling = float(promised.base), promised.scaling
    magnitude: Any = promised.scaling.magnitude(like)
    # The factor enters the score twice, by queries and by keys.
    facts.scale /= float(magnitude) ** 2
    facts.missing.remove(inferred_call.UNKNOWN_RATES)


def _read_rotation(config: Any, layer: int) -> Rotary | None:
    """Return the rotation that the fields of a layer promise; None if they cannot be read."""
    try:
        return rope_of(LayerPlace(configuration(config), layer)).position("half")
    except SymattnError:
        return None
