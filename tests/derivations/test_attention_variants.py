"""``derive attention`` for every variant: entries in letters, checks that say no, and commands that make it again."""

import shlex
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from symattn import (
    Attention,
    Document,
    Grade,
    LinearScaling,
    LongRopeScaling,
    Rotary,
    Undecided,
    YarnScaling,
    derivations,
    derive,
    kind,
    printing,
)
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.variants import VARIANTS
from symattn.derivations.attention import expressions as attention_expressions
from symattn.derivations.attention.inputs import read_request
from symattn.derivations.walks import walk_entries
from symattn.proof.relations.comparing import FalseStep
from symattn_cli.main import main
from tests.derivations.asking import asked
from tests.document.render.test_latex_compiles import together
from tests.lanes import one_in
from tests.refusals import refuses

Symbolic = kind("symbolic")

#: Which score is larger decides, and letters have no order: numbers are tried, and not each order of the scores is
#: decided. So that step is searched, and so is the formula of the output, which is no better than its weakest step.
COMPARED = {"ReLU", "sparsemax", "entmax"}


@cache
def derived(name: str) -> Document:
    return derive("attention", **asked(name))


def sections(document: Document) -> dict[str, printing.Steps]:
    """The steps of each section by its title."""
    found, title = {}, ""
    for block in document.blocks:
        if isinstance(block, printing.Heading):
            title = str(block.title[0])
        if isinstance(block, printing.Steps):
            found[title] = block
    return found


@pytest.mark.parametrize("name", one_in(10, VARIANTS))
def test_every_step_is_checked(name: str) -> None:
    document = derived(name)
    for title, block in sections(document).items():
        assert any(step.evidence for step in block.items), title
    evidence = list(document.evidence())
    weak = [e for e in evidence if e.grade not in (Grade.CHECKED, Grade.PROVED)]
    assert {e.grade for e in weak} == ({Grade.SEARCHED} if name in COMPARED else set())
    if name in COMPARED:
        of_the_step, of_the_result = weak
        assert of_the_step.where.startswith("one example of exact numbers, ")
        assert of_the_result is evidence[-1]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_step_has_its_section(name: str) -> None:
    made = read_request(**asked(name))
    assert (
        len(sections(derived(name)))
        >= len({step.name for step in made.spec.pipeline(made.names)} - {"k_r_rotated"}) - 1
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_the_text_fits(name: str) -> None:
    lines = printing.render(derived(name), "text").splitlines()
    assert [line for line in lines[:-2] if len(line) > 88] == []


@pytest.mark.deep
@pytest.mark.parametrize(
    "name", one_in(3, ["masks combined", "latent", "rotary, latent", "decoder step", "T5 buckets", "entmax"])
)
def test_the_command_makes_it_again(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = derived(name)
    program, *arguments = shlex.split(document.command)
    assert program == "symattn"
    assert main([*arguments, "-f", "json"]) == (3 if name in COMPARED else 0)
    assert capsys.readouterr().out == printing.render(document, "json")
    assert main([*arguments, "-f", "json", "--accept", "searched"]) == 0


def spoilt(name: str, step: str, spoil: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Derive a variant whose step gives something else."""
    honest = Attention.pipeline

    def wrong(spec: Any, given: frozenset[str]) -> Any:
        return tuple(
            replace(s, run=lambda *a, run=s.run: spoil(run(*a))) if s.name == step else s for s in honest(spec, given)
        )

    monkeypatch.setattr(Attention, "pipeline", wrong)
    derive("attention", **asked(name))


SPOILS: dict[str, Callable[[Any], Any]] = {
    "twice": lambda x: x + x,
    "reversed": lambda x: x.xp.flip(x, axis=-2) if x.ndim > 1 else x.xp.flip(x, axis=0),
}
STEPS = [
    ("rotary, half", "q_rotated"), ("rotary, half", "cos"), ("rotary, interleaved", "k_rotated"),
    ("ALiBi", "positioned"),
    ("T5 buckets", "positioned"), ("Shaw", "positioned"), ("Shaw", "output"), ("DeBERTa", "positioned"),
    ("Transformer-XL", "positioned"), ("latent", "k_n"), ("latent, absorbed", "q_absorbed"), ("latent", "q_joined"),
    ("RMS norm of q and k", "q_normed"), ("softcap", "capped"), ("bias", "biased"), ("sink", "weights"),
    ("sigmoid", "weights"), ("dropout", "dropped"), ("log-sum-exp returned", "lse"), ("grouped-query", "k_shared"),
    ("packed projections", "w_k"), ("additive", "scores"), ("cosine", "scores"), ("distance", "scores"),
    ("entmax", "weights"), ("ReLU", "weights"), ("sliding window", "masked"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "name", "step"), [(i, *pair) for i, pair in enumerate(STEPS)], ids=str)
def test_a_wrong_step_is_not_told(place: int, name: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((FalseStep, Undecided)):
        spoilt(name, step, SPOILS["twice" if place % 2 else "reversed"], monkeypatch)


def test_a_step_whose_formulas_leave_entries_out_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_entries, "entry_formulas", lambda *_: [])
    with pytest.raises(FalseStep, match="do not give every entry"):
        derive("attention", tokens=2, softcap=3)


SCALED: list[tuple[Any, str]] = [
    (LinearScaling(factor=4), "cos(Θ) = cos(p ω_ℓ)"),
    (YarnScaling(factor=4, length=8), "cos(Θ) = (1 + log(4)/10) cos(p ω_ℓ)"),
    (YarnScaling(factor=4, length=8, weight=2, shared=2), "cos(Θ) = cos(p ω_ℓ)"),
    (LongRopeScaling(short=(1, 2), long=(2, 3), factor=4, length=8), "cos(Θ) = √(1 + log(4)/log(8))·cos(p ω_ℓ)"),
]


@pytest.mark.parametrize(("scaling", "shown"), SCALED, ids=str)
def test_scaled_frequencies_have_their_factor(scaling: Any, shown: str) -> None:
    document = derive("attention", position=Rotary(scaling=scaling), dk=4, tokens=2)
    assert {e.grade for e in document.evidence()} == {Grade.CHECKED, Grade.PROVED}
    assert shown in {
        " ".join(printing.text(step.formula).split()) for b in sections(document).values() for step in b.items
    }


def test_numbers_say_no() -> None:
    made = read_request(tokens=2, keys=3, normaliser="sparsemax")
    step = next(s for s in made.spec.pipeline(made.names) if s.name == "weights")
    assert attention_expressions.agrees_on_numbers(made, step)
    other = read_request(tokens=2, keys=3, normaliser="entmax")
    assert not attention_expressions.agrees_on_numbers(other, step)


def test_what_is_too_large_is_cut_and_said() -> None:
    document = derive("attention", tokens=4, keys=5, dk=6)
    notes = [block for block in document.blocks if isinstance(block, printing.Note)]
    text = " ".join(printing.render(document, "text").split())
    assert notes
    assert "The entries of S, O are checked, and too many or too long to be written out." in text
    assert "Σ_{l=1}^{d_k} q_il k_jl" in text


def test_sizes_and_inputs_follow_the_one_table() -> None:
    made = read_request(
        latent="queries,norm=rms", heads=2, dk=3, tokens=2, size="l=4,l_q=5,d_r=2,d_n=1", position="rotary"
    )
    assert made.shapes() == {
        "x": (2, 6), "w_o": (6, 6), "w_dkv": (6, 4), "w_uk": (4, 2), "w_uv": (4, 6), "w_kr": (6, 2), "w_dq": (6, 5),
        "w_uq": (5, 6), "g_ckv": (4,), "g_cq": (5,),
    }  # fmt: skip
    packed = read_request(packed=True, heads=2, biases=True, tokens=2)
    assert packed.shapes()["w_in"] == (4, 12)
    assert "b_in" in packed.names


BAD: list[tuple[dict[str, Any], str]] = [
    ({"kv_heads": 3, "heads": 2}, "kv_heads must divide heads"),
    ({"position": "rotary", "dk": 3}, "even number"),
    ({"position": "rotari"}, "Did you mean 'rotary'"),
    ({"size": "q=3"}, "'q=3' is not a letter of a size"),
    ({"size": "l=99"}, "from 1 to 16"),
    ({"latent": "absorbed", "size": "d_r=2,d_n=0"}, "size: "),
    ({"latent": "absorbed", "dk": 1}, "a latent needs d_n"),
    ({"heads": 9}, "from 1 to"),
    ({"dropout": 2}, "dropout must be a number of at least 0 and below 1"),
    ({"causl": True}, "has no parameter causl"),
]


@pytest.mark.parametrize(("parameters", "words"), BAD, ids=str)
def test_bad_requests_are_one_line(parameters: dict[str, Any], words: str) -> None:
    refuses(derive, "attention", says=words, **parameters)


def test_every_field_is_a_parameter() -> None:
    assert {field.name for field in fields(VARIANTS["dot"].spec)} < set(derivations.names()["attention"].parameters)


def test_letters_of_arrays_are_told_apart() -> None:
    stems = [name.replace("_", "") for name in ARRAYS]
    assert len(set(stems)) == len(stems)


def test_an_agreement_with_letters_in_the_wrong_place() -> None:
    made = read_request(tokens=2, keys=3, position="alibi:slopes=given,two_sided=true", heads=1)
    inputs = made.inputs()
    steps = {s.name: s for s in made.spec.pipeline(inputs)}
    given = {"scaled": Symbolic.letters("scaled", 2, 3), "slopes": inputs["slopes"]}
    found = attention_expressions.run(steps["positioned"], given)
    check = partial(attention_expressions.agrees, made, steps["positioned"], given)
    assert check(found)
    assert not check(Symbolic(np.flip(found.entries, axis=-1)))


COMPILED = (
    "additive", "cosine", "LayerNorm of q and k", "truncated", "masks combined", "packed documents", "sink", "entmax",
    "log-sum-exp returned", "dropout", "base 2", "packed projections", "grouped-query", "latent", "rotary, latent",
    "rotary, true frequencies", "ALiBi", "T5 buckets", "Shaw", "Transformer-XL", "DeBERTa", "decoder step",
)  # fmt: skip


@pytest.mark.latex
def test_every_variant_compiles(tmp_path: Path) -> None:
    assert "Overfull \\hbox" not in together(((name, derived(name)) for name in COMPILED), tmp_path)
