"""References whose attention has further inputs, windows or soft caps are recognised by names, shapes and numbers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention, InputError, Rotary, judge, reports
from symattn.bounds.called_target import Argument
from symattn.programs.judging.attention_of_benchmark import plausible_attention, with_heads_of_shapes
from symattn.programs.judging.benchmark import Benchmark, read_benchmark
from symattn.programs.judging.benchmark_inputs import by_definition
from symattn.programs.judging.references import plausible

_QKV = ((2, 4, 48, 32),) * 3
_GROUPED = ((2, 8, 48, 32), (2, 2, 48, 32), (2, 2, 48, 32))


def _benchmark(
    shapes: tuple[tuple[int, ...], ...], more: dict[str, np.ndarray] | None = None, numbers: tuple[float, ...] = ()
) -> Benchmark:
    more = more or {}
    arrays = (*map(np.zeros, shapes), *more.values())
    return Benchmark((), tuple(a.shape for a in arrays), arrays, names=("q", "k", "v", *more), numbers=numbers)


@pytest.mark.parametrize(
    ("benchmark", "first"),
    [
        (_benchmark(_QKV), Attention()),
        (_benchmark(_QKV, {"attn_mask": np.ones((48, 48), bool)}), Attention(mask="boolean")),
        (_benchmark(_QKV, {"mask": np.zeros((48, 48))}), Attention(mask="additive")),
        (_benchmark(_QKV, {"position_bias": np.zeros((4, 48, 48))}), Attention(bias=True, heads=4)),
        (_benchmark(_QKV, {"bias": np.zeros((48, 48))}), Attention(bias=True)),
        (_benchmark(_GROUPED, {"sinks": np.zeros(8)}), Attention(heads=8, kv_heads=2, sink="given")),
    ],
)
def test_names_and_shapes_say_what_is_tried_first(benchmark: Benchmark, first: Attention) -> None:
    tried = list(plausible_attention(benchmark))
    assert tried[0] == first
    assert len([spec for spec in tried if spec.position is None]) <= 6
    assert len(tried) <= 20


def test_numbers_of_a_model_may_be_windows_and_caps() -> None:
    tried = list(plausible_attention(_benchmark(_QKV, numbers=(16, 4096, 30.0))))
    for wanted in (
        Attention(causal=True, window=16), Attention(causal=True, window=17), Attention(window=(16, 16)),
        Attention(softcap=30.0), Attention(softcap=30.0, causal=True),
    ):  # fmt: skip
        assert wanted in tried
    assert not any(4096 in (spec.window or ()) for spec in tried if isinstance(spec.window, tuple))


def test_positions_that_a_model_computes_are_tried_last() -> None:
    tried = list(plausible_attention(_benchmark(_QKV, numbers=(500000.0,))))
    for wanted in (
        Attention(causal=True, position=Rotary()),
        Attention(causal=True, position=Rotary(base=500000, layout="interleaved")),
        Attention(position=Rotary()),
        Attention(heads=4, causal=True, position=Alibi()),
        Attention(heads=4, position=Alibi(two_sided=True)),
    ):
        assert wanted in tried
    first = next(at for at, spec in enumerate(tried) if spec.position is not None)
    assert all(spec.position is not None for spec in tried[first:])


@pytest.mark.parametrize(
    ("more", "position"),
    [
        ({"cos": np.ones((48, 16)), "sin": np.ones((48, 16))}, Rotary(given="tables")),
        ({"position_ids": np.arange(48)}, Rotary(given="positions")),
        ({"alibi_slopes": np.ones(4)}, Alibi(slopes="given")),
    ],
)
def test_tables_and_slopes_are_inputs_of_positions(more: dict[str, np.ndarray], position: Rotary | Alibi) -> None:
    tried = list(plausible_attention(_benchmark(_QKV, more)))
    assert {type(spec.position) for spec in tried} == {type(position)}
    assert tried[0].position == position


def test_slopes_may_be_those_of_both_sides() -> None:
    """One-sided biases would grow for keys ahead of a query, so that they are tried with a causal mask alone."""
    tried = list(plausible_attention(_benchmark(_QKV, {"alibi_slopes": np.ones(4)})))
    one_sided = [spec for spec in tried if spec.position == Alibi(slopes="given")]
    two_sided = [spec for spec in tried if spec.position == Alibi(slopes="given", two_sided=True)]
    assert all(spec.causal for spec in one_sided)
    assert any(not spec.causal for spec in two_sided)


def test_a_mask_of_padding_may_have_either_sign() -> None:
    """Some authors mark keys to ignore, others keys to keep; the reference is called both ways."""
    keep = np.ones((2, 48), bool)
    assert next(plausible_attention(_benchmark(_QKV, {"key_padding_mask": keep}))) == Attention(padding=True)


@pytest.mark.parametrize(
    ("numbers", "widths"),
    [((32,), (None, 32)), ((8, 32**-0.5), (32,)), ((32**0.5,), (None, 32)), ((16, 0.5), (None,))],
)
def test_a_width_that_a_model_names_may_be_its_only_one(
    numbers: tuple[float, ...], widths: tuple[int | None, ...]
) -> None:
    assert _benchmark(_QKV, numbers=numbers).promised_widths == widths
    assert _benchmark((*_QKV[:2], (2, 4, 48, 16)), numbers=numbers).promised_widths == (None,)


def test_a_layer_may_have_fewer_heads_of_keys() -> None:
    layer = Benchmark((), ((2, 48, 64),), (np.zeros((2, 48, 64)),), heads=(8,), key_heads=(2, 3))
    assert list(layer.numbers_of_heads) == [(8, 2), (8, None)]
    tried = [spec for spec in plausible(layer) if isinstance(spec, Attention)]
    assert tried[:2] == [Attention(heads=8, kv_heads=2), Attention(heads=8, kv_heads=2, causal=True)]
    assert Attention(heads=8, kv_heads=2, causal=True, position=Rotary()) in tried


def test_an_input_without_a_meaning_leaves_nothing_to_try() -> None:
    assert list(plausible_attention(_benchmark(_QKV, {"temperatures": np.zeros(4)}))) == []


def test_a_given_definition_gets_the_heads_of_the_shapes() -> None:
    spec = Attention(sink="given", causal=True)
    benchmark = _benchmark(_GROUPED, {"sinks": np.zeros(8)})
    assert next(with_heads_of_shapes(spec, benchmark)) == Attention(heads=8, kv_heads=2, sink="given", causal=True)
    assert list(with_heads_of_shapes(Attention(heads=2), benchmark)) == [Attention(heads=2)]
    tokens_first = _benchmark(((2, 64, 8, 32), (2, 96, 2, 32), (2, 96, 2, 32)))
    assert next(with_heads_of_shapes(Attention(), tokens_first)) == Attention(heads=8, kv_heads=2)
    equal = _benchmark(((2, 8, 64, 32), (2, 8, 96, 32), (2, 8, 96, 32)))
    assert list(with_heads_of_shapes(Attention(), equal)) == [Attention()]


def test_a_bias_of_three_axes_may_be_of_heads_or_of_items() -> None:
    arguments = [Argument(name, name, positional=True) for name in ("q", "k", "v", "bias")]
    convention = SimpleNamespace(arguments=arguments, inputs=("q", "k", "v", "bias"), dtype="float32", layout="bhnd")
    runner: Any = SimpleNamespace(convention=convention)
    with pytest.raises(InputError, match="may be one of heads or of items"):
        by_definition(runner, [*map(np.zeros, _QKV), np.zeros((4, 48, 48))])
    # So may one of padding beside axes of items and of heads.
    arguments[-1], convention.inputs = Argument("keep", "keep", positional=True), (*"qkv", "keep")
    with pytest.raises(InputError, match="of their keep may be one of heads or of items"):
        by_definition(runner, [*map(np.zeros, _QKV), np.ones((2, 48), bool)])


def test_a_mask_of_keys_to_ignore_is_negated_for_the_definition() -> None:
    more = Argument("key_padding_mask", "keep", positional=True, inverted=True)
    arguments = [*(Argument(name, name, positional=True) for name in "qkv"), more]
    inputs = ("q", "k", "v", "keep")
    convention = SimpleNamespace(arguments=arguments, inputs=inputs, dtype="float32", layout="bnd")
    runner: Any = SimpleNamespace(convention=convention)
    ignored = np.array([[False, False, True], [False, True, True]])
    given = by_definition(runner, [*map(np.zeros, ((2, 3, 4),) * 3), ignored])
    assert (given["keep"] == ~ignored).all()


_REFERENCE = """
import math
import torch

class {name}(torch.nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = window

    def forward(self, q, k, v, sinks):
        n, group = q.shape[-2], q.shape[1] // k.shape[1]
        i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        s = s.masked_fill((j > i) | (i - j {sees} self.window), float("-inf"))
        s = torch.cat([s, sinks[None, :, None, None].expand(len(q), -1, n, 1)], -1)
        return torch.softmax(s, -1)[..., :-1] @ v

def get_inputs():
    return [torch.randn(2, 4, 40, 8), torch.randn(2, 2, 40, 8), torch.randn(2, 2, 40, 8), torch.randn(4)]

def get_init_inputs():
    return [12]
"""
_WITH_SINKS_OF_ITS_OWN = """
import torch

class Model(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.sink = torch.nn.Parameter(torch.randn(1, heads, 1, 1))

    def forward(self, q, k, v):
        s = q @ k.mT * q.shape[-1] ** -0.5
        s = torch.cat([s, self.sink.expand(*s.shape[:-1], 1)], -1)
        return torch.softmax(s, -1)[..., :-1] @ v

def get_inputs():
    return [torch.randn(2, 4, 12, 8) for _ in range(3)]

def get_init_inputs():
    return [4]
"""
_OF_ONE_WIDTH = """
import torch

def rotate(x, base):
    n, d = x.shape[1], x.shape[-1]
    angles = torch.arange(n, dtype=x.dtype)[:, None] * base ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    cos, sin = (f(angles)[:, None] for f in (torch.cos, torch.sin))
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

class {name}(torch.nn.Module):
    def __init__(self, num_heads, num_kv_heads, head_dim, theta):
        super().__init__()
        self.group, self.scale, self.theta = num_heads // num_kv_heads, head_dim**-0.5, theta

    def forward(self, q, k, v):
        n = q.shape[1]
        q, k = rotate(q, self.theta), rotate(k, {base})
        k, v = k.repeat_interleave(self.group, 2), v.repeat_interleave(self.group, 2)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) * self.scale
        s = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
        return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(s, -1), v)

def get_inputs():
    return [torch.randn(2, 24, 4, 16), torch.randn(2, 24, 2, 16), torch.randn(2, 24, 2, 16)]

def get_init_inputs():
    return [4, 2, 16, 500000.0]
"""
_MASKED = """
import torch

class {name}(torch.nn.Module):
    def forward(self, q, k, v, mask):
        s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return torch.softmax(s.masked_fill(~mask, {forbidden}), -1) @ v

def get_inputs():
    mask = (torch.rand(24, 24) > 0.4).fill_diagonal_(True)
    return [torch.randn(2, 4, 24, 8), torch.randn(2, 4, 24, 8), torch.randn(2, 4, 24, 8), mask]

def get_init_inputs():
    return []
"""


@pytest.mark.torch
def test_numbers_of_heads_that_a_model_holds_are_inputs(tmp_path: Path) -> None:
    (path := tmp_path / "ref.py").write_text(_WITH_SINKS_OF_ITS_OWN)
    benchmark = read_benchmark(str(path))
    assert (benchmark.names, benchmark.shapes[-1]) == (("q", "k", "v", "sink"), (4,))
    assert next(plausible_attention(benchmark)) == Attention(heads=4, sink="given")


@pytest.mark.torch
@pytest.mark.deep
def test_windows_with_sinks_of_grouped_heads(tmp_path: Path) -> None:
    reference, wrong = tmp_path / "ref.py", tmp_path / "wrong.py"
    reference.write_text(_REFERENCE.format(name="Model", sees=">="))
    wrong.write_text(_REFERENCE.format(name="ModelNew", sees=">"))
    judged = judge(str(wrong), reference=str(reference), examples=4, seed=1)
    assert judged.status is reports.Status.FAIL
    assert judged.definition == "Attention(causal=True, window=12, heads=4, kv_heads=2, sink='given')"


@pytest.mark.torch
@pytest.mark.deep
def test_a_mask_is_passed_and_a_finite_number_for_it_fails(tmp_path: Path) -> None:
    """Residues differ there, with masks of four axes: an honest answer of the candidate's process, no tampering."""
    reference, wrong = tmp_path / "ref.py", tmp_path / "wrong.py"
    reference.write_text(_MASKED.format(name="Model", forbidden="float('-inf')"))
    wrong.write_text(_MASKED.format(name="ModelNew", forbidden="-100.0"))
    judged = judge(str(wrong), reference=str(reference), examples=4, seed=4)
    assert (judged.status, judged.definition) == (reports.Status.FAIL, "Attention(mask='boolean')")


@pytest.mark.torch
@pytest.mark.deep
def test_a_model_of_one_width_that_rotates_its_keys(tmp_path: Path) -> None:
    """Its scale is a number of the width that it is made with, so that it is attention at this width alone."""
    reference, wrong = tmp_path / "ref.py", tmp_path / "wrong.py"
    reference.write_text(_OF_ONE_WIDTH.format(name="Model", base="self.theta"))
    wrong.write_text(_OF_ONE_WIDTH.format(name="ModelNew", base="10000.0"))
    judged = judge(str(wrong), reference=str(reference), examples=4, seed=3)
    assert judged.status is reports.Status.FAIL
    assert judged.definition == "Attention(causal=True, heads=4, kv_heads=2, position=Rotary(base=500000))"
    assert "at least 16 components, as many queries as keys" in judged.domain


_OF_SIGMOID = """
import math
import torch

class {name}(torch.nn.Module):
    def forward(self, q, k, v):
        s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return torch.sigmoid(s - {shift}) @ v

def get_inputs():
    return [torch.randn(2, 4, 24, 8) for _ in range(3)]

def get_init_inputs():
    return []
"""


def test_other_weights_than_those_of_softmax_are_tried() -> None:
    tried = list(plausible(_benchmark(_QKV)))
    for normaliser in ("sigmoid", "relu", "relu_sum", "sparsemax"):
        assert Attention(normaliser=normaliser) in tried  # type: ignore[arg-type]
        assert Attention(normaliser=normaliser, causal=True) in tried  # type: ignore[arg-type]
    with_sinks = list(plausible(_benchmark(_QKV, {"sinks": np.zeros(4)})))
    assert all(spec.is_softmax for spec in with_sinks if isinstance(spec, Attention))


@pytest.mark.torch
@pytest.mark.deep
def test_attention_with_a_sigmoid_is_recognised(tmp_path: Path) -> None:
    reference, right, wrong = (tmp_path / f"{name}.py" for name in ("ref", "right", "wrong"))
    reference.write_text(_OF_SIGMOID.format(name="Model", shift="math.log(k.shape[-2])"))
    right.write_text(_OF_SIGMOID.format(name="ModelNew", shift="torch.log(torch.tensor(float(k.shape[-2])))"))
    wrong.write_text(_OF_SIGMOID.format(name="ModelNew", shift="0"))
    passed = judge(str(right), reference=str(reference), examples=4, seed=3)
    assert passed.passed, passed
    assert passed.definition == "Attention(normaliser='sigmoid')"
    assert judge(str(wrong), reference=str(reference), examples=4, seed=3).status is reports.Status.FAIL


_OF_RELU = """
import torch

class {name}(torch.nn.Module):
    def forward(self, q, k, v):
        n, m = q.shape[-2], k.shape[-2]
        s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        s = s.masked_fill(~torch.ones(n, m, dtype=torch.bool).tril(m - n), float("-inf"))
        return {output}

def get_inputs():
    return [torch.randn(2, 4, 24, 8) for _ in range(3)]

def get_init_inputs():
    return []
"""


@pytest.mark.torch
@pytest.mark.deep
def test_attention_with_relu_that_is_not_divided_is_recognised(tmp_path: Path) -> None:
    """As in KernelBench's problem 50 of level 3."""
    reference, kernel = (tmp_path / f"{name}.py" for name in ("ref", "kernel"))
    reference.write_text(_OF_RELU.format(name="Model", output="torch.relu(s) @ v"))
    outputs = {
        "s.clamp(min=0) @ v": True,
        "torch.relu(s) @ v / m": False,
        "torch.softmax(s, -1) @ v": False,
        "torch.relu(s).square() @ v": False,
    }
    for output, is_right in outputs.items():
        kernel.write_text(_OF_RELU.format(name="ModelNew", output=output))
        judgement = judge(str(kernel), reference=str(reference), examples=4, seed=3)
        assert judgement.definition == "Attention(causal=True, normaliser='relu_sum')"
        assert judgement.passed if is_right else judgement.status is reports.Status.FAIL, judgement
