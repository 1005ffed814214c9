"""In which order a function adds, and how wide its accumulators are: told by what cancels, from outputs alone."""
