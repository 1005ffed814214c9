"""Arrays whose sizes are letters: every program gives what it gives on exact numbers; which roots are joined."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symattn import InputError, Refused, Undecided, kinds, proving
from symattn.arrays.index.array import once
from symattn.arrays.index.building import as_written
from tests.arrays.evaluating import Numbers, compare

SIZES = [{"n": 1, "m": 1, "d": 1, "p": 1}, {"n": 2, "m": 3, "d": 2, "p": 1}, {"n": 3, "m": 2, "d": 1, "p": 2}]
X, Y, V, B = {"x": "n d"}, {"x": "n d", "y": "n d"}, {"v": "d"}, {"x": "p+n+1 d"}


def on(name: str) -> Callable[..., Any]:
    return lambda x, *more, **options: getattr(x.__array_namespace__(), name)(x, *more, **options)


def positions(x: Any, offset: int = 0) -> Any:
    """[j ≤ i + offset] over the rows of x."""
    xp = x.__array_namespace__()
    n = x.shape[0]
    return xp.arange(n)[None, :] <= xp.arange(n)[:, None] + offset


PROGRAMS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "arithmetic": (lambda x, y: (x + 2 * y - 1) * x - y / 4, Y),
    "broadcasting": (lambda x, v: x * v + v[None, :] - v, {**X, **V}),
    "powers": (lambda x: x**3 + x**0, X),
    "quotient": (lambda x, y: x / (y * y + 1), Y),
    "exponentials": (lambda x, y: x.__array_namespace__().exp(x - y) * x.__array_namespace__().exp(y), Y),
    "transposes": (
        lambda x: [x.mT, on("swapaxes")(x, 0, -1), on("permute_dims")(x, (1, 0)), on("moveaxis")(x, 0, 1)],
        X,
    ),
    "new axes": (lambda x: [x[None], x[:, None], on("expand_dims")(x, axis=1), on("squeeze")(x[:, None], axis=1)], X),
    "sums": (lambda x: [x.sum(), x.sum(axis=0), x.sum(axis=-1, keepdims=True), x.sum(axis=(0, 1))], X),
    "means": (lambda x: [x.mean(axis=0), x.mean(axis=1, keepdims=True), x.mean()], X),
    "maxima": (lambda x: [x.max(), x.max(axis=1), on("maximum")(x, 0)], X),
    "products": (lambda x, y: [x @ y.mT, x.mT @ y, (x @ y.mT) @ x], Y),
    "cumulative sums": (lambda x: [on("cumulative_sum")(x, axis=k) for k in (0, 1)], X),
    "blocks": (lambda x: [x[: x.shape[0] - 1], x[-1:], x[-1], x.sum(axis=0)], B),
    "stack": (lambda x, y: [x.__array_namespace__().stack([x, y], axis=k) for k in (0, 1, 2)], Y),
    "concat": (lambda x, y: [x.__array_namespace__().concat([x, y, x], axis=k) for k in (0, 1)], Y),
    "one of a pair": (lambda x, y: x.__array_namespace__().stack([x, y], axis=-1)[..., 1], Y),
    "joined heads": (
        lambda x: x.__array_namespace__().reshape(x, (x.shape[0], x.shape[1] * x.shape[2])),
        {"x": "n 2 d"},
    ),
    "split heads": (lambda x: x.__array_namespace__().reshape(x, (x.shape[0], 2, x.shape[1] // 2)), {"x": "n 2*d"}),
    "filled": (lambda x: [on("zeros_like")(x), on("ones_like")(x), x.__array_namespace__().full(x.shape, 3) + x], X),
    "a causal mask": (lambda x: x.__array_namespace__().where(positions(x), x @ x.mT, 0), X),
    "no diagonal": (lambda x: x.__array_namespace__().where(positions(x, -1), x @ x.mT, 1), X),
    "both masks": (lambda x: x.__array_namespace__().where(positions(x) & ~positions(x, -1), x @ x.mT, 0), X),
    "positions as numbers": (lambda x: x * x.__array_namespace__().arange(x.shape[0])[:, None], X),
    "positions in blocks": (lambda x: x * (x.__array_namespace__().arange(x.shape[0])[:, None] + 1), B),
    "blocks compared": (lambda x: x.__array_namespace__().where(positions(x), x @ x.mT, 0), B),
    "a size as a number": (lambda x: x * x.shape[0] + x.shape[1] - x / x.shape[0], X),
}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_it_gives_on_numbers(name: str, sizes: dict[str, int]) -> None:
    run, arrays = PROGRAMS[name]
    compare(run, arrays, sizes)


def test_permutations_move_rows() -> None:
    x = np.array([[1, 2], [3, 4], [5, 6]], dtype=object)
    numbers = Numbers({"x": (x, "n d")}, {"n": 3, "d": 2}, {"pi": [2, 0, 1], "rho": [1, 0, 2]})
    letters, pi, rho = kinds.Indexed.letters("x", "n", "d"), kinds.Permutation("pi", "n"), kinds.Permutation("rho", "n")
    for formal, true in ((letters[pi], x[[2, 0, 1]]), (letters[pi][rho], x[[2, 0, 1]][[1, 0, 2]])):
        assert [e.item() for e in numbers.everywhere(formal).flat] == list(true.flat)


N, M = proving.Letters().length("n"), proving.Letters().length("m")


def test_lengths_are_sums_of_products() -> None:
    assert N * M == M * N
    assert (N + 1) * 2 == 2 * N + 2
    assert N + M - M == N
    assert (N * M) // M == N
    assert (N + M + N + M) // 2 == N + M
    assert N + 1 == 1 + N
    assert int(kinds.Indexed.letters("x", 6).shape[0] + 1) == 7
    assert repr(N * 2 + 1) == "n·2 + 1"
    assert {N: 1}[proving.Letters().length("n")] == 1


@pytest.mark.parametrize(
    "ask", [lambda: N // 2, lambda: N % M, lambda: int(N), lambda: float(N), lambda: kinds.Indexed.letters("x", "n+1")]
)
def test_what_a_length_is_not_is_refused(ask: Callable[[], Any]) -> None:
    with pytest.raises(Refused):
        ask()


def test_hash_collisions_of_lengths_do_not_ask_whether_sizes_are_equal() -> None:
    """−1 and −2 have one hash in Python."""
    a, b = (N - N) - N - M - M, (N - N) - N - N - M
    assert len({a, b}) == 2
    with pytest.raises(Undecided):
        assert a == b


def test_letters_of_another_sort_are_a_defect() -> None:
    x = kinds.Indexed.letters("x", "n")
    with pytest.raises(AssertionError):
        x.at(kinds.Indexed.letters("y", "m").places()[0])


def test_conditions_that_are_letters_are_taken_for_truth_values_and_noted() -> None:
    x, mask = kinds.Indexed.letters("x", "n"), kinds.Indexed.letters("keep", "n")
    with kinds.listening() as notes:
        kinds.Indexed.xp.where(mask, x, 0).at(x.places()[0])
    assert notes == ["hypothesis: keep holds truth values, 0 or 1"]


def test_a_maximum_over_a_mask_is_taken_to_be_finite_and_noted() -> None:
    x, mask = kinds.Indexed.letters("x", "n"), kinds.Indexed.letters("keep", "n")
    xp = kinds.Indexed.xp
    with kinds.listening() as notes:
        xp.isfinite(xp.max(xp.where(mask, x, -np.inf))).at(())
        xp.isfinite(xp.max(x)).at(())
    assert sum("allowed key" in n for n in notes) == 1


def test_an_element_is_computed_once_as_written_and_once_simplified() -> None:
    x, asked = kinds.Indexed.letters("x", "n"), []

    def at(places: Any) -> Any:
        asked.append(places)
        return (x + 0).at(places)

    counted, (here,), (there,) = kinds.Indexed(["n"], at), x.places(), x.places()
    with once(), as_written():
        written = [counted.at(here), counted.at(here)]
        with as_written(False):
            simplified = counted.at(here)
        other = counted.at(there)
    assert written[0] is written[1]
    assert simplified is x.at(here) is not written[0]
    assert other.free != written[0].free
    assert asked == [here, here, there]
    counted.at(here)
    assert len(asked) == 4


def test_arrays_that_are_made_and_forgotten_keep_elements_of_their_own() -> None:
    with once():
        assert [kinds.Indexed.lift(n).at(()).value for n in range(100)] == [*range(100)]  # type: ignore[attr-defined]


def test_arrays_without_letters_keep_their_kind() -> None:
    x = kinds.Indexed.letters("x", "n")
    with pytest.raises(Refused):
        (x + np.zeros(3)).at(x.places()[0])
    with pytest.raises(InputError):
        (x + np.nan).at(x.places()[0])
    assert x.__array_namespace__().sum(x, axis=-1, keepdims=True).shape[0] == 1


def test_the_first_entry_along_a_sort_is_a_letter_of_its_own() -> None:
    x = kinds.Indexed.letters("x", "n", "m")
    row, column = x[0], x[:, 0]
    (place,), (other,) = row.places(), column.places()
    assert [row.at(place).name, column.at(other).name, x[0, 0].at(()).name] == ["x[0, ·]", "x[·, 0]", "x[0, 0]"]
    for wrong in (lambda: x[1], lambda: x[-1], lambda: (x + x)[0], lambda: kinds.Indexed.letters("x", N * 2)[0]):
        with pytest.raises(Refused):
            wrong()


ROOT_A, ROOT_X = kinds.Indexed.letters("a", "n", positive=True), kinds.Indexed.letters("x", "n")
ROOT_XP = ROOT_X.xp
ROOT_U = ROOT_XP.sum(ROOT_X * ROOT_X)
ROOT_N = ROOT_XP.asarray(ROOT_X.shape[0])


def _is(left: kinds.Indexed, right: kinds.Indexed) -> bool:
    return proving.prove_equal(left + 0 * ROOT_X, right + 0 * ROOT_X).proved


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (ROOT_XP.sqrt(ROOT_A * ROOT_A), ROOT_A),
        (ROOT_XP.sqrt(ROOT_A * ROOT_A * ROOT_U), ROOT_A * ROOT_XP.sqrt(ROOT_U)),
        (ROOT_XP.sqrt(ROOT_U) * ROOT_XP.sqrt(ROOT_U), ROOT_U),
        (1 / ROOT_XP.sqrt(ROOT_U) / ROOT_XP.sqrt(ROOT_U), 1 / ROOT_U),
        (ROOT_XP.sqrt(ROOT_U) / ROOT_XP.sqrt(ROOT_U), ROOT_XP.asarray(1)),
        (ROOT_XP.sqrt(ROOT_U / ROOT_A), ROOT_XP.sqrt(ROOT_U) / ROOT_XP.sqrt(ROOT_A)),
        (ROOT_XP.sqrt(4 * ROOT_U), 2 * ROOT_XP.sqrt(ROOT_U)),
        (ROOT_XP.sum(ROOT_X / ROOT_XP.sqrt(ROOT_U) * ROOT_X / ROOT_XP.sqrt(ROOT_U)), ROOT_XP.asarray(1)),
        (ROOT_XP.sqrt(ROOT_N) * ROOT_XP.sqrt(ROOT_N), ROOT_N),
    ],
)
def test_equal(left: kinds.Indexed, right: kinds.Indexed):
    assert _is(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (ROOT_XP.sqrt(ROOT_X * ROOT_X), ROOT_X),
        (ROOT_XP.sqrt(ROOT_A * ROOT_U + 1), ROOT_XP.sqrt(ROOT_A) * ROOT_XP.sqrt(ROOT_U + 1)),
        (ROOT_XP.sqrt(ROOT_U) * ROOT_XP.sqrt(ROOT_U + 1), ROOT_U),
        (ROOT_XP.sqrt(ROOT_U) * ROOT_XP.sqrt(ROOT_U), ROOT_U * ROOT_U),
        (ROOT_XP.sqrt(ROOT_X * ROOT_U), ROOT_XP.sqrt(ROOT_X) * ROOT_XP.sqrt(ROOT_U)),
        (ROOT_XP.sqrt(2 * ROOT_U), 2 * ROOT_XP.sqrt(ROOT_U)),
        (ROOT_XP.sqrt(-ROOT_U), -ROOT_XP.sqrt(ROOT_U)),
    ],
)
def test_not_taken_as_equal(left: kinds.Indexed, right: kinds.Indexed):
    assert not _is(left, right)


def test_a_divisor_under_joined_roots_is_reported():
    proof = proving.prove_equal(ROOT_X / ROOT_XP.sqrt(ROOT_U) / ROOT_XP.sqrt(ROOT_U), ROOT_X / ROOT_U)
    assert proof.proved
    assert [d.relation for d in proof.demands] == [">"]
