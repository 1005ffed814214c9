"""The finding of a probe of dependence: the parts of a model that mix tokens, and outputs that see later tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

ALL_EARLIER, LATER_TOO = "all earlier tokens", "earlier and later tokens"
SOME_EARLIER, AS_PROMISED = "some earlier tokens", "as promised"
_MAX_PARTS_IN_WORDS = 6


@dataclass(frozen=True)
class Leak:
    """An output that depends on a later token: its position, and that of the token which was changed.

    ``module`` is the first module in whose output the change appears. ``item`` says that the output belongs to another
    item of the batch than the token, ``padding`` that the token is padding, wherever it stands.
    """

    module: str
    output: int
    token: int
    item: bool = False
    padding: bool = False

    @property
    def words(self) -> str:
        """Return the leak in words."""
        if self.item:
            what = f"the output of another item of the batch depends on token {self.token}"
            return f"{what} (first seen in {self.module})"
        place = "padding, token" if self.padding else "the later token"
        what = f"the output of token {self.output} depends on {place} {self.token}"
        return f"{what} (first seen in {self.module})"


@dataclass(frozen=True)
class MixingPart:
    """A part of a model whose outputs depend on other tokens than their own.

    name    the path of its module
    kind    the class of the module
    sees    what an output depends on, in words
    leak    the first output that depends on a later token, or on another item, without a promise that allows it
    judged  whether a call in it was judged that explains what it sees
    reason  why a dependence on later tokens is undecided
    reach   the most tokens that an output was seen to depend on, its own among them; None if no window showed
    """

    name: str
    kind: str
    sees: str
    leak: Leak | None = None
    judged: bool = False
    reason: str = ""
    reach: int | None = None

    @property
    def state(self) -> str:
        """Return in words whether an output depends on a later token."""
        return f"LEAK: {self.leak.words}" if self.leak else self.reason or "no leak"

    RECORD = "name, kind, sees, leak, judged, reason"


@dataclass
class Dependence:
    """The finding of one probed pass: parts that mix tokens, leaks outside of them, or why nothing was probed.

    ``causal`` says what was promised: None if nothing was. ``later`` says that a later pass may still be probed, and
    ``padded`` that a token of padding was changed, and ``padding_reason`` why that shows nothing. ``model`` is the
    number of the model in its audit.
    """

    causal: bool | None = None
    parts: list[MixingPart] = field(default_factory=list)
    leaks: list[Leak] = field(default_factory=list)
    reason: str = ""
    later: bool = False
    padded: bool = False
    padding_reason: str = ""
    model: int = 0
    RECORD = "causal, parts, leaks, reason"

    @property
    def faults(self) -> list[str]:
        """Return every leak in words, with the name of the part."""
        inside = [f"{p.name} ({p.kind}): {p.leak.words}" for p in self.parts if p.leak]
        of_modules = [f"{leak.module}: {leak.words}" for leak in self.leaks]
        return inside + of_modules

    @property
    def unjudged(self) -> list[MixingPart]:
        """Return the parts that mix tokens and were not judged."""
        return [p for p in self.parts if not p.judged]

    @property
    def coverage(self) -> str:
        """Return how many parts that mix tokens were judged, and the others by name."""
        if self.reason:
            return f"token-mixing parts were not counted: {self.reason}"
        judged = len(self.parts) - len(self.unjudged)
        words = f"{judged} of {len(self.parts)} token-mixing parts judged"
        if self.unjudged:
            others = "; ".join(_yield_words_of_parts(self.unjudged))
            words = f"{words}; {len(self.unjudged)} not: {others}"
        open_ = self.padding_reason
        return f"{words}; dependence on padding was not tried: {open_}" if open_ else words

    def judging(self, calls: Mapping[str, int | None]) -> Dependence:
        """Return this finding with the parts marked that one of these judged calls explains.

        A call belongs to the innermost part around it. It comes with the number of tokens that an output of it can
        depend on: a convolution of a few tokens does not explain a part that sees more, such as a state space.
        """
        explained = {self._find_part_around(call, reach) for call, reach in calls.items()}
        return replace(self, parts=[replace(p, judged=p.name in explained) for p in self.parts])

    def only_judged(self, is_read: Callable[[str], bool], reason: str) -> Dependence:
        """Return this finding with those parts judged no longer, for a reason, of whose names ``is_read`` is false."""
        parts = [
            p if is_read(p.name) or not p.judged else replace(p, judged=False, reason=reason)
            for p in self.parts
        ]
        return replace(self, parts=parts)

    def _find_part_around(self, call: str, reach: int | None) -> str | None:
        """Return the name of the innermost part around a call; None if it sees more tokens than the call does."""
        around = [p for p in self.parts if within(call, p.name)]
        part = max(around, key=lambda p: len(p.name), default=None)
        return None if part is None or sees_more(part.reach, reach) else part.name


def sees_more(part: int | None, call: int | None) -> bool:
    """Return whether a part depends on more tokens than a call in it; None is without a bound."""
    return call is not None and (part is None or part > call)


def within(name: str, part: str) -> bool:
    """Return whether a path is that of a part or lies below it."""
    return name == part or name.startswith(part + ".")


def _yield_words_of_parts(parts: list[MixingPart]) -> Iterator[str]:
    """Yield a text for all parts of one class of which the same is said, with the name of the first."""
    groups: dict[tuple[str, str, str], list[MixingPart]] = {}
    for part in parts:
        state = "LEAK" if part.leak else part.reason or "no leak"
        # Parts of one class with one finding are one line.
        groups.setdefault((part.kind, part.sees, state), []).append(part)
    for (kind, sees, state), same in list(groups.items())[:_MAX_PARTS_IN_WORDS]:
        others = f" and {len(same) - 1} more" if len(same) > 1 else ""
        yield f"{same[0].name}{others} ({kind}): {sees}, {state}"
    if len(groups) > _MAX_PARTS_IN_WORDS:
        left = list(groups.values())[_MAX_PARTS_IN_WORDS:]
        yield f"{sum(map(len, left))} more"
