"""Which outputs of each part of a running model depend on which tokens, found by changing one token at a time."""
