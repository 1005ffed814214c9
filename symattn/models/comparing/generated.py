"""Compare a way with the reference, state by state and token by token: what rounding explains, and what not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from symattn.arrays.enclosing.bounds import U
from symattn.arrays.formats import Format
from symattn.document.codec import record
from symattn.document.evidence import Grade, Verdict
from symattn.document.model import Block, Code, Document, Note, Paragraph, Table, Text, headers
from symattn.document.printable import WithVerdict
from symattn.models.comparing.cache_losses import Lost
from symattn.models.comparing.generation_ways import CONTINUATION, PREFIX, Array, States

_ROOM = 2.0**10  # times the measured rounding, scaled to float64: the limit of rounding there
# times the reference's rounding: the most rounding of the way that counts in float64
_COARSEST = 2.0**10
# In place of a largest entry of 0, so that the room is above 0.
_LEAST = 1e-30
_MAX_WAYS_IN_SHORT = 3  # ways with a sentence of their own, behind the one of the verdict
ROUGH = 16.0  # times the rounding of the prefill, above which rounding is reported
# of the largest entry: the distance from float64 from which the model's own type decides nothing
_LARGE = 1 / 16


@dataclass(frozen=True)
class StateDifference:
    """The first place at which float64 differs by more than rounding.

    item    index of the sequence in the batch
    state   0 for the embeddings, l for the output of layer l − 1, and one more for the logits
    layer   the state in words
    token   index in the sequence, from 0
    off     the largest difference of an entry there, in float64
    room    the largest difference there that rounding explains
    seen    in words, the tokens that the way wrongly sees, or does not see, there
    own     in words, what is wrong in the model's own type if float64 does not differ
    """

    item: int
    state: int
    layer: str
    token: int
    off: float
    room: float
    seen: str = ""
    own: str = ""

    RECORD = "sequence = item, layer, token, off, room, seen, own"


@dataclass(frozen=True)
class StateError:
    """The errors of one state.

    Each is the largest entry per token: ``off`` of the difference in float64; ``mine`` and ``alone`` of the distances
    of the way and of the reference, in the model's own type, from float64; ``apart`` of the difference in that type.
    ``broken`` are the tokens with an entry that is not finite in the model's own type though the reference's is;
    ``blind`` those whose reference is not finite in that type, but in float64. ``room`` is the limit of rounding in
    float64, and ``size`` the reference's largest entry.
    """

    off: Array
    mine: Array
    alone: Array
    apart: Array
    broken: Array
    blind: Array
    room: float
    size: float

    @classmethod
    def of(
        cls, dtype: str, own: Array, wide: Array, own_reference: Array, reference: Array
    ) -> StateError:
        """Compare both in the model's own type and in float64."""
        n, size = len(wide), _largest_finite_entry(np.abs(reference))
        right, wide_right = own_reference[:n], reference[:n]
        mine, alone = (
            _largest_token_differences(own, wide),
            _largest_token_differences(right, wide_right),
        )
        broken, blind = (
            _find_tokens_turned_nonfinite(own, right),
            _find_tokens_turned_nonfinite(right, wide_right),
        )
        room = _allowance_for_rounding(mine, alone, size, dtype)
        return cls(
            _largest_token_differences(wide, wide_right),
            mine,
            alone,
            _largest_token_differences(own, right),
            broken,
            blind,
            room,
            size,
        )


@dataclass(frozen=True)
class StateErrors:
    """The errors of each state, from the embeddings to the logits."""

    states: tuple[StateError, ...]
    dtype: str

    @classmethod
    def of(
        cls, own: States, wide: States, own_reference: States, reference: States, dtype: str
    ) -> StateErrors:
        """Compare all states."""
        four = zip(own, wide, own_reference, reference, strict=True)
        return cls(tuple(StateError.of(dtype, *arrays) for arrays in four), dtype)

    def first(self, item: int) -> StateDifference | None:
        """Return the first token of the first state that exceeds the room, or is not finite in the model's own type
        though the reference's is; or None."""
        for state, one in enumerate(self.states):
            # ``not <=`` holds for NaN as well.
            beyond = ~(one.off <= one.room)
            places = np.flatnonzero(beyond | one.broken)
            if places.size:
                token = int(places[0])
                own = (
                    ""
                    if beyond[token]
                    else f"in {self.dtype} it is not finite, where the reference is"
                )
                off = float(one.off[token])
                return StateDifference(
                    item, state, self._name_layer_of_state(state), token, off, one.room, own=own
                )
        return None

    @property
    def unclear(self) -> str:
        """The reason why the results in the model's own type decide nothing about the way, or ""."""
        for state, one in enumerate(self.states):
            if one.blind.any():
                return f"the reference itself is not finite in {self.dtype} from {self._name_layer_of_state(state)} on"
            far = float(one.mine.max())
            usual = float(one.alone.max())
            if not far <= max(ROUGH * usual, _LARGE * one.size):
                result = f"in {self.dtype} it is {far:.2g} from its float64 self at {self._name_layer_of_state(state)}"
                return (
                    f"{result}, where entries are at most {one.size:.2g} and the reference is {usual:.1g} from "
                    "its own: it is wrong in that type alone, or a choice, as of experts, went another way by rounding"
                )
        return ""

    @property
    def used(self) -> float:
        """The largest share of the room that is used."""
        shares = (np.nan_to_num(one.off / one.room, nan=np.inf) for one in self.states)
        return max(float(share.max()) for share in shares)

    def _name_layer_of_state(self, state: int) -> str:
        if state == 0:
            return "embeddings"
        return "logits" if state == len(self.states) - 1 else f"layers.{state - 1}"


def _allowance_for_rounding(mine: Array, alone: Array, size: float, dtype: str) -> float:
    """Return 2¹⁰ (u₆₄/u · the largest rounding error of both + u₆₄ · the largest entry).

    In float64, a rounding error of the model's own type shrinks by the ratio of the unit roundoffs, since to first
    order both are the same sum of local errors; a semantic error does not shrink. The factor leaves room for second
    order, and for sums that happen to cancel in one of the two. Errors of the way count up to 2¹⁰ times those of the
    reference, or units in the last place of its largest entry: larger ones are no rounding, and do not widen the room.
    """
    u = float(Format(dtype).u)
    size = max(size, _LEAST)
    usual = _largest_finite_entry(alone)
    coarsest = _COARSEST * max(usual, u * size)
    measured = max(usual, min(_largest_finite_entry(mine), coarsest))
    return _ROOM * (U / u * measured + U * size)


def _largest_finite_entry(a: Array) -> float:
    return float(a[np.isfinite(a)].max(initial=0.0))


def _largest_token_differences(a: Array, b: Array) -> Array:
    """Return the largest difference of an entry of each token; equal infinities, as of excluded words, differ by 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        # Equal infinities differ by NaN, so their distance is set to 0.
        distance = np.where(a == b, 0.0, np.abs(a - b))
        result: Array = distance.max(axis=-1)
        return result


def _find_tokens_turned_nonfinite(a: Array, b: Array) -> Array:
    """Return which tokens have an entry that is not finite where the other is."""
    only_other_is_finite = ~np.isfinite(a) & np.isfinite(b)
    result: Array = only_other_is_finite.any(axis=-1)
    return result


# -- results -----------------------------------------------------------------------------------------------------------
# ``Generation``: report which ways of generating agree with the prefill.

#: The limit of rounding is measured, so a fault is no more than sampled.
_GRADES = {
    Verdict.NO_FAULT: Grade.SAMPLED,
    Verdict.FAULT: Grade.SAMPLED,
    Verdict.UNDECIDED: Grade.UNDECIDED,
}


@dataclass(frozen=True)
class WayResult:
    """The result of one way.

    first     the first difference beyond rounding, or None
    reason    why it could not be run
    used      the largest difference in float64, relative to the limit of rounding
    off       the largest difference of a logit in float64
    apart     the same in the model's own type
    rounding  the largest distance of its logits from float64
    prefill   the same for the reference
    stored    the loss of a quantising cache beyond quantisation, or None
    moved     how far quantisation by the cache moves each state in float64, from the embeddings to the logits
    doubt     why it is unclear whether this way or the reference is wrong, or ""
    unclear   why its numbers in the model's own type decide nothing, or ""
    """

    way: str
    first: StateDifference | None = None
    reason: str = ""
    used: float = 0.0
    off: float = 0.0
    apart: float = 0.0
    rounding: float = 0.0
    prefill: float = 0.0
    doubt: str = ""
    unclear: str = ""
    stored: Lost | None = None
    moved: tuple[float, ...] = ()

    @property
    def wrong(self) -> bool:
        """Return whether the way differs from a trusted reference, or its cache loses entries."""
        return (self.first is not None and not self.doubt) or self.stored is not None

    @property
    def differs(self) -> bool:
        """Return whether the way differs from the reference, and it is unclear which of the two is right."""
        return self.first is not None and bool(self.doubt) and self.stored is None

    @property
    def undecided(self) -> bool:
        """Return whether float64 shows no fault, and the model's own type decides nothing."""
        return bool(self.unclear) and not self.wrong and not self.differs

    @property
    def verdict(self) -> str:
        """The verdict in a word."""
        if self.wrong or self.differs:
            return "wrong" if self.wrong else "differs"
        if self.undecided:
            return "undecided"
        return "not run" if self.reason else "rounding alone"

    @property
    def rough(self) -> bool:
        """Return whether the way rounds much more than the prefill."""
        return self.first is None and not self.reason and self.rounding > ROUGH * self.prefill > 0

    RECORD = (
        "way, verdict, reason, first, of room = used, error in float64 = off, apart, rounding, "
        "rounding of prefill = prefill, doubt, unclear, cache, moved by quantisation = moved"
    )

    @property
    def cache(self) -> str:
        """The losses of the way's cache, in words."""
        return self.stored.words if self.stored else ""


@dataclass(frozen=True, repr=False)
class Generation(WithVerdict):
    """The result of ``generation``: a row for each way. It prints as text, and has the formats of a document.

    ``verdict`` is a fault if a way is wrong; it is undecided if none is wrong but one that was requested by name, or
    all of them, could not be run, or if the results of a way in the model's own type cannot be judged.
    """

    model: str
    dtype: str
    tokens: int
    rows: tuple[WayResult, ...]
    notes: tuple[str, ...] = ()
    requested: frozenset[str] = frozenset()

    @property
    def wrong(self) -> tuple[str, ...]:
        """The ways that are wrong."""
        return tuple(row.way for row in self.rows if row.wrong)

    @property
    def differing(self) -> tuple[str, ...]:
        """The ways that differ from the reference if it is unclear which of the two is wrong."""
        return tuple(row.way for row in self.rows if row.differs)

    @property
    def verdict(self) -> Verdict:
        """A fault, no fault, or undecided. If two differ, one of them is wrong."""
        if self.wrong or self.differing:
            return Verdict.FAULT
        if any(row.undecided for row in self.rows):
            return Verdict.UNDECIDED
        missing = {row.way for row in self.rows if row.reason and not row.stored}
        return (
            Verdict.UNDECIDED
            if len(missing) == len(self.rows) or missing & self.requested
            else Verdict.NO_FAULT
        )

    def __getitem__(self, way: str) -> WayResult:
        """Return the row of a way."""
        return next(row for row in self.rows if row.way == way)

    def __repr__(self) -> str:
        wrong = f": {', '.join(self.wrong)}" if self.wrong else ""
        return self._make_brief_repr(f"generation of {self.model}: {self.verdict.value}{wrong}")

    def document(self) -> Document:
        """Return the ways as a document."""
        words = f"Grade: {_GRADES[self.verdict].value}: {self.tokens} tokens were tried."
        titles = ("way", "verdict", "from", ">token", ">float64", ">apart", ">rounding", ">prefill")
        table = Table(headers(*titles), tuple(map(_make_row_of_way, self.rows)))
        first, *others = map(_make_sentence_paragraph, self._yield_verdict_sentences())
        notes = [Note((note,)) for note in self._yield_generation_notes()]
        return Document(
            "verification",
            "generation",
            ("Generation with ", Code(self.model)),
            (*others, table, *notes, Paragraph((f"{_MEANING} {words}",))),
            brief=(
                *others[:_MAX_WAYS_IN_SHORT],
                *self._ways_in_short(),
                *notes,
                Paragraph((words,)),
            ),
            option="-v",
            subtitle=(self.dtype,),
            parameters={"model": self.model, "dtype": self.dtype, "tokens": self.tokens},
            record=record(
                {
                    "ways": self.rows,
                    "wrong": self.wrong,
                    "differing": self.differing,
                    "notes": tuple(self._yield_generation_notes()),
                    "grade": _GRADES[self.verdict],
                }
            ),
            verdict=self.verdict,
            reason=first.text[:-1],
            hints=("-v prints the numbers of every way, and what the columns mean",),
        )

    def _ways_in_short(self) -> Iterator[Block]:
        """Yield the ways that are wrong or decide nothing in a table, and those that agree in a sentence."""
        agreeing = [row for row in self.rows if row.verdict == "rounding alone"]
        others = [row for row in self.rows if row.verdict in ("wrong", "differs", "undecided")]
        if others:
            titles = ("way", "verdict", "from", ">token", ">error in float64")
            yield Table(
                headers(*titles), tuple(_make_row_of_way(row)[: len(titles)] for row in others)
            )
        if agreeing:
            ways = "; ".join(row.way for row in agreeing)
            error = max(row.off for row in agreeing)
            yield Paragraph((f"Rounding alone: {ways}. Largest error in float64: {error:.1g}.",))

    def _yield_verdict_sentences(self) -> Iterator[Text]:
        """Yield a sentence, without its full stop, on each way that is wrong or undecided, or one on all ways."""
        for row in self.rows:
            if row.stored is not None:
                yield Code(row.way), f" is wrong: in layers.{row.stored.layer} {row.stored.words}"
            elif row.first is not None:
                yield (
                    Code(row.way),
                    f" {_describe_state_difference(row.first, row.doubt).removesuffix('.')}",
                )
            elif row.undecided:
                yield Code(row.way), f" is undecided: {row.unclear}"
        # No way at all: nothing was compared.
        if all(row.reason for row in self.rows):
            yield ("no way could be run",)
        elif self.verdict is not Verdict.FAULT and not any(row.undecided for row in self.rows):
            yield ("every way that ran agrees with the prefill, up to rounding",)

    def _yield_generation_notes(self) -> Iterator[str]:
        yield from self.notes
        for row in self.rows:
            if row.reason:
                yield f"{row.way} was not run: {row.reason}"
            if row.moved and not row.wrong:
                yield (
                    f"Quantisation alone moves the states of {row.way} by {', '.join(f'{x:.1g}' for x in row.moved)}, "
                    "from the embeddings to the logits: how it grows from layer to layer is measured, and no bound of "
                    "it is known."
                )
            if row.rough and not row.moved and not row.undecided:
                times = row.rounding / row.prefill
                yield f"{row.way} rounds {times:.0f} times as much as the prefill: it may store something coarsely."
        # on the model itself, from the ways that stop early
        if CONTINUATION in self.wrong:
            yield "The model's own prefill depends on the words of later tokens: look at its mask first."
        elif PREFIX in self.wrong and CONTINUATION in {row.way for row in self.rows}:
            yield (
                "The prefill depends on how many tokens come later and not on their words, as positions that depend on "
                "the length do: then no way can agree with it."
            )


def _make_sentence_paragraph(sentence: Text) -> Paragraph:
    return Paragraph((*sentence, "."))


_MEANING = (
    "Layers and tokens count from 0. Float64: the largest difference of a logit from the reference, both in float64. "
    "Apart: the same in the model's own type; it is at most the sum of the three other numbers. Rounding: the largest "
    "difference of a logit in the model's own type from float64. Prefill: the rounding of the prefill. Another "
    "continuation is compared with the model's own prefill. An error in float64 counts as rounding up to 2¹⁰ times the "
    "rounding measured in the model's own type, scaled by the ratio of the unit roundoffs, where no more than 2¹⁰ "
    "times the reference's is counted for the way: this is a measured threshold, not a proof."
)


def _describe_state_difference(at: StateDifference, doubt: str) -> str:
    item = f" of sequence {at.item}" if at.item else ""
    remark = f" It {at.seen}." if at.seen else ""
    # Without a configuration neither side is the reference.
    verb = "differs" if doubt else "is wrong"
    rest = (
        f" Which of the two is wrong cannot be determined: {doubt}, and no configuration decides."
        if doubt
        else ""
    )
    if at.own:
        return f"{verb} from {at.layer} on, first at token {at.token}{item}: {at.own}.{rest}"
    return (
        f"{verb} from {at.layer} on, first at token {at.token}{item}: in float64 it is {at.off:.2g} from the "
        f"reference, where rounding explains {at.room:.1g}.{remark}{rest}"
    )


def _make_row_of_way(row: WayResult) -> tuple[tuple[str, ...], ...]:
    at = row.first
    if row.reason:
        # A way that did not run has no numbers.
        return ((row.way,), (row.verdict,), *[("",)] * 6)
    numbers = tuple((f"{x:.1g}",) for x in (row.off, row.apart, row.rounding, row.prefill))
    return (
        (row.way,),
        (row.verdict,),
        (at.layer if at else "",),
        (str(at.token) if at else "",),
        *numbers,
    )
