"""Layers of Keras 3 that hold their weights, on PyTorch and on JAX."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, LayerNorm, RMSNorm, verify
from symattn.programs import loading
from tests.verification.naming import convicts

HERE = Path(__file__).parents[2]


def test_a_backend_is_chosen_where_nobody_has_told_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = {"keras", "jax"}
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: name in there)
    environ = {"KERAS_HOME": str(tmp_path)}
    monkeypatch.setattr(os, "environ", environ)
    for told, settings, chosen in ((None, "", "jax"), (None, '{"backend": "torch"}', None), ("torch", "", "torch")):
        environ.pop("KERAS_BACKEND", None)
        if told:
            environ["KERAS_BACKEND"] = told
        (tmp_path / "keras.json").write_text(settings, encoding="utf-8")
        loading.choose_backend()
        assert environ.get("KERAS_BACKEND") == chosen
    del environ["KERAS_BACKEND"]
    there.add("tensorflow")
    loading.choose_backend()
    assert "KERAS_BACKEND" not in environ


@pytest.fixture(scope="module")
def keras() -> Any:
    loading.choose_backend()
    return pytest.importorskip("keras")


def built(layer: Any, tokens: int = 2) -> Any:
    layer(*[np.zeros((1, 3, 8), "float32")] * tokens)
    return layer


@pytest.mark.keras
@pytest.mark.parametrize("spec", [Attention(heads=2), Attention(heads=2, causal=True)])
def test_multi_head_attention(keras: Any, spec: Attention) -> None:
    layer = built(keras.layers.MultiHeadAttention(2, 4))
    report = verify(layer, spec, examples=1)
    assert report.verdict.value == "no fault"
    assert any("query.kernel, query.bias" in note for note in report.notes)


@pytest.mark.keras
def test_grouped_queries_and_norms(keras: Any) -> None:
    gqa = built(keras.layers.GroupQueryAttention(2, 4, 2))
    assert verify(gqa, Attention(heads=4, kv_heads=2), examples=1).verdict.value == "no fault"
    with pytest.raises(InputError, match="has 4 heads, and the specification 2"):
        verify(gqa, Attention(heads=2))
    norm = built(keras.layers.LayerNormalization(epsilon=1e-5), 1)
    assert verify(norm, LayerNorm(eps=1e-5), examples=1).verdict.value == "no fault"
    rms = built(keras.layers.RMSNormalization(epsilon=1e-5), 1)
    assert verify(rms, RMSNorm(eps=1e-5), examples=1).verdict.value == "no fault"
    assert convicts(rms, RMSNorm(eps=1e-3), examples=1)


@pytest.mark.keras
def test_another_format_is_that_of_a_copy(keras: Any) -> None:
    layer = built(keras.layers.MultiHeadAttention(2, 4))
    assert not verify(layer, Attention(heads=2), dtype="bfloat16", examples=1).faults
    assert layer.compute_dtype == "float32"


@pytest.mark.keras
def test_a_wrong_layer_is_named(keras: Any) -> None:
    class Wrong(keras.layers.MultiHeadAttention):  # type: ignore[misc]
        def _compute_attention(self, query: Any, *args: Any, **told: Any) -> Any:
            return super()._compute_attention(query * 2, *args, **told)

    report = verify(built(Wrong(2, 4)), Attention(heads=2), examples=1)
    assert (report.verdict.value, report.faults[0].step) == ("fault", "scale")


@pytest.mark.keras
def test_a_layer_without_weights_is_one_line(keras: Any) -> None:
    with pytest.raises(InputError, match="has no weights yet; hint: call it once on tokens"):
        verify(keras.layers.MultiHeadAttention(2, 4), Attention(heads=2))


ON_JAX = """
import keras, numpy as np
from symattn import Attention, RMSNorm, verify
from symattn.programs.target import narrowed
from symattn.programs.target import target
from symattn.programs.verifying import requested
from symattn.bounds.domain import Domain
assert keras.backend.backend() == "jax"
layer = keras.layers.MultiHeadAttention(2, 4)
layer(*[np.zeros((1, 3, 8), "float32")] * 2)
spec, domain = Attention(heads=2, causal=True), Domain(square=True, same_width=True)
runner = target(layer, requested(spec, dtype="float32", domain=domain))
found = runner.semantics(spec, 60, narrowed(runner, domain))
print(found.agrees, found.epsilon)
"""


@pytest.mark.keras
def test_on_jax_a_layer_is_traced() -> None:
    told = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(HERE)}
    found = subprocess.run([sys.executable, "-c", ON_JAX], env=told, capture_output=True, text=True, timeout=300)
    assert found.stdout.startswith("True "), found.stderr
    assert float(found.stdout.split()[1]) <= 1e-12
