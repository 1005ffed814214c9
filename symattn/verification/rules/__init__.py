"""Mistakes by rule: changes of the one definition's steps, numbers and arrays, with words for each."""
