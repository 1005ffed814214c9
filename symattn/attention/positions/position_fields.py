"""Positions as fields of ``Attention``: the parameters of each kind, and their meaning.

The distance of a query i and a key j is j − i, counted so that the last query and key have the same position
(``alignment`` ``bottom-right``) or the first ones (``top-left``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from symattn.attention.constants import Number
from symattn.attention.fields import Described, check, finite, refusal, whole
from symattn.attention.positions.relative import deberta_starts, t5_starts
from symattn.attention.positions.rotary_fields import Scaling
from symattn.document.errors import InputError


@dataclass(frozen=True, kw_only=True, repr=False)
class Rotary(Described):
    """Rotary positions: queries and keys are rotated by angles that grow with their positions; see ``rotary``.

    base           θ of the frequencies θ^(−2l/r)
    width          r, how many of the first columns are rotated; None is all
    layout         ``half`` turns the columns l and l + r/2 together, ``interleaved`` 2l and 2l + 1
    scaling        how the frequencies are stretched, see ``rotary_fields``
    triples        (a, b, c) with a² + b² = c² for each pair of columns: angles with the cosine a/c and the sine b/c in
                   the place of frequencies, so that the tables are rational
    start          the position of the first key
    given          None: the keys are at start, start + 1, …; ``positions``: inputs ``positions``, whole numbers, and
                   ``positions_q``; ``tables``: inputs ``cos``, ``sin`` and ``cos_q``, ``sin_q``. Without those of the
                   queries, the queries stand at the end of the keys
    sections       positions with a row for each section, such as time, height and width (M-RoPE): how many pairs of
                   columns are rotated by each row; the width is twice their sum
    section_order  ``blocks``: the first pairs by the first row, the next ones by the next; ``interleaved``: pair l by
                   row l mod m of m rows, while its section lasts, and the pairs that remain by the first row

    Sources: Su et al., RoFormer (2021), §3.2; sections in blocks: Wang et al., Qwen2-VL (2024), §2.1; interleaved:
    Bai et al., Qwen3-VL Technical Report (2025).

    >>> from symattn import Attention
    >>> Attention(causal=True, position=Rotary(base=500000, layout="interleaved")).position.base
    500000
    >>> Rotary(given="positions", sections=(16, 24, 24)).width
    128
    """

    base: Number = 10000
    width: int | None = None
    layout: Literal["half", "interleaved"] = "half"
    scaling: Scaling | None = None
    triples: tuple[tuple[int, int, int], ...] | None = None
    start: int = 0
    given: Literal["positions", "tables"] | None = None
    sections: tuple[int, ...] | None = None
    section_order: Literal["blocks", "interleaved"] = "blocks"

    def __post_init__(self) -> None:
        if not finite(self.base) or self.base <= 1:
            raise refusal(self, "base", "be a finite number above 1")
        if self.width is not None and (
            not isinstance(self.width, int) or self.width < 2 or self.width % 2
        ):
            raise refusal(self, "width", "be an even number of at least 2, or None")
        check(self)
        if self.scaling is not None and not isinstance(self.scaling, Scaling):
            raise refusal(
                self,
                "scaling",
                f"be one of None, {', '.join(s.__name__ for s in get_args(Scaling))}",
            )
        if isinstance(self.start, bool) or not isinstance(self.start, int):
            raise refusal(self, "start", "be an integer")
        # What fields mean together is asked last, when each is valid by itself.
        self._check_triples()
        self._check_sections()
        self._check_together()

    @property
    def least_width(self) -> int:
        """The smallest width of queries and keys that can be rotated."""
        return (
            self.width or 2 * len(self.triples or ()) or (self.scaling.least if self.scaling else 2)
        )

    def _check_triples(self) -> None:
        if self.triples is None:
            return
        if (
            not isinstance(self.triples, tuple)
            or not self.triples
            or not all(map(_is_triple, self.triples))
        ):
            raise refusal(self, "triples", "be a tuple of integers a, b, c with a² + b² = c²")
        if self.width is not None and self.width != 2 * len(self.triples):
            raise InputError(
                f"Rotary: {len(self.triples)} triples turn {2 * len(self.triples)} columns, not {self.width}"
            )

    def _check_sections(self) -> None:
        sections = self.sections
        if sections is None:
            return
        if (
            not isinstance(sections, tuple)
            or len(sections) < 2
            or not all(whole(pairs, 1) for pairs in sections)
        ):
            raise refusal(self, "sections", "be a tuple of two or more integers of at least 1")
        width = 2 * sum(sections)
        if self.width not in (None, width):
            raise InputError(
                f"Rotary: sections of {sections} pairs turn {width} columns, not {self.width}"
            )
        # A frozen field: the sections determine the width.
        object.__setattr__(self, "width", width)
        # Later rows have places in turn, and the first row has all others.
        last_pairs = [row + len(sections) * (pairs - 1) for row, pairs in enumerate(sections)]
        if self.section_order == "interleaved" and max(last_pairs[1:]) >= sum(sections):
            raise InputError(
                f"Rotary: sections of {sections} pairs cannot be interleaved; hint: a larger first one"
            )

    def _check_together(self) -> None:
        tables, triples = self.given == "tables", self.triples is not None
        for refused, words in (
            (tables and triples, "tables are given or made of triples, not both"),
            (
                tables and self.scaling is not None,
                "given tables are not scaled; hint: scaling=None",
            ),
            (
                triples and self.scaling is not None,
                "angles of triples have no frequencies to scale; hint: scaling=None",
            ),
            (
                triples and self.given == "positions",
                "triples are for positions in order; hint: given=None",
            ),
            (
                self.given is not None and self.start != 0,
                f"start belongs to positions in order, not to given {self.given}",
            ),
            (
                tables and self.width is not None,
                "given tables are as wide as they are; hint: width=None",
            ),
            (
                self.sections is not None and self.given != "positions",
                "sections turn by rows of positions; hint: given='positions'",
            ),
            (
                self.sections is None and self.section_order != "blocks",
                "section_order belongs to sections; hint: sections=(16, 24, 24)",
            ),
            (
                self.given == "positions" and self.scaling is not None and self.scaling.by_length,
                "this scaling asks how many positions there are; hint: given=None",
            ),
        ):
            if refused:
                raise InputError(f"Rotary: {words}")


def _is_triple(t: object) -> bool:
    if not isinstance(t, tuple) or len(t) != 3 or not all(type(x) is int for x in t):
        return False
    a, b, c = t
    # The triple 0, 0, 0 is no angle.
    return bool(c and a * a + b * b == c * c)


@dataclass(frozen=True, kw_only=True, repr=False)
class Alibi(Described):
    """ALiBi, s_ij − m_h (i − j): distant keys get lower scores; see ``relative``.

    slopes        ``computed``: 2^(−8/h), 2^(−16/h), …, 2^−8 where the number of heads h is a power of two; else those
                  of the largest power of two m below h, then every second one of those of 2m, from the first on;
                  ``given``: an input ``slopes``
    two_sided     −m_h |i − j|, for attention that looks ahead

    Source: Press, Smith, Lewis, Train Short, Test Long (2022), §3.

    >>> from symattn import Attention
    >>> Attention(heads=8, causal=True, position=Alibi())
    Attention(causal=True, heads=8, position=Alibi())
    >>> from symattn.attention.positions.relative import slope_exponents
    >>> [str(e) for e in slope_exponents(3)]  # of 2 heads, and the first of 4
    ['4', '8', '2']
    """

    slopes: Literal["computed", "given"] = "computed"
    two_sided: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class Buckets(Described):
    """T5's biases, s_ij + b_{β(j − i)}: the input ``b_rel`` has a number per bucket and head; see ``relative``.

    number        of buckets
    max_distance  from which on all distances are in one bucket
    bidirectional half of the buckets for keys ahead of the query; else those are in the bucket 0, to be masked

    Source: Raffel et al., T5 (2020), §2.1.

    >>> from symattn import Attention
    >>> Attention(heads=8, position=Buckets(number=16)).position
    Buckets(number=16)
    """

    number: int = 32
    max_distance: int = 128
    bidirectional: bool = True

    def __post_init__(self) -> None:
        check(self, number=2, max_distance=1)
        if self.bidirectional and self.number % 2:
            raise refusal(self, "number", "be even for two directions")
        # Called for its errors: buckets that do not fit the largest distance.
        t5_starts(self.number // 2 if self.bidirectional else self.number, self.max_distance)


@dataclass(frozen=True, kw_only=True, repr=False)
class Shaw(Described):
    """s_ij + q_i · a_δ and o_i + Σ_j a_ij c_δ with rows of tables ``a_k`` and ``a_v`` by δ = j − i, cut to −k … k.

    most          k; the tables have 2k + 1 rows, the middle one for δ = 0
    values        whether values have a table, too

    Source: Shaw, Uszkoreit, Vaswani, Self-Attention with Relative Position Representations (2018), equations 3 to 5.

    >>> from symattn import Attention
    >>> Attention(position=Shaw(most=4))
    Attention(position=Shaw(most=4))
    """

    most: int
    values: bool = True

    def __post_init__(self) -> None:
        check(self, most=1)


@dataclass(frozen=True, kw_only=True, repr=False)
class TransformerXL(Described):
    """(q_i + u) · k_j + (q_i + w) · r_{i−j}: inputs ``r``, ``w_r`` and the biases ``b_u``, ``b_w``, one row per head.

    The rows of r are for the distances i − j = n_k − 1, n_k − 2, … from far to near: n_k rows if queries look back
    only, else n_q + n_k − 1. They are projected by w_r, as the tokens are by w_k.

    Source: Dai et al., Transformer-XL (2019), §3.3.

    >>> from symattn import Attention
    >>> Attention(causal=True, position=TransformerXL())
    Attention(causal=True, position=TransformerXL())
    """


@dataclass(frozen=True, kw_only=True, repr=False)
class Disentangled(Described):
    """DeBERTa, s_ij + q_i · P_δ W_PK + k_j · P_δ' W_PQ, scaled by 1/√(3 d_k): inputs ``p``, ``w_pk``, ``w_pq``, biases.

    span          k; p has 2k rows, for i − j = −k, …, k − 1, and farther keys have the nearest of those
    max_distance  None: each distance has its row; else distances are in k buckets, wider and wider up to this one
    to_position   whether there is the first term, of contents q_i with positions
    to_content    whether there is the second one, of positions with contents k_j
    backwards     whether the second one takes δ' of j − i, as it is written; else that of i − j, as it is run

    Source: He et al., DeBERTa (2021), equations 2 to 4; the buckets: its code for version 2.

    >>> from symattn import Attention
    >>> Attention(position=Disentangled(span=8))
    Attention(position=Disentangled(span=8))
    """

    span: int
    max_distance: int | None = None
    to_position: bool = True
    to_content: bool = True
    backwards: bool = True

    def __post_init__(self) -> None:
        check(self, span=1, max_distance=1)
        if not (self.to_position or self.to_content):
            raise InputError("Disentangled: without to_position and to_content no term is left")
        if self.max_distance is not None:
            # Called for its errors, as in ``Buckets``.
            deberta_starts(self.span, self.max_distance)

    @property
    def terms(self) -> int:
        """The number of terms of the scores, including that of contents with contents."""
        return 1 + self.to_position + self.to_content


Position = Rotary | Alibi | Buckets | Shaw | TransformerXL | Disentangled
