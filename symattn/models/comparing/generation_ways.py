"""The ways in which the same tokens go through a model: at once, one by one, from caches, padded, in a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from symattn.models.comparing.models import Array, Model, Positions, States, Text, filled, joined

Cache = Callable[[Any, int], Any]  # of the configuration, and the most columns that it has to hold
_SEVERAL, _DRAFTS = 3, 2  # tokens that come at once, and drafts that are taken back


@dataclass(frozen=True)
class GenerationWay:
    """One way.

    cache           what makes the cache (None: everything is computed again)
    chunks          how many tokens come at once, for n tokens
    items           how many sequences there are in the batch
    padding         at which side shorter sequences are filled up
    drafts          wrong tokens that are computed before each chunk but the first, and taken back
    draft           what is added to right tokens to make these
    implementation  of attention (None: the model's own)
    other           whether the words of the second half are others; what it gives is the first half, which must not
                    change
    """

    name: str
    cache: Cache | None = None
    chunks: Callable[[int], Sequence[int]] = lambda n: (n,)
    items: int = 1
    padding: Literal["", "left", "right"] = ""
    drafts: int = 0
    draft: int = 1
    implementation: str | None = None
    other: bool = False

    def run(self, model: Model, sequences: Sequence[Text], positions: Positions, pad: int) -> list[States]:
        """Return the states of the first of the sequences. Raises what the model and the cache raise."""
        model.implemented(self.implementation or model.own)
        given = sequences[: self.items]
        if self.other:
            given = [text.changed(slice(len(text) // 2, None)) for text in given]
        ids, mask = filled([text.words for text in given], self.padding, pad)
        reads = _ran(self, model, ids, mask, positions, model.encoded(given, pad))
        return [read.upto(len(s) // 2) for read, s in zip(reads, given, strict=True)] if self.other else reads


def _ran(
    way: GenerationWay, model: Model, ids: Array, mask: Array, positions: Positions, besides: dict[str, Any]
) -> list[States]:
    """``besides`` is what every step is passed."""
    import torch

    rows, seen = torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64))
    cache = model.cached(way.cache(model.config, ids.shape[1] + way.drafts) if way.cache else None)
    if way.drafts and hasattr(cache, "activate_past_recording"):
        cache.activate_past_recording()
    parts, start = [], 0
    for count in way.chunks(ids.shape[1]):
        end = start + count
        if way.drafts and start:
            wrong = (rows[:, start:end].repeat(1, way.drafts)[:, : way.drafts] + way.draft) % 7
            model.step(wrong, past_key_values=cache, use_cache=True, **besides)
            cache.crop(-way.drafts)
        arguments: dict[str, Any] = {"use_cache": cache is not None, **besides}
        arguments |= {} if cache is None else {"past_key_values": cache}
        if way.padding:
            arguments |= {"attention_mask": seen[:, :end], "position_ids": positions(seen[:, :end], start)}
        parts.append(model.step(rows[:, start:end], **{n: x for n, x in arguments.items() if x is not None}))
        start = end
    return [joined(parts, mask[item], item) for item in range(len(ids))]


# -- those that are tried ----------------------------------------------------------------------------------------------
def _decoding(n: int) -> Sequence[int]:
    return (n // 2, *(1,) * (n - n // 2))


def _several(n: int) -> Sequence[int]:
    rest = n - n // 2
    return (n // 2, *(_SEVERAL,) * (rest // _SEVERAL), *((rest % _SEVERAL,) if rest % _SEVERAL else ()))


def plain_cache(config: object, length: int) -> Any:
    """A cache that keeps every position."""
    from transformers import DynamicCache

    return DynamicCache()


def own_cache(config: Any, length: int) -> Any:
    """The cache that ``generate`` makes: of layers with a window it keeps the window alone."""
    from transformers import DynamicCache

    return DynamicCache(config=config)


def static_cache(config: Any, length: int) -> Any:
    """A cache of fixed size, some of it never filled."""
    from transformers import StaticCache

    return StaticCache(config=config, max_cache_len=length + 3)


PREFIX, PREFILL, CONTINUATION = "prefix alone", "prefill", "other continuation"
TAKEN_BACK = "drafts taken back"
CACHES: Mapping[str, Cache] = {"dynamic cache": own_cache, "static cache": static_cache}
WAYS: tuple[GenerationWay, ...] = (
    GenerationWay(PREFILL),
    GenerationWay(PREFIX, chunks=lambda n: (n // 2,)),
    GenerationWay(CONTINUATION, other=True),
    GenerationWay("eager", implementation="eager"),
    GenerationWay("sdpa", implementation="sdpa"),
    GenerationWay("token by token", plain_cache, lambda n: (1,) * n),
    *(GenerationWay(f"{name}, decoding", cache, _decoding) for name, cache in CACHES.items()),
    *(GenerationWay(f"{name}, {_SEVERAL} tokens at once", cache, _several) for name, cache in CACHES.items()),
    GenerationWay(f"dynamic cache, {TAKEN_BACK}", own_cache, _decoding, drafts=_DRAFTS),
    GenerationWay("batch", items=2),
    GenerationWay("batch, decoding", own_cache, _decoding, items=2),
    GenerationWay("right padding", items=2, padding="right"),
    GenerationWay("left padding", items=2, padding="left"),
    *(GenerationWay(f"left padding, {name}", cache, _decoding, 2, "left") for name, cache in CACHES.items()),
)


def of_caches(caches: Mapping[str, Cache]) -> Iterator[GenerationWay]:
    """The ways in which caches of one's own are tried."""
    for name, cache in caches.items():
        yield GenerationWay(f"{name}, decoding", cache, _decoding)
        yield GenerationWay(f"{name}, {_SEVERAL} tokens at once", cache, _several)
        yield GenerationWay(f"left padding, {name}", cache, _decoding, 2, "left")
        yield GenerationWay(f"{name}, {TAKEN_BACK}", cache, _decoding, drafts=_DRAFTS)
