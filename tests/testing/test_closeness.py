"""``assert_close_to_exact``: what is within the bound passes; what is not is told by number, place and exact value."""

import re
from typing import Any

import numpy as np
import pytest

from symattn import Alibi, Attention, CannotRun, InputError, Precision
from symattn.arrays.formats import Format
from symattn.bounds import judgement
from symattn.bounds.judge import expected
from symattn.testing import AttentionFault, assert_attention, assert_close_to_exact
from tests.refusals import refuses
from tests.testing.half_kernels import words


def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    s = q @ k.swapaxes(-1, -2) / q.dtype.type(np.sqrt(q.shape[-1]))
    s = s if mask is None else np.where(mask, s, q.dtype.type(-np.inf))
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def arrays(*front: int, dtype: Any = np.float32) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(1)
    shapes = ((*front, 3, 4), (*front, 5, 4), (*front, 5, 2))
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)  # type: ignore[return-value]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_right_outputs_pass(dtype: Any) -> None:
    q, k, v = arrays(dtype=dtype)
    out = attention(q, k, v)
    assert_close_to_exact(out, q, k, v)
    assert_close_to_exact(out.astype(np.float64), q, k, v)
    assert_close_to_exact(out, q, k, v, precision=np.dtype(dtype).name)


def test_one_element_that_is_off_is_found_in_a_batch() -> None:
    q, k, v = arrays(2, 3)
    out = attention(q, k, v)
    assert_close_to_exact(out, q, k, v)
    out[1, 2, 0, 1] += 1e-3
    text = words(out, q, k, v)
    assert text.startswith("1 of 36 elements is beyond what any implementation in float32 can give\n")
    assert "The worst is out[1, 2, 0, 1]: got " in text
    off, legal = re.findall(r"Off by (\S+); at most (\S+) is allowed", text)[0]
    assert float(off) == pytest.approx(1e-3, rel=0.05)
    assert 1e-7 < float(legal) < 1e-4


def test_factors_rounded_to_eleven_digits_are_named() -> None:
    q, k, v = arrays()
    tf32 = Format("float16").rounded  # the same digits
    s = (tf32(q) @ tf32(k).T / 2).astype(np.float32)
    p = np.exp(s - s.max(-1, keepdims=True))
    out = tf32(p) @ tf32(v) / p.sum(-1, keepdims=True)
    assert_close_to_exact(out.astype(np.float32), q, k, v, precision="tf32")
    assert 'It passes with precision="tf32", where products of' in words(out.astype(np.float32), q, k, v)
    assert "tf32" not in words(1.1 * out.astype(np.float32), q, k, v)


def test_the_exact_value_is_told_where_it_has_a_form() -> None:
    q, k, v = np.float32([[1, 0]]), np.float32([[0, 0], [1, 0]]), np.float32([[0], [1]])
    assert "exact 0.6697615493 = exp(1/sqrt(2))/(1+exp(1/sqrt(2)))" in words(np.float32([[0.5]]), q, k, v)


def test_masks_heads_and_what_has_no_batch() -> None:
    q, k, v = arrays(2, 4)
    mask = np.random.default_rng(2).random((3, 5)) < 0.6
    mask[:, 0] = True
    spec = Attention(mask="boolean")
    assert_close_to_exact(attention(q, k, v, mask), q, k, v, spec, mask=mask)
    assert "beyond" in words(attention(q, k, v), q, k, v, spec, mask=mask)
    grouped = Attention(heads=4, kv_heads=2, causal=True)
    open_ = np.tri(3, 5, 2, dtype=bool)
    k, v = k[:, :2], v[:, :2]
    out = attention(q, k.repeat(2, axis=1), v.repeat(2, axis=1), open_)
    assert_close_to_exact(out, q, k, v, grouped)
    assert "beyond" in words(attention(q, np.tile(k, (1, 2, 1, 1)), np.tile(v, (1, 2, 1, 1)), open_), q, k, v, grouped)


def test_what_is_no_number() -> None:
    q, k, v = arrays()
    for wrong in (np.nan, np.inf):
        out = attention(q, k, v)
        out[2, 1] = wrong
        assert f"The worst is out[2, 1]: got {wrong}, exact " in words(out, q, k, v)
    mask = np.zeros((3, 5), dtype=bool)
    spec = Attention(mask="boolean", fully_masked="nan")
    assert_close_to_exact(np.full((3, 2), np.nan, np.float32), q, k, v, spec, mask=mask)
    assert "NaN is what the specification says" in words(attention(q, k, v), q, k, v, spec, mask=mask)


def test_strangers_behind_a_mask_are_of_no_account() -> None:
    q, k, v = arrays()
    mask = np.ones((3, 5), dtype=bool)
    mask[:, 3] = False
    out = attention(q, k, v, mask)
    v[3], k[3] = np.nan, np.inf
    assert_close_to_exact(out, q, k, v, Attention(mask="boolean"), mask=mask)
    refuses(assert_close_to_exact, out, q, k, v, says="k[3] is not finite where it counts")


def test_shapes_and_types_are_named() -> None:
    q, k, v = arrays()
    out = attention(q, k, v)
    assert words(out[:, :1], q, k, v) == "out has the shape (3, 1), expected (3, 2)"
    assert words(out.astype(np.float16), q, k, v) == "out is of float16 for inputs of float32"
    for given, told, match in (
        ((out, q[:, :3], k, v), {}, "d_k"),
        ((out, q.astype(int), k, v), {}, "q is of int64"),
        ((out, [[1.0]], k, v), {}, "q is not an array of NumPy or torch"),
        ((out, q, k, v), {"precision": "float16"}, "q holds numbers that float16 cannot hold"),
        ((out, q, k, v), {"mask": np.ones((3, 5), bool)}, "no input 'mask'"),
        ((out, q, k, v), {"masks": 3.0}, "no input masks"),
        ((out, q, k, v), {"sink": 3.0}, r"no input 'sink'; hint: Attention\(sink=…\)"),
        ((out, q, k, v), {"sink": "given"}, "sink is not an array"),
        ((out, q, k, v), {"causal": True}, r"it is a field: write Attention\(causal=…\)"),
        ((out, q, k, v), {"atol": 0.1}, "no tolerance is picked"),
    ):
        with pytest.raises(InputError, match=match):
            assert_close_to_exact(*given, **told)  # type: ignore[arg-type]


def test_many_elements_are_judged_by_intervals() -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, 150, 16)).astype(np.float32) for _ in "qkv")
    out = attention(q, k, v)
    assert_close_to_exact(out, q, k, v)
    out[1, 149, 3] *= 1 + 1e-3
    out[0, 7, 2] = np.nan
    text = words(out, q, k, v)
    assert text.startswith("2 of 4800 elements are beyond what any implementation in float32 can give\n")
    assert "The worst is out[0, 7, 2]: got nan, exact " in text
    causal = Attention(causal=True, heads=2)
    mask = np.tri(150, dtype=bool)
    assert_close_to_exact(attention(q, k, v, mask), q, k, v, causal)
    assert "beyond" in words(attention(q, k, v), q, k, v, causal)


def test_intervals_and_balls_say_the_same() -> None:
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((40, 16)).astype(np.float32) for _ in "qkv")
    for spec, mask in ((Attention(), None), (Attention(causal=True), np.tri(40, dtype=bool))):
        out = attention(q, k, v, mask)
        inputs = {"q": q.astype(float), "k": k.astype(float), "v": v.astype(float)}
        fast = judgement.measure(spec, inputs, out.astype(float), Precision.of("float32"))
        slow = expected(spec, inputs, Precision.of("float32"))
        np.testing.assert_allclose(fast.near, slow.in_balls.output.midpoints(), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(fast.allowed, slow.allowed, rtol=1e-12)
        ratios = super(type(slow), slow).ratios(out.astype(float))
        np.testing.assert_allclose(fast.ratios, ratios, rtol=1e-3, atol=1e-6)


def test_too_much_to_judge_is_refused() -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((400, 2)), rng.standard_normal((400, 2)), rng.standard_normal((400, 64))
    refuses(assert_close_to_exact, attention(q, k, v), q, k, v, says="a slice of the queries")


def test_a_number_for_an_input_is_read_as_one() -> None:
    q, k, v = arrays()
    out = attention(q, k, v)
    for name, given in {"scale": 0.5, "bias": np.zeros((3, 5))}.items():
        says = f"the specification has no input '{name}'; hint: Attention({name}=…)"
        refuses(assert_close_to_exact, out, q, k, v, **{name: given}, says=says)
    refuses(assert_close_to_exact, out, q, 2, v, says="k has shape (); it needs two axes")


@pytest.mark.torch
@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("form", ["meta", "nested", "sparse"])
def test_a_tensor_without_numbers_to_read_is_refused_in_a_line(form: str, at: int) -> None:
    torch = pytest.importorskip("torch")
    forms = {
        "meta": lambda a: a.to("meta"),
        "nested": lambda a: torch.nested.nested_tensor([a], layout=torch.jagged),
        "sparse": lambda a: a.to_sparse(),
    }
    given = [torch.eye(3)] * 4
    given[at] = forms[form](given[at])
    refuses(assert_close_to_exact, *given, says=f"{('out', 'q', 'k', 'v')[at]} is not an array of NumPy or torch: it ")


def test_a_function_that_never_returns_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any, **__: Any) -> Any:
        raise CannotRun("it gave nothing to judge: ValueError: not today")

    refuses(assert_attention, attention, precision="float31", says="unknown precision")
    monkeypatch.setattr("symattn.programs.verifying.verified", nothing)
    with pytest.raises(AttentionFault, match="not today"):
        assert_attention(attention)


def logarithms(q: Any, k: Any, mask: Any = None, tile: int = 99) -> Any:
    """By tiles that are merged by their own logarithms."""
    s = q @ k.swapaxes(-1, -2) / q.dtype.type(np.sqrt(q.shape[-1]))
    s = s if mask is None else np.where(mask, s, q.dtype.type(-np.inf))
    parts = []
    for j in range(0, s.shape[-1], tile):
        part = s[..., j : j + tile]
        m = np.maximum(part.max(-1, keepdims=True), q.dtype.type(-1e4))
        with np.errstate(divide="ignore"):
            parts.append(m[..., 0] + np.log(np.exp(part - m).sum(-1)))
    total = parts[0]
    for part in parts[1:]:
        total = np.logaddexp(total, part)
    return total


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_logarithms_of_sums(dtype: Any) -> None:
    q, k, v = arrays(2, dtype=dtype)
    out, mask = attention(q, k, v), np.tri(3, 5, 2, dtype=bool)
    for tile in (99, 3):
        assert_close_to_exact(out, q, k, v, lse=logarithms(q, k, tile=tile))
    assert_close_to_exact(attention(q, k, v, mask), q, k, v, Attention(causal=True), lse=logarithms(q, k, mask))
    assert "lse" in words(out, q, k, v, lse=logarithms(q, k) / dtype(np.log(2)))
    wrong = logarithms(q, k)
    wrong[1, 2] += 1
    text = words(out, q, k, v, lse=wrong)
    assert text.startswith(f"1 of 6 entries of lse are beyond what any implementation in {np.dtype(dtype).name} can")
    assert "The worst is lse[1, 2]: got " in text


def test_logarithms_of_what_no_query_sees_and_of_other_scores() -> None:
    q, k, v = arrays()
    mask = np.zeros((3, 5), dtype=bool)
    out, spec = np.zeros((3, 2), np.float32), Attention(mask="boolean")
    assert_close_to_exact(out, q, k, v, spec, mask=mask, lse=np.full(3, -np.inf, np.float32))
    assert "−∞ is what the specification says" in words(out, q, k, v, spec, mask=mask, lse=np.zeros(3, np.float32))
    assert words(attention(q, k, v), q, k, v, lse=np.zeros(2)) == "lse has the shape (2,), expected (3,)"
    capped = Attention(softcap=2)
    right = capped(q.astype(float), k.astype(float), v.astype(float)).astype(np.float32)
    refuses(assert_close_to_exact, right, q, k, v, capped, lse=np.zeros(3), says="scaled dot products")


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_legal_logarithms_are_within_the_bound(dtype: str) -> None:
    """Scores of every size, tiles of every size, sums in every order; the largest error is not far below the bound."""
    rng, held, closest = np.random.default_rng(5), Precision.of(dtype).input, 0.0
    for _ in range(150):
        n, d, size = rng.integers(1, 9), rng.integers(1, 5), 4.0 ** rng.integers(-2, 3)
        q, k = (held.cast(held.rounded(rng.standard_normal((n, d)) * size)) for _ in "qk")
        inputs = {"q": q.astype(float), "k": k.astype(float), "v": k.astype(float)}
        right = judgement.log_sums(Attention(), inputs, Precision.of(dtype))
        order = rng.permutation(n)
        got = logarithms(q, k[order], tile=int(rng.integers(1, n + 1))).astype(float)
        ratios = right.ratios(got)
        closest = max(closest, ratios.max())
        assert (ratios <= 1).all(), (ratios.max(), n, d, size)
    assert closest > 1e-3


N, H = 120, 2
SLOPES = np.array([0.0625, 0.00390625], dtype=np.float32)[:, None, None]


def capped(q: Any, k: Any, v: Any, cap: float) -> Any:
    s = np.float32(cap) * np.tanh(q @ k.mT / np.float32(4 * cap))
    return attention(s, np.eye(N, dtype=np.float32) * np.float32(N**0.5), v)


def alibi(q: Any, k: Any, v: Any, slopes: Any) -> Any:
    i = np.arange(N, dtype=np.float32)
    s = q @ k.mT / np.float32(4) + np.where(i <= i[:, None], slopes * (i - i[:, None]), -np.inf).astype(np.float32)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


@pytest.mark.deep
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_variants_of_many_tokens_are_judged(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    given = [rng.standard_normal((H, N, 16)).astype(dtype) for _ in range(3)]
    q, k, v = (a.astype(np.float32) for a in given)
    of_cap, of_slopes = Attention(heads=H, softcap=5), Attention(heads=H, causal=True, position=Alibi())
    for spec, right, wrong in (
        (of_cap, capped(q, k, v, 5), capped(q, k, v, 6)),
        (of_slopes, alibi(q, k, v, SLOPES), alibi(q, k, v, SLOPES[::-1])),
    ):
        assert_close_to_exact(right.astype(dtype), *given, spec)
        assert "beyond" in words(wrong.astype(dtype), *given, spec)
    with pytest.raises(InputError, match="too many for this specification"):
        assert_close_to_exact(*(np.zeros((3000, 16), dtype),) * 4, Attention(normaliser="sigmoid"))
