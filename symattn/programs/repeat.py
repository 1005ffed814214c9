"""Repeat one case: call a function on the inputs that a word of ``case_codes`` encodes; or write it as a test."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np

from symattn.arrays.formats import FORMATS, Format
from symattn.arrays.special import Undefined
from symattn.bounds.called_target import MADE, Argument, Convention, Inputs, Memory
from symattn.bounds.case_result import Case, CaseResult, Part
from symattn.document.errors import CannotRun, InputError
from symattn.document.evidence import Grade, Verdict
from symattn.programs import layouts
from symattn.programs.case_codes import decode, encode, inputs_of, named, speaks
from symattn.programs.child import TargetOptions, verify_target
from symattn.programs.frameworks import Tensor
from symattn.programs.loading import _locate_package_root
from symattn.programs.specifications import Specification
from symattn.verification import engine, session_report
from symattn.verification.engine import Session
from symattn.verification.report import Fault, Report
from symattn.verification.report_document import sentence

#: The group of a case that is repeated.
GROUP = "case"
#: Memory layouts in which a case is tried, in this order.
_MEMORIES: tuple[Memory, ...] = ("contiguous", "strided", "transposed")


@dataclass(frozen=True)
class Repeated:
    """Repeated calls, the last of them judged.

    ``calls`` are those that show the fault, in order, or all calls if none does.
    """

    calls: tuple[CaseResult, ...]
    convention: Convention
    report: Report

    @property
    def judged(self) -> CaseResult:
        """The call that shows the fault, or the last one."""
        return self.calls[-1]


def repeat(session: Session, inputs: Inputs, word: str) -> Repeated:
    """Call the function on these inputs until a fault shows: first once, then with other memory layouts, then after a
    call with other numbers in the same shapes."""
    from symattn.verification.diagnosis.faults import faults  # imports all known mistakes

    for calls in _yield_repeat_attempts(session, inputs, word):
        if calls[-1].finding is not None:
            session.records = list(calls)
            # One case does not prove a cause: a mistake that explains it may not explain others.
            opening = "seen alone, this case is consistent with"
            results = tuple(
                f if f.cause is None else replace(f, cause=None, message=f"{opening}: {f.cause}")
                for f in faults(session)
            )
            return Repeated(calls, session.runner.convention, _make_repeat_report(session, results))
    return Repeated(
        tuple(session.records), session.runner.convention, _make_repeat_report(session, ())
    )


def _yield_repeat_attempts(
    session: Session, inputs: Inputs, word: str
) -> Iterator[tuple[CaseResult, ...]]:
    for memory in _MEMORIES[: 1 if session.domain.contiguous else None]:
        judged = session.run_case(Case(GROUP, word, inputs, memory))
        session.records.append(judged)
        yield (judged,)
    session.runner.close()  # clear the state of the process
    # arrays with arbitrary numbers: negate them in the first call
    free = session.subject.source.free(inputs)
    # 0 − a and not −a, which turns 0 into −0.
    others = session.subject.source.completed(
        session, {n: 0.0 - a if n in free else a for n, a in inputs.items()}
    )
    first = session.run_case(Case(GROUP, "before it", others))
    judged = session.run_case(Case(GROUP, word, inputs))
    session.records += [first, judged]
    yield first, judged


def _make_repeat_report(session: Session, results: tuple[Fault, ...]) -> Report:
    checks = tuple(session_report.checks(session))
    said = any(check.grade is not Grade.UNDECIDED for check in checks)
    verdict = Verdict.FAULT if results else Verdict.NO_FAULT if said else Verdict.UNDECIDED
    late = dict.fromkeys(
        f"{r.outcome.error}; hint: raise --time-limit" for r in session.records if r.outcome.late
    )
    return Report(
        verdict,
        session.runner.describe(),
        session.precision.words,
        "this case alone",
        session.seed,
        results,
        checks,
        session.runner.notes,
        "".join(session.stdout),
        fields=session.subject.fields,
        missing=() if results else tuple(late),
    )


def repeat_target(target: str, spec: Specification, inputs: Inputs, **options: Any) -> Repeated:
    """``repeat`` for ``package.module:function`` or ``file.py:function`` in a process of its own.

    ``options`` are those of ``verify_target``. Raises as ``verify_target`` does.
    """
    how = TargetOptions(**options)
    with how.opened(target, spec) as child:
        session = how.session(child, spec)
        result = repeat(session, inputs, encode(spec, inputs, how.precision.input.name))
    if all(r.outcome.error is not None for r in result.calls) and not result.report.faults:
        raise CannotRun(f"{result.report.target}: {result.judged.outcome.error}")
    # without effect on one case
    usual = replace(how, examples=engine.EXAMPLES, budget=engine.BUDGET)
    return replace(result, report=replace(result.report, command=usual.command(target, spec=spec)))


def verify_case(
    target: str, spec: Specification, word: str, *, dtype: str = "float32", **keywords: object
) -> Report:
    """Return the report on one case alone, by its word. ``keywords`` are options of ``verify_target``.

    If the word is a hash, everything is run again with the same seed, and the report keeps only the fault of that word.
    Raises ``InputError`` for a word of another specification, and as ``verify_target`` does.
    """
    # Words that encode inputs; others are hashes.
    if speaks(word):
        report = repeat_target(
            target, spec, decode(spec, word, dtype), dtype=dtype, **keywords
        ).report
        return named(replace(report, command=f"{report.command} --case {word}"), spec, dtype)
    report = named(verify_target(target, spec, dtype=dtype, **keywords), spec, dtype)
    faults = tuple(fault for fault in report.faults if fault.case == word)
    # Other faults do not count here: this case alone is repeated.
    verdict = Verdict.FAULT if faults else report.verdict if not report.faults else Verdict.NO_FAULT
    note = f"The inputs of {word} are too many for a word, so that every case was run again."
    return replace(report, faults=faults, verdict=verdict).with_reservations(note)


# -- a fault as a file for pytest --------------------------------------------------------------------------------------
# The file needs only NumPy: it has the call as it was made, the exact output, and the allowed error.

# Digits of the exact numbers in a test; what they cut off is added to the limits.
_DIGITS = 40
#: The beginning of a test file.
_HEAD = '''"""{title}

Each test makes one call and compares it with the exact output. What is allowed is proved for every implementation in
this arithmetic: {precision}.
{command}
"""

{imports}
from fractions import Fraction
{path}
import numpy as np
{libraries}
{found}

def beyond(got, exact, allowed):
    """Return whether no implementation in this arithmetic gives this; the comparison is exact."""
    if exact == "nan" or allowed == np.inf:
        return exact == "nan" and not np.isnan(got)
    return not np.isfinite(got) or abs(Fraction(float(got)) - Fraction(exact)) > Fraction(float(allowed))


def check(result, expected, allowed, dtypes):
    """Shape, dtype and every entry of a result."""
    assert str(result.dtype).removeprefix("torch.") in dtypes, f"the result is of {{result.dtype}}"
    assert tuple(result.shape) == expected.shape, f"the result has the shape {{tuple(result.shape)}}"
    values = {values}
    wrong = [at for at in np.ndindex(expected.shape) if beyond(values[at], expected[at], allowed[at])]
    lines = [f"at {{at}}: got {{values[at]}}, exact {{expected[at]}}, allowed {{allowed[at]:.2g}}" for at in wrong]
    assert not wrong, f"{{len(wrong)}} of {{expected.size}} entries are wrong\\n" + "\\n".join(lines[:10])
'''


def written(
    target: str, repeated: Sequence[tuple[str, Repeated]], folder: Path, command: str
) -> str:
    """Return the text of a test file in ``folder`` for these cases, each with its word."""
    first = repeated[0][1]
    # Such functions need more than the arrays, which a test file would not have.
    if first.convention.needs_definition:
        raise InputError(
            f"--write-test: {target} holds its weights, or is not called with just the arrays that the case has; "
            "hint: write it for a function of these inputs; --case repeats the case"
        )
    torch = first.convention.framework == "torch"
    path, result = _write_import_lines(target, folder)
    libraries = {"torch": "import torch\n", "jax": "import jax.numpy as jnp\n"}.get(
        first.convention.framework, ""
    )
    # NumPy has no bfloat16 of its own.
    libraries = libraries or ("" if hasattr(np, first.convention.dtype) else "import ml_dtypes\n")
    head = _HEAD.format(
        title=f"Faults of {target}, found by symattn.",
        precision=first.report.precision,
        command=f"Made with symattn: {command}",
        imports="import sys" if path else "",
        path="from pathlib import Path\n" if path else "",
        libraries=libraries,
        found=f"{path}{result}\n",
        # Without a gradient, on the host, exact in float64.
        values="result.detach().cpu().double().numpy()"
        if torch
        else "np.asarray(result, dtype=np.float64)",
    )
    parts = [
        head,
        *(_write_test_function(target.rpartition(":")[2], word, one) for word, one in repeated),
    ]
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


def _write_import_lines(target: str, folder: Path) -> tuple[str, str]:
    """Return the line that puts the target's folder on the path, if needed, and the line that imports it."""
    place, _, attribute = target.rpartition(":")
    first, root, module = Path(place.partition(".")[0]), None, place
    # A file in the working directory, or a package of it.
    if place.endswith(".py"):
        root, module = _locate_package_root(Path(place).resolve())
    elif first.is_dir() or first.with_suffix(".py").is_file():
        root = Path.cwd()
    name = attribute.partition(".")[0]
    result = (
        f"from {module} import {name}  # noqa: E402" if root else f"from {module} import {name}"
    )
    if not root:
        return "", result
    # Relative, so that the folder can be moved with the test.
    relative = os.path.relpath(root, folder.resolve())
    here = "Path(__file__).resolve().parent" + (
        f" / {Path(relative).as_posix()!r}" if relative != "." else ""
    )
    return f"sys.path.insert(0, str({here}))\n", result


def _write_test_function(attribute: str, word: str, one: Repeated) -> str:
    """Return the text of one test function."""
    judged, convention = one.judged, one.convention
    # The text stands within quotes.
    said = (
        sentence(one.report.faults[0].message if one.report.faults else "")
        .replace("\\", "")
        .replace('"', "'")
    )
    lines = [f'"""{said}"""', *_yield_call_lines(attribute, one)]
    exact = next((f.counterexample.exact for f in one.report.faults if f.counterexample), None)
    if exact is not None:
        at = next(f.counterexample.index for f in one.report.faults if f.counterexample)
        lines.append(f"# exactly, at {at}: {exact}")
    for number, part in enumerate(judged.parts):
        lines += _yield_assertion_lines(
            part, "result" if len(judged.parts) == 1 else f"result[{number}]", judged, convention
        )
    if judged.finding == "mutates":
        arguments = _evaluate_call_arguments(convention, judged.case.inputs)
        lines.append(f"for a, b in zip(({_join_array_argument_names(arguments)}), before):")
        lines.append('    assert bool((a == b).all()), "an argument was changed"')
    if judged.finding == "overwrites":
        lines.append(
            'assert bool((earlier == kept).all()), "the result of the call before was overwritten"'
        )
    name = "".join(c if c.isalnum() else "_" for c in f"{attribute}_{word}")
    return f"def test_{name}():\n" + indent("\n".join(lines), "    ")


def _yield_assertion_lines(
    part: Part, result: str, judged: CaseResult, convention: Convention
) -> Iterator[str]:
    """Yield the lines that check one output: against the exact one as decimals, with the axes of the function's."""
    entries, allowed = part.expected.entries, part.expected.allowed
    digits = np.empty(entries.shape, dtype=object)
    limits = np.empty(entries.shape)
    for at in np.ndindex(entries.shape):
        x: Any = entries[at]
        digits[at] = "nan" if isinstance(x, Undefined) else x.mid().str(_DIGITS, radius=False)
        # The decimal is off by the radius of the ball, and by the digits that are cut off.
        away = (
            0.0
            if digits[at] == "nan"
            else float(x.rad()) + abs(float(x.mid())) * 10.0 ** (2 - _DIGITS)
        )
        # Rounded upwards, since the sum itself is rounded.
        limits[at] = np.nextafter(float(allowed[at]) + away, np.inf)
    like = "q" if "q" in judged.case.inputs else "x"
    wanted = Format(convention.dtype).u
    fine = tuple(name for name in FORMATS if Format(name).u <= wanted)
    entries = layouts.to_layout(like, digits, convention.layout)
    errors = layouts.to_layout(like, limits, convention.layout)
    yield f"expected = np.array({_write_nested_lists(entries)}, dtype=object)"
    yield f"allowed = np.array({_write_nested_lists(errors)})"
    yield f"check({result}, expected, allowed, {fine!r})"


def _yield_call_lines(attribute: str, one: Repeated) -> Iterator[str]:
    """Yield the lines that make the calls in order; earlier calls matter only for the state that they leave."""
    for number, judged in enumerate(one.calls):
        last = number == len(one.calls) - 1
        arguments = _evaluate_call_arguments(one.convention, judged.case.inputs)
        for a, values in arguments.items():
            is_number = isinstance(values, int | float)
            array = values if is_number else _write_array_code(values, one.convention)
            yield f"{a.parameter} = {_write_memory_layout_code(str(array), judged.case.memory, one.convention)}"
        # A copy of the arguments shows that the call changed them.
        if last and judged.finding == "mutates":
            array_names = _join_array_argument_names(arguments)
            copied = _write_copy_code("a", one.convention)
            yield f"before = [{copied} for a in ({array_names})]"
        result = f"{attribute}({_write_call_arguments(one.convention, arguments)})"
        if not last:
            # The result of an earlier call, and a copy of it: the next call may overwrite it.
            yield f"earlier = {result}"
            yield f"kept = {_write_copy_code('earlier', one.convention)}"
        elif (destination := one.convention.destination) is not None:
            yield result
            yield f"result = {destination.parameter}"
        else:
            yield f"result = {result}"
    if one.judged.outcome.returned > 1 and len(one.judged.parts) == 1:
        yield "result = result[0]"


def _evaluate_call_arguments(how: Convention, inputs: Inputs) -> dict[Argument, Tensor]:
    """Return the value of each argument that is computed from inputs."""
    return {
        a: layouts.argument(a, how, inputs)
        for a in how.arguments
        if a.input in inputs or a.input in MADE
    }


def _join_array_argument_names(inputs: dict[Argument, Tensor]) -> str:
    """Return the names of the array arguments, as the inside of a tuple."""
    return "".join(
        f"{a.parameter}, " for a, values in inputs.items() if not isinstance(values, int | float)
    ).rstrip()


def _write_call_arguments(convention: Convention, inputs: dict[Argument, Tensor]) -> str:
    words = []
    for a in convention.arguments:
        if a.input is None or a in inputs:
            value = repr(a.value) if a.input is None else a.parameter
            words.append(value if a.positional else f"{a.parameter}={value}")
    return ", ".join(words)


def _write_array_code(values: np.ndarray, convention: Convention) -> str:
    """Return an array as Python code."""
    whole = {"b": "bool", "i": "int64", "u": "int64"}.get(values.dtype.kind)
    if convention.framework == "torch":
        return f"torch.tensor({_write_nested_lists(values, 'torch.')}, dtype=torch.{whole or convention.dtype})"
    if convention.framework == "jax":  # whose whole numbers are as wide as it is set to have them
        return f"jnp.asarray({_write_nested_lists(values)}, dtype={'None' if whole else f'jnp.{convention.dtype}'})"
    if whole:
        return f"np.array({_write_nested_lists(values)}, dtype={'bool' if whole == 'bool' else 'np.int64'})"
    if not hasattr(np, convention.dtype):
        return f"np.array({_write_nested_lists(values)}).astype(ml_dtypes.{convention.dtype})"
    return f"np.array({_write_nested_lists(values)}, dtype=np.{convention.dtype})"


def _write_memory_layout_code(array: str, memory: str, convention: Convention) -> str:
    """Return the code of an array in a memory layout: contiguous, with gaps, or as a transposed view."""
    torch = convention.framework == "torch"
    if (
        array.isdecimal() or memory == "contiguous" or convention.framework == "jax"
    ):  # JAX chooses its own layout
        return array
    if memory == "transposed":
        turned = f"{array}.swapaxes(-1, -2)"
        return f"{f'{turned}.contiguous()' if torch else f'np.ascontiguousarray({turned})'}.swapaxes(-1, -2)"
    return f"{'torch' if torch else 'np'}.{'repeat_interleave' if torch else 'repeat'}({array}, 2, -1)[..., ::2]"


def _write_copy_code(name: str, convention: Convention) -> str:
    return f"{name}.clone()" if convention.framework == "torch" else f"np.array({name})"


def _write_nested_lists(values: object, module: str = "np.") -> str:
    """Return the entries as nested lists, with one row per line if they are many."""
    if not isinstance(values, np.ndarray):
        x = (
            values.item()
            if isinstance(values, np.generic) and not isinstance(values, str)
            else values
        )
        # repr writes nan and inf without a module.
        if isinstance(x, float) and not np.isfinite(x):
            return module + "nan" if np.isnan(x) else ("-" if x < 0 else "") + module + "inf"
        return repr(x)
    rows = [_write_nested_lists(row, module) for row in values]
    one = f"[{', '.join(rows)}]"
    return (
        one
        # A short array stands on one line.
        if len(one) < 90 or values.ndim == 1
        else "[\n" + indent(",\n".join(rows), "    ") + ",\n]"
    )


def tests_of(
    target: str, spec: Specification, report: Report, path: Path, **keywords: object
) -> tuple[str, int]:
    """Return the text of a pytest file with a test for each fault that one or two calls show, and the number of others.

    Raises ``InputError`` if there is nothing to write.
    """
    repeated: list[tuple[str, Repeated]] = []
    for fault in report.faults:
        if fault.counterexample is not None and fault.counterexample.inputs:
            result = repeat_target(target, spec, inputs_of(fault, spec), **keywords)
            if result.report.faults:
                whole = replace(result.report, faults=(fault,))  # as diagnosed from all cases
                repeated.append((fault.case, replace(result, report=whole)))
    if not report.faults:
        raise InputError(f"--write-test {path}: no fault was found, and nothing is written")
    if not repeated:
        raise InputError(
            f"--write-test {path}: no fault shows in a call that is made again; nothing is written"
        )
    return written(target, repeated, path.parent, report.command), len(report.faults) - len(
        repeated
    )
