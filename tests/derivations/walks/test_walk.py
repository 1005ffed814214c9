"""Steps, queries, reasons, dtypes and roundings of a walk."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from symattn import Attention, Grade, InputError, walk
from symattn.arrays.formats import Format
from symattn.derivations import examples
from symattn.derivations.walks import run as walks_run
from symattn.derivations.walks.printed import digits_right, follows
from symattn.derivations.walks.run import exact
from symattn.derivations.walks.steps import row_sums
from symattn.derivations.walks.walk_data import Walk
from symattn.proof.relations.comparing import FalseStep
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
        arrays = walk.arrays
        first = (0,) * arrays[name].ndim
        arrays[name] = arrays[name].copy()
        arrays[name][first] = arrays[name][first] + 1
        assert not agrees(walk), name


def test_the_token_by_token_check_says_no_to_a_mask_off_by_one() -> None:
    sheet = examples.load("E0x")
    for wrong in (Attention(causal=True, alignment="top-left"), Attention()):
        walk = Walk(replace(sheet, attention=wrong), "float32")
        assert agrees(walk)
        assert not agrees(walk, Attention(causal=True))


def test_a_row_that_does_not_sum_to_one_is_a_false_step() -> None:
    made = Walk(examples.load("E1"), "float32")
    assert row_sums(made).grade is Grade.CHECKED
    made.arrays["weights"][0, 0] += 1
    with pytest.raises(FalseStep, match="sum to 1"):
        row_sums(made)


def test_digits_are_right_only_to_the_last_one() -> None:
    weight = exact(Attention(scale=1), examples.load("E1").inputs)["weights"][0, 0]
    assert digits_right(weight, "6.3379e-02")
    assert digits_right(weight, "0.0634")
    assert not digits_right(weight, "6.3378e-02")
    assert digits_right(weight, "0.063")
    assert not digits_right(weight, "0.064")


def test_follows_says_no() -> None:
    made = Walk(examples.load("E1"), "float32")
    assert follows(made)
    printed = made.sheet.printed
    assert printed is not None
    printed.rounded["output"][0][0] = printed.rounded["output"][0][0] + 1
    assert not follows(made)


def test_a_text_whose_arrays_have_other_shapes_is_refused(sheet, refused, run) -> None:
    data = json.loads(run("examples", "show", "E1", "-f", "json").stdout)["sheet"]
    data["printed"]["rounded"]["output"] = [[1, 2]]
    assert "printed output has shape (1, 2)" in refused("walk", sheet(data))


@pytest.mark.parametrize(
    ("x", "dtype", "ulp"),
    [
        ("1", "float32", 2.0**-23),
        ("3/2", "float16", 2.0**-10),
        ("1/3", "float64", 2.0**-54),
        ("exp(-10)", "float16", 2.0**-24),
        ("0", "float32", 2.0**-149),
        ("exp(1)", "bfloat16", 2.0**-6),
        ("7", "float8_e4m3fn", 0.5),
    ],
)
def test_units_in_the_last_place(x: str, dtype: str, ulp: float) -> None:
    from symattn.arrays.field.quotient import Quotient

    assert float(walks_run.ulp(Format(dtype), Quotient.of(x))) == ulp


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_units_in_the_last_place_are_the_spacing_of_numpy(dtype: type) -> None:
    from symattn.arrays.field.quotient import Quotient

    rng = np.random.default_rng(1)
    for x in np.exp(rng.uniform(-8, 8, 200)).astype(dtype):
        assert float(walks_run.ulp(Format(np.dtype(dtype).name), Quotient.of(float(x)))) == np.spacing(x)


def test_the_error_is_that_of_the_exact_number() -> None:
    from symattn.arrays.field.quotient import Quotient

    third = Quotient.of("1/3")
    error = walks_run.error(Format("float32"), third, float(np.float32(1) / np.float32(3)))
    assert error == 1 / 3  # float32(1/3) lies a third of a unit above
    assert walks_run.error(Format("float32"), third, np.nan) is None


def test_the_binade_of_numbers_near_a_power_of_two() -> None:
    from symattn.arrays.field.quotient import Quotient

    assert walks_run.binade(Quotient.of("8")) == 3
    assert walks_run.binade(Quotient.of("8") - Quotient.of("exp(-200)")) == 2
    assert walks_run.binade(Quotient.of("8") + Quotient.of("exp(-200)")) == 3
    assert walks_run.binade(-Quotient.of("1/3")) == -2


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
