"""The common part of definitions made of an ``Attention``: inputs q, k, v and masks, in some order of the axes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from math import prod
from numbers import Real
from typing import Any, get_args

import numpy as np

from symattn.attention.inputs import needed, required, shape
from symattn.attention.letters_of_attention import ARRAYS, SCORES
from symattn.attention.spec import Attention
from symattn.attention.temperatures import counts_places_from_last_key
from symattn.bounds import extras, reference
from symattn.bounds.called_target import Inputs, Layout
from symattn.bounds.inputs import measure_largest_score
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily
from symattn.document.errors import InputError
from symattn.verification.definitions import output_run
from symattn.verification.definitions.definition_forms import Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inner_attention import (
    Attended,
    Call,
    InnerAttention,
    WrongAttention,
    with_leading_axes,
)
from symattn.verification.definitions.inputs_by_letters import Family, Numbers
from symattn.verification.definitions.output_run import OutputRun
from symattn.verification.input_source import Array, Random

_WORDS = {
    "q": "query queries xq query_states query_layer",
    "k": "key keys xk key_states key_layer",
    "v": "val value values xv value_states value_layer",
    "mask": "attn_mask attention_mask m",
    "keep": "keep_mask key_mask",
    "bias": "attn_bias attention_bias position_bias",
    "sink": "sinks s_aux sink_logits",
    "drop": "dropout_mask",
}
# Axes that every case of these definitions has sizes for.
_OWN_AXES = {"h", "g", "n_q", "n_k", "d_k", "d_v"}
#: Axes besides n and d, by layout; other orders are brought into b, h, n, d.
LAYOUTS: Mapping[str, str] = {
    x: " ".join(x[:-1].replace("n", "")) for x in get_args(Layout) if x[-1] == "d"
}
NEAR = 0.1  # the part of keys that are not far below the largest score
# n_q, n_k, d_k and d_v of each case.
_SIZES = (
    (2, 2, 2, 2),
    (3, 5, 4, 6),
    (4, 4, 3, 2),
    (1, 3, 2, 3),
    (2, 6, 5, 4),
    (5, 5, 8, 3),
    (1, 1, 1, 1),
    (3, 4, 1, 2),
    (6, 6, 2, 5),
    (3, 9, 2, 1),
    (1, 17, 3, 2),
    (5, 16, 2, 2),
    (2, 33, 2, 1),
    (17, 17, 2, 2),
    (2, 3, 33, 2),
)


def settings(spec: Attention) -> dict[str, Any]:
    """Return the values of a function's parameters by the fields of the attention; None leaves a default."""
    # One head is the default of every function, so that nothing is passed.
    several = spec.heads > 1
    return {
        "causal": spec.causal,
        "scale": float(spec.scale) if isinstance(spec.scale, Real) else None,
        "heads": spec.heads if several else None,
        "kv_heads": spec.key_heads if several else None,
        "window": spec.window,
        "softcap": spec.softcap,
        "head_dim": lambda arrays: arrays["q"].shape[-1],
    }


def check(spec: Attention, what: str, layout: Layout) -> None:
    """Raise ``InputError`` if a definition needs tokens and projections, or another layout."""
    # Inputs that no parameter of these definitions stands for.
    beside = [n for n in required(spec) if not _has_place(spec, n)]
    if spec.packed or spec.latent is not None or beside:
        raise InputError(
            f"{what} takes q, k, v and masks; it has no place for {', '.join(beside) or 'projections'}"
        )
    check_layout(what, layout)
    if spec.heads > 1 and layout != "nd" and "h" not in LAYOUTS[layout].split():
        raise InputError(f"{what}: the layout {layout} has no axis for the {spec.heads} heads")


def of_attention(
    spec: Attention,
    layout: Layout,
    wrong: WrongAttention,
    attended: Attended | None = None,
    make: Callable[..., Definition] = Definition,
    **more: Any,
) -> Definition:
    """Return a definition with the inputs of an attention, and further fields as given.

    ``wrong`` makes the mistakes of the attention; ``attended`` reads its output off the function, if not as the first
    output. ``make`` makes the definition from all fields.
    """
    usual: dict[str, Any] = {
        "others": Later(lambda: known_mistakes(wrong)),
        "inputs": inputs(spec, layout),
        "shapes": sizes(spec, layout),
        "settings": settings(spec),
        "kept": frozenset("hg") if spec.heads > 1 else frozenset(),
        "admits": lambda inputs, sizes: not has_places(spec) or sizes["n_q"] <= sizes["n_k"],
        "open": partial(open_rows, spec),
        "closing": closing,
        "whole": ("q", "k"),
        "distant": partial(distant, spec),
        "inner": inner(spec, layout, wrong, attended),
    }
    return make(**usual | more)


def has_places(spec: Attention) -> bool:
    """Return whether queries are the last of the keys' tokens, so that there are no more of them."""
    return spec.position is not None or counts_places_from_last_key(spec)


def inner(
    spec: Attention, layout: Layout, wrong: WrongAttention, attended: Attended | None = None
) -> InnerAttention:
    """Return the attention of a definition that takes its arrays in a layout, besides others."""
    names = tuple(i.name for i in inputs(spec, layout))
    arrange = partial(arrange_inputs, spec, layout)

    def arrays_of(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {
            n: ordered(layout, inputs[n]) if n in ("q", "k", "v") else inputs[n]
            for n in names
            if n in inputs
        }

    def largest_score(inputs: Mapping[str, Array]) -> float:
        return measure_largest_score(spec, arrays_of(inputs))

    def first_output(call: Call, inputs: Mapping[str, Array]) -> Array | None:
        outputs = call(arrange(inputs))
        return None if outputs is None else reshape_as_attended(layout, outputs[0], inputs)

    return InnerAttention(
        spec,
        names,
        arrange,
        largest_score,
        arrays_of=arrays_of,
        attended=attended or first_output,
        wrong=wrong,
        returned=attended is None,
    )


def arrange_inputs(spec: Attention, layout: Layout, made: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays of an attention as inputs in a layout, with the leading axes that it has."""
    axes = {i.name: len(i.shape.split()) for i in inputs(spec, layout)}
    arrays = {name: with_leading_axes(axes[name], made[name]) for name in axes if name in made}
    return {
        n: ordered(layout, a, back=True) if n in ("q", "k", "v") else a for n, a in arrays.items()
    }


def reshape_as_attended(layout: Layout, output: Array, made: Mapping[str, Array]) -> Array | None:
    """Return an output in a layout with the axes of an attention's output for these arrays; None if it does not fit."""
    shape = (*made["q"].shape[:-1], made["v"].shape[-1])
    # An output of other size, or with too few axes, is none of this attention.
    fits = output.ndim >= max(2, -tokens_axis(layout)) and output.size == prod(shape)
    return ordered(layout, output).reshape(shape) if fits else None


def run_of(spec: Attention, layout: Layout, others: tuple[Compute, ...] = ()) -> OutputRun:
    """Return the runs of the attention itself.

    ``others`` are the other outputs by each way of the definition.
    """
    names = {i.name for i in inputs(spec, layout)}

    def attended(inputs: Inputs) -> dict[str, Array]:
        return {
            n: ordered(layout, a) if n in ("q", "k", "v") else a
            for n, a in inputs.items()
            if n in names
        }

    return output_run.of_attention(spec, attended, others, tokens_axis(layout))


def known_mistakes(wrong: WrongAttention) -> Iterator[Mistake]:
    """Yield the mistakes by rule in the steps of the attention of a definition."""
    # Rules are slow to import, and right functions need none of an attention.
    from symattn.verification.rules.known_mistakes import yield_known_mistakes

    yield from wrong.convert_mistakes(yield_known_mistakes(wrong.spec, wrong.names))


def by_number(
    spec: Attention,
    made: Callable[[reference.Variant], Compute],
    steps: Collection[str] = SCORES,
) -> Iterator[MistakeFamily]:
    """Yield the mistakes with a number in these ``steps`` of the attention of a definition."""
    from symattn.verification.rules import log_sums
    from symattn.verification.rules.families import families

    for f in (*families(spec), *(log_sums.families() if spec.lse else ())):
        # Any of its numbers changes the same steps.
        if f.variant(f.grid[0]).steps.keys() <= {*steps}:
            yield MistakeFamily(
                f.step,
                f.words,
                lambda x, f=f: made(f.variant(x)),  # type: ignore[misc]
                f.grid,
                inner=f.variant,
            )


def axes(spec: Attention, layout: Layout, heads: str, *last: str) -> str:
    """Return a shape in letters: ``b h n_q d_k``; ``heads`` is the letter of the heads if there are several."""
    if layout == "nd" and spec.heads > 1:
        return " ".join([heads, *last])
    return placed(layout, *last, heads=heads if spec.heads > 1 else "h")


def placed(layout: Layout, *last: str, heads: str = "h") -> str:
    """Return a shape in letters, in the order of the layout."""
    letters = {"n": last[0], "h": heads}
    return " ".join([*(letters.get(axis, axis) for axis in layout[:-1]), *last[1:]])


def tokens_axis(layout: Layout) -> int:
    """Return the axis of tokens, counted from the end."""
    return layout.index("n") - len(layout)


def check_layout(what: str, layout: Layout) -> None:
    """Raise ``InputError`` for a layout that does not exist."""
    if layout not in LAYOUTS:
        raise InputError(f"{what}: no layout {layout}; known: {', '.join(LAYOUTS)}")


def in_front(layout: Layout, i: int) -> dict[str, int]:
    """Return the sizes of the leading axes in case number i: only the first cases have several items and heads."""
    return dict.fromkeys(LAYOUTS[layout].split(), 2 if i < 3 else 1)


def inputs(spec: Attention, layout: Layout) -> tuple[Input, ...]:
    """Return q, k, v, and the other inputs that the specification needs.

    Raises ``InputError`` for labels, positions and tables.
    """
    shapes = {
        "q": axes(spec, layout, "h", "n_q", "d_k"),
        "k": axes(spec, layout, "g", "n_k", "d_k"),
        "v": axes(spec, layout, "g", "n_k", "d_v"),
        "mask": "n_q n_k",
        "keep": _axes_of_valid_keys(spec, layout),
        "bias": "n_q n_k",
        "sink": "h" if spec.heads > 1 else "1",
        "drop": "n_q n_k",
    }
    entries = extras.ENTRIES | {
        "mask": _draw_boolean_mask if spec.mask == "boolean" else _draw_additive_mask,
        # The first key stays valid, so that causal queries have a key.
        "keep": lambda shape, rng: (rng.random(shape) < 0.7) | (np.arange(shape[-1]) == 0),
    }
    names = ["q", "k", "v", *needed(spec, ("q", "k", "v"))]
    beside = [name for name in names if not _has_place(spec, name)]
    if beside:
        raise InputError(
            f"a definition with log-sums or weights takes {', '.join(shapes)} and numbers by head, row or column; "
            f"it has no place for {', '.join(beside)}"
        )
    others = [name for name in names if name not in shapes]
    shapes |= {name: _shape_of_numbers(spec, name) for name in others}
    words = _WORDS | {name: ARRAYS[name].also for name in others}
    return tuple(Input(n, shapes[n], words[n], entries.get(n)) for n in dict.fromkeys(names))


def _has_place(spec: Attention, name: str) -> bool:
    """Return whether these definitions can take an input: q, k, v and masks, and numbers by heads, rows and columns.

    Such an input has none of the batch axes of q, k and v, which layouts would have to place.
    """
    if name in _WORDS:
        return True
    axes = shape(name, spec, ("q", "k", "v")).split()
    return ARRAYS[name].holds == "numbers" and set(axes) <= _OWN_AXES


def _shape_of_numbers(spec: Attention, name: str) -> str:
    """Return the shape in letters of an input by heads, rows or columns; one head has an axis of length 1."""
    axes = shape(name, spec, ("q", "k", "v")).split()
    # The letter h is that of leading axes of a layout if the specification has one head.
    return " ".join("1" if spec.heads == 1 and axis in ("h", "g") else axis for axis in axes)


def _axes_of_valid_keys(spec: Attention, layout: Layout) -> str:
    """Return the axes of the keys that are valid: for each item of a batch, whose heads share them."""
    leading = LAYOUTS[layout].split()
    # Without heads in the specification every axis in front is one of a batch.
    items = leading if spec.heads == 1 else [letter for letter in leading if letter == "b"]
    return " ".join([*items, "n_k"])


def _draw_boolean_mask(shape: tuple[int, ...], rng: Random) -> Array:
    """Draw a mask in which every query may attend to the first key, to its own, and to others by chance."""
    i = np.arange(shape[0])[:, None]
    j = np.arange(shape[1])[None, :]
    own = i + shape[1] - shape[0]
    is_drawn = rng.random(shape) < 0.6
    # The first key and the query's own are open, so that no row is without a key.
    return np.asarray(is_drawn | (j == 0) | (j == own))


def _draw_additive_mask(shape: tuple[int, ...], rng: Random) -> Array:
    return np.where(_draw_boolean_mask(shape, rng), rng.integers(-2, 3, shape) / 2.0, -np.inf)


def sizes(spec: Attention, layout: Layout) -> tuple[dict[str, int], ...]:
    """Return sizes that differ from each other, among them sizes of tiles and their neighbours."""
    heads = {"h": spec.heads, "g": spec.key_heads} if spec.heads > 1 else {"h": 2}
    wanted = LAYOUTS[layout].split() if layout != "nd" else ["h"] if spec.heads > 1 else []
    front = {**({"b": 2} if "b" in wanted else {}), **(heads if "h" in wanted else {})}
    result = []
    for k, (n_q, n_k, d_k, d_v) in enumerate(_SIZES):
        # Large cases of many heads take long.
        if front and n_q * n_k > 60 and spec.heads > 2:
            continue
        if k > 3:  # enough cases had batches
            front = {x: size if spec.heads > 1 and x != "b" else 1 for x, size in front.items()}
        result.append({**front, "n_q": n_q, "n_k": n_k, "d_k": d_k, "d_v": d_v})
    return tuple(result)


def distant(spec: Attention, distance: float) -> Family:
    """Return the family in which most keys score ``distance`` below the others, whichever axis is that of tokens."""

    def family(rng: Random) -> Numbers:
        def numbers(name: str, shape: tuple[int, ...]) -> Array:
            if name[0] not in "qk":
                return rng.standard_normal(shape)
            result = np.zeros(shape)
            if name[0] == "k":
                # One column holds the scores, so they lie the distance apart exactly.
                result[..., 0] = np.where(rng.random(shape[:-1]) < NEAR, 0.0, -1.0)
            else:
                # A scale of 0 makes no distance, so the default stands in.
                scale = (
                    float(spec.scale)
                    if isinstance(spec.scale, Real) and spec.scale
                    else shape[-1] ** -0.5
                )
                result[..., 0] = distance / abs(scale)
            return result

        return numbers

    return family


def open_rows(spec: Attention, inputs: Inputs, sizes: Mapping[str, int]) -> bool:
    """Return whether every query may attend to some key."""
    return extras.open_rows(spec, sizes.get("n_q", 1), sizes["n_k"], inputs)


def closing(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the inputs with masks that leave queries without any key: the first one, or all of an item."""
    result = dict(arrays)
    if "mask" in result:
        # A copy, as other cases may share the array.
        result["mask"] = result["mask"].copy()
        result["mask"][0] = False if result["mask"].dtype == bool else -np.inf
    elif "keep" in result:
        result["keep"] = result["keep"].copy()
        # With several items one item loses all its keys, else every query does.
        result["keep"][0 if result["keep"].ndim > 1 else ...] = False
    return result


def in_order(
    layout: Layout, turned: tuple[str, ...], run: Compute, unturned: tuple[int, ...] = ()
) -> Compute:
    """Return ``run`` for arrays in the layout: it gets them as b, h, n, d, and its outputs are put back in order.

    Outputs at the places ``unturned`` have no axis of tokens, and stay as they are.
    """

    def moved(**keywords: Any) -> Any:
        arrays = {n: ordered(layout, a) if n in turned else a for n, a in keywords.items()}
        result, axes = run(**arrays), len(layout)
        if result is None:
            return None
        # Only outputs with all axes of the layout have an axis of tokens to move.
        every = [
            ordered(layout, a, back=True) if len(a.shape) == axes and at not in unturned else a
            for at, a in enumerate(result if isinstance(result, tuple) else (result,))
        ]
        return tuple(every) if isinstance(result, tuple) else every[0]

    # Where tokens stand before the columns nothing has to move.
    return moved if tokens_axis(layout) < -2 else run


def ordered(layout: Layout, a: Any, back: bool = False) -> Any:
    """Move tokens to the axis before the columns; with ``back``, from there to their axis in the layout."""
    axes = (tokens_axis(layout), -2)
    return a.__array_namespace__().moveaxis(a, *(reversed(axes) if back else axes))


def tiles(like: Array, n_k: int) -> list[int]:
    """Return bounds of tiles of keys: of one key each, or as many tiles as the kind's precision allows."""
    most = getattr(getattr(type(like), "precision", None), "tiles", None) or n_k
    return [*range(0, n_k, max(1, -(-n_k // most))), n_k]
