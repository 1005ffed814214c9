"""Run a model in several ways, each in both precisions, and compare them with the reference."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from symattn.document.errors import InputError, SymattnError
from symattn.models.auditing.setting import Module
from symattn.models.comparing.cache_losses import Recorded
from symattn.models.comparing.generated import Generation, StateDifference, StateErrors, WayResult
from symattn.models.comparing.generation_ways import (
    MOST,
    PREFILL,
    WAYS,
    Array,
    Cache,
    GenerationWay,
    Model,
    Positions,
    States,
    Text,
    generates,
    libraries,
    of_caches,
    plain_cache,
    window_of,
)
from symattn.models.comparing.prefill_reference import (
    CONFIGURED,
    EAGER,
    Candidate,
    Reference,
    alone,
)
from symattn.programs.frameworks import dtype_name
from symattn.programs.refusing import one_line, where
from symattn.verification.engine import SEED

_SEEN = 64  # most tokens for which the ones that a place sees are determined


@dataclass(frozen=True)
class WayRunner:
    """A model in both precisions, the reference, and the inputs of the ways."""

    own: Model
    wide: Model
    reference: Reference
    sequences: tuple[Text, ...]
    positions: Positions
    pad: int
    dtype: str

    def row(self, way: GenerationWay) -> WayResult:
        """Run one way, and compare it with the reference."""
        stored = Recorded(), Recorded()
        try:
            own, wide = (
                replace(way, cache=_make_recording_cache(way, one)).run(
                    model, self.sequences, self.positions, self.pad
                )
                for model, one in zip((self.own, self.wide), stored, strict=True)
            )
            sides = self._select_references_of_way(way, stored)
        except Exception as error:  # a model or a cache without this feature may raise anything
            return WayResult(
                way.name, reason=_reason_of(error), stored=stored[1].lost() or stored[0].lost()
            )
        entries = [self._compute_state_errors(own, wide, side) for side in sides]
        differences = [[one.first(k) for k, one in enumerate(outcome)] for outcome in entries]
        places = [
            min(filter(None, side), key=lambda place: place.state, default=None)
            for side in differences
        ]
        first = next((place for place in places if place is not None), None)
        # Float64 shows the error: name the tokens that matter wrongly at this place.
        if first is not None and not first.own and not stored[1].steps:
            first = replace(first, seen=self._describe_wrong_dependence(way, first))
        # right only by its own side
        open_ = len(places) > 1 and places[0] is None and places[1] is not None
        last = entries[-1]
        logits = [one.states[-1] for one in last]
        row = WayResult(
            way.name,
            first,
            used=max(one.used for one in last),
            off=_maximum_over_arrays(one.off for one in logits),
            apart=_maximum_over_arrays(one.apart for one in logits),
            rounding=_maximum_over_arrays(one.mine for one in logits),
            prefill=_maximum_over_arrays(one.alone for one in logits),
            doubt=self.reference.doubt if open_ else "",
            unclear=next((one.unclear for one in last if one.unclear), ""),
            stored=stored[1].lost() or stored[0].lost(),
            moved=self._measure_quantisation_shift(wide) if stored[1].steps else (),
        )
        return self._of_exact(way, row) if stored[1].steps else row

    def _select_references_of_way(
        self, way: GenerationWay, stored: tuple[Recorded, Recorded]
    ) -> tuple[Candidate, ...]:
        """Return the references of a way; if there is doubt, beginning with that of its own implementation."""
        reference, name = self.reference, way.implementation or self.own.own
        # A quantising cache is compared with an exact one that returns the same numbers.
        if stored[1].steps:
            return (self._replay_cached_numbers(way, stored),)
        # Another continuation tests the model's own prefill, and is compared with that.
        if way.other:
            return (reference.mine or reference.chosen,)
        own = (reference.others[name],) if name in reference.others else ()
        return (*own, reference.chosen)

    def _replay_cached_numbers(
        self, way: GenerationWay, stored: tuple[Recorded, Recorded]
    ) -> Candidate:
        """Replay the numbers that the cache returned in an exact cache, by the attention of the reference."""
        name = self.reference.chosen.implementation
        name = EAGER if way.padding and name == CONFIGURED else name
        own, wide = (
            replace(way, cache=one.again, implementation=by).run(
                model, self.sequences, self.positions, self.pad
            )
            for model, one, by in zip((self.own, self.wide), stored, (None, name), strict=True)
        )
        return Candidate(name, tuple(wide), tuple(own))

    def _of_exact(self, way: GenerationWay, row: WayResult) -> WayResult:
        """Return the row, wrong also if the way is with an exact cache, which has the same masks and positions."""
        if row.wrong or row.differs:
            return row
        exact = self.row(replace(way, cache=plain_cache))
        return replace(row, first=exact.first, doubt=exact.doubt) if exact.first else row

    def _measure_quantisation_shift(self, wide: Sequence[States]) -> tuple[float, ...]:
        """Return how far quantisation moves each state in float64, the logits last."""
        pairs = list(zip(wide, self.reference.chosen.wide, strict=False))
        return tuple(
            max(float(np.abs(read[k] - exact[k][: len(read[k])]).max()) for read, exact in pairs)
            for k in range(len(wide[0]))
        )

    def _compute_state_errors(
        self, own: Sequence[States], wide: Sequence[States], side: Candidate
    ) -> list[StateErrors]:
        return [
            StateErrors.of(o, w, side.own[k], side.wide[k], self.dtype)
            for k, (o, w) in enumerate(zip(own, wide, strict=True))
        ]

    def _describe_wrong_dependence(self, way: GenerationWay, at: StateDifference) -> str:
        """Describe which tokens change the state at a place if they differ from those of the reference."""
        # Two runs for each token are too slow for long sequences.
        if len(self.sequences[at.item]) > _SEEN:
            return ""
        causal, way = way.other, replace(way, other=False)
        before = (
            self._compute_state_at_place(way, self.sequences, self.pad, at),
            self._compute_state_at_place(None, self.sequences, self.pad, at),
        )
        lost, beyond = [], []
        for token in range(len(self.sequences[at.item])):
            changed = _replace_word_in_sequence(self.sequences, at.item, token)
            after = (
                self._compute_state_at_place(way, changed, self.pad, at),
                self._compute_state_at_place(None, changed, self.pad, at),
            )
            sees, should = (
                _is_state_moved(x, y, at.room) for x, y in zip(after, before, strict=True)
            )
            # With another continuation, later tokens must not matter.
            should = should and not (causal and token > at.token)
            lost += [token] if should and not sees else []
            beyond += [token] if sees and not should else []
        said = [f"does not see {_format_token_list(lost)}"] if lost else []
        said += [f"sees {_format_token_list(beyond)}, which it must not"] if beyond else []
        moved = (
            words
            for words, result in self._yield_irrelevant_changes(way, at)
            if _is_state_moved(result, before[0], at.room)
        )
        return " and ".join([*said, *(f"sees {words}" for words in moved)])

    def _yield_irrelevant_changes(
        self, way: GenerationWay, at: StateDifference
    ) -> Iterator[tuple[str, Array]]:
        """Yield inputs that must not matter, with the state at a place when they are changed."""
        if way.padding or (self.own.encodes and way.items > 1):
            another = self.pad - 1 if self.pad else 1  # any other word
            yield "padding", self._compute_state_at_place(way, self.sequences, another, at)
        if way.items > 1:
            changed = self.sequences
            for k in range(len(changed)):
                changed = (
                    changed if k == at.item else _replace_word_in_sequence(changed, k, slice(None))
                )
            yield "another sequence", self._compute_state_at_place(way, changed, self.pad, at)
        if way.drafts:
            yield (
                "rejected draft tokens",
                self._compute_state_at_place(replace(way, draft=3), self.sequences, self.pad, at),
            )

    def _compute_state_at_place(
        self, way: GenerationWay | None, sequences: tuple[Text, ...], pad: int, at: StateDifference
    ) -> Array:
        """Return the float64 state of a way, or of the reference, at a place."""
        if way is not None:
            read = way.run(self.wide, sequences, self.positions, pad)[at.item]
        else:
            read = alone(self.wide, sequences[at.item], self.reference.chosen.implementation)
        state: Array = read[at.state][at.token]
        return state


def _replace_word_in_sequence(
    sequences: tuple[Text, ...], item: int, at: int | slice
) -> tuple[Text, ...]:
    """Return the sequences, one of them with another word at a place."""
    return tuple(text.changed(at) if k == item else text for k, text in enumerate(sequences))


def _make_recording_cache(way: GenerationWay, stored: Recorded) -> Cache | None:
    make = way.cache
    return None if make is None else lambda config, length: stored.on(make(config, length))


def _is_state_moved(a: Array, b: Array, room: float) -> bool:
    return not bool(np.abs(a - b).max() <= room)


def _maximum_over_arrays(arrays: Iterable[Array]) -> float:
    return max(float(np.max(a)) for a in arrays)


def _format_token_list(which: Sequence[int]) -> str:
    return ("token " if len(which) == 1 else "tokens ") + ", ".join(map(str, which))


# -- the door ----------------------------------------------------------------------------------------------------------
# ``symattn.generation``: does a model give the same logits for the same tokens, whatever the way?

# tokens: default, least, most, and more than a window has
_USUAL = 16
_LEAST = 6
_LONGEST = 512
_BEYOND = 6
_WORDS = 3  # smallest vocabulary: a word is replaced by 1, and 1 by 2


def generation(
    model: Module,
    tokens: int | Sequence[int] | None = None,
    *,
    ways: Sequence[str] | None = None,
    caches: Mapping[str, Cache] | None = None,
    positions: Positions = generates,
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
    _checked_model(model)
    sequences = _make_token_sequences(model, tokens, seed)
    is_longer_than_window = 0 < window_of(model.config) < len(sequences[0]) - 1
    plan = _select_generation_ways(
        ways, caches or {}, model.config.is_encoder_decoder, is_longer_than_window
    )
    dtype, pad = dtype_name(model), getattr(model.config, "pad_token_id", None)
    own, wide = Model(model, wide=False), Model(model, wide=True)
    reference = Reference.of(own, wide, sequences, dtype)
    each = WayRunner(
        own,
        wide,
        reference,
        sequences,
        positions,
        int(pad) if isinstance(pad, int) and pad >= 0 else 0,
        dtype,
    )
    notes, length = [reference.words], len(sequences[0])
    window = window_of(model.config)
    if window >= length:
        notes.append(
            f"No sequence is longer than the window of {window} tokens, so no cache of a window was full."
        )
    rows = tuple(map(each.row, plan))
    # not every cache takes tokens back
    own_caches = (way for way in plan if way.cache in (caches or {}).values() and not way.drafts)
    requested = plan if ways is not None else own_caches
    requests = frozenset(way.name for way in requested)
    return Generation(type(model).__name__, dtype, length, rows, tuple(notes), requests)


def _checked_model(model: object) -> None:
    """Raise ``MissingExtra`` without torch, and ``InputError`` unless this is a model of transformers that can run."""
    libraries()
    import torch
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise InputError(
            f"{type(model).__name__} is not a model of transformers; hint: give a PreTrainedModel"
        )
    if not model.can_generate():
        raise InputError(
            f"{type(model).__name__} cannot generate; hint: give a class such as LlamaForCausalLM"
        )
    # A copy in float64 takes eight bytes for each parameter.
    size = sum(p.numel() for p in model.parameters())
    if size > MOST:
        raise InputError(
            f"{type(model).__name__} has {size:,} parameters, and at most {MOST:,} are copied to float64; hint: its "
            "class with fewer and narrower layers runs the same code"
        )
    if any(p.device.type == "meta" for p in model.parameters()):
        raise InputError(
            f"{type(model).__name__} has no weights; hint: load them, or make them at random"
        )
    if model.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        raise InputError(
            f"{type(model).__name__} computes in {model.dtype}; hint: float32, bfloat16 or float16"
        )


def _select_generation_ways(
    names: Sequence[str] | None, caches: Mapping[str, Cache], encodes: bool, has_window: bool
) -> tuple[GenerationWay, ...]:
    """Return the prefill, the ways by name, and those of the user's caches; without padding if there is an encoder, and
    without those of windows if there is none."""
    usual = {way.name for way in WAYS}
    # A cache with a name of a usual way would hide it.
    if twice := next((way.name for way in of_caches(caches) if way.name in usual), None):
        raise InputError(
            f"{twice!r} is a way that there is without your cache; hint: another name of the cache"
        )
    every = (*WAYS, *of_caches(caches))
    known = {way.name: way for way in every if not (encodes and way.padding)}
    for name in names or ():
        if name not in known:
            raise InputError(f"there is no way {name!r}; known: {'; '.join(known)}")
    if names is None:
        return tuple(way for way in known.values() if has_window or not way.for_windows)
    return tuple(way for name, way in known.items() if name in (PREFILL, *names))


def _make_token_sequences(
    model: Module, tokens: int | Sequence[int] | None, seed: int
) -> tuple[Text, Text]:
    """Return the sequence, and a shorter one, which is padded."""
    config = model.config.get_text_config(decoder=True)
    rng, words = np.random.default_rng(seed), int(config.vocab_size)
    if words < _WORDS:
        raise InputError(
            f"a vocabulary of {words}; hint: {_WORDS} words or more, of which others can be taken"
        )
    most = min(int(getattr(config, "max_position_embeddings", None) or _LONGEST), _LONGEST)
    if tokens is None:
        tokens = min(max(_USUAL, window_of(config) + _BEYOND), most)
    first = _choose_longer_sequence(tokens, words, most, rng)
    # Shorter, so that a batch of both needs padding.
    shorter = rng.integers(1, words, len(first) * 5 // 8)
    texts = Text(first), Text(shorter)
    if not model.config.is_encoder_decoder:
        return texts
    first_source, second_source = (_draw_encoder_input(model, len(text), rng) for text in texts)
    return replace(texts[0], source=first_source), replace(texts[1], source=second_source)


def _choose_longer_sequence(
    tokens: int | Sequence[int], words: int, most: int, rng: np.random.Generator
) -> Array:
    """Return these tokens, or draw so many. Raises ``InputError`` before too many are used."""
    bad = InputError(
        f"tokens must be the token ids of one sequence, each from 0 to {words - 1}, or how many"
    )
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


def _draw_encoder_input(model: Module, tokens: int, rng: np.random.Generator) -> Array:
    """Draw the inputs of the encoder: some more tokens than the decoder has, or as many features as it takes.

    Raises ``InputError`` for an encoder that takes neither.
    """
    config, name = model.config, model.main_input_name
    if name == "input_ids":
        return rng.integers(1, int(config.vocab_size), tokens + 2)
    # Whisper takes spectra, two frames for each position.
    if (
        name == "input_features"
        and hasattr(config, "num_mel_bins")
        and hasattr(config, "max_source_positions")
    ):
        return rng.standard_normal((int(config.num_mel_bins), 2 * int(config.max_source_positions)))
    result = f"the encoder of {type(model).__name__} takes {name}, which is not drawn here"
    raise InputError(f"{result}; hint: give a model of tokens, or of features such as Whisper")


def _reason_of(error: Exception) -> str:
    """Return why a way could not be run: a refusal of symattn, or what the code raises and where."""
    if isinstance(error, SymattnError):
        return str(error)
    at = where(error)
    return f"the code raises {one_line(error)[:160]}{f' ({at})' if at else ''}"
