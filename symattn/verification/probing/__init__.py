"""The inputs to try: probes of every shape, random inputs, and a search; and tests of behaviour."""
