"""What a release promises: schemas, the cache, defaults, fresh documents, the hook and the action."""

import copy
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import symattn
from symattn import Grade, InputError
from symattn.derivations import examples
from symattn.document import stored_results
from symattn_cli.main import TABLE
from tests.printed import schema_of

ROOT = Path(__file__).parents[2]


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


DOCUMENT, SHEET = validator("document"), validator("sheet")

DOCUMENTS: dict[str, Callable[[], Any]] = {
    "derivation": lambda: symattn.derive("shift"),
    "attention": lambda: symattn.derive("attention", n=2, d_k=2, causal=True),
    "walk": lambda: symattn.walk("eight-step"),
    "walk of heads": lambda: symattn.walk("decoder-step"),
    "one step": lambda: symattn.walk("cross", step=5, why=True),
    "proof": lambda: symattn.prove("softmax-shift", "softmax-simplex"),
    "claim": lambda: symattn.claim("weights", 0.3, 0.7, 0.1),
    "closer": lambda: symattn.claim("closer", [1, 0], [1, 1], than=([1, 2], [2, 1])),
    "equal": lambda: symattn.claim("equal", "1", "2"),
    "bound": lambda: symattn.bound(n=16, d_k=4),
    "no bound": lambda: symattn.bound(n=2**20, d_k=4, dtype="float16", contract="eager"),
    "bound of inputs": lambda: symattn.bound(inputs={"q": [[1]], "k": [[1]], "v": [[1]]}),
    "verification": lambda: symattn.verify(lambda q, k, v: v[:0], examples=0, budget=20),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.deep) if n in ("verification", "proof") else n for n in DOCUMENTS]
)
def test_documents_are_as_their_schema_says(name: str) -> None:
    DOCUMENT.validate(json.loads(DOCUMENTS[name]().json()))


WRONG: dict[str, Callable[[dict[str, Any]], None]] = {
    "no kind": lambda d: d.pop("kind"),
    "another schema": lambda d: d.update(schema=2),
    "a kind that there is not": lambda d: d.update(kind="poem"),
    "a grade that there is not": lambda d: d["steps"][0].update(grade="certain"),
    "no steps": lambda d: d.pop("steps"),
    "a step without a formula": lambda d: d["steps"][0].pop("tex"),
    "a title that is a list": lambda d: d.update(title=["a"]),
    "a result without evidence": lambda d: d["results"][0].pop("evidence"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_schema_refuses_what_is_no_document(name: str) -> None:
    document = json.loads(symattn.derive("shift").json())
    WRONG[name](document)
    assert not DOCUMENT.is_valid(document)


def test_the_grades_of_the_schema_are_those_of_evidence() -> None:
    assert DOCUMENT.schema["$defs"]["grade"]["enum"] == [g.value for g in Grade]


@pytest.mark.parametrize("name", examples.NAMES)
def test_every_example_is_a_sheet(name: str) -> None:
    SHEET.validate(json.loads(examples.show(name).record["sheet"] and examples.show(name).json())["sheet"])


SHEETS: tuple[dict[str, Any], ...] = (
    {"x": [[1, "1/2"], [0.5, 2]]},
    {"X": [[1, 2]], "W_Q": [[1], [1]], "Wk": [[1], [1]], "wv": [[1], [1]], "causal": True, "scale": "none"},
    {"q": [[1]], "k": [[1]], "v": [[1]], "attention": {"window": [2, None], "softcap": "5/2"}},
    {"inputs": {"x": [[1, 2]]}, "position": {"rotary": {"triples": [[3, 4, 5]]}}},
)
NO_SHEETS: tuple[dict[str, Any], ...] = (
    {"x": 3},
    {"x": [[1]], "w_qq": [[1]]},
    {"x": [[1]], "scale": None},
    {"x": [[1]], "attention": {"causl": True}},
    {"x": [[1]], "attention": {"causal": "yes"}},
    {"inputs": {}},
    {"x": []},
    {"x": [[None]]},
)


@pytest.mark.parametrize("sheet", SHEETS, ids=json.dumps)
def test_sheets_that_walk_takes_are_sheets(sheet: dict[str, Any]) -> None:
    SHEET.validate(sheet)
    assert symattn.walk(copy.deepcopy(sheet)).holds


@pytest.mark.parametrize("sheet", NO_SHEETS, ids=json.dumps)
def test_sheets_that_walk_refuses_are_none(sheet: dict[str, Any]) -> None:
    assert not SHEET.is_valid(sheet)
    with pytest.raises(InputError):
        symattn.walk(copy.deepcopy(sheet))


def test_the_schemas_are_printed(run) -> None:
    for name in ("document", "judgement", "sheet"):
        assert run("schema", name).json["$id"] == f"urn:symattn:schema:{name}:1"
    assert run("schema").stdout == run("schema", "document").stdout


def test_the_cache_says_where_it_is_and_is_cleared(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMATTN_CACHE", str(tmp_path))
    other = tmp_path / "theorems" / "notes.json"
    stored_results.put("theorems", stored_results.digest(["a"]), "kept")
    other.write_text("mine")
    told = json.loads(run("cache", "-f", "json").stdout)
    assert (told["folder"], told["files"]) == (str(tmp_path), 1)
    assert told["bytes"] > 60
    assert "1 files are cleared" in run("cache", "clear").stdout
    assert stored_results.get("theorems", stored_results.digest(["a"])) is None
    assert other.read_text() == "mine"
    assert json.loads(run("cache", "-f", "json").stdout)["files"] == 0


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    def made(table: str) -> Path:
        tmp_path.joinpath("pyproject.toml").write_text(table, encoding="utf-8")
        below = tmp_path / "docs"
        below.mkdir(exist_ok=True)
        monkeypatch.chdir(below)
        return below

    return made


def test_defaults_come_from_the_project(run, project) -> None:
    plain = run("walk", "cross", "--step", "5", "--ascii").stdout
    project('[tool.symattn]\nascii = true\n[tool.symattn.walk]\nstep = 5\n[tool.symattn.claim]\nmeasure = "dot"\n')
    assert run("walk", "cross").stdout == plain
    assert "Step 4" in run("walk", "cross", "--step", "4").stdout
    assert "cosine" not in run("claim", "similarity", "[1]", "[1]").stdout


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[tool.symattn.derive]\ndkk = 4\n", "dkk is not an option of symattn derive. Did you mean 'dk'?"),
        ("[tool.symattn.deriv]\ndk = 4\n", "is not a command. Did you mean 'derive'?"),
        ("[tool.symattn.derive]\ndk = 'four'\n", "'four'"),
        ("[tool.symattn\n", "cannot be read"),
    ],
)
def test_defaults_that_are_wrong_are_told_in_one_line(run, project, table: str, words: str) -> None:
    project(table)
    assert words in run("derive", "shift").refusal


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("derive", "shift"), "shift.md"),
        (("derive", "shift", "--fragment"), "shift.tex"),
        (("claim", "weights", ".5", ".5"), "weights.txt"),
        (("claim", "weights", ".3", ".7", ".1", "--ascii"), "weights.txt"),
        (("walk", "cross", "--step", "5"), "cross.json"),
        (("exercises", "--seed", "2"), "sheet.html"),
        (("derive", "shift", "--fragment"), "part.html"),
        (("explore", "parameter-free"), "page.html"),
        (("faults", "list"), "faults.md"),
        (("draw", "masks", "--causal"), "masks.svg"),
        (("draw", "masks", "--fragment"), "part.svg"),
    ],
)
def test_fresh_documents_are_told_from_stale_ones(run, tmp_path: Path, arguments: tuple[str, ...], name: str) -> None:
    file = tmp_path / name
    run(*arguments, "-o", str(file))
    assert run("check", str(file)).status == 0
    stale = re.sub(r"\b[1-9]\b", "7", file.read_text(encoding="utf-8").replace("the", "teh"))
    file.write_text(stale, encoding="utf-8")
    assert run("check", str(file)).status != 0


@pytest.mark.deep
@pytest.mark.parametrize("name", ["masks.pdf", "masks.png"])
def test_pictures_that_are_no_text_are_told_apart_as_well(run, tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / name
    run("draw", "masks", "--causal", "-o", str(file))
    assert run("check", str(file)).status == 0
    file.write_bytes(file.read_bytes() + b" ")
    assert run("check", str(file)).status == 1
    file.write_bytes(file.read_bytes().replace(b"symattn draw masks", b"symattn draw mosks"))
    assert run("check", str(file)).status == 2


def test_what_was_judged_of_arrays_is_judged_again(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    q, k, v = np.float32([[1, 0]]), np.float32([[0, 0], [1, 0]]), np.float32([[0], [1]])
    for o, status in (([[0.66976155]], 0), ([[0.7]], 1)):
        np.savez("run.npz", q=q, k=k, v=v, o=np.float32(o))
        if not status:
            run("verify", "run.npz", "-o", "page.md")
        assert run("check", "page.md").status == status


@pytest.mark.deep
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("derive", "scaling", "--dk", "4", "--format", "latex"), "page.md"),
        (("claim", "weights", ".5", ".5", "--format", "html", "--fragment"), "page.tex"),
        (("claim", "weights", ".5", ".5", "--format", "text", "--ascii"), "page"),
        (("draw", "masks", "--format", "svg"), "page.html"),
    ],
)
def test_the_format_of_a_document_is_its_own_whatever_its_suffix(run, tmp_path: Path, monkeypatch, arguments, name):
    monkeypatch.chdir(tmp_path)
    run(*arguments, "-o", name)
    assert run("check", name).status == 0
    file = Path(name)
    file.write_text(f"{file.read_text(encoding='utf-8')}\n" if name != "page" else f"x{file.read_text()}")
    again = f"symattn {' '.join(arguments)} -o {name}"
    ran = run("check", name)
    assert (ran.status, ran.stderr) == (1, f"symattn: {name} is out of date; hint: {again}\n")


def test_a_document_that_is_no_json_any_more_is_told_in_one_line(run, tmp_path: Path) -> None:
    page = tmp_path / "cross.json"
    run("walk", "cross", "-o", str(page))
    page.write_text(f"{page.read_text()}<<<<<<<\n")
    assert "is not valid JSON at line" in run("check", str(page)).refusal


def test_files_of_others_are_passed_over_if_asked(run, tmp_path: Path) -> None:
    other = tmp_path / "readme.md"
    other.write_text("# Mine\n")
    assert run("check", "--skip-others", str(other)).status == 0
    assert run("check", str(other)).status == 1
    certificates = tmp_path / "shift.json"
    run("prove", "softmax-shift", "--certificate", str(certificates))
    assert "accepted" in run("check", "--skip-others", str(certificates)).stdout
    certificates.write_text(certificates.read_text().replace('"statement"', '"says"'))
    assert run("check", "--skip-others", str(certificates)).status == 1


@pytest.mark.parametrize(
    "command",
    [
        "symattn verify evil.py:f",
        "symattn campaign evil.toml -o x",
        "symattn prove evil.py",
        "symattn derive shift -o other.md",
        "symattn derive shift --output=other.md",
        "symattn prove softmax-shift --certificate other.json",
        "symattn prove softmax-shift --certific other.json",
        "symattn prove softmax-shift --Certi_ficate other.json",
        "symattn compare run.npz evil.py:f",
        "symattn verify run.npz evil.py:f",
        "symattn verify --case run.npz evil.py:f",
        "symattn faults export --out there",
        "python evil.py",
        "symattn",
    ],
)
def test_a_document_cannot_have_code_run_or_files_written(run, tmp_path: Path, command: str, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("evil.py").write_text("open('ran', 'w')\ndef f(q, k, v): return v\n")
    file = tmp_path / "page.md"
    file.write_text(f"<!-- Made with symattn: {command} -->\n\n# Page\n")
    assert run("check", str(file)).status == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evil.py", "page.md"]


def test_the_recipe_for_conda_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    recipe = (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")
    needed = re.findall(r"^    - (\S+) (>=\S+)$", recipe.partition("  run:")[2].partition("test:")[0], re.MULTILINE)
    wanted = [re.fullmatch(r"(\S+?)(>=\S+)", text) for text in project["project"]["dependencies"]]
    assert needed[0] == ("python", project["project"]["requires-python"])
    assert needed[1:] == [found.groups() for found in wanted if found]
    assert f'version = "{symattn.__version__}"' in recipe
    assert f"symattn = {project['project']['scripts']['symattn']}" in recipe


def test_hook_and_action_call_commands_that_there_are() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text() + (ROOT / "action.yml").read_text()
    called = set(re.findall(r"\bsymattn ([a-z]+)", text))
    assert not [p for p in (ROOT / "cli").glob("*.py") if re.search(r"(from|import) cli\b", p.read_text())]
    assert {"check", "verify"} <= called & set(TABLE)
    assert "--skip-others" in text
    seen = re.findall(r"files: (.*)", text)[0]
    assert all(re.search(seen, f"page.{suffix}") for suffix in ("md", "tex", "json", "txt", "html", "svg"))
    assert "${{ inputs" not in "".join(re.findall(r"run: .*", text))  # nothing is pasted into a shell
