"""Replacements in torch and Transformers while an audit runs: made once for all audits, and undone after the last.

Every audit that runs sees each call, one inside of the other.

Everything is replaced at the place where each call looks it up: a method of Transformers' table of attention
functions, the ``__call__`` of its models, one function of ``torch.nn.functional``, recurrences and convolutions in the
files of the modules that run, and global hooks of modules. What is in progress is kept for each thread.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from symattn.models.auditing import promises
from symattn.models.auditing.mixers.reading import find_reader
from symattn.models.auditing.setting import Args, Module, Tensor
from symattn.programs.names import Function

if TYPE_CHECKING:
    from symattn.models.auditing.audit import Audit


class Doing(threading.local):
    """The state of a thread: running modules and calls of models, and whether a call is being read."""

    def __init__(self) -> None:
        self.modules: list[Module] = []
        self.models: list[promises.ModelCall] = []
        self.functions = 0  # instances of torch.autograd.Function in their forward pass, with a backward pass to come
        self.reading = 0
        self.probing = False  # whether a model is run again by a probe, which no audit looks at
        self.followed: list[Audit] = []


doing = Doing()
# Guards the audits that run, and the steps that undo the replacements.
_lock = threading.Lock()
_watchers: list[Audit] = []
_undo: list[Callable[[], None]] = []
# Classes whose files have been searched for recurrences since the first audit that runs.
_searched_kinds: set[type] = set()


@contextmanager
def reading() -> Iterator[None]:
    """Mark that a call is read, judged or run: nothing inside of it counts as another call."""
    doing.reading += 1
    try:
        yield
    finally:
        doing.reading -= 1


@contextmanager
def probing() -> Iterator[None]:
    """Mark that a model is run again: neither its calls nor its modules are seen.

    Some models draw by Python or NumPy, whose next numbers stay as they were.
    """
    states = random.getstate(), np.random.get_state()
    doing.probing = True
    try:
        with reading(), aside():
            yield
    finally:
        doing.probing = False
        random.setstate(states[0])
        np.random.set_state(states[1])


def in_backward() -> bool:
    """Return whether this thread is in a backward pass, in which a checkpoint may run a layer again."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


@contextmanager
def aside() -> Iterator[None]:
    """Run without the mode that follows operators, under which flex_attention cannot run."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily

    top = _get_current_dispatch_mode()
    with _pop_mode_temporarily() if hasattr(top, "tracer") else nullcontext():
        yield


def watch(watcher: Audit) -> None:
    """Report calls to a watcher from now on."""
    with _lock:
        if not _watchers:
            _install_torch_patches()
        _watchers.append(watcher)


def leave(watcher: Audit) -> None:
    """Stop reporting to a watcher; after the last one, undo all replacements."""
    with _lock:
        _watchers.remove(watcher)
        if not _watchers:
            while _undo:
                _undo.pop()()
            _searched_kinds.clear()


def _install_torch_patches() -> None:
    import torch
    from torch.nn.modules import module as hooks

    functional, name = torch.nn.functional, "scaled_dot_product_attention"
    wrapper = lambda watcher, function: lambda *a, **k: watcher.fused(function, a, k)  # noqa: E731
    _replace(functional, name, _wrap_for_watchers(getattr(functional, name), wrapper))
    handles = (
        hooks.register_module_forward_pre_hook(lambda module, inputs: _note_entered_module(module)),
        hooks.register_module_forward_hook(_note_left_module, with_kwargs=True, always_call=True),
    )
    _undo.extend(handle.remove for handle in handles)
    _patch_autograd_functions()
    _patch_transformers()


def _note_entered_module(module: Module) -> None:
    if doing.probing:
        return
    doing.modules.append(module)
    if type(module) not in _searched_kinds:
        _patch_mixers(type(module))
    # A copy, since another thread may begin or end an audit.
    for watcher in tuple(_watchers):
        watcher.entered(module)


def _note_left_module(module: Module, args: Args, *rest: Any) -> None:
    """Note that a module ends. Torch leaves the keywords out if the module raised."""
    if doing.probing:
        return
    kwargs = rest[0] if len(rest) == 2 else {}
    for watcher in reversed(tuple(_watchers)):
        watcher.left(module, args, kwargs, rest[-1])
    # Inner modules that raised may still be on the stack.
    if any(m is module for m in doing.modules):
        while doing.modules.pop() is not module:
            pass


def _patch_autograd_functions() -> None:
    """Count functions of autograd, except checkpoints, which run their contents again when gradients come."""
    import torch
    from torch.autograd.function import Function

    own = vars(Function)["apply"]  # a method of a class, of Python's or, in newer versions, of C

    def apply(cls: type, /, *args: object, **kwargs: object) -> Tensor:
        # Only a function with a backward pass of its own hides gradients.
        trained = torch.is_grad_enabled() and any(getattr(a, "requires_grad", False) for a in args)
        inside = trained and cls.__name__ != "CheckpointFunction"
        doing.functions += inside
        try:
            return own.__get__(None, cls)(*args, **kwargs)
        finally:
            doing.functions -= inside

    _replace(Function, "apply", classmethod(apply))


def _patch_transformers() -> None:
    try:
        from transformers.modeling_utils import AttentionInterface, PreTrainedModel
    except ImportError:
        return
    own, called = AttentionInterface.get_interface, PreTrainedModel.__call__

    def get_interface(self: AttentionInterface, name: str, default: Function) -> Function:
        wrapper = lambda watcher, function: lambda *a, **k: watcher.interface(function, name, a, k)  # noqa: E731
        return _wrap_for_watchers(own(self, name, default), wrapper)

    def __call__(self: Module, *args: Tensor, **kwargs: Tensor) -> Tensor:
        doing.models.append(promises.context_of(self, args, kwargs))
        try:
            return called(self, *args, **kwargs)
        finally:
            doing.models.pop()

    _replace(AttentionInterface, "get_interface", get_interface)
    _replace(PreTrainedModel, "__call__", __call__)


def _patch_mixers(kind: type) -> None:
    """Have recurrences and convolutions seen that the files of a class and its bases hold.

    A module's code looks them up in its file whenever it calls one, so it is early enough when a module begins.
    """
    with _lock:
        # Another thread may have ended the last audit meanwhile.
        if not _watchers or kind in _searched_kinds:
            return
        _searched_kinds.add(kind)
        for file in {base.__module__ for base in kind.__mro__}:
            module = sys.modules.get(file, object)
            # A copy, since patching writes into the module.
            for name, function in list(vars(module).items()):
                reader = find_reader(name) if callable(function) else None
                if reader is None or hasattr(function, "_symattn_watched"):
                    continue
                wrapper = partial(_watch_mixer_call, reader, name)
                wrapped = _wrap_for_watchers(function, wrapper)
                vars(wrapped)["_symattn_watched"] = True
                _replace(sys.modules[file], name, wrapped)


def _watch_mixer_call(reader: Any, name: str, watcher: Audit, function: Function) -> Function:
    return lambda *args, **kwargs: watcher.mixed(function, name, reader, args, kwargs)


def _wrap_for_watchers(function: Function, seen: Callable[[Audit, Function], Function]) -> Function:
    """Return a function whose calls every watcher sees, one inside of the other."""
    import torch

    @wraps(function)
    def attention(*args: object, **kwargs: object) -> Tensor:
        inner = function
        # Calls within a reading are symattn's own, and compiled code must not contain an audit.
        if not (doing.reading or torch.compiler.is_compiling()):
            for watcher in tuple(_watchers):
                inner = wraps(inner)(seen(watcher, inner))
        return inner(*args, **kwargs)

    return attention


def _replace(owner: object, name: str, new: object) -> None:
    # None: the attribute is inherited, and is deleted again.
    own = vars(owner).get(name)

    def restore() -> None:
        # What other code has put there since the audit began is its own.
        if vars(owner).get(name) is not new:
            return
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)

    setattr(owner, name, new)
    _undo.append(restore)
