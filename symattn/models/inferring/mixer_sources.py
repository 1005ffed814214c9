"""Where the arguments of a recurrence come from: queries, keys and values by value, gates as functions of outputs.

A gate is looked up as c f(x + b) for columns x of a module's output, f a sigmoid or a softplus, b a parameter of each
column or 0, and c a number of each column: columns are compared after a division by their first token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from symattn.models.auditing.mixers.recurrent_call import RecurrentCall
from symattn.models.auditing.setting import Floats, Module, numbers
from symattn.models.inferring.column_sources import EQUAL, Pool
from symattn.models.inferring.traced_model import (
    MAX_COLUMNS,
    ModuleRun,
    TracedMixer,
    TracedRun,
)

# Parameters with more numbers are matrices, and no offsets.
_MAX_OFFSETS = 4096
_FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0.0, x),
    "log sigmoid": lambda x: -np.logaddexp(0.0, -x),
}


@dataclass(frozen=True)
class _ScaledColumns:
    """Columns (n, w) that may be a gate up to a factor of each, and how they are computed, in words."""

    columns: Floats
    words: str


def chain_of_mixer(run: TracedRun, mixer: TracedMixer) -> dict[str, str]:
    """Return in words where the arguments of a recurrence come from, by role; {} for a convolution."""
    call = mixer.call
    if not isinstance(call, RecurrentCall):
        return {}
    sources = _MixerSources(run, mixer)
    # A state space has multiplied its values by the step of each token.
    direct = ("q", "k", "v") if call.keys_first else ("q", "k")
    result = {role: sources.describe_columns(_by_tokens(call.arrays[role])) for role in direct}
    for role in ("g", "beta"):
        if role in call.arrays:
            result[role] = sources.describe_gate(_by_tokens(call.arrays[role]))
    return result


def _by_tokens(array: Floats) -> Floats:
    """Return (heads, n, d) as (n, heads · d)."""
    return np.asarray(array.swapaxes(0, 1).reshape(array.shape[1], -1))


class _MixerSources:
    """The outputs and parameters of the modules in and around the module of a recurrence."""

    def __init__(self, run: TracedRun, mixer: TracedMixer) -> None:
        self.own = mixer.name + "."
        self.outputs = {
            name.removeprefix(self.own): runs[0].gave
            for name, runs in run.runs.items()
            if name.startswith(self.own) and runs[0].gave.shape[1] <= MAX_COLUMNS
        }
        self.inputs = {name.removeprefix(self.own): runs[0] for name, runs in run.runs.items()}
        self.parameters = dict(_yield_offsets(mixer.module))

    def describe_columns(self, wanted: Floats) -> str:
        """Return the module whose output holds the columns, from which one on, and the modules before it."""
        found = Pool(list(self.outputs.items())).find(wanted)
        names = list(dict.fromkeys(source[0] for source in found if source is not None))
        if len(names) != 1 or None in found:
            return "?"
        first = min(source[1] for source in found if source is not None)
        start = f" from column {first} on" if first else ""
        before = self._find_module_before(self.inputs[names[0]])
        return f"{names[0]}{start}" + (f" ← {before}" if before else "")

    def _find_module_before(self, one: ModuleRun) -> str:
        """Return the modules whose outputs a module received, in the order of its columns."""
        found = Pool(list(self.outputs.items())).find(one.given)
        names = dict.fromkeys(source[0] for source in found if source is not None)
        return " beside ".join(names)

    def describe_gate(self, wanted: Floats) -> str:
        """Return a gate in words; ``?`` if it is none that is known."""
        shape = _divide_by_first_token(wanted)
        for candidate in self._yield_candidates():
            pool = Pool([("", _divide_by_first_token(candidate.columns))])
            sources = pool.find(shape)
            places = [source[1] for source in sources if source is not None]
            if len(places) < len(sources):
                continue
            factors = wanted[0] / candidate.columns[0, places]
            return f"{self._describe_factors(factors)}{candidate.words}"
        return self.describe_columns(wanted)

    def _yield_candidates(self) -> Iterator[_ScaledColumns]:
        for name, gave in self.outputs.items():
            for offset, words in self._yield_offsets_for(gave.shape[1]):
                # Every column with every offset, if it is not known which belongs to which.
                aligned = offset.size in (1, gave.shape[1])
                x = gave + offset if aligned else gave[:, :, None] + offset
                flat = x.reshape(len(gave), -1)
                for function, f in _FUNCTIONS.items():
                    with np.errstate(all="ignore"):
                        yield _ScaledColumns(f(flat), f"{function}({name}{words})")

    def _yield_offsets_for(self, width: int) -> Iterator[tuple[Floats, str]]:
        yield np.zeros(1), ""
        for name, values in self.parameters.items():
            if values.size == width or values.size * width <= MAX_COLUMNS:
                yield values, f" + {name}"

    def _describe_factors(self, factors: Floats) -> str:
        """Return what multiplies each column, in words."""
        if np.ptp(factors) <= EQUAL * abs(factors[0]):
            near = float(f"{factors[0]:.6g}")
            return "" if near == 1 else f"{near:g} "
        for name, values in self.parameters.items():
            with np.errstate(over="ignore"):
                powers = -np.exp(values)
            distance = np.abs(factors[:, None] - powers).min(axis=1)
            if (distance <= EQUAL * np.abs(factors)).all():
                return f"−exp({name}) "
        return "a number of each column times "


def _divide_by_first_token(columns: Floats) -> Floats:
    with np.errstate(all="ignore"):
        quotients = np.nan_to_num(columns / columns[:1], nan=0.0, posinf=0.0, neginf=0.0)
        return np.asarray(quotients)


def _yield_offsets(module: Module) -> Iterator[tuple[str, Floats]]:
    """Yield the parameters of a module with one axis besides axes of length 1, by name."""
    for name, parameter in module.named_parameters():
        values = numbers(parameter).ravel()
        if values.size <= _MAX_OFFSETS and values.size == max(parameter.shape, default=1):
            yield name, values
