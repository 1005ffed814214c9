"""The worked examples that ship with symattn: one JSON sheet each, found by name or alias, in any case."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from symattn.attention.codec.json_text import short
from symattn.derivations.sheets.sheet import Sheet, from_text
from symattn.document.errors import InputError, near
from symattn.document.model import Block, Code, Document, Listing, Paragraph

NAMES = (
    "eight-step", "different-sizes", "cross", "parameter-free", "ground-up", "word-vectors", "word-vectors-before",
    "money-bank-grows", "river-bank-flows", "average-meaning", "decoder-step", "latent", "additive", "sparsemax", "t5",
    "alibi", "relative", "documents",
)  # fmt: skip


def names() -> dict[str, str]:
    """Return the titles by name, in a good order for reading."""
    return {name: str(_load_example_sheet(name)["title"]) for name in NAMES}


def find(word: str) -> str | None:
    """Return the name of the example that ``word`` names, or None."""
    return _map_words_to_examples().get(word.lower().replace(" ", "-"))


def load(name: str) -> Sheet:
    """Return the example's sheet. Raises InputError, with a suggestion, if there is none of that name."""
    result = resolved(name)
    return from_text(_read_example_file(result), f"example {result}", result)


def show(name: str) -> Document:
    """Return the example as a sheet that a user can copy and edit."""
    result = resolved(name)
    data = _load_example_sheet(result)
    words = [f"From {data['source']}."] if data.get("source") else []
    words += filter(None, data.get("notes", ()))
    copy = f"symattn examples show {result} -f json -o sheet.json"
    also = "Other names: " + ", ".join(data["aliases"]) + ". "
    blocks: tuple[Block, ...] = (
        *(Paragraph((text,)) for text in words),
        Listing(_read_example_file(result).decode(), "json"),
        Paragraph((also, "To edit a copy and walk through it: ", Code(copy))),
    )
    return Document(
        "listing",
        result,
        (str(data["title"]),),
        blocks,
        command=f"symattn examples show {result}",
        record={"sheet": data},
        hints=(f"symattn walk {result}", copy, "symattn walk sheet.json"),
    )


def resolved(word: str) -> str:
    """Return the name that ``word`` stands for. Raises InputError, with a suggestion."""
    result = find(word)
    if result is None:
        suggestion = near(word.lower(), _map_words_to_examples())
        raise InputError(f"unknown example {short(word)!r}.{suggestion} Known: {', '.join(NAMES)}")
    return result


@cache
def _map_words_to_examples() -> dict[str, str]:
    return {
        word.lower(): name
        for name in NAMES
        for word in (name, *_load_example_sheet(name)["aliases"])
    }


@cache
def _load_example_sheet(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(_read_example_file(name))
    return data


@cache
def _read_example_file(name: str) -> bytes:
    return files(__package__).joinpath(f"{name}.json").read_bytes()
