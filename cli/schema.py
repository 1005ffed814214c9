"""``symattn schema``: the JSON Schemas of what symattn writes and reads."""

from __future__ import annotations

import click

from .choices import Choice


@click.command("schema")
@click.argument("name", type=Choice(("document", "judgement", "sheet")), default="document")
def command(name: str) -> int:
    """Print the JSON Schema of what -f json gives (document, or judgement for `symattn judge`), or of what
    `symattn walk` takes (sheet).

    \b
    symattn schema sheet > sheet.schema.json
    """
    from symattn.attention.codec.sheet_schema import sheet_schema
    from symattn.document import schemas

    from . import stream

    stream.write(sheet_schema() if name == "sheet" else schemas.text(name))
    return 0
