"""The settings of a call before its function is known: those of the specification, and those of the user."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from symattn.attention.inputs import OPTIONAL, required
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Alignment, Framework, Layout, objects_among
from symattn.bounds.domain import Domain
from symattn.document.errors import InputError
from symattn.programs.names import MASKS, SETTINGS

if TYPE_CHECKING:
    from symattn.programs.judging.kernel_form import KernelForm

#: The defaults: settings are listed only where they differ.
_USUAL, _PROMISED = Attention(), Domain()
_OWN = ("causal", "scale", "heads")  # settings with their own field


@dataclass(frozen=True, slots=True)
class Request:
    """The specification's settings, and the user's options for the call.

    ``masks`` are the masks that the specification has (``mask``, ``keep``), ``extras`` its other inputs besides tokens
    and projections, ``optional`` those that may be missing; ``settings`` are its numbers (``kv_heads``, ``softcap``)
    that differ from the defaults. ``call`` holds keywords to pass as they are, ``mask_arg`` the parameter that takes
    the mask (``~name``: it takes the mask's negation), ``mask_axes`` the form of the mask. The layout
    ``auto`` is found by trial, within the domain.
    ``form`` is how a benchmark's kernel takes its inputs, if other than as arrays of one batch.
    ``likely`` is the framework that the function's code names, if the user sets none.
    """

    dtype: str = "float64"
    layout: Layout | Literal["auto"] = "nd"
    framework: Framework | None = None
    likely: Framework | None = None
    masks: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    settings: tuple[tuple[str, object], ...] = ()
    causal: bool = False
    alignment: Alignment = "bottom-right"
    scale: float | None = None
    heads: int = 1
    call: tuple[tuple[str, object], ...] = ()
    mask_arg: str | None = None
    mask_axes: str = ""
    form: KernelForm | None = None
    domain: Domain = field(default=_PROMISED, compare=False)
    spec: Attention = field(default=_USUAL, compare=False)

    @property
    def frameworks(self) -> tuple[Framework, ...]:
        """The frameworks to try, in order."""
        if self.framework is not None:
            return (self.framework,)
        return (
            ("torch", "numpy")
            if self.likely == "torch"
            else ("numpy", "jax" if self.likely == "jax" else "torch")
        )

    def objects(self) -> dict[str, object]:
        """Return the values of ``call`` that are no literals, by keyword: objects of the user's own."""
        return objects_among(self.call)

    @classmethod
    def of(cls, spec: Attention, **keywords: Any) -> Request:
        """Return a request, such as ``Request.of(Attention(causal=True), dtype="float32", layout="bhnd")``."""
        needed = required(spec)
        numbers = {f: getattr(spec, f) for f in SETTINGS if f not in _OWN and hasattr(spec, f)}
        return cls(
            masks=tuple(n for n in needed if n in MASKS),
            extras=tuple(n for n in needed if n not in MASKS),
            optional=tuple(name for name, wanted in OPTIONAL.items() if wanted(spec)),
            # Only what differs from the default is passed.
            settings=tuple((f, x) for f, x in numbers.items() if x != getattr(_USUAL, f)),
            causal=spec.causal,
            alignment=spec.alignment,
            scale=float(spec.scale) if isinstance(spec.scale, Real) else None,
            heads=spec.heads,
            spec=spec,
            **keywords,
        )


@dataclass(frozen=True)
class RequestOrigin:
    """The origin of a specification: the options of a command line, and the attention before fields are changed."""

    options: Mapping[str, object] = field(default_factory=dict)
    spec: Attention = _USUAL


def keyword(text: str) -> tuple[str, object]:
    """Parse ``is_causal=true`` into ``("is_causal", True)``: a Python literal, with true, false and none in any case.

    Raises ``InputError`` if there is no name before ``=`` or no literal after it.
    """
    name, sign, value = (part.strip() for part in text.partition("="))
    if not sign or not name.isidentifier():
        raise InputError(f"--call {text}: give NAME=VALUE, such as is_causal=true")
    # Users write true and false as other languages do.
    words: dict[str, object] = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise InputError(
            f"--call {text}: {value} is not a literal; a word needs quotes, {name}='{value}'"
        ) from None
