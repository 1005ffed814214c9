"""Functions of tensors as graphs of the operators that they call: what is recorded, and what ends a recording."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, graphs, kind
from symattn.programs.child import Child
from symattn.programs.graphs.torch_recorder import record
from symattn.programs.process import SharedMark, apart
from symattn.programs.request import Request

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch
Tensor = Any
COMPILER = "torch._dynamo"
SHAPES = [(2, 4), (5, 4), (5, 3)]
CONSTANT = torch.tensor([1.0, 2.0, 3.0])
KEPT: list[Tensor] = []


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of the same process may have loaded torch.compile."""
    monkeypatch.delitem(sys.modules, COMPILER, raising=False)


def recorded(function: Callable[..., Any]) -> Any:
    return record(function, SHAPES, "float32", "f")


def computed(graph: Any, *arrays: Any) -> Any:
    """Return the first output of a recorded graph for its inputs, in order."""
    return graphs.run(graph, dict(zip((x.name for x in graph.inputs), arrays, strict=True)), arrays[0])[0]


def with_constant(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1) @ v) * CONSTANT + torch.tensor(0.5)


def test_a_recorded_graph_computes_what_the_function_does() -> None:
    graph = recorded(with_constant)
    rng, enclosure = np.random.default_rng(1), kind("enclosure")
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in SHAPES]
    got = computed(graph, *map(enclosure.lift, arrays))
    expected = with_constant(*map(torch.from_numpy, arrays)).numpy()
    np.testing.assert_allclose(got.mid, expected, rtol=1e-5)


def test_several_results_are_items_and_unused_nodes_are_left_out() -> None:
    def split(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        unused = q.sum()
        first, _ = k.chunk(2, -1)
        return first, q.max(-1).values + 0 * unused if unused is None else q.max(-1).values

    graph = recorded(split)
    operators = [node.operator for node in graph.nodes]
    assert operators == ["aten.split", "getitem", "aten.max", "getitem"]
    assert len(graph.outputs) == 2


def test_a_sum_over_an_empty_list_of_axes_is_that_of_all() -> None:
    graph, enclosure = recorded(lambda q, k, v: q.sum(()) + k.mean(())), kind("enclosure")
    arrays = [enclosure.lift(np.ones(shape)) for shape in SHAPES]
    np.testing.assert_allclose(computed(graph, *arrays).mid, 9.0)


#: Functions that take what the rules of torch's operators leave out.
TAKERS: dict[str, Callable[..., Any]] = {
    "indices": lambda q, k, v: q[:, k.max(0).indices],
    "a limit": lambda q, k, v: torch.clamp(q, min=torch.native_layer_norm(q, (4,), None, None, 1e-5)[1]),
}


@pytest.mark.parametrize("words", TAKERS)
def test_a_result_that_a_rule_leaves_out_is_no_missing_operand(words: str) -> None:
    graph, enclosure = recorded(TAKERS[words]), kind("enclosure")
    arrays = [enclosure.lift(np.ones(shape)) for shape in SHAPES]
    with pytest.raises(InputError, match="is not read"):
        computed(graph, *arrays)


@pytest.mark.parametrize("causal", [False, True])
def test_torchs_own_attention_is_one_operator(causal: bool) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention
    graph = recorded(lambda q, k, v: attention(q, k, v, is_causal=causal, scale=0.5))
    (node,) = graph.nodes
    assert node.operator == "aten.scaled_dot_product_attention"
    assert node.operands[3:] == (None, 0.0, causal)
    assert node.attributes == {"scale": 0.5}


@pytest.mark.parametrize("derives", [False, True])
def test_a_derivative_of_torchs_own_attention_ends_a_recording(derives: bool) -> None:
    def with_gradient(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        x = q.detach().requires_grad_()
        with torch.set_grad_enabled(derives):
            attended = torch.nn.functional.scaled_dot_product_attention(x, k, k)
        return torch.autograd.grad((x + attended).sum(), x)[0] if derives else attended

    if not derives:
        assert recorded(with_gradient).nodes[-1].operator == "aten.scaled_dot_product_attention"
        return
    with pytest.raises(InputError, match="derives"):
        recorded(with_gradient)


def test_operators_within_a_function_of_torch_are_recorded() -> None:
    graph = recorded(lambda q, k, v: 1 - torch.nn.functional.layer_norm(q, (4,)))
    operators = [node.operator for node in graph.nodes]
    assert operators == ["aten.native_layer_norm", "getitem", "aten.rsub"]


def keeps(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    KEPT.append(q)
    return KEPT[0] @ k.T


def replaces_contents(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    result = q * 1
    result.data = q * 2
    return result


ENDINGS: dict[str, Callable[..., Any]] = {
    "a number": lambda q, k, v: q if q.sum().item() > 0 else k,
    "a condition": lambda q, k, v: q if (q > 0).all() else k,
    "a list": lambda q, k, v: q * q.tolist()[0][0],
    "an array": lambda q, k, v: q * float(q.numpy()[0, 0]),
    "NumPy": lambda q, k, v: q * float(np.asarray(q)[0, 0]),
    "another library": lambda q, k, v: q * float(np.from_dlpack(q)[0, 0]),
    "memory": lambda q, k, v: q * q.data_ptr(),
    "storage": lambda q, k, v: q * q.untyped_storage().data_ptr(),
    "a comparison": lambda q, k, v: q if torch.equal(q, q) else k,
    "a mask as an index": lambda q, k, v: q[q > 0],
    "a mask of constants": lambda q, k, v: v[:, torch.tensor([True, False, True])],
    "writing": lambda q, k, v: q.mul_(2.0),
    "writing into a part": lambda q, k, v: torch.zeros(2, 4)[:, :2].copy_(q[:, :2]),
    "chance": lambda q, k, v: torch.rand(2, 4) * q,
    "an unknown operator": lambda q, k, v: q.sort(-1).values,
    "no tensor": lambda q, k, v: (q, 1),
    "a constant": lambda q, k, v: CONSTANT,
    "an error": lambda q, k, v: q @ v,
    "attention with dropout": lambda q, k, v: torch.nn.functional.dropout(q, 0.5),
    "replaced contents": replaces_contents,
}

#: What is said of a function whose recording ends.
ENDED = (
    r"^f (calls aten\.\S+, which is not recorded|reads the memory of a tensor, or replaces it"
    r"|returns other things than computed tensors|cannot be recorded: RuntimeError: .*)"
)


@pytest.mark.parametrize("words", ENDINGS)
def test_what_calls_of_operators_do_not_say_ends_a_recording(words: str) -> None:
    with pytest.raises(InputError, match=ENDED):
        recorded(ENDINGS[words])


def reads_in_a_thread(q: Tensor) -> Tensor:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(q.tolist).result()


#: What a function may try, with another way for the case that it fails.
TRIED: dict[str, Callable[..., Any]] = {
    "writing": lambda q: q.mul_(2.0),
    "an unknown operator": lambda q: q.sort(-1).values,
    "an array": lambda q: q.numpy(),
    "memory": lambda q: q.untyped_storage()[0],
    "an error that zeros cause": lambda q: torch.ops.aten.linalg_inv.default(q.T @ q),
    "an error that tensors without memory cause": lambda q: torch.tensor([q[0, 0]]),
    "a thread": reads_in_a_thread,
}


@pytest.mark.parametrize("words", TRIED)
def test_an_end_that_the_function_catches_ends_the_recording(words: str) -> None:
    def catches(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with suppress(Exception):
            TRIED[words](q)
        return q @ k.T

    with pytest.raises(InputError, match=ENDED):
        recorded(catches)


def test_errors_that_have_nothing_to_do_with_torch_end_no_recording() -> None:
    def catches(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with suppress(ImportError):
            import a_library_that_is_not_there  # noqa: F401
        return q @ k.T

    assert recorded(catches).nodes[-1].operator == "aten.mm"


def test_what_is_compiled_within_the_function_ends_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiles(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        monkeypatch.setitem(sys.modules, COMPILER, sys)
        return q

    with pytest.raises(InputError, match="compiled"):
        recorded(compiles)


BUFFER = np.ones(2, np.float32)


def writes_between_uses(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    shared = torch.from_numpy(BUFFER[:1])
    BUFFER[0] = 0.5
    scores = q @ k.T * shared
    BUFFER[0] = 2.0
    return scores * shared


def writes_behind_a_view(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    BUFFER[0] = 0.5
    part = torch.from_numpy(BUFFER)[:1]
    BUFFER[0] = 2.0
    return q * part


def writes_into_a_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seen = np.tri(2, 5) > 0
    scores = torch.where(torch.from_numpy(seen), q @ k.T, -100.0)
    seen[:] = True
    return scores


WRITERS = [writes_between_uses, writes_behind_a_view, writes_into_a_mask]


@pytest.mark.parametrize("function", WRITERS)
def test_numpys_writing_into_a_constant_ends_a_recording(function: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="changes tensors"):
        recorded(function)


def test_a_tensor_of_an_earlier_recording_ends_a_later_one() -> None:
    KEPT.clear()
    recorded(keeps)
    with pytest.raises(InputError, match="between calls"):
        recorded(keeps)


def test_compiled_code_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, COMPILER, sys)
    with pytest.raises(InputError, match="compiled"):
        recorded(with_constant)


def test_a_recording_loads_no_compiler() -> None:
    code = (
        "import sys, torch\nfrom symattn.programs.graphs.torch_recorder import record\n"
        "f = lambda q, k, v: torch.softmax((q @ k.T).masked_fill(torch.ones(2, 5).tril() == 0, -torch.inf), -1) @ v\n"
        f"record(f, [(2, 4), (5, 4), (5, 3)], 'bfloat16', 'f')\nsys.exit({COMPILER!r} in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_only_a_copy_sets_a_mark() -> None:
    mark = SharedMark()
    assert not mark.set()
    assert not mark.take()
    assert apart(lambda: [mark.set()], 10.0) == [True]
    assert mark.take()
    assert not mark.take()


TARGET = """
import torch

def in_place(q, k, v):
    s = (q @ k.mT).div_(q.shape[-1] ** {power})
    return torch.softmax(s, -1) @ v
"""


@pytest.mark.deep
@pytest.mark.parametrize(("power", "agrees"), [(0.5, True), (1.0, False)])
def test_what_is_not_recorded_is_exported_in_a_second_copy(power: float, agrees: bool, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(TARGET.format(power=power))
    with Child(f"{path}:in_place", Request(framework="torch", dtype="float32")) as runner:
        result = runner.semantics(Attention(), 60.0)
    assert result is not None
    assert result.agrees is agrees, result.reason
