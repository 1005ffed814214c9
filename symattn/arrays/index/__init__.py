"""What the kind ``indexed`` is made of: index expressions, and axes whose lengths are letters."""
