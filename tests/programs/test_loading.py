"""A target is found, or refused in one line that says how to hint it."""

import sys
from pathlib import Path

import pytest

import symattn
from symattn import CannotRun, InputError, MissingExtra, SymattnError
from symattn.programs.loading import load
from tests import refusals
from tests.programs.programs import RIGHT, Program


def refusal(target: str, kind: type[SymattnError]) -> str:
    return refusals.refusal(load, target, kind=kind)


def test_a_function_of_a_file(program: Program) -> None:
    file = program(RIGHT)
    found = load("attn.py:attention")
    assert found.function.__name__ == "attention"
    assert found.display == "attn.py:attention(q, k, v)"
    assert found.origin == str(file)


def test_an_absolute_path(program: Program) -> None:
    assert load(f"{program(RIGHT)}:attention").function.__name__ == "attention"


def test_a_function_of_a_module_in_the_current_folder(program: Program) -> None:
    program("", "pkg/__init__.py")
    program(RIGHT, "pkg/attn.py")
    assert load("pkg.attn:attention").display == "pkg.attn:attention(q, k, v)"


def test_a_file_of_a_package_may_import_relatively(program: Program) -> None:
    program("", "pkg/__init__.py")
    program("HALF = 0.5", "pkg/numbers_.py")
    program("from .numbers_ import HALF\ndef attention(q, k, v): return HALF * v", "pkg/attn.py")
    assert load("pkg/attn.py:attention").function(0, 0, 4.0) == 2.0


def test_a_file_may_import_its_neighbour(program: Program) -> None:
    program("from helper import attention", "deep/attn.py")
    program(RIGHT, "deep/helper.py")
    assert load("deep/attn.py:attention").function.__module__ == "helper"


def test_a_file_named_like_a_module_that_is_there_does_not_replace_it(program: Program) -> None:
    import json

    program("def attention(q, k, v): return v", "json.py")
    assert load("json.py:attention").function(1, 2, 3) == 3
    assert sys.modules["json"] is json


def test_dotted_names(program: Program) -> None:
    program("""
        class Heads:
            @staticmethod
            def attention(q, k, v): return v
            def method(self, q, k, v): return v
            @classmethod
            def made(cls, q, k, v): return v
        heads = Heads()
    """)
    for name in ("Heads.attention", "Heads.made", "heads.method"):
        assert load(f"attn.py:{name}").function(1, 2, 3) == 3
    assert "needs an instance" in refusal("attn.py:Heads.method", InputError)


def test_no_bytecode_is_written(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    program(RIGHT, "helper.py")
    program("from helper import attention")
    load("attn.py:attention")
    assert not list(tmp_path.rglob("*.pyc"))
    assert sys.dont_write_bytecode is False


@pytest.mark.parametrize("target", ["attn.py", "attention", "attn.py:", ":attention", "attn.py:a-b", "a b:c", ""])
def test_words_that_name_no_function(program: Program, target: str) -> None:
    program(RIGHT)
    form = "such as attn.py:attention" if target == "attn.py" else "package.module:function or file.py:function"
    assert form in refusal(target, InputError)


def test_traces_are_refused_by_name(program: Program) -> None:
    assert "is a trace" in refusal("run.npz", InputError)


@pytest.mark.parametrize("name", ["q.npy", "model.pt", "notes.txt"])
def test_a_file_of_another_kind_is_named(program: Program, name: str) -> None:
    program("softmax(x + c) = softmax(x)", name)
    words = f"{name} is no trace (.npz, .safetensors), no graph (.onnx) and no file of Python (.py)"
    assert words in refusal(name, InputError)
    assert f"{name} is a file, and Python files end with .py" in refusal(f"{name}:f", InputError)
    assert "is a file, and Python files end with .py" in refusals.refusal(symattn.prove, name, kind=InputError)


def test_a_missing_file_and_its_neighbour(program: Program) -> None:
    program(RIGHT, "attention.py")
    assert "did you mean attention.py?" in refusal("atention.py:attention", InputError)


def test_a_missing_name_and_its_neighbour(program: Program) -> None:
    program(RIGHT)
    assert refusal("attn.py:atention", InputError) == "no function `atention` in attn.py; did you mean attention?"


def test_what_cannot_be_called(program: Program) -> None:
    program("attention = 3\nclass Attention:\n    def __call__(self, q, k, v): return v\n")
    assert "of type int" in refusal("attn.py:attention", InputError)
    assert "is a class" in refusal("attn.py:Attention", InputError)


def test_a_missing_module(program: Program) -> None:
    assert refusal("no_such_module:attention", CannotRun) == (
        "no_such_module cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import math\nmath.no_such_name", "AttributeError: module 'math' has no attribute 'no_such_name' (attn.py:2)"),
        ("\nraise ValueError('first line\\nsecond line')", "ValueError: first line (attn.py:2)"),
        ("x = 1\nimport no_such_module", "No module named 'no_such_module' (attn.py:2)"),
        ("\n\ndef f(:", "SyntaxError: invalid syntax (attn.py:3)"),
        ("import sys\nsys.exit('bye')", "SystemExit: bye (attn.py:2)"),
    ],
)
def test_an_import_that_fails(program: Program, text: str, words: str) -> None:
    program(text)
    message = refusal("attn.py:attention", CannotRun)
    assert message.startswith("attn.py cannot be imported: ")
    assert message.endswith(words)
    assert "attn" not in sys.modules


def test_what_is_bad_input_and_what_cannot_run() -> None:
    assert not issubclass(CannotRun, InputError)


@pytest.mark.usefixtures("no_torch")
def test_a_program_that_needs_torch_where_there_is_none(program: Program) -> None:
    program("import torch")
    assert "symattn[torch]" in refusal("attn.py:attention", MissingExtra)
