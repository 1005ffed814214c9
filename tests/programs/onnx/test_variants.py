"""What the table of variants says of ONNX: some reproduced case has what the variant has."""

from functools import cache

import pytest

from symattn import Attention, graphs
from symattn.attention.variants import AGREES, VARIANTS
from tests.programs.onnx.judging import lifting, outcomes
from tests.programs.onnx.operators import call

pytestmark = pytest.mark.onnx


def told(spec: Attention) -> frozenset[tuple[str, object]]:
    """The fields that differ from the plain ones; numbers by their type, and heads not at all."""
    plain, found = Attention(), set()
    for field in set(plain.__dataclass_fields__) - {"heads"}:
        value = getattr(spec, field)
        if value != getattr(plain, field):
            found.add((field, value if isinstance(value, (str, bool)) else ""))
    return frozenset(found)


@cache
def seen() -> tuple[frozenset[tuple[str, object]], ...]:
    calls = [call(o.case, lifting(o.case.dtype)) for o in outcomes("Attention") if o.reproduced]
    return tuple(told(graphs.attention_of(c.node, c.arrays).spec) for c in calls)


@pytest.mark.parametrize("name", [n for n in AGREES["ONNX"] if not n.startswith("rotary")])
def test_a_case_has_what_the_variant_has(name: str) -> None:
    assert any(told(VARIANTS[name].spec) <= fields | {("scale", "")} for fields in seen())


def test_rotary_embeddings_of_both_layouts_and_of_a_part() -> None:
    assert {n for n in AGREES["ONNX"] if n.startswith("rotary")} == {
        "rotary, half", "rotary, interleaved", "rotary, in part", "rotary, given tables",
    }  # fmt: skip
    names = [o.case.name for o in outcomes("RotaryEmbedding") if o.reproduced]
    assert [n for n in names if "interleaved" in n]
    assert [n for n in names if "rotary_dim" in n]
    assert [n for n in names if "interleaved" not in n]
