"""Transformers from tokens to logits: against loops, in proven digits, in floats; names, refusals, documents."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import array_api_strict
import mpmath
import numpy as np
import pytest

from symattn import (
    Attention,
    Block,
    Grade,
    InputError,
    Refused,
    Rotary,
    Transformer,
    Undecided,
    evaluate,
    functional,
    kind,
    kinds,
    printing,
    rounded,
)
from symattn.attention.layers import evaluation
from symattn.attention.layers.evaluation import lifted
from tests.attention import transformer_loops as loops
from tests.document.render.test_latex_compiles import overfull, together
from tests.refusals import refuses

V, D, D_FF, H, N, M = 5, 4, 6, 2, 3, 4
ENCODER = Block(attention=Attention(heads=H), order="post", activation="gelu")
DECODER = Block(attention=Attention(heads=H, causal=True), activation="relu")
CROSS = Block(
    attention=Attention(heads=H, causal=True), cross=Attention(heads=H), order="post", activation="silu", gated=True
)
GPT = Transformer(decoder=(DECODER, replace(DECODER, activation="gelu_tanh")), positions="given", tied=True)
MODELS = {
    "decoder": GPT,
    "decoder, rms": Transformer(
        decoder=(Block(attention=Attention(heads=H, causal=True), norm="rms", gated=True, activation="silu"),) * 2,
        norm="rms",
    ),
    "encoder": Transformer(encoder=(ENCODER, ENCODER), positions="given", embedding_norm="layer", norm=None),
    "both": Transformer(
        encoder=(ENCODER,), decoder=(CROSS, CROSS), positions="sinusoidal", scaled=True, tied=True, norm=None
    ),
    "capped": Transformer(decoder=(DECODER,), softcap=2, norm="layer"),
}
TOKENS, SOURCE = np.array([3, 0, 3]), np.array([1, 1, 4, 2])


def parameters(model: Transformer, seed: int = 1) -> dict[str, Any]:
    """Eighths for every parameter of a model."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}

    def make(name: str, *shape: int) -> None:
        found[name] = rng.integers(-8, 9, shape) / 8

    make("embedding", V, D)
    if model.positions == "given":
        make("position_embedding", N + 2, D)
    if not model.tied:
        make("unembedding", D, V + 1)
        make("unembedding_bias", V + 1)
    for norm, there in (("embedding_norm", model.embedding_norm), ("encoder_norm", model.encoder and model.norm)):
        if there:
            make(f"{norm}.gain", D)
            make(f"{norm}.bias", D)
    if model.decoder and model.norm:
        make("decoder_norm.gain", D)
    for stack in ("encoder", "decoder"):
        for i, block in enumerate(getattr(model, stack)):
            for part in ("attention", *["cross"] * bool(block.cross)):
                for role in "qkvo":
                    make(f"{stack}.{i}.{part}.w_{role}", D, D)
                make(f"{stack}.{i}.{part}.b_v", D)
                make(f"{stack}.{i}.{part}_norm.gain", D)
            make(f"{stack}.{i}.mlp_norm.bias", D)
            for name, rows, columns in (("up", D, D_FF), ("gate", D, D_FF), ("down", D_FF, D)):
                if name != "gate" or block.gated:
                    make(f"{stack}.{i}.mlp.w_{name}", rows, columns)
                    make(f"{stack}.{i}.mlp.b_{name}", columns)
    return found


def ids(model: Transformer) -> dict[str, Any]:
    return {"tokens": TOKENS} | ({"source": SOURCE} if model.encoder and model.decoder else {})


# -- a second computation ---------------------------------------------------------------------------------------------
def by_loops(model: Transformer, given: dict[str, Any]) -> list[list[Any]]:
    p = {n: a if n in ("tokens", "source") else loops.numbers(a) for n, a in given.items()}
    eps = Fraction(1, 10**5)
    encoded = None
    for stack in ("encoder", "decoder"):
        if getattr(model, stack):
            x = _embedded(model, p, p["source" if stack == "encoder" and model.decoder else "tokens"], eps)
            for i, block in enumerate(getattr(model, stack)):
                say = {f: getattr(block, f) for f in ("norm", "order", "activation", "gated")}
                say |= {"eps": eps, "h": H, "causal": block.attention.causal}
                own = {n.removeprefix(f"{stack}.{i}."): a for n, a in p.items() if n.startswith(f"{stack}.{i}.")}
                x = loops.block(x, encoded if block.cross else None, own, say)
            x = [_norm(row, model.norm, eps, p, f"{stack}_norm") for row in x]
            encoded = x
    table = [list(c) for c in zip(*p["embedding"], strict=True)] if model.tied else p["unembedding"]
    logits = [loops.linear(row, table, p.get("unembedding_bias")) for row in x]
    c = model.softcap
    return logits if c is None else [[c * mpmath.tanh(v / c) for v in row] for row in logits]


def _norm(row: Any, norm: str | None, eps: Any, p: dict[str, Any], name: str) -> Any:
    return loops.normed(norm, row, eps, p.get(f"{name}.gain"), p.get(f"{name}.bias")) if norm else row


def _embedded(model: Transformer, p: dict[str, Any], numbers: Any, eps: Any) -> Any:
    factor = mpmath.sqrt(D) if model.scaled else 1
    rows = [[v * factor for v in p["embedding"][t]] for t in numbers]
    places = loops.sinusoids(len(rows), D) if model.positions == "sinusoidal" else p.get("position_embedding")
    if places:
        rows = [[a + b for a, b in zip(r, s, strict=True)] for r, s in zip(rows, places[: len(rows)], strict=True)]
    return [_norm(row, model.embedding_norm, eps, p, "embedding_norm") for row in rows]


@pytest.mark.parametrize("name", MODELS)
def test_by_loops(name: str) -> None:
    model = MODELS[name]
    given = ids(model) | parameters(model)
    with kinds.precision(200), mpmath.workdps(50):
        got = model(**lifted(kind("ball"), given))
        assert all(x.rad() < 2.0**-100 for x in got.entries.flat)
        assert loops.farthest(got, by_loops(model, given)) < 1e-35
        for changed in {"scaled": not model.scaled, "norm": None if model.norm else "rms"}.items():
            other = replace(model, **dict([changed]))
            rest = {n: a for n, a in given.items() if other.norm or not n.startswith(("decoder_norm", "encoder_norm"))}
            assert loops.farthest(got, by_loops(other, rest)) > 1e-3


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_floats_lie_within_their_bound(name: str, dtype: str) -> None:
    model = MODELS[name]
    given = {n: a / 4 if ".w_" in n else a for n, a in parameters(model).items()}
    got = model(**ids(model), **{n: a.astype(dtype) for n, a in given.items()})
    assert got.dtype == dtype
    bound = model(**lifted(rounded(dtype), ids(model) | given))
    assert bound.within(got).all()
    assert (bound.bound < (5e-2 if dtype == "float32" else 1e-10)).all()
    given["embedding"][3] += np.arange(D) / 16
    assert not bound.within(model(**ids(model), **given)).all()


@pytest.mark.parametrize("name", MODELS)
def test_definitions_use_the_standard_alone(name: str) -> None:
    """They run on array-api-strict, which has nothing but the standard, and give what they give on NumPy."""
    model = MODELS[name]
    given = ids(model) | parameters(model)
    out = model(**{n: array_api_strict.asarray(a) for n, a in given.items()})
    np.testing.assert_allclose(np.from_dlpack(out), model(**given), rtol=1e-13)


# -- proven digits ----------------------------------------------------------------------------------------------------
def test_two_layers_in_fifty_proven_digits() -> None:
    """More digits, asked of other balls, begin with the same fifty; a change by 10^-44 in one weight shows."""
    given = ids(GPT) | {n: loops_free(a) for n, a in parameters(GPT).items()}
    found = evaluate(GPT, given, digits=50)
    assert found.evidence.grade is Grade.ENCLOSED
    assert found.evidence.where.startswith("50 digits of each element, by balls of 264 bits; exact: sqrt(")
    more = evaluation.enclose(GPT, given, digits=90)
    with mpmath.workdps(100):
        for few, many in zip(found.digits.flat, more.digits.flat, strict=True):
            assert sum(c.isdigit() for c in few.partition("e")[0].lstrip("-0.")) == 50
            assert abs(mpmath.mpf(few) - mpmath.mpf(many)) <= abs(mpmath.mpf(many)) * mpmath.mpf(10) ** -49 / 2
    given["decoder.0.attention.w_q"][1][0] += Fraction(1, 10**44)
    nudged = evaluation.enclose(GPT, given, digits=50)
    assert (nudged.digits != found.digits)[0].sum() == 0  # the first token attends to itself alone
    assert (nudged.digits != found.digits)[1:].all()


def loops_free(a: Any) -> Any:
    """Nested lists of fractions."""
    return [loops_free(x) for x in a] if getattr(a, "ndim", 0) else Fraction(float(a))


def test_digits_are_of_the_very_numbers_that_numpy_holds() -> None:
    given = ids(GPT) | parameters(GPT)
    digits = np.vectorize(float)(evaluate(GPT, given, digits=20).digits)
    np.testing.assert_allclose(GPT(**given), digits, rtol=1e-12)


def test_a_first_layer_without_norms_is_exact_and_a_second_is_not() -> None:
    block = Block(attention=Attention(causal=True), norm=None)
    one = Transformer(decoder=(block,), norm=None, tied=True)
    table = {"embedding": [[1, 2], [0, -1], ["1/2", 1]]}
    table |= {"decoder.mlp.w_up": [[1, -1], [2, 1]], "decoder.mlp.w_down": [[1, 0], [1, 1]]}
    found = evaluate(one, {"tokens": [2, 0], **table}, digits=12)
    assert found.evidence.grade is Grade.CHECKED
    assert "exp(" in str(found.output.entries[1, 0])
    balls = evaluation.enclose(one, {"tokens": [2, 0], **table}, digits=12)
    assert [Fraction(x) for x in balls.digits.flat] == [Fraction(x) for x in found.digits.flat]
    two = evaluate(replace(one, decoder=(block, block)), {"tokens": [2, 0], **table}, digits=12)
    assert two.evidence.grade is Grade.ENCLOSED
    assert "a second layer of exponentials" in two.evidence.where


def test_more_bits_are_taken_until_the_digits_are_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference of 10^-90 between numbers near 1 is not seen in as few bits as ten digits of them take."""
    block = Block(attention=Attention(), norm=None, activation=None)
    model = Transformer(decoder=(block,), norm=None)
    given = {"tokens": [0], "embedding": [[1, 1 - Fraction(1, 10**90)]], "unembedding": [[1, 0], [-1, 0]]}
    found = evaluation.enclose(model, given, digits=10)
    assert found.digits.tolist() == [["2.000000000e-90", "0"]]
    assert "416 bits" in found.evidence.where
    monkeypatch.setattr(evaluation, "LIMIT", 200)
    refuses(evaluation.enclose, model, given, digits=10, kind=Undecided, says="104 bits do not prove 10 digits")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", ["ball", "float32", "symbolic"])
def test_inputs_are_lifted_to_the_kind_and_tokens_stay_whole_numbers(name: str, target: str) -> None:
    model = MODELS[name]
    given = lifted(kind(target), ids(model) | parameters(model))
    for n, array in given.items():
        whole = n in ("tokens", "source")
        found = isinstance(array, np.ndarray) and array.dtype == "float32" if target == "float32" else None
        assert (array.dtype.kind == "i") == whole
        assert whole or (found if found is not None else isinstance(array, kind(target))), n


def test_elements_that_are_no_numbers_are_said_and_two_arrays_are_refused() -> None:
    given = {"q": [[1]], "k": [[1]], "v": [[1]], "mask": np.array([[False]])}
    spec = Attention(mask="boolean", fully_masked="nan")
    for found in (evaluate(spec, given), evaluation.enclose(spec, given, 5)):
        assert found.digits[0, 0].startswith("undefined")
    with pytest.raises(InputError, match="2 arrays come out, of which one would be evaluated; hint: lse=False"):
        evaluate(Attention(lse=True), {n: [[1]] for n in "qkv"})


def test_no_digits_are_refused() -> None:
    refuses(evaluate, GPT, ids(GPT) | parameters(GPT), digits=0, says="digits must be an integer of at least 1, got 0")


# -- meaning ----------------------------------------------------------------------------------------------------------
def test_logits_of_a_causal_model_do_not_see_later_tokens() -> None:
    given = parameters(GPT)
    one, other = (evaluate(GPT, {"tokens": t, **given}, 30).digits for t in ([3, 0, 3], [3, 0, 1]))
    assert (one[:2] == other[:2]).all()
    assert (one[2] != other[2]).all()


def test_an_encoder_without_positions_does_not_know_the_order() -> None:
    model = replace(MODELS["encoder"], positions=None)
    given = {n: a for n, a in parameters(model).items() if n != "position_embedding"}
    out = model(np.array([1, 4, 2]), **given)
    np.testing.assert_allclose(model(np.array([2, 1, 4]), **given), out[[2, 0, 1]], rtol=1e-12)
    placed = MODELS["encoder"]
    given = parameters(placed)
    assert abs(placed(np.array([2, 1, 4]), **given) - placed(np.array([1, 4, 2]), **given)[[2, 0, 1]]).max() > 1e-3


def test_a_batch_of_tokens_and_padding_given_once_for_all_blocks() -> None:
    padded = replace(ENCODER, attention=Attention(heads=H, padding=True))
    model = replace(MODELS["encoder"], encoder=(padded, padded))
    given = parameters(model)
    tokens, keep = np.array([[1, 4, 2], [3, 3, 0]]), np.array([[True, True, False], [True, True, True]])
    out = model(tokens, **given, **{"encoder.attention.keep": keep})
    assert out.shape == (2, N, V + 1)
    each = {f"encoder.{i}.attention.keep": keep for i in range(2)}
    assert np.array_equal(model(tokens, **given, **each), out)
    short = given | {"position_embedding": given["position_embedding"][:2]}
    np.testing.assert_allclose(out[0, :2], MODELS["encoder"](tokens[0, :2], **short), rtol=1e-12)


def test_a_name_with_a_number_goes_before_the_one_without() -> None:
    model = Transformer(decoder=(DECODER, DECODER), tied=True)
    given = {n: a for n, a in parameters(model).items()}
    gain = given["decoder.1.attention_norm.gain"]
    shared = given | {"decoder.attention_norm.gain": gain}
    assert np.array_equal(model(TOKENS, **shared), model(TOKENS, **given))
    del shared["decoder.1.attention_norm.gain"]
    assert np.array_equal(model(TOKENS, **shared), model(TOKENS, **given))
    del shared["decoder.0.attention_norm.gain"]
    assert not np.array_equal(model(TOKENS, **shared), model(TOKENS, **given))


def test_rotary_positions_are_a_field_of_attention() -> None:
    rotated = replace(DECODER, attention=Attention(heads=H, causal=True, position=Rotary()))
    model = Transformer(decoder=(rotated, rotated), tied=True)
    given = parameters(model)
    out = model(np.array([0, 1, 2]), **given)
    plain = Transformer(decoder=(DECODER, DECODER), tied=True)(np.array([0, 1, 2]), **given)
    np.testing.assert_allclose(out[0], plain[0], rtol=1e-12)
    assert abs(out[1:] - plain[1:]).max() > 1e-3


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16"])
def test_sinusoids(name: str) -> None:
    like = kind(name).lift([[0.0]])
    table = np.asarray(functional.sinusoids(np.arange(5), 6, np.zeros(1)))
    with mpmath.workdps(20):
        np.testing.assert_allclose(table, np.array(loops.sinusoids(5, 6), dtype=float), rtol=1e-14)
    model = Transformer(decoder=(Block(attention=Attention(), norm=None, activation=None),), positions="sinusoidal")
    zeros = {"embedding": kind(name).lift(np.zeros((1, 6))), "unembedding": kind(name).lift(np.eye(6))}
    placed = model.trace(np.array([0] * 5), **zeros)["decoder.positioned"]
    assert bool((placed == type(like).lift(table) if hasattr(like, "numpy") else placed == table.astype(name)).all())


def test_sinusoids_are_refused_in_exact_numbers_and_a_table_is_taken() -> None:
    block = Block(attention=Attention(causal=True), norm=None, activation=None)
    model = Transformer(decoder=(block,), positions="sinusoidal", norm=None, tied=True)
    with pytest.raises(Refused, match=r"exact: cos\(1\) is not in the decided field; use ball"):
        model(TOKENS, embedding=kind("exact").lift(np.eye(4, 2)))
    table = kind("exact").lift([[0, 1], ["3/5", "4/5"], ["24/25", "7/25"]])
    given = replace(model, positions="given")
    assert given(TOKENS, embedding=kind("exact").lift(np.eye(4, 2)), position_embedding=table).shape == (3, 4)


# -- names ------------------------------------------------------------------------------------------------------------
def test_a_trace_names_its_arrays_in_order() -> None:
    model = MODELS["both"]
    trace = model.trace(**ids(model), **parameters(model))
    ends = [n for n in trace if n.endswith((".output", "ed", "logits")) and n.count(".") < 3]
    wanted = ["encoder.embedded", "encoder.positioned", "encoder.0.output"]
    wanted += ["decoder.embedded", "decoder.positioned", "decoder.0.output", "decoder.1.output", "logits"]
    assert ends == wanted
    assert np.array_equal(trace["decoder.1.cross.k"], trace["decoder.1.cross.k"])
    w = parameters(model)["decoder.1.cross.w_k"]
    heads = (trace["encoder.0.output"] @ w).reshape(M, H, D // H).swapaxes(0, 1)
    assert np.array_equal(trace["decoder.1.cross.k"], heads)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "Transformer: neither encoder nor decoder has blocks; hint: decoder=(Block(…),)"),
        ({"decoder": DECODER}, "decoder must be a tuple of Blocks"),
        ({"decoder": (CROSS,)}, "the decoder has cross-attention, and there is no encoder to attend to"),
        ({"encoder": (CROSS,)}, "a block of the encoder has cross-attention, and nothing to attend to"),
        ({"encoder": (ENCODER,), "decoder": (DECODER,)}, "so that it ignores the encoder"),
        ({"decoder": (DECODER,), "norm": "l2"}, "Transformer: norm must be one of None, layer, rms, got 'l2'"),
        ({"decoder": (DECODER,), "positions": True}, "positions must be one of None, given, sinusoidal"),
        ({"decoder": (DECODER,), "tied": 1}, "Transformer: tied must be True or False, got 1"),
        ({"decoder": (DECODER,), "eps": "0"}, "Transformer: eps must be a finite number of at least 0, got '0'"),
        ({"decoder": (DECODER,), "softcap": 0}, "softcap must be a finite number above 0, or None, got 0"),
    ],
)
def test_a_field_that_means_nothing_is_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    refuses(Transformer, **fields, says=message)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"embedding": None}, "the model needs the input embedding"),
    ({"position_embedding": None, "embedding": None}, "the model needs the inputs embedding, position_embedding"),
    ({"unembedding": np.zeros((D, V))}, "unknown input 'unembedding'; did you mean embedding?"),
    ({"decoder.2.attention.w_q": np.zeros((D, D))}, "unknown input 'decoder.2.attention.w_q'"),
    ({"encoder.0.attention.w_q": np.zeros((D, D))}, "unknown input 'encoder.0.attention.w_q'"),
    ({"decoder.mlp.w_gate": np.zeros((D, D))}, "decoder.0: unknown input 'mlp.w_gate'"),
    ({"tokens": np.zeros(3)}, "tokens must hold whole numbers, got float64"),
    ({"tokens": np.zeros(7, int)}, "position_embedding has shape (5, 4): 5 rows for 7 places"),
    ({"position_embedding": np.zeros((5, 3))}, "(5, 4) and position_embedding (5, 3): d_model differs"),
    ({"decoder.1.mlp.w_up": np.zeros((3, D_FF))}, "decoder.1: x has shape (3, 4) and mlp.w_up (3, 6): d_model differs"),
    ({"decoder.1.attention.w_v": np.zeros((3, D))}, "decoder.1: attention: x has shape (3, 4) and w_v (3, 4): d_model"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), BAD, ids=[m[:40] for _, m in BAD])
def test_what_does_not_fit_is_said_in_one_line(changed: dict[str, Any], message: str) -> None:
    given = ids(GPT) | parameters(GPT) | changed
    refuses(GPT, **{n: a for n, a in given.items() if a is not None}, says=message)


# -- documents --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MODELS)
def test_a_document_has_every_input_and_every_different_step_once(name: str) -> None:
    model = MODELS[name]
    document = model.document()
    steps = [s.formula.first for b in document.blocks if isinstance(b, printing.Steps) for s in b.items]  # type: ignore[attr-defined]
    (table,) = [b for b in document.blocks if isinstance(b, printing.Table)]
    rows = {row[0][0].text for row in table.rows}  # type: ignore[union-attr]
    alike = {stack for stack in ("encoder", "decoder") if len(set(getattr(model, stack))) < len(getattr(model, stack))}
    parts = model.pipeline([*rows, *[n.replace(".0.", ".1.", 1) for n in rows if n.split(".")[0] in alike]])
    once = [p for p in parts if not (".1." in p.name and p.name.split(".")[0] in alike)]
    assert steps == [p.symbol for p in once]
    assert any(
        isinstance(b, printing.Paragraph) and "the same inputs as" in str(b.text) for b in document.blocks
    ) == bool(alike)
    assert isinstance(document.blocks[-1], printing.Items)
    assert ("Logits",) in [b.title for b in document.blocks if isinstance(b, printing.Heading)]


@pytest.mark.latex
def test_documents_compile_and_fit(tmp_path: Path) -> None:
    assert overfull(together(((name, x.document()) for name, x in MODELS.items()), tmp_path)) == []
