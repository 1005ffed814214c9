"""Seeded mistakes of generation: in one of two back-ends, in padding, in decoding; and which ways each makes wrong."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest.mock import patch

from tests.models.comparing import families

FAMILIES = ("llama", "mistral", "gemma2", "gpt2", "qwen3")
BACKENDS, PADDED, DECODED = ["eager", "sdpa"], ["left padding", "batch"], ["dynamic cache, decoding", "token by token"]
SEVERAL, DRAFTS = "dynamic cache, 3 tokens at once", "dynamic cache, rejected draft tokens (cache rollback)"
Change = Callable[[dict[str, Any]], dict[str, Any]]


# -- models whose forward pass is given something else, and caches that give back something else -----------------------
def altered(family: str, change: Change) -> Any:
    """A model whose forward pass is given what ``change`` makes of its arguments."""
    base = families.cls(family)

    @wraps(base.forward)
    def forward(self: Any, **told: Any) -> Any:
        return base.forward(self, **change(told))

    return families.made(family, type(base.__name__, (base,), {"forward": forward}))


def masked(family: str, change: Callable[[Any], Any]) -> Any:
    """A model that is given other masks of padding."""
    return altered(family, lambda told: told | {
        "attention_mask": None if told.get("attention_mask") is None else change(told["attention_mask"])
    })  # fmt: skip


def deaf(family: str) -> Any:
    """A model that takes padding for tokens. (Without any mask, transformers takes positions for packed documents.)"""
    return masked(family, lambda mask: mask.new_ones(mask.shape))


def cache_in(told: dict[str, Any]) -> Any:
    """The cache among the arguments of a model, whose name is another one from Transformers 5.24 on."""
    named = (told.get(name) for name in ("cache", "past_key_values"))
    return next((cache for cache in named if cache is not None), None)


def speculating(family: str, **changed: Any) -> Any:
    """A model that makes arguments of its own where several tokens come behind others: functions of (past, new)."""

    def change(told: dict[str, Any]) -> dict[str, Any]:
        cache, new = cache_in(told), told["input_ids"].shape[1]
        past = int(cache.get_seq_length()) if cache is not None else 0
        return told | {name: make(past, new) for name, make in changed.items() if past and new > 1}

    return altered(family, change)


def places(begin: int = 0) -> Any:
    """Places of new tokens that begin so many too late."""
    import torch

    return lambda past, new: torch.arange(past + begin, past + new + begin)[None]


def seeing(further: int) -> Any:
    """A mask (1, 1, new, past + new) in which every token sees so many later ones."""
    import torch

    def make(past: int, new: int) -> Any:
        seen = torch.ones(new, past + new, dtype=torch.bool).tril(past + further)
        zeros = torch.zeros(seen.shape, dtype=torch.get_default_dtype())
        return zeros.masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]

    return make


def cache(change: Callable[[Any, Any, int], Any], bare: bool = False) -> Callable[[Any, int], Any]:
    """Caches that give back what ``change`` makes of keys, values and the number of new tokens, and crop as usual.

    Where they are ``bare`` they know no windows.
    """

    def make(config: Any, length: int) -> Any:
        from transformers import DynamicCache

        class Changed(DynamicCache):
            def update(self, *given: Any, **told: Any) -> Any:
                return change(*super().update(*given, **told), given[0].shape[-2])

        return Changed() if bare else Changed(config=config)

    return make


def _lost(k: Any, v: Any, new: int) -> Any:
    if k.shape[-2] > max(new, 4):
        k, v = k.clone(), v.clone()
        k[:, :, 3], v[:, :, 3] = k[:, :, 2], v[:, :, 2]
    return k, v


losing = cache(_lost, bare=True)  # the place of token 3 holds token 2 when later tokens come
mixing = cache(lambda k, v, new: (k, v) if new > 1 else (k.roll(1, 0), v))  # when decoding, keys are another item's
overflowing = cache(lambda k, v, new: (k, v * 1e5 / 1e5), bare=True)  # where the largest number is small


def leaving(config: Any, length: int) -> Any:
    """A cache that takes nothing back."""
    from transformers import DynamicCache

    class Leaving(DynamicCache):
        def crop(self, *given: Any) -> None:
            pass

    return Leaving(config=config)


def windowed(by: int) -> Any:
    """Caches of windows that are longer or shorter by so many tokens."""

    def make(config: Any, length: int) -> Any:
        from transformers import DynamicCache

        made = DynamicCache(config=config)
        for layer in made.layers:
            if getattr(layer, "is_sliding", False):
                layer.sliding_window += by
        return made

    return make


def keeping_the_front(config: Any, length: int) -> Any:
    """A cache that keeps the first tokens of a prefill that is longer than the window, in place of the last ones."""
    from transformers import DynamicCache

    class Front(DynamicCache):
        def update(self, keys: Any, values: Any, layer: int, *given: Any, **told: Any) -> Any:
            result = super().update(keys, values, layer, *given, **told)
            kept, new = self.layers[layer], keys.shape[-2]
            held = kept.keys.shape[-2]
            if held < new:
                kept.keys, kept.values = keys[:, :, :held], values[:, :, :held]
            return result

    return Front(config=config)


def all_columns(mask: Any, past: int) -> Any:
    """Positions that count padding everywhere: for rotary positions, all tokens are moved alike."""
    import torch

    return torch.arange(past, mask.shape[1])[None].expand(len(mask), -1)


def skipping_padding(mask: Any, past: int) -> Any:
    """Positions without padding, as ``generate`` passes them."""
    return (mask.cumsum(-1) - 1).masked_fill(mask == 0, 0)[:, past:]


def counting_padding(mask: Any, past: int) -> Any:
    """Positions without padding in the prefill, and with it afterwards."""
    return all_columns(mask, past) if past else skipping_padding(mask, past)


# -- mistakes of one back-end: its arguments, and what becomes of them -------------------------------------------------
def _blind(given: dict[str, Any]) -> dict[str, Any]:
    key = given["key"].clone()
    key[:, :, 0] = 0
    return {**given, "key": key}


CHANGES: dict[str, Change] = {
    "scale": lambda given: {**given, "query": given["query"] * 1.01},
    "heads": lambda given: {**given, "key": given["key"].roll(1, 1)},
    "values": lambda given: {**given, "value": given["value"].roll(1, 2)},
    "first key": _blind,
}


def eager(family: str, change: Change) -> AbstractContextManager[Any]:
    """While it lasts the eager function of a family gets what ``change`` makes of queries, keys and values."""
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    right = module.eager_attention_forward

    def wrong(owner: Any, query: Any, key: Any, value: Any, *rest: Any, **told: Any) -> Any:
        return right(owner, *change({"query": query, "key": key, "value": value}).values(), *rest, **told)

    return patch.object(module, "eager_attention_forward", wrong)


def sdpa(change: Change) -> AbstractContextManager[Any]:
    """The same of torch's function."""
    import torch

    right = torch.nn.functional.scaled_dot_product_attention

    def wrong(query: Any, key: Any, value: Any, *rest: Any, **told: Any) -> Any:
        return right(*change({"query": query, "key": key, "value": value}).values(), *rest, **told)

    return patch.object(torch.nn.functional, "scaled_dot_product_attention", wrong)


# -- what is tried -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Seed:
    """A model, what it is asked, which ways must be wrong and which must not, and where: item, layer, token, seen.

    None of a place stands for anything, and words that end in … for any that hold them.
    """

    name: str
    model: Any
    asked: dict[str, Any]
    wrong: set[str]
    right: set[str]
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    at: tuple[int | None, str | None, int | None, str | None] | None = None


def backends(family: str, dtype: str) -> Iterator[Seed]:
    """One back-end is wrong, the other right, and either may be the model's own."""
    has_sdpa = family != "gemma2"
    for own in BACKENDS if has_sdpa else BACKENDS[:1]:
        for name, change in CHANGES.items():
            for side in BACKENDS if has_sdpa else BACKENDS[:1]:
                model = families.made(family, dtype=dtype)
                model.set_attn_implementation(own)
                others = {"sdpa", "eager"} - {side} if has_sdpa else set()
                within = (lambda c=change: eager(family, c)) if side == "eager" else (lambda c=change: sdpa(c))
                wrong = {side, *(["prefill"] if own == side else [])}
                right = others | ({"prefill"} if own != side else set())
                yield Seed(f"{name} of {side}, own {own}", model, {"ways": BACKENDS}, wrong, right, within)


def padded(family: str, dtype: str) -> Iterator[Seed]:
    """Padding is wrong, and the same sequence alone is right."""
    right = {"prefill", "batch"}
    model = families.made(family, dtype=dtype)
    yield Seed("padding is seen", deaf(family).to(dtype=model.dtype), {"ways": PADDED}, {"left padding"}, right,
               at=(1, "layers.0", 0, "sees padding…"))  # fmt: skip
    way, first = "left padding, dynamic cache", "embeddings" if family == "gpt2" else "layers.0"
    yield Seed("padding is counted when decoding", model, {"ways": [*PADDED, way], "positions": counting_padding},
               {way}, {*right, "left padding"}, at=(1, first, 1, None))  # fmt: skip
    moved = {"left padding"} if family not in families.ROTATED else set()
    yield Seed("padding is counted everywhere", model, {"ways": PADDED, "positions": all_columns}, moved, right)
    yield Seed("items of a batch see each other", model,
               {"ways": [*PADDED, "left padding, mine", "mine, decoding"], "caches": {"mine": mixing}},
               {"left padding, mine"}, {*right, "mine, decoding"},
               at=(None, None, None, "sees another sequence…"))  # fmt: skip


def decoded(family: str, dtype: str) -> Iterator[Seed]:
    """Decoding is wrong, and the prefill is right."""
    right, model = {"prefill", *DECODED}, families.made(family, dtype=dtype)
    way, drafts = "mine, decoding", "mine, rejected draft tokens (cache rollback)"
    long = "mine, decoding after a prefill longer than the window"
    windowed_family = family in families.WINDOWED
    # Decoding begins where it just fills the window of 5, and behind half of the 10 tokens without a window.
    first = 4 if windowed_family else 5
    lost = "does not see tokens 1, 2 and " if windowed_family else ""
    taken_back = None if family == "gpt2" else f"{lost}sees rejected draft tokens"
    for name, store, wrong, at in [
        ("a token is lost", losing, way, (None, "layers.0", first, "does not see token 3")),
        ("drafts stay in the cache", leaving, drafts, (None, None, 5, taken_back)),
        *([("the window is short", windowed(-1), way, (None, "layers.0", first, "does not see token 0")),
           ("the front of a long prefill is kept", keeping_the_front, long,
            (None, "layers.0", 7, "does not see tokens 4, 5, 6 and sees tokens 0, 1, 2, which it must not"))]
          if windowed_family else []),
    ]:  # fmt: skip
        yield Seed(name, model, {"ways": [*DECODED, wrong], "caches": {"mine": store}}, {wrong}, right, at=at)
    if not windowed_family:
        yield Seed("a draft sees the next", speculating(family, attention_mask=seeing(1)).to(dtype=model.dtype),
                   {"ways": [*DECODED, SEVERAL]}, {SEVERAL}, right,
                   at=(None, "layers.0", 5, "sees token 6, which it must not"))  # fmt: skip


def blamed(seed: Seed) -> tuple[bool, tuple[str, ...]]:
    """Whether the right side is blamed, at the right place, and which ways are."""
    with seed.within():
        found = families.generation(seed.model, 10, **seed.asked)
    ways = set(found.wrong) | set(found.differing)
    rightly = seed.wrong <= ways and not ways & seed.right and not found.differing
    return rightly and all(_there(found[way].first, seed.at) for way in seed.wrong if seed.at), found.wrong


def _there(first: Any, at: Any) -> bool:
    *where, seen = at
    words = seen is None or first.seen == seen or (seen.endswith("…") and seen[:-1] in first.seen)
    pairs = zip(where, (first.item, first.layer, first.token), strict=True)
    return words and all(wanted in (None, got) for wanted, got in pairs)
