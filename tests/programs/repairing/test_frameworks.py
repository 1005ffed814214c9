"""Functions of torch and JAX are edited by the same rules."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn.programs.repairing.edits import enumerate_edits
from symattn.programs.repairing.observing import observe
from symattn.programs.repairing.source import Sources
from tests.programs.repairing.programs import loaded

TORCH = """
import torch


def attention(q, k, v):
    s = q @ k.transpose(-1, -2) / q.shape[0] ** 0.5
    return torch.softmax(s, -1) @ v
"""
JAX = """
import jax
import jax.numpy as jnp


@jax.jit
def attention(q, k, v):
    s = q @ k.T / jnp.sqrt(q.shape[0])
    return jax.nn.softmax(s, -1) @ v
"""


def _edits_that_repair(folder: Path, text: str, given: tuple[Any, ...], right: np.ndarray) -> list[tuple[str, str]]:
    sources = Sources(loaded(folder, text))
    assert np.abs(np.asarray(sources.rebuild()(*given)) - right).max() > 0.01
    seen = observe(sources, lambda f: f(*given))
    found = []
    for edit in enumerate_edits(sources, seen, tiers=(1,)):
        try:
            got = np.asarray(sources.edited(sources.at(edit.place), edit.replacements)(*given))
        except Exception:
            continue
        if got.shape == right.shape and np.abs(got - right).max() < 1e-5:
            found.append((edit.old, edit.new))
    return found


def _given() -> tuple[list[np.ndarray], np.ndarray]:
    random = np.random.default_rng(0)
    q, k, v = (random.normal(size=shape).astype("f") for shape in ((5, 4), (7, 4), (7, 3)))
    e = np.exp(q @ k.T / 2)
    return [q, k, v], e / e.sum(1, keepdims=True) @ v


@pytest.mark.torch
def test_a_function_of_torch(tmp_path: Path) -> None:
    import torch

    arrays, right = _given()
    assert ("0", "1") in _edits_that_repair(tmp_path, TORCH, tuple(map(torch.from_numpy, arrays)), right)


@pytest.mark.jax
def test_a_compiled_function_of_jax(tmp_path: Path) -> None:
    import jax.numpy as jnp

    arrays, right = _given()
    assert ("0", "1") in _edits_that_repair(tmp_path, JAX, tuple(map(jnp.asarray, arrays)), right)
