"""A model to ask: what a function of yours makes, a checkpoint in a folder, or weights at random of a configuration."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from symattn.document.errors import CannotRun, InputError
from symattn.models.comparing import checkpoints, models
from symattn.models.configurations.configuration import Configuration
from symattn.programs.loading import load, one_line

#: Neither a folder nor a configuration says what computes attention or experts: names of kernels would be fetched.
_USUAL = {"attn_implementation": None, "experts_implementation": None}
_PASSED_OVER = ("model_type", "auto_map", "dtype", "quantization_config", "transformers_weights")


def opened(source: str, random: bool = False, changed: Mapping[str, Any] | None = None, seed: int = 0) -> Any:
    """The model that ``source`` names.

    source   ``file.py:function`` or ``package.module:function`` that makes a model; a folder with config.json and
             weights in safetensors; or, with ``random``, config.json or its folder
    changed  with ``random``: fields of the configuration that are others, such as ``num_hidden_layers``

    No weights are unpickled, nothing is fetched, and no code of a checkpoint is run. Raises ``InputError`` for what
    cannot be read, for fields that the configuration does not have, for a checkpoint that lacks weights, and before a
    model is made that is too large; ``CannotRun`` where the function raises.
    """
    path = Path(source)
    if not path.exists() and ":" not in source:  # before libraries are imported, which takes seconds
        raise InputError(
            f"{source}: there is no such folder or file; give a folder with config.json, config.json with --random, or"
            " file.py:function"
        )
    if not (path.is_dir() or path.suffix == ".json"):
        if random or changed:
            raise InputError(f"{source} makes its model itself; hint: config.json or its folder for random weights")
        return _made(source)
    models.libraries()
    if random:
        return _at_random(path, dict(changed or {}), seed)
    if changed:
        raise InputError("fields are changed for weights at random alone; hint: --random, in Python random=True")
    return _checkpoint(path)


def fields(words: Sequence[str]) -> dict[str, Any]:
    """``hidden_size=64`` as a field and its value, which is read as JSON where it is some. Raises ``InputError``."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip().isidentifier():
            raise InputError(f"{word[:60]!r} sets no field; hint: NAME=VALUE, such as hidden_size=64")
        try:
            found[name.strip()] = json.loads(value)
        except ValueError:
            found[name.strip()] = value
    return found


def _made(target: str) -> Any:
    function = load(target).function
    models.libraries()
    try:
        return function()
    except Exception as error:
        raise CannotRun(f"{target} raises {one_line(error)}") from error


def _checkpoint(path: Path) -> Any:
    """The class that its configuration names, with its weights."""
    checkpoints.weights(path)
    read = checkpoints.read(path)
    if named := next((n for n in ("quantization_config", "transformers_weights") if read.data.get(n)), None):
        raise InputError(f"{path}: {named} is not read; hint: plain weights in safetensors, or --random")
    config = _config(path, read, ("model_type", "auto_map"))
    told = {"config": config, "local_files_only": True, "use_safetensors": True, "trust_remote_code": False}
    told |= {"dtype": "auto", "output_loading_info": True, **_USUAL}
    model, info = _read(path, lambda: _auto(config).from_pretrained(path, **told))
    checkpoints.complete(path, info)
    return model


def _at_random(path: Path, changed: dict[str, Any], seed: int) -> Any:
    import torch

    config = _config(path, checkpoints.read(path, changed), _PASSED_OVER)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return _read(path, lambda: _auto(config).from_config(config, **_USUAL).eval())


def _config(path: Path, read: Configuration, without: Sequence[str]) -> Any:
    """The configuration as transformers has it, of a model that is not too large."""
    from transformers import AutoConfig

    _logs_nothing()
    given = {name: x for name, x in read.data.items() if name not in without}
    config = _read(path, lambda: AutoConfig.for_model(read.model_type, **given))
    _read(path, lambda: checkpoints.sized(path, lambda: _auto(config).from_config(copy.deepcopy(config), **_USUAL)))
    return config


def _auto(config: Any) -> Any:
    """The class of transformers that makes a model to generate with."""
    import transformers

    if not config.is_encoder_decoder:
        return transformers.AutoModelForCausalLM
    hears = hasattr(config, "num_mel_bins")
    return transformers.AutoModelForSpeechSeq2Seq if hears else transformers.AutoModelForSeq2SeqLM


def _read(path: Path, reading: Any) -> Any:
    """Return the result of ``reading``. Raises ``InputError`` with what transformers says."""
    try:
        return reading()
    except InputError:
        raise
    except Exception as error:  # of every kind, for files that nobody vouches for
        reason = " ".join(f"{type(error).__name__}: {error}".split())  # the field, then what is wrong with it
        raise InputError(f"{path} cannot be loaded by transformers: {reason[:240]}") from error


def _logs_nothing() -> None:
    """Progress bars and advice of transformers are no part of an answer."""
    from transformers import utils

    logging: Any = utils.logging
    logging.disable_progress_bar()
    logging.set_verbosity_error()
