"""Let kernels of Triton run in its interpreter on a machine without a GPU: a stand-in for the driver, and for tuning.

With ``TRITON_INTERPRET=1`` kernels run on the CPU, but code around them asks for the device: files of kernels choose
configurations by it when they are imported, and ``@triton.autotune`` measures times with it. The stand-in is a device
of one fixed kind. Nothing is measured: each tuning key has one of the configurations that remain after pruning, drawn
by the key alone, so that different keys try different ones and a call can be repeated.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

from symattn.arrays.notes import note

#: Modules of Triton that are changed.
_DRIVER, _TUNER = "triton.runtime.driver", "triton.runtime.autotuner"
_INTERPRETER = "triton.runtime.interpreter"
# compute capability 8.0: without the matrix units' descriptors of later devices
_ARCHITECTURE = 80
_LANES = 32  # threads of a warp
#: What ``get_device_properties`` says: those of an NVIDIA A100.
_PROPERTIES = {
    "max_shared_mem": 166_912,
    "max_num_regs": 65_536,
    "multiprocessor_count": 108,
    "warpSize": _LANES,
    "sm_clock_rate": 1_410_000,
    "mem_clock_rate": 1_215_000,
    "mem_bus_width": 5_120,
}


def interpreted() -> bool:
    """Return whether Triton is asked to interpret its kernels."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "y", "yes")


def prepare() -> None:
    """Put the stand-ins into Triton's modules that are loaded, and into the others once they are; nothing without
    ``TRITON_INTERPRET``."""
    if not interpreted():
        return
    for name, change in _CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:  # a base class of ``importlib.abc`` would import archives and temporary files
    """Changes two modules of Triton when they are imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Any:
        if name not in _CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = _Loader(spec.loader, _CHANGES[name])
            spec.loader = loader
        return spec


class _Loader:
    """Loads a module, and changes it."""

    def __init__(self, own: Any, change: Callable[[Any], None]) -> None:
        self._own, self._change = own, change

    def create_module(self, spec: Any) -> Any:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        self._change(module)


# -- the device --------------------------------------------------------------------------------------------------------
class _Driver:
    """A device on which nothing is launched."""

    def __init__(self) -> None:
        self.utils = SimpleNamespace(get_device_properties=lambda device=0: dict(_PROPERTIES))

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", _ARCHITECTURE, _LANES)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cpu

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(_ARCHITECTURE, 10)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        return None

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def _with_driver(module: Any) -> None:
    """Set the stand-in if no device is there."""
    from triton.backends import backends

    if module.driver._active is None and not any(
        backend.driver.is_active() for backend in backends.values()
    ):
        module.driver.set_active(_Driver())


# -- tuning ------------------------------------------------------------------------------------------------------------
def _without_clock(module: Any) -> None:
    """Let tuning choose a configuration by its key, the next one if a static assertion refuses that."""
    module.Autotuner.run = _run_tuned_kernel


def _run_tuned_kernel(tuner: Any, *places: Any, **keywords: Any) -> Any:
    """Run a kernel with the configuration of its key. Raises what it raised with the last, if all are refused."""
    tuner.nargs = dict(zip(tuner.arg_names, places, strict=False))
    arguments = {**tuner.nargs, **keywords}
    configurations = tuner.prune_configs(keywords) if len(tuner.configs) > 1 else tuner.configs
    # Tensors are left out, since addresses differ between runs.
    key = repr(
        [
            arguments[name]
            for name in tuner.keys
            if name in arguments and not hasattr(arguments[name], "data_ptr")
        ]
    )
    # Not ``hash``, which differs between processes.
    first = zlib.crc32(key.encode()) % len(configurations)
    if len(configurations) > 1:
        name = getattr(tuner.base_fn, "__name__", "a kernel")
        note(
            f"of the {len(configurations)} configurations that {name} is tuned over, each tuning key has one"
        )
    for configuration in (*configurations[first:], *configurations[:first]):
        chosen = configuration.all_kwargs()
        try:
            if configuration.pre_hook is not None:
                configuration.pre_hook({**arguments, **chosen})
            result = tuner.fn.run(*places, **keywords, **chosen)
        except Exception as error:
            if not _is_refusal(error):
                raise
            refused = error
            continue
        tuner.best_config, tuner.nargs = configuration, None
        return result
    raise refused


def _is_refusal(error: BaseException | None) -> bool:
    """Return whether a static assertion of a kernel refused a configuration, as a compiler would."""
    while error is not None:
        frames, at = [], error.__traceback__
        # The last frame of a traceback is where the error was raised.
        while at is not None:
            frames.append(at.tb_frame.f_code.co_name)
            at = at.tb_next
        if isinstance(error, AssertionError) and frames[-1:] == ["_new_static_assert"]:
            return True
        # The interpreter raises its own error from the kernel's.
        error = error.__cause__
    return False


# -- the interpreter ---------------------------------------------------------------------------------------------------
def _patched_once(module: Any) -> None:
    """Let the interpreter replace the functions of Triton's language once: for each launch it takes longer than a
    small kernel runs."""
    own: Any = module._patch_lang
    ready: set[int] = set()
    # The module is patched already.
    if own.__module__ == __name__:
        return

    def patch_language(function: Any) -> Any:
        used = {
            id(x) for x in function.__globals__.values() if x is module.tl or x is module.tl.core
        }
        if not used or not used <= ready:
            own(function)
            ready.update(used)
        # Nothing is restored, so that the next launch needs no patch.
        return SimpleNamespace(restore=lambda: None)

    module._patch_lang = patch_language


@contextmanager
def without_checks_of_overflow() -> Iterator[None]:
    """Let the interpreter compute whole numbers without looking for overflow, which takes half its time."""
    module = sys.modules.get(_INTERPRETER)
    if module is None:
        yield
        return
    builder = module.interpreter_builder
    from unittest.mock import patch  # its import takes a tenth of a worker's start

    with patch.object(builder, "options", replace(builder.options, sanitize_overflow=False)):
        yield


#: What is changed in each module once it is loaded.
_CHANGES: dict[str, Callable[[Any], None]] = {
    _DRIVER: _with_driver,
    _TUNER: _without_clock,
    _INTERPRETER: _patched_once,
}
