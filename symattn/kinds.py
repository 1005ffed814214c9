"""The elements of each kind of array, and kinds that take more than a name: residues, letters, derivatives.

``kind`` of ``symattn`` makes arrays of a kind by its name. Beside it:

- ``Quotient.of`` reads an exact number as documents print it; ``FORBIDDEN`` is the −∞ of a masked score, an object of
  ``Forbidden``; ``Undefined`` is the value of 0/0, and ``Logarithm`` that of a log-sum-exp;
- ``precision`` sets the number of bits of balls, within a block; ``rising`` doubles it until all is decided;
- ``modular`` makes a kind of residues, for a pair of ``prime_pairs``; two programs that compute the same give the same
  residues;
- ``Indexed.letters`` makes an array of letters whose sizes are letters, and ``Permutation`` a permutation of an axis;
  each element is an ``Expression``, a tree of letters, sums, quotients and functions that a program can translate;
- ``dual`` and ``tape`` make kinds of derivatives over a kind, forward and backward; ``pull_back`` passes gradients back
  along a tape;
- ``listening`` collects the notes of a computation, such as that a float was taken at its dyadic value.

>>> from symattn import Attention, functional, kind, kinds
>>> weights = functional.softmax(kinds.Indexed.letters("s", "n", "m"))
>>> [line.split("  ")[2] for line in str(weights.document()).splitlines() if "e^(" in line]
['e^(sᵢⱼ − max_l s_il)/(Σ_{l=1}^{m} e^(s_il − max_n s_in))']
>>> ratio = weights.at(weights.places()[0])
>>> isinstance(ratio, kinds.Ratio), [type(part).__name__ for part in ratio.children]
(True, ['Exponential', 'Total'])
>>> x = kind("exact").lift([[1]])
>>> bool(Attention(scale=1)(x, x, x)[0, 0].item() == kinds.Quotient.of("1"))
True
>>> with kinds.precision(200):
...     float(kind("ball").lift([2]).xp.sqrt(kind("ball").lift([2]))[0].item().rad()) < 1e-55
True
"""

from symattn.first_use import offer_names

__all__, __getattr__, __dir__ = offer_names(__name__, __file__)
