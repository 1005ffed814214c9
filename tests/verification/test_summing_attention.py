"""The sum of attention over its keys, through the function alone: kernels of known order, stored scores, refusals."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import symattn
from cli.main import main
from symattn import Alibi, Attention, Domain
from symattn.arrays.precision import Precision
from symattn.bounds.inputs import Maker
from symattn.document import schemas
from symattn.document.codec import record
from symattn.document.errors import InputError
from symattn.programs.target import target
from symattn.programs.verifying import requested
from symattn.verification.summing.summed_attention import StoredScores, scores
from tests.verification.kernels import HALF, kernel
from tests.verification.sums import ORDERS, Adding, lanes, loop, tiles, tree_of
from tests.verification.test_summing import compensated

Array = np.ndarray
told = partial(symattn.arithmetic, dtype="float32")


def attention(adding: Adding, causal: bool = False, sink: float = 0.0) -> Any:
    """Attention in float32 that adds over keys in an order of its own."""

    def function(q: Array, k: Array, v: Array) -> Array:
        s = q @ k.mT / np.sqrt(q.shape[-1]).astype(q.dtype)
        if causal:
            s = np.where(np.tri(*s.shape, s.shape[1] - s.shape[0], dtype=bool), s, -np.inf)
        e = np.exp(s - s.max(axis=-1, keepdims=True)).astype(q.dtype)
        total = e.sum(axis=-1, keepdims=True) + sink
        return np.asarray(adding([e[:, i : i + 1] * v[i] for i in range(len(v))]) / total, dtype=q.dtype)

    return function


@pytest.mark.parametrize("name", ["tiles of 32 in 2 lanes", *(pytest.param(n, marks=pytest.mark.deep) for n in ORDERS)])
def test_an_order_is_recovered_through_attention(name: str) -> None:
    for n in (64, 75):
        assert told(attention(ORDERS[name]), keys=n).order.tree == tree_of(ORDERS[name], n)


def test_causal_and_windows() -> None:
    """The last query sees all keys, or those of its window."""
    assert told(attention(tiles(16), causal=True), Attention(causal=True), keys=64).order.tree == tree_of(tiles(16), 64)

    def window(q: Array, k: Array, v: Array) -> Array:
        seen = np.tri(len(q), len(k), dtype=bool) & ~np.tri(len(q), len(k), -40, dtype=bool)
        e = np.where(seen, np.exp(q @ k.T / np.sqrt(q.shape[-1])), 0).astype(q.dtype)
        return np.asarray(loop([e[:, i : i + 1] * v[i] for i in range(len(v))]) / e.sum(1, keepdims=True), q.dtype)

    found = told(window, Attention(causal=True, window=40), keys=64).order
    assert (found.n, found.tree) == (40, tree_of(loop, 40))


def test_a_window_that_takes_no_more_keys_tells_no_parts() -> None:
    """With twice as many keys the last query sees as many as before."""

    def window(q: Array, k: Array, v: Array) -> Array:
        seen = np.tri(len(q), len(k), dtype=bool) & ~np.tri(len(q), len(k), -32, dtype=bool)
        e = np.where(seen, np.exp(q @ k.T / np.sqrt(q.shape[-1])), 0).astype(q.dtype)
        terms = [e[:, i : i + 1] * v[i] for i in range(len(v))]
        return np.asarray(tiles(16)(terms) / e.sum(1, keepdims=True), q.dtype)

    found = told(window, Attention(causal=True, window=32), keys=64).order
    assert (found.n, found.tree) == (32, tree_of(tiles(16), 32))
    assert found.words[0].startswith("32 keys, the one at place 32 counted as 0, are added by tiles of 16")
    assert record(found)["first"] == 32
    assert (found.longer, found.split, "With" in " ".join(found.words)) == (0, 0, False)


def broken(q: Array, k: Array, v: Array) -> Array:
    if not q.any():
        raise ValueError("queries are zero")
    return attention(loop)(q, k, v)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("function", "spec", "why"),
    [
        (broken, Attention(), "the function refuses these inputs (ValueError: queries are zero"),
        (attention(compensated), Attention(), "no order of adding loses what this sum loses"),
        (attention(loop), Attention(causal=True, position=Alibi()), "with queries of zeros the weights of keys differ"),
        (lambda q, k, v: attention(loop)(q, k, v) * np.nan, Attention(), "give NaN or infinity"),
        (lambda q, k, v: attention(loop)(q, k, v) * 0, Attention(), "do not add up to their number"),
    ],
    ids=["refuses", "compensated", "slopes", "NaN", "zeros"],
)
def test_what_cannot_be_told(function: Any, spec: Attention, why: str) -> None:
    found = told(function, spec)
    assert found.order.tree is None
    assert why in found.order.words[0]
    assert json.loads(found.json())["verdict"] == "undecided"


def stored(dtype: str, domain: Domain | None = None, **kinds: Any) -> StoredScores:
    def function(q: Array, k: Array, v: Array) -> Array:
        return kernel(q, k, v, dtype, causal=False, **kinds)

    runner = target(function, requested(Attention(), dtype=dtype))
    return scores(runner, Maker(Attention(), runner.convention, Precision.of(dtype), domain or Domain()), 16)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("stores", ["", "s", "w", "q", "p", "sw"])
def test_stored_scores(stores: str, dtype: str) -> None:
    found = stored(dtype, stores=stores)
    assert found.stored == ("s" in stores)
    assert found.words.startswith(f"Scores are {'' if found.stored else 'not '}")
    assert ("before the largest is subtracted" in found.words) == (not found.stored)


def test_scores_of_which_nothing_is_told() -> None:
    wrong = stored("bfloat16", scale=1.2)
    assert (wrong.stored, "neither those of scores that differ" in wrong.words) == (None, True)


def test_floats_hold_both_scores() -> None:
    found = told(attention(loop), keys=16)
    assert found.scores.words == "Whether scores are stored cannot be determined from two keys: float32 holds both."


def test_sizes_that_are_not_promised() -> None:
    for domain in (Domain(max_tokens=100), Domain(max_width=4)):
        assert told(attention(loop), domain=domain, keys=64).order.tree == tree_of(loop, 64)
    assert "within what the function takes" in told(attention(loop), domain=Domain(max_tokens=100)).order.why
    assert "a query has one entry" in stored("bfloat16", Domain(max_width=1)).why
    with pytest.raises(InputError, match="keys must be an integer from 4 to 512, got 3"):
        told(attention(loop), keys=3)


@pytest.mark.deep
def test_the_command_tells_the_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.joinpath("k.py").write_text(
        "from tests.verification.sums import lanes\nfrom tests.verification.test_summing_attention import attention\n"
        "two = attention(lanes(2))\n"
    )
    command = ["arithmetic", f"{tmp_path / 'k.py'}:two", "--dtype", "float32", "--keys", "32"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "32 keys are added in 2 lanes, even and odd, which are added in order" in " ".join(shown.split())
    assert "      (0+2+…+30)\n    + (1+3+…+31)\n" in shown
    assert "--dtype float32" in shown.splitlines()[-1]


def test_the_order_as_json() -> None:
    document = json.loads(told(attention(lanes(2)), keys=32).json())
    schema = jsonschema.Draft202012Validator(json.loads(schemas.text("document")))
    schema.validate(document)
    found = document.pop("order")
    assert not schema.is_valid(document)
    assert (found["reading"]["way"], found["digits"][0]["digits"], len(found["nodes"])) == ("lanes", 24, 31)
