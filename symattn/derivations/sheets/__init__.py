"""Sheets: a specification with its inputs, as a user or an example writes it, and readers of sheet files."""
