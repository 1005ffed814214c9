"""The inputs of ``LinearAttention``: names, shapes, entries to draw, and the checks of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.arrays.array import Array
from symattn.bounds.called_target import Layout
from symattn.bounds.mistake import Compute
from symattn.document.errors import InputError
from symattn.verification.definitions.attending import in_front, in_order, ordered, placed
from symattn.verification.definitions.definition_subject import Entries, Input
from symattn.verification.definitions.linear_erasure import ERASING_INPUTS, is_of_keys
from symattn.verification.definitions.linear_ways import LinearInputs
from symattn.verification.definitions.raw_gates import (
    as_rows_of_heads,
)
from symattn.verification.definitions.recurrent_law import repeat_for_tokens

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention

# n, d_k and d_v of each case.
_SIZES = (
    (2, 2, 3),
    (3, 4, 2),
    (5, 3, 4),
    (1, 2, 2),
    (4, 1, 1),
    (8, 2, 3),
    (9, 3, 1),
    (17, 2, 2),
    (16, 4, 3),
    (33, 1, 1),
)
#: The inputs of gates, of β and of what is erased, which a specification has or has not, and a field for each.
_FIELDS_OF_INPUTS = {
    "g": "gate='token', gate='feature' or gate='head'",
    "beta": "delta=True",
    "bonus": "reads='before' and bonus=True",
    "dt": "gate='head' and step=True",
    "skip": "skip=True",
    "A_log": "gate='token' or gate='feature', and gate_form='softplus'",
    "dt_bias": "gate='token' or gate='feature', and gate_form='softplus'; or step=True, and step_form='softplus'",
    "p": "delta=True and erase='vector'",
    "b": "delta=True and erase='gates' or erase='pair'",
    "w": "delta=True and erase='gates'",
    "a": "delta=True and erase='pair'",
}
#: Other names of these inputs; a and b of a pair are also called by the letters of diagonal-plus-low-rank rules.
_WORDS_OF_ERASING = {
    ("vector", "p"): "auxiliary auxiliary_key aux pk",
    ("gates", "b"): "erase erase_gate beta",
    ("gates", "w"): "write write_gate",
    ("pair", "a"): "alpha removal",
    ("pair", "b"): "beta",
}
#: Other names of the state before the first token.
WORDS_OF_STATES = "state h0 s0 initial recurrent_state ssm_state"
#: Inputs whose shapes are checked by themselves, also where they are left out.
_CHECKED_BY_SHAPE = ("bonus", "dt", "skip", "A_log", "dt_bias")


def inputs_beside(spec: LinearAttention) -> tuple[str, ...]:
    """Return the names of the inputs beside q, k, v and a state."""
    has = {"g": spec.gate is not None, "beta": spec.has_beta, "bonus": spec.bonus}
    has |= {"dt": spec.step, "skip": spec.skip}
    has["A_log"] = spec.gate_form is not None
    has["dt_bias"] = has["A_log"] or spec.step_form is not None
    return (*(name for name, is_input in has.items() if is_input), *ERASING_INPUTS[spec.erase])


def field_of_input(spec: LinearAttention, name: str) -> str:
    """Return the field, as a hint, that a specification without this input lacks; "" for an unknown input."""
    if name == "beta" and spec.delta:
        return "erase=None or erase='vector'"
    return _FIELDS_OF_INPUTS.get(name, "")


def arrange_inputs(spec: LinearAttention, inputs: LinearInputs) -> LinearInputs:
    """Return the inputs of a call as forms read them: one number a token as a column, and numbers of heads in front.

    Raises ``InputError`` for gates, a bonus, a skip,
    rates or biases of other heads than those of v, for an input that the specification has and that is left out, and
    for one that it does not have.
    """
    v = inputs.v
    _check_names_beside(spec, inputs)
    _check_erasing_rows(spec, inputs)
    if inputs.g is not None and spec.gate == "head":
        inputs = inputs._replace(g=_repeat_gates_of_heads(inputs.g, v))
    # Values without an axis of heads have no such numbers.
    heads = tuple(v.shape[-3:-2]) or None
    of_features = heads and (*heads, inputs.q.shape[-1])
    if spec.bonus:
        hint = "one number for each head and feature, bonus (h, d_k) and v (…, h, n, d_v)"
        bonus = _check_shape_beside_values("bonus", inputs.bonus, of_features, v, hint)
        inputs = inputs._replace(bonus=bonus[..., None, :])
    if spec.skip:
        hint = "one number a head, skip (h,) and v (…, h, n, d_v)"
        skip = _check_shape_beside_values("skip", inputs.skip, heads, v, hint)
        inputs = inputs._replace(skip=skip[..., None, None])
    if spec.step:
        hint = "one step a token, dt (…, h, n) and v (…, h, n, d_v)"
        _check_shape_beside_values("dt", inputs.dt, tuple(v.shape[:-1]), v, hint)
    columns = (_make_column(x, inputs.q) for x in (inputs.g, inputs.beta, inputs.dt))
    inputs = inputs._replace(**dict(zip(("g", "beta", "dt"), columns, strict=True)))
    if spec.step_form:
        hint = "one number a head, dt_bias (h,) and v (…, h, n, d_v)"
        biases = _check_shape_beside_values("dt_bias", inputs.dt_bias, heads, v, hint)
        return inputs._replace(dt_bias=biases[..., None, None])
    if not spec.gate_form:
        return inputs
    hint = "one number a head, A_log (h,) and v (…, h, n, d_v)"
    rates = _check_shape_beside_values("A_log", inputs.A_log, heads, v, hint)
    hint = "one number a head, dt_bias (h,), or with gate='feature' one for each feature, (h, d_k)"
    wanted = of_features if spec.gate == "feature" else heads
    biases = _check_shape_beside_values("dt_bias", inputs.dt_bias, wanted, v, hint)
    of_heads = zip(("A_log", "dt_bias"), as_rows_of_heads(spec, rates, biases), strict=True)
    return inputs._replace(**dict(of_heads))


def _check_names_beside(spec: LinearAttention, inputs: LinearInputs) -> None:
    """Raise ``InputError`` for an input that a specification does not have, and for one that is left out."""
    needed = inputs_beside(spec)
    for name in _FIELDS_OF_INPUTS:
        if getattr(inputs, name) is not None and name not in needed:
            hint = field_of_input(spec, name)
            raise InputError(f"LinearAttention takes no {name} here; hint: {hint}")
    for name in needed:
        # Those of heads have shapes to tell, below.
        if getattr(inputs, name) is None and name not in _CHECKED_BY_SHAPE:
            raise InputError(f"LinearAttention: {name} is left out; hint: {', '.join(needed)}")


def _check_erasing_rows(spec: LinearAttention, inputs: LinearInputs) -> None:
    widths = {"d_k": inputs.q.shape[-1], "d_v": inputs.v.shape[-1]}
    for name, last in ERASING_INPUTS[spec.erase].items():
        rows = (inputs.k if is_of_keys(spec, name) else inputs.v).shape[:-1]
        hint = f"one row a token, {name} (…, n, {last})"
        wanted = (*rows, widths[last])
        _check_shape_beside_values(name, getattr(inputs, name), wanted, inputs.v, hint)


def _repeat_gates_of_heads(g: Array, v: Array) -> Any:
    if tuple(g.shape) != tuple(v.shape[-3:-2]) or v.ndim < 3:
        raise InputError(
            f"LinearAttention: g has the shape {tuple(g.shape)} and v {tuple(v.shape)}; hint: one gate a head,"
            " g (h,) and v (…, h, n, d_v)"
        )
    return repeat_for_tokens(g, v)


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


def _make_column(x: Array | None, q: Array) -> Array | None:
    """Return one number per token as a column; numbers for each feature, and columns, stay as they are."""
    return x[..., None] if x is not None and x.ndim < q.ndim else x


def check_layout_of_heads(spec: LinearAttention, layout: Layout) -> None:
    """Raise ``InputError`` for a layout without the axis of heads that a specification needs."""
    if spec.values_per_key > 1 and layout != "nd" and "h" not in layout:
        raise InputError(
            f"LinearAttention: the layout {layout} has no axis for the heads, of which values have"
            f" {spec.values_per_key} for each of keys; hint: layout='bhnd' or 'bnhd'"
        )
    if spec.has_numbers_of_heads and layout != "nd" and "h" not in layout:
        nouns = {
            "gate": spec.gate == "head", "bonus": spec.bonus, "skip": spec.skip, "rate of gates": spec.gate_form,
        }  # fmt: skip
        noun = next(name for name, has_it in nouns.items() if has_it)
        raise InputError(
            f"LinearAttention: the layout {layout} has no axis for the heads, each of which has a {noun}; hint:"
            " layout='bhnd' or 'bnhd'"
        )


def yield_linear_inputs(spec: LinearAttention, layout: Layout) -> Iterator[Input]:
    """Yield q, k, v, and what a specification has beside them, in the order of its parameters."""
    m = "n" if spec.causal else "m"
    heads = "h" if spec.values_per_key == 1 else f"{spec.values_per_key}*h"
    of_keys = partial(_place_heads, spec, layout, "h")
    shape = partial(_place_heads, spec, layout, heads)
    yield Input("q", of_keys("n", "d_k"), "query queries xq r C", step="score")
    yield Input("k", of_keys(m, "d_k"), "key keys xk B", step="score")
    # A parameter u is the bonus where there is one.
    words = "value values xv x" + " u" * (not spec.bonus)
    yield Input("v", shape(m, "d_v"), words, step="values")
    gates: Entries = lambda shape, rng: -rng.integers(0, 9, shape) / 8.0  # noqa: E731
    steps: Entries = lambda shape, rng: rng.integers(0, 9, shape) / 8.0  # noqa: E731
    raw: Entries = lambda shape, rng: rng.integers(-16, 17, shape) / 8.0  # noqa: E731
    # Rates e^A between 1/8 and 2: gates near −1, and others that last.
    rates: Entries = lambda shape, rng: rng.integers(-16, 6, shape) / 8.0  # noqa: E731
    if spec.gate:
        last = ("n", "d_k") if spec.gate == "feature" else ("n",)
        letters = heads if spec.gate == "head" else shape(*last)
        entries = raw if spec.gate_form else gates
        yield Input("g", letters, _words_of_gates(spec), entries, step="values")
    if spec.gate_form:
        yield Input("A_log", heads, "A log_A rate", rates, step="values")
        letters = f"{heads} d_k" if spec.gate == "feature" else heads
        yield Input("dt_bias", letters, "g_bias gate_bias bias", raw, step="values")
    if spec.has_beta:
        entries = raw if spec.beta_form else steps
        yield Input("beta", shape("n"), "b betas raw_beta", entries, step="values")
    yield from _yield_erasing_inputs(spec, of_keys, shape)
    if spec.bonus:
        words = "u time_first time_faaaa faaaa first"
        yield Input("bonus", f"{heads} d_k", words, step="values")
    if spec.step:
        entries = raw if spec.step_form else steps
        yield Input("dt", shape("n"), "delta delta_t steps", entries, step="values")
    if spec.step_form:
        yield Input("dt_bias", heads, "bias delta_bias", raw, step="values")
    if spec.skip:
        yield Input("skip", heads, "D d d_skip skip_weight", step="values")
    if spec.state:
        width = ("d_k", "d_v") if spec.state == "kv" else ("d_v", "d_k")
        front = [x for x in shape("n", "d").split() if x not in ("n", "d")]
        letters = " ".join([*front, *width])
        yield Input("initial_state", letters, WORDS_OF_STATES, needed=False, step="cache")


def _yield_erasing_inputs(
    spec: LinearAttention, of_keys: Callable[..., str], of_values: Callable[..., str]
) -> Iterator[Input]:
    """Yield p, or b and w, or a and b; ``of_keys`` and ``of_values`` make shapes of heads of keys and of values."""
    gates: Entries = lambda shape, rng: rng.integers(0, 9, shape) / 8.0  # noqa: E731
    # Entries up to 1/2, with which states of a few features hardly grow.
    vectors: Entries = lambda shape, rng: rng.integers(-4, 5, shape) / 8.0  # noqa: E731
    for name, last in ERASING_INPUTS[spec.erase].items():
        shape = of_keys if is_of_keys(spec, name) else of_values
        entries = gates if spec.erase == "gates" else vectors
        words = _WORDS_OF_ERASING[spec.erase or "", name]
        yield Input(name, shape("n", last), words, entries, step="values")


def list_linear_sizes(spec: LinearAttention, layout: Layout) -> tuple[dict[str, int], ...]:
    """Return the sizes of each case, by letter."""
    # Three heads tell the opposite order of their gates from a shift.
    several: Mapping[str, int] = (
        {"h": 3} if spec.has_numbers_of_heads else {"h": 2} if spec.values_per_key > 1 else {}
    )
    cases = enumerate(_SIZES)
    return tuple(
        {
            **in_front(layout, i),
            **several,
            "n": n,
            "m": n + 2 if i % 2 else max(1, n - 1),
            "d_k": d_k,
            "d_v": d_v,
        }
        for i, (n, d_k, d_v) in cases
    )


def _words_of_gates(spec: LinearAttention) -> str:
    """Return other names of g; RWKV's logarithms of decays are w, and a is an input of its own in RWKV-7."""
    if spec.gate_form:
        # A is the rate of raw gates.
        return "gk gate gates raw raw_gate alpha f" + " a" * (spec.erase != "pair")
    words = "gk gate gates log_decay decay alpha log_g log_a log_alpha a A g_gamma"
    if spec.erase == "pair":
        return "gk gate gates log_decay decay log_g log_w log_a log_alpha w g_gamma"
    return words + " w" * spec.bonus


def _place_heads(spec: LinearAttention, layout: Layout, heads: str, *last: str) -> str:
    """Return a shape in letters, as ``placed``; several heads stand in front if the layout has no axis of heads."""
    if (spec.values_per_key > 1 or spec.has_numbers_of_heads) and layout == "nd":
        return " ".join([heads, *last])
    return placed(layout, *last, heads=heads)


def shorten_keys(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the inputs with keys of length about 1/2: each token multiplies the state by I − β k kᵀ, which grows
    without bounds if β k·k > 2, and powers of the matrix of β_i k_i·k_j grow for longer keys."""
    k = inputs["k"]
    return {**inputs, "k": k * k.dtype.type(2.0 ** (-1 - round(log2(k.shape[-1]) / 2)))}


def make_laid(spec: LinearAttention, layout: Layout) -> Callable[[Compute], Compute]:
    """Return what makes of a function of arrays (…, h, n, d), with columns of gates, one of arrays in a layout."""

    def laid(run: Compute) -> Compute:
        # Gates of features have the axes of keys; gates of tokens become columns later.
        of_features = ("g",) if spec.gate == "feature" else ()
        turned = ("q", "k", "v", *of_features, *ERASING_INPUTS[spec.erase])
        columns = partial(_run_with_gate_columns, spec, layout, run)
        # A final state has no axis of tokens.
        return in_order(layout, turned, columns, unturned=(1,))

    return laid


def _run_with_gate_columns(
    spec: LinearAttention, layout: Layout, run: Compute, **keywords: Any
) -> Any:
    """Run with one gate and one β per token as columns, heads before tokens, and numbers of heads as rows of these."""
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
    if spec.gate_form:
        rows = as_rows_of_heads(spec, keywords["A_log"], keywords["dt_bias"])
        keywords |= dict(zip(("A_log", "dt_bias"), rows, strict=True))
    if spec.step_form:
        keywords["dt_bias"] = keywords["dt_bias"][..., None, None]
    return run(**keywords)
