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
from symattn.attention.layers.steps import identity
from symattn.bounds.mistake import Mistake
from symattn.verification.definitions.definition_mistakes import reading
from symattn.verification.definitions.linear_ways import (
    FEATURES,
    Form,
    FormRows,
    Produced,
    apply_normalised_form,
    read_features,
    repeat_for_values,
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


def yield_norm_mistakes(spec: LinearAttention, form: Form) -> Iterator[Mistake]:
    """Yield wrong norms of queries and keys, in both or in one of them."""
    phi, eps = FEATURES[spec.feature], spec.eps or _USUAL_EPS
    bare = replace(spec, qk_norm=None, eps=0)
    plain = partial(apply_normalised_form, replace(bare, feature="identity"), form)
    good = norms.right("l2")

    length_one = partial(good, eps=eps)
    # p has no features, and the right norm if there is one.
    of_erased = {"p": length_one} if spec.erase == "vector" and spec.qk_norm else {}

    def by(words: str, q: Callable[[Any], Any], k: Callable[[Any], Any]) -> Mistake:
        changed = reading(plain, q=lambda x: q(phi(x)), k=lambda x: k(phi(x)), **of_erased)
        return Mistake("norm", words, changed)

    if spec.qk_norm is None:
        words = "queries and keys are divided by their lengths"
        yield by(words, length_one, length_one)
        yield by("queries are divided by their lengths", length_one, identity)
        yield by("keys are divided by their lengths", identity, length_one)
        return
    run = partial(apply_normalised_form, bare, form)
    yield Mistake("norm", "queries and keys are not normalised", run, spec=bare)
    yield by("keys are not normalised", length_one, identity)
    yield by("queries are not normalised", identity, length_one)
    wrong = [*norms.norms("l2", spec.eps, _AXES_OF_NORMS), *_OTHER_NORMS.items()]
    for words, how in wrong:
        both = partial(how, eps=spec.eps)
        yield by(words, both, both)
        for noun, pair in {"queries": (both, length_one), "keys": (length_one, both)}.items():
            yield by(f"in the norm of {noun} alone: {words}", *pair)
    if spec.feature != "identity":
        after: Any = lambda x: phi(length_one(x))  # noqa: E731
        words = "queries and keys are normalised before the feature map, not after it"
        yield Mistake("norm", words, reading(plain, q=after, k=after, **of_erased))
    if spec.delta and not spec.erase:
        words = "keys are normalised where they are written, not where what they replace is read"
        yield Mistake("norm", words, partial(_output_of_half_normed_keys, spec, True))
        words = "keys are normalised where what they replace is read, not where they are written"
        yield Mistake("norm", words, partial(_output_of_half_normed_keys, spec, False))


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


def _output_of_half_normed_keys(
    spec: LinearAttention, where_written: bool, k: Array, **inputs: Any
) -> Any:
    """Compute the delta rule with keys that are normalised at one of their two places alone."""
    bare = repeat_for_values(spec, FEATURES[spec.feature](k))
    normed = read_features(spec, k)
    written, read = (normed, bare) if where_written else (bare, normed)

    def token(
        state: Array, q: Array, k: Array, v: Array, read: Array, beta: Array, g: Array | None = None
    ) -> tuple[Array, Array]:
        state = linear.decayed(state, g)
        state = state + beta * (k.mT @ (v - read @ state))
        return state, q @ state

    def form(spec: LinearAttention, rows: FormRows) -> Produced:
        with_keys = rows._replace(k=written)
        return scan_linear_state(spec, token, with_keys, read, rows.beta, rows.g)

    return apply_normalised_form(spec, form, k=k, **inputs)
