"""The terminal: groups in help, one set of flags, words of the field, width, progress, spellings, completion."""

import io
import re
import sys
import time
from typing import Any

import click
import pytest

from symattn import Attention, theorems
from symattn_cli import choices, progress, stream
from symattn_cli.fields import NAMES
from symattn_cli.groups import Grouped, topics
from symattn_cli.main import TABLE, commands
from tests.printed import count_columns


def command_of(name: str) -> click.Command:
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    return command


FIELDS = ("derive", "walk", "verify", "bound")


def spellings(name: str) -> dict[str, tuple[list[str], list[str]]]:
    options = (p for p in command_of(name).params if isinstance(p, click.Option))
    return {str(o.name): (o.opts, o.secondary_opts) for o in options if o.name in NAMES}


@pytest.mark.parametrize("name", FIELDS)
def test_the_flags_of_an_attention_are_the_same_everywhere(name: str) -> None:
    assert spellings(name) == spellings("walk")
    assert spellings(name)["causal"] == (["--causal"], ["--no-causal"])
    assert set(spellings(name)) == set(Attention.__dataclass_fields__)


def test_help_is_in_groups(run) -> None:
    help_of_verify = run("verify", "--help").stdout
    titles = (
        "symattn verify mypkg",
        "Options:",
        "Which attention",
        "More options",
        "  fields ",
        "  inputs ",
        "  output ",
    )
    places = [help_of_verify.index(title) for title in titles]
    assert places == sorted(places)


def helps(command: click.Command, context: click.Context) -> dict[str, str]:
    """The help of a command, and of the commands within it."""
    found = {context.command_path: command.get_help(context)}
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        inner = command.get_command(context, name)
        assert inner is not None
        found |= helps(inner, click.Context(inner, info_name=name, parent=context))
    return found


def test_no_help_is_longer_than_a_screen() -> None:
    names = ["-h", "--help"]  # a command keeps the names of its first context
    # Click leaves two columns of a terminal free.
    context = click.Context(commands, info_name="symattn", terminal_width=78, help_option_names=names)
    every = helps(commands, context)
    assert {"symattn", "symattn verify", "symattn faults run", "symattn claim weights"} <= set(every)
    assert {path: text.count("\n") + 1 for path, text in every.items() if text.count("\n") >= 60} == {}
    assert {path for path, text in every.items() if max(map(len, text.splitlines())) > 80} == set()


def test_every_option_that_help_only_names_is_explained_under_its_topic(run) -> None:
    for name in TABLE:
        for topic, options in topics(command_of(name)).items():
            explained = run("help", topic).stdout
            assert [option for option in options if f"  {option}" not in explained] == []
    assert run("help", "verify").stdout == run("verify", "--help").stdout
    assert "Did you mean 'fields'?" in run("help", "field").stderr


def test_help_of_fields_sends_nobody_to_a_python_name(run) -> None:
    explained = " ".join(run("help", "fields").stdout.split())
    assert not re.search(r"\bsee [A-Z]|Rotary|TransformerXL|Latent:", explained)
    assert "rotary (base=10000, width, layout=half, " in explained


def test_an_option_without_a_title_is_an_option() -> None:
    plain = Grouped("x", params=[click.Option(["--one"], help="One."), click.Argument(["two"])])
    shown = plain.get_help(click.Context(plain))
    assert "Options:\n  --one" in shown
    assert "two" not in shown.partition("Options:")[2]


@pytest.mark.parametrize(("typed", "option"), [("--d-k", "--dk"), ("--d_k", "--dk")])
def test_other_spellings_are_understood_with_a_hint(run, typed: str, option: str) -> None:
    choices._hinted.clear()
    ran = run("bound", "--n", "4", typed, "4")
    assert ran.status == 0
    assert f"symattn: {typed} is written {option}\n" in ran.stderr
    assert ran.stdout == run("bound", "--n", "4", option, "4").stdout
    assert run("bound", "--d-q", "4").status == 2


@pytest.mark.parametrize(
    ("typed", "option"),
    [("n-heads", "heads"), ("num_heads", "heads"), ("sliding-window", "window"), ("is_causal", "causal")],
)
def test_names_that_frameworks_have_are_understood(typed: str, option: str, capsys) -> None:
    choices._hinted.clear()
    assert choices.understood(("heads", "causal", "window", "no-causal"), typed) == option
    assert capsys.readouterr().err == f"symattn: --{typed} is written --{option}\n"


@pytest.mark.parametrize("option", ["--tolerance", "--atol"])
def test_a_tolerance_is_not_picked(run, option: str) -> None:
    ran = run("verify", "attn.py:attention", option, "1e-3")
    assert (ran.status, ran.stdout) == (2, "")
    assert "no tolerance is picked" in ran.stderr
    assert "symattn bound prints the one that follows from the arithmetic" in ran.stderr


def test_scale_none_is_no_scaling_everywhere(run) -> None:
    from symattn_cli.variants import specified

    assert "no scaling" in run("walk", "ground-up", "--scale", "none").stdout
    spec = specified({"scale": "none"}).spec
    assert spec == Attention(scale=1)
    for name in FIELDS:
        assert "--scale" in run(name, "--help").stdout
    told = " ".join(run("help", "fields").stdout.split())
    assert "1 turns scaling off (as an option also none)" in told
    assert "none is 1/sqrt" not in told


def test_null_for_scale_is_refused_in_sheets(run, tmp_path) -> None:
    sheet = tmp_path / "sheet.json"
    sheet.write_text('{"x": [[1, 2]], "w_q": [[1], [1]], "w_k": [[1], [1]], "w_v": [[1], [1]], "scale": null}')
    ran = run("walk", str(sheet))
    assert (ran.status, ran.stdout) == (2, "")
    assert 'scale is null; hint: "none" for no scaling' in ran.stderr


@pytest.mark.parametrize("word", ["rope", "multihead", "gqa", "multi_head", "flashattention", "layernorm", "variance"])
def test_words_of_the_field_name_theorems(word: str) -> None:
    assert theorems.select((word,))


def test_every_word_that_is_known_means_something() -> None:
    every = tuple(theorems.catalogue().values())
    assert [word for word in theorems.known() if not theorems.meant(word, every)] == []


@pytest.mark.deep
def test_search_finds_words_and_not_parts_of_words(run) -> None:
    names = [t.name for t in theorems.matching("variance", theorems.catalogue().values())]
    assert names[0].startswith("score-variance")
    assert "permutation-equivariance" not in names
    assert [t.name for t in theorems.matching("rank one", theorems.catalogue().values())] == [
        t.name
        for t in theorems.catalogue().values()
        if t in theorems.matching("one rank", theorems.catalogue().values())
    ]
    ran = run("prove", "--search", "variance")
    assert "score-variance" in ran.stdout
    nothing = run("prove", "--search", "no such words anywhere")
    assert (nothing.status, nothing.stdout) == (2, "")


def test_the_list_is_readable_in_eighty_columns(run) -> None:
    lines = run("prove", "--list").stdout.splitlines()
    assert max(map(count_columns, lines)) <= 80
    named = int(lines[0].split()[-2])
    assert len(lines) < 3 * named
    assert any("softmax-shift  " in line for line in lines)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_to_a_terminal_after_a_while_and_then_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    with progress.progress("walking") as told:
        told("the third step")
        end = time.monotonic() + 30
        while "the third step" not in terminal.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    assert "walking: the third step, 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_nothing_is_shown_to_a_file_or_where_it_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream_ in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream_)
        with progress.progress("walking") as told:
            told("the first step")
        assert stream_.getvalue() == ""


def test_tables_use_the_width_of_a_terminal(run, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = run("prove", "positions", "--list").stdout
    monkeypatch.setattr(stream, "columns", lambda: 140)
    wide = run("prove", "positions", "--list").stdout
    assert max(map(len, wide.splitlines())) > 100
    assert len(wide.splitlines()) < len(narrow.splitlines())


def test_a_pipe_is_eighty_columns_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert stream.columns() == 80
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert stream.columns() == 140


def test_names_of_arrays_have_the_colours_of_their_roles(run) -> None:
    coloured = run("walk", "eight-step", "--color", "always").stdout
    assert "\x1b[33mW_K\x1b[0m" in coloured
    assert "\x1b[36mweights\x1b[0m" in coloured
    assert "\x1b[" not in run("walk", "eight-step").stdout


def test_powershell_has_a_completion(run) -> None:
    script = run("completion", "powershell").stdout
    assert "Register-ArgumentCompleter -Native -CommandName symattn" in script
    assert script.count("{") == script.count("}")


@pytest.mark.parametrize("of", ["x", "erf(x)", "2*x", "tanh(x)*y"])
def test_an_expression_may_begin_with_a_minus_sign(run: Any, of: str) -> None:
    assert run("claim", "equal", f"-{of}", f"0 - ({of})").status == 0
    assert run("claim", "equal", f"-{of}", of, "-f", "json").status == 1
