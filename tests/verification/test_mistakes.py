"""Every mistake in the table, made in float64 by running its own variant on NumPy arrays, is named."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import Attention
from symattn.sources.verify import verify
from symattn.verification.mistaken import FIELDS
from symattn.verification.mistakes import MISTAKES, STEPS, Mistake
from symattn.verification.reference import Variant

_TWO_MASKS = Attention(mask="boolean", causal=True)
_PADDED = Attention(padding=True, causal=True)
_CROSS = ("project", "split", "merge", "output")


def _run(spec: Attention, given: dict[str, Any], variant: Variant) -> Any:
    values = dict(given)
    for step in spec.pipeline(frozenset(values)):
        change = variant.steps.get(step.name)
        of = ("weights", variant.values) if step.of == ("weights", "v") else step.of
        values[step.name] = change(spec, values) if change else step.run(*[values[n] for n in of])
    return values["output"]


def _spec(mistake: Mistake) -> Attention:
    """The first specification for which the mistake is one."""
    if "√d_model" in mistake.cause or "heads" in mistake.cause:
        return Attention(heads=2)
    if "padding" in mistake.cause:
        return _PADDED
    specs = (Attention(), Attention(scale=0.3), Attention(causal=True), Attention(mask="boolean"), _TWO_MASKS)
    if mistake.step == "mask" and "causal" not in mistake.cause:
        specs = specs[3:]
    return next(spec for spec in specs if mistake.applies(spec))


def _program(mistake: Mistake, spec: Attention) -> Callable[..., Any]:
    def attend(**given: Any) -> Any:
        with np.errstate(all="ignore"):
            return _run(spec, given, mistake.variant)

    tokens = mistake.step in _CROSS or spec.heads > 1
    if tokens and "tokens" in mistake.cause:
        return lambda x, y, w_q, w_k, w_v: attend(x=x, y=y, w_q=w_q, w_k=w_k, w_v=w_v)
    if tokens and spec.heads > 1:
        return lambda x, w_q, w_k, w_v, w_o: attend(x=x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o)
    if tokens:
        return lambda x, w_q, w_k, w_v, w_o, b_o: attend(x=x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o, b_o=b_o)
    if spec.padding:
        return lambda q, k, v, keep: attend(q=q, k=k, v=v, keep=keep)
    if spec.mask:
        return lambda q, k, v, mask: attend(q=q, k=k, v=v, mask=mask)
    return lambda q, k, v: attend(q=q, k=k, v=v)


@pytest.mark.deep
@pytest.mark.parametrize("mistake", [m for m in MISTAKES if m not in FIELDS], ids=lambda m: m.cause)
def test_the_variant_is_named(mistake: Mistake) -> None:
    spec = _spec(mistake)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = verify(_program(mistake, spec), spec, precision="float64", framework="numpy")
    assert [f.step for f in report.faults] == [mistake.step], report.faults
    assert mistake.cause in report.faults[0].message


def test_the_table_is_in_order() -> None:
    order = [STEPS.index(m.step) for m in MISTAKES]
    assert order == sorted(order)


def _two_at_once(q: Any, k: Any, v: Any) -> Any:
    """Another scale, and a mask that is off by one: each alone is known."""
    s = q @ k.T / q.shape[-1]
    s = np.where(np.tri(*s.shape, s.shape[1] - s.shape[0] + 1, dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def test_two_mistakes_at_once_are_not_taken_for_one() -> None:
    (fault,) = verify(_two_at_once, Attention(causal=True), precision="float64", examples=10).faults
    assert fault.cause is None
    assert fault.step == "mask"
