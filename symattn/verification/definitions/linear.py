"""``LinearAttention``: a state of keys times values instead of softmax, with features, a normaliser and gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.attention.fields import check, finite, refusal
from symattn.attention.flow import Step
from symattn.attention.stated_flow import StatedFlow
from symattn.bounds.called_target import Layout
from symattn.bounds.mistake import Compute
from symattn.document.errors import InputError
from symattn.verification.definitions import linear_steps
from symattn.verification.definitions.attending import check_layout, tokens_axis
from symattn.verification.definitions.definition_subject import CountedKeys, Definition
from symattn.verification.definitions.inputs_by_letters import FAMILIES
from symattn.verification.definitions.linear_bounds import bound_other_forms
from symattn.verification.definitions.linear_inputs import (
    arrange_inputs,
    check_layout_of_heads,
    list_linear_sizes,
    make_laid,
    shorten_keys,
    yield_linear_inputs,
)
from symattn.verification.definitions.linear_mistakes import (
    FAMILIES_OF_RECURRENCES,
    RULES_OF_RECURRENCES,
)
from symattn.verification.definitions.linear_names import fields_of
from symattn.verification.definitions.linear_ways import (
    FormRows,
    LinearInputs,
    Produced,
    compute_by_pairs,
    compute_in_form,
    yield_linear_ways,
)
from symattn.verification.definitions.raw_gates import check_raw_gates, check_raw_steps
from symattn.verification.definitions.recurrent_law import (
    RecurrentLaw,
    explain_uncovered,
)
from symattn.verification.definitions.stated_definition import define_in_steps
from symattn.verification.reduce import TRIALS


@dataclass(frozen=True, kw_only=True, repr=False)
class LinearAttention(StatedFlow):
    """o_i = Σ_j φ(q_i)·φ(k_j) v_j, causal: over j ≤ i, and divided by Σ_j φ(q_i)·φ(k_j) if ``normalised``.

    With a norm of queries and keys φ(x) / √(‖φ(x)‖² + ε) is in the place of φ(x).

    feature         φ: ``identity``, ``elu`` (elu(x) + 1), ``relu``, ``exp``
    causal          whether tokens see only those up to themselves
    normalised      whether the output is divided by the sum of the weights
    gate            decay of the state before each token: None; ``token``, an input g of logarithms, one a token;
                    ``feature``, one for each feature of the key; ``head``, one for each head, of all its tokens
    delta           the delta rule: the state is corrected by β (v − k S), with an input beta, one a token
    scale           whether queries are divided by √d_k
    qk_norm         None, or ``l2``: queries and keys are divided by √(‖x‖² + ε)
    eps             the ε of the norm
    values_per_key  heads of values, gates and β for each head of queries and keys, which is repeated in place: head h
                    of values reads head ⌊h / values_per_key⌋
    state           whether a function takes the state before the first token and returns the one after the last: None;
                    ``kv``, laid out as (…, d_k, d_v); ``vk``, as (…, d_v, d_k)
    reads           the state that a token reads: that ``after`` it is added, or the one ``before``, which its own gate
                    has not decayed
    bonus           with the state before: whether a token also reads itself, Σ_f q_f b_f k_f v, with an input bonus,
                    one number for each head and feature of the key
    step            with one gate a head: whether a step Δ, an input dt with one number a token, multiplies the gates
                    and the values that are written
    skip            whether D v is added to the output, with an input skip, one number D for each head
    erase           under the delta rule, what is erased: None, β k, as written above; ``vector``, β p with an input p,
                    S' = e^g S + kᵀ β (v − p S); ``gates``, b ⊙ k, while w ⊙ v is written, with inputs b and w, one
                    number for each feature; ``pair``, S' = e^g S + bᵀ (a S) + kᵀ v, with inputs a and b, no β
    erases          whether what a token erases is read from the state ``after`` its own gate has decayed that, or
                    ``before``
    gate_form       what g is: None, logarithms of decays; raw gates a, with inputs A_log, one number a
                    head, and dt_bias, one a head or for each of its features, ``softplus``, g = −e^{A_log} softplus(a
                    + dt_bias), or ``sigmoid``, g = L σ(e^{A_log} (a + dt_bias))
    lower_bound     the L of a sigmoid, a number below 0
    step_form       what dt is: None, the step Δ; ``softplus``, raw steps, Δ = softplus(dt + dt_bias), with an input
                    dt_bias, one number a head
    step_least      the least Δ of raw steps, or None
    step_most       the largest Δ of raw steps, or None
    beta_form       what beta is: None, the β of the delta rule; ``sigmoid``, raw ones, β = σ(beta)

    A function takes q, k (…, n, d_k), v (…, n, d_v), g (…, n), (…, n, d_k) or, one a head, (h,), beta and dt (…, n),
    bonus (h, d_k), skip (h,), p, a and b (…, n, d_k), w (…, n, d_v), A_log (h,), and dt_bias (h,) or, with gates of
    features, (h, d_k), and returns (…, n, d_v). With several heads of values for each of keys, with one gate a head,
    raw gates, a bonus or a skip, the axis in front of the tokens has the heads.
    With states it takes an initial_state, zeros if it is left out, and returns the output and the final state.

    Sources: Katharopoulos et al., Transformers are RNNs (2020), equations 5 and 9; Yang et al., Gated Linear Attention
    Transformers with Hardware-Efficient Training (2023), §4; Schlag et al. (2021), equation 24; one gate a head, Sun et
    al., Retentive Network (2023), equations 5 to 8; the norm, Yang et al., Parallelizing Linear Transformers with the
    Delta Rule over Sequence Length (2024), §3.3; shared keys, Dao, Gu, Transformers are SSMs (2024), §7.2; the state
    before a token, and its bonus, Peng et al., Eagle and Finch (2024), the time mixing of Finch; the step, Gu, Dao,
    Mamba (2023), algorithm 2, with the scalar A of Mamba-2; the skip D x, Gu, Goel, Ré, Efficiently Modeling Long
    Sequences with Structured State Spaces (2021); what is erased, Hu et al., Comba (2025), Hatamizadeh, Choi, Kautz,
    Gated DeltaNet-2 (2026), equation 10, and Peng et al., RWKV-7 Goose (2025); raw gates, ``raw_gates``.

    >>> LinearAttention(feature="elu", normalised=True).feature
    'elu'
    """

    feature: Literal["identity", "elu", "relu", "exp"] = "elu"
    causal: bool = True
    normalised: bool = True
    gate: Literal["token", "feature", "head"] | None = None
    delta: bool = False
    scale: bool = False
    qk_norm: Literal["l2"] | None = None
    eps: int | float | Fraction = 0
    values_per_key: int = 1
    state: Literal["kv", "vk"] | None = None
    reads: Literal["after", "before"] = "after"
    bonus: bool = False
    step: bool = False
    skip: bool = False
    erase: Literal["vector", "gates", "pair"] | None = None
    erases: Literal["after", "before"] = "after"
    gate_form: Literal["softplus", "sigmoid"] | None = None
    lower_bound: int | float | Fraction | None = None
    step_form: Literal["softplus"] | None = None
    step_least: int | float | Fraction | None = None
    step_most: int | float | Fraction | None = None
    beta_form: Literal["sigmoid"] | None = None

    letters: ClassVar[Mapping[str, str]] = linear_steps.LETTERS
    nouns: ClassVar[Mapping[str, str]] = linear_steps.NOUNS

    @property
    def axes(self) -> Mapping[str, str]:
        """See ``StatedFlow``."""
        return {**linear_steps.AXES, **linear_steps.list_axes_of_gates(self)}

    @property
    def returned(self) -> tuple[str, ...]:
        """See ``StatedFlow``."""
        return ("output", "final_state") if self.state else ("output",)

    def state_steps(self, names: frozenset[str]) -> Iterator[Step]:
        """See ``StatedFlow``; rows of tokens are (…, n, d), and one number a token is a column (…, n, 1)."""
        yield from linear_steps.state_linear_steps(self)

    def __post_init__(self) -> None:
        check(self, values_per_key=1)
        if self.lower_bound is not None and not (finite(self.lower_bound) and self.lower_bound < 0):
            raise refusal(self, "lower_bound", "be a finite number below 0")
        check_raw_gates(self)
        check_raw_steps(self)
        if self.beta_form and not self.has_beta:
            raise InputError(
                f"LinearAttention: beta_form={self.beta_form!r} reads raw β; hint: delta=True, and erase=None or"
                " erase='vector'"
            )
        if (self.gate or self.delta) and not self.causal:
            raise InputError(
                "LinearAttention: gates and the delta rule need an order of tokens; hint: causal=True"
            )
        if self.delta and self.normalised:
            raise InputError(
                "LinearAttention: the delta rule has no normaliser; hint: normalised=False"
            )
        if self.state and (self.normalised or not self.causal):
            raise InputError(
                "LinearAttention: states are those of sums over earlier tokens without a normaliser; hint:"
                " causal=True and normalised=False"
            )
        if self.eps and self.qk_norm is None:
            raise InputError("LinearAttention: eps belongs to a norm; hint: qk_norm='l2'")
        if self.reads == "before" and (self.normalised or not self.causal):
            raise InputError(
                "LinearAttention: the state before a token is that of a sum over earlier tokens without a normaliser,"
                " which would be 0 for the first; hint: causal=True and normalised=False"
            )
        if self.bonus and (self.reads != "before" or self.delta or self.step):
            raise InputError(
                "LinearAttention: a bonus is for the token that the state lacks, whose values are written as they are;"
                " hint: reads='before', delta=False and step=False"
            )
        if self.step and (self.gate != "head" or self.delta):
            raise InputError(
                "LinearAttention: a step multiplies one gate a head, and values that are written as they are; hint:"
                " gate='head' and delta=False"
            )
        if self.erase and not self.delta:
            raise InputError(
                "LinearAttention: what is erased belongs to the delta rule; hint: delta=True"
            )
        if self.erases == "before" and not (self.erase and self.gate):
            raise InputError(
                "LinearAttention: before its own gate a token erases what has a field of its own; hint: erase='vector'"
                " and gate='token'"
            )
        if (self.step or self.skip) and self.normalised:
            raise InputError(
                "LinearAttention: a step and a skip belong to sums without a normaliser; hint: normalised=False"
            )

    @property
    def has_numbers_of_heads(self) -> bool:
        """Return whether an input has numbers for each head, so that arrays need an axis of heads."""
        return self.gate == "head" or self.bonus or self.skip or self.gate_form is not None

    @property
    def has_beta(self) -> bool:
        """Return whether β is an input: of the delta rule, unless gates or a pair of vectors have its place."""
        return self.delta and self.erase in (None, "vector")

    @classmethod
    def named(cls, name: str) -> LinearAttention:
        """Return the linear attention of a published model, such as ``gla``.

        Raises ``InputError`` for an unknown name.

        >>> LinearAttention.named("gla")
        LinearAttention(feature='identity', normalised=False, gate='feature', scale=True)
        """
        return cls(**fields_of(name))

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        g: Array | None = None,
        beta: Array | None = None,
        initial_state: Array | None = None,
        bonus: Array | None = None,
        dt: Array | None = None,
        skip: Array | None = None,
        p: Array | None = None,
        b: Array | None = None,
        w: Array | None = None,
        a: Array | None = None,
        A_log: Array | None = None,
        dt_bias: Array | None = None,
    ) -> Any:
        """Return the output, from all pairs of tokens; with the delta rule, token by token.

        With a ``state`` the output and the final state. Raises ``InputError`` for gates, a bonus or a skip of other
        heads than those of v, for an input that the specification has and that is left out, and for one that it does
        not have.

        >>> import numpy as np
        >>> one = np.ones((1, 2))
        >>> gated = LinearAttention(feature="identity", normalised=False, gate="token")
        >>> float(gated(one, one, one, g=np.zeros(1))[0, 0])
        2.0
        """
        inputs = LinearInputs(
            q, k, v, g, beta, initial_state, bonus, dt, skip, p, b, w, a, A_log, dt_bias
        )
        return self.return_run(**arrange_inputs(self, inputs)._asdict())


def subject(spec: LinearAttention, layout: Layout = "nd") -> Definition:
    """Return the definition of linear attention."""
    check_layout("LinearAttention", layout)
    check_layout_of_heads(spec, layout)

    laid = make_laid(spec, layout)
    # Other features may sum to 0, which a normaliser cannot divide by, and rows of zeros have no length but by ε.
    positive = spec.feature in ("elu", "exp") or (
        not spec.normalised and not (spec.qk_norm and not spec.eps)
    )
    # The bound on other forms is of sums over earlier tokens.
    has_other_forms = bool(
        spec.gate or spec.delta or (spec.qk_norm and spec.causal) or spec.reads == "before"
    )
    has_equal_steps = (
        not spec.gate
        and not spec.delta
        and spec.values_per_key == 1
        and not spec.state
        and spec.reads == "after"
        and not spec.skip
    )
    return define_in_steps(
        spec,
        "normalize" if spec.normalised else "values",
        rules=RULES_OF_RECURRENCES,
        numbered_rules=FAMILIES_OF_RECURRENCES,
        inputs=tuple(yield_linear_inputs(spec, layout)),
        ways=tuple(yield_linear_ways(spec)),
        laid=laid,
        shapes=list_linear_sizes(spec, layout),
        families=FAMILIES if positive else {n: FAMILIES[n] for n in ("normal", "large")},
        settings={"scale": None, "causal": spec.causal},
        means={"m": ("n_k", 1)},
        counted=_count_linear_keys(spec, layout, laid) if has_equal_steps else None,
        # The bound is on errors of raw gates, too.
        other_forms=bound_other_forms(spec, laid) if has_other_forms else None,
        by_column=bool(spec.gate),
        # Exponents Δ A are linear in one of both if the other is a whole number.
        whole=("dt", "g") if spec.step and not spec.step_form else ("",),
        costs=_RUNS_OF_A_SCAN if spec.delta else 1,
        trials=_TRIALS_OF_A_SCAN if spec.delta else TRIALS,
        in_wide_rows=shorten_keys if spec.delta and not spec.qk_norm else dict,
        law=None if explain_uncovered(spec) else RecurrentLaw(spec, layout),
    )


def _count_linear_keys(
    spec: LinearAttention, layout: Layout, laid: Callable[[Compute], Compute]
) -> CountedKeys:
    """Return how keys are counted: each adds φ(q)·φ(k) times its value."""

    def run(table: Callable[[int, int], np.ndarray]) -> Compute:
        def form(spec: LinearAttention, rows: FormRows) -> Produced:
            q, k = rows.q, rows.k
            counts = table(int(q.shape[-2]), int(k.shape[-2])).astype(float)
            scores = q @ k.mT * namespace_of(q).asarray(counts, dtype=q.dtype)
            return Produced(scores @ rows.v)

        return laid(compute_in_form(spec, form))

    bare = replace(spec, normalised=False, causal=False)
    right = lambda n, m: np.tri(n, m, dtype=int) if spec.causal else np.ones((n, m), dtype=int)  # noqa: E731
    return CountedKeys(
        laid(compute_in_form(bare, compute_by_pairs)),
        right,
        spec.normalised,
        tokens_axis(layout),
        run,
    )


#: Runs of attention that take as long as one of the delta rule, token by token.
_RUNS_OF_A_SCAN = 16
#: Effort of the search for a smaller input of the delta rule, each of which takes milliseconds to judge.
_TRIALS_OF_A_SCAN = 150
