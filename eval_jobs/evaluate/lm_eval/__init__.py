"""Evaluation with lm-evaluation-harness."""
