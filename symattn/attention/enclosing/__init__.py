"""The plain pattern of attention, enclosed at the speed of BLAS: softmax(c Q Kᵀ + masks) V in tiles of scores.

This is the one second version of steps that the definition has; tests hold it against the definition on balls.
``pattern`` says what is taken and which keys a tile of queries sees, ``sums`` runs through the tiles, ``radius``
proves how far the result can be off, ``attention.enclosed`` runs the definition on balls for some rows.
"""
