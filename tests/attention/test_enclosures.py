"""Enclosures run what the other kinds run: every definition, tiles and caches, whole models, users' programs."""

from typing import Any

import numpy as np
import pytest

from symattn.arrays.ball import Ball, precision
from symattn.arrays.enclosure import Enclosure
from tests.arrays.enclosures import BITS, outside
from tests.arrays.users import RIGHT, Program
from tests.attention.definitions import DEFINITIONS
from tests.attention.test_streaming_kinds import FORMS, run
from tests.attention.test_transformer import MODELS, ids, parameters

RNG = np.random.default_rng(3)
QKV = [RNG.integers(-6, 7, (4, 4)) / 4 for _ in range(3)]


def held(got: Any, wanted: Any, wide: float = 2.0**-30) -> None:
    """No interval misses the value, none says nothing, none is wide. Norms of a few close numbers widen them."""
    found = outside(got, wanted)
    assert found.outside == found.open == 0
    assert found.compared > 0
    assert all((x.rad <= wide).all() for x in (got if isinstance(got, list) else [got]))


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definitions(name: str) -> None:
    with precision(BITS):
        held(DEFINITIONS[name].run(Enclosure.literal), DEFINITIONS[name].run(Ball.literal))


@pytest.mark.parametrize("name", FORMS)
def test_tiles_caches_and_recurrences(name: str) -> None:
    with precision(BITS):
        held(run(name, Enclosure, whole=False), run(name, Ball, whole=False))


@pytest.mark.parametrize("program", RIGHT, ids=lambda f: f.__name__)
def test_programs_of_users(program: Program) -> None:
    with precision(BITS):
        held(program(*map(Enclosure.lift, QKV)), program(*map(Ball.lift, QKV)))


@pytest.mark.parametrize("name", MODELS)
def test_whole_models(name: str) -> None:
    model = MODELS[name]
    given = parameters(model)
    with precision(BITS):
        got, wanted = (model(**ids(model), **{n: _lifted(k, x) for n, x in given.items()}) for k in (Enclosure, Ball))
        held(got, wanted, 2.0**-10)


def _lifted(kind: Any, x: Any) -> Any:
    return x if np.asarray(x).dtype.kind in "bi" else kind.lift(x)
