"""Every document that symattn makes without somebody's own numbers or code, and one of each kind that needs some."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import symattn
from symattn.arrays.indexed import Indexed
from symattn.attention.variants import VARIANTS
from symattn.derivations import examples
from symattn.derivations import names as derivations
from symattn.document.model import Document, Printable
from symattn.document.printable import Shown
from symattn.theorems import catalogue
from symattn.theorems.documents import book
from symattn.theorems.runner import run

_CLAIMS: tuple[tuple[str, ...], ...] = (
    ("weights", "0.3", "0.7", "0.1"), ("similarity", "[1, 2]", "[2, 1]"),
    ("equal", "exp(2)/(1+exp(2))", "1/(1+exp(-2))"), ("equal", "softmax([2, 4, 4])", "[0.0634, 0.468, 0.468]"),
)  # fmt: skip


@cache
def volume() -> Document:
    """The book, with the equations of every proof."""
    found = run(list(catalogue().values()), catalogue, jobs=2, explain=True)
    return book(found, "symattn report --book --explain")


def every() -> Iterator[tuple[str, Document]]:
    """Each document with its name, the longest last."""
    for name in derivations():
        yield f"derive {name}", symattn.derive(name)
    for name in examples.names():
        yield f"walk {name}", symattn.walk(name)
    for name, variant in VARIANTS.items():
        yield f"specification {name}", variant.spec.document(variant.names)
    for number, claim in enumerate(_CLAIMS):
        yield f"claim {number}", symattn.claim(*claim)
    yield from judged()
    yield "book", volume()


def judged() -> Iterator[tuple[str, Document]]:
    """One document of each kind that needs numbers or code."""
    x = symattn.kind("exact").lift([[1, 0], ["1/2", 1]])
    found: dict[str, Shown] = {
        "array": symattn.kind("exact").lift(np.arange(400).reshape(4, 10, 10)),
        "array of balls": symattn.kind("ball").lift([["1/3"] * 3] * 3),
        "array for all sizes": symattn.Attention()(*[Indexed.letters(name, "n", "d") for name in "qkv"]),
        "trace": symattn.Attention(causal=True).trace(x=x),
        "theorem": catalogue()["softmax-shift"],
        "right code": symattn.verify(right, examples=5),
        "wrong code": symattn.verify(wrong, examples=5),
        "two functions": symattn.compare(right, wrong, examples=5),
        "bound": symattn.bound(n=64, d_k=8),
        "exercises": symattn.exercises(1, answers=True),
        "blank walk": symattn.walk("eight-step", blank=(5, 6)),
        "proof": symattn.prove("softmax-shift"),
        "audit": audited(),
    }
    for name, shown in found.items():
        yield name, shown.document()


def right(q: Any, k: Any, v: Any) -> Any:
    """Attention in NumPy."""
    return _attend(q, k, v, 1 / np.sqrt(q.shape[-1]))


def wrong(q: Any, k: Any, v: Any) -> Any:
    """The same without its scale."""
    return _attend(q, k, v, 1)


def _attend(q: Any, k: Any, v: Any, scale: float) -> Any:
    s = scale * (q @ np.swapaxes(k, -1, -2))
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ v


def audited() -> Printable:
    """The audit of a layer of PyTorch."""
    import torch

    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.arange(32.0).reshape(1, 4, 8) / 32
    with symattn.audit(layer) as report, torch.no_grad():
        layer(x, x, x, need_weights=False)
    return report
