"""Files that nobody vouches for, before transformers is handed them: a configuration, and the files of weights."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from symattn.document.errors import InputError
from symattn.models.comparing import models
from symattn.models.configurations import configuration
from symattn.models.configurations.configuration import Configuration
from symattn.models.configurations.loading import decoded

_DEEPEST = 1000  # layers and experts that are made to be counted
_COUNT = re.compile(r"(^|_)(layers?|experts|depth|blocks)$")
_WEIGHTS, _INDEX, _ADAPTER = "model.safetensors", "model.safetensors.index.json", "adapter_config.json"
_ELSEWHERE = {
    "model_type": "another family is another configuration",
    "auto_map": "no code of a checkpoint is run",
    "dtype": "--dtype, in Python model.to(dtype)",
    "torch_dtype": "--dtype, in Python model.to(dtype)",
    "quantization_config": "weights at random are not quantised",
}


def read(path: Path, changed: Mapping[str, Any] | None = None) -> Configuration:
    """The configuration, with other values of fields. Raises ``InputError`` for a field that its family does not have,
    and for more layers or experts than are made."""
    found = configuration(str(path))
    for name in changed or {}:
        _known(name, found)
    data = {**found.data, **(changed or {})}
    if deep := _deep(data):
        raise InputError(f"{path}: {deep[0]} is {deep[1]}; hint: --set {deep[0]}=2, at most {_DEEPEST}")
    return Configuration(found.model_type, data, found.where)


def weights(path: Path) -> None:
    """Return whether a folder's weights are in safetensors, and nowhere else. Raises ``InputError``.

    The index of a checkpoint in parts may name any file, and what does not end in .safetensors would be unpickled.
    """
    if (path / _ADAPTER).exists():
        raise InputError(f"{path} holds {_ADAPTER}; hint: name a folder in which the adapter is merged")
    if (path / _WEIGHTS).is_file():
        return
    if not (path / _INDEX).is_file():
        raise InputError(f"{path} holds no weights in safetensors; hint: --random, or the folder of a checkpoint")
    index = decoded(path / _INDEX)
    parts = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(parts, dict) or not parts:
        raise InputError(f"{path / _INDEX} has no weight_map, which says in which file each array is")
    for name in parts.values():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise InputError(f"{path / _INDEX} names {str(name)[:60]!r}; hint: files .safetensors of the same folder")


def complete(path: Path, told: Mapping[str, Any]) -> None:
    """Raise ``InputError`` where arrays of the model are not in the checkpoint: they would be drawn at random."""
    missing = sorted(map(str, told["missing_keys"]))
    if missing:
        raise InputError(
            f"{path} lacks {len(missing)} arrays of its model, such as {missing[0][:80]}; hint: the weights of "
            "this config.json, or --random"
        )


def sized(path: Path, make: Any) -> None:
    """Make a model without numbers, and raise ``InputError`` where it is too large to be made with them."""
    import torch

    with torch.device("meta"):
        model = make()
    size = sum(a.numel() for a in (*model.parameters(), *model.buffers()))
    if size > models.MOST:
        raise InputError(
            f"{path}: {size:,} parameters, and at most {models.MOST:,} are made; hint: --random --set "
            "num_hidden_layers=2, or narrower layers, which run the same code"
        )


def _known(name: str, found: Configuration) -> None:
    from transformers import CONFIG_MAPPING

    if name in _ELSEWHERE or name.endswith("_implementation"):
        told = _ELSEWHERE.get(name, "the ways 'eager' and 'sdpa'")
        raise InputError(f"{name} is not set here; hint: {told}")
    if found.model_type not in CONFIG_MAPPING:
        return  # which is refused when it is made
    made = CONFIG_MAPPING[found.model_type]
    known = {*inspect.signature(made).parameters, *made.attribute_map, *found.data}
    if name not in known:
        near = difflib.get_close_matches(name, sorted(known), n=1)
        meant = f"; hint: {near[0]}" if near else "; hint: a field of config.json"
        raise InputError(f"{found.model_type} has no field {name}{meant}")


def _deep(data: Any) -> tuple[str, int] | None:
    """The first count of layers or experts, at any depth, that is beyond the limit."""
    for name, value in data.items():
        if isinstance(value, int) and value > _DEEPEST and _COUNT.search(name):
            return name, value
        if isinstance(value, Mapping) and (found := _deep(value)):
            return found
    return None
