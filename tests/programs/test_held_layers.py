"""torch's layer of an encoder, verified with other weights in place of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from symattn import Attention, Block, InputError, LayerNorm, Precision, verify
from symattn.programs import definitions
from symattn_cli.main import main
from tests.programs.test_modules import requested

pytestmark = pytest.mark.torch
SIZES = {"d_model": 8, "nhead": 2, "dim_feedforward": 12}


def spec(**fields: Any) -> Block:
    told = {"attention": Attention(heads=2), "norm": "layer", "order": "post", "activation": "relu"}
    return Block(**{**told, **fields})


class Unscaled(nn.TransformerEncoderLayer):
    """The mistake: attention is added twice to the residual stream."""

    def _sa_block(self, *given: Any, **told: Any) -> Any:
        return 2 * super()._sa_block(*given, **told)


CASES: list[tuple[Any, Block, bool]] = [
    (nn.TransformerEncoderLayer(**SIZES, batch_first=True), spec(), True),
    (nn.TransformerEncoderLayer(**SIZES), spec(attention=Attention(heads=2, causal=True)), True),
    (nn.TransformerEncoderLayer(**SIZES, norm_first=True, activation="gelu", bias=False),
     spec(order="pre", activation="gelu"), True),
    (nn.TransformerEncoderLayer(**SIZES, norm_first=True), spec(), False),
    (nn.TransformerEncoderLayer(**SIZES, activation="gelu"), spec(), False),
    (Unscaled(**SIZES, norm_first=True), spec(order="pre"), False),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "wanted", "right"), CASES)
def test_a_small_call(layer: Any, wanted: Block, right: bool) -> None:
    before = {name: p.clone() for name, p in layer.named_parameters()}
    found = definitions.target(layer, requested(wanted, dtype="float32"), "layer")
    assert {name: found.subject.shapes[0][name] for name in ("m", "f", "d_k", "d_v")} == {
        "m": 8, "f": 12, "d_k": 4, "d_v": 4,
    }  # fmt: skip
    assert "other weights in place of its own" in " ".join(found.convention.notes)
    assert all(torch.equal(p, before[name]) for name, p in layer.named_parameters())
    rng = np.random.default_rng(0)
    whole_numbers = found.subject.families["integer"](rng)
    names = [i.name for i in found.subject.inputs if i.name in found.convention.inputs]
    inputs = found.subject.draw(names, found.subject.shapes[1], whole_numbers, Precision.of("float32"), rng)
    got, exact = found.run(inputs).output, found.subject.run(found.subject.ways[0], inputs)[0]
    assert (abs(got - exact).max() < 1e-4) == right


@pytest.mark.deep
def test_what_is_wrong_is_named() -> None:
    found = verify(CASES[3][0], CASES[3][1], examples=5)
    assert [fault.message for fault in found.faults] == ["the norms stand before each part, not after each residual"]
    assert verify(CASES[0][0], CASES[0][1], examples=5).verdict.value == "no fault"


@pytest.mark.parametrize(
    ("layer", "wanted", "words"),
    [
        (nn.TransformerDecoderLayer(**SIZES), spec(), "is a decoder's layer"),
        (nn.TransformerEncoderLayer(**SIZES), spec(attention=Attention(heads=4)), "say --heads 2"),
        (nn.TransformerEncoderLayer(**SIZES), spec(norm="rms"), "norm='layer'"),
        (nn.TransformerEncoderLayer(**SIZES), spec(attention=Attention(heads=2, window=3, causal=True)), "causal or"),
    ],
)
def test_what_it_does_not_compute_is_refused(layer: Any, wanted: Block, words: str) -> None:
    with pytest.raises(InputError, match=words):
        definitions.target(layer, requested(wanted, dtype="float32"), "layer")


def test_it_is_no_norm() -> None:
    with pytest.raises(InputError, match="not a gain or bias of a norm"):
        definitions.target(CASES[0][0], requested(LayerNorm(), dtype="float32"), "layer")


@pytest.mark.deep
def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "from torch import nn\nlayer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)\n"
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    words = ["verify", f"{tmp_path / 'own.py'}:layer", "--heads", "2", "--examples", "3", "--definition"]
    assert main([*words, "Block(activation='relu', order='post')"]) == 0
    assert "the biases of its attention are 0, as the block has none" in " ".join(capsys.readouterr().out.split())
    assert main([*words, "Block(activation='relu', order='pre')"]) == 1
