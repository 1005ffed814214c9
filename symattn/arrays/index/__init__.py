"""The parts of the kind ``indexed``: index expressions, and axes whose lengths are letters."""
