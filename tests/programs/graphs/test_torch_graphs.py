"""Programs of ``torch.export``: a module of ten lines, right and with faults."""

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest

from symattn import Attention, Block, InputError, Rotary, graphs
from symattn.programs import definitions
from symattn.programs.identity import identity
from symattn.programs.target import target
from symattn.programs.verifying import requested
from tests.sizes import SIZES

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch
CAUSAL = Attention(causal=True, heads=2)


class Ten(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Causal attention of two heads, with a fault that can be asked for."""

    def __init__(self, d: int = 8, fault: str = "") -> None:
        super().__init__()
        self.qkv, self.out, self.fault = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d), fault

    def forward(self, x: Any) -> Any:
        b, n, d = x.shape
        q, k, v = (t.view(b, n, 2, d // 2).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        w = q @ k.transpose(-1, -2) / ((d // 2) ** 0.5 if self.fault != "scale" else 2.5)
        hidden = torch.ones(n, n, dtype=torch.bool)
        hidden = hidden.tril(-1) if self.fault == "flipped" else hidden.triu(1)
        w = w.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.out((w @ v).transpose(1, 2).reshape(b, n, d))


def _exported(module: Any, *args: Any, **shapes: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module.eval(), args, **shapes)


def _ten(fault: str = "") -> Any:
    sizes = {"x": {0: torch.export.Dim("b"), 1: torch.export.Dim("n")}}
    return _exported(Ten(fault=fault), torch.randn(2, 5, 8), dynamic_shapes=sizes)


def test_a_module_of_ten_lines_is_tested() -> None:
    report = graphs.verify_graph(_ten(), CAUSAL, prove=False)
    assert (report.verdict.value, report.checks[0].grade.value) == ("no fault", "tested")
    assert (report.checks[0].epsilon or 1) <= 1e-12


@pytest.mark.parametrize(("fault", "step"), [("scale", "scale"), ("flipped", "mask")])
def test_its_faults_are_named(fault: str, step: str) -> None:
    report = graphs.verify_graph(_ten(fault), CAUSAL)
    assert (report.verdict.value, report.faults[0].step) == ("fault", step)


def test_an_unknown_operator_raises_by_name() -> None:
    program = _exported(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()), torch.randn(2, 4))
    with pytest.raises(InputError, match=r"aten\.gelu is not read"):
        graphs.verify_graph(program)


@pytest.mark.parametrize(
    ("more", "keywords", "words"),
    [
        ([], {"approximate": "tanh"}, r"aten\.softmax: approximate = 'tanh' is not read$"),
        ([0] * 5, {}, r"aten\.softmax: it has 7 operands; at most 3 can be read$"),
        ([], {"out": None}, r"aten\.softmax: out that is computed is not read$"),
    ],
)
def test_an_argument_that_is_not_taken_is_named(more: list[int], keywords: dict[str, Any], words: str) -> None:
    program = _exported(Masked(lambda i: i <= i[:, None]), *torch.randn(3, 5, 4))
    node = next(node for node in program.graph.nodes if "softmax" in str(node.target))
    node.args = (*node.args, *more)
    node.kwargs = {name: node.args[0] if value is None else value for name, value in keywords.items()}
    with pytest.raises(InputError, match=words):
        graphs.verify_graph(program, Attention(causal=True), prove=False)


class Llama(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A layer of Llama with its causal mask; cosines and sines come from outside, each angle once or twice."""

    def __init__(self, flipped: bool) -> None:
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaAttention

        super().__init__()
        config = LlamaConfig(hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=4)
        config._attn_implementation = "sdpa"
        self.attn, self.flipped = LlamaAttention(config, 0), flipped

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
        allowed = allowed.triu() if self.flipped else allowed.tril()
        tables = [torch.cat((t, t), -1)[None] if t.shape[-1] == 2 else t[None] for t in (cos, sin)]
        return self.attn(x, position_embeddings=tables, attention_mask=allowed[None, None])[0]


def _llama(flipped: bool = False, columns: int = 2) -> Any:
    n = torch.export.Dim("n")
    sizes = {"x": {0: torch.export.Dim("b"), 1: n}, "cos": {0: n}, "sin": {0: n}}
    args = torch.randn(2, 5, 16), torch.randn(5, columns), torch.randn(5, columns)
    return _exported(Llama(flipped), *args, dynamic_shapes=sizes)


@pytest.mark.transformers
def test_a_layer_of_llama_is_tested_and_a_flipped_mask_refuted() -> None:
    spec = Attention(causal=True, heads=4, kv_heads=2, position=Rotary(given="tables"))
    report = graphs.verify_graph(_llama(), spec, prove=False)
    assert (report.verdict.value, report.checks[0].grade.value) == ("no fault", "tested")
    assert (report.checks[0].epsilon or 1) <= 1e-12
    report = graphs.verify_graph(_llama(flipped=True), spec, prove=False)
    assert (report.verdict.value, report.faults[0].step) == ("fault", "mask")


@pytest.mark.transformers
@pytest.mark.exhaustive
def test_a_layer_of_llama_takes_tables_of_all_columns() -> None:
    spec = Attention(causal=True, heads=4, kv_heads=2, position=Rotary(given="tables"))
    assert graphs.verify_graph(_llama(columns=4), spec, prove=False).verdict.value == "no fault"


class Bare(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Attention of q, k, v; with a fault that can be asked for, and a buffer that counts the calls."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        if not self.fault:
            self.calls += 1
        if self.fault == "whole":
            q = q.long().float()
        elif self.fault == "like":
            q = q.to(torch.ones(1, dtype=torch.int64)).float()
        return torch.nn.functional.scaled_dot_product_attention(q.to("cpu", torch.float32), k, v)


@pytest.mark.parametrize("fault", ["whole", "like"])
def test_a_cast_to_whole_numbers_is_refused(fault: str) -> None:
    with pytest.raises(InputError, match="cast of computed numbers to whole ones"):
        graphs.verify_graph(_exported(Bare(fault), *torch.randn(3, 2, 5, 4)))


def test_a_buffer_that_changes_is_not_the_output() -> None:
    program, table = _exported(Bare(), *torch.randn(3, 2, 5, 4)), torch.export.default_decompositions()
    table.pop(torch.ops.aten.scaled_dot_product_attention.default, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = program.run_decompositions(table)
    assert program.graph_signature.output_specs[0].kind.name == "BUFFER_MUTATION"
    assert graphs.verify_graph(program, prove=False).verdict.value == "no fault"


class Masked(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Attention of q, k, v under a mask of positions."""

    def __init__(self, seen: Any) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        s = (q @ k.transpose(-1, -2) / 2).masked_fill(~self.seen(torch.arange(5)), float("-inf"))
        return s.softmax(-1) @ v


def test_bytes_in_their_range_are_read() -> None:
    program = _exported(Masked(lambda i: i.to(torch.uint8) <= i.to(torch.uint8)[:, None]), *torch.randn(3, 5, 4))
    assert graphs.verify_graph(program, Attention(causal=True)).verdict.value == "no fault"


def test_remainders_have_the_sign_of_the_divisor() -> None:
    from_the_end = Masked(lambda i: (-i - 1) % 5 >= ((-i - 1) % 5)[:, None])
    program = _exported(from_the_end, *torch.randn(3, 5, 4))
    assert graphs.verify_graph(program, Attention(causal=True), prove=False).verdict.value == "no fault"


def test_quotients_of_places_are_rounded_down_and_toward_zero() -> None:
    def up_to_its_own(i: Any) -> Any:
        keys = torch.div(1 - 2 * i, 2, rounding_mode="floor")
        queries = torch.div(-1 - 2 * i, 2, rounding_mode="trunc")
        return keys >= queries[:, None]

    program = _exported(Masked(up_to_its_own), *torch.randn(3, 5, 4))
    assert graphs.verify_graph(program, Attention(causal=True), prove=False).verdict.value == "no fault"
    in_blocks = _exported(Masked(lambda i: i // 2 <= (i // 2)[:, None]), *torch.randn(3, 5, 4))
    assert graphs.verify_graph(in_blocks, Attention(causal=True), prove=False).verdict.value == "fault"


@pytest.mark.parametrize("b", [torch.tensor(0.1, dtype=torch.float64), torch.tensor(3)])
def test_quotients_toward_zero_are_those_of_torch(b: Any) -> None:
    class Quotients(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x + torch.div(torch.arange(-20, 21, dtype=b.dtype), b, rounding_mode="trunc")

    zeros = torch.zeros(41, dtype=torch.float64)
    graph = graphs.read(_exported(Quotients(), zeros))
    (got,) = graphs.run(graph, {"x": zeros.numpy()}, zeros.numpy())
    assert np.array_equal(got, Quotients()(zeros).numpy())


def test_a_rounded_quotient_of_computed_numbers_is_refused_by_its_name() -> None:
    class Rounded(Bare):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return super().forward(torch.div(q, 2, rounding_mode="trunc"), k, v)

    with pytest.raises(InputError, match=r"aten\.div: a quotient with rounding_mode = 'trunc' of computed numbers"):
        graphs.verify_graph(_exported(Rounded(), *torch.randn(3, 2, 5, 4)))


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (lambda i: (i[:, None] - i).to(torch.uint8) <= 4, "-4 does not fit uint8"),
        (lambda i: i.to(torch.uint8) * 100 <= 200, "400 does not fit uint8"),
        (lambda i: ~i.to(torch.uint8) > 250, "-5 does not fit uint8"),
    ],
)
def test_what_wraps_around_is_refused(seen: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        graphs.verify_graph(_exported(Masked(seen), *torch.randn(3, 5, 4)), Attention(causal=True))


# -- operators ---------------------------------------------------------------------------------------------------------
def in_parts(q: Any, k: Any, v: Any, size: int = 3, beta: float = 1.0) -> Any:
    """Causal attention by parts of keys of which the last may be shorter."""
    n, m = q.shape[-2], k.shape[-2]
    hidden = q.new_full((n, m), float("-inf")).triu(1 + m - n)
    outputs, sums = [], []
    for a, b, mask in zip(k.split(size), v.split(size), hidden.split(size, 1), strict=True):
        s = torch.addmm(mask, q, a.T, beta=beta, alpha=q.shape[-1] ** -0.5)
        sums.append(s.exp().sum(-1))
        outputs.append(s.exp() @ b)
    rest = sum(sums[1:], torch.zeros_like(sums[0]))
    total = torch.logaddexp(sums[0].log(), rest.log())
    return sum(outputs[1:], outputs[0]) * torch.expm1(-total).add(1)[:, None]


def by_logarithms(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T / q.shape[-1] ** 0.5
    n, m = s.shape
    return (s + torch.ones(n, m).tril(m - n).log()).log_softmax(-1).exp() @ v


def by_wrong_parts(q: Any, k: Any, v: Any) -> Any:
    return in_parts(q, k, torch.cat([torch.cat([p[-1:], p[:-1]]) if len(p) < 3 else p for p in v.split(3)]))


def backwards(q: Any, k: Any, v: Any, turned: tuple[int, ...] = (0,)) -> Any:
    """Causal attention with keys and values from the last to the first."""
    n, m = q.shape[-2], k.shape[-2]
    seen = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    s = q @ k.flip(0).T / q.shape[-1] ** 0.5
    return s.masked_fill(~seen.flip(1), float("-inf")).softmax(-1) @ v.flip(turned)


def test_the_activation_of_a_layer_is_read() -> None:
    spec = Block(attention=Attention(), norm="rms", order="post", activation="relu")

    def norm(x: Any, gain: Any) -> Any:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-5) * gain

    def layer(
        x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, w_up: Any, w_down: Any, ln1_weight: Any, ln2_weight: Any
    ) -> Any:
        s = (x @ w_q) @ (x @ w_k).mT / w_q.shape[-1] ** 0.5
        h = norm(x + s.softmax(-1) @ (x @ w_v) @ w_o, ln1_weight)
        return norm(h + torch.relu(h @ w_up) @ w_down, ln2_weight)

    assert definitions.target(layer, requested(spec, dtype="float32"), "layer").semantics(spec, 60).agrees


@pytest.mark.parametrize(
    ("function", "right"),
    [
        (by_wrong_parts, False), (in_parts, True), (by_logarithms, True), (backwards, True),
        (partial(backwards, turned=(0, 1)), False),
    ],
)  # fmt: skip
def test_parts_and_logarithms_of_0_are_read_as_torch_computes_them(function: Any, right: bool) -> None:
    causal = Attention(causal=True)
    found = target(function, requested(causal, dtype="float32")).semantics(causal, 60)
    assert found.agrees is right


def _prepared(q: Any, k: Any, v: Any) -> Any:
    """The same arrays, by operators that graphs of attention seldom have."""
    n = k.shape[-2]
    q = torch.stack([q, q.flip(-2)])[0] + q.new_zeros(q.shape) + torch.zeros_like(q)
    v = torch.cumsum(torch.cat([v[..., :1, :], v.diff(dim=-2)], -2), -2)
    one = torch.eye(n, dtype=k.dtype)
    k = torch.linalg.inv(one + one.tril(-1)) @ (one + one.tril(-1)) @ k
    empty = k[..., :0, :].flip(-2)
    return torch.softmax(q @ torch.cat([empty, k], -2).mT / q.shape[-1] ** 0.5, -1) @ v


@pytest.mark.parametrize("wrong", [False, True])
def test_operators_that_only_prepare_are_read(wrong: bool) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return _prepared(q, k, torch.cumsum(v, -2) if wrong else v)

    found = identity(target(attention, requested(Attention(), "nd", framework="torch")), Attention(), SIZES[:2])
    assert found.agrees is not wrong
    assert (found.epsilon is None) == wrong


def cached(lost: bool) -> Any:
    """A cache whose slots are written and read in another order; ``lost``: not the slot of the last key."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        n = k.shape[-2]
        slots = torch.arange(n - 1, -1, -1)
        keys, values = torch.zeros_like(k), torch.zeros_like(v)
        keys[..., slots[: n - lost], :] = k[..., : n - lost, :]
        values.index_copy_(-2, slots, v)
        return torch.softmax(q @ keys[..., slots, :].mT / q.shape[-1] ** 0.5, -1) @ values[..., slots, :]

    return attention


def hidden(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.mT / q.shape[-1] ** 0.5
    seen = torch.ones(s.shape[-2:], dtype=torch.bool).tril(s.shape[-1] - s.shape[-2])
    s[..., ~seen] = -torch.inf
    return torch.softmax(s, -1) @ v


@pytest.mark.parametrize(
    ("function", "spec", "right"),
    [(cached(False), Attention(), True), (cached(True), Attention(), False), (hidden, Attention(causal=True), True)],
    ids=["slots", "a slot that is lost", "mask"],
)
def test_arrays_of_places_are_read(function: Any, spec: Attention, right: bool) -> None:
    found = identity(target(function, requested(spec, "nd", framework="torch")), spec, SIZES[:2])
    assert found.agrees is right


def test_sums_into_places_are_refused() -> None:
    def summed(q: Any, k: Any, v: Any) -> Any:
        places = (torch.zeros(k.shape[-2], dtype=torch.int64),)
        k = torch.zeros_like(k).index_put(places, k, accumulate=True)
        return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v

    found = identity(target(summed, requested(Attention(), "nd", framework="torch")), Attention(), SIZES[:2])
    assert found.agrees is None
    assert "a sum into places" in found.evidence.where
