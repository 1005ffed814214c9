"""``derive erasing``: what is printed of fields is what the named recurrences have."""

from dataclasses import fields
from functools import cache
from typing import Any

import pytest

from symattn import LinearAttention, derive, printing

#: Fields that the derivation leaves out: norms, scales and heads.
LEFT_OUT = ("feature", "normalised", "scale", "qk_norm", "eps", "values_per_key")
MODELS = ("linear", "deltanet", "comba", "gdn2", "rwkv7", "rwkv6", "mamba2")


@cache
def printed() -> dict[str, str]:
    """The fields of each model, as the table of rules has them."""
    table = next(block for block in derive("erasing").blocks if isinstance(block, printing.Table))
    return {str(model): str(written) for (model,), (written,), *_ in table.rows}


@pytest.mark.deep
def test_every_model_has_a_row() -> None:
    assert [*printed()] == [*MODELS]


@pytest.mark.deep
@pytest.mark.parametrize("model", MODELS)
def test_the_fields_of_a_rule_are_those_of_its_name(model: str) -> None:
    named = LinearAttention.named(model)
    others: dict[str, Any] = {
        field.name: value
        for field in fields(LinearAttention)
        if field.name not in LEFT_OUT and (value := getattr(named, field.name)) != field.default
    }
    # The order is the page's own: what corrects the state stands before what lets it decay.
    expected = {f"{name}={value!r}" for name, value in others.items()} or {"none"}
    assert sorted(printed()[model].split(", ")) == sorted(expected)
