"""The entrants of the arena: right and wrong kernels, each with its class, and the inputs of a benchmark for each.

The collection (``tests/faults/collection``) gives most of them. The others are the mistakes that public graders were
seen to accept (``FIGURE``), legal kernels in half precision, and candidates that act against their judge
(``tests/programs/judging/hostile.py``), which must not pass whatever they return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import ml_dtypes
import numpy as np

from symattn import Attention, Domain, LinearAttention
from symattn.arrays.precision import Contract
from tests.faults.collection import trial
from tests.faults.collection.entries import At, Entry, Wrong
from tests.faults.collection.every import chosen, right_ones
from tests.programs.judging.hostile import FAILING, RIGHT, TAMPERING

Array = Any
Given = Callable[[dict[str, Array]], dict[str, Array]]
FORMATS = ("float32", "float16", "bfloat16")
#: The forms of the inputs of KernelBench: ``torch.rand`` and ``torch.randn``.
FORMS = ("uniform", "normal")
SEEDS = range(3)
#: The sizes of the benchmark's inputs: of the collection, whose slowest programs are loops, and of the figure.
SIZES = At(n_q=64, n_k=64, d_k=32, d_v=32, d_model=32)
LARGE_SIZES = At(n_q=512, n_k=512, d_k=1024, d_v=1024)
RECURRENT_SIZES = At(n_q=24, n_k=24, d_k=8, d_v=8)


@dataclass(frozen=True)
class Entrant:
    """A kernel, its class, whether it is right, and what it is to compute; ``text`` is that of a hostile candidate.

    ``tolerated`` says that no output in this format distinguishes it from a right one.
    """

    name: str
    kind: str
    is_right: bool
    entry: Entry
    sizes: At = SIZES
    text: str = ""
    tolerated: bool = False
    more: Callable[[str, At, np.random.Generator], dict[str, Array]] = field(
        default=lambda form, at, rng: {}
    )

    @property
    def precision(self) -> str:
        return self.entry.precision

    @property
    def contract(self) -> Contract | None:
        return self.entry.contract

    @property
    def spec(self) -> Any:
        return self.entry.spec

    def inputs(self, form: str, seed: int) -> dict[str, Array]:
        """Return a benchmark's inputs: entries of one law, as many queries as keys, values as wide as keys."""
        drawn = self.more(form, self.sizes, np.random.default_rng(seed))
        if drawn:
            return {name: trial.rounded(a, self.precision) for name, a in drawn.items()}
        promised = self.entry.at.given
        at = replace(
            self.sizes,
            batch=self.entry.at.batch,
            given=lambda made: _given(promised, form, seed, made),
        )
        return trial.inputs(self.entry, at, seed)


_DRAWN = ("q", "k", "v", "x", "y")


def _given(promised: Given, form: str, seed: int, made: dict[str, Array]) -> dict[str, Array]:
    """Return the inputs in place of those made: masks and lengths that the program promises, and uniform entries."""
    rng = np.random.default_rng(seed)
    try:
        own = promised(dict(made))
    except (ValueError, IndexError):  # arrays of the entry's own sizes alone
        own = {}
    fitting = {
        name: a for name, a in own.items() if name in made and np.shape(a) == made[name].shape
    }
    result = {name: a for name, a in fitting.items() if name not in _DRAWN}
    if form == "uniform":
        result |= {name: rng.random(made[name].shape) for name in _DRAWN if name in made}
    return result


# -- Mistakes that public graders were seen to accept ------------------------------------------------------------------
def attend(q: Array, k: Array, v: Array, factor: float | None = None) -> Array:
    """Attention in float32, stored in the format of the queries, as kernels do it."""
    wide = [a.astype(np.float32) for a in (q, k, v)]
    scores = wide[0] @ wide[1].T * np.float32(q.shape[-1] ** -0.5 if factor is None else factor)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ wide[2]).astype(q.dtype)


def zeros(q: Array, k: Array, v: Array) -> Array:
    return np.zeros((len(q), v.shape[-1]), q.dtype)


def mean_of_values(q: Array, k: Array, v: Array) -> Array:
    mean = v.astype(np.float32).mean(0, keepdims=True)
    return np.repeat(mean.astype(q.dtype), len(q), axis=0)


def scaled_by_width(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k, v, 1 / q.shape[-1])


def ten_percent_off(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k, v, 1.1 * q.shape[-1] ** -0.5)


def one_percent_off(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k, v, 1.01 * q.shape[-1] ** -0.5)


def one_key_lost(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k[:-1], v[:-1]) if len(k) > 1 else attend(q, k, v)


def twelve_keys_lost(q: Array, k: Array, v: Array) -> Array:
    return attend(q, k[:-12], v[:-12]) if len(k) > 24 else attend(q, k, v)


def last_percent_of_queries_zero(q: Array, k: Array, v: Array) -> Array:
    out = attend(q, k, v)
    out[len(q) - len(q) // 100 :] = 0
    return out


FIGURE = (
    attend, zeros, mean_of_values, scaled_by_width, ten_percent_off, one_percent_off, one_key_lost, twelve_keys_lost,
    last_percent_of_queries_zero,
)  # fmt: skip
#: In these formats a right kernel may store scores that are as far off.
TOLERATED = {("one_percent_off", "bfloat16")}

DELTA = LinearAttention(feature="identity", normalised=False, gate="token", delta=True)


def gated_delta_rule(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
    """The recurrence of the gated delta rule, token by token in float32."""
    return _recurrence(q, k, v, g, beta)


def beta_zero(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
    return _recurrence(q, k, v, g, 0 * beta)


def decay_after_update(q: Array, k: Array, v: Array, g: Array, beta: Array) -> Array:
    return _recurrence(q, k, v, g, beta, after=True)


def _recurrence(q: Array, k: Array, v: Array, g: Array, beta: Array, after: bool = False) -> Array:
    q, k, v, g, beta, out_format = *(a.astype(np.float32) for a in (q, k, v, g, beta)), q.dtype
    state, rows = np.zeros((k.shape[-1], v.shape[-1]), np.float32), []
    for i in range(len(q)):
        state = state if after else state * np.exp(g[i])
        state = state + np.outer(k[i], beta[i] * (v[i] - k[i] @ state))
        state = state * np.exp(g[i]) if after else state
        rows.append(q[i] @ state)
    return np.stack(rows).astype(out_format)


RECURRENCES = (gated_delta_rule, beta_zero, decay_after_update)


def _of_delta_rule(form: str, at: At, rng: np.random.Generator) -> dict[str, Array]:
    """Return inputs as benchmarks of the delta rule draw them: keys of length 1, β in (0, 1), decays near 1."""
    draw = rng.random if form == "uniform" else rng.standard_normal
    q, k, v = draw((at.n_k, at.d_k)), draw((at.n_k, at.d_k)), draw((at.n_k, at.d_v))
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    return {"q": q, "k": k, "v": v, "g": -0.1 * rng.random(at.n_k), "beta": rng.random(at.n_k)}


# -- Legal kernels in half precision -----------------------------------------------------------------------------------
def _stored_in(format_name: str, program: Callable[..., Array]) -> Callable[..., Array]:
    """Return the program computed in float32 and stored in a half format, as kernels do it."""
    stored = np.dtype(ml_dtypes.bfloat16 if format_name == "bfloat16" else format_name)

    def kernel(q: Array, k: Array, v: Array) -> Array:
        found = program(*(np.asarray(a, np.float32) for a in (q, k, v)))
        output = found[0] if isinstance(found, tuple) else found
        return output.astype(stored)

    return kernel


def _in_half() -> Iterator[Entrant]:
    """Yield the right programs of the collection that take q, k and v alone, in one half format, then in the other."""
    names = cycle(("float16", "bfloat16"))
    for entry in right_ones():
        plain = (
            not entry.torch and entry.precision == "float32" and isinstance(entry.spec, Attention)
        )
        if not plain or entry.layout != "nd" or set(trial.parameters(entry)) != {"q", "k", "v"}:
            continue
        if (
            entry.spec.heads > 1
            or entry.spec.lse
            or entry.domain != Domain()
            or entry.family == "forms"
        ):
            continue
        name = next(names)
        made = replace(entry, program=_stored_in(name, entry.program), precision=name)
        yield Entrant(f"half.{entry.name}.{name}", "half precision", True, made)


# -- All of them -------------------------------------------------------------------------------------------------------
def entrants() -> Iterator[Entrant]:
    """Yield every entrant, in a fixed order."""
    yield from _in_figure()
    for entry in chosen():
        yield Entrant(entry.name, entry.family, not isinstance(entry, Wrong), entry)
    yield from _in_half()
    for name, (text, _) in TAMPERING.items():
        yield _hostile(name, text)
    for name, text in FAILING.items():
        yield _hostile(name, text)


def _in_figure() -> Iterator[Entrant]:
    for name in FORMATS:
        for program in FIGURE:
            entry = Entry(program, "figure", program.__name__, precision=name)
            tolerated = (program.__name__, name) in TOLERATED
            right = program is attend
            yield Entrant(
                f"{entry.name}.{name}", "figure", right, entry, LARGE_SIZES, tolerated=tolerated
            )
        for program in RECURRENCES:
            entry = Entry(program, "figure", program.__name__, DELTA, name)
            right = program is gated_delta_rule
            more = _of_delta_rule
            yield Entrant(
                f"{entry.name}.{name}", "figure", right, entry, RECURRENT_SIZES, more=more
            )


def _hostile(name: str, text: str) -> Entrant:
    space: dict[str, Any] = {}
    exec(RIGHT, space)
    return Entrant(
        f"hostile.{name}",
        "hostile",
        False,
        Entry(space["right"], "hostile", name),
        text=RIGHT + text + "\n",
    )
