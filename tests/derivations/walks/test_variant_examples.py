"""The worked examples come to what loops over plain numbers give, and say how well that is known."""

from functools import cache
from typing import Any

import mpmath
import pytest

from symattn.arrays.field.quotient import Quotient
from symattn.derivations import examples
from symattn.derivations.walks import walk
from symattn.document.evidence import Grade
from tests.attention.by_loops import attention
from tests.attention.by_loops_numbers import num

#: The steps that make scores and change them: the last one gives those that weights are made of.
SCORES = ("scores", "positioned", "scaled", "capped", "masked")


@cache
def steps(name: str, latent: str | None = None) -> dict[str, dict[str, Any]]:
    """The steps of a walk's record by name."""
    fields = {"latent": latent} if latent else {}
    return {entry["name"]: entry for entry in walk(name, **fields).record["steps"]}


def numbers(entries: Any, labels: bool) -> Any:
    """Nested lists of a sheet as numbers, or as labels of documents."""
    if isinstance(entries, list):
        return [numbers(x, labels) for x in entries]
    return int(entries) if labels else num(Quotient.of(str(entries)).rational())


def flat(entries: Any) -> list[Any]:
    return [x for part in entries for x in flat(part)] if isinstance(entries, (list, tuple)) else [entries]


def near(step: dict[str, Any], wanted: Any) -> bool:
    """Whether a step has these numbers: exactly, or as many digits of them as a float holds. −∞ is left out."""
    entries = [pair for pair in zip(flat(step["exact"]), flat(step["decimal"]), strict=True) if pair[0] != "-oo"]
    for (exact, decimal), number in zip(entries, flat(wanted), strict=True):
        found = mpmath.mpf(decimal if exact is None else Quotient.of(exact).decimal(30))
        if abs(found - number) > (1e-12 if exact is None else 1e-25) * max(1, abs(number)):
            return False
    return True


@pytest.mark.parametrize(("name", "latent"), [*((name, None) for name in examples.NAMES), ("latent", "absorbed")])
def test_an_example_is_what_loops_say(name: str, latent: str | None) -> None:
    spec, found = examples.load(name).attention, steps(name, latent)
    scores = [step for step in found.values() if step["name"] in SCORES][-1]
    with mpmath.workdps(40):
        given = {n: numbers(x, n == "doc") for n, x in examples._data(name)["inputs"].items()}
        tokens = given.get("x") or (given["q"] if spec.heads == 1 else given["q"][0])
        wanted = attention(spec, {**given, "n_q": len(tokens)})
        assert near(found["output"], wanted["output"])
        assert near(scores, wanted["scores"])
        for step, right in ((found["output"], wanted["output"]), (scores, wanted["scores"])):
            assert not near(step, [x + mpmath.mpf(10) ** -9 for x in flat(right)])


def test_grades_say_how_well_a_step_is_known() -> None:
    checked = {"decoder-step": "capped", "additive": "scores", "latent": "output", "documents": "output"}
    assert all(steps(name)[step]["grade"] is Grade.CHECKED for name, step in checked.items())
    enclosed = [("decoder-step", "weights"), ("decoder-step", "output"), ("additive", "weights")]
    assert all(steps(name)[step]["grade"] is Grade.ENCLOSED for name, step in enclosed)


def test_both_ways_of_latents_are_equal_to_the_last_digit() -> None:
    one, other = steps("latent"), steps("latent", "absorbed")
    assert ("v" in one, "v" in other) == (True, False)
    assert [Quotient.of(x) for x in one["output"]["exact"][0]] == [Quotient.of(x) for x in other["output"]["exact"][0]]


@pytest.mark.parametrize("name", examples.NAMES[examples.NAMES.index("decoder-step") :])
def test_no_two_sizes_of_an_example_are_equal(name: str) -> None:
    record = walk(name).record
    main = [
        n for size, n in record["sizes"].items() if size in ("n", "n_q", "n_k", "d_model", "d_k", "d_v", "h", "h_kv")
    ]
    assert len(set(main)) == len(main), record["sizes"]
