"""Records have the entries that a dataclass names, and command lines give numbers again as they were."""

import shlex
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import pytest

from symattn import Rotary
from symattn.document.codec import command, record
from symattn.document.evidence import Grade


class Place(NamedTuple):
    row: int
    column: int


_PLACE = Place(1, 2)


@dataclass(frozen=True)
class Plain:
    ratio: float
    grade: Grade = Grade.PROVED
    at: Place = _PLACE


@dataclass(frozen=True)
class Named:
    inner: Plain | None = None
    size: int = 0
    tail: int = 0
    more: str = ""

    RECORD = "of = inner.ratio, inner?, size?, tail?size, *extra"

    @property
    def extra(self) -> dict[str, str]:
        """Further entries."""
        return {"more": self.more} if self.more else {}


def test_fields_are_recorded_unless_entries_are_named() -> None:
    plain = {"ratio": "inf", "grade": "proved", "at": {"row": 1, "column": 2}}
    assert record(Plain(float("inf"))) == plain
    assert record(Named()) == {"of": None}
    assert record(Named(Plain(0.5), 3, more="x")) == {
        "of": 0.5, "inner": {**plain, "ratio": 0.5}, "size": 3, "tail": 0, "more": "x",
    }  # fmt: skip
    with pytest.raises(TypeError, match="no JSON for object"):
        record(object())


@pytest.mark.parametrize("number", [0.123456789, 1 / 3, 1e-7, 60.0, 2.0**-30, 1234567.0])
def test_a_command_line_gives_a_float_again(number: float) -> None:
    assert float(shlex.split(command("verify", "f.py:f", options={"scale": number}))[-1]) == number


def test_options_are_flags_words_rows_and_repeated_ones() -> None:
    options = {"causal": True, "stabilised": False, "window": (2, None), "tokens": None, "call": ["a=1", "b='c d'"]}
    words = shlex.split(command("verify", "my file.py:f", options=options))
    assert words[:6] == ["symattn", "verify", "my file.py:f", "--causal", "--no-stabilised", "--window"]
    assert words[6:] == ["2,none", "--call", "a=1", "--call", "b='c d'"]
    written = command("walk", options=[("kv_heads", 2), ("position", Rotary(base=500)), ("scale", Fraction(1, 3))])
    assert written == "symattn walk --kv-heads 2 --position 'Rotary(base=500)' --scale 1/3"
