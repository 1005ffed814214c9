"""What is known of the call before the function is: the specification's settings, and what the user told."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Protocol

from symattn.errors import InputError
from symattn.verification.target import Alignment, Framework, Layout


class Settings(Protocol):
    """What is read of ``symattn.Attention``."""

    @property
    def scale(self) -> Any: ...
    @property
    def causal(self) -> bool: ...
    @property
    def alignment(self) -> Any: ...
    @property
    def mask(self) -> Any: ...
    @property
    def padding(self) -> bool: ...
    @property
    def heads(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Request:
    """The specification's settings, and what the user told about the call.

    ``masks`` are the masks that the specification has (``mask``, ``keep``), ``call`` the keywords to pass as they are,
    ``mask_arg`` the parameter that takes the mask (``~name``: it takes the mask's negation).
    """

    dtype: str = "float64"
    layout: Layout = "nd"
    framework: Framework | None = None
    masks: tuple[str, ...] = ()
    causal: bool = False
    alignment: Alignment = "bottom-right"
    scale: float | None = None
    heads: int = 1
    call: tuple[tuple[str, object], ...] = ()
    mask_arg: str | None = None

    @classmethod
    def of(cls, spec: Settings, **told: Any) -> Request:
        """The request for a specification: ``Request.of(Attention(causal=True), dtype="float32", layout="bhnd")``."""
        masks = (("mask",) if spec.mask is not None else ()) + (("keep",) if spec.padding else ())
        return cls(
            masks=masks,
            causal=spec.causal,
            alignment=spec.alignment,
            scale=None if spec.scale is None else float(spec.scale),
            heads=spec.heads,
            **told,
        )


def keyword(text: str) -> tuple[str, object]:
    """``is_causal=true`` → ``("is_causal", True)``: a Python literal, where true, false and none may be small.

    Raises ``InputError`` where there is no name before ``=`` or no literal behind it.
    """
    name, sign, value = (part.strip() for part in text.partition("="))
    if not sign or not name.isidentifier():
        raise InputError(f"--call {text}: give NAME=VALUE, such as is_causal=true")
    words: dict[str, object] = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise InputError(f"--call {text}: {value} is no literal; a word needs quotes, {name}='{value}'") from None
