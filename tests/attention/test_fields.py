"""Fields of scores, masks and weights: what contradicts itself, what does not fit, what a document says of them."""

import re
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import symattn
from symattn import (
    Alibi,
    Attention,
    Block,
    Buckets,
    Disentangled,
    Domain,
    InputError,
    Latent,
    Rotary,
    Shaw,
    Transformer,
    TransformerXL,
    YarnScaling,
    kind,
    printing,
)
from symattn.attention.letters_of_attention import SYMBOLS
from tests.annotations import annotated, words_of
from tests.arrays.evaluating import compare
from tests.refusals import refuses

CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a window without a side": ({"window": 3}, "looks back from the query; hint: causal=True, or window=.left, right."),
    "a window that is none": ({"window": (None, None)}, "open on both sides hides nothing"),
    "a prefix of what is open": ({"prefix": 2}, "a prefix opens keys that a causal mask closes"),
    "a prefix in a window": ({"prefix": 2, "causal": True, "window": 2}, "closes keys that a prefix opens"),
    "a prefix in blocks": ({"prefix": 2, "causal": True, "block": 2}, "closes keys that a prefix opens"),
    "a matrix for some columns": ({"truncate": 2, "score": "general"}, "do not fit the matrices"),
    "cosines of unit vectors": ({"score": "cosine", "qk_norm": "l2"}, "normalise queries and keys themselves"),
    "distances to a latent": ({"score": "distance", "latent": Latent()}, "hint: score='dot', truncate=None"),
    "a cut latent": ({"truncate": 1, "latent": Latent()}, "hint: score='dot', truncate=None"),
    "rotations and tanh": ({"score": "additive", "position": Rotary()}, "rotations encode distances only in dot"),
    "a sink of no sum": ({"sink": "zero", "normaliser": "relu"}, "sink belongs to normaliser 'softmax'"),
    "a base of no power": ({"base": 2, "normaliser": "entmax"}, "base belongs to normaliser 'softmax'"),
    "a logarithm of no sum": ({"lse": True, "normaliser": "sigmoid"}, "lse belongs to normaliser 'softmax'"),
    "no exponential to tame": ({"stabilised": False, "normaliser": "sparsemax"}, "take exponentials"),
    "0/0 beside a sink": ({"fully_masked": "nan", "sink": "given"}, "is not 0/0 but zeros"),
    "0/0 of sigmoids": ({"fully_masked": "error", "normaliser": "sigmoid"}, "is not 0/0 but zeros"),
    "a rate of no temperature": ({"temperature_rate": 3}, "belongs to temperature; hint: temperature_rate=8192"),
    "a start of no temperature": ({"temperature_start": 0}, "belongs to temperature; hint: temperature_start=1"),
    "nothing but zeros": ({"score": "distance", "normaliser": "relu"}, "never positive"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_fields_that_contradict_each_other_are_refused_with_the_reason(name: str) -> None:
    fields, words = CONTRADICTIONS[name]
    with pytest.raises(InputError, match=words) as refusal:
        Attention(**fields)
    assert str(refusal.value).startswith("Attention: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_less_than_the_contradiction_is_accepted(name: str) -> None:
    """Each refusal needs all the fields that it names: leaving one out is no contradiction any more."""
    fields, words = CONTRADICTIONS[name]
    for some in combinations(fields, len(fields) - 1):
        said = refusal_of({f: fields[f] for f in some})
        assert not re.search(words, said)
        assert not said or set(some) & {"prefix", "window"}  # which by themselves need causal


def refusal_of(fields: dict[str, Any]) -> str:
    """What is said against the fields, if anything."""
    try:
        Attention(**fields)
    except InputError as refusal:
        return str(refusal)
    return ""


MEANINGLESS: list[tuple[dict[str, Any], str]] = [
    ({"window": 0, "causal": True}, "window must be an integer of at least 1, or (left, right)"),
    ({"window": (1, -1)}, "window must be"),
    ({"window": [1, 0]}, "window must be"),
    ({"window": True, "causal": True}, "window must be"),
    ({"block": 0}, "block must be an integer of at least 1, got 0"),
    ({"truncate": 1.5}, "truncate must be an integer of at least 1, got 1.5"),
    ({"prefix": -1, "causal": True}, "prefix must be an integer of at least 1, got -1"),
    ({"softcap": 0}, "softcap must be a finite number above 0, got 0"),
    ({"softcap": float("inf")}, "softcap must be a finite number above 0, got inf"),
    ({"base": 3}, "base must be None, for e, or 2"),
    ({"base": True}, "base must be None, for e, or 2, got True"),
    ({"dropout": 1}, "dropout must be a number of at least 0 and below 1, got 1"),
]


@pytest.mark.parametrize(("fields", "words"), MEANINGLESS, ids=lambda x: str(x)[:40])
def test_a_field_that_means_nothing(fields: dict[str, Any], words: str) -> None:
    refuses(Attention, **fields, says=words)


Q, K, V = np.ones((2, 3, 4)), np.ones((2, 5, 4)), np.ones((2, 5, 6))
TWO: dict[str, Any] = {"heads": 2}
UNFIT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"sink": np.ones(1)}, "the specification has no input 'sink'"),
    ({"sink": "given", **TWO}, {}, "the specification needs input 'sink'"),
    ({"sink": "given", **TWO}, {"sink": np.ones(3)}, "sink has shape (3,); the axis heads must have the length 2"),
    ({"scale": "given", **TWO}, {"scale": np.ones((2, 1))}, "scale has shape (2, 1); it needs one axis: h"),
    ({"dropout": 0.5}, {"drop": np.ones((3, 5))}, "drop must hold booleans"),
    ({"documents": True}, {}, "the specification needs input 'doc', or 'doc_q' and 'doc_k'"),
    ({"documents": True}, {"doc": np.ones(3, int)}, "k has shape (2, 5, 4) and doc (3,): n_k differs"),
    ({"documents": True}, {"doc_q": np.ones(3), "doc_k": np.ones(5)}, "doc_q must hold whole numbers, got float64"),
    (
        {"documents": True, "causal": True, "position": Alibi(), **TWO},
        {"doc_q": np.ones(3, int), "doc_k": np.ones(5, int)},
        "distances are counted over whole sequences; hint: doc",
    ),
    ({"score": "general"}, {"w_s": np.ones((4, 3))}, "w_s (4, 3): d_s differs"),
    ({"truncate": 5}, {}, "truncate: 5 columns of vectors that have 4"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "given", "words"), UNFIT, ids=lambda x: x if isinstance(x, str) else "")
def test_what_does_not_fit_is_said_in_one_line(fields: dict[str, Any], given: dict[str, Any], words: str) -> None:
    refuses(Attention(**fields), Q, K, V, **given, says=words)


def test_keys_may_be_wider_than_queries_where_a_matrix_stands_between() -> None:
    wide = np.ones((2, 5, 7))
    assert Attention(score="general")(Q, wide, V, w_s=np.ones((4, 7))).shape == (2, 3, 6)
    w = {"w_s": np.ones((4, 2)), "u_s": np.ones((7, 2)), "v_s": np.ones(2)}
    assert Attention(score="additive")(Q, wide, V, **w).shape == (2, 3, 6)
    assert Attention(score="additive")(x=Q, y=wide, **w).shape == (2, 3, 7)
    refuses(Attention(), Q, wide, V, says="d_k differs")


# -- documents ---------------------------------------------------------------------------------------------------------
FORMULAS: dict[str, tuple[dict[str, Any], str]] = {
    "window": ({"causal": True, "window": 4}, "i + n_k − n_q − 3 ≤ j ≤ i + n_k − n_q"),
    "sides": ({"window": (2, 1), "alignment": "top-left"}, "i − 2 ≤ j ≤ i + 1"),
    "one side": ({"window": (None, 0), "alignment": "top-left"}, "window: j ≤ i"),
    "prefix": ({"causal": True, "prefix": 3, "alignment": "top-left"}, "j < 3"),
    "cap": ({"softcap": 50}, "50tanh("),
    "sink": ({"sink": "given", "heads": 2}, "aᵢⱼ = e^(sᵢⱼ)/(e^z + Σ_ℓ e^(s_iℓ))"),
    "off by one": ({"sink": "zero"}, "aᵢⱼ = e^(sᵢⱼ)/(1 + Σ_ℓ e^(s_iℓ))"),
    "base": ({"base": 2}, "aᵢⱼ = 2^(sᵢⱼ)/(Σ_ℓ 2^(s_iℓ))"),
    "sigmoid": ({"normaliser": "sigmoid"}, "sigmoid(S′ − log(n_k))"),
    "relu_sum": ({"normaliser": "relu_sum"}, "max(sᵢⱼ, 0)"),
    "relu": ({"normaliser": "relu"}, "max(sᵢⱼ, 0)/n_k"),
    "entmax": ({"normaliser": "entmax"}, "max(sᵢⱼ/2 − τᵢ, 0)²"),
    "dropout": ({"dropout": 0.1}, "A ⊙ D/(9/10)"),
    "lse": ({"lse": True, "base": 2}, "Lᵢ = log₂(Σ_ℓ 2^(s_iℓ))"),
    "distance": ({"score": "distance"}, "‖qᵢ − kⱼ‖²/2"),
    "additive": ({"score": "additive"}, "tanh(qᵢ W_s + kⱼ U_s) v_sᵀ"),
    "1/d_k": ({"scale": "1/d_k", "truncate": 2}, "S/d_k"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_what_a_document_says_of_a_field(name: str) -> None:
    fields, words = FORMULAS[name]
    lines = printing.render(Attention(**fields).document(), "text").split()
    assert "".join(words.split()) in "".join(lines)
    assert "".join(words.split()) not in "".join(printing.render(Attention().document(), "text").split())
    assert r"\begin{document}" in printing.render(Attention(**fields).document(), "latex")


def test_steps_are_named_in_order() -> None:
    spec = Attention(heads=1, truncate=2, softcap=2, bias=True, causal=True, dropout=0.5, lse=True)
    found = spec.trace(Q[0], K[0], V[0], bias=np.zeros((3, 5)), drop=np.ones((3, 5), dtype=bool))
    steps = "q_cut k_cut scores scaled capped biased masked weights lse dropped output"
    assert list(found) == ["q", "k", "v", "bias", "drop", *steps.split()]
    assert found.keys() <= SYMBOLS.keys()
    assert "scaled" not in Attention(score="distance").trace(Q, K, V)


# -- for all sizes -----------------------------------------------------------------------------------------------------
#: What the named variants, which all run on letters (``test_variants``), are not: windows that letters can hold.
FORMS = {"window of one key": Attention(causal=True, window=1), "an open window": Attention(window=(None, 0))}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("sizes", [{"n": 1, "m": 2, "d": 1, "e": 2, "w": 1}, {"n": 2, "m": 3, "d": 1, "e": 1, "w": 2}])
def test_a_variant_for_all_sizes(name: str, sizes: dict[str, int]) -> None:
    compare(lambda **given: FORMS[name](**given), {"q": "n d", "k": "n d", "v": "n w"}, sizes)


# -- what the second result is for -------------------------------------------------------------------------------------
@pytest.mark.parametrize("fields", [{}, {"causal": True, "alignment": "top-left"}, {"scale": 1}], ids=str)
def test_parts_with_their_logarithms_make_the_whole(fields: dict[str, Any]) -> None:
    """o = Σ_t e^(L_t − L) o_t over two parts of the keys, L = log Σ_t e^(L_t): −∞ of an empty part is weight 0."""
    exact = kind("exact")
    draw = np.random.default_rng(4)
    q, k, v = (exact.lift(draw.integers(-3, 4, s) / 2) for s in ((3, 2), (5, 2), (5, 4)))
    spec = Attention(lse=True, mask="boolean", **{f: x for f, x in fields.items() if f == "scale"})
    seen = np.tri(3, 5, dtype=bool) if fields.get("causal") else np.ones((3, 5), dtype=bool)
    whole, total = spec(q, k, v, mask=seen)
    assert (whole == Attention(**fields)(q, k, v)).all()
    top, bottom = 0, 0
    for part in (slice(0, 3), slice(3, 5)):
        o, log = spec(q, k[part], v[part], mask=seen[:, part])
        weight = exact.xp.exp(log)[:, None]
        top, bottom = top + weight * o, bottom + weight
    assert (top / bottom == whole).all()
    assert (exact.xp.exp(total)[:, None] == bottom).all()


_DESCRIPTIONS = (
    Attention(),
    Rotary(),
    Alibi(),
    Buckets(),
    Shaw(most=2),
    Disentangled(span=2),
    Latent(),
    YarnScaling(factor=2, length=8),
)


@pytest.mark.parametrize("description", _DESCRIPTIONS, ids=lambda d: type(d).__name__)
def test_words_and_truth_values_are_those_of_the_annotations(description: Any) -> None:
    for name, types in annotated(type(description)).items():
        if types == (bool,):
            with pytest.raises(InputError, match=f"{name} must be True or False, got 1"):
                replace(description, **{name: 1})
        elif (words := words_of(types)) and all(isinstance(word, str) for word in words) and int not in types:
            with pytest.raises(InputError, match=f"{name} must be one of .*{words[-1]}"):
                replace(description, **{name: "another"})


# -- What arrays may hold, and what a name may be given: everything else is said in one line ---------------------------
QUERIES, KEYS, VALUES = np.ones((3, 4)), np.ones((5, 4)), np.ones((5, 2))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool, complex, object, "U3"])
def test_numbers_are_of_a_type_that_computes_in_itself(dtype: Any) -> None:
    """Integers would cut a factor 0.3 to 0, and arrays of bfloat16 in NumPy give float32."""
    with pytest.raises(InputError, match=r"^k must hold numbers in floating point, got .*"):
        Attention(scale=0.3)(QUERIES, KEYS.astype(dtype), VALUES)


def test_floats_of_other_packages_are_lifted() -> None:
    with pytest.raises(InputError, match=r"k holds bfloat16, in which NumPy does not compute; hint: symattn"):
        Attention()(QUERIES, KEYS.astype(ml_dtypes.bfloat16), VALUES)
    q, k, v = (kind("bfloat16").lift(x.tolist()) for x in (QUERIES, KEYS, VALUES))
    assert Attention()(q, k, v).dtype == ml_dtypes.bfloat16


def test_one_packed_matrix_is_for_tokens_of_one_width() -> None:
    with pytest.raises(InputError, match=r"^x has shape \(3, 4\) and y \(5, 2\): d_model differs$"):
        Attention(packed=True)(x=QUERIES, y=VALUES, w_in=np.ones((4, 6)))


def test_what_is_only_added_is_cast_and_may_be_integers() -> None:
    spec, added = Attention(bias=True, mask="additive"), np.arange(15).reshape(3, 5)
    q, k, v = (x.astype(np.float32) for x in (QUERIES, KEYS, VALUES))
    got = spec(q, k, v, bias=added, mask=-added)
    np.testing.assert_array_equal(got, spec(q, k, v, bias=added.astype(np.float32), mask=-added.astype(np.float32)))
    assert got.dtype == np.float32


TABLES, OF_KEYS = Attention(position=Rotary(given="tables")), np.ones((5, 2))
BOTH = "cos_q and sin_q belong together; hint: give both, or none"
REFUSED: list[tuple[Attention, dict[str, Any], str]] = [
    (TABLES, {"cos": OF_KEYS, "sin": OF_KEYS, "cos_q": OF_KEYS[:3]}, BOTH),
    (TABLES, {"cos": OF_KEYS, "sin": OF_KEYS, "sin_q": OF_KEYS[:3]}, BOTH),
    (Attention(), {"q": QUERIES}, "q is given twice, by position and by name"),
    (Attention(mask="boolean"), {"mask": [[True]]}, "mask is a list; give an array"),
    (Attention(scale="given"), {"scale": np.array([2])}, "scale must hold numbers in floating point, got int64"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "arrays", "message"), REFUSED)
def test_what_an_attention_is_not_given(spec: Attention, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        spec(QUERIES, KEYS, VALUES, **arrays)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    "fields",
    [
        {"scale": np.array([1, 2])}, {"score": np.array(["dot", "dot"])}, {"qk_norm": np.ones(2)}, {"base": np.ones(2)},
        {"base": 2.0}, {"softcap": 1e999}, {"scale": "1"},
    ],
)  # fmt: skip
def test_fields_that_are_no_words_or_numbers(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"^Attention: {next(iter(fields))} must be "):
        Attention(**fields)


def test_whole_numbers_of_any_size_are_finite() -> None:
    assert Attention(scale=10**400).scale == 10**400


# -- a prefix is ahead of the query ------------------------------------------------------------------------------------
@pytest.mark.parametrize("position", [Alibi(), Buckets(bidirectional=False)])
def test_a_prefix_looks_ahead_as_much_as_no_mask(position: Any) -> None:
    refuses(Attention, causal=True, prefix=2, position=position, says="hint: causal=True without a prefix, or")
    Attention(causal=True, position=position)


def test_transformer_xl_with_a_prefix_needs_rows_for_keys_ahead() -> None:
    """n_k rows would give all keys ahead the row of the distance 0."""
    spec = Attention(causal=True, prefix=3, position=TransformerXL())
    given = {"w_r": np.ones((2, 4)), "b_u": np.ones((1, 4)), "b_w": np.ones((1, 4))}
    refuses(spec, QUERIES, KEYS, VALUES, r=np.ones((5, 2)), says="r has 5 rows; 3 queries and 5 keys need 7", **given)
    assert spec(QUERIES, KEYS, VALUES, r=np.ones((7, 2)), **given).shape == (3, 2)
    with pytest.raises(InputError, match="r has 6 rows; 3 queries and 5 keys need 5 or 7"):
        Attention(causal=True, position=TransformerXL())(QUERIES, KEYS, VALUES, r=np.ones((6, 2)), **given)


@pytest.mark.parametrize(("alignment", "where"), [("bottom-right", "end"), ("top-left", "beginning")])
def test_queries_without_a_place_among_the_keys(alignment: Any, where: str) -> None:
    with pytest.raises(InputError, match=f"5 queries do not stand at the {where} of 3 keys; hint: Rotary.given='pos"):
        Attention(position=Rotary(), alignment=alignment)(np.ones((5, 2)), np.ones((3, 2)), VALUES[:3])


# -- blocks and models -------------------------------------------------------------------------------------------------
BLOCK = Block(attention=Attention(), activation=None, norm=None)


@pytest.mark.parametrize("name", ["attention.x", "attention.y", "attention.q", "cross.x", "cross.y"])
def test_a_block_gives_its_parts_their_tokens_itself(name: str) -> None:
    """Tokens by these names would be left unused, or make self-attention attend to others."""
    block = BLOCK if name.startswith("attention") else Block(attention=Attention(), cross=Attention(), activation=None)
    others = (np.ones((2, 4)),) if block.cross else ()
    with pytest.raises(InputError, match=f"^{name} is made by the block; give "):
        block(QUERIES, *others, **{name: np.ones((6, 4))})


@pytest.mark.parametrize("name", ["decoder.0.x", "decoder.y"])
def test_a_model_gives_its_blocks_their_tokens_itself(name: str) -> None:
    model = Transformer(decoder=(BLOCK,), tied=True, norm=None)
    with pytest.raises(InputError, match=rf"^decoder.0: {name[-1]} is made by the model; give tokens alone$"):
        model(np.array([0]), embedding=np.ones((5, 4)), **{name: np.ones((1, 4))})


@pytest.mark.parametrize("name", ["x", "attention_norm.gain", "mlp.w_up", "mlp.w_down"])
@pytest.mark.parametrize("dtype", [np.int64, bool])
def test_weights_of_blocks_are_numbers_that_compute(name: str, dtype: Any) -> None:
    given = {
        "x": QUERIES,
        "attention_norm.gain": np.ones(4),
        "mlp.w_up": np.ones((4, 2)),
        "mlp.w_down": np.ones((2, 4)),
    }
    given[name] = given[name].astype(dtype)
    with pytest.raises(InputError, match=f"^{name} must hold numbers in floating point, got .*"):
        Block(attention=Attention())(**given)


@pytest.mark.parametrize("part", ["attention", "cross"])
def test_a_block_has_one_result(part: str) -> None:
    parts: dict[str, Any] = {"attention": Attention(), part: Attention(lse=True)}
    with pytest.raises(InputError, match=r"Block: lse gives a second result, .*; hint: lse=False"):
        Block(**parts)


@pytest.mark.parametrize("found", [-1, 5])
def test_numbers_of_tokens_are_rows_of_the_embedding(found: int) -> None:
    """NumPy would count −1 from the end."""
    model = Transformer(decoder=(BLOCK,), tied=True, norm=None)
    with pytest.raises(InputError, match=f"^tokens holds {found}; embedding has the rows 0 to 4$"):
        model(np.array([0, found]), embedding=np.ones((5, 4)))
    assert model(np.array([0, 4]), embedding=np.ones((5, 4))).shape == (2, 5)


def test_the_encoder_has_its_own_numbers() -> None:
    model = Transformer(encoder=(BLOCK,), decoder=(Block(attention=Attention(), cross=Attention()),), tied=True)
    given = {"embedding": np.ones((5, 4)), "source_embedding": np.ones((3, 4))}
    given |= {"decoder.0.mlp.w_up": np.ones((4, 2)), "decoder.0.mlp.w_down": np.ones((2, 4))}
    with pytest.raises(InputError, match=r"^source holds 3; source_embedding has the rows 0 to 2$"):
        model(np.array([4]), np.array([3]), **given)
    assert model(np.array([4]), np.array([2]), **given).shape == (1, 5)


@pytest.mark.parametrize(
    "given",
    [
        Attention(causal=np.True_, window=np.int64(2), heads=np.uint8(4), kv_heads=np.int32(2)),
        Attention(window=(np.int64(2), None), position=Rotary(width=np.int64(4), start=np.int8(1))),
        Domain(min_tokens=np.int64(2), square=np.True_),
    ],
)
def test_integers_of_numpy_are_integers(given: Any) -> None:
    assert "np." not in repr(given)
    assert hash(given) == hash(replace(given))
    assert not any(type(getattr(given, f.name)).__module__ == "numpy" for f in fields(given))


def test_functions_take_integers_of_numpy() -> None:
    assert symattn.bound(n=np.int64(16), d_k=np.int32(4)).value == symattn.bound(n=16, d_k=4).value
    assert symattn.draw("masks", n=np.uint8(3)).svg() == symattn.draw("masks", n=3).svg()
    with pytest.raises(InputError, match=r"^n must be an integer from 1 to 2\^24, got 0$"):
        symattn.bound(n=np.int64(0))


@pytest.mark.parametrize("number", [np.float16(0.3), np.float32(0.3), np.float64(0.3), ml_dtypes.bfloat16(0.3)])
def test_a_number_of_numpy_counts_as_the_equal_one(number: Any) -> None:
    assert repr(Attention(scale=number)) == f"Attention(scale={float(number)!r})"
    assert str(Attention(scale=number).document()) == str(Attention(scale=float(number)).document())
    assert repr(symattn.RMSNorm(eps=number)) == repr(symattn.RMSNorm(eps=float(number)))
    printed, plain = (symattn.derive("attention", d_k=2, n=2, scale=scale).text() for scale in (number, float(number)))
    assert printed == plain
