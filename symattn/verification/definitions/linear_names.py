"""Linear attention of published models by name: the fields of each."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from symattn.document.errors import InputError, among


class NamedRecurrence(NamedTuple):
    """The fields of a model's recurrence, and its source."""

    fields: dict[str, Any]
    source: str


# Fields that several models share.
_PLAIN: dict[str, Any] = {"feature": "identity", "normalised": False}
_DELTA: dict[str, Any] = {**_PLAIN, "delta": True, "scale": True}
# ε of the norm in fla's l2norm and in the layers of Transformers.
_NORMED_DELTA: dict[str, Any] = {**_DELTA, "qk_norm": "l2", "eps": Fraction(1, 10**6)}
RECURRENCES: dict[str, NamedRecurrence] = {
    "linear": NamedRecurrence(
        {"feature": "elu", "normalised": True},
        "Katharopoulos et al., Transformers are RNNs (2020), equations 7 and 9",
    ),
    "gla": NamedRecurrence(
        {**_PLAIN, "gate": "feature", "scale": True},
        "Yang et al., Gated Linear Attention Transformers with Hardware-Efficient Training (2023), §4",
    ),
    "retnet": NamedRecurrence(
        {**_PLAIN, "gate": "head", "scale": True},
        "Sun et al., Retentive Network (2023), equations 5 to 8",
    ),
    "lightning": NamedRecurrence(
        {**_PLAIN, "gate": "head"},
        "Qin et al., Lightning Attention-2 (2024), §3; MiniMax, MiniMax-01 (2025), §2.2",
    ),
    # q is C, k is B, v is x, and g is A; groups of heads share B and C.
    "mamba2": NamedRecurrence(
        {**_PLAIN, "gate": "head", "values_per_key": 2, "step": True, "skip": True},
        "Dao, Gu, Transformers are SSMs (2024), §6 and §7.2; the step, Gu, Dao, Mamba (2023), algorithm 2; D x, Gu,"
        " Goel, Ré, Efficiently Modeling Long Sequences with Structured State Spaces (2021)",
    ),
    "rwkv6": NamedRecurrence(
        {**_PLAIN, "gate": "feature", "reads": "before", "bonus": True},
        "Peng et al., Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence (2024), the time mixing of"
        " Finch",
    ),
    "deltanet": NamedRecurrence(
        _NORMED_DELTA,
        "Yang et al., Parallelizing Linear Transformers with the Delta Rule over Sequence Length (2024), §3",
    ),
    "gated-deltanet": NamedRecurrence(
        {**_NORMED_DELTA, "gate": "token"},
        "Yang, Kautz, Hatamizadeh, Gated Delta Networks (2024), equation 10",
    ),
    # 16 heads of keys and 32 of values in Qwen3-Next-80B-A3B.
    "qwen3-next": NamedRecurrence(
        {**_NORMED_DELTA, "gate": "token", "values_per_key": 2},
        "Qwen Team, Qwen3-Next (2025); Yang, Kautz, Hatamizadeh, Gated Delta Networks (2024), equation 10",
    ),
    "kda": NamedRecurrence(
        {**_NORMED_DELTA, "gate": "feature"}, "Kimi Team, Kimi Linear (2025), §3"
    ),
    # With a correction of the output, q − d k is given as q.
    "comba": NamedRecurrence(
        {**_NORMED_DELTA, "gate": "token", "erase": "vector", "erases": "before"},
        "Hu et al., Comba: Improving Bilinear RNNs with Closed-loop Control (2025)",
    ),
    "gdn2": NamedRecurrence(
        {**_NORMED_DELTA, "gate": "feature", "erase": "gates"},
        "Hatamizadeh, Choi, Kautz, Gated DeltaNet-2: Decoupling Erase and Write in Linear Attention (2026), equation"
        " 10",
    ),
    # q is r and g is log w; a is −κ of length 1, and b is κ times its rate.
    "rwkv7": NamedRecurrence(
        {**_PLAIN, "delta": True, "gate": "feature", "erase": "pair", "erases": "before"},
        "Peng et al., RWKV-7 Goose with Expressive Dynamic State Evolution (2025)",
    ),
}


def fields_of(name: str) -> dict[str, Any]:
    """Return the fields of a named model. Raises ``InputError`` for unknown names."""
    if name not in RECURRENCES:
        raise InputError(f"unknown linear attention {name!r}{among(name, RECURRENCES)}")
    return RECURRENCES[name].fields
