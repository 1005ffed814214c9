"""Determine the layout and the forms of arguments that a function takes, by small calls in which all sizes differ.

Each layout, and each form of a mask, that may be meant is tried once. One that runs and returns an output of the right
shape is possible. Among these the documented one comes first, then plain (n, d) if that runs for all sizes, then one
whose output is near the specification's, then one that runs for all sizes, one that the letters of an einsum name, and
one in which a head of keys changes no output of another head: a wrong function has a layout, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.bounds.called_target import (
    CAUSAL_MASK,
    PAST,
    Argument,
    Convention,
    Failure,
    Inputs,
    Layout,
    Outcome,
)
from symattn.bounds.inputs import Maker, Sizes
from symattn.document.errors import InputError, SymattnError
from symattn.document.keywords import plain
from symattn.programs import layouts
from symattn.programs.calling import agree
from symattn.programs.frameworks import Tensor
from symattn.programs.names import AMBIGUOUS, Function, bound_keywords, meaning, parameters
from symattn.programs.request import Request
from symattn.verification.effort import Effort
from symattn.verification.probing.probes import small

#: Calls a function as a convention says; and whether a failure is to be explained.
Call = Callable[[Convention, Inputs, bool], Outcome]
# A search that needs more calls ends, and a note says so.
_CALLS = 2000
_SECONDS = 120.0  # upper limit; reaching it is reported
_NEAR = 64  # tolerance, in units of roundoff
_LEVELS = (  # the last ones for functions that take only multiples of powers of two
    Sizes(5, 11, 6, 7, 10), Sizes(9, 9, 6, 7, 10), Sizes(9, 9, 6, 6, 12), Sizes(16, 16, 16, 16, 32),
    Sizes(64, 64, 64, 64, 128),
)  # fmt: skip
# Inputs whose axes are those of the layout.
_TOKENS = ("q", "k", "v", "x", "y")
# Lengths of leading axes, which differ so that exchanged axes show.
_BATCH = (2, 3)
_ALIKE = ("k", "qk", "1qk", "11qk")  # forms without an axis of batches


@dataclass(frozen=True)
class Possible:
    """A convention that runs: at which level of sizes (0: all sizes differ), and the evidence for it."""

    convention: Convention
    level: int
    near: bool
    local: bool
    named: bool = False  # by the letters of its einsums

    @property
    def rank(self) -> tuple[bool, bool, bool, bool, int]:
        """The rank of the convention; smaller is better."""
        return not self.near, self.level > 0, not self.named, not self.local, self.level


class ConventionTrial:
    """The convention of a function in the framework of the request, found by small calls.

    ``right`` is None if nothing runs; ``error`` is the first one, or the furthest if nothing runs; ``ran`` has the
    orders of the axes with which an output came, of whatever shape.
    """

    def __init__(
        self,
        function: Function,
        request: Request,
        name: str,
        run: Call,
        outside: Callable[[Convention, Inputs], bool] = lambda how, inputs: False,
    ) -> None:
        """Prepare the trial; ``outside`` says whether a call reads or writes beyond the memory of a tensor."""
        self._request, self._run, self._outside = request, run, outside
        self.convention = agree(function, request, name)
        self.right: bool | None = None
        self.error: Failure | None = None
        self.tried = False
        self.ran: set[Layout] = set()
        # the furthest, and how it was called
        self._reached: dict[Layout, tuple[Failure, Convention]] = {}
        self._function = function
        self._documented, self._lettered = layouts.documented(function), layouts.lettered(function)
        self._declared = layouts.declared(function)
        known = () if request.masks else parameters(function) or ()
        optional = [
            p.name
            for p in known
            if p.default is not p.empty and p.name not in bound_keywords(function)
        ]
        self._optional_mask = [name for name in optional if meaning(name) == "mask"]
        self._effort = Effort(_CALLS, _SECONDS)
        self._made: dict[tuple[Any, ...], Inputs | None] = {}
        # by the id of the inputs, which are kept alive
        self._outputs: dict[int, tuple[Inputs, Tensor]] = {}

    @property
    def is_open(self) -> bool:
        """Return whether more than one convention is possible."""
        conventions = (
            how for variant in self.variants(self.convention) for how in self.formed(variant)
        )
        return next(conventions, None) is not None and next(conventions, None) is not None

    def make(self) -> ConventionTrial:
        """Make the calls. Raises ``InputError`` if nothing was found within the limits of calls and time."""
        self.tried = True
        result = self.settled(self.convention)
        self.right = result.near if result else None
        if result:
            self.convention = result.convention
        elif not self.ran:  # the first convention in which the code reached the furthest line
            usual = self.convention.layout
            layout = max(
                self._reached,
                key=lambda at: (line(self._reached[at][0]), at == usual),
                default=usual,
            )
            self.error = self._reached[layout][0] if layout in self._reached else self.error
            if layout != usual:
                axes = (
                    f"The axes are {layouts.in_words(layout)}, with which its code ran furthest;"
                    " --layout sets others."
                )
                self.convention = replace(
                    self._reached[layout][1], notes=(*self.convention.notes, axes)
                )
        return self

    def noted(self, *notes: str) -> Convention:
        """Return the convention with further notes."""
        return replace(self.convention, notes=(*self.convention.notes, *notes))

    def _call_with_convention(
        self, how: Convention, inputs: Inputs, explains: bool = True
    ) -> Outcome:
        self._effort.spend()
        try:
            outcome = self._run(how, inputs, explains)
        except InputError as error:  # the inputs do not fit the call
            outcome = Outcome(error=Failure("raised", str(error)))
        self.error = self.error or outcome.error
        if outcome.error is None:
            self.ran.add(how.layout)
        elif how.layout not in self._reached or line(outcome.error) > line(
            self._reached[how.layout][0]
        ):
            self._reached[how.layout] = outcome.error, how
        return outcome

    def settled(self, convention: Convention) -> Possible | None:
        """Return the best convention, with notes on what was determined."""
        best: Possible | None = None
        for variant in self.variants(convention):
            result = self._choose_best_convention(variant)
            if result and not result.near and any(a.numbers for a in variant.arguments):
                continue  # a mask is passed as numbers only if that gives the right output
            if result and (
                best is None or result.rank < best.rank or self._needs_mask(best, result)
            ):
                best = result
            if best and best.near:
                break
        if best is None and self._effort.over:
            raise InputError(
                f"no way to call it was found within {self._limit_that_ended_search}; hint: --layout, --mask-arg, "
                "--call"
            )
        if best is None:
            return None
        if "bias" in self._request.extras:
            best = self._as_specified(best)
        best, reserved = self._with_judged_forms(best)
        chosen = replace(
            best.convention, front="taken" if self._takes_front(best.convention) else "none"
        )
        # Of a right function in plain axes, without a text that names others, no reading is in doubt.
        if not best.near or best.convention.layout != "nd" or self._documented:
            reserved += tuple(self._other_readings(best))
        notes = (*chosen.notes, *_yield_convention_notes(chosen, self._request))
        if self._request.spec.normaliser == "sigmoid":
            notes += tuple(self._bare_sigmoid(best))
        if self._effort.over:
            limit = self._limit_that_ended_search
            notes += (
                f"The search for its calling convention ended early, after {limit}; --layout states the axes.",
            )
        return replace(best, convention=replace(chosen, notes=notes, reservations=reserved))

    def _with_judged_forms(self, best: Possible) -> tuple[Possible, tuple[str, ...]]:
        """Return the convention that is judged, and notes on masks of other shapes that run, and are right or wrong.

        That is the convention as found, unless the function's text names a form for which it is wrong.
        """
        notes: list[str] = []
        chosen = best
        # Forms are compared where the output is right: else nothing tells them apart.
        for i, a in enumerate(best.convention.arguments if best.near else ()):
            # Queries, keys and values have one form.
            if a.input in _TOKENS:
                continue
            forms = [a.form, *layouts.forms_beside(a, best.convention.layout, self._request)]
            if len(forms) == 1:
                continue
            tried = {
                f: self._is_right(
                    _replace_argument_at_place(best.convention, i, replace(a, form=f)), best.level
                )
                for f in forms
            }
            right, wrong = (
                [f for f, fits in tried.items() if fits is wanted] for wanted in (True, False)
            )
            # A form that is right, and another that is wrong, are both worth a note.
            if not wrong or not right:
                continue
            named = [f for f in wrong if layouts.names_form(self._function, a.parameter, f, right)]
            shown = tuple(
                " or ".join(map(layouts.in_axes, some)) for some in (right, named or wrong)
            )
            option = layouts.in_axes(wrong[0]).strip("()").replace(" ", "")
            rest = ", which its text names" if named else f": --mask-axes {option} judges it so"
            notes.append(
                f"With {a.parameter} as {shown[0]} it is right, and wrong as {shown[1]}{rest}."
            )
            # The text of the function names a form for which it is wrong: that one is judged.
            if named and chosen is best:
                chosen = replace(
                    best,
                    convention=_replace_argument_at_place(
                        best.convention, i, replace(a, form=named[0])
                    ),
                    near=False,
                )
        return chosen, tuple(notes)

    def _is_right(self, convention: Convention, level: int) -> bool | None:
        """Return whether a call gives the specification's output; None if none of its shape is returned."""
        inputs = self._make_trial_inputs(convention, _LEVELS[level])
        right = None if inputs is None else self._output_by_specification(inputs)
        if inputs is None or right is None:
            return None
        got = self._call_with_convention(convention, inputs).output
        return (
            # Another shape is no output to compare.
            None
            if got is None or got.shape != right.shape
            else self._is_near_right_output(got, right)
        )

    def formed(self, convention: Convention) -> Iterator[Convention]:
        """Yield the convention in every layout, with every form of its masks."""
        for layout in self._list_possible_layouts(convention):
            yield from layouts.in_every_form(replace(convention, layout=layout), self._request)

    @property
    def _limit_that_ended_search(self) -> str:
        """The limit that ended the search, in words."""
        return f"{_SECONDS:g} s" if self._effort.struck else f"{_CALLS} calls"

    def _other_readings(self, best: Possible) -> Iterator[str]:
        """Yield notes if the verdict depends on the reading: others are right though this is wrong, or vice versa."""
        chosen = best.convention.layout
        names = {chosen, chosen.replace("c", "d")}
        if (
            best.near
            and self._request.layout == "auto"
            and self._documented
            and not names & {*self._documented}
        ):
            yield layouts.undocumented(self._documented[0], chosen)
        if not best.near and self._request.layout == "auto" and chosen in self._declared:
            yield layouts.judged_as_stated(chosen)
        if best.near and (chosen == "nd" or chosen in self._documented):
            return  # leading axes are tested separately
        others = [
            layout for layout in self._list_possible_layouts(best.convention) if layout != chosen
        ]
        different = [layout for layout in others if self._is_near(best, layout) is (not best.near)]
        yield from layouts.readings(different, not best.near)
        if not best.near:
            yield from self._yield_negated_mask_notes(best)

    def _bare_sigmoid(self, best: Possible) -> Iterator[str]:
        """Yield a note on whether the sigmoids take the scores less log n_k, or the scores themselves."""
        spec = self._request.spec
        # With a bias the specification subtracts nothing.
        if spec.bias:
            return
        # A right function is told what the formula is.
        if best.near:
            yield "The sigmoids are those of the scores less log n_k; with a bias (--bias) nothing is subtracted."
            return
        inputs = self._make_trial_inputs(best.convention, _LEVELS[best.level])
        got = None if inputs is None else self._call_with_convention(best.convention, inputs).output
        if inputs is None or got is None:
            return
        zeros = np.zeros(spec.head_axis + layouts.lengths(inputs))
        # A bias of zeros: the same sigmoids without − log n_k.
        bare = replace(spec, bias=True)(**inputs, bias=zeros)
        if got.shape == bare.shape and self._is_near_right_output(got, bare):
            yield (
                "It would be right without − log n_k: the specification subtracts nothing where it has a bias, "
                "--bias, for which the function then needs a parameter."
            )

    def _is_near(self, best: Possible, layout: Layout) -> bool | None:
        """Return whether some form gives the right output in another layout; None if nothing runs in it."""
        forms = layouts.in_every_form(replace(best.convention, layout=layout), self._request)
        result = [
            p.near
            for p in (self._try_convention_at_levels(how, at=best.level) for how in forms)
            if p
        ]
        return any(result) if result else None

    def _yield_negated_mask_notes(self, best: Possible) -> Iterator[str]:
        """Yield notes on masks whose negation makes the output right."""
        for i, a in enumerate(best.convention.arguments):
            # Additive masks have no negation.
            if a.input not in ("keep", CAUSAL_MASK) and (a.input, self._request.spec.mask) != (
                "mask",
                "boolean",
            ):
                continue
            result = self._try_convention_at_levels(
                _replace_argument_at_place(best.convention, i, replace(a, inverted=not a.inverted)),
                at=best.level,
            )
            if result and result.near:
                yield (
                    f"With the negation of what is passed as {a.parameter} it gives what the specification says: "
                    f"--mask-arg {'' if a.inverted else '~'}{a.parameter} judges it so."
                )

    def _as_specified(self, best: Possible) -> Possible:
        """Return the bias as specified, (h, n_q, n_k), if one more axis is preferred only because its output is right.

        That is so if heads without batches run, and are right with a bias of zero: then the layout is not the reason.
        """
        padded = any(a.input == "bias" and a.form == "1hqk" for a in best.convention.arguments)
        # An axis that the text documents is meant.
        if not padded or best.convention.layout in self._documented or self._effort.over:
            return best
        bare = tuple(
            replace(a, form="") if a.input == "bias" else a for a in best.convention.arguments
        )
        result = self._try_convention_at_levels(
            replace(best.convention, layout="nd", arguments=bare)
        )
        # Without its bias the function shows whether the layout is right.
        unbiased = result and self._try_convention_at_levels(result.convention, without=("bias",))
        return (
            result if result and unbiased and unbiased.near and result.level == best.level else best
        )

    def variants(self, convention: Convention) -> Iterator[Convention]:
        """Yield the convention as it is, with other possible masks, with the causal mask, without a cache's length."""
        yield convention
        for i, a in enumerate(convention.arguments):
            for other in self._other_masks(a):
                yield _replace_argument_at_place(convention, i, other)
            if a.input == PAST and not a.required:
                yield replace(
                    convention,
                    arguments=(*convention.arguments[:i], *convention.arguments[i + 1 :]),
                )
        settled = any(
            a.input == CAUSAL_MASK or meaning(a.parameter) == "causal" for a in convention.arguments
        )
        result = {self._request.mask_arg, *dict(self._request.call)}
        if (
            self._request.causal
            and not settled
            and self._optional_mask
            and self._optional_mask[0] not in result
        ):
            mask = Argument(self._optional_mask[0], CAUSAL_MASK)
            # The note says how to pass a mask, which is passed here.
            notes = tuple(n for n in convention.notes if "--mask-arg" not in n)
            for one in (mask, *self._other_masks(mask)):
                yield replace(convention, arguments=(*convention.arguments, one), notes=notes)

    def _other_masks(self, a: Argument) -> Iterator[Argument]:
        """Yield a mask with unclear polarity negated; booleans as 1 and 0; and as 0 and −∞ if the name allows that."""
        is_mask = a.input == "mask" and self._request.spec.mask == "boolean"
        if a.form or not (is_mask or a.input in ("keep", CAUSAL_MASK)):
            return
        # Whoever names the mask's parameter has decided its polarity.
        unclear = plain(a.parameter) in AMBIGUOUS and self._request.mask_arg is None
        negated = replace(a, inverted=not a.inverted)
        yield from (negated,) if unclear else ()
        yield replace(a, numbers="ones")
        yield from (replace(negated, numbers="ones"),) if unclear else ()
        # Names such as attention_mask may mean a mask that is added.
        if not is_mask and meaning(a.parameter) != "keep":
            yield replace(a, numbers="additive")

    def _choose_best_convention(self, convention: Convention) -> Possible | None:
        result: list[Possible] = []
        for layout in self._list_possible_layouts(convention):
            here: list[Possible] = []
            for formed in layouts.in_every_form(replace(convention, layout=layout), self._request):
                possible = self._try_convention_at_levels(formed)
                here += [possible] if possible else []
                if (possible and possible.near) or self._effort.over:
                    break
            # Prefer masks with an axis of batches, which show more.
            result += [
                p for p in here if not any(a.form in _ALIKE for a in p.convention.arguments)
            ] or here
            # Code that runs for all sizes on arrays with only the axes n and d was made for them.
            plain = layout == "nd" and self._request.heads == 1 and not {*self._documented} - {"nd"}
            plain_runs = plain and any(p.level <= self._request.domain.square for p in here)
            if plain_runs or any(
                p.near and (p.level == 0 or layout in self._documented) for p in here
            ):
                break
        stated = [p for p in result if p.convention.layout in self._declared]
        outcome = [
            p for p in result if p.convention.layout in self._documented and (p.near or p.local)
        ]
        return min(stated or outcome or result, key=lambda p: p.rank, default=None)

    def _list_possible_layouts(self, convention: Convention) -> tuple[Layout, ...]:
        """Return the layout that the user sets, or else all possible ones, beginning with the documented ones."""
        if self._request.layout != "auto":
            return (self._request.layout,)
        tokens = "x" in convention.inputs
        heads = self._request.heads > 1
        usual: tuple[Layout, ...] = (
            ("nd", "bnd", "nbd") if tokens else ("nd", "bnd", "bhnd", "bnhd", "nhd", "nbhd")
        )
        # With heads, the layouts in which they are packed into columns come too.
        if heads and not tokens:
            usual = ("nd", "bhnd", "bnhd", "nhd", "bnc", "nc", "nbhd", "nbc")
        # Documented layouts first: right outputs in two of them would be decided by order.
        return tuple(dict.fromkeys((*(d for d in self._documented if d in usual), *usual)))

    def _try_convention_at_levels(
        self, convention: Convention, without: tuple[str, ...] = (), at: int | None = None
    ) -> Possible | None:
        """Return the convention at the first level of sizes at which it runs, or at level ``at``; None if it fails.

        The inputs ``without`` are set to zero.
        """
        # Where n_q = n_k is promised, the first level is left out, since it breaks the promise.
        levels = tuple(enumerate(_LEVELS))[self._request.domain.square :]
        for level, sizes in levels if at is None else [(at, _LEVELS[at])]:
            inputs = self._make_trial_inputs(convention, sizes)
            if inputs is None or self._effort.over:
                return None
            inputs = (
                {**inputs, **{n: np.zeros_like(inputs[n]) for n in without}} if without else inputs
            )
            right, got = (
                self._output_by_specification(inputs),
                self._call_with_convention(convention, inputs).output,
            )
            if right is not None and got is not None and got.shape == right.shape:
                if self._documented and self._is_misplaced(convention, inputs):
                    return None
                named = convention.layout in self._lettered
                near = self._is_near_right_output(got, right)
                if near and any(a.numbers == "additive" for a in convention.arguments):
                    near = not self._is_added_mask_boolean(convention, level)
                return Possible(
                    convention,
                    level,
                    near,
                    self._are_other_heads_unaffected(convention, inputs, got),
                    named,
                )
        return None

    def _is_misplaced(self, convention: Convention, inputs: Inputs) -> bool:
        """Return whether the text names other axes, and with these the code reads beyond the memory of a tensor."""
        if convention.layout in self._documented or not self._outside(convention, inputs):
            return False
        # It ran, but read numbers of other arrays.
        self.ran.discard(convention.layout)
        return True

    def _is_added_mask_boolean(self, convention: Convention, level: int) -> bool:
        """Return whether a mask passed as 0 and −∞ is not added, but read as booleans of keys to ignore: −∞ is true.

        An added mask may as well be 1 and −∞ if weights are a plain softmax over the keys.
        """
        if not self._request.spec.plain_softmax:
            return False
        # 1 and −∞ differ from 0 and −∞ by a constant in each row, which softmax ignores.
        shifted = (
            _replace_argument_at_place(convention, i, replace(a, numbers="shifted"))
            for i, a in enumerate(convention.arguments)
            if a.numbers == "additive"
        )
        return not all(
            possible and possible.near
            for possible in (self._try_convention_at_levels(how, at=level) for how in shifted)
        )

    def _make_trial_inputs(
        self, convention: Convention, sizes: Sizes, batch: tuple[int, ...] | None = None
    ) -> Inputs | None:
        """Return inputs of these sizes, the same ones whenever possible; None if the specification has none."""
        r = self._request
        axes = convention.batch_axes(r.heads)
        maker = Maker(r.spec, convention, Precision.of(r.dtype), r.domain)
        batch = maker.batch_axes(axes) if batch is None else batch
        forms = tuple((a.input, a.form) for a in convention.arguments)
        key = (sizes, batch, axes, convention.layout[-1] == "c", forms)
        if key not in self._made:
            # Seeded, so that every process determines the same convention.
            rng = np.random.default_rng(0)
            try:
                self._made[key] = maker.make(replace(sizes, batch=batch), small(rng), rng)
            except (SymattnError, KeyError):
                self._made[key] = None
        return self._made[key]

    def _output_by_specification(self, inputs: Inputs) -> Tensor:
        """Return the output of the specification, in float64."""
        if id(inputs) not in self._outputs:
            result: Tensor = None
            with np.errstate(all="ignore"), suppress(SymattnError):
                result = self._request.spec(**inputs)
            # The inputs are stored too, so that the id stays in use.
            self._outputs[id(inputs)] = inputs, result[0] if isinstance(result, tuple) else result
        return self._outputs[id(inputs)][1]

    def _is_near_right_output(self, got: np.ndarray, right: np.ndarray) -> bool:
        u = float(Precision.of(self._request.dtype).input.u)
        with np.errstate(all="ignore"):
            size = 1 + np.abs(right).max()
            return bool((np.abs(got - right) <= _NEAR * u * size).all())

    def _are_other_heads_unaffected(
        self, convention: Convention, inputs: Inputs, got: np.ndarray
    ) -> bool:
        """Return whether the first head of keys and values of the first batch changes no output of the others."""
        names = [n for n in ("k", "v", "y") if n in inputs] or ["x"]
        axes = np.ndim(inputs[names[0]]) - 2
        if axes == 0:
            return True
        first = (0,) * axes
        changed = {n: np.array(inputs[n]) for n in names}
        for a in changed.values():
            a[first] = -a[first]
        other = self._call_with_convention(convention, {**inputs, **changed}).output
        if other is None or other.shape != got.shape:
            return False
        apart = got.ndim - 2
        # Corners beside the first: heads and items that are unchanged.
        corners = [c for c in product((0, -1), repeat=min(axes, apart)) if any(c)]
        return all(np.array_equal(got[c], other[c], equal_nan=True) for c in corners)

    def _needs_mask(self, best: Possible, possible: Possible) -> bool:
        """Return whether the function is not causal by itself, and takes a mask that could make it so."""
        mask = any(a.input == CAUSAL_MASK for a in possible.convention.arguments)
        if not mask or best.near or self._request.alignment != "bottom-right":
            return False
        inputs = self._make_trial_inputs(best.convention, _LEVELS[1])
        names = [n for n in ("v", "y", "x") if n in (inputs or {})][:1]
        if inputs is None or not names:
            return False
        changed = np.array(inputs[names[0]])
        # Negated and shifted, so that zeros change as well.
        changed[..., -1, :] = -changed[..., -1, :] + 1
        before = self._call_with_convention(best.convention, inputs).output
        after = self._call_with_convention(best.convention, {**inputs, names[0]: changed}).output
        if before is None or after is None or before.shape != after.shape:
            return False
        # In a causal function the last token does not reach the first query.
        return not np.array_equal(before[..., 0, :], after[..., 0, :], equal_nan=True)

    def _takes_front(self, convention: Convention) -> bool:
        """Return whether the function takes leading axes in the layout ``nd``."""
        if convention.layout != "nd" or self._request.layout != "auto":
            return False
        one_head = self._request.heads == 1 and "x" not in convention.inputs
        # With one head, several leading axes are tried, else one.
        inputs = self._make_trial_inputs(convention, _LEVELS[0], _BATCH if one_head else _BATCH[:1])
        right = None if inputs is None else self._output_by_specification(inputs)
        if inputs is None or right is None:
            return False
        # Code for one item may well fail here, and no one asks why.
        got = self._call_with_convention(convention, inputs, explains=False).output
        return got is not None and got.shape == right.shape


def line(error: Failure) -> int:
    """Return the line of ``file.py:line``, or 0; code that returned something else than an array ran to its end."""
    if error.reason == "output":
        return sys.maxsize
    number = error.where.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0


def _replace_argument_at_place(convention: Convention, place: int, a: Argument) -> Convention:
    return replace(
        convention, arguments=(*convention.arguments[:place], a, *convention.arguments[place + 1 :])
    )


def _yield_convention_notes(convention: Convention, request: Request) -> Iterator[str]:
    """Yield notes on what was determined by trial."""
    if convention.layout != "nd" and request.layout == "auto":
        # What was determined by trial may be wrong, and so is said.
        yield f"The axes are {layouts.in_words(convention.layout)}, determined by trial; --layout sets another order."
    for a in convention.arguments:
        if a.input == "keep" and plain(a.parameter) in AMBIGUOUS:
            read, other = ("ignore", "") if a.inverted else ("keep", "~")
            more = (
                ""
                if request.mask_arg
                else f"; --mask-arg {other}{a.parameter} sets the other reading"
            )
            yield f"True in {a.parameter} is taken to mean {read}, determined by trial{more}."
        if a.numbers:
            text = (
                "1 where it is True and 0 elsewhere"
                if a.numbers == "ones"
                else "0 where it is True and −∞ elsewhere"
            )
            yield f"The mask {a.parameter} is passed as {text}, determined by trial: booleans give a wrong output."
        if a.form in ("lengths", "length"):
            yield f"{a.parameter} is taken to be how many keys are valid, the first ones."
        if a.input == CAUSAL_MASK and not a.required:
            yield f"The causal mask is passed as {a.parameter}."
