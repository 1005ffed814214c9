"""Orders of sums beside attention: sums, matrix products and layer norms."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symattn
from cli.main import main
from symattn import InputError, LayerNorm, RMSNorm, summation
from tests.verification.sums import ORDERS, Adding, lanes, loop, pairs, tiles, tree_of
from tests.verification.test_summing import compensated

Array = np.ndarray


def of_rows(adding: Adding) -> Any:
    return lambda x: np.asarray(adding(list(x.T)))


def of_product(adding: Adding) -> Any:
    return lambda a, b: np.asarray(adding([a[:, i : i + 1] * b[i] for i in range(len(b))]))


@pytest.mark.parametrize("name", ORDERS)
def test_sums_and_products(name: str) -> None:
    tree = tree_of(ORDERS[name], 75)
    assert summation(of_rows(ORDERS[name]), terms=75).tree == tree
    assert summation(of_product(ORDERS[name]), "product", terms=75).tree == tree


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
        ({"framework": "foo"}, "framework is 'foo'; hint: numpy or torch"),
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
        "from tests.verification.sums import loop\nfrom tests.verification.test_summing_others import norm\n"
        "one = norm(loop)\n"
    )
    command = ["arithmetic", f"{tmp_path / 'k.py'}:one", "--dtype", "float32", "--definition", "LayerNorm"]
    command += ["--keys", "16"]
    assert main([*command, "--draw", str(tmp_path / "a.svg")]) == 0
    assert "16 entries of a row are added in order" in tmp_path.joinpath("a.svg").read_text(encoding="utf-8")
    assert "16 entries of a row are added in order" in " ".join(capsys.readouterr().out.split())
    assert main([*command, "--draw", str(tmp_path / "a.txt")]) == 2
    assert "names none of them" in capsys.readouterr().err
