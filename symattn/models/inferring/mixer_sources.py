"""Where the arguments of a recurrence or a short convolution come from, and what becomes of its output.

Queries, keys and values are looked up by value among the outputs of modules. A gate is looked up as c f(x + b) for
columns x of a module's output, f a sigmoid or a softplus, b a parameter of each column or 0, and c a number of each
column: columns are compared after a division by their first token. A module that receives the output may receive it
after a norm of some columns together and a gate c f(x), in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from symattn.models.auditing.mixers.convolution_call import ConvolutionCall
from symattn.models.auditing.mixers.recurrent_call import RecurrentCall
from symattn.models.auditing.setting import Floats, Module, numbers
from symattn.models.inferring import column_sources, traced_model
from symattn.models.inferring.column_order import order_in_words

# Parameters with more numbers are matrices, and no offsets.
_MAX_OFFSETS = 4096
# Columns with each offset, together.
_MAX_OFFSET_COLUMNS = 2**14
_FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0.0, x),
    "log sigmoid": lambda x: -np.logaddexp(0.0, -x),
}


@dataclass(frozen=True)
class _ScaledColumns:
    """Columns (n, w) that may be a gate up to a factor of each: a function of a module's output, and an offset.

    Each column of the output gives ``repeated`` of them.
    """

    columns: Floats
    function: str
    name: str
    offset: str = ""
    repeated: int = 1

    def find(self, wanted: Floats) -> _FoundColumns | None:
        """Return where columns (n, d) are found, up to a factor of each; None if one is not."""
        pool = column_sources.Pool([("", _divide_by_first_token(self.columns))])
        sources = pool.find(_divide_by_first_token(wanted))
        places = [source[1] for source in sources if source is not None]
        if len(places) < len(sources):
            return None
        return _FoundColumns(tuple(places), wanted[0] / self.columns[0, places])

    def words_from(self, columns: _FoundColumns, width: int = 1) -> str:
        """Return the function, and where its columns stand; those of heads so wide may be repeated."""
        start = _describe_places([place // self.repeated for place in columns.places], width)
        offset = self.offset
        if self.repeated > 1:
            numbers = [place % self.repeated for place in columns.places]
            offset += _describe_places(numbers, width)
        return f"{self.function}({self.name}{start}{offset})"


@dataclass(frozen=True)
class _FoundColumns:
    """Where columns are found, in their order, and the factor of each."""

    places: tuple[int, ...]
    factors: Floats


def chain_of_mixer(run: traced_model.TracedRun, mixer: traced_model.TracedMixer) -> dict[str, str]:
    """Return in words where the arguments of a recurrence come from, by role; {} for a convolution."""
    call = mixer.call
    if call is None:
        return {}
    sources = _MixerSources(run, mixer)
    if isinstance(call, ConvolutionCall):
        return sources.describe_convolution(call, mixer.out)
    # A state space has multiplied its values by the step of each token.
    direct = ("q", "k", "v") if call.keys_first else ("q", "k")
    widths = {role: array.shape[-1] for role, array in call.arrays.items()}
    result = {
        role: sources.describe_columns(_by_tokens(call.arrays[role]), widths[role])
        for role in direct
    }
    for role in ("g", "beta"):
        if role in call.arrays:
            result[role] = sources.describe_gate(_by_tokens(call.arrays[role]), widths[role])
    if mixer.out is not None:
        width = call.arrays["v"].shape[-1]
        result["o"] = sources.describe_way_out(mixer.out, width)
    return result


def _by_tokens(array: Floats) -> Floats:
    """Return (heads, n, d) as (n, heads · d)."""
    return np.asarray(array.swapaxes(0, 1).reshape(array.shape[1], -1))


def _without_repeated_heads(places: Sequence[int], width: int) -> list[int]:
    """Return the places of columns of heads so wide, a head that is repeated in a row once.

    >>> _without_repeated_heads([0, 1, 0, 1, 2, 3, 2, 3], 2)
    [0, 1, 2, 3]
    """
    heads = [list(places[i : i + width]) for i in range(0, len(places), width)]
    distinct = [head for i, head in enumerate(heads) if i == 0 or head != heads[i - 1]]
    return [place for head in distinct for place in head]


class _MixerSources:
    """The outputs and parameters of the modules in and around the module of a recurrence."""

    def __init__(self, run: traced_model.TracedRun, mixer: traced_model.TracedMixer) -> None:
        self.own, self.module = mixer.name + ".", mixer.module
        self.outputs = {
            name.removeprefix(self.own): runs[0].gave
            for name, runs in run.runs.items()
            if name.startswith(self.own) and runs[0].gave.shape[1] <= traced_model.MAX_COLUMNS
        }
        self.inputs = {name.removeprefix(self.own): runs[0] for name, runs in run.runs.items()}
        self.receivers = {
            name.removeprefix(self.own): runs[0]
            for name, runs in run.runs.items()
            if name.startswith(self.own)
        }
        self.parameters = dict(_yield_offsets(mixer.module))
        self.functions = {**_FUNCTIONS, **_clipped_steps(mixer.call)}
        beside = (one.call for one in run.mixers if one.name == mixer.name)
        self.is_before_recurrence = any(isinstance(call, RecurrentCall) for call in beside)

    def describe_columns(self, wanted: Floats, width: int = 1) -> str:
        """Return the module whose output holds the columns, which ones, and the modules before it.

        Columns of heads so wide may be repeated, as keys of a group are.
        """
        sources = column_sources.Pool(list(self.outputs.items())).find(wanted)
        names = list(dict.fromkeys(source[0] for source in sources if source is not None))
        if len(names) != 1 or None in sources:
            return "?"
        places = [source[1] for source in sources if source is not None]
        start = _describe_places(places, width)
        before = self._find_module_before(names[0], _without_repeated_heads(places, width))
        return f"{names[0]}{start}" + (f" ← {before}" if before else "")

    def _find_module_before(self, name: str, columns: Sequence[int]) -> str:
        """Return the modules whose outputs a module received for its own ``columns``, and where they stand there."""
        one = self.inputs[name]
        # A convolution works on each column alone, other modules on all together.
        alone = name.endswith(traced_model.CONVOLUTION) and one.given.shape == one.gave.shape
        sources = column_sources.Pool(list(self.outputs.items())).find(
            one.given[:, columns] if alone else one.given
        )
        places: dict[str, list[tuple[int, int]]] = {}
        for number, source in enumerate(sources):
            if source is not None:
                places.setdefault(source[0], []).append((source[1], number))
        words = []
        for before, pairs in places.items():
            own, numbers = zip(*pairs, strict=True)
            order = order_in_words(own, numbers)
            start = _from_column(own[0]) * alone
            words.append(before + (f" ({order})" if order else start))
        return " beside ".join(words)

    def describe_gate(self, wanted: Floats, width: int = 1) -> str:
        """Return a gate in words; ``?`` if it is none that is known."""
        for candidate in self._yield_candidates():
            match = candidate.find(wanted)
            if match is not None:
                words = candidate.words_from(match, width)
                return f"{self._describe_factors(match.factors, width)}{words}"
        return self.describe_columns(wanted, width)

    def _yield_candidates(self) -> Iterator[_ScaledColumns]:
        for name, gave in self.outputs.items():
            for offset, words in self._yield_offsets_for(gave.shape[1]):
                # Every column with every offset, if it is not known which belongs to which.
                aligned = offset.size in (1, gave.shape[1])
                x = gave + offset if aligned else gave[:, :, None] + offset
                flat = x.reshape(len(gave), -1)
                repeated = flat.shape[1] // gave.shape[1]
                for function, f in self.functions.items():
                    with np.errstate(all="ignore"):
                        yield _ScaledColumns(f(flat), function, name, words, repeated)

    def _yield_offsets_for(self, width: int) -> Iterator[tuple[Floats, str]]:
        yield np.zeros(1), ""
        for name, values in self.parameters.items():
            if values.size == width or values.size * width <= _MAX_OFFSET_COLUMNS:
                yield values, f" + {name}"

    # -- convolutions --------------------------------------------------------------------------------------------------
    def describe_convolution(self, call: ConvolutionCall, out: Floats | None) -> dict[str, str]:
        """Return what a convolution receives, which parameter its taps are, and what becomes of its output."""
        result = {"taps": self._describe_taps(call.taps)}
        received = self.describe_columns(call.x.T)
        # Columns of one module times others of it, as in LFM2.
        received = received if received != "?" else self._describe_product(call.x.T)
        if out is not None and not self.is_before_recurrence:
            result |= {"x": received, "o": self.describe_way_out(out, out.shape[1])}
        return result

    def _describe_taps(self, taps: Floats) -> str:
        for name, parameter in self.module.named_parameters():
            if parameter.numel() != taps.size:
                continue
            if np.array_equal(numbers(parameter).reshape(taps.shape), taps):
                return str(name)
        return "?"

    def _describe_product(self, wanted: Floats) -> str:
        """Return columns as a product of two blocks of outputs of modules; ``?`` if they are none."""
        for name, block, first in self._yield_blocks(wanted.shape[1]):
            with np.errstate(all="ignore"):
                other = self.describe_columns(np.nan_to_num(wanted / block))
            if other != "?":
                return f"{name}{_from_column(first)} ⊙ {other}"
        return "?"

    def _yield_blocks(self, width: int) -> Iterator[tuple[str, Floats, int]]:
        """Yield blocks of as many columns, each where another block of this width could end."""
        for name, gave in self.outputs.items():
            if name.endswith(traced_model.CONVOLUTION):
                continue
            for first in range(0, gave.shape[1] - width + 1, width):
                yield name, gave[:, first : first + width], first

    # -- outputs -------------------------------------------------------------------------------------------------------
    def describe_way_out(self, out: Floats, width: int) -> str:
        """Return the module that receives an output (tokens, columns) of heads so wide, and what is done before.

        The last step comes first, as in the steps of queries; ``?`` if it is none that is known.
        """
        receivers = {
            name: one.given
            for name, one in self.receivers.items()
            if one.given.shape == out.shape and not column_sources.is_norm(one.module)
        }
        for name, received in receivers.items():
            steps = self._find_steps(received, out, width)
            if steps is not None:
                return " ← ".join([name, *steps])
        return "?"

    def _find_steps(self, received: Floats, out: Floats, width: int) -> list[str] | None:
        """Return the steps from an output to what a module receives, last first; None if they are not known."""
        if _are_equal(received, out):
            return []
        for step, normed in self._yield_norms(out, width):
            gate = self._describe_factor(received, normed)
            if gate is not None:
                return [*gate, *step]
        # A gate before the norm comes last: it multiplies the candidates by all blocks and functions.
        for name, block, first in self._yield_blocks(out.shape[1]):
            for gate_name, function in column_sources.GATES.items():
                with np.errstate(all="ignore"):
                    gated = out * function(block)
                for step, normed in self._yield_norms(gated, width):
                    gains = self._describe_factor(received, normed, with_gate=False)
                    # Without a norm the gate was looked for above.
                    if gains is not None and step:
                        return [*gains, *step, f"{gate_name}({name}{_from_column(first)})"]
        return None

    def _yield_norms(self, x: Floats, width: int) -> Iterator[tuple[list[str], Floats]]:
        """Yield an array of heads so wide, and it after each RMS norm, with the words of the norm."""
        yield [], x
        norms = [one for one in self.module.modules() if column_sources.is_norm(one)]
        names = ("variance_epsilon", "eps", "epsilon")
        own = [getattr(one, name, None) for one in norms for name in names]
        # Groups of a norm need not be heads: its own field or its weights tell their width.
        sizes = [getattr(one, "group_size", None) for one in norms]
        of_weights = (getattr(one, "weight", None) for one in norms)
        sizes += [weight.numel() for weight in of_weights if weight is not None]
        for size in dict.fromkeys([width, x.shape[1], *sizes]):
            if not isinstance(size, int) or x.shape[1] % size:
                continue
            over = "a head" if size == width else f"{size} columns"
            over = "all columns" if size == x.shape[1] > width else over
            groups = x.reshape(len(x), -1, size)
            mean_square = (groups**2).mean(-1, keepdims=True)
            for eps in dict.fromkeys(e for e in own if isinstance(e, float)):
                normed = groups / np.sqrt(mean_square + eps)
                yield [f"rms norm over {over}, ε = {eps:g}"], normed.reshape(x.shape)

    def _describe_factor(
        self, received: Floats, x: Floats, with_gate: bool = True
    ) -> list[str] | None:
        """Return what x is multiplied by: numbers of its columns, and a gate; None if it is none that is known."""
        with np.errstate(all="ignore"):
            # 0/0 tells no factor, and NaN would spoil the comparison of all others.
            factor = np.nan_to_num(received / x)
        # Equal factors of all tokens are parameters; others must come from the tokens.
        if np.ptp(factor, axis=0).max() <= column_sources.EQUAL * np.abs(factor).max():
            return self._describe_gains(factor[0])
        for name, gave in self.outputs.items() if with_gate else ():
            for gate, function in column_sources.GATES.items():
                with np.errstate(all="ignore"):
                    candidate = _ScaledColumns(np.nan_to_num(function(gave)), gate, name)
                match = candidate.find(factor)
                if match is not None:
                    gains = self._describe_gains(match.factors)
                    return [candidate.words_from(match), *gains]
        return None

    def _describe_gains(self, factors: Floats) -> list[str]:
        """Return what multiplies each column: a parameter, of every head the same or not, or 1."""
        if _are_equal(factors, np.ones_like(factors)):
            return []
        for name, values in self.parameters.items():
            if factors.size % values.size:
                continue
            repeated = np.tile(values, factors.size // values.size)
            for words, known in ((name, repeated), (f"1 + {name}", 1 + repeated)):
                if _are_equal(factors, known):
                    return [f"times {words}"]
        return ["times a number of each column"]

    def _describe_factors(self, factors: Floats, width: int = 1) -> str:
        """Return what multiplies each column, in words."""
        if np.ptp(factors) <= column_sources.EQUAL * abs(factors[0]):
            near = float(f"{factors[0]:.6g}")
            return "" if near == 1 else f"{near:g} "
        for name, values in self.parameters.items():
            with np.errstate(over="ignore"):
                powers = -np.exp(values)
            distances = np.abs(factors[:, None] - powers)
            nearest = distances.argmin(axis=1)
            if (distances.min(axis=1) <= column_sources.EQUAL * np.abs(factors)).all():
                # A head that has one number for all its columns repeats it.
                numbers = _without_repeated_heads([int(i) for i in nearest], 1)
                return f"−exp({name}{_describe_places(numbers, width)}) "
        return "a number of each column times "


def _clipped_steps(call: object) -> dict[str, Callable[[Floats], Floats]]:
    """Return the function of steps that a state space clips, by its words."""
    low, high = call.clipped if isinstance(call, RecurrentCall) else (0.0, np.inf)
    limits = [f"at least {low:g}"] * (low > 0) + [f"at most {high:g}"] * (high < np.inf)
    if not limits:
        return {}
    words = ", ".join(["softplus", *limits])
    return {f"({words})": lambda x: np.clip(_FUNCTIONS["softplus"](x), low, high)}


def _describe_places(places: Sequence[int], width: int = 1) -> str:
    """Return in words where columns stand; heads so wide may be repeated in a row."""
    own = _without_repeated_heads(places, width)
    order = order_in_words(own)
    return f" ({order})" if order else _from_column(own[0])


def _from_column(first: int) -> str:
    return f" from column {first} on" if first else ""


def _are_equal(a: Floats, b: Floats) -> bool:
    return bool(np.abs(a - b).max() <= column_sources.EQUAL * np.abs(b).max())


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
