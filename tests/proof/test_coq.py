"""The grade ``coq``: what Coq accepts, what it refuses, and that terms mean what the array code computes."""

import os
import re
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from symattn import Grade, printing, proving, theorems
from symattn.proof.coq import coq_judges, theory
from symattn.proof.coq.coq_judges import CoqJudgement, judged
from symattn.proof.coq.inferences import lemmas
from symattn.theorems.coq import checked
from symattn.theorems.runner import decide_one, run
from tests.proof.coq_mutants import campaign, false_variants

SOME = ("softmax-shift", "rope-relative", "value-bias-passes")


@cache
def decided(name: str) -> proving.Decision:
    return theorems.catalogue()[name].method.decide()


def records(name: str) -> list[Any]:
    decision = decided(name)
    return [dict(c) for c in proving.certificates(decision.proofs, decision.premises)]


def test_without_coq_the_grade_stays_and_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theory, "version", lambda: "")
    (told,) = checked([decide_one(theorems.catalogue()["softmax-shift"], explain=True)], "").found
    assert told.grade is Grade.PROVED
    assert told.explained[-1] == printing.Note((theory.INSTALL,))


#: The axioms on which Coq's real numbers rest.
LIBRARY = {
    "ClassicalDedekindReals.sig_forall_dec", "ClassicalDedekindReals.sig_not_dec",
    "FunctionalExtensionality.functional_extensionality_dep", "Classical_Prop.classic",
}  # fmt: skip
LISTING = """Axioms:
ClassicalDedekindReals.sig_forall_dec
  : forall P : nat -> Prop,
    (forall n : nat, {P n} + {~ P n}) -> {n : nat | ~ P n} + {forall n : nat, P n}
Classical_Prop.classic : forall P : Prop, P \\/ ~ P
OTHER
Toplevel input, characters 6-24:
> Check everything_is_told.
Error: The reference everything_is_told was not found"""


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ("", ""),
        ("easy' : forall P : Prop, P", "easy'"),
        ("My.Classical_Prop.classic : False", "My.Classical_Prop.classic"),
        ("loop is assumed to be guarded.", "loop is assumed to be guarded."),
    ],
)
def test_an_axiom_of_ones_own_withholds_the_grade(other: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    axioms = coq_judges.listed(LISTING.replace("OTHER", other).splitlines())
    assert axioms is not None
    assert set(axioms) - LIBRARY == {name} - {""}
    monkeypatch.setattr(theory, "version", lambda: "8")
    asked = lemmas("softmax-shift", records("softmax-shift"))
    judgement = CoqJudgement(frozenset(x.name for x in asked), axioms)
    monkeypatch.setattr("symattn.theorems.coq.settled", lambda every, jobs: ([asked], judgement))
    (told,) = checked([decide_one(theorems.catalogue()["softmax-shift"], explain=True)], "").found
    assert told.grade is (Grade.PROVED if other else Grade.COQ)
    assert told.not_by_coq.endswith(f": {name}" if other else "")
    assert ("all of Coq's own library" in str(told.explained)) is not bool(other)


def test_a_listing_that_cannot_be_read_is_no_listing() -> None:
    assert coq_judges.listed(["Closed under the global context"]) == ()
    assert coq_judges.listed(["Error: out of memory"]) is None


def test_the_theory_assumes_nothing_of_its_own() -> None:
    texts = {name: (theory.SOURCE / f"{name}.v").read_text(encoding="utf-8") for name in theory.FILES}
    assert sum(text.count("\n") for text in texts.values()) < 2000
    for text in texts.values():
        assert text.startswith("(* ")
        assert not any(word in text for word in ("Axiom", "Admitted", "Parameter", "admit", "Conjecture"))


@pytest.mark.coq
def test_what_takes_too_much_processor_time_is_refused_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coq_judges, "SECONDS", 3)
    so = lemmas("so", records("softmax-shift"))
    endless = replace(so[0], name="endless", text="Goal False. repeat pose proof I. Qed.\n")
    judgement = judged([endless, *so])
    assert judgement.stopped == {"endless": "Coq was stopped after 3 s of processor time"}
    assert judgement.accepted == {x.name for x in so}


@pytest.mark.coq
def test_false_sides_are_refused() -> None:
    asked = []
    for name in (*SOME, "lse-merge", "duplicate-all-keys", "merge-monoid", "two-block-merge", "kv-cache-step"):
        for wrong in records(name):
            for e in wrong.get("equations", ()):
                spoiled = {**deepcopy(e), "right": ["sum", e["right"], ["number", "1/7"]]}
                asked += lemmas(f"wrong {len(asked)}", [{**wrong, "equations": [spoiled]}])
    asked = [x for x in asked if x.text]
    assert len(asked) == 24
    assert not judged(asked).accepted


@pytest.mark.coq
def test_no_false_variant_is_accepted_whole() -> None:
    variants = dict(false_variants(sorted(theorems.catalogue())))
    assert len(variants) > 60
    accepted = judged([x for each in variants.values() for x in each], jobs=2).accepted
    assert not [name for name, each in variants.items() if {x.name for x in each} <= accepted]


@pytest.mark.coq
def test_what_is_accepted_of_mutants_is_true() -> None:
    tried, true, false = campaign([*SOME, "gqa-is-mha", "rmsnorm-scale"], 8)
    assert tried >= 30
    assert len(true) < tried / 2
    assert not false


@pytest.mark.coq
def test_bounds_are_accepted_and_their_converses_refused() -> None:
    (sign,) = [c for c in records("softmax-log-ratio") if c["kind"] == "sign"]
    (said,) = sign["conclusions"]
    turned = {**said, "smaller": said["larger"], "larger": said["smaller"]}
    asked = [*lemmas("so", [sign]), *lemmas("turned", [{**sign, "conclusions": [turned]}])]
    judgement = judged(asked)
    assert judgement.accepted == {"so"}
    assert set(judgement.axioms) == LIBRARY


def wrong_side(conclusion: Any, side: str, by: str) -> Any:
    return {**conclusion, side: ["sum", conclusion[side], ["number", by]]}


@pytest.mark.coq
def test_logarithms_laws_and_strict_bounds_are_accepted_and_what_is_wrong_is_refused() -> None:
    so, wrong = [], []
    for name in ("softmax-bregman", "softmax-gap", "hopfield-energy", "gibbs-variational", "finite-mask-leaks"):
        sign = [c for c in records(name) if c["kind"] == "sign" and not c["only"]][-1]
        (said,) = sign["conclusions"]
        so += lemmas(f"so {name}", [sign])
        turned = {"free": said["free"], "smaller": said["larger"], "larger": said["smaller"]}
        wrong += lemmas(f"turned {name}", [{**sign, "conclusions": [turned]}])
        wrong += lemmas(f"less {name}", [{**sign, "conclusions": [wrong_side(said, "larger", "-1/7")]}])
        if {*sign["not negative"]} - {*sign["positive"]}:
            wrong += lemmas(f"without {name}", [{**sign, "not negative": []}])
    assert len(wrong) == 12
    assert judged([*so, *wrong]).accepted == {x.name for x in so}


@pytest.mark.coq
def test_where_both_sides_are_equal_is_shown_and_no_more() -> None:
    so, wrong = [], []
    for name, other in (("lse-hessian", "s"), ("gibbs-variational", "a"), ("lse-bounds", "s")):
        sign = next(c for c in records(name) if c["kind"] == "sign" and c["only"])
        so += lemmas(f"so {name}", [sign])
        wrong += lemmas(f"other {name}", [{**sign, "only": [other]}])
        wrong += spoiled_text(lemmas(f"text {name}", [sign]), r"(forces .*?) (\S+|\(.*\)) = true", r"\1 (Num 1) = true")
        wrong += spoiled_text(lemmas(f"more {name}", [sign]), r"= 0\)", "= 0 /\\ 1 = 0)")
    assert len(wrong) == 9
    assert judged([*so, *wrong]).accepted == {x.name for x in so}
    assert all(x.readable and "-> forall" in x.readable.statement for x in so)


def spoiled_text(asked: list[Any], old: str, new: str) -> list[Any]:
    (one,) = asked
    text = re.sub(old, new.replace("/\\", "/\\\\"), one.text)
    assert text != one.text
    return [replace(one, text=text)]


@pytest.mark.coq
def test_signs_of_differences_are_told_apart_by_their_absolute_values() -> None:
    sign = next(c for c in records("score-gradient-saturates") if c["kind"] == "sign")
    (said,) = sign["conclusions"]
    wrong = lemmas("more", [{**sign, "conclusions": [wrong_side(said, "larger", "-1/7")]}])
    asked = [*lemmas("so", [sign]), *wrong]
    assert judged(asked).accepted == {"so"}


@pytest.mark.coq
def test_what_holds_of_the_largest_entry_follows_and_no_more() -> None:
    rule = next(c for c in records("nonexpansive-in-values") if c["kind"] == "step")
    (said,) = rule["conclusions"]
    (so,) = lemmas("so", [rule])
    wrong = [
        *lemmas("more", [{**rule, "conclusions": [wrong_side(said, "smaller", "1/7")]}]),
        *lemmas("turned", [{**rule, "conclusions": [{**said, "smaller": said["larger"], "larger": said["smaller"]}]}]),
        *lemmas("spoiled", [{**rule, "premises": [spoiled(p) for p in rule["premises"]]}]),
    ]
    assert len(wrong) == 3
    assert judged([so, *wrong]).accepted == {"so"}
    assert so.readable
    assert "In (max l) l" in so.readable.statement


@pytest.mark.coq
def test_a_fold_over_tiles_follows_from_two_of_them_and_a_wrong_one_does_not() -> None:
    so, wrong = [], []
    for name in ("online-softmax", "residual-unrolls", "linear-recurrence", "lse-merge", "two-block-merge"):
        record = next(c for c in records(name) if c.get("rule") == "fold")
        so += lemmas(f"so {name}", [record])
        for key in ("state", "merge", "made", "result"):
            if record[key]:
                *first, last = record[key]
                spoiled = {**last, "expression": ["sum", last["expression"], ["number", "1/7"]]}
                wrong += lemmas(f"{key} {name}", [{**record, key: [*first, spoiled]}])
    assert len(wrong) == 16
    judgement = judged([*so, *wrong])
    assert judgement.accepted == {x.name for x in so}
    assert set(judgement.axioms) <= LIBRARY
    assert all(x.readable and "folded _" in x.readable.statement for x in so)


def spoiled(sign: Any) -> Any:
    return {**sign, "conclusions": [wrong_side(c, "smaller", "1/7") for c in sign["conclusions"]]}


@pytest.mark.coq
def test_equals_may_be_put_for_equals_and_nothing_else() -> None:
    record = next(c for c in records("equal-norm-keys-euclidean") if c.get("rule") == "substitution")
    two: Any = ["number", "2"]
    doubled = [{**x, "expression": ["product", two, x["expression"]]} for x in record["equal"]]
    wrong = [
        *lemmas("wrong", [{**record, "right": {**record["right"], "expression": two}}]),
        *lemmas("doubled", [{**record, "equal": doubled}]),
        *lemmas("other", [{**record, "through": {**record["through"], "expression": two}}]),
    ]
    so = lemmas("so", [record])
    assert len(wrong) == 3
    assert judged([*so, *wrong]).accepted == {"so"}


SURE = (
    *SOME,
    *("softmax-shift", "gqa-is-mha", "mla-absorb", "rope-relative", "kv-cache-step"),
    *("backward-dQ", "sink-is-extra-key", "value-gradient-conserved", "softmax-simplex"),
    *("softmax-gap", "softmax-bregman", "qk-gauge", "hopfield-energy", "dobrushin-contraction"),
    *("two-block-merge", "online-softmax", "linear-recurrence", "residual-unrolls"),
    *("gibbs-variational", "lse-bounds", "lse-hessian", "additive-score-floor", "nonexpansive-in-values"),
    *("lse-merge", "duplicate-all-keys", "dropout-unbiased", "qk-norm-scale-free"),
    *("rope-key-bias-not-redundant", "nope-causal-counts", "output-in-hull"),
)
EMPTY = {"fully-masked-row"}  # of an equation of it 0 = 0 is left for Coq


@pytest.mark.coq
def test_theorems_have_the_grade_or_the_reason_why_not() -> None:
    found = of_coq([*SURE, *EMPTY, "softmax-limits"])
    assert {name for name, decision in found.items() if decision.grade is Grade.COQ} == {*SURE}
    assert found["softmax-limits"].not_by_coq.endswith("it rests on limits, which the theory does not have")


@pytest.mark.coq
@pytest.mark.exhaustive
def test_the_page_on_trust_counts_those_with_the_grade() -> None:
    found = of_coq([*theorems.catalogue()])
    graded = {name for name, decision in found.items() if decision.grade is Grade.COQ}
    page = (Path(__file__).parents[2] / "docs/trust.md").read_text(encoding="utf-8")
    assert f"Of the {len(found)} theorems of the theorems.catalogue {len(graded)} have the grade" in page
    assert all(found[name].not_by_coq for name in found.keys() - graded)


def of_coq(names: list[str]) -> dict[str, Any]:
    asked = [theorems.catalogue()[name] for name in dict.fromkeys(names)]
    made = run(asked, theorems.catalogue, explain=True, cached=False)
    return {decided.theorem.name: decided for decided in checked(made, "", jobs=2).found}


@pytest.mark.coq
def test_a_bound_that_rests_on_what_is_assumed_says_so_and_is_refused_without() -> None:
    sign = next(c for c in records("rollout-stochastic") if c["kind"] == "sign")
    (said,) = lemmas("so", [sign])
    asked = [said, *lemmas("without", [{**sign, "not negative": []}])]
    assert judged(asked).accepted == {"so"}
    assert said.readable
    assert "0 <= " in said.readable.statement


def letter(name: str) -> Any:
    return ["letter", name, []]


def only_part(*expression: Any) -> Any:
    return [{"letter": "0", "free": [], "expression": [*expression]}]


FIRST_0, EPS = letter("first 0"), letter("eps")
SUM: Any = ["total", "j0", "n", ["letter", "x", [["j0"]]]]


def sum_fold() -> Any:
    """The fold of a sum of x, which is multiplied by eps at the end."""
    return {
        **{"schema": 1, "kind": "step", "rule": "fold", "sort": "n", "arrays": ["x"], "numbers": []},
        "state": only_part(*SUM),
        "merge": only_part("sum", FIRST_0, letter("second 0")),
        "made": only_part("product", FIRST_0, EPS),
        "result": only_part("product", SUM, EPS),
    }


def wrong_fold() -> Any:
    return {**sum_fold(), "result": only_part("number", "1")}


def test_only_the_theorem_has_a_name_that_a_theorem_could_have() -> None:
    name = "equal-norm-keys-euclidean"
    for x in (*lemmas(name, records(name)), *lemmas("sum", [sum_fold()])):
        declared = re.findall(r"^(?:Definition|Lemma|Theorem) ([\w']+)", x.text, re.MULTILINE)
        assert [name for name in declared if name.replace("'", "_") == name] == ([x.name] if x.text else [])


@pytest.mark.coq
def test_a_definition_with_the_name_of_a_theorem_proves_nothing() -> None:
    (so,) = lemmas("so", [sum_fold()])
    clashing = [x for word in ("tile", "merge", "step", "made-1") for x in lemmas(f"so {word}", [wrong_fold()])]
    (defined,) = (replace(x, text="Definition defined := True.\n") for x in lemmas("defined", [sum_fold()]))
    (other,) = (replace(x, text="Theorem other : True. Proof. exact I. Qed.\n") for x in lemmas("other", [sum_fold()]))
    assert judged([so, *clashing, defined, other]).accepted == {"so"}
    (named,) = lemmas("everything", [sum_fold()])
    axiom = replace(so, text=so.text.replace("Theorem so :", "Axiom so :"))
    assert "so" in judged([named, axiom]).axioms


@pytest.mark.coq
def test_a_fold_may_end_and_merge_with_arrays_that_no_tile_has() -> None:
    (so,) = lemmas("so", [sum_fold()])
    gone = ["product", ["number", "-1"], EPS]
    merged = {**sum_fold(), "merge": only_part("sum", FIRST_0, letter("second 0"), EPS, gone)}
    log = {"made": only_part("function", "log", FIRST_0), "result": only_part("function", "log", SUM)}
    asked = [so, *lemmas("merged", [merged]), *lemmas("log", [{**sum_fold(), **log}])]
    assert judged([*asked, *lemmas("wrong", [wrong_fold()])]).accepted == {"so", "merged", "log"}


def test_what_the_end_of_a_fold_takes_is_bound_and_spoken_of() -> None:
    (said,) = lemmas("so", [sum_fold()])
    assert said.readable
    assert "(eps : R) (n : nat)" in said.readable.statement
    online = next(c for c in records("online-softmax") if c.get("rule") == "fold")
    (said,) = lemmas("so", [online])
    assert said.readable
    assert said.readable.words[-1].startswith("Of max nothing is used")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (["product", FIRST_0, ["size", "m"]], "the size m occurs in no tile"),
        (["product", FIRST_0, letter("x'")], "in a fold x' has two names or types"),
    ],
)
def test_what_a_fold_cannot_name_in_coq_is_refused_with_the_reason(made: Any, why: str) -> None:
    (said,) = lemmas("so", [{**sum_fold(), "made": only_part(*made), "result": only_part(*made)}])
    assert not said.text
    assert why in said.why


@pytest.mark.skipif(os.name != "posix", reason="the limit is one of POSIX")
@pytest.mark.parametrize(
    ("end", "seconds", "why"),
    [
        (
            "echo Fatal error: out of memory.; exit 2",
            300,
            "Coq ended early, by exit code 2: Fatal error: out of memory.",
        ),
        ("kill -KILL $$", 300, "Coq ended early, by signal 9"),
        ("kill -XCPU $$", 7, "Coq was stopped after 7 s of processor time"),
        ("exit 0", -1, r"Coq ended early, by exit code \d+: .*ulimit.*"),
    ],
)
def test_why_coq_ended_early_is_told(
    end: str, seconds: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "coqtop").write_text(f"#!/bin/sh\n{end}\n", encoding="utf-8")
    (tmp_path / "coqtop").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(coq_judges, "SECONDS", seconds)
    monkeypatch.setattr(theory, "compiled", lambda: tmp_path)
    (short,) = lemmas("softmax-shift", records("softmax-shift"))
    text = f"(* {'more than a pipe holds ' * 10_000} *)"
    long = [replace(short, name=name, text=text) for name in ("one", "two")]
    judgement = judged(long)
    assert set(judgement.stopped) == {"one", "two"}
    assert all(re.fullmatch(why, told) for told in judgement.stopped.values())


def test_a_condition_for_equality_that_names_nothing_is_refused_with_the_reason() -> None:
    sign = next(c for c in records("lse-bounds") if c["kind"] == "sign" and c["only"])
    (said,) = lemmas("so", [sign])
    assert said.text
    (said,) = lemmas("so", [{**sign, "only": [*sign["only"], "nobody"]}])
    assert not said.text
    assert "only where nobody is 0" in said.why
