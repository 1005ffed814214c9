"""The rules of round brackets in a statement: one of a pair moved, a pair put in, a pair taken away.

``f(a) + b`` for ``f(a + b)``, ``a * (b + c + d)`` for ``a * b + c + d``, ``a - b + c`` for ``a - (b + c)``. In the head
of a block its condition, or what a loop runs over, is changed.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
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


Changes = Iterator[tuple[Sequence[Replacement], str, str]]


def move_bracket(s: BlockStatement) -> Changes:
    """The statement with the closing, or the opening, bracket of a pair at another operand."""
    yield from _statements_in_other_brackets(s, _texts_with_moved_bracket)


def put_in_or_take_away_pair(s: BlockStatement) -> Changes:
    """The statement with another pair of brackets around operands, or without one that groups them."""
    # Of a long statement the other rule tries some alone.
    moved = islice(_readings(s, _texts_with_moved_bracket), _MOST)
    known = {tree for _, tree in moved}
    yield from _statements_in_other_brackets(s, _texts_with_or_without_pair, known)


def _statements_in_other_brackets(
    s: BlockStatement, texts: Callable[[str], Iterator[str]], known: Collection[str] = ()
) -> Changes:
    """Yield the changes of a statement to texts that are code and compute something else than those known."""
    changed = _part_of_one_line(s)
    for new, tree in islice(_readings(s, texts), _MOST):
        if tree not in known and changed is not None:
            old = s.text(changed)
            yield [narrowed(s.put(changed, new), old)], *shown_change(old, new)


def _readings(
    s: BlockStatement, texts: Callable[[str], Iterator[str]]
) -> Iterator[tuple[str, str]]:
    """Yield texts of a statement that are code, each with its tree, and each tree once."""
    changed = _part_of_one_line(s)
    old = s.text(changed) if changed is not None else ""
    own = _tree_of(old)
    known = {own}
    for new in texts(old) if own else ():
        tree = _tree_of(new)
        # Brackets that change nothing, or as others do, give no edit.
        if tree and tree not in known:
            known.add(tree)
            yield new, tree


def _part_of_one_line(s: BlockStatement) -> ast.AST | None:
    """Return a simple statement, or the condition or the iterable of a block, if it is short and on one line."""
    node = s.node
    if not isinstance(node, _SIMPLE):
        node = node.iter if isinstance(node, ast.For) else getattr(node, "test", None)
    if node is None:
        return None
    text = s.text(node)
    return node if "\n" not in text and len(text) <= _LONGEST else None


def _tree_of(text: str) -> str:
    """Return the tree of a text, or an empty text if it is no code."""
    try:
        # Outside of a function a return parses, too.
        return ast.dump(ast.parse(text.strip()))
    except (SyntaxError, ValueError):
        return ""


def _texts_with_or_without_pair(text: str) -> Iterator[str]:
    """Yield a text of one line without one of its pairs that group, and with another pair around operands."""
    tokens = _tokens_of(text)
    for first, last in _pairs_of_brackets(tokens):
        if not _is_call(tokens, first):
            begin, end = tokens[first].start[1], tokens[last].start[1]
            yield text[:begin] + text[begin + 1 : end] + text[end + 1 :]
    for first, token in enumerate(tokens):
        before = tokens[first - 1].string if first else ""
        # What follows a point, or is called, is no operand by itself.
        if not _begins_operand(token) or before == "." or _is_call(tokens, first):
            continue
        start = token.start[1]
        ends = [*_columns_on_one_level(tokens, range(first, len(tokens)), _OPENING, ends=True)]
        for end in ends[1:]:
            yield f"{text[:start]}({text[start:end]}){text[end:]}"


def _is_call(tokens: Sequence[_Token], first: int) -> bool:
    """Return whether a bracket begins the arguments of a call, or the items of a subscript."""
    before = tokens[first - 1] if first else None
    is_after_operand = before is not None and (before.string in _CLOSING or _is_name(before))
    return tokens[first].string in _OPENING and is_after_operand


def _tokens_of(text: str) -> list[_Token]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [t for t in tokens if t.string.strip() != ""]


def _texts_with_moved_bracket(text: str) -> Iterator[str]:
    """Yield a text of one line with one of its round brackets moved over operands."""
    tokens = _tokens_of(text)
    for first, last in _pairs_of_brackets(tokens):
        begin, end = tokens[first].start[1], tokens[last].start[1]
        for at in _ends_of_operands(tokens, first, last):
            # The bracket goes behind another operand, to the right or to the left.
            yield _with_moved(text, end, at)
        for at in () if _is_call(tokens, first) else _starts_of_operands(tokens, first, last):
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
        if depth == 0 and (_ends_operand(token) if ends else _begins_operand(token)):
            yield token.end[1] if ends else token.start[1]


def _begins_operand(token: _Token) -> bool:
    is_word = token.type in (tokenize.NAME, tokenize.NUMBER) and not iskeyword(token.string)
    return is_word or token.string in _OPENING


def _ends_operand(token: _Token) -> bool:
    return token.type in (tokenize.NAME, tokenize.NUMBER) or token.string in _CLOSING


BLOCK_RULES: tuple[BlockRule, ...] = (
    BlockRule("brackets", 2, move_bracket, likely=True, added=LOOKED_AT, where="arrays", last=True),
    BlockRule(
        "brackets",
        2,
        put_in_or_take_away_pair,
        likely=True,
        added=LOOKED_AT,
        where="arrays",
        last=True,
    ),
)
