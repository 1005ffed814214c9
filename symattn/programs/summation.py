"""``summation``: the order in which a function adds that takes sums or matrix products, and no attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from symattn.bounds.called_target import Framework
from symattn.document.errors import InputError
from symattn.document.keywords import format_name
from symattn.programs import frameworks
from symattn.programs.loading import one_line
from symattn.verification.summing.asking import TermNumbers, TermSum
from symattn.verification.summing.order import Order, ordered
from symattn.verification.summing.tree import NoTree

Kind = Literal["sum", "product"]
Array = np.ndarray
COLUMNS = 64
DTYPES = ("bfloat16", "float16", "float32", "float64")
LEAST, MOST = 4, 4096  # terms
_ROWS = 4  # of the left factor


def summation(
    function: Callable[..., Any],
    kind: Kind = "sum",
    *,
    terms: int = 128,
    dtype: str = "float32",
    framework: Framework = "numpy",
) -> Order:
    """Find the order in which ``function`` adds, and with how many digits; ``arithmetic`` does so for attention.

    A ``sum`` takes x (m, n) and returns the sums (m,) of its rows; a ``product`` takes a (m, n) and b (n, d) and
    returns a b (m, d); n is the number of ``terms``. The function is called with up to 64 rows or columns at once,
    at most 96 times for one tree. The tree is found from outputs alone, so it is sampled. Raises ``InputError`` for
    another kind, framework or ``dtype`` (numbers of FP8 are too small to swallow others), and for ``terms`` not
    from 4 to 4096, ``MissingExtra`` if torch is not installed.

    >>> print(summation(lambda x: x.sum(axis=-1)).text)
    pairs((0+8+…+120), (1+9+…+121), …, (7+15+…+127))
    """
    if kind not in ("sum", "product"):
        raise InputError(f"kind is {kind!r}; hint: sum or product")
    if isinstance(terms, bool) or not isinstance(terms, int) or not LEAST <= terms <= MOST:
        raise InputError(f"terms must be an integer from {LEAST} to {MOST}, got {terms!r}")
    dtype = format_name(dtype)
    if dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}; its bits do not identify an arithmetic; hint: {' or '.join(DTYPES)}")
    arrays = frameworks.arrays(framework)

    def run(*arguments: Array) -> Array:
        try:
            values = frameworks.read(function(*(arrays.make(np.ascontiguousarray(a), dtype) for a in arguments)))[0]
        except Exception as error:  # whatever a foreign function does
            raise NoTree(f"the function refuses these inputs ({one_line(error)})") from None
        wanted = (len(arguments[0]),) if kind == "sum" else (len(arguments[0]), arguments[1].shape[1])
        if values.shape != wanted:
            raise NoTree(f"the function gives an output of the shape {values.shape}, and not {wanted}")
        return values

    def call(columns: Array) -> Array:
        return run(columns.T) if kind == "sum" else run(np.ones((_ROWS, len(columns))), columns)[0]

    return ordered("terms", terms, lambda n: TermSum(n, COLUMNS, TermNumbers.of(dtype, n), call), MOST)
