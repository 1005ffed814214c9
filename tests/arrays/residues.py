"""Exact elements as residues: the map e^k → g^k, √a → the root of a, that ``modular`` must commute with."""

from fractions import Fraction
from typing import Any

import numpy as np

from symattn import kinds
from symattn.arrays.field.surds import Surd
from symattn.arrays.residues.primes import root

FORBIDDEN, UNDEFINED = -1, -2


def of_number(x: Any, m: int) -> int:
    """An element of K mod m."""
    if isinstance(x, Surd):
        return sum(c * root(a, m) for a, c in x.terms.items()) * pow(x.den, -1, m) % m
    f = Fraction(x)
    return f.numerator * pow(f.denominator, -1, m) % m


def generator(kind: type[kinds.Modular]) -> int:
    """g, read off from exp(1)."""
    return int(kind.xp.exp(kind.lift(1)).residues())


def of_element(x: Any, kind: type[kinds.Modular], g: int) -> int:
    """A quotient of sums of exponentials mod p, by Python's integers alone."""
    p, q = kind.field.p.m, kind.field.q.m
    if isinstance(x, (kinds.Forbidden, kinds.Undefined)):
        return FORBIDDEN if isinstance(x, kinds.Forbidden) else UNDEFINED
    if isinstance(x, kinds.Logarithm):
        return of_element(x.exp(), kind, g)
    (radicand, denominator), *sums = x.parts
    unit = root(radicand, q) * pow(denominator, -1, q)
    top, bottom = (
        sum(of_number(c, p) * pow(g, of_number(k, q) * unit % q, p) for k, c in terms.items()) % p for terms in sums
    )
    return top * pow(bottom, -1, p) % p


def residues(array: kinds.Modular) -> np.ndarray:
    """What the array holds, of logarithms the exponentials."""
    return array.residues() if array.state.value is not None else array.xp.exp(array).residues()


def agree(got: Any, wanted: Any) -> bool:
    """Whether a result on residues is the image of the exact one, which may be a list of arrays, or plain."""
    if isinstance(wanted, (list, tuple)) and not isinstance(got, np.ndarray):
        return len(got) == len(wanted) and all(map(agree, got, wanted))
    if not isinstance(got, kinds.Modular):
        return bool(np.shape(got) == np.shape(wanted) and np.array_equal(got, wanted))
    if got.plain_shape != wanted.plain_shape:
        return False
    g = generator(type(got))
    logarithms = got.state.value is None
    images = [of_element(x.exp() if logarithms else x, type(got), g) for x in wanted.entries.flat]
    return residues(got).ravel().tolist() == images
