"""``error``: the largest error of a correct implementation and the bound that none exceeds, over n, d_k and dtype."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.bounds.storing import FORMATS
from symattn.document.drawing.plot import Plot, PlotAxis, Series, tens, whole_ticks
from symattn.document.drawing.scene import Scene, plain, powered, wrapped
from symattn.verification.tolerances import weighing
from symattn.verification.tolerances.tolerance import bound

SEED = 2017  # of the random entries; the bound does not depend on it
_QUERIES, _D_V = 8, 16
_KEYS, _WIDTHS, _N, _D_K = (16, 64, 256, 1024), (4, 16, 64, 256), 256, 64


def scene(seed: int = SEED) -> Scene:
    """Draw the bound of ``symattn bound`` for entries from N(0, 1), and the error on random entries."""
    # The same quantity over both sizes: only one varies in each panel.
    drawn = Scene("Error of attention against its bound, over n, d_k and dtype")
    over_n = _draw_error_panel(
        drawn, [(n, _D_K) for n in _KEYS], f"n keys, {{d_k}} = {_D_K}", 0.0, seed
    )
    over_d = _draw_error_panel(
        drawn, [(_N, d) for d in _WIDTHS], f"{{d_k}}, for n = {_N} keys", 330.0, seed
    )
    drawn.description = plain(
        f"Over n at d_k = {_D_K}, the last of each line: {over_n}. Over d_k at n = {_N}: {over_d}."
    )
    note = (
        "Squares: the tolerance of symattn bound for entries from N(0, 1), which no correct implementation "
        f"exceeds except for inputs of a probability of 10{{^−9}}. Discs: the largest error of {_QUERIES} outputs of "
        f"{_D_V} entries against float64; sums in float32, inputs and outputs in the type; seed {seed}."
    )
    drawn.height = wrapped(drawn, 676, note) - 6
    return drawn


def largest_error(n: int, d_k: int, dtype: str, seed: int) -> float:
    """Return max |c − o| on entries from N(0, 1) in ``dtype``: c with sums in float32 and rounded, o in float64."""
    rng = np.random.default_rng(seed)
    spec = Attention()
    precision = Precision.of(dtype, "fused")
    shapes = {"q": (_QUERIES, d_k), "k": (n, d_k), "v": (n, _D_V)}
    inputs = {
        name: precision.input.rounded(rng.standard_normal(shape)) for name, shape in shapes.items()
    }
    return float(np.abs(weighing.legal(spec, inputs, precision) - spec(**inputs)).max())


def _draw_error_panel(
    drawn: Scene, sizes: Sequence[tuple[int, int]], name: str, y: float, seed: int
) -> str:
    """Draw errors and bounds over the size that varies; return a description of the last points."""
    # The size that takes more than one value is the axis.
    varied = [n if len({n for n, _ in sizes}) > 1 else d for n, d in sizes]
    drawn.label(10, y + 22, "largest error, and its bound")
    result, outcome = [], []
    # Both kinds of points in one panel, so that the distance between them is seen.
    for dtype in FORMATS:
        bounds = [bound(n=n, d_k=d, dtype=dtype).value for n, d in sizes]
        errors = [largest_error(n, d, dtype, seed) for n, d in sizes]
        notes = [
            [
                f"{dtype}, n = {n}, d_k = {d}: {plain(_format_error_digits(x))}"
                for (n, d), x in zip(sizes, of, strict=True)
            ]
            for of in (bounds, errors)
        ]
        points = [
            [(float(s), x) for s, x in zip(varied, of, strict=True)] for of in (bounds, errors)
        ]
        result.append(Series(points[0], (f"{dtype} bound",), "ink", "square", notes=notes[0]))
        result.append(
            Series(points[1], (f"{dtype} error",), "score", "disc", dash="5 4", notes=notes[1])
        )
        outcome.append(
            f"{dtype} {_format_error_digits(errors[-1])} of at most {_format_error_digits(bounds[-1])}"
        )
    every = [value for one in result for _, value in one.points]
    # A factor of two as margin, since the axis is logarithmic.
    low, high = min(every) / 2, max(every) * 2
    plot = Plot(
        drawn, PlotAxis(varied[0], varied[-1], 60, 318), PlotAxis(low, high, y + 270, y + 40)
    )
    plot.frame(whole_ticks(varied[0], varied[-1]), tens(low, high), name)
    plot.draw(result)
    return "; ".join(outcome)


def _format_error_digits(x: float) -> str:
    return powered(f"{x:.2g}")
