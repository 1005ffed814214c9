"""Mistakes of attention code, as data: wrong and right outputs that other tools can be tried on."""
