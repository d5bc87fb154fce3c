"""DIRECT for classes."""
