"""The page on what people try first: each row names a test, and those that no other file holds are here."""

import ast
import json
import re
from importlib import import_module
from pathlib import Path

import click
import pytest

from symattn import bound
from symattn.derivations.examples import find
from symattn_cli.main import TABLE, commands, main
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "first-tries.md"
OWN, TERMINAL, PYTHON = "derivations/walks/test_hostile.py", "cli/test_manners.py", "cli/test_first_tries.py"
RELEASE, CLASS, HERE = "cli/test_release.py", "derivations/walks/test_examples.py", "docs/test_first_tries.py"
ONE_LINE = f"{PYTHON}::test_what_is_wrong_is_told_in_one_line"

# How a row begins → the test that holds it, below tests/.
HELD = {
    "a sheet with arrays side by side": f"{OWN}::test_flat_sheets_are_those_with_inputs",
    "arrays called `X`": f"{OWN}::test_no_two_arrays_are_one_when_written_otherwise",
    "arrays called `query`": f"{OWN}::test_other_names_get_a_suggestion",
    "a sheet of 1000 × 1000": "derivations/walks/test_hostile.py::test_too_large_is_told_before_any_number_is_read",
    "rows without a name": ONE_LINE,
    "`--scale none`": f"{TERMINAL}::test_scale_none_is_no_scaling_everywhere",
    '`"scale": null`': f"{TERMINAL}::test_null_for_scale_is_refused_in_sheets",
    '`symattn walk "money bank grows"`': f"{OWN}::test_bank_in_its_context",
    "the block of keys": f"{OWN}::test_the_block_of_keys_queries_and_features_sums_to_the_output",
    "an input that is to be truncated": f"{OWN}::test_tokens_are_truncated_and_columns_are_not",
    "looking for the queries": f"{TERMINAL}::test_names_of_arrays_have_the_colours_of_their_roles",
    "a wide terminal": f"{TERMINAL}::test_tables_use_the_width_of_a_terminal",
    "waiting": f"{HERE}::test_what_may_take_long_says_what_it_does",
    "`symattn verify --help`": f"{TERMINAL}::test_help_is_in_groups",
    "`--causal` and": f"{TERMINAL}::test_the_flags_of_an_attention_are_the_same_everywhere",
    "`symattn prove --list`": f"{TERMINAL}::test_the_list_is_readable_in_eighty_columns",
    "`symattn prove --search": f"{TERMINAL}::test_search_finds_words_and_not_parts_of_words",
    "`symattn prove rope`": f"{TERMINAL}::test_words_of_the_field_name_theorems",
    "`symattn derive variance`": ONE_LINE,
    "`--d_k 4`": f"{TERMINAL}::test_names_that_frameworks_have_are_understood",
    "`symattn verify … --atol": f"{TERMINAL}::test_a_tolerance_is_not_picked",
    "`-o page.pdf`": ONE_LINE,
    "`symattn completion powershell`": f"{TERMINAL}::test_powershell_has_a_completion",
    "`symattn report`": f"{HERE}::test_the_book_is_what_report_writes",
    '`derive("scaling"': f"{PYTHON}::test_in_python",
    '`walk({"x"': f"{OWN}::test_tokens_alone_are_not_scaled_unless_one_says_so",
    "`symattn.prove(": f"{PYTHON}::test_in_python",
    "`bound(n=256": f"{HERE}::test_bound_is_the_same_in_python_and_on_the_command_line",
    "`print(derive(": f"{PYTHON}::test_what_is_made_prints_and_has_every_form",
    "`Attention()`": f"{PYTHON}::test_representations_are_short_and_are_read_back",
    "`help(symattn.walk)`": f"{PYTHON}::test_public_names_have_an_example",
    "`verify(torch": "programs/test_modules.py::test_right_modules_have_no_fault",
    "`symattn check PAGE.md`": f"{RELEASE}::test_fresh_documents_are_told_from_stale_ones",
    "`symattn cache`": f"{RELEASE}::test_the_cache_says_where_it_is_and_is_cleared",
    "`[tool.symattn]`": f"{RELEASE}::test_defaults_come_from_the_project",
    "a hook for pre-commit": f"{RELEASE}::test_hook_and_action_call_commands_that_there_are",
    "a recipe for conda": f"{RELEASE}::test_the_recipe_for_conda_is_that_of_the_project",
    "a JSON Schema": f"{RELEASE}::test_documents_are_as_their_schema_says",
    "asking what runs code": f"{HERE}::test_the_security_note_names_what_runs_code",
    "`symattn walk eight-step --blank": f"{CLASS}::test_empty_steps_hold_no_answers",
    "`--answers`": f"{CLASS}::test_answers_stand_at_the_end",
    "`--seed 3`": f"{CLASS}::test_seeds_draw_other_numbers_that_stay_kind",
    "a sheet as LaTeX or HTML": f"{HERE}::test_sheets_for_a_class_are_written_in_other_forms",
    "`symattn exercises`": f"{CLASS}::test_exercises_are_checked_for_many_seeds",
}


def rows(text: str) -> list[str]:
    """What is tried, of every row of the tables of a page."""
    found = (line.split(" | ")[0].removeprefix("| ") for line in text.split("\n") if line.startswith("| "))
    return [tried for tried in found if tried != "what is tried"]


def unheld(text: str, held: dict[str, str]) -> list[str]:
    """The rows of a page without exactly one test, and the tests without a row."""
    tried = rows(text)
    without = [row for row in tried if sum(row.startswith(start) for start in held) != 1]
    return [*without, *(test for start, test in held.items() if not any(row.startswith(start) for row in tried))]


def missing(held: dict[str, str]) -> list[str]:
    """The tests that are named and are not there."""
    names = {}
    for file in {test.partition("::")[0] for test in held.values()}:
        path = ROOT / "tests" / file
        tree = ast.parse(path.read_text(encoding="utf-8")) if path.exists() else ast.Module([], [])
        names[file] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return [test for test in held.values() if test.partition("::")[2] not in names[test.partition("::")[0]]]


def test_every_row_has_a_test() -> None:
    assert unheld(PAGE.read_text(encoding="utf-8"), HELD) == []
    assert missing(HELD) == []


def test_a_row_without_a_test_is_seen() -> None:
    page = "| what is tried | what comes |\n|---|---|\n| a | b |\n| c | d |\n"
    assert unheld(page, {"a": "x", "c": "y"}) == []
    assert unheld(page, {"a": "x"}) == ["c"]
    assert unheld(page, {"a": "x", "c": "y", "e": "z"}) == ["z"]
    assert missing({"a": f"{HERE}::test_nothing", "b": "docs/nothing.py::test"}) == [
        f"{HERE}::test_nothing",
        "docs/nothing.py::test",
    ]


def test_a_text_names_its_sheet() -> None:
    assert find("money bank grows") == find("Money-Bank-Grows") == "money-bank-grows"
    assert find("money bank") is None


LONG = ("derive", "walk", "explore", "draw", "exercises", "prove", "verify", "compare", "arithmetic", "bound", "faults")


@pytest.mark.parametrize("name", LONG)
def test_what_may_take_long_says_what_it_does(name: str) -> None:
    """How it is said, and when, is held by the tests of ``progress`` itself."""
    tree = ast.parse(Path(import_module(f"symattn_cli.{name}").__file__ or "").read_text(encoding="utf-8"))
    opened = [item.context_expr for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items]
    assert any(isinstance(c, ast.Call) and isinstance(c.func, ast.Name) and c.func.id == "progress" for c in opened)


@pytest.mark.deep
def test_the_book_is_what_report_writes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from symattn_cli import report

    asked = []
    few = report.proved
    monkeypatch.setattr(report, "proved", lambda names, **told: asked.append(names) or few(("softmax-shift",), **told))
    assert main(["report", "--no-cache"]) == 0
    shown = capsys.readouterr().out
    assert main(["report", "--book", "--no-cache"]) == 0
    assert capsys.readouterr().out == shown
    assert asked == [(), ()]


def test_bound_is_the_same_in_python_and_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bound", "--n", "256", "--dk", "64", "--dtype", "float32", "--no-compare", "-f", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    made = json.loads(bound(n=256, d_k=64).json())
    assert {**printed, "command": ""} == {**made, "command": ""}


# Parameters of commands that name something to be imported and called, or run.
_RUN = {"target", "first", "second", "script", "what"}


def test_the_security_note_names_what_runs_code() -> None:
    note = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## What never does")[0]
    context = click.Context(commands)
    taking = {name for name in TABLE if _RUN & {p.name for p in commands.get_command(context, name).params}}  # type: ignore[union-attr]
    assert {"verify", "compare", "audit", "campaign"} <= taking
    named = set(re.findall(r"`symattn ([a-z]+)", note))
    assert taking | {"prove"} == named


@pytest.mark.parametrize("name", ["sheet.tex", "sheet.html"])
def test_sheets_for_a_class_are_written_in_other_forms(name: str, tmp_path: Path) -> None:
    whole, sheet = tmp_path / f"whole-{name}", tmp_path / name
    assert main(["walk", "eight-step", "-o", str(whole)]) == 0
    assert main(["walk", "eight-step", "--blank", "5,6", "-o", str(sheet)]) == 0
    assert "0.468310531" in whole.read_text(encoding="utf-8")
    assert "0.468310531" not in sheet.read_text(encoding="utf-8")
