"""In which order columns stand where they come from, in words: nothing for those that stand side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

# So many runs of columns are written out; a checksum tells further ones apart.
_MAX_RUNS = 4


def order_in_words(places: Sequence[int], wanted: Sequence[int] | None = None) -> str:
    """Return the places of columns in words; "" if they stand side by side, the first of them anywhere.

    ``wanted`` are the numbers of these columns where they arrive, if others stand between them.

    >>> order_in_words([4, 5, 6, 7])
    ''
    >>> order_in_words([0, 2, 4, 1, 3, 5])
    'columns 0 to 4 by 2, 1 to 5 by 2'
    """
    numbers = range(len(places)) if wanted is None else wanted
    shifts = {place - number for place, number in zip(places, numbers, strict=True)}
    if len(shifts) <= 1:
        return ""
    runs = list(_yield_runs(places))
    words = ", ".join(map(_describe_run, runs[:_MAX_RUNS]))
    if len(runs) > _MAX_RUNS:
        checksum = crc32(repr(list(places)).encode())
        words = f"{words}, … in {len(runs)} runs of order {checksum:08x}"
    return f"columns {words}"


def _yield_runs(places: Sequence[int]) -> Iterator[list[int]]:
    """Yield places in runs, each with the same step from one to the next."""
    run: list[int] = []
    for place in places:
        if len(run) > 1 and place - run[-1] != run[1] - run[0]:
            yield run
            run = []
        run.append(int(place))
    if run:
        yield run


def _describe_run(run: Sequence[int]) -> str:
    if len(run) == 1:
        return f"{run[0]}"
    step = run[1] - run[0]
    return f"{run[0]} to {run[-1]}" + (f" by {step}" if step != 1 else "")
