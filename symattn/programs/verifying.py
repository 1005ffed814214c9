"""The options of a verification, and how they find a function, call it, and verify it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from symattn.arrays.precision import Contract, Precision
from symattn.attention.fields import finite, whole
from symattn.attention.spec import Attention
from symattn.bounds.called_target import AXES, Alignment, Framework, Layout, Runner
from symattn.bounds.domain import Domain
from symattn.document.errors import CannotRun, InputError
from symattn.document.evidence import Verdict
from symattn.document.keywords import Answering, layout_name
from symattn.programs.names import Function
from symattn.programs.refusing import NotCallable
from symattn.programs.request import Request, keyword
from symattn.programs.specifications import Specification, kind_of
from symattn.programs.target import narrowed, target
from symattn.verification import engine
from symattn.verification.engine import Progress, Session, Unusable
from symattn.verification.power import verdict
from symattn.verification.repair import Repairs
from symattn.verification.report import Report


@dataclass(frozen=True, kw_only=True)
class Options(Answering):
    """The options of ``verify`` and of others that call functions in this process; ``child`` adds those of targets.

    ``call`` holds keywords to pass, by name or as texts such as ``is_causal=true``. With ``repair``, edits of
    the source of a wrong function are sought that make it right. If the ``verdict_alone`` is wanted, the first call
    that shows a fault for certain ends the search. ``fresh`` returns the seed once the function was loaded and is
    ready to be called, in place of ``seed``.
    """

    dtype: str | Precision = "float32"
    contract: Contract | None = None
    call: Sequence[str] | Mapping[str, object] = ()
    mask_arg: str | None = None
    mask_axes: str | None = None
    layout: Layout | None = None
    framework: Framework | None = None
    domain: Domain | None = None
    examples: int = engine.EXAMPLES
    budget: float = engine.BUDGET
    seed: int = engine.SEED
    progress: Progress = lambda words: None
    power: Mapping[str, float] | None = None
    repair: bool = False
    verdict_alone: bool = False
    fresh: Callable[[Runner], int] | None = None

    def __post_init__(self) -> None:
        """Check the numbers and the layout."""
        check_numbers(budget=self.budget, examples=self.examples, seed=self.seed)
        if self.layout not in (None, *AXES):
            name = layout_name(str(self.layout), AXES)
            meant = f"; did you mean {name}?" if name else f"; known: {', '.join(AXES)}"
            raise InputError(f"layout is {self.layout!r}{meant}")

    @property
    def precision(self) -> Precision:
        """The arithmetic."""
        return Precision.of(self.dtype, self.contract)

    def request(self, spec: Specification) -> Request:
        """Return the request of these options for a specification."""
        call = tuple(
            self.call.items() if isinstance(self.call, Mapping) else map(keyword, self.call)
        )
        how = {
            "dtype": self.precision.input.name,
            "framework": self.framework,
            "mask_arg": self.mask_arg,
        }
        # The axes of a mask are in the letters of the command line.
        if self.mask_axes is not None:
            how["mask_axes"] = kind_of(spec).mask_form(spec, str(self.mask_axes))
        return requested(spec, self.layout, self.domain, call=call, **how)

    def opened(self, function: Any, spec: Specification) -> AbstractContextManager[Runner]:
        """Open the function, ready to be called."""
        return closing(target(function, self.request(spec)))

    def session(
        self, runner: Runner, spec: Specification, examples: int = 0, budget: float = engine.BUDGET
    ) -> Session:
        """Return the state of a verification of the function."""
        subject = kind_of(spec).subject(spec, runner.convention)
        domain = narrowed(runner, self.domain) or Domain()
        return Session(runner, subject, self.precision, domain, self.seed, examples, budget)


#: Options that are passed on by name.
_TRIED = ("seed", "examples", "budget", "progress", "power")


def verified(function: Function | str, spec: object, how: Options) -> Report:
    """Verify a function, or a target by its name. If logarithms of sums are returned, verify the output first."""
    spec = checked(spec, how.domain)
    how.request(spec)  # refuses words that name no call
    if how.power:
        _check_power(spec, how.power)
    tried = {name: getattr(how, name) for name in _TRIED}

    def one(
        spec: Specification,
        promised: Domain | None = how.domain,
        alone: bool = how.verdict_alone,
        refutes_at_large_sizes: bool = False,
    ) -> Report:
        with replace(how, domain=promised).opened(function, spec) as runner:
            subject = kind_of(spec).subject(spec, runner.convention)
            domain = narrowed(runner, promised)
            # A judge draws the seed after the candidate was loaded.
            drawn = {} if how.fresh is None else {"seed": how.fresh(runner)}
            settings = {
                **tried,
                **drawn,
                "verdict_alone": alone,
                "refutes_at_large_sizes": refutes_at_large_sizes,
                "mend": _find_repairs if how.repair else None,
            }
            try:
                return engine.verify(runner, subject, how.precision, domain, **settings)
            except Unusable as nothing:
                raise nothing.kind(str(nothing)) from None

    first, *others = kind_of(spec).parts(spec)
    report = one(first)
    if report.verdict is Verdict.FAULT and how.verdict_alone:
        return report
    if report.verdict is Verdict.FAULT:
        # A cause by another alignment would be asked of nobody, and a proof at large sizes may take minutes.
        judge = partial(one, alone=True, refutes_at_large_sizes=True)
        promised = how.domain or Domain()
        readings = kind_of(first).describe_right_readings(report, first, promised, judge)
        return replace(report, otherwise=readings)
    for other in others:
        report = _join_reports(report, one(other))
    return report


def _join_reports(output: Report, rest: Report) -> Report:
    """Return the report on an output and the one on what is returned with it as one."""
    notes = [n for n in (*output.notes, *rest.notes) if not n.startswith("It returns a tuple")]
    notes = [n.replace("primes it agrees", "primes its output agrees", 1) for n in notes]
    # ``tested`` applies to the output alone
    checks = (c for c in output.checks if c.epsilon is None)
    missing = () if rest.faults else tuple(dict.fromkeys((*output.missing, *rest.missing)))
    return replace(
        rest,
        checks=(*checks, *rest.checks),
        notes=tuple(dict.fromkeys(notes)),
        missing=missing,
        verdict=verdict(rest.faults, missing),
        power=() if rest.faults else (*output.power, *rest.power),
        smallest=() if rest.faults else output.smallest,
    )


def describe_right_readings(
    report: Report, spec: Attention, domain: Domain, judge: Callable[..., Report]
) -> str:
    """Return with which alignment, and for which numbers of queries, a wrong function is right; "" for none.

    Both are judged like the specification, if no input with as many queries as keys is known to be wrong.
    """
    sizes = [fault.counterexample.sizes if fault.counterexample else {} for fault in report.faults]
    # Only unequal lengths show an alignment.
    if not spec.reads_places or any(s.get("n_q") == s.get("n_k") for s in sizes):
        return ""
    other: Alignment = "bottom-right" if spec.alignment == "top-left" else "top-left"
    aligned = replace(spec, alignment=other)
    words = []
    is_right_if_aligned = False
    # A refusal means only that this reading explains nothing.
    with suppress(InputError, CannotRun):
        is_right_if_aligned = judge(aligned).verdict is Verdict.NO_FAULT
    if is_right_if_aligned:
        words.append(f"with --alignment {aligned.alignment}")
    with suppress(InputError, CannotRun):
        square = replace(domain, square=True)
        # For n_q = n_k both alignments are one, but that of documents, whose lengths may still differ.
        is_implied = is_right_if_aligned and not spec.documents
        if is_implied or judge(spec, square).verdict is Verdict.NO_FAULT:
            words.append("for n_q = n_k (--square)")
    return f"right {', or '.join(words)}" if words else ""


def _find_repairs(session: Session) -> Repairs:
    from symattn.programs.repairing.choosing import (
        find_repairs,
    )  # most functions are right, and never edited

    return find_repairs(session)


def check_function(function: object) -> None:
    """Raise ``NotCallable`` unless ``function`` is a function or a callable instance."""
    if inspect.isclass(function) or not callable(function):
        what = (
            f"{function.__name__} is a class"
            if inspect.isclass(function)
            else f"{function!r} cannot be called"
        )
        raise NotCallable(f"{what}; give the function itself, or an instance")


def check_numbers(**numbers: float | None) -> None:
    """Raise ``InputError`` for numbers out of range."""
    for name, number in numbers.items():
        if name in ("seed", "examples") and number is not None and not whole(number, 0):
            raise InputError(f"{name} must be an integer of at least 0, got {number!r}")
        if (
            name in ("budget", "time_limit")
            and number is not None
            and not (finite(number) and number > 0)
        ):
            raise InputError(
                f"{name.replace('_', '-')} must be a number of seconds above 0, got {number!r}"
            )
        if name == "memory_limit" and number is not None and not (finite(number) and number > 0):
            raise InputError(f"memory-limit must be a number of GiB above 0, got {number!r}")


def _check_power(spec: Specification, power: Mapping[str, float]) -> None:
    """Raise ``InputError`` for a ``power`` that does not apply."""
    if not isinstance(power, Mapping):
        raise InputError(
            f"power is {power!r}; hint: parts of numbers by steps, such as {{'scale': 0.001}}"
        )
    kind_of(spec).check_power(spec, power)


def checked(spec: object, domain: Domain | None) -> Specification:
    """Return the specification, by default plain attention. Raises ``InputError`` for anything else, and for a promise
    that does not apply to it."""
    specification: Any = Attention() if spec is None else spec
    kind = kind_of(specification)
    if domain is not None:
        kind.check_domain(specification, domain)
    return specification  # type: ignore[no-any-return]


def requested(
    spec: Specification, layout: Layout | None = None, domain: Domain | None = None, **keywords: Any
) -> Request:
    """Return the request of a specification with these settings."""
    keywords |= {"layout": layout or "auto", "domain": domain or Domain()}
    return kind_of(spec).request(spec, **keywords)
