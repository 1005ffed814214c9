"""Random inputs: sizes, a family of entries, and the entries. The same seed gives the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from symattn.bounds.inputs import Array, Entries, Maker, Sizes

_FEW = 8
_MANY = (17, 31, 32, 33, 64, 65)  # around the sizes of tiles
_MANY_SQUARE = _MANY[:4]  # if there are as many queries
_WIDE = (16, 33, 64, 80)
_WIDE_TOKENS = 64
_OFTEN = 0.25  # probability of a larger size
_BATCHES = ((), (1, 2), (2, 3))


def search(maker: Maker, seed: int, examples: int) -> Iterator[tuple[str, dict[str, Array]]]:
    """Draw ``examples`` random inputs, each with a title."""
    rng = np.random.default_rng((seed, 5))
    names = sorted(FAMILIES)
    for _ in range(examples):
        n_q, n_k, d_k, d_v, d_model = (int(n) for n in rng.integers(1, _FEW + 1, 5))
        if rng.random() < _OFTEN:
            n_k = int(rng.choice(_MANY_SQUARE if maker.square else _MANY))
        if rng.random() < _OFTEN:
            d_k = int(rng.choice(_WIDE))
        sizes = Sizes(n_q, n_k, d_k, d_v, d_model, _BATCHES[rng.integers(len(_BATCHES))][: maker.batches])
        family = names[rng.integers(len(names))]
        yield f"{family} entries", maker.make(sizes, FAMILIES[family](rng), rng)


def climb(
    change: Callable[[dict[str, Array]], dict[str, Array]],
    start: dict[str, Array],
    ratio: float,
    steps: int,
    measure: Callable[[dict[str, Array]], float],
) -> float:
    """Change the inputs step by step, keep what raises the ratio of error to allowed error, and return that ratio."""
    best = start
    for _ in range(steps):
        candidate = change(best)
        result = measure(candidate)
        if result > ratio:
            best, ratio = candidate, result
    return ratio


def altered(maker: Maker, inputs: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """Return the inputs with one array ``perturbed``; masks stay, and scores stay within the domain."""
    names = [n for n, a in inputs.items() if n != "mask" and a.ndim > 1]
    return maker.tame(inputs | {n: maker.in_format(a) for n, a in perturbed(inputs, names, rng).items()})


def perturbed(inputs: Mapping[str, Array], names: Sequence[str], rng: np.random.Generator) -> dict[str, Array]:
    """Return one of the arrays scaled or with noise added, or with one row negated, replaced by another, or changed."""
    names = [n for n in names if inputs[n].dtype.kind == "f" and inputs[n].ndim]
    if not names:
        return {}
    name = names[rng.integers(len(names))]
    a = inputs[name].reshape(-1, inputs[name].shape[-1]).copy()
    row, other = rng.integers(len(a), size=2)
    kind = rng.integers(5)
    if kind == 0:
        a = a * 2.0 ** rng.integers(-2, 3)
    elif kind == 1:
        a[row] = -a[row]
    elif kind == 2:
        a[row] = a[other]
    elif kind == 3:
        a[row] += rng.standard_normal(a.shape[1]) * max(float(np.abs(a).max()), 1.0)
    else:
        a = a + rng.standard_normal(a.shape) * 2.0**-4
    return {name: a.reshape(inputs[name].shape)}


def normal(rng: np.random.Generator) -> Entries:
    """Draw from N(0, 1), weights of wide tokens from N(0, 1/d_model), so that scores do not grow with the width."""

    def entries(name: str, shape: tuple[int, ...]) -> Array:
        wide = name.startswith("w") and len(shape) > 1 and shape[-2] >= _WIDE_TOKENS
        return rng.standard_normal(shape) / (shape[-2] ** 0.5 if wide else 1)

    return entries


def integers(rng: np.random.Generator) -> Entries:
    """Draw whole numbers from −3 to 3: most sums of few of them are exact."""
    return lambda name, shape: rng.integers(-3, 4, shape)


def sparse(rng: np.random.Generator) -> Entries:
    """Draw small whole numbers, mostly zeros."""
    return lambda name, shape: rng.integers(-3, 4, shape) * (rng.random(shape) < 0.3)


def _offset(rng: np.random.Generator) -> Entries:
    return lambda name, shape: rng.standard_normal(shape) + (rng.integers(-3, 4) if name in ("q", "k", "v", "x") else 0)


FAMILIES: dict[str, Callable[[np.random.Generator], Entries]] = {
    "normal": normal,
    "large": lambda rng: lambda name, shape: rng.standard_normal(shape) * (1 if name.startswith("w") else 4),
    "integer": integers,
    "sparse": sparse,
    "shifted": _offset,
}
