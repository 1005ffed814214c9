"""Numbers of an inferred specification as expressions in the fields of a configuration, which hold in two of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symattn.models.inferring.inference import InferredPart

#: Fields and their numbers in the second configuration.
OTHER_NUMBERS: dict[str, Any] = {
    "sliding_window": 7,
    "attention_chunk_size": 9,
    "local_attention": 8,
    "query_pre_attn_scalar": 100,
    "attn_logit_softcapping": 30.0,
    "attention_multiplier": 0.3,
    "head_dim": 24,
    "num_key_value_heads": 1,
    "floor_scale": 3,
    "attn_scale": 0.25,
    "index_topk": 8,
    "rms_norm_eps": 3e-5,
    "layer_norm_eps": 3e-5,
    "norm_eps": 3e-5,
}
_CLOSE = 2.0**-26
#: Fields that count heads of other parts than attention.
_OF_OTHER_PARTS = re.compile(r"linear|gdn|kda|delta|mamba|ssm|index")


def _flatten_config_numbers(config: Any) -> dict[str, float]:
    """Return the numbers of a configuration by name, those of nested fields as ``outer.inner``."""
    result: dict[str, float] = {}
    for name, value in config.to_dict().items():
        # Two levels of nested fields, as configurations have them.
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, x in inner:
            deeper = x.items() if isinstance(x, Mapping) else [("", x)]
            for last, y in deeper:
                # bool is a subclass of int, and no number here.
                if type(y) in (int, float):
                    path = (str(part) for part in (name, key, last) if part != "")
                    result[".".join(path)] = float(y)
    return result


def expressions(config: Any, d_k: int) -> dict[str, dict[str, float]]:
    """Return for each number of a specification the expressions in fields that may give it, with their values."""
    named = _flatten_config_numbers(config)

    def pick(*words: str) -> dict[str, float]:
        return {name: x for name, x in named.items() if any(word in name for word in words)}

    heads, keys = (
        # Heads of vision or audio are those of other parts.
        {name: x for name, x in pick(*words).items() if not _OF_OTHER_PARTS.search(name)}
        for words in (("heads", "n_head"), ("key_value_heads", "kv_heads"))
    )
    # A window to both sides is half of the field.
    halves = {f"{name} // 2": x // 2 for name, x in pick("local_attention").items()}
    scalars = pick("pre_attn_scalar").items()
    roots = {f"1/√{name}": x**-0.5 for name, x in scalars if x > 0}
    shares = {
        f"d_k · {name}": float(int(d_k * x))
        for name, x in pick("partial_rotary", "rotary_pct").items()
    }
    doubled = {f"2 · {name}": 2 * x for name, x in keys.items()}
    return {
        "heads": heads,
        "kv_heads": {**keys, **heads, **doubled, "1": 1.0},
        "scale": {
            "1/√d_k": d_k**-0.5,
            **roots,
            **pick("attention_multiplier"),
            "1": 1.0,
            "1/d_k": 1 / d_k,
        },
        "softcap": pick("softcap"),
        "window": {**pick("sliding_window", "chunk_size"), **halves},
        "chosen": pick("topk", "top_k", "budget"),
        "base": pick("theta"),
        "temperature": pick("beta", "attn_scale"),
        "temperature_rate": pick("max_position", "floor_scale", "seq_length"),
        **dict.fromkeys(("eps", "value_eps"), pick("norm_eps", "norm_epsilon", "layernorm_eps")),
        "rotated": {"d_k": float(d_k), **pick("rope_head_dim"), **shares, **pick("rotary_dim")},
    }


def _convert_window_to_number(x: Any) -> float | None:
    """Return a number of a window as well: of one side, or the size of blocks."""
    if isinstance(x, tuple):
        return float(x[0])
    # Another text, such as a temperature of logarithms, is no number.
    if isinstance(x, str):
        digits = x.rpartition(" ")[2]
        return float(digits) if digits.isdigit() else None
    return float(x) if isinstance(x, (int, float)) and not isinstance(x, bool) else None


def find_fitting_expressions(
    part: InferredPart, other: InferredPart | None
) -> dict[str, list[str]]:
    """Return for the numbers of a part the expressions that hold in both configurations; {} without a second one."""
    if part.facts is None or other is None or other.facts is None:
        return {}
    again = other.facts.numbers()
    result: dict[str, list[str]] = {}
    for name, value in part.facts.numbers().items():
        first, second = _convert_window_to_number(value), _convert_window_to_number(again[name])
        if first is None or second is None:
            continue
        known = part.expressions.get(name, {})
        fits = [
            e
            for e, x in known.items()
            # An expression has to hold in both configurations.
            if _is_near_promised_number(first, x)
            and _is_near_promised_number(second, other.expressions[name].get(e))
        ]
        if fits:
            result[name] = fits
    return result


def _is_near_promised_number(a: float, b: float | None) -> bool:
    return b is not None and abs(a - b) <= _CLOSE * abs(b)
