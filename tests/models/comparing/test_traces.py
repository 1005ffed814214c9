"""Two traces: the wrong one is told by its own inputs, rounding is no fault, and what differed before is said."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from symattn import Attention
from symattn.bounds.sharp.sample import chosen
from symattn.models.comparing.traces import compare_traces
from symattn.programs.traces import ROWS, verify_trace
from symattn_cli.main import main
from tests.programs.traces.files import HEADS, SHARED, made, write
from tests.refusals import refuses

CAUSAL = Attention(causal=True, heads=HEADS, kv_heads=SHARED)


def _file(path: Path, dtype: type = np.float32, fault: str = "", seed: int = 0, moved: bool = False) -> str:
    arrays = {n: a for n, a in made(dtype, fault, n=24, seed=seed).items() if n in ("q", "k", "v", "o")}
    if moved:
        arrays["o"] = np.nextafter(arrays["o"], np.float32(9))
    return write(path, arrays)


@pytest.mark.deep
@pytest.mark.parametrize("turned", [False, True])
def test_the_wrong_one_is_named_with_where_they_part(tmp_path: Path, turned: bool) -> None:
    names = [_file(tmp_path / "a.safetensors"), _file(tmp_path / "b.safetensors", fault="mask")]
    found = compare_traces(*(names[::-1] if turned else names), CAUSAL)
    assert found.wrong == (("first",) if turned else ("second",))
    assert (found.exit_code, found.together.cases, found.together.equal) == (1, HEADS, 0)
    first, worst = found.together.first, found.together.worst
    assert first is not None
    assert worst is not None
    assert first.index[:3] == (0, 0, 0)  # in the first row a query sees one key too many
    right, wrong = (worst.second, worst.first) if turned else (worst.first, worst.second)
    assert right.ratio <= 1 < wrong.ratio


@pytest.mark.deep
def test_rounding_is_no_fault_and_equal_files_are_equal(tmp_path: Path) -> None:
    names = [_file(tmp_path / "a.safetensors"), _file(tmp_path / "b.safetensors", moved=True)]
    found = compare_traces(*names, CAUSAL)
    assert (found.exit_code, found.words) == (0, "Both have no fault, and they differ by rounding alone")
    assert 0 < found.together.apart < 1
    assert "called as" not in found.text()
    assert compare_traces(names[0], names[0], CAUSAL).words == "Both have no fault, and they are equal"


@pytest.mark.deep
def test_inputs_that_differ_already_are_said(tmp_path: Path) -> None:
    names = [_file(tmp_path / "a.safetensors"), _file(tmp_path / "b.safetensors", seed=1)]
    found = compare_traces(*names, CAUSAL)
    assert (found.exit_code, found.together.cases) == (3, 0)
    assert "differ in q already" in found.notes[0]
    assert found.words == "Undecided: the files do not hold the same inputs"
    assert "right shape" not in found.text()
    names[1] = _file(tmp_path / "c.safetensors", fault="scale", seed=1)
    assert compare_traces(*names, CAUSAL).wrong == ("second",)


@pytest.mark.deep
@pytest.mark.parametrize(("dtype", "part"), [(np.float32, np.nan), (np.float32, 0.3), (ml_dtypes.bfloat16, 5.0)])
def test_queries_in_which_two_files_part_are_looked_at(tmp_path: Path, dtype: type, part: float) -> None:
    """One head has one wrong query among 400, which is none of those that are looked at for other reasons."""
    arrays = {n: a for n, a in made(dtype, n=400).items() if n in ("q", "k", "v", "o")}
    names = [write(tmp_path / "a.safetensors", arrays)]
    at = 0, 2, 301
    assert 301 not in chosen(CAUSAL, {n: a for n, a in arrays.items() if n != "o"}, ROWS)
    arrays["o"] = arrays["o"].copy()
    arrays["o"][at] += np.asarray(part, arrays["o"].dtype)
    names.append(write(tmp_path / "b.safetensors", arrays))
    found = compare_traces(*names, CAUSAL)
    assert found.wrong == ("second",)
    worst = found.together.worst
    assert worst is not None
    assert (worst.index[:3], found.together.equal) == (at, HEADS - 1)
    assert found.text().count("The first place at which they differ") == 1
    assert ("The place at which they differ most" in found.text()) == (found.together.first != worst and part == part)


@pytest.mark.deep
def test_a_comparison_accuses_whom_a_verification_accuses(tmp_path: Path) -> None:
    """A scale that is 3 % off in bfloat16: queries that are looked at besides take nothing from the others."""
    names = []
    for fault in ("", "scale"):
        arrays = {n: a for n, a in made(ml_dtypes.bfloat16, fault).items() if n in ("q", "k", "v", "o")}
        names.append(write(tmp_path / f"{fault or 'right'}.safetensors", arrays))
    alone = verify_trace(names[1], CAUSAL)
    found = compare_traces(*names, CAUSAL)
    assert found.wrong == ("second",)
    (fault,), (told,) = alone.faults, found.second.report.faults
    assert (fault.step, fault.cause) == (told.step, told.cause)


@pytest.mark.deep
def test_the_last_bit_of_every_entry_is_rounding(tmp_path: Path) -> None:
    """In bfloat16, where the queries that differ most are chosen by the outputs themselves."""
    arrays = {n: a for n, a in made(ml_dtypes.bfloat16, n=400).items() if n in ("q", "k", "v", "o", "weights")}
    values = np.repeat(arrays["v"], 2, axis=1).astype(np.float32)
    names = [write(tmp_path / "a.safetensors", {n: a for n, a in arrays.items() if n != "weights"})]
    stored = arrays.pop("weights").astype(ml_dtypes.bfloat16).astype(np.float32)
    arrays["o"] = (stored @ values).astype(ml_dtypes.bfloat16)
    names.append(write(tmp_path / "b.safetensors", arrays))
    found = compare_traces(*names, CAUSAL)
    assert found.words == "Both have no fault, and they differ by rounding alone"
    assert found.together.equal == 0


def test_a_complaint_says_of_which_file_it_is(tmp_path: Path) -> None:
    names = [_file(tmp_path / "a.safetensors")]
    arrays = {n: a for n, a in made(np.float32, n=24).items() if n in ("q", "k", "v", "o")}
    names.append(write(tmp_path / "b.safetensors", arrays | {"o": np.ascontiguousarray(arrays["o"][..., :4])}))
    refuses(compare_traces, *names, CAUSAL, says="b.safetensors: o has the shape")


def test_two_formats_ask_for_a_precision(tmp_path: Path) -> None:
    names = [_file(tmp_path / "a.safetensors"), _file(tmp_path / "b.safetensors", ml_dtypes.bfloat16)]
    refuses(compare_traces, *names, CAUSAL, says="hint: --dtype float32")


def test_a_function_beside_a_trace_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = _file(tmp_path / "a.safetensors")
    assert main(["compare", name, "attn.py:attention"]) == 2
    assert "give two traces, or two functions" in capsys.readouterr().err
    assert main(["compare", name, name, "--budget", "3"]) == 2
    assert "--budget applies to a function" in capsys.readouterr().err
