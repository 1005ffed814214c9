"""Linear attention that erases along a vector of its own: the arrays that a form reads.

    S_t = e^{g_t} S_{t−1} − e_tᵀ (p_t X) + k_tᵀ w_t,   o_t = q_t S_t,

X is e^{g_t} S_{t−1}, or S_{t−1} where tokens erase before their own gates. By the field ``erase``:

    vector  p is β p, from an input p, e is k, and β v is written (Comba)
    gates   p is b ⊙ k, e is k, and w ⊙ v is written, from inputs b and w (Gated DeltaNet-2)
    pair    p is −a, e is b, from inputs a and b, and v is written (RWKV-7, where a = −κ and b = κ times its rate)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from symattn.arrays.namespace import namespace_of
from symattn.attention.norms import unit
from symattn.attention.projections import repeat_heads

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention

#: The inputs of each value of ``erase``, and whether their last axis is that of keys or of values.
ERASING_INPUTS: dict[str | None, dict[str, str]] = {
    None: {},
    "vector": {"p": "d_k"},
    "gates": {"b": "d_k", "w": "d_v"},
    "pair": {"a": "d_k", "b": "d_k"},
}
#: Whether an array has one row for each head of keys, not of values.
_OF_KEYS = frozenset({("vector", "p"), ("pair", "a"), ("pair", "b")})


class Erasure(NamedTuple):
    """p and e of the module's formula, each (…, n, d_k), and p without its factor β or b, None if it has none."""

    p: Any
    keys: Any
    bare: Any = None


class Written(NamedTuple):
    """An erasure, and the values that are written, (…, n, d_v)."""

    erasure: Erasure
    values: Any


def is_of_keys(spec: LinearAttention, name: str) -> bool:
    """Return whether an input has a row for each head of keys, not of values."""
    return (spec.erase, name) in _OF_KEYS


def read_erasing_inputs(spec: LinearAttention, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return p, b, w and a as they are read: for each head of values, and p of length 1 if there is a norm; of these
    ``bare p`` has its own length."""
    result = {
        name: repeat_heads(a, spec.values_per_key)
        if spec.values_per_key > 1 and is_of_keys(spec, name)
        else a
        for name, a in given.items()
        if name in ERASING_INPUTS[spec.erase]
    }
    if spec.erase == "vector":
        result["bare p"] = result["p"]
        # The norm of keys and queries is one of p too, as in public kernels.
        if spec.qk_norm is not None:
            result["p"] = unit(result["p"], spec.eps)
    return result


def read_erasure(
    spec: LinearAttention, k: Any, v: Any, beta: Any, given: Mapping[str, Any]
) -> Written:
    """Return what is erased and written, from keys as they are read, and what ``read_erasing_inputs`` returns."""
    if spec.erase == "gates":
        return Written(Erasure(given["b"] * k, k, k), given["w"] * v)
    if spec.erase == "pair":
        return Written(Erasure(-given["a"], given["b"]), v)
    return Written(Erasure(beta * given["p"], k, given["p"]), beta * v)


# -- two steps a token -------------------------------------------------------------------------------------------------
class PairedSteps(NamedTuple):
    """The arrays of two steps a token: the first has the gate, and erases with the key e; the second writes."""

    q: Any
    k: Any
    v: Any
    g: Any
    p: Any


def in_steps(q: Any, k: Any, v: Any, g: Any, erasure: Erasure) -> PairedSteps:
    """Return the rows of both steps of each token next to each other, (…, 2n, d)."""
    return PairedSteps(
        join_steps(q, q),
        join_steps(erasure.keys, k),
        join_steps(0 * v, v),
        join_steps(g, 0 * g),
        join_steps(erasure.p, 0 * erasure.p),
    )


def join_steps(first: Any, second: Any) -> Any:
    """Return the rows of two arrays (…, n, d) in turns, (…, 2n, d)."""
    xp = namespace_of(first)
    *front, n, d = first.shape
    both = xp.concat([first[..., :, None, :], second[..., :, None, :]], axis=-2)
    return xp.reshape(both, (*front, 2 * n, d))


def take_token_before(x: Any) -> Any:
    """Return the rows of the token before each, and zeros for the first, as mistakes read them."""
    return namespace_of(x).concat([0 * x[..., :1, :], x[..., :-1, :]], axis=-2)
