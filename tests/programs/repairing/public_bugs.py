"""Bugs of attention from public reports, each rewritten in NumPy as one function, with the fix of the report.

A line says the report, and the specification; then come the wrong line, the right line as the project fixed it, and the
edit that repairs it here, or why none does. ``PROGRAMS`` holds the right functions.
"""

from __future__ import annotations

from dataclasses import dataclass

SOFTMAX = """
def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
"""


@dataclass(frozen=True)
class PublicBug:
    """A bug: its report, what it is, the definition, the right function, and its lines before the fix."""

    report: str
    words: str
    definition: str
    right: str
    wrong_lines: tuple[tuple[str, str], ...]  # a line of the fix, and the line before it
    repaired: bool
    reason: str = ""  # if it is not repaired
    framework: str = ""  # if it is not NumPy
    layout: str = ""  # of inputs with more axes than their names tell

    @property
    def name(self) -> str:
        """The name of the function."""
        return "backward" if self.definition.startswith("Gradient") else "attention"

    @property
    def text(self) -> str:
        """The wrong program."""
        result = self.right
        for fixed, wrong in self.wrong_lines:
            assert result.count(fixed) == 1, fixed
            result = result.replace(fixed, wrong)
        return result


_WINDOW = """
def attention(q, k, v):
    n_q, n_k = len(q), len(k)
    past = n_k - n_q
    seen = np.tril(np.ones((n_q, n_k)), past)
    seen = np.triu(seen, past - 4 + 1)
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    s = np.where(seen > 0, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
_CACHE = """
def attention(q, k, v):
    n_q, n_k = q.shape[-2], k.shape[-2]
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    causal = np.tril(np.ones((n_q, n_k), dtype=bool), n_k - n_q)
    s = np.where(causal, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
_CHANNELS = """
def attention(q, k, v):
    h, t, d = q.shape
    c = h * d
    weights = q @ k.swapaxes(-2, -1) * np.float32(d**-0.5)
    weights = np.exp(weights - weights.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return weights @ v
"""
_CAP_AND_MASK = """
def attention(q, k, v, mask):
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    s = np.float32(5.0) * np.tanh(s / np.float32(5.0))
    s = s + mask
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
_GROUPS = (
    SOFTMAX
    + """

def attention(q, k, v):
    times = q.shape[0] // k.shape[0]
    k = np.repeat(k, times, axis=0)
    v = np.repeat(v, times, axis=0)
    s = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
    return softmax(s) @ v
"""
)
_SLOPES = """
def attention(q, k, v):
    heads, n_q, n_k = len(q), q.shape[1], k.shape[1]
    slopes = np.array([2.0 ** (-8.0 * (i + 1) / heads) for i in range(heads)], dtype=q.dtype)
    distance = np.arange(n_k) - np.arange(n_k - n_q, n_k)[:, None]
    s = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
    s = s + slopes[:, None, None] * distance.astype(q.dtype)
    s = np.where(distance > 0, -np.inf, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
_REVERSED = """
def attention(q, k, v, mask):
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    hidden = ~mask
    s[np.broadcast_to(hidden, s.shape)] = -np.inf
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
_CAP = """
def attention(q, k, v):
    cap = np.float32(5.0)
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    s = cap * np.tanh(s / cap)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
_CROSSED = """
def attention(q, k, v):
    half, n_q, n_k = q.shape[-1] // 2, len(q), len(k)
    rates = 10000.0 ** (-np.arange(half) / half)
    of_k = np.arange(n_k)[:, None] * rates
    of_q = of_k[n_k - n_q :]
    q_0, q_1, k_0, k_1 = q[:, :half], q[:, half:], k[:, :half], k[:, half:]
    first_q = q_0 * np.cos(of_q) - q_1 * np.sin(of_q)
    last_q = q_0 * np.sin(of_q) + q_1 * np.cos(of_q)
    first_k = k_0 * np.cos(of_k) - k_1 * np.sin(of_k)
    last_k = k_0 * np.sin(of_k) + k_1 * np.cos(of_k)
    q, k = np.concatenate([first_q, last_q], -1), np.concatenate([first_k, last_k], -1)
    s = q.astype(v.dtype) @ k.astype(v.dtype).T / np.float32(np.sqrt(q.shape[-1]))
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
_ONE_MORE = """
def attention(q, k, v):
    s = q @ k.T / np.float32(np.sqrt(q.shape[-1]))
    top = s.max(-1, keepdims=True)
    e = np.exp(s - top)
    total = np.exp(-top) + e.sum(-1, keepdims=True)
    return e / total @ v
"""

BUGS = (
    PublicBug("huggingface/transformers#26792", "a window one key too long", "Attention(causal=True, window=4)",
              _WINDOW, (("past - 4 + 1)", "past - 4)"),), True),
    PublicBug("tinygrad/tinygrad#15949", "a causal mask that ignores cached keys", "Attention(causal=True)",
              _CACHE, (("dtype=bool), n_k - n_q)", "dtype=bool))"),), True),
    PublicBug("karpathy/ng-video-lecture#6", "scores scaled by all channels, not those of a head",
              "Attention(heads=2)", _CHANNELS, (("np.float32(d**-0.5)", "np.float32(c**-0.5)"),), True),
    PublicBug("onnx/onnx#7865", "scores capped after the mask", "Attention(softcap=5.0, mask='additive')",
              _CAP_AND_MASK,
              (("    s = np.float32(5.0) * np.tanh(s / np.float32(5.0))\n    s = s + mask\n",
                "    s = s + mask\n    s = np.float32(5.0) * np.tanh(s / np.float32(5.0))\n"),), True),
    PublicBug("onnx/onnx#7274", "heads of keys and values tiled, not repeated", "Attention(heads=4, kv_heads=2)",
              _GROUPS,
              (("k = np.repeat(k, times, axis=0)", "k = np.tile(k, (times, 1, 1))"),
               ("v = np.repeat(v, times, axis=0)", "v = np.tile(v, (times, 1, 1))")), True),
    PublicBug("paiml/aprender#2143", "slopes of ALiBi that begin at 1",
              "Attention(causal=True, heads=4, position=Alibi())", _SLOPES, (("(i + 1) / heads", "i / heads"),), True),
    PublicBug("lucidrains/halonet-pytorch#4", "a boolean mask the other way round", "Attention(mask='boolean')",
              _REVERSED, (("hidden = ~mask", "hidden = mask"),), True),
    PublicBug("unslothai/unsloth-zoo#593", "a soft cap that multiplies by the scores", "Attention(softcap=5.0)",
              _CAP, (("s = cap * np.tanh", "s = s * np.tanh"),), True),
    PublicBug("hpcaitech/ColossalAI#6428", "halves of rotated queries and keys exchanged",
              "Attention(position=Rotary())", _CROSSED,
              (("last_q = q_0 * np.sin(of_q) + q_1 * np.cos(of_q)",
                "last_q = k_0 * np.sin(of_k) + k_1 * np.cos(of_k)"),
               ("first_k = k_0 * np.cos(of_k) - k_1 * np.sin(of_k)",
                "first_k = q_0 * np.cos(of_q) - q_1 * np.sin(of_q)")),
              False, "eight names in two statements"),
    PublicBug("kyegomez/AttentionIsOFFByOne#5", "one added to a divisor of shifted exponentials",
              "Attention(sink='zero')", _ONE_MORE, (("np.exp(-top) + e.sum", "1 + e.sum"),), True),
)  # fmt: skip
