"""The steps of attention in order, each with the formula it is written with.

A variant adds its function in a file of its own, a field to ``Attention``, and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.attention import masks, projections, scores, softmax
from symattn.attention.notation import FORMULAS, SYMBOLS, causal_condition, scale_formula
from symattn.document.model import Text
from symattn.document.notation import Node, call

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


@dataclass(frozen=True)
class Step:
    """``name`` is computed by ``run`` from the arrays named in ``of``, and written as ``symbol`` = ``formula``."""

    name: str
    of: tuple[str, ...]
    run: Callable[..., Any]
    formula: Node
    reason: Text = ()

    @property
    def symbol(self) -> Node:
        """The letter that stands for the array: S for scores."""
        return SYMBOLS[self.name]


def pipeline(spec: Attention, given: frozenset[str]) -> tuple[Step, ...]:
    """The steps of ``spec`` from the inputs named in ``given`` to ``output``."""
    return (
        *_roles(spec, given),
        Step("scores", ("q", "k"), scores.dot_scores, FORMULAS["scores"], ("one dot product for each query and key",)),
        _scaling(spec),
        *_masking(spec, given),
        _weights(spec),
        *_output(spec, given),
    )


def _roles(spec: Attention, given: frozenset[str]) -> Iterator[Step]:
    """q, k and v from x (and y): projected where weights are given, and split into heads."""
    if "x" not in given:
        return
    split = partial(projections.split_heads, heads=spec.heads) if spec.heads > 1 else None
    for role in "qkv":
        source = "y" if "y" in given and role != "q" else "x"
        if f"w_{role}" not in given:
            yield Step(role, (source,), lambda x: x, SYMBOLS[source], ("no parameters: the tokens themselves",))
            continue
        names = (source, *(n for n in (f"w_{role}", f"b_{role}") if n in given))
        formula = SYMBOLS[source] * SYMBOLS[f"w_{role}"]
        reason = f"{spec.heads} heads, one block of columns each" if split else ""
        run = _then(projections.project, split)
        yield Step(role, names, run, formula + SYMBOLS[names[2]] if len(names) > 2 else formula, _words(reason))


def _scaling(spec: Attention) -> Step:
    formula = scale_formula(spec.scale)
    if spec.scale is None:
        return Step("scaled", ("scores", "q"), scores.scale_by_root, formula, ("keeps the variance of the scores",))
    return Step("scaled", ("scores",), partial(scores.scale_by, factor=spec.scale), formula, _words("as specified"))


def _masking(spec: Attention, given: frozenset[str]) -> Iterator[Step]:
    if not spec.masks_anything:
        return
    names = ("scaled", *(n for n, used in (("mask", spec.mask), ("keep", spec.padding)) if used))
    reasons = [
        "causal: " if spec.causal else "",
        f"{spec.mask} mask given" if spec.mask else "",
        "padded keys are forbidden" if spec.padding else "",
    ]
    words = [r for r in reasons if r]
    condition: Text = (words.pop(0), causal_condition(spec.alignment)) if spec.causal else ()
    more = "; ".join(words)
    run = partial(_mask, spec)
    yield Step("masked", names, run, FORMULAS["masked"], (*condition, "; " + more if condition and more else more))


def _mask(spec: Attention, s: Any, *inputs: Any) -> Any:
    """The scores with every mask of ``spec`` applied, in the order additive, boolean, padding, causal."""
    given = list(inputs)
    if spec.padding:
        given[-1] = masks.padding(given[-1])
    if spec.heads > 1:
        given = [masks.for_heads(mask, s) for mask in given]
    if spec.mask:
        mask = given.pop(0)
        s = masks.add_mask(s, mask) if spec.mask == "additive" else masks.forbid(s, mask)
    if spec.padding:
        s = masks.forbid(s, given.pop(0))
    return masks.forbid(s, masks.causal(s, spec.alignment)) if spec.causal else s


def _weights(spec: Attention) -> Step:
    before = "masked" if spec.masks_anything else "scaled"
    # Without a mask no row is empty, and the plain quotient says all.
    fully_masked = spec.fully_masked if spec.masks_anything else "nan"
    run = partial(softmax.softmax, stabilised=spec.stabilised, fully_masked=fully_masked)
    reason = "row by row; the row maximum is subtracted first" if spec.stabilised else "row by row"
    return Step("weights", (before,), run, call("softmax", SYMBOLS[before]), _words(reason))


def _output(spec: Attention, given: frozenset[str]) -> Iterator[Step]:
    """A V, the heads side by side, and the output projection where one is given."""
    reason = _words("each output is a weighted mean of the values")
    if spec.heads == 1 and "w_o" not in given:
        yield Step("output", ("weights", "v"), projections.weighted_values, FORMULAS["output"], reason)
        return
    yield Step("attended", ("weights", "v"), projections.weighted_values, FORMULAS["output"], reason)
    merge = projections.merge_heads if spec.heads > 1 else None
    formula = FORMULAS["merged"] if merge else SYMBOLS["attended"]
    names = ("attended", *(n for n in ("w_o", "b_o") if n in given))
    if "w_o" not in given:
        yield Step("output", names, projections.merge_heads, formula, _words("the heads side by side"))
        return
    formula = formula * SYMBOLS["w_o"] + SYMBOLS["b_o"] if "b_o" in given else formula * SYMBOLS["w_o"]
    run = partial(_project_merged, merge)
    yield Step("output", names, run, formula, _words("output projection"))


def _project_merged(merge: Callable[[Any], Any] | None, x: Any, w: Any, b: Any = None) -> Any:
    return projections.project(merge(x) if merge else x, w, b)


def _then(first: Callable[..., Any], second: Callable[..., Any] | None) -> Callable[..., Any]:
    return first if second is None else lambda *args: second(first(*args))


def _words(text: str) -> Text:
    return (text,) if text else ()
