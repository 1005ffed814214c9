"""Mistakes in the steps of a backward pass, by the role of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from symattn.arrays.namespace import namespace_of
from symattn.attention.flow import Step, find_value_step
from symattn.attention.gradients.backward_pass import name_gradient_of_weighted_values
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.streaming.states import reference
from symattn.bounds.changed_steps import in_stated_steps
from symattn.bounds.mistake import At, Mistake, Wrong, before, number, root
from symattn.bounds.reference import Change
from symattn.verification.rules.known_mistakes import yield_known_mistakes
from symattn.verification.rules.steps import left_out

#: Numbers of queries or keys in a tile that are tried.
_TILES = (2, 3, 4, 5, 8, 16, 32, 64, 128)


#: Steps of which code that computes them wrongly does not mask dS either, as right weights do that.
_BEFORE_MASK = frozenset({"p", "row_sums", "ds"})


def _mistake(spec: Any, words: str, steps: Mapping[str, Wrong]) -> Mistake:
    mask = _named_by_role(spec, "mask gradient")
    if mask is not None and steps.keys() & _BEFORE_MASK:
        steps = {**steps, mask.name: left_out}
    return in_stated_steps(spec, "backward", words, steps)


def _named_by_role(spec: Any, role: str) -> Step | None:
    return next((step for step in spec.pipeline_of_all if step.role == role), None)


def sum_gradient_rows(x: Any, axis: int = -1) -> Any:
    """Return the sums over an axis, which stays with length 1."""
    return namespace_of(x).sum(x, axis=axis, keepdims=True)


def multiply_by_output(at: At) -> Any:
    """Return D = rowsum(dO ⊙ O), from the weighted values that a forward pass saved, and their gradient."""
    spec: Any = at.spec
    forward = spec.forward_steps(at.values)
    weighed = at.values[find_value_step(forward).name]
    return sum_gradient_rows(at.values[name_gradient_of_weighted_values(forward)] * weighed)


def _apply_twice(at: At) -> Any:
    return at.right(at.right())


def _make_zero(at: At) -> Any:
    return at.right() * 0


# -- P, as it is stored or computed again ------------------------------------------------------------------------------
def mistakes_of_weights(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield wrong weights in the whole backward pass, in dV alone, and in dS alone; also beside the saved output."""
    valued = _named_by_role(spec, "value gradient")
    dropped = _named_by_role(spec, "dropped weights")
    derivative = _named_by_role(spec, "score gradient")
    assert valued is not None
    assert derivative is not None

    def multiply_values(wrong: Wrong) -> Wrong:
        if dropped is None:
            return lambda at: at.right(wrong(at))
        return lambda at: at.right(at.of(dropped.name, wrong(at)))

    # Code that takes D from the saved output has it right, however wrong its weights are.
    beside = {"row_sums": multiply_by_output}
    for words, wrong in _yield_wrong_weights(spec.attention):
        right_values = {valued.name: multiply_values(_take_right_weights)}
        yield _mistake(spec, words, {step.name: wrong})
        yield _mistake(spec, f"{words}, in dV alone", {valued.name: multiply_values(wrong)})
        # A derivative that reads the scores is right beside wrong weights.
        if step.name not in derivative.of:
            continue
        words_of_scores = f"{words}, in dQ and dK alone"
        # dV = Pᵀ dO uses the weights alone, so that it may be right beside wrong dQ and dK.
        yield _mistake(spec, words_of_scores, {step.name: wrong, **right_values})
        if _named_by_role(spec, "row sums") is None:
            continue
        saved = f"{words}, beside the saved output"
        yield _mistake(spec, saved, {step.name: wrong, **beside})
        words_of_scores = f"{saved}, in dQ and dK alone"
        yield _mistake(spec, words_of_scores, {step.name: wrong, **beside, **right_values})


def further_mistakes_of_weights(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield weights that are computed again from the right sums, and from scores of a mask that is wrong."""
    attention = spec.attention
    if not attention.is_softmax or not attention.masks_anything:
        return
    for mistake in yield_known_mistakes(attention, frozenset(spec.names_of_all)):
        masked = mistake.variant.steps.get("masked")
        # Such a mistake may say what the weights of a row without keys are, which come from the sums here.
        if masked is None or mistake.variant.steps.keys() - {"masked", "weights"}:
            continue
        words = f"weights are computed again from the sums: {mistake.cause}"
        wrong: Wrong = partial(_weigh_masked, masked)
        yield _mistake(spec, words, {"row_sums": multiply_by_output, step.name: wrong})


def _weigh_masked(masked: Change, at: At) -> Any:
    return compute_weights_by_sums(at, compute_scores_again(at, {"masked": masked}))


def _take_right_weights(at: At) -> Any:
    return at.values["weights"]


def _yield_wrong_weights(attention: Any) -> Iterator[tuple[str, Wrong]]:
    names = {step.name for step in attention.pipeline("qkv")}
    if "scaled" in names and attention.scale != 1:
        words = "weights are computed again from scores that are not scaled"
        yield words, partial(_weigh_without, "scaled")
        if attention.is_softmax:
            words = "weights are computed again from the sums by scores that are not scaled"
            yield words, partial(_weigh_by_sums_without, "scaled")
    if attention.is_softmax:
        yield "the exponentials in P are not divided by their sum", lambda at: _weights_of(at).e
        words = "the exponentials e^s in P, no maximum subtracted, are not divided by their sum"
        yield words, lambda at: _weights_of(at).power(_weights_of(at).first)
    for words, bases in _BASES.items() if attention.is_softmax and attention.base is None else ():
        yield f"weights are computed again from the sums {words}", partial(_weigh_in_bases, bases)
    if attention.masks_anything:
        yield "the mask is left out of the backward pass", partial(_weigh_without, "masked")
        if attention.is_softmax:
            words = "the mask is left out of the weights that are computed again from the sums"
            yield words, partial(_weigh_by_sums_without, "masked")
    if attention.sink:
        words = "the sink is left out of the weights of the backward pass"
        # The weights of the keys, divided by their own sum, are those without a sink.
        yield words, lambda at: at.first / sum_gradient_rows(at.first)


class _Bases(NamedTuple):
    """Exponents of 2 instead of e: the scores, and the natural logarithms of the sums."""

    scores: bool
    sums: bool


_BASES = {
    "as if these were logarithms of base 2": _Bases(False, True),
    "by powers of 2 of natural scores": _Bases(True, False),
    "by powers of 2, of natural scores and sums": _Bases(True, True),
}


def _weights_of(at: At) -> At:
    """Return the step of the attention that gives the weights, in this run."""
    return At(at.spec.attention, at.values, "weights")  # type: ignore[attr-defined]


def compute_scores_again(at: At, changes: Mapping[str, Change]) -> Any:
    """Return the scores that the weights are of, if some steps of the attention are computed otherwise."""
    spec: Any = at.spec
    values, others = dict(at.values), set[str]()
    for step in spec.forward_steps(values):
        if step.name == "weights":
            return values[step.of[0]]
        change = changes.get(step.name)
        if change is not None:
            values[step.name] = change(spec.attention, values)
        # What depends on no change is that of this run.
        elif others & {*step.of}:
            values[step.name] = step.run(*map(values.get, step.of))
        else:
            continue
        others.add(step.name)
    raise AssertionError("an attention has weights")


def compute_weights_by_sums(at: At, scores: Any) -> Any:
    """Return e^{s − L} of other scores s, with L of the right ones."""
    weights = _weights_of(at)
    # The largest right score is subtracted on both sides, so that no sum overflows.
    return weights.power(scores - reference(weights.m)) / weights.total


def _scores_without(step: str, at: At) -> Any:
    return compute_scores_again(at, {step: lambda spec, values: before(spec, values, step)})


def _weigh_without(step: str, at: At) -> Any:
    return _weights_of(at).weights(_scores_without(step, at))


def _weigh_by_sums_without(step: str, at: At) -> Any:
    return compute_weights_by_sums(at, _scores_without(step, at))


def _weigh_in_bases(bases: _Bases, at: At) -> Any:
    weights = _weights_of(at)
    xp, two = weights.xp, weights.xp.log(number(weights.first, 2))
    scores, lse = weights.first, weights.m + weights.xp.log(weights.total)
    return xp.exp((scores * two if bases.scores else scores) - (lse * two if bases.sums else lse))


# -- dropout -----------------------------------------------------------------------------------------------------------
def mistakes_of_dropped(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield dropout, or its factor 1/(1 − r), left out of dV, of dP, and of both."""
    (valued, dropped) = (_named_by_role(spec, x) for x in ("value gradient", "dropped weights"))
    assert valued is not None
    assert dropped is not None
    kept = 1 - Fraction(str(spec.attention.dropout))
    wrongs: Mapping[str, Callable[[At, str], Any]] = {
        "dropout is left out of": lambda at, name: before(at.spec, at.values, name) * 1,
        "the factor 1/(1 − r) is left out of": lambda at, name: (
            at.of(name) * number(at.first, kept)
        ),
    }
    for words, wrong in wrongs.items():
        of_values: Wrong = lambda at, wrong=wrong: at.right(wrong(at, dropped.name))  # type: ignore[misc] # noqa: E731
        of_weights: Wrong = lambda at, wrong=wrong: wrong(at, step.name)  # type: ignore[misc] # noqa: E731
        both = {valued.name: of_values, step.name: of_weights}
        yield _mistake(spec, f"{words} the backward pass", both)
        yield _mistake(spec, f"{words} dV", {valued.name: of_values})
        yield _mistake(spec, f"{words} dP", {step.name: of_weights})
        if words.startswith("dropout"):
            beside = both | {"row_sums": multiply_by_output}
            yield _mistake(spec, f"{words} the backward pass, except in rowsum(dO ⊙ O)", beside)


# -- D and dS ----------------------------------------------------------------------------------------------------------
_IN_PLACE = "is subtracted in place of rowsum(P ⊙ dP)"
#: Other row sums, from P and dP.
_ROW_SUMS: Mapping[str, Callable[[Any, Any], Any]] = {
    "the sums over the rows, rowsum(P ⊙ dP), are not subtracted": lambda p, dp: (
        0 * sum_gradient_rows(p * dp)
    ),
    f"rowsum(dP) {_IN_PLACE}": lambda p, dp: sum_gradient_rows(dp),
    f"rowsum(P), which is 1, {_IN_PLACE}": lambda p, dp: sum_gradient_rows(p),
    f"the mean of dP {_IN_PLACE}": lambda p, dp: average_rows(dp),
    f"the mean of P ⊙ dP {_IN_PLACE}": lambda p, dp: average_rows(p * dp),
    "sums over the columns of P ⊙ dP are subtracted, not over the rows": lambda p, dp: (
        sum_gradient_rows(p * dp, -2)
    ),
    "rowsum(P ⊙ dP) is added, not subtracted": lambda p, dp: -sum_gradient_rows(p * dp),
}
#: Other row sums, from dO and the output.
_OUTPUT_SUMS: Mapping[str, Callable[[Any, Any], Any]] = {
    f"the mean of dO ⊙ O {_IN_PLACE}": lambda do, output: average_rows(do * output),
    f"rowsum(dO) {_IN_PLACE}": lambda do, output: sum_gradient_rows(do),
    f"rowsum(O ⊙ O) {_IN_PLACE}": lambda do, output: sum_gradient_rows(output * output),
}


def average_rows(x: Any) -> Any:
    """Return the means over the last axis, which stays with length 1."""
    return namespace_of(x).mean(x, axis=-1, keepdims=True)


def mistakes_of_row_sums(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield other sums D: left out, of other products, over other axes, or of one tile of keys alone."""
    for words, wrong in _ROW_SUMS.items():
        run: Wrong = lambda at, wrong=wrong: wrong(*at.taken)  # type: ignore[misc] # noqa: E731
        yield _mistake(spec, words, {step.name: run})
    if spec.attention.sink:
        words = "the sink is left out of rowsum(P ⊙ dP), as if the weights of the keys summed to 1"
        yield _mistake(
            spec, words, {step.name: lambda at: at.right() / sum_gradient_rows(at.first)}
        )
    for words, wrong in _OUTPUT_SUMS.items():
        run = lambda at, wrong=wrong: wrong(at.values["do"], at.values["output"])  # type: ignore[misc] # noqa: E731
        yield _mistake(spec, words, {step.name: run})
    if spec.attention.masks_anything:
        words = "rowsum(P ⊙ dP) is that of weights without the mask"
        yield _mistake(spec, words, {step.name: lambda at: at.right(_weigh_without("masked", at))})
    for width in _TILES:
        words = f"rowsum(P ⊙ dP) is that of each tile of keys alone (tiles of {width})"
        yield _mistake(spec, words, {step.name: partial(_sum_each_tile, width)})
        words = f"the last tile of keys overwrites rowsum(P ⊙ dP) so far (tiles of {width})"
        yield _mistake(spec, words, {step.name: partial(_sum_last_tile, width)})


def _sum_each_tile(width: int, at: At) -> Any:
    """Return for each key the sum over the keys of its tile, (…, n_q, n_k)."""
    p, dp = at.taken
    keys = int(p.shape[-1])
    tiles = [slice(start, min(start + width, keys)) for start in range(0, keys, width)]
    parts = [sum_gradient_rows(p[..., tile] * dp[..., tile]) for tile in tiles]
    # 0 times the weights spreads each sum over the keys of its tile.
    wide = [part + 0 * p[..., tile] for part, tile in zip(parts, tiles, strict=True)]
    return at.xp.concat(wide, axis=-1)


def _sum_last_tile(width: int, at: At) -> Any:
    p, dp = at.taken
    tile = slice(_start_of_last_tile(int(p.shape[-1]), width), None)
    return sum_gradient_rows(p[..., tile] * dp[..., tile])


def mistakes_of_score_gradient(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield other dS, from P and dP; of other weights than a softmax's, what is no matter of row sums."""
    if spec.attention.is_softmax:
        late = "rowsum(P ⊙ dP) is subtracted after P has multiplied: P ⊙ dP − rowsum(P ⊙ dP)"
        yield _mistake(spec, late, {step.name: _subtract_late})
        words = "the derivative of softmax is taken as P (1 − P), its diagonal"
        yield _mistake(spec, words, {step.name: _take_diagonal})
        words = "the softmax is not differentiated: dS is dP"
        yield _mistake(spec, words, {step.name: lambda at: at.values["dp"] * 1})
    yield _mistake(spec, "the signs of dQ and dK are changed", {step.name: lambda at: -at.right()})
    yield _mistake(spec, "dS is transposed in dQ and dK", {step.name: lambda at: at.right().mT})
    words = "the gradient stops at the weights: dQ and dK are 0"
    yield _mistake(spec, words, {step.name: _make_zero})


def _subtract_late(at: At) -> Any:
    p, dp, row_sums = at.taken
    return p * dp - row_sums


def _take_diagonal(at: At) -> Any:
    p, dp, _ = at.taken
    return p * (1 - p) * dp


# -- cap, temperatures and scale ---------------------------------------------------------------------------------------
def mistakes_of_cap(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield other derivatives of c tanh(s/c)."""
    words = "the derivative of the cap is left out: dS is not multiplied by 1 − tanh²(s/c)"
    yield _mistake(spec, words, {step.name: left_out})
    words = "the derivative of the cap is taken as 1 − tanh(s/c), without the square"
    yield _mistake(spec, words, {step.name: _cap_without_square})
    words = "the derivative of the cap is taken as 1 − (s/c)², of scores before the cap"
    yield _mistake(spec, words, {step.name: _cap_of_uncapped})


def _cap_without_square(at: At) -> Any:
    g, capped = at.taken
    return g * (1 - capped / number(capped, at.spec.attention.softcap))  # type: ignore[attr-defined]


def _cap_of_uncapped(at: At) -> Any:
    attention: Any = at.spec.attention  # type: ignore[attr-defined]
    return at.right(at.first, before(attention, at.values, "capped"))


def mistakes_of_temperature(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield the temperatures left out."""
    words = "dS is not multiplied by the temperatures of the queries"
    yield _mistake(spec, words, {step.name: left_out})


def mistakes_of_scale(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield the scale left out of dQ, of dK and of both, or applied twice."""
    queries, keys = (_named_by_role(spec, f"{x} gradient") for x in ("query", "key"))
    scaled = step.of[0]
    for words, of_product, of_both in (
        ("not scaled", lambda at: at.right(at.values[scaled]), left_out),
        ("scaled twice", lambda at: at.right(at.of(step.name, at.first)), _apply_twice),
    ):
        if queries is not None and keys is not None:
            yield _mistake(spec, f"dQ is {words}", {queries.name: of_product})
            yield _mistake(spec, f"dK is {words}", {keys.name: of_product})
        yield _mistake(spec, f"dQ and dK are {words}", {step.name: of_both})


def mistakes_of_passed(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield other derivatives of a step of scores that has a noun: left out, applied twice, or taken at its result."""
    forward = step.name.removeprefix("ds_")
    if not ARRAYS[forward].noun:
        return
    derivative = f"the derivative of {ARRAYS[forward].noun}"
    yield _mistake(spec, f"{derivative} is left out", {step.name: left_out})
    yield _mistake(spec, f"{derivative} is applied twice", {step.name: _apply_twice})
    # A step that scales its scores has the same derivative everywhere, and takes no scores.
    before_step = next(s for s in spec.pipeline_of_all if s.name == forward).of[0]
    if before_step in step.of:
        of_result = partial(_take_derivative_at, forward)
        words = f"{derivative} is taken at its result, not at the scores before it"
        yield _mistake(spec, words, {step.name: of_result})


def _take_derivative_at(name: str, at: At) -> Any:
    return at.right(at.first, at.values[name])


# -- products ----------------------------------------------------------------------------------------------------------
def mistakes_of_queries(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield other products dQ = dS K."""
    keys = _named_by_role(spec, "key gradient")
    assert keys is not None
    # dK = dSᵀ Q names the queries as they enter the scores: after norms, rotations and cuts.
    queries = keys.of[1]
    words = "dQ is of queries in place of keys"
    yield _mistake(spec, words, {step.name: lambda at: at.right(at.first, at.values[queries])})
    yield _mistake(spec, "dS is transposed in dQ", {step.name: lambda at: at.right(at.first.mT)})
    yield from mistakes_of_stop(spec, step)
    yield from _yield_lost_tiles(spec, "keys", "dQ", {step.name: _sum_over_keys})


def mistakes_of_keys(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield other products dK = dSᵀ Q."""
    queries, values = (_named_by_role(spec, f"{x} gradient") for x in ("query", "value"))
    assert queries is not None
    assert values is not None
    keys = queries.of[1]
    words = "dK is of keys in place of queries"
    yield _mistake(spec, words, {step.name: lambda at: at.right(at.first, at.values[keys])})
    words = "dS is not transposed in dK"
    yield _mistake(spec, words, {step.name: lambda at: at.right(at.first.mT)})
    yield from mistakes_of_stop(spec, step)
    yield from _yield_lost_tiles(spec, "queries", "dK", {step.name: _sum_over_queries})
    # Code often sums up both in one loop over the queries, and then loses the same tiles of both.
    both = {step.name: _sum_over_queries, values.name: _sum_over_queries}
    yield from _yield_lost_tiles(spec, "queries", "dK and dV", both)


def mistakes_of_values(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield other products dV = Pᵀ dO."""
    words = "P is not transposed in dV"
    yield _mistake(spec, words, {step.name: lambda at: at.right(at.first.mT)})
    yield _mistake(spec, "dV is scaled", {step.name: _scale_values})
    words = "dV is of dS in place of P"
    yield _mistake(spec, words, {step.name: lambda at: at.right(at.values["ds"])})
    scaled = _named_by_role(spec, "scaled gradient")
    if scaled is not None:
        words = "dV is of scaled dS in place of P"
        yield _mistake(spec, words, {step.name: lambda at: at.right(at.values[scaled.name])})
    yield from mistakes_of_stop(spec, step)
    yield from _yield_lost_tiles(spec, "queries", "dV", {step.name: _sum_over_queries})


def _scale_values(at: At) -> Any:
    return at.right() / root(at.first, at.values["v"].shape[-1])


#: Where a gradient may be detached, by the letter of what it then does not reach.
_STOPPED = {"q": "queries", "k": "keys", "v": "values"}


def mistakes_of_stop(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield a gradient that is 0, as it is detached."""
    letter = step.name[1]
    words = f"the gradient stops at the {_STOPPED[letter]}: d{letter.upper()} is 0"
    yield _mistake(spec, words, {step.name: _make_zero})


#: A product of which the terms of some keys, or queries, count alone.
_PartialSum = Callable[[slice, At], Any]


def _sum_over_keys(part: slice, at: At) -> Any:
    g, keys = at.taken
    return at.right(g[..., part], keys[..., part, :])


def _sum_over_queries(part: slice, at: At) -> Any:
    g, rows = at.taken
    return at.right(g[..., part, :], rows[..., part, :])


def _start_of_last_tile(length: int, width: int) -> int:
    return (length - 1) // width * width


#: Which terms of a sum over tiles of a width count, of so many, and words for it.
_LOST_TILES: Mapping[str, Callable[[int, int], slice]] = {
    "the last tile of {of} overwrites {gradient} so far (tiles of {width})": lambda n, width: slice(
        _start_of_last_tile(n, width), None
    ),
    "{of} after the first tile of {width} are left out of {gradient}": lambda n, width: slice(
        0, width
    ),
    "{of} after the last full tile of {width} are left out of {gradient}": lambda n, width: slice(
        0, n // width * width
    ),
}


def _yield_lost_tiles(
    spec: Any, of: str, gradient: str, sums: Mapping[str, _PartialSum]
) -> Iterator[Mistake]:
    """Yield sums over tiles of keys or queries of which some tiles are lost."""
    axis = -1 if of == "keys" else -2
    for words, terms in _LOST_TILES.items():
        for width in _TILES:
            steps = {
                name: partial(_sum_of_tiles, partial_sum, axis, terms, width)
                for name, partial_sum in sums.items()
            }
            yield _mistake(spec, words.format(of=of, gradient=gradient, width=width), steps)


def _sum_of_tiles(
    partial_sum: _PartialSum, axis: int, terms: Callable[[int, int], slice], width: int, at: At
) -> Any:
    return partial_sum(terms(int(at.first.shape[axis]), width), at)


# -- heads, rotations and norms ----------------------------------------------------------------------------------------
_GROUPS = {
    "first": "are those of the first head of each group alone, not the sum over the group",
    "last": "are those of the last head of each group alone, not the sum over the group",
    "mean": "are the mean over each group of heads, not the sum",
    "turn": "are sums over heads t, t + kv_heads, …, as if they shared in turn, not one after another",
}


def mistakes_of_group(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield other gradients of what the heads of a group share: of keys and values, or of one of them."""
    letter = step.name[1]
    of_values = next(
        s.name for s in spec.pipeline_of_all if s.role == "group sum" and s.name[1] == "v"
    )
    for how, phrase in _GROUPS.items():
        wrong = partial(_combine_heads, how, spec.attention.group)
        if letter == "k":
            yield _mistake(spec, f"dK and dV {phrase}", {step.name: wrong, of_values: wrong})
        # The words speak of dK and dV together; of one of them the verb is singular.
        words = f"d{letter.upper()} {phrase}".replace(" are ", " is ")
        yield _mistake(spec, words, {step.name: wrong})


def _combine_heads(how: str, times: int, at: At) -> Any:
    """Combine the gradients of heads that share: their mean, the first or last; or sum those of wrong ones."""
    g, xp = at.first, at.xp
    *batch, heads, n, d = g.shape
    if how == "turn":
        # Heads t, t + kv_heads, … share a key head if keys are tiled in turn.
        return xp.sum(xp.reshape(g, (*batch, times, heads // times, n, d)), axis=-4)
    apart = xp.reshape(g, (*batch, heads // times, times, n, d))
    if how == "mean":
        return xp.mean(apart, axis=-3)
    return apart[..., 0 if how == "first" else -1, :, :]


def mistakes_of_rotation(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield gradients that are not rotated back: of queries and keys, or of one of them."""
    of_both = "dQ and dK are not rotated back: they are those of rotated queries and keys"
    of_one = "{} is not rotated back: it is that of rotated {}"
    yield from _yield_passed(spec, step, of_both, of_one)


def mistakes_of_norm(spec: Any, step: Step) -> Iterator[Mistake]:
    """Yield gradients of what is normalised in place of those before the norm."""
    reason = "the norm is not differentiated"
    of_both = f"dQ and dK are those of normalised queries and keys: {reason}"
    of_one = f"{{}} is that of normalised {{}}: {reason}"
    yield from _yield_passed(spec, step, of_both, of_one)


def _yield_passed(spec: Any, step: Step, of_both: str, of_one: str) -> Iterator[Mistake]:
    """Yield the mistakes that a step is passed by a gradient as if it changed nothing."""
    letter = step.name[1]
    alike = {s.name[1]: s.name for s in spec.pipeline_of_all if s.role == step.role}
    # Both together belong to one of the two steps, or the mistake would come twice.
    if letter == "q" and "k" in alike:
        yield _mistake(spec, of_both, {step.name: left_out, alike["k"]: left_out})
    words = of_one.format(f"d{letter.upper()}", _STOPPED[letter])
    yield _mistake(spec, words, {step.name: left_out})


#: The rule of each role in a backward pass.
RULES: Mapping[str, Callable[[Any, Step], Iterator[Mistake]]] = {
    "stored weights": mistakes_of_weights,
    "dropped gradient": mistakes_of_dropped,
    "row sums": mistakes_of_row_sums,
    "score gradient": mistakes_of_score_gradient,
    "cap gradient": mistakes_of_cap,
    "tempered gradient": mistakes_of_temperature,
    "scaled gradient": mistakes_of_scale,
    "passed gradient": mistakes_of_passed,
    "query gradient": mistakes_of_queries,
    "key gradient": mistakes_of_keys,
    "value gradient": mistakes_of_values,
    "scores gradient": mistakes_of_stop,
    "group sum": mistakes_of_group,
    "rotated gradient": mistakes_of_rotation,
    "normed gradient": mistakes_of_norm,
}
