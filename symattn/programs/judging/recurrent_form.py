"""How the kernel of a benchmark takes a linear attention: beside numbers, and with several sequences in one call.

A definition has a batch of sequences of equal lengths. A kernel may take their tokens one after the other, with offsets
(``cu_seqlens``): each call of the definition is then one call of the kernel, in which the judged sequences stand
before, after or between others of other lengths, each with a state of its own.

Names of inputs: https://github.com/flashinfer-ai/flashinfer-bench, docs/op-types/gdn.mdx.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

import numpy as np

from symattn.programs.frameworks import Tensor, import_torch
from symattn.programs.judging.neighbours import choose_neighbours
from symattn.programs.names import Function
from symattn.programs.packed import Wrapper

_LONGER = 3  # tokens by which the sequence before the judged ones is longer


@dataclass(frozen=True)
class RecurrentForm:
    """The inputs of a kernel of linear attention, in their order, by the names of its parameters.

    arrays   the definition's arrays
    tokens   those of them with one row a token, which several sequences share
    states   those of them with one item a sequence
    keys     the array of keys
    scale    the number by which queries are multiplied; "" for none
    offsets  where sequences begin and end among the tokens; "" if arrays have an axis for the batch
    sizes    the sizes of the definition's axes that are constant
    wide     the arrays in float32, whatever is the format of the others
    """

    arrays: tuple[str, ...]
    tokens: tuple[str, ...]
    states: tuple[str, ...]
    keys: str
    scale: str = ""
    offsets: str = ""
    sizes: tuple[tuple[str, int], ...] = ()
    wide: tuple[str, ...] = ()


class RecurrentKernel(Wrapper):
    """A kernel of linear attention as a function of the definition's arrays, (b, n, h, d) if it takes offsets."""

    is_self_contained = True

    def __init__(self, function: Function, form: RecurrentForm, name: str) -> None:
        own = [Parameter(n, Parameter.POSITIONAL_OR_KEYWORD) for n in form.arrays]
        super().__init__(function, own, "several sequences" if form.offsets else None, name)
        self._function, self._form = function, form
        self.sizes = dict(form.sizes)
        if form.offsets:
            self.note = "Each call has sequences of other lengths before those that are judged, after them, or both"

    def __call__(self, *places: Tensor, **keywords: Tensor) -> Tensor:
        form = self._form
        arrays = self.__signature__.bind(*places, **keywords).arguments
        torch = import_torch()
        numbers = {form.scale: 1 / math.sqrt(arrays[form.keys].shape[-1])} if form.scale else {}
        widened = {name: x.float() if name in form.wide else x for name, x in arrays.items()}
        call = self._call_joined if form.offsets else self._call_batch
        results = call(torch, widened, numbers)
        for name in form.wide:
            if name in arrays and widened[name] is not arrays[name]:
                _return_changes(torch, arrays[name], widened[name])
        return results

    def _call_batch(
        self, torch: Any, arrays: Mapping[str, Tensor], numbers: Mapping[str, float]
    ) -> Tensor:
        """Return the outputs of all sequences, whose arrays have an axis for the batch."""
        return self._function(**arrays, **numbers)

    def _call_joined(
        self, torch: Any, arrays: Mapping[str, Tensor], numbers: Mapping[str, float]
    ) -> Tensor:
        """Return the outputs of the judged sequences, which stand beside others."""
        form = self._form
        batch, length = arrays[form.tokens[0]].shape[:2]
        neighbours = choose_neighbours(length)
        # A sequence with one token follows the judged ones.
        every = [length + _LONGER, *[length] * batch, 1]
        in_call = neighbours.kept(len(every))
        lengths = every[in_call]
        tokens = slice(sum(every[: in_call.start]), sum(every[: in_call.stop]))
        joined = {name: _join_tokens(torch, arrays[name])[tokens] for name in form.tokens}
        joined |= {
            name: _join_states(torch, arrays[name])[in_call]
            for name in form.states
            if name in arrays
        }
        offsets = torch.as_tensor(
            np.cumsum([0, *lengths], dtype=np.int64), device=joined[form.tokens[0]].device
        )
        results = self._function(**{**arrays, **joined}, **numbers, **{form.offsets: offsets})
        judged = slice(int(neighbours.before), int(neighbours.before) + batch)
        first = sum(lengths[: judged.start])
        rows = slice(first, first + batch * length)
        for name, whole in joined.items():
            part = whole[rows] if name in form.tokens else whole[judged]
            _return_changes(torch, arrays[name], part)
        outputs = results if isinstance(results, tuple | list) else (results,)
        gathered = [_gather_sequences(outputs[0], rows, batch, length, sum(lengths))]
        gathered += [_gather_states(state, judged, len(lengths)) for state in outputs[1:]]
        return tuple(gathered) if len(gathered) > 1 else gathered[0]


def _join_tokens(torch: Any, array: Tensor) -> Tensor:
    """Return rows (b, n, …) one after the other, between those of a longer and of a shorter sequence.

    These have rows of the first sequence in other places, so that they are within all that is promised.
    """
    first = array[0]
    longer = torch.cat([first.flip(0), first[:1].expand(_LONGER, *first.shape[1:])])
    return torch.cat([longer, array.flatten(0, 1), first[-1:]])


def _join_states(torch: Any, array: Tensor) -> Tensor:
    """Return states (b, …) between two others: an output to which these contribute is wrong."""
    return torch.cat([-array[:1], array, -array[-1:]])


def _return_changes(torch: Any, original: Tensor, now: Tensor) -> None:
    """Show the caller what a kernel has changed in its inputs."""
    back = now.reshape(original.shape).to(original.dtype)
    if not torch.equal(back, original):
        original.copy_(back)


def _gather_sequences(output: Tensor, rows: slice, batch: int, length: int, total: int) -> Tensor:
    """Return the rows of the judged sequences; an output of another length is returned as it is."""
    if not getattr(output, "ndim", 0) or len(output) != total:
        return output
    return output[rows].reshape(batch, length, *output.shape[1:])


def _gather_states(state: Tensor, judged: slice, count: int) -> Tensor:
    """Return the states of the judged sequences; another number of states is returned as it is."""
    return state[judged] if getattr(state, "ndim", 0) and len(state) == count else state


def sizes_of_axes(
    letters: Mapping[str, Sequence[str]], axes: Mapping[str, Sequence[str | int]]
) -> tuple[tuple[str, int], ...]:
    """Return the sizes of a definition's letters that the constant axes of its arrays determine."""
    result: dict[str, int] = {}
    for name, of_array in letters.items():
        for letter, size in zip(of_array, axes[name], strict=True):
            # Batches and lengths stay open, and heads are counted where there are the fewest.
            if isinstance(size, int) and letter in ("h", "d_k", "d_v"):
                result[letter] = size
    return tuple(result.items())
