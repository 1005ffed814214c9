"""Claims are decided exactly, and the exit code says how."""

import pytest

from symattn import Grade, claim, kinds
from tests.refusals import refuses

pytestmark = pytest.mark.smoke

AFTER = {"king": "[.2,.3,.9,.5,.1]", "queen": "[.2,.4,.9,.5,.1]", "cricketer": "[.9,.4,.2,.1,.8]"}
BEFORE = {"king": "[.1,.4,.8,.2,.9]", "queen": "[.3,.5,.6,.7,.8]", "cricketer": "[.9,.2,.1,.7,.5]"}
THAN = ("--than", BEFORE["king"], BEFORE["queen"])


def test_weights_that_sum_to_more_than_one(run) -> None:
    ran = run("claim", "weights", ".3", ".7", ".1", "-f", "json")
    assert ran.status == 1
    assert ran.json["holds"] is False
    assert ran.json["verdict"] == "refuted"
    assert ran.json["values"]["sum"] == "11/10"
    assert ran.json["values"]["excess"] == "1/10"
    assert ran.json["values"]["rescaled"] == ["3/11", "7/11", "1/11"]
    text = run("claim", "weights", ".3", ".7", ".1").stdout
    assert "3/10 + 7/10 + 1/10 = 11/10" in text
    assert "3/11, 7/11, 1/11" in text


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ((".5", ".4", ".1"), 0),
        (("1",), 0),
        (("[1/3, 2/3]",), 0),
        (("1/(1+exp(2))", "1/(1+exp(-2))"), 0),
        (("1/3", "1/3", ".3333333333333333"), 0),
        (("1/3", "1/3", "3333/10000"), 1),
        (("-.5", "1.5"), 1),
        (("-.5", ".5", "1"), 1),
        (("0", "0"), 1),
        (("0", "1"), 0),
    ],
)
def test_what_can_be_a_row_of_softmax(run, values: tuple[str, ...], status: int) -> None:
    assert run("claim", "weights", *values).status == status


def test_a_weight_of_zero_needs_a_mask(run) -> None:
    assert "Hypothesis: key 2 is masked" in " ".join(run("claim", "weights", "1", "0").stdout.split())
    assert run("claim", "weights", "1", "0", "-f", "json").json["values"]["masked"] == [2]
    assert "masked" not in run("claim", "weights", ".5", ".5").stdout


def test_a_false_claim_says_by_how_much(run) -> None:
    assert "this is 1/10 less" in run("claim", "weights", ".5", ".4").stdout
    assert "1 number is negative, the first −1/2" in run("claim", "weights", "-.5", "1.5").stdout
    assert "this is 1/30000000 less" in run("claim", "weights", "1/3", "1/3", "3333333/10000000").stdout


@pytest.mark.parametrize(
    ("words", "a", "b", "cosine"),
    [
        (BEFORE, "king", "queen", "157*sqrt(30378)/30378"),
        (BEFORE, "queen", "cricketer", "11*sqrt(1830)/610"),
        (AFTER, "king", "queen", "41*sqrt(3810)/2540"),
        (AFTER, "king", "cricketer", "61*sqrt(1245)/4980"),
        (AFTER, "queen", "cricketer", "65*sqrt(21082)/21082"),
    ],
)
def test_cosines_are_exact(run, words: dict, a: str, b: str, cosine: str) -> None:
    ran = run("claim", "similarity", words[a], words[b], "--measure", "cosine", "-f", "json")
    assert ran.status == 0
    assert kinds.Quotient.of(ran.json["values"]["cosine"]["exact"]) == kinds.Quotient.of(cosine)


def test_the_cosine_of_king_and_cricketer_before(run) -> None:
    ran = run("claim", "similarity", "E4-before:king", "word-vectors-before:cricketer", "-f", "json")
    assert round(ran.json["values"]["cosine"]["decimal"], 4) == 0.5154


def test_angles_and_distances(run) -> None:
    values = run("claim", "similarity", BEFORE["king"], BEFORE["queen"], "-f", "json").json["values"]
    assert values["angle"] == {"exact": None, "decimal": 25.7389}
    assert kinds.Quotient.of(values["distance"]["exact"]) == kinds.Quotient.of("sqrt(35)/10")
    assert round(values["distance"]["decimal"], 4) == 0.5916
    after = run("claim", "similarity", AFTER["king"], AFTER["queen"], "-f", "json").json["values"]
    assert round(after["angle"]["decimal"], 3) == 4.896
    assert after["distance"]["exact"] == "1/10"
    assert after["dot"]["exact"] == "123/100"


@pytest.mark.parametrize(
    ("a", "b", "degrees"),
    [("1 0", "0 1", 90), ("1 0", "1 0", 0), ("1 0", "-3 0", 180), ("1 0", "1 1", 45), ("1 0", "-1 1", 135),
     ("1 0", "1 sqrt(3)", 60), ("1 0", "-1 sqrt(3)", 120), ("1 0", "sqrt(3) 1", 30), ("1 0", "-sqrt(3) 1", 150)],
)  # fmt: skip
def test_angles_that_are_exact(run, a: str, b: str, degrees: int) -> None:
    values = run("claim", "similarity", a, b, "--measure", "angle", "-f", "json").json["values"]
    assert values["angle"] == {"exact": str(degrees), "decimal": degrees}


def test_angles_are_correctly_rounded() -> None:
    import mpmath

    with mpmath.workdps(60):
        for x in range(1, 40):
            cosine = mpmath.mpf(7 * x - 15) / mpmath.sqrt((x * x + 9) * 74)
            expected = mpmath.nstr(mpmath.acos(cosine) * 180 / mpmath.pi, 6, strip_zeros=False)
            printed = claim("similarity", f"{x} 3", "7 -5", measure="angle").text()
            assert f"≈ {expected}°" in printed or f"= {expected.removesuffix('.0000')}°" in printed


def test_training_brings_king_and_queen_together_by_angle_and_distance(run) -> None:
    for measure, status in (("angle", 0), ("cosine", 0), ("distance", 0), ("dot", 1)):
        ran = run("claim", "closer", AFTER["king"], AFTER["queen"], *THAN, "--measure", measure)
        assert ran.status == status, measure
    ran = run("claim", "closer", AFTER["king"], AFTER["queen"], *THAN)
    assert ran.status == 1
    assert "false of the dot product" in " ".join(ran.stdout.split())
    assert "= 123/100 < 157/100 =" in ran.stdout


def test_tokens_of_examples_stand_for_their_vectors(run) -> None:
    ran = run("claim", "closer", "E4:king", "E4:queen", "--than", "E4-before:king", "E4-before:queen", "-f", "json")
    assert ran.status == 1
    values = ran.json["values"]
    assert values["dot"] == {
        "first": {"exact": "123/100", "decimal": 1.23},
        "second": {"exact": "157/100", "decimal": 1.57},
        "closer": False,
    }
    assert [values[m]["closer"] for m in ("cosine", "angle", "distance")] == [True, True, True]


def test_king_is_more_like_queen_than_like_itself(run) -> None:
    ran = run("claim", "closer", "E4:king", "E4:queen", "--than", "E4:king", "E4:king", "--measure", "dot")
    assert ran.status == 0
    assert "123/100 > 6/5" in ran.stdout
    assert (
        run("claim", "closer", "E4:king", "E4:queen", "--than", "E4:king", "E4:king", "--measure", "angle").status == 1
    )


def test_equally_close_is_not_closer(run) -> None:
    ran = run("claim", "closer", "1 0", "0 1", "--than", "2 0", "0 2", "--measure", "angle")
    assert ran.status == 1


def test_vectors_of_irrational_length_are_ordered_all_the_same(run) -> None:
    ran = run("claim", "closer", "exp(1) 1", "1 0", "--than", "exp(2) 1", "1 0", "--measure", "cosine", "-f", "json")
    assert ran.status == 1
    assert ran.json["values"]["cosine"]["first"]["exact"] is None
    assert round(ran.json["values"]["cosine"]["first"]["decimal"], 5) == 0.93851


@pytest.mark.parametrize(
    ("a", "b", "status"),
    [
        ("exp(2)/(1+exp(2))", "1/(1+exp(-2))", 0),
        ("exp(2)/(1+exp(2))", "1/(1+exp(2))", 1),
        ("sqrt(8)", "2*sqrt(2)", 0),
        ("1/3", "0.3333333333333333", 1),
        ("exp(exp(1))", "15.154262241479264", 1),
        ("exp(a)/(exp(a)+exp(b))", "1/(1+exp(b-a))", 0),
        ("(x+y)**2", "x**2+y**2", 1),
        ("sqrt(x**2)", "abs(x)", 0),
        ("tanh(x)", "(exp(2*x)-1)/(exp(2*x)+1)", 0),
        ("sin(x)**2+cos(x)**2", "1", 0),
        ("x**(1/2)", "sqrt(x)", 0),
        ("x/x", "1", 0),
        ("exp(x**2)", "exp(x)", 1),
        ("[[1, 2]]", "[[1], [2]]", 1),
        ("[1, x*x]", "[1, x**2]", 0),
        ("log(x*y)", "log(x)+log(y)", 3),
        ("[2, log(x*y)]", "[1, log(x)+log(y)]", 1),
    ],
)
def test_equality(run, a: str, b: str, status: int) -> None:
    ran = run("claim", "equal", a, b, "-f", "json")
    assert ran.status == status, ran.stderr
    assert ran.json["holds"] is {0: True, 1: False, 3: None}[status]
    assert ran.json["verdict"] == {0: "checked", 1: "refuted", 3: "searched"}[status]


def test_inequality_says_where_and_by_how_much(run) -> None:
    values = run("claim", "equal", "x**2", "x", "-f", "json").json["values"]
    assert values["at"] == {"x": "1/2"}
    assert values["difference"] == "-1/4"
    values = run("claim", "equal", "[[1, 2], [3, 4]]", "[[1, 2], [3, 5]]", "-f", "json").json["values"]
    assert list(values["differing"]) == ["[2][2]"]
    assert "the first is [2][2]" in run("claim", "equal", "[[1, 2], [3, 4]]", "[[1, 2], [3, 5]]").stdout
    balls = run("claim", "equal", "sin(1)", "cos(1)", "-f", "json").json["values"]
    assert "disjoint balls" in balls["where"]


def test_what_sympy_does_not_reduce_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    import sympy

    monkeypatch.setattr(sympy, "simplify", lambda gap: gap)
    document = claim("equal", "exp(a)/(exp(a)+exp(b))", "1/(1+exp(b-a))")
    assert document.record["holds"] is None
    assert document.verdict_word == "searched"
    assert document.holds_if(Grade.SEARCHED) is True
    assert "6 points" in document.text()


def test_what_is_undecided_is_not_accepted_with_what_is_searched(monkeypatch: pytest.MonkeyPatch, run) -> None:
    import sympy

    assert run("claim", "equal", "log(x*y)", "log(x)+log(y)", "--accept", "searched").status == 0
    monkeypatch.setattr(sympy, "simplify", lambda gap: gap)
    document = claim("equal", "[exp(a)/(exp(a)+exp(b)), sin(a)**2+cos(a)**2]", "[1/(1+exp(b-a)), 1]")
    assert document.verdict_word == "undecided"
    assert document.holds_if(Grade.SEARCHED) is None


def test_what_sympy_gets_wrong_is_refuted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import sympy

    monkeypatch.setattr(sympy, "simplify", lambda gap: sympy.Integer(0))
    assert claim("equal", "x**2", "x").record["holds"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("weights", "a"), "is not an exact number"),
        (("weights", "1/0"), "division by zero"),
        (("weights", "1e999999"), "not an exact number"),
        (("weights", "[1, [2]]"), "is not a vector"),
        (("weights", "[1, 2"), "is not a list"),
        (("weights",), "Missing argument"),
        (("similarity", "1 2", "1 2 3"), "vectors of 2 and 3 entries"),
        (("similarity", "0 0", "1 2", "--measure", "angle"), "has no direction"),
        (("similarity", "1 2", "1 2", "--measure", "cosin"), "Did you mean 'cosine'?"),
        (("similarity", "E4:kin", "E4:king"), "Did you mean 'king'?"),
        (("similarity", "E1:king", "E4:king"), "names no tokens"),
        (("similarity", "E9:king", "E4:king"), "neither an example nor a file"),
        (("closer", "1", "2"), "--than"),
        (("equal", "1", "["), "is not a list"),
        (("equal", "[[1], [2, 3]]", "[[1], [2]]"), "is ragged"),
        (("equal", "[1, 2]", "[1, 1/(sqrt(2)**2 - 2)]"), "has no value: it divides by zero"),
        (("equal", "1", "sqrt(-1)"), "'sqrt(-1)' has no real value: sqrt of -1"),
        (("equal", "sqrt(sin(4))", "1"), "has no real value"),
        (("equal", "log(0)", "log(0)"), "has no real value: log of 0"),
        (("equal", "__import__('os').system('true')", "1"), "is not allowed in it"),
        (("equal", "eval(x)", "1"), "there is no function 'eval'"),
        (("equal", "exp(x, y)", "1"), "takes one argument"),
        (("equal", "x^2", "x"), "a power is written **"),
        (("equal", "x**y", "x"), "an exponent is a whole number"),
        (("equal", "((x**64)**64)**64", "x"), "too large"),
        (("equal", "pi", "3"), "is not a letter"),
        (("equal", "True*x", "x"), "True and False are no numbers"),
        (("equal", "1" + "-" * 600 + "x", "x"), "nested more than"),
        (("equal", "(" * 400 + "x" + ")" * 400, "x"), "is not an expression"),
        (("equal", "x" * 2000, "x"), "at most 1000 are read"),
        (("equal", "0x10*x", "x"), "not a decimal number"),
        (("equl", "1", "1"), "No such command 'equl'"),
    ],
)
def test_bad_claims_are_one_line(refused, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused("claim", *arguments)


@pytest.mark.parametrize("form", ["text", "latex", "html"])
def test_rounded_weights_print_in_every_form(form: str) -> None:
    assert "±" in getattr(claim("weights", ".33", ".66"), form)().replace(r"\pm", "±")


def test_entries_of_sums_that_are_undecided_are_counted_as_such() -> None:
    found = claim("equal", "1*[abs(x**2 + 1 - x), 1]", "1*[x**2 + 1 - x, 1]")
    assert found.record["values"]["undecided"] == ["[1]"]
    assert "1 of 2 entries are undecided; the first is [1]." in found.text()


@pytest.mark.parametrize("text", ["1e9999999", "1E-4001", "2e000000000000000000099999"])
def test_numbers_that_write_out_to_many_digits_are_refused(text: str) -> None:
    refuses(claim, "equal", text, "x", says="has more than 4000 digits")
