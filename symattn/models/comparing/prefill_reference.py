"""The definition of attention in place of a model's own, as attention implementations of transformers.

Source: the interface of ``transformers.modeling_utils.AttentionInterface``, whose arguments are read as in an audit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.models.auditing.received import UnreadCall, of_arguments, setting_of
from symattn.models.auditing.setting import visible
from symattn.models.comparing.generated import StateErrors
from symattn.models.comparing.generation_ways import (
    CONTINUATION,
    PREFILL,
    GenerationWay,
    Model,
    States,
    Text,
    generates,
)
from symattn.models.configurations import attention as promised

if TYPE_CHECKING:
    from torch import Tensor


#: The definition with the mask that transformers builds for ``eager`` or ``sdpa``, and with that of the configuration.
EAGER, SDPA, CONFIGURED = "symattn-definition", "symattn-definition-sdpa", "symattn-configuration"
#: Arrays that do not affect the scores beyond the mask.
_HARMLESS = (
    "position_ids",
    "cache_position",
    "s_aux",
    "position_embeddings",
    "attention_mask",
    "position_bias",
)


class Calls:
    """The number of calls of the definition since the last reset."""

    made = 0


def register() -> None:
    """Register the definition with transformers under its names."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask

    ways: dict[str, tuple[str, Any]] = {
        EAGER: ("eager", eager_mask),
        SDPA: ("sdpa", sdpa_mask),
        CONFIGURED: (CONFIGURED, eager_mask),
    }
    # Each way needs the mask that transformers builds for it.
    for name, (kind, mask) in ways.items():
        AttentionInterface.register(name, partial(attention, kind))
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, mask)


def attention(
    kind: str,
    module: object,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    scaling: float | None = None,
    **more: object,
) -> tuple[Tensor, None]:
    """Return softmax(scale · Q Kᵀ, capped, + bias + mask) V of each item, in float64: (b, n_q, h, d_v).

    ``kind`` says what forbids keys: the mask, as in transformers' own ``eager`` and ``sdpa`` functions, or the
    configuration. Raises ``UnreadCall`` for a further array of the model that may change the scores.
    """
    import torch

    Calls.made += 1
    for name, option in more.items():
        if isinstance(option, torch.Tensor) and name not in _HARMLESS:
            raise UnreadCall(
                f"the model passes {name} to its attention, which the definition does not receive"
            )
    own = {
        "module": module,
        "query": query,
        "key": key,
        "value": value,
        "attention_mask": attention_mask,
    }
    # Some models have the scale in the module alone.
    scale = getattr(module, "scaling", None) if scaling is None else scaling
    n_q, n_k = query.shape[-2], key.shape[-2]
    setting = setting_of(of_arguments(kind, {**more, **own, "scaling": scale}), range(n_q))
    if kind == CONFIGURED:
        setting = setting.with_mask(
            visible(_read_promised_attention(module), list(range(n_q)), n_q, n_k)[None, None]
        )
    spec = replace(setting.spec(), fully_masked="zeros")
    o = np.asarray(spec(**setting.inputs()))
    output = torch.from_numpy(o).to(query.dtype).to(query.device)
    return output.transpose(1, 2).contiguous(), None


def _read_promised_attention(module: object) -> Attention:
    """Return the attention of this layer by the model's configuration. Raises ``UnreadCall`` if that is unknown."""
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int) or not hasattr(module, "config"):
        raise UnreadCall("its attention does not say of which layer it is")
    # Encoder and decoder have layers of the same number.
    if getattr(module.config, "is_encoder_decoder", False):
        raise UnreadCall(
            "nothing states whether its attention belongs to the encoder or to the decoder"
        )
    try:
        return promised(module.config, layer)
    except InputError as error:
        raise UnreadCall(str(error)) from None


# -- the reference of all ways: one prefill of each sequence alone in float64, by the most trusted attention -----------
_BY_MASK = {"eager": EAGER, "sdpa": SDPA}  # the definition with the mask that is built for each
# Errors by which a model refuses an implementation of attention.
_FAILS = (RuntimeError, NotImplementedError, ValueError, KeyError, ImportError, TypeError)


@dataclass(frozen=True)
class Candidate:
    """Each sequence alone, by one implementation of attention, in float64 and in the model's own type."""

    implementation: str
    wide: tuple[States, ...]
    own: tuple[States, ...]


@dataclass(frozen=True)
class Reference:
    """A trusted result, described by ``words``.

    mine    the result of the model's own implementation, or None if it does not run
    doubt   which candidates differ if it is unclear which is right, or ""
    others  if there is doubt, the candidate of each implementation, by the mask that is built for it
    """

    chosen: Candidate
    words: str
    mine: Candidate | None = None
    doubt: str = ""
    others: Mapping[str, Candidate] = field(default_factory=dict)

    @classmethod
    def of(cls, own: Model, wide: Model, sequences: Sequence[Text], dtype: str) -> Reference:
        """Choose and run the reference. Raises ``InputError`` if the model does not run in float64."""
        register()
        candidates = _Candidates(own, wide, tuple(sequences), dtype)
        reference = candidates.configured() or candidates.as_given() or candidates.of_model()
        # its rounding is the measure of rounding, unless it is wrong
        mine = candidates.candidate(own.own)
        if mine is None or not candidates.agree(mine, reference.chosen):
            return replace(reference, mine=mine)
        return replace(reference, chosen=replace(reference.chosen, own=mine.own), mine=mine)


def alone(model: Model, sequence: Text, implementation: str | None) -> States:
    """Run one prefill without cache and padding."""
    return GenerationWay(PREFILL, implementation=implementation).run(
        model, (sequence,), generates, 0
    )[0]


@dataclass
class _Candidates:
    """The candidates for a reference; ``why`` says why the last one is not available."""

    own: Model
    wide: Model
    sequences: tuple[Text, ...]
    dtype: str
    why: str = ""

    def configured(self) -> Reference | None:
        """Return the definition with the mask of the configuration, if that is known."""
        candidate = self._candidate_using_definition(CONFIGURED)
        words = "Attention of the reference is symattn's definition, in float64, with the mask of the configuration."
        return Reference(candidate, words) if candidate else None

    def as_given(self) -> Reference | None:
        """Return the definition with a mask that transformers builds, if it runs."""
        unread = self.why
        candidates = {
            # Masks differ by implementation, and each is tried.
            name: read
            for name, other in _BY_MASK.items()
            if (read := self._candidate_using_definition(other))
        }
        words = f"symattn's definition, in float64, with the mask as given: {unread}"
        return (
            self._of_several(candidates, words, "the masks that are built for")
            if candidates
            else None
        )

    def of_model(self) -> Reference:
        """Return the model's own attention. Raises ``InputError`` if it does not run in float64."""
        unread = self.why
        candidates = {
            name: read
            # The model's own implementation comes first.
            for name in dict.fromkeys((self.own.own, *_BY_MASK))
            if (read := self.candidate(name))
        }
        if self.own.own not in candidates:
            raise InputError(
                f"the model does not run in float64: {self.why}; hint: modules that take any type"
            )
        words = f"the model's own in float64: {unread}"
        return self._of_several(candidates, words, "attention by")

    def candidate(self, implementation: str) -> Candidate | None:
        """Run an implementation; return None if it does not run, with the reason in ``why``."""
        try:
            read = [
                tuple(alone(m, s, implementation) for s in self.sequences)
                for m in (self.wide, self.own)
            ]
        # Any failure of the model's code is the reason, and no fault.
        except _FAILS as error:
            self.why = str(error).partition("\n")[0]
            return None
        return Candidate(implementation, *read)

    def agree(self, a: Candidate, b: Candidate) -> bool:
        """Return whether two candidates differ by rounding alone."""
        pairs = zip(a.own, a.wide, b.own, b.wide, strict=True)
        return all(StateErrors.of(*four, self.dtype).first(0) is None for four in pairs)

    def _candidate_using_definition(self, name: str) -> Candidate | None:
        Calls.made = 0
        candidate = self.candidate(name)
        # A model may run without ever calling the definition.
        if candidate and not Calls.made:
            self.why = "the model asks for its attention in a way of its own"
            return None
        return candidate

    def _of_several(self, results: Mapping[str, Candidate], words: str, what: str) -> Reference:
        """Return the model's own if all agree, else a causal one if all causal ones agree, else one with a doubt."""
        first = results.get(self.own.own) or next(iter(results.values()))
        words = f"Attention of the reference is {words}."
        apart = [name for name, other in results.items() if not self.agree(first, other)]
        if not apart:
            return Reference(first, words)
        # A candidate in which tokens see later ones cannot be the reference.
        causal = {
            name: other for name, other in results.items() if self._is_candidate_causal(other)
        }
        if causal and len(causal) < len(results):
            candidate = causal.get(self.own.own) or next(iter(causal.values()))
            if all(self.agree(candidate, other) for other in causal.values()):
                later = " and ".join(name for name in results if name not in causal)
                return Reference(
                    candidate,
                    f"{words} With {later} tokens see later ones, so it is not trusted as a reference.",
                )
        differing = (self.own.own, *apart) if self.own.own in results else results
        names = " and ".join(differing)
        return Reference(first, words, doubt=f"{what} {names} differ", others=results)

    def _is_candidate_causal(self, candidate: Candidate) -> bool:
        """Return whether the first half of each sequence stays the same when the words after it change."""
        for k, sequence in enumerate(self.sequences):
            # A second half of other words must not change the first.
            way = GenerationWay(CONTINUATION, implementation=candidate.implementation, other=True)
            own, wide = (way.run(m, (sequence,), generates, 0)[0] for m in (self.own, self.wide))
            expected = candidate.own[k], candidate.wide[k]
            errors = StateErrors.of(own, wide, *expected, self.dtype)
            if errors.first(k) is not None:
                return False
        return True
