"""Which attention is meant, and letters for its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from symattn.arrays.special import FORBIDDEN
from symattn.arrays.symbolic import Symbolic
from symattn.attention.spec import Attention
from symattn.derivations.parameters import number, whole
from symattn.errors import InputError

_MOST = {"tokens": 6, "keys": 6, "heads": 4, "dk": 8, "dv": 8, "dmodel": 16}


@dataclass(frozen=True)
class Request:
    """The specification and the sizes that were asked for."""

    spec: Attention
    n_q: int
    n_k: int
    d_k: int
    d_v: int
    d_model: int | None
    cross: bool = False
    bias: bool = False

    @property
    def projected(self) -> bool:
        """Whether queries, keys and values come from tokens."""
        return self.d_model is not None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every input; d_k and d_v are those of one head."""
        if self.d_model is None:
            return {"q": (self.n_q, self.d_k), "k": (self.n_k, self.d_k), "v": (self.n_k, self.d_v), **self._masks()}
        h, d = self.spec.heads, self.d_model
        tokens = {"x": (self.n_q, d), "y": (self.n_k, d)} if self.cross else {"x": (self.n_q, d)}
        weights = {"w_q": (d, h * self.d_k), "w_k": (d, h * self.d_k), "w_v": (d, h * self.d_v)}
        biases = {"b_" + w[2:]: shape[1:] for w, shape in weights.items()} if self.bias else {}
        last = {"w_o": (h * self.d_v, d)} | ({"b_o": (d,)} if self.bias else {}) if h > 1 else {}
        return {**tokens, **weights, **biases, **last, **self._masks()}

    def _masks(self) -> dict[str, tuple[int, ...]]:
        mask = {"mask": (self.n_q, self.n_k)} if self.spec.mask else {}
        return mask | ({"keep": (self.n_k,)} if self.spec.padding else {})

    def inputs(self) -> dict[str, Any]:
        """Letters for every input; what is true or false is an example."""
        made: dict[str, Any] = {}
        for name, shape in self.shapes().items():
            if name == "keep":
                made[name] = np.arange(self.n_k) < max(1, self.n_k - 1)
            elif name == "mask" and self.spec.mask == "boolean":
                made[name] = self.example_mask()
            else:
                made[name] = Symbolic.letters(stem(name), *shape)
        if self.spec.mask == "additive":
            made["mask"] = _with_forbidden(made["mask"], self.example_mask())
        return made

    def example_mask(self) -> np.ndarray:
        """Every query may see its own key and those two, four, … further."""
        i, j = np.arange(self.n_q)[:, None], np.arange(self.n_k)[None, :]
        pattern: np.ndarray = (i - j) % 2 == 0
        return pattern

    def allowed(self) -> np.ndarray:
        """Which key each query may attend to, by the conditions themselves."""
        i, j = np.arange(self.n_q)[:, None], np.arange(self.n_k)[None, :]
        offset = self.n_k - self.n_q if self.spec.alignment == "bottom-right" else 0
        seen = np.ones((self.n_q, self.n_k), dtype=bool)
        if self.spec.causal:
            seen &= j <= i + offset
        if self.spec.mask:
            seen &= self.example_mask()
        return seen & (j < max(1, self.n_k - 1)) if self.spec.padding else seen


def stem(name: str) -> str:
    """The letter of an array's entries: w_q becomes wq."""
    return name.replace("_", "").replace("mask", "m")


def _with_forbidden(mask: Symbolic, allowed: np.ndarray) -> Symbolic:
    entries = mask.entries.copy()
    entries[~allowed] = FORBIDDEN
    return Symbolic(entries)


def request(
    *,
    dk: int = 2,
    dv: int | None = None,
    dmodel: int | None = None,
    tokens: int = 3,
    keys: int | None = None,
    heads: int = 1,
    causal: bool = False,
    alignment: str = "bottom-right",
    mask: str | None = None,
    padding: bool = False,
    scale: Any = None,
    cross: bool = False,
    bias: bool = False,
) -> Request:
    """What the parameters ask for. Raises InputError where they do not fit each other."""
    sizes = {"dk": dk, "dv": dv, "dmodel": dmodel, "tokens": tokens, "keys": keys, "heads": heads}
    for parameter, value in sizes.items():
        if value is not None:
            whole(parameter, value, _MOST[parameter])
    spec = Attention(scale=factor(scale), causal=causal, alignment=alignment, mask=mask, padding=padding, heads=heads)  # type: ignore[arg-type]
    projected = cross or bias or heads > 1 or dmodel is not None
    if keys is not None and projected and not cross and keys != tokens:
        raise InputError(f"--keys: a sequence that attends to itself has {tokens} keys; mend: --cross, or no --keys")
    width = (dmodel or heads * dk) if projected else None
    return Request(spec, tokens, keys or tokens, dk, dv or dk, width, cross, bias)


def factor(given: Any) -> Fraction | None:
    """The factor of the scores: None for 1/√d_k, ``none`` is 1. Raises InputError."""
    return None if given is None else number("scale", 1 if given == "none" else given, "none")
