"""``BackwardPass``: the usual backward pass of attention in named steps, from the output's gradient to dQ, dK and dV.

The steps of the attention come first. ``derivative.vjp`` gives the same from the definition as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.derivative import vjp_by_operands
from symattn.attention.flow import Step, Typed, find_steps_behind_weights, find_value_step
from symattn.attention.gradients import weight_gradients
from symattn.attention.gradients.attention import softcap_gradient
from symattn.attention.gradients.moved_operands import check_single_ways_back
from symattn.attention.inputs import accepted, needed
from symattn.attention.letters_of_attention import ARRAYS, SCORES
from symattn.attention.spec import Attention
from symattn.attention.stated_flow import FORWARD, StatedFlow

#: By normaliser: dS for weights that are no softmax, from the weights or the scores @0 and from dP, which is @1.
#: Others take a tape.
_OF_WEIGHTS: dict[str, tuple[str, str, Callable[[Array, Array], Array]]] = {
    "sigmoid": ("p", "@0 ⊙ (1 − @0) ⊙ @1", weight_gradients.sigmoid_gradient),
    "relu": ("scores", "step(@0) ⊙ @1/n_k", weight_gradients.relu_gradient),
    "relu_sum": ("scores", "step(@0) ⊙ @1", partial(weight_gradients.relu_gradient, divided=False)),
    "sparsemax": ("p", "step(@0) ⊙ (@1 − mean_+(@1))", weight_gradients.sparsemax_gradient),
    "entmax": ("p", "√@0 ⊙ (@1 − mean_r(@1))", weight_gradients.entmax15_gradient),
}
#: Steps that scale scores, and of whose gradients the mistakes have words of their own.
_OWN_MISTAKES = ("scaled", "tempered")
_OF_CAP = "@0 ⊙ (1 − (@1/@cap)²)"


@dataclass(frozen=True, kw_only=True, repr=False)
class BackwardPass(StatedFlow):
    """dQ, dK and dV of ⟨dO, Attention(Q, K, V)⟩, for an attention to queries, keys and values.

    With P the weights: dV = Pᵀ dO, dP = dO Vᵀ, D = rowsum(P ⊙ dP), dS = P ⊙ (dP − D), and through the scale dQ = dS K,
    dK = dSᵀ Q. A cap, temperatures, heads that share keys, rotations and norms are passed in reverse order, any other
    step of scores by its derivative on a tape. Raises ``InputError`` if a step has more than one way back.
    A forbidden key has the weight 0, so that no gradient of a mask is needed, unless rows without keys are 0/0.

    >>> BackwardPass(attention=Attention(softcap=5)).write_formulas("qkv")[-7:-3]
    ['D = rowsum(P ⊙ dP)', 'dS = P ⊙ (dP − D)', 'dS_cap = dS ⊙ (1 − (S_cap/5)²)', 'dS′ = dS_cap/√d_k']
    >>> BackwardPass().write_formulas("qkv")[-3:]
    ['dQ = dS′ K', 'dK = dS′ᵀ Q', 'dV = Pᵀ dO']

    Source: Dao et al., FlashAttention (2022), appendix B.2.
    """

    attention: Attention = field(default_factory=Attention)

    letters: ClassVar[Mapping[str, str]] = {
        **{name: array.letter for name, array in ARRAYS.items()},
        "do": "dO",
        "p": "P",
        "p_dropped": "P'",
        "dp_dropped": "dP'",
        "dp": "dP",
        "row_sums": "D",
        "ds": "dS",
        **{f"ds_{name}": f"d{ARRAYS[name].letter}" for name in SCORES},
        **{
            f"d{name}": f"d{array.letter}"
            for name, array in ARRAYS.items()
            if array.role in ("query", "key", "value") and array.shape[0] == "…"
        },
        # Steps behind the weights pass the gradient of the output back to the weighted values.
        **{
            f"d{name}": f"d{array.letter}"
            for name, array in ARRAYS.items()
            if array.role == "output"
        },
    }
    nouns: ClassVar[Mapping[str, str]] = {
        "p": "P",
        "p_dropped": "P after dropout",
        "dp_dropped": "dP before dropout",
        "dp": "dP",
        "row_sums": "rowsum(P ⊙ dP)",
        "ds": "dS",
        "ds_masked": "dS of the mask",
        "ds_capped": "dS through the cap",
        "ds_tempered": "dS through the temperatures",
        "ds_scaled": "scaled dS",
    }
    returned: ClassVar[tuple[str, ...]] = ("dq", "dk", "dv")

    @property
    def axes(self) -> Mapping[str, str]:
        """The axes of all arrays by letters, without batches."""
        heads = "h " if self.attention.heads > 1 else ""
        of_attention = {name: array.shape.split() for name, array in ARRAYS.items()}
        own = {name: shape[-2:] for name, shape in of_attention.items() if shape[0] == "…"}
        own |= {f"d{name}": shape for name, shape in own.items() if f"d{name}" in self.letters}
        own |= {
            name: ["n_q", "n_k"] for name in self.letters if name[:2] in ("p", "p_", "dp", "ds")
        }
        # Heads of keys are an axis like those of queries.
        return {name: heads + " ".join(shape) for name, shape in own.items()} | {
            "row_sums": f"{heads}n_q 1",
            "tau": f"{heads}n_q 1",
        }

    @property
    def inputs(self) -> frozenset[str]:
        """The names of the inputs that the attention takes."""
        return accepted(self.attention) | {*"qkv"}

    @property
    def names_of_all(self) -> frozenset[str]:
        """The names of the inputs that the attention needs."""
        return frozenset({*"qkv", *needed(self.attention, "qkv")})

    def forward_steps(self, names: Iterable[str]) -> tuple[Step, ...]:
        """Return the steps of the attention for inputs of these names, the output last."""
        return self.attention.pipeline(self.inputs & frozenset(names))

    def noun_of(self, name: str) -> str:
        """See ``StatedFlow``: ``dQ``, and for arrays of the attention their titles."""
        if name in self.nouns or name in ARRAYS:
            return self.nouns.get(name) or ARRAYS[name].title.lower()
        return (
            f"d{name[1:].upper()}"
            if len(name) == 2
            else f"d{name[1].upper()}{name[2:].replace('_', ' ')}"
        )

    @property
    def pipeline_of_all(self) -> tuple[Step, ...]:
        """See ``StatedFlow``: for the inputs that the attention takes."""
        return self.pipeline(self.names_of_all)

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``: the steps of the attention, and those back from its output."""
        forward = self.forward_steps(names)
        check_single_ways_back(self.attention, forward)
        for step in forward:
            yield replace(step, role=FORWARD, blames="backward")
        yield from self._state_weighted_value_gradient(forward)
        yield from self._state_weights(forward)
        yield from self._state_score_gradients(forward)
        yield from self._state_products(forward)
        # Of arrays that were computed from queries, keys and values, the last one comes first.
        for step in reversed(forward[: forward.index(find_value_step(forward))]):
            if f"d{step.name}" in self.letters:
                yield self._state_step_back(step)

    def _state(
        self, name: str, run: Callable[..., object], written: Typed, of: Iterable[str], role: str
    ) -> Step:
        return self.state_step(name, run, written, tuple(of), role=role, blames="backward")

    def _state_weighted_value_gradient(self, forward: Sequence[Step]) -> Iterator[Step]:
        """Yield the gradients of what steps behind the weights take, from that of the output."""
        gradient = "do"
        for step in reversed(find_steps_behind_weights(forward)):
            name = f"d{step.of[0]}"
            if step.errors == "scales":
                # A step that is linear passes the gradient back as it passes its array.
                of, role = (gradient, *step.of[1:]), "output gradient"
                yield replace(
                    self._state(name, step.run, step.written, of, role), values=step.values
                )
            else:
                yield self._state_back(step, 0, gradient, name, "output gradient")
            gradient = name

    def _state_weights(self, forward: Sequence[Step]) -> Iterator[Step]:
        """Yield P and dP, before and after dropout."""
        weights, values = find_value_step(forward).of
        gradient = name_gradient_of_weighted_values(forward)
        yield self._state("p", _take_stored, "@0", ["weights"], "stored weights")
        of_weights = partial(self._state, run=_multiply_by_transpose, written="@0 @1ᵀ")
        if weights == "weights":
            yield of_weights("dp", of=[gradient, values], role="weight gradient")
            return
        (drop,) = (step for step in forward if step.name == weights)
        marks = drop.of[1:]
        yield self._state("p_dropped", drop.run, "dropout(@0)", ["p", *marks], "dropped weights")
        yield of_weights("dp_dropped", of=[gradient, values], role="weight gradient")
        of = ["dp_dropped", *marks]
        # Dropout multiplies each weight by a number, and so its gradient by the same.
        yield self._state("dp", drop.run, "dropout(@0)", of, "dropped gradient")

    def _state_score_gradients(self, forward: Sequence[Step]) -> Iterator[Step]:
        """Yield dS, and the gradients of scores before their cap, temperatures and scale."""
        spec = self.attention
        (weights,) = (step for step in forward if step.name == "weights")
        # Code may take D from the saved output, so that it is a step of its own; other weights have no such sum.
        if spec.is_softmax:
            yield self._state("row_sums", _sum_rows, "rowsum(@0 ⊙ @1)", ["p", "dp"], "row sums")
            written = "log 2 ⊙ @0 ⊙ (@1 − @2)" if spec.base else "@0 ⊙ (@1 − @2)"
            run: Callable[..., Any] = partial(_differentiate_softmax, spec.base)
            yield self._state("ds", run, written, ["p", "dp", "row_sums"], "score gradient")
        elif spec.normaliser in _OF_WEIGHTS:
            reads, written, run = _OF_WEIGHTS[spec.normaliser]
            of_weights = "p" if reads == "p" else weights.of[0]
            yield self._state("ds", run, written, [of_weights, "dp"], "score gradient")
        else:
            yield self._state_back(weights, 0, "dp", "ds", "score gradient")
        gradient = "ds"
        for step in self._list_changes_of_scores(forward):
            name = f"ds_{step.name}"
            if step.name == "masked":
                masked = (gradient, "masked")
                yield self._state(name, _close_forbidden, "open(@1) ⊙ @0", masked, "mask gradient")
            elif step.name == "capped":
                # The formula names the cap as @cap, whose number is among those of the forward step.
                run, written = partial(_pass_back_through_cap, spec.softcap), _OF_CAP
                yield replace(
                    self._state(name, run, written, [gradient, "capped"], "cap gradient"),
                    values=step.values,
                )
            elif step.errors == "scales":
                of = (gradient, *step.of[1:])
                role = f"{step.name} gradient" if step.name in _OWN_MISTAKES else "passed gradient"
                # A step that is linear in the scores passes their gradient back as it passes them.
                yield replace(
                    self._state(name, step.run, step.written, of, role), values=step.values
                )
            else:
                yield self._state_back(step, 0, gradient, name, "passed gradient")
            gradient = name

    def _list_changes_of_scores(self, forward: Sequence[Step]) -> list[Step]:
        """Return the steps of scores through which their gradient changes, the last one first."""
        by_name, result = {step.name: step for step in forward}, list[Step]()
        name = by_name["weights"].of[0]
        while name != "scores":
            step = by_name[name]
            if self._changes_gradient(step):
                result.append(step)
            name = step.of[0]
        return result

    def _changes_gradient(self, step: Step) -> bool:
        """Return whether the gradient of a step of scores is another than that of the scores before it."""
        if step.name == "scaled":
            return self.attention.scale != 1
        # Where a row without keys is 0/0, the scores that a mask forbids have no gradient all the same.
        if step.name == "masked":
            return not self.attention.zeroes_empty_rows
        return step.errors != "adds"

    def _state_products(self, forward: Sequence[Step]) -> Iterator[Step]:
        """Yield the gradients of the queries, keys and values that the products are of."""
        (scores,) = (step for step in forward if step.name == "scores")
        changes = self._list_changes_of_scores(forward)
        gradient = f"ds_{changes[-1].name}" if changes else "ds"
        queries, keys = scores.of[:2]
        if self.attention.score == "dot":
            yield self._state(f"d{queries}", _multiply, "@0 @1", [gradient, keys], "query gradient")
            yield self._state(
                f"d{keys}", _multiply_transposed, "@0ᵀ @1", [gradient, queries], "key gradient"
            )
        else:
            for place, name in enumerate((queries, keys)):
                yield self._state_back(scores, place, gradient, f"d{name}")
        weights, values = find_value_step(forward).of
        p = "p" if weights == "weights" else "p_dropped"
        of = [p, name_gradient_of_weighted_values(forward)]
        yield self._state(f"d{values}", _multiply_transposed, "@0ᵀ @1", of, "value gradient")

    def _state_step_back(self, step: Step) -> Step:
        """Return the step from the gradient of a step's array to that of its first operand."""
        name, gradient = f"d{step.of[0]}", f"d{step.name}"
        if step.name in ("k_shared", "v_shared"):
            run = partial(_sum_over_group, self.attention.group)
            return self._state(name, run, "sum_group(@0)", [gradient], "group sum")
        return self._state_back(step, 0, gradient, name)

    def _state_back(self, step: Step, place: int, gradient: str, name: str, role: str = "") -> Step:
        """Return the step that differentiates a step by one of its operands, on a tape."""
        run = partial(_pass_back_through, step.run, place)
        role = role or f"{step.name.rpartition('_')[2]} gradient"
        operands = ", ".join(f"@{k}" for k in range(1 + len(step.of)))
        return self._state(name, run, f"back({operands})", [gradient, *step.of], role)


def name_gradient_of_weighted_values(forward: Sequence[Step]) -> str:
    """Return the name of the gradient of the weighted values, which may be the output."""
    weighed = find_value_step(forward)
    return "do" if weighed is forward[-1] else f"d{weighed.name}"


# -- what the steps run ------------------------------------------------------------------------------------------------
def _take_stored(weights: Array) -> Array:
    return weights


def _multiply(g: Array, x: Array) -> Array:
    return g @ x


def _multiply_transposed(g: Array, x: Array) -> Array:
    return g.mT @ x


def _multiply_by_transpose(g: Array, x: Array) -> Array:
    return g @ x.mT


def _sum_rows(p: Array, dp: Array) -> Any:
    return namespace_of(p).sum(p * dp, axis=-1, keepdims=True)


def _differentiate_softmax(base: int | None, p: Array, dp: Array, row_sums: Array) -> Array:
    ds = p * (dp - row_sums)
    return ds if base is None else ds * weight_gradients.logarithm_of(base, p)


def _close_forbidden(g: Array, masked: Array) -> Any:
    xp = namespace_of(g)
    return xp.where(xp.isfinite(masked), g, 0)


def _pass_back_through_cap(cap: object, g: Array, capped: Array) -> Array:
    return softcap_gradient(capped, cap, g)


def _sum_over_group(times: int, g: Array) -> Any:
    # Heads of one group stand one after another.
    *batch, heads, n, d = g.shape
    xp = namespace_of(g)
    return xp.sum(xp.reshape(g, (*batch, heads // times, times, n, d)), axis=-3)


def _pass_back_through(
    function: Callable[..., object], place: int, g: Array, *operands: object
) -> Any:
    (gradient,) = vjp_by_operands(function, operands, g, [place])
    return gradient
