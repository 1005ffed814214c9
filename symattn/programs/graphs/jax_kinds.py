"""A function of JAX on arrays of another kind: it is traced for their shapes, and its jaxpr runs on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symattn.arrays.base import ArrayBase
from symattn.arrays.planes import Planes
from symattn.programs.frameworks import import_jax
from symattn.programs.graphs.form import Graph
from symattn.programs.graphs.jax_reader import jaxpr_of, of_jaxpr
from symattn.programs.graphs.running import run


def on_kind(function: Callable[..., Any], kind: type[Planes]) -> Callable[..., Any]:
    """``function`` for arrays of ``kind``; arguments that are none of it, such as masks, are constants.

    Of several outputs it gives the first. Raises ``InputError`` where the function cannot be traced, or a primitive is
    not read.
    """
    jax, label = import_jax(), getattr(function, "__name__", type(function).__name__)

    def called(*places: Any, **told: Any) -> Any:
        flat, tree = jax.tree_util.tree_flatten((places, told), is_leaf=lambda x: isinstance(x, ArrayBase))
        at = [i for i, x in enumerate(flat) if isinstance(x, kind)]

        def of_arrays(*arrays: Any) -> Any:
            filled = dict(zip(at, arrays, strict=True))
            own_places, own_told = jax.tree_util.tree_unflatten(tree, [filled.get(i, x) for i, x in enumerate(flat)])
            found = function(*own_places, **own_told)
            return found[0] if isinstance(found, tuple) else found

        shapes = [jax.ShapeDtypeStruct(flat[i].plain_shape, jax.numpy.float32) for i in at]
        names = [(f"argument {i}", False) for i in at]
        graph: Graph = of_jaxpr(jaxpr_of(label, of_arrays, shapes), label, names)
        return run(graph, {name: flat[i] for (name, _), i in zip(names, at, strict=True)}, flat[at[0]])[0]

    return called
