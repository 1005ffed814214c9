"""Every promise of a ``Domain`` is kept: by all inputs that reach the function, and by the counterexample."""

import shlex
from dataclasses import fields, replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import (
    Alibi,
    Attention,
    Block,
    Cached,
    Domain,
    Gradient,
    InputError,
    LayerNorm,
    LinearAttention,
    Precision,
    Rotary,
    verify,
)
from symattn.bounds.called_target import Argument, Convention, Outcome
from symattn.bounds.case_result import Case
from symattn.bounds.inputs import Maker, Sizes
from symattn.programs.specifications import definitions_of
from symattn.verification.definitions import attention_output
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.engine import Session
from symattn.verification.reduce import reduce
from tests.faults.programs import softmax
from tests.refusals import refuses

Array = Any
TOKENS = ("x", "w_q", "w_k", "w_v", "w_o")
SPECS: tuple[tuple[Attention, tuple[str, ...]], ...] = (
    (Attention(), ("q", "k", "v")),
    (Attention(causal=True, alignment="top-left"), ("q", "k", "v")),
    (Attention(causal=True, mask="boolean"), ("q", "k", "v", "mask")),
    (Attention(padding=True, window=(5, 2)), ("q", "k", "v", "keep")),
    (Attention(mask="additive", position=Alibi(two_sided=True)), ("q", "k", "v", "mask")),
    (Attention(bias=True, softcap=2.0, position=Rotary()), ("q", "k", "v", "bias")),
    (Attention(heads=2), TOKENS),
    (Attention(heads=2, causal=True), (*TOKENS[:1], "y", *TOKENS[1:])),
)  # fmt: skip


def drawn(rng: np.random.Generator) -> Domain:
    """A domain with two or three promises, and room for several sizes."""
    choices: dict[str, Any] = {
        "max_tokens": rng.integers(20, 90), "max_width": rng.integers(16, 70), "max_abs_score": rng.integers(1, 40) / 2,
        "square": True, "same_width": True, "multiple_of": rng.choice([2, 3, 8, 16]),
        "width_multiple_of": rng.choice([2, 3, 8, 16]), "min_tokens": rng.integers(2, 18),
        "min_width": rng.integers(2, 16), "powers_of_two": True, "width_powers_of_two": True, "decoding": True,
        "square_weights": True, "contiguous": True,
    }  # fmt: skip
    told = {n: choices[n] for n in rng.choice(list(choices), rng.integers(1, 5), replace=False)}
    told = {n: x.item() if hasattr(x, "item") else x for n, x in told.items()}
    try:
        return Domain(**{"max_tokens": 40, "max_width": 33, **told})
    except InputError:
        return drawn(rng)


def broken(domain: Domain, spec: Attention, inputs: dict[str, Array]) -> str:
    """The promise that these inputs break, told without the code that makes them; empty where they keep all."""
    run = {n: np.asarray(a, dtype=None if np.asarray(a).dtype.kind in "biu" else float) for n, a in inputs.items()}
    values = {**run, **spec.trace(**run)}
    (n_q, d_k), (n_k, d_v) = values["q"].shape[-2:], values["v"].shape[-2:]
    last = next(n for n in ("biased", "positioned", "capped", "scaled") if n in values)
    told = {
        "square_weights": not domain.square_weights or "w_q" not in run or len({run[n].shape for n in TOKENS[1:]}) == 1,
        "max_abs_score": domain.max_abs_score is None or np.abs(values[last]).max() <= 1.000001 * domain.max_abs_score,
        "fully_masked_rows": domain.fully_masked_rows or np.isfinite(values.get("masked", 0.0)).any(axis=-1).all(),
    }  # fmt: skip
    of_sizes = unkept(replace(domain, square_weights=False), {"n_q": n_q, "n_k": n_k, "d_k": d_k, "d_v": d_v})
    return ", ".join([*of_sizes, *(name for name, kept in told.items() if not kept)])


def made(session: Session, seed: int) -> list[Case]:
    """Cases of all groups, drawn ones, and altered ones as the search makes them."""
    rng, source = np.random.default_rng(seed), session.subject.source
    groups = (*source.first().values(), *source.later().values())
    found = [case for group in groups for case in group(session, rng)]
    found += source.drawn(session, 20)
    altered = dict(found[-1].inputs)
    for _ in range(10):
        altered = source.altered(session, altered, rng)
        found.append(Case("altered", "", altered))
    return found


def session_of(number: int, domain: Domain) -> Session:
    (spec, names), dtype = SPECS[number % len(SPECS)], ("float32", "bfloat16", "float16")[number % 3]
    runner: Any = SimpleNamespace(convention=Convention(tuple(Argument(n, n) for n in names), dtype=dtype))
    return Session(runner, attention_output.subject(spec), Precision.of(dtype), domain, number, 0, 60.0)


@pytest.mark.parametrize("number", [*range(3), *(pytest.param(n, marks=pytest.mark.deep) for n in range(3, 30))])
def test_what_is_made_keeps_every_promise(number: int) -> None:
    domain = drawn(np.random.default_rng(number))
    session, spec = session_of(number, domain), SPECS[number % len(SPECS)][0]
    cases = made(session, number)
    taken = [c.inputs for c in cases if domain.max_abs_score is None or session.admits(c)]
    assert len(taken) > 0.5 * len(cases) > 5
    for given in taken:
        assert not broken(domain, spec, given), (domain, {n: a.shape for n, a in given.items()})
        held = {n: a for n, a in given.items() if a.dtype != bool and n != "mask"}
        assert all(np.array_equal(session.precision.input.rounded(a), a) for a in held.values())


def test_tokens_as_wide_as_in_models_leave_several_keys_a_weight() -> None:
    """Otherwise no output shows a wrong scale."""
    spec, shown = Attention(heads=4), dict[str, bool]()
    domain = Domain(square=True, min_tokens=4, min_width=48, max_width=48, square_weights=True)
    runner: Any = SimpleNamespace(convention=Convention(tuple(Argument(n, n) for n in TOKENS)))
    session = Session(runner, attention_output.subject(spec), Precision.of("float32"), domain, 1, 0, 60.0)
    for case in session.subject.source.drawn(session, 60):
        if case.name.endswith(" entries"):
            assert case.inputs["w_q"].shape == (192, 192)
            right, wrong = (np.asarray(replace(spec, scale=scale)(**case.inputs)) for scale in (48**-0.5, 96**-0.5))
            is_shown = np.abs(right - wrong).max() > 0.02 * np.abs(right).max()
            shown[case.name] = shown.get(case.name, False) or bool(is_shown)
    assert len(shown) > 3
    assert all(shown.values()), shown


class Spy:
    """Attention with a wrong scale, and all that it was called with."""

    def __init__(self, spec: Attention) -> None:
        self.spec, self.seen = spec, list[dict[str, Array]]()
        self.contiguous = True

    def plain(self, q: Array, k: Array, v: Array) -> Array:
        return self(q=q, k=k, v=v)

    def masked(self, q: Array, k: Array, v: Array, mask: Array) -> Array:
        if mask.dtype != bool:
            raise TypeError("masks are booleans")
        return self(q=q, k=k, v=v, mask=mask)

    def __call__(self, **given: Array) -> Array:
        self.seen.append({n: np.array(a) for n, a in given.items()})
        self.contiguous &= all(a.flags.c_contiguous for a in given.values())
        wide = {n: a if a.dtype == bool else np.asarray(a, dtype=float) for n, a in given.items()}
        return np.asarray(self.spec(**{**wide, "q": wide["q"] * 1.25}), dtype=given["q"].dtype)


@pytest.mark.deep
@pytest.mark.parametrize("alignment", ["top-left", "bottom-right"])
def test_rotated_queries_stand_at_places_of_keys(alignment: Any) -> None:
    """Queries beyond the last key have no angles, whichever corner they are counted from."""
    spec = Attention(causal=True, alignment=alignment, position=Rotary(given="tables"))
    names = ("q", "k", "v", "cos", "sin")
    maker = Maker(spec, Convention(tuple(Argument(n, n) for n in names)), Precision.of("float32"), Domain())
    rng = np.random.default_rng(0)
    inputs = maker.make(Sizes(6, 3, 4, 2), lambda name, shape: rng.standard_normal(shape), rng)
    assert inputs["q"].shape[-2] <= inputs["k"].shape[-2]
    spec(**inputs)


@pytest.mark.deep
@pytest.mark.parametrize(  # a drawn domain for each of three specifications, and three more by hand
    "number", [pytest.param(n, marks=() if n < 3 else pytest.mark.exhaustive) for n in range(12)]
)
def test_what_reaches_the_function_keeps_every_promise(number: int) -> None:
    spec = SPECS[number % 3][0]
    domain = drawn(np.random.default_rng(100 + number))
    spy = Spy(spec)
    told: dict[str, Any] = {"mask_arg": "mask"} if spec.mask else {}
    function = spy.masked if spec.mask else spy.plain
    report = verify(function, spec, domain=domain, layout="nd", examples=10, framework="numpy", **told)
    assert report.faults, domain
    for given in spy.seen:
        poisoned = any(not np.isfinite(given[n]).all() for n in "qkv")  # for a note beyond the domain
        readings = [given, *([{**given, "mask": ~given["mask"]}] if spec.mask else [])]  # the call is found by trial
        # whether it is right with the other alignment is asked with that one's inputs
        asked = [spec, *([replace(spec, alignment="top-left")] if spec.causal else [])]
        kept = any(not broken(domain, s, r) for s in asked for r in readings if given["q"].ndim == 2)
        assert given["q"].ndim > 2 or poisoned or kept, (domain, given["q"].shape)
    assert spy.contiguous or not domain.contiguous
    example = report.faults[0].counterexample
    assert example is not None
    dtypes = {"mask": bool}
    assert not broken(domain, spec, {n: np.array(a, dtype=dtypes.get(n, float)) for n, a in example.inputs.items()})


@pytest.mark.parametrize(
    ("promised", "held"),
    [
        ((1, 9), range(1, 10)), ((5, 40, 16), (16, 32)), ((3, 70, 1, True), (4, 8, 16, 32, 64)),
        ((1, 40, 4, True), (4, 8, 16, 32)), ((1, 40, 32, True), (32,)), ((33, 64, 1, True), (64,)),
    ],
)  # fmt: skip
def test_lengths(promised: tuple[Any, ...], held: Any) -> None:
    names = ("min_tokens", "max_tokens", "multiple_of", "powers_of_two")
    lengths = Domain(**dict(zip(names, promised, strict=False))).tokens
    assert [n for n in range(200) if n in lengths] == [*held]
    for n in range(1, 90):
        assert lengths.up(n) == min((h for h in held if h >= n), default=None)
        assert lengths.down(n) == max((h for h in held if h <= n), default=None)


@pytest.mark.parametrize("promised", [{"max_tokens": 40, "multiple_of": 3}, {"min_tokens": 33, "max_tokens": 63}])
def test_lengths_of_which_none_is_left_are_refused(promised: dict[str, int]) -> None:
    refuses(Domain, powers_of_two=True, **promised, says="Domain: ")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens = 9 is above max_tokens = 8"),
        ({"width_powers_of_two": True, "min_width": 129}, "no power of two is within max_width = 130 and from min"),
        ({"powers_of_two": True, "multiple_of": 3}, "no power of two that is a multiple of 3"),
        ({"decoding": True, "square": True}, "decoding promises n_q = 1"),
        ({"max_tokens": 10, "multiple_of": 64}, "multiple of 64"),
    ],
)  # fmt: skip
def test_promises_that_no_input_keeps_are_refused(told: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Domain(**told)


DEFINITIONS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (LayerNorm(), ("max_tokens", "max_width", "multiple_of", "width_multiple_of", "min_width", "contiguous")),
    (Rotary(), ("decoding", "width_multiple_of", "width_powers_of_two", "min_tokens")),
    (Attention(lse=True), ("square", "same_width", "width_multiple_of", "multiple_of", "decoding", "contiguous")),
    (Gradient(Attention(mask="boolean")), ("same_width", "min_width", "powers_of_two")),
    (Cached(Attention(causal=True)), ("decoding", "width_multiple_of", "same_width")),
    (LinearAttention(), ("square", "multiple_of", "width_powers_of_two")),
    (Block(attention=Attention(heads=2), activation=None), ("square_weights", "multiple_of", "width_multiple_of")),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(DEFINITIONS)))
def test_definitions_keep_every_promise(number: int) -> None:
    """The cases that are made, those at random, and what reduction makes of one of them."""
    spec, names = DEFINITIONS[number]
    subject = next(definitions_of(spec))
    for seed in range(6):
        rng = np.random.default_rng(seed)
        told = {n: getattr(_PROMISES, n) for n in rng.choice(names, 2, replace=False)}
        try:
            domain = Domain(**{"max_tokens": 40, "max_width": 48, **told})
        except InputError:
            continue
        _check_definition(subject, domain, rng)


_PROMISES = Domain(
    max_tokens=20, max_width=32, square=True, same_width=True, multiple_of=3, width_multiple_of=4, min_tokens=3,
    min_width=3, powers_of_two=False, width_powers_of_two=True, square_weights=True, contiguous=True,
)  # fmt: skip


def _session(subject: Definition, domain: Domain) -> Session:
    """A verification of a function that takes every input; it is never called."""
    convention = Convention(tuple(Argument(i.name, i.name) for i in subject.inputs))
    runner: Any = SimpleNamespace(convention=convention)
    return Session(runner, subject, Precision.of("float32"), domain, 0, 0, 60.0)


def test_far_errors_of_a_function_known_to_be_wrong_are_judged_by_the_first_way() -> None:
    """Smaller errors are judged by all ways even then, since another way may allow them."""
    ran = []

    def another(x: Any) -> Any:
        ran.append(x)
        return x + 16 - 16

    subject = Definition("", "", (Input("x", "n"),), ("output",), (lambda x: 3 * x, another), (), (), {})
    session, off = _session(subject, Domain()), 1.0
    session.runner.run = lambda inputs, memory: Outcome(  # type: ignore[method-assign]
        output=3 * inputs["x"] + off, dtype="float32", shape=inputs["x"].shape
    )
    for k in range(3):
        session.keep(session.run_case(Case("", "", {"x": np.full(2, 1.1 + k)})))
    assert [r.whole for r in session.records] == [True] * 3
    before = len(ran)
    far = session.run_case(Case("", "", {"x": np.full(2, 7.3)}))
    assert (far.finding, far.whole, len(ran)) == ("values", False, before)
    assert session.judge_by_all_ways(far).whole
    off = 1e-5
    # Of 1.3 the first way has a small bound, and of 8 none: 24 is a float.
    for number in (1.3, 8.0):
        assert session.run_case(Case("", "", {"x": np.full(2, number)})).whole


def test_inputs_that_come_again_are_not_bounded_again_and_others_are() -> None:
    session = _session(next(definitions_of(LayerNorm())), Domain())
    one = next(iter(_cases(session, np.random.default_rng(0)))).inputs
    first, again = session.legal(one), session.legal({n: a.copy() for n, a in one.items()})
    assert first.ways[0]() is again.ways[0]()
    others = [{**one, "x": one["x"] + k} for k in range(1, 9)]
    assert all(session.legal(other).ways[0]() is not first.ways[0]() for other in others)
    assert session.legal(one).ways[0]() is not first.ways[0]()  # a few calls are remembered


def _cases(session: Session, rng: np.random.Generator) -> list[Case]:
    """Those of all groups."""
    assert isinstance(session.subject, Definition)
    groups = (*session.subject.source.first().values(), session.subject.source.again)
    return [c for group in groups for c in group(session, rng)]


def _check_definition(subject: Definition, domain: Domain, rng: np.random.Generator) -> None:
    session = _session(subject, domain)
    found = [*_cases(session, rng), *session.subject.source.drawn(session, 20)]
    taken = [c for c in found if session.admits(c)]
    assert len(taken) > 0.5 * len(found) > 4
    for case in taken:
        assert not unkept(domain, subject.named(subject.sizes_of(case.inputs)))
        assert case.memory == "contiguous" or not domain.contiguous
    last = dict(taken[-1].inputs)
    seen: list[dict[str, Array]] = []

    def fails(inputs: dict[str, Array]) -> bool:
        if not subject.admitted(subject.filled(inputs, session.precision), domain):
            return False
        seen.append(inputs)
        return True

    reduce(last, fails, subject.source.axes(last), domain)
    smallest = subject.named(subject.sizes_of(seen[-1] if seen else last))
    assert not unkept(domain, smallest)
    assert smallest.get("d_k", 1) < 2 * max(domain.width_multiple_of, domain.min_width, 2)


def unkept(domain: Domain, s: dict[str, int]) -> list[str]:
    """The promises that these sizes break."""
    tokens = [s[n] for n in ("n_q", "n_k") if n in s and not (n == "n_q" and domain.decoding)]
    widths = [s[d] for d in ("d_k", "d_v") if d in s]
    told = {
        "tokens": all(domain.min_tokens <= n <= domain.max_tokens and n % domain.multiple_of == 0 for n in tokens),
        "widths": all(domain.min_width <= d <= domain.max_width and d % domain.width_multiple_of == 0 for d in widths),
        "square": len(set(tokens)) < 2 or not domain.square,
        "same_width": len(set(widths)) < 2 or not (domain.same_width or domain.square_weights),
        "powers_of_two": not domain.powers_of_two or all(bin(n).count("1") == 1 for n in tokens),
        "width_powers_of_two": not domain.width_powers_of_two or all(bin(d).count("1") == 1 for d in widths),
        "decoding": not domain.decoding or s["n_q"] == 1,
        "square_weights": not domain.square_weights or s["d_model"] == s["h"] * s["d_k"],
    }
    return [name for name, kept in told.items() if not kept]


def test_definitions_have_rows_that_see_no_key_where_they_are_promised() -> None:
    subject = next(definitions_of(Gradient(Attention(mask="boolean"))))
    for promised in (False, True):
        domain = Domain(max_tokens=9, fully_masked_rows=promised)
        session = _session(subject, domain)
        taken = [c for c in _cases(session, np.random.default_rng(0)) if session.admits(c)]
        assert len(taken) > 10
        assert any(not c.inputs["mask"].any(axis=-1).all() for c in taken) is promised


@pytest.mark.deep
@pytest.mark.parametrize("right", [True, False])
def test_definitions_are_tried_with_rows_that_see_no_key(right: bool) -> None:
    def attention(q: Array, k: Array, v: Array, mask: Array) -> tuple[Array, Array]:
        s = np.where(mask, q @ k.T / np.sqrt(q.shape[-1]).astype(q.dtype), -np.inf)
        largest = np.maximum(s.max(axis=-1), np.finfo(q.dtype).min)  # finite where no key is seen
        with np.errstate(all="ignore"):
            lse = largest + np.log(np.exp(s - largest[:, None]).sum(axis=-1))
        seen = mask.any(axis=-1, keepdims=True)
        p = np.where(seen, softmax(np.where(seen, s, 0)), 0 if right else 1 / k.dtype.type(len(k)))
        return (p @ v).astype(q.dtype), lse

    def total(q: Array, k: Array, v: Array, mask: Array) -> tuple[Array, Array]:
        return attention(q, k, v, mask)

    spec = Attention(mask="boolean", lse=True)
    told = verify(total, spec, domain=Domain(max_tokens=9, fully_masked_rows=True, max_abs_score=None), examples=5)
    assert bool(told.faults) is not right
    assert not verify(total, spec, domain=Domain(max_tokens=9), examples=5).faults


def _weights(q: Array, k: Array) -> Array:
    return softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(np.float32(q.shape[-1])))


def _cut(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
    """Cut d_model into two heads; no other width fits the reshape."""
    n, d = x.shape
    q, k, v = ((x @ w).reshape(n, 2, d // 2).swapaxes(0, 1) for w in (w_q, w_k, w_v))
    return (_weights(q, k) @ v).swapaxes(0, 1).reshape(n, d) @ w_o


def _sliced(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
    """Add two heads, whose values are cut by the width of keys."""
    d = w_q.shape[1] // 2
    heads = [slice(0, d), slice(d, 2 * d)]
    return sum(_weights(x @ w_q[:, h], x @ w_k[:, h]) @ (x @ w_v[:, h]) @ w_o[h] for h in heads)


def _uncut(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
    """Cut heads without moving their axis."""
    n, d = x.shape
    q, k, v = ((x @ w).reshape(2, n, d // 2) for w in (w_q, w_k, w_v))
    return (_weights(q, k) @ v).swapaxes(0, 1).reshape(n, d) @ w_o


def _first_head_twice(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
    d = w_q.shape[1] // 2
    heads = [slice(0, d), slice(0, d)]
    return sum(_weights(x @ w_q[:, h], x @ w_k[:, h]) @ (x @ w_v[:, h]) @ w_o[h] for h in heads)


def _by_constants(width: int, scale: float) -> Any:
    """Return a layer of two heads whose sizes stand in its code."""

    def layer(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
        q, k, v = ((x @ w).reshape(-1, 2, width).swapaxes(0, 1) for w in (w_q, w_k, w_v))
        return (softmax(q @ k.swapaxes(1, 2) * np.float32(scale)) @ v).swapaxes(0, 1).reshape(len(x), 2 * width) @ w_o

    return layer


@pytest.mark.parametrize(
    ("layer", "note", "right"),
    [
        pytest.param(_by_constants(16, 16**-0.5), "--min-width 16 --max-width 16", True, marks=pytest.mark.deep),
        pytest.param(_by_constants(20, 20**-0.5), "--min-width 20 --max-width 20", True, marks=pytest.mark.exhaustive),
        pytest.param(_by_constants(16, 32**-0.5), "--min-width 16 --max-width 16", False, marks=pytest.mark.deep),
        pytest.param(_cut, "--square-weights", True, marks=pytest.mark.deep),
        pytest.param(_sliced, "--same-width", True, marks=pytest.mark.deep),
        pytest.param(_uncut, "--square-weights", False, marks=pytest.mark.deep),
        pytest.param(_first_head_twice, "", False, marks=pytest.mark.deep),
    ],
)  # fmt: skip
def test_layers_that_take_one_width_for_granted_are_judged_there(layer: Any, note: str, right: bool) -> None:
    report = verify(layer, Attention(heads=2), examples=4)
    assert (report.exit_code == 0) is right, report
    assert note in " ".join(report.notes)


def _wrong_for_long_inputs(x: Array, w_q: Array, w_k: Array, w_v: Array, w_o: Array) -> Array:
    """Two heads of any widths, wrong by a factor beyond 128 tokens."""
    heads = zip(*(np.split(w, 2, axis=1) for w in (w_q, w_k, w_v)), np.split(w_o, 2), strict=True)
    y = sum(_weights(x @ q, x @ k) @ (x @ v) @ o for q, k, v, o in heads)
    return y if len(x) <= 128 else y * np.float32(1.5)


@pytest.mark.deep
@pytest.mark.usefixtures("no_causes")
def test_a_width_is_blamed_only_if_wrong_calls_are_right_at_equal_ones() -> None:
    # All inputs of so many tokens have heads of 4 columns for keys, and of 2 for values.
    report = verify(_wrong_for_long_inputs, Attention(heads=2), examples=4)
    assert report.exit_code == 1
    assert "--same-width" not in " ".join(report.notes)


def test_a_promise_that_a_definition_has_no_size_for_is_refused() -> None:
    for spec, promise in (
        (LayerNorm(), "square"), (Rotary(), "fully_masked_rows"), (Gradient(Attention()), "square_weights"),
        (Gradient(Attention()), "batch"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=promise.replace("_rows", "").replace("_", "-")):
            verify(softmax, spec, domain=Domain(**{promise: True}))  # type: ignore[arg-type]


def test_every_promise_is_an_option_of_the_same_name() -> None:
    from symattn_cli.main import main  # noqa: F401 (the command line is there)
    from symattn_cli.promises import PROMISES
    from symattn_cli.verify import command

    options = {p.name: p.opts for p in command.params}
    assert {f.name for f in fields(Domain)} == {*PROMISES, "fully_masked_rows"}
    assert all(options[name] == [f"--{name.replace('_', '-')}"] for name in PROMISES)
    assert "fully_masked" in options


def test_the_command_of_a_report_says_every_promise() -> None:
    from symattn.programs.child import TargetOptions
    from symattn_cli.promises import PROMISES

    domain = replace(_PROMISES, square=False, square_weights=False, decoding=True, max_abs_score=2.5, multiple_of=2,
                     powers_of_two=True, batch=True, nonfinite_forbidden=True)  # fmt: skip

    def words_of(domain: Domain) -> list[str]:
        return shlex.split(TargetOptions(domain=domain).command("f.py:f", spec=Attention()))[3:]

    words = words_of(domain)
    assert {w[2:].replace("-", "_") for w in words if w.startswith("--")} == {*PROMISES} - {"square", "square_weights"}
    assert words[words.index("--max-abs-score") + 1] == "2.5"
    assert words_of(Domain(fully_masked_rows=True)) == ["--fully-masked", "zeros"]


def test_the_name_of_a_call_says_its_own_sizes() -> None:
    """Sizes that are wanted may be changed by a promise; a fault is reported by this name."""
    spec, rng = Attention(), np.random.default_rng(0)
    convention = Convention(tuple(Argument(name, name) for name in "qkv"))
    for domain in (Domain(), Domain(min_width=16, max_width=16), Domain(square=True, multiple_of=8)):
        runner: Any = SimpleNamespace(convention=convention)
        session = Session(runner, attention_output.subject(spec), Precision.of("float32"), domain, 0, 0, 60.0)
        source = session.subject.source
        squares, wide = source.first()["shapes"](session, rng), source.later()["widths"](session, rng)
        for case in (*islice(squares, 6), *islice(wide, 2)):
            (n_q, d_k), (n_k, d_v) = (case.inputs[n].shape[-2:] for n in "qv")
            assert case.name.endswith(f"widths {d_k}, {d_v}")
            assert "×" not in case.name or case.name.startswith(f"{n_q} × {n_k}, ")
