"""What is read from a configuration is what the module computes, within rounding; a changed field is told apart."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from symattn.errors import InputError
from symattn.sources.configurations import FAMILIES, attention
from tests.models.seen import Seen
from tests.sources.configurations.modules import MODULES, Module

pytestmark = pytest.mark.transformers


@cache
def _seen(name: str) -> Seen:
    return MODULES[name].seen()


def seen_of(of: Module) -> Seen:
    """The layer of a model, which is made once."""
    return _seen(next(name for name, other in MODULES.items() if other is of))


@pytest.mark.parametrize("name", MODULES)
def test_the_module_computes_what_its_configuration_says(name: str) -> None:
    of = MODULES[name]
    spec = of.spec(seen_of(of))
    assert of.agrees(seen_of(of), spec)
    config = getattr(seen_of(of).layer, "config", None)
    assert config is None or attention(config, of.layer, of.kind) == spec


def told_apart(of: Module, change: Mapping[str, Any]) -> bool:
    """Whether the changed configuration does not pass: other numbers, or inputs that the weights are not."""
    try:
        return not of.agrees(seen_of(of), of.spec(seen_of(of), **change))
    except InputError as error:
        return any(word in str(error) for word in ("shape", "columns", "input", "weight"))


@pytest.mark.parametrize("name", [name for name, of in MODULES.items() if of.changes])
def test_a_changed_field_is_told_apart(name: str) -> None:
    for change in MODULES[name].changes:
        assert told_apart(MODULES[name], change), change


def test_every_family_is_held_against_a_module() -> None:
    assert set(FAMILIES) == {of.family for of in MODULES.values()}
