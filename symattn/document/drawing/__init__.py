"""Pictures: what is drawn, in which colours, and how it is written."""
