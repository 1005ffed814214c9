"""Walks and claims as documents: their commands make them again, and they compile."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from symattn import Document, claim, printing, walk
from symattn.derivations import examples
from tests.document.render.test_latex_compiles import overfull, together

THAN = ("word-vectors-before:king", "word-vectors-before:queen")
MADE: dict[str, Callable[[], Document]] = {
    **{name: lambda name=name: walk(name, why=True, all=True) for name in ("E1", "E0x", "decoder-step")},
    "latents": lambda: walk("latent", latent="absorbed"),
    "fields": lambda: walk("alibi", position={"alibi": {"two_sided": True}}, causal=False, window=(2, None)),
    "nan": lambda: walk("E1", dtype="float16", stabilised=False, all=True, causal=True),
    "step": lambda: walk("E1", step=5, why=True, rounding="nearest"),
    "query": lambda: walk("E0x", query=2, dtype="bfloat16", scale="1/3"),
    "undefined": lambda: walk("E0x", causal=True, alignment="top-left", fully_masked="nan"),
    "show": lambda: examples.show("E1"),
    "weights": lambda: claim("weights", *["1/2", "-1/2", "1"]),
    "similarity": lambda: claim("similarity", "word-vectors:king", "word-vectors:queen"),
    "closer": lambda: claim("closer", "word-vectors:king", "word-vectors:queen", than=THAN),
    "equal": lambda: claim("equal", "x**2", "x"),
    "undecided": lambda: claim("equal", "log(x*y)", "log(x)+log(y)"),
    "shapes": lambda: claim("equal", "[[1, 2]]", "[[1], [2]]"),
}


@pytest.mark.parametrize("name", MADE)
def test_the_command_makes_it_again(name: str, run) -> None:
    document = MADE[name]()
    program, *arguments = shlex.split(document.command)
    assert program == "symattn"
    assert run(*arguments, "-f", "json").stdout == printing.render(document, "json")


@pytest.mark.parametrize("name", MADE)
def test_text_fits_a_terminal(name: str) -> None:
    lines = printing.render(MADE[name](), "text").splitlines()
    assert [line for line in lines[:-2] if len(line) > 80 and not line.startswith("    ")] == []


@pytest.mark.latex
def test_every_walk_and_claim_compiles(tmp_path: Path) -> None:
    every = MADE | {name: lambda name=name: walk(name, why=True, all=True) for name in examples.NAMES}
    assert overfull(together(((name, make()) for name, make in every.items()), tmp_path)) == []
