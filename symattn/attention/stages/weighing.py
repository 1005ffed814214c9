"""From scores to weights."""

from __future__ import annotations

from functools import partial

from symattn.attention import softmax
from symattn.attention.flow import Flow
from symattn.document.notation import call


def weighing(flow: Flow) -> None:
    """The weights of the keys for each query."""
    spec = flow.spec
    # Without a mask no row is empty, and the plain quotient says all.
    fully_masked = spec.fully_masked if spec.masks_anything else "nan"
    run = partial(softmax.softmax, stabilised=spec.stabilised, fully_masked=fully_masked)
    reason = "row by row; the row maximum is subtracted first" if spec.stabilised else "row by row"
    flow.add("weights", run, call("softmax", flow.symbol("scores")), ("scores",), role="weights", reason=reason)
