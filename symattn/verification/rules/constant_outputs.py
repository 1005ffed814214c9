"""Outputs that ignore some or all inputs: zeros, a mean or one row of the values, an input returned as it is.

They are the plainest of all mistakes, so that they are tried first: in half formats, the bound also holds for others.
"""

from __future__ import annotations

from collections.abc import Iterator

from symattn.attention.spec import Attention
from symattn.bounds.mistake import At, Mistake, Wrong, in_steps


def mistakes(spec: Attention, names: frozenset[str]) -> Iterator[Mistake]:
    """Yield outputs that do not depend on queries and keys, judged in floats: no bound on weights holds for them."""
    zeros: Wrong = lambda at: at.right() * 0  # noqa: E731
    yield _in_floats("output", "the output is 0", "output", zeros)
    step = "attended" if any(s.name == "attended" for s in spec.pipeline(names)) else "output"
    noun = "the output" if step == "output" else "the output of each head"
    for words, wrong in _OF_VALUES.items():
        yield _in_floats("weights", f"{noun} is {words}", step, wrong)


def _in_floats(blamed: str, words: str, step: str, wrong: Wrong) -> Mistake:
    mistake = in_steps(blamed, words, False, **{step: wrong})
    return Mistake(mistake.step, mistake.cause, mistake.variant, in_floats=True)


def _mean_of_all_values(at: At) -> object:
    return _sum_of_all_values(at) / at.number(int(at.met.shape[-2]))


def _sum_of_all_values(at: At) -> object:
    """Return the sum of all values for each query: weights of 1, in the shape of the right output."""
    weights = at.first
    return (weights * 0 + 1) @ at.met


def _repeat_one_value_row(last: bool, at: At) -> object:
    """Return one row of the values for each query. Raises ``KeyError`` for one key, whose weight is 1."""
    keys = int(at.met.shape[-2])
    if keys == 1:
        raise KeyError("the only key has all the weight")
    at_row = slice(keys - 1, keys) if last else slice(0, 1)
    rows = at.met[..., at_row, :]
    return (at.first[..., :1] * 0 + 1) @ rows


def _own_row(at: At) -> object:
    """Return the value of each token. Raises ``KeyError`` unless there are as many queries as keys."""
    queries, keys = (int(n) for n in at.first.shape[-2:])
    if queries != keys or keys == 1:
        raise KeyError("queries and keys are not the same tokens")
    return at.right() * 0 + at.met


#: The words behind "the output is", and the output.
_OF_VALUES: dict[str, Wrong] = {
    "the mean of all values: queries and keys are ignored": _mean_of_all_values,
    "the sum of all values: queries and keys are ignored": _sum_of_all_values,
    "the value of the first key: queries and keys are ignored": lambda at: _repeat_one_value_row(
        False, at
    ),
    "the value of the last key: queries and keys are ignored": lambda at: _repeat_one_value_row(
        True, at
    ),
    "the values as they are: queries and keys are ignored": _own_row,
}
