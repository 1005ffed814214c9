"""Known mistakes of ``LinearAttention`` in the norm of queries and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from symattn.attention.flow import Step
from symattn.attention.stated_flow import OtherStep
from symattn.bounds.changed_steps import in_stated_steps
from symattn.bounds.mistake import At, Mistake, Wrong
from symattn.bounds.reference import Values
from symattn.verification.definitions.linear_ways import (
    FEATURES,
    FormRows,
    Produced,
    repeat_for_values,
    rows_of,
    scan_linear_state,
)
from symattn.verification.rules import norms

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention


#: Axes besides the features that a norm may run over.
_AXES_OF_NORMS: dict[tuple[int, ...], str] = {
    (-2,): "the tokens",
    (-1, -2): "tokens and features together",
    (-3,): "the heads",
    (-1, -3): "all heads together",
}


def mistakes_of_missing_norm(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield norms that a specification lacks, at the features of queries and keys."""
    length_one = partial(norms.right("l2"), eps=_USUAL_EPS)

    def by(words: str, *names: str) -> Mistake:
        wrong: Wrong = lambda at: length_one(at.right())  # noqa: E731
        return in_stated_steps(spec, "norm", words, dict.fromkeys(names, wrong))

    yield by("queries and keys are divided by their lengths", "q_features", "k_features")
    yield by("queries are divided by their lengths", "q_features")
    yield by("keys are divided by their lengths", "k_features")


def mistakes_of_norm(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield wrong norms of queries and keys, in both or in one of them, at the step of queries."""
    if step.name != "q_normed":
        return

    def by(words: str, how: Callable[[Any], Any], *names: str) -> Mistake:
        wrong: Wrong = lambda at: how(at.first)  # noqa: E731
        return in_stated_steps(spec, step.blames, words, dict.fromkeys(names, wrong))

    both = ("q_normed", "k_normed")
    left_out: Callable[[Any], Any] = lambda x: x * 1  # noqa: E731
    bare = by("queries and keys are not normalised", left_out, *both)
    if spec.erase == "vector":
        # What is erased has the norm of keys, too.
        changed = {
            name: change_erasure_of(replace(spec, qk_norm=None, eps=0), name)
            for name in ("erasure",)
        }
        bare = replace(bare, way=replace(bare.way, steps={**bare.run.steps, **changed}))  # type: ignore[type-var, attr-defined]
    yield replace(bare, spec=replace(spec, qk_norm=None, eps=0))
    yield by("keys are not normalised", left_out, "k_normed")
    yield by("queries are not normalised", left_out, "q_normed")
    for words, how in (*norms.norms("l2", spec.eps, _AXES_OF_NORMS), *_OTHER_NORMS.items()):
        other = partial(how, eps=spec.eps)
        yield by(words, other, *both)
        yield by(f"in the norm of queries alone: {words}", other, "q_normed")
        yield by(f"in the norm of keys alone: {words}", other, "k_normed")
    if spec.feature != "identity":
        yield _normalise_before_features(spec, step)
    if spec.delta and not spec.erase:
        words = "keys are normalised where they are written, not where what they replace is read"
        yield _change_sums(spec, words, partial(_by_half_normed_keys, True))
        words = "keys are normalised where what they replace is read, not where they are written"
        yield _change_sums(spec, words, partial(_by_half_normed_keys, False))


def _normalise_before_features(spec: LinearAttention, step: Step) -> Mistake:
    length_one, phi = partial(norms.right("l2"), eps=spec.eps), FEATURES[spec.feature]
    early: Wrong = lambda at: phi(length_one(at.first))  # noqa: E731
    left_out: Wrong = lambda at: at.first * 1  # noqa: E731
    steps = {name: early for name in ("q_features", "k_features")}
    words = "queries and keys are normalised before the feature map, not after it"
    late = dict.fromkeys(("q_normed", "k_normed"), left_out)
    return in_stated_steps(spec, step.blames, words, steps | late)


def change_erasure_of(other: LinearAttention, name: str) -> OtherStep:
    """Return the change of what is erased or written to that of another specification."""

    def change(spec: LinearAttention, values: Values) -> Any:
        right = next(step for step in other.pipeline(values) if step.name == name)
        k_of_own = next(step.of[0] for step in spec.pipeline(values) if step.name == name)
        return right.run(values[k_of_own], *map(values.get, right.of[1:]))

    return change


def _change_sums(spec: LinearAttention, words: str, form: Callable[..., Produced]) -> Mistake:
    def wrong(at: At) -> Any:
        return form(at.spec, rows_of(at.spec, at.values), at.values)  # type: ignore[arg-type]

    return in_stated_steps(spec, "norm", words, {"sums": wrong})


#: The ε of public layers, for a norm that a specification lacks.
_USUAL_EPS = Fraction(1, 10**6)
#: Measures of vectors in the place of their length.
_OTHER_NORMS: dict[str, norms.Norm] = {
    "it divides by the root of the mean square, not by the length (as in RMSNorm)": norms.Norm(
        False, False
    ),
    "it divides by the sum of |x|, not by the length": norms.Norm(
        False,
        False,
        lambda mean, y, n: mean(namespace_of(y).abs(y)) * n,
        lambda xp, v, eps: v + eps,
    ),
}


def _by_half_normed_keys(
    where_written: bool, spec: LinearAttention, rows: FormRows, values: Values
) -> Produced:
    """Compute the delta rule with keys that are normalised at one of their two places alone."""
    bare, normed = repeat_for_values(spec, values["k_features"]), rows.k
    written, read = (normed, bare) if where_written else (bare, normed)

    def token(
        state: Array, q: Array, k: Array, v: Array, read: Array, beta: Array, g: Array | None = None
    ) -> tuple[Array, Array]:
        state = linear.decayed(state, g)
        state = state + beta * (k.mT @ (v - read @ state))
        return state, q @ state

    with_keys = rows._replace(k=written)
    return scan_linear_state(spec, token, with_keys, read, rows.beta, rows.g)
