"""``assert_close_to_exact`` for linear attention with gates and the delta rule, at any length, in three formats."""

from typing import Any

import numpy as np
import pytest

from symattn import InputError, LinearAttention
from symattn.arrays.formats import Format
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.testing import AttentionFault, assert_close_to_exact
from tests.verification.recurrent_programs import KINDS, TYPES, Inputs, by_chunks, by_tokens, draw

Array = Any


def spec_of(kind: str) -> LinearAttention:
    gate, _, most, _ = KINDS[kind]
    return LinearAttention(feature="identity", normalised=False, gate=gate, delta=most is not None, scale=True)  # type: ignore[arg-type]


def judged(kind: str, form: str, given: Inputs, output: Array, state: Array | None, **changed: Any) -> str:
    """Return the words of the fault, or of the note, or ""."""
    inputs: dict[str, Any] = {"initial_state": np.float32(given.state)}
    inputs |= {} if given.g is None else {"g": np.float32(given.g)}
    inputs |= {} if given.beta is None else {"beta": np.float32(given.beta)}
    inputs |= {} if state is None else {"final_state": state}
    q, k, v = (x.astype(TYPES[form]) for x in (given.q, given.k, given.v))
    try:
        note = assert_close_to_exact(output.astype(TYPES[form]), q, k, v, spec_of(kind), **inputs | changed)
    except AttentionFault as fault:
        return str(fault)
    return note or ""


def told(kind: str, form: str, d: int) -> dict[str, Any]:
    gate, _, most, _ = KINDS[kind]
    split = "middle" if gate == "feature" else "no"
    return {"stored": form, "out": form, "delta": most is not None, "scale": d**-0.5, "split": split}


TABLE = [(kind, form) for kind in KINDS for form in TYPES]


@pytest.mark.parametrize(("kind", "form"), TABLE)
def test_right_programs_pass(kind: str, form: str) -> None:
    given, how = draw(kind, 200, 16, form), told(kind, form, 16)
    size = {"size": 64 if KINDS[kind][1] < 1 else 16}
    one_by_one = by_tokens(given, form, delta=how["delta"], scale=how["scale"])
    assert judged(kind, form, given, *one_by_one) == ""
    assert judged(kind, form, given, *by_chunks(given, **how | size)) == ""
    for inverse in ("substitution", "blocks", "general") if how["delta"] else ():
        assert judged(kind, form, given, *by_chunks(given, inverse=inverse, **how | size)) == "", inverse


@pytest.mark.deep
@pytest.mark.parametrize("form", TYPES)
@pytest.mark.parametrize(
    "wrong", ["decay after the update", "β left out", "first token of a chunk lost", "β missing in the system"]
)
def test_wrong_programs_are_refused(wrong: str, form: str) -> None:
    kind = "gated delta rule"
    given, how = draw(kind, 200, 32, form), told(kind, form, 32)
    if wrong.startswith("decay") or wrong == "β left out":
        output, state = by_tokens(given, form, wrong, scale=how["scale"])
    else:
        output, state = by_chunks(given, wrong=wrong, **how)
    assert "beyond" in judged(kind, form, given, output, state)


@pytest.mark.deep
def test_the_state_read_undecayed_is_refused() -> None:
    given = draw("gated delta rule", 200, 32, "float32")
    output, state = by_tokens(given, wrong="state read undecayed", scale=32**-0.5)
    assert "beyond what any implementation in float32 can give" in judged(
        "gated delta rule", "float32", given, output, state
    )


def test_the_state_of_another_head_is_refused_and_axes_in_front_are_heads() -> None:
    every = [draw("gated delta rule", 70, 8, "float32", seed) for seed in range(4)]
    runs = [by_tokens(given, scale=8**-0.5) for given in every]
    joined = Inputs(*(np.stack([getattr(of, n) for of in every]).reshape(2, 2, *getattr(every[0], n).shape)
                      for n in ("q", "k", "v", "g", "beta", "state")))  # fmt: skip
    output, state = (np.stack([run[i] for run in runs]).reshape(2, 2, *runs[0][i].shape) for i in (0, 1))
    assert judged("gated delta rule", "float32", joined, output, state) == ""
    words = judged("gated delta rule", "float32", joined, output, state[:, ::-1])
    assert "The worst is final_state[" in words
    assert "(…, d_k, d_v)" not in words


def test_sequences_in_one_array_have_states_of_their_own() -> None:
    first, second = (draw("gated delta rule", n, 8, "float32", n) for n in (40, 25))
    runs = [by_tokens(given, scale=8**-0.5) for given in (first, second)]
    joined = Inputs(*(np.concatenate([getattr(first, n), getattr(second, n)]) for n in ("q", "k", "v", "g", "beta")),
                    np.stack([first.state, second.state]))  # fmt: skip
    output, state = np.concatenate([run[0] for run in runs]), np.stack([run[1] for run in runs])
    packed = {"cu_seqlens": [0, 40, 65]}
    assert judged("gated delta rule", "float32", joined, output, state, **packed) == ""
    assert judged("gated delta rule", "float32", joined, output, state[::-1], **packed).startswith("In sequence 0")


@pytest.mark.deep
@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=() if form == "bfloat16" else pytest.mark.exhaustive) for form in TYPES]
)
def test_four_thousand_tokens(form: str) -> None:
    kind = "gated delta rule"
    given, how = draw(kind, 4096, 64, form), told(kind, form, 64)
    output, state = by_chunks(given, **how)
    assert judged(kind, form, given, output, state) == ""
    lost = output.copy()
    lost[3001] = output[3000]
    assert "The worst is out[3001, " in judged(kind, form, given, lost, state)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(60))
def test_no_right_program_of_a_random_kind_is_accused(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    gate, most = (None, "token", "feature")[rng.integers(3)], (None, 0.5, 1.0, 2.0)[rng.integers(4)]
    strength = float(10 ** rng.uniform(-3, 0.5)) if gate else 0.0
    monkeypatch.setitem(KINDS, "random", (gate, strength, most, float(rng.choice([0, 0.5, 1]))))
    form, d = str(rng.choice(list(TYPES))), int(rng.choice([4, 16, 32]))
    given, how = (
        draw("random", int(rng.integers(1, 200)), d, form, seed, int(rng.choice([3, d]))),
        told("random", form, d),
    )
    size = 16 if strength > 0.5 else int(rng.choice([16, 32, 64]))
    assert judged("random", form, given, *by_tokens(given, form, delta=how["delta"], scale=how["scale"])) == ""
    for inverse in ("rows", "blocks", "general", "substitution") if how["delta"] else ("rows",):
        assert judged("random", form, given, *by_chunks(given, size, inverse, **how)) == "", inverse
        output, state = by_chunks(given, size, inverse, kept=form, **how)
        assert judged("random", form, given, output, state.astype(TYPES[form])) == "", inverse


@pytest.mark.deep
def test_one_wrong_row_of_many_is_found() -> None:
    given = draw("linear", 1500, 8, "float32")
    output, state = by_tokens(given, delta=False, scale=8**-0.5)
    output[777] *= np.float32(1.001)
    assert "The worst is out[777, " in judged("linear", "float32", given, output, state)


def test_a_contract_names_the_order() -> None:
    given, how = draw("delta rule", 200, 16, "bfloat16"), told("delta rule", "bfloat16", 16)
    output, state = by_chunks(given, kept="bfloat16", **how)
    half = Format("bfloat16")
    contract = RecurrentArithmetic(stored=half, output=half, kept=half)
    assert judged("delta rule", "bfloat16", given, output, state, contract=contract) == ""
    one_by_one = RecurrentArithmetic(order="tokens", output=half)
    assert "Orders tried: token by token" in judged("delta rule", "bfloat16", given, output, state, contract=one_by_one)


def test_gates_that_split_forms_cannot_bear_are_undecided() -> None:
    given = draw("strong gates", 200, 8, "float32")
    with np.errstate(all="ignore"):
        output, state = by_chunks(given, split="first", scale=8**-0.5)
    assert not np.isfinite(output).all()
    assert "nothing is said" in judged("strong gates", "float32", given, output, state)
    calm = draw("gated delta rule", 200, 8, "float32")
    output, state = by_chunks(calm, split="first", scale=8**-0.5)
    output[3, 1] = np.nan
    assert "1 of 1600 elements are not finite" in judged("gated delta rule", "float32", calm, output, state)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"g": None}, "there is no input 'g'"),
        ({"g": np.ones((30, 1), np.float32)}, "logarithms of decays"),
        ({"initial_state": np.zeros((4, 4, 4), np.float32)}, "a state of keys by values"),
        ({"mask": np.ones((30, 30), bool)}, "no input 'mask'"),
        ({"lse": np.zeros(30)}, "softmax attention only"),
        ({"cu_seqlens": [0, 20]}, "from 0 to 30"),
        ({"rows": [30]}, "rows must be from 0 to 29"),
    ],
)
def test_arrays_that_do_not_fit(changed: dict[str, Any], words: str) -> None:
    given = draw("gated delta rule", 30, 4, "float32")
    output, _ = by_tokens(given, scale=0.5)
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        judged("gated delta rule", "float32", given, output, None, **changed)


def test_what_the_law_does_not_cover_is_refused() -> None:
    one = np.ones((2, 2), np.float32)
    for spec, words in ((LinearAttention(), "normalised"), (LinearAttention(normalised=False), "feature='elu'")):
        with pytest.raises(InputError, match=words):
            assert_close_to_exact(one, one, one, one, spec)
