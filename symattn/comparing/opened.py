"""A model to ask: what a function of yours makes, a checkpoint in a folder, or weights at random of a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from symattn.comparing import models
from symattn.errors import InputError
from symattn.sources.configurations import configuration
from symattn.sources.loading import CannotRun, load, one_line

_DEEPEST = 1000  # layers and experts that are made to be counted
_COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "num_local_experts", "num_experts", "n_routed_experts")


def opened(source: str, random: bool = False, changed: Mapping[str, Any] | None = None, seed: int = 0) -> Any:
    """The model that ``source`` names.

    source   ``file.py:function`` or ``package.module:function`` that makes a model; a folder with config.json and
             weights in safetensors; or, with ``random``, config.json or its folder
    changed  with ``random``: fields of the configuration that are others, such as ``num_hidden_layers``

    No weights are unpickled, nothing is fetched, and no code of a checkpoint is run. Raises ``InputError`` for what
    cannot be read, and before a model at random is made that is too large; ``CannotRun`` where the function raises.
    """
    models.libraries()
    path = Path(source)
    if not (path.is_dir() or path.suffix == ".json"):
        if random or changed:
            raise InputError(f"{source} makes its model itself; mend: config.json or its folder for random weights")
        return _made(source)
    if random:
        return _at_random(path, dict(changed or {}), seed)
    if changed:
        raise InputError("fields are changed for weights at random alone; mend: --random, in Python random=True")
    if not path.is_dir() or not list(path.glob("*.safetensors")):
        raise InputError(f"{source} holds no weights in safetensors; mend: --random, or the folder of a checkpoint")
    return _checkpoint(path)


def fields(words: Sequence[str]) -> dict[str, Any]:
    """``hidden_size=64`` as a field and its value, which is read as JSON where it is some. Raises ``InputError``."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip().isidentifier():
            raise InputError(f"{word[:60]!r} sets no field; mend: NAME=VALUE, such as hidden_size=64")
        try:
            found[name.strip()] = json.loads(value)
        except ValueError:
            found[name.strip()] = value
    return found


def _made(target: str) -> Any:
    function = load(target).function
    try:
        return function()
    except Exception as error:
        raise CannotRun(f"{target} raises {one_line(error)}") from error


def _checkpoint(path: Path) -> Any:
    """The class that its configuration names, with its weights."""
    from transformers import AutoConfig

    _logs_nothing()
    config = _read(path, lambda: AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False))
    told = {"local_files_only": True, "use_safetensors": True, "trust_remote_code": False, "dtype": "auto"}
    return _read(path, lambda: _auto(config).from_pretrained(path, **told))


def _at_random(path: Path, changed: dict[str, Any], seed: int) -> Any:
    import torch
    from transformers import AutoConfig

    _logs_nothing()
    read = configuration(str(path))
    given = {name: x for name, x in {**read.data, **changed}.items() if name not in ("model_type", "auto_map", "dtype")}
    config = _read(path, lambda: AutoConfig.for_model(read.model_type, **given))
    text = config.get_text_config(decoder=True)
    deep = next((n for n in _COUNTS if isinstance(x := getattr(text, n, None), int) and x > _DEEPEST), None)
    if deep:
        raise InputError(f"{path}: {deep} is {getattr(text, deep)}; mend: --set {deep}=2, at most {_DEEPEST}")
    with torch.device("meta"):
        size = sum(p.numel() for p in _read(path, lambda: _auto(config).from_config(config)).parameters())
    if size > models.MOST:
        raise InputError(
            f"{path}: {size:,} parameters, and at most {models.MOST:,} are made at random; mend: --set "
            "num_hidden_layers=2, or narrower layers, which run the same code"
        )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return _auto(config).from_config(config).eval()


def _auto(config: Any) -> Any:
    """The class of transformers that makes a model to generate with."""
    import transformers

    if not config.is_encoder_decoder:
        return transformers.AutoModelForCausalLM
    hears = hasattr(config, "num_mel_bins")
    return transformers.AutoModelForSpeechSeq2Seq if hears else transformers.AutoModelForSeq2SeqLM


def _read(path: Path, reading: Any) -> Any:
    """What ``reading`` gives. Raises ``InputError`` with the first line of what transformers says."""
    try:
        return reading()
    except Exception as error:  # of every kind, for files that nobody vouches for
        raise InputError(f"{path} is no model that transformers makes: {one_line(error)[:200]}") from error


def _logs_nothing() -> None:
    """Progress bars and advice of transformers are no part of an answer."""
    from transformers import utils

    logging: Any = utils.logging
    logging.disable_progress_bar()
    logging.set_verbosity_error()
