"""Two mistakes of attention at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import Change, Variant
from symattn.verification.rules.forbidding import SOME_KEYS

C = TypeVar("C")


def combined(first: Mistake, second: Mistake) -> Mistake | None:
    """Both at once; None where they change the same step."""
    a, b = first.variant, second.variant
    steps = _steps(a, b)
    if steps is None or (a.values != "v" and b.values != "v") or first.cause == second.cause:
        return None
    variant = _at_once(a, b, steps)
    around = (*(_at_once(x, b, more) for x in first.around if (more := _steps(x, b)) is not None),
              *(_at_once(a, x, more) for x in second.around if (more := _steps(a, x)) is not None))  # fmt: skip
    in_floats = first.in_floats or second.in_floats or not variant.rows
    general = first.general or second.general
    return Mistake(first.step, f"{first.cause}; and {second.cause}", variant, None, around, in_floats, general)


def _at_once(a: Variant, b: Variant, steps: dict[str, Change]) -> Variant:
    return Variant(
        steps, a.rows and b.rows, a.values if a.values != "v" else b.values,
        _both(a.spec, b.spec, lambda f, g: lambda spec: g(f(spec))),
        _both(a.inputs, b.inputs, lambda f, g: lambda spec, inputs: g(spec, f(spec, inputs))),
    )  # fmt: skip


def _steps(a: Variant, b: Variant) -> dict[str, Change] | None:
    """The steps of both. Weights of the keys that a wrong mask has left give way to other weights."""
    merged = dict(a.steps)
    for name, change in b.steps.items():
        if name in merged and change is not SOME_KEYS:
            if merged[name] is not SOME_KEYS:
                return None
        elif name in merged:
            continue
        merged[name] = change
    return merged


def _both(a: C | None, b: C | None, joined: Callable[[C, C], C]) -> C | None:
    return joined(a, b) if a and b else a or b
