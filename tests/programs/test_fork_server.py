"""Workers that are copies of one process: they start, end and are killed as processes of their own do."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from symattn import Attention
from symattn.programs import child, fork_server
from symattn.programs.child import TargetOptions
from symattn.programs.request import Request

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux alone")
KERNEL = """
import ctypes, os

def right(q, k, v):
    return q

def crashes(q, k, v):
    ctypes.string_at(0)

def ends(q, k, v):
    os._exit(3)
"""


@pytest.mark.parametrize("confined", [True, False])
@pytest.mark.parametrize(
    ("name", "words"),
    [("crashes", "signal SIGSEGV"), ("ends", "exit code 3")],
)
def test_a_copy_ends_as_a_process_does(name: str, words: str, confined: bool, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    with child.with_fork_server(TargetOptions(), path) as how:
        assert isinstance(how, TargetOptions)
        process = child.Process(4.0 if confined else None, (), how.server)
        assert isinstance(process._process, fork_server.ForkedProcess)
        process.ask(("find", f"{path}:{name}", Request(framework="numpy")), 60)
        process.ask(("prepare", Request(framework="numpy")), 60)
        failure = process.ask(("run", dict.fromkeys("qkv", np.ones((2, 3))), "contiguous"), 60)
        process.end()
        assert words in failure.message
        assert process.spent[0] > 0
        with pytest.raises(ProcessLookupError):
            os.kill(process._process.pid, 0)


def test_processes_are_killed_and_outlive_their_server(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    with child.with_fork_server(TargetOptions(), path) as how:
        assert isinstance(how, TargetOptions)
        process = child.Process(server=how.server)
    answer = process.ask(("find", f"{path}:right", Request(framework="numpy")), 60)
    assert answer[0] == "done", answer
    copy = process._process
    process.end()
    assert copy.poll() == copy.wait() == -signal.SIGKILL


@pytest.mark.deep
def test_another_process_with_the_number_of_an_ended_one_lives_on(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as other,
        child.with_fork_server(TargetOptions(), path) as how,
    ):
        assert isinstance(how, TargetOptions)
        process = child.Process(4.0, (), how.server)
        copy = process._process
        os.kill(copy.pid, signal.SIGKILL)
        assert copy.wait() == -signal.SIGKILL
        copy.pid = other.pid  # as the system may give it again
        process.end()
        assert other.poll() is None
        other.kill()


def test_without_a_server_processes_start_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_SERVER_PROGRAM", "raise SystemExit")
    with child.with_fork_server(TargetOptions()) as how:
        assert isinstance(how, TargetOptions)
        process = child.Process(server=how.server)
        assert not isinstance(process._process, fork_server.ForkedProcess)
        process.end()


@pytest.mark.torch
def test_libraries_are_those_that_the_text_imports(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("import math\nfrom torch.nn import functional\n")
    assert fork_server.libraries_of([None, path]) == ("torch",)
    reference = tmp_path / "definition.json"
    reference.write_text(json.dumps({"reference": "\nimport math as m, torch\n"}))
    assert fork_server.libraries_of([reference]) == ("torch",)
    (tmp_path / "torch.py").write_text("")  # the target's own import finds this one
    assert fork_server.libraries_of([path]) == ()
    path.write_text("# this imports no library\nimport torchlike\n")
    assert fork_server.libraries_of([path, tmp_path / "missing.py"]) == ()


@pytest.mark.jax
def test_a_library_is_not_imported_before_code_that_may_configure_it(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("import jax\nfrom helpers import tile\n")
    assert fork_server.libraries_of([path]) == ("jax",)
    (tmp_path / "helpers.py").write_text("")
    assert fork_server.libraries_of([path]) == ()
    path.write_text("import os\nos.environ['JAX_ENABLE_X64'] = '1'\nimport jax\n")
    assert fork_server.libraries_of([path]) == ()


@pytest.mark.jax
@pytest.mark.parametrize(
    ("text", "may_configure"),
    [
        ("os.environ['XLA_FLAGS'] = '--xla_cpu_enable_fast_math=true'", True),
        ("os.environ.setdefault('JAX_ENABLE_X64', '1')", True),
        ("os.putenv('JAX_ENABLE_X64', '1')", True),
        ("x = os.environ.get('HOME')", False),
        ("if os.environ['HOME'] == 'x': pass", False),
    ],
)
def test_an_installed_package_may_configure_a_library(
    text: str, may_configure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "installed" / "kernels_of_a_vendor"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import settings\n")
    (package / "settings.py").write_text(f"import os\n{text}\n")
    monkeypatch.syspath_prepend(str(package.parent))
    path = tmp_path / "kernel.py"
    path.write_text("import numpy as np\nimport kernels_of_a_vendor\nimport jax\n")
    assert fork_server.libraries_of([path]) == (() if may_configure else ("jax",))
    path.write_text("import numpy as np\nimport kernels_of_a_vendor\nimport torch\n")
    assert fork_server.libraries_of([path]) == ("torch",)  # which reads nothing that is set before


CONFIGURED = """
import os
{setting}
import jax

def dtype(q, k, v):
    return jax.numpy.zeros(q.shape, "float64")
"""


@pytest.mark.jax
@pytest.mark.parametrize(("setting", "dtype"), [("", "float32"), ("os.environ['JAX_ENABLE_X64'] = '1'", "float64")])
def test_a_copy_computes_as_the_file_has_configured(setting: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(CONFIGURED.format(setting=setting))
    with child.with_fork_server(TargetOptions(framework="numpy"), path) as how:
        assert isinstance(how, TargetOptions)
        with how.opened(f"{path}:dtype", Attention()) as runner:
            inputs = {name: np.ones((2, 3), np.float32) for name in "qkv"}
            assert runner.run(inputs).dtype == dtype


@pytest.mark.parametrize(
    "text", ["import " + "a,  " * 10_000 + "!", "import " * 100_000, "import a," * 50_000, "import" + " " * 100_000]
)
def test_no_text_takes_long_to_be_looked_through(text: str) -> None:
    assert "torch" not in set(fork_server._names_of_imports(text))


def test_names_of_imports_are_seen_in_every_form() -> None:
    for text in ("import torch", "import a as b,  torch.nn as n", "from torch import nn", "x\\nimport math, torch\\n",
                 "# imports a,\nimport torch", "import a; import torch", "\timport torch as t"):  # fmt: skip
        assert "torch" in set(fork_server._names_of_imports(text)), text
    for text in ("import torchlike", "import a as torch"):
        assert "torch" not in set(fork_server._names_of_imports(text)), text
