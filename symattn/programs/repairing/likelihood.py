"""The order in which edits are tried where not all of them can be: the likely ones first, no rule before all others."""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from math import inf

from symattn.programs.repairing.edits import NAME_OF_OTHER_SHAPE, UNWRAPPED_FROM_OTHERS, Edit

# an operator that is removed with its operand is a smaller edit than one that is exchanged
_REMOVED = 0.4
# a number is one token, whatever its digits, an operator of two characters is one, and so are infinity and a length
_TOKENS = re.compile(
    r"\w+\.inf\b|\w+\.shape\[-?\d+\]|\w+\.size\(-?\d+\)|\blen\(\w+\)|\d[\w.]*(?:(?<=[eE])[+-]\d+)?|\w+|\*\*|//|[<>=!]=|\S"
)
# a statement moved past several others, and parts exchanged that are no neighbours
_FURTHER = 1.5
# a new number counts more than a name: it may be right at the sizes that were tried alone
_ARBITRARY = 0.5
#: New numbers that are no arbitrary ones.
_USUAL_NUMBERS = ("0", "1", "0.5", "0.0", "1.0")


#: Rules that put what is there in another order: one slip, however long the text is.
_SIZES_OF_ORDERS = {
    "moved": 1.0, "arguments": 1.5, "order": 1.5, "operands": 1.5, "exchanged": 2.0, "brackets": 1.0,
}  # fmt: skip
#: By how much edits count more that take away what somebody wrote on purpose, or read an array of another shape.
_SIZES_ON_TOP = {UNWRAPPED_FROM_OTHERS: 2.0, NAME_OF_OTHER_SHAPE: 2.0}


def size_of(edit: Edit) -> float:
    """Return how many tokens an edit changes or adds; one that it only removes counts less.

    A change of the same text at several places counts at each of them. A call that stands elsewhere in the function as
    well is one token: the code says already how it is made. Another order of what is there is one slip.
    """
    if edit.repeats_call and edit.rule not in _SIZES_ON_TOP:
        return float(edit.times)
    size = _size_of_change(edit.old, edit.new)
    at_most = _SIZES_OF_ORDERS.get(edit.rule, inf) * (_FURTHER if edit.tier > 1 else 1)
    return edit.times * (min(size, at_most) + _SIZES_ON_TOP.get(edit.rule, 0.0))


# Each edit is sorted by its size several times.
@lru_cache(maxsize=1 << 14)
def _size_of_change(old_text: str, new_text: str) -> float:
    old = _TOKENS.findall(old_text)
    new = _TOKENS.findall(_without_needed_brackets(new_text))
    steps = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = sum(n - m for tag, _, _, m, n in steps if tag in ("replace", "insert"))
    # A name in place of a longer expression removes the rest of it.
    removed = sum(max(j - i - (n - m), 0) for tag, i, j, m, n in steps if tag != "equal")
    added = [word for tag, _, _, n, m in steps if tag in ("replace", "insert") for word in new[n:m]]
    numbers = sum(word[0].isdigit() and word not in _USUAL_NUMBERS for word in added)
    return float(changed + _REMOVED * removed + _ARBITRARY * numbers)


def _without_needed_brackets(text: str) -> str:
    """Return the new text of an edit without the brackets that its places need, which semicolons part."""
    return "; ".join(map(_without_outer_brackets, text.split("; ")))


def _without_outer_brackets(text: str) -> str:
    """Return a text without the brackets that its place needs: they are no part of the change."""
    depth = 0
    for number, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        # The first bracket is closed before the end, or there is none.
        if depth == 0 and number < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") and depth == 0 else text


#: The rule that adds or subtracts 1.
_SHIFT_RULE = "±1"


def rarity_of(edit: Edit) -> int:
    """Return how rarely an edit is what was meant, compared with others of its size that do the same.

    A token is taken for a similar one more often than one is forgotten. A 1 is forgotten in a sum of places or lengths;
    a length that is read off an array, or an item, is what it is.
    """
    new = _without_outer_brackets(edit.new)
    if len(_TOKENS.findall(edit.old)) == len(_TOKENS.findall(new)):
        return 0
    return 2 if edit.rule == _SHIFT_RULE and not _is_sum(edit.old) else 1


def _is_sum(text: str) -> bool:
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        # Only a long expression is shown in part.
        return True
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)


#: Rules with an edit for nearly every expression or line: each of these is rarely the mistake.
_WIDE_RULES = (
    "±1", "constant", "arguments", "argument dropped", "unwrapped", "assignment", "moved", "removed", "term",
    "bound", "cast", "exponent", "wrapped", "guard",
)  # fmt: skip
_LATER = 2  # by this factor the edits of wide rules, and those outside of kernels, come later
# a kernel has more names than anything else, and most of its mistakes are in them
_NAMES_IN_A_TURN = 4
#: The rule that puts a name in place of another one.
_NAME_RULE = "variable"


def in_turn(edits: Sequence[Edit]) -> list[Edit]:
    """Return edits of a tier in the order in which they are tried if not all of them may be.

    Likely ones come first; among them each rule has its turn, with its smallest edits first.
    """
    turns: dict[str, int] = {}
    order: dict[int, tuple[bool, int]] = {}
    for edit in sorted(edits, key=size_of):
        turns[edit.rule] = turns.get(edit.rule, 0) + 1
        order[id(edit)] = not edit.likely, turns[edit.rule]
    return sorted(edits, key=lambda e: order[id(e)])


def signs_of(edit: Edit) -> tuple[str, ...]:
    """Return the operators that an edit removes, and those that it adds, sorted; of a function its names as well."""
    texts = edit.old, _without_needed_brackets(edit.new)
    old, new = (Counter(_TOKENS.findall(text)) for text in texts)
    is_shown = edit.rule == "function"
    removed, added = old - new, new - old
    return tuple(sorted(x for x in (*removed, "→", *added) if is_shown or not x[0].isalnum()))


def by_likelihood(edits: Sequence[Edit], kernels: Collection[int]) -> list[Edit]:
    """Return the edits of a tier of a function that launches kernels in the order in which they are tried.

    Each kind of change has its turn, with the first edit of each expression before the second ones of others: sums and
    products are many, and shall not come before all masks. Rules that change nearly every expression, and functions
    around the ``kernels`` (numbers as in ``Edit.place``), come later.
    """
    at_place: Counter[tuple[str, int, int, int]] = Counter()
    variants = []
    for number, edit in enumerate(edits):
        # An edit of several lines, or of a statement, has no expression.
        key = edit.rule, edit.place, edit.node, edit.line if edit.node < 0 else 0
        at_place[key] += 1
        variants.append((not edit.likely, at_place[key], size_of(edit), number, edit))
    turns: Counter[tuple[str, tuple[str, ...], bool]] = Counter()
    ordered = []
    for *_, number, edit in sorted(variants, key=lambda v: v[:4]):
        is_outside = edit.place not in kernels
        kind = edit.rule, signs_of(edit), is_outside
        turns[kind] += 1
        turn = turns[kind] * _LATER ** (is_outside + (edit.rule in _WIDE_RULES))
        in_a_turn = _NAMES_IN_A_TURN if edit.rule == _NAME_RULE else 1
        ordered.append((-(-turn // in_a_turn), number, edit))
    return [edit for *_, edit in sorted(ordered, key=lambda o: o[:2])]
