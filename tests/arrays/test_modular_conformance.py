"""Every operation on residues against the same on exact numbers: g^k for e^k, and what residues cannot tell, listed."""

import re
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from symattn import InputError, Refused, Undecided, kind, kinds
from symattn.arrays.residues import arithmetic
from symattn.arrays.residues.arithmetic import Modulus, ResidueExponential
from symattn.arrays.residues.field import Field
from tests.arrays import programs
from tests.arrays.operations import OF_ORDER, TABLE, Case
from tests.arrays.residues import agree

EXACT = kind("exact")

# What residues cannot do: some programs of the row raise this, with these words, and the others agree.
LACKS = dict.fromkeys(OF_ORDER, (Undecided, "modular: residues have no order"))
# A maximum is any number: the programs of these rows differ from the true value, unless nothing or −∞ is its result.
ANY_MAXIMUM = ("max", "min", "amax", "amin", "Array.max", "Array.min", "maximum", "minimum", "clip", "abs", "unary")
# Functions of data stand for any function; roots of known numbers are exact.
ANY_FUNCTION = ("tanh", "erf", "cos", "sin", "sqrt", "std", "Array.std", "pow", "**")


def fresh() -> type[kinds.Modular]:
    """A kind in which 2, 3, 5 and 7 have roots."""
    return kinds.modular(*kinds.prime_pairs((2, 3, 5, 7))[-1], seed=5)


def run(case: Case, of: Any, dispatch: bool) -> Any:
    return case.run(np if dispatch else of.xp, *[of.lift(data) for data in case.inputs])


def outcomes(name: str, residues: type[kinds.Modular]) -> list[bool]:
    """Whether each program of the row gives the image of the exact result."""
    found = []
    for case in TABLE[name]:
        for dispatch in (False, True) if case.dispatch else (False,):
            found.append(agree(run(case, residues, dispatch), run(case, EXACT, dispatch)))
    return found


POWERS_OF_TWO = ("exp2", "log2")  # which the exact kind lacks
SPECIAL = {*LACKS, *ANY_MAXIMUM, *ANY_FUNCTION, *POWERS_OF_TWO, "in place"}


@pytest.mark.deep
def test_operations() -> None:
    assert [name for name in TABLE if name not in SPECIAL and not all(outcomes(name, fresh()))] == []


@pytest.mark.parametrize("name", LACKS)
def test_what_is_lacking_is_refused_by_name(name: str) -> None:
    error, words = LACKS[name]
    raised = 0
    for case in TABLE[name]:
        try:
            got = run(case, fresh(), False)
        except error as problem:
            raised += bool(re.search(words, str(problem)))
        else:
            assert agree(got, run(case, EXACT, False))
    assert raised


@pytest.mark.parametrize("name", [n for n in ANY_MAXIMUM if n != "unary"])
def test_a_maximum_is_any_number(name: str) -> None:
    assert not all(outcomes(name, fresh()))


@pytest.mark.parametrize("name", ANY_FUNCTION)
def test_other_functions_are_any_functions(name: str) -> None:
    """They run, and are no image of the true function; powers with whole exponents are."""
    two_kinds = kinds.modular(*kinds.prime_pairs()[-1], seed=1), kinds.modular(*kinds.prime_pairs()[-1], seed=2)
    for case in TABLE[name]:
        results = []
        for of in two_kinds:
            try:
                results.append(run(case, of, False).residues())
            except kinds.NoRoot:
                assert "std" in name
        if len(results) > 1:
            assert results[0].shape == results[1].shape


@pytest.mark.parametrize("name", POWERS_OF_TWO)
def test_powers_of_two_and_their_logarithms(name: str) -> None:
    """2^x is e^(x ln 2), where e^(ln 2) is 2; log2 takes it back, and natural logarithms are not those of base 2."""
    of = fresh()
    for case in TABLE[name]:
        x = of.lift(np.abs(case.inputs[0]) + 1)
        two, e, ln2 = of.xp.exp2(x), of.xp.exp(x), of.xp.log(of.lift(2))
        assert (of.xp.exp2(of.xp.log2(x)) == x).all()
        assert (of.xp.exp(of.xp.log2(x) * ln2) == x).all()
        assert (of.xp.exp2(x + 3) == 8 * two).all()
        assert (of.xp.exp2(x / ln2) == e).all()
        assert not (two == e).any()
        with pytest.raises(Refused, match="to another base"):
            of.xp.exp(of.xp.log2(x))


LN2 = float(np.log(2))
REWRITES: tuple[Callable[[str], str], ...] = (
    lambda s: s.replace("exp2(", f"exp({LN2}*", 1),
    lambda s: s.replace("exp(", f"exp2({1 / LN2}*", 1),
    lambda s: s.replace("log2(", f"{1 / LN2}*log(", 1),
    lambda s: s.replace("exp2", "exp", 1).replace("log2", "log", 1),
    lambda s: f"log2(exp({s}))",
    lambda s: f"exp(log2({s}*y))/y",
    lambda s: f"({s})/{1 / LN2}",
    lambda s: f"log2(exp2({s}))",
    lambda s: f"exp2(log2({s}))",
    lambda s: f"log({s})/log(2)-log2({s})+({s})",
)


def _drawn(random: Random, depth: int) -> str:
    if not depth:
        return random.choice("xxyy23")
    inner, other = _drawn(random, depth - 1), _drawn(random, depth - 1)
    shapes = ("exp({})", "exp2({})", "log({})", "log2({})", f"({{}})*{1 / LN2}", f"({{}})/{1 / LN2}")
    if random.random() < 0.6:
        return random.choice(shapes).format(inner)
    return f"(({inner}){random.choice('+-*/')}({other}))"


@pytest.mark.deep
@np.errstate(all="ignore")
def test_expressions_of_both_bases_agree_only_where_their_values_do() -> None:
    """Equal on residues for three pairs of primes, equal in floats; about as many are equal as are not."""
    random, seen = Random(0), {True: 0, False: 0}
    points = [kinds.modular(p, q, seed=p).letters(2) for p, q in kinds.prime_pairs()[-3:]]
    floats = np.array([[0.31, 0.83, 1.13], [0.57, 0.21, 0.41]])
    functions = {name: getattr(np, name) for name in ("exp", "exp2", "log", "log2")}
    for _ in range(400):
        pair = [expression := _drawn(random, random.randint(1, 3)), random.choice(REWRITES)(expression)]
        a, b = (eval(s, {**functions, "x": floats[0], "y": floats[1]}) + 0 * floats[0] for s in pair)
        try:
            results = [[eval(s, {**functions, "x": at[:1], "y": at[1:]}) for s in pair] for at in points]
            equal = all(type(at).compared(*r)[0].all() for at, r in zip(points, results, strict=True))
        except (Refused, Undecided, InputError, ArithmeticError):
            continue
        known = np.isfinite(a) & np.isfinite(b)
        assert not equal or np.allclose(a[known], b[known], rtol=1e-9, atol=1e-9), pair
        seen[equal] += bool(known.any())
    assert min(seen.values()) >= 50


def test_programs_in_place_do_what_numpy_does() -> None:
    for case in TABLE["in place"]:
        program = case.run.__closure__[0].cell_contents
        same = agree(run(case, fresh(), False), run(case, EXACT, False))
        assert same == (program is not programs.the_maximum_is_subtracted_in_place), program.__name__


def test_programs_in_place_on_arrays_that_wait_to_be_computed() -> None:
    residues = fresh()
    for case in TABLE["in place"]:
        program = case.run.__closure__[0].cell_contents
        if program is not programs.the_maximum_is_subtracted_in_place:
            computed = residues.lift(np.eye(4)) @ residues.lift(case.inputs[0])
            assert agree(program(residues.xp, computed), run(case, EXACT, False)), program.__name__


# -- the suite says no ------------------------------------------------------------------------------------------------
def broken(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, function: Any) -> type[kinds.Modular]:
    monkeypatch.setattr(where, name, function)
    return fresh()


def _sum_over_another_axis(self: Field, x: Any, axis: int, right: Any = Field.total) -> Any:
    return right(self, x, (axis + 1) % len(x.shape))


def _exp_off_by_one(self: ResidueExponential, s: Any, right: Any = ResidueExponential.__call__) -> Any:
    return right(self, s + 1)


def _add_one(self: Modulus, x: Any, y: Any, right: Any = Modulus.add) -> Any:
    return right(self, right(self, x, y), np.float64(1))


def _write_nothing(self: Any, write: Any) -> Any:
    return self


def _write_on_what_is_still_read(self: Any, write: Callable[..., None]) -> Any:
    write(self.value)
    return self


@pytest.mark.parametrize(
    ("where", "name", "function", "row"),
    [
        (Modulus, "add", _add_one, "add"),
        (Field, "total", _sum_over_another_axis, "mean"),
        (ResidueExponential, "__call__", _exp_off_by_one, "exp"),
        (Modulus, "inverse", lambda self, x: x, "divide"),
        ("symattn.arrays.residues.state.Plane", "overwritten", _write_nothing, "[]="),
        ("symattn.arrays.residues.state.Plane", "overwritten", _write_on_what_is_still_read, "in place"),
    ],
    ids=["adds one", "sums over another axis", "exp of x + 1", "1/x = x", "writes nothing", "writes on what is read"],
)
def test_a_broken_kind_fails(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, function: Any, row: str) -> None:
    if isinstance(where, str):
        monkeypatch.setattr(f"{where}.{name}", function)
        of = fresh()
    else:
        of = broken(monkeypatch, where, name, function)
    try:
        found = outcomes(row, of)
    except (ValueError, IndexError):
        return
    assert sum(not ok for ok in found) > (1 if row == "in place" else 0)


def test_longer_blocks_would_not_be_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Residues near m/2 of one sign: 255 products stay below 2⁵², four times as many do not stay exact."""
    p = kinds.prime_pairs()[-1][0]
    m = Modulus(p)
    rng = np.random.default_rng(0)
    x = (p // 2 - rng.integers(0, 9, (8, 4096))).astype(float)
    y = (p // 2 - rng.integers(0, 9, (4096, 8))).astype(float)
    wanted = x.astype(object).astype(int).astype(object) @ y.astype(int).astype(object) % p
    assert (m.canonical(m.matmul(x, y)) == wanted).all()
    monkeypatch.setattr(arithmetic, "BLOCK", 4096)
    assert not (m.canonical(m.matmul(x, y)) == wanted).all()
