"""Known mistakes, as data: each is a change of some steps of the definition, run on balls like the definition itself.

To add one: a line here, its wrong step in ``wrong``, and in the tests a program that makes it and its right neighbour.
Most of them were reported of published code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from symattn.attention.spec import Attention
from symattn.verification import wrong
from symattn.verification.mistaken import FIELDS
from symattn.verification.mistaken import Mistake as Mistake
from symattn.verification.reference import Change, Variant, usual

#: What ``Fault.step`` may be, in the order of the computation; ``weights`` only where no more is known.
STEPS = tuple(
    """
    call project norm split position cache score scale softcap bias mask sink max exp normalize dropout weights values
    merge output residual lse backward
    """.split()
)


def _mistake(
    step: str,
    cause: str,
    applies: Callable[[Attention], bool] | None = None,
    rows: bool = True,
    of: str = "v",
    **steps: Change,
) -> Mistake:
    """A mistake of the plain steps: it is one where the specification has these steps, and no others in between."""

    def holds(spec: Attention) -> bool:
        return _has_plain(spec, steps, of) and (applies is None or applies(spec))

    return Mistake(step, cause, Variant(steps, rows, of), holds)


def _has_plain(spec: Attention, steps: Mapping[str, Change], of: str) -> bool:
    """Whether the steps are those of the plain pattern, so that what is put in their place is all of them."""
    shared = spec.key_heads == spec.heads
    if ({"q", "k", "v", "scores"} & steps.keys() or of != "v") and not (usual(spec) and shared and not spec.packed):
        return False
    if "scaled" in steps and not usual(spec):
        return False
    if "masked" in steps and (spec.window or spec.block or spec.prefix or spec.documents):
        return False
    plain = spec.normaliser == "softmax" and spec.sink is None and spec.base is None
    return plain or not {"weights", "masked"} & steps.keys()


def _scaled(spec: Attention) -> bool:
    return spec.scale != 1


def _default(spec: Attention) -> bool:
    return spec.scale is None


def _causal(spec: Attention) -> bool:
    return spec.causal


def _masks(spec: Attention) -> bool:
    return spec.masks_anything


def _several(spec: Attention) -> bool:
    return spec.heads > 1


def _several_masks(spec: Attention) -> bool:
    return spec.causal + spec.padding + (spec.mask is not None) > 1


# Two variants of one cause: float64 tells them apart, float32 does not.
_NOTHING = "forbidden scores become 0 (a mask multiplied) or nearly 0 (−1e-9 filled in), which leaves them a weight"

_PLAIN: tuple[Mistake, ...] = (
    _mistake("project", "queries are used as keys", k=partial(wrong.projected, "k", "q")),
    _mistake("project", "keys are projected as values are", k=partial(wrong.projected, "k", "v")),
    _mistake("project", "values are projected as keys are", v=partial(wrong.projected, "v", "k")),
    _mistake("project", "values are projected as queries are", v=partial(wrong.projected, "v", "q")),
    _mistake("project", "queries are projected as keys are", q=partial(wrong.projected, "q", "k")),
    _mistake(
        "project", "the projections of queries and keys are exchanged",
        q=partial(wrong.projected, "q", "k"), k=partial(wrong.projected, "k", "q"),
    ),
    _mistake(
        "project", "keys and values come from the queries' tokens",
        k=partial(wrong.from_queries, "k"), v=partial(wrong.from_queries, "v"),
    ),
    _mistake(
        "split", "heads are split by a reshape alone, without moving their axis", _several,
        q=partial(wrong.split_bare, "q"), k=partial(wrong.split_bare, "k"), v=partial(wrong.split_bare, "v"),
    ),
    _mistake("score", "queries are used as keys: the scores are Q Qᵀ", scores=partial(wrong.product, "q", "q")),
    _mistake("score", "keys are used as queries: the scores are K Kᵀ", scores=partial(wrong.product, "k", "k")),
    _mistake("score", "queries and keys are exchanged: the scores are K Qᵀ", scores=partial(wrong.product, "k", "q")),
    _mistake("score", "values are used as keys: the scores are Q Vᵀ", scores=partial(wrong.product, "q", "v")),
    _mistake("scale", "scores are scaled by 1/d_k", scaled=wrong.by_width),
    _mistake("scale", "scores are not scaled", _scaled, scaled=wrong.unscaled),
    _mistake("scale", "scores are multiplied by √d_k", scaled=wrong.times_root),
    _mistake("scale", "scores are scaled by 1/√d_model", scaled=wrong.by_root_of_model),
    _mistake("scale", "scores are scaled by 1/√d_v", scaled=partial(wrong.by_root_of, "v", -1)),
    _mistake("scale", "scores are scaled by 1/√n_k", scaled=partial(wrong.by_root_of, "k", -2)),
    _mistake(
        "scale", "the configured scale is ignored, and 1/√d_k used", lambda spec: not _default(spec),
        scaled=partial(wrong.by_root_of, "q", -1),
    ),
    _mistake("mask", "the mask is ignored", _masks, masked=wrong.ignored),
    _mistake("mask", "the mask is inverted", _masks, masked=wrong.inverted, weights=wrong.some_keys),
    _mistake("mask", "the causal mask is transposed: a query sees itself and later keys", _causal,
             masked=wrong.upper_triangle, weights=wrong.some_keys),
    _mistake("mask", "the causal mask is off by one: a query also sees the next key", _causal,
             masked=partial(wrong.shifted, 1), weights=wrong.some_keys),
    _mistake("mask", "the causal mask is off by one: a query does not see its own key", _causal,
             masked=partial(wrong.shifted, -1), weights=wrong.some_keys),
    _mistake("mask", "the causal mask starts at the other corner", _causal,
             masked=wrong.other_corner, weights=wrong.some_keys),
    _mistake("mask", "a boolean mask is added as 0 and 1", _masks, masked=wrong.added),
    _mistake("mask", _NOTHING, _masks, masked=partial(wrong.filled, 0.0)),
    _mistake("mask", _NOTHING, _masks, masked=partial(wrong.filled, -1e-9)),
    _mistake("mask", "forbidden scores become −10, which leaves them a weight", _masks,
             masked=partial(wrong.filled, -10.0)),
    _mistake("mask", "weights are masked after the softmax, and not normalised again", _masks, rows=False,
             weights=wrong.masked_after),
    _mistake("mask", "the causal mask is left out", _several_masks, masked=partial(wrong.without, "causal")),
    _mistake("mask", "the padding mask is left out", _several_masks, masked=partial(wrong.without, "padding")),
    _mistake("mask", "the mask given is left out", _several_masks, masked=partial(wrong.without, "mask")),
    _mistake("normalize", "the softmax runs over the queries", rows=False, weights=wrong.over_queries),
    _mistake("normalize", "the softmax runs over the heads", rows=False, weights=wrong.over_heads),
    _mistake("normalize", "exponentials are not divided by their sum", rows=False, weights=wrong.not_normalised),
    _mistake("exp", "powers of 2 are taken in place of those of e", weights=wrong.powers_of_two),
    _mistake("mask", "the last key is dropped", weights=partial(wrong.one_key_less, -1)),
    _mistake("mask", "the first key is dropped", weights=partial(wrong.one_key_less, 0)),
    *(
        _mistake("mask", f"zero keys that fill the last tile of {n} take part", rows=False,
                 weights=partial(wrong.padded_tile, n))
        for n in (4, 8, 16, 32, 64, 128)
    ),
    _mistake("values", "keys are used as values", of="k"),
    _mistake("values", "queries are used as values", of="q"),
    _mistake("values", "the weights are transposed", rows=False, weights=wrong.weights_transposed),
    _mistake("merge", "heads are merged by a reshape alone, without moving their axis", _several,
             output=wrong.merged_bare),
    _mistake("output", "the output projection is left out", output=wrong.no_output_projection),
)  # fmt: skip

#: Every known mistake, in the order of the steps.
MISTAKES: tuple[Mistake, ...] = tuple(sorted((*_PLAIN, *FIELDS), key=lambda mistake: STEPS.index(mistake.step)))
