"""Evidence for an edit: after it a part of the code is what another part is already.

``pages_k[page, :left]`` says that ``pages_v[row, :left]`` was to read ``page``: of edits of one size that do the same,
one after which the odd part agrees with its twin comes first.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

_LEAST_TOKENS = 3  # of an expression that says anything,
_LEAST_TOKENS_OF_STATEMENT = 7  # and of a statement whose names do not count
TOKEN_OF_CODE = re.compile(r"\w+|\*\*|//|\S")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\s*\()")


def agrees_with_other_code(before: ast.AST, after: ast.AST) -> bool:
    """Return whether an edit makes a part of a definition equal to another part, which it was not before.

    >>> one, other = (ast.parse(f"x = a[i, :n] + b[{index}, :n]") for index in "ji")
    >>> agrees_with_other_code(one, other), agrees_with_other_code(other, one)
    (True, False)
    """
    old, new = _parts_of(before), _parts_of(after)
    # A text that was nowhere before is no evidence, even if the edit writes it twice.
    return any(new[text] > count for text, count in old.items())


def _parts_of(tree: ast.AST) -> Counter[str]:
    """Count the texts of expressions, of indices, and of statements with their names numbered."""
    result: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign):
            text = _without_names(ast.unparse(node))
            least = _LEAST_TOKENS_OF_STATEMENT
        elif isinstance(node, ast.BinOp | ast.Call | ast.Compare | ast.Tuple | ast.Slice):
            text, least = ast.unparse(node), _LEAST_TOKENS
        else:
            continue
        if len(TOKEN_OF_CODE.findall(text)) >= least:
            result[text] += 1
    return result


def _without_names(text: str) -> str:
    numbers: dict[str, str] = {}
    return _NAME.sub(lambda name: numbers.setdefault(name[0], f"@{len(numbers)}"), text)
