"""One run of a tiny model: each call of attention, and what every module received and gave, as columns over tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from symattn.models.auditing import patches
from symattn.models.auditing.begun import defect
from symattn.models.auditing.dependence import token_rows
from symattn.models.auditing.dependence.in_float64 import lifted
from symattn.models.auditing.mixers.convolution_call import ConvolutionCall
from symattn.models.auditing.mixers.mixer_judge import (
    MixerReader,
    measure_relative_error,
    read_mixer,
)
from symattn.models.auditing.mixers.reading import MixerCall
from symattn.models.auditing.received import (
    Received,
    UnreadCall,
    of_torch,
    of_transformers,
    setting_of,
)
from symattn.models.auditing.setting import (
    Args,
    CallSetting,
    Floats,
    Kwargs,
    Module,
    Tensor,
    numbers,
)
from symattn.models.inferring import tiny_models

#: The name under which the output of a short convolution is known, within the module that calls it.
CONVOLUTION = "convolution"
#: A module with more columns than these is no source of columns of a call, unless it is within the caller.
MAX_COLUMNS = 512


@dataclass
class TracedCall:
    """A call of attention: its module's name, what it received as numbers and what it gave, (heads, tokens, d_v).

    ``turn`` counts the earlier calls of this module; ``reason`` says why the call could not be read.
    """

    name: str
    module: Module
    turn: int
    setting: CallSetting | None = None
    out: Floats | None = None
    reason: str = ""


@dataclass
class ModuleRun:
    """One run of a module: its input and output, (tokens, columns)."""

    module: Module
    given: Floats
    gave: Floats


@dataclass
class TracedMixer:
    """A call of a recurrence or a convolution: its module's name, what it received, its result's relative error.

    ``out`` is its output (tokens, columns); ``reason`` says why the call could not be read.
    """

    name: str
    module: Module
    call: MixerCall | None = None
    out: Floats | None = None
    error: float = 0.0
    reason: str = ""


@dataclass
class TracedRun:
    """The calls of one run, and the runs of each module by name."""

    calls: list[TracedCall] = field(default_factory=list)
    mixers: list[TracedMixer] = field(default_factory=list)
    runs: dict[str, list[ModuleRun]] = field(default_factory=dict)


def columns(x: Any) -> Floats | None:
    """Return an array of one item as (tokens, columns); None if it has no axis of tokens."""
    if (
        not hasattr(x, "is_floating_point")
        or not x.is_floating_point()
        or tiny_models.TOKENS not in x.shape
    ):
        return None
    axis_of_tokens = list(x.shape).index(tiny_models.TOKENS)
    tokens_first = np.moveaxis(numbers(x), axis_of_tokens, 0)
    return tokens_first.reshape(tiny_models.TOKENS, -1)


class _Recorder:
    """A record of what a model reports while it runs."""

    def __init__(self, names: dict[Module, str]) -> None:
        self.names, self.run = names, TracedRun()

    def interface(
        self, function: Callable[..., Any], name: str, args: Args, kwargs: Kwargs
    ) -> Tensor:
        """Record a call of an attention function of Transformers."""
        out = function(*args, **kwargs)
        module = kwargs.get("module", args[0] if args else None)
        self._record_traced_call(
            module,
            lambda: of_transformers(function, name, args, kwargs),
            token_rows.first(out),
            heads_last=True,
        )
        return out

    def fused(self, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tensor:
        """Record a call of torch's function."""
        out = function(*args, **kwargs)
        self._record_traced_call(None, lambda: of_torch(args, kwargs), out, heads_last=False)
        return out

    def mixed(
        self,
        function: Callable[..., Any],
        name: str,
        reader: MixerReader,
        args: Args,
        kwargs: Kwargs,
    ) -> Any:
        """Record a call of a recurrence or a convolution."""
        # Read before it runs, since it may change its arguments.
        call = read_mixer(reader, args, kwargs)
        out = function(*args, **kwargs)
        inner = next((m for m in reversed(patches.doing.modules) if m in self.names), None)
        record = TracedMixer(self.names.get(inner, "–"), inner)
        if isinstance(call, str):
            record.reason = call
        else:
            record.call, record.out = call, columns(token_rows.first(out))
            try:
                record.error = measure_relative_error(call, out)
            except UnreadCall as reason:
                record.reason = str(reason)
            except Exception as error:
                record.reason = defect(error)
        self.run.mixers.append(record)
        self._record_convolution(record, args, kwargs, out)
        return out

    def _record_convolution(
        self, record: TracedMixer, args: Args, kwargs: Kwargs, out: Any
    ) -> None:
        """Record a short convolution, which is a function, as if it were a module within the one that calls it."""
        import torch

        if not isinstance(record.call, ConvolutionCall):
            return
        received = next((c for c in map(columns, (*args, *kwargs.values())) if c is not None), None)
        result = columns(token_rows.first(out))
        if received is not None and result is not None:
            name = f"{record.name}.{CONVOLUTION}"
            run = ModuleRun(torch.nn.Identity(), received, result)
            self.run.runs.setdefault(name, []).append(run)

    def entered(self, module: Module) -> None:
        """Nothing is noted when a module begins."""

    def left(self, module: Module, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Nothing is noted here: what a module gave is seen by ``gave``."""

    def _record_traced_call(
        self, module: Module, read: Callable[[], Received], out: Tensor, heads_last: bool
    ) -> None:
        # The innermost module with a name called attention.
        inner = next((m for m in reversed(patches.doing.modules) if m in self.names), None)
        module = module if module in self.names else inner
        name = self.names.get(module, "–")
        earlier = sum(call.name == name for call in self.run.calls)
        call = TracedCall(name, module, earlier)
        try:
            received = read()
            if received.q.shape[-2] != tiny_models.TOKENS:
                raise UnreadCall("its queries are not those of the tokens")
            call.setting = setting_of(received, range(tiny_models.TOKENS))
            # Functions of Transformers return (tokens, heads, d_v), torch's returns (heads, tokens, d_v).
            whole = numbers(out)[0]
            call.out = whole.swapaxes(0, 1) if heads_last else whole
        except UnreadCall as reason:
            call.reason = str(reason)
        self.run.calls.append(call)

    def gave(self, module: Module, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Record what a module received and gave."""
        result = columns(token_rows.first(out))
        if module not in self.names or result is None:
            return
        # A module without an input of tokens is its own input.
        of_arguments = map(columns, (*args, *kwargs.values()))
        input_columns = next((c for c in of_arguments if c is not None), result)
        self.run.runs.setdefault(self.names[module], []).append(
            ModuleRun(module, input_columns, result)
        )


def traced(model: Module, start: int = 0) -> TracedRun:
    """Run a tiny model once at the positions from ``start`` on, in float64."""
    import torch
    from torch.nn.modules import module as hooks

    recorder: Any = _Recorder({module: name for name, module in model.named_modules()})
    # Positions from ``start`` show what depends on them.
    places = (
        {"position_ids": torch.arange(start, start + tiny_models.TOKENS)[None]} if start else {}
    )
    patches.watch(recorder)
    handle = hooks.register_module_forward_hook(recorder.gave, with_kwargs=True)
    try:
        with torch.no_grad(), lifted():
            model(tiny_models.tokens(), use_cache=False, **places)
    finally:
        # Also after an error, or the recorder would watch the next model.
        handle.remove()
        patches.leave(recorder)
    run: TracedRun = recorder.run
    return run
