"""Blocks: every order of norms, with and without cross-attention and gates, against loops; names, shapes, documents."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from symattn import Attention, Block, InputError, Refused, evaluate, kind, kinds, printing, rounded
from tests.arrays.evaluating import compare
from tests.attention.definition import feed_forward
from tests.attention.transformer_loops import block as by_loops
from tests.attention.transformer_loops import farthest, numbers
from tests.document.render.test_latex_compiles import overfull, together
from tests.refusals import refuses

N, M, D, D_Y, D_FF, H = 3, 4, 6, 5, 7, 2
PLAIN, CAUSAL = Attention(heads=H), Attention(heads=H, causal=True)
DECODER = Block(attention=CAUSAL, cross=PLAIN)
BLOCKS = {
    "pre": Block(attention=CAUSAL),
    "post": Block(attention=PLAIN, order="post", activation="gelu"),
    "inner": Block(attention=PLAIN, order="inner", activation="gelu_tanh"),
    "sandwich, rms, gated": Block(attention=CAUSAL, order="sandwich", norm="rms", gated=True, activation="gelu_tanh"),
    "rms, gated": Block(attention=CAUSAL, norm="rms", gated=True, activation="silu", eps=1e-6),
    "no norm": Block(attention=PLAIN, norm=None),
    "parallel": Block(attention=CAUSAL, parallel=True, activation="gelu_tanh"),
    "decoder, pre": DECODER,
    "decoder, post": replace(DECODER, order="post", activation="gelu"),
    "decoder, sandwich": replace(DECODER, order="sandwich"),
}


def parameters(block: Block, seed: int = 0, biases: bool = True) -> dict[str, np.ndarray]:
    """Eighths for every parameter of a block, all sizes different."""
    rng = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {}

    def make(name: str, *shape: int) -> None:
        found[name] = rng.integers(-8, 9, shape) / 8

    for part in ("attention", "cross"):
        if getattr(block, part):
            source = D_Y if part == "cross" else D
            for role, rows, columns in (("q", D, D), ("k", source, D), ("v", source, 2 * H), ("o", 2 * H, D)):
                make(f"{part}.w_{role}", rows, columns)
                make(f"{part}.b_{role}", columns)
    for name, rows, columns in (("up", D, D_FF), ("gate", D, D_FF), ("down", D_FF, D)):
        if name != "gate" or block.gated:
            make(f"mlp.w_{name}", rows, columns)
            make(f"mlp.b_{name}", columns)
    for part in ("attention", "cross", "mlp"):
        if block.norm and (part != "cross" or block.cross):
            for norm in (f"{part}_norm", f"{part}_norm_after")[: 1 + (block.order == "sandwich")]:
                make(f"{norm}.gain", D)
                make(f"{norm}.bias", D)
    return found if biases else {n: a for n, a in found.items() if ".b_" not in n and not n.endswith("bias")}


def tokens(block: Block, *batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(9)
    found = {"x": rng.integers(-8, 9, (*batch, N, D)) / 4}
    return found | ({"y": rng.integers(-8, 9, (*batch, M, D_Y)) / 4} if block.cross else {})


def lifted(name: str, given: dict[str, np.ndarray]) -> dict[str, Any]:
    return {n: kind(name).lift(a) for n, a in given.items()}


def said(block: Block) -> dict[str, Any]:
    fields = {f: getattr(block, f) for f in ("norm", "order", "parallel", "activation", "gated", "eps")}
    return fields | {"h": H, "causal": block.attention.causal}


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("name", BLOCKS)
def test_by_loops(name: str, biases: bool) -> None:
    block = BLOCKS[name]
    given = tokens(block) | parameters(block, biases=biases)
    with kinds.precision(160), mpmath.workdps(45):
        got = block(**lifted("ball", given))
        assert all(x.rad() < 2.0**-100 for x in got.entries.flat)
        rows = {n: numbers(a) for n, a in given.items()}
        wanted = by_loops(rows.pop("x"), rows.pop("y", None), rows, said(block))
        assert farthest(got, wanted) < 1e-35
        others: list[dict[str, Any]] = [{"order": "post" if block.order != "post" else "pre"}]
        for wrong in [*others, {"causal": not block.attention.causal}, {"parallel": not block.parallel}]:
            if block.norm or "order" not in wrong:
                rows = {n: numbers(a) for n, a in given.items()}
                other = by_loops(rows.pop("x"), rows.pop("y", None), rows, said(block) | wrong)
                assert farthest(got, other) > 1e-3


# -- kinds ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", BLOCKS)
def test_floats_lie_within_their_bound(name: str, dtype: str) -> None:
    block = BLOCKS[name]
    weights = {n: a / 4 if ".w_" in n else a for n, a in parameters(block).items()}
    given = {n: a.astype(dtype) for n, a in (tokens(block) | weights).items()}
    got = block(**given)
    assert got.dtype == dtype
    bound = block(**{n: rounded(dtype).lift(a) for n, a in given.items()})
    assert bound.within(got).all()
    assert (bound.bound < (1e-3 if dtype == "float32" else 1e-11)).all()
    nudged = dict(given, **{"attention.w_v": given["attention.w_v"] + np.eye(D, 2 * H, dtype=dtype) / 16})
    assert not bound.within(block(**nudged)).all()


def test_a_batch_is_each_of_its_parts() -> None:
    given = tokens(DECODER, 2) | parameters(DECODER)
    whole = DECODER(**given)
    for i in range(2):
        alone = {n: a[i] if n in ("x", "y") else a for n, a in given.items()}
        np.testing.assert_allclose(whole[i], DECODER(**alone), rtol=1e-12)


def small(block: Block) -> dict[str, Any]:
    given = {"x": [[1, "1/2"], [-1, 2]], "mlp.w_up": [[1, -1], ["1/3", 1]], "mlp.w_down": [[1, 0], [2, "-1/5"]]}
    return given | ({"mlp.w_gate": [[1, 2], [0, 1]]} if block.gated else {})


def test_one_block_without_norms_is_exact() -> None:
    block = Block(attention=Attention(causal=True), norm=None)
    found = evaluate(block, small(block), digits=30)
    assert str(found.evidence) == "checked: exact numbers"
    with kinds.precision(160):
        balls = block(**{n: kind("ball").lift(a) for n, a in small(block).items()})
    assert all(b.overlaps(x.arb(160)) for b, x in zip(balls.entries.flat, found.output.entries.flat, strict=True))
    assert found.digits[0, 1] == "1"
    assert found.digits[1, 0] == found.output.entries[1, 0].decimal(30)


def test_roots_of_layers_and_a_second_exponential_are_refused_by_name_and_stay_formal() -> None:
    normed = Block(attention=Attention(), norm="rms", eps=0)
    with pytest.raises(Refused, match=r"sqrt.* is not in the decided field; use ball"):
        normed(**{n: kind("exact").lift(a) for n, a in small(normed).items()})
    gated = Block(attention=Attention(), norm=None, gated=True, activation="silu")
    given = {n: kind("exact").lift(a) for n, a in small(gated).items()}
    refuses(gated, kind=Refused, says="a second layer of exponentials leaves the decided field; use ball", **given)
    formal = gated(**{n: kind("symbolic").lift(a) for n, a in small(gated).items()})
    balls = evaluate(gated, small(gated), digits=40)
    assert balls.evidence.grade.value == "enclosed"
    assert "exp(" in str(formal.entries[0, 0])
    for expression, digits in zip(formal.entries.flat, balls.digits.flat, strict=True):
        assert str(expression.evalf(40)).rstrip("0") == digits.rstrip("0")


LETTERS = {"x": "n d", "attention.w_q": "d k", "attention.w_k": "d k", "attention.w_v": "d v", "attention.w_o": "v d"}
LETTERS |= {"mlp.w_up": "d f", "mlp.w_down": "f d", "mlp.b_up": "f"}


@pytest.mark.deep
@pytest.mark.parametrize("sizes", [{"n": 1, "d": 2, "k": 1, "v": 2, "f": 1}, {"n": 2, "d": 2, "k": 3, "v": 1, "f": 2}])
@pytest.mark.parametrize("gated", [False, True])
def test_a_block_with_letters_for_sizes_is_what_exact_arithmetic_gives(sizes: dict[str, int], gated: bool) -> None:
    block = Block(attention=Attention(), norm=None, gated=gated, activation="identity" if gated else "relu")
    letters = LETTERS | ({"mlp.w_gate": "d f"} if gated else {})

    def run(**given: Any) -> Any:
        return block(**{n.replace("__", "."): a for n, a in given.items()})

    compare(run, {n.replace(".", "__"): axes for n, axes in letters.items()}, sizes)


def test_norms_and_gelu_are_functions_of_letters() -> None:
    letters = LETTERS | {"attention_norm.gain": "d", "mlp_norm.gain": "d"}
    block = Block(attention=Attention(), norm="rms", activation="gelu")
    given = {n: kinds.Indexed.letters(n, *axes.split()) for n, axes in letters.items()}
    assert block(**given).shape == given["x"].shape


# -- names ------------------------------------------------------------------------------------------------------------
def test_a_trace_names_its_arrays_in_order() -> None:
    block = Block(attention=PLAIN, gated=True, activation="silu")
    given = tokens(block) | parameters(block, biases=False)
    inner = "q k v scores scaled weights attended output"
    computed = ["attention_norm.output", *(f"attention.{n}" for n in inner.split()), "attention_stream"]
    computed += ["mlp_norm.output", "mlp.gate", "mlp.up", "mlp.hidden", "mlp.output", "output"]
    assert list(block.trace(**given)) == [*given, *computed]
    assert [part.name for part in block.pipeline(given)] == computed


def test_parts_of_a_trace_are_what_their_names_say() -> None:
    given = tokens(DECODER) | parameters(DECODER)
    t = DECODER.trace(**given)
    own = {n.removeprefix("cross."): a for n, a in given.items() if n.startswith("cross.")}
    assert np.array_equal(t["cross.output"], PLAIN(x=t["cross_norm.output"], y=given["y"], **own))
    assert np.array_equal(t["cross_stream"], t["attention_stream"] + t["cross.output"])
    gated = Block(attention=PLAIN, gated=True, activation="silu")
    given = tokens(gated) | parameters(gated)
    t = gated.trace(**given)
    mlp = {n.removeprefix("mlp."): a for n, a in given.items() if n.startswith("mlp.")}
    wanted = feed_forward(lambda x: x / (1 + np.exp(-x)), t["mlp_norm.output"], **mlp)
    np.testing.assert_allclose(t["mlp.output"], wanted, rtol=1e-13, atol=1e-15)


def test_parameters_go_through_files(tmp_path: Path) -> None:
    block = BLOCKS["rms, gated"]
    given, x = parameters(block), tokens(block)
    np.savez(tmp_path / "block.npz", **given)  # type: ignore[arg-type]
    from_npz = dict(np.load(tmp_path / "block.npz"))
    from_json = {n: np.array(a) for n, a in json.loads(json.dumps({n: a.tolist() for n, a in given.items()})).items()}
    assert np.array_equal(block(**x, **from_npz), block(**x, **given))
    assert np.array_equal(block(**x, **from_json), block(**x, **given))


def test_attention_alone_and_masks_of_each_attention() -> None:
    block = Block(attention=Attention(heads=H, padding=True), cross=Attention(heads=H, mask="boolean"), activation=None)
    given = tokens(block) | {n: a for n, a in parameters(block).items() if "mlp" not in n}
    keep, mask = np.array([True, False, True]), np.ones((N, M), bool)
    mask[:, 1] = False
    t = block.trace(**given, **{"attention.keep": keep, "cross.mask": mask})
    assert (t["attention.weights"][..., 1] == 0).all()
    assert (t["cross.weights"][..., 1] == 0).all()
    assert (np.delete(t["cross.weights"], 1, -1) > 0).all()
    assert "mlp.up" not in t


# -- what does not fit ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attention": None}, "Block: attention must be an Attention, got None"),
        ({"cross": "yes"}, "Block: cross must be an Attention or None, got 'yes'"),
        ({"norm": "batch"}, "Block: norm must be one of None, layer, rms"),
        ({"order": "last"}, "Block: order must be one of pre, post, inner, sandwich"),
        ({"gated": "yes"}, "Block: gated must be True or False, got 'yes'"),
        ({"eps": -1}, "Block: eps must be a finite number of at least 0, got -1"),
        ({"eps": "1e-5"}, "Block: eps must be a finite number of at least 0, got '1e-5'"),
        ({"parallel": True, "order": "post"}, "after a norm outside it is gone; hint: order='pre'"),
        ({"activation": None, "gated": True}, "Block: gated is True, but there is no feed-forward layer to gate"),
    ],
)
def test_a_field_that_means_nothing_is_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    refuses(Block, **{"attention": PLAIN, **fields}, says=message)


def test_unknown_activations_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match="Block: activation must be one of relu, gelu, gelu_tanh, silu"):
        Block(attention=PLAIN, activation="swish")


ZEROS = np.zeros
BAD: list[tuple[dict[str, Any], str]] = [
    ({"mlp.w_up": None}, "the block needs the input mlp.w_up"),
    ({"y": None, "mlp.w_down": None}, "the block needs the inputs y, mlp.w_down"),
    ({"w_q": ZEROS((D, D))}, "unknown input 'w_q'; known: x, y, attention_norm.gain, attention_norm.bias"),
    ({"mlp.w_gate": ZEROS((D, D_FF))}, "unknown input 'mlp.w_gate'"),
    ({"attention.w_z": ZEROS((D, D))}, "attention: this attention has no input w_z"),
    ({"attention.w_q": ZEROS((5, D))}, "attention: x has shape (3, 6) and w_q (5, 6): d_model differs"),
    ({"cross.keep": ZEROS(M, bool)}, "cross: the specification has no input 'keep'"),
    ({"cross.w_k": ZEROS((4, D))}, "cross: y has shape (4, 5) and w_k (4, 6): d_model differs"),
    ({"mlp.w_up": ZEROS((5, D_FF))}, "x has shape (3, 6) and mlp.w_up (5, 7): d_model differs"),
    ({"mlp.b_up": ZEROS(6)}, "mlp.w_up has shape (6, 7) and mlp.b_up (6,): d_ff differs"),
    ({"mlp_norm.gain": ZEROS(7)}, "and mlp_norm.gain (7,): d_model differs"),
    ({"y": ZEROS((2, M, D_Y)), "x": ZEROS((3, N, D))}, "the axes before the last two differ"),
    ({"attention.w_o": ZEROS((2 * H, 1)), "attention.b_o": None},
     "attention gives tokens of shape (3, 1); the tokens it is added to have (3, 6)"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), BAD, ids=[m[:40] for _, m in BAD])
def test_what_does_not_fit_is_said_in_one_line(changed: dict[str, Any], message: str) -> None:
    given = tokens(DECODER) | parameters(DECODER) | changed
    given = {"x": given.pop("x")} | {n: a for n, a in given.items() if a is not None}
    refuses(DECODER, **given, says=message)


# -- documents --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", BLOCKS)
def test_a_document_has_a_step_for_each_array_and_a_row_for_each_input(name: str) -> None:
    block = BLOCKS[name]
    document = block.document()
    first, *groups = [b for b in document.blocks if isinstance(b, printing.Steps)]
    assert len(first.items) == len(groups) == 2 + (block.cross is not None)
    (table,) = [b for b in document.blocks if isinstance(b, printing.Table)]
    inputs = [row[0][0].text for row in table.rows]
    parts = block.pipeline(inputs)
    assert [s.formula for g in groups for s in g.items] == [_equation(p) for p in parts]
    given = tokens(block) | parameters(block, biases=False)
    assert set(given) <= set(inputs)
    assert all(n.endswith("norm.bias") or n.endswith("after.bias") for n in set(inputs) - set(given))


def _equation(part: Any) -> Any:

    return printing.equals(part.symbol, part.formula)


def test_the_document_says_the_shapes_of_the_trace() -> None:
    """The letters of every shape, at the sizes of a run, are the shapes of its arrays."""
    block = replace(DECODER, gated=True)
    given = tokens(block) | parameters(block)
    trace = block.trace(**given)
    sizes = {"n": N, "n_k": M, "d_model": D, "d_ff": D_FF, "h": H, "h_kv": H, "d_k": D // H, "d_v": 2}
    steps = [s for b in block.document(given).blocks if isinstance(b, printing.Steps) for s in b.items][3:]
    for part, step in zip(block.pipeline(given), steps, strict=True):
        words = step.reason[: step.reason.index(": ")] if ": " in step.reason else step.reason
        letters = [w for w in words if not isinstance(w, str)]
        names = ["_".join([x.base, *(s.base for s in x.sub)]) for x in letters]
        assert tuple(sizes[name] for name in names) == trace[part.name].shape, part.name


def test_letters_of_cross_attention_have_an_index() -> None:
    titles = [b.title[0] for b in DECODER.document().blocks if isinstance(b, printing.Heading)]
    assert titles == ["Inputs", "Steps", "Attention", "Cross-attention", "Feed-forward layer", "Conventions"]
    written = repr([p.formula for p in DECODER.pipeline(tokens(DECODER) | parameters(DECODER)) if "cross.q" in p.name])
    assert "Name(base='c'" in written


@pytest.mark.latex
def test_documents_compile_and_fit(tmp_path: Path) -> None:
    assert overfull(together(((name, x.document()) for name, x in BLOCKS.items()), tmp_path)) == []
