"""Write terms in Coq's notation for readers, and name the sizes, arrays and functions in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, count

from symattn.proof.coq import theory
from symattn.proof.coq.terms import Names, Term

_KEYWORDS = {
    "as", "at", "cofix", "else", "end", "exists", "exists2", "fix", "for", "forall", "fun", "if", "in", "let",
    "match", "mod", "return", "then", "using", "where", "with", "Prop", "Set", "Type", "SProp",
}  # fmt: skip
_OF_LIBRARY = {
    "exp", "map", "seq", "list", "nat", "bool", "true", "false", "R", "S", "O", "INR", "IZR", "Rabs", "In", "Some",
}  # fmt: skip
_OF_FOLDS = {"start", "state", "first", "second"}
_PART = re.compile(r"state_\d+")  # of a state
_INDICES = ("i", "j", "k", "l", "a", "b", "c", "d", "u", "v")
# The prover writes a − b as a + (−1) b.
_LESS = Term("Num", (-1,))
_SIGNS = {"Is Equal": "=?", "Is AtMost": "<=?", "Is Below": "<?"}
_GREEK = {"π": "pi", "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "eps", "θ": "theta", "λ": "lambda",
          "μ": "mu", "σ": "sigma", "τ": "tau", "ω": "omega", "=": "equal", "≤": "atmost", "<": "below"}  # fmt: skip


def identifier(word: str) -> str:
    """Return a word as an identifier of Coq."""
    plain = "".join(_GREEK.get(c, c) for c in word)
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", plain).strip("_") or "x"
    plain = plain if plain[0].isalpha() else f"x{plain}"
    return f"{plain}_" if plain in reserved() or _PART.fullmatch(plain) else plain


@cache
def reserved() -> frozenset[str]:
    """Return the reserved names: of Coq's grammar, its library, the theory and the writers.

    All other names that these texts bind contain an apostrophe.
    """
    return frozenset(_KEYWORDS | _OF_LIBRARY | _OF_FOLDS | theory.declared())


def auxiliary(name: str, what: str) -> str:
    """Return an auxiliary name of a theorem. No ``identifier`` contains an apostrophe, so no theorem has this name."""
    return f"{name}'{what}"


@dataclass
class CoqReader:
    """Names for sizes, arrays and functions; an index of a sort in ``starts`` is counted from the start given there."""

    names: Names
    starts: Mapping[int, str] = field(default_factory=dict)
    sizes: dict[int, str] = field(default_factory=dict)
    arrays: dict[int, str] = field(default_factory=dict)
    functions: dict[int, str] = field(default_factory=dict)
    counts: dict[int, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Names of Coq are reserved, and no two objects share one.
        used: set[str] = set()
        for name, number in self.names.sorts.items():
            self.sizes[number] = _reserve_coq_name(name, used)
        for key, number in self.names.arrays.items():
            # A permuted index is part of the name.
            images_of_key = key[1:-1]
            images = "".join(f" of {' '.join(i)}" if i else "" for i in images_of_key)
            self.arrays[number] = _reserve_coq_name(f"{key[0]}{images}", used)
        for name, number in self.names.functions.items():
            self.functions[number] = _reserve_coq_name(name, used)
        self.used = used

    def index(self, scope: Sequence[str]) -> str:
        """Return a name for another index."""
        more = (f"i{n}" for n in count(1))
        candidates = chain(_INDICES, more)
        return next(i for i in candidates if i not in scope and i not in self.used)

    def scope(self, free: Sequence[int]) -> tuple[str, ...]:
        """Return names for free indices."""
        scope: tuple[str, ...] = ()
        for _ in free:
            scope = (*scope, self.index(scope))
        return scope

    def bounds(self, places: Iterable[tuple[str, int]]) -> str:
        """Return the conditions that indices, each with its sort, are below their sizes."""
        return "".join(f"({i} < {self.sizes[s]})%nat -> " for i, s in places)

    def see(self, x: Term) -> None:
        """Record with how many numbers each function is called; 0 is a list."""
        if x.head == "Fun":
            ones = all(a.head == "One" for a in x.below)
            own_counts = self.counts.setdefault(x.numbers[0], set())
            own_counts.add(len(x.below) if ones else 0)
        for y in x.below:
            self.see(y)

    def takes(self, function: int) -> int:
        """Return how many numbers a function takes; 0 means a list of them, as for a maximum."""
        if self.names.functions.get("max") == function:
            return 0
        (only, *others) = self.counts.get(function, {0})
        return 0 if others else only

    def text(self, x: Term, scope: tuple[str, ...], strength: int = 0) -> str:
        """Return a term in Coq's notation, in parentheses if its context binds more strongly."""
        result, own = self._format_term_with_level(x, scope)
        return f"({result})" if own < strength else result

    def _format_term_with_level(self, x: Term, scope: tuple[str, ...]) -> tuple[str, int]:
        if x.head == "Num":
            # A negative number needs brackets as an argument.
            if x.numbers[0] >= 0:
                return (str(x.numbers[0]), 9)
            return (f"{x.numbers[0]}", 0)
        if x.head == "Size":
            return f"INR {self.sizes[x.numbers[0]]}", 8
        if x.head == "Letter":
            return _format_application(
                self.arrays[x.numbers[0]], list(self._yield_shifted_seats(x, scope))
            )
        if x.head in _SIGNS:
            a, b = (scope[i] for i in x.numbers)
            return f"truth ({a} {_SIGNS[x.head]} {b})%nat", 8
        if x.head in ("Add", "Mul", "Div"):
            sign, own = {"Add": ("+", 1), "Mul": ("*", 2), "Div": ("/", 2)}[x.head]
            left, right = x.below
            # a + (−1) b is written a − b.
            if x.head == "Add" and right.head == "Mul" and right.below[0] == _LESS:
                subtracted = self.text(right.below[1], scope, 2)
                return f"{self.text(left, scope, own)} - {subtracted}", own
            # Subtraction and division group to the left.
            second = self.text(right, scope, own + 1)
            return f"{self.text(left, scope, own)} {sign} {second}", own
        if x.head == "Exp":
            return f"exp {self.text(x.below[0], scope, 9)}", 8
        if x.head == "Sum":
            body = self._format_function_of_index(x, scope)
            return f"sum {self.sizes[x.numbers[0]]} {body}", 8
        return self._format_function_call(x, scope)

    def _yield_shifted_seats(self, x: Term, scope: tuple[str, ...]) -> Iterator[str]:
        array, *indices = x.numbers
        for i, sort in zip(indices, self.names.arities[array], strict=True):
            # A sort that comes in parts counts from the start of its part.
            yield f"({self.starts[sort]} + {scope[i]})%nat" if sort in self.starts else scope[i]

    def _format_function_of_index(self, x: Term, scope: tuple[str, ...]) -> str:
        i = self.index(scope)
        return f"(fun {i} => {self.text(x.below[0], (i, *scope))})"

    def _format_function_call(self, x: Term, scope: tuple[str, ...]) -> tuple[str, int]:
        name = self.functions[x.numbers[0]]
        if self.takes(x.numbers[0]):
            return _format_application(name, [self.text(a.below[0], scope, 9) for a in x.below])
        # A list of single arguments; families over an index are lists of their own.
        if all(a.head == "One" for a in x.below):
            arguments = "; ".join(self.text(a.below[0], scope) for a in x.below)
            return f"{name} [{arguments}]", 8
        out = ""
        # From the last argument to the first, as lists are built in Coq.
        for n, a in enumerate(reversed(x.below)):
            if a.head == "One":
                out = f"{self.text(a.below[0], scope, 3)} :: {out or '[]'}"
            else:
                body = self._format_function_of_index(a, scope)
                family = f"map {body} (seq 0 {self.sizes[a.numbers[0]]})"
                out = f"{family} ++ {out}" if n else family
        return f"{name} ({out})", 8


def _format_application(name: str, arguments: Sequence[str]) -> tuple[str, int]:
    return (" ".join([name, *arguments]), 8) if arguments else (name, 9)


def _reserve_coq_name(word: str, used: set[str]) -> str:
    """Return an unused name."""
    plain = identifier(word)
    numbered = (f"{plain}_{n}" for n in count(2))
    own = next(w for w in chain([plain], numbered) if w not in used)
    used.add(own)
    return own


def typed(reader: CoqReader, array: int) -> str:
    """Return the type of an array."""
    return f"{'nat -> ' * len(reader.names.arities[array])}R"


def typed_function(reader: CoqReader, function: int) -> str:
    """Return the type of a function."""
    return f"{'R -> ' * reader.takes(function) or 'list R -> '}R"


def typed_arrays(reader: CoqReader, sizes: Iterable[str], arrays: Iterable[int]) -> list[str]:
    """Return sizes and arrays as parameters, with their types."""
    lengths = " ".join(sizes)
    groups = [f"({lengths} : nat)"] if lengths else []
    typed_keys = [f"({reader.arrays[k]} : {typed(reader, k)})" for k in arrays]
    return [*groups, *typed_keys]


def typed_functions(reader: CoqReader) -> list[str]:
    """Return functions as parameters, with their types."""
    named = reader.functions.items()
    return [f"({own} : {typed_function(reader, n)})" for n, own in named]
