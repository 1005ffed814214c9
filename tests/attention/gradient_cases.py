"""Variants with inputs drawn for them, and how gradients are compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.attention.gradients import backward as gradients_backward
from symattn.attention.gradients import scores as gradients_scores
from symattn.attention.inputs import holds
from symattn.attention.layers.evaluation import lifted
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.variants import VARIANTS, NamedVariant
from tests.attention.definition import PLAIN, Definition, parts
from tests.attention.definitions_positions import POSITIONS
from tests.attention.scoring_variants import VARIANTS as SCORING
from tests.attention.test_transformer import MODELS, SOURCE, TOKENS, parameters


@dataclass(frozen=True, eq=False)
class Case:
    """A function of arrays by name, inputs by which there are gradients, and the others (masks, labels, tokens)."""

    function: Any
    numbers: Mapping[str, np.ndarray]
    plain: Mapping[str, np.ndarray]

    def given(self, of: Any) -> dict[str, Any]:
        return lifted(of, self.numbers) | dict(self.plain)

    def cotangent(self, of: Any) -> Any:
        """Halves in the shape of each output; small numbers between 1 and 2 where the output is −∞."""
        rng = np.random.default_rng(3)
        outputs = parts(self.function(**self.given(of)))
        drawn = [of.lift(rng.integers(-4, 5, tuple(map(int, y.shape))) / 2) for y in outputs]
        return drawn[0] if len(drawn) == 1 else tuple(drawn)

    def direction(self, of: Any) -> dict[str, Any]:
        """One step for every input, in halves."""
        rng = np.random.default_rng(4)
        return {n: of.lift(rng.integers(-4, 5, np.shape(a)) / 2) for n, a in self.numbers.items()}


def drawn(variant: NamedVariant, grain: int, seed: int = 0) -> Case:
    """Multiples of 1/grain between −1 and 1; three of four keys are allowed by masks, the first always."""
    rng = np.random.default_rng(seed)
    numbers, plain = {}, {}
    for name, shape in variant.shapes().items():
        what = holds(name, variant.spec)
        if what not in ("booleans", "whole numbers") and name != "mask":
            numbers[name] = rng.integers(-grain, grain + 1, shape) / grain
        elif what == "whole numbers":
            plain[name] = np.sort(rng.integers(0, 2, shape))
        else:
            allowed = rng.random(shape) < 0.75
            allowed[..., 0] = True
            added = np.where(allowed, rng.integers(-grain, grain + 1, shape) / grain, -np.inf)
            plain[name] = added if name == "mask" and variant.spec.mask == "additive" else allowed
    return Case(variant.spec, numbers, plain)


def _of(definition: Definition) -> Case:
    given = definition.given
    plain = {n for n in given if n in PLAIN or ARRAYS[n].holds != "numbers"}
    numbers = {n: a for n, a in given.items() if n not in plain}
    return Case(definition.spec, numbers, {n: given[n] for n in plain})


def _of_model(name: str) -> Case:
    model = MODELS[name]
    both = {"source": SOURCE} if model.encoder and model.decoder else {}
    return Case(model, parameters(model), {"tokens": TOKENS} | both)


#: Every variant there is a name for, and combinations of fields.
CASES: dict[str, Case] = {
    **{name: drawn(variant, 8) for name, variant in VARIANTS.items()},
    **{f"combined: {name}": _of(definition) for name, definition in SCORING.items()},
    **{f"placed: {name}": _of(definition) for name, definition in POSITIONS.items()},
}
MODEL_CASES: dict[str, Case] = {f"model: {name}": _of_model(name) for name in MODELS}


def near(a: Mapping[str, Any], b: Mapping[str, Any], digits: int = 25) -> bool:
    """Whether balls agree to so many digits, name by name."""
    assert a.keys() == b.keys()
    return all(close(a[n], b[n], digits) for n in a)


def close(a: Any, b: Any, digits: int = 25) -> bool:
    """Whether two arrays of balls have one shape and agree to so many digits after the point."""
    assert tuple(map(int, a.shape)) == tuple(map(int, b.shape))
    return all(abs(x) < 10.0**-digits for x in (a - b).entries.flat)


# -- Mistakes in backward passes: where each shows, which function has it, and what it does in the place of that -------
def _sum(x: Any, axis: Any = -1) -> Any:
    return x.__array_namespace__().sum(x, axis=axis, keepdims=True)


def _with(function: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` and then ``change`` of what it gives."""
    return lambda *args, **how: change(*found) if isinstance(found := function(*args, **how), tuple) else change(found)


def _last_alone(ways: Any, ends: Any, values: Any, names: Any) -> dict[str, Any]:
    """Of the steps that read an array, the first is forgotten where a later one has been counted."""
    found = dict(ends)
    for way in reversed(list(ways)):
        if way.name in found:
            parts = zip(way.of, way.back(found[way.name]), strict=True)
            found |= {name: part for name, part in parts if part is not None}
    return {n: found[n] if n in found else 0 * values[n] for n in names}


BACKWARD, SCORES = gradients_backward, gradients_scores
#: By what is wrong: the case that shows it, a module or a table, the name in it, and the mistake.
MISTAKES: dict[str, tuple[str, Any, Any, Callable[..., Any]]] = {
    "no row sum": ("scaled dot", SCORES, "softmax_gradient", lambda p, g, base=None: p * g),
    "row sum outside": ("causal", SCORES, "softmax_gradient", lambda p, g, base=None: p * g - _sum(p * g)),
    "row sum over queries": (
        "scaled dot",
        SCORES,
        "softmax_gradient",
        lambda p, g, base=None: p * (g - _sum(p * g, axis=-2)),
    ),
    "the sink's sign": ("sink", SCORES, "sink_gradients", _with(SCORES.sink_gradients, lambda ds, db: (ds, -db))),
    "the sink without its weight": (
        "sink",
        SCORES,
        "sink_gradients",
        lambda p, g, base=None: (SCORES.softmax_gradient(p, g), -_sum(p * g)),
    ),
    "rows normalised without the sink": (
        "softmax off by one",
        SCORES,
        "softmax_gradient",
        lambda p, g, base=None: p * (g - _sum(p * g) / _sum(p)),
    ),
    "no log 2": ("base 2", SCORES, "softmax_gradient", lambda p, g, base=None: p * (g - _sum(p * g))),
    "sigmoid's slope": ("sigmoid", SCORES, "sigmoid_gradient", lambda a, g: a * g),
    "ReLU over n_k": ("ReLU", SCORES, "relu_gradient", lambda s, g: s.__array_namespace__().where(s > 0, g, 0)),
    "mean over all keys": (
        "sparsemax",
        SCORES,
        "sparsemax_gradient",
        lambda p, g: p.__array_namespace__().where(
            p > 0, g - g.__array_namespace__().mean(g, axis=-1, keepdims=True), 0
        ),
    ),
    "entmax as sparsemax": ("entmax", SCORES, "entmax15_gradient", SCORES.sparsemax_gradient),
    "no slope of the cap": ("softcap", BACKWARD, "softcap_gradient", lambda y, cap, g: g),
    "the cap's slope without c": ("softcap", BACKWARD, "softcap_gradient", lambda y, cap, g: g * (1 - y * y)),
    "one of two readers": ("self-attention", BACKWARD, "pulled", _last_alone),
    "the first operand alone": (
        "multi-head",
        BACKWARD,
        "_pull_back_through",
        lambda run, x, g, f=BACKWARD._pull_back_through: (f(run, x, g)[0], *(None for _ in x[1:])),
    ),
}
