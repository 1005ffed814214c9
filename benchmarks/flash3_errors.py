"""FlashAttention-3's table of numerical errors, by replay: what each way to store arrays costs, beside its bounds.

Entries of q, k and v are from N(0, 1) + N(0, 100) · Bernoulli(0.001), as there; the sizes are ours, since the paper
gives none: 4 heads, 1024 queries and keys, width 128. Each row is the definition with what its arithmetic stores stored
(``verification.arithmetic.contracts.replay``), and no kernel. ``error`` is the root mean square of its output less
exact attention of inputs in float16; ``arithmetic`` is that of the same less exact attention of the inputs as they are
stored, to which the two bounds belong: the medians of the sharp tolerances of elements (α = 10⁻⁹ for all) and of the
worst case.

In FP8 (e4m3) the largest number of a tensor, or of a block of 128 tokens of a head, becomes the largest of the format;
incoherent processing multiplies queries and keys by a Hadamard matrix with random signs first, over √128.

Published: Shah, Bikshandi, Zhang, Thakkar, Ramani, Dao, FlashAttention-3: Fast and Accurate Attention with Asynchrony
and Low-precision (arXiv 2407.08608, 2024), table 3 and section 4.3, which has the baselines: softmax in float16, scaled
per tensor in FP8.

Command: ``python -m benchmarks.flash3_errors``
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from symattn import Attention, Precision
from symattn.arrays.formats import Format
from symattn.bounds.contracts import Contract, replay
from symattn.bounds.sharp.elements import tolerances
from symattn.bounds.sharp.limits import ALPHA, Stores
from symattn.bounds.worst_case import bound
from symattn.verification.arithmetic.contract_presets import PRESETS, REPLAYED

HEADS, TOKENS, DIGITS, BLOCK = 4, 1024, 7, 128
WIDTH = 2**DIGITS
FP16, FP8 = Format("float16"), Format("float8_e4m3fn")
SPEC = Attention(heads=HEADS)
Array = np.ndarray
Inputs = dict[str, Array]

EAGER = Contract(FP16, ("scores", "scaled"), "normalised")
FUSED = PRESETS["FlashAttention 2 and 3"].contract(FP16, BLOCK)
FUSED8 = REPLAYED["FlashAttention 3 in FP8"].contract(FP8, BLOCK, FP16)


@dataclass(frozen=True)
class Row:
    """One column of the paper's table: what is stored, how inputs are brought into FP8, and what was published."""

    name: str
    contract: Contract
    published: str
    blocks: int = 0  # tokens of a block that has a factor; 0: inputs stay in float16
    incoherent: bool = False

    def stored(self, given: Inputs) -> Inputs:
        """The inputs as they are stored, times their factors."""
        if not self.blocks:
            return given
        if self.incoherent:
            signs = np.random.default_rng(1).choice([-1.0, 1.0], WIDTH)
            turned = (
                reduce(np.kron, [np.array([[1.0, 1.0], [1.0, -1.0]])] * DIGITS)
                * signs[:, None]
                / np.sqrt(WIDTH)
            )
            given = given | {name: given[name] @ turned for name in "qk"}
        return {name: _quantised(a, self.blocks) for name, a in given.items()}

    def bounds(self, inputs: Inputs) -> tuple[float, float]:
        """The medians of the sharp tolerances and of the worst case."""
        eager = self.contract is EAGER
        times = self.contract.times
        how = (
            Stores(FP16, 2)
            if eager
            else Stores(self.contract.format, 0, self.contract.output, times)
        )
        precision = Precision.of("fp16", "eager" if eager else "fused", "float32")
        if how.output is not None:
            precision = replace(precision, stored=FP8, normalised=False, lse=False, times=times)
        sharp, worst = (
            tolerances(SPEC, inputs, how, ALPHA)[1],
            bound(SPEC, inputs, precision).allowed,
        )
        return float(np.median(sharp)), float(np.median(worst))


ROWS = (
    Row("baseline FP16", EAGER, "3.2e-4"),
    Row("FlashAttention-3 FP16", FUSED, "1.9e-4"),
    Row("baseline FP8", EAGER, "2.4e-2", HEADS * TOKENS),
    Row("FlashAttention-3 FP8", FUSED8, "9.1e-3", BLOCK, incoherent=True),
    Row("  no block quantisation", FUSED8, "9.3e-3", HEADS * TOKENS, incoherent=True),
    Row("  no incoherent processing", FUSED8, "2.4e-2", BLOCK),
)


def drawn(seed: int = 0) -> Inputs:
    """q, k and v in float16, some entries of which are far off."""
    rng = np.random.default_rng(seed)
    shape = (3, HEADS, TOKENS, WIDTH)
    made = rng.standard_normal(shape) + 10 * rng.standard_normal(shape) * (
        rng.random(shape) < 0.001
    )
    return dict(zip("qkv", FP16.rounded(made), strict=True))


def _quantised(a: Array, tokens: int) -> Array:
    """Rounded to FP8 with a factor for so many rows of all heads, one after another."""
    rows = a.reshape(-1, tokens * WIDTH)
    factors = (
        (np.abs(rows).max(axis=1, keepdims=True) / float(FP8.largest))
        .astype(np.float32)
        .astype(np.float64)
    )
    return np.asarray((FP8.rounded(rows / factors) * factors).reshape(a.shape))


def _rms(a: Array) -> float:
    return float(np.sqrt(np.square(a).mean()))


def main() -> None:
    given = drawn()
    exact = SPEC(**given)
    columns = ("published", "error", "arithmetic", "sharp", "worst case")
    print(f"{'':27}" + "".join(f"{c:>12}" for c in columns))
    for row in ROWS:
        inputs = row.stored(given)
        out = replay(row.contract, SPEC, inputs)
        sharp, worst = row.bounds(inputs)
        found = (_rms(out - exact), _rms(out - SPEC(**inputs)), sharp, worst)
        print(
            f"{row.name:27}{row.published:>12}" + "".join(f"{x:12.1e}" for x in found), flush=True
        )


if __name__ == "__main__":
    main()
