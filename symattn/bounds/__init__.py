"""The bound of ``symattn.bounds.worst_case``: per element in balls and in float64, and a priori as a formula."""
