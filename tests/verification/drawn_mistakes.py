"""Mistakes drawn by rule over all definitions, half of them two at once: are they found, blamed and named?

A drawn mistake depends on its number alone: a definition, a mistake that the grammar or a list has of it, and, of every
second one, another mistake beside it, a combination that no list has.

    python -m tests.verification.drawn_mistakes --out mistakes.jsonl [--each 5] [--seed 5] [WORD …]

draws single mistakes of every definition but plain attention, and writes a line for each: the mistake, what was said
(``named`` if it computes the same as the drawn one), and seconds of processor time.
"""

import argparse
import json
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count, product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from symattn import (
    Alibi,
    Attention,
    Block,
    Cached,
    CannotRun,
    DepthAttention,
    Differential,
    Gradient,
    LayerNorm,
    LinearAttention,
    Merge,
    Precision,
    RMSNorm,
    Rotary,
    Softmax,
    verify,
)
from symattn.bounds.reference import canonical, changed, trace
from symattn.programs.specifications import definitions_of
from symattn.verification.definitions.definition_mistakes import both, of_arrays
from symattn.verification.definitions.definition_subject import Definition
from symattn.verification.rules.known_mistakes import yield_known_mistakes, yield_mistakes_of_entries
from symattn.verification.rules.two_mistakes import combine_mistakes
from tests.refusals import WITHOUT_RESULT
from tests.verification.mutants import as_function

Compute = Callable[..., Any]
SPECS: tuple[Any, ...] = (
    Attention(), Attention(causal=True), Attention(heads=2, kv_heads=1, softcap=2), Attention(bias=True, scale=0.5),
    Attention(heads=2, position=Alibi(), causal=True), Attention(position=Rotary(), qk_norm="rms", eps=0.25),
    Attention(lse=True), Attention(score="cosine", scale=2), Softmax(), Softmax(Attention(causal=True)),
    RMSNorm(), RMSNorm(one_plus=True), LayerNorm(), Rotary(), Rotary(layout="interleaved"), Merge(),
    LinearAttention(), LinearAttention(causal=True), Cached(Attention(causal=True)),
    Cached(Attention(causal=True, position=Rotary())), Gradient(Attention()), Gradient(Attention(causal=True)),
    Block(attention=Attention(causal=True)), Block(attention=Attention(), norm="rms", activation="silu", gated=True),
)  # fmt: skip
_BARE = {"feature": "identity", "normalised": False}
#: Definitions beside plain attention, one of each form; those that are verified fast come first.
DEFINITIONS: tuple[Any, ...] = (
    RMSNorm(), LayerNorm(), Rotary(), Rotary(layout="interleaved", base=500),
    Rotary(given="positions", sections=(1, 1, 2)), Softmax(Attention(causal=True)), Merge(), Merge(base=2),
    DepthAttention(), DepthAttention(norm=None), Differential(), Differential(factor=0.5, norm="rms", eps=0.125),
    LinearAttention(), LinearAttention(gate="token", **_BARE), LinearAttention(gate="feature", **_BARE),
    LinearAttention(gate="head", step=True, skip=True, **_BARE), LinearAttention(delta=True, qk_norm="l2", **_BARE),
    LinearAttention(gate="token", delta=True, state="kv", **_BARE),
    LinearAttention(gate="feature", reads="before", bonus=True, **_BARE),
    LinearAttention(gate="feature", delta=True, erase="pair", erases="before", **_BARE),
    LinearAttention(gate="token", gate_form="softplus", delta=True, beta_form="sigmoid", **_BARE),
    Attention(lse=True), Cached(Attention(causal=True)), Cached(Attention(causal=True, position=Rotary())),
    Gradient(Attention(causal=True)), Gradient(LinearAttention(**_BARE)),
    Gradient(LinearAttention(gate="token", delta=True, **_BARE)), Block(attention=Attention(causal=True)),
)  # fmt: skip
#: The parameters of a program that stand for the weights of a block.
_WORDS = {
    **{f"attention.{name}": name for name in ("w_q", "w_k", "w_v", "w_o")},
    **{f"mlp.{name}": name for name in ("w_up", "b_up", "w_gate", "w_down", "b_down")},
    "attention_norm.gain": "g1", "attention_norm.bias": "ln1_bias", "mlp_norm.gain": "g2", "mlp_norm.bias": "ln2_bias",
}  # fmt: skip
_LISTED = 0.7  # of the mistakes that the command draws, the share from a definition's own list
_SHOWN = 8  # the largest tile, head or width in the words of a mistake: those of long inputs cost minutes


@dataclass(frozen=True)
class Drawn:
    """A definition with one mistake, or with two."""

    spec: Any
    inputs: dict[str, str]  # by the names of the parameters, which have no dots
    steps: tuple[str, ...]
    causes: tuple[str, ...]
    compute: Compute
    alike: Callable[[str], bool]

    def outcome(self) -> tuple[str, str]:
        """Return what became of it, in a word, and what was said."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                report = verify(as_function(tuple(self.inputs), self._called), self.spec, examples=10)
            except CannotRun as refusal:
                return "cannot be run", str(refusal)
        said = " / ".join(f.message for f in report.faults) or report.verdict.value
        if not report.faults:
            return "not found", said
        found = " / ".join(f.cause or "" for f in report.faults)
        if all(cause in found for cause in self.causes) or any(self.alike(f.cause or "") for f in report.faults):
            return "named", said
        right = any(fault.step in self.steps for fault in report.faults)
        return ("other words, right step" if right else "other step") if found.strip(" /") else (
            "right step, no cause" if right else "other step, no cause"
        ), said  # fmt: skip

    def _called(self, **given: Any) -> Any:
        return self.compute(**{self.inputs[name]: array for name, array in given.items()})


def drawn(number: int) -> Drawn:
    """Return the mistake of this number, or the two."""
    rng = np.random.default_rng((17, number))
    spec = SPECS[number // 2 % len(SPECS)]
    of = _of_definition if any(definitions_of(spec)) else _of_attention
    return next(found for found in of(spec, rng, bool(number % 2)) if found is not None)


def _choice(rng: np.random.Generator, every: tuple[Any, ...]) -> Any:
    return every[int(rng.integers(len(every)))]


def _short(mistakes: Any) -> tuple[Any, ...]:
    return tuple(m for m in mistakes if all(int(n) <= _SHOWN for n in re.findall(r"\d+", m.cause)))


# -- attention ---------------------------------------------------------------------------------------------------------
@cache
def _known(spec: Attention) -> tuple[Any, ...]:
    names = _names(spec)
    return _short([*yield_known_mistakes(spec, names), *yield_mistakes_of_entries(spec, names)])


def _names(spec: Attention) -> frozenset[str]:
    return frozenset(("q", "k", "v", *["bias"] * spec.bias))


def _of_attention(spec: Attention, rng: np.random.Generator, two: bool) -> Iterator[Drawn | None]:
    arrays = [_attended(spec, n, m) for n, m in ((3, 5), (4, 4), (5, 7))]
    for _ in count():
        parts = tuple(_choice(rng, _known(spec)) for _ in range(1 + two))
        yield _differing(spec, parts, partial(_attending, spec), partial(_output, spec, None), arrays, _known(spec))


def _attending(spec: Attention, mistakes: tuple[Any, ...]) -> Compute | None:
    mistake = combine_mistakes(*mistakes) if len(mistakes) > 1 else mistakes[0]
    return None if mistake is None else partial(_output, spec, mistake.variant)


def _attended(spec: Attention, n_q: int, n_k: int) -> dict[str, Any]:
    rng, heads = np.random.default_rng(n_q), (spec.heads,) if spec.heads > 1 else ()
    groups = (spec.key_heads,) if spec.heads > 1 else ()
    found = {"q": (*heads, n_q, 4), "k": (*groups, n_k, 4), "v": (*groups, n_k, 3)}
    found |= {"bias": (n_q, n_k)} if spec.bias else {}
    return {name: rng.standard_normal(shape) for name, shape in found.items()}


def _output(spec: Attention, variant: Any, **given: Any) -> Any:
    if variant is not None:
        try:
            other, inputs = changed(canonical(spec), given, variant)
            return np.asarray(trace(other, dict(inputs), variant)["output"])
        except WITHOUT_RESULT:  # there is nothing to mistake, for instance one head only
            pass
    return np.asarray(trace(canonical(spec), dict(given))["output"])


# -- definitions -------------------------------------------------------------------------------------------------------
@cache
def _subject(spec: Any) -> tuple[Definition, tuple[Any, ...]]:
    subject = next(definitions_of(spec))
    every = [
        *subject.mistakes,
        *subject.others,
        *subject.flow.mistakes(frozenset())[len(subject.mistakes) :],
        *of_arrays(subject),
    ]
    return subject, _short(m for m in every if m.exact and m.where is None)


@cache
def _own_mistakes(spec: Any) -> tuple[Any, ...]:
    """Return the mistakes that a definition lists of itself, without those that rules make of any array."""
    subject, every = _subject(spec)
    own = {m.cause for m in (*subject.mistakes, *subject.others)}
    return tuple(m for m in every if m.cause in own)


def _of_definition(spec: Any, rng: np.random.Generator, two: bool, own: float = 0) -> Iterator[Drawn | None]:
    """Yield drawn mistakes; a share ``own`` is drawn from those that the definition lists."""
    subject, every = _subject(spec)
    needed = tuple(i.name for i in subject.inputs if i.needed)
    arrays = [_filled(subject, sizes, needed) for sizes in subject.shapes[:5]]

    def of(other: Any) -> Any:
        return subject.remade(other).mistakes if subject.remade else ()

    def computed(mistakes: tuple[Any, ...]) -> Compute | None:
        mistake = both(*mistakes, of) if len(mistakes) > 1 else mistakes[0]
        return None if mistake is None else partial(_run, subject, mistake.run)

    for _ in count():
        listed = own and _own_mistakes(spec) and rng.random() < own
        among = _own_mistakes(spec) if listed else every
        parts = tuple(_choice(rng, among) for _ in range(1 + two))
        one = _differing(spec, parts, computed, partial(_run, subject, None), arrays, every)
        yield _by_its_output(one, arrays) if one is not None and isinstance(spec, Attention) else one


def _by_its_output(one: Drawn, arrays: list[dict[str, Any]]) -> Drawn:
    """Of attention and its sums the output is verified first: the words are then those of attention."""
    spec = replace(one.spec, lse=False)
    output = _outputs(lambda **given: one.compute(**given)[0], arrays)
    also = partial(_alike, _known(spec), partial(_attending, spec), arrays, output)
    return replace(one, alike=lambda cause: one.alike(cause) or also(cause))


def _filled(subject: Definition, sizes: Any, names: tuple[str, ...]) -> dict[str, Any]:
    rng, found = np.random.default_rng(3), {}
    for i in (i for i in subject.inputs if i.name in names):
        shape = subject.shape(i.name, sizes)
        found[i.name] = i.entries(shape, rng) if i.entries else rng.standard_normal(shape)
    return subject.filled(found, Precision.of("float64"))


def _run(subject: Definition, wrong: Any, **given: Any) -> Any:
    for way in (wrong, subject.ways[0]) if wrong else (subject.ways[0],):
        try:
            found = tuple(np.asarray(y, dtype=np.float64) for y in subject.run(way, given))
            return found if len(found) > 1 else found[0]
        except WITHOUT_RESULT:
            continue
    raise AssertionError("the definition itself does not run")


# -- what differs ------------------------------------------------------------------------------------------------------
def _differing(
    spec: Any, parts: tuple[Any, ...], computed: Callable[[tuple[Any, ...]], Compute | None], right: Compute,
    arrays: list[dict[str, Any]], every: tuple[Any, ...],
) -> Drawn | None:  # fmt: skip
    """Return the mistake if its outputs are finite, of the right shapes, and not those of fewer mistakes."""
    compute = computed(parts)
    if compute is None:
        return None
    wrong, good = _outputs(compute, arrays), _outputs(right, arrays)
    finite = all(np.isfinite(y).all() for y in wrong)
    if [y.shape for y in wrong] != [y.shape for y in good] or not finite or _same(wrong, good):
        return None
    alone = [run for part in parts if len(parts) > 1 and (run := computed((part,))) is not None]
    if any(_same(_outputs(run, arrays), other) for run in alone for other in (wrong, good)):
        return None

    names = {_WORDS.get(name, name): name for name in arrays[0]}
    steps, causes = tuple(m.step for m in parts), tuple(m.cause for m in parts)
    return Drawn(spec, names, steps, causes, compute, partial(_alike, every, computed, arrays, wrong))


def _alike(
    every: tuple[Any, ...], computed: Callable[[tuple[Any, ...]], Compute | None], arrays: list[dict[str, Any]],
    wrong: list[Any], cause: str,
) -> bool:  # fmt: skip
    """Return whether mistakes with the words of a cause are known, and compute the same."""
    known = [[m for m in every if m.cause == words] for words in cause.split("; and ")]
    runs = (computed(parts) for parts in product(*known)) if len(known) <= 2 else ()
    return any(run is not None and _same(_outputs(run, arrays), wrong) for run in runs)


def _outputs(run: Compute, arrays: list[dict[str, Any]]) -> list[Any]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [run(**given) for given in arrays]
    return [y for ys in found for y in (ys if isinstance(ys, tuple) else (ys,))]


def _same(one: list[Any], other: list[Any]) -> bool:
    return all(
        x.shape == y.shape and bool((np.abs(x - y) <= 1e-4 * (1 + np.abs(y))).all())
        for x, y in zip(one, other, strict=True)
    )


# -- the command -------------------------------------------------------------------------------------------------------
def main() -> None:
    """Draw single mistakes of each definition, and write what is said of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of the definitions' names; all without any")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=int, default=5, help="mistakes of each definition")
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args()
    for spec in DEFINITIONS:
        name = str(spec)
        if options.words and not any(word in name for word in options.words):
            continue
        rng, known = np.random.default_rng([options.seed, DEFINITIONS.index(spec)]), set[tuple[str, ...]]()
        for mistake in _of_definition(spec, rng, two=False, own=_LISTED):
            if mistake is not None and mistake.causes not in known:
                known.add(mistake.causes)
                began = process_time()
                word, said = mistake.outcome()
                words = {"definition": name, "mistake": mistake.causes[0], "answer": word}
                record = words | {"said": said, "seconds": round(process_time() - began, 1)}
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
                print(json.dumps(record, ensure_ascii=False), flush=True)
            if len(known) == options.each:
                break


if __name__ == "__main__":
    main()
