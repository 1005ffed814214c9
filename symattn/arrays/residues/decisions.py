"""What a run decided by residues: whether elements were equal, whether divisors were zero. See ``degree``."""

from __future__ import annotations

from itertools import count

import numpy as np

from symattn.arrays.residues.degree import Chance


class Decisions:
    """How many elements were decided, the worst chance that a "yes" is wrong, and where the answer was "yes"."""

    def __init__(self) -> None:
        self.count = 0
        self.chance = Chance()
        self.answers: dict[int, bytes] = {}
        self._names = count()

    def name(self) -> int:
        """The name of the next decision: the operations of a run come in one order, even if computed later."""
        return next(self._names)

    def record(self, name: int, yes: np.ndarray, chance: Chance) -> None:
        self.count += yes.size
        self.chance = self.chance.either(chance)
        if yes.any():
            self.answers[name] = np.flatnonzero(yes).tobytes()
