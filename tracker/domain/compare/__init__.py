"""Comparison of two checkpoints."""
