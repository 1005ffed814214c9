"""The grade ``coq``: equations of certificates, re-checked for all sizes by the proof assistant Coq.

The theory (``*.v``, which ``theory`` compiles once) defines what an expression means and proves that what it accepts
by computation is true. ``terms`` writes the sides of an equation in it, ``steps`` adds hints, which Coq checks,
``readable`` the statement for readers in the notation of ``printing``, with the names that ``sharing`` gives to what
occurs often, ``folds`` the inductions over tiles, ``inferences`` the other inferences, with ``differing``, ``writing``
makes files of it all, and ``coq_judges`` has Coq judge them.
"""
