"""The plain pattern of attention, enclosed at the speed of BLAS: softmax(c Q Kᵀ + masks) V in tiles of scores.

This is the only second version of steps of the definition; tests compare it with the definition on balls. ``pattern``
says what is supported and which keys a tile of queries sees, ``sums`` runs through the tiles, ``radius`` proves how far
off the result can be, and ``attention.enclosed`` runs the definition on balls for some rows.
"""
