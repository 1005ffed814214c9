"""``LinearAttention``: a state of keys times values instead of softmax, with features, a normaliser and gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from math import log2
from typing import Any, Literal, NamedTuple

import numpy as np

from symattn.arrays.array import Array
from symattn.arrays.namespace import namespace_of
from symattn.arrays.precision import Precision
from symattn.attention import linear
from symattn.attention.constants import number
from symattn.attention.fields import brief, check
from symattn.attention.layers.steps import gelu, identity, sigmoid, silu, tanh
from symattn.attention.norms import unit
from symattn.attention.projections import repeat_heads, tile_heads
from symattn.attention.softmax import powers, softmax
from symattn.bounds import linear_forms
from symattn.bounds.called_target import Inputs, Layout
from symattn.bounds.reference import float64_inputs
from symattn.document.codec import called
from symattn.document.errors import InputError
from symattn.document.keywords import Answering
from symattn.verification.definitions.attending import (
    check_layout,
    in_front,
    in_order,
    ordered,
    placed,
    tokens_axis,
)
from symattn.verification.definitions.definition_mistakes import (
    Compute,
    DefinitionMistake,
    Numbered,
    reading,
)
from symattn.verification.definitions.definition_subject import (
    FAMILIES,
    CountedKeys,
    Definition,
    Entries,
    Input,
    OtherForms,
)
from symattn.verification.definitions.linear_erasing import (
    erasing_inputs,
    yield_erasing_mistakes,
)
from symattn.verification.definitions.linear_erasure import (
    ERASING_INPUTS,
    Erasure,
    in_steps,
    is_of_keys,
    join_steps,
    read_erasing_inputs,
    read_erasure,
)
from symattn.verification.definitions.linear_names import fields_of
from symattn.verification.definitions.recurrent_law import (
    RecurrentLaw,
    explain_uncovered,
    repeat_for_tokens,
)
from symattn.verification.reduce import TRIALS
from symattn.verification.rules import norms
from symattn.verification.rules.tiling import WIDTHS

FEATURES: dict[str, Callable[[Array], Array]] = {
    "identity": identity, "elu": linear.elu_plus_one, "relu": linear.relu, "exp": powers,
}  # fmt: skip
# n, d_k and d_v of each case.
_SIZES = (
    (2, 2, 3), (3, 4, 2), (5, 3, 4), (1, 2, 2), (4, 1, 1), (8, 2, 3), (9, 3, 1), (17, 2, 2), (16, 4, 3), (33, 1, 1),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LinearAttention(Answering):
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

    A function takes q, k (…, n, d_k), v (…, n, d_v), g (…, n), (…, n, d_k) or, one a head, (h,), beta and dt (…, n),
    bonus (h, d_k), skip (h,), p, a and b (…, n, d_k), and w (…, n, d_v), and returns (…, n, d_v). With several heads of
    values for each of keys, with one gate a head, a bonus or a skip, the axis in front of the tokens has the heads.
    With states it takes an initial_state, zeros if it is left out, and returns the output and the final state.

    Sources: Katharopoulos et al., Transformers are RNNs (2020), equations 5 and 9; Yang et al., Gated Linear Attention
    Transformers with Hardware-Efficient Training (2023), §4; Schlag et al. (2021), equation 24; one gate a head, Sun et
    al., Retentive Network (2023), equations 5 to 8; the norm, Yang et al., Parallelizing Linear Transformers with the
    Delta Rule over Sequence Length (2024), §3.3; shared keys, Dao, Gu, Transformers are SSMs (2024), §7.2; the state
    before a token, and its bonus, Peng et al., Eagle and Finch (2024), the time mixing of Finch; the step, Gu, Dao,
    Mamba (2023), algorithm 2, with the scalar A of Mamba-2; the skip D x, Gu, Goel, Ré, Efficiently Modeling Long
    Sequences with Structured State Spaces (2021); what is erased, Hu et al., Comba (2025), Hatamizadeh, Choi, Kautz,
    Gated DeltaNet-2 (2026), equation 10, and Peng et al., RWKV-7 Goose (2025).

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

    __repr__ = brief

    def __post_init__(self) -> None:
        check(self, values_per_key=1)
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
        return self.gate == "head" or self.bonus or self.skip

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
        named = zip("pbwa", (p, b, w, a), strict=True)
        erasing: dict[str, Any] = {name: x for name, x in named if x is not None}
        beside = {"g": g, "beta": beta, "bonus": bonus, "dt": dt, "skip": skip, **erasing}
        _check_inputs_beside(self, {name: x for name, x in beside.items() if x is not None})
        widths = {"d_k": q.shape[-1], "d_v": v.shape[-1]}
        for name, last in ERASING_INPUTS[self.erase].items():
            rows = (k if is_of_keys(self, name) else v).shape[:-1]
            hint = f"one row a token, {name} (…, n, {last})"
            _check_shape_beside_values(name, erasing[name], (*rows, widths[last]), v, hint)
        if g is not None and self.gate == "head":
            if tuple(g.shape) != tuple(v.shape[-3:-2]) or v.ndim < 3:
                raise InputError(
                    f"LinearAttention: g has the shape {tuple(g.shape)} and v {tuple(v.shape)}; hint: one gate a head,"
                    " g (h,) and v (…, h, n, d_v)"
                )
            g = repeat_for_tokens(g, v)
        # Values without an axis of heads have no such numbers.
        heads = tuple(v.shape[-3:-2]) or None
        if self.bonus:
            hint = "one number for each head and feature, bonus (h, d_k) and v (…, h, n, d_v)"
            wanted = heads and (*heads, q.shape[-1])
            bonus = _check_shape_beside_values("bonus", bonus, wanted, v, hint)[..., None, :]
        if self.skip:
            hint = "one number a head, skip (h,) and v (…, h, n, d_v)"
            skip = _check_shape_beside_values("skip", skip, heads, v, hint)[..., None, None]
        if self.step:
            hint = "one step a token, dt (…, h, n) and v (…, h, n, d_v)"
            dt = _check_shape_beside_values("dt", dt, tuple(v.shape[:-1]), v, hint)
        g, beta, dt = (_as_columns(x, q) for x in (g, beta, dt))
        form = _by_pairs if not self.delta else _by_tokens
        arrays = (q, k, v, g, beta, initial_state, bonus, dt, skip)
        return _apply_normalised_form(self, form, *arrays, **erasing)


#: The inputs of gates, of β and of what is erased, which a specification has or has not, and a field for each.
_FIELDS_OF_INPUTS = {
    "g": "gate='token', gate='feature' or gate='head'",
    "beta": "delta=True",
    "bonus": "reads='before' and bonus=True",
    "dt": "gate='head' and step=True",
    "skip": "skip=True",
    "p": "delta=True and erase='vector'",
    "b": "delta=True and erase='gates' or erase='pair'",
    "w": "delta=True and erase='gates'",
    "a": "delta=True and erase='pair'",
}


def inputs_beside(spec: LinearAttention) -> tuple[str, ...]:
    """Return the names of the inputs beside q, k, v and a state."""
    has = {"g": spec.gate is not None, "beta": spec.has_beta, "bonus": spec.bonus}
    has |= {"dt": spec.step, "skip": spec.skip}
    return (*(name for name, is_input in has.items() if is_input), *ERASING_INPUTS[spec.erase])


def field_of_input(spec: LinearAttention, name: str) -> str:
    """Return the field, as a hint, that a specification without this input lacks; "" for an unknown input."""
    if name == "beta" and spec.delta:
        return "erase=None or erase='vector'"
    return _FIELDS_OF_INPUTS.get(name, "")


def _check_inputs_beside(spec: LinearAttention, given: Mapping[str, Any]) -> None:
    """Raise ``InputError`` for an input that a specification does not have, and for one that is left out."""
    needed = inputs_beside(spec)
    for name in given:
        if name not in needed:
            hint = field_of_input(spec, name)
            raise InputError(f"LinearAttention takes no {name} here; hint: {hint}")
    for name in needed:
        # Those of heads have shapes to tell, below.
        if name not in given and name not in ("bonus", "dt", "skip"):
            raise InputError(f"LinearAttention: {name} is left out; hint: {', '.join(needed)}")


def _check_shape_beside_values(
    name: str, array: Array | None, wanted: tuple[int, ...] | None, v: Array, hint: str
) -> Array:
    """Return an input of this shape. Raises ``InputError`` for any other one, and if it is left out."""
    if array is None or wanted is None or tuple(array.shape) != wanted:
        shape = None if array is None else tuple(array.shape)
        raise InputError(
            f"LinearAttention: {name} has the shape {shape} and v {tuple(v.shape)}; hint: {hint}"
        )
    return array


def subject(spec: LinearAttention, layout: Layout = "nd") -> Definition:
    """Return the definition of linear attention."""
    check_layout("LinearAttention", layout)
    if spec.values_per_key > 1 and layout != "nd" and "h" not in layout:
        raise InputError(
            f"LinearAttention: the layout {layout} has no axis for the heads, of which values have"
            f" {spec.values_per_key} for each of keys; hint: layout='bhnd' or 'bnhd'"
        )
    m = "n" if spec.causal else "m"
    if spec.has_numbers_of_heads and layout != "nd" and "h" not in layout:
        noun = "gate" if spec.gate == "head" else "bonus" if spec.bonus else "skip"
        raise InputError(
            f"LinearAttention: the layout {layout} has no axis for the heads, each of which has a {noun}; hint:"
            " layout='bhnd' or 'bnhd'"
        )
    heads = "h" if spec.values_per_key == 1 else f"{spec.values_per_key}*h"
    of_keys = partial(_place_heads, spec, layout, "h")
    shape = partial(_place_heads, spec, layout, heads)
    arrays = [
        Input("q", of_keys("n", "d_k"), "query queries xq r C", step="score"),
        Input("k", of_keys(m, "d_k"), "key keys xk B", step="score"),
        # A parameter u is the bonus where there is one.
        Input("v", shape(m, "d_v"), "value values xv x" + " u" * (not spec.bonus), step="values"),
    ]
    if spec.gate:
        last = ("n", "d_k") if spec.gate == "feature" else ("n",)
        arrays.append(
            Input(
                "g",
                heads if spec.gate == "head" else shape(*last),
                _words_of_gates(spec),
                lambda shape, rng: -rng.integers(0, 9, shape) / 8.0,
                step="values",
            )
        )
    if spec.has_beta:
        arrays.append(
            Input(
                "beta",
                shape("n"),
                "b betas",
                lambda shape, rng: rng.integers(0, 9, shape) / 8.0,
                step="values",
            )
        )
    arrays += erasing_inputs(spec, of_keys, shape)
    if spec.bonus:
        words = "u time_first time_faaaa faaaa first"
        arrays.append(Input("bonus", f"{heads} d_k", words, step="values"))
    if spec.step:
        steps: Entries = lambda shape, rng: rng.integers(0, 9, shape) / 8.0  # noqa: E731
        arrays.append(Input("dt", shape("n"), "delta delta_t steps", steps, step="values"))
    if spec.skip:
        arrays.append(Input("skip", heads, "D d d_skip skip_weight", step="values"))
    if spec.state:
        width = ("d_k", "d_v") if spec.state == "kv" else ("d_v", "d_k")
        arrays.append(
            Input(
                "initial_state",
                " ".join([*(x for x in shape("n", "d").split() if x not in ("n", "d")), *width]),
                "state h0 s0 initial recurrent_state ssm_state",
                needed=False,
                step="cache",
            )
        )

    def laid(run: Compute) -> Compute:
        # Gates of features have the axes of keys; gates of tokens become columns later.
        of_features = ("g",) if spec.gate == "feature" else ()
        turned = ("q", "k", "v", *of_features, *ERASING_INPUTS[spec.erase])
        columns = partial(_run_with_gate_columns, spec, layout, run)
        # A final state has no axis of tokens.
        return in_order(layout, turned, columns, unturned=(1,))

    # Three heads tell the opposite order of their gates from a shift.
    several: Mapping[str, int] = (
        {"h": 3} if spec.has_numbers_of_heads else {"h": 2} if spec.values_per_key > 1 else {}
    )
    sizes = [{**in_front(layout, i), **several, "n": n, "m": n + 2 if i % 2 else max(1, n - 1),
              "d_k": d_k, "d_v": d_v} for i, (n, d_k, d_v) in enumerate(_SIZES)]  # fmt: skip
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
    return Definition(
        title=called(spec),
        step="normalize" if spec.normalised else "values",
        inputs=tuple(arrays),
        outputs=("output", "final_state") if spec.state else ("output",),
        ways=tuple(map(laid, _yield_linear_ways(spec))),
        mistakes=tuple(replace(x, run=laid(x.run)) for x in _yield_linear_mistakes(spec)),
        shapes=tuple(sizes),
        families=FAMILIES if positive else {n: FAMILIES[n] for n in ("normal", "large")},
        settings={"scale": None, "causal": spec.causal},
        means={"m": ("n_k", 1)},
        numbered=tuple(_yield_added_number_mistake(spec, laid)),
        counted=_count_linear_keys(spec, layout, laid) if has_equal_steps else None,
        other_forms=_other_forms(spec, laid) if has_other_forms else None,
        by_column=bool(spec.gate),
        # Exponents Δ A are linear in one of both if the other is a whole number.
        whole=("dt", "g") if spec.step else ("",),
        costs=_RUNS_OF_A_SCAN if spec.delta else 1,
        trials=_TRIALS_OF_A_SCAN if spec.delta else TRIALS,
        in_wide_rows=_with_short_keys if spec.delta and not spec.qk_norm else dict,
        law=None if explain_uncovered(spec) else RecurrentLaw(spec, layout),
    )


def _words_of_gates(spec: LinearAttention) -> str:
    """Return other names of g; RWKV's logarithms of decays are w, and a is an input of its own in RWKV-7."""
    words = "gk gate gates log_decay decay alpha log_g a A g_gamma"
    if spec.erase == "pair":
        return "gk gate gates log_decay decay log_g log_w w g_gamma"
    return words + " w" * spec.bonus


def _place_heads(spec: LinearAttention, layout: Layout, heads: str, *last: str) -> str:
    """Return a shape in letters, as ``placed``; several heads stand in front if the layout has no axis of heads."""
    if (spec.values_per_key > 1 or spec.has_numbers_of_heads) and layout == "nd":
        return " ".join([heads, *last])
    return placed(layout, *last, heads=heads)


def _with_short_keys(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the inputs with keys of length about 1/2: each token multiplies the state by I − β k kᵀ, which grows
    without bounds if β k·k > 2, and powers of the matrix of β_i k_i·k_j grow for longer keys."""
    k = inputs["k"]
    return {**inputs, "k": k * k.dtype.type(2.0 ** (-1 - round(log2(k.shape[-1]) / 2)))}


def _other_forms(spec: LinearAttention, laid: Callable[[Compute], Compute]) -> OtherForms:
    """Return the bound on forms that are not among ``_yield_linear_ways``: triangular systems, inverses, gates split in
    two."""

    def run(inputs: Inputs, precision: Precision) -> Sequence[np.ndarray] | None:
        bound = laid(partial(_bound_of_forms, spec, precision))(**float64_inputs(inputs))
        if bound is None:
            return None
        return list(bound) if isinstance(bound, tuple) else [bound]

    return OtherForms(_OTHER_FORMS[spec.delta], run)


_OTHER_FORMS = {
    True: "by chunks, with a triangular system that is solved by substitution, by LU factors or by its inverse",
    False: "by chunks, with e^G on queries and e^(−G) on keys",
}
#: What is added to |φ| where φ may be computed as a sum that cancels: (e^x − 1) + 1.
_CANCELLING = {"elu": 2.0}


def _bound_of_forms(
    spec: LinearAttention,
    precision: Precision,
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    beta: Any = None,
    initial_state: Any = None,
    bonus: Any = None,
    dt: Any = None,
    skip: Any = None,
    **erasing: Any,
) -> Any:
    """Return how far any usual form may be off, (…, n, d_v), with states also the final one; None if there is no
    bound."""
    phi: Callable[[Any], Any] = FEATURES[spec.feature]
    skipped = np.abs(skip * v) if spec.skip else None
    multiplied = [a for a in (dt, beta, *erasing.values(), v) if a is not None]
    # Factors of what is written or erased may each meet what underflows.
    step = float(np.prod([1 + np.abs(a).max(initial=0.0) for a in multiplied]))
    step = step if spec.step or spec.delta else 1.0
    g, v = _multiply_by_step(spec, g, v, dt)
    scale = float(q.shape[-1]) ** -0.5 if spec.scale else 1.0
    sums: Any = linear.gate_sums(g)
    cancelling, relative = _CANCELLING.get(spec.feature, 0.0), 0.0
    if spec.qk_norm:
        # Vectors are divided by their length, and so is what cancels in their features.
        # p has no features.
        normed = [phi(q), phi(k), *([erasing["p"]] if spec.erase == "vector" else [])]
        squares = [(x**2).sum(axis=-1, keepdims=True) + float(spec.eps) for x in normed]
        least = min(float(a.min(initial=np.inf)) for a in squares)
        relative = linear_forms.error_of_norms(q.shape[-1], least, precision)
        cancelling = cancelling / least**0.5 if cancelling else 0.0
    keys = _read_features(spec, k)
    written, erased = v, None
    if spec.erase:
        read = read_erasing_inputs(spec, erasing)
        erased, written = read_erasure(spec, keys, v, beta, read)
    elif spec.delta:
        erased, written = Erasure(beta * keys, keys), beta * v
    terms = linear_forms.LinearTerms(
        scale * _read_features(spec, q),
        keys,
        written,
        None if erased is None else erased.p,
        sums,
        cancelling,
        relative,
        # A step makes other gates of one a head.
        spec.gate == "head" and not spec.step,
        reads=_sums_of_reads(spec, sums, g),
        reads_before=spec.reads == "before",
        bonus=bonus if spec.bonus else None,
        skipped=skipped,
        step=step,
        more_erased=_more_of_erased(spec, cancelling, beta, erasing),
        erasing=sums - g if spec.erases == "before" else None,
    )
    if spec.erase == "pair" and erased is not None:
        return _bound_of_two_steps(spec, precision, terms, erased, g, initial_state)
    if spec.state:
        of_tokens = linear_forms.allowed(
            _with_state_as_tokens(spec, terms, initial_state), precision
        )
        return None if of_tokens is None else _split_state_bound(spec, terms, of_tokens)
    result = linear_forms.allowed(terms, precision)
    if result is None or not spec.normalised:
        return result
    ones = np.ones_like(v[..., :1])
    below = linear_forms.allowed(replace(terms, v=ones), precision)
    scores = linear.decayed_scores(terms.q, terms.k, terms.sums)
    top, divisor = np.abs(scores @ v), np.abs(scores @ ones)
    # |N'/D' − N/D| ≤ (|N' − N| + |N/D| |D' − D|) / (|D| − |D' − D|)
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = (result + top / divisor * below) / (divisor - below)
        moved = moved + 4 * float(precision.roughest.u) * (top / divisor + moved)
    # A divisor that may be 0 has no bound.
    return np.where(below < divisor, moved, np.inf)


def _more_of_erased(
    spec: LinearAttention, cancelling: float, beta: Any, erasing: Mapping[str, Any]
) -> Any:
    """Return what is added to |p| where the features of keys, which p is made of, may be sums that cancel."""
    factor = erasing["b"] if spec.erase == "gates" else beta
    has_keys = spec.delta and spec.erase in (None, "gates")
    return cancelling * np.abs(factor) if has_keys and cancelling else 0.0


def _bound_of_two_steps(
    spec: LinearAttention, precision: Precision, terms: linear_forms.LinearTerms, erased: Erasure, g: Any,
    initial_state: Any,
) -> Any:  # fmt: skip
    """Return the bound of two steps a token, of which one is read."""
    gates = 0 * terms.k[..., :1] if g is None else g
    steps = in_steps(terms.q, terms.k, terms.v, gates, erased)
    sums: Any = None if g is None else linear.gate_sums(steps.g)
    earlier = None if sums is None else sums - steps.g
    doubled = replace(
        terms,
        q=steps.q,
        k=steps.k,
        v=steps.v,
        p=steps.p,
        sums=sums,
        reads=_sums_of_reads(spec, sums, steps.g),
        erasing=earlier if spec.erases == "before" else None,
        skipped=None if terms.skipped is None else join_steps(terms.skipped, terms.skipped),
        steps=2,
    )
    with_state = _with_state_as_tokens(spec, doubled, initial_state) if spec.state else doubled
    bound = linear_forms.allowed(with_state, precision)
    if bound is None:
        return None
    read = slice(0 if spec.reads == "before" else 1, None, 2)
    if not spec.state:
        return bound[..., read, :]
    outputs, state = _split_state_bound(spec, doubled, bound)
    return outputs[..., read, :], state


def _sums_of_reads(spec: LinearAttention, sums: Any, g: Any) -> Any:
    """Return the sums of the gates that have decayed the state as each token reads it; None without gates."""
    return sums if sums is None or spec.reads == "after" else sums - g


def _with_state_as_tokens(
    spec: LinearAttention, terms: linear_forms.LinearTerms, initial_state: Any
) -> linear_forms.LinearTerms:
    """Return the terms with d_k tokens in front that write the initial state, and d_k behind that read the final one.

    The key of each is one feature alone; those behind write nothing, and none of them decays the state.
    """
    front, width = terms.k.shape[:-2], terms.k.shape[-1]
    state = _read_initial_state(spec, terms.k, terms.v, initial_state)
    units = np.broadcast_to(np.eye(width), (*front, width, width))
    nothing = 0 * units

    def around(before: Any, x: Any, after: Any) -> Any:
        return np.concatenate([before, x, after], axis=-2)

    sums, reads, erasing = None, None, None
    if terms.sums is not None and terms.reads is not None:
        of_width = np.zeros((*front, width, terms.sums.shape[-1]))
        last = of_width + terms.sums[..., -1:, :]
        sums, reads = (around(of_width, a, last) for a in (terms.sums, terms.reads))
        if terms.erasing is not None:
            erasing = around(of_width, terms.erasing, last)
    more_erased = terms.more_erased
    if isinstance(more_erased, np.ndarray):
        column = nothing[..., : more_erased.shape[-1]]
        more_erased = around(column, more_erased, column)
    return replace(
        terms,
        q=around(nothing, terms.q, units),
        k=around(units, terms.k, nothing),
        v=around(state, terms.v, 0 * state),
        skipped=None if terms.skipped is None else around(0 * state, terms.skipped, 0 * state),
        # Those around write the state and read it: nothing is erased by them.
        p=None if terms.p is None else around(nothing, terms.p, nothing),
        more_erased=more_erased,
        erasing=erasing,
        sums=sums,
        reads=reads,
        around=width,
    )


def _split_state_bound(
    spec: LinearAttention, terms: linear_forms.LinearTerms, bound: Any
) -> tuple[Any, Any]:
    """Return the bounds of the outputs and of the final state, from those of the tokens with the state's around."""
    width = terms.k.shape[-1]
    state = bound[..., -width:, :]
    return bound[..., width:-width, :], state if spec.state == "kv" else state.swapaxes(-1, -2)


def _yield_added_number_mistake(
    spec: LinearAttention, laid: Callable[[Compute], Compute]
) -> Iterator[Numbered]:
    """Yield the mistake of a number that is added to the sum of the weights."""

    def added(x: float) -> Compute:
        def run(**given: Any) -> Array:
            bare = partial(
                _apply_normalised_form, replace(spec, normalised=False), _list_linear_forms(spec)[0]
            )
            # With values of 1 the sum of weighted values is the sum of the weights.
            total = bare(**{**given, "v": _make_unit_values(given["v"])})
            result: Array = bare(**given) / (total + number(x, total))
            return result

        return laid(run)

    if spec.normalised:
        grid = tuple(float(x) for x in np.geomspace(1e-9, 1e3, 25))
        yield Numbered("normalize", "{} is added to the sum that it is divided by", added, grid)


def _count_linear_keys(
    spec: LinearAttention, layout: Layout, laid: Callable[[Compute], Compute]
) -> CountedKeys:
    """Return how keys are counted: each adds φ(q)·φ(k) times its value."""

    def run(table: Callable[[int, int], np.ndarray]) -> Compute:
        def form(
            spec: LinearAttention, q: Array, k: Array, v: Array, *more: Array | None
        ) -> Produced:
            counts = table(int(q.shape[-2]), int(k.shape[-2])).astype(float)
            return Produced((q @ k.mT * namespace_of(q).asarray(counts, dtype=q.dtype)) @ v)

        return laid(partial(_apply_normalised_form, spec, form))

    bare = replace(spec, normalised=False, causal=False)
    right = lambda n, m: np.tri(n, m, dtype=int) if spec.causal else np.ones((n, m), dtype=int)  # noqa: E731
    return CountedKeys(
        laid(partial(_apply_normalised_form, bare, _by_pairs)),
        right,
        spec.normalised,
        tokens_axis(layout),
        run,
    )


def _run_with_gate_columns(
    spec: LinearAttention, layout: Layout, run: Compute, **keywords: Any
) -> Any:
    """Run with one gate and one β per token as columns, heads before tokens."""
    columns = [
        n for n in ("g", "beta", "dt") if n in keywords and not (n == "g" and spec.gate != "token")
    ]
    for name in columns:
        keywords[name] = ordered(layout, keywords[name][..., None])
    if spec.gate == "head":
        keywords["g"] = repeat_for_tokens(keywords["g"], keywords["v"])
    if "bonus" in keywords:
        keywords["bonus"] = keywords["bonus"][..., None, :]
    if "skip" in keywords:
        keywords["skip"] = keywords["skip"][..., None, None]
    return run(**keywords)


def _as_columns(x: Array | None, q: Array) -> Array | None:
    """Return one number per token as a column; numbers for each feature, and columns, stay as they are."""
    return x[..., None] if x is not None and x.ndim < q.ndim else x


class Produced(NamedTuple):
    """The results of a form: the outputs (…, n, d_v) and the final state (…, f, d_v), None if it has none."""

    output: Array
    state: Array | None = None


#: A form, from the specification, q and k as they are read, v, g, beta and the state before the first token (None:
#: zeros).
Form = Callable[..., Produced]


def _apply_normalised_form(
    spec: LinearAttention, form: Form, q: Array, k: Array, v: Array,
    g: Array | None = None, beta: Array | None = None, initial_state: Array | None = None, bonus: Array | None = None,
    dt: Array | None = None, skip: Array | None = None, below: Form | None = None, **erasing: Array,
) -> Any:  # fmt: skip
    """Return ``form`` of the features, divided by the same form, or ``below``, with values of 1 if normalised.

    With a ``bonus`` (…, 1, d_k) each token reads itself as well; the step ``dt`` (…, n, 1) multiplies gates and the
    values that are written, and ``skip`` (…, 1, 1) those that are added. With a ``state`` return the final state too.
    Where the specification says what is erased, the form gets an ``Erasure`` of the inputs ``erasing`` in the place of
    β, and the values that are written.
    """
    a, b = _read_features(spec, q), _read_features(spec, k)
    if spec.scale:
        xp = namespace_of(q)
        a = a / xp.sqrt(xp.asarray(q.shape[-1], dtype=q.dtype))
    state = _read_initial_state(spec, b, v, initial_state) if spec.state else None
    gates, written = _multiply_by_step(spec, g, v, dt)
    corrected: Any = beta
    if spec.erase:
        read = read_erasing_inputs(spec, erasing)
        corrected, written = read_erasure(spec, b, v, beta, read)
    result = form(spec, a, b, written, gates, corrected, state)
    if spec.bonus and bonus is not None:
        of_itself = linear.own_products(a, b, v, bonus)
        result = Produced(result.output + of_itself, result.state)
    if spec.skip and skip is not None:
        result = Produced(result.output + skip * v, result.state)
    if spec.normalised:
        divisor = (below or form)(spec, a, b, _make_unit_values(v), g, beta, None)
        return result.output / divisor.output
    if result.state is None or spec.state is None:
        return result.output
    return result.output, result.state if spec.state == "kv" else result.state.mT


def _multiply_by_step(spec: LinearAttention, g: Any, v: Any, dt: Any) -> tuple[Any, Any]:
    """Return Δ g and Δ v, or both as they are without a step."""
    return (dt * g, dt * v) if spec.step and dt is not None else (g, v)


def _read_initial_state(
    spec: LinearAttention, k: Array, v: Array, initial_state: Array | None
) -> Array:
    """Return the state before the first token (…, f, d_v): zeros if there is none."""
    if initial_state is None:
        return linear.empty_state(k, v)
    return initial_state if spec.state == "kv" else initial_state.mT


def _read_features(spec: LinearAttention, x: Array) -> Any:
    """Return what the sums read of queries or keys: φ(x), divided by its length if there is a norm, for each head of
    values."""
    features = FEATURES[spec.feature](x)
    rows = features if spec.qk_norm is None else unit(features, spec.eps)
    return _repeat_for_values(spec, rows)


def _repeat_for_values(spec: LinearAttention, x: Array) -> Array:
    return x if spec.values_per_key == 1 else repeat_heads(x, spec.values_per_key)


def _make_unit_values(v: Array) -> Array:
    # Ones of the kind of v, from its own arithmetic.
    return namespace_of(v).sum(0 * v, axis=-1, keepdims=True) + 1


def _by_pairs(
    spec: LinearAttention,
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    beta: Array | None,
    state: Array | None,
) -> Produced:
    """Return (φ(Q) φ(K)ᵀ ⊙ D) V, and what queries read of the state before all tokens."""
    if not spec.causal:
        return Produced(q @ k.mT @ v)
    if spec.reads == "before":
        if state is None:
            return Produced(linear.products_read_before(q, k, v, g))
        end, output = linear.chunk_read_before(state, q, k, v, g)
        return Produced(output, end)
    if state is None:
        return Produced(linear.decayed_scores(q, k, linear.gate_sums(g)) @ v)
    end, output = linear.gated_chunk(state, q, k, v, g)
    return Produced(output, end)


def _by_tokens(
    spec: LinearAttention,
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    beta: Array | Erasure | None,
    state: Array | None,
) -> Produced:
    """Compute the output from the state, token by token."""
    if not spec.causal:
        return Produced(q @ (k.mT @ v))
    if isinstance(beta, Erasure):
        erasing: Compute = partial(linear.erasing_token, before=spec.erases == "before")
        return _scan_linear_state(spec, erasing, state, q, k, v, beta.p, beta.keys, g)
    step: Compute = linear.delta_token if spec.delta else linear.gated_step
    return _scan_linear_state(spec, step, state, q, k, v, beta, g)


def _scan_linear_state(
    spec: LinearAttention,
    step: Compute,
    state: Array | None,
    q: Array,
    k: Array,
    v: Array,
    *more: Array | None,
) -> Produced:
    """Scan the tokens with a step that gives q S', or with q S where the state before a token is read."""
    extras = [x for x in more if x is not None]
    if spec.reads == "before":
        step = linear.reading_before(step)
    first = linear.empty_state(k, v) if state is None else state
    end, output = linear.scan(step, first, range(int(k.shape[-2]) + 1), q, k, v, *extras)
    return Produced(output, end)


def _by_chunks(
    spec: LinearAttention,
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    beta: Array | None,
    state: Array | None,
) -> Produced:
    """Compute the output from the state, two tokens at a time."""
    # Chunks of two tokens have every part that longer ones have.
    n, gates = int(k.shape[-2]), [x for x in (g,) if x is not None]
    bounds = [*range(0, n, 2), n]
    first = linear.empty_state(k, v) if state is None else state
    chunk = linear.chunk_read_before if spec.reads == "before" else linear.gated_chunk
    end, output = linear.scan(chunk, first, bounds, q, k, v, *gates)
    return Produced(output, end)


def _list_linear_forms(spec: LinearAttention) -> tuple[Form, ...]:
    if spec.delta:
        return (_by_tokens,)
    return (_by_pairs, _by_tokens, _by_chunks) if spec.causal else (_by_pairs, _by_tokens)


def _yield_linear_ways(spec: LinearAttention) -> Iterator[Compute]:
    """Yield each form; for elu(x) + 1 also as written, whose relative error grows far below 0, where 1 cancels."""
    for form in _list_linear_forms(spec):
        yield partial(_apply_normalised_form, spec, form)
    for form in _list_linear_forms(spec) if spec.feature == "elu" else ():
        read = partial(_apply_normalised_form, replace(spec, feature="identity"), form)
        yield reading(read, q=linear.elu_then_one, k=linear.elu_then_one)


# -- mistakes ----------------------------------------------------------------------------------------------------------
#: Wrong feature maps, f(q) · f(k) for φ(q) · φ(k), besides those that a specification can have.
_OTHERS: dict[str, Callable[[Array], Array]] = {
    "elu(x), without the 1": lambda x: linear.elu_plus_one(x) - 1,
    "relu(x) + 1": lambda x: linear.relu(x) + 1,
    "x + 1": lambda x: x + 1,
    "1 + the sigmoid of x": lambda x: 1 + sigmoid(x),
    "|x|": lambda x: namespace_of(x).abs(x),
    "x²": lambda x: x * x,
    "relu(x)²": lambda x: linear.relu(x) * linear.relu(x),
    "the sigmoid of x": sigmoid,
    "softplus, log(1 + e^x)": lambda x: namespace_of(x).log(1 + namespace_of(x).exp(x)),
    "silu": silu,
    "gelu": gelu,
    "tanh": tanh,
    "e^(−x)": lambda x: powers(-x),
    "a softmax over the features": softmax,
    "a softmax over the tokens": lambda x: softmax(x.mT).mT,
}


def _yield_linear_mistakes(spec: LinearAttention) -> Iterator[DefinitionMistake]:
    form = _list_linear_forms(spec)[0]
    phi, plain = (
        FEATURES[spec.feature],
        partial(_apply_normalised_form, replace(spec, feature="identity"), form),
    )

    def of(step: str, cause: str, **fields: Any) -> DefinitionMistake:
        other = replace(spec, **fields)
        return DefinitionMistake(
            step,
            cause,
            partial(_apply_normalised_form, other, _list_linear_forms(other)[0]),
            spec=other,
        )

    for name in FEATURES:
        if name != spec.feature:
            words = "left out" if name == "identity" else f"{name}, not {spec.feature}"
            yield of("score", f"the feature map is {words}", feature=name)
    for words, feature in _OTHERS.items():
        cause = f"the feature map is {words}, not {spec.feature}"
        yield DefinitionMistake("score", cause, reading(plain, q=feature, k=feature))
    yield DefinitionMistake(
        "score", "the feature map is applied to queries alone", reading(plain, q=phi)
    )
    yield DefinitionMistake(
        "score", "the feature map is applied to keys alone", reading(plain, k=phi)
    )
    yield from _yield_norm_mistakes(spec, form)
    is_after = spec.reads == "after"
    if spec.causal and not spec.gate and not spec.delta and not spec.state and is_after:
        yield of("mask", "later tokens are seen too: the state is that of all tokens", causal=False)
    # Before those of chunks, as one chunk of all tokens may have the same mistake.
    yield from _yield_reading_mistakes(spec, form)
    yield from _yield_step_mistakes(spec, form)
    if spec.erase:
        as_given: Callable[[LinearAttention], Compute] = lambda other: partial(  # noqa: E731
            _apply_normalised_form, other, form
        )
        yield from yield_erasing_mistakes(spec, as_given, partial(_change_erasure, spec, form))
    for (step, cause), wrong in _wrong_forms(spec).items():
        yield DefinitionMistake(step, cause, partial(_apply_normalised_form, spec, wrong))
        for noun, above, below in (
            (("values", wrong, form), ("weights", form, wrong)) if spec.normalised else ()
        ):
            yield DefinitionMistake(step, f"{cause}, in the sum of the {noun} alone",
                          partial(_apply_normalised_form, spec, above, below=below))  # fmt: skip
    if spec.normalised:
        yield from _of_normalisers(spec, form)
    else:
        # Specifications with states have no normaliser.
        if not (spec.delta or spec.state or spec.step or spec.skip) and is_after:
            yield of("normalize", "it is divided by the sum of the weights", normalised=True)
        words = "queries are not scaled" if spec.scale else "queries are scaled by 1/√d_k"
        yield of("scale", words, scale=not spec.scale)
        # D v does not depend on queries.
        plain = partial(_apply_normalised_form, replace(spec, scale=False, skip=False), form)
        for (written, power), (symbol, axis) in product(
            _POWERS.items(), {"d_k": -1, "n": -2}.items()
        ):
            words = f"queries are scaled by {written.format(symbol)}"
            # 1/√d_k is a mistake of its own above, or right.
            if (symbol, power) != ("d_k", -1):
                scaled: Compute = partial(_output_of_scaled_queries, plain, power, axis)
                run = _adding_own_products(scaled, replace(spec, bonus=False))
                yield DefinitionMistake("scale", words, run if spec.skip else scaled)
    if spec.values_per_key > 1:
        yield from _yield_head_mistakes(spec, form)
    if spec.state:
        yield from _yield_state_mistakes(spec, form)
    run = partial(_apply_normalised_form, spec, form)
    if spec.gate == "head":
        yield from _yield_gates_of_other_heads(spec)
    for words, change in _GATES.items() if spec.gate else ():
        if words != _OF_THE_TOKEN_BEFORE:
            yield DefinitionMistake("values", words, reading(run, g=change))
        elif spec.gate != "head":
            # Where all tokens have one gate, that of the token before is the same.
            cause = words if is_after else "the state decays by the gate of the token before"
            yield DefinitionMistake("values", cause, reading(run, g=change))
    for words, correction in _CORRECTIONS.items() if spec.delta and not spec.erase else ():
        yield DefinitionMistake(
            "values",
            words,
            partial(_apply_normalised_form, spec, partial(_by_corrections, correction)),
        )


def _change_erasure(
    spec: LinearAttention, form: Form, change: Callable[..., tuple[Erasure, Any, Any]]
) -> Compute:
    """Return the run with an erasure, keys and values that ``change`` makes of the right ones and of the inputs."""

    def run(**given: Any) -> Any:
        read = {**given, **read_erasing_inputs(spec, given)}

        def changed(
            spec: LinearAttention,
            q: Array,
            k: Array,
            v: Array,
            g: Any,
            erasure: Erasure,
            state: Any,
        ) -> Produced:
            other, keys, values = change(erasure, k, v, read)
            return form(spec, q, keys, values, g, other, state)

        return _apply_normalised_form(spec, changed, **given)

    return run


def _yield_reading_mistakes(spec: LinearAttention, form: Form) -> Iterator[DefinitionMistake]:
    """Yield states that are read at another moment, and a wrong bonus of the token itself."""

    def by(words: str, run: Compute, other: LinearAttention | None = None) -> DefinitionMistake:
        return DefinitionMistake("values", words, run, spec=other)

    def as_given(other: LinearAttention) -> Compute:
        # A specification without a bonus ignores one.
        return partial(_apply_normalised_form, other, form)

    if spec.reads == "after":
        # Without gates the state before a token lacks the token alone, which is a mistake of masks.
        if spec.gate and not spec.normalised:
            early = replace(spec, reads="before")
            yield by("the state is read before a token is added, not after", as_given(early), early)
        return
    words = "the state is read after a token is added, not before"
    late = replace(spec, reads="after", bonus=False)
    if not spec.bonus:
        yield by(words, as_given(late), late)
    else:
        yield by(f"{words}, and the bonus is left out", as_given(late), late)
        yield by(words, _adding_own_products(as_given(replace(late, skip=False)), spec))
    if spec.gate:
        decayed: Form = partial(_by_decayed_states, form)
        words = "the state decays by a token's own gate before the token reads it"
        yield by(words, partial(_apply_normalised_form, spec, decayed))
    if spec.bonus:
        bare = replace(spec, bonus=False)
        words = "the bonus is left out: a token does not read itself"
        yield by(words, as_given(bare), bare)
        for words, change in _BONUSES.items():
            yield by(words, reading(as_given(spec), bonus=change))
        for words, change in _BONUSES_OF_HEADS.items():
            yield by(words, reading(as_given(spec), bonus=change))
        words = "the bonus is written to the state: later tokens read it, too"
        yield by(words, partial(_with_written_bonus, spec, form))
    if spec.bonus and spec.gate:
        words = "the bonus decays by the token's own gate"
        yield by(
            words, lambda g, bonus, **given: as_given(spec)(g=g, bonus=bonus * powers(g), **given)
        )


def _yield_step_mistakes(spec: LinearAttention, form: Form) -> Iterator[DefinitionMistake]:
    """Yield steps Δ and terms D v that are left out, or in the wrong place."""
    run = partial(_apply_normalised_form, spec, form)
    # A specification without a step or a skip ignores one.
    bare = partial(_apply_normalised_form, replace(spec, step=False, skip=False), form)
    for words, (gates, values) in _STEPS.items() if spec.step else ():
        changed: Compute = partial(_output_of_steps, bare, gates, values)
        yield DefinitionMistake("values", words, _adding_own_products(changed, spec))
    if not spec.skip:
        return
    without = replace(spec, skip=False)
    words = "the added term D x is left out"
    yield DefinitionMistake(
        "values", words, partial(_apply_normalised_form, without, form), spec=without
    )
    words = "the added term is x, without D"
    yield DefinitionMistake("values", words, reading(run, skip=lambda d: 0 * d + 1))
    if spec.step:
        words = "the added term is D Δ x, not D x"
        scaled = replace(spec, step=False)
        yield DefinitionMistake(
            "values",
            words,
            lambda g, v, dt, **given: _apply_normalised_form(
                scaled, form, g=dt * g, v=dt * v, **given
            ),
        )
    for words, change in _SKIPS_OF_HEADS.items():
        yield DefinitionMistake("values", words, reading(run, skip=change))


def _output_of_steps(
    run: Compute,
    of_gates: Callable[[Array], Any],
    of_values: Callable[[Array], Any],
    g: Array,
    v: Array,
    dt: Array,
    **given: Any,
) -> Any:
    """Return the run with gates and values that are multiplied by functions of the step."""
    return run(g=of_gates(dt) * g, v=of_values(dt) * v, **given)


def _adding_own_products(run: Compute, spec: LinearAttention) -> Compute:
    """Return a run without a bonus and a skip, and what these give added to its outputs."""
    alone = partial(_apply_normalised_form, replace(spec, state=None, step=False), _read_nothing)

    def added(**given: Any) -> Any:
        outputs = run(**given)
        result, *states = outputs if isinstance(outputs, tuple) else (outputs,)
        own = alone(**given)
        return (result + own, *states) if states else result + own

    return added


def _read_nothing(spec: LinearAttention, q: Array, k: Array, v: Array, *more: object) -> Produced:
    return Produced(0 * v)


def _by_decayed_states(
    form: Form, spec: LinearAttention, q: Array, k: Array, v: Array, g: Array, *more: Array | None
) -> Produced:
    """Return ``form`` with the state that a token reads decayed by the token's own gate."""
    return form(spec, q * powers(g), k, v, g, *more)


def _with_written_bonus(
    spec: LinearAttention, form: Form, k: Array, bonus: Array, **given: Any
) -> Any:
    """Return the run with b ⊙ k written in the place of k; the token itself is read by its bonus once."""
    writing: Form = lambda other, q, k, *more: form(other, q, k * bonus, *more)  # noqa: E731
    bare = partial(_apply_normalised_form, replace(spec, bonus=False, skip=False), writing)
    return _adding_own_products(bare, spec)(k=k, bonus=bonus, **given)


def _yield_gates_of_other_heads(spec: LinearAttention) -> Iterator[DefinitionMistake]:
    """Yield one gate a head that is that of another head."""
    run = partial(_apply_normalised_form, spec, _list_linear_forms(spec)[0])
    for words, change in _GATES_OF_HEADS.items():
        yield DefinitionMistake("values", words, reading(run, g=change))


def _yield_head_mistakes(spec: LinearAttention, form: Form) -> Iterator[DefinitionMistake]:
    """Yield other heads of queries and keys for heads of values, and gates and β of another head of the group."""
    times = spec.values_per_key
    repeated = partial(repeat_heads, times=times)
    bare = partial(_apply_normalised_form, replace(spec, values_per_key=1), form)
    of_keys = {x: repeated for x in ERASING_INPUTS[spec.erase] if is_of_keys(spec, x)}
    run = reading(bare, **of_keys)
    for words, chosen in _OTHER_HEADS.items():
        other = partial(chosen, times=times)
        for noun, q, k in (
            ("queries and keys", other, other),
            ("queries", other, repeated),
            ("keys", repeated, other),
        ):
            yield DefinitionMistake("split", words.format(noun), reading(run, q=q, k=k))
    of_first: Callable[[Any], Any] = lambda x: repeat_heads(x[..., ::times, :, :], times)  # noqa: E731
    nouns = {"g": "gate"} if spec.gate else {}
    nouns |= {"beta": "β"} if spec.has_beta else {}
    nouns |= {"b": "erase gates", "w": "write gates"} if spec.erase == "gates" else {}
    for name, noun in {**nouns, "v": "values"}.items():
        words = f"all heads of values that share a key have the {noun} of the first of them"
        right = partial(_apply_normalised_form, spec, form)
        yield DefinitionMistake("split", words, reading(right, **{name: of_first}))


def _yield_state_mistakes(spec: LinearAttention, form: Form) -> Iterator[DefinitionMistake]:
    """Yield states that are lost, transposed, or handed over without a decay."""
    run = partial(_apply_normalised_form, spec, form)
    lost = reading(run, initial_state=lambda state: 0 * state)

    def by(words: str, changed: Compute) -> DefinitionMistake:
        return DefinitionMistake("cache", words, changed)

    def of_final(wrong: Compute) -> Compute:
        """Return the run with the final state of a wrong one."""
        return lambda **given: (run(**given)[0], wrong(**given)[1])

    def of_outputs(wrong: Compute) -> Compute:
        return lambda **given: (wrong(**given)[0], run(**given)[1])

    yield by("the initial state is left out", lost)
    yield by("the initial state is left out of the final state", of_final(lost))
    yield by("the initial state is left out of the outputs", of_outputs(lost))
    turned = reading(run, initial_state=_transposed_if_square)
    yield by("the initial state is read transposed, where d_k = d_v", turned)
    words = "the final state is returned transposed, where d_k = d_v"
    yield by(words, lambda **given: _transpose_final_state(run(**given)))
    other = "values by keys" if spec.state == "kv" else "keys by values"
    words = f"states are read and returned as {other}, where d_k = d_v, not as {spec.state}"
    yield by(words, lambda **given: _transpose_final_state(turned(**given)))
    yield by(
        "the final state is the initial one",
        lambda **given: (run(**given)[0], given["initial_state"] * 1),
    )
    # A token without a key writes nothing; of a pair, nothing along b either.
    last = ("k", *(("g",) if spec.gate else ()), *(("b",) if spec.erase == "pair" else ()))
    unwritten = reading(run, **dict.fromkeys(last, _without_last))
    yield by("the final state is that before the last token", of_final(unwritten))
    if not spec.gate:
        return
    undecayed_first = reading(run, g=_without_first)
    words = "the initial state is handed over undecayed: the first token's gate does not decay it"
    yield by(words, undecayed_first)
    still = reading(run, g=lambda g: 0 * g)
    alone = reading(still, v=lambda v: 0 * v)
    words = "the initial state is handed over undecayed: no gate decays it"
    yield by(
        words,
        # Outputs are affine in the state: what the tokens give, and what the state gives.
        lambda **given: tuple(a + b for a, b in zip(lost(**given), alone(**given), strict=True)),
    )
    words = "the final state is handed over undecayed by the last token's gate"
    yield by(words, of_final(reading(run, g=_without_last)))
    yield by("the final state is handed over undecayed: no gate decays it", of_final(still))


def _transpose_final_state(outputs: tuple[Any, Any]) -> tuple[Any, Any]:
    return outputs[0], _transposed_if_square(outputs[1])


def _without_last(x: Array) -> Array:
    """Return the rows of tokens with zeros for the last."""
    return namespace_of(x).concat([x[..., :-1, :], 0 * x[..., -1:, :]], axis=-2)


def _without_first(x: Array) -> Array:
    """Return the rows of tokens with zeros for the first."""
    return namespace_of(x).concat([0 * x[..., :1, :], x[..., 1:, :]], axis=-2)


def _repeat_one_head(x: Array, times: int, head: int) -> Array:
    # A sum of one head and 0 times all others keeps the number of heads.
    return repeat_heads(0 * x + x[..., head : head + 1 or None, :, :], times)


#: Other heads of queries or keys for the heads of values.
_OTHER_HEADS: dict[str, Callable[..., Array]] = {
    "heads of {} are tiled (repeat), not repeated (repeat_interleave)": tile_heads,
    "every head of values reads the first head of {}": partial(_repeat_one_head, head=0),
    "every head of values reads the last head of {}": partial(_repeat_one_head, head=-1),
}
#: Axes besides the features that a norm may run over.
_AXES_OF_NORMS: dict[tuple[int, ...], str] = {
    (-2,): "the tokens", (-1, -2): "tokens and features together", (-3,): "the heads", (-1, -3): "all heads together",
}  # fmt: skip


def _yield_norm_mistakes(spec: LinearAttention, form: Form) -> Iterator[DefinitionMistake]:
    """Yield wrong norms of queries and keys, in both or in one of them."""
    phi, eps = FEATURES[spec.feature], spec.eps or _USUAL_EPS
    bare = replace(spec, qk_norm=None, eps=0)
    plain = partial(_apply_normalised_form, replace(bare, feature="identity"), form)
    good = norms.right("l2")

    length_one = partial(good, eps=eps)
    # p has no features, and the right norm if there is one.
    of_erased = {"p": length_one} if spec.erase == "vector" and spec.qk_norm else {}

    def by(words: str, q: Callable[[Any], Any], k: Callable[[Any], Any]) -> DefinitionMistake:
        changed = reading(plain, q=lambda x: q(phi(x)), k=lambda x: k(phi(x)), **of_erased)
        return DefinitionMistake("norm", words, changed)

    if spec.qk_norm is None:
        words = "queries and keys are divided by their lengths"
        yield by(words, length_one, length_one)
        yield by("queries are divided by their lengths", length_one, identity)
        yield by("keys are divided by their lengths", identity, length_one)
        return
    run = partial(_apply_normalised_form, bare, form)
    yield DefinitionMistake("norm", "queries and keys are not normalised", run, spec=bare)
    yield by("keys are not normalised", length_one, identity)
    yield by("queries are not normalised", identity, length_one)
    wrong = [*norms.norms("l2", spec.eps, _AXES_OF_NORMS), *_OTHER_NORMS.items()]
    for words, how in wrong:
        both = partial(how, eps=spec.eps)
        yield by(words, both, both)
        for noun, pair in {"queries": (both, length_one), "keys": (length_one, both)}.items():
            yield by(f"in the norm of {noun} alone: {words}", *pair)
    if spec.feature != "identity":
        after: Any = lambda x: phi(length_one(x))  # noqa: E731
        words = "queries and keys are normalised before the feature map, not after it"
        yield DefinitionMistake("norm", words, reading(plain, q=after, k=after, **of_erased))
    if spec.delta and not spec.erase:
        words = "keys are normalised where they are written, not where what they replace is read"
        yield DefinitionMistake("norm", words, partial(_output_of_half_normed_keys, spec, True))
        words = "keys are normalised where what they replace is read, not where they are written"
        yield DefinitionMistake("norm", words, partial(_output_of_half_normed_keys, spec, False))


#: The ε of public layers, for a norm that a specification lacks.
_USUAL_EPS = Fraction(1, 10**6)
#: Measures of vectors in the place of their length.
_OTHER_NORMS: dict[str, norms.Norm] = {
    "it divides by the root of the mean square, not by the length (as in RMSNorm)": norms.Norm(False, False),
    "it divides by the sum of |x|, not by the length": norms.Norm(
        False, False, lambda mean, y, n: mean(namespace_of(y).abs(y)) * n, lambda xp, v, eps: v + eps
    ),
}  # fmt: skip


def _output_of_half_normed_keys(
    spec: LinearAttention,
    where_written: bool,
    q: Array,
    k: Array,
    v: Array,
    g: Array | None = None,
    beta: Array | None = None,
    initial_state: Array | None = None,
    skip: Array | None = None,
) -> Any:
    """Compute the delta rule with keys that are normalised at one of their two places alone."""
    bare = _repeat_for_values(spec, FEATURES[spec.feature](k))
    normed = _read_features(spec, k)
    written, read = (normed, bare) if where_written else (bare, normed)

    def token(
        state: Array, q: Array, k: Array, v: Array, read: Array, beta: Array, g: Array | None = None
    ) -> tuple[Array, Array]:
        state = linear.decayed(state, g)
        state = state + beta * (k.mT @ (v - read @ state))
        return state, q @ state

    def form(
        spec: LinearAttention,
        q: Array,
        k: Array,
        v: Array,
        g: Array | None,
        beta: Array | None,
        state: Array | None,
    ) -> Produced:
        return _scan_linear_state(spec, token, state, q, written, v, read, beta, g)

    return _apply_normalised_form(spec, form, q, k, v, g, beta, initial_state, skip=skip)


#: Runs of attention that take as long as one of the delta rule, token by token.
_RUNS_OF_A_SCAN = 16
#: Effort of the search for a smaller input of the delta rule, each of which takes milliseconds to judge.
_TRIALS_OF_A_SCAN = 150
#: Sizes of chunks of the delta rule, whose triangular systems take longer to solve.
_WIDTHS_OF_CORRECTED_CHUNKS = (16, 32, 64, 128)
#: Powers of a size, in halves.
_POWERS = {"{}": 2, "√{}": 1, "1/√{}": -1, "1/{}": -2, "1/{}²": -4}


def _output_of_scaled_queries(
    run: Compute, halves: int, axis: int, q: Array, **given: Array
) -> Any:
    """Return the output for scaled queries, by linearity, and the state, which queries do not change."""
    xp, size = namespace_of(q), int(q.shape[axis])
    root = xp.sqrt(xp.asarray(size, dtype=q.dtype))
    outputs = run(q=q, **given)
    result, *states = outputs if isinstance(outputs, tuple) else (outputs,)
    for _ in range(abs(halves)):
        result = result * root if halves > 0 else result / root
    return (result, *states) if states else result


#: What a token adds to the state along its key, from v, from k S, the state's value for it, and from β.
Correction = Callable[[Array, Array, Array], Array]
_CORRECTIONS: dict[str, Correction] = {
    "the delta rule is left out: values are added, times β": lambda v, old, beta: beta * v,
    "the delta rule's correction has the other sign: β (v + k S) is added to the state":
        lambda v, old, beta: beta * (v + old),
    "β multiplies only the added value: the replaced value is erased completely": lambda v, old, beta: beta * v - old,
    "β multiplies only the erased value: new values are added in full": lambda v, old, beta: v - beta * old,
}  # fmt: skip


def _by_corrections(
    correction: Correction,
    spec: LinearAttention,
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    beta: Array | None,
    state: Array | None,
) -> Produced:
    def token(
        state: Array, q: Array, k: Array, v: Array, beta: Array, g: Array | None = None
    ) -> tuple[Array, Array]:
        state = linear.decayed(state, g)
        state = state + k.mT @ correction(v, k @ state, beta)
        return state, q @ state

    return _scan_linear_state(spec, token, state, q, k, v, beta, g)


def _by_undecayed_corrections(
    spec: LinearAttention,
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    beta: Array | None,
    state: Array | None,
) -> Produced:
    def token(
        state: Array, q: Array, k: Array, v: Array, beta: Array, g: Array
    ) -> tuple[Array, Array]:
        correction = beta * (v - k @ state)
        state = linear.decayed(state, g) + k.mT @ correction
        return state, q @ state

    return _scan_linear_state(spec, token, state, q, k, v, beta, g)


def _wrong_forms(spec: LinearAttention) -> dict[tuple[str, str], Form]:
    """Return wrong sums over the tokens, by step and cause."""
    result: dict[tuple[str, str], Form] = {}
    is_before = spec.reads == "before"
    if spec.causal and not is_before:
        earlier = Chunks(lambda i, j: j < i)
        # So many tokens are one chunk.
        result["mask", "a token does not see itself"] = partial(_by_wrong_chunks, earlier, 10**6)
    gated = {
        key: how
        for key, how in (_GATED_CHUNKS | (_GATED_CHUNKS_READ_BEFORE if is_before else {})).items()
        # The state before a token has not decayed by the token's own gate.
        if not (is_before and key == _UNDECAYED_BY_OWN_GATE)
    }
    if spec.gate == "head":
        # The first token of a chunk has the gate of its last.
        gated = {key: how for key, how in gated.items() if key != _BY_FIRST_GATE}
    chunks = _CHUNKS | (_CHUNKS_READ_BEFORE if is_before else {}) | (gated if spec.gate else {})
    if spec.delta:
        chunks |= _UNCORRECTED_CHUNKS.get(spec.erase, {}) | _CORRECTED_CHUNKS[spec.erase]
        of_gates = _CORRECTED_GATED_CHUNKS | _ERASED_BEFORE_CHUNKS
        for key, how in of_gates.items() if spec.gate else ():
            # What has not decayed by the token's own gate, and what has, is right for one of both.
            if (key == _READ_UNDECAYED) != (spec.erases == "before") or key == _READ_STILL:
                chunks[key] = how
    if spec.gate and not spec.delta:
        words = "a token's gate decays what the token itself adds, too"
        result["values", words] = _by_pairs_with_decayed_keys
    widths = _WIDTHS_OF_CORRECTED_CHUNKS if spec.delta else WIDTHS[1:-1]
    for size in widths if spec.causal else ():
        for (step, cause), how in chunks.items():
            result[step, cause.format(size)] = partial(_by_wrong_chunks, how, size)
    if spec.gate and spec.delta and not spec.erase:
        words = "what a token replaces is read from the state before it decays"
        result["values", words] = _by_undecayed_corrections
    return result


def _by_pairs_with_decayed_keys(
    spec: LinearAttention, q: Array, k: Array, v: Array, g: Array, *more: Array | None
) -> Produced:
    return _by_pairs(spec, q, k * powers(g), v, g, *more)


def _of_normalisers(spec: LinearAttention, form: Form) -> Iterator[DefinitionMistake]:
    bare = replace(spec, normalised=False)
    phi: Callable[[Any], Any] = partial(_read_features, spec)
    right = partial(_apply_normalised_form, bare, form)

    def over(cause: str, divisor: Compute) -> DefinitionMistake:
        return DefinitionMistake(
            "normalize", cause, lambda **given: right(**given) / divisor(**given)
        )

    yield DefinitionMistake("normalize", "it is not divided by the sum of the weights", right)
    # A default argument, as the loop's function is called later.
    for words, divisor in _DIVISORS.items():
        yield over(words, lambda q, k, divisor=divisor, **given: divisor(phi(q), phi(k)))
    plain = partial(_apply_normalised_form, replace(bare, feature="identity"), form)
    for noun, name in (("keys", "q"), ("queries", "k")) if spec.feature != "identity" else ():
        words = f"the sum that it is divided by is of {noun} without the feature map"
        # The norm and the heads come after the features, in the run itself.
        changes = {name: FEATURES[spec.feature], "v": _make_unit_values}
        yield over(words, reading(plain, **changes))


def _multiply_by_cumulative_sum(a: Array, b: Array, axis: int) -> Array:
    xp = namespace_of(a)
    return xp.sum(a * xp.cumulative_sum(b, axis=axis), axis=-1, keepdims=True)


#: Wrong divisors, from the features of queries and keys.
_DIVISORS: dict[str, Callable[[Array, Array], Array]] = {
    "the sum of all keys is in the normaliser, not that of earlier ones": lambda a, b: (
        a @ namespace_of(b).sum(b, axis=-2, keepdims=True).mT
    ),
    "the normaliser is a cumulative sum over the heads, not over the tokens": partial(
        _multiply_by_cumulative_sum, axis=-3
    ),
    "the normaliser is a cumulative sum over the features": partial(
        _multiply_by_cumulative_sum, axis=-1
    ),
    "it is divided by the sum of the keys' features, without the queries'": lambda a, b: (
        _multiply_by_cumulative_sum(0 * a + 1, b, -2)
    ),
    "it is divided by the number of tokens": lambda a, b: namespace_of(b).asarray(
        int(b.shape[-2]), dtype=b.dtype
    ),
}


def _take_token_before(x: Array) -> Any:
    """Return the rows of the token before each, and zeros for the first."""
    return namespace_of(x).concat([0 * x[..., :1, :], x[..., :-1, :]], axis=-2)


_OF_THE_TOKEN_BEFORE = "the state decays after a token is added, not before"
_GATES: dict[str, Callable[[Array], Array]] = {
    "the gates are left out": lambda g: 0 * g,
    "gates are taken as decays, not as logarithms of them":
        lambda g: namespace_of(g).log(namespace_of(g).where(g < 0, -g, 1)),
    # by the gate of the token before; the first has none
    _OF_THE_TOKEN_BEFORE: _take_token_before,
    "decays are sigmoids of the gates, not their exponentials": lambda g: namespace_of(g).log(sigmoid(g)),
    "decays are sigmoids of the gates with the other sign": lambda g: namespace_of(g).log(sigmoid(-g)),
    "the state is multiplied by 1 − e^g, not by e^g": lambda g: namespace_of(g).log(1 - powers(g)),
    "the state is multiplied by 1 + g, not by e^g": lambda g: namespace_of(g).log(1 + g),
    "gates count twice: decays are squared": lambda g: 2 * g,
    "gates are taken with the other sign: the state grows": lambda g: -g,
}  # fmt: skip


def _take_numbers_of_head(head: int, x: Array) -> Any:
    # A sum of one head and 0 times all others keeps the number of heads.
    return 0 * x + x[..., head : head + 1 or None, :, :]


def _turn_heads(x: Array) -> Any:
    """Return the numbers of the next head for each head, those of the first for the last."""
    return namespace_of(x).concat([x[..., 1:, :, :], x[..., :1, :, :]], axis=-3)


def _reverse_heads(x: Array) -> Any:
    return namespace_of(x).flip(x, axis=-3)


def _numbers_of_other_heads(one: str, all_of_them: str) -> dict[str, Callable[[Array], Any]]:
    """Return causes, and numbers of another head (…, h, ·, ·), from the words for one head's and for those of all."""
    return {
        f"heads have {all_of_them} in the opposite order": _reverse_heads,
        f"each head has {one} of the next one": _turn_heads,
        f"every head has {one} of the first": partial(_take_numbers_of_head, 0),
        f"every head has {one} of the last": partial(_take_numbers_of_head, -1),
    }


_GATES_OF_HEADS = _numbers_of_other_heads("the gate", "the gates")


def _take_softplus(x: Array) -> Any:
    return namespace_of(x).log(1 + namespace_of(x).exp(x))


#: What multiplies gates, and values, from the step Δ (…, n, 1), where these are wrong.
_STEPS: dict[str, tuple[Callable[[Array], Any], Callable[[Array], Any]]] = {
    "the step Δ is left out: it multiplies neither gates nor values": (lambda d: 0 * d + 1, lambda d: 0 * d + 1),
    "the step Δ multiplies the gates alone, not the values": (identity, lambda d: 0 * d + 1),
    "the step Δ multiplies the values alone, not the gates": (lambda d: 0 * d + 1, identity),
    "the step Δ multiplies the values twice": (identity, lambda d: d * d),
    "a softplus is taken of the step Δ, which is given after its own": (_take_softplus, _take_softplus),
    "the gates have the step Δ of the token before": (_take_token_before, identity),
}  # fmt: skip
_SKIPS_OF_HEADS = _numbers_of_other_heads("the D", "the D of the added term")
#: Wrong bonuses (…, 1, d_k) of the token itself.
_BONUSES: dict[str, Callable[[Array], Any]] = {
    "the bonus is 1 for every feature": lambda b: 0 * b + 1,
    "the bonus is added to 1: a token reads itself as the state will have it, too": lambda b: 1 + b,
    "the bonus is e^u, not u": powers,
}  # fmt: skip
_BONUSES_OF_HEADS = _numbers_of_other_heads("the bonus", "the bonus")


# -- chunks ------------------------------------------------------------------------------------------------------------
#: From the gates of a chunk, their sums up to each token, and the sums of those that have decayed what it reads.
Exponents = Callable[[Array, Array, Array], Any]
#: From the place of each token in the sequence, (n, 1), and the size of chunks: which tokens something is done for.
Places = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Chunks:
    """Attention by chunks, each part of which can be wrong.

    seen      which tokens of its own chunk a token reads
    between   exponent of the decay between two tokens of a chunk
    queries   the same of the state for a query
    read      the same of the state for what a token replaces (delta rule)
    keys      the same of what a key adds to the state
    state     the same of the state over the chunk
    carried   what the state becomes, from its decayed one and what the chunk adds
    passed    what the next chunk gets of it
    late      whether the state after the chunk is read, not the one before
    system    the factor of the rows of L, from β (delta rule), or from 1 where an erasure is given
    is_bare   whether L has what is erased without its factor, where an erasure is given
    kept      the tokens whose values are added
    decaying  the tokens whose gates count
    itself    where the state before a token is read: whether it sees itself in its chunk
    """

    seen: Callable[[Any, Any], Any] = lambda i, j: j <= i
    between: Exponents = lambda g, s, r: r[..., :, None, :] - s[..., None, :, :]
    queries: Exponents = lambda g, s, r: r
    read: Exponents = lambda g, s, r: r
    keys: Exponents = lambda g, s, r: s[..., -1:, :] - s
    state: Exponents = lambda g, s, r: s[..., -1:, :]
    carried: Callable[[Array, Array], Any] = lambda old, new: old + new
    passed: Callable[[Any], Any] = identity
    late: bool = False
    system: Callable[[Array], Any] = identity
    is_bare: bool = False
    kept: Places | None = None
    decaying: Places | None = None
    itself: bool = False

    def token(
        self,
        state: Array,
        q: Array,
        k: Array,
        v: Array,
        g: Array,
        kept: Array,
        beta: Array | None = None,
        bare: Array | None = None,
        reads_before: bool = False,
        erases_before: bool = False,
        is_given: bool = False,
        steps: int = 1,
    ) -> tuple[Array, Array]:
        """Return the state after a chunk, and the outputs of its tokens; ``kept`` is 1 for tokens that are added.

        If ``is_given``, ``beta`` has the rows p of what is erased, ``bare`` these without a factor, and v is what is
        written. A token has so many ``steps``.
        """
        xp, sums = namespace_of(q), namespace_of(g).cumulative_sum(g, axis=-2)
        reads = sums - g if reads_before else sums
        erasing = sums - g if erases_before else sums
        # The gate of its token, of a step that has none itself.
        g = join_steps(g[..., ::2, :], g[..., ::2, :]) if steps > 1 else g
        # The exponents between all pairs of the chunk.
        between = self.between(g, sums, reads)
        without_itself = reads_before and not self.itself
        if beta is not None:
            decays, of_keys = xp.exp(self.read(g, sums, erasing)), self.between(g, sums, erasing)
            p, one = (beta, 0 * beta[..., :1] + 1) if is_given else (k, beta)
            # b of the triangular system: what a token writes, less what the state has for its key.
            right = one * (v - (p * decays) @ state)
            of_system = bare if bare is not None and self.is_bare else p
            below = _decayed_pairs(of_system, k, of_keys, lambda i, j: j < i)
            v = _substituted(self.system(one) * below, right)
        v = v * kept
        seen = (lambda i, j: self.seen(i, j) & (i != j)) if without_itself else self.seen
        inner = _decayed_pairs(q, k, between, seen, steps)
        added = (k * xp.exp(self.keys(g, sums, reads))).mT @ v
        new = self.carried(linear.decayed(state, self.state(g, sums, reads)), added)
        read = (q * xp.exp(self.queries(g, sums, reads))) @ (new if self.late else state)
        return self.passed(new), read + inner @ v


def _decayed_pairs(
    q: Array, k: Array, between: Any, seen: Callable[[Any, Any], Any], steps: int = 1
) -> Array:
    """Return Σ_f q_if k_jf e^{between_ijf} where ``seen``, 0 elsewhere, for so many rows a token. Shape: (…, n, n)."""
    xp, place = namespace_of(q), namespace_of(q).arange(q.shape[-2])
    if steps > 1:
        place = xp.asarray(np.arange(int(q.shape[-2])) // steps)
    open_ = seen(place[:, None], place[None, :])
    # Exponents of hidden pairs become 0 first, as they might overflow.
    decays = xp.where(open_[:, :, None], xp.exp(xp.where(open_[:, :, None], between, 0)), 0)
    # One gate a token decays whole products, so no axis of features is needed.
    if int(between.shape[-1]) == 1:
        return (q @ k.mT) * decays[..., 0]
    return xp.sum(q[..., :, None, :] * k[..., None, :, :] * decays, axis=-1)


def _substituted(below: Array, right: Array) -> Array:
    """Return (I + L)⁻¹ B for L below the diagonal, row by row."""
    rows = right[..., :1, :]
    for i in range(1, int(right.shape[-2])):
        row = right[..., i : i + 1, :] - below[..., i : i + 1, :i] @ rows
        rows = namespace_of(right).concat([rows, row], axis=-2)
    return rows


def _by_wrong_chunks(
    how: Chunks,
    size: int,
    spec: LinearAttention,
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    beta: Array | None,
    state: Array | None,
) -> Produced:
    n, xp = int(k.shape[-2]), namespace_of(k)
    # Without gates zeros stand in, so that one step serves both.
    gates: Any = 0 * k[..., :1] if g is None else g
    # A pair takes two steps a token.
    steps, p, bare = 1, None, None
    if isinstance(beta, Erasure):
        p, bare = beta.p, beta.bare
    if isinstance(beta, Erasure) and spec.erase == "pair":
        steps = 2
        q, k, v, gates, p = in_steps(q, k, v, gates, beta)
    place = np.arange(steps * n)[:, None] // steps
    if how.decaying is not None:
        gates = xp.where(xp.asarray(how.decaying(place, size)), gates, 0)
    retention = 0 * gates[..., :1] + 1
    if how.kept is not None:
        retention = xp.where(xp.asarray(how.kept(place, size)), retention, 0)
    corrections = beta if p is None else p
    more = tuple(a for a in (corrections, bare) if a is not None)
    bounds = [steps * at for at in (*range(0, n, size), n)]
    first = linear.empty_state(k, v) if state is None else state
    is_before = spec.reads == "before"
    token = partial(
        how.token,
        reads_before=is_before,
        erases_before=spec.erases == "before",
        is_given=p is not None,
        steps=steps,
    )
    end, output = linear.scan(token, first, bounds, q, k, v, gates, retention, *more)
    if steps > 1:
        output = output[..., 0 if is_before else 1 :: 2, :]
    return Produced(output, end)


def _transposed_if_square(state: Any) -> Any:
    return state.mT if int(state.shape[-1]) == int(state.shape[-2]) else state


#: Wrong chunks, by step and cause; {} is the number of tokens.
_CHUNKS = {
    ("cache", "the state is not carried over from one chunk of {} tokens to the next"):
        Chunks(carried=lambda old, new: 0 * old),
    ("cache", "the state that a chunk of {} tokens reads is that of the chunk before alone"):
        Chunks(carried=lambda old, new: new),
    ("cache", "the state is updated before a chunk of {} tokens reads it: its own tokens count twice"):
        Chunks(late=True),
    ("cache", "the state is transposed between chunks of {} tokens, where d_k = d_v"):
        Chunks(passed=_transposed_if_square),
    ("cache", "the first token of every chunk of {} tokens but the first is lost"):
        Chunks(kept=lambda place, size: (place % size > 0) | (place < size)),
    ("cache", "the last token of every chunk of {} tokens is lost"):
        Chunks(kept=lambda place, size: place % size < size - 1),
    ("mask", "a token also sees later tokens of its own chunk of {}"): Chunks(lambda i, j: j >= 0),
    ("mask", "the mask within chunks of {} tokens is transposed: a token sees itself and later ones"):
        Chunks(lambda i, j: j >= i),
    ("mask", "a token does not see its own chunk of {} tokens: it reads the state before that alone"):
        Chunks(lambda i, j: j < 0),
}  # fmt: skip
_UNDECAYED_BY_OWN_GATE = (
    "values",
    "the state that a token reads does not decay by its own gate (chunks of {})",
)
_BY_FIRST_GATE = (
    "values",
    "the state decays over a chunk of {} tokens by the gate of the first one alone",
)
_GATED_CHUNKS = {
    ("values", "the decay between the tokens of a chunk of {} is left out"):
        Chunks(between=lambda g, s, r: 0 * s[..., :, None, :]),
    ("values", "within a chunk of {} tokens, the gate of a token decays what the token itself adds, too"):
        Chunks(between=lambda g, s, r: r[..., :, None, :] - (s - g)[..., None, :, :]),
    ("values", "the state does not decay from one chunk of {} tokens to the next"):
        Chunks(state=lambda g, s, r: 0 * g[..., -1:, :]),
    ("values", "the state decays over a chunk of {} tokens by the gate of the last one alone"):
        Chunks(state=lambda g, s, r: g[..., -1:, :]),
    _BY_FIRST_GATE:
        Chunks(state=lambda g, s, r: g[..., :1, :]),
    ("values", "the state that a token reads does not decay within its chunk of {}"):
        Chunks(queries=lambda g, s, r: 0 * s),
    _UNDECAYED_BY_OWN_GATE:
        Chunks(queries=lambda g, s, r: s - g),
    ("values", "what a token adds to the state does not decay to the end of its chunk of {}"):
        Chunks(keys=lambda g, s, r: 0 * s),
    ("values", "what a token adds to the state decays from the start of its chunk of {}, not to the end"):
        Chunks(keys=lambda g, s, r: s),
    ("values", "the state decays over a chunk of {} tokens after these are added, not before"):
        Chunks(keys=lambda g, s, r: 2 * s[..., -1:, :] - s),
    ("values", "the gate of the first token of every chunk of {} tokens but the first is left out"):
        Chunks(decaying=lambda place, size: (place % size > 0) | (place < size)),
    ("values", "the gate of the last token of every chunk of {} tokens is left out"):
        Chunks(decaying=lambda place, size: place % size < size - 1),
}  # fmt: skip
#: Wrong chunks where the state before a token is read.
_CHUNKS_READ_BEFORE = {
    ("mask", "within its chunk of {} a token also reads itself"): Chunks(itself=True),
}  # fmt: skip
_GATED_CHUNKS_READ_BEFORE = {
    ("values", "the state that a token reads decays by its own gate, too (chunks of {})"):
        Chunks(queries=lambda g, s, r: s),
    ("values", "what a token reads of its chunk of {} decays by the token's own gate, too"):
        Chunks(between=lambda g, s, r: s[..., :, None, :] - s[..., None, :, :]),
}  # fmt: skip
#: Wrong chunks of the delta rule.
_WITHOUT_BETA = ("values", "β is left out of the triangular system of chunks of {} tokens")
_WITHOUT_GATES = (
    "values", "the erase gates b are left out of the triangular system of chunks of {} tokens"
)  # fmt: skip
_CORRECTED_CHUNKS: dict[str | None, dict[tuple[str, str], Chunks]] = {
    None: {_WITHOUT_BETA: Chunks(system=lambda beta: 0 * beta + 1)},
    "vector": {_WITHOUT_BETA: Chunks(is_bare=True)},
    "gates": {_WITHOUT_GATES: Chunks(is_bare=True)},
    "pair": {},
}
_UNCORRECTED = ("values", "tokens of a chunk of {} do not erase what earlier ones of it wrote")
_UNCORRECTED_CHUNKS: dict[str | None, dict[tuple[str, str], Chunks]] = {
    rule: {_UNCORRECTED: Chunks(system=lambda one: 0 * one)} for rule in ("vector", "gates", "pair")
}
_READ_STILL = (
    "values",
    "what a token replaces is read from a state that does not decay within its chunk of {}",
)
_READ_UNDECAYED = (
    "values",
    "what a token replaces is read from a state that does not decay by the token's own gate (chunks of {})",
)
_CORRECTED_GATED_CHUNKS = {
    _READ_STILL: Chunks(read=lambda g, s, r: 0 * s),
    _READ_UNDECAYED: Chunks(read=lambda g, s, r: s - g),
}
#: Wrong chunks where tokens erase before their own gates.
_ERASED_BEFORE_CHUNKS = {
    ("values", "what a token replaces is read from a state that decays by the token's own gate, too (chunks of {})"):
        Chunks(read=lambda g, s, r: s),
}  # fmt: skip
