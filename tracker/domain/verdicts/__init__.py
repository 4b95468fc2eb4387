"""Verdicts: whether a checkpoint has become worse on each benchmark, and why."""
