"""Mistakes in the cap of scores."""

from __future__ import annotations

from functools import partial
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.softcap import softcap
from symattn.attention.spec import Attention
from symattn.verification.known.mistake import (
    Mistake,
    before,
    both,
    in_fields,
    in_steps,
    masked,
    number,
    own,
    with_fields,
)
from symattn.verification.known.scales import is_scaled
from symattn.verification.reference import Values


def _cap(spec: Attention, s: Any) -> Any:
    return softcap(s, spec.softcap)


def capped_before_scale(spec: Attention, values: Values) -> Any:
    """The cap on the products, and then the scale."""
    return own(spec, values, "scaled", _cap(spec, before(spec, values, "scaled")))


def cap_not_multiplied(spec: Attention, values: Values) -> Any:
    """tanh(s/c), not multiplied by c."""
    s = own(spec, values, "capped")
    return s / number(s, spec.softcap)


def cap_not_divided(spec: Attention, values: Values) -> Any:
    """c tanh(s)."""
    s = before(spec, values, "capped")
    return namespace_of(s).tanh(s) * number(s, spec.softcap)


def capped_twice(spec: Attention, values: Values) -> Any:
    """The cap applied again."""
    return _cap(spec, own(spec, values, "capped"))


def clipped(spec: Attention, values: Values) -> Any:
    """Scores cut off at −c and c."""
    s = before(spec, values, "capped")
    xp, c = namespace_of(s), number(s, spec.softcap)
    return xp.maximum(xp.minimum(s, c), -c)


def capped_after_mask(spec: Attention, values: Values) -> Any:
    """Masked scores, all of them through the cap: c tanh(−∞/c) = −c."""
    s = own(spec, values, "masked")
    xp = namespace_of(s)
    finite = _cap(spec, xp.where(xp.isfinite(s), s, 0))
    return xp.where(xp.isfinite(s), finite, -number(s, spec.softcap))


def capped_with_mask(spec: Attention, values: Values) -> Any:
    """The cap comes last, over biases too; forbidden scores stay forbidden."""
    s = own(spec, values, "masked")
    xp = namespace_of(s)
    finite = _cap(spec, xp.where(xp.isfinite(s), s, 0))
    return xp.where(xp.isfinite(s), finite, s)


def _not_capped(spec: Attention, values: Values) -> Any:
    return before(spec, values, "capped") * 1


def _capped_last(name: str, spec: Attention, values: Values) -> Any:
    """The cap over scores and what is added to them, before the masks."""
    return _cap(spec, own(spec, values, name))


def _has_cap(spec: Attention) -> bool:
    return spec.softcap is not None


def _finite_mask(spec: Attention) -> bool:
    return spec.mask == "additive"


_LATE = "which leaves them a weight"

MISTAKES: tuple[Mistake, ...] = (
    in_fields("softcap", "the cap is left out", _has_cap, with_fields(softcap=None)),
    in_steps(
        "softcap",
        "the cap comes before the scale",
        both(_has_cap, is_scaled),
        scaled=capped_before_scale,
        capped=_not_capped,
    ),
    in_steps("softcap", "the cap is tanh(s/c), not multiplied by c again", _has_cap, capped=cap_not_multiplied),
    in_steps("softcap", "the cap is c tanh(s): scores are not divided by c", _has_cap, capped=cap_not_divided),
    in_steps("softcap", "the cap is applied twice", _has_cap, capped=capped_twice),
    in_steps("softcap", "scores are cut off at the cap ±c, in place of c tanh(s/c)", _has_cap, capped=clipped),
    in_steps(
        "softcap",
        f"the cap comes after the mask: forbidden scores become −c, {_LATE}",
        both(_has_cap, masked),
        capped=_not_capped,
        masked=capped_after_mask,
    ),
    in_steps(
        "softcap",
        "the cap comes after the mask that is added",
        both(_has_cap, _finite_mask),
        capped=_not_capped,
        masked=capped_with_mask,
    ),
    in_steps(
        "softcap",
        "the cap comes after the bias",
        both(_has_cap, lambda s: s.bias),
        capped=_not_capped,
        biased=partial(_capped_last, "biased"),
    ),
    in_steps(
        "softcap",
        "the cap comes after the positions' biases",
        both(_has_cap, lambda s: type(s.position).__name__ in ("Alibi", "Buckets")),
        capped=_not_capped,
        positioned=partial(_capped_last, "positioned"),
    ),
)
