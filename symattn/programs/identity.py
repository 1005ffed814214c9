"""The identity test of somebody's function: called as a convention says, on modular arrays, with globals replaced."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.modular import Modular
from symattn.arrays.precision import Precision
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Convention
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker, Sizes
from symattn.document.errors import InputError, MissingExtra
from symattn.document.evidence import Evidence, Grade
from symattn.programs.calling import agree
from symattn.programs.frameworks import import_torch, is_of_jax
from symattn.programs.layouts import argument, from_layout, placed
from symattn.programs.process import NotDone, apart
from symattn.programs.request import Request
from symattn.programs.substitute import substitute
from symattn.programs.target import captured
from symattn.verification.definitions.drawing import within, words
from symattn.verification.semantics import (
    EPSILON,
    SIZES,
    IdentityResult,
    ResidueRun,
    identity_test,
    residue_work,
    settle,
)

if TYPE_CHECKING:
    from symattn.programs.definitions import Adapted

#: Of a function and a kind of array the function on that kind.
Make = Callable[[Callable[..., Any], type[Modular]], Callable[..., Any]]
LARGE = (Sizes(64, 64, 4, 3, 6), Sizes(5, 130, 4, 2, 6))


def identity(
    function: Callable[..., Any],
    spec: Attention,
    convention: Convention | None = None,
    sizes: Sequence[Sizes] = SIZES,
    epsilon: float = EPSILON,
    seed: int = 0,
    domain: Domain | None = None,
    make: Make = substitute,
) -> IdentityResult:
    """Test whether NumPy code computes ``spec``, up to rounding and a probability of at most ε.

    Without a convention the function is called as ``agree`` finds. Code that cannot run on residues (``float()`` of an
    element, a comparison of data) is not judged: ``IdentityResult.agrees`` is None and ``reason`` names why.
    Functions in layouts with axes for a batch and for heads are called with several; sizes keep the promises of the
    ``domain``, but for the largest ones. ``make`` makes of the function one for a kind of array.
    """
    how = convention or agree(function, Request.of(spec))
    names = tuple(dict.fromkeys(how.inputs))
    maker = Maker(spec, how, Precision.of("float64"), _roomy(domain or Domain()))
    batch = (2, 3)[: maker.batches]  # several, where the layout has an axis for it
    given = [replace(_fitted(maker, s), d_model=s.d_model, batch=batch) for s in sizes]

    def prepare(kind: type[Modular]) -> Callable[[Mapping[str, Any]], Any]:
        result = make(function, kind)
        return lambda inputs: _call(result, how, inputs)

    def masks(s: Sizes, random: Random) -> Mapping[str, Any]:
        return maker.masks(s.n_q, s.n_k, np.random.default_rng(random.getrandbits(32)), None, s.batch)

    return identity_test(prepare, spec, names, given, epsilon, seed, masks, isinstance(spec.position, Rotary))


def _fitted(maker: Maker, sizes: Sizes) -> Sizes:
    """Sizes that the specification can take; a width that it can't becomes 4, of which the root is whole as well."""
    result = maker.fitted(sizes)
    return result if result.d_k == sizes.d_k else maker.fitted(replace(sizes, d_k=4))


def _roomy(domain: Domain) -> Domain:
    """The domain with lengths up to the usual ones: what differs beyond it is no fault, and is a note at most.

    Where it has one width alone, as a module with weights has, that stays.
    """
    usual = Domain()
    wide = domain.max_width if domain.min_width == domain.max_width else max(domain.max_width, usual.max_width)
    return replace(domain, max_tokens=max(domain.max_tokens, usual.max_tokens), max_width=wide)


def identity_of_definition(
    adapted: Adapted,
    how: Convention,
    sizes: Sequence[Sizes] = SIZES,
    domain: Domain | None = None,
    make: Make = substitute,
    epsilon: float = EPSILON,
    seed: int = 0,
) -> IdentityResult:
    """Test the same of a function of a definition: its outputs against those of the definition's first way."""
    definition, random, work = adapted.subject, Random(seed), residue_work()
    inputs = [i for i in definition.inputs if i.name in how.inputs]
    results = {i.name: i.made for i in inputs if i.made is not None}

    def prepare(kind: type[Modular]) -> Callable[[Mapping[str, Any]], Any]:
        result = adapted.on(lambda function: make(function, kind))
        return lambda given: _call(result, how, given)

    def compute(**keywords: Any) -> tuple[Any, ...]:
        return definition.run(definition.ways[0], keywords)

    runs = []
    for wanted, number in product(sizes, definition.whole):
        letters = {x: getattr(wanted, definition.meaning(x)[0], n) for x, n in definition.shapes[1].items()}
        fitted = within(letters | {x: definition.shapes[1][x] for x in definition.kept & letters.keys()}, definition,
                        _roomy(domain or Domain()))  # fmt: skip
        shapes = {i.name: definition.shape(i.name, fitted) for i in inputs if i.made is None}
        rng = np.random.default_rng(random.getrandbits(32))
        drawn = {i.name: i.entries(shapes[i.name], rng) for i in inputs if i.entries}
        fixed = {n: a for n, a in drawn.items() if a.dtype == bool or not np.isfinite(a).all()}
        runs.append(ResidueRun(compute, words(fitted), (number,), shapes, fixed, random, work, results, tables=True))
    return settle(runs, prepare, epsilon)


def understood(
    function: Callable[..., Any], how: Convention, spec: Attention, seconds: float, domain: Domain | None = None
) -> IdentityResult:
    """The identity test in a copy of this process, within ``seconds``; at larger sizes too where it goes well.

    What stands in the way is the ``reason`` of an identity that neither agrees nor differs.
    """
    numbers = {"doc", "doc_q", "doc_k", "positions", "positions_q", "drop"} & {*how.inputs}
    if numbers or spec.documents:
        return _not_tried(f"{', '.join(sorted(numbers))} are whole numbers")
    return tried_apart(
        lambda sizes, make: identity(function, spec, how, sizes, domain=domain, make=make), function, how, seconds
    )


def tried_apart(
    test: Callable[[Sequence[Sizes], Make], IdentityResult],
    function: Callable[..., Any],
    how: Convention,
    seconds: float,
    stages: Sequence[Sequence[Sizes]] = (SIZES, LARGE),
) -> IdentityResult:
    """Make a test of what is made of ``function`` for a kind, at usual sizes and, where it agrees, at larger ones."""
    if is_of_jax(function):
        from symattn.programs.graphs.jax_reader import on_kind

        return _quietly(lambda: test(stages[0], on_kind))  # JAX does not outlive a copy of the process
    try:
        make = substitute if how.framework == "numpy" else _of_tensors(how.dtype)
    except (InputError, MissingExtra) as error:  # nothing can be exported
        return _not_tried(str(error))

    def tests() -> Iterator[IdentityResult]:
        for sizes in stages:
            yield (result := _quietly(lambda: test(sizes, make)))  # noqa: B023 - called at once
            if not result.agrees:
                break

    try:
        results: list[IdentityResult] = apart(tests, seconds)
    except NotDone as error:
        return _not_tried(str(error))
    first, last = results[0], results[-1]
    if last is first or last.agrees is None:
        return first
    return first.joined(last) if last.agrees else last


def _of_tensors(dtype: str) -> Make:
    from symattn.programs.graphs.torch_reader import on_kind, warm

    warm()
    graphs: dict[Any, Any] = {}

    def make(function: Callable[..., Any], kind: type[Modular]) -> Callable[..., Any]:
        import_torch().set_num_threads(1)  # threads do not outlive a copy of the process
        return on_kind(function, kind, dtype, graphs)

    return make


def _quietly(test: Callable[[], IdentityResult]) -> IdentityResult:
    with captured(), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return test()


def _not_tried(reason: str) -> IdentityResult:
    return IdentityResult(None, Evidence(Grade.UNDECIDED, reason), reason=reason)


def _call(function: Callable[..., Any], how: Convention, inputs: Mapping[str, Any]) -> Any:
    places, keywords = placed(how.arguments, {a: argument(a, how, inputs) for a in how.arguments})
    output = function(*places, **keywords)
    first, *others = output if isinstance(output, tuple) and output else (output,)
    first = from_layout(first, inputs, how.layout) if isinstance(first, Modular) else first
    return (first, *others) if others else first
