"""The bound of ``symattn.verification.bounds``: per element in balls and in float64, and a priori as a formula."""
