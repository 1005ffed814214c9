"""``Attention``: one frozen description that is a specification, a function on any kind of array, and a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from fractions import Fraction
from textwrap import fill
from typing import Any, Literal, TypeVar

from symattn.attention.choices import check_fields
from symattn.attention.fields import brief
from symattn.attention.flow import Step, run_steps
from symattn.attention.inputs import by_name, check_inputs
from symattn.attention.latent import Latent
from symattn.attention.pipeline import pipeline
from symattn.attention.positions.fields import Position
from symattn.attention.trace import Trace
from symattn.document.model import Document
from symattn.document.printable import Shown
from symattn.keywords import Answering

Scale = int | float | Fraction | Literal["1/d_k", "given"] | None
Window = int | tuple[int | None, int | None] | None
_Value = TypeVar("_Value")
_WIDTH, _INDENT = 114, 14


def described(default: _Value, words: str) -> _Value:
    """Return a field of a dataclass with its default and its meaning, which docstring and command line show."""
    return field(default=default, metadata={"help": words})


@dataclass(frozen=True, kw_only=True)
class Attention(Answering, Shown):
    """softmax(Q Kᵀ / √d_k + M) V, and its variants by fields.

    {fields}

    Call it with q, k, v, or with x (tokens), y (for cross-attention), w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o; with x
    alone it is parameter-free. Shapes: q (…, n_q, d_k), k (…, n_k, d_k), v (…, n_k, d_v) → (…, n_q, d_v), with an axis
    of heads before the last two if there are several.

    >>> import numpy as np
    >>> Attention(causal=True)(np.zeros((2, 3)), np.zeros((2, 3)), np.array([[1.0], [3.0]]))
    array([[1.],
           [2.]])

    Source: Vaswani et al., Attention Is All You Need (2017), equation 1 and §3.2.
    """

    score: Literal["dot", "general", "additive", "cosine", "distance"] = described(
        "dot",
        "how queries and keys are compared: ``dot``; ``general`` Q W Kᵀ with w_s; ``additive`` tanh(Q W + K U) v "
        "with w_s, u_s, v_s; ``cosine``; ``distance`` −‖q − k‖²/2",
    )
    scale: Scale = described(
        None,
        "factor of the scores; if left out, 1/√d_k for dot products and 1 for other scores; 1 turns scaling off "
        "(typed, also ``none``); ``1/d_k``; ``given`` reads an input ``scale`` with one number for each head",
    )
    truncate: int | None = described(
        None, "number of leading columns of queries and keys that the scores use; no token is removed"
    )
    softcap: int | float | Fraction | None = described(None, "c in the soft cap c tanh(S/c) of the scores S")
    bias: bool = described(False, "add an input ``bias`` of finite numbers to the scores; a mask is what forbids keys")
    causal: bool = described(False, "query i attends to key j only if j ≤ i + o, where ``alignment`` sets o")
    alignment: Literal["bottom-right", "top-left"] = described(
        "bottom-right",
        "offset o of the queries' positions: ``bottom-right`` n_k − n_q, ``top-left`` 0",
    )
    window: Window = described(
        None,
        "(l, r): keys from l before the query's position i + o to r after it, None for an open side; with a causal"
        " mask, w is short for (w − 1, 0)",
    )
    block: int | None = described(
        None, "number of positions in a block; query i attends to key j only if both are in the same block"
    )
    prefix: int | None = described(None, "number of leading keys that every query sees; causal after them")
    mask: Literal["boolean", "additive"] | None = described(
        None,
        "an input ``mask``: ``boolean`` (True may attend) or ``additive``",
    )
    padding: bool = described(False, "an input ``keep`` of booleans over the keys, False for padding")
    documents: bool = described(
        False,
        "packed documents: labels ``doc``, or ``doc_q`` and ``doc_k``; positions are counted within each document",
    )
    heads: int = described(
        1,
        "number of heads h; they split the columns of the projections, or q, k and v have an axis of heads",
    )
    kv_heads: int | None = described(
        None,
        "number of heads of keys and values; query head t reads head ⌊t · kv_heads / heads⌋; None: as many as heads",
    )
    packed: bool = described(
        False,
        "one matrix w_in (and bias b_in) with columns q | k | v replaces w_q, w_k and w_v",
    )
    latent: Latent | None = described(
        None, "keys and values computed from a shared latent, as in multi-head latent attention"
    )
    qk_norm: Literal["rms", "layer", "l2"] | None = described(
        None,
        "normalise queries and keys in each head: ``rms`` or ``layer``, with gains g_q, g_k if given, or ``l2``, to "
        "length 1",
    )
    eps: int | float | Fraction = described(0, "the ε of qk_norm")
    position: Position | None = described(
        None,
        "how positions enter: rotary, ALiBi, buckets (T5), Shaw, Transformer-XL or disentangled (DeBERTa)",
    )
    normaliser: Literal["softmax", "sigmoid", "relu", "sparsemax", "entmax"] = described(
        "softmax",
        "how scores become weights: ``softmax``, ``sigmoid`` (minus log n_k, unless a bias is given), ``relu`` "
        "(divided by n_k), ``sparsemax``, ``entmax`` (1.5)",
    )
    base: Literal[2] | None = described(None, "2 for powers of two in place of powers of e")
    sink: Literal["given", "zero"] | None = described(
        None,
        "extra logit in each softmax row that takes weight but has no value: ``given`` (input ``sink``, one per head) "
        "or ``zero``",
    )
    stabilised: bool = described(True, "subtract the row maximum before exponentiating")
    fully_masked: Literal["zeros", "nan", "error"] = described(
        "zeros",
        "result of a row in which no key is allowed: ``zeros``, ``nan`` or ``error``",
    )
    dropout: int | float | Fraction = described(
        0, "dropout rate; an input ``drop`` of booleans marks the weights that are kept"
    )
    lse: bool = described(False, "return (output, L), where L is the logarithm of each row's divisor")

    __repr__ = brief

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def key_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def masks_anything(self) -> bool:
        """Whether some score may be forbidden."""
        places = self.causal or self.window is not None or self.block is not None
        return places or self.padding or self.documents or self.mask is not None

    @property
    def sides(self) -> tuple[int | None, int | None]:
        """How many keys before and after the query's place are in the window, None for an open side."""
        return (self.window - 1, 0) if isinstance(self.window, int) else self.window or (None, None)

    def pipeline(self, given: Iterable[str]) -> tuple[Step, ...]:
        """The steps from the inputs named in ``given`` to the output."""
        names = frozenset(given)
        return self.remembered("steps", names, lambda: pipeline(self, names))

    def remembered(self, what: str, names: frozenset[str], make: Callable[[], _Value]) -> _Value:
        """Return what ``make`` gives for inputs with these names, made once for this object.

        It is kept with the object and not by its value: equal specifications may hold 1/2 and 0.5, of two types.
        """
        kept: dict[tuple[str, frozenset[str]], _Value] = self.__dict__.setdefault("_remembered", {})
        if (what, names) not in kept:
            kept[what, names] = make()
        return kept[what, names]

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what is remembered can be made again, and holds functions that do not travel."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def document(self, given: Iterable[str] = ("q", "k", "v")) -> Document:
        """The formula, the shapes and every step, for the inputs named in ``given``."""
        from symattn.attention.document import document

        return document(self, given)

    def trace(self, *qkv: Any, **inputs: Any) -> Trace:
        """Every named array of a run, in order: the inputs, then q, k, v, scores, scaled, masked, weights, output."""
        values = by_name(qkv, inputs)
        check_inputs(self, values)
        return Trace(run_steps(self.pipeline(values), values))

    def __call__(self, *qkv: Any, **inputs: Any) -> Any:
        """The output of attention on the given arrays; with ``lse``, the output and L, (…, n_q) as the scores are."""
        found = self.trace(*qkv, **inputs)
        return (found["output"], found["lse"]) if self.lse else found["output"]


def descriptions() -> dict[str, str]:
    """What each field of ``Attention`` means. It does not rest on docstrings, which ``python -OO`` takes away."""
    return {f.name: f.metadata["help"] for f in fields(Attention)}


def _table() -> str:
    """The fields and what they mean, as the docstring of ``Attention`` lists them."""
    later = " " * (_INDENT + 4)
    lines = [
        fill(words, _WIDTH, initial_indent=f"{name:<{_INDENT}}", subsequent_indent=later)
        for name, words in descriptions().items()
    ]
    return "\n    ".join(lines)


if Attention.__doc__:
    Attention.__doc__ = Attention.__doc__.replace("{fields}", _table())
