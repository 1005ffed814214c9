"""Hypothesis draws inputs: sizes, a family of entries, and the seed from which the entries come."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from symattn.verification.probing.inputs import Array, Entries, Maker, Sizes

Visit = Callable[[str, dict[str, Array]], bool]
_MANY = (17, 31, 32, 33, 64, 65)  # astride the sizes of tiles
_MANY_SQUARE = _MANY[:4]  # where there are as many queries


def search(maker: Maker, seed: int, examples: int, visit: Visit) -> None:
    """Show ``visit`` up to ``examples`` inputs, until it returns True. The same seed gives the same inputs."""
    import hypothesis
    from hypothesis import HealthCheck, Phase, Verbosity, settings
    from hypothesis import strategies as st

    done = False

    def example(sizes: Sizes, family: str, entries_from: int) -> None:
        nonlocal done
        if not done:
            rng = np.random.default_rng(entries_from)
            done = visit(f"{family} entries", maker.make(sizes, FAMILIES[family](rng), rng))

    drawn = hypothesis.given(_sizes(maker, st), st.sampled_from(sorted(FAMILIES)), st.integers(0, 2**32 - 1))(example)
    quiet = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    with _nothing_written():
        hypothesis.seed(seed)(quiet(drawn))()


def climb(
    maker: Maker,
    start: dict[str, Array],
    ratio: float,
    rng: np.random.Generator,
    steps: int,
    measure: Callable[[dict[str, Array]], float],
) -> float:
    """Change the inputs a little, again and again, and keep what makes the error a larger part of what is allowed."""
    best = start
    for _ in range(steps):
        candidate = _changed(maker, best, rng)
        found = measure(candidate)
        if found > ratio:
            best, ratio = candidate, found
    return ratio


def _changed(maker: Maker, inputs: dict[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """One array scaled, or one row of it negated, copied or drawn anew; masks stay."""
    names = [n for n, a in inputs.items() if a.dtype.kind == "f" and n != "mask" and a.ndim > 1]
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
    changed = inputs | {name: maker.precision.input.rounded(a.reshape(inputs[name].shape))}
    return maker.tame(changed)


def _sizes(maker: Maker, st: Any) -> Any:
    few = st.integers(1, 8)
    tokens = st.one_of(few, few, few, st.sampled_from(_MANY_SQUARE if maker.square else _MANY))
    widths = st.one_of(few, few, few, st.sampled_from((16, 33, 64, 80)))
    batches = st.sampled_from(tuple(dict.fromkeys(b[: maker.batches] for b in ((), (1, 2), (2, 3)))))
    return st.builds(Sizes, few, tokens, widths, few, few, batches)


def _normal(rng: np.random.Generator) -> Entries:
    return lambda name, shape: rng.standard_normal(shape)


def _large(rng: np.random.Generator) -> Entries:
    return lambda name, shape: rng.standard_normal(shape) * (1 if name.startswith("w") else 4)


def _integers(rng: np.random.Generator) -> Entries:
    return lambda name, shape: rng.integers(-3, 4, shape)


def _sparse(rng: np.random.Generator) -> Entries:
    return lambda name, shape: rng.integers(-3, 4, shape) * (rng.random(shape) < 0.3)


def _offset(rng: np.random.Generator) -> Entries:
    return lambda name, shape: rng.standard_normal(shape) + (rng.integers(-3, 4) if name in ("q", "k", "v", "x") else 0)


FAMILIES: dict[str, Callable[[np.random.Generator], Entries]] = {
    "normal": _normal,
    "large": _large,
    "integer": _integers,
    "sparse": _sparse,
    "shifted": _offset,
}


@contextmanager
def _nothing_written() -> Iterator[None]:
    """Hypothesis keeps notes in the current directory, where nobody asked for them; here they vanish."""
    from hypothesis import configuration

    before = vars(configuration).get("__hypothesis_home_directory")
    with tempfile.TemporaryDirectory(prefix="symattn-") as place:
        configuration.set_hypothesis_home_dir(Path(place))
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(before)
