"""``audit``: look at a running model, and judge every call of attention in it."""

from __future__ import annotations

from typing import Any

from symattn.arrays.precision import Contract
from symattn.document.errors import InputError
from symattn.models.auditing.watching import Audit
from symattn.programs.frameworks import import_torch

_ROWS = 32


def audit(
    model: Any = None,
    *,
    contract: Contract | None = None,
    rows: int | None = _ROWS,
    gradients: bool = False,
    layers: bool = False,
    name: str = "",
) -> Audit:
    """Judge every call of attention while a model runs: ``with symattn.audit(model) as report: model(**inputs)``.

    Each call is judged twice, as soon as it returns: *as given*, its output against exact attention of the queries,
    keys, values and mask that it received; and by *intent*, against what the model's configuration, the padding and the
    cache call for. The error may be what rounding can do in the format, and no more (``symattn.bounds.sharp``).

    model     a module of torch; None for every module that runs meanwhile
    contract  ``fused``: scores stay in float32; ``eager``: they may be stored in the input's format. By default what
              the code that was called promises: ``eager`` for transformers' eager functions, else ``fused``
    rows      so many queries of each head are looked at, those at the edges of windows and tiles always among them;
              None for all
    gradients judge backward passes, too: dQ of these queries, dK and dV of as many keys, in every head of small calls
              and in some of large ones, against the exact derivative (``symattn.bounds.sharp.backward``)
    layers    judge whole layers of decoders, too: norms, projections, rotations, the feed-forward layer and residuals
              of each, for some tokens, against ``models.configurations.blocks.block`` of the model's configuration

    Seen are transformers' attention functions, ``torch.nn.functional.scaled_dot_product_attention``, and attention
    written out in operators, from the product of queries and keys to that of weights and values. A softmax that
    cannot be followed and a fused operator that is not supported are reported as such. The report fills while the
    model runs. Raises ``InputError`` for anything but a module, ``MissingExtra`` without torch.

    >>> import torch
    >>> with audit() as report:
    ...     o = torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 4, 2), is_causal=True)
    >>> report.verdict.value, report.coverage
    ('pass as given', 'coverage: 1 of 1 calls read, 0 held to a configuration')
    """
    torch = import_torch()
    if model is not None and not isinstance(model, torch.nn.Module):
        raise InputError(
            f"audit: {type(model).__name__} is not a module of torch; hint: give the model, or None for all"
        )
    if contract not in (None, "eager", "fused"):
        raise InputError(f"unknown contract {contract!r}; known: eager, fused")
    if rows is not None and (not isinstance(rows, int) or rows < 1):
        raise InputError(f"rows must be an integer of at least 1, or None for all, got {rows!r}")
    name = name or (type(model).__name__ if model is not None else "everything that runs")
    return Audit(model, contract, rows, gradients, name, layers)
