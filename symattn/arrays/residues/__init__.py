"""The parts of the kind ``modular``: primes, arithmetic of residues, planes computed when needed, and degrees."""
