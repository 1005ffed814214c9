"""The identity test of a program, called by its convention on modular arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.positions.position_fields import Alibi, Rotary
from symattn.attention.spec import Attention
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker, Sizes
from symattn.document.errors import InputError, MissingExtra
from symattn.document.evidence import Evidence, Grade
from symattn.document.text import equal_sizes
from symattn.programs.frameworks import Tensor, Tensors
from symattn.programs.process import NotDone, apart
from symattn.programs.program import Program
from symattn.programs.target import Target, captured
from symattn.verification.semantics import (
    EPSILON,
    HELD_OUT,
    SIZES,
    IdentityResult,
    ResidueRun,
    identity_test,
    residue_work,
    settle,
)

if TYPE_CHECKING:
    from symattn.programs.definitions import Laid

LARGE = (Sizes(64, 64, 4, 3, 6), Sizes(5, 130, 4, 2, 6), Sizes(2, 258, 4, 2, 6))


def identity(
    program: Program,
    spec: Attention,
    sizes: Sequence[Sizes] = SIZES,
    epsilon: float = EPSILON,
    seed: int = 0,
    domain: Domain | None = None,
) -> IdentityResult:
    """Test whether a program computes ``spec``, up to rounding and a probability of at most ε.

    Code that cannot run on residues (``float()`` of an element, a comparison of data) is not judged:
    ``IdentityResult.agrees`` is None and ``reason`` says why. Functions in layouts with axes for a batch and for heads
    are called with several items and heads; sizes keep every promise of the ``domain``.
    """
    how = program.convention
    names = tuple(dict.fromkeys(how.inputs))
    maker = Maker(spec, how, Precision.of("float64"), domain or Domain())
    batch = maker.batch_axes(maker.batches)  # several items on each batch axis of the layout

    def kept(wanted: Sequence[Sizes]) -> tuple[Sizes, ...]:
        """Return the sizes of the domain nearest to these, with batches."""
        result = []
        for s in wanted:
            fitted = maker.fitted(s)
            if fitted.d_k != s.d_k:  # the specification does not take this width, but 4, whose root is whole
                fitted = maker.fitted(replace(s, d_k=4))
            result.append(replace(fitted, batch=batch))
        return tuple(dict.fromkeys(result))

    def masks(s: Sizes, random: Random) -> Tensors:
        rng = np.random.default_rng(random.getrandbits(32))
        labels = maker.labels(s, rng)
        return labels | maker.masks(s.n_q, s.n_k, rng, labels, s.batch)

    tables = isinstance(spec.position, Rotary | Alibi)
    return identity_test(program.on, spec, names, kept(sizes), epsilon, seed, masks, tables, kept(HELD_OUT))


def identity_of_definition(program: Laid, sizes: Sequence[Sizes], domain: Domain | None = None) -> IdentityResult:
    """Test whether a function of a definition has the outputs of the definition's first way of computing."""
    definition, random, work = program.subject, Random(0), residue_work()
    inputs = [i for i in definition.inputs if i.name in program.convention.inputs]
    results = {i.name: i.made for i in inputs if i.made is not None}

    def compute(**keywords: object) -> Tensor:
        outputs = definition.run(definition.ways[0], keywords)
        return outputs if len(outputs) > 1 else outputs[0]

    runs = []
    for wanted, names in product(sizes, definition.whole):
        letters = {x: getattr(wanted, definition.meaning(x)[0], n) for x, n in definition.shapes[1].items()}
        letters |= {x: definition.shapes[1][x] for x in definition.kept & letters.keys()}
        fitted = definition.within(letters, domain or Domain())
        shapes = {i.name: definition.shape(i.name, fitted) for i in inputs if i.made is None}
        rng = np.random.default_rng(random.getrandbits(32))
        drawn = {i.name: i.entries(shapes[i.name], rng) for i in inputs if i.entries}
        fixed = {n: a for n, a in drawn.items() if a.dtype.kind in "biu" or not np.isfinite(a).all()}
        which = equal_sizes(fitted), tuple(names.split()), shapes
        runs.append(ResidueRun(compute, *which, fixed, random, work, results, tables=True))
    return settle(runs, program.on, EPSILON)


_OF_GPU = "in forked subprocess"  # torch's words, where a function uses a GPU: its state does not survive copying


def tried_apart(
    program: Target,
    test: Callable[[Sequence[Sizes]], IdentityResult],
    seconds: float,
    stages: Sequence[Sequence[Sizes]] = (SIZES, LARGE),
) -> IdentityResult:
    """Run a test of a program at usual sizes and, if it agrees, at larger ones, within ``seconds``.

    The test runs in a copy of this process if the program can. If it cannot run, the result neither agrees nor differs,
    and ``reason`` says why.
    """
    try:
        copied = program.kinds.copied
    except (InputError, MissingExtra) as error:
        return _not_tried(str(error))

    def tests() -> Iterator[IdentityResult]:
        for sizes in (*stages, None):
            if sizes := program.kinds.further() if sizes is None else sizes:
                with captured(), np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = test(sizes)
                yield result
                if not (result.agrees or result.nearly):
                    break

    try:
        results: list[IdentityResult] = apart(tests, seconds) if copied else list(tests())
    except NotDone as error:
        return _not_tried(str(error))
    if copied and _OF_GPU in results[-1].reason:
        results = list(tests())
    differing = [result for result in results if result.agrees is False]
    if differing:
        return next((result for result in differing if not result.nearly), differing[0])
    return reduce(lambda one, other: one.joined(other) if other.agrees else one, results)


def _not_tried(reason: str) -> IdentityResult:
    return IdentityResult(None, Evidence(Grade.UNDECIDED, reason), reason=reason)
