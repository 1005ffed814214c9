"""A reader of the terms that Coq is given, and what they are in numbers: written apart from what writes them."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Tree = Any  # a word, or a list of trees
COMPARES: dict[str, Callable[[int, int], bool]] = {
    "Equal": lambda i, j: i == j,
    "AtMost": lambda i, j: i <= j,
    "Below": lambda i, j: i < j,
}


def parsed(text: str) -> Tree:
    """Nested lists of the words in brackets of both kinds."""
    stack: list[list[Tree]] = [[]]
    for token in re.findall(r"[()\[\]]|[^\s()\[\];]+", text):
        if token in "([":
            stack.append([])
        elif token in ")]":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    (tree,) = stack[0]
    return tree


def number(x: Tree) -> int:
    return int(x[0] if isinstance(x, list) else x)


@dataclass(frozen=True)
class World:
    """Sizes by number, entries of arrays by number and indices, functions by number."""

    sizes: Mapping[int, int]
    entry: Callable[[int, Sequence[int]], float]
    function: Callable[[int, Sequence[float]], float]

    def value(self, x: Tree, env: tuple[tuple[int, int], ...] = ()) -> float:
        """What ``Meaning.v`` says that a term is."""
        head, *rest = x
        if head == "Num":
            return float(number(rest[0]))
        if head == "Size":
            return float(self.sizes[number(rest[0])])
        if head == "Letter":
            return self.entry(number(rest[0]), [env[int(i)][1] for i in rest[1]])
        if head == "Is":
            (s, i), (t, j) = (env[int(n)] for n in rest[1:])
            return float(s == t and COMPARES[rest[0]](i, j))
        if head == "Sum":
            sort = number(rest[0])
            return math.fsum(self.value(rest[1], ((sort, i), *env)) for i in range(self.sizes[sort]))
        if head == "Fun":
            return self.function(number(rest[0]), self.values(rest[1], env))
        parts = [self.value(y, env) for y in rest]
        if head == "Exp":
            return math.exp(parts[0])
        a, b = parts
        return {"Add": a + b, "Mul": a * b, "Div": a / b if b else math.nan}[head]

    def values(self, x: Tree, env: tuple[tuple[int, int], ...]) -> list[float]:
        """The list of what a function takes."""
        if x == "End":
            return []
        head, *rest = x
        if head == "One":
            return [self.value(rest[0], env), *self.values(rest[1], env)]
        sort = number(rest[0])
        return [*[self.value(rest[1], ((sort, i), *env)) for i in range(self.sizes[sort])], *self.values(rest[2], env)]


def _argmax(largest: float, x: float) -> float:
    return float(math.isclose(largest, x, rel_tol=1e-12, abs_tol=1e-300))


FUNCTIONS: dict[str, Callable[..., float]] = {
    "max": lambda *xs: max(xs),
    "masked": lambda allowed, x: x if allowed else -math.inf,
    "rsqrt": lambda x: x**-0.5,
    "sqrt": math.sqrt,
    "log": math.log,
    "tanh": math.tanh,
    "erf": math.erf,
    "sign": lambda x: float((x > 0) - (x < 0)),
    "argmax": _argmax,
    "norm": lambda *xs: math.sqrt(math.fsum(x * x for x in xs)),
}
