"""Graphs of ONNX, ``torch.export`` and JAX, read into one form and run on any kind of array."""

from symattn.programs.graphs.form import Graph, Node, Ref
from symattn.programs.graphs.jax_reader import traced
from symattn.programs.graphs.judging import read
from symattn.programs.graphs.running import run, unknown

__all__ = ["Graph", "Node", "Ref", "read", "run", "traced", "unknown"]
