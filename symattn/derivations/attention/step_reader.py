"""A reader of the formulas of a step: letters are its arrays in a run, or entries of them.

The index of the head is left out if it is the same everywhere; indices may be computed, as in x_{i,l+1}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import add
from typing import Any

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.special import FORBIDDEN
from symattn.attention.flow import Step
from symattn.attention.inputs import shape as shape_of
from symattn.attention.letters_of_attention import SIZES, SYMBOLS, H
from symattn.attention.projections import merge_heads
from symattn.derivations.attention import words
from symattn.derivations.attention.entry_formulas import entry
from symattn.derivations.attention.inputs import DerivationRequest
from symattn.document import notation as nt
from symattn.document.notation import Name, Node, Relation
from symattn.document.text import text
from symattn.proof.relations import part_values as v
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Found, Unread, Value
from symattn.proof.relations.reader import Reader

HEAD = "a"
_LETTERS = "aijlm"
_HEADS = ("h", "h?", "g", "j", "1")


class StepReader(Reader):
    """A reader of the formulas of ``step``; ``arrays`` holds every array of a run."""

    def __init__(
        self,
        request: DerivationRequest,
        step: Step,
        arrays: Mapping[str, Any],
        relation: Relation,
        definitions: tuple[Relation, ...],
        conditional: bool,
        kind: Any = Ball,
    ) -> None:
        self.request, self.step, self.kind = request, step, kind
        self.here = {
            name: self._lift_integers_to_kind(arrays[name])
            for name in dict.fromkeys((*step.of, step.name))
        }
        self.given = {
            name: arrays[name] for name in self.here if not isinstance(arrays[name], kind)
        }
        self.raw = {text(entry(name)): name for name in self.here}
        if "scaled" in step.of and request.spec.scale == 1:
            self.raw.setdefault(text(entry("scores")), "scaled")  # S′ = S
        whole = {name: shape_of(name, request.spec, request.names) for name in self.here}
        self.axes = {
            name: _split_axis_letters(shape, self.here[name].ndim) for name, shape in whole.items()
        }
        for letter, frequencies in words.frequencies(request, step, self.here, kind).items():
            self.raw[letter], self.here[letter], self.axes[letter] = letter, frequencies, ["f"]
        self.outside: list[Value] = []
        self.special = words.places(request, step)
        lengths: dict[str, Any] = dict(request.lengths)
        pairs = [
            self.here[name].shape[-1] for name, axes in self.axes.items() if axes[-1:] == ["f"]
        ]
        lengths |= {"f": pairs[0]} if pairs else {}
        own = {
            f for axes in self.axes.values() for axis in axes for f in axis.rstrip("?").split("*")
        }
        # d_model is the width of x or y, whichever the step has.
        ordered = sorted(SIZES.items(), key=lambda size: size[0] in own)
        sizes = {text(node): letter for letter, node in ordered if letter in lengths}
        sizes |= {text(H * SIZES[d]): f"h*{d}" for d in ("d_v", "d_k")}
        glossary = Glossary(sizes=sizes, index={letter: f"@{letter}" for letter in _LETTERS})
        for definition in definitions:
            glossary = glossary.with_definition(definition)
        letters = {
            text(SYMBOLS[name]): lambda reader, name=name: reader.whole(name) for name in whole
        }
        defined = words.letters(self) | letters
        super().__init__(glossary.also(defined=defined), {"": kind.lift(1)}, lengths)
        for each in (relation, *definitions):
            self._bound_free_indices(each, each is relation and conditional)
        self._check_indices_cover_axes(relation.first)

    # -- ranges of indices ---------------------------------------------------------------------------------------
    def _bound_free_indices(self, relation: Relation, left_only: bool) -> None:
        """Set the range of each free index to the length of the axes that it indexes."""
        for array, indices in self._find_array_occurrences(
            relation.first if left_only else relation
        ):
            if self._spans_heads(array, indices):
                continue  # its columns are those of all heads
            for index, axis, length in self._axes_at(array, indices):
                if (
                    isinstance(index, Name)
                    and index.base in _LETTERS
                    and not ("?" in axis and length == 1)
                ):
                    key = f"@{index.base}"
                    self.lengths[key] = min(self.lengths.get(key, length), length)  # type: ignore[index]
        has_groups = any(axes[:1] == ["g"] for axes in self.axes.values())
        grouped = has_groups and "b" not in self.special
        for letter, size in ((HEAD, "g" if grouped else "h"), ("i", "n_q"), ("j", "n_k")):
            self.lengths.setdefault(f"@{letter}", self.lengths[size])  # type: ignore[attr-defined]

    def _axes_at(self, array: str, indices: tuple[Node, ...]) -> list[tuple[Node, str, int]]:
        """Return each index with its axis and the axis's length; the head's index may be left out."""
        axes, shape = self.axes[array], self.here[array].shape
        fewer_indices = len(indices) < len(axes)
        hidden = fewer_indices and len(axes) > 1 and axes[0] in _HEADS
        return list(zip(indices, axes[hidden:], shape[hidden:], strict=False))

    def _check_indices_cover_axes(self, left: Node) -> None:
        """Raise Unread unless letters on the left run over their whole axis, or half of an axis rotated in pairs."""
        for array, indices in self._find_array_occurrences(left):
            for index, _, length in self._axes_at(array, indices):
                paired = array.endswith("_rotated") and index == Name("l")
                free = isinstance(index, Name) and index.base in _LETTERS and not paired
                if free and self.length(f"@{text(index)}") < length:
                    raise Unread(f"the index {text(index)} does not run over its axis")

    def _find_array_occurrences(self, x: Node) -> list[tuple[str, tuple[Node, ...]]]:
        """Return the entries of arrays in a formula."""
        array, indices = self._entry_of(x)
        if array is not None:
            return [(array, indices)]
        return [result for part in nt.parts(x) for result in self._find_array_occurrences(part)]

    def _spans_heads(self, array: str, indices: tuple[Node, ...]) -> bool:
        """Return whether an entry of an array with the heads apart is indexed by the columns of all heads."""
        joined = self.step.joins_heads and array == self.step.of[0]
        return joined and max(len(indices), 2) < self.here[array].ndim

    def check_places(self, where: Value, letters: tuple[str, ...]) -> None:
        """Raise Unread if an index is outside its axis where the formula is claimed to hold."""
        # An index may leave its axis only where nothing is claimed.
        for off in self.outside:
            axes_of_off = enumerate(off.letters)
            summed = tuple(axis for axis, letter in axes_of_off if letter not in letters)
            free = Value(
                off.array.any(axis=summed),
                tuple(letter for letter in off.letters if letter in letters),
            )
            both = np.logical_and(v.spread(free, letters, 0), v.spread(where, letters, 0))
            if np.any(both):
                raise Unread("an index beyond its axis")

    # -- letters -------------------------------------------------------------------------------------------------
    def _entry_of(self, x: Node) -> tuple[str | None, tuple[Node, ...]]:
        """Return the array of which a letter with indices, or cos(θ_il), is an entry, and the indices."""
        letter = x.arguments[0] if isinstance(x, nt.Call) and len(x.arguments) == 1 else x
        # The longest part of the name that is an array's comes first.
        for cut in reversed(range(len(letter.sub) if isinstance(letter, Name) else 0)):
            assert isinstance(letter, Name)
            stem = Name(letter.base, letter.sub[:cut])
            key = nt.Call(x.function, (stem,)) if isinstance(x, nt.Call) else stem
            array = self.raw.get(text(key))
            # Of the array the rest are indices, which may stand in one subscript.
            if array is not None:
                return array, tuple(
                    p
                    for s in letter.sub[cut:]
                    for p in (s.parts if isinstance(s, nt.Commas) else (s,))
                )
        return None, ()

    def _name(self, x: Name) -> Found:
        # A word of the text may be spelt like an array: the text's own meaning comes first.
        if text(x) in self.glossary.defined:
            return super()._name(x)
        array, indices = self._entry_of(x)
        return super()._name(x) if array is None else self.entry(array, indices)

    def whole(self, array: str) -> Value:
        """Return an array with its heads as a free index; a vector is repeated in every row."""
        x, axes = self.here[array], self.axes[array]
        letters: tuple[str, ...] = ()
        if axes and axes[0] in _HEADS and (len(axes) != 1 or axes[0] == "h"):
            letters, axes = (HEAD,), axes[1:]
        if (
            array in ("w_uk", "w_uv")
            and self.step.name in ("q_absorbed", "attended")
            and self.request.spec.heads > 1
        ):
            heads = self.request.spec.heads
            blocks = x.reshape((x.shape[0], heads, x.shape[1] // heads))
            return Value(blocks.xp.permute_dims(blocks, (1, 0, 2)), (HEAD,), 2)
        # A vector with a number for each query is a column.
        if len(axes) == 1 and axes != ["n_q"]:
            return Value(x[..., None, :], letters, 2)
        return Value(x, letters, len(axes))

    def entry(self, array: str, indices: tuple[Node, ...]) -> Value:
        """Return an entry or a row of an array; without the index of the head, for every head."""
        x, axes = self.here[array], self.axes[array]
        if self._spans_heads(array, indices):
            x, axes = merge_heads(x), axes[1:]
        # Without the index of a head the formula is for every head.
        elif len(indices) < x.ndim and axes[0] in _HEADS and x.ndim > 1:
            indices = (nt.node(1) if axes[0] == "1" else Name(HEAD), *indices)
        if len(indices) > x.ndim:
            raise Unread("more indices than axes")
        places = [self.place(index, array) for index in indices]
        letters = tuple(dict.fromkeys(letter for place in places for letter in place.letters))
        result: list[Any] = [
            *np.broadcast_arrays(*(v.spread(place, letters, 0) - 1 for place in places))
        ]
        lengths_of_letters = [self.length(self.sort(letter)) for letter in letters]
        off = np.zeros(lengths_of_letters, dtype=bool)
        for axis, at in enumerate(result):
            # A head that keys share has one entry for all.
            shared = x.shape[axis] == 1 and "?" in axes[axis]
            at = at * 0 if shared else at
            off = off | (at < 0) | (at >= x.shape[axis])
            # Entries outside are clipped, since ``off`` says that they do not count.
            result[axis] = np.clip(at, 0, x.shape[axis] - 1)
        self.outside.append(Value(off, letters))
        picked = x.entries[tuple(result)]
        rank = x.ndim - len(indices)
        return Value(self.kind(np.asarray(picked, dtype=object)), letters, rank, rank == 1)

    def place(self, index: Node, array: str = "") -> Value:
        """Return a computed index, counted from 1, in integers, or where a relation between indices holds: 1, else 0.

        Letters that other indices determine may have a meaning of their own in the indices of an array.
        """
        own = self.special.get(f"δ {array}")
        special = {**self.special, "δ": own} if own else self.special
        defined = {letter: lambda _, x=x: x for letter, x in special.items()}
        reader = Reader(replace(self.glossary, defined=defined), {"": np.asarray(1)}, self.lengths)
        reader.sums = self.sums
        result = reader.one(index)
        # An index is a whole number.
        if result.rank or result.array.dtype.kind != "i":
            raise Unread(f"the index {text(index)}")
        return result

    # -- formulas ------------------------------------------------------------------------------------------------
    def _sum(self, x: nt.Sum) -> Value:
        """Return a sum in which a number is added to every entry."""
        total, *others = map(self.one, x.terms)
        for other in others:
            total = v.both(total, other, add)
        return total

    def _neg(self, x: nt.Neg) -> Value:
        if x.body == Name("∞"):
            return Value(self.kind(np.asarray(FORBIDDEN, dtype=object)))
        return super()._neg(x)

    def _transposed(self, x: nt.Transposed) -> Value:
        result = self.one(x.body)
        if result.rank != 2:
            raise Unread("the transpose of what is not a matrix")
        return super()._transposed(x)

    def _call(self, x: nt.Call) -> Found:
        whole = self.letter(text(x))
        if whole is not None:
            return whole
        table, indices = self._entry_of(x)
        if table is not None:
            return self.entry(table, indices)
        return words.call(self, x) or super()._call(x)

    def parts(self, x: nt.Call) -> list[Node]:
        """Return the arguments one by one."""
        return [p for a in x.arguments for p in (a.parts if isinstance(a, nt.Commas) else (a,))]

    def _lift_integers_to_kind(self, x: Any) -> Any:
        """Return truth values and integers as numbers of the kind."""
        whole = np.vectorize(int, otypes=[object])
        if isinstance(x, self.kind):
            return x
        return self.kind.lift(np.array(whole(x), dtype=object))


def _split_axis_letters(shape: str, ndim: int) -> list[str]:
    """Return the letters of axes without batches; with the optional axis of heads if the array has it."""
    axes = shape.replace("…", "").replace("(h?)", "").split()
    return ["h?", *axes] if ndim > len(axes) else axes
