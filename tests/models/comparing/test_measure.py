"""The measurement of which side is blamed: some of its mistakes, and that it says no where the wrong side is."""

from dataclasses import replace

import pytest

from tests.models.comparing import measure

pytestmark = pytest.mark.transformers


def test_the_right_side_is_blamed_and_the_other_would_be_seen() -> None:
    seed = next(measure.backends("llama", "float32"))
    assert measure.blamed(seed) == (True, ("prefill", "eager"))
    assert not measure.blamed(replace(seed, wrong=seed.right, right=seed.wrong))[0]


@pytest.mark.deep
@pytest.mark.parametrize("kind", [measure.backends, measure.padded, measure.decoded])
def test_every_mistake_in_a_family(kind: object) -> None:
    for seed in kind("llama", "float32"):  # type: ignore[operator]
        assert measure.blamed(seed)[0], seed.name
