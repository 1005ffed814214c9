"""``symattn.bound``: how far correct code may be off, for sizes or for inputs, as ``symattn bound`` prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import isfinite
from os import PathLike, fspath
from typing import Any

import numpy as np

from symattn.arrays.precision import Contract, Precision
from symattn.attention.fields import finite
from symattn.attention.spec import Attention
from symattn.bounds.inputs import Sizes
from symattn.bounds.sharp.limits import ALPHA
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import InputError
from symattn.document.model import Document
from symattn.document.printable import Printable
from symattn.verification.tolerances import asked, bound_document, weighing
from symattn.verification.tolerances.asked import Beforehand, ForInputs, Sharp, sharp

USUAL: Contract = "fused"  # kernels keep scores wide
_MOST = 200  # lines of a table


@dataclass(frozen=True, eq=False, repr=False)
class Tolerance(Printable):
    """How far correct code may be off; prints as ``symattn bound`` does, and has the formats of a document."""

    asked: Beforehand | ForInputs
    source: str = ""
    command: str = ""
    alpha: float = ALPHA

    @property
    def value(self) -> float:
        """The tolerance: ``atol``, with rtol = 0; +∞ if there is none."""
        return self.asked.needed[0] if isinstance(self.asked, ForInputs) else self.asked.value

    @property
    def parts(self) -> dict[str, float]:
        """The part of the tolerance that each step contributes."""
        return (
            self.asked.bound.steps()
            if isinstance(self.asked, ForInputs)
            else self.asked.bound.parts
        )

    @property
    def allowed(self) -> np.ndarray:
        """The bound of each element of the output, (…, n_q, d_v). Raises InputError if no inputs were given."""
        if isinstance(self.asked, ForInputs):
            return self.asked.bound.allowed
        raise InputError(
            "a bound for sizes has no elements; hint: give the inputs, bound(inputs={'q': …, …})"
        )

    @cached_property
    def sharp(self) -> Sharp | None:
        """The tolerance of rounding to nearest, except with probability ``alpha``; see ``asked.Sharp``.

        Without inputs it is for random inputs; None for formats wider than 16 bits and other than plain attention.
        """
        return sharp(self.asked, self.alpha)

    @one_blas_thread
    def document(self, compare: bool = False, seed: int = 0) -> Document:
        """Return the tolerance with its reasons; ``compare`` adds common tolerances, which takes seconds."""
        if isinstance(self.asked, ForInputs):
            return bound_document.for_inputs(self.asked, self.source, self.command, self.sharp)
        weighed = self._weigh_common_tolerances(seed) if compare else ()
        return bound_document.beforehand(
            self.asked, weighed, self.command, sharp(self.asked, self.alpha, seed)
        )

    def _weigh_common_tolerances(self, seed: int) -> tuple[weighing.Weighed, ...]:
        request = self.asked
        assert isinstance(request, Beforehand)
        name = request.precision.input.name
        if name == "float64" or request.precision.factors is not None:
            return ()
        return weighing.weigh(
            request.spec, request.precision, request.sizes, weighing.picked(name), seed
        )

    def __repr__(self) -> str:
        value = bound_document.digits(self.value) if isfinite(self.value) else "inf"
        return self._make_brief_repr(f"bound: atol={value}, rtol=0")


def _check_kinds(spec: object, inputs: object) -> None:
    """Raise InputError for sizes given as the specification or the inputs."""
    if not (spec is None or isinstance(spec, Attention)):
        raise InputError(
            "bound takes an Attention first, and sizes by name; hint: bound(n=256, d_k=64)"
        )
    if not (inputs is None or isinstance(inputs, (Mapping, str, PathLike))):
        raise InputError(
            'inputs of a bound are arrays by name, or a file; hint: bound(inputs={"q": …, "k": …, "v": …})'
        )


@one_blas_thread
def bound(
    spec: Attention | None = None,
    inputs: Mapping[str, object] | str | PathLike[str] | None = None,
    dtype: str | Precision = "float32",
    *,
    n: int | None = None,
    d_k: int | None = None,
    contract: Contract | None = None,
    accumulate: str | None = None,
    tile: int | None = None,
    largest: float | None = None,
    alpha: float = ALPHA,
    command: str = "",
) -> Tolerance:
    """Return how far correct attention may be off: the tolerance that a test needs, with its proof.

    For ``inputs`` (arrays q, k, v and the other inputs of the specification, or an npz file) it bounds each element;
    without them it covers all inputs with ``n`` keys (1024) of width ``d_k`` (64) and entries from N(0, 1), or of at
    most ``largest``. ``dtype`` is the arithmetic, by name or as a ``Precision``. ``contract`` says whether scores are
    stored in it (``eager``) or in a wider one (``fused``, the default here), ``accumulate`` is the format of sums, and
    ``tile`` the number of keys per tile. In bfloat16 and float16 ``sharp`` adds the tolerance of rounding to nearest,
    for each element and for weighted means, which a correct output exceeds with a probability of at most ``alpha``.
    Raises InputError if no bound is proved for the specification, and for bad inputs.

    >>> bound(n=256, d_k=64, dtype="bfloat16").value < 1
    True
    >>> import numpy as np
    >>> found = bound(Attention(causal=True), {"q": np.eye(2), "k": np.eye(2), "v": np.eye(2)}, "float16")
    >>> found.allowed.shape, bool(found.value == found.allowed.max())
    ((2, 2), True)
    >>> found.sharp.mean() < found.sharp.largest
    True
    """
    _check_kinds(spec, inputs)
    if largest is not None and not (finite(largest) and largest >= 0):
        raise InputError(f"largest must be a finite number of at least 0, got {largest!r}")
    if not finite(alpha) or not 0 < alpha < 1:
        raise InputError(f"alpha is {alpha!r}; it is a probability, a number between 0 and 1")
    tile = None if tile is None else _check_bound_size("tile", tile)
    spec = Attention() if spec is None else spec
    # A default contract, unless the arithmetic is described in full.
    usual = USUAL if contract is None and isinstance(dtype, str) else contract
    precision = Precision.of(dtype, usual, accumulate)
    if inputs is None:
        sizes = _choose_sizes(n, d_k)
        precision = precision if tile is None else precision.in_tiles(sizes.n_k, tile)
        reach = asked.normal(sizes) if largest is None else asked.bounded(sizes, largest)
        return Tolerance(
            asked.beforehand(spec, precision, sizes, reach), command=command, alpha=alpha
        )
    # The sizes are those of the arrays, so that others would contradict them.
    _refuse_besides_inputs(n=n, d_k=d_k, largest=largest)
    file = "" if isinstance(inputs, Mapping) else fspath(inputs)
    form = Precision.of(dtype)
    arrays = (
        asked.checked(inputs, spec, form)
        if isinstance(inputs, Mapping)
        else asked.read_inputs(file, spec, form)
    )
    # How often sums of tiles are rounded depends on the number of keys.
    precision = precision if tile is None else precision.in_tiles(arrays["k"].shape[-2], tile)
    return Tolerance(
        asked.for_inputs(spec, precision, arrays), file or "the arrays", command, alpha
    )


def _choose_sizes(n: int | None, d_k: int | None) -> Sizes:
    """Return the sizes of inputs that are not passed: 1024 tokens of width 64, unless given."""
    tokens = _check_bound_size("n", 1024 if n is None else n)
    width = _check_bound_size("d_k", 64 if d_k is None else d_k)
    # As many queries as keys, and values as wide as keys.
    return Sizes(tokens, tokens, width, width)


def _refuse_besides_inputs(**others: object) -> None:
    """Raise InputError if something is given that is for a bound without inputs."""
    if names := [name for name, value in others.items() if value is not None]:
        raise InputError(
            f"{names[0]} is for a bound without inputs, and inputs are given; hint: leave it out"
        )


def _check_bound_size(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**24:
        raise InputError(f"{name} must be an integer from 1 to 2^24, got {value!r}")
    return value


def document(
    spec: Attention,
    command: str,
    *,
    n: Sequence[int | None] = (None,),
    dk: Sequence[int | None] = (None,),
    dtype: Sequence[str] = ("float32",),
    inputs: str | None = None,
    compare: bool | None = None,
    seed: int | None = None,
    **how: Any,
) -> Document:
    """Return a document: the bound for inputs or for one size, or a table of several; ``how`` are options of ``bound``.

    Raises ``InputError``.
    """
    lines = len(n) * len(dk) * len(dtype)
    # The bound for inputs is one table, of one format.
    if inputs is not None and len(dtype) > 1:
        raise InputError(f"--inputs goes with one --dtype, not with {', '.join(dtype)}")
    if inputs is not None:
        _refuse_besides_inputs(compare=compare or None, seed=seed)
    if inputs is not None or lines == 1:
        result = bound(spec, inputs, dtype[0], n=n[0], d_k=dk[0], command=command, **how)
        return result.document(bool(compare), seed or 0)
    # Each bound takes a moment, and a longer table is not read.
    if lines > _MOST:
        raise InputError(f"{lines} bounds were requested; a table has at most {_MOST}")
    every = (
        bound(spec, None, t, n=keys, d_k=d_k, **how).asked for t, d_k, keys in product(dtype, dk, n)
    )
    return bound_document.table(
        [result for result in every if isinstance(result, Beforehand)], command
    )
