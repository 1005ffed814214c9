"""Choices that answer a mistyped word with a suggestion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .stream import tell

if TYPE_CHECKING:  # generic for type checkers; older versions of click have no brackets at run time
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice


# Spellings of options that people try → the option.
_SPELLINGS = {
    "d-k": "dk", "d-v": "dv", "d-model": "dmodel", "n-keys": "keys", "kv": "kv-heads", "num-heads": "heads",
    "is-causal": "causal", "colour": "color", "file": "output", "out": "output", "num-kv-heads": "kv-heads",
    "n-heads": "heads", "nheads": "heads", "sliding-window": "window", "window-size": "window",
    "logit-softcap": "softcap",
    "normalizer": "normaliser", "no-stabilized": "no-stabilised", "stabilized": "stabilised",
}  # fmt: skip


def understood(word: str) -> str:
    """The name of an option as symattn has it: ``d_k`` and ``d-k`` are dk, ``kv_heads`` is kv-heads. A hint says so."""
    plain = word.replace("_", "-")
    found = _SPELLINGS.get(plain, plain)
    if found != word and word not in _told:
        _told.add(word)
        tell(f"symattn: --{word} is written --{found}")
    return found


_told: set[str] = set()


class Whole(click.IntRange):
    """A whole number within bounds, called an integer where it is told and listed."""

    name = "integer"


class Choice(_Choice):
    """One of some words."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        """As it is: other spellings are understood for the names of options alone."""
        return str(choice)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            from symattn.errors import near  # help imports nothing of symattn

            listed = ", ".join(self.choices)
            self.fail(f"{value!r} is not one of {listed}.{near(str(value), self.choices)}", param, ctx)
        return str(value)
