"""``symattn.arithmetic`` and ``symattn arithmetic``: what a function stores, and in which order it adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from symattn.arrays.formats import HALF
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Framework, Layout, Runner
from symattn.bounds.domain import Domain
from symattn.bounds.threads import one_blas_thread
from symattn.document.errors import CannotRun, InputError
from symattn.document.keywords import format_name
from symattn.programs import frameworks
from symattn.programs.child import TargetOptions
from symattn.programs.names import Function
from symattn.programs.refusing import one_line
from symattn.programs.specifications import Specification, kind_of
from symattn.programs.verifying import Options, check_function, checked
from symattn.verification.arithmetic.answer import Answer
from symattn.verification.arithmetic.bits_of_a_call import tried
from symattn.verification.definitions.norms import LayerNorm, RMSNorm
from symattn.verification.engine import SEED
from symattn.verification.summing.order import Order, ordered
from symattn.verification.summing.summed_attention import KEYS, norm_order, order, scores
from symattn.verification.summing.tree import NoTree, TermNumbers, TermSum

Spec = Attention | LayerNorm | RMSNorm
#: Formats whose roundings show an order of sums; FP8 has too few digits for that.
DTYPES = (*HALF, "float32", "float64")
LEAST, MOST = 4, 512  # keys


def arithmetic(
    function: Function,
    spec: Spec | None = None,
    *,
    dtype: str = "bfloat16",
    domain: Domain | None = None,
    call: Mapping[str, object] | None = None,
    mask_arg: str | None = None,
    layout: Layout | None = None,
    framework: Framework | None = None,
    keys: int = KEYS,
    seed: int = SEED,
) -> Answer:
    """Identify the storage precision and summation order of ``function`` from its outputs.

    The definition runs in float64 with the arrays rounded that an implementation may store: scores, scaled or
    capped scores, scaled queries, weights, or exponentials relative to the row's maximum or a running one over
    tiles of keys. Each choice reproduces a share of the function's outputs bit for bit; the function's own choice
    reproduces nearly all. A mistake in the function is found with it, as in ``verify``.

    The ``order`` of the answer is the tree by which the function adds over ``keys`` keys, found by further calls
    with zero queries (``symattn.verification.summing``). Its ``scores`` say whether two keys whose scores are equal
    in the format get the same weight. For a ``LayerNorm`` only the order of the sum over a row of ``keys`` entries
    is found, and for an ``RMSNorm`` none, since squares do not cancel.

    Parameters are those of ``verify``. ``dtype`` is ``bfloat16`` or ``float16``, or for the order alone ``float32``
    or ``float64``. Raises ``InputError`` for other formats, for ``keys`` not from 4 to 512, and if it is unclear
    how to call the function, ``CannotRun`` if it returns no outputs to compare.

    >>> import ml_dtypes, numpy as np
    >>> def attention(q, k, v):
    ...     q, k, v = (a.astype(np.float32) for a in (q, k, v))
    ...     s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    ...     e = np.exp(s - s.max(axis=-1, keepdims=True))
    ...     return (e / e.sum(axis=-1, keepdims=True) @ v).astype(ml_dtypes.bfloat16)
    >>> found = arithmetic(attention)
    >>> found.words, found.scores.stored
    ('the output alone is stored; in bfloat16', False)
    """
    check_function(function)
    how = Options(
        dtype=format_name(dtype),
        domain=domain,
        call=call or {},
        mask_arg=mask_arg,
        layout=layout,
        framework=framework,
        seed=seed,
    )
    return _determine_arithmetic(function, _check_arithmetic_spec(spec, how), how, keys)


def arithmetic_target(
    target: str, spec: Spec | None = None, *, keys: int = KEYS, **options: Any
) -> Answer:
    """Explain ``package.module:function`` or ``file.py:function``, called in a child process.

    ``options`` are those of ``verify_target``; the ``dtype`` is ``bfloat16`` if it is not given.
    """
    how = TargetOptions(**{"dtype": "bfloat16", **options})
    summed = _check_arithmetic_spec(spec, how)
    answer = _determine_arithmetic(target, summed, how, keys)
    line = how.command(
        target, spec=summed, name="arithmetic", dtype=how.dtype, keys=keys if keys != KEYS else None
    )
    return replace(answer, command=line)


def _check_arithmetic_spec(spec: Spec | None, how: Options) -> Specification:
    result = checked(spec, how.domain)
    kind_of(result).arithmetic()  # refuses what has none
    if how.dtype not in DTYPES:
        raise InputError(
            f"dtype is {how.dtype}; its bits do not identify an arithmetic; hint: {' or '.join(DTYPES)}"
        )
    return kind_of(result).parts(result)[0]


def _check_count(name: str, count: int, least: int, most: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not least <= count <= most:
        raise InputError(f"{name} must be an integer from {least} to {most}, got {count!r}")


@one_blas_thread
def _determine_arithmetic(
    function: Function | str, spec: Specification, how: Options, keys: int
) -> Answer:
    _check_count("keys", keys, LEAST, MOST)
    with how.opened(function, spec) as runner:
        return kind_of(spec).arithmetic()(runner, spec, how, keys)  # type: ignore[no-any-return]


def arithmetic_of_norm(
    runner: Runner, spec: LayerNorm | RMSNorm, how: Options, keys: int
) -> Answer:
    """Find the order in which a norm adds the entries of a row."""
    order_of_row = norm_order(runner, spec, how.precision.input.name, keys)
    return Answer(runner.describe(), None, order_of_row)


def arithmetic_of_attention(runner: Runner, spec: Attention, how: Options, keys: int) -> Answer:
    """Find what an attention stores, the order in which it adds over keys, and how it compares scores."""
    dtype = how.precision.input.name
    session = how.session(runner, spec)
    # What is stored is identified in half precision only.
    trial = tried(session, taken=False) if dtype in HALF else None
    if trial is None and dtype in HALF:
        raise CannotRun(
            f"{runner.describe()} gave no {dtype} numbers for 256 tokens, or too few, to compare"
        )
    result = order(runner, session.maker, keys)
    return Answer(runner.describe(), trial, result, scores(runner, session.maker, keys))


# -- sums and products of matrices -------------------------------------------------------------------------------------
Kind = Literal["sum", "product"]
Array = np.ndarray
# Columns or rows that one call sums at once.
COLUMNS = 64
_FEWEST, _MOST_TERMS = 4, 4096  # terms
_ROWS = 4  # rows of the left factor


def summation(
    function: Function,
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
    _check_count("terms", terms, _FEWEST, _MOST_TERMS)
    dtype = format_name(dtype)
    if dtype not in DTYPES:
        raise InputError(
            f"dtype is {dtype!r}; its bits do not identify an arithmetic; hint: {' or '.join(DTYPES)}"
        )
    arrays = frameworks.arrays(framework)

    def run(*arguments: Array) -> Array:
        try:
            values = frameworks.read(
                function(*(arrays.make(np.ascontiguousarray(a), dtype) for a in arguments))
            )[0]
        except Exception as error:  # a user's function may raise anything
            raise NoTree(f"the function refuses these inputs ({one_line(error)})") from None
        wanted = (
            (len(arguments[0]),) if kind == "sum" else (len(arguments[0]), arguments[1].shape[1])
        )
        if values.shape != wanted:
            raise NoTree(
                f"the function gives an output of the shape {values.shape}, and not {wanted}"
            )
        return values

    def call(columns: Array) -> Array:
        # A factor of ones makes a product the sums of the columns.
        return run(columns.T) if kind == "sum" else run(np.ones((_ROWS, len(columns))), columns)[0]

    return ordered(
        "terms", terms, lambda n: TermSum(n, COLUMNS, TermNumbers.of(dtype, n), call), _MOST_TERMS
    )
