"""``scaling``: why attention divides by √d_k."""

from __future__ import annotations

from fractions import Fraction

from symattn.attention.notation import D_K
from symattn.derivations import scaling_moments
from symattn.derivations.jacobian import derivative, properties, softmax_section
from symattn.derivations.parameters import LIMITS, number_or_letter, whole
from symattn.derivations.scaling_gap import gap
from symattn.derivations.scaling_laws import Setting, at_size
from symattn.derivations.scaling_numpy import compared, evidence
from symattn.derivations.scaling_typical import TYPICAL, typical
from symattn.document.codec import command
from symattn.document.errors import InputError
from symattn.document.model import Block, Document, Heading
from symattn.document.notation import Root

_LARGEST_MEAN = 999_999
_TAKEN = frozenset(["q", "k", "s", "p", "d", "n", "e", "E", "i", "j", "c", "X", "sigma", "Sigma"])


def derivation(dk: int = 4, mean: object = None, seed: int = 0) -> Document:
    """Moments of q·k, what 1/√d_k does, the Jacobian of softmax, and its size in the typical row and in the mean."""
    whole("dk", dk, LIMITS["dk"])
    setting = Setting(dk, None if mean is None else _mean(mean))
    return Document(
        "derivation",
        "scaling",
        ("Why attention divides by ", Root(D_K)),
        _blocks(setting, seed),
        subtitle=("a complete derivation, specialised to ", at_size(setting)),
        command=command("derive", "scaling", options={"dk": dk, "mean": mean, "seed": seed or None}),
        parameters={"dk": dk, "mean": None if mean is None else str(mean), "seed": seed},
        hints=_hints(dk),
    )


def _blocks(setting: Setting, seed: int) -> tuple[Block, ...]:
    comparison, softmax = compared(setting, seed), softmax_section()
    means = scaling_moments.other_means(setting) if setting.mean != 0 else ()
    before = (
        *scaling_moments.score(setting),
        *scaling_moments.variance(setting, evidence(comparison)),
        *scaling_moments.divisors(setting),
    )
    between = (
        *means,
        *scaling_moments.differences(setting),
        Heading(("The softmax Jacobian",)),
        *derivative(softmax, 3),
        *properties(softmax, "Result"),
        *gap(),
    )
    dropped = scaling_moments.OTHER_MEANS if setting.mean is None else ""
    return (setting.assumptions(dropped, TYPICAL), *before, *between, *typical(setting.d_k), *comparison)


def _mean(given: object) -> Fraction | str:
    value = number_or_letter("mean", given)
    if isinstance(value, str) and value in _TAKEN:
        raise InputError(f"mean: {value} already has a meaning here; hint: use another letter, such as mu")
    if isinstance(value, Fraction) and max(abs(value.numerator), value.denominator) > _LARGEST_MEAN:
        raise InputError(f"--mean must be a number with at most 6 digits above and below the bar, got {given}")
    return value


def _hints(dk: int) -> tuple[str, ...]:
    return (
        f"symattn derive scaling --dk {dk} --mean mu     the means not zero",
        "symattn derive jacobian                  how softmax answers its scores",
        f"symattn derive scaling --dk {dk} -o scaling.tex",
    )
