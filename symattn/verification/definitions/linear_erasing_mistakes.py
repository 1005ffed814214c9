"""Known mistakes of ``LinearAttention`` in what is erased along a vector of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.flow import Step
from symattn.bounds.changed_steps import ChangedSteps, in_stated_steps
from symattn.bounds.mistake import At, Mistake
from symattn.verification.definitions.linear_erasure import (
    ERASING_INPUTS,
    Erasure,
    read_erasing_inputs,
    take_token_before,
)
from symattn.verification.definitions.linear_ways import (
    Form,
    Produced,
    list_linear_forms,
    rows_of,
    sum_in_form,
)

if TYPE_CHECKING:
    from symattn.verification.definitions.linear import LinearAttention

#: From the erasure, the keys and the values that are written, and the inputs by name: the first three, wrong.
_Change = Callable[[Erasure, Any, Any, Mapping[str, Any]], tuple[Erasure, Any, Any]]
_NOT_ERASED = "nothing is erased: values are added to those of earlier tokens"
_CHANGES: dict[str, _Change] = {
    _NOT_ERASED: lambda x, k, v, given: (x._replace(p=0 * x.p), k, v),
    "what is erased has the other sign: it is added to the state": lambda x, k, v, given: (x._replace(p=-x.p), k, v),
    "the correction of the state is subtracted, not added": lambda x, k, v, given: (x._replace(p=-x.p), k, -v),
}  # fmt: skip
_CHANGES_OF_RULES: dict[str, dict[str, _Change]] = {
    "vector": {
        "tokens erase along their keys, not along p":
            lambda x, k, v, given: (x._replace(p=given["beta"] * k), k, v),
        "tokens write along p, not along their keys":
            lambda x, k, v, given: (x._replace(keys=given["p"]), given["p"], v),
        "tokens erase along their keys, and write along p: both are exchanged":
            lambda x, k, v, given: (Erasure(given["beta"] * k, given["p"]), given["p"], v),
        "β multiplies only the added value: the replaced value is erased completely":
            lambda x, k, v, given: (x._replace(p=given["p"]), k, v),
        "β multiplies only the erased value: new values are added in full":
            lambda x, k, v, given: (x, k, given["v"]),
        "β is left out: the value under a key is replaced completely":
            lambda x, k, v, given: (x._replace(p=given["p"]), k, given["v"]),
    },
    "gates": {
        "the erase gates b are left out: what a key reads is erased completely":
            lambda x, k, v, given: (x._replace(p=k), k, v),
        "the write gates w are left out: values are written in full":
            lambda x, k, v, given: (x, k, given["v"]),
        "the erase gates b multiply the keys that are written, too":
            lambda x, k, v, given: (Erasure(x.p, x.p), x.p, v),
        "the erase gates b multiply the keys that are written, not those that erase":
            lambda x, k, v, given: (Erasure(k, x.p), x.p, v),
        "the erase gates b multiply what a token erases a second time":
            lambda x, k, v, given: (x._replace(p=given["b"] * x.p), k, v),
        "the erase gates of a token are their mean, one number for all features":
            lambda x, k, v, given: (x._replace(p=_mean(given["b"]) * k), k, v),
        "the write gates of a token are their mean, one number for all features":
            lambda x, k, v, given: (x, k, _mean(given["w"]) * given["v"]),
    },
    "pair": {
        "a and b are exchanged: tokens erase along b, and subtract along a":
            lambda x, k, v, given: (Erasure(-x.keys, -x.p), k, v),
        "b is left out: what a reads is subtracted along a itself":
            lambda x, k, v, given: (x._replace(keys=x.p), k, v),
        "what a reads is subtracted along the keys that are written, not along b":
            lambda x, k, v, given: (x._replace(keys=k), k, v),
        "tokens read what they erase with their keys, not with a":
            lambda x, k, v, given: (x._replace(p=k), k, v),
    },
}  # fmt: skip
_GATED_CHANGES: dict[str, _Change] = {
    "what a token corrects decays by its own gate, too: the state decays after it is corrected":
        lambda x, k, v, given: (x._replace(keys=_decay(x.keys, given["g"])), k, v),
    "a token's gate decays what the token itself adds, too":
        lambda x, k, v, given: (x._replace(keys=_decay(x.keys, given["g"])), _decay(k, given["g"]), v),
}  # fmt: skip


def _mean(x: Any) -> Any:
    return namespace_of(x).sum(x, axis=-1, keepdims=True) / int(x.shape[-1])


def _decay(x: Any, g: Any) -> Any:
    return x * namespace_of(x).exp(g)


def mistakes_of_erasure(spec: LinearAttention, step: Step) -> Iterator[Mistake]:
    """Yield what is erased along another vector, by another amount, with another sign, or at another moment."""
    form = list_linear_forms(spec)[0]
    by = partial(in_stated_steps, spec, step.blames)
    for words, change in (_CHANGES | _CHANGES_OF_RULES[spec.erase or ""]).items():
        yield by(words, {"sums": partial(_sum_changed, form, change)})
    for words, change in _GATED_CHANGES.items() if spec.gate else ():
        # Of a pair the keys that are written may differ from those that erase.
        if spec.erase == "pair" or words.startswith("a token's"):
            yield by(words, {"sums": partial(_sum_changed, form, change)})
    if spec.qk_norm and spec.erase == "vector":
        words = "p is not divided by its length"
        bare: _Change = lambda x, k, v, given: (x._replace(p=given["beta"] * given["bare p"]), k, v)  # noqa: E731
        wrong = partial(_sum_changed, form, bare)
        yield in_stated_steps(spec, "norm", words, {"sums": wrong})
    for name in [name for name in ("p", "a") if name in ERASING_INPUTS[spec.erase]]:
        words = f"a token erases along the {name} of the token before"
        yield by(words, {}, reads={name: take_token_before})
    if spec.gate:
        # The same erasure at the other moment.
        is_before = spec.erases == "before"
        other = replace(spec, erases="after" if is_before else "before")
        words = "the state before it decays"
        if is_before:
            words = "the state after the token's own gate decays it, not before"
        cause = f"what a token replaces is read from {words}"
        moved = sum_in_form(lambda _, rows: form(other, rows))
        yield Mistake(step.blames, cause, ChangedSteps(spec, moved), spec=other)


def _sum_changed(form: Form, change: _Change, at: At) -> Produced:
    """Return the sums with another erasure, other keys and other values, from these and all arrays so far."""
    spec: Any = at.spec
    rows = rows_of(spec, at.values)
    given = {**at.values, **read_erasing_inputs(spec, at.values), "g": rows.g}
    given["beta"] = at.values.get("betas")
    other, keys, values = change(rows.beta, rows.k, rows.v, given)
    return form(spec, rows._replace(k=keys, v=values, beta=other))
