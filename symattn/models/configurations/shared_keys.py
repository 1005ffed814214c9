"""Which layer computes the keys and values that a layer reads, as configurations of Transformers say it.

Two fields say it. ``num_kv_shared_layers``: the last layers read those of the last layer of their own type before them
(Gemma 3n, Gemma 4). ``kv_source_layers``: a list with the layer for each (Mistral Large 4). Sources: the documentation
of these fields; Brandon et al., Reducing Transformer Key-Value Cache Size with Cross-Layer Attention (2024); Sun et
al., You Only Cache Once (2024).
"""

from __future__ import annotations

from typing import Any

from symattn.attention.fields import whole


def find_layer_of_keys(config: Any, layer: int) -> int | None:
    """Return the layer whose keys and values a layer reads: itself, or an earlier one.

    None if the configuration, an object, has no field for it, or one that says nothing of this layer.
    """
    sources = getattr(config, "kv_source_layers", None)
    if isinstance(sources, (list, tuple)) and layer < len(sources):
        return sources[layer] if whole(sources[layer], 0) and sources[layer] <= layer else None
    shared: Any = getattr(config, "num_kv_shared_layers", None)
    depth: Any = getattr(config, "num_hidden_layers", None)
    if not whole(shared, 1) or not whole(depth, 1) or shared >= depth or layer >= depth:
        return None
    first: int = depth - shared
    if layer < first:
        return layer
    kinds = getattr(config, "layer_types", None)
    if not isinstance(kinds, (list, tuple)) or len(kinds) != depth:
        # Without types all layers are of one.
        return first - 1
    alike = [i for i in range(first) if kinds[i] == kinds[layer]]
    return alike[-1] if alike else None
