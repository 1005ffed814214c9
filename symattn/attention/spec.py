"""``Attention``: one frozen description that is a specification, a function on any kind of array, and a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from operator import is_not
from textwrap import fill
from typing import Any

from symattn.attention.fields import Described, check, refusal
from symattn.attention.flow import Flow, Step, Trace, run_steps, steps_of
from symattn.attention.inputs import by_name, check_inputs
from symattn.attention.latent import Latent
from symattn.attention.letters_of_attention import SYMBOLS, WIDE
from symattn.attention.positions.checks import POSITIONS
from symattn.attention.positions.position_fields import Position, Rotary
from symattn.attention.softmax import NORMALISERS
from symattn.attention.spec_fields import Fields, contradictions, descriptions
from symattn.attention.stages import stage_order
from symattn.document.errors import InputError
from symattn.document.model import Document
from symattn.document.printable import Shown

# The layout of the list of fields in the docstring.
_WIDTH, _INDENT = 114, 19


def pipeline(spec: Attention, names: frozenset[str]) -> list[Step]:
    """Return the steps of ``spec`` from the inputs named in ``names`` to ``output``."""
    flow = Flow(spec, names)
    for asks, stage in stage_order.STAGES:
        # Stages without a condition always run; others by an input or a field.
        if not asks or asks in names or getattr(spec, asks, None):
            flow.field = asks
            stage(flow)
    *others, last = flow.steps
    # Whatever step comes last, its array is the output; ``row`` keeps the name that its stage gave it.
    return [*others, replace(last, name="output", symbol=SYMBOLS["output"])]


@dataclass(frozen=True, kw_only=True, repr=False)
class Attention(Fields, Described, Shown):
    """softmax(Q Kᵀ / √d_k + M) V, and its variants by fields.

    {fields}

    Call it with q, k, v, or with x (tokens), y (for cross-attention), w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o; with x
    alone it is parameter-free. Shapes: q (…, n_q, d_k), k (…, n_k, d_k), v (…, n_k, d_v) → (…, n_q, d_v), with an axis
    of heads before the last two if there are several.

    >>> import numpy as np
    >>> Attention(causal=True)(np.zeros((2, 3)), np.zeros((2, 3)), np.array([[1.0], [3.0]]))
    array([[1.],
           [2.]])

    Source: Vaswani et al., Attention Is All You Need (2017), equation 1 and §3.2.
    """

    def __post_init__(self) -> None:
        # Defaults need no checks, and most fields have them; all of plain attention has the same steps.
        if any(map(is_not, vars(self).values(), _DEFAULTS)):
            check_fields(self)
        else:
            vars(self)["_steps"] = _STEPS_OF_DEFAULTS

    @property
    def key_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def group(self) -> int:
        """The number of query heads that share one head of keys and values."""
        return self.heads // self.key_heads

    @property
    def heads_of(self) -> dict[str, int]:
        """The numbers of heads of q, k and v."""
        return {"q": self.heads, "k": self.key_heads, "v": self.key_heads}

    @property
    def query_norm(self) -> str | None:
        """The norm of queries: that of keys, unless these alone are normalised."""
        return self.qk_norm if self.qk_norm_of == "both" else None

    @property
    def normed_roles(self) -> str:
        """The roles that ``qk_norm`` normalises: of both queries and keys, of keys, or of none."""
        return "" if self.qk_norm is None else "qk" if self.qk_norm_of == "both" else "k"

    @property
    def head_axis(self) -> tuple[int, ...]:
        """The head axis of queries and scores: (h,), or () if there is one head."""
        return (self.heads,) if self.heads > 1 else ()

    @property
    def gates_projection(self) -> bool:
        """Return whether the output gate multiplies what the output projection gives."""
        return self.output_gate and self.output_gate_place == "after"

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of heads by their letters in shapes: of queries, of keys, and of q, k and v in one matrix; and of
        the sections ``s`` of a rotary position, if it has any."""
        heads = {"h": self.heads, "g": self.key_heads, "p": self.heads + 2 * self.key_heads}
        sections = getattr(self.position, "sections", None)
        return {**heads, "s": len(sections)} if sections else heads

    @property
    def capped(self) -> bool:
        """Return whether scores have a cap."""
        return self.softcap is not None

    @property
    def is_softmax(self) -> bool:
        """Return whether weights are a softmax, over the keys and a sink if there is one."""
        return self.normaliser == "softmax"

    @property
    def plain_softmax(self) -> bool:
        """Return whether weights are a softmax over the keys alone."""
        return self.is_softmax and self.sink is None

    @property
    def sums_to_one(self) -> bool:
        """Return whether the weights of a query that has a key sum to one, before any are dropped."""
        return self.plain_softmax or (
            not self.is_softmax and NORMALISERS[self.normaliser].sums_to_one
        )

    @property
    def zeroes_empty_rows(self) -> bool:
        """Return whether a query that may attend to no key has weights of zero."""
        return self.fully_masked == "zeros" or not self.sums_to_one

    @property
    def averages(self) -> bool:
        """Return whether each output is a weighted mean of the values."""
        return self.sums_to_one and not self.dropout

    def offset(self, n_q: int, n_k: int) -> int:
        """Return the offset o of queries: query i has the position of key i + o."""
        return 0 if self.alignment == "top-left" else n_k - n_q

    @property
    def masks_anything(self) -> bool:
        """Return whether some score may be forbidden."""
        return self.masks_by_place or self.padding or self.documents or self.mask is not None

    @property
    def reads_places(self) -> bool:
        """Return whether the places of queries among the keys, which ``alignment`` sets, change the output."""
        return self.masks_by_place or self.position is not None or self.temperature is not None

    @property
    def masks_by_place(self) -> bool:
        """Return whether the places of queries and keys forbid some scores."""
        return self.causal or self.window is not None or self.block is not None

    @property
    def sides(self) -> tuple[int | None, int | None]:
        """The numbers of keys before and after the query's position in the window, None for an open side."""
        return (self.window - 1, 0) if isinstance(self.window, int) else self.window or (None, None)

    def pipeline(self, input_names: Iterable[str]) -> tuple[Step, ...]:
        """Return the steps from the inputs named in ``input_names`` to the output."""
        return steps_of(self, input_names, pipeline)

    def document(self, names: Iterable[str] = ("q", "k", "v")) -> Document:
        """Return a document of the formula, the shapes and every step, for the inputs named in ``names``."""
        from symattn.attention.document import document

        return document(self, names)

    def trace(self, *qkv: object, **inputs: object) -> Trace:
        """Return every array of a run by name: the inputs, then q, k, v, scores, scaled, masked, weights, output."""
        values = by_name(qkv, inputs)
        check_inputs(self, values)
        return Trace(run_steps(self.pipeline(values), values))

    def __call__(self, *qkv: object, **inputs: object) -> Any:
        """Return the output of attention on these arrays; with ``lse``, (output, L), L of shape (…, n_q)."""
        trace = self.trace(*qkv, **inputs)
        return (trace["output"], trace["lse"]) if self.lse else trace["output"]


# In the order of the fields, as ``vars`` lists them.
_DEFAULTS = tuple(f.default for f in fields(Attention))
_STEPS_OF_DEFAULTS: dict[frozenset[str], tuple[Step, ...]] = {}


def _list_fields_for_docstring() -> str:
    """Return the list of fields and their meanings for the docstring of ``Attention``."""
    later = " " * (_INDENT + 4)
    lines = [
        fill(words, _WIDTH, initial_indent=f"{name:<{_INDENT}}", subsequent_indent=later)
        for name, words in descriptions().items()
    ]
    return "\n    ".join(lines)


# ``python -OO`` removes docstrings.
if Attention.__doc__:
    Attention.__doc__ = Attention.__doc__.replace("{fields}", _list_fields_for_docstring())


# -- checks of fields, one by one and in combination -------------------------------------------------------------------
#: Senseless combinations of fields: a reason, and the condition under which a specification is refused for it. Those
#: whose condition reads fields alone stand in the record of a field.
SENSELESS: dict[str, Callable[[Attention], bool]] = {
    **POSITIONS,
    **contradictions(),
    "qk_norm_place belongs to qk_norm beside a rotary position; hint: qk_norm_place='before'": lambda s: (
        s.qk_norm_place == "after" and (s.qk_norm is None or not isinstance(s.position, Rotary))
    ),
    # -- scores
    "truncated vectors do not fit the matrices of general and additive scores; hint: narrower matrices": (
        lambda s: s.truncate is not None and s.score in WIDE
    ),
    "rotations encode distances only in dot products, cosines and distances; hint: position=None, or another score": (
        lambda s: isinstance(s.position, Rotary) and s.score in WIDE
    ),
    "a temperature counts places, which are not those of a rotary position; hint: Rotary(given='tables'), start=0": (
        lambda s: (
            s.temperature is not None
            and isinstance(s.position, Rotary)
            and (s.position.given == "positions" or bool(s.position.start))
        )
    ),
    # -- weights
    "only normaliser 'softmax' and 'sigmoid' take exponentials, which may be stabilised; hint: stabilised=True": (
        lambda s: not (s.stabilised or s.is_softmax or NORMALISERS[s.normaliser].takes_exponentials)
    ),
}


def check_fields(spec: Attention) -> None:
    """Raise InputError for a meaningless field, and for fields that contradict each other."""
    check(spec)
    if not isinstance(spec.latent, Latent | None):
        raise refusal(spec, "latent", "be Latent(…) or None")
    if spec.position is not None and not isinstance(spec.position, Position):
        known = [p.__name__ for p in Position.__args__]
        raise refusal(spec, "position", f"be one of None, {', '.join(known)}", known)
    for reason, senseless in SENSELESS.items():
        if senseless(spec):
            raise InputError(f"Attention: {reason}")
