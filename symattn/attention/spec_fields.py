"""The fields of ``Attention``, which the command line lists without importing any step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from symattn.attention.fields import finite, whole
from symattn.document.errors import InputError
from symattn.document.keywords import register_fields

if TYPE_CHECKING:
    from symattn.attention.latent import Latent
    from symattn.attention.positions.position_fields import Position

# A float in a field reaches each kind of array as it is. Exact kinds take its binary value, and note that. Residues
# read what it was computed from, as 1/√128 from 0.08838834764831845, which a decimal would hide. ``Fraction(1, 10**6)``
# is the decimal, as which sheets and options read all numbers. ``dropout`` and ``temperature`` are never computed, so
# that 0.1 is 1/10 there.
Scale = int | float | Fraction | Literal["1/d_k", "given"] | None
Window = int | tuple[int | None, int | None] | None
_Value = TypeVar("_Value")


def described(
    default: _Value,
    words: str,
    *permitted: tuple[Callable[[Any], bool], str],
    belongs_to: str | None = None,
    also: str = "",
    setting: bool = False,
    excludes: Mapping[str, Callable[[Any], bool]] | None = None,
    with_eps: tuple[str, ...] = (),
) -> _Value:
    """Return a field of a dataclass with its default and its meaning, which docstring and command line show.

    A value must be the default or ``permitted``: each condition, with what a value must be in words. A field that
    ``belongs_to`` another says nothing while that one is None or False, and has its default then. ``also`` lists its
    other names in code. Users' functions may take a ``setting`` as a parameter, and get its value. What it ``excludes``
    are combinations with other fields: a reason, and the condition of an ``Attention`` under which it is refused. Its
    values ``with_eps`` are words: the norms that take the field ``eps``.

    Raises ``InputError`` for a float as a default, which sheets would read back as a fraction.

    >>> described(Fraction(1, 5), "a share of the weights").default
    Fraction(1, 5)
    >>> described(0.2, "a share of the weights")
    Traceback (most recent call last):
    symattn.document.errors.InputError: the default 0.2 is a float, but sheets read fractions; hint: Fraction(1, 5)
    """
    if isinstance(default, float):
        raise InputError(
            f"the default {default} is a float, but sheets read fractions; "
            f"hint: {Fraction(str(default))!r}"
        )
    own = {"help": words, "permitted": permitted, "belongs_to": belongs_to, "also": also}
    further = {"setting": setting, "excludes": excludes or {}, "with_eps": with_eps}
    return field(default=default, metadata=own | further)


# Conditions of fields, each with its words for errors.
_POSITIVE = (lambda x: finite(x) and x > 0, "be a finite number above 0")
_COUNT = (lambda n: whole(n, 1), "be an integer of at least 1")
_RATE = (lambda x: finite(x) and 0 <= x < 1, "be a number of at least 0 and below 1")


def _is_window(window: object) -> bool:
    if not isinstance(window, tuple):
        return whole(window, 1)
    return len(window) == 2 and all(side is None or whole(side, 0) for side in window)


def _belongs_to_softmax(name: str) -> Callable[[Any], bool]:
    return lambda s: not s.is_softmax and bool(getattr(s, name))


@dataclass(frozen=True, kw_only=True, repr=False)
class Fields:
    """The fields of an ``Attention``."""

    score: Literal["dot", "general", "additive", "cosine", "distance"] = described(
        "dot",
        "how queries and keys are compared: ``dot``; ``general`` Q W Kᵀ with w_s; ``additive`` tanh(Q W + K U) v "
        "with w_s, u_s, v_s; ``cosine``; ``distance`` −‖q − k‖²/2",
        excludes={
            "cosine scores normalise queries and keys themselves; hint: qk_norm=None": lambda s: (
                s.score == "cosine" and s.qk_norm is not None
            )
        },
    )
    scale: Scale = described(
        None,
        "factor of the scores; if left out, 1/√d_k for dot products and 1 for other scores; 1 turns scaling off "
        "(as an option also ``none``); ``1/d_k``; ``given`` reads an input ``scale`` with one number for each head",
        (lambda x: isinstance(x, str) or finite(x), "be a finite number"),
        (
            lambda x: not isinstance(x, str) or x in ("1/d_k", "given"),
            "be a finite number (1: no scaling), '1/d_k' or 'given'",
        ),
        also="softmax_scale sm_scale scaling",
        setting=True,
    )
    truncate: int | None = described(
        None,
        "number of leading columns of queries and keys that the scores use; no token is removed",
        _COUNT,
    )
    # No setting: in most code scores are divided by a parameter of this name.
    temperature: int | float | Fraction | Literal["log"] | None = described(
        None,
        "multiply the scores of query i by τ_i = 1 + β log(⌊p_i/f⌋ + 1) for the number β, with p_i the query's place "
        "(Llama 4); ``log``: by max(1, log p_i/log f) (Qwen)",
        (
            lambda x: x == "log" if isinstance(x, str) else finite(x) and x > 0,
            "be a finite number above 0, 'log' or None",
        ),
        excludes={
            "a temperature counts places from the first key, not within documents; hint: temperature=None": (
                lambda s: s.temperature is not None and s.documents
            )
        },
    )
    temperature_rate: int = described(
        8192,
        "the number f of places of ``temperature``",
        _COUNT,
        belongs_to="temperature",
        also="floor_scale",
        excludes={
            "log f is 0 for temperature_rate 1; hint: temperature_rate=2": lambda s: (
                s.temperature == "log" and s.temperature_rate == 1
            )
        },
    )
    temperature_start: int = described(
        1,
        "place of the first token for ``temperature``: 1 (Llama 4) or 0 (Ministral 3)",
        (lambda n: whole(n, 0), "be an integer of at least 0"),
        belongs_to="temperature",
    )
    softcap: int | float | Fraction | None = described(
        None,
        "c in the soft cap c tanh(S/c) of the scores S",
        _POSITIVE,
        also="soft_cap logit_softcap logits_soft_cap attn_logit_softcapping logit_softcapping attn_softcap",
        setting=True,
    )
    bias: bool = described(
        False,
        "add an input ``bias`` of finite numbers to the scores; a mask is what forbids keys",
        also="attn_bias attention_bias position_bias",
    )
    causal: bool = described(
        False,
        "query i attends to key j only if j ≤ i + o, where ``alignment`` sets o",
        also="is_causal use_causal use_causal_mask",
        setting=True,
    )
    alignment: Literal["bottom-right", "top-left"] = described(
        "bottom-right",
        "offset o of the queries' positions: ``bottom-right`` n_k − n_q, ``top-left`` 0",
    )
    window: Window = described(
        None,
        "(l, r): keys from l before the query's position i + o to r after it, None for an open side; with a causal"
        " mask, w is short for (w − 1, 0)",
        (_is_window, "be an integer of at least 1, or (left, right) with integers or None"),
        also="window_size sliding_window",
        setting=True,
        excludes={
            "a window of so many keys looks back from the query; hint: causal=True, or window=(left, right)": (
                lambda s: isinstance(s.window, int) and not s.causal
            ),
            "a window that is open on both sides hides nothing; hint: window=None": lambda s: (
                s.window == (None, None)
            ),
        },
    )
    block: int | None = described(
        None,
        "number of positions in a block; query i attends to key j only if both are in the same block",
        _COUNT,
    )
    prefix: int | None = described(
        None,
        "number of leading keys that every query sees; causal after them",
        _COUNT,
        setting=True,
        excludes={
            "a prefix opens keys that a causal mask closes; hint: causal=True": lambda s: (
                s.prefix is not None and not s.causal
            ),
            "a window or a block closes keys that a prefix opens; hint: mask='boolean', which says what is meant": (
                lambda s: s.prefix is not None and (s.window is not None or s.block is not None)
            ),
        },
    )
    mask: Literal["boolean", "additive"] | None = described(
        None,
        "an input ``mask``: ``boolean`` (True may attend) or ``additive``",
        also="attn_mask attention_mask allowed",
    )
    padding: bool = described(
        False, "an input ``keep`` of booleans over the keys, False for padding"
    )
    documents: bool = described(
        False,
        "packed documents: labels ``doc``, or ``doc_q`` and ``doc_k``; positions are counted within each document",
    )
    heads: int = described(
        1,
        "number of heads h; they split the columns of the projections, or q, k and v have an axis of heads",
        _COUNT,
        also="n_heads num_heads nheads n_head nhead num_attention_heads",
        setting=True,
    )
    kv_heads: int | None = described(
        None,
        "number of heads of keys and values; query head t reads head ⌊t · kv_heads / heads⌋; None: as many as heads",
        _COUNT,
        also="n_kv_heads num_kv_heads num_key_value_heads kv_num_heads n_kv n_kv_head num_kv",
        setting=True,
        excludes={
            "kv_heads must divide heads: each head of keys is read by as many heads of queries": (
                lambda s: s.heads % s.key_heads != 0
            )
        },
    )
    packed: bool = described(
        False,
        "one matrix w_in (and bias b_in) with columns q | k | v replaces w_q, w_k and w_v",
        excludes={
            "packed and latent exclude each other": lambda s: s.packed and s.latent is not None
        },
    )
    latent: Latent | None = described(
        None,
        "keys and values computed from a shared latent, as in multi-head latent attention",
        excludes={
            "a latent is shared by all heads, and has no kv_heads; hint: kv_heads=None": lambda s: (
                s.latent is not None and s.kv_heads is not None
            ),
            "with a latent it is the latent that is normalised; hint: Latent(norm='rms') in place of qk_norm": (
                lambda s: (
                    s.latent is not None and (s.qk_norm is not None or s.value_norm is not None)
                )
            ),
            "keys of a latent have scores that are dot products of all their columns; "
            "hint: score='dot', truncate=None": (
                lambda s: s.latent is not None and (s.score != "dot" or s.truncate is not None)
            ),
        },
    )
    qk_norm: Literal["rms", "layer", "l2"] | None = described(
        None,
        "normalise queries and keys: ``rms`` or ``layer``, with gains g_q, g_k if given, or ``l2``, to "
        "length 1",
        with_eps=("rms", "layer"),
    )
    qk_norm_place: Literal["before", "after"] = described(
        "before", "whether qk_norm comes ``before`` or ``after`` the rotation of a rotary position"
    )
    qk_norm_over: Literal["head", "heads"] = described(
        "head",
        "whether qk_norm normalises the vector of each ``head``, or that of all ``heads`` side by side, with gains for "
        "all their columns",
        excludes={
            "qk_norm_over='heads' belongs to qk_norm 'rms' or 'layer' of several heads; hint: qk_norm_over='head'": (
                lambda s: (
                    s.qk_norm_over == "heads"
                    and (s.qk_norm not in ("rms", "layer") or s.heads == 1)
                )
            )
        },
    )
    qk_norm_of: Literal["both", "keys"] = described(
        "both",
        "whether qk_norm normalises queries and keys, ``both``, or ``keys`` alone (attention residuals)",
        excludes={
            "qk_norm_of='keys' belongs to qk_norm; hint: qk_norm_of='both'": lambda s: (
                s.qk_norm_of == "keys" and s.qk_norm is None
            )
        },
    )
    value_norm: Literal["rms"] | None = described(
        None,
        "normalise values in each head: ``rms``, with a gain g_v if given",
        also="v_norm",
        with_eps=("rms",),
    )
    # The norms that take it stand in their own fields, from which ``descriptions`` and ``contradictions`` list them. A
    # float is taken as those of ``Scale`` are: code also computes ε, as ``finfo(float32).eps``.
    eps: int | float | Fraction = described(0, "the ε of {norms}", also="epsilon", setting=True)
    position: Position | None = described(
        None,
        "how positions enter: rotary, ALiBi, buckets (T5), Shaw, Transformer-XL or disentangled (DeBERTa)",
    )
    normaliser: Literal["softmax", "sigmoid", "relu", "relu_sum", "sparsemax", "entmax"] = (
        described(
            "softmax",
            "how scores become weights: ``softmax``, ``sigmoid`` (minus log n_k, unless a bias is given), ``relu`` "
            "(divided by n_k), ``relu_sum`` (not divided), ``sparsemax``, ``entmax`` (1.5)",
            also="normalizer",
            excludes={
                "scores of distances are never positive, and relu makes 0 of them; "
                "hint: bias=True, or another normaliser": (
                    lambda s: (
                        s.score == "distance"
                        and s.normaliser in ("relu", "relu_sum")
                        and not (s.bias or s.scale or s.mask == "additive")
                    )
                )
            },
        )
    )
    base: Literal[2] | None = described(
        None,
        "2 for powers of two in place of powers of e",
        (lambda x: whole(x, 2) and x == 2, "be None, for e, or 2"),
        excludes={"base belongs to normaliser 'softmax'": _belongs_to_softmax("base")},
    )
    sink: Literal["given", "zero"] | None = described(
        None,
        "extra logit in each softmax row that takes weight but has no value: ``given`` (input ``sink``, one per head) "
        "or ``zero``",
        also="sinks s_aux sink_logits",
        excludes={"sink belongs to normaliser 'softmax'": _belongs_to_softmax("sink")},
    )
    stabilised: bool = described(
        True, "subtract the row maximum before exponentiating", also="stabilized"
    )
    fully_masked: Literal["zeros", "nan", "error"] = described(
        "zeros",
        "result of a row in which no key is allowed: ``zeros``, ``nan`` or ``error``",
        excludes={
            "with a sink, sigmoid or relu a row that is fully masked is not 0/0 but zeros; "
            "hint: fully_masked='zeros'": (
                lambda s: s.fully_masked != "zeros" and not s.sums_to_one
            )
        },
    )
    dropout: int | float | Fraction = described(
        0,
        "dropout rate; an input ``drop`` of booleans marks the weights that are kept",
        _RATE,
        also="dropout_p p_dropout dropout_rate",
        setting=True,
    )
    output_gate: bool = described(
        False,
        "multiply each head's output by σ(``gate``), an input with a number for each query and column, or for each "
        "query, of each head, before the output projection",
        also="gated attn_output_gate use_gate",
    )
    output_gate_place: Literal["before", "after"] = described(
        "before",
        "whether the output gate comes ``before`` or ``after`` the output projection; after it ``gate`` has a number "
        "for each query and column of the output, or for each query",
        excludes={
            "output_gate_place belongs to output_gate; hint: output_gate_place='before'": (
                lambda s: s.output_gate_place == "after" and not s.output_gate
            )
        },
    )
    lse: bool = described(
        False,
        "return (output, L), where L is the logarithm of each row's divisor",
        also="return_lse return_softmax_lse with_lse output_lse return_logsumexp",
        excludes={"lse belongs to normaliser 'softmax'": _belongs_to_softmax("lse")},
    )


# Errors of any function lead from these words to the fields.
register_fields({f.name: f.metadata["also"] for f in fields(Fields)})


def contradictions() -> dict[str, Callable[[Any], bool]]:
    """Return the combinations that fields exclude: a reason, and the condition under which an attention is refused."""
    norms = _norms_with_eps()
    owners = ", or to ".join(f"{name} {' or '.join(map(repr, of))}" for name, of in norms.items())
    result = {
        f"eps belongs to {owners}": lambda s: (
            bool(s.eps) and not any(getattr(s, name) in of for name, of in norms.items())
        )
    }
    for f in fields(Fields):
        result |= f.metadata["excludes"]
        if owner := f.metadata["belongs_to"]:
            reason = f"{f.name} belongs to {owner}; hint: {f.name}={f.default!r}"
            result[reason] = partial(_is_set_without_owner, f.name, f.default, owner)
    return result


def _is_set_without_owner(name: str, default: object, owner: str, spec: Any) -> bool:
    return not getattr(spec, owner) and bool(getattr(spec, name) != default)


def _norms_with_eps() -> dict[str, tuple[str, ...]]:
    """Return the fields that ask for norms with ε, each with its values that do."""
    return {f.name: f.metadata["with_eps"] for f in fields(Fields) if f.metadata["with_eps"]}


def settings() -> tuple[str, ...]:
    """Return the fields that users' functions may take as parameters."""
    return tuple(f.name for f in fields(Fields) if f.metadata["setting"])


def descriptions() -> dict[str, str]:
    """Return the meaning of each field of ``Attention``, independent of docstrings, which ``python -OO`` removes."""
    norms = " and ".join(_norms_with_eps())
    return {f.name: f.metadata["help"].replace("{norms}", norms) for f in fields(Fields)}
