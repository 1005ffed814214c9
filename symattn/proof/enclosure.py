"""Strict inequalities on a box, by Arb balls: the box is cut until every piece is decided."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from symattn.arrays.ball import Ball
from symattn.evidence import Evidence, Grade
from symattn.proof.theorem import Decision, Refutation

Interval = tuple[Fraction, Fraction]
Box = tuple[Interval, ...]
PIECES = 20_000


@dataclass(frozen=True)
class EnclosedOverBox:
    """``of`` is greater than 0 at every point of ``box``, a closed interval for each of its arguments.

    ``of`` takes Arb balls and gives one. An interval is passed as a ball that contains it, so what Arb returns contains
    every value there. ``false`` is what some point of the box must show not to be greater than 0.
    """

    of: Callable[..., Any]
    box: Box
    false: Callable[..., Any]
    pieces: int = PIECES

    def decide(self) -> Decision:
        waiting, done = deque([self.box]), 0
        while waiting:
            piece, done = waiting.popleft(), done + 1
            value = self.of(*map(_ball, piece))
            if value > 0:
                continue
            if value <= 0:
                return Decision(Evidence(Grade.REFUTED, f"at {_shown(piece)}"))
            if not piece or done > self.pieces:
                return Decision(Evidence(Grade.UNDECIDED, f"not decided at {_shown(piece)}"))
            waiting += _halves(piece)
        words = f"Arb balls show it on each of {done} pieces" if self.box else "Arb balls show it"
        where = f"everywhere in {_shown(self.box)}" if self.box else "in numbers, by Arb balls"
        return Decision(Evidence(Grade.ARGUED, where), ((words,),))

    def refute(self) -> Refutation:
        for point in self._points():
            if self.false(*[_ball((x, x)) for x in point]) <= 0:
                return Refutation(True, f"at ({', '.join(map(str, point))})" if point else "in numbers, by Arb balls")
        return Refutation(False)

    def witness(self) -> str:
        point = tuple((low + high) / 2 for low, high in self.box)
        return "in numbers" if self.of(*[_ball((x, x)) for x in point]) > 0 else ""

    def _points(self) -> Iterator[tuple[Fraction, ...]]:
        """The middles of ever smaller pieces."""
        pieces: list[Box] = [self.box]
        for _ in range(6 if self.box else 1):
            yield from (tuple((low + high) / 2 for low, high in piece) for piece in pieces)
            pieces = [half for piece in pieces for half in _halves(piece)]


def _ball(interval: Interval) -> Any:
    low, high = map(Ball.scalar, interval)
    return low.union(high)


def _halves(piece: Box) -> list[Box]:
    """The piece cut in two across its longest side."""
    if not piece:
        return []
    k = max(range(len(piece)), key=lambda n: piece[n][1] - piece[n][0])
    low, high = piece[k]
    middle = (low + high) / 2
    return [(*piece[:k], side, *piece[k + 1 :]) for side in ((low, middle), (middle, high))]


def _shown(box: Box) -> str:
    return " × ".join(f"[{low}, {high}]" for low, high in box)
