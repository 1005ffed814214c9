"""The identity test of somebody's function: called as a convention says, on modular arrays, with globals replaced."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from symattn.arrays.modular import Modular
from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker, Sizes
from symattn.bounds.target import Convention
from symattn.document.errors import InputError, MissingExtra
from symattn.document.evidence import Evidence, Grade
from symattn.programs.apart import NotDone, apart
from symattn.programs.calling import agree
from symattn.programs.forms import argument, placed
from symattn.programs.frameworks import import_torch, is_of_jax
from symattn.programs.layouts import from_layout
from symattn.programs.request import Request
from symattn.programs.substitute import substitute
from symattn.programs.watching import captured
from symattn.verification.semantics import EPSILON, SIZES, IdentityResult, identity_test

#: Of a function and a kind of array the function on that kind.
Make = Callable[[Callable[..., Any], type[Modular]], Callable[..., Any]]
LARGE = (Sizes(64, 64, 4, 3, 6), Sizes(5, 130, 4, 2, 6), Sizes(33, 128, 16, 2, 6))


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
    given = [replace(maker.fitted(s), d_model=s.d_model, batch=batch) for s in sizes]

    def prepare(kind: type[Modular]) -> Callable[[Mapping[str, Any]], Any]:
        result = make(function, kind)
        return lambda inputs: _call(result, how, inputs)

    def masks(s: Sizes, random: Random) -> Mapping[str, Any]:
        return maker.masks(s.n_q, s.n_k, np.random.default_rng(random.getrandbits(32)), None, s.batch)

    return identity_test(prepare, spec, names, given, epsilon, seed, masks)


def _roomy(domain: Domain) -> Domain:
    """The domain with lengths up to the usual ones: what differs beyond it is no fault, and is a note at most.

    Where it has one width alone, as a module with weights has, that stays.
    """
    usual = Domain()
    wide = domain.max_width if domain.min_width == domain.max_width else max(domain.max_width, usual.max_width)
    return replace(domain, max_tokens=max(domain.max_tokens, usual.max_tokens), max_width=wide)


def understood(
    function: Callable[..., Any], how: Convention, spec: Attention, seconds: float, domain: Domain | None = None
) -> IdentityResult:
    """The identity test in a copy of this process, within ``seconds``; at larger sizes too where it goes well.

    What stands in the way is the ``reason`` of an identity that neither agrees nor differs.
    """
    numbers = {"doc", "doc_q", "doc_k", "positions", "positions_q", "drop"} & {*how.inputs}
    if numbers or spec.documents:
        return _not_tried(f"{', '.join(sorted(numbers))} are whole numbers")
    if is_of_jax(function):
        from symattn.programs.graphs.jax_reader import on_kind

        # JAX does not outlive a copy of the process
        return _quietly(lambda: identity(function, spec, how, domain=domain, make=on_kind))
    try:
        make = substitute if how.framework == "numpy" else _of_tensors(how.dtype)
    except (InputError, MissingExtra) as error:  # nothing can be exported
        return _not_tried(str(error))

    def tests() -> Iterator[IdentityResult]:
        yield (result := _quietly(lambda: identity(function, spec, how, domain=domain, make=make)))
        if result.agrees:
            yield _quietly(lambda: identity(function, spec, how, LARGE, domain=domain, make=make))

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
    first = output[0] if isinstance(output, tuple) and output else output
    return from_layout(first, inputs, how.layout) if isinstance(first, Modular) else first
