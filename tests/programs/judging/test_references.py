"""Candidates that are judged by the file of a benchmark, with ``Model``, ``get_inputs`` and ``get_init_inputs``."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from symattn import Attention, InputError, Precision, judge, reports
from symattn.bounds.called_target import Argument, Convention
from symattn.programs.child import TargetOptions
from symattn.programs.definitions import Formed
from symattn.programs.judging import references
from symattn.programs.judging.benchmark import Benchmark, read_benchmark
from symattn.programs.judging.benchmark_inputs import by_definition
from symattn.programs.judging.hashes import yield_own_files
from symattn.programs.judging.references import (
    _describe_too_many_scores,
    _judge_own_inputs,
    _yield_ways_by_format,
)
from symattn.programs.loading import load
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
    assert (wrong.status, wrong.exit_code) == (reports.Status.FAIL, 1)


@pytest.mark.torch
@pytest.mark.deep
def test_a_causal_reference_refuses_a_kernel_without_a_mask(folder: Path) -> None:
    assert judge("kernel.py:Causal", reference="masked.py", examples=10).passed
    wrong = judge("kernel.py", reference="masked.py")
    assert (wrong.status, wrong.definition) == (reports.Status.FAIL, "Attention(causal=True)")


@pytest.mark.torch
def test_a_reference_that_computes_no_definition_is_invalid(folder: Path) -> None:
    judgement = judge("kernel.py", reference="none.py")
    assert (judgement.status, judgement.exit_code) == (reports.Status.INVALID_REFERENCE, 2)
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
    assert (tiled.status, tiled.definition) == (reports.Status.FAIL, "Attention(heads=4, kv_heads=2)")


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
    assert judge("grouped.py:Tiled", reference="grouped.py").status is reports.Status.FAIL


@pytest.mark.torch
def test_a_window_longer_than_small_inputs_is_no_plain_attention(folder: Path) -> None:
    """Only the reference's own inputs show it, without which a kernel that has no window would pass."""
    mask = ", torch.ones(200, 200, dtype=torch.bool).triu(-150)"
    windowed = REFERENCE.replace("{causal}", mask).replace("2, 3, 24, 16", "200, 4")
    folder.joinpath("window.py").write_text(windowed.replace("(200, 200", "(*[Q.shape[-2]] * 2"))
    assert judge("kernel.py", reference="window.py").status is reports.Status.INVALID_REFERENCE


@pytest.mark.torch
def test_a_layer_with_a_window_longer_than_small_inputs_is_no_plain_one(folder: Path) -> None:
    mask = "attn_mask=torch.ones(*[x.shape[-2]] * 2, dtype=torch.bool).tril().triu(-150)"
    windowed = TOKENS.replace("is_causal=True", mask).replace("2, 20, 16", "2, 200, 16")
    folder.joinpath("window.py").write_text(windowed)
    assert judge("tokens.py:Model", reference="window.py").status is reports.Status.INVALID_REFERENCE


@pytest.mark.torch
def test_heads_may_be_among_the_arguments_of_a_model(folder: Path) -> None:
    folder.joinpath("tokens.py").write_text(TOKENS.replace("self.n_head", "self.number"))
    wrong = folder / "wrong.py"
    wrong.write_text(TOKENS.replace("self.n_head", "self.number").replace("is_causal=True", "scale=0.5"))
    judgement = judge("wrong.py:Model", reference="tokens.py")
    assert judgement.status is reports.Status.FAIL, judgement
    assert judgement.definition == "Attention(causal=True, heads=2)"


OF_NUMPY = """
import numpy as np

class Model:
    def __init__(self, *numbers):
        self.__dict__ |= {own}

    def __call__(self, *arrays):
        return arrays[-1]

def get_inputs():
    return [np.zeros(shape, np.{dtype}) for shape in {shapes}]

def get_init_inputs():
    return {init}
"""


def benchmark_of(folder: Path, own: dict, init: tuple, shapes: list, dtype: str = "float32") -> Benchmark:
    """Return what is read of the file of a model without torch."""
    (path := folder / "of_numpy.py").write_text(OF_NUMPY.format(own=own, init=init, shapes=shapes, dtype=dtype))
    return read_benchmark(str(path))


def test_numbers_of_heads_that_a_reference_may_have(tmp_path: Path) -> None:
    several = benchmark_of(tmp_path, {"width": 64, "h": 4}, (64, 4, 0.1, True), [(2, 20, 64)])
    assert several.heads == (4, 1)
    assert benchmark_of(tmp_path, {"n_head": 8}, (64, 4), [(2, 20, 64)]).heads == (8,)


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


@pytest.mark.torch
@pytest.mark.deep
def test_a_candidate_is_called_with_the_axes_of_the_benchmark(folder: Path) -> None:
    """A reference for any number of axes was called with two, for which the candidate may have wrong code."""
    refused = 'raise ValueError(f"{len(axes)} axes before the columns")'
    own = KERNEL.replace("{axes}", "3").replace(refused, "return 0 * Q")
    folder.joinpath("own.py").write_text(own)
    judgement = judge("own.py", reference="ref.py", examples=5)
    assert judgement.passed, judgement


@pytest.mark.torch
@pytest.mark.deep
@pytest.mark.parametrize("shapes", ["(2, 3, 1, 16), (2, 3, 24, 16)", "(2, 1, 8, 16), (2, 24, 2, 16)"])
def test_one_query_of_several_keys_is_a_promise(folder: Path, shapes: str) -> None:
    """A kernel for decoding takes no more, wherever the axis of tokens is."""
    query, keys = shapes.removesuffix(")").split("), ")
    axis = 2 if ", 1, 16" in query else 1
    turned = "" if axis == 2 else ".transpose(1, 2)"
    forward = f"""
    def forward(self, Q, K, V):
        Q, K, V = (x{turned} for x in (Q, K, V))
        K, V = (x.repeat_interleave(Q.shape[1] // K.shape[1], 1) for x in (K, V))
        return torch.nn.functional.scaled_dot_product_attention(Q, K, V){turned}
"""
    inputs = f"""
def get_inputs():
    return [torch.rand(*shape) for shape in ({query}), {keys}), {keys}))]

def get_init_inputs():
    return []
"""
    head = "import torch\nfrom torch import nn\n\nclass Model(nn.Module):"
    folder.joinpath("decoding.py").write_text(head + forward + inputs)
    checked = f"        if Q.shape[{axis}] > 1:\n            return 0 * Q\n        Q, K, V = ("
    own = head.replace("Model", "ModelNew") + forward.replace("        Q, K, V = (", checked)
    folder.joinpath("own.py").write_text(own)
    judgement = judge("own.py", reference="decoding.py", examples=5)
    assert judgement.passed, judgement


@pytest.mark.deep
def test_a_file_of_another_form_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("kernel.py").write_text("def f(q, k, v):\n    return v\n")
    with pytest.raises(InputError, match="has no Model"):
        judge("kernel.py", reference="kernel.py")
    with pytest.raises(InputError, match="no file of Python or JSON"):
        judge("kernel.py", reference="missing.py")


def test_own_inputs_are_cut_alike(tmp_path: Path) -> None:
    def cut(*shapes: tuple[int, ...], dtype: str = "float32") -> list[tuple[int, ...]]:
        return [a.shape for a in benchmark_of(tmp_path, {}, (), [*shapes], dtype).arrays]

    shapes = [(2, 16, 1024, 128), (2, 16, 2048, 128), (2048, 1024)]
    assert cut(*shapes) == [(1, 4, 1024, 128), (1, 4, 2048, 128), (2048, 1024)]
    # In half precision the scores are few.
    assert [shape[:2] for shape in cut((2, 2, 2048, 16), (2, 2, 2048, 16), dtype="float16")] == [(1, 1), (1, 1)]
    turned = [(2, n, 16, 128) for n in (1024, 2048)]
    assert cut(*turned) == [(1, 1024, 4, 128), (1, 2048, 4, 128)]
    assert [shape[0] for shape in cut((32, 512, 128), (8, 512, 128))] == [32, 8]


def test_a_target_may_be_an_instance(tmp_path: Path) -> None:
    path = tmp_path / "made.py"
    path.write_text(
        "class Scaled:\n    def __init__(self, by=1):\n        self.by = by\n"
        "    def __call__(self, q, k, v):\n        return self.by * v\n\ndef plain(q, k, v):\n    return v\n"
    )
    assert load(f"{path}:Scaled(by=3)").function(None, None, 2) == 6
    for wrong in ("Scaled", "plain()"):
        with pytest.raises(InputError, match=r"hint|instance"):
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
