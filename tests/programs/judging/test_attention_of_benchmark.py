"""References whose attention has further inputs, windows or soft caps are recognised by names, shapes and numbers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, judge
from symattn.programs.answers import _fits
from symattn.programs.judging.attention_of_benchmark import plausible_attention, with_heads_of_shapes
from symattn.programs.judging.benchmark import Benchmark
from symattn.programs.judging.benchmark_inputs import by_definition
from symattn.programs.judging.judgement import Status

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
    assert len(tried) <= 6


def test_numbers_of_a_model_may_be_windows_and_caps() -> None:
    tried = list(plausible_attention(_benchmark(_QKV, numbers=(16, 4096, 30.0))))
    for wanted in (
        Attention(causal=True, window=16), Attention(causal=True, window=17), Attention(window=(16, 16)),
        Attention(softcap=30.0), Attention(softcap=30.0, causal=True),
    ):  # fmt: skip
        assert wanted in tried
    assert not any(4096 in (spec.window or ()) for spec in tried if isinstance(spec.window, tuple))


def test_an_input_without_a_meaning_leaves_nothing_to_try() -> None:
    assert list(plausible_attention(_benchmark(_QKV, {"temperatures": np.zeros(4)}))) == []


def test_a_given_definition_gets_the_heads_of_the_shapes() -> None:
    spec = Attention(sink="given", causal=True)
    benchmark = _benchmark(_GROUPED, {"sinks": np.zeros(8)})
    assert next(with_heads_of_shapes(spec, benchmark)) == Attention(heads=8, kv_heads=2, sink="given", causal=True)
    assert list(with_heads_of_shapes(Attention(heads=2), benchmark)) == [Attention(heads=2)]


def test_a_bias_of_three_axes_may_be_of_heads_or_of_items() -> None:
    arguments = [SimpleNamespace(input=name, positional=True) for name in ("q", "k", "v", "bias")]
    convention = SimpleNamespace(arguments=arguments, inputs=("q", "k", "v", "bias"), dtype="float32", layout="bhnd")
    runner: Any = SimpleNamespace(convention=convention)
    with pytest.raises(InputError, match="may be one of heads or of items"):
        by_definition(runner, [*map(np.zeros, _QKV), np.zeros((4, 48, 48))])


def test_a_mask_may_be_passed_with_further_axes() -> None:
    assert _fits((2, 1, 5, 7), (5, 7))
    assert not _fits((2, 1, 5, 6), (5, 7))
    assert not _fits((1 << 14, 1 << 14), (5, 1 << 14))


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
@pytest.mark.deep
def test_windows_with_sinks_of_grouped_heads(tmp_path: Path) -> None:
    reference, wrong = tmp_path / "ref.py", tmp_path / "wrong.py"
    reference.write_text(_REFERENCE.format(name="Model", sees=">="))
    wrong.write_text(_REFERENCE.format(name="ModelNew", sees=">"))
    judged = judge(str(wrong), reference=str(reference), examples=4, seed=1)
    assert judged.status is Status.FAIL
    assert judged.definition == "Attention(causal=True, window=12, heads=4, kv_heads=2, sink='given')"


@pytest.mark.torch
@pytest.mark.deep
def test_a_mask_is_passed_and_a_finite_number_for_it_fails(tmp_path: Path) -> None:
    """Residues differ there, with masks of four axes: an honest answer of the candidate's process, no tampering."""
    reference, wrong = tmp_path / "ref.py", tmp_path / "wrong.py"
    reference.write_text(_MASKED.format(name="Model", forbidden="float('-inf')"))
    wrong.write_text(_MASKED.format(name="ModelNew", forbidden="-100.0"))
    judged = judge(str(wrong), reference=str(reference), examples=4, seed=4)
    assert (judged.status, judged.definition) == (Status.FAIL, "Attention(mask='boolean')")
