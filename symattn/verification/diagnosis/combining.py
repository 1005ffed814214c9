"""Two mistakes made together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from symattn.attention.spec import Attention
from symattn.verification.reference import Change, Variant
from symattn.verification.rules.forbidding import some_keys
from symattn.verification.rules.mistake import Mistake
from symattn.verification.target import Inputs


def combined(first: Mistake, second: Mistake) -> Mistake | None:
    """Both at once; None where they change the same step."""
    a, b = first.variant, second.variant
    steps = _steps(a, b)
    if steps is None or (a.values != "v" and b.values != "v") or first.cause == second.cause:
        return None
    variant = Variant(
        steps, a.rows and b.rows, a.values if a.values != "v" else b.values,
        _after(a.spec, b.spec), _after_inputs(a.inputs, b.inputs),
    )  # fmt: skip
    return Mistake(first.step, f"{first.cause}; and {second.cause}", variant)


def _steps(a: Variant, b: Variant) -> dict[str, Change] | None:
    """The steps of both. Weights of the keys that a wrong mask has left give way to other weights."""
    merged = dict(a.steps)
    for name, change in b.steps.items():
        if name in merged and change is not some_keys:
            if merged[name] is not some_keys:
                return None
        elif name in merged:
            continue
        merged[name] = change
    return merged


def _after(
    a: Callable[[Attention], Attention] | None, b: Callable[[Attention], Attention] | None
) -> Callable[[Attention], Attention] | None:
    return partial(_one_after_another, a, b) if a and b else a or b


def _one_after_another(
    a: Callable[[Attention], Attention], b: Callable[[Attention], Attention], spec: Attention
) -> Attention:
    return b(a(spec))


def _after_inputs(
    a: Callable[[Attention, Inputs], Inputs] | None, b: Callable[[Attention, Inputs], Inputs] | None
) -> Callable[[Attention, Inputs], Inputs] | None:
    if a is None or b is None:
        return a or b
    return lambda spec, inputs: b(spec, a(spec, inputs))
