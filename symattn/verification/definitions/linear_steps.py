"""The steps of ``LinearAttention``: what it reads of its inputs, the sums over the tokens, and what follows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from symattn.attention.flow import Step
from symattn.attention.layers.steps import identity
from symattn.attention.norms import unit
from symattn.attention.projections import repeat_heads
from symattn.verification.definitions.linear_erasure import (
    ERASING_INPUTS,
    read_erasing_inputs,
    read_erasure,
)
from symattn.verification.definitions.linear_ways import (
    FEATURES,
    Form,
    FormRows,
    Produced,
    list_linear_forms,
    read_initial_state,
    sum_weights,
)
from symattn.verification.definitions.raw_gates import read_betas, read_gates, read_steps

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention

#: The letter of each input and of each array that a step computes.
LETTERS: Mapping[str, str] = {
    "q": "Q",
    "k": "K",
    "v": "V",
    "g": "g",
    "beta": "b",
    "initial_state": "S_0",
    "bonus": "u",
    "dt": "t",
    "skip": "D",
    "p": "P",
    "b": "B",
    "w": "W",
    "a": "A",
    "A_log": "a",
    "dt_bias": "c",
    "gates": "G",
    "betas": "β",
    "steps": "Δ",
    "q_features": "Φ_Q",
    "k_features": "Φ_K",
    "q_normed": "N_Q",
    "k_normed": "N_K",
    "q_shared": "R_Q",
    "k_shared": "R_K",
    "q_scaled": "Q'",
    "step_gates": "G'",
    "step_values": "V'",
    "erasure": "E",
    "written": "U",
    "first_state": "S",
    "sums": "Z",
    "mixed": "M",
    "with_bonus": "M'",
    "with_skip": "Y",
    "divisor": "z",
    "output": "O",
    "final_state": "S'",
}
#: Words for arrays that are not called by their names.
NOUNS: Mapping[str, str] = {
    "q_features": "the features of queries",
    "k_features": "the features of keys",
    "q_normed": "the normalised queries",
    "k_normed": "the normalised keys",
    "q_scaled": "the scaled queries",
    "first_state": "the initial state",
    "divisor": "the sum of the weights",
    "with_bonus": "the sums with the bonus",
    "with_skip": "the sums with the added term",
}
#: Axes that differ from those of the first array that a step takes. Of what is no array there are none: the output
#: together with the state, and two vectors for each token.
AXES: Mapping[str, str] = {
    "sums": "",
    "erasure": "",
    "beta": "… n 1",
    "dt": "… n 1",
    "step_values": "… n d_v",
    "written": "… n d_v",
    "divisor": "… n 1",
    "mixed": "… n d_v",
    "output": "… n d_v",
    "final_state": "d_k d_v",
}
#: One gate for each token or head is a column.
_AXES_OF_GATES = {"feature": "… n d_k", "token": "… n 1", "head": "… n 1"}


def list_axes_of_gates(spec: LinearAttention) -> Mapping[str, str]:
    """Return the axes of gates, as they are passed to the steps and times Δ."""
    if spec.gate is None:
        return {}
    return dict.fromkeys(("g", "step_gates"), _AXES_OF_GATES[spec.gate])


@dataclass
class _Steps:
    """The steps so far, and the arrays that now stand for queries, keys, values, gates, β and Δ."""

    spec: LinearAttention
    steps: list[Step] = field(default_factory=list)
    # The scale divides by the width of queries before a feature map, which may change it.
    now: dict[str, str] = field(default_factory=lambda: {"raw q": "q"})

    def add(
        self, name: str, run: Any, written: str, of: Sequence[str], *, role: str, blames: str,
        stands_for: str = "",
    ) -> None:  # fmt: skip
        """Add a step, whose array stands for an input in later steps if this has a name."""
        operands = [self.now.get(x, x) for x in of]
        state_step = self.spec.state_step
        self.steps.append(state_step(name, run, written, operands, role=role, blames=blames))
        if stands_for:
            self.now[stands_for] = name


def state_linear_steps(spec: LinearAttention) -> Iterator[Step]:
    """Yield the steps of a specification in their order."""
    flow = _Steps(spec)
    _add_gates(flow)
    for x in "qk":
        _add_features(flow, x)
    if spec.scale:
        flow.add(
            "q_scaled", _divide_by_root, "@0/√d_k", ("q", "raw q"), role="query scale",
            blames="scale", stands_for="q",
        )  # fmt: skip
    _add_written_values(flow)
    if spec.state:
        run = partial(_start_from, spec)
        before = ("initial_state", "k", "written")
        flow.add(
            "first_state",
            run,
            "@0",
            before,
            role="initial state",
            blames="cache",
            stands_for="first",
        )
    # The steps take the first form; the others are further legal ways of the same sums.
    form = list_linear_forms(spec)[0]
    run = partial(_sum_tokens, form, spec)
    written = _write_sums(spec)
    flow.add("sums", run, written, _SUMMED, role="recurrence", blames="values")
    _add_outputs(flow, form)
    if spec.state:
        run = partial(lay_state, spec)
        flow.add("final_state", run, "state(@0)", ("sums",), role="final state", blames="cache")
    yield from flow.steps


#: What the sums over the tokens are taken of, in the order of ``FormRows``.
_SUMMED = ("q", "k", "written", "gates of sums", "erased", "first")


def _write_sums(spec: LinearAttention) -> str:
    """Return the formula of the sums: a function of those of the arrays that a specification has."""
    has = {3: spec.gate is not None, 4: spec.delta, 5: spec.state is not None}
    listed = ", ".join(f"@{place}" for place in range(6) if has.get(place, True))
    return f"{'recurrence' if spec.delta else 'sums'}({listed})"


def _add_gates(flow: _Steps) -> None:
    """Add gates, β and steps Δ, as they are or from raw ones."""
    spec = flow.spec
    if spec.gate:
        raw: tuple[str, ...] = ("g", "A_log", "dt_bias") if spec.gate_form else ("g",)
        written = "decays(@0, @1, @2)" if spec.gate_form else "@0"
        run = partial(read_gates, spec) if spec.gate_form else identity
        flow.add("gates", run, written, raw, role="gates", blames="values", stands_for="g")
    if spec.has_beta:
        written = "σ(@0)" if spec.beta_form else "@0"
        run = partial(read_betas, spec)
        flow.add("betas", run, written, ("beta",), role="betas", blames="values", stands_for="beta")
    if spec.step:
        raw = ("dt", "dt_bias") if spec.step_form else ("dt",)
        written = "softplus(@0 + @1)" if spec.step_form else "@0"
        run = partial(read_steps, spec) if spec.step_form else identity
        flow.add("steps", run, written, raw, role="steps", blames="values", stands_for="dt")


def _add_features(flow: _Steps, x: str) -> None:
    """Add the features of queries or keys, their norm, and a copy for each head of values."""
    spec = flow.spec
    written = "@0" if spec.feature == "identity" else f"{spec.feature}(@0)"
    run = FEATURES[spec.feature]
    flow.add(f"{x}_features", run, written, (x,), role="feature map", blames="score", stands_for=x)
    if spec.qk_norm:
        run = partial(unit, eps=spec.eps)
        flow.add(f"{x}_normed", run, "unit(@0)", (x,), role="l2 norm", blames="norm", stands_for=x)
    if spec.values_per_key > 1:
        run = partial(repeat_heads, times=spec.values_per_key)
        flow.add(
            f"{x}_shared",
            run,
            "repeat(@0)",
            (x,),
            role="shared heads",
            blames="split",
            stands_for=x,
        )


def _divide_by_root(features: Array, q: Array) -> Any:
    xp = namespace_of(q)
    return features / xp.sqrt(xp.asarray(q.shape[-1], dtype=q.dtype))


def _add_written_values(flow: _Steps) -> None:
    """Add gates and values that a step Δ multiplies, or what is erased and written."""
    spec = flow.spec
    # After gates and β have their steps, so that the sums take what these give unless a step below says otherwise.
    flow.now |= {"written": "v", "gates of sums": flow.now.get("g", "g")}
    flow.now |= {"erased": flow.now.get("beta", "beta"), "first": "initial_state"}
    if spec.step:
        for name, x, stands_for in (
            ("step_gates", "g", "gates of sums"),
            ("step_values", "v", "written"),
        ):
            flow.add(
                name, _multiply, "@0 @1", ("dt", x), role="step", blames="values",
                stands_for=stands_for,
            )  # fmt: skip
    if spec.erase:
        names = tuple(ERASING_INPUTS[spec.erase])
        operands = ("k", "v", "beta", *names)
        places = [place for place, x in enumerate(operands) if spec.has_beta or x != "beta"]
        listed = ", ".join(f"@{place}" for place in places)
        for name in ("erasure", "written"):
            run = partial(_read_erased_or_written, spec, name, names)
            flow.add(name, run, f"{name}({listed})", operands, role=name, blames="values")
        flow.now |= {"erased": "erasure", "written": "written"}


def _multiply(dt: Array, x: Array) -> Array:
    return dt * x


def _read_erased_or_written(
    spec: LinearAttention, name: str, names: Sequence[str], k: Any, v: Any, beta: Any, *given: Any
) -> Any:
    inputs = read_erasing_inputs(spec, dict(zip(names, given, strict=True)))
    result = read_erasure(spec, k, v, beta, inputs)
    return result.erasure if name == "erasure" else result.values


def _start_from(spec: LinearAttention, initial_state: Any, k: Array, v: Array) -> Any:
    return read_initial_state(spec, k, v, initial_state)


def _sum_tokens(form: Form, spec: LinearAttention, *rows: Any) -> Produced:
    return form(spec, FormRows(*rows))


def _add_outputs(flow: _Steps, form: Form) -> None:
    """Add the output of the sums, a bonus of each token for itself, an added term, and the normaliser."""
    spec = flow.spec
    later: list[tuple[str, Any, str, tuple[str, ...], str, str]] = []
    of: tuple[str, ...] = ("sums",)
    later.append(("mixed", _take_output, "output(@0)", of, "mixed", "values"))
    if spec.bonus:
        of = ("mixed", "q", "k", "v", "bonus")
        written = "@0 + own(@1, @2, @3, @4)"
        later.append(("with_bonus", add_own_products, written, of, "bonus", "values"))
    if spec.skip:
        of = ("mixed", "v", "skip")
        later.append(("with_skip", _add_skip, "@0 + @2 @1", of, "skip", "values"))
    if spec.normalised:
        of = ("mixed", "divisor")
        later.append(("quotient", _divide, "@0/@1", of, "quotient", "normalize"))
    # Whichever of these comes last is what is returned.
    *between, (_, *last) = later
    for name, run, written, of, role, blames in (*between, ("output", *last)):
        # Nothing but the quotient reads the divisor.
        if role == "quotient":
            _add_divisor(flow, form)
        flow.add(name, run, written, of, role=role, blames=blames, stands_for="mixed")


def _add_divisor(flow: _Steps, form: Form) -> None:
    run = partial(sum_weights, form, flow.spec)
    of = ("q", "k", "written", "gates of sums", "erased")
    written = "sums of weights(@0, @1)"
    flow.add("divisor", run, written, of, role="normaliser", blames="normalize")


def _take_output(sums: Produced) -> Any:
    return sums.output


def add_own_products(mixed: Any, q: Any, k: Any, v: Any, bonus: Any) -> Any:
    """Return the output, and what each token reads of itself by its bonus."""
    return mixed + linear.own_products(q, k, v, bonus)


def _add_skip(mixed: Any, v: Any, skip: Any) -> Any:
    return mixed + skip * v


def _divide(mixed: Any, divisor: Any) -> Any:
    return mixed / divisor


def lay_state(spec: LinearAttention, sums: Produced) -> Any:
    """Return the state after the last token as the specification lays it out."""
    return sums.state if spec.state == "kv" else sums.state.mT
