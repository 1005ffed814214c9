"""Attention in tiles, over caches and as a recurrence: the forms that implementations compute, as array code.

``by_tiles`` of ``symattn`` computes an ``Attention`` in tiles; here are its parts, and the other forms:

- states (m, ℓ, a) of tiles of keys, their merges, and outputs of splits that are joined by their log-sum-exps;
- the backward pass by tiles, from what the forward pass saved;
- caches that grow, that have room for a number of tokens, that are rings, or that are cut into pages;
- linear attention: all pairs of tokens, token by token, or by chunks, with gates, the delta rule, feature maps.

Every form runs on every kind of array: on exact arrays it gives the numbers of the definition, not numbers near them.

>>> import numpy as np
>>> from symattn.streaming import finish, merge, tile_state
>>> s, v = np.zeros((1, 2)), np.array([[1.0], [3.0]])
>>> finish(merge(tile_state(s[:, :1], v[:1]), tile_state(s[:, 1:], v[1:])))
array([[2.]])
"""

from symattn.first_use import offer_names

__all__, __getattr__, __dir__ = offer_names(__name__, __file__)
