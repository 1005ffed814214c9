"""A layer that reads the keys and values of another one, held against the layer that the configuration names.

Both are compared bit by bit as calls of one pass of the model receive them: a layer that reads those of another one
computes none. The keys of all layers of the pass are kept while it runs, and only for configurations with such layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from symattn.models.auditing import promises
from symattn.models.auditing.audit_report import PASSES, CallFinding
from symattn.models.auditing.received import Received
from symattn.models.auditing.setting import Tensor
from symattn.models.configurations.shared_keys import find_layer_of_keys

# The entry of what calls of one pass share that holds their keys and values.
_READ = "keys and values by layer"
_NOUNS = {"k": "keys", "v": "values"}
KeysAndValues = dict[str, Tensor]


def hold_keys_against_layers(
    call_finding: CallFinding, received: Received, context: promises.ModelCall | None
) -> CallFinding:
    """Return the finding of a call, wrong if its keys or values are not those that the configuration says.

    A pass becomes ``cannot tell`` if the call of the layer that it should share with was not read.
    """
    module = received.module
    config = getattr(module, "config", None) or (context.config if context else None)
    layer = promises.number_of_layer(module, call_finding.layer)
    if context is None or layer is None:
        return call_finding
    source = find_layer_of_keys(config, layer)
    if source is None:
        return call_finding
    read: dict[int, KeysAndValues] = context.compared.setdefault(_READ, {})
    own: KeysAndValues = {"k": received.k, "v": received.v}
    # A pass may run all layers again, so that later ones may have been read before.
    earlier = {number: arrays for number, arrays in read.items() if number < layer}
    read[layer] = own
    if source != layer and source not in earlier:
        reason = f"its keys should be those of layer {source}, whose call was not read"
        return (
            replace(call_finding, reason=reason) if call_finding.state in PASSES else call_finding
        )
    words = _describe_other_layer(own, earlier, source, layer)
    if words:
        cause = "; ".join(filter(None, (call_finding.cause, words)))
        return replace(call_finding, asked=(*call_finding.asked, words), cause=cause)
    if source == layer:
        return call_finding
    semantics = f"{call_finding.semantics} keys of layer {source}"
    return replace(call_finding, semantics=semantics)


def _describe_other_layer(
    own: KeysAndValues, earlier: dict[int, KeysAndValues], source: int, layer: int
) -> str:
    """Say whose keys and values are read in the place of the right ones; "" if they are the right ones."""
    found: dict[str, str] = {}
    for name, array in own.items():
        equal = [n for n, arrays in earlier.items() if _are_equal(array, arrays[name])]
        if source == layer and equal:
            found[name] = f"those of layer {equal[-1]}, not the layer's own"
        elif source != layer and source not in equal:
            whose = f"those of layer {equal[-1]}" if equal else "those of no earlier layer"
            found[name] = f"{whose}, not of layer {source}"
    if len({*found.values()}) == 1 and len(found) == 2:
        return f"keys and values are {found['k']}"
    return "; ".join(f"{_NOUNS[name]} are {words}" for name, words in found.items())


def _are_equal(first: Any, second: Any) -> bool:
    """Return whether two arrays hold the same numbers, which are not all one number, as in layers without weights."""
    import torch

    if first is second:
        return True
    if first.shape != second.shape or first.dtype != second.dtype or not first.numel():
        return False
    return bool(torch.equal(first, second)) and bool((first != first.flatten()[0]).any())
