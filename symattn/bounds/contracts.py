"""``Contract``: which arrays an implementation stores, and how; ``replay``: the definition with exactly these stored.

The definition runs in float64, and the arrays that a contract names are rounded to the format once computed. Float32's
own roundings, which are left out, change an output only if a stored number lies near the midpoint of two numbers of the
format; so a kernel's own contract reproduces nearly all of its bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from math import exp, log, log2, sqrt
from typing import Any, Literal

import numpy as np

from symattn.arrays.formats import Format
from symattn.arrays.namespace import namespace_of
from symattn.arrays.tensors import dtype_kind, is_tensor
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Inputs
from symattn.bounds.mistake import At, own, size, step
from symattn.bounds.reference import CLOSING, RIGHT, Change, Variant, canonical, changed, trace
from symattn.bounds.storing import rounded

Powers = Literal["", "normalised", "alone", "summed"]
Reference = Literal["largest", "stale", "fixed"]
Scale = Literal["", "factor", "divisor", "base 2", "reciprocal"]
_POWERS: dict[Powers, str] = {
    "": "",
    "normalised": "weights are stored",
    "alone": "exponentials are stored for the values, not for their sum",
    "summed": "exponentials are stored for the values and for their sum",
}
_SCALE: dict[Scale, str] = {
    "factor": "the scale is a number of the format",
    "divisor": "what scores are divided by is a number of the format",
    "base 2": "the scale times log₂ e is a number of the format",
    "reciprocal": "the scale is a number of the format, made of a divisor that is one",
}
_SCORES = {
    "scores": "scores",
    "scaled": "scaled scores",
    "capped": "capped scores",
    "biased": "biased scores",
}
#: Arrays before the scores and after the values: a model keeps them, and a kernel may.
_AROUND = ("q", "k", "v", "q_rotated", "k_rotated", "q_normed", "k_normed", "attended")
# Tile sizes of common kernels.
_TILES = (16, 32, 64, 128)
# FlashAttention-4 rescales at a factor of 2⁸.
_STALE = 8  # by how much, in base 2, a score must exceed a stale reference to replace it
_ONE = 1e-6  # relative tolerance for scores that are scaled by one number


@dataclass(frozen=True)
class Contract:
    """The arrays that are stored in the format of the inputs; the output always is.

    scores   names of the steps of scores that are stored: ``scores``, ``scaled``, ``capped``, ``biased``
    powers   what is stored of the weights: nothing; the weights (``normalised``); e^{s − m} where it meets the values
             (``alone``), or where it is summed, too (``summed``)
    tiles    m is the running maximum over tiles of so many keys (None: the largest score of the row)
    reference  m is that ``largest`` score, one that is ``stale`` until another is larger by a factor of 2⁸, as in
             FlashAttention-4, or a ``fixed`` number, up to powers of 2 that keep P in the range
    queries  queries are stored after they are multiplied by the scale
    scale    the scale c is rounded to the format: c itself, 1/c, c log₂ e, or 1/c and then what 1 over it is
    nearest  outputs are stored to nearest; else they are cut off toward zero
    times    e^{s − m} is multiplied by it before it is stored, and divided by it after, as FP8 has few small numbers
    output   format of the output, if it is another one: FP8 kernels return bfloat16 or float16

    >>> print(Contract(Format("bfloat16"), ("scores",), "normalised", nearest=False).words)
    scores are stored; weights are stored; outputs are cut off toward zero; in bfloat16
    """

    format: Format
    scores: tuple[str, ...] = ()
    powers: Powers = ""
    tiles: int | None = None
    queries: bool = False
    scale: Scale = ""
    nearest: bool = True
    times: float = 1.0
    output: Format | None = None
    reference: Reference = "largest"

    @property
    def words(self) -> str:
        """One line for a report."""
        last = f", the output in {self.output.name}" if self.output is not None else ""
        return f"{self.stored}; in {self.format.name}{last}"

    @property
    def stored(self) -> str:
        """The stored arrays in words, without the format."""
        result = []
        if self.scale:
            result.append(_SCALE[self.scale])
        if self.queries:
            result.append("queries are stored after they are scaled")
        if self.scores:
            result.append(f"{' and '.join(_SCORES[name] for name in self.scores)} are stored")
        # Without tiles the maximum of the whole row is meant.
        if self.powers:
            tiles = f", relative to a running maximum over {self.tiles} keys" if self.tiles else ""
            result.append(
                _POWERS[self.powers]
                + tiles
                + (f", times {self.times:g}" if self.times != 1 else "")
            )
        # Rounding to nearest is what every format does unless it is said.
        result.append("" if self.nearest else "outputs are cut off toward zero")
        return "; ".join(filter(None, result)) or "the output alone is stored"


def family(spec: Attention, names: frozenset[str], f: Format, keys: int) -> Iterator[Contract]:
    """Yield the contracts that are tried first, those with few stores before others."""
    steps = [s.name for s in canonical(spec).pipeline(names)]
    chain = [name for name in _SCORES if name in steps]
    singles = ((name,) for name in chain)
    first_two = tuple(chain[:2])
    stored = dict.fromkeys(((), *singles, first_two, tuple(chain)))
    plain = spec.is_softmax
    # A tile as long as the row is the same as none.
    tiles = (None, *(t for t in _TILES if t < keys))
    powers: list[tuple[Powers, int | None]] = [("", None), ("normalised", None)]
    powers += [(p, t) for p in ("alone", "summed") for t in tiles] if plain else []
    for scores in stored:
        for power_kind, tile in powers:
            yield Contract(f, scores, power_kind, tile)
    # Queries can be scaled in place of scores only where scores are products.
    if spec.score == "dot" and "scaled" in steps:
        for power_kind, tile in powers:
            yield Contract(f, (), power_kind, tile, queries=True)
        for power_kind, tile in powers[:2]:
            yield Contract(f, ("scaled",), power_kind, tile, queries=True)


def near(contract: Contract, spec: Attention) -> Iterator[Contract]:
    """Yield the contract with one change: truncated outputs, or a scale that is a number of the format."""
    yield replace(contract, nearest=False)
    if spec.score == "dot" and spec.scale != "given":
        yield from (replace(contract, scale=way) for way in _SCALE)


#: Arrays that contracts share, by the fields they depend on, for one specification, one set of inputs and one variant.
Made = dict[tuple[object, ...], Any]


def replay(
    contract: Contract,
    spec: Attention,
    inputs: Inputs,
    variant: Variant = RIGHT,
    inside: str = "float64",
    made: Made | None = None,
    before: Made | None = None,
) -> Any:
    """Return the output of the definition, or of a variant, with the arrays of a contract stored, as float64.

    All else is computed in the type ``inside``: with float32 this is a kernel with the contract, and with float64 what
    such kernels have in common. ``made`` caches arrays shared with other contracts, and ``before``, of one
    specification and its inputs, those that come before a variant's first change. Raises ``ValueError`` or
    ``KeyError`` if the contract or the variant does not fit the specification.
    """
    made = {} if made is None else made
    # The variant's inputs and fields are applied once, here.
    spec, inputs = changed(spec, inputs, variant)
    arrays = {n: a if dtype_kind(a) in "biu" else _of_type(inside, a) for n, a in inputs.items()}
    names = [s.name for s in spec.pipeline(frozenset(arrays))]
    # Everything before the weights depends on scores alone, and is shared by contracts.
    shared = names[: names.index("weights")]
    steps = {n: _make_storing_step(contract, n, variant, inside, made, n in shared) for n in names}
    if before is not None and variant.spec is None and variant.inputs is None:
        for n in takewhile(lambda n: n not in variant.steps and n not in CLOSING, names):
            steps[n] = _read_from_other_variants(before, (contract, inside, n), steps[n])
    with np.errstate(all="ignore"):
        # The variant's fields and inputs are applied already.
        values = trace(
            spec, arrays, replace(variant, steps={**variant.steps, **steps}, spec=None, inputs=None)
        )
        output = _of_type("float64", values["output"])
        last = contract.output or contract.format
        if contract.nearest:
            return rounded(last, output)
        near = last.cast(output)  # truncated: to the nearest number that is no farther from 0
        less = np.nextafter(near, np.zeros_like(near))
        sizes = np.abs(near.astype(np.float64))
        nearer_to_zero = np.where(sizes > np.abs(output), less, near)
        return nearer_to_zero.astype(np.float64)


def _make_storing_step(
    contract: Contract, name: str, variant: Variant, inside: str, made: Made, shared: bool
) -> Change:
    """Return the step of a variant with its result stored; ``shared``: it depends on scores alone, so is cached."""
    wrong = variant.steps.get(name)
    # The fields of a contract that decide its scores.
    key = contract.format, contract.scores, contract.queries, contract.scale

    def right(spec: Attention, values: dict[str, Any]) -> Any:
        x = wrong(spec, values) if wrong else own(spec, values, name)
        return x if is_tensor(x) else np.asarray(x)

    def change(spec: Attention, values: dict[str, Any]) -> Any:
        if name == "weights":
            at, x = _store_on_first_use(
                made, key, lambda: (At(spec, values, name), right(spec, values))
            )
            if contract.powers in ("", "normalised"):
                return _of_type(inside, rounded(contract.format, x) if contract.powers else x)
            kind = contract.tiles, contract.times, contract.reference
            e = _store_on_first_use(
                made, (*key, *kind), lambda: _replay_stored_exponentials(contract, at, x * at.total)
            )
            # The sum of what is stored, or of what is not; a row without any key divides by 1.
            below = at.total if contract.powers == "alone" else at.sum(e) + at.sink
            return _of_type(inside, e / at.xp.where(below == 0, 1.0, below))
        x = right(spec, values)
        if name == "scaled" and (contract.queries or contract.scale):
            x = _replay_stored_scaling(contract, spec, values, x)
        is_stored = name in contract.scores or name in _AROUND
        return _of_type(inside, rounded(contract.format, x)) if is_stored else x

    return (
        (lambda spec, values: _store_on_first_use(made, (*key, name), lambda: change(spec, values)))
        if shared
        else change
    )


def _read_from_other_variants(before: Made, key: tuple[object, ...], change: Change) -> Change:
    """Return a step whose array is the same object for all variants that change nothing up to it."""
    return lambda spec, values: _store_on_first_use(before, key, lambda: change(spec, values))


def _store_on_first_use(cache: Made, key: tuple[object, ...], make: Callable[[], object]) -> Any:
    """Return a stored value, making and storing it the first time."""
    if key not in cache:
        cache[key] = make()
    return cache[key]


def _replay_stored_scaling(
    contract: Contract, spec: Attention, values: dict[str, np.ndarray], x: np.ndarray
) -> np.ndarray:
    """Return the scores of stored scaled queries, or by a stored scale. Raises ``ValueError`` unless scores are
    scaled by one number."""
    at = At(spec, values, "scaled")
    s = np.asarray(at.first)
    # The largest score has the smallest relative rounding, so its ratio is the scale.
    place = np.unravel_index(int(np.abs(s).argmax()), s.shape)
    # All scores 0: the definition's own scale.
    c = float(x[place] / s[place]) if s[place] else 1 / sqrt(size(values, "q"))
    absolute = _ONE * float(np.abs(x).max())
    if not np.allclose(x, s * c, rtol=_ONE, atol=absolute):
        raise ValueError("these scores are not scaled by one number")
    c = float(stored_scales(contract.format, c)[contract.scale]) if contract.scale else c
    if not contract.queries:
        return np.asarray(s * c)
    operands = step(spec, values, "scores").of[:2]
    q, k = (values[n] for n in operands)
    stored_q = rounded(contract.format, q * c)
    return np.asarray(stored_q.astype(x.dtype) @ k.mT)


def stored_scales(f: Format, c: Any, unit: float = log(2)) -> dict[str, Any]:
    """Return the scale c, or an array of scales, as it is stored in each of the ways; ``base 2`` stands for c/``unit``.

    >>> {way: round(float(x) / 80**-0.5, 5) for way, x in stored_scales(Format("bfloat16"), 80**-0.5).items()}
    {'factor': 1.00012, 'divisor': 1.00076, 'base 2': 0.99897, 'reciprocal': 1.00012}
    """
    with np.errstate(all="ignore"):
        # One call rounds all three, since rounding an array costs as much as one number.
        factors = np.stack([c, 1 / c, c / unit])
        factor, below, base = f.rounded(factors)
        return {
            "factor": factor,
            # 1/(1/c rounded): the code divides by the stored square root.
            "divisor": 1 / below,
            "base 2": base * unit,
            "reciprocal": f.rounded(1 / below),
        }


def _of_type(name: str, a: object) -> Any:
    """Return an array or a tensor, of another type."""
    xp = namespace_of(a)
    return xp.astype(a, getattr(xp, name), copy=False)


def _replay_stored_exponentials(contract: Contract, at: At, e: object) -> Any:
    """Return the exponentials as stored, rescaled to the largest score of the row."""
    xp = at.xp
    two = 1 / log2(at.spec.base or exp(1))
    # Exponentials relative to another reference are scaled, stored and scaled back.
    m = _running_maximum_by_tiles(
        at, contract.tiles, _STALE * two if contract.reference == "stale" else 0.0
    )
    # A fixed reference is rounded to a power of 2, which costs no rounding of its own.
    if contract.reference == "fixed":
        m = two * xp.round(m / two)
    # A row without any key has no maximum to subtract.
    differences = xp.where(xp.isfinite(at.first), at.m - m, 0.0)
    more = at.power(differences) * contract.times
    return rounded(contract.format, xp.where(e == 0, 0.0, e * more)) / more


def _running_maximum_by_tiles(at: At, tile: int | None, more: float) -> Any:
    """Return for every key the largest score of its row up to the end of the key's tile, or an earlier one that no
    score exceeds by ``more``; with a sink, its logit if larger."""
    xp, s, n = at.xp, at.first, at.n
    # One tile holds the row: its maximum is that of the row.
    if tile is None or tile >= n:
        return xp.broadcast_to(at.m, s.shape)
    tops: list[Any] = []
    for start in range(0, n, tile):
        part = s[..., start : start + tile]
        top = xp.max(part, axis=-1, keepdims=True)
        # Before the first tile nothing is subtracted, so every score exceeds −∞.
        last = tops[-1][..., :1] if tops else -xp.inf
        running_top = xp.where(top > last + more, top, last)
        tops.append(xp.broadcast_to(running_top, part.shape))
    running = xp.concat(tops, axis=-1)
    if at.spec.sink is not None:
        running = xp.maximum(running, at.z)
    # Before the first visible key the running maximum is −∞.
    return xp.where(xp.isfinite(running), running, at.m)
