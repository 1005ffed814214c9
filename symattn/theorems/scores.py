"""Score variants: additive and distance scores, normalised queries and keys, caps, sinks, sparse weights, energies."""

from __future__ import annotations

from dataclasses import replace

from symattn.attention.scores import additive_scores, distance_scores, dot_scores
from symattn.attention.softmax import sink_weights
from symattn.attention.softmax import softmax as soft
from symattn.attention.softmax import sparsemax as sparse_weights
from symattn.proof.relations.glossary import Glossary
from symattn.proof.rules import Substitution
from symattn.proof.statement import Declared
from symattn.theorems.letters import rows, squares
from symattn.theorems.texts import of_file

LETTERS = Glossary(
    {"s": "n_k", "t": "n_k", "b": "", "V": "n_k d_v", "K": "n_k d_k", "q": "d_k"},
    index={"j": "n_k", "l": "n_k"},
    sharp="attained",
).where("p = softmax(s)")


SAME_LENGTHS = Substitution(
    Declared({"q": "n d", "k": "m d", "c": "", "h": ""}),
    lambda q, k, c: (soft(c * dot_scores(q, k)), soft(c * distance_scores(q, k))),
    (lambda q, k, c, y: soft(c * (distance_scores(q, k) + y.mT))),
    "y",
    "m 1",
    lambda k: squares(k) / 2,
    lambda h: h,
    lambda q, k, c: (soft(c * dot_scores(q, k)), soft(c * distance_scores(q, k))),
)
"""With ‖k_j‖²/2 = h for every key: for any keys the two differ by c ‖k_j‖²/2 within the softmax."""


THEOREMS = of_file(
    "scores",
    {
        "": LETTERS,
        "additive": LETTERS.also(
            defined={"A": lambda reader: additive_scores(*map(reader.array, "QKWUv"))}
        ),
        "sink-is-extra-key": LETTERS.also(
            {"w": "1 d_v"},
            defined={
                "V₊": lambda reader: rows(reader.array("V"), 0 * reader.array("w")),
                "V_w": lambda reader: rows(reader.array("V"), reader.array("w")),
            },
            rows=True,
        ),
        "sink-shift": LETTERS.also(
            {"t": ""},
            functions={
                "f": lambda reader, x, b: replace(x, array=sink_weights(x.array, b.array[None]))
            },
        ),
        "sparse": Glossary(
            functions={"sparsemax": lambda reader, x: replace(x, array=sparse_weights(x.array))}
        ),
    },
    globals(),
)
