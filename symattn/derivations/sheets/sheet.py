"""Sheets: what a walk starts from. A shipped example or a user's own file, JSON or npz, read without trusting it.

    {"schema": 1, "title": "…", "attention": {"scale": "none"}, "inputs": {"x": [["1/3", 2], …], "w_q": …}}

``inputs`` are the arrays of ``Attention``: x (y, w_q, …) or q, k, v, and what else the specification takes. Numbers are
taken exactly as typed: .1 is 1/10. ``attention`` holds fields of ``Attention``, see ``fields``. Optional: ``title``,
``source``, ``notes`` (texts), ``tokens`` (their names), ``printed`` (what a text printed, see ``Printed``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symattn.attention.inputs import NEEDED, OPTIONAL, TOKENS
from symattn.attention.spec import Attention
from symattn.derivations.sheets.numbers import Entries, shape_of
from symattn.derivations.sheets.schema import Printed, attention_of, printed_of, words_of
from symattn.derivations.sheets.text import MOST_BYTES, decoded, known
from symattn.errors import InputError

SCHEMA = 1
MOST_SCORES = 4096
_KEYS = ("schema", "title", "source", "notes", "aliases", "tokens", "attention", "inputs", "printed")


@dataclass(frozen=True)
class Sheet:
    """The inputs of a walk, exact, with what is told about them."""

    name: str
    title: str
    attention: Attention
    inputs: Mapping[str, Entries]
    source: str = ""
    notes: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    printed: Printed | None = None
    remarks: tuple[str, ...] = field(default=())


def read(path: str, name: str | None = None) -> Sheet:
    """The sheet in a file. Raises InputError, in one line, for whatever is wrong with it."""
    content = _content(path)
    if content[:4] == b"PK\x03\x04" or Path(path).suffix.lower() in (".npz", ".npy"):
        from symattn.derivations.sheets.npz import arrays

        return _from_arrays(path, arrays(path, content))
    return from_text(content, path, name or path)


def from_text(content: bytes, where: str, name: str) -> Sheet:
    """The sheet that the JSON text says."""
    data = decoded(content, where)
    if not isinstance(data, dict):
        raise InputError(f'{where}: a sheet is an object, {{"inputs": {{"x": …}}}}, not a {_json_type(data)}')
    if data.get("kind") == "listing" and isinstance(data.get("sheet"), dict):
        data = data["sheet"]  # what `symattn examples show NAME -f json` writes
    known(data, _KEYS, where)
    if str(data.get("schema", SCHEMA)) != str(SCHEMA):
        raise InputError(f"{where}: schema is {data['schema']}; this version of symattn reads {SCHEMA}")
    given, typed_decimals = _inputs(data, where)
    attention = attention_of(data.get("attention", {}), given, where)
    return Sheet(
        name,
        words_of(data, "title", where) or Path(where).name,
        attention,
        given,
        words_of(data, "source", where),
        _texts(data, "notes", where),
        _tokens(data, given, where),
        printed_of(data.get("printed"), where),
        ("Decimals in the sheet are taken exactly as typed: 0.1 is 1/10.",) if typed_decimals else (),
    )


def _content(path: str) -> bytes:
    file = Path(path)
    try:
        if file.is_dir():
            raise InputError(f"{path} is a directory; mend: name a file in it")
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{path} is larger than {MOST_BYTES // 2**20} MiB, which is more than a walk can show")
    if not content:
        raise InputError(f"{path} is empty")
    return content


def _inputs(data: dict[str, Any], where: str) -> tuple[dict[str, Entries], bool]:
    from symattn.derivations.sheets.numbers import array_of

    given = data.get("inputs")
    if not isinstance(given, dict) or not given:
        raise InputError(f'{where}: "inputs" is missing; mend: "inputs": {{"x": [[1, "1/2"], …]}}')
    known(given, INPUTS, f"{where}: inputs")
    decimals = False
    arrays: dict[str, Entries] = {}
    for name, entries in given.items():
        arrays[name], found = array_of(name, entries, where)
        decimals |= found
    _check_size(arrays, where)
    return arrays, decimals


INPUTS = tuple(dict.fromkeys((*TOKENS, *(f"{a}_{b}" for b in "qkvo" for a in "wb"), *NEEDED, *OPTIONAL)))


def _check_size(arrays: Mapping[str, Entries], where: str) -> None:
    """At most ``MOST_SCORES`` scores, and as many entries in every array."""
    for name, entries in arrays.items():
        size = _product(shape_of(entries))
        if size > MOST_SCORES:
            raise InputError(f"{where}: {name} has {size} entries; a walk takes at most {MOST_SCORES}")
    queries = arrays.get("x", arrays.get("q"))
    keys = arrays.get("y", arrays.get("x", arrays.get("k")))
    if queries is None or keys is None:
        return
    n_q, n_k = shape_of(queries), shape_of(keys)
    if len(n_q) > 1 and len(n_k) > 1 and _product(n_q[:-1]) * n_k[-2] > MOST_SCORES:
        raise InputError(f"{where}: {n_q[-2]} queries × {n_k[-2]} keys; a walk takes at most {MOST_SCORES} scores")


def _product(shape: tuple[int, ...]) -> int:
    out = 1
    for n in shape:
        out *= n
    return out


def _from_arrays(path: str, arrays: dict[str, Any]) -> Sheet:
    from symattn.derivations.sheets.numbers import array_of

    known(arrays, INPUTS, path)
    given = {name: array_of(name, array, path)[0] for name, array in arrays.items()}
    _check_size(given, path)
    remark = "Floats of the file are taken at their exact binary value: 0.1 is 3602879701896397/36028797018963968."
    return Sheet(path, Path(path).name, attention_of({}, given, path), given, remarks=(remark,))


def _texts(data: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    found = data.get(key, [])
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise InputError(f"{where}: {key} is a list of texts")
    return tuple(str(text) for text in found)


def _tokens(data: dict[str, Any], given: Mapping[str, Entries], where: str) -> tuple[str, ...]:
    tokens = _texts(data, "tokens", where)
    rows = shape_of(given["x"] if "x" in given else given.get("q", []))
    if tokens and (len(rows) < 2 or len(tokens) != rows[-2]):
        raise InputError(f"{where}: {len(tokens)} tokens are named; the queries are {rows[-2] if len(rows) > 1 else 0}")
    return tokens


def _json_type(data: Any) -> str:
    return {list: "list", bool: "truth value", type(None): "null"}.get(type(data), "single value")
