"""The examples in docstrings do what they show."""

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import symattn

ROOT = Path(__file__).parents[2]
FILES = [f for f in sorted(ROOT.joinpath("symattn").rglob("*.py")) if ">>> " in f.read_text(encoding="utf-8")]


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# Examples that verify something run whole verifications.
LONG = (
    "symattn.strategies",
    "symattn.verification.report",
    "symattn.programs.verify",
    "symattn.programs.verifying",
    "symattn.testing",
)
MARKS = {
    "symattn.graphs": pytest.mark.jax,
    "symattn.models.auditing.audit": pytest.mark.torch,
    "symattn.models.comparing.generation": pytest.mark.transformers,
    **dict.fromkeys(LONG, pytest.mark.deep),
}
NAMES = [module_of(file) for file in FILES]


@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, ())) for n in NAMES])
def test_examples_of_a_module(name: str) -> None:
    played = doctest.testmod(import_module(name))
    assert (played.failed, played.attempted > 0) == (0, True)


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    return import_module("docstrings")


@pytest.mark.docs
def test_examples_of_the_reference(reference: ModuleType) -> None:
    played = doctest.testmod(reference)
    assert (played.failed, played.attempted) == (0, 6)


@pytest.mark.docs
def test_a_link_that_leads_nowhere_is_found(reference: ModuleType, tmp_path: Path) -> None:
    tmp_path.joinpath("a.html").write_text('<a href="b.html#there">1</a> <a href="https://example.org/x.html">2</a>')
    tmp_path.joinpath("b.html").write_text('<p id="there"></p> <a class="x" href="#not">3</a> <a href="c.html">4</a>')
    assert list(import_module("links").broken(tmp_path)) == ["b.html: #not", "b.html: c.html"]


@pytest.mark.docs
def test_every_parameter_of_the_reference_has_a_meaning(reference: ModuleType) -> None:
    tables = {
        name: reference.parameters(value, (inspect.getdoc(value) or "").split("\n"))
        for name, value in ((name, getattr(symattn, name)) for name in symattn.__all__)
    }
    assert {"verify", "Attention", "Rotary"} <= {name for name, table in tables.items() if table}
    unclear = re.compile(r"see above|engine[.]|at 0x|<factory>|Fraction\(")
    assert {name: table for name, table in tables.items() if any(map(unclear.search, table))} == {}
    assert "     - see above" in reference.parameters(lambda strange: strange, [""])


@pytest.mark.docs
def test_every_number_has_a_unit_and_every_function_says_what_it_returns(reference: ModuleType) -> None:
    functions = {name: value for name in symattn.__all__ if inspect.isfunction(value := getattr(symattn, name))}
    assert set(functions) == set(reference.RETURNS)
    for name, value in functions.items():
        for p in inspect.signature(value).parameters.values():
            if re.search(r"\b(int|float|Array|Inputs)\b", str(p.annotation)):
                assert reference.UNITS.get(f"{name}.{p.name}") or reference.UNITS.get(p.name), (name, p.name)
    cells = "\n".join(reference.parameters(symattn.enclose_rows, []))
    assert "     - Shape or unit\n" in cells
    assert "     - numbers of queries\n" in cells
    assert "Shape or unit" not in "\n".join(reference.parameters(lambda strange: strange, [""]))


@pytest.mark.docs
def test_errors_of_a_docstring_become_a_table(reference: ModuleType) -> None:
    _, table = reference.errors((inspect.getdoc(symattn.enclose) or "").split("\n"))
    assert "   * - ``Refused``" in table
    assert "   * - ``InputError``" in table
    assert reference.errors(["Raises what ``verify`` raises."]) == (["Raises what ``verify`` raises."], [])
