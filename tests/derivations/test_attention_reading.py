"""The documents of ``Attention`` and of ``derive attention``: one formula each, read, and what the steps compute."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from symattn import Alibi, Attention, Buckets, Evidence, Grade, InputError, Latent, Rotary, Shaw, derive
from symattn import printing as pr
from symattn.attention.letters_of_attention import ARRAYS, SYMBOLS
from symattn.attention.variants import VARIANTS
from symattn.derivations.attention.inputs import read_request
from symattn.derivations.attention.reading import Read, runs
from symattn.proof.relations.comparing import FalseStep

CHECKED = Evidence(Grade.CHECKED, "some sizes")
#: Lengths of all axes, no two of which that could be mistaken for each other are equal.
SIZES = {
    "n_q": 3, "n_k": 5, "d_k": 4, "d_s": 4, "d_v": 7, "d_w": 4, "d_model": 8, "d_y": 8, "d_out": 8, "l_a": 9, "l": 9,
    "l_q": 10, "d_n": 2, "d_r": 2, "f": 2, "n_b": 4, "n_d": 5, "n_r": 7, "d_e": 11,
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_formula_of_every_document_is_what_its_step_computes(variant: str) -> None:
    spec, names = VARIANTS[variant].spec, VARIANTS[variant].names
    parts = spec.pipeline(names)
    group = next(b for b in spec.document(names).blocks[1:] if isinstance(b, pr.Steps))
    assert [step.formula for step in group.items] == [pr.equals(part.symbol, part.formula) for part in parts]
    sizes = {**SIZES, **VARIANTS[variant].sizes}
    found = runs(replace(read_request(tokens=2), spec=spec, names=names, sizes=sizes))[:1]
    for part, step in zip(parts, group.items, strict=True):
        assert Read(part, found).with_reason(part.reason).check(step.formula, CHECKED) is CHECKED


def of(step: str, **fields: Any) -> Read:
    request = read_request(**fields)
    part = next(p for p in request.spec.pipeline(request.names) if p.name == step)
    return Read(part, runs(request))


I_, J, L = pr.Name("i"), pr.Name("j"), pr.Name("l")
S_IJ, Q_IL, K_JL = pr.name("s", I_, J), pr.name("q", I_, L), pr.name("k", J, L)
DOT = pr.total(L, 1, pr.name("d", "k"), Q_IL * K_JL)
FALSE: list[tuple[pr.Node, str]] = [
    (pr.equals(S_IJ, 2 * DOT), "not what scores gives"),
    (pr.equals(S_IJ, pr.total(L, 1, pr.name("n", "k"), Q_IL * K_JL)), "beyond its axis|not what"),
    (pr.equals(S_IJ, pr.total(L, 1, pr.name("d", "v"), Q_IL * K_JL)), "beyond its axis|not what"),
    (pr.equals(pr.name("s", I_, I_), DOT), "free indices|not run over"),
    (pr.equals(pr.name("s", J, I_), DOT), "not run over|not what|beyond"),
    (pr.equals(S_IJ, pr.total(L, 1, pr.name("d", "k"), Q_IL * pr.name("k", J, L + 1))), "beyond its axis"),
    (pr.equals(S_IJ, pr.call("f", pr.Name("Q"))), "the function f"),
    (pr.equals(pr.Name("S"), pr.Name("Q") * pr.Name("K")), "multiply|gives|shapes"),
    (pr.equals(pr.Name("S"), pr.Name("R")), "no meaning"),
    (pr.Relation(S_IJ, (("≤", DOT),)), "no equation"),
    (pr.Row((pr.equals(S_IJ, DOT), pr.Words("for"), pr.Words("some keys"))), "the condition"),
    (pr.Row((pr.equals(S_IJ, DOT), pr.Words("for"), pr.Words("all others"))), "all others than which"),
]


@pytest.mark.parametrize(("formula", "why"), FALSE, ids=[pr.text(f) for f, _ in FALSE])
def test_what_is_false_or_cannot_be_read_is_refused(formula: pr.Node, why: str) -> None:
    with pytest.raises(FalseStep, match=why):
        of("scores", tokens=2, keys=3).check(formula, CHECKED)
    assert of("scores", tokens=2, keys=3).check(pr.equals(S_IJ, DOT), CHECKED) is CHECKED


def test_a_condition_holds_together_with_all_others() -> None:
    read = of("masked", tokens=2, keys=3, causal=True)
    left, place = pr.name("s''", I_, J), I_ + pr.name("n", "k") - pr.name("n", "q")
    others = pr.Row((pr.equals(left, -pr.Name("∞")), pr.Words("for all other keys")))

    def kept(bound: pr.Node) -> pr.Node:
        return pr.Row((pr.equals(left, pr.name("s'", I_, J)), pr.Words("for"), pr.Relation(J, (("≤", bound),))))

    assert read.check(kept(place), CHECKED, None, others)
    assert read.check(others, CHECKED, kept(place))
    assert read.check(kept(place - 1), CHECKED), "true, of fewer keys"
    for wrong in (place - 1, place + 1, I_, pr.name("n", "k")):
        with pytest.raises(FalseStep):
            read.check(kept(wrong), CHECKED, None, others)


def test_rows_without_a_key() -> None:
    read = of("weights", tokens=3, keys=2, causal=True)
    row = pr.total(J, 1, pr.name("n", "k"), pr.name("a", I_, J))
    one = pr.Row((pr.equals(row, 1), pr.Words("for"), pr.Words("a query that sees a key")))
    assert read.check(one, CHECKED, None, pr.Row((pr.equals(row, pr.node(0)), pr.Words("for"), pr.Words("all others"))))
    with pytest.raises(FalseStep):
        read.check(pr.equals(row, 1), CHECKED)
    document = derive("attention", tokens=3, keys=2, causal=True)
    assert not any("𝟏" in pr.text(s.formula) for b in document.blocks if isinstance(b, pr.Steps) for s in b.items)


def test_a_false_formula_of_a_step_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Attention.pipeline

    def wrong(spec: Attention, given: frozenset[str]) -> tuple[Any, ...]:
        steps = honest(spec, given)
        return tuple(replace(s, written=f"2 {s.written}") if s.name == "scores" else s for s in steps)

    monkeypatch.setattr(Attention, "pipeline", wrong)
    with pytest.raises(FalseStep, match="not what scores gives"):
        derive("attention", tokens=2)


@pytest.mark.deep
def test_rotated_parts_of_latents() -> None:
    assert derive("attention", latent="plain", position="rotary", heads=2, dk=4, tokens=2)


def test_letters_of_their_own_are_definitions() -> None:
    steps = [
        s for b in derive("attention", qk_norm="layer", tokens=2).blocks if isinstance(b, pr.Steps) for s in b.items
    ]
    assert [s.evidence for s in steps if pr.text(s.formula).startswith("r_il")] == [None]
    normed = [s.evidence for s in steps if pr.text(s.formula).startswith("q_{norm")]
    assert normed
    assert all(normed)


@pytest.mark.parametrize("position", ["rotary", "rotary:layout=interleaved", "rotary:start=3", "alibi:two_sided=true",
                                      "shaw:most=1", "transformer-xl", "disentangled:span=2"])  # fmt: skip
@pytest.mark.parametrize("keys", [2, pytest.param(4, marks=pytest.mark.deep)])
def test_positions_of_as_many_queries_as_keys_and_of_fewer(position: str, keys: int) -> None:
    sizes = {"dk": 4} if "rotary" in position else {"dk": 2}
    assert derive("attention", position=position, tokens=2, keys=keys, **sizes)


def whole(spec: Attention, given: str = "q k v") -> str:
    """The one formula."""
    block = spec.document(given.split()).blocks[0]
    assert isinstance(block, pr.Steps)
    formula = block.items[0].formula
    assert isinstance(formula, pr.Relation)
    return pr.text(formula)


def told(spec: Attention, given: str = "q k v") -> str:
    """The document as running text."""
    return " ".join(pr.render(spec.document(given.split()), "text").split())


@pytest.mark.parametrize("name", VARIANTS)
def test_no_letter_stands_for_two_arrays(name: str) -> None:
    variant = VARIANTS[name]
    arrays = dict.fromkeys([*variant.names, *(step.name for step in variant.spec.pipeline(variant.names))])
    letters = [SYMBOLS[array] for array in arrays]
    assert len(set(letters)) == len(letters), [a for a in arrays if letters.count(SYMBOLS[a]) > 1]


def test_letters_that_are_used_twice_never_meet() -> None:
    """K′ are the keys for each head of queries, and those of a latent, which all heads share."""
    twice = [pair for pair in combinations(ARRAYS, 2) if SYMBOLS[pair[0]] == SYMBOLS[pair[1]]]
    assert twice == [("k_joined", "k_shared")]
    with pytest.raises(InputError, match="shared by all heads"):
        Attention(heads=2, kv_heads=1, latent=Latent())


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_differs_in_its_formula_or_its_conventions(name: str) -> None:
    variant = VARIANTS[name]
    document = variant.spec.document(variant.names)
    lists = [block for block in document.blocks if isinstance(block, pr.Items)]
    assert lists
    assert len(whole(variant.spec, variant.given)) <= 88
    lines = pr.render(document, "text").splitlines()
    assert [line for line in lines[:-2] if len(line) > 84] == []


@pytest.mark.parametrize(
    ("spec", "formula"),
    [
        (Attention(), "O = softmax(QKᵀ/√d_k)·V"),
        (Attention(scale=1, softcap=2), "O = softmax(2tanh(QKᵀ/2)) V"),
        (Attention(qk_norm="l2", scale=10), "O = softmax(10unit(Q) unit(K)ᵀ) V"),
        (Attention(truncate=2), "O = softmax(first(Q, 2) first(K, 2)ᵀ/√d_k)·V"),
        (Attention(heads=4, kv_heads=2), "O = softmax(Q repeat(K, 2)ᵀ/√d_k)·repeat(V, 2)"),
        (Attention(position=Rotary()), "O = softmax(rotate(Q, cos(Θ), sin(Θ)) rotate(K, cos(Θ), sin(Θ))ᵀ/√d_k)·V"),
        (Attention(causal=True, position=Alibi()), "O = softmax(mask(QKᵀ/√d_k − mD))·V"),
        (Attention(normaliser="relu"), "O = (relu(QKᵀ/√d_k)/n_k)·V"),
        (Attention(sink="zero", base=2), "O = softmax₂(QKᵀ/√d_k, 0)·V"),
    ],
    ids=str,
)
def test_formulas(spec: Attention, formula: str) -> None:
    assert whole(spec) == formula


def test_a_formula_longer_than_a_line_has_letters_for_its_parts() -> None:
    spec = Attention(heads=4, kv_heads=2, causal=True, softcap=5, sink="given", position=Rotary())
    assert whole(spec) == "O = softmax(mask(5tanh(Q_rot K′ᵀ/√d_k/5)), z)·V′"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Attention(softcap=2, causal=True), "scores are scaled, then capped, then masked"),
        (Attention(bias=True), "scores are scaled, then biased"),
        (Attention(heads=4, kv_heads=2), "the first 2 query heads read the first head of keys and values"),
        (Attention(heads=4, kv_heads=1), "all query heads read the one head of keys and values"),
        (Attention(qk_norm="rms", eps=0.25), "head by head and before positions, is divided by √(mean(q_l²) + 1/4)"),
        (Attention(qk_norm="layer"), "is less its mean, divided by √mean(q_l²)"),
        (Attention(qk_norm="l2"), "queries and keys are divided by their lengths"),
        (Attention(truncate=2), "scores see the first 2 columns"),
        (Attention(score="cosine"), "unit(·) divides each row by its length"),
        (Attention(position=Rotary()), "rotate turns all r columns; ℓ and ℓ + r/2 are a pair, counted from 0"),
        (Attention(position=Rotary(width=2, layout="interleaved")), "first r = 2 columns; 2ℓ and 2ℓ + 1 are a pair"),
        (Attention(position=Rotary(start=3)), "the positions 3, 4, …; the last query has that of the last key"),
        (Attention(position=Rotary(), alignment="top-left"), "the first query has that of the first key"),
        (Attention(position=Rotary(given="tables")), "tables are given; without those of queries"),
        (Attention(causal=True, position=Alibi()), "slopes are powers of two, by the number of heads"),
        (Attention(position=Buckets()), "the distances 0 to 7 have a bucket each, those from 128 on one together"),
        (Attention(position=Shaw(most=2)), "query i and key j, cut to −2 … 2"),
        (Attention(dropout=0.25), "weights that are kept are divided by 3/4"),
        (Attention(lse=True), "the second result is Lᵢ = log(Σ_ℓ e^(s_iℓ))"),
        (Attention(causal=True), "a row in which every key is masked gives zeros"),
        (
            Attention(causal=True, fully_masked="nan"),
            "a row in which every key is masked gives 0/0, which is undefined",
        ),
        (Attention(causal=True, fully_masked="error"), "a row in which every key is masked is an error"),
        (Attention(padding=True), "boolean masks hold True where a query may attend"),
    ],
    ids=str,
)
def test_conventions(spec: Attention, words: str) -> None:
    assert words in told(spec)
    assert words not in told(Attention())


def test_conventions_of_latents_and_packed_projections() -> None:
    latent = told(Attention(latent=Latent(absorbed=True, norm="rms")), "x w_q")
    assert "the part with positions stands after the part without" in latent
    assert "with the matrices absorbed, no key and no value is made" in latent
    assert "latents are divided by √mean(c_l²), then multiplied by their gain" in latent
    assert "queries, keys, values, head by head" in told(Attention(packed=True), "x")


def test_the_maximum_is_said_to_be_subtracted_where_it_is() -> None:
    words = "before exponentiating, the row maximum is subtracted: "
    assert (words in told(Attention()), words in told(Attention(stabilised=False))) == (True, False)


def test_long_reasons_stand_under_the_steps() -> None:
    document = Attention(heads=2, sink="given").document()
    steps = next(b for b in document.blocks[2:] if isinstance(b, pr.Steps))
    assert "the sink takes its share" not in "".join(map(str, (step.reason for step in steps.items)))
    assert "A: row by row; the sink takes its share, and gives nothing" in told(Attention(heads=2, sink="given"))
