"""How often the right side is blamed: seeded mistakes in one of two back-ends, in padding and in decoding.

python -m tests.models.comparing.measure [float32 bfloat16 float16] [FAMILY ...]

Each line has a mistake, a family and a type, and the ways that are wrong where these are not those that must be.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.models.comparing import families
from tests.models.comparing.test_drafts import leaving, mixing, seeing, speculating
from tests.models.comparing.test_generation import all_columns, counting_padding, deaf, losing, windowed

FAMILIES = ("llama", "mistral", "gemma2", "gpt2", "qwen3")
BACKENDS, PADDED, DECODED = ["eager", "sdpa"], ["left padding", "batch"], ["dynamic cache, decoding", "token by token"]
Change = Callable[[dict[str, Any]], dict[str, Any]]


# -- mistakes of one back-end: its arguments, and what becomes of them -------------------------------------------------
def _scaled(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "query": given["query"] * 1.01}


def _turned(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "key": given["key"].roll(1, 1)}


def _late(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "value": given["value"].roll(1, 2)}


def _blind(given: dict[str, Any]) -> dict[str, Any]:
    key = given["key"].clone()
    key[:, :, 0] = 0
    return {**given, "key": key}


CHANGES: dict[str, Change] = {"scale": _scaled, "heads": _turned, "values": _late, "first key": _blind}


def _eager(family: str, change: Change) -> AbstractContextManager[Any]:
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    right = module.eager_attention_forward

    def wrong(owner: Any, query: Any, key: Any, value: Any, *rest: Any, **told: Any) -> Any:
        given = change({"query": query, "key": key, "value": value})
        return right(owner, given["query"], given["key"], given["value"], *rest, **told)

    return patch.object(module, "eager_attention_forward", wrong)


def _sdpa(change: Change) -> AbstractContextManager[Any]:
    import torch

    right = torch.nn.functional.scaled_dot_product_attention

    def wrong(query: Any, key: Any, value: Any, *rest: Any, **told: Any) -> Any:
        given = change({"query": query, "key": key, "value": value})
        return right(given["query"], given["key"], given["value"], *rest, **told)

    return patch.object(torch.nn.functional, "scaled_dot_product_attention", wrong)


# -- what is tried -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Seed:
    """A model, what it is asked, which ways must be wrong and which must not."""

    name: str
    model: Any
    asked: dict[str, Any]
    wrong: set[str]
    right: set[str]
    within: Callable[[], AbstractContextManager[Any]] = nullcontext


def backends(family: str, dtype: str) -> Iterator[Seed]:
    """One back-end is wrong, the other right, and either may be the model's own."""
    has_sdpa = family != "gemma2"
    for own in BACKENDS if has_sdpa else BACKENDS[:1]:
        for name, change in CHANGES.items():
            for side in BACKENDS if has_sdpa else BACKENDS[:1]:
                model = families.made(family, dtype=dtype)
                model.set_attn_implementation(own)
                others = {"sdpa", "eager"} - {side} if has_sdpa else set()
                within = (lambda c=change: _eager(family, c)) if side == "eager" else (lambda c=change: _sdpa(c))
                wrong = {side, *(["prefill"] if own == side else [])}
                right = others | ({"prefill"} if own != side else set())
                yield Seed(f"{name} of {side}, own {own}", model, {"ways": BACKENDS}, wrong, right, within)


def padded(family: str, dtype: str) -> Iterator[Seed]:
    """Padding is wrong, and the same sequence alone is right."""
    right = {"prefill", "batch"}
    yield Seed("padding is seen", deaf(family).to(dtype=_type(dtype)), {"ways": PADDED}, {"left padding"}, right)
    way = "left padding, dynamic cache"
    yield Seed("padding is counted when decoding", families.made(family, dtype=dtype),
               {"ways": [*PADDED, way], "positions": counting_padding}, {way}, {*right, "left padding"})  # fmt: skip
    moved = {"left padding"} if family not in families.ROTATED else set()
    yield Seed("padding is counted everywhere", families.made(family, dtype=dtype),
               {"ways": PADDED, "positions": all_columns}, moved, right)  # fmt: skip
    yield Seed("items of a batch see each other", families.made(family, dtype=dtype),
               {"ways": [*PADDED, "left padding, mine", "mine, decoding"], "caches": {"mine": mixing}},
               {"left padding, mine"}, {*right, "mine, decoding"})  # fmt: skip


def decoded(family: str, dtype: str) -> Iterator[Seed]:
    """Decoding is wrong, and the prefill is right."""
    right = {"prefill", *DECODED}
    for name, cache, way in [
        ("a token is lost", losing, "mine, decoding"),
        ("drafts stay in the cache", leaving, "mine, drafts taken back"),
        *([("the window is short", windowed(-1), "mine, decoding")] if family in families.WINDOWED else []),
    ]:
        yield Seed(name, families.made(family, dtype=dtype), {"ways": [*DECODED, way], "caches": {"mine": cache}},
                   {way}, right)  # fmt: skip
    if family not in families.WINDOWED:
        several = "dynamic cache, 3 tokens at once"
        yield Seed("a draft sees the next", speculating(family, attention_mask=seeing(1)).to(dtype=_type(dtype)),
                   {"ways": [*DECODED, several]}, {several}, right)  # fmt: skip


def _type(dtype: str) -> Any:
    import torch

    return getattr(torch, dtype)


def blamed(seed: Seed) -> tuple[bool, tuple[str, ...]]:
    """Whether the right side is blamed, and which ways are."""
    from symattn import generation

    with seed.within():
        found = generation(seed.model, 10, **seed.asked)
    ways = set(found.wrong) | set(found.differing)
    return seed.wrong <= ways and not ways & seed.right and not found.differing, found.wrong


def main(words: list[str]) -> None:
    """Print the mistakes that are missed or blamed on the other side, and how many are right."""
    for dtype in [word for word in words if word not in FAMILIES] or ["float32", "bfloat16", "float16"]:
        for kind in (backends, padded, decoded):
            count = good = 0
            for family in [word for word in words if word in FAMILIES] or FAMILIES:
                for seed in kind(family, dtype):
                    ok, ways = blamed(seed)
                    count, good = count + 1, good + ok
                    if not ok:
                        print(f"  {dtype}, {family}: {seed.name}: wrong are {', '.join(ways) or 'none'}")
            print(f"{dtype}, {kind.__name__}: {good} of {count} blamed rightly", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
