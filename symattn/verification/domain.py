"""``Domain``: which inputs a function is promised to receive. A fault outside it is a note, not a fault."""

from __future__ import annotations

from dataclasses import dataclass

from symattn.errors import InputError


@dataclass(frozen=True)
class Domain:
    """The inputs that are promised.

    max_tokens           largest n_q and n_k
    max_width            largest d_k and d_v
    max_abs_score        largest |s_ij|, scaled (None: whatever a softmax that subtracts the maximum bears)
    square               n_q = n_k always
    same_width           d_k = d_v always
    multiple_of          numbers of tokens are multiples of this
    width_multiple_of    d_k and d_v are multiples of this
    fully_masked_rows    rows without any allowed key occur, and give what the specification says
    nonfinite_forbidden  keys and values that nobody may attend to may hold NaN, which must not leak
    batch                axes of batches in front occur, even if the function was written for arrays without them; what
                         has an axis for them gets several items in any case
    """

    max_tokens: int = 300
    max_width: int = 130
    max_abs_score: float | None = None
    square: bool = False
    same_width: bool = False
    multiple_of: int = 1
    width_multiple_of: int = 1
    fully_masked_rows: bool = False
    nonfinite_forbidden: bool = False
    batch: bool = False

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_width", "multiple_of", "width_multiple_of"):
            if getattr(self, name) < 1:
                raise InputError(f"Domain: {name} is {getattr(self, name)}; it must be 1 or more")
        for name, most in (("multiple_of", "max_tokens"), ("width_multiple_of", "max_width")):
            if getattr(self, name) > getattr(self, most):
                raise InputError(
                    f"Domain: no multiple of {getattr(self, name)} is within {most} = {getattr(self, most)}"
                )
        if self.max_abs_score is not None and not self.max_abs_score > 0:
            raise InputError(f"Domain: max_abs_score is {self.max_abs_score}; it must be positive")

    @property
    def words(self) -> str:
        """In one line, for a report."""
        parts = [f"up to {self.max_tokens} tokens of up to {self.max_width} components"]
        if self.max_abs_score is not None:
            parts.append(f"scores of at most {self.max_abs_score:g}")
        if self.square:
            parts.append("as many queries as keys")
        if self.same_width:
            parts.append("values as wide as keys")
        if self.multiple_of > 1:
            parts.append(f"numbers of tokens that {self.multiple_of} divides")
        if self.width_multiple_of > 1:
            parts.append(f"widths that {self.width_multiple_of} divides")
        if self.fully_masked_rows:
            parts.append("rows without any key among them")
        if self.nonfinite_forbidden:
            parts.append("NaN behind the mask")
        if self.batch:
            parts.append("axes of batches in front")
        return ", ".join(parts)
