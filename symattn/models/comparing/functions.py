"""``symattn.compare`` and ``symattn compare``: two functions that are to compute the same attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from symattn.arrays.precision import Contract, Precision
from symattn.attention.spec import Attention
from symattn.bounds.domain import Domain
from symattn.bounds.target import Runner
from symattn.models.comparing.answer import Comparison, Side
from symattn.models.comparing.together import Together, together
from symattn.programs.child import Child, Limits
from symattn.programs.origin import Origin
from symattn.programs.request import keyword
from symattn.programs.target import narrowed
from symattn.programs.verify import (
    called,
    check_numbers,
    checked,
    command_line,
    effort,
    requested,
    verify,
    verify_target,
)
from symattn.verification import engine
from symattn.verification.attention import OfAttention
from symattn.verification.definitions.registry import Specification, is_definition
from symattn.verification.engine import Progress, Session
from symattn.verification.subject import Subject

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
    """Two functions disagree: which of them is wrong, or do they differ by rounding alone?

    Each is verified against ``spec`` as by ``verify``, whose parameters these are, and both are called with the same
    inputs: an output is a fault if no implementation in the ``precision`` could give it, and the other function is no
    judge. ``call`` holds the keywords to pass to each of the two. Raises what ``verify`` raises.

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
        check_numbers(function, budget=budget, examples=examples, seed=seed)
    spec, arithmetic = checked(spec, domain), Precision.of(dtype or precision, contract)
    told: dict[str, Any] = {"precision": arithmetic, "domain": domain, "examples": examples, "seed": seed}
    reports = [verify(f, spec, call=c, budget=budget, **told) for f, c in zip((first, second), call, strict=True)]

    def opened(k: int, _: ExitStack) -> Runner:
        request = requested(spec, dtype=arithmetic.input.name, call=tuple(call[k].items()), domain=domain)
        return called((first, second)[k], request)

    sides = tuple(Side(report.target, report) for report in reports)
    return _answer(sides, spec, told | {"precision": arithmetic, "budget": budget}, opened)


def compare_targets(
    first: str,
    second: str,
    spec: Specification | None = None,
    *,
    dtype: str = "float32",
    contract: Contract | None = None,
    domain: Domain | None = None,
    call: tuple[Iterable[str], Iterable[str]] = ((), ()),
    origin: Origin | None = None,
    notes: tuple[str, ...] = (),
    time_limit: float | None = None,
    examples: int = engine.EXAMPLES,
    budget: float = engine.BUDGET,
    seed: int = engine.SEED,
    progress: Progress = lambda words: None,
) -> Comparison:
    """The same for two ``package.module:function`` or ``file.py:function``, each in a child process of its own.

    Parameters are those of ``verify_target``; ``call`` holds the texts such as ``is_causal=true`` for each of the two.
    """
    spec, names, passed = checked(spec, domain), (first, second), tuple(tuple(c) for c in call)
    told: dict[str, Any] = {"domain": domain, "examples": examples, "seed": seed}
    reports = []
    for name, passing, side in zip(names, passed, ("first", "second"), strict=True):
        say = partial(_said, progress, side)
        judging: dict[str, Any] = {"contract": contract, "origin": origin, "time_limit": time_limit, "budget": budget}
        reports.append(verify_target(name, spec, dtype=dtype, call=passing, progress=say, **judging, **told))
    limits = Limits() if time_limit is None else replace(Limits(), call=time_limit)

    def opened(k: int, stack: ExitStack) -> Runner:
        request = requested(spec, dtype=dtype, call=tuple(map(keyword, passed[k])), domain=domain)
        return stack.enter_context(Child(names[k], request, limits))

    progress("both on the same inputs")
    sides = tuple(Side(name, report) for name, report in zip(names, reports, strict=True))
    found = _answer(sides, spec, told | {"precision": Precision.of(dtype, contract), "budget": budget}, opened)
    options = effort(contract, time_limit, budget, examples, seed)
    options |= {"first-call": [*passed[0]], "second-call": [*passed[1]]}
    request = requested(spec, dtype=dtype, domain=domain)
    how: dict[str, Any] = {"domain": domain or Domain(), "options": options, "origin": origin}
    line = command_line(first, second, spec=spec, request=request, name="compare", **how)
    return replace(found, command=line, notes=(*notes, *found.notes))


def _said(progress: Progress, side: str, words: str) -> None:
    progress(f"{side}: {words}")


def _answer(
    sides: tuple[Side, ...], spec: Specification, told: Mapping[str, object], opened: Callable[[int, ExitStack], Runner]
) -> Comparison:
    """The verdict of both reports, with what both give for the same inputs."""
    faults = [fault for side in sides for fault in side.report.faults]
    with ExitStack() as stack:
        first, second = (_session(opened(k, stack), spec, told) for k in (0, 1))
        try:
            found: Together = together((first, second), faults)
        finally:
            first.runner.close()
            second.runner.close()
    one, other = sides
    return Comparison(one, other, found)


def _session(runner: Runner, spec: Specification, told: Mapping[str, Any]) -> Session:
    """A side ready to be called and judged, with as much effort as a verification has."""
    domain = narrowed(runner, told["domain"]) or Domain()
    examples = min(told["examples"], _FEWER)
    return Session(
        runner,
        _subject(spec, runner),
        told["precision"],
        domain,
        told["seed"],
        examples=examples,
        budget=told["budget"],
    )


def _subject(spec: Specification, runner: Runner) -> Subject:
    if not is_definition(spec):
        assert isinstance(spec, Attention)
        return OfAttention(spec)
    from symattn.programs import definitions

    agreed = runner.convention
    assert isinstance(agreed, definitions.Formed)
    return definitions.subject_of(spec, agreed)
