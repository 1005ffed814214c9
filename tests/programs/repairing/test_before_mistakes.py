"""Edits are sought before known mistakes, most of which an accepted edit leaves out."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from symattn.programs.repairing.trials import one_torch_thread
from symattn.programs.verifying import Options, verified
from tests.programs.repairing.one_line import FIRST
from tests.programs.repairing.programs import loaded


@pytest.mark.deep
@pytest.mark.parametrize("repair", [True, False])
def test_pairs_of_known_mistakes_are_left_to_functions_that_no_edit_repairs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repair: bool
) -> None:
    tried: list[Any] = []

    def pairs(search: Any) -> tuple[()]:
        tried.append(search)
        return ()

    monkeypatch.setattr("symattn.verification.diagnosis.causes.Search.pairs", pairs)
    # The weights are divided by the sum of what is exponentiated, which no known mistake does.
    wrong = next(one for one in FIRST if one.name == "plain-sum-of-shifted")
    function = loaded(tmp_path, wrong.broken, function=wrong.function)
    report = verified(function, wrong.definition, Options(repair=repair))
    (fault,) = report.faults
    assert [r.old for r in report.repairs] == ["shifted"] * repair
    assert bool(tried) is not repair
    assert ("no known mistake that was tried explains it" in fault.message) is repair


@pytest.mark.torch
def test_edited_functions_of_torch_use_one_thread() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_torch_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_another_module_of_the_name_of_torch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    other: Any = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", other)
    with one_torch_thread():
        assert sys.modules["torch"] is other
