"""What arrays may hold, and what a name may be given: everything else is said in one line."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from symattn.arrays import kind
from symattn.attention.layers.block import Block
from symattn.attention.layers.transformer import Transformer
from symattn.attention.positions.position_fields import Alibi, Buckets, Rotary, TransformerXL
from symattn.attention.spec import Attention, check_fields
from symattn.document.errors import InputError
from tests.refusals import refuses

Q, K, V = np.ones((3, 4)), np.ones((5, 4)), np.ones((5, 2))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool, complex, object, "U3"])
def test_numbers_are_of_a_type_that_computes_in_itself(dtype: Any) -> None:
    """Integers would cut a factor 0.3 to 0, and arrays of bfloat16 in NumPy give float32."""
    with pytest.raises(InputError, match=r"^k must hold numbers in floating point, got .*"):
        Attention(scale=0.3)(Q, K.astype(dtype), V)


def test_floats_of_other_packages_are_lifted() -> None:
    with pytest.raises(InputError, match=r"k holds bfloat16, in which NumPy does not compute; hint: symattn"):
        Attention()(Q, K.astype(ml_dtypes.bfloat16), V)
    q, k, v = (kind("bfloat16").lift(x.tolist()) for x in (Q, K, V))
    assert Attention()(q, k, v).dtype == ml_dtypes.bfloat16


def test_one_packed_matrix_is_for_tokens_of_one_width() -> None:
    with pytest.raises(InputError, match=r"^x has shape \(3, 4\) and y \(5, 2\): d_model differs$"):
        Attention(packed=True)(x=Q, y=V, w_in=np.ones((4, 6)))


def test_what_is_only_added_is_cast_and_may_be_integers() -> None:
    spec, added = Attention(bias=True, mask="additive"), np.arange(15).reshape(3, 5)
    q, k, v = (x.astype(np.float32) for x in (Q, K, V))
    got = spec(q, k, v, bias=added, mask=-added)
    np.testing.assert_array_equal(got, spec(q, k, v, bias=added.astype(np.float32), mask=-added.astype(np.float32)))
    assert got.dtype == np.float32


TABLES, OF_KEYS = Attention(position=Rotary(given="tables")), np.ones((5, 2))
BOTH = "cos_q and sin_q belong together; hint: give both, or none"
REFUSED: list[tuple[Attention, dict[str, Any], str]] = [
    (TABLES, {"cos": OF_KEYS, "sin": OF_KEYS, "cos_q": OF_KEYS[:3]}, BOTH),
    (TABLES, {"cos": OF_KEYS, "sin": OF_KEYS, "sin_q": OF_KEYS[:3]}, BOTH),
    (Attention(), {"q": Q}, "q is given twice, by position and by name"),
    (Attention(mask="boolean"), {"mask": [[True]]}, "mask is a list; give an array"),
    (Attention(scale="given"), {"scale": np.array([2])}, "scale must hold numbers in floating point, got int64"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "arrays", "message"), REFUSED)
def test_what_an_attention_is_not_given(spec: Attention, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        spec(Q, K, V, **arrays)
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
    check_fields(Attention(scale=10**400))


# -- a prefix is ahead of the query ------------------------------------------------------------------------------------
@pytest.mark.parametrize("position", [Alibi(), Buckets(bidirectional=False)])
def test_a_prefix_looks_ahead_as_much_as_no_mask(position: Any) -> None:
    refuses(Attention, causal=True, prefix=2, position=position, says="hint: causal=True without a prefix, or")
    Attention(causal=True, position=position)


def test_transformer_xl_with_a_prefix_needs_rows_for_keys_ahead() -> None:
    """n_k rows would give all keys ahead the row of the distance 0."""
    spec = Attention(causal=True, prefix=3, position=TransformerXL())
    given = {"w_r": np.ones((2, 4)), "b_u": np.ones((1, 4)), "b_w": np.ones((1, 4))}
    refuses(spec, Q, K, V, r=np.ones((5, 2)), says="r has 5 rows; 3 queries and 5 keys need 7", **given)
    assert spec(Q, K, V, r=np.ones((7, 2)), **given).shape == (3, 2)
    with pytest.raises(InputError, match="r has 6 rows; 3 queries and 5 keys need 5 or 7"):
        Attention(causal=True, position=TransformerXL())(Q, K, V, r=np.ones((6, 2)), **given)


@pytest.mark.parametrize(("alignment", "where"), [("bottom-right", "end"), ("top-left", "beginning")])
def test_queries_without_a_place_among_the_keys(alignment: Any, where: str) -> None:
    with pytest.raises(InputError, match=f"5 queries do not stand at the {where} of 3 keys; hint: Rotary.given='pos"):
        Attention(position=Rotary(), alignment=alignment)(np.ones((5, 2)), np.ones((3, 2)), V[:3])


# -- blocks and models -------------------------------------------------------------------------------------------------
BLOCK = Block(attention=Attention(), activation=None, norm=None)


@pytest.mark.parametrize("name", ["attention.x", "attention.y", "attention.q", "cross.x", "cross.y"])
def test_a_block_gives_its_parts_their_tokens_itself(name: str) -> None:
    """Tokens by these names would be left unused, or make self-attention attend to others."""
    block = BLOCK if name.startswith("attention") else Block(attention=Attention(), cross=Attention(), activation=None)
    others = (np.ones((2, 4)),) if block.cross else ()
    with pytest.raises(InputError, match=f"^{name} is made by the block; give "):
        block(Q, *others, **{name: np.ones((6, 4))})


@pytest.mark.parametrize("name", ["decoder.0.x", "decoder.y"])
def test_a_model_gives_its_blocks_their_tokens_itself(name: str) -> None:
    model = Transformer(decoder=(BLOCK,), tied=True, norm=None)
    with pytest.raises(InputError, match=rf"^decoder.0: {name[-1]} is made by the model; give tokens alone$"):
        model(np.array([0]), embedding=np.ones((5, 4)), **{name: np.ones((1, 4))})


@pytest.mark.parametrize("name", ["x", "attention_norm.gain", "mlp.w_up", "mlp.w_down"])
@pytest.mark.parametrize("dtype", [np.int64, bool])
def test_weights_of_blocks_are_numbers_that_compute(name: str, dtype: Any) -> None:
    given = {"x": Q, "attention_norm.gain": np.ones(4), "mlp.w_up": np.ones((4, 2)), "mlp.w_down": np.ones((2, 4))}
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
