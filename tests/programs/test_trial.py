"""How a function wants its arrays is determined by trial, whether it is right or wrong."""

import functools
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Domain, LinearAttention, Precision, verify
from symattn.bounds.called_target import Argument, Convention
from symattn.bounds.inputs import Maker, Sizes
from symattn.programs import definitions
from symattn.programs.calls import Target
from symattn.programs.layouts import documented, lettered
from symattn.programs.request import Request
from symattn.programs.target import target
from symattn.programs.trial import ConventionTrial
from symattn.programs.verifying import requested
from tests.faults.programs import softmax
from tests.verification.naming import convicts

TWO = Attention(heads=2)
PADDED = Attention(padding=True)


def scores(q: Any, k: Any, d: float = -0.5) -> Any:
    return q @ k.swapaxes(-1, -2) * q.dtype.type(q.shape[-1] ** d)


def flat(q: Any, k: Any, v: Any) -> Any:
    return softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v


def any_axes(q: Any, k: Any, v: Any) -> Any:
    return softmax(scores(q, k)) @ v


def three(q: Any, k: Any, v: Any) -> Any:
    return softmax(np.einsum("xyd,xzd->xyz", q, k) / np.sqrt(q.shape[-1])) @ v


def heads_first(q: Any, k: Any, v: Any) -> Any:
    assert q.ndim == 4
    return any_axes(q, k, v)


def tokens_first(q: Any, k: Any, v: Any) -> Any:
    weights = softmax(np.einsum("xiyd,xjyd->xyij", q, k) * q.dtype.type(q.shape[-1] ** -0.5))
    return np.einsum("xyij,xjyd->xiyd", weights, v)


def before_the_batch(q: Any, k: Any, v: Any) -> Any:
    turned = [np.transpose(x, (1, 2, 0, 3)) for x in (q, k, v)]
    return np.transpose(any_axes(*turned), (2, 0, 1, 3))


def side_by_side_before_the_batch(q: Any, k: Any, v: Any) -> Any:
    return np.swapaxes(side_by_side(*(np.swapaxes(x, 0, 1) for x in (q, k, v))), 0, 1)


def of_tokens_before_the_batch(x: Any, w_q: Any, w_k: Any, w_v: Any) -> Any:
    return np.swapaxes(of_tokens(np.swapaxes(x, 0, 1), w_q, w_k, w_v), 0, 1)


def tokens_first_unscaled(q: Any, k: Any, v: Any) -> Any:
    return np.einsum("xyij,xjyd->xiyd", softmax(np.einsum("xiyd,xjyd->xyij", q, k)), v)


def heads_mixed(q: Any, k: Any, v: Any) -> Any:
    """With other axes it runs where all sizes are equal."""
    q, k, v = (a.swapaxes(1, 2) for a in (q, k[..., ::-1, :], v))
    return (scores(q, k) @ v).swapaxes(1, 2)


def square_unscaled(q: Any, k: Any, v: Any) -> Any:
    assert q.shape == k.shape
    return tokens_first_unscaled(q, k, v)


def no_batch(q: Any, k: Any, v: Any) -> Any:
    return tokens_first(q[None], k[None], v[None])[0]


def side_by_side(q: Any, k: Any, v: Any) -> Any:
    assert q.ndim == 3
    q, k, v = (a.reshape(*a.shape[:2], 2, -1).swapaxes(1, 2) for a in (q, k, v))
    out = any_axes(q, k, v).swapaxes(1, 2)
    return out.reshape(*out.shape[:2], -1)


def promised(q: Any, k: Any, v: Any) -> Any:
    """Shapes: q (batch, heads, n, d)."""
    return any_axes(q, k, v)


def of_tokens(x: Any, w_q: Any, w_k: Any, w_v: Any) -> Any:
    n, _, _ = x.shape
    assert n == 2
    return any_axes(x @ w_q, x @ w_k, x @ w_v)


@pytest.mark.parametrize(
    ("function", "spec", "layout"),
    [
        (flat, Attention(), "nd"), (any_axes, Attention(), "nd"), (three, Attention(), "bnd"),
        (heads_first, Attention(), "bhnd"), (tokens_first, Attention(), "bnhd"), (no_batch, Attention(), "nhd"),
        (tokens_first_unscaled, Attention(), "bnhd"), (square_unscaled, Attention(), "bnhd"),
        (promised, Attention(), "bhnd"), (of_tokens, Attention(), "bnd"),
        (any_axes, TWO, "nd"), (heads_first, TWO, "bhnd"), (tokens_first, TWO, "bnhd"), (side_by_side, TWO, "bnc"),
        (before_the_batch, Attention(), "nbhd"), (before_the_batch, TWO, "nbhd"),
        (side_by_side_before_the_batch, TWO, "nbc"), (of_tokens_before_the_batch, Attention(), "nbd"),
        (tokens_first_unscaled, TWO, "bnhd"), (heads_mixed, Attention(), "bnhd"), (heads_mixed, TWO, "bnhd"),
    ],
)  # fmt: skip
def test_layouts(function: Callable[..., Any], spec: Attention, layout: str) -> None:
    convention = settled(function, spec)
    assert convention.layout == layout
    assert any("by trial" in n for n in convention.notes) == (layout != "nd")


def settled(function: Callable[..., Any], spec: Attention, **told: Any) -> Convention:
    found = target(function, Request.of(spec, framework="numpy", dtype="float32", **{"layout": "auto", **told}))
    return found.convention


def test_axes_in_front_are_seen() -> None:
    assert settled(any_axes, Attention()).front == "taken"
    assert settled(flat, Attention()).front == "none"


def test_a_layout_that_is_told_is_taken() -> None:
    assert settled(any_axes, Attention(), layout="bnhd").layout == "bnhd"


def test_axes_are_not_taken_against_the_text_if_the_code_reads_beyond_its_memory() -> None:
    """With the axes (b, h, n, d), which nobody documents, it runs, and reads what lies behind an array."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        """q (batch, seq, heads, dim)"""
        assert q.shape[1] < q.shape[2]  # three heads: no tokens are that few
        return heads_first(q, k, v)

    request = Request.of(Attention(heads=3), framework="numpy", dtype="float32", layout="auto")
    for beyond, layouts in ((False, {"bhnd"}), (True, set())):
        found = ConventionTrial(
            attention,
            request,
            "",
            lambda how, inputs, _: Target(attention, how).run(inputs),
            lambda *_, beyond=beyond: beyond,
        ).make()
        assert found.ran == layouts
        assert (found.right is not None) == (not beyond)


def _padded(form: str, turned: bool = False) -> Callable[..., Any]:
    def attention(q: Any, k: Any, v: Any, key_padding_mask: Any) -> Any:
        b, n_k = len(q), k.shape[-2]
        shape = {"bk": (b, n_k), "b11k": (b, 1, 1, n_k), "b1qk": (b, 1, q.shape[-2], n_k), "bqk": (b, q.shape[-2], n_k)}
        assert q.ndim == 4
        assert key_padding_mask.shape == shape[form]
        open_ = key_padding_mask if len(shape[form]) == 4 else key_padding_mask.reshape(b, 1, -1, n_k)
        return softmax(np.where(open_ ^ turned, scores(q, k), np.float32(-np.inf))) @ v

    return attention


@pytest.mark.parametrize("form", ["bk", "b11k", "b1qk", "bqk"])
@pytest.mark.parametrize("turned", [False, True])
def test_forms_and_polarity_of_a_mask_of_padding(form: str, turned: bool) -> None:
    """Where the layout is told, too."""
    told = settled(_padded(form, turned), PADDED, layout="bhnd")
    for found in (settled(_padded(form, turned), PADDED), told):
        (mask,) = [a for a in found.arguments if a.input == "keep"]
        assert (mask.form, mask.inverted, found.layout) == (form, turned, "bhnd")
    assert not any("axes are taken" in n for n in told.notes)


def test_an_unclear_mask_that_is_never_right_is_taken_as_its_name_is_usually_meant() -> None:
    def ignores_it(q: Any, k: Any, v: Any, key_padding_mask: Any) -> Any:
        return any_axes(q, k, v)

    (mask,) = [a for a in settled(ignores_it, PADDED).arguments if a.input == "keep"]
    assert mask.inverted


def _lengths(q: Any, k: Any, v: Any, seq_lens: Any) -> Any:
    open_ = np.arange(k.shape[-2]) < np.asarray(seq_lens)[..., None]
    return softmax(np.where(open_[:, None, None] if q.ndim == 4 else open_, scores(q, k), np.float32(-np.inf))) @ v


def test_lengths() -> None:
    convention = settled(_lengths, PADDED)
    assert (convention.layout, convention.arguments[3].form) == ("nd", "length")
    batched = settled(lambda q, k, v, lens: _lengths(q, k, v, lens) if q.ndim == 4 else None, PADDED)
    assert (batched.layout, batched.arguments[3].form) == ("bhnd", "lengths")


def test_plain_arrays_come_first_where_they_run_for_all_sizes_that_are_promised() -> None:
    def by_queries(q: Any, k: Any, v: Any, keep: Any) -> Any:
        return softmax(np.where(keep[:, None], scores(q, k), np.float32(-1e9))) @ v

    assert settled(by_queries, PADDED, domain=Domain(square=True)).layout == "nd"
    assert settled(by_queries, PADDED).layout == "bnd"  # (b, n_k)[:, None] is right there, and (n_k,)[:, None] raises


def test_the_trial_stays_within_the_domain() -> None:
    def short(q: Any, k: Any, v: Any) -> Any:
        assert q.ndim == 4
        assert k.shape[2] <= 6
        return any_axes(q, k, v)

    assert settled(short, Attention(), domain=Domain(max_tokens=6)).layout == "bhnd"


def test_functions_that_take_multiples_alone_have_a_layout() -> None:
    def in_blocks(q: Any, k: Any, v: Any) -> Any:
        assert all(n % 64 == 0 for a in (q, k, v) for n in a.shape[1::2])
        return tokens_first(q, k, v)

    assert settled(in_blocks, Attention()).layout == "bnhd"


def _biased(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return softmax(scores(q, k, -1) + bias) @ v


@pytest.mark.deep
def test_a_bias_has_no_axis_more_only_because_the_output_is_right() -> None:
    def of_one_head(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return _biased(q, k, v, bias[:1])

    def in_batches(q: Any, k: Any, v: Any, bias: Any) -> Any:
        _, h, _, _ = q.shape
        assert bias.shape[:2] == (1, h)
        return _biased(q, k, v, bias[:1])

    def form(function: Any) -> tuple[str, str]:
        found = settled(function, Attention(heads=2, bias=True))
        return found.layout, next(a.form for a in found.arguments if a.input == "bias")

    assert form(of_one_head) == ("nd", "")
    assert form(_biased) == ("nd", "")
    assert form(in_batches) == ("bhnd", "1hqk")


@pytest.mark.deep
def test_a_mask_is_passed_only_where_the_function_is_not_causal_without() -> None:
    def by_mask(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        s = scores(q, k)
        return softmax(s if mask is None else np.where(mask, s, np.float32(-np.inf))) @ v

    def by_itself(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        assert mask is None
        s = scores(q, k, -1)
        return softmax(np.where(np.tri(len(q), len(k), len(k) - len(q), dtype=bool), s, np.float32(-np.inf))) @ v

    causal = Attention(causal=True)
    assert "mask=causal mask" in settled(by_mask, causal).printed
    assert "mask" not in settled(by_itself, causal).printed


def argument(one: Argument, how: Convention, inputs: Any) -> Any:
    """What a function is passed for one of its arguments."""
    passed: list[Any] = []

    def function(argument: Any) -> Any:
        passed.append(argument)
        return inputs["v"]

    outcome = Target(function, replace(how, arguments=(replace(one, positional=True),))).run(inputs)
    assert outcome.error is None, outcome.error
    return passed[0]


def test_masks_of_several_items_differ_and_arrive_at_their_items() -> None:
    keep = np.array([[True, False, True], [True, True, False]])
    inputs = {"q": np.ones((2, 4, 5, 1)), "k": np.ones((2, 4, 3, 1)), "v": np.ones((2, 4, 3, 1)), "keep": keep[:, None]}
    how = Convention((), layout="bhnd")
    for form, shape in {"bk": (2, 3), "b11k": (2, 1, 1, 3), "b1qk": (2, 1, 5, 3), "bhqk": (2, 4, 5, 3)}.items():
        found = argument(Argument("keep", "keep", form=form), how, inputs)
        assert found.shape == shape
        assert np.array_equal(found[1].reshape(-1, 3)[-1], keep[1])
    assert argument(Argument("n", "keep", form="lengths"), how, inputs).tolist() == [2, 2]


def test_labels_of_queries_are_as_many_as_queries() -> None:
    """Beside more keys than queries, in a batch too."""
    inputs = {"q": np.ones((2, 3, 1)), "k": np.ones((2, 5, 1)), "v": np.ones((2, 5, 1)), "doc_q": np.array([0, 1, 1])}
    how = Convention((), layout="bnd")
    made = argument(Argument("q_segment_ids", "doc_q", form="bk"), how, inputs)
    assert made.tolist() == [[0, 1, 1], [0, 1, 1]]


@pytest.mark.parametrize(
    ("labels", "bounds"),
    [
        ([0, 0, 1, 1, 2], [0, 2, 4, 5]),
        ([1, 1, 2, 2, 2], [0, 2, 5]),
        ([0, 0, 1, 1, 10**12], [0, 0, 2, 4, 4, 4, 5, 5]),  # those around the labels stand for all that are skipped
        ([0, 0, 1, 1, 4], [0, 0, 2, 4, 4, 4, 5, 5]),  # labels that are skipped: empty documents, at both ends as well
    ],
)
def test_documents_by_their_bounds(labels: list[int], bounds: list[int]) -> None:
    inputs = {"q": np.ones((5, 1)), "k": np.ones((5, 1)), "v": np.ones((5, 1)), "doc": np.array(labels)}
    assert argument(Argument("cu", "doc", form="bounds"), Convention(()), inputs).tolist() == bounds


def test_documents_by_bounds_of_queries_and_of_keys() -> None:
    """As many bounds for either; a document may have keys alone."""
    q, k = np.ones((3, 1)), np.ones((5, 1))
    inputs = {"q": q, "k": k, "v": k, "doc_q": np.array([1, 1, 3]), "doc_k": np.array([0, 0, 1, 2, 3])}
    made = [argument(Argument("cu", f"doc_{r}", form="bounds"), Convention(()), inputs).tolist() for r in "qk"]
    assert made == [[0, 0, 2, 2, 3], [0, 2, 3, 4, 5]]


@pytest.mark.parametrize(
    ("text", "layouts"),
    [
        ("q: (batch, heads, seq, dim)", ("bhnd",)), ("B, H, N, D = q.shape", ("bhnd",)), ("(b, s, h, d)", ("bnhd",)),
        ("x (b, n, d_model)", ("bnd",)), ("rows are tokens", ()), ("[batch n_heads q_len d]", ("bhnd",)),
        ("q: (batch_size, seqlen_q, nheads, head_dim)", ("bnhd",)), ("k (batch, n_heads_kv, seq_len_k, d)", ("bhnd",)),
        ("query of shape (seq_len, batch, heads, d)", ("nbhd",)), ("T, B, C = x.shape", ("nbd",)),
        ("einsum('bthd,bshd->bhts', q, k)", {"bnhd"}), ('einsum("b h i d, b h j d -> b h i j", q, k)', {"bhnd"}),
        ("einsum('bqd,bkd->bqk', q, k)", {"bnd"}), ("einsum('qhd,khd->hqk', q, k)", {"nhd"}),
        ("einsum('qbhd,kbhd->bhqk', q, k)", {"nbhd"}),
        ("einsum('bhts,bshd->bthd', p, v)", set()), ("a, b -> c", set()),
    ],
)  # fmt: skip
def test_what_the_documentation_and_the_letters_of_einsum_say(text: str, layouts: Collection[str]) -> None:
    def function() -> None: ...

    function.__doc__, function.__code__ = text, compile("def f(): pass", "nowhere", "exec").co_consts[0]
    assert (lettered if isinstance(layouts, set) else documented)(function) == layouts


def test_a_function_that_never_runs_is_called_as_the_specification_has_it() -> None:
    def raising(q: Any, k: Any, v: Any) -> Any:
        raise ValueError("not today")

    found = target(raising, Request.of(Attention(), framework="numpy", layout="auto"))
    assert isinstance(found, Target)
    assert found.convention.layout == "nd"


def _notes(function: Callable[..., Any], spec: Any = None, **told: Any) -> str:
    found = settled(function, spec or Attention(), **told)
    return " ".join((*found.notes, *found.reservations))


def test_a_wrong_function_that_is_right_with_other_axes_is_told_so() -> None:
    def tokens_second(q: Any, k: Any, v: Any) -> Any:
        s = scores(q, k)
        return softmax(s) @ v if q.ndim == 3 else softmax(s.T).T @ v

    assert settled(tokens_second, Attention()).layout == "nd"
    assert "With the axes (b, n, d) it gives what the specification says: --layout bnd" in _notes(tokens_second)
    assert "it gives" not in _notes(lambda q, k, v: 2 * any_axes(q, k, v))


def test_a_right_function_that_is_wrong_with_other_axes_is_told_so() -> None:
    def one_axis_more(q: Any, k: Any, v: Any) -> Any:
        assert q.ndim > 2
        s = scores(q, k)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(2, keepdims=True) @ v

    found = settled(one_axis_more, Attention())
    assert found.layout == "bnd"
    assert "With the axes (b, h, n, d) it runs too, and does not give" in " ".join(found.reservations)
    assert "runs too" not in _notes(three)


def test_a_function_is_judged_with_the_axes_that_its_text_names() -> None:
    def of_four(q: Any, k: Any, v: Any) -> Any:
        """Shapes: q (batch, n, heads, d)."""
        assert q.ndim == 4
        return any_axes(q, k, v)

    def of_heads(q: Any, k: Any, v: Any) -> Any:  # q, k, v: (batch, n, heads, d)
        return any_axes(q, k, v)

    def refusing(q: Any, k: Any, v: Any) -> Any:
        """Shapes: q (batch, n, heads, d)."""
        assert q.ndim == 2
        return any_axes(q, k, v)

    def turned(q: Any, k: Any, v: Any) -> Any:
        """Scores: (batch, heads, n_q, n_k)."""
        q, k, v = (x.swapaxes(-2, -3) for x in (q, k, v))  # (batch, heads, n, d)
        return any_axes(q, k, v).swapaxes(-2, -3)

    for function in (of_four, of_heads):
        found = settled(function, Attention())
        assert found.layout == "bnhd"
        stated, right = found.reservations
        assert stated == "Its text names the axes (b, n, h, d), with which it is judged."
        assert "(b, h, n, d) it gives what the specification says" in right
    found = settled(refusing, Attention())
    assert found.layout == "nd"
    assert "Its text names the axes (b, n, h, d), and it is right with (n, d) alone." in found.reservations
    assert settled(turned, TWO).layout == "bnhd"  # what a comment says of other arrays is no statement


def ones_row(mask: Any, n: int) -> Any:
    """Read a mask with one row for all queries as if it had a row for each of them."""
    flat = np.broadcast_to(mask, (*mask.shape[:2], 1, mask.shape[-1])).reshape(-1)
    at = np.arange(mask.shape[0])[:, None, None] + np.arange(n)[:, None] + np.arange(mask.shape[-1])
    return flat[at % flat.size][:, None]


def masked(q: Any, k: Any, v: Any, allowed: Any) -> Any:
    return softmax(np.where(allowed, scores(q, k), np.float32(-np.inf))) @ v


def stated(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Attend to keys. mask: (batch, 1, 1, n_k) or (batch, 1, n_q, n_k)."""
    return masked(q, k, v, ones_row(mask, q.shape[-2]) if sum(mask.shape[2:3]) == 1 else mask)


def asking(q: Any, k: Any, v: Any, mask: Any) -> Any:
    if mask.shape[-2] == 1:
        mask = ones_row(mask, q.shape[-2])
    return masked(q, k, v, mask)


def silent(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return masked(q, k, v, ones_row(mask, q.shape[-2]) if sum(mask.shape[2:3]) == 1 else mask)


def test_every_form_of_a_mask_that_runs_is_judged() -> None:
    padded = Attention(heads=2, padding=True)
    for function, form in ((stated, "b11k"), (asking, "b11k"), (silent, "b1qk")):
        found = settled(function, padded, layout="bhnd")
        assert found.arguments[3].form == form, function
        (said,) = found.reservations
        assert said.startswith("With mask as (b, 1, n_q, n_k)")
        assert "wrong as (b, 1, 1, n_k)" in said
        assert ("--mask-axes b,1,1,n_k judges it so" in said) is (function is silent)
    found = settled(silent, padded, layout="bhnd", mask_axes="b11k")
    assert found.arguments[3].form == "b11k"
    for right in (masked, lambda q, k, v, mask: masked(q, k, v, mask[:, None]), lambda q, k, v, mask: masked(
        q, k, v, mask[:, None, None] if mask.ndim == 2 else mask[:, None] if mask.ndim == 3 else mask
    )):  # fmt: skip
        for spec in (padded, Attention(heads=2, mask="boolean"), Attention(padding=True)):
            assert settled(right, spec, layout="bhnd").reservations == (), spec


def agrees(function: Callable[..., Any], spec: Attention, layout: str, **told: Any) -> bool:
    """Whether the function gives the specification's output for random inputs in the forms that were determined."""
    called = target(function, Request.of(spec, framework="numpy", layout=layout, **told))
    assert isinstance(called, Target)
    maker, rng = Maker(spec, called.convention, Precision.of("float64"), Domain()), np.random.default_rng(0)
    inputs = maker.make(
        Sizes(4, 6, 4, 2, batch=maker.batch_axes(maker.batches)), lambda name, shape: rng.integers(-2, 3, shape), rng
    )
    return bool(np.allclose(called.run(inputs).output, spec(**inputs), atol=1e-12))


def test_masks_of_heads_and_of_items_are_told_apart() -> None:
    of_items = lambda q, k, v, mask: masked(q, k, v, mask[:, None] if mask.ndim == 3 else mask)  # noqa: E731
    of_heads = lambda q, k, v, mask: masked(q, k, v, mask[None] if mask.ndim == 3 else mask)  # noqa: E731
    first_head = lambda q, k, v, mask: masked(q, k, v, mask[:, :1])  # noqa: E731
    boolean = Attention(heads=2, mask="boolean")
    for function, form in ((of_items, "bqk"), (of_heads, "hqk"), (masked, "hqk"), (masked, "bhqk"), (masked, "1hqk")):
        assert agrees(function, boolean, "bhnd", mask_axes=form), form
    assert not agrees(first_head, boolean, "bhnd", mask_axes="bhqk")
    said = settled(first_head, boolean, layout="bhnd").reservations
    assert "(b, h, n_q, n_k)" in " ".join(said).partition("wrong as")[2]


def test_each_head_has_a_dropout_mask_of_its_own() -> None:
    def dropping(q: Any, k: Any, v: Any, drop: Any, first: bool = False) -> Any:
        drop = drop[..., :1, :, :] if first else drop
        return np.where(drop, softmax(scores(q, k)) / 0.75, 0) @ v

    for layout in ("bhnd", "nd"):
        assert agrees(dropping, Attention(heads=2, dropout=0.25), layout)
        assert not agrees(dropping, Attention(heads=2, dropout=0.25), layout, call=(("first", True),))


def test_a_mask_that_is_right_when_negated_is_told_so() -> None:
    def ignoring(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return softmax(np.where(mask, np.float32(-np.inf), scores(q, k))) @ v

    found = settled(ignoring, Attention(mask="boolean"))
    assert not found.arguments[3].inverted
    assert "--mask-arg ~mask" in " ".join(found.reservations)
    assert "--mask-arg" not in _notes(lambda q, k, v, mask: any_axes(q, k, v), Attention(mask="boolean"))


def _linear_over(axis: int) -> Callable[..., Any]:
    def linear(q: Any, k: Any, v: Any) -> Any:
        state = np.cumsum(np.abs(k)[..., None] * v[..., None, :], axis=axis, dtype=np.float32)
        return (np.abs(q)[..., None, :] @ state)[..., 0, :]

    return linear


@pytest.mark.parametrize(("axis", "layout", "told"), [(1, "bnhd", True), (0, "nhd", True), (-3, "bhnd", False)])
def test_linear_attention_over_an_axis_that_is_right_for_some_orders_alone(axis: int, layout: str, told: bool) -> None:
    def linear(q: Any, k: Any, v: Any) -> Any:
        q, k = np.maximum(q, 0), np.maximum(k, 0)
        return _linear_over(axis)(q, k, v)

    request = requested(LinearAttention(feature="relu", normalised=False), dtype="float32")
    found = definitions.target(linear, request).convention
    assert isinstance(found, definitions.Formed)
    assert found.order == layout
    assert any("With the axes (b, h, n, d)" in n and "runs too" in n for n in found.reservations) is told


def test_a_definition_has_tokens_before_the_batch() -> None:
    def with_lse(q: Any, k: Any, v: Any) -> Any:
        s = np.einsum("qbhd,kbhd->bhqk", q, k) / np.sqrt(q.shape[-1])
        return np.einsum("bhqk,kbhd->qbhd", softmax(s), v), np.log(np.exp(s).sum(axis=-1))

    found = definitions.target(with_lse, requested(Attention(lse=True), dtype="float64")).convention
    assert isinstance(found, definitions.Formed)
    assert found.order == "nbhd"


@pytest.mark.deep
def test_linear_attention_over_features_is_wrong_with_all_axes() -> None:
    request = requested(LinearAttention(feature="relu", normalised=False), dtype="float32")
    found = definitions.target(_linear_over(-1), request).convention
    assert not any("runs too" in n for n in found.notes)
    spec = LinearAttention(feature="relu", normalised=False)
    assert convicts(_linear_over(-1), spec, framework="numpy", examples=0)


def _with_mask(change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def attention(q: Any, k: Any, v: Any, attention_mask: Any = None) -> Any:
        s = scores(q, k)
        return softmax(s if attention_mask is None else change(s, attention_mask)) @ v

    return attention


_CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "": lambda s, m: np.where(m, s, np.float32(-np.inf)),
    "ones": lambda s, m: s + (m - np.ones_like(m)).astype(np.float32) * np.float32(1e9),
    "additive": lambda s, m: s + m.astype(np.float32),
}
_MASKED = {"causal": Attention(causal=True), "padding": PADDED}


@pytest.mark.parametrize("what", _MASKED)
@pytest.mark.parametrize("numbers", _CHANGES)
@pytest.mark.parametrize("layout", ["auto", "bhnd"])
def test_masks_as_numbers(what: str, numbers: str, layout: str) -> None:
    if what == "padding":

        def function(q: Any, k: Any, v: Any, attention_mask: Any) -> Any:
            wide = attention_mask[:, None, None] if q.ndim == 4 else attention_mask
            return _with_mask(_CHANGES[numbers])(q, k, v, wide)

    else:
        function = _with_mask(_CHANGES[numbers])
    found = settled(function, _MASKED[what], layout=layout)
    assert found.arguments[-1].numbers == numbers
    assert any("is passed as" in n and "by trial" in n for n in found.notes) == bool(numbers)


@pytest.mark.parametrize(
    "change",
    [
        lambda s, m: s - m.astype(np.float32), lambda s, m: s * m, lambda s, m: _CHANGES[""](s, ~m),
        lambda s, m: np.where(m, np.float32(-np.inf), s), lambda s, m: np.where(m != 0, np.float32(-1e30), s),
    ],
)  # fmt: skip
def test_masks_that_are_wrong_as_booleans_and_as_numbers(change: Callable[[Any, Any], Any]) -> None:
    spec = Attention(causal=True)
    found = settled(_with_mask(change), spec)
    assert (found.arguments[-1].numbers, found.arguments[-1].inverted) == ("", False)


@pytest.mark.deep
def test_a_causal_mask_of_the_wrong_polarity_is_found() -> None:
    spec = Attention(causal=True)
    for change in (lambda s, m: _CHANGES[""](s, ~m), lambda s, m: np.where(m, np.float32(-np.inf), s)):
        report = verify(_with_mask(change), spec, framework="numpy", examples=0)
        assert report.verdict.value == "fault"
        assert any("--mask-arg ~" in note for note in report.notes)


def test_a_boolean_mask_that_the_specification_gives_is_not_made_additive() -> None:
    def added(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return softmax(scores(q, k) + mask) @ v

    assert settled(added, Attention(mask="boolean")).arguments[3].numbers == ""


@pytest.mark.parametrize(
    "spec", [Attention(normaliser="sigmoid"), Attention(normaliser="sigmoid", heads=2, causal=True)]
)
def test_sigmoids_with_and_without_the_logarithm_of_the_number_of_keys(spec: Attention) -> None:
    def sigmoids(shift: Callable[[int], float], q: Any, k: Any, v: Any) -> Any:
        s = scores(q, k) - np.float32(shift(k.shape[-2]))
        n_q, n_k = s.shape[-2:]
        weights = 1 / (1 + np.exp(-s))
        return (weights * np.tri(n_q, n_k, n_k - n_q, dtype=np.float32) if spec.causal else weights) @ v

    def told(shift: Callable[[int], float]) -> str:
        return _notes(functools.partial(sigmoids, shift), spec)

    assert "less log n_k" in told(lambda n: float(np.log(n)))
    assert "It would be right without − log n_k" in told(lambda n: 0.0)
    assert "log n_k" not in told(lambda n: -float(np.log(n)))
