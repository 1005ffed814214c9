"""``symattn.verify``: verify a function against a specification, or against a configuration of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symattn.arrays.precision import Contract, Precision
from symattn.bounds.called_target import Framework, Layout
from symattn.bounds.domain import Domain
from symattn.document.errors import InputError
from symattn.programs.names import Function
from symattn.programs.specifications import Specification
from symattn.programs.verifying import Options, check_function, verified
from symattn.verification import engine
from symattn.verification.report import Report


def verify(
    function: Function,
    spec: Specification | None = None,
    *,
    config: object = None,
    layer: int | None = None,
    kind: str = "self",
    precision: str | Precision = "float32",
    dtype: str | None = None,
    contract: Contract | None = None,
    domain: Domain | None = None,
    call: Mapping[str, object] | None = None,
    mask_arg: str | None = None,
    mask_axes: str | None = None,
    layout: Layout | None = None,
    framework: Framework | None = None,
    examples: int = engine.EXAMPLES,
    budget: float = engine.BUDGET,
    seed: int = engine.SEED,
    power: Mapping[str, float] | None = None,
    repair: bool = False,
) -> Report:
    """Verify that ``function`` computes the attention ``spec``, within what its precision allows.

    You pick no tolerance: an output is a fault if no implementation in the ``precision`` could give it. The
    function runs in this process, so a call has no time limit. In addition to the probes, ``examples`` random
    inputs are tried, a quarter of them where residues show what the function computes. What is tried does not
    depend on time, except for the upper limit of ``budget`` seconds of processor time, for finding faults and again
    for explaining them; the report says if it was reached.

    ``dtype`` is another word for a ``precision`` by name, as on the command line. ``contract`` says whether
    intermediate results may be stored in the input's format (``eager``), or stay in a wider one (``fused``), as in
    ``Precision.of``. ``call`` holds keywords to pass. A torch module with weights is called with other weights.
    ``power`` lists mistakes that must be detected, ``{"scale": 0.001}`` for a scale that is 0.1 % off: inputs are
    added until it would be, or the report says why not and is undecided. With ``repair``, edits of the source of a
    wrong function that make it right are sought, and reported as ``repairs``; they run in this process, and nothing is
    written. The order of axes and the shape of masks are found by small calls unless ``layout`` gives the order, and
    ``mask_axes`` (``"b,1,1,n_k"``) the axes of a mask.

    Instead of ``spec``, ``config`` takes the configuration of a model (a path of config.json, a mapping, an object
    of Transformers or a module with one) and verifies the attention of its ``layer`` and ``kind``, as
    ``symattn.configurations.attention`` reads it. Raises ``InputError`` if it is unclear how to call the
    function, ``CannotRun`` if it never returns anything.

    >>> from symattn import Attention
    >>> import numpy as np
    >>> def attention(q, k, v):
    ...     s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    ...     e = np.exp(s - s.max(axis=-1, keepdims=True))
    ...     return e / e.sum(axis=-1, keepdims=True) @ v
    >>> verify(attention, Attention()).verdict.value
    'no fault'
    """
    check_function(function)
    how = Options(
        dtype=dtype or precision, contract=contract, call=call or {}, mask_arg=mask_arg, mask_axes=mask_axes,
        layout=layout, framework=framework, domain=domain, examples=examples, budget=budget, seed=seed, power=power,
        repair=repair,
    )  # fmt: skip
    return verified(function, meant(spec, config, layer, kind), how)


def meant(spec: object, config: object, layer: int | None, kind: str) -> Any:
    """Return the given specification, or that of a layer of a model. Raises ``InputError`` for both at once."""
    if config is None:
        if layer is not None or kind != "self":
            raise InputError("layer and kind belong to config, which is not given")
        return spec
    if spec is not None:
        raise InputError("spec and config are two specifications; hint: give one of them")
    # Importing configurations takes time that functions do not need.
    from symattn.models.configurations import attention

    return attention(config, layer, kind)
