"""Calls that mix tokens without scores: recurrences and short convolutions, judged by what they received."""
