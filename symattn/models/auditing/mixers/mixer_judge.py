"""The finding of one call of a recurrence or a convolution, judged by what it received and returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.formats import FORMATS, Format
from symattn.bounds.threads import one_blas_thread
from symattn.models.auditing import call_judge, promises
from symattn.models.auditing.audit_report import CallFinding
from symattn.models.auditing.begun import CallSite, defect
from symattn.models.auditing.mixers.convolution_call import ConvolutionCall
from symattn.models.auditing.mixers.reading import MixerCall
from symattn.models.auditing.mixers.recurrent_call import RecurrentCall, RecurrentResult
from symattn.models.auditing.received import UnreadCall
from symattn.models.auditing.setting import Args, Floats, Kwargs, Tensor, numbers
from symattn.programs.frameworks import dtype_name

MixerReader = Callable[[Args, Kwargs], MixerCall]
NO_PROMISE = "no configuration describes recurrences and convolutions"


def read_mixer(reader: MixerReader, args: Args, kwargs: Kwargs) -> MixerCall | str:
    """Read a call before it runs, or return why it cannot be read. The model runs as usual even if symattn fails."""
    import torch

    try:
        with torch.no_grad():
            return reader(args, kwargs)
    # Whatever fails here must not stop the model.
    except UnreadCall as reason:
        return str(reason)
    except Exception as error:
        return defect(error)


@one_blas_thread
def judge_mixer(
    site: CallSite, call: MixerCall | str, out: Any, rows: int | None, search: bool
) -> CallFinding:
    """Judge a call by what it returned; without ``search``, no cause is searched for."""
    import torch

    if isinstance(call, str):
        return site.unread(call)
    try:
        with torch.no_grad():
            judgement, cause = _judge_returned(call, out, rows, search)
    except UnreadCall as reason:
        return site.unread(str(reason))
    except Exception as error:
        return site.unread(defect(error))
    unknown = NO_PROMISE if site.context is not None else promises.NO_CONFIGURATION
    # A convolution reaches as far back as it has taps.
    reach = call.taps.shape[1] if isinstance(call, ConvolutionCall) else None
    return CallFinding(
        site.layer, site.via, call.words, judgement, unknown=unknown, cause=cause, reach=reach
    )


def _judge_returned(
    call: MixerCall, out: Any, rows: int | None, search: bool
) -> tuple[call_judge.CallJudgement, str]:
    if isinstance(call, ConvolutionCall):
        returned = _read_convolved(call, out)
        judged = call.judge(returned)
        return judged, call.find_cause(returned) if search and not judged.legal else ""
    got, form = _read_recurrent(call, out)
    judged = call.judge(got, rows, form)
    # Only a certain fault is worth a search.
    wrong = judged.sure == "certified"
    return judged, call.find_cause(got, rows, form) if search and wrong else ""


def measure_relative_error(call: MixerCall, out: Any) -> float:
    """Return the largest error of a result as a fraction of its largest number. Raises ``UnreadCall``."""
    if isinstance(call, ConvolutionCall):
        return call.relative_error(_read_convolved(call, out))
    return call.relative_error(_read_recurrent(call, out)[0])


def _read_convolved(call: ConvolutionCall, out: Any) -> Floats:
    output, _ = _take_output(out)
    length = call.x.shape[1] - call.before
    if output.ndim != 3 or output.shape[1:] != (call.channels, length):
        raise UnreadCall(f"it returned an array of the shape {tuple(output.shape)}")
    pairs = (divmod(one, call.channels) for one in call.chosen)
    items, places = zip(*pairs, strict=True)
    return numbers(output[list(items), list(places)])


def _read_recurrent(call: RecurrentCall, out: Any) -> tuple[RecurrentResult, Format]:
    output, state = _take_output(out)
    length, width = call.arrays["v"].shape[-2:]
    if call.updated is not None:
        # A step has no axis of tokens, and writes the state into its argument.
        output, state = output.unsqueeze(1), call.updated
    if output.ndim != 4 or (output.shape[1], output.shape[3]) != (length, width):
        raise UnreadCall(f"it returned an array of the shape {tuple(output.shape)}")
    return call.read(output, state), Format(dtype_name(output))


def _take_output(out: Any) -> tuple[Tensor, Tensor | None]:
    """Return the output and the final state, which may be None."""
    output, state = out if isinstance(out, tuple) else (out, None)
    if not hasattr(output, "shape") or dtype_name(output) not in FORMATS:
        raise UnreadCall(f"it returned {type(output).__name__}, no array of numbers")
    return output, state
