"""Scores, masks and weights are what torch computes, to the rounding errors of the operations.

``flex_attention`` takes a function of score, batch, head, query and key: there the masks are written as its users write
them. What torch has a function of its own for is compared with that. Masks and functions of which each is a variant of
its own are compared in ``test_torch_variants``.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn.attention import scores, softmax
from symattn.attention.spec import Attention
from tests.bounded import bounded

pytestmark = pytest.mark.torch
B, H, G, N_Q, N_K, D = 2, 4, 2, 5, 8, 4
_DRAW = np.random.default_rng(0)
Q, K, V = (_DRAW.normal(size=s) for s in ((B, H, N_Q, D), (B, G, N_K, D), (B, G, N_K, D)))
BIAS, DOC_Q = _DRAW.normal(size=(H, N_Q, N_K)), np.array([0, 1, 1, 2, 2])
DOC_K, INF, LATE = np.array([0, 0, 0, 1, 1, 2, 2, 2]), float("inf"), N_K - N_Q
ALONE = np.array([9, 1, 1, 2, 2])  # the first query has a document without keys
#: The number of keys of a document before the first token of it that is a query, at each query.
BEFORE = np.array([2, 0, 0, 1, 1])


def radii(run: Callable[..., Any], *arrays: np.ndarray) -> list[Any]:
    """The bounds of the float64 operations; none of the bounds is wide."""
    with np.errstate(all="ignore"):
        found = run(*map(bounded(np.float64).lift, arrays))
    bounds = [x.planes[1] for x in (found if isinstance(found, tuple) else (found,))]
    assert all((r < 2.0**-40).all() for r in bounds)
    return bounds


def closed(allowed: Any) -> Callable[..., Any]:
    """A score_mod that forbids what ``allowed`` does not say; i and j count from 0, j from the first key."""
    import torch

    return lambda s, b, h, i, j: torch.where(allowed(i, j), s, -INF)


def capped(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    import torch

    return torch.where(i + LATE >= j, 3 * torch.tanh(s / 3) + torch.tensor(BIAS)[h, i, j], -INF)


def same(i: Any, j: Any) -> Any:
    import torch

    return torch.tensor(DOC_Q)[i] == torch.tensor(DOC_K)[j]


def within(i: Any, j: Any) -> Any:
    """Documents, causal bottom-right in each: its first query has the place ``BEFORE``."""
    import torch

    first_q, first_k = torch.tensor([0, 1, 1, 3, 3]), torch.tensor([0, 0, 0, 3, 3, 5, 5, 5])
    return same(i, j) & (j - first_k[j] <= i - first_q[i] + torch.tensor(BEFORE)[i])


FLEX: dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[], Callable[..., Any]]]] = {
    "capped, biased, causal": ({"softcap": 3, "bias": True, "causal": True}, {"bias": BIAS[None]}, lambda: capped),
    "documents": ({"documents": True}, {"doc_q": DOC_Q, "doc_k": DOC_K}, lambda: closed(same)),
    "documents, causal": (
        {"documents": True, "causal": True},
        {"doc_q": DOC_Q, "doc_k": DOC_K},
        lambda: closed(within),
    ),
    "an empty row": (
        {"documents": True, "scale": 2},
        {"doc_q": ALONE, "doc_k": DOC_K},
        lambda: closed(lambda i, j: (i > 0) & same(i, j)),
    ),
}


@pytest.mark.parametrize("name", FLEX)
def test_flex_attention(name: str) -> None:
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    fields, given, modify = FLEX[name]
    spec = Attention(heads=H, kv_heads=G, lse=True, **fields)
    numbers = [n for n in given if n == "bias"]
    plain = {n: a for n, a in given.items() if n != "bias"}

    def run(q: Any, k: Any, v: Any, *more: Any) -> Any:
        return spec(q, k, v, **dict(zip(numbers, more, strict=True)), **plain)

    arrays = [Q, K, V, *(given[n] for n in numbers)]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        tensors = [torch.tensor(a) for a in (Q, K, V)]
        theirs = flex_attention(
            *tensors, score_mod=modify(), scale=fields.get("scale"), enable_gqa=True, return_lse=True
        )
    for ours, other, radius in zip(run(*arrays), theirs, radii(run, *arrays), strict=True):
        equal = ours == other.numpy()  # −∞ of an empty row, too
        assert (np.abs(np.subtract(ours, other.numpy(), where=~equal, out=np.zeros(ours.shape))) <= 2 * radius).all()
    other = Attention(**{f: getattr(spec, f) for f in spec.__dataclass_fields__} | {"scale": 3})(Q, K, V, **given)[0]
    assert (np.abs(other - theirs[0].numpy()) > 1e-3).any()


def by_torch(name: str) -> tuple[Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]:
    """Ours, torch's, and what both are given."""
    import torch

    q, k, w, s = Q[0, 0], K[0, 0], BIAS[0, :4, :4], BIAS
    pairs: dict[str, Any] = {
        "distance": (scores.distance_scores, lambda q, k: -((q[:, None] - k[None]) ** 2).sum(-1) / 2, (q, k)),
        "general": (scores.general_scores, lambda q, k, w: _bilinear(q, k, w), (q, k, w)),
        "sigmoid": (lambda s: softmax.sigmoid_weights(s, 0), torch.sigmoid, (s,)),
        "relu": (softmax.relu_weights, lambda s: torch.relu(s) / N_K, (s,)),
        "powers of two": (softmax.powers_of_two, torch.exp, (s,)),
    }  # fmt: skip
    return pairs[name]  # type: ignore[no-any-return]


def _bilinear(q: Any, k: Any, w: Any) -> Any:
    """torch's ``Bilinear`` of every query with every key."""
    import torch

    many = torch.nn.functional.bilinear(q.repeat_interleave(len(k), 0), k.repeat(len(q), 1), w[None])
    return many.reshape(len(q), len(k))


@pytest.mark.parametrize("name", ["distance", "general", "sigmoid", "relu", "powers of two"])
def test_functions_of_torch(name: str) -> None:
    import torch

    ours, theirs, arrays = by_torch(name)
    found, other = ours(*arrays), theirs(*map(torch.tensor, arrays)).numpy()
    [radius] = radii(ours, *arrays)
    assert (np.abs(found - other) <= 2 * radius).all()
    assert (np.abs(ours(*(2 * a for a in arrays)) - other) > 2 * radius).any()
