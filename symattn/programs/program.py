"""``Program``: anything that can be called with the inputs of a specification; and the languages of programs.

A program that is an object of its language, such as an ONNX model or a jaxpr, is read into a ``Graph``, which runs on
every kind of array. The code of a NumPy function runs as it is, that of torch by the operators that it calls, or by its
exported graph, and that of JAX by its jaxpr. A new language is one file with a ``Dialect``, and a row here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from symattn.arrays.planes import Planes
from symattn.bounds.called_target import Convention, Runner
from symattn.document.errors import InputError
from symattn.programs.frameworks import INTERPRETER, Tensor, Tensors, is_of_jax
from symattn.programs.names import Function

if TYPE_CHECKING:
    from symattn.bounds.inputs import Sizes
    from symattn.programs.graphs.running import (
        Graph,
    )  # most programs are functions, which need no graphs


class Program(Runner, Protocol):
    """A program in this process: its description (``describe``), how it is called (``convention``), and how it runs: on
    floats (``run``) and on other kinds of array (``on``)."""

    def on(self, kind: type[Planes]) -> Callable[[Tensors], Tensor]:
        """Return the program on another kind of array, of the inputs by name; it refuses missing operations by name."""


class Language(NamedTuple):
    """The attributes that identify a program, and the file and the function there that reads it."""

    attributes: tuple[str, ...]
    file: str
    read: str

    def graph(self, program: object) -> Graph:
        """Return the graph of a program."""
        result: Graph = getattr(import_module(f"symattn.programs.{self.file}"), self.read)(program)
        return result


#: Languages by the attributes of a program; a path is the file of an ONNX model.
LANGUAGES = (
    Language(("__fspath__",), "graphs.onnx_reader", "read"),
    Language(("graph", "opset_import"), "graphs.onnx_reader", "of_model"),
    Language(("graph_signature",), "graphs.torch_reader", "of_program"),
    Language(("jaxpr", "consts"), "graphs.jax_reader", "of_jaxpr"),
)


def language_of(program: object) -> Language | None:
    """Return the language of a program, or None for a mere function."""
    return next(
        (x for x in LANGUAGES if all(hasattr(program, name) for name in x.attributes)), None
    )


def read(source: object) -> Graph:
    """Return the graph of anything that ``verify_graph`` takes. Raises ``InputError`` for anything else."""
    from symattn.programs.graphs.running import Graph

    if isinstance(source, Graph):
        return source
    source = Path(source) if isinstance(source, str) else source
    # Any language that knows the object may read it.
    if language := language_of(source):
        return language.graph(source)
    raise InputError(
        f"{type(source).__name__} is not a graph; give an .onnx file, a ModelProto, an ExportedProgram or a ClosedJaxpr"
    )


class OnKinds(NamedTuple):
    """A function on every kind of array: ``make`` returns it for one; ``copied``: it runs in a copied process, too.

    ``further`` returns sizes at which a run at the usual ones shows that it should be tried as well. ``load`` loads
    what a run in a copy of this process has asked for, and returns whether it asked for anything.
    """

    make: Callable[[Function, type[Planes]], Function]
    copied: bool = True
    further: Callable[[], Sequence[Sizes]] = tuple
    load: Callable[[], bool] = lambda: False


def on_kinds(function: Function, how: Convention) -> OnKinds:
    """Return the way to run a function, called as ``how`` says, on other kinds of array.

    Raises ``InputError`` or ``MissingExtra`` if there is none.
    """
    if language := language_of(function):
        from symattn.programs.graphs.running import as_function

        graph = language.graph(function)
        return OnKinds(lambda function, kind: as_function(graph))
    if how.framework == "jax" or is_of_jax(function):
        from symattn.programs.graphs import jax_reader

        # traced once for each choice of sizes; JAX does not survive copying the process
        return OnKinds(partial(jax_reader.on_kind, graphs={}), copied=False)
    if how.framework == "torch":
        if INTERPRETER in sys.modules:  # it may launch kernels of Triton
            from symattn.programs import kernels

            of_kernels = kernels.Kernels(how.dtype)
            return OnKinds(of_kernels.make, further=of_kernels.further)
        from symattn.programs.graphs import torch_reader
        from symattn.programs.process import SharedMark

        is_export_needed = SharedMark()

        def load() -> bool:
            if not is_export_needed.take():
                return False
            torch_reader.warm()
            return True

        return OnKinds(torch_reader.on_kinds(how.dtype, is_export_needed.set), load=load)
    from symattn.programs.substitute import substitute

    return OnKinds(substitute)
