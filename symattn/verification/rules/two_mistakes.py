"""Two mistakes at once, as one mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from symattn.bounds.mistake import Mistake
from symattn.bounds.reference import Change, Variant
from symattn.verification.rules.forbidding import SOME_KEYS

C = TypeVar("C")


def combine_mistakes(first: Mistake, second: Mistake) -> Mistake | None:
    """Return both mistakes at once; None if they change the same step."""
    a, b = first.variant, second.variant
    steps = _merge_changed_steps(a, b)
    # Mistakes of the same words, or whose values conflict, are not two mistakes.
    if steps is None or (a.values != "v" and b.values != "v") or first.cause == second.cause:
        return None
    variant = _at_once(a, b, steps)
    # Variants around either one are variants around both.
    around = (
        *(
            _at_once(x, b, more)
            for x in first.around
            if (more := _merge_changed_steps(x, b)) is not None
        ),
        *(
            _at_once(a, x, more)
            for x in second.around
            if (more := _merge_changed_steps(a, x)) is not None
        ),
    )
    in_floats = first.in_floats or second.in_floats or not variant.rows
    general = first.general or second.general
    words = f"{first.cause}; and {second.cause}"
    return Mistake(first.step, words, variant, around=around, in_floats=in_floats, general=general)


def _at_once(a: Variant, b: Variant, steps: dict[str, Change]) -> Variant:
    return Variant(
        steps,
        a.rows and b.rows,
        a.values if a.values != "v" else b.values,
        _join_optional_changes(a.spec, b.spec, lambda f, g: lambda spec: g(f(spec))),
        _join_optional_changes(
            a.inputs, b.inputs, lambda f, g: lambda spec, inputs: g(spec, f(spec, inputs))
        ),
    )


def _merge_changed_steps(a: Variant, b: Variant) -> dict[str, Change] | None:
    """Return the changed steps of both; None if they conflict. ``SOME_KEYS`` gives way to other changes of weights."""
    merged = dict(a.steps)
    for name, change in b.steps.items():
        # The choice of keys gives way: any other change of the weights sees all of them.
        if name in merged and change is not SOME_KEYS:
            if merged[name] is not SOME_KEYS:
                return None
        elif name in merged:
            continue
        merged[name] = change
    return merged


def _join_optional_changes(a: C | None, b: C | None, joined: Callable[[C, C], C]) -> C | None:
    return joined(a, b) if a and b else a or b
