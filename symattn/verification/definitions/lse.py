"""``Attention(lse=True)``: the output and the logarithms of the sums, L_i = log Σ_j e^{s_ij}."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import inputs, masks, softmax
from symattn.attention.flow import run_until
from symattn.attention.spec import Attention
from symattn.attention.streaming import states as streaming
from symattn.attention.streaming.by_tiles import TileRun
from symattn.attention.streaming.states import merge_partial, partial_output
from symattn.bounds import called_target, mistake, reference
from symattn.bounds.mistake import Compute, Mistake, MistakeFamily
from symattn.document.codec import called
from symattn.verification.definitions import attending
from symattn.verification.definitions.definition_subject import Definition
from symattn.verification.definitions.inner_attention import WrongAttention


def subjects(spec: Attention, layout: called_target.Layout = "nd") -> Iterator[Definition]:
    """Yield the definition of the output and L with L as (…, h, n_q), as FlashAttention returns it in every layout.

    Where tokens come before heads, another one has L as (…, n_q, h), as FlashInfer returns it.
    """
    yield subject(spec, layout)
    # Only where tokens come before heads do both orders occur.
    if "nh" in layout:
        yield subject(spec, layout, tokens_first=True)


def subject(
    spec: Attention, layout: called_target.Layout = "nd", tokens_first: bool = False
) -> Definition:
    """Return the definition of the output and L. L has the axes (…, h, n_q); with ``tokens_first`` (…, n_q, h)."""
    attending.check(spec, "lse", layout)

    def laid(run: Compute) -> Compute:
        in_order = attending.in_order(layout, ("q", "k", "v"), run)
        return partial(_with_tokens_first, in_order) if tokens_first else in_order

    def made(variant: reference.Variant) -> Compute:
        return laid(partial(_of_variant, spec, variant))

    def log_sums_alone() -> Iterator[Compute]:
        """Yield L by each way: at once without the output, which takes as long, and from both outputs of the others."""
        _, *others = ways(spec)
        at_once = attending.in_order(layout, ("q", "k", "v"), partial(_log_sums_at_once, spec))
        yield partial(_exchange_last_axes, at_once) if tokens_first else at_once
        for way in others:
            yield partial(_second_output, laid(way))

    return attending.of_attention(
        spec,
        layout,
        WrongAttention(spec, frozenset(("q", "k", "v", *inputs.needed(spec, "qkv"))), made),
        title=called(spec),
        step="lse",
        outputs=("output", "lse"),
        ways=tuple(map(laid, ways(spec))),
        forms=_FORMS,
        mistakes=tuple(
            Mistake("lse", cause, laid(partial(_output_with_wrong_lse, spec, wrong)))
            for cause, wrong in _yield_wrong_log_sums(spec)
        ),
        numbered=(
            *attending.by_number(spec, made, {*reference.SCORES, "weights"}),
            *_numbered_maxima(spec, laid),
        ),
        settings={**attending.settings(spec), "return_lse": True},
        loose=frozenset(["lse"]),
        output_run=attending.run_of(spec, layout, tuple(log_sums_alone())),
    )


def _with_tokens_first(run: Compute, **keywords: Any) -> Any:
    """Return the output, and L with its last two axes exchanged."""
    output, lse = run(**keywords)
    return output, lse.__array_namespace__().moveaxis(lse, -1, -2)


def _exchange_last_axes(run: Compute, **keywords: Any) -> Any:
    lse = run(**keywords)
    return lse.__array_namespace__().moveaxis(lse, -1, -2)


def ways(spec: Attention) -> tuple[Compute, ...]:
    """Return the ways: at once; key by key; by powers of two; two parts merged."""
    # Running sums and merges are for a natural softmax without dropout.
    if not spec.is_softmax or spec.base is not None or spec.dropout:
        return (spec,)
    streamed: tuple[Compute, ...] = (partial(_by_keys, replace(spec, lse=False)),)
    # The two other ways have no place for a sink.
    if spec.sink is not None:
        return spec, *streamed
    return spec, *streamed, partial(_in_base_two, spec), partial(_merge_key_halves, spec)


#: The ways in words, in their order.
_FORMS = (
    "of all keys at once",
    "of running sums",
    "of powers of two",
    "of two parts that are merged",
)


def _log_sums_at_once(spec: Attention, **keywords: Any) -> Any:
    return reference.trace(spec, keywords, wanted={"lse"})["lse"]


def _second_output(way: Compute, **keywords: Any) -> Any:
    return way(**keywords)[1]


def _by_keys(spec: Attention, **keywords: Any) -> Any:
    """Compute key by key, with a running maximum and sum, of which L is made too."""
    rows, keys = (int(keywords[n].shape[-2]) for n in "qk")
    arrays = inputs.by_name((), keywords)
    run = TileRun(spec, (0, rows), attending.tiles(keywords["q"], keys), arrays)
    (state,) = run.states
    return run.values["output"], streaming.lse(state)[..., 0]


def _in_base_two(spec: Attention, **keywords: Any) -> Any:
    """Compute with 2^{t − m}, t = s log₂ e, and L = (m + log₂ Σ) ln 2."""
    s, v = _scores_and_values(spec, keywords)
    xp = namespace_of(s)
    two = _natural_logarithm_of_two(s)
    open_ = xp.isfinite(s)
    # Forbidden scores become 0 and are forbidden again, since −∞ takes no part in products.
    t = masks.forbid(xp.where(open_, s, 0) / two, open_)
    # A row without an open key, or whose scores are 0/0, has no maximum.
    weights = softmax.softmax(t, fully_masked=spec.fully_masked, base=2)
    return weights @ v, (softmax.log_sum_exp(t, base=2) * two)[..., 0]


def _merge_key_halves(spec: Attention, **keywords: Any) -> Any:
    """Merge two parts of the keys, each normalised by itself."""
    s, v = _scores_and_values(spec, keywords)
    half = int(s.shape[-1]) // 2
    # One key cannot be cut in two parts.
    if not half:
        return spec(**keywords)
    first, second = (
        partial_output(s[..., part], v[..., part, :])
        for part in (slice(0, half), slice(half, None))
    )
    result = merge_partial(first, second)
    return result.output, result.lse[..., 0]


def _scores_and_values(spec: Attention, keywords: Mapping[str, Any]) -> tuple[Any, Any]:
    """Compute the scores that the weights are computed from, and the values that they are multiplied by."""
    arrays = inputs.by_name((), keywords)
    inputs.check_inputs(spec, arrays)
    steps = spec.pipeline(arrays)
    # Weights, and all that is computed from them, take most of a run, and this way computes its own.
    values = run_until(steps, arrays, "weights")
    (weights,) = (step for step in steps if step.name == "weights")
    return values[weights.of[0]], values[reference.values_name(steps)]


# -- mistakes ----------------------------------------------------------------------------------------------------------
# from the computed values, and from the scores
Wrong = Callable[[Attention, dict[str, Any], Any], Any]


def _of_variant(spec: Attention, variant: reference.Variant, **keywords: Any) -> Any:
    values = reference.variant_values(spec, keywords, variant)
    return values["output"], values["lse"]


def _yield_wrong_log_sums(spec: Attention) -> Iterator[tuple[str, Wrong]]:
    yield from _WRONG.items()
    # ln and log₂ differ by a factor, which is a mistake of another kind for each base.
    if spec.base is None:
        yield from _NATURAL.items()
    else:
        yield (
            "the logarithm is natural, not of the base 2",
            lambda spec, values, s: values["lse"] * _natural_logarithm_of_two(s),
        )
    if spec.masks_anything:
        words = "keys that are forbidden are counted"
        yield (
            words,
            lambda spec, values, s: _lse_of_scores(spec, mistake.before(spec, values, "masked")),
        )
    yield from _of_other_maxima(spec)
    if spec.sink is not None:
        yield "the sink is not counted", lambda spec, values, s: _lse_of_scores(spec, s)


Maximum = Callable[[Attention, dict[str, Any], Any], Any]  # (…, n_q), from the same


def _of_other_maxima(spec: Attention) -> Iterator[tuple[str, Wrong]]:
    """Yield L with m' in place of one of the two maxima m, so that they do not cancel.

    L = m' + log Σ e^{s − m} if m' is added back, and L = m + log Σ e^{s − m'} if m' is subtracted.
    """
    for words, maximum in _yield_wrong_maxima(spec):
        yield (
            f"the maximum that is added to the logarithm of the sum is {words}",
            lambda spec, values, s, maximum=maximum: (
                values["lse"] - _maximum_of_scores(s) + maximum(spec, values, s)
            ),  # type: ignore[misc]
        )
        yield (
            f"the maximum that is subtracted from the scores is {words}, the one that is added to the logarithm is not",
            lambda spec, values, s, maximum=maximum: (
                values["lse"] + _maximum_of_scores(s) - maximum(spec, values, s)
            ),  # type: ignore[misc]
        )


def _yield_wrong_maxima(spec: Attention) -> Iterator[tuple[str, Maximum]]:
    """Yield other maxima, in words: of the scores before a step, with another scale, or of one tile alone."""
    # The first array is the products themselves, before any step.
    later = (name for name in reference.SCORES[1:] if name in _BEFORE)
    for name in later:
        if _has_step(spec, name):
            yield f"that of the scores before {_BEFORE[name]}", partial(_before_step, name)
    if _has_step(spec, "scaled"):
        # With the default scale, 1/√d_k is right.
        if spec.scale is not None:
            yield "that of the products, scaled by 1/√d_k and not by the given scale", _by_root
        yield (
            "scaled twice",
            lambda spec, values, s: _scaled_again(spec, values, _maximum_of_scores(s)),
        )
    # A kernel by tiles that drops the running maximum is left with one of a single tile.
    for n in _TILES:
        yield f"that of the last tile of keys alone (tiles of {n})", partial(_of_tile, n, last=True)
        yield (
            f"that of the first tile of keys alone (tiles of {n})",
            partial(_of_tile, n, last=False),
        )


# Tile sizes of common kernels.
_TILES = (16, 32, 64, 128)
#: The steps that scores pass, in words for what comes before them.
_BEFORE = {
    "positioned": "the positions' biases are added",
    "scaled": "they are scaled",
    "tempered": "they have temperatures",
    "capped": "they are capped",
    "biased": "the bias is added",
    "masked": "they are masked",
}


def _has_step(spec: Attention, name: str) -> bool:
    names = frozenset(("q", "k", "v", *inputs.needed(spec, "qkv")))
    return any(step.name == name for step in spec.pipeline(names))


def _before_step(name: str, spec: Attention, values: dict[str, Any], s: Any) -> Any:
    """Return the maximum of the scores before a step; under the masks of ``s``, unless the step is the mask."""
    before = mistake.before(spec, values, name)
    # Masks of the final scores hold here too, unless the step is the mask itself.
    return _maximum_of_scores(
        before if name == "masked" else masks.forbid(before, namespace_of(s).isfinite(s))
    )


def _by_root(spec: Attention, values: dict[str, Any], s: Any) -> Any:
    return _maximum_of_scores(_mask_unscaled_scores(values, s)) / mistake.root(
        s, int(values["q"].shape[-1])
    )


def _scaled_again(spec: Attention, values: dict[str, Any], top: Any) -> Any:
    return mistake.own(spec, values, "scaled", top)


def _of_tile(n: int, spec: Attention, values: dict[str, Any], s: Any, *, last: bool) -> Any:
    """Return the maximum of one tile of n keys. Raises ``KeyError`` if there is one tile."""
    keys = int(s.shape[-1])
    if keys <= n:
        raise KeyError("there is one tile")
    start = (keys - 1) // n * n
    tile = slice(start, keys) if last else slice(0, n)
    return _maximum_of_scores(s[..., tile])


#: Natural logarithms and those of base 2 in one sum, or one instead of the other.
_NATURAL: dict[str, Wrong] = {
    "the logarithm has the base 2": lambda spec, values, s: (
        values["lse"] / _natural_logarithm_of_two(s)
    ),
    "the maximum is in units of log 2, the logarithm natural": lambda spec, values, s: (
        _maximum_of_scores(s) / _natural_logarithm_of_two(s) + values["lse"] - _maximum_of_scores(s)
    ),
    "the logarithm of the sum has the base 2, the maximum is natural": lambda spec, values, s: (
        _maximum_of_scores(s)
        + (values["lse"] - _maximum_of_scores(s)) / _natural_logarithm_of_two(s)
    ),
}
_WRONG: dict[str, Wrong] = {
    "the maximum is not added to the logarithm of the sum": lambda spec, values, s: (
        values["lse"] - _maximum_of_scores(s)
    ),
    "the maximum is subtracted from the logarithm of the sum, not added": lambda spec, values, s: (
        values["lse"] - 2 * _maximum_of_scores(s)
    ),
    "it is the maximum alone, without the logarithm of the sum": lambda spec, values, s: (
        _maximum_of_scores(s)
    ),
    "it is the sum, without its logarithm": lambda spec, values, s: _sum_shifted_exponentials(
        s, spec.base
    ),
    "the maximum is added to the sum, without its logarithm": lambda spec, values, s: (
        _maximum_of_scores(s) + _sum_shifted_exponentials(s, spec.base)
    ),
    "it is the logarithm of the mean, not of the sum": lambda spec, values, s: (
        values["lse"] - softmax.logarithms(mistake.number(s, int(s.shape[-1])), spec.base)
    ),
    "it is of the scores before they are scaled": lambda spec, values, s: _lse_of_scores(
        spec, _mask_unscaled_scores(values, s)
    ),
}


# Points from which a wrong factor is searched for, so 1 is not among them.
_FACTORS = (
    *(-x for x in (100.0, 10.0, 3.0, 1.5, 0.5, 0.1)),
    *(0.01, 0.03, 0.1, 0.25, 0.5, 0.8, 1.3, 2, 4, 10, 40, 100),
)


def _numbered_maxima(
    spec: Attention, laid: Callable[[Compute], Compute]
) -> Iterator[MistakeFamily]:
    """Yield families in which one of the two maxima has a factor x: L + (x − 1) m if it is the one that is added."""
    for sign, which in (
        (1, "is added to the logarithm of the sum"),
        (-1, "is subtracted from the scores"),
    ):
        # The default binds the sign of this turn of the loop.
        def wrong(x: float, sign: int = sign) -> Compute:
            return laid(
                # L = m + log Σ e^(s − m): x m in place of one m changes L by ±(x − 1) m.
                partial(_output_with_wrong_lse, spec, partial(_with_factor, sign * (x - 1)))
            )

        yield MistakeFamily(
            "lse", f"the maximum that {which} is {{}} times what it should be", wrong, _FACTORS
        )


def _with_factor(factor: float, spec: Attention, values: dict[str, Any], s: Any) -> Any:
    return values["lse"] + _maximum_of_scores(s) * mistake.number(s, factor)


def _output_with_wrong_lse(spec: Attention, wrong: Wrong, **keywords: Any) -> Any:
    values = spec.trace(**keywords)
    return values["output"], wrong(spec, values, mistake.before(spec, values, "weights"))


def _natural_logarithm_of_two(s: Any) -> Any:
    return namespace_of(s).log(mistake.number(s, 2))


def _maximum_of_scores(s: Array) -> Array:
    return namespace_of(s).max(s, axis=-1)


def _sum_shifted_exponentials(s: Any, base: int | None) -> Any:
    xp = namespace_of(s)
    return xp.sum(softmax.powers(s - xp.max(s, axis=-1, keepdims=True), base), axis=-1)


def _lse_of_scores(spec: Attention, s: Any) -> Any:
    return softmax.log_sum_exp(s, base=spec.base)[..., 0]


def _mask_unscaled_scores(values: dict[str, Any], s: Array) -> Array:
    """Return the scores before they are scaled, under the masks of ``s``."""
    return masks.forbid(values["scores"], namespace_of(s).isfinite(s))
