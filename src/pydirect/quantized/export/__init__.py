"""Quantised models as C and ONNX."""
