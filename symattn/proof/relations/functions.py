"""The named functions of formulas: softmax, attention, lse, max, …; attention's are defined in ``attention``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import neg
from typing import Any

from symattn.arrays.exact import Exact
from symattn.attention.softmax import softmax as _softmax
from symattn.document.errors import Refused
from symattn.proof.relations.part_values import Unread, Value, both, spread, summed

_ROWS = 6  # the most rows of a determinant, whose terms are all written out

Function = Callable[..., Any]
"""A function of values that returns a value or several."""


def softmax(s: Value) -> Value:
    """softmax over the last axis."""
    if not s.rank or s.even:
        raise Unread("softmax of a number")
    return Value(_softmax(s.array, stabilised=False), s.letters, s.rank, s.row)


def attending(attention: Callable[..., Any] | None = None) -> Function:
    """Return attention as a function of queries (a matrix, or one query as a row), keys and values, per free index."""

    def attend(q: Value, k: Value, v: Value) -> Value:
        from symattn.attention.spec import Attention  # most formulas have none

        if q.rank not in (1, 2) or k.rank != 2 or v.rank != 2:
            raise Unread("attention of what are no matrices")
        every = (*q.letters, *k.letters, *v.letters)
        letters = tuple(dict.fromkeys(every))
        queries, keys, values = (spread(x, letters, x.rank) for x in (q, k, v))
        one = q.rank == 1
        output = (attention or Attention(stabilised=False))(
            queries[..., None, :] if one else queries, keys, values
        )
        return Value(output[..., 0, :] if one else output, letters, q.rank, one)

    return attend


def diag(x: Value) -> Value:
    """Return the matrix with x on its diagonal."""
    if x.rank != 1 or x.letters:
        raise Unread("diag of what is not a vector")
    xp = x.array.__array_namespace__()
    places = xp.arange(x.array.shape[0])
    same = places[:, None] == places[None, :]
    return Value(xp.where(same, x.array[:, None], 0), (), 2)


def log_sum_exp(s: Value) -> Value:
    """log Σ e^s over the last axis."""
    if not s.rank:
        raise Unread("lse of a number")
    xp = s.array.__array_namespace__()
    total = xp.sum(xp.exp(s.array), axis=-1)
    return Value(xp.log(total), s.letters, s.rank - 1)


def largest(*arguments: Value) -> Value:
    """Return the largest entry, or the larger of two numbers."""
    if len(arguments) == 1 and arguments[0].rank:
        x = Value(
            arguments[0].array.__array_namespace__().max(arguments[0].array, axis=-1),
            arguments[0].letters,
            arguments[0].rank - 1,
        )
        # The axes are reduced one after another.
        return largest(x) if x.rank else x
    if len(arguments) == 2 and not any(x.rank for x in arguments):
        return both(*arguments, lambda a, b: a.__array_namespace__().maximum(a, b))
    raise Unread("max of these")


def entrywise(work: Callable[[Any, Any], object]) -> Function:
    """Return ``work`` as a function of a value, applied to every entry."""

    def apply(x: Value) -> Value:
        changed = work(x.array.__array_namespace__(), x.array)
        return Value(changed, x.letters, x.rank, x.row)

    return apply


def smallest(*arguments: Value) -> Value:
    """Return the smallest entry, or the smaller of two numbers."""
    return largest(*(x.on(neg) for x in arguments)).on(neg)


def entropy(p: Value) -> Value:
    """H(p) = −Σ p log p, for nonzero weights."""
    return _added_up(p, p, lambda a, _: -a * _logarithm_in_namespace(a))


def divergence(p: Value, q: Value) -> Value:
    """KL(p ‖ q) = Σ p (log p − log q), for nonzero weights."""
    return _added_up(
        p, q, lambda a, b: a * (_logarithm_in_namespace(a) - _logarithm_in_namespace(b))
    )


def variation(p: Value, q: Value) -> Value:
    """TV(p, q) = ½ Σ |p − q|."""
    return _added_up(p, q, lambda a, b: a.__array_namespace__().maximum(a - b, b - a) / 2)


def _logarithm_in_namespace(a: Any) -> Any:
    return a.__array_namespace__().log(a)


def _added_up(x: Value, y: Value, work: Callable[[Any, Any], object]) -> Value:
    if not x.rank == y.rank == 1:
        raise Unread("this is a function of vectors")
    return summed(both(x, y, work))


def determinant(x: Value) -> Value:
    """det of a matrix, or of entries with two indices: Σ_π sign(π) Π x_iπ(i), n! terms. Refuses more than 6 rows."""
    axes_of_x = x.rank + len(x.letters)
    if axes_of_x != 2 or x.array.shape[0] != x.array.shape[1]:
        raise Unread("the determinant of what is not a square matrix")
    n, result = int(x.array.shape[0]), 0
    if n > _ROWS:
        raise Refused(f"the determinant of a matrix of {n} rows, more than {_ROWS}")
    rows = [[x.array[i, j] for j in range(n)] for i in range(n)]
    for term, odd in _yield_products_of_permutations(rows, range(n)):
        result = result - term if odd else result + term
    return Value(result)


def _yield_products_of_permutations(
    rows: Sequence[Sequence[Any]], columns: Sequence[int], before: Any = None, odd: bool = False
) -> Iterator[tuple[Any, bool]]:
    """Yield Π x_iπ(i) for each permutation π of the columns in order, and whether π is odd.

    ``before`` is the product of the rows above, which all permutations that begin alike share.
    """
    if not rows:
        yield before, odd
        return
    for place, column in enumerate(columns):
        entry = rows[0][column]
        product = entry if before is None else before * entry
        # So many smaller columns stand further below: each is an inversion.
        is_odd = odd ^ (place % 2 == 1)
        others = [c for c in columns if c != column]
        yield from _yield_products_of_permutations(rows[1:], others, product, is_odd)


def rank(x: Value) -> Value:
    """Return the rank of a matrix of exact numbers."""
    if x.rank != 2 or x.letters:
        raise Unread("the rank of what is not a matrix")
    if not isinstance(x.array, Exact):
        raise Refused("the rank of a matrix whose numbers are not exact")
    return Value(x.array.xp.asarray(rank_of(x.array)))


def rank_of(x: Any) -> int:
    """Return the number of nonzero rows of a matrix in echelon form."""
    rest, result = [list(r) for r in x.tolist()], 0
    for column in range(len(rest[0])):
        # A pivot in this column; without one the column adds no rank.
        pivot = next((r for r in rest if r[column] != 0), None)
        if pivot is not None:
            result += 1
            rest.remove(pivot)
            rest = [
                [a - b * (r[column] / pivot[column]) for a, b in zip(r, pivot, strict=True)]
                for r in rest
            ]
    return result


ENTRYWISE: Mapping[str, Callable[[Any, Any], Any]] = {
    "log": lambda xp, a: xp.log(a),
    "log₂": lambda xp, a: xp.log(a) / xp.log(xp.asarray(2)),
    "sign": lambda xp, a: xp.sign(a),
    "exp": lambda xp, a: xp.exp(a),
    "tanh": lambda xp, a: xp.tanh(a),
    "erf": lambda xp, a: xp.erf(a),
    "cos": lambda xp, a: xp.cos(a),
    "sin": lambda xp, a: xp.sin(a),
    "sigmoid": lambda xp, a: 1 / (1 + xp.exp(-a)),
    "relu": lambda xp, a: xp.maximum(a, xp.asarray(0)),
    "sech": lambda xp, a: 2 / (xp.exp(a) + xp.exp(-a)),
}
"""Functions of a number: word → function of the namespace and an array."""

FUNCTIONS: Mapping[str, Function] = {
    "softmax": softmax,
    "attention": attending(),
    "Attention": attending(),
    "diag": diag,
    "lse": log_sum_exp,
    "max": largest,
    "min": smallest,
    "det": determinant,
    "rank": rank,
    "H": entropy,
    "KL": divergence,
    "TV": variation,
    **{word: entrywise(work) for word, work in ENTRYWISE.items()},
}
