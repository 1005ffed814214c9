"""What the command line prints as JSON, in this process: its listings, and the JSON Schemas."""

import json
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from typing import Any

import jsonschema

from symattn_cli.main import main


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
