"""The probes that are made for an attention reach the definitions that contain one."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from symattn import (
    Attention,
    Block,
    Cached,
    Domain,
    Gradient,
    Precision,
    Softmax,
    Verdict,
    verify,
)
from symattn.bounds.called_target import Argument, Convention, Outcome
from symattn.bounds.case_result import Case, CaseResult
from symattn.programs.specifications import definitions_of
from symattn.programs.verifying import Options, verified
from symattn.verification.definitions.definition_subject import Definition
from symattn.verification.diagnosis.blaming import other_function
from symattn.verification.diagnosis.coarser import side
from symattn.verification.engine import Session, finds_fault
from symattn.verification.probing import probes

CAUSAL = Attention(causal=True)
Program = Callable[..., Any]
Array = Any


# -- the arrays of an attention become those of a definition --
def _made(definition: Definition, name: str = "softmax") -> list[dict[str, Any]]:
    """Return the inputs of a group of probes, with all that the definition draws itself."""
    taken = tuple(Argument(i.name, i.name) for i in definition.inputs)
    session: Any = SimpleNamespace(
        precision=Precision.of("float64"),
        domain=Domain(),
        runner=SimpleNamespace(convention=Convention(taken)),
    )
    cases = definition.source.cases_of_probes(probes.GROUPS)[name](session, np.random.default_rng(0))
    return [dict(case.inputs) for case in cases]


@pytest.mark.parametrize(
    ("spec", "tested"),
    [
        (Attention(), set()),
        (Attention(softcap=3), {"caps"}),
        (Attention(causal=True), {"masked tiles"}),
        (Attention(causal=True, window=4), {"masked tiles", "windows"}),
        (Attention(causal=True, prefix=2), {"masked tiles", "windows"}),
        (Attention(mask="boolean"), {"masked tiles", "hidden keys"}),
        (Attention(temperature="log"), {"positions"}),
        (Attention(sink="given"), {"given numbers"}),
        (Attention(bias=True), {"given numbers"}),
        (Attention(qk_norm="rms"), {"norms"}),
        (Attention(value_norm="rms"), {"norms"}),
    ],
)
def test_groups_are_tried_of_what_an_attention_has(spec: Attention, tested: set[str]) -> None:
    definition = next(definitions_of(Gradient(spec)))
    needy = {"caps", "masked tiles", "windows", "hidden keys", "positions", "given numbers", "norms"}
    assert needy & definition.source.later().keys() == tested


def _run(definition: Definition, inputs: dict[str, Any]) -> Any:
    return definition.run(definition.ways[0], inputs)[0]


LAYOUTS = [("nd", (0, 1)), ("bhnd", (2, 3)), ("bnhd", (1, 3)), ("bnd", (1, 2))]


@pytest.mark.parametrize(("layout", "axes"), LAYOUTS)
def test_arrays_are_put_in_the_order_of_the_layout(layout: Any, axes: tuple[int, int]) -> None:
    definition = next(definitions_of(Attention(lse=True), layout))
    for inputs in _made(definition):
        assert inputs["q"].ndim == len(layout)
        q, k, v = (inputs[n].reshape([inputs[n].shape[axis] for axis in axes]) for n in "qkv")
        assert np.allclose(_run(definition, inputs).reshape(len(q), -1), Attention()(q, k, v))


@pytest.mark.parametrize("form", range(4))
def test_a_cache_holds_the_first_keys(form: int) -> None:
    definition = [*definitions_of(Cached(CAUSAL))][form]
    every = _made(definition, "structure")
    assert every
    for inputs in every:
        assert "length" not in inputs or inputs["length"] > 0
        past = int(inputs.get("length", len(inputs["k_cache"])))
        k, v = (np.concatenate([inputs[f"{n}_cache"][:past], inputs[n]]) for n in "kv")
        assert np.allclose(_run(definition, inputs), CAUSAL(inputs["q"], k, v))


def test_products_of_queries_and_keys_are_the_scores_of_a_softmax() -> None:
    definition = next(definitions_of(Softmax()))
    tops = [float(np.abs(inputs["scores"]).max()) for inputs in _made(definition)]
    assert max(tops) > 500
    assert min(tops) == 0


def test_a_gradient_gets_its_upstream_drawn() -> None:
    definition = next(definitions_of(Gradient(CAUSAL)))
    for inputs in _made(definition, "structure"):
        assert inputs["do"].shape == (inputs["q"].shape[0], inputs["v"].shape[1])
        assert np.abs(inputs["do"]).max() > 0


@pytest.mark.parametrize("norm", ["layer", "rms", None])
@pytest.mark.parametrize("order", ["pre", "inner"])
def test_the_attention_of_a_block_reads_the_tokens_that_are_made(norm: Any, order: Any) -> None:
    block = Block(attention=Attention(), norm=norm, order=order, activation=None, eps=0)
    made = {
        "x": np.array([[3.0, -1.0, 0.5, 7.0], [0.0, 2.0, 1.0, -2.0], [0.0, 0.0, 0.0, 0.0]]),
        **{name: np.eye(4)[:, at : at + 2] for at, name in enumerate(("w_q", "w_k", "w_v"))},
        "w_o": np.eye(2, 4),
    }
    inner = next(definitions_of(block)).inner
    assert inner is not None
    inputs = inner.arrange(made)
    assert inputs is not None
    trace = block.trace(**inputs)
    read = Attention().trace(**made)
    for name in ("q", "k", "v", "scores", "weights"):
        assert np.allclose(trace[f"attention.{name}"], read[name])
    assert np.isclose(inner.largest_score(inputs), np.abs(read["scaled"]).max())


# -- what these probes find --
def _attended(
    q: Any, k: Any, v: Any, hidden: float = -np.inf, whole_maximum: bool = False, bare: bool = False
) -> tuple[Any, Any]:
    """Return causal attention and its log-sums: with a finite number for −∞, the maximum of all scores, or none."""
    n, m = q.shape[-2], k.shape[-2]
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
    s = np.where(np.arange(m)[None] <= np.arange(n)[:, None] + m - n, s, q.dtype.type(hidden))
    top = s.max((-1, -2) if whole_maximum else -1, keepdims=True) * (not bare)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    return e / total @ v, (top + np.log(total))[..., 0]


def _of_cache(**how: Any) -> Program:
    def decode(q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any) -> Any:
        keys, values = (np.concatenate(pair, -2) for pair in ((k_cache, k), (v_cache, v)))
        return _attended(q, keys, values, **how)[0]

    return decode


@pytest.mark.deep
def test_weights_of_a_single_row_by_another_function_are_explained() -> None:
    """Scores of one row have keys alone, whose number limits the tiles that are tried."""
    (fault,) = verify(_softmax_by(_rational), Softmax(), precision="float64", examples=0).faults
    assert fault.step == "exp"
    assert "weights are not exponentials of s − max s" in fault.message


def _with_log_sums(**how: Any) -> Program:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return _attended(q, k, v, **how)

    return attention


def _of_gradient(**how: Any) -> Program:
    def backward(q: Any, k: Any, v: Any, do: Any) -> Any:
        weights = _attended(
            q, k, np.broadcast_to(np.eye(k.shape[-2], dtype=q.dtype), (*k.shape[:-1], k.shape[-2])), **how
        )[0]
        dp = do @ np.swapaxes(v, -1, -2)
        ds = weights * (dp - (dp * weights).sum(-1, keepdims=True)) / np.sqrt(q.dtype.type(q.shape[-1]))
        return ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ do

    return backward


def _of_block(**how: Any) -> Program:
    def norm(x: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(BLOCK.eps))

    def block(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, w_up: Any, w_gate: Any, w_down: Any) -> Any:
        read = norm(x)
        x = x + _attended(read @ w_q, read @ w_k, read @ w_v, **how)[0] @ w_o
        gate, up = (norm(x) @ w for w in (w_gate, w_up))
        return x + gate / (1 + np.exp(-gate)) * up @ w_down

    return block


BLOCK = Block(attention=CAUSAL, norm="rms", activation="silu", gated=True, eps=2**-17)
DEFINITIONS: dict[str, tuple[Callable[..., Program], Any]] = {
    "cache": (_of_cache, Cached(CAUSAL)),
    "log-sums": (_with_log_sums, Attention(causal=True, lse=True)),
    "gradient": (_of_gradient, Gradient(CAUSAL)),
    "block": (_of_block, BLOCK),
}
WRONG: dict[str, dict[str, Any]] = {
    "the maximum of the whole array": {"whole_maximum": True},
    "a finite number for −∞": {"hidden": -500.0},
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    "name", [next(iter(DEFINITIONS)), *(pytest.param(n, marks=pytest.mark.deep) for n in [*DEFINITIONS][1:])]
)
def test_scores_of_every_magnitude_reach_the_definition(name: str, wrong: str) -> None:
    make, spec = DEFINITIONS[name]
    assert verified(make(**WRONG[wrong]), spec, Options(verdict_alone=True)).verdict is Verdict.FAULT


@pytest.mark.long
@pytest.mark.deep
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_right_function_passes(name: str, precision: str) -> None:
    make, spec = DEFINITIONS[name]
    assert verify(make(), spec, dtype=precision).verdict is Verdict.NO_FAULT


# -- promises and causes --
def _without_maximum(q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any) -> Any:
    """Decode by bare exponentials, which overflow for scores above 88."""
    keys, values = (np.concatenate(pair, -2) for pair in ((k_cache, k), (v_cache, v)))
    n, m = q.shape[-2], keys.shape[-2]
    s = q @ np.swapaxes(keys, -1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
    e = np.where(np.arange(m)[None] <= np.arange(n)[:, None] + m - n, np.exp(s), 0)
    return e / e.sum(-1, keepdims=True) @ values


@pytest.mark.deep
def test_bare_exponentials_are_right_for_promised_scores_and_named_for_others() -> None:
    assert verify(_without_maximum, Cached(CAUSAL), domain=Domain(max_abs_score=20)).verdict is Verdict.NO_FAULT
    (fault,) = verify(_without_maximum, Cached(CAUSAL)).faults
    assert fault.step == "max"
    assert "the largest score is not subtracted" in fault.message


@pytest.mark.deep
@pytest.mark.parametrize(("domain", "verdict"), [(Domain(max_abs_score=20), Verdict.NO_FAULT), (None, Verdict.FAULT)])
def test_a_block_is_judged_by_the_promise_on_scores(domain: Any, verdict: Verdict) -> None:
    options = Options(verdict_alone=True, domain=domain)
    assert verified(_of_block(bare=True), BLOCK, options).verdict is verdict


@pytest.mark.parametrize("spec", [Attention(lse=True), Gradient(CAUSAL), Cached(CAUSAL), Softmax(), BLOCK])
def test_drawn_inputs_keep_the_promise_on_scores(spec: Any) -> None:
    definition, domain = next(definitions_of(spec)), Domain(max_abs_score=1.0)
    inner = definition.inner
    assert inner is not None
    rng = np.random.default_rng(1)
    names = [i.name for i in definition.inputs]
    numbers = probes.FAMILIES["large"](rng)
    inputs = definition.draw(names, definition.shapes[1], numbers, Precision.of("float64"), rng)
    assert not inner.keeps(inputs, domain)
    assert inner.keeps(inner.tamed(inputs, domain), domain)
    assert not definition.admitted(inputs, domain)


def _session_of_block(precision: str = "float32") -> Session:
    """A verification of a layer that is never called."""
    definition = next(definitions_of(BLOCK))
    runner: Any = SimpleNamespace(convention=Convention(tuple(Argument(i.name, i.name) for i in definition.inputs)))
    return Session(runner, definition, Precision.of(precision), Domain(), 0, 0, 60.0)


def test_probes_are_compared_with_float64_first_only_where_residues_agree() -> None:
    session, small = _session_of_block(), {"x": np.ones((2, 3))}
    probed = [Case(group, "", small) for group in ("scale", "softmax", "structure", "mask", "more tokens")]
    own = [Case(group, "", small) for group in ("sizes", "numbers", "random")]
    assert not any(map(session.is_screened_first, (*probed, *own)))
    residues: Any = SimpleNamespace(settled=True)
    session.identity = residues
    assert all(map(session.is_screened_first, probed))
    assert not any(map(session.is_screened_first, own))
    # A fault that is known is explained by bounds.
    session.records = [CaseResult(probed[0], Outcome(), (), "values")]
    assert not any(map(session.is_screened_first, probed))


@pytest.mark.parametrize("precision", ["float16", "float8_e4m3fn"])
def test_probes_are_bounded_in_narrow_formats(precision: str) -> None:
    session, residues = _session_of_block(precision), SimpleNamespace(settled=True)
    session.identity = residues  # type: ignore[assignment]
    assert not session.is_screened_first(Case("softmax", "", {"x": np.ones((2, 3))}))


def test_an_empty_cache_is_left_as_it_is_by_a_climb() -> None:
    empty = {"q": np.ones((2, 3)), "k_cache": np.zeros((0, 3))}
    assert {*probes.perturbed(empty, ["q", "k_cache"], np.random.default_rng(0))} == {"q"}


def test_infinities_stay_where_inputs_are_perturbed() -> None:
    rng, lse = np.random.default_rng(0), np.array([[-np.inf, 1.0], [2.0, -np.inf]])
    for _ in range(60):
        changed = probes.perturbed({"l1": lse}, ["l1"], rng)["l1"]
        assert (np.isneginf(changed) == np.isneginf(lse)).all()
        assert np.isfinite(changed).sum() == 2


# -- sums of many terms in half precision --
def _with_cache(lost: Callable[[int], slice]) -> Program:
    """Attention to a cache in float32, in which these rows of the output are zeros."""

    def program(q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any) -> Any:
        keys, values = (np.concatenate(pair, axis=-2).astype(np.float32) for pair in ((k_cache, k), (v_cache, v)))
        s = q.astype(np.float32) @ keys.mT / np.float32(np.sqrt(q.shape[-1]))
        s = np.where(np.tri(*s.shape[-2:], s.shape[-1] - s.shape[-2], dtype=bool), s, -np.inf)
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        out = (e @ values / e.sum(axis=-1, keepdims=True)).astype(q.dtype)
        out[..., lost(out.shape[-2]), :] = 0
        return out

    return program


@pytest.mark.deep
@pytest.mark.parametrize(
    ("lost", "found"),
    [
        (lambda rows: slice(256, None), True),
        (lambda rows: slice(rows - 4 if rows > 256 else rows, None), True),
        (lambda rows: slice(rows, None), False),
    ],
    ids=["rows of the third block", "the last four of them", "none"],
)
def test_late_rows_of_a_cache_show_in_float16(lost: Callable[[int], slice], found: bool) -> None:
    options, spec = Options(dtype="float16", framework="numpy"), Cached(CAUSAL)
    with options.opened(_with_cache(lost), spec) as runner:
        assert finds_fault(options.session(runner, spec)) is found


# -- what weights show of a function that no known mistake explains --
def _rational(x: Array) -> Array:
    """A function that is near eˣ for small x ≤ 0, and falls more slowly."""
    return np.asarray(1 / (1 - x + x * x / 2 - x**3 / 6))


def _weights(of: Callable[[Array], Array], scores: Array) -> Array:
    terms = of(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(terms / terms.sum(axis=-1, keepdims=True))


def _gradients(of: Callable[[Array], Array], q: Array, k: Array, v: Array, do: Array) -> tuple[Array, ...]:
    root = np.sqrt(q.shape[-1])
    p = _weights(of, q @ np.swapaxes(k, -1, -2) / root)
    dp = do @ np.swapaxes(v, -1, -2)
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) / root
    return ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(p, -1, -2) @ do


def _softmax_by(of: Callable[[Array], Array]) -> Program:
    return lambda scores: _weights(of, scores)


def _gradient_by(of: Callable[[Array], Array]) -> Program:
    return lambda q, k, v, do: _gradients(of, q, k, v, do)


PROGRAMS = [(Softmax(), _softmax_by), (Gradient(Attention()), _gradient_by)]


@pytest.mark.deep
@pytest.mark.parametrize(("spec", "made"), PROGRAMS, ids=["softmax", "gradient"])
def test_another_function_than_the_exponential_is_read_off_any_weights(spec: Any, made: Any) -> None:
    options = Options(dtype="float64")
    for function, step in ((_rational, "exp"), (np.exp, "")):
        with options.opened(made(function), spec) as runner:
            session = options.session(runner, spec)
            assert other_function(session, [])[0] == step


def _with_log_sums(scores_in: type, weights_in: type) -> Program:
    def run(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        scores = (q.astype(scores_in) @ k.T.astype(scores_in) / scores_in(np.sqrt(q.shape[-1]))).astype(np.float32)
        top = scores.max(axis=-1, keepdims=True)
        terms = np.exp(scores - top)
        total = terms.sum(axis=-1, keepdims=True)
        output = (terms / total).astype(weights_in) @ v.astype(weights_in)
        return output.astype(np.float32), (top + np.log(total))[..., 0]

    return run


SIDES = [(np.float16, np.float32, "score"), (np.float32, np.float16, "values"), (np.float32, np.float32, "")]


@pytest.mark.deep
@pytest.mark.parametrize(("scores_in", "weights_in", "step"), SIDES, ids=["scores", "values", "neither"])
def test_the_side_that_loses_digits_is_seen_beside_log_sums(scores_in: type, weights_in: type, step: str) -> None:
    options, spec = Options(dtype="float32"), Attention(lse=True)
    with options.opened(_with_log_sums(scores_in, weights_in), spec) as runner:
        session = options.session(runner, spec)
        assert session.subject.outputs == ("output", "lse")
        assert side(session, "float16")[0] == step


def _cached_with(visible: Callable[[Array, Array], Array], factor: float = 1.0) -> Callable[..., Array]:
    """A cache whose token i, counted from its first one, sees the keys j that are ``visible``, with scaled scores."""

    def cached(q: Array, k: Array, v: Array, k_cache: Array, v_cache: Array) -> Array:
        keys, values = np.concatenate([k_cache, k], axis=-2), np.concatenate([v_cache, v], axis=-2)
        scores = factor * (q @ np.swapaxes(keys, -1, -2)) / np.sqrt(q.shape[-1])
        j = np.arange(keys.shape[-2])
        i = np.arange(q.shape[-2])[:, None] + keys.shape[-2] - q.shape[-2]
        scores = np.where(visible(i, j), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True) @ values

    return cached


@pytest.mark.deep
def test_the_keys_that_a_cache_sees_are_read_off_its_weights() -> None:
    assert verify(_cached_with(lambda i, j: j <= i), Cached(CAUSAL)).verdict is Verdict.NO_FAULT
    (fault,) = verify(_cached_with(lambda i, j: (j <= i) & ((i - j) % 3 < 2)), Cached(CAUSAL)).faults
    assert fault.step == "mask"
    assert fault.cause.startswith("a query sees the keys where i − j ≥ 0 and (i − j) % 3 ≤ 1, and no others")


@pytest.mark.deep
def test_a_fitted_number_has_as_many_digits_as_large_scores_show() -> None:
    (fault,) = verify(_cached_with(lambda i, j: j <= i, 1 / 1.37), Cached(CAUSAL)).faults
    assert fault.step == "scale"
    assert fault.cause == "scores are scaled by 0.729927/√d_k"


@pytest.mark.parametrize("form", [0, 2])
def test_every_number_of_keys_can_lie_in_a_cache(form: int) -> None:
    definition = [*definitions_of(Cached(CAUSAL))][form]
    assert definition.inner is not None
    rng = np.random.default_rng(0)
    for queries, keys in ((1, 2), (2, 5), (3, 4), (1, 9), (4, 10)):
        arrays = {n: rng.normal(size=(queries if n == "q" else keys, 2)) for n in "qkv"}
        inputs = definition.filled(
            {**(definition.inner.arrange(arrays) or {}), **({"length": np.zeros(0)} if form == 0 else {})},
            Precision.of("float64"),
        )
        again = definition.inner.arrays_of(inputs) or {}
        assert all(np.array_equal(again[n], a) for n, a in arrays.items())


@pytest.mark.deep
def test_a_softmax_without_its_maximum_is_named_inside_a_block() -> None:
    (fault,) = verify(_of_block(bare=True), BLOCK).faults
    assert fault.step == "max"
    assert fault.cause.startswith("the largest score is not subtracted")
    within = Domain(max_abs_score=20)
    assert verify(_of_block(bare=True), BLOCK, domain=within, examples=10).verdict is Verdict.NO_FAULT
