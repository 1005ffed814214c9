"""References of benchmarks that compute a linear attention, and the kernels judged by them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Domain, LinearAttention, judge, reports
from symattn.programs.judging.benchmark import read_benchmark
from symattn.programs.judging.definition_file import read_definition
from symattn.programs.judging.recurrences import domain_of_recurrence
from symattn.verification import engine
from tests.refusals import refuses

ROWS = {"q": (2, 64, 4, 8), "k": (2, 64, 4, 8), "v": (2, 64, 4, 8)}
MODULE = """
import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v, g, beta):
        q, k = (x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
        state = torch.zeros(*v.shape[:1], *v.shape[2:], k.shape[-1]).to(v).transpose(-1, -2)
        out = []
        for i in range(q.shape[1]):
            state = state * g[:, i, :, None, None].exp()
            read = torch.einsum("bhd,bhde->bhe", k[:, i], state)
            state = state + k[:, i, :, :, None] * (BETA * (v[:, i] - read))[:, :, None]
            out.append(torch.einsum("bhd,bhde->bhe", q[:, i] / q.shape[-1] ** 0.5, state))
        return torch.stack(out, 1)


def get_inputs():
    q, k, v = (torch.randn(2, 20, 2, 8) for _ in range(3))
    return [q, k, v, -torch.rand(2, 20, 2), torch.rand(2, 20, 2)]


def get_init_inputs():
    return []
""".replace("BETA", "beta[:, i, :, None]")
PACKED = """
import torch


def run(q, k, v, g, beta, cu_seqlens, initial_state, scale):
    repeat = v.shape[1] // q.shape[1]
    q, k = (x.repeat_interleave(repeat, 1) for x in (q, k))
    out, states = torch.zeros_like(v), []
    for s in range(len(cu_seqlens) - 1):
        state = initial_state[s]
        for i in range(int(cu_seqlens[s]), int(cu_seqlens[s + 1])):
            state = state * g[i].exp()[:, None, None]
            u = beta[i][:, None] * (v[i] - torch.einsum("hk,hvk->hv", k[i], state))
            state = state + u[:, :, None] * k[i][:, None]
            out[i] = torch.einsum("hk,hvk->hv", q[i] * scale, state)
        states.append(state)
    return out, torch.stack(states)
"""


def packed_definition() -> dict[str, object]:
    shapes = {
        "q": ["t", "hq", "d"], "k": ["t", "hq", "d"], "v": ["t", "hv", "d"], "g": ["t", "hv"], "beta": ["t", "hv"],
        "cu_seqlens": ["ends"], "initial_state": ["s", "hv", "d", "d"], "scale": None,
    }  # fmt: skip
    variable = {axis: {"type": "var"} for axis in ("t", "s", "ends")}
    constant = {axis: {"type": "const", "value": size} for axis, size in (("hq", 2), ("hv", 4), ("d", 8))}
    outputs = {"output": shapes["v"], "final_state": shapes["initial_state"]}
    as_file = {
        name: {"shape": shape, "dtype": "int64" if name == "cu_seqlens" else "float32"}
        for name, shape in (shapes | outputs).items()
    }
    return {
        "axes": variable | constant,
        "inputs": {name: as_file[name] for name in shapes},
        "outputs": {name: as_file[name] for name in outputs},
        "reference": PACKED,
    }


@pytest.fixture
def plausible_recurrences(tmp_path: Path) -> Callable[..., tuple[LinearAttention, ...]]:
    """Return the linear attentions of a file whose inputs have these axes of constant sizes."""

    def recurrences(arrays: dict[str, tuple[int, ...]], returns_states: bool = False) -> tuple[LinearAttention, ...]:
        return kernel_of(tmp_path, arrays, returns_states).recurrences

    return recurrences


def kernel_of(folder: Path, arrays: dict[str, tuple[int, ...]], returns_states: bool = False) -> Any:
    sizes = {size for axes in arrays.values() for size in axes}
    array = {"shape": [], "dtype": "float32"}
    content = {
        "axes": {f"of {size}": {"type": "const", "value": size} for size in sizes},
        "inputs": {name: array | {"shape": [f"of {size}" for size in axes]} for name, axes in arrays.items()},
        "outputs": {"output": array} | ({"states": array} if returns_states else {}),
        "reference": "",
    }
    (path := folder / "definition.json").write_text(json.dumps(content))
    return read_definition(str(path))


@pytest.mark.deep
def test_names_and_axes_say_which_recurrences_are_plausible(plausible_recurrences: Any) -> None:
    gated = plausible_recurrences({**ROWS, "g": (2, 64, 4), "beta": (2, 64, 4)})
    assert gated[0] == LinearAttention.named("gated-deltanet")
    by_feature = plausible_recurrences({**ROWS, "gk": (2, 64, 4, 8), "beta": (2, 64, 4)})
    assert by_feature[0] == LinearAttention.named("kda")
    shared = {**ROWS, "v": (2, 64, 8, 8), "g": (2, 64, 8), "beta": (2, 64, 8), "h0": (2, 8, 8, 8)}
    assert {(spec.values_per_key, spec.state) for spec in plausible_recurrences(shared, True)} == {(2, "kv"), (2, "vk")}
    raw = {**ROWS, "a": (2, 64, 4), "A_log": (4,), "dt_bias": (4,), "beta": (2, 64, 4)}
    assert {spec.gate_form for spec in plausible_recurrences(raw)} == {"softplus"}
    assert {spec.beta_form for spec in plausible_recurrences(raw)} == {None, "sigmoid"}
    # In public gates of gated delta rules a and b are raw, and b is no key.
    layers = {**ROWS, "state": (2, 4, 8, 8), "A_log": (4,), "a": (2, 64, 4), "dt_bias": (4,), "b": (2, 64, 4)}
    assert ("softplus", "sigmoid") in {(s.gate_form, s.beta_form) for s in plausible_recurrences(layers, True)}
    assert not plausible_recurrences({**ROWS, "temperature": (4,)})
    assert not plausible_recurrences({"x": (2, 64, 32)})


@pytest.mark.deep
def test_arrays_are_recognised_by_the_letters_of_models_of_states(plausible_recurrences: Any, tmp_path: Path) -> None:
    rows, tokens = (2, 64, 4, 8), (2, 64, 4)
    groups = {"x": rows, "dt": tokens, "A": (4,), "B": (2, 64, 2, 16), "C": (2, 64, 2, 16)}
    mamba = LinearAttention.named("mamba2")
    assert plausible_recurrences({**groups, "D": (4,)})[0] == mamba
    assert plausible_recurrences(groups)[0] == replace(mamba, skip=False)
    raw = plausible_recurrences({**groups, "D": (4,), "dt_bias": (4,)})
    assert raw[0] == replace(mamba, step_form="softplus")
    assert kernel_of(tmp_path, groups).layout == "bnhd"
    finch = dict.fromkeys(("r", "k", "v", "w"), rows)
    assert plausible_recurrences({**finch, "u": (4, 8)})[0] == LinearAttention.named("rwkv6")
    goose = dict.fromkeys(("r", "w", "k", "v", "a", "b"), rows)
    assert LinearAttention.named("rwkv7") in plausible_recurrences(goose)
    for name, axes in (("log_a", tokens), ("alpha", tokens), ("decay", rows)):
        assert plausible_recurrences({**ROWS, name: axes}), name
    # B and C alone are those of no states.
    assert not plausible_recurrences({"A": rows, "B": rows, "C": rows, "D": rows})


def test_widths_tell_the_layout_of_a_state(plausible_recurrences: Any, tmp_path: Path) -> None:
    wide = {**ROWS, "v": (2, 64, 4, 16), "g": (2, 64, 4), "beta": (2, 64, 4)}
    for state, shape in (("kv", (2, 4, 8, 16)), ("vk", (2, 4, 16, 8))):
        assert {spec.state for spec in plausible_recurrences({**wide, "h0": shape}, True)} == {state}
    definition: dict[str, Any] = packed_definition()
    definition["axes"] |= {"dv": {"type": "const", "value": 16}}
    definition["inputs"]["v"]["shape"] = definition["outputs"]["output"]["shape"] = ["t", "hv", "dv"]
    definition["inputs"]["initial_state"]["shape"] = ["s", "hv", "dv", "d"]
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(definition))
    (form,) = read_definition(str(path)).forms()
    assert form.recurrent is not None
    assert dict(form.recurrent.sizes) == {"h": 2, "d_k": 8, "d_v": 16}


def test_arrays_of_something_else_promise_nothing(tmp_path: Path) -> None:
    """A user may give the definition of a file whose names are others."""
    assert domain_of_recurrence({"x": (2, 64, 32)}, Domain()) == Domain()
    assert domain_of_recurrence({name: (8,) for name in "qkv"}, Domain()) == Domain()
    square = {**ROWS, "state": (8, 8)}
    assert domain_of_recurrence(square, Domain()).max_tokens == 64
    definition: dict[str, Any] = packed_definition()
    definition["inputs"] = {{"q": "C"}.get(name, name): axes for name, axes in definition["inputs"].items()}
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(definition))
    kernel, sizes = read_definition(str(path)), {"t": 30, "s": 3, "ends": 4}
    refuses(kernel.letters_of_workload, LinearAttention.named("mamba2"), sizes, says="not those of a linear attention")
    # Offsets are an array of one axis.
    definition = packed_definition()
    definition["inputs"]["cu_seqlens"]["shape"] = None
    path.write_text(json.dumps(definition))
    assert not read_definition(str(path)).recurrences


def test_heads_are_told_from_tokens() -> None:
    """A state has the heads; else the longer axis has the tokens."""
    long = {**ROWS, "g": (2, 64, 4), "beta": (2, 64, 4)}
    assert domain_of_recurrence(long, Domain()).max_tokens == 64
    one = {"q": (3, 1, 8, 16), "k": (3, 1, 8, 16), "v": (3, 1, 8, 16), "g": (3, 1, 8), "state": (3, 8, 16, 16)}
    assert domain_of_recurrence(one, Domain()).max_tokens == 1
    turned = {"q": (3, 8, 2, 16), "k": (3, 8, 2, 16), "v": (3, 8, 2, 16), "g": (3, 8, 2), "state": (3, 8, 16, 16)}
    assert domain_of_recurrence(turned, Domain()).max_tokens == 2


OF_NUMPY = """
import numpy as np

class Model:
    def forward(self, {names}):
        return v

    __call__ = forward

def get_inputs():
    return [np.zeros(shape, np.float32) for shape in {shapes}]

def get_init_inputs():
    return []
"""


@pytest.mark.deep
@pytest.mark.parametrize("is_recurrence", [True, False])
def test_batches_and_heads_are_cut_and_tokens_stay(tmp_path: Path, is_recurrence: bool) -> None:
    n = 1 << 11
    shapes = {"q": (2, n, 16, 32), "k": (2, n, 16, 32), "v": (2, n, 32, 32)}
    if is_recurrence:
        shapes |= {"g": (2, n, 32), "beta": (2, n, 32), "A_log": (32,), "dt_bias": (32,)}
    (path := tmp_path / "ref.py").write_text(OF_NUMPY.format(names=", ".join(shapes), shapes=[*shapes.values()]))
    cut = [a.shape for a in read_benchmark(str(path)).arrays]
    if is_recurrence:  # one head of keys has two of values
        assert cut[:5] == [(1, n, 8, 32)] * 2 + [(1, n, 16, 32)] + [(1, n, 16)] * 2
        assert cut[5:] == [(16,)] * 2
    else:
        assert cut == [(1, n, 16, 32)] * 2 + [(1, n, 32, 32)]


@pytest.mark.torch
def test_a_module_of_a_recurrence_judges_kernels(tmp_path: Path) -> None:
    reference, kernel = tmp_path / "reference.py", tmp_path / "kernel.py"
    reference.write_text(MODULE)
    as_kernel = MODULE.replace("class Model", "class ModelNew")
    kernel.write_text(as_kernel.replace("beta[:, i, :, None] *", "1.0 *"))
    wrong = judge(str(kernel), reference=str(reference))
    assert wrong.status is reports.Status.FAIL
    assert wrong.definition.startswith("LinearAttention(feature='identity', normalised=False, gate='token', delta=True")
    kernel.write_text(
        "import torch\nclass ModelNew:\n    def __call__(self, q, k, v, g, beta):\n        return 0 * v\n"
    )
    assert judge(str(kernel), reference=str(reference)).status is reports.Status.FAIL


@pytest.mark.torch
@pytest.mark.deep
def test_a_right_recurrence_passes_at_the_own_inputs_too(tmp_path: Path) -> None:
    reference, kernel = tmp_path / "reference.py", tmp_path / "kernel.py"
    reference.write_text(MODULE)
    kernel.write_text(MODULE.replace("class Model", "class ModelNew"))
    right = judge(str(kernel), reference=str(reference), examples=5)
    assert right.passed, right
    assert right.own_inputs is not None
    shown = {row.mistake: row.smallest for row in right.own_inputs.power}
    assert shown["all zeros"] == 1
    assert all(smallest is not None for smallest in shown.values())


def test_a_file_says_how_a_kernel_takes_sequences(tmp_path: Path) -> None:
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(packed_definition()))
    kernel = read_definition(str(path))
    assert kernel.layout == "bnhd"
    assert kernel.domain().same_width
    assert kernel.keeps_wide_states
    (form,) = kernel.forms()
    assert form.recurrent is not None
    assert (form.recurrent.offsets, form.recurrent.scale) == ("cu_seqlens", "scale")
    assert dict(form.recurrent.sizes) == {"h": 2, "d_k": 8, "d_v": 8}
    letters = kernel.letters_of_workload(kernel.recurrences[0], {"t": 30, "s": 3, "ends": 4})
    # One neighbour comes before sequences of ten tokens, and is one of the three.
    assert letters == {"b": 2, "n": 10, "h": 2, "d_k": 8, "d_v": 8}
    # An input that nobody reads leaves nothing to be sought.
    unread = packed_definition()
    unread["inputs"] = {**unread["inputs"], "mode": {"shape": None, "dtype": "int32"}}  # type: ignore[dict-item]
    path.write_text(json.dumps(unread))
    assert not read_definition(str(path)).recurrences


@pytest.mark.torch
def test_sequences_that_run_together_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, kernel = tmp_path / "definition.json", tmp_path / "kernel.py"
    path.write_text(json.dumps(packed_definition()))
    bounded: list[str] = []
    recognised = engine.recognised
    monkeypatch.setattr(engine, "recognised", lambda s: bounded.append(s.subject.title) or recognised(s))
    together = PACKED.replace("state = initial_state[s]", "state = initial_state[s] if s == 0 else state")
    kernel.write_text(together)
    wrong = judge(str(kernel), reference=str(path))
    assert wrong.status is reports.Status.FAIL
    assert "values_per_key=2, state='vk'" in wrong.definition
    # Recurrences with norms, or with states of another layout, are far off on the first inputs.
    assert len(bounded) == 1
    kernel.write_text(PACKED.replace("x.repeat_interleave(repeat, 1)", "x.repeat(1, repeat, 1)"))
    assert judge(str(kernel), reference=str(path)).status is reports.Status.FAIL


@pytest.mark.torch
def test_what_a_kernel_changes_in_joined_arrays_is_returned(tmp_path: Path) -> None:
    """A kernel that updates its states in place changes an input of its caller."""
    import torch

    path = tmp_path / "definition.json"
    path.write_text(json.dumps(packed_definition()))
    (form,) = read_definition(str(path)).forms()

    ends: list[list[int]] = []

    def run(q, k, v, g, beta, cu_seqlens, initial_state, scale):  # type: ignore[no-untyped-def]
        initial_state += 1
        ends.append(cu_seqlens.tolist())
        return v, initial_state

    rng = np.random.default_rng(0)
    for n in (4, 5, 6):
        shapes = {"q": (2, n, 2, 8), "k": (2, n, 2, 8), "v": (2, n, 4, 8), "g": (2, n, 4), "beta": (2, n, 4)}
        arrays = {name: torch.as_tensor(rng.normal(size=shape)) for name, shape in shapes.items()}
        states = torch.zeros(2, 4, 8, 8, dtype=torch.float64)
        output, final = form.around(run, "run")(*arrays.values(), states)
        assert torch.equal(output, arrays["v"])
        assert (states == 1).all()
        assert (final == 1).all()
    # Each side is without another sequence once.
    assert ends == [[0, 7, 11, 15], [0, 5, 10, 11], [0, 9, 15, 21, 22]]


SSD = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, dt, A, B, C):
        B, C = (y.repeat_interleave(x.shape[2] // y.shape[2], 2) for y in (B, C))
        state = torch.zeros(*x[:, 0].shape, B.shape[-1])
        out = []
        for i in range(x.shape[1]):
            state = state * (dt[:, i] * A).exp()[..., None, None]
            state = state + (dt[:, i, :, None] * x[:, i])[..., None] * B[:, i, :, None]
            out.append((state * READ[:, i, :, None]).sum(-1))
        return torch.stack(out, 1)


def get_inputs():
    x, dt, A = torch.randn(2, 20, 4, 3), torch.rand(2, 20, 4), -torch.rand(4)
    return [x, dt, A, torch.randn(2, 20, 2, 5), torch.randn(2, 20, 2, 5)]


def get_init_inputs():
    return []
"""


@pytest.mark.torch
@pytest.mark.parametrize(("read", "is_right"), [pytest.param("C", True, marks=pytest.mark.exhaustive), ("B", False)])
def test_a_model_of_states_is_judged_by_its_letters(tmp_path: Path, read: str, is_right: bool) -> None:
    reference, kernel = tmp_path / "reference.py", tmp_path / "kernel.py"
    reference.write_text(SSD.replace("READ", "C"))
    kernel.write_text(SSD.replace("READ", read).replace("Model(", "ModelNew("))
    judgement = judge(str(kernel), reference=str(reference), examples=4)
    assert "step=True" in judgement.definition or "mamba2" in judgement.definition, judgement
    assert judgement.passed is is_right, judgement
    assert (judgement.own_inputs is not None) is is_right
