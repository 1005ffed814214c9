"""Strict inequalities on a box, by Arb balls: the box is cut until every piece is decided."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any

from symattn.arrays.ball import Ball
from symattn.arrays.indexed import Indexed
from symattn.document.errors import Refused, Undecided
from symattn.document.evidence import Evidence, Grade
from symattn.proof.certified import accepted
from symattn.proof.premises import PositiveInBox, Tree
from symattn.proof.prover import unsimplified
from symattn.proof.theorem import Decision, Refutation

Interval = tuple[Fraction, Fraction]
Box = Mapping[str, Interval]
PIECES = 20_000
_DIGITS = 30  # bits of the radius of a ball in a certificate


@dataclass(frozen=True)
class EnclosedOverBox:
    """``of`` is greater than 0 at every point of ``box``, a closed interval for each of its letters.

    ``of`` takes a namespace, and the letters by name. An interval is passed as an Arb ball that contains it, so what
    Arb returns contains every value there. The certificate has a ball for each piece, and the checker computes its own.
    ``false`` is what some point of the box must show not to be greater than 0, in balls.
    """

    of: Callable[..., Any]
    box: Box
    false: Callable[..., Any]
    pieces: int = PIECES

    def decide(self) -> Decision:
        result = self._cut()
        if isinstance(result, Evidence):
            return Decision(result)
        count = _balls(result)
        where = f"everywhere in {_shown(self.box)}" if self.box else "in numbers"
        words = f"Arb balls show it on each of {count} pieces" if self.box else "Arb balls show it"
        premise = self._enclosed(result)
        evidence = accepted(Evidence(Grade.PROVED, where), (), (premise,))
        return Decision(evidence, ((f"{words}, and the checker computes them anew",),), premises=(premise,))

    def _cut(self) -> Tree | Evidence:
        """The pieces, as ``PositiveInBox`` has them, or what speaks against it: large pieces are looked at first."""
        root: list[Any] = []
        waiting, done = deque([(dict(self.box), root)]), 0
        while waiting:
            (piece, result), done = waiting.popleft(), done + 1
            value = _value(self.of, piece)
            if value is not None and value > 0:
                result += _ball_around(value)
                continue
            if value is not None and value <= 0:
                return Evidence(Grade.REFUTED, _where(piece))
            if not piece or done > self.pieces:
                return Evidence(Grade.UNDECIDED, f"not decided {_where(piece)}")
            name, place, *halves = _halved(piece)
            parts: tuple[list[Any], ...] = ([], [])
            result += ("cut", name, place, *parts)
            waiting += zip(map(dict, halves), parts, strict=True)
        return _frozen(root)

    def _enclosed(self, tree: Tree) -> PositiveInBox:
        letters = {name: Indexed.letters(name) for name in self.box}

        def sides() -> tuple[Any, Any]:
            x = Indexed.lift(self.of(Indexed.xp, **letters)).at(())
            return x, x

        expression, _ = unsimplified(sides)
        return PositiveInBox(expression, tuple((name, *ends) for name, ends in self.box.items()), tree)

    def refute(self) -> Refutation:
        for point in self._points():
            value = _value(self.false, {name: (x, x) for name, x in point.items()})
            if value is not None and value <= 0:
                at = ", ".join(map(str, point.values()))
                return Refutation(True, f"at ({at})" if point else "in numbers, by Arb balls")
        return Refutation(False)

    def witness(self) -> str:
        value = _value(self.of, {name: ((low + high) / 2,) * 2 for name, (low, high) in self.box.items()})
        return "in numbers" if value is not None and value > 0 else ""

    def _points(self) -> Iterator[Mapping[str, Fraction]]:
        """The middles of ever smaller pieces."""
        pieces: list[Box] = [self.box]
        for _ in range(6 if self.box else 1):
            yield from ({name: (low + high) / 2 for name, (low, high) in piece.items()} for piece in pieces)
            pieces = [half for piece in pieces if piece for half in _halved(piece)[2:]]


def _value(of: Callable[..., Any], piece: Box) -> Any:
    """The Arb ball of all values on a piece; None where there is none, as a logarithm or divisor meets 0."""
    try:
        result = of(Ball.xp, **{name: Ball.lift(_ball(ends)) for name, ends in piece.items()})
    except (Refused, Undecided, ZeroDivisionError):
        return None
    return Ball.lift(result).entries[()]


def _ball(interval: Interval) -> Any:
    low, high = map(Ball.scalar, interval)
    return low.union(high)


def _ball_around(value: Any) -> Tree:
    """A ball with few digits that contains a positive one and is positive, too.

    It is wider by up to a half, as the intervals of the checker need not be those of Arb.
    """
    low, high = (_fraction(end) for end in (value.lower(), value.upper()))
    unit = Fraction(2) ** (low.numerator.bit_length() - low.denominator.bit_length() - _DIGITS)
    middle, reach = floor((low + high) / 2 / unit), (high - low) / 2 / unit
    return ("ball", middle * unit, ceil(reach + min(reach, low / 2 / unit) + 4) * unit)


def _fraction(end: Any) -> Fraction:
    x = end.fmpq()
    return Fraction(int(x.p), int(x.q))


def _frozen(tree: list[Any]) -> Tree:
    return tuple(_frozen(x) if isinstance(x, list) else x for x in tree)


def _balls(tree: Tree) -> int:
    return 1 if tree[0] == "ball" else _balls(tree[3]) + _balls(tree[4])


def _halved(piece: Box) -> tuple[str, Fraction, Box, Box]:
    """The piece cut in two across its longest side, which one and where."""
    name = max(piece, key=lambda n: piece[n][1] - piece[n][0])
    low, high = piece[name]
    middle = (low + high) / 2
    return name, middle, {**piece, name: (low, middle)}, {**piece, name: (middle, high)}


def _where(piece: Box) -> str:
    return f"at {_shown(piece)}" if piece else "in numbers"


def _shown(box: Box) -> str:
    return " × ".join(f"[{low}, {high}]" for low, high in box.values())
