"""A campaign of random identities against the prover: what it proves holds at larger sizes, and what it denies fails.

"Holds" is evaluation modulo random primes by the checker's evaluator, which shares nothing with the prover.
"""

import json
from random import Random

import pytest

from symattn.arrays.index.building import add, negate
from symattn.document.errors import Refused
from symattn.proof.certificate import certificate
from symattn.proof.checker import check
from symattn.proof.clearing import cleared
from symattn.proof.counting import CutOff, cut_off
from symattn.proof.prover import prove
from tests.proof.identities import SORTS, Equation, Tally, Writer, equation

COSTLY = 60  # sizes in a box, beyond which an equation is left out
LARGEST = 7
DEEP = 1  # parts of the long campaign, of ten: the others are run by hand


def limits(e: Equation) -> CutOff | None:
    """The cut-off of an equation; None where the method does not apply, or too many sizes are asked for."""
    try:
        found = cut_off(cleared(add(e.left, negate(e.right))).numerator, e.free)
    except Refused:
        return None
    many = 1
    for top in found.top.values():
        many *= top + 1
    return found if many <= COSTLY and max(found.top.values(), default=0) <= LARGEST else None


def judged(e: Equation, found: CutOff, random: Random, tally: Tally, complete: bool) -> None:
    proof = prove(*e.arrays())
    if proof.proved:
        tally.add("proved by " + "/".join(sorted({case.how for case in proof.cases})))
        for more in (0, 1, 2):
            sizes = {s: found.top.get(s, 1) + more + random.randrange(2) for s in SORTS}
            assert e.holds({s: max(n, 1) for s, n in sizes.items()}, random) is not False, (e, sizes)
        verdict = check(json.loads(json.dumps(certificate(proof))), random)
        assert verdict.accepted, (verdict, e)
        assert verdict.epsilon < 1e-20
    elif proof.open_at is not None:
        tally.add("not shown")
        sizes = {**dict.fromkeys(SORTS, 1), **proof.open_at}
        if complete:
            assert e.holds(sizes, random) is False, (e, sizes)
    else:
        tally.add("refused")


def campaign(seeds: range, **options: bool) -> Tally:
    tally = Tally()
    complete = not options.get("quotients") and not options.get("opaque")
    for seed in seeds:
        random = Random(seed)
        e = equation(Writer(random, **options), random.choice((1, 2, 2, 3)), mutate=seed % 2 == 1)
        found = limits(e)
        if found is None:
            tally.add("left out")
            continue
        judged(e, found, random, tally, complete)
        if seed % 2 == 0 and complete:
            assert prove(*e.arrays()).proved, e
    return tally


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"predicates": False}, marks=pytest.mark.deep),
        pytest.param({"quotients": True}, marks=pytest.mark.deep),
        pytest.param({"quotients": True, "predicates": False}, marks=pytest.mark.deep),
        pytest.param({"opaque": True}, marks=pytest.mark.deep),
    ],
    ids=str,
)
def test_no_falsehood_is_proved_and_no_truth_denied(options: dict[str, bool]) -> None:
    tally = campaign(range(160), **options)
    assert sum(n for what, n in tally.counts.items() if what.startswith("proved")) > 40
    assert tally.counts.get("not shown", 0) > 10


@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=pytest.mark.deep if n < DEEP else pytest.mark.exhaustive) for n in range(10)]
)
@pytest.mark.parametrize("quotients", [False, True])
def test_no_falsehood_is_proved_in_a_long_campaign(part: int, quotients: bool) -> None:
    campaign(range(1000 + 1000 * part, 2000 + 1000 * part), quotients=quotients, predicates=part % 3 > 0)
