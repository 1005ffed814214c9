"""``symattn verify`` with variants: options for fields, attention of models, and the command that a report gives."""

from __future__ import annotations

import shlex
from pathlib import Path
from textwrap import dedent

import pytest

from symattn import Attention
from symattn.attention.positions.fields import Rotary
from symattn.attention.presets import PRESETS, small
from symattn.attention.spelling import read, spelled
from symattn.errors import InputError
from symattn_cli.main import main

GROUPED = """
    import numpy as np

    def attention(q, k, v):
        k, v = (np.repeat(x, q.shape[-3] // k.shape[-3], axis=-3) for x in (k, v))
        s = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
        n_q, n_k = s.shape[-2:]
        s = np.where(np.tri(n_q, n_k, n_k - n_q, dtype=bool), s, np.float32(-np.inf))
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v
"""


def _verify(source: str, *options: str) -> int:
    Path("attn.py").write_text(dedent(source), encoding="utf-8")
    return int(main(["verify", "attn.py:attention", "--examples", "2", "--budget", "60", *options]))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.deep
def test_the_attention_of_a_model_with_other_fields(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert _verify(GROUPED, "--like", "mistral", "--heads", "4", "--without", "position", "--kv-heads", "2") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Attention(causal=True, window=4096, heads=4, kv_heads=2)" in out
    assert "No input is longer than the window of 4096 keys" in out
    told = out[out.index("symattn verify attn.py") :]
    assert "--like mistral --heads 4 --kv-heads 2 --without position" in told
    assert main(shlex.split(told)[1:]) == 0


@pytest.mark.deep
def test_other_heads_are_a_fault(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    turned = GROUPED.replace("np.repeat(x, q.shape[-3] // k.shape[-3], axis=-3)", "np.tile(x, (2, 1, 1))")
    assert _verify(turned, "--heads", "4", "--kv-heads", "2", "--causal") == 1
    assert "query head t reads head t mod kv_heads" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--like", "nosuch"], "no preset is called 'nosuch'"),
        (["--position", "nosuch"], "'nosuch' is none of rotary, alibi"),
        (["--position", "Rotary(base=0)"], "base is 0"),
        (["--position", "__import__('os')"], "is none of none"),
        (["--window", "x"], "--window is a whole number, a list or none, not 'x'"),
        (["--heads", "3", "--kv-heads", "2"], "kv_heads must divide heads"),
        (["--softcap", "0"], "softcap"),
        (["--sink", "given"], "sink"),
    ],
)
def test_wrong_usage(here: None, capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    assert _verify(GROUPED, *options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", PRESETS)
def test_few_heads_share_as_before(name: str) -> None:
    whole, (few, words) = PRESETS[name].spec, small(name)
    assert few.heads // few.key_heads == whole.heads // whole.key_heads
    assert few.heads <= 16
    assert (few.heads & (few.heads - 1) == 0) == (whole.heads & (whole.heads - 1) == 0)
    assert bool(words) == (few != whole)
    assert small(name, heads=whole.heads, kv_heads=whole.kv_heads) == (whole, "")


@pytest.mark.parametrize("name", PRESETS)
def test_positions_are_spelt_and_read(name: str) -> None:
    for value in (PRESETS[name].spec.position, PRESETS[name].spec.latent, None, Rotary(triples=((3, 4, 5),))):
        assert read(spelled(value), ("rotary", "alibi", "buckets", "latent")) == value


def test_what_is_no_position_is_refused() -> None:
    for text in ("Attention()", "Rotary(1)", "Rotary(base=open('x'))", "Rotary(**{})", "Rotary(", "Latent()"):
        with pytest.raises(InputError):
            read(text, ("rotary",))
    assert Attention(position=read("rotary", ("rotary",))).position == Rotary()


@pytest.mark.parametrize("text", ["rotary:base=100,layout=interleaved", "Rotary(base=100, layout='interleaved')"])
def test_every_command_takes_both_spellings(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["derive", "attention", "--dk", "4", "--tokens", "2", "--position", text, "-f", "json"]) == 0
    assert "rotary:base=100,layout=interleaved" in capsys.readouterr().out
    assert main(["verify", "nosuch.py:f", "--position", text, "--budget", "0"]) == 2
    assert "budget" in capsys.readouterr().err  # the position was read, and what comes later refused
