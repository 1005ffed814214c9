"""``Gradient`` of a ``LinearAttention``: of every input and of the state before the first token.

A way of computing is the derivative of one of the definition's, from the output back, so that token by token it is the
adjoint recurrence: with P the gradient of the state after a token, and of the general erasure,

    P ← P + qᵀ do,   dq = do S'ᵀ,   dk = v Pᵀ,   dv = k P,   de = −y Pᵀ with y = p X,   dp = −(e P) Xᵀ,
    dX = P − pᵀ (e P),   da = rowsum(S ⊙ dX),   P ← a ⊙ dX of the token before (X is the decayed state a ⊙ S).

Sources: Katharopoulos et al., Transformers are RNNs (2020), §3.3.1; gates by sums of q ⊙ dq − k ⊙ dk, Yang et al.,
Gated Linear Attention Transformers with Hardware-Efficient Training (2023), §4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from symattn.attention.derivative import detached, vjp
from symattn.attention.norms import unit
from symattn.attention.projections import repeat_heads
from symattn.bounds.called_target import Inputs, Layout
from symattn.bounds.mistake import Compute, Mistake
from symattn.document.codec import called
from symattn.document.keywords import UPSTREAM
from symattn.verification.definitions.definition_flow import FlowOfWays
from symattn.verification.definitions.definition_forms import Later
from symattn.verification.definitions.definition_mistakes import of_computed_arrays, reading
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inputs_by_letters import Family
from symattn.verification.definitions.linear import LinearAttention
from symattn.verification.definitions.linear import subject as subject_of_attention
from symattn.verification.definitions.linear_erasure import (
    ERASING_INPUTS,
    Erasure,
    is_of_keys,
)
from symattn.verification.definitions.linear_inputs import make_laid
from symattn.verification.definitions.linear_ways import (
    FEATURES,
    Form,
    FormRows,
    Produced,
    compute_by_tokens,
    compute_in_form,
    list_linear_forms,
    read_features,
    scan_linear_state,
    yield_linear_ways,
)
from symattn.verification.rules.tiling import WIDTHS

#: Runs of attention that take as long as a derivative.
_RUNS_OF_A_DERIVATIVE = 8
_LEAD = "it is the gradient of a different attention: "


def subject(spec: LinearAttention, layout: Layout, wrap: Callable[[Any], Any]) -> Definition:
    """Return the definition of the gradients of linear attention; ``wrap`` makes a ``Gradient`` of a specification."""
    forward = subject_of_attention(spec, layout)
    # A gradient by the initial state needs one.
    inputs = tuple(replace(x, needed=True) for x in forward.inputs)
    names = tuple(x.name for x in inputs)
    shapes = {x.name: x.shape for x in inputs}
    # The output has the tokens of queries, of which v may have other ones.
    of_output = " ".join("n" if letter == "m" else letter for letter in shapes["v"].split())
    upstream = [Input("do", of_output, UPSTREAM)]
    if spec.state:
        words = "dht d_final_state dstate d_state grad_state"
        upstream.append(Input("dfinal_state", shapes["initial_state"], words))
    laid = make_laid(spec, layout)

    def differentiated(run: Compute) -> Compute:
        return partial(_differentiate, run, names)

    def differentiate_mistake(mistake: Mistake) -> Mistake:
        other = None if mistake.spec is None else wrap(mistake.spec)
        run = differentiated(mistake.run)
        return replace(mistake, step="backward", cause=_LEAD + mistake.cause, way=run, spec=other)

    def mistakes() -> Iterator[Mistake]:
        yield from _yield_backward_mistakes(spec, names, laid)
        yield from map(differentiate_mistake, forward.mistakes)

    def others() -> Iterator[Mistake]:
        yield from map(differentiate_mistake, forward.others)
        changed = of_computed_arrays(forward, spec, laid)
        yield from map(differentiate_mistake, changed)

    runs: list[Compute] = [*yield_linear_ways(spec), *_yield_backward_ways(spec)]
    return replace(
        forward,
        title=f"Gradient({called(spec)})",
        step="backward",
        inputs=(*inputs, *upstream),
        outputs=tuple(f"d{name}" for name in names),
        families=_list_families(spec, forward),
        admits=partial(_has_slopes, spec),
        ways=tuple(differentiated(laid(run)) for run in runs),
        mistakes=Later(mistakes),
        others=Later(others),
        # The steps of the attention give its output, of which this is the derivative.
        make_flow=FlowOfWays,
        numbered=(),
        counted=None,
        other_forms=None,
        law=None,
        costs=_RUNS_OF_A_DERIVATIVE * forward.costs,
        bounded_forms=_BOUNDED_FORMS + _WITHOUT_SLOPE * (spec.feature == "relu"),
    )


def _list_families(spec: LinearAttention, forward: Definition) -> Mapping[str, Family]:
    """Return the families of numbers: of relu those whose numbers are hardly ever 0, where it has no slope."""
    if spec.feature != "relu":
        return forward.families
    return {name: forward.families[name] for name in ("normal", "large")}


def _has_slopes(spec: LinearAttention, inputs: Inputs, sizes: Mapping[str, int]) -> bool:
    """Return whether all features have a derivative: relu has none at 0, where frameworks choose between 0 and 1."""
    return spec.feature != "relu" or bool(inputs["q"].all() and inputs["k"].all())


#: What the bounds cover, for the report.
_BOUNDED_FORMS = (
    "Gradients are compared with bounds of forms by pairs, token by token and by chunks whose system is solved by"
    " substitution or by an inverse, and of gates by sums over later tokens; no law bounds them in long sequences."
)

_WITHOUT_SLOPE = " Queries and keys with zeros, where relu has no slope, are not tried."


def _differentiate(
    run: Compute, names: tuple[str, ...], do: Any, dfinal_state: Any = None, **inputs: Any
) -> tuple[Any, ...]:
    """Return the gradients of ⟨do, output⟩ + ⟨dfinal_state, final state⟩ by the inputs ``names``."""
    cotangent: Any = do if dfinal_state is None else (do, dfinal_state)
    # Where a maximum is not unique, the gradient is that of frameworks.
    result = vjp(run, cotangent, inputs, names, ties="second")
    return tuple(result[name] for name in names)


# -- forms whose derivatives add up otherwise --------------------------------------------------------------------------
def _yield_backward_ways(spec: LinearAttention) -> Iterator[Compute]:
    """Yield ways that need no bound of their own forwards: one chunk, gates by sums, and weights that are divided."""
    if spec.delta:
        for chunk in (_chunk_by_substitution, _chunk_by_doubling):
            yield compute_in_form(spec, partial(_compute_as_chunk, chunk))
    if spec.gate and not spec.normalised:
        form: Form = partial(_compute_with_summed_gates, linear.gate_sums)
        yield compute_in_form(spec, form)
    if spec.normalised:
        divided: Compute = partial(_divide_weights, spec)
        yield divided
        if spec.feature == "elu":
            # As written, whose gradient is that of a sum that cancels.
            bare: Compute = partial(_divide_weights, replace(spec, feature="identity"))
            yield reading(bare, q=linear.elu_then_one, k=linear.elu_then_one)


def _divide_weights(spec: LinearAttention, q: Array, k: Array, v: Array, g: Any = None) -> Any:
    """Compute the output from weights that sum to one, not as one sum over another."""
    xp, a, b = namespace_of(q), read_features(spec, q), read_features(spec, k)
    if spec.scale:
        a = a / xp.sqrt(xp.asarray(q.shape[-1], dtype=q.dtype))
    scores = linear.decayed_scores(a, b, linear.gate_sums(g)) if spec.causal else a @ b.mT
    return (scores / xp.sum(scores, axis=-1, keepdims=True)) @ v


#: The state after the tokens, and their outputs, from the specification.
_Chunk = Callable[[LinearAttention, FormRows], tuple[Any, Any]]


def _compute_as_chunk(chunk: _Chunk, spec: LinearAttention, rows: FormRows) -> Produced:
    """Compute all tokens as one chunk."""
    q, first = rows.q, rows.first_state
    xp, n = namespace_of(q), int(q.shape[-2])
    reads_before = spec.reads == "before"
    # A query that reads the state before its token reads the one after the token before.
    queries = xp.concat([q[..., 1:, :], q[..., :1, :]], axis=-2) if reads_before and n > 1 else q
    end, output = chunk(spec, rows._replace(q=queries, state=first))
    if reads_before:
        of_first = q[..., :1, :] @ first
        later = output[..., : n - 1, :]
        output = xp.concat([of_first, later], axis=-2) if n > 1 else of_first
    return Produced(output, end)


def _chunk_by_substitution(spec: LinearAttention, rows: FormRows) -> Any:
    """Return the state after the tokens and the output, of a triangular system that is solved by substitution."""
    q, k, v, g, beta, state = rows
    if isinstance(beta, Erasure):
        before = spec.erases == "before"
        return linear.erasing_chunk(state, q, k, v, beta.p, beta.keys, g, before=before)
    return linear.delta_chunk(state, q, k, v, beta, g)


def _chunk_by_doubling(spec: LinearAttention, rows: FormRows) -> Any:
    """Return the same by the inverse (I + L)⁻¹ = (I − L)(I + L²)(I + L⁴) …, as L of n tokens has Lⁿ = 0.

    Where keys are alike, terms far larger than the inverse cancel. Source: Yang et al. (2024), §3, for the inverse.
    """
    q, k, g, state = rows.q, rows.k, rows.g, rows.state
    erasure, written = rows.erasure, rows.written
    sums = linear.gate_sums(g)
    reads = sums if g is None or sums is None or spec.erases == "after" else sums - g
    decaying = erasure.p if reads is None else erasure.p * namespace_of(g).exp(reads)
    by_pairs: Compute = partial(linear.decayed_scores, itself=False, of_queries=reads)
    right = decaying @ state + by_pairs(erasure.p, k, sums) @ written
    power = -by_pairs(erasure.p, erasure.keys, sums)
    # The inverse less I: (I + P)(I + N) = I + (N + P + P N).
    inverse, reach = power, 2
    while reach < int(k.shape[-2]):
        power = power @ power
        inverse = inverse + power + power @ inverse
        reach *= 2
    erased = right + inverse @ right
    last = None if g is None else namespace_of(g).sum(g, axis=-2, keepdims=True)
    return linear.chunk_of_erased(state, q, k, written, erasure.keys, erased, sums, last)


def _compute_with_summed_gates(
    summed: Callable[[Array], Any], spec: LinearAttention, rows: FormRows
) -> Produced:
    """Compute token by token with gates held fixed; their gradients come from sums of what q, k and p pull back.

    A gate of a token enters as e^{G_i} with what token i reads, and as e^{−G_j} with what token j writes, so that dG_i
    is q_i ⊙ dq_i + p_i ⊙ dp_i − k_i ⊙ dk_i, and dg sums it over a token and the later ones. The factors are 1 here,
    e^{G − G′} with G′ = G held fixed. ``summed`` is the sum of gates, or a wrong one.
    """
    xp, fixed = namespace_of(rows.g), detached(rows.g)
    moved = rows.g - fixed
    sums = summed(moved)
    before = sums - moved
    reads = before if spec.reads == "before" else sums
    written = xp.exp(-sums)
    moving = rows._replace(q=rows.q * xp.exp(reads), k=rows.k * written, g=fixed)
    if spec.delta:
        of_keys = rows.erasure
        erasing = before if spec.erases == "before" else sums
        erasure = Erasure(of_keys.p * xp.exp(erasing), of_keys.keys * written)
        # Beside an erasure values are written as they are, so that they get their factor β here.
        moving = moving._replace(v=rows.written, beta=erasure)
    result = compute_by_tokens(spec, moving)
    if result.state is None:
        return result
    # What was written has e^{−G_j}, so that e^{G_n} is due at the end.
    return Produced(result.output, xp.exp(sums[..., -1:, :]).mT * result.state)


# -- mistakes of the backward pass -------------------------------------------------------------------------------------
#: Where gradients may stop, by the input that they do not reach.
_STOPPED = {
    "q": ("queries", "dQ"), "k": ("keys", "dK"), "v": ("values", "dV"), "g": ("gates", "dG"), "beta": ("rates", "dβ"),
    "initial_state": ("initial state", "dS"), "bonus": ("bonus", "db"), "dt": ("steps", "dΔ"), "skip": ("skip", "dD"),
    "A_log": ("rates A", "dA"), "dt_bias": ("gates' bias", "db"),
    "p": ("vectors p", "dp"), "b": ("vectors b", "db"), "w": ("write gates", "dw"), "a": ("vectors a", "da"),
}  # fmt: skip


def _yield_backward_mistakes(
    spec: LinearAttention, names: tuple[str, ...], laid: Callable[[Compute], Compute]
) -> Iterator[Mistake]:
    """Yield mistakes of the backward pass alone; ``laid`` arranges the arrays of a function in a layout."""
    form = list_linear_forms(spec)[0]
    right = compute_in_form(spec, form)

    def by(words: str, wrong: Compute, **changes: Any) -> Mistake:
        run = partial(_differentiate_wrongly, laid(wrong), names, changes)
        return Mistake("backward", words, run)

    for name in names:
        at, zero = _STOPPED[name]
        words = f"the gradient stops at the {at}: {zero} is 0"
        yield by(words, right, **{name: lambda x, given: 0 * x})
    if spec.scale:
        yield by("dQ is not scaled", right, q=lambda x, given: x * _root_of_width(x))
        yield by("dQ is scaled twice", right, q=lambda x, given: x / _root_of_width(x))
    if spec.state:
        words = "the gradient stops at the final state: what comes from it is 0"
        yield by(words, right, dfinal_state=lambda x, given: 0 * x)
    # Raw gates have a factor besides.
    if spec.gate and spec.gate_form is None:
        words = "dG is that of decays: it is not multiplied by e^g"
        yield by(words, right, g=lambda x, given: x / namespace_of(x).exp(given["g"]))
    if spec.gate and not spec.normalised:
        for words, summed in _SUMS_OF_GATES.items():
            wrong: Form = partial(_compute_with_summed_gates, summed)
            yield by(words, compute_in_form(spec, wrong))
    if spec.qk_norm:
        phi = FEATURES[spec.feature]
        bare = replace(spec, qk_norm=None, eps=0, feature="identity")
        through = partial(_pass_through_norm, spec, phi)
        of_p = (
            {"p": partial(_pass_through_norm, spec, lambda x: x)} if spec.erase == "vector" else {}
        )
        words = "dQ and dK are those of normalised queries and keys: the norm is not differentiated"
        run = compute_in_form(bare, form)
        yield by(words, reading(run, q=through, k=through, **of_p))
    if spec.values_per_key > 1:
        ungrouped = compute_in_form(replace(spec, values_per_key=1), form)
        for words, share in _SHARES_OF_GROUPS.items():
            shared = partial(_repeat_with_share, share, spec.values_per_key)
            yield by(words, reading(ungrouped, q=shared, k=shared, **_shared_erasing(spec)))
    if spec.delta:
        words = "what a token erases is a constant: no gradient passes through what its key reads"
        yield by(words, compute_in_form(spec, partial(_erase_constants, detached, _keep)))
        words = "the gradient of the state is not erased by a token's key"
        yield by(words, compute_in_form(spec, partial(_erase_constants, _keep, detached)))
    if spec.gate and not spec.normalised and spec.reads == "after" and not spec.erase:
        words = "the gradient of the state does not decay from a token to the one before"
        yield by(words, compute_in_form(spec, _keep_gradient_of_state))
    if not spec.normalised and spec.causal:
        for size in WIDTHS:
            words = f"the gradient of the state is not carried from a chunk of {size} tokens to the one before"
            yield by(words, compute_in_form(spec, partial(_cut_between_chunks, size)))


def _differentiate_wrongly(
    run: Compute,
    names: tuple[str, ...],
    changes: dict[str, Callable[..., Any]],
    do: Any,
    dfinal_state: Any = None,
    **inputs: Any,
) -> tuple[Any, ...]:
    """Return the gradients of a run, with ``changes`` of the gradients by name, from these and the inputs."""
    if "dfinal_state" in changes:
        dfinal_state = changes["dfinal_state"](dfinal_state, inputs)
    result = _differentiate(run, names, do, dfinal_state, **inputs)
    return tuple(
        changes[name](x, inputs) if name in changes else x
        for name, x in zip(names, result, strict=True)
    )


def _root_of_width(x: Array) -> Any:
    xp = namespace_of(x)
    return xp.sqrt(xp.asarray(x.shape[-1], dtype=x.dtype))


def _sum_of_later(g: Array) -> Any:
    """Return Σ_{j ≥ i} g_j, by which gradients are summed over earlier tokens."""
    xp = namespace_of(g)
    return xp.flip(xp.cumulative_sum(xp.flip(g, axis=-2), axis=-2), axis=-2)


_SUMS_OF_GATES: dict[str, Callable[[Array], Any]] = {
    "dG is that of sums of gates: it is not summed over later tokens": lambda g: g,
    "dG is summed over earlier tokens, not over later ones": _sum_of_later,
}


def _pass_through_norm(spec: LinearAttention, phi: Callable[[Array], Any], x: Array) -> Any:
    """Return φ(x) divided by its length, whose gradient is that of φ(x)."""
    features = phi(x)
    return features + detached(unit(features, spec.eps) - features)


def _repeat_with_share(share: Callable[[Array, Array, int], Any], times: int, x: Array) -> Any:
    """Return the heads of x repeated in place, the gradients of which are summed in another way."""
    fixed = detached(x)
    return repeat_heads(fixed, times) + share(
        repeat_heads(x, times), repeat_heads(fixed, times), times
    )


def _take_first_of_group(moved: Array, fixed: Array, times: int) -> Any:
    xp = namespace_of(moved)
    head: Any = xp.arange(moved.shape[-3])
    first = head % times == 0
    return xp.where(first[:, None, None], moved - fixed, 0)


#: What is added to heads that are held fixed, from those that move: 0 whose gradient is another share.
_SHARES_OF_GROUPS: dict[str, Callable[[Array, Array, int], Any]] = {
    "dQ and dK are those of the first head of each group alone, not the sum over the group": _take_first_of_group,
    "dQ and dK are the mean over each group of heads, not the sum": lambda moved, fixed, times: (
        (moved - fixed) / times
    ),
}


def _shared_erasing(spec: LinearAttention) -> dict[str, Callable[[Array], Any]]:
    """Return how vectors of heads of keys are read where heads of keys are repeated already."""
    of_keys = (x for x in ERASING_INPUTS[spec.erase] if is_of_keys(spec, x))
    return dict.fromkeys(of_keys, partial(repeat_heads, times=spec.values_per_key))


def _keep(x: Any) -> Any:
    return x


def _erase_constants(
    of_read: Callable[[Any], Any],
    of_state: Callable[[Any], Any],
    spec: LinearAttention,
    rows: FormRows,
) -> Produced:
    """Compute token by token, with what each token erases, or the state that it reads this from, held fixed."""
    of_keys, before = rows.erasure, spec.erases == "before"

    def token(
        state: Array, q: Array, k: Array, v: Array, p: Array, e: Array, g: Array | None = None
    ) -> tuple[Any, Any]:
        kept = linear.decayed(state, g)
        seen = of_read(p @ of_state(state if before else kept))
        state = kept - e.mT @ seen + k.mT @ v
        return state, q @ state

    writing = rows._replace(v=rows.written)
    return scan_linear_state(spec, token, writing, of_keys.p, of_keys.keys, rows.g)


def _keep_gradient_of_state(spec: LinearAttention, rows: FormRows) -> Produced:
    """Compute token by token, with decays that gates have a gradient of, and states none."""

    def token(
        state: Array, q: Array, k: Array, v: Array, g: Array, beta: Array | None = None
    ) -> tuple[Any, Any]:
        fixed = detached(state)
        state = state + linear.decayed(fixed, g) - fixed
        added = k.mT @ v if beta is None else linear.delta_step(state, k, v, beta) - state
        return state + added, q @ (state + added)

    return scan_linear_state(spec, token, rows, rows.g, *([rows.beta] if spec.delta else []))


def _cut_between_chunks(size: int, spec: LinearAttention, rows: FormRows) -> Produced:
    """Compute token by token, with the state that is handed from one chunk to the next held fixed."""
    q, k, v, g, beta, _ = rows
    state, outputs = rows.first_state, []
    for lo in range(0, int(k.shape[-2]), size):
        cut = partial(_take_tokens, slice(lo, lo + size))
        erased = Erasure(*map(cut, beta)) if isinstance(beta, Erasure) else cut(beta)
        chunk = compute_by_tokens(spec, FormRows(cut(q), cut(k), cut(v), cut(g), erased, state))
        outputs.append(chunk.output)
        # The final state keeps its gradient.
        end, state = chunk.state, detached(chunk.state)
    return Produced(namespace_of(q).concat(outputs, axis=-2), end)


def _take_tokens(tokens: slice, x: Any) -> Any:
    return None if x is None else x[..., tokens, :]
