"""Sheets: a specification with its inputs, as a user or an example writes it, and how files of them are read."""
