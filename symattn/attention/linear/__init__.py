"""Attention without a softmax: recurrences, the delta rule, gates."""
