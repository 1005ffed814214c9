"""Graphs of ONNX, ``torch.export`` and JAX, read into one form and run on any kind of array."""

from symattn.sources.graphs.form import Graph, Node, Ref
from symattn.sources.graphs.jax_reader import traced
from symattn.sources.graphs.judging import read
from symattn.sources.graphs.running import run, unknown

__all__ = ["Graph", "Node", "Ref", "read", "run", "traced", "unknown"]
