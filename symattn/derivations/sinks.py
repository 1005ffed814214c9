"""``sinks``: a score without a value, which takes weight and gives nothing."""

from __future__ import annotations

from typing import Any

from symattn.attention.notation import N_K
from symattn.attention.sinks import sink_weights
from symattn.attention.softmax import softmax
from symattn.derivations.exactly import entries, exact
from symattn.derivations.letters import E, Z, p, s
from symattn.derivations.proving import hypotheses, known
from symattn.derivations.steps import together
from symattn.document import notation as nt
from symattn.document.model import Block, Caveat, Document, Heading, Paragraph
from symattn.document.notation import Name, equals, name, relation, total
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.reader import Reader
from symattn.proof.relations.section import Section
from symattn.theorems import scores as theorems

_B, _O = Name("b"), name("o", "sink", role="output")
_SCORES, _VALUES = [[1, 0]], [[3], [1]]


def derivation() -> Document:
    """A sink is one more key of value 0; it multiplies the output by sigmoid(lse(s) − b)."""
    return Document(
        "derivation",
        "sinks",
        ("Attention sinks, and softmax off by one",),
        _blocks(),
        hints=("symattn derive shift             without a sink all scores may be shifted",),
    )


def _weights(reader: Reader) -> Any:
    """The weights of the keys beside a sink of score b, as they are implemented."""
    return sink_weights(reader.arrays["s"][None, :], reader.arrays["b"][None, None])[0, :]


def _section(given: dict[str, str], example: bool = False) -> Section:
    index = {"j": "n_k", "ℓ": "n_k"}
    return Section(Glossary(given=given, index=index, defined={"p": _weights}, example=example))


def _blocks() -> tuple[Block, ...]:
    section = _section({"s": "n_k", "b": "", "m": "", "V": "n_k d_v"})
    extra, gate, shift = map(known, (theorems.sink_is_extra_key, theorems.sink_is_a_gate, theorems.sink_shift))
    o, value = name("o", role="output"), name("v", "j", role="value")
    through = nt.call("sigmoid", nt.call("log", Z) - _B)
    row, share = total("j", 1, N_K, p("j")), nt.Call(name("softmax", "j"), (s(),))
    return (
        hypotheses(
            (),
            ("one query with the scores ", s(), "; the sink has the score ", _B, ", a number that is learned"),
            section.let((equals(Z, total("ℓ", 1, N_K, E ** s("ℓ"))),)),
        ),
        Heading(("The weights",)),
        together(
            section.claim(equals(p("j"), E ** s("j") / (E**_B + Z)), "as they are computed"),
            section.claim(equals(p("j"), _shifted()), (Name("m"), " may be any number, also the largest score")),
            section.claim(equals(row, Z / (E**_B + Z), through), "numerators add up"),
            section.claim(relation(row, "<", 1), (E**_B, " is positive"), gaps={row: E**_B / (E**_B + Z)}),
        ),
        Heading(("One more key, of value 0",)),
        *extra.result(),
        extra.wrong(),
        Heading(("A gate",)),
        together(
            section.claim(equals(p("j"), through * share), "the sink keeps the proportions"),
            section.claim(
                equals(_O, o * nt.call("sigmoid", nt.call("lse", s()) - _B)),
                ("with ", equals(_O, total("j", 1, N_K, p("j") * value)), " and ",
                 equals(o, total("j", 1, N_K, share * value)), ", the output without a sink"),
            ),
        ),
        gate.wrong(),
        Paragraph(
            (
                "A row that finds nothing, with all scores far below ", _B,
                ", gives an output near 0 instead of a mean of values.",
            )
        ),
        Heading(("What may be shifted",)),
        *shift.result(),
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
    section = _section({"s": "n_k", "b": "", "V": "n_k"}, example=True)
    scores, values = exact(_SCORES), exact(_VALUES)
    numbers = equals(s(), entries(scores)), equals(name("V", role="value"), entries(values)), equals(_B, 0)
    given = section.let(("With ", numbers[0], ", ", numbers[1], " and ", numbers[2], ":"))
    value, o = name("v", "j", role="value"), name("o", role="output")
    beside, alone = (total("j", 1, N_K, w * value) for w in (p("j"), nt.Call(name("softmax", "j"), (s(),))))
    section.let((equals(_O, beside), equals(o, alone)))
    weights = sink_weights(scores, exact([[0]]))
    found, plain = (entries((w @ values)[0, 0]) for w in (weights, softmax(scores)))
    first = nt.call(name("softmax", 1), 1, 0, 0)
    return (
        Heading(("In numbers",)),
        Paragraph(given),
        together(
            section.claim(equals(p(), entries(weights)), "beside the sink"),
            section.claim(equals(p(1), first), "as softmax over three keys"),
            section.claim(equals(_O, beside, found), "the sink gives nothing"),
            section.claim(nt.Relation(o, (("=", alone), ("=", plain), ("≠", _O))), "without a sink"),
        ),
    )
