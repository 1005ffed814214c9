"""Every mistake by rule, made in float64 by running its own variant on NumPy arrays, is another function; some of
them go through a whole verification and are named."""

import contextlib
import warnings
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention, Buckets, Domain, InputError, Latent, LinearScaling, Rotary, verify
from symattn.attention.variants import OF_MODELS, VARIANTS
from symattn.bounds.called_target import Argument, Convention
from symattn.bounds.inputs import Maker, Sizes
from symattn.bounds.reference import Variant, changed, trace
from symattn.verification.rules.families import families
from symattn.verification.rules.known_mistakes import yield_known_mistakes
from symattn.verification.rules.two_mistakes import combine_mistakes
from tests.lanes import one_row_in
from tests.refusals import WITHOUT_RESULT
from tests.steps import BLAMED

_TOKENS = ("x", "w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o")
_LATENT = Latent(queries=True, norm="rms", eps=0.25)
_LATENTS = ("x", "w_dq", "w_uq", "w_dkv", "w_uk", "w_uv", "w_kr", "w_o")
_SPECS: tuple[tuple[Attention, tuple[str, ...]], ...] = (
    (Attention(), ("q", "k", "v")),
    (Attention(scale=0.3, softcap=3, bias=True, mask="additive", causal=True), ("q", "k", "v", "bias", "mask")),
    (Attention(mask="boolean", padding=True, window=(2, 1), fully_masked="zeros"), ("q", "k", "v", "mask", "keep")),
    (Attention(heads=3, padding=True, bias=True), ("q", "k", "v", "keep", "bias")),
    (Attention(causal=True, window=3), ("q", "k", "v")),
    (Attention(causal=True, prefix=2), ("q", "k", "v")),
    (Attention(block=3), ("q", "k", "v")),
    (Attention(documents=True), ("q", "k", "v", "doc")),
    (Attention(documents=True), ("q", "k", "v", "doc_q", "doc_k")),
    (Attention(documents=True, causal=True), ("q", "k", "v", "doc")),
    (Attention(heads=2, causal=True, latent=_LATENT, position=Rotary()), _LATENTS),
    (Attention(heads=4, kv_heads=2, sink="given", scale="given"), ("q", "k", "v", "sink", "scale")),
    (Attention(heads=3), _TOKENS),
    (Attention(), ("x", "y", "w_q", "w_k", "w_v")),
    (Attention(heads=2, packed=True), ("x", "w_in", "b_in")),
    (Attention(qk_norm="layer", eps=0.25, heads=2), ("q", "k", "v", "g_q", "g_k", "beta_q", "beta_k")),
    (Attention(qk_norm="rms", eps=0.25, position=Rotary(width=4), causal=True), ("q", "k", "v", "g_q", "g_k")),
    (Attention(position=Rotary(layout="interleaved", base=50, given="positions")), ("q", "k", "v", "positions")),
    (Attention(position=Rotary(given="tables")), ("q", "k", "v", "cos", "sin")),
    (Attention(position=Alibi(), heads=3, causal=True, softcap=2), ("q", "k", "v")),
    (Attention(position=Alibi(slopes="given", two_sided=True), heads=3), ("q", "k", "v", "slopes")),
    (Attention(position=Buckets(number=8, max_distance=12), heads=2), ("q", "k", "v", "b_rel")),
    (Attention(position=Buckets(bidirectional=False, number=6), heads=2, causal=True), ("q", "k", "v", "b_rel")),
    (Attention(position=Buckets(number=6), heads=2, causal=True), ("q", "k", "v", "b_rel")),
    (Attention(position=Rotary(start=5000)), ("q", "k", "v")),
    (Attention(position=Rotary(scaling=LinearScaling(factor=4))), ("q", "k", "v")),
    (Attention(heads=2, bias=True), ("q", "k", "v", "bias")),
    (Attention(dropout=0.25), ("q", "k", "v", "drop")),
    (Attention(base=2, sink="zero"), ("q", "k", "v")),
    (Attention(score="cosine", scale=2), ("q", "k", "v")),
    (Attention(score="distance"), ("q", "k", "v")),
    (Attention(score="distance", truncate=2), ("q", "k", "v")),
    (Attention(normaliser="sigmoid"), ("q", "k", "v")),
    (Attention(normaliser="relu"), ("q", "k", "v")),
    (Attention(normaliser="sparsemax"), ("q", "k", "v")),
)  # fmt: skip
_SIZES = (
    Sizes(3, 5, 8, 4), Sizes(4, 4, 4, 4, d_model=4), Sizes(4, 4, 4, 4, d_model=12),
    Sizes(5, 7, 7, 3), Sizes(2, 3, 136, 2), Sizes(2, 130, 4, 1), Sizes(2, 33, 80, 2), Sizes(17, 17, 4, 2),
    Sizes(1, 260, 2, 1),
    # more queries than the largest tile, and columns that many numbers of heads share
    Sizes(130, 130, 4, 1), Sizes(3, 5, 48, 48),
)  # fmt: skip
#: More keys than the longest buffer holds, for the first specification alone.
_LONG = Sizes(1, 1030, 2, 1)
_RIGHT = Variant()
#: Batches that mistakes across them need.
_BATCHED = Sizes(3, 4, 4, 2, batch=(2, 3))
_PRECISION = "float64"


def _maker(spec: Attention, names: tuple[str, ...], layout: str = "nd") -> Maker:
    from symattn import Precision

    arguments = tuple(Argument(n, n) for n in names)
    convention = Convention(arguments, dtype=_PRECISION, layout=layout)  # type: ignore[arg-type]
    return Maker(
        spec,
        convention,
        Precision.of(_PRECISION),
        Domain(max_tokens=1100, max_width=140, fully_masked_rows=spec.padding),
    )


@cache
def _inputs(spec: Attention, names: tuple[str, ...]) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    found = []
    for sizes in (*_SIZES, _LONG) if spec == Attention() else _SIZES:
        maker = _maker(spec, names)
        made = maker.make(sizes, lambda name, shape: rng.standard_normal(shape), rng)
        if spec.bias and spec.heads > 1:
            made["bias"] = rng.standard_normal((spec.heads, *made["bias"].shape[-2:]))
        found.append(made)
    if names[:1] == ("q",) and len(names) == 3:
        maker = _maker(spec, names, "bhnd")
        found.append(maker.make(_BATCHED, lambda name, shape: rng.integers(-2, 3, shape), rng))
    if spec.padding:
        maker = _maker(spec, names, "bhnd" if spec.heads > 1 else "bnd")
        made = maker.make(Sizes(4, 4, 4, 2, batch=(2,)), lambda name, shape: rng.integers(-2, 3, shape), rng)
        found.append(made | {"keep": np.arange(4) < np.array([[4], [2]])})
    return found


def _output(spec: Attention, inputs: dict[str, Any], variant: Variant) -> Any:
    spec, given = changed(spec, inputs, variant)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(trace(spec, dict(given), variant)["output"])


def _differs(mistake: Any, spec: Attention, given: tuple[str, ...]) -> bool:
    """Whether any inputs show the mistake."""
    return any(_shows(mistake, spec, inputs) for inputs in _inputs(spec, given))


def _shows(mistake: Any, spec: Attention, inputs: dict[str, Any]) -> bool:
    names = {step.name for step in spec.pipeline(frozenset(inputs))}
    variant = mistake.variant
    own = variant.values != "v" or variant.spec or variant.inputs or names & variant.steps.keys()
    if not own:
        return False
    try:
        wrong = _output(spec, inputs, variant)
    except (KeyError, ValueError, IndexError):
        return False
    right = _output(spec, inputs, _RIGHT)
    if wrong.shape != right.shape:
        return True
    with np.errstate(invalid="ignore"):
        return bool((np.abs(wrong - right) > 1e-9).any())


@cache
def _made() -> dict[str, list[tuple[Any, Attention, tuple[str, ...]]]]:
    """Where each mistake may be made, by its words."""
    found: dict[str, list[tuple[Any, Attention, tuple[str, ...]]]] = {}
    for spec, names in _SPECS:
        for mistake in yield_known_mistakes(spec, frozenset(names)):
            found.setdefault(mistake.cause, []).append((mistake, spec, names))
    return found


@pytest.mark.deep
@pytest.mark.parametrize("step", BLAMED)
def test_a_mistake_is_another_function(step: str) -> None:
    here = {cause: places for cause, places in _made().items() if places[0][0].step == step}
    assert [cause for cause, places in here.items() if not any(_differs(*place) for place in places)] == []


def _place(mistake: Any, spec: Attention, names: frozenset[str]) -> bool:
    """Whether the specification has what the mistake changes, or cannot be run with it."""
    variant = mistake.variant
    try:
        changed_ = variant.spec(spec) if variant.spec else spec
    except InputError:
        return True
    steps = {step.name for step in changed_.pipeline(names)}
    return bool(variant.values != "v" or variant.inputs or not variant.steps or steps & variant.steps.keys())


@pytest.mark.deep
def test_what_is_shared_with_the_right_run_changes_no_bit() -> None:
    """Steps that no mistake reaches, what tiles have in common, and a mistake of many pairs are computed once."""
    spec, rng = Attention(causal=True, softcap=5.0), np.random.default_rng(2)
    given = {name: rng.normal(size=(9, 4)) for name in "qkv"}
    right = trace(spec, given)
    runs = [(_RIGHT.steps, right)]
    others = again = 0
    known = yield_known_mistakes(spec, frozenset(given))
    single = [m for m in known if m.variant.spec is None and m.variant.inputs is None]
    firsts = [next(m for m in single if [*m.variant.steps] == [step]) for step in ("scores", "weights")]
    pairs = [both for first in firsts for m in single if (both := combine_mistakes(first, m))]
    for mistake in (*single, *pairs):
        with np.errstate(all="ignore"), contextlib.suppress(*WITHOUT_RESULT):
            alone = trace(spec, {name: a.copy() for name, a in given.items()}, mistake.variant)["output"]
            shared = trace(spec, given, mistake.variant, known=runs)
            np.testing.assert_array_equal(shared["output"], alone, mistake.cause)
            others += not np.array_equal(alone, right["output"], equal_nan=True)
            again += any(
                shared[name] is runs[-1][1][name] for name in mistake.variant.steps.keys() & runs[-1][1].keys()
            )
            runs = [*runs[:1], (mistake.variant.steps, shared)] if mistake.variant.values == "v" else runs
    assert others > 300
    assert again > 200


@pytest.mark.deep
def test_no_mistake_is_in_a_step_that_its_specification_lacks() -> None:
    """Such a mistake would be no other function, and nobody who made it would be told."""
    specs = [(spec, frozenset(names)) for spec, names in _SPECS]
    rules = ((m, spec, names) for spec, names in specs for m in yield_known_mistakes(spec, names))
    assert [(m.cause, spec) for m, spec, names in rules if not _place(m, spec, names)] == []


def _absent_steps(family: Any, spec: Attention, names: frozenset[str]) -> set[str]:
    """Return the steps that a family changes and a specification lacks, or has under another name."""
    variant = family.variant(family.grid[0])
    changed_ = variant.spec(spec) if variant.spec else spec
    return {*variant.steps} - {step.name for step in changed_.pipeline(names)}


def test_no_family_names_a_step_that_its_specification_lacks() -> None:
    """A search leaves such a family out without a word, though the step may be there under another name."""
    named = [(variant.spec, variant.names) for variant in (*VARIANTS.values(), *OF_MODELS.values())]
    every = [(spec, frozenset(names)) for spec, names in (*_SPECS, *named)]
    absent = ((f.words, spec, _absent_steps(f, spec, names)) for spec, names in every for f in families(spec, names))
    assert [line for line in absent if line[-1]] == []
    another = Variant({"normed_v": lambda s, values: values["v"]})
    wrong = SimpleNamespace(grid=(0.5,), variant=lambda x: another)
    for norm in (None, "rms"):
        assert _absent_steps(wrong, Attention(value_norm=norm), frozenset("qkv")) == {"normed_v"}


@pytest.mark.deep
def test_the_rules_say_each_cause_in_words() -> None:
    order = [BLAMED.index(m.step) for m in yield_known_mistakes(Attention(), frozenset("qkv")) if not m.general]
    assert order == sorted(order)
    assert len(order) > 300
    assert all(family.step in BLAMED for spec, _ in _SPECS for family in families(spec))
    assert len(_made()) > 600


def _program(mistake: Any, spec: Attention) -> Callable[..., Any]:
    def attend(**given: Any) -> Any:
        try:
            return _output(spec, given, mistake.variant)
        except KeyError:  # there is nothing to mistake, for instance one tile only
            return _output(spec, given, _RIGHT)

    if spec.padding:
        return lambda q, k, v, keep: attend(q=q, k=k, v=v, keep=keep)
    if spec.mask:
        return lambda q, k, v, mask: attend(q=q, k=k, v=v, mask=mask)
    return lambda q, k, v: attend(q=q, k=k, v=v)


_NAMED = (
    ("the scale is applied twice", Attention(scale=0.3)),
    ("values are those of the next token", Attention()),
    ("the padding mask is left out", Attention(padding=True, causal=True)),
    ("the sum is taken before the mask", Attention(mask="boolean")),
)


@pytest.mark.deep
@pytest.mark.parametrize(("words", "spec"), one_row_in(3, _NAMED), ids=lambda x: str(x)[:40])
def test_the_variant_is_named(words: str, spec: Attention) -> None:
    names = ("q", "k", "v", *(["keep"] if spec.padding else []), *(["mask"] if spec.mask else []))
    mistake = next(m for m in yield_known_mistakes(spec, frozenset(names)) if m.cause.startswith(words))
    report = verify(_program(mistake, spec), spec, precision="float64", framework="numpy", examples=10)
    (fault,) = report.faults
    assert mistake.cause in str(fault.cause)
    assert fault.step == mistake.step or "; or " in str(fault.cause)


@pytest.mark.deep
@pytest.mark.parametrize("spec", [Attention(causal=True, position=Rotary()), Attention(heads=2, mask="boolean")])
def test_two_mistakes_of_which_one_leaves_a_step_out_end_in_numbers_or_are_put_aside(spec: Attention) -> None:
    """Values may be changed by a step that another mistake has left out of the specification."""
    names = ("q", "k", "v", "mask")[: 3 + (spec.mask is not None)]
    inputs = _maker(spec, names).make(Sizes(3, 5, 4, 4), lambda name, shape: np.ones(shape), np.random.default_rng(0))
    every = list(yield_known_mistakes(spec, frozenset(names)))
    of_values, of_fields = (
        [m for m in every if x(m)] for x in (lambda m: m.variant.values != "v", lambda m: m.variant.spec)
    )
    assert of_values
    assert of_fields
    for both in filter(None, (combine_mistakes(a, b) for a in of_values for b in of_fields)):
        with contextlib.suppress(*WITHOUT_RESULT):
            assert _output(spec, dict(inputs), both.variant).shape[-1] == 4


@pytest.mark.parametrize("heads", [3, 4, 64])
def test_each_head_may_read_the_factor_of_another_one(heads: int) -> None:
    spec, factors = Attention(heads=heads, scale="given"), np.arange(1.0, heads + 1)
    every = yield_known_mistakes(spec, frozenset(["q", "k", "v", "scale"]))
    made = [m for m in every if m.variant.inputs and "divided" not in m.cause and "of all heads" not in m.cause]
    all_read = [tuple(changed(spec, {"scale": factors}, m.variant)[1]["scale"]) for m in made]
    # Mistakes in other inputs leave the factors as they are.
    read = [factors_read for factors_read in all_read if factors_read != tuple(factors)]
    assert len(set(read)) == len(read) < 70
    assert tuple(factors[[1, 0, *range(2, heads)]]) in read
    assert {(factors[j],) * heads for j in (0, 1, heads - 1)} <= set(read)
