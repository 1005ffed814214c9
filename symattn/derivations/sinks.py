"""``sinks``: a score without a value, which takes weight and gives nothing."""

from __future__ import annotations

from typing import Any

from symattn.attention.notation import N_K
from symattn.attention.sinks import sink_weights
from symattn.attention.softmax import softmax
from symattn.derivations.exactly import THIS, comes_to, entries, exact, same
from symattn.derivations.letters import E, Z, p, s
from symattn.derivations.proving import hypotheses, known, shown
from symattn.derivations.steps import defined, hold, together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph
from symattn.document.notation import Name, equals, name, relation, total
from symattn.proof.theorem import Method
from symattn.proof.together import bound, identity
from symattn.theorems import scores as theorems
from symattn.theorems.sums import add_up, exp, log_sum_exp

_B, _T, _O = Name("b"), Name("t"), name("o", "sink", role="output")
_ROW = {"s": "n k", "b": "n 1"}
_SCORES, _VALUES = [[1, 0]], [[3], [1]]


def derivation() -> Document:
    """A sink is one more key of value 0; it multiplies the output by sigmoid(lse(s) − b)."""
    return Document(
        "derivation",
        "sinks",
        ("Attention sinks, and softmax off by one",),
        _blocks(),
        command="symattn derive sinks",
        hints=("symattn derive shift             without a sink all scores may be shifted",),
    )


def weights_of(s: Any, b: Any) -> Any:
    """e^{s_j} / (e^b + Σ_ℓ e^{s_ℓ}), as it is implemented."""
    return sink_weights(s, b)


def stable() -> Method:
    """Any number m subtracted from all scores, that of the sink included, cancels; so does the maximum."""

    def sides(s: Any, b: Any, m: Any) -> Any:
        plain = exp(s) / (exp(b) + add_up(exp(s)))
        return [(weights_of(s, b), plain), (exp(s - m) / (exp(b - m) + add_up(exp(s - m))), plain)]

    return identity({**_ROW, "m": "n 1"}, sides)


def row_sum() -> Method:
    """Σ_j p_j = Z/(e^b + Z) = sigmoid(log Z − b)."""

    def sides(s: Any, b: Any) -> Any:
        z, found = add_up(exp(s)), add_up(weights_of(s, b))
        return [(found, z / (exp(b) + z)), (found, 1 / (1 + exp(b - log_sum_exp(s))))]

    return identity(_ROW, sides)


def below_one() -> Method:
    """Σ_j p_j < 1: what is missing is e^b/(e^b + Z)."""

    def sides(s: Any, b: Any) -> Any:
        return add_up(weights_of(s, b)), 1 + 0 * b

    return bound(_ROW, sides, lambda s, b: exp(b) / (exp(b) + add_up(exp(s))))


def proportions() -> Method:
    """p_j = sigmoid(log Z − b) softmax(s)_j."""
    return identity(_ROW, lambda s, b: (weights_of(s, b), softmax(s) / (1 + exp(b - log_sum_exp(s)))))


def _blocks() -> tuple[Block, ...]:
    extra, gate, shift = map(known, (theorems.sink_is_extra_key, theorems.sink_is_a_gate, theorems.sink_shift))
    through = nt.call("sigmoid", nt.call("log", Z) - _B)
    missing = relation(total("j", 1, N_K, p("j")), "<", 1)
    return (
        hypotheses(
            (),
            ("one query with the scores ", s(), "; the sink has the score ", _B, ", a number that is learned"),
            (equals(Z, total("ℓ", 1, N_K, E ** s("ℓ"))),),
        ),
        Heading(("The weights",)),
        together(
            defined(equals(p("j"), E ** s("j") / (E**_B + Z))),
            shown(equals(p("j"), _shifted()), ("m may be any number, also ", nt.call("max", s(), _B)), stable()),
            shown(equals(total("j", 1, N_K, p("j")), Z / (E**_B + Z), through), "numerators add up", row_sum()),
            shown(missing, (E**_B, " is positive"), below_one()),
        ),
        Heading(("One more key, of value 0",)),
        extra.result("Result 1"),
        extra.wrong(),
        Heading(("A gate",)),
        together(
            shown(equals(p("j"), through * name("softmax(s)", "j")), "the sink keeps the proportions", proportions()),
            gate.step(None, "so the output is that without a sink, times one factor"),
        ),
        gate.wrong(),
        Paragraph(
            (
                "A row that finds nothing, with all scores far below ", _B,
                ", gives an output near 0 instead of a mean of values.",
            )
        ),
        Heading(("What may be shifted",)),
        shift.result("Result 2"),
        shift.wrong(),
        *_example(),
        Caveat(
            (
                "Here the sink is a learned score. That trained models without one use their first token as such is an",
                " observation, and not shown.",
            )
        ),
    )  # fmt: skip


def _shifted() -> nt.Node:
    m = Name("m")
    return E ** (s("j") - m) / (E ** (_B - m) + total("ℓ", 1, N_K, E ** (s("ℓ") - m)))


def _example() -> tuple[Block, ...]:
    """Two keys and a sink of score 0."""
    scores, values, sink = exact(_SCORES), exact(_VALUES), exact([[0]])
    weights = sink_weights(scores, sink)
    every = softmax(scores.xp.concat([scores, sink], axis=-1))
    output, plain = weights @ values, softmax(scores) @ values
    return (
        Heading(("In numbers",)),
        Paragraph(
            (
                "With ", equals(s(), entries(scores)), ", ", equals(name("V", role="value"), entries(values)),
                " and ", equals(_B, 0), ":",
            )
        ),
        together(
            comes_to(p(), weights, every[:, :2], "as softmax over three keys"),
            comes_to(_O, output[0, 0], (every @ exact([*_VALUES, [0]]))[0, 0], "with the value 0 for the sink"),
            hold(
                not same(output, plain),
                nt.Relation(name("o", role="output"), (("=", entries(plain[0, 0])), ("≠", _O))),
                "without a sink",
                THIS,
            ),
        ),
    )  # fmt: skip
