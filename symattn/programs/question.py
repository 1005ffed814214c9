"""``Question``: an output, the inputs that it was computed from, and what to check; ``OutputVerdict``: the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from symattn.arrays.precision import Contract, Precision
from symattn.attention.spec import Attention
from symattn.bounds.sharp.limits import FP8
from symattn.document.errors import InputError
from symattn.programs.frameworks import Tensor, Tensors, dtype_name, read

if TYPE_CHECKING:
    from symattn.verification.report import Sought


class Layout(NamedTuple):
    """How sequences are packed: ``cu_seqlens`` (batch + 1,), or a pair of them, for queries and for keys; or paged:
    ``block_table`` (batch, blocks) and ``lengths`` (batch,), the numbers of keys."""

    cu_seqlens: Tensor = None
    block_table: Tensor = None
    lengths: Tensor = None

    @property
    def plain(self) -> bool:
        """Return whether nothing is packed or paged."""
        return self.cu_seqlens is None and self.block_table is None and self.lengths is None


#: Neither packed nor paged.
_PLAIN = Layout()


@dataclass(frozen=True)
class Question:
    """The arguments of ``assert_close_to_exact``; ``given`` are the inputs by name, ``layout`` how they are packed."""

    out: Tensor
    given: Tensors
    spec: Attention | None = None
    precision: str | Precision | None = None
    contract: Contract | None = None
    alpha: float | None = None
    rows: int | Sequence[int] | None = None
    lse: Tensor = None
    layout: Layout = _PLAIN
    do: Tensor = None
    gradients: Sequence[Tensor] | None = None
    power: Mapping[str, float] | None = None

    @classmethod
    def of(cls, out: Tensor, inputs: Tensors, spec: Attention | None, **options: Any) -> Question:
        """Return a question, with the arrays of a layout taken out of the inputs and inputs that are None left out.

        With descale factors, the precision is that of FP8 kernels (see ``arithmetic``).
        """
        layout = Layout(*(inputs.get(name) for name in Layout._fields))
        arrays = {n: a for n, a in inputs.items() if a is not None and n not in Layout._fields}
        if scaled(arrays):
            options["precision"] = arithmetic(
                options["precision"], options["contract"], arrays, out
            )
        return cls(out, arrays, spec, layout=layout, **options)


class OutputVerdict(NamedTuple):
    """The fault of an output, "" if there is none; then a note on what is not decided, and how mistakes of a wanted
    power would be detected."""

    words: str
    note: str = ""
    sought: tuple[Sought, ...] = ()


# -- descale factors of FP8 --------------------------------------------------------------------------------------------
# Descale factors of queries, keys and values in FP8: an FP8 kernel is compared with attention of the products.
#
# A factor multiplies the stored numbers, as FlashAttention-3 takes ``q_descale``, ``k_descale`` and ``v_descale``: one
# for all; one for each head, ``(heads,)`` or ``(batch, heads)``, where one of queries may cover all heads that share
# keys; or one for each block of tokens of a head, ``(…, heads, blocks)``, with one axis more than the heads have.
# Blocks are of equal length; for unequal ones, give each token its factor. Factors are float32, as kernels take them,
# so their products with numbers of 8 bits are exact in float64.
#
# ``p_scale`` is the least factor by which a kernel multiplies exponentials before it stores them: 256 in
# FlashAttention-3. The larger it is, the less underflows, and the smaller is the tolerance.
#
# Sums are assumed to be those of Hopper's matrix units (``fp22``), which truncate products, unless a ``Precision`` says
# that they are in float32: the law of rounding (``sharp.limits``) covers only such kernels.

#: The input that each factor multiplies.
NAMES = {"q_descale": "q", "k_descale": "k", "v_descale": "v"}
P_SCALE = "p_scale"
SUMS = "fp22"  # the default in FP8
Arrays = dict[str, np.ndarray]


def scaled(inputs: Tensors) -> bool:
    """Return whether the inputs include descale factors, or the factor of exponentials."""
    return P_SCALE in inputs or not NAMES.keys().isdisjoint(inputs)


def split(inputs: Tensors) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the arrays, and the descale factors. Raises ``InputError`` for factors of arrays not in FP8."""
    arrays = {name: a for name, a in inputs.items() if name not in NAMES and name != P_SCALE}
    factors = {name: a for name, a in inputs.items() if name in NAMES}
    # Without factors nothing is asked about types.
    for name in "qkv" if scaled(inputs) else "":
        if dtype_name(arrays[name]) not in FP8:
            known = " or ".join(FP8)
            raise InputError(
                f"descale factors are for FP8, and {name} is {dtype_name(arrays[name])}; hint: {known}"
            )
    return arrays, factors


def arithmetic(
    given: str | Precision | None, contract: Contract | None, inputs: Tensors, out: object
) -> Precision:
    """Return the precision of FP8 kernels: scores in float32, sums of matrix units, exponentials stored relative to the
    largest score so far.

    The output's format is that of ``out``. A ``given`` ``Precision`` stays, except for the exponentials. Raises
    ``InputError`` for an output that is no array, and for a ``p_scale`` that is no factor.
    """
    if not isinstance(given, Precision):
        if not hasattr(out, "dtype"):
            raise InputError(
                f"out is not an array of NumPy or torch: it is of {type(out).__name__}"
            )
        given = Precision.of(
            given or dtype_name(inputs["q"]), contract or "fused", output=dtype_name(out)
        )
        if given.input.name in FP8 and given.contract == "fused":
            given = Precision.of(given, accumulate=SUMS)
    times = given.times
    if P_SCALE in inputs:
        # Exponentials are at most 1, so a larger factor overflows what is stored.
        most = float(given.stored.largest)
        try:
            times = float(inputs[P_SCALE])
        except (TypeError, ValueError):
            times = float("nan")
        if not 1 <= times <= most:
            shown = " ".join(repr(inputs[P_SCALE]).split())
            raise InputError(
                f"{P_SCALE} must be from 1 to {most:g}, the largest number that is stored, got {shown}"
            )
    # Such kernels store exponentials, and divide the output by the sum.
    return replace(given, normalised=False, lse=False, times=times)


def dequantised(spec: Attention, inputs: Arrays, factors: Tensors) -> Arrays:
    """Return the inputs times their factors. Raises ``InputError`` for factors that do not fit."""
    result = dict(inputs)
    for name, factor in factors.items():
        try:
            values, *_ = read(
                factor if hasattr(factor, "dtype") else np.asarray(factor, dtype=np.float64)
            )
        except (TypeError, ValueError):
            raise InputError(f"{name} is neither a number nor an array of numbers") from None
        # Kernels take factors in float32.
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        if not (np.isfinite(narrow) & (narrow >= 0)).all():
            raise InputError(f"{name} must hold finite numbers of at least 0")
        whose = NAMES[name]
        result[whose] = result[whose] * _spread_descale_factors(
            name, narrow.astype(np.float64), result[whose].shape, spec
        )
    return result


def _spread_descale_factors(
    name: str, factors: np.ndarray, shape: tuple[int, ...], spec: Attention
) -> np.ndarray:
    """Return one factor for each token, (…, tokens, 1)."""
    *front, tokens, _ = shape
    # With one axis more than the heads, there is a factor for each block.
    blocks = factors.ndim > len(front) and factors.ndim > 0
    per_head = factors[..., None] if not blocks else factors
    # A factor of queries may be one for all heads that share keys.
    if (
        spec.head_axis
        and per_head.ndim > 1
        and name == "q_descale"
        and per_head.shape[-2] == spec.key_heads
    ):
        per_head = np.repeat(per_head, spec.group, axis=-2)
    count = per_head.shape[-1]
    try:
        # Only a check: it raises for factors that do not fit the heads.
        np.broadcast_to(per_head[..., 0], tuple(front))
        fits = count > 0 and tokens % count == 0
    except (ValueError, IndexError):
        fits = False
    if not fits:
        raise InputError(
            f"{name} has the shape {factors.shape}, and {NAMES[name]} {shape}; hint: a number, one for each head,"
            f" {tuple(front)}, or for each of equal blocks of tokens of it, or one for each token"
        )
    return np.repeat(per_head, tokens // count, axis=-1)[..., None]
