"""Parts of long statements under names of their own, which mean what they stand for."""

import re

import pytest

from symattn.proof.coq import coq_judges
from symattn.proof.coq.coq_judges import judged
from symattn.proof.coq.inferences import lemmas
from tests.proof.test_coq import records
from tests.proof.test_coq_inferences import with_text


def test_what_occurs_often_is_written_once_and_what_is_short_stays() -> None:
    (said,) = lemmas("kv", records("kv-cache-step"))
    assert said.readable
    lines = [line.strip() for line in said.readable.statement.splitlines()]
    lets = [line for line in lines if line.startswith("let ")]
    assert lets[:2] == [
        "let s := sum d_k (fun i => Q_1_0 i * K_1_0 i) * rsqrt (INR d_k) in",
        "let t := fun i => sum d_k (fun j => Q_1_0 j * K_0_0 i j) * rsqrt (INR d_k) in",
    ]
    assert said.readable.statement.count("rsqrt (INR d_k)") == 2
    assert len(said.readable.statement) < 1100
    (short,) = lemmas("short", [records("softmax-shift")[0]])
    assert short.readable
    assert "let " not in short.readable.statement


@pytest.mark.deep
def test_a_name_for_a_part_is_no_other_name() -> None:
    for theorem in ("softmax-shift", "gqa-is-mha", "backward-dQ", "sink-is-extra-key"):
        for said in lemmas("x", records(theorem)):
            assert said.readable
            text = said.readable.statement
            own = re.findall(r"let (\w+) :=", text)
            others = [
                w for words in re.findall(r"\(([\w ]+) : |fun ([\w ]+) =>", text) for w in " ".join(words).split()
            ]
            assert not {*own} & {*others, "i", "j", "l"}
            assert len({*own}) == len(own)


@pytest.mark.coq
def test_a_part_that_is_not_what_it_stands_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coq_judges, "SECONDS", 5)  # to see that two real numbers differ, Coq would unfold what they are
    grouped = records("gqa-is-mha")
    for old, new in (
        ("(fun a => t i j k a / ", "(fun a => s i j k a / "),
        ("exp (s i j k a) / ", "exp (t i j k a) / "),
    ):
        assert judged(with_text(lemmas("order", grouped), old, new)).accepted == frozenset()
    assert judged(lemmas("so", grouped)).accepted == {"so"}
