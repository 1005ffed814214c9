"""Hints that are written for Python, as the options of the command line: ``causal=True`` is ``--causal``."""

from __future__ import annotations

import re

_HINT = "; hint: "
_SPECIFICATION = re.compile(r"\bAttention\(((?:[^()]|\([^()]*\))*)\)")
_POSITION = re.compile(r"\b(Rotary|Alibi|Buckets|Shaw|TransformerXL|Disentangled)\((\w+)=(\w+)\)")
_WINDOW = re.compile(r"\b(\w+)=\((\w+), (\w+)\)")
_FIELD = re.compile(r"\b(\w+)=(?:'([^']*)'|(\w+))(?!\()")
_KINDS = {"TransformerXL": "transformer-xl"}


def in_options(message: str) -> str:
    """Return a message with the fields of ``Attention`` in its hint as options; what precedes the hint stays.

    >>> in_options("a window looks back; hint: causal=True, or window=(left, right)")
    'a window looks back; hint: --causal, or --window left,right'
    >>> in_options("biases grow; hint: Alibi(two_sided=True)"), in_options("x; hint: score='dot', truncate=None")
    ('biases grow; hint: --position alibi:two_sided=true', 'x; hint: --score dot, --truncate none')
    >>> in_options("x; hint: LinearAttention(scale=True)")
    'x; hint: LinearAttention(scale=True)'
    """
    from symattn.attention.spec_fields import descriptions

    before, mark, hint = message.partition(_HINT)
    if not mark:
        return message

    def option(found: re.Match[str]) -> str:
        field, quoted, bare = found.groups()
        if field not in descriptions():
            return found[0]
        name = field.replace("_", "-")
        switches = {"True": f"--{name}", "False": f"--no-{name}", "None": f"--{name} none"}
        return switches.get(bare or "", f"--{name} {quoted or bare}")

    def position(found: re.Match[str]) -> str:
        kind, field, value = found.groups()
        return f"--position {_KINDS.get(kind, kind.lower())}:{field}={value.lower()}"

    hint = _SPECIFICATION.sub(r"\1", hint)
    hint = _POSITION.sub(position, hint)
    hint = _WINDOW.sub(r"--\1 \2,\3", hint)
    # a field within an option, as --position alibi:two_sided=true, has a colon before it; a definition, such as
    # LinearAttention(scale=True), is written on a command line as in Python
    parts = re.split(r"(--position \S+|\b[A-Z]\w*\([^()]*\))", hint)
    parts[::2] = [_FIELD.sub(option, part) for part in parts[::2]]
    return before + mark + "".join(parts)
