"""Requests of a derivation of attention, and letters for their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from symattn.arrays.special import FORBIDDEN
from symattn.attention.codec.field_values import field_of
from symattn.attention.inputs import OPTIONAL, holds, lengths, needed, same_letters
from symattn.attention.inputs import factors as factors_of
from symattn.attention.positions.checks import known_sizes, least_width
from symattn.attention.positions.position_fields import Disentangled, Rotary
from symattn.attention.spec import Attention
from symattn.derivations.attention import FLAGS, SIZES
from symattn.derivations.parameters import whole
from symattn.document.errors import InputError

# Larger examples do not fit on a page.
_MOST = {"tokens": 6, "keys": 6, "heads": 6, "dk": 8, "dv": 8, "dmodel": 16}
MASKS = ("mask", "keep", "doc", "doc_q", "doc_k")
_MOST_OTHER, _MOST_ENTRIES = 16, 400  # length of any other size; entries of an array


@dataclass(frozen=True)
class DerivationRequest:
    """The specification, the names of its inputs, and the requested sizes by letter."""

    spec: Attention
    names: tuple[str, ...]
    sizes: Mapping[str, int]
    masks: Mapping[str, Any] = field(default_factory=dict)  # in the place of examples

    @property
    def n_q(self) -> int:
        """Number of queries."""
        return self.sizes["n_q"]

    @property
    def n_k(self) -> int:
        """Number of keys."""
        return self.sizes["n_k"]

    @property
    def projected(self) -> bool:
        """Whether queries, keys and values come from tokens."""
        return "x" in self.names

    @cached_property
    def lengths(self) -> dict[str, int]:
        """The length of every letter, including those of steps."""
        spec = self.spec
        known = {**spec.counts, **self.sizes}
        known |= {"d_t": spec.truncate} if spec.truncate else {}
        # The latent's columns and those of positions stand side by side.
        known |= {"d_c": known["l"] + known["d_r"]} if spec.latent else {}
        if isinstance(spec.position, Rotary) and spec.position.given != "tables":
            # Rotations turn pairs, so that there is a frequency for two columns.
            width = spec.position.width or known["d_r" if spec.latent else "d_k"]
            known["f"] = len(spec.position.triples or ()) or width // 2
        same = same_letters(spec, self.names).items()
        return known | {a: known[b] for a, b in same if b in known}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every input; d_k and d_v are those of one head."""
        return {name: lengths(name, self.spec, self.names, self.sizes) for name in self.names}

    def letters(self) -> list[str]:
        """Return the letters of sizes that the inputs have."""
        results = (
            letter for name in self.names for letter in factors_of(name, self.spec, self.names)
        )
        return [letter for letter in dict.fromkeys(results) if not letter.isdecimal()]

    def inputs(
        self, numbers: Callable[[str, tuple[int, ...]], object] | None = None
    ) -> dict[str, Any]:
        """Return letters for every input, or the result of ``numbers``; truth values and integers are an example."""
        if numbers is None:
            from symattn.arrays.symbolic import (
                Symbolic,
            )  # which imports SymPy: walks are in numbers

            numbers = lambda name, shape: Symbolic.letters(stem(name), *shape)  # noqa: E731
        result: dict[str, Any] = {
            name: numbers(name, shape)
            if holds(name, self.spec) == "numbers"
            else self.example(name, shape)
            for name, shape in self.shapes().items()
        }
        if self.spec.mask == "additive":
            entries = result["mask"].entries.copy()
            entries[~self.example("mask", entries.shape)] = FORBIDDEN
            result["mask"] = type(result["mask"])(entries)
        return result

    def example(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return an example: a mask lets a query see its own key and those two, four, … further; the last key is
        padding, the last third of the tokens another document; a weight in five is dropped; positions are in order."""
        if name in self.masks:
            result: np.ndarray = self.masks[name]
            return result
        if name == "mask":
            i = np.arange(shape[-2])[:, None]
            j = np.arange(shape[-1])[None, :]
            # Every second key, so that rows differ and each sees itself.
            pattern: np.ndarray = np.broadcast_to((i - j) % 2 == 0, shape)
            return pattern
        if name == "keep":
            # The last key is padding, unless it is the only one.
            real_count = max(1, shape[-1] - 1)
            real: np.ndarray = np.arange(shape[-1]) < real_count
            return real
        if name == "drop":
            numbered = np.arange(int(np.prod(shape)))
            values: np.ndarray = (numbered % 5 != 3).reshape(shape)
            return values
        places = np.arange(shape[-1])
        # Rows of sections differ, or a wrong row would not show.
        if name.startswith("positions") and len(shape) > 1:
            rows: np.ndarray = places + places * np.arange(shape[0])[:, None] % 3
            return rows
        # The first two thirds of the tokens are one document.
        return places if name.startswith("positions") else places * 3 // (2 * shape[-1])

    def allowed(self) -> np.ndarray:
        """Return which key each query may attend to, directly by the conditions: (n_q, n_k) or (h, n_q, n_k)."""
        shapes = self.shapes().items()
        masks = {n: self.example(n, shape) for n, shape in shapes if n in MASKS}
        values = np.array(
            [[self._is_key_visible(masks, i, j) for j in range(self.n_k)] for i in range(self.n_q)]
        )
        return values & np.asarray(masks["mask"], dtype=bool) if self.spec.mask else values

    def _is_key_visible(self, masks: Mapping[str, Any], i: int, j: int) -> bool:
        """Return whether query i may attend to key j by everything except a given mask."""
        spec = self.spec
        if spec.padding and not masks["keep"][j]:
            return False
        aligned = spec.alignment == "bottom-right"
        if not spec.documents:
            return _is_key_within_reach(spec, i + (self.n_k - self.n_q if aligned else 0), j)
        queries, keys = (
            list(masks[name if name in masks else "doc"]) for name in ("doc_q", "doc_k")
        )
        label = queries[i]
        # Each document is aligned by its own numbers of queries and keys.
        offset = keys.count(label) - queries.count(label) if aligned else 0
        # Places are counted within the document.
        query_place = queries[:i].count(label) + offset
        earlier_keys = keys[:j].count(label)
        return keys[j] == label and _is_key_within_reach(spec, query_place, earlier_keys)

    def every_row_has_a_key(self) -> bool:
        """Return whether every query may attend to some key."""
        return bool(self.allowed().any(axis=-1).all())


def _is_key_within_reach(spec: Attention, place: int, j: int) -> bool:
    """Return whether a key is not ahead, within the window, in the same block."""
    left, right = spec.sides
    causal = j <= place or (spec.prefix is not None and j < spec.prefix)
    left_near = left is None or place - j <= left
    near = left_near and (right is None or j - place <= right)
    together = spec.block is None or place // spec.block == j // spec.block
    return (causal or not spec.causal) and near and together


def stem(name: str) -> str:
    """Return the word with which the letters of an array's entries begin: its name without underscores."""
    return name.replace("_", "")


def read_request(**parameters: Any) -> DerivationRequest:
    """Read the parameters: sizes, ``cross``, ``biases``, ``size`` (``l=4,d_r=2``) and fields of ``Attention``.

    Raises InputError if they do not fit each other.
    """
    options = {name: value for name, value in parameters.items() if value is not None}
    sizes = {name: options.pop(name) for name in SIZES if name in options}
    for parameter, value in sizes.items():
        whole(parameter, value, _MOST[parameter])
    if "heads" in options:
        whole("heads", options["heads"], _MOST["heads"])
    flags = {name: bool(options.pop(name, False)) for name in FLAGS}
    others = _parse_other_sizes(options.pop("size", None))
    spec = Attention(
        **{name: field_of(Attention, name, value, name) for name, value in options.items()}
    )
    # Heads and packed projections are made from tokens.
    projected = bool(
        "dmodel" in sizes or spec.heads > 1 or spec.packed or spec.latent or any(flags.values())
    )
    if (
        "keys" in sizes
        and projected
        and not flags["cross"]
        # Self-attention has as many keys as tokens.
        and sizes["keys"] != sizes.get("tokens", 3)
    ):
        tokens = sizes.get("tokens", 3)
        raise InputError(
            f"n_k: a sequence that attends to itself has {tokens} keys; hint: cross, or leave n_k out"
        )
    names = _list_possible_inputs(spec, projected, **flags)
    request = DerivationRequest(
        spec, names, {**_choose_size_lengths(spec, sizes, projected), **others}
    )
    _check_derivation_request(request)
    return request


def _list_possible_inputs(
    spec: Attention, projected: bool, cross: bool, biases: bool
) -> tuple[str, ...]:
    """Return the names of all inputs that the specification can take, with ``biases`` those of projections too."""
    names = ["q", "k", "v"]
    if projected:
        names = ["x", *(["y"] if cross else [])]
        names += [] if spec.packed or spec.latent else ["w_q", "w_k", "w_v"]
        names += ["w_q"] if spec.latent and not spec.latent.queries else []
        biases_wanted = biases and not spec.latent
        names += [f"b_{n[2:]}" for n in names if n[0] == "w"] if biases_wanted else []
        names += ["w_o", *(["b_o"] if biases else [])] if spec.heads > 1 else []
    names += needed(spec, names)
    # Queries and keys of different sequences have labels of their own.
    if "doc" in names and (cross or not projected):
        names = [n for n in names if n != "doc"] + ["doc_q", "doc_k"]
    asked_for = {"b_in": biases, "b_pk": biases, "b_pq": biases}
    left_out = (
        "doc",
        "doc_q",
        "doc_k",
        "cos_q",
        "sin_q",
        "positions_q",
        *(n for n, w in asked_for.items() if not w),
    )
    optional = OPTIONAL.items()
    names += [name for name, wanted in optional if wanted(spec) and name not in left_out]
    return tuple(dict.fromkeys(names))


def _choose_size_lengths(
    spec: Attention, request: Mapping[str, int], projected: bool
) -> dict[str, int]:
    """Return the length of every letter of a size."""
    rotated = isinstance(spec.position, Rotary)
    d_r = 2 if rotated else 1
    least = least_width(spec, 2) if rotated else 2
    d_k = request.get("dk") or (d_r + 1 if spec.latent else least)
    n_q = request.get("tokens", 3)
    n_k = request.get("keys", n_q)
    d_model = request.get("dmodel") or spec.heads * d_k
    width = (
        spec.position.width if isinstance(spec.position, Rotary) and spec.position.width else d_k
    )
    wide = d_k + 1 if spec.score in ("general", "additive") and not projected else d_k
    n_r = n_k if spec.causal else n_q + n_k - 1
    return {
        "n_q": n_q,
        "n_k": n_k,
        "d_k": d_k,
        "d_v": d_k if spec.packed else request.get("dv") or d_k,
        "d_s": wide,
        "d_w": 2 if spec.score == "additive" else wide,
        "l_a": 2,
        "d_model": d_model,
        "d_y": d_model,
        "d_out": d_model,
        "l": 2,
        "l_q": 2,
        "d_r": d_r,
        "d_n": d_k - d_r,
        "f": width // 2,
        "n_r": n_r,
        "d_e": 2,
        **known_sizes(spec),
    }


def _parse_other_sizes(text: str | None) -> dict[str, int]:
    """Read sizes by letter, from ``l=4,d_r=2``."""
    from symattn.attention.letters_of_attention import SIZES as LETTERS

    result = {}
    for pair in filter(None, (text or "").split(",")):
        letter, _, number = pair.partition("=")
        if letter not in LETTERS or not number.isdecimal() or not 1 <= int(number) <= _MOST_OTHER:
            known = ", ".join(LETTERS)
            raise InputError(
                f"size: {pair!r} is not a letter of a size with an integer from 1 to {_MOST_OTHER}, "
                f"such as l=4; letters: {known}"
            )
        result[letter] = int(number)
    return result


def _check_derivation_request(request: DerivationRequest) -> None:
    """Raise InputError for sizes that do not fit, or inputs too large to be read."""
    from symattn.attention.inputs import check_inputs

    # A latent needs columns without positions.
    if request.spec.latent and request.sizes["d_n"] < 1:
        raise InputError(f"d_k is {request.sizes['d_k']}; a latent needs d_n = d_k − d_r from 1 on")
    for name, shape in request.shapes().items():
        if int(np.prod(shape)) > _MOST_ENTRIES:
            size = " × ".join(map(str, shape))
            raise InputError(
                f"{name} has {size} entries; at most {_MOST_ENTRIES} are written; hint: smaller sizes"
            )
    if isinstance(request.spec.position, Disentangled | Rotary) or request.spec.latent:
        check_inputs(request.spec, request.inputs())
