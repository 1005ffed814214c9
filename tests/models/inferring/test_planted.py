"""Mistakes of kinds that no list names are found in tiny models, and the right code is not accused."""

from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from symattn import Verdict, audit, configurations  # noqa: E402
from tests.models.inferring.measure import TOKENS, audited, faults, tokens  # noqa: E402
from tests.models.inferring.planted import PLANTS, Plant, findings, planted  # noqa: E402

pytestmark = pytest.mark.transformers
_BY_WORDS = {plant.words: plant for plant in PLANTS}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("the mask lets one future token through in one layer", "query of token 3 sees the key of the later token 4"),
        ("padding is read by attention", "the query of token 5 sees the key of token 0, which is padding"),
        ("padding is read by a recurrence", "the output of token 5 depends on padding, token 4"),
    ],
)  # fmt: skip
def test_an_audit_of_a_model_without_a_row_finds_what_it_must_not_see(words: str, said: str) -> None:
    plant = _BY_WORDS[words]
    with planted(plant):
        wrong = audited(configurations.tiny(plant.model_type), plant.padded)
    right = audited(configurations.tiny(plant.model_type), plant.padded)
    assert wrong.verdict is Verdict.FAULT
    assert any(said in line for line in faults(wrong))
    assert not faults(right)


@pytest.mark.parametrize("wrong", [True, False])
def test_padding_is_changed_in_the_first_pass_that_has_some(wrong: bool) -> None:
    model, mask = configurations.tiny("lfm2").float(), torch.ones(1, TOKENS, dtype=torch.long)
    mask[:, :5] = 0
    with planted(_BY_WORDS["padding is read by a convolution"]) if wrong else nullcontext(), audit(model) as report:
        for given in ({}, {"attention_mask": mask}):
            model(tokens(), use_cache=False, **given)
    assert bool(faults(report)) is wrong
    assert all("the output of token 5 depends on padding, token 4" in words for words in faults(report))


@pytest.mark.parametrize(
    "words",
    ["gates leave out their bias", "one key more is chosen", "the norm behind a recurrence comes before its gate"],
)
def test_a_lock_holds_gates_the_number_of_chosen_keys_and_norms_behind(words: str) -> None:
    plant = _BY_WORDS[words]
    right = configurations.lines_of(plant.model_type)
    with planted(plant):
        assert configurations.lines_of(plant.model_type) != right


@pytest.mark.exhaustive
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.words)
def test_a_planted_mistake_is_found(plant: Plant) -> None:
    assert findings(plant)
    assert not faults(audited(configurations.tiny(plant.model_type), plant.padded))
