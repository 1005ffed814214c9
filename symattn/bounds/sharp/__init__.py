"""Half precision, sharply: what roundings to nearest do to an element of the output and to weighted means of them."""
