"""The backward pass in steps: what it computes, how each step can be wrong, and what reports show of it."""

from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention, Gradient, Rotary, kind, verify, vjp
from symattn.attention.gradients import backward_pass
from symattn.document.errors import InputError
from symattn.programs.specifications import definitions_of
from symattn.verification.rules import by_role
from tests.annotations import annotated, words_of
from tests.refusals import WITHOUT_RESULT

Array = Any
#: Weights other than those of softmax.
NORMALISERS = [name for name in words_of(annotated(Attention)["normaliser"]) if name != "softmax"]
SPECS: tuple[Attention, ...] = (
    Attention(), Attention(causal=True), Attention(softcap=2), Attention(scale=1), Attention(scale="1/d_k"),
    Attention(scale="given"), Attention(heads=2, scale="given"),
    Attention(position=Rotary()), Attention(heads=2, position=Alibi(), causal=True),
    Attention(heads=4, kv_heads=2, causal=True),
    Attention(temperature=0.1, temperature_rate=2, causal=True, softcap=3),
    Attention(heads=4, kv_heads=2, position=Rotary(), qk_norm="rms", value_norm="rms", eps=0.25),
    Attention(score="cosine"), Attention(score="distance"), Attention(truncate=2),
    Attention(sink="given", dropout=0.25),
    Attention(padding=True, bias=True, mask="additive"), Attention(sink="zero", base=2),
    *(Attention(normaliser=name) for name in NORMALISERS),
)  # fmt: skip


def backward_of(attention: Attention) -> Any:
    """The steps of the backward pass of an attention."""
    return next(definitions_of(Gradient(attention))).flow.spec  # type: ignore[attr-defined]


def drawn(spec: Attention, n_q: int = 3, n_k: int = 5) -> dict[str, Array]:
    """All inputs of a small backward pass, in the order (h, n, d)."""
    rng, sizes = np.random.default_rng(1), {"n_q": n_q, "n_k": n_k, "d_k": 4, "d_v": 3, "h": spec.heads}
    subject = next(definitions_of(Gradient(spec)))
    found = {}
    for i in subject.inputs:
        if i.made is None:
            shape = subject.shape(i.name, sizes | {"g": spec.key_heads})
            found[i.name] = i.entries(shape, rng) if i.entries else rng.standard_normal(shape)
    return found


def near(one: Any, other: Any) -> bool:
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-11, atol=1e-13) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_the_steps_give_the_derivative_of_the_attention(spec: Attention) -> None:
    inputs = drawn(spec)
    given = {n: a for n, a in inputs.items() if n != "do"}
    exact = vjp(spec, inputs["do"], given, "qkv")
    assert near(backward_of(spec).return_run(**inputs), [exact[n] for n in "qkv"])


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_every_legal_way_gives_the_same(spec: Attention) -> None:
    subject, inputs = next(definitions_of(Gradient(spec))), drawn(spec)
    with np.errstate(all="ignore"):
        first, *others = (subject.run(way, inputs) for way in subject.ways)
    assert all(near(first, other) for other in others)
    # From stored weights with two row sums, by the tape, and by log-sums at once and key by key.
    assert len(others) == (4 if spec.is_softmax and not (spec.base or spec.dropout) else 2 if spec.is_softmax else 1)


@pytest.mark.deep
@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_every_step_back_can_be_wrong_by_the_rule_of_its_role(spec: Attention) -> None:
    steps, changed = backward_of(spec), set[str]()
    right = {size: steps.return_run(**drawn(spec, *size)) for size in ((3, 5), (5, 5))}
    seen: dict[str, bool] = {}
    for mistake in by_role.mistakes(steps):
        assert mistake.way.steps, mistake.cause
        changed |= mistake.way.steps.keys()
        for size, outputs in right.items():
            try:
                with np.errstate(all="ignore"):
                    wrong = mistake.way(**drawn(spec, *size))
            # Products of transposes need as many queries as keys.
            except WITHOUT_RESULT:
                continue
            seen[mistake.cause] = seen.get(mistake.cause, False) or not near(wrong, outputs)
    assert len(seen) == len([*by_role.mistakes(steps)])
    # Tiles of more tokens than there are lose nothing.
    assert all(is_wrong or "tile" in cause for cause, is_wrong in seen.items()), seen
    assert {step.name for step in steps.pipeline_of_all if step.role in by_role.RULES} <= changed


@pytest.mark.parametrize("name", NORMALISERS)
def test_weights_without_a_formula_take_a_tape(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(backward_pass._OF_WEIGHTS, name)
    steps = backward_of(Attention(normaliser=name, scale=1))
    inputs = drawn(steps.attention)
    exact = vjp(steps.attention, inputs["do"], {n: inputs[n] for n in "qkv"}, "qkv")
    assert near(steps.return_run(**inputs), [exact[n] for n in "qkv"])
    assert "dS = back(dP, S′)" in steps.write_formulas("qkv")
    assert [mistake.cause for mistake in by_role.mistakes(steps)]


def test_the_steps_run_on_exact_numbers() -> None:
    steps, exact = backward_of(Attention(scale=1)), kind("exact")
    inputs = {n: np.arange(1.0, 1 + a.size).reshape(a.shape) for n, a in drawn(steps.attention, 1, 2).items()}
    values = steps.trace(**{n: exact.lift(a) for n, a in inputs.items()})
    assert [*values][len(inputs) :] == [step.name for step in steps.pipeline(inputs)]
    assert "exp" in str(values["ds"])


def test_formulas_name_what_a_step_takes() -> None:
    spec = Attention(heads=4, kv_heads=2, temperature=0.1, causal=True, softcap=3)
    written = backward_of(spec).write_formulas("qkv")
    assert written[-10:] == [
        "D = rowsum(P ⊙ dP)", "dS = P ⊙ (dP − D)", "dS_cap = dS ⊙ (1 − (S_cap/3)²)", "dS_τ = diag(τ) dS_cap",
        "dS′ = dS_τ/√d_k", "dQ = dS′ K′", "dK′ = dS′ᵀ Q", "dV′ = Pᵀ dO", "dV = sum_group(dV′)", "dK = sum_group(dK′)",
    ]  # fmt: skip


# -- programs ----------------------------------------------------------------------------------------------------------
def backward(
    q: Array, k: Array, v: Array, do: Array, cap: float = 0, wrong: str = "", mask: Array | None = None
) -> tuple[Array, ...]:
    """A backward pass in NumPy, independent of symattn; ``wrong`` says what is wrong in it."""
    c = q.dtype.type(q.shape[-1] ** -0.5)
    s = q @ k.T * c
    t = np.tanh(s / cap) if cap else s
    capped = cap * t if cap else s
    exponents = capped if mask is None else np.where(mask, capped, -np.inf)
    e = np.exp(exponents - exponents.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    dp = do @ v.T
    products = p * dp
    row_sums = products.sum(-1, keepdims=True)
    if wrong == "tiles":
        parts = [products[:, j : j + 4] for j in range(0, len(k), 4)]
        row_sums = np.concatenate([np.broadcast_to(x.sum(-1, keepdims=True), x.shape) for x in parts], -1)
    if wrong == "unmasked":
        e = np.exp(capped - capped.max(-1, keepdims=True))
        row_sums = (e / e.sum(-1, keepdims=True) * dp).sum(-1, keepdims=True)
    ds = p * (dp - row_sums)
    ds = ds * (1 - t if wrong == "unsquared" else 1 - t * t) * c if cap else ds * c
    if wrong == "transposed":
        ds = ds.T if len(q) == len(k) else ds
    last = (len(k) - 1) // 16 * 16 if wrong == "overwritten" else 0
    dq = ds[:, last:] @ k[last:]
    return dq, ds.T @ q, (ds if wrong == "of dS" else p).T @ do


def causal(q: Array, k: Array) -> Array:
    return np.tri(len(q), len(k), len(k) - len(q), dtype=bool)


CAP, MASK = Gradient(Attention(softcap=5)), Gradient(Attention(causal=True))
_DS = "rowsum(P ⊙ dP) is that of"
#: What is wrong, the definition, and the cause; beside each a right program of the same shape.
WRONG = {
    "tiles": (Gradient(Attention()), f"{_DS} each tile of keys alone (tiles of 4)"),
    "unmasked": (MASK, f"{_DS} weights without the mask"),
    "unsquared": (CAP, "the derivative of the cap is taken as 1 − tanh(s/c), without the square"),
    "overwritten": (Gradient(Attention()), "the last tile of keys overwrites dQ so far (tiles of 16)"),
    "of dS": (Gradient(Attention()), "dV is of scaled dS in place of P"),
}


def program(wrong: str, spec: Gradient) -> Any:
    cap = 5 if spec is CAP else 0

    def run(q: Array, k: Array, v: Array, do: Array) -> tuple[Array, ...]:
        return backward(q, k, v, do, cap, wrong, causal(q, k) if spec is MASK else None)

    return run


@pytest.mark.deep
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_step_is_named_and_a_right_program_is_not_accused(wrong: str) -> None:
    spec, cause = WRONG[wrong]
    (fault,) = verify(program(wrong, spec), spec, framework="numpy", examples=0).faults
    assert (fault.step, fault.cause) == ("backward", cause)
    assert fault.code is not None
    assert verify(program("", spec), spec, framework="numpy", examples=0).verdict.value == "no fault"


def of_given_scale(of_scores: str) -> Any:
    """A backward pass whose scale is an input by head; dS is multiplied by it as the words say."""

    def run(q: Array, k: Array, v: Array, scale: Array, do: Array) -> tuple[Array, ...]:
        by_head = scale[:, None, None]
        factors = {"": by_head, "left out": 1, "divided": 1 / by_head, "twice": by_head**2}
        scores = q @ np.swapaxes(k, -1, -2) * by_head
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p = powers / powers.sum(axis=-1, keepdims=True)
        dp = do @ np.swapaxes(v, -1, -2)
        ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True)) * factors[of_scores]
        return ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(p, -1, -2) @ do

    return run


@pytest.mark.deep
@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ("left out", "dQ and dK are not scaled"),
        ("divided", "uses dS/scale instead of dS ⊙ scale"),
        ("twice", "dQ and dK are scaled twice"),
    ],
)
def test_a_gradient_takes_a_scale_for_each_head(wrong: str, cause: str) -> None:
    spec = Gradient(Attention(scale="given", heads=2))
    (fault,) = verify(of_given_scale(wrong), spec, framework="numpy", examples=0).faults
    assert (fault.step, fault.cause) == ("backward", cause)
    assert verify(of_given_scale(""), spec, framework="numpy", examples=0).verdict.value == "no fault"


def test_what_depends_on_places_or_has_a_batch_has_no_place_in_a_gradient() -> None:
    with pytest.raises(InputError, match="numbers by head, row or column; it has no place for doc"):
        verify(of_given_scale(""), Gradient(Attention(documents=True)))


@pytest.mark.deep
def test_a_report_shows_the_steps_up_to_the_wrong_entry() -> None:
    def unscaled(q: Array, k: Array, v: Array, do: Array) -> tuple[Array, ...]:
        dq, dk, dv = backward(q, k, v, do)
        return dq, dk * q.dtype.type(q.shape[-1] ** 0.5), dv

    (fault,) = verify(unscaled, Gradient(Attention()), framework="numpy", examples=0).faults
    steps = fault.counterexample.steps
    names = [name for name, *_ in steps]
    assert names == ["scores", "scaled", "weights", "p", "dp", "row_sums", "ds", "ds_scaled", "dk"], names
    changed = [name for name, right, wrong in steps if right != wrong]
    assert changed == ["dk"]
