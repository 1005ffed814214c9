"""Read a candidate's source for notes to a reader, which decide no status.

A judge of calls cannot see what happens at the 2,000th call, or for a number that it never draws; its text may.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

#: Modules that a kernel rarely needs, and what they do.
_MODULES = {
    "inspect": "looks at its callers",
    "gc": "looks at all objects",
    "ctypes": "reaches any memory",
    "subprocess": "starts programs",
    "multiprocessing": "starts processes",
    "threading": "starts threads",
    "socket": "opens connections",
    "urllib": "opens connections",
    "requests": "opens connections",
    "time": "reads clocks",
    "datetime": "reads clocks",
    "random": "draws random numbers",
    "pickle": "loads stored objects",
    "atexit": "runs code at the end of the process",
    "importlib": "imports by name",
    "sys": "looks at the interpreter",
    "os": "reaches files and processes",
}
#: Calls that run text, reach files or change other objects.
_CALLS = ("eval", "exec", "compile", "open", "__import__", "globals", "setattr")
_DIGITS = 8  # of a constant in a comparison that no formula explains
# Further notes are only counted, so that a judgement stays readable.
_MAX_NOTES = 12
_MAX_BYTES = 1 << 21  # of a file that is read


def notes_of_source(path: Path | None) -> tuple[str, ...]:
    """Return notes on the text of a file, one for each kind with its lines; nothing is run."""
    if path is None or path.suffix != ".py":
        return ()
    try:
        if path.stat().st_size > _MAX_BYTES:
            return (f"its source was not read: {path.name} has more than {_MAX_BYTES >> 20} MiB",)
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        # A text that cannot be parsed has no notes; its import reports the error.
        return ()
    lines: dict[str, set[int]] = {}
    for node in ast.walk(tree):
        for words in _words_of(node):
            lines.setdefault(words, set()).add(getattr(node, "lineno", 0))
    notes = [
        f"its source {words} ({_format_line_numbers(lines[words])})"
        for words in sorted(lines, key=lambda w: min(lines[w]))
    ]
    return (
        *notes[:_MAX_NOTES],
        *([f"its source has {len(notes) - _MAX_NOTES} more notes"] * (len(notes) > _MAX_NOTES)),
    )


def _words_of(node: ast.AST) -> Iterator[str]:
    """Yield what there is to say of one node, without its line."""
    finder: Callable[[ast.AST], Iterator[str]] | None = _FINDERS.get(type(node))
    if finder is not None:
        yield from finder(node)


def _yield_notable_imports(node: ast.AST) -> Iterator[str]:
    names = (
        [alias.name for alias in node.names]
        if isinstance(node, ast.Import)
        else [getattr(node, "module", "") or ""]
    )
    for name in names:
        top = name.split(".")[0]
        if top in _MODULES:
            yield f"imports {top}, which {_MODULES[top]}"


def _yield_notable_calls(node: ast.AST) -> Iterator[str]:
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Name) and function.id in _CALLS:
        yield f"calls {function.id}"


def _yield_compared_constants(node: ast.AST) -> Iterator[str]:
    """Yield the long constants of a comparison, or of a pattern: a number that only one input has."""
    values = (
        [node.left, *node.comparators]
        if isinstance(node, ast.Compare)
        # A statement of match has patterns in place of comparisons.
        else [getattr(node, "value", node)]
    )
    for value in values:
        for part in ast.walk(value):
            if isinstance(part, ast.Constant) and _is_long(part.value):
                yield f"compares with the constant {_shorten_constant_text(part.value)}"


def _is_long(value: object) -> bool:
    """Return whether a constant has eight significant digits or more; powers of two, such as 2³⁰, are usual."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, bytes)):
        return False
    # Long hexadecimal texts may be hashes of inputs.
    if isinstance(value, (str, bytes)):
        return len(value) >= 2 * _DIGITS and all(
            c in "0123456789abcdefABCDEF" for c in _convert_constant_to_text(value)
        )
    if isinstance(value, int) and abs(value).bit_count() <= 1:
        return False
    mantissa = _convert_constant_to_text(value).lower().partition("e")[0]
    # Leading and trailing zeros are no significant digits.
    return len("".join(c for c in mantissa if c.isdigit()).strip("0")) >= _DIGITS


def _convert_constant_to_text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _shorten_constant_text(value: object) -> str:
    text = _convert_constant_to_text(value)
    return text if len(text) <= 2 * _DIGITS else f"{text[:_DIGITS]}…"


def _format_line_numbers(lines: set[int]) -> str:
    few = [str(line) for line in sorted(lines)[:3]]
    more = ", …" * (len(lines) > len(few))
    return f"line{'s' * (len(lines) > 1)} {', '.join(few)}{more}"


#: What is looked for in each type of node.
_FINDERS: dict[type, Callable[[ast.AST], Iterator[str]]] = {
    ast.Import: _yield_notable_imports,
    ast.ImportFrom: _yield_notable_imports,
    ast.Call: _yield_notable_calls,
    ast.Compare: _yield_compared_constants,
    ast.MatchValue: _yield_compared_constants,
}
