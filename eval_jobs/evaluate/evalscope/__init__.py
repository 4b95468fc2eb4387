"""Evaluation with EvalScope."""
