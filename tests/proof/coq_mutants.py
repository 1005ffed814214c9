"""Equations with one thing wrong on the right side, and whether Coq accepts them: what it accepts must be true.

python -m tests.proof.coq_mutants 580
"""

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from symattn import SymattnError, proving, theorems
from symattn.proof.certificate import written
from symattn.proof.coq.coq_judges import judged
from symattn.proof.coq.writing import lemma
from symattn.proof.prover import equations
from symattn.theorems.as_printed import AsPrinted
from tests.proof.coq_values import World, parsed

LONGEST = 6000  # characters of an equation


@dataclass(frozen=True)
class Mutant:
    """A lemma and what is wrong in it."""

    lemma: Any
    wrong: str


def mutants(names: Sequence[str], many: int, random: Random) -> Iterator[Mutant]:
    """So many mutants of each theorem's equations."""
    for name in names:
        decision = theorems.catalogue()[name].method.decide()
        records = json.loads(json.dumps(proving.certificates(decision.proofs)))
        every = [(c, e) for c in records for e in c["equations"] if len(str(e["left"]) + str(e["right"])) < LONGEST]
        for n in range(many if every else 0):
            record, equation = random.choice(every)
            wrong = json.loads(json.dumps(equation))
            changes = list(_changes(wrong, "right", {i: s for i, s in equation["free"]}))
            if not changes:  # a side that is one constant
                continue
            where, key, new, told = random.choice(changes)
            where[key] = new
            made = lemma(f"m_{name.replace('-', '_')}_{n}", wrong, record["rules"], record["positive"])
            if made.text and random_values(made, 0):
                yield Mutant(made, f"{name}: {told}")


def false_variants(names: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    """The equations of every false variant of theorems that are identities, with a name each."""
    for name in names:
        method = theorems.catalogue()[name].method
        method = method.identity if isinstance(method, AsPrinted) else method
        if not isinstance(method, proving.Identity):
            continue
        for n, false in enumerate(method.false if isinstance(method.false, tuple) else (method.false,)):
            try:
                every = [
                    e for pair in proving.pairs(false, method.declared, proving.Letters()) for e in equations(*pair)
                ]
            except SymattnError:
                continue  # it says nothing of letters
            found = []
            for k, (indices, *sides) in enumerate(every):
                written_as = {i: f"i{m}" for m, i in enumerate(indices)}
                left, right = (json.loads(json.dumps(written(x, written_as))) for x in sides)
                equation = {"free": [[written_as[i], i.sort] for i in indices], "left": left, "right": right}
                label = f"f_{name.replace('-', '_')}_{n}_{k}"
                found.append(lemma(label, equation, method.declared.units, method.declared.positive))
            yield f"{name} {n}", found


def _changes(parent: Any, key: Any, scope: Mapping[str, str]) -> Iterator[tuple[Any, Any, Any, str]]:
    """Every way to change one node below ``parent[key]``: where, and what stands there then."""
    x = parent[key]
    kind, *rest = x
    if kind == "number":
        yield parent, key, ["sum", x, ["number", "1"]], f"{rest[0]} + 1"
    elif kind == "is":
        yield (
            parent,
            key,
            ["is", {"=": "≤", "≤": "<", "<": "≤"}[rest[0]], *rest[1:]],
            f"another relation than {rest[0]}",
        )
    elif kind == "letter":
        yield parent, key, ["product", ["number", "2"], x], f"2 {rest[0]}"
        for n, index in enumerate(rest[1]):
            for other in (i for i, s in scope.items() if s == scope[index[0]] and i != index[0]):
                moved = [*rest[1][:n], [other, *index[1:]], *rest[1][n + 1 :]]
                yield parent, key, ["letter", rest[0], moved], f"another index of {rest[0]}"
    elif kind in ("sum", "product"):
        for n in range(len(rest) if len(rest) > 1 else 0):
            yield parent, key, [kind, *rest[:n], *rest[n + 1 :]], f"a part of a {kind} dropped"
    elif kind == "ratio":
        yield parent, key, [kind, rest[0], ["product", ["number", "2"], rest[1]]], "twice a divisor"
    elif kind == "exp":
        yield parent, key, ["exp", ["product", ["number", "2"], rest[0]]], "twice an exponent"
    if kind in ("total", "bound"):
        yield from _changes(x, 3, {**scope, rest[0]: rest[1]})
    else:
        for n, y in enumerate(x):
            if n and isinstance(y, list) and y and isinstance(y[0], str) and kind not in ("letter", "is"):
                yield from _changes(x, n, scope)


def random_values(made: Any, seed: int) -> tuple[float, float] | None:
    """Both sides where sizes, arrays and functions are drawn; None where a number is beyond floats."""
    random = Random(seed)
    sizes = {n: random.randint(1, 3) for n in made.names.sorts.values()}
    plus = parsed(re.search(r"accepts (\[[\d; ]*\])", made.text)[1])  # type: ignore[index]
    angles = parsed(re.search(r"accepts \[[\d; ]*\] (\[.*?\]) \d", made.text)[1].replace("), (", "); ("))  # type: ignore[index]
    circles = {int(n.strip(",")): (int(c.strip(",")), k) for c, s in angles for k, n in enumerate((c, s))}

    def entry(array: int, indices: Sequence[int]) -> float:
        of, sine = circles.get(array, (array, -1))
        x = Random(f"{seed} {of} {list(indices)}").uniform(-1, 1)
        return (
            x
            if sine < 0 and str(array) not in plus
            else abs(x) + 0.1
            if sine < 0
            else (math.cos, math.sin)[sine](3 * x)
        )

    def function(f: int, values: Sequence[float]) -> float:
        return Random(f"{seed} {f} {[round(v, 6) for v in values]}").uniform(0.5, 2)

    free = parsed(re.search(rf" (\[[\d; ]*\]) {made.name}'left ", made.text)[1])  # type: ignore[index]
    env = tuple((int(s), random.randrange(sizes[int(s)])) for s in free)
    try:
        left, right = (
            World(sizes, entry, function).value(parsed(found), env)
            for found in re.findall(r"Definition \w+'(?:left|right) := (.*)\.\n", made.text)
        )
    except OverflowError:
        return None
    return (left, right) if math.isfinite(left + right) else None


def true_at_random(made: Any) -> bool:
    """Whether both sides are equal wherever they are looked at."""
    found = [v for v in (random_values(made, seed) for seed in range(12)) if v]
    return all(math.isclose(a, b, rel_tol=1e-7, abs_tol=1e-9) for a, b in found)


def campaign(names: Sequence[str], many: int, seed: int = 0, jobs: int = 1) -> tuple[int, list[Mutant], list[Mutant]]:
    """How many mutants were tried, those accepted that are true, and those accepted that are false."""
    every = list(mutants(names, many, Random(seed)))
    accepted = judged([m.lemma for m in every], jobs).accepted
    kept = [m for m in every if m.lemma.name in accepted]
    return len(every), [m for m in kept if true_at_random(m.lemma)], [m for m in kept if not true_at_random(m.lemma)]


if __name__ == "__main__":
    identities = [n for n, t in theorems.catalogue().items() if isinstance(t.method, (proving.Identity, AsPrinted))]
    tried, true, false = campaign(identities, -(-int(sys.argv[1]) // len(identities)), jobs=2)
    print(
        f"{tried} mutants: {tried - len(true) - len(false)} refused, {len(true)} accepted and true, {len(false)} false"
    )
    for m in (*true, *false):
        print(m.lemma.name, m.wrong)
