"""Biases by position in tiny models of Transformers: right ones pass, wrong slopes and buckets are named."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from symattn import Buckets
from symattn.models.auditing import promises
from tests.attention.by_loops_positions import t5
from tests.models.auditing.families import built, decoding, drawn, inputs, made

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from symattn import audit  # noqa: E402

pytestmark = pytest.mark.transformers


def shifted(own: Any, by: int) -> Any:
    """T5's rule for buckets, of distances that are off."""
    return staticmethod(lambda ahead, bidirectional=True, **more: own(ahead + by, bidirectional, **more))


_ALIBI, _BUCKETS = "it is not ALiBi's", "it is not that of the buckets of the table"
WRONG = [
    ("bloom", "_get_alibi_slopes", lambda own: lambda *a: own(*a).flip(0), _ALIBI),
    ("bloom", "_get_alibi_slopes", lambda own: lambda *a: 0 * own(*a), "it is left out"),
    ("mpt", "build_mpt_alibi_tensor", lambda own: lambda *a, **k: 1.001 * own(*a, **k), _ALIBI),
    ("t5", "T5Attention._relative_position_bucket", lambda own: shifted(own, 1), _BUCKETS),
    ("t5", "T5Attention._relative_position_bucket", lambda own: shifted(own, -1), _BUCKETS),
]


@pytest.mark.parametrize(("name", "place", "change", "words"), WRONG)
def test_a_wrong_bias_is_named(name: str, place: str, change: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner: Any = import_module(f"transformers.models.{name}.modeling_{name}")
    *path, last = place.split(".")
    for part in path:
        owner = getattr(owner, part)
    monkeypatch.setattr(owner, last, change(getattr(owner, last)))
    model = made(name, torch.float32)
    with torch.no_grad(), audit(model) as report:
        model(**inputs(name, torch.float32, "left"))
    asked = {f.asked for f in report.findings if "EncDec" not in f.layer}
    assert asked == {(f"the bias by position is wrong: {words}",)}
    assert all(f.certified for f in report.findings if f.asked)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("padding", "heads"), [("none", 4), ("left", 6), ("right", 4)])
@pytest.mark.parametrize("name", ["bloom", "mpt", "t5"])
def test_right_biases_pass(name: str, padding: str, heads: int, dtype: Any) -> None:
    fields = {
        "bloom": {"n_head": heads, "hidden_size": 8 * heads},
        "mpt": {"n_heads": heads, "d_model": 8 * heads},
        "t5": {"num_heads": heads, "decoder_start_token_id": 0},
    }
    model = drawn(built(name, **fields[name]), dtype, "sdpa" if name == "t5" else "eager")
    given = inputs(name, dtype, padding, 40)
    with torch.no_grad(), audit(model) as report:
        if name == "t5":
            model.generate(given["input_ids"], attention_mask=given["attention_mask"], max_new_tokens=3)
        else:
            decoding(model, given)()
    assert {f.verdict for f in report.findings} == {"pass"}


def test_a_bias_that_cannot_be_computed_is_not_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "_find_bias_bucket_table", lambda *_: None)
    for name in ("t5", "deberta-v2"):
        model = made(name, torch.float32)
        with torch.no_grad(), audit(model) as report:
            model(**inputs(name, torch.float32))
        biased = [f for f in report.findings if "EncDec" not in f.layer]
        assert all("the bias by position: it is taken as received" in f.open for f in biased)
        assert {f.state for f in biased} == {"pass"}


def test_buckets_enclose_those_of_the_definition() -> None:
    ahead = np.arange(-3000, 3000)[None]
    for place in (Buckets(), Buckets(bidirectional=False), Buckets(number=10, max_distance=2000)):
        right = np.array([[t5(place, int(a)) for a in ahead[0]]])
        large, small = (promises._bucket_rounded_distances(place, ahead, way) for way in (1, -1))
        assert ((right == large) | (right == small)).all()
        assert (large != small).sum() < 20


def test_whole_layers_of_an_encoder_and_a_decoder_are_not_described() -> None:
    model = made("t5", torch.float32)
    with torch.no_grad(), audit(model, layers=True) as report:
        model(**inputs("t5", torch.float32))
    assert {f.state for f in report.layers} == {"cannot tell"}
    assert report.layers[0].verdict.endswith("whole layers of models of an encoder and a decoder are not described")
