"""What Coq is asked of a theorem: its equations, its bounds and the inferences from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from symattn.proof.coq.inferences import inferred
from symattn.proof.coq.printing import identifier
from symattn.proof.coq.writing import Lemma, bound, lemma


def lemmas(theorem: str, certificates: Sequence[Mapping[str, Any]], regroup: bool = False) -> list[Lemma]:
    """All equations, signs and inferences of certificates; with ``regroup`` there are hints to put sums in order."""
    every = [(c, e) for c in certificates for e in c.get("equations", ())]
    signs = [(c, e) for c in certificates if c["kind"] == "sign" for e in c["conclusions"] or (c,)]
    others = [
        (c, e) for c in certificates if c["kind"] not in ("certificate", "sign") for e in c.get("conclusions", (c,))
    ]
    many = len(every) + len(signs) + len(others)
    names = [identifier(theorem) + ("" if many == 1 else f"_{n}") for n in range(1, many + 1)]
    last = len(every) + len(signs)
    equations = [lemma(name, e, c["rules"], c["positive"], regroup) for name, (c, e) in zip(names, every, strict=False)]
    bounds = [bound(name, c, e, regroup) for name, (c, e) in zip(names[len(every) : last], signs, strict=True)]
    return [*equations, *bounds, *[inferred(name, *x, regroup) for name, x in zip(names[last:], others, strict=True)]]
