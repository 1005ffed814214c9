"""Orders of sums of attention over its keys, of matrix products and of layer norms, by the function alone."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symattn
from cli.main import main
from symattn import Alibi, Attention, Domain, InputError, LayerNorm, Precision, RMSNorm, summation
from symattn.bounds.inputs import Maker
from symattn.document.codec import record
from symattn.programs.target import target
from symattn.programs.verifying import requested
from symattn.verification.summing.summed_attention import scores
from tests.printed import validator
from tests.verification.kernels import HALF, kernel
from tests.verification.sums import ORDERS, Adding, lanes, loop, pairs, tiles, tree_of
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


def stored(dtype: str, domain: Domain | None = None, **kinds: Any) -> Any:
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
    schema = validator("document")
    schema.validate(document)
    found = document.pop("order")
    assert not schema.is_valid(document)
    assert (found["reading"]["way"], found["digits"][0]["digits"], len(found["nodes"])) == ("lanes", 24, 31)


def of_rows(adding: Adding) -> Any:
    return lambda x: np.asarray(adding(list(x.T)))


def of_product(adding: Adding) -> Any:
    return lambda a, b: np.asarray(adding([a[:, i : i + 1] * b[i] for i in range(len(b))]))


@pytest.mark.parametrize("name", ORDERS)
def test_sums_and_products(name: str) -> None:
    tree = tree_of(ORDERS[name], 75)
    assert summation(of_rows(ORDERS[name]), terms=75).tree == tree
    assert summation(of_product(ORDERS[name]), "product", terms=75).tree == tree


@pytest.mark.deep
def test_numpy_adds_in_eight_lanes() -> None:
    """As its source says: blocks of 128 in 8 lanes, and these in pairs; one loop below 8 terms."""
    assert summation(lambda x: x.sum(axis=-1)).tree == tree_of(lanes(8, loop, pairs), 128)
    long = summation(lambda x: x.sum(axis=-1), terms=512)
    assert long.tree == tree_of(tiles(128, lanes(8, loop, pairs), pairs), 512)
    assert long.words[1] == "With 512 and 1024 terms there are tiles of 128."
    assert summation(lambda x: x.sum(axis=-1), terms=7).tree == tree_of(loop, 7)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (of_rows(compensated), "no order of adding loses what this sum loses"),
        (lambda x: x.mean(axis=-1), "do not add up to their number"),
        (lambda x: x.sum(), "gives an output of the shape (), and not (64,)"),
        (lambda x: x.nothing, "refuses these inputs"),
    ],
)
def test_what_is_no_sum(function: Any, why: str) -> None:
    found = summation(function, terms=64)
    assert (found.tree, found.text) == (None, "")
    assert why in found.words[0]


def test_what_cannot_be_asked() -> None:
    for told, words in (
        ({"kind": "mean"}, "hint: sum or product"),
        ({"terms": 3}, "from 4 to 4096"),
        ({"framework": "foo"}, "framework is 'foo'; hint: numpy or torch or jax"),
        ({"dtype": "float8_e4m3fn"}, "hint: bfloat16 or float16 or float32 or float64"),
        ({"dtype": None}, "dtype is None"),
    ):
        with pytest.raises(InputError, match=words):
            summation(np.sum, **told)  # type: ignore[arg-type]


# -- norms -------------------------------------------------------------------------------------------------------------
def norm(adding: Adding) -> Any:
    def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
        mean = (np.asarray(adding(list(np.moveaxis(x, -1, 0)))) / x.dtype.type(x.shape[-1]))[..., None]
        variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
        return np.asarray((x - mean) / np.sqrt(variance + x.dtype.type(1e-5)) * weight + bias)

    return layer_norm


@pytest.mark.parametrize("name", ORDERS)
def test_layer_norms(name: str) -> None:
    for dtype in ("float32", "float64"):
        found = symattn.arithmetic(norm(ORDERS[name]), LayerNorm(), dtype=dtype, keys=64).order
        assert found.tree == tree_of(ORDERS[name], 64), found.words
        assert found.widths is not None
        assert found.widths[1].digits == {"float32": 24, "float64": 53}[dtype]


def test_rows_of_a_few_entries() -> None:
    for keys in (4, 5):
        found = symattn.arithmetic(norm(loop), LayerNorm(), dtype="float32", keys=keys).order
        assert found.tree == tree_of(loop, keys), found.words


def welford(x: Array, weight: Array, bias: Array) -> Array:
    mean, squares = np.zeros_like(x[..., 0]), np.zeros_like(x[..., 0])
    for i in range(x.shape[-1]):
        off = x[..., i] - mean
        mean = mean + off / x.dtype.type(i + 1)
        squares = squares + off * (x[..., i] - mean)
    variance = (squares / x.dtype.type(x.shape[-1]))[..., None]
    return np.asarray((x - mean[..., None]) / np.sqrt(variance + x.dtype.type(1e-5)) * weight + bias)


def test_norms_of_which_nothing_is_told() -> None:
    for function, spec, dtype, why in (
        (welford, LayerNorm(), "float32", "cannot be determined: "),
        (norm(loop), LayerNorm(), "float16", "float16 lacks the range for it"),
        (norm(loop), RMSNorm(), "float32", "squares have one sign, so no two of them cancel"),
    ):
        found = symattn.arithmetic(function, spec, dtype=dtype)  # type: ignore[arg-type]
        assert found.order.tree is None
        assert why in found.order.words[0]
        assert found.document().verdict_word == "undecided"


# -- pictures ----------------------------------------------------------------------------------------------------------
@pytest.mark.deep
def test_the_picture_of_a_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from symattn.verification.summing.drawing import picture

    drawn = picture(summation(of_rows(tiles(16, lanes(2))), terms=48))
    shown = drawn.svg()
    assert drawn.title == "The order in which 48 terms are added"
    assert shown.count("<path") == 2 * 47
    assert [f">{n}</text>" in shown for n in (0, 16, 32)] == [True] * 3
    assert "tiles of 16, added in order" in drawn.description
    with pytest.raises(InputError, match="there is no tree to draw"):
        picture(summation(of_rows(compensated), terms=16))

    tmp_path.joinpath("k.py").write_text(
        "from tests.verification.sums import loop\nfrom tests.verification.test_summing_attention import norm\n"
        "one = norm(loop)\n"
    )
    command = ["arithmetic", f"{tmp_path / 'k.py'}:one", "--dtype", "float32", "--definition", "LayerNorm"]
    command += ["--keys", "16"]
    assert main([*command, "--draw", str(tmp_path / "a.svg")]) == 0
    assert "16 entries of a row are added in order" in tmp_path.joinpath("a.svg").read_text(encoding="utf-8")
    assert "16 entries of a row are added in order" in " ".join(capsys.readouterr().out.split())
    assert main([*command, "--draw", str(tmp_path / "a.txt")]) == 2
    assert "names none of them" in capsys.readouterr().err
