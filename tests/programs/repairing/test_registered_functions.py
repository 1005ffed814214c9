"""Functions that a statement of the module registers are edited with the function that uses them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn.programs.repairing.edits import enumerate_edits
from symattn.programs.repairing.observing import observe
from symattn.programs.repairing.source import Sources
from tests.programs.repairing.programs import loaded

TABLE = """
def double(x):
    return x + 2

def unrelated(x):
    return x - 2

TABLE = {"double": double, "more": [{"unrelated": unrelated}]}

def run(x):
    return TABLE["double"](x)
"""
DECORATED = """
TABLE = {}

def register(name):
    def add(function):
        TABLE[name] = function
        return function
    return add

@register("double")
def double(x):
    return x + 2

@register("unrelated")
def unrelated(x):
    return x - 2

def run(x):
    return TABLE["double"](x)
"""
KEYED_BY_FUNCTION = """
RULES = {}

def register(function, rule):
    RULES[function] = rule

def single(x):
    return x

def double(x):
    return x + 2

register(single, double)

def run(x):
    return RULES[single](x)
"""
IN_A_CLASS = """
def double(x):
    return x + 2

class Runner:
    TABLE = (double,)

    def __call__(self, x):
        return Runner.TABLE[0](x)

def run(x):
    return Runner()(x)
"""
OBJECT_OF_A_LIBRARY = """
from types import SimpleNamespace

def double(x):
    return x + 2

RULES = SimpleNamespace()
RULES.double = double

def run(x):
    return RULES.double(x)
"""


def _count_right_edits(run: Callable[..., Any], *, of: float, expected: float) -> int:
    """Return how many edits of `+` make the function right; fails if one changes the original."""
    before = run(of)
    sources = Sources(run)
    seen = observe(sources, lambda function: function(of))
    edits = [e for e in enumerate_edits(sources, seen, (), (1,)) if "* 2" in e.new]
    values = [sources.edited(sources.at(e.place), e.replacements)(of) for e in edits]
    assert run(of) == before
    return values.count(expected)


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        DECORATED,
        KEYED_BY_FUNCTION,
        IN_A_CLASS,
        OBJECT_OF_A_LIBRARY,
        OBJECT_OF_A_LIBRARY.replace("types", "argparse").replace("SimpleNamespace", "Namespace"),
    ],
)
def test_a_registered_function_is_edited(tmp_path: Path, text: str) -> None:
    assert _count_right_edits(loaded(tmp_path, text, function="run"), of=3.0, expected=6.0) == 1


@pytest.mark.parametrize("text", [TABLE, DECORATED])
def test_a_registered_function_that_does_not_run_is_not_edited(tmp_path: Path, text: str) -> None:
    sources = Sources(loaded(tmp_path, text, function="run"))
    names = {key: source.function.__name__ for key, source in sources.functions.items()}
    assert {"double", "unrelated"} <= {*names.values()}
    seen = observe(sources, lambda function: function(3.0))
    seen.of_wrong = True
    edited = {names[sources.at(e.place)] for e in enumerate_edits(sources, seen, (), (1, 2, 3))}
    assert "double" in edited
    assert "unrelated" not in edited


@pytest.mark.parametrize("text", [TABLE, DECORATED])
def test_a_registered_function_that_opens_files_lets_none_be_edited(tmp_path: Path, text: str) -> None:
    unsafe = text.replace("return x - 2", "return open(x)")
    assert Sources(loaded(tmp_path, text, function="run")).editable
    assert Sources(loaded(tmp_path, unsafe, function="run")).editable == []


def test_a_table_that_nothing_reads_is_not_reached(tmp_path: Path) -> None:
    text = TABLE.replace('TABLE["double"](x)', "double(x)")
    sources = Sources(loaded(tmp_path, text, function="run"))
    assert [s.function.__name__ for s in sources.functions.values()] == ["run", "double"]


CACHE = """
CACHE = {}

def run(x):
    if "add" not in CACHE:
        CACHE["add"] = lambda y: y + x
    return CACHE["add"](x)
"""


def test_a_cache_of_functions_that_calls_fill_begins_anew(tmp_path: Path) -> None:
    run = loaded(tmp_path, CACHE, function="run")
    assert run(1) == 2
    assert Sources(run).rebuild()(3) == 6


def test_results_in_an_object_of_a_library_stay_those_of_the_original(tmp_path: Path) -> None:
    text = "import numpy as np\n\ndef double(x):\n    return x + 2\n\n"
    text += "each = np.vectorize(double)\n\ndef run(x):\n    return each(x)\n"
    run = loaded(tmp_path, text, function="run")
    rebuilt = Sources(run).rebuild()
    results = rebuilt(np.arange(3.0)), run(np.arange(3.0))
    assert [list(result) for result in results] == [[2, 3, 4], [2, 3, 4]]
    assert rebuilt.__globals__["each"].pyfunc is not run.__globals__["each"].pyfunc


RULE_OF_JAX = """
import jax

@jax.custom_vjp
def square(x):
    return x * x

def forward(x):
    return x * x, x

def pull(x, g):
    return (g * (x + 2),)

square.defvjp(forward, pull)

def run(x):
    return jax.grad(square)(x)
"""
PUSH_OF_JAX = """
import jax

@jax.custom_jvp
def square(x):
    return x * x

square.defjvps(lambda t, y, x: t * (x + 2))

def run(x):
    return jax.grad(square)(x)
"""
PUSH_IN_ONE = PUSH_OF_JAX.replace(
    "square.defjvps(lambda t, y, x: t * (x + 2))",
    "@square.defjvp\ndef push(x, t):\n    return square(*x), t[0] * (x[0] + 2)",
)
PUSH_OF_EACH = PUSH_OF_JAX.replace(
    "square.defjvps(lambda t, y, x: t * (x + 2))",
    "def push(t, y, x):\n    return t * (x + 2)\n\nsquare.defjvps(push)",
)
COMPILED_RULE = RULE_OF_JAX.replace("def run", "compiled = jax.jit(square)\n\ndef run").replace(
    "jax.grad(square)", "jax.grad(compiled)"
)


@pytest.mark.jax
@pytest.mark.parametrize("text", [RULE_OF_JAX, PUSH_IN_ONE, PUSH_OF_EACH, COMPILED_RULE])
def test_the_rule_of_a_gradient_of_jax_is_edited(tmp_path: Path, text: str) -> None:
    pytest.importorskip("jax")
    assert _count_right_edits(loaded(tmp_path, text, function="run"), of=3.0, expected=6.0) == 1


OPERATOR_OF_TORCH = """
import torch

@torch.library.custom_op("symattn_tests::square_{name}", mutates_args=())
def square(x: torch.Tensor, times: float = 1.0) -> torch.Tensor:
    return x * x

def keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])

def pull(ctx, g):
    x, = ctx.saved_tensors
    return g * (x + 2), None

square.register_autograd(pull, setup_context=keep)

def run(x):
    x = torch.tensor(x, requires_grad=True)
    square(x).backward()
    return float(x.grad)
"""


@pytest.mark.torch
def test_the_rule_of_an_operator_of_torch_is_edited(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = OPERATOR_OF_TORCH.replace("{name}", "right")
    run = loaded(tmp_path, text, function="run")
    assert Sources(run).rebuild()(4.0) == run(4.0) == 6
    assert _count_right_edits(run, of=3.0, expected=6.0) == 1


DEFINED = """
import torch
from torch.library import impl

torch.library.define("symattn_tests::{name}", "(Tensor x, float times=1.0) -> Tensor")

{registered}

def keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])

def pull(ctx, g):
    x, = ctx.saved_tensors
    return g * (x + 2), None

torch.library.register_autograd("symattn_tests::{name}", pull, setup_context=keep)
{names}

def run(x):
    x = torch.tensor(x, requires_grad=True)
    {call}(x).backward()
    return float(x.grad)
"""
SQUARE = "def square(x, times=1.0):\n    return x * x\n"
REGISTERED = {
    "decorated": '@torch.library.impl("symattn_tests::{name}", "cpu")\n' + SQUARE,
    "imported": '@impl("symattn_tests::{name}", ["cpu", "cuda"])\n' + SQUARE,
    "default": SQUARE + 'torch.library.impl("symattn_tests::{name}", "default", square)',
    "by keyword": SQUARE + 'impl("symattn_tests::{name}", "cpu", func=square)',
}
CALLED = {
    "torch.ops.symattn_tests.{name}": "",
    "torch.ops.symattn_tests.{name}.default": "",
    "mine.{name}": "mine = torch.ops.symattn_tests",
    "squared": "squared = torch.ops.symattn_tests.{name}",
}


@pytest.mark.torch
@pytest.mark.parametrize("how", REGISTERED)
@pytest.mark.parametrize("call", CALLED)
def test_an_operator_that_is_defined_and_implemented_is_edited(tmp_path: Path, how: str, call: str) -> None:
    pytest.importorskip("torch")
    name = f"square_{list(REGISTERED).index(how)}_{list(CALLED).index(call)}"
    parts = {"{registered}": REGISTERED[how], "{names}": CALLED[call], "{call}": call}
    text = DEFINED
    for place, part in (*parts.items(), ("{name}", name)):
        text = text.replace(place, part)
    run = loaded(tmp_path, text, function="run")
    sources = Sources(run)
    assert {s.function.__name__ for s in sources.functions.values()} == {"run", "square", "keep", "pull"}
    assert sources.rebuild()(4.0) == run(4.0) == 6
    assert _count_right_edits(run, of=3.0, expected=6.0) == 1


@pytest.mark.torch
@pytest.mark.parametrize("devices", ["3", "None", "{[]: 1}"])
def test_other_functions_of_the_same_name_are_no_registrations(tmp_path: Path, devices: str) -> None:
    pytest.importorskip("torch")
    text = f"""
import torch

def double(x):
    return x + 2

def unused(impl):
    impl("a::b", {devices}, double)

def run(x):
    return double(x)
"""
    sources = Sources(loaded(tmp_path, text, function="run"))
    assert {s.function.__name__ for s in sources.functions.values()} == {"run", "double"}


@pytest.mark.torch
def test_an_operator_with_other_defaults_than_its_function_is_left_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = DEFINED.replace("{registered}", REGISTERED["decorated"].replace("=1.0", "=2.0"))
    text = text.replace("{call}", "torch.ops.symattn_tests.{name}").replace("{names}", "")
    sources = Sources(loaded(tmp_path, text.replace("{name}", "other_default"), function="run"))
    assert [s.function.__name__ for s in sources.functions.values()] == ["run"]


@pytest.mark.torch
def test_a_defined_operator_that_writes_into_its_inputs_is_left_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = """
import torch

torch.library.define("symattn_tests::double", "(Tensor(a!) x) -> ()")

@torch.library.impl("symattn_tests::double", "cpu")
def double(x):
    x.mul_(2)

def run(x):
    torch.ops.symattn_tests.double(x)
    return x
"""
    sources = Sources(loaded(tmp_path, text, function="run"))
    assert [s.function.__name__ for s in sources.functions.values()] == ["run"]


@pytest.mark.torch
def test_an_operator_without_a_rule_has_no_gradient_when_rebuilt(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = OPERATOR_OF_TORCH.replace("{name}", "bare").replace("square.register_autograd", "print")
    run = loaded(tmp_path, text.replace(", setup_context=keep", ""), function="run")
    sources = Sources(run)
    assert [s.function.__name__ for s in sources.functions.values()] == ["run", "square"]
    for function in (run, sources.rebuild()):
        with pytest.raises(RuntimeError):
            function(3.0)


@pytest.mark.torch
def test_an_operator_that_writes_into_its_inputs_is_left_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    text = """
import torch

@torch.library.custom_op("symattn_tests::doubled", mutates_args=("x",))
def double(x: torch.Tensor) -> None:
    x.mul_(2)

def run(x):
    double(x)
    return x
"""
    sources = Sources(loaded(tmp_path, text, function="run"))
    assert [s.function.__name__ for s in sources.functions.values()] == ["run"]
