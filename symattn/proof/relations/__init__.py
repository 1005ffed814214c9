"""Printed relations, read: formulas compiled into functions of arrays, and decided from what is printed alone."""
