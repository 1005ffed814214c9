"""Feature maps that stand in the place of another one, as mistakes of linear attention: f(q) · f(k) for φ(q) · φ(k)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.layers.activations import gelu, sigmoid, silu, tanh
from symattn.attention.linear.features import elu_plus_one, exponential, relu
from symattn.attention.softmax import softmax

Feature = Callable[[Any], Any]
#: Each in words, beside those that a specification can ask for.
OTHERS: dict[str, Feature] = {
    "elu(x), without the 1": lambda x: elu_plus_one(x) - 1,
    "relu(x) + 1": lambda x: relu(x) + 1,
    "x + 1": lambda x: x + 1,
    "1 + the sigmoid of x": lambda x: 1 + sigmoid(x),
    "|x|": lambda x: namespace_of(x).abs(x),
    "x²": lambda x: x * x,
    "relu(x)²": lambda x: relu(x) * relu(x),
    "the sigmoid of x": sigmoid,
    "softplus, log(1 + e^x)": lambda x: namespace_of(x).log(1 + namespace_of(x).exp(x)),
    "silu": silu,
    "gelu": gelu,
    "tanh": tanh,
    "e^(−x)": lambda x: exponential(-x),
    "a softmax over the features": softmax,
    "a softmax over the tokens": lambda x: softmax(x.mT).mT,
}
