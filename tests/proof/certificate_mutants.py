"""Certificates changed in one place, so that what they say is false, or no longer shown by what they hold.

``python -m tests.proof.certificate_mutants`` makes them of every certificate of the catalogue and counts them.
"""

import copy
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any

from symattn import proving
from tests.proof.certificate_numbers import fails

Record = dict[str, Any]
Path = tuple[Any, ...]
OTHER = {"≤": "<", "<": "≤", "=": "<"}
FUNCTION = {"sqrt": "rsqrt", "rsqrt": "sqrt", "tanh": "erf", "log": "sqrt", "cos": "sin", "sin": "cos", "max": "norm"}
KINDS = ("number", "size", "letter", "is", "sum", "product", "ratio", "exp", "total", "function", "bound", "masked")
NOUGHT, ONE, MINUS = (["number", n] for n in ("0", "1", "-1"))


def expressions(x: Any, path: Path = ()) -> Iterator[tuple[Path, list[Any]]]:
    """Every expression in one, with its path."""
    if isinstance(x, list) and x and x[0] in KINDS:
        yield path, x
        for n, y in enumerate(x[1:], 1):
            yield from expressions(y, (*path, n))


def at(data: Any, path: Path) -> Any:
    for step in path:
        data = data[step]
    return data


def put(data: Any, path: Path, new: Any) -> Any:
    """A copy of ``data`` with ``new`` in one place."""
    out = copy.deepcopy(data)
    at(out, path[:-1])[path[-1]] = new
    return out


def changes(x: list[Any], scope: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """An expression falsified: sign, number, index, relation, function, a part dropped, a fraction turned over."""
    kind = x[0]
    if kind not in ("bound", "masked"):
        yield "sign", ["product", MINUS, x]
    if kind == "number":
        yield "number", ["sum", x, ONE]
    if kind == "letter":
        for n, i in enumerate(x[2]):
            for other in (o for o, sort in scope.items() if o != i[0] and sort == scope.get(i[0])):
                yield "index", ["letter", x[1], [*x[2][:n], [other, *i[1:]], *x[2][n + 1 :]]]
            if len(i) > 1:
                yield "permutation", ["letter", x[1], [*x[2][:n], i[:1], *x[2][n + 1 :]]]
    if kind == "is":
        yield "relation", ["is", OTHER[x[1]], *x[2:]]
    if kind in ("sum", "product") and len(x) > 2:
        for n in range(1, len(x)):
            yield f"part of a {kind}", [*x[:n], *x[n + 1 :]]
    if kind == "ratio":
        yield "fraction", ["ratio", x[2], x[1]]
    if kind == "exp":
        yield "e", x[1]
    if kind == "size":
        yield "size", ["sum", x, ONE]
    if kind == "function" and x[1] in FUNCTION:
        yield "function", ["function", FUNCTION[x[1]], *x[2:]]
    if kind == "masked":
        yield "mask", ["masked", ONE, x[2]]


def sides(record: Record) -> Iterator[tuple[Path, dict[str, str]]]:
    """The paths of the sides of equations, or of inequalities, with the sorts of their indices."""
    for key in ("equations", "conclusions"):
        for n, e in enumerate(record.get(key, ())):
            for side in (side for side in ("left", "right", "smaller", "larger", "of", "value") if side in e):
                yield (key, n, side), dict(map(tuple, e["free"]))


def false_claims(record: Record, most: int, dice: Random) -> Iterator[tuple[str, Record]]:
    """Up to ``most`` certificates of which a side is changed so that numbers show it to be false."""
    every = [
        (what, (*path, *inner), new)
        for path, scope in sides(record)
        for inner, x in expressions(at(record, path))
        for what, new in changes(x, scope)
    ]
    dice.shuffle(every)
    for what, path, new in every[: 4 * most]:
        mutant = put(record, path, new)
        if fails(mutant, seeds=3):
            yield what, mutant
            most -= 1
        if not most:
            return


def adapted(mutant: Record) -> Iterator[tuple[str, Record]]:
    """The rest of a false certificate as it is, and made to fit in some ways."""
    yield "as it is", mutant
    for n, e in enumerate(mutant.get("equations", ())):
        yield "a normal form", put(mutant, ("equations", n, "how"), "normal form")
        sorts = Counter(sort for _, sort in e["free"])
        none = {"counted": dict(sorts), "stable": dict.fromkeys(sorts, 0), "divisors": []}
        raw = ["sum", e["left"], ["product", MINUS, e["right"]]]
        for word, numerator in (("nothing is left", NOUGHT), ("not cleared", raw)):
            for how in ("box", "one size", "rows"):
                sizes = [dict(sorts)] if how == "one size" else [dict.fromkeys(sorts, 0), dict(sorts)]
                yield (
                    word,
                    put(mutant, ("equations", n), {**e, **none, "how": how, "numerator": numerator, "sizes": sizes}),
                )
    if mutant["kind"] == "sign":
        yield "the gap as well", {**mutant, "equal": _gap(mutant)}
        yield "and its expression", {**mutant, "equal": _gap(mutant), "expression": _gap(mutant)}


def _gap(sign: Record) -> Any:
    (c,) = sign["conclusions"]
    return ["sum", c["larger"], ["product", MINUS, c["smaller"]]]


def not_shown(record: Record) -> Iterator[tuple[str, Record]]:
    """A certificate that lacks something, or holds something else, of what shows it."""
    for n in range(len(record.get("hypotheses", ())) if record["kind"] == "certificate" else 0):
        yield "a hypothesis", {**record, "hypotheses": record["hypotheses"][:n] + record["hypotheses"][n + 1 :]}
    for n, e in enumerate(record.get("equations", ())):
        for key in ("counted", "stable"):
            for sort, count in e.get(key, {}).items():
                yield key, put(record, ("equations", n, key, sort), count + 1)
                yield key, put(record, ("equations", n, key, sort), count - 1)
        if e.get("sizes"):
            yield "sizes", put(record, ("equations", n, "sizes"), e["sizes"][1:])
            more = {sort: size + 1 for sort, size in e["sizes"][-1].items()}
            if more:
                yield "sizes", put(record, ("equations", n, "sizes"), [*e["sizes"][:-1], more])
            yield "polynomial", put(record, ("equations", n, "numerator"), ["sum", e["numerator"], ONE])
        for k, (_, times) in enumerate(e.get("divisors", ())):
            yield "divisor", put(record, ("equations", n, "divisors", k, 1), times + 1)
            yield "divisor", put(record, ("equations", n, "divisors", k, 0), ["number", "7"])
    for n, premise in enumerate(record.get("premises", ())):
        yield "premise", {**record, "premises": record["premises"][:n] + record["premises"][n + 1 :]}
        for what, changed in not_shown(premise):
            yield what, put(record, ("premises", n), changed)
    for n, (name, law) in enumerate(record.get("laws", ())):
        other = "magnitude" if law != "magnitude" else "bounded"
        yield "law", put(record, ("laws", n, 1), other)
        yield "law", put(record, ("laws", n, 0), name + "'")
    used = {x[1] for _, x in expressions(record.get("expression")) if x[0] == "letter"}
    for n, m in ((n, m) for n, m in enumerate(record.get("meant", ())) if m["letter"] in used):
        yield "meaning", put(record, ("meant", n, "expression"), ["sum", m["expression"], ONE])
    if record["kind"] == "sign" and record["equal"] is not None:
        yield "gap", {**record, "equal": ["sum", record["equal"], ONE]}
    if record["kind"] == "differing":
        yield "difference", {**record, "left": record["right"]}
    yield from _steps_not_shown(record)
    for key in ("left", "right", "through", "of", "result", "value", "measure", "step", "factor"):
        if isinstance(record.get(key), dict):
            yield key, put(record, (key, "expression"), ["sum", record[key]["expression"], ONE])
    for key in ("state", "merge", "made", "result"):
        for n, part in enumerate(record[key] if isinstance(record.get(key), list) else ()):
            yield key, put(record, (key, n, "expression"), ["sum", part["expression"], ONE])


def _steps_not_shown(record: Record) -> Iterator[tuple[str, Record]]:
    """Another rule, another relation in a premise, and other things that a rule needs."""
    rule = record["rule"] if record["kind"] == "step" else ""
    if rule:
        yield "rule", {**record, "rule": "logarithm" if rule != "logarithm" else "largest"}
    if rule in ("induction", "limit"):
        yield "letter", {**record, "letter": record["letter"] + "'"}
    if rule == "instance":
        yield "length", {**record, "length": str(int(record["length"]) + 1)}
        yield "half a length", {**record, "length": "1/2"}
        yield "size", {**record, "sort": record["sort"] + "'"}
        yield "form", put(record, ("conclusions", 0, "form"), ["sum", record["conclusions"][0]["form"], ONE])
    if rule == "limit":
        yield "of a size", {**record, "size": not record["size"]}
    if rule == "induction":
        yield "sort", {**record, "sort": record["sort"] + "'"}
        for key in ("term", "closed"):
            yield key, {**record, key: ["sum", record[key], ONE]}
    if rule == "limit":
        yield "to", {**record, "to": "0" if record["to"] == "∞" else "∞"}
        for n, c in enumerate(record["conclusions"]):
            for key in ("form", "value"):
                yield key, put(record, ("conclusions", n, key), ["sum", c[key], ONE])
    for n, p in enumerate(record.get("premises", ()) if rule else ()):
        for kind, key, both in (
            ("certificate", "equations", ("left", "right")),
            ("sign", "conclusions", ("smaller", "larger")),
        ):
            for k, e in enumerate(p[key] if p["kind"] == kind else ()):
                for side in both:
                    yield "premise of something else", put(record, ("premises", n, key, k, side), ["sum", e[side], ONE])


def accepted(records: Iterable[Record], most: int = 3) -> tuple[Counter[str], list[str]]:
    """How many mutants were made of each kind, and which of them the checker accepts."""
    made: Counter[str] = Counter()
    wrong: list[str] = []
    for n, record in enumerate(records):
        claims = (
            (f"{what}, {how}", m) for what, one in false_claims(record, most, Random(n)) for how, m in adapted(one)
        )
        for kind, mutants in (("false", claims), ("not shown", not_shown(record))):
            for what, mutant in mutants:
                made[kind] += 1
                if proving.check(mutant, Random(n)).accepted:
                    wrong.append(f"{n}: {kind}, {what}")
    return made, wrong


def certificates_of(theorem: proving.Theorem) -> tuple[Mapping[str, Any], ...]:
    """The certificates of what is decided of a theorem now."""
    decision = proving.decide(theorem).decision
    return proving.certificates(decision.proofs, decision.premises)


def main() -> int:
    """Count the mutants of the catalogue."""
    from symattn import theorems

    total: Counter[str] = Counter()
    every: list[str] = []
    for name, theorem in theorems.catalogue().items():
        made, wrong = accepted(certificates_of(theorem))
        total += made
        every += [f"{name} {w}" for w in wrong]
    print(*every, sep="\n")
    print(f"{total.total()} mutants ({dict(total)}), {len(every)} accepted")
    return bool(every)


if __name__ == "__main__":
    sys.exit(main())
