"""The values of settings: what a parameter such as ``scale``, ``causal`` or ``rope_theta`` is to be given."""

from __future__ import annotations

from typing import Any

from symattn.attention.positions.fields import Position
from symattn.sources.names import OF_POSITIONS, SETTINGS, TILE
from symattn.sources.request import Request


def setting(what: str, required: bool, usual: object, request: Request) -> object:
    """The value of a setting; None where it is left to the function. ``usual`` is the parameter's own default.

    A result beside the output (``return_lse``) is refused where it would be given, and so is training.
    """
    if what == "lse":
        return request.spec.lse if required or bool(usual) is not request.spec.lse else None
    if what == "more":
        return False if required or usual is True else None
    if what == "repeats":
        spec = request.spec
        return spec.heads // spec.key_heads if required or spec.heads > spec.key_heads else None
    if what == "tile":
        return TILE if required else None
    if what in OF_POSITIONS:
        return _of_position(what, request.spec.position)
    if what == "heads":
        return request.heads if required or request.heads > 1 else None
    if what == "dropout":
        return 0.0 if required else None
    if what == "scale":
        return request.scale
    found = dict(request.settings).get(what)
    return request.heads if what == "kv_heads" and required and found is None else found


def is_setting(what: str) -> bool:
    """Whether it is a setting, and no array."""
    return what in SETTINGS or what in OF_POSITIONS or what in ("lse", "more", "tile", "repeats")


def _of_position(what: str, position: Position | None) -> Any:
    """The field of a position by that name, None where there is none."""
    found = getattr(position, OF_POSITIONS[what], None)
    if what == "interleaved":
        return None if found is None else found == "interleaved"
    return found
