"""Kernels of Triton are edited: each rule of kernels repairs a mistake, no edit leaves the memory of its tensors."""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, reports, verify
from symattn.programs import triton_host
from symattn.programs.repairing.edited_kernels import within_memory
from symattn.programs.repairing.edits import Edit, enumerate_edits
from symattn.programs.repairing.observing import observe
from symattn.programs.repairing.source import Sources
from symattn.programs.repairing.stores import RecordedStores, expected_stores

pytestmark = [pytest.mark.guests, pytest.mark.filterwarnings("ignore")]

RIGHT = Path(__file__).with_name("flash_of_triton.py").read_text(encoding="utf-8")
ALL_KERNELS = Path(__file__).parent.with_name("kernels_of_triton.py").read_text(encoding="utf-8")
BODY = """
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, y, m, o, n, T: tl.constexpr, D: tl.constexpr):
    i, c = tl.arange(0, T), tl.arange(0, D)
    at = i[:, None] * D + c[None, :]
    a, b = tl.load(x + at), tl.load(y + at)
    r = tl.load(m + i)
    BODY
    tl.store(o + at, z)


def f(x, y, m, n=5):
    o = torch.zeros(8, 16)
    rows[(1,)](x, y, m, o, n, T=8, D=16)
    return o
"""
# Loops that rescale one sum, or find the factor of a rescaling.
OF_SUMS = (
    "z, s = a, r\n    for _ in range(2):\n        f = r + 1\n        s = s * f + r\n        SUM\n    z /= s[:, None]"
)
OF_MAXIMA = "z, m = a, r * 2\n    for _ in range(2):\n        f = tl.exp(m - r)\n        m = r\n        SUM"
# rule, tier, the wrong body, the right one
BODIES = [
    ("function", 1, "z = tl.exp(a) + b", "z = tl.exp2(a) + b"),
    ("function", 1, "z = a - tl.max(b, 1)[:, None]", "z = a - tl.sum(b, 1)[:, None]"),
    ("variable", 1, "z = tl.load(x + at) * a", "z = tl.load(y + at) * a"),
    ("infinity", 1, "z = tl.where(a > 0, a, 0.0)", "z = tl.where(a > 0, a, -float('inf'))"),
    ("operator", 1, "z = a + r[:, None]", "z = a * r[:, None]"),
    ("factor", 2, "z = tl.exp2(a)", "z = tl.exp2(a * 1.4426950408889634)"),
    ("row", 2, "z = a + b", "z = a * r[:, None] + b"),
    ("sum", 2, "z, s = a, r\n    for _ in range(2):\n        z += b\n        s += r\n    z = z * 2",
     "z, s = a, r\n    for _ in range(2):\n        z += b\n        s += r\n    z = z / s[:, None] * 2"),
    ("sum", 2, OF_SUMS.replace("SUM", "z = z + b"), OF_SUMS.replace("SUM", "z = z * f[:, None] + b")),
    ("sum", 2, OF_MAXIMA.replace("SUM", "z += b"), OF_MAXIMA.replace("SUM", "z = z * f[:, None]\n        z += b")),
    ("offset", 2, "w = i < n\n    z = tl.where(i[:, None] <= c[None, :], a, b)",
     "z = tl.where(i[:, None] + n <= c[None, :], a, b)"),
    ("factor", 2, "z = a\n    z += b", "z = a\n    z = z * r[:, None]\n    z += b"),
    ("mask", 2, "w = b > 0\n    z = tl.where(a > 0, a, b)", "z = tl.where((a > 0) & (b > 0), a, b)"),
    ("mask", 2, "w = a > 0\n    z = b", "w = a > 0\n    z = tl.where(w, b, 0.0)"),
    ("mask", 2, "w = i < n\n    z = a + tl.load(m + i)[:, None]",
     "w = i < n\n    z = a + tl.load(m + i, mask=w, other=0.0)[:, None]"),
    ("term", 2, "s = tl.dot(a, tl.trans(b))\n    z = a + tl.sum(tl.dot(a, tl.trans(b)), 1)[:, None]",
     "s = tl.dot(a, tl.trans(b))\n    z = a + tl.sum(tl.dot(a, tl.trans(b), s), 1)[:, None]"),
    ("variable", 2, "w = i * 3 % 8\n    z = tl.load(x + (n - n + i[:, None]) * D + c[None, :])",
     "w = i * 3 % 8\n    z = tl.load(x + w[:, None] * D + c[None, :])"),
    ("rescaled", 3, "s = tl.exp(a - b)\n    z = b + s", "s = tl.exp(a - b)\n    z = b * tl.exp(a - b) + s"),
    ("transposed", 2, "z = a + tl.dot(tl.dot(a, tl.trans(b)), b)",
     "z = a + tl.dot(tl.trans(tl.dot(a, tl.trans(b))), b)"),
]  # fmt: skip


@pytest.fixture
def loaded(tmp_path: Path) -> Any:
    os.environ["TRITON_INTERPRET"] = "1"
    triton_host.prepare()
    names: list[str] = []

    def load(text: str) -> Any:
        file = tmp_path / f"repaired_kernel_{len(names)}.py"
        file.write_text(text, encoding="utf-8")
        names.append(file.stem)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        del sys.modules[name]


def given() -> tuple[Any, ...]:
    import torch

    torch.manual_seed(0)
    return torch.randn(8, 16), torch.randn(8, 16), torch.randn(8)


def repairs_of(text: str, right: Any, loaded: Callable[[str], Any], rule: str, tier: int) -> list[Edit]:
    sources = Sources(loaded(text).f)
    seen = observe(sources, lambda f: f(*given()))
    edits = [e for e in enumerate_edits(sources, seen, tiers=(tier,)) if e.rule == rule]
    found = []
    for edit in edits:
        try:
            edited = sources.edited(sources.at(edit.place), edit.replacements)
            with within_memory():
                got = edited(*given())
        except Exception:
            continue
        if got.shape == right.shape and (got == right).float().mean() == 1:
            found.append(edit)
    return found


@pytest.mark.parametrize(("rule", "tier", "wrong", "right"), BODIES)
def test_a_rule_repairs_a_kernel(loaded: Any, rule: str, tier: int, wrong: str, right: str) -> None:
    expected = loaded(BODY.replace("BODY", right)).f(*given())
    text = BODY.replace("BODY", wrong)
    assert not (loaded(text).f(*given()) == expected).all()
    assert repairs_of(text, expected, loaded, rule, tier)


def test_a_name_that_has_the_same_other_operand_elsewhere_is_likely(loaded: Any) -> None:
    right = "w = i * 3 % 8\n    z = tl.load(x + w[:, None] * D + c[None, :]) + tl.load(y + w[:, None] * D + c[None, :])"
    expected = loaded(BODY.replace("BODY", right)).f(*given())
    wrong = BODY.replace("BODY", right.replace("x + w", "x + i"))
    found = repairs_of(wrong, expected, loaded, "variable", 1)
    assert [e.new for e in found if e.likely] == ["w"]


def test_the_default_of_a_kernels_parameter_is_repaired(loaded: Any) -> None:
    text = BODY.replace("BODY", "z = a * S").replace("D: tl.constexpr)", "D: tl.constexpr, S: tl.constexpr = 2)")
    expected = loaded(text).f(*given())
    wrong = text.replace("S: tl.constexpr = 2", "S: tl.constexpr = 3")
    (repair,) = repairs_of(wrong, expected, loaded, "constant", 1)
    assert (repair.old, repair.new) == ("3", "2")


def test_kernels_their_helpers_and_the_launching_function_are_rebuilt(loaded: Any) -> None:
    import torch

    module = loaded(RIGHT)
    sources = Sources(module.attention)
    kernels = {f.function.__name__ for f in sources.functions.values() if f.is_kernel}
    assert kernels == {"forward", "scores_of_tile"}
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 5, 3), torch.randn(2, 20, 3), torch.randn(2, 20, 4)
    assert torch.equal(sources.rebuild()(q, k, v), module.attention(q, k, v))


def test_a_tuned_kernel_is_rebuilt_behind_its_decorators(loaded: Any) -> None:
    import torch

    module = loaded(ALL_KERNELS)
    sources = Sources(module.tuned)
    q, k, v = torch.randn(5, 3), torch.randn(20, 3), torch.randn(20, 4)
    assert torch.equal(sources.rebuild()(q, k, v), module.tuned(q, k, v))
    key = next(key for key, f in sources.functions.items() if f.is_kernel)
    found = sources.functions[key]
    line = next(n for n, text in enumerate(found.lines) if "total += " in text)
    at = found.lines[line].index("+=")
    edit = reports.Replacement(found.first + line, at, found.first + line, at + 2, "-=")
    assert torch.allclose(sources.edited(key, [edit])(q, k, v), -module.tuned(q, k, v))


def test_an_edit_that_leaves_the_memory_of_its_tensors_raises(loaded: Any) -> None:
    module = loaded(BODY.replace("BODY", "z = a"))
    sources = Sources(module.f)
    key = next(key for key, f in sources.functions.items() if f.is_kernel)
    found = sources.functions[key]
    line = next(n for n, text in enumerate(found.lines) if "tl.store" in text)
    at = found.lines[line].index("o + at")
    edit = reports.Replacement(found.first + line, at, found.first + line, at + 6, "o + 100000 * at")
    with within_memory(), pytest.raises(Exception, match="beyond its tensors"):
        sources.edited(key, [edit])(*given())


THREE_PROGRAMS = """
import torch
import triton
import triton.language as tl


@triton.jit
def doubled(x, o, T: tl.constexpr):
    p = tl.program_id(0)
    i = p * T + tl.arange(0, T)
    z = tl.load(x + i) * 2
    tl.store(o + i, z)


def f(x):
    o = torch.empty_like(x)
    doubled[(3,)](x, o, T=8)
    return o
"""


def stores_of(module: Any, x: Any, right: Any) -> Any:
    recorded = RecordedStores()
    with within_memory(recorded):
        output = module.f(x)
    return expected_stores(recorded, output, lambda places: places, right.double().numpy(), np.full(24, 1e-6))


def test_the_first_wrong_entry_of_the_program_that_was_wrong_ends_a_call(loaded: Any) -> None:
    import torch

    x = torch.arange(1.0, 25.0)
    wrong = THREE_PROGRAMS.replace("* 2", "* tl.where(p < 2, 2, 3)")
    expected = stores_of(loaded(wrong), x, 2 * x)
    assert (expected.storing, expected.first) == (1, (2, 0, 0))
    with within_memory(expected), expected.runs_first(), pytest.raises(Exception, match="a wrong entry"):
        loaded(wrong).f(x)
    # It stopped in the first program, which is the wrong one.
    assert sys.modules["triton.runtime.interpreter"].interpreter_builder.grid_idx == (2, 0, 0)
    again = expected.of({"doubled"})
    with within_memory(again), again.runs_first():
        assert torch.equal(loaded(THREE_PROGRAMS).f(x), 2 * x)
    # An entry that is stored twice may be wrong for a while.
    twice = THREE_PROGRAMS.replace("    tl.store(o + i, z)", "    tl.store(o + i, z)\n" * 2)
    assert stores_of(loaded(twice), x, 2 * x).storing == 0
    # One store into two tensors says less.
    both = THREE_PROGRAMS.replace("o + i, z)", "tl.where(tl.arange(0, T) < 4, o + i, x + i), z)")
    assert stores_of(loaded(both), x.clone(), 2 * x).storing == 0
    # And an entry may be changed after the launch.
    later = THREE_PROGRAMS.replace("    return o", "    return o.div_(2)")
    assert stores_of(loaded(later), x, 2 * x).storing == 0
    # An edited length of a block has a grid without the program.
    longer = THREE_PROGRAMS.replace("(3,)", "(1,)").replace("T=8", "T=32").replace("+ i", "+ i % 24")
    again = expected.of({"doubled"})
    with within_memory(again), again.runs_first():
        assert torch.equal(loaded(longer).f(x), 2 * x)


TWO_LAUNCHES = (
    f"{THREE_PROGRAMS.replace('    doubled[(3,)](x, o, T=8)', '    LAUNCH')}\n"
    + """
@triton.jit
def paired(pair, T: tl.constexpr):
    i = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(pair[1] + i, tl.load(pair[0] + i) * 2)


@triton.jit
def by_helper(x, o, helper: tl.constexpr, T: tl.constexpr):
    i = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(o + i, helper(tl.load(x + i)))


@triton.jit
def twice(a):
    return a * 2
"""
)


@pytest.mark.parametrize("first", ["doubled[(3,)](x, y, T=8)", "paired[(3,)]((x, y), T=8)"])
def test_a_launch_before_that_of_an_edited_kernel_is_not_run_again(loaded: Any, first: str) -> None:
    import torch

    x = torch.arange(1.0, 25.0)
    launches = f"y = torch.empty_like(x)\n    {first}\n    by_helper[(3,)](y, o, twice, T=8)"
    text = TWO_LAUNCHES.replace("LAUNCH", launches)
    expected = stores_of(loaded(text), x, 4 * x)
    name = first.partition("[")[0]
    spoiled = loaded(text.replace("tl.load(x + i) * 2", "0.0 * i").replace("tl.load(pair[0] + i) * 2", "0.0 * i"))
    with within_memory(expected.of({"by_helper"})):
        assert torch.equal(spoiled.f(x), 4 * x)
    with within_memory(expected.of({name})), pytest.raises(Exception, match="a wrong entry"):
        spoiled.f(x)
    # The name of a helper that a kernel gets as its argument stands in no kernel.
    with within_memory(expected.of({"twice", "f"})), pytest.raises(Exception, match="a wrong entry"):
        loaded(text.replace("a * 2", "a * 3")).f(x)


# the whole search
MISTAKES = [
    ("<= i[:, None] + late)", "< i[:, None] + late)"),
    ("acc = acc * old[:, None] + tl.dot(p, z)", "acc = acc + tl.dot(p, z)"),
    ("v + head * stride_vh", "v + head * stride_kh"),
]


@pytest.mark.deep
@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_mistake_in_a_kernel_is_repaired(loaded: Any, right: str, wrong: str) -> None:
    import torch

    assert RIGHT.count(right) == 1
    text = RIGHT.replace(right, wrong)
    module, spec = loaded(text), Attention(causal=True, heads=2)
    report = verify(module.attention, spec, framework="torch", examples=8, repair=True)
    repair = next(r for r in report.repairs if r.is_whole)
    assert repair.line == RIGHT[: RIGHT.index(right)].count("\n") + 1
    twin, edited = loaded(RIGHT), loaded("\n".join(reports.replaced(text.split("\n"), repair.replacements)))
    for n_q, n_k in ((1, 1), (3, 40), (33, 50)):
        q, k, v = torch.randn(2, n_q, 5), torch.randn(2, n_k, 5), torch.randn(2, n_k, 20)
        assert torch.allclose(edited.attention(q, k, v), twin.attention(q, k, v), atol=1e-4)
