"""Traces: right ones pass in every format, seeded faults are found and named, and no file is believed."""

import struct
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from symattn import Attention, InputError, Rotary, graphs
from symattn_cli.main import main
from tests.programs.traces.files import HEADS, SHARED, header, made, write
from tests.refusals import refuses

CAUSAL = Attention(causal=True, heads=HEADS, kv_heads=SHARED)
FORMATS = (np.float32, np.float16, ml_dtypes.bfloat16)
CORE = ("q", "k", "v", "o")


def _core(*args: object, **how: object) -> dict[str, np.ndarray]:
    return {n: a for n, a in made(*args, **how).items() if n in CORE}  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", FORMATS, ids=lambda d: d.__name__)
def test_a_right_trace_passes_in_every_head(tmp_path: Path, dtype: type) -> None:
    report = graphs.verify_trace(write(tmp_path / "t.safetensors", _core(dtype)), CAUSAL)
    assert (report.verdict.value, report.exit_code, report.cases) == ("no fault", 0, HEADS)
    assert report.grade.grade.value == "sampled"


@pytest.mark.deep
@pytest.mark.parametrize("dtype", FORMATS[1:], ids=lambda d: d.__name__)
@pytest.mark.parametrize(
    ("fault", "step", "words"),
    [
        ("scale", "scale", "scaled by 1.0"),
        ("mask", "mask", "also sees the next key"),
        ("heads", "score", "are tiled (repeat)"),
    ],
)
def test_one_mistake_is_named(tmp_path: Path, dtype: type, fault: str, step: str, words: str) -> None:
    report = graphs.verify_trace(write(tmp_path / "t.safetensors", _core(dtype, fault)), CAUSAL)
    assert report.verdict.value == "fault"
    assert report.faults[0].step == step
    assert words in str(report.faults[0].cause)


@pytest.mark.deep
def test_an_output_of_zeros_is_not_explained_by_small_numbers(tmp_path: Path) -> None:
    arrays = _core(np.float32)
    report = graphs.verify_trace(write(tmp_path / "t.safetensors", arrays | {"o": 0 * arrays["o"]}), CAUSAL)
    assert str(report.faults[0].cause).startswith("weights are taken to be 0; or outputs are taken to be 0")
    arrays = made(np.float32)
    report = graphs.verify_trace(write(tmp_path / "u.safetensors", arrays | {"lse": 0 * arrays["lse"]}), CAUSAL)
    assert [(fault.step, fault.cause) for fault in report.faults] == [("lse", None)]


@pytest.mark.deep
def test_queries_that_were_chosen_by_the_output_may_be_many(tmp_path: Path) -> None:
    """The number of ways to choose 150 of 2,000 queries is beyond float64."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2000 if name == "q" else 3, 2)).astype(np.float32) for name in "qkv")
    right = Attention()(*(a.astype(np.float64) for a in (q, k, v))).astype(np.float32)
    chosen = range(100, 250)
    # The queries that are judged anyhow are at both ends and at drawn places.
    wrong = np.where(np.arange(2000)[:, None] == 137, right + 1, right)
    for o, verdict in ((right, "no fault"), (wrong, "fault")):
        path = write(tmp_path / "t.safetensors", {"q": q, "k": k, "v": v, "o": o})
        assert graphs.verify_trace(path, rows=[0], also={(): chosen}).verdict.value == verdict


@pytest.mark.deep
def test_what_only_the_filter_accuses_is_sampled(tmp_path: Path) -> None:
    """A scale that is 1 % off is within the worst case of bfloat16, which is no refutation."""
    report = graphs.verify_trace(write(tmp_path / "t.safetensors", _core(ml_dtypes.bfloat16, "scale")), CAUSAL)
    (check,) = report.checks
    assert report.verdict.value == "fault"
    assert check.worst_ratio < 1
    assert (check.grade.value, report.grade.grade.value) == ("sampled", "sampled")


@pytest.mark.deep
def test_a_single_wrong_number_is_seen(tmp_path: Path) -> None:
    arrays = _core(np.float32)
    arrays["o"][0, 3, -1, 0] *= np.float32(1.001)
    report = graphs.verify_trace(write(tmp_path / "t.safetensors", arrays), CAUSAL)
    assert report.faults[0].cause is None
    assert "out[47, 0]" in report.faults[0].message
    assert "wrong in 1 of 4 heads" in report.faults[0].message


@pytest.mark.deep
@pytest.mark.parametrize("name", ["lse", "weights", "scores"])
def test_what_stands_beside_the_output_is_judged(tmp_path: Path, name: str) -> None:
    every = made(np.float32)
    arrays = {n: every[n] for n in (*CORE, name)}
    assert graphs.verify_trace(write(tmp_path / "t.safetensors", arrays), CAUSAL).verdict.value == "no fault"
    arrays[name] = arrays[name].copy()
    arrays[name][0, 1, 47] += np.float32(1e-3)
    report = graphs.verify_trace(write(tmp_path / "t.safetensors", arrays), CAUSAL)
    assert [c.faults for c in report.checks] == [0, 1]
    assert report.grade.grade.value == "refuted"
    assert f"{name}[" in report.faults[0].message


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "fault", "step", "words"),
    [
        ("lse", "", "lse", "the logarithm has the base 2"),
        ("lse", "sign", "lse", "lse has the other sign"),
        ("lse", "mask", "mask", "also sees the next key"),
        ("lse", "rolled", "lse", None),  # near misses: no known mistake
        ("lse", "noise", "lse", None),
        ("weights", "heads", "score", "are tiled (repeat)"),
        ("weights", "noise", "weights", None),
    ],
)
def test_a_mistake_in_sums_or_weights_alone_is_named(
    tmp_path: Path, name: str, fault: str, step: str, words: str | None
) -> None:
    every = made(np.float32)
    right = every[name]
    wrong = {
        "": lambda: right * np.float32(np.log2(np.e)),
        "sign": lambda: -right,
        "rolled": lambda: np.roll(right, 1, axis=-1),
        "noise": lambda: right + np.float32(1e-2) * np.random.default_rng(1).random(right.shape, np.float32),
    }
    arrays = {n: every[n] for n in CORE}
    arrays[name] = wrong[fault]() if fault in wrong else made(np.float32, fault)[name]
    (found,) = graphs.verify_trace(write(tmp_path / "t.safetensors", arrays), CAUSAL).faults
    assert found.step == step
    assert found.cause is None if words is None else words in str(found.cause)


@pytest.mark.deep
def test_large_files_are_judged_in_little_memory(tmp_path: Path) -> None:
    """Of four times as many heads hardly more is held at a time: the arrays of one head, not those of the file."""

    def most(heads: int) -> int:
        arrays = {m: random.standard_normal((1, heads, n, d), np.float32).astype(ml_dtypes.bfloat16) for m in CORE}
        path = write(tmp_path / f"{heads}.safetensors", arrays)
        tracemalloc.start()
        report = graphs.verify_trace(path, Attention(causal=True, heads=heads), rows=4)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert report.verdict.value == "fault"
        return found

    n, d, random = 2048, 64, np.random.default_rng(0)
    most(1)  # what is imported at the first call
    assert most(8) < 1.2 * most(2)


def test_npz_and_the_other_order_of_axes(tmp_path: Path) -> None:
    arrays = {n: a.swapaxes(1, 2) for n, a in _core(np.float32).items()}
    path = str(tmp_path / "t.npz")
    for save in (np.savez, np.savez_compressed):
        save(path, **arrays)
        assert graphs.verify_trace(path, CAUSAL, layout="bnhd").verdict.value == "no fault"
        refuses(graphs.verify_trace, path, CAUSAL, says="heads")


def _lies() -> dict[str, tuple[object, int | None, str]]:
    good = header(_core(np.float32))
    change = {
        "beyond": ({"o": {**good["o"], "data_offsets": [2**40, 2**40 + 4 * 4 * 48 * 16]}}, None, ", expected "),
        "overlap": ({"v": {**good["v"], "data_offsets": good["k"]["data_offsets"]}}, None, "overlaps"),
        "shape": ({"q": {**good["q"], "shape": [2**59, 2**59]}}, None, "its range is"),
        "no such array": ({"q": {**good["q"], "shape": [0, 2**59, 2**59]}}, None, "which no array has"),
        "negative": ({"q": {**good["q"], "shape": [-1, 4]}}, None, "whole numbers"),
        "type": ({"q": {**good["q"], "dtype": "F7"}}, None, "known: F64"),
        "no entry": ({"q": 3}, None, "has the type"),
        "huge": ({}, 2**63, "cut off"),
    }
    found = {name: ({**good, **told}, length, words) for name, (told, length, words) in change.items()}
    return found | {"list": ([1], None, "not a JSON object"), "missing": ({}, None, "no array")}  # type: ignore[return-value]


@pytest.mark.parametrize("lie", list(_lies()))
def test_a_header_that_lies_is_one_line(tmp_path: Path, lie: str, capsys: pytest.CaptureFixture[str]) -> None:
    told, length, words = _lies()[lie]
    path = write(tmp_path / "t.safetensors", _core(np.float32) if lie != "missing" else {}, told, length)
    assert main(["verify", path, "--causal", "--heads", "4", "--kv-heads", "2"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_file_that_is_cut_off_is_one_line(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "t.safetensors", _core(np.float32)))
    whole = path.read_bytes()
    for end in (0, 5, 8, 100, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError, match=r"cut off|damaged"):
            graphs.verify_trace(str(path), CAUSAL)
    path.write_bytes(struct.pack("<Q", 2**30) + b"\0" * 100)
    refuses(graphs.verify_trace, str(path), CAUSAL, says="cut off")


def test_an_npz_is_not_unpickled_nor_believed(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, q=np.array([object()], dtype=object), k=np.ones(1), v=np.ones(1), o=np.ones(1))
    refuses(graphs.verify_trace, str(path), says="pickled")
    np.savez(path)
    refuses(graphs.verify_trace, str(path), says="it holds nothing")
    np.savez(path, **_core(np.float32))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError):
        graphs.verify_trace(str(path), CAUSAL)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("q.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9,)}")
    with pytest.raises(InputError):
        graphs.verify_trace(str(path), CAUSAL)


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,", "not a readable npz file: the header"),
        ("{'descr': (), 'fortran_order': False, 'shape': (2,)}", "not a readable npz file: the header"),
        ("{1: 2, 'a': 3}", "not a readable npz file: the header"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (True, 4)}", "lengths are whole numbers"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -4)}", "lengths are whole numbers"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2305843009213693952)}", "which no array has"),
    ],
)
@pytest.mark.parametrize("packed", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_header_of_npy_that_lies_is_one_line(tmp_path: Path, described: str, words: str, packed: int) -> None:
    text = described.encode() + b"\n"
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w", packed) as archive:
        archive.writestr("q.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(16))
    with pytest.raises(InputError, match=words) as raised:
        graphs.verify_trace(str(path))
    assert "\n" not in str(raised.value)


def test_a_damaged_lzma_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("q.npy", bytes(range(256)) * 40)
    content = bytearray(path.read_bytes())
    content[40:80] = b"\xff" * 40
    path.write_bytes(content)
    refuses(graphs.verify_trace, str(path), says="not a readable npz file")


@pytest.mark.deep
@pytest.mark.parametrize("base", [10000, 500])
def test_rotations_are_judged_where_all_queries_are(tmp_path: Path, base: int) -> None:
    spec = Attention(causal=True, heads=2, position=Rotary())
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 12, 8)).astype(np.float32)
    out = replace(spec, position=Rotary(base=base))(q=q, k=k, v=v)
    path = write(tmp_path / "t.safetensors", {"q": q, "k": k, "v": v, "o": out.astype(np.float32)})
    assert graphs.verify_trace(path, spec).verdict.value == ("no fault" if base == 10000 else "fault")
    refuses(graphs.verify_trace, path, spec, rows=4, says="not judged with position=Rotary(); hint: judge all rows")


def test_a_file_of_another_suffix_is_one_line(tmp_path: Path) -> None:
    refuses(
        graphs.verify_trace, str(tmp_path / "x.txt"), says="not named like a trace; names end in .safetensors or .npz"
    )


def test_names_that_say_nothing_and_options_of_calls_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = _core(np.float32)
    path = write(tmp_path / "t.safetensors", {**arrays, "blob": arrays["q"]})
    refuses(graphs.verify_trace, path, CAUSAL, says="what the array 'blob' is")
    with pytest.raises(InputError, match="has no array o"):
        graphs.verify_trace(write(tmp_path / "t.safetensors", {n: arrays[n] for n in "qkv"}), CAUSAL)
    assert main(["verify", write(tmp_path / "t.safetensors", arrays), "--time-limit", "3"]) == 2
    assert "--time-limit applies to a function" in capsys.readouterr().err
    assert main(["verify", write(tmp_path / "t.safetensors", arrays), "--case", "sa6k4vc4v8c"]) == 2
    assert "--case applies to a function" in capsys.readouterr().err
    with (tmp_path / "RUN.NPZ").open("wb") as file:
        np.savez(file, **arrays)
    assert main(["verify", str(tmp_path / "RUN.NPZ"), "--time-limit", "3"]) == 2
    assert "--time-limit applies to a function" in capsys.readouterr().err
