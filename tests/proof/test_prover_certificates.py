"""Certificates: what the prover hands over is accepted by the checker, and nothing else is."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import symattn.proof
from symattn import Attention, InputError, functional, kinds, proving
from symattn.proof.checker_reading import read
from symattn.proof.checker_signs import Signs

xp = kinds.Indexed.xp
Record = dict[str, Any]
PI = kinds.Permutation("pi", "n")


def letters(name: str, shape: str, **options: Any) -> kinds.Indexed:
    return kinds.Indexed.letters(name, *[int(a) if a.isdigit() else a for a in shape.split()], **options)


q, k, v = letters("q", "n d"), letters("k", "m d"), letters("v", "m w")
s, t, g = letters("s", "n m"), letters("t", "n 1"), letters("g", "n 1")
x, square = letters("x", "n"), letters("S", "n n")
c, sn = letters("c", "n"), letters("sn", "n")

PROOFS: dict[str, Callable[[], Any]] = {
    "shift": lambda: proving.prove_equal(functional.softmax(s + t), functional.softmax(s)),
    "key bias": lambda: proving.prove_equal(Attention()(q, k + letters("b", "d"), v), Attention()(q, k, v)),
    "equivariance": lambda: proving.prove_equal(
        functional.softmax(square[PI][:, PI]), functional.softmax(square)[PI][:, PI]
    ),
    "causal": lambda: proving.prove_equal(
        functional.softmax(functional.forbid(square, functional.causal(square)) + g),
        functional.softmax(functional.forbid(square, functional.causal(square))),
    ),
    "masked": lambda: proving.prove_equal(
        functional.softmax(functional.forbid(s, letters("keep", "n m")) + t),
        functional.softmax(functional.forbid(s, letters("keep", "n m"))),
    ),
    "rows": lambda: proving.prove_equal(xp.sum(xp.sum(functional.softmax(s) * g, axis=0)), xp.sum(g)),
    "jacobian": lambda: proving.prove_equal(
        proving.gradient(lambda s, u: xp.sum(functional.softmax(s) * u), "s", s=letters("s", "m"), u=letters("u", "m")),
        (lambda p, u: p * (u - xp.sum(p * u)))(functional.softmax(letters("s", "m")), letters("u", "m")),
    ),
    "sizes": lambda: proving.prove_equal(
        kinds.Indexed.lift(x.shape[0]) * (x.shape[0] - 1), kinds.Indexed.lift(x.shape[0]) ** 2 - x.shape[0]
    ),
    "circle": lambda: proving.prove_equal(xp.sum(c * c * x) + xp.sum(sn * sn * x), xp.sum(x), (("c", "sn"),)),
    "quotient": lambda: proving.prove_equal(x / (c + sn) * (c + sn), x),
    "root": lambda: proving.prove_equal(x / xp.sqrt(c) / xp.sqrt(c), x / c),
    "positive": lambda: proving.prove_equal(x / letters("p", "n", positive=True) * letters("p", "n", positive=True), x),
    "blocks": lambda: proving.prove_equal(
        xp.concat([x, x + 0], axis=0), xp.concat([x + letters("y", "n") - letters("y", "n"), x], axis=0)
    ),
}


def record(name: str) -> Record:
    """The certificate of a proof, as JSON gives it back."""
    proof = PROOFS[name]()
    assert proof.proved, proof.why
    return json.loads(json.dumps(proving.certificate(proof)))  # type: ignore[no-any-return]


RECORDS = {name: record(name) for name in PROOFS}


@pytest.mark.parametrize("name", PROOFS)
def test_a_certificate_of_the_prover_is_accepted(name: str) -> None:
    verdict = proving.check(RECORDS[name], Random(1))
    assert verdict.accepted, verdict.why
    assert verdict.epsilon < 1e-20


def test_all_ways_of_deciding_are_met() -> None:
    found = {e["how"] for record in RECORDS.values() for e in record["equations"]}
    assert found == {"normal form", "one size", "box", "rows"}


def test_a_proof_that_failed_has_no_certificate() -> None:
    with pytest.raises(InputError):
        proving.certificate(proving.prove_equal(functional.softmax(s), s))


def test_the_checker_imports_nothing_of_the_prover() -> None:
    code = "import sys, symattn.proof.checker; print([m for m in sys.modules if m.startswith('symattn')])"
    root = Path(symattn.proof.__file__).parents[2]
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True).stdout
    loaded = set(json.loads(found.replace("'", '"')))
    # ``first_use`` finds the public names of the package, and imports nothing by itself.
    others = loaded - {"symattn", "symattn.first_use", "symattn.proof"}
    assert all(m.startswith("symattn.proof.checker") for m in others), loaded


def changed(data: Any, path: tuple[Any, ...], new: Any) -> Any:
    out = copy.deepcopy(data)
    at = out
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = new
    return out


def rejected(data: Any, why: str = "") -> None:
    verdict = proving.check(data, Random(2))
    assert not verdict.accepted, (why, data)
    assert verdict.why


TAMPERED: list[tuple[str, tuple[Any, ...], Any]] = [
    ("shift", ("schema",), 2),
    ("shift", ("equations",), []),
    ("shift", ("equations", 0, "how"), "normal form"),
    ("shift", ("equations", 0, "how"), "believe me"),
    ("shift", ("equations", 0, "free"), [["i0", "n"], ["i0", "m"]]),
    ("shift", ("equations", 0, "free", 0, 1), "m"),
    ("shift", ("equations", 0, "left"), ["number", "1"]),
    ("shift", ("equations", 0, "right"), ["letter", "s", [["i0"], ["i1"]]]),
    ("shift", ("equations", 0, "numerator"), ["number", "0"]),
    ("shift", ("equations", 0, "divisors", 0, 1), 2),
    ("shift", ("equations", 0, "counted", "m"), 1),
    ("shift", ("equations", 0, "stable", "m"), 1),
    ("shift", ("equations", 0, "sizes", 0, "m"), 1),
    ("causal", ("equations", 0, "how"), "one size"),
    ("masked", ("hypotheses",), []),
    ("masked", ("hypotheses", 0, "relation"), "≥"),
    ("masked", ("hypotheses", 0, "relation"), "<"),
    ("masked", ("hypotheses", 0, "free", 0, 1), "m"),
    ("rows", ("equations", 0, "how"), "one size"),
    ("rows", ("equations", 0, "counted", "m"), 1),
    ("jacobian", ("equations", 0, "how"), "one size"),
    ("sizes", ("equations", 0, "sizes"), [{"n": 0}, {"n": 1}]),
    ("circle", ("rules",), []),
    ("circle", ("rules",), [["c", "x"]]),
    ("circle", ("rules",), [["c"]]),
    ("quotient", ("hypotheses",), []),
    ("root", ("hypotheses",), []),
    ("root", ("hypotheses", 0, "relation"), "≥"),
    ("positive", ("positive",), []),
    ("equivariance", ("equations", 0, "right"), ["number", "0"]),
    ("blocks", ("equations", 0, "how"), "normal form"),
]


@pytest.mark.parametrize(("name", "path", "new"), TAMPERED, ids=lambda x: str(x)[:40])
def test_a_tampered_field_is_rejected(name: str, path: tuple[Any, ...], new: Any) -> None:
    rejected(changed(RECORDS[name], path, new))


def test_every_field_is_needed() -> None:
    for name, data in RECORDS.items():
        for field in set(data) - {"assumed"}:
            rejected({f: value for f, value in data.items() if f != field}, f"{name} without {field}")
        for field in data["equations"][0]:
            broken = copy.deepcopy(data)
            del broken["equations"][0][field]
            rejected(broken, f"{name} without {field} of an equation")


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every expression in nested lists, with its path, but for the factors of what is 0 as it is written."""
    if isinstance(data, list) and data and isinstance(data[0], str):
        if data[0] == "product" and ["number", "0"] in data:
            return
        yield path, data
        for n, part in enumerate(data[1:], 1):
            yield from places(part, (*path, n))


def other(x: Any) -> Any:
    """An expression that is not ``x``: another sign, letter, relation or number."""
    kind = x[0]
    if kind == "letter":
        return ["letter", x[1] + "'", x[2]]
    if kind == "is":
        return ["is", {"≤": "<", "<": "≤", "=": "≤"}[x[1]], *x[2:]]
    if kind == "number":
        return ["product", ["number", "3"], x]
    return ["product", ["number", "-1"], x]


@pytest.mark.parametrize(
    ("name", "side"),
    [
        *[(name, side) for name in ("shift", "rows", "circle", "sizes") for side in ("left", "right", "numerator")],
        *[(name, side) for name in ("causal", "quotient", "root") for side in ("left", "right")],
    ],
)
def test_every_expression_in_a_side_matters(name: str, side: str) -> None:
    """A change anywhere in one side makes the equation false; in the numerator, it is no longer that of the sides."""
    data = RECORDS[name]
    expression = data["equations"][0][side]
    for path, part in places(expression):
        if part[0] in ("n", "i0", "i1") or part[0].startswith("j"):
            continue
        whole = changed([expression], (0, *path), other(part))[0]
        broken = changed(data, ("equations", 0, side), whole)
        verdict = proving.check(broken, Random(3))
        if verdict.accepted:
            assert side == "numerator", (path, part)
            assert not matters(data, whole), (path, part)


def matters(data: Record, numerator: Any) -> bool:
    """Whether a numerator is not zero everywhere: −(a − b) is as good as a − b."""
    alone = {"free": data["equations"][0]["free"], "left": numerator, "right": ["number", "0"]}
    equation = {**data["equations"][0], **alone, "numerator": numerator, "divisors": []}
    return not proving.check({**data, "equations": [equation]}, Random(4)).accepted


def test_a_falsehood_that_small_sizes_hide_is_rejected() -> None:
    """n (n − 1) (n − 2) (n − 3) = 0 holds wherever the sides are compared; the checker clears by itself."""
    n = ["size", "n"]
    factors = [n, *[["sum", n, ["number", str(-i)]] for i in (1, 2, 3)]]
    equation = {
        "free": [],
        "left": ["product", *factors],
        "right": ["number", "0"],
        "how": "box",
        "numerator": ["number", "0"],
        "divisors": [],
        "counted": {},
        "stable": {},
        "sizes": [{}],
    }
    data = {"schema": 1, "kind": "certificate", "rules": [], "positive": [], "hypotheses": [], "assumed": []}
    rejected({**data, "equations": [equation]})


@pytest.mark.parametrize("data", [None, [], "yes", {}, {"schema": 1, "kind": "certificate"}, {"schema": 1}], ids=str)
def test_what_is_no_certificate_is_rejected(data: Any) -> None:
    rejected(data)


@pytest.mark.parametrize(
    "expression",
    [
        ["letter", "x", [["nowhere"]]],
        ["total", "i0", "n", ["number", "1"]],
        ["total", "a", "n"],
        ["is", "≥", ["i0"], ["i0"]],
        ["is", "=", ["i0"], ["i1"]],
        ["ratio", ["number", "1"]],
        ["number", "pi"],
        ["number", "1/0"],
        ["root", ["number", "2"]],
        ["function", "max"],
        ["function", "rsqrt", ["size", "n"], ["number", "1"]],
        ["function", ["max"], ["number", "1"]],
        ["masked", ["number", "1"], ["number", "1"]],
        ["exp", ["exp", ["number", "1"]]],
        ["exp", ["product", ["size", "n"], ["letter", "x", [["i0"]]]]],
        ["exp", ["product", ["number", "1/5"], ["letter", "x", [["i0"]]]]],
        [],
        ["sum", []],
        ["number", 1],
        {},
    ],
    ids=str,
)
def test_expressions_that_say_nothing_are_rejected(expression: Any) -> None:
    data = copy.deepcopy(RECORDS["shift"])
    data["equations"][0]["left"] = ["sum", data["equations"][0]["left"], expression]
    data["equations"][0]["right"] = ["sum", data["equations"][0]["right"], expression]
    rejected(data)


X = ["letter", "x", []]
SQUARE = ["product", X, X]


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        (["sum", ["number", "-1"], ["exp", SQUARE]], True),
        (["sum", ["number", "-1"], ["exp", X]], False),
        (["sum", ["number", "-2"], ["exp", SQUARE]], False),
        (["sum", ["number", "-1"], ["exp", ["product", ["number", "-1"], SQUARE]]], False),
        (["sum", ["number", "-1"], ["exp", SQUARE], X], False),
        (["sum", ["number", "-1"], ["number", "-1"], ["exp", SQUARE]], False),
    ],
)
def test_what_the_checker_knows_of_exponentials_less_one(form: Any, shown: bool) -> None:
    assert Signs({}, frozenset()).shows_not_negative(read(form, {})) is shown
