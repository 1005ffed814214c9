"""Axes of batches and of heads: what is given once for several, or several times for one, goes where it belongs."""

from typing import Any

import numpy as np
import pytest

from symattn.attention.latent import Latent
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.spec import Attention
from symattn.document.errors import InputError

RNG = np.random.default_rng(5)
TABLES = {"half": Rotary(given="tables"), "interleaved": Rotary(given="tables", layout="interleaved")}


def draw(*shape: int) -> Any:
    return RNG.normal(size=shape)


def one_by_one(spec: Attention, batch: tuple[int, ...], own: dict[str, int], arrays: dict[str, Any]) -> Any:
    """Each batch by itself; ``own`` says how many axes of an array are not of batches."""
    wide = {n: np.broadcast_to(x, (*batch, *x.shape[x.ndim - own[n] :])) if n in own else x for n, x in arrays.items()}
    out = [spec(**{n: x[i] if n in own else x for n, x in wide.items()}) for i in np.ndindex(*batch)]
    return np.reshape(out, (*batch, *out[0].shape))


@pytest.mark.parametrize("front", [(2, 2), (2,), (1, 2), ()])
@pytest.mark.parametrize("heads", [1, 2])
def test_tables_and_biases_with_fewer_axes_of_batches(front: tuple[int, ...], heads: int) -> None:
    """Two axes of batches, as long as each other and as the heads, so that a mistaken axis would fit."""
    spec = Attention(heads=heads, bias=True, position=Rotary(given="tables"))
    of_heads = (heads,) if heads > 1 else ()
    arrays = {n: draw(2, 2, *of_heads, m, 4) for n, m in (("q", 3), ("k", 5), ("v", 5))}
    arrays |= {"cos": draw(*front, 5, 2), "sin": draw(*front, 5, 2), "bias": draw(*front, 3, 5)}
    own = dict.fromkeys("qkv", 2 + len(of_heads)) | dict.fromkeys(("cos", "sin", "bias"), 2)
    np.testing.assert_allclose(spec(**arrays), one_by_one(spec, (2, 2), own, arrays), rtol=1e-12)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("layout", TABLES)
@pytest.mark.parametrize("width", [4, 6])
def test_tables_with_more_axes_of_batches_than_keys(layout: str, heads: int, width: int) -> None:
    spec = Attention(heads=heads, position=TABLES[layout])
    of_heads = (heads,) if heads > 1 else ()
    arrays = {"q": draw(2, *of_heads, 3, width), "k": draw(*of_heads, 5, width), "v": draw(*of_heads, 5, 2)}
    arrays |= {"cos": draw(2, 5, 2), "sin": draw(2, 5, 2)}
    own = dict.fromkeys("qkv", 2 + len(of_heads)) | dict.fromkeys(("cos", "sin"), 2)
    np.testing.assert_allclose(spec(**arrays), one_by_one(spec, (2,), own, arrays), rtol=1e-12)


@pytest.mark.parametrize("absorbed", [True, False])
@pytest.mark.parametrize("heads", [1, 2])
def test_positions_with_more_axes_of_batches_than_the_tokens_of_a_latent(absorbed: bool, heads: int) -> None:
    """As many batches as heads: positions of batches must not be taken for those of heads."""
    spec = Attention(heads=heads, latent=Latent(absorbed=absorbed), position=Rotary(given="positions"))
    arrays = {"x": draw(2, 3, 5), "y": draw(4, 5), "w_q": draw(5, heads * 5), "w_dkv": draw(5, 3)}
    arrays |= {"w_uk": draw(3, heads * 3), "w_uv": draw(3, heads * 2), "w_kr": draw(5, 2)}
    arrays["positions"] = np.array([[0, 1, 2, 3], [5, 1, 0, 2]])
    own = {"x": 2, "y": 2, "positions": 1}
    np.testing.assert_allclose(spec(**arrays), one_by_one(spec, (2,), own, arrays), rtol=1e-12)


def test_of_values_alone_batches_are_no_batches_of_masks() -> None:
    """With heads an axis in front of a mask is one of heads where the scores have no batches."""
    spec, mask = Attention(heads=2, mask="boolean"), RNG.random((2, 3, 5)) < 0.6
    q, k, v = draw(2, 3, 4), draw(2, 5, 4), draw(2, 2, 5, 1)
    want = np.stack([spec(q, k, values, mask=mask) for values in v])
    np.testing.assert_allclose(spec(q, k, v, mask=mask), want, rtol=1e-12)
    documents = Attention(heads=2, documents=True)
    with pytest.raises(InputError, match=r"doc_q has shape \(2, 3\); it needs none before the last"):
        documents(q, k, v, doc_q=np.zeros((2, 3), int), doc_k=np.zeros((2, 5), int))
