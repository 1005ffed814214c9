"""A benchmark's ``definition.json``: a kernel's axes, inputs, outputs, and a reference in PyTorch, with ``run``.

https://github.com/flashinfer-ai/flashinfer-bench, docs/flashinfer_trace/definition.md: an axis is constant, with a
value, or variable; the shape of an input is a list of axes, or null for a number.
https://github.com/NVIDIA/SOL-ExecBench, docs/definition.md, has axes that are computed from others (``expr``) as well,
and may name a function that draws the inputs (``custom_inputs_entrypoint``), which is not run here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from symattn.attention.codec import json_text
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Layout
from symattn.bounds.domain import Domain
from symattn.document.errors import InputError
from symattn.document.keywords import plain
from symattn.programs.judging.attention_of_benchmark import fields_of_inputs, with_positions
from symattn.programs.judging.definition_axes import compute_axis
from symattn.programs.judging.kernel_form import (
    Q_LATENT,
    KernelForm,
    RequestBatch,
    batch_of,
    role_of,
)
from symattn.programs.judging.neighbours import choose_neighbours
from symattn.programs.judging.recurrences import (
    domain_of_recurrence,
    factor_of,
    layout_of_arrays,
    letters_by_name,
    plausible_recurrences,
)
from symattn.programs.judging.recurrent_form import RecurrentForm, sizes_of_axes
from symattn.programs.specifications import Specification
from symattn.verification.definitions.linear import LinearAttention
from symattn.verification.definitions.norms import LayerNorm, RMSNorm
from symattn.verification.definitions.weights import Softmax

#: The function of the reference's text.
RUN = "run"
_LARGEST = 2**22  # bytes of a file
#: Fields without which a file is no definition of a kernel.
_FIELDS = ("axes", "inputs", "outputs", "reference")
#: Names of the offsets of sequences whose tokens stand one after the other.
_OFFSETS_OF_SEQUENCES = {plain("cu_seqlens"), plain("cu_seq_lens")}
_EPSILONS = (1e-5, 1e-6, 1e-8)  # of norms, as libraries have them


@dataclass(frozen=True)
class KernelDefinition:
    """The contents of the file: the values of constant axes, the axes of each array, and the text of the reference.

    ``computed`` has the expressions of axes that depend on variable ones. ``outputs`` have their axes and format, and
    ``inputs`` that are plain numbers have no axes. ``drawn_by`` names the reference's function that draws inputs,
    and ``dtypes`` are the formats of its arrays.
    """

    constants: dict[str, int]
    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[tuple[str, ...], str]]
    dtype: str
    reference: str
    computed: dict[str, str] = field(default_factory=dict)
    drawn_by: str = ""
    dtypes: dict[str, str] = field(default_factory=dict)

    def batch(self) -> RequestBatch | None:
        """Return how the kernel takes several requests in one call, if so. Raises ``InputError`` if that is unread."""
        return batch_of(self.inputs, self.constants)

    @cached_property
    def recurrences(self) -> tuple[LinearAttention, ...]:
        """The linear attentions that the reference may compute; none if its arrays are not those of one."""
        arrays = self._axes_of_recurrence
        numbers = {name for name, axes in self.inputs.items() if not axes} - {self._offsets}
        is_read = all(role_of(name) == "scale" for name in numbers)
        # Three arrays are those of an attention with softmax.
        if not is_read or len(arrays) <= len("qkv"):
            return ()
        return plausible_recurrences(arrays, len(self.outputs) > 1)

    @cached_property
    def _offsets(self) -> str:
        """The input with the offsets of sequences; "" if there is none."""
        names = [
            name
            for name, axes in self.inputs.items()
            if plain(name) in _OFFSETS_OF_SEQUENCES and len(axes) == 1
        ]
        return names[0] if len(names) == 1 else ""

    @cached_property
    def _axes_of_recurrence(self) -> dict[str, tuple[int | str, ...]]:
        """The axes of its arrays, as sizes where these are constant; with an axis for several sequences."""
        own = {
            name: tuple(self.constants.get(axis, axis) for axis in axes)
            for name, axes in self.inputs.items()
            if axes and name != self._offsets
        }
        if not self._offsets:
            return own
        tokens = self._names_with_tokens
        return {name: ("", *axes) if name in tokens else axes for name, axes in own.items()}

    @cached_property
    def _names_with_tokens(self) -> tuple[str, ...]:
        """The arrays whose first axis is that of the queries."""
        queries = next((axes for name, axes in self.inputs.items() if role_of(name) == "q"), ())
        return tuple(name for name, axes in self.inputs.items() if axes and axes[:1] == queries[:1])

    @property
    def joins_sequences(self) -> bool:
        """Return whether it is a linear attention of several sequences in one call."""
        return bool(self.recurrences and self._offsets)

    @property
    def keeps_wide_states(self) -> bool:
        """Return whether it is a linear attention that returns its states in float32."""
        of_states = [dtype for _, dtype in self.outputs.values()][1:]
        return bool(self.recurrences) and bool(of_states) and set(of_states) == {"float32"}

    @property
    def layout(self) -> Layout | None:
        """The order of axes in which the definition has its arrays; None if it is sought."""
        if self.recurrences:
            return layout_of_arrays(self._axes_of_recurrence)
        # Kernels of several requests have tokens before heads.
        return None if self.batch() is None else "bnhd"

    def _recurrent_form(self, spec: LinearAttention) -> RecurrentForm:
        """Return how the kernel takes the arrays of a linear attention."""
        arrays = self._axes_of_recurrence
        letters = letters_by_name(spec, layout_of_arrays(arrays), arrays)
        tokens = self._names_with_tokens if self._offsets else ()
        # Beside tokens, what has an axis of sequences are states.
        states = tuple(name for name in arrays if name not in tokens and "b" in letters[name])
        return RecurrentForm(
            arrays=tuple(arrays),
            tokens=tokens,
            states=states,
            keys=next(name for name in arrays if role_of(name) == "k"),
            scale=next((name for name in self.inputs if role_of(name) == "scale"), ""),
            offsets=self._offsets,
            sizes=sizes_of_axes(letters, arrays),
            wide=tuple(name for name in arrays if self.dtypes.get(name) == "float32"),
        )

    def forms(self) -> tuple[KernelForm, ...]:
        """Return the ways to take the inputs and to return logarithms that the file leaves open."""
        if self.recurrences:
            recurrent = self._recurrent_form(self.recurrences[0])
            return (KernelForm(self.inputs, self.outputs, self.constants, recurrent=recurrent),)
        usual = KernelForm(self.inputs, self.outputs, self.constants, self.batch())
        roles = {role_of(name) for name in self.inputs}
        attends = {"q", "k", "v"} <= roles or usual.batch is not None
        # The file does not say whether logarithms are natural or to the base 2.
        return (
            (usual, replace(usual, base_two=True))
            if attends and len(self.outputs) > 1
            else (usual,)
        )

    def domain(self) -> Domain:
        """Return what constant axes promise of widths, and requests of one query of the numbers of queries."""
        arrays = [axes for axes in self.inputs.values() if axes]
        width = self.constants.get(arrays[0][-1]) if arrays else None
        if self.recurrences:
            return domain_of_recurrence(self._axes_of_recurrence, Domain())
        batch = self.batch()
        if batch is not None and batch.latents is not None:
            width = batch.latents.width
        usual = Domain(decoding=batch is not None and batch.decodes)
        return usual if width is None else replace(usual, min_width=width, max_width=width)

    def letters_of_workload(
        self, spec: LinearAttention, sizes: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the sizes of a linear attention's axes, by letter, at those of a workload.

        Sequences are as long as those of the workload are on average. Raises ``InputError`` if the file's names are not
        those of a linear attention.
        """
        if not self.recurrences:
            raise InputError("by their names, the inputs are not those of a linear attention")
        arrays = self._axes_of_recurrence
        letters = letters_by_name(spec, layout_of_arrays(arrays), arrays)
        result: dict[str, int] = {}
        for name, axes in arrays.items():
            for letter, axis in zip(letters[name], axes, strict=True):
                size = axis if isinstance(axis, int) else sizes.get(axis)
                if size is not None:
                    factor = factor_of(letter)
                    result.setdefault(letter.split("*")[-1], max(size // factor, 1))
        if self._offsets:
            count = max(sizes[self.inputs[self._offsets][0]] - 1, 1)
            length = max(result["n"] // count, 1)
            # The neighbours of the judged sequences are among those counted.
            judged = max(count - choose_neighbours(length).number, 1)
            result |= {"b": judged, "n": length}
        return result

    def sizes(self, given: Mapping[str, int], where: str) -> dict[str, int]:
        """Return the sizes of all axes, given those of the variable ones. Raises ``InputError`` if one is unknown."""
        known = self.constants | dict(given)
        _add_computed(known, self.computed, where)
        return known

    def plausible(self, numbers: Mapping[str, float] | None = None) -> tuple[Specification, ...]:
        """Return the definitions that the reference may compute, by the names and axes of its inputs.

        ``numbers`` are the values of inputs that are plain numbers, where workloads say them.
        """
        if self.recurrences:
            return self.recurrences
        by_role = {role_of(name): axes for name, axes in self.inputs.items()}
        said = {role_of(name): value for name, value in (numbers or {}).items()}
        batch = self.batch()
        if batch is not None:
            # The scale is one of their inputs, and each call has the usual one.
            said.pop("scale", None)
        if batch is not None and batch.latents is not None:
            by_role |= {"q": by_role[Q_LATENT], "k": (), "v": ()}
        if {"q", "k", "v"} <= by_role.keys():
            heads, kv_heads = (self._count_heads_by_axes(by_role[name]) for name in "qk")
            unmasked = Attention(
                heads=heads,
                kv_heads=kv_heads if kv_heads != heads else None,
                lse=len(self.outputs) > 1,
            )
            unmasked = replace(
                unmasked, scale=_own_scale(said.get("scale"), self.constants.get(by_role["q"][-1]))
            )
            fields = (
                self._fields_of_further_inputs()
                if batch is None
                else self._fields_of_request_mask(batch)
            )
            if fields is None:
                return ()
            unmasked = replace(unmasked, **fields)
            masked = replace(unmasked, causal=True)
            usual = unmasked, masked, replace(masked, alignment="top-left")
            # Kernels of several requests take keys that are rotated already.
            if batch is not None:
                return usual
            several = [unmasked] if heads > 1 else []
            return (*usual, *with_positions([unmasked], several))
        # A norm takes an array, or two of the same axes, and at most a gain and a bias, which have one axis.
        vectors = [axes for axes in self.inputs.values() if len(axes) == 1]
        arrays = [axes for axes in self.inputs.values() if len(axes) > 1]
        if len(vectors) > 2 or not arrays:
            return ()
        known = [said["eps"]] if "eps" in said else _EPSILONS
        norms: tuple[RMSNorm | LayerNorm, ...] = (
            *(RMSNorm(eps=eps) for eps in known),
            *(LayerNorm(eps=eps) for eps in known),
        )
        if len(arrays) == 2 and arrays[0] == arrays[1]:
            residual: Literal["added", "returned"] = (
                "returned" if len(self.outputs) > 1 else "added"
            )
            return tuple(replace(norm, residual=residual) for norm in norms)
        return norms if len(self.inputs) > 1 else (*norms, Softmax())

    def _fields_of_further_inputs(self) -> dict[str, Any] | None:
        """Return the fields that give an attention the arrays beside q, k, v; None if one has no known meaning."""
        return fields_of_inputs(
            {
                name: self.dtypes[name] == "bool"
                for name, axes in self.inputs.items()
                if axes and role_of(name) not in ("q", "k", "v")
            }
        )

    def _fields_of_request_mask(self, batch: RequestBatch) -> dict[str, Any]:
        """Return the fields that give an attention the mask of its requests, if they have one."""
        mask = batch.mask
        return {} if mask is None else mask.fields(self.dtypes[mask.name] == "bool")

    def _count_heads_by_axes(self, axes: tuple[str, ...]) -> int:
        """Return the number of heads: the last constant axis before the width (a cache also has the size of a page)."""
        return next((self.constants[axis] for axis in axes[-2::-1] if axis in self.constants), 1)


def read_definition(path: str) -> KernelDefinition:
    """Read ``definition.json``; nothing of it is run. Raises ``InputError`` for a file of another form."""
    content = json_text.loaded(Path(path), _LARGEST)
    # Extra fields are allowed, since formats of benchmarks grow.
    if not isinstance(content, dict) or any(field not in content for field in _FIELDS):
        raise InputError(f"{path} is no definition of a kernel; hint: it has {', '.join(_FIELDS)}")
    axes, inputs = content["axes"], content["inputs"]
    named = all(isinstance(part, dict) for part in (axes, inputs, content["outputs"]))
    if not named or not isinstance(content["reference"], str):
        raise InputError(f"{path}: axes, inputs and outputs must be objects, and reference a text")
    # Constant axes come first: expressions may name them.
    constants = {
        name: _read_constant_axis_size(path, name, axis)
        for name, axis in axes.items()
        if _read_entry_field(axis, "type") == "const"
    }
    computed = {
        name: _read_axis_expression(path, name, axis)
        for name, axis in axes.items()
        if _read_entry_field(axis, "type") == "expr"
    }
    _add_computed(constants, computed, path)
    shapes = {name: _read_axes_of_array(path, name, array, axes) for name, array in inputs.items()}
    dtypes = {
        name: str(_read_entry_field(array, "dtype"))
        for name, array in inputs.items()
        if _read_entry_field(array, "shape")
    }
    floats = [dtype for dtype in dtypes.values() if dtype.startswith(("float", "bfloat"))]
    # Without floats nothing is rounded, and no tolerance is needed.
    if not floats:
        raise InputError(f"{path}: no input is an array of floats")
    outputs = {
        name: (_read_axes_of_array(path, name, a, axes), str(_read_entry_field(a, "dtype")))
        for name, a in content["outputs"].items()
    }
    # Expressions with open sizes are computed for each call.
    left = {name: text for name, text in computed.items() if name not in constants}
    drawn_by = str(content.get("custom_inputs_entrypoint") or "")
    return KernelDefinition(
        constants, shapes, outputs, floats[0], content["reference"], left, drawn_by, dtypes
    )


def _own_scale(said: float | None, width: int | None) -> float | None:
    """Return the scale that workloads say, unless it is the usual 1/√d up to its last digits."""
    if said is None or (width is not None and math.isclose(said, width**-0.5, rel_tol=1e-3)):
        return None
    return said


def _add_computed(sizes: dict[str, int], computed: Mapping[str, str], where: str) -> None:
    """Add the axes whose expressions have a value, until no other one has."""
    left: Iterable[str] = list(computed)
    # Each pass may add sizes that further expressions need.
    while left:
        values = {
            name: compute_axis(computed[name], sizes, f"{where}: the axis {name}") for name in left
        }
        new_sizes = {name: value for name, value in values.items() if value is not None}
        sizes.update(new_sizes)
        # The remaining expressions need variable axes, or each other.
        if not new_sizes:
            return
        left = [name for name in left if name not in new_sizes]


def _read_entry_field(entry: object, name: str) -> Any:
    return entry.get(name) if isinstance(entry, dict) else None


def _read_constant_axis_size(path: str, name: str, axis: object) -> int:
    value = _read_entry_field(axis, "value")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{path}: the axis {name} is constant, and its value {value!r} is no size")
    return value


def _read_axis_expression(path: str, name: str, axis: object) -> str:
    text = _read_entry_field(axis, "expression")
    if not isinstance(text, str):
        raise InputError(
            f"{path}: the axis {name} is computed, and its expression {text!r} is no text"
        )
    return text


def _read_axes_of_array(
    path: str, name: str, array: object, axes: dict[str, Any]
) -> tuple[str, ...]:
    shape = _read_entry_field(array, "shape") or []
    unknown = [axis for axis in shape if axis not in axes] if isinstance(shape, list) else [shape]
    if unknown:
        raise InputError(f"{path}: the axis {unknown[0]!r} of {name} is not among its axes")
    return tuple(shape)
