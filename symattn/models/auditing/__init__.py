"""A running model, looked at: every call of attention in it is read, and its result judged."""
