"""Whether the given arrays fit each other, said in one line where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symattn.errors import InputError

if TYPE_CHECKING:
    from symattn.attention.spec import Attention

_KNOWN = frozenset(["q", "k", "v", "x", "y", "w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o", "mask", "keep"])


def check_inputs(spec: Attention, given: dict[str, Any]) -> None:
    """Raise InputError for a missing, unknown or ill-shaped input."""
    for name in given:
        if name not in _KNOWN:
            raise InputError(f"unknown input {name!r}; known: {', '.join(sorted(_KNOWN))}")
    _check_names(spec, given)
    for name, array in given.items():
        if any(n == 0 for n in array.shape):
            raise InputError(f"{name} has shape {_shape(array)}: an empty array has no attention")
    if "x" in given:
        _check_projections(spec, given)
    else:
        _fit("q", "k", given["q"], given["k"], -1, "d_k")
        _fit("k", "v", given["k"], given["v"], -2, "n_k")
    _check_masks(spec, given)


def _check_names(spec: Attention, given: dict[str, Any]) -> None:
    if "x" not in given:
        missing = [n for n in "qkv" if n not in given]
        stray = [n for n in given if n not in ("q", "k", "v", "mask", "keep")]
        if missing:
            raise InputError(f"attention needs q, k, v or x; missing: {', '.join(missing)}")
        if stray:
            raise InputError(f"{stray[0]} belongs to x, which is not given")
        if spec.heads > 1:
            raise InputError("heads > 1 splits projections: give x and weights, or q, k, v with an axis of heads")
    elif any(n in given for n in "qkv"):
        raise InputError("give q, k, v or x, not both")
    for name, needed in (("mask", spec.mask is not None), ("keep", spec.padding)):
        if needed != (name in given):
            raise InputError(f"the specification {'needs' if needed else 'has no'} input {name!r}")


def _check_projections(spec: Attention, given: dict[str, Any]) -> None:
    weights = [n for n in ("w_q", "w_k", "w_v") if n in given]
    if weights and len(weights) < 3:
        raise InputError(f"of w_q, w_k, w_v only {', '.join(weights)} given; give all three or none")
    if not weights and spec.heads > 1:
        raise InputError("heads > 1 needs the projections w_q, w_k, w_v")
    for role in "qkv":
        if f"w_{role}" not in given:
            continue
        source = "y" if "y" in given and role != "q" else "x"
        _inner(source, f"w_{role}", given)
        width = given[f"w_{role}"].shape[-1]
        if spec.heads > 1 and width % spec.heads:
            raise InputError(f"w_{role} has {width} columns, which {spec.heads} heads do not divide")
        if f"b_{role}" in given and given[f"b_{role}"].shape[-1] != width:
            raise InputError(f"b_{role} has shape {_shape(given[f'b_{role}'])}; w_{role} has {width} columns")
    if weights:
        _fit("w_q", "w_k", given["w_q"], given["w_k"], -1, "d_k")
    if "w_o" in given and weights and given["w_o"].shape[-2] != given["w_v"].shape[-1]:
        raise InputError(f"w_o has shape {_shape(given['w_o'])}; w_v has {given['w_v'].shape[-1]} columns")


def _check_masks(spec: Attention, given: dict[str, Any]) -> None:
    queries = given["x"] if "x" in given else given["q"]
    keys = given.get("y", queries) if "x" in given else given["k"]
    n_q, n_k = queries.shape[-2], keys.shape[-2]
    if "mask" in given and not _broadcasts(given["mask"].shape[-2:], (n_q, n_k)):
        raise InputError(f"mask has shape {_shape(given['mask'])}; the scores are {n_q} × {n_k}")
    if "keep" in given and given["keep"].shape[-1] != n_k:
        raise InputError(f"keep has shape {_shape(given['keep'])}; there are {n_k} keys")


def _broadcasts(shape: Any, target: tuple[Any, ...]) -> bool:
    return len(shape) == len(target) and all(a in (b, 1) for a, b in zip(shape, target, strict=True))


def _inner(x: str, w: str, given: dict[str, Any]) -> None:
    if given[x].shape[-1] != given[w].shape[-2]:
        raise InputError(f"{x} has shape {_shape(given[x])} and {w} {_shape(given[w])}: d_model differs")


def _fit(left: str, right: str, a: Any, b: Any, axis: int, size: str) -> None:
    for name, array in ((left, a), (right, b)):
        if len(array.shape) < 2:
            raise InputError(f"{name} has shape {_shape(array)}; it needs two axes or more")
    if a.shape[axis] != b.shape[axis]:
        raise InputError(f"{left} has shape {_shape(a)} and {right} {_shape(b)}: {size} differs")


def _shape(array: Any) -> str:
    return "(" + ", ".join(map(str, array.shape)) + ("," if len(array.shape) == 1 else "") + ")"
