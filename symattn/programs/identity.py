"""The identity test of a program, called by its convention on modular arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
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
from symattn.programs.calls import Target, captured
from symattn.programs.frameworks import Tensor, Tensors
from symattn.programs.process import NotDone, apart
from symattn.programs.program import Program
from symattn.verification.probing.together import lengths_of_several
from symattn.verification.semantics import (
    EPSILON,
    HELD_OUT,
    SIZES,
    IdentityResult,
    ResidueRun,
    identity_test,
    join_stages,
    residue_work,
    settle,
)

if TYPE_CHECKING:
    from symattn.programs.definitions import Laid

#: A test of a program at some sizes.
Test = Callable[[Sequence[Sizes]], IdentityResult]
#: Larger sizes: square ones, and more keys than usual blocks have.
LARGE = (Sizes(64, 64, 4, 3, 6), Sizes(2, 258, 4, 2, 6))
#: Several blocks of 128 queries and of 128 keys in widths above 64, whose root is whole; the first that is small enough
#: is tried.
TOGETHER = (Sizes(140, 270, 100, 66, 6), Sizes(140, 150, 100, 66, 6))
#: The smallest of the usual sizes, and several short blocks of keys, where larger sizes take too long.
FEW = (SIZES[0], Sizes(5, 35, 16, 20, 6))
#: The sizes at which an edit is proved, and larger ones at which one point may refute it. What square and wide ones
#: would show, floats show that are asked in a new search.
OF_EDIT = (SIZES[:3], (SIZES[3], LARGE[1]))
_CELLS = 1 << 17  # scores of all heads and items in one run
#: The same where each run takes long: only the smallest size has several items.
FEW_CELLS = 1 << 8
_CELLS_OF_MULTIPLES = 1 << 18  # scores of one head, if short lengths are not promised
_LENGTHS = 4  # numbers of queries and keys of which so many pairs are then tried
# Wider heads than this are tried as they are, and not replaced by a small width.
_USUAL_WIDTH = 64


def identity(
    program: Program,
    spec: Attention,
    sizes: Sequence[Sizes] = SIZES,
    epsilon: float = EPSILON,
    seed: int = 0,
    domain: Domain | None = None,
    cells: int = _CELLS,
    is_refuting: bool = False,
) -> IdentityResult:
    """Test whether a program computes ``spec``, up to rounding and a probability of at most ε.

    Code that cannot run on residues (``float()`` of an element, a comparison of data) is not judged:
    ``IdentityResult.agrees`` is None and ``reason`` says why. Functions in layouts with axes for a batch and for heads
    are called with several heads, and with several items in runs of at most so many ``cells``, which are scores of all
    heads and items; sizes keep every promise of the ``domain``. See ``identity_test`` for ``is_refuting``.
    """
    how = program.convention
    names = tuple(dict.fromkeys(how.inputs))
    maker = Maker(spec, how, Precision.of("float64"), domain or Domain(), _CELLS)

    def kept(wanted: Sequence[Sizes]) -> tuple[Sizes, ...]:
        """Return the sizes of the domain nearest to these, with batches."""
        return tuple(
            dict.fromkeys(
                _fit_sizes_to_maker(maker, s, cells)
                for s in _select_stage_sizes(wanted, spec.heads, maker.square)
            )
        )

    def masks(s: Sizes, random: Random) -> Tensors:
        # A generator of NumPy, seeded by the one of the test: masks are drawn in arrays.
        rng = np.random.default_rng(random.getrandbits(32))
        labels = maker.labels(s, rng)
        return labels | maker.masks(s.n_q, s.n_k, rng, labels, s.batch)

    # Positions are computed from tables, which both sides have to share.
    tables = isinstance(spec.position, Rotary | Alibi)
    return identity_test(
        program.on,
        spec,
        names,
        kept(sizes),
        epsilon,
        seed,
        masks,
        tables,
        kept(HELD_OUT),
        is_refuting,
    )


def _select_stage_sizes(
    sizes: Sequence[Sizes], heads: int, square: bool = False
) -> Sequence[Sizes]:
    """Return the sizes of a stage; of those ``TOGETHER``, the first with few enough scores of all heads."""
    if sizes != TOGETHER:
        return sizes
    # A square maker has as many queries as keys.
    rows = [s.n_k if square else s.n_q for s in sizes]
    return (
        next(
            (s for s, n in zip(sizes, rows, strict=True) if heads * n * s.n_k <= _CELLS), sizes[-1]
        ),
    )


def _fit_sizes_to_maker(maker: Maker, sizes: Sizes, cells: int) -> Sizes:
    """Return the sizes that the specification and the domain take, with items on each batch axis of the layout."""
    fitted = maker.fitted(sizes)
    if fitted.d_k != sizes.d_k and sizes.d_k <= _USUAL_WIDTH:
        fitted = maker.fitted(replace(sizes, d_k=4))  # the root of 4 is whole
    scores = maker.spec.heads * fitted.n_q * fitted.n_k
    several = maker.batch_axes(maker.batches)
    ones = (1,) * maker.batches
    fronts = (several, (*several[:1], *ones[1:]), ones)  # the first with few enough items
    batch = next((front for front in fronts if prod(front) * scores <= cells), ones)
    return replace(fitted, batch=batch)


def multiples(domain: Domain) -> tuple[Sizes, ...]:
    """Return sizes of 1, 2, 3 and 5 times the shortest length, if the domain promises that short lengths do not occur.

    A kernel whose every tile is that long then has several tiles.
    """
    pairs = tuple(lengths_of_several(domain))[:_LENGTHS]
    return tuple(Sizes(n_q, n_k, 4, 3, 6) for n_q, n_k in pairs if n_q * n_k <= _CELLS_OF_MULTIPLES)


def identity_of_definition(
    program: Laid,
    sizes: Sequence[Sizes],
    domain: Domain | None = None,
    is_refuting: bool = False,
) -> IdentityResult:
    """Test whether a function of a definition has the outputs of the definition's first way of computing.

    See ``identity_test`` for ``is_refuting``.
    """
    definition = program.subject
    random = Random(0)
    work = residue_work(sizes, is_refuting)
    inputs = [i for i in definition.inputs if i.name in program.convention.inputs]
    results = {i.name: i.made for i in inputs if i.made is not None}

    def compute(**keywords: object) -> Tensor:
        outputs = definition.run(definition.ways[0], keywords)
        return outputs if len(outputs) > 1 else outputs[0]

    runs = []
    whole = definition.whole[:1] if is_refuting else definition.whole
    for wanted, names in product(_select_stage_sizes(sizes, definition.items), whole):
        letters = {
            x: getattr(wanted, definition.meaning(x)[0], n) for x, n in definition.shapes[1].items()
        }
        letters |= {x: definition.shapes[1][x] for x in definition.kept & letters.keys()}
        fitted = definition.within(letters, domain or Domain())
        shapes = {i.name: definition.shape(i.name, fitted) for i in inputs if i.made is None}
        rng = np.random.default_rng(random.getrandbits(32))
        drawn = {i.name: i.entries(shapes[i.name], rng) for i in inputs if i.entries}
        # Whole numbers, masks and infinities stay plain; other inputs are residues.
        fixed = {
            n: a for n, a in drawn.items() if a.dtype.kind in "biu" or not np.isfinite(a).all()
        }
        which = equal_sizes(fitted), tuple(names.split()), shapes
        run = ResidueRun(compute, *which, fixed, random, work, results, tables=True, named=fitted)
        run.is_refuting = is_refuting
        run.loose = [k for k, name in enumerate(definition.outputs) if name in definition.loose]
        runs.append(run)
    return settle(runs, program.on, EPSILON)


_OF_GPU = "in forked subprocess"  # torch's words, where a function uses a GPU: its state does not survive copying


def tried_apart(
    program: Target,
    test: Test,
    seconds: float,
    stages: Sequence[Sequence[Sizes]],
    refute: Test | None = None,
) -> IdentityResult:
    """Run a test of a program at the sizes of each stage, while it agrees, within ``seconds``.

    The sizes that a program asks for come before the last stage, or after the only one. The test runs in a copy of this
    process if the program can. If it cannot run, the result neither agrees nor differs, and ``reason`` says why; if a
    later stage cannot run, the result is that of the stages before, and ``stopped`` says why. With ``refute`` later
    stages run that in its place: they may differ, and prove nothing where they agree.
    """
    try:
        copied = program.kinds.copied
    except (InputError, MissingExtra) as error:
        return _not_tried(str(error))
    every = [sizes for sizes in stages if sizes]
    turns: list[Sequence[Sizes]] = every if len(every) > 1 else [*every, ()]

    def tests() -> Iterator[IdentityResult]:
        planned = len(every)
        has_result = False
        for number, sizes in enumerate(turns):
            # Sizes for the tiles of the kernels that ran, known only after the first stage.
            further = program.kinds.further() if number and number == len(turns) - 1 else ()
            planned += bool(further)
            for wanted in filter(None, (further, sizes)):
                try:
                    with captured(), np.errstate(all="ignore"), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        result = (refute if refute and has_result else test)(wanted)
                except Exception as error:
                    # What a later stage cannot compute is the reason why it is left out, not a lack of time.
                    if not has_result:
                        raise
                    result = _not_tried(f"{type(error).__name__}: {error}")
                has_result = True
                yield replace(result, planned=planned)
                # A difference ends the test, unless the numbers are nearly equal.
                if not (result.agrees or result.nearly):
                    return

    try:
        results = _list_results_of_copy(program, tests, seconds) if copied else list(tests())
    except (NotDone, InputError) as error:
        return _not_tried(str(error))
    # A GPU's state does not survive the copy, so the test runs again in this process.
    if copied and _OF_GPU in results[-1].reason:
        results = list(tests())
    # Where a later stage could only refute, the first one alone is proved.
    if refute and all(result.agrees is not False for result in results):
        return replace(results[0], planned=1)
    planned = results[-1].planned
    agreeing = sum(result.agrees is True for result in results)
    late = f"it did not end within {seconds:g} s" if agreeing < planned else ""
    return join_stages(results, planned, late)


def _list_results_of_copy(
    program: Target, tests: Callable[[], Iterator[IdentityResult]], seconds: float
) -> list[IdentityResult]:
    """Return the results of tests in a copy of this process, in a second one if the first lacked what can be loaded.

    Raises ``NotDone`` if there are none, ``InputError`` if loading fails.
    """
    failure = None
    try:
        results: list[IdentityResult] = apart(tests, seconds)
    except NotDone as error:
        failure = error
    if program.kinds.load():
        return apart(tests, seconds)
    if failure is not None:
        raise failure
    return results


def _not_tried(reason: str) -> IdentityResult:
    return IdentityResult(None, Evidence(Grade.UNDECIDED, reason), reason=reason)
