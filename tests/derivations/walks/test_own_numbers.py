"""Own numbers at the first try: flat sheets, names of papers, fewer tokens, and what tutorials say of contexts."""

import json
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, walk
from symattn.attention.codec.json_text import INPUTS, called, input_name

NESTED = {
    "attention": {"causal": True},
    "inputs": {"x": [[1, "1/2"], [0, 2]], "w_q": [[1, 0], [0, 1]], "w_k": [[1, 0], [1, 1]], "w_v": [[1], [2]]},
}
FLAT = {"causal": True, **NESTED["inputs"]}
PAPERS = {"causal": True, "X": FLAT["x"], "W_Q": FLAT["w_q"], "Wk": FLAT["w_k"], "WV": FLAT["w_v"]}


@pytest.mark.parametrize("content", [FLAT, PAPERS], ids=["flat", "names of papers"])
def test_flat_sheets_are_those_with_inputs(run, sheet, content: Any) -> None:
    nested = run("walk", sheet(NESTED)).stdout
    assert run("walk", sheet(content)).stdout == nested
    assert walk(content).text().splitlines()[1:-1] == nested.splitlines()[1:-1]


def test_npz_with_the_names_of_papers(run, tmp_path) -> None:
    numbers = {name: np.array([[1.0, 2.0], [3.0, 4.0]]) for name in ("X", "Wq", "WK", "w_v")}
    np.savez(tmp_path / "papers.npz", **numbers)
    np.savez(tmp_path / "own.npz", **{input_name(name): array for name, array in numbers.items()})
    assert (
        json.loads(run("walk", str(tmp_path / "papers.npz"), "-f", "json").stdout)["steps"]
        == (json.loads(run("walk", str(tmp_path / "own.npz"), "-f", "json").stdout)["steps"])
    )


def test_no_two_arrays_are_one_when_written_otherwise() -> None:
    assert {input_name(name.upper().replace("_", "")) for name in INPUTS} == set(INPUTS)
    assert called({"W-q": 1}, "here") == {"w_q": 1}


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("w_qq", "w_q"),
        ("wquery", "w_q"),
        ("query_weight", "w_q"),
        ("k_proj", "w_k"),
        ("Queries", "q"),
        ("embeddings", "x"),
        ("causl", "causal"),
    ],
)
def test_other_names_get_a_suggestion(refused, sheet, name: str, suggestion: str) -> None:
    line = refused("walk", sheet({"x": [[1]], name: [[1]]}))
    assert f"unknown name '{name}'" in line
    assert f"Did you mean '{suggestion}'?" in line


def test_tokens_alone_are_not_scaled_unless_one_says_so() -> None:
    x = [[1, 0], ["1/2", 1], [0, "3/2"]]
    alone, told = walk({"x": x}), walk("parameter-free")
    assert alone.record["steps"][-1]["exact"] == told.record["steps"][-1]["exact"]
    assert "parameter-free attention, and its scores are not scaled" in " ".join(alone.text().split())
    assert "scale 1/√d_k" in walk({"x": x, "scale": "1/sqrt(d_k)"}).text()
    assert "scale 1/√d_k" in walk({"x": x, "w_q": [[1], [1]], "w_k": [[1], [1]], "w_v": [[1], [1]]}).text()


def test_the_block_of_keys_queries_and_features_sums_to_the_output() -> None:
    found = {entry["name"]: np.array(entry["decimal"], float) for entry in walk("eight-step").record["steps"]}
    a, v = found["weights"], found["v"]
    block = v[:, None, :] * a.T[:, :, None]
    assert block.shape == (3, 3, 3)
    assert np.allclose(block.sum(axis=0), found["output"], rtol=1e-5)
    said = " ".join(walk("eight-step", step=6, why=True).text().split())
    assert "v[:, None, :] * a.T[:, :, None]" in said
    cross = " ".join(walk("cross", step=6, why=True).text().split())
    assert "here 3 × 2 × 3" in cross


def test_bank_in_its_context(run) -> None:
    told = " ".join(run("walk", "bank", "--query", "2", "--step", "7").stdout.split())
    by_title = " ".join(run("walk", "money bank grows", "--query", "2", "--step", "7").stdout.split())
    assert by_title == told.replace("walk bank", "walk 'money bank grows'")
    assert "a weighted mean of the values: y_bank" in told
    output = walk("money-bank-grows").record["steps"][-1]
    bank = np.array(output["decimal"][1], float)
    assert bank[0] > 0.5 > bank[1]  # nearer to money than bank is by itself
    x = np.array([[1, 0], [0.5, 0.5], [0.5, 0]])
    weights = np.exp(x[1] @ x.T) / np.exp(x[1] @ x.T).sum()
    assert np.allclose(bank, weights @ x, rtol=1e-5)


def test_a_context_decides_what_an_average_means(run) -> None:
    river = np.array(walk("river-bank-flows").record["steps"][-1]["decimal"][1], float)
    assert river[0] < 0.5 < river[1]  # nearer to nature than bank is by itself
    walked = walk("average-meaning")
    assert "\nFields: documents.\n" in walked.text()
    output = walked.record["steps"][-1]
    assert output["exact"][1] == ("19/20", "3/20")
    assert float(output["decimal"][3][1]) > 1 > float(output["decimal"][3][0])
    assert run("claim", "equal", "9/10*[1, 0] + 1/10*[0, 1]", "[9/10, 3/10]").status == 1
    assert run("claim", "equal", "9/10*[1, 2/9] + 1/10*[0, 1]", "[9/10, 3/10]").status == 0


def test_tokens_are_truncated_and_columns_are_not(run) -> None:
    whole, cut = walk("eight-step"), walk("eight-step", tokens=2)
    assert cut.record["sizes"] == {**whole.record["sizes"], "n": 2}
    by_name = {entry["name"]: entry["exact"] for entry in whole.record["steps"]}
    for entry in cut.record["steps"]:
        if entry["name"] in ("x", "q", "k", "v"):
            assert entry["exact"] == by_name[entry["name"]][:2]
    assert "--tokens 2" in cut.command
    assert run("walk", "eight-step", "--tokens", "2").stdout == cut.text()
    keep = {"x": [[1, 2], [3, 4], [5, 6]], "keep": [True, False, True], "scale": "none"}
    assert walk(keep, tokens=2).record["sizes"]["n"] == 2


@pytest.mark.parametrize("tokens", [0, 4, True, "2"])
def test_no_such_number_of_tokens(tokens: Any) -> None:
    with pytest.raises(InputError, match="eight-step has 1 to 3"):
        walk("eight-step", tokens=tokens)


def test_no_scaling_is_one_in_python() -> None:
    assert walk("eight-step", scale="none").record["attention"]["scale"] == "1"
    assert walk("eight-step", scale=None).record["attention"]["scale"] == "1/sqrt(d_k)"
    with pytest.raises(InputError, match="scale"):
        Attention(scale="none")  # type: ignore[arg-type]
