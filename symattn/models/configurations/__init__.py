"""Attention as the configuration of a model promises it: ``config.json``, an object of Transformers, or a module.

``attention`` returns the specification of one layer. What the configuration leaves open, the row of its family says
(``model_families.py``); if neither does, ``CannotTell`` is raised with the reason. ``block`` returns a whole layer, and
``parameters`` its weights.
"""

from __future__ import annotations

from symattn.models.configurations.configuration import CannotTell, Configuration, configuration
from symattn.models.configurations.model_families import FAMILIES
from symattn.models.configurations.promised_layers import (
    KINDS,
    attention,
    block,
    layers,
    parameters,
)

__all__ = [
    "FAMILIES", "KINDS", "CannotTell", "Configuration", "attention", "block", "configuration", "layers", "parameters",
]  # fmt: skip
