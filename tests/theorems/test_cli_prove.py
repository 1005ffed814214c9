"""``symattn prove``: documents, grades, exit codes, files of the user's."""

import json
from pathlib import Path

import pytest

from symattn import Grade, Refused
from symattn import kind as kind_of
from symattn_cli.main import main
from tests.docs.pages import ROOT, files
from tests.theorems.conftest import stated

Ball = kind_of("ball")
Exact = kind_of("exact")

UNDECIDED = "    x = s.__array_namespace__()\n    return x.tanh(s + s), x.tanh(2 * s) + 0 * x.erf(s)"


def test_a_theorem_by_name(run):
    found = run("prove", "softmax-shift")
    assert found.status == 0
    assert "Theorem  [proved: all sizes]" in found.stdout
    assert "softmax(s + t 𝟏) = softmax(s)" in found.stdout
    assert "it is refuted: n_k = 2: e^(3/4)/(1 + e^(3/4)) ≠ 1/(1 + e^(1/2))" in " ".join(found.stdout.split())
    assert found.stdout == run("prove", "softmax-shift", "--no-cache").stdout


@pytest.mark.deep
def test_a_topic_has_a_section_for_each_theorem(run):
    found = run("prove", "heads", "--ascii")
    assert found.status == 0
    assert "1  heads-concat-is-sum" in found.stdout
    assert "Of 7 false variants, 7 are refuted" in found.stdout
    assert found.stdout.isascii()


def test_an_unknown_name_is_told_in_one_line_with_a_suggestion(run):
    assert (
        run("prove", "softmax-shfit").refusal
        == "symattn: no theorem or topic 'softmax-shfit'; did you mean 'softmax-shift'?\n"
    )


def test_names_and_all_do_not_go_together(run):
    assert run("prove", "masks", "--all").status == 2


def test_list(run):
    found = run("prove", "masks", "--list")
    assert found.status == 0
    assert "causal-no-leak" in found.stdout
    assert "softmax-shift" not in found.stdout


def test_json(run):
    found = json.loads(run("prove", "softmax-shift", "-f", "json").stdout)
    assert (found["schema"], found["kind"], found["verdict"]) == (1, "proof", "proved")
    (entry,) = found["theorems"]
    assert entry["name"] == "softmax-shift"
    assert entry["grade"] == "proved"
    assert entry["seconds"] >= 0
    assert entry["statement"] == "softmax(s + t 𝟏) = softmax(s)"
    assert entry["false_variant"]["grade"] == "refuted"
    assert "≠" in entry["false_variant"]["counterexample"]


def test_json_is_the_same_bytes_again_and_check_does_not_look_at_times(run, tmp_path):
    assert run("prove", "softmax-shift", "-f", "json").stdout == run("prove", "softmax-shift", "-f", "json").stdout
    assert run("prove", "softmax-shift", "-o", "kept.json").status == 0
    kept = Path("kept.json").read_text(encoding="utf-8")
    seconds = json.loads(kept)["theorems"][0]["seconds"]
    Path("kept.json").write_text(kept.replace(f'"seconds": {seconds}', '"seconds": 12.5'), encoding="utf-8")
    assert run("prove", "softmax-shift", "--check", "kept.json").status == 0
    Path("kept.json").write_text(kept.replace("proved", "checked"), encoding="utf-8")
    assert run("prove", "softmax-shift", "--check", "kept.json").status == 1


def test_explain_prints_the_equation_and_what_the_checker_says(run):
    found = run("prove", "softmax-shift", "--explain")
    assert found.status == 0
    assert "for all i ≤ n_k" in found.stdout
    assert "D_{n_k} = 2" in found.stdout
    assert "accepted by the checker" in found.stdout
    entry = json.loads(run("prove", "softmax-shift", "--explain", "-f", "json").stdout)["theorems"][0]
    assert entry["certificates"][0]["kind"] == "certificate"


@pytest.mark.deep
def test_several_processes_find_the_same(run):
    one = run("prove", "heads", "--no-cache")
    two = run("prove", "heads", "--no-cache", "--jobs", "2")
    assert (two.status, two.stdout) == (0, one.stdout)


@pytest.mark.deep
def test_every_form(run):
    assert run("prove", "softmax-shift", "-f", "latex").stdout.startswith("% Made with symattn: symattn prove")
    assert "## " in run("prove", "softmax-shift", "softmax-simplex", "-f", "markdown").stdout
    assert run("prove", "masks", "-f", "latex", "--fragment").status == 0


def test_a_theorem_of_the_users(run):
    Path("mine.py").write_text(stated())
    found = run("prove", "mine.py")
    assert found.status == 0
    assert "Theorem  [proved: all sizes]" in found.stdout
    assert run("prove", "mine.py", "softmax-shift").stdout.count("Theorem  [proved") == 2


def test_a_module_of_the_users(run):
    Path("hispackage").mkdir()
    Path("hispackage/__init__.py").touch()
    Path("hispackage/laws.py").write_text(stated())
    assert run("prove", "hispackage.laws").status == 0


def test_a_false_statement_is_refuted(run):
    Path("mine.py").write_text(stated(body="return exp(2 * s), 2 * exp(s)"))
    found = run("prove", "mine.py")
    assert found.status == 1
    assert "[refuted: " in found.stdout
    assert "A counterexample: " in found.stdout
    assert json.loads(run("prove", "mine.py", "-f", "json").stdout)["verdict"] == "refuted"


def test_a_false_variant_that_is_true_leaves_the_theorem_undecided(run):
    Path("mine.py").write_text(stated(false="(exp(s + s), exp(2 * s))"))
    found = run("prove", "mine.py")
    assert found.status == 3
    assert "[undecided: the false variant is accepted as well]" in found.stdout


def test_an_entry_that_small_sizes_lack_is_no_defect_of_symattn(run):
    Path("mine.py").write_text(stated(body="return s[0] + s[2], s[2] + s[0]"))
    found = run("prove", "mine.py")
    assert found.status == 3
    assert "an entry is missing at m = 1, n = 1: index 2" in " ".join(found.stdout.split())
    assert "it is refuted" in found.stdout
    assert "a defect" not in found.stdout


def test_an_equation_is_printed_as_the_code_gives_it(run):
    Path("mine.py").write_text(
        "from symattn import theorem\n@theorem('guarded', 'mine', 'x/x = 1', arrays={'x': 'n'},"
        " false=lambda x: (x, 2 * x), false_says='x = 2 x')\ndef statement(x):\n"
        "    xp = x.__array_namespace__()\n    return 1 / xp.where(x == 0, 0 * x + 1, x), 1 / x\n"
    )
    shown = run("prove", "mine.py").stdout
    assert "(1 − 0)" in shown
    assert "Hypothesis. xᵢ ≠ 0" in shown


@pytest.mark.deep
def test_a_statement_that_cannot_be_decided(run):
    Path("mine.py").write_text(stated(body=UNDECIDED.strip()))
    found = run("prove", "mine.py")
    assert found.status == 3
    assert "[undecided" in found.stdout


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def f(:", "mine.py cannot be imported: SyntaxError: invalid syntax (mine.py:1)"),
        ("x = 1", "mine.py: no theorem found; hint: state one with the decorator symattn.theorem"),
        ("raise ValueError('no\\nway')", "mine.py cannot be imported: ValueError: no (mine.py:1)"),
        ("import sys; sys.exit(0)", "mine.py cannot be imported: SystemExit: 0 (mine.py:1)"),
        (stated().replace("false=", "flase="), "did you mean false? (mine.py:"),
        (stated(body="return s.foo, s"), "mine.py:12: the statement of 'doubling' raises AttributeError: "),
        (stated(false="(s.foo, s)"), "mine.py:10: the false variant of 'doubling' raises AttributeError: "),
        (
            stated(body="return 3"),
            "mine.py: the statement of 'doubling': it returns an int; hint: return (left, right)",
        ),
        (stated(body="return s"), "'doubling': it returns one array; hint: return (left, right)"),
        (stated(body="return s, s.softmax(-1)"), "has no attribute 'softmax'; hint: arrays are letters here"),
        (stated(body="return s, s[0]").replace("n m", "n+* m"), "mine.py: the statement of 'doubling': '' in a shape"),
        (stated().replace("def statement(s)", "def statement(z)"), "asks for 'z', which it declares neither as"),
        (
            stated(body="if hasattr(s, 'entries'): [][1]\n    return s, s"),
            "mine.py: a function of 'doubling' raises IndexError: ",
        ),
    ],
)
def test_a_bad_file_is_told_in_one_line(run, text: str, line: str):
    Path("mine.py").write_text(text)
    assert line in run("prove", "mine.py").refusal


def test_a_defect_of_symattn_ends_one_theorem_and_is_called_one(run, monkeypatch):
    from symattn.arrays.index import building

    other = stated("other", "return s, 1 * s", "(s, 2 * s)").replace("statement", "plain")
    Path("mine.py").write_text(stated() + other)
    monkeypatch.setattr(building, "exponential", None)
    found = run("prove", "mine.py")
    assert found.status == 3
    assert "[undecided: a defect of symattn; please report it (TypeError: " in found.stdout
    assert "[proved" in found.stdout


def test_a_file_that_is_not_there(run):
    assert run("prove", "mine.py").status == 2
    assert run("prove", "no.such.module").status == 2
    assert run("prove", "folder/mine").status == 2
    Path("mine.py").write_text(stated())
    assert "did you mean 'mine.py'?" in run("prove", "mine").stderr


def test_two_theorems_of_one_name(run):
    Path("mine.py").write_text(stated() + stated().replace("statement", "other"))
    assert "mine.py: two theorems are called 'doubling'" in run("prove", "mine.py").stderr
    Path("mine.py").write_text(stated(name="softmax-shift"))
    found = run("prove", "softmax", "mine.py")
    assert found.status == 2
    assert "two theorems are called 'softmax-shift'" in found.stderr


@pytest.mark.deep
def test_what_a_file_prints_is_no_part_of_the_document(run):
    Path("mine.py").write_text("print('hello')\n" + stated(body="print('run')\n    return s, s", false="(s, 2 * s)"))
    for jobs in ("1", "2"):
        found = run("prove", "mine.py", "softmax-shift", "-f", "json", "--jobs", jobs, "--no-cache")
        assert json.loads(found.stdout)["theorems"][0]["name"] == "doubling"
        assert "hello" in found.stderr


def test_an_interrupt_loses_only_what_was_being_decided(run, monkeypatch, capfd):
    from symattn.theorems import runner

    honest, done = runner.decide, []

    def decide(theorem):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(theorem.name)
        return honest(theorem)

    names = ["softmax-shift", "softmax-log-ratio", "softmax-two-is-sigmoid", "softmax-simplex"]
    monkeypatch.setattr(runner, "decide", decide)
    assert main(["prove", *names]) == 130
    out, err = capfd.readouterr()
    assert (out, err) == ("", "symattn: interrupted\n")
    monkeypatch.setattr(runner, "decide", lambda theorem: (done.append(theorem.name), honest(theorem))[1])
    assert main(["prove", *names]) == 0
    assert sorted(done) == sorted(names), "the first three are not decided again"


def test_a_grade_below_checked_is_no_pass():
    from symattn import Document
    from symattn_cli.output import status

    def ends(*grades: Grade) -> int:
        return status(Document("proof", "t", ("t",), (), record={"theorems": [{"grade": g} for g in grades]}))

    assert [ends(grade) for grade in (Grade.PROVED, Grade.CHECKED, Grade.ENCLOSED, Grade.SAMPLED)] == [0, 0, 3, 3]
    assert ends(Grade.PROVED, Grade.UNDECIDED, Grade.REFUTED) == 1


def test_words_that_are_not_read_have_no_grade(run):
    Path("mine.py").write_text(stated().replace("e^(2 s) = e^s e^s", "e^s = 2 e^s"), encoding="utf-8")
    shown = run("prove", "mine.py").stdout
    assert "Theorem  [proved: all sizes]\n    e^(2sᵢⱼ) = e^(sᵢⱼ)·e^(sᵢⱼ)\n" in shown
    assert "Informal (not checked): e^s = 2 e^s" in shown
    found = json.loads(run("prove", "mine.py", "-f", "json").stdout)
    assert "e^(2sᵢⱼ) = e^(sᵢⱼ)·e^(sᵢⱼ)" in json.dumps(found, ensure_ascii=False)


def test_hypotheses_in_words_are_not_said_to_be_met(run):
    Path("mine.py").write_text(stated().replace("false_says=", 'hypotheses=("every row sums to 3",), false_says=', 1))
    shown = run("prove", "mine.py").stdout
    assert "Hypothesis. Informal (not checked): every row sums to 3." in shown
    assert "Witness. The statement holds in numbers at" in shown
    assert "are met" not in shown


def test_what_is_stated_is_not_simplified_before_it_is_printed(run):
    body = "return (exp(s) * exp(-s)) * s, s"
    Path("mine.py").write_text(stated(body=body), encoding="utf-8")
    assert "e^(sᵢⱼ)·e^(−sᵢⱼ)" in run("prove", "mine.py").stdout


FILE = """
from symattn import theorem

def stated(name, says, sides):
    arrays = {"x": "n", "y": "n"}
    return theorem(name, "mine", says, arrays=arrays, false=lambda x, y: (x, y), false_says="x = y")(sides)

lacking = stated("lacking", "a function of x is one of y",
                 lambda x, y: (x.__array_namespace__().arccosh(x), x.__array_namespace__().arccosh(y)))
sums = stated("sums", "sums commute", lambda x, y: (x + y, y + x))
"""


def test_what_is_lacking_is_refused_by_name_and_others_go_on(run):
    Path("mine.py").write_text(FILE, encoding="utf-8")
    found = run("prove", "mine.py")
    assert "2 theorems: 1 proved, 1 undecided" in found.stdout
    assert "lacks arccosh" in " ".join(run("prove", "mine.py", "--explain").stdout.split()) + found.stdout


@pytest.mark.parametrize("kind", [Exact, Ball])
def test_a_kind_refuses_what_it_lacks(kind: type):
    with pytest.raises(Refused, match="lacks arccosh"):
        kind.xp.arccosh(kind.lift([2]))
    assert not hasattr(kind.xp, "arccosh")


PAGE = (ROOT / "docs/prove.md").read_text(encoding="utf-8")


@pytest.mark.coq
def test_the_theorem_of_the_page_has_the_grade_and_the_false_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in files(PAGE).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert "`symattn prove mine.py --coq`" in PAGE
    assert main(["prove", "mine.py", "--coq", "--no-cache"]) == 0
    told = capsys.readouterr().out
    assert "[coq: all sizes, by Coq" in told
    assert "Theorem key_offset : forall" in told
    assert main(["prove", "wrong.py", "--coq", "--no-cache"]) == 1
    told = capsys.readouterr().out
    assert "[refuted: " in told
    assert "[coq: " not in told


BAD_BESIDE_GOOD = """from symattn import theorem


def stated(name, sides):
    return theorem(
        name, "mine", "2 x = x + x", arrays={"x": "n"}, false=lambda x: (x, 2 * x), false_says="x = 2 x"
    )(sides)


unknown = stated("unknown", lambda x: (2 * x, y))
one = stated("one", lambda x: 2 * x)
good = stated("good", lambda x: (2 * x, x + x))
"""


def test_a_bad_statement_stops_no_other(run):
    Path("mine.py").write_text(BAD_BESIDE_GOOD, encoding="utf-8")
    ran = run("prove", "mine.py", "-f", "json")
    assert ran.status == 2
    assert {entry["name"]: entry["grade"] for entry in ran.json["theorems"]} == {
        "unknown": "undecided",
        "one": "undecided",
        "good": "proved",
    }
    assert ran.stderr.splitlines() == [
        "symattn: mine.py:10: the statement of 'unknown' raises NameError: name 'y' is not defined",
        "symattn: mine.py: the statement of 'one': it returns one array; hint: return (left, right), or a list of such"
        " pairs",
    ]
