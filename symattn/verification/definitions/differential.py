"""``Differential``: the difference of two attentions to the same values, with a norm of its rows.

Code computes it in two ways: it subtracts the weights and multiplies the values once, or it calls an attention for
each half and subtracts the outputs. Each is run on the kind ``rounded``, which proves its bound; the second one with
every form of an attention that log-sums have. Weights, their difference, both outputs and λ may be stored in the format
of the inputs, as kernels for one attention return them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np

from symattn.arrays.array import Array
from symattn.attention import fields, inputs
from symattn.attention.constants import number
from symattn.attention.flow import Step
from symattn.attention.letters_of_attention import SCORES, SYMBOLS
from symattn.attention.norms import rms_norm, write_norm
from symattn.attention.scores import per_head
from symattn.attention.spec import Attention
from symattn.attention.stated_flow import OtherStep
from symattn.bounds import reference
from symattn.bounds.called_target import Layout
from symattn.bounds.changed_steps import ChangedSteps
from symattn.bounds.mistake import (
    Compute,
    Mistake,
    MistakeFamily,
    Wrong,
    change,
    store_as_input,
)
from symattn.bounds.reference import Values
from symattn.document.codec import called
from symattn.document.errors import InputError
from symattn.document.notation import Name, Node, Number
from symattn.verification.definitions import attending, lse
from symattn.verification.definitions.attention_steps import (
    FlowWithAttention,
    change_attention,
    replace_output,
    skip_step,
)
from symattn.verification.definitions.definition_forms import Later
from symattn.verification.definitions.definition_subject import Definition, Input
from symattn.verification.definitions.inner_attention import Call, InnerAttention, WrongAttention
from symattn.verification.definitions.norms import norm_forms
from symattn.verification.definitions.stated_definition import (
    define_in_steps,
)
from symattn.verification.input_source import Array as Floats
from symattn.verification.input_source import Random
from symattn.verification.rules import by_role, subtractions

#: Other names of the parameters of a function.
_WORDS = {
    "lam": "lambda_ lambda_full lamda lamb lambd lmbda lmbd rate l",
    "gain": "weight gamma g subln_weight norm_weight",
}
#: The names of one number in code; a function may have it as a parameter.
_NAMES_OF_FACTOR = ("lam", *_WORDS["lam"].split()[:-1])
_NAMES_OF_INIT = ("lambda_init", "init")
PREFIXES = ("first.", "second.")  # of the arrays of both attentions
#: λ of each head: neither 0 nor 1, which hide a softmax or its factor.
_FACTORS = (-0.5, 0.25, 0.375, 0.5, 0.75, 1.25)
#: Points from which the search for another λ starts.
_OTHER_FACTORS = (-2.0, -1.0, -0.5, -0.1, 0.1, 0.3, 0.6, 0.9, 1.2, 2.0, 5.0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Differential(FlowWithAttention):
    """(softmax(Q₁ K₁ᵀ/√d_k) − λ softmax(Q₂ K₂ᵀ/√d_k)) V, Q₁ and Q₂ the halves of the columns of each head's Q.

    attention  the attention of each half: its scale, masks, positions and heads
    factor     λ; ``given``: an input ``lam``, with a number for each head
    norm       ``rms``: the rows of each head's output are divided by √(mean(o²) + ε), then times an input ``gain``, if
               it is given, and times 1 − λ_init
    eps        the ε of the norm
    init       λ_init of the norm

    A function takes q (…, n_q, 2 d_k), k (…, n_k, 2 d_k), v (…, n_k, d_v), and the other inputs of the attention, and
    returns (…, n_q, d_v). Where code has 2h heads of width d_k, heads 2i and 2i + 1 are the halves of head i.

    >>> import numpy as np
    >>> q, k, v = np.zeros((1, 2)), np.zeros((2, 2)), np.array([[1.0], [3.0]])
    >>> Differential(factor=0.25)(q, k, v)
    array([[1.5]])

    Source: Ye et al., Differential Transformer (2024), equations 1 and 3.
    """

    attention: Attention = field(default_factory=Attention)
    factor: int | float | Fraction | Literal["given"] = "given"
    norm: Literal["rms"] | None = None
    eps: int | float | Fraction = 0
    init: int | float | Fraction = 0

    letters: ClassVar[Mapping[str, str]] = {
        "q": "Q",
        "k": "K",
        "v": "V",
        "lam": "lambda",
        "gain": "g",
        "factor": "λ",
        "first.q": "Q_1",
        "second.q": "Q_2",
        "first.k": "K_1",
        "second.k": "K_2",
        "difference": "D",
        "normed": "N",
        "output": "O",
    }
    nouns: ClassVar[Mapping[str, str]] = {
        "normed": "the norm of the output",
        "first.q": "the first queries",
        "second.q": "the second queries",
        "first.k": "the first keys",
        "second.k": "the second keys",
    }
    prefixes: ClassVar[tuple[str, ...]] = PREFIXES
    optional: ClassVar[frozenset[str]] = frozenset(["gain"])

    def __post_init__(self) -> None:
        if not isinstance(self.attention, Attention):
            raise fields.refusal(self, "attention", "be an Attention")
        if self.factor != "given" and not fields.finite(self.factor):
            raise fields.refusal(self, "factor", "be a finite number or 'given'")
        if self.norm not in (None, "rms"):
            raise fields.refusal(self, "norm", "be 'rms' or None")
        if not fields.finite(self.eps) or self.eps < 0:
            raise fields.refusal(self, "eps", "be a finite number of at least 0")
        if not fields.finite(self.init) or self.init == 1:
            raise fields.refusal(self, "init", "be a finite number other than 1")
        if self.norm is None and (self.eps or self.init):
            raise InputError("Differential: eps and init belong to norm; hint: norm='rms'")
        if self.norm is not None and not self.eps:
            # The difference of two equal rows of weights is 0.
            raise InputError(
                "Differential: without ε the norm of a row of zeros is 0/0; hint: eps=1e-5"
            )
        if not self.attention.is_softmax or self.attention.lse or self.attention.dropout:
            raise InputError(
                "Differential subtracts two softmaxes, without lse and dropout; hint: such an attention"
            )
        attending.check(self.attention, "Differential", "nd")

    def __call__(self, q: Array, k: Array, v: Array, **more: Any) -> Any:
        """Return the output: λ is the input ``lam`` (h,) if it is given, and ``gain`` (d_v,) belongs to the norm.

        Raises ``InputError`` for inputs of other shapes.
        """
        needed = inputs.needed(self.attention, "qkv")
        known = [*needed, *["lam"] * (self.factor == "given"), *["gain"] * (self.norm is not None)]
        for name in more:
            if name not in known:
                takes = ", ".join(("q", "k", "v", *known))
                raise InputError(f"Differential takes no {name} here; it takes {takes}")
        of_attention = {n: a for n, a in more.items() if n in needed}
        for half in _take_halves({"q": q, "k": k, "v": v, **of_attention}):
            inputs.check_inputs(self.attention, half)
        if self.factor == "given" and "lam" not in more:
            raise InputError(
                "Differential: λ is an input; hint: lam=…, or Differential(factor=0.8)"
            )
        # Other shapes would be broadcast along tokens, or over heads.
        expected = {"lam": (self.attention.heads,), "gain": tuple(v.shape[-1:])}
        for name in [n for n in expected if n in more]:
            shape = tuple(more[name].shape) if hasattr(more[name], "shape") else ()
            if shape != expected[name] and (shape or name == "gain" or self.attention.heads > 1):
                raise InputError(
                    f"Differential: {name} has the shape {shape}, expected {expected[name]}"
                )
        return self.return_run(q=q, k=k, v=v, **more)

    @property
    def returned(self) -> tuple[str, ...]:
        """See ``StatedFlow``."""
        return ("difference",) if self.norm is None else ("output",)

    @property
    def axes(self) -> Mapping[str, str]:
        """See ``StatedFlow``."""
        front = "h " * (self.attention.heads > 1)
        tokens = {"q": "n_q", "k": "n_k"}
        halves = {
            f"{prefix}{name}": f"{front}{of} d_k"
            for prefix in PREFIXES
            for name, of in tokens.items()
        }
        rows = {name: f"{front}n_q d_v" for name in ("difference", "normed", "output")}
        return {**halves, **rows, "factor": "1"}

    @property
    def inner(self) -> Attention:
        """See ``FlowWithAttention``: that of each half."""
        return self.attention

    @property
    def taken(self) -> Mapping[str, str]:
        """See ``FlowWithAttention``."""
        return self.list_taken(PREFIXES[0])

    def list_taken(self, prefix: str) -> Mapping[str, str]:
        """See ``FlowWithAttention``: halves of queries and keys, and all else as it is."""
        shared = {name: name for name in ("v", *inputs.needed(self.attention, "qkv"))}
        return {"q": f"{prefix}q", "k": f"{prefix}k", **shared}

    @cached_property
    def _symbols(self) -> dict[str, Node]:
        symbols = super()._symbols
        halves = {
            f"{prefix}{name}": _index_letter(symbol, index)
            for index, prefix in enumerate(PREFIXES, 1)
            for name, symbol in SYMBOLS.items()
        }
        return {**halves, **symbols}

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``: λ, both halves, an attention of each, their difference, and its norm."""
        state = self.state_step
        yield self._state_factor()
        for name in "qk":
            for half, prefix in enumerate(PREFIXES):
                take, written = partial(_take_half, name, half), f"columns_{half + 1}(@0)"
                yield state(f"{prefix}{name}", take, written, (name,), role="half", blames="split")
        for prefix in PREFIXES:
            yield from self.state_attention(names, prefix)
        yield from state_difference(self, names, _subtract, "difference of attentions")

    def _state_factor(self) -> Step:
        """Return the step of λ: that of each head, or a constant of the same kind as the inputs."""
        record = {"role": "factor", "blames": "weights"}
        if self.factor != "given":
            constant = partial(_round_constant, self.factor)
            return self.state_step("factor", constant, f"{float(self.factor):g}", ("q",), **record)
        run = per_head if self.attention.heads > 1 else _keep
        return self.state_step("factor", run, "@0", ("lam",), **record)


def state_difference(
    flow: Any, names: frozenset[str], subtract: Callable[[Any, Any, Any], Any], role: str
) -> Iterator[Step]:
    """Yield the steps of O₁ − λ O₂ and of (1 − λ_init) RMSNorm(O₁ − λ O₂), if the definition has a norm.

    ``flow`` has the arrays ``first.output``, ``factor`` and ``second.output``, and ``norm``, ``eps`` and ``init`` as
    ``Differential`` has them. ``subtract`` takes these arrays.
    """
    outputs = ("first.output", "factor", "second.output")
    state = flow.state_step
    yield state("difference", subtract, "@0 − @1 @2", outputs, role=role, blames="weights")
    if flow.norm is None:
        return
    # Of the gain alone a definition knows by its letters whether it has one.
    rows = ("difference", *["gain"] * ("gain" in flow.letters))
    norm = partial(_normalise_rows, Fraction(flow.eps))
    written = write_norm("rms", "@0", "@1" * ("gain" in names), eps=flow.eps)
    yield state("normed", norm, written, rows, role="rms norm", blames="norm")
    scale = partial(_multiply_by, 1 - flow.init)
    written = f"{float(1 - flow.init):g} @0"
    yield state("output", scale, written, ("normed",), role="norm factor", blames="norm")


def _index_letter(symbol: Node, index: int) -> Node:
    if not isinstance(symbol, Name):
        return symbol
    return Name(symbol.base, (*symbol.sub, Number(Fraction(index))), symbol.role, symbol.bold)


def _keep(lam: Any) -> Any:
    return lam


def _take_half(name: str, half: int, a: Any) -> Any:
    """Return half of the columns of an input. Raises ``InputError`` if their number is odd."""
    columns = int(a.shape[-1])
    if columns % 2:
        raise InputError(
            f"Differential: {name} has {columns} columns, which are no two halves; hint: 2 d_k columns"
        )
    return a[..., columns // 2 :] if half else a[..., : columns // 2]


def _subtract(one: Any, factor: Any, other: Any) -> Any:
    return store_as_input(one) - factor * store_as_input(other)


def _normalise_rows(eps: Fraction, x: Any, gain: Any = None) -> Any:
    return rms_norm(x, eps, gain)


def _multiply_by(value: Any, x: Any) -> Any:
    return x * _round_constant(value, x)


Halves = tuple[dict[str, Any], dict[str, Any]]


def _round_constant(value: float | Fraction, like: Any) -> Any:
    """Return a constant, which code may hold in the format of the inputs."""
    return store_as_input(number(value, like))


def _take_halves(inputs: Mapping[str, Any]) -> Halves:
    """Return the inputs of both attentions: the halves of the columns of q and k, and all of v and of the masks."""
    first, second = (
        {**inputs, **{name: _take_half(name, half, inputs[name]) for name in "qk"}}
        for half in range(2)
    )
    return first, second


# -- ways --------------------------------------------------------------------------------------------------------------
def _list_ways(spec: Differential) -> tuple[Compute, ...]:
    """Return every way of subtracting, with every form of the norm."""
    _, *others = lse.ways(replace(spec.attention, lse=True))
    differences: list[Mapping[str, OtherStep]] = [{}, _subtract_before_values(spec)]
    differences += [replace_output(spec, partial(_attend_by, way)) for way in others]
    forms = norm_forms("rms", "normed").values() if spec.norm is not None else ({},)
    every = [{**difference, **form} for form in forms for difference in differences]
    return tuple(ChangedSteps(spec, changes) for changes in every)


def _attend_by(way: Compute, attention: Attention, arrays: Values) -> dict[str, Any]:
    """Return the output by a way of computing (output, L)."""
    return {"output": way(**arrays)[0]}


def _subtract_before_values(spec: Differential) -> dict[str, OtherStep]:
    """Return the changes by which (A₁ − λ A₂) V is computed, and none of both outputs."""
    outputs = {f"{prefix}output": skip_step for prefix in PREFIXES}
    wrong: Wrong = lambda at: subtractions.multiply_difference(at, _subtract)  # noqa: E731
    return {**outputs, "difference": change("difference", wrong)}


# -- the definition ----------------------------------------------------------------------------------------------------
def subject(spec: Differential, layout: Layout = "nd") -> Definition:
    """Return the definition of the output."""
    attention = spec.attention
    attending.check(attention, "Differential", layout)

    def run_variant(variant: reference.Variant, prefixes: tuple[str, ...] = PREFIXES) -> Compute:
        return change_attention(spec, variant, prefixes)

    names = frozenset(("q", "k", "v", *inputs.needed(attention, "qkv")))
    wrong = WrongAttention(attention, names, run_variant)
    return attending.of_attention(
        attention,
        layout,
        wrong,
        make=partial(
            define_in_steps, spec, laid=partial(attending.in_order, layout, ("q", "k", "v"))
        ),
        title=called(spec),
        step="weights",
        outputs=("output",),
        inputs=_list_inputs(spec, layout),
        ways=_list_ways(spec),
        others=Later(lambda: _yield_wrong_attentions(wrong, run_variant)),
        numbered=(
            *attending.by_number(attention, run_variant, {*SCORES, "weights"}),
            *by_role.families(spec, {"factor": _families_of_factor}),
        ),
        settings=attending.settings(attention) | _settings(spec),
        inner=_make_inner_attention(spec, layout, wrong),
    )


def _settings(spec: Differential) -> dict[str, Any]:
    result: dict[str, Any] = {"head_dim": lambda arrays: arrays["q"].shape[-1] // 2}
    if spec.factor != "given":
        result |= dict.fromkeys(_NAMES_OF_FACTOR, float(spec.factor))
    if spec.norm is not None:
        result |= {"eps": float(spec.eps)} | dict.fromkeys(_NAMES_OF_INIT, float(spec.init))
    return result


def _list_inputs(spec: Differential, layout: Layout) -> tuple[Input, ...]:
    """Return the inputs of the attention with twice the columns of q and k; then λ and the gain."""
    attention = spec.attention
    result = [
        replace(i, shape=i.shape.replace("d_k", "2*d_k")) if i.name in ("q", "k") else i
        for i in attending.inputs(attention, layout)
    ]
    if spec.factor == "given":
        heads = "h" if attention.heads > 1 else "1"
        result.append(Input("lam", heads, _WORDS["lam"], _draw_factors))
    if spec.norm is not None:
        result.append(Input("gain", "d_v", _WORDS["gain"], _draw_gains, needed=False, step="norm"))
    return tuple(result)


def _draw_factors(shape: tuple[int, ...], rng: Random) -> Floats:
    return rng.choice(_FACTORS, shape)


def _draw_gains(shape: tuple[int, ...], rng: Random) -> Floats:
    return rng.integers(1, 7, shape) / 4.0


def _make_inner_attention(
    spec: Differential, layout: Layout, wrong: WrongAttention
) -> InnerAttention:
    """Return the attention of which both halves get the same queries and keys, so the output is 1 − λ times its own."""
    inner = attending.inner(spec.attention, layout, wrong)

    def arrange(inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        one = inner.arrange(inputs) or {}
        return {n: _double_columns(a) if n in ("q", "k") else a for n, a in one.items()}

    def largest_score(inputs: Mapping[str, Floats]) -> float:
        return max(inner.largest_score(half) for half in _take_halves(inputs))

    def attended(call: Call, arrays: Mapping[str, Floats]) -> Floats | None:
        inputs, factor = arrange(arrays), spec.factor
        if factor == "given":
            factor = 0.5
            inputs["lam"] = np.full(max(1, spec.attention.heads), factor)
        outputs = call(inputs)
        if outputs is None or factor == 1:
            return None
        found = attending.reshape_as_attended(layout, outputs[0], arrays)
        return None if found is None else np.asarray(found / (1 - float(factor)))

    return replace(
        inner,
        arrange=arrange,
        largest_score=largest_score,
        arrays_of=lambda inputs: None,
        # A norm hides by which factor the rows differ from those of an attention.
        attended=attended if spec.norm is None else None,
        returned=False,
    )


def _double_columns(a: Floats) -> Floats:
    return np.concatenate((a, a), axis=-1)


# -- mistakes ----------------------------------------------------------------------------------------------------------
#: Steps that code writes once for each half, so that one of them may be wrong.
_STEPS_OF_ONE_HALF = ("scale", "mask", "softcap", "bias")


def _yield_wrong_attentions(
    wrong: WrongAttention, run_variant: Callable[..., Compute]
) -> Iterator[Mistake]:
    """Yield the mistakes of the attention: in both halves, then in one of them."""
    yield from attending.known_mistakes(wrong)
    for prefix in PREFIXES:
        run = partial(run_variant, prefixes=(prefix,))
        lead = f"in the {prefix[:-1]} of the two attentions alone: "
        one = replace(wrong, run=run, lead=lead, takes=lambda m: m.step in _STEPS_OF_ONE_HALF)
        yield from attending.known_mistakes(one)


def _families_of_factor(spec: Differential, step: Step) -> Iterator[MistakeFamily]:
    """Yield another λ, and λ times a number where it is an input."""
    is_given = spec.factor == "given"

    def way(x: float) -> ChangedSteps:
        other: Wrong = lambda at: number(x, at.first)  # noqa: E731
        times: Wrong = lambda at: at.right() * number(x, at.first)  # noqa: E731
        return ChangedSteps(spec, {step.name: change(step.name, times if is_given else other)})

    if is_given:
        yield MistakeFamily(step.blames, "λ is multiplied by {}", way, _OTHER_FACTORS)
    else:
        described: Callable[[float], Any] = lambda x: replace(spec, factor=x)  # noqa: E731
        yield MistakeFamily(step.blames, "λ is {}", way, _OTHER_FACTORS, described)
