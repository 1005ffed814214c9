"""What ``enclosure`` is made of: bounds on rounding, elementwise operations, sums and products, functions."""
