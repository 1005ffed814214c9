"""Layers of decoders while they run: hooks on modules named in the family's row, and a finding when a layer ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from symattn.document.errors import SymattnError
from symattn.models.auditing import patches
from symattn.models.auditing.begun import defect
from symattn.models.auditing.layers.layer_judge import Judge
from symattn.models.auditing.layers.part_judge import LayerFinding, PartFinding
from symattn.models.auditing.layers.seen import Pass, TokenDigests, begun, same
from symattn.models.auditing.received import Received
from symattn.models.auditing.setting import Args, Kwargs, Module, Tensor
from symattn.models.configurations import promised_layers
from symattn.programs.names import Function

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

# wrong passes whose causes are searched for: those of further layers mostly have the same
_SEARCHED = 4


class Layers:
    """The layers of the audited modules; ``report`` is called with the finding of each pass."""

    def __init__(self, report: Callable[[LayerFinding], None]) -> None:
        self._report = report
        self._handles: list[RemovableHandle] = []
        self._known: WeakSet[Module] = WeakSet()
        self._running = threading.local()
        self._searched = 0
        self._noted: WeakKeyDictionary[object, dict[str, TokenDigests]] = WeakKeyDictionary()

    def know(self, root: Module) -> None:
        """Hook the layers within a module."""
        for name, layer, config in _yield_decoder_layers(root):
            # A module may be part of several roots, and is hooked once.
            if layer in self._known:
                continue
            self._known.add(layer)
            try:
                result = promised_layers.promised(config, int(name.rpartition(".")[2]), parts=True)
                modules = {
                    part: layer.get_submodule(path) for part, path in result.layout.paths.items()
                }
            except (SymattnError, AttributeError) as error:
                reason = (
                    str(error)
                    if isinstance(error, SymattnError)
                    else f"it has other modules: {error}"
                )
                unknown = LayerFinding(name, reason=reason)
                self._hook_layer_module(
                    layer, None, lambda *_, unknown=unknown: self._report(unknown)
                )
                continue
            self._hook_layer_and_parts(name, layer, result, modules)
            # The module that runs the list notices layers that did not run.
            path = name.rpartition(".")[0]
            owner = root.get_submodule(path.rpartition(".")[0])
            if owner not in self._known:
                self._known.add(owner)
                self._hook_layer_module(
                    owner, self._begin_list, partial(self._end_list, path, config)
                )

    def close(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def attended(self, received: Received, out: Tensor, heads_last: bool) -> None:
        """Record a call of attention for the layer that is running."""
        layer_pass = self._find_current_layer_pass()
        if layer_pass is None:
            return
        # Two calls in one layer cannot be told apart.
        if layer_pass.called:
            layer_pass.reason = "attention is called more than once in it"
        else:
            self._run_layer_hook_safely(layer_pass.compare, received)
        self._run_layer_hook_safely(layer_pass.attended, received, out, heads_last)

    def __deepcopy__(self, memo: object) -> Layers:
        # Hooks of this audit stay in the copies of a model that a probe runs, and do nothing there.
        return self

    # -- hooks ---------------------------------------------------------------------------------------------------------
    def _hook_layer_and_parts(
        self,
        name: str,
        layer: Module,
        promise: promised_layers.Promised,
        modules: dict[str, Module],
    ) -> None:
        self._hook_layer_module(
            layer,
            partial(self._begin_layer_pass, name),
            partial(self._end_layer_pass, name, promise, modules),
        )
        for part, module in modules.items():
            # The attention module gets the tables of positions.
            if part == "attention":
                self._hook_layer_module(module, self._record_rotary_tables, None)
            else:
                self._hook_layer_module(
                    module,
                    partial(self._record_part_input, part),
                    partial(self._record_part_output, part),
                )

    def _hook_layer_module(
        self, module: Module, before: Function | None, after: Function | None
    ) -> None:
        if before is not None:
            run = partial(self._run_layer_hook_safely, before)
            self._handles.append(module.register_forward_pre_hook(run, with_kwargs=True))
        if after is not None:
            run = partial(self._run_layer_hook_safely, after)
            # Also if the module raises, so that no pass stays open.
            self._handles.append(
                module.register_forward_hook(run, with_kwargs=True, always_call=True)
            )

    def _run_layer_hook_safely(self, act: Callable[..., None], *arguments: object) -> None:
        """Run a hook such that the model runs as usual even if symattn fails."""
        import torch

        # Passes that the probe of dependence repeats are not judged.
        if patches.doing.probing:
            return
        try:
            with patches.reading(), torch.no_grad():
                act(*arguments)
        except Exception as error:
            layer_pass = self._find_current_layer_pass()
            if layer_pass is not None:
                layer_pass.reason = defect(error)

    def _list_running_layers(self) -> list[tuple[Module, Pass | None]]:
        """The running layers of this thread."""
        # Each thread has a stack of its own.
        if not hasattr(self._running, "passes"):
            self._running.passes = []
        result: list[tuple[Module, Pass | None]] = self._running.passes
        return result

    def _find_current_layer_pass(self) -> Pass | None:
        stack = self._list_running_layers()
        return stack[-1][1] if stack else None

    def _begin_layer_pass(self, name: str, layer: Module, args: Args, kwargs: Kwargs) -> None:
        import torch

        tokens = _find_first_tensor(args, kwargs)
        layer_pass = begun(patches.doing.models[-1] if patches.doing.models else None, tokens)
        self._list_running_layers().append((layer, layer_pass))
        if layer_pass is None:
            return
        arguments = (*args, *kwargs.values())
        cache = next((a for a in arguments if hasattr(a, "get_seq_length")), None)
        # Passes over one cache belong together: older keys must come back unchanged.
        if cache is not None:
            layer_pass.name, layer_pass.noted = name, self._noted.setdefault(cache, {})
            # a pass whose attention is not seen leaves none
            layer_pass.earlier = layer_pass.noted.pop(name, None)
        rows = layer_pass.rows(tokens)
        if rows is not None:
            layer_pass.gave["x"] = rows
        if torch.is_autocast_enabled(tokens.device.type):
            layer_pass.reason = "autocast is on: the format of each part is unknown"
        elif layer.training:
            layer_pass.reason = (
                "the model is in training, where dropout may be on; hint: model.eval()"
            )

    def _record_part_input(self, part: str, module: Module, args: Args, kwargs: Kwargs) -> None:
        layer_pass, tensor = self._find_current_layer_pass(), _find_first_tensor(args, kwargs)
        if layer_pass is None or tensor is None:
            return
        if part in layer_pass.given or part in layer_pass.heads:
            layer_pass.reason = f"{part} runs more than once in it"
        rows = layer_pass.rows(tensor)
        # With four axes, heads lie before or after the tokens: the judge compares both.
        if part.endswith(("q_norm", "k_norm")) and tensor.ndim == 4:
            layer_pass.heads[part] = ((rows, None), (layer_pass.by_head(tensor), None))
        elif rows is not None:
            layer_pass.given[part] = rows

    def _record_part_output(
        self, part: str, module: Module, args: Args, kwargs: Kwargs, out: Tensor
    ) -> None:
        layer_pass = self._find_current_layer_pass()
        # Modules may return a tuple, of which the first is the output.
        out = out[0] if isinstance(out, tuple) else out
        if layer_pass is None or out is None:
            return
        rows = layer_pass.rows(out)
        if part in layer_pass.heads:
            (first, _), (last, _) = layer_pass.heads[part]
            layer_pass.heads[part] = ((first, rows), (last, layer_pass.by_head(out)))
        elif rows is not None:
            layer_pass.gave[part] = rows

    def _record_rotary_tables(self, module: Module, args: Args, kwargs: Kwargs) -> None:
        """Record the cosines and sines that attention is given, or that GPT-J looks up."""
        layer_pass = self._find_current_layer_pass()
        if layer_pass is None:
            return
        tables = kwargs.get("position_embeddings")
        if tables is None:
            pairs = (a for a in args if isinstance(a, tuple) and len(a) == 2)
            tables = next(pairs, None)
        stored, places = getattr(module, "embed_positions", None), kwargs.get("position_ids")
        # GPT-J looks up its tables, in which sines come before cosines.
        if tables is None and stored is not None and hasattr(stored, "ndim") and places is not None:
            rows = stored[places].to(_find_first_tensor(args, kwargs).dtype)
            sin, cos = rows.chunk(2, dim=-1)
            tables = cos, sin
        layer_pass.tables = None if tables is None else layer_pass.of_tables(tables)

    def _end_layer_pass(
        self,
        name: str,
        promise: promised_layers.Promised,
        modules: dict[str, Module],
        layer: Module,
        args: Args,
        kwargs: Kwargs,
        out: Tensor,
    ) -> None:
        layer_pass = self._pop_ended_layer(layer)
        out = out[0] if isinstance(out, tuple) else out
        if out is None:  # it raised
            return
        ran = getattr(self._running, "ran", None)
        before = ran[-1] if ran else None
        if ran is not None:
            ran.append((name, layer_pass))
        if layer_pass is None:
            self._report(
                LayerFinding(name, reason="its input is not an array of tokens (b, n, d_model)")
            )
            return
        rows = layer_pass.rows(out)
        if rows is not None:
            layer_pass.gave["output"] = rows
        if layer_pass.reason:
            self._report(LayerFinding(name, reason=layer_pass.reason))
            return
        try:
            judging = Judge(layer_pass, promise, modules, self._searched < _SEARCHED)
            finding = LayerFinding(
                name, (*_yield_fault_of_order(name, layer_pass, before), *judging.findings())
            )
        except Exception as error:
            finding = LayerFinding(name, reason=defect(error, "judge it"))
        self._searched += finding.state == "wrong"
        self._report(finding)

    def _begin_list(self, owner: Module, args: Args, kwargs: Kwargs) -> None:
        self._running.ran = []

    def _end_list(
        self, path: str, config: Any, owner: Module, args: Args, kwargs: Kwargs, out: object
    ) -> None:
        """Report the layers of the configuration that did not run, if others of the list ``path`` did."""
        ran, self._running.ran = {name for name, _ in self._running.ran}, None
        # In training, layers may be left out at random.
        if out is None or owner.training or not ran:
            return
        layers = list(owner.get_submodule(path.rpartition(".")[2]))[
            : getattr(config, "num_hidden_layers", None)
        ]
        for name, layer in ((f"{path}.{i}", layer) for i, layer in enumerate(layers)):
            # Hooks do not run in compiled layers.
            if (
                name not in ran
                and layer in self._known
                and getattr(layer, "_compiled_call_impl", None) is None
            ):
                self._report(
                    LayerFinding(
                        name, (PartFinding("output", np.inf, True, "the layer did not run"),)
                    )
                )

    def _pop_ended_layer(self, layer: Module) -> Pass | None:
        stack = self._list_running_layers()
        while stack:
            # Passes of layers that raised are dropped.
            module, layer_pass = stack.pop()
            if module is layer:
                return layer_pass
        return None


def _yield_decoder_layers(root: Module) -> Iterator[tuple[str, Module, object]]:
    """Yield modules of lists that contain an attention: the name, the module, and the nearest configuration."""
    names: list[str] = []
    configs = {
        name: m.config
        for name, m in root.named_modules()
        if hasattr(getattr(m, "config", None), "model_type")
    }
    for name, module in root.named_modules():
        # A list within a layer, such as one of experts, has no layers of its own.
        if not name.rpartition(".")[2].isdigit() or name.startswith(
            tuple(f"{outer}." for outer in names)
        ):
            continue
        below = (m for name, m in module.named_modules() if name)
        inner = [m for m in below if "attention" in type(m).__name__.lower()]
        own = next(
            (
                m.config
                for m in (module, *inner)
                if hasattr(getattr(m, "config", None), "model_type")
            ),
            None,
        )
        if own is None:  # the one of the nearest module around it
            outer = [path for path in configs if not path or name.startswith(f"{path}.")]
            own = configs[max(outer, key=len)] if outer else None
        if inner and own is not None:
            names.append(name)
            yield name, module, own


def _yield_fault_of_order(
    name: str, seen: Pass, before: tuple[str, Pass | None] | None
) -> Iterator[PartFinding]:
    """Yield a fault if the layer that ran before is not the one before in the list, or gave other tokens."""
    path, _, place = name.rpartition(".")
    # The layer that ran before belongs to another list, or none did.
    if before is None or before[0].rpartition(".")[0] != path:
        return
    tokens = seen.gave.get("x")
    gave = None if before[1] is None else before[1].gave.get("output")
    cause = ""
    if before[0] != f"{path}.{int(place) - 1}":
        cause = f"the layer runs after {before[0]}"
    elif tokens is not None and gave is not None and not same(gave, tokens):
        cause = f"the layer is not given what {before[0]} gave"
    if cause:
        yield PartFinding("input", np.inf, True, cause)


def _find_first_tensor(args: Args, kwargs: Kwargs) -> Tensor:
    """The first tensor among the arguments of a call."""
    return next((t for t in (*args, *kwargs.values()) if hasattr(t, "ndim")), None)
