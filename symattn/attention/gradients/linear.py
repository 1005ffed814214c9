"""The way back through projections, heads, latents and tables: what only multiplies, moves or shares numbers."""

from __future__ import annotations

from typing import Any

from symattn.arrays.namespace import namespace_of
from symattn.attention.gradients.norms import over_rows
from symattn.attention.gradients.scores import summed_like


def project_gradients(x: Any, w: Any, g: Any) -> tuple[Any, Any, Any]:
    """(dX, dW, db) = (G Wᵀ, Xᵀ G, Σ G) of X W + b, dW and db summed over batches and tokens.

    Shapes: x (…, n, d_model), w (d_model, d), g (…, n, d).
    """
    return g @ w.mT, summed_like(x.mT @ g, w), over_rows(g)


def unpacked_gradient(w: Any, g: Any, role: str, heads: int, key_heads: int) -> Any:
    """dW_in of the columns of one role, 0 in those of the others: the way back of ``projections.unpack``.

    Shapes: w (…, (h + 2 g)·d), g (…, h·d) or (…, g·d).
    """
    width = w.shape[-1] // (heads + 2 * key_heads)
    before = {"q": 0, "k": heads, "v": heads + key_heads}[role] * width
    return padded(g, before, w.shape[-1] - before - g.shape[-1])


def padded(g: Any, before: int, after: int) -> Any:
    """g between columns of zeros: the way back of taking some columns."""
    xp = namespace_of(g)
    front = g.shape[:-1]
    sides = [xp.zeros((*front, n), dtype=g.dtype) if n else None for n in (before, after)]
    parts = [x for x in (sides[0], g, sides[1]) if x is not None]
    return xp.concat(parts, axis=-1) if len(parts) > 1 else g


def joined_gradients(own: Any, shared: Any, g: Any) -> tuple[Any, Any]:
    """(d own, d shared) of [own, shared], the shared part summed over the heads that it stands beside."""
    width = own.shape[-1]
    there = g[..., width:]
    if own.ndim > shared.ndim:
        there = namespace_of(g).sum(there, axis=-3)
    return summed_like(g[..., :width], own), summed_like(there, shared)


def rows_gradient(g: Any, index: Any, table: Any) -> Any:
    """The gradient by a table of which the row index_ij was given to place ij: each row gets the sum of its places.

    Shapes: g (…, a, b, d), index (a, b) whole numbers, table (m, d) or (…, m, d) → that of the table. As the way back
    of an embedding, by a product with the matrix of the places [index_ij = r].
    """
    xp = namespace_of(g)
    there = xp.reshape(index, (-1, 1)) == xp.arange(table.shape[-2])[None, :]
    flat = xp.reshape(g, (*g.shape[:-3], g.shape[-3] * g.shape[-2], g.shape[-1]))
    return summed_like(xp.astype(there, g.dtype).mT @ flat, table)


def embed_gradient(table: Any, ids: Any, g: Any) -> Any:
    """The gradient by a table of embeddings: each row gets the sum over the tokens that have its number.

    Shapes: table (vocabulary, d), ids (…, n), g (…, n, d) → (vocabulary, d).
    """
    xp = namespace_of(g)
    width = g.shape[-1]
    return rows_gradient(xp.reshape(g, (1, -1, width)), xp.reshape(ids, (1, -1)), table)
