"""Static caches: new tokens that see wrong slots are named at once, and right code of any shape is not accused."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Cached, Verdict, kind, verify
from symattn.programs.specifications import definitions_of
from symattn.verification.rules import by_role

Array = Any
SPEC = Cached(Attention(causal=True))
#: From a column of new tokens, a row of slots, the number of tokens before, and that of new ones, to what is seen.
Seen = Callable[[Array, Array, int, int], Array]


def _weigh(scores: Array, values: Array) -> Array:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ values


def _cached(
    seen: Seen, q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array, length: Array
) -> tuple[Array, Array, Array]:
    p, n = int(length), q.shape[-2]
    k_cache[..., p : p + n, :], v_cache[..., p : p + n, :] = k, v
    i, j = np.arange(n)[:, None], np.arange(k_cache.shape[-2])[None, :]
    scores = q @ np.swapaxes(k_cache, -1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
    return _weigh(np.where(seen(i, j, p, n), scores, -np.inf), v_cache), k_cache, v_cache


def _program(seen: Seen) -> Callable[..., Any]:
    def program(
        q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array, length: Array
    ) -> tuple[Array, Array, Array]:
        return _cached(seen, q, k, v, k_cache, v_cache, length)

    return program


_WRONG: dict[str, Seen] = {
    "one slot too many": lambda i, j, p, n: j <= p + i + 1,
    "does not see itself": lambda i, j, p, n: j < np.maximum(p + i, 1),
    "after the first one do not see": lambda i, j, p, n: j < p + i + (i == 0),
    "aligned top-left": lambda i, j, p, n: j <= i,
    "the last slots of the cache": lambda i, j, p, n: j <= j.size - n + i,
    "the last new token is not seen": lambda i, j, p, n: (j <= p + i) & (j < max(p + n - 1, 1)),
    "the last token of the cache is not seen": lambda i, j, p, n: (j <= p + i) & (j != p - 1),
    "empty slots": lambda i, j, p, n: (j <= p + i) | (j >= p + n),
    "the first empty slot": lambda i, j, p, n: (j <= p + i) | (j == p + n),
    "counted twice": lambda i, j, p, n: j <= p + n + i,
    "where i − j ≥ 1 and j = 0": lambda i, j, p, n: (j <= p + i) & ((j > 0) | (p + i == 0)),
}


@pytest.mark.deep
@pytest.mark.parametrize("words", _WRONG)
def test_wrong_slots_are_named(words: str) -> None:
    (fault,) = verify(_program(_WRONG[words]), SPEC, layout="bhnd").faults
    assert fault.step == "mask"
    assert words in fault.message


def _in_prefixes(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array, length: Array) -> Array:
    """Each new token reads a slice of its own, tokens before heads."""
    p, out = int(length), []
    for i in range(q.shape[1]):
        keys = np.concatenate([k_cache[:, :p], k[:, : i + 1]], axis=1)
        values = np.concatenate([v_cache[:, :p], v[:, : i + 1]], axis=1)
        scores = np.einsum("bhd,bjhd->bhj", q[:, i], keys) * q.dtype.type(q.shape[-1] ** -0.5)
        out.append(_weigh(scores[:, :, None], np.swapaxes(values, 1, 2))[:, :, 0])
    return np.stack(out, axis=1)


def _in_pages(
    q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array, length: Array
) -> tuple[Array, Array, Array]:
    """Pages of three slots with running sums; slots after the tokens are never read."""
    p, n = int(length), q.shape[-2]
    k_cache[..., p : p + n, :], v_cache[..., p : p + n, :] = k, v
    top = np.full((*q.shape[:-1], 1), -np.inf, q.dtype)
    total, out = np.zeros_like(top), np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    for first in range(0, p + n, 3):
        page = slice(first, min(first + 3, p + n))
        s = q @ np.swapaxes(k_cache[..., page, :], -1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
        s = np.where(np.arange(page.start, page.stop) <= p + np.arange(n)[:, None], s, -np.inf)
        new = np.maximum(top, s.max(axis=-1, keepdims=True))
        weights, kept = np.exp(s - new), np.exp(top - new)
        total = total * kept + weights.sum(axis=-1, keepdims=True)
        out = out * kept + weights @ v_cache[..., page, :]
        top = new
    return out / total, k_cache, v_cache


_RIGHT: dict[str, tuple[Callable[..., Any], str]] = {
    "by a mask": (_program(lambda i, j, p, n: j <= p + i), "bhnd"),
    "by prefixes": (_in_prefixes, "bnhd"),
    "by pages": (_in_pages, "bhnd"),
}


@pytest.mark.deep
@pytest.mark.parametrize("program", _RIGHT)
def test_right_code_is_not_accused(program: str) -> None:
    function, layout = _RIGHT[program]
    assert verify(function, SPEC, layout=layout).verdict is Verdict.NO_FAULT


def _in_torch(seen: Callable[..., Any], fill: float) -> Callable[..., Any]:
    import torch

    def program(q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, length: Any) -> Any:
        p, n = int(length), q.shape[1]
        keys, values = k_cache.clone(), v_cache.clone()
        keys[:, p : p + n], values[:, p : p + n] = k, v
        i, j = torch.arange(n)[:, None], torch.arange(keys.shape[1])[None]
        scores = torch.einsum("bihd,bjhd->bhij", q, keys) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~seen(i, j, p, n), fill)
        return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), values), keys, values

    return program


@pytest.mark.torch
@pytest.mark.deep
def test_caches_of_torch_with_tokens_before_heads() -> None:
    check = partial(verify, spec=SPEC, layout="bnhd")
    assert check(_in_torch(lambda i, j, p, n: j <= p + i, -1e30)).verdict is Verdict.NO_FAULT
    for words, seen in {
        "the last slots of the cache": lambda i, j, p, n: j <= j.numel() - n + i,
        "empty slots": lambda i, j, p, n: (j <= p + i) | (j >= p + n),
    }.items():
        (fault,) = check(_in_torch(seen, float("-inf"))).faults
        assert fault.step == "mask"
        assert words in fault.message


@pytest.mark.deep
def test_reports_show_the_rows_of_what_is_wrong() -> None:
    wrong = _program(lambda i, j, p, n: (j <= p + i) | (j >= p + n))
    (fault,) = verify(wrong, SPEC, layout="nd").faults
    assert [name for name, _, _ in fault.counterexample.steps] == [
        "filled", "scores", "scaled", "masked", "weights", "output",
    ]  # fmt: skip


@pytest.mark.parametrize("static", [True, False])
def test_every_mistake_of_a_cache_changes_a_step(static: bool) -> None:
    of = next(d for d in definitions_of(SPEC) if any(i.name == "length" for i in d.inputs) is static)
    flow: Any = of.flow.spec  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((3, 2)) for name in ("q", "k", "v")}
    arrays |= {name: rng.standard_normal((9 if static else 4, 2)) for name in ("k_cache", "v_cache")}
    more = {"length": np.asarray(4)} if static else {}
    values = flow.trace(**arrays, **more)
    exact = {name: kind("ball").lift(a) for name, a in arrays.items()}
    assert list(flow.trace(**exact, **more)) == list(values)
    right = flow.return_run(**arrays, **more)
    roles = {step.role for step in flow.pipeline_of_all}
    assert {"length", "read", "returned cache"} <= roles & by_role.RULES.keys()
    for mistake in by_role.mistakes(flow):
        assert mistake.run.steps, mistake.cause
        try:
            outputs = mistake.run(**arrays, **more)
        # A cache that grows by keys and values of different numbers has no output.
        except ValueError:
            assert not static
            assert mistake.step == "cache"
            continue
        same = [x.shape == y.shape and np.allclose(x, y) for x, y in zip(outputs, right, strict=True)]
        # A row that sees something changes nothing where the first slot stands in for none.
        assert not all(same) or "without any other" in mistake.cause or "pages" in mistake.cause
