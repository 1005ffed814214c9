"""Known mistakes of ``LinearAttention`` about its state: gates, steps, a bonus, when it is read and handed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from symattn.attention.flow import Step
from symattn.attention.layers.steps import identity, sigmoid, softplus
from symattn.attention.softmax import powers
from symattn.attention.stated_flow import OtherStep
from symattn.bounds.changed_steps import ChangedSteps, in_stated_steps
from symattn.bounds.mistake import At, Mistake, Wrong, change, number
from symattn.verification.definitions.linear_chunk_mistakes import transpose_if_square
from symattn.verification.definitions.linear_erasure import Erasure, take_token_before
from symattn.verification.definitions.linear_steps import lay_state
from symattn.verification.definitions.linear_ways import (
    Form,
    FormRows,
    Produced,
    list_linear_forms,
    rows_of,
    scan_linear_state,
    sum_in_form,
)
from symattn.verification.definitions.raw_gate_mistakes import yield_raw_gate_mistakes
from symattn.verification.rules.other_heads import list_numbers_of_other_heads

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


def of_form(
    spec: LinearAttention, blamed: str, words: str, form: Form, other: LinearAttention | None = None
) -> Mistake:
    """Return the mistake of other sums over the tokens; ``other`` is the specification that it amounts to, if any."""
    return Mistake(blamed, words, ChangedSteps(spec, sum_in_form(form)), spec=other)


def yield_reading_mistakes(spec: LinearAttention) -> Iterator[Mistake]:
    """Yield states that are read at another moment."""
    form = list_linear_forms(spec)[0]
    by = partial(of_form, spec, "values")
    if spec.reads == "after":
        # Without gates the state before a token lacks the token alone, which is a mistake of masks.
        if spec.gate and not spec.normalised:
            early = replace(spec, reads="before")
            words = "the state is read before a token is added, not after"
            yield by(words, lambda _, rows: form(early, rows), early)
        return
    words = "the state is read after a token is added, not before"
    late = replace(spec, reads="after", bonus=False)
    of_late: Form = lambda _, rows: form(late, rows)  # noqa: E731
    if not spec.bonus:
        yield by(words, of_late, late)
    else:
        of_bonus = last_of_role(spec, "bonus")
        steps = sum_in_form(of_late) | {of_bonus: leave_out(of_bonus)}
        cause = f"{words}, and the bonus is left out"
        yield Mistake("values", cause, ChangedSteps(spec, steps), spec=late)
        yield by(words, of_late)
    if spec.gate:
        words = "the state decays by a token's own gate before the token reads it"
        yield by(words, lambda spec, rows: form(spec, rows._replace(q=rows.q * powers(rows.g))))


def leave_out(name: str) -> OtherStep:
    """Return the change of a step to the first array that it takes."""
    return change(name, lambda at: at.first * 1)


def last_of_role(spec: LinearAttention, role: str) -> str:
    """Return the name of the step of a role."""
    return next(step.name for step in spec.pipeline_of_all if step.role == role)


def mistakes_of_bonus(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield wrong bonuses of the token itself."""
    by = partial(in_stated_steps, spec, step.blames)
    words = "the bonus is left out: a token does not read itself"
    without = replace(spec, bonus=False)
    yield replace(by(words, {step.name: lambda at: at.first * 1}), spec=without)
    for words, other in {**_BONUSES, **_BONUSES_OF_HEADS}.items():
        yield by(words, {}, reads={"bonus": other})
    words = "the bonus is written to the state: later tokens read it, too"
    form = list_linear_forms(spec)[0]

    def write(at: At) -> Any:
        rows, bonus = rows_of(at.spec, at.values), at.values["bonus"]  # type: ignore[arg-type]
        return form(spec, rows._replace(k=rows.k * bonus))

    yield by(words, {"sums": write})
    if spec.gate:

        def decay(at: At) -> Any:
            mixed, q, k, v, bonus = at.taken
            gates = rows_of(at.spec, at.values).g  # type: ignore[arg-type]
            return at.right(mixed, q, k, v, bonus * powers(gates))

        yield by("the bonus decays by the token's own gate", {step.name: decay})


def mistakes_of_step(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield steps Δ that are left out, or in the wrong place, at the step of the gates."""
    if step.name != "step_gates":
        return
    for words, (gates, values) in _STEPS.items():
        changes = {"step_gates": _multiply_by(gates), "step_values": _multiply_by(values)}
        yield in_stated_steps(spec, step.blames, words, changes)


def _multiply_by(of_steps: Callable[[Array], Any]) -> Wrong:
    def wrong(at: At) -> Any:
        steps, x = at.taken
        return of_steps(steps) * x

    return wrong


def mistakes_of_skip(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield terms D v that are left out, or multiplied by something else."""
    by = partial(in_stated_steps, spec, step.blames)
    words = "the added term D x is left out"
    without = replace(spec, skip=False)
    yield replace(by(words, {step.name: lambda at: at.first * 1}), spec=without)
    yield by("the added term is x, without D", {}, reads={"skip": lambda d: 0 * d + 1})
    if spec.step:

        def add_scaled(at: At) -> Any:
            mixed, v, skip = at.taken
            return mixed + skip * (at.values["steps"] * v)

        yield by("the added term is D Δ x, not D x", {step.name: add_scaled})
    for words, other in _SKIPS_OF_HEADS.items():
        yield by(words, {}, reads={"skip": other})


def mistakes_of_gates(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield gates of other heads, and other decays."""
    yield from yield_raw_gate_mistakes(spec, step)
    others = _GATES_OF_HEADS if spec.gate == "head" else {}
    for words, other in {**others, **_GATES}.items():
        cause = words
        if words == _OF_THE_TOKEN_BEFORE:
            # Where all tokens have one gate, that of the token before is the same.
            if spec.gate == "head":
                continue
            if spec.reads == "before":
                cause = "the state decays by the gate of the token before"
        wrong: Wrong = lambda at, other=other: other(at.right())  # type: ignore[misc] # noqa: E731
        yield in_stated_steps(spec, step.blames, cause, {step.name: wrong})


def yield_correction_mistakes(spec: LinearAttention) -> Iterator[Mistake]:
    """Yield what the delta rule corrects wrongly."""
    for words, correction in _CORRECTIONS.items() if spec.delta and not spec.erase else ():
        yield of_form(spec, "values", words, partial(_by_corrections, correction))
    if spec.delta and spec.gate and not spec.erase:
        words = "the state decays after it is corrected, not before"
        yield of_form(spec, "values", words, _by_late_decays)


def yield_decay_mistakes(spec: LinearAttention) -> Iterator[Mistake]:
    """Yield decays of what a token adds or reads, which only the state before it has."""
    if not spec.gate or spec.delta:
        return
    form = list_linear_forms(spec)[0]
    words = "what a token adds is multiplied by 1 − e^g, as in a moving average"
    averaged: Form = lambda spec, rows: form(spec, rows._replace(k=rows.k * (1 - powers(rows.g))))  # noqa: E731
    yield of_form(spec, "values", words, averaged)
    if spec.reads == "after":
        words = "the state that a token reads decays by the token's own gate a second time"
        again: Form = lambda spec, rows: form(spec, rows._replace(q=rows.q * powers(rows.g)))  # noqa: E731
        yield of_form(spec, "values", words, again)


def mistakes_of_initial_state(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield initial states that are lost, transposed, or handed over without a decay."""
    by, form = partial(in_stated_steps, spec, step.blames), list_linear_forms(spec)[0]
    lose: Wrong = lambda at: 0 * at.right()  # noqa: E731
    turn: Wrong = lambda at: transpose_if_square(at.right())  # noqa: E731
    turn_back: Wrong = turn
    without: Form = lambda spec, rows: form(spec, rows._replace(state=0 * rows.state))  # noqa: E731
    yield by("the initial state is left out", {step.name: lose})
    words = "the initial state is left out of the final state"
    yield by(words, {"final_state": _take_final_state(without)})
    first_output = last_of_role(spec, "mixed")
    words = "the initial state is left out of the outputs"
    yield by(words, {first_output: _take_output_of(without)})
    words = "the initial state is read transposed, where d_k = d_v"
    yield by(words, {step.name: turn})
    yield by("the final state is returned transposed, where d_k = d_v", {"final_state": turn_back})
    other = "values by keys" if spec.state == "kv" else "keys by values"
    words = f"states are read and returned as {other}, where d_k = d_v, not as {spec.state}"
    yield by(words, {step.name: turn, "final_state": turn_back})
    initial: Wrong = lambda at: at.values["initial_state"] * 1  # noqa: E731
    yield by("the final state is the initial one", {"final_state": initial})
    unwritten: Form = lambda spec, rows: form(spec, _leave_last_token_out(rows))  # noqa: E731
    words = "the final state is that before the last token"
    yield by(words, {"final_state": _take_final_state(unwritten)})
    if spec.gate:
        yield from _yield_undecayed_states(spec, form)


def _yield_undecayed_states(spec: LinearAttention, form: Form) -> Iterator[Mistake]:
    by = partial(in_stated_steps, spec, "cache")
    words = "the initial state is handed over undecayed: the first token's gate does not decay it"
    yield by(words, {"gates": lambda at: _without_first(at.right())})

    def hand_over(spec: LinearAttention, rows: FormRows) -> Produced:
        # Outputs are affine in the state: what the tokens give, and what the state gives.
        of_tokens = form(spec, rows._replace(state=0 * rows.state))
        of_state = form(spec, rows._replace(g=0 * rows.g, v=0 * rows.v))
        return Produced(*(a + b for a, b in zip(of_tokens, of_state, strict=True)))

    words = "the initial state is handed over undecayed: no gate decays it"
    yield of_form(spec, "cache", words, hand_over)
    words = "the final state is handed over undecayed by the last token's gate"
    without_last: Form = lambda spec, rows: form(spec, rows._replace(g=_without_last(rows.g)))  # noqa: E731
    yield by(words, {"final_state": _take_final_state(without_last)})
    still: Form = lambda spec, rows: form(spec, rows._replace(g=0 * rows.g))  # noqa: E731
    words = "the final state is handed over undecayed: no gate decays it"
    yield by(words, {"final_state": _take_final_state(still)})


def _take_final_state(form: Form) -> Wrong:
    return lambda at: lay_state(at.spec, form(at.spec, rows_of(at.spec, at.values)))  # type: ignore[arg-type]


def _take_output_of(form: Form) -> Wrong:
    return lambda at: form(at.spec, rows_of(at.spec, at.values)).output  # type: ignore[arg-type]


def _leave_last_token_out(rows: FormRows) -> FormRows:
    """Return the rows of tokens of which the last writes and erases nothing, and has no gate."""
    beta = rows.beta
    if isinstance(beta, Erasure):
        beta = beta._replace(p=_without_last(beta.p), keys=_without_last(beta.keys))
    gates = None if rows.g is None else _without_last(rows.g)
    return rows._replace(k=_without_last(rows.k), g=gates, beta=beta)


def _without_last(x: Array) -> Array:
    """Return the rows of tokens with zeros for the last."""
    return namespace_of(x).concat([x[..., :-1, :], 0 * x[..., -1:, :]], axis=-2)


def _without_first(x: Array) -> Array:
    """Return the rows of tokens with zeros for the first."""
    return namespace_of(x).concat([0 * x[..., :1, :], x[..., 1:, :]], axis=-2)


#: What a token adds to the state along its key, from v, from k S, the state's value for it, and from β.
Correction = Callable[[Array, Array, Array], Array]
_CORRECTIONS: dict[str, Correction] = {
    "the delta rule is left out: values are added, times β": lambda v, old, beta: beta * v,
    "the delta rule's correction has the other sign: β (v + k S) is added to the state": lambda v, old, beta: (
        beta * (v + old)
    ),
    "β is left out: the value under a key is replaced completely": lambda v, old, beta: v - old,
    "the correction of the state is subtracted, not added": lambda v, old, beta: beta * (old - v),
    "β multiplies only the added value: the replaced value is erased completely": lambda v, old, beta: (
        beta * v - old
    ),
    "β multiplies only the erased value: new values are added in full": lambda v, old, beta: (
        v - beta * old
    ),
    "β multiplies the erased value twice: β (v − β k S) is added to the state": lambda v, old, beta: (
        beta * (v - beta * old)
    ),
}


def _by_late_decays(spec: LinearAttention, rows: FormRows) -> Produced:
    """Compute the delta rule on a state that decays after each correction."""

    def token(
        state: Array, q: Array, k: Array, v: Array, beta: Array, g: Array
    ) -> tuple[Array, Array]:
        corrected = linear.delta_step(state, k, v, beta)
        state = linear.decayed(corrected, g)
        return state, q @ state

    return scan_linear_state(spec, token, rows, rows.beta, rows.g)


def _by_corrections(correction: Correction, spec: LinearAttention, rows: FormRows) -> Produced:
    def token(
        state: Array, q: Array, k: Array, v: Array, beta: Array, g: Array | None = None
    ) -> tuple[Array, Array]:
        state = linear.decayed(state, g)
        state = state + k.mT @ correction(v, k @ state, beta)
        return state, q @ state

    return scan_linear_state(spec, token, rows, rows.beta, rows.g)


_OF_THE_TOKEN_BEFORE = "the state decays after a token is added, not before"
_GATES: dict[str, Callable[[Array], Array]] = {
    "the gates are left out": lambda g: 0 * g,
    "gates are taken as decays, not as logarithms of them": lambda g: namespace_of(g).log(
        namespace_of(g).where(g < 0, -g, 1)
    ),
    # by the gate of the token before; the first has none
    _OF_THE_TOKEN_BEFORE: take_token_before,
    "decays are sigmoids of the gates, not their exponentials": lambda g: namespace_of(g).log(
        sigmoid(g)
    ),
    "decays are sigmoids of the gates with the other sign": lambda g: namespace_of(g).log(
        sigmoid(-g)
    ),
    "the state is multiplied by 1 − e^g, not by e^g": lambda g: namespace_of(g).log(1 - powers(g)),
    "the state is multiplied by 1 + g, not by e^g": lambda g: namespace_of(g).log(1 + g),
    "gates count twice: decays are squared": lambda g: 2 * g,
    "decays are 2^g, not e^g": lambda g: g * namespace_of(g).log(number(g, 2)),
    "gates are taken with the other sign: the state grows": lambda g: -g,
}


_GATES_OF_HEADS = list_numbers_of_other_heads("the gate", "the gates")


#: What multiplies gates, and values, from the step Δ (…, n, 1), where these are wrong.
_STEPS: dict[str, tuple[Callable[[Array], Any], Callable[[Array], Any]]] = {
    "the step Δ is left out: it multiplies neither gates nor values": (
        lambda d: 0 * d + 1,
        lambda d: 0 * d + 1,
    ),
    "the step Δ multiplies the gates alone, not the values": (identity, lambda d: 0 * d + 1),
    "the step Δ multiplies the values alone, not the gates": (lambda d: 0 * d + 1, identity),
    "the step Δ multiplies the values twice": (identity, lambda d: d * d),
    "a softplus is taken of the step Δ, which is given after its own": (
        softplus,
        softplus,
    ),
    "the gates have the step Δ of the token before": (take_token_before, identity),
}
_SKIPS_OF_HEADS = list_numbers_of_other_heads("the D", "the D of the added term")
#: Wrong bonuses (…, 1, d_k) of the token itself.
_BONUSES: dict[str, Callable[[Array], Any]] = {
    "the bonus is 1 for every feature": lambda b: 0 * b + 1,
    "the bonus is added to 1: a token reads itself as the state will have it, too": lambda b: 1 + b,
    "the bonus is e^u, not u": powers,
}  # fmt: skip
_BONUSES_OF_HEADS = list_numbers_of_other_heads("the bonus", "the bonus")
