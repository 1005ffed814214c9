"""Normalisations over the last axis, and the record of a step that normalises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import projections

NormKind = Literal["rms", "layer", "l2"]


def rms_norm(
    x: Array, eps: object = 0, gain: Array | None = None, bias: Array | None = None
) -> Array:
    """g ⊙ x / √(mean(x²) + ε) + b; without a gain g = 1, without a bias b = 0.

    Shapes: x (…, d), gain and bias (d,) → (…, d). Source: Zhang, Sennrich, Root Mean Square Layer Normalization (2019),
    equation 4, where ε and b are 0.
    """
    xp = namespace_of(x)
    normed = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + xp.asarray(eps, dtype=x.dtype))
    result = normed if gain is None else normed * gain
    return result if bias is None else result + bias


def centre(x: Array) -> Array:
    """x − mean(x)."""
    return x - namespace_of(x).mean(x, axis=-1, keepdims=True)


def layer_norm(
    x: Array, eps: object = 0, gain: Array | None = None, bias: Array | None = None
) -> Array:
    """g ⊙ (x − mean(x)) / √(variance + ε) + b, the variance with divisor d; without a gain g = 1, without a bias b = 0.

    Shapes: x (…, d), gain and bias (d,) → (…, d). Source: Ba, Kiros, Hinton, Layer Normalization (2016), equations 3
    and 4, where ε is 0.
    """
    return rms_norm(centre(x), eps, gain, bias)


def unit(x: Array, eps: object = 0) -> Array:
    """x / √(‖x‖² + ε), for scores of normalised queries and keys.

    Sources: Henry et al., QK-Normalization (2020), §3, where ε is 0; for keys of recurrences, Yang et al.,
    Parallelizing Linear Transformers with the Delta Rule over Sequence Length (2024), §3.3.
    """
    xp = namespace_of(x)
    square = xp.sum(x * x, axis=-1, keepdims=True)
    return x / xp.sqrt(square + xp.asarray(eps, dtype=x.dtype) if eps else square)


def write_norm(kind: str, x: str, gain: str = "", bias: str = "", *, eps: Any) -> str:
    """Return the formula of a ``layer`` or ``rms`` norm of x, with ε, gain and bias if there are any."""
    centred = kind == "layer"
    mean_square = (f"var({x})" if centred else f"mean({x}²)") + " + ε" * bool(eps)
    rows = f"{f'{{{x} − mean({x})}}' if centred else x}/√{{{mean_square}}}"
    scaled = f"{gain} ⊙ {{{rows}}}" if gain else rows
    return f"{scaled} + {bias}" if bias else scaled


@dataclass(frozen=True)
class NormRecord:
    """The norm that a step computes: its formulas and its known mistakes follow from this record.

    kind        ``rms``, ``layer`` or ``l2``
    eps         ε
    gain, bias  the names of the inputs with gain and bias; empty if the call has none
    heads       how many heads the array has on an axis of its own
    over_heads  whether the columns of all heads are normalised together
    by_head     which of gain and bias have numbers for each head: h·d of them, or (h, d)
    """

    kind: NormKind
    eps: Any = 0
    gain: str = ""
    bias: str = ""
    heads: int = 1
    over_heads: bool = False
    by_head: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of gain and bias, as far as the call has them."""
        return tuple(name for name in (self.gain, self.bias) if name)

    def run(self, x: Array, *parameters: Array) -> Array:
        """Return the norm of x (…, n, d), or (…, h, n, d) if there are several heads."""
        given = dict(zip(self.parameters, parameters, strict=True))
        norm = _NORMS[self.kind]
        result: Array = self.run_by(norm, x, given.get(self.gain), given.get(self.bias))
        return result

    def run_by(
        self, norm: Callable[..., Any], x: Array, gain: Array | None, bias: Array | None
    ) -> Any:
        """Return the rows of this step by any ``norm`` of rows, ε, gain and bias."""
        if not self.over_heads:
            parameters = (
                self._lay_along_heads(self.gain, gain),
                self._lay_along_heads(self.bias, bias),
            )
            return norm(x, self.eps, *parameters)
        rows = norm(projections.merge_heads(x), self.eps, flatten(gain), flatten(bias))
        return projections.split_heads(rows, self.heads)

    def _lay_along_heads(self, name: str, numbers: Array | None) -> Any:
        """Return gain or bias with an axis for the rows if each head has its own: (h·d,) or (h, d) → (h, 1, d)."""
        if numbers is None or name not in self.by_head:
            return numbers
        if len(numbers.shape) > 1:
            return numbers[..., None, :]
        return projections.split_heads(numbers[None, :], self.heads)


def flatten(numbers: Array | None) -> Any:
    """Return the numbers of all heads one after the other: (h, d) → (h·d,)."""
    if numbers is None or len(numbers.shape) == 1:
        return numbers
    return projections.merge_heads(numbers[..., None, :])[0, :]


_NORMS: Mapping[NormKind, Callable[..., Array]] = {
    "rms": rms_norm,
    "layer": layer_norm,
    "l2": lambda x, eps, gain, bias: unit(x, eps),
}
