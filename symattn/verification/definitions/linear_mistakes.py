"""Known mistakes of ``LinearAttention``: all of them in order; those of features, scale, normaliser and heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from symattn.attention.constants import number
from symattn.attention.layers.steps import gelu, sigmoid, silu, softplus, tanh
from symattn.attention.projections import repeat_heads, tile_heads
from symattn.attention.softmax import powers, softmax
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily
from symattn.verification.definitions.definition_mistakes import reading
from symattn.verification.definitions.linear_chunk_mistakes import list_wrong_forms
from symattn.verification.definitions.linear_erasing_mistakes import yield_erasing_mistakes
from symattn.verification.definitions.linear_erasure import (
    ERASING_INPUTS,
    Erasure,
    is_of_keys,
    read_erasing_inputs,
)
from symattn.verification.definitions.linear_norm_mistakes import yield_norm_mistakes
from symattn.verification.definitions.linear_state_mistakes import (
    adding_own_products,
    yield_gate_mistakes,
    yield_reading_mistakes,
    yield_state_mistakes,
    yield_step_mistakes,
)
from symattn.verification.definitions.linear_ways import (
    FEATURES,
    Form,
    FormRows,
    Produced,
    apply_normalised_form,
    list_linear_forms,
    make_unit_values,
    read_features,
)

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


def yield_added_number_mistake(
    spec: LinearAttention, laid: Callable[[Compute], Compute]
) -> Iterator[MistakeFamily]:
    """Yield the mistake of a number that is added to the sum of the weights."""

    def added(x: float) -> Compute:
        def run(**inputs: Any) -> Array:
            bare = partial(
                apply_normalised_form, replace(spec, normalised=False), list_linear_forms(spec)[0]
            )
            # With values of 1 the sum of weighted values is the sum of the weights.
            total = bare(**{**inputs, "v": make_unit_values(inputs["v"])})
            result: Array = bare(**inputs) / (total + number(x, total))
            return result

        return laid(run)

    if spec.normalised:
        grid = tuple(float(x) for x in np.geomspace(1e-9, 1e3, 25))
        yield MistakeFamily(
            "normalize", "{} is added to the sum that it is divided by", added, grid
        )


#: Wrong feature maps, f(q) · f(k) for φ(q) · φ(k), besides those that a specification can have.
_OTHERS: dict[str, Callable[[Array], Array]] = {
    "elu(x), without the 1": lambda x: linear.elu_plus_one(x) - 1,
    "relu(x) + 1": lambda x: linear.relu(x) + 1,
    "x + 1": lambda x: x + 1,
    "1 + the sigmoid of x": lambda x: 1 + sigmoid(x),
    "|x|": lambda x: namespace_of(x).abs(x),
    "x²": lambda x: x * x,
    "relu(x)²": lambda x: linear.relu(x) * linear.relu(x),
    "the sigmoid of x": sigmoid,
    "softplus, log(1 + e^x)": softplus,
    "silu": silu,
    "gelu": gelu,
    "tanh": tanh,
    "e^(−x)": lambda x: powers(-x),
    "a softmax over the features": softmax,
    "a softmax over the tokens": lambda x: softmax(x.mT).mT,
}


def yield_linear_mistakes(spec: LinearAttention) -> Iterator[Mistake]:
    """Yield all known mistakes of a specification, those with the plainest words first."""
    form = list_linear_forms(spec)[0]
    phi, plain = (
        FEATURES[spec.feature],
        partial(apply_normalised_form, replace(spec, feature="identity"), form),
    )

    def of(step: str, cause: str, **fields: Any) -> Mistake:
        other = replace(spec, **fields)
        return Mistake(
            step,
            cause,
            partial(apply_normalised_form, other, list_linear_forms(other)[0]),
            spec=other,
        )

    for name in FEATURES:
        if name != spec.feature:
            words = "left out" if name == "identity" else f"{name}, not {spec.feature}"
            yield of("score", f"the feature map is {words}", feature=name)
    for words, feature in _OTHERS.items():
        cause = f"the feature map is {words}, not {spec.feature}"
        yield Mistake("score", cause, reading(plain, q=feature, k=feature))
    yield Mistake("score", "the feature map is applied to queries alone", reading(plain, q=phi))
    yield Mistake("score", "the feature map is applied to keys alone", reading(plain, k=phi))
    yield from yield_norm_mistakes(spec, form)
    is_after = spec.reads == "after"
    if spec.causal and not spec.gate and not spec.delta and not spec.state and is_after:
        yield of("mask", "later tokens are seen too: the state is that of all tokens", causal=False)
    # Before those of chunks, as one chunk of all tokens may have the same mistake.
    yield from yield_reading_mistakes(spec, form)
    yield from yield_step_mistakes(spec, form)
    if spec.erase:
        as_given: Callable[[LinearAttention], Compute] = lambda other: partial(  # noqa: E731
            apply_normalised_form, other, form
        )
        yield from yield_erasing_mistakes(spec, as_given, partial(_change_erasure, spec, form))
    for (step, cause), wrong in list_wrong_forms(spec).items():
        yield Mistake(step, cause, partial(apply_normalised_form, spec, wrong))
        for noun, above, below in (
            (("values", wrong, form), ("weights", form, wrong)) if spec.normalised else ()
        ):
            yield Mistake(
                step,
                f"{cause}, in the sum of the {noun} alone",
                partial(apply_normalised_form, spec, above, below=below),
            )
    if spec.normalised:
        yield from _yield_normaliser_mistakes(spec, form)
    else:
        # Specifications with states have no normaliser.
        if not (spec.delta or spec.state or spec.step or spec.skip) and is_after:
            yield of("normalize", "it is divided by the sum of the weights", normalised=True)
        words = "queries are not scaled" if spec.scale else "queries are scaled by 1/√d_k"
        yield of("scale", words, scale=not spec.scale)
        # D v does not depend on queries.
        plain = partial(apply_normalised_form, replace(spec, scale=False, skip=False), form)
        for (written, power), (symbol, axis) in product(
            _POWERS.items(), {"d_k": -1, "n": -2}.items()
        ):
            words = f"queries are scaled by {written.format(symbol)}"
            # 1/√d_k is a mistake of its own above, or right.
            if (symbol, power) != ("d_k", -1):
                scaled: Compute = partial(_output_of_scaled_queries, plain, power, axis)
                run = adding_own_products(scaled, replace(spec, bonus=False))
                yield Mistake("scale", words, run if spec.skip else scaled)
    if spec.values_per_key > 1:
        yield from _yield_head_mistakes(spec, form)
    if spec.state:
        yield from yield_state_mistakes(spec, form)
    yield from yield_gate_mistakes(spec, form)


def _change_erasure(
    spec: LinearAttention, form: Form, change: Callable[..., tuple[Erasure, Any, Any]]
) -> Compute:
    """Return the run with an erasure, keys and values that ``change`` makes of the right ones and of the inputs."""

    def run(**inputs: Any) -> Any:
        read = {**inputs, **read_erasing_inputs(spec, inputs)}

        def changed(spec: LinearAttention, rows: FormRows) -> Produced:
            other, keys, values = change(rows.beta, rows.k, rows.v, read)
            return form(spec, rows._replace(k=keys, v=values, beta=other))

        return apply_normalised_form(spec, changed, **inputs)

    return run


def _yield_head_mistakes(spec: LinearAttention, form: Form) -> Iterator[Mistake]:
    """Yield other heads of queries and keys for heads of values, and gates and β of another head of the group."""
    times = spec.values_per_key
    repeated = partial(repeat_heads, times=times)
    bare = partial(apply_normalised_form, replace(spec, values_per_key=1), form)
    of_keys = {x: repeated for x in ERASING_INPUTS[spec.erase] if is_of_keys(spec, x)}
    run = reading(bare, **of_keys)
    for words, chosen in _OTHER_HEADS.items():
        other = partial(chosen, times=times)
        for noun, q, k in (
            ("queries and keys", other, other),
            ("queries", other, repeated),
            ("keys", repeated, other),
        ):
            yield Mistake("split", words.format(noun), reading(run, q=q, k=k))
    of_first: Callable[[Any], Any] = lambda x: repeat_heads(x[..., ::times, :, :], times)  # noqa: E731
    nouns = {"g": "gate"} if spec.gate else {}
    nouns |= {"beta": "β"} if spec.has_beta else {}
    nouns |= {"b": "erase gates", "w": "write gates"} if spec.erase == "gates" else {}
    for name, noun in {**nouns, "v": "values"}.items():
        words = f"all heads of values that share a key have the {noun} of the first of them"
        right = partial(apply_normalised_form, spec, form)
        yield Mistake("split", words, reading(right, **{name: of_first}))


def _repeat_one_head(x: Array, times: int, head: int) -> Array:
    # A sum of one head and 0 times all others keeps the number of heads.
    return repeat_heads(0 * x + x[..., head : head + 1 or None, :, :], times)


#: Other heads of queries or keys for the heads of values.
_OTHER_HEADS: dict[str, Callable[..., Array]] = {
    "heads of {} are tiled (repeat), not repeated (repeat_interleave)": tile_heads,
    "every head of values reads the first head of {}": partial(_repeat_one_head, head=0),
    "every head of values reads the last head of {}": partial(_repeat_one_head, head=-1),
}
#: Powers of a size, in halves.
_POWERS = {"{}": 2, "√{}": 1, "1/√{}": -1, "1/{}": -2, "1/{}²": -4}


def _output_of_scaled_queries(
    run: Compute, halves: int, axis: int, q: Array, **inputs: Array
) -> Any:
    """Return the output for scaled queries, by linearity, and the state, which queries do not change."""
    xp, size = namespace_of(q), int(q.shape[axis])
    root = xp.sqrt(xp.asarray(size, dtype=q.dtype))
    outputs = run(q=q, **inputs)
    result, *states = outputs if isinstance(outputs, tuple) else (outputs,)
    for _ in range(abs(halves)):
        result = result * root if halves > 0 else result / root
    return (result, *states) if states else result


def _yield_normaliser_mistakes(spec: LinearAttention, form: Form) -> Iterator[Mistake]:
    bare = replace(spec, normalised=False)
    phi: Callable[[Any], Any] = partial(read_features, spec)
    right = partial(apply_normalised_form, bare, form)

    def over(cause: str, divisor: Compute) -> Mistake:
        return Mistake("normalize", cause, lambda **inputs: right(**inputs) / divisor(**inputs))

    yield Mistake("normalize", "it is not divided by the sum of the weights", right)
    # A default argument, as the loop's function is called later.
    for words, divisor in _DIVISORS.items():
        yield over(words, lambda q, k, divisor=divisor, **inputs: divisor(phi(q), phi(k)))
    plain = partial(apply_normalised_form, replace(bare, feature="identity"), form)
    for noun, name in (("keys", "q"), ("queries", "k")) if spec.feature != "identity" else ():
        words = f"the sum that it is divided by is of {noun} without the feature map"
        # The norm and the heads come after the features, in the run itself.
        changes = {name: FEATURES[spec.feature], "v": make_unit_values}
        yield over(words, reading(plain, **changes))


def _multiply_by_cumulative_sum(a: Array, b: Array, axis: int) -> Array:
    xp = namespace_of(a)
    return xp.sum(a * xp.cumulative_sum(b, axis=axis), axis=-1, keepdims=True)


#: Wrong divisors, from the features of queries and keys.
_DIVISORS: dict[str, Callable[[Array, Array], Array]] = {
    "the sum of all keys is in the normaliser, not that of earlier ones": lambda a, b: (
        a @ namespace_of(b).sum(b, axis=-2, keepdims=True).mT
    ),
    "the normaliser is a cumulative sum over the heads, not over the tokens": partial(
        _multiply_by_cumulative_sum, axis=-3
    ),
    "the normaliser is a cumulative sum over the features": partial(
        _multiply_by_cumulative_sum, axis=-1
    ),
    "it is divided by the sum of the keys' features, without the queries'": lambda a, b: (
        _multiply_by_cumulative_sum(0 * a + 1, b, -2)
    ),
    "it is divided by the number of tokens": lambda a, b: namespace_of(b).asarray(
        int(b.shape[-2]), dtype=b.dtype
    ),
}
