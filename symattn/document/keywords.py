"""Common names of parameters, and the error of one line for a call with an unknown parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from inspect import Signature, signature
from math import inf
from numbers import Integral
from typing import Any, SupportsFloat, TypeVar, cast

from symattn.document.errors import InputError, nearest_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Instance = TypeVar("_Instance")

#: The fields of ``Attention`` with their other names, as their records state them (``register_fields``).
FIELDS: dict[str, str] = {}
#: The same for other parameters.
OTHERS = {
    "d_k": "head_dim d_head dim_head head_size", "d_v": "", "d_model": "hidden_size", "n": "tokens",
    "n_k": "keys n_keys", "dtype": "precision", "kv_heads": "kv", "output": "out file", "color": "colour",
}  # fmt: skip
#: Names of the gradient of the output.
UPSTREAM = "dout grad_output grad_out d_out d_o g dy grad go upstream cotangent out_grad grad_o dout_ output_grad"
#: Formats by their short names.
SHORT = {
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
    "fp32": "float32",
    "f32": "float32",
    "single": "float32",
    "tf32": "tfloat32",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}
#: Descriptions of positions, and their other names in papers and code.
KINDS = {
    "rotary": "rope rotary_embedding roformer", "buckets": "t5 relative_bias relative_attention_bias",
    "shaw": "relative relative_position", "transformer-xl": "xl transfoxl", "disentangled": "deberta",
}  # fmt: skip
TOLERANCES = ("tolerance", "tol", "atol", "rtol")
PICKED = "no tolerance is picked: symattn bound prints the one that follows from the arithmetic"


def plain(name: str) -> str:
    """Return the name without case, hyphens and underscores: ``W_Q``, ``w_q`` and ``Wq`` are the same."""
    return name.replace("_", "").replace("-", "").lower()


def register_fields(names: Mapping[str, str]) -> None:
    """Add fields with their other names on the command line, in Python and in users' code, apart by spaces."""
    FIELDS.update(names)
    # Names that were grouped before lack the new ones.
    _group_parameter_names.cache_clear()


@cache
def _group_parameter_names() -> tuple[frozenset[str], ...]:
    return tuple(
        frozenset(map(plain, (name, *also.split())))
        for name, also in (*FIELDS.items(), *OTHERS.items())
    )


def other_name(word: str, known: Iterable[str]) -> str:
    """Return the name among ``known`` of which ``word`` is a synonym or spelling, or "".

    >>> from symattn import Attention
    >>> other_name("num_heads", ["heads", "causal"]), other_name("no-is-causal", ["causal", "no-causal"])
    ('heads', 'no-causal')
    """
    known, front = list(known), "no-" if word.startswith("no-") else ""
    spellings = [
        {plain(word)},
        # Synonyms of the word, each also with no- in front.
        *(
            {plain(front + w) for w in group}
            for group in _group_parameter_names()
            if plain(word.removeprefix(front)) in group
        ),
    ]
    return next((name for names in spellings for name in known if plain(name) in names), "")


def kind_name(word: str, known: Iterable[str]) -> str:
    """Return the description among ``known`` that papers and code also call ``word``, or "".

    >>> kind_name("RoPE", ["rotary", "alibi"]), kind_name("RoPE", ["alibi"])
    ('rotary', '')
    """
    kinds = KINDS.items()
    names = {plain(also): kind for kind, words in kinds for also in words.split()}
    name = names.get(plain(word), "")
    return name if name in known else ""


def format_name(word: str) -> str:
    """Return the full name of a format, which may be given by its short name.

    >>> format_name("bf16"), format_name("float32"), format_name("exact")
    ('bfloat16', 'float32', 'exact')
    """
    return SHORT.get(word, word)


def layout_name(word: str, known: Iterable[str]) -> str:
    """Return the order of axes among ``known`` that others write with s, t or l for tokens and e for columns, or "".

    >>> layout_name("BSHD", ["bhnd", "bnhd"]), layout_name("sbhd", ["nbhd"]), layout_name("thd", ["nhd"])
    ('bnhd', 'nbhd', 'nhd')
    """
    name = word.lower().translate(str.maketrans("stle", "nnnd"))
    return name if name in known else ""


def unknown(
    whose: str, word: str, known: Iterable[str], of_attention: bool = False, what: str = "parameter"
) -> InputError:
    """Return the error for an unknown parameter, with the one that is probably meant, or with all known ones.

    ``of_attention``: the function takes a specification, so fields of ``Attention`` are suggested, too.
    """
    known = list(known)
    first = f"{whose} has no {what} {word}"
    # Tolerances are not chosen here, and the message says why.
    if word in TOLERANCES:
        return InputError(f"{first}; {PICKED}")
    # An input may be known by a usual word for its letter.
    letter = "".join(ROLES.get(plain(word), ())) if what == "input" else ""
    if right := other_name(word, known) or other_name(letter, known):
        return InputError(f"{first}; it is called {right}")
    fields = [name for name in FIELDS if of_attention and name not in known]
    also = (
        w
        for name, words in (*FIELDS.items(), *OTHERS.items())
        if {name} & {*known, *fields}
        for w in words.split()
    )
    # A misspelt synonym leads to the name that it stands for.
    nearest = other_name(nearest_of(word, also, 0.75), (*known, *fields)) or nearest_of(
        word, (*known, *fields)
    )
    if field := other_name(word, fields) or (nearest if nearest in fields else ""):
        return InputError(f"{first}; it is a field: write Attention({field}=…)")
    return InputError(
        first
        + (f"; did you mean {nearest}?" if nearest else f"; it takes {', '.join(known) or 'none'}")
    )


@cache
def _cached_signature(function: Callable[..., object]) -> Signature:
    return signature(function)


def _check_call_signature(
    function: Callable[..., object],
    whose: str,
    values: tuple[object, ...],
    named: Mapping[str, object],
) -> None:
    """Raise InputError if a call does not match the signature."""
    try:
        # The same check as in a call, but with names in the message.
        _cached_signature(function).bind(*values, **named)
    except TypeError as error:
        parameters = [
            p for p in _cached_signature(function).parameters.values() if p.name != "self"
        ]
        known = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        closed = all(p.kind != p.VAR_KEYWORD for p in parameters)
        for word in named:
            if word not in known and (closed or nearest_of(word, known)):
                raise unknown(whose, word, known, bool({"spec", "attention"} & {*known})) from None
        raise InputError(f"{whose}: {error}; it takes {', '.join(known)}") from None


def plain_integer(value: object) -> object:
    """Return an integer or truth value of NumPy as one of Python, also in a tuple; anything else as it is.

    >>> import numpy as np
    >>> plain_integer((np.int64(2), np.True_, None, 3.0))
    (2, True, None, 3.0)
    """
    if type(value) is tuple:
        return tuple(map(plain_integer, value))
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    if isinstance(value, Integral) and not isinstance(value, int):
        return int(value)
    return value


def plain_number(value: object) -> object:
    """Return a number of NumPy or ml_dtypes as the equal one of Python, also in a tuple; anything else as it is.

    >>> import numpy as np
    >>> plain_number((np.float16(0.5), np.int64(2), None))
    (0.5, 2, None)
    """
    if type(value) is tuple:
        return tuple(map(plain_number, value))
    if type(value).__module__ in ("numpy", "ml_dtypes") and "float" in type(value).__name__:
        return float(cast(SupportsFloat, value))
    return plain_integer(value)


def is_integer_within(value: object, least: int, most: float = inf) -> bool:
    """Return whether a value is an integer from ``least`` to ``most``; True and False are none.

    >>> is_integer_within(2, 1, 3), is_integer_within(True, 1, 3), is_integer_within(2.0, 1, 3)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def answering(function: _Function) -> _Function:
    """Decorate a function so that a call that does not match its signature raises InputError with one line, and that
    integers of NumPy count as integers."""

    @wraps(function)
    def called(*values: object, **named: object) -> Any:
        __tracebackhide__ = True
        values = tuple(map(plain_integer, values))
        named = {name: plain_integer(value) for name, value in named.items()}
        # The signature is looked at only if the call fails, since calls are frequent.
        try:
            return function(*values, **named)
        except TypeError:
            _check_call_signature(
                function, function.__qualname__.removesuffix(".__call__"), values, named
            )
            raise

    return cast(_Function, called)


class _Class(type):
    def __call__(cls: type[_Instance], *values: object, **named: object) -> _Instance:
        values = tuple(map(plain_number, values))
        named = {name: plain_number(value) for name, value in named.items()}
        try:
            return cast(_Instance, type.__call__(cls, *values, **named))
        except TypeError:
            _check_call_signature(cls.__init__, cls.__name__, (None, *values), named)
            raise

    @property
    def __signature__(cls) -> Signature:
        """The parameters of ``__init__``, which ``help`` shows."""
        whole = _cached_signature(cast(Any, cls).__init__)
        return whole.replace(parameters=[*whole.parameters.values()][1:])


class Answering(metaclass=_Class):
    """A class whose instances are made by keywords: a call that does not match raises InputError with one line."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        call = cls.__dict__.get("__call__")
        if call and not hasattr(
            call, "__wrapped__"
        ):  # a dataclass with slots is made a second time
            type.__setattr__(cls, "__call__", answering(call))


_PROJECTIONS = {
    "q": "q q_proj to_q query wq q_lin linear_q q_linear query_proj proj_q fc_q",
    "k": "k k_proj to_k key wk k_lin linear_k k_linear key_proj proj_k fc_k",
    "v": "v v_proj to_v value wv v_lin linear_v v_linear value_proj proj_v fc_v",
    "o": "o o_proj out_proj to_out c_proj wo out proj dense out_lin linear_out output_proj proj_out fc_o output "
    "attention_output",
    "qkv": "in_proj c_attn wqkv qkv qkv_proj to_qkv query_key_value w_qkv proj_qkv w_pack",
    "kv": "to_kv kv_proj wkv kv",
}
#: The projections that a weight contains, by the plain word for it: ``cattn`` has q, k and v.
ROLES = {plain(word): tuple(role) for role, words in _PROJECTIONS.items() for word in words.split()}
