"""Functions of torch and JAX are edited by the same rules."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, reports
from symattn.programs.repairing.edits import enumerate_edits
from symattn.programs.repairing.observing import observe
from symattn.programs.repairing.source import Sources
from symattn.programs.verifying import Options
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

# What Helion makes of a function, as far as an edit needs it.
HELION = """
import numpy as np


class Mode:
    name = "EAGER"


class Settings:
    ref_mode = Mode()


class Kernel:
    def __init__(self, fn, *, configs=None, settings=None, key=None):
        self.fn, self.configs, self.settings, self.bound = fn, configs, settings, fn

    def __call__(self, *args):
        return self.bound(*args)


Kernel.__module__ = "helion.runtime.kernel"


def weights(q, k):
    e = np.exp(q @ k.T / np.sqrt(q.shape[0]))
    return e / e.sum(1, keepdims=True)


weights = Kernel(weights, configs=[], settings=Settings())


def attention(q, k, v):
    return weights(q, k) @ v
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


PALLAS = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def kernel(q_ref, k_ref, v_ref, o_ref):
    q, k, v = q_ref[...], k_ref[...], v_ref[...]
    s = q @ k.T / jnp.sqrt(jnp.float32(q.shape[0]))
    p = jnp.exp(s - s.max(-1, keepdims=True))
    o_ref[...] = p @ v / p.sum(-1, keepdims=True)


def attention(q, k, v):
    shape = jax.ShapeDtypeStruct((q.shape[0], v.shape[1]), q.dtype)
    return pl.pallas_call(kernel, out_shape=shape, interpret=True)(q, k, v)
"""


@pytest.mark.jax
def test_a_kernel_of_pallas(tmp_path: Path) -> None:
    import jax.numpy as jnp

    arrays, right = _given()
    assert ("0", "1") in _edits_that_repair(tmp_path, PALLAS, tuple(map(jnp.asarray, arrays)), right)


MODULES = """
import torch
from torch import nn


class Core(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, q, k, v):
        s = q @ k.transpose(-1, -2) / self.width
        return torch.softmax(s, -1) @ v


def split(x, heads):
    return x.view(*x.shape[:-1], heads, -1).transpose(-2, -3)


class Attention(nn.Module):
    def __init__(self, d=8, heads=2):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.v_proj, self.out_proj = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.cores = nn.ModuleList([Core(d // heads)])

    def forward(self, x):
        q, k, v = (split(p(x), self.heads) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(self.cores[0](q, k, v).transpose(-2, -3).flatten(-2))


attention = Attention()
"""


@pytest.mark.torch
def test_methods_of_a_module_of_modules_within_it_and_helpers_are_edited(tmp_path: Path) -> None:
    import torch

    module = loaded(tmp_path, MODULES)
    sources = Sources(module)
    named = [f.function.__qualname__ for f in sources.functions.values()]
    assert {"Attention.forward", "Core.forward", "split"} <= set(named)
    x = torch.ones(5, 8).cumsum(0)
    before = module(x)
    assert torch.equal(sources.rebuild()(x), before)
    key = next(k for k, f in sources.functions.items() if f.function.__qualname__ == "Core.forward")
    at = next(r for r in sources.functions[key].lines if "self.width" in r).index("self.width")
    line = sources.functions[key].first + 1
    edited = sources.edited(key, [reports.Replacement(line, at, line, at + 10, "self.width ** 0.5")])
    module.cores[0].width = 2
    assert torch.equal(edited(x), module(x))
    module.cores[0].width = 4
    assert torch.equal(module(x), before)


@pytest.mark.torch
def test_a_module_with_weights_is_called_in_another_version(tmp_path: Path) -> None:
    module, spec = loaded(tmp_path, MODULES), Attention(heads=2)
    with Options(examples=4).opened(module, spec) as runner:
        target: Any = runner
        sources = Sources(target.written)
        names = [f.function.__qualname__ for f in sources.functions.values()]
        key = list(sources.functions)[names.index("Core.forward")]
        found = sources.functions[key]
        weights = {n: np.eye(8) * 3 for n in ("w_q", "w_k", "w_v", "w_o")}
        given = {"x": np.arange(24.0).reshape(3, 8) / 8, **weights}
        at = next(k for k, line in enumerate(found.lines) if "return" in line)
        removed = reports.Replacement(found.first + at, 15, found.first + at, len(found.lines[at]), "v")
        edited = target.version(sources.edited(key, [removed])).run(given).output
        assert np.abs(edited - 9 * given["x"]).max() < 1e-5
        assert np.abs(target.run(given).output - edited).max() > 0.1


def test_code_that_the_wrong_call_does_not_run_is_not_edited(tmp_path: Path) -> None:
    text = "def attention(q, k, v):\n    if len(q) > 9:\n        q = q * 2\n    return q @ k.T @ v * 3\n"
    sources = Sources(loaded(tmp_path, text))
    seen = observe(sources, lambda f: f(*_given()[0]))
    lines = {e.line for e in enumerate_edits(sources, seen)}
    seen.of_wrong = True
    assert lines - {e.line for e in enumerate_edits(sources, seen)} == {6}


def test_a_kernel_that_helion_calls_as_it_is(tmp_path: Path) -> None:
    given, right = _given()
    assert ("0", "1") in _edits_that_repair(tmp_path, HELION, tuple(given), right)


# NumPy's decorator stands for torch's ``no_grad``: both wrap the function in code of their own.
WRAPPED = """
import numpy as np


@np.errstate(all="ignore")
def weights(q, k):
    e = np.exp(q @ k.T / np.sqrt(q.shape[0]))
    return e / e.sum(1, keepdims=True)


DECORATOR
def attention(q, k, v):
    return weights(q, k) @ v
"""


@pytest.mark.parametrize("decorator", ["", "@np.errstate(all='ignore')", "@np.errstate()\n@np.errstate()"])
def test_a_function_that_a_decorator_of_another_file_wraps(tmp_path: Path, decorator: str) -> None:
    given, right = _given()
    assert ("0", "1") in _edits_that_repair(tmp_path, WRAPPED.replace("DECORATOR", decorator), tuple(given), right)


# A decorator with a number of the same name as the user's, and the user's own decorator around an installed function.
DECORATORS = """
import functools

SCALE = 2


def halved(f):
    @functools.wraps(f)
    def wrapper(x):
        return f(x) * (SCALE / 2)

    return wrapper
"""
DECORATED = """
import functools

from decorators_of_others import halved

SCALE = 2


@halved
def attention(x):
    return x * SCALE


def tripled(f):
    @functools.wraps(f)
    def wrapper(x):
        return f(x * 3)

    return wrapper


exec(compile("def plain(x):\\n    return x\\n", "/site-packages/plain.py", "exec"))
around = tripled(plain)


@functools.singledispatch
def dispatched(x):
    return x
"""


@pytest.fixture
def decorated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "decorators_of_others.py").write_text(DECORATORS, encoding="utf-8")
    return loaded(tmp_path, DECORATED)


def test_a_number_of_the_file_is_none_of_a_decorators_file(decorated: Any) -> None:
    sources = Sources(decorated)
    (key,) = sources.editable
    node = sources.numbers_of(key)["SCALE"]
    at = reports.Replacement(node.lineno, node.col_offset, node.lineno, node.end_col_offset or 0, "6")
    assert (sources.edited(key, [at])(1), decorated(1)) == (6, 2)


def test_a_decorator_of_the_user_is_edited_and_installed_functions_are_not(decorated: Any) -> None:
    names = decorated.__wrapped__.__globals__
    around = Sources(names["around"])
    (key,) = around.editable
    assert (around.file, around.functions[key].function) == (Sources(decorated).file, names["around"])
    assert Sources(names["plain"]).editable == []
    # The function that is called is one of Python's library.
    assert Sources(names["dispatched"]).editable == []


GRADIENT_OF_TORCH = """
import torch


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * x, g * x


def gradient(x, y, do):
    x, y = (a.detach().clone().requires_grad_() for a in (x, y))
    Scaled.apply(x, y).backward(do)
    return x.grad, y.grad
"""


@pytest.mark.torch
def test_the_gradient_of_a_function_of_autograd_is_edited(tmp_path: Path) -> None:
    import torch

    x, y, do = (torch.randn(3, generator=torch.Generator().manual_seed(n)) for n in range(3))
    sources = Sources(loaded(tmp_path, GRADIENT_OF_TORCH, function="gradient"))
    seen = observe(sources, lambda function: function(x, y, do))
    line = GRADIENT_OF_TORCH[: GRADIENT_OF_TORCH.index("return g * x")].count("\n") + 3
    edits = [e for e in enumerate_edits(sources, seen, (), (1,)) if (e.line, e.old, e.new) == (line, "x", "y")]
    gradients = [sources.edited(sources.at(e.place), e.replacements)(x, y, do) for e in edits]
    assert any(torch.equal(dx, do * y) and torch.equal(dy, do * x) for dx, dy in gradients)
