"""Derivations: why a fact about attention holds, step by step, each step checked when the document is made.

A derivation is a text in ``texts``, see ``derivation_texts``, and one line in ``_ENTRIES``. One that takes parameters,
or whose letters stand for what code computes, is a function that returns its ``Document``: in ``implemented``, or in a
module of its own.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from itertools import count
from typing import Any, cast

from symattn.derivations.excerpts import excerpt, with_brief
from symattn.derivations.parameters import checked
from symattn.document import stored_results
from symattn.document.codec import command
from symattn.document.errors import InputError, named
from symattn.document.in_memory import is_as_in_files
from symattn.document.model import Block, Document, Result
from symattn.document.stored_results import read, written


@dataclass(frozen=True, slots=True)
class Entry:
    """A derivation: its name, what it proves, and the parameters that it takes."""

    name: str
    proves: str
    taken: tuple[str, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters; for ``attention``, every field of the specification."""
        if self.name != "attention":
            return self.taken
        from symattn.derivations.attention import parameters

        return parameters()


_ENTRIES = (
    Entry("scaling", "Var(q·k) = d_k σ⁴, hence 1/√d_k", ("dk", "mean", "seed")),
    Entry("jacobian", "∂softmax = diag(p) − p pᵀ, and its bounds", ("tokens",)),
    Entry("shift", "softmax(s + c1) = softmax(s)", ()),
    Entry("matrix-form", "token by token = softmax(QKᵀ/√d_k)V", ()),
    Entry("equivariance", "attention(PX) = P attention(X)", ()),
    Entry("backward", "dQ, dK, dV of attention", ()),
    Entry("online-softmax", "tiles merge to softmax(QKᵀ/√d_k)V", ()),
    Entry("lookup", "softmax(βs) → shares of the largest scores", ()),
    Entry("initialisation", "Var(q·k) over random W_Q, W_K", ("dk", "dmodel")),
    Entry("kv-cache", "a new token needs one row of attention", ()),
    Entry("rope", "⟨R_m q, R_n k⟩ = ⟨q, R_{n−m} k⟩", ()),
    Entry("sinks", "a sink is one more key of value 0", ()),
    Entry("differential", "(A₁ − λA₂)V = A₁V − λA₂V, and A₁ − λA₂ sums to 1 − λ", ()),
    Entry("gqa", "shared heads = heads repeated r times", ("heads", "dk", "dv")),
    Entry("mla", "q·(cU_K) = (qU_Kᵀ)·c: a latent is kept", ()),
    Entry("linear-rnn", "linear attention = a state that decays", ()),
    Entry("delta-rule", "‖kS − v‖²/2 → S + βkᵀ(v − kS) → chunks", ()),
    Entry("erasing", "S − rᵀ(pS) + kᵀv: Comba, GDN-2, RWKV-7", ()),
    Entry("variants", "what runs on which kind of array", ()),
    Entry("attention", "every step of a specification", ()),
)


def names() -> dict[str, Entry]:
    """Return the derivations by name."""
    return {entry.name: entry for entry in _ENTRIES}


# Words of the field → the derivations that they may mean.
_TOPICS = {
    "variance": ("scaling",), "sqrt": ("scaling",), "temperature": ("scaling",), "softmax": ("jacobian", "shift"),
    "gradient": ("backward", "jacobian"), "gradients": ("backward", "jacobian"), "backprop": ("backward",),
    "flash": ("online-softmax",), "flashattention": ("online-softmax",), "streaming": ("online-softmax",),
    "cache": ("kv-cache",), "rotary": ("rope",), "positions": ("rope",), "sink": ("sinks",), "mqa": ("gqa",),
    "permutation": ("equivariance",), "latent": ("mla",), "matrix": ("matrix-form",), "init": ("initialisation",),
    "multihead": ("attention --heads 2",), "mha": ("attention --heads 2",), "mask": ("attention --causal",),
    "masks": ("attention --causal",), "causal": ("attention --causal",), "alibi": ("attention --position alibi",),
    "window": ("attention --causal --window 2",), "linear": ("linear-rnn",), "rnn": ("linear-rnn",),
    "recurrence": ("linear-rnn", "delta-rule"), "retention": ("linear-rnn",), "mamba": ("linear-rnn", "erasing"),
    "delta": ("delta-rule",), "deltanet": ("delta-rule",), "gateddeltanet": ("delta-rule",), "wy": ("delta-rule",),
    **dict.fromkeys(("comba", "gdn2", "gateddeltanet2", "rwkv", "rwkv6", "rwkv7", "mamba2", "erase"), ("erasing",)),
    "softcap": ("attention --softcap 30",),
}  # fmt: skip


def suggestion(name: str) -> str:
    """Suggest derivations for an unknown name, for a line of error."""
    plain = name.lower().replace("_", "-")
    topics = _TOPICS.get(plain.replace("-", "")) or difflib.get_close_matches(
        plain, names(), n=1, cutoff=0.6
    )
    return f"did you mean {' or '.join(topics)}?" if topics else f"known: {', '.join(names())}"


def derive(
    name: str = "scaling",
    *,
    all: bool = False,
    step: int | None = None,
    part: object = None,
    **parameters: object,
) -> Document:
    """Return a derivation by its name, step by step, with the reason and the grade of each step.

    A derivation of more than two results prints its answer in short, and its JSON holds all; with ``all`` every format
    prints all of it. ``step`` returns one step, by its number, and ``part`` one part, by its number or by words of its
    title. ``parameters`` are those of the derivation: sizes by their letters (``d_k=4``, ``n=3``), other options and,
    for ``attention``, the fields of ``Attention``. Raises InputError for an unknown name or parameter, a value that is
    out of range, and a step or a part that the derivation does not have.

    >>> derive("scaling", d_k=4)
    <derivation 'scaling': enclosed; print it, or .latex(), .markdown(), .html(), .json(), .save(path)>
    >>> print(derive("attention", d_k=2, n=3, causal=True).text().splitlines()[0])
    Attention, step by step                          n_q = n_k = 3, d_k = 2, d_v = 2
    """
    entries = names()
    if named("derive()", name) not in entries:
        raise InputError(f"unknown derivation {name!r}; {suggestion(name)}")
    arguments = checked(name, entries[name].parameters, parameters)
    derivation = _find_derivation_maker(name)
    document = _number_result_titles(derivation(**arguments))
    # The derivation may have named its command itself.
    if not document.command:
        binding = signature(derivation).bind(**arguments)
        binding.apply_defaults()
        document = replace(document, command=command("derive", name, options=binding.arguments))
    return chosen(with_brief(document, _load_short_answer(document)), all, step, part)


def chosen(
    document: Document, all: bool = False, step: object = None, part: object = None
) -> Document:
    """Return the derivation, all of it in every format, or one step or part of it. Raises InputError."""
    if all and (step, part) != (None, None):
        raise InputError(
            "--all prints every step and part; hint: leave out --all, or --step and --part"
        )
    return document.whole() if all else excerpt(document, step, part)


def _find_derivation_maker(name: str) -> Callable[..., Document]:
    """Return the function that makes a derivation: that of its module or of ``implemented``, or one that reads its
    text."""
    module = f"symattn.derivations.{name.replace('-', '_')}"
    if find_spec(module):
        return cast(Callable[..., Document], import_module(module).derivation)
    from symattn.derivations.derivation_texts import DerivationText
    from symattn.derivations.implemented import DERIVATIONS

    return DERIVATIONS.get(name) or (lambda: DerivationText().document(name))


def _load_short_answer(document: Document) -> tuple[Block, ...]:
    """Return what the module of a derivation says in short after its first result; () if it has no such function."""
    module = f"symattn.derivations.{document.name.replace('-', '_')}"
    answer = getattr(import_module(module), "answer", None) if find_spec(module) else None
    return answer(document) if answer else ()


def _number_result_titles(document: Document) -> Document:
    """Number the results if there are several."""
    # One result needs no number.
    if sum(isinstance(block, Result) for block in document.blocks) < 2:
        return document
    number = count(1)
    blocks = (
        replace(b, title=f"{b.title} {next(number)}") if isinstance(b, Result) else b
        for b in document.blocks
    )
    return replace(document, blocks=tuple(blocks))


_PLAIN = (bool, int, str, Fraction, type(None))


def cached(
    name: str,
    *,
    all: bool = False,
    step: int | None = None,
    part: object = None,
    **parameters: object,
) -> Document:
    """Return ``derive(name, **parameters)``, cached in the user's folder for the same source of symattn."""
    key = _key_of(name, parameters) if is_as_in_files() else None
    before = key and stored_results.get("derivations", key)
    if before:
        with contextlib.suppress(ValueError):
            return chosen(read(before, Document), all, step, part)
    document = derive(name, **cast(dict[str, Any], parameters))
    if key and is_as_in_files():
        with contextlib.suppress(
            TypeError, ValueError
        ):  # holds more than documents do, or too long a number
            stored_results.put("derivations", key, written(document))
    return chosen(document, all, step, part)


def _key_of(name: str, parameters: Mapping[str, object]) -> str | None:
    """Return the key of a derivation in the cache, or None if it is not cached."""
    if not all(isinstance(value, _PLAIN) for value in parameters.values()):
        return None
    words = [
        f"{parameter} {type(value).__name__} {value!r}"
        for parameter, value in sorted(parameters.items())
    ]
    with contextlib.suppress(OSError):  # the source cannot be read
        return stored_results.digest([stored_results.ground(), name, *words])
    return None
