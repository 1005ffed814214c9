"""Files that nobody vouches for are one line and exit code 2, quickly; own numbers work at the first try."""

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, walk
from tests.printed import schema_of

QKV = {"q": [[1, 2]], "k": [[1, 0]], "v": [[1]]}


def inputs(**arrays) -> dict:
    return {"inputs": QKV | arrays}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("{", "not valid JSON at line 1"),
        ("[1, 2]", "a sheet is an object"),
        ("{}", '"inputs" is missing'),
        ({"input": QKV}, "Did you mean 'inputs'?"),
        ({"inputs": {"w_qq": [[1]]}}, "unknown name 'w_qq'. Did you mean 'w_q'?"),
        ({"inputs": QKV, "attention": {"causl": True}}, "Did you mean 'causal'?"),
        ({"inputs": QKV, "attention": []}, '"attention" is an object'),
        ({"inputs": QKV, "attention": {"causal": 1}}, "causal is true or false"),
        ({"inputs": QKV, "attention": {"heads": -1}}, "heads"),
        ({"inputs": QKV, "attention": {"heads": 1.5}}, "heads"),
        ({"inputs": QKV, "attention": {"scale": "1/0"}}, "division by zero"),
        ({"inputs": QKV, "schema": 2}, "schema is 2"),
        ({"inputs": QKV, "title": [1]}, "title is a text"),
        ({"inputs": QKV, "notes": "x"}, "notes is a list of texts"),
        ({"inputs": QKV, "tokens": ["a", "b"]}, "2 tokens are named; the queries are 1"),
        ({"inputs": QKV, "printed": 1}, "printed is an object"),
        ({"inputs": QKV, "printed": {"rounded": {"weights": [["a"]]}}}, "not an exact number"),
        ({"inputs": QKV, "printed": {"digits": {"weights": [["1/2"]]}}}, "holds digits, such as 6.3e-02, not '1/2'"),
        ({"inputs": QKV, "printed": {"places": 99}}, "places is at most"),
        ({"inputs": QKV, "printed": {"digits": {"weight": [[1]]}}}, "Did you mean 'weights'?"),
        (inputs(q=[[1, 2], [3]]), "q[2] is ragged: it has 1 entry where the first row has 2"),
        (inputs(q=[1, 2]), "q is a matrix"),
        (inputs(q=3), "q is not a list of rows"),
        (inputs(q=[]), "q is empty"),
        (inputs(q=[[1, None]]), "q[1][2] is null"),
        (inputs(q=[[1, True]]), "only mask and keep hold truth values"),
        (inputs(q=[[1, {}]]), "is an object, which is not a number"),
        (inputs(q=[[1, "__import__('os')"]]), "is not an exact number"),
        (inputs(q=[[1, "sqrt(-1)"]]), "negative"),
        (inputs(q=[[1, "1e400000000"]]), "q[1][2]"),
        (inputs(q=[[1, "9" * 500]]), "the largest number that is read"),
        (inputs(q=[[1, "9" * 5000]]), "a number of 5000 characters"),
        (inputs(q=[[1, "9**9**9**9"]]), "exponent"),
        (inputs(q=[[1, 2, 3]]), "d_k differs"),
        (inputs(x=[[1]]), "not both"),
        ({"inputs": {"q": [[1]]}}, "missing: k, v"),
        ({"inputs": {"x": [[1, 2]], "w_q": [[1]]}}, "give all three or none"),
        ({"inputs": {"x": [[1, 2]], "w_q": [[1]], "w_k": [[1]], "w_v": [[1]]}}, "d_model differs"),
        (inputs(mask=[[True, False]]), "k has shape (1, 2) and mask (1, 2): n_k differs"),
        (inputs(mask=[[True, 1]]), "mixes truth values and numbers"),
        (inputs(mask=[[1]]), 'which would be added to the scores; hint: true where a query may attend, or "mask"'),
        (inputs(k=[[1, 2]] * 2, v=[[1]] * 2, mask=[["1", 0.0]]), "mask holds 0 and 1 alone"),
        (inputs(keep=[1]), "keep holds truth values"),
        (inputs(keep=[True, False]), "k has shape (1, 2) and keep (2,): n_k differs"),
        ({"inputs": QKV, "attention": {"mask": "boolean"}}, "needs input 'mask'"),
        (
            {"inputs": QKV | {"mask": [[0]]}, "attention": {"mask": "boolean"}},
            "its entries are numbers; hint: write true and false",
        ),
    ],
)
def test_bad_sheets(refused, sheet, content, words: str) -> None:
    assert words in refused("walk", sheet(content))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"inputs": {"q": [[NaN]]}}', "NaN is not a number"),
        ('{"inputs": {"q": [[1e999999]]}}', "q[1][1]"),
        ('{"inputs": {"q": [[1]], "q": [[2]]}}', "'q' is given twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"inputs": {"q": ' + "[" * 900 + "]" * 900 + "}}", "more than 4 axes"),
        ('{"inputs": {"q": [[' + "1" * 5000 + "]]}}", "a number of 5000 characters"),
        (b"\xff\xfe{\x00}\x00", "is not UTF-8 text"),
        ('{"' + "k" * 10_000 + '": 1}', "unknown name"),
        ('{"inputs": {"q": [[0x10]]}}', "not valid JSON"),
    ],
)
def test_bad_texts(refused, sheet, text, words: str) -> None:
    line = refused("walk", sheet(text))
    assert words in line
    assert len(line) < 600


def test_a_byte_order_mark_is_fine(run, sheet) -> None:
    assert run("walk", sheet(b"\xef\xbb\xbf" + json.dumps(inputs()).encode())).status == 0


def test_too_many_scores(refused, sheet) -> None:
    many = [[1]] * 65
    assert "65 queries × 65 keys; a walk takes at most 4096 scores" in refused(
        "walk", sheet({"inputs": {"q": many, "k": many, "v": many}})
    )
    long = sheet({"inputs": {"q": [[1]] * 5000, "k": [[1]], "v": [[1]]}})
    assert "q is 5000 × 1, 5000 entries; a walk takes at most 4096" in refused("walk", long)
    ragged = sheet({"inputs": {"q": [[1], [1] * 5000], "k": [[1]], "v": [[1]]}})
    assert "q has 5001 entries; a walk takes at most 4096" in refused("walk", ragged)


def test_too_large_is_told_before_any_number_is_read(refused, sheet) -> None:
    """The last entry is no number, and nobody gets that far."""
    many = [["1"] * 1000 for _ in range(1000)]
    many[-1][-1] = "no number"
    assert "x is 1000 × 1000, 1000000 entries" in refused("walk", sheet({"x": many}))
    assert "not an exact number" in refused("walk", sheet({"x": [["1", "no number"]]}))


def test_places_that_are_no_file(refused, tmp_path: Path) -> None:
    assert "is a directory" in refused("walk", str(tmp_path))
    assert "cannot be read: No such file" in refused("walk", str(tmp_path / "nothing.json"))
    assert "neither an example nor a file" in refused("walk", "nothing-at-all")
    assert "cannot be read" in refused("walk", "nul\0.json")


def test_a_file_without_end(refused, tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(10**10)  # sparse
    assert "is larger than 8 MiB" in refused("walk", str(large))
    if Path("/dev/zero").exists():
        assert "is larger than 8 MiB" in refused("walk", "/dev/zero")


def npz(path: Path, **members: bytes) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return str(path)


def npy(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header(shape: str, dtype: str = "'<f8'") -> bytes:
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def test_npz_floats_are_taken_at_their_binary_value(run, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, q=np.array([[0.1]]), k=np.array([[1.0], [0.5]], np.float16), v=np.array([[1], [2]]))
    document = run("walk", str(path), "-f", "json").json
    assert document["steps"][0]["exact"] == [["3602879701896397/36028797018963968"]]
    assert "exact binary value" in document["notes"][0]
    np.savez_compressed(path, q=np.eye(2, order="F"), k=np.eye(2), v=np.eye(2), mask=np.eye(2, dtype=bool))
    assert run("walk", str(path)).status == 0
    np.savez(path, q=np.eye(2), k=np.eye(2), v=np.eye(2), mask=np.array([[0, -np.inf], [0, 0]]))
    assert run("walk", str(path), "-f", "json").json["steps"][-3]["exact"][0] == ["1", "0"]


class Trap:
    def __reduce__(self):
        return (Path("/").__class__, ("pickled",))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"q": npy(np.array([Trap()], dtype=object))}, "holds pickled objects, which are never loaded"),
        ({"q": pickle.dumps([1, 2])}, "not a readable npz file"),
        ({"q": header("(100000, 12500)")}, "declares 10000000000 bytes"),
        ({"q": header("(2, 2)") + b"\0" * 8}, "declares 32 bytes, shape (2, 2), and holds 8"),
        ({"q": header("(-1, 2)")}, "declares"),
        ({"q": header("(2,)", "[('a', '<f8')]") + b"\0" * 16}, "has the type"),
        ({"q": b"\x93NUMPY\x09\x00" + b"\0" * 100}, "version (9, 0)"),
        pytest.param({"q": b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535}, "not a readable npz file", id="brackets"),
        pytest.param({"q": b"\0" * (2**21)}, "unpacks to 2097152 bytes", id="two MiB"),
        ({"q": npy(np.array([[np.nan]]))}, "q[1][1] is nan"),
        ({"q": npy(np.array([[-np.inf]]))}, "q[1][1] is -inf"),
        ({"q": npy(np.array([[1e300]]))}, "the largest number that is read"),
        ({"q": npy(np.float64(3))}, "must be a matrix, got a single number"),
        ({"q": npy(np.array([1.0]))}, "is a matrix"),
        ({"q": npy(np.zeros((0, 3)))}, "is empty"),
        ({"q": npy(np.array([[True]]))}, "only mask and keep hold truth values"),
        ({"qq": npy(np.eye(2))}, "Did you mean 'q'?"),
        ({f"a{i}": b"" for i in range(40)}, "40 files"),
        ({"q": npy(np.zeros((100, 100)))}, "q is 100 × 100, 10000 entries"),
        ({}, "missing: q, k, v"),
    ],
    ids=str,
)
def test_bad_npz(refused, tmp_path: Path, members: dict, words: str) -> None:
    assert words in refused("walk", npz(tmp_path / "a.npz", **members))


def test_npz_with_other_things_in_it(refused, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../evil.txt", b"x")
    assert "which is not an array" in refused("walk", str(path))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("q.npy", npy(np.eye(2)))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("q.npy", npy(np.eye(3)))
    assert "'q' twice" in refused("walk", str(path))


def test_a_zip_bomb_is_not_unpacked(refused, tmp_path: Path) -> None:
    """A member whose directory entry understates its size: no more than that is read, and it does not fit."""
    path = tmp_path / "a.npz"
    npz(path, q=npy(np.zeros((1000, 1000))))
    content = bytearray(path.read_bytes())
    size = struct.pack("<I", 8_000_128)
    assert content.count(size) == 2
    path.write_bytes(bytes(content).replace(size, struct.pack("<I", 256)))
    assert "a.npz" in refused("walk", str(path))
    assert "damaged" in refused("walk", str(path)) or "not a readable npz file" in refused("walk", str(path))


def test_broken_archives(refused, tmp_path: Path) -> None:
    whole = Path(npz(tmp_path / "whole.npz", q=npy(np.eye(2)))).read_bytes()
    for name, content in (
        ("cut.npz", whole[: len(whole) // 2]),
        ("text.npz", b"not a zip at all"),
        ("bent.npz", whole[:60] + bytes(b ^ 255 for b in whole[60:90]) + whole[90:]),
    ):
        (tmp_path / name).write_bytes(content)
        assert "not a readable npz file" in refused("walk", str(tmp_path / name))
    (tmp_path / "a.npy").write_bytes(npy(np.eye(2)))
    assert "is a single array; hint: numpy.savez" in refused("walk", str(tmp_path / "a.npy"))


def test_an_encrypted_member_is_refused(refused, tmp_path: Path) -> None:
    content = bytearray(Path(npz(tmp_path / "a.npz", q=npy(np.eye(2)))).read_bytes())
    content[6] |= 1  # the flag in the local header
    content[content.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    (tmp_path / "a.npz").write_bytes(bytes(content))
    assert "not a readable npz file" in refused("walk", str(tmp_path / "a.npz"))


def test_nothing_is_written_for_bad_input(refused, sheet, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    refused("walk", sheet("{"), "-o", str(out))
    assert not out.exists()


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
    np.savez(tmp_path / "own.npz", **dict(zip(("x", "w_q", "w_k", "w_v"), numbers.values(), strict=True)))
    assert (
        json.loads(run("walk", str(tmp_path / "papers.npz"), "-f", "json").stdout)["steps"]
        == (json.loads(run("walk", str(tmp_path / "own.npz"), "-f", "json").stdout)["steps"])
    )


def test_no_two_arrays_are_one_when_written_otherwise() -> None:
    # A pattern of the schema spells each name as "[wW][_-]*[qQ]".
    spelt = schema_of("sheet")["$defs"]["arrayName"]["pattern"].strip("^$()").split("|")
    assert len({name.replace("[_-]*", "") for name in spelt}) == len(spelt) > 20
    one = {"x": [[1]], "w_k": [[1]], "w_v": [[1]]}
    assert walk({**one, "W-q": [[3]]}).blocks == walk({**one, "w_q": [[3]]}).blocks


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
