"""Inputs that a function is tried on: of every shape, by name, at random, sought; and how it behaves."""
