"""Linear attention as recurrences, head by head, and its outputs by the law of ``bounds.recurrent``.

The law bounds what programs return that go token by token or by chunks, whatever their lengths, in milliseconds, where
balls take seconds for a few tokens. It is about gates that decay, features that are computed without a rounding, and
sums without a normaliser; of other specifications and inputs it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision
from symattn.attention.layers.steps import softplus
from symattn.bounds.called_target import Inputs, Layout
from symattn.bounds.case_result import ByLaw, Expected
from symattn.bounds.recurrent import sources
from symattn.bounds.recurrent.gate_errors import bound_sigmoid_gates, bound_softplus_gates
from symattn.bounds.recurrent.recurrence import Recurrence
from symattn.bounds.recurrent.recurrent_arithmetic import (
    SIZES,
    RecurrentArithmetic,
    widest_of_precision,
)
from symattn.bounds.recurrent.recurrent_limits import exact_values, limits
from symattn.verification.definitions.linear_erasure import (
    ERASING_INPUTS,
    read_erasing_inputs,
    read_erasure,
)
from symattn.verification.definitions.raw_gates import (
    as_rows_of_heads,
    read_betas,
    read_gates,
    read_steps,
)

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention

Array = np.ndarray
#: Features that are computed without a rounding.
EXACT_FEATURES = ("identity", "relu")
#: Inputs with one number a token, which get an axis of columns.
BY_TOKEN = ("g", "beta", "dt")
#: Inputs without an axis of tokens, of one number or row for each head.
BY_HEAD = ("bonus", "skip", "A_log", "dt_bias")
#: Roundings of a norm in the narrower format: before the root (squares, their sum, ε), and from it on.
STEPS_OF_SUM, STEPS_OF_NORM = 3, 10
#: The bias of a raw step of models: softplus(−4) = 0.018.
USUAL_STEP_BIAS = -4.0


def explain_uncovered(spec: LinearAttention) -> str:
    """Say what of a specification the law does not cover, with a hint; "" if it covers all."""
    fields = {"normalised": False, "causal": True}
    for name, wanted in fields.items():
        if getattr(spec, name) != wanted:
            return (
                f"the law of recurrences does not cover {name}={not wanted}; hint: {name}={wanted}"
            )
    if spec.feature not in EXACT_FEATURES:
        known = " or ".join(EXACT_FEATURES)
        return (
            f"the law of recurrences does not cover feature={spec.feature!r}; hint: give the features as q and k, and"
            f" feature={known}"
        )
    return ""


def recurrences(
    spec: LinearAttention, values: Mapping[str, Array], precision: Precision
) -> Iterator[Recurrence]:
    """Yield the recurrence of each head of float64 arrays (…, n, d); gates and β of one number a token, and
    gates of one number a head, are (…, n, 1), a bonus is (h, d_k), and a skip (h,).

    The states before the first token, ``initial_state``, are zeros unless they are given. In the ``precision`` programs
    may normalise queries and keys, and make gates of raw ones.
    """
    front = values["v"].shape[:-2]
    v = _join_heads(values["v"])
    read = _read_queries_and_keys(spec, values, precision)
    gates, gate_errors = _read_heads_of_gates(spec, values, precision)
    steps, step_errors = _read_heads_of_steps(spec, values, precision)
    if steps is not None and gates is not None:
        if step_errors is not None:
            gate_errors = step_errors * np.abs(gates)
            read = read.with_key_errors(_divide_errors(step_errors, steps))
        gates = steps * gates
    betas, beta_errors = _read_heads_of_betas(spec, values, precision)
    erasing = _read_heads_of_erasure(spec, values, read.k, v, betas, read.key_errors, precision)
    if betas is not None and beta_errors is not None:
        if spec.erase is None:
            # The error of β is that of the key in front alone: what is erased is read by the key as it is.
            of_norm = 0 * read.k if read.key_errors is None else read.key_errors
            # Where nothing bounds the error of a norm, 0 · ∞ is NaN, which ``limits`` reads as unknown.
            with np.errstate(invalid="ignore"):
                erasing = erasing._replace(p_errors=np.abs(betas) * of_norm)
        read = read.with_key_errors(_divide_errors(beta_errors, betas))
    # A state of all heads is a matrix d_k × d_v for each of them.
    width = read.q.shape[-1]
    no_states = np.zeros((len(v), width, v.shape[-1]))
    state = values.get("initial_state")
    # One bonus and one skip for each head, whatever stands in front of the heads.
    skips = np.broadcast_to(values["skip"] if spec.skip else 0.0, front).reshape(-1)
    bonuses: Array | None = None
    if spec.bonus:
        bonuses = np.broadcast_to(values["bonus"], (*front, width)).reshape(-1, width)
    by_field: dict[str, Any] = {
        **read._asdict(),
        **erasing._asdict(),
        "v": v,
        "g": gates,
        "gate_errors": gate_errors,
        "beta": betas,
        "state": no_states if state is None else state.reshape(no_states.shape),
        "bonus": bonuses,
        "rates": steps,
    }
    for head in range(len(v)):
        of_head: dict[str, Any] = {
            name: None if a is None else a[head] for name, a in by_field.items()
        }
        yield Recurrence(
            **of_head,
            skip=float(skips[head]),
            # One gate for a head is constant over its tokens, which the law can use.
            constant=spec.gate == "head" and not spec.step,
            reads_before=spec.reads == "before",
            erases_before=spec.erases == "before",
        )


def _join_heads(a: Array) -> Array:
    """Return arrays (…, n, d) with one axis of heads, (h, n, d)."""
    return a.reshape(-1, *a.shape[-2:])


class _QueriesAndKeys(NamedTuple):
    """Queries and keys as sums read them, and how far programs may be off in them (None: not at all), (h, n, d_k)."""

    q: Array
    k: Array
    query_errors: Array | None = None
    key_errors: Array | None = None

    def with_key_errors(self, relative: Array) -> _QueriesAndKeys:
        """Return the same with keys that may be off by so much more, relatively."""
        before = 0 * self.k if self.key_errors is None else self.key_errors
        with np.errstate(invalid="ignore"):
            errors = before + relative * (np.abs(self.k) + before)
        return self._replace(key_errors=np.nan_to_num(errors, nan=np.inf, posinf=np.inf))


def _read_queries_and_keys(
    spec: LinearAttention, values: Mapping[str, Array], precision: Precision
) -> _QueriesAndKeys:
    q, k = values["q"], values["k"]
    if spec.values_per_key > 1:
        # np.repeat puts the copies of a key head next to each other, as value heads are.
        q, k = (np.repeat(a, spec.values_per_key, axis=-3) for a in (q, k))
    q, k = _join_heads(q), _join_heads(k)
    if spec.feature == "relu":
        q, k = np.maximum(q, 0), np.maximum(k, 0)
    read = _QueriesAndKeys(q, k)
    if spec.qk_norm is not None:
        eps = float(spec.eps)
        (q, of_q), (k, of_k) = (_normalise(x, eps, precision) for x in (q, k))
        read = _QueriesAndKeys(q, k, of_q, of_k)
    if not spec.scale:
        return read
    # The scale is 1/√d_k on queries alone, and scales their error too.
    root, errors = np.sqrt(q.shape[-1]), read.query_errors
    scaled = None if errors is None else errors / root + _lost(precision)
    return read._replace(q=read.q / root, query_errors=scaled)


def _read_heads_of_gates(
    spec: LinearAttention, values: Mapping[str, Array], precision: Precision
) -> tuple[Array | None, Array | None]:
    """Return the logarithms of decays of each head, and how far programs may be off in them; None without these."""
    if spec.gate is None:
        return None, None
    if spec.gate_form:
        rates_and_biases = as_rows_of_heads(spec, values["A_log"], values["dt_bias"])
        gates, errors = read_gates_with_errors(spec, values["g"], *rates_and_biases, precision)
        return _join_heads(gates), _join_heads(errors)
    return _join_heads(values["g"]), None


def _read_heads_of_steps(
    spec: LinearAttention, values: Mapping[str, Array], precision: Precision
) -> tuple[Array | None, Array | None]:
    """Return the steps of each head, and how far programs may be off in them; None without these."""
    if not spec.step:
        return None, None
    if spec.step_form is None:
        return _join_heads(values["dt"]), None
    biases = values["dt_bias"][..., None, None]
    steps, errors = read_steps_with_errors(spec, values["dt"], biases, precision)
    return _join_heads(steps), _join_heads(errors)


def _read_heads_of_betas(
    spec: LinearAttention, values: Mapping[str, Array], precision: Precision
) -> tuple[Array | None, Array | None]:
    """Return β of each head, and how far programs may be off in them; None without these."""
    if "beta" not in values:
        return None, None
    if spec.beta_form is None:
        return _join_heads(values["beta"]), None
    betas, errors = read_betas_with_errors(spec, values["beta"], precision)
    return _join_heads(betas), _join_heads(errors)


def _divide_errors(errors: Array, factors: Array) -> Array:
    """Return relative errors of steps or β; ∞ for a factor of 0.

    What is written, kᵀ Δ v or kᵀ β (v − k S), is off as it would be with other keys in front.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(factors > 0, errors / factors, np.inf)


def read_gates_with_errors(
    spec: LinearAttention, g: Array, A_log: Array, dt_bias: Array, precision: Precision
) -> tuple[Array, Array]:
    """Return the gates of raw ones in float64, and how far programs may be off in them in the roughest format."""
    form, biased = precision.roughest, g + dt_bias
    with np.errstate(over="ignore", invalid="ignore"):
        gates = np.asarray(read_gates(spec, g, A_log, dt_bias))
    if spec.lower_bound is None:
        return gates, bound_softplus_gates(biased, A_log, form)
    return gates, bound_sigmoid_gates(biased, A_log, float(spec.lower_bound), form)


def read_steps_with_errors(
    spec: LinearAttention, dt: Array, dt_bias: Array, precision: Precision
) -> tuple[Array, Array]:
    """Return the steps of raw ones in float64, and how far programs may be off in them in the roughest format.

    The softplus is that of gates with the rate 1, whose bound counts more roundings. A limit enlarges no distance, and
    is rounded itself, which matters where it may be taken.
    """
    form, biased = precision.roughest, dt + dt_bias
    with np.errstate(over="ignore", invalid="ignore"):
        free = np.asarray(softplus(biased))
        steps = np.asarray(read_steps(spec, dt, dt_bias))
        errors = bound_softplus_gates(biased, np.zeros(()), form)
        least, most = (None if x is None else float(x) for x in (spec.step_least, spec.step_most))
        near_least = 0.0 if least is None else np.where(free - errors <= least, least, 0.0)
        near_most = 0.0 if most is None else np.where(free + errors >= most, most, 0.0)
        of_limits = float(form.u) * (near_least + near_most)
        errors = errors + of_limits + 2 * float(form.eta)
    return steps, errors


def read_betas_with_errors(
    spec: LinearAttention, beta: Array, precision: Precision
) -> tuple[Array, Array]:
    """Return β = σ(b) of raw ones in float64, and how far programs may be off in them in the roughest format.

    The sigmoid is that of gates with the rate 1 and the bound 1, which counts more roundings.
    """
    with np.errstate(over="ignore"):
        betas = np.asarray(read_betas(spec, beta))
    return betas, bound_sigmoid_gates(beta, np.zeros(()), 1.0, precision.roughest)


class _OfHeads(NamedTuple):
    """Arrays erased and written, how far p may be off, and the keys of a pair; (h, n, d), or None for none."""

    p: Array | None = None
    w_v: Array | None = None
    p_errors: Array | None = None
    erased_keys: Array | None = None


def _read_heads_of_erasure(
    spec: LinearAttention,
    values: Mapping[str, Array],
    k: Array,
    v: Array,
    betas: Array | None,
    key_errors: Array | None,
    precision: Precision,
) -> _OfHeads:
    """Return what each head erases and writes if not β k and β v, from keys and values of all heads."""
    if spec.erase is None:
        return _OfHeads()
    # p is normalised below, with the errors of that.
    read = read_erasing_inputs(replace(spec, qk_norm=None, eps=0), values)
    arrays = {name: a.reshape(-1, *a.shape[-2:]) for name, a in read.items()}
    p_errors: Array | None = None
    if spec.erase == "vector" and betas is not None:
        if spec.qk_norm is not None:
            arrays["p"], of_p = _normalise(arrays["p"], float(spec.eps), precision)
            p_errors = np.abs(betas) * of_p
    elif spec.erase == "gates" and key_errors is not None:
        p_errors = np.abs(arrays["b"]) * key_errors
    erasure, written = read_erasure(spec, k, v, betas, arrays)
    keys = erasure.keys if spec.erase == "pair" else None
    return _OfHeads(erasure.p, written, p_errors, keys)


def repeat_for_tokens(g: Any, v: Any) -> Any:
    """Return one gate a head (h,) as one for each token (…, h, n, 1), for values (…, h, n, d_v) of any kind."""
    return g[..., None, None] + namespace_of(v).zeros_like(v[..., :1])


def _normalise(x: Array, eps: float, precision: Precision) -> tuple[Array, Array]:
    """Return x / √(Σ x² + ε), (h, n, d), and how far programs may be off that store each step in the narrower format.

    The sum alone is taken in the format of sums. Σ x² is off by (1 + u)³ (1 + γ(d)) − 1 and by η for each square, of
    which the root takes half; root, reciprocal, product, scale and two stores add at most ten roundings. Where Σ x²
    may overflow, or underflow, or is 0, nothing bounds the error.
    """
    narrow, sums = precision.roughest, precision.accumulate
    square = (x * x).sum(axis=-1, keepdims=True) + eps
    of_sum = sources.growth(STEPS_OF_SUM, narrow) + sources.growth(x.shape[-1], sums)
    most = sources.MOST_OF_RANGE * float(min(narrow.largest, sums.largest))
    with np.errstate(divide="ignore", invalid="ignore"):
        result = x / np.sqrt(square)
        # Underflow loses up to η for each square and for ε, relative to the sum.
        lost = (x.shape[-1] + 1) * float(narrow.eta) / square
        # Beyond these the first-order terms do not hold, and no bound is claimed.
        is_known = (lost < 1 / 2) & (square < most)
        relative = np.where(is_known, of_sum + lost + sources.growth(STEPS_OF_NORM, narrow), np.inf)
        errors = relative * np.abs(result) + _lost(precision)
    return result, errors


def _bound_entries_of_system(of: Recurrence) -> float:
    """Return the largest ‖p_i‖ ‖k_j‖ of a token i and an earlier one j; 0 for one token."""
    erased, keys = (np.sqrt((a * a).sum(axis=-1)) for a in (of.erased, of.k))
    largest_before = np.maximum.accumulate(keys)[:-1]
    return float((erased[1:] * largest_before).max(initial=0.0))


def _lost(precision: Precision) -> float:
    """Return how far a vector is off where its entries underflow as it is stored."""
    return 2 * float(precision.roughest.eta)


@dataclass(frozen=True)
class RecurrentLaw:
    """The law for the inputs of a specification, arrays in a layout."""

    spec: LinearAttention
    layout: Layout

    @property
    def words(self) -> str:
        """The scope of the law, for a report."""
        sizes = ", ".join(map(str, sorted(SIZES)))
        programs = (
            "Outputs are compared with the law of rounding of recurrences, for programs that go token by token, by"
            f" chunks of {sizes} tokens, or by all at once"
        )
        if not self.spec.delta:
            return f"{programs}, with exponentials of gates together or apart."
        return (
            f"{programs}, and solve the triangular system by substitution, by LU factors or by an inverse. Where rows"
            " of LU factors may be exchanged, the bound of every usual form counts too."
        )

    def covers(self, inputs: Inputs) -> bool:
        """Return whether the law is about these inputs: finite numbers, and gates of at most 0.

        Lengths of queries and keys must be equal, as a recurrence has one for each token.
        """
        if explain_uncovered(self.spec):
            return False
        numbers = [np.asarray(a) for a in inputs.values()]
        if not all(a.dtype.kind == "f" and np.isfinite(a).all() for a in numbers):
            return False
        gates = inputs.get("g")
        if self.spec.gate_form:
            # These are below 0 whatever the raw ones are, unless they overflow.
            gates = self._read_raw_gates(inputs)
            if not np.isfinite(gates).all():
                return False
        # The law is proved for decays, not for states that grow.
        decays = gates is None or np.asarray(gates).max(initial=0.0) <= 0
        # A step that is not negative, as a softplus, keeps the sign of the gates.
        if self.spec.step_form is None:
            decays = decays and np.asarray(inputs.get("dt", 0.0)).min(initial=0.0) >= 0
        q, k, v = (np.shape(inputs[name]) for name in "qkv")
        return bool(decays and q == k and self._front_of_values(q) == v[:-1] and min(q) > 0)

    def _read_raw_gates(self, inputs: Inputs) -> Array:
        values = self.in_order({name: a for name, a in inputs.items() if name != "initial_state"})
        rows = as_rows_of_heads(self.spec, values["A_log"], values["dt_bias"])
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(read_gates(self.spec, values["g"], *rows))

    def _front_of_values(self, q: tuple[int, ...]) -> tuple[int, ...]:
        """Return the axes of values without the last, from the shape of the queries."""
        heads = self.layout.index("h") - len(self.layout) if "h" in self.layout else -3
        front = list(q)
        if self.spec.values_per_key > 1:
            front[heads] *= self.spec.values_per_key
        return tuple(front[:-1])

    def in_order(self, inputs: Inputs) -> dict[str, Array]:
        """Return the inputs in float64 as (…, n, d), with a column for one number a token; those of heads stay."""
        result = {}
        for name, array in inputs.items():
            a = np.asarray(array, dtype=np.float64)
            if name == "initial_state":
                result[name] = self._as_kv(a)
                continue
            # A gate of a head has no axis of tokens; it is repeated below.
            if name == "g" and self.spec.gate == "head":
                continue
            if name in BY_HEAD:
                result[name] = a
                continue
            # Arrays of one number a token get a last axis, so that all broadcast alike.
            by_token = name in BY_TOKEN and not (name == "g" and self.spec.gate == "feature")
            a = a[..., None] if by_token else a
            result[name] = np.moveaxis(a, self._tokens_axis, -2)
        if self.spec.gate == "head":
            result["g"] = repeat_for_tokens(np.asarray(inputs["g"], np.float64), result["v"])
        return result

    @property
    def _tokens_axis(self) -> int:
        return self.layout.index("n") - len(self.layout)

    def _as_kv(self, state: Array) -> Array:
        """Return a state of keys by values from one in the specification's layout, and back."""
        return state.swapaxes(-1, -2) if self.spec.state == "vk" else state

    def compute_exactly(self, inputs: Inputs) -> tuple[Array, ...]:
        """Return the outputs in float64, in the layout, and the final states if the specification has states."""
        values = self.in_order(inputs)
        # Exact values do not depend on the precision.
        heads = recurrences(self.spec, values, Precision.of("float32"))
        exact = [exact_values(of) for of in heads]
        rows = self._laid([x.output for x in exact], values)
        if self.spec.state is None:
            return (rows,)
        return rows, self._laid_states([x.state for x in exact], values)

    def ways(self, inputs: Inputs, precision: Precision) -> list[Callable[[], Sequence[Expected]]]:
        """Return the outputs with their worst case by each arithmetic, computed on demand."""
        values = self.in_order(inputs)
        with_state = self.spec.state is not None

        # Most calls are right by their comparison with float64 alone, and ask for no way.
        @cache
        def all_ways_share() -> tuple[list[Recurrence], tuple[Array, ...]]:
            return [*recurrences(self.spec, values, precision)], self.compute_exactly(inputs)

        def outputs(way: RecurrentArithmetic) -> Sequence[Expected]:
            heads, (right, *right_states) = all_ways_share()
            # The worst case alone judges here.
            bounds = [limits(of, way, with_state=with_state, with_sharp=False) for of in heads]
            results = [ByLaw(right, self._laid([b.worst for b in bounds], values))]
            for state in right_states:
                worst = self._laid_states([b.worst_state for b in bounds], values)
                results.append(ByLaw(state, worst))
            return results

        length = values["q"].shape[-2]
        # Final states are returned in the format of outputs.
        every = [
            replace(way, ending=precision.returned)
            for way in widest_of_precision(precision, length)
        ]
        return [partial(outputs, way) for way in every]

    def covers_every_form(self, inputs: Inputs) -> bool:
        """Return whether no usual form is outside of the law: LU factors never exchange rows, as no |L_ij| is above 1.

        |L_ij| ≤ ‖p_i‖ ‖k_j‖ for j < i in every chunk, since gates decay, and p_i is β_i k_i of the delta rule.
        """
        # Without the delta rule there is no triangular system.
        if not self.spec.delta:
            return True
        heads = recurrences(self.spec, self.in_order(inputs), Precision.of("float32"))
        return all(_bound_entries_of_system(of.in_steps) <= 1 for of in heads)

    def _laid(self, heads: Sequence[Array], values: Mapping[str, Array]) -> Array:
        """Return arrays (n, d_v), one for each head, as one array in the layout."""
        joined = np.stack(heads).reshape(values["v"].shape)
        return np.moveaxis(joined, -2, self._tokens_axis)

    def _laid_states(self, heads: Sequence[Array], values: Mapping[str, Array]) -> Array:
        """Return states (d_k, d_v), one for each head, as one array in the specification's layout of states."""
        front, last = values["v"].shape[:-2], heads[0].shape
        return self._as_kv(np.stack(heads).reshape(*front, *last))

    def as_in_models(self, inputs: Mapping[str, Array], decay: float, rng: Any) -> dict[str, Array]:
        """Return the inputs with queries and keys of length 1, β between 0 and 1, and gates of mean ``−decay``."""
        result = dict(inputs)
        for name in "qk":
            a = np.asarray(inputs[name], dtype=np.float64)
            # 1e-6 under the root, so that a vector of zeros stays finite.
            result[name] = a / np.sqrt((a * a).sum(axis=-1, keepdims=True) + 1e-6)
        if self.spec.gate_form:
            result |= self._draw_raw_gates(inputs, decay, rng)
        elif "g" in inputs:
            result["g"] = -decay * rng.gamma(1.0, size=np.shape(inputs["g"]))
        if self.spec.step_form:
            # Mamba-2 starts with steps between 0.001 and 0.1.
            drawn = {
                name: rng.standard_normal(np.shape(inputs[name])) for name in ("dt", "dt_bias")
            }
            result |= {"dt": drawn["dt"], "dt_bias": USUAL_STEP_BIAS + drawn["dt_bias"]}
            result["g"] = result["g"] * np.exp(-USUAL_STEP_BIAS)
        elif "dt" in inputs:
            result["dt"] = rng.gamma(1.0, size=np.shape(inputs["dt"]))
        if "beta" in inputs:
            raw = rng.standard_normal(np.shape(inputs["beta"]))
            # A sigmoid, whose values are between 0 and 1.
            result["beta"] = raw if self.spec.beta_form else 1 / (1 + np.exp(-raw))
        return result | self._erased_as_in_models(result, rng)

    def _draw_raw_gates(
        self, inputs: Mapping[str, Array], decay: float, rng: Any
    ) -> dict[str, Array]:
        """Return raw gates, A_log and dt_bias of which gates have a mean near ``−decay``."""
        names = ("g", "A_log", "dt_bias")
        result = {name: rng.standard_normal(np.shape(inputs[name])) for name in names}
        result["A_log"], result["dt_bias"] = 0.3 * result["A_log"], 0.3 * result["dt_bias"]
        if self.spec.lower_bound is None:
            # A softplus of numbers around 0 is near 1.
            result["A_log"] = result["A_log"] + np.log(decay)
        else:
            # Far below 0 a sigmoid is an exponential, of which L is a multiple.
            result["dt_bias"] = result["dt_bias"] + np.log(decay / -float(self.spec.lower_bound))
        return result

    def _erased_as_in_models(self, inputs: Mapping[str, Array], rng: Any) -> dict[str, Array]:
        """Return p near the keys, gates b and w between 0 and 1, or a of length 1 and b the rates times −a."""
        names = ERASING_INPUTS[self.spec.erase]
        drawn = {name: rng.standard_normal(np.shape(inputs[name])) for name in names}
        if self.spec.erase == "vector":
            return {"p": 0.8 * inputs["k"] + 0.1 * drawn["p"]}
        result = {name: 1 / (1 + np.exp(-a)) for name, a in drawn.items()}
        if self.spec.erase == "pair":
            lengths = np.sqrt((drawn["a"] ** 2).sum(axis=-1, keepdims=True) + 1e-6)
            result["a"] = drawn["a"] / lengths
            result["b"] = -result["a"] * result["b"]
        return result
