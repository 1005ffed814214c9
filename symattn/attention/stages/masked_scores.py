"""Masks: the scores that no query may use become −∞."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.attention import masks
from symattn.attention.flow import Flow, Stage
from symattn.attention.letters_of_attention import query_place

if TYPE_CHECKING:
    from symattn.attention.spec import Attention


def masking(flow: Flow) -> None:
    """Apply all masks of the specification in one step."""
    spec = flow.spec
    names = [n for n, used in (("mask", spec.mask), ("keep", spec.padding)) if used]
    # Queries and keys of one sequence have the same labels.
    if spec.documents:
        names += ["doc_q", "doc_k"] if "doc_q" in flow.given else ["doc", "doc"]
    run, reason, typed = (
        partial(_apply_score_masks, spec, tuple(names)),
        partial(_mask_reason, spec),
        partial(_masked_entries, spec),
    )
    flow.add(
        "masked",
        run,
        "mask(@0)",
        ("scores", *names),
        role="scores",
        reason=reason,
        entries=typed,
        errors="own",
    )


def _masked_entries(spec: Attention) -> str:
    """s″_ij = s′_ij where the query may see the key, −∞ elsewhere."""
    visible_entry = "out[i,j] = 0[i,j]" + " + mask[i,j]" * (spec.mask == "additive")
    by_place = spec.causal or spec.window is not None or spec.block is not None or spec.documents
    # An additive mask alone forbids only by its own −∞.
    if not (by_place or spec.padding or spec.mask == "boolean"):
        return f"{visible_entry} -- entry by entry"
    # The causal condition is written out only if no other mask adds to it.
    plain = not (
        spec.padding
        or spec.mask
        or spec.documents
        or spec.block
        or spec.prefix
        or spec.window is not None
    )
    behind = _causal_condition(spec.alignment)
    when = f"for ${behind}$" if spec.causal and plain else '"for a key that may be seen"'
    return f'{visible_entry} {when}\nout[i,j] = −∞ "for all other keys"'


def _causal_condition(alignment: str) -> str:
    """j ≤ i + n_k − n_q, or j ≤ i."""
    return f"j ≤ {query_place(alignment)}"


def _mask_reason(spec: Attention) -> str:
    """Return the rules of the masks, one after the other."""
    rules, behind = [], _causal_condition(spec.alignment)
    if spec.prefix is not None:
        rules.append(f'causal after a prefix: $j < {spec.prefix} "or" {behind}$')
    elif spec.causal:
        rules.append(f"causal: ${behind}$")
    if spec.window is not None:
        left, right = spec.sides
        first = "" if left is None else f"{query_place(spec.alignment, -left)} ≤ "
        last = "" if right is None else f" ≤ {query_place(spec.alignment, right)}"
        rules.append(f"window: ${first}j{last}$")
    if spec.block is not None:
        rules.append(f"blocks of {spec.block} places")
    if spec.documents:
        rules.append("within its own document, where places are counted")
    if spec.mask:
        rules.append(f"{spec.mask} mask given")
    if spec.padding:
        rules.append("padded keys are forbidden")
    return "; ".join(rules)


def _apply_score_masks(spec: Attention, names: tuple[str, ...], s: Array, *inputs: Array) -> Array:
    """Apply the masks of ``spec`` to scores in the order additive, boolean, padding, documents, position."""
    # Labels of documents come last, under one name or two, so that they are read by their place.
    arrays = dict(zip(names[: len(names) - 2 * spec.documents], inputs, strict=False))
    if spec.mask is not None:
        change = masks.add_mask if spec.mask == "additive" else masks.forbid
        s = change(s, masks.for_heads(arrays["mask"], s) if spec.heads > 1 else arrays["mask"])
    allowed = [masks.padding(arrays["keep"])] if spec.padding else []
    if spec.documents:
        queries, keys = inputs[-2:]
        allowed += [masks.same_document(queries, keys)]
        # Within documents, places start again at 0.
        allowed += by_place(spec, masks.document_places(queries, keys, spec.alignment))
    else:
        allowed += by_place(spec, s)
    for mask in allowed:
        s = masks.forbid(s, masks.for_every_head(mask) if spec.heads > 1 else mask)
    return s


def by_place(
    spec: Attention, s: Array | masks.Places, whole: masks.Places | None = None
) -> Iterator[Any]:
    """Yield the masks by position for scores, or for positions ``s``, which may be a part of ``whole``."""
    # A prefix includes the causal mask after it.
    if spec.prefix is not None:
        yield masks.prefix(s, spec.prefix, spec.alignment)
    elif spec.causal:
        yield masks.causal(s, spec.alignment)
    if spec.window is not None:
        yield masks.sides(s, *spec.sides, spec.alignment)
    if spec.block is not None:
        yield masks.blocks(
            s, masks.block_bounds(s if whole is None else whole, spec.block), spec.alignment
        )


#: The stage of all masks.
STAGES: tuple[Stage, ...] = (("masks_anything", masking),)
