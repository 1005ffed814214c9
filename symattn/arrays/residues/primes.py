"""Pairs of primes (p, q) with p = 2q + 1: values are residues mod p, exponents are residues mod q.

The squares mod p other than 0 are a group of prime order q, so that s ↦ g^s is well defined for s mod q and maps every
sum of exponents to a product. Both primes are 3 mod 4, which makes a square root one power.
"""

from __future__ import annotations

from functools import cache
from math import isqrt
from random import Random

import flint
import numpy as np

from symattn.document.errors import InputError, Refused

LEAST, BELOW = 1 << 22, 1 << 23  # the range of p
# of the largest integer whose root is computed: sizes, and parts of short fractions
_FACTORED_BITS = 128


class NoRoot(Refused):
    """Raised if a prime has no square root here; ``draw_primes`` with it among ``roots`` gives pairs with one."""

    def __init__(self, prime: int, modulus: int) -> None:
        super().__init__(
            f"modular: {prime} has no square root mod {modulus}; draw the primes with roots=({prime},)"
        )
        self.prime = prime


# The pairs never change, so one sieve for each set of roots is enough.
@cache
def prime_pairs(roots: tuple[int, ...] = ()) -> tuple[tuple[int, int], ...]:
    """Return every pair with 2²² < p < 2²³ and p, q ≡ 3 mod 4 for which the primes ``roots`` have square roots."""
    q = np.arange(LEAST // 2 + 3, BELOW // 2, 4)
    # A sieve of q and 2q + 1 at once, by all odd n up to the root of the largest p.
    small = np.ones(isqrt(BELOW) + 1, dtype=bool)
    prime = np.ones(q.size, dtype=bool)
    for n in range(3, small.size, 2):
        if small[n]:
            small[n::n] = False
            for remainder in (0, n // 2):  # of those q for which n divides q or 2q + 1
                # Entry k stands for q[0] + 4 k, so k solves a congruence mod n.
                prime[(remainder - int(q[0])) * pow(4, -1, n) % n :: n] = False
    moduli = (2 * q[prime] + 1).tolist()
    result = zip(moduli, q[prime].tolist(), strict=True)
    return tuple(pair for pair in result if all(has_root(f, m) for f in roots for m in pair))


def is_pair(p: int, q: int) -> bool:
    """Return whether (p, q) is among all ``prime_pairs``."""
    return (
        LEAST < p < BELOW
        and p == 2 * q + 1
        and q % 4 == 3
        and all(flint.fmpz(n).is_prime() for n in (p, q))
    )


def draw_primes(count: int, random: Random, roots: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    """Draw ``count`` different pairs uniformly. Raises InputError if there are not enough."""
    candidates = prime_pairs(tuple(sorted(roots)))
    if count > len(candidates):
        raise InputError(
            f"{count} pairs of primes with roots of {roots} were requested; there are {len(candidates)}"
        )
    return random.sample(candidates, count)


def has_root(n: int, m: int) -> bool:
    """Return whether n is a square mod the odd prime m (Euler's criterion)."""
    # The power of 0 is 0, and 0 has the root 0.
    return pow(n, (m - 1) // 2, m) <= 1


def root(n: int, m: int) -> int:
    """√n mod m for n ≥ 0, the product of fixed roots of its prime factors, so that √(ab) = √a √b. Needs m ≡ 3 mod 4.

    Raises ``NoRoot``.
    """
    # √0 = 0, and 0 has no factorization.
    result = 1 if n else 0
    if n.bit_length() > _FACTORED_BITS:
        raise Refused(f"modular: the root of {n}, which is too large to factor")
    # Roots of prime factors multiply, so that √(ab) = √a √b even where signs are arbitrary.
    factors = ((int(p), e) for p, e in flint.fmpz(n).factor()) if n else ()
    for prime, power in factors:
        result = result * pow(prime, power // 2, m) % m
        if power % 2:
            if not has_root(prime, m):
                raise NoRoot(prime, m)
            # For m ≡ 3 mod 4 this power of a square is its root.
            result = result * pow(prime, (m + 1) // 4, m) % m
    return result
