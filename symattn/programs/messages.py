"""Messages of a process that is not trusted, read as data alone.

They bring arrays, numbers, texts, and symattn's own dataclasses, enumerations and errors. Reading one runs no code that
it names, changes no object that it did not bring (classes, members of enumerations, dtypes of NumPy), and takes no more
memory than its limit.
"""

from __future__ import annotations

import pickle
import struct
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from fractions import Fraction
from typing import IO, Any, ClassVar

import numpy as np

from symattn.document.errors import SymattnError

#: Bytes of one message; a worker refuses outputs that would need more (``worker``).
MAX_BYTES = 1 << 30
#: Operations of one message, of which some make an object from one byte.
MAX_OPERATIONS = 1 << 21
#: Bytes of what one operation makes at most, beside those that it reads: a set, say, has 216.
_BYTES_OF_OBJECT = 1 << 8
#: Keys other than texts and short numbers, which can be chosen so that each is compared with all others.
_MAX_ODD_KEYS = 1 << 12
_SHORT = 1 << 31
#: Bytes of a whole number, and characters of the name of a dtype: work on longer ones may take without end.
_MAX_BYTES_OF_NUMBER, _MAX_DTYPE = 1 << 12, 64


class _Bounded:
    """The pipe while one message is read: no more than ``MAX_BYTES``, and ``ended`` once its other end is closed."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._left, self.ended = pipe, MAX_BYTES, False

    @property
    def bytes_read(self) -> int:
        return MAX_BYTES - self._left

    def read(self, size: int) -> bytes:
        # Refused before memory is taken for it.
        if size > self._left:
            raise pickle.UnpicklingError("the message is too long")
        data = self._pipe.read(size)
        self._left -= len(data)
        self.ended = len(data) < size
        return data

    def readline(self) -> bytes:
        line = self._pipe.readline(self._left)
        self._left -= len(line)
        self.ended = not line.endswith(b"\n")
        return line


class _Maker:
    """A callable that a message may have, in the place of a function or class of its name."""

    def __init__(self, make: Callable[..., Any], *kinds: type) -> None:
        self._make, self._kinds = make, kinds

    def __call__(self, *parts: Any) -> Any:
        # A range, say, as the items of a set would fill the memory.
        if self._kinds and not all(type(part) in self._kinds for part in parts):
            raise pickle.UnpicklingError("these are no parts of data")
        return self._make(*parts)


def _dtype(text: Any, *_: Any) -> np.dtype[Any]:
    """Return a dtype of numbers or texts; any other one could make objects of numbers."""
    is_name = type(text) is str and len(text) <= _MAX_DTYPE
    result: np.dtype[Any] = np.dtype(text) if is_name else np.dtype(object)
    if result.kind not in "biufcSU":
        raise pickle.UnpicklingError(f"{result} is no dtype of numbers")
    return result


def _blank_array(*_: Any) -> np.ndarray:
    return np.empty(0)


#: NumPy's own function for arrays in the newest format of pickles, which is private.
_frombuffer: Callable[..., np.ndarray] = np.zeros(1).__reduce_ex__(5)[0]  # type: ignore[assignment]


def _array_of_bytes(data: Any, dtype: Any, *form: Any) -> np.ndarray:
    if not isinstance(dtype, np.dtype):
        raise pickle.UnpicklingError("this is no array")
    return _frombuffer(data, dtype, *form)


def _scalar(dtype: Any, data: Any) -> Any:
    # NumPy refuses to read objects from bytes.
    return np.frombuffer(data, dtype, 1)[0]


_MAKERS: Mapping[tuple[str, str], Any] = {
    ("builtins", "int"): _Maker(int, int),
    ("builtins", "complex"): _Maker(complex, float),
    ("builtins", "slice"): _Maker(slice),
    ("builtins", "range"): _Maker(range, int),
    ("builtins", "bytearray"): _Maker(bytearray, bytes),
    ("builtins", "set"): _Maker(set, list),
    ("builtins", "frozenset"): _Maker(frozenset, list),
    ("collections", "OrderedDict"): _Maker(OrderedDict, list),
    ("collections", "Counter"): _Maker(Counter, dict),
    ("collections", "deque"): _Maker(deque, list, tuple, int),
    ("fractions", "Fraction"): _Maker(Fraction, int),
    ("numpy", "dtype"): _Maker(_dtype),
    ("numpy", "ndarray"): np.ndarray,  # named, but not called
    **{
        (f"numpy.{core}.{module}", name): _Maker(make)
        for core in ("core", "_core")
        for module, name, make in (
            ("multiarray", "_reconstruct", _blank_array),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _array_of_bytes),
        )
    },
}


class _Counted(dict[int, Callable[[Any], None]]):
    """The operations of a reader, which are counted as they are looked up."""

    def __init__(self, operations: Mapping[int, Callable[[Any], None]]) -> None:
        super().__init__(operations)
        self.done = 0

    def __getitem__(self, operation: int) -> Callable[[Any], None]:
        self.done += 1
        if self.done > MAX_OPERATIONS:
            raise pickle.UnpicklingError("the message has too many objects")
        return super().__getitem__(operation)


#: The reader that is written in Python, whose operations can be replaced; the types know little of it.
_Reader: Any = pickle._Unpickler


class DataAlone(_Reader):  # type: ignore[misc]
    """Reads one message. What a message names by a word of ``known`` is that object of the caller's own."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(_Reader.dispatch)

    def __init__(self, pipe: IO[bytes], known: Mapping[str, object] | None = None) -> None:
        self._bounded, self._known = _Bounded(pipe), {} if known is None else known
        super().__init__(self._bounded, fix_imports=False)
        self.dispatch = self._counted = _Counted(type(self).dispatch)  # type: ignore[misc]
        self._odd_keys = 0

    @property
    def most_bytes_taken(self) -> int:
        """Return how much memory the message may take: an operation of one byte makes an object of hundreds."""
        return self._bounded.bytes_read + _BYTES_OF_OBJECT * self._counted.done

    @property
    def ended(self) -> bool:
        """Return whether the other end closed the pipe before the message was complete."""
        return self._bounded.ended

    def find_class(self, module: str, name: str) -> Any:
        """Return what a message names. Raises ``UnpicklingError`` for anything but data."""
        if (module, name) in _MAKERS:
            return _MAKERS[module, name]
        result = super().find_class(module, name) if module.split(".")[0] == "symattn" else None
        if not (isinstance(result, type) and _is_data_of_symattn(result)):
            raise pickle.UnpicklingError(f"{module}.{name} is no data")
        return result

    def persistent_load(self, word: str) -> object:
        """Return the caller's object of this name."""
        return self._known[word]

    def _change(self, *kinds: type) -> Any:
        """Return the object that an operation changes. Raises ``UnpicklingError`` unless the message brought it."""
        changed = self.stack[-1]
        if not isinstance(changed, kinds) or any(changed is own for own in self._known.values()):
            raise pickle.UnpicklingError(f"the message changes {type(changed).__name__}")
        return changed

    def _count_keys(self, keys: Iterable[Any]) -> None:
        """Count keys and members that may all have one hash. Raises ``UnpicklingError`` for too many."""
        for key in keys:
            is_plain = type(key) is str or (type(key) in (int, bool) and abs(key) < _SHORT)
            self._odd_keys += not is_plain
        if self._odd_keys > _MAX_ODD_KEYS:
            raise pickle.UnpicklingError("the message has too many keys that are no texts")

    def _load_reduce(self) -> None:
        parts = self.stack.pop()
        make = self.stack[-1]
        for part in parts:
            # All that is made from a list may be made of its keys.
            if isinstance(part, list):
                self._count_keys(part)
        is_own = isinstance(make, type) and issubclass(make, Enum | SymattnError)
        if not (is_own or isinstance(make, _Maker)):
            raise pickle.UnpicklingError(f"{make} is not called")
        self.stack[-1] = make(*parts)

    def _load_new(self) -> None:
        parts = self.stack.pop()
        kind = self.stack[-1]
        if not (
            isinstance(kind, type) and _is_data_of_symattn(kind) and not issubclass(kind, Enum)
        ):
            raise pickle.UnpicklingError(f"{kind} is not made")
        self.stack[-1] = kind.__new__(kind, *parts)

    def _load_state(self) -> None:
        state = self.stack.pop()
        changed = self._change(object)
        # Only data of NumPy and of this project may be changed by a message.
        kind = type(changed)
        if kind is np.ndarray:
            _fill_array(changed, *state)
        elif isinstance(changed, np.dtype):
            _check_dtype_state(*state)
        elif _is_data_of_symattn(kind) and not isinstance(changed, Enum):
            _set_fields(changed, state)
        else:
            raise pickle.UnpicklingError(f"the message changes {kind.__name__}")

    def _load_append(self) -> None:
        item = self.stack.pop()
        self._change(list, deque).append(item)

    def _load_appends(self) -> None:
        items = self.pop_mark()
        self._change(list, deque).extend(items)

    def _load_item(self) -> None:
        name, value = self.stack[-2:]
        del self.stack[-2:]
        self._count_keys([name])
        self._change(dict)[name] = value

    def _load_items(self) -> None:
        items = self.pop_mark()
        self._count_keys(items[::2])
        changed = self._change(dict)
        for name, value in zip(items[::2], items[1::2], strict=True):
            changed[name] = value

    def _load_members(self) -> None:
        items = self.pop_mark()
        self._count_keys(items)
        self._change(set).update(items)

    def _load_dictionary(self) -> None:
        items = self.pop_mark()
        self._count_keys(items[::2])
        self.append(dict(zip(items[::2], items[1::2], strict=True)))

    def _load_frozen_members(self) -> None:
        items = self.pop_mark()
        self._count_keys(items)
        self.append(frozenset(items))

    def _load_changeable_bytes(self) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        # Read as bytes, since Python's own operation takes the memory before it reads.
        self.append(bytearray(self.read(length)))

    def _load_long_number(self) -> None:
        (length,) = struct.unpack("<i", self.read(4))
        if not 0 <= length <= _MAX_BYTES_OF_NUMBER:
            raise pickle.UnpicklingError("the number is too long")
        self.append(pickle.decode_long(self.read(length)))

    dispatch |= {
        pickle.REDUCE[0]: _load_reduce,
        pickle.NEWOBJ[0]: _load_new,
        pickle.BUILD[0]: _load_state,
        pickle.APPEND[0]: _load_append,
        pickle.APPENDS[0]: _load_appends,
        pickle.SETITEM[0]: _load_item,
        pickle.SETITEMS[0]: _load_items,
        pickle.ADDITEMS[0]: _load_members,
        pickle.DICT[0]: _load_dictionary,
        pickle.FROZENSET[0]: _load_frozen_members,
        pickle.LONG4[0]: _load_long_number,
        pickle.BYTEARRAY8[0]: _load_changeable_bytes,
    }
    # Other ways to call a class, which symattn's own messages do not take.
    for _way in (pickle.INST, pickle.OBJ, pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2, pickle.EXT4):
        del dispatch[_way[0]]


def _is_data_of_symattn(kind: type) -> bool:
    is_own = kind.__module__.split(".")[0] == "symattn"
    return is_own and (is_dataclass(kind) or issubclass(kind, Enum | SymattnError | tuple | dict))


def _fill_array(
    array: np.ndarray, version: int, shape: Any, dtype: Any, order: Any, data: Any
) -> None:
    """Give an array the contents of a message, after checks that NumPy does not make."""
    is_shape = type(shape) is tuple and all(type(size) is int and size >= 0 for size in shape)
    if not (is_shape and isinstance(dtype, np.dtype) and type(data) is bytes):
        raise pickle.UnpicklingError("this is no array")
    set_state: Any = array.__setstate__
    set_state((version, shape, dtype, bool(order), data))


def _check_dtype_state(version: int, order: str, *parts: Any) -> None:
    """Refuse a state other than that of a dtype of this machine, which has it already."""
    native = {"little": "<", "big": ">"}[sys.byteorder]
    if order not in ("|", "=", native) or any(part is not None for part in parts[:3]):
        raise pickle.UnpicklingError("this is no dtype of numbers")


def _set_fields(changed: Any, state: Any) -> None:
    """Set the fields of a dataclass, or the attributes of an error, but none that hides a method."""
    kind = type(changed)
    if hasattr(kind, "__setstate__"):
        kind.__setstate__(changed, state)  # of a frozen dataclass with slots
        return
    fields = getattr(kind, "__dataclass_fields__", {})
    # Attributes, and those in slots.
    both = state if isinstance(state, tuple) else (state, None)
    for part in both:
        for name, value in (part or {}).items():
            if name not in fields and callable(getattr(kind, name, None)):
                raise pickle.UnpicklingError(f"the message replaces {kind.__name__}.{name}")
            object.__setattr__(changed, name, value)


class Sender(pickle.Pickler):
    """Writes a message, with a word in the place of each object that the other end knows: ``known``, by identity."""

    def __init__(self, pipe: Any, known: Mapping[int, str]) -> None:
        super().__init__(pipe)
        self._known = known

    def persistent_id(self, thing: object) -> str | None:
        """Return the word of an object that the other end knows."""
        return self._known.get(id(thing))
