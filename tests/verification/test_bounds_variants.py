"""The bound of variants holds for every implementation it speaks for, and refuses what is rougher or wrong."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention, Precision, Rotary, kind, kinds
from symattn.bounds import enclosed, plain_bound
from symattn.bounds.balls import allowed
from symattn.bounds.judge import expected
from symattn.bounds.reference import run
from tests.verification.legal import Row

Enclosure = kind("enclosure")

PRECISIONS = ("float32", "float16", "bfloat16")
SPECS = {
    "groups": Attention(heads=4, kv_heads=2),
    "window": Attention(heads=2, causal=True, window=3),
    "sink": Attention(heads=2, sink="given"),
    "off by one": Attention(heads=2, sink="zero", causal=True),
    "cap": Attention(heads=2, softcap=2),
    "bias": Attention(heads=2, bias=True),
    "slopes": Attention(heads=2, causal=True, position=Alibi(slopes="given")),
    "half": Attention(heads=2, causal=True, position=Rotary()),
    "interleaved": Attention(heads=2, kv_heads=1, position=Rotary(layout="interleaved", base=500000)),
    "all": Attention(heads=4, kv_heads=2, causal=True, window=4, softcap=3, bias=True, sink="given", position=Rotary()),
}


def _ratios(spec: Attention, p: Precision, seed: int, cases: int, rougher: float = 1.0) -> list[float]:
    rng, found = np.random.default_rng(seed), []
    for _ in range(cases):
        given = inputs(spec, p, rng)
        right = expected(spec, given, p)
        for _ in range(4):
            t, i = int(rng.integers(spec.heads)), int(rng.integers(given["q"].shape[1]))
            simulated = VariantRow(spec, p, rng)
            simulated.rougher(rougher).grown = rougher
            got = np.array(right.run.output.midpoints())
            got[t, i, 0] = simulated.run(row(spec, given, t, i))
            found.append(float(right.ratios(got)[t, i, 0]))
    return found


@pytest.mark.parametrize(("seed", "cases"), [(21, 8), pytest.param(23, 150, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("variant", SPECS)
def test_no_legal_implementation_exceeds_it(variant: str, name: str, seed: int, cases: int) -> None:
    worst = max(_ratios(SPECS[variant], Precision.of(name), seed, cases))
    assert worst <= 1
    assert worst > 0.03, "the bound has become so wide that nothing comes near it"


@pytest.mark.parametrize("variant", SPECS)
def test_a_rougher_arithmetic_exceeds_it(variant: str) -> None:
    """The same implementations with roundings thirty times as large: the tests above can fail."""
    assert max(_ratios(SPECS[variant], Precision.of("float32"), 22, 25, rougher=30.0)) > 1


@dataclass
class Given:
    """One query and the keys that it sees, and where they stand; what is added to each score; the head's numbers."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    place: int = 0
    places: np.ndarray | None = None
    bias: np.ndarray | None = None
    sink: float | None = None
    slope: float = 0.0


class VariantRow(Row):
    """One row of one head."""

    def __init__(self, spec: Attention, precision: Precision, rng: np.random.Generator) -> None:
        super().__init__(precision, rng)
        self.spec = spec
        self.wide = 2.0**-53 if precision.score.name == "float64" else 2.0**-24
        self.grown = 1.0
        self.shifted = bool(rng.random() < 0.5)

    def run(self, given: Given) -> float:
        """The output for one column of values."""
        k, v = given.k, given.v
        self.given = given
        if given.sink is not None:
            k, v = np.vstack([k, 0 * k[:1]]), np.append(v, 0.0)
            if self.rng.random() < 0.3:
                return self._gated(given)
        return self.output(given.q, k, v)

    def _gated(self, given: Given) -> float:
        """Attention without the sink, times σ(lse − z); and the same as 1/(1 + e^{z − lse})."""
        s = self.scores(given.q, given.k)[:-1]
        m, total, out = self.part(s, given.v, list(range(len(s))))
        lse, y = self.log_sum_exp(m, total), self.fl(out / total)
        z = float(given.sink or 0.0)
        gate = self.fl(1 / self.fl(1 + self.exp(self.fl(z - lse))))
        return self.fl(self.fl(y * gate))

    def scores(self, q: np.ndarray, k: np.ndarray) -> list[float]:
        given, spec = self.given, self.spec
        keys = k[: len(given.k)]
        first = isinstance(spec.position, Rotary) and self.rng.random() < 0.5
        if first:  # the scale before the rotation
            scale = self.fl(self.fl(1 / math.sqrt(len(q))))
            q = np.array([self.fl(x * scale) for x in q])
        if isinstance(spec.position, Rotary):
            assert given.places is not None
            q = self._rotated(q, given.place)
            keys = np.array([self._rotated(x, p, j) for j, (x, p) in enumerate(zip(keys, given.places, strict=True))])
        found = self._products(q, keys) if first else super().scores(q, keys)
        found = [self._after(s, j) for j, s in enumerate(found)]
        return found if given.sink is None else [*found, self.fl(given.sink, len(found))]

    def _products(self, q: np.ndarray, k: np.ndarray) -> list[float]:
        return [
            self.fl(self.add([self.fl(a * b, j) for a, b in zip(q, row, strict=True)], j), j) for j, row in enumerate(k)
        ]

    def _rotated(self, x: np.ndarray, place: int, key: int = 0) -> np.ndarray:
        position = self.spec.position
        assert isinstance(position, Rotary)
        f, out = len(x) // 2, np.array(x, dtype=float)
        for m in range(f):
            a, b = (m, m + f) if position.layout == "half" else (2 * m, 2 * m + 1)
            angle = place * self._frequency(float(position.base), m / f) * (1 + self.wide * self.sign(1.0, key))
            cos, sin = (
                self.fl(t * (1 + 6 * self.wide * self.sign(1.0, key)), key) for t in (math.cos(angle), math.sin(angle))
            )
            parts = [
                (self.fl(x[a] * cos, key), -self.fl(x[b] * sin, key)),
                (self.fl(x[b] * cos, key), self.fl(x[a] * sin, key)),
            ]
            out[a], out[b] = (self.fl(s + t, key) for s, t in parts)
        return out

    def _frequency(self, base: float, x: float) -> float:
        """θ^−x with the exponent rounded, as a power and a reciprocal, or as e^(−x log θ)."""
        if x == 0:
            return 1.0
        w, sign = self.wide * self.grown, self.sign(1.0, 0)
        if self.rng.random() < 0.5:
            return base ** (-x * (1 + w * sign)) * (1 + 6 * w * sign) * (1 + w * sign)
        return math.exp(-x * math.log(base) * (1 + 2 * w * sign)) * (1 + 6 * w * sign)

    def _after(self, s: float, j: int) -> float:
        """The cap, and what is added, in any order."""
        given, spec = self.given, self.spec
        if spec.softcap is not None:
            c = float(spec.softcap)
            x = self.fl(s / c, j)
            s = self.fl(c * self._tanh(x, j), j)
        parts = [s]
        if given.slope:
            assert given.places is not None
            far = float(given.places[j] - (0 if self.shifted else given.place))  # a shift of the row cancels
            parts.append(self.fl(given.slope * far, j))
        if given.bias is not None:
            parts.append(float(given.bias[j]))
        return self.add(parts, j)

    def _tanh(self, x: float, key: int) -> float:
        if self.rng.random() < 0.5:
            return math.tanh(x) * (1 + self.eps * self.sign(1.0, key))
        e = math.exp(-2 * x) * (1 + self.eps * self.sign(1.0, key))
        return self.fl(2 * self.fl(1 / self.fl(1 + e, key), key) - 1, key)


def inputs(spec: Attention, p: Precision, rng: np.random.Generator) -> dict[str, Any]:
    """Random inputs of a specification with an axis of heads, in small numbers."""
    n_k, d = int(rng.integers(1, 8)), 2 * int(rng.integers(1, 4))
    n_q = int(rng.integers(1, n_k + 1))
    size = float(rng.choice([0.1, 1.0, 3.0]))
    h, g = spec.heads, spec.key_heads
    shapes = {"q": (h, n_q, d), "k": (g, n_k, d), "v": (g, n_k, 1)}
    if spec.bias:
        shapes["bias"] = (h, n_q, n_k)
    if spec.sink == "given":
        shapes["sink"] = (h,)
    made = {name: p.input.rounded(rng.standard_normal(shape) * size) for name, shape in shapes.items()}
    if isinstance(spec.position, Alibi):
        made["slopes"] = p.input.rounded(rng.random(h))
    return made


def row(spec: Attention, given: dict[str, Any], t: int, i: int) -> Given:
    """What query i of head t sees."""
    n_q, n_k = given["q"].shape[1], given["k"].shape[1]
    place = i + n_k - n_q
    first, last = spec.sides
    low, high = -np.inf if first is None else place - first, np.inf if last is None else place + last
    keys = [j for j in range(n_k) if low <= j <= min(high, place if spec.causal else np.inf)]
    head = t * spec.key_heads // spec.heads
    return Given(
        given["q"][t, i], given["k"][head, keys], given["v"][head, keys, 0], place, np.array(keys),
        given["bias"][t, i, keys] if spec.bias else None,
        None if spec.sink is None else float(given["sink"][t]) if spec.sink == "given" else 0.0,
        float(given["slopes"][t]) if "slopes" in given else 0.0,
    )  # fmt: skip


FP16, FP32 = Precision.of("fp16"), Precision.of("fp32")
ROTARY = Attention(position=Rotary())
SMALL = np.eye(2) / 64


def tokens(**changed: Any) -> dict[str, np.ndarray]:
    """Two tokens, where projections are 2 at most, with some arrays in the place of others."""
    given = {"x": np.full((2, 2), 128.0), "w_q": SMALL, "w_k": SMALL, "w_v": SMALL, "w_o": SMALL}
    return given | {name: np.asarray(a, dtype=float) for name, a in changed.items()}


BEYOND = {
    "queries": (Attention(), tokens(w_q=np.eye(2) * 1024, w_k=np.eye(2) / 2**20)),
    "queries that cancel": (Attention(), tokens(w_q=[[512, 0], [-512, 0]], w_k=np.eye(2) / 2**20)),
    "keys": (Attention(heads=2), tokens(w_k=np.eye(2) * 1024, w_q=np.eye(2) / 2**20)),
    "rotated keys": (ROTARY, tokens(w_k=np.eye(2) * 1024, w_q=np.zeros((2, 2)))),
    "outputs": (Attention(), tokens(w_o=np.eye(2) * 65504)),
    "outputs that cancel": (Attention(heads=2), tokens(w_o=[[20000, 0], [-20000, 0]])),
}


def bounds(spec: Attention, p: Precision, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """In balls, and on enclosures."""
    with kinds.precision(256):
        return [allowed(run(spec, given), p), enclosed.of_run(run(spec, given, kind=Enclosure), p)[0]]


@pytest.mark.parametrize("case", BEYOND)
def test_nothing_is_said_where_a_projection_may_leave_the_range(case: str) -> None:
    spec, given = BEYOND[case]
    column = 0 if "cancel" in case and "outputs" in case else slice(None)
    for narrow, wide in zip(bounds(spec, FP16, given), bounds(spec, FP32, given), strict=True):
        assert np.isinf(narrow[..., column]).all()
        assert np.isfinite(wide).all()


@pytest.mark.parametrize("spec", [Attention(), Attention(heads=2), ROTARY])
def test_something_is_said_within_the_range(spec: Attention) -> None:
    assert all(np.isfinite(found).all() for found in bounds(spec, FP16, tokens()))


def test_a_query_that_leaves_the_range_is_one_row() -> None:
    given = tokens(x=[[128, 0], [1, 0]], w_q=np.eye(2) * 1024, w_k=np.eye(2) / 2**20)
    for found in bounds(Attention(), FP16, given):
        np.testing.assert_array_equal(np.isinf(found).all(axis=-1), [True, False])


CASES = {
    "float32, in any order": (Precision.of("fp32"), 0.2),
    "float32, in tiles": (Precision.of("fp32").in_tiles(96, 16), 0.3),
    "float16 over float32": (Precision.of("fp16", "fused"), 0.5),
    "bfloat16 over float32": (Precision.of("bf16", "fused"), 0.5),
}


def fractions(p: Precision, n: int, d: int, rows: int, seed: int) -> list[float]:
    """What part of the allowed error is reached, for some rows and columns, by the best one of some ways."""
    rng = np.random.default_rng(seed)
    given = {name: p.input.rounded(rng.standard_normal((n if name != "q" else rows, d))) for name in "qkv"}
    allowed, ways = plain_bound.allowed(Attention(), given, p), [(1, True), (1, False), (n, True)]
    if p.height is not None:
        ways = [(16, True)]
    found = []
    for i in range(rows):
        for c in range(min(d, 3)):
            arrays = given["q"][i], given["k"], given["v"][:, c]
            found.append(max(Steered(p, *way).fraction(*arrays, float(allowed[i, c])) for way in ways))
    return found


@pytest.mark.parametrize("name", CASES)
def test_steered_roundings_come_near_the_bound_and_never_beyond(name: str) -> None:
    p, least = CASES[name]
    found = fractions(p, 96, 16, 4, 51)
    print(f"{name}: {np.median(found):.2f} of the bound (median), {max(found):.2f} (largest)")
    assert max(found) <= 1
    assert np.median(found) >= least


@pytest.mark.parametrize("name", ["float16 over float32", "bfloat16 over float32"])
def test_half_the_bound_would_refuse_what_is_legal(name: str) -> None:
    assert max(fractions(CASES[name][0], 32, 8, 4, 52)) > 0.5


@dataclass
class Steered:
    """A row with a direction: y is made as large as can be."""

    precision: Precision
    width: int  # of tiles
    rising: bool = True  # keys come by their scores, so that the maximum grows with each tile; or positive values first

    def __post_init__(self) -> None:
        p = self.precision
        self.u, self.sum_u, self.out_u = float(p.between.u), float(p.accumulate.u), float(p.returned.u)
        self.stored_u, self.exp_u = float(p.stored.u), float(p.score.u)
        self.eps = 2 * p.exp_ulps * self.exp_u

    def fraction(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: float) -> float:
        """|y − o| as a part of what is allowed, upwards or downwards."""
        t = k @ q / np.sqrt(len(q))
        p = np.exp(t - t.max())
        o = float(p @ v / p.sum())
        return max(abs(self.output(q, k, v, o) - o), abs(self.output(q, k, -v, -o) + o)) / allowed

    def output(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, o: float) -> float:
        """y."""
        favour = np.where(v > o, 1.0, -1.0)
        s = self.scores(q, k, favour)
        order = np.argsort(s) if self.rising else np.lexsort((-s * np.where(v > 0, 1, -1), v <= 0))
        above = total = 0.0
        m = -np.inf
        for start in range(0, len(s), self.width):
            tile = order[start : start + self.width]
            grown = max(m, float(s[tile].max()))
            if grown > m > -np.inf:
                above, total = self._rescaled(above, total, m - grown, o)
            weights = np.exp((s[tile] - grown) * (1 - 3 * self.exp_u * favour[tile]))
            weights *= np.where(s[tile] < grown, 1 + self.eps * favour[tile], 1.0)
            signs = np.where(v[tile] > 0, 1.0, -1.0)
            terms = weights * v[tile] * (1 + (self.stored_u + 3 * self.sum_u) * signs)
            above, total = self._sum([above, *terms], 1.0), self._sum([total, *weights], -1.0)
            if self.precision.tiles is None:  # normalised after each tile
                above *= 1 + 4 * self.sum_u * np.sign(above)
            m = grown
        return float(above / total * (1 + self.out_u * np.sign(above)))

    def scores(self, q: np.ndarray, k: np.ndarray, favour: np.ndarray) -> np.ndarray:
        """Each sum starts with its largest products, which pass the most roundings."""
        products = np.sort(np.abs(q * k), axis=1)[:, ::-1]
        signs = np.take_along_axis(np.sign(q * k), np.argsort(-np.abs(q * k), axis=1, kind="stable"), axis=1)
        passed = len(q) - np.maximum(np.arange(len(q)) - 1, 0) + 6 - (len(q) == 1)
        sums = (products * signs * (1 + self.u * favour[:, None] * signs) ** passed).sum(axis=1) / np.sqrt(len(q))
        return np.asarray(sums * (1 + 2 * self.u * favour * np.sign(sums)))

    def _rescaled(self, above: float, total: float, fall: float, o: float) -> tuple[float, float]:
        up = 1.0 if above > o * total else -1.0
        factor = np.exp(fall * (1 - 3 * self.exp_u * up)) * (1 + self.eps * up)
        return float(above * factor * (1 + self.sum_u * np.sign(above))), float(total * factor * (1 - self.sum_u))

    def _sum(self, terms: list[float], towards: float) -> float:
        """Positive terms first, the largest at the start; or each as deep as the height allows, by sign."""
        x = np.array([a for a in terms if a])
        height = self.precision.height
        if height is not None:
            depth = min(self.width, height)
            return float((x * (1 + self.sum_u * towards * np.sign(x)) ** depth).sum())
        found = 0.0
        for a in [*sorted(x[x > 0], reverse=True), *sorted(x[x < 0])]:
            found = (found + a) * (1 + self.sum_u * towards * np.sign(found + a)) if found else a
        return found
