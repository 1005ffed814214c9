"""Known mistakes of ``LinearAttention`` about its state: gates, steps, a bonus, when it is read and handed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from symattn.attention.layers.steps import identity, sigmoid, softplus
from symattn.attention.softmax import powers
from symattn.bounds.mistake import Compute, Mistake
from symattn.verification.definitions.definition_mistakes import reading
from symattn.verification.definitions.linear_chunk_mistakes import transpose_if_square
from symattn.verification.definitions.linear_erasure import take_token_before
from symattn.verification.definitions.linear_ways import (
    Form,
    FormRows,
    Produced,
    apply_normalised_form,
    scan_linear_state,
)

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


def yield_reading_mistakes(spec: LinearAttention, form: Form) -> Iterator[Mistake]:
    """Yield states that are read at another moment, and a wrong bonus of the token itself."""

    def by(words: str, run: Compute, other: LinearAttention | None = None) -> Mistake:
        return Mistake("values", words, run, spec=other)

    def as_given(other: LinearAttention) -> Compute:
        # A specification without a bonus ignores one.
        return partial(apply_normalised_form, other, form)

    if spec.reads == "after":
        # Without gates the state before a token lacks the token alone, which is a mistake of masks.
        if spec.gate and not spec.normalised:
            early = replace(spec, reads="before")
            yield by("the state is read before a token is added, not after", as_given(early), early)
        return
    words = "the state is read after a token is added, not before"
    late = replace(spec, reads="after", bonus=False)
    if not spec.bonus:
        yield by(words, as_given(late), late)
    else:
        yield by(f"{words}, and the bonus is left out", as_given(late), late)
        yield by(words, adding_own_products(as_given(replace(late, skip=False)), spec))
    if spec.gate:
        decayed: Form = partial(_by_decayed_states, form)
        words = "the state decays by a token's own gate before the token reads it"
        yield by(words, partial(apply_normalised_form, spec, decayed))
    if spec.bonus:
        bare = replace(spec, bonus=False)
        words = "the bonus is left out: a token does not read itself"
        yield by(words, as_given(bare), bare)
        for words, change in _BONUSES.items():
            yield by(words, reading(as_given(spec), bonus=change))
        for words, change in _BONUSES_OF_HEADS.items():
            yield by(words, reading(as_given(spec), bonus=change))
        words = "the bonus is written to the state: later tokens read it, too"
        yield by(words, partial(_with_written_bonus, spec, form))
    if spec.bonus and spec.gate:
        words = "the bonus decays by the token's own gate"
        yield by(
            words, lambda g, bonus, **inputs: as_given(spec)(g=g, bonus=bonus * powers(g), **inputs)
        )


def yield_step_mistakes(spec: LinearAttention, form: Form) -> Iterator[Mistake]:
    """Yield steps Δ and terms D v that are left out, or in the wrong place."""
    run = partial(apply_normalised_form, spec, form)
    # A specification without a step or a skip ignores one.
    bare = partial(apply_normalised_form, replace(without_step(spec), skip=False), form)
    for words, (gates, values) in _STEPS.items() if spec.step else ():
        changed: Compute = partial(_output_of_steps, bare, gates, values)
        yield Mistake("values", words, adding_own_products(changed, spec))
    if not spec.skip:
        return
    without = replace(spec, skip=False)
    words = "the added term D x is left out"
    yield Mistake("values", words, partial(apply_normalised_form, without, form), spec=without)
    words = "the added term is x, without D"
    yield Mistake("values", words, reading(run, skip=lambda d: 0 * d + 1))
    if spec.step:
        words = "the added term is D Δ x, not D x"
        scaled = without_step(spec)
        yield Mistake(
            "values",
            words,
            lambda g, v, dt, **inputs: apply_normalised_form(
                scaled, form, g=dt * g, v=dt * v, **inputs
            ),
        )
    for words, change in _SKIPS_OF_HEADS.items():
        yield Mistake("values", words, reading(run, skip=change))


def without_step(spec: LinearAttention) -> LinearAttention:
    """Return the specification without a step, and without what only steps have."""
    return replace(spec, step=False, step_form=None, step_least=None, step_most=None)


def _output_of_steps(
    run: Compute,
    of_gates: Callable[[Array], Any],
    of_values: Callable[[Array], Any],
    g: Array,
    v: Array,
    dt: Array,
    **inputs: Any,
) -> Any:
    """Return the run with gates and values that are multiplied by functions of the step."""
    return run(g=of_gates(dt) * g, v=of_values(dt) * v, **inputs)


def adding_own_products(run: Compute, spec: LinearAttention) -> Compute:
    """Return a run without a bonus and a skip, and what these give added to its outputs."""
    alone = partial(apply_normalised_form, replace(without_step(spec), state=None), _read_nothing)

    def added(**inputs: Any) -> Any:
        outputs = run(**inputs)
        result, *states = outputs if isinstance(outputs, tuple) else (outputs,)
        own = alone(**inputs)
        return (result + own, *states) if states else result + own

    return added


def _read_nothing(spec: LinearAttention, rows: FormRows) -> Produced:
    return Produced(0 * rows.v)


def _by_decayed_states(form: Form, spec: LinearAttention, rows: FormRows) -> Produced:
    """Return ``form`` with the state that a token reads decayed by the token's own gate."""
    return form(spec, rows._replace(q=rows.q * powers(rows.g)))


def _with_written_bonus(
    spec: LinearAttention, form: Form, k: Array, bonus: Array, **inputs: Any
) -> Any:
    """Return the run with b ⊙ k written in the place of k; the token itself is read by its bonus once."""
    writing: Form = lambda other, rows: form(other, rows._replace(k=rows.k * bonus))  # noqa: E731
    bare = partial(apply_normalised_form, replace(spec, bonus=False, skip=False), writing)
    return adding_own_products(bare, spec)(k=k, bonus=bonus, **inputs)


def yield_gate_mistakes(spec: LinearAttention, form: Form) -> Iterator[Mistake]:
    """Yield gates of other heads, other decays, and what the delta rule corrects wrongly."""
    run = partial(apply_normalised_form, spec, form)
    if spec.gate == "head":
        for words, change in _GATES_OF_HEADS.items():
            yield Mistake("values", words, reading(run, g=change))
    for words, change in _GATES.items() if spec.gate else ():
        if words != _OF_THE_TOKEN_BEFORE:
            yield Mistake("values", words, reading(run, g=change))
        elif spec.gate != "head":
            # Where all tokens have one gate, that of the token before is the same.
            cause = (
                words
                if spec.reads == "after"
                else "the state decays by the gate of the token before"
            )
            yield Mistake("values", cause, reading(run, g=change))
    for words, correction in _CORRECTIONS.items() if spec.delta and not spec.erase else ():
        yield Mistake(
            "values",
            words,
            partial(apply_normalised_form, spec, partial(_by_corrections, correction)),
        )


def yield_state_mistakes(spec: LinearAttention, form: Form) -> Iterator[Mistake]:
    """Yield states that are lost, transposed, or handed over without a decay."""
    run = partial(apply_normalised_form, spec, form)
    lost = reading(run, initial_state=lambda state: 0 * state)

    def by(words: str, changed: Compute) -> Mistake:
        return Mistake("cache", words, changed)

    def of_final(wrong: Compute) -> Compute:
        """Return the run with the final state of a wrong one."""
        return lambda **inputs: (run(**inputs)[0], wrong(**inputs)[1])

    def of_outputs(wrong: Compute) -> Compute:
        return lambda **inputs: (wrong(**inputs)[0], run(**inputs)[1])

    yield by("the initial state is left out", lost)
    yield by("the initial state is left out of the final state", of_final(lost))
    yield by("the initial state is left out of the outputs", of_outputs(lost))
    turned = reading(run, initial_state=transpose_if_square)
    yield by("the initial state is read transposed, where d_k = d_v", turned)
    words = "the final state is returned transposed, where d_k = d_v"
    yield by(words, lambda **inputs: _transpose_final_state(run(**inputs)))
    other = "values by keys" if spec.state == "kv" else "keys by values"
    words = f"states are read and returned as {other}, where d_k = d_v, not as {spec.state}"
    yield by(words, lambda **inputs: _transpose_final_state(turned(**inputs)))
    yield by(
        "the final state is the initial one",
        lambda **inputs: (run(**inputs)[0], inputs["initial_state"] * 1),
    )
    # A token without a key writes nothing; of a pair, nothing along b either.
    last = ("k", *(("g",) if spec.gate else ()), *(("b",) if spec.erase == "pair" else ()))
    unwritten = reading(run, **dict.fromkeys(last, _without_last))
    yield by("the final state is that before the last token", of_final(unwritten))
    if not spec.gate:
        return
    undecayed_first = reading(run, g=_without_first)
    words = "the initial state is handed over undecayed: the first token's gate does not decay it"
    yield by(words, undecayed_first)
    still = reading(run, g=lambda g: 0 * g)
    alone = reading(still, v=lambda v: 0 * v)
    words = "the initial state is handed over undecayed: no gate decays it"
    yield by(
        words,
        # Outputs are affine in the state: what the tokens give, and what the state gives.
        lambda **inputs: tuple(a + b for a, b in zip(lost(**inputs), alone(**inputs), strict=True)),
    )
    words = "the final state is handed over undecayed by the last token's gate"
    yield by(words, of_final(reading(run, g=_without_last)))
    yield by("the final state is handed over undecayed: no gate decays it", of_final(still))


def _transpose_final_state(outputs: tuple[Any, Any]) -> tuple[Any, Any]:
    return outputs[0], transpose_if_square(outputs[1])


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
    "β multiplies only the added value: the replaced value is erased completely": lambda v, old, beta: (
        beta * v - old
    ),
    "β multiplies only the erased value: new values are added in full": lambda v, old, beta: (
        v - beta * old
    ),
}


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
    "gates are taken with the other sign: the state grows": lambda g: -g,
}


def _take_numbers_of_head(head: int, x: Array) -> Any:
    # A sum of one head and 0 times all others keeps the number of heads.
    return 0 * x + x[..., head : head + 1 or None, :, :]


def _turn_heads(x: Array) -> Any:
    """Return the numbers of the next head for each head, those of the first for the last."""
    return namespace_of(x).concat([x[..., 1:, :, :], x[..., :1, :, :]], axis=-3)


def _reverse_heads(x: Array) -> Any:
    return namespace_of(x).flip(x, axis=-3)


def list_numbers_of_other_heads(one: str, all_of_them: str) -> dict[str, Callable[[Array], Any]]:
    """Return causes, and numbers of another head (…, h, ·, ·), from the words for one head's and for those of all."""
    return {
        f"heads have {all_of_them} in the opposite order": _reverse_heads,
        f"each head has {one} of the next one": _turn_heads,
        f"every head has {one} of the first": partial(_take_numbers_of_head, 0),
        f"every head has {one} of the last": partial(_take_numbers_of_head, -1),
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
