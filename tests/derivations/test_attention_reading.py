"""The formulas of ``Attention.document()`` and of ``derive attention`` are read, and are what the steps compute."""

from dataclasses import replace
from typing import Any

import pytest

from symattn.attention import spec as specification
from symattn.attention.flow import Step as Part
from symattn.attention.spec import Attention
from symattn.attention.variants import SIZES, VARIANTS
from symattn.derivations import derive
from symattn.derivations.attention.inputs import DerivationRequest, read_request
from symattn.derivations.attention.reading import Read, defines, run, runs
from symattn.derivations.attention.words import SEES
from symattn.derivations.steps import FalseStep
from symattn.document.evidence import Evidence, Grade
from symattn.document.model import Steps
from symattn.document.notation import Name, Neg, Node, Relation, Row, Words, call, equals, name, node, total
from symattn.document.text import text

CHECKED = Evidence(Grade.CHECKED, "some sizes")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_formula_of_every_document_is_what_its_step_computes(variant: str) -> None:
    spec, names = VARIANTS[variant].spec, VARIANTS[variant].names
    asked = DerivationRequest(spec, names, {**SIZES, **VARIANTS[variant].sizes})
    parts = spec.pipeline(names)
    group = next(b for b in spec.document(names).blocks[1:] if isinstance(b, Steps))
    assert [step.formula for step in group.items] == [equals(part.symbol, part.formula) for part in parts]
    found = (run(asked, 0),)
    for part, step in zip(parts, group.items, strict=True):
        assert Read(part, found).with_reason(part.reason).check(step.formula, CHECKED) is CHECKED


def of(step: str, **fields: Any) -> Read:
    asked = read_request(**fields)
    part = next(p for p in asked.spec.pipeline(asked.names) if p.name == step)
    return Read(part, runs(asked))


I_, J, L = Name("i"), Name("j"), Name("l")
S_IJ, Q_IL, K_JL = name("s", I_, J), name("q", I_, L), name("k", J, L)
DOT = total(L, 1, name("d", "k"), Q_IL * K_JL)
FALSE: list[tuple[Node, str]] = [
    (equals(S_IJ, 2 * DOT), "not what scores gives"),
    (equals(S_IJ, total(L, 1, name("n", "k"), Q_IL * K_JL)), "beyond its axis|not what"),
    (equals(S_IJ, total(L, 1, name("d", "v"), Q_IL * K_JL)), "beyond its axis|not what"),
    (equals(name("s", I_, I_), DOT), "free indices|not run over"),
    (equals(name("s", J, I_), DOT), "not run over|not what|beyond"),
    (equals(S_IJ, total(L, 1, name("d", "k"), Q_IL * name("k", J, L + 1))), "beyond its axis"),
    (equals(S_IJ, call("f", Name("Q"))), "the function f"),
    (equals(Name("S"), Name("Q") * Name("K")), "multiply|gives|shapes"),
    (equals(Name("S"), Name("R")), "no meaning"),
    (Relation(S_IJ, (("≤", DOT),)), "no equation"),
    (Row((equals(S_IJ, DOT), Words("for"), Words("some keys"))), "the condition"),
    (Row((equals(S_IJ, DOT), Words("for"), Words("all others"))), "all others than which"),
]


@pytest.mark.parametrize(("formula", "why"), FALSE, ids=[text(f) for f, _ in FALSE])
def test_what_is_false_or_cannot_be_read_is_refused(formula: Node, why: str) -> None:
    with pytest.raises(FalseStep, match=why):
        of("scores", tokens=2, keys=3).check(formula, CHECKED)
    assert of("scores", tokens=2, keys=3).check(equals(S_IJ, DOT), CHECKED) is CHECKED


def test_a_condition_holds_together_with_all_others() -> None:
    read = of("masked", tokens=2, keys=3, causal=True)
    left, place = name("s''", I_, J), I_ + name("n", "k") - name("n", "q")
    others = Row((equals(left, Neg(Name("∞"))), Words("for all other keys")))

    def kept(bound: Node) -> Node:
        return Row((equals(left, name("s'", I_, J)), Words("for"), Relation(J, (("≤", bound),))))

    assert read.check(kept(place), CHECKED, None, others)
    assert read.check(others, CHECKED, kept(place))
    assert read.check(kept(place - 1), CHECKED), "true, of fewer keys"
    for wrong in (place - 1, place + 1, I_, name("n", "k")):
        with pytest.raises(FalseStep):
            read.check(kept(wrong), CHECKED, None, others)


def test_rows_without_a_key() -> None:
    read = of("weights", tokens=3, keys=2, causal=True)
    row = total(J, 1, name("n", "k"), name("a", I_, J))
    one = Row((equals(row, 1), Words("for"), Words(SEES)))
    assert read.check(one, CHECKED, None, Row((equals(row, node(0)), Words("for"), Words("all others"))))
    with pytest.raises(FalseStep):
        read.check(equals(row, 1), CHECKED)
    document = derive("attention", tokens=3, keys=2, causal=True)
    assert not any("𝟏" in text(s.formula) for b in document.blocks if isinstance(b, Steps) for s in b.items)


def test_a_false_formula_of_a_step_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = specification.pipeline

    def wrong(spec: Attention, given: frozenset[str]) -> tuple[Part, ...]:
        steps = honest(spec, given)
        return tuple(replace(s, written=f"2 {s.written}") if s.name == "scores" else s for s in steps)

    monkeypatch.setattr("symattn.attention.spec.pipeline", wrong)
    with pytest.raises(FalseStep, match="not what scores gives"):
        derive("attention", tokens=2)


@pytest.mark.deep
def test_rotated_parts_of_latents() -> None:
    assert derive("attention", latent="plain", position="rotary", heads=2, dk=4, tokens=2)


def test_letters_of_their_own_are_definitions() -> None:
    read = of("q_normed", qk_norm="layer", tokens=2)
    assert defines(read.step, equals(name("r", I_, L), Q_IL))
    assert not defines(read.step, equals(name("q", "norm", I_, L), Q_IL))
    steps = [s for b in derive("attention", qk_norm="layer", tokens=2).blocks if isinstance(b, Steps) for s in b.items]
    assert [s.evidence for s in steps if text(s.formula).startswith("r_il")] == [None]


@pytest.mark.parametrize("position", ["rotary", "rotary:layout=interleaved", "rotary:start=3", "alibi:two_sided=true",
                                      "shaw:most=1", "transformer-xl", "disentangled:span=2"])  # fmt: skip
@pytest.mark.parametrize("keys", [2, pytest.param(4, marks=pytest.mark.deep)])
def test_positions_of_as_many_queries_as_keys_and_of_fewer(position: str, keys: int) -> None:
    sizes = {"dk": 4} if "rotary" in position else {"dk": 2}
    assert derive("attention", position=position, tokens=2, keys=keys, **sizes)
