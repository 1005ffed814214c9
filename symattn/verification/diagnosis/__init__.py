"""From judged cases to causes: which known mistake explains all results, and what is reported if none does."""
