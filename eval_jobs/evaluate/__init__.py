"""Scoring benchmarks with EvalScope in a process of its own."""
