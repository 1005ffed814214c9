"""Functions of any definition: how they are called, and how their outputs match those of the definition.

Parameters are matched by name, ``weight`` for a gain or ``dout`` for the gradient of the output; settings such as
``eps`` are passed if a function has a parameter for them. If names say nothing, the required places take the inputs
in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from inspect import Parameter, Signature
from itertools import count, starmap
from typing import TYPE_CHECKING

import numpy as np

from symattn.arrays.precision import Precision
from symattn.bounds.called_target import Convention, Failure, Layout, Outcome
from symattn.bounds.domain import Domain
from symattn.document.errors import InputError
from symattn.document.keywords import plain
from symattn.programs import frameworks, layouts
from symattn.programs.calling import Agreement, for_user_code, meanings, open_ended
from symattn.programs.calls import Target
from symattn.programs.frameworks import Tensor
from symattn.programs.modules import HeldModule
from symattn.programs.names import Function, parameters
from symattn.programs.packed import Wrapper
from symattn.programs.request import Request
from symattn.programs.specifications import definitions_of, kind_of
from symattn.programs.target import preferred, settled
from symattn.verification.definitions.definition_subject import Definition
from symattn.verification.definitions.inputs_by_letters import TOKENS

if TYPE_CHECKING:
    from symattn.arrays.planes import Planes
    from symattn.verification.semantics import IdentityResult

#: Promises about two lengths, which a definition must have.
_OF_BOTH = {
    "square": {"n_q", "n_k"},
    "same_width": {"d_k", "d_v"},
    "square_weights": {"d_k", "d_model"},
}
#: Promises that no other definition than plain attention has.
_OF_PLAIN_ATTENTION = ("batch",)


def check_domain(spec: object, domain: Domain) -> None:
    """Raise ``InputError`` for a promise that does not apply to the inputs of a definition."""
    subject = next(definitions_of(spec))
    names = set(subject.named(subject.shapes[0]))
    for promise in domain.promises:
        result = f"--{promise.replace('_', '-')}"
        if promise in _OF_PLAIN_ATTENTION:
            raise InputError(
                f"{result}: definitions other than plain attention do not know it; hint: leave it out"
            )
        # NaN behind a mask is judged where an output of an attention can show it.
        reads_all = not subject.returns_attended and subject.undefined is None
        if promise == "nonfinite_forbidden" and reads_all:
            raise InputError(
                f"{result}: {subject.title} does not return the output of an attention; hint: leave it out"
            )
        if promise == "max_abs_score" and subject.inner is None:
            raise InputError(f"{result}: {subject.title} has no scores; hint: leave it out")
        if not _OF_BOTH.get(promise, set()) <= names:
            raise InputError(f"{result}: {subject.title} has no such sizes; hint: leave it out")
        if promise == "fully_masked_rows" and subject.closing is None and subject.empties is None:
            raise InputError(
                f"--fully-masked: {subject.title} has no rows without any key; hint: leave it out"
            )


def target(
    function: Function, request: Request, name: str = "", agreed: Convention | None = None
) -> Laid:
    """Return the function ready to be called with the inputs of a definition, in the framework that it expects.

    With a convention ``agreed`` before, nothing is tried. Raises ``InputError`` if it is unclear how to call it.
    """
    if isinstance(agreed, Formed):
        function, request = _with_all_inputs(function, request, name)
        place = (agreed.order, agreed.form)
        return Laid(
            Adapted(function, subject_of(request.spec, agreed), request, name, place), agreed, name
        )
    # Raises for an unknown format, before anything is called.
    frameworks.numpy_dtype(request.dtype)
    name = name or getattr(function, "__name__", type(function).__name__)
    function, request = _with_all_inputs(function, settled(function, request), name)
    result, note = preferred(
        function, request, lambda outcome: _choose_axes_layout(function, outcome, name)
    )
    layout = result.place[0]
    notes: tuple[str, ...] = (_AUTOGRAD,) if isinstance(function, Backpropagated) else ()
    notes += (function.note,) if isinstance(function, HeldModule) else ()
    if layout != "nd" and request.layout == "auto":
        notes += (
            f"The axes are {layouts.in_words(layout)}, determined by trial; --layout sets another order.",
        )
    agreed = result.formed((*result.convention.notes, *notes, *result.other_axes, *note))
    reservations = function.reservations if isinstance(function, HeldModule) else ()
    return Laid(result, replace(agreed, reservations=(*reservations, *result.other_readings)), name)


def subject_of(spec: object, agreed: Formed) -> Definition:
    """Return the definition in the form in which the function is called."""
    return _of_sizes(tuple(definitions_of(spec, agreed.order))[agreed.form], dict(agreed.sizes))


def _of_sizes(subject: Definition, sizes: Mapping[str, int]) -> Definition:
    """Return the definition restricted to these ``sizes``, if any."""
    shapes = tuple({**s, **sizes} for s in subject.shapes)
    return replace(subject, shapes=shapes, kept=subject.kept | set(sizes)) if sizes else subject


def prepared(function: Function, request: Request) -> Request:
    """Return the request with the framework, if it can be told from the code; import what takes long to import."""
    next(definitions_of(request.spec, "nd" if request.layout == "auto" else request.layout))
    request = settled(function, request)
    kind_of(request.spec).needs_autograd(function, request)
    return request


#: The note on gradients of a function that computes the output only.
_AUTOGRAD = "The gradients are those that torch's autograd gives for the function's output"


@dataclass(frozen=True, slots=True)
class Formed(Convention):
    """How a function of a definition is called: with the axes in the ``order``, in the definition's ``form``.

    The arrays are drawn in that order, so that they are passed as they are. ``fills`` says that the function is not
    simply called with these arrays and constants: arguments are computed, or its outputs converted.
    """

    order: Layout = "nd"
    form: int = 0
    sizes: tuple[tuple[str, int], ...] = ()  # the fixed sizes of a module
    fills: bool = False

    @property
    def needs_definition(self) -> bool:
        """Return whether a process that calls the function has to know the definition."""
        return self.fills

    @property
    def returns_lists(self) -> bool:
        """Return whether outputs may come as a list, which stands for a tuple."""
        return True


class Laid(Target):
    """A function, and the definition in the form in which it is called."""

    def __init__(self, adapted: Adapted, convention: Convention, name: str) -> None:
        super().__init__(adapted, convention, name)
        self.subject, self.right, self._adapted = adapted.subject, adapted.right, adapted
        # Edits and residues need the function within the adapter.
        self._own = adapted.function

    def semantics(
        self,
        spec: object,
        seconds: float,
        domain: Domain | None = None,
        refutes_at_large_sizes: bool = False,
    ) -> IdentityResult:
        """Return the identity test on residues, if the definition runs on them: see ``identity``."""
        from symattn.programs.identity import (
            OF_EDIT,
            TOGETHER,
            identity_of_definition,
            multiples,
            tried_apart,
        )
        from symattn.verification.semantics import SIZES

        refutes = refutes_at_large_sizes or self.refutes_at_large_sizes
        few = SIZES[:3]  # a definition has more steps than an attention, and larger degrees
        larger = OF_EDIT[1] if refutes else TOGETHER
        stages = (few, multiples(domain or Domain()), larger)
        test = partial(identity_of_definition, self, domain=domain)
        refute = partial(test, is_refuting=True) if refutes else None
        return tried_apart(self, test, seconds, stages, refute)

    def made(self, kind: type[Planes]) -> Adapted:
        return self._adapted.on(self.kinds.make(self._own, kind))

    @property
    def written(self) -> Function | None:
        own = self._own
        return own.called if isinstance(own, HeldModule | Backpropagated) else own

    def version(self, function: Function) -> Laid:
        own = self._own
        whole = own.around(function) if isinstance(own, HeldModule | Backpropagated) else function
        return Laid(self._adapted.on(whole), self.convention, self._name)


def _choose_axes_layout(function: Function, request: Request, name: str) -> Adapted:
    """Return the first form, and order of the axes, in which a small call returns about the right values.

    Orders that the function's text names come first. If no call is right, see ``_choose_wrong_order``. An order that
    the user sets is the only one tried. An order that the text states is the one that is judged, if the function runs
    in it. For definitions without an order, it is the first form that runs.
    """
    named, stated = layouts.documented(function), layouts.declared(function)
    orders: tuple[Layout, ...] = tuple(
        dict.fromkeys((*(d for d in named if d in _ORDERS), *_ORDERS))
    )
    orders = orders if kind_of(request.spec).ordered else ("nd",)
    misshapen: list[Adapted] = []  # forms in which it fails, or returns other shapes
    wrong: dict[Layout, Adapted] = {}  # orders in which it runs and returns other values
    refused: list[InputError] = []
    failed: Failure | None = None
    for layout in orders if request.layout == "auto" else (request.layout,):
        try:
            sizes = function.sizes if isinstance(function, Wrapper) else {}
            forms = tuple(_of_sizes(s, sizes) for s in definitions_of(request.spec, layout))
        except InputError as error:
            refused.append(error)
            continue
        for form, subject in enumerate(forms):
            try:
                outcome = Adapted(function, subject, request, name, (layout, form))
            except InputError as error:
                refused.append(error)
                continue
            outcome.try_out(request)
            failed = failed or outcome.error
            if not kind_of(request.spec).ordered and outcome.error is None:
                numbers, every = axes_of(subject), axes_of(forms[0])
                # A function that takes rows and matrices, but fails for a batch of them, is wrong there.
                if len(numbers) > 1 and numbers[-1] < every[-1]:
                    break
                outcome.other_axes = _of_axes(subject, failed) if form else ()
                return outcome
            if outcome.right or outcome.partly:
                if layout not in stated and (
                    judged := next((x for x in stated if x in wrong), None)
                ):
                    wrong[judged].other_readings = (
                        layouts.judged_as_stated(judged),
                        *layouts.readings([layout], right=True),
                    )
                    return wrong[judged]
                outcome.other_readings = _other_readings(layout, wrong, named)
                return outcome
            if outcome.right is False:
                wrong.setdefault(layout, outcome)
            else:
                misshapen.append(outcome)
    if wrong:
        return _choose_wrong_order(function, wrong, request)
    if not misshapen:
        raise refused[-1]
    # An error in a wrong order says nothing about a function that runs in another one.
    return max(misshapen, key=lambda outcome: outcome.likeness)


def _choose_wrong_order(
    function: Function, wrong: Mapping[Layout, Adapted], request: Request
) -> Adapted:
    """Return the order of axes that a wrong function means, with a note on the others in which it runs.

    It is the usual one if the text puts heads before tokens, else the first one that the text names, else the first in
    which heads and items do not change each other's outputs: a mistake seldom joins them, and an order with tokens in
    the place of heads does.
    """
    first = next(iter(wrong))
    # Tokens before heads may run as well, and hide the mistake: the text says which axes are meant.
    if "nd" in wrong and layouts.puts_heads_first(function):
        return wrong["nd"]
    if first in layouts.documented(function) or len(wrong) == 1:
        return wrong[first]
    apart = [layout for layout, outcome in wrong.items() if outcome.keeps_heads_apart(request)]
    taken = next(iter(apart), first)
    result = wrong[taken]
    others = [
        layout
        for layout, outcome in wrong.items()
        if _does_order_differ(outcome.subject, result.subject)
        and not result.is_defined_as(outcome, request)
    ]
    joined = [layout for layout in others if apart and layout not in apart]
    alike = [layout for layout in others if layout not in joined]
    axes = {layout: _describe_axes(outcome.subject) for layout, outcome in wrong.items()}
    result.other_readings = (
        *layouts.orders_beside(axes, taken, alike, joining=False),
        *layouts.orders_beside(axes, taken, joined, joining=True),
    )
    return result


#: Orders of axes, in the order in which they are tried.
_ORDERS: tuple[Layout, ...] = ("bhnd", "bnhd", "bnd", "nhd", "nd", "nbhd", "nbd")


def _other_readings(
    taken: Layout, wrong: Iterable[Layout], named: tuple[Layout, ...]
) -> tuple[str, ...]:
    """Return notes if a right function is wrong with other axes, and if its text names other ones."""
    others = [layout for layout in wrong if layout != taken]
    if others and named and taken not in named:
        return (layouts.undocumented(named[0], taken), *layouts.readings(others, right=False))
    return tuple(layouts.readings(others, right=False))


def axes_of(subject: Definition) -> list[int]:
    """Return the numbers of axes that the first input may have."""
    return sorted({len(subject.axes_of(subject.inputs[0].name, sizes)) for sizes in subject.shapes})


def _of_axes(subject: Definition, failed: Failure | None) -> tuple[str, ...]:
    """Return a note on the numbers of axes of a function that does not take all."""
    numbers = axes_of(subject)
    result = f"{' or '.join(map(str, numbers))} {'axis' if numbers == [1] else 'axes'}"
    return (
        f"{subject.inputs[0].name} is taken to have {result}, determined by trial; other numbers of axes: {failed}.",
    )


def _small_call_sizes(subject: Definition, by_order: bool) -> tuple[Mapping[str, int], ...]:
    """Return the sizes of small calls: some in which exchanged axes show; without an order, one per set of axes.

    The latter do not occur again in later calls, in which they would hide stale state.
    """
    if by_order:
        later = subject.shapes[1:]
        return (next(filter(partial(_are_numbers_of_tokens_distinct, subject), later), later[0]),)
    larger = (
        {x: n if x in subject.kept else n + 5 for x, n in sizes.items()} for sizes in subject.shapes
    )
    return tuple({frozenset(sizes): sizes for sizes in larger}.values())


def _does_order_differ(one: Definition, other: Definition) -> bool:
    """Return whether both have as many axes, with the tokens at different places: leading axes alone may have any
    names, and any number.
    """
    axes = [_axes_of_first_input(subject) for subject in (one, other)]
    numbers = {len(letters) for letters in axes}
    places = {
        next((i for i, x in enumerate(letters) if subject.meaning(x)[0] in TOKENS), None)
        for subject, letters in zip((one, other), axes, strict=True)
    }
    return len(numbers) == 1 and len(places) == 2


def _axes_of_first_input(subject: Definition) -> list[str]:
    axes = subject.axes_of(subject.inputs[0].name, subject.shapes[1])
    return ["*".join(factors) for factors in axes]


def _describe_axes(subject: Definition) -> str:
    """Return the axes of the first input as ``(h, n, d)``."""
    return f"({', '.join(x.partition('_')[0] for x in _axes_of_first_input(subject))})"


def _token_letters(subject: Definition, sizes: Mapping[str, int]) -> set[str]:
    """Return the letters of the sizes that are numbers of tokens."""
    return {x for x in sizes if subject.meaning(x)[0] in TOKENS or x == "m"}


def _are_numbers_of_tokens_distinct(subject: Definition, sizes: Mapping[str, int]) -> bool:
    """Return whether all numbers of tokens differ from each other, from 1, and from fixed numbers of heads."""
    letters = _token_letters(subject, sizes)
    numbers = [1, *(n for x, n in sizes.items() if x in letters)]
    fixed = {n for x, n in sizes.items() if x in "bhg" and x in subject.kept}
    return len({*numbers}) == len(numbers) and fixed.isdisjoint(numbers)


def _with_distinct_items(subject: Definition, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes with numbers of heads and items that differ from each other and from those of tokens.

    A function would else run in several orders of the axes, and be judged in the wrong one.
    """
    # Free heads in groups would have to stay multiples of the groups.
    free = [x for x in "bh" if x in sizes and x not in subject.kept]
    if "g" in sizes and "g" not in subject.kept:
        return dict(sizes)
    tokens = _token_letters(subject, sizes)
    used = {n for x, n in sizes.items() if x in tokens or (x in "bhg" and x not in free)}
    result = dict(sizes)
    for letter in free:
        unused = (n for n in count(sizes[letter]) if n > 1 and n not in used)
        result[letter] = next(unused)
        used.add(result[letter])
    return result


def _list_outputs(outcome: Outcome) -> list[np.ndarray]:
    return [a for a in (outcome.output, *outcome.others) if a is not None]


def _count_like_outputs(outcome: Outcome, right: tuple[Tensor, ...]) -> tuple[bool, bool, int]:
    """Return whether a call ran, whether it gave as many outputs as defined, and how many have the right axes."""
    got = _list_outputs(outcome)
    axes = [np.ndim(a) == np.ndim(b) for a, b in zip(got, right, strict=False)]
    return outcome.error is None, len(got) == len(right), sum(axes)


def _halve_first_item(
    subject: Definition, inputs: Mapping[str, Tensor], letter: str
) -> dict[str, Tensor]:
    """Return inputs whose first item along the axis ``letter`` is halved, in all arrays of numbers that have it."""
    result = dict(inputs)
    letters = {i.name: i.shape.split() for i in subject.inputs}
    for name, a in inputs.items():
        axes = letters[name][len(letters[name]) - np.ndim(a) :]
        if letter in axes and np.asarray(a).dtype.kind == "f":
            changed = np.moveaxis(np.array(a), axes.index(letter), 0)
            # A half is exact, and a log of a gate stays one.
            changed[0] /= 2
            result[name] = np.moveaxis(changed, 0, axes.index(letter))
    return result


def _is_alike_where_defined_so(
    before: np.ndarray, after: np.ndarray, wanted: np.ndarray, moved: np.ndarray
) -> bool:
    """Return whether outputs of two calls agree where those of the definition are the same."""
    if not before.shape == after.shape == np.shape(wanted):
        return False
    same = np.asarray(wanted) == np.asarray(moved)
    return bool(np.allclose(before[same], after[same], rtol=1e-3, equal_nan=True))


def _is_output_as_defined(
    subject: Definition, outcome: Outcome, right: tuple[Tensor, ...], u: float
) -> bool | None:
    """Return whether a call gave about the right values; None if not even the shapes are right."""
    got = _list_outputs(outcome)
    if len(got) < len(right):
        return None
    for a, b, name in zip(got, right, subject.outputs, strict=False):
        shape, wanted = a.shape, np.shape(b)
        if name in subject.loose:  # axes of length 1 may differ
            shape, wanted = (tuple(n for n in axes if n != 1) for axes in (shape, wanted))
        if shape != wanted:
            return None
    return all(
        _are_arrays_roughly_equal(np.ravel(a), np.ravel(b), u)
        for a, b in zip(got, right, strict=False)
    )


def _are_some_outputs_right(outcome: Outcome, right: tuple[Tensor, ...], u: float) -> bool:
    """Return whether the first output and another one are right, or the others have the right numbers of axes and of
    columns, in any order: then what is wrong is a mistake, and no other output."""
    got = _list_outputs(outcome)
    # Too few outputs leave nothing to compare.
    if len(got) < max(len(right), 1 + len(outcome.others)):
        return False
    alike = [
        a.shape == np.shape(b) and _are_arrays_roughly_equal(a, b, u)
        for a, b in zip(got, right, strict=False)
    ]
    columns = [sorted((np.ndim(a), *np.shape(a)[-1:]) for a in of[1:]) for of in (got, right)]
    # The first one may be right while the others are swapped.
    return alike[0] and (any(alike[1:]) or (len(right) > 2 and columns[0] == columns[1]))


#: How far outputs may lie from the right ones, to be taken for those of the right order of axes.
_NEAR, _NEAR_IN_UNITS, _NEAR_AT_MOST = 4e-3, 24, 0.05


def _are_arrays_roughly_equal(a: np.ndarray, b: np.ndarray, u: float) -> bool:
    """Return whether arrays are closer than arrays in another order would be; used only to choose, not to judge."""
    near = min(_NEAR + _NEAR_IN_UNITS * u, _NEAR_AT_MOST)
    return bool(np.abs(a - b).max(initial=0.0) < near * (1 + np.abs(b).max(initial=0.0)))


def _with_all_inputs(function: Function, request: Request, name: str) -> tuple[Function, Request]:
    """Return a function of all inputs of the specification: weights that a module holds, and an output's gradient."""
    kind = kind_of(request.spec)
    function, request = kind.with_weights(function, request, name)
    if not kind.needs_autograd(function, request):
        return function, request
    subject = next(definitions_of(request.spec))
    return Backpropagated(function, subject), replace(request, framework="torch")


def is_forward_pass(function: Function, request: Request) -> bool:
    """Return whether a function has no parameter for the gradient of the output, of which torch could take it."""
    subject = next(definitions_of(request.spec))
    words = {w for w, what in meanings(subject).items() if what == "do"}
    results = parameters(function)
    return (
        # Without a signature nobody knows which parameters there are.
        results is not None
        and not words & {plain(p.name) for p in results}
        and not open_ended(results)
        and find_spec("torch") is not None
    )


class Adapted:
    """A function with parameters for sizes filled in from its inputs, and lists and mappings returned as tuples."""

    def __init__(
        self,
        function: Function,
        subject: Definition,
        request: Request,
        name: str,
        place: tuple[Layout, int],
    ) -> None:
        agreed = Agreement(function, subject, request, name)
        self.subject = subject
        self._arguments, self._derived = agreed.arguments, agreed.derived
        if isinstance(function, Backpropagated):
            function.inputs = {a.parameter: a.input for a in agreed.arguments}
        self.function, self._outputs = function, subject.outputs
        self.convention, self.place = agreed.convention(), place
        self.other_readings: tuple[str, ...] = ()  # notes on orders in which another verdict holds
        self.other_axes: tuple[str, ...] = ()  # notes on numbers of axes that are refused
        self.right: bool | None = None  # in small calls; None if not even the shapes are right
        self.likeness = (False, False, 0)  # see ``_count_like_outputs``
        self.partly = False  # whether, of several outputs, the first and another one are right
        self.error: Failure | None = None
        self._mapped = False  # whether outputs are returned by name
        self.__name__ = name

    def formed(self, notes: tuple[str, ...]) -> Formed:
        """Return the convention, with the order and form of the definition."""
        how = self.convention
        # The sizes of a module are fixed by its weights, those of a kernel by its benchmark.
        sizes = tuple(self.function.sizes.items()) if isinstance(self.function, Wrapper) else ()
        order, form = self.place
        fills = (
            bool(self._derived)
            or self._mapped
            or isinstance(self.function, (HeldModule, Backpropagated))
        )
        return Formed(
            how.arguments,
            how.framework,
            how.dtype,
            notes=notes,
            order=order,
            form=form,
            sizes=sizes,
            fills=fills,
        )

    def on(self, function: Function) -> Adapted:
        """Return a copy with another form of the function in its place."""
        result = copy(self)
        result.function = function
        return result

    def _draw_small_inputs(self, request: Request) -> Iterator[dict[str, Tensor]]:
        """Yield the inputs of small calls."""
        names = [i.name for i in self.subject.inputs if i.name in self.convention.inputs]
        numbers = [*self.subject.families.values()][1]
        precision = Precision.of(request.dtype)
        ordered = kind_of(request.spec).ordered
        for sizes in _small_call_sizes(self.subject, ordered):
            fitted = self.subject.within(sizes, request.domain)
            if ordered:
                fitted = _with_distinct_items(self.subject, fitted)
            # Seeded, so that every process chooses the same form.
            rng = np.random.default_rng(0)
            yield self.subject.draw(names, fitted, numbers(rng), precision, rng)

    def _run_definition(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs of the definition."""
        with np.errstate(all="ignore"):
            return self.subject.run(self.subject.ways[0], inputs)

    def is_defined_as(self, other: Adapted, request: Request) -> bool:
        """Return whether the definition of another order has the same outputs for the same arrays.

        A merge treats all rows alike, whatever their axes are called, so that it is wrong in each order or in none.
        """
        for inputs in self._draw_small_inputs(request):
            try:
                pairs = zip(
                    self._run_definition(inputs), other._run_definition(inputs), strict=True
                )
                if not all(np.array_equal(a, b, equal_nan=True) for a, b in pairs):
                    return False
            # Arrays of one order may have no meaning in the other one.
            except Exception:
                return False
        return True

    def keeps_heads_apart(self, request: Request) -> bool:
        """Return whether changes in the first item or head leave those outputs that the definition leaves."""
        inputs = next(self._draw_small_inputs(request))
        precision = Precision.of(request.dtype)
        letters = [x for x in "bh" if any(x in i.shape.split() for i in self.subject.inputs)]
        own = Target(self, self.convention)
        before, wanted = own.run(inputs), self._run_definition(inputs)
        for letter in letters:
            changed = self.subject.filled(
                _halve_first_item(self.subject, inputs, letter), precision
            )
            after, moved = own.run(changed), self._run_definition(changed)
            pairs = zip(_list_outputs(before), _list_outputs(after), wanted, moved, strict=False)
            if not all(starmap(_is_alike_where_defined_so, pairs)):
                return False
        return True

    def try_out(self, request: Request) -> None:
        """Make small calls, and record whether they return about the right values."""
        result: list[bool] = []
        u = float(Precision.of(request.dtype).input.u)
        for inputs in self._draw_small_inputs(request):
            outcome = Target(self, self.convention).run(inputs)
            wanted = self._run_definition(inputs)
            right = _is_output_as_defined(self.subject, outcome, wanted, u)
            self.likeness = _count_like_outputs(outcome, wanted)
            self.partly = self.partly or _are_some_outputs_right(outcome, wanted, u)
            self.error = self.error or outcome.error
            # Wrong shapes at one size need no further calls.
            if right is None:
                return
            result.append(right)
        self.right = all(result)

    def __call__(self, *places: object, **keywords: object) -> Tensor:
        if self._derived:
            # Positional and keyword arguments are brought under the definition's names.
            ordered = [a for a in self._arguments if a.positional]
            arrays = {a.input: x for a, x in zip(ordered, places, strict=False)}
            arrays |= {
                a.input: keywords[a.parameter] for a in self._arguments if a.parameter in keywords
            }
            keywords |= {p: for_user_code(value(arrays)) for p, value in self._derived.items()}
        output = self.function(*places, **keywords)
        # A dictionary of outputs is read by the definition's names.
        if isinstance(output, Mapping):
            self._mapped = True
            return tuple(output[n] for n in self._outputs if n in output)
        return tuple(output) if isinstance(output, list) else output


# -- gradients by autograd ---------------------------------------------------------------------------------------------
class Backpropagated:
    """A function of tensors and ``do`` that returns the gradients of another function, by autograd.

    ``inputs`` are the definition's names of its parameters, once they are known.
    """

    def __init__(self, function: Function, subject: Definition) -> None:
        self._function, self._subject = function, subject
        self.inputs: Mapping[str, str | None] = {}
        # dq is the gradient by q, and so on.
        self._by = tuple(name[1:] for name in subject.outputs)
        # Gradients of outputs, in their order.
        inputs = {i.name for i in subject.inputs}
        self._upstream = tuple(name for name in ("do", "dfinal_state") if name in inputs)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        own_parameters = parameters(function) or ()
        self._names = tuple(p.name for p in own_parameters)
        upstream = [Parameter(name, Parameter.KEYWORD_ONLY) for name in self._upstream]
        stars = [p for p in own_parameters if p.kind is Parameter.VAR_KEYWORD]
        self.__signature__ = Signature(
            [*(p for p in own_parameters if p not in stars), *upstream, *stars]
        )

    @property
    def called(self) -> Function:
        """The function whose gradients are taken."""
        return self._function

    def around(self, function: Function) -> Backpropagated:
        """Return the gradients of another version of the function."""
        # Another version has the same parameters, which take long to read.
        result = copy(self)
        result._function = function
        return result

    def __call__(self, *places: Tensor, **keywords: Tensor) -> tuple[Tensor, ...]:
        upstream = [keywords.pop(name) for name in self._upstream]
        # Detached, so that ``grad`` has the gradients of this call alone.
        leaves = [
            x.detach().requires_grad_() if _has_floating_point_entries(x) else x for x in places
        ]
        named = {
            n: x.detach().requires_grad_() if _has_floating_point_entries(x) else x
            for n, x in keywords.items()
        }
        output = self._function(*leaves, **named)
        outputs = output if isinstance(output, tuple) else (output,)
        self._go_back([*zip(outputs, upstream, strict=False)])
        every = {**dict(zip(self._names, leaves, strict=False)), **named}
        moved = {name: x for name, x in every.items() if _has_floating_point_entries(x)}
        by_input = {self.inputs.get(name, name): x for name, x in moved.items()}
        # Parameters of unknown names are taken in their order.
        chosen: list[Tensor] = [by_input.get(name) for name in self._by]
        if any(x is None for x in chosen):
            chosen = list(moved.values())[: len(self._by)]
        # An input without influence has no gradient; zeros are meant.
        return tuple(x.grad if x.grad is not None else x.new_zeros(x.shape) for x in chosen)

    def _go_back(self, ends: list[tuple[Tensor, Tensor]]) -> None:
        """Let torch add up the gradients of outputs and the upstream ones of each."""
        from torch.autograd import backward

        # Without any that an input moves, torch says so.
        moving = [pair for pair in ends if pair[0].requires_grad] or ends
        backward([output for output, _ in moving], [upstream for _, upstream in moving])


def _has_floating_point_entries(x: object) -> bool:
    return bool(getattr(x, "is_floating_point", lambda: False)())
