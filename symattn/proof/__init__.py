"""Proofs for all sizes: the moment algebra, the cut-off prover, its certificates and their checker."""
