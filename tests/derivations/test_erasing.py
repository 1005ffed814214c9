"""``derive erasing``: what is printed of fields is what the named recurrences have."""

from dataclasses import fields
from typing import Any

import pytest

from symattn import LinearAttention
from symattn.derivations.erasing import RULES, ErasingRule

#: Fields that the derivation leaves out: norms, scales and heads.
LEFT_OUT = ("feature", "normalised", "scale", "qk_norm", "eps", "values_per_key")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.model)
def test_the_fields_of_a_rule_are_those_of_its_name(rule: ErasingRule) -> None:
    named = LinearAttention.named(rule.model)
    others: dict[str, Any] = {
        field.name: value
        for field in fields(LinearAttention)
        if field.name not in LEFT_OUT and (value := getattr(named, field.name)) != field.default
    }
    assert rule.fields == others
