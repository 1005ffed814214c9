"""Messages for inputs that no parameter stands for: all at once, by names that a parameter can have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from symattn import Attention, Block, InputError, LinearAttention, Merge, RMSNorm, verify
from symattn.programs.specifications import KINDS, OfDefinition

BLOCK = Block(attention=Attention(causal=True, heads=2))
RECURRENCE = LinearAttention(normalised=False, gate="token", delta=True)


def test_missing_weights_of_a_block_have_names_of_parameters() -> None:
    with pytest.raises(InputError, match=r"no parameter for the input") as caught:
        verify(lambda x: x, BLOCK, examples=0)
    names = str(caught.value).partition("name them ")[2].split(", ")
    assert {"w_q", "w_k", "w_v"} <= {*names}
    assert all(name.isidentifier() for name in names)


def test_all_missing_inputs_are_in_one_message() -> None:
    with pytest.raises(InputError, match=r"inputs g, beta is known; name them g, beta"):
        verify(lambda q, k, v: v, RECURRENCE, examples=0)
    with pytest.raises(InputError, match=r"specification's sink, gate is known; name them sink, gate|gate, sink"):
        verify(lambda q, k, v: v, Attention(sink="given", output_gate=True), examples=0)


def test_one_missing_input_is_named_alone() -> None:
    with pytest.raises(InputError, match=r"specification's sink is known; name it sink$"):
        verify(lambda q, k, v: v, Attention(sink="given"), examples=0)


def test_a_word_without_quotes_is_shown_with_them() -> None:
    from symattn_cli.variants import read

    with pytest.raises(InputError, match=r"no word in quotes; hint: residual='added'$"):
        read("RMSNorm(residual=added)")
    with pytest.raises(InputError, match=r"no word in quotes$"):
        read("RMSNorm(residual=1+x)")


def test_a_subject_without_a_layout_is_refused_where_its_row_passes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    room: Any = SimpleNamespace(subject=lambda spec: None)
    monkeypatch.setattr("symattn.programs.specifications.import_module", lambda name: room)
    row = OfDefinition("SquaredGate", "squared_gate")
    with pytest.raises(InputError, match=r"SquaredGate: its subject takes no layout; hint: ordered=False"):
        next(row._yield_forms(None, "nd"))
    monkeypatch.undo()
    assert all(
        next(kind.definitions(spec)) for kind, spec in ((KINDS["Merge"], Merge()), (KINDS["RMSNorm"], RMSNorm()))
    )
