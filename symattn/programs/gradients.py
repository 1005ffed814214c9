"""Compare gradients with the exact ones, and describe what is beyond all roundings together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.inputs import check_inputs
from symattn.attention.spec import Attention
from symattn.bounds.sharp.backward_bounds import NAMES, SharpGradient, gradients, sampled
from symattn.bounds.sharp.limits import STORED, Stores
from symattn.bounds.sharp.sample import chosen
from symattn.bounds.sharp.ways import bounded, largest_scale, scalings
from symattn.document.errors import InputError
from symattn.programs import closeness
from symattn.programs.question import Question

Arrays = dict[str, np.ndarray]


def gradients_close_to_exact(question: Question) -> str:
    """Describe what is wrong with the gradients (dq, dk, dv), each of which may be None, or return "".

    Raises ``InputError`` if the inputs do not fit, or the bound does not cover them.
    """
    spec, returned = question.spec or Attention(), question.gradients
    read_as = {
        name: closeness.read_array(name, array)
        for name, array in {**question.given, "do": question.do}.items()
    }
    inputs = {name: values for name, (values, _) in read_as.items()}
    arithmetic = Precision.of(
        question.precision if question.precision is not None else read_as["q"][1], question.contract
    )
    how = Stores.of(
        # Sums are wide unless somebody has described the arithmetic.
        arithmetic,
        not isinstance(question.precision, Precision) and question.contract is None,
    )
    upstream = inputs.pop("do")
    check_inputs(spec, dict(inputs))
    # An upstream gradient of another type must hold numbers of the format.
    if read_as["do"][1] != arithmetic.input.name:
        closeness.check_representable("do", upstream, arithmetic.input)
    _check_gradient_question(spec, inputs, upstream, how, returned)
    assert how is not None
    assert returned is not None
    got = {
        name: closeness.read_array(name, a)
        for name, a in zip(NAMES, returned, strict=True)
        if a is not None
    }
    for name, (values, dtype) in got.items():
        # A gradient has the shape of its input: dq of q, and so on.
        words = closeness.form_words(name, values.shape, inputs[name[1:]].shape, dtype, arithmetic)
        if words:
            return words
    return _judge_gradients(
        spec,
        inputs,
        upstream,
        how,
        {name: values for name, (values, _) in got.items()},
        question.rows,
    )


def _judge_gradients(
    spec: Attention,
    inputs: Arrays,
    do: np.ndarray,
    how: Stores,
    got: Arrays,
    rows: int | Sequence[int] | None,
) -> str:
    """Describe what is wrong, or return ""."""
    n_q, n_k = (inputs[name].shape[-2] for name in "qk")
    queries = np.arange(n_q) if rows is None else np.array(chosen(spec, inputs, rows))
    named = rows is None or not np.isscalar(rows)
    # Named rows are queries, and keys of the same numbers; a count of rows is taken of each.
    keys = (
        np.arange(n_k)
        if rows is None
        else queries[queries < n_k]
        if named
        else sampled(n_k, int(rows))  # type: ignore[arg-type]
    )
    result = nearest(spec, inputs, do, how, got, queries, keys)
    return next(
        filter(
            None,
            (
                _describe_gradient_excess(name, result[name], values, how)
                for name, values in got.items()
            ),
        ),
        "",
    )


def nearest(
    spec: Attention,
    inputs: Arrays,
    do: np.ndarray,
    how: Stores,
    got: Arrays,
    queries: np.ndarray,
    keys: np.ndarray,
    factors: np.ndarray | None = None,
) -> dict[str, SharpGradient]:
    """Return dQ of ``queries``, dK and dV of ``keys``, for the exact scale or for the scale stored in the format.

    They are those of the first scale with which all of ``got`` is legal, or else those of the exact scale; ``factors``
    are those of dropout. Raises ``InputError`` if there are no exact gradients, or if correct ones may be out of range.
    """
    first: dict[str, SharpGradient] = {}
    for one, scaled_inputs in scalings(spec, inputs, how):
        result = gradients(one, scaled_inputs, do, how, queries, keys, factors)
        if any(np.isnan(g.exact).any() for g in result.values()):
            raise InputError(
                f"a query may attend to no key, and fully_masked={spec.fully_masked!r}: there are no exact gradients;"
                " hint: fully_masked='zeros'"
            )
        if all(
            (result[name].ratios(result[name].of(values)) <= 1).all()
            for name, values in got.items()
        ):
            return result
        first = first or result
        # Infinities may be right, which must be excluded before a fault is reported.
        _check_range(spec, inputs, do, how, result, got)
    return first


def _check_range(
    spec: Attention,
    inputs: Arrays,
    do: np.ndarray,
    how: Stores,
    results: Mapping[str, SharpGradient],
    got: Arrays,
) -> None:
    """Raise ``InputError`` if gradients are not finite, and those of correct code may overflow as well."""
    if all(np.isfinite(values).all() for values in got.values()):
        return
    within = float(how.format.largest)
    scale = largest_scale(spec, inputs) or 1.0
    least = min(1.0, scale) if how.scores else 1.0
    # |dO Vᵀ| and |dS| = |P (dP − Σ P dP)| are at most twice the product of the norms.
    of_scores = 2 * np.linalg.norm(do, axis=-1).max() * np.linalg.norm(inputs["v"], axis=-1).max()
    of_scores *= max(1.0, float(spec.softcap or 1)) if how.scores else 1.0
    most = max(
        float((np.abs(g.exact) + g.allowed).max(initial=0.0)) / least for g in results.values()
    )
    if max(float(of_scores), most) > within:
        raise InputError(
            f"gradients that are not finite may be right here: dO Vᵀ, dS or a gradient may be above {within:.5g}, the"
            f" largest number of {how.format.name}; hint: give a smaller do"
        )


def _describe_gradient_excess(
    name: str, sharp_gradient: SharpGradient, values: np.ndarray, how: Stores
) -> str:
    got = sharp_gradient.of(values)
    shares = sharp_gradient.ratios(got)
    count = int((shares > 1).sum())
    if not count:
        return ""
    at = tuple(int(i) for i in np.unravel_index(int(shares.argmax()), shares.shape))
    # The rows of the sample, by their numbers in the output.
    place = [*at[:-2], int(sharp_gradient.rows[at[-2]]), at[-1]]
    exact = float(sharp_gradient.exact[at])
    allowed = float(sharp_gradient.allowed[at])
    return "\n".join(
        (
            f"{count} of {got.size} elements of {name} {'is' if count == 1 else 'are'} beyond all roundings together in"
            f" {how.format.name}",
            f"The worst is {name}{place}: got {got[at]:.10g}, exact {exact:.10g}",
            f"Off by {abs(got[at] - exact):.2g}; roundings can do no more than {allowed:.2g}, however they fall, if"
            f" {STORED}",
        )
    )


def _check_gradient_question(
    spec: Attention, inputs: Arrays, do: np.ndarray, how: Stores | None, returned: object
) -> None:
    if not hasattr(returned, "__len__") or len(returned) != len(NAMES):
        raise InputError(
            f"gradients are not {len(NAMES)} arrays; hint: give (dq, dk, dv), None for what is not judged"
        )
    hint = "hint: symattn.verify(backward, Gradient(...)), which calls a function at small sizes"
    # Other formats have no filter for gradients.
    if how is None:
        raise InputError(
            f"gradients are judged in bfloat16 and float16, with sums in float32; {hint}"
        )
    if not bounded(spec, inputs):
        raise InputError(
            f"gradients are judged of dot products times a scale, with caps, sinks, biases and masks alone; {hint}"
        )
    own = 2 + len(spec.head_axis)
    # Broadcast batches would add gradients of several items.
    if len({inputs[name].shape[:-own] for name in "qkv"}) > 1:
        raise InputError(
            "gradients: q, k and v have batches of other shapes; hint: give each item its own k and v"
        )
    wanted = (*inputs["q"].shape[:-1], inputs["v"].shape[-1])
    if do.shape != wanted:
        raise InputError(f"do has the shape {do.shape}, expected {wanted}, that of the output")
    if not all(np.isfinite(a).all() for a in (inputs["q"], inputs["k"], inputs["v"], do)):
        raise InputError("q, k, v or do is not finite: there are no exact gradients")
