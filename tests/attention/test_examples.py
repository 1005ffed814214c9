"""Worked examples, exactly: E0, E0x and E1, whose every number is known."""

from typing import Any

import numpy as np
import pytest

from symattn.arrays import kind
from symattn.attention.spec import Attention

EXACT = kind("exact")

E0 = {
    "x": [[1, 0, 2, -1, 1], [0, 1, 1, 1, -1]],
    "w_q": [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]],
    "w_k": [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 1]],
    "w_v": [[1, 0, 2], [0, 3, -1], [1, 1, 0], [0, 0, 1], [2, 0, 0]],
}
E0X = {
    "x": E0["x"],
    "y": [[1, -1, 0, 1], [0, 1, 1, 0], [2, 0, -1, 1]],
    "w_q": [[1, 0, 1, 0], [0, 1, 0, -1], [1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 0, 0]],
    "w_k": [[1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 1, 1]],
    "w_v": [[1, 0, 2], [0, 3, -1], [1, 1, 0], [2, 0, 1]],
}
E1 = {
    "x": [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]],
    "w_k": [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]],
    "w_q": [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]],
    "w_v": [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]],
}


def trace(spec: Attention, inputs: dict[str, Any], name: str = "exact") -> dict[str, Any]:
    lift = kind(name).lift
    return spec.trace(**{n: lift(rows) for n, rows in inputs.items()})


def equal(array: Any, rows: Any) -> bool:
    wanted = EXACT.lift(rows)
    return array.shape == wanted.shape and bool((array == wanted).all())


def rounded(array: Any, digits: int) -> list[list[float]]:
    return [[float(x.decimal(digits)) for x in row] for row in array.tolist()]


def test_e0_step_by_step() -> None:
    t = trace(Attention(), E0)
    assert equal(t["q"], [[0, 0, 2, 2], [1, 1, 1, -1]])
    assert equal(t["k"], [[0, 0, 2, 3], [1, 1, 1, 0]])
    assert equal(t["v"], [[5, 2, 1], [-1, 4, 0]])
    assert equal(t["scaled"], [[5, 1], ["-1/2", "3/2"]])
    weights = [["1/(1+exp(-4))", "1/(1+exp(4))"], ["1/(1+exp(2))", "1/(1+exp(-2))"]]
    assert equal(t["weights"], weights)
    first = ["(5*exp(4)-1)/(exp(4)+1)", "(2*exp(4)+4)/(exp(4)+1)", "exp(4)/(exp(4)+1)"]
    second = ["(5-exp(2))/(1+exp(2))", "(2+4*exp(2))/(1+exp(2))", "1/(1+exp(2))"]
    assert equal(t["output"], [first, second])
    assert rounded(t["output"], 9) == [[4.89208274, 2.03597242, 0.982013790], [-0.284782468, 3.76159416, 0.119202922]]


def test_e0_shows_an_exchange_of_queries_and_keys() -> None:
    swapped = trace(Attention(), {**E0, "w_q": E0["w_k"], "w_k": E0["w_q"]})
    assert not (swapped["output"] == trace(Attention(), E0)["output"]).any()


def test_e0x_step_by_step() -> None:
    t = trace(Attention(), E0X)
    assert equal(t["q"], [[3, 3, 0, -1], [1, 1, 1, 0]])
    assert equal(t["k"], [[1, -1, 0, 2], [1, 1, 1, 0], [1, 0, 1, 3]])
    assert equal(t["v"], [[3, -3, 4], [1, 4, -1], [3, -1, 5]])
    assert equal(t["scaled"], [[-1, 3, 0], [0, "3/2", 1]])
    assert equal(t["output"][0, :1], ["(3+3*exp(1)+exp(4))/(1+exp(1)+exp(4))"])
    assert rounded(t["output"], 9) == [[1.12752090, 3.64690211, -0.634585137], [1.90690123, 1.48884363, 1.59875202]]


def test_e1_step_by_step() -> None:
    t = trace(Attention(scale=1), E1)
    assert equal(t["k"], [[0, 1, 1], [4, 4, 0], [2, 3, 1]])
    assert equal(t["q"], [[1, 0, 2], [2, 2, 2], [2, 1, 3]])
    assert equal(t["v"], [[1, 2, 3], [2, 8, 0], [2, 6, 3]])
    assert equal(t["scores"], [[2, 4, 4], [4, 16, 12], [4, 12, 10]])
    assert equal(t["weights"][0], ["1/(1+2*exp(2))", "exp(2)/(1+2*exp(2))", "exp(2)/(1+2*exp(2))"])
    assert str(t["output"].entries[0, 0]) == "(1+4*exp(2))/(1+2*exp(2))"


def test_e1_differs_from_what_its_rounding_prints_by_these_exact_numbers() -> None:
    output = trace(Attention(scale=1), E1)["output"]
    printed = EXACT.lift([[2, 7, "1.5"], [2, 8, 0], [2, "7.8", ".3"]])
    d, e = "(1+exp(8)+exp(12))", "(1+exp(6)+exp(8))"
    wanted = [
        ["-1/(1+2*exp(2))", "-5/(1+2*exp(2))", "3/(2*(1+2*exp(2)))"],
        [f"-1/{d}", f"-2*(3+exp(8))/{d}", f"3*(1+exp(8))/{d}"],
        [f"-1/{e}", f"(exp(8)-9*exp(6)-29)/(5*{e})", f"-3*(exp(8)-9*exp(6)-9)/(10*{e})"],
    ]
    assert equal(output - printed, wanted)


def test_e1_scaled_lies_over_another_exponent() -> None:
    output = trace(Attention(), E1)["output"]
    printed = [["1.86387", "6.31937", "1.70419"], ["1.99911", "7.81412", "0.27347"], ["1.99256", "7.47964", "0.73588"]]
    assert [[f"{float(x.decimal(9)):.5f}" for x in row] for row in output.tolist()] == printed


@pytest.mark.parametrize("name", ["float64", "float32"])
def test_e1_in_floats_prints_the_weights_of_the_example(name: str) -> None:
    weights = np.asarray(trace(Attention(scale=1), E1, name)["weights"])
    assert [f"{x:.4e}" for x in weights[0]] == ["6.3379e-02", "4.6831e-01", "4.6831e-01"]
    assert [f"{x:.4e}" for x in weights[1]] == ["6.0337e-06", "9.8201e-01", "1.7986e-02"]
    assert [f"{x:.4e}" for x in weights[2]] == ["2.9539e-04", "8.8054e-01", "1.1917e-01"]


def test_e1_in_float16_without_subtracting_the_maximum_is_nan_in_rows_2_and_3() -> None:
    with np.errstate(all="ignore"):
        plain = trace(Attention(scale=1, stabilised=False), E1, "float16")["output"]
        mended = trace(Attention(scale=1), E1, "float16")["output"]
    assert np.isnan(plain).any(axis=-1).tolist() == [False, True, True]
    assert np.isfinite(mended).all()


def test_e1_in_bfloat16_does_not_overflow() -> None:
    plain = trace(Attention(scale=1, stabilised=False), E1, "bfloat16")["output"]
    assert np.isfinite(plain).all()


def test_e2_without_parameters_the_scores_are_symmetric_and_with_them_not() -> None:
    """Parameter-free attention takes X for Q, K and V."""
    x = E1["x"]
    t = trace(Attention(scale=1), {"x": x})
    assert equal(t["scores"], np.array(x) @ np.array(x).T)
    assert (t["scores"] == t["scores"].T).all()
    assert all((t[role] == t["x"]).all() for role in "qkv")
    scores = trace(Attention(), E0)["scores"]
    assert not (scores == scores.T).all()


def test_e4_attention_without_parameters_prefers_the_other_word() -> None:
    king, queen = [".2", ".3", ".9", ".5", ".1"], [".2", ".4", ".9", ".5", ".1"]
    x = [king, queen, [".9", ".4", ".2", ".1", ".8"]]
    t = trace(Attention(scale=1), {"x": x})
    assert equal(t["scores"][0, :2], ["6/5", "123/100"])
    assert [float(w.decimal(4)) for w in t["weights"].entries[0, :2]] == [0.3869, 0.3987]
