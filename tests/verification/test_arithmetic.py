"""Contracts are told by their bits, mistakes with them, for every variant; no right kernel is accused."""

import json
from dataclasses import replace
from functools import partial
from math import sqrt
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

import symattn
from cli.main import main
from symattn import Attention, Domain, Grade, InputError, Precision, Verdict, verify
from symattn.arrays.formats import Format
from symattn.attention.variants import VARIANTS
from symattn.bounds.called_target import Argument, Convention
from symattn.bounds.contracts import Contract, family, replay
from symattn.bounds.inputs import Maker, Sizes
from symattn.bounds.reference import Variant
from symattn.verification.arithmetic import bits_of_a_call
from symattn.verification.arithmetic.ranking import Pair, Ranking, arithmetic, confirmed
from symattn.verification.arithmetic.suspects import BitSample
from tests.verification.kernels import HALF, kernel

CAUSAL = Attention(causal=True)
STORES = {
    "": "the output alone is stored",
    "w": "weights are stored",
    "s": "scores are stored",
    "sw": "scores are stored; weights are stored",
    "q": "queries are stored after they are scaled",
    "p": "exponentials are stored for the values, not for their sum, relative to a running maximum over 64 keys",
}
WRONG = {
    "scale 1.003": ({"scale": 1.003}, "scores are scaled by 1.003/√d_k"),
    "scale 1.001": ({"scale": 1.001}, "scores are scaled by 1.001/√d_k"),
    "cap 50": ({"cap": 50.0}, "scores are capped at 50, which was not requested"),
    "last key": ({"lost": True}, "the last key is dropped"),
    "edge + 1": ({"edge": 1}, "the causal mask is off by one: a query also sees the next key"),
    "edge - 1": ({"edge": -1}, "the causal mask is off by one: a query does not see its own key"),
}


def sample(dtype: str, seed: int = 0, n: int = 256, spread: float = 1.0, **kinds: object) -> BitSample:
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((n, d)) for d in (80, 80, 64))
    q, k, v = (a.astype(HALF[dtype]) for a in (q * spread, k, v))
    got = kernel(q, k, v, dtype, **kinds)  # type: ignore[arg-type]
    inputs = {name: a.astype(np.float64) for name, a in (("q", q), ("k", k), ("v", v))}
    return BitSample(CAUSAL, inputs, got.astype(np.float64), Format(dtype))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("stores", STORES)
def test_a_kernels_contract_is_the_one_that_gives_its_bits(stores: str, dtype: str) -> None:
    found = arithmetic(sample(dtype, stores=stores))
    assert found.wrong is None
    assert found.best.contract.words.startswith(STORES[stores])
    assert found.best.fits
    assert found.best.share > found.next.share + 0.005, found


_CASES = [(dtype, stores, wrong) for dtype in HALF for stores in ("", "w", "p", "s") for wrong in WRONG]


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize(("dtype", "stores", "wrong"), _CASES)
def test_a_mistake_is_named_by_bits(dtype: str, stores: str, wrong: str) -> None:
    kinds, words = WRONG[wrong]
    found = arithmetic(sample(dtype, stores=stores, **kinds))
    assert found.wrong is not None, found.words
    assert found.wrong.mistake is not None
    assert found.wrong.mistake.cause == words
    assert confirmed(found, sample(dtype, seed=1, stores=stores, **kinds))
    assert not confirmed(found, sample(dtype, seed=1, stores=stores))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("stores", ["w", *(pytest.param(s, marks=pytest.mark.deep) for s in ("s", "qw", "p"))])
@pytest.mark.parametrize(
    "constant", ["divisor", *(pytest.param(c, marks=pytest.mark.deep) for c in ("factor", "base 2", "reciprocal"))]
)
def test_a_scale_that_is_stored_is_no_mistake(constant: str, stores: str, dtype: str) -> None:
    kinds = {"constant": constant, "stores": stores}
    found = arithmetic(sample(dtype, **kinds))
    assert found.wrong is None, found.wrong.mistake
    assert found.best.fits, found.words
    assert not confirmed(found, sample(dtype, seed=1, **kinds))


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.exhaustive)])
def test_queries_times_a_scale_that_is_stored_with_scores_stored_are_an_arithmetic(dtype: str) -> None:
    """As models have it whose queries are scaled before the product."""
    given, half = sample(dtype), HALF[dtype]
    q, k, v = (given.inputs[name].astype(np.float32) for name in "qkv")

    def stored(x: np.ndarray) -> np.ndarray:
        return np.asarray(x).astype(half).astype(np.float32)

    for right in (True, False):
        c = stored(80**-0.5) * np.float32(1 if right else 1.01)
        s = np.where(np.tri(len(q), dtype=bool), stored(stored(q * c) @ k.T), -np.inf).astype(np.float32)
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        found = arithmetic(given._replace(got=stored(stored(e / e.sum(axis=-1, keepdims=True)) @ v).astype(float)))
        assert found.best.fits == right, found.words
    assert found.wrong is not None


_UNKNOWN = {
    "exponential": {"exponential": 1e-4},
    "tile": {"stores": "p", "tile": 48},
    "both": {"stores": "sp", "tile": 24, "exponential": -1e-4},
}


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "dtype", "spread"),
    [  # each kind at one spread, and each format; the others are exhaustive
        pytest.param(name, dtype, spread, marks=[] if i == k and i % 2 == j else pytest.mark.exhaustive)
        for i, name in enumerate(_UNKNOWN)
        for j, dtype in enumerate(HALF)
        for k, spread in enumerate((0.1, 1.0, 4.0))
    ],
)
def test_an_arithmetic_that_is_not_known_is_no_mistake(name: str, dtype: str, spread: float) -> None:
    draw = partial(sample, dtype, spread=spread, **_UNKNOWN[name])
    found = arithmetic(draw())
    assert found.wrong is None or not confirmed(found, draw(seed=1)), found.words


@pytest.mark.deep
def test_verify_finds_what_every_single_entry_hides() -> None:
    for scale, verdict in ((1.003, Verdict.FAULT), (1.0, Verdict.NO_FAULT)):
        f = partial(kernel, dtype="bfloat16", stores="w", scale=scale)

        def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, run: object = f) -> np.ndarray:
            return run(q, k, v)  # type: ignore[operator, no-any-return]

        report = verify(attention, CAUSAL, precision="bfloat16", examples=5)
        assert report.verdict is verdict, str(report)
        assert report.arithmetic is not None
        assert report.arithmetic.words.startswith("weights are stored")
        if report.faults:
            assert report.faults[0].cause == "scores are scaled by 1.003/√d_k"
            assert report.grade.grade is Grade.SAMPLED
            assert json.loads(report.json())["faults"][0]["grade"] == "sampled"
            words = " ".join(str(report).split())
            assert "there is no counterexample" in words
            assert "Grade: sampled." in words
        else:
            assert all(p.share <= 0.05 for p in report.power), str(report)


@pytest.mark.deep
def test_bits_are_compared_beyond_200_keys_off_all_tiles() -> None:
    def attention(wrong: dict[str, object], q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        kinds = {"stores": "w"} | (wrong if len(k) > 200 and len(k) % 64 else {})
        return kernel(q, k, v, "bfloat16", causal=False, **kinds)  # type: ignore[arg-type]

    for long, word in (({"scale": 1.004}, "scaled by 1.004"), ({"cap": 50.0}, "capped at 50")):
        report = verify(partial(attention, long), Attention(), precision="bfloat16", examples=5)
        assert [word in str(f.cause) and "where n_k = 331" in str(f.cause) for f in report.faults] == [True]
    report = verify(partial(attention, {"stores": "p"}), Attention(), precision="bfloat16", examples=5)
    assert report.verdict is Verdict.NO_FAULT
    assert report.arithmetic is not None
    assert "where n_k = 331: exponentials are stored" in report.arithmetic.words


def test_the_second_call_is_made_if_nothing_is_left_to_spend(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = SimpleNamespace(seed=0, over=False, verdict_alone=False, settled=False, bits=None, domain=None)
    one = Pair(Contract(Format("bfloat16")), None, 1.0, 1.0)

    def called(session: SimpleNamespace, rng: np.random.Generator, taken: bool, *sizes: object) -> str | None:
        made = None if taken and session.over else "a sample"
        session.over = True
        return made

    search = "symattn.verification.arithmetic.ranking.BitSearch"
    monkeypatch.setattr(bits_of_a_call, "called", called)
    monkeypatch.setattr(f"{search}.without_mistakes", Ranking((Pair(Contract(Format("bfloat16")), None, 0.5, 0.5),)))
    monkeypatch.setattr(f"{search}.among_all", lambda self, *more: Ranking((one,), one))
    monkeypatch.setattr(bits_of_a_call, "confirmed", lambda found, sample: sample == "a sample")
    found = bits_of_a_call.tried(spent)  # type: ignore[arg-type]
    assert found is not None
    assert found.sure


def test_arithmetic_alone() -> None:
    def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        return kernel(q, k, v, "float16", stores="w", causal=False)

    answer = symattn.arithmetic(attention, dtype="float16")
    assert (answer.words, answer.known, answer.cause) == ("weights are stored; in float16", True, "")
    assert answer.share > 0.98
    assert "weights are stored" in str(answer)
    record = json.loads(answer.json())
    assert record["contracts"][0]["words"] == "weights are stored"

    with pytest.raises(InputError, match="dtype is float8_e4m3fn"):
        symattn.arithmetic(attention, dtype="float8_e4m3fn")
    with pytest.raises(symattn.CannotRun, match="to compare"):
        symattn.arithmetic(attention, dtype="float16", domain=symattn.Domain(max_tokens=8))


@pytest.mark.deep
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "k.py"
    file.write_text(
        "from tests.verification.kernels import kernel\n"
        "def attention(q, k, v):\n    return kernel(q, k, v, 'bfloat16', stores='s', causal=False)\n"
    )
    assert main(["arithmetic", f"{file}:attention"]) == 0
    assert "The arithmetic: scores are stored; in bfloat16." in " ".join(capsys.readouterr().out.split())


_SIZES = Sizes(256, 256, 80, 64, d_model=80)
_FEWER = Sizes(96, 96, 32, 32, d_model=32)  # of what takes minutes otherwise
_SLOW = ("Transformer-XL", "DeBERTa", "multi-query", "grouped-query, of tokens", "rotary, latent")


def samples(name: str, dtype: str, rng: Random) -> tuple[Contract, list[BitSample]]:
    """A contract that is drawn, and what it gives in float32 on two inputs."""
    sizes = _FEWER if name in _SLOW else _SIZES
    spec = replace(VARIANTS[name].spec, lse=False)
    names, f = VARIANTS[name].names, Format(dtype)
    convention = Convention(tuple(Argument(n, n) for n in names), dtype=dtype)
    maker = Maker(spec, convention, Precision.of(dtype), Domain())
    draw = np.random.default_rng(rng.randrange(10**6))
    made = [maker.make(sizes, lambda name, shape: draw.standard_normal(shape), draw) for _ in range(2)]
    inputs = [{n: _tame(n, a, f) for n, a in one.items()} for one in made]
    contract = rng.choice(list(family(spec, frozenset(inputs[0]), f, 64)))
    return contract, [_sample(contract, spec, given) for given in inputs]


def _tame(name: str, a: np.ndarray, f: Format) -> np.ndarray:
    """Projections that leave the size of a token as it is: with others the largest score has all the weight."""
    return f.rounded(a / sqrt(a.shape[-2])) if name.startswith("w_") else a


def _sample(contract: Contract, spec: Attention, given: dict[str, np.ndarray]) -> BitSample:
    got = replay(contract, spec, given, Variant(), "float32")
    return BitSample(spec, given, got, contract.format)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "softcap" else pytest.mark.deep) for n in VARIANTS])
def test_right_kernels_are_told_and_never_accused(name: str, dtype: str) -> None:
    contract, (first, second) = samples(name, dtype, Random(name))
    assert first.got.size > 2000  # fewer tell no contract from another
    found = arithmetic(first)
    assert not confirmed(found, second), found.words
    assert found.best.share >= found.right[-1].share
    if found.best.fits:
        assert _same(found, contract), f"{contract.words}: {found.words}"


def _same(found: Ranking, contract: Contract) -> bool:
    """Whether it is the contract, or another with as many bits, within the roundings of float32."""
    its = next((p.share for p in found.right if p.contract == contract), 0.0)
    return its >= found.best.share - 0.005
