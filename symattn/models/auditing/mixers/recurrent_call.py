"""A call of a recurrence: the arrays that it received, head by head, and the exact result with the law's limits.

A state space computes its gates g = Δ A and values v = Δ x itself, off by at most γ_j and ν_j. Without the delta rule
the output is a sum of q·k_j e^{G_i − G_j} v_j, so that these errors move it by at most

    Σ_j |q|·|k_j| e^{G_i − G_j} (e^{γ_{j+1} + … + γ_i} (|v_j| + ν_j) − |v_j|),

which is added to the law's limit, with a tenth of both for the second order: the law's roundings are relative to the
arrays that the call computed, and those of one output are less than a tenth of it together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.precision import Precision
from symattn.bounds.recurrent import sources
from symattn.bounds.recurrent.recurrence import Recurrence
from symattn.bounds.recurrent.recurrent_arithmetic import (
    RecurrentArithmetic,
    widest_of_precision,
)
from symattn.bounds.recurrent.recurrent_limits import (
    MAX_SPLIT_EXPONENT,
    ExactRecurrence,
    exact_values,
    limits,
)
from symattn.models.auditing import call_judge
from symattn.models.auditing.mixers.chosen_heads import take_heads
from symattn.models.auditing.setting import Floats, Tensor, numbers
from symattn.verification.definitions.linear import LinearAttention, subject
from symattn.verification.definitions.recurrent_law import recurrences

#: Tokens up to which known mistakes of the recurrence are computed: later outputs depend on all of these.
MAX_TOKENS_OF_MISTAKES = 160
#: Two mistakes are the same if their outputs differ by less than this part of the largest one.
_SAME_OUTPUT = 2.0**-40
# A factor on limits where arrays of the recurrence have errors of their own.
_SECOND_ORDER = 1.1
_SUMS = Format("float32")
#: Formats to which a state may be rounded, which is a mistake where it is kept in a finer one.
_ROUGHER = ("bfloat16", "float16")
# Roundings of silu and of a product with it, in units of u.
_ROUNDINGS_OF_GATES = 10
# Silu may be 0 where its exponential overflows in float32, e^89: there it is at most 89 e^-88.
_UNDERFLOW_OF_GATES = 2.0**-119


@dataclass(frozen=True, eq=False)
class RecurrentResult:
    """The result of a call in the judged heads: outputs (heads, n, d_v), and the final state or None."""

    output: Floats
    state: Floats | None


@dataclass(frozen=True, eq=False)
class RecurrentCall:
    """The arguments of a call of a recurrence in float64, the judged heads joined in one axis.

    ``arrays`` holds q, k (heads, n, d_k), v (heads, n, d_v), g, beta with a column for one number a token, and
    ``initial_state`` (heads, d_k, d_v) if there is one. ``gate_errors`` (heads, n, 1) and ``value_errors`` (heads, n,
    d_v) bound the errors of gates and values that the call computes itself; None if it receives them.
    ``skip`` (heads, n, d_v) is added to the output. ``chosen`` are the judged heads, batch and head as one index, and
    ``keys_first`` says whether states are keys by values. ``others`` holds the arguments that known mistakes outside
    of the recurrence amount to, by their words. ``kind`` says what the call computes, ``sizes`` of what sizes.
    ``with_state`` says that the final state was requested. ``updated`` is the array into which a step writes the state,
    ``stored`` its format, and ``gates`` (heads, n, d_v) multiply the output, that which is added included. ``clipped``
    are the least and the largest step of a state space.
    """

    spec: LinearAttention
    arrays: Mapping[str, Floats]
    chosen: Sequence[int]
    format: Format
    kind: str
    sizes: str
    gate_errors: Floats | None = None
    value_errors: Floats | None = None
    skip: Floats | None = None
    keys_first: bool = True
    size: int | None = None
    others: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)
    with_state: bool = False
    updated: Tensor | None = None
    stored: Format | None = None
    gates: Floats | None = None
    clipped: tuple[float, float] = (0.0, np.inf)

    @property
    def words(self) -> str:
        """The computation and its sizes."""
        return f"{self.kind}, {self.sizes}"

    # -- the exact result ----------------------------------------------------------------------------------------------
    @cached_property
    def heads(self) -> list[Recurrence]:
        """The recurrence of each judged head."""
        return list(recurrences(self.spec, self.arrays, self.precision))

    @cached_property
    def precision(self) -> Precision:
        """Sums are in float32, and operands may be stored in the inputs' format."""
        wide = self.format.u <= _SUMS.u
        name, sums = ("float32", None) if wide else (self.format.name, "float32")
        return Precision.of(name, "fused", accumulate=sums)

    @cached_property
    def exact(self) -> list[ExactRecurrence]:
        """The exact results of the judged heads."""
        return [exact_values(of) for of in self.heads]

    @property
    def output(self) -> Floats:
        """The exact output (heads, n, d_v) in float64."""
        return np.stack([self._of_head(head) for head in range(len(self.heads))])

    def read(self, out: Tensor, state: Tensor | None) -> RecurrentResult:
        """Return what the call gave in the judged heads: ``out`` (b, n, h, d_v), ``state`` (b, h, …) or None."""
        joined = take_heads(out, out.shape[2], self.chosen)
        if state is None:
            return RecurrentResult(joined, None)
        ended = numbers(state.flatten(0, 1)[list(self.chosen)])
        return RecurrentResult(joined, ended if self.keys_first else ended.swapaxes(-1, -2))

    def relative_error(self, got: RecurrentResult) -> float:
        """Return the largest error of outputs and states, as a fraction of the largest of each."""
        pairs = [(got.output, self.output)]
        if got.state is not None:
            pairs.append((got.state, np.stack([one.state for one in self.exact])))
        return max(
            float(np.abs(actual - exact).max() / np.abs(exact).max()) for actual, exact in pairs
        )

    # -- judging -------------------------------------------------------------------------------------------------------
    def judge(
        self, got: RecurrentResult, rows: int | None, output: Format
    ) -> call_judge.CallJudgement:
        """Judge outputs at some rows, and the final state, by the arithmetic that explains them best.

        Only the worst case counts: an error of a norm is the same in several places, unlike independent roundings.
        """
        if reason := self._explain_silence(got):
            return call_judge.CallJudgement(np.nan, "unknown", reason)
        if self.with_state and got.state is None:
            words = "it returned no final state, which was requested"
            return call_judge.CallJudgement(np.inf, "certified", words)
        if not np.isfinite(got.output).all() or (
            got.state is not None and not np.isfinite(got.state).all()
        ):
            if self._may_overflow(output):
                words = "its numbers are near the largest ones of a format, and may overflow"
                return call_judge.CallJudgement(np.nan, "unknown", words)
            return call_judge.CallJudgement(
                np.inf, "certified", "it gave NaN or infinity for finite arrays"
            )
        best, last, silent = np.inf, None, False
        for way in self._list_arithmetics(output):
            # The element that rejected one arithmetic is enough to reject most of the others.
            rejected = last is not None and self._measure(got, way, rows, last).ratio > 1
            measured = self._measure(got, way, rows, last if rejected else None)
            if measured.ratio <= 1 and measured.finite:
                return call_judge.CallJudgement(measured.ratio, "")
            silent = silent or not measured.finite
            best, last = min(best, measured.ratio), measured
        if silent:
            return call_judge.CallJudgement(
                np.nan, "unknown", "the law says nothing about these inputs"
            )
        return call_judge.CallJudgement(best, "certified")

    def _explain_silence(self, got: RecurrentResult) -> str:
        """Return why the law is not about these arrays; "" if it is."""
        skip = {} if self.skip is None else {"D": self.skip}
        for name, array in {**self.arrays, **skip}.items():
            if not np.isfinite(array).all():
                return f"{name} holds NaN or infinity: the cause is before the call"
        gates = self.arrays.get("g")
        if gates is None:
            return ""
        if gates.max(initial=0.0) > 0:
            return "a gate is above 0: the state grows, which the law does not cover"
        # The longest chunk that is tried holds all tokens.
        reach = float(np.abs(gates).sum(axis=-2).max(initial=0.0))
        if reach > MAX_SPLIT_EXPONENT and not np.isfinite(got.output).all():
            return f"gates sum to −{reach:.3g}, where e^G and e^−G apart overflow"
        return ""

    def _may_overflow(self, output: Format) -> bool:
        """Return whether a number of an implementation may be beyond its format, which the law does not cover."""
        most = sources.MOST_OF_RANGE * float(output.largest)
        if np.abs(self.output).max(initial=0.0) > most:
            return True
        # Limits are infinite where a number of a chunk is near the largest one of its format.
        return any(
            not np.isfinite(limits(of, way, [0], with_state=False, with_sharp=False).worst).all()
            for of in self.heads
            for way in self._list_arithmetics(output)
        )

    def _list_arithmetics(self, output: Format) -> Iterator[RecurrentArithmetic]:
        """Yield the arithmetics of implementations, with chunks of the call's own size among them."""
        length = self.arrays["q"].shape[-2]
        ways = [*widest_of_precision(replace(self.precision, output=output), length)]
        if self.size is not None:
            ways.append(replace(ways[-1], size=min(self.size, length)))
        yield from ways

    def _bound_own_steps(self, head: int, rows: Sequence[int]) -> tuple[Floats, Floats]:
        """Return how far errors of gates and values move these outputs, and the final state."""
        assert self.gate_errors is not None
        assert self.value_errors is not None
        of, value_errors = self.heads[head], self.value_errors[head]
        sums = np.cumsum(of.gates, axis=0)[:, 0]
        errors = np.cumsum(self.gate_errors[head], axis=0)[:, 0]

        def decay(later: Floats, earlier: Floats, more: Floats) -> tuple[Floats, Floats]:
            """Return how far decays may be off, and how large they may be then; ``more``: errors between tokens."""
            # Decays of later tokens do not count: their exponents are clipped.
            right = np.exp(-np.maximum(earlier - later, 0.0))
            off = right * np.expm1(np.maximum(more, 0.0))
            return off, right + off

        places = np.asarray(rows)
        keys = np.abs(of.k)
        values = np.abs(of.v)
        products = np.abs(of.q)[places] @ keys.T
        is_before = np.arange(len(of.q))[None] <= places[:, None]
        state_read = products * is_before
        between = errors[places, None] - errors[None]
        off, largest = decay(sums[places, None], sums[None], between)
        output = (state_read * off) @ values + (state_read * largest) @ value_errors
        # The state before the first token is no value that the call computes.
        off, _ = decay(sums[places], np.zeros(1), errors[places])
        from_state = np.abs(of.q)[places] @ np.abs(of.state)
        output = output + off[:, None] * from_state
        off, largest = decay(sums[-1:], sums, errors[-1:] - errors)
        of_decay = (off[:, None] * keys).T @ values
        of_values = (largest[:, None] * keys).T @ value_errors
        state = of_decay + of_values
        off, _ = decay(sums[-1:], np.zeros(1), errors[-1:])
        return output, np.asarray(state + off * np.abs(of.state))

    def _measure(
        self,
        got: RecurrentResult,
        way: RecurrentArithmetic,
        rows: int | None,
        only: _Measured | None,
    ) -> _Measured:
        """Return the largest error as a fraction of the worst case; ``only``: of one element's head and row."""
        results = []
        # One element alone is measured again when ways are compared.
        for head in range(len(self.heads)) if only is None else [only.head]:
            with_state = got.state is not None and (only is None or only.row is None)
            error = np.abs(got.output[head] - self._of_head(head))
            chosen = _choose_rows(error, rows)
            if only is not None:
                chosen = [0] if only.row is None else [only.row]
            results += self._measure_head(got, way, head, chosen, with_state)
        worst = max(results, key=lambda one: one.ratio)
        return replace(worst, finite=all(one.finite for one in results))

    def _bound_rounding_of_stored_state(self, state: Floats) -> Floats:
        """Return how far a state may be off by its rounding to the format in which it is stored."""
        if self.stored is None:
            return np.zeros_like(state)
        return _SECOND_ORDER * (float(self.stored.u) * np.abs(state) + float(self.stored.eta))

    def _of_head(self, head: int) -> Floats:
        """The exact output of a head, (n, d_v)."""
        ungated = self._before_gates(head)
        return ungated if self.gates is None else ungated * self.gates[head]

    def _before_gates(self, head: int) -> Floats:
        bare = self.exact[head].output
        return bare if self.skip is None else bare + self.skip[head]

    def _measure_head(
        self,
        got: RecurrentResult,
        way: RecurrentArithmetic,
        head: int,
        rows: Sequence[int],
        with_state: bool,
    ) -> list[_Measured]:
        """Measure these rows of a head, and its final state."""
        of, wanted, ungated = self.heads[head], self._of_head(head), self._before_gates(head)
        bounds = limits(of, way, rows, with_state=with_state, with_sharp=False)
        places = list(bounds.rows)
        worst, worst_state = bounds.worst, bounds.worst_state
        if self.skip is not None:
            # The product and the sum with what is added are rounded, perhaps to the output's format.
            sizes = np.abs(self.skip[head]) + np.abs(ungated)
            worst = worst + 3 * float(way.output.u) * sizes[places]
        if self.gate_errors is not None:
            more, of_state = self._bound_own_steps(head, places)
            worst = _SECOND_ORDER * (worst + more)
            worst_state = _SECOND_ORDER * (worst_state + of_state)
        if self.gates is not None:
            gates = np.abs(self.gates[head])[places]
            # Silu and its product are rounded, perhaps to the output's format.
            roundings = _ROUNDINGS_OF_GATES * float(way.output.u) * np.abs(wanted)[places]
            lost = float(way.output.eta) + _UNDERFLOW_OF_GATES * np.abs(ungated)[places]
            worst = _SECOND_ORDER * (worst * gates + roundings + lost)
        off = np.abs(got.output[head] - wanted)[places]
        ratios = _divide(off, worst)
        row = places[int(ratios.max(axis=1).argmax())]
        finite = bool(np.isfinite(worst).all())
        result = [_Measured(float(ratios.max()), finite, head, row)]
        if with_state and got.state is not None:
            errors = np.abs(got.state[head] - self.exact[head].state)
            # A state that is stored in the format of the array it is written into.
            stored = self._bound_rounding_of_stored_state(self.exact[head].state)
            ratios = _divide(errors, worst_state + stored)
            finite = bool(np.isfinite(worst_state).all())
            result.append(_Measured(float(ratios.max()), finite, head, None))
        return result

    # -- causes --------------------------------------------------------------------------------------------------------
    def find_cause(self, got: RecurrentResult, rows: int | None, output: Format) -> str:
        """Return the one known mistake that explains a wrong result, in words; if several fit, these; or ""."""
        fitting: list[tuple[str, Floats]] = []
        for words, call in self._list_mistaken_calls().items():
            if call.judge(got, rows, output).legal:
                fitting.append((words, call.output))
        # A square state may be transposed without another shape.
        if got.state is not None and got.state.shape[-1] == got.state.shape[-2]:
            turned = replace(got, state=got.state.swapaxes(-1, -2))
            if self.judge(turned, rows, output).legal:
                fitting.append(("the final state is transposed", self.output))
        if rough := self._find_rougher_format(got, rows, output):
            fitting.append((f"the final state is rounded to {rough}", self.output))
        if not fitting:
            fitting = list(self._yield_fitting_mistakes(got, output))
        different: list[tuple[str, Floats]] = []
        # Mistakes with the same output are one.
        for words, wrong in fitting:
            size = np.abs(wrong).max(initial=0.0)
            if not any(
                np.abs(wrong - other).max() <= _SAME_OUTPUT * size for _, other in different
            ):
                different.append((words, wrong))
        return call_judge.one_of([words for words, _ in different])

    def _find_rougher_format(self, got: RecurrentResult, rows: int | None, output: Format) -> str:
        """Return the rougher format to which a right final state is rounded; "" if it is to none."""
        if got.state is None:
            return ""
        for form in map(Format, _ROUGHER):
            is_rounded = np.array_equal(form.cast(got.state).astype(float), got.state)
            if is_rounded and replace(self, stored=form).judge(got, rows, output).legal:
                return form.name
        return ""

    def _list_mistaken_calls(self) -> dict[str, RecurrentCall]:
        """Return the calls that mistakes outside of the recurrence amount to."""
        result = {
            words: replace(self, arrays={**self.arrays, **arrays}, others={})
            for words, arrays in self.others.items()
        }
        # Mistakes outside of the recurrence are other inputs of a right one.
        if self.spec.qk_norm:
            bare_spec = replace(self.spec, qk_norm=None, eps=0)
            result["queries and keys are not normalised"] = replace(self, spec=bare_spec, others={})
        if self.skip is not None and self.skip.any():
            result["D x is not added to the output"] = replace(self, skip=None, others={})
        if self.gates is not None:
            result["the output is not gated by z"] = replace(self, gates=None, others={})
        state = self.arrays.get("initial_state")
        if state is not None and state.any():
            bare = {name: a for name, a in self.arrays.items() if name != "initial_state"}
            result["the initial state is ignored"] = replace(self, arrays=bare, others={})
            if state.shape[-1] == state.shape[-2]:
                turned = {**self.arrays, "initial_state": state.swapaxes(-1, -2)}
                words = "the initial state is read transposed"
                result[words] = replace(self, arrays=turned, others={})
        return result

    def _yield_fitting_mistakes(
        self, got: RecurrentResult, output: Format
    ) -> Iterator[tuple[str, Floats]]:
        """Yield the known mistakes of the recurrence that give the first outputs of one head."""
        state = self.arrays.get("initial_state")
        # Known mistakes start from a state of zeros, and have no gates of the output.
        if (state is not None and state.any()) or self.gates is not None:
            return
        head, length = self._find_worst_head(got), MAX_TOKENS_OF_MISTAKES
        first = {
            name: a[head : head + 1, :length]
            for name, a in self.arrays.items()
            if name != "initial_state"
        }
        gate_errors, value_errors = (
            None if one is None else one[head : head + 1, :length]
            for one in (self.gate_errors, self.value_errors)
        )
        short = replace(
            self, arrays=first, skip=None, chosen=(0,), others={}, gate_errors=gate_errors,
            value_errors=value_errors,
        )  # fmt: skip
        bound = short._compute_common_limits(output)
        added = 0.0 if self.skip is None else self.skip[head, :length]
        returned = got.output[head, :length] - added
        by_token = {
            name: array[..., 0] if self._is_by_token(name) else array
            for name, array in first.items()
        }
        for mistake in subject(self.spec).mistakes:
            if not mistake.exact:
                continue
            with np.errstate(all="ignore"):
                wrong = np.asarray(mistake.run(**by_token))[0]
            if (np.abs(wrong - returned) <= bound).all():
                yield mistake.cause, wrong

    def _is_by_token(self, name: str) -> bool:
        return name == "beta" or (name == "g" and self.spec.gate == "token")

    def _find_worst_head(self, got: RecurrentResult) -> int:
        error = np.abs(got.output - self.output).max(axis=(1, 2))
        return int(np.nan_to_num(error, posinf=0.0).argmax())

    def _compute_common_limits(self, output: Format) -> Floats:
        """Return how far a right output of the only head may be off in the commonest arithmetics, (n, d_v)."""
        # The commonest chunks, and token by token.
        ways = islice(self._list_arithmetics(output), 2)
        bounds = [limits(self.heads[0], way, with_state=False, with_sharp=False) for way in ways]
        worst: Floats = np.max([one.worst for one in bounds], axis=0)
        if self.gate_errors is None:
            return worst
        more, _ = self._bound_own_steps(0, range(len(worst)))
        return np.asarray(_SECOND_ORDER * (worst + more))


@dataclass(frozen=True)
class _Measured:
    """The largest error as a fraction of its limit, whether all limits are finite, and where; row None: the state."""

    ratio: float
    finite: bool
    head: int
    row: int | None


def _divide(error: Floats, limit: Floats) -> Floats:
    # Without an error, a limit of 0 is not exceeded.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(error > 0, error / limit, 0.0))


def _choose_rows(error: Floats, rows: int | None) -> list[int]:
    """Return the rows of one head to judge: those that are furthest off, and evenly spaced ones."""
    length = len(error)
    if rows is None or rows >= length:
        return list(range(length))
    furthest = np.argsort(error.max(axis=1))[-(rows + 1) // 2 :]
    even = np.linspace(0, length - 1, max(rows // 2, 1)).astype(int)
    return sorted({*map(int, furthest), *map(int, even)})
