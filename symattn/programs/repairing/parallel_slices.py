"""Edits of the same slice, or the same index, of several arrays at once, such as of keys and values.

``k[:hi]`` and ``v[:hi]`` that both lack their start are one mistake: neither of them alone gives arrays that fit. The
places of these keys, as in ``np.arange(0, hi)``, go with them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from symattn.programs.repairing.edits import Place

#: The rule's name, and the tier of its edits.
NAME, TIER = "slices in parallel", 2
_MOST = 600  # such edits of one function
_LONGEST = 24  # characters of an expression that may bound a slice
#: Functions that give the numbers of a slice.
_RANGES = ("range", "arange")
#: The place of an item or a range, the expression that has it, and the text that is put there.
Change = tuple[Place, ast.expr, str]


def slices_in_parallel(tree: ast.AST, places: Sequence[Place]) -> Iterator[list[Change]]:
    """Yield changes of one slice or index wherever the same text is that of several arrays."""
    count = 0
    subscripts = _subscripts_of_items(tree)
    for group in _groups_of_same_items(tree, places, subscripts):
        is_slice = isinstance(group[0].node, ast.Slice)
        texts = _other_slices(group) if is_slice else _other_indices(group)
        ranges = _ranges_like(group[0], places) if is_slice else []
        # Another end of a slice may be made in two ways.
        for text in dict.fromkeys(texts):
            changes: list[Change] = [(p, subscripts[id(p.node)], text) for p in group]
            moved = [(p, p.node, _with_ends_of(p.node, text)) for p in ranges]
            for change in (changes, [*changes, *moved]) if moved else (changes,):
                if text != group[0].plain_text and count < _MOST:
                    count += 1
                    yield change


def _ranges_like(item: Place, places: Sequence[Place]) -> list[Place]:
    """Return the places of ranges with the ends of a slice."""
    node = item.node
    ends = [ast.unparse(end) for end in (node.lower, node.upper) if end is not None]
    calls = [p for p in places if isinstance(p.node, ast.Call) and not p.node.keywords]
    ranges = [p for p in calls if _name_of_function(p.node) in _RANGES]
    return [p for p in ranges if ends and [ast.unparse(end) for end in p.node.args] == ends]


def _name_of_function(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _with_ends_of(call: ast.Call, text: str) -> str:
    """Return the text of a range with the ends of a slice."""
    item = ast.parse(f"x[{text}]", mode="eval").body.slice  # type: ignore[attr-defined]
    ends = [end for end in (item.lower or ast.Constant(0), item.upper) if end is not None]
    return ast.unparse(ast.Call(call.func, ends, []))


def _groups_of_same_items(
    tree: ast.AST, places: Sequence[Place], subscripts: Mapping[int, ast.Subscript]
) -> list[list[Place]]:
    """Return the places of items of the same text that are read: in the whole function, a block, or a statement."""
    blocks, statements = _surroundings_of_items(tree)
    by_text: dict[str, list[Place]] = {}
    for place in places:
        around = subscripts.get(id(place.node))
        if around is None or not isinstance(around.ctx, ast.Load) or not _may_change(place):
            continue
        by_text.setdefault(place.plain_text, []).append(place)
    groups: dict[tuple[int, ...], list[Place]] = {}
    for same in by_text.values():
        for surroundings in ({}, blocks, statements):
            parts: dict[int | None, list[Place]] = {}
            for place in same:
                parts.setdefault(surroundings.get(id(place.node)), []).append(place)
            for part in parts.values():
                arrays = {ast.unparse(subscripts[id(p.node)].value) for p in part}
                # One array read twice is no parallel.
                if len(arrays) > 1:
                    groups.setdefault(tuple(id(p.node) for p in part), part)
    return list(groups.values())


def _may_change(place: Place) -> bool:
    if isinstance(place.node, ast.Slice):
        return place.node.lower is not None or place.node.upper is not None
    names = any(isinstance(n, ast.Name) for n in ast.walk(place.node))
    return names and place.kind.name == "int"


def _subscripts_of_items(tree: ast.AST) -> dict[int, ast.Subscript]:
    """Return the subscript of each item, by the id of the item."""
    result: dict[int, ast.Subscript] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            result |= {id(item): node for item in items}
    return result


def _surroundings_of_items(tree: ast.AST) -> tuple[dict[int, int], dict[int, int]]:
    """Return the block and the statement of each node, by the id of the node."""
    blocks: dict[int, int] = {}
    statements: dict[int, int] = {}
    for owner in ast.walk(tree):
        for body in (getattr(owner, "body", None), getattr(owner, "orelse", None)):
            for statement in body if isinstance(body, list) else ():
                # Owners come before what is within them, so that the innermost block remains.
                for node in ast.walk(statement):
                    blocks[id(node)], statements[id(node)] = id(body), id(statement)
    return blocks, statements


def _other_slices(group: Sequence[Place]) -> Iterator[str]:
    """Yield slices with another start or another end, those of fewer tokens first."""
    node = group[0].node
    lower, upper, step = (
        part and ast.unparse(part) for part in (node.lower, node.upper, node.step)
    )
    end = f":{step}" if step else ""
    names, amounts, bounds = _whole_numbers(group)
    starts: list[str] = ["", *names, *_moved(lower, ["1"]), *bounds]
    stops: list[str] = ["", *names, *_moved(upper, ["1"]), *bounds]
    if upper:
        starts += [f"{upper} - {amount}" for amount in amounts]
        starts += [f"max({upper} - {amount}, 0)" for amount in amounts]
    if lower:
        stops += [f"{lower} + {amount}" for amount in amounts]
    starts += _moved(lower, amounts)
    stops += _moved(upper, amounts)
    yield from (f"{start}:{upper or ''}{end}" for start in starts)
    yield from (f"{lower or ''}:{stop}{end}" for stop in stops)


def _moved(end: str | None, amounts: Sequence[str]) -> list[str]:
    return [f"{end} {sign} {amount}" for amount in amounts for sign in "+-"] if end else []


def _other_indices(group: Sequence[Place]) -> Iterator[str]:
    """Yield other indices: names, indices of other arrays, and remainders and quotients."""
    place = group[0]
    names, _, bounds = _whole_numbers(group)
    known = _common_scope(group)
    yield from names
    yield from _moved(place.text, ["1"])
    for text, item in place.function.subscripts.items():
        used = {n.id for n in ast.walk(item) if isinstance(n, ast.Name)}
        if used and used <= known and not isinstance(item, ast.Slice):
            yield text
    for name in names:
        yield f"{place.text} % {name}"
        yield f"{place.text} // {name}"
    yield from bounds


def _common_scope(group: Sequence[Place]) -> set[str]:
    return set.intersection(*(set(place.scope) for place in group))


def _whole_numbers(group: Sequence[Place]) -> tuple[list[str], list[str], list[str]]:
    """Return the names of whole numbers; these with numbers of the specification; and longer expressions of them."""
    known, place = _common_scope(group), group[0]
    names = [name for name in place.whole_names if name in known]
    numbers = [repr(n) for n in place.function.numbers if isinstance(n, int)]
    expressions = place.function.expressions.items()
    bounds = [
        text
        for text, (kind, used) in expressions
        if kind.name == "int" and used and used <= known and len(text) <= _LONGEST
    ]
    return names, names + numbers, bounds
