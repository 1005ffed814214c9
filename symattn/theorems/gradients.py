"""Gradients: of softmax, of attention as backward passes compute them, and of its steps."""

from __future__ import annotations

from symattn.attention.gradients.attention import Gradients, backward
from symattn.attention.norms import layer_norm, rms_norm
from symattn.proof.relations.glossary import Glossary
from symattn.proof.relations.part_values import Value
from symattn.proof.relations.reader import Reader
from symattn.theorems.letters import (
    ATTENDING,
    CAUSAL,
    eye,
    positions,
    rotation_matrix,
    scaled_scores,
)
from symattn.theorems.letters import weights as weights_of
from symattn.theorems.texts import of_file

_ROW = Glossary(
    {"s": "m", "g": "m"},
    sizes={"m": "m", "n_k": "m"},
    index={"i": "m", "j": "m", "l": "m"},
).where("p = softmax(s)")


_FORWARD = ATTENDING.also(loss="ℓ").where("ℓ = Σ_{i=1}^{n_q} Σ_{c=1}^{d_v} G_i_c O_i_c")
LETTERS = _FORWARD.also().where("dP = G Vᵀ", "dS_ij = p_ij (dP_ij − Σ_{l=1}^{n_k} p_il dP_il)")


# -- the backward pass ------------------------------------------------------------------------------------------------
def _each_head(reader: Reader) -> Gradients:
    """Return the gradients that each query head sends to the head of keys and values that it reads."""
    q, k, v, g = map(reader.array, "QKVG")
    weights = weights_of(scaled_scores(q, k[:, None]))
    results = backward(q, k[:, None], v[:, None], weights, g)
    return Gradients(*(Value(x, ("h", "t"), 2) for x in results))


THEOREMS = of_file(
    "gradients",
    {
        "": LETTERS,
        "row": _ROW,
        "forward": _FORWARD,
        "backward": LETTERS,
        "attending": ATTENDING,
        "step": ATTENDING.but(*ATTENDING.given, *ATTENDING.defined),
        "norms": Glossary(
            sizes={},
            defined={"I": eye("d")},
            functions={"RMS": lambda _, x: x.on(rms_norm), "LN": lambda _, x: x.on(layer_norm)},
        ),
        "backward-rotary": positions(
            {"x_p": "f*2", "g_p": "f*2"},
            "p",
            {"R": rotation_matrix},
            loss="ℓ",
        ).where("ℓ = R_p x_p·g_p"),
        "each head": Glossary(
            sizes={},
            defined={
                "dK_ht": lambda reader: _each_head(reader).k,
                "dV_ht": lambda reader: _each_head(reader).v,
            },
        ),
        "causal": Glossary(
            sizes={}, defined={"P": lambda r: CAUSAL.trace(*map(r.array, "QKV"))["weights"]}
        ),
    },
    globals(),
)
