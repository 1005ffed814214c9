"""The strides among the names of functions: which are exchanged for each other."""

from pathlib import Path

from symattn.programs.repairing.source import Sources
from symattn.programs.repairing.strides import Stride, are_exchangeable, strides_of_functions
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
