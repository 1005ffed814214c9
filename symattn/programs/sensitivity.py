"""``sought``: would comparing one output with the exact one have detected mistakes of the requested sizes?

A mistake of size x in a step is its number too large, or too small, by the fraction x. It would be detected on some
rows

1. if the filter applies and flags the output of the arithmetic nearest to the bits of the output, with the mistake;
2. otherwise, if the definition with the mistake is off by twice what the worst case allows, so that every legal
   arithmetic with the mistake exceeds it.

A mean of N rows shows mistakes smaller by √N. So the number of rows of every head is doubled, and the output is judged
on them as well, until all mistakes would be detected; if no more rows can be read, the report says what would be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from symattn.attention.spec import Attention
from symattn.bounds.contracts import Contract, stored_scales
from symattn.bounds.judgement import Measured, measure
from symattn.bounds.reference import Variant
from symattn.bounds.sharp import rows_in_float64
from symattn.bounds.sharp.sample import averaged, chosen
from symattn.bounds.sharp.ways import scale_of
from symattn.document.errors import InputError
from symattn.programs import closeness
from symattn.verification.arithmetic.aims import SURE, Aim, aims, in_percent, larger
from symattn.verification.arithmetic.ranking import likeliest
from symattn.verification.arithmetic.rungs import Grown
from symattn.verification.arithmetic.suspects import BitSample
from symattn.verification.power import least_shown, of_variant
from symattn.verification.report import Sought

_CELLS = 1 << 23  # most scores of all heads that are read at once
_BITS = 4  # rows of each head whose bits identify the arithmetic


def sought(
    of: closeness.Ready,
    out: np.ndarray,
    power: Mapping[str, float],
    alpha: float,
    rows: int | Sequence[int] | None,
) -> tuple[str, tuple[Sought, ...]]:
    """Describe what is wrong with ``out`` in the rows that are read, or ""; and return for each mistake whether and how
    it would be detected.

    ``out`` is of the right shape and type. A correct one is flagged with a probability of at most ``alpha``, under the
    hypothesis of ``sharp.limits``. Raises ``InputError`` for a ``power`` that does not apply.
    """
    wanted = aims(of.spec, power)
    if of.spec.lse:
        raise InputError("power is for an output alone; hint: leave out lse")
    looks, got = _choose_row_sets(of, rows), closeness.read_array("out", out)[0]
    # Divided among the looks, so that the probability applies to all of them together.
    result = dict[Aim, Sought]()
    left = list(wanted)
    share = alpha / len(looks)
    look = None
    for at in looks:
        words = closeness.close(of, out, None, share, at, averaged=len(at))
        if words:
            return words, ()
        look = _Look(of, got, at, share)
        seen = [aim for aim in left if look.shows(aim.variants())]
        result |= {
            aim: Sought(aim.step, aim.share, aim.words, True, f"in {look.words}") for aim in seen
        }
        left = [aim for aim in left if aim not in seen]
        if not left:
            break
    assert look is not None
    for aim in left:
        result[aim] = Sought(aim.step, aim.share, aim.words, False, look.why(aim, rows))
    return "", tuple(result[aim] for aim in wanted)


def _choose_row_sets(of: closeness.Ready, rows: int | Sequence[int] | None) -> list[list[int]]:
    """Return the sets of rows to read: the requested ones, then twice as many each time, as far as memory allows."""
    spec, inputs, n = of.spec, of.inputs, of.shape[-2]
    if rows is not None and not np.isscalar(rows):
        return [chosen(spec, inputs, rows)]
    count, most = n, n
    if rows_in_float64.applies(spec, inputs):
        heads = prod(of.shape[:-2])
        keys = inputs["k"].shape[-2]
        count = min(n, averaged(heads, keys) if rows is None else int(rows))
        most = min(n, _CELLS // (heads * keys))
    looks = [chosen(spec, inputs, count) if count < n else list(range(n))]
    # The last step may be less than a doubling if it reads all rows.
    while count < most and (2 * count <= most or most == n):
        count *= 2
        looks.append(chosen(spec, inputs, count) if count < n else list(range(n)))
    return looks


@dataclass(frozen=True)
class _Look:
    """Some rows of an output, and what would be detected in them."""

    of: closeness.Ready
    out: np.ndarray
    rows: list[int]
    alpha: float

    @property
    def words(self) -> str:
        """The rows and keys that are read."""
        *front, n, _ = self.of.shape
        of = f" of each of {prod(front)} heads" if prod(front) > 1 else ""
        return f"{len(self.rows)} of {n} rows{of}, {self.of.inputs['k'].shape[-2]} keys"

    def shows(self, variants: Sequence[Variant]) -> bool:
        """Return whether each of these mistakes would be detected."""
        # Means of many outputs show more than the worst case of each.
        if self._rounding_filter_of_rows is not None:
            return self._rounding_filter_of_rows.shows(self._likeliest_contract, variants)
        spec, inputs = self._definition_of_read_rows
        # Every variant of the mistake has to show: larger and smaller.
        return all(
            least_shown(of_variant(spec, "", "", v), [(inputs, [self._measured_output_of_rows])])
            < SURE
            for v in variants
        )

    def why(self, aim: Aim, rows: int | Sequence[int] | None) -> str:
        """Say in lines why a mistake would not be detected, and what to change."""
        return "\n".join(
            filter(
                None,
                (
                    self._describe_least_detectable(aim),
                    self._describe_legal_scale_error(aim),
                    f"Hint: {self._suggest_more_sensitive_call(rows)}",
                ),
            )
        )

    def _describe_least_detectable(self, aim: Aim) -> str:
        # The sizes grow, so that the first one is the least.
        least = next((x for x in larger(aim) if self.shows(aim.variants(x))), None)
        who = (
            "The worst case"
            if self._rounding_filter_of_rows is None
            else "The limits of roundings to nearest"
        )
        shows = (
            f"from {in_percent(least)} on it would be detected"
            if least
            else "nothing near it would be detected"
        )
        return f"{who} in {self.words} allow{'s' * (self._rounding_filter_of_rows is None)} as much; {shows}"

    def _describe_legal_scale_error(self, aim: Aim) -> str:
        """Say if a stored scale, which is legal, is as far off as the mistake."""
        c = scale_of(self.of.spec, self.of.inputs["q"].shape[-1])
        if aim.step != "scale" or not c or self._rounding_filter_of_rows is None:
            return ""
        off = [abs(x / c - 1) for x in stored_scales(self.of.precision.input, c).values()]
        # A stored scale that is as far off hides the mistake.
        near = [x for x in off if abs(x - aim.share) < aim.share / 2]
        name = self.of.precision.input.name
        return (
            f"A scale stored in {name}, which is allowed, has an error of {in_percent(near[0])}"
            if near
            else ""
        )

    def _suggest_more_sensitive_call(self, rows: int | Sequence[int] | None) -> str:
        least = "or a larger number in power"
        # Rows that are named are few.
        if rows is not None and not np.isscalar(rows):
            return f"rows as a number, so that more are read, {least}"
        if self._rounding_filter_of_rows is None:
            return f"a finer dtype, or alpha where it is None, {least}"
        wide = (
            "contract='fused' where scores are in float32, "
            if self._rounding_filter_of_rows.how.scores
            else ""
        )
        # With fewer heads more rows of each are read for the same effort.
        if len(self.rows) < self.of.shape[-2]:
            return f"{wide}fewer heads in a call, of which more rows are read, {least}"
        return f"{wide}more heads or tokens, larger queries, {least}"

    @cached_property
    def _definition_of_read_rows(self) -> tuple[Attention, closeness.Arrays]:
        return closeness.of_rows(self.of.spec, self.of.inputs, self.rows)

    @cached_property
    def _rounding_filter_of_rows(self) -> Grown | None:
        """The rows for the filter; None if it does not apply."""
        if self.of.how is None or not rows_in_float64.applies(self.of.spec, self.of.inputs):
            return None
        got = self.out[..., self.rows, :]
        return Grown(
            *self._definition_of_read_rows, self.rows, got, self.of.how, self.words, self.alpha / 2
        )

    @cached_property
    def _likeliest_contract(self) -> Contract:
        """The arithmetic that is nearest to the output by the bits of a few rows."""
        # A few rows, spread over the selection.
        few = self.rows[:: -(-len(self.rows) // _BITS)]
        spec, inputs = closeness.of_rows(self.of.spec, self.of.inputs, few)
        return likeliest(BitSample(spec, inputs, self.out[..., few, :], self.of.precision.input))

    @cached_property
    def _measured_output_of_rows(self) -> Measured:
        return measure(
            *self._definition_of_read_rows, self.out[..., self.rows, :], self.of.precision
        )
