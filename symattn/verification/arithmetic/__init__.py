"""Identify the arithmetic of a function in half precision from its bits, by replays of contracts."""
