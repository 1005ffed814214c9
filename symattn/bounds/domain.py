"""``Domain``: which inputs a function is promised to receive. A fault outside it is a note, not a fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from numbers import Real

from symattn.attention.fields import brief, whole
from symattn.document.errors import InputError
from symattn.document.keywords import Answering


@dataclass(frozen=True)
class Lengths:
    """Whole numbers from ``least`` to ``most`` that ``step`` divides; with ``power`` those that are powers of two."""

    least: int
    most: int
    step: int = 1
    power: bool = False

    def __contains__(self, n: int) -> bool:
        within = self.least <= n <= self.most
        return (
            # n & (n − 1) is 0 for powers of 2 alone.
            within and n % self.step == 0 and not (self.power and n & (n - 1))
        )

    def up(self, n: int) -> int | None:
        """Return the smallest length from n on, None if there is none."""
        n = max(n, self.least, self.step)
        result = 1 << (n - 1).bit_length() if self.power else -(-n // self.step) * self.step
        return result if result in self else None

    def down(self, n: int) -> int | None:
        """Return the largest length up to n, None if there is none."""
        n = min(n, self.most)
        result = 1 << n.bit_length() >> 1 if self.power else n // self.step * self.step
        return result if result in self else None

    def both(self, a: int, b: int) -> tuple[int, int]:
        """Return lengths near two numbers, different ones for different numbers if there is room."""
        x, y = self.near(a), self.near(b)
        # Different numbers show exchanged axes, so they stay different.
        if x == y and a != b:
            if a > b:
                x, y = (self.near(x + 1), y)
            else:
                x, y = (x, self.near(y + 1))
        return x, y

    def near(self, n: int) -> int:
        """Return the smallest length from n on, else the largest; ``n`` itself if there are no lengths."""
        return self.up(n) or self.down(self.most) or n


@dataclass(frozen=True)
class Domain(Answering):
    """The inputs that a function must support.

    max_tokens           largest n_q and n_k
    max_width            largest d_k and d_v
    max_abs_score        largest |s_ij|, scaled (None: whatever a softmax that subtracts the maximum bears)
    square               n_q = n_k always
    same_width           d_k = d_v always
    multiple_of          numbers of tokens are multiples of this
    width_multiple_of    d_k and d_v are multiples of this
    fully_masked_rows    rows without any allowed key occur, and give what the specification says
    nonfinite_forbidden  keys and values that nobody may attend to may hold NaN, which must not leak
    batch                leading batch axes occur, even if the function was written for arrays without them; what
                         has an axis for them gets several items in any case
    min_tokens           smallest n_q and n_k
    min_width            smallest d_k and d_v
    powers_of_two        numbers of tokens are powers of two
    width_powers_of_two  d_k and d_v are powers of two
    decoding             one query at a time: n_q = 1; what is promised of numbers of tokens then holds for n_k
    square_weights       d_model = h·d_k = h·d_v: all projections are square
    contiguous           arrays lie in memory without gaps, in the order of their axes

    >>> Domain(square=True, multiple_of=16)
    Domain(square=True, multiple_of=16)
    """

    max_tokens: int = 1100
    max_width: int = 130
    max_abs_score: float | None = None
    square: bool = False
    same_width: bool = False
    multiple_of: int = 1
    width_multiple_of: int = 1
    fully_masked_rows: bool = False
    nonfinite_forbidden: bool = False
    batch: bool = False
    min_tokens: int = 1
    min_width: int = 1
    powers_of_two: bool = False
    width_powers_of_two: bool = False
    decoding: bool = False
    square_weights: bool = False
    contiguous: bool = False

    __repr__ = brief

    def __post_init__(self) -> None:
        for name in (
            "max_tokens",
            "max_width",
            "min_tokens",
            "min_width",
            "multiple_of",
            "width_multiple_of",
        ):
            if not whole(getattr(self, name), 1):
                raise InputError(
                    f"Domain: {name} must be an integer of at least 1, got {getattr(self, name)!r}"
                )
        for axis, lengths in (("tokens", self.tokens), ("width", self.widths)):
            # A domain without any length would make every test vacuous.
            if lengths.down(lengths.most) is None:
                raise InputError(f"Domain: {_explain_impossible_length(lengths, axis)}")
        if self.max_abs_score is not None and not (
            isinstance(self.max_abs_score, Real) and self.max_abs_score > 0
        ):
            raise InputError(
                f"Domain: max_abs_score must be a number above 0, got {self.max_abs_score!r}"
            )
        if self.decoding and self.square:
            raise InputError(
                "Domain: decoding promises n_q = 1, and square n_q = n_k; hint: leave one of them out"
            )

    @property
    def tokens(self) -> Lengths:
        """The numbers of tokens."""
        return Lengths(self.min_tokens, self.max_tokens, self.multiple_of, self.powers_of_two)

    @property
    def widths(self) -> Lengths:
        """The widths of queries, keys and values."""
        return Lengths(
            self.min_width, self.max_width, self.width_multiple_of, self.width_powers_of_two
        )

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Return whether inputs of these sizes (n_q, n_k, d_k, d_v, d_model, h) are promised."""
        n_q, n_k = sizes.get("n_q"), sizes.get("n_k")
        d_k, d_v = sizes.get("d_k"), sizes.get("d_v")
        # When decoding, promises of lengths hold for keys.
        queries = n_q is None or (n_q == 1 if self.decoding else n_q in self.tokens)
        if not queries or (n_k is not None and n_k not in self.tokens):
            return False
        if any(d is not None and d not in self.widths for d in (d_k, d_v)):
            return False
        if self.square and None not in (n_q, n_k) and n_q != n_k:
            return False
        if (self.same_width or self.square_weights) and None not in (d_k, d_v) and d_k != d_v:
            return False
        d_model = sizes.get("d_model")
        return (
            not self.square_weights
            # An unknown size contradicts nothing.
            or None in (d_model, d_k)
            or d_model == sizes.get("h", 1) * (d_k or 1)
        )

    @property
    def promises(self) -> Iterator[str]:
        """The fields that differ from their defaults."""
        return (f.name for f in fields(self) if getattr(self, f.name) != f.default)

    @property
    def words(self) -> str:
        """One line for a report."""
        promised = {*self.promises}
        parts = (
            words.format(getattr(self, name)) for name, words in _WORDS.items() if name in promised
        )
        return ", ".join(
            [f"up to {self.max_tokens} tokens of up to {self.max_width} components", *parts]
        )


#: Each promise in words.
_WORDS = {
    "min_tokens": "at least {} tokens",
    "min_width": "at least {} components",
    "max_abs_score": "scores of at most {:g}",
    "multiple_of": "numbers of tokens that {} divides",
    "width_multiple_of": "widths that {} divides",
    "decoding": "one query at a time",
    "square": "as many queries as keys",
    "same_width": "values as wide as keys",
    "square_weights": "square projections",
    "powers_of_two": "numbers of tokens that are powers of two",
    "width_powers_of_two": "widths that are powers of two",
    "fully_masked_rows": "rows without any key among them",
    "nonfinite_forbidden": "NaN behind the mask",
    "batch": "leading batch axes",
    "contiguous": "arrays without gaps in memory",
}


def _explain_impossible_length(lengths: Lengths, axis: str) -> str:
    """Return the message that no length of this kind is possible."""
    if lengths.least > lengths.most:
        return f"min_{axis} = {lengths.least} is above max_{axis} = {lengths.most}"
    wanted = f"multiple of {lengths.step}" if lengths.step > 1 else ""
    # Both conditions together may exclude all lengths that each of them admits.
    wanted = " ".join(
        w for w in ("power of two that is a" if lengths.power and wanted else "", wanted) if w
    )
    within = f"within max_{axis} = {lengths.most}"
    return f"no {wanted or 'power of two'} is {within}" + (
        f" and from min_{axis} = {lengths.least} on" if lengths.least > 1 else ""
    )
