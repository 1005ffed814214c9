"""The fields of ``Attention``, which the command line lists without importing a step."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from symattn.attention.latent import Latent
    from symattn.attention.positions.fields import Position

Scale = int | float | Fraction | Literal["1/d_k", "given"] | None
Window = int | tuple[int | None, int | None] | None
_Value = TypeVar("_Value")


def described(default: _Value, words: str) -> _Value:
    """Return a field of a dataclass with its default and its meaning, which docstring and command line show."""
    return field(default=default, metadata={"help": words})


@dataclass(frozen=True, kw_only=True)
class Fields:
    """What an ``Attention`` may be asked to be."""

    score: Literal["dot", "general", "additive", "cosine", "distance"] = described(
        "dot",
        "how queries and keys are compared: ``dot``; ``general`` Q W Kᵀ with w_s; ``additive`` tanh(Q W + K U) v "
        "with w_s, u_s, v_s; ``cosine``; ``distance`` −‖q − k‖²/2",
    )
    scale: Scale = described(
        None,
        "factor of the scores, 1/√d_k for dot products and 1 for other scores unless one is given; no scaling is 1, or "
        "``none`` where it is typed; ``1/d_k``; ``given`` is an input ``scale``, one number for each head",
    )
    truncate: int | None = described(
        None, "number of columns of queries and keys that scores see, the first ones; no token is cut"
    )
    softcap: int | float | Fraction | None = described(None, "c for scores c tanh(S/c)")
    bias: bool = described(False, "an input ``bias`` of finite numbers, added to the scores; a mask is what forbids")
    causal: bool = described(False, "key j for query i iff j ≤ i + o, see ``alignment``")
    alignment: Literal["bottom-right", "top-left"] = described(
        "bottom-right",
        "``bottom-right``: o = n_k − n_q; ``top-left``: o = 0",
    )
    window: Window = described(
        None,
        "(l, r): keys from l before the query's place i + o to r after it, None for an open side; of a causal mask"
        " w keys: (w − 1, 0)",
    )
    block: int | None = described(None, "number of places in a block: key j for query i iff they are in one block")
    prefix: int | None = described(None, "number of keys that all queries see; causal after them")
    mask: Literal["boolean", "additive"] | None = described(
        None,
        "an input ``mask``: ``boolean`` (True may attend) or ``additive``",
    )
    padding: bool = described(False, "an input ``keep``: booleans over the keys, False for padding")
    documents: bool = described(
        False,
        "packed documents: labels ``doc``, or ``doc_q`` and ``doc_k``; places are counted in each document",
    )
    heads: int = described(
        1,
        "number of heads h: the projections' columns are split among them, or q, k, v have an axis of heads",
    )
    kv_heads: int | None = described(
        None,
        "number of heads of keys and values: query head t reads head ⌊t · kv_heads / heads⌋; None is heads",
    )
    packed: bool = described(
        False,
        "one matrix w_in (and bias b_in) of columns q | k | v in the place of w_q, w_k, w_v",
    )
    latent: Latent | None = described(None, "keys and values from a latent: see ``Latent``")
    qk_norm: Literal["rms", "layer", "l2"] | None = described(
        None,
        "queries and keys normalised, head by head: ``rms`` or ``layer`` with gains g_q, g_k where given, or "
        "``l2``, of length 1",
    )
    eps: int | float | Fraction = described(0, "the ε of qk_norm")
    position: Position | None = described(
        None,
        "where tokens stand: ``Rotary``, ``Alibi``, ``Buckets``, ``Shaw``, ``TransformerXL``, ``Disentangled``",
    )
    normaliser: Literal["softmax", "sigmoid", "relu", "sparsemax", "entmax"] = described(
        "softmax",
        "what makes weights of scores: ``softmax``, ``sigmoid`` (less log n_k, unless a bias is given), ``relu`` "
        "(over n_k), ``sparsemax``, ``entmax`` (1.5)",
    )
    base: Literal[2] | None = described(None, "2 for powers of two in the place of powers of e")
    sink: Literal["given", "zero"] | None = described(
        None,
        "a logit that takes weight and gives nothing: ``given``, an input ``sink``, one for each head; ``zero``",
    )
    stabilised: bool = described(True, "whether the row maximum is subtracted before exponentiating")
    fully_masked: Literal["zeros", "nan", "error"] = described(
        "zeros",
        "what a row without any allowed key gives: ``zeros``, ``nan`` or ``error``",
    )
    dropout: int | float | Fraction = described(0, "rate; an input ``drop`` of booleans says what is kept")
    lse: bool = described(False, "whether the result is (output, L), L the logarithm of what each row is divided by")


def descriptions() -> dict[str, str]:
    """What each field of ``Attention`` means. It does not rest on docstrings, which ``python -OO`` takes away."""
    return {f.name: f.metadata["help"] for f in fields(Fields)}
