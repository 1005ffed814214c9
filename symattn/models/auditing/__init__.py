"""Audits of running models: every call of attention is read, and its result judged."""
