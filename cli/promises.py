"""The options that restrict the inputs to what callers guarantee: one for each field of ``Domain``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.bounds.domain import Domain

from .choices import Whole
from .groups import Command, all_of, under

_INPUTS = under("Guarantees about the inputs", "inputs")
_HELP = {
    "max_abs_score": "No scaled score exceeds S in magnitude.",
    "multiple_of": "Numbers of tokens are multiples of N.",
    "width_multiple_of": "d_k and d_v are multiples of N.",
    "min_tokens": "There are at least N queries and N keys.",
    "max_tokens": "There are at most N queries and N keys. Default: {}.",
    "min_width": "d_k and d_v are at least N.",
    "max_width": "d_k and d_v are at most N. Default: {}.",
    "square": "There are as many queries as keys.",
    "same_width": "Values are as wide as keys.",
    "square_weights": "Projections are square: d_model = h d_k = h d_v.",
    "decoding": "One query comes at a time: n_q = 1.",
    "powers_of_two": "Numbers of tokens are powers of two.",
    "width_powers_of_two": "d_k and d_v are powers of two.",
    "contiguous": "Arrays are contiguous in memory.",
    "batch": "Arrays may have leading batch axes.",
    "nonfinite_forbidden": "Masked keys and values may hold NaN, which must not leak.",
}
PROMISES = tuple(_HELP)


def promised(settings: dict[str, Any]) -> Domain:
    """Return the domain that the settings describe, and remove them."""
    fields = {name: settings.pop(name) for name in PROMISES if name in settings}
    return Domain(**fields, fully_masked_rows=settings.get("fully_masked") is not None)


def _option(name: str) -> Callable[[Command], Command]:
    option, usual = f"--{name.replace('_', '-')}", getattr(Domain, name)
    if isinstance(usual, bool):
        return _INPUTS(option, is_flag=True, help=_HELP[name])
    kind, metavar = (float, "S") if usual is None else (Whole(1), "N")
    return _INPUTS(option, type=kind, metavar=metavar, help=_HELP[name].format(usual))


promises = all_of(map(_option, PROMISES))
"""Give a command an option for each promise except fully masked rows, which an option for their result implies."""
