"""The order of the stages, from queries and keys to the output: scores, their scale, cap and bias, masks, weights, A V.

Plain attention is the four steps ``scores``, ``scaled``, ``weights`` and ``output``, softmax(Q Kᵀ / √d_k) V:

>>> import numpy as np
>>> from symattn import Attention
>>> from symattn.attention import scores, softmax
>>> q, k, v = np.array([[1.0, 2.0]]), np.eye(2), np.array([[1.0], [3.0]])
>>> scaled = scores.scale_by_root(scores.dot_scores(q, k), q)
>>> bool(scores.weighted_values(softmax.softmax(scaled), v) == Attention()(q, k, v))
True
"""

from __future__ import annotations

from symattn.attention.flow import Stage
from symattn.attention.stages import masked_scores, output, scaled_scores, vectors, weights

#: All stages in order, each with what enables it.
STAGES: tuple[Stage, ...] = (
    *vectors.STAGES,
    *scaled_scores.STAGES,
    *masked_scores.STAGES,
    *weights.STAGES,
    *output.STAGES,
)
