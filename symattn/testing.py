"""Assertions for tests: a function computes attention, or an output is that of attention. No tolerance is picked.

``assert_attention(fn, Attention(causal=True))`` runs ``symattn.verify`` and fails with the words of the report.
``assert_close_to_exact(out, q, k, v)`` compares one output with the exact one, within the error that is proved for
every implementation in the precision. Like ``assert``, both work without pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from symattn.document.keywords import answering, unknown

if TYPE_CHECKING:  # imported by assertions only, so that a test run without any does not wait
    from symattn.arrays.array import Array
    from symattn.arrays.precision import Contract, Precision
    from symattn.attention.spec import Attention
    from symattn.bounds.domain import Domain
    from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
    from symattn.verification.definitions.linear import LinearAttention
    from symattn.verification.report import Report, Sought

__all__ = ["EFFORTS", "AttentionFault", "assert_attention", "assert_close_to_exact"]

#: The options of ``symattn.verify`` by name of effort. Each tries every probe of every step; they differ in the number
#: of random inputs.
EFFORTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"quick": {"examples": 10}, "usual": {}, "thorough": {"examples": 1000, "budget": 1200.0}}
)


def __dir__() -> list[str]:
    return __all__


class AttentionFault(AssertionError):
    """A function did not compute attention; ``report`` has the details, if there is one."""

    def __init__(self, words: str, report: Report | None = None) -> None:
        super().__init__(words)
        self.report = report


@dataclass
class Settings:
    """The defaults of assertions, set by a test runner; its callbacks get reports, mistakes sought in an output, notes.

    ``options`` are options of ``symattn.verify``.
    """

    options: dict[str, Any] = field(default_factory=dict)
    baseline: Path | None = None
    hear: Callable[[Report], None] = lambda report: None
    seek: Callable[[Sequence[Sought]], None] = lambda sought: None
    note: Callable[[str], None] = lambda words: None


# Replaced by the plugin of pytest while a test runs.
settings = Settings()


@answering
def assert_attention(
    fn: Callable[..., Any],
    spec: Any = None,
    *,
    precision: str | Precision = "float32",
    domain: Domain | None = None,
    baseline: str | Path | None = None,
    **options: Any,
) -> Report:
    """Fail unless ``fn`` computes the attention of ``spec``; return the report.

    ``options`` are those of ``symattn.verify``: ``call``, ``mask_arg``, ``layout``, ``framework``, ``examples``,
    ``budget``, ``seed``. Faults that the file ``baseline`` accepts for the target ``module:function`` do not fail,
    but accepted ones that are gone do. Raises ``AttentionFault``, also if nothing could be decided or ``fn`` never
    returned anything, and ``InputError`` if it is unclear how to call ``fn``.

    >>> from symattn import Attention
    >>> import numpy as np
    >>> def attention(q, k, v):
    ...     s = q @ k.T
    ...     e = np.exp(s - s.max(axis=-1, keepdims=True))
    ...     return e / e.sum(axis=-1, keepdims=True) @ v
    >>> assert_attention(attention, Attention(), examples=0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    symattn.testing.AttentionFault: attention: scores are not scaled...
    """
    # pytest then shows the line of the assertion.
    __tracebackhide__ = True
    from symattn.arrays.precision import Precision
    from symattn.attention.spec import Attention
    from symattn.document.errors import CannotRun
    from symattn.programs.case_codes import named
    from symattn.programs.verifying import Options, check_function, verified

    taken = [
        "precision",
        "domain",
        "baseline",
        *(f.name for f in fields(Options) if f.name not in ("dtype", "domain")),
    ]
    for word in set(options) - set(taken):
        raise unknown("assert_attention", word, taken, of_attention=True)
    try:
        check_function(fn)
        report = verified(
            fn, spec, Options(dtype=precision, domain=domain, **{**settings.options, **options})
        )
    except CannotRun as nothing:
        raise AttentionFault(str(nothing)) from None
    report = named(report, spec or Attention(), Precision.of(precision).input.name)
    path = settings.baseline if baseline is None else Path(baseline)
    if path is not None:
        from symattn.verification.baseline import compared, read

        report = compared(report, _name_function_as_target(fn), read(path))
    settings.hear(report)
    if report.exit_code:
        raise AttentionFault(_write_failure_message(report), report)
    return report


def _name_function_as_target(fn: Callable[..., object]) -> str:
    """Return ``module:function``, as on a command line."""
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{named.__module__}:{named.__qualname__}"


def _write_failure_message(report: Report) -> str:
    """Return the first fault in a line, then the report of it as on the command line, and other faults in a line each.

    Notes are printed only if there is no fault, since they may say why nothing was decided.
    """
    from dataclasses import replace

    from symattn.bounds.called_target import IN_PROCESS
    from symattn.document.model import Note
    from symattn.document.render import render

    document = replace(report, faults=report.faults[:1], repairs=()).document()
    notes = (
        () if report.faults else tuple(Note((note,)) for note in report.notes if note != IN_PROCESS)
    )
    whole = replace(document, blocks=(*document.blocks, *notes), verdict=None)
    lines = render(whole, "text").splitlines()
    # The body stands between the rule under the title and the one above the command.
    rules = [i for i, line in enumerate(lines) if line and not line.strip("─")]
    body = "\n".join(lines[rules[0] + 1 : rules[-1]]).strip("\n")
    others = "".join(f"\nAlso: {fault.coded_message}" for fault in report.faults[1:])
    target, summary = report.target.partition("(")[0], _summarize_report_in_line(report)
    return f"{target}: {summary}\n\n{body}{others}{_write_repair_lines(report)}"


def _write_repair_lines(report: Report) -> str:
    """Return the last lines: the first repair, and its diff."""
    from contextlib import suppress

    from symattn.document.errors import InputError

    if not report.repairs:
        return ""
    first, diff = report.repairs[0], ""
    if not first.is_whole:
        return f"\nThe nearest edit, no fix: {first.words}"
    with suppress(InputError):  # a function of a notebook has no file
        diff = f"\n\n{first.diff()}"
    return f"{diff}\nFix: {first.words}"


def _summarize_report_in_line(report: Report) -> str:
    if report.faults:
        more = len(report.faults) - 1
        return report.faults[0].coded_message + (f" (and {more} more)" if more else "")
    return next(iter((*report.missing, *report.notes)), report.verdict.value)


@answering
def assert_close_to_exact(
    out: object,
    q: object,
    k: object,
    v: object,
    spec: Attention | LinearAttention | None = None,
    *,
    precision: str | Precision | None = None,
    contract: Contract | RecurrentArithmetic | None = None,
    alpha: float | None = 1e-9,
    rows: int | Sequence[int] | None = None,
    power: Mapping[str, float] | None = None,
    lse: Array | None = None,
    do: Array | None = None,
    gradients: Sequence[object] | None = None,
    **inputs: object,
) -> str | None:
    """Fail unless every element of ``out`` is as close to the exact output as every legal implementation is.

    If no contract is given and ``out`` is right only because scores may be stored, return a note: "A kernel that does
    not store scores could not give this: contract="fused"", and the reason. (pytest shows it after the tests.)

    ``out`` (…, n_q, d_v), ``q`` (…, n_q, d_k), ``k`` (…, n_k, d_k), ``v`` (…, n_k, d_v) are NumPy's or torch's, heads
    the last axis in front; ``inputs`` are ``mask``, ``bias``, ``sink``, …, or ``cu_seqlens`` (see
    ``symattn.programs.asserted``), or ``block_table`` and ``lengths``. The precision is by default that of ``q``.
    ``lse`` (…, n_q) and ``gradients`` (dq, dk, dv) of ⟨do, out⟩ are judged as well (``sharp.backward``).
    ``q_descale``, ``k_descale``, ``v_descale`` among ``inputs`` are the factors of arrays in FP8: a number, or one for
    each head, or block of tokens of a head; ``p_scale`` is that of the weights (``symattn.programs.question``).

    In bfloat16, float16, and FP8 with factors and a ``Precision`` whose sums are in float32 (else they are those of
    matrix units), plain attention must be as close as rounding to nearest permits: a correct
    output fails with a probability of at most ``alpha``, if roundings are independent with mean 0 and sums are in
    float32 (``sharp.limits`` has the proof; None: only the worst-case bound). ``contract="fused"`` says that scores are
    not stored; ``"eager"``, that sums may be. If q, k and v in bfloat16 or float16 are tensors on one device, this is
    computed there; the CPU gets verdicts, elements under suspicion, and everything else: other formats, ``lse``,
    ``gradients``, ``power``, 20,000 products of weights and values or fewer, and devices without float64, such as
    ``mps``. ``rows`` are the queries of each head to check, or their number. ``power={"scale": 0.001}`` names mistakes
    that must be detectable: more rows are read until they are, and the assertion fails if they are not
    (``symattn.programs.sensitivity``).

    For a ``LinearAttention`` without a normaliser, ``inputs`` are ``g``, ``beta``, ``bonus``, ``dt``, ``skip``,
    ``p``, ``b``, ``w``, ``a``, ``A_log``, ``dt_bias``, ``initial_state``, ``final_state`` (…, d_k, d_v),
    ``cu_seqlens``; the limits are those of ``symattn.bounds.recurrent.recurrent_limits``, at any length. Of more than
    512 tokens 256 rows of each head are judged, the worst among them. Sums and the state are in float32, unless
    ``contract`` is "eager", or a ``RecurrentArithmetic`` that says the order and the formats.

    Raises ``AttentionFault`` with the elements beyond a bound, and ``InputError`` for inputs that do not fit.

    >>> import numpy as np
    >>> q, k, v = np.float32([[1, 0]]), np.float32([[0, 0], [1, 0]]), np.float32([[0], [1]])
    >>> assert_close_to_exact(np.float32([[0.66976155]]), q, k, v)
    >>> assert_close_to_exact(np.float32([[0.6697]]), q, k, v)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    symattn.testing.AttentionFault: 1 of 1 elements is beyond what any implementation in float32 can give
    The worst is out[0, 0]: got 0.6697000265, exact 0.6697615493 = exp(1/sqrt(2))/(1+exp(1/sqrt(2)))
    Off by 6.2e-05; at most ...e-06 is allowed, which the worst-case bound certifies
    It passes with precision="tf32", where products of matrices round their factors to 11 digits
    """
    __tracebackhide__ = True
    from symattn.attention.spec import Attention
    from symattn.programs.specifications import kind_of

    how = {"precision": precision, "contract": contract, "alpha": alpha, "rows": rows}
    others = {"power": power, "lse": lse, "do": do, "gradients": gradients}
    arrays = {"q": q, "k": k, "v": v, **inputs}
    kind = kind_of(Attention() if spec is None else spec)
    verdict = kind.judge_output(out, arrays, spec, others, **how)
    settings.seek(verdict.sought)
    if verdict.words:
        raise AttentionFault(verdict.words)
    if not verdict.note:
        return None
    settings.note(verdict.note)
    return verdict.note
