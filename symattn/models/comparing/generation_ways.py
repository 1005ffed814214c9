"""Run a language model of transformers in several ways, for its states and logits, in two precisions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import numpy as np

from symattn.document.errors import InputError, MissingExtra, Refused
from symattn.models.auditing.setting import Args, Kwargs, Module, Tensor, numbers
from symattn.programs.names import Function

Array = np.ndarray
MOST = 200_000_000  # parameters: a copy in float64 takes 1.6 GB
#: Returns the positions of new columns, given the mask (b, columns) and the number of columns in the cache.
Positions = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class Text:
    """A sequence: its tokens, and the input of the encoder, tokens or features (rows, frames)."""

    words: Array
    source: Array | None = None

    def __len__(self) -> int:
        return len(self.words)

    def changed(self, at: int | slice) -> Text:
        """Return the sequence with other words at a place."""
        other = self.words.copy()
        other[at] = np.where(other[at] != 1, 1, 2)
        return Text(other, self.source)


#: The states of a sequence in a way: hidden states (n, d) of the embeddings and after each layer, the last after the
#: final norm, and the logits (n, words), as float64.
States = tuple[Array, ...]


def generates(mask: Tensor, past: int) -> Tensor:
    """Return the positions that ``generate`` passes: padding is not counted."""
    return (mask.cumsum(-1) - 1).masked_fill(mask == 0, 0)[:, past:]


def libraries() -> None:
    """Raise ``MissingExtra`` without torch or transformers."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "transformers", "transformers") from error


class Model:
    """A copy of a model in evaluation mode, in the type of its weights or widened to float64."""

    def __init__(self, model: Module, wide: bool) -> None:
        self._model = copy.deepcopy(model).eval()
        self._wide = wide
        if wide:
            self._model = self._model.double()
            if hasattr(self._model, "set_experts_implementation"):
                self._model.set_experts_implementation("eager")  # others refuse float64
        self.config = self._model.config
        self.encodes = bool(self.config.is_encoder_decoder)
        # a state that no cache can roll back
        self.is_stateful = bool(getattr(self._model, "_is_stateful", False))
        self.own = str(self.config._attn_implementation or "eager")

    def implemented(self, name: str) -> None:
        """Compute attention by this implementation from now on."""
        self._model.set_attn_implementation(name)

    def encoded(self, texts: Sequence[Text], pad: int) -> dict[str, Tensor]:
        """Return the further arguments of each step of a model with an encoder: its states, and its mask."""
        import torch

        sources = [text.source for text in texts if text.source is not None]
        if not self.encodes or not sources:
            return {}
        if sources[0].ndim == 1:
            # One source alone needs no padding.
            ids, mask = filled(sources, "right" if len(sources) > 1 else "", pad)
            inputs = {
                "input_ids": torch.from_numpy(ids),
                "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            }
        else:
            inputs = {
                self._model.main_input_name: torch.from_numpy(np.stack(sources)).to(
                    self._model.dtype
                )
            }
        with torch.no_grad(), _force_float64_arithmetic() if self._wide else nullcontext():
            states = self._model.get_encoder()(**inputs)
        return {"encoder_outputs": states} | {
            n: x for n, x in inputs.items() if n == "attention_mask"
        }

    def cached(self, cache: object) -> Any:
        """Return a cache in the form that the model takes: with one for the encoder's states if it has an encoder."""
        if cache is None or not self.encodes:
            return cache
        from transformers import DynamicCache, EncoderDecoderCache

        return EncoderDecoderCache(cache, DynamicCache())

    def step(self, ids: object, cache: object = None, **keywords: object) -> list[Array]:
        """Run a forward pass; return hidden states and logits (b, n, …) of the tokens."""
        import torch

        # The name of the parameter differs between versions of Transformers.
        if cache is not None:
            keywords[
                "cache"
                if "cache" in signature(self._model.forward).parameters
                else "past_key_values"
            ] = cache
        keywords |= {
            "decoder_input_ids" if self.encodes else "input_ids": ids,
            "output_hidden_states": True,
        }
        with torch.no_grad(), _force_float64_arithmetic() if self._wide else nullcontext():
            output = self._model(**keywords)
        states = output.decoder_hidden_states if self.encodes else output.hidden_states
        if states is None:
            raise InputError(f"{type(self._model).__name__} gives no hidden states")
        if len(states) < 2:
            raise InputError(
                f"{type(self._model).__name__} has no layer, so that there is nothing to compare"
            )
        return [numbers(a) for a in (*states, output.logits)]


def filled(sequences: Sequence[Array], padding: str, pad: int) -> tuple[Array, Array]:
    """Return sequences as rows, and where they hold tokens; without padding all are cut to the shortest."""
    lengths = [len(s) for s in sequences]
    if not padding:
        rows = np.stack([s[: min(lengths)] for s in sequences])
        return rows, np.ones(rows.shape, dtype=bool)
    ids = np.full((len(sequences), max(lengths)), pad)
    mask = np.zeros(ids.shape, dtype=bool)
    for row, s in enumerate(sequences):
        # Padding on the left or on the right of the tokens.
        free = ids.shape[1] - len(s)
        at = slice(free, None) if padding == "left" else slice(0, len(s))
        ids[row, at], mask[row, at] = s, True
    return ids, mask


def joined(parts: Sequence[list[Array]], columns: Array, item: int) -> States:
    """Return the states of one item of a batch over consecutive steps, at the columns that hold tokens."""
    states = range(len(parts[0]))
    whole = (np.concatenate([part[state][item] for part in parts]) for state in states)
    return tuple(a[columns[: len(a)]] for a in whole)


# -- float64 -----------------------------------------------------------------------------------------------------------
@contextmanager
def _force_float64_arithmetic() -> Iterator[None]:
    """Compute everything in float64, even if code casts to float32 by name, as norms, rotary tables and softmaxes do.

    Otherwise a run in float64 would have errors of float32, which could not be told from semantic ones.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    narrow = (torch.float32, torch.bfloat16, torch.float16)
    casts = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)

    def wider(x: object) -> object:
        return torch.float64 if isinstance(x, torch.dtype) and x in narrow else x

    class Widened(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
        ) -> Tensor:
            if func in casts:
                return args[0].double()
            keywords = {name: wider(x) for name, x in (kwargs or {}).items()}
            return func(*map(wider, args), **keywords)

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Widened():
            yield
    finally:
        torch.set_default_dtype(before)


# -- the ways to run the same tokens through a model: at once, one by one, from caches, padded, in a batch -------------
Cache = Callable[[Any, int], Any]  # takes the configuration, and the largest number of columns
_SEVERAL, _DRAFTS = 3, 2  # tokens at once, and drafts that are taken back


@dataclass(frozen=True)
class GenerationWay:
    """A way to run a model.

    cache           the maker of the cache, or None to compute everything again
    chunks          the numbers of tokens at once, for n tokens and a window (0: there is none)
    items           the number of sequences in the batch
    padding         the side on which shorter sequences are padded
    drafts          number of wrong tokens computed before each chunk except the first, and taken back
    draft           the number added to right tokens to make these
    implementation  of attention, or None for the model's own
    other           whether the words of the second half are changed; the result is the first half, which must not
                    change
    for_windows     whether the way is the same as another one for a model without a window
    """

    name: str
    cache: Cache | None = None
    chunks: Callable[[int, int], Sequence[int]] = lambda n, window: (n,)
    items: int = 1
    padding: Literal["", "left", "right"] = ""
    drafts: int = 0
    draft: int = 1
    implementation: str | None = None
    other: bool = False
    for_windows: bool = False

    def run(
        self, model: Model, sequences: Sequence[Text], positions: Positions, pad: int
    ) -> list[States]:
        """Return the states of the first of the sequences. Raises what the model and the cache raise, and ``Refused``
        for drafts in a model that declares itself stateful."""
        # A state has no earlier tokens to roll back to.
        if self.drafts and model.is_stateful:
            raise Refused(
                "the model declares itself stateful, and transformers rolls no cache of such a model back"
            )
        model.implemented(self.implementation or model.own)
        texts = sequences[: self.items]
        # The second half is replaced, to see whether the first one changes.
        if self.other:
            texts = [text.changed(slice(len(text) // 2, None)) for text in texts]
        ids, mask = filled([text.words for text in texts], self.padding, pad)
        reads = _run_generation_way(self, model, ids, mask, positions, model.encoded(texts, pad))
        if not self.other:
            return reads
        pairs = zip(reads, texts, strict=True)
        # Only the half before the change can be compared.
        return [tuple(x[: len(s) // 2] for x in read) for read, s in pairs]


def _run_generation_way(
    way: GenerationWay,
    model: Model,
    ids: Array,
    mask: Array,
    positions: Positions,
    further: dict[str, Tensor],
) -> list[States]:
    """Run a way; ``further`` arguments are passed to every step."""
    import torch

    rows = torch.from_numpy(ids)
    token_mask = torch.from_numpy(mask.astype(np.int64))
    most_tokens = ids.shape[1] + way.drafts
    empty_cache = way.cache(model.config, most_tokens) if way.cache else None
    cache = model.cached(empty_cache)
    # Some caches roll back only what they have recorded.
    if way.drafts and hasattr(cache, "activate_past_recording"):
        cache.activate_past_recording()
    parts, start = [], 0
    for count in way.chunks(ids.shape[1], window_of(model.config)):
        end = start + count
        if way.drafts and start:
            # Wrong tokens go through the cache first, and are cropped again.
            repeated = rows[:, start:end].repeat(1, way.drafts)
            tokens = repeated[:, : way.drafts]
            wrong = (tokens + way.draft) % _words_of_drafts(model.config)
            model.step(wrong, cache, use_cache=True, **further)
            cache.crop(-way.drafts)
        arguments: dict[str, object] = {"use_cache": cache is not None, **further}
        if way.padding:
            arguments |= {
                "attention_mask": token_mask[:, :end],
                "position_ids": positions(token_mask[:, :end], start),
            }
        passed = {name: x for name, x in arguments.items() if x is not None}
        parts.append(model.step(rows[:, start:end], cache, **passed))
        start = end
    return [joined(parts, mask[item], item) for item in range(len(ids))]


# -- the ways that are tried -------------------------------------------------------------------------------------------
def window_of(config: Any) -> int:
    """Return the number of tokens that a window of the model holds; 0 if it has none."""
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    return int(getattr(text, "sliding_window", None) or 0)


def _words_of_drafts(config: Any) -> int:
    """Return how many words drafts are made of: few, and no more than the vocabulary has."""
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    return min(7, int(getattr(text, "vocab_size", 7)))


def _split_prefill_at_half(n: int, window: int) -> Sequence[int]:
    return (n // 2, *(1,) * (n - n // 2))


def _split_into_single_tokens(n: int, window: int) -> Sequence[int]:
    """Return chunks of one token after a prefill that leaves room in the window: one of the tokens just fills it."""
    first = _before_window(n, window)
    return (first, *(1,) * (n - first))


def _split_into_token_chunks(n: int, window: int) -> Sequence[int]:
    """Return chunks of several tokens after such a prefill: one of them crosses the end of the window."""
    first = _before_window(n, window)
    if (
        1 < first < window and (window - first) % _SEVERAL == 0
    ):  # a chunk would just fill the window
        first -= 1
    rest = n - first
    return (
        first,
        *(_SEVERAL,) * (rest // _SEVERAL),
        *((rest % _SEVERAL,) if rest % _SEVERAL else ()),
    )


def _before_window(n: int, window: int) -> int:
    return min(n // 2, window - 1) if window > 1 else n // 2


def _behind_window(n: int, window: int) -> Sequence[int]:
    """Return chunks of one token after a prefill that is longer than the window: the cache keeps its end alone."""
    first = max(n // 2, (window + n) // 2)
    return (first, *(1,) * (n - first))


def plain_cache(config: object, length: int) -> Any:
    """Return a cache that keeps every position."""
    from transformers import DynamicCache

    return DynamicCache()


def own_cache(config: Any, length: int) -> Any:
    """Return the cache that ``generate`` makes: in layers with a window it keeps only the window."""
    from transformers import DynamicCache

    return DynamicCache(config=config)


def static_cache(config: Any, length: int) -> Any:
    """Return a cache of fixed size, which is never filled completely."""
    from transformers import StaticCache

    return StaticCache(config=config, max_cache_len=length + 3)


# Names of ways that other code looks up.
PREFIX, PREFILL, CONTINUATION = "prefix alone", "prefill", "other continuation"
TAKEN_BACK = "rejected draft tokens (cache rollback)"
AFTER_A_WINDOW = "decoding after a prefill longer than the window"
CACHES: Mapping[str, Cache] = {"dynamic cache": own_cache, "static cache": static_cache}
# All ways that are tried, the prefill first.
WAYS: tuple[GenerationWay, ...] = (
    GenerationWay(PREFILL),
    GenerationWay(PREFIX, chunks=lambda n, window: (n // 2,)),
    GenerationWay(CONTINUATION, other=True),
    GenerationWay("eager", implementation="eager"),
    GenerationWay("sdpa", implementation="sdpa"),
    GenerationWay("token by token", plain_cache, lambda n, window: (1,) * n),
    *(
        GenerationWay(f"{name}, decoding", cache, _split_into_single_tokens)
        for name, cache in CACHES.items()
    ),
    *(
        GenerationWay(f"{name}, {_SEVERAL} tokens at once", cache, _split_into_token_chunks)
        for name, cache in CACHES.items()
    ),
    *(
        GenerationWay(f"{name}, {AFTER_A_WINDOW}", cache, _behind_window, for_windows=True)
        for name, cache in CACHES.items()
    ),
    GenerationWay(
        f"dynamic cache, {TAKEN_BACK}", own_cache, _split_prefill_at_half, drafts=_DRAFTS
    ),
    GenerationWay("batch", items=2),
    GenerationWay("batch, decoding", own_cache, _split_prefill_at_half, items=2),
    GenerationWay("right padding", items=2, padding="right"),
    GenerationWay("left padding", items=2, padding="left"),
    *(
        GenerationWay(f"left padding, {name}", cache, _split_prefill_at_half, 2, "left")
        for name, cache in CACHES.items()
    ),
)


def of_caches(caches: Mapping[str, Cache]) -> Iterator[GenerationWay]:
    """Yield the ways in which the user's caches are tried."""
    for name, cache in caches.items():
        yield GenerationWay(f"{name}, decoding", cache, _split_into_single_tokens)
        yield GenerationWay(f"{name}, {_SEVERAL} tokens at once", cache, _split_into_token_chunks)
        yield GenerationWay(f"{name}, {AFTER_A_WINDOW}", cache, _behind_window, for_windows=True)
        yield GenerationWay(f"left padding, {name}", cache, _split_prefill_at_half, 2, "left")
        yield GenerationWay(f"{name}, {TAKEN_BACK}", cache, _split_prefill_at_half, drafts=_DRAFTS)
