"""``symattn.compare`` and ``symattn compare``: two functions that are to compute the same attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from symattn.arrays.precision import Contract, Precision
from symattn.bounds.called_target import Runner
from symattn.bounds.domain import Domain
from symattn.models.comparing.comparison import ComparedSide, Comparison, JointRun, together
from symattn.programs import verify as verifying
from symattn.programs.target import narrowed, target
from symattn.verification import engine
from symattn.verification.definitions.registry import Specification
from symattn.verification.engine import Progress, Session

_FEWER = 25  # inputs at random that both get, of as many as a verification takes


def compare(
    first: Callable[..., Any],
    second: Callable[..., Any],
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
        verifying.check_numbers(function, budget=budget, examples=examples, seed=seed)
    spec, arithmetic = verifying.checked(spec, domain), Precision.of(dtype or precision, contract)
    options: dict[str, Any] = {"precision": arithmetic, "domain": domain, "examples": examples, "seed": seed}
    reports = [
        verifying.verify(f, spec, call=c, budget=budget, **options) for f, c in zip((first, second), call, strict=True)
    ]

    def opened(k: int, _: ExitStack) -> Runner:
        request = verifying.requested(spec, dtype=arithmetic.input.name, call=tuple(call[k].items()), domain=domain)
        return target((first, second)[k], request)

    sides = tuple(ComparedSide(report.target, report) for report in reports)
    return _answer(sides, spec, options | {"precision": arithmetic, "budget": budget}, opened)


def compare_targets(
    first: str,
    second: str,
    spec: Specification | None = None,
    *,
    call: tuple[Iterable[str], Iterable[str]] = ((), ()),
    progress: Progress = lambda words: None,
    **options: Any,
) -> Comparison:
    """Compare two ``package.module:function`` or ``file.py:function``, each in a child process of its own.

    ``options`` are those of ``verify_target``; ``call`` holds the texts such as ``is_causal=true`` for each of the two.
    """
    every = verifying.Options(**options)
    spec, names = verifying.checked(spec, every.domain), (first, second)
    each = [replace(every, call=tuple(c), notes=()) for c in call]
    reports = []
    for name, one, side in zip(names, each, ("first", "second"), strict=True):
        say = partial(lambda side, words: progress(f"{side}: {words}"), side)
        reports.append(verifying.verify_target(name, spec, **{**vars(one), "progress": say}))

    def opened(k: int, stack: ExitStack) -> Runner:
        return stack.enter_context(each[k].child(names[k], spec))

    progress("both on the same inputs")
    sides = tuple(ComparedSide(name, report) for name, report in zip(names, reports, strict=True))
    settings = {name: getattr(every, name) for name in ("domain", "examples", "seed", "precision", "budget")}
    comparison = _answer(sides, spec, settings, opened)
    calls = {"first-call": [*each[0].call], "second-call": [*each[1].call]}
    line = every.command(*names, spec=spec, name="compare", **calls)
    return replace(comparison, command=line, notes=(*every.notes, *comparison.notes))


def _answer(
    sides: tuple[ComparedSide, ...],
    spec: Specification,
    results: Mapping[str, object],
    opened: Callable[[int, ExitStack], Runner],
) -> Comparison:
    """The verdict of both reports, with what both give for the same inputs."""
    faults = [fault for side in sides for fault in side.report.faults]
    with ExitStack() as stack:
        first, second = (_session(opened(k, stack), spec, results) for k in (0, 1))
        try:
            joint_run: JointRun = together((first, second), faults)
        finally:
            first.runner.close()
            second.runner.close()
    one, other = sides
    return Comparison(one, other, joint_run)


def _session(runner: Runner, spec: Specification, results: Mapping[str, Any]) -> Session:
    """A side ready to be called and judged, with as much effort as a verification has."""
    domain = narrowed(runner, results["domain"]) or Domain()
    examples = min(results["examples"], _FEWER)
    return Session(
        runner,
        verifying.subject_of(runner, spec),
        results["precision"],
        domain,
        results["seed"],
        examples=examples,
        budget=results["budget"],
    )
