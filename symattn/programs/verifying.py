"""The options of a verification, and how they find a function, call it, and verify it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any, cast

from symattn.arrays.precision import Contract, Precision
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Framework, Layout, Runner
from symattn.bounds.domain import Domain
from symattn.document.codec import command, differing
from symattn.document.errors import CannotRun, InputError
from symattn.document.evidence import Verdict
from symattn.document.keywords import Answering
from symattn.programs.loading import NotCallable
from symattn.programs.names import Function
from symattn.programs.process import Child, ProcessLimits
from symattn.programs.request import Request, RequestOrigin, keyword
from symattn.programs.target import narrowed, target
from symattn.verification import engine
from symattn.verification.attention import OfAttention, is_plain
from symattn.verification.definitions.registry import Specification, attention_of, is_definition, written
from symattn.verification.engine import Progress, Session, Unusable
from symattn.verification.report import Report
from symattn.verification.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Options(Answering):
    """The options of ``verify_target``, and of others that call functions, in this process or in a child.

    ``call`` holds keywords to pass, by name or as texts such as ``is_causal=true``, ``origin`` the preset or
    configuration that the command of the report is to name, and ``notes`` what the report is to say besides.
    """

    dtype: str | Precision = "float32"
    contract: Contract | None = None
    call: Sequence[str] | Mapping[str, object] = ()
    mask_arg: str | None = None
    layout: Layout | None = None
    framework: Framework | None = None
    domain: Domain | None = None
    origin: RequestOrigin | None = None
    notes: tuple[str, ...] = ()
    time_limit: float | None = None
    examples: int = engine.EXAMPLES
    budget: float = engine.BUDGET
    seed: int = engine.SEED
    progress: Progress = lambda words: None
    power: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be used."""
        numbers = ("budget", "examples", "seed", "time_limit")
        check_numbers(**{name: getattr(self, name) for name in numbers})

    @property
    def precision(self) -> Precision:
        """The arithmetic."""
        return Precision.of(self.dtype, self.contract)

    def request(self, spec: Specification) -> Request:
        """Return the request that these options make."""
        call = tuple(self.call.items() if isinstance(self.call, Mapping) else map(keyword, self.call))
        how: dict[str, Any] = {name: getattr(self, name) for name in ("framework", "mask_arg")}
        return requested(spec, self.layout, self.domain, call=call, dtype=self.precision.input.name, **how)

    @contextmanager
    def opened(self, function: Function | str, spec: Specification) -> Iterator[Runner]:
        """The function ready to be called: a target by its name in a process of its own, with time limits."""
        request = self.request(spec)
        limits = ProcessLimits() if self.time_limit is None else ProcessLimits(self.time_limit)
        runner: Runner = Child(function, request, limits) if isinstance(function, str) else target(function, request)
        try:
            yield runner
        finally:
            runner.close()

    def session(self, runner: Runner, spec: Specification, examples: int = 0, budget: float = engine.BUDGET) -> Session:
        """The function ready to be called and judged."""
        domain = narrowed(runner, self.domain) or Domain()
        return Session(runner, subject_of(runner, spec), self.precision, domain, self.seed, examples, budget)

    def command(self, *targets: str, spec: Specification, name: str = "verify", **others: object) -> str:
        """Return the command line that gives a report again; ``others`` are further options, with a value or None."""
        domain, request = self.domain or Domain(), self.request(spec)
        changed = {n: x if (x := getattr(self, n)) not in (_USUAL[n], "auto") else None for n in _COMMANDED} | others
        changed["call"] = [f"{keyword}={value!r}" for keyword, value in request.call]
        # what the domain promises, but for rows without any key, which the specification says
        promised = {n: getattr(domain, n) for n in domain.promises if n != "fully_masked_rows"}
        said = _said(spec, domain, self.origin or RequestOrigin())
        return command(name, *targets, options=[*promised.items(), *said, *changed.items()])


_COMMANDED = ("dtype", "mask_arg", "layout", "framework", "contract", "time_limit", "budget", "examples", "seed")
_USUAL = {field.name: field.default for field in fields(Options)}


def verify_target(target: str, spec: Specification | None = None, **options: Any) -> Report:
    """Verify ``package.module:function`` or ``file.py:function``, called in a child process with time limits.

    ``options`` are those of ``Options``. Raises ``CannotRun`` where the target cannot be imported either.
    """
    how = Options(**options)
    spec = checked(spec, how.domain)
    report = verified(target, spec, how)
    power = [f"{step}={float(share)!r}" for step, share in (how.power or {}).items()]
    return replace(report, command=how.command(target, spec=spec, power=power), notes=(*how.notes, *report.notes))


def verified(function: Function | str, spec: object, how: Options) -> Report:
    """Verify a function, or a target by its name. Where logarithms of sums are returned, verify the output first."""
    spec = checked(spec, how.domain)
    how.request(spec)  # refuses words that name no call
    _check_power(spec, how.power)
    tried = {name: getattr(how, name) for name in ("seed", "examples", "budget", "progress", "power")}

    def one(spec: Specification) -> Report:
        with how.opened(function, spec) as runner:
            subject, domain = subject_of(runner, spec), narrowed(runner, how.domain)
            try:
                return engine.verify(runner, subject, how.precision, domain, **tried)
            except Unusable as nothing:
                raise CannotRun(str(nothing)) from None

    if not isinstance(spec, Attention) or not spec.lse:
        return one(spec)
    from symattn.programs import definitions

    first = one(replace(spec, lse=False))
    return first if first.verdict is Verdict.FAULT else definitions.joined(first, one(spec))


def check_function(function: object) -> None:
    """Refuse what is no function."""
    if inspect.isclass(function) or not callable(function):
        what = f"{function.__name__} is a class" if inspect.isclass(function) else f"{function!r} cannot be called"
        raise NotCallable(f"{what}; give the function itself, or an instance")


def check_numbers(**numbers: float | None) -> None:
    """Refuse numbers that cannot be used."""
    for name, number in numbers.items():
        if name in ("seed", "examples") and number is not None and number < 0:
            raise InputError(f"{name} must be 0 or more, got {number}")
        if name in ("budget", "time_limit") and number is not None and not 0 < number < inf:
            raise InputError(f"{name.replace('_', '-')} must be a number of seconds above 0, got {number:g}")


def _check_power(spec: Specification, power: Mapping[str, float] | None) -> None:
    """Raise ``InputError`` for what cannot be asked for."""
    if not power:
        return
    from symattn.verification.arithmetic.aims import aims

    if not isinstance(power, Mapping):
        raise InputError(f"power is {power!r}; hint: parts of numbers by steps, such as {{'scale': 0.001}}")
    if not isinstance(spec, Attention) or spec.lse:
        raise InputError("power is for the output of Attention; hint: leave it out")
    aims(spec, power)


def _said(spec: Specification, domain: Domain, origin: RequestOrigin) -> Iterator[tuple[str, object]]:
    """The options of a specification: its fields, for a definition those of the attention that it is made of."""
    if is_definition(spec):
        yield "definition", written(spec)
    attention = attention_of(spec)
    if attention is not None:
        yield from _fields(attention, domain, origin)


def _fields(spec: Attention, domain: Domain, origin: RequestOrigin) -> Iterator[tuple[str, object]]:
    """The options of the origin, and of the fields in which a specification differs from it."""
    usual = Attention()
    yield from origin.options.items()
    changed = differing(spec, origin.spec)
    if domain.fully_masked_rows:
        changed["fully_masked"] = spec.fully_masked
    for name, value in changed.items():
        left_out = value == getattr(usual, name) and name != "fully_masked" and not isinstance(value, bool)
        yield ("without", name.replace("_", "-")) if left_out else (name, value)


def checked(spec: object, domain: Domain | None) -> Specification:
    """The specification, by default plain attention. Raises InputError for what is none, and open promises."""
    if spec is None or is_plain(spec):
        return spec or Attention()
    if not is_definition(spec):
        raise InputError(
            f"{spec!r} is not a specification; hint: give an Attention, LayerNorm, Gradient …; see definitions.md"
        )
    from symattn.programs import definitions  # most specifications are attention, and are not to wait for this

    definitions.check_domain(spec, domain or Domain())
    return spec


def requested(
    spec: Specification, layout: Layout | None = None, domain: Domain | None = None, **keywords: Any
) -> Request:
    """Return the request; for a definition all of it is in the specification."""
    keywords |= {"layout": layout or "auto", "domain": domain or Domain()}
    return Request.of(spec, **keywords) if is_plain(spec) else Request(spec=cast(Attention, spec), **keywords)


def subject_of(runner: Runner, spec: Specification) -> Subject:
    """The definition in the form in which a function is called."""
    if is_plain(spec):
        return OfAttention(spec)
    from symattn.programs import definitions

    agreed = runner.convention
    assert isinstance(agreed, definitions.Formed)
    return definitions.subject_of(spec, agreed)
