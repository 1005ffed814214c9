"""What a case is: a layer that was seen, the specification that must give the same, and others that must not."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from symattn.attention.presets import like
from symattn.attention.spec import Attention
from tests.models.mixed import run
from tests.models.seen import Seen

TABLES = ("cos", "sin")
Inputs = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Wrong:
    """Another attention that a case must refuse: in words, other fields, and other inputs (None: without)."""

    words: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, np.ndarray | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A layer and its specification.

    preset   its name in ``symattn.attention.presets``, with ``told``, the fields that are told beside it
    single   the steps that the layer takes in float32
    as_run   for bounds: specification and inputs as the layer computes, where that is another formula of equal value
    same     other specifications that must have the same exact value
    note     what differs from the preset or the paper, and what to know of the layer
    """

    model: str
    seen: Seen
    told: Mapping[str, Any]
    inputs: Inputs
    wrong: tuple[Wrong, ...]
    preset: str = ""
    single: tuple[str, ...] = ()
    as_run: tuple[Attention, Inputs] | None = None
    same: tuple[Mapping[str, Any], ...] = ()
    note: str = ""

    @property
    def spec(self) -> Attention:
        """The specification."""
        return like(self.preset, **self.told) if self.preset else Attention(**self.told)

    @property
    def written(self) -> str:
        """The specification as it is written."""
        told = [f"{name}={_short(value)}" for name, value in self.told.items()]
        first = [f'"{self.preset}"'] if self.preset else []
        return f"{'like' if self.preset else 'Attention'}({', '.join([*first, *told])})"

    def bounded(self) -> Any:
        """The value, with the bound for what the layer computes."""
        spec, inputs = self.as_run or (self.spec, self.inputs)
        return run(spec, inputs, [s for s in self.single if s in names(spec, inputs)])

    def of(self, wrong: Wrong) -> Any:
        """What a wrong variant gives, with its bound."""
        spec = replace(self.spec, **wrong.fields)
        inputs = {name: a for name, a in {**self.inputs, **wrong.inputs}.items() if a is not None}
        return run(spec, inputs, [s for s in self.single if s in names(spec, inputs)])


def names(spec: Attention, inputs: Inputs) -> set[str]:
    """The names of the steps."""
    return {step.name for step in spec.pipeline(inputs)}


def _short(value: Any) -> str:
    """A field as it is written, without what is as usual."""
    if not hasattr(value, "__dataclass_fields__"):
        return str(value) if isinstance(value, (int, float)) else repr(value)
    told = []
    for of in fields(value):
        given = getattr(value, of.name)
        if given != of.default:
            told.append(f"{of.name}={_short(given)}")
    return f"{type(value).__name__}({', '.join(told)})"


# -- inputs of layers --------------------------------------------------------------------------------------------------
def projections(seen: Seen, **paths: str) -> dict[str, np.ndarray]:
    """x, and w_… and b_… (where there are biases) for ``q="q_proj"``; paths begin at the layer."""
    found = {"x": seen.x}
    for letter, path in paths.items():
        found[f"w_{letter}"] = seen.weight(path)
        if seen.layer.get_submodule(path).bias is not None:
            found[f"b_{letter}"] = seen.bias(path)
    return found


def split_by_head(seen: Seen, heads: int, fused: str, output: str) -> dict[str, np.ndarray]:
    """Inputs of a layer whose one matrix holds q, k and v of the first head, then those of the second, and so on."""
    weight, bias = seen.weight(fused), seen.bias(fused)
    found = projections(seen, o=output)
    for index, letter in enumerate("qkv"):
        found[f"w_{letter}"] = weight.reshape(len(weight), heads, 3, -1)[:, :, index].reshape(len(weight), -1)
        found[f"b_{letter}"] = bias.reshape(heads, 3, -1)[:, index].reshape(-1)
    return found


def by_turns(inputs: Inputs, heads: int, kv_heads: int) -> dict[str, np.ndarray]:
    """The queries' columns for heads that take those of the keys by turns: head h reads h modulo kv_heads."""
    order = [kv + kv_heads * turn for kv in range(kv_heads) for turn in range(heads // kv_heads)]
    found = {n: _reordered(inputs[n], heads, order) for n in ("w_q", "b_q") if n in inputs}
    return {**found, "w_o": _reordered(inputs["w_o"].T, heads, order).T}


def _reordered(columns: np.ndarray, heads: int, order: list[int]) -> np.ndarray:
    blocks = columns.reshape(*columns.shape[:-1], heads, -1)
    return blocks[..., order, :].reshape(columns.shape)
