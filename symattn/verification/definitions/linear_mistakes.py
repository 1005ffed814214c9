"""Rules by the roles of steps of ``LinearAttention``: how each of these can be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from symattn.attention.flow import Step
from symattn.attention.layers.steps import gelu, sigmoid, silu, softplus, tanh
from symattn.attention.projections import repeat_heads, tile_heads
from symattn.attention.softmax import powers, softmax
from symattn.bounds.changed_steps import ChangedSteps, in_stated_steps
from symattn.bounds.mistake import At, Mistake, MistakeFamily, Wrong, change
from symattn.verification.definitions.linear_chunk_mistakes import list_wrong_forms
from symattn.verification.definitions.linear_erasing_mistakes import mistakes_of_erasure
from symattn.verification.definitions.linear_norm_mistakes import (
    mistakes_of_missing_norm,
    mistakes_of_norm,
)
from symattn.verification.definitions.linear_state_mistakes import (
    mistakes_of_bonus,
    mistakes_of_gates,
    mistakes_of_initial_state,
    mistakes_of_skip,
    mistakes_of_step,
    yield_correction_mistakes,
    yield_decay_mistakes,
    yield_reading_mistakes,
)
from symattn.verification.definitions.linear_ways import (
    FEATURES,
    Form,
    list_linear_forms,
    read_features,
    rows_of,
    sum_in_form,
    sum_weights,
)
from symattn.verification.definitions.raw_gate_mistakes import (
    families_of_raw_steps,
    mistakes_of_raw_betas,
    mistakes_of_raw_steps,
)
from symattn.verification.rules.by_role import FamilyRule, Rule

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


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


def mistakes_of_features(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield wrong feature maps of queries, keys or both, and norms that a specification lacks, at those of queries."""
    if step.name != "q_features":
        return

    def of_map(cause: str, **of_each: Callable[[Any], Any]) -> Mistake:
        wrong: dict[str, Wrong] = {
            f"{x}_features": lambda at, feature=feature: feature(at.first)  # type: ignore[misc]
            for x, feature in of_each.items()
        }
        return in_stated_steps(spec, step.blames, cause, wrong)

    for name, feature in FEATURES.items():
        if name != spec.feature:
            words = "left out" if name == "identity" else f"{name}, not {spec.feature}"
            mistake = of_map(f"the feature map is {words}", q=feature, k=feature)
            yield replace(mistake, spec=replace(spec, feature=name))  # type: ignore[arg-type]
    for words, feature in _OTHERS.items():
        yield of_map(f"the feature map is {words}, not {spec.feature}", q=feature, k=feature)
    if spec.feature != "identity":
        left_out: Callable[[Any], Any] = lambda x: x * 1  # noqa: E731
        yield of_map("the feature map is applied to queries alone", k=left_out)
        yield of_map("the feature map is applied to keys alone", q=left_out)
    if not spec.qk_norm:
        yield from mistakes_of_missing_norm(spec, step)
    if not spec.normalised and not spec.scale:
        yield from _yield_scale_mistakes(spec)


def mistakes_of_scale(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield other scales of queries."""
    yield from () if spec.normalised else _yield_scale_mistakes(spec)


def _yield_scale_mistakes(spec: LinearAttention) -> Iterator[Mistake]:
    """Yield other scales of queries, at the last step of these."""
    name = next(step.of[0] for step in spec.pipeline_of_all if step.role == "recurrence")

    def scale_by(halves: int, axis: int, at: At) -> Any:
        plain = at.first if spec.scale else at.right()
        root = at.xp.sqrt(at.number(at.size("q", axis)))
        for _ in range(abs(halves)):
            plain = plain * root if halves > 0 else plain / root
        return plain

    words = "queries are not scaled" if spec.scale else "queries are scaled by 1/√d_k"
    other = partial(scale_by, 0 if spec.scale else -1, -1)
    scaled = in_stated_steps(spec, "scale", words, {name: other})
    yield replace(scaled, spec=replace(spec, scale=not spec.scale))
    for (written, power), (symbol, axis) in product(_POWERS.items(), {"d_k": -1, "n": -2}.items()):
        # 1/√d_k is a mistake of its own above, or right.
        if (symbol, power) != ("d_k", -1):
            words = f"queries are scaled by {written.format(symbol)}"
            yield in_stated_steps(spec, "scale", words, {name: partial(scale_by, power, axis)})


def mistakes_of_shared_heads(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield other heads of queries and keys for heads of values, and gates and β of another head of the group."""
    if step.name != "q_shared":
        return
    times = spec.values_per_key
    for words, chosen in _OTHER_HEADS.items():
        wrong: Wrong = lambda at, chosen=chosen: chosen(at.first, times=times)  # type: ignore[misc] # noqa: E731
        for noun, names in _SHARED.items():
            yield in_stated_steps(
                spec, step.blames, words.format(noun), dict.fromkeys(names, wrong)
            )
    of_first: Callable[[Any], Any] = lambda x: repeat_heads(x[..., ::times, :, :], times)  # noqa: E731
    computed = {"gates": "gate"} if spec.gate else {}
    computed |= {"betas": "β"} if spec.has_beta else {}
    read = {"b": "erase gates", "w": "write gates"} if spec.erase == "gates" else {}
    for name, noun in {**computed, **read, "v": "values"}.items():
        words = f"all heads of values that share a key have the {noun} of the first of them"
        if name in computed:
            wrong = lambda at: of_first(at.right())  # noqa: E731
            yield in_stated_steps(spec, step.blames, words, {name: wrong})
        else:
            yield in_stated_steps(spec, step.blames, words, {}, reads={name: of_first})


_SHARED: Mapping[str, tuple[str, ...]] = {
    "queries and keys": ("q_shared", "k_shared"),
    "queries": ("q_shared",),
    "keys": ("k_shared",),
}


def mistakes_of_sums(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield wrong sums over the tokens, by pairs, token by token or by chunks."""
    is_after = spec.reads == "after"
    if spec.causal and not spec.gate and not spec.delta and not spec.state and is_after:
        words, other = (
            "later tokens are seen too: the state is that of all tokens",
            replace(spec, causal=False),
        )
        of_all: Form = lambda _, rows: list_linear_forms(other)[0](other, rows)  # noqa: E731
        changes = sum_in_form(of_all, of_all if spec.normalised else None)
        yield Mistake("mask", words, ChangedSteps(spec, changes), spec=other)
    # Before those of chunks, as one chunk of all tokens may have the same mistake.
    yield from yield_reading_mistakes(spec)
    if spec.erase:
        yield from mistakes_of_erasure(spec, step)
    for (blamed, cause), wrong in list_wrong_forms(spec).items():
        both = sum_in_form(wrong, wrong if spec.normalised else None)
        yield Mistake(blamed, cause, ChangedSteps(spec, both))
        if spec.normalised:
            parts = {"values": {"sums": both["sums"]}, "weights": {"divisor": both["divisor"]}}
            for noun, changes in parts.items():
                words = f"{cause}, in the sum of the {noun} alone"
                yield Mistake(blamed, words, ChangedSteps(spec, changes))
    yield from yield_correction_mistakes(spec)
    yield from yield_decay_mistakes(spec)


def mistakes_of_output(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield a normaliser that a specification lacks."""
    has_more = spec.normalised or spec.delta or spec.state or spec.step or spec.skip
    if has_more or spec.reads == "before":
        return
    other, form = replace(spec, normalised=True), list_linear_forms(spec)[0]

    def divide(at: At) -> Any:
        return at.right() / sum_weights(form, spec, *rows_of(spec, at.values))

    words = "it is divided by the sum of the weights"
    yield replace(in_stated_steps(spec, "normalize", words, {step.name: divide}), spec=other)


def mistakes_of_normaliser(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield sums of weights that are left out, or of something else."""
    by = partial(in_stated_steps, spec, step.blames)
    yield by("it is not divided by the sum of the weights", {"output": lambda at: at.first * 1})
    for words, divisor in _DIVISORS.items():
        wrong: Wrong = lambda at, divisor=divisor: divisor(*at.taken[:2])  # type: ignore[misc] # noqa: E731
        yield by(words, {step.name: wrong})
    plain = replace(spec, feature="identity")
    for noun, place, name in (("keys", 1, "k"), ("queries", 0, "q")):
        if spec.feature != "identity":

            def without_features(at: At, place: int = place, name: str = name) -> Any:
                taken = at.taken
                # The norm and the heads come after the features.
                taken[place] = read_features(plain, at.values[name])
                return at.right(*taken)

            words = f"the sum that it is divided by is of {noun} without the feature map"
            yield by(words, {step.name: without_features})


def families_of_normaliser(spec: LinearAttention, step: Step) -> Iterator[MistakeFamily]:
    """Yield the mistake of a number that is added to the sum of the weights."""

    def added(x: float) -> ChangedSteps:
        wrong: Wrong = lambda at: at.right() + at.number(x)  # noqa: E731
        return ChangedSteps(spec, {step.name: change(step.name, wrong)})

    grid = tuple(float(x) for x in np.geomspace(1e-9, 1e3, 25))
    yield MistakeFamily(step.blames, "{} is added to the sum that it is divided by", added, grid)


#: The rule of each role of a recurrence.
RULES_OF_RECURRENCES: Mapping[str, Rule] = {
    "gates": mistakes_of_gates,
    "betas": mistakes_of_raw_betas,
    "steps": mistakes_of_raw_steps,
    "feature map": mistakes_of_features,
    "l2 norm": mistakes_of_norm,
    "shared heads": mistakes_of_shared_heads,
    "query scale": mistakes_of_scale,
    "step": mistakes_of_step,
    "initial state": mistakes_of_initial_state,
    "recurrence": mistakes_of_sums,
    "mixed": mistakes_of_output,
    "bonus": mistakes_of_bonus,
    "skip": mistakes_of_skip,
    "normaliser": mistakes_of_normaliser,
}
#: The rule of each role that has mistakes with a number.
FAMILIES_OF_RECURRENCES: Mapping[str, FamilyRule] = {
    "steps": families_of_raw_steps,
    "normaliser": families_of_normaliser,
}
