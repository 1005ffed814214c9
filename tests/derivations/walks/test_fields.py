"""Fields of a specification in sheets and on command lines: read back as they are written, refused by name."""

import json
from fractions import Fraction
from typing import Any

import pytest

from symattn import Alibi, Attention, Buckets, Latent, LinearScaling, Rotary, Shaw, walk
from symattn.attention.codec.field_values import as_options, field_of, made_of, written
from symattn.attention.variants import VARIANTS
from symattn.derivations import examples
from symattn_cli.fields import NAMES
from tests.refusals import refuses


def in_json(data: Any) -> Any:
    """As a text in JSON is read."""
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_written_is_read_back(name: str) -> None:
    spec = VARIANTS[name].spec
    assert made_of(Attention, in_json(written(spec)), "it") == spec
    assert made_of(Attention, in_json(written(spec, changed=True)), "it") == spec


@pytest.mark.parametrize("name", VARIANTS)
def test_a_command_line_can_say_it(name: str) -> None:
    spec = VARIANTS[name].spec
    words = as_options(spec)
    assert Attention(**{field: field_of(Attention, field, word, field) for field, word in words.items()}) == spec


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("scale", "1/3", Fraction(1, 3)),
        ("scale", "none", 1),
        ("scale", "1/sqrt(d_k)", None),
        ("window", "2,0", (2, 0)),
        ("window", "2,none", (2, None)),
        ("window", [1, None], (1, None)),
        ("base", "none", None),
        ("causal", True, True),
        ("latent", True, Latent()),
        ("latent", "absorbed,norm=rms,eps=1/8", Latent(absorbed=True, norm="rms", eps=Fraction(1, 8))),
        ("position", "rotary:base=9,scaling=LinearScaling(factor=2)", Rotary(base=9, scaling=LinearScaling(factor=2))),
        ("position", "rotary:triples=3/4/5;5/12/13", Rotary(triples=((3, 4, 5), (5, 12, 13)))),
        ("position", {"rotary": {"scaling": {"linear": {"factor": 4}}}}, Rotary(scaling=LinearScaling(factor=4))),
        ("position", "alibi:two_sided", Alibi(two_sided=True)),
        ("position", "buckets:number=6,max_distance=9", Buckets(number=6, max_distance=9)),
        ("position", "shaw:most=2,values=false", Shaw(most=2, values=False)),
        ("position", Rotary(base=7), Rotary(base=7)),
    ],
)
def test_values(field: str, value: Any, wanted: Any) -> None:
    assert field_of(Attention, field, value, field) == wanted


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (
            "position",
            "rotery",
            "'rotery' is not one of rotary, alibi, buckets, shaw, transformer-xl, disentangled. Did you",
        ),
        ("position", {"rotary": {"bass": 10}}, "position: rotary: unknown name 'bass'. Did you mean 'base'?"),
        ("position", {"rotary": 3}, "rotary is an object of fields"),
        ("position", "rotary:layout=quarter", "layout is half or interleaved, not 'quarter'"),
        ("position", 3, "position is rotary, alibi"),
        ("position", "shaw", "position: shaw lacks most; hint: Shaw(most=…)"),
        ("position", "rotary:scaling=yarn", "scaling: yarn lacks factor and length; hint: YarnScaling(factor=…, len"),
        ("latent", "absorbd", "unknown name 'absorbd'. Did you mean 'absorbed'?"),
        ("latent", 1, "latent is latent or none"),
        ("window", "1,2,3", "window has 3 entries; it needs 2"),
        ("window", "wide", "window is a whole number, a list or none, not 'wide'"),
        ("window", "1.5", "window is a whole number"),
        ("sink", "ziro", "sink is given, zero or none, not 'ziro'. Did you mean 'zero'?"),
        ("causal", "yes", "causal is true or false, not 'yes'"),
        ("softcap", "sqrt(2)", "softcap must be rational, got sqrt(2)"),
        ("base", "10", "base is"),
    ],
)
def test_refusals(field: str, value: Any, words: str) -> None:
    refuses(field_of, Attention, field, value, field, says=words)


def test_a_sheet_with_a_description_within_a_description(sheet, run) -> None:
    inputs = {"q": [[1, 0]], "k": [[1, 0], [0, 1]], "v": [[1], [2]]}
    position = {"rotary": {"base": 100, "scaling": {"linear": {"factor": 2}}}}
    ran = run("walk", sheet({"attention": {"position": position}, "inputs": inputs}), "-f", "json")
    assert ran.status == 0, ran.stderr
    assert ran.json["attention"]["position"]["rotary"]["scaling"] == {"linear": {"factor": "2"}}


def test_inputs_ask_for_the_fields_that_need_them(sheet, run) -> None:
    inputs = {"q": [[1, 0]], "k": [[1, 0], [0, 1]], "v": [[1], [2]], "bias": [["-1", "1/2"]], "doc_q": [1],
              "doc_k": [0, 1]}  # fmt: skip
    ran = run("walk", sheet({"inputs": inputs}), "-f", "json")
    assert ran.status == 0, ran.stderr
    assert (ran.json["attention"]["bias"], ran.json["attention"]["documents"]) == (True, True)


def test_whole_numbers_are_whole(sheet, refused) -> None:
    inputs = {"x": [[1, 0], [0, 1]], "doc": [0, "1/2"]}
    assert "doc[2] must be an integer, got 1/2" in refused("walk", sheet({"inputs": inputs}))


def test_every_field_is_an_option_of_both_commands(run) -> None:
    for command in ("walk", "derive"):
        told = run(command, "--help").stdout + run("help", "fields").stdout
        assert [name for name in NAMES if f"--{name.replace('_', '-')}" not in told] == []
        assert "Scores c tanh(S/c)." not in told
        assert "c in the soft cap c tanh(S/c)" in told


def test_options_replace_fields_of_an_example(run) -> None:
    ran = run("walk", "latent", "--latent", "absorbed", "-f", "json")
    assert ran.status == 0, ran.stderr
    assert ran.json["attention"]["latent"]["latent"]["absorbed"] is True
    ran = run("walk", "alibi", "--position", "alibi:two_sided", "--window", "3,none", "--softcap", "9/2", "--no-causal")
    assert ran.status == 0, ran.stderr
    assert "two sided" in ran.stdout
    assert run("walk", "alibi", "--position", "rotary:triples=3/4/5").status == 0


def test_a_field_that_needs_an_input_says_which(refused) -> None:
    assert "needs input 'w_s'" in refused("walk", "E0", "--score", "general")
    assert "kv_heads must divide heads" in refused("walk", "decoder-step", "--kv-heads", "3")


@pytest.mark.deep
def test_fields_that_were_changed_are_in_the_command() -> None:
    made = walk("alibi", position=Alibi(two_sided=True), causal=False, window=(2, None), scale=Fraction(1, 3))
    assert made.command.startswith("symattn walk alibi ")
    for words in ("--no-causal", "--position 'Alibi(two_sided=True)'", "--window 2,none", "--scale 1/3"):
        assert words in made.command
    assert examples.load("alibi").attention.causal
