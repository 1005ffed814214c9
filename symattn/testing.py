"""Assertions for tests: a function computes attention, an output is what attention gives. No tolerance is picked.

``assert_attention(fn, Attention(causal=True))`` runs ``symattn.verify`` and fails with the report's own words.
``assert_close_to_exact(out, q, k, v)`` compares one output with the exact one, within the error that is proved for
every implementation in the precision. Both need pytest no more than ``assert`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported when an assertion is made: a test run that makes none must not wait
    from pathlib import Path

    from symattn.arrays.precision import Contract, Precision
    from symattn.attention.spec import Attention
    from symattn.verification.baseline import Accepted
    from symattn.verification.domain import Domain
    from symattn.verification.report import Report

__all__ = ["AttentionFault", "assert_attention", "assert_close_to_exact"]


class AttentionFault(AssertionError):
    """What a function gave is not what attention gives; ``report`` tells more, where there is one."""

    def __init__(self, words: str, report: Report | None = None) -> None:
        super().__init__(words)
        self.report = report


@dataclass
class Settings:
    """What assertions do where they are not told: a test runner sets this, and hears the reports.

    ``options`` are options of ``symattn.verify``.
    """

    options: dict[str, Any] = field(default_factory=dict)
    baseline: Path | None = None
    hear: Callable[[Report], None] = lambda report: None


settings = Settings()


def assert_attention(
    fn: Callable[..., Any],
    spec: Any = None,
    *,
    precision: str | Precision = "float32",
    domain: Domain | None = None,
    baseline: str | Path | None = None,
    **options: Any,
) -> Report:
    """Fail unless ``fn`` computes the attention that ``spec`` says; the report is returned.

    ``options`` are those of ``symattn.verify``: ``call``, ``mask_arg``, ``layout``, ``framework``, ``examples``,
    ``budget``, ``seed``. Faults that the file ``baseline`` accepts for the target ``module:function`` do not fail, and
    one that is gone does. Raises ``AttentionFault``, also where nothing could be decided or ``fn`` never returned
    anything, and ``InputError`` where it is open how to call ``fn``.

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
    __tracebackhide__ = True
    from symattn.sources.loading import CannotRun
    from symattn.sources.verify import verify

    try:
        report = verify(fn, spec, precision=precision, domain=domain, **{**settings.options, **options})
    except CannotRun as nothing:
        raise AttentionFault(str(nothing)) from None
    report = _named(report, spec, precision)
    accepted = _accepted(baseline)
    if accepted is not None:
        from symattn.verification.baseline import compared

        report = compared(report, _name(fn), accepted)
    settings.hear(report)
    if report.exit_code:
        raise AttentionFault(_words(report), report)
    return report


def _named(report: Report, spec: Any, precision: str | Precision) -> Report:
    """The report with the words by which ``symattn verify --case`` makes a case again."""
    from symattn.arrays.precision import Precision
    from symattn.attention.spec import Attention
    from symattn.sources.reproduce import named

    return named(report, spec or Attention(), Precision.of(precision).input.name)


def _accepted(baseline: str | Path | None) -> Iterable[Accepted] | None:
    from pathlib import Path

    from symattn.verification.baseline import read

    path = settings.baseline if baseline is None else Path(baseline)
    return None if path is None else read(path)


def _name(fn: Callable[..., Any]) -> str:
    """``module:function``, as a command line names it."""
    known = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{known.__module__}:{known.__qualname__}"


def _words(report: Report) -> str:
    """The first fault in a line, then what the command line would print of the faults."""
    from dataclasses import replace

    from symattn.document.model import Heading, Note, Paragraph
    from symattn.render import render
    from symattn.verification.target import IN_PROCESS

    document = report.document()
    start = next((i for i, b in enumerate(document.blocks) if isinstance(b, Heading)), len(document.blocks))
    notes = [b for b in document.blocks[:start] if isinstance(b, Paragraph | Note)]
    blocks = [b for b in (*notes, *document.blocks[start:]) if b != Note((IN_PROCESS,))]
    lines = render(replace(document, blocks=tuple(blocks), verdict=None), "text").splitlines()
    rules = [i for i, line in enumerate(lines) if line and not line.strip("─")]
    body = "\n".join(lines[rules[0] + 1 : rules[-1]]).strip("\n")
    return f"{report.target.partition('(')[0]}: {_gist(report)}\n\n{body}"


def _gist(report: Report) -> str:
    if report.faults:
        more = len(report.faults) - 1
        return report.faults[0].message + (f" (and {more} more)" if more else "")
    return next(iter((*report.missing, *report.notes)), report.verdict.value)


def assert_close_to_exact(
    out: Any,
    q: Any,
    k: Any,
    v: Any,
    spec: Attention | None = None,
    *,
    precision: str | Precision | None = None,
    lse: Any = None,
    contract: Contract | None = None,
    alpha: float | None = 1e-9,
    rows: int | Sequence[int] | None = None,
    cu_seqlens: Any = None,
    block_table: Any = None,
    lengths: Any = None,
    do: Any = None,
    gradients: Sequence[Any] | None = None,
    **inputs: Any,
) -> None:
    """Fail unless every element of ``out`` is as near to the exact output as every legal implementation is.

    ``out`` (…, n_q, d_v), ``q`` (…, n_q, d_k), ``k`` (…, n_k, d_k), ``v`` (…, n_k, d_v) are arrays of NumPy or torch
    with any leading axes; a specification with several heads takes the last of these as its heads. ``inputs`` are
    others that the specification takes: ``mask``, ``bias``, ``sink``, … The precision is by default that of ``q``, and
    an ``out`` of a wider type is held to the same. ``lse`` (…, n_q) are logarithms of the sums, judged too where scores
    are scaled dot products under masks.

    In bfloat16 and float16 an output of plain attention has to be as near as roundings to nearest take it, too: if they
    are independent with mean 0 and sums are taken in float32, a right one fails with a probability of at most
    ``alpha`` (``verification.sharp.limits`` has the proof; None: the worst case alone). The message says which of the
    two it is beyond. ``contract="fused"`` says that scores are not stored, which is sharper still; ``"eager"``, that
    everything may be, sums too, of which the worst case alone speaks. ``rows`` are the queries to look at, or how many:
    at large sizes a few of each head, those at the edges of windows, tiles and documents always among them.

    Of packed sequences ``cu_seqlens`` says where each begins, from 0 to the number of tokens, (batch + 1,), or
    a pair, for queries and for keys: q (h, tokens, d_k) and so on; a sequence sees no other. Of keys and values in
    pages, k (blocks, g, page, d_k), v (blocks, g, page, d_v), ``block_table`` (batch, blocks) says which blocks a
    sequence of q (batch, h, n_q, d_k) has, and ``lengths`` (batch,) how many keys. ``rows`` is then how many of each.

    ``gradients`` are (dq, dk, dv) of ⟨do, out⟩, each of the shape of its array or None, as a backward pass in bfloat16
    or float16 returned them: they have to be as near to the exact ones as all roundings together allow, whichever way
    they fall (``verification.sharp.backward`` has the bound and its proof). ``rows`` are then queries and keys.

    The exact output is that for the numbers in q, k and v as they are. Raises ``AttentionFault`` with the number of
    elements beyond the bound and the worst one, or a wrong shape or dtype; ``InputError`` where the inputs do not fit
    the specification.

    >>> import numpy as np
    >>> q, k, v = np.float32([[1, 0]]), np.float32([[0, 0], [1, 0]]), np.float32([[0], [1]])
    >>> assert_close_to_exact(np.float32([[0.66976155]]), q, k, v)
    >>> assert_close_to_exact(np.float32([[0.6697]]), q, k, v)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    symattn.testing.AttentionFault: 1 of 1 elements is beyond what any implementation in float32 can give
    The worst is out[0, 0]: got 0.6697000265, exact 0.6697615493 = exp(1/sqrt(2))/(1+exp(1/sqrt(2)))
    Off by 6.2e-05; at most ...e-06 is legal, which the worst-case bound certifies
    """
    __tracebackhide__ = True
    from symattn.sources.closeness import close_to_exact
    from symattn.sources.pieces import Layout, close_by_pieces

    given = {"q": q, "k": k, "v": v, **inputs}
    arrays = {n: a for n, a in given.items() if a is not None}
    layout = Layout(cu_seqlens, block_table, lengths)
    if layout.plain:
        words = close_to_exact(out, arrays, spec, precision, lse, contract=contract, alpha=alpha, rows=rows)
    else:
        words = close_by_pieces(out, arrays, layout, spec, precision, lse, contract=contract, alpha=alpha, rows=rows)
    if not words and gradients is not None:
        words = _of_gradients(arrays, do, gradients, layout.plain, spec, precision, contract=contract, rows=rows)
    if words:
        raise AttentionFault(words)


def _of_gradients(
    arrays: dict[str, Any], do: Any, gradients: Sequence[Any], plain: bool, *how: Any, **told: Any
) -> str:
    from symattn.errors import InputError
    from symattn.sources.gradients import gradients_close_to_exact

    if do is None or not plain:
        raise InputError("gradients are those of ⟨do, out⟩ for one array of each; mend: give do, and no packed layout")
    return gradients_close_to_exact(arrays, do, gradients, *how, **told)
