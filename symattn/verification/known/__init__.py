"""Known mistakes, one file a topic: the wrong steps, and the table that says them in words."""
