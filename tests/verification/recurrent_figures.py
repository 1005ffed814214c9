"""Count right recurrences that are accused, and wrong ones of many tokens that are found, by ``assert_close_to_exact``.

    python -m tests.verification.recurrent_figures right [runs] [first draw]     0 of 3000 are to be accused
    python -m tests.verification.recurrent_figures wrong [tokens] [d]            every row is to be found

Right programs are of every named recurrence, token by token and by chunks, in three formats, of drawn lengths, widths,
gates, rates and likenesses of keys. The normaliser and the feature map of ``linear`` are left out, which the law does
not cover. Wrong ones are of the gated delta rule, each in three formats.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symattn import LinearAttention
from symattn.arrays.formats import Format
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.testing import AttentionFault, assert_close_to_exact
from tests.verification import erasing_programs, reading_programs, stepping_programs
from tests.verification import recurrent_programs as programs
from tests.verification.recurrent_programs import TYPES, rounded

Array = Any
NAMES = (
    *("linear", "retnet", "lightning", "mamba2", "gla", "rwkv6", "deltanet", "gated-deltanet", "kda", "qwen3-next"),
    *("comba", "gdn2", "rwkv7"),
)
#: Strongest gates, as means of −g, of which programs split e^{G_i − G_j} into e^{G_i} and e^{−G_j}.
_SPLIT_UP_TO = 0.5


@dataclass
class Draw:
    """Sizes and numbers of one draw: ``strength`` is the mean of −g, ``most`` the largest β, and keys are ``alike``."""

    n: int
    d: int
    m: int
    form: str
    size: int
    strength: float
    most: float
    alike: float
    rng: np.random.Generator

    @property
    def splits(self) -> bool:
        return self.strength <= _SPLIT_UP_TO

    def rows(self, *front: int, width: int = 0) -> Array:
        """Normal numbers (…, n, width) in the format."""
        return self.stored(self.rng.standard_normal((*front, self.n, width or self.d)))

    def gates(self, *shape: int) -> Array:
        return np.float32(-self.strength * self.rng.gamma(1.0, size=shape))

    def stored(self, x: Array) -> Array:
        return rounded(np.float32(x), self.form)

    def keys(self, *front: int) -> Array:
        return self.rows(*front) + self.stored(self.alike * self.rng.standard_normal(self.d))


@dataclass
class Right:
    """A right output and final state in float32, and the inputs of the call."""

    words: str
    spec: LinearAttention
    inputs: dict[str, Array]
    output: Array
    state: Array


def draw(seed: int) -> Draw:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 300)), int(rng.choice([4, 8, 16, 32, 64]))
    return Draw(n, d, int(rng.choice([3, d])), str(rng.choice(list(TYPES))), int(rng.choice([16, 32, 64])),
                float(10 ** rng.uniform(-3, 0.7)), float(rng.choice([0.5, 1.0, 2.0])),
                float(rng.choice([0, 0.5, 1])), rng)  # fmt: skip


def unit(x: Array) -> Array:
    """Divide rows by their lengths as layers do, in float32."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True, dtype=np.float32) + np.float32(1e-6))


def right_programs(name: str, of: Draw) -> Iterator[Right]:
    """Yield right outputs of a named recurrence for one draw."""
    if name == "mamba2":
        yield from _of_mamba2(of)
    elif name == "rwkv6":
        yield from _of_rwkv6(of)
    elif name in erasing_programs.MORE:
        yield from _of_erasing(name, of)
    else:
        yield from _of_delta_and_gates(name, of)


def _of_delta_and_gates(name: str, of: Draw) -> Iterator[Right]:
    spec = LinearAttention.named(name)
    heads = 4 if spec.has_numbers_of_heads or spec.values_per_key > 1 else 1
    of_keys = heads // spec.values_per_key
    spec = replace(spec, feature="identity", normalised=False)
    q, k = of.stored(of.rows(of_keys)), of.stored(of.keys(of_keys))
    # Keys of length 1 where no norm makes them so, or states would grow.
    if spec.delta and spec.qk_norm is None:
        k = of.stored(unit(k))
    v, state = of.rows(heads, width=of.m), np.float32(0.3 * of.rng.standard_normal((heads, of.d, of.m)))
    inputs: dict[str, Array] = {"q": q, "k": k, "v": v, "initial_state": state}
    if spec.gate:
        # One gate a head, a token, or a feature.
        shape = {"head": (heads,), "token": (heads, of.n), "feature": (heads, of.n, of.d)}[spec.gate]
        inputs["g"] = of.gates(*shape)
    if spec.delta:
        inputs["beta"] = of.stored(of.most / (1 + np.exp(-of.rng.standard_normal((heads, of.n)))))
    read = [np.repeat(unit(x) if spec.qk_norm else x, spec.values_per_key, axis=0) for x in (q, k)]
    scale = of.d**-0.5 if spec.scale else 1.0

    def run(program: Any, **how: Any) -> tuple[Array, Array]:
        results = []
        for h in range(heads):
            g = np.broadcast_to(inputs["g"][h], (of.n,)) if spec.gate == "head" else inputs.get("g", [None] * heads)[h]
            gates = None if g is None else np.reshape(g, (of.n, -1))
            beta = inputs["beta"][h][:, None] if spec.delta else None
            given = programs.Inputs(read[0][h], read[1][h], v[h], gates, beta, state[h])
            results.append(program(given, out=of.form, delta=spec.delta, scale=scale, **how))
        output, end = zip(*results, strict=True)
        return np.stack(output), np.stack(end)

    yield Right("tokens", spec, inputs, *run(programs.by_tokens))
    # Factors about the middle of a chunk; one number a token may stay whole.
    split = "middle" if spec.gate == "feature" else str(of.rng.choice(["no", "middle"]))
    size = of.size if of.splits else 16
    for inverse in ("rows", "blocks", "general", "substitution") if spec.delta else ("rows",):
        made = run(programs.by_chunks, size=size, inverse=inverse, stored=of.form, split=split)
        yield Right(f"chunks of {size}, {inverse}", spec, inputs, *made)
    if spec.delta:
        made = run(programs.by_chunks, size=size, residual=True, stored=of.form, split=split)
        yield Right("residual", spec, inputs, *made)


def _of_rwkv6(of: Draw) -> Iterator[Right]:
    spec = LinearAttention.named("rwkv6")
    inputs = {"q": of.rows(2), "k": of.keys(2), "v": of.rows(2, width=of.m), "g": of.gates(2, of.n, of.d),
              "bonus": of.stored(of.rng.standard_normal((2, of.d))),
              "initial_state": np.float32(0.3 * of.rng.standard_normal((2, of.d, of.m)))}  # fmt: skip
    inputs["k"] = of.stored(inputs["k"])
    yield Right("tokens", spec, inputs, *reading_programs.by_tokens(**inputs))
    for split in (False, True) if of.splits else (False,):
        made = reading_programs.by_chunks(**inputs, size=of.size, split=split, stored=of.form)
        yield Right(f"chunks of {of.size}, split: {split}", spec, inputs, *made)


def _of_mamba2(of: Draw) -> Iterator[Right]:
    spec = LinearAttention.named("mamba2")
    inputs = {"q": of.rows(2), "k": of.stored(of.keys(2)), "v": of.rows(4, width=of.m),
              "g": -np.float32(of.strength * of.rng.random(4)), "dt": np.float32(of.rng.gamma(1.0, size=(4, of.n))),
              "skip": np.float32(of.rng.standard_normal(4)),
              "initial_state": np.float32(0.3 * of.rng.standard_normal((4, of.d, of.m)))}  # fmt: skip
    given = {("a" if x == "g" else x): a for x, a in inputs.items()}
    yield Right("tokens", spec, inputs, *stepping_programs.by_tokens(**given))
    for on_scores in (False, True):
        made = stepping_programs.by_chunks(**given, size=of.size, stored=of.form, on_scores=on_scores)
        yield Right(f"chunks of {of.size}, on scores: {on_scores}", spec, inputs, *made)


def _of_erasing(name: str, of: Draw) -> Iterator[Right]:
    spec = replace(LinearAttention.named(name), qk_norm=None, eps=0, scale=False)
    seed = int(of.rng.integers(2**31))
    rows = erasing_programs.draw(name, of.n, of.d, of.form, seed, decay=of.strength, alike=of.alike,
                                 most=min(of.most, 1.5), m=of.m)  # fmt: skip
    state = np.float32(0.3 * of.rng.standard_normal((of.d, of.m)))
    columns = ("g", "beta") if name == "comba" else ()
    inputs = {x: a[..., 0] if x in columns else a for x, a in rows.items()} | {"initial_state": state}
    yield Right("tokens", spec, inputs, *erasing_programs.by_tokens(name, **rows, initial_state=state))
    for blocks, residual, split in ((False, False, False), (True, False, True), (False, True, False)):
        if split and not of.splits:
            continue
        how = {"blocks": blocks, "residual": residual, "split": split}
        made = erasing_programs.by_chunks(name, **rows, initial_state=state, size=of.size, stored=of.form, **how)
        yield Right(f"chunks of {of.size}, {how}", spec, inputs, *made)


def judged(form: str, spec: LinearAttention, inputs: dict[str, Array], output: Array, state: Array,
           contract: Any = None) -> tuple[str, str]:  # fmt: skip
    """Return "accused", "undecided" or "", and the words of the product."""
    wide = ("g", "dt", "skip", "initial_state")
    of_format = {x: a if x in wide else a.astype(TYPES[form]) for x, a in inputs.items()}
    try:
        note = assert_close_to_exact(output.astype(TYPES[form]), spec=spec, final_state=state, contract=contract,
                                     **of_format)  # fmt: skip
    except AttentionFault as fault:
        return "accused", str(fault)
    return ("undecided", note) if note else ("", "")


def count_right(runs: int, first: int = 0) -> None:
    """Judge so many right runs, and print those that are accused, and the counts by name."""
    counts: Counter[tuple[str, str]] = Counter()
    seed = first
    while sum(counts.values()) < runs:
        name, of = NAMES[seed % len(NAMES)], draw(seed)
        for right in right_programs(name, of):
            verdict, words = judged(of.form, right.spec, right.inputs, right.output, right.state)
            counts[name, verdict or "passed"] += 1
            if verdict:
                print(f"draw {seed}, {name}, {right.words}, {of}: {verdict}\n{words}", flush=True)
        seed += 1
    for name in NAMES:
        print(f"{name:16}", *(f"{word} {counts[name, word]}" for word in ("passed", "undecided", "accused")))
    total = Counter(word for (_, word), times in counts.items() for _ in range(times))
    print(f"draws {first} to {seed - 1}:", dict(total), f"{time.process_time():.0f} s of processor time")


def wrong_rows(form: str, given: programs.Inputs, scale: float) -> Iterator[tuple[str, Any, tuple[Array, Array]]]:
    """Yield wrong programs of the gated delta rule: their words, the arithmetic, the output and the final state."""
    out = Format(form)
    by_token = RecurrentArithmetic(order="tokens", output=out)
    by_chunk = RecurrentArithmetic(stored=None if form == "float32" else out, output=out)
    for wrong in ("decay after the update", "state read undecayed", "one gate left out", "β left out",
                  "state in bfloat16"):  # fmt: skip
        yield f"{wrong}, tokens", by_token, programs.by_tokens(given, form, wrong, scale=scale)
    for wrong in ("first token of a chunk lost", "β missing in the system", "state in bfloat16"):
        made = programs.by_chunks(given, stored=form, out=form, split="no", wrong=wrong, scale=scale)
        yield f"{wrong}, chunks", by_chunk, made


def count_wrong(tokens: int = 4096, d: int = 128) -> None:
    """Judge wrong programs by all arithmetics of the format, and by their own."""
    spec = LinearAttention(feature="identity", normalised=False, gate="token", delta=True, scale=True)
    for form in TYPES:
        given = programs.draw("gated delta rule", tokens, d, form)
        arrays = {name: getattr(given, name) for name in ("q", "k", "v", "g", "beta")}
        inputs = {name: np.float32(a) for name, a in (arrays | {"initial_state": given.state}).items()}
        for words, arithmetic, (output, state) in wrong_rows(form, given, d**-0.5):
            start = time.process_time()
            verdicts = [judged(form, spec, inputs, output, state, way)[0] for way in (None, arithmetic)]
            results = ["found" if x == "accused" else x or "NOT FOUND" for x in verdicts]
            row = f"{form:9} {words:36} {results[0]:10} by its own arithmetic: {results[1]:10}"
            print(row, f"{time.process_time() - start:.1f} s", flush=True)


if __name__ == "__main__":
    what, *numbers = sys.argv[1:] or ["right"]
    numbers_of = [int(x) for x in numbers]
    if what == "wrong":
        count_wrong(*numbers_of)
    else:
        count_right(*(numbers_of or [3000]))
