"""The exact numbers: quotients over K[e^K] with decided equality.

``quotient`` holds the element, ``surds`` K, ``sums`` K[e^K], ``logarithm`` logarithms that wait for an exp.
"""
