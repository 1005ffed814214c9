"""Caches of every kind, token by token and in chunks, give the rows of causal attention over all tokens."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from symattn import Attention, InputError, Rotary, functional, streaming
from tests.attention.definition import drawn, exactly, legal, proved
from tests.refusals import refuses

pytestmark = pytest.mark.smoke

N, SLOTS, WINDOW = 7, 3, 3
DATA = drawn(21, q=(N, 2), k=(N, 2), v=(N, 3))
SCORES = Attention(scale=1, mask="boolean")
CHUNKS = {"tokens": range(N + 1), "chunks": (0, 1, 2, 5, N), "at once": (0, N)}
JUNK = 100  # what stands in slots that hold no token: it must not be seen


def window(at: functional.Places) -> Any:
    return functional.window(at, WINDOW)


def decoded(
    start: Any, bounds: Any, q: Any, k: Any, v: Any, mask: Any = functional.causal, before: bool = False, heads: int = 1
) -> Any:
    """The outputs of all tokens: each chunk is appended, and attends; or attends beside the cache, and is appended."""
    cache, outputs = start(k, v), []
    for lo, hi in pairwise(bounds):
        new = (k[..., lo:hi, :], v[..., lo:hi, :])
        slots = streaming.beside(cache, *new) if before else None
        cache = streaming.append(cache, *new)
        outputs.append(
            streaming.attend(replace(SCORES, heads=heads), q[..., lo:hi, :], slots or streaming.held(cache), mask)
        )
    return q.__array_namespace__().concat(outputs, axis=-2)


def room(n: int, k: Any, v: Any) -> tuple[Any, Any]:
    """Slots full of what does not belong there."""
    xp = k.__array_namespace__()
    return tuple(xp.concat([x * 0 + JUNK] * 2, axis=-2)[:n] for x in (k, v))  # type: ignore[return-value]


def growing(k: Any, v: Any) -> streaming.Growing:
    return streaming.Growing(k[:0], v[:0])


def static(k: Any, v: Any) -> streaming.Static:
    return streaming.Static(*room(N + 2, k, v), 0)


def sliding(k: Any, v: Any, slots: int = SLOTS, kept: int = 0) -> streaming.Sliding:
    return streaming.Sliding(*room(slots, k, v), 0, kept)


CAUSAL, LOCAL = Attention(scale=1, causal=True), Attention(scale=1, causal=True, window=WINDOW)
FORMS = {
    **{f"growing, {name}": (partial(decoded, growing, b), CAUSAL) for name, b in CHUNKS.items()},
    **{f"static, {name}": (partial(decoded, static, b), CAUSAL) for name, b in CHUNKS.items()},
    "static, beside": (partial(decoded, static, CHUNKS["chunks"], before=True), CAUSAL),
    "static, window": (partial(decoded, static, CHUNKS["chunks"], mask=window), LOCAL),
    "ring, tokens": (partial(decoded, sliding, CHUNKS["tokens"], mask=window), LOCAL),
    "ring, tokens, wider": (partial(decoded, partial(sliding, slots=5), CHUNKS["tokens"], mask=window), LOCAL),
    "ring, chunks in a wider one": (partial(decoded, partial(sliding, slots=5), (0, 3, 6, 7), mask=window), LOCAL),
    **{
        f"ring, {name}, beside": (partial(decoded, sliding, b, mask=window, before=True), LOCAL)
        for name, b in CHUNKS.items()
    },
    "prefill": (lambda q, k, v: streaming.prefill(CAUSAL, q, k, v, (0, 2, 3, N)), CAUSAL),
    "prefill, window": (lambda q, k, v: streaming.prefill(LOCAL, q, k, v, (0, 2, 3, N)), LOCAL),
}


RIGHT = ("growing, tokens", "ring, tokens", "prefill")  # what wrong forms are compared with


@pytest.mark.parametrize("name", FORMS)
def test_a_cache_gives_the_rows_of_causal_attention(name: str) -> None:
    form, definition = FORMS[name]
    assert exactly(form, definition, DATA)
    if "beside" in name or name in RIGHT:
        assert legal(form, DATA)


def kept_first(at: functional.Places) -> Any:
    """The window and the first token."""
    return window(at) | ((at.j < 1) & functional.causal(at))


@pytest.mark.parametrize("before", [False, True])
def test_a_ring_that_keeps_its_first_token(before: bool) -> None:
    bounds = CHUNKS["chunks" if before else "tokens"]
    form = partial(decoded, partial(sliding, slots=4, kept=1), bounds, mask=kept_first, before=before)
    seen = kept_first(functional.places(np.zeros((N, N))))
    assert exactly(form, partial(SCORES, mask=seen), DATA)
    assert not exactly(form, LOCAL, DATA)


# -- what is wrong ---------------------------------------------------------------------------------------------------
def slots_as_positions(q: Any, k: Any, v: Any) -> Any:
    """A ring whose mask takes the numbers of slots for positions."""
    cache, outputs = sliding(k, v), []
    for t in range(N):
        cache = streaming.append(cache, k[t : t + 1], v[t : t + 1])
        slots = streaming.held(cache)._replace(positions=np.arange(SLOTS), filled=np.arange(SLOTS) < cache.length)
        outputs.append(streaming.attend(SCORES, q[t : t + 1], slots, window))
    return q.__array_namespace__().concat(outputs, axis=-2)


def stale(q: Any, k: Any, v: Any) -> Any:
    """A ring whose empty slots count as filled."""
    cache, outputs = sliding(k, v), []
    for t in range(N):
        cache = streaming.append(cache, k[t : t + 1], v[t : t + 1])
        slots = streaming.held(cache)._replace(filled=np.full(SLOTS, True))
        outputs.append(streaming.attend(SCORES, q[t : t + 1], slots, lambda at: functional.causal(at)))
    return q.__array_namespace__().concat(outputs, axis=-2)


def late(q: Any, k: Any, v: Any) -> Any:
    """Prefill in which each chunk lacks its last key."""
    chunks = [CAUSAL(q[lo:hi], k[: max(hi - 1, 1)], v[: max(hi - 1, 1)]) for lo, hi in ((0, 2), (2, 3), (3, N))]
    return q.__array_namespace__().concat(chunks, axis=-2)


FALSE = {
    "slots as positions": (slots_as_positions, "ring, tokens"),
    "stale slots": (stale, "ring, tokens"),
    "a chunk overwrites what it sees": (partial(decoded, sliding, CHUNKS["chunks"], mask=window), "ring, tokens"),
    "a ring that is too short": (
        partial(decoded, partial(sliding, slots=2), range(N + 1), mask=window),
        "ring, tokens",
    ),
    "a chunk without its last key": (late, "prefill"),
    "aligned at the top left": (
        lambda q, k, v: streaming.prefill(Attention(scale=1, causal=True, alignment="top-left"), q, k, v, (0, 2, 3, N)),
        "prefill",
    ),
    "a cache read before it is written": (
        lambda q, k, v: q.__array_namespace__().concat(
            [CAUSAL(q[:1], k[:1], v[:1]), *[CAUSAL(q[t : t + 1], k[:t], v[:t]) for t in range(1, N)]], axis=-2
        ),
        "growing, tokens",
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_wrong_cache_is_refused(name: str) -> None:
    wrong, right = FALSE[name]
    assert not exactly(wrong, FORMS[right][1], DATA)
    assert not legal(wrong, DATA, bounded_by=FORMS[right][0])


# -- slots -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("slots", [3, 4, 7])
def test_what_the_slots_of_a_ring_hold(slots: int, kept: int) -> None:
    """By writing token after token into a list, and by chunks of every length."""
    written = [-1] * slots
    for token in range(20):
        ring = streaming.Sliding(np.zeros((slots, 1)), np.zeros((slots, 1)), token, kept)
        assert np.where(streaming.held(ring).filled, streaming.held(ring).positions, -1).tolist() == written
        written[token if token < kept else kept + (token - kept) % (slots - kept)] = token
    tokens = np.arange(20.0)[:, None]
    for first in range(12):
        for more in range(1, 8):
            cache = streaming.append(
                streaming.Sliding(-np.ones((slots, 1)), -np.ones((slots, 1)), 0, kept), tokens[:1], tokens[:1]
            )
            for lo, hi in ((1, 1 + first), (1 + first, 1 + first + more)):
                cache = streaming.append(cache, tokens[lo:hi], tokens[lo:hi]) if lo < hi else cache
            assert cache.v[:, 0].tolist() == streaming.held(cache).positions.tolist()


def seen(slots: streaming.Held, n: int, *mask: Any) -> Any:
    """Which slots have a weight in the rows of the last n tokens."""
    return (streaming.attend(SCORES, np.zeros((n, 1)), slots._replace(v=np.eye(3)), *mask) > 0).tolist()


def test_which_slots_are_seen() -> None:
    cache = streaming.Sliding(np.zeros((3, 1)), np.zeros((3, 1)), 4)  # positions 3, 1, 2
    ring, two = streaming.held(cache), streaming.held(streaming.Static(cache.k, cache.v, 2))
    assert seen(ring, 1) == [[True, True, True]]
    assert seen(ring, 2) == [[False, True, True], [True, True, True]]
    assert seen(ring, 1, lambda at: functional.window(at, 2)) == [[True, False, True]]
    assert seen(two, 1) == [[True, True, False]]
    assert seen(two, 1, lambda at: at.j >= 0) == [[True, True, False]]


def test_heads_are_shared_and_sinks_take_their_part() -> None:
    data = drawn(22, q=(2, 4, 5, 2), k=(2, 2, 5, 2), v=(2, 2, 5, 3), sink=(4,))
    whole = Attention(scale=1, heads=4, kv_heads=2, causal=True, window=2, sink="given")
    masked = Attention(scale=1, heads=4, kv_heads=2, mask="boolean", sink="given")

    def form(q: Any, k: Any, v: Any, sink: Any) -> Any:
        cache, outputs = streaming.Sliding(k[..., :2, :] * 0, v[..., :2, :] * 0, 0), []
        for lo, hi in ((0, 1), (1, 4), (4, 5)):
            new = (k[..., lo:hi, :], v[..., lo:hi, :])
            slots = streaming.beside(cache, *new)
            outputs.append(
                streaming.attend(masked, q[..., lo:hi, :], slots, lambda at: functional.window(at, 2), sink=sink)
            )
            cache = streaming.append(cache, *new)
        return q.__array_namespace__().concat(outputs, axis=-2)

    assert exactly(form, lambda q, k, v, sink: whole(q, k, v, sink=sink), data)
    assert legal(form, data)


TRIPLES = ((3, 4, 5), (5, 12, 13))


@pytest.mark.parametrize("start", [growing, static, sliding])
def test_keys_are_rotated_before_they_are_cached(start: Any) -> None:
    """By the position that they have, whatever their slot; a growing cache may also leave it to the specification."""
    data = drawn(23, q=(N, 4), k=(N, 4), v=(N, 3))
    spec = Attention(scale=1, causal=True, window=WINDOW, position=Rotary(triples=TRIPLES))

    def form(q: Any, k: Any, v: Any, first: int = 0) -> Any:
        rotated = [functional.rotate(x, *functional.pythagorean_tables(N, TRIPLES, x, first)) for x in (q, k)]
        return decoded(start, CHUNKS["chunks"], rotated[0], rotated[1], v, mask=window, before=True)

    def left_to_it(q: Any, k: Any, v: Any) -> Any:
        return streaming.prefill(spec, q, k, v, CHUNKS["chunks"])

    def anew(q: Any, k: Any, v: Any) -> Any:
        """Each chunk counts its positions from 0."""
        chunks = [[x[lo:hi] for x in (q, k)] for lo, hi in pairwise(CHUNKS["chunks"])]
        rotated = [
            [functional.rotate(x, *functional.pythagorean_tables(len(x), TRIPLES, x)) for x in chunk]
            for chunk in chunks
        ]
        whole = [q.__array_namespace__().concat(parts, axis=0) for parts in zip(*rotated, strict=True)]
        return decoded(start, CHUNKS["chunks"], *whole, v, mask=window, before=True)

    assert exactly(form, spec, data)
    assert exactly(left_to_it, spec, data)
    assert exactly(partial(form, first=3), spec, data)  # only distances count
    assert not exactly(anew, spec, data)


def test_no_room() -> None:
    two = np.zeros((2, 1))
    refuses(streaming.append, streaming.Static(two, two, 1), two, two, says="3 tokens in a cache with room for 2")
    refuses(streaming.append, streaming.Sliding(two, two, 0, 2), two, two, says="a ring of 2 slots of which 2 are kept")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (Attention(mask="boolean", position=Rotary()), "rotate queries and keys before they are cached"),
        (Attention(mask="boolean", causal=True), "causal would refer to slots"),
        (Attention(mask="boolean", window=(1, 0)), "window would refer to slots"),
    ],
)
def test_what_goes_by_slots_is_refused(spec: Attention, says: str) -> None:
    two = np.zeros((2, 2))
    with pytest.raises(InputError, match=says):
        streaming.attend(spec, two, streaming.held(streaming.Static(two, two, 2)))


def test_a_cache_is_not_changed() -> None:
    k, v = np.zeros((3, 2)), np.zeros((3, 1))
    pages = streaming.Paged(k[:, None], v[:, None], np.array([[0, 1]]), np.array([0]))
    for cache in (streaming.Growing(k, v), streaming.Static(k, v, 1), streaming.Sliding(k, v, 1)):
        streaming.append(cache, k[:1] + 1, v[:1] + 1)
    streaming.append(pages, k[None, :1] + 1, v[None, :1] + 1)
    assert not k.any()
    assert not v.any()
    assert pages.lengths.tolist() == [0]


# -- all sizes -------------------------------------------------------------------------------------------------------
OLD = {"q": "p d", "k": "p+n+r d", "v": "p+n+r w", "x": "n d", "y": "n d", "z": "n w"}


def last_rows(q: Any, k: Any, v: Any, x: Any, y: Any, z: Any, size: Any) -> Any:
    """The rows of the n new tokens in causal attention over p + n tokens."""
    p, xp = size["p"], q.__array_namespace__()
    whole = [xp.concat([old[:p], new], axis=0) for old, new in ((q, x), (k, y), (v, z))]
    return CAUSAL(*whole)[p:]


def static_step(q: Any, k: Any, v: Any, x: Any, y: Any, z: Any, size: Any) -> Any:
    """n tokens appended to p in a cache with room for r more, whose slots hold anything."""
    return streaming.attend(SCORES, x, streaming.held(streaming.append(streaming.Static(k, v, size["p"]), y, z)))


def every_slot(q: Any, k: Any, v: Any, x: Any, y: Any, z: Any, size: Any) -> Any:
    """The same, in which the slots that hold no token are seen."""
    cache = streaming.append(streaming.Static(k, v, size["p"]), y, z)
    return SCORES(x, cache.k, cache.v, mask=streaming.held(cache).positions[None, :] >= 0)


def test_a_static_cache_for_all_sizes() -> None:
    assert proved(static_step, last_rows, OLD)
    assert not proved(every_slot, last_rows, OLD)


def test_chunked_prefill_for_all_sizes() -> None:
    shapes = {"q": "a+b d", "k": "a+b d", "v": "a+b w"}

    def form(q: Any, k: Any, v: Any, size: Any) -> Any:
        a, b = size["a"], size["b"]
        return streaming.prefill(CAUSAL, q, k, v, (0, a, a + b))

    assert proved(form, lambda q, k, v, size: CAUSAL(q, k, v), shapes)
    assert not proved(form, lambda q, k, v, size: Attention(scale=1)(q, k, v), shapes)
