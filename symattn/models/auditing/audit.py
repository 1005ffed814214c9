"""``Audit``: the context in which calls are watched, in every thread; ``audit`` and ``audit_script`` begin one."""

from __future__ import annotations

import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

from symattn.arrays.precision import Contract, check_contract
from symattn.attention.spec import Attention
from symattn.document.errors import InputError, SymattnError
from symattn.models.auditing import patches, promises
from symattn.models.auditing.audit_report import AuditReport, CallFinding
from symattn.models.auditing.backward_hooks import Followed, WatchedCall
from symattn.models.auditing.begun import (
    Begun,
    CallSite,
    Draws,
    begun,
    defect,
    draws_of,
    ended,
    watching,
)
from symattn.models.auditing.call_gradients import Backward
from symattn.models.auditing.dependence import token_rows
from symattn.models.auditing.dependence.causality import promised_causal
from symattn.models.auditing.dependence.decoding import (
    DecodingRecorder,
    RecordedDecoding,
    probe_decoding,
    record_pass,
)
from symattn.models.auditing.dependence.mixing import Dependence
from symattn.models.auditing.dependence.probing import probed, with_padding
from symattn.models.auditing.dependence.training import probe_training
from symattn.models.auditing.differences import Differences
from symattn.models.auditing.layers.layer_hooks import Layers
from symattn.models.auditing.mixers.lightning import LightningPasses
from symattn.models.auditing.mixers.mixer_judge import MixerReader, judge_mixer, read_mixer
from symattn.models.auditing.received import Received, UnreadCall, of_torch, of_transformers
from symattn.models.auditing.setting import Args, Kwargs, Module, Tensor
from symattn.models.auditing.tracing import mode
from symattn.models.configurations import promised_layers
from symattn.models.inferring import tiny_models
from symattn.models.inferring.lock import read_lock
from symattn.models.specifying import infer_layers
from symattn.programs.frameworks import import_torch
from symattn.programs.names import Function
from symattn.programs.refusing import one_line

# wrong calls whose cause is searched for: those of further layers mostly have the same
_SEARCHED = 8
MAX_PROBED_MODELS = 8  # in one audit: a script may run many modules on their own
_COMPILED = (
    "The model is compiled, and calls inside of compiled code are not seen; hint: audit the model before it is"
    " compiled. torch.compiler.set_stance('force_eager') audits other kernels than those that run."
)
_UNJUDGED_GRADIENTS = Backward(
    reason="gradients of recurrences and short convolutions are not compared with a derivative"
)
_INSIDE = Backward(
    reason="it runs inside of a torch.autograd.Function, whose backward pass is its own and is not seen"
)


class Audit:
    """A context that audits what runs in it. Entering it returns the report, which fills meanwhile."""

    def __init__(
        self,
        model: Module,
        contract: Contract | None,
        rows: int | None,
        gradients: bool,
        name: str,
        layers: bool = False,
        dependence: bool = True,
        causal: bool | None = None,
        reviewed: promises.ReviewedLayers | None = None,
        lock: str | None = None,
    ) -> None:
        self._model, self._contract, self._rows, self._gradients = model, contract, rows, gradients
        self._watched: list[WatchedCall] = []
        self._names: WeakKeyDictionary[Module, str] = WeakKeyDictionary()
        self._parameters: dict[int, ReferenceType[Tensor]] = {}
        self._copies: dict[int, Any] = {}
        # A model may run in several threads.
        self._lock, self._searched = threading.RLock(), 0
        self._modes: dict[int, Any] = {}
        self._followed: list[Any] = []
        self.report = AuditReport(name, rows=rows, gradients=gradients, whole=layers)
        self._causal = causal
        self._probed: WeakKeyDictionary[Module, Dependence] = WeakKeyDictionary()
        self._reviewed, self._lock_path = reviewed, lock
        self._reviewed_by_model: WeakKeyDictionary[Module, promises.ReviewedLayers] = (
            WeakKeyDictionary()
        )
        # Threads in which tiny models run that are none of the user's.
        self._inferring: set[int] = set()
        self._probes = MAX_PROBED_MODELS if dependence else 0
        self._probes_decoding = dependence
        # A model that the user drops is freed, unless passes of it wait to be compared.
        self._recorders: WeakKeyDictionary[Module, DecodingRecorder] = WeakKeyDictionary()
        # Models whose decoding is compared, and how many calls were seen before a pass.
        self._decoded: WeakSet[Module] = WeakSet()
        self._findings_before: WeakKeyDictionary[Module, int] = WeakKeyDictionary()
        self._trained: WeakSet[Module] = WeakSet()
        self._numbers: WeakKeyDictionary[Module, int] = WeakKeyDictionary()
        self._next_number = count()
        self._differences = Differences()
        self._lightning = LightningPasses()
        self._layers = Layers(self.report.layers.append) if layers else None
        if model is not None:
            self._record_module_paths(model)

    def __repr__(self) -> str:
        return "<audit: with symattn.audit(model) as report: ...; what runs in it is audited>"

    def __enter__(self) -> AuditReport:
        for module in () if self._model is None else self._model.modules():
            self._note_compiled(module)
        if self._layers is not None and self._model is not None:
            self._layers.know(self._model)
        patches.watch(self)
        self._follow_thread_operators()
        return self.report

    def __exit__(self, *_: object) -> None:
        self._unfollow_thread_operators()
        try:
            self._probe_waiting_decoding()
        # Nothing stays replaced in torch if the user interrupts a probe.
        finally:
            patches.leave(self)
            if self._layers is not None:
                self._layers.close()
        # Gradients that have not come by the end are reported as missing.
        for watched in self._watched:
            watched.close()
        # Every softmax must meet values; otherwise some attention was not read.
        for softmax in (s for tracer in self._followed for s in tracer.softmaxes if not s.met):
            if softmax.read:
                self.unread(
                    "operators",
                    softmax.layer,
                    "the softmax of scores meets no values in a known form",
                )
            else:
                self.report.others += 1
                self.report.suspect += softmax.heads
        # Queries, keys and masks of the last calls need no more memory.
        for tracer in self._followed:
            tracer.known.forget()

    # -- called by the patches -----------------------------------------------------------------------------------------
    def interface(self, function: Function, name: str, args: Args, kwargs: Kwargs) -> Tensor:
        """Audit a call of an attention function of Transformers."""
        module = kwargs.get("module", args[0] if args else None)
        # An audit of one model leaves the calls of others alone.
        if not self.wants(module):
            return function(*args, **kwargs)
        result = self._make_call_site(module, f"transformers {name or 'eager'}", True)
        return self._watch_attention_call(
            result,
            lambda: of_transformers(function, name, args, kwargs),
            function,
            args,
            kwargs,
            first=1,
        )

    def fused(self, function: Function, args: Args, kwargs: Kwargs) -> Tensor:
        """Audit a call of ``scaled_dot_product_attention``."""
        module = patches.doing.modules[-1] if patches.doing.modules else None
        if not self.wants(module):
            return function(*args, **kwargs)
        result = self._make_call_site(module, "torch sdpa")
        return self._watch_attention_call(
            result, lambda: of_torch(args, kwargs), function, args, kwargs
        )

    def mixed(
        self, function: Function, name: str, reader: MixerReader, args: Args, kwargs: Kwargs
    ) -> Tensor:
        """Audit a call of a recurrence or of a short convolution."""
        module = patches.doing.modules[-1] if patches.doing.modules else None
        if not self.wants(module):
            return function(*args, **kwargs)
        site = self._make_call_site(module, name)
        with patches.reading():
            call = read_mixer(reader, args, kwargs)
            # Operators inside the function are not to be judged again.
            with patches.aside():
                out = function(*args, **kwargs)
            # Causes are searched for a few calls only, since each search takes long.
            result = judge_mixer(site, call, out, self._rows, self._searched < _SEARCHED)
            if self._gradients and not result.reason and _is_trained(args, kwargs):
                result = replace(result, backward=_UNJUDGED_GRADIENTS)
            self._searched += result.state == "wrong"
            self._add_call_finding(result)
        return out

    def entered(self, module: Module) -> None:
        """Note that a module begins: another thread is followed from its outermost module on."""
        if threading.get_ident() in self._inferring:
            return
        if self._model is None:
            self._note_compiled(module)
        # Without a model, each outermost module counts as one.
        if len(patches.doing.modules) == 1:
            if self._model is None:
                self._record_module_paths(module)
                if self._layers is not None:
                    self._layers.know(module)
            if threading.get_ident() not in self._modes and self.wants(module):
                self._follow_thread_operators()
                patches.doing.followed.append(self)

    def left(self, module: Module, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Note that a module ends, with what it returned; None if it raised."""
        if threading.get_ident() in self._inferring:
            return
        # After an exception nothing is judged, but threads and modules are let go below.
        raised = out is None
        if not raised and self._is_outermost_audited(module):
            self._probe_pass(module, args, kwargs)
            self._record_decoding(module, args, kwargs, out)
            self._probe_training(module, args, kwargs, out)
        around = patches.doing.modules[-2] if len(patches.doing.modules) > 1 else None
        if not raised and args and self._differences.has_calls(around):
            self._judge_difference(around, module, args[0])
        if not raised and not patches.doing.reading and self.wants(module):
            context = patches.doing.models[-1] if patches.doing.models else None
            self._lightning.note(around, module, args, out, context)
            if self._lightning.has_pass(module):
                self._judge_lightning(module, args, kwargs, out)
        if threading.get_ident() in self._modes:
            self._modes[threading.get_ident()].tracer.tie()
        if len(patches.doing.modules) == 1 and self in patches.doing.followed:
            patches.doing.followed.remove(self)
            self._unfollow_thread_operators()

    def _judge_difference(self, module: Module, projection: Module, x: Tensor) -> None:
        """Judge what an output projection received, if its module subtracts the outputs of two calls."""
        import torch

        name = self._names.get(module, type(module).__name__)
        with patches.reading(), torch.no_grad():
            try:
                finding = self._differences.projected(name, module, projection, x)
            # The model runs as usual even if symattn fails.
            except Exception as error:
                finding = CallFinding(name, "difference of two calls", reason=defect(error))
            if finding is not None:
                self._add_call_finding(finding)

    def _judge_lightning(self, module: Module, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Judge a layer of lightning attention by what it computed, now that it ends."""
        import torch

        site = self._make_call_site(module, "forward pass of the layer")
        with patches.reading(), torch.no_grad():
            try:
                call, returned = self._lightning.read(module, args, kwargs, out)
            except UnreadCall as reason:
                result = site.unread(str(reason))
            # The model runs as usual even if symattn fails.
            except Exception as error:
                result = site.unread(defect(error))
            else:
                search = self._searched < _SEARCHED
                result = judge_mixer(site, call, returned, self._rows, search)
                self._searched += result.state == "wrong"
            self._add_call_finding(result)

    # -- called by the tracer of a thread ------------------------------------------------------------------------------
    def attended(self, received: Received, out: object) -> Callable[[Any], None] | None:
        """Judge attention in operators; return a function of its node in autograd's graph if gradients are awaited."""
        import torch

        outcome = self._make_call_site(received.module, received.via)
        with patches.reading():
            if self._layers is not None:
                self._layers.attended(received, out, False)
            call = begun(outcome, lambda: received, self._rows, self._contract)
            result = self._judge_ended_call(call, out)
            # Without autograd no gradient will come.
            if not self._gradients or isinstance(call, CallFinding) or not torch.is_grad_enabled():
                self._add_call_finding(self._mark_unawaited_gradients(result))
                return None
            followed = Followed(received, self._rows, self._contract)
            self._add_call_finding(result, followed)
            return followed.tie

    def unread(self, via: str, module: Module, reason: str) -> None:
        """Record attention that could not be read."""
        self._add_call_finding(self._make_call_site(module, via).unread(reason))

    def wants(self, module: Module) -> bool:
        """Return whether a module is audited, or runs inside of one that is."""
        if threading.get_ident() in self._inferring:
            return False
        return (
            self._model is None
            or module in self._names
            or any(m in self._names for m in patches.doing.modules)
        )

    def holds(self, tensor: Tensor) -> bool:
        """Return whether an array is a parameter of the audited model, rather than one that reuses freed memory."""
        place = tensor.untyped_storage().data_ptr()
        # A copy counts only while it is alive, since its address is used again.
        if place in self._copies and not self._copies[place].expired():
            return True
        known = self._parameters.get(place)
        parameter = None if known is None else known()
        return parameter is not None and bool(parameter.untyped_storage().data_ptr() == place)

    def copied(self, copy: Tensor) -> None:
        """Note a copy of a parameter, perhaps in another format: it counts as a parameter while it is alive."""
        from torch.multiprocessing.reductions import StorageWeakRef

        self._copies = {
            place: storage for place, storage in self._copies.items() if not storage.expired()
        }
        self._copies[copy.untyped_storage().data_ptr()] = StorageWeakRef(copy.untyped_storage())

    # -- the probe of dependence ---------------------------------------------------------------------------------------
    def _is_outermost_audited(self, module: Module) -> bool:
        """Return whether a module that ran is audited and runs in no other that is."""
        if self._model is None:
            return len(patches.doing.modules) == 1
        outer_modules = patches.doing.modules[:-1]
        return module in self._names and not any(m in self._names for m in outer_modules)

    def _probe_pass(self, module: Module, args: Args, kwargs: Kwargs) -> None:
        """Probe the first pass of a model in which tokens can be changed, and the first one with padding."""
        # Backward passes, and passes within a reading, are none of the model's own.
        if patches.doing.reading or patches.in_backward():
            return
        known = self._probed.get(module)
        if known is not None:
            with self._lock, patches.probing():
                finding = with_padding(known, module, args, kwargs, self._names)
            self._probed[module] = finding
            self.report.dependence = [
                finding if one is known else one for one in self.report.dependence
            ]
        elif self._probes:
            self._probe_first_pass(module, args, kwargs)

    def _probe_first_pass(self, module: Module, args: Args, kwargs: Kwargs) -> None:
        with self._lock:
            calls = {f.layer for f in self.report.findings}
            causal = promised_causal(module, kwargs) if self._causal is None else self._causal
            with patches.probing():
                finding = probed(module, args, kwargs, self._names, calls, causal)
            if finding is not None:
                finding = replace(finding, model=self._number_of_model(module))
            # No argument has tokens, but one of a later pass may.
            if finding is None:
                return
            # Findings that only wait for a later pass give way to this one.
            self.report.dependence = [d for d in self.report.dependence if not d.later]
            self.report.dependence.append(finding)
            if not finding.later:
                self._probed[module] = finding
                self._probes -= 1

    # -- the probe of decoding -----------------------------------------------------------------------------------------
    def _record_decoding(self, root: Module, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Record a pass of a model, and compare the first passes from one cache with one pass of all their tokens."""
        if patches.doing.reading or patches.in_backward() or not self._probes_decoding:
            return
        with self._lock:
            if root in self._decoded:
                return
            recorder = self._recorders.setdefault(root, DecodingRecorder())
            begun_at = self._findings_before.get(root, 0)
            self._findings_before[root] = len(self.report.findings)
            read = (f.layer for f in self.report.findings[begun_at:] if f.state != "cannot tell")
            recorded = recorder.add(root, args, kwargs, out, read)
            if recorded is not None:
                self._probe_decoding(root, recorded)

    def _probe_training(self, root: Module, args: Args, kwargs: Kwargs, out: Any) -> None:
        """Compare the first pass of a model in training with one in evaluation."""
        is_known = not root.training or root in self._trained
        if patches.doing.reading or patches.in_backward() or not self._probes_decoding or is_known:
            return
        recorded = record_pass(root, args, kwargs, out)
        if recorded is None or recorded.length < token_rows.FEWEST_TOKENS:
            return
        with self._lock, patches.probing():
            self._trained.add(root)
            self.report.training.append(probe_training(root, self._names, recorded))

    def _probe_decoding(self, root: Module, recorded: RecordedDecoding) -> None:
        self._decoded.add(root)
        with patches.probing():
            finding = probe_decoding(root, self._names, recorded)
        self.report.decoding.append(replace(finding, model=self._number_of_model(root)))

    def _probe_waiting_decoding(self) -> None:
        """Compare passes from a cache that were fewer than are awaited."""
        for recorder in list(self._recorders.values()):
            root, recorded = recorder.root, recorder.take()
            if root is not None and recorded is not None and root not in self._decoded:
                self._probe_decoding(root, recorded)
        self._recorders.clear()

    def _number_of_model(self, root: Module) -> int:
        """Return a number of the model, which belongs to no other in this audit."""
        return self._numbers.setdefault(root, next(self._next_number))

    # -- calls ---------------------------------------------------------------------------------------------------------
    def _watch_attention_call(
        self,
        site: CallSite,
        received: Callable[[], Received],
        function: Function,
        args: Args,
        kwargs: Kwargs,
        first: int = 0,
    ) -> Tensor:
        """Read a call, run it, and judge what it returns; a call that cannot be read is reported as such.

        Queries, keys and values are its arguments from index ``first`` on.
        """
        with patches.reading():
            call = begun(site, received, self._rows, self._contract, dropping=self._gradients)
            watched = None
            if (
                self._gradients and isinstance(call, Begun) and call.trained
            ):  # there may be a backward pass
                watched = WatchedCall(
                    call.received, call.made.heads_last, self._rows, self._contract
                )
            draws = draws_of(call.call) if isinstance(call, Begun) else None
            if watched is not None:
                args, kwargs = watched.given(args, kwargs, first)
            with patches.aside(), watching(draws):
                out = function(*args, **kwargs)
            if draws is not None:
                draws.returned(out)
            if self._layers is not None and isinstance(call, Begun):
                self._layers.attended(
                    call.received, out[0] if isinstance(out, tuple) else out, site.heads_last
                )
            first_output = out[0] if isinstance(out, tuple) else out
            if isinstance(call, Begun):
                self._differences.attended(site.module, first_output, site.heads_last)
            result = self._judge_ended_call(call, first_output, draws)
            self._add_call_finding(
                result if watched is not None else self._mark_unawaited_gradients(result), watched
            )
            if watched is not None:
                out = watched.returned(out, draws)
        return out

    def _mark_unawaited_gradients(self, call_finding: CallFinding) -> CallFinding:
        """Mark a call that has gradients, though none are awaited."""
        inside = self._gradients and patches.doing.functions and not call_finding.reason
        return replace(call_finding, backward=_INSIDE) if inside else call_finding

    def _judge_ended_call(
        self, first: Begun | CallFinding, out: object, draws: Draws | None = None
    ) -> CallFinding:
        if isinstance(first, CallFinding):
            return first
        finding = ended(first, out, self._searched < _SEARCHED, draws)
        self._searched += finding.state == "wrong"
        return finding

    def _add_call_finding(
        self, call_finding: CallFinding, watched: WatchedCall | None = None
    ) -> None:
        with self._lock:
            place = len(self.report.findings)
            self.report.findings.append(call_finding)
            if watched is not None:
                # The finding of gradients comes later, and belongs to the call at this place.
                watched.on_result = partial(self._add_backward_finding, place)
                self._watched.append(watched)

    def _add_backward_finding(self, place: int, backward: Backward | None) -> None:
        """Add the finding of a backward pass to its call."""
        with self._lock:
            self.report.findings[place] = replace(self.report.findings[place], backward=backward)

    def _make_call_site(self, module: Module, via: str, heads_last: bool = False) -> CallSite:
        name = "–" if module is None else self._names.get(module, type(module).__name__)
        context = patches.doing.models[-1] if patches.doing.models else None
        causal = self._causal if _is_of_language(context) else None
        return CallSite(
            module, name, via, context, heads_last, causal, self._find_reviewed_layers()
        )

    def _find_reviewed_layers(self) -> promises.ReviewedLayers | None:
        """Return the promises of the lock for the outermost model that runs; None without a lock or a model.

        What the lock says of a model that was not given is inferred at its first call.
        """
        if self._reviewed is not None or self._lock_path is None or not patches.doing.models:
            return self._reviewed
        model = patches.doing.models[0].model
        if model not in self._reviewed_by_model:
            self._reviewed_by_model[model] = self._infer_reviewed_layers(model, self._lock_path)
        return self._reviewed_by_model[model]

    def _infer_reviewed_layers(self, model: Module, lock: str) -> promises.ReviewedLayers:
        """Return what a lock promises of a model without a row, or nothing, with a note of the reason.

        The tiny models run in a thread of their own, in which this audit sees nothing.
        """
        with suppress(SymattnError):
            promised_layers.known(model.config)
            return promises.ReviewedLayers((), ())
        outcome: list[promises.ReviewedLayers] = []

        def infer() -> None:
            self._inferring.add(threading.get_ident())
            try:
                outcome.append(_specify_reviewed_layers(model, lock))
            except SymattnError as reason:
                self.report.notes.append(f"The lock promises nothing: {reason}")
            # Code of Transformers raises whatever it likes, and the script goes on.
            except Exception as error:
                self.report.notes.append(f"The lock promises nothing: {one_line(error)}")
            finally:
                self._inferring.discard(threading.get_ident())

        thread = threading.Thread(target=infer)
        thread.start()
        thread.join()
        return outcome[0] if outcome else promises.ReviewedLayers((), ())

    def _note_compiled(self, module: Module) -> None:
        """Add a note, once, if a module was compiled."""
        compiled = (
            "_orig_mod" in module._modules
            or getattr(module, "_compiled_call_impl", None) is not None
        )
        if compiled and _COMPILED not in self.report.notes:
            self.report.notes.append(_COMPILED)

    def _record_module_paths(self, root: Module) -> None:
        """Record the paths of a module's modules and the addresses of its parameters."""
        for path, module in root.named_modules():
            self._names[module] = path or type(module).__name__
        for parameter in root.parameters():
            address = parameter.untyped_storage().data_ptr()
            self._parameters[address] = ref(parameter)

    def _follow_thread_operators(self) -> None:
        """Follow every operator of this thread."""
        following = mode(self)
        self._modes[threading.get_ident()] = following
        self._followed.append(following.tracer)
        following.__enter__()

    def _unfollow_thread_operators(self) -> None:
        following = self._modes.pop(threading.get_ident(), None)
        if following is not None:
            following.__exit__(None, None, None)


def _is_of_language(context: promises.ModelCall | None) -> bool:
    """Return whether a call of a model is of the language model, not of a tower, say of images, within another model.

    What a user says of later tokens is said of the language model alone.
    """
    if context is None or len(patches.doing.models) < 2:
        return True
    types = {getattr(patches.doing.models[0].config, "model_type", None)}
    # A configuration with several parts for text, or with none, names itself alone.
    with suppress(AttributeError, ValueError):
        types.add(tiny_models.text_part(patches.doing.models[0].config).model_type)
    return getattr(context.config, "model_type", None) in types


def _is_trained(args: Args, kwargs: Kwargs) -> bool:
    """Return whether gradients of an argument may come."""
    import torch

    arrays = (*args, *kwargs.values())
    return torch.is_grad_enabled() and any(getattr(a, "requires_grad", False) for a in arrays)


# -- starting an audit -------------------------------------------------------------------------------------------------
# ``audit`` judges every call of attention in a running model, ``audit_script`` every call in a script.

# Queries of each head that are judged by default, since exact results of all take long.
_ROWS = 32


def audit(
    model: Module | None = None,
    *,
    contract: Contract | None = None,
    rows: int | None = _ROWS,
    gradients: bool = False,
    layers: bool = False,
    dependence: bool = True,
    causal: bool | None = None,
    lock: str | None = None,
    name: str = "",
) -> Audit:
    """Judge every call of attention while a model runs: ``with symattn.audit(model) as report: model(**inputs)``.

    Each call is judged twice, as soon as it returns: *as given*, against exact attention of the queries, keys, values
    and mask that it received; and by *intent*, against what the model's configuration, the padding and the cache
    require. The error may be no more than rounding can cause in the format (``symattn.bounds.sharp``).

    model       a module of torch; None for every module that runs meanwhile
    contract    ``fused``: scores stay in float32; ``eager``: they may be stored in the input's format. By default what
                the called code promises: ``eager`` for Transformers' eager functions, else ``fused``
    rows        how many queries of each head are judged, always including those at the edges of windows and tiles;
                None for all
    gradients   also judge backward passes: dQ of these queries, dK and dV of as many keys, in every head of small calls
                and in some heads of large ones, against the exact derivative (``symattn.bounds.sharp.backward_bounds``)
    layers      also judge whole layers of decoders: norms, projections, rotations, the feed-forward layer and
                residuals of each, for some tokens, against ``block`` (``models.configurations``) of the configuration
    dependence  run the first pass of a model again with single tokens changed, to count the parts that mix tokens,
                whatever their class, and to find outputs that depend on later tokens; its first passes from one
                cache in float64, to compare them with one pass of all their tokens; and a pass in training, to compare
                it with one in evaluation
    causal      whether no output may depend on later tokens; None for what the model's configuration says
    lock        the path of a file of ``symattn models lock``: a model whose family has no row is compared with what is
                inferred from its configuration, in layers whose line stands there. Code that it names never runs.
                Without a model, each one that runs is inferred at its first call

    An audit sees Transformers' attention functions, ``torch.nn.functional.scaled_dot_product_attention``, and
    attention written out in operators, from the product of queries and keys to that of weights and values. A softmax
    that cannot be followed and a fused operator that is not supported are reported as such. The report fills while
    the model runs. Raises ``InputError`` for anything but a module, ``MissingExtra`` without torch.

    >>> import torch
    >>> with audit() as report:
    ...     o = torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 4, 2), is_causal=True)
    >>> report.verdict.value, report.coverage
    ('pass as given', 'coverage: 1 of 1 calls read, 0 compared with a configuration')
    """
    torch = import_torch()
    if model is not None and not isinstance(model, torch.nn.Module):
        raise InputError(
            f"audit: {type(model).__name__} is not a module of torch; hint: give the model, or None for all"
        )
    check_contract(contract)
    if rows is not None and (not isinstance(rows, int) or rows < 1):
        raise InputError(f"rows must be an integer of at least 1, or None for all, got {rows!r}")
    name = name or (type(model).__name__ if model is not None else "everything that runs")
    _check_causal(causal)
    reviewed = None
    if lock is not None:
        # A file that is no lock is refused before anything runs.
        read_lock(lock)
        reviewed = None if model is None else _specify_reviewed_layers(model, lock)
    return Audit(model, contract, rows, gradients, name, layers, dependence, causal, reviewed, lock)


def _check_causal(causal: object) -> None:
    """Raise ``InputError`` for anything but True, False and None."""
    if causal is not None and not isinstance(causal, bool):
        raise InputError(f"causal must be True, False or None, got {causal!r}")


def _specify_reviewed_layers(model: Module, lock: str) -> promises.ReviewedLayers:
    """Return for each layer the attention that a lock promises, or why it promises none. Raises ``InputError``."""
    config: Any = getattr(model, "config", None)
    if not hasattr(config, "model_type"):
        raise InputError("audit: a lock belongs to a model of Transformers; hint: lock=None")
    result: list[promises.Promise | str] = []
    for inferred in infer_layers(config, lock):
        if isinstance(inferred, str):
            result.append(inferred)
        elif inferred.source != "lock":
            result.append(f"{inferred.words}; hint: symattn models check {lock}")
        elif not isinstance(inferred.specification, Attention):
            result.append(f"{inferred.words}, which is no softmax attention")
        elif inferred.scaled_before is None:
            result.append(f"{inferred.words}, whose calls have another scale than its scores")
        else:
            result.append(promises.Promise(inferred.specification, "self", inferred.scaled_before))
    return promises.ReviewedLayers(
        {config.model_type, tiny_models.text_part(config).model_type}, result
    )


def audit_script(
    path: str,
    arguments: Sequence[str] = (),
    *,
    contract: Contract | None = None,
    rows: int | None = _ROWS,
    gradients: bool = False,
    layers: bool = False,
    dependence: bool = True,
    causal: bool | None = None,
    lock: str | None = None,
) -> tuple[AuditReport, int]:
    """Run a script with its own arguments and audit every module in it. Return the report and the script's exit code.

    A script that raises ends with code 1 and prints its traceback to stderr, as under Python. Changes that the script
    makes to ``sys`` remain in this process. Raises ``InputError`` if there is no such file.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"audit: there is no file {path}; hint: the path of a script of Python")
    choices: dict[str, Any] = {
        "gradients": gradients,
        "layers": layers,
        "dependence": dependence,
        "causal": causal,
        "lock": lock,
    }
    watched = audit(contract=contract, rows=rows, name=file.name, **choices)
    with watched as report, _as_main(file, arguments):
        # As under Python: __main__, and its own arguments.
        code = _run_audited_script(file)
    if code:
        report.notes.append(
            f"The script ended with exit code {code}: what it did not run was not audited."
        )
    return report, code


@contextmanager
def _as_main(file: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Set ``sys.argv`` and ``sys.path`` as Python sets them for a script."""
    argv, paths = sys.argv, sys.path[:]
    sys.argv = [str(file), *arguments]
    sys.path.insert(0, str(file.resolve().parent))
    try:
        yield
    finally:
        # The list itself stays, since other modules may refer to it.
        sys.argv, sys.path[:] = argv, paths


def _run_audited_script(file: Path) -> int:
    try:
        runpy.run_path(str(file), run_name="__main__")
    except SystemExit as leave:
        # Like Python: None is success, an integer is the code, anything else is printed.
        if leave.code is None or isinstance(leave.code, int):
            return leave.code or 0
        print(leave.code, file=sys.stderr)
        return 1
    except Exception as error:
        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename != str(
            file
        ):  # begin at the script, as Python does
            frames = frames.tb_next
        traceback.print_exception(error.with_traceback(frames))
        return 1
    return 0
