"""The statement of an equation as a reader expects it: over functions of natural numbers, with all its assumptions.

Coq's kernel checks that it is the same as the equation of terms, so it cannot drift from what was decided. Only this
file and ``coq_printing``, which writes terms, produce it.

Statements assume laws of functions: max is the largest of its arguments, log a logarithm, and so on. A law shows that
certain expressions are not negative, so these are no hypotheses of a statement: it assumes the law of the function
instead, and ``by_law`` in ``Reading.v`` derives the rest.

Terms that occur often in a long statement get a name: let s := fun i j => … in. The smallest parts are named first, so
that scores, maxima, exponentials and their sums are each written once. Coq substitutes their definitions before
anything is proved, so the names need not be trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain

from symattn.proof.coq import coq_printing
from symattn.proof.coq.steps import free_indices, in_order, is_positive, order_of
from symattn.proof.coq.terms import Names, Term

BOUNDED = ("tanh", "sign", "cos", "sin", "erf")


@dataclass(frozen=True)
class Supposed:
    """The assumed laws: ``logarithms``, certain ``laws``, and that maxima are ``attained``."""

    logarithms: bool = False
    laws: frozenset[str] = frozenset()
    attained: bool = False

    def of(self, function: str, name: str) -> Iterator[tuple[str, str]]:
        """Yield the laws of a function in Coq, under its name there, and in words."""
        # Laws are stated only for functions that a proof uses in this way.
        if function == "log" and self.logarithms:
            yield f"(forall x, 0 < x -> exp ({name} x) = x)", f"{name} is the inverse of exp"
        if function == "max" and ("largest" in self.laws or self.attained):
            yield (
                f"(forall l x, In x l -> x <= {name} l)",
                f"{name} is no less than what it is taken of",
            )
        # Attained: a maximum is one of its terms, which a bound does not need.
        if function == "max" and self.attained:
            yield (
                f"(forall l, l <> [] -> In ({name} l) l)",
                f"{name} is one of the things that it is taken of",
            )
        if function == "sign" and self.laws & {"magnitude", "largest"}:
            yield f"(forall x, {name} x * x = Rabs x)", f"{name}(x) x is |x|"
        if function == "norm" and "triangle" in self.laws:
            f, g, both, scaled = (
                f"(map (fun i => {x}) (seq 0 d))" for x in ("f i", "g i", "f i + g i", "t * f i")
            )
            yield (
                f"(forall d f g, {name} {both} <= {name} {f} + {name} {g})",
                f"{name} has the triangle inequality",
            )
            yield (
                f"(forall d t f, {name} {scaled} = Rabs t * {name} {f})",
                f"{name} of t x is |t| that of x",
            )
        if function in BOUNDED and "bounded" in self.laws:
            yield f"(forall x, -1 <= {name} x <= 1)", f"{name} lies between -1 and 1"


@dataclass(frozen=True)
class Readable:
    """A statement and its proof in Coq, and its assumptions in words, except that sizes are at least 1."""

    statement: str
    proof: str
    words: tuple[str, ...]


Meant = tuple[tuple[int, ...], Term]


@dataclass(frozen=True)
class Stated:
    """The statement ``left`` ``relation`` ``right`` for all values of the indices ``free``.

    The arrays numbered in ``plus`` are positive, those in ``least`` not negative; ``circles`` are cosines and sines.
    The terms in ``given``, with the sorts of their indices, are assumed not to be negative, those in ``equals`` to be
    equal, and those in ``lawful`` are not negative by the ``supposed`` laws. Both sides are equal only if the terms in
    ``only`` are 0: their indices have the sorts given, the innermost first, followed by the free indices.
    """

    name: str
    names: Names
    free: tuple[int, ...]
    relation: str
    left: Term
    right: Term
    plus: tuple[int, ...] = ()
    least: tuple[int, ...] = ()
    circles: tuple[tuple[int, int], ...] = ()
    given: tuple[Meant, ...] = ()
    lawful: tuple[Meant, ...] = ()
    equals: tuple[tuple[tuple[int, ...], Term, Term], ...] = ()
    only: tuple[Meant, ...] = ()
    supposed: Supposed = field(default_factory=Supposed)

    @property
    def sides(self) -> tuple[Term, ...]:
        """Both sides."""
        return self.left, self.right

    @property
    def tactic(self) -> str:
        """The tactic that derives the statement from the accepted terms."""
        return "read" if self.relation == "=" else "read_bound"


def readable(stated: Stated, proof: str = "") -> Readable:
    """Return the statement under its name, and its proof: ``proof``, or from the lemma ``name'accepted``."""
    reader = reading(stated)
    scope = reader.scope(stated.free)
    assumptions = list(_yield_coq_assumptions(reader, stated))
    plus = frozenset(stated.plus)
    # Divisors that are positive by their form need no condition.
    of_sides = [divisors(reader, x, scope, {}, plus) for x in stated.sides]
    conditions = dict.fromkeys(chain(*of_sides))
    lines = [f"Theorem {stated.name} : {_quantify_over_arrays(reader)}"]
    lines += [f"  {g} ->" for g in assumptions]
    if scope:
        bounds = reader.bounds(zip(scope, stated.free, strict=True))
        lines.append(f"  forall {' '.join(scope)} : nat, {bounds.rstrip()}")
    lines += [f"  {c} ->" for c in conditions]
    # Auxiliary lemmas are not read, so that nothing is named in them.
    result = shared(reader, stated.free, () if "'" in stated.name else stated.sides)
    sides = result.sides or stated.sides
    lines += [f"  {line}" for line in result.lets]
    left, right = (result.reader.text(x, scope, 1) for x in sides)
    lines += [f"  {left}", f"  {stated.relation} {right}"]
    # Where equality holds, and only there, these terms are 0.
    lines += [
        f"  /\\ ({left} = {right} -> {_state_zero_everywhere(reader, more, x, scope)})"
        for more, x in stated.only
    ]
    lines[-1] += "."
    proof = proof or _prove_readable_statement(reader, stated, scope)
    # Definitions by let are unfolded before the proof.
    proof = proof.replace("Proof.", "Proof. cbv beta zeta.", 1) if result.lets else proof
    return Readable(
        "\n".join(lines),
        proof,
        tuple(_yield_hypothesis_sentences(reader, stated, bool(conditions))),
    )


def reading(*statements: Stated) -> coq_printing.CoqReader:
    """Return a reader that names everything in these statements, which share their names."""
    reader = coq_printing.CoqReader(statements[0].names)
    for stated in statements:
        premises = (*stated.given, *stated.lawful, *stated.only)
        for side in (*stated.sides, *[x for _, x in premises]):
            reader.see(side)
    return reader


def _yield_hypothesis_sentences(
    reader: coq_printing.CoqReader, stated: Stated, divides: bool
) -> Iterator[str]:
    """Yield the hypotheses, sentence by sentence."""
    if stated.plus:
        yield f"Every entry of {', '.join(reader.arrays[k] for k in stated.plus)} is more than 0"
    if stated.least:
        yield f"No entry of {', '.join(reader.arrays[k] for k in stated.least)} is negative"
    if stated.given or stated.equals:
        yield "What is assumed of expressions are the hypotheses of the theorem"
    for c, s in stated.circles:
        yield f"{reader.arrays[c]} and {reader.arrays[s]} are the cosine and the sine of the same angles"
    known = [
        (own, words)
        for f, own in _pair_functions_with_names(reader)
        for _, words in stated.supposed.of(f, own)
    ]
    yield from (words for _, words in known)
    # Of functions without a law only extensionality is used.
    if others := [own for own in reader.functions.values() if own not in [k for k, _ in known]]:
        yield f"Of {', '.join(others)} nothing is used but that equal arguments have equal values"
    if divides:
        yield "What is divided by is not 0"


def _pair_functions_with_names(reader: coq_printing.CoqReader) -> Iterator[tuple[str, str]]:
    """Return the functions with their names in Coq."""
    numbered = reader.names.functions.items()
    return ((f, reader.functions[number]) for f, number in numbered)


def _quantify_over_arrays(reader: coq_printing.CoqReader) -> str:
    arrays = coq_printing.typed_arrays(reader, reader.sizes.values(), reader.arrays)
    groups = [*arrays, *coq_printing.typed_functions(reader)]
    return f"forall {' '.join(groups)}," if groups else ""


def _yield_coq_assumptions(reader: coq_printing.CoqReader, stated: Stated) -> Iterator[str]:
    """Yield the assumptions: sizes are at least 1, arrays are positive, not negative, cosines and sines, and so on."""
    if reader.sizes:
        # Sizes are at least 1, as in the prover.
        yield " -> ".join(f"(0 < {n})%nat" for n in reader.sizes.values())
    positive = (("<", k) for k in stated.plus)
    for sign, k in (*positive, *(("<=", k) for k in stated.least)):
        over, entry = _quantified_array_entry(reader, k)
        yield f"({over}0 {sign} {entry})" if over else f"0 {sign} {entry}"
    for sorts, x in stated.given:
        yield _assume_at_all_places(reader, sorts, "0 <= {}", x)
    for sorts, x, y in stated.equals:
        yield _assume_at_all_places(reader, sorts, "{} = {}", x, y)
    for c, s in stated.circles:
        yield circle(reader, c, s)
    for f, own in _pair_functions_with_names(reader):
        yield from (result for result, _ in stated.supposed.of(f, own))


def circle(reader: coq_printing.CoqReader, c: int, s: int) -> str:
    """State that two arrays are cosines and sines."""
    over, cosine = _quantified_array_entry(reader, c)
    sine = _quantified_array_entry(reader, s)[1]
    words = f"{over}{cosine} * {cosine} + {sine} * {sine} = 1"
    return f"({words})" if over else words


def _assume_at_all_places(
    reader: coq_printing.CoqReader, sorts: Sequence[int], words: str, *terms: Term
) -> str:
    """Return the assumptions at all places of these sorts."""
    scope = reader.scope(sorts)
    placed = zip(scope, sorts, strict=True)
    over = "".join(f"forall {i}, {reader.bounds([(i, s)])}" for i, s in placed)
    entries = [reader.text(x, scope, 1) for x in terms]
    return f"({over}{words.format(*entries)})"


def _scope_with_inner_indices(
    reader: coq_printing.CoqReader, more: Sequence[int], scope: tuple[str, ...]
) -> tuple[str, ...]:
    """Return names for indices of these sorts, the innermost first, and then those in scope."""
    for _ in more:
        scope = (reader.index(scope), *scope)
    return scope


def _state_zero_everywhere(
    reader: coq_printing.CoqReader, more: Sequence[int], x: Term, scope: tuple[str, ...]
) -> str:
    """State that an expression is 0 at all places of these sorts."""
    inside = _scope_with_inner_indices(reader, more, scope)
    pairs = list(zip(inside, more, strict=False))[::-1]
    indices = " ".join(i for i, _ in pairs)
    over = f"forall {indices} : nat, {reader.bounds(pairs)}" if pairs else ""
    return f"{over}{reader.text(x, inside, 1)} = 0"


def _quantified_array_entry(reader: coq_printing.CoqReader, array: int) -> tuple[str, str]:
    scope = reader.scope(reader.names.arities[array])
    over = f"forall {' '.join(scope)}, " if scope else ""
    return over, " ".join([reader.arrays[array], *scope])


def divisors(
    reader: coq_printing.CoqReader,
    x: Term,
    scope: tuple[str, ...],
    bound: Mapping[str, int],
    plus: frozenset[int],
) -> Iterator[str]:
    """State that divisors not positive by their form are not 0; ``bound`` are indices with their sorts."""
    for y in x.below:
        inside, more = scope, bound
        # A bound index is quantified in the condition on a divisor.
        if x.binds():
            i = reader.index(scope)
            inside = (i, *scope)
            more = {**bound, i: x.numbers[0]}
        yield from divisors(reader, y, inside, more, plus)
    if x.head == "Div" and not is_positive(x.below[1], plus):
        # Only indices that occur in the divisor.
        entries = {scope[i] for i in free_indices(x.below[1])}
        over = "".join(
            f"forall {i}, {reader.bounds([(i, s)])}" for i, s in bound.items() if i in entries
        )
        words = f"{over}{reader.text(x.below[1], scope, 1)} <> 0"
        yield f"({words})" if over else words


def _prove_readable_statement(
    reader: coq_printing.CoqReader, stated: Stated, scope: tuple[str, ...]
) -> str:
    # Entries beyond an array's places are 1 where they must not be 0.
    one = {*stated.plus, *[c for c, _ in stated.circles]}
    letters = []
    for number, array in reader.arrays.items():
        arity = len(reader.names.arities[number])
        seats = [f"seat'{n}" for n in range(arity)]
        places = "; ".join(f"Some (_, {p})" for p in seats)
        default = 1 if number in one else 0
        letters.append(
            # Arrays become one function of number and places, as the theory has them.
            f"{number} => match places' with [{places}] => {' '.join([array, *seats])} | _ => {default}%R end"
        )
    functions = []
    for number, function in reader.functions.items():
        takes = [f"value'{n}" for n in range(reader.takes(number))]
        # Functions of any number of arguments take a list.
        whole = f"match values' with [{'; '.join(takes)}] => {' '.join([function, *takes])} | _ => 0%R end"
        functions.append(f"{number} => " + (whole if takes else f"{function} values'"))
    of_arrays, of_functions = (
        _format_coq_match("array'", letters, "0%R"),
        _format_coq_match("named'", functions, "0%R"),
    )
    sizes = _format_coq_match(
        "sort'", [f"{number} => {size}" for number, size in reader.sizes.items()], "1"
    )
    # The world of the theory: sizes, arrays, functions and the places.
    world = "\n".join(
        [
            f"  (fun sort' : nat => {sizes})%nat",
            f"  (fun (array' : nat) (places' : list place) => {of_arrays})%nat",
            f"  (fun (named' : nat) (values' : list R) => {of_functions})%nat",
            f"  {_format_place_list(scope, stated.free)}",
        ]
    )
    parts = [f"{stated.tactic} {coq_printing.auxiliary(stated.name, 'accepted')}\n{world}"]
    for n, (more, _) in enumerate(stated.only, 1):
        inside = _scope_with_inner_indices(reader, more, scope)[: len(more)]
        named = f"intros equality' {' '.join(inside[::-1])}; intros"
        forced = coq_printing.auxiliary(stated.name, f"only_{n}")
        parts.append(
            f"{named}; read_only {forced} equality'\n{world} {_format_place_list(inside, more)}"
        )
    # A conjunction nests to the right.
    whole = reduce(lambda last, part: f"split; [{part} | {last}]", reversed(parts))
    return f"Proof. intros. {whole}.\nQed."


def _format_place_list(indices: Sequence[str], sorts: Sequence[int]) -> str:
    placed = zip(indices, sorts, strict=True)
    places = "; ".join(f"Some ({s}, {i})" for i, s in placed)
    return f"([{places}] : list place)%nat"


def _format_coq_match(of: str, cases: Iterable[str], otherwise: str) -> str:
    return f"match {of} with {' | '.join([*cases, f'_ => {otherwise}'])} end"


_LONG = 160  # characters of a statement
_WORTH = 20  # characters of a part
_MANY = 8  # parts
_NAMES = ("s", "t", "e", "z", "w", "y", "p", "f", "g", "h", "r", "o", "x", "m", "n", "q")
_UNNAMED = ("Letter", "Num", "Size", "One", "Over")
# The factor of a term that is subtracted: a name for it would hide the sign.
_LESS = Term("Num", (-1,))
_Key = tuple[tuple[int, ...], Term]


@dataclass(frozen=True)
class Shared:
    """The definitions of names for parts, the sides with these names, and a reader that knows them."""

    reader: coq_printing.CoqReader
    lets: tuple[str, ...]
    sides: tuple[Term, ...]


def shared(reader: coq_printing.CoqReader, free: Sequence[int], sides: Sequence[Term]) -> Shared:
    """Return the sides, with names for repeated parts if the sides are long."""
    scope = reader.scope(free)
    result = Shared(_copy_coq_reader(reader), (), tuple(sides))
    if sum(len(reader.text(x, scope)) for x in sides) < _LONG:
        return result
    while len(result.lets) < _MANY and (key := _shortest_repeated_part(result, free)):
        result = _name_shared_part(result, free, key)
    return result


def _copy_coq_reader(reader: coq_printing.CoqReader) -> coq_printing.CoqReader:
    names = replace(reader.names, arities=dict(reader.names.arities))
    own = coq_printing.CoqReader(names, reader.starts, counts=reader.counts)
    own.sizes, own.arrays, own.functions = (
        dict(reader.sizes),
        dict(reader.arrays),
        dict(reader.functions),
    )
    # A copy, since names are added to it.
    own.used = set(reader.used)
    return own


def _shortest_repeated_part(named_so_far: Shared, free: Sequence[int]) -> _Key | None:
    """Return the shortest part that is worth a name and occurs more often than the parts that contain it."""
    result = [
        each for x in named_so_far.sides for each in _yield_nameable_parts(x, tuple(free), None)
    ]
    times = Counter(key for key, _ in result)
    # A part that always occurs inside another one is named with it.
    within = {
        (key, whole) for key, whole in result if whole is not None and times[whole] == times[key]
    }
    always = {key for key, _ in within}
    reader = named_so_far.reader
    several = [key for key, n in times.items() if n > 1 and key not in always]
    lengths = {(sorts, x): len(reader.text(x, reader.scope(sorts))) for sorts, x in several}
    # A short part is plainer than a name for it.
    worth = [key for key, length in lengths.items() if length >= _WORTH]
    return min(worth, key=lambda key: (lengths[key], str(key)), default=None)


def _yield_nameable_parts(
    x: Term, sorts: tuple[int, ...], whole: _Key | None
) -> Iterator[tuple[_Key, _Key | None]]:
    """Yield every part that could have a name, with the part that contains it."""
    if x.head not in _UNNAMED and not x.head.startswith("Is") and x.below[:1] != (_LESS,):
        key = in_order(x, sorts, turns=False)
        yield key, whole
        whole = key
    for y in x.below:
        inside = (x.numbers[0], *sorts) if x.binds() else sorts
        yield from _yield_nameable_parts(y, inside, whole)


def _name_shared_part(named_so_far: Shared, free: Sequence[int], key: _Key) -> Shared:
    reader = _copy_coq_reader(named_so_far.reader)
    numbered = [f"part{n}" for n in range(_MANY)]
    # Names of one letter first, then numbered ones.
    own = next(w for w in (*_NAMES, *numbered) if w not in reader.used)
    sorts, x = key
    order = next(
        o
        for side in named_so_far.sides
        for o in _yield_index_orders(side, tuple(free), len(free), key)
    )
    # A number that no array has yet.
    array = 1 + max((*reader.arrays, *reader.names.arities), default=0)
    indices = reader.scope(sorts)
    named = dict(zip(order, indices, strict=True))
    own_names = tuple(named[n] for n in range(len(order)))
    body = reader.text(x, own_names)
    over = f"fun {' '.join(indices)} => " if indices else ""
    line = f"let {own} := {over}{body} in"
    reader.names.arities[array] = tuple(sorts[n] for n in order)
    reader.arrays[array] = own
    reader.used.add(own)
    sides = tuple(
        _replace_part_by_letter(side, tuple(free), key, array, order) for side in named_so_far.sides
    )
    return Shared(reader, (*named_so_far.lets, line), sides)


def _yield_index_orders(
    x: Term, sorts: tuple[int, ...], free: int, key: _Key
) -> Iterator[list[int]]:
    """Yield for each occurrence of a part the order of its indices, the outermost first."""
    if x.head not in _UNNAMED and in_order(x, sorts, turns=False) == key:
        bound, at = len(sorts) - free, order_of(x)
        last = len(sorts) + bound
        yield sorted(
            range(len(at)),
            key=lambda n: at[n] if at[n] >= bound else last - at[n],
        )
    for y in x.below:
        inside = (x.numbers[0], *sorts) if x.binds() else sorts
        yield from _yield_index_orders(y, inside, free, key)


def _replace_part_by_letter(
    x: Term, sorts: tuple[int, ...], key: _Key, array: int, order: Sequence[int]
) -> Term:
    if x.head not in _UNNAMED and in_order(x, sorts, turns=False) == key:
        at = order_of(x)
        return Term("Letter", (array, *[at[n] for n in order]))
    inside = (x.numbers[0], *sorts) if x.binds() else sorts
    return Term(
        x.head,
        x.numbers,
        tuple(_replace_part_by_letter(y, inside, key, array, order) for y in x.below),
    )
