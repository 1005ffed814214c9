"""``symattn derive``: every parameter of a derivation is an option, and bad ones are one line."""

import click
import pytest

from symattn import derivations
from symattn_cli.derive import command


def test_every_parameter_of_every_derivation_is_an_option() -> None:
    known = {option.name for option in command.params if isinstance(option, click.Option)}
    for entry in derivations.names().values():
        assert set(entry.parameters) <= known


def test_the_list_names_every_derivation(run) -> None:
    ran = run("derive", "--list")
    assert ran.status == 0
    assert all(name in ran.stdout for name in derivations.names())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("scalling",), "did you mean scaling?"),
        (("--dk", "0"), "d_k must be an integer from 1 to 65536, got 0"),
        (("--dk", "-1"), "d_k must be an integer from 1 to 65536, got -1"),
        (("--dk", "1000000000"), "d_k must be an integer from 1 to 65536, got 1000000000"),
        (("--dk", "four"), "four"),
        (("shift", "--dk", "4"), "has no parameter d_k"),
        (("--mean", "a b"), "a b"),
        (("attention", "--mask", "bool"), "Did you mean 'boolean'?"),
        (("attention", "--scale", "1/0"), "1/0"),
        (("attention", "--tokens", "1000"), "n must be an integer from 1 to 64, got 1000"),
        (("scaling", "more"), "more"),
    ],
)
def test_bad_input_is_one_line(run, arguments: tuple[str, ...], words: str) -> None:
    assert words in run("derive", *arguments).refusal
