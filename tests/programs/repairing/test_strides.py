"""The strides among the names of functions: which are exchanged for each other."""

import ast
from pathlib import Path

import pytest

from symattn.programs.repairing.source import Sources
from symattn.programs.repairing.strides import Stride, are_exchangeable, likely_strides, strides_of_functions
from tests.programs.repairing.programs import loaded

STRIDES = """
def part(x, stride_n, size):
    return x * stride_n + size


def launched(x, stride_qn, stride_qd, n):
    return part(x, stride_qn, n)


def attention(q, k, v):
    a, b = k.stride()
    one = k.stride()[1]
    return launched[(1,)](q, q.stride(0), n=len(q), stride_qd=one)
"""


def test_the_strides_of_functions_are_those_that_are_passed(tmp_path: Path) -> None:
    sources = Sources(loaded(tmp_path, STRIDES))
    strides = {sources.functions[key].function.__name__: value for key, value in strides_of_functions(sources).items()}
    assert strides == {
        "attention": {"a": Stride("k", "0"), "b": Stride("k", "1"), "one": Stride("k", "1")},
        "launched": {"stride_qn": Stride("q", "0"), "stride_qd": Stride("k", "1")},
        "part": {"stride_n": Stride("q", "0")},
    }
    assert are_exchangeable(Stride("q", "0"), Stride("q", "1"))
    assert are_exchangeable(Stride("q", "0"), Stride("k", "0"))
    assert not are_exchangeable(Stride("q", "0"), Stride("k", "1"))
    assert not are_exchangeable(Stride("q", "0"), None)


SUMS = """
def kernel(q, k, v, stride_qh, stride_qn, stride_kh, stride_kn, stride_vh, stride_vn):
    of_q = q + head * stride_qh + i[:, None] * stride_qn
    of_k = k + head * stride_kh + j[:, None] * stride_kn
    of_v = v + head.to(int64) * {head} + (j[:, None] * {token} + c)
    return of_q, of_k, of_v
"""


@pytest.mark.parametrize(
    ("head", "token", "suggested"),
    [
        ("stride_vh", "stride_vn", {}),
        ("stride_vn", "stride_vn", {"stride_vn": ["stride_vh"]}),
        ("stride_vh", "stride_kn", {"stride_kn": ["stride_vn"], "stride_vh": ["stride_kh"]}),
    ],
    ids=["right", "another axis", "another tensor"],
)
def test_a_stride_is_suggested_by_the_code_around_it(head: str, token: str, suggested: dict[str, list[str]]) -> None:
    tree = ast.parse(SUMS.format(head=head, token=token))
    names = {}
    for number, node in enumerate(ast.walk(tree)):
        node.number = number  # type: ignore[attr-defined]
        names[number] = getattr(node, "id", "")
    strides = {f"stride_{t}{a}": Stride(t, a) for t in "qkv" for a in "hn"}
    line = {n.number for n in ast.walk(tree.body[0].body[2])}  # type: ignore[attr-defined]
    found = {names[n]: meant for n, meant in likely_strides(tree, strides).items() if n in line}
    assert found == suggested


def test_indices_that_calls_of_one_module_make_are_told_apart() -> None:
    tree = ast.parse("q + tl.arange(0, N)[:, None] * stride_qn + tl.arange(0, D)[None, :] * stride_qd")
    strides = {"stride_qn": Stride("q", "0"), "stride_qd": Stride("q", "1")}
    assert likely_strides(tree, strides) == {}
