"""``symattn verify`` with variants: options for fields, attention of models, and the command that a report gives."""

import json
import shlex
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Latent, LinearScaling, Report, Rotary, TransformerXL, Verdict, verify
from symattn.attention.codec.field_values import field_of
from symattn.attention.presets import PRESETS
from symattn.document.codec import spelled
from symattn_cli.main import main
from symattn_cli.variants import specified
from tests.refusals import refuses

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
    Path("config.json").write_text(json.dumps(TOLD), encoding="utf-8")


TOLD = {
    "model_type": "gemma2", "hidden_size": 64, "head_dim": 16, "num_attention_heads": 8, "num_key_value_heads": 4,
    "num_hidden_layers": 4, "rope_theta": 10000.0, "sliding_window": 16, "attn_logit_softcapping": None,
    "query_pre_attn_scalar": 16,
}  # fmt: skip


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
def test_a_function_is_held_to_a_layer_of_a_configuration(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert _verify(GROUPED, "--config", "config.json", "--layer", "1", "--without", "position") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "8 heads, 4 of keys and values, are cut to 4 and 2" in out
    told = out[out.index("symattn verify attn.py") :]
    assert "--config config.json --layer 1 --heads 4 --kv-heads 2 --without position" in told
    assert main(shlex.split(told)[1:]) == 0
    capsys.readouterr()
    assert _verify(GROUPED, "--config", "config.json", "--without", "position") == 1  # layer 0 has a window
    assert "window" in " ".join(capsys.readouterr().out.split())


def test_a_trace_keeps_the_heads_of_the_configuration(here: None) -> None:
    told = {"config": "config.json", "layer": 2, "without": ("position",)}
    whole = specified(dict(told), whole=True)
    assert whole.spec == Attention(causal=True, window=16, heads=8, kv_heads=4)
    assert (whole.cut, specified(dict(told)).spec.heads) == ("", 4)


def test_a_bound_of_given_inputs_keeps_the_heads_of_the_configuration(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    q, k, v = (np.random.default_rng(0).standard_normal((h, 3, 8)).astype(np.float32) for h in (8, 4, 4))
    np.savez("qkv.npz", q=q, k=k, v=v)
    assert main(["bound", "--config", "config.json", "--inputs", "qkv.npz", "--without", "position"]) == 0
    assert "heads=8, kv_heads=4" in " ".join(capsys.readouterr().out.split())


@pytest.mark.deep
def test_python_takes_a_configuration(here: None, no_causes: None) -> None:
    def queries(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        return q

    told = verify(queries, config="config.json", layer=3, examples=0).text(columns=200)
    assert "Attention(causal=True, heads=8, kv_heads=4, position=rotary)." in told
    refuses(verify, queries, config="config.json", layer=4, says="there are 4")
    refuses(verify, queries, Attention(), config=TOLD, says="two specifications")
    refuses(verify, queries, layer=1, says="belong to config")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--like", "nosuch"], "unknown model 'nosuch'"),
        (["--like", "glaa"], "unknown model 'glaa'; did you mean gla?"),
        (["--like", "gla", "--causal"], "--like gla has no options of an attention; leave out --causal"),
        (["--config", "nosuch.json"], "nosuch.json cannot be read"),
        (["--config", "config.json", "--layer", "4"], "layer 4 was requested; there are 4"),
        (["--config", "config.json", "--kind", "cross"], "no attention of the kind 'cross'"),
        (["--config", "config.json", "--like", "llama"], "give one of them"),
        (["--layer", "1"], "--layer belongs to --config"),
        (["--position", "nosuch"], "'nosuch' is not one of rotary, alibi"),
        (["--position", "Rotary(base=0)"], "base must be"),
        (["--position", "__import__('os')"], "is not one of Rotary"),
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


def test_few_heads_share_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign verifies models with few heads, unless their numbers are given."""
    made: list[tuple[Attention, tuple[str, ...]]] = []

    def told(target: str, spec: Attention, notes: tuple[str, ...], **_: Any) -> Report:
        made.append((spec, notes))
        return Report(Verdict.NO_FAULT, target, "float32", "all", 1)

    monkeypatch.setattr("symattn.programs.child.verify_target", told)
    of_all = {
        name: f"heads={preset.spec.heads},kv_heads={preset.spec.kv_heads or 'none'}" for name, preset in PRESETS.items()
    }
    specs = [word for name, heads in of_all.items() for word in (f"like={name}", f"like={name},{heads}")]
    words = [part for spec in specs for part in ("--spec", spec)]
    assert main(["campaign", "attn.py:f", *words, "--jobs", "1", "-o", str(tmp_path / "out")]) == 0
    assert len(made) == 2 * len(PRESETS)
    for preset, (few, notes), given in zip(PRESETS.values(), made[::2], made[1::2], strict=True):
        whole = preset.spec
        assert few.heads // few.key_heads == whole.heads // whole.key_heads
        assert few.heads <= 16
        assert (few.heads & (few.heads - 1) == 0) == (whole.heads & (whole.heads - 1) == 0)
        assert bool(notes) == (few != whole)
        assert given == (whole, ())
    by_name = dict(zip(PRESETS, made[::2], strict=True))
    assert by_name["llama"][1] == ("32 heads, 8 of keys and values, are cut to 8 and 2",)


@pytest.mark.parametrize("name", PRESETS)
def test_positions_are_spelt_and_read(name: str) -> None:
    for value in (PRESETS[name].spec.position, PRESETS[name].spec.latent, None, Rotary(triples=((3, 4, 5),))):
        field = "latent" if isinstance(value, Latent) else "position"
        for text in (spelled(value), "none" if value is None else repr(value)):
            assert field_of(Attention, field, text, field) == value


def test_what_is_no_position_is_refused() -> None:
    for text in (
        "Attention()",
        "Rotary(1)",
        "Latent(eps=Fraction(1, 0))",
        "Rotary(base=Fraction(q))",
        "Rotary(base=open('x'))",
        "Rotary(**{})",
        "Rotary(",
        "Latent()",
    ):
        with pytest.raises(InputError):
            field_of(Attention, "position", text, "position")
    assert field_of(Attention, "position", "rotary", "position") == Rotary()
    for printed in (TransformerXL(), Rotary(base=500000.5, scaling=LinearScaling(factor=2))):
        assert field_of(Attention, "position", spelled(printed), "position") == printed


@pytest.mark.deep
@pytest.mark.parametrize("text", ["rotary:base=100,layout=interleaved", "Rotary(base=100, layout='interleaved')"])
def test_every_command_takes_both_spellings(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["derive", "attention", "--dk", "4", "--tokens", "2", "--position", text, "-f", "json"]) == 0
    assert "Rotary(base=100, layout='interleaved')" in capsys.readouterr().out
    assert main(["verify", "nosuch.py:f", "--position", text, "--budget", "0"]) == 2
    assert "budget" in capsys.readouterr().err  # the position was read, and what comes later refused
