"""Graphs of ONNX, ``torch.export`` and JAX, read into one form and run on any kind of array."""
