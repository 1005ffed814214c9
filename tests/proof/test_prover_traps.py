"""What a prover of identities for all sizes may fall for. Each falsehood here was, or could be, taken for a proof."""

from collections.abc import Callable
from typing import Any

import pytest

from symattn import Attention, Grade, InputError, Refused, SymattnError, Undecided, functional, kinds, proving

pytestmark = pytest.mark.smoke

xp = kinds.Indexed.xp
exp, total = xp.exp, xp.sum
PI = kinds.Permutation("pi", "n")


def letters(name: str, shape: str, **options: Any) -> kinds.Indexed:
    return kinds.Indexed.letters(name, *[int(a) if a.isdigit() else a for a in shape.split()], **options)


x, y = letters("x", "n"), letters("y", "n")
tokens, square = letters("X", "n d"), letters("S", "n n")
n = kinds.Indexed.lift(x.shape[0])
rows = xp.arange(x.shape[0])[:, None]


def product_of_sums(f: Any, g: Any) -> Any:
    return total(f) * total(g)


def newton(x: Any) -> Any:
    p1, p2, p3 = (total(x**k) for k in (1, 2, 3))
    return p1**3 - 3 * p1 * p2 + 2 * p3


def outer(f: Any) -> Any:
    return f[:, None] + f[None, :]


def apart(f: Any, g: Any, h: Any) -> Any:
    return (f - g) * (g - h) * (h - f)


FALSE: dict[str, Callable[[], tuple[Any, Any]]] = {
    # 1: exponents that mix a free and a summed index coincide at n = 2
    "exponents coincide at n = 2": lambda: (exp(x * (total(x) - x)), exp(xp.sum(outer(x) * 0) + total(x**2) - x * x)),
    # 2: indices that vanish
    "S(e^x) S(e^-x) = n": lambda: (product_of_sums(exp(x), exp(-x)), n),
    # 3: zero at n = 1 and n = 2
    "Newton's e3": lambda: (newton(x), kinds.Indexed.lift(0)),
    # a sum in one exponent meets exponents without at n = 2 alone
    "e^Σx meets e^(x_i + x_j)": lambda: (2 * exp(total(x)), total(exp(outer(x))) - total(exp(2 * x))),
    # 8: one sort twice
    "P = Pᵀ for symmetric scores": lambda: (lambda s: (functional.softmax(s), functional.softmax(s).mT))(
        square + square.mT
    ),
    # 9: free indices that coincide
    "x_i y_j = x_j y_i": lambda: (x[:, None] * y[None, :], y[:, None] * x[None, :]),
    "x_i = 0 below the diagonal": lambda: (
        xp.where(rows > xp.arange(x.shape[0]), x[:, None], 0),
        kinds.Indexed.lift(0),
    ),
    "x_i = 0 on the diagonal": lambda: (xp.where(rows == xp.arange(x.shape[0]), x[:, None], 0), kinds.Indexed.lift(0)),
    # 14: permutations
    "x[π] = x": lambda: (x[PI], x),
    "causal attention is equivariant": lambda: (
        Attention(causal=True)(tokens[PI], tokens[PI], tokens[PI]),
        Attention(causal=True)(tokens, tokens, tokens)[PI],
    ),
    # axes that hold numbers: every entry counts
    "stack of other arrays": lambda: (xp.stack([x, y], axis=-1), xp.stack([x, x], axis=-1)),
    "the second of each pair": lambda: (letters("z", "n") * 1, xp.stack([letters("z", "n"), x], axis=-1)[..., 1]),
    # only for d = 1, only for n_q = n_k, only for equal tiles
    "the mean of the means of tiles": lambda: (
        xp.mean(xp.concat([x, letters("z", "m")], axis=0)),
        (xp.mean(x) + xp.mean(letters("z", "m"))) / 2,
    ),
    "the mean of the outputs of tiles": lambda: (
        functional.softmax(xp.concat([letters("s", "1 n"), letters("t", "1 m")], axis=-1)).sum(axis=0),
        xp.concat([functional.softmax(letters("s", "1 n")), functional.softmax(letters("t", "1 m"))], axis=-1).sum(
            axis=0
        )
        / 2,
    ),
    # 7: a maximum is a function of its argument
    "rsqrt(u)² = u": lambda: ((1 / xp.sqrt(total(x * x))) ** 2, total(x * x)),
    # positions are not letters of the user's
    "positions named like an array": lambda: (xp.arange("n") * x, letters("position_n", "n") * x),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_falsehood_is_not_proved(name: str) -> None:
    try:
        proof = proving.prove_equal(*FALSE[name]())
    except (Refused, Undecided):
        return
    assert not proof.proved, proof.cases


def shifted(a: Any, b: Any, t: Any) -> tuple[Any, Any]:
    return xp.max(a + t), xp.max(a) + t


TRUE: dict[str, tuple[Callable[[], tuple[Any, Any]], str]] = {
    "the same exponent": (lambda: (exp(x * (total(x) - x)), exp(total(x) * x - x * x)), "box"),
    "S(e^x) S(e^y)": (lambda: (product_of_sums(exp(x), exp(y)), total(exp(outer(x) - x[None, :] + y[None, :]))), ""),
    "Σ_ij e^(x_i - x_j)": (lambda: (product_of_sums(exp(x), exp(-x)), total(exp(x[:, None] - x[None, :]))), "box"),
    "n (n - 1)": (lambda: (n * (n - 1), n * n - n), "box"),
    "newton": (
        lambda: (newton(x), product_of_sums(x, x) * total(x) - 3 * product_of_sums(x, x**2) + 2 * total(x**3)),
        "",
    ),
    "equivariance": (
        lambda: (Attention()(tokens[PI], tokens[PI], tokens[PI]), Attention()(tokens, tokens, tokens)[PI]),
        "normal form",
    ),
    "pairs": (lambda: (xp.stack([x, y], axis=-1) + 0, xp.stack([x + 0, y], axis=-1)), "normal form"),
    "e^Σx": (lambda: (exp(total(x)) * exp(total(y)), exp(total(x + y))), "one size"),
}


@pytest.mark.parametrize("name", TRUE)
def test_the_truth_beside_it_is_proved(name: str) -> None:
    sides, how = TRUE[name]
    proof = proving.prove_equal(*sides())
    assert proof.proved, proof.why
    assert not how or how in {case.how for case in proof.cases}


def test_a_maximum_that_shifts_is_never_called_false() -> None:
    """max(x + u) = max(x) + u is true, and no identity of letters: undecided, or checked in numbers, never refuted."""
    statement = proving.Identity(
        proving.Declared({"x": "n", "u": ""}), lambda x, u: (x.max() + u, (x + u).max()), lambda x, u: (x.max(), u)
    )
    assert not proving.prove_equal(xp.max(x + letters("u", "")), xp.max(x) + letters("u", "")).proved
    assert statement.decide().evidence.grade in (Grade.PROVED, Grade.CHECKED, Grade.UNDECIDED)


def demands(proof: Any) -> list[str]:
    assert proof.proved, proof.why
    return [d.relation for d in proof.demands]


DIVISIONS: dict[str, tuple[Callable[[], tuple[Any, Any]], list[str]]] = {
    "softmax divides by a positive sum": (lambda: (functional.softmax(square), functional.softmax(square)), []),
    "a plain quotient": (lambda: (x / y * y, x), ["≠"]),
    "cancelled before anything is compared": (lambda: (x / y - x / y, 0 * x), ["≠"]),
    "0 / x": (lambda: (0 / x, 0 * x), ["≠"]),
    "inside a maximum": (lambda: (xp.max(x / y), xp.max(x / y)), ["≠"]),
    "a root below": (lambda: (x / xp.sqrt(y), x / xp.sqrt(y)), [">"]),
    "a root": (lambda: (xp.sqrt(y), xp.sqrt(y)), ["≥"]),
    "a root of squares": (lambda: (xp.sqrt(total(x * x)), xp.sqrt(total(x * x))), []),
    "a logarithm": (lambda: (exp(xp.log(x)), x), [">"]),
    "a logarithm of what is positive": (lambda: (exp(xp.log(total(exp(x)))), total(exp(x))), []),
    "tested for zero": (lambda: (1 / xp.where(x == 0, 1, x), 1 / x), ["≠"]),
    "declared positive": (lambda: (x / letters("p", "n", positive=True), x / letters("p", "n", positive=True)), []),
    "a masked row": (
        lambda: (
            functional.softmax(functional.forbid(square, letters("m", "n n"))),
            functional.softmax(functional.forbid(square, letters("m", "n n"))),
        ),
        ["≠"],
    ),
    "a causal row, which has its own key": (
        lambda: (
            functional.softmax(functional.forbid(square, functional.causal(square))),
            functional.softmax(functional.forbid(square, functional.causal(square))),
        ),
        [],
    ),
    "a row that may not attend to itself": (
        lambda: (lambda w: (w, w + 0))(functional.softmax(functional.forbid(square, ~xp.equal(rows, rows.mT)))),
        ["≠"],
    ),
    "by a permuted row": (lambda: ((1 / x)[PI], 1 / x[PI]), ["≠"]),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_what_is_divided_by_is_a_hypothesis(name: str) -> None:
    sides, relations = DIVISIONS[name]
    assert demands(proving.prove_equal(*sides())) == relations


ZERO_SOMEWHERE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "0/0 everywhere": lambda: (x / (y - y), 2 * x / (y - y)),
    "by a written zero": lambda: (x / (y * 0), x),
    "a first row without keys": lambda: (
        functional.softmax(
            functional.forbid(square, xp.arange(n_letters)[None, :] < xp.arange(n_letters)[:, None])
        ).sum(axis=-1),
        1 + 0 * x,
    ),
    "the diagonal": lambda: (1 / (x[:, None] - x[None, :]), 1 / (x[:, None] - x[None, :])),
}
n_letters = x.shape[0]


@pytest.mark.parametrize("name", ZERO_SOMEWHERE)
def test_hypotheses_that_cannot_be_met_prove_nothing(name: str) -> None:
    proof = proving.prove_equal(*ZERO_SOMEWHERE[name]())
    assert not proof.proved
    assert "division" in proof.why


m = letters("z", "m").shape[0]
BRANCHES: dict[str, Callable[[], Any]] = {
    "n = m": lambda: n_letters == m,
    "n != m": lambda: n_letters != m,
    "n = 1": lambda: n_letters == 1,
    "n > 1": lambda: n_letters > 1,
    "n <= m": lambda: n_letters <= m,
    "n - m": lambda: bool(n_letters - m),
    "shapes": lambda: x.shape == letters("z", "m").shape,
    "min": lambda: min(n_letters, m),
    "n odd": lambda: n_letters % 2,
    "n // 2": lambda: n_letters // 2,
    "as a number": lambda: range(n_letters),
    "as a float": lambda: float(n_letters),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_code_that_branches_on_a_size_is_refused(name: str) -> None:
    with pytest.raises((Undecided, Refused)):
        BRANCHES[name]()


def test_what_is_true_of_all_sizes_may_be_asked() -> None:
    assert n_letters == x.shape[0]
    assert n_letters != 0
    assert n_letters > 0
    assert n_letters < n_letters + 1
    assert n_letters * m == m * n_letters
    assert n_letters


REFUSED: dict[str, Callable[[], Any]] = {
    # 6: −∞ anywhere but in an exponential
    "−∞ + 1": lambda: prove_or_raise(functional.forbid(x, x) + 1, functional.forbid(x, x)),
    "−(−∞)": lambda: (-functional.forbid(x, x)).at(x.places()[0]),
    "−∞ times a letter": lambda: (functional.forbid(x, x) * y).at(x.places()[0]),
    "Σ −∞": lambda: total(functional.forbid(x, x)).at(()),
    "tanh −∞": lambda: xp.tanh(functional.forbid(x, x)).at(x.places()[0]),
    # 12: other denominators than 12
    "e^(x/5)": lambda: prove_or_raise(total(exp(x / 5)), total(exp(x / 5)) * 1 + total(y) * 0 + total(x - x)),
    # windows, gathers, strides, sizes as numbers
    "a window": lambda: (xp.arange(n_letters)[None, :] < xp.arange(n_letters)[:, None] - 1).at(square.places()[0]),
    "a gather": lambda: x[y],
    "a stride": lambda: x[::2],
    "a number in the middle": lambda: x[1],
    "a slice that is no block": lambda: x[1:],
    "a comparison of letters": lambda: (x < y).at(x.places()[0]),
    "a condition that is a number": lambda: xp.where(exp(x), x, y).at(x.places()[0]),
    # reshapes that lose elements
    "reshape of a sum": lambda: xp.reshape(letters("b", "h") * letters("z", "h"), (n_letters,)),
    "quotients in exponents": lambda: prove_or_raise(exp(1 / x) * 2, exp(1 / x) + exp(1 / x)),
    "a size in an exponent": lambda: prove_or_raise(exp(n * x) * 2, exp(n * x) + exp(n * x)),
    "a hidden size in an exponent": lambda: prove_or_raise(
        2 * exp(total((x + 1) * (y + 1))), exp(total((x + 1) * (y + 1))) * 2 + total(x) - total(x)
    ),
}


def prove_or_raise(left: Any, right: Any) -> None:
    proof = proving.prove_equal(left, right)
    assert not proof.proved
    if proof.open_at is None:
        raise Refused(proof.why)


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_method_cannot_treat_is_refused(name: str) -> None:
    with pytest.raises(SymattnError):
        REFUSED[name]()


WRONG_SHAPES: dict[str, Callable[[], Any]] = {
    "stack of two sorts": lambda: xp.stack([x, letters("z", "m")], axis=0),
    "concat of two sorts": lambda: xp.concat([tokens, letters("z", "m e")], axis=0),
    "sum of two sorts": lambda: x + letters("z", "m"),
    "product of two sorts": lambda: tokens @ letters("z", "m d"),
    "sides of two sorts": lambda: proving.prove_equal(x, letters("z", "m")),
    "twice and half as many pairs": lambda: proving.prove_equal(
        xp.concat([x, x], axis=0), xp.reshape(xp.stack([x, y], axis=1), (-1,))
    ),
    "four and twice three": lambda: letters("a", "4 d") + xp.reshape(letters("b", "2 3 d"), (6, "d")),
    "two sorts in the other order": lambda: (
        xp.concat([x, letters("z", "m")], axis=0) + xp.concat([letters("z", "m"), x], axis=0)
    ),
    "squeeze of a pair": lambda: xp.squeeze(xp.stack([x, y], axis=-1), axis=-1),
    "a permutation of another sort": lambda: letters("z", "m")[PI],
}


@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_axes_of_two_sorts_are_not_mixed(name: str) -> None:
    with pytest.raises(InputError):
        WRONG_SHAPES[name]()


def test_lengths_with_the_same_parts_in_the_same_order_fit() -> None:
    """4 = 2 + 2 = 2·2, and 2·n = n + n: the elements are the same."""
    two, four = letters("k", "2 d"), letters("q", "4 d")
    joined, product = xp.concat([two, two + 1], axis=0), xp.reshape(xp.stack([two, two + 1], axis=0), (4, "d"))
    assert proving.prove_equal(four * joined, four * product).proved
    assert not proving.prove_equal(four * joined, four * xp.reshape(xp.stack([two, two + 1], axis=1), (4, "d"))).proved
    halves, pairs = xp.concat([x, y], axis=0), xp.reshape(xp.stack([x, y], axis=0), (-1,))
    assert proving.prove_equal(halves, pairs).proved
    assert proving.prove_equal(halves * pairs, xp.concat([x * x, y * y], axis=0)).proved
    assert proving.prove_equal(four.mT @ joined, four.mT @ product).proved
    assert not proving.prove_equal(halves * pairs, xp.concat([x * x, y * x], axis=0)).proved


def test_a_permutation_behind_an_ellipsis_permutes_the_axis_that_it_stands_for() -> None:
    assert proving.prove_equal(tokens[..., PI, :], tokens[PI]).proved
    assert proving.prove_equal(tokens[None, PI][0], tokens[PI]).proved
    assert not proving.prove_equal(square[..., PI], square[PI]).proved
    with pytest.raises(Refused):
        square[PI, PI]


def test_permutations_compose() -> None:
    rho = kinds.Permutation("rho", "n")
    assert proving.prove_equal(tokens[PI][rho], tokens[PI][rho]).proved
    assert not proving.prove_equal(tokens[PI][rho], tokens[rho][PI]).proved
    assert proving.prove_equal(total(x[PI][rho]), total(x)).proved
    assert proving.prove_equal(functional.softmax(square[PI][:, PI]), functional.softmax(square)[PI][:, PI]).proved


def test_derivatives_bring_deltas_out_of_quotients() -> None:
    """10: Σ_j ∂p_j/∂s_i = 0 although each p_j has the same divisor."""
    s, g = letters("s", "n"), letters("g", "n")
    by_hand = functional.softmax(s) * (g - total(functional.softmax(s) * g))
    assert proving.prove_equal(
        proving.gradient(lambda s, g: total(functional.softmax(s) * g), "s", s=s, g=g), by_hand
    ).proved
    assert not proving.prove_equal(
        proving.gradient(lambda s, g: total(functional.softmax(s) * g), "s", s=s, g=g), functional.softmax(s) * g
    ).proved


def test_divisors_under_a_sum_need_rows() -> None:
    """4: Σ_j Σ_i P_ij g_i = Σ_i g_i needs Σ_j P_ij = 1 under a sum, for cross-attention."""
    s, g = letters("s", "n m"), letters("g", "n 1")
    proof = proving.prove_equal(total(total(functional.softmax(s) * g, axis=0)), total(g))
    assert [case.how for case in proof.cases] == ["rows"]
    assert proving.prove_equal(total(total(functional.softmax(s) * g, axis=0)), 2 * total(g)).proved is False
    weights = functional.softmax(s)
    twice = proving.prove_equal(total(weights**2 * g), total(g * total(weights * weights, axis=-1, keepdims=True)))
    assert twice.proved
    assert not proving.prove_equal(total(weights**2 * g), total(g)).proved


def test_rows_that_depend_on_each_other_stay_undecided() -> None:
    s, g = letters("s", "n n"), letters("g", "n 1")
    proof = proving.prove_equal(total(exp(s) / total(exp(s + s.mT), axis=-1, keepdims=True) * g), total(g))
    assert not proof.proved


def test_sizes_in_the_box_start_at_zero() -> None:
    """18: empty sums are 0, and a statement without letters is about sizes alone."""
    proof = proving.prove_equal(n * (n - 1), n * n - n)
    assert proof.proved
    assert [case.sizes for case in proof.cases] == [({"n": 0}, {"n": 1}, {"n": 2})]
    assert proving.prove_equal(n * (n - 1) * (n - 2), 0 * n).open_at == {"n": 3}


def test_a_cosine_and_a_sine_need_their_rule() -> None:
    """11: with c² + s² = 1 only the box will do, as 1 − s² may drop an index."""
    c, s, z = letters("c", "n"), letters("s", "n"), letters("z", "n")
    assert proving.prove_equal(total(c * c + s * s), n, (("c", "s"),)).proved
    assert {case.how for case in proving.prove_equal(total(c * c + s * s), n, (("c", "s"),)).cases} == {"box"}
    assert not proving.prove_equal(total(c * c + s * s), n).proved
    assert not proving.prove_equal(total(c * c + z * z), n, (("c", "s"),)).proved
    assert not proving.prove_equal(total(c * c) + total(s * s), kinds.Indexed.lift(1), (("c", "s"),)).proved


def test_a_test_for_zero_without_a_division_has_no_answer() -> None:
    assert "divides by them nowhere" in proving.prove_equal(xp.where(x == 0, 1, x), x).why


def test_two_permutations_of_one_bound_index_are_refused() -> None:
    def larger(n: str) -> Any:
        y = letters("y", n)
        return xp.max(x[kinds.Permutation("pi", n)] + y[kinds.Permutation("rho", n)], axis=-1, keepdims=True)

    assert "under two permutations" in proving.prove_equal(larger("n"), larger("n")).why
