"""``scaling``: the variance of q·k grows with d_k, that of q·k/√d_k does not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from symattn.derivations import scaling_numpy
from symattn.derivations.parameters import LIMITS, whole
from symattn.document.drawing.plot import Plot, PlotAxis, Series, whole_ticks
from symattn.document.drawing.scene import Scene, wrapped
from symattn.document.errors import InputError
from symattn.document.formulas import formula
from symattn.document.keywords import is_integer_within

SEED = 2017  # a fixed seed: the same picture each time
_ERRORS = 2  # standard errors on each side


def scene(dk: int = 512, draws: int = 200, seed: int = SEED) -> Scene:
    """Draw Var(q·k) and Var(q·k/√d_k) over d_k: their law as lines, a sample with two standard errors as points."""
    whole("dk", dk, LIMITS["dk"], 4)
    if not is_integer_within(draws, 10, 20_000):
        raise InputError(f"draws must be an integer from 10 to 20000, got {draws!r}")
    powers = {2**i for i in range(17) if 2**i <= dk}
    sizes = sorted(powers | {dk})
    law = [
        float(
            scaling_numpy.closed(
                scaling_numpy.ScalingSetting(d, None), Fraction(0), formula("Var(s)")
            )
        )
        for d in sizes
    ]
    result = [sampled(d, draws, seed) for d in sizes]
    drawn = Scene(
        "The variance of a score over d_k, with and without scaling",
        _describe_variance_plot(sizes, result, draws, seed),
    )
    x, y = PlotAxis(1, dk, 52, 330), PlotAxis(0.35, 2 * dk, 300, 40)
    drawn.label(10, 22, "variance of a score")
    plot = Plot(drawn, x, y)
    plot.frame(whole_ticks(1, dk), whole_ticks(1, 2 * dk), "{d_k}, width of queries and keys")
    plot.draw(
        (
            _make_variance_series(sizes, law, result, ("Var({q}·{k}) = {d_k}", "unscaled"), False),
            _make_variance_series(
                sizes,
                [v / d for v, d in zip(law, sizes, strict=True)],
                [(v / d, e / d) for (v, e), d in zip(result, sizes, strict=True)],
                ("Var({q}·{k}/√{d_k}) = 1", "divided by √{d_k}"),
                True,
            ),
        )
    )
    outcome = (
        f"Lines: exact, as symattn derive scaling proves. Points: {draws} draws from N(0, 1) for each size, seed "
        f"{seed}; bars: {_ERRORS} standard errors."
    )
    drawn.height = wrapped(drawn, 372, outcome) - 6
    return drawn


def sampled(d_k: int, draws: int, seed: int) -> tuple[float, float]:
    """Return the variance of a sample of scores, drawn as in ``derive scaling``, and its standard error."""
    return scaling_numpy.estimate(
        scaling_numpy.drawn_scores(d_k, 0.0, draws, np.random.default_rng(seed))[0], True
    )


def _make_variance_series(
    sizes: list[int],
    law: list[float],
    results: list[tuple[float, float]],
    words: tuple[str, str],
    scaled: bool,
) -> Series:
    """Return the law as a line and the sample as marks."""
    with_errors = zip(sizes, results, strict=True)
    notes = [f"d_k = {d}: {v:.5g} ± {_ERRORS * e:.2g}" for d, (v, e) in with_errors]
    return Series(
        [(float(d), v) for d, (v, _) in zip(sizes, results, strict=True)],
        words,
        "score" if scaled else "ink",
        "square" if scaled else "disc",
        bars=[_ERRORS * e for _, e in results],
        notes=notes,
        law=[(float(d), v) for d, v in zip(sizes, law, strict=True)],
    )


def _describe_variance_plot(
    sizes: list[int], results: list[tuple[float, float]], draws: int, seed: int
) -> str:
    last, (variance, error) = sizes[-1], results[-1]
    return (
        f"Both axes are logarithmic. Without scaling the variance of q·k is d_k: from 1 at d_k = 1 to {last} at "
        f"d_k = {last}, where {draws} draws (seed {seed}) gave {variance:.5g} ± {_ERRORS * error:.2g}. Divided by √d_k "
        f"it is 1 at every d_k; there the draws gave {variance / last:.3g} ± {_ERRORS * error / last:.2g}."
    )
