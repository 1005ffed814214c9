"""Messages of a process that is not trusted: data are read, and nothing else is done."""

import io
import os
import pickle
import struct
import sys
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from symattn import Attention, MissingExtra, Report, SymattnError, Verdict
from symattn.bounds.called_target import Argument, Convention, Failure, Outcome
from symattn.programs import messages
from symattn.programs.request import Request

DATA = [
    np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((2, 3))), np.ones((3, 2, 4)).transpose(1, 0, 2),
    np.zeros((0, 3)), np.array(True), np.array(["ab", "c"]), np.float32(1), np.bool_(1), 1j, {1, 2}, frozenset("a"),
    bytearray(b"xy"), range(3), slice(1, 2), Fraction(1, 3), Verdict.FAULT, [1, [2]], {"a": {"b": 1}},
]  # fmt: skip


def read(data: bytes, **known: object):
    return messages.DataAlone(io.BytesIO(data), known).load()


# One test of all rows: each takes less than a millisecond.
def test_data_are_read_as_they_were_written() -> None:
    for content, protocol in product(DATA, (4, 5)):
        result = read(pickle.dumps(content, protocol))
        assert type(result) is type(content)
        assert np.array_equal(result, content) if isinstance(content, np.ndarray) else result == content, content


def test_dataclasses_of_symattn_are_read() -> None:
    outcome = Outcome(np.ones(2), "float32", (2,), error=Failure("raised", "x"))
    result = read(pickle.dumps(outcome))
    assert result.error == outcome.error
    assert result.has_fitting_types
    spec = Attention(causal=True, scale=0.5)
    assert read(pickle.dumps((Request.of(spec), spec, MissingExtra))) == (Request.of(spec), spec, MissingExtra)


def text(words: str) -> bytes:
    return b"X" + struct.pack("<I", len(words)) + words.encode()


REPORT = b"csymattn.verification.report\nReport\n"
FAULT = b"csymattn.document.evidence\nVerdict\n" + text("fault") + b"\x85R"
FLOATS = b"cnumpy\ndtype\n" + text("f8") + b"\x89\x89\x87R"
#: What no message does, as operations of a pickle.
NO_DATA = {
    "runs a command": pickle.dumps(os.system),
    "sets an attribute of a class": REPORT + b"N}" + text("exit_code") + b"K\x00s\x86b.",
    "changes a member of an enumeration": FAULT + b"}" + text("_value_") + text("no fault") + b"sb.",
    "changes a dtype": FLOATS + b"(K\x03" + text(">") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb.",
    "makes objects of numbers": b"cnumpy\ndtype\n" + text("O") + b"\x85R.",
    "hides a method": REPORT + b")\x81}" + text("__repr__") + b"K\x00sb.",
    "fills a set without end": b"cbuiltins\nset\ncbuiltins\nrange\nJ\xff\xff\xff\x7f\x85R\x85R.",
    "calls a dataclass": REPORT + b")R.",
    "announces more than there is memory for": b"\x8e" + struct.pack("<Q", 1 << 50),
    "changes what it only names": text("mine") + b"QK\x01a.",
}


def test_nothing_else_is_read() -> None:
    mine: list[int] = []
    for name, operations in NO_DATA.items():
        # By the words of the refusal: a text that is no pickle at all would be refused as well.
        with pytest.raises(pickle.UnpicklingError, match=r"no d|change|replace|called|parts|too long"):
            print(name, read(b"\x80\x04" * (operations[:1] != b"\x80") + operations, mine=mine))
    assert mine == []
    assert Verdict.FAULT.value == "fault"
    assert isinstance(Report.exit_code, property)
    assert np.dtype("f8").isnative


def test_a_long_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_BYTES", 1000)
    assert len(read(pickle.dumps(b"x" * 900))) == 900
    with pytest.raises(pickle.UnpicklingError, match="too long"):
        read(pickle.dumps([b"x" * 600, b"y" * 600]))


def test_objects_of_the_caller_are_named() -> None:
    call = (("activation", len), ("number", 3))
    convention = Convention((Argument("activation", value=len), Argument("q", "q")))
    written = io.BytesIO()
    messages.Sender(written, {id(len): "activation"}).dump((Request(call=call), convention))
    request, how = read(written.getvalue(), **convention.objects())
    assert Request(call=call).objects() == convention.objects() == {"activation": len}
    assert (request.call, how) == (call, convention)


def test_an_error_is_read_by_its_class() -> None:
    result = read(pickle.dumps(SymattnError("words")))
    assert (type(result), result.args) == (SymattnError, ("words",))


def test_work_on_a_message_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Numbers like these can be chosen so that all have one hash.
    long = dict.fromkeys(range(2**40, 2**40 + 5000))
    for content in (long, {*long}, frozenset(long)):
        with pytest.raises(pickle.UnpicklingError, match="too many keys"):
            read(pickle.dumps(content))
    assert len(read(pickle.dumps({str(k): k for k in range(5000)}))) == 5000
    assert len(read(pickle.dumps(set(range(5000))))) == 5000
    for content in (1 << (1 << 16), Fraction(1 << (1 << 16), 3)):
        with pytest.raises(pickle.UnpicklingError, match="too long"):
            read(b"\x80\x04" + pickle.dumps(content)[2:])
    with pytest.raises(pickle.UnpicklingError, match="too long"):
        read(pickle.BYTEARRAY8 + struct.pack("<Q", 1 << 60) + b".")
    sets = messages.DataAlone(io.BytesIO(b"(" + pickle.EMPTY_SET * 500 + b"l."))
    assert sum(map(sys.getsizeof, sets.load())) <= sets.most_bytes_taken
    monkeypatch.setattr(messages, "MAX_OPERATIONS", 1000)
    assert read(b"N0" * 400 + b"K\x01.") == 1
    with pytest.raises(pickle.UnpicklingError, match="too many objects"):
        read(b"N0" * 600 + b"K\x01.")
