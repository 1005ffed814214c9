"""The terms that Coq is given are what the array code computes, at random sizes; hints, names and shared parts."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import prod
from random import Random
from typing import Any

import numpy as np
import pytest
from flint import arb

from symattn import SymattnError, kind, kinds, proving, theorems
from symattn.proof.checker_reading import read
from symattn.proof.coq import coq_judges, theory
from symattn.proof.coq.coq_judges import judged
from symattn.proof.coq.inferences import lemmas
from symattn.theorems.as_printed import AsPrinted, Following
from tests.proof.coq_values import FUNCTIONS, World, parsed
from tests.proof.test_coq import records
from tests.proof.test_coq_inferences import with_text

Ball = kind("ball")

_LABEL = re.compile(r"(?P<name>[^@\[]*)(@(?P<blocks>[\d,]+))?(\[(?P<fixed>[\d, ]+)\])?")


def read_as_identities(method: Any) -> Iterator[AsPrinted | proving.Identity]:
    method = method.steps if isinstance(method, Following) else method
    if isinstance(method, proving.Together):
        for part in method.parts:
            yield from read_as_identities(part)
    elif isinstance(method, AsPrinted | proving.Identity):
        yield method


def identities(method: Any) -> Iterator[proving.Identity]:
    for part in read_as_identities(method):
        yield part.identity if isinstance(part, AsPrinted) else part


def position(block: Sequence[Sequence[Any]], number: int, indices: Sequence[int], sizes: dict[str, int]) -> int:
    """Where a place of an axis stands: after the blocks before its own, the first index counting most."""
    lengths = [[sizes[f] if isinstance(f, str) else f for f in b] for b in block]
    at = 0
    for length, i in zip(lengths[number], indices, strict=True):
        at = at * length + i
    return sum(map(prod, lengths[:number])) + at


class Entries:
    """The entries of the arrays of a statement by the labels of their letters."""

    def __init__(self, declared: proving.Declared, world: proving.Numbers) -> None:
        self.declared, self.world = declared, world
        self.arrays = {n: _floats(world.array(n, shape, declared)) for n, shape in declared.arrays.items()}

    def __call__(self, key: tuple[Any, ...], indices: Sequence[int]) -> float:
        label, *images = key[:-1]
        moved = [self._image(i, image) for i, image in zip(indices, images, strict=True)]
        if label.startswith("position in "):
            return float(moved[0])
        if label.startswith("is "):
            return float({"=": moved[0] == moved[1], "≤": moved[0] <= moved[1], "<": moved[0] < moved[1]}[label[3:]])
        found = _LABEL.fullmatch(label)
        assert found
        axes = [proving.Letters().axis(a).blocks for a in self.declared.arrays[found["name"]].split()]
        blocks = [int(b) for b in found["blocks"].split(",")] if found["blocks"] else [0] * len(axes)
        left, fixed = iter(moved), iter([int(i) for i in (found["fixed"] or "").split(",") if i.strip()])
        place = tuple(
            position(a, b, [next(left) if isinstance(f, str) else next(fixed) for f in a[b]], self.world.sizes)
            for a, b in zip(axes, blocks, strict=True)
        )
        return float(self.arrays[found["name"]][place])

    def _image(self, i: int, image: Sequence[str]) -> int:
        for name in image:
            i = int(self.world.permutation(name, self.declared.permutations[name])[i])
        return i


def _floats(x: Any) -> np.ndarray[Any, Any]:
    if isinstance(x, Ball):
        return np.vectorize(lambda e: float(arb(e).mid()), otypes=[float])(x.entries)
    return np.asarray(x, dtype=float)


def compared(part: proving.Identity, sizes: dict[str, int], seed: int) -> tuple[list[float], list[float]]:
    """Both sides of all equations: as terms of Coq, and as the array code computes them."""
    world = proving.Numbers(sizes, seed, balls=True)
    entries = Entries(part.declared, world)
    terms: list[float] = []
    computed: list[float] = []
    numbers = proving.pairs(part.sides, part.declared, world)
    letters = proving.pairs(part.sides, part.declared, proving.Letters())
    for proof, sides, written in zip(part.decide().proofs, numbers, letters, strict=True):
        record = proving.certificate(proof)
        shape = next(
            (kinds.Indexed.lift(x) for x in written if kinds.Indexed.lift(x).ndim), kinds.Indexed.lift(written[0])
        )
        here = [np.broadcast_to(_floats(x), np.broadcast_shapes(*[_floats(y).shape for y in sides])) for x in sides]
        for lemma, places in zip(lemmas("x", [record]), shape.places(), strict=True):
            if lemma.why:
                continue
            variables = [i for _, entry in places for i in entry if isinstance(i, kinds.Index)]
            for at in np.ndindex(*[sizes[i.sort] for i in variables]):
                value = dict(zip(variables, map(int, at), strict=True))
                seat = tuple(
                    position(a.blocks, b, [value.get(i, i) if not isinstance(i, int) else i for i in entry], sizes)
                    for a, (b, entry) in zip(shape.shape, places, strict=True)
                )
                for side, array in zip(("left", "right"), here, strict=True):
                    terms.append(value_of(lemma, side, sizes, entries, at))
                    computed.append(float(array[seat]))
    if part.declared.permutations:  # an index that occurs as π(i) alone is renamed to i
        return sorted(terms), sorted(computed)
    return terms, computed


def value_of(lemma: Any, side: str, sizes: dict[str, int], entries: Callable[..., float], at: Sequence[int]) -> float:
    """A side of a lemma at a place, read from the text that Coq gets."""
    found = re.search(rf"Definition {lemma.name}'{side} := (.*)\.\n", lemma.text)
    free = re.search(rf" (\[[\d; ]*\]) {lemma.name}'left ", lemma.text)
    assert found
    assert free
    keys = {number: key for key, number in lemma.names.arrays.items()}
    functions = {number: FUNCTIONS[name] for name, number in lemma.names.functions.items()}

    def function(f: int, values: Sequence[float]) -> float:
        return functions[f](*values)

    world = World(
        {number: sizes[sort] for sort, number in lemma.names.sorts.items()},
        lambda array, indices: entries(keys[array], indices),
        function,
    )
    return world.value(parsed(found[1]), tuple(zip(map(int, parsed(free[1])), map(int, at), strict=True)))


def holds(part: proving.Identity, seed: int) -> bool | None:
    """Whether the terms are what the code computes; None where the code does not run on floats."""
    random = Random(seed)
    sizes = {s: random.randint(1, 3) for s in part.declared.sorts()}
    try:
        terms, computed = compared(part, sizes, seed)
    except (SymattnError, KeyError, NotImplementedError, TypeError):
        return None
    return bool(np.allclose(terms, computed, rtol=1e-7, atol=1e-9, equal_nan=True))


# To compile every printed statement takes seconds, which are not spent before a test runs.
NAMES = sorted(name for name, t in theorems.catalogue().items() if any(read_as_identities(t.method)))


@pytest.mark.parametrize("name", NAMES)
def test_terms_are_what_the_array_code_computes(name: str) -> None:
    found = [holds(part, seed) for part in identities(theorems.catalogue()[name].method) for seed in (1, 2)]
    assert False not in found


def seen(name: str) -> list[bool | None]:
    return [holds(part, seed) for part in identities(theorems.catalogue()[name].method) for seed in (1, 2, 3)]


@pytest.mark.deep
def test_a_maximum_of_one_argument_alone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen("permutation-equivariance") == [True] * 3
    monkeypatch.setattr("tests.proof.test_coq_terms.FUNCTIONS", {**FUNCTIONS, "max": lambda x, *_: x})
    assert False in seen("permutation-equivariance")


@pytest.mark.parametrize("masked", [True, False])
def test_a_maximum_is_over_what_is_not_masked(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not masked:
        monkeypatch.setattr("tests.proof.test_coq_terms.FUNCTIONS", {**FUNCTIONS, "masked": lambda allowed, x: x})
    inside = ["masked", ["is", "≤", ["j"], ["i"]], ["letter", "s", [["j"]]]]
    largest = ["function", "max", ["bound", "j", "n", inside]]
    equation = {"free": [["i", "n"]], "left": largest, "right": largest}
    (made,) = lemmas("x", [{"kind": "certificate", "equations": [equation], "rules": [], "positive": []}])
    s = [2.0, 1.0, 5.0]
    found = [value_of(made, "left", {"n": 3}, lambda key, indices: s[indices[0]], [i]) for i in range(3)]
    assert (found == [2.0, 2.0, 5.0]) is masked


def test_an_array_at_a_permuted_index_is_an_array_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    equation = {"free": [["i", "n"]], "left": ["letter", "s", [["i", "pi"]]], "right": ["letter", "s", [["i"]]]}
    monkeypatch.setattr("symattn.proof.coq.writing.sides", lambda left, right, scope: (left, right))
    (made,) = lemmas("x", [{"kind": "certificate", "equations": [equation], "rules": [], "positive": []}])
    s = [2.0, 1.0, 5.0]

    def entry(key: tuple[Any, ...], indices: Sequence[int]) -> float:
        return s[[1, 2, 0][indices[0]] if key[1] == ("pi",) else indices[0]]

    found = [value_of(made, "left", {"n": 3}, entry, [i]) for i in range(3)]
    assert found == [1.0, 5.0, 2.0]


@pytest.mark.parametrize("masked", [True, False])
def test_e_to_the_power_of_what_is_masked_is_0_there(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "symattn.proof.coq.writing.simplified", lambda e, sorts, _: [read(e[x], sorts) for x in ("left", "right")]
    )
    if not masked:
        monkeypatch.setattr("symattn.proof.coq.terms.masks", lambda x: ([], x.below[1] if x.kind == "masked" else x))
    inside = ["masked", ["is", "≤", ["j"], ["i"]], ["letter", "s", [["j"]]]]
    total = ["total", "j", "n", ["exp", inside]]
    (made,) = lemmas(
        "x",
        [
            {
                "kind": "certificate",
                "equations": [{"free": [["i", "n"]], "left": total, "right": total}],
                "rules": [],
                "positive": [],
            }
        ],
    )
    found = [value_of(made, "left", {"n": 3}, lambda key, indices: 0.0, [i]) for i in range(3)]
    assert (found == [1.0, 2.0, 3.0]) is masked


def _score(i: str) -> list[Any]:
    return ["letter", "s", [[i]]]


def _softmax(of: Callable[[str], list[Any]]) -> list[Any]:
    """e^(of i)/Σ_j e^(of j), as a certificate writes it."""
    return ["ratio", ["exp", of("i")], ["total", "j", "n", ["exp", of("j")]]]


def _less_the_largest(i: str) -> list[Any]:
    largest = ["function", "max", ["bound", "l", "n", _score("l")]]
    return ["sum", _score(i), ["product", ["number", "-1"], largest]]


def _steps(left: list[Any], right: list[Any]) -> tuple[str, str, str]:
    """The terms of both sides of an equation, and the steps from the one to the other, as Coq reads them."""
    equation = {"free": [["i", "n"]], "left": left, "right": right}
    (made,) = lemmas("x", [{"kind": "certificate", "equations": [equation], "rules": [], "positive": []}])
    found = [re.search(rf"^Definition x'{name}.* := (.*)\.$", made.text, re.M) for name in ("left", "right", "steps")]
    first, second, steps = (match[1] for match in found if match)
    return first, second, steps


PLAIN = _softmax(_score)
SHIFTED = _softmax(_less_the_largest)


def test_a_maximum_that_the_other_side_lacks_is_cancelled() -> None:
    left, right, steps = _steps(SHIFTED, PLAIN)
    assert steps.endswith(f"; Step [0] {left} {right}]")


def test_a_maximum_of_both_sides_stays() -> None:
    assert "(Div" not in _steps(SHIFTED, ["product", ["number", "2"], SHIFTED])[2]


def test_what_depends_on_the_index_of_the_sum_stays() -> None:
    other = _softmax(lambda i: ["sum", _score(i), ["function", "one", _score(i)]])
    assert "(Div" not in _steps(other, PLAIN)[2]


SOME = (
    "softmax-gap",
    "online-softmax",
    "rope-relative",
    "sink-is-a-gate",
    "nonexpansive-in-values",
    "dropout-unbiased",
)
#: Words of Coq and of its library, which no letter is called.
OF_COQ = {
    *["forall", "exists", "let", "in", "fun", "nat", "list", "map", "seq", "In", "Prop", "R", "INR", "Rabs", "exp"]
}
BOUND = re.compile(r"[a-z]|i\d+|(state|first|second)_\d+|outcomes")  # indices, and what a statement says of its own


@cache
def asked(name: str) -> tuple[Any, ...]:
    decision = theorems.catalogue()[name].method.decide()
    return tuple(
        x for x in lemmas(name, [dict(c) for c in proving.certificates(decision.proofs, decision.premises)]) if x.text
    )


@pytest.mark.parametrize("name", SOME)
def test_all_words_of_a_statement_are_its_letters_or_reserved(name: str) -> None:
    for x in asked(name):
        assert x.readable
        bound = re.findall(r"\(([\w ]+) : ", x.readable.statement)
        bound += re.findall(r"\blet (\w+) :=", x.readable.statement)
        letters = {x.name, *(word for words in bound for word in words.split())}
        text = re.sub(r"[\w']*'\w*|%\w+", "", x.readable.statement)
        words = set(re.findall(r"\b[A-Za-z]\w*", text)) - {"Theorem", "Definition"}
        assert {w for w in words - letters - theory.declared() - OF_COQ if not BOUND.fullmatch(w)} == set()


def _name_in_coq(letter: str) -> str:
    """How a statement of Coq calls the entries of an array."""
    side = ["letter", letter, [["i"]]]
    equation = {"free": [["i", "n"]], "left": side, "right": side}
    (made,) = lemmas("x", [{"kind": "certificate", "equations": [equation], "rules": [], "positive": []}])
    assert made.readable
    (found,) = re.findall(r"\((\w+) : nat -> R\)", made.readable.statement)
    return str(found)


def test_the_names_of_the_theory_are_reserved_without_being_listed() -> None:
    assert {"folded", "of_tile", "truth", "sum", "Num", "Over", "Step", "scope", "accepts"} <= theory.declared()
    for word in ("In", "Rabs", "folded", "forall", "sum"):
        assert _name_in_coq(word) == f"{word}_"
    assert _name_in_coq("keep") == "keep"


@pytest.mark.coq
def test_letters_with_reserved_names_are_read_as_letters() -> None:
    words = ("In", "Rabs", "folded", "sum", "array")
    total, turned = (["sum", *[["letter", w, []] for w in order]] for order in (words, words[::-1]))
    record = {"kind": "certificate", "rules": [], "positive": ["In"]}
    (so,) = lemmas("In", [{**record, "equations": [{"free": [], "left": total, "right": turned}]}])
    (wrong,) = lemmas("Rabs", [{**record, "equations": [{"free": [], "left": total, "right": ["letter", "In", []]}]}])
    assert judged([so, wrong]).accepted == {"In_"}


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
