"""The specification: its fields, the names and shapes of a trace, what does not fit, and its document."""

import pickle
from dataclasses import FrozenInstanceError, fields
from fractions import Fraction
from functools import partial
from typing import Any

import array_api_strict
import numpy as np
import pytest

from symattn import Attention, InputError, kind, printing
from symattn.attention.letters_of_attention import SYMBOLS
from tests.attention.definition import Definition
from tests.attention.definitions import DEFINITIONS, H
from tests.attention.scoring_variants import VARIANTS
from tests.refusals import refuses

ARRAYS = {
    "q": np.zeros((2, 3)), "k": np.zeros((4, 3)), "v": np.zeros((4, 5)), "x": np.zeros((2, 6)), "y": np.zeros((4, 7)),
    "w_q": np.zeros((6, 4)), "w_k": np.zeros((6, 4)), "w_v": np.zeros((6, 8)), "w_o": np.zeros((8, 6)),
    "b_q": np.zeros(4), "b_k": np.zeros(4), "b_v": np.zeros(8), "b_o": np.zeros(6),
    "mask": np.ones((2, 4), dtype=bool), "keep": np.ones(4, dtype=bool),
}  # fmt: skip

EVERY = DEFINITIONS | VARIANTS


def given(names: str, **changed: Any) -> dict[str, Any]:
    return {name: ARRAYS[name] for name in names.split()} | changed


# -- traces -----------------------------------------------------------------------------------------------------------
STEPS = {
    "plain": "scores scaled weights output",
    "causal": "scores scaled masked weights output",
    "parameter-free": "q k v scores scaled weights output",
    "self with biases": "q k v scores scaled weights attended output",
    "heads": "q k v scores scaled weights attended output",
    "heads with biases": "q k v scores scaled masked weights attended output",
}


@pytest.mark.parametrize("name", STEPS)
def test_a_trace_names_its_arrays_in_order(name: str) -> None:
    definition = DEFINITIONS[name]
    trace = definition.spec.trace(**definition.given)
    assert list(trace) == [*definition.given, *STEPS[name].split()]
    assert list(SYMBOLS.keys() & trace.keys()) != []
    assert np.array_equal(trace["output"], definition.run(np.asarray))


@pytest.mark.parametrize("name", EVERY)
def test_the_document_says_the_shapes_of_the_trace(name: str) -> None:
    """The letters of every shape in the document, at the sizes of a run, are the shapes of its arrays."""
    definition = EVERY[name]
    trace = definition.spec.trace(**definition.given)
    sizes, shapes = dict[str, int](), _shapes(definition)
    assert definition.given.keys() <= shapes.keys()
    for array, letters in shapes.items():
        shape = trace[array].shape[len(trace[array].shape) - len(letters.split(" × ")) :]
        for letter, size in zip(letters.split(" × "), shape, strict=True):
            # Tokens of y may have another width than those of x: one letter d_model stands for both.
            if size > 1 and not (letter == "d_model" and "y" in definition.given):
                assert sizes.setdefault(letter, size) == size, (array, letter)
    assert definition.spec.heads == sizes.get("h", 1)


def _shapes(definition: Definition) -> dict[str, str]:
    """What the document says of the shapes of inputs and steps."""
    document = definition.spec.document(definition.given)
    (table,) = [b for b in document.blocks if isinstance(b, printing.Table)]
    shapes = {name.text: "".join(map(_letters, shape)) for (name,), _, shape in table.rows}
    steps = [b for b in document.blocks if isinstance(b, printing.Steps)][1].items
    made = definition.spec.trace(**definition.given)
    symbols = {symbol: name for name, symbol in SYMBOLS.items() if name in made}
    for step in steps:
        assert isinstance(step.formula, printing.Relation)
        words = step.reason[: step.reason.index(": ")] if ": " in step.reason else step.reason
        shapes[symbols[step.formula.first]] = "".join(map(_letters, words))
    return shapes


def _letters(x: Any) -> str:
    return x if isinstance(x, str) else printing.text(x)


@pytest.mark.parametrize("name", ["exact", "ball", "symbolic", "float16", "bfloat16"])
def test_every_array_of_a_trace_is_of_the_kind(name: str) -> None:
    definition = DEFINITIONS["heads with biases"]
    target = kind(name)
    trace = definition.spec.trace(**{n: target.lift(a) for n, a in definition.given.items()})
    for array in trace.values():
        assert array.dtype == target.dtype if isinstance(array, np.ndarray) else isinstance(array, target)
    assert trace["scores"].shape == (H, 3, 3)


def test_inputs_that_are_none_are_not_given() -> None:
    assert Attention()(ARRAYS["q"], ARRAYS["k"], ARRAYS["v"], mask=None).shape == (2, 5)


def test_a_batch_is_each_of_its_parts() -> None:
    exact = kind("exact")
    rng = np.random.default_rng(0)
    q, k, v = (exact.lift(rng.integers(-2, 3, shape)) for shape in ((2, 1, 3, 2), (4, 2, 2), (2, 4, 2, 3)))
    out = Attention(causal=True)(q, k, v)
    assert out.shape == (2, 4, 3, 3)
    for b in np.ndindex(2, 4):
        assert (out[b] == Attention(causal=True)(q[b[0], 0], k[b[1]], v[b])).all()


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definitions_use_the_standard_alone(name: str) -> None:
    """They run on array-api-strict, which has nothing but the standard, and give what they give on NumPy."""
    definition = DEFINITIONS[name]
    out = definition.spec(**{n: array_api_strict.asarray(a) for n, a in definition.given.items()})
    assert np.array_equal(np.from_dlpack(out), definition.run(np.asarray))


# -- fields -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"alignment": "left"},
            "Attention: alignment must be one of bottom-right, top-left, got 'left'; did you mean top-left?",
        ),
        ({"heads": 0}, "Attention: heads must be an integer of at least 1, got 0"),
        ({"heads": 2.0}, "Attention: heads must be an integer of at least 1, got 2.0"),
        ({"heads": True}, "Attention: heads must be an integer of at least 1, got True"),
        ({"scale": float("nan")}, "Attention: scale must be a finite number, got nan"),
        ({"scale": "1/2"}, "Attention: scale must be a finite number (1: no scaling), '1/d_k' or 'given', got '1/2'"),
        ({"scale": True}, "Attention: scale must be a finite number, got True"),
        ({"causal": "yes"}, "Attention: causal must be True or False, got 'yes'"),
    ],
)
def test_a_field_that_means_nothing_is_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        Attention(**fields)
    assert str(refusal.value) == message


def test_a_specification_is_frozen_and_comparable() -> None:
    spec = Attention(causal=True)
    with pytest.raises(FrozenInstanceError):
        spec.causal = False  # type: ignore[misc]
    assert spec == Attention(causal=True) != Attention()
    assert len({spec, Attention(causal=True), Attention()}) == 2


# -- what does not fit ------------------------------------------------------------------------------------------------
PLAIN, MASKED, PADDED, HEADS = Attention(), Attention(mask="boolean"), Attention(padding=True), Attention(heads=2)
ADDED = Attention(mask="additive")
WEIGHTS = "x w_q w_k w_v"
BAD: list[tuple[Attention, dict[str, Any], str]] = [
    (PLAIN, given("q k v", z=np.zeros((2, 2))),
     "this attention has no input z; it takes b_k, b_o, b_q, b_v, k, q, v, w_k"),
    (PLAIN, given("q k"), "attention needs q, k, v or x; missing: v"),
    (PLAIN, given("q k v w_o"), "w_o belongs to x, which is not given"),
    (PLAIN, given("x q"), "give q, k, v or x, not both"),
    (PLAIN, given("x w_q w_k"), "of w_q, w_k, w_v only w_q, w_k given; give all three or none"),
    (PLAIN, given(WEIGHTS + " b_o"), "b_o belongs to w_o, which is not given"),
    (PLAIN, given("q k v mask"), "the specification has no input 'mask'; hint: Attention(mask=…)"),
    (MASKED, given("q k v"), "the specification needs input 'mask'"),
    (HEADS, given("x"), "heads > 1 needs the projections w_q, w_k, w_v"),
    (PLAIN, given("q k v", q=[[1.0, 2.0]]), "q is a list; give an array"),
    (PLAIN, given("x", x=np.float64(3)), "x has shape (); it needs two axes or more"),
    (PLAIN, given("q k v", k=np.zeros((0, 3))), "k has shape (0, 3): an empty array has no attention"),
    (PLAIN, given("q k v", k=np.zeros((2, 4, 3)), v=np.zeros((3, 4, 5))),
     "k has shape (2, 4, 3) and v (3, 4, 5): the axes before the last two differ"),
    (Attention(heads=3), given(WEIGHTS), "w_q has 4 columns, which 3 heads do not divide"),
    (MASKED, given("q k v mask", mask=np.ones((3, 2, 4), bool)),
     "mask has shape (3, 2, 4); it needs none before the last two"),
    (MASKED, given("q k v mask", mask=np.zeros((2, 4))),
     "mask must hold booleans, True where a query may attend, got float64"),
    (ADDED, given("q k v mask"), "mask must hold numbers, not booleans, got bool"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "arrays", "message"), BAD, ids=[m[:40] for _, _, m in BAD])
def test_what_does_not_fit_is_said_in_one_line(spec: Attention, arrays: dict[str, Any], message: str) -> None:
    refuses(spec, **arrays, says=message)


@pytest.mark.parametrize("name", ["exact", "ball", "bfloat16"])
def test_shapes_of_other_kinds_are_said_as_plainly(name: str) -> None:
    lift = kind(name).lift
    with pytest.raises(InputError, match=r"q has shape \(2, 3\) and k \(4, 2\): d_k differs"):
        Attention()(lift(np.zeros((2, 3))), lift(np.zeros((4, 2))), lift(np.zeros((4, 2))))


def test_more_than_three_arrays_by_position_are_refused() -> None:
    refuses(Attention(), *[ARRAYS[n] for n in ("q", "k", "v", "mask")], says="takes q, k, v by position, got 4 arrays")


# -- what is kept -----------------------------------------------------------------------------------------------------
def test_steps_are_made_once_and_do_not_travel() -> None:
    spec = Attention(scale=Fraction(1, 2))
    assert spec.pipeline("qkv") is spec.pipeline(["v", "k", "q"])
    copied = pickle.loads(pickle.dumps(spec))
    assert (copied, vars(copied)) == (spec, {f.name: getattr(spec, f.name) for f in fields(spec)})


def test_equal_specifications_keep_their_own_numbers() -> None:
    """1/2 and 0.5 are equal, but exact numbers take the first alone."""
    for scale in (Fraction(1, 2), 0.5):
        step = next(s for s in Attention(scale=scale).pipeline("qkv") if s.name == "scaled")
        assert isinstance(step.run, partial)
        assert type(step.run.keywords["factor"]) is type(scale)
