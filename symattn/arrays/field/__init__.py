"""The exact numbers: quotients over K[e^K] with decided equality.

``quotient`` holds the element, ``surds`` K, ``sums`` K[e^K] and fractions of it, ``logarithm`` what is beyond
arithmetic, ``approximation`` signs and digits, ``writing`` the form in which numbers are written, and ``parse`` what
becomes an element.
"""
