"""A gate behind the output projection: legal programs stay below the bound, and rougher ones do not."""

from typing import Any

import numpy as np
import pytest

from symattn import Attention, Precision
from symattn.bounds.judge import expected
from tests.refusals import refuses
from tests.verification.legal import Row

Array = np.ndarray
SPEC = Attention(heads=2, output_gate=True, output_gate_place="after")
LATE, EARLY = SPEC, Attention(heads=2, output_gate=True)


class GatedRow(Row):
    """The output of one token that attends to itself: its heads are its values, which projections leave as they are."""

    def gated(self, heads: Array, given: dict[str, Array]) -> Array:
        return np.array([self._entry(heads, given, column) for column in range(given["w_o"].shape[1])])

    def _entry(self, heads: Array, given: dict[str, Array], column: int) -> float:
        products = [self.fl(a * w) for a, w in zip(heads, given["w_o"][:, column], strict=True)]
        total = self.total([*products, float(given["b_o"][column])])
        y = self.fl(total * self._share(float(given["gate"][0, column])))
        return float(y * (1 + self.out_u * self.sign(y, 0)))

    def _share(self, gate: float) -> float:
        """σ as a quotient, or as half a tanh and a half."""
        if self.rng.random() < 0.5:
            return self.fl(1 / self.fl(1 + self.exp(-gate)))
        return self.fl(self.fl(1 + np.tanh(gate / 2) * (1 + self.eps * self.sign(1.0, 0))) / 2)


def share(precision: str, cases: int, rougher: float = 1.0) -> float:
    """The largest share of the bound that a legal program reaches."""
    p, rng, found = Precision.of(precision), np.random.default_rng(3), 0.0
    for _ in range(cases):
        given = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
        given = {name: p.input.rounded(a) for name, a in given.items()} | {f"w_{role}": np.eye(4) for role in "qkv"}
        right = expected(SPEC, given, p)
        row = GatedRow(p, rng).rougher(rougher)
        assert isinstance(row, GatedRow)
        got = row.gated(given["x"][0], given)[None]
        found = max(found, float(right.ratios(got).max()))
    return found


SHAPES = {"x": (1, 4), "w_o": (4, 3), "b_o": (3,), "gate": (1, 3)}


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_no_legal_program_exceeds_the_bound(precision: str) -> None:
    assert 0.05 < share(precision, 30) <= 1


def test_a_rougher_program_exceeds_it() -> None:
    assert share("float32", 10, rougher=30.0) > 1


def test_a_gate_of_one_number_commutes_with_the_projection() -> None:
    """σ of one number for each query may be multiplied on either side, unless the output has a bias."""
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 4), "w_q": (4, 4), "w_k": (4, 4), "w_v": (4, 4), "w_o": (4, 3), "gate": (3, 1)}
    given = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    heads = given | {"gate": np.stack([given["gate"]] * 2)}
    assert np.abs(LATE(**given) - EARLY(**heads)).max() < 1e-14
    bias = rng.standard_normal(3)
    assert np.abs(LATE(**given, b_o=bias) - EARLY(**heads, b_o=bias)).max() > 0.1


def test_the_place_belongs_to_a_gate_of_projected_tokens() -> None:
    refuses(Attention, output_gate_place="after", says="output_gate_place belongs to output_gate")
    q = np.ones((2, 3, 4))
    refuses(SPEC, q, q, q, gate=np.ones((3, 4)), says="needs the tokens x and w_o")
    tokens: dict[str, Any] = {"x": np.ones((3, 4)), **{f"w_{role}": np.eye(4) for role in "qkv"}}
    refuses(SPEC, **tokens, gate=np.ones((3, 4)), says="needs the tokens x and w_o")
    refuses(SPEC, **tokens, w_o=np.ones((4, 2)), gate=np.ones((3, 4)), says="differs")
