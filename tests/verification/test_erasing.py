"""Comba, Gated DeltaNet-2 and RWKV-7: what tokens erase along a vector of their own; wrong ones are named."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Domain, InputError, LinearAttention, Precision, Verdict, streaming, verify
from symattn.arrays.formats import Format
from symattn.bounds.linear_forms import LinearTerms, allowed
from symattn.bounds.recurrent.recurrence import Recurrence, norm_of_erasure
from symattn.bounds.recurrent.recurrent_arithmetic import RecurrentArithmetic
from symattn.bounds.recurrent.recurrent_limits import exact_values, limits
from symattn.bounds.recurrent.replays import replay
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from symattn.testing import AttentionFault, assert_close_to_exact
from symattn.verification.definitions.linear_chunk_mistakes import Chunks, compute_by_wrong_chunks
from symattn.verification.definitions.linear_ways import compute_in_form
from symattn.verification.definitions.recurrent_law import recurrences
from tests.verification.erasing_programs import MORE, by_chunks, by_tokens, draw
from tests.verification.recurrent_programs import TYPES, rounded

Array = Any
#: A few chunks of narrow heads.
SHORT = Domain(max_tokens=80, max_width=12)
MODELS = tuple(MORE)


def spec_of(model: str, **fields: Any) -> LinearAttention:
    """The recurrence of a model alone, without its norm and its scale."""
    return replace(LinearAttention.named(model), qk_norm=None, eps=0, scale=False, **fields)


def wide(given: dict[str, Array]) -> dict[str, Array]:
    return {name: np.float64(a) for name, a in given.items()}


def passed(model: str, given: dict[str, Array]) -> dict[str, Array]:
    """The inputs as a call has them: one number a token without an axis of columns."""
    columns = ("g", "beta") if model == "comba" else ()
    return {name: a[..., 0] if name in columns else a for name, a in given.items()}


def recurrence(model: str, given: dict[str, Array], state: Array) -> Recurrence:
    columns = {name: np.float64(a) for name, a in given.items()}
    (of,) = recurrences(spec_of(model, state="kv"), columns | {"initial_state": state}, Precision.of("float32"))
    return of


# -- forms -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", MODELS)
def test_all_forms_are_a_loop_in_any_layout(model: str) -> None:
    given = wide(draw(model, 9, 4, "float32", front=(2, 3), m=5))
    state = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    right, end = by_tokens(model, **given, initial_state=state)
    spec = spec_of(model, state="kv")
    call = passed(model, given)
    turned = {name: np.moveaxis(a, 1, 2) for name, a in call.items()}
    rows, last = next(definitions_of(spec, "bnhd")).ways[0](**turned, initial_state=state)
    outputs = [spec(**call, initial_state=state), (np.moveaxis(rows, 2, 1), last)]
    # Chunks of four tokens, as mistakes of chunks have them, and of all tokens.
    chunks = partial(compute_by_wrong_chunks, Chunks(), 4)
    outputs.append(compute_in_form(spec, chunks)(**given, initial_state=state))
    of = [recurrence(model, {n: a[i, j] for n, a in given.items()}, state[i, j]) for i in range(2) for j in range(3)]
    exact = [exact_values(x, size=4) for x in of]
    rows, last = np.stack([e.output for e in exact]), np.stack([e.state for e in exact])
    outputs.append((rows.reshape(right.shape), last.reshape(end.shape)))
    for output, final in outputs:
        assert np.abs(output - right).max() < 1e-13
        assert np.abs(final - end).max() < 1e-13


@pytest.mark.parametrize("before", [False, True])
def test_chunks_are_tokens(before: bool) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((7, width)) for width in (3, 3, 2, 3, 3)]
    gates, state = -rng.random((7, 3)), rng.standard_normal((3, 2))
    for g in (gates, gates[:, :1], None):
        more = arrays if g is None else [*arrays, g]
        token, chunk = (partial(x, before=before) for x in (streaming.erasing_token, streaming.erasing_chunk))
        right = streaming.scan(token, state, range(8), *more)
        for bounds in ([0, 7], [0, 3, 6, 7]):
            for got, wanted in zip(streaming.scan(chunk, state, bounds, *more), right, strict=True):
                assert np.abs(got - wanted).max() < 1e-12


def test_what_has_no_meaning_is_refused() -> None:
    plain, one = LinearAttention(feature="identity", normalised=False), np.ones((2, 3))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"erase": "gates"}, "hint: delta=True"),
        ({"delta": True, "erases": "before"}, "before its own gate"),
        ({"delta": True, "erase": "pair", "erases": "before"}, "and gate='token'"),
        ({"delta": True, "erase": "key"}, "erase must be one of"),
    ]
    for fields, words in refused:
        with pytest.raises(InputError, match=words):
            replace(plain, **fields)
    gates = spec_of("gdn2")
    calls: list[tuple[LinearAttention, dict[str, Any], str]] = [
        (plain, {"g": one[:, 0]}, "takes no g here; hint: gate='token'"),
        (plain, {"beta": one[:, 0]}, "takes no beta here; hint: delta=True"),
        (gates, {"g": one, "b": one, "w": one, "beta": one[:, 0]}, "takes no beta here; hint: erase=None"),
        (gates, {"g": one, "b": one}, "w is left out; hint: g, b, w"),
        (gates, {"g": one, "b": one, "w": one[:, :2]}, r"w \(…, n, d_v\)"),
    ]
    for spec, more, words in calls:
        with pytest.raises(InputError, match=words):
            spec(one, one, one, **more)


def test_one_rule_is_another_where_its_vectors_are_those() -> None:
    given = wide(draw("gdn2", 8, 3, "float32"))
    rng = np.random.default_rng(0)
    beta, one = rng.random(8), np.ones((8, 3))
    three = {name: given[name] for name in ("q", "k", "v", "g")}
    rule = LinearAttention(feature="identity", normalised=False, gate="feature", delta=True)
    right = rule(**three, beta=beta)
    columns = beta[:, None]
    others = {
        "vector": {"beta": beta, "p": given["k"]},
        "gates": {"b": columns * one, "w": columns * one},
        "pair": {"a": -columns * given["k"], "b": given["k"]},
    }
    for name, more in others.items():
        values = three | ({"v": columns * given["v"]} if name == "pair" else {})
        assert np.abs(replace(rule, erase=name)(**values, **more) - right).max() < 1e-14


# -- the law -----------------------------------------------------------------------------------------------------------
def test_the_norm_of_an_erasure_is_its_largest_singular_value() -> None:
    rng = np.random.default_rng(0)
    for width, size in ((2, 1.0), (5, 0.3), (16, 3.0)):
        k, p = (size * rng.standard_normal((1, width)) for _ in range(2))
        for other in (p, 0 * p, k / (k @ k.T), -k, 2 * k / (k @ k.T)):
            largest = np.linalg.norm(np.eye(width) - k.T @ other, 2)
            assert largest <= norm_of_erasure(k, other)[0] <= largest * (1 + 1e-6)


def test_the_norms_of_steps_bound_those_of_their_matrices() -> None:
    for model in MODELS:
        given = draw(model, 20, 5, "float32", decay=0.5)
        # Gates that leave next to nothing, or nothing.
        given["g"][::5] *= 100
        of = recurrence(model, given, np.zeros((5, 5))).in_steps
        for token, bound in enumerate(of.step_norms):
            decay = np.diag(np.broadcast_to(np.exp(of.gates[token]), 5))
            erased = np.outer(of.k[token], of.erased[token])
            step = decay - (erased if of.erases_before else erased @ decay)
            assert np.linalg.norm(step, 2) <= bound


def shares(found: Any, output: Array, state: Array, of: Recurrence) -> tuple[float, float]:
    """The largest errors in parts of the worst case and of the sharp limit."""
    exact = exact_values(of)
    errors = np.abs(np.float64(output) - exact.output), np.abs(np.float64(state) - exact.state)
    pairs = ((found.worst, found.worst_state), (found.sharp, found.sharp_state))
    worst, sharp = (max(float((e / np.asarray(a)).max()) for e, a in zip(errors, pair, strict=True)) for pair in pairs)
    return worst, sharp


@pytest.mark.parametrize(("model", "form"), [("comba", "bfloat16"), ("gdn2", "float16"), ("rwkv7", "float32")])
def test_right_programs_are_within_both_limits_and_wrong_ones_beyond(model: str, form: str) -> None:
    given, state = draw(model, 70, 8, form, decay=0.3), np.full((8, 8), 0.5, np.float32)
    of, out = recurrence(model, given, state), Format(form)
    how = RecurrentArithmetic(stored=None if form == "float32" else out, output=out, size=16)
    one_by_one = replace(how, order="tokens", stored=None)
    runs = [
        (one_by_one, by_tokens(model, **given, initial_state=state)),
        (how, by_chunks(model, **given, initial_state=state, stored=form)),
    ]
    for arithmetic in (how, one_by_one):
        again = replay(of, arithmetic)
        runs.append((arithmetic, (again.output, again.state)))
    for way, (output, end) in runs:
        worst, sharp = shares(limits(of, way), rounded(np.float32(output), form), end, of)
        assert 0 < worst < 1
        assert 0 < sharp < 0.5
    wrong = "erased before" if model == "gdn2" else "erased after"
    output, end = by_tokens(model, **given, initial_state=state, wrong=wrong)
    for way in (how, one_by_one):
        assert min(shares(limits(of, way), rounded(output, form), end, of)) > 2


def test_the_inverse_of_what_first_steps_erase_may_cancel() -> None:
    """Two tokens read the same sum of 0 by other roundings of (I + L)⁻¹, whose difference is the output."""
    rng = np.random.default_rng(0)
    for form, digits in (("bfloat16", 7), ("float16", 10), ("float32", 23)):
        largest, how = 0.0, RecurrentArithmetic(stored=None if form == "float32" else Format(form), output=Format(form))
        for _ in range(6):
            given = {name: np.zeros((6, width)) for name, width in {"q": 5, "k": 5, "v": 1, "a": 5, "b": 5}.items()}
            x, y, given["v"][0, 0] = 1 + rng.random(3)
            near = 1 + int(rng.integers(1, 8)) * 2.0**-digits
            given["k"][0, 0] = given["b"][1, 1] = given["b"][2, 2] = given["b"][3, 3] = given["b"][4, 4] = 1
            given["a"][1, 0] = 1
            # The third token reads nothing: a multiple of the first one's value, less as much of the second one's.
            given["a"][2, :2] = -y, y
            given["a"][3, 2], given["a"][4, 2] = x, x * near
            given["q"][5, 3:] = 1, -1
            given = {name: rounded(np.float32(a), form) for name, a in given.items()}
            given["g"] = np.zeros((6, 5), np.float32)
            of = recurrence("rwkv7", given, np.zeros((5, 1)))
            error = np.abs(by_chunks("rwkv7", **given, size=64, stored=form)[0] - exact_values(of).output)
            bounds = limits(of, how)
            assert bounds.sharp is not None
            assert (error <= np.minimum(bounds.worst, bounds.sharp)).all()
            largest = max(largest, error.max())
        assert largest > 0


def test_what_meets_a_state_before_its_gate_may_underflow() -> None:
    """The p that erases, or the q that reads, before the gate; or the gate itself."""
    one, half = np.ones((1, 1)), Format("float16")
    least = 2.0**-25 * one  # 0 in float16, as is e^−17.5
    for vector in ("p", "q", ""):
        vectors: dict[str, Any] = {"q": one, "p": 0 * one} | ({vector: least} if vector else {})
        of = Recurrence(k=one, v=0 * one, w_v=0 * one, g=-17.5 * one, beta=None, state=2.0**14 * one, **vectors,
                        reads_before=vector == "q", erases_before=vector == "p")  # fmt: skip
        bound = limits(of, RecurrentArithmetic(order="tokens", sums=half, output=half)).worst
        # What is erased is 0, and so is what is left or read.
        assert np.abs(exact_values(of).output) <= bound, vector


def test_products_that_cancel_may_underflow() -> None:
    half, n = Format("float16"), 64
    k, p, v = np.zeros((n, n)), np.zeros((n, n)), np.ones((n, 1))
    k[:-1, :-1], k[-1, -1], v[-1] = 2.0**-12, 1, 0
    p[-1, :-1] = np.tile([0.4375, 0.4375, -0.875], 21) * 2.0**-12
    of = Recurrence(0 * k, k, v, None, None, np.zeros((n, 1)), p=p, w_v=v)
    # The last token erases 0, a sum of products that are rounded to 0, 0 and −η.
    erased = half.cast(p[-1] * k[0]).sum() * (n - 1)
    bounds = limits(of, RecurrentArithmetic(size=n, sums=half, output=half))
    assert exact_values(of).state[-1, 0] == 0
    assert abs(erased) <= bounds.worst_state[-1, 0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("form", TYPES)
def test_no_drawn_program_is_beyond_a_limit(model: str, form: str) -> None:
    kinds = ((149, 16, 0.5, 0.0, 1.0), (70, 4, 0.01, 1.0, 1.0), (130, 16, 0.003, 0.0, 1.5), (96, 32, 3.0, 0.0, 1.0))
    out = Format(form)
    for seed, (n, d, decay, alike, most) in enumerate(kinds):
        given = draw(model, n, d, form, seed, decay=decay, alike=alike, most=most)
        state = np.full((d, d), 0.3, np.float32)
        of = recurrence(model, given, state)
        one_by_one = RecurrentArithmetic(order="tokens", output=out)
        runs = [(one_by_one, by_tokens(model, **given, initial_state=state))]
        for size, split in ((16, False), (64, False), (16, True)):
            # Where e^G and e^−G overflow apart, a program has no result.
            if split and decay > 1:
                continue
            how = {"size": size, "residual": size == 64}
            way = RecurrentArithmetic(
                stored=None if form == "float32" else out, output=out, system="blocks" if split else "rows", **how
            )
            runs.append((way, by_chunks(model, **given, initial_state=state, stored=form, split=split, blocks=split,
                                        **how)))  # fmt: skip
        for way, (output, end) in runs:
            worst, sharp = shares(limits(of, way), rounded(np.float32(output), form), end, of)
            assert worst < 1
            assert sharp < 0.5


def test_a_norm_of_p_may_be_taken_in_a_narrow_format() -> None:
    rng, form = np.random.default_rng(0), "float16"
    drawn = draw("comba", 40, 8, form)
    given = drawn | {x: rounded(np.float32(rng.standard_normal((40, 8)) / 4), form) for x in "qkp"}

    def unit(x: Array) -> Array:
        lengths = rounded(np.sqrt((x * x).sum(-1, keepdims=True) + np.float32(1e-6)), form)
        return rounded(x / lengths, form)

    normed = {**given, "k": unit(given["k"]), "p": unit(given["p"])}
    normed["q"] = unit(given["q"]) * np.float32(8**-0.5)
    output = by_tokens("comba", **normed)[0].astype(np.float16)
    call = {name: a if name == "g" else a.astype(np.float16) for name, a in passed("comba", given).items()}
    comba = LinearAttention.named("comba")
    assert_close_to_exact(output, spec=comba, **call)
    bare = by_tokens("comba", **{**normed, "p": given["p"]})[0].astype(np.float16)
    with pytest.raises(AttentionFault):
        assert_close_to_exact(bare, spec=comba, **call)


def test_what_beta_multiplies_may_underflow_as_it_is_stored() -> None:
    small, large = 2.0**-13, 2.0**10
    # The second token writes nothing, and its query reads what it erases alone.
    k, q = np.array([[small, 0], [small, large]]), np.array([[0, 0], [0, large]])
    v, beta = np.array([[2.0**13], [0]]), np.array([[1], [small]])
    right = large * large * small * small**2 * v[0, 0]
    assert abs(LinearAttention(feature="identity", normalised=False, delta=True)(q, k, v, beta=beta)[1, 0]) == right
    # β k is stored as 0 where that matters, so that a program returns 0.
    assert Format("float16").cast(beta * k)[1, 0] == 0
    step = (1 + beta.max()) * (1 + v.max())
    bound = allowed(LinearTerms(q, k, beta * v, beta * k, None, step=step), Precision.of("float16", "fused"))
    assert bound is not None
    assert bound[1, 0] > right


def test_bounds_of_forms_count_the_norm_of_p() -> None:
    """Squares of a short p are 0 in float16, so that it is divided by √ε."""
    eps, short = 1e-7, 2.0**-13
    spec = replace(LinearAttention.named("comba"), gate=None, erases="after", scale=False, eps=eps)
    k, p, v, beta = np.full((2, 4), 0.5), np.full((2, 4), short), np.array([[1.0], [0]]), np.ones(2)
    inputs = {name: a.astype(np.float16) for name, a in {"q": k, "k": k, "v": v, "beta": beta, "p": p}.items()}
    forms = next(definitions_of(spec)).other_forms
    assert forms is not None
    bound = forms.bound(inputs, Precision.of("float16"))
    assert bound is not None
    right = spec(**{name: np.float64(a) for name, a in inputs.items()})
    # The second token erases what p reads of the first one's value.
    program = 1 - (p[1] @ k[1]) / eps**0.5
    assert abs(program - right[1, 0]) <= bound[0][1, 0]


def test_factors_of_first_steps_have_pivots_of_their_own() -> None:
    """A column of what is written may have a pivot that a system of the first steps lacks."""
    a = np.array([[0, 0, 0, 0, 0], [-1, 0, 0, 0, 0], [-4, -1, 0, 0, 0], [4, -1, 1, 0, 0], [1, -2, -4, -2, 0]])
    of_values = np.array([[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [-1, 1, 0, 0, 0], [4, 0, -3, 0, 0], [0, -1, -4, -4, 0]])
    k, p = np.eye(10), np.zeros((10, 10))
    p[::2, ::2], p[::2, 1::2] = a, of_values
    terms = LinearTerms(k, k, np.ones((10, 1)), p, None)
    one, two = (allowed(replace(terms, steps=steps), Precision.of("float32")) for steps in (1, 2))
    assert one is not None
    assert two is not None
    assert (two > one)[2:].all()


@pytest.mark.parametrize("model", MODELS)
def test_closeness_judges_sequences_and_final_states(model: str) -> None:
    given = draw(model, 60, 8, "float32", front=(3,))
    parts = [by_tokens(model, **{n: a[..., lo:hi, :] for n, a in given.items()}) for lo, hi in ((0, 33), (33, 60))]
    output, states = np.concatenate([x[0] for x in parts], -2), np.stack([x[1].swapaxes(-1, -2) for x in parts])
    spec, call = spec_of(model, state="vk"), passed(model, given)
    assert_close_to_exact(output, spec=spec, **call, cu_seqlens=[0, 33, 60], final_state=states)
    with pytest.raises(AttentionFault, match="beyond what any implementation"):
        assert_close_to_exact(output, spec=spec, **call)
    last = MORE[model][1]
    with pytest.raises(InputError, match=rf"{last} has the shape \(1, 60"):
        assert_close_to_exact(output, spec=spec, **{**call, last: call[last][:1]})
    with pytest.raises(InputError, match=f"there is no input '{last}'"):
        assert_close_to_exact(output, spec=spec, **{n: a for n, a in call.items() if n != last})


def test_a_p_of_zeros_without_eps_is_refused() -> None:
    call = passed("comba", draw("comba", 4, 3, "float32"))
    call["p"] = 0 * call["p"]
    with pytest.raises(InputError, match="q, k or p has a vector of zeros"):
        assert_close_to_exact(0 * call["v"], spec=replace(LinearAttention.named("comba"), eps=0), **call)


def test_mistakes_of_chunks_of_pairs_are_mistakes() -> None:
    """The second step of a token has no gate, so that its row must have the token's."""
    given = wide(draw("rwkv7", 34, 3, "float32", decay=0.5))
    of = next(definitions_of(spec_of("rwkv7")))
    right, wrong = of.ways[0](**given), {m.cause: m.run(**given) for m in of.mistakes if "16" in m.cause}
    assert len(wrong) > 20
    for cause, output in wrong.items():
        assert np.abs(output - right).max() > 1e-6, cause
    still, by_last = (wrong[f"the state {words}"] for words in (
        "does not decay from one chunk of 16 tokens to the next",
        "decays over a chunk of 16 tokens by the gate of the last one alone",
    ))  # fmt: skip
    assert np.abs(still - by_last).max() > 1e-6


# -- verify ------------------------------------------------------------------------------------------------------------
def unit(x: Array) -> Array:
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(1e-6))


def program_of(model: str, change: Callable[..., dict[str, Array]] = dict, **how: Any) -> Callable[..., Array]:
    """A program of a model with its norm and its scale; ``change`` makes other inputs from those of the recurrence."""

    def run(**given: Array) -> Array:
        if model != "rwkv7":
            normed = ("q", "k", "p") if model == "comba" else ("q", "k")
            given |= {name: unit(given[name]) for name in normed}
            given["q"] = given["q"] * given["q"].dtype.type(given["q"].shape[-1] ** -0.5)
        if model == "comba":
            given |= {name: given[name][..., None] for name in ("g", "beta")}
        return by_tokens(model, **change(given), **how)[0]

    # The parameters by their public names.
    if model == "comba":
        return lambda q, k, v, g, beta, p: run(q=q, k=k, v=v, g=g, beta=beta, p=p)
    if model == "gdn2":
        return lambda q, k, v, g, b, w: run(q=q, k=k, v=v, g=g, b=b, w=w)
    return lambda r, w, k, v, a, b: run(q=r, g=w, k=k, v=v, a=a, b=b)


@pytest.mark.deep
@pytest.mark.parametrize("model", MODELS)
def test_right_programs_are_no_fault(model: str) -> None:
    how = Options(verdict_alone=True, layout="bhnd", domain=Domain(max_tokens=40, max_width=8), examples=4)
    assert verified(program_of(model), LinearAttention.named(model), how).verdict is Verdict.NO_FAULT


def other(**names: str) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """Inputs that are others of the same call; ``-`` in front for the other sign, ``1`` for ones."""

    def change(given: dict[str, Array]) -> dict[str, Array]:
        ones = {name: 0 * given[name] + 1 for name, x in names.items() if x == "1"}
        others = {name: -given[x[1:]] if x[0] == "-" else given[x] for name, x in names.items() if x != "1"}
        return given | ones | others

    return change


WRONG = [
    ("comba", {"wrong": "erased after"}, "the state after the token's own gate decays it, not before"),
    ("gdn2", {"change": other(b="1")}, "the erase gates b are left out"),
    ("rwkv7", {"change": other(b="-a")}, "b is left out: what a reads is subtracted along a itself"),
]
MORE_WRONG = [
    ("comba", {"change": other(p="k")}, "tokens erase along their keys, not along p"),
    ("comba", {"change": other(p="-p")}, "what is erased has the other sign"),
    ("gdn2", {"wrong": "erased before"}, "what a token replaces is read from the state before it decays"),
    ("gdn2", {"change": other(w="1")}, "the write gates w are left out"),
    ("rwkv7", {"wrong": "erased after"}, "the state after the token's own gate decays it, not before"),
    ("rwkv7", {"wrong": "sign"}, "what is erased has the other sign"),
    ("rwkv7", {"change": other(a="b", b="a")}, "a and b are exchanged"),
]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("model", "how", "cause"),
    [*WRONG, *(pytest.param(*row, marks=pytest.mark.exhaustive) for row in MORE_WRONG)],
)
def test_wrong_programs_are_named(model: str, how: dict[str, Any], cause: str) -> None:
    result = verify(program_of(model, **how), LinearAttention.named(model), layout="bhnd", domain=SHORT, examples=10)
    assert cause in " ".join(str(result).split())
