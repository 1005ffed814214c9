"""From judged cases to causes: which known mistake explains all that was seen, and what is said where none does."""
