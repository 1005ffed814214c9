"""The command line, installed as ``symattn_cli``: parse, call, render."""
