"""Masks: the scores that no query may use become −∞."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.attention import masks
from symattn.attention.flow import Flow
from symattn.attention.notation import causal_condition
from symattn.document.model import Text
from symattn.document.notation import call

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


def masking(flow: Flow) -> None:
    """Every mask of the specification in one step."""
    spec = flow.spec
    if not spec.masks_anything:
        return
    names = [n for n, used in (("mask", spec.mask), ("keep", spec.padding)) if used]
    formula = call("mask", flow.symbol("scores"))
    flow.add("masked", partial(_mask, spec), formula, ("scores", *names), role="scores", reason=_reason(spec))


def _reason(spec: Attention) -> Text:
    words = [f"{spec.mask} mask given"] if spec.mask else []
    words += ["padded keys are forbidden"] if spec.padding else []
    more = "; ".join(words)
    if not spec.causal:
        return (more,)
    return ("causal: ", causal_condition(spec.alignment), "; " + more if more else "")


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
