"""Masks: the scores that no query may use become −∞."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.attention import documents, masks
from symattn.attention.flow import Flow
from symattn.attention.notation import causal_condition, prefix_condition, window_condition
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
    if spec.documents:
        names += ["doc_q", "doc_k"] if "doc_q" in flow.given else ["doc", "doc"]
    formula = call("mask", flow.symbol("scores"))
    run = partial(_mask, spec, tuple(names))
    flow.add("masked", run, formula, ("scores", *names), role="scores", reason=_reason(spec))


def _reason(spec: Attention) -> Text:
    """What is allowed, mask by mask."""
    first, *rest = _reasons(spec)
    return (*first, *chain.from_iterable(("; ", *words) for words in rest))


def _reasons(spec: Attention) -> Iterator[Text]:
    if spec.prefix is not None:
        yield "causal after a prefix: ", prefix_condition(spec.alignment, spec.prefix)
    elif spec.causal:
        yield "causal: ", causal_condition(spec.alignment)
    if spec.window is not None:
        yield "window: ", window_condition(spec.alignment, *spec.sides)
    if spec.block is not None:
        yield (f"blocks of {spec.block} places",)
    if spec.documents:
        yield ("within its own document, where places are counted",)
    if spec.mask:
        yield (f"{spec.mask} mask given",)
    if spec.padding:
        yield ("padded keys are forbidden",)


def _mask(spec: Attention, names: tuple[str, ...], s: Array, *inputs: Any) -> Array:
    """The scores with every mask of ``spec`` applied, in the order additive, boolean, padding, documents, places."""
    given = dict(zip(names[: len(names) - 2 * spec.documents], inputs, strict=False))
    if spec.mask == "additive":
        s = masks.add_mask(s, _of_heads(spec, given["mask"], s))
    if spec.mask == "boolean":
        s = masks.forbid(s, _of_heads(spec, given["mask"], s))
    allowed = [masks.padding(given["keep"])] if spec.padding else []
    if spec.documents:
        queries, keys = inputs[-2:]
        allowed += [documents.same_document(queries, keys)]
        allowed += _by_place(spec, documents.document_places(queries, keys, spec.alignment))
    else:
        allowed += _by_place(spec, s)
    for mask in allowed:
        s = masks.forbid(s, masks.for_every_head(mask) if spec.heads > 1 else mask)
    return s


def _of_heads(spec: Attention, mask: Array, s: Array) -> Array:
    return masks.for_heads(mask, s) if spec.heads > 1 else mask


def _by_place(spec: Attention, s: Array | masks.Places) -> Iterator[Any]:
    """The masks that go by position, of scores or of the places of queries and keys."""
    if spec.prefix is not None:
        yield masks.prefix(s, spec.prefix, spec.alignment)
    elif spec.causal:
        yield masks.causal(s, spec.alignment)
    if spec.window is not None:
        yield masks.sides(s, *spec.sides, spec.alignment)
    if spec.block is not None:
        yield masks.blocks(s, masks.block_bounds(s, spec.block), spec.alignment)
