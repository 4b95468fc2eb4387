"""Scoring benchmarks with EvalScope, lm-evaluation-harness or a plugin."""
