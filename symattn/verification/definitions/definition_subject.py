"""A definition to verify: its inputs, its outputs, and the ways of computing them that are equal.

A way is a function of the inputs by name, written once for all kinds of arrays. On ``rounded`` it gives the exact
outputs, and the bound on every implementation that computes them in this way; what is allowed is the largest of the
bounds. A known mistake is a function of the same inputs that computes something else.
"""

from __future__ import annotations

from collections import UserList
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.bounds import judge
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.domain import Domain
from symattn.bounds.mistake import Where
from symattn.verification import reduce, report
from symattn.verification.definitions import drawing, judging
from symattn.verification.power import LEAST, Mutation, powers
from symattn.verification.probing import hints
from symattn.verification.probing.search import perturbed
from symattn.verification.subject import Array, Cases, Random, Subject

if TYPE_CHECKING:
    from symattn.bounds.reference import Run
    from symattn.verification.diagnosis.causes import Search
    from symattn.verification.engine import Session

_DRAWN = 6  # cases on which a mistake must have an effect to be one
Compute = Callable[..., Any]  # of arrays by name, on any kind: an array, or a tuple of them
Entries = Callable[[tuple[int, ...], Random], Array]
Numbers = Callable[[str, tuple[int, ...]], Array]  # of an input's name and shape
Family = Callable[[Random], Numbers]  # how the numbers of one case are drawn


#: What letters mean in a domain, unless a subject says otherwise.
_MEANS = {"n": ("n_q", 1), "d": ("d_k", 1)}


@dataclass(frozen=True)
class Input:
    """An array that the definition takes.

    ``shape`` names its axes by letters, ``b h n 2*f``: an axis may be a product of letters and numbers, and is left
    out where the sizes lack a letter of it. ``words`` are other names that parameters have for it; ``entries`` are its
    numbers where they are not those of the family that is tried; a function may lack what is not ``needed``. What is
    ``made`` of the other inputs, such as an output that was saved, is not drawn. ``step`` is blamed where it is read
    wrongly; by default that of the definition.
    """

    name: str
    shape: str
    words: str = ""
    entries: Entries | None = None
    needed: bool = True
    made: Callable[[Inputs], Array] | None = None
    step: str = ""


@dataclass(frozen=True)
class DefinitionForm:
    """A way of computing, and what it is in words."""

    words: str
    run: Compute

    def __call__(self, **keywords: Any) -> Any:
        return self.run(**keywords)


@dataclass(frozen=True)
class DefinitionMistake:
    """A known mistake: the step that it is in, the cause in words, and what is then computed.

    ``exact``: in exact numbers it gives something else. A mistake that is not loses digits, no more. ``where`` says in
    which cases it is made (None: in all). ``spec``, if it is just another specification, is that one; ``change``, if
    it is made beside the definition, makes it in any way of computing; ``reads`` is the input that it changes alone.
    """

    step: str
    cause: str
    run: Compute
    exact: bool = True
    where: Where | None = None
    spec: Any = None
    change: Callable[[Compute], Compute] | None = None
    reads: str = ""

    @property
    def computes(self) -> object:
        """A key for all that the mistake computes, wherever it is made."""
        return self.run


@dataclass(frozen=True)
class Numbered:
    """Mistakes with a number x: the step, the cause in words around {}, and what is then computed.

    They are sought from the points of the ``grid`` on. ``spec`` gives the specification with that number, if each is
    just another one.
    """

    step: str
    words: str
    run: Callable[[float], Compute]
    grid: Sequence[float]
    spec: Callable[[float], Any] = lambda x: None

    def mistake(self, x: float, written: str) -> DefinitionMistake:
        """The mistake with this number, and how it is written."""
        return DefinitionMistake(self.step, self.words.format(written), self.run(x), spec=self.spec(x))


class Later(UserList[DefinitionMistake]):
    """Mistakes that are made when they are first looked at: many definitions are asked for their ways alone."""

    def __init__(self, make: Callable[[], Iterable[DefinitionMistake]]) -> None:
        self._make = make

    @cached_property
    def data(self) -> list[DefinitionMistake]:  # type: ignore[override]
        """The mistakes."""
        return list(self._make())


@dataclass(frozen=True)
class Definition(Subject):
    """A definition by its arrays, ready to be verified.

    title     what it is, for the report
    step      the step that a fault is in of which no more is known
    inputs    the arrays, in the usual order of parameters
    outputs   names of what is returned, in order
    ways      equal ways of computing the outputs
    mistakes  known mistakes
    families  how numbers are drawn: a name, and the function
    others    further mistakes, which are looked at where none of those explains what was seen
    shapes    sizes by letter, for each case that is tried for its shape; others are drawn from these
    settings  values of parameters that are no arrays, by name; a function of the inputs where it depends on them
    kept      letters that are the same in every case, however small
    width     the smallest d_k from a number on that the specification can take
    means     letters that stand for the n_q, n_k, d_k, d_v or d_model of a domain, with the factor by
              which that is larger; ``n`` is n_q and ``d`` is d_k otherwise
    changes   inputs that a call may change
    loose     outputs of which axes of length 1 may differ
    finish    what is changed in inputs that have been drawn, such as slots that are to be empty
    admits    which inputs, of which sizes, the definition has a result for
    open      which of these leave every query some key
    closing   inputs with queries that no key is left to, made of others
    numbered  mistakes with a number
    remade    the same of another specification, for mistakes of both kinds at once
    whole     inputs that are whole numbers on residues, those of one run in a word list, so that exponents are linear
              in the others
    as_run    the run of an attention whose output this is: what leaves the range of a format is then named
    costs     how many runs one counts for, where more is computed than the definition: a forward and a backward pass
    """

    title: str
    step: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    ways: tuple[Compute, ...]
    mistakes: Sequence[DefinitionMistake]
    shapes: tuple[Mapping[str, int], ...]
    families: Mapping[str, Family] = field(default_factory=lambda: drawing.FAMILIES)
    others: Sequence[DefinitionMistake] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    loose: frozenset[str] = frozenset()
    finish: Callable[[dict[str, Array]], dict[str, Array]] = lambda inputs: inputs
    admits: Callable[[Inputs, Mapping[str, int]], bool] = lambda inputs, sizes: True
    open: Callable[[Inputs, Mapping[str, int]], bool] = lambda inputs, sizes: True
    closing: Callable[[dict[str, Array]], dict[str, Array]] | None = None
    width: Callable[[int], int] = int
    means: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    numbered: tuple[Numbered, ...] = ()
    remade: Callable[[Any], Definition] | None = None
    whole: tuple[str, ...] = ("",)
    as_run: Callable[[Inputs], Run] | None = None
    costs: int = 1
    enough = 12
    climbed = 200
    meant = frozenset({"sizes"})

    # -- letters -------------------------------------------------------------------------------------------------------
    def shape(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of an input for these sizes."""
        return tuple(prod(known(f, sizes) for f in axis) for axis in self.axes_of(name, sizes))

    def axes_of(self, name: str, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
        """The letters of each axis of an input, as far as the sizes have them."""
        shape = next(i.shape for i in self.inputs if i.name == name)
        results = (tuple(axis.split("*")) for axis in shape.split())
        return tuple(a for a in results if all(f.isdecimal() or f in sizes for f in a))

    def sizes_of(self, inputs: Inputs) -> dict[str, int]:
        """The letters' sizes, from the arrays; leading axes that an array lacks are left out."""
        result = self._fixed()
        axes = [pair for name, a in inputs.items() for pair in self._lengths(name, np.shape(a))]
        for factors, length in sorted(axes, key=lambda pair: len(pair[0])):
            unknown = [f for f in factors if not f.isdecimal() and f not in result]
            if len(unknown) == 1:
                result[unknown[0]] = length // max(prod(known(f, result) for f in factors if f != unknown[0]), 1)
        return result

    def _fixed(self) -> dict[str, int]:
        """The letters that are the same in every case: of h*d_k, the number of heads."""
        result = {x: {sizes.get(x) for sizes in self.shapes} for x in sorted(self.kept)}
        return {x: n for x, of in result.items() if len(of) == 1 and (n := next(iter(of))) is not None}

    def _lengths(self, name: str, shape: tuple[int, ...]) -> list[tuple[list[str], int]]:
        axes = next(i.shape for i in self.inputs if i.name == name).split()
        return [(a.split("*"), n) for a, n in zip(reversed(axes), reversed(shape), strict=False)]

    def meaning(self, letter: str) -> tuple[str, int]:
        """Return the input that a letter of a domain means, and the factor by which that is larger."""
        return self.means.get(letter, _MEANS.get(letter, (letter, 1)))

    def named(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes as a domain names them."""
        return {name: factor * sizes[x] for x in sizes for name, factor in [self.meaning(x)]}

    def admitted(self, inputs: Inputs, domain: Domain) -> bool:
        """Return whether the definition has a result for these inputs, and the domain has such."""
        sizes = self.sizes_of(inputs)
        named = self.named(sizes)
        legal = "d_k" not in named or self.width(named["d_k"]) == named["d_k"]
        if not legal or not self.admits(inputs, sizes) or not domain.admits(named):
            return False
        return domain.fully_masked_rows or self.open(inputs, sizes)

    def filled(self, inputs: Inputs, precision: Precision) -> dict[str, Array]:
        """The inputs, with those that are made of others, as the format holds them."""
        outcome = {i.name: i.made for i in self.inputs if i.made is not None and i.name in inputs}
        arrays = {n: a for n, a in inputs.items() if n not in outcome}
        result = {n: np.asarray(make(arrays)) for n, make in outcome.items()}
        rounded = {n: a if a.dtype.kind in "biu" else precision.input.rounded(a) for n, a in result.items()}
        return self.finish({**arrays, **rounded})

    def run(self, way: Compute, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs, as a tuple."""
        result = way(**arrays)
        return result if isinstance(result, tuple) else (result,)

    # -- inputs, see ``Subject`` ---------------------------------------------------------------------------------------
    def first(self) -> Mapping[str, Cases]:
        """Every size, and every kind of number."""
        return {"sizes": drawing.of_sizes, "numbers": drawing.of_numbers}

    def between(self, session: Session, rng: Random) -> None:
        """Calls again, and in other kinds of memory."""
        session.progress("again")
        for case in session.share("again", drawing.again(session, rng)):
            session.take(case)

    def required(self, session: Session) -> dict[str, int]:
        """Calls again, as far as there are any, and inputs at random."""
        again = len(list(islice(drawing.again(session, np.random.default_rng(session.seed)), LEAST)))
        return {"again": again, **super().required(session)}

    def drawn(self, session: Session, examples: int) -> Iterator[Case]:
        """See ``drawing.at_random``."""
        rng = np.random.default_rng((session.seed, 5))
        return (drawing.at_random(session, rng) for _ in range(examples))

    def altered(self, session: Session, inputs: Inputs, rng: Random) -> dict[str, Array]:
        """One array of those without numbers of its own scaled, or one row of it changed."""
        changed = perturbed(inputs, self.free(inputs), rng)
        return self.completed(
            session, {**inputs, **{n: session.precision.input.rounded(a) for n, a in changed.items()}}
        )

    def unseen(self, session: Session, mistakes: Any) -> Iterator[Case]:
        """Cases of the smaller sizes, of two families in turn."""
        return drawing.unseen(session, np.random.default_rng((session.seed, 1)))

    def sized(self, session: Session, sizes: Mapping[str, int], rng: Random) -> Iterator[dict[str, Array] | None]:
        """Normal inputs, of the sizes of a small case otherwise."""
        yield drawing.sized(session, sizes, rng)

    def fits(self, session: Session, inputs: Inputs) -> bool:
        """Return whether the definition has a result for them, and the domain has them."""
        return self.admitted(inputs, session.domain)

    def free(self, inputs: Inputs) -> tuple[str, ...]:
        """Return the inputs without numbers of their own."""
        return tuple(i.name for i in self.inputs if i.name in inputs and i.entries is None and i.made is None)

    def completed(self, session: Session, inputs: Inputs) -> dict[str, Array]:
        """Compute the inputs that are made of others."""
        return self.filled(inputs, session.precision)

    def sizes(self, judged: CaseResult) -> dict[str, int]:
        """As a domain names them."""
        return self.named(self.told(judged))

    def measured(self, judged: CaseResult) -> dict[str, int]:
        """The sizes, and how many items a batch has; 1 for axes that a case lacks."""
        every = self.named({x: 1 for sizes in self.shapes for x in sizes})
        return {"batch": self.told(judged).get("b", 1), **dict.fromkeys(every, 1), **self.sizes(judged)}

    def told(self, judged: CaseResult) -> dict[str, int]:
        """In the definition's own letters."""
        return self.sizes_of(judged.case.inputs)

    def axes(self, inputs: Inputs) -> reduce.Axes:
        """Letters; what is made of other inputs is made again, and not reduced."""
        sizes = self.sizes_of(inputs)
        drawn = [i.name for i in self.inputs if i.name in inputs and i.made is None]
        letters = {n: self.axes_of(n, sizes)[-np.ndim(inputs[n]) :] if np.ndim(inputs[n]) else () for n in drawn}
        return reduce.Axes(letters, {x: n for x, n in sizes.items() if x in self.kept}, self.kept, means={
            x: self.meaning(x) for x in sizes})  # fmt: skip

    # -- outputs -------------------------------------------------------------------------------------------------------
    def legal(self, precision: Precision, inputs: Inputs) -> judge.Legal:
        """See ``judging``."""
        return judging.legal(self, precision, inputs)

    def right(self, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs by the first way."""
        return self.run(self.ways[0], arrays)

    # -- causes --------------------------------------------------------------------------------------------------------
    def search(self, session: Session, wrong: list[CaseResult], right: list[CaseResult]) -> Search[Any]:
        """Among the definition's own mistakes."""
        from symattn.verification.definitions.definition_causes import InDefinition

        return InDefinition(session, wrong, right)

    def blamed(self, session: Session, smallest: CaseResult, records: Sequence[CaseResult]) -> tuple[str, str]:
        """The step of the definition; and the narrower format whose arithmetic could make such errors."""
        from symattn.verification.diagnosis.coarser import coarser

        return self.step, coarser(session, records)[1]

    def coarse(self, session: Session, narrow: str) -> tuple[str, str]:
        """The step of the definition."""
        name = f"all-{narrow}" if narrow == session.precision.input.name else narrow
        return self.step, f"its errors are ones that {name} arithmetic could make"

    # -- the report ----------------------------------------------------------------------------------------------------
    def words(self, session: Session) -> str:
        """The definition, and the largest sizes that were tried."""
        most: dict[str, int] = {}
        for judged in session.records:
            for letter, size in self.told(judged).items():
                most[letter] = max(size, most.get(letter, 0))
        result = ", ".join(f"{letter} ≤ {size}" for letter, size in most.items() if letter not in self.kept)
        return f"{self.title}, {result}"

    def power(self, session: Session) -> tuple[report.StepPower, ...]:
        """Return the power of the judged cases for each step that some known mistake is in."""
        rng = np.random.default_rng((session.seed, 4))
        drawn = [case.inputs for case in islice(drawing.of_sizes(session, rng), _DRAWN)]
        mutations: dict[str, list[Mutation]] = {}
        for m in self.mistakes:
            if m.exact:
                mutations.setdefault(m.step, []).append(Mutation(m.step, m.cause, partial(self.run, m.run)))
        return powers(self.right, {step: [alike] for step, alike in mutations.items()}, drawn, session.tried)

    def notes(self, session: Session, faults: bool) -> Iterator[str]:
        """Yield notes on the meaning of any implementation, where the ways have words."""
        yield from hints.notes(session.identity, faults)
        words = [way.words for way in self.ways if isinstance(way, DefinitionForm)]
        if words:
            yield f"Any implementation is one in one of these forms, each with its own bound: {'; '.join(words)}."


def known(factor: str, sizes: Mapping[str, int]) -> int:
    """The size of a letter, or a number."""
    return int(factor) if factor.isdecimal() else sizes[factor]
