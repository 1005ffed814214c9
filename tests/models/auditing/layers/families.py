"""Tiny models whose layers are audited: random weights, norms and biases that are none of the usual ones."""

import re
from typing import Any

from tests.models.auditing import families

FAMILIES = {**families.FAMILIES, **families.LAYERED}


def made(name: str, dtype: Any, implementation: str = "eager", scale: float = 1.0, **fields: Any) -> Any:
    """A model of the family in which every parameter counts: gains around 1, biases, embeddings of the size ``scale``.

    Frequencies of rotations stay in float32, as they do where a model is loaded.
    """
    import torch

    torch.manual_seed(0)
    model = families.built(name, **fields)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "embed" in path or ".wte" in path or ".wpe" in path:
                parameter.copy_(torch.randn_like(parameter) * scale)
            elif parameter.ndim == 2:
                parameter.copy_(torch.randn_like(parameter) * (2.0 / parameter.shape[-1]) ** 0.5)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    model.set_attn_implementation(implementation)
    kept = {path: buffer.clone() for path, buffer in model.named_buffers() if "inv_freq" in path}
    model = model.eval().to(dtype)
    for path, buffer in kept.items():
        owner, _, last = path.rpartition(".")
        setattr(model.get_submodule(owner), last, buffer)
    return model


def path_of(model: Any, layer: int) -> str:
    """Where a decoder layer is."""
    found = (
        path for path, _ in model.named_modules() if re.fullmatch(rf"(.*\.)?(layers|layer|h|blocks)\.{layer}", path)
    )
    return next(found)
