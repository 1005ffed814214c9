"""Where the columns of a call come from: each is looked up by value among the outputs of modules.

The length of a pair of columns does not change by a rotation, so pairs are looked up by their lengths, in any layout;
the quotient of both pairs as complex numbers is then a rotation by an angle that grows evenly with the position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symattn.models.auditing.setting import Floats, Module, numbers
from symattn.models.inferring import tiny_models, traced_model
from symattn.models.inferring.column_order import order_in_words

#: Relative difference up to which columns are equal: half of the digits of float64.
EQUAL = 2.0**-26
# Smaller columns count as zeros, which any source could give.
_ZERO = 1e-12
# Steps, such as norms and factors, that are undone one after another.
_MAX_DEPTH = 3
# Modules in a row that are named.
_MAX_CHAIN = 5

#: Functions by which an output of a module becomes a factor of the output of heads.
GATES: dict[str, Callable[[Floats], Floats]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "twice sigmoid": lambda x: 2 / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "product": lambda x: x,
}

Source = tuple[str, int]


class UnknownOrigin(Exception):
    """Raised if columns come from no known step."""


class Pool:
    """Columns with their sources, looked up by value through one random projection; the earliest source wins."""

    def __init__(self, blocks: list[tuple[str, Floats]]) -> None:
        self.whole = (
            np.concatenate([a for _, a in blocks], axis=1)
            if blocks
            else np.zeros((tiny_models.TOKENS, 0))
        )
        self.sources = [(name, j) for name, a in blocks for j in range(a.shape[1])]
        # A fixed seed: the projection of a column is the same in all pools.
        self.direction = np.random.default_rng(5).standard_normal(tiny_models.TOKENS)
        keys = self.direction @ self.whole
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]

    def find(self, wanted: Floats) -> list[Source | None]:
        """Return the source of each column (n, d); None for one without."""
        return [self._find_source_of_column(column) for column in wanted.T]

    def _find_source_of_column(self, column: Floats) -> Source | None:
        size = float(np.abs(column).max())
        if size < _ZERO:
            return None
        # Equal columns have projections within this distance.
        key = float(self.direction @ column)
        reach = tiny_models.TOKENS * EQUAL * size * 4
        low, high = np.searchsorted(self.keys, [key - reach, key + reach])
        equal = [
            i
            for i in self.order[low:high]
            if np.abs(self.whole[:, i] - column).max() <= EQUAL * size
        ]
        return self.sources[min(equal)] if equal else None


@dataclass
class Turn:
    """A rotation: the layout of its pairs, how many columns turn, the angle of each pair per position, its sign."""

    layout: str
    width: int
    rates: Floats
    sign: float
    source: str
    columns: list[int]

    @property
    def pairs(self) -> str:
        """Return which columns are pairs where they are projected. Scores do not depend on how they are stored then."""
        return self.layout.partition(",")[0]

    def base(self) -> float | None:
        """Return θ if the rates are θ^(−2l/width); None if they are not."""
        rates, width = self.rates, self.width
        if len(rates) < 2 or rates[1] <= 0 or abs(rates[0] - 1) > EQUAL:
            return None
        theta = float(rates[1] ** (-width / 2))
        known = theta ** (-2 * np.arange(len(rates)) / width)
        return theta if np.abs(rates - known).max() <= EQUAL else None


@dataclass
class ColumnOrigin:
    """How columns came about: the steps from a projection to them, last first, and their rotation and norm.

    ``projection`` is the step of the module that they come from, and ``first`` the first of its columns.
    ``across`` says that the norm is over the columns of all heads together, ``late`` that it follows the rotation.
    ``order`` says in words in which order the columns stand there, "" if they stand side by side.
    ``factor`` is what multiplies them, ``factors`` what multiplies each token where tokens differ, else None.
    """

    steps: list[str] = field(default_factory=list)
    projection: str = ""
    first: int = 0
    order: str = ""
    turn: Turn | None = None
    norm: str = ""
    eps: float = 0.0
    late: bool = False
    across: bool = False
    own: bool = True
    factor: float = 1.0
    factors: Floats | None = None
    special: list[str] = field(default_factory=list)


class ColumnSources:
    """The outputs of modules from which columns of a call may come: those within its own module first."""

    def __init__(self, run: traced_model.TracedRun, call: traced_model.TracedCall) -> None:
        self.own = call.name + "."
        self.runs: dict[str, traced_model.ModuleRun] = {}
        leaves = {
            # Modules may run several times; the turn of the call counts.
            name: runs[min(call.turn, len(runs) - 1)]
            for name, runs in run.runs.items()
            if self._is_module_small(name, runs)
        }
        # Modules inside the caller come first: they are likelier sources.
        within = {name: one for name, one in leaves.items() if name.startswith(self.own)}
        others = {
            n: one
            for n, one in leaves.items()
            if n not in within and one.gave.shape[1] <= traced_model.MAX_COLUMNS
        }
        self.runs = {**within, **others}
        outputs = [(name, one.gave) for name, one in self.runs.items()]
        self.pool = Pool(outputs)
        self._pairs: dict[int, Pool] = {}

    def _is_module_small(self, name: str, runs: list[traced_model.ModuleRun]) -> bool:
        """Return whether a module is a leaf, or within the caller and made of few."""
        children = len(list(runs[0].module.children()))
        return not children or (name.startswith(self.own) and children < 3)

    def pairs(self, gap: int) -> Pool:
        """Return the lengths of pairs of columns that are ``gap`` apart."""
        if gap not in self._pairs:
            outputs = ((name, one.gave) for name, one in self.runs.items())
            wide = [(name, gave) for name, gave in outputs if gave.shape[1] > gap]
            lengths = [(name, np.hypot(gave[:, :-gap], gave[:, gap:])) for name, gave in wide]
            self._pairs[gap] = Pool(lengths)
        return self._pairs[gap]

    def origin(self, wanted: Floats, depth: int = 0) -> ColumnOrigin:
        """Return where columns (n, d) come from. Raises ``UnknownOrigin``."""
        sources = self.pool.find(wanted)
        rest = [
            j
            for j, source in enumerate(sources)
            if source is None and np.abs(wanted[:, j]).max() > _ZERO
        ]
        turn = self._find_rotation_of_columns(wanted, rest) if rest else None
        if rest and turn is None:
            return self._find_scaled_origin(wanted, depth)
        names = [turn.source] if turn else []
        names += [source[0] for source in sources if source is not None]
        names = list(dict.fromkeys(names))
        if not names:
            raise UnknownOrigin
        origin = ColumnOrigin(["rotation"] if turn else [], turn=turn)
        origin.order = _describe_order(sources, turn)
        one = self.runs[names[0]]
        places = [s[1] for s in sources if s is not None and s[0] == names[0]]
        places += turn.columns if turn and turn.source == names[0] else []
        # Without a norm, or at the limit of steps, the origin is this module.
        if not is_norm(one.module) or depth >= _MAX_DEPTH:
            origin.steps += [
                *self._trace_chain_before_module(names[0]),
                *(f"beside {name.removeprefix(self.own)}" for name in names[1:]),
            ]
            origin.own = names[0].startswith(self.own)
            origin.projection, origin.first = names[0].removeprefix(self.own), min(places)
            return origin
        return self._through_norm(origin, names[0], min(places), wanted.shape[1], depth)

    def way_out(self, out: Floats, forms: list[str]) -> str | None:
        """Return the module that receives the output of a call (heads, tokens, d_v); None if none is known.

        What is done to the output before is added to ``forms``: it has no field in ``Attention``.
        """
        heads = out.shape[0]
        flat = out.swapaxes(0, 1).reshape(tiny_models.TOKENS, -1)
        inner = {name: one for name, one in self.runs.items() if name.startswith(self.own)}
        around = self.own[:-1].rpartition(".")[0]
        near = {name: one for name, one in self.runs.items() if name.startswith(around + ".")}
        for name, one in {**inner, **near}.items():
            if (
                one.given.shape == flat.shape
                and np.abs(one.given - flat).max() <= EQUAL * np.abs(flat).max()
            ):
                forms += ["norm of the output of heads"] * is_norm(one.module)
                return name.removeprefix(self.own)
        for name, one in inner.items():
            if one.given.shape != flat.shape or one.given is one.gave:
                continue
            with np.errstate(all="ignore"):
                ratio = one.given / flat
            if not np.isfinite(ratio).all():
                continue
            short = name.removeprefix(self.own)
            # One factor for all entries.
            if np.ptp(ratio) <= EQUAL * abs(ratio.flat[0]):
                forms.append(f"output times {ratio.flat[0]:.6g}")
                return short
            if gate := self._recognise_gate_function(ratio, around):
                each = (
                    "head"
                    if np.ptp(ratio.reshape(tiny_models.TOKENS, heads, -1), axis=2).max() <= EQUAL
                    else "column"
                )
                forms.append(f"output gate: {gate} of each {each}")
                return short
        return None

    def _recognise_gate_function(self, ratio: Floats, around: str) -> str:
        """Return the function of a module's output that gives these factors; "" if there is none."""
        outputs = ((name, one.gave) for name, one in self.runs.items())
        # The gate's module stands near the attention.
        near = [(name, gave) for name, gave in outputs if name.startswith(around)]
        near = [(name, gave) for name, gave in near if gave.shape[1] <= traced_model.MAX_COLUMNS]
        for gate, function in GATES.items():
            # Functions of large outputs may overflow.
            with np.errstate(all="ignore"):
                pool = Pool(
                    [(name, np.nan_to_num(function(gave), posinf=0.0)) for name, gave in near]
                )
            sources = pool.find(ratio)
            if all(source is not None for source in sources):
                return gate
        return ""

    def _through_norm(
        self, origin: ColumnOrigin, name: str, place: int, d: int, depth: int
    ) -> ColumnOrigin:
        kind, size, eps, gains = norm_of(self.runs[name], d)
        over = "all heads" if size > d else "a head" if size == d else f"{size} columns"
        origin.steps.append(f"{kind} norm over {over}{gains}")
        origin.norm, origin.eps = kind, eps
        origin.across = size > d and size == self.runs[name].gave.shape[1]
        if size > d and not origin.across:
            origin.special.append(f"norm over {size} columns")
        low = place // d * d
        inner = None
        try:
            columns = self.runs[name].given[:, low : low + d]
            inner = self.origin(columns, depth + 1)
        except UnknownOrigin:
            origin.steps.append(name)
            origin.own = name.startswith(self.own)
        if inner is not None:
            origin.steps += inner.steps
            origin.order = origin.order or inner.order
            origin.own = inner.own
            origin.projection, origin.first = inner.projection, inner.first
            origin.special += inner.special
            origin.special += [f"times {inner.factor:.6g}"] * (inner.factor != 1)
            # Without gains a length is the same before and after a rotation.
            weight = getattr(self.runs[name].module, "weight", None)
            origin.late = inner.turn is not None and (kind != "rms" or weight is not None)
            origin.turn = origin.turn or inner.turn
        return origin

    def _trace_chain_before_module(self, name: str) -> list[str]:
        """Return a module, and those within the caller that its input passed through before."""
        chain = [name]
        inner = [n for n in self.runs if n.startswith(self.own)]
        # A chain of modules is followed backwards by equal values.
        while len(chain) < _MAX_CHAIN:
            x = self.runs[chain[-1]].given
            reach = EQUAL * np.abs(x).max()
            gave = {n: self.runs[n].gave for n in inner if n not in chain}
            same = [
                n for n, a in gave.items() if a.shape == x.shape and np.abs(a - x).max() <= reach
            ]
            if not same:
                break
            chain.append(same[0])
        return [n.removeprefix(self.own) for n in chain]

    def _find_rotation_of_columns(self, wanted: Floats, rest: list[int]) -> Turn | None:
        """Return how the columns ``rest`` are pairs of columns of one module, turned; None if they are not."""
        d = wanted.shape[1]
        last = rest[-1] == d - 1 and rest[0] != 0
        even = len(rest) + len(rest) % 2
        # Some pairs turn too little to show, so that more columns may be rotated.
        usual_widths = (w for w in (8, 12, 16, 24, 32) if even <= w <= d)
        for width in sorted({even, d, *usual_widths}):
            block = list(range(d - width, d)) if last else list(range(width))
            if width % 2 or not set(rest) <= set(block):
                continue
            halves = block[: width // 2], block[width // 2 :]
            alternating = block[::2], block[1::2]
            for layout, (a, b) in (("half", halves), ("interleaved", alternating)):
                for gap, stored in ((width // 2, "half"), (1, "interleaved")):
                    turn = self._match_rotated_pairs(wanted[:, a], wanted[:, b], gap)
                    if turn is not None:
                        said = stored if stored == layout else f"{stored}, stored as {layout}"
                        said += ", the last columns" * (block[0] > 0)
                        return Turn(said, width, *turn)
        return None

    def _match_rotated_pairs(
        self, a: Floats, b: Floats, gap: int
    ) -> tuple[Floats, float, str, list[int]] | None:
        """Return the rates, sign, source and columns of pairs (a, b), which are turned pairs ``gap`` apart."""
        sources = self.pairs(gap).find(np.hypot(a, b))
        known = [source for source in sources if source is not None]
        if len(known) < len(sources):
            return None
        stored = [self.runs[name].gave for name, _ in known]
        places = [j for _, j in known]
        pairs = zip(stored, places, strict=True)
        before = np.stack([x[:, j] + 1j * x[:, j + gap] for x, j in pairs], axis=1)
        with np.errstate(all="ignore"):
            turned = (a + 1j * b) / before
            # From each token to the next, a pair turns by the same angle.
            step = turned[1] / turned[0]
            steps = turned[1:] / turned[:-1]
            even = np.abs(steps - step).max() < EQUAL * 16
        if not even:
            return None
        direction = float(np.sign(np.angle(step[0])))
        return np.abs(np.angle(step)), direction, known[0][0], places

    def _find_scaled_origin(self, wanted: Floats, depth: int) -> ColumnOrigin:
        """Return the origin of columns that are others times one number, or one of each token."""
        if depth >= _MAX_DEPTH:
            raise UnknownOrigin
        d, size = wanted.shape[1], np.linalg.norm(wanted, axis=1)
        for name in (n for n in self.runs if n.startswith(self.own)):
            gave = self.runs[name].gave
            for low in range(0, gave.shape[1] if gave.shape[1] % d == 0 else 0, d):
                with np.errstate(all="ignore"):
                    columns = gave[:, low : low + d]
                    ratio = size / np.linalg.norm(columns, axis=1)
                # One factor, one length as after a norm, or few factors as by position.
                one = np.ptp(ratio) <= EQUAL * ratio[0]
                unit = np.ptp(size) <= 1e-4 * size[0]
                few = len(set(np.round(ratio, 9))) <= tiny_models.TOKENS // 2
                if not (one or unit or few):
                    continue
                try:
                    inner = self.origin(wanted / ratio[:, None], _MAX_DEPTH)
                except UnknownOrigin:
                    continue
                return _named_scaling(inner, ratio, one, unit)
        raise UnknownOrigin


def _describe_order(sources: list[Source | None], turn: Turn | None) -> str:
    """Return in words in which order columns stand where they come from, those that turn as pairs."""
    by_module: dict[str, list[tuple[int, int]]] = {}
    for number, source in enumerate(sources):
        if source is not None:
            by_module.setdefault(source[0], []).append((source[1], number))
    words = [order_in_words(*zip(*pairs, strict=True)) for pairs in by_module.values()]
    if turn is not None:
        # Neighbours that are pairs leave a column between one first of a pair and the next.
        step = 2 if "interleaved" in turn.layout.partition(",")[0] else 1
        numbers = range(0, step * len(turn.columns), step)
        pairs_in_words = order_in_words(turn.columns, numbers)
        words.append(f"pairs from {pairs_in_words}" if pairs_in_words else "")
    return "; ".join(filter(None, words))


def _named_scaling(inner: ColumnOrigin, ratio: Floats, one: bool, unit: bool) -> ColumnOrigin:
    # A constant factor, a norm, or a factor for each position.
    if one:
        inner.steps.insert(0, f"times {ratio[0]:.6g}")
        inner.factor *= float(ratio[0])
    elif unit:
        inner.steps.insert(0, "rms norm over a head, without gains")
        inner.norm = "rms"
    else:
        inner.steps.insert(0, "times a factor of the position")
        inner.special.append("times a factor of the position")
        inner.factors = ratio
    return inner


def is_norm(module: Module) -> bool:
    """Return whether a module's class is called a norm."""
    return "norm" in type(module).__name__.lower()


def norm_of(one: traced_model.ModuleRun, d: int) -> tuple[str, int, float, str]:
    """Return the kind of a norm (rms, layer, unknown), over how many columns it is, its ε and its gains in words.

    All are read off what it received and gave.
    """
    weight = getattr(one.module, "weight", None)
    size = int(weight.shape[-1]) if weight is not None else d
    x = one.given.reshape(tiny_models.TOKENS, -1, size)
    gave = one.gave.reshape(tiny_models.TOKENS, -1, size)
    bias = getattr(one.module, "bias", None)
    gave = gave if bias is None else gave - numbers(bias)
    own = [getattr(one.module, name, None) for name in ("variance_epsilon", "eps", "epsilon")]
    for kind, centred in (("rms", x), ("layer", x - x.mean(-1, keepdims=True))):
        for eps in (float(e) for e in (*own, 1e-6, 1e-5, 0.0) if e is not None):
            with np.errstate(all="ignore"):
                mean_square = (centred**2).mean(-1, keepdims=True)
                gain = gave * np.sqrt(mean_square + eps) / centred
            # A norm of this kind and ε leaves the same gains for every token.
            largest_change = np.nanmax(np.abs(gain - gain[:1]))
            if largest_change < EQUAL * 64 * np.nanmax(np.abs(gain)):
                return kind, size, eps, _describe_gains(gain[0], weight)
    return "unknown", size, 0.0, ""


def _describe_gains(gain: Floats, weight: Any) -> str:
    """Return how the gains of a norm follow from its weights, unless they are these themselves."""
    if weight is None:
        return ""
    stored = numbers(weight)
    for words, known in (("", stored), (" by 1 + w", 1 + stored), (" by 1", np.ones(1))):
        if np.nanmax(np.abs(gain - known)) <= 64 * EQUAL * np.abs(known).max():
            return words
    return " by other gains"
