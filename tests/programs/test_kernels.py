"""Kernels of Triton on residues: right ones are equal with a bound, a mistake in one line is a difference."""

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from symattn import Attention, Domain, verify
from symattn.programs import triton_host
from symattn.programs.identity import identity
from symattn.programs.request import Request
from symattn.programs.target import target
from symattn.verification.semantics import IdentityResult

pytestmark = [pytest.mark.guests, pytest.mark.filterwarnings("ignore")]

SOURCE = Path(__file__).with_name("kernels_of_triton.py")
WIDE = Domain(square=True, same_width=True, width_multiple_of=16)
#: The functions, with the specification, the layout, and the promises that they need.
RIGHT: dict[str, tuple[Attention, Any, Domain]] = {
    "plain": (Attention(), "nd", Domain()),
    "output": (Attention(causal=True, heads=4, kv_heads=2), "bhnd", Domain()),
    "turned": (Attention(causal=True, heads=2), "bnhd", Domain()),
    "square": (Attention(), "nd", WIDE),
    "split": (Attention(), "nd", Domain()),
    "merged_by_torch": (Attention(), "nd", Domain()),
    "without_kernels": (Attention(), "nd", Domain()),
    "tuned": (Attention(), "nd", Domain()),
    "prepared": (Attention(), "nd", Domain()),
}
UNMASKED = (Attention(), "nd", Domain(square=True, same_width=True, min_width=16, width_powers_of_two=True))
#: A function, a line in what it runs, and a mistake in it.
MISTAKES = (
    ("plain", "tl.where(j[None, :] < n_k, tl.dot(x", "tl.where(j[None, :] >= 0, tl.dot(x"),
    ("plain", "acc * old[:, None] + tl.dot(p.to(z", "acc + tl.dot(p.to(z"),
    ("plain", "total = total * old + tl.sum(p, 1)", "total = total + tl.sum(p, 1)"),
    ("plain", "for start in range(0, n_k, T)", "for start in range(0, n_k - T, T)"),
    ("plain", "q + i[:, None] * d", "q + (i[:, None] + 1) % n_q * d"),
    ("plain", "D=padded(d), E=padded(e), T=T)\n    return o\n", "D=16, E=padded(e), T=T)\n    return o\n"),
    ("output", "<= i[:, None] + n_k - n_q", "<= i[:, None]"),
    ("output", "<= i[:, None] + n_k", "< i[:, None] + n_k"),
    ("output", "g // group * kh", "g % group * kh"),
    ("output", "v += b * vb + g // group", "v += b * kb + g // group"),
    ("output", "scale *= 1.44269504", "scale *= 1.442"),
    ("output", "first + T + n_k - n_q", "first + T"),
    ("square", "of_k.load([start, 0]).T", "of_k.load([first, 0]).T"),
    ("square", "tl.where(j[None, :] < n, tl.dot", "tl.where(j[None, :] < n + 1, tl.dot"),
    ("split", "tl.store(at + e, m + tl.log(total))", "tl.store(at + e, tl.log(total))"),
    ("split", "n_k, (part + 1) * size)", "n_k, (part + 1) * size - 1)"),
    ("split", "old, p = tl.exp(m - new), tl.exp(lse - new)", "old, p = tl.exp(m - new), tl.exp(lse)"),
    ("merged_by_torch", "weights[..., None]).sum(1)", "weights[..., None]).mean(1)"),
    ("tuned", "total += tl.sum(p, 1)\n        acc +=", "total += tl.sum(p, 1)\n        acc ="),
    ("prepared", "q.flip(0)])[0]", "q.flip(0)])[1]"),
)  # fmt: skip
#: Lines that may as well be written in another way.
LEGAL = (
    ("plain", "tl.dot(p.to(z.dtype), z)", "tl.dot(p.to(tl.bfloat16).to(z.dtype), z)"),
    ("plain", "old = tl.exp(s - new[:, None]), tl.exp(m - new)",
     "old = tl.exp(s - new[:, None]), tl.where(m == -float('inf'), 0.0, tl.exp(m - new))"),
    ("output", "-1.0e6", "-float('inf')"),
    ("output", "new = tl.maximum(m, tl.max(s, 1))\n    s -= new", "new = tl.max(s, 1)\n    s -= new"),
    ("split", "size: int = 20", "size: int = 16"),
)  # fmt: skip


@pytest.fixture
def functions(tmp_path: Path) -> Any:
    os.environ["TRITON_INTERPRET"] = "1"
    triton_host.prepare()

    def load(old: str = "", new: str = "") -> Any:
        text = SOURCE.read_text(encoding="utf-8")
        assert old in text
        file = tmp_path / f"kernels_{abs(hash((old, new)))}.py"
        file.write_text(text.replace(old, new) if old else text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module
        spec.loader.exec_module(module)
        return module

    yield load
    for name in [name for name in sys.modules if name.startswith("kernels_") and name[8:].isdecimal()]:
        del sys.modules[name]


def identified(module: Any, name: str, dtype: str = "") -> IdentityResult:
    spec, layout, domain = RIGHT.get(name, UNMASKED)
    request = Request(spec=spec, dtype=dtype or "float32", framework="torch", layout=layout, domain=domain)
    return identity(target(getattr(module, name), request), spec, domain=domain)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_is_equal_with_a_bound(functions: Any, name: str, dtype: str) -> None:
    found = identified(functions(), name, dtype)
    assert found.agrees, found.reason
    assert found.epsilon is not None
    assert found.epsilon <= 1e-12


@pytest.mark.parametrize(("name", "old", "new"), MISTAKES)
def test_a_mistake_in_one_line_is_a_difference(functions: Any, name: str, old: str, new: str) -> None:
    found = identified(functions(old, new), name)
    assert found.agrees is False, found.reason


@pytest.mark.parametrize(("name", "old", "new"), LEGAL)
def test_a_line_may_be_written_in_another_way(functions: Any, name: str, old: str, new: str) -> None:
    found = identified(functions(old, new), name)
    assert found.agrees, found.reason


def test_reads_out_of_bounds_are_told(functions: Any) -> None:
    found = identified(functions(), "unmasked")
    assert found.agrees is False
    assert any(
        re.fullmatch(r"the kernel rows reads out of bounds, after the last element of k, .*", x) for x in found.notes
    )


def test_writes_out_of_bounds_are_told(functions: Any) -> None:
    found = identified(
        functions("mask=(i[:, None] < n_q) & (f[None, :] < e))\n\n\ndef plain", "mask=f[None, :] < e)\n\n\ndef plain"),
        "plain",
    )
    assert found.agrees
    assert any(x.startswith("the kernel tiles writes out of bounds, after the last element of o,") for x in found.notes)


def test_a_refusal_before_the_first_launch_is_told_as_itself(functions: Any) -> None:
    found = identified(functions(), "ranked")
    assert found.agrees is None
    assert found.reason.startswith("aten.sort: this operator of torch is not read")


def test_tuning_keys_have_configurations_of_their_own(functions: Any) -> None:
    """Each key has one configuration, the same in every call, and a static assertion refuses some."""
    import torch

    module, chosen = functions(), {}
    triton_host.prepare()
    for _ in range(2):
        for n_k in range(3, 19):
            module.tuned(torch.ones(2, 3), torch.ones(n_k, 3), torch.ones(n_k, 2))
            tile = module.tuned_tiles.best_config.kwargs["T"]
            assert chosen.setdefault(n_k, tile) == tile
    assert {*chosen.values()} == {16, 32}


def test_a_mistake_is_named(functions: Any) -> None:
    module = functions("<= i[:, None] + n_k - n_q", "< i[:, None] + n_k - n_q")
    report = verify(module.output, Attention(causal=True, heads=2), layout="bhnd", framework="torch", budget=20)
    assert [fault.step for fault in report.faults] == ["mask"]


def test_kernels_of_long_tiles_run_at_sizes_of_several(functions: Any) -> None:
    module = functions("<= i[:, None] + n_k - n_q", "<= tl.arange(0, T)[:, None] + n_k - n_q")
    module.T = 64
    request = Request(spec=Attention(causal=True), framework="torch", layout="bhnd")
    found = target(module.output, request).semantics(Attention(causal=True), 100.0)
    assert found.difference is not None
    assert found.difference.sizes.n_q > 64
