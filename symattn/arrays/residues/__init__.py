"""What the kind ``modular`` is made of: primes, arithmetic of residues, planes computed when needed, and degrees."""
