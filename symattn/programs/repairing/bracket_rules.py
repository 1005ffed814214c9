"""The rule that moves one round bracket within a statement: ``f(a) + b`` for ``f(a + b)``, ``(a > b) - c``."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from keyword import iskeyword

from symattn.programs.repairing.edits import (
    LOOKED_AT,
    BlockRule,
    BlockStatement,
    narrowed,
    shown_change,
)
from symattn.verification.repair import Replacement

_LONGEST = 160  # characters of a statement whose brackets are moved
_MOST = 60  # edits of one statement
_OPENING, _CLOSING = "([{", ")]}"
#: Statements of one expression.
_SIMPLE = (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)
# tokens beyond which a bracket would take another argument, or leave its expression
_ENDS = (",", "=", ":", ":=")
_Token = tokenize.TokenInfo


def move_bracket(s: BlockStatement) -> Iterator[tuple[Sequence[Replacement], str, str]]:
    """The statement with the closing, or the opening, bracket of a pair at another operand."""
    old = s.text(s.node)
    if not isinstance(s.node, _SIMPLE) or "\n" in old or len(old) > _LONGEST:
        return
    known = {ast.dump(ast.parse(old.strip()))} if _is_code(old) else set()
    count = 0
    for new in _texts_with_moved_bracket(old) if known else ():
        if not _is_code(new):
            continue
        tree = ast.dump(ast.parse(new))
        # Brackets that change nothing, or as others do, give no edit.
        if tree in known:
            continue
        known.add(tree)
        yield [narrowed(s.put(s.node, new), old)], *shown_change(old, new)
        count += 1
        if count == _MOST:
            return


def _is_code(text: str) -> bool:
    try:
        # Outside of a function a return parses, too.
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _texts_with_moved_bracket(text: str) -> Iterator[str]:
    """Yield a text of one line with one of its round brackets moved over operands."""
    tokens = [
        t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.string.strip() != ""
    ]
    for first, last in _pairs_of_brackets(tokens):
        begin, end = tokens[first].start[1], tokens[last].start[1]
        for at in _ends_of_operands(tokens, first, last):
            # The bracket goes behind another operand, to the right or to the left.
            yield _with_moved(text, end, at)
        before = tokens[first - 1] if first else None
        is_call = before is not None and (before.string in _CLOSING or _is_name(before))
        for at in () if is_call else _starts_of_operands(tokens, first, last):
            yield _with_moved(text, begin, at)


def _with_moved(text: str, start: int, at: int) -> str:
    """Return the text with the character at a place put before another place."""
    if at > start:
        return text[:start] + text[start + 1 : at] + text[start] + text[at:]
    return text[:at] + text[start] + text[at:start] + text[start + 1 :]


def _is_name(token: _Token) -> bool:
    # A keyword such as ``return`` or ``not`` calls nothing.
    return token.type == tokenize.NAME and not iskeyword(token.string)


def _pairs_of_brackets(tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the tokens of each pair of round brackets."""
    opened: list[int] = []
    for number, token in enumerate(tokens):
        if token.string in _OPENING:
            opened.append(number)
        elif token.string in _CLOSING and opened:
            first = opened.pop()
            if tokens[first].string == "(":
                yield first, number


def _ends_of_operands(tokens: Sequence[_Token], first: int, last: int) -> Iterator[int]:
    """Yield the columns behind operands at the depth of a closing bracket: further right, then within the pair."""
    yield from _columns_on_one_level(tokens, range(last + 1, len(tokens)), _OPENING, ends=True)
    columns = _columns_on_one_level(tokens, range(first + 1, last), _OPENING, ends=True)
    # Behind the last operand the bracket stands already.
    yield from [*columns][:-1]


def _starts_of_operands(tokens: Sequence[_Token], first: int, last: int) -> Iterator[int]:
    """Yield the columns before operands at the depth of an opening bracket: further left, then within the pair."""
    left = range(first - 1, -1, -1)
    yield from _columns_on_one_level(tokens, left, _CLOSING, ends=False)
    inside = range(last - 1, first, -1)
    columns = _columns_on_one_level(tokens, inside, _CLOSING, ends=False)
    yield from [*columns][:-1]


def _columns_on_one_level(
    tokens: Sequence[_Token], numbers: Sequence[int], deeper: str, ends: bool
) -> Iterator[int]:
    """Yield the ends, or the starts, of the operands that follow in this order, until their level is left."""
    depth = 0
    for number in numbers:
        token = tokens[number]
        if token.string in _OPENING + _CLOSING:
            depth += 1 if token.string in deeper else -1
            if depth < 0:
                return
        elif depth == 0 and (token.string in _ENDS or iskeyword(token.string)):
            return
        is_operand = token.type in (tokenize.NAME, tokenize.NUMBER) or token.string in ")]}"
        begins = token.type in (tokenize.NAME, tokenize.NUMBER) or token.string in "([{"
        if depth == 0 and (is_operand if ends else begins):
            yield token.end[1] if ends else token.start[1]


BLOCK_RULES: tuple[BlockRule, ...] = (
    BlockRule("brackets", 2, move_bracket, likely=True, added=LOOKED_AT, where="arrays", last=True),
)
