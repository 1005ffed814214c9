"""Parts that mix tokens, in tiny models of torch: right causal ones, and the same with a leak of later tokens."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

WIDTH, CHUNK = 16, 4
Mix = Callable[[Any], Any]


class Part(nn.Module):
    """A projection, a mix of tokens (b, n, d), and a projection."""

    def __init__(self, mix: Mix) -> None:
        super().__init__()
        self.mix, self.into, self.out = mix, nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.out(self.mix(self.into(x)))


class Layer(nn.Module):
    """A part that mixes tokens and one that does not, each added to the tokens."""

    def __init__(self, mixer: nn.Module, rest: nn.Module) -> None:
        super().__init__()
        self.norm, self.mixer, self.rest = nn.LayerNorm(WIDTH), mixer, rest

    def forward(self, x: Any) -> Any:
        x = x + self.mixer(self.norm(x))
        return x + self.rest(x)


class Model(nn.Module):
    """Two layers: one of attention, and one of the parts that are given."""

    def __init__(self, mixer: nn.Module, rest: nn.Module | None = None) -> None:
        super().__init__()
        self.embed, plain = nn.Embedding(50, WIDTH), Part(attention)
        self.layers = nn.ModuleList([Layer(plain, Part(nn.functional.silu)), Layer(mixer, rest or Part(torch.tanh))])
        self.head = nn.Linear(WIDTH, 50)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def attention(x: Any, causal: bool = True, window: int | None = None) -> Any:
    n = x.shape[1]
    seen = torch.ones(n, n, dtype=torch.bool)
    seen = seen.tril() if causal else seen
    seen = seen if window is None else seen.triu(1 - window)
    return nn.functional.scaled_dot_product_attention(x, x.roll(1, -1), x.flip(-1), attn_mask=seen)


def convolved(x: Any, late: int = 0) -> Any:
    """Return the mean of three tokens, the last of which is ``late`` tokens after the output's own."""
    padded = nn.functional.pad(x, (0, 0, 2 - late, late))
    return padded.unfold(1, 3, 1).mean(-1)


def decayed(x: Any, next_one: bool = False) -> Any:
    """Return the state of a recurrence that each token's own gate decays, or that of the next token."""
    gates, states = (4 + x.mean(-1, keepdim=True)).sigmoid(), [torch.zeros_like(x[:, 0])]
    gates = gates.roll(-1, 1) if next_one else gates
    for t in range(x.shape[1]):
        states.append(gates[:, t] * states[-1] + x[:, t])
    return torch.stack(states[1:], 1)


def chunked(x: Any, masked: bool = True) -> Any:
    """Return sums of earlier tokens, chunk by chunk: within a chunk by a matrix of segment sums, masked or not."""
    result, before = [], torch.zeros_like(x[:, :1])
    for part in x.split(CHUNK, 1):
        logs = -part.mean(-1).abs().cumsum(1)
        weights = (-(logs[:, :, None] - logs[:, None, :]).abs()).exp()
        weights = weights.tril() if masked else weights
        result.append(weights @ part + before)
        before = before + part.sum(1, keepdim=True)
    return torch.cat(result, 1)


def by_fourier(x: Any) -> Any:
    """Return a long causal convolution by Fourier transforms, whose rounding reaches all tokens."""
    n = x.shape[1]
    filters = torch.rand(n, 1, generator=torch.Generator().manual_seed(3))
    product = torch.fft.rfft(x, 2 * n, dim=1) * torch.fft.rfft(filters, 2 * n, dim=0)
    return torch.fft.irfft(product, 2 * n, dim=1)[:, :n].to(x.dtype)


def normed_over_tokens(x: Any) -> Any:
    return x / x.square().mean((1, 2), keepdim=True).sqrt()


def shifted(x: Any) -> Any:
    """Return tokens mixed with the one before."""
    return x + nn.functional.pad(x, (0, 0, 1, 0))[:, :-1]


def of_last(x: Any) -> Any:
    return x + x[:, -1:].mean()


def across_items(x: Any) -> Any:
    return attention(x) + x.mean(0, keepdim=True)


class Experts(nn.Module):
    """Two of four experts for each token, by a router that sees the token, or the mean of all as well."""

    def __init__(self, sees_mean: bool = False) -> None:
        super().__init__()
        self.router, self.sees_mean = nn.Linear(WIDTH, 4), sees_mean
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Any) -> Any:
        asked = x - x.mean(1, keepdim=True) if self.sees_mean else x
        weights, chosen = self.router(asked).softmax(-1).topk(2)
        tokens, result = x.flatten(0, 1), torch.zeros_like(x.flatten(0, 1))
        for e, expert in enumerate(self.experts):
            at, place = (chosen.flatten(0, 1) == e).nonzero(as_tuple=True)
            result[at] += weights.flatten(0, 1)[at, place, None] * expert(tokens[at])
        return result.view_as(x)


#: A right mix, and in words what its outputs depend on.
RIGHT: dict[str, tuple[Mix, str]] = {
    "attention": (attention, "all earlier tokens"),
    "window": (lambda x: attention(x, window=5), "5 tokens"),
    "convolution": (convolved, "3 tokens"),
    "recurrence": (decayed, "all earlier tokens"),
    "chunks": (chunked, "all earlier tokens"),
    "fourier": (by_fourier, "all earlier tokens"),
    "shift": (shifted, "2 tokens"),
}
#: A mix with a leak.
LEAKING: dict[str, Mix] = {
    "lost mask": lambda x: attention(x, causal=False),
    "convolution one token late": lambda x: convolved(x, late=1),
    "decay of the next token": lambda x: decayed(x, next_one=True),
    "unmasked segment sum": lambda x: chunked(x, masked=False),
    "norm over tokens": normed_over_tokens,
    "last token": of_last,
    "other items": across_items,
}
