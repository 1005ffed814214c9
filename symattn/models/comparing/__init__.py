"""Compare two sources of the same result: which is wrong, by how much, and from where on."""
