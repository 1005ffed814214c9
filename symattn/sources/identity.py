"""The identity test of somebody's function: called as a convention says, on modular arrays, with globals replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from symattn.arrays.modular import Modular
from symattn.attention.spec import Attention
from symattn.sources.calling import agree
from symattn.sources.forms import argument
from symattn.sources.layouts import from_layout
from symattn.sources.request import Request
from symattn.sources.substitute import substitute
from symattn.verification.semantics import EPSILON, SIZES, Identity, Sizes, identity_test
from symattn.verification.target import Convention


def identity(
    function: Callable[..., Any],
    spec: Attention,
    convention: Convention | None = None,
    sizes: Sequence[Sizes] = SIZES,
    epsilon: float = EPSILON,
    seed: int = 0,
) -> Identity:
    """Whether NumPy code computes ``spec``, but for rounding and a probability of at most ε; see ``identity_test``.

    Without a convention the function is called as ``agree`` finds. Code that cannot run on residues (``float()`` of an
    element, a comparison of data) is not judged: ``Identity.agrees`` is None and ``reason`` names what was refused.
    Functions in the layouts bhnd and bnhd are called with axes for a batch and for heads.
    """
    how = convention or agree(function, Request.of(spec))
    names = tuple(dict.fromkeys(how.inputs))
    if how.layout != "nd":
        sizes = [replace(s, batch=(2, 3) if "q" in names else (2,)) for s in sizes]

    def prepare(kind: type[Modular]) -> Callable[[Mapping[str, Any]], Any]:
        made = substitute(function, kind)
        return lambda inputs: _call(made, how, inputs)

    return identity_test(prepare, spec, names, sizes, epsilon, seed)


def _call(function: Callable[..., Any], how: Convention, inputs: Mapping[str, Any]) -> Any:
    places, keywords = [], {}
    for a in how.arguments:
        value = argument(a, how, inputs)
        if a.positional:
            places.append(value)
        else:
            keywords[a.parameter] = value
    output = function(*places, **keywords)
    first = output[0] if isinstance(output, tuple) and output else output
    return from_layout(first, inputs, how.layout) if isinstance(first, Modular) else first
