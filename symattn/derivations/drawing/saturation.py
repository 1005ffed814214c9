"""``saturation``: as d_k grows, the larger of two weights goes to 1 and the slope p(1 − p) to 0 in the typical row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.derivations import scaling_typical
from symattn.derivations.parameters import LIMITS, whole
from symattn.document.drawing.plot import Plot, PlotAxis, Series, tens, whole_ticks
from symattn.document.drawing.scene import Role, Scene, plain, powered, wrapped

Number = Callable[[int, int], Any]
_BITS = 96  # enough for a picture; the claims are decided elsewhere
_LARGEST = 1024  # beyond it, the median leaves the range of the picture


def scene(dk: int = 256) -> Scene:
    """Draw median and mean of ∂p₁/∂(q·k₁) and of the larger weight, for two keys and gaps from N(0, 2d_k), enclosed."""
    whole("dk", dk, min(LIMITS["dk"], _LARGEST), 4)
    powers = {4**i for i in range(6) if 4**i <= dk}
    sizes = sorted(powers | {dk})
    median, mean, scaled = (
        plain(_format_saturated_weight(dk, f))
        for f in (
            scaling_typical.median_slope,
            scaling_typical.mean_slope,
            scaling_typical.scaled_median,
        )
    )
    large = plain(
        _format_saturated_weight(dk, larger("median_smaller", 0), smaller("median_smaller", 0))
    )
    description = (
        f"Two keys. At d_k = {dk} and without scaling, the median slope is {median}, the mean {mean}: the typical row "
        f"collapses, the mean does not. Divided by √d_k, the median with respect to q·k is {scaled}. The median of the "
        f"larger weight is {large} there without scaling."
    )
    drawn = Scene("Saturation: slope and largest of two weights over d_k", description)
    _plot_softmax_slopes(drawn, sizes)
    _plot_larger_weight(drawn, sizes)
    result = (
        "Two keys, components from N(0, 1). Every point is enclosed and correctly rounded, as in symattn derive "
        "scaling. Solid: median over rows; dashed: mean."
    )
    drawn.height = wrapped(drawn, 626, result) - 6
    return drawn


def larger(number: str, square: int) -> Number:
    """Return 1 minus the smaller weight, for gaps with the variance ``square``, or 2d_k if that is 0."""
    return lambda d_k, bits: 1 - scaling_typical.of_gap(square or 2 * d_k, bits, number)


def smaller(number: str, square: int) -> Number:
    """Return the smaller weight, by its name in ``gaussian``; for ``square`` see ``larger``."""
    return lambda d_k, bits: scaling_typical.of_gap(square or 2 * d_k, bits, number)


def _plot_softmax_slopes(drawn: Scene, sizes: list[int]) -> None:
    d_k = sizes[-1]
    least = min(float(scaling_typical.median_slope(d_k, _BITS)), 1e-3)
    drawn.label(10, 22, "slope ∂{p_1}/∂({q}·{k_1})")
    plot = Plot(drawn, PlotAxis(1, d_k, 52, 300), PlotAxis(least / 2, 0.5, 300, 40))
    plot.frame(whole_ticks(1, d_k), tens(least / 2, 0.5), "")
    plot.draw(
        (
            _make_saturation_series(sizes, scaling_typical.mean_slope, "unscaled mean", False),
            _make_saturation_series(sizes, scaling_typical.scaled_median, "1/√{d_k}: median", True),
            _make_saturation_series(sizes, scaling_typical.scaled_mean, "1/√{d_k}: mean", True),
            _make_saturation_series(sizes, scaling_typical.median_slope, "unscaled median", False),
        )
    )


def _plot_larger_weight(drawn: Scene, sizes: list[int]) -> None:
    drawn.label(10, 360, "larger of the two weights")
    plot = Plot(drawn, PlotAxis(1, sizes[-1], 52, 300), PlotAxis(0.5, 1, 544, 380, False))
    marks = [(x / 10, f"{x / 10:g}") for x in range(5, 11)]
    plot.frame(whole_ticks(1, sizes[-1]), marks, "{d_k}")
    plot.draw(
        (
            _make_saturation_series(
                sizes,
                larger("median_smaller", 0),
                "unscaled median",
                False,
                smaller("median_smaller", 0),
            ),
            _make_saturation_series(sizes, larger("mean_smaller", 0), "unscaled mean", False),
            _make_saturation_series(sizes, larger("mean_smaller", 2), "1/√{d_k}: mean", True),
            _make_saturation_series(sizes, larger("median_smaller", 2), "1/√{d_k}: median", True),
        )
    )


def _format_saturated_weight(d_k: int, number: Number, least: Number | None = None) -> str:
    """Return the number correctly rounded; as 1 minus a difference if it rounds to 1."""
    digits = scaling_typical.digits_at(d_k, number)
    if least is not None and float(digits.digits) == 1:
        return f"1 − {powered(scaling_typical.digits_at(d_k, least).digits)}"
    return powered(digits.digits)


def _make_saturation_series(
    sizes: list[int], number: Number, words: str, scaled: bool, least: Number | None = None
) -> Series:
    role: Role = "score" if scaled else "ink"
    shown = [_format_saturated_weight(d, number, least) for d in sizes]
    spread_out = {round(sizes[-1] ** (i / 32), 6) for i in range(33)}
    finer = sorted(spread_out | set(map(float, sizes)))
    return Series(
        [(float(d), float(number(d, _BITS))) for d in sizes],
        (words, shown[-1]),
        role,
        "square" if scaled else "disc",
        dash="5 4" if "mean" in words else "",
        notes=[f"d_k = {d}: {plain(x)}" for d, x in zip(sizes, shown, strict=True)],
        law=[(d, float(number(d, _BITS))) for d in finer],  # type: ignore[arg-type]
    )
