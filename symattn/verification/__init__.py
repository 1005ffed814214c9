"""Does code compute attention? Probes, bounds in place of tolerances, and the causes of faults."""
