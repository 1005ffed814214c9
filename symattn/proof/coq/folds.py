"""Folds over tiles, as statements for readers with proofs by the induction of ``Folding.v``.

The state of a tile and the merge of two states are definitions in Coq. That the merged state of two tiles is the state
of both, and that the end of a state is the result, are equations, each accepted as others are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from symattn.document.errors import Refused
from symattn.proof import checker_rules
from symattn.proof.checker_reading import Record, in_place, read
from symattn.proof.coq import coq_printing
from symattn.proof.coq.readable import Readable, Stated, reading
from symattn.proof.coq.terms import Names, Term, term
from symattn.proof.coq.writing import Lemma, equated, free_of

Key = tuple[Any, ...]


@dataclass(frozen=True)
class NamedEntry:
    """The name in Coq of a size, an array or a function, and its type."""

    name: str
    type: str


Entries = dict[Key, NamedEntry]


@dataclass(frozen=True)
class StatePart:
    """A part of a state: names and sorts of its indices, and its value."""

    indices: tuple[str, ...]
    sorts: tuple[int, ...]
    value: Term


@dataclass(frozen=True)
class Side:
    """The parts of a definition, and a reader that names everything in them."""

    reader: coq_printing.CoqReader
    parts: tuple[StatePart, ...]
    numbers: tuple[str, ...]
    own: tuple[int, ...]  # arrays and sorts that are not its parameters
    split: int

    @property
    def sizes(self) -> list[str]:
        """The sizes that are parameters."""
        return [n for s, n in self.reader.sizes.items() if s != self.split]


def _side_of(record: Record, parts: Sequence[Record], starts: Mapping[str, str]) -> Side:
    """Return the side of a definition's parts; an index of a sort in ``starts`` is counted from there."""
    names = Names()
    # Only the split sort has tiles.
    split = names.sort(str(record["sort"]))
    result = []
    for part in parts:
        _, sorts, scope, places = free_of(part, names)
        result.append((places, term(read(part["expression"], sorts), scope, names)))
    words_by_sort = {names.sorts[sort]: word for sort, word in starts.items()}
    # Places are counted from the start of the tile.
    reader = coq_printing.CoqReader(names, words_by_sort)
    for _, x in result:
        reader.see(x)
    numbers = [n for name in record["numbers"] for n in names.with_name(name)]
    keys = names.arrays.items()
    # States of both tiles are letters of the merge.
    states = [
        n for key, n in keys if str(key[0]).startswith((checker_rules.FIRST, checker_rules.SECOND))
    ]
    results = tuple(StatePart(reader.scope(places), places, x) for places, x in result)
    arrays = tuple(reader.arrays[n] for n in numbers)
    return Side(reader, results, arrays, (*numbers, *states), split)


def _quantify_state_indices(reader: coq_printing.CoqReader, part: StatePart) -> str:
    """Return the quantifier over the indices of a part of a state."""
    bounds = reader.bounds(zip(part.indices, part.sorts, strict=True))
    return f"forall {' '.join(part.indices)}, {bounds}" if part.indices else ""


def _list_parameter_arrays(side: Side) -> list[int]:
    return [k for k in side.reader.arrays if k not in side.own]


def _typed_side_parameters(side: Side) -> str:
    """Return the sizes, arrays and functions of a definition, with their types."""
    return " ".join(
        (
            *coq_printing.typed_arrays(side.reader, side.sizes, _list_parameter_arrays(side)),
            *coq_printing.typed_functions(side.reader),
        )
    )


def _call_with_parameters(side: Side) -> str:
    """Return the names of the parameters, as arguments."""
    arrays = (side.reader.arrays[k] for k in _list_parameter_arrays(side))
    return " ".join((*side.sizes, *arrays, *side.reader.functions.values()))


def _positive_sizes(side: Side) -> str:
    """State that the sizes are at least 1."""
    return "".join(f" (0 < {n})%nat ->" for n in side.sizes)


def _list_named_entries(
    reader: coq_printing.CoqReader, aside: Iterable[str] = ()
) -> dict[Key, NamedEntry]:
    """Return a reader's names, except for the arrays ``aside`` and names that belong to one of two tiles."""
    sorts = {n: sort for sort, n in reader.names.sorts.items()}
    out: dict[Key, NamedEntry] = {
        ("size", sort): NamedEntry(reader.sizes[n], "nat")
        for n, sort in sorts.items()
        if not _of_one(sort)
    }
    for key, n in reader.names.arrays.items():
        if not _of_one(str(key[0])) and key[0] not in aside:
            places = tuple(sorts[s] for s in reader.names.arities[n])
            out["array", *key[:-1], places] = NamedEntry(
                reader.arrays[n], coq_printing.typed(reader, n)
            )
    for f, n in reader.names.functions.items():
        out["function", f] = NamedEntry(reader.functions[n], coq_printing.typed_function(reader, n))
    return out


def _of_one(word: str) -> bool:
    return word.startswith((checker_rules.FIRST, checker_rules.SECOND))


def _entries_beyond_tile(
    tile: Mapping[Key, NamedEntry], others: Iterable[Mapping[Key, NamedEntry]]
) -> dict[Key, NamedEntry]:
    """Return entries that occur in the others and in no tile. Raises Refused for sizes and ambiguous names."""
    every = dict(tile)
    for key, entry in (pair for other in others for pair in other.items()):
        # Without a tile that has the size, it would be no parameter of the theorem.
        if key[0] == "size" and key not in tile:
            raise Refused(f"coq: the size {key[1]} occurs in no tile of a fold")
        if every.setdefault(key, entry) != entry:
            raise Refused(f"coq: in a fold {key[1]} has two names or types in Coq")
    # Names must differ in Coq although arrays and sizes have separate names here.
    names = [entry.name for entry in every.values()]
    if twice := [name for name in names if names.count(name) > 1]:
        raise Refused(f"coq: two things in a fold are called {twice[0]} in Coq")
    return {key: entry for key, entry in every.items() if key not in tile}


_WORDS = (
    "A state of entries that stand in tiles is folded where it is the state of one tile, or is merged from those of "
    "the tiles before and behind, which are folded",
)


def of_fold(name: str, record: Record, regroup: bool) -> Lemma:
    """Return the lemma of a fold; its text includes the definitions and equations that it uses."""
    tile = _side_of(record, record["state"], {str(record["sort"]): "start"})
    merge = _side_of(record, record["merge"], {})
    sides = [
        checker_rules.meaning(
            record["state"], p, {*record["arrays"], *record["numbers"]}, record["sort"]
        )
        for p in (checker_rules.FIRST, checker_rules.SECOND)
    ]
    into = {**sides[0], **sides[1]}
    arrays = set(record["arrays"])
    pairs = [
        (
            in_place(m["expression"], into),
            checker_rules.joined(s["expression"], arrays, record["sort"], {}),
        )
        for s, m in zip(record["state"], record["merge"], strict=True)
    ]
    whole = checker_rules.meaning(record["state"], checker_rules.FIRST, set(), record["sort"])
    ends = [
        (in_place(m["expression"], whole), r["expression"])
        for m, r in zip(record["made"], record["result"], strict=True)
    ]
    merged = [
        _state_plain_equation(coq_printing.auxiliary(name, f"merged_{n}"), s["free"], *pair)
        for n, (s, pair) in _enumerate_record_pairs(record["state"], pairs)
    ]
    result = [
        _state_plain_equation(coq_printing.auxiliary(name, f"made_{n}"), r["free"], *pair)
        for n, (r, pair) in _enumerate_record_pairs(record["result"], ends)
    ]
    # Equations come first, since the step of the fold applies their lemmas.
    before = [equated(x, regroup) for x in (*merged, *result)]
    known, in_merge, in_made = _entries_by_occurrence(record, tile, merge, merged, result)
    fold = _FoldWords(
        name,
        record,
        tile,
        merge,
        tuple(merged),
        tuple(result),
        _order_arrays_functions(in_merge),
        _order_arrays_functions(in_made),
    )
    words = (*_WORDS, *_yield_unknown_functions({**known, **in_merge, **in_made}))
    stated = Readable(f"{fold.definitions()}\n{fold.theorem()}", fold.proof(), words)
    lemmas = "".join(x.text for x in before)
    definitions = fold.definitions()
    text = f"{lemmas}{definitions}\n{fold.step()}\n{fold.theorem()}\n{stated.proof}\n"
    return Lemma(name, text, stated, names=tile.reader.names)


def _enumerate_record_pairs(
    a: Sequence[Record], b: Sequence[object]
) -> Iterator[tuple[int, tuple[Record, Any]]]:
    return enumerate(zip(a, b, strict=True), 1)


def _entries_by_occurrence(
    record: Record, tile: Side, merge: Side, merged: Iterable[Stated], results: Sequence[Stated]
) -> tuple[Entries, Entries, Entries]:
    """Return the entries that occur in a tile, those of the merge alone, and those of the end alone."""
    numbers = list(map(str, record["numbers"]))
    # Numbers that exist in each tile are no parameters.
    known = _list_named_entries(tile.reader, numbers)
    in_merge = _entries_beyond_tile(
        known,
        [_list_named_entries(reader, numbers) for reader in (merge.reader, *map(reading, merged))],
    )
    # The end of a fold may need entries that neither tile nor merge has.
    last = [_of_made(part)[0] for part in record["made"]]
    in_made = _entries_beyond_tile(
        {**known, **in_merge},
        [_list_named_entries(reader, numbers) for reader in (*map(reading, results), *last)],
    )
    return known, in_merge, in_made


def _order_arrays_functions(every: Mapping[Key, NamedEntry]) -> tuple[NamedEntry, ...]:
    """Return the arrays and then the functions, for the statement."""
    return tuple(every[key] for kind in ("array", "function") for key in every if key[0] == kind)


def _of_made(part: Record) -> tuple[coq_printing.CoqReader, Term]:
    """Return the end of a state, in letters for its parts, and names for the entries that occur there."""
    names, sorts, scope, _ = free_of(part)
    x = term(read(part["expression"], sorts), scope, names)
    reader = coq_printing.CoqReader(names)
    reader.see(x)
    return reader, x


def _yield_unknown_functions(every: Mapping[Key, NamedEntry]) -> Iterator[str]:
    if others := [entry.name for key, entry in every.items() if key[0] == "function"]:
        yield f"Of {', '.join(others)} nothing is used but that equal arguments have equal values"


def _state_plain_equation(name: str, free: object, left: object, right: object) -> Stated:
    """Return an equation without any simplification, so that it fits the definitions."""
    names, sorts, scope, places = free_of({"free": free})
    a, b = (term(read(x, sorts), scope, names) for x in (left, right))
    return Stated(name, names, places, "=", a, b)


@dataclass(frozen=True)
class _FoldWords:
    """The text of a fold."""

    name: str
    record: Record
    tile: Side
    merge: Side
    merged: tuple[Stated, ...]
    made: tuple[Stated, ...]
    in_merge: tuple[NamedEntry, ...]  # entries of the merge alone
    in_made: tuple[NamedEntry, ...]  # entries of the end alone

    def definitions(self) -> str:
        """Define a state, and the merge of two."""
        one, two = self.tile, self.merge
        of, first, second = (
            f"let {self._state_letters_pattern(x)} := {x} in" for x in ("state", "first", "second")
        )
        places = f"(start {one.reader.sizes[one.split]} : nat)"
        tile_name = self._auxiliary_fold_name("tile")
        merge_name = self._auxiliary_fold_name("merge")
        state_type = self._coq_type_of_state()
        one_parameters = _typed_side_parameters(one)
        two_parameters = _typed_side_parameters(two)
        return (
            f"Definition {tile_name} {one_parameters} {places} "
            f"(state : {state_type}) : Prop :=\n"
            f"  {of} {self._state_values_of_parts(one)}.\n"
            f"Definition {merge_name} {two_parameters} "
            f"(first second state : {state_type}) : Prop :=\n"
            f"  {first} {second}\n  {of} {self._state_values_of_parts(two)}."
        )

    def _coq_type_of_state(self) -> str:
        return " * ".join(f"({'nat -> ' * len(p.sorts)}R)" for p in self.tile.parts)

    def _prefixed_state_letters(self, prefix: str) -> str:
        return ", ".join(f"{prefix}_{p['letter']}" for p in self.record["state"])

    def _state_letters_pattern(self, prefix: str) -> str:
        many = len(self.record["state"]) > 1
        return (
            f"'({self._prefixed_state_letters(prefix)})"
            if many
            else self._prefixed_state_letters(prefix)
        )

    def _state_values_of_parts(self, side: Side) -> str:
        """State that each part of the state has its value, for some choice of numbers."""
        reader = side.reader
        own_arrays = reader.arrays.items()
        numbers = [
            f"({n} : {coq_printing.typed(reader, k)})" for k, n in own_arrays if n in side.numbers
        ]
        # Numbers such as a maximum are chosen by the tile.
        some = f"exists {' '.join(numbers)},\n  " if numbers else "\n  "
        said = []
        for p, part in zip(self.record["state"], side.parts, strict=True):
            entry = " ".join((f"state_{p['letter']}", *part.indices))
            value = reader.text(part.value, part.indices, 1)
            said.append(f"({_quantify_state_indices(reader, part)}{entry} = {value})")
        return some + " /\\\n  ".join(said)

    def step(self) -> str:
        """State that the merged state of two tiles is the state of both."""
        tile, both = (
            self._call_with_parameters(self.tile, "tile"),
            self._call_with_parameters(self.merge, "merge"),
        )
        letters = [str(p["letter"]) for p in self.record["state"]]
        patterns = ([f"{x}'{n}" for n in letters] for x in "xyz")
        states = " ".join(
            reduce(lambda first, name: f"[{first} {name}]", names) for names in patterns
        )
        facts = " ".join(_tile_intro_pattern(self.tile, x, letters) for x in "ABC")
        sizes = " ".join(f"size'{n}" for n in self.tile.sizes)
        cases = []
        for n, stated in zip(letters, self.merged, strict=True):
            rewritten = ", ".join(f"?{x}'{k}" for x in "AB" for k in letters)
            cases.append(
                f"intros; rewrite C'{n}, {rewritten} by assumption; etransitivity; "
                f"[apply ({self._apply_equation_lemma(stated, 'A', 'B')}); given | rewrite ?sum_app; same]"
            )
        # Numbers that a state may choose are instantiated with those of the merged state.
        chosen = "".join(f"exists C'{n}; " for n in self.tile.numbers)
        return (
            f"Lemma {self._auxiliary_fold_name('step')} : forall {self._parameters_with_additions(self.in_merge)},"
            f"{_positive_sizes(self.tile)}\n"
            f"  forall start size'1 size'2 x' y' z', (0 < size'1)%nat -> (0 < size'2)%nat ->\n"
            f"  {tile} start size'1 x' -> {tile} (start + size'1) size'2 y' -> {both} x' y' z' ->\n"
            f"  {tile} start (size'1 + size'2) z'.\n"
            f"Proof. unfold {self._auxiliary_fold_name('tile')}, {self._auxiliary_fold_name('merge')}. cbv zeta.\n"
            f"intros {self._step_parameter_names()} {sizes} start size'1 size'2 {states} positive'1 positive'2 "
            f"{facts}. "
            f"{chosen}{_prove_conjunction(cases)}. Qed."
        )

    def theorem(self) -> str:
        """State that the fold is the state of all entries, and its end the result."""
        tile, both = (
            self._call_with_parameters(self.tile, "tile"),
            self._call_with_parameters(self.merge, "merge"),
        )
        reader, state = self.tile.reader, self._prefixed_state_letters("state")
        size = reader.sizes[reader.names.sorts[str(self.record["sort"])]]
        parts = zip(self.record["state"], self.tile.parts, strict=True)
        types = " ".join(
            f"(state_{p['letter']} : {'nat -> ' * len(part.sorts)}R)" for p, part in parts
        )
        ends = "".join(
            f"\n  /\\ ({self._state_end_of_fold(n, stated)})" for n, stated in enumerate(self.made)
        )
        every = self._parameters_with_additions((*self.in_merge, *self.in_made))
        positive = _positive_sizes(self.tile)
        return (
            # A fold from 0 over all entries.
            f"Theorem {self.name} : forall {every} ({size} : nat) {types},{positive}\n"
            f"  folded _ ({tile}) ({both}) 0 {size} ({state}) ->\n"
            # The state of the fold is the state of one tile of all entries.
            f"  {tile} 0 {size} ({state}){ends}."
        )

    def _parameters_with_additions(self, more: Iterable[NamedEntry]) -> str:
        """Return the parameters, including those of other definitions and equations."""
        typed_more = [f"({x.name} : {x.type})" for x in more]
        return " ".join((_typed_side_parameters(self.tile), *typed_more))

    def _step_parameter_names(self) -> str:
        """Return the parameters of the step by name."""
        return " ".join((_call_with_parameters(self.tile), *[x.name for x in self.in_merge]))

    def _state_end_of_fold(self, n: int, stated: Stated) -> str:
        """State that the end of a state is the result."""
        reader = reading(stated)
        states, x = _of_made(self.record["made"][n])
        indices = reader.scope(stated.free)
        words = {
            checker_rules.FIRST + str(p["letter"]): f"state_{p['letter']}"
            for p in self.record["state"]
        }
        keys = states.names.arrays.items()
        # Letters of the state are its components here.
        states.arrays.update({k: words[str(key[0])] for key, k in keys if key[0] in words})
        bounds = _quantify_state_indices(reader, StatePart(indices, stated.free, x))
        left = states.text(x, indices, 1)
        return f"{bounds}{left}\n  = {reader.text(stated.right, indices, 1)}"

    def proof(self) -> str:
        """Prove it by induction over the merges, and then the equations for the end."""
        letters = [str(p["letter"]) for p in self.record["state"]]
        rewritten = ", ".join(f"?A'{n}" for n in letters)
        cases = [
            f"intros; rewrite {rewritten} by assumption; apply ({self._apply_equation_lemma(s, 'A', '')}); given"
            for s in self.made
        ]
        facts = _tile_intro_pattern(self.tile, "A", letters)
        # The tile's definition gives the equations of the state.
        known = f"unfold {self._auxiliary_fold_name('tile')} in tile'. pose proof tile' as {facts}"
        ends = (
            f" split; [exact tile'|]. {known}. {_prove_conjunction(cases)}."
            if cases
            else " exact tile'."
        )
        sizes = " ".join("ltac:(assumption)" for _ in self.tile.sizes)
        text = f"{self._auxiliary_fold_name('step')} {self._step_parameter_names()} {sizes}"
        return (
            # folded_ok is the induction: a step for each merge.
            f"Proof. intros. match goal with fold' : folded _ _ _ _ _ _ |- _ =>\n"
            f"  apply (folded_ok _ _ _ ({text})) in fold' as [size' tile'] end.{ends} Qed."
        )

    def _call_with_parameters(self, side: Side, word: str) -> str:
        return f"{self._auxiliary_fold_name(word)} {_call_with_parameters(side)}".rstrip()

    def _auxiliary_fold_name(self, word: str) -> str:
        return coq_printing.auxiliary(self.name, word)

    def _apply_equation_lemma(self, stated: Stated, first: str, second: str) -> str:
        """Return the lemma of an equation applied to two tiles or, without a second one, to all entries."""
        reader = reading(stated)
        sort = str(self.record["sort"])
        # Without a second tile there is one, of all entries.
        whole = self.tile.reader.sizes[self.tile.split]
        sizes = {
            sort: whole,
            **(
                {checker_rules.FIRST + sort: "size'1", checker_rules.SECOND + sort: "size'2"}
                if second
                else {}
            ),
        }
        own_sorts = stated.names.sorts.items()
        words = [sizes.get(key, reader.sizes[n]) for key, n in own_sorts]
        for key, n in stated.names.arrays.items():
            arity = stated.names.arities[n]
            words.append(
                self._array_argument_of_lemma(
                    str(key[0]), arity, stated, bool(second), reader.arrays[n]
                )
            )
        return " ".join((stated.name, *words, *reader.functions.values()))

    def _array_argument_of_lemma(
        self, key: str, sorts: tuple[int, ...], stated: Stated, two: bool, own: str
    ) -> str:
        """Return an array of an equation: a number that a tile chose, or entries of it."""
        prefix = next(
            (p for p in (checker_rules.FIRST, checker_rules.SECOND) if key.startswith(p)), ""
        )
        word = key.removeprefix(prefix)
        letter = {checker_rules.FIRST: "A", checker_rules.SECOND: "B", "": "C" if two else "A"}[
            prefix
        ]
        if word in self.record["numbers"]:
            (number,) = (self.tile.reader.arrays[n] for n in self.tile.reader.names.with_name(word))
            return f"{letter}'{number}"
        if word not in self.record["arrays"] or not two:
            return own
        names = {n: name for name, n in stated.names.sorts.items()}
        # The second tile starts where the first one ends.
        start = "start" if prefix == checker_rules.FIRST else "start + size'1"
        seats = [f"seat'{n}" for n in range(len(sorts))]
        split = prefix + str(self.record["sort"])
        moved = [
            f"({start} + {i})%nat" if names[s] == split else i
            for i, s in zip(seats, sorts, strict=True)
        ]
        reader = self.tile.reader
        (array,) = (reader.arrays[n] for n in reader.names.with_name(word))
        return f"(fun {' '.join(seats)} => {' '.join((array, *moved))})"


def _tile_intro_pattern(side: Side, prefix: str, letters: Iterable[str]) -> str:
    """Return an intro pattern for the definition of a tile."""
    inside = _conjunction_intro_pattern([f"{prefix}'{n}" for n in letters])
    for number in reversed(side.numbers):
        inside = f"[{prefix}'{number} {inside}]"
    return inside


def _conjunction_intro_pattern(names: Sequence[str]) -> str:
    """Return an intro pattern for a conjunction."""
    if len(names) == 1:
        return names[0]
    return f"[{names[0]} {_conjunction_intro_pattern(names[1:])}]"


def _prove_conjunction(cases: Sequence[str]) -> str:
    """Return a proof of a conjunction from proofs of its parts."""
    return reduce(lambda last, case: f"split; [{case} | {last}]", reversed(cases))
