"""The smallest input that shows a mistake, found from the definition and the definition with the mistake in it."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import resources
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from symattn.arrays.precision import Precision
from symattn.attention.inputs import required
from symattn.attention.latent import Latent
from symattn.attention.layers.block import Block
from symattn.attention.positions.position_fields import Alibi, Buckets, Rotary
from symattn.attention.positions.rotary_fields import LinearScaling, NTKScaling, YarnScaling
from symattn.attention.softmax import NORMALISERS
from symattn.attention.spec import Attention
from symattn.bounds.called_target import Argument, Convention, Layout
from symattn.bounds.domain import Domain
from symattn.bounds.inputs import Maker, Sizes
from symattn.bounds.reference import RIGHT, variant_values
from symattn.document.codec import inside
from symattn.document.errors import InputError, SymattnError, perhaps
from symattn.faults.corpus import SPECIFICATIONS, names
from symattn.programs.specifications import definitions_of, kind_of
from symattn.verification.codes import code_of, codes, read_code
from symattn.verification.definitions import attention_output, definition_mistakes
from symattn.verification.definitions.caches import Cached
from symattn.verification.definitions.definition_subject import Definition
from symattn.verification.definitions.depth_attention import DepthAttention
from symattn.verification.definitions.differential import Differential
from symattn.verification.definitions.gradients import Gradient
from symattn.verification.definitions.linear import LinearAttention
from symattn.verification.definitions.merging import Merge
from symattn.verification.definitions.norms import LayerNorm, RMSNorm
from symattn.verification.probing.probes import FAMILIES
from symattn.verification.reduce import Axes, reduce
from symattn.verification.rules import constant_outputs
from symattn.verification.rules.families import families
from symattn.verification.rules.known_mistakes import (
    yield_known_mistakes,
    yield_mistakes_of_entries,
)

Arrays = dict[str, np.ndarray]
_PRECISION, _DOMAIN, _WITH_EMPTY_ROWS = (
    Precision.of("float64"),
    Domain(),
    Domain(fully_masked_rows=True),
)
_SEED = 20261128
#: The number in the mistakes of a family.
_NUMBER, _WRITTEN = 2.0, "2"
_HEADS = Attention(heads=2, causal=True)
_TOKENS = frozenset({"x", *(f"{letter}_{role}" for letter in "wb" for role in "qkvo")})

#: What is erased, and when, as Comba, Gated DeltaNet-2 and RWKV-7 have it.
_ERASURES: tuple[tuple[Literal["vector", "gates", "pair"], Literal["after", "before"]], ...] = (
    ("vector", "before"),
    ("gates", "after"),
    ("pair", "before"),
)
#: Specifications in which mistakes are looked for, the plainest first.
EXAMPLES: tuple[Any, ...] = (
    *SPECIFICATIONS.values(),
    Attention(scale="given"),
    Attention(heads=2, causal=True, sink="given", softcap=4),
    Attention(score="cosine", scale=2),
    Attention(score="distance", scale=1),
    Attention(bias=True, heads=4, scale=0.3),
    Attention(mask="additive"),
    Attention(mask="boolean", causal=True, padding=True, heads=4, kv_heads=2),
    Attention(window=(3, 4)),
    Attention(window=(3, 4), alignment="top-left"),
    Attention(block=4),
    Attention(bias=True, softcap=5),
    Attention(scale="given", heads=4),
    Attention(qk_norm="layer", position=Rotary()),
    Attention(position=Alibi(two_sided=True), heads=4),
    Attention(position=Buckets(), heads=2, causal=True),
    Attention(heads=2, latent=Latent()),
    Attention(documents=True, causal=True),
    Attention(padding=True, heads=2),
    Attention(causal=True, prefix=3),
    Attention(causal=True, alignment="top-left"),
    Attention(base=2),
    Attention(qk_norm="rms", position=Rotary()),
    Attention(qk_norm="layer", heads=2),
    Attention(packed=True, heads=4),
    Attention(qk_norm="rms", position=Rotary(), qk_norm_place="after"),
    Attention(value_norm="rms"),
    Attention(qk_norm="rms", heads=4, qk_norm_over="heads"),
    Attention(output_gate=True),
    Attention(output_gate=True, output_gate_place="after"),
    Attention(qk_norm="rms", qk_norm_of="keys", scale=1),
    Attention(temperature=0.5, temperature_rate=2),
    Attention(temperature="log", temperature_rate=2),
    Attention(position=Rotary(layout="interleaved", width=4)),
    Attention(position=Rotary(given="positions")),
    Attention(position=Rotary(given="positions", sections=(1, 1, 2))),
    Attention(position=Rotary(given="positions", sections=(3, 1, 1), section_order="interleaved")),
    Attention(position=Rotary(scaling=YarnScaling(factor=4, length=64))),
    Attention(dropout=0.1),
    Attention(position=Rotary(scaling=NTKScaling(factor=4, length=4))),
    Attention(position=Buckets(), heads=3),
    Attention(position=Rotary(scaling=LinearScaling(factor=4))),
    Attention(truncate=4),
    *(Attention(normaliser=name) for name in NORMALISERS),  # type: ignore[arg-type]
    LayerNorm(),
    RMSNorm(one_plus=True),
    RMSNorm(residual="returned"),
    Merge(),
    Attention(lse=True),
    Attention(lse=True, causal=True, sink="zero"),
    Cached(_HEADS),
    Cached(Attention(causal=True, position=Rotary())),
    LinearAttention(),
    LinearAttention(normalised=False, delta=True, gate="token"),
    LinearAttention(causal=False),
    LinearAttention(normalised=False, gate="feature"),
    LinearAttention(
        feature="identity", normalised=False, gate="token", delta=True, values_per_key=2
    ),
    LinearAttention(feature="identity", normalised=False, gate="token", state="kv"),
    LinearAttention(feature="identity", normalised=False, gate="head"),
    LinearAttention.named("rwkv6"),
    Rotary(),
    LinearAttention(feature="identity", normalised=False, gate="head", step=True, skip=True),
    Block(attention=_HEADS),
    LinearAttention(feature="identity", normalised=False, gate="token", gate_form="softplus"),
    LinearAttention(
        feature="identity", normalised=False, gate="token", gate_form="sigmoid", lower_bound=-5
    ),
    LinearAttention(feature="identity", normalised=False, delta=True, beta_form="sigmoid"),
    *(
        LinearAttention(
            feature="identity",
            normalised=False,
            gate="feature",
            delta=True,
            erase=rule,
            erases=when,
        )
        for rule, when in _ERASURES
    ),
    LinearAttention(
        feature="identity",
        normalised=False,
        gate="head",
        step=True,
        step_form="softplus",
        step_least=0.25,
        step_most=1,
    ),
    Block(attention=_HEADS, norm="rms", order="post", activation="silu", gated=True),
    Block(attention=_HEADS, parallel=True),
    Differential(attention=Attention(causal=True)),
    Differential(attention=Attention(position=Rotary())),
    DepthAttention(eps=0.25),
    Differential(factor=0.5, norm="rms", eps=0.25, init=0.25),
    *(
        Gradient(Attention(**fields))
        for fields in (
            {},
            {"softcap": 3},
            {"sink": "given"},
            {"heads": 4, "kv_heads": 2},
            {"dropout": 0.1},
            {"qk_norm": "rms"},
            {"position": Rotary()},
            {"bias": True},
            {"causal": True},
            {"temperature": 0.5, "temperature_rate": 2},
        )
    ),
    Gradient(LinearAttention(feature="identity", normalised=False, gate="token", delta=True)),
)


@dataclass(frozen=True)
class Example:
    """A mistake at the smallest input found that shows it: outputs of the definition, and of it with the mistake."""

    spec: Any
    step: str
    cause: str
    inputs: Mapping[str, np.ndarray]
    right: np.ndarray
    wrong: np.ndarray

    @property
    def specification(self) -> str:
        """The specification in words."""
        return _describe_specification(self.spec)


def _describe_specification(spec: Any) -> str:
    """Return a specification as reports call it."""
    return inside(spec)


@dataclass(frozen=True)
class _Candidate:
    """A mistake that can be computed: both computations, inputs to start from, and how they are reduced."""

    spec: Any
    step: str
    cause: str
    right: Callable[[Arrays], Sequence[Any]]
    wrong: Callable[[Arrays], Sequence[Any]]
    draws: Callable[[], Iterator[Arrays]]
    axes: Callable[[Arrays], Axes]
    admits: Callable[[Arrays], bool]
    # What a function gets: inputs that are made of others fit these.
    passed: Callable[[Arrays], Arrays]


# -- the mistakes of a specification -----------------------------------------------------------------------------------
def _yield_candidates_of_spec(spec: Any) -> Iterator[_Candidate]:
    for attention in kind_of(spec).attention_with_rules(spec):
        for input_names in _inputs_of(attention):
            yield from _of_attention(attention, input_names)
        if attention.padding:
            layout: Layout = "bhnd" if attention.heads > 1 else "bnd"
            yield from _of_attention(attention, names(attention), layout)
    for definition in definitions_of(spec):
        yield from _of_definition(spec, definition)


def _inputs_of(spec: Attention) -> Iterator[frozenset[str]]:
    """Yield the sets of inputs that a specification is tried with: queries, keys and values, and tokens."""
    beside = names(spec) - set("qkv")
    # A latent takes tokens alone.
    if spec.latent is not None:
        yield frozenset({"x", "w_q", *required(spec)})
        return
    if spec.packed:
        yield beside | {"x", "w_in", "b_in", "w_o"}
        return
    yield names(spec)
    if spec.qk_norm in ("rms", "layer"):
        yield names(spec) | {"g_q", "g_k"}
    yield beside | _TOKENS
    if spec == Attention():
        yield frozenset({"x", "y", "w_q", "w_k", "w_v"})


def _of_attention(
    spec: Attention, given: frozenset[str], layout: Layout = "nd"
) -> Iterator[_Candidate]:
    usual_names = (name for name in "xqkv" if name in given)
    ordered = (*usual_names, *sorted(given.difference("xqkv")))
    forms = {"keep": "bk"} if layout != "nd" else {}  # padding differs between the items of a batch
    arguments = tuple(
        Argument(name, name, required=True, form=forms.get(name, "")) for name in ordered
    )
    convention = Convention(arguments, dtype="float64", layout=layout)
    usual, empty = (
        Maker(spec, convention, _PRECISION, domain) for domain in (_DOMAIN, _WITH_EMPTY_ROWS)
    )
    mistakes = chain(
        yield_known_mistakes(spec, given),
        yield_mistakes_of_entries(spec, given),
        constant_outputs.mistakes(spec, given),
    )
    for mistake in chain(mistakes, (f.mistake(_NUMBER, _WRITTEN) for f in families(spec))):
        maker = empty if "row without any key" in mistake.cause else usual
        yield _Candidate(
            spec,
            mistake.step,
            mistake.cause,
            lambda inputs: [variant_values(spec, dict(inputs), RIGHT)["output"]],
            partial(_with_mistake, spec, mistake),
            partial(_yield_drawn_inputs, maker),
            attention_output.subject(spec).source.axes,
            maker.admits,
            dict,
        )


def _with_mistake(spec: Attention, mistake: Any, inputs: Arrays) -> list[Any]:
    return [variant_values(spec, dict(inputs), mistake.variant)["output"]]


#: Sizes from small to those of tiles, and batches.
_SIZES = (
    Sizes(3, 5, 4, 3, 5),
    Sizes(7, 9, 6, 4, 6),
    Sizes(7, 9, 6, 4, 6, (2,)),
    Sizes(5, 21, 6, 4, 6),
    Sizes(5, 3, 4, 3, 5),
    Sizes(9, 70, 6, 4, 6),
    Sizes(40, 140, 34, 4, 6),
    Sizes(3, 9, 132, 3, 6),
)
_FAMILIES = ("integer", "normal", "large")


def _yield_drawn_inputs(maker: Maker) -> Iterator[Arrays]:
    rng = np.random.default_rng(_SEED)
    for sizes, family in product(_SIZES, _FAMILIES):
        try:
            yield maker.make(sizes, FAMILIES[family](rng), rng)
        except (SymattnError, ValueError, IndexError):
            continue


def _of_definition(spec: Any, subject: Definition) -> Iterator[_Candidate]:
    rules = (
        definition_mistakes.changes,
        definition_mistakes.constants,
        definition_mistakes.of_arrays,
    )
    own = (*subject.mistakes, *subject.others)
    numbered = (*subject.numbered, *definition_mistakes.of_outputs(subject))
    more = chain(
        (n.mistake(_NUMBER, _WRITTEN) for n in numbered), *(rule(subject) for rule in rules)
    )
    for mistake in chain(own, more):
        yield _Candidate(
            spec,
            mistake.step,
            mistake.cause,
            lambda inputs: subject.run(subject.ways[0], subject.filled(inputs, _PRECISION)),
            lambda inputs, run=mistake.run: subject.run(run, subject.filled(inputs, _PRECISION)),  # type: ignore[misc]
            partial(_drawn_for, subject),
            subject.source.axes,
            partial(subject.admitted, domain=_DOMAIN),
            partial(subject.filled, precision=_PRECISION),
        )


def _drawn_for(subject: Definition) -> Iterator[Arrays]:
    rng = np.random.default_rng(_SEED)
    every = [i.name for i in subject.inputs]
    needed = [i.name for i in subject.inputs if i.needed]
    # an optional input may rule a mistake out, as tables of cosines do for wrong positions
    name_sets = dict.fromkeys(
        tuple(name for name in every if name in (*needed, one)) for one in ("", *every)
    )
    for sizes, family, chosen in product(
        subject.shapes, subject.families.values(), (*name_sets, every)
    ):
        yield subject.draw(
            list(chosen), subject.within(sizes, _DOMAIN), family(rng), _PRECISION, rng
        )


# -- the search --------------------------------------------------------------------------------------------------------
#: Differences that count as shown: visible ones first.
_VISIBLE = (1e-2, 1e-7)
_TRIED = 14  # mistakes of one code in one specification
_STARTS = 30  # inputs of one mistake
_TRIALS = 500  # of a reduction
_FAILS = (
    SymattnError,
    KeyError,
    ValueError,
    IndexError,
    TypeError,
    ZeroDivisionError,
    OverflowError,
)


def _run_for_float_outputs(
    run: Callable[[Arrays], Sequence[Any]], inputs: Arrays
) -> list[np.ndarray] | None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return [np.asarray(y, dtype=np.float64) for y in run(inputs)]
        except _FAILS:
            return None


def _find_differing_outputs(
    candidate: _Candidate, least: float, inputs: Arrays
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the first outputs that differ by ``least`` at a place where both are numbers; None without one."""
    right, wrong = (
        _run_for_float_outputs(run, inputs) for run in (candidate.right, candidate.wrong)
    )
    for x, y in zip(right or (), wrong or (), strict=False):
        if x.shape != y.shape or not x.size:
            continue
        # Infinities on either side show nothing to a reader.
        there = np.isfinite(x) & np.isfinite(y)
        off, size = (np.abs(np.where(there, array, 0)) for array in (x - y, x))
        if (off > least * (1 + size)).any():
            return x, y
    return None


def _find_smallest_example(candidate: _Candidate) -> Example | None:
    """Return the mistake at the smallest input found; None if no input that was tried shows it."""
    # Large differences first: they are read at a glance.
    for least in _VISIBLE:
        for start in islice(candidate.draws(), _STARTS):

            def fails(inputs: Arrays, least: float = least) -> bool:
                try:
                    return (
                        candidate.admits(inputs)
                        and _find_differing_outputs(candidate, least, inputs) is not None
                    )
                except _FAILS:
                    return False

            if fails(start):
                smallest = reduce(start, fails, candidate.axes(start), _DOMAIN, _TRIALS)
                outputs = _find_differing_outputs(candidate, least, smallest)
                assert outputs is not None
                passed = candidate.passed(smallest)
                return Example(candidate.spec, candidate.step, candidate.cause, passed, *outputs)
    return None


def found(wanted: Iterable[str]) -> dict[str, Example]:
    """Search an example of each of these codes that a rule computes; others are named from calls alone."""
    missing, result = dict.fromkeys(wanted, 0), {}
    for spec in EXAMPLES:
        # A few candidates for each code and specification.
        tried = dict.fromkeys(missing, 0)
        for candidate in _yield_candidates_of_spec(spec) if missing else ():
            read = read_code(candidate.cause, candidate.step)
            code = read.code if read else ""
            if code not in missing or tried[code] >= _TRIED:
                continue
            tried[code] += 1
            example = _find_smallest_example(candidate)
            if example is not None:
                result[code] = example
                del missing[code]
    return result


# -- the examples that were found, in a file: inputs alone, from which outputs are computed again ----------------------
_FILE = "examples.json"


def _join_examples(entries: Mapping[str, Any]) -> str:
    """Return the file of examples: a line for each code."""
    lines = [
        f"{json.dumps(code)}: {json.dumps(entry, ensure_ascii=False)}"
        for code, entry in entries.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _write_example(example: Example) -> dict[str, Any]:
    """Return the stored entry of an example: specification, step and sentence, and the inputs."""
    inputs = {name: [str(a.dtype), a.tolist()] for name, a in example.inputs.items()}
    return {
        "spec": example.specification,
        "step": example.step,
        "cause": example.cause,
        "inputs": inputs,
    }


@lru_cache(maxsize=1)
def _load_stored_examples() -> dict[str, Any]:
    text = resources.files("symattn.faults").joinpath(_FILE).read_text(encoding="utf-8")
    result: dict[str, Any] = json.loads(text)
    return result


@lru_cache(maxsize=128)
def _by_cause(specification: str) -> dict[tuple[str, str], list[_Candidate]]:
    """Return the mistakes of a specification by step and sentence: with inputs q, k, v, and with projections."""
    result: dict[tuple[str, str], list[_Candidate]] = {}
    for spec in EXAMPLES:
        if _describe_specification(spec) == specification:
            for candidate in _yield_candidates_of_spec(spec):
                result.setdefault((candidate.step, candidate.cause), []).append(candidate)
    return result


def example_of(code: str) -> Example | None:
    """Return the example of a code, with outputs computed now; None if no rule computes the mistake.

    Raises ``LookupError`` if the definition and its rules have changed, so that it shows nothing any more.
    """
    entry = _load_stored_examples().get(code)
    if entry is None:
        return None
    inputs = {name: np.asarray(a, dtype=dtype) for name, (dtype, a) in entry["inputs"].items()}
    for candidate in _by_cause(entry["spec"]).get((entry["step"], entry["cause"]), ()):
        # The smallest difference is enough for an example that is stored.
        outputs = _find_differing_outputs(candidate, _VISIBLE[-1], inputs)
        if outputs is not None:
            passed = candidate.passed(inputs)
            return Example(candidate.spec, candidate.step, candidate.cause, passed, *outputs)
    raise LookupError(
        f"the stored input of {code} shows nothing; hint: python -m symattn.faults.examples"
    )


def main(wanted: Sequence[str]) -> None:
    """Search the examples of these codes, or without any those of all codes, and write the file.

    A stored example that still shows its mistake stays.

    Raises:
        InputError: no rule states a mistake with the code
    """
    check_stated(wanted)
    chosen = tuple(wanted) or codes()
    result: dict[str, Example] = {}
    for code in chosen:
        # A stored example that shows nothing any more is searched again.
        with suppress(LookupError):
            if (example := example_of(code)) is not None:
                result[code] = example
    result |= found(code for code in chosen if code not in result)
    entries = {code: _write_example(example) for code, example in result.items()}
    # Codes that were not chosen keep what is stored.
    kept = {code: e for code, e in _load_stored_examples().items() if code not in chosen}
    entries |= kept
    path = Path(__file__).with_name(_FILE)
    ordered = {code: entries[code] for code in codes() if code in entries}
    path.write_text(_join_examples(ordered), encoding="utf-8")
    for code in wanted:
        print(f"{code}: {'stored' if code in result else 'no input that was tried shows it'}")


def check_stated(wanted: Iterable[str]) -> None:
    """Raise ``InputError`` for codes that no mistake of a specification in ``EXAMPLES`` has."""
    missing = set(wanted)
    for code in missing.difference(codes()):
        near = perhaps(code, codes())
        raise InputError(
            f"there is no code {code!r} in symattn/verification/codes/causes.txt{near}"
        )
    # The pattern of a sentence is tried once for each sentence, as many specifications share one.
    read: set[tuple[str, str]] = set()
    for spec in EXAMPLES:
        for candidate in _yield_candidates_of_spec(spec) if missing else ():
            sentence = candidate.cause, candidate.step
            if sentence not in read:
                read.add(sentence)
                missing.discard(code_of(*sentence))
    if missing:
        raise InputError(
            f"no rule states a mistake with the code {', '.join(sorted(missing))} for a specification of EXAMPLES; "
            "hint: name one with the mistake in EXAMPLES of symattn/faults/examples.py, or the reason why no input is "
            "shown in symattn/faults/catalogue.py"
        )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except InputError as error:
        raise SystemExit(f"{error}") from None
