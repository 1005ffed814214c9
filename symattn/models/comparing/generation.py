"""``symattn.generation``: does a model say the same of the same tokens, however they come?"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from symattn.document.errors import InputError
from symattn.models.comparing import models
from symattn.models.comparing.generated import Generation
from symattn.models.comparing.generation_ways import PREFILL, WAYS, Cache, GenerationWay, of_caches
from symattn.models.comparing.models import Array, Model, Positions, Text
from symattn.models.comparing.prefill_reference import Reference
from symattn.models.comparing.way_runs import WayRunner
from symattn.verification.engine import SEED

_USUAL, _LEAST, _LONGEST, _BEYOND = 16, 6, 512, 6  # tokens; how many more than a window has
_WORDS = 3  # the least of a vocabulary: a word is exchanged for 1, and 1 for 2


def generation(
    model: Any,
    tokens: int | Sequence[int] | None = None,
    *,
    ways: Sequence[str] | None = None,
    caches: Mapping[str, Cache] | None = None,
    positions: Positions = models.generates,
    seed: int = SEED,
) -> Generation:
    """Check that decoding from caches, padding and batches give the logits of the prefill, and find what is wrong.

    ``model`` is a generating model of transformers, with an encoder or without; it is copied and not changed.
    ``tokens`` are the token ids of one sequence, or how many to draw; by default a few more than a window holds.
    Each way (all of ``symattn.models.comparing.generation_ways``, or those in ``ways``) runs in the model's own type
    and again in float64. ``caches`` are your own caches by name: functions of the configuration and the largest
    length; one that quantises is judged by what it returns (``symattn.models.comparing.cache_losses``).
    ``positions`` makes the position ids of padded batches from the mask (b, columns) and the number of columns in the
    cache; the default is what ``generate`` passes.

    The reference is one prefill of the sequence alone in float64, without cache and padding; its attention is
    symattn's definition if the model allows this. A way is wrong at a layer and token if its states there differ
    from the reference's in float64 by more than rounding explains, which is measured: 2¹⁰ times the rounding errors
    in the model's own type, scaled by the ratio of the unit roundoffs. The grade is ``sampled``. It is rigorous
    that |way − prefill| in that type is at most the sum of both sides' distances from their float64 selves and of
    the difference in float64. Raises ``InputError`` for any other model.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=11, **sizes)).eval()
    >>> generation(model, 8, ways=["token by token"]).wrong
    ()
    """
    models.checked(model)
    plan = _chosen(ways, caches or {}, model.config.is_encoder_decoder)
    sequences = _sequences(model, tokens, seed)
    dtype, pad = str(model.dtype).removeprefix("torch."), getattr(model.config, "pad_token_id", None)
    own, wide = Model(model, wide=False), Model(model, wide=True)
    reference = Reference.of(own, wide, sequences, dtype)
    each = WayRunner(
        own, wide, reference, sequences, positions, int(pad) if isinstance(pad, int) and pad >= 0 else 0, dtype
    )
    notes = tuple(_notes(model, reference, len(sequences[0])))
    rows = tuple(map(each.row, plan))
    own_caches = (
        way for way in plan if way.cache in (caches or {}).values() and not way.drafts
    )  # not every cache takes tokens back
    asked = (way.name for way in (plan if ways is not None else own_caches))
    return Generation(type(model).__name__, dtype, len(sequences[0]), rows, notes, frozenset(asked))


def _chosen(names: Sequence[str] | None, caches: Mapping[str, Cache], encodes: bool) -> tuple[GenerationWay, ...]:
    """The prefill, the ways by name, and those with caches of one's own; an encoder's sources alone are padded."""
    usual = {way.name for way in WAYS}
    if twice := next((way.name for way in of_caches(caches) if way.name in usual), None):
        raise InputError(f"{twice!r} is a way that there is without your cache; hint: another name of the cache")
    known = {way.name: way for way in (*WAYS, *of_caches(caches)) if not (encodes and way.padding)}
    for name in names or ():
        if name not in known:
            raise InputError(f"there is no way {name!r}; known: {'; '.join(known)}")
    return tuple(way for name, way in known.items() if names is None or name in (PREFILL, *names))


def _sequences(model: Any, tokens: int | Sequence[int] | None, seed: int) -> tuple[Text, Text]:
    """The sequence, and a shorter one, which is padded."""
    config = model.config.get_text_config(decoder=True)
    rng, words = np.random.default_rng(seed), int(config.vocab_size)
    if words < _WORDS:
        raise InputError(f"a vocabulary of {words}; hint: {_WORDS} words or more, of which others can be taken")
    most = min(int(getattr(config, "max_position_embeddings", None) or _LONGEST), _LONGEST)
    if tokens is None:
        tokens = min(max(_USUAL, _window(config) + _BEYOND), most)
    first = _first(tokens, words, most, rng)
    texts = Text(first), Text(rng.integers(1, words, len(first) * 5 // 8))
    if not model.config.is_encoder_decoder:
        return texts
    first_source, second_source = (_source(model, len(text), rng) for text in texts)
    return replace(texts[0], source=first_source), replace(texts[1], source=second_source)


def _first(tokens: int | Sequence[int], words: int, most: int, rng: np.random.Generator) -> Array:
    """So many tokens, drawn, or these. Raises ``InputError`` before anything is made of too many."""
    bad = InputError(f"tokens must be the token ids of one sequence, each from 0 to {words - 1}, or how many")
    listed = hasattr(tokens, "__len__")
    try:
        count = len(tokens) if listed else operator.index(tokens)  # type: ignore[arg-type]
        if not _LEAST <= count <= most:
            raise InputError(f"tokens must be from {_LEAST} to {most}, got {count}")
        ids = [operator.index(i) for i in tokens] if listed else []  # type: ignore[union-attr]
    except TypeError:
        raise bad from None
    if not all(0 <= i < words for i in ids):
        raise bad
    return np.asarray(ids, dtype=np.int64) if listed else rng.integers(1, words, count)


def _source(model: Any, tokens: int, rng: np.random.Generator) -> Array:
    """Return the inputs of the encoder: some more tokens than the decoder has, or as many features as it takes.

    Raises ``InputError`` for what takes neither.
    """
    config, name = model.config, model.main_input_name
    if name == "input_ids":
        return rng.integers(1, int(config.vocab_size), tokens + 2)
    if name == "input_features" and hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions"):
        return rng.standard_normal((int(config.num_mel_bins), 2 * int(config.max_source_positions)))
    result = f"the encoder of {type(model).__name__} takes {name}, which is not drawn here"
    raise InputError(f"{result}; hint: give a model of tokens, or of features such as Whisper")


def _window(config: object) -> int:
    return int(getattr(config, "sliding_window", None) or 0)


def _notes(model: Any, reference: Reference, tokens: int) -> Iterator[str]:
    yield reference.words
    window = _window(model.config.get_text_config(decoder=True))
    if window >= tokens:
        yield f"No sequence is longer than the window of {window} tokens, so no cache of a window was full."
