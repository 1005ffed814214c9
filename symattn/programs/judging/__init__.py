"""The gate for kernels: one call gives one status, as JSON, about a candidate that may be hostile."""
