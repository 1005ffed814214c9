"""The heads of a call that are judged: all of a small call, evenly spaced ones of a large one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symattn.models.auditing.setting import Floats, Tensor, numbers

#: Tokens of all judged heads together.
MAX_JUDGED_TOKENS = 8192


def choose_heads(count: int, length: int, most: int = MAX_JUDGED_TOKENS) -> list[int]:
    """Return the heads to judge of ``count`` heads of ``length`` tokens each."""
    heads = max(1, most // max(length, 1))
    if count <= heads:
        return list(range(count))
    return sorted({int(i) for i in np.linspace(0, count - 1, heads)})


def take_heads(tensor: Tensor, heads: int, chosen: Sequence[int], tiled: bool = False) -> Floats:
    """Return (b, n, h, …) as the chosen of b · ``heads`` heads, (chosen, n, …).

    Each of the h heads serves ``heads``/h in a row; if ``tiled``, every h-th one. Only the chosen ones are copied.
    """
    own = tensor.shape[2]
    items = [one // heads for one in chosen]
    places = [one % heads for one in chosen]
    read = [at % own if tiled else at * own // heads for at in places]
    return numbers(tensor[items, :, read])
