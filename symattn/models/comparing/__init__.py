"""Two sources of the same thing: which of them is wrong, by how much, and from where on."""
