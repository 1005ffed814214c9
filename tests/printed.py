"""What the command line prints: as JSON, in this process, its listings and the JSON Schemas; columns of a line."""

import json
import re
import unicodedata
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from typing import Any

import jsonschema

from symattn_cli.main import main

_COLOUR = re.compile(r"\x1b\[\d*m")


def count_columns(line: str) -> int:
    """The columns that a terminal takes for a line: none for colours and combining marks, two for wide letters."""
    letters = [letter for letter in _COLOUR.sub("", line) if not unicodedata.combining(letter)]
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in letters)


def printed_json(*words: str) -> Any:
    """What ``symattn WORDS`` prints, read."""
    printed = BytesIO()
    with redirect_stdout(TextIOWrapper(printed, encoding="utf-8", write_through=True)) as shown:
        assert main(words) == 0
        shown.flush()
        return json.loads(printed.getvalue())


def schema_of(kind: str) -> Any:
    """The schema of documents, judgements or sheets."""
    return printed_json("schema", kind)


def validator(kind: str) -> jsonschema.Draft202012Validator:
    """A validator by the schema of documents, judgements or sheets."""
    return jsonschema.Draft202012Validator(schema_of(kind))
