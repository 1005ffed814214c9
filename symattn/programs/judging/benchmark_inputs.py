"""A benchmark's arrays by the names that a definition has for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symattn.bounds.called_target import Runner
from symattn.document.errors import InputError
from symattn.programs.layouts import of_layout


def by_definition(runner: Runner, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays by the names of the definition. Raises ``InputError`` if the candidate takes others."""
    how = runner.convention
    names = [a.input for a in how.arguments if a.input is not None and a.positional]
    names = [name for name in names if name in how.inputs][: len(arrays)]
    if len(names) != len(arrays):
        raise InputError(f"they are {len(arrays)} arrays, and the candidate takes {', '.join(how.inputs)}")
    return {name: of_layout(name, a, how.layout) for name, a in zip(names, arrays, strict=True)}
