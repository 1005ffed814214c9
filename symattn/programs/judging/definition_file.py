"""A benchmark's ``definition.json``: a kernel's axes, inputs, outputs, and a reference in PyTorch, with ``run``.

https://github.com/flashinfer-ai/flashinfer-bench, docs/flashinfer_trace/definition.md: an axis is constant, with a
value, or variable; the shape of an input is a list of axes, or null for a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symattn.attention.codec import json_text
from symattn.attention.spec import Attention
from symattn.bounds.domain import Domain
from symattn.document.errors import InputError
from symattn.programs.names import meaning
from symattn.verification.definitions.norms import LayerNorm, RMSNorm
from symattn.verification.definitions.registry import Specification

RUN = "run"
_LARGEST = 2**22  # bytes of a file
_FIELDS = ("axes", "inputs", "outputs", "reference")
_EPSILONS = (1e-5, 1e-6, 1e-8)  # of norms, as libraries have them


@dataclass(frozen=True)
class KernelDefinition:
    """What the file says: the values of constant axes, the axes of each array, and the text of the reference."""

    constants: dict[str, int]
    inputs: dict[str, tuple[str, ...]]
    outputs: int
    dtype: str
    reference: str

    def domain(self) -> Domain:
        """Return what constant axes promise of widths."""
        arrays = [axes for axes in self.inputs.values() if axes]
        width = self.constants.get(arrays[0][-1]) if arrays else None
        usual = Domain()
        return usual if width is None else Domain(min_width=width, max_width=width, max_tokens=usual.max_tokens)

    def plausible(self) -> tuple[Specification, ...]:
        """Return the definitions that the reference may compute, by the names and axes of its inputs."""
        by_role = {meaning(name): axes for name, axes in self.inputs.items()}
        if {"q", "k", "v"} <= by_role.keys():
            heads, kv_heads = (self._heads(by_role[name]) for name in "qk")
            plain = Attention(heads=heads, kv_heads=kv_heads if kv_heads != heads else None, lse=self.outputs > 1)
            return tuple(
                Attention(heads=plain.heads, kv_heads=plain.kv_heads, lse=plain.lse, **more)
                for more in ({}, {"causal": True}, {"causal": True, "alignment": "top-left"})
            )
        vectors = [axes for axes in self.inputs.values() if len(axes) == 1]
        if len(vectors) <= 2 and any(len(axes) > 1 for axes in self.inputs.values()):
            return (*(RMSNorm(eps=eps) for eps in _EPSILONS), *(LayerNorm(eps=eps) for eps in _EPSILONS))
        return ()

    def _heads(self, axes: tuple[str, ...]) -> int:
        """Return the number of heads: the constant axis before the last one, in any place."""
        return next((self.constants[axis] for axis in axes[:-1] if axis in self.constants), 1)


def read_definition(path: str) -> KernelDefinition:
    """Read ``definition.json``; nothing of it is run. Raises ``InputError`` for a file of another form."""
    content = json_text.loaded(Path(path), _LARGEST)
    if not isinstance(content, dict) or any(field not in content for field in _FIELDS):
        raise InputError(f"{path} is no definition of a kernel; hint: it has {', '.join(_FIELDS)}")
    axes, inputs = content["axes"], content["inputs"]
    named = all(isinstance(part, dict) for part in (axes, inputs, content["outputs"]))
    if not named or not isinstance(content["reference"], str):
        raise InputError(f"{path}: axes, inputs and outputs must be objects, and reference a text")
    constants = {name: _value(path, name, axis) for name, axis in axes.items() if _field(axis, "type") == "const"}
    shapes = {name: _axes(path, name, array, axes) for name, array in inputs.items()}
    dtypes = [str(_field(array, "dtype")) for array in inputs.values() if _field(array, "shape")]
    floats = [dtype for dtype in dtypes if dtype.startswith(("float", "bfloat"))]
    if not floats:
        raise InputError(f"{path}: no input is an array of floats")
    return KernelDefinition(constants, shapes, len(content["outputs"]), floats[0], content["reference"])


def _field(entry: object, name: str) -> Any:
    return entry.get(name) if isinstance(entry, dict) else None


def _value(path: str, name: str, axis: object) -> int:
    value = _field(axis, "value")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{path}: the axis {name} is constant, and its value {value!r} is no size")
    return value


def _axes(path: str, name: str, array: object, axes: dict[str, Any]) -> tuple[str, ...]:
    shape = _field(array, "shape") or []
    unknown = [axis for axis in shape if axis not in axes] if isinstance(shape, list) else [shape]
    if unknown:
        raise InputError(f"{path}: the axis {unknown[0]!r} of {name} is not among its axes")
    return tuple(shape)
