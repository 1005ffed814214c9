"""``erasing``: tokens erase along a vector of their own; rules of models as cases, and walks in exact numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention import linear
from symattn.derivations.derivation_texts import DerivationText
from symattn.derivations.exactly import entries, exact, same
from symattn.document import notation as nt
from symattn.document.formulas import formula
from symattn.document.model import Column, Document, Table, headers
from symattn.proof.relations.comparing import FalseStep
from symattn.proof.relations.glossary import Glossary
from symattn.theorems.letters import eye
from symattn.theorems.linear import ERASING

# Three tokens whose keys are neither equal nor orthogonal; the first feature decays by 1/e before the second one.
QUERIES = ((1, 0), (1, 1), (1, 2))
KEYS = ((1, 0), (1, 1), (0, 1))
VALUES = ((2,), (4,), (3,))
GATES = ((0, 0), (-1, 0), (0, 0))
_HALF = Fraction(1, 2)


# What each rule is given besides, one row a token.
RATES = ((1,), (_HALF,), (1,))
AUXILIARY = ((1, 0), (1, 0), (1, 1))  # p of Comba
ERASE_GATES = ((1, 1), (_HALF, 1), (1, 1))
WRITE_GATES = ((1,), (_HALF,), (1,))
REMOVED = ((1, 0), (1, 0), (0, 1))  # κ of RWKV-7, read as α = −κ
REPLACED = ((_HALF, 0), (_HALF, 0), (0, 1))  # κ times its rate, b of RWKV-7
BONUS = ((2, 1),)
STEPS = ((1,), (2,), (1,))
GATE_OF_HEAD, SKIP = -1, Fraction(1, 2)


class ErasingRule(NamedTuple):
    """A rule of a published model: its fields, and the formulas of p, r and what is written."""

    model: str
    fields: dict[str, object]
    p: str
    r: str
    written: str


RULES = (
    ErasingRule("linear", {}, "0", "k", "v"),
    ErasingRule("deltanet", {"delta": True}, "β k", "k", "β v"),
    ErasingRule(
        "comba",
        {"delta": True, "gate": "token", "erase": "vector", "erases": "before"},
        "β p",
        "k",
        "β v",
    ),
    ErasingRule(
        "gdn2", {"delta": True, "gate": "feature", "erase": "gates"}, "b ⊙ k", "k", "w ⊙ v"
    ),
    ErasingRule(
        "rwkv7",
        {"delta": True, "gate": "feature", "erase": "pair", "erases": "before"},
        "−α",
        "b",
        "v",
    ),
    ErasingRule("rwkv6", {"gate": "feature", "reads": "before", "bonus": True}, "0", "k", "v"),
    ErasingRule("mamba2", {"gate": "head", "step": True, "skip": True}, "0", "k", "Δ v"),
)
"""What the fields of each say of erasing, writing, gates and reading; a norm, a scale and heads are left out."""


def derivation() -> Document:
    """Derive one erasure, S′ = (I − rᵀ p) diag(a) S + kᵀ v, of which the rules of models are cases, and its chunks."""
    walks = _run_walks()
    of_gates = walks["gdn2"]
    numbers: dict[str, Any] = {
        "I": eye("n"),
        "A": lambda reader: linear.decayed_scores(*map(reader.array, "QKG")),
        "L": lambda reader: linear.decayed_scores(
            reader.array("P"), reader.array("K"), reader.array("G"), itself=False
        ),
        "Y": lambda _: _stack(token.seen for token in of_gates.tokens),
        "O": lambda _: _stack(token.output for token in of_gates.tokens),
    }
    sums = [[sum(gates) for gates in zip(*GATES[: i + 1], strict=True)] for i in range(len(GATES))]
    return DerivationText(
        {"one": ERASING, "numbers": Glossary(defined=numbers)},
        fields=[_make_table_of_fields()],
        walks=[_make_table_of_tokens(walk) for walk in walks.values()],
        queries=nt.matrix(QUERIES),
        keys=nt.matrix(KEYS),
        erasing=nt.matrix(_multiply(ERASE_GATES, KEYS)),
        written=nt.matrix(_multiply(WRITE_GATES, VALUES)),
        sums=nt.matrix(sums),
    ).document("erasing")


def _multiply(x: Any, y: Any) -> Any:
    return tuple(
        tuple(Fraction(a) * b for a, b in zip(*rows, strict=True))
        for rows in zip(x, y, strict=True)
    )


def _stack(rows: Iterable[Array]) -> Any:
    every = list(rows)
    return namespace_of(every[0]).concat(every, axis=0)


# -- three tokens in exact numbers -------------------------------------------------------------------------------------
class StepForms(NamedTuple):
    """The implementation of one token, and of a chunk of them, from the same arrays."""

    token: linear.Step
    chunk: linear.Step


class Erased(NamedTuple):
    """Rows that read what is erased (n, d_k), and whether of the state before it decays."""

    p: Array
    before: bool


class Token(NamedTuple):
    """A token: what its p reads (1, d_v), None if nothing is erased, the state after it, and its output."""

    seen: Any
    state: Array
    output: Array


@dataclass(frozen=True)
class RuleWalk:
    """Three tokens of a rule; ``shown`` are the inputs of its table besides keys and queries, by the column's title."""

    caption: str
    shown: Mapping[str, Array]
    tokens: tuple[Token, ...]


def _run_walks() -> dict[str, RuleWalk]:
    """Run each rule token by token, in exact numbers."""
    k, v, g = (exact(x) for x in (KEYS, VALUES, GATES))
    erasing = StepForms(linear.erasing_token, linear.erasing_chunk)
    before = StepForms(
        partial(linear.erasing_token, before=True), partial(linear.erasing_chunk, before=True)
    )

    p, beta = exact(AUXILIARY), exact(RATES)
    read = Erased(beta * p, before=True)
    tokens = _run_tokens(before, (k, beta * v, read.p, k, g), read)
    caption = "Comba; p reads the state before it decays."
    comba = RuleWalk(caption, {"v_t": v, "p_t": p, "β_t": beta}, tokens)

    b, w = exact(ERASE_GATES), exact(WRITE_GATES)
    read = Erased(b * k, before=False)
    tokens = _run_tokens(erasing, (k, w * v, read.p, k, g), read)
    gdn2 = RuleWalk("Gated DeltaNet-2.", {"v_t": v, "b_t": b, "w_t": w}, tokens)

    kappa, replaced = exact(REMOVED), exact(REPLACED)
    read = Erased(kappa, before=True)
    tokens = _run_tokens(before, (k, v, kappa, replaced, g), read)
    caption = "RWKV-7; α reads the state before it decays."
    rwkv7 = RuleWalk(caption, {"v_t": v, "α_t": -kappa, "b_t": replaced}, tokens)

    bonus = _stack(exact(BONUS) for _ in KEYS)
    tokens = _run_tokens(
        StepForms(linear.step_read_before, linear.chunk_read_before), (k, v, g, bonus)
    )
    caption = "RWKV-6; a token reads the state before it is added, and itself by the bonus b."
    rwkv6 = RuleWalk(caption, {"v_t": v, "b_t": bonus}, tokens)

    step, gates = exact(STEPS), exact([[GATE_OF_HEAD]] * len(KEYS))
    tokens = _run_tokens(
        StepForms(linear.gated_step, linear.gated_chunk), (k, step * v, step * gates)
    )
    skipped = tuple(
        token._replace(output=token.output + SKIP * row)
        for token, row in zip(tokens, _rows(v), strict=True)
    )
    caption = "Mamba-2; the gate of the head is −1, and v/2 is added to what a token reads."
    mamba2 = RuleWalk(caption, {"v_t": v, "Δ_t": step}, skipped)
    return {"comba": comba, "gdn2": gdn2, "rwkv7": rwkv7, "rwkv6": rwkv6, "mamba2": mamba2}


def _run_tokens(
    steps: StepForms, arrays: tuple[Array, ...], erased: Erased | None = None
) -> tuple[Token, ...]:
    """Run tokens one by one from the state 0; ``arrays`` are k, the values that are written, and further ones.

    Of what erases, they are k, v, p, r and g. Raises ``FalseStep`` if chunks give another state or other outputs, or
    if a state is not the one before it, less what is erased.
    """
    q, state = exact(QUERIES), linear.empty_state(*arrays[:2])
    result = []
    for i in range(len(KEYS)):
        rows = [x[i : i + 1, :] for x in arrays]
        after, output = steps.token(state, q[i : i + 1, :], *rows)
        seen = None
        if erased is not None:
            k, v, _, r, g = rows
            kept = linear.decayed(state, g)
            seen = erased.p[i : i + 1, :] @ (state if erased.before else kept)
            # Each state is checked against the formula that is printed.
            if not same(after, kept - r.mT @ seen + k.mT @ v):
                raise FalseStep(
                    "a state of the example is not the one before it, less what p reads"
                )
        result.append(Token(seen, after, output))
        state = after
    # All tokens in one chunk, and both ways to cut them into two chunks.
    for bounds in ((0, 3), (0, 1, 3), (0, 2, 3)):
        end = linear.scan(steps.chunk, linear.empty_state(*arrays[:2]), bounds, q, *arrays)
        outputs = _stack(token.output for token in result)
        if not (same(end.state, state) and same(end.output, outputs)):
            raise FalseStep(f"the tokens of the example in the chunks {bounds} give other results")
    return tuple(result)


def _rows(x: Array) -> list[Array]:
    return [x[i : i + 1, :] for i in range(len(KEYS))]


def _make_table_of_tokens(walk: RuleWalk) -> Table:
    """Return the tokens of a rule one by one, in exact numbers."""
    erases = walk.tokens[0].seen is not None
    titles = ["t", "k_t", *walk.shown, *(["y_t"] if erases else []), "S_t", "q_t", "o_t"]
    rows = []
    for t, token in enumerate(walk.tokens):
        inputs = [exact([KEYS[t]]), *(x[t : t + 1, :] for x in walk.shown.values())]
        read = [token.seen] if erases else []
        arrays = [*inputs, *read, token.state, exact([QUERIES[t]]), token.output]
        rows.append((nt.node(t + 1), *map(entries, arrays)))
    columns = tuple(Column((formula(x),)) for x in titles)
    return Table(columns, tuple(tuple((x,) for x in row) for row in rows), caption=(walk.caption,))


def _make_table_of_fields() -> Table:
    """Return the rules: their fields, and what stands for p and r, and is written."""
    columns = headers("Model", "Fields", "p", "r", "Written")
    rows: list[tuple[Any, ...]] = []
    for rule in RULES:
        fields = ", ".join(f"{name}={value!r}" for name, value in rule.fields.items())
        vectors = (formula(x) for x in (rule.p, rule.r, rule.written))
        rows.append(((rule.model,), (fields or "none",), *((x,) for x in vectors)))
    return Table(columns, tuple(rows))
