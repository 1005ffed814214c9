"""Which linear attention a benchmark's reference may compute: what the names, axes and sizes of its inputs allow.

A gate with fewer axes than the keys is one a token or a head; with as many axes it is one for each feature. Norms, a
scale and the layout of a state leave no trace in the inputs: they are tried in turn, the published models first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np

from symattn.bounds.called_target import Layout
from symattn.bounds.domain import Domain
from symattn.document.errors import InputError
from symattn.document.keywords import plain
from symattn.programs.names import match_names
from symattn.verification.definitions.definition_subject import Input
from symattn.verification.definitions.linear import LinearAttention
from symattn.verification.definitions.linear_inputs import (
    WORDS_OF_STATES,
    yield_linear_inputs,
)
from symattn.verification.definitions.linear_names import RECURRENCES

#: The axes of an array: their sizes, or their names where sizes are open.
Axes = Sequence[int | str]
#: Orders of axes by the number of those of q. Names of heads and tokens may be exchanged.
_LAYOUTS: Mapping[int, Layout] = {2: "nd", 3: "bnd", 4: "bhnd"}
#: Axes that may be those of heads, with tokens after or before them, on the other one of these axes.
AXES_OF_HEADS = (-3, -2)
#: Norms of queries and keys in libraries: none, with an ε, and without one.
_NORMS: tuple[dict[str, Any], ...] = (
    {"qk_norm": None, "eps": 0},
    {"qk_norm": "l2", "eps": Fraction(1, 10**6)},
    {"qk_norm": "l2", "eps": 0},
)
_STATES = (None, "kv", "vk")
#: Names of the state before the first token.
_STATE_NAMES = {plain(name) for name in ("initial_state", *WORDS_OF_STATES.split())}
#: The sum of keys times values alone, which no published model in the list has.
_UNGATED: dict[str, Any] = {"feature": "identity", "normalised": False}
#: The same with one decay a token, where the list has one a feature.
_WITH_GATES_OF_TOKENS = {**_UNGATED, "gate": "token"}
_ROLES = ("q", "k", "v")


def plausible_recurrences(
    arrays: Mapping[str, Axes], returns_state: bool | None = None
) -> tuple[LinearAttention, ...]:
    """Return the linear attentions that have these arrays as inputs, the likeliest first.

    ``returns_state`` says whether there is a second output; None if that is unknown, so that an initial state decides.
    """
    by_role = _axes_by_role(arrays)
    if not by_role.keys() >= {*_ROLES} or len(by_role["q"]) not in _LAYOUTS:
        return ()
    layout = _LAYOUTS[len(by_role["q"])]
    values_per_key = _count_values_per_key(by_role["q"], by_role["v"])
    specs = [
        spec
        for spec in _yield_specifications(values_per_key)
        if returns_state in (None, spec.state is not None) and _takes_arrays(spec, layout, arrays)
    ]
    # Where no array is a state of its own, one that starts from zeros is rarely returned.
    stateless = [spec for spec in specs if spec.state is None]
    return (*stateless, *(spec for spec in specs if spec.state is not None))


def domain_of_recurrence(arrays: Mapping[str, Axes], usual: Domain) -> Domain:
    """Return what the sizes of a benchmark's arrays promise: no longer sequences, and equal widths where they are."""
    by_role = _axes_by_role(arrays)
    # Arrays of a user's definition may be those of something else, which promise nothing.
    if any(len(by_role.get(role, ())) < len("nd") for role in _ROLES):
        return usual
    length = by_role["v"][_axis_of_tokens(arrays)]
    most = length if isinstance(length, int) else usual.max_tokens
    return replace(
        usual,
        max_tokens=max(min(most, usual.max_tokens), 1),
        same_width=by_role["q"][-1] == by_role["v"][-1],
    )


def _axes_by_role(arrays: Mapping[str, Axes]) -> dict[str, Axes]:
    """Return the axes of queries, keys and values, which models of states call C, B and x, and others r, k and v."""
    inputs = islice(yield_linear_inputs(LinearAttention(), "bhnd"), len(_ROLES))
    return {role: arrays[name] for name, role in _match_inputs(inputs, arrays).items()}


def _axis_of_tokens(arrays: Mapping[str, Axes]) -> int:
    """Return the axis of tokens of q, k, v, counted from the last one.

    A state, and numbers for each head, tell which of two axes is that of heads. Otherwise the longer one, or the one of
    no constant size, is that of tokens.
    """
    v = _axes_by_role(arrays)["v"]
    if len(v) < 4:
        return -2
    # A state (…, h, d_k, d_v) has its heads where it has no columns.
    of_heads = {axes[0] for axes in arrays.values() if len(axes) == 1}
    states = [axes for name, axes in arrays.items() if plain(name) in _STATE_NAMES]
    of_heads |= {axes[-3] for axes in states if len(axes) > len(("d_k", "d_v"))}
    is_of_heads = [v[axis] in of_heads for axis in AXES_OF_HEADS]
    if sum(is_of_heads) == 1:
        return AXES_OF_HEADS[is_of_heads.index(False)]
    first, second = (v[axis] for axis in AXES_OF_HEADS)
    if isinstance(first, int) and isinstance(second, int):
        return AXES_OF_HEADS[0] if first > second else AXES_OF_HEADS[1]
    return AXES_OF_HEADS[1] if isinstance(first, int) else AXES_OF_HEADS[0]


def cut_recurrence(
    arrays: Mapping[str, np.ndarray], max_entries: int
) -> tuple[np.ndarray, ...] | None:
    """Return the arrays of a linear attention with a few heads of a few items; None if they are of something else.

    Tokens stay, since later ones depend on all before. An array has at most ``max_entries``, if one head has.
    """
    shapes = {name: a.shape for name, a in arrays.items()}
    specs = plausible_recurrences(shapes)
    if not specs or len(arrays) <= len(_ROLES):
        return None
    letters = letters_by_name(specs[0], layout_of_arrays(shapes), arrays)
    largest = max(arrays, key=lambda name: arrays[name].size)
    sizes = dict(zip(letters[largest], arrays[largest].shape, strict=True))
    counts: dict[str, int] = {}
    for letter in ("b", "h"):
        whole = next((axis for axis in sizes if axis.split("*")[-1] == letter), None)
        if whole is None:
            continue
        per_letter = factor_of(whole)
        items = sizes[whole] // per_letter
        rest = prod(counts.get(axis, size) for axis, size in sizes.items() if axis != whole)
        counts[whole] = per_letter * max(1, min(items, max_entries // max(rest * per_letter, 1)))
        counts[letter] = counts[whole] // per_letter
    return tuple(
        np.ascontiguousarray(a[tuple(slice(_kept_size(axis, counts)) for axis in letters[name])])
        for name, a in arrays.items()
    )


def layout_of_arrays(arrays: Mapping[str, Axes]) -> Layout:
    """Return the likely order of the axes of q, k, v."""
    layout = _LAYOUTS[len(_axes_by_role(arrays)["q"])]
    return "bnhd" if layout == "bhnd" and _axis_of_tokens(arrays) == -3 else layout


def letters_by_name(
    spec: LinearAttention, layout: Layout, names: Iterable[str]
) -> dict[str, list[str]]:
    """Return the letters of the axes of each array, by the name of its parameter."""
    inputs = [*yield_linear_inputs(spec, layout)]
    letters = {i.name: i.shape.split() for i in inputs}
    return {name: letters[own] for name, own in _match_inputs(inputs, names).items()}


def _match_inputs(inputs: Iterable[Input], names: Iterable[str]) -> dict[str, str]:
    return match_names({i.name: i.words for i in inputs}, names)


def factor_of(axis: str) -> int:
    """Return the number before the letter of an axis, as in ``2*h``."""
    factor, star, _ = axis.rpartition("*")
    return int(factor) if star else 1


def _kept_size(axis: str, counts: Mapping[str, int]) -> int | None:
    """Return how many items along an axis are kept; None for all."""
    items = counts.get(axis.split("*")[-1])
    return None if items is None else items * factor_of(axis)


def _yield_specifications(values_per_key: int) -> Iterator[LinearAttention]:
    """Yield the published recurrences, and those with another norm, scale, state or form of gates, each once."""
    known: set[LinearAttention] = set()
    numbers = product(range(3), range(2), range(3), range(2), range(2))
    for changes in sorted(numbers, key=_count_changes):
        for fields in _yield_published_fields():
            spec = _with_changes({**fields, "values_per_key": values_per_key}, *changes)
            if spec is not None and spec not in known:
                known.add(spec)
                yield spec


def _yield_published_fields() -> Iterator[dict[str, Any]]:
    """Yield the fields of published models, also without a skip, which may stand outside of a kernel."""
    for named in RECURRENCES.values():
        yield named.fields
        if named.fields.get("skip"):
            yield {**named.fields, "skip": False}
    yield from (_UNGATED, _WITH_GATES_OF_TOKENS)


def _count_changes(changes: Sequence[int]) -> int:
    return sum(change > 0 for change in changes)


def _with_changes(
    fields: Mapping[str, Any], norm: int, scale: int, state: int, gates: int, betas: int
) -> LinearAttention | None:
    """Return a recurrence with the norm and the layout of the state that these numbers count; None if there is none.

    Norms are counted from the model's own one; ``scale`` exchanges whether there is a scale, ``gates`` and ``betas``
    are 1 for raw ones, or raw steps.
    """
    own_norm = {"qk_norm": fields.get("qk_norm"), "eps": fields.get("eps", 0)}
    norms = [own_norm, *(other for other in _NORMS if other != own_norm)]
    if norm >= len(norms):
        return None
    changed: dict[str, Any] = {**fields, **norms[norm], "state": _STATES[state]}
    changed["scale"] = bool(fields.get("scale", False)) != bool(scale)
    # Of a model with steps these are raw, and its rates are not.
    raw = "step_form" if fields.get("step") else "gate_form"
    changed[raw] = "softplus" if gates else None
    changed["beta_form"] = "sigmoid" if betas else None
    try:
        return LinearAttention(**changed)
    except InputError:
        return None  # fields that exclude each other


def _count_values_per_key(q: Axes, v: Axes) -> int:
    """Return how many heads of values there are for each of queries; 1 if no axis shows several."""
    for axis in AXES_OF_HEADS:
        # Without an axis in front of the tokens there are no heads.
        if len(q) < -axis or len(v) != len(q):
            continue
        of_keys, of_values = q[axis], v[axis]
        if isinstance(of_keys, int) and isinstance(of_values, int) and of_values > of_keys > 0:
            return of_values // of_keys if of_values % of_keys == 0 else 1
    return 1


def _takes_arrays(spec: LinearAttention, layout: Layout, arrays: Mapping[str, Axes]) -> bool:
    """Return whether the arrays are the inputs of a linear attention, by their names, numbers of axes and widths."""
    try:
        inputs = [*yield_linear_inputs(spec, layout)]
    except InputError:
        return False
    matched = _match_inputs(inputs, arrays)
    letters = {i.name: i.shape.split() for i in inputs}
    return (
        matched.keys() == arrays.keys()
        and all(len(letters[own]) == len(arrays[name]) for name, own in matched.items())
        and all(i.name in matched.values() for i in inputs if i.needed)
        and _widths_agree({name: letters[own] for name, own in matched.items()}, arrays)
    )


def _widths_agree(letters: Mapping[str, Sequence[str]], arrays: Mapping[str, Axes]) -> bool:
    """Return whether keys, and values, have one width in all arrays: a state (d_k, d_v) differs from one (d_v, d_k)."""
    pairs = [
        pair
        for name, of_array in letters.items()
        for pair in zip(of_array, arrays[name], strict=True)
    ]
    of_letters = (
        {size for letter, size in pairs if letter == width and isinstance(size, int)}
        for width in ("d_k", "d_v")
    )
    return all(len(sizes) <= 1 for sizes in of_letters)
