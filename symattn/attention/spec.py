"""``Attention``: one frozen description that is a specification, a function on any kind of array, and a document."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from numbers import Real
from typing import Any, Literal

from symattn.attention.pipeline import Step, pipeline
from symattn.attention.shapes import check_inputs
from symattn.document.model import Document
from symattn.errors import InputError

Scale = int | float | Fraction | None


@dataclass(frozen=True)
class Attention:
    """softmax(Q Kᵀ / √d_k + M) V, and its variants by fields.

    scale         factor of the scores; None is 1/√d_k, 1 is none
    causal        key j for query i iff j ≤ i + o, see ``alignment``
    alignment     ``bottom-right``: o = n_k − n_q; ``top-left``: o = 0
    mask          an input ``mask``: ``boolean`` (True may attend) or ``additive``
    padding       an input ``keep``: booleans over the keys, False for padding
    heads         number of heads h; the projections' columns are split among them
    stabilised    whether the row maximum is subtracted before exponentiating
    fully_masked  what a row without any allowed key gives: ``zeros``, ``nan`` or ``error``

    Call it with q, k, v, or with x (tokens), y (for cross-attention), w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o; with x
    alone it is parameter-free. Shapes: q (…, n_q, d_k), k (…, n_k, d_k), v (…, n_k, d_v) → (…, n_q, d_v).

    >>> import numpy as np
    >>> Attention(causal=True)(np.zeros((2, 3)), np.zeros((2, 3)), np.array([[1.0], [3.0]]))
    array([[1.],
           [2.]])

    Source: Vaswani et al., Attention Is All You Need (2017), equation 1 and §3.2.
    """

    scale: Scale = None
    causal: bool = False
    alignment: Literal["bottom-right", "top-left"] = "bottom-right"
    mask: Literal["boolean", "additive"] | None = None
    padding: bool = False
    heads: int = 1
    stabilised: bool = True
    fully_masked: Literal["zeros", "nan", "error"] = "zeros"

    def __post_init__(self) -> None:
        choices = {
            "alignment": ("bottom-right", "top-left"),
            "mask": (None, "boolean", "additive"),
            "fully_masked": ("zeros", "nan", "error"),
        }
        for field, allowed in choices.items():
            if getattr(self, field) not in allowed:
                words = ", ".join(map(str, allowed))
                raise InputError(f"Attention: {field} is {getattr(self, field)!r}; known: {words}")
        for field in ("causal", "padding", "stabilised"):
            if not isinstance(getattr(self, field), bool):
                raise InputError(f"Attention: {field} is {getattr(self, field)!r}; it must be True or False")
        if isinstance(self.heads, bool) or not isinstance(self.heads, int) or self.heads < 1:
            raise InputError(f"Attention: heads is {self.heads!r}; it must be a whole number from 1 on")
        number = isinstance(self.scale, Real) and not isinstance(self.scale, bool)
        if self.scale is not None and not (number and isfinite(self.scale)):
            raise InputError(f"Attention: scale is {self.scale!r}; it must be a finite number")

    @property
    def masks_anything(self) -> bool:
        """Whether some score may be forbidden."""
        return self.causal or self.padding or self.mask is not None

    def pipeline(self, given: Iterable[str]) -> tuple[Step, ...]:
        """The steps from the inputs named in ``given`` to the output."""
        return pipeline(self, frozenset(given))

    def document(self, given: Iterable[str] = ("q", "k", "v")) -> Document:
        """The formula, the shapes and every step, for the inputs named in ``given``."""
        from symattn.attention.document import document

        return document(self, given)

    def trace(self, *qkv: Any, **inputs: Any) -> dict[str, Any]:
        """Every named array of a run, in order: the inputs, then q, k, v, scores, scaled, masked, weights, output."""
        if len(qkv) > 3:
            raise InputError(f"Attention takes q, k, v by position, {len(qkv)} arrays were given; name the others")
        given = {**dict(zip("qkv", qkv, strict=False)), **inputs}
        values = {name: array for name, array in given.items() if array is not None}
        check_inputs(self, values)
        for step in self.pipeline(values):
            values[step.name] = step.run(*[values[name] for name in step.of])
        return values

    def __call__(self, *qkv: Any, **inputs: Any) -> Any:
        """The output of attention on the given arrays."""
        return self.trace(*qkv, **inputs)["output"]
