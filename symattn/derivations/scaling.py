"""``scaling``: why attention divides by √d_k."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from symattn.derivations import jacobian, scaling_numpy, scaling_typical
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.parameters import number
from symattn.derivations.steps import of_all
from symattn.document import characters
from symattn.document.codec import command
from symattn.document.errors import InputError
from symattn.document.evidence import Evidence, Grade
from symattn.document.formulas import formula
from symattn.document.model import Block, Document, Result, Step, Steps
from symattn.document.notation import At, Node, Relation, Row, Words, equals

OTHER_MEANS = "If the means are nonzero"
"""The section that drops A3."""
_LARGEST_MEAN = 999_999  # above or below the bar, so that formulas fit on a line
_WRITTEN_OUT = 4  # longer sums are not written out
_TAKEN = frozenset(["q", "k", "s", "p", "d", "n", "e", "E", "i", "j", "c", "X", "sigma", "Sigma"])
_BEGINS = """
Why attention divides by $√d_k$
subtitle: a complete derivation, specialised to $@at$
hint: symattn derive scaling --dk @dk --mean mu     if the means are nonzero
hint: symattn derive jacobian                  how softmax responds to its scores
hint: symattn derive scaling --dk @dk -o scaling.tex
letters uniform: new | s n | index j n
"""
_LETTERS = """
letters any: new | q d_k, k d_k, c | sizes d_k d_k | index i d_k | rows | laws q σ @m, k σ @m
letters row: new | q d_k, K 2 d_k | sizes d_k d_k | index i d_k, j 2 | rows | laws q σ @m, K σ @m
letters main: any@k | where s = q·k
letters end: row@K | where s_j = q·k_j
A1 (moments): $q_1, …, q_{d_k}$ share mean $@mu$ and variance $σ²$; so do $k_1, …, k_{d_k}$
A2 (independent): All $2 d_k$ components are independent :: no Gaussian shape is needed
"""
_ZERO = "A3 main (centred): Zero mean, $@mu = 0$"
_NORMAL = "A4: $Δ = s_1 - s_2$ is normal, with mean 0 and variance $2 d_k σ⁴$"
_SECOND = "$E[q_1²] = σ² + @mu²$"
_SCORE = """
# The score and its mean
any:= s = q·k = Σ_{i=1}^{d_k} q_i k_i
@written
any- E[s] = Σ_{i=1}^{d_k} E[q_i k_i] :: linearity
any- E[s] = Σ_{i=1}^{d_k} E[q_i] E[k_i] :: the components are independent
any- E[s] = d_k @mu² :: equal means
"""
_VARIANCE = """
# Its variance grows with $d_k$
any- Var(s) = Σ_{i=1}^{d_k} Var(q_i k_i) :: the products are independent
any- Var(s) = d_k (E[q_1² k_1²] - E[q_1 k_1]²) :: equal terms, $Var(q_1 k_1) = E[q_1² k_1²] - E[q_1 k_1]²$
any- Var(s) = d_k (E[q_1²] E[k_1²] - E[q_1]² E[k_1]²) :: the factors are independent
"""
_CENTRED = """
main- Var(s) = d_k E[q_1²] E[k_1²] :: zero means
main- Var(s) = d_k·σ²·σ² = d_k σ⁴ :: $E[q_1²] = σ² + @mu²$ with $@mu = 0$
"""
_GENERAL = """
any- Var(s) = d_k ((σ² + @mu²)² - @mu⁴) :: {}
any- Var(s) = d_k σ² (σ² + 2 @mu²) :: {}
"""
_NONZERO = "with nonzero means, expanded"
_DIVISORS = """
insert variance
# What $1/√d_k$ does, and $1/d_k$ does not
main- Var(s/√d_k) = Var(s)/d_k = @one :: $Var(c s) = c² Var(s)$
main- Var(s/d_k) = Var(s)/d_k² = @one/d_k :: the same
main→ Var(s/d_k) → 0 :: d_k → ∞ :: @one/d_k
uniform- softmax_j(0 s) = 1/n :: equal scores
Divided by $√d_k$, scores vary as much for every $d_k$. Divided by $d_k$, their differences vanish as $d_k$ grows, and
    by the last step every weight tends to $1/n$: all keys are averaged.
"""
_MEANS = """
any- E[s/√d_k] = d_k @mu²/√d_k = √d_k @mu² :: linearity
The variance is still linear in $d_k$, so $1/√d_k$ still removes the growth of the *variance*; the mean is only
    reduced, from $d_k @mu²$ to $√d_k @mu²$. Softmax ignores what all scores of a row share, so what matters is a
    difference.
"""
_DIFFERENCES = """
# The difference of two scores
row:= s_j = q·k_j = Σ_{i=1}^{d_k} q_i k_ji :: key j; A1 and A2 for all keys
row- Cov(s_1, s_2) = d_k @mu² σ² :: the query is shared
row- Var(s_1 - s_2) = Var(q·(k_1 - k_2)) :: the dot product is linear
row- Var(s_1 - s_2) = Var(s_1) + Var(s_2) - 2 Cov(s_1, s_2)
row- Var(s_1 - s_2) = 2 d_k σ² (σ² + @mu²) :: the moments of the components
"""
_JACOBIAN = f"""
insert difference
# The softmax Jacobian
{jacobian.DERIVATIVE}
{jacobian.PROPERTIES}
"""
_ANSWER = """
Divided by $√d_k$, scores vary as much for every $d_k$. Divided by $d_k$, their differences vanish as $d_k$ grows, and
    softmax averages all keys.
caveat: The assumptions do not describe a trained network, whose queries and keys depend on each other. No divisor is
    shown to be best. Without one, gradients vanish in the typical row, but not in the mean over rows.
"""
_DIVIDED = tuple(map(formula, ("Var(s/√d_k)", "Var(s/d_k)")))
_GAP = """
letters gap: new | top, Δ, d r | sizes n 1+r | index i 1+r, j 1+r, ℓ 1+r, l r | places m 0 | positive Δ | nonnegative d
    | where s = (top, (top − Δ) 𝟏 − d)
with gap: $p = softmax(s)$
# A large gap makes every entry of $J$ small
let gap: Let the largest score $s_m$ lead all others by at least $Δ > 0$, and put $ε = 1 - p_m$.
gap- ε = R/(1 + R) :: $R = Σ_{ℓ≠m} e^{s_ℓ - s_m}$
gap- R ≤ (n - 1) e^{-Δ} :: no term is larger than $e^{-Δ}$
    gap (n - 1) e^{-Δ}: Σ_l e^{-Δ - d_l} (e^{d_l} - 1)
gap- ε ≤ (n - 1) e^{-Δ}/(1 + (n - 1) e^{-Δ}) ≤ (n - 1) e^{-Δ} :: $x/(1 + x)$ grows
    gap (n - 1) e^{-Δ}/(1 + (n - 1) e^{-Δ}): {Σ_l e^{-Δ - d_l} (e^{d_l} - 1)}/((1 + R) (1 + (n - 1) e^{-Δ}))
    gap (n - 1) e^{-Δ}: (n - 1) e^{-Δ} (n - 1) e^{-Δ}/(1 + (n - 1) e^{-Δ})
gap- p_i (1 - p_i) ≤ ε :: for each $i$
    gap ε: δ_im {Σ_{ℓ≠m} p_ℓ} {Σ_{ℓ≠m} p_ℓ} + δ̄_im (Σ_{ℓ≠m} δ̄_ℓi p_ℓ + p_i²)
gap- max_i 2 p_i (1 - p_i) ≤ 2 ε :: the left side is $‖J‖_∞$
    gap 2 ε: 2 (δ_im {Σ_{ℓ≠m} p_ℓ} {Σ_{ℓ≠m} p_ℓ} + δ̄_im (Σ_{ℓ≠m} δ̄_ℓi p_ℓ + p_i²))
insert end
"""


def derivation(dk: int = 4, mean: object = None, seed: int = 0) -> Document:
    """Derive moments of q·k, the effect of 1/√d_k, and the Jacobian of softmax, its size typically and in the mean."""
    setting = scaling_numpy.ScalingSetting(
        dk, None if mean is None else _parse_component_mean(mean)
    )
    comparison = scaling_numpy.numpy_section(setting, seed)
    values: dict[str, Any] = {
        "at": scaling_numpy.at_size(setting),
        "mu": setting.mu,
        "dk": dk,
        "one": variance_formula(setting, ""),
        "matrix": jacobian.matrix(3),
        "tokens": 3,
        "end": (*scaling_typical.typical(dk), *comparison),
        "here": At(formula("Var(s)"), scaling_numpy.at_size(setting)),
        "spread": _at_size(setting, True),
    }
    text = DerivationText({"": jacobian.letters()}, **values)
    text.values |= {
        "variance": _yield_variance_result(text, setting, scaling_numpy.evidence(comparison)),
        "difference": _yield_score_gap_result(text, setting),
    }
    return text.document(
        "scaling",
        _write_scaling_text(setting),
        command=command(
            "derive", "scaling", options={"dk": dk, "mean": mean, "seed": seed or None}
        ),
        parameters={"dk": dk, "mean": None if mean is None else str(mean), "seed": seed},
    )


def answer(document: Document) -> tuple[Block, ...]:
    """Return what the answer in short says after Result 1: what dividing does, nonzero means, and the limits."""
    every = [step for block in document.blocks if isinstance(block, Steps) for step in block.items]
    answers = tuple(filter(_is_of_answer, every))
    return Steps(answers), *DerivationText().blocks(_ANSWER)


def _is_of_answer(step: Step) -> bool:
    """Return whether the answer in short keeps a step of its later parts: what dividing does, or nonzero means."""
    divided = isinstance(step.formula, Relation) and step.formula.first in _DIVIDED
    by_numpy = step.evidence is not None and step.evidence.grade is not Grade.PROVED
    return (divided and not by_numpy) or step.reason == (_NONZERO,)


def _write_scaling_text(setting: scaling_numpy.ScalingSetting) -> str:
    """Return the text for means that are 0, that have a value, or first 0 and then any."""
    centred = setting.centred
    dropped = f" :: dropped in “{OTHER_MEANS}”" if setting.mean is None else ""
    means = f"# {OTHER_MEANS if centred else 'The mean still grows'}"
    general = _GENERAL.format("the moments of the components", _NONZERO)
    spread = f"{general}any- @here = @spread :: at one size" if centred else ""
    terms = (f"q_{i} k_{i}" for i in range(1, setting.d_k + 1))
    products = " + ".join(terms)
    written = f"main- s = {products} :: $@at$\n" if 1 < setting.d_k <= _WRITTEN_OUT else ""
    parts = (
        _BEGINS.replace("@dk", str(setting.d_k)),
        assumed(setting),
        (f"{_ZERO}{dropped}\n{_NORMAL}" if centred else f"{_NORMAL}, as at $@mu = 0$")
        + f" :: for “{scaling_typical.TYPICAL}” alone",
        _SCORE.replace("@written\n", written),
        "main- E[s] = 0 :: zero mean" if centred else "",
        _VARIANCE,
        _CENTRED if centred else _GENERAL.format(_SECOND, "expanded"),
        _DIVISORS,
        *((means, spread, _MEANS) if setting.mean != 0 else ()),
        _DIFFERENCES,
        "end- Var(s_1 - s_2) = 2 d_k σ⁴ :: zero means" if centred else "",
        _JACOBIAN,
        _GAP,
    )
    return "\n".join(part.strip() for part in parts if part)


def _parse_component_mean(given: object) -> Fraction | str:
    value = _number_or_letter("mean", given)
    if isinstance(value, str) and value in _TAKEN:
        raise InputError(
            f"mean: {value} already has a meaning here; hint: use another letter, such as mu"
        )
    if isinstance(value, Fraction) and max(abs(value.numerator), value.denominator) > _LARGEST_MEAN:
        raise InputError(
            f"--mean must be a number with at most 6 digits above and below the bar, got {given}"
        )
    return value


def _number_or_letter(parameter: str, value: object) -> Fraction | str:
    """Return a number as a fraction, or a letter such as m or mu. Raises InputError."""
    if isinstance(value, str) and (
        value in characters.GREEK or (len(value) == 1 and value.isalpha())
    ):
        return value
    return number(parameter, value, "a letter such as mu")


def assumed(setting: scaling_numpy.ScalingSetting) -> str:
    """Return the letters, with zero means in the main derivation if A3 is assumed, and the first assumptions."""
    result, mean = _LETTERS, setting.mu.base
    for key in "kK":
        result = result.replace(
            f"@{key}", f" | but {mean} | laws q σ, {key} σ" if setting.centred else ""
        )
    return result.replace("σ @m,", f"σ {mean},").replace("σ @m\n", f"σ {mean}\n")


def variance_formula(setting: scaling_numpy.ScalingSetting, size: str) -> Node:
    """Return d_k σ⁴, or d_k σ²(σ² + 2μ²) for means other than 0."""
    return setting.formula(size + ("σ⁴" if setting.centred else "σ² {σ² + 2 @mu²}"))


def _yield_variance_result(
    text: DerivationText, setting: scaling_numpy.ScalingSetting, by_numpy: tuple[Evidence, ...]
) -> Iterator[Result]:
    section, variance = text.sections["main"], formula("Var(q·k)")

    def claimed(left: Node, right: Node) -> Step:
        return section.claim(equals(left, right), ())

    every = claimed(variance, variance_formula(setting, "d_k "))
    claim = At(variance, scaling_numpy.at_size(setting))
    here = claimed(claim, _at_size(setting, not setting.centred))
    scaled = claimed(formula("Var({q·k}/√d_k)"), variance_formula(setting, ""))
    formulas: list[Node] = [
        Row((every.formula, here.formula)),
        Row((scaled.formula, Words("for every"), scaling_numpy.D_K)),
    ]
    if isinstance(setting.mean, Fraction) and setting.mean:
        at_mean = formula("d_k σ² {σ² + @twice}", values={"twice": 2 * setting.mean**2})
        at_value = At(variance, equals(setting.mu, setting.mean))
        formulas.append(claimed(at_value, at_mean).formula)
    yield Result("Result", tuple(formulas), (of_all(every, scaled, here), *by_numpy))


def _at_size(setting: scaling_numpy.ScalingSetting, general: bool) -> Node:
    """Return the variance at a size: 4σ⁴, or 4σ⁴ + 8μ²σ²."""
    d_k = setting.d_k
    coefficient = d_k if d_k > 1 else ""
    return setting.formula(f"{coefficient} σ⁴" + f" + {2 * d_k} @mu² σ²" * general)


def _yield_score_gap_result(
    text: DerivationText, setting: scaling_numpy.ScalingSetting
) -> Iterator[Result]:
    inner = "σ⁴" if setting.centred else "σ² {σ² + @mu²}"
    typed = ("Var(s_1 - s_2)", f"2 d_k {inner}"), ("Var({s_1 - s_2}/√d_k)", f"2 {inner}")
    rows = [text.sections["end"].claim(equals(*map(setting.formula, sides)), ()) for sides in typed]
    formulas = (r.formula for r in rows)
    every_width = (*formulas, Words("for every"), scaling_numpy.D_K)
    yield Result("Result", (Row(every_width),), (of_all(*rows),))
