"""``symattn.arithmetic`` and ``symattn arithmetic``: what a function stores on the way, told by its bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from symattn.arrays.precision import Precision
from symattn.attention.spec import Attention
from symattn.errors import InputError
from symattn.sources.child import Child
from symattn.sources.loading import CannotRun
from symattn.sources.origin import Origin
from symattn.sources.target import narrowed
from symattn.sources.verify import called, check_numbers, checked, command_line, requested
from symattn.verification.arithmetic.answer import Answer
from symattn.verification.arithmetic.trial import HALF, tried
from symattn.verification.attention import OfAttention
from symattn.verification.domain import Domain
from symattn.verification.engine import BUDGET, SEED, Session
from symattn.verification.target import Framework, Layout, Runner


def arithmetic(
    function: Callable[..., Any],
    spec: Attention | None = None,
    *,
    dtype: str = "bfloat16",
    domain: Domain | None = None,
    call: Mapping[str, object] | None = None,
    mask_arg: str | None = None,
    layout: Layout | None = None,
    framework: Framework | None = None,
    seed: int = SEED,
) -> Answer:
    """Tell what ``function`` stores in half precision, and relative to which maximum, from the bits of one call.

    The definition runs in float64 with the arrays rounded that an implementation may store: scores, scaled or capped
    scores, scaled queries, weights, or exponentials relative to the row's maximum or a running one over tiles of keys.
    Each choice gives some share of the function's outputs bit for bit; the function's own gives nearly all. A mistake
    in the function is found with it: see ``verify``, which asks the same. Parameters are those of ``verify``; ``dtype``
    is ``bfloat16`` or ``float16``. Raises ``InputError`` for others, and where it is open how to call the function,
    ``CannotRun`` where it gives no outputs to compare.

    >>> import ml_dtypes, numpy as np
    >>> def attention(q, k, v):
    ...     q, k, v = (a.astype(np.float32) for a in (q, k, v))
    ...     s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    ...     e = np.exp(s - s.max(axis=-1, keepdims=True))
    ...     return (e / e.sum(axis=-1, keepdims=True) @ v).astype(ml_dtypes.bfloat16)
    >>> arithmetic(attention).words
    'the output alone is stored; in bfloat16'
    """
    check_numbers(function, seed=seed)
    how: dict[str, Any] = {"layout": layout, "framework": framework, "mask_arg": mask_arg}
    spec = _spec(spec, domain, dtype)
    request = requested(spec, dtype=dtype, call=tuple((call or {}).items()), domain=domain, **how)
    return _answer(called(function, request), spec, dtype, domain, seed)


def arithmetic_target(
    target: str,
    spec: Attention | None = None,
    *,
    dtype: str = "bfloat16",
    domain: Domain | None = None,
    call: Iterable[str] = (),
    mask_arg: str | None = None,
    layout: Layout | None = None,
    framework: Framework | None = None,
    origin: Origin | None = None,
    seed: int = SEED,
) -> Answer:
    """The same for ``package.module:function`` or ``file.py:function``, called in a child process."""
    from symattn.sources.request import keyword

    check_numbers(seed=seed)
    how: dict[str, Any] = {"layout": layout, "framework": framework, "mask_arg": mask_arg}
    spec = _spec(spec, domain, dtype)
    request = requested(spec, dtype=dtype, call=tuple(map(keyword, call)), domain=domain, **how)
    with Child(target, request) as child:
        answer = _answer(child, spec, dtype, domain, seed)
    told = {"seed": seed if seed != SEED else None}
    line = command_line(target, spec, request, domain or Domain(), told, origin, "arithmetic")
    return replace(answer, command=line)


def _spec(spec: Attention | None, domain: Domain | None, dtype: str) -> Attention:
    found = checked(spec, domain)
    if not isinstance(found, Attention):
        raise InputError("arithmetic tells that of attention; mend: give an Attention")
    if dtype not in HALF:
        raise InputError(f"dtype is {dtype}; its bits tell nothing here; mend: {' or '.join(HALF)}")
    return replace(found, lse=False)


def _answer(runner: Runner, spec: Attention, dtype: str, domain: Domain | None, seed: int) -> Answer:
    session = Session(
        runner,
        OfAttention(spec),
        Precision.of(dtype),
        narrowed(runner, domain) or Domain(),
        seed,
        examples=0,
        budget=BUDGET,
    )
    try:
        trial = tried(session, taken=False)
    finally:
        runner.close()
    if trial is None:
        raise CannotRun(f"{runner.describe()} gave no {dtype} numbers for 256 tokens, or too few, to compare")
    return Answer(runner.describe(), trial)
