"""The ten tasks, each a function of the generator that draws its numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from symattn.attention.positions.angles import rotate_interleaved
from symattn.attention.scores import dot_scores, scale_by_root
from symattn.attention.sinks import sink_weights
from symattn.attention.softmax import softmax
from symattn.attention.streaming.states import merge, tile_state
from symattn.derivations.exactly import exact
from symattn.derivations.exercises.task import Task
from symattn.derivations.letters import k, q, s
from symattn.derivations.rope import ANGLE, turns
from symattn.document import notation as nt
from symattn.document.model import Text
from symattn.document.notation import Fence, Name, Node, Product, Root, Transposed, call, equals, name

Draw = np.random.Generator
_D_K = name("d", "k")
_A, _O = name("a", role="weight"), name("o", role="output")


def _whole(rng: Draw, low: int, high: int, *shape: int) -> list[Any]:
    """Whole numbers from ``low`` to ``high``, as nested lists."""
    found: list[Any] = rng.integers(low, high + 1, shape).tolist()
    return found


def _scores(rng: Draw, n: int = 3) -> list[Any]:
    """Scores from 0 to 3 that are not all equal, so that exponents stay readable."""
    while len(set(found := _whole(rng, 0, 3, n))) < 2:
        continue
    return found


def _given(*pairs: tuple[Node, Any]) -> Text:
    """``q = (1, 2) and k = (0, 1)``."""
    parts: list[Any] = []
    for letter, value in pairs:
        rows = value if isinstance(value[0], list) else [value]
        parts += [", ", equals(letter, nt.matrix(rows))]
    return tuple(parts[1:])


def _sum(terms: Any) -> Any:
    return reduce(lambda a, b: a + b, terms)


def scaled(rng: Draw) -> Task:
    """q·k/√d_k for d_k = 4."""
    a, b = _whole(rng, -2, 3, 4), _whole(rng, -2, 3, 4)
    left, right = exact([a]), exact([b])
    return Task(
        "scaling", "A scaled score", (*_given((q(), a), (k(), b)), ". What is the scaled score?"),
        Product((q(), k()), "·") / Root(_D_K), scale_by_root(dot_scores(left, right), left),
        exact([[sum(x * y for x, y in zip(a, b, strict=True))]]) / 2, "entry by entry, divided by 2",
    )  # fmt: skip


def variance(rng: Draw) -> Task:
    """Var(q·k) = d_k for entries ±1, by going through all of them."""
    width = int(rng.integers(2, 5))
    signs = [[1 if i >> bit & 1 else -1 for bit in range(width)] for i in range(2**width)]
    every = [sum(x * y for x, y in zip(a, b, strict=True)) for a in signs for b in signs]
    mean_of_squares = exact([[sum(x * x for x in every)]]) / len(every)
    question = (
        "Every entry of ", q(), " and ", k(), " is 1 or −1, each with probability 1/2 and independent of the others, ",
        "and ", equals(_D_K, width), ". What is the variance of the score?",
    )  # fmt: skip
    return Task(
        "scaling", "The variance of a score", question, call("Var", Product((q(), k()), "·")), exact([[width]]),
        mean_of_squares, f"as the mean over all {len(every)} pairs", ("The mean is 0, and variances add up.",),
    )  # fmt: skip


def shift(rng: Draw) -> Task:
    """softmax(s + c) = softmax(s)."""
    row, by = _scores(rng), int(rng.integers(10, 100))
    moved = [x + by for x in row]
    return Task(
        "shift", "Softmax of large scores", (*_given((s(), moved)), ". What are the weights?"), call("softmax", s()),
        softmax(exact([row])), softmax(exact([moved])), "with the scores as they are given",
        (f"Only differences matter: subtract {by} from each.",),
    )  # fmt: skip


def jacobian(rng: Draw) -> Task:
    """diag(p) − p pᵀ for weights that are fractions."""
    parts = _whole(rng, 1, 4, 3)
    p = exact([parts]) / sum(parts)
    row = p.tolist()[0]
    entries = exact([[row[i] * (int(i == j) - row[j]) for j in range(3)] for i in range(3)])
    shown = nt.matrix([[x.notation() for x in row]])
    letter = Name("p", role="weight")
    question = ("The weights are ", equals(letter, shown), ". What are their derivatives by the scores?")
    diagonal = exact([[row[i] if i == j else 0 for j in range(3)] for i in range(3)])
    return Task(
        "jacobian", "The derivatives of softmax", question, call("diag", letter) - letter * Transposed(letter),
        diagonal - p.mT @ p, entries, "entry by entry",
    )  # fmt: skip


def output(rng: Draw) -> Task:
    """One query, two keys, two values."""
    query, keys, values = _whole(rng, 0, 1, 2), _whole(rng, 0, 2, 2, 2), _whole(rng, -2, 4, 2, 2)
    weights = softmax(dot_scores(exact([query]), exact(keys))).tolist()[0]
    by_hand = exact([[_sum(w * v[c] for w, v in zip(weights, values, strict=True)) for c in range(2)]])
    letters = ((q(), query), (name("K", role="key"), keys), (name("V", role="value"), values))
    return Task(
        "matrix-form", "One query, two keys", (*_given(*letters), ", without scaling. What is the output?"), _O,
        softmax(dot_scores(exact([query]), exact(keys))) @ exact(values), by_hand, "value by value",
    )  # fmt: skip


def permuted(rng: Draw) -> Task:
    """The weights of permuted keys are permuted weights."""
    row = _scores(rng)
    order = [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]][int(rng.integers(5))]
    weights = softmax(exact([row])).tolist()[0]
    question = (
        *_given((s(), row)), " are the scores of keys 1, 2, 3. The keys come as ",
        f"{', '.join(str(i + 1) for i in order)} instead. What are the weights, in the new order?",
    )  # fmt: skip
    return Task(
        "equivariance", "Keys in another order", question, _A, softmax(exact([[row[i] for i in order]])),
        exact([[weights[i] for i in order]]), "as the old weights in the new order",
    )  # fmt: skip


def tiles(rng: Draw) -> Task:
    """The sum of exponentials of two tiles, less the common maximum."""
    first, second = _scores(rng, 2), [x + 2 for x in _scores(rng, 2)]
    row, values = exact([first + second]), exact([[1]] * 4)
    parts = tile_state(exact([first]), exact([[1]] * 2)), tile_state(exact([second]), exact([[1]] * 2))
    question = (
        "Scores come in two tiles, ", nt.matrix([first]), " and ", nt.matrix([second]), ". With ", Name("m"),
        " the largest of all, what is the sum of ", Name("e") ** (s("j") - Name("m")), " that the tiles merge to?",
    )  # fmt: skip
    return Task(
        "online-softmax", "Two tiles", question, Name("ℓ"), merge(*parts).normaliser,
        tile_state(row, values).normaliser, "over all four scores at once",
        ("The sum of the first tile is multiplied by ", Name("e") ** nt.node(max(first) - max(first + second)), "."),
    )  # fmt: skip


def lookup(rng: Draw) -> Task:
    """The limit of softmax(βs): equal shares of the largest scores."""
    row = _scores(rng, 4)
    ties = [int(x == max(row)) for x in row]
    limit = exact([ties]) / sum(ties)
    question = (*_given((s(), row)), ". What do the weights of ", Name("β") * s(), " tend to as ", Name("β"), " grows?")
    beside = softmax(exact([[0] * sum(ties)])).tolist()[0][0]
    return Task(
        "lookup", "Sharp attention", question, _A, limit,
        exact([[beside if tie else 0 for tie in ties]]), "as softmax over the largest scores alone",
    )  # fmt: skip


def sink(rng: Draw) -> Task:
    """A sink is one more key of value 0."""
    row, z = _scores(rng, 2), int(rng.integers(0, 3))
    question = (*_given((s(), row)), " and a sink of score ", nt.node(z), ". What are the weights of the two keys?")
    return Task(
        "sinks", "A sink", question, _A, sink_weights(exact([row]), exact([[z]])),
        softmax(exact([[*row, z]]))[:, :2], "with the sink as a third key",
    )  # fmt: skip


def rotated(rng: Draw) -> Task:
    """A score at positions (m, n) from that at (0, n − m)."""
    query, key, place = _whole(rng, 1, 3, 2), _whole(rng, 1, 3, 2), 1  # that of the query; the key's is the next
    angles = turns()
    here = rotate_interleaved(exact([query]), *angles[place]), rotate_interleaved(exact([key]), *angles[place + 1])
    there = rotate_interleaved(exact([query]), *angles[0]), rotate_interleaved(exact([key]), *angles[1])
    question = (
        *_given((q(), query), (k(), key)), f" at the positions {place + 17} and {place + 18}. A position turns by the ",
        "angle of cosine ", nt.Number(ANGLE[0]), " and sine ", nt.Number(ANGLE[1]), ". What is the score?",
    )  # fmt: skip
    asked = Product((Fence("round", name("R", "m") * q()), Fence("round", name("R", "n") * k())), "·")
    return Task(
        "rope", "Rotary positions", question, asked, dot_scores(*there), dot_scores(*here),
        f"at the positions {place} and {place + 1}", ("Only the distance matters, so put the query at 0.",),
    )  # fmt: skip


TASKS: tuple[Callable[[Draw], Task], ...] = (
    scaled, variance, shift, jacobian, output, permuted, tiles, lookup, sink, rotated,
)  # fmt: skip
