"""The arguments of a call, compared one by one with what the configuration promises, independently of its result.

A scale that is off by one percent may change a result by less than bfloat16 shows, yet the argument shows it. So each
argument is compared by itself and must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np

from symattn.arrays.precision import Precision
from symattn.models.auditing import call_judge, promises
from symattn.models.auditing.audit_report import PASSES, CallFinding
from symattn.models.auditing.received import AttentionCall
from symattn.models.auditing.setting import CallSetting, Floats, Mask, Masking, by_places, equal

_CELLS = 1 << 26  # scores up to which a whole mask is compared; of a larger one, the chosen rows
_ROWS = 256  # rows of a mask compared at once
_NAMED = 32  # wrong rows, besides the chosen ones, by which a mistake in a mask is identified
_ARGUMENT = 2.0**-23
_STORED = 4  # roundings of a scale that operators multiply by: of its factors and of their products
_DROPS = "dropout was on, and heads of keys are repeated: such calls are compared only with what they received"


def differences(call: AttentionCall, intent: promises.Intent) -> tuple[tuple[str, ...], int]:
    """The arguments of a call that differ from those promised, in words, and how many scores are masked differently."""
    words = [
        _in_words(name, actual, promised, call)
        for name, actual, promised in _yield_promised_arguments(call, intent)
        if not equal(actual, promised, _choose_argument_tolerance(name, call))
    ]
    words += [intent.bias] if intent.bias else []
    key = _make_mask_comparison_key(call, intent.masking)
    if key is None or key not in intent.compared:
        # keeps ids valid
        intent.compared[key] = (*_masked_otherwise(call, intent.masking), call.received.masks)
    rows, cells, _ = intent.compared[key]
    words_of_mask = (_of_mask(call, intent, rows),) if cells else ()
    return (*words, *words_of_mask), cells


def _yield_promised_arguments(
    call: AttentionCall, intent: promises.Intent
) -> Iterator[tuple[str, Any, Any]]:
    """Yield every argument but the mask: its name, its value in the call, and the promised value."""
    for name in ("scale", "softcap", "sink", *(() if intent.bias else ("bias",))):
        yield name, getattr(call.given, name), getattr(intent.setting, name)
    if (
        call.received.window is not None
    ):  # flash functions count the query, on either side; others read only a mask
        before = intent.masking.spec.sides[0]
        yield "window", call.received.window, None if before is None else before + 1


def _choose_argument_tolerance(name: str, call: AttentionCall) -> float:
    """The relative tolerance: numbers pass through float32; in operators, and as sinks, through the call's format."""
    times = _STORED if call.received.via == "operators" else 1 if name == "sink" else 0
    return max(_ARGUMENT, times * float(call.arithmetic.input.u))


def _in_words(name: str, actual: Any, promised: Any, call: AttentionCall) -> str:
    if name == "scale":
        known_scales = call_judge.scales(call.given, promised).items()
        known = {w: s for w, s in known_scales if equal(actual, s, _ARGUMENT)}
        return next(
            iter(known), f"scores are scaled by {actual / promised:.4g} times the correct scale"
        )
    if actual is None:
        return f"the {name} is left out"
    if promised is None:
        return f"there is a {name} that is not promised"
    if np.ndim(actual):
        # Zeros in place of logits: the sink counts, but not as trained.
        zero = name == "sink" and not np.any(actual)
        return (
            "the sink's logits are ignored: 0 is used for all of them"
            if zero
            else f"the {name} is different"
        )
    return f"the {name} is {actual:g}, expected {promised:g}"


# -- masks -------------------------------------------------------------------------------------------------------------
def _make_mask_comparison_key(call: AttentionCall, masking: Masking) -> tuple[object, ...] | None:
    """Return a key by which layers share the comparison of two masks; None if an array may change."""
    masks = call.received.masks
    # A tensor under inference has no version that would show changes.
    if any(not hasattr(m, "shape") or m.is_inference() for m in masks):
        return None
    promised = (by_places(masking.spec), masking.crossed, masking.n_k)
    return (
        # The version counts changes in place.
        *((id(m), m._version) for m in masks),
        call.received.places,
        promised,
        call.given.q.shape,
        *call.rows,
    )


def _masked_otherwise(
    call: AttentionCall, masking: Masking, beyond: bool = False
) -> tuple[list[int], int]:
    """The queries for which the call's mask is not the promised one, and how many scores differ.

    With ``beyond`` only scores count that the call lets pass and the promise does not.
    """
    differing_rows: list[int] = []
    cells = 0
    batch, heads = call.given.q.shape[:2]
    given, meant = call.received.places, masking.spec
    same = all(
        getattr(given, name) == getattr(meant, name)
        for name in ("causal", "window", "block", "prefix")
    )
    bare = (
        masking.keep is None
        and masking.documents is None
        and not masking.crossed
        and not call.received.masks
    )
    if (
        same and bare and call.n_q == call.n_k == masking.total
    ):  # both mask by positions alone, in the same way
        return differing_rows, cells
    every = call.rows if batch * call.n_q * call.n_k > _CELLS else range(call.n_q)
    for first in range(0, len(every), _ROWS):
        rows = every[first : first + _ROWS]
        looked_at = replace(masking, rows=list(rows), left_out=None)
        promised = looked_at.allowed()
        # scores that only one of the masks forbids, of queries that are not padding and are promised a key
        visible = call.allowed(rows)
        unlike = visible & ~promised if beyond else visible != promised
        differing = unlike & _mask_counted_rows(looked_at, promised)
        differing = np.broadcast_to(differing, (batch, heads, len(rows), call.n_k))
        cells += int(differing.sum())
        differing_rows += [rows[i] for i in np.flatnonzero(differing.any(axis=(0, 1, 3)))]
    return differing_rows, cells


def _mask_counted_rows(masking: Masking, promised: Mask) -> Mask:
    return np.asarray(
        promised.any(axis=-1, keepdims=True) & ~masking.of_padding()[:, None, :, None]
    )


def _of_mask(call: AttentionCall, intent: promises.Intent, rows: list[int]) -> str:
    """The known mistake that gives the call's mask, in words."""
    compared_rows = sorted({*call.rows, *rows[:_NAMED]})
    masking = replace(intent.masking, rows=compared_rows, left_out=None)
    values = call.allowed(masking.rows)
    counts = _mask_counted_rows(masking, masking.allowed())
    for words, wrong in masking.mistakes():
        # Rows that do not count may differ.
        if not ((wrong != values) & counts).any():
            return words
    lost = call.given.empty() & ~intent.setting.empty()
    no_key = f"the mask of the call leaves {int(lost.sum())} of {lost.size} queries no key at all"
    # A call that leaves queries without keys says most about its mask.
    return no_key if lost.any() else "the mask is different"


def find_forbidden_keys(call: AttentionCall, at_most: Masking) -> tuple[tuple[str, ...], int]:
    """Return in words which keys a call sees beyond those that it may see at most, and how many scores.

    ``at_most`` is what is known without a specification: that the model is causal, and which tokens are padding.
    """
    rows, cells = _masked_otherwise(call, at_most, beyond=True)
    if not rows:
        return (), 0
    # One query is described; of the others only the scores are counted.
    first = replace(at_most, rows=rows[:1])
    unlike = (
        call.allowed(first.rows) & ~first.allowed() & _mask_counted_rows(first, first.allowed())
    )
    # The queries of a call are the last of all tokens.
    query = rows[0] + at_most.total - at_most.n_q
    keys = np.flatnonzero(unlike.any(axis=(0, 1, 2)))
    unused = [key for key in keys if key >= at_most.total]
    later = [key for key in keys if at_most.spec.causal and query < key < at_most.total]
    if unused and not later:
        words = (
            f"the query of token {query} sees entry {unused[0]} of the cache, which holds no token"
        )
    elif later:
        words = f"the query of token {query} sees the key of the later token {later[0]}"
    else:
        words = f"the query of token {query} sees the key of token {keys[0]}, which is padding"
    return (words,), cells


# -- one call that was read: both judgements, the cause of a fault, and what could not be excluded ---------------------
def examine(
    call: AttentionCall,
    intent: promises.Intent | promises.NoPromise,
    search: bool = True,
    dropped: call_judge.CallJudgement | None = None,
    at_most: Masking | None = None,
) -> CallFinding:
    """Return the finding of a call that has returned. Without ``search``, no cause is searched for.

    ``dropped`` is the judgement of a call with dropout, against what it received: no cause is searched for then.
    ``at_most`` are the keys that it may see at most where no specification is promised.
    """
    assert call.got is not None
    judgement = dropped or call_judge.judge(call.given, call.got, call.arithmetic)
    meant, unknown = _judge_against_promise(intent, call, judgement, bool(dropped))
    deviations: tuple[str, ...] = ()
    cells = 0
    if not isinstance(intent, promises.NoPromise):
        deviations, cells = differences(call, intent)
    elif at_most is not None:
        deviations, cells = find_forbidden_keys(call, at_most)
    words = semantics(call, intent) + (f" dropout={call.received.dropout:g}" if dropped else "")
    via, layer = call.received.via, call.received.name
    call_finding = CallFinding(
        layer, via, words, judgement, meant, unknown, cells=cells, asked=deviations
    )
    # With dropout a cause cannot be told from what was dropped.
    if dropped or call_finding.state == "wrong":
        cause = _find_cause_of_result(call, intent, call_finding) if search and not dropped else ""
        return replace(call_finding, cause="; ".join(filter(None, (cause, *deviations))))
    # A right result may be right for other settings as well.
    if call_finding.state in PASSES:
        judged = call.given if isinstance(intent, promises.NoPromise) else intent.setting
        return replace(
            call_finding,
            open=tuple(_yield_open_mistakes(judged, intent, call.got, call.arithmetic)),
        )
    return call_finding


def _judge_against_promise(
    intent: promises.Intent | promises.NoPromise,
    call: AttentionCall,
    given: call_judge.CallJudgement,
    dropped: bool,
) -> tuple[call_judge.CallJudgement | None, str]:
    """Return the judgement against what is promised, or the reason why there is none."""
    if isinstance(intent, promises.NoPromise):
        return None, str(intent)
    if intent.setting.alike(call.given):
        return given, ""
    assert call.got is not None
    return (
        (None, _DROPS)
        if dropped
        else (call_judge.judge(intent.setting, call.got, call.arithmetic), "")
    )


def _find_cause_of_result(
    call: AttentionCall, intent: promises.Intent | promises.NoPromise, call_finding: CallFinding
) -> str:
    """The mistake that the result shows; mistakes in arguments are known without it."""
    assert call.got is not None
    if not call_finding.asked and not isinstance(intent, promises.NoPromise):
        return call_judge.cause(intent.setting, intent.masking, call.got, call.arithmetic)
    return (
        call_judge.cause(call.given, None, call.got, call.arithmetic)
        if call_finding.against_given
        else ""
    )


def _yield_open_mistakes(
    right: CallSetting,
    intent: promises.Intent | promises.NoPromise,
    got: Floats,
    arithmetic: Precision,
) -> Iterator[str]:
    """Yield mistakes in special features of this attention that fit the result as well."""
    for name, dropped in (
        ("softcap", replace(right, softcap=None)),
        ("sink", replace(right, sink=None)),
    ):
        # The mistake is open if it would be right, too.
        if getattr(right, name) is not None and call_judge.judge(dropped, got, arithmetic).legal:
            yield f"{name} dropped"
    if isinstance(intent, promises.NoPromise):
        return
    if intent.scale_given:
        yield "scale: it may be in queries or keys already"
    if intent.bias is None:
        yield "the bias by position: it is taken as received"
    if intent.masking.spec.window is None:
        return
    bare = replace(intent.masking, spec=replace(intent.masking.spec, window=None)).allowed()
    without = right.with_mask(bare)
    # No judged query reaches beyond the window.
    if right.alike(without):
        yield "window ignored: no query that was looked at is beyond it"
    elif call_judge.judge(without, got, arithmetic).legal:
        yield "window ignored"


def semantics(call: AttentionCall, intent: promises.Intent | promises.NoPromise) -> str:
    """Describe briefly what the call computes."""
    setting, words = call.given, []
    h, g = setting.heads, setting.key_heads
    words.append(f"GQA {h}:{g}" if g != h else f"{h} heads" if h > 1 else "1 head")
    words.append(f"{call.n_q}×{call.n_k}")
    if not isinstance(intent, promises.NoPromise):
        words += intent.masking.words()
    elif setting.allowed is not None:
        words.append("masked")
    d = setting.q.shape[-1]
    # 1/√d is the usual scale, and not named.
    if abs(setting.scale * sqrt(d) - 1) > 1e-6:
        words.append(f"scale={setting.scale:.4g}")
    if setting.softcap is not None:
        words.append(f"softcap={setting.softcap:g}")
    if setting.sink is not None:
        words.append("sink")
    if setting.bias is not None:
        words.append("bias")
    words.append(call.arithmetic.input.name)
    words.append(call.arithmetic.contract)
    return " ".join(words)
