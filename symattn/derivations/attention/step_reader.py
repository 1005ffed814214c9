"""A reader of the formulas of a step: letters are its arrays in a run, or entries of them.

The index of the head is left out if it is the same everywhere; indices may be computed, as in x_{i,l+1}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import add, mul, truediv
from typing import Any

import numpy as np

from symattn.arrays.ball import Ball
from symattn.arrays.special import FORBIDDEN
from symattn.attention.flow import Step
from symattn.attention.inputs import shape as shape_of
from symattn.attention.letters_of_attention import SIZES, SYMBOLS, TIMES, H
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
_SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    "≤": np.less_equal, "<": np.less, "≥": np.greater_equal, ">": np.greater,
}  # fmt: skip


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
        self.here = {name: self._lifted(arrays[name]) for name in dict.fromkeys((*step.of, step.name))}
        self.given = {name: arrays[name] for name in self.here if not isinstance(arrays[name], kind)}
        self.raw = {text(entry(name)): name for name in self.here if isinstance(SYMBOLS[name], Name)}
        self.symbols = {text(SYMBOLS[name]): name for name in self.here}
        if "scaled" in step.of and request.spec.scale == 1:
            self.raw.setdefault(text(entry("scores")), "scaled")  # S′ = S
        whole = {name: shape_of(name, request.spec, request.names) for name in self.here}
        self.axes = {name: _axes(shape, self.here[name].ndim) for name, shape in whole.items()}
        for letter, frequencies in words.frequencies(request, step, self.here, kind).items():
            self.raw[letter], self.here[letter], self.axes[letter] = letter, frequencies, ["f"]
        self.outside: list[tuple[tuple[str, ...], Any]] = []
        self.special = words.places(request, step)
        lengths: dict[str, Any] = dict(request.lengths)
        pairs = [self.here[name].shape[-1] for name, axes in self.axes.items() if axes[-1:] == ["f"]]
        lengths |= {"f": pairs[0]} if pairs else {}
        own = {f for axes in self.axes.values() for axis in axes for f in axis.rstrip("?").split("*")}
        # d_model is the width of x or y, whichever the step has.
        ordered = sorted(SIZES.items(), key=lambda size: size[0] in own)
        sizes = {text(node): letter for letter, node in ordered if letter in lengths}
        sizes |= {text(H * SIZES[d]): f"h*{d}" for d in ("d_v", "d_k")}
        lengths |= {f"h*{d}": lengths["h"] * lengths[d] for d in ("d_v", "d_k")}
        glossary = Glossary(sizes=sizes, index={letter: f"@{letter}" for letter in _LETTERS})
        for definition in definitions:
            glossary = glossary.with_definition(definition)
        super().__init__(glossary, {"": kind.lift(1)}, lengths)
        for each in (relation, *definitions):
            self._bound(each, each is relation and conditional)
        self._covered(relation.first)

    # -- ranges of indices ---------------------------------------------------------------------------------------
    def _bound(self, relation: Relation, left_only: bool) -> None:
        """Set the range of each free index to the length of the axes that it indexes."""
        for array, indices in self._occurrences(relation.first if left_only else relation):
            if self._spans_heads(array, indices):
                continue  # its columns are those of all heads
            for index, axis, length in self._axes_at(array, indices):
                if isinstance(index, Name) and index.base in _LETTERS and not ("?" in axis and length == 1):
                    key = f"@{index.base}"
                    self.lengths[key] = min(self.lengths.get(key, length), length)  # type: ignore[index]
        grouped = any(axes[:1] == ["g"] for axes in self.axes.values()) and "b" not in self.special
        for letter, size in ((HEAD, "g" if grouped else "h"), ("i", "n_q"), ("j", "n_k")):
            self.lengths.setdefault(f"@{letter}", self.lengths[size])  # type: ignore[attr-defined]

    def _axes_at(self, array: str, indices: tuple[Node, ...]) -> list[tuple[Node, str, int]]:
        """Return each index with its axis and the axis's length; the head's index may be left out."""
        axes, shape = self.axes[array], self.here[array].shape
        hidden = len(indices) < len(axes) and len(axes) > 1 and axes[0] in _HEADS
        return list(zip(indices, axes[hidden:], shape[hidden:], strict=False))

    def _covered(self, left: Node) -> None:
        """Raise Unread unless letters on the left run over their whole axis, or half of an axis rotated in pairs."""
        for array, indices in self._occurrences(left):
            for index, _, length in self._axes_at(array, indices):
                paired = array.endswith("_rotated") and index == Name("l")
                free = isinstance(index, Name) and index.base in _LETTERS and not paired
                if free and self.length(f"@{text(index)}") < length:
                    raise Unread(f"the index {text(index)} does not run over its axis")

    def _occurrences(self, x: Node) -> list[tuple[str, tuple[Node, ...]]]:
        """Return the entries of arrays in a formula."""
        array, indices = self._entry_of(x) if isinstance(x, Name) else self._table_of(x)
        if array is not None:
            return [(array, indices)]
        return [result for part in nt.parts(x) for result in self._occurrences(part)]

    def _spans_heads(self, array: str, indices: tuple[Node, ...]) -> bool:
        """Return whether an entry of the output projection's input is indexed by the columns of all heads."""
        many = self.request.spec.heads > 1 and array in ("attended", "attended_latents") and self.step.name == "output"
        return many and len(indices) < self.here[array].ndim and self.here[array].ndim > 2

    def length(self, sort: str) -> Any:
        if sort not in self.lengths:
            raise Unread(f"the index {sort[1:]} has no range")
        return self.lengths[sort]

    def check_places(self, where: Any, letters: tuple[str, ...]) -> None:
        """Raise Unread if an index is outside its axis where the formula is claimed to hold."""
        for own, off in self.outside:
            if own and set(own) - set(letters):
                off = off.any(axis=tuple(i for i, letter in enumerate(own) if letter not in letters))
            remaining = [letter for letter in own if letter in letters]
            spread_ = (
                off.reshape([off.shape[remaining.index(i)] if i in remaining else 1 for i in letters]) if own else off
            )
            if np.any(np.logical_and(spread_, where)):
                raise Unread("an index beyond its axis")

    # -- letters -------------------------------------------------------------------------------------------------
    def _entry_of(self, x: Name) -> tuple[str | None, tuple[Node, ...]]:
        """Return the array of which a letter with indices is an entry, and the indices."""
        for cut in reversed(range(len(x.sub) + 1)):
            array = self.raw.get(text(Name(x.base, x.sub[:cut])))
            if array is not None and cut < len(x.sub):
                return array, tuple(p for s in x.sub[cut:] for p in (s.parts if isinstance(s, nt.Commas) else (s,)))
        return None, ()

    def _table_of(self, x: Node) -> tuple[str | None, tuple[Node, ...]]:
        """Return the table of which cos(θ_il) is an entry."""
        if not isinstance(x, nt.Call) or len(x.arguments) != 1 or not isinstance(x.arguments[0], Name):
            return None, ()
        for array in self.here:
            small, here = entry(array) if array in SYMBOLS else None, x.arguments[0]
            if isinstance(small, nt.Call) and small.function == x.function and isinstance(small.arguments[0], Name):
                letter = small.arguments[0]
                if (here.base, here.sub[: len(letter.sub)]) == (letter.base, letter.sub) and len(here.sub) > 1:
                    return array, here.sub[len(letter.sub) :]
        return None, ()

    def _name(self, x: Name) -> Found:
        if self.step.name[:3] in ("cos", "sin") and x in (Name("p"), nt.name("θ", "ℓ"), nt.name("ω", "ℓ")):
            return Value(words.places_of_rows(self) if x == Name("p") else self.here[x.base][None, :], (), 2)
        whole = self.symbols.get(text(x))
        if whole is not None:
            return self.whole(whole)
        array_, indices = self._entry_of(x)
        if array_ is not None:
            return self.entry(array_, indices)
        if x.base == "e" and len(x.sub) == 1:
            return words.exponent(self, x)
        if x == Name("D") and "slopes" in self.here:
            return v.Value(self.one(nt.name("d", "i", "j")).array, (), 2)
        return super()._name(x)

    def whole(self, array: str) -> Value:
        """Return an array with its heads as a free index; a vector is repeated in every row."""
        x, axes = self.here[array], self.axes[array]
        letters: tuple[str, ...] = ()
        if axes and axes[0] in _HEADS and (len(axes) != 1 or axes[0] == "h"):
            letters, axes = (HEAD,), axes[1:]
        if array in ("w_uk", "w_uv") and self.step.name in ("q_absorbed", "attended") and self.request.spec.heads > 1:
            blocks = x.reshape((x.shape[0], self.request.spec.heads, x.shape[1] // self.request.spec.heads))
            return Value(blocks.xp.permute_dims(blocks, (1, 0, 2)), (HEAD,), 2)
        if len(axes) == 1 and array != "lse":
            return Value(x[..., None, :], letters, 2)
        return Value(x, letters, len(axes))

    def entry(self, array: str, indices: tuple[Node, ...]) -> Value:
        """Return an entry or a row of an array; without the index of the head, for every head."""
        x, axes = self.here[array], self.axes[array]
        if self._spans_heads(array, indices):
            x, axes = merge_heads(x), axes[1:]
        elif len(indices) < x.ndim and axes[0] in _HEADS and x.ndim > 1:
            indices = (nt.node(1) if axes[0] == "1" else Name(HEAD), *indices)
        if len(indices) > x.ndim:
            raise Unread("more indices than axes")
        own = self.special.get(f"δ {array}")
        kept, self.special = self.special, {**self.special, "δ": own} if own else self.special
        letters = tuple(dict.fromkeys(i for index in indices for i in self._letters_in(index)))
        result: list[Any] = [self.place(index, letters) - 1 for index in indices]
        self.special = kept
        off = np.zeros([self.length(self.sort(i)) for i in letters], dtype=bool)
        for axis, at in enumerate(result):
            if x.shape[axis] == 1 and "?" in axes[axis]:
                at = at * 0
            off = off | (at < 0) | (at >= x.shape[axis])
            result[axis] = np.clip(at, 0, x.shape[axis] - 1)
        self.outside.append((letters, off))
        picked = x.entries[tuple(np.broadcast_arrays(*result))] if result else x.entries
        return Value(
            self.kind(np.asarray(picked, dtype=object)), letters, x.ndim - len(indices), x.ndim - len(indices) == 1
        )

    def _letters_in(self, index: Node) -> list[str]:
        result: list[Any] = []
        for name in (x for x in nt.within(index) if isinstance(x, Name)):
            if name.base in self.special and not name.sub:
                result += self.special[name.base][0]
            elif name.base in _LETTERS and not name.sub:
                self.sort(name.base)
                result.append(name.base)
        return result

    def place(self, index: Node, letters: tuple[str, ...]) -> Any:
        """Return a computed index, counted from 1, for every value of ``letters``."""

        def grid(own: tuple[str, ...], array: np.ndarray) -> np.ndarray:
            order = sorted(range(len(own)), key=lambda i: letters.index(own[i]))
            sized = {own[i]: array.shape[i] for i in order}
            return np.transpose(array, order).reshape([sized.get(letter, 1) for letter in letters])

        def work(x: Node) -> Any:
            if isinstance(x, nt.Number) and x.value.denominator == 1:
                return np.asarray(int(x.value))
            if isinstance(x, nt.Neg):
                return -work(x.body)
            if isinstance(x, nt.Sum):
                return sum(map(work, x.terms))
            if isinstance(x, nt.Product):
                return np.prod(np.broadcast_arrays(*map(work, x.factors)), axis=0)
            if isinstance(x, nt.Fence) and x.style == "round":
                return work(x.body)
            if isinstance(x, Name) and not x.sub and x.base in self.special:
                return grid(*self.special[x.base])
            if isinstance(x, Name) and not x.sub and x.base in letters:
                return grid((x.base,), np.arange(1, self.length(self.sort(x.base)) + 1))
            if text(x) in self.glossary.sizes:
                return np.asarray(self.lengths[self.glossary.sizes[text(x)]])
            raise Unread(f"the index {text(x)}")

        return work(index)

    # -- conditions ----------------------------------------------------------------------------------------------
    def truth(self, condition: Relation, letters: tuple[str, ...]) -> Any:
        """Return where a relation between indices holds."""
        sides = [self.place(side, letters) for side in (condition.first, *(side for _, side in condition.rest))]
        result: Any = np.True_
        for (sign, _), a, b in zip(condition.rest, sides, sides[1:], strict=False):
            if sign not in _SIGNS:
                raise Unread(f"the sign {sign}")
            result = result & _SIGNS[sign](a, b)
        return result

    def said(self, condition: str, letters: tuple[str, ...]) -> Any:
        """Return where a condition in words holds."""
        table = words.condition(self.request, condition, self.here)
        own = ("i",) if condition == words.SEES else ("a", "i", "j")[3 - table.ndim :]
        return table.reshape([table.shape[own.index(i)] if i in own else 1 for i in letters])

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

    def _product(self, x: nt.Product) -> Value:
        if TIMES in x.factors:
            if len(x.factors) != 3 or x.factors[1] != TIMES:
                raise Unread("⊙ stands between two arrays")
            return v.both(self.one(x.factors[0]), self.one(x.factors[2]), mul)
        return super()._product(x)

    def _transposed(self, x: nt.Transposed) -> Value:
        result = self.one(x.body)
        if result.rank != 2:
            raise Unread("the transpose of what is not a matrix")
        return super()._transposed(x)

    def _over(self, x: nt.Over) -> Value:
        below = self.one(x.denominator)
        return v.both(self.one(x.numerator), below, truediv)

    def _call(self, x: nt.Call) -> Found:
        whole = self.symbols.get(text(x))
        if whole is not None:
            return self.whole(whole)
        table, indices = self._table_of(x)
        return words.call(self, x) if table is None else self.entry(table, indices)

    def parts(self, x: nt.Call) -> list[Node]:
        """Return the arguments one by one."""
        return [p for a in x.arguments for p in (a.parts if isinstance(a, nt.Commas) else (a,))]

    def _lifted(self, x: Any) -> Any:
        """Return truth values and integers as numbers of the kind."""
        whole = np.vectorize(int, otypes=[object])
        return x if isinstance(x, self.kind) else self.kind.lift(np.array(whole(x), dtype=object))


def _axes(shape: str, ndim: int) -> list[str]:
    """Return the letters of axes without batches; with the optional axis of heads if the array has it."""
    axes = shape.replace("…", "").replace("(h?)", "").split()
    return ["h?", *axes] if ndim > len(axes) else axes
