"""Inputs of a definition by the letters of their axes: every size, every family of numbers, and held-out ones.

Groups that an attention has, such as scores of all magnitudes, are those of the attention inside the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from math import log2, prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from symattn.arrays.formats import HALF
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.case_result import Case, CaseResult
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker, Sizes
from symattn.bounds.mistake import Mistake
from symattn.document.errors import InputError
from symattn.document.text import equal_sizes
from symattn.verification import reduce
from symattn.verification.input_source import Array, Cases, InputPairs, InputSource, Random
from symattn.verification.power import LEAST
from symattn.verification.probing import behaviour, groups, probes
from symattn.verification.probing.numbers import reserve_untried_temperatures
from symattn.verification.probing.together import (
    CELLS_TOGETHER,
    few_keys_together,
    lengths_of_several,
)

if TYPE_CHECKING:
    from symattn.verification.definitions.definition_subject import Definition
    from symattn.verification.engine import Session

_DRAWN = 6  # cases on which a mistake must have an effect to count
_UNSEEN = 3  # fresh cases to confirm a cause
_FOR_EXCHANGES = 26  # seed of inputs of which two numbers are exchanged
_SHAPES_TO_EXCHANGE_IN = 10  # from the smallest ones on
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
#: Group of inputs of several chunks of tokens, of recurrences that a law covers.
SEVERAL_CHUNKS_GROUP = "several chunks"
# Sizes of several chunks of 64 tokens at once, and the mean of −g: states that decay within a chunk, and that last.
_SEVERAL_CHUNKS = (
    ({"n_q": 150, "n_k": 150, "d_k": 16, "d_v": 16}, 0.05),
    ({"n_q": 135, "n_k": 135, "d_k": 64, "d_v": 64}, 0.005),
    ({"n_q": 200, "n_k": 200, "d_k": 128, "d_v": 128}, 0.02),
)
# The same of inputs by which a cause is confirmed.
_HELD_OUT_CHUNKS, _HELD_OUT_DECAY = {"n_q": 141, "n_k": 141, "d_k": 12, "d_v": 12}, 0.03
#: Mean of −g in long inputs of a recurrence, so that early tokens matter to late ones.
_SLOW_DECAY = 0.02
_MOST_AT_ONCE = 2**21  # entries of an array of which bounds hold some twenty copies
#: Names of sizes in a domain: numbers of tokens, and widths.
TOKENS, WIDTHS = ("n_q", "n_k"), ("d_k", "d_v", "d_model", "f")
Numbers = Callable[[str, tuple[int, ...]], Array]  # from an input's name and shape
Family = Callable[[Random], Numbers]  # a way of drawing the numbers of one case
FAMILIES: dict[str, Family] = {
    name: probes.FAMILIES[name] for name in ("integer", "normal", "sparse", "large")
}


#: Groups of probes of an attention, besides the definition's own sizes and numbers.
PROBES = {name: groups.FIRST[name] for name in ("scale", "softmax", "structure", "mask")}
# Groups of sizes a little beyond those of common tiles, and the sizes that are large in each.
_BEYOND_TILES = {"more tokens": TOKENS, "wider rows": WIDTHS}
#: Groups that ask what is computed, by the attention inside or beyond a tile, rather than how it is rounded.
PROBED_GROUPS = frozenset({*PROBES, *_BEYOND_TILES})


@dataclass(frozen=True)
class InputsByLetters(InputSource):
    """The inputs of a definition whose arrays have axes of letters; see its fields."""

    definition: Definition
    random = "random"

    @property
    def attention(self) -> Attention | None:
        """See ``InputSource``."""
        return self.definition.attention

    def first(self) -> Mapping[str, Cases]:
        """See ``InputSource``: every size, every kind of number, several chunks, and the probes of its attention."""
        chunks: dict[str, Cases] = (
            {} if self.definition.law is None else {SEVERAL_CHUNKS_GROUP: self._of_several_chunks}
        )
        own = {"sizes": self._of_sizes, "numbers": self._of_numbers}
        return {**own, **chunks, **self.cases_of_probes(PROBES)}

    def later(self) -> Mapping[str, Cases]:
        """See ``InputSource``: more tokens than common tiles have, and wider rows."""
        beyond: dict[str, Cases] = {
            group: partial(self._beyond_tiles, group, of) for group, of in _BEYOND_TILES.items()
        }
        beyond["multiples"] = self._yield_multiple_length_cases
        if self.definition.distant is not None:
            beyond["distant keys"] = self._of_distant
        # Probes of the attention inside follow, except groups that the definition has by itself.
        return beyond | {
            name: of
            for name, of in self.cases_of_probes(groups.LATER).items()
            if name not in beyond
        }

    def last(self) -> Mapping[str, Cases]:
        """See ``InputSource``: long inputs of the attention, and inputs that are large in every size."""
        long = self.cases_of_probes({"long": groups.LAST["long"]})
        return {**long, "together": self._yield_wide_row_cases}

    def _of_several_chunks(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield several chunks of tokens at once, in wide rows, with keys and gates as models have them."""
        for wanted, decay in _SEVERAL_CHUNKS:
            yield self._as_in_models(session, SEVERAL_CHUNKS_GROUP, wanted, decay, rng)

    def _as_in_models(
        self, session: Session, group: str, wanted: Mapping[str, int], decay: float, rng: Random
    ) -> Case:
        """Return a case of a recurrence with keys and gates as models have them; sizes by their names in a domain."""
        assert self.definition.law is not None
        sizes = self.definition.within(self._small_but({"b": 1, "h": 2, **wanted}), session.domain)
        case = self._draw_definition_case(session, group, self._name_ordinary_family, sizes, rng)
        inputs = self.definition.law.as_in_models(case.inputs, decay, rng)
        rounding = session.precision.input.rounded
        # Changed numbers must be numbers of the format.
        return replace(case, inputs={name: np.asarray(rounding(a)) for name, a in inputs.items()})

    def resized(
        self, session: Session, sizes: Mapping[str, int], rng: Random
    ) -> Iterator[dict[str, Array]]:
        """See ``InputSource``; of a recurrence with keys and gates as models have them, which many tokens need."""
        if self.definition.law is None:
            yield from super().resized(session, sizes, rng)
            return
        case = self._as_in_models(session, SEVERAL_CHUNKS_GROUP, sizes, _HELD_OUT_DECAY, rng)
        if self.fits(session, case.inputs):
            yield dict(case.inputs)

    def _of_distant(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield inputs in which most exponentials are far below the largest ones, and matter only together."""
        assert self.definition.distant is not None
        sizes = self.definition.within(self._small_but(_OF_DISTANT), session.domain)
        for distance in _DISTANCES:
            names = tuple(
                i.name for i in self.definition.inputs if i.name in session.runner.convention.inputs
            )
            numbers = self.definition.distant(distance)(rng)
            inputs = self.definition.draw(names, sizes, numbers, session.precision, rng)
            yield Case(
                "distant keys", f"{distance:g} below the largest, {equal_sizes(sizes)}", inputs
            )

    def _yield_wide_row_cases(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield several blocks of 128 queries and of 128 keys in wide rows, at once."""
        for wanted in _AT_ONCE[: 1 if session.precision.input.name in HALF else None]:
            if self.definition.law is not None:
                yield self._together_as_in_models(session, wanted, rng)
                continue
            sizes = self._small_but({"b": 1, "h": 1, "f": wanted.d_model, **self._by_name(wanted)})
            case = self._draw_definition_case(
                session,
                "together",
                self._name_ordinary_family,
                self._fit_into_memory(sizes, session.domain),
                rng,
            )
            lighter = self.definition.in_wide_rows(self._shrink_weight_matrices(case.inputs))
            # numbers that became smaller may be below the normal ones of half precision
            rounding = session.precision.input.rounded
            lighter = {
                name: rounding(a) if a.dtype.kind == "f" else a for name, a in lighter.items()
            }
            yield replace(case, inputs=self.definition.filled(lighter, session.precision))
        if self.definition.inner is not None and session.precision.input.name in HALF:
            few_keys = self.cases_of_probes({"together": few_keys_together})
            yield from few_keys["together"](session, rng)

    def _together_as_in_models(self, session: Session, wanted: Sizes, rng: Random) -> Case:
        """Return a case of a recurrence with as many tokens in wide rows."""
        sizes = {name: getattr(wanted, name) for name in ("n_q", "n_k", "d_k", "d_v")}
        return self._as_in_models(session, "together", sizes, _SLOW_DECAY, rng)

    def _fit_into_memory(self, sizes: Mapping[str, int], domain: Domain) -> dict[str, int]:
        """Return sizes of the domain near these, of fewer tokens if some array would be too large."""
        fitted = self.definition.within(sizes, domain)
        share = self._measure_largest_array(fitted)
        if share <= 1:
            return fitted
        # Arrays of so many entries have queries and keys, or layers, among their axes.
        tokens = {x for x in fitted if self.definition.meaning(x)[0] in TOKENS}
        fewer = {x: max(1, int(n / sqrt(share))) if x in tokens else n for x, n in fitted.items()}
        return self.definition.within(fewer, domain)

    def _measure_largest_array(self, sizes: Mapping[str, int]) -> float:
        """Return the entries of the largest array, an input or all pairs of tokens, in parts of the largest number
        that is tried."""
        names = [i.name for i in self.definition.inputs]
        share = max(prod(self.definition.shape(name, sizes)) for name in names) / _MOST_AT_ONCE
        named = self.definition.named(sizes)
        # Each head of each item has pairs of its own; keys may have fewer heads than queries.
        heads = max(self._count_heads_and_items(name, sizes) for name in names)
        tokens = [named[name] for name in TOKENS if name in named]
        # Without a letter of their own there are as many keys as queries.
        pairs = heads * max(tokens, default=1) * min(tokens, default=1)
        if self.definition.by_column:
            return max(share, pairs * named["d_k"] / _MOST_AT_ONCE)
        return max(share, pairs / CELLS_TOGETHER)

    def _count_heads_and_items(self, name: str, sizes: Mapping[str, int]) -> int:
        """Return the product of an input's axes that are neither tokens nor columns."""
        letters = chain.from_iterable(self.definition.axes_of(name, sizes))
        others = [x for x in letters if self.definition.meaning(x)[0] not in (*TOKENS, *WIDTHS)]
        return prod(int(x) if x.isdecimal() else sizes[x] for x in others)

    def _shrink_weight_matrices(self, inputs: Inputs) -> dict[str, Array]:
        """Return the inputs with smaller weights that have entries of their own, so that scores are of ordinary size
        in wide rows."""
        drawn = {
            i.name
            for i in self.definition.inputs
            if i.entries is not None and i.name.rpartition(".")[2].startswith("w_")
        }
        matrices = {n: a for n, a in inputs.items() if n in drawn and a.ndim > 1}
        # Powers of 2 leave the digits of entries as they are.
        factors = {n: 2.0 ** -round(log2(a.shape[-2]) / 2) for n, a in matrices.items()}
        return {**inputs, **{n: a * factors[n] for n, a in matrices.items()}}

    def _yield_multiple_length_cases(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield several times the shortest length as numbers of queries and keys, if short ones do not occur."""
        for n_q, n_k in lengths_of_several(session.domain):
            small = self._small_but({"b": 1, "h": 1, "n_q": n_q, "n_k": n_k})
            sizes = self.definition.within(small, session.domain)
            # A law is computed in chunks; elsewhere fewer tokens would be no multiples.
            if self._measure_largest_array(sizes) <= 1 or self.definition.law is not None:
                yield self._draw_definition_case(
                    session, "multiples", self._name_ordinary_family, sizes, rng
                )

    def _by_name(self, sizes: Sizes) -> dict[str, int]:
        """Return the sizes by the names of a domain."""
        return {name: getattr(sizes, name) for name in (*TOKENS, "d_k", "d_v", "d_model")}

    @property
    def _name_ordinary_family(self) -> str:
        """The family of normal numbers, or the first."""
        return next(
            f for f in ("normal", *self.definition.families) if f in self.definition.families
        )

    def _beyond_tiles(
        self, group: str, names: Sequence[str], session: Session, rng: Random
    ) -> Iterator[Case]:
        """Yield sizes beyond those of tiles under these names, of tokens also under one alone; all others are small."""
        present = {
            self.definition.meaning(x)[0]
            for x in self.definition.shapes[0].keys() - self.definition.kept
        } & {*names}
        # If nothing but tokens is large, each of the two is large alone as well.
        alone = [(_BEYOND[-1], (name,)) for name in names if present == {*TOKENS}]
        for k, (size, large) in enumerate([*((n, names) for n in _BEYOND if present), *alone]):
            sizes = self._small_but({"b": 1, "h": 1, **dict.fromkeys(large, size)})
            family = list(self.definition.families)[k % len(self.definition.families)]
            yield self._draw_definition_case(
                session, group, family, self.definition.within(sizes, session.domain), rng
            )

    def _of_sizes(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield every size, each with one family."""
        families = list(self.definition.families)
        for k, sizes in enumerate(self._list_admitted_shapes(session)):
            yield self._draw_definition_case(
                session, "sizes", families[k % len(families)], sizes, rng
            )

    def _of_numbers(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield every family at some sizes, also with rows without any key if the domain includes them."""
        sizes = self._list_admitted_shapes(session)
        # Every family at the smaller sizes, and at least at four of them.
        for s in sizes[: max(4, len(sizes) // 2)]:
            for family in self.definition.families:
                case = self._draw_definition_case(session, "numbers", family, s, rng)
                yield case
                if session.domain.fully_masked_rows and self.definition.closing:
                    result = self.definition.closing(dict(case.inputs))
                    yield Case("numbers", f"{case.name}, a row without any key", result)

    def between(self, session: Session, rng: Random) -> None:
        """See ``InputSource``: repeated calls, and arrays laid out otherwise in memory."""
        session.progress("again")
        for case in session.share("again", self.again(session, rng)):
            session.take(case)
        for case in session.share("empty parts", self._of_empties(session, rng)):
            # Empty parts are judged more leniently: see ``_take_empty``.
            _take_empty(session, case)
        behaviour.leaking(session, "all")

    def _of_empties(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield inputs with a part without keys, and with an empty and a full cache."""
        if self.definition.empties is None:
            return
        large = self.definition.within(self._small_but(_LARGE_WITH_EMPTY_PARTS), session.domain)
        for sizes in (*self._list_admitted_shapes(session)[:2], large):
            drawn_case = self._draw_definition_case(
                session, "empty parts", next(iter(self.definition.families)), sizes, rng
            )
            # As with all large inputs: their bounds take minutes, and a fault that is known needs none.
            if sizes is large and session.known:
                return
            for words, inputs in self.definition.empties(dict(drawn_case.inputs)):
                yield Case("empty parts", words, inputs)

    def again(self, session: Session, rng: Random) -> Iterator[Case]:
        """Yield the same inputs twice, with others of the same shape in between, and views."""
        families = list(self.definition.families)
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
        if self._list_admitted_shapes(session):
            yield from self._yield_exchanged_calls(session)

    def _yield_exchanged_calls(self, session: Session) -> Iterator[Case]:
        """Yield two calls that differ inside arrays alone, of the sizes at which most arrays have such places."""
        rng = np.random.default_rng((session.seed, _FOR_EXCHANGES))
        family = self._name_ordinary_family
        drawn = [
            self._draw_definition_case(session, "again", family, sizes, rng).inputs
            for sizes in self._list_admitted_shapes(session)[:_SHAPES_TO_EXCHANGE_IN]
        ]
        with_places = [
            (inputs, behaviour.draw_inner_places(inputs, self.free(inputs), rng))
            for inputs in drawn
        ]
        inputs, places = max(with_places, key=lambda pair: len(pair[1]))
        if places:
            exchanged = behaviour.exchange_neighbours(inputs, places)
            changed = self._as_promised(session, self.completed(session, exchanged))
            # Exchanged back, so that what was shrunk for one call is shrunk for both.
            again = self.completed(session, behaviour.exchange_neighbours(changed, places))
            yield from behaviour.cases_of_exchange("again", again, changed)

    def required(self, session: Session) -> dict[str, int]:
        """See ``InputSource``: repeated calls, if there are any, and random inputs."""
        again = len(list(islice(self.again(session, np.random.default_rng(session.seed)), LEAST)))
        return {"again": again, **super().required(session)}

    def drawn(self, session: Session, examples: int) -> Iterator[Case]:
        """Draw cases of any family, with sizes from the first two thirds, which should be the smaller ones."""
        rng = np.random.default_rng((session.seed, 5))
        for _ in range(examples):
            sizes = self.definition.shapes[
                rng.integers(max(1, 2 * len(self.definition.shapes) // 3))
            ]
            family = list(self.definition.families)[rng.integers(len(self.definition.families))]
            yield self._draw_definition_case(
                session, "random", family, self.definition.within(sizes, session.domain), rng
            )

    def altered(self, session: Session, inputs: Inputs, rng: Random) -> dict[str, Array]:
        """Scale one array whose numbers are drawn by family, or change one row of it."""
        changed = probes.perturbed(inputs, self.free(inputs), rng)
        return self.completed(
            session,
            {**inputs, **{n: session.precision.input.rounded(a) for n, a in changed.items()}},
        )

    def unseen(self, session: Session, mistakes: Sequence[Mistake]) -> Iterator[Case]:
        """Yield fresh cases of some families, with larger sizes than before if the domain allows them."""
        # A seed of its own: fresh inputs must not depend on how many were drawn before.
        rng = np.random.default_rng((session.seed, 1))
        # Where a norm adds ε, tiny numbers tell mistakes apart that differ in ε alone.
        usual = ("normal", "integer", "tiny")
        families = [f for f in usual if f in self.definition.families] or list(
            self.definition.families
        )
        for k, sizes in enumerate(self.definition.shapes[: 2 * _UNSEEN : 2]):
            # Two more than before, since a mistake may fit the sizes on which it was fitted.
            larger = {x: n if x in self.definition.kept else n + 2 for x, n in sizes.items()}
            sizes = self.definition.within(larger, session.domain)
            case = self._draw_definition_case(
                session, "fresh", families[k % len(families)], sizes, rng
            )
            if self.fits(session, case.inputs):
                yield case

    def of_other_sizes(
        self, session: Session, mistakes: Sequence[Mistake], rng: Random
    ) -> Iterator[Case]:
        """Yield held-out cases of sizes that are neither in ``shapes`` nor in the later groups."""
        if self.definition.law is not None:
            held_out = self._as_in_models(
                session, "held out", _HELD_OUT_CHUNKS, _HELD_OUT_DECAY, rng
            )
            yield from [held_out] if self.fits(session, held_out.inputs) else []
        families = [f for f in ("normal", "integer") if f in self.definition.families] or list(
            self.definition.families
        )
        for number, sizes in enumerate(_HELD_OUT):
            # Only the first case here has several items and heads.
            one_item = {"b": 1, "h": 1} if number else {}
            near = self.definition.within(self._small_but({**one_item, **sizes}), session.domain)
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
            session,
            "sizes",
            self._name_ordinary_family,
            self.definition.within(result, session.domain),
            rng,
        )
        yield dict(case.inputs) if self.fits(session, case.inputs) else None

    def _small_but(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of a small case, with these under their names in a domain."""
        result = dict(self.definition.shapes[0])
        for x in set(result) - self.definition.kept:
            name, factor = self.definition.meaning(x)
            # At least 1, as a size may be smaller than its factor.
            result[x] = max(1, sizes.get(name, factor * result[x]) // factor)
        return result

    def _list_admitted_shapes(self, session: Session) -> list[dict[str, int]]:
        """Return the sizes that are tried for their shapes, adjusted to the domain."""
        fitted = [self.definition.within(s, session.domain) for s in self.definition.shapes]
        return [s for s in fitted if session.domain.admits(self.definition.named(s))]

    def _draw_definition_case(
        self, session: Session, group: str, family: str, sizes: Mapping[str, int], rng: Random
    ) -> Case:
        names = tuple(
            i.name for i in self.definition.inputs if i.name in session.runner.convention.inputs
        )
        inputs = self.definition.draw(
            names, sizes, self.definition.families[family](rng), session.precision, rng
        )
        return Case(group, f"{family}, {equal_sizes(sizes)}", self._as_promised(session, inputs))

    def _as_promised(self, session: Session, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the inputs with scores as large as the domain promises, at most."""
        # Scores are shrunk only if they exceed the promise, so that other cases stay as drawn.
        if self.definition.inner is None or self.definition.inner.keeps(inputs, session.domain):
            return inputs
        rounding = session.precision.input.rounded
        tamed = self.definition.inner.tamed(inputs, session.domain)
        return self.completed(
            session,
            {n: np.asarray(rounding(a)) if a.dtype.kind == "f" else a for n, a in tamed.items()},
        )

    def fits(self, session: Session, inputs: Inputs) -> bool:
        """Return whether the definition has a result for the inputs, and the domain includes them."""
        return self.definition.admitted(inputs, session.domain)

    def free(self, inputs: Inputs) -> tuple[str, ...]:
        """Return the inputs whose numbers are drawn by family."""
        return tuple(
            i.name
            for i in self.definition.inputs
            if i.name in inputs and i.entries is None and i.made is None
        )

    def completed(self, session: Session, inputs: Inputs) -> dict[str, Array]:
        """Compute the inputs that are made of others."""
        return self.definition.filled(inputs, session.precision)

    def sizes(self, judged: CaseResult) -> dict[str, int]:
        """Return the sizes by the names of a domain."""
        return self.definition.named(self.own_sizes(judged))

    def measured(self, judged: CaseResult) -> dict[str, int]:
        """Return the sizes, and the number of items of a batch; 1 for axes that a case lacks."""
        every = self.definition.named({x: 1 for sizes in self.definition.shapes for x in sizes})
        # Axes that a case lacks count as 1, so that conditions on them apply.
        return {
            "batch": self.own_sizes(judged).get("b", 1),
            **dict.fromkeys(every, 1),
            **self.sizes(judged),
        }

    def own_sizes(self, judged: CaseResult) -> dict[str, int]:
        """Return the sizes by the definition's own letters."""
        return self.definition.sizes_of(judged.case.inputs)

    def axes(self, inputs: Inputs) -> reduce.Axes:
        """See ``InputSource``; inputs made of others are not reduced, but made again."""
        sizes = self.definition.sizes_of(inputs)
        drawn = [i.name for i in self.definition.inputs if i.name in inputs and i.made is None]
        letters = {
            n: self.definition.axes_of(n, sizes)[-np.ndim(inputs[n]) :]
            if np.ndim(inputs[n])
            else ()
            for n in drawn
        }
        kept = self.definition.kept
        blocks = {x: n for x, n in sizes.items() if x in kept}
        means = {x: self.definition.meaning(x) for x in sizes}
        return reduce.Axes(letters, blocks, kept, means=means)

    def axes_of_outputs(self, judged: Sequence[CaseResult]) -> Mapping[str, int]:
        """See ``InputSource``: the axes of the first input, if outputs have as many."""
        letters = self.definition.inputs[0].shape.split()
        nouns = {"b": "items", "h": "heads"}
        axes = {nouns[x]: k - len(letters) for k, x in enumerate(letters) if x in nouns}
        shapes = [part.got.shape for r in judged for part in r.parts if part.got is not None]
        return axes if all(len(shape) == len(letters) for shape in shapes) else {}

    def weightless(self, session: Session, rng: Random) -> InputPairs:
        """See ``InputSource``."""
        if self.definition.undefined is None:
            return
        family = self._name_ordinary_family
        for sizes in self._list_admitted_shapes(session)[:2]:
            drawn = self._draw_definition_case(session, behaviour.GROUP, family, sizes, rng)
            yield from self.definition.undefined(dict(drawn.inputs))

    def maker(self, session: Session) -> Maker:
        """Return the maker of inputs of the attention in the definition. Raises ``InputError`` if there is none."""
        if self.definition.inner is None:
            raise InputError(f"{self.definition.title} contains no attention")
        return self.definition.inner.maker(session)

    def case_of_attention(
        self, session: Session, group: str, title: str, made: Mapping[str, Array], rng: Random
    ) -> Case | None:
        """Return a case whose attention has these inputs; None if the definition has none, or other sizes."""
        arranged = None if self.definition.inner is None else self.definition.inner.arrange(made)
        # Widths of a module that is called with other weights stay as they are.
        if arranged is None or not self.definition.has_fixed_sizes(arranged):
            return None
        return Case(group, title, self.with_drawn(session, arranged, rng))

    def with_drawn(
        self, session: Session, inputs: Mapping[str, Array], rng: Random
    ) -> dict[str, Array]:
        """Return the inputs that the function takes, rounded to the format, with whole numbers for all others."""
        precision = session.precision
        taken = session.runner.convention.inputs
        held = precision.input.rounded
        given = {
            n: np.asarray(held(a)) if a.dtype.kind == "f" else a
            for n, a in inputs.items()
            if n in taken
        }
        names = tuple(n for n in taken if n not in given)
        # Small integers are exact in every format, so that extra arrays are not rounded.
        sizes = self._small_sizes_of_every_shape | self.definition.sizes_of(given)
        drawn = self.definition.draw_entries(names, sizes, FAMILIES["integer"](rng), precision, rng)
        # Arrays that are derived from others need a name here, and are filled in from those.
        placeholders = {
            i.name: np.zeros(0)
            for i in self.definition.inputs
            if i.name in names and i.made is not None
        }
        return self.definition.filled({**given, **drawn, **placeholders}, precision)

    @property
    def _small_sizes_of_every_shape(self) -> dict[str, int]:
        """Small sizes by letter, without letters that some arrays lack: those of axes that may be left out."""
        _, second, *_ = shapes = self.definition.shapes
        return {x: n for x, n in second.items() if all(x in shape for shape in shapes)}

    def attended(self, session: Session, made: Mapping[str, Array]) -> Array | None:
        """See ``InputSource``."""
        if self.definition.inner is None or self.definition.inner.attended is None:
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

        return self.definition.inner.attended(call, made)

    def arrays_of_attention(self, inputs: Inputs) -> dict[str, Array] | None:
        """See ``InputSource``."""
        return None if self.definition.inner is None else self.definition.inner.arrays_of(inputs)

    def drawn_for_power(self, session: Session) -> list[dict[str, Array]]:
        """See ``InputSource``: the first of the sizes."""
        rng = np.random.default_rng((session.seed, 4))
        return [dict(case.inputs) for case in islice(self._of_sizes(session, rng), _DRAWN)]

    def notes(self, session: Session) -> Iterator[str]:
        """See ``InputSource``: on NaN behind masks, and on parts without keys."""
        yield from behaviour.notes_of_leaks(session)
        if session.on_empty:
            judged = session.on_empty[0]
            gives = judged.outcome.error or "numbers that are not finite"
            yield f"For {judged.case.name} it gives {gives}; --fully-masked makes that a fault."

    def reservations(self, session: Session) -> Iterator[str]:
        """See ``InputSource``: on temperatures that no input is long enough for."""
        attention = getattr(self.definition.described, "attention", self.definition.described)
        if isinstance(attention, Attention) and attention.temperature is not None:
            sizes = [self.sizes(r) for r in session.records]
            tokens = (max(s.get("n_q", 0), s.get("n_k", 0)) for s in sizes)
            yield from reserve_untried_temperatures(attention, max(tokens, default=0))


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
