"""Mistakes of caches: by the role of the number of tokens in a cache, of what is written, read, seen and returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.attention import masks
from symattn.attention.flow import Step
from symattn.bounds.changed_steps import in_stated_steps
from symattn.bounds.mistake import At, Mistake, Wrong
from symattn.bounds.mistake import step as step_of
from symattn.verification.rules import rotating

_PAGES = (2, 4, 8, 16, 32, 64)  # slots of a page


# -- which slots a new token sees --------------------------------------------------------------------------------------
class Slots(NamedTuple):
    """The slots of a cache: a column of new tokens i of n, a row of slots j, and the ``length`` before the tokens."""

    i: np.ndarray
    j: np.ndarray
    length: int
    n: int

    @property
    def own(self) -> np.ndarray:
        """The slot of each new token."""
        return self.length + self.i

    @property
    def end(self) -> int:
        """The first slot after all tokens."""
        return self.length + self.n

    @property
    def all(self) -> int:
        """The number of slots."""
        return int(self.j.shape[-1])


#: Booleans (n, slots): which slots each new token sees.
Seen = Callable[[Slots], Any]
#: With and without empty slots.
_SEEN: Mapping[str, Seen] = {
    "the causal mask is aligned top-left: new tokens see the first keys": lambda s: s.j <= s.i,
    "new tokens see those after them": lambda s: s.j < s.end + 0 * s.i,
    "the causal mask is off by one: a new token does not see itself": lambda s: s.j < s.own,
    "new tokens after the first one do not see themselves": lambda s: s.j <= s.own - (s.i > 0),
    "the new tokens are not seen: the length is that before them": lambda s: (
        s.j < s.length + 0 * s.i
    ),
    "the last new token is not seen: the length with the new tokens is one too small": lambda s: (
        (s.j <= s.own) & (s.j < s.end - 1)
    ),
    "the last token of the cache is not seen: its length is one too small": lambda s: (
        (s.j <= s.own) & (s.j != s.length - 1)
    ),
    "every new token sees what the first one sees": lambda s: s.j <= s.length + 0 * s.i,
    "the length is taken to count the new tokens, which are not seen": lambda s: s.j <= s.own - s.n,
}


def _see_whole_page(size: int, s: Slots) -> Any:
    end_of_page = -(-s.end // size) * size
    return (s.j <= s.own) | (s.j >= s.end) & (s.j < end_of_page)


#: With empty slots alone.
_SEEN_EMPTY: Mapping[str, Seen] = {
    "empty slots of the cache are attended to": lambda s: (s.j <= s.own) | (s.j >= s.end),
    "every slot is attended to, empty ones and later tokens too": lambda s: s.j >= 0 * s.i,
    "one slot too many is attended to": lambda s: s.j <= s.own + 1,
    "the first empty slot is attended to: the length with the new tokens is one too large": lambda s: (
        (s.j <= s.own) | (s.j == s.end)
    ),
    "the causal mask is aligned with the last slots of the cache, not with the last tokens": lambda s: (
        s.j <= s.all - s.n + s.i
    ),
    "the causal mask is aligned with the last slots of the cache, of which empty ones are hidden": lambda s: (
        (s.j <= s.all - s.n + s.i) & (s.j < s.end)
    ),
    "the causal mask begins at the length with the new tokens: these are counted twice": lambda s: (
        s.j <= s.own + s.n
    ),
    **{
        f"all slots of the last page of {size} are attended to, empty ones too": partial(
            _see_whole_page, size
        )
        for size in _PAGES
    },
}


def _see_first_slot_if_none(seen: Seen, s: Slots) -> Any:
    visible = np.asarray(seen(s))
    return visible | (s.j == 0) & ~visible.any(axis=-1, keepdims=True)


def _may_see_none(seen: Seen) -> bool:
    """Return whether a new token of an empty cache may see no slot, alone or with a second one."""
    places = [np.arange(n) for n in (1, 2)]
    calls = [Slots(place[:, None], place[None, :], 0, len(place)) for place in places]
    return not all(np.asarray(seen(s)).any(axis=-1).all() for s in calls)


def _yield_wrong_masks(static: bool) -> Iterator[tuple[str, Seen]]:
    yield from ({**_SEEN, **_SEEN_EMPTY} if static else _SEEN).items()
    # Code that leaves some token without any slot has no result for it, or another one.
    for words, seen in _SEEN.items():
        if _may_see_none(seen):
            first = partial(_see_first_slot_if_none, seen)
            yield f"{words}; without any other, the first slot is", first


def mistakes_of_read(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield mistakes of the tokens that are read from a cache, and of which of them a new token sees."""
    reads = _steps_of_role(spec, "read")
    # Keys and values are read alike.
    if step is not reads[0]:
        return
    # All slots are read, so that the wrong mask alone decides which of them a token sees.
    of_all: dict[str, Wrong] = {one.name: lambda at: at.first * 1 for one in reads}
    for words, seen in _yield_wrong_masks(spec.static):
        forbidding: dict[str, Wrong] = {"masked": partial(_forbid_unseen, seen)}
        yield in_stated_steps(spec, "mask", words, of_all | forbidding)
    of_new: dict[str, Wrong] = {one.name: _read_new_tokens for one in reads}
    words = "the cache is not attended to, only the new tokens"
    yield in_stated_steps(spec, step.blames, words, of_new)
    if spec.rotary is not None:
        words = "the cache's keys, rotated when they were written, are rotated again"
        yield in_stated_steps(spec, "position", words, {step.name: _read_rotated_again})


def _forbid_unseen(seen: Seen, at: At) -> Any:
    """Return the scores of the slots that are seen, else −∞."""
    s, n = at.first, at.size("k", -2)
    i, j = np.arange(n)[:, None], np.arange(int(s.shape[-1]))[None, :]
    visible = np.asarray(seen(Slots(i, j, at.values["filled"], n)))
    return masks.forbid(s, visible)


def _read_new_tokens(at: At) -> Any:
    tokens = at.right()
    return tokens[..., int(tokens.shape[-2]) - at.size("k", -2) :, :]


def _read_rotated_again(at: At) -> Any:
    rotary: Any = at.spec.rotary  # type: ignore[attr-defined]
    cache = rotating.rotate_from_position(rotary, at.values["k_cache"], 0)
    return at.right(at.of("k_all", cache))


# -- the number of tokens ----------------------------------------------------------------------------------------------
OtherLength = Callable[[int], int]
_STARTS: Mapping[str, OtherLength] = {
    "new tokens are rotated as if the cache were empty, from position 0": lambda length: 0,
    "positions of the new tokens are one too large": lambda length: length + 1,
    "positions of the new tokens are one too small": lambda length: length - 1,
}
_SLOTS: Mapping[str, OtherLength] = {
    "are written one slot too late": lambda length: length + 1,
    "are written one slot too early, over the last one": lambda length: length - 1,
    "are written at the beginning of the cache": lambda length: 0,
}


def mistakes_of_length(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield other lengths in the steps that read the length of a cache: where tokens are written, and rotated."""
    readers = [one for one in spec.pipeline_of_all if one.of[-1] == step.name]
    written = [one for one in readers if one.role == "written"]
    for new, of in _group_by_arrays("new tokens", {"k": "new keys", "v": "new values"}, written):
        # Without empty slots there is none after the end to write to.
        slots = {words: slot for words, slot in _SLOTS.items() if spec.static or slot(1) <= 1}
        wrong: dict[str, Wrong] = {
            f"{new} {words}": partial(_run_from_length, slot) for words, slot in slots.items()
        }
        if not spec.static:
            wrong[f"{new} are put before the cache, not behind it"] = _put_before_cache
        for words, write in wrong.items():
            yield in_stated_steps(spec, "cache", words, {one.name: write for one in of})
            # Without caches that are returned, there is nothing to be wrong in them alone.
            returned = {
                back.name: partial(_return_otherwise, write)
                for one in of
                for back in _steps_of_role(spec, "returned cache")
                if back.of == (one.name,)
            }
            if returned:
                words = f"{words}, in what is returned alone"
                yield in_stated_steps(spec, "cache", words, returned)
    rotated = [one for one in readers if one.role == "rotated"]
    groups = _group_by_arrays("new tokens", {"q": "new queries", "k": "new keys"}, rotated)
    for cause, start in _STARTS.items() if rotated else ():
        for new, of in groups:
            words = cause.replace("new tokens", new)
            changes: dict[str, Wrong] = {one.name: partial(_run_from_length, start) for one in of}
            yield in_stated_steps(spec, "position", words, changes)


def _group_by_arrays(
    both: str, nouns: Mapping[str, str], steps: Sequence[Step]
) -> list[tuple[str, Sequence[Step]]]:
    """Return all steps, and each alone, in words for the first letter of its array."""
    return [(both, steps), *((nouns[one.name[0]], [one]) for one in steps)]


def _run_from_length(other: OtherLength, at: At) -> Any:
    *arrays, length = at.taken
    return at.right(*arrays, other(length))


def _put_before_cache(at: At) -> Any:
    cache, new, _ = at.taken
    return namespace_of(new).concat([new, cache], axis=-2)


def _return_otherwise(write: Wrong, at: At) -> Any:
    """Return a cache as if it had been written otherwise than the one that is read."""
    (written,) = step_of(at.spec, at.values, at.name).of
    return write(replace(at, name=written))


# -- what is returned --------------------------------------------------------------------------------------------------
def mistakes_of_returned(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield mistakes of the caches that are returned: they are returned without the new tokens."""
    returned = _steps_of_role(spec, "returned cache")
    # Both caches are returned alike, so that the rule runs once.
    if step is not returned[0]:
        return
    for new, of in _group_by_arrays("new tokens", {"k": "new keys", "v": "new values"}, returned):
        words = f"the cache is returned unchanged, without the {new}"
        yield in_stated_steps(spec, step.blames, words, {one.name: _return_unchanged for one in of})


def _return_unchanged(at: At) -> Any:
    return at.values[f"{at.name[0]}_cache"] * 1


def _steps_of_role(spec: Any, role: str) -> list[Step]:
    return [one for one in spec.pipeline_of_all if one.role == role]
