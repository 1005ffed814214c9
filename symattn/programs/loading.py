"""Find a user's function by its name: ``package.module:function`` or ``file.py:function``."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from symattn.document.errors import CannotRun, InputError, MissingExtra, NeedsMemory, perhaps
from symattn.programs import guard, triton_host
from symattn.programs.names import Function, called, parameters
from symattn.programs.refusing import NotCallable, one_line, where

Brought = TypeVar("Brought")
#: The forms of a target, for messages.
FORMS = "package.module:function or file.py:function"


class BadTarget(InputError):
    """Raised for a target that names no function, or has an unknown form."""


class NoSuchFile(InputError):
    """Raised if the file of a target does not exist."""


class NoSuchAttribute(InputError):
    """Raised if the module of a target has no such name."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded function: ``name`` is the target as typed, ``origin`` the file that it comes from."""

    function: Function
    name: str
    origin: str

    @property
    def display(self) -> str:
        """The name with its parameters: ``attn.py:attention(q, k, v)``."""
        return called(self.name, parameters(self.function))


def load(target: str) -> Loaded:
    """Return the function that ``target`` names.

    The current directory, and the directory of a file, are put first on ``sys.path`` and stay there, since a function
    may import when it is called. No ``.pyc`` is written. ``file.py:Model(8)`` is an instance of a class, made with the
    literals in parentheses. Raises ``BadTarget``, ``NoSuchFile``, ``NoSuchAttribute``,
    ``NotCallable`` (bad input), ``CannotRun`` (the import fails) or ``MissingExtra`` (it needs torch).
    """
    whole, target, arguments = target, *_call_of(target)
    place, _, attribute = target.rpartition(":")
    if target.endswith((".npz", ".safetensors")):
        raise BadTarget(
            f"{target} is a trace, not a function; hint: symattn verify {target}, or {FORMS}"
        )
    if not place or not all(part.isidentifier() for part in attribute.split(".")):
        path = Path(target)
        if target.endswith(".py") and path.is_file():  # the file is read, not run
            text = path.read_text(encoding="utf-8", errors="replace")
            first = [
                f"{path}:{name}" for name in re.findall(r"^def ([^\W_]\w*)", text, re.MULTILINE)[:3]
            ]
            some = " or ".join(first or [f"{path}:function"])
            raise BadTarget(f"{target}: name one of its functions, such as {some}")
        if path.is_file():
            kinds = "no trace (.npz, .safetensors), no graph (.onnx) and no file of Python (.py)"
            raise BadTarget(f"{target} is {kinds}; give {FORMS}")
        raise BadTarget(
            f"{target if target.strip(': ') else repr(target)}: no function is named; give {FORMS}"
        )
    if not place.endswith(".py") and not all(part.isidentifier() for part in place.split(".")):
        raise BadTarget(f"{target}: {place} is neither a module nor a .py file; give {FORMS}")
    module = load_module(place)
    function = (
        _resolve_target_attribute(module, attribute, place)
        if arguments is None
        else _make_class_instance(module, attribute, place, arguments)
    )
    return Loaded(function, whole, str(getattr(module, "__file__", None) or place))


def place_of(target: str) -> str:
    """Return the file or the module that a target names.

    >>> place_of("kernel.py:Model('a:b')")
    'kernel.py'
    """
    return _call_of(target)[0].rpartition(":")[0]


_Arguments = tuple[list[object], dict[str, object]]


def _call_of(target: str) -> tuple[str, _Arguments | None]:
    """Split ``file.py:Model(8, bias=False)`` into the name and the arguments; None if there are no parentheses.

    Raises ``BadTarget`` for arguments that are no literals.
    """
    name, sign, rest = target.partition("(")
    if not sign or not rest.endswith(")") or ":" not in name:
        return target, None
    try:
        # Parsed as a call in which only literals are accepted, so that nothing is run.
        call = ast.parse(f"made({rest}", mode="eval").body
        assert isinstance(call, ast.Call)
        places = [ast.literal_eval(value) for value in call.args]
        return name, (places, {str(k.arg): ast.literal_eval(k.value) for k in call.keywords})
    except (ValueError, SyntaxError, AssertionError):
        raise BadTarget(
            f"{target}: the arguments must be literals, such as {name}(8, bias=False)"
        ) from None


def _make_class_instance(
    module: ModuleType, attribute: str, place: str, arguments: _Arguments
) -> Function:
    """Return an instance of the class ``attribute``.

    Raises ``NotCallable`` for anything but a class with instances that can be called.
    """
    made = getattr(module, attribute, None)
    if not inspect.isclass(made):
        _resolve_target_attribute(module, attribute, place)  # no such name
        raise NotCallable(
            f"{place}:{attribute} is a function; hint: leave out what is in parentheses"
        )
    places, keywords = arguments
    result = _import_under_guard(f"{place}:{attribute}", lambda: made(*places, **keywords))
    if not callable(result):
        raise NotCallable(f"an instance of {place}:{attribute} cannot be called; name a function")
    return result


def load_module(place: str) -> ModuleType:
    """Return the module of a ``file.py`` or the module ``package.module``. Raises as ``load`` does."""
    # Before the target is imported, since it may import Keras or Triton.
    choose_backend()
    triton_host.prepare()
    with _no_bytecode():
        if not place.endswith(".py"):
            if Path(place).is_file():
                raise BadTarget(
                    f"{place} is a file, and Python files end with .py; hint: rename it, or name another"
                )
            _first_on_path(Path.cwd())
            return _import_under_guard(place, lambda: importlib.import_module(place))
        path = Path(place)
        if not path.is_file():
            files = sorted(p.stem for p in path.parent.glob("*.py"))
            near = perhaps(path.stem, files).replace("?", ".py?")
            others = (
                f"; Python files there: {', '.join(f'{name}.py' for name in files[:4])}"
                if files
                else ""
            )
            raise NoSuchFile(f"{path}: there is no such file{near or others}")
        path = path.resolve()
        root, name = _locate_package_root(path)
        # The folder of the file comes before the working directory.
        _first_on_path(Path.cwd())
        _first_on_path(root)
        if "." in name:  # a file of a package may use relative imports
            return _import_under_guard(path.name, lambda: importlib.import_module(name))
        return _import_under_guard(path.name, lambda: _execute_target_file(path, name))


def choose_backend() -> None:
    """Let Keras run on PyTorch or JAX if TensorFlow, its default, is not installed and the user has set no other.

    ``KERAS_BACKEND`` and a backend in Keras's own settings are honoured.
    """
    # The user's own choice comes first.
    if "KERAS_BACKEND" in os.environ or not importlib.util.find_spec("keras"):
        return
    settings = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras")) / "keras.json"
    try:
        result = json.loads(settings.read_text(encoding="utf-8")).get("backend")
    except (OSError, ValueError, AttributeError):
        result = None
    backends = [name for name in ("torch", "jax") if importlib.util.find_spec(name)]
    if result in (None, "tensorflow") and backends and not importlib.util.find_spec("tensorflow"):
        os.environ["KERAS_BACKEND"] = backends[0]


def _locate_package_root(path: Path) -> tuple[Path, str]:
    """Return the folder that must be on the path for a file, and the name of its module from there."""
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _execute_target_file(path: Path, name: str) -> ModuleType:
    # A file with the name of a loaded module (numpy.py, attention.py) must not replace it.
    name = f"symattn_target_{name}" if name in sys.modules else name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not Python source")
    module = importlib.util.module_from_spec(spec)
    # Registered first, as an import does: code may look up its own module by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        # A module that failed half way must not be taken for a loaded one.
        del sys.modules[name]
        raise
    return module


def _import_under_guard(name: str, bring: Callable[[], Brought]) -> Brought:
    try:
        with guard.watched():
            return bring()
    except (KeyboardInterrupt, guard.Tampered):
        raise
    except BaseException as error:
        # What the guard noticed outweighs the error, which it may have caused.
        guard.check()
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise MissingExtra("torch", "torch") from error
        at = f" ({location})" if (location := where(error)) else ""
        kind = NeedsMemory if isinstance(error, MemoryError) else CannotRun
        raise kind(f"{name} cannot be imported: {one_line(error)}{at}") from error


def _resolve_target_attribute(module: ModuleType, attribute: str, place: str) -> Function:
    owner: object = module
    result: object = module
    path = place
    for part in attribute.split("."):
        owner = result
        try:
            result = getattr(owner, part)
        except AttributeError:
            raise NoSuchAttribute(_no_such(part, owner, module, path)) from None
        path = f"{path}:{part}" if owner is module else f"{path}.{part}"
    if inspect.isclass(result):
        raise NotCallable(
            f"{path} is a class; name a function, or an instance: {path}(), with literals"
        )
    if not callable(result):
        raise NotCallable(
            f"{path} is of type {type(result).__name__} and cannot be called; name a function"
        )
    # Looked up without binding: a static method of a class can be called as it is.
    if inspect.isclass(owner) and inspect.isfunction(
        inspect.getattr_static(owner, path.rpartition(".")[2], None)
    ):
        raise NotCallable(
            f"{path} is a method and needs an instance; name it on an instance made in its file"
        )
    return result


_MAX_NAMED = 6  # functions in a message


def _no_such(part: str, owner: object, module: ModuleType, seen: str) -> str:
    """Say that an object lacks a name, with the one that is probably meant, or with what a module defines."""
    values = {name: getattr(owner, name, None) for name in dir(owner) if not name.startswith("__")}
    if owner is not module:
        return f"no attribute `{part}` in {seen}{perhaps(part, values)}"
    callables = [name for name, value in values.items() if callable(value) and name[0] != "_"]
    # Names that the module has imported are not its own.
    own = [
        name for name in callables if getattr(values[name], "__module__", None) == module.__name__
    ]
    listed = ", ".join(own[:_MAX_NAMED]) + ", …" * (len(own) > _MAX_NAMED)
    defines = f"; it defines {listed}" if own else "; it defines no function"
    return f"no function `{part}` in {seen}{perhaps(part, callables) or defines}"


def _first_on_path(folder: Path) -> None:
    entry = str(folder)
    if entry in sys.path:
        sys.path.remove(entry)
    sys.path.insert(0, entry)


@contextmanager
def _no_bytecode() -> Iterator[None]:
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    # A file written just before may be missing in the caches of the import system.
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
