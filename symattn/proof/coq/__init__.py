"""The grade ``coq``: equations of certificates, checked again for all sizes by the proof assistant Coq.

The theory (``*.v``, which ``theory`` compiles once) defines the meaning of an expression and proves that everything it
accepts by computation is true. ``terms`` writes the sides of an equation as its terms, ``steps`` adds hints, which Coq
checks, ``readable`` writes the statement for readers in the notation of ``coq_printing``, with names for repeated parts
by ``sharing``, ``folds`` the inductions over tiles, ``inferences`` and ``differing`` the other inferences. ``writing``
combines all into files, and ``coq_judges`` has Coq judge them.
"""
