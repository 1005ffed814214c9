"""The eight steps of a walk, in one numbering for every sheet, so that step 5 is always the weights.

1 inputs, 2 what is learned, 3 keys, queries and values, 4 scores of one query, 5 weights, 6 weights times values, 7
their sum, 8 the other queries; where something is made of the sums, that is step 9.
"""

from __future__ import annotations

from symattn.attention.notation import ARRAYS
from symattn.derivations.walks.model import Walk

_SCORES = ARRAYS["scores"].shape
_TABLES = ("r_k", "p_k", "p_q")  # keys and queries for distances
_PLAIN = {"k", "q", "v"}


def capital(title: str) -> str:
    """Return the title with a capital at its start."""
    return title[:1].upper() + title[1:]


def titles(walk: Walk) -> dict[int, str]:
    """Number → title of the steps that this walk has."""
    i = first_query(walk)
    found = {
        1: "inputs",
        2: "weight matrices" if all(n[0] in "wb" for n in arrays_of(walk, 2)) else "parameters",
        3: "keys, queries, values",
        4: f"scores of input {i}",
        5: {"softmax": "softmax"}.get(walk.sheet.attention.normaliser, "weights"),
        6: "scores times values",
        7: f"sum to output {i}",
        8: "again for the other inputs",
    }
    if walk.mixing.name != "output":
        latents = walk.mixing.name == "attended_latents"
        last = "output projection" if "w_o" in walk.arrays else "heads side by side"
        found[9] = "from latents to the output" if latents else last
    return found


def first_query(walk: Walk) -> int:
    """The query that is followed; the first is 1."""
    return walk.query or 1


def arrays_of(walk: Walk, number: int) -> list[str]:
    """The arrays that belong to a step, in order."""
    if number in (1, 2):
        return [name for name in walk.sheet.inputs if (ARRAYS[name].shape[0] == "…") == (number == 1)]
    return [name for name, place in _places(walk).items() if place == number]


def _places(walk: Walk) -> dict[str, int]:
    """The number of the step that each array of the run belongs to."""
    found: dict[str, int] = {}
    now = 3
    for name in walk.pipeline:
        if name == "scores":
            now = 4
        elif name == "weights":
            now = 5
        elif name == walk.mixing.name:
            found["weighted"] = 6
            now = 7
        found[name] = 3 if name in _TABLES else now
        if name == walk.mixing.name:
            now = 9
    if {name for name, place in found.items() if place == 3} == _PLAIN:
        return {"k": 3, "q": 3, "v": 3} | found  # keys first, as tutorials have it
    return found


def is_of_rows(array: str) -> bool:
    """Whether an array has a row for each query and a column for each key."""
    return ARRAYS[array].shape == _SCORES
