"""``symattn.verify`` and ``symattn verify``: a function is found, called, and verified."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

from symattn.arrays.precision import Contract, Precision
from symattn.attention.spec import Attention
from symattn.errors import InputError
from symattn.sources.child import Child, Limits
from symattn.sources.loading import CannotRun, NotCallable
from symattn.sources.request import Request, keyword
from symattn.sources.target import target as in_process
from symattn.verification import engine
from symattn.verification.domain import Domain
from symattn.verification.engine import Progress, Unusable
from symattn.verification.report import Report
from symattn.verification.target import Framework, Layout, Runner


def verify(
    function: Callable[..., Any],
    spec: Attention | None = None,
    *,
    precision: str | Precision = "float32",
    domain: Domain | None = None,
    call: Mapping[str, object] | None = None,
    mask_arg: str | None = None,
    layout: Layout = "nd",
    framework: Framework | None = None,
    examples: int = engine.EXAMPLES,
    budget: float = engine.BUDGET,
    seed: int = engine.SEED,
) -> Report:
    """Does ``function`` compute the attention that ``spec`` says, to the last bit that its precision can promise?

    No tolerance is picked: an output is a fault if no implementation in the ``precision`` could give it. The function
    is called in this process, so there is no time limit for a call; no new input is tried after ``budget`` seconds, or
    beyond the probes and ``examples`` random ones. ``call`` holds keywords to pass as they are.
    Raises ``InputError`` where it is open how to call the function, ``CannotRun`` where it never returns anything.

    >>> from symattn import Attention
    >>> import numpy as np
    >>> def attention(q, k, v):
    ...     s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    ...     e = np.exp(s - s.max(axis=-1, keepdims=True))
    ...     return e / e.sum(axis=-1, keepdims=True) @ v
    >>> verify(attention, Attention()).verdict.value
    'no fault'
    """
    _check(function, budget=budget, examples=examples, seed=seed)
    spec, arithmetic = spec or Attention(), Precision.of(precision)
    request = Request.of(
        spec, dtype=arithmetic.input.name, layout=layout, framework=framework,
        call=tuple((call or {}).items()), mask_arg=mask_arg,
    )  # fmt: skip
    runner = in_process(function, request)
    return _verified(runner, spec, arithmetic, domain, seed=seed, examples=examples, budget=budget)


def verify_target(
    target: str,
    spec: Attention | None = None,
    *,
    dtype: str = "float32",
    contract: Contract | None = None,
    call: Iterable[str] = (),
    mask_arg: str | None = None,
    layout: Layout | None = None,
    framework: Framework | None = None,
    domain: Domain | None = None,
    time_limit: float | None = None,
    examples: int = engine.EXAMPLES,
    budget: float = engine.BUDGET,
    seed: int = engine.SEED,
    progress: Progress = lambda words: None,
) -> Report:
    """The same for ``package.module:function`` or ``file.py:function``, called in a child process with time limits.

    ``call`` holds texts such as ``is_causal=true``. Raises ``CannotRun`` where the target cannot be imported either.
    """
    _check(budget=budget, examples=examples, seed=seed, time_limit=time_limit)
    spec, arithmetic = spec or Attention(), Precision.of(dtype, contract)
    request = Request.of(
        spec, dtype=dtype, layout=layout or "nd", framework=framework,
        call=tuple(keyword(text) for text in call), mask_arg=mask_arg,
    )  # fmt: skip
    limits = Limits() if time_limit is None else replace(Limits(), call=time_limit)
    with Child(target, request, limits) as child:
        report = _verified(
            child, spec, arithmetic, domain, seed=seed, examples=examples, budget=budget, progress=progress
        )
    told = {
        "contract": contract,
        "time-limit": time_limit,
        "budget": budget if budget != engine.BUDGET else None,
        "examples": examples if examples != engine.EXAMPLES else None,
        "seed": seed if seed != engine.SEED else None,
    }
    return replace(report, command=_command(target, spec, request, domain or Domain(), told))


def _check(function: object = None, **numbers: float | None) -> None:
    """Refuse what is no function, and numbers that cannot be used."""
    if function is not None and (inspect.isclass(function) or not callable(function)):
        what = f"{function.__name__} is a class" if inspect.isclass(function) else f"{function!r} cannot be called"
        raise NotCallable(f"{what}; give the function itself, or an instance")
    for name, number in numbers.items():
        if name in ("seed", "examples") and number is not None and number < 0:
            raise InputError(f"{name} is {number}; it must be 0 or more")
        if name in ("budget", "time_limit") and number is not None and not 0 < number < inf:
            raise InputError(f"{name.replace('_', '-')} is {number:g}; it must be a number of seconds above 0")


def _command(target: str, spec: Attention, request: Request, domain: Domain, told: Mapping[str, object | None]) -> str:
    """The command line that gives this report again; ``told`` holds options that have a value, or None."""
    masked = spec.fully_masked if domain.fully_masked_rows else None
    valued: dict[str, object] = {
        "dtype": request.dtype if request.dtype != "float32" else None,
        "alignment": spec.alignment if spec.causal and spec.alignment != "bottom-right" else None,
        "mask": spec.mask,
        "scale": spec.scale,
        "heads": spec.heads if spec.heads > 1 else None,
        "fully-masked": masked,
        "mask-arg": request.mask_arg,
        "layout": request.layout if request.layout != "nd" else None,
        "framework": request.framework,
        "max-abs-score": domain.max_abs_score,
        **told,
    }
    flags = {"causal": spec.causal, "padding": spec.padding, "square": domain.square}
    words = ["symattn", "verify", target, *(f"--{name}" for name, on in flags.items() if on)]
    for name, value in valued.items():
        words += [] if value is None else [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    for name, value in request.call:
        words += ["--call", f"{name}={value!r}"]
    return shlex.join(words)


def _verified(runner: Runner, spec: Attention, precision: Precision, domain: Domain | None, **told: Any) -> Report:
    try:
        if spec.heads > 1 and "x" not in runner.convention.inputs:
            raise InputError(
                f"{runner.describe()}: {spec.heads} heads need a function of x, w_q, w_k, w_v; "
                "leave heads out for one of q, k, v"
            )
        return engine.verify(runner, spec, precision, domain, **told)
    except Unusable as nothing:
        raise CannotRun(str(nothing)) from None
    finally:
        runner.close()
