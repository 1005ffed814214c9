"""A definition to verify: its inputs, its outputs, and equivalent ways of computing them.

A way is a function of the inputs by name, written once for all kinds of arrays. On ``rounded`` it returns the exact
outputs and a bound on every implementation that computes them in this way; the allowed error is the largest of these
bounds. A known mistake is a function of the same inputs that computes something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import log2, prod, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from symattn.arrays.formats import HALF
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds import judge
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import (
    ByLaw,
    Case,
    CaseResult,
    Expected,
    ScreenedOutput,
    screening_error,
)
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker, Sizes
from symattn.bounds.mistake import At, Compute, Mistake, MistakeFamily
from symattn.bounds.reference import canonical, trace
from symattn.document.errors import InputError
from symattn.document.text import equal_sizes
from symattn.verification import reduce, report
from symattn.verification.definitions import definition_judge
from symattn.verification.definitions.definition_mistakes import DefinitionForm
from symattn.verification.definitions.inner_attention import InnerAttention
from symattn.verification.definitions.output_run import OutputRun
from symattn.verification.definitions.recurrent_law import (
    HELD_OUT_CHUNKS,
    HELD_OUT_DECAY,
    SEVERAL_CHUNKS,
    RecurrentLaw,
)
from symattn.verification.power import LEAST, Mutation, powers
from symattn.verification.probing import behaviour, groups, hints, probes
from symattn.verification.probing.numbers import reserve_untried_temperatures
from symattn.verification.probing.together import few_keys_together, lengths_of_several
from symattn.verification.subject import Array, Cases, InputPairs, Random, Subject

if TYPE_CHECKING:
    from symattn.verification.diagnosis.causes import Search
    from symattn.verification.engine import Session

_DRAWN = 6  # cases on which a mistake must have an effect to count
_FEW_TOKENS = 4  # that are computed one after the other in float64
_UNSEEN = 3  # fresh cases to confirm a cause
#: Sizes of further fresh cases, under their names in a domain.
_HELD_OUT = (
    {"n_q": 20, "n_k": 21, "d_k": 5, "d_v": 3}, {"n_q": 13, "n_k": 71, "d_k": 6, "d_v": 4},
    {"n_q": 3, "n_k": 4, "d_k": 68, "d_v": 67, "d_model": 70}, {"n_q": 1, "n_k": 37},
)  # fmt: skip
_BEYOND = (19, 70)  # sizes a little beyond those of common tiles; larger ones take too long
#: Distances of most scores below the largest ones, and sizes at which they are tried.
_DISTANCES, _OF_DISTANT = (4.0, 9.0, 11.0, 15.0), {"b": 1, "h": 1, "n_q": 3, "n_k": 70}
#: Sizes that are large at once.
_AT_ONCE = (Sizes(261, 301, 72, 66, 80), Sizes(520, 1100, 72, 66, 80))
#: Sizes of several blocks at which parts without keys are tried as well.
_LARGE_WITH_EMPTY_PARTS = {"n_q": 140, "n_k": 270, "d_k": 8, "d_v": 66}
#: Entries of a recurrence's inputs beyond which no bounds in other formats are computed, which takes seconds.
_LARGEST_BOUNDED_IN_OTHER_FORMATS = 512
#: Group of inputs of several chunks of tokens, of recurrences that a law covers.
SEVERAL_CHUNKS_GROUP = "several chunks"
#: Mean of −g in long inputs of a recurrence, so that early tokens matter to late ones.
_SLOW_DECAY = 0.02
_MOST_AT_ONCE = 2**21  # entries of an array of which bounds hold some twenty copies
_TOKENS, _WIDTHS = ("n_q", "n_k"), ("d_k", "d_v", "d_model", "f")
Entries = Callable[[tuple[int, ...], Random], Array]
Numbers = Callable[[str, tuple[int, ...]], Array]  # from an input's name and shape
Family = Callable[[Random], Numbers]  # a way of drawing the numbers of one case
FAMILIES: dict[str, Family] = {
    name: probes.FAMILIES[name] for name in ("integer", "normal", "sparse", "large")
}


#: Groups of probes of an attention, besides the definition's own sizes and numbers.
PROBES = {name: groups.FIRST[name] for name in ("scale", "softmax", "structure", "mask")}

#: The meaning of letters in a domain, unless a subject says otherwise.
_MEANS = {"n": ("n_q", 1), "d": ("d_k", 1)}


@dataclass(frozen=True)
class Input:
    """An input array of a definition.

    ``shape`` names its axes by letters, ``b h n 2*f``: an axis may be a product of letters and numbers, and is left out
    if the sizes lack one of its letters. ``words`` are other names of its parameter; ``entries`` draws its numbers if
    they are not those of a family; a function may lack an input that is not ``needed``. An input ``made`` of the
    others, such as a saved output, is not drawn. ``step`` is blamed if the input is read wrongly; by default the
    definition's.
    """

    name: str
    shape: str
    words: str = ""
    entries: Entries | None = None
    needed: bool = True
    made: Callable[[Inputs], Array] | None = None
    step: str = ""


class CountedKeys(NamedTuple):
    """The contributions of keys to an output: the ``parts`` of all, and which are ``open``.

    They are divided by their sum if ``normalised``. ``run`` computes the output if each key counts as often as a table
    says; ``axis`` is that of tokens.
    """

    parts: Compute
    open: Callable[[int, int], Array]
    normalised: bool
    axis: int
    run: Callable[[Callable[[int, int], Array]], Compute]


class OtherForms(NamedTuple):
    """Forms that are not among a definition's ways, in words, and a bound on all of them: how far each entry of every
    output may be off, or None if these inputs have none."""

    words: str
    bound: Callable[[Inputs, Precision], Sequence[Array] | None]


@dataclass(frozen=True)
class Definition(Subject):
    """A definition in terms of its arrays, ready to be verified.

    title     what it is, for the report
    step      the step to blame if no more is known of a fault
    inputs    the arrays, in the usual order of parameters
    outputs   names of what is returned, in order
    ways      equal ways of computing the outputs
    mistakes  known mistakes
    families  ways of drawing numbers, by name
    others    further mistakes, tried if none of those explains the results
    shapes    sizes by letter, for each case that is tried for its shape; others are drawn from these
    settings  values of parameters that are not arrays, by name; a function of the inputs if it depends on them
    distant   a family, by distance, in which most exponentials are that far below the largest ones (None: there are no
              exponentials)
    empties   changes of inputs that leave a part without keys, or a cache empty or full, each in words
    undefined changes of inputs in pairs: with zeros in numbers of the weight 0, and with NaN there
    kept      letters that are the same in every case, however small
    width     the smallest legal d_k that is at least a given number
    means     letters that stand for the n_q, n_k, d_k, d_v or d_model of a domain, with the factor by
              which that is larger; by default, ``n`` is n_q and ``d`` is d_k
    changes   inputs that a call may change
    loose     outputs whose axes of length 1 may differ
    finish    a change of inputs that have been drawn, such as emptying slots
    admits    whether the definition has a result for inputs of these sizes
    open      whether inputs leave every query some key
    closing   a change of inputs that leaves some queries without a key
    numbered  mistakes with a number
    remade    the definition of another specification, to combine mistakes
    whole     word lists of inputs: on residues, the inputs in one of them are whole numbers in a run, so that exponents
              are linear in the others
    output_run the runs of an attention with the first output, and its bound; None if it is no attention's
    counted   how keys are counted, if weights can be read off
    recorded  ways in which single operations are replaced, if not ``ways``
    other_forms  the bound on forms in which code may compute it besides ``ways``
    described the specification that this was made from, if it is known
    costs     how many runs of attention one call counts as, such as several for a forward and a backward pass
    trials    effort of the search for a smaller input that shows a fault
    by_column whether a way of computing holds the products of all queries and keys for each column at once
    in_wide_rows  a change of inputs with wide rows and many tokens, after which outputs are of ordinary size
    inner     the attention that it contains, whose probes are tried; None if it contains none
    leak      what it is, in words, if NaN in numbers of the weight 0 reaches an output
    bounded_forms  on which implementations the bounds cover, if neither ``law`` nor ``other_forms`` say it
    law       the law of rounding of a recurrence, which replaces the bounds of ``ways`` on the inputs that it covers
    """

    title: str
    step: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    ways: tuple[Compute, ...]
    mistakes: Sequence[Mistake]
    shapes: tuple[Mapping[str, int], ...]
    families: Mapping[str, Family] = field(default_factory=lambda: FAMILIES)
    others: Sequence[Mistake] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    distant: Callable[[float], Family] | None = None
    empties: Callable[[dict[str, Array]], Iterator[tuple[str, dict[str, Array]]]] | None = None
    undefined: Callable[[dict[str, Array]], InputPairs] | None = None
    kept: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    loose: frozenset[str] = frozenset()
    finish: Callable[[dict[str, Array]], dict[str, Array]] = lambda inputs: inputs
    admits: Callable[[Inputs, Mapping[str, int]], bool] = lambda inputs, sizes: True
    open: Callable[[Inputs, Mapping[str, int]], bool] = lambda inputs, sizes: True
    closing: Callable[[dict[str, Array]], dict[str, Array]] | None = None
    width: Callable[[int], int] = int
    means: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    numbered: tuple[MistakeFamily, ...] = ()
    remade: Callable[[Any], Definition] | None = None
    whole: tuple[str, ...] = ("",)
    output_run: OutputRun | None = None
    counted: CountedKeys | None = None
    recorded: tuple[Compute, ...] = ()
    other_forms: OtherForms | None = None
    described: Any = None
    costs: int = 1
    trials: int = reduce.TRIALS
    by_column: bool = False
    in_wide_rows: Callable[[dict[str, Array]], dict[str, Array]] = lambda inputs: inputs
    inner: InnerAttention | None = None
    bounded_forms: str = ""
    law: RecurrentLaw | None = None
    leak: str = Subject.leak
    enough = 12
    climbed = 200
    meant = frozenset({"sizes", "scale", "structure", "mask", "windows", "tiles", "long"})
    screened_groups = frozenset(
        {*groups.LATER, *groups.LAST, SEVERAL_CHUNKS_GROUP} - {"distant keys"}
    )

    # -- letters -------------------------------------------------------------------------------------------------------
    def shape(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of an input for these sizes."""
        return tuple(prod(known(f, sizes) for f in axis) for axis in self.axes_of(name, sizes))

    def axes_of(self, name: str, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
        """Return the factors of each axis of an input, for axes whose letters the sizes have."""
        shape = next(i.shape for i in self.inputs if i.name == name)
        results = (tuple(axis.split("*")) for axis in shape.split())
        return tuple(a for a in results if all(f.isdecimal() or f in sizes for f in a))

    def sizes_of(self, inputs: Inputs) -> dict[str, int]:
        """Return the sizes by letter, from the arrays; leading axes that an array lacks are left out."""
        # letters that are the same in every case, such as the number of heads in h*d_k
        fixed = {x: {sizes.get(x) for sizes in self.shapes} for x in sorted(self.kept)}
        result = {
            x: n for x, of in fixed.items() if len(of) == 1 and (n := next(iter(of))) is not None
        }
        axes: list[tuple[list[str], int]] = []
        for name, a in inputs.items():
            letters = next(i.shape for i in self.inputs if i.name == name).split()
            axes += [
                (x.split("*"), n)
                for x, n in zip(reversed(letters), reversed(np.shape(a)), strict=False)
            ]
        # Single letters come first, as products are divided by letters that are known by then.
        for factors, length in sorted(axes, key=lambda pair: len(pair[0])):
            unknown = [f for f in factors if not f.isdecimal() and f not in result]
            if len(unknown) == 1:
                result[unknown[0]] = length // max(
                    prod(known(f, result) for f in factors if f != unknown[0]), 1
                )
        return result

    def meaning(self, letter: str) -> tuple[str, int]:
        """Return the domain's name for a letter, and the factor by which that size is larger."""
        return self.means.get(letter, _MEANS.get(letter, (letter, 1)))

    def named(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes by the names of a domain."""
        return {name: factor * sizes[x] for x in sizes for name, factor in [self.meaning(x)]}

    def admitted(self, inputs: Inputs, domain: Domain) -> bool:
        """Return whether the definition has a result for these inputs, and the domain includes them."""
        sizes = self.sizes_of(inputs)
        named = self.named(sizes)
        # Positions and latents allow some widths alone.
        legal = "d_k" not in named or self.width(named["d_k"]) == named["d_k"]
        if not legal or not self.admits(inputs, sizes) or not domain.admits(named):
            return False
        if self.inner is not None and not self.inner.keeps(inputs, domain):
            return False
        return domain.fully_masked_rows or self.open(inputs, sizes)

    def filled(self, inputs: Inputs, precision: Precision) -> dict[str, Array]:
        """Return the inputs, with those that are made of others computed and rounded to the format."""
        # Made of the inputs at hand, whatever array is passed under the name.
        outcome = {i.name: i.made for i in self.inputs if i.made is not None and i.name in inputs}
        arrays = {n: a for n, a in inputs.items() if n not in outcome}
        result = {n: np.asarray(make(arrays)) for n, make in outcome.items()}
        rounded = {
            n: a if a.dtype.kind in "biu" else precision.input.rounded(a) for n, a in result.items()
        }
        return self.finish({**arrays, **rounded})

    def within(self, sizes: Mapping[str, int], domain: Domain) -> dict[str, int]:
        """Return sizes of the domain that are as near as possible to these; unequal ones stay unequal if possible."""
        letters = {self.meaning(x)[0]: x for x in sizes if x not in self.kept}
        result = dict(sizes)
        for one, other, lengths in (("n_q", "n_k", domain.tokens), ("d_k", "d_v", domain.widths)):
            pair = [letters[name] for name in (one, other) if name in letters]
            wanted = [sizes[x] * self.meaning(x)[1] for x in pair]
            near = lengths.both(*wanted) if len(pair) == 2 else tuple(map(lengths.near, wanted))
            for x, length in zip(pair, near, strict=True):
                factor = self.meaning(x)[1]
                legal = self.width if self.meaning(x)[0] == "d_k" else int
                # The nearest legal size upwards, else downwards.
                larger, smaller = (
                    range(length, lengths.most + 1),
                    range(min(length, lengths.most), 0, -1),
                )
                fitting = (
                    n
                    for n in (*larger, *smaller)
                    if n in lengths and n % factor == 0 and legal(n) == n
                )
                length = next(fitting, length)
                result[x] = length // factor
        # Promises that tie sizes to each other override the nearest lengths.
        if domain.square and {"n_q", "n_k"} <= letters.keys():
            result[letters["n_q"]] = result[letters["n_k"]]
        if domain.decoding and "n_q" in letters:
            result[letters["n_q"]] = 1
        if (domain.same_width or domain.square_weights) and {"d_k", "d_v"} <= letters.keys():
            result[letters["d_v"]] = result[letters["d_k"]]
        if domain.square_weights and {"d_k", "d_model"} <= letters.keys():
            result[letters["d_model"]] = result.get("h", 1) * result[letters["d_k"]]
        return result

    def draw(
        self,
        names: Sequence[str],
        sizes: Mapping[str, int],
        numbers: Numbers,
        precision: Precision,
        rng: Random,
    ) -> dict[str, Array]:
        """Draw inputs of these sizes, rounded to the format, except whole numbers and booleans."""
        result = self._draw_definition_entries(names, sizes, numbers, precision, rng)
        # Placeholders, which ``filled`` replaces.
        result |= {
            i.name: np.zeros(0) for i in self.inputs if i.name in names and i.made is not None
        }
        return self.filled(result, precision)

    def _draw_definition_entries(
        self,
        names: Sequence[str],
        sizes: Mapping[str, int],
        numbers: Numbers,
        precision: Precision,
        rng: Random,
    ) -> dict[str, Array]:
        """Draw those of the inputs that are not made of others."""
        result: dict[str, Array] = {}
        for i in self.inputs:
            if i.name in names and i.made is None:
                shape = self.shape(i.name, sizes)
                a = np.asarray(i.entries(shape, rng) if i.entries else numbers(i.name, shape))
                # Whole numbers and booleans have no format to be rounded to.
                result[i.name] = (
                    a if i.entries and a.dtype.kind in "biu" else precision.input.rounded(a)
                )
        return result

    @property
    def returns_attended(self) -> bool:  # type: ignore[override]
        """See ``Subject``."""
        return self.inner is not None and self.inner.returned

    def weightless(self, session: Session, rng: Random) -> InputPairs:
        """See ``Subject``."""
        if self.undefined is None:
            return
        family = self._name_ordinary_family
        for sizes in self._list_admitted_shapes(session)[:2]:
            drawn = self._draw_definition_case(session, behaviour.GROUP, family, sizes, rng)
            yield from self.undefined(dict(drawn.inputs))

    @property
    def attention(self) -> Attention | None:
        """See ``Subject``."""
        return None if self.inner is None else self.inner.spec

    def attended(self, session: Session, made: Mapping[str, Array]) -> Array | None:
        """See ``Subject``."""
        if self.inner is None or self.inner.attended is None:
            return None
        rng = np.random.default_rng((session.seed, 22))

        def call(inputs: Mapping[str, Array]) -> Sequence[Array] | None:
            all_inputs = self.with_drawn(session, inputs, rng)
            outcome = (
                session.call(Case("structure", "weights", all_inputs))
                if self.fits(session, all_inputs)
                else None
            )
            # An output that is no array leaves nothing to read.
            outputs = [] if outcome is None else [outcome.output, *outcome.others]
            known = [a for a in outputs if a is not None]
            return known if known and len(known) == len(outputs) else None

        return self.inner.attended(call, made)

    def arrays_of_attention(self, inputs: Inputs) -> dict[str, Array] | None:
        """See ``Subject``."""
        return None if self.inner is None else self.inner.arrays_of(inputs)

    def final_scores(self, judged: CaseResult) -> Array | None:
        """See ``Subject``; in float64."""
        arrays = self.arrays_of_attention(judged.case.inputs)
        if self.inner is None or arrays is None:
            return None
        # Masks and positions stay booleans and integers; only floats are widened.
        spec = canonical(self.inner.spec)
        values = trace(
            spec,
            {n: a if a.dtype.kind in "biu" else a.astype(np.float64) for n, a in arrays.items()},
        )
        return np.asarray(At(spec, values, "weights").first)

    def maker(self, session: Session) -> Maker:
        """Return the maker of inputs of the attention in the definition. Raises ``InputError`` if there is none."""
        if self.inner is None:
            raise InputError(f"{self.title} contains no attention")
        return self.inner.maker(session)

    def case_of_attention(
        self, session: Session, group: str, title: str, made: Mapping[str, Array], rng: Random
    ) -> Case | None:
        """Return a case whose attention has these inputs; None if the definition has none."""
        arranged = None if self.inner is None else self.inner.arrange(made)
        if arranged is None:
            return None
        return Case(group, title, self.with_drawn(session, arranged, rng))

    def with_drawn(
        self, session: Session, inputs: Mapping[str, Array], rng: Random
    ) -> dict[str, Array]:
        """Return the inputs, rounded to the format, with whole numbers for all others that the function takes."""
        precision, taken = session.precision, session.runner.convention.inputs
        held = precision.input.rounded
        given = {n: np.asarray(held(a)) if a.dtype.kind == "f" else a for n, a in inputs.items()}
        names = tuple(n for n in taken if n not in given)
        # Small integers are exact in every format, so that extra arrays are not rounded.
        drawn = self._draw_definition_entries(
            names, self.sizes_of(given), FAMILIES["integer"](rng), precision, rng
        )
        # Arrays that are derived from others need a name here, and are filled in from those.
        placeholders = {
            i.name: np.zeros(0) for i in self.inputs if i.name in names and i.made is not None
        }
        return self.filled({**given, **drawn, **placeholders}, precision)

    def run(self, way: Compute, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the outputs of a way, as a tuple."""
        result = way(**arrays)
        return result if isinstance(result, tuple) else (result,)

    # -- inputs, see ``Subject`` ---------------------------------------------------------------------------------------
    def first(self) -> Mapping[str, Cases]:
        """See ``Subject``: every size, every kind of number, several chunks, and the probes of its attention."""
        chunks: dict[str, Cases] = (
            {} if self.law is None else {SEVERAL_CHUNKS_GROUP: self._of_several_chunks}
        )
        own = {"sizes": self._of_sizes, "numbers": self._of_numbers}
        return {**own, **chunks, **self.cases_of_probes(PROBES)}

    def later(self) -> Mapping[str, Cases]:
        """See ``Subject``: more tokens than common tiles have, and wider rows."""
        names = {"more tokens": _TOKENS, "wider rows": _WIDTHS}
        beyond: dict[str, Cases] = {
            group: partial(self._beyond_tiles, group, of) for group, of in names.items()
        }
        beyond["multiples"] = self._yield_multiple_length_cases
        if self.distant is not None:
            beyond["distant keys"] = self._of_distant
        # Probes of the attention inside follow, except groups that the definition has by itself.
        return beyond | {
            name: of
            for name, of in self.cases_of_probes(groups.LATER).items()
            if name not in beyond
        }

    def last(self) -> Mapping[str, Cases]:
        """See ``Subject``: long inputs of the attention, and inputs that are large in every size."""
        long = self.cases_of_probes({"long": groups.LAST["long"]})
        return {**long, "together": self._yield_wide_row_cases}

    def _of_several_chunks(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield several chunks of tokens at once, in wide rows, with keys and gates as models have them."""
        for wanted, decay in SEVERAL_CHUNKS:
            yield self._as_in_models(session, SEVERAL_CHUNKS_GROUP, wanted, decay, rng)

    def _as_in_models(
        self, session: Session, group: str, wanted: Mapping[str, int], decay: float, rng: Random
    ) -> Case:
        """Return a case of a recurrence with keys and gates as models have them; sizes by their names in a domain."""
        assert self.law is not None
        sizes = self.within(self._small_but({"b": 1, "h": 2, **wanted}), session.domain)
        case = self._draw_definition_case(session, group, self._name_ordinary_family, sizes, rng)
        inputs = self.law.as_in_models(case.inputs, decay, rng)
        rounding = session.precision.input.rounded
        # Changed numbers must be numbers of the format.
        return replace(case, inputs={name: np.asarray(rounding(a)) for name, a in inputs.items()})

    def resized(
        self, session: Session, sizes: Mapping[str, int], rng: Random
    ) -> Iterator[dict[str, Array]]:
        """See ``Subject``; of a recurrence with keys and gates as models have them, which many tokens need."""
        if self.law is None:
            yield from super().resized(session, sizes, rng)
            return
        case = self._as_in_models(session, SEVERAL_CHUNKS_GROUP, sizes, HELD_OUT_DECAY, rng)
        if self.fits(session, case.inputs):
            yield dict(case.inputs)

    def _of_distant(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield inputs in which most exponentials are far below the largest ones, and matter only together."""
        assert self.distant is not None
        sizes = self.within(self._small_but(_OF_DISTANT), session.domain)
        for distance in _DISTANCES:
            names = tuple(i.name for i in self.inputs if i.name in session.runner.convention.inputs)
            numbers = self.distant(distance)(rng)
            inputs = self.draw(names, sizes, numbers, session.precision, rng)
            yield Case(
                "distant keys", f"{distance:g} below the largest, {equal_sizes(sizes)}", inputs
            )

    def _yield_wide_row_cases(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield several blocks of 128 queries and of 128 keys in wide rows, at once."""
        for wanted in _AT_ONCE[: 1 if session.precision.input.name in HALF else None]:
            if self.law is not None:
                yield self._together_as_in_models(session, wanted, rng)
                continue
            wanted = self._in_memory(wanted)
            sizes = self._small_but({"b": 1, "h": 1, "f": wanted.d_model, **self._by_name(wanted)})
            case = self._draw_definition_case(
                session,
                "together",
                self._name_ordinary_family,
                self.within(sizes, session.domain),
                rng,
            )
            lighter = self.in_wide_rows(self._shrink_weight_matrices(case.inputs))
            # numbers that became smaller may be below the normal ones of half precision
            rounding = session.precision.input.rounded
            lighter = {
                name: rounding(a) if a.dtype.kind == "f" else a for name, a in lighter.items()
            }
            yield replace(case, inputs=self.filled(lighter, session.precision))
        if self.inner is not None and session.precision.input.name in HALF:
            few_keys = self.cases_of_probes({"together": few_keys_together})
            yield from few_keys["together"](session, rng)

    def _together_as_in_models(self, session: Session, wanted: Sizes, rng: Random) -> Case:
        """Return a case of a recurrence with as many tokens in wide rows."""
        sizes = {name: getattr(wanted, name) for name in ("n_q", "n_k", "d_k", "d_v")}
        return self._as_in_models(session, "together", sizes, _SLOW_DECAY, rng)

    def _in_memory(self, wanted: Sizes) -> Sizes:
        """Return sizes of fewer tokens if an array of n_q × n_k × d_k would be too large."""
        # Bounds of such a way hold an array of all pairs and columns.
        entries = wanted.n_q * wanted.n_k * wanted.d_k
        if not self.by_column or entries <= _MOST_AT_ONCE:
            return wanted
        shrunk = sqrt(_MOST_AT_ONCE / entries)
        return replace(wanted, n_q=int(shrunk * wanted.n_q), n_k=int(shrunk * wanted.n_k))

    def _shrink_weight_matrices(self, inputs: Inputs) -> dict[str, Array]:
        """Return the inputs with smaller weights that have entries of their own, so that scores are of ordinary size
        in wide rows."""
        drawn = {
            i.name
            for i in self.inputs
            if i.entries is not None and i.name.rpartition(".")[2].startswith("w_")
        }
        matrices = {n: a for n, a in inputs.items() if n in drawn and a.ndim > 1}
        # Powers of 2 leave the digits of entries as they are.
        factors = {n: 2.0 ** -round(log2(a.shape[-2]) / 2) for n, a in matrices.items()}
        return {**inputs, **{n: a * factors[n] for n, a in matrices.items()}}

    def _yield_multiple_length_cases(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield several times the shortest length as numbers of queries and keys, if short ones do not occur."""
        for n_q, n_k in lengths_of_several(session.domain):
            sizes = self._small_but({"b": 1, "h": 1, "n_q": n_q, "n_k": n_k})
            yield self._draw_definition_case(
                session,
                "multiples",
                self._name_ordinary_family,
                self.within(sizes, session.domain),
                rng,
            )

    def _by_name(self, sizes: Sizes) -> dict[str, int]:
        """Return the sizes by the names of a domain."""
        return {name: getattr(sizes, name) for name in (*_TOKENS, "d_k", "d_v", "d_model")}

    @property
    def _name_ordinary_family(self) -> str:
        """The family of normal numbers, or the first."""
        return next(f for f in ("normal", *self.families) if f in self.families)

    @property
    def items(self) -> int:
        """The number of heads and items in a case with several."""
        others = (x for x in self.shapes[1] if self.meaning(x)[0] not in (*_TOKENS, *_WIDTHS))
        return prod(self.shapes[1][x] for x in others)

    def _beyond_tiles(
        self, group: str, names: Sequence[str], session: Session, rng: Random
    ) -> Iterator[Case]:
        """Yield sizes beyond those of tiles under these names, of tokens also under one alone; all others are small."""
        present = {self.meaning(x)[0] for x in self.shapes[0].keys() - self.kept} & {*names}
        # If nothing but tokens is large, each of the two is large alone as well.
        alone = [(_BEYOND[-1], (name,)) for name in names if present == {*_TOKENS}]
        for k, (size, large) in enumerate([*((n, names) for n in _BEYOND if present), *alone]):
            sizes = self._small_but({"b": 1, "h": 1, **dict.fromkeys(large, size)})
            family = list(self.families)[k % len(self.families)]
            yield self._draw_definition_case(
                session, group, family, self.within(sizes, session.domain), rng
            )

    def _of_sizes(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield every size, each with one family."""
        families = list(self.families)
        for k, sizes in enumerate(self._list_admitted_shapes(session)):
            yield self._draw_definition_case(
                session, "sizes", families[k % len(families)], sizes, rng
            )

    def _of_numbers(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield every family at some sizes, also with rows without any key if the domain includes them."""
        sizes = self._list_admitted_shapes(session)
        # Every family at the smaller sizes, and at least at four of them.
        for s in sizes[: max(4, len(sizes) // 2)]:
            for family in self.families:
                case = self._draw_definition_case(session, "numbers", family, s, rng)
                yield case
                if session.domain.fully_masked_rows and self.closing:
                    result = self.closing(dict(case.inputs))
                    yield Case("numbers", f"{case.name}, a row without any key", result)

    def between(self, session: Session, rng: Random) -> None:
        """See ``Subject``: repeated calls, and arrays laid out otherwise in memory."""
        session.progress("again")
        for case in session.share("again", self.again(session, rng)):
            session.take(case)
        for case in session.share("empty parts", self._of_empties(session, rng)):
            # Empty parts are judged more leniently: see ``_take_empty``.
            _take_empty(session, case)
        behaviour.leaking(session, "all")

    def _of_empties(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield inputs with a part without keys, and with an empty and a full cache."""
        if self.empties is None:
            return
        large = self.within(self._small_but(_LARGE_WITH_EMPTY_PARTS), session.domain)
        for sizes in (*self._list_admitted_shapes(session)[:2], large):
            drawn_case = self._draw_definition_case(
                session, "empty parts", next(iter(self.families)), sizes, rng
            )
            # As with all large inputs: their bounds take minutes, and a fault that is known needs none.
            if sizes is large and session.known:
                return
            for words, inputs in self.empties(dict(drawn_case.inputs)):
                yield Case("empty parts", words, inputs)

    def again(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield the same inputs twice, with others of the same shape in between, and views."""
        families = list(self.families)
        for s in self._list_admitted_shapes(session)[1:3]:
            one, other = (
                self._draw_definition_case(session, "again", f, s, rng).inputs
                for f in (families * 2)[:2]
            )
            yield Case("again", "a first call", one)
            # A wrong result here may come from the call before, not from the inputs.
            yield Case(
                "again", "a second call, other numbers in the same shapes", other, alone=False
            )
            yield Case("again", "the first call again", one, alone=False)
            yield Case("again", "arrays with gaps in memory", one, "strided")
            yield Case("again", "arrays that are transposed views", one, "transposed")

    def required(self, session: Session) -> dict[str, int]:
        """See ``Subject``: repeated calls, if there are any, and random inputs."""
        again = len(list(islice(self.again(session, np.random.default_rng(session.seed)), LEAST)))
        return {"again": again, **super().required(session)}

    def drawn(self, session: Session, examples: int) -> Iterator[Case]:
        """Draw cases of any family, with sizes from the first two thirds, which should be the smaller ones."""
        rng = np.random.default_rng((session.seed, 5))
        for _ in range(examples):
            sizes = self.shapes[rng.integers(max(1, 2 * len(self.shapes) // 3))]
            family = list(self.families)[rng.integers(len(self.families))]
            yield self._draw_definition_case(
                session, "random", family, self.within(sizes, session.domain), rng
            )

    def altered(self, session: Session, inputs: Inputs, rng: Random) -> dict[str, Array]:
        """Scale one array whose numbers are drawn by family, or change one row of it."""
        changed = probes.perturbed(inputs, self.free(inputs), rng)
        return self.completed(
            session,
            {**inputs, **{n: session.precision.input.rounded(a) for n, a in changed.items()}},
        )

    def unseen(self, session: Session, mistakes: Sequence[Mistake]) -> Iterator[Case]:
        """Yield fresh cases of two families in turn, with larger sizes than before if the domain allows them."""
        # A seed of its own: fresh inputs must not depend on how many were drawn before.
        rng = np.random.default_rng((session.seed, 1))
        families = [f for f in ("normal", "integer") if f in self.families] or list(self.families)
        for k, sizes in enumerate(self.shapes[: 2 * _UNSEEN : 2]):
            # Two more than before, since a mistake may fit the sizes on which it was fitted.
            larger = {x: n if x in self.kept else n + 2 for x, n in sizes.items()}
            sizes = self.within(larger, session.domain)
            case = self._draw_definition_case(
                session, "fresh", families[k % len(families)], sizes, rng
            )
            if self.fits(session, case.inputs):
                yield case

    def of_other_sizes(
        self, session: Session, mistakes: Sequence[Mistake], rng: Random
    ) -> Iterator[Case]:
        """Yield held-out cases of sizes that are neither in ``shapes`` nor in the later groups."""
        if self.law is not None:
            held_out = self._as_in_models(session, "held out", HELD_OUT_CHUNKS, HELD_OUT_DECAY, rng)
            yield from [held_out] if self.fits(session, held_out.inputs) else []
        families = [f for f in ("normal", "integer") if f in self.families] or list(self.families)
        for number, sizes in enumerate(_HELD_OUT):
            # Only the first case here has several items and heads.
            one_item = {"b": 1, "h": 1} if number else {}
            near = self.within(self._small_but({**one_item, **sizes}), session.domain)
            case = self._draw_definition_case(
                session, "held out", families[number % len(families)], near, rng
            )
            if self.fits(session, case.inputs):
                yield case

    def sized(
        self, session: Session, sizes: Mapping[str, int], rng: Random
    ) -> Iterator[dict[str, Array] | None]:
        """Yield normal inputs of the given sizes; other sizes are those of a small case."""
        result = self._small_but(sizes)
        case = self._draw_definition_case(
            session, "sizes", self._name_ordinary_family, self.within(result, session.domain), rng
        )
        yield dict(case.inputs) if self.fits(session, case.inputs) else None

    def _small_but(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of a small case, with these under their names in a domain."""
        result = dict(self.shapes[0])
        for x in set(result) - self.kept:
            name, factor = self.meaning(x)
            # At least 1, as a size may be smaller than its factor.
            result[x] = max(1, sizes.get(name, factor * result[x]) // factor)
        return result

    def _list_admitted_shapes(self, session: Session) -> list[dict[str, int]]:
        """Return the sizes that are tried for their shapes, adjusted to the domain."""
        fitted = [self.within(s, session.domain) for s in self.shapes]
        return [s for s in fitted if session.domain.admits(self.named(s))]

    def _draw_definition_case(
        self, session: Session, group: str, family: str, sizes: Mapping[str, int], rng: Random
    ) -> Case:
        names = tuple(i.name for i in self.inputs if i.name in session.runner.convention.inputs)
        inputs = self.draw(names, sizes, self.families[family](rng), session.precision, rng)
        return Case(group, f"{family}, {equal_sizes(sizes)}", self._as_promised(session, inputs))

    def _as_promised(self, session: Session, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the inputs with scores as large as the domain promises, at most."""
        # Scores are shrunk only if they exceed the promise, so that other cases stay as drawn.
        if self.inner is None or self.inner.keeps(inputs, session.domain):
            return inputs
        rounding = session.precision.input.rounded
        tamed = self.inner.tamed(inputs, session.domain)
        return self.completed(
            session,
            {n: np.asarray(rounding(a)) if a.dtype.kind == "f" else a for n, a in tamed.items()},
        )

    def fits(self, session: Session, inputs: Inputs) -> bool:
        """Return whether the definition has a result for the inputs, and the domain includes them."""
        return self.admitted(inputs, session.domain)

    def free(self, inputs: Inputs) -> tuple[str, ...]:
        """Return the inputs whose numbers are drawn by family."""
        return tuple(
            i.name for i in self.inputs if i.name in inputs and i.entries is None and i.made is None
        )

    def completed(self, session: Session, inputs: Inputs) -> dict[str, Array]:
        """Compute the inputs that are made of others."""
        return self.filled(inputs, session.precision)

    def sizes(self, judged: CaseResult) -> dict[str, int]:
        """Return the sizes by the names of a domain."""
        return self.named(self.own_sizes(judged))

    def measured(self, judged: CaseResult) -> dict[str, int]:
        """Return the sizes, and the number of items of a batch; 1 for axes that a case lacks."""
        every = self.named({x: 1 for sizes in self.shapes for x in sizes})
        # Axes that a case lacks count as 1, so that conditions on them apply.
        return {
            "batch": self.own_sizes(judged).get("b", 1),
            **dict.fromkeys(every, 1),
            **self.sizes(judged),
        }

    def own_sizes(self, judged: CaseResult) -> dict[str, int]:
        """Return the sizes by the definition's own letters."""
        return self.sizes_of(judged.case.inputs)

    def axes(self, inputs: Inputs) -> reduce.Axes:
        """See ``Subject``; inputs made of others are not reduced, but made again."""
        sizes = self.sizes_of(inputs)
        drawn = [i.name for i in self.inputs if i.name in inputs and i.made is None]
        letters = {
            n: self.axes_of(n, sizes)[-np.ndim(inputs[n]) :] if np.ndim(inputs[n]) else ()
            for n in drawn
        }
        return reduce.Axes(letters, {x: n for x, n in sizes.items() if x in self.kept}, self.kept, means={
            x: self.meaning(x) for x in sizes})  # fmt: skip

    # -- outputs -------------------------------------------------------------------------------------------------------
    def law_of(self, inputs: Inputs) -> RecurrentLaw | None:
        """Return the law of rounding if it covers these inputs."""
        covered = self.law is not None and self.law.covers(inputs)
        return self.law if covered else None

    def screened(self, precision: Precision, inputs: Inputs) -> Sequence[Expected] | None:
        """See ``Subject``; a recurrence that a law covers is computed in chunks, unless it has few tokens."""
        law = self.law_of(inputs)
        # Chunks are computed head by head, and tokens for all heads at once.
        if law is None or self.sizes_of(inputs).get("n", 0) <= _FEW_TOKENS:
            return super().screened(precision, inputs)
        near = law.compute_exactly(inputs)
        return [ScreenedOutput(x, screening_error(x, precision)) for x in near]

    def legal(self, precision: Precision, inputs: Inputs) -> judge.Legal:
        """See ``definition_judge``."""
        return definition_judge.legal(self, precision, inputs)

    def right(self, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the outputs by the first way."""
        return self.run(self.ways[0], arrays)

    # -- causes --------------------------------------------------------------------------------------------------------
    def search(self, session: Session, wrong: list[CaseResult], right: list[CaseResult]) -> Search:
        """Return the search among the definition's mistakes."""
        # Imported here, as that module imports this one.
        from symattn.verification.definitions.definition_causes import InDefinition

        return InDefinition(session, wrong, right)

    def blamed(
        self, session: Session, smallest: CaseResult, records: Sequence[CaseResult]
    ) -> tuple[str, str]:
        """Return the idle step of the attention without which all is right, or that its values are in other places;
        else the definition's step, and the narrower format whose arithmetic could make such errors."""
        from symattn.verification.diagnosis.blaming import idle_step, other_values
        from symattn.verification.diagnosis.coarser import coarser

        # A step of the attention says more than the definition's own step.
        wrong = [smallest, *(r for r in records if r.finding == "values")]
        for look in (idle_step, other_values) if self.inner is not None else ():
            step, evidence = look(session, wrong)
            if step:
                return step, evidence
        # Bounds in other formats cost as much as the first one.
        if self.law is not None and smallest.case.size > _LARGEST_BOUNDED_IN_OTHER_FORMATS:
            return self.step, ""
        return self.step, coarser(session, records)[1]

    def coarse(self, session: Session, narrow: str) -> tuple[str, str]:
        """Return the definition's step, and words for errors that the ``narrow`` format could make."""
        name = f"all-{narrow}" if narrow == session.precision.input.name else narrow
        return self.step, f"its errors are ones that {name} arithmetic could make"

    # -- the report ----------------------------------------------------------------------------------------------------
    def words(self, session: Session) -> str:
        """Describe the definition, and the promises of the domain."""
        return f"{self.title}, {session.domain.words}"

    def power(self, session: Session) -> tuple[report.StepPower, ...]:
        """Return the power of the judged cases for each step with a known mistake."""
        rng = np.random.default_rng((session.seed, 4))
        drawn = [case.inputs for case in islice(self._of_sizes(session, rng), _DRAWN)]
        mutations = {step: [alike] for step, alike in self.mutations_by_step().items()}
        return powers(self.right, mutations, drawn, session.tried)

    def mutations_by_step(self) -> dict[str, list[Mutation]]:
        """Return the known mistakes of each step that change outputs in float64."""
        result: dict[str, list[Mutation]] = {}
        for m in self.mistakes:
            # In float64 a mistake that only loses digits has no effect.
            if m.exact:
                mutation = Mutation(m.step, m.cause, partial(self.run, m.run))
                result.setdefault(m.step, []).append(mutation)
        return result

    def reservations(self, session: Session) -> Iterator[str]:
        """See ``Subject``; of temperatures that no input is long enough for, and of several chunks that the law says
        nothing about, as with every sum in half precision."""
        attention = getattr(self.described, "attention", self.described)
        if isinstance(attention, Attention) and attention.temperature is not None:
            sizes = [self.sizes(r) for r in session.records]
            tokens = (max(s.get("n_q", 0), s.get("n_k", 0)) for s in sizes)
            yield from reserve_untried_temperatures(attention, max(tokens, default=0))
        if self.bounded_forms:
            yield self.bounded_forms
        several = [r for r in session.records if r.case.group == SEVERAL_CHUNKS_GROUP]
        # what is near enough to float64 was compared with no bound, and is right
        bounded = [r for r in several if isinstance(r.parts[0].expected, ByLaw)]
        silent = [r for r in bounded if not r.parts[0].expected.decisive().all()]
        if self.law is not None and silent:
            is_fused = session.precision.contract == "fused"
            hint = "" if is_fused else "; --contract fused judges code whose sums are in float32"
            yield (
                f"For {len(silent)} of {len(several)} inputs of several chunks, the output is further from the exact"
                " one than that of most code, and the bound of some entries says nothing: a state that is wrong between"
                f" chunks may go unnoticed{hint}."
            )

    def notes(self, session: Session, faults: bool) -> Iterator[str]:
        """Yield notes; if the ways have words, one on which implementations the verdict covers."""
        yield from behaviour.notes_of_leaks(session)
        yield from hints.notes(session.identity, faults)
        if session.on_empty:
            judged = session.on_empty[0]
            gives = judged.outcome.error or "numbers that are not finite"
            yield f"For {judged.case.name} it gives {gives}; --fully-masked makes that a fault."
        words = [way.words for way in self.ways if isinstance(way, DefinitionForm)]
        if words:
            yield f"Any implementation is one in one of these forms, each with its own bound: {'; '.join(words)}."
        if self.law is not None:
            yield self.law.words
        elif self.other_forms is not None:
            yield (
                "An error is compared with the bound of the form token by token; what exceeds it is compared with a "
                f"wider bound, of every form {self.other_forms.words}."
            )


def _take_empty(session: Session, case: Case) -> None:
    """Try a case with an empty part: wrong numbers are a fault, infinities in place of numbers too; NaN and errors only
    if the domain has rows without any key, since common formulas, such as σ(l₂ − l₁), have no value there."""
    if session.over:
        return
    judged = session.run_case(case)
    without = judged.finding == "raises" or (
        judged.finding == "not finite" and _lacks_values(judged)
    )
    # Common formulas have no value there, so NaN and errors are notes.
    if judged.finding is not None and without and not session.domain.fully_masked_rows:
        session.on_empty.append(judged)
    else:
        session.keep(judged)


def _lacks_values(judged: CaseResult) -> bool:
    """Return whether every wrong entry of the outputs is NaN: a formula that has no value there."""
    for part in judged.parts:
        if part.got is None or part.ratios is None:
            continue
        wrong = np.asarray(part.got, dtype=np.float64)[part.ratios > 1]
        if not np.isnan(wrong).all():
            return False
    return True


def known(factor: str, sizes: Mapping[str, int]) -> int:
    """Return the size of a letter, or the number that the factor is."""
    return int(factor) if factor.isdecimal() else sizes[factor]
