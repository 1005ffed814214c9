"""The fields of a description, read by their annotations from a sheet or a command line.

    {"causal": true, "window": [2, 0], "scale": "1/3", "position": {"rotary": {"layout": "half"}}, "latent": {}}
    --causal         --window 2,0      --scale 1/3     --position "Rotary(layout='half')"         --latent absorbed

A number is read exactly as typed. A field that is itself a description, such as ``position``, is an object of its kind
and fields; if there is only one kind, its name may be left out. On a command line ``rotary:base=100,layout=half`` is
understood, too; its numbers are exact, those in parentheses are Python's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from math import isfinite
from types import MappingProxyType, NoneType
from typing import Any, get_args, get_origin

from symattn.attention.codec.json_text import check_fields, short, shown
from symattn.attention.fields import field_types, members, words
from symattn.attention.positions.rotary_fields import Scaling
from symattn.document.codec import differing, typed
from symattn.document.errors import InputError, near, perhaps
from symattn.document.keywords import kind_name, plain

# The default scale, as it is written in sheets.
ROOT = "1/sqrt(d_k)"
# Words for scales: without a scale, and the default.
_SCALES = {"none": Fraction(1), ROOT: None}
# Characters between the entries of a tuple on a command line.
_SEPARATOR = re.compile(r"[,/;]")
_CALL = re.compile(r"\s*\w+\s*\(")  # a description in Python's notation
_OPEN = ("", "none", "open", None)  # an open side of a window


def descriptions(hint: object) -> dict[str, type]:
    """Return the descriptions among the members of ``hint`` by name: ``transformer-xl`` for ``TransformerXL``."""
    return {
        _sheet_name_of_description(m): m
        for m in members(hint)
        if is_dataclass(m) and isinstance(m, type)
    }


def field_of(description: type, name: str, value: object, place: str) -> Any:
    """Return the value of one field. Raises InputError."""
    if name == "scale" and isinstance(value, str) and value in _SCALES:
        return _SCALES[value]
    return _read_field_by_hint(field_types(description)[name], value, place)


def made_of(description: type, data: dict[str, Any], place: str) -> Any:
    """Make a description from an object of fields. Raises InputError."""
    check_fields(description, data, place)
    return description(**{n: field_of(description, n, x, f"{place}: {n}") for n, x in data.items()})


def written(description: object, changed: bool = False) -> dict[str, Any]:
    """Return the fields as in a sheet, only those that differ if ``changed``; ``made_of`` reads them back."""
    kind: Any = type(description)
    values = {f.name: getattr(description, f.name) for f in fields(kind)}
    usual = {f.name: f.default for f in fields(kind)} if changed else {}
    return {
        name: _convert_field_to_sheet(name, value, field_types(kind)[name], changed)
        for name, value in values.items()
        if not changed or value != usual[name]
    }


def _convert_field_to_sheet(name: str, value: object, hint: object, changed: bool) -> Any:
    if is_dataclass(value):
        return {_sheet_name_of_description(type(value)): written(value, changed)}
    if name == "scale":
        return ROOT if value is None else str(value)
    if isinstance(value, tuple):
        return [
            str(x) if isinstance(x, Fraction | float) else list(x) if isinstance(x, tuple) else x
            for x in value
        ]
    rational = isinstance(value, Fraction | float) or (
        isinstance(value, int) and Fraction in members(hint)
    )
    return str(value) if rational else value


def as_options(spec: object, names: Iterable[str] = ()) -> dict[str, str | bool]:
    """Return the fields ``names``, or those that differ from their defaults, as options of the command line."""
    values = (
        {name: getattr(spec, name) for name in names} if names else differing(spec, type(spec)())
    )
    options = {name: x if isinstance(x, bool) else typed(x) for name, x in values.items()}
    return options | ({"scale": ROOT} if "scale" in values and values["scale"] is None else {})


def _read_field_by_hint(hint: object, value: object, place: str) -> Any:
    if isinstance(value, tuple(descriptions(hint).values())):
        return _take_floats_as_written(value)
    if NoneType in members(hint) and (value is None or value == "none"):
        return None
    if isinstance(value, bool) and bool in members(hint):
        return value
    # Words are compared as text, because numbers in sheets are typed texts.
    for word in words(hint):
        if not isinstance(value, bool) and str(value) == str(word):
            return word
    if descriptions(hint):
        return _read_description_field(hint, value, place)
    rows = [m for m in members(hint) if get_origin(m) is tuple]
    if rows and (
        isinstance(value, list | tuple) or (isinstance(value, str) and _SEPARATOR.search(value))
    ):
        if isinstance(value, str):  # ``2,0`` or ``2/0``, or a nested tuple ``3/4/5;5/12/13``
            nested = any(
                get_origin(m) is tuple for kind in get_args(rows[0]) for m in members(kind)
            )
            value = value.split(";") if nested else _SEPARATOR.split(value)
        return _read_tuple_field(rows[0], value, place)
    return _read_number_or_text(hint, value, place)


def _read_number_or_text(hint: object, value: object, place: str) -> Any:
    """Return a number or a text, or raise InputError with what the field may be."""
    kinds = members(hint)
    typed = isinstance(value, str | int | float | Fraction) and not isinstance(value, bool)
    if typed and Fraction in kinds:
        return _read_rational_field(value, hint, place)
    if typed and int in kinds and _is_whole(str(value)):
        return int(str(value))
    if str in kinds and isinstance(value, str):
        return str(value)
    suggestion = near(value, map(str, words(hint))) if isinstance(value, str) else ""
    raise InputError(
        f"{place} is {_describe_field_alternatives(hint)}, not {shown(value)}.{suggestion}".rstrip(
            "."
        )
    )


def _read_rational_field(value: object, hint: object, place: str) -> Fraction:
    from symattn.attention.codec import exact_arrays

    try:
        factor = exact_arrays.number(_take_floats_as_written(value), place).rational()
    except InputError as error:
        known_words = [*words(hint), *(_SCALES if place.endswith("scale") else ())]
        end = f"; known words: {', '.join(map(str, known_words))}" if known_words else ""
        raise InputError(f"{error}{end}") from None
    if factor is None:
        raise InputError(f"{place} must be rational, got {short(str(value))}")
    return factor


def _take_floats_as_written(value: Any) -> Any:
    """Return a float as the decimal that was written, 3/10 for 0.3, also in tuples and in fields of a description.

    So a printed formula says what the steps compute: exact arrays would take a float for its dyadic value.
    """
    if isinstance(value, float) and isfinite(value):
        return Fraction(repr(float(value)))
    if isinstance(value, tuple):
        taken = tuple(map(_take_floats_as_written, value))
        return value if taken == value else taken
    if is_dataclass(value) and not isinstance(value, type):
        before = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        after = {name: _take_floats_as_written(x) for name, x in before.items()}
        return value if after == before else replace(value, **after)
    return value


def _read_description_field(hint: object, value: object, place: str) -> Any:
    """Read a description: an object, a word, ``rotary:base=100,layout=half``, or ``Rotary(base=100)``."""
    kinds = descriptions(hint)
    if isinstance(value, str) and _CALL.match(value):
        classes = {kind.__name__: kind for kind in kinds.values()}
        try:
            called, values = parsed(value, classes)
            return classes[called](**values)
        except (InputError, TypeError) as error:
            raise InputError(f"{place}: {error}") from None
    if isinstance(value, str):
        called, _, rest = value.partition(":")
        if len(kinds) == 1 and not _kind_of(
            called, kinds
        ):  # one kind needs no name: fields, or ``plain``
            called, rest = next(iter(kinds)), rest if called == "plain" else value
        value = {called: pairs(rest)}
    # An option without a value: the only kind, with its defaults.
    if value is True and len(kinds) == 1:
        value = {}
    if not isinstance(value, dict):
        raise InputError(f"{place} is {_describe_field_alternatives(hint)}, not {shown(value)}")
    if len(value) == 1 and (called := _kind_of(next(iter(value)), kinds)):
        inner = next(iter(value.values()))
        value = {} if inner is None or inner is True else inner
        if not isinstance(value, dict):
            raise InputError(f'{place}: {called} is an object of fields, {{"{called}": {{}}}}')
        return made_of(kinds[called], value, f"{place}: {called}")
    if len(kinds) == 1:
        return made_of(next(iter(kinds.values())), value, place)
    # Only the first key is named: a description has one kind.
    wrong = next(iter(value), "nothing")
    other = kind_name(str(wrong), kinds)
    suggestion = (
        f" Did you mean {other!r}?" if other else near(_convert_camel_to_hyphens(str(wrong)), kinds)
    )
    raise InputError(
        f"{place}: {short(str(wrong))!r} is not one of {', '.join(kinds)}.{suggestion}"
    )


def pairs(text: str) -> dict[str, Any]:
    """Return ``a=1,b`` as fields, split at commas outside brackets; a name without a value is true.

    >>> pairs("causal,position=Rotary(base=9, scaling=LinearScaling(factor=2))")
    {'causal': True, 'position': 'Rotary(base=9, scaling=LinearScaling(factor=2))'}
    """
    parts = (part.partition("=") for part in _split_at_outer_commas(text) if part.strip())
    words: dict[str, Any] = {"": True, "true": True, "false": False}
    return {name.strip(): words.get(value.strip(), value.strip()) for name, _, value in parts}


def _split_at_outer_commas(text: str) -> Iterator[str]:
    start = depth = 0
    for at, letter in enumerate(text):
        # Commas within brackets belong to inner descriptions.
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _read_tuple_field(hint: object, values: Iterable[object], place: str) -> tuple[Any, ...]:
    """Return values for ``tuple[…]``, of fixed or of any length."""
    kinds, entries = get_args(hint), list(values)
    if kinds and kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(entries)
    if len(kinds) != len(entries):
        raise InputError(f"{place} has {len(entries)} entries; it needs {len(kinds)}")
    return tuple(
        None
        if NoneType in members(kind) and (x.strip() if isinstance(x, str) else x) in _OPEN
        else _read_field_by_hint(kind, x.strip() if type(x) is str else x, f"{place}[{i}]")
        for i, (kind, x) in enumerate(zip(kinds, entries, strict=True), 1)
    )


def _is_whole(text: str) -> bool:
    # Nine digits are enough for any size, and bound the work of ``int``.
    return text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 9


def _describe_field_alternatives(hint: object) -> str:
    result = (
        ["a number"]
        if Fraction in members(hint)
        else ["a whole number"]
        if int in members(hint)
        else []
    )
    result += ["a text"] if str in members(hint) else []
    result += [*map(str, words(hint)), *descriptions(hint)]
    result += ["true", "false"] if bool in members(hint) else []
    result += ["a list"] if any(get_origin(m) is tuple for m in members(hint)) else []
    result += ["none"] if NoneType in members(hint) else []
    return " or ".join(filter(None, (", ".join(result[:-1]), *result[-1:])))


def _kind_of(word: str, kinds: Mapping[str, type]) -> str:
    """Return the name of the kind that a word names, or ""; case, hyphens and underscores are ignored."""
    return next(
        (name for name, x in kinds.items() if plain(word) in map(plain, (name, x.__name__))), ""
    )


def _sheet_name_of_description(description: type) -> str:
    """``transformer-xl`` for ``TransformerXL``, ``yarn`` for ``YarnScaling``."""
    return _convert_camel_to_hyphens(description.__name__.removesuffix("Scaling"))


def _convert_camel_to_hyphens(word: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", word).lower().replace("_", "-")


# -- descriptions in Python's notation: ``rotary``, ``Rotary(base=500000, layout='interleaved')`` ----------------------
# Whatever Python's parser and constructors raise on text from outside.
_UNREADABLE = (
    SyntaxError,
    ValueError,
    TypeError,
    KeyError,
    ZeroDivisionError,
    MemoryError,
    RecursionError,
)
# Descriptions that may stand within others.
_WITHIN: dict[str, type[Any]] = {plain(kind.__name__): kind for kind in get_args(Scaling)}


def parsed(
    text: str, known: Iterable[str], more: Mapping[str, Callable[..., Any]] = MappingProxyType({})
) -> tuple[str, dict[str, Any]]:
    """Return which of the ``known`` names a text starts with, and its fields; nothing is evaluated.

    ``more`` makes descriptions that may be fields besides those of an attention, by their names. Raises InputError with
    one line.

    >>> parsed("rotary(base=100, width=None)", ["Alibi", "Rotary"])
    ('Rotary', {'base': 100, 'width': None})
    """
    names = {plain(name): name for name in known}
    listed = ", ".join(names.values())
    try:
        node: Any = ast.parse(text if "(" in text else f"{text}()", mode="eval").body
    except _UNREADABLE:
        node = None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise InputError(
            f"{text!r} is no definition; hint: NAME, or NAME(FIELD=VALUE, ...); known: {listed}"
        )
    if plain(node.func.id) not in names:
        raise InputError(
            f"{node.func.id!r} is not one of {listed}{perhaps(node.func.id, names.values())}"
        )
    if node.args:
        raise InputError(f"{text!r}: fields are given by their names")
    added = {plain(name): make for name, make in more.items()}
    within: dict[str, Callable[..., Any]] = {**_WITHIN, **added}
    return names[plain(node.func.id)], {
        k.arg or "**": _read_keyword_of_call(k, text, within) for k in node.keywords
    }


def _read_keyword_of_call(
    keyword: ast.keyword, text: str, within: Mapping[str, Callable[..., Any]]
) -> Any:
    try:
        return _evaluate_literal_node(keyword.value, within)
    except InputError:
        raise
    except _UNREADABLE:
        bare = keyword.value.id if isinstance(keyword.value, ast.Name) else ""
        hint = f"; hint: {keyword.arg}={bare!r}" if bare else ""
        raise InputError(
            f"{text!r}: the value of {keyword.arg} is not a number and no word in quotes{hint}"
        ) from None


def _evaluate_literal_node(node: ast.expr, within: Mapping[str, Callable[..., Any]]) -> Any:
    """Return the value of an expression of literals, fractions and descriptions. Raises one of ``_UNREADABLE``."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Fraction" and not node.keywords:
        # As Python shows a fraction in a description: both parts are whole numbers.
        return Fraction(*map(ast.literal_eval, node.args))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        values = {str(k.arg): _evaluate_literal_node(k.value, within) for k in node.keywords}
        return within[plain(node.func.id)](**values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        over = Fraction(_evaluate_literal_node(node.left, within))
        return over / Fraction(_evaluate_literal_node(node.right, within))
    if isinstance(node, ast.Tuple):
        return tuple(_evaluate_literal_node(item, within) for item in node.elts)
    return ast.literal_eval(node)
