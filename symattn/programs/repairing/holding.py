"""Tables and objects of libraries that hold functions of a user's file, such as the rules of a gradient.

A statement of the module puts the functions there: ``f.defvjp(forward, backward)``, ``TABLE = {"plain": plain}``, or a
decorator that registers a function under a name.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

#: Types of tables. No sets: functions are numbered in the same order in every process.
TABLES = (dict, list, tuple)
#: Types whose values hold nothing.
_PLAIN_VALUES = (type(None), bool, int, float, complex, str, bytes)
#: Modules whose objects run a compiled or registered function, which a copy would share.
_COMPILING_MODULES = ("triton", "helion", "torch._library", "torch.library")


def items_of_table(table: Any) -> Iterator[Any]:
    """Yield the keys and values of a dictionary, or the items of a list or a tuple, without plain values."""
    for key in table:
        pair = (key, table[key]) if type(table) is dict else (key,)
        yield from (x for x in pair if type(x) not in _PLAIN_VALUES)


def has_attributes_only(x: Any) -> bool:
    """Return whether an object of a class of Python is all in its attributes, so that they make a copy."""
    kinds = type | types.ModuleType | types.FunctionType | types.MethodType
    if isinstance(x, kinds) or not hasattr(x, "__dict__"):
        return False
    owner = type(x)
    # What a copy closes when it goes belongs to the original.
    if hasattr(owner, "__del__") or owner.__module__.startswith(_COMPILING_MODULES):
        return False
    if any(vars(base).get("__slots__") for base in owner.__mro__):
        return False
    try:
        _new_object(owner)
    # A class of C has a state that Python does not see.
    except TypeError:
        return False
    return True


def copy_attributes(x: Any) -> Any:
    """Return an object of the same class with the same attributes; nothing of the class runs."""
    result = _new_object(type(x))
    vars(result).update(vars(x))
    return result


def _new_object(owner: type) -> Any:
    """Return an object without attributes. Raises ``TypeError`` for classes of C but the one for plain attributes."""
    return owner() if owner is types.SimpleNamespace else object.__new__(owner)
