"""A definition to verify: its inputs, its outputs, and equivalent ways of computing them.

A way is a function of the inputs by name, written once for all kinds of arrays. On ``rounded`` it returns the exact
outputs and a bound on every implementation that computes them in this way; the allowed error is the largest of these
bounds. A known mistake is a function of the same inputs that computes something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds import judge
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import (
    ByLaw,
    CaseResult,
    Expected,
    ScreenedOutput,
    screening_error,
)
from symattn.bounds.domain import Domain
from symattn.bounds.mistake import At, Compute, Mistake, MistakeFamily
from symattn.bounds.reference import canonical, float64_outputs, lifted, trace
from symattn.document.errors import SymattnError
from symattn.verification import reduce
from symattn.verification.definitions import definition_judge
from symattn.verification.definitions.definition_flow import DefinitionFlow, FlowOfWays
from symattn.verification.definitions.definition_forms import DefinitionForm
from symattn.verification.definitions.inner_attention import InnerAttention
from symattn.verification.definitions.inputs_by_letters import (
    FAMILIES,
    PROBED_GROUPS,
    SEVERAL_CHUNKS_GROUP,
    TOKENS,
    WIDTHS,
    Family,
    InputsByLetters,
    Numbers,
)
from symattn.verification.definitions.output_run import OutputRun
from symattn.verification.diagnosis.observe import ObservedScale, scales
from symattn.verification.input_source import Array, InputPairs, InputSource, Random
from symattn.verification.power import Mutation
from symattn.verification.probing import groups, hints
from symattn.verification.report import Counterexample, SmallestSeen

if TYPE_CHECKING:
    from symattn.arrays.field.quotient import Quotient
    from symattn.verification.definitions.recurrent_law import RecurrentLaw
    from symattn.verification.diagnosis.causes import Cause, Search
    from symattn.verification.engine import Session

_FEW_TOKENS = 4  # that are computed one after the other in float64
Entries = Callable[[tuple[int, ...], Random], Array]

#: Groups that test what is computed rather than its arithmetic, unless a subject names others.
_MEANT = frozenset({"sizes", "scale", "structure", "mask", "windows", "tiles", "long"})
_SCREENED_GROUPS = frozenset({*groups.LATER, *groups.LAST, SEVERAL_CHUNKS_GROUP} - {"distant keys"})
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
class Definition:
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
    forms     words for the ``ways`` that have none of their own
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
    fields    the fields of the specification that differ from the defaults, for the report
    make_source  makes the maker of its inputs
    make_flow  makes its flow, of steps or of ``ways``
    look_closer  searches for faults that no bound shows, if no fault is known
    look_early  does the quicker part of that before most calls, if a verdict alone is wanted
    what      what the inputs must fit, in words
    misshapen the step to name for a wrong shape that nothing explains
    enough    number of wrong cases after which the first groups show nothing new
    climbed   largest number of input entries from which larger errors are sought
    meant     groups that test what is computed rather than its arithmetic
    screened_groups  groups whose calls are compared with float64 first, however small they are
    probed_groups  the same once residues agree: groups that ask what is computed, in single precision and wider
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
    forms: tuple[str, ...] = ()
    other_forms: OtherForms | None = None
    described: Any = None
    costs: int = 1
    trials: int = reduce.TRIALS
    by_column: bool = False
    in_wide_rows: Callable[[dict[str, Array]], dict[str, Array]] = lambda inputs: inputs
    inner: InnerAttention | None = None
    bounded_forms: str = ""
    law: RecurrentLaw | None = None
    leak: str = "NaN in a key or value that no query may attend to reaches an output"
    fields: Mapping[str, str] = field(default_factory=dict)
    make_source: Callable[[Definition], InputSource] = InputsByLetters
    make_flow: Callable[[Definition], DefinitionFlow] = FlowOfWays
    look_closer: Callable[[Session], None] | None = None
    look_early: Callable[[Session], None] | None = None
    what: str = "the definition"
    misshapen: str = "output"
    enough: float = 12
    climbed: int = 200
    meant: frozenset[str] = _MEANT
    screened_groups: frozenset[str] = _SCREENED_GROUPS
    probed_groups: frozenset[str] = PROBED_GROUPS

    @cached_property
    def source(self) -> InputSource:
        """The maker of its inputs."""
        return self.make_source(self)

    def describe_other_form(self, number: int) -> str:
        """Return in words in which form an operation is replaced; empty for the first way, which documents show.

        Another form has arrays that code may not have, such as log 2: “uses log(√2) instead of log(2)” is then true of
        the form, and not of a line of the code.
        """
        if not number:
            return ""
        way = self.recorded_ways[number]
        of_ways = () if self.recorded else self.forms
        form = (
            way.words if isinstance(way, DefinitionForm) else "".join(of_ways[number : number + 1])
        )
        return f", in the form {form}" if form else ", in another form of the definition"

    @property
    def recorded_ways(self) -> tuple[Compute, ...]:
        """The ways in which single operations are replaced."""
        return self.recorded or self.ways

    # -- letters -------------------------------------------------------------------------------------------------------
    def shape(self, name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of an input for these sizes."""
        return tuple(prod(known(f, sizes) for f in axis) for axis in self.axes_of(name, sizes))

    def axes_of(self, name: str, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
        """Return the factors of each axis of an input, for axes whose letters the sizes have."""
        shape = next(i.shape for i in self.inputs if i.name == name)
        results = (tuple(axis.split("*")) for axis in shape.split())
        return tuple(a for a in results if all(f.isdecimal() or f in sizes for f in a))

    @property
    def fixed_sizes(self) -> dict[str, int]:
        """The letters that are the same in every case, such as the number of heads in h*d_k, with their sizes."""
        sizes_of_letters = {x: {sizes.get(x) for sizes in self.shapes} for x in sorted(self.kept)}
        return {
            x: n
            for x, of in sizes_of_letters.items()
            if len(of) == 1 and (n := next(iter(of))) is not None
        }

    def has_fixed_sizes(self, inputs: Inputs) -> bool:
        """Return whether the axes of arrays have the sizes that are the same in every case, as widths of a module."""
        fixed, shapes = self.fixed_sizes, {i.name: i.shape for i in self.inputs}
        for name, a in inputs.items():
            letters = shapes.get(name, "").split()
            for product, n in zip(reversed(letters), reversed(np.shape(a)), strict=False):
                factors = product.split("*")
                is_fixed = all(f.isdecimal() or f in fixed for f in factors)
                if is_fixed and n != prod(known(f, fixed) for f in factors):
                    return False
        return True

    def sizes_of(self, inputs: Inputs) -> dict[str, int]:
        """Return the sizes by letter, from the arrays; leading axes that an array lacks are left out."""
        result = self.fixed_sizes
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

    @property
    def items(self) -> int:
        """The number of heads and items in a case with several."""
        others = (x for x in self.shapes[1] if self.meaning(x)[0] not in (*TOKENS, *WIDTHS))
        return prod(self.shapes[1][x] for x in others)

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
        result = self.draw_entries(names, sizes, numbers, precision, rng)
        # Placeholders, which ``filled`` replaces.
        result |= {
            i.name: np.zeros(0) for i in self.inputs if i.name in names and i.made is not None
        }
        return self.filled(result, precision)

    def draw_entries(
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

    # -- the attention inside ------------------------------------------------------------------------------------------
    @property
    def attention(self) -> Attention | None:
        """The attention that it is or contains; None if there is none."""
        return None if self.inner is None else self.inner.spec

    @cached_property
    def flow(self) -> DefinitionFlow:
        """The flow of its steps or ways, and of what can be wrong in them."""
        return self.make_flow(self)

    @property
    def returns_attended(self) -> bool:
        """Return whether the first output is that of an attention, as ``attended`` of its source returns it."""
        return self.inner is not None and self.inner.returned

    def final_scores(self, judged: CaseResult) -> Array | None:
        """Return the scores of that attention in a case in float64, −∞ where a key is forbidden; None if they are
        unknown."""
        arrays = self.source.arrays_of_attention(judged.case.inputs)
        if self.inner is None or arrays is None:
            return None
        # Masks and positions stay booleans and integers; only floats are widened.
        spec = canonical(self.inner.spec)
        values = trace(
            spec,
            {n: a if a.dtype.kind in "biu" else a.astype(np.float64) for n, a in arrays.items()},
        )
        return np.asarray(At(spec, values, "weights").first)

    # -- outputs -------------------------------------------------------------------------------------------------------
    def run(self, way: Compute, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the outputs of a way, as a tuple."""
        result = way(**arrays)
        return result if isinstance(result, tuple) else (result,)

    def law_of(self, inputs: Inputs) -> RecurrentLaw | None:
        """Return the law of rounding if it covers these inputs."""
        covered = self.law is not None and self.law.covers(inputs)
        return self.law if covered else None

    def screened(self, precision: Precision, inputs: Inputs) -> Sequence[Expected] | None:
        """Return the outputs in float64 with a narrow allowed error, or None if they are not to be screened.

        What is within this error is legal; only what is not needs the bounds, which take long for large inputs. A
        recurrence that a law covers is computed in chunks, unless it has few tokens.
        """
        if self.output_run is not None and self.output_run.screened is not None:
            return self.output_run.screened(precision, inputs)
        law = self.law_of(inputs)
        # Chunks are computed head by head, and tokens for all heads at once.
        if law is None or self.sizes_of(inputs).get("n", 0) <= _FEW_TOKENS:
            near: Sequence[Array] = float64_outputs(self.right, inputs)
        else:
            near = law.compute_exactly(inputs)
        return [ScreenedOutput(x, screening_error(x, precision)) for x in near]

    def legal(self, precision: Precision, inputs: Inputs) -> judge.Legal:
        """Return the legal outputs of a call with these inputs; see ``definition_judge``."""
        return definition_judge.legal(self, precision, inputs)

    def right(self, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the outputs by the first way."""
        return self.run(self.ways[0], arrays)

    def exact(self, inputs: Inputs, of: int, at: tuple[int, ...]) -> Quotient | None:
        """Return the expected entry of an output in exact numbers, or None if these cannot represent it."""
        from symattn.arrays.exact import Exact
        from symattn.arrays.field.quotient import Quotient

        try:
            # Exact numbers have no exponentials of some arguments, and raise.
            exact_inputs = {n: lifted(np.asarray(a), Exact) for n, a in inputs.items()}
            entry = self.right(exact_inputs)[of].entries[at]
        except (SymattnError, TypeError, AttributeError):
            return None
        return entry if isinstance(entry, Quotient) else None

    # -- causes --------------------------------------------------------------------------------------------------------
    def search(self, session: Session, wrong: list[CaseResult], right: list[CaseResult]) -> Search:
        """Return a search for mistakes that explain all ``wrong`` cases and contradict no ``right`` one."""
        # Imported here, as that module imports this one; only a wrong function needs it.
        from symattn.verification.definitions.definition_causes import DefinitionSearch

        return DefinitionSearch(session, wrong, right)

    def explained(
        self, example: Counterexample, smallest: CaseResult, cause: Cause
    ) -> Counterexample:
        """Return the counterexample with the steps to its worst row, if one mistake in these explains it."""
        mistake = cause.only if cause.sure else None
        # Ways around a mistake have steps of their own.
        if mistake is None or mistake.around or not cause.shows(smallest):
            return example
        return replace(example, steps=self.flow.compare_steps(smallest, mistake))

    def observed(self, session: Session, step: str) -> tuple[ObservedScale, ...]:
        """Return the scales that the weights show, for a fault of the scale of an attention that is returned."""
        if step != "scale" or self.attention is None or not self.returns_attended:
            return ()
        return scales(self.attention, session.records)

    def expectation(self, step: str) -> str:
        """Return the expected scale in words to append to a cause, for a fault of the scale of an attention."""
        if step != "scale" or self.attention is None:
            return ""
        scale = self.attention.scale
        if scale is None and self.attention.score == "dot":
            return "; expected 1/√d_k"
        return "; expected none" if scale in (1, None) else f"; expected {scale}"

    def form(self, session: Session, wrong: Sequence[CaseResult]) -> tuple[str, str]:
        """Return step and name of a form of the attention that loses relative accuracy and whose own bound covers all
        errors, or ("", "")."""
        return self.flow.find_form(session.precision, wrong)

    def blamed(
        self, session: Session, smallest: CaseResult, records: Sequence[CaseResult]
    ) -> tuple[str, str]:
        """Return the step to blame for a fault that no known mistake explains, and the evidence in words."""
        return self.flow.blame_step(session, smallest, records)

    def coarse(self, session: Session, narrow: str) -> tuple[str, str]:
        """Return the step to blame if arithmetic in a ``narrow`` format could cause all errors, and the evidence."""
        return self.flow.blame_format(session, narrow)

    # -- the report ----------------------------------------------------------------------------------------------------
    def words(self, session: Session) -> str:
        """Describe the definition, and the promises of the domain."""
        return f"{self.title}, {session.domain.words}" if self.title else session.domain.words

    def smallest_seen(self, session: Session) -> tuple[SmallestSeen, ...]:
        """Return the smallest relative errors of a step's numbers that the judged cases would have shown."""
        return self.flow.find_smallest_seen(session)

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
        """Yield what limits the verdict: inputs that were not tried, and several chunks that the law says nothing
        about, as with every sum in half precision."""
        yield from self.source.reservations(session)
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
        yield from self.source.notes(session)
        yield from hints.notes(session.identity, faults)
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


def known(factor: str, sizes: Mapping[str, int]) -> int:
    """Return the size of a letter, or the number that the factor is."""
    return int(factor) if factor.isdecimal() else sizes[factor]
