"""Variants with inputs drawn for them, and how gradients are compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

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
