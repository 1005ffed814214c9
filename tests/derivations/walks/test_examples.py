"""The worked examples come out exactly, through the command line; sheets for a class leave steps empty."""

import json
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

from symattn import Grade, InputError, exercises, kinds, printing, walk
from symattn.derivations import examples
from symattn.derivations.exercises import TASKS, checked
from symattn.proof.relations.comparing import FalseStep
from tests.attention.by_loops import attention
from tests.attention.by_loops_positions import num


def step(document, name: str) -> dict:
    return next(entry for entry in document["steps"] if entry["name"] == name)


def exact(rows):
    return [exact(row) for row in rows] if isinstance(rows, list) else kinds.Quotient.of(rows)


def equal(found, expected) -> bool:
    return exact(found) == exact(expected)


E0 = {
    "q": [[0, 0, 2, 2], [1, 1, 1, -1]],
    "k": [[0, 0, 2, 3], [1, 1, 1, 0]],
    "v": [[5, 2, 1], [-1, 4, 0]],
    "scaled": [[5, 1], ["-1/2", "3/2"]],
    "weights": [["1/(1+exp(-4))", "1/(1+exp(4))"], ["1/(1+exp(2))", "1/(1+exp(-2))"]],
    "output": [
        ["(5*exp(4)-1)/(exp(4)+1)", "(2*exp(4)+4)/(exp(4)+1)", "exp(4)/(exp(4)+1)"],
        ["(5-exp(2))/(1+exp(2))", "(2+4*exp(2))/(1+exp(2))", "1/(1+exp(2))"],
    ],
}
E1 = {
    "k": [[0, 1, 1], [4, 4, 0], [2, 3, 1]],
    "q": [[1, 0, 2], [2, 2, 2], [2, 1, 3]],
    "v": [[1, 2, 3], [2, 8, 0], [2, 6, 3]],
    "scores": [[2, 4, 4], [4, 16, 12], [4, 12, 10]],
}
D2, D3 = "(1+exp(8)+exp(12))", "(1+exp(6)+exp(8))"
DIFFERENCES = [
    ["-1/(1+2*exp(2))", "-5/(1+2*exp(2))", "3/(2*(1+2*exp(2)))"],
    [f"-1/{D2}", f"-2*(3+exp(8))/{D2}", f"3*(1+exp(8))/{D2}"],
    [f"-1/{D3}", f"(exp(8)-9*exp(6)-29)/(5*{D3})", f"-3*(exp(8)-9*exp(6)-9)/(10*{D3})"],
]


@pytest.mark.parametrize(("name", "arrays"), [("E0", E0), ("E1", E1)])
def test_every_array_is_the_one_listed(run, name: str, arrays: dict) -> None:
    ran = run("walk", name, "-f", "json")
    assert ran.status == 0
    for array, rows in arrays.items():
        assert equal(step(ran.json, array)["exact"], rows), array


def test_eight_step_holds_the_first_output_as_a_person_writes_it(run) -> None:
    output = step(run("walk", "eight-step", "-f", "json").json, "output")
    assert output["exact"][0][0] == "(1+4*exp(2))/(1+2*exp(2))"
    assert output["grade"] == "checked"


def test_exact_strings_are_read_by_sympy(run) -> None:
    import sympy

    for entry in run("walk", "E3", "-f", "json").json["steps"]:
        for text, digits in zip(flat_of(entry["exact"]), flat_of(entry["decimal"]), strict=True):
            assert float(sympy.sympify(text).evalf(30)) == pytest.approx(digits, rel=1e-15)


def test_eight_step_has_every_difference_from_what_was_printed(run) -> None:
    printed = run("walk", "E1", "-f", "json").json["printed"]
    assert equal(printed["difference"]["output"], DIFFERENCES)
    assert printed["reproduced_by"] == ["sum"]
    decimals = [[kinds.Quotient.of(x).decimal(3) for x in row] for row in printed["difference"]["output"]]
    assert decimals == [
        ["-0.0634", "-0.317", "0.0951"],
        ["-6.03e-06", "-0.0360", "0.0540"],
        ["-0.000295", "-0.0401", "0.0584"],
    ]


def test_eight_step_in_three_roundings(run) -> None:
    roundings = run("walk", "E1", "-f", "json").json["roundings"]
    kept, nearest = roundings["sum"], roundings["nearest"]
    assert equal(kept["weights"], [[0, ".5", ".5"], [0, 1, 0], [0, ".9", ".1"]])
    assert equal(kept["output"], [[2, 7, "1.5"], [2, 8, 0], [2, "7.8", ".3"]])
    assert equal(kept["difference"]["output"], DIFFERENCES)
    assert equal(kept["weighted"][2], [[0, 0, 0], ["1.8", "7.2", 0], [".2", ".6", ".3"]])
    assert equal(nearest["weights"][0], [".1", ".5", ".5"])
    assert equal(nearest["output"][0], ["21/10", "36/5", "9/5"])


def test_eight_step_says_which_rounding_the_text_used(run) -> None:
    text = " ".join(run("walk", "E1").stdout.split())
    assert "by largest remainders, which keep the sum of each row (--rounding sum)" in text
    assert "Rounded to nearest, 0.0634 would be 0.1, not 0, and row 1 would sum to 1.1" in text
    assert "all 9 are the exact numbers, correctly rounded" in text
    assert "this example cannot tell QKᵀ from KQᵀ" in text.replace("Q Kᵀ", "QKᵀ").replace("K Qᵀ", "KQᵀ")
    assert "What it prints next follows exactly from these weights" in text


def test_another_printed_rounding_is_told_by_comparing(sheet, run) -> None:
    """The sentence is computed: other printed weights give another one."""
    data = json.loads(run("examples", "show", "E1", "-f", "json").stdout)["sheet"]
    data["printed"]["rounded"]["weights"][0] = ["0.1", "0.5", "0.5"]
    text = " ".join(run("walk", sheet(data)).stdout.split())
    assert "to 1 decimal, to nearest (--rounding nearest)" in text
    assert "does not follow from these weights" in text
    data["printed"]["rounded"]["weights"][0] = ["0.2", "0.4", "0.4"]
    assert "by none of the roundings known here" in " ".join(run("walk", sheet(data)).stdout.split())
    data["printed"]["digits"]["weights"][0][0] = "6.3378e-02"
    text = " ".join(run("walk", sheet(data)).stdout.split())
    assert "1 are not the exact ones rounded: it has 6.3378e-02 where 0.0633789383 is right" in text


def test_eight_step_with_the_usual_scale(run) -> None:
    ran = run("walk", "E1", "--scale", "1/sqrt(d_k)", "-f", "json")
    expected = [[1.86387, 6.31937, 1.70419], [1.99911, 7.81412, 0.27347], [1.99256, 7.47964, 0.73588]]
    assert [[round(x, 5) for x in row] for row in step(ran.json, "output")["decimal"]] == expected
    assert "printed" not in ran.json  # the text printed another attention


def test_without_parameters_similarity_is_symmetric(run) -> None:
    ran = run("walk", "E2")
    assert "S is symmetric whatever the inputs are" in ran.stdout
    scores = exact(step(run("walk", "E2", "-f", "json").json, "scores")["exact"])
    assert scores == [list(column) for column in zip(*scores, strict=True)]


def test_king_attends_to_queen_more_than_to_itself(run) -> None:
    document = run("walk", "king-queen", "-f", "json").json
    assert equal(step(document, "scores")["exact"][0][:2], ["6/5", "123/100"])
    king = step(document, "weights")["decimal"][0]
    assert (round(king[0], 4), round(king[1], 4)) == (0.3869, 0.3987)
    assert "king attends to queen (0.3987) more than to itself (0.3869)" in " ".join(run("walk", "E4").stdout.split())


def rows(entries) -> list:
    """The rows of nested lists, whatever heads are around them."""
    return [row for part in entries for row in rows(part)] if isinstance(entries[0][0], list) else entries


@pytest.mark.deep
def test_every_row_of_every_example_sums_to_one() -> None:
    summed = []
    for name in examples.names():
        if examples.load(name).attention.sink:
            continue
        for entry in walk(name).record["steps"]:
            if entry["name"] == "weights" and entry["grade"] is Grade.CHECKED:
                nested = json.loads(json.dumps(entry["exact"]))
                assert all(sum(map(kinds.Quotient.of, row), kinds.Quotient.of(0)) == 1 for row in rows(nested)), name
                summed.append(name)
    assert set(examples.NAMES) - set(summed) == {"decoder-step", "additive"}


@pytest.mark.deep
@pytest.mark.parametrize("name", examples.NAMES)
def test_every_example_in_every_form(run, name: str) -> None:
    document = walk(name, why=True, all=True)
    text = printing.render(document, "text")
    assert [line for line in text.splitlines()[:-2] if len(line) > 80] == []
    assert "e^" in text or "exact" in text
    assert printing.render(document, "latex").count("\\begin{") == printing.render(document, "latex").count("\\end{")
    assert "\\operatorname" not in printing.render(document, "markdown")
    assert run("walk", name, "--why", "--all", "-f", "json").stdout == printing.render(document, "json")


@pytest.mark.parametrize("alias", ["E0", "e0X", "e1", "EIGHT-STEP", "E2", "E3", "e4", "word-vectors", "King-Queen"])
def test_names_in_any_case(alias: str) -> None:
    assert examples.load(alias).inputs


def test_examples_are_listed_and_shown(run) -> None:
    listed = run("examples").stdout
    assert all(name in listed for name in examples.NAMES)
    shown = run("examples", "show", "E1")
    assert shown.status == 0
    assert '"w_q"' in shown.stdout


def test_a_shown_example_can_be_walked_through(run, sheet) -> None:
    copy = sheet(run("examples", "show", "E0", "-f", "json").stdout)
    assert equal(step(run("walk", copy, "-f", "json").json, "output")["exact"], E0["output"])


def test_an_unknown_example_is_one_line(refused) -> None:
    assert "Did you mean 'eight-step'?" in refused("walk", "eigth-step")
    assert "Did you mean 'eight-step'?" in refused("examples", "show", "eightstep")
    assert "Known: eight-step" in refused("examples", "show", "E17")
    with pytest.raises(InputError, match="unknown example"):
        examples.load("nothing")


def test_fractions_of_a_sheet_are_exact(run, sheet) -> None:
    file = sheet('{"inputs": {"q": [["1/3", 0.1]], "k": [[1, 1], ["sqrt(2)", 0]], "v": [[1], [2.50]]}}')
    document = run("walk", file, "-f", "json").json
    assert equal(step(document, "q")["exact"], [["1/3", "1/10"]])
    assert kinds.Quotient.of(step(document, "scaled")["exact"][0][0]) == kinds.Quotient.of(
        Fraction(13, 30)
    ) / kinds.Quotient.of("sqrt(2)")
    assert "as typed: 0.1 is 1/10" in document["notes"][0]


def test_empty_steps_hold_no_answers() -> None:
    whole, empty = walk("eight-step").text(), walk("eight-step", blank="5,6").text()
    for answer in ("e²/(1 + 2e²)", "0.468310531", "0.46831", "6.3379e-02"):
        assert answer in whole
        assert answer not in empty.partition("7  sum")[0]
    assert "q₁·k₂ = 1·4 + 0·4 + 2·0 = 4" in empty
    assert "____" in empty
    assert "468310531" not in walk("eight-step", blank=[4, 5, 6, 7]).json()


def test_answers_stand_at_the_end() -> None:
    told = walk("eight-step", blank=[5], answers=True).text()
    assert "0.468310531" in told.partition("Answers")[2]


def test_seeds_draw_other_numbers_that_stay_kind() -> None:
    one, two = (walk("eight-step", seed=seed, blank="5") for seed in (3, 4))
    assert one.text() == walk("eight-step", seed=3, blank="5").text()
    assert one.text() != two.text()


@pytest.mark.parametrize(
    ("wishes", "said"),
    [({"blank": "9"}, "blank is '9'"), ({"answers": True}, "answers belong"), ({"blank": "5", "step": 5}, "--step"),
     ({"seed": -1}, "seed must be an integer from 0")],
)  # fmt: skip
def test_bad_wishes(wishes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        walk("eight-step", **wishes)


def test_exercises_are_checked_for_many_seeds() -> None:
    for seed in range(5):
        found = exercises(seed, answers=True)
        assert found.holds
        assert len(list(found.evidence())) == 10
    assert exercises(1).text() != exercises(2).text()
    assert "Solution" not in exercises(1).text()


@pytest.mark.parametrize("number", range(10))
def test_a_wrong_solution_is_refused(number: int) -> None:
    task = TASKS[number](np.random.default_rng(number))
    checked(task)
    with pytest.raises(FalseStep):
        checked(replace(task, answer=task.answer + 1))


# -- The worked examples come to what loops over plain numbers give, and say how well that is known --------------------
#: The steps that make scores and change them: the last one gives those that weights are made of.
SCORES = ("scores", "positioned", "scaled", "capped", "masked")


@cache
def steps(name: str, latent: str | None = None) -> dict[str, dict[str, Any]]:
    """The steps of a walk's record by name."""
    fields = {"latent": latent} if latent else {}
    return {entry["name"]: entry for entry in walk(name, **fields).record["steps"]}


def numbers(entries: Any, labels: bool) -> Any:
    """Nested lists of a sheet as numbers, or as labels of documents."""
    if isinstance(entries, list):
        return [numbers(x, labels) for x in entries]
    return int(entries) if labels else num(kinds.Quotient.of(str(entries)).rational())


def flat_of(entries: Any) -> list[Any]:
    return [x for part in entries for x in flat_of(part)] if isinstance(entries, (list, tuple)) else [entries]


def near(step: dict[str, Any], wanted: Any) -> bool:
    """Whether a step has these numbers: exactly, or as many digits of them as a float holds. −∞ is left out."""
    entries = [pair for pair in zip(flat_of(step["exact"]), flat_of(step["decimal"]), strict=True) if pair[0] != "-oo"]
    for (exact, decimal), number in zip(entries, flat_of(wanted), strict=True):
        found = mpmath.mpf(decimal if exact is None else kinds.Quotient.of(exact).decimal(30))
        if abs(found - number) > (1e-12 if exact is None else 1e-25) * max(1, abs(number)):
            return False
    return True


@pytest.mark.parametrize(("name", "latent"), [*((name, None) for name in examples.NAMES), ("latent", "absorbed")])
def test_an_example_is_what_loops_say(name: str, latent: str | None) -> None:
    spec, found = examples.load(name).attention, steps(name, latent)
    scores = [step for step in found.values() if step["name"] in SCORES][-1]
    with mpmath.workdps(40):
        given = {n: numbers(x, n == "doc") for n, x in examples._load_example_sheet(name)["inputs"].items()}
        tokens = given.get("x") or (given["q"] if spec.heads == 1 else given["q"][0])
        wanted = attention(spec, {**given, "n_q": len(tokens)})
        assert near(found["output"], wanted["output"])
        assert near(scores, wanted["scores"])
        for step, right in ((found["output"], wanted["output"]), (scores, wanted["scores"])):
            assert not near(step, [x + mpmath.mpf(10) ** -9 for x in flat_of(right)])


def test_grades_say_how_well_a_step_is_known() -> None:
    checked = {"decoder-step": "capped", "additive": "scores", "latent": "output", "documents": "output"}
    assert all(steps(name)[step]["grade"] is Grade.CHECKED for name, step in checked.items())
    enclosed = [("decoder-step", "weights"), ("decoder-step", "output"), ("additive", "weights")]
    assert all(steps(name)[step]["grade"] is Grade.ENCLOSED for name, step in enclosed)


def test_both_ways_of_latents_are_equal_to_the_last_digit() -> None:
    one, other = steps("latent"), steps("latent", "absorbed")
    assert ("v" in one, "v" in other) == (True, False)
    assert [kinds.Quotient.of(x) for x in one["output"]["exact"][0]] == [
        kinds.Quotient.of(x) for x in other["output"]["exact"][0]
    ]


@pytest.mark.parametrize("name", examples.NAMES[examples.NAMES.index("decoder-step") :])
def test_no_two_sizes_of_an_example_are_equal(name: str) -> None:
    record = walk(name).record
    main = [
        n for size, n in record["sizes"].items() if size in ("n", "n_q", "n_k", "d_model", "d_k", "d_v", "h", "h_kv")
    ]
    assert len(set(main)) == len(main), record["sizes"]
