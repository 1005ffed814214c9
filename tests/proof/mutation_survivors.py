"""Which mutants that no theorem notices are the same function: their values are compared, for all sizes."""

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

from symattn.arrays.index.expressions import canonical
from symattn.arrays.indexed import Indexed
from symattn.proof.prover import equations, prove
from symattn.proof.statement import Declared, Letters
from tests.proof.mutation_copy import COPY, Unit

ATTENDED = {"q": "n d", "k": "m d", "v": "m e"}
TOKENS = {"x": "n d", "w_q": "d 2*e", "w_k": "d 2*e", "w_v": "d 2*f", "w_o": "2*f d"}
BATCH = {"x": "g n d", "w_q": "d 2*e", "w_k": "d 2*e", "w_v": "d 2*f"}
TILES = {"s": "n a", "t": "n b", "v": "a d", "w": "b d"}
STATES = {letter + number: "n e" if letter == "a" else "n 1" for letter in "mla" for number in "12"}
GROUPED = {"q": "g*r n d", "k": "g m d", "v": "g m e"}
TURNED = {"x": "n f*2", "cos": "n f", "sin": "n f"}
FEATURES = {"q": "n f", "k": "n f", "v": "n d"}
STEP = {"state": "f d", "sums": "1 f", "q": "1 f", "k": "1 f", "v": "1 d"}
SAME = "equal normal forms"
Made = tuple[dict[str, str], Callable[..., Any]]


def _forbidden(m: Any, s: Any, keep: Any) -> Any:
    masks = import_module(m.__name__.replace("softmax", "masks"))
    return m.softmax(masks.forbid(s, keep), fully_masked="nan")


def _merged(m: Any, maximum: bool = False, **x: Any) -> Any:
    a, b = m.SoftmaxState(x["m1"], x["l1"], x["a1"]), m.SoftmaxState(x["m2"], x["l2"], x["a2"])
    return m.merge(a, b, x["z"]) if maximum else m.merge(a, b)


def _in_powers(x: Any) -> tuple[Any, Any]:
    """An output, and e to the log-sum-exp: logarithms are letters to the prover."""
    return x.output, x.lse.__array_namespace__().exp(x.lse)


def _side_by_side(s: Any, t: Any, v: Any, w: Any) -> tuple[Any, Any]:
    xp = s.__array_namespace__()
    return xp.concat([s, t], axis=-1), xp.concat([v, w], axis=-2)


def _both(s: Any, t: Any) -> Any:
    return s.shape[-1] + t.shape[-1]


def _whole(**spec: Any) -> Callable[..., Any]:
    return lambda m, **arrays: m.Attention(**spec).trace(**arrays)


# What each module gives, on letters, so that every line of its functions is run.
GIVEN: dict[str, list[Made]] = {
    "softmax": [
        ({"s": "n m"}, lambda m, s: (m.row_max(s), m.exponentials(s), m.exponentials(s, False))),
        ({"s": "n m"}, lambda m, s: (m.softmax(s), m.softmax(s, False), m.softmax(s, True, "zeros"))),
        ({"s": "n m"}, lambda m, s: (m.normalise(s), m.normalise(s, "zeros"))),
        ({"s": "n m", "keep": "n m"}, _forbidden),
        ({"s": "n m", "sink": "n 1"}, lambda m, s, sink: m.sink_weights(s, sink)),
    ],
    "scores": [
        ({"q": "n d", "k": "m d"}, lambda m, q, k: (m.dot_scores(q, k), m.distance_scores(q, k))),
        ({"s": "n m", "q": "n d"}, lambda m, s, q: (m.scale_by_root(s, q), m.scale_by(s, 3))),
        ({"q": "n a", "k": "m b", "w": "a l", "u": "b l", "v": "l"}, lambda m, **x: m.additive_scores(**x)),
        ({"s": "n m", "cap": ""}, lambda m, s, cap: m.softcap(s, cap)),
        ({"a": "n m", "v": "m e"}, lambda m, a, v: m.weighted_values(a, v)),
    ],
    "masks": [
        ({"s": "n n"}, lambda m, s: (m.causal(s), m.causal(s, "top-left"), m.window(s, 1))),
        ({"s": "n p+n"}, lambda m, s: m.causal(s)),
        ({"s": "n n+p"}, lambda m, s: m.causal(s, "top-left")),
        ({"s": "f+r+1+l f+r+1+l"}, lambda m, s, f, r: m.window(s, r + 1)[f + r : f + r + 1]),
        ({"keep": "g m"}, lambda m, keep: m.padding(keep)),
        ({"s": "g h n m", "mask": "g n m"}, lambda m, s, mask: s * m.for_heads(mask, s)),
        ({"s": "g h n m", "mask": "g h n m"}, lambda m, s, mask: s * m.for_heads(mask, s)),
        ({"s": "g h n m", "mask": "n m"}, lambda m, s, mask: s * m.for_heads(mask, s)),
        ({"s": "h n m", "mask": "n m"}, lambda m, s, mask: s * m.for_heads(mask, s)),
        ({"s": "h n m", "mask": "h n m"}, lambda m, s, mask: s * m.for_heads(mask, s)),
        ({"s": "n m", "mask": "n m"}, lambda m, s, mask: m.add_mask(s, mask)),
        ({"s": "n m", "keep": "n m"}, lambda m, s, keep: s.__array_namespace__().exp(m.forbid(s, keep))),
    ],
    "positions.angles": [
        ({"cos": "n f", "sin": "n f"}, lambda m, cos, sin: m.sinusoidal(cos, sin)),
        ({"cos": "n f", "sin": "n f", "c": "n f", "d": "n f"}, lambda m, cos, sin, c, d: m.add_angles(cos, sin, c, d)),
        (TURNED, lambda m, **x: m.rotate_interleaved(**x)),
        ({**TURNED, "x": "n f+f"}, lambda m, **x: m.rotate_half(**x)),
        ({"s": "n n", "a": ""}, lambda m, s, a: m.linear_bias(s, a)),
        ({"s": "n p+n", "a": ""}, lambda m, s, a: m.linear_bias(s, a)),
    ],
    "projections": [
        ({"x": "n d", "w": "d e", "b": "e"}, lambda m, x, w, b: (m.project(x, w, b), m.project(x, w))),
        ({"x": "n 2*e"}, lambda m, x: m.split_heads(x, 2)),
        ({"x": "g n 2*e"}, lambda m, x: m.split_heads(x, 2)),
        ({"x": "h n e"}, lambda m, x: m.merge_heads(x)),
        ({"x": "g h n e"}, lambda m, x: m.merge_heads(x)),
        ({"x": "g n d"}, lambda m, x: (m.repeat_heads(x, 3), m.tile_heads(x, 3))),
        ({"x": "b g n d"}, lambda m, x: (m.repeat_heads(x, 3), m.tile_heads(x, 3))),
        (GROUPED, lambda m, **x: m.grouped_attention(lambda q, k, v: q @ k.mT @ v, **x)),
    ],
    "norms": [
        ({"x": "n d", "eps": ""}, lambda m, x, eps: (m.rms_norm(x, eps), m.layer_norm(x, eps))),
        ({"x": "n d"}, lambda m, x: (m.rms_norm(x), m.layer_norm(x), m.centre(x), m.unit(x))),
    ],
    "linear": [
        (FEATURES, lambda m, q, k, v: (m.linear_attention(q, k, v), m.causal_linear_attention(q, k, v))),
        (FEATURES, lambda m, q, k, v: (m.causal_products(q, k, v), m.linear_state(k, v))),
        ({**STEP, "beta": ""}, lambda m, state, k, v, beta: m.delta_step(state, k, v, beta)),
    ],
    "gradients.attention": [
        ({"p": "n m", "g": "n m"}, lambda m, p, g: m.softmax_vjp(p, g)),
        ({**ATTENDED, "p": "n m", "g": "n e"}, lambda m, **x: m.backward(**x)),
    ],
    "streaming.states": [
        (TILES, lambda m, s, v: (m.finish(m.tile_state(s, v)), *m.tile_state(s, v))),
        ({**TILES, "z": "n 1"}, lambda m, s, v, z: m.tile_state(s, v, z)),
        (STATES, lambda m, **x: _merged(m, **x)),
        ({**STATES, "z": "n 1"}, lambda m, **x: _merged(m, True, **x)),
        (TILES, lambda m, s, t, v, w: _in_powers(m.merge_partial(m.partial_output(s, v), m.partial_output(t, w)))),
        (TILES, lambda m, s, v: _in_powers(m.partial_output(s, v))),
        (TILES, lambda m, s, t, v, w: m.online(*_side_by_side(s, t, v, w), (0, s.shape[-1], _both(s, t)))),
    ],
    "spec": [
        (ATTENDED, _whole()),
        (ATTENDED, _whole(scale=3, stabilised=False)),
        ({"q": "n d", "k": "n+p d", "v": "n+p e"}, _whole(causal=True, alignment="top-left", fully_masked="nan")),
        ({**ATTENDED, "mask": "n m", "keep": "m"}, _whole(mask="additive", padding=True)),
        ({**ATTENDED, "mask": "n m", "keep": "m"}, _whole(mask="boolean", padding=True, fully_masked="nan")),
        ({**ATTENDED, "keep": "m"}, _whole(padding=True)),
        ({"x": "n d"}, _whole(causal=True)),
        ({"x": "n d", "y": "m d"}, _whole()),
        ({"x": "n d", "y": "m d", "w_k": "d e", "w_q": "d e", "b_v": "f", "w_v": "d f"}, _whole()),
        ({**TOKENS, "b_o": "d"}, _whole(heads=2)),
        ({**BATCH, "mask": "g n n", "keep": "g n"}, _whole(heads=2, mask="boolean", padding=True)),
        ({**BATCH, "mask": "g 2 n n"}, _whole(heads=2, mask="additive", causal=True)),
        ({**BATCH, "mask": "n n"}, _whole(heads=2, mask="boolean")),
        ({"x": "n d", "w_o": "d e"}, _whole()),
    ],
}
BATCHED = (*("softmax", "scores", "positions.angles", "norms", "linear", "gradients.attention"), "streaming.states")


def _batch(arrays: dict[str, str]) -> dict[str, str]:
    """The same with one axis more in front."""
    return {name: f"batch {shape}" if " " in shape else shape for name, shape in arrays.items()}


for _module in BATCHED:
    GIVEN[_module] += [(_batch(arrays), made) for arrays, made in GIVEN[_module]]


def equivalent(unit: Unit) -> str:
    """How it is shown that the module of ``unit``, as it is now, gives what symattn's gives; empty if it is not."""
    staged = unit.module.startswith(("attention.stages.", "attention.flow"))
    module = "attention.spec" if staged else unit.module
    where = module.removeprefix("attention.")
    how = SAME
    try:
        for number in range(len(GIVEN.get(where, ()))):
            for a, b in _pairs(_ours(module, where, number), _values(f"{COPY}.{module}", *GIVEN[where][number])):
                shown = _shown(_number(a), _number(b))
                if not shown:
                    return ""
                how = how if shown == SAME else shown
    except Exception:
        return ""
    return how if where in GIVEN else ""


def _shown(a: Any, b: Any) -> str:
    """How two arrays are shown to be equal; the prover, which looks at what must be defined too, is asked last."""
    every = list(equations(a, b))
    names = [{i: ("free", n) for n, i in enumerate(indices)} for indices, *_ in every]
    same = (canonical(x, free) == canonical(y, free) for free, (_, x, y) in zip(names, every, strict=True))
    if every and all(same):
        return SAME
    return "proved equal for all sizes" if prove(a, b).proved else ""


@cache
def _ours(module: str, where: str, number: int) -> Any:
    """The values of symattn's own functions, which no mutant changes."""
    return _values(f"symattn.{module}", *GIVEN[where][number])


def _pairs(ours: Any, theirs: Any) -> Iterator[tuple[Any, Any]]:
    """What is to be equal: of two traces the output, and the arrays that both name."""
    if isinstance(ours, dict):
        both = [name for name in ours if name in theirs or name == "output"]
        ours, theirs = ([trace[name] for name in both] for trace in (ours, theirs))
    return zip(_flat(ours), _flat(theirs), strict=True)


def _values(module: str, arrays: dict[str, str], made: Callable[..., Any]) -> Any:
    declared, world = Declared(arrays), Letters()
    _, *taken = signature(made).parameters.values()
    names = list(arrays) if any(p.kind is p.VAR_KEYWORD for p in taken) else [p.name for p in taken]
    given = {n: world.array(n, arrays[n], declared) if n in arrays else world.length(n) for n in names}
    return made(import_module(module), **given)


def _flat(value: Any) -> list[Any]:
    return [y for x in value for y in _flat(x)] if isinstance(value, (tuple, list)) else [value]


def _number(x: Any) -> Any:
    """An array of truth values as numbers."""
    return Indexed.xp.where(x, 1, 0) if x.dtype is not None and Indexed.xp.isdtype(x.dtype, "bool") else x
