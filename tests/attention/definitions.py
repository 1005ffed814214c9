"""Every form of attention that a specification can say, with inputs whose sizes all differ."""

from fractions import Fraction

import numpy as np

from symattn import Attention
from tests.attention.definition import Definition
from tests.attention.definitions_positions import POSITIONS

N_Q, N_K, D_K, D_V, D_MODEL, H = 3, 4, 2, 5, 6, 2
_RNG = np.random.default_rng(11)


def data(*shape: int) -> np.ndarray:
    """Quarters between −2 and 2: exact in every format but fp8's smallest."""
    return _RNG.integers(-6, 7, shape) / 4


ALLOWED = np.array([[True, False, True, True], [False, True, True, False], [True, True, False, True]])
ADDED = np.where(ALLOWED, np.array([0.5, -1, 0, 0.25]), -np.inf)
KEEP = np.array([True, True, False, True])
NO_ROW = ALLOWED & np.array([[True], [False], [True]])


def _qkv(*batch: int) -> dict[str, np.ndarray]:
    return {"q": data(*batch, N_Q, D_K), "k": data(*batch, N_K, D_K), "v": data(*batch, N_K, D_V)}


def _projected(cross: bool, bias: bool, out: bool, h: int = 1, *batch: int) -> dict[str, np.ndarray]:
    found = {"x": data(*batch, N_Q, D_MODEL)} | ({"y": data(*batch, N_K, D_MODEL + 1)} if cross else {})
    source = D_MODEL + cross
    found |= {"w_q": data(D_MODEL, h * D_K), "w_k": data(source, h * D_K), "w_v": data(source, h * D_V)}
    found = {n: a / 8 if n[0] == "w" else a / 2 for n, a in found.items()}
    if bias:
        found |= {"b_q": data(h * D_K), "b_k": data(h * D_K), "b_v": data(h * D_V)}
    if out:
        found |= {"w_o": data(h * D_V, D_MODEL) / 4} | ({"b_o": data(D_MODEL)} if bias else {})
    return found


def _define(spec: Attention, inputs: dict[str, np.ndarray], **masks: np.ndarray) -> Definition:
    return Definition(spec, inputs | masks)


DEFINITIONS: dict[str, Definition] = {
    "plain": _define(Attention(), _qkv()),
    "unscaled": _define(Attention(scale=1), _qkv()),
    "scale 1/3": _define(Attention(scale=Fraction(1, 3)), _qkv()),
    "scale 0.25": _define(Attention(scale=0.25), _qkv()),
    "not stabilised": _define(Attention(stabilised=False), _qkv()),
    "causal": _define(Attention(causal=True), _qkv()),
    "causal, top-left": _define(Attention(causal=True, alignment="top-left"), _qkv()),
    "boolean mask": _define(Attention(mask="boolean"), _qkv(), mask=ALLOWED),
    "additive mask": _define(Attention(mask="additive"), _qkv(), mask=ADDED),
    "a row fully masked": _define(Attention(mask="boolean"), _qkv(), mask=NO_ROW),
    "padding": _define(Attention(padding=True), _qkv(), keep=KEEP),
    "all masks": _define(Attention(causal=True, padding=True, mask="additive"), _qkv(), mask=ADDED, keep=KEEP),
    "masked, not stabilised": _define(Attention(causal=True, stabilised=False), _qkv()),
    "batch": _define(Attention(causal=True), _qkv(2)),
    "batch, mask for each": _define(Attention(mask="boolean"), _qkv(2), mask=np.stack([ALLOWED, ALLOWED[::-1]])),
    "batch, padding for each": _define(Attention(padding=True), _qkv(2), keep=np.stack([KEEP, KEEP[::-1]])),
    "parameter-free": _define(Attention(), {"x": data(N_Q, D_K)}),
    "parameter-free, cross": _define(Attention(), {"x": data(N_Q, D_K), "y": data(N_K, D_K)}),
    "self": _define(Attention(), _projected(False, False, False)),
    "self with biases": _define(Attention(), _projected(False, True, True)),
    "cross": _define(Attention(), _projected(True, False, True)),
    "heads": _define(Attention(heads=H), _projected(False, False, True, H)),
    "heads without w_o": _define(Attention(heads=H), _projected(True, False, False, H)),
    "heads with biases": _define(Attention(heads=H, causal=True), _projected(False, True, True, H)),
    "heads, cross, batch": _define(Attention(heads=H), _projected(True, True, True, H, 2)),
    "heads, batch, padding": _define(
        Attention(heads=H, padding=True), _projected(True, True, True, H, 2), keep=np.stack([KEEP, ~KEEP])
    ),
    "heads, batch, mask for each": _define(
        Attention(heads=H, mask="additive"), _projected(True, True, True, H, 2), mask=np.stack([ADDED, ADDED[::-1]])
    ),
    "heads, mask for each head": _define(
        Attention(heads=H, mask="boolean"), _projected(True, False, True, H), mask=np.stack([ALLOWED, NO_ROW])
    ),
    **POSITIONS,
}
