"""The values of a record that say something, without those of options that are not chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any


def values_in_use(record: Any) -> Iterator[Any]:
    """Yield the values of the fields of a dataclass, without those that ``belongs_to`` assigns to one which is off.

    None and False are off; ``belongs_to`` stands in a field's metadata.
    """
    for f in fields(record):
        owner = f.metadata.get("belongs_to")
        if owner is None or getattr(record, owner):
            yield getattr(record, f.name)
