"""Every cause has a stable code: each mistake of each definition one, in kebab case, and the same as last time."""

import re
from ast import literal_eval
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from symattn import (
    Alibi,
    Attention,
    Block,
    Buckets,
    Cached,
    DepthAttention,
    Differential,
    Gradient,
    InputError,
    LayerNorm,
    LinearAttention,
    LinearScaling,
    Merge,
    NTKScaling,
    RMSNorm,
    Rotary,
    Softmax,
    YarnScaling,
    reports,
    verify,
)
from symattn.attention.codec.field_values import field_of
from symattn.attention.letters_of_attention import ARRAYS
from symattn.programs.specifications import definitions_of
from symattn.verification.definitions import attention_output
from symattn.verification.rules.families import families, families_of_heads
from symattn.verification.rules.known_mistakes import yield_known_mistakes
from tests.annotations import annotated, words_of
from tests.letters import needed_by
from tests.printed import printed_json
from tests.steps import BLAMED

GOLDEN = Path(__file__).parents[1] / "golden" / "codes.tsv"
REGISTRY = Path(__file__).parents[2] / "symattn" / "verification" / "codes" / "causes.txt"
_WEIGHTS = frozenset({"x", *(f"{letter}_{role}" for letter in "wb" for role in "qkvo")})
#: Specifications beside those of the corpus, each with inputs of its own.
_SPECIFICATIONS = (
    Attention(heads=2, causal=True, sink="given", softcap=4), Attention(scale=1), Attention(score="cosine", scale=2),
    Attention(score="distance", scale=1), Attention(bias=True, heads=4, scale=0.3), Attention(mask="additive"),
    Attention(mask="boolean", causal=True, padding=True, heads=4, kv_heads=2), Attention(window=(3, 4)),
    Attention(window=(3, 4), alignment="top-left"), Attention(block=4), Attention(causal=True, prefix=3),
    Attention(causal=True, alignment="top-left"), Attention(qk_norm="rms", position=Rotary()),
    Attention(qk_norm="layer", heads=2), Attention(qk_norm="l2"), Attention(packed=True, heads=4), Attention(base=2),
    Attention(position=Rotary(layout="interleaved", width=4)), Attention(position=Rotary(given="positions")),
    Attention(position=Rotary(scaling=YarnScaling(factor=4, length=64))), Attention(position=Rotary(given="tables")),
    Attention(position=Rotary(scaling=NTKScaling(factor=4, length=64))), Attention(dropout=0.1), Attention(sink="zero"),
    Attention(position=Rotary(scaling=LinearScaling(factor=4))), Attention(position=Buckets(), heads=3), Attention(
        position=Alibi(slopes="given"), heads=4, causal=True), Attention(truncate=4),
    Attention(qk_norm="rms", position=Rotary(), qk_norm_place="after"), Attention(value_norm="rms", eps=0.25, heads=2),
    Attention(heads=4, kv_heads=2, qk_norm="rms", eps=0.25, qk_norm_over="heads"),
    Attention(qk_norm="rms", eps=0.25, qk_norm_of="keys", scale=1),
    Attention(qk_norm="rms", eps=0.25, qk_norm_of="keys", position=Rotary(), qk_norm_place="after"),
    Attention(qk_norm="rms", qk_norm_of="keys", position=Rotary()),
    Attention(heads=2, output_gate=True), Attention(temperature=0.1, temperature_rate=2, causal=True),
    Attention(temperature="log", temperature_rate=2, alignment="top-left"),
    *(Attention(normaliser=name) for name in words_of(annotated(Attention)["normaliser"])),
)  # fmt: skip
_HEADS = Attention(heads=2, causal=True)
_DEFINITIONS = (
    LayerNorm(), RMSNorm(one_plus=True), Rotary(scaling=YarnScaling(factor=4, length=64)), Softmax(_HEADS), Merge(),
    Attention(lse=True, sink="given", heads=2), Attention(lse=True, base=2), Cached(_HEADS), Merge(base=2),
    Cached(Attention(causal=True, position=Rotary())), LinearAttention(), LinearAttention(causal=False, scale=True),
    LinearAttention(normalised=False, delta=True, gate="token"), LinearAttention(normalised=False, gate="feature"),
    LinearAttention(normalised=False, delta=True, gate="token", qk_norm="l2", eps=0.25, values_per_key=2),
    *(LinearAttention(normalised=False, delta=True, gate="token", state=state) for state in ("kv", "vk")),
    LinearAttention(normalised=False, gate="head"), LinearAttention.named("rwkv6"), Differential(attention=_HEADS),
    DepthAttention(), DepthAttention(norm=None, eps=0),
    LinearAttention(normalised=False, gate="head", step=True, step_form="softplus", step_least=0.25, step_most=1),
    LinearAttention(normalised=False, gate="head", step=True, step_form="softplus"),
    LinearAttention(feature="identity", normalised=False, delta=True, beta_form="sigmoid"),
    Differential(factor=0.5, norm="rms", eps=0.25, init=0.25), Differential(attention=Attention(position=Rotary())),
    *map(LinearAttention.named, ("mamba2", "comba", "gdn2", "rwkv7")),
    replace(LinearAttention.named("gdn2"), values_per_key=2, state="kv"),
    Gradient(replace(LinearAttention.named("kda"), gate_form="softplus")),
    replace(LinearAttention.named("qwen3-next"), gate_form="sigmoid", lower_bound=-5),
    Block(attention=_HEADS), Block(attention=_HEADS, norm="rms", order="post", activation="silu", gated=True),
    Block(attention=_HEADS, parallel=True), Block(attention=_HEADS, order="inner"), Gradient(_HEADS),
    *(Gradient(Attention(**fields)) for fields in (
        {"softcap": 3}, {"sink": "given"}, {"heads": 4, "kv_heads": 2}, {"dropout": 0.1}, {"qk_norm": "rms"},
        {"position": Rotary()}, {"scale": 0.3, "bias": True})),
    *(Gradient(replace(LinearAttention.named(name), state="kv")) for name in ("qwen3-next", "comba", "mamba2")),
)  # fmt: skip
#: What fitted numbers are replaced with in the sentences of families.
_NUMBER = "0.5"


def _of_attention(spec: Attention) -> Iterator[tuple[str, str]]:
    """Yield the step and the sentence of each mistake of a specification, also with projections."""
    needed = needed_by(spec)
    flow = attention_output.subject(spec).flow
    own = frozenset({*"qkv", *needed, *(("doc_q", "doc_k") if spec.documents else ())})
    inputs = own - set("qkv") | (frozenset({"x", "w_in", "b_in", "w_o"}) if spec.packed else _WEIGHTS)
    more = own | {"bias", "doc_q", "doc_k", "g_q", "g_k", "g_v", "beta_q", "beta_k"}
    for given in (own, frozenset(more), inputs):
        names = frozenset(given)
        for mistake in (*yield_known_mistakes(spec, names), *flow.further(names), *flow.constants(names)):
            yield mistake.step, mistake.cause
    every = (*families(spec), *families_of_heads(spec))
    yield from ((family.step, family.words.format(_NUMBER)) for family in every)


def _of_definition(spec: Any) -> Iterator[tuple[str, str]]:
    """Yield the step and the sentence of each mistake of a definition."""
    for subject in islice(definitions_of(spec), 2):
        names = frozenset(i.name for i in subject.inputs)
        for mistake in (*subject.flow.mistakes(names), *subject.flow.further(names), *subject.flow.constants(names)):
            yield mistake.step, mistake.cause
        for family in subject.flow.families(names):
            yield family.step, family.words.format(_NUMBER)


def _without(sentences_: Iterator[tuple[str, str]]) -> list[str]:
    """Return the sentences that no line of the registry reads."""
    return sorted({cause for step, cause in sentences_ if reports.Fault(step, cause, "").code is None})


@pytest.mark.deep
def test_every_mistake_of_the_corpus_has_a_code() -> None:
    listed = printed_json("faults", "list", "-f", "json")["faults"]
    of_families = {entry["family"]: entry["specification"] for entry in listed}
    assert len(of_families) > 10
    for texts in of_families.values():
        fields: dict[str, Any] = {}
        for name, text in texts.items():
            try:
                fields[name] = literal_eval(text)
            except ValueError:  # a position by its word
                fields[name] = field_of(Attention, name, text, name)
        assert _without(_of_attention(Attention(**fields))) == [], texts


@pytest.mark.deep
@pytest.mark.parametrize("spec", _SPECIFICATIONS, ids=repr)
def test_every_mistake_of_a_specification_has_a_code(spec: Attention) -> None:
    assert _without(_of_attention(spec)) == []


@pytest.mark.parametrize("spec", _DEFINITIONS, ids=repr)
def test_every_mistake_of_a_definition_has_a_code(spec: Any) -> None:
    assert _without(_of_definition(spec)) == []


def _yield_neighbours(spec: Any) -> Iterator[Any]:
    """Yield the definitions that differ in one field which takes words, or is true or false."""
    # Gradients have a single field: the definition that they are taken of.
    of = getattr(spec, "attention", None) if isinstance(spec, Gradient) else None
    if of is not None:
        for neighbour in _yield_neighbours(of):
            with suppress(InputError):
                list(islice(definitions_of(Gradient(neighbour)), 2))
                yield Gradient(neighbour)
        return
    for field, types in annotated(type(spec)).items():
        choices = (False, True) if bool in types else words_of(types)
        for choice in choices:
            # Some fields need others, and some definitions are not verified.
            with suppress(InputError):
                neighbour = replace(spec, **{field: choice})
                list(islice(definitions_of(neighbour), 2))
                yield neighbour


@pytest.mark.deep
@pytest.mark.parametrize("spec", _DEFINITIONS, ids=repr)
def test_every_mistake_has_a_code_whatever_a_field_says(spec: Any) -> None:
    without = {neighbour: _without(_of_definition(neighbour)) for neighbour in _yield_neighbours(spec)}
    assert {repr(neighbour): sentences for neighbour, sentences in without.items() if sentences} == {}


def _registered() -> list[tuple[str, str, str]]:
    """The step, the code and the sentence of each line of the registry."""
    parts = re.split("^# (.*)\n", REGISTRY.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    lines = [(step, line) for step, text in zip(parts[::2], parts[1::2], strict=True) for line in text.splitlines()]
    return [(step, *line.partition(" @ ")[0].split(maxsplit=1)) for step, line in lines if line]


def test_codes_are_in_kebab_case_and_stand_under_a_step() -> None:
    lines = _registered()
    assert all(re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", code) for _, code, _ in lines)
    assert {step for step, _, _ in lines} <= {*BLAMED, "any"}
    assert len({(code, step) for step, code, _ in lines}) == len({code for _, code, _ in lines})


def test_no_sentence_stands_twice_at_one_step() -> None:
    lines = [(words, step) for step, _, words in _registered()]
    assert len(lines) == len({*lines})


def test_codes_change_only_on_purpose() -> None:
    """A code that is gone or new belongs into the file, with a reason in the commit: baselines rest on codes."""
    frozen = [line.split("\t")[0] for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    listed = sorted({entry["code"] for entry in printed_json("faults", "codes", "-f", "json")["codes"]})
    assert frozen == listed == sorted({*(code for _, code, _ in _registered()), *_codes_of_arrays()})


def _codes_of_arrays() -> list[str]:
    return [code for row in ARRAYS.values() for code in row.codes.split()]


@pytest.mark.parametrize("row", [row for row in ARRAYS.values() if row.codes], ids=lambda row: row.noun)
def test_mistakes_that_follow_from_a_noun_have_the_codes_of_its_array(row: Any) -> None:
    """They are no lines of the registry, which has those of any noun."""
    said = {
        "missing": f"{row.noun} is left out",
        "twice": f"{row.noun} is applied twice",
        "sign": f"the sign of {row.noun} is flipped",
        "off": f"{row.noun} is 0.5 times what it should be",
        "of-other-head": f"{row.noun} is that of the next head",
        "limit": f"{row.noun} is cut off above 3",
    }
    kinds = {code: next(kind for kind in said if code.endswith(f"-{kind}")) for code in row.codes.split()}
    for code, kind in kinds.items():
        (found,) = reports.Fault(row.blames, said[kind], "").codes
        assert (found.code, "term" in found.parameters) == (code, False)
        # The sentence has this code without a step, too.
        assert [alone.code for alone in reports.Fault("", said[kind], "").codes] == [code]
    lines = {(step, words) for step, _, words in _registered()}
    assert [words for words in said.values() if (row.blames, words) in lines] == []


def test_a_noun_without_codes_of_its_own_has_those_of_any_term() -> None:
    (found,) = reports.Fault("bias", "the slope is left out", "").codes
    assert found.text == "term-missing: term = the slope"


#: Sentences as they are printed, and their codes with parameters.
_READ = (
    ("scores are scaled by 1.02/√d_k", "scale-off: factor = 1.02"),
    ("scores are not scaled, where n_q > 128", "scale-missing: where = n_q > 128"),
    ("the causal mask is off by one: a query also sees the next key", "causal-shifted: by = 1"),
    ("the sum so far is not rescaled when the maximum grows (tiles of 16)", "rescale-sum: tile = 16"),
    ("keys only: halves are rotated with angles in the interleaved layout",
     "rotary-layout-mixed: angles = interleaved, of = keys"),
    ("values are squared, for the first head alone", "array-squared: of = values, only = the first head alone"),
    ("it is the gradient of a different attention: scores are not scaled", "scale-missing: of = gradient"),
    ("dq, dk and dv are 0", "output-zero: of = dq, dk and dv"),
)  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), _READ)
def test_parameters_are_read_from_the_sentence(cause: str, text: str) -> None:
    assert [code.text for code in reports.Fault("", cause, "").codes] == [text]


def test_several_outputs_that_are_0_are_listed_in_one_sentence() -> None:
    (gradient,) = definitions_of(Gradient(Attention()))
    causes = {mistake.cause for mistake in gradient.flow.constants(frozenset("qkv"))}
    assert {"dq is 0", "dq and dk are 0", "dq, dk and dv are 0"} <= causes


def test_one_sentence_has_the_code_of_its_step() -> None:
    assert [reports.Fault(step, "the bias is left out", "").code for step in ("bias", "norm")] == [
        "bias-missing", "norm-bias-missing",
    ]  # fmt: skip


#: Several mistakes in one cause, and words that are none.
_JOINED = {
    "scores are not scaled; and the mask is inverted": "scale-missing + mask-inverted",
    "scores are not scaled; or the mask is inverted": "scale-missing or mask-inverted",
    "scores are scaled by 1/d_k (as by 1/√d_k twice); and the mask is ignored": "scale-twice + mask-ignored",
    "scores are scaled by 1.02/√d_k; or the cap is 3": "scale-off or cap-off",
    "scores are not scaled, where n_q > 128; and the cap is 3": "scale-missing + cap-off",
    "open, since several mistakes fit: the mask is inverted; or scores are not scaled": "",
    "something that no rule says": "",
}


@pytest.mark.parametrize("cause", _JOINED)
def test_codes_are_joined_as_the_mistakes_are(cause: str) -> None:
    assert reports.Fault("", cause, "").code == (_JOINED[cause] or None)


def _unscaled(q: Any, k: Any, v: Any) -> Any:
    return Attention(scale=1)(q, k, v).astype(q.dtype)


@pytest.mark.deep
def test_a_fault_has_its_code_in_python_in_json_and_at_the_end_of_the_verdict() -> None:
    report = verify(_unscaled, examples=0)
    (fault,) = report.faults
    assert (fault.code, [code.text for code in fault.codes]) == ("scale-missing", ["scale-missing"])
    recorded = report.document().record["faults"][0]
    assert (recorded["code"], recorded["codes"]) == ("scale-missing", [{"code": "scale-missing", "parameters": {}}])
    verdict = " ".join(str(report).partition("\n\n")[0].splitlines()[2:])
    assert verdict.endswith(" [scale-missing].")


@pytest.mark.deep
def test_no_line_is_broken_within_a_size() -> None:
    assert not re.search(r"[nd]_[qkv]\n|[nd]_[qkv] =\n", str(verify(_unscaled, examples=0)))
