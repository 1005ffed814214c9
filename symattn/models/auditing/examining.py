"""One call that was read: both verdicts, the cause of a fault, and what could not be excluded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import sqrt

from symattn.attention.spec import Attention
from symattn.models.auditing.arguments import differences
from symattn.models.auditing.call_causes import cause
from symattn.models.auditing.call_finding import PASSES, CallFinding
from symattn.models.auditing.call_judge import CallArithmetic, CallJudgement, judge
from symattn.models.auditing.context import NoPromise
from symattn.models.auditing.promises import Intent
from symattn.models.auditing.received import AttentionCall
from symattn.models.auditing.setting import CallSetting, Floats


def examine(call: AttentionCall, intent: Intent | NoPromise, search: bool = True) -> CallFinding:
    """Return the finding of a call that has returned. Where ``search`` is false, no cause is looked for."""
    assert call.got is not None
    call_judgement = judge(call.given, call.got, call.arithmetic)
    meant, unknown = _against(intent, call, call_judgement)
    asked, cells = ((), 0) if isinstance(intent, NoPromise) else differences(call, intent)
    call_finding = CallFinding(
        call.name, call.via, semantics(call, intent), call_judgement, meant, unknown, cells=cells, asked=asked
    )
    if call_finding.state == "wrong":
        words = _cause(call, intent, call_finding) if search else ""
        return replace(call_finding, cause="; ".join(filter(None, (words, *asked))))
    if call_finding.state in PASSES:
        judged = call.given if isinstance(intent, NoPromise) else intent.setting
        return replace(call_finding, open=tuple(_open(judged, intent, call.got, call.arithmetic)))
    return call_finding


def _against(intent: Intent | NoPromise, call: AttentionCall, given: CallJudgement) -> tuple[CallJudgement | None, str]:
    """The verdict against what is promised, or why there is none."""
    if isinstance(intent, NoPromise):
        return None, str(intent)
    assert call.got is not None
    return given if intent.setting.alike(call.given) else judge(intent.setting, call.got, call.arithmetic), ""


def _cause(call: AttentionCall, intent: Intent | NoPromise, found: CallFinding) -> str:
    """The mistake that the numbers show; what the arguments say is known without them."""
    assert call.got is not None
    if not found.asked and not isinstance(intent, NoPromise):
        return cause(intent.setting, intent.masking, call.got, call.arithmetic)
    return cause(call.given, None, call.got, call.arithmetic) if found.against_given else ""


def _open(right: CallSetting, intent: Intent | NoPromise, got: Floats, arithmetic: CallArithmetic) -> Iterator[str]:
    """Mistakes in what makes this attention special that fit the result as well."""
    if right.softcap is not None and judge(replace(right, softcap=None), got, arithmetic).legal:
        yield "softcap dropped"
    if right.sink is not None and judge(replace(right, sink=None), got, arithmetic).legal:
        yield "sink dropped"
    if isinstance(intent, NoPromise):
        return
    if intent.scale_given:
        yield "scale: it may be in queries or keys already"
    if intent.masking.spec.window is None:
        return
    bare = replace(intent.masking, spec=replace(intent.masking.spec, window=None)).allowed()
    without = right.with_mask(bare)
    if right.alike(without):
        yield "window ignored: no query that was looked at is beyond it"
    elif judge(without, got, arithmetic).legal:
        yield "window ignored"


def semantics(call: AttentionCall, intent: Intent | NoPromise) -> str:
    """Describe what the call computes, in a few words."""
    setting, words = call.given, []
    h, g = setting.heads, setting.key_heads
    words.append(f"GQA {h}:{g}" if g != h else f"{h} heads" if h > 1 else "1 head")
    words.append(f"{call.n_q}×{call.n_k}")
    words += _masks(call, intent)
    d = setting.q.shape[-1]
    if abs(setting.scale * sqrt(d) - 1) > 1e-6:
        words.append(f"scale={setting.scale:.4g}")
    if setting.softcap is not None:
        words.append(f"softcap={setting.softcap:g}")
    if setting.sink is not None:
        words.append("sink")
    if setting.bias is not None:
        words.append("bias")
    words.append(call.arithmetic.dtype)
    words.append(call.arithmetic.contract)
    return " ".join(words)


def _masks(call: AttentionCall, intent: Intent | NoPromise) -> Iterator[str]:
    if isinstance(intent, NoPromise):
        if call.given.allowed is not None:
            yield "masked"
        return
    spec: Attention = intent.masking.spec
    if spec.window is not None:
        yield f"W={spec.window}" if isinstance(spec.window, int) else f"W={spec.window[0]}:{spec.window[1]}"
    if spec.causal:
        yield "causal"
    if intent.masking.keep is not None:
        yield "padded"
    if intent.masking.documents is not None:
        yield "packed"
