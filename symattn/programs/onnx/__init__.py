"""ONNX: which attention a node of a graph is."""

from symattn.programs.onnx.attention import OnnxAttention, attention_of

__all__ = ["OnnxAttention", "attention_of"]
