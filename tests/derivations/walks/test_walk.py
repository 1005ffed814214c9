"""Steps, queries, reasons, dtypes and roundings of a walk."""

import json
import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from symattn import Attention, InputError, walk
from symattn.derivations import examples
from symattn.derivations.walks.walk_data import Walk
from tests.derivations.asking import agrees

pytestmark = pytest.mark.smoke


def step(document, name: str) -> dict:
    return next(entry for entry in document["steps"] if entry["name"] == name)


def test_float16_without_subtracting_the_maximum_ends_in_nan(run) -> None:
    document = run("walk", "E1", "--dtype", "float16", "--no-stabilised", "-f", "json").json
    output = step(document, "output")
    assert output["computed"][1:] == [["nan"] * 3, ["nan"] * 3]
    assert all(isinstance(x, float) for x in output["computed"][0])
    assert output["ulps"][1:] == [[None] * 3, [None] * 3]
    text = run("walk", "E1", "--dtype", "float16", "--no-stabilised").stdout
    assert "e¹⁶ is beyond 65504" in " ".join(text.split())
    assert "in rows 2 and 3" in " ".join(text.split())


def test_float16_with_subtraction_is_finite(run) -> None:
    document = run("walk", "E1", "--dtype", "float16", "-f", "json").json
    assert all(x < 2 for row in step(document, "output")["ulps"] for x in row)
    assert "not finite, in" not in run("walk", "E1", "--dtype", "float16").stdout


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_every_format_walks(run, dtype: str) -> None:
    document = run("walk", "E0", "--dtype", dtype, "-f", "json").json
    assert document["dtype"] == dtype
    assert step(document, "q")["ulps"] == [[0.0] * 4, [0.0] * 4]


def test_computed_numbers_are_those_of_numpy(run) -> None:
    sheet = examples.load("E0")
    plain = {
        name: np.array([[x.to_float() for x in row] for row in rows], np.float32) for name, rows in sheet.inputs.items()
    }
    mine = Attention()(**plain)
    found = step(run("walk", "E0", "-f", "json").json, "output")["computed"]
    assert np.array_equal(np.array(found, np.float32), mine)


def test_one_step(run) -> None:
    document = run("walk", "E1", "--step", "5", "-f", "json").json
    assert [entry["name"] for entry in document["steps"]] == ["weights"]
    text = run("walk", "E1", "--step", "5", "--why").stdout
    assert "1/(1 + 2e²)" in text
    assert "6.3379e-02" in text
    assert "Softmax makes a row of scores positive with sum 1" in text
    assert "X W_Q" not in text


def test_why_adds_reasons(run) -> None:
    assert len(run("walk", "E3", "--why").stdout) > len(run("walk", "E3").stdout)
    assert "so that its variance does not grow" in run("walk", "E3", "--step", "4", "--why").stdout
    assert "variance does not grow" not in run("walk", "E1", "--step", "4", "--why").stdout


def test_a_query_and_all(run) -> None:
    second = run("walk", "E1", "--query", "2").stdout
    assert "q₂·k₂ = 2·4 + 2·4 + 2·0 = 16" in second
    assert "q₁·k₁" not in second
    assert "inputs 1 and 3" in second
    everything = run("walk", "E1", "--all").stdout
    assert all(f"q{i}·k₁" in everything for i in "₁₂₃")
    assert "a₁, a₂ and a₃ are checked: each of 3 rows sums to 1 exactly" in " ".join(everything.split())
    assert "q₃·k₁" in run("walk", "E1", "--step", "4", "--all").stdout
    assert "q₃·k₁" in run("walk", "E1", "--step", "8").stdout


def test_roundings_on_request(run) -> None:
    text = run("walk", "E1", "--rounding", "nearest", "--step", "7").stdout
    assert "2.1" in text
    assert "exact − rounded" in text
    assert "rounded" not in run("walk", "E1", "--rounding", "exact", "--step", "7").stdout
    assert "rounded" in run("walk", "E0x", "--rounding", "sum").stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--step", "9"), "the steps of eight-step are 1 to 8"),
        (("--step", "0"), "the steps of eight-step are 1 to 8"),
        (("--query", "4"), "the queries of eight-step are 1 to 3"),
        (("--query", "0"), "the queries of eight-step are 1 to 3"),
        (("--query", "1", "--all"), "give one of them"),
        (("--dtype", "flot32"), "Did you mean 'float32'?"),
        (("--rounding", "neerest"), "Did you mean 'nearest'?"),
        (("--scale", "two"), "known words: 1/d_k, given, none, 1/sqrt(d_k)"),
        (("--scale", "sqrt(2)"), "must be rational"),
        (("--scale", "1e999999"), "scale"),
        (("--heads", "2"), "w_q has 3 columns, which 2 heads do not divide"),
        (("--heads", "0"), "heads"),
    ],
)
def test_bad_options_are_one_line(refused, options: tuple[str, ...], words: str) -> None:
    assert words in refused("walk", "E1", *options)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean causal"):
        walk("E1", causl=True)
    assert walk("E1", causal=True).record["attention"]["causal"] is True


def test_masks_and_padding(run, sheet) -> None:
    inputs = {"q": [[1], [2]], "k": [[1], [0], [3]], "v": [[1], [2], [4]]}
    file = sheet(
        {"inputs": inputs | {"mask": [[True, False, True], [False, False, False]], "keep": [True, True, False]}}
    )
    document = run("walk", file, "-f", "json").json
    assert step(document, "weights")["exact"] == [["1", "0", "0"], ["0", "0", "0"]]
    assert step(document, "masked")["exact"][1] == ["-oo"] * 3
    assert step(document, "masked")["grade"] == "checked"
    assert "1 fully masked" in step(document, "weights")["where"]
    ran = run("walk", file, "--fully-masked", "nan")
    assert "undefined" in ran.stdout
    assert "may attend to no key at all" in " ".join(ran.stdout.split())
    ran = run("walk", file, "--fully-masked", "error")
    assert (ran.status, "fully masked" in ran.stderr) == (2, True)


def test_additive_masks(run, sheet) -> None:
    inputs = {"q": [[1]], "k": [[1], [0], [3]], "v": [[1], [2], [4]], "mask": [["-inf", "1/2", 0]]}
    file = sheet({"inputs": inputs})
    document = run("walk", file, "-f", "json").json
    assert step(document, "masked")["exact"] == [["-oo", "1/2", "3"]]
    assert step(document, "weights")["computed"][0][0] == 0
    assert step(document, "weights")["ulps"][0][0] == 0
    assert document["verdict"] == "checked"
    causal = run("walk", file, "--causal", "--alignment", "top-left", "-f", "json").json
    assert step(causal, "weights")["exact"] == [["0", "0", "0"]]


def test_heads_and_output_projection(run, sheet) -> None:
    data = examples.load("E0")
    inputs = {name: [[str(x) for x in row] for row in rows] for name, rows in data.inputs.items()}
    inputs |= {"w_v": [[*row, "1"] for row in inputs["w_v"]], "b_q": [1, 0, 0, 2]}
    inputs |= {"w_o": [[1, 0], [0, 1], [1, 1], [2, 0]], "b_o": ["1/2", 0]}
    ran = run("walk", sheet({"attention": {"heads": 2}, "inputs": inputs}), "-f", "json")
    assert ran.status == 0, ran.stderr
    document = ran.json
    assert document["sizes"]["h"] == 2
    assert np.shape(step(document, "weights")["exact"]) == (2, 2, 2)
    assert np.shape(step(document, "output")["exact"]) == (2, 2)
    assert document["verdict"] == "checked"
    assert run("walk", sheet({"attention": {"heads": 2}, "inputs": inputs}), "--all", "--step", "9").status == 0


def test_the_token_by_token_check_says_no() -> None:
    sheet = examples.load("E0")
    for name in ("q", "k", "v", "scores", "scaled", "weights", "weighted", "output"):
        walk = Walk(sheet, "float32")
        assert agrees(walk)
        changed = walk.arrays[name].copy()
        first = (0,) * changed.ndim
        changed[first] = changed[first] + 1
        assert not agrees(walk, **{name: changed}), name


def test_the_token_by_token_check_says_no_to_a_mask_off_by_one() -> None:
    sheet = examples.load("E0x")
    for wrong in (Attention(causal=True, alignment="top-left"), Attention()):
        walk = Walk(replace(sheet, attention=wrong), "float32")
        assert agrees(walk)
        assert not agrees(walk, Attention(causal=True))


@pytest.fixture
def of_text(run, sheet):
    """What a walk says of the text of example E1 if an array that it prints begins with another number."""

    def said(kind: str, name: str, first: str) -> str:
        data = json.loads(run("examples", "show", "E1", "-f", "json").stdout)["sheet"]
        data["printed"][kind][name][0][0] = first
        return " ".join(run("walk", sheet(data)).stdout.split())

    return said


@pytest.mark.deep
def test_digits_are_right_only_to_the_last_one(of_text) -> None:
    for right in ("6.3379e-02", "0.0634", "0.063"):
        assert "all 9 are the exact numbers, correctly rounded" in of_text("digits", "weights", right)
    for wrong in ("6.3378e-02", "0.064"):
        assert f"1 are not the exact ones rounded: it has {wrong}" in of_text("digits", "weights", wrong)


def test_another_output_does_not_follow(of_text) -> None:
    assert "What it prints next follows exactly from these weights." in of_text("rounded", "output", "2")
    assert "What it prints next does not follow from these weights." in of_text("rounded", "output", "3")


def test_a_text_whose_arrays_have_other_shapes_is_refused(sheet, refused, run) -> None:
    data = json.loads(run("examples", "show", "E1", "-f", "json").stdout)["sheet"]
    data["printed"]["rounded"]["output"] = [[1, 2]]
    assert "printed output has shape (1, 2)" in refused("walk", sheet(data))


def ulps(numbers: list[str], dtype: str = "float32") -> list[float]:
    """The errors of numbers that are rounded to a format."""
    walked = walk({"q": [numbers], "k": [[0] * len(numbers)], "v": [[1]]}, dtype=dtype)
    return step(walked.record, "q")["ulps"][0]


@pytest.mark.parametrize(
    ("x", "dtype", "off"),
    [
        ("1+1/2**25", "float32", 0.25),
        ("3/2+1/2**12", "float16", 0.25),
        ("1/3", "float64", 1 / 3),
        ("1/2**40", "float16", 2.0**-16),
        ("0", "float32", 0),
        ("1/2**151", "float32", 0.25),
        ("5/2+1/2**8", "bfloat16", 0.25),
        ("7+1/8", "float8_e4m3fn", 0.25),
    ],
)
def test_units_in_the_last_place(x: str, dtype: str, off: float) -> None:
    assert ulps([x], dtype) == [pytest.approx(off)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_units_in_the_last_place_are_the_spacing_of_numpy(dtype: type) -> None:
    numbers = np.exp(np.random.default_rng(1).uniform(-8, 8, 60)).astype(dtype)
    near = [f"{Fraction(float(x)) + Fraction(float(np.spacing(x))) / 4}" for x in numbers]
    assert ulps(near, np.dtype(dtype).name) == [0.25] * 60


def test_the_error_is_that_of_the_exact_number() -> None:
    assert ulps(["1/3"]) == [1 / 3]  # float32(1/3) lies a third of a unit above
    assert ulps(["10**12"], "float16") == [None]


def test_the_binade_of_numbers_near_a_power_of_two() -> None:
    tiny = math.exp(-200)
    wanted = [0, tiny / 2.0**-21, tiny / 2.0**-20, 1 / 3, tiny / 2.0**-21]
    assert ulps(["8", "8-exp(-200)", "8+exp(-200)", "-1/3", "exp(-200)-8"]) == pytest.approx(wanted, rel=1e-12)


def test_long_entries_are_left_to_the_json_form(run, sheet) -> None:
    digits = "0.12345678901234567890123456789012345678901234567890123456789"
    file = sheet(f'{{"inputs": {{"q": [[{digits}]], "k": [[1], [2]], "v": [[1], [{digits}]]}}}}')
    ran = run("walk", file)
    assert "… marks exact entries of" in ran.stdout
    assert max(map(len, ran.stdout.splitlines()[:-1])) <= 80
    assert step(run("walk", file, "-f", "json").json, "q")["exact"][0][0].startswith("1234567890")


def test_far_exponents_are_words(run, sheet) -> None:
    file = sheet({"inputs": {"q": [["1e9"]], "k": [["1e6"], [0]], "v": [[1], [0]]}, "attention": {"scale": "none"}})
    ran = run("walk", file)
    assert ran.status == 0
    assert "<1e-9999" in ran.stdout
    assert max(map(len, ran.stdout.splitlines()[:-1])) <= 80


def test_names_grades_and_sizes_are_printed_once(run) -> None:
    cross = run("walk", "cross").stdout
    assert "\nK = Y W_K " in cross
    assert "\nX  " in cross
    assert "\nweights  a₁" in cross  # a row of A has another name than its array
    assert cross.count("token by token") == 1
    closing = " ".join(cross.split())
    assert "K, Q, V, scores of input 1, s′₁, a₁ⱼvⱼ and o₁ are checked: token by token, n_q = 2" in closing
    assert "Sizes: d_y = 4." in cross
    assert not re.search(r"d_model = (?!5)", cross)
    alone = run("walk", "cross", "--step", "5").stdout
    assert "[checked: each of 2 rows sums to 1 exactly]" in alone


def test_enclosed_weights_that_may_be_equal_are_not_compared() -> None:
    document = walk({"x": [[1, 0], [0, 1], [1, 1]], "temperature": 0.5, "temperature_rate": 2, "scale": 1})
    text = str(document)
    assert "attends to" not in text
    assert "s_τ1" in text
