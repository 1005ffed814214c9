"""``symattn.compare`` and ``symattn compare``: two functions that should compute the same attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from symattn.arrays.precision import Contract, Precision
from symattn.bounds.domain import Domain
from symattn.models.comparing.comparison import NAMES, ComparedSide, Comparison, JointRun, together
from symattn.programs.child import TargetOptions
from symattn.programs.names import Function
from symattn.programs.verifying import Options, check_function, checked, verified
from symattn.verification import engine
from symattn.verification.definitions.registry import Specification
from symattn.verification.engine import Progress

_FEWER = 25  # most random inputs on which both run


def compare(
    first: Function,
    second: Function,
    spec: Specification | None = None,
    *,
    precision: str | Precision = "float32",
    dtype: str | None = None,
    contract: Contract | None = None,
    domain: Domain | None = None,
    call: tuple[Mapping[str, object], Mapping[str, object]] = ({}, {}),
    examples: int = engine.EXAMPLES,
    budget: float = engine.BUDGET,
    seed: int = engine.SEED,
) -> Comparison:
    """Find out which of two functions is wrong, or whether they differ only by rounding.

    Each is verified against ``spec`` as by ``verify``, with the same parameters, and both are called with the same
    inputs. An output is a fault if no implementation in the ``precision`` could give it; neither function is the
    reference for the other. ``call`` holds the keywords to pass to each. Raises what ``verify`` raises.

    >>> import numpy as np
    >>> def attention(q, k, v):
    ...     s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    ...     e = np.exp(s - s.max(axis=-1, keepdims=True))
    ...     return e / e.sum(axis=-1, keepdims=True) @ v
    >>> def unscaled(q, k, v):
    ...     e = np.exp(q @ k.T - (q @ k.T).max(axis=-1, keepdims=True))
    ...     return e / e.sum(axis=-1, keepdims=True) @ v
    >>> compare(attention, unscaled, examples=4).wrong
    ('second',)
    """
    for function in (first, second):
        check_function(function)
    how = Options(
        dtype=dtype or precision, contract=contract, domain=domain, examples=examples, budget=budget, seed=seed
    )
    return _compared((first, second), checked(spec, domain), [replace(how, call=keywords) for keywords in call])


def compare_targets(
    first: str,
    second: str,
    spec: Specification | None = None,
    *,
    call: tuple[Sequence[str], Sequence[str]] = ((), ()),
    progress: Progress = lambda words: None,
    **options: Any,
) -> Comparison:
    """Compare two ``package.module:function`` or ``file.py:function``, each in a child process of its own.

    ``options`` are those of ``verify_target``; ``call`` holds the texts such as ``is_causal=true`` for each of the two.
    """
    every = TargetOptions(**options, progress=progress)
    spec, names = checked(spec, every.domain), (first, second)
    comparison = _compared(names, spec, [replace(every, call=tuple(words)) for words in call])
    calls = {"first-call": [*call[0]], "second-call": [*call[1]]}
    line = every.command(*names, spec=spec, name="compare", **calls)
    return replace(comparison, command=line, notes=(*every.notes, *comparison.notes))


def _compared(functions: Sequence[Function | str], spec: Specification, each: Sequence[Options]) -> Comparison:
    """Verify both, and run both on the same inputs, with the effort of a verification."""
    sides = []
    for function, how, side in zip(functions, each, NAMES, strict=True):
        say = partial(lambda how, side, words: how.progress(f"{side}: {words}"), how, side)
        report = verified(function, spec, replace(how, progress=say))
        sides.append(ComparedSide(function if isinstance(function, str) else report.target, report))
    each[0].progress("both on the same inputs")
    faults = [fault for side in sides for fault in side.report.faults]
    with ExitStack() as stack:
        first, second = (
            how.session(stack.enter_context(how.opened(function, spec)), spec, min(how.examples, _FEWER), how.budget)
            for function, how in zip(functions, each, strict=True)
        )
        joint_run: JointRun = together((first, second), faults)
    return Comparison(sides[0], sides[1], joint_run)
