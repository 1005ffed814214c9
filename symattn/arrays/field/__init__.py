"""The exact numbers: quotients over K[e^K] with decided equality.

``quotient`` holds the element, ``surds`` K, ``sums`` K[e^K], ``fractions`` quotients of sums, ``functions`` and
``logarithm`` what is beyond arithmetic, ``products`` sums and products of many elements, ``approximation`` signs and
digits, ``normal`` the form in which ``writing`` writes, and ``reading`` and ``parse`` what becomes an element.
"""
