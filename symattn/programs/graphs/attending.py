"""The operators that attention is made of, by the definitions of ``symattn.attention``."""

from __future__ import annotations

from typing import Any

from symattn.arrays.notes import note
from symattn.attention.softmax import softmax as soft
from symattn.attention.spec import Attention
from symattn.document.errors import InputError
from symattn.programs.graphs.operators import binary, transpose
from symattn.programs.graphs.values import Context, Joined, are_booleans, place, root, whole


def softmax(c: Context, x: Any, axis: int = -1) -> Any:
    """Softmax over an axis; a row in which all is forbidden gives 0/0, as the operators have it."""
    k = place(axis, x.ndim)
    if k == x.ndim - 1:
        return soft(x)
    order = [n for n in range(x.ndim) if n != k] + [k]
    return transpose(c, soft(transpose(c, x, order)), [order.index(n) for n in range(x.ndim)])


def product(
    c: Context, a: Any, b: Any, add: Any = None, alpha: float = 1, beta: float = 1, transA: int = 0, transB: int = 0
) -> Any:
    """α A B + β C, with A and B transposed where that is asked for: matrix products, linear layers, ONNX's Gemm."""
    if isinstance(b, Joined) and not transA and bool(transB) == b.turned and alpha == beta == 1:
        result = Joined(tuple(c.lifted(a) @ p for p in b.parts))
        return result if add is None else binary("add")(c, result, add)
    a, b, add = (x.whole(c) if isinstance(x, Joined) else x for x in (a, b, add))
    both = zip((c.lifted(a), c.lifted(b)), (transA, transB), strict=True)
    left, right = (c.xp.matrix_transpose(x) if turned else x for x, turned in both)
    y = left @ right if alpha == 1 else (left @ right) * c.lifted(alpha)
    return y if add is None else y + (c.lifted(add) if beta == 1 else c.lifted(add) * c.lifted(beta))


def scaled_dot_product_attention(
    c: Context, q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """``torch.nn.functional.scaled_dot_product_attention``: a causal mask is aligned top-left.

    Source: PyTorch, documentation of the function.
    """
    if dropout:
        raise InputError("scaled_dot_product_attention with dropout is not read; hint: export the module after .eval()")
    fields: dict[str, Any] = {"causal": causal, "alignment": "top-left", "scale": meant_scale(q.shape[-1], scale)}
    given = {}
    if mask is not None:
        fields["mask"] = "boolean" if are_booleans(mask) else "additive"
        given["mask"] = mask
    heads, shared = (whole(x.shape[-3], "the number of heads") for x in (q, k)) if q.ndim > 2 else (1, 1)
    if heads != shared and not enable_gqa:
        raise InputError(f"scaled_dot_product_attention: {heads} heads of queries and {shared} of keys, not enable_gqa")
    fields |= {"heads": heads, "kv_heads": shared if shared != heads else None}
    if heads == 1 and q.ndim > 2 and "mask" in given and mask.ndim > 2:
        given["mask"] = mask[..., 0, :, :] if mask.ndim == q.ndim else mask
        return Attention(**fields)(*(x[..., 0, :, :] for x in (q, k, v)), **given)[..., None, :, :]
    return Attention(**fields)(q, k, v, **given)


def meant_scale(d_k: Any, scale: float | None) -> Any:
    """A scale as a field of ``Attention``: None where it is the float that stands for 1/√d_k."""
    k, inverse = (0, False) if scale is None else root(float(scale))
    if k and inverse and k == whole(d_k, "d_k"):
        note(f"hypothesis: the scale {scale:.9g} stands for 1/√{k}")
        return None
    return scale
