"""Norms whose every choice can be changed: what is subtracted, what is measured over which axes, root, ε, gain, bias.

The same rules apply to queries and keys, to values, and to ``LayerNorm`` and ``RMSNorm`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any, Literal

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import projections
from symattn.attention.flow import Step
from symattn.attention.spec import Attention
from symattn.bounds.changed_steps import in_stated_steps
from symattn.bounds.mistake import (
    At,
    Mistake,
    Wrong,
    in_fields,
    in_inputs,
    in_place_of,
    in_steps,
)
from symattn.document.errors import Undecided

Kind = Literal["layer", "rms", "l2"]
Affine = Callable[[Any, Any, Any], Any]


def affine(y: Any, gain: Any, bias: Any) -> Any:
    """Return g ⊙ y + b, with gain and bias if there are any."""
    y = y if gain is None else y * gain
    return y if bias is None else y + bias


@dataclass(frozen=True)
class Norm:
    """(x − mean(x)) / divisor(measure(x − mean(x)), ε), then gain and bias.

    ``centred`` says whether the mean is subtracted from x, ``within`` whether it is subtracted in what is measured.
    ``measure`` takes a function for the mean over ``axes``, the numbers, and their count; ``early`` gives gain
    and bias that come first, and ``of_eps`` computes a wrong ε from ε and the count.
    """

    centred: bool
    within: bool
    measure: Callable[[Any, Any, int], Any] = lambda mean, y, n: mean(y * y)
    divisor: Callable[[Any, Any, Any], Any] = lambda xp, v, eps: xp.sqrt(v + eps)
    axes: tuple[int, ...] = (-1,)
    affine: Affine = affine
    early: Affine | None = None
    eps: float | Fraction | None = None
    of_eps: Callable[[Any, Any], Any] | None = None

    def __call__(self, x: Array, eps: Any, gain: Any = None, bias: Any = None) -> Any:
        """Return the norm of x. Raises ``KeyError`` if there is no such axis, ``Undecided`` for 0/0."""
        if self.early is not None:
            x = self.early(x, gain, bias)
        # A norm over more axes than there are takes all of them.
        axes = tuple(range(len(x.shape))) if len(self.axes) > len(x.shape) else self.axes
        if len(x.shape) < max(-a for a in axes):
            raise KeyError("there is no such axis")
        xp = namespace_of(x)
        mean = partial(xp.mean, axis=axes if len(axes) > 1 else axes[0], keepdims=True)
        # Variance is of centred entries; a mean of squares is of the entries themselves.
        c = x - mean(x) if self.centred or self.within else x
        n = prod(int(x.shape[a]) for a in axes)
        v = self.measure(mean, c if self.within else x, n)
        # ε may be inside or outside of the root, which the divisor decides.
        eps = xp.asarray(eps if self.eps is None else self.eps, dtype=x.dtype)
        root = self.divisor(xp, v, eps if self.of_eps is None else self.of_eps(eps, n))
        return self.affine((c if self.centred else x) / root, gain, bias)


def _mean_square_with_bessel(mean: Any, y: Any, n: int) -> Any:
    """Return the mean square with the divisor n − 1."""
    if n < 2:
        raise Undecided("the variance of one number, with the divisor n − 1, is 0/0")
    return mean(y * y) * n / (n - 1)


def right(kind: Kind) -> Norm:
    """Return the right norm."""
    norm = Norm(kind == "layer", kind == "layer")
    return replace(norm, measure=lambda mean, y, n: mean(y * y) * n) if kind == "l2" else norm


#: What a norm divides by but for ε, and its square.
_MEASURES: dict[Kind, tuple[str, str]] = {
    "layer": ("standard deviation", "variance"),
    "rms": ("root of the mean square", "mean square"),
    "l2": ("length", "squared length"),
}


def norms(kind: Kind, eps: Any, axes: dict[tuple[int, ...], str]) -> Iterator[tuple[str, Norm]]:
    """Yield wrong norms with words for each; ``axes`` are wrong axes over which a norm may run."""
    good = right(kind)
    layer = kind == "layer"
    what, square = _MEASURES[kind]
    freed = "the variance has" if layer else "the mean of the squares has"

    def by(words: str, divisor: Callable[[Any, Any, Any], Any], **more: Any) -> tuple[str, Norm]:
        return words, replace(good, divisor=divisor, **more)

    if eps:
        for words, rule in _EPS.items():
            yield by(
                f"{words.format('within')} the root", lambda xp, v, e: xp.sqrt(v + e), of_eps=rule
            )
            words = f"{words.format('and added outside')} the root, to the {what}"
            yield by(words, lambda xp, v, e: xp.sqrt(v) + e, of_eps=rule)
        yield by(f"ε is added to the {what}, outside the root", lambda xp, v, e: xp.sqrt(v) + e)
        yield by("ε is left out", lambda xp, v, e: xp.sqrt(v))
        words = f"the {what} is raised to ε where it is below: max(…, ε), not a sum"
        yield by(words, lambda xp, v, e: xp.maximum(xp.sqrt(v), e))
        words = f"the {square} is raised to ε where it is below: max(…, ε), not a sum"
        yield by(words, lambda xp, v, e: xp.sqrt(xp.maximum(v, e)))
    for k in (0, 2, 3, 5, 6, 8, 12) if kind != "l2" else ():
        if float(eps) != float(other := Fraction(1, 10**k)):
            yield f"ε is {float(other):g}, expected {float(eps):g}", replace(good, eps=other)
    yield by(f"it divides by ({square} + ε)²", lambda xp, v, e: (v + e) * (v + e))
    yield by(f"it divides by the {square}, without the root", lambda xp, v, e: v + e)
    yield by("it is multiplied by the root, not divided", lambda xp, v, e: 1 / xp.sqrt(v + e))
    if kind != "l2":
        words = "uses the sum of the squares instead of their mean"
        yield words, replace(good, measure=lambda mean, y, n: mean(y * y) * n)
        words = f"it divides by the length √Σx², without ε (as in an L2 norm), not by the {what}"
        # at least a tiny number, so that zeros stay zeros
        length = lambda xp, v, e: xp.maximum(  # noqa: E731
            xp.sqrt(v), xp.asarray(Fraction(1, 10**12), dtype=v.dtype)
        )
        yield by(words, length, measure=lambda mean, y, n: mean(y * y) * n)
        yield f"{freed} the divisor d − 1", replace(good, measure=_mean_square_with_bessel)
        if eps:
            words = f"{freed} the divisor d − 1, and ε is added outside the root"
            yield by(words, lambda xp, v, e: xp.sqrt(v) + e, measure=_mean_square_with_bessel)
        for words, measure in _SPREADS.items():
            instead = (
                f"uses {words.format('|x − mean(x)|' if layer else '|x|')} instead of the {what}"
            )
            yield by(instead, lambda xp, v, e: v + e, measure=measure)
        yield from _yield_wrong_affine_norms(good)
    for along, words in axes.items():
        measured = "the length is" if kind == "l2" else "mean and variance are"
        yield f"{measured} taken over {words}", replace(good, axes=along)
    for words, (centred, within) in _CENTRES[layer].items():
        yield words, replace(good, centred=centred, within=within)


def _row_maximum_for_norm(y: Array) -> Any:
    return namespace_of(y).max(y, axis=-1, keepdims=True)


#: Other measures of the spread of numbers.
_SPREADS: dict[str, Callable[[Any, Any, int], Any]] = {
    "the mean of {}": lambda mean, y, n: mean(namespace_of(y).abs(y)),
    "the largest {}": lambda mean, y, n: _row_maximum_for_norm(namespace_of(y).abs(y)),
    "the largest x less the smallest": lambda mean, y, n: (
        _row_maximum_for_norm(y) + _row_maximum_for_norm(-y)
    ),
}

#: Wrong numbers instead of ε, from ε and the width.
_EPS: dict[str, Callable[[Any, Any], Any]] = {
    "ε is squared {}": lambda e, d: e * e,
    "ε is multiplied by the width {}": lambda e, d: e * d,
    "ε is divided by the width {}": lambda e, d: e / d,
}

#: For LayerNorm (True) or others: whether the mean is subtracted from x, and in what is measured.
_CENTRES: dict[bool, dict[str, tuple[bool, bool]]] = {
    True: {
        "the mean is not subtracted (as in RMSNorm)": (False, False),
        "the mean is not subtracted from x, only within the variance": (False, True),
        "uses the mean square instead of the variance": (True, False),
    },
    False: {
        "the mean is subtracted (as in LayerNorm)": (True, True),
        "the mean is subtracted within the square alone": (False, True),
        "the mean is subtracted from x, not within the square": (True, False),
    },
}


def _yield_wrong_affine_norms(good: Norm) -> Iterator[tuple[str, Norm]]:
    ways: dict[str, Affine] = {
        "the gain is left out": lambda y, g, b: affine(y, None, b),
        "the bias is left out": lambda y, g, b: affine(y, g, None),
        "the gain is squared: it is applied twice": lambda y, g, b: affine(
            affine(y, g, None), g, b
        ),
        "the gain multiplies the bias too": lambda y, g, b: affine(affine(y, None, b), g, None),
        "gain and bias are exchanged": lambda y, g, b: affine(y, b, g),
    }
    for words, way in ways.items():
        yield words, replace(good, affine=way)
    gain: Affine = lambda y, g, b: affine(y, g, None)  # noqa: E731
    bias: Affine = lambda y, g, b: affine(y, None, b)  # noqa: E731
    yield "the gain multiplies x before it is normalised", replace(good, affine=bias, early=gain)
    yield "the bias is added to x before it is normalised", replace(good, affine=gain, early=bias)
    words = "gain and bias are applied to x before it is normalised"
    yield words, replace(good, affine=lambda y, g, b: y, early=affine)


# -- a norm that a definition states ----------------------------------------------------------------------------------
#: Axes over which no norm of rows runs.
_OTHER_AXES: dict[tuple[int, ...], str] = {
    (-2,): "the tokens",
    (-1, -2): "tokens and columns together",
    (-1, -2, -3): "the whole batch",
    (0,): "the first axis",
}


def mistakes_of_step(spec: Any, step: Step, kind: Kind) -> Iterator[Mistake]:
    """Yield the mistakes of a step that takes x and, if it has them, gain and bias, for the ε of its definition.

    The gain is an input, or the 1 + g of an earlier step.
    """

    def mistake(words: str, how: Norm, exact: bool = True) -> Mistake:
        wrong: Wrong = lambda at: how(at.first, at.spec.eps, *at.taken[1:])  # noqa: E731
        return in_stated_steps(spec, step.blames, words, {step.name: wrong}, exact)

    for words, how in norms(kind, spec.eps, _OTHER_AXES):
        yield mistake(words, how)
    good = right(kind)
    if spec.computed.isdisjoint(step.of[1:2]):
        more: Affine = lambda y, g, b: affine(y, None if g is None else 1 + g, b)  # noqa: E731
        yield mistake("1 is added to the gain", replace(good, affine=more))
    if kind == "layer":
        cancelling = replace(
            good, within=False, measure=lambda mean, y, n: mean(y * y) - mean(y) * mean(y)
        )
        words = (
            "the variance is computed as mean(x²) − mean(x)², which cancels where the mean is large"
        )
        yield mistake(words, cancelling, exact=False)


def mistakes_of_offset(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield the mistakes of a step that adds 1 to a stored gain."""
    words = "the gain, stored as an offset from one, is used without the 1"
    unchanged: Wrong = lambda at: at.first * 1  # noqa: E731
    yield in_stated_steps(spec, step.blames, words, {step.name: unchanged})


# -- queries, keys and values ------------------------------------------------------------------------------------------
def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield mistakes in the norms of queries and keys, in both or in one of them, and in that of values."""
    if spec.qk_norm is not None:
        yield from _yield_query_and_key_mistakes(spec, names)
    if spec.value_norm is not None:
        yield from _yield_value_mistakes(spec, names)


def _axes_of_other_norms(heads: bool) -> dict[tuple[int, ...], str]:
    """Return axes over which no right norm runs, with an axis of ``heads`` or without."""
    axes: dict[tuple[int, ...], str] = {
        (-2,): "the tokens",
        (-1, -2): "tokens and columns together",
    }
    return axes | ({(-3,): "the heads", (-1, -3): "all heads together"} if heads else {})


def _yield_value_mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    kind: Kind = spec.value_norm or "rms"
    yield in_fields(
        "norm", "values are not normalised", value_norm=None, **_eps_without_values(spec)
    )
    late: Wrong = lambda at: _normed(right(kind), at, at.right(), "v")  # noqa: E731
    words = "weighted sums of the values are normalised, not the values"
    yield in_steps(
        "norm", words, v_normed=lambda at: at.first * 1, **{_heads_output(spec, names): late}
    )
    for words, how in norms(kind, spec.eps, _axes_of_other_norms(spec.heads > 1)):
        yield _make_role_norm_mistake("v", f"in the norm of the values: {words}", how)
    if "g_v" in names:
        words = "in the norm of the values: gains of the norm are read from the last column to the first"
        yield in_inputs("norm", words, g_v=np.flip)


def _eps_without_values(spec: Attention) -> dict[str, Any]:
    """Return ε as a specification without a norm of values may have it."""
    return {} if spec.qk_norm in ("rms", "layer") else {"eps": 0}


def _heads_output(spec: Attention, names: frozenset[str]) -> str:
    """Return the name of the step in which the weights multiply the values."""
    steps = [step.name for step in spec.pipeline(names)]
    return "attended" if "attended" in steps else "output"


def _yield_query_and_key_mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    assert spec.qk_norm is not None
    kind: Kind = spec.qk_norm
    own = spec.normed_roles
    nouns = {"qk": "queries and keys", "k": "keys", "q": "queries"}
    for roles in ("qk", "k", "q") if own == "qk" else own:
        steps: dict[str, Any] = {f"{r}_normed": lambda at: at.first * 1 for r in roles}
        yield in_steps("norm", f"{nouns[roles]} are not normalised", **steps)
    if own == "k":
        yield from _yield_mistakes_of_other_roles(spec, right(kind))
    across = spec.qk_norm_over == "heads"
    for words, how in norms(kind, spec.eps, _axes_of_other_norms(spec.heads > 1 and not across)):
        yield _make_role_norm_mistake(own, words, how)
    good = right(kind)
    if across:
        yield from _yield_mistakes_across_heads(spec, names, good)
    # Without ε the root alone divides, which shows for tiny entries.
    for role in own if spec.eps and own == "qk" else "":
        without_eps = replace(good, divisor=lambda xp, v, e: xp.sqrt(v))
        words = f"ε is left out of the norm of the {nouns[role]}"
        yield _make_role_norm_mistake(role, words, without_eps)
    # An l2 norm has neither gain nor bias.
    if kind == "l2":
        return
    for role in own if own == "qk" else "":
        without = {
            "gain": lambda y, g, b: affine(y, None, b),
            "bias": lambda y, g, b: affine(y, g, None),
        }
        for part, way in without.items():
            # softmax ignores a bias of keys: it shifts all scores of a query alike.
            if (f"g_{role}" if part == "gain" else f"beta_{role}") in names and (role, part) != (
                "k",
                "bias",
            ):
                yield _make_role_norm_mistake(
                    role, f"the {part} of the {nouns[role]} is left out", replace(good, affine=way)
                )
    if f"g_{own[0]}" in names:
        yield _make_role_norm_mistake(
            own,
            "1 is added to the gain",
            replace(good, affine=lambda y, g, b: affine(y, 1 + g, b)),
        )
        # Some models store g − 1, so that a gain of 0 is the identity.
        words = "the gain, stored as an offset from one, is used without the 1"
        yield _make_role_norm_mistake(
            own, words, replace(good, affine=lambda y, g, b: affine(y, g - 1, b))
        )
        # Gains for all heads have other lengths where keys have fewer heads.
        if own == "qk" and (not across or spec.group == 1):
            exchanged = {"g_q": "g_k", "g_k": "g_q", "beta_q": "beta_k", "beta_k": "beta_q"}
            yield in_place_of("norm", "the gains of queries and keys are exchanged", **exchanged)
        words = "gains of the norm are read from the last column to the first"
        yield in_inputs("norm", words, **{f"g_{role}": np.flip for role in own})


def _yield_mistakes_of_other_roles(spec: Attention, good: Norm) -> Iterator[Mistake]:
    """Yield mistakes in which queries or values are normalised, where keys alone should be."""
    yield in_fields("norm", "queries are normalised too, not keys alone", qk_norm_of="both")

    def scores_of_normed_queries(at: At) -> Any:
        return at.right(good(at.first, spec.eps))

    left: Wrong = lambda at: at.first * 1  # noqa: E731
    words = "queries are normalised, not keys"
    yield in_steps("norm", words, k_normed=left, scores=scores_of_normed_queries)
    if spec.qk_norm == "rms" and spec.value_norm is None:
        yield in_fields("norm", "values are normalised too, not keys alone", value_norm="rms")


def _yield_mistakes_across_heads(
    spec: Attention, names: frozenset[str], good: Norm
) -> Iterator[Mistake]:
    """Yield mistakes in a norm over the columns of all heads: over fewer of them, or with gains of other columns."""

    def mistake(words: str, how: Callable[[At], Any]) -> Mistake:
        return in_steps("norm", words, **{f"{role}_normed": how for role in spec.normed_roles})

    words = "each head is normalised by itself, not all heads together"
    yield mistake(words, lambda at: _normed_in_groups(good, at, 1))
    # A half of two heads is one head, which the mistake above has.
    if spec.heads > 2 and spec.key_heads % 2 == 0:
        words = "the norm runs over half of the heads at a time (as on two devices), not over all"
        yield mistake(words, lambda at: _normed_in_groups(good, at, _heads_of(at) // 2))

    def with_one_width(at: At) -> Any:
        """Return the norm with the divisor d_k in place of h d_k."""
        heads = _heads_of(at)
        return _normed(replace(good, measure=lambda mean, y, n: mean(y * y) * heads), at)

    yield mistake("the squares of all heads are divided by the width of one head", with_one_width)
    if f"g_{spec.normed_roles[0]}" not in names:
        return
    words = "each head is normalised by itself, with the gains of the first head"
    yield mistake(words, lambda at: _normed_in_groups(good, at, 1, _gains_of_first_head))
    words = "the gains of the first head serve all heads"
    yield mistake(
        words, lambda at: _normed_in_groups(good, at, _heads_of(at), _gains_of_first_head)
    )
    words = "gains are read column by column, as of d_k × h numbers, not head by head"
    yield mistake(words, lambda at: _normed_in_groups(good, at, _heads_of(at), _gains_by_columns))


def _heads_of(at: At) -> int:
    """Return how many heads the queries or keys of a step have."""
    return int(at.first.shape[-3])


def _gains_of_first_head(gains: Array, heads: int) -> Any:
    """Return the gains of the first head for each head. Shape: (h·d,) → (h·d,)."""
    xp = namespace_of(gains)
    width = gains.shape[0] // heads
    return xp.reshape(xp.broadcast_to(gains[None, :width], (heads, width)), (heads * width,))


def _gains_by_columns(gains: Array, heads: int) -> Any:
    """Return gains (h·d,), read as d × h numbers, in the order of heads."""
    xp = namespace_of(gains)
    table = xp.reshape(gains, (gains.shape[0] // heads, heads))
    return xp.reshape(xp.permute_dims(table, (1, 0)), gains.shape)


def _normed_in_groups(
    how: Norm,
    at: At,
    together: int,
    gains: Callable[[Array, int], Any] = lambda gains, heads: gains,
) -> Any:
    """Return queries or keys with the columns of so many heads normalised together, and other ``gains``."""
    x, role = at.first, at.name[0]
    xp = namespace_of(x)
    *batch, heads, n, width = x.shape
    merged = projections.merge_heads(x)
    parts = xp.reshape(merged, (*batch, n, heads // together, together * width))
    normed = xp.reshape(replace(how, affine=lambda y, g, b: y)(parts, at.spec.eps), merged.shape)
    inputs = (at.values.get(f"g_{role}"), at.values.get(f"beta_{role}"))
    gain, bias = (None if a is None else gains(a, heads) for a in inputs)
    return projections.split_heads(affine(normed, gain, bias), heads)


def _make_role_norm_mistake(roles: str, words: str, how: Norm) -> Mistake:
    return in_steps("norm", words, **{f"{r}_normed": partial(_normed, how) for r in roles})


def _normed(how: Norm, at: At, x: Any = None, role: str = "") -> Any:
    """Return the vectors x of a role, by default those that the step takes, by another norm."""
    role = role or at.name[0]
    x = at.first if x is None else x
    parameters = at.spec.eps, at.values.get(f"g_{role}"), at.values.get(f"beta_{role}")
    if role != "v" and at.spec.qk_norm_over == "heads":
        merged = projections.merge_heads(x)
        return projections.split_heads(how(merged, *parameters), x.shape[-3])
    return how(x, *parameters)


def by_eps(eps: float, at: At) -> Any:
    """Return queries, keys or values by their norm with another ε."""
    kind: Any = at.spec.value_norm if at.name == "v_normed" else at.spec.qk_norm
    return _normed(replace(right(kind), eps=eps), at)
