"""Open a model: from a user's function, from a checkpoint in a folder, or with random weights.

The configuration and the names of weights of untrusted files are checked before transformers reads them.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from symattn.document.errors import CannotRun, InputError
from symattn.models.auditing.setting import Module
from symattn.models.comparing.generation_ways import MOST, libraries
from symattn.models.configurations import configuration
from symattn.models.configurations.configuration import Configuration, decoded
from symattn.programs.loading import load
from symattn.programs.refusing import one_line

#: No configuration may choose the implementation of attention or experts, since kernels would be fetched by name.
_USUAL = {"attn_implementation": None, "experts_implementation": None}
_PASSED_OVER = ("model_type", "auto_map", "dtype", "quantization_config", "transformers_weights")
_DEEPEST = 1000  # most layers and experts of a model whose parameters are counted
_COUNT = re.compile(r"(^|_)(layers?|experts|depth|blocks)$")
_WEIGHTS, _INDEX, _ADAPTER = (
    "model.safetensors",
    "model.safetensors.index.json",
    "adapter_config.json",
)
_ELSEWHERE = {
    "model_type": "another family is another configuration",
    "auto_map": "no code of a checkpoint is run",
    "dtype": "--dtype, in Python model.to(dtype)",
    "torch_dtype": "--dtype, in Python model.to(dtype)",
    "quantization_config": "weights at random are not quantised",
}


def opened(
    source: str, random: bool = False, changed: Mapping[str, object] | None = None, seed: int = 0
) -> Module:
    """Return the model that ``source`` names.

    source   ``file.py:function`` or ``package.module:function`` that makes a model; a folder with config.json and
             weights in safetensors; or, with ``random``, config.json or its folder
    changed  with ``random``: changed fields of the configuration, such as ``num_hidden_layers``

    No weights are unpickled, nothing is fetched, and no code of a checkpoint is run. Raises ``InputError`` for files
    that cannot be read, for fields that the configuration does not have, for a checkpoint that lacks weights, and for a
    model that is too large, before it is made; ``CannotRun`` if the function raises.
    """
    path = Path(source)
    if (
        not path.exists() and ":" not in source
    ):  # before libraries are imported, which takes seconds
        raise InputError(
            f"{source}: there is no such folder or file; give a folder with config.json, config.json with --random, or"
            " file.py:function"
        )
    if not (path.is_dir() or path.suffix == ".json"):
        if random or changed:
            raise InputError(
                f"{source} creates its model itself; hint: config.json or its folder for random weights"
            )
        return _call_model_function(source)
    libraries()
    if random:
        import torch

        config = _make_transformers_config(
            path, read_configuration(path, dict(changed or {})), _PASSED_OVER
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return _convert_loading_errors(
                path, lambda: _select_auto_model_class(config).from_config(config, **_USUAL).eval()
            )
    if changed:
        raise InputError(
            "fields are changed for weights at random alone; hint: --random, in Python random=True"
        )
    return _load_checkpoint_model(path)


def fields(words: Sequence[str]) -> dict[str, object]:
    """Parse ``hidden_size=64`` into a field and its value, as JSON if possible. Raises ``InputError``."""
    values: dict[str, object] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip().isidentifier():
            raise InputError(
                f"{word[:60]!r} sets no field; hint: NAME=VALUE, such as hidden_size=64"
            )
        # Words that are no JSON are texts.
        try:
            values[name.strip()] = json.loads(value)
        except ValueError:
            values[name.strip()] = value
    return values


def _call_model_function(target: str) -> Module:
    function = load(target).function
    libraries()
    try:
        return function()
    except Exception as error:
        raise CannotRun(f"{target} raises {one_line(error)}") from error


def _load_checkpoint_model(path: Path) -> Module:
    """Return the model that the configuration names, with its weights."""
    check_weights(path)
    read = read_configuration(path)
    if named := next(
        (n for n in ("quantization_config", "transformers_weights") if read.data.get(n)), None
    ):
        raise InputError(
            f"{path}: {named} is not read; hint: plain weights in safetensors, or --random"
        )
    config = _make_transformers_config(path, read, ("model_type", "auto_map"))
    options = {
        "config": config,
        "local_files_only": True,
        "use_safetensors": True,
        "trust_remote_code": False,
    }
    options |= {"dtype": "auto", "output_loading_info": True, **_USUAL}
    model, info = _convert_loading_errors(
        path, lambda: _select_auto_model_class(config).from_pretrained(path, **options)
    )
    if missing := sorted(map(str, info["missing_keys"])):  # they would be drawn at random
        raise InputError(
            f"{path} lacks {len(missing)} arrays of its model, such as {missing[0][:80]}; hint: the weights of "
            "this config.json, or --random"
        )
    return model


def _make_transformers_config(path: Path, read: Configuration, without: Sequence[str]) -> Any:
    """Return the configuration of transformers, for a model that is not too large."""
    from transformers import AutoConfig, utils

    logging: Any = utils.logging
    logging.disable_progress_bar()  # progress bars and advice of transformers do not belong in the output
    logging.set_verbosity_error()
    inputs = {name: x for name, x in read.data.items() if name not in without}
    config = _convert_loading_errors(path, lambda: AutoConfig.for_model(read.model_type, **inputs))
    _convert_loading_errors(
        path,
        lambda: _check_size(
            path,
            lambda: _select_auto_model_class(config).from_config(copy.deepcopy(config), **_USUAL),
        ),
    )
    return config


def _select_auto_model_class(config: Any) -> Any:
    """Return the class of transformers that makes a generating model."""
    import transformers

    if not config.is_encoder_decoder:
        return transformers.AutoModelForCausalLM
    hears = hasattr(config, "num_mel_bins")
    return transformers.AutoModelForSpeechSeq2Seq if hears else transformers.AutoModelForSeq2SeqLM


def _convert_loading_errors(path: Path, reading: Callable[[], Any]) -> Any:
    """Return the result of ``reading``. Raises ``InputError`` with the message of transformers."""
    try:
        return reading()
    except InputError:
        raise
    except Exception as error:  # untrusted files may raise anything
        # the field, then what is wrong with it
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{path} cannot be loaded by transformers: {reason[:240]}") from error


def read_configuration(path: Path, changed: Mapping[str, object] | None = None) -> Configuration:
    """Return the configuration with changed fields. Raises ``InputError`` for a field that its family does not have,
    and for too many layers or experts."""
    config = configuration(str(path))
    for name in changed or {}:
        _check_configuration_field(name, config)
    data = {**config.data, **(changed or {})}
    # Every layer and expert is made, so that there may not be many.
    if deep := _find_excessive_layer_count(data):
        raise InputError(
            f"{path}: {deep[0]} is {deep[1]}; hint: --set {deep[0]}=2, at most {_DEEPEST}"
        )
    return Configuration(config.model_type, data, config.where)


def check_weights(path: Path) -> None:
    """Raise ``InputError`` unless all weights of a folder are in safetensors.

    The index of a checkpoint in parts may name any file, and one that does not end in .safetensors would be unpickled.
    """
    if (path / _ADAPTER).exists():
        raise InputError(
            f"{path} holds {_ADAPTER}; hint: name a folder in which the adapter is merged"
        )
    if (path / _WEIGHTS).is_file():
        return
    if not (path / _INDEX).is_file():
        raise InputError(
            f"{path} holds no weights in safetensors; hint: --random, or the folder of a checkpoint"
        )
    index = decoded(path / _INDEX)
    parts = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(parts, dict) or not parts:
        raise InputError(
            f"{path / _INDEX} has no weight_map, which says in which file each array is"
        )
    for name in parts.values():
        # A path could lead outside of the folder.
        if (
            not isinstance(name, str)
            or Path(name).name != name
            or not name.endswith(".safetensors")
        ):
            raise InputError(
                f"{path / _INDEX} names {str(name)[:60]!r}; hint: files .safetensors of the same folder"
            )


def _check_size(path: Path, make: Callable[[], Module]) -> None:
    """Make a model without numbers, and raise ``InputError`` if it is too large to be made with them."""
    import torch

    # On the device meta, arrays have shapes and no numbers.
    with torch.device("meta"):
        model = make()
    arrays = (*model.parameters(), *model.buffers())
    size = sum(a.numel() for a in arrays)
    if size > MOST:
        raise InputError(
            f"{path}: {size:,} parameters, and at most {MOST:,} are made; hint: --random --set "
            "num_hidden_layers=2, or narrower layers, which run the same code"
        )


def _check_configuration_field(name: str, actual: Configuration) -> None:
    from transformers import CONFIG_MAPPING

    if name in _ELSEWHERE or name.endswith("_implementation"):
        outcome = _ELSEWHERE.get(name, "the ways 'eager' and 'sdpa'")
        raise InputError(f"{name} is not set here; hint: {outcome}")
    if actual.model_type not in CONFIG_MAPPING:
        return  # which is refused when it is made
    result = CONFIG_MAPPING[actual.model_type]
    known = {*inspect.signature(result).parameters, *result.attribute_map, *actual.data}
    if name not in known:
        near = difflib.get_close_matches(name, sorted(known), n=1)
        meant = f"; hint: {near[0]}" if near else "; hint: a field of config.json"
        raise InputError(f"{actual.model_type} has no field {name}{meant}")


def _find_excessive_layer_count(data: Mapping[str, object]) -> tuple[str, int] | None:
    """Return the first count of layers or experts, at any depth, that exceeds the limit, or None."""
    for name, value in data.items():
        if isinstance(value, int) and value > _DEEPEST and _COUNT.search(name):
            return name, value
        if isinstance(value, Mapping) and (results := _find_excessive_layer_count(value)):
            return results
    return None
