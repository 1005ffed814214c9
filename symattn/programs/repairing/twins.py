"""The rules that make a statement what a similar one is: a line for values as the line for keys.

Code often does the same to two arrays. Where two statements are alike but for their names and one more difference, one
of them may be mistaken; where one array is changed by a line and another one is not, the second line may be missing.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from symattn.programs.repairing.agreement import TOKEN_OF_CODE
from symattn.programs.repairing.edits import LOOKED_AT, BlockRule, BlockStatement, shown_change
from symattn.verification.repair import Replacement

#: Replacements, with the old and the new text for a reader.
Changes = Iterator[tuple[Sequence[Replacement], str, str]]
_LEAST_ALIKE = 0.5  # of the tokens of a statement and of what stands in its place,
_LEAST_ALIKE_BEFORE = 0.3  # and of two statements with different names
_MOST_TWINS = 12  # statements that one is compared with
_WORD = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*")


def write_as_twin(s: BlockStatement) -> Changes:
    """A statement with the text of a similar one, in which its own names stand for those of the other."""
    own, name = _text_of(s, s.node), _target_of(s.node)
    if not own or not name:
        return
    known = s.scope.keys() | s.function.free_names
    alike = sorted(_twins_of(s, own), key=lambda twin: -_likeness(own, twin[0]))
    for twin, other in alike[:_MOST_TWINS]:
        for text in dict.fromkeys(_translations(twin, own, other, name, known)):
            if text != own and _likeness(own, text) >= _LEAST_ALIKE and _reads_known(text, known):
                yield [s.put(s.node, text)], *shown_change(own, text)


def add_line_of_twin(s: BlockStatement) -> Changes:
    """A line that changes another array as this statement changes one."""
    text, name = _text_of(s, s.node), _target_of(s.node)
    kind = s.scope.get(name)
    if not text or kind is None or not kind.is_array or not _changes_itself(s.node, name):
        return
    for other, other_kind in s.scope.items():
        is_like = other_kind.name == kind.name and len(other_kind.shape) == len(kind.shape)
        if other != name and is_like:
            new = _renamed(text, {name: other})
            yield [s.inserted_after(s.node, [s.indent(s.node) + new])], "", new


def _text_of(s: BlockStatement, node: Any) -> str:
    """Return the text of a statement in one line, "" of others."""
    text = s.text(node) if isinstance(node, ast.Assign | ast.AugAssign) else ""
    return "" if "\n" in text else text


def _target_of(node: Any) -> str:
    """Return the name of the array that a statement assigns, or of which it assigns a part."""
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    target = targets[0]
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.id if len(targets) == 1 and isinstance(target, ast.Name) else ""


def _changes_itself(node: Any, name: str) -> bool:
    """Return whether a statement computes the new value of a name from the old one."""
    read = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
    return isinstance(node, ast.AugAssign) or name in read


def _twins_of(s: BlockStatement, own: str) -> Iterator[tuple[str, str]]:
    """Yield the texts and the names of statements that are similar."""
    for node in ast.walk(s.function.source.tree):
        text = _text_of(s, node) if node is not s.node else ""
        name = _target_of(node) if text else ""
        if name and _likeness(own, text) >= _LEAST_ALIKE_BEFORE:
            yield text, name


@lru_cache(maxsize=1 << 14)
def _likeness(one: str, other: str) -> float:
    """Return which part of the tokens of two texts is the same, from 0 to 1."""
    tokens = TOKEN_OF_CODE.findall(one), TOKEN_OF_CODE.findall(other)
    return difflib.SequenceMatcher(None, *tokens, autojunk=False).ratio()


def _translations(twin: str, own: str, other: str, name: str, known: Any) -> Iterator[str]:
    """Yield the text of a twin with the names of a statement: of its target, of names alike, of all that differ."""
    names = {other: name}
    yield _renamed(twin, names)
    for word in _WORD.findall(twin):
        new = _translated_name(word, other, name)
        if new != word and new in known:
            # The target keeps the name that it has in this statement, however it would be translated.
            names.setdefault(word, new)
    yield _renamed(twin, names)
    yield _renamed(twin, _names_that_differ(twin, own) | names)


def _translated_name(word: str, other: str, name: str) -> str:
    """Exchange in a word the part by which two names differ: with ``dk`` and ``dv``, ``w_k`` becomes ``w_v``."""
    blocks = difflib.SequenceMatcher(None, other, name, autojunk=False).get_opcodes()
    changed = [block for block in blocks if block[0] != "equal"]
    if len(changed) != 1 or changed[0][0] != "replace":
        return word
    _, a, b, c, d = changed[0]
    return re.sub(rf"(?<![a-z]){re.escape(other[a:b])}(?![a-z])", name[c:d], word)


def _names_that_differ(twin: str, own: str) -> dict[str, str]:
    """Return the names that stand in a statement where its twin has others."""
    old, new = TOKEN_OF_CODE.findall(twin), TOKEN_OF_CODE.findall(own)
    names: dict[str, str] = {}
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "replace" and b - a == d - c:
            pairs = zip(old[a:b], new[c:d], strict=True)
            names |= {x: y for x, y in pairs if x.isidentifier() and y.isidentifier()}
    return names


def _renamed(text: str, names: dict[str, str]) -> str:
    return _WORD.sub(lambda word: names.get(word[0], word[0]), text)


def _reads_known(text: str, known: Any) -> bool:
    """Return whether a text is a statement that reads names in scope alone."""
    try:
        statement = ast.parse(text).body[0]
    except (SyntaxError, IndexError):
        return False
    read = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
    return all(n.id in known for n in read if isinstance(n.ctx, ast.Load))


BLOCK_RULES: tuple[BlockRule, ...] = (
    BlockRule("as its twin", 2, write_as_twin, likely=True, added=LOOKED_AT, where="arrays"),
    BlockRule("line of its twin", 2, add_line_of_twin, added=LOOKED_AT, where="arrays"),
)
