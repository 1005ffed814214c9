"""The specification itself, with another value in one of its fields."""

from __future__ import annotations

from collections.abc import Iterator

from symattn.attention.spec import Attention
from symattn.verification.known.mistake import Mistake


def mistakes(spec: Attention) -> Iterator[Mistake]:
    yield from ()
