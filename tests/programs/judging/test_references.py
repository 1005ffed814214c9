"""Candidates that are judged by the file of a benchmark, with ``Model``, ``get_inputs`` and ``get_init_inputs``."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from symattn import Attention, InputError, LayerNorm, Precision, judge
from symattn.bounds.called_target import Argument, Convention
from symattn.programs.child import TargetOptions
from symattn.programs.definitions import Formed
from symattn.programs.judging import references
from symattn.programs.judging.benchmark import Benchmark, _cut_together, _plausible_heads
from symattn.programs.judging.benchmark_inputs import by_definition
from symattn.programs.judging.hashes import yield_own_files
from symattn.programs.judging.judgement import Status
from symattn.programs.judging.references import (
    _describe_too_many_scores,
    _domain_of_benchmark_shapes,
    _judge_own_inputs,
    _layout_of_arrays,
    _yield_ways_by_format,
    named,
)
from symattn.programs.loading import load
from symattn.programs.refusing import NotCallable
from tests.printed import validator

SCHEMA = validator("judgement")
REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, Q, K, V):
        return torch.nn.functional.scaled_dot_product_attention(Q, K, V{causal})

def get_inputs():
    return [torch.rand(2, 3, 24, 16) for _ in range(3)]

def get_init_inputs():
    return []
"""
KERNEL = """
import math
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, Q, K, V):
        *axes, d = Q.shape
        if len(axes) != {axes}:
            raise ValueError(f"{len(axes)} axes before the columns")
        return self.weights(Q @ K.mT / math.sqrt(d)) @ V

    def weights(self, scores):
        return torch.softmax(scores, -1)

class Mean(ModelNew):
    def weights(self, scores):
        return torch.ones_like(scores) / scores.shape[-1]

class Causal(ModelNew):
    def weights(self, scores):
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return torch.softmax(scores.masked_fill(later, -math.inf), -1)
"""
TOKENS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, n_head):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.n_head = n_head

    def forward(self, x):
        heads = [a.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for a in self.c_attn(x).chunk(3, -1)]
        o = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.c_proj(o.transpose(1, 2).flatten(-2))

def get_inputs():
    return [torch.rand(2, 20, 16)]

def get_init_inputs():
    return [16, 2]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.joinpath("ref.py").write_text(REFERENCE.replace("{causal}", ""))
    tmp_path.joinpath("masked.py").write_text(REFERENCE.replace("{causal}", ", is_causal=True"))
    tmp_path.joinpath("none.py").write_text(REFERENCE.replace("{causal})", ") ** 2"))
    tmp_path.joinpath("kernel.py").write_text(KERNEL.replace("{axes}", "3"))
    tmp_path.joinpath("tokens.py").write_text(TOKENS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.torch
def test_the_definition_of_a_reference_is_found_and_judges_the_candidate(folder: Path) -> None:
    """The reference takes any number of axes, and the candidate those of the benchmark alone."""
    right = judge("kernel.py", reference="ref.py", examples=10)
    assert right.passed, right
    assert (right.definition, right.definition_from) == ("Attention()", "ref.py:Model")
    assert right.own_inputs is not None
    assert right.own_inputs.shapes == ((2, 3, 24, 16),) * 3
    blind = {p.mistake: p.smallest for p in right.own_inputs.power if p.step == "output"}
    assert blind["all zeros"] == blind["the mean of the values"] == 1  # in float32 these inputs show both
    SCHEMA.validate(right.as_dict())
    wrong = judge("kernel.py:Mean", reference="ref.py")
    assert (wrong.status, wrong.exit_code) == (Status.FAIL, 1)


@pytest.mark.torch
@pytest.mark.deep
def test_a_causal_reference_refuses_a_kernel_without_a_mask(folder: Path) -> None:
    assert judge("kernel.py:Causal", reference="masked.py", examples=10).passed
    wrong = judge("kernel.py", reference="masked.py")
    assert (wrong.status, wrong.definition) == (Status.FAIL, "Attention(causal=True)")


@pytest.mark.torch
def test_a_reference_that_computes_no_definition_is_invalid(folder: Path) -> None:
    judgement = judge("kernel.py", reference="none.py")
    assert (judgement.status, judgement.exit_code) == (Status.INVALID_REFERENCE, 2)
    assert "further definitions; hint" in judgement.reason
    assert len(judgement.reason) < 500
    SCHEMA.validate(judgement.as_dict())


@pytest.mark.torch
@pytest.mark.deep
def test_a_module_of_tokens_names_its_heads(folder: Path) -> None:
    judgement = judge("tokens.py:Model", reference="tokens.py", examples=5)
    assert judgement.definition == "Attention(causal=True, heads=2)"
    assert judgement.passed
    assert any("own inputs were not tried" in words for words in judgement.limits)


GROUPED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, Q, K, V):
        K, V = (x.repeat_interleave(Q.shape[1] // K.shape[1], 1) for x in (K, V))
        return torch.nn.functional.scaled_dot_product_attention(Q, K, V)

class Tiled(nn.Module):
    def forward(self, Q, K, V):
        K, V = (x.repeat(1, Q.shape[1] // K.shape[1], 1, 1) for x in (K, V))
        return torch.nn.functional.scaled_dot_product_attention(Q, K, V)

def get_inputs():
    return [torch.rand(2, heads, 24, 16) for heads in (4, 2, 2)]

def get_init_inputs():
    return []
"""


@pytest.mark.torch
def test_heads_that_share_keys_are_read_from_the_shapes(folder: Path) -> None:
    folder.joinpath("grouped.py").write_text(GROUPED)
    tiled = judge("grouped.py:Tiled", reference="grouped.py")
    assert (tiled.status, tiled.definition) == (Status.FAIL, "Attention(heads=4, kv_heads=2)")


@pytest.mark.torch
@pytest.mark.deep
@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_a_kernel_whose_heads_share_keys_passes(folder: Path, layout) -> None:
    text = GROUPED
    if layout == "bnhd":  # the same with tokens before heads
        turned = "        Q, K, V = (x.transpose(1, 2) for x in (Q, K, V))"
        text = text.replace("Q, K, V):\n", f"Q, K, V):\n{turned}\n")
        text = text.replace("attention(Q, K, V)", "attention(Q, K, V).transpose(1, 2)")
        text = text.replace("(2, heads, 24, 16)", "(2, 24, heads, 16)")
    folder.joinpath("grouped.py").write_text(text)
    right = judge("grouped.py:Model", reference="grouped.py", examples=5)
    assert right.passed, right
    assert right.definition == "Attention(heads=4, kv_heads=2)"
    assert right.own_inputs is not None
    assert judge("grouped.py:Tiled", reference="grouped.py").status is Status.FAIL


@pytest.mark.torch
def test_a_window_longer_than_small_inputs_is_no_plain_attention(folder: Path) -> None:
    """Only the reference's own inputs show it, without which a kernel that has no window would pass."""
    mask = ", torch.ones(200, 200, dtype=torch.bool).triu(-150)"
    windowed = REFERENCE.replace("{causal}", mask).replace("2, 3, 24, 16", "200, 4")
    folder.joinpath("window.py").write_text(windowed.replace("(200, 200", "(*[Q.shape[-2]] * 2"))
    assert judge("kernel.py", reference="window.py").status is Status.INVALID_REFERENCE


@pytest.mark.torch
def test_a_layer_with_a_window_longer_than_small_inputs_is_no_plain_one(folder: Path) -> None:
    mask = "attn_mask=torch.ones(*[x.shape[-2]] * 2, dtype=torch.bool).tril().triu(-150)"
    windowed = TOKENS.replace("is_causal=True", mask).replace("2, 20, 16", "2, 200, 16")
    folder.joinpath("window.py").write_text(windowed)
    assert judge("tokens.py:Model", reference="window.py").status is Status.INVALID_REFERENCE


@pytest.mark.torch
def test_heads_may_be_among_the_arguments_of_a_model(folder: Path) -> None:
    folder.joinpath("tokens.py").write_text(TOKENS.replace("self.n_head", "self.number"))
    wrong = folder / "wrong.py"
    wrong.write_text(TOKENS.replace("self.n_head", "self.number").replace("is_causal=True", "scale=0.5"))
    judgement = judge("wrong.py:Model", reference="tokens.py")
    assert judgement.status is Status.FAIL, judgement
    assert judgement.definition == "Attention(causal=True, heads=2)"


def test_numbers_of_heads_that_a_reference_may_have() -> None:
    assert _plausible_heads(SimpleNamespace(width=64, h=4), (64, 4, 0.1, True), [(2, 20, 64)]) == (4, 1)
    assert _plausible_heads(SimpleNamespace(n_head=8), (64, 4), [(2, 20, 64)]) == (8,)


@pytest.mark.parametrize(
    ("spec", "order", "shape", "wanted"),
    [
        (Attention(), "nd", (2, 3, 24, 16), "bhnd"),
        (Attention(heads=4), "nd", (4, 24, 16), "nd"),
        (Attention(), "bhnd", (3, 24, 16), "bnd"),
        (Attention(heads=4), "bnhd", (2, 24, 4, 16), "bnhd"),
        (Attention(), "bnhd", (24, 4, 16), None),
        (Attention(), "nd", (1, 1, 2, 24, 16), None),
        (LayerNorm(), "nd", (24, 16), None),
    ],
)
def test_a_candidate_is_called_with_the_axes_of_the_benchmark(spec, order, shape, wanted) -> None:
    """A reference for any number of axes was called with two, for which the candidate may have no code."""
    benchmark = Benchmark((), (shape,) * 3)
    assert _layout_of_arrays(Convention((), layout=order), spec, benchmark) == wanted


def test_own_inputs_of_another_number_of_axes_refute_nothing() -> None:
    """A reference for any number of axes is called with (b, h, n, d) first where it returns log-sums, too."""
    arguments = tuple(Argument(n, n, positional=True) for n in "qkv")
    session = SimpleNamespace(runner=SimpleNamespace(convention=Formed(arguments, order="bhnd")))
    benchmark = Benchmark((), ((3, 24, 16),) * 3, (np.zeros((3, 24, 16)),) * 3)
    assert _judge_own_inputs(session, Attention(lse=True), benchmark) == ""


def test_own_inputs_with_too_many_scores_are_not_bounded() -> None:
    """Heads that share keys are not cut, so that 32 of 4,096 tokens would take gigabytes."""
    q, k = np.broadcast_to(0.0, (1, 32, 4096, 64)), np.broadcast_to(0.0, (1, 8, 4096, 64))
    few = {"q": q[..., :512, :], "k": k[..., :512, :]}
    of = {dtype: Precision.of(dtype) for dtype in ("float32", "bfloat16")}
    assert not any(_describe_too_many_scores(few, p) for p in of.values())
    assert all(_describe_too_many_scores({"q": q, "k": k}, p) for p in of.values())


def test_own_inputs_are_those_that_the_call_gets() -> None:
    """Numbers of a wider format are rounded, by the definition as by the call."""
    arguments = tuple(Argument(n, n, positional=True) for n in "qkv")
    runner = SimpleNamespace(convention=Convention(arguments, dtype="float16"))
    arrays = by_definition(runner, [np.full((2, 2), 0.1)] * 3)
    assert (arrays["q"] == np.float64(np.float16(0.1))).all()


def test_one_query_of_several_keys_is_a_promise() -> None:
    """A kernel for decoding takes no more, wherever the axis of tokens is."""
    for shapes in ([(2, 8, 1, 32), (2, 8, 24, 32)], [(2, 1, 8, 32), (2, 24, 2, 32)]):
        domain = _domain_of_benchmark_shapes(Benchmark((), (*shapes, shapes[1])))
        assert (domain.decoding, domain.max_tokens, domain.square) == (True, 24, False)
    several = Benchmark((), ((2, 8, 24, 32), (2, 1, 24, 32), (2, 1, 24, 32)))
    assert _domain_of_benchmark_shapes(several).square
    assert not _domain_of_benchmark_shapes(several).decoding


def test_a_file_of_another_form_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("kernel.py").write_text("def f(q, k, v):\n    return v\n")
    with pytest.raises(InputError, match="has no Model"):
        judge("kernel.py", reference="kernel.py")
    with pytest.raises(InputError, match="no file of Python or JSON"):
        judge("kernel.py", reference="missing.py")


def test_own_inputs_are_cut_alike() -> None:
    shapes = [(2, 16, 2048, 128), (2, 16, 4096, 128), (4096, 4096)]
    arrays = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    assert [a.shape for a in _cut_together(arrays, None)] == [(1, 2, 2048, 128), (1, 2, 4096, 128), (4096, 4096)]
    assert [a.shape[:2] for a in _cut_together(arrays[:2], 1 << 22)] == [(1, 1), (1, 1)]
    turned = [np.broadcast_to(np.float32(0), (2, n, 16, 128)) for n in (2048, 4096)]
    assert [a.shape for a in _cut_together(turned, None)] == [(1, 2048, 2, 128), (1, 4096, 2, 128)]
    grouped = [np.zeros((32, 512, 128)), np.zeros((8, 512, 128))]
    assert [len(a) for a in _cut_together(grouped, None)] == [32, 8]


def test_classes_are_made_with_the_arguments_of_the_reference() -> None:
    benchmark = Benchmark((8, "a"))
    assert named("kernel.py", benchmark) == "kernel.py:ModelNew(8, 'a')"
    assert named("kernel.py:Fast", benchmark) == "kernel.py:Fast(8, 'a')"
    assert named("kernel.py:attention", benchmark) == "kernel.py:attention"


def test_a_target_may_be_an_instance(tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    path.write_text(
        "class Scaled:\n    def __init__(self, by=1):\n        self.by = by\n"
        "    def __call__(self, q, k, v):\n        return self.by * v\n\ndef plain(q, k, v):\n    return v\n"
    )
    assert load(f"{path}:Scaled(by=3)").function(None, None, 2) == 6
    for wrong in ("Scaled", "plain()"):
        with pytest.raises(NotCallable, match=r"hint|instance"):
            load(f"{path}:{wrong}")
    with pytest.raises(InputError, match="literals"):
        load(f"{path}:Scaled(print(1))")


def test_a_reference_is_called_in_half_precision_after_all_ways_in_float32() -> None:
    """Its text may round the outputs to the format of the benchmark, whatever it takes."""
    specs = [Attention(), Attention(causal=True)]
    half = TargetOptions(dtype="bfloat16", secret=())
    ways = [*_yield_ways_by_format([(spec, half) for spec in specs])]
    assert [(spec, how.dtype, how.contract) for spec, _, how in ways] == [
        *((spec, "float32", None) for spec in specs),
        *((spec, "bfloat16", "fused") for spec in specs),
    ]
    assert all(way is half and how.secret is None for _, way, how in ways)
    wide = TargetOptions(dtype="float32", secret=())
    assert len([*_yield_ways_by_format([(Attention(), wide)])]) == 1


@pytest.mark.torch
@pytest.mark.deep
def test_recurrences_are_made_only_if_no_attention_is_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recurrences(*_: object) -> None:
        raise AssertionError("hundreds of definitions were made")

    monkeypatch.setattr(references, "plausible_recurrences", recurrences)
    reference, kernel = tmp_path / "reference.py", tmp_path / "kernel.py"
    reference.write_text(REFERENCE.replace("{causal}", ""))
    kernel.write_text(KERNEL.replace("{axes}", "3"))
    assert judge(str(kernel), reference=str(reference), examples=4, seed=3).passed


def test_files_of_code_and_data_are_hashed_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("b.py", "a/c.json", "a/d.pyc", "e.md"):
        (tmp_path / name).touch()
    assert sorted(yield_own_files(str(tmp_path), "")) == [(n, str(tmp_path / n)) for n in ("a/c.json", "b.py")]
