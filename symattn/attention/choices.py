"""Whether the fields of ``Attention`` mean something, alone and together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from symattn.attention import combinations
from symattn.attention.fields import check_flags, check_whole, check_words, finite, refusal, whole
from symattn.attention.latent import Latent
from symattn.attention.positions.checks import check_position
from symattn.errors import InputError

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

#: What a field may be, where it is one of a few words.
WORDS: dict[str, tuple[str | None, ...]] = {
    "qk_norm": (None, "rms", "layer", "l2"),
    "alignment": ("bottom-right", "top-left"),
    "mask": (None, "boolean", "additive"),
    "fully_masked": ("zeros", "nan", "error"),
    "score": ("dot", "general", "additive", "cosine", "distance"),
    "normaliser": ("softmax", "sigmoid", "relu", "sparsemax", "entmax"),
    "sink": (None, "given", "zero"),
}
FLAGS = ("packed", "causal", "padding", "bias", "documents", "stabilised", "lse")
#: Fields that are whole numbers, and the least; those in ``OPTIONAL`` may be None.
WHOLE = {"heads": 1, "kv_heads": 1, "truncate": 1, "block": 1, "prefix": 1}
OPTIONAL = ("kv_heads", "truncate", "block", "prefix")

#: Combinations that make no sense, each with the reason: what must not hold of a specification.
SENSELESS: tuple[tuple[Callable[[Attention], bool], str], ...] = (
    (
        lambda s: s.heads % s.key_heads != 0,
        "kv_heads must divide heads: each head of keys is read by as many heads of queries",
    ),
    (lambda s: bool(s.eps) and s.qk_norm in (None, "l2"), "eps belongs to qk_norm 'rms' or 'layer'"),
    (lambda s: s.packed and s.latent is not None, "packed projections have no latent; mend: one of packed and latent"),
    (
        lambda s: s.latent is not None and s.kv_heads is not None,
        "a latent is shared by all heads, and has no kv_heads; mend: kv_heads=None",
    ),
    (
        lambda s: s.latent is not None and s.qk_norm is not None,
        "with a latent it is the latent that is normalised; mend: Latent(norm='rms') in place of qk_norm",
    ),
    *combinations.SCORES,
    *combinations.MASKS,
    *combinations.WEIGHTS,
)


def check_fields(spec: Attention) -> None:
    """Raise InputError for a field that means nothing, and for fields that contradict each other."""
    check_words(spec, WORDS)
    check_flags(spec, FLAGS)
    check_whole(spec, WHOLE, OPTIONAL)
    _check_numbers(spec)
    if not finite(spec.eps) or spec.eps < 0:
        raise refusal(spec, "eps", "it must be a finite number from 0 on")
    if not isinstance(spec.latent, Latent | None):
        raise refusal(spec, "latent", "it must be Latent(…) or None")
    check_position(spec)
    for senseless, reason in SENSELESS:
        if senseless(spec):
            raise InputError(f"Attention: {reason}")


def _check_numbers(spec: Attention) -> None:
    """Raise InputError for a scale, a cap, a window, a base or a rate of dropout that means nothing."""
    if spec.scale is not None and not isinstance(spec.scale, str) and not finite(spec.scale):
        raise refusal(spec, "scale", "it must be a finite number")
    if isinstance(spec.scale, str) and spec.scale not in ("1/d_k", "given"):
        raise refusal(spec, "scale", "it must be a finite number, '1/d_k' or 'given'")
    if spec.softcap is not None and not (finite(spec.softcap) and spec.softcap > 0):
        raise refusal(spec, "softcap", "it must be a finite number above 0")
    if spec.base is not None and not (whole(spec.base, 2) and spec.base == 2):
        raise refusal(spec, "base", "known: None for e, 2")
    if not finite(spec.dropout) or not 0 <= spec.dropout < 1:
        raise refusal(spec, "dropout", "it must be a number from 0 on and below 1")
    if spec.window is not None and not _is_window(spec.window):
        raise refusal(
            spec, "window", "it must be a whole number from 1 on, or (left, right) with whole numbers or None"
        )


def _is_window(window: object) -> bool:
    if not isinstance(window, tuple):
        return whole(window, 1)
    return len(window) == 2 and all(side is None or whole(side, 0) for side in window)
