"""Check parameters of a derivation: integers within limits, and a few words."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from symattn.document.errors import InputError
from symattn.document.keywords import is_integer_within, plain_number, unknown

_SIZES: dict[str, tuple[str, int]] = {
    "dk": ("d_k", 65536),
    "dv": ("d_v", 65536),
    "dmodel": ("d_model", 65536),
    "tokens": ("n", 64),
    "keys": ("n_k", 64),
    "heads": ("heads", 64),
    "seed": ("seed", 2**63 - 1),
}
LIMITS = {parameter: most for parameter, (_, most) in _SIZES.items()}
"""The largest value of each number."""

# the smallest and the largest value where arrays are written out
_WRITTEN_OUT = {"jacobian": {"tokens": (2, 5)}}
_SYMBOLS = {parameter: symbol for parameter, (symbol, _) in _SIZES.items()}
_CALLED = {symbol: parameter for parameter, symbol in _SYMBOLS.items()}
"""Letters by which a size may be named as well: ``d_k`` is ``dk``, ``n`` is ``tokens``."""


def checked(
    name: str, known: tuple[str, ...], values: Mapping[str, Any], command: str = "derive"
) -> dict[str, Any]:
    """Return the parameters by their own names; raise InputError for an unknown one, or one beyond its limits."""
    result: dict[str, Any] = {}
    for called, value in values.items():
        parameter = called if called in known else _CALLED.get(called, called)
        if parameter not in known:
            error = unknown(
                f"{command} {name}",
                _SYMBOLS.get(called, called),
                (_SYMBOLS.get(p, p) for p in known),
            )
            options = ", ".join(f"--{p.replace('_', '-')}" for p in known)
            raise InputError(f"{error} (as options: {options})" if options else str(error))
        if parameter in result:
            raise InputError(f"{command} {name}: {_SYMBOLS[parameter]} is given twice")
        result[parameter] = plain_number(value)
        if parameter in LIMITS:
            usual = 0 if parameter == "seed" else 1, LIMITS[parameter]
            least, most = _WRITTEN_OUT.get(name, {}).get(parameter, usual)
            whole(parameter, value, most, least)
    return result


def whole(parameter: str, value: int, most: int, least: int = 1) -> int:
    """Return ``value`` if it is an integer from ``least`` to ``most``. Raises InputError."""
    if not is_integer_within(value, least, most):
        symbol = _SYMBOLS[parameter]
        raise InputError(f"{symbol} must be an integer from {least} to {most}, got {value!r}")
    return value


def number(parameter: str, value: Any, otherwise: str) -> Fraction:
    """Return a finite number as a fraction. Raises InputError, which names the alternative ``otherwise``."""
    try:
        return Fraction(value)
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        raise InputError(f"{parameter}: {value!r} is neither a number nor {otherwise}") from None
