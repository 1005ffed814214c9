"""Variants with inputs drawn for them, and how gradients are compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from symattn.attention.gradients import backward_pass
from symattn.attention.inputs import holds
from symattn.attention.layers.evaluation import lifted
from symattn.attention.letters_of_attention import ARRAYS
from symattn.attention.variants import VARIANTS
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


def drawn(variant: Any, grain: int, seed: int = 0) -> Case:
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


def _from_weights(name: str, change: Callable[[Any, Any], Any]) -> tuple[Any, str, Any]:
    """The table of formulas from weights, and another function in the row of a name."""
    row = backward_pass._OF_WEIGHTS[name]
    return backward_pass._OF_WEIGHTS, name, (*row[:2], change)


def _mean_over_all(p: Any, g: Any) -> Any:
    xp = p.__array_namespace__()
    return xp.where(p > 0, g - xp.mean(g, axis=-1, keepdims=True), 0)


PASS: Any = backward_pass
#: By mistake: the case that shows it, a module or a table, the name in it, and what is there instead.
MISTAKES: dict[str, tuple[str, Any, str, Any]] = {
    "no row sum": ("scaled dot", PASS, "_differentiate_softmax", lambda base, p, g, rows: p * g),
    "row sum outside": ("causal", PASS, "_differentiate_softmax", lambda base, p, g, rows: p * g - rows),
    "row sum over queries": ("scaled dot", PASS, "_sum_rows", lambda p, g: _sum(p * g, axis=-2)),
    "rows normalised without the sink": ("softmax off by one", PASS, "_sum_rows", lambda p, g: _sum(p * g) / _sum(p)),
    "no log 2": ("base 2", PASS, "_differentiate_softmax", lambda base, p, g, rows: p * (g - rows)),
    "sigmoid's slope": ("sigmoid", *_from_weights("sigmoid", lambda a, g: a * g)),
    "ReLU over n_k": ("ReLU", *_from_weights("relu", lambda s, g: s.__array_namespace__().where(s > 0, g, 0))),
    "mean over all keys": ("sparsemax", *_from_weights("sparsemax", _mean_over_all)),
    "entmax as sparsemax": ("entmax", *_from_weights("entmax", backward_pass._OF_WEIGHTS["sparsemax"][2])),
    "no slope of the cap": ("softcap", PASS, "softcap_gradient", lambda y, cap, g: g),
    "the cap's slope without c": ("softcap", PASS, "softcap_gradient", lambda y, cap, g: g * (1 - y * y)),
    "one head of a group": ("grouped-query", PASS, "_sum_over_group", lambda times, g: g[..., ::times, :, :]),
    "the first operand alone": (
        "general",
        PASS,
        "_pass_back_through",
        lambda run, place, g, *x, f=PASS._pass_back_through: f(run, place, g, *x) if place == 0 else 0 * x[place],
    ),
}
