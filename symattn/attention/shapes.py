"""Whether the given arrays fit each other, said in one line where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symattn.arrays.namespace import namespace_of
from symattn.errors import InputError, Undecided

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

_TOKENS = ("q", "k", "v", "x", "y")
_WEIGHTS = ("w_q", "w_k", "w_v", "w_o")
_BIASES = ("b_q", "b_k", "b_v", "b_o")
_KNOWN = (*_TOKENS, *_WEIGHTS, *_BIASES, "mask", "keep")


def check_inputs(spec: Attention, given: dict[str, Any]) -> None:
    """Raise InputError for a missing, unknown or ill-shaped input."""
    for name in given:
        if name not in _KNOWN:
            raise InputError(f"unknown input {name!r}; known: {', '.join(sorted(_KNOWN))}")
    _check_names(spec, given)
    for name, array in given.items():
        _check_axes(name, array)
    if "x" in given:
        _check_projections(spec, given)
        queries, keys = given["x"], given.get("y", given["x"])
    else:
        _fit("q", "k", given["q"], given["k"], -1, "d_k")
        _fit("k", "v", given["k"], given["v"], -2, "n_k")
        _check_batch("q", given["q"], "v", given["v"])
        _check_batch("k", given["k"], "v", given["v"])
        queries, keys = given["q"], given["k"]
    _check_batch("x" if "x" in given else "q", queries, "y" if "y" in given else "k", keys)
    _check_masks(spec, given, queries, keys)


def _check_names(spec: Attention, given: dict[str, Any]) -> None:
    if "x" in given:
        _check_names_of_x(spec, given)
    else:
        _check_names_of_q(spec, given)
    for name, needed in (("mask", spec.mask is not None), ("keep", spec.padding)):
        if needed != (name in given):
            raise InputError(f"the specification {'needs' if needed else 'has no'} input {name!r}")


def _check_names_of_q(spec: Attention, given: dict[str, Any]) -> None:
    missing = [n for n in "qkv" if n not in given]
    stray = [n for n in given if n not in ("q", "k", "v", "mask", "keep")]
    if missing:
        raise InputError(f"attention needs q, k, v or x; missing: {', '.join(missing)}")
    if stray:
        raise InputError(f"{stray[0]} belongs to x, which is not given")
    if spec.heads > 1:
        raise InputError("heads > 1 splits projections: give x and weights, or q, k, v with an axis of heads")


def _check_names_of_x(spec: Attention, given: dict[str, Any]) -> None:
    if any(n in given for n in "qkv"):
        raise InputError("give q, k, v or x, not both")
    weights = [n for n in ("w_q", "w_k", "w_v") if n in given]
    if weights and len(weights) < 3:
        raise InputError(f"of w_q, w_k, w_v only {', '.join(weights)} given; give all three or none")
    if not weights and spec.heads > 1:
        raise InputError("heads > 1 needs the projections w_q, w_k, w_v")
    for bias, weight in zip(_BIASES, ("w_q", "w_k", "w_v", "w_o"), strict=True):
        if bias in given and weight not in given:
            raise InputError(f"{bias} belongs to {weight}, which is not given")


def _check_axes(name: str, array: Any) -> None:
    if not hasattr(array, "shape"):
        raise InputError(f"{name} is a {type(array).__name__}; give an array")
    axes = len(array.shape)
    if name in _WEIGHTS + _BIASES:
        exact = 2 if name in _WEIGHTS else 1
        if axes != exact:
            raise InputError(f"{name} has shape {_shape(array)}; it needs {'two axes' if exact == 2 else 'one axis'}")
    elif axes < (1 if name == "keep" else 2):
        few = "an axis" if name == "keep" else "two axes"
        raise InputError(f"{name} has shape {_shape(array)}; it needs {few} or more")
    if any(n == 0 for n in array.shape):
        raise InputError(f"{name} has shape {_shape(array)}: an empty array has no attention")


def _check_projections(spec: Attention, given: dict[str, Any]) -> None:
    if "w_q" not in given:
        if "y" in given:
            _fit("x", "y", given["x"], given["y"], -1, "d_model")
    else:
        for role in "qkv":
            _check_projection(spec, role, given)
        _fit("w_q", "w_k", given["w_q"], given["w_k"], -1, "d_k")
    if "w_o" in given:
        values = "w_v" if "w_v" in given else "y" if "y" in given else "x"
        if given["w_o"].shape[-2] != given[values].shape[-1]:
            raise InputError(f"w_o has shape {_shape(given['w_o'])}; {values} has {given[values].shape[-1]} columns")
        _check_bias("o", given)


def _check_projection(spec: Attention, role: str, given: dict[str, Any]) -> None:
    source, weight = "y" if "y" in given and role != "q" else "x", f"w_{role}"
    if given[source].shape[-1] != given[weight].shape[-2]:
        shapes = f"{source} has shape {_shape(given[source])} and {weight} {_shape(given[weight])}"
        raise InputError(f"{shapes}: d_model differs")
    width = given[weight].shape[-1]
    if spec.heads > 1 and width % spec.heads:
        raise InputError(f"{weight} has {width} columns, which {spec.heads} heads do not divide")
    _check_bias(role, given)


def _check_bias(role: str, given: dict[str, Any]) -> None:
    width = given[f"w_{role}"].shape[-1]
    if f"b_{role}" in given and given[f"b_{role}"].shape[-1] != width:
        raise InputError(f"b_{role} has shape {_shape(given[f'b_{role}'])}; w_{role} has {width} columns")


def _check_masks(spec: Attention, given: dict[str, Any], queries: Any, keys: Any) -> None:
    n_q, n_k = queries.shape[-2], keys.shape[-2]
    batch = _broadcast(queries.shape[:-2], keys.shape[:-2]) or ()
    if "mask" in given:
        mask = given["mask"]
        _check_booleans("mask", mask, spec.mask == "boolean")
        if not _fits(mask.shape[-2:], (n_q, n_k)):
            raise InputError(f"mask has shape {_shape(mask)}; the scores are {n_q} × {n_k}")
        per_head = spec.heads > 1 and len(mask.shape) == len(batch) + 3
        whole = (*batch, spec.heads) if per_head else batch
        if not _fits(mask.shape[:-2], whole):
            raise InputError(f"mask has shape {_shape(mask)}; the axes before the last two are not {_words(whole)}")
    if "keep" in given:
        keep = given["keep"]
        _check_booleans("keep", keep, True)
        if keep.shape[-1] != n_k:
            raise InputError(f"keep has shape {_shape(keep)}; there are {n_k} keys")
        if len(keep.shape) > 1 and (len(keep.shape) != len(batch) + 1 or not _fits(keep.shape[:-1], batch)):
            raise InputError(f"keep has shape {_shape(keep)}; the axes before the keys are not {_words(batch)}")


def _check_booleans(name: str, mask: Any, wanted: bool) -> None:
    if mask.dtype is not None and namespace_of(mask).isdtype(mask.dtype, "bool") != wanted:  # letters have no type
        kind = "booleans, True where a query may attend" if wanted else "numbers to add, not booleans"
        raise InputError(f"{name} holds {mask.dtype}; it must hold {kind}")


def _check_batch(left: str, a: Any, right: str, b: Any) -> None:
    if _broadcast(a.shape[:-2], b.shape[:-2]) is None:
        raise InputError(f"{left} has shape {_shape(a)} and {right} {_shape(b)}: the axes before the last two differ")


def _broadcast(a: Any, b: Any) -> tuple[Any, ...] | None:
    """The shape that two shapes broadcast to, or None."""
    short, long = sorted((tuple(a), tuple(b)), key=len)
    pairs = list(zip((1,) * (len(long) - len(short)) + short, long, strict=True))
    if any(not (_same(m, n) or _same(m, 1) or _same(n, 1)) for m, n in pairs):
        return None
    return tuple(n if _same(m, 1) else m for m, n in pairs)


def _fits(shape: Any, target: tuple[Any, ...]) -> bool:
    """Whether ``shape`` broadcasts to ``target``."""
    wide = _broadcast(shape, target)
    return wide is not None and len(wide) == len(target) and all(map(_same, wide, target))


def _same(m: Any, n: Any) -> bool:
    """Whether two lengths are known to be equal; different letters are not."""
    try:
        return bool(m == n)
    except Undecided:
        return False


def _fit(left: str, right: str, a: Any, b: Any, axis: int, size: str) -> None:
    if a.shape[axis] != b.shape[axis]:
        raise InputError(f"{left} has shape {_shape(a)} and {right} {_shape(b)}: {size} differs")


def _shape(array: Any) -> str:
    return "(" + ", ".join(map(str, array.shape)) + ("," if len(array.shape) == 1 else "") + ")"


def _words(batch: tuple[Any, ...]) -> str:
    return " × ".join(map(str, batch)) or "none"
