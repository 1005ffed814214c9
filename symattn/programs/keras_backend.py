"""Which backend Keras is imported with, where nobody has told one."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path


def choose_backend() -> None:
    """Let Keras run on PyTorch or JAX where TensorFlow, its default, is not installed and nobody has told another.

    ``KERAS_BACKEND`` and a backend in Keras's own file of settings are honoured.
    """
    if "KERAS_BACKEND" in os.environ or not importlib.util.find_spec("keras"):
        return
    settings = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras")) / "keras.json"
    try:
        told = json.loads(settings.read_text(encoding="utf-8")).get("backend")
    except (OSError, ValueError, AttributeError):
        told = None
    backends = [name for name in ("torch", "jax") if importlib.util.find_spec(name)]
    if told in (None, "tensorflow") and backends and not importlib.util.find_spec("tensorflow"):
        os.environ["KERAS_BACKEND"] = backends[0]
