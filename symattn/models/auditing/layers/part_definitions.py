"""Parts of a layer as definitions: the legal results of each, and its known mistakes.

Norms and rotations are those of ``verification.definitions``. The other parts of a layer are here: the tables of
cosines and sines, the step between the matrices of the feed-forward layer, and sums with the tokens. Each is a step of
``symattn.attention``, run on the kind ``rounded``, which proves how far rounding may move its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.formats import HALF, Format
from symattn.attention.layers.steps import ACTIVATIONS, gated, residual
from symattn.attention.positions.position_fields import Rotary
from symattn.attention.positions.rotary import inverse_frequencies, tables
from symattn.bounds.mistake import Mistake, store_as_input
from symattn.bounds.reference import lifted
from symattn.programs.names import Function
from symattn.verification.definitions import norms
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.norms import LayerNorm, RMSNorm
from symattn.verification.definitions.rotary_vectors import FORMS_OF_FREQUENCIES
from symattn.verification.rules import rotating
from symattn.verification.rules.activations import HIDDEN
from symattn.verification.rules.norms import right


def _make_part_definition(
    title: str,
    step: str,
    names: tuple[str, ...],
    outputs: tuple[str, ...],
    ways: Iterable[Function],
    mistakes: Iterator[Mistake],
) -> Definition:
    """Return a definition for existing arrays: no inputs are drawn for it."""
    inputs = tuple(Input(name, "") for name in names)
    return Definition(title, step, inputs, outputs, tuple(ways), tuple(mistakes), (), {})


# -- norms -------------------------------------------------------------------------------------------------------------
def norm(kind: str, eps: float | Fraction, one_plus: bool) -> Definition:
    """Return a norm of tokens; its mistakes also include an ε ten times too large or small, and no norm at all."""
    spec = (LayerNorm if kind == "layer" else RMSNorm)(eps=eps, one_plus=one_plus)
    definition = norms.subject(spec)
    more = (
        *(other_eps(kind, eps, one_plus, times) for times in (10, Fraction(1, 10))),
        Mistake("norm", "it is not normalised at all", lambda x, gain=None, bias=None: x),
    )
    return replace(definition, mistakes=(*definition.mistakes, *more))


def other_eps(kind: str, eps: float | Fraction, one_plus: bool, times: int | Fraction) -> Mistake:
    """Return the mistake of an ε that is ``times`` too large, in the words of the rules, which know other values.

    An ε ten times too large changes little unless tokens are small.
    """
    other = float(Fraction(str(float(eps))) * times)

    def run(x: Array, gain: Array | None = None, bias: Array | None = None) -> object:
        gain = 1 + gain if one_plus and gain is not None else gain
        return right("layer" if kind == "layer" else "rms")(x, other, gain, bias)

    return Mistake("norm", f"ε is {other:g}, expected {float(eps):g}", run)


# -- rotations ---------------------------------------------------------------------------------------------------------
def angles(spec: Rotary, dtype: str) -> Definition:
    """Return the definition of cosines and sines of ``positions``; ``x`` has the width of the rotated vectors."""

    def changed(changes: rotating.TableChanges, positions: Array, x: Array) -> object:
        return rotating.tables_of(spec, positions, x, changes)

    mistakes: dict[str, Function] = {
        cause: partial(changed, changes) for cause, changes in rotating.of_tables(spec)
    }
    # In a half format the module's own is the likely one, in float32 either.
    for name in (dtype,) if dtype in HALF else HALF:
        cause = f"the frequencies are rounded to {name}, as a module does that is converted to it"
        mistakes[cause] = partial(_make_rough_rotary_tables, spec, name)
    mistakes["cosines and sines are exchanged"] = lambda positions, x: rotating.tables_of(
        spec, positions, x
    )[::-1]
    every = (Mistake("position", *mistake) for mistake in mistakes.items())
    ways = [partial(changed, form) for form in FORMS_OF_FREQUENCIES]
    return _make_part_definition(
        "Rotary tables", "position", ("positions", "x"), ("cos", "sin"), ways, every
    )


def _make_rough_rotary_tables(
    spec: Rotary, name: str, positions: np.ndarray, x: Array
) -> tuple[Array, Array]:
    """Return tables by frequencies that were rounded to a narrow format."""
    columns = spec.width or int(x.shape[-1])
    # Frequencies as a module computes them before they are scaled.
    plain = inverse_frequencies(columns, spec.base, np.zeros(1))
    if spec.scaling is not None:
        length = int(np.max(positions)) + 1
        plain = spec.scaling.frequencies(plain, spec.base, length)
    rounded = Format(name).rounded(np.asarray(plain, dtype=np.float64))
    cos, sin = tables(positions, lifted(rounded, type(x)))
    size = 1 if spec.scaling is None else spec.scaling.magnitude(x)
    return cos * size, sin * size


# -- the feed-forward layer --------------------------------------------------------------------------------------------
def hidden(activation: str, gate: bool) -> Definition:
    """Return the definition of f(gate) ⊙ up, or f(up), in which f(…) is stored before the product."""
    run = ACTIVATIONS[activation].run
    mistakes: dict[str, Function] = {
        f"the activation is {other}, not {activation}": partial(
            _activate_hidden_rows, ACTIVATIONS[other].run
        )
        for other in ACTIVATIONS
        if other not in (activation, "identity")
    }
    for words, change in HIDDEN[gate].items():
        # The gate's function is stored before the product, as modules do.
        mistakes[words] = partial(change, _store_activation_as_input(run) if gate else run)
    if gate:
        mistakes["the up projection is left out"] = lambda up, gate: run(gate)
    every = (Mistake("project", *mistake) for mistake in mistakes.items())
    names = ("up", "gate") if gate else ("up",)
    return _make_part_definition(
        "hidden", "project", names, ("hidden",), [partial(_activate_hidden_rows, run)], every
    )


def near_hidden(activation: str) -> tuple[Mistake, ...]:
    """Return the mistake of using the other of the two functions called GELU."""
    other = {"gelu": "gelu_tanh", "gelu_tanh": "gelu"}.get(activation)
    if other is None:
        return ()
    words = f"the activation is {other}, not {activation}"
    return (Mistake("project", words, partial(_activate_hidden_rows, ACTIVATIONS[other].run)),)


def _activate_hidden_rows(
    activation: Callable[[Array], Array], up: Array, gate: Array | None = None
) -> Array:
    result: Array = (
        activation(up) if gate is None else gated(_store_activation_as_input(activation), gate, up)
    )
    return result


def _store_activation_as_input(activation: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return an activation whose result is stored in the format of the inputs."""

    return lambda x: store_as_input(activation(x))


def of_erf(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """|x|/2 · e · |up|: the possible error of GELU since torch's float32 kernel approximates erf.

    Its erf is off by up to 7·10⁻⁷, far more than a few units in the last place near 0 and of 1 + erf far below 0
    (torch 2.13 on a CPU with AVX-512, |x| ≤ 6; a test repeats it). e = 1.1·10⁻⁶ is a choice, half as much again.
    """
    x = np.abs(inputs.get("gate", inputs["up"]))
    other = np.abs(inputs["up"]) if "gate" in inputs else 1.0
    return np.asarray(x / 2 * 1.1e-6 * other)


# -- sums --------------------------------------------------------------------------------------------------------------
def stream(parts: int) -> Definition:
    """Return the definition of x + y, or of x + y + z in any order; ``normed`` are the tokens after the norm."""
    names = ("x", "y", "z")[: parts + 1]
    # y + z may be added first, if both parts run side by side.
    orders = [names] if parts == 1 else [names, ("x", "z", "y"), ("y", "z", "x")]
    ways = [partial(_add_residuals_in_order, order) for order in orders]
    words = {"x": "the residual is left out", "y": "the output of the part is left out"}
    if parts > 1:
        words |= {
            "y": "the output of attention is left out",
            "z": "the output of the feed-forward layer is left out",
        }
    # Each summand may be lost.
    summed = {cause: tuple(n for n in names if n != name) for name, cause in words.items()}
    summed["the residual starts from the tokens after the norm"] = ("normed", *names[1:])
    summed["the residual is added twice"] = (*names, "x")
    mistakes = (
        Mistake("residual", cause, partial(_add_residuals_in_order, order))
        for cause, order in summed.items()
    )
    return _make_part_definition(
        "residual", "residual", (*names, "normed"), ("output",), ways, mistakes
    )


def _add_residuals_in_order(order: tuple[str, ...], **keywords: Array) -> Array:
    total = keywords[order[0]]
    for name in order[1:]:
        total = residual(total, keywords[name])
    return total


def scaled(factor: float) -> Definition:
    """Return the definition of x times a number, for families that scale queries before the call."""
    wrong = [Mistake("scale", "it is not scaled before the call", lambda x: x)]
    return _make_part_definition(
        "scale", "scale", ("x",), ("y",), [lambda x: x * factor], iter(wrong)
    )
