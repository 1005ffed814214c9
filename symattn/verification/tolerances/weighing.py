"""Weigh a tolerance: which wrong outputs it accepts, and which correct ones it rejects, on inputs of a given size.

Wrong are the known mistakes by which some element exceeds what any implementation in the arithmetic can return; correct
is the definition run in the arithmetic itself (float64 is not weighed).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.arrays import kind
from symattn.arrays.formats import NARROW
from symattn.arrays.precision import Precision
from symattn.attention.inputs import required
from symattn.attention.spec import Attention
from symattn.bounds import judge, reference
from symattn.bounds.called_target import Argument, Convention, Inputs
from symattn.bounds.case_result import UNFIT
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker, Sizes
from symattn.bounds.mistake import Mistake
from symattn.document.errors import InputError
from symattn.verification.rules.known_mistakes import yield_known_mistakes

Array = np.ndarray
ROWS, KEYS = 16, 1024  # most queries and keys of the inputs
_NUMBERS = re.compile(r"\d+(\.\d+)?|\(.*?\)")


@dataclass(frozen=True)
class WeighedTolerance:
    """A rule by which a test accepts an output."""

    name: str
    rtol: float
    atol: float

    def accepts(self, got: np.ndarray, expected: np.ndarray) -> bool:
        """Return whether every element passes; NaN passes where NaN is expected."""
        return bool(np.isclose(got, expected, rtol=self.rtol, atol=self.atol, equal_nan=True).all())

    def needed(self, got: np.ndarray, expected: np.ndarray) -> float:
        """Return the worst |got − expected| relative to what is accepted; above 1 the output is rejected."""
        with np.errstate(all="ignore"):
            parts = np.abs(got - expected) / (self.atol + self.rtol * np.abs(expected))
        return float(np.where(np.isnan(parts), np.inf, parts).max(initial=0.0))


#: torch.testing.assert_close by type (PyTorch 2.13, torch/testing/_comparison.py); equality for 8 bits.
_TORCH = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
}


def picked(dtype: str) -> tuple[WeighedTolerance, ...]:
    """Return the tolerances that are in common use for outputs of a type.

    Sources: PyTorch, torch.testing.assert_close; ONNX, onnx/backend/test/runner (rtol 1e−3, atol 1e−7, for bfloat16
    rtol at least 2⁻⁶); KernelBench (Ouyang et al. 2025), 1e−4 for float32 and 1e−2 for narrower types; NumPy,
    numpy.allclose.
    """
    bench = 1e-2 if dtype in NARROW else 1e-4
    return (
        WeighedTolerance("torch.testing", *_TORCH.get(dtype, (0.0, 0.0))),
        WeighedTolerance("ONNX", 2.0**-6 if dtype == "bfloat16" else 1e-3, 1e-7),
        WeighedTolerance("KernelBench", bench, bench),
        WeighedTolerance("numpy.allclose", 1e-5, 1e-8),
        WeighedTolerance("1e-3 for both", 1e-3, 1e-3),
    )


@dataclass(frozen=True)
class Weighed:
    """A tolerance on a family of inputs: the mistakes that it accepts, and the part of it that correct code needs."""

    tolerance: WeighedTolerance
    family: str
    accepted: tuple[Mistake, ...]
    tried: int
    needed: float

    @property
    def refuses(self) -> bool:
        """Return whether correct code fails."""
        return self.needed > 1


#: Typical inputs of tests: each family changes entries drawn from N(0, 1), by the name of the input.
FAMILIES: dict[str, Callable[[str, Array], Array]] = {
    "N(0, 1)": lambda name, a: a,
    "values near 30": lambda name, a: a + 30 if name == "v" else a,
}


def weigh(
    spec: Attention,
    precision: Precision,
    sizes: Sizes,
    tolerances: Sequence[WeighedTolerance],
    seed: int = 0,
) -> tuple[Weighed, ...]:
    """Weigh every tolerance on every family of inputs. Raises ``InputError`` for float64."""
    # Mistakes are judged in float64, which leaves no wider type to compare with.
    if precision.input.name == "float64":
        raise InputError(
            "float64: what a tolerance accepts is reported for narrower types; hint: --dtype float32"
        )
    result: list[Weighed] = []
    for family, entries in FAMILIES.items():
        inputs = drawn(spec, precision, entries, sizes, seed)
        right = judge.expected(spec, inputs, precision, lenient=True)
        wrong = [
            (m, y)
            for m, y in _yield_mistaken_outputs(spec, inputs, right.near)
            # A mistake that the bound allows on these inputs is none for any tolerance.
            if (right.ratios(y) > 1).any()
        ]
        got = legal(spec, inputs, precision)
        # The inputs are the same for every tolerance, so that their counts can be compared.
        for tolerance in tolerances:
            accepted = tuple(m for m, y in wrong if tolerance.accepts(y, right.near))
            result.append(
                Weighed(tolerance, family, accepted, len(wrong), tolerance.needed(got, right.near))
            )
    return tuple(result)


def drawn(
    spec: Attention,
    precision: Precision,
    changed: Callable[[str, Array], Array],
    sizes: Sizes,
    seed: int,
    most: int = KEYS,
) -> dict[str, Array]:
    """Draw inputs from N(0, 1), changed by name, with at most ``ROWS`` queries and ``most`` keys."""
    rng = np.random.default_rng(seed)
    arguments = tuple(Argument(n, n) for n in ("q", "k", "v", *required(spec)))
    keys = min(sizes.n_k, most)
    maker = Maker(
        spec, Convention(arguments), precision, Domain(max_tokens=keys, max_width=sizes.d_k)
    )
    # Square attention has as many queries as keys, whatever was requested.
    rows = keys if maker.square else min(sizes.n_q, ROWS)
    return maker.make(
        Sizes(rows, keys, sizes.d_k, sizes.d_v),
        lambda n, s: changed(n, rng.standard_normal(s)),
        rng,
    )


def _yield_mistaken_outputs(
    spec: Attention, inputs: Inputs, exact: Array
) -> Iterator[tuple[Mistake, Array]]:
    """Yield the known mistakes whose outputs have the right shape, with these outputs."""
    # the first of those that differ only in a number, such as the width of a tile
    kinds: dict[str, Mistake] = {}
    for mistake in yield_known_mistakes(spec, frozenset(inputs)):
        kinds.setdefault(_NUMBERS.sub("", mistake.cause), mistake)
    for mistake in kinds.values():
        try:
            with np.errstate(all="ignore"):
                output = np.asarray(
                    reference.variant_values(spec, dict(inputs), mistake.variant)["output"]
                )
        except UNFIT:  # the mistake does not apply to these shapes
            continue
        if output.shape == exact.shape:
            yield mistake, output


def legal(spec: Attention, inputs: Mapping[str, Array], precision: Precision) -> Array:
    """Return the definition run in the arithmetic: eager in the input's type, fused in wide sums with one rounding."""
    # Eager kernels store every step in the input's type, fused ones none of them.
    between = precision.input.name if precision.contract == "eager" else precision.accumulate.name
    target = kind(between)
    lifted: dict[str, Any] = {}
    # Booleans and positions are no numbers of the format.
    for n, a in inputs.items():
        if a.dtype.kind in "biu":
            lifted[n] = a
        # A mask may hold −∞, which is a literal and not rounded.
        elif n == "mask":
            lifted[n] = target.literal(a) if hasattr(target, "literal") else a.astype(target.dtype)
        else:
            lifted[n] = target.lift(a)
    with np.errstate(all="ignore"):
        got = spec(**lifted)
    wide = np.asarray(got.numpy() if hasattr(got, "numpy") else got, dtype=np.float64)
    return np.asarray(precision.input.rounded(wide))
