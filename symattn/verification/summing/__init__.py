"""In which order a function adds, and how wide its accumulators are: determined by cancellation, from outputs alone."""
