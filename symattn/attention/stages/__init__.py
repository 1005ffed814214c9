"""The stages of attention, each a file: what a field of ``Attention`` adds to the steps."""
