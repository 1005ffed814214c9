"""Where the definition can be changed: its arrays by name, how each is blamed, and what its axes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from symattn.attention.spec import Attention
from symattn.bounds.mistake import own, step
from symattn.bounds.reference import Values, Variant

Operation = Callable[[Any], Any]


@dataclass(frozen=True)
class MistakePlace:
    """An array of the definition, in words; ``axes`` names what its axes hold, the last one first.

    ``step`` is blamed where its entries are wrong, ``order`` where they are right and stand in wrong places.
    """

    words: str
    step: str
    order: str
    axes: tuple[str, ...]
    changed: Callable[[Operation], Variant]

    def variant(self, operation: Operation) -> Variant:
        """The definition with the operation on this array."""
        return self.changed(operation)


def places(spec: Attention, names: frozenset[str]) -> Iterator[MistakePlace]:
    """The places that a specification has."""
    steps = {s.name: s for s in spec.pipeline(names)}
    heads = ("head",) if spec.heads > 1 else ()
    tokens, pairs = ("column", "token", *heads), ("key", "query", *heads)
    if spec.latent is None:
        yield MistakePlace("values", "values", "values", tokens, _in_values)
    if spec.score == "dot" and spec.latent is None:
        yield MistakePlace("queries", "score", "score", tokens, partial(_in_argument, "scores", 0))
        yield MistakePlace("keys", "score", "score", tokens, partial(_in_argument, "scores", 1))
    yield MistakePlace("scores", "score", "score", pairs, partial(_in_result, "scores"))
    yield MistakePlace("scaled scores", "score", "score", (), partial(_in_result, "scaled"))
    if "bias" in names and "biased" in steps:
        yield MistakePlace(
            "biases", "bias", "bias", pairs, partial(_in_argument, "biased", steps["biased"].of.index("bias"))
        )
    yield MistakePlace("weights", "normalize", "values", pairs, partial(_in_result, "weights"))
    if "attended" in steps:
        yield MistakePlace("outputs of the heads", "merge", "merge", tokens, partial(_in_result, "attended"))
    yield MistakePlace("outputs", "output", "merge" if heads else "output", tokens, partial(_in_result, "output"))


def _in_result(name: str, operation: Operation) -> Variant:
    return Variant({name: lambda spec, values: operation(own(spec, values, name))}, rows=name != "weights")


def _in_argument(name: str, place: int, operation: Operation) -> Variant:
    return Variant({name: partial(_argument, name, place, operation)})


def _argument(name: str, place: int, operation: Operation, spec: Attention, values: Values) -> Any:
    result = step(spec, values, name)
    return result.run(*(operation(values[n]) if i == place else values[n] for i, n in enumerate(result.of)))


def _in_values(operation: Operation) -> Variant:
    def changed(spec: Attention, values: Values) -> Any:
        return operation(values["v_shared" if "v_shared" in values else "v"])

    return Variant({"changed": changed}, values="changed")
