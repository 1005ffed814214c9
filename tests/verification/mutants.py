"""Mutants by rule: a definition, a place in it, and what is done to the array there.

A mutant is drawn from its number alone: a specification (every variant of ``symattn.attention.variants``, and every
definition), a format, a place (an input, what a step makes, an output, a field) and an operator. It is computed in
float64 on NumPy and rounded to the format at the end, as somebody's function is.
"""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from symattn import (
    Attention,
    Block,
    Cached,
    CannotRun,
    Domain,
    Gradient,
    LayerNorm,
    LinearAttention,
    RMSNorm,
    Rotary,
    SymattnError,
    verify,
)
from symattn.attention.variants import VARIANTS
from symattn.bounds.reference import Variant, changed, trace
from symattn.programs.specifications import definitions_of

Array = Any
Operator = Callable[[Array], Array]
DTYPES = ("float32", "float64", "float16", "bfloat16")
DOMAINS = (Domain(max_tokens=17, max_width=8), Domain(max_tokens=40, max_width=20), Domain(max_tokens=17, square=True))
DEFINITIONS: Mapping[str, Any] = {
    "RMSNorm": RMSNorm(),
    "LayerNorm": LayerNorm(eps=0.5),
    "Rotary": Rotary(),
    "Rotary in part": Rotary(width=4),
    "lse": Attention(lse=True),
    "lse, two heads": Attention(lse=True, heads=2, kv_heads=1, causal=True),
    "gradient": Gradient(Attention(causal=True)),
    "gradient, two heads": Gradient(Attention(heads=2, softcap=5)),
    "cached": Cached(attention=Attention(heads=2, causal=True)),
    "linear": LinearAttention(),
    "Block": Block(attention=Attention()),
    "Block, two heads": Block(attention=Attention(heads=2)),
    "Block, gated": Block(attention=Attention(causal=True), norm="rms", activation="silu", gated=True),
}


@dataclass(frozen=True)
class Mutant:
    """A function that computes a specification with one mistake; ``name`` says which."""

    name: str
    function: Callable[..., Any]
    spec: Any
    precision: str
    domain: Domain

    def verified(self, **told: Any) -> str:
        """The verdict in words; what symattn may refuse is told as such."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                report = verify(self.function, self.spec, precision=self.precision, domain=self.domain, **told)
            except CannotRun:
                return "cannot be run"
        report.document(True)
        return f"{report.verdict.value}: {report.faults[0].message}" if report.faults else report.verdict.value


# -- operators ---------------------------------------------------------------------------------------------------------
def _at(a: Array, axis: int, index: Any, value: Any) -> Array:
    found = np.array(a)
    if found.ndim and found.shape[axis]:
        np.moveaxis(found, axis, 0)[index] = value
    return found


def _tiles(a: Array, axis: int, width: int) -> Array:
    """Zeros where no whole tile is."""
    return _at(a, axis, slice(a.shape[axis] // width * width, None), 0) if a.ndim else a


def operators() -> Mapping[str, Operator]:
    """What may happen to an array of numbers."""
    found: dict[str, Operator] = {
        "negated": lambda a: -a,
        "reciprocal": lambda a: 1 / a,
        "of zeros": lambda a: a * 0,
        "of ones": lambda a: a * 0 + 1,
        "without signs": np.abs,
        "cut at 0": lambda a: np.maximum(a, 0),
        "doubled": lambda a: 2 * a,
        "halved": lambda a: a / 2,
        "1 % larger": lambda a: 1.01 * a,
        "squared": lambda a: a * a,
        "root": np.sqrt,
        "logarithm": np.log,
        "exponential": np.exp,
        "off by 1": lambda a: a + 1,
        "off by 1e-3": lambda a: a + 1e-3,
        "times 1e30": lambda a: a * 1e30,
        "times 1e-30": lambda a: a * 1e-30,
        "whole numbers": np.rint,
        "in half precision": lambda a: a.astype(np.float16).astype(np.float64),
        "NaN": lambda a: a * np.nan,
        "infinite": lambda a: a * 0 + np.inf,
        "NaN at 0": lambda a: np.where(a == 0, np.nan, a),
        "with an axis in front": lambda a: a[None],
        "with an axis behind": lambda a: a[..., None],
        "flat": np.ravel,
        "summed": lambda a: a.sum(),
        "empty": lambda a: a[:0],
        "turned": lambda a: np.swapaxes(a, -1, -2) if a.ndim > 1 else a,
        "sorted": lambda a: np.sort(a) if a.ndim else a,
    }
    for axis in (-1, -2, -3):
        place = f"along axis {axis}"

        def along(change: Callable[[Array, int], Array], axis: int = axis) -> Operator:
            return lambda a: change(a, axis) if a.ndim >= -axis else a

        found |= {
            f"flipped {place}": along(lambda a, x: np.flip(a, x)),
            f"rolled {place}": along(lambda a, x: np.roll(a, 1, x)),
            f"the first everywhere {place}": along(lambda a, x: np.take(a, [0] * a.shape[x], x)),
            f"the mean everywhere {place}": along(lambda a, x: a * 0 + a.mean(x, keepdims=True)),
            f"without the last {place}": along(lambda a, x: np.delete(a, -1, x)),
            f"the last lost {place}": along(lambda a, x: _at(a, x, -1, 0)),
            f"the first lost {place}": along(lambda a, x: _at(a, x, 0, 0)),
            f"the last NaN {place}": along(lambda a, x: _at(a, x, -1, np.nan)),
            f"beyond 4 lost {place}": along(lambda a, x: _at(a, x, slice(4, None), 0)),
            f"whole tiles of 16 {place}": along(lambda a, x: _tiles(a, x, 16)),
            f"whole tiles of 4 {place}": along(lambda a, x: _tiles(a, x, 4)),
            f"twice {place}": along(lambda a, x: np.concatenate([a, a], x)),
            f"summed {place}": along(lambda a, x: a.sum(x)),
            f"normalised {place}": along(lambda a, x: a / a.sum(x, keepdims=True)),
            f"centred {place}": along(lambda a, x: a - a.mean(x, keepdims=True)),
        }
    return found


#: What a call may do besides: of what it returns, and of its arguments by name.
CONDUCT: Mapping[str, Callable[[Array, Mapping[str, Array]], Any]] = {
    "None": lambda y, given: None,
    "a list": lambda y, given: y.tolist(),
    "complex": lambda y, given: y + 1j,
    "objects": lambda y, given: y.astype(object),
    "whole numbers": lambda y, given: np.nan_to_num(y).astype(np.int64),
    "booleans": lambda y, given: y > 0,
    "float16": lambda y, given: y.astype(np.float16),
    "a number": lambda y, given: float(y.sum()),
    "an input": lambda y, given: next(iter(given.values())),
    "None for some": lambda y, given: None if y.size > 9 else y,
    "a tuple": lambda y, given: (y, None, "x"),
    "an empty tuple": lambda y, given: (),
    "an error for some": lambda y, given: y if y.size < 9 else np.zeros(3) @ np.zeros(4),
    "a refusal for some": lambda y, given: y if y.size < 9 else _refuse(),
    "an exit for some": lambda y, given: y if y.size < 9 else sys.exit(3),
    "changes its input": lambda y, given: (next(iter(given.values())).fill(0), y)[1],
}


def _refuse() -> Any:
    raise ValueError("not of such a size")


# -- mutants -----------------------------------------------------------------------------------------------------------
def mutant(number: int) -> Mutant:
    """The mutant of this number."""
    rng = np.random.default_rng((7, number))
    precision = str(rng.choice(DTYPES, p=(0.55, 0.15, 0.15, 0.15)))
    domain = DOMAINS[int(rng.integers(len(DOMAINS)))]
    if rng.random() < 0.65:
        name = list(VARIANTS)[int(rng.integers(len(VARIANTS)))]
        spec, names = VARIANTS[name].spec, VARIANTS[name].names
        spec = replace(spec, lse=False)
        domain = replace(domain, square=domain.square and "y" not in names)
        what, compute = _of_attention(spec, names, rng)
    else:
        name = list(DEFINITIONS)[int(rng.integers(len(DEFINITIONS)))]
        spec, domain = DEFINITIONS[name], Domain(max_tokens=domain.max_tokens, max_width=domain.max_width)
        what, names, compute = _of_definition(spec, rng)
    return Mutant(f"{number}: {name}, {precision}: {what}", as_function(names, compute), spec, precision, domain)


def right(name: str) -> Callable[..., Any]:
    """The definition of a variant itself, as a function of its inputs."""
    spec = replace(VARIANTS[name].spec, lse=False)
    return as_function(VARIANTS[name].names, lambda **given: np.asarray(trace(spec, given)["output"]))


def _pick(rng: np.random.Generator, among: Any) -> Any:
    return list(among)[int(rng.integers(len(list(among))))]


def _of_attention(spec: Attention, names: tuple[str, ...], rng: np.random.Generator) -> tuple[str, Any]:
    steps = [s.name for s in spec.pipeline(frozenset(names))]
    word = _pick(rng, operators())
    operator = operators()[word]
    match _pick(rng, ("input", "step", "step", "exchange", "field", "conduct")):
        case "input":
            name = _pick(rng, names)
            return f"{name} {word}", lambda **given: trace(spec, {**given, name: _applied(operator, given[name])})[
                "output"
            ]
        case "step":
            name = _pick(rng, steps)
            step = next(s for s in spec.pipeline(frozenset(names)) if s.name == name)

            def change(spec: Attention, values: dict[str, Any]) -> Any:
                return _applied(operator, step.run(*[values[n] for n in step.of]))

            return f"{name} {word}", lambda **given: trace(spec, given, Variant({name: change}))["output"]
        case "exchange":
            one, other = _pick(rng, names), _pick(rng, names)
            return f"{one} in the place of {other}", lambda **given: trace(spec, {**given, other: given[one]})["output"]
        case "field":
            words, wrong = _pick(rng, list(_fields(spec)) or [("nothing", spec)])
            return words, lambda **given: trace(*changed(spec, given, Variant(spec=lambda s: wrong)))["output"]
        case _:
            words = _pick(rng, CONDUCT)
            return f"returns {words}", lambda **given: CONDUCT[words](np.asarray(trace(spec, given)["output"]), given)


def _of_definition(spec: Any, rng: np.random.Generator) -> tuple[str, tuple[str, ...], Any]:
    subject = next(iter(definitions_of(spec)))
    inputs = {i.name: i.name if "." not in i.name else i.words.split()[0] for i in subject.inputs if i.needed}
    back = {parameter: name for name, parameter in inputs.items()}
    word = _pick(rng, operators())
    operator = operators()[word]
    place = _pick(rng, (*back, *subject.outputs, "field", "conduct"))
    wrong, words = spec, f"{place} {word}"
    if place == "field":
        words, wrong = _pick(rng, list(_fields(spec)) or [("nothing", spec)])
    way = next(iter(definitions_of(wrong))).ways[0] if _ready(wrong) else subject.ways[0]
    conduct = _pick(rng, CONDUCT) if place == "conduct" else ""

    def compute(**given: Array) -> Any:
        if place in given:
            given = {**given, place: _applied(operator, given[place])}
        found = way(**{back[n]: a for n, a in given.items()})
        several = isinstance(found, tuple)
        outputs = [np.asarray(y) for y in (found if several else (found,))]
        if place in subject.outputs and place not in given:
            at = min(subject.outputs.index(place), len(outputs) - 1)
            outputs[at] = _applied(operator, outputs[at])
        if conduct:
            outputs[0] = CONDUCT[conduct](outputs[0], given)
        return tuple(outputs) if several else outputs[0]

    return f"returns {conduct}" if conduct else words, tuple(back), compute


def _ready(spec: Any) -> bool:
    try:
        return any(definitions_of(spec))
    except SymattnError:
        return False


def _applied(operator: Operator, a: Array) -> Array:
    a = np.asarray(a)
    if a.dtype.kind == "b":
        a = a.astype(np.float64)
        return np.nan_to_num(operator(a)) > 0.5
    return operator(a)


def _fields(spec: Any) -> Iterator[tuple[str, Any]]:
    """The specification with one field changed: numbers moved, booleans turned, what may be left out left out."""
    for f in fields(spec):
        now = getattr(spec, f.name)
        others: tuple[Any, ...] = {bool: (not now,), int: (2, 3), float: (now, 1e-3)}.get(type(now), ())
        if isinstance(now, (int, float)) and not isinstance(now, bool):
            others = (now + 1, now - 1, now * 2, now / 2, 0)
        if isinstance(now, Attention):
            changed = [(words, {f.name: a}) for words, a in _fields(now)]
        else:
            changed = [(f"{f.name}={x}", {f.name: x}) for x in (*others, f.default)]
        for words, field in changed:
            try:
                yield words, replace(spec, **field)
            except (SymattnError, TypeError, ValueError):
                continue


def as_function(names: tuple[str, ...], compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``compute`` in float64 as a function of these parameters, in the type of its inputs."""

    def function(*places: Array, **keywords: Array) -> Any:
        given = {**dict(zip(names, places, strict=False)), **keywords}
        dtype = next(a.dtype for a in given.values() if np.asarray(a).dtype.kind in "fV")
        wide = {
            n: np.asarray(a) if np.asarray(a).dtype.kind in "biu" else np.asarray(a, dtype=np.float64)
            for n, a in given.items()
        }
        with np.errstate(all="ignore"):
            found = compute(**wide)
            return tuple(_stored(y, dtype) for y in found) if isinstance(found, tuple) else _stored(found, dtype)

    parameter = inspect.Parameter
    function.__signature__ = inspect.Signature([parameter(n, parameter.POSITIONAL_OR_KEYWORD) for n in names])  # type: ignore[attr-defined]
    return function


def _stored(y: Any, dtype: Any) -> Any:
    return y.astype(dtype) if isinstance(y, (np.ndarray, np.generic)) and y.dtype == np.float64 else y
