"""Faults that attention code has had, as data: wrong and right outputs that other tools can be tried on."""
