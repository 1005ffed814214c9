"""Read what a configuration says about the attention of a layer, by the usual names of fields, for any model type."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

from symattn.models.inferring import inferred_call

_KINDS = ("layer_types", "layers_block_type", "block_types")
_CLOSE = 2.0**-26


@dataclass
class LayerFields:
    """The fields that hold for one layer of a configuration."""

    config: Any
    layer: int

    @property
    def kind(self) -> str:
        """Return the kind of the layer, such as ``sliding_attention``; "" if none is written."""
        lists = [getattr(self.config, name, None) for name in _KINDS]
        kinds: list[str] = next((entries for entries in lists if entries), [])
        return str(kinds[self.layer]) if self.layer < len(kinds) else ""

    def find(self, *names: str) -> Any:
        """Return the first field that is set, of this layer if the configuration has a list for all."""
        # Newer files have fields for single layers.
        by_layer = self.config.to_dict().get("per_layer_config") or {}
        own = {int(i): fields for i, fields in by_layer.items()}
        mine = own.get(self.layer, {})
        for name in names:
            value = mine[name] if name in mine else self._read_whole_config_field(name)
            if value is not None:
                # A list has an entry for each layer.
                return value[self.layer] if isinstance(value, (list, tuple)) else value
        return None

    def _read_whole_config_field(self, name: str) -> Any:
        """Return a field of the whole configuration."""
        try:
            return getattr(self.config, name, None)
        except RuntimeError:  # Transformers refuses a field that layers may set apart
            return self.config.to_dict().get(name)

    def rope(self) -> dict[str, Any]:
        """Return the parameters of the rotation of this layer's kind."""
        rope = getattr(self.config, "rope_parameters", None) or {}
        nested = any(isinstance(x, dict) for x in rope.values())
        return dict((rope.get(self.kind) or {}) if nested else rope)


def said(config: Any, layer: int) -> dict[str, Any]:
    """Return what the fields say: heads, kv_heads, causal, window, scale, softcap, rotated columns, base, qk_norm."""
    fields = LayerFields(config, layer)
    sliding = "sliding" in fields.kind
    # Sliding layers may have other heads.
    other = ("swa_num_attention_heads", "num_sliding_attention_heads") if sliding else ()
    heads = fields.find(
        "num_attention_heads_per_layer", *other, "num_attention_heads", "n_head", "num_heads"
    )
    keys = fields.find(
        *(("swa_num_key_value_heads",) if sliding else ()), "num_key_value_heads", "num_kv_heads"
    )
    latent, d = _is_latent(fields), width_of_heads(config, layer)
    # Latent attention has as many heads of keys as of queries.
    keys = heads if latent else keys
    two_sided = bool(fields.find("use_bidirectional_attention"))
    return {
        "heads": heads,
        "kv_heads": keys or heads,
        "causal": False if two_sided or fields.find("is_causal") is False else None,
        "window": _promised_window(fields, sliding),
        "scale": _promised_score_scale(fields, d, latent),
        "softcap": fields.find("attn_logit_softcapping"),
        **_promised_rotation(fields, d, latent),
        "qk_norm": fields.find("use_qk_norm", "qk_layernorm"),
    }


def _is_latent(fields: LayerFields) -> bool:
    return bool(fields.find("kv_lora_rank") and fields.find("qk_rope_head_dim"))


def width_of_heads(config: Any, layer: int) -> int:
    """Return d_k by the usual names of fields."""
    fields = LayerFields(config, layer)
    if _is_latent(fields):
        return int(fields.find("qk_nope_head_dim") + fields.find("qk_rope_head_dim"))
    heads = fields.find("num_attention_heads", "n_head", "num_heads") or 1
    return int(
        fields.find("head_dim") or (fields.find("hidden_size", "n_embd", "d_model") or 0) // heads
    )


def _promised_window(fields: LayerFields, sliding: bool) -> Any:
    if "chunked" in fields.kind:
        return f"blocks of {fields.find('attention_chunk_size')}"
    if not (sliding or (not fields.kind and fields.find("use_sliding_window") is not False)):
        return None
    local = fields.find("local_attention")
    return fields.find("sliding_window") or (local and (local // 2, local // 2))


def _promised_score_scale(fields: LayerFields, d: int, latent: bool) -> float:
    multiplier = fields.find("attention_multiplier")
    scale = (
        float(multiplier)
        if multiplier
        else float(fields.find("query_pre_attn_scalar") or d or 1) ** -0.5
    )
    rope = fields.rope()
    # Layers with latents multiply the score itself by the square of this factor of YaRN.
    if latent and rope.get("mscale_all_dim") and rope.get("factor", 1) > 1:
        scale *= (1 + 0.1 * rope["mscale_all_dim"] * log(rope["factor"])) ** 2
    return scale


def _promised_rotation(fields: LayerFields, d: int, latent: bool) -> dict[str, Any]:
    rope = fields.rope()
    base, switches = (
        rope.get("rope_theta") or fields.find("rope_theta"),
        fields.find("no_rope_layers"),
    )
    # 0 in ``no_rope_layers`` switches rotations off.
    if not rope or not base or switches == 0:
        return {"rotated": None, "base": None, "rope_type": None}
    share = (
        rope.get("partial_rotary_factor")
        or fields.find("partial_rotary_factor", "rotary_pct")
        or 1.0
    )
    width = (
        fields.find("qk_rope_head_dim") if latent else fields.find("rotary_dim") or int(d * share)
    )
    return {"rotated": width, "base": float(base), "rope_type": rope.get("rope_type", "default")}


def disagreements(promises: dict[str, Any], facts: inferred_call.CallFacts) -> list[str]:
    """Return where the fields and the run differ, in words."""
    run_numbers = facts.numbers()
    names = ["heads", "kv_heads", "softcap"]
    # no field says that a model is causal
    names += ["causal"] if promises["causal"] is False else []
    # others may scale queries and keys
    names += ["scale"] if promises["rope_type"] in (None, "default") else []
    names += ["window"] if facts.plain_mask else []
    names += ["rotated"] if promises["rope_type"] != "proportional" else []
    names += ["base"] if promises["rope_type"] in (None, "default") and run_numbers["base"] else []
    result = [
        f"{name}: {promises[name]} by the fields, {run_numbers[name]} in the run"
        for name in names
        if not _is_equal_to_promise(promises[name], run_numbers[name])
    ]
    # A field of norms says nothing of layers without rotations, which may have temperatures in their place.
    norm = promises["qk_norm"] if promises["rotated"] else None
    if norm is not None and bool(norm) != bool(facts.norm):
        result.append(f"qk_norm: {norm} by the fields, {facts.norm or 'none'} in the run")
    return result


def _is_equal_to_promise(a: Any, b: Any) -> bool:
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (a, b))
    return bool(abs(a - b) <= _CLOSE * abs(b) if numbers else a == b)
