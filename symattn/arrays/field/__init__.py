"""The exact numbers: quotients over K[e^K] with decided equality.

``quotient`` is the element, ``surds`` K, ``sums`` K[e^K] and fractions of it, ``logarithm`` logarithms outside this
field, ``approximation`` signs and digits, ``writing`` how numbers are printed, and ``parse`` how they are read.
"""
