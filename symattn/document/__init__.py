"""Documents, formulas, and how a formula prints."""
