"""All families together. To add one: a file with its ``FAMILY``, and its name here."""

from fnmatch import fnmatchcase
from importlib import import_module

from tests.faults.collection.entries import Entry, Family, Half, Wrong

NAMES = (
    "scaling",
    "masking",
    "softmax",
    "heads",
    "positions",
    "streaming",
    "calls",
    "precisions",
    "variants",
    "torch_programs",
    "norms",
    "rotations",
    "linear",
    "logsums",
    "gradients",
    "torch_gradients",
    "latents",
    "forms",
    "masking_packed",
)


def families() -> tuple[Family, ...]:
    """Each family's entries; a family may be written in several files."""
    found = [import_module(f"tests.faults.collection.{name}").FAMILY for name in NAMES]
    return tuple({family.name: family for family in found}.values())


def right_ones() -> tuple[Entry, ...]:
    """Every right program."""
    return tuple(entry for family in families() for entry in family.right_ones)


def wrong_ones() -> tuple[Wrong, ...]:
    """Every wrong program."""
    return tuple(entry for family in families() for entry in family.wrong_ones)


def chosen(pattern: str = "*", half: Half | None = None) -> tuple[Entry, ...]:
    """Those whose name fits ``pattern`` (``masking.*``), of one half or of both."""
    every: tuple[Entry, ...] = (*right_ones(), *wrong_ones())
    return tuple(e for e in every if fnmatchcase(e.name, pattern) and half in (None, e.half))
