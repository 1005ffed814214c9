"""The steps of attention as functions of arrays: scores, masks, weights, norms, heads, positions and their gradients.

``Attention`` joins these functions; each is defined once, and runs on every kind of array: floats, exact numbers,
intervals, and letters with letters for sizes, on which a statement is proved for all sizes. So a theorem of your own
can name a step instead of writing it again:

>>> from symattn import functional, prove, theorem
>>> def shifted(s, c):
...     return functional.softmax(s + c), functional.softmax(s)
>>> statement = theorem("shift", "mine", "softmax(s + c 𝟏) = softmax(s)", arrays={"s": "n m", "c": ""},
...     false=lambda s, c: (functional.softmax(s * c), functional.softmax(s)), false_says="softmax(c s) = softmax(s)")
>>> prove(statement(shifted)).holds
True
"""

from symattn.first_use import offer_names

__all__, __getattr__, __dir__ = offer_names(__name__, __file__)
