"""Hypothesis strategies that draw inputs of attention.

``qkv(Attention(causal=True), dtype="float16")`` draws ``{"q": …, "k": …, "v": …}``, and all other inputs of the
specification, as arrays of numbers that the dtype represents exactly. Examples shrink to few tokens and columns,
entries to 0 and small integers, masks to open ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from symattn.arrays.precision import Precision
from symattn.attention.inputs import accepted, needed
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Argument, Convention, Framework
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker, Sizes
from symattn.document.errors import InputError
from symattn.document.keywords import answering, format_name
from symattn.programs import frameworks

__all__ = ["qkv"]

Size = int | tuple[int, int] | None
_TOKENS, _WIDTH = 12, 8  # the default largest sizes


def __dir__() -> list[str]:
    return __all__


@answering
def qkv(
    spec: Attention | None = None,
    *,
    n_q: Size = None,
    n_k: Size = None,
    d_k: Size = None,
    d_v: Size = None,
    batch: Sequence[int] = (),
    dtype: str = "float32",
    domain: Domain | None = None,
    framework: Framework = "numpy",
) -> st.SearchStrategy[dict[str, Any]]:
    """Draw inputs of a specification by name: q (…, n_q, d_k), k (…, n_k, d_k), v (…, n_k, d_v), masks, sinks, ….

    A size is a number, or a pair: the smallest and the largest. ``batch`` are leading axes of q, k and v, before the
    axis of heads if there are several. Sizes that the specification or the domain does not permit are changed to the
    nearest permitted ones: no more queries than keys under a causal mask. Scores stay within
    ``domain.max_abs_score``. Raises ``InputError`` for invalid sizes and unknown dtypes.

    >>> from hypothesis import find
    >>> example = find(qkv(), lambda inputs: inputs["v"].max() > 1)
    >>> {name: array.tolist() for name, array in example.items()}
    {'q': [[0.0]], 'k': [[0.0]], 'v': [[2.0]]}
    """
    spec, domain = spec or Attention(), domain or Domain()
    if {"w_in", "w_dkv"} & accepted(spec):
        raise InputError("a specification whose projections need tokens has no q, k, v")
    names = ("q", "k", "v", *needed(spec, ()))
    convention = Convention(
        tuple(Argument(n, n, required=True) for n in names), dtype=format_name(dtype), layout="nd"
    )
    maker = Maker(spec, convention, Precision.of(dtype), domain)
    largest = {"n_q": _TOKENS, "n_k": _TOKENS, "d_k": _WIDTH, "d_v": _WIDTH}
    result = {"n_q": n_q, "n_k": n_k, "d_k": d_k, "d_v": d_v}
    sizes = st.builds(
        partial(Sizes, batch=tuple(batch)),
        **{n: _make_size_strategy(n, s, largest[n]) for n, s in result.items()},
    )
    return st.composite(_draw_attention_inputs)(maker, sizes, frameworks.arrays(framework))


def _make_size_strategy(name: str, size: Size, largest: int) -> st.SearchStrategy[int]:
    low, high = size if isinstance(size, tuple) else (1, largest) if size is None else (size, size)
    if not 1 <= low <= high:
        raise InputError(
            f"{name} is {size}; give a number from 1 on, or the smallest and the largest"
        )
    return st.integers(low, high)


def _draw_attention_inputs(
    draw: st.DrawFn, maker: Maker, sizes: st.SearchStrategy[Sizes], arrays: frameworks.Arrays
) -> dict[str, Any]:
    elements = _make_element_strategy(maker.precision)

    def entries(name: str, shape: tuple[int, ...]) -> np.ndarray:
        outcome: np.ndarray = draw(
            arrays_of.arrays(np.float64, shape, elements=elements, fill=st.just(0.0))
        )
        return outcome

    result = maker.make(draw(sizes), entries, _Chance(draw))  # type: ignore[arg-type]
    return {name: arrays.make(array, maker.precision.input.name) for name, array in result.items()}


def _make_element_strategy(precision: Precision) -> st.SearchStrategy[float]:
    """Return small integers first, to which examples shrink; then numbers of the format of all sizes up to 2⁴."""
    wide = st.floats(-16.0, 16.0).map(lambda x: float(precision.input.rounded(x)))
    return st.one_of(st.integers(-4, 4).map(float), st.integers(-4, 4).map(float), wide)


@dataclass(frozen=True)
class _Chance:
    """A random generator that draws by Hypothesis, with those methods of NumPy's that ``Maker`` uses.

    A number of [0, 1) is drawn as 0 or 0.99, so that masks of simple examples are open.
    """

    draw: st.DrawFn

    def random(self, shape: object = ()) -> Any:
        """Draw 0 or 0.99."""
        return self._draw_chance_array(st.sampled_from((0.0, 0.99)), 0.0, shape, float)

    def integers(self, low: int, high: int | None = None, shape: object = ()) -> Any:
        """Draw integers in [``low``, ``high``), or in [0, ``low``); they shrink to 0 if that is permitted."""
        low, high = (0, low) if high is None else (low, high)
        return self._draw_chance_array(
            st.integers(low, high - 1), 0 if low <= 0 < high else low, shape, np.int64
        )

    def choice(self, a: Any) -> Any:
        """Draw one of the entries."""
        return a[self.draw(st.integers(0, len(a) - 1))]

    def permutation(self, n: int) -> np.ndarray:
        """Draw a permutation of 0, …, n − 1."""
        return np.array(self.draw(st.permutations(range(n))), dtype=np.int64)

    def _draw_chance_array(
        self, entry: st.SearchStrategy[Any], plain: Any, shape: Any, dtype: Any
    ) -> Any:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        drawn = (
            entry
            if not shape
            else arrays_of.arrays(dtype, shape, elements=entry, fill=st.just(plain))
        )
        return self.draw(drawn)
