"""ONNX: which attention a node of a graph is."""

from symattn.sources.onnx.attention import OnnxAttention, attention_of

__all__ = ["OnnxAttention", "attention_of"]
