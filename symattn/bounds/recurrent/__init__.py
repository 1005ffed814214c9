"""How far a gated linear recurrence may be from its exact value: the law of its rounding errors."""
