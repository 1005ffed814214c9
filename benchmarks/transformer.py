"""A two-layer decoder-only Transformer with rational weights: its logits to 50 proven digits, and NumPy beside them.

Prints how many bits the balls took, how long they took as a ratio to NumPy's float64, and how far NumPy's float32 and
float64 are from the proven logits, in units of the last place of each logit, beside what rounding may do at most (the
kind ``rounded``; bounds grow from layer to layer). Command: ``python benchmarks/transformer.py``
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import flint
import numpy as np

from symattn import Attention, Undecided
from symattn.arrays import kind
from symattn.arrays.ball import precision
from symattn.arrays.rounded import rounded
from symattn.attention.layers.block import Block
from symattn.attention.layers.evaluation import Evaluation, enclose, lifted
from symattn.attention.layers.transformer import Transformer
from symattn.attention.positions.position_fields import Rotary

DIGITS = 50
N, VOCABULARY, D_MODEL, D_FF, HEADS, KV_HEADS = 8, 17, 16, 40, 4, 2

_GPT = Block(attention=Attention(heads=HEADS, causal=True), activation="gelu_tanh")
_ROTARY = Attention(heads=HEADS, kv_heads=KV_HEADS, causal=True, position=Rotary())
_LLAMA = Block(attention=_ROTARY, norm="rms", activation="silu", gated=True)
MODELS: dict[str, Transformer] = {
    "like GPT-2: LayerNorm, GELU, a table of positions": Transformer(
        decoder=(_GPT, _GPT), positions="given", tied=True
    ),
    "like Llama: RMSNorm, SwiGLU, rotary, shared heads": Transformer(
        decoder=(_LLAMA, _LLAMA), norm="rms"
    ),
}


def weights(model: Transformer, seed: int = 0) -> dict[str, np.ndarray]:
    """Every parameter, in 256ths, which float32 holds. Matrices are as large as after initialisation."""
    draw = np.random.default_rng(seed)

    def normal(*shape: int, size: float = 1.0, mean: float = 0.0) -> np.ndarray:
        return np.asarray(np.rint((draw.standard_normal(shape) * size + mean) * 256) / 256)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return normal(rows, columns, size=rows**-0.5)

    found = {
        "embedding": normal(VOCABULARY, D_MODEL),
        "decoder_norm.gain": normal(D_MODEL, size=0.1, mean=1),
    }
    if model.positions:
        found["position_embedding"] = normal(N, D_MODEL, size=0.1)
    if not model.tied:
        found["unembedding"] = matrix(D_MODEL, VOCABULARY)
    for i, block in enumerate(model.decoder):
        narrow = D_MODEL * block.attention.key_heads // HEADS
        own = {"w_q": matrix(D_MODEL, D_MODEL), "w_o": matrix(D_MODEL, D_MODEL)}
        own |= {"w_k": matrix(D_MODEL, narrow), "w_v": matrix(D_MODEL, narrow)}
        mlp = {"w_up": matrix(D_MODEL, D_FF), "w_down": matrix(D_FF, D_MODEL)}
        mlp |= (
            {"w_gate": matrix(D_MODEL, D_FF)} if block.gated else {"b_up": normal(D_FF, size=0.1)}
        )
        for part, arrays in (("attention", own), ("mlp", mlp)):
            found |= {f"decoder.{i}.{part}.{n}": a for n, a in arrays.items()}
            found[f"decoder.{i}.{part}_norm.gain"] = normal(D_MODEL, size=0.1, mean=1)
    return found


def seconds(work: Callable[[], Any], runs: int) -> float:
    """The shortest time of several runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def ulps(got: np.ndarray, proven: Evaluation) -> np.ndarray:
    """|computed − proven| in units of the last place of the proven logit, in the format of what was computed."""
    with precision(256):
        gaps = [
            abs(flint.arb(float(g)) - x)
            for g, x in zip(got.flat, proven.output.entries.flat, strict=True)
        ]
    spacing = np.spacing(np.abs(proven.output.midpoints()).astype(got.dtype)).astype(np.float64)
    errors = np.array([float(x.upper()) for x in gaps]).reshape(got.shape)
    return np.asarray(errors / spacing)


def compare(title: str, model: Transformer) -> None:
    """One model: digits, times, errors."""
    tokens, given = np.random.default_rng(1).integers(0, VOCABULARY, N), weights(model)
    inputs = {"tokens": tokens, **given}
    proven = enclose(model, inputs, DIGITS)
    slow, fast = (
        seconds(lambda: enclose(model, inputs, DIGITS), 3),
        seconds(lambda: model(tokens, **given), 21),
    )
    print(f"{title}\n  {proven.evidence}")
    print(f"  first logit {proven.digits[0, 0]}")
    print(f"  time {slow:.2f} s, NumPy float64 {fast * 1e3:.2f} ms: ratio {slow / fast:.0f}")
    for dtype in ("float64", "float32"):
        got = model(**lifted(kind(dtype), inputs))
        errors = ulps(got, proven)
        words = f"largest error {errors.max():.0f} ulp, median {np.median(errors):.1f} ulp"
        print(f"  NumPy {dtype}: {words}; {legal(model, inputs, got)}")


def legal(model: Transformer, inputs: dict[str, Any], got: np.ndarray) -> str:
    """What the bound on rounding says of a computed output."""
    nothing = "the bound of the whole says nothing"
    try:
        bound = model(**lifted(rounded(str(got.dtype)), inputs))
    except Undecided:
        return nothing
    if not np.isfinite(bound.bound).all():
        return nothing
    if not bound.within(got).all():
        raise AssertionError("NumPy is beyond the bound on rounding")
    spacing = np.spacing(np.abs(got)).astype(np.float64)
    return f"rounding may do {np.median(bound.bound / spacing):.1g} ulp"


def main() -> None:
    sizes = f"n = {N}, vocabulary {VOCABULARY}, d_model = {D_MODEL}, d_ff = {D_FF}, {HEADS} heads"
    print(f"{sizes}, 2 layers, {DIGITS} digits")
    for title, model in MODELS.items():
        compare(title, model)


if __name__ == "__main__":
    main()
