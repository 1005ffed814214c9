"""The sizes at which residues are compared if none are given, by hand."""

from symattn.bounds.inputs import Sizes

SIZES = (Sizes(3, 5, 4, 3, 6), Sizes(7, 7, 16, 5, 6), Sizes(4, 9, 1, 2, 6), Sizes(17, 33, 64, 20, 6))
